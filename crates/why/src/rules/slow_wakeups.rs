//! Tasks that have waited for I/O go on late.
//!
//! A call that waits gives its CPU up, and an idle CPU sleeps. The time from the completion of the call's last request
//! to the call's end has that CPU's wake-up in it, and the copying of the data. Calls that wait for nothing, which copy
//! as much, separate copying; without these, a limit below the speed of any memory does.

use super::{Figure, Match, Rule, Switch, changed_job, grade};
use crate::delta::{Delta, Unit};
use crate::digest::{Digest, Layer};

pub(super) const RULE: Rule = Rule {
    name: "slow-wakeups",
    layer: "CPU",
    needs: super::CALLS_AND_BIOS,
    owns: super::Owns::Calls,
    single: super::Single::Times,
    what: "A call goes on late after the completion of its I/O.",
    why: "A CPU in a deep idle state (C6 and below) takes 100 us and more to run again; a halted virtual CPU, as long \
          as the host takes to give it a processor. A fast device has answered by then.",
    events: "The time from the completion of a call's last request to the call's end is longer; the time before its \
             first request is not, and calls that wait for nothing are as fast as before.",
    example: "C-states switched on in the firmware: random reads from NVMe at 250 us instead of 100.",
    change: "Limit the idle states (intel_idle.max_cstate, cpupower idle-set, /dev/cpu_dma_latency, a tuned profile), \
             poll for completions, or keep more calls in flight.",
    refute: "With the deep idle states off the calls go on as late.",
    since: "Every kernel on processors with deep idle states; the governor decides (menu, teo since 5.1).",
    consequences: &["cpu-bound-submission"],
    switches: &[Switch::OtherKind("machine.wake_"), Switch::Other("machine")],
    find,
};

/// A wake-up is late from here on, ns.
const LATE: f64 = 5_000.0;
/// No memory takes this long to copy a page, ns.
const SLOWEST_COPY: f64 = 5_000.0;
/// Calls that say how fast those are that wait for nothing.
const ENOUGH: u64 = 20;

fn find(delta: &Delta<'_>) -> Option<Match> {
    if (changed_job::RULE.find)(delta).is_some() {
        return None;
    }
    let runs = || delta.fast.runs.iter().chain(&delta.slow.runs);
    let waited = |kind: usize| runs().map(|d| d.after_io[kind].count()).min().unwrap_or(0);
    let kind = usize::from(waited(1) > waited(0));
    let after = delta.of(|d| d.after_io[kind].mean());
    let median = delta.of(|d| d.after_io[kind].median());
    let late = median.difference();
    let pages = |d: &Digest| d.workload.bytes[kind] as f64 / d.workload.calls[kind].max(1) as f64 / 4096.0;
    // What comes in pieces is copied in pieces, and only the last of them after the last completion.
    let pieces = delta.per_operation(|d| d.time.waits as f64).slow.max(1.0);
    let pages = (delta.of(pages).slow / pieces).max(1.0);
    let told = runs().all(|d| d.never_waited[kind].count() >= ENOUGH);
    let never = delta.of(|d| d.never_waited[kind].median());
    let copies = if told { never.difference() > 0.3 * late } else { late < SLOWEST_COPY * pages };
    let before = delta.of(|d| d.before_bio[kind].median());
    if waited(kind) < ENOUGH || late < LATE || !median.rose(1.5) || copies || before.difference() > 0.3 * late {
        return None;
    }
    let waits = delta.per_operation(|d| d.time.waits as f64 / f64::from(d.time.slots.max(1)));
    let code = delta.time(|time| time.of(Layer::Cpu) + time.of(Layer::Lock));
    let owned = (after.difference() * waits.slow).min(code.difference());
    if owned < 0.05 * delta.slower_by() {
        return None;
    }
    let sure = grade(median.ratio(), 1.2, 3.0);
    Some(Match {
        confidence: if told { sure } else { 0.9 * sure },
        share_ns: Some(owned),
        claim: format!(
            "a {} goes on {:.1} us after its I/O is complete (before {:.1} us)",
            ["read", "write"][kind],
            median.slow / 1e3,
            median.fast / 1e3
        ),
        evidence: vec![
            Figure::new("time from the last completion to the end of a call", after, Unit::Ns),
            Figure::new("time of a call before its first bio", before, Unit::Ns),
            Figure::new("time of a call that waits for nothing", never, Unit::Ns),
        ],
    })
}
