//! Calls free memory before they get any.

use super::recorded;
use super::{Figure, Match, Rule};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "memory-reclaim",
    layer: "page cache",
    needs: super::STATES,
    owns: super::Owns::Calls,
    single: super::Single::Counts,
    what: "A limit of memory makes calls free pages before they can have new ones.",
    why: "A control group at its limit (memory.max, memory.high), or a machine without free memory, reclaims \
          in the call that asks for a page: it scans lists, writes dirty pages, drops clean ones that are read \
          again.",
    events: "Direct reclaim within calls and faults, for as many calls; pages that were dropped are read again.",
    example: "A container whose memory limit was lowered; a batch job that takes the memory of a database.",
    change: "Raise the limit, make the working set smaller, or go round the page cache (O_DIRECT).",
    refute: "With the fast side's memory as much is reclaimed.",
    since: "Control groups since 2.6.25; direct reclaim in every kernel.",
    // Reads that were not made before say nothing of a device that has changed.
    consequences: &[
        "cache-too-small",
        "cpu-bound-submission",
        "writeback-throttling",
        "changed-job",
        "cold-cache",
        "device-idle-exit",
        "device-latency",
    ],
    switches: &[super::Switch::OtherJob],
    find,
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    let times = delta.per_operation(|d| d.wall.as_ref().map_or(0.0, |wall| wall.reclaim.1 as f64));
    let time = delta.of(|d| d.wall.as_ref().map_or(0.0, |wall| wall.reclaim.0));
    let again = delta.per_operation(|d| d.cache.again as f64);
    let hits = recorded::counter(delta, "memory_limit_hits");
    let all = delta.slower_by() * delta.scale();
    let reclaims = times.rose(3.0) && times.rose_by(0.001);
    let material = time.difference() > 0.1 * all || again.rose_by(0.1) && again.rose(2.0);
    if !reclaims || !material {
        return None;
    }
    Some(Match {
        confidence: if hits.rose(3.0) { 0.95 } else { 0.8 },
        share_ns: None,
        claim: format!(
            "calls reclaim memory {:.3} times each (before {:.3}), {:.0} ms in all; {:.2} pages a call are read again \
             (before {:.2})",
            times.slow,
            times.fast,
            time.slow / 1e6,
            again.slow,
            again.fast
        ),
        evidence: vec![
            Figure::new("reclaims for each call", times, Unit::Ratio),
            Figure::new("time in reclaim", time, Unit::Ns),
            Figure::new("pages read again for each call", again, Unit::Pages),
            Figure::new("times that the group was at its limit", hits, Unit::Count),
        ],
    })
}
