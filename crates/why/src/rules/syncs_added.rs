//! A program syncs more often for as much that it writes.

use super::{Figure, Match, Rule, grade};
use crate::delta::{Contrast, Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "syncs-added",
    layer: "application",
    needs: super::CALLS,
    owns: super::Owns::Writes,
    single: super::Single::Counts,
    what: "The program calls fsync, fdatasync or their like more often for as much that it writes.",
    why: "A sync waits for the data, a commit of the journal and a flush of the device's cache; without it the kernel \
          writes later, and the program does not wait.",
    events: "More syncs for each write of as many bytes, and the time is in them.",
    example: "synchronous_commit from off to on in PostgreSQL; PRAGMA synchronous; a library that calls fsync after \
              each record.",
    change: "Sync once for many writes (group commit, a larger transaction), or put the log on a device with a \
             protected cache.",
    refute: "With as few syncs as on the fast side the difference remains.",
    since: "Every kernel.",
    consequences: &[
        "flush-cost",
        "synchronous-writes",
        "journal-commit-per-fsync",
        "cpu-bound-submission",
        "queue-depth-one",
        "device-latency",
        "early-writeback",
        "writeback-throttling",
        "slow-wakeups",
    ],
    switches: &[super::Switch::OtherJob],
    find,
};

/// Part of the difference that the syncs have to own.
const LEAST_PART: f64 = 0.3;

/// Part of the difference that makes the syncs all there is to say.
const ALL: f64 = 0.6;

/// More syncs of as many bytes, and the time in them. In a job of ours the syncs are the job's, which is another one
/// then.
fn added(delta: &Delta<'_>, part: f64) -> bool {
    let syncs = delta.of(|d| d.workload.calls[2] as f64);
    let written = delta.of(|d| d.workload.bytes[1] as f64);
    let programs = delta.fast.runs.iter().chain(&delta.slow.runs).all(|run| run.command.is_some());
    let more = syncs.rose(1.2) && syncs.rose_by(4.0) && each(delta).rose(1.2);
    let as_much = (0.6..1.7).contains(&written.ratio());
    programs && more && as_much && time(delta).difference() >= part * delta.slower_by()
}

fn each(delta: &Delta<'_>) -> Contrast {
    delta.of(|d| d.workload.calls[2] as f64 / d.workload.calls[1].max(1) as f64)
}

fn time(delta: &Delta<'_>) -> Contrast {
    delta.time(|time| time.within(&[2], super::IN_CALLS))
}

/// The syncs are what another job comes down to.
pub(super) fn is_all(delta: &Delta<'_>) -> bool {
    added(delta, ALL)
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    if !added(delta, LEAST_PART) {
        return None;
    }
    let syncs = delta.of(|d| d.workload.calls[2] as f64);
    let (each, time) = (each(delta), time(delta));
    Some(Match {
        confidence: grade(syncs.ratio(), 1.1, 2.0).min(0.97),
        share_ns: None,
        claim: format!(
            "{:.0} syncs, against {:.0}: {:.2} for each write (before {:.2})",
            syncs.slow, syncs.fast, each.slow, each.fast
        ),
        evidence: vec![
            Figure::new("syncs", syncs, Unit::Count),
            Figure::new("syncs for each write", each, Unit::Ratio),
            Figure::new("time in syncs", super::recorded::scaled(delta, time), Unit::Ns),
        ],
    })
}
