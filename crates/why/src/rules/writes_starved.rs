//! Writes wait with the elevator while reads pass.

use super::cost::{Cost, Facts, MARKED};
use super::{Match, Rule, Switch, reads_starved};
use crate::delta::{Delta, Unit};
use crate::digest::{KIND_SYNC, Layer};

pub(super) const RULE: Rule = Rule {
    name: "writes-starved",
    layer: "elevator",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "Writes wait with the elevator while reads pass them.",
    why: "A preference for reads is right until a task waits for a write: an fsync, a direct write, a log.",
    events: "The time from insertion to issue grows for writes much more than for reads, at as many commands of each.",
    example: "deadline with writes_starved raised; CFQ, whose async queue gets the smallest slices; kyber's tokens.",
    change: "A smaller writes_starved or write_expire; a scheduler that treats synchronous writes as such.",
    refute: "With the other side's scheduler and its tunables writes wait as long.",
    since: "Every kernel; deadline's writes_starved since 2.5.39.",
    consequences: &[],
    switches: &[Switch::Other("elevator"), Switch::OtherKind("elevator."), Switch::Queue("scheduler")],
    find,
    cost: Some(cost),
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    reads_starved::starved(delta, 1)
}

/// Batches of reads before one of writes, as the kernel sets them.
const USUAL: f64 = 2.0;
/// Factor by which writes wait longer than reads: before a batch of theirs stand others.
const LONGER: f64 = 4.0;
/// The least part of the cost: reads that no longer pass are before them, too.
const LEAST: f64 = 0.5;

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let starved = facts.number_of_disk("iosched/writes_starved").filter(|batches| *batches > USUAL)?;
    let [reads, writes] = [0, 1].map(|way| facts.digest.commands.i2d[way].mean());
    if writes < LONGER * reads.max(1.0) {
        return None;
    }
    Some(Cost {
        ns: facts.of_kinds(&[1, KIND_SYNC], &[Layer::Elevator]),
        bounds: [LEAST, 1.0],
        confidence: MARKED,
        claim: format!(
            "writes_starved={starved:.0}: writes wait {:.1} ms with the scheduler, reads {:.1} ms",
            writes / 1e6,
            reads / 1e6
        ),
        setting: format!("iosched/writes_starved={USUAL:.0}"),
        evidence: vec![
            ("time that a write waits with the scheduler", writes, Unit::Ns),
            ("time that a read waits with the scheduler", reads, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread};
    use super::RULE;
    use crate::digest::Layer;

    #[test]
    fn costs() {
        let starved = || {
            Alone::of(|a| {
                a.set("recording", "disk", "sda");
                a.set("sda", "iosched/writes_starved", "100");
                a.digest.commands.i2d = [1000.0, 80_000.0].map(|ns| spread(10, ns));
                a.digest.time.ns[1][Layer::Elevator as usize] = 8e5;
            })
        };
        let edges: &[AloneEdge] = &[
            ("USUAL", |a, x| a.set("sda", "iosched/writes_starved", &format!("{x}")), 3.0, 2.0),
            ("LONGER", |a, x| a.digest.commands.i2d[0] = spread(10, x), 20_000.0, 20_001.0),
        ];
        hold_cost(&RULE, starved, (80.0, 0.85), edges);
        let found = starved().ask(&RULE).expect("a cost");
        assert!((found.bounds_pct[0] - 40.0).abs() < 0.1, "{}: {found:?}", "LEAST");
    }

    /// Writes that wait 50 us instead of 20, while reads wait 9; a sync waits for what others write back.
    fn waiting() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                (d.workload.calls, d.commands.issued) = ([10, 10, 0], [100; 2]);
                (d.commands.i2d, d.latency[2]) = ([9_000.0, 20_000.0].map(|ns| spread(1, ns)), spread(1, 100_000.0));
            });
            (p.slow.commands.i2d[1], p.slow.latency[2]) = (spread(1, 50_000.0), spread(1, 200_000.0));
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("writes wait longer", |p, x| p.slow.commands.i2d[1] = spread(1, x), 40_100.0, 39_900.0),
            ("syncs are slower", |p, x| p.slow.latency[2] = spread(1, x), 105_001.0, 105_000.0),
            ("writes as before", |p, x| p.both(|d| d.latency[1] = spread(x as u64, 100_000.0)), 0.0, 1.0),
        ];
        hold(&RULE, waiting, 0.9005, edges);
    }
}
