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
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    let commands = |d: &crate::digest::Digest| (d.commands.issued[0] + d.commands.issued[1]).max(1) as f64;
    let writes = delta.of(|d| d.commands.issued[1] as f64 / commands(d));
    let direct = delta.of(|d| d.workload.direct[1] as f64 / d.workload.calls[1].max(1) as f64);
    let tasks = delta.of(|d| f64::from(d.workload.concurrency));
    let deepest = delta.of(|d| f64::from(d.commands.deepest));
    let waiting = delta.of(|d| d.commands.waiting() as f64 / d.elapsed.0.max(1) as f64);
    let idles = delta.of(|d| d.commands.idle_waiting as f64 / d.elapsed.0.max(1) as f64);
    let overlapping = delta.of(|d| d.workload.overlapping as f64 / d.workload.calls[1].max(1) as f64);
    let writers = writes.slow > 0.9 && direct.slow > 0.9 && tasks.slow >= 2.0 && overlapping.slow < 0.1;
    let in_turn = deepest.slow == 1.0 && deepest.fast >= 2.0 && waiting.slow > 0.3 && waiting.fast < 0.1;
    if !(writers && in_turn && idles.slow < 0.02) {
        return None;
    }
    let i2d = delta.of(|d| d.commands.i2d[1].mean());
    Some(Match {
        confidence: 0.9 * grade(1.0 + waiting.difference(), 1.1, 1.5),
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
