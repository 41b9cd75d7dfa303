//! Reads wait with the elevator while writes pass.

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "reads-starved",
    layer: "elevator",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "Reads wait with the elevator while writes pass them.",
    why: "A task waits for each read, and hardly ever for a buffered write; a scheduler without a preference for reads \
          lets a batch of hundreds of writes go first.",
    events: "The time from insertion to issue grows for reads much more than for writes, at as many commands of each.",
    example: "noop under writeback; deadline with fifo_batch raised to hundreds; the elevator of 2.4.",
    change: "deadline or mq-deadline with writes_starved at 2 or more, a smaller fifo_batch; CFQ or BFQ; wbt.",
    refute: "With the other side's scheduler and its tunables reads wait as long.",
    since: "Every kernel; deadline with its preference for reads since 2.5.39.",
    consequences: &[],
    switches: &[
        Switch::Other("elevator"),
        Switch::OtherKind("elevator."),
        Switch::Other("wbt"),
        Switch::Queue("scheduler"),
    ],
    find,
};

/// Requests of one direction wait while the other passes: `way` is the one that waits, 0 for reads.
pub(super) fn starved(delta: &Delta<'_>, way: usize) -> Option<Match> {
    let other = 1 - way;
    let names = ["reads", "writes"];
    let wait = |way: usize| delta.of(move |d| d.commands.i2d[way].mean());
    let enough = |way: usize| delta.of(move |d| d.commands.issued[way] as f64);
    let (own, others) = (wait(way), wait(other));
    let enough = [enough(0), enough(1)].iter().all(|n| n.fast >= 20.0 && n.slow >= 20.0);
    let nr = delta.per_operation(|d| d.commands.issued[way] as f64);
    let calls = delta.per_operation(|d| d.workload.calls[way] as f64);
    // Jobs of a fixed duration make fewer of the calls that are slower.
    let equal = (0.7..1.43).contains(&nr.ratio()) && (0.7..1.43).contains(&calls.ratio());
    // A slower device makes both wait longer, in proportion.
    let relative = delta.of(|d| d.commands.i2d[way].mean() / (d.commands.i2d[other].mean() + 1000.0));
    let latency = delta.of(|d| {
        // Syncs miss pages written back in the background.
        let own = d.latency[way].mean();
        if own > 0.0 { own } else { d.latency[2].mean() }
    });
    let material = own.difference() > 0.1 * latency.slow;
    // Either it waits longer than the others by now, or these do not wait longer than before: what passes it is their
    // gain.
    let first = relative.rose(1.5) && (relative.slow > 1.5 || others.ratio() <= 1.1);
    if !(enough && equal && own.rose(1.5) && first && latency.rose(1.05) && material) {
        return None;
    }
    let share = delta.time(|time| time.of(crate::digest::Layer::Elevator));
    Some(Match {
        confidence: grade(relative.ratio(), 1.2, 3.0),
        share_ns: (share.difference() > 0.0).then_some(share.difference()),
        claim: format!(
            "{} wait {:.1} ms with the elevator (before {:.1}), {} {:.1} ms (before {:.1})",
            names[way],
            own.slow / 1e6,
            own.fast / 1e6,
            names[other],
            others.slow / 1e6,
            others.fast / 1e6
        ),
        evidence: vec![
            Figure::new(format!("wait of {} with the elevator", names[way]), own, Unit::Ns),
            Figure::new(format!("wait of {} with the elevator", names[other]), others, Unit::Ns),
            Figure::new(
                "changes of direction for a command",
                delta.of(|d| d.commands.turns as f64 / (d.commands.issued[0] + d.commands.issued[1]).max(1) as f64),
                Unit::Share,
            ),
        ],
    })
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    starved(delta, 0)
}

#[cfg(test)]
mod tests {
    use crate::{Delta, Side, digest::Digest};
    use iowhy_stack::units::Nanos;

    /// A run with as many reads as writes, which wait in the elevator, us.
    fn side(waits: [u64; 2], time: u64) -> Side {
        let run = |nr: u64| {
            let mut run = Digest { elapsed: Nanos(1000 * time + nr), ..Digest::default() };
            run.time.slots = 1;
            for (way, wait) in waits.into_iter().enumerate() {
                run.workload.calls[way] = 100;
                run.commands.issued[way] = 100;
                (0..100).for_each(|_| run.commands.i2d[way].add(1000 * wait + nr));
                (0..100).for_each(|_| run.latency[way].add(1000 * (wait + 5000)));
            }
            run
        };
        Side { runs: (0..3).map(run).collect(), ..Side::default() }
    }

    #[test]
    fn the_direction_that_waits_longer_is_named() {
        for (fast, slow, reads, writes) in [
            ([1000, 1000], [9000, 1000], true, false),
            ([1000, 1000], [1000, 9000], false, true),
            ([1000, 1000], [9000, 9000], false, false),
            ([1000, 1000], [1100, 1000], false, false),
        ] {
            let (fast, slow) = (side(fast, 1_000_000), side(slow, 2_000_000));
            let delta = Delta::new(&fast, &slow);
            let found = [0, 1].map(|way| super::starved(&delta, way).is_some());
            assert_eq!(found, [reads, writes], "{fast:?}");
        }
    }
}
