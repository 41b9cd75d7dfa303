//! The elevator keeps the device idle in the hope that the last task asks again nearby.

use super::cost::{Bounds, Cost, Facts, MARKED};
use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Contrast, Delta, Unit};
use crate::digest::{Digest, Layer};

pub(super) const RULE: Rule = Rule {
    name: "slice-idling",
    layer: "elevator",
    needs: super::REQUESTS,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "The elevator leaves the device idle while requests wait, for the sake of the task it has just served.",
    why: "Waiting pays on a disk if the task asks for the next sectors soon; on a device without seeks, or if the next \
          request is elsewhere or does not come, the time is lost to all who wait.",
    events: "The device has nothing to do while requests are with the elevator; the waits begin when a request of one \
             task completes and end with its next one, or after some milliseconds.",
    example: "CFQ's slice_idle of 8 ms on an SSD; the anticipatory elevator with 16 random readers.",
    change: "slice_idle=0 (antic_expire=0), or another scheduler: none or mq-deadline on devices without seeks.",
    refute: "With slice_idle at 0 the difference remains.",
    since: "Anticipatory 2.6.0 to 2.6.32, CFQ 2.6.13 to 4.20, BFQ since 4.12.",
    consequences: &[
        "queue-depth-one",
        "reads-starved",
        "writes-starved",
        "device-latency",
        "device-bandwidth",
        "device-idle-exit",
    ],
    switches: &[
        Switch::Other("elevator.slice_idle_ms"),
        Switch::Other("elevator.slice_idle_us"),
        Switch::Other("elevator.antic_expire_ms"),
        Switch::Other("elevator"),
        Switch::Queue("scheduler"),
    ],
    find,
    cost: Some(cost),
};

/// Time that the device idles because the elevator wants it so, as a share of the run. A flush of the drive's cache
/// holds requests back as well; where syncs are called, only waits that the source names count.
pub(super) fn idle_share(delta: &Delta<'_>) -> Contrast {
    delta.of(|d| idle(d) / d.elapsed.0.max(1) as f64)
}

/// That time, ns.
fn idle(d: &Digest) -> f64 {
    let syncs = d.workload.calls[2] > 0 || d.sync.commits > 0 || d.sync.flush.count() > 0;
    let told = d.commands.idles > 0;
    let idle = if told { d.commands.idle_waiting.min(d.commands.idle_time) } else { d.commands.idle_waiting };
    if syncs && !told { 0.0 } else { idle as f64 }
}

/// By how much the idle share of the time has grown: a few waits pay, and every elevator that idles has them.
const MORE: f64 = 0.02;
/// Factor by which it has grown: an elevator that idles as much on both sides makes no difference.
const TIMES: f64 = 1.5;
/// One and the growth of that share, half sure and sure.
const GRADE: (f64, f64) = (1.01, 1.1);
/// Share from which on waits explain whatever others do not, if one task at a time also costs the device its depth.
const MOST_OF_ALL: f64 = 0.2;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let share = idle_share(delta);
    if !share.rose_by(MORE) || share.ratio() < TIMES {
        return None;
    }
    let idle = delta.per_operation(|d| d.commands.idle_waiting as f64);
    let idles = delta.per_operation(|d| d.commands.idles as f64);
    let depth = delta.of(|d| f64::from(d.commands.deepest));
    // With one task served at a time the device also loses its depth, and that has no figure of its own here.
    let alone = depth.slow < depth.fast;
    let mut evidence = vec![
        Figure::new("share of the time with an idle device and requests waiting", share, Unit::Share),
        Figure::new("such time for an operation", idle, Unit::Ns),
    ];
    if idles.slow > 0.0 {
        evidence.push(Figure::new("deliberate waits for an operation", idles, Unit::Count));
    }
    if alone {
        evidence.push(Figure::new("most requests at the device", depth, Unit::Count));
    }
    Some(Match {
        confidence: grade(1.0 + share.difference(), GRADE.0, GRADE.1),
        share_ns: (!alone || share.slow < MOST_OF_ALL).then_some(idle.difference().max(0.0)),
        claim: format!(
            "the elevator keeps the device idle for {:.0} % of the time while requests wait (before: {:.0} %)",
            100.0 * share.slow,
            100.0 * share.fast
        ),
        evidence,
    })
}

/// Elevators that wait for a task.
const IDLE: [&str; 3] = ["anticipatory", "cfq", "bfq"];
/// Parts of the cost: others may be served first in the time that is won.
const PARTS: Bounds = [0.5, 1.0];

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let scheduler = facts.of_disk("scheduler").filter(|name| IDLE.contains(name))?;
    // Where heads move, the wait for the next request of a task is what the elevator is there for.
    if facts.turns() != Some(false) {
        return None;
    }
    let waits = facts.in_layers(&[Layer::Elevator]);
    let ns = idle(facts.digest).min(waits);
    Some(Cost {
        ns,
        bounds: PARTS,
        confidence: MARKED,
        claim: format!(
            "{scheduler} keeps the device idle for {:.0} % of the time while requests wait, on a device without heads",
            100.0 * ns / facts.whole_ns.max(1.0)
        ),
        setting: "scheduler=none".to_owned(),
        evidence: vec![
            ("time with an idle device and requests waiting", ns, Unit::Ns),
            ("time of calls in the elevator", waits, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread};
    use super::RULE;
    use crate::digest::Layer;

    /// An idle device for 100 us of 2 ms, while requests wait.
    fn idle() -> Pair {
        Pair::of(|p| p.slow.commands.idle_waiting = 100_000)
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("MORE", |p, x| p.slow.commands.idle_waiting = x as u64, 40_000.0, 39_999.0),
            (
                "MORE, named waits in a run with syncs",
                |p, x| {
                    p.slow.workload.calls[2] = 1;
                    (p.slow.commands.idles, p.slow.commands.idle_time) = (1, x as u64);
                },
                40_000.0,
                39_999.0,
            ),
            (
                "MORE, waits for nothing",
                |p, x| {
                    (p.slow.commands.idles, p.slow.commands.idle_time) = (1, 1_000_000);
                    p.slow.commands.idle_waiting = x as u64;
                },
                40_000.0,
                39_999.0,
            ),
            (
                "TIMES",
                |p, x| (p.fast.commands.idle_waiting, p.slow.commands.idle_waiting) = (250_000, x as u64),
                750_000.0,
                749_999.0,
            ),
            ("syncs", |p, x| p.slow.workload.calls[2] = x as u64, 0.0, 1.0),
            ("commits", |p, x| p.slow.sync.commits = x as u64, 0.0, 1.0),
            ("flushes", |p, x| p.slow.sync.flush = spread(x as u64, 1.0), 0.0, 1.0),
        ];
        hold(&RULE, idle, 0.7275, edges);
    }

    #[test]
    fn a_device_without_depth_loses_more_than_idle_time() {
        for (idle_waiting, deepest, share) in [(398_000, 1, true), (400_000, 1, false), (400_000, 2, true)] {
            let pair = Pair::of(|p| {
                p.slow.commands.idle_waiting = idle_waiting;
                (p.fast.commands.deepest, p.slow.commands.deepest) = (2, deepest);
            });
            let found = pair.ask(&RULE).expect("the device idles");
            assert_eq!(found.share_ns.is_some(), share, "{}: {idle_waiting}, {deepest}", "MOST_OF_ALL");
        }
    }

    #[test]
    fn costs() {
        let idle = || {
            Alone::of(|a| {
                a.set("recording", "disk", "nvme0n1");
                a.set("nvme0n1", "scheduler", "bfq");
                a.set("nvme0n1", "rotational", "0");
                a.digest.commands.idle_waiting = 400_000;
                a.digest.time.ns[0][Layer::Elevator as usize] = 3e5;
            })
        };
        let scheduler: fn(&mut Alone, f64) =
            |a, x| a.set("nvme0n1", "scheduler", ["anticipatory", "cfq", "mq-deadline"][x as usize]);
        let edges: &[AloneEdge] = &[
            ("IDLE", scheduler, 0.0, 2.0),
            ("IDLE", scheduler, 1.0, 2.0),
            ("heads", |a, x| a.set("nvme0n1", "rotational", &x.to_string()), 0.0, 1.0),
            ("syncs", |a, x| a.digest.workload.calls[2] = x as u64, 0.0, 1.0),
        ];
        hold_cost(&RULE, idle, (30.0, 0.85), edges);
    }
}
