//! Writers are stopped because too many pages are dirty.

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};
use crate::digest::Layer;

pub(super) const RULE: Rule = Rule {
    name: "writeback-throttling",
    layer: "journal/writeback",
    needs: super::CALLS_AND_BIOS,
    owns: super::Owns::Writes,
    single: super::Single::Counts,
    what: "Writers into the page cache are stopped until dirty pages have been written.",
    why: "Beyond dirty_ratio a writer goes at the device's speed, not at memory's.",
    events: "Buffered writes sleep in the middle of the call with no request of their own; most calls are as fast as \
             before and a few take very much longer; pages are written while the program still runs.",
    example: "dirty_bytes set to a few megabytes; a machine whose free memory shrank.",
    change: "Raise dirty_ratio and dirty_background_ratio, or write less at a time; the disk's speed is the limit in \
             the end.",
    refute: "With the other side's dirty limits the writers are stopped as often.",
    since: "Every kernel; per device since 2.6.24, with pauses instead of writing oneself since 3.2.",
    consequences: &[],
    switches: &[Switch::OtherKind("writeback."), Switch::Other("machine.memory_mb")],
    find,
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    let writes = delta.of(|d| d.workload.calls[1] as f64);
    let buffered = delta.of(|d| 1.0 - d.workload.direct[1] as f64 / d.workload.calls[1].max(1) as f64);
    if writes.slow < 10.0 || buffered.slow < 0.5 {
        return None;
    }
    // Recordings know how long the dirty limits stopped writers.
    let told_ns = delta.of(|d| d.wall.as_ref().map_or(0.0, |wall| wall.dirty_ns));
    if told_ns.difference() > 0.2 * delta.slower_by() * delta.scale() && told_ns.rose(1.5) {
        return Some(Match {
            confidence: 0.95,
            share_ns: Some(told_ns.difference() / delta.scale()),
            claim: format!(
                "the dirty limits stop writers for {:.0} ms, against {:.0}",
                told_ns.slow / 1e6,
                told_ns.fast / 1e6
            ),
            evidence: vec![Figure::new("time that the dirty limits stop writers", told_ns, Unit::Ns)],
        });
    }
    let throttles = delta.per_operation(|d| d.sync.throttles as f64);
    let stopped = delta.time(|time| time.of(Layer::Journal) + time.of(Layer::Lock));
    let mean = delta.of(|d| d.latency[1].mean());
    let median = delta.of(|d| d.latency[1].median());
    let told = throttles.slow > throttles.fast * 1.2 && throttles.sure() && mean.rose(1.05);
    // A live trace has no word of it: most calls as before, the mean far above, and no reads to explain it.
    let untold = throttles.slow == 0.0
        && delta.slow.live
        && median.ratio() < 1.2
        && mean.rose(1.5)
        && stopped.rose_by(0.2 * delta.slower_by());
    if !(told || untold) {
        return None;
    }
    let longer = delta.per_operation(|d| d.latency[1].sum() / f64::from(d.time.slots.max(1)));
    Some(Match {
        confidence: if told { grade(mean.ratio(), 1.02, 1.5) } else { 0.6 },
        share_ns: Some(longer.difference().max(0.0)),
        claim: format!(
            "writers are stopped: a write takes {:.0} us on average (before {:.0}), half of them less than {:.0}",
            mean.slow / 1e3,
            mean.fast / 1e3,
            median.slow / 1e3
        ),
        evidence: vec![
            Figure::new("stops for an operation", throttles, Unit::Count),
            Figure::new("mean time of a write call", mean, Unit::Ns),
            Figure::new("median time of a write call", median, Unit::Ns),
        ],
    })
}
