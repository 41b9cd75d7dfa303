//! The queue runs as soon as a bio is in: its neighbours find it gone.

use std::ops::Range;

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "queue-run-at-once",
    layer: "merging",
    needs: super::REQUESTS,
    owns: super::Owns::Calls,
    single: super::Single::Counts,
    what: "A request leaves the scheduler as soon as it is in, before the bios that would continue it have come.",
    why: "A device with room is given each bio as a command of its own, and each costs the CPU, the driver and the \
          device once.",
    events: "Bios are as large as before and still join whatever request waits; but requests wait a fraction of the \
             time, and fewer bios find the one that they continue.",
    example: "Linux 6.11 and later (060406c61c7c: a plug around every bio): sequential writes handed in one by one.",
    change: "Hand in several calls at once (io_uring and libaio: more in a batch); larger calls.",
    refute: "With the queue run by the worker thread (before 6.11) as few bios find their request.",
    since: "6.11, on queues with a scheduler.",
    consequences: &["requests-cut"],
    switches: &[Switch::Other("submit_run"), Switch::Other("elevator")],
    find,
    cost: None,
};

/// Ratio of bio sizes.
const EQUAL: Range<f64> = 0.9..1.1;
/// Share of the bios that find their request on the fast side.
const COULD: f64 = 0.3;
/// Factor by which fewer do.
const FEWER: f64 = 1.25;
/// Share of those that find it and join.
const JOIN: f64 = 0.7;
/// Factor by which requests wait for less time with the elevator.
const SOONER: f64 = 2.0;
/// Ratio of request sizes, and those for half sure and sure.
const SMALLER: f64 = 1.2;
const GRADE: (f64, f64) = (1.1, 2.0);

fn find(delta: &Delta<'_>) -> Option<Match> {
    for (way, name) in ["read", "write"].into_iter().enumerate() {
        let part = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let could = delta.of(|d| part(d.bios.could_join[way], d.bios.count[way]));
        let joined = delta.of(|d| part(d.bios.joined[way], d.bios.could_join[way]));
        let size = delta.of(|d| d.bios.sizes[way].mean() * 512.0);
        let request = delta.of(|d| d.commands.sizes[way].mean() * 512.0);
        let waits = delta.of(|d| d.commands.i2d[way].mean());
        let gone = could.fast > COULD && could.fell(FEWER) && waits.fell(SOONER);
        let joins = joined.fast > JOIN && (could.slow == 0.0 || joined.slow > JOIN);
        if EQUAL.contains(&size.ratio()) && gone && joins && request.fell(SMALLER) {
            return Some(Match {
                confidence: grade(request.fast / request.slow.max(1.0), GRADE.0, GRADE.1),
                share_ns: None,
                claim: format!(
                    "{name} requests leave after {:.1} us where they waited {:.1}: {:.0} % of the bios find the one \
                     that they continue, where {:.0} % did",
                    waits.slow / 1e3,
                    waits.fast / 1e3,
                    100.0 * could.slow,
                    100.0 * could.fast
                ),
                evidence: vec![
                    Figure::new(format!("share of {name} bios that find their request"), could, Unit::Share),
                    Figure::new(format!("time of a {name} request with the elevator"), waits, Unit::Ns),
                    Figure::new(format!("mean {name} request"), request, Unit::Bytes),
                ],
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, spread};
    use super::RULE;

    /// Of a thousand bios 800 find their request and join it, then 500, as requests wait 4 us instead of 10.
    fn gone() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                d.bios.count[1] = 1000;
                d.bios.sizes[1] = spread(1, 1000.0);
            });
            (p.fast.bios.could_join[1], p.fast.bios.joined[1]) = (800, 800);
            (p.slow.bios.could_join[1], p.slow.bios.joined[1]) = (500, 500);
            p.fast.commands.i2d[1] = spread(1, 10_000.0);
            p.slow.commands.i2d[1] = spread(1, 4_000.0);
            p.fast.commands.sizes[1] = spread(1, 1500.0);
            p.slow.commands.sizes[1] = spread(1, 1000.0);
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("EQUAL, smaller", |p, x| p.slow.bios.sizes[1] = spread(1, x), 900.0, 899.0),
            ("EQUAL, larger", |p, x| p.slow.bios.sizes[1] = spread(1, x), 1099.0, 1100.0),
            (
                "COULD",
                |p, x| {
                    (p.fast.bios.could_join[1], p.fast.bios.joined[1]) = (x as u64, x as u64);
                    (p.slow.bios.could_join[1], p.slow.bios.joined[1]) = (100, 100);
                },
                301.0,
                300.0,
            ),
            ("FEWER", |p, x| (p.slow.bios.could_join[1], p.slow.bios.joined[1]) = (x as u64, x as u64), 639.0, 640.0),
            ("JOIN, fast", |p, x| p.fast.bios.joined[1] = x as u64, 561.0, 560.0),
            ("JOIN, slow", |p, x| p.slow.bios.joined[1] = x as u64, 351.0, 350.0),
            ("SOONER", |p, x| p.slow.commands.i2d[1] = spread(1, x), 4_999.0, 5_000.0),
            ("SMALLER", |p, x| p.fast.commands.sizes[1] = spread(1, x), 1201.0, 1200.0),
        ];
        hold(&RULE, gone, 0.7594, edges);
    }
}
