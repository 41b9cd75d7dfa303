//! Tasks that have waited for I/O go on late.
//!
//! A call that waits gives its CPU up, and an idle CPU sleeps. The time from the completion of the call's last request
//! to the call's end has that CPU's wake-up in it, and the copying of the data. Calls that wait for nothing, which copy
//! as much, separate copying; without these, a limit below the speed of any memory does.

use super::{Figure, Match, Rule, Switch, changed_job, grade, requests_cut};
use crate::delta::{Delta, Unit};
use crate::digest::{Digest, Layer};
use iowhy_stack::units::PAGE_BYTES;

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
    cost: None,
};

/// A wake-up is late from here on, ns.
const LATE: f64 = 5_000.0;
/// No memory takes this long to copy a page, ns.
const SLOWEST_COPY: f64 = 5_000.0;
/// Calls that say how fast those are that wait for nothing.
const ENOUGH: u64 = 20;
/// Factor by which calls go on later: a kernel that does more after a completion is slower by a little.
const LATER: f64 = 1.5;
/// Part of the delay by which other code may be slower, too: more of it is a slow CPU or slow memory.
const PART: f64 = 0.3;
/// Part of the difference that the delay has to own.
const LEAST_PART: f64 = 0.05;
/// Factors by which calls go on later, half sure and sure.
const GRADE: (f64, f64) = (1.2, 3.0);
/// Factor on the confidence where no calls tell the copying apart.
const UNTOLD: f64 = 0.9;

fn find(delta: &Delta<'_>) -> Option<Match> {
    // Pages of a bio that is cut are there when the last of its requests is: that wait is none for a CPU.
    if [&changed_job::RULE, &requests_cut::RULE].iter().any(|other| (other.find)(delta).is_some()) {
        return None;
    }
    let runs = || delta.fast.runs.iter().chain(&delta.slow.runs);
    let waited = |kind: usize| runs().map(|d| d.after_io[kind].count()).min().unwrap_or(0);
    let kind = usize::from(waited(1) > waited(0));
    let after = delta.of(|d| d.after_io[kind].mean());
    let median = delta.of(|d| d.after_io[kind].median());
    let late = median.difference();
    let pages = |d: &Digest| d.workload.bytes[kind] as f64 / d.workload.calls[kind].max(1) as f64 / PAGE_BYTES as f64;
    // What comes in pieces is copied in pieces, and only the last of them after the last completion.
    let pieces = delta.per_operation(|d| d.time.waits as f64).slow.max(1.0);
    let pages = delta.of(pages).slow / pieces;
    let told = runs().all(|d| d.never_waited[kind].count() >= ENOUGH);
    let never = delta.of(|d| d.never_waited[kind].median());
    let copies = if told { never.difference() > PART * late } else { late < SLOWEST_COPY * pages };
    let before = delta.of(|d| d.before_bio[kind].median());
    if waited(kind) < ENOUGH || late < LATE || !median.rose(LATER) || copies || before.difference() > PART * late {
        return None;
    }
    let waits = delta.per_operation(|d| d.time.waits as f64 / f64::from(d.time.slots.max(1)));
    let code = delta.time(|time| time.of(Layer::Cpu) + time.of(Layer::Lock));
    let owned = (after.difference() * waits.slow).min(code.difference());
    if owned < LEAST_PART * delta.slower_by() {
        return None;
    }
    let sure = grade(median.ratio(), GRADE.0, GRADE.1);
    Some(Match {
        confidence: if told { sure } else { UNTOLD * sure },
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

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, spread};
    use super::super::requests_cut::tests::cut;
    use super::{Layer, PAGE_BYTES, RULE};
    use iowhy_stack::units::Nanos;

    /// Reads that go on 20 us after their I/O instead of 10; reads of cached pages are as fast as before.
    fn late() -> Pair {
        Pair::of(|p| {
            p.both(|d| (d.never_waited[0], d.time.waits) = (spread(20, 1_000.0), 10));
            (p.fast.after_io[0], p.slow.after_io[0]) = (spread(20, 10_000.0), spread(20, 20_000.0));
            p.slow.time.ns[0][Layer::Cpu as usize] = 200_000.0;
        })
    }

    /// Writes of two pages, all of which wait.
    fn untold() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                d.workload.calls = [0, 10, 0];
                d.workload.bytes = [0, 20 * PAGE_BYTES, 0];
                d.latency.swap(0, 1);
                d.time.waits = 10;
            });
            (p.fast.after_io[1], p.slow.after_io[1]) = (spread(20, 10_000.0), spread(20, 20_000.0));
            p.slow.time.ns[0][Layer::Lock as usize] = 200_000.0;
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            (
                "LATE",
                |p, x| {
                    p.slow.elapsed = Nanos(1_500_000);
                    (p.fast.after_io[0], p.slow.after_io[0]) = (spread(20, 1_000.0), spread(20, x));
                },
                6_000.0,
                5_999.0,
            ),
            ("ENOUGH waited", |p, x| p.fast.after_io[0] = spread(x as u64, 10_000.0), 20.0, 19.0),
            ("ENOUGH waited for nothing", |p, x| p.slow.never_waited[0] = spread(x as u64, 9_000.0), 19.0, 20.0),
            ("LATER", |p, x| p.fast.after_io[0] = spread(20, x), 13_333.0, 13_334.0),
            ("PART, copies", |p, x| p.slow.never_waited[0] = spread(20, x), 4_000.0, 4_001.0),
            ("PART, before the I/O", |p, x| p.slow.before_bio[0] = spread(20, x), 3_000.0, 3_001.0),
            ("LEAST_PART", |p, x| p.slow.time.ns[0][Layer::Cpu as usize] = x, 50_000.0, 49_999.0),
            ("LEAST_PART, waits", |p, x| p.slow.time.waits = x as u64, 5.0, 4.0),
            ("the same job", |p, x| p.slow.workload.sequential[0] = x as u64, 0.0, 10.0),
            ("requests that are cut", |p, x| (0..x as usize).for_each(|_| cut(p, 0)), 0.0, 1.0),
        ];
        hold(&RULE, late, 0.7787, edges);
        let edges: &[Edge] = &[
            ("SLOWEST_COPY", |p, x| p.slow.after_io[1] = spread(20, x), 20_000.0, 19_999.0),
            (
                "SLOWEST_COPY, pieces",
                |p, x| {
                    p.both(|d| d.workload.bytes[1] *= 2);
                    p.slow.time.waits = x as u64;
                },
                20.0,
                19.0,
            ),
            (
                "SLOWEST_COPY, less than a piece",
                |p, x| {
                    p.slow.time.waits = 8;
                    p.slow.after_io[1] = spread(20, x);
                },
                20_000.0,
                19_999.0,
            ),
            ("UNTOLD, a slow start", |p, x| p.slow.before_bio[1] = spread(20, x), 3_000.0, 3_001.0),
        ];
        hold(&RULE, untold, 0.7008, edges);
    }
}
