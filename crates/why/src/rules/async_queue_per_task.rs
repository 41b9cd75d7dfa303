//! Direct writes that have lost their sync flag: each task has an asynchronous queue of its own, and these exclude each
//! other.

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "async-queue-per-task",
    layer: "elevator",
    needs: super::REQUESTS,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "Direct writes of several tasks count as asynchronous, and each task's go to a queue of its own.",
    why: "A queue is served until its requests at the device are done; with one write in flight in each task the \
          writers take turns, and a disk that could have several commands has one.",
    events: "Direct writes of several tasks, one in flight in each; there were as many at the device as tasks, now \
             there is one, and the others wait with the elevator without any idling.",
    example: "RHEL 5 kernels 2.6.18-186 to -194 (2010): two dd oflag=direct a fifth slower; -198 treats them as sync.",
    change: "A kernel whose CFQ honours the sync flag of direct writes or has one async queue for all; noop or \
             deadline.",
    refute: "With the sync flag honoured, or one queue for all, the writers are as slow.",
    since: "CFQ of 2.6.18-186.el5 to -194.el5.",
    consequences: &["queue-depth-one", "writes-starved"],
    switches: &[
        Switch::Patch("without-cfq-hash-removal"),
        Switch::Patch("sync-flag"),
        Switch::Other("elevator"),
        Switch::Queue("scheduler"),
    ],
    find,
    cost: None,
};

/// Share of the requests that write, and of the writes that are direct: the rest is metadata.
const MOSTLY: f64 = 0.9;
/// Tasks that write, and requests at the device before: two can take turns.
const SEVERAL: f64 = 2.0;
/// Share of the writes that overlap another one on their file: beyond it the inode's lock makes them take turns.
const OVERLAPPING: f64 = 0.1;
/// Share of the time with requests waiting: with two writers that only write one of them always waits.
const WAITING: f64 = 0.3;
/// The same on the fast side, whose device takes a write of each task at once.
const WAITING_BEFORE: f64 = 0.1;
/// Share of the time with the device idle and requests waiting: an elevator that idles is another mechanism.
const IDLES: f64 = 0.02;
/// Factor on the confidence: a queue depth of one looks alike.
const MOST_SURE: f64 = 0.9;
/// One and the growth of the share of the time with requests waiting, half sure and sure.
const GRADE: (f64, f64) = (1.1, 1.5);

fn find(delta: &Delta<'_>) -> Option<Match> {
    let commands = |d: &crate::digest::Digest| (d.commands.issued[0] + d.commands.issued[1]).max(1) as f64;
    let writes = delta.of(|d| d.commands.issued[1] as f64 / commands(d));
    let direct = delta.of(|d| d.workload.direct[1] as f64 / d.workload.calls[1].max(1) as f64);
    let tasks = delta.of(|d| f64::from(d.workload.concurrency));
    let deepest = delta.of(|d| f64::from(d.commands.deepest));
    let waiting = delta.of(|d| d.commands.waiting() as f64 / d.elapsed.0.max(1) as f64);
    let idles = delta.of(|d| d.commands.idle_waiting as f64 / d.elapsed.0.max(1) as f64);
    let overlapping = delta.of(|d| d.workload.overlapping as f64 / d.workload.calls[1].max(1) as f64);
    let writers =
        writes.slow > MOSTLY && direct.slow > MOSTLY && tasks.slow >= SEVERAL && overlapping.slow < OVERLAPPING;
    let one_at_a_time = deepest.slow == 1.0 && deepest.fast >= SEVERAL;
    let in_turn = one_at_a_time && waiting.slow > WAITING && waiting.fast < WAITING_BEFORE;
    if !(writers && in_turn && idles.slow < IDLES) {
        return None;
    }
    let i2d = delta.of(|d| d.commands.i2d[1].mean());
    Some(Match {
        confidence: MOST_SURE * grade(1.0 + waiting.difference(), GRADE.0, GRADE.1),
        share_ns: None,
        claim: format!(
            "direct writes of {:.0} tasks take turns: one at the device, where there were {:.0}; the others wait \
             {:.0} us",
            tasks.slow,
            deepest.fast,
            i2d.slow / 1e3
        ),
        evidence: vec![
            Figure::new("most requests at the device", deepest, Unit::Count),
            Figure::new("share of the time with requests waiting", waiting, Unit::Share),
            Figure::new("wait of a write with the elevator", i2d, Unit::Ns),
            Figure::new("most calls in progress", tasks, Unit::Count),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, sure};
    use super::RULE;

    /// Two tasks write directly; on the slow side one write is at the device, and others wait 0.7 of 2 ms.
    fn in_turn() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                d.commands.issued[1] = 1000;
                (d.workload.calls[1], d.workload.direct[1]) = (1000, 1000);
                d.workload.concurrency = 2;
                d.commands.deepest = 1;
            });
            p.fast.commands.deepest = 2;
            p.slow.commands.depth_when_waiting = vec![0, 700_000];
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("MOSTLY, writes", |p, x| p.slow.commands.issued = [1000 - x as u64, x as u64], 901.0, 900.0),
            ("MOSTLY, direct", |p, x| p.slow.workload.direct[1] = x as u64, 901.0, 900.0),
            ("SEVERAL, tasks", |p, x| p.slow.workload.concurrency = x as u32, 2.0, 1.0),
            ("SEVERAL, at the device", |p, x| p.fast.commands.deepest = x as u32, 2.0, 1.0),
            ("OVERLAPPING", |p, x| p.slow.workload.overlapping = x as u64, 99.0, 100.0),
            ("one at the device", |p, x| p.slow.commands.deepest = x as u32, 1.0, 2.0),
            ("WAITING", |p, x| p.slow.commands.depth_when_waiting[1] = x as u64, 600_001.0, 600_000.0),
            ("WAITING_BEFORE", |p, x| p.fast.commands.depth_when_waiting = vec![x as u64], 99_999.0, 100_000.0),
            ("IDLES", |p, x| p.slow.commands.idle_waiting = x as u64, 39_999.0, 40_000.0),
        ];
        hold(&RULE, in_turn, 0.747, edges);
        sure(
            &RULE,
            in_turn,
            &[("MOST_SURE", |p, x| p.slow.commands.depth_when_waiting[1] = x as u64, 1_000_000.0, 0.9)],
        );
    }
}
