//! Writes wait with the elevator while reads pass.

use super::{Match, Rule, Switch, reads_starved};
use crate::delta::Delta;

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
    cost: Some(|facts| reads_starved::by_preference(facts, 1)),
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    reads_starved::starved(delta, 1)
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, spread};
    use super::RULE;

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
