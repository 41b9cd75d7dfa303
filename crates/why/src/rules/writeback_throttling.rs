//! Writers are stopped because too many pages are dirty.

use super::cost::{Bounds, Cost, Facts};
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
    cost: Some(cost),
};

/// Writes on the slow side: with fewer, one slow write is all of them.
const ENOUGH: f64 = 10.0;
/// Share of buffered writes: direct ones leave no dirty pages.
const BUFFERED: f64 = 0.5;
/// Part of the difference that the stops of writers have to own.
const PART: f64 = 0.2;
/// Factor by which the dirty limits stop writers for longer: any large writer is stopped for a while.
const LONGER: f64 = 1.5;
/// Confidence where the kernel's own record of the stops owns its part of the difference.
const TOLD: f64 = 0.95;
/// Factor by which writers are stopped more often.
const MORE_STOPS: f64 = 1.2;
/// Factor by which the mean write is slower, for stops to matter.
const SLOWER: f64 = 1.05;
/// Factors by which it is, half sure and sure, where stops are counted.
const GRADE: (f64, f64) = (1.02, 1.5);
/// Factor by which the median write is slower at most where stops are not recorded: they hit a few writes.
const MEDIAN: f64 = 1.2;
/// Factor by which the mean write is slower at least where stops are not recorded.
const MEAN: f64 = 1.5;
/// Confidence where stops are not recorded: locks and journals can make a few writes slow, too.
const UNTOLD: f64 = 0.6;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let writes = delta.of(|d| d.workload.calls[1] as f64);
    let buffered = delta.of(|d| 1.0 - d.workload.direct[1] as f64 / d.workload.calls[1].max(1) as f64);
    if writes.slow < ENOUGH || buffered.slow < BUFFERED {
        return None;
    }
    // Recordings know how long the dirty limits stopped writers.
    let told_ns = delta.of(|d| d.wall.as_ref().map_or(0.0, |wall| wall.dirty_ns));
    if told_ns.difference() > PART * delta.slower_by() * delta.scale() && told_ns.rose(LONGER) {
        return Some(Match {
            confidence: TOLD,
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
    let told = throttles.rose(MORE_STOPS) && mean.rose(SLOWER);
    // A live trace has no word of it: most calls as before, the mean far above, and no reads to explain it.
    let untold = throttles.slow == 0.0
        && delta.slow.live
        && median.ratio() < MEDIAN
        && mean.rose(MEAN)
        && stopped.rose_by(PART * delta.slower_by());
    if !(told || untold) {
        return None;
    }
    let longer = delta.per_operation(|d| d.latency[1].sum() / f64::from(d.time.slots.max(1)));
    Some(Match {
        confidence: if told { grade(mean.ratio(), GRADE.0, GRADE.1) } else { UNTOLD },
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

/// Percent of memory that may be dirty by default.
const USUAL_RATIO: f64 = 20.0;
/// Percent of the dirty pages that a device may have by default.
const WHOLE: f64 = 100.0;
/// Confidence of the cost, and its bounds: what is dirty has to be written some time.
const ALONE: (f64, Bounds) = (0.85, [0.3, 1.0]);

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let stopped = facts.digest.wall.as_ref()?.dirty_ns;
    let number = |key: &str| facts.settings.get("sysctl", key).and_then(|value| value.parse::<f64>().ok());
    let bytes = number("vm.dirty_bytes").filter(|bytes| *bytes > 0.0).map(|bytes| format!("vm.dirty_bytes={bytes:.0}"));
    let ratio = || number("vm.dirty_ratio").filter(|ratio| *ratio < USUAL_RATIO && *ratio > 0.0);
    let of_device = || {
        let strict = facts.of_disk("bdi/strict_limit").is_some_and(|of| of == "1");
        let share = facts.number_of_disk("bdi/max_ratio").filter(|ratio| strict || *ratio < WHOLE);
        share.map(|ratio| format!("bdi/max_ratio={ratio:.0}, bdi/strict_limit={}", u8::from(strict)))
    };
    let of_all = bytes.or_else(|| ratio().map(|ratio| format!("vm.dirty_ratio={ratio:.0}")));
    let (limit, setting) = match of_all {
        Some(limit) => (limit, format!("vm.dirty_ratio={USUAL_RATIO:.0}")),
        None => (of_device()?, format!("bdi/max_ratio={WHOLE:.0} and bdi/strict_limit=0")),
    };
    let (confidence, bounds) = ALONE;
    Some(Cost {
        ns: stopped,
        bounds,
        confidence,
        claim: format!("writers wait {:.0} ms for the dirty limit ({limit})", stopped / 1e6),
        setting,
        evidence: vec![("time that the dirty limits stop writers", stopped, Unit::Ns)],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread};
    use super::RULE;
    use crate::digest::{Digest, Layer, wall::Wall};

    fn writes(d: &mut Digest) {
        d.workload.calls = [0, 1000, 0];
        d.latency.swap(0, 1);
    }

    fn dirty_ns(d: &mut Digest, ns: f64) {
        d.wall = Some(Wall { span_ns: d.elapsed.0, dirty_ns: ns, ..Wall::default() });
    }

    /// Recordings of a program whose writers the dirty limits stop for half of the difference.
    fn recorded() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                writes(d);
                d.command = Some(Default::default());
            });
            dirty_ns(&mut p.slow, 500_000.0);
        })
    }

    /// 1500 stops in place of 1000, and writes of 120 us in place of 100.
    fn counted() -> Pair {
        Pair::of(|p| {
            p.both(writes);
            (p.fast.sync.throttles, p.slow.sync.throttles) = (1000, 1500);
            p.slow.latency[1] = spread(10, 120_000.0);
        })
    }

    /// One of ten writes takes 1 ms in place of 100 us on a running kernel.
    fn untold() -> Pair {
        Pair::of(|p| {
            p.both(writes);
            p.sides[1].live = true;
            p.slow.latency[1] = spread(9, 100_000.0);
            p.slow.latency[1].add(1_000_000);
            p.slow.time.ns[1][Layer::Journal as usize] = 900_000.0;
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("ENOUGH", |p, x| p.slow.workload.calls[1] = x as u64, 10.0, 9.0),
            ("BUFFERED", |p, x| p.slow.workload.direct[1] = x as u64, 500.0, 501.0),
            ("TOLD, PART", |p, x| dirty_ns(&mut p.slow, x), 200_001.0, 200_000.0),
            (
                "LONGER",
                |p, x| {
                    dirty_ns(&mut p.fast, 1_000_000.0);
                    dirty_ns(&mut p.slow, x);
                },
                1_500_001.0,
                1_500_000.0,
            ),
        ];
        hold(&RULE, recorded, 0.95, edges);
        let edges: &[Edge] = &[
            ("MORE_STOPS", |p, x| p.slow.sync.throttles = x as u64, 1201.0, 1200.0),
            ("SLOWER", |p, x| p.slow.latency[1] = spread(10, x), 105_001.0, 105_000.0),
        ];
        hold(&RULE, counted, 0.7107, edges);
        let edges: &[Edge] = &[
            (
                "MEDIAN",
                |p, x| {
                    p.fast.latency[1] = spread(10, x);
                    p.slow.latency[1] = spread(6, 126_000.0);
                    p.slow.latency[1].merge(&spread(4, 1_000_000.0));
                },
                105_001.0,
                105_000.0,
            ),
            (
                "MEAN",
                |p, x| {
                    p.slow.latency[1] = spread(9, 100_000.0);
                    p.slow.latency[1].add(x as u64);
                },
                600_001.0,
                600_000.0,
            ),
            ("PART, untold", |p, x| p.slow.time.ns[1][Layer::Journal as usize] = x, 200_000.0, 199_999.0),
            ("no stops are known", |p, x| p.both(|d| d.sync.throttles = x as u64), 0.0, 1.0),
            ("UNTOLD on running kernels", |p, x| p.sides[1].live = x > 0.0, 1.0, 0.0),
        ];
        hold(&RULE, untold, 0.6, edges);
    }

    #[test]
    fn costs() {
        let stopped = || {
            Alone::of(|a| {
                a.digest.wall = Some(Wall { dirty_ns: 4e5, ..Wall::default() });
                a.set("sysctl", "vm.dirty_ratio", "5");
            })
        };
        let edges: &[AloneEdge] =
            &[("USUAL_RATIO", |a, x| a.set("sysctl", "vm.dirty_ratio", &x.to_string()), 19.0, 20.0)];
        hold_cost(&RULE, stopped, (40.0, 0.85), edges);
        fn of_device(a: &mut Alone, ratio: &str, strict: &str) {
            a.digest.wall = Some(Wall { dirty_ns: 4e5, ..Wall::default() });
            a.set("recording", "disk", "sda");
            a.set("sda", "bdi/max_ratio", ratio);
            a.set("sda", "bdi/strict_limit", strict);
        }
        let edges: &[AloneEdge] = &[
            ("WHOLE", |a, x| of_device(a, &x.to_string(), "0"), 99.0, 100.0),
            ("a strict limit", |a, x| of_device(a, "100", &x.to_string()), 1.0, 0.0),
        ];
        hold_cost(&RULE, || Alone::of(|a| of_device(a, "1", "0")), (40.0, 0.85), edges);
    }
}
