//! Calls of io_uring are carried out by its worker threads instead of while they are handed in.

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};
use iowhy_stats::figure::share;

pub(super) const RULE: Rule = Rule {
    name: "calls-to-workers",
    layer: "CPU",
    needs: super::CALLS,
    owns: super::Owns::Calls,
    single: super::Single::Counts,
    what: "Calls of io_uring are given to worker threads, where they were done while they were handed in.",
    why: "A call that only copies cached pages takes less than the wake-ups of a worker and of the submitter that \
          waits for it; and it is done in its turn, behind all others in the ring.",
    events: "Calls are handed over to workers (io_uring_queue_async_work), and were not before.",
    example: "Linux 6.5 and later (caec5ebe77f9): cached reads of files on NFS or tmpfs, which do not set \
              FMODE_NOWAIT.",
    change: "Read what is cached with plain pread; use a file system that sets FMODE_NOWAIT, or a kernel in which \
             this one does (NFS: 2026).",
    refute: "perf shows no CPU time in iou-wrk-* threads, or the same program on ext4 or XFS loses as much.",
    since: "5.1 for reads that miss; 6.5 for all reads of files that do not set FMODE_NOWAIT.",
    consequences: &[
        "cpu-bound-submission",
        "cpu-contention",
        "lock-serialisation",
        "slow-wakeups",
        "program-computes-more",
        "program-pauses",
    ],
    switches: &[Switch::Other("ring_nowait"), Switch::Other("filesystem.nowait")],
    find,
    cost: None,
};

/// Share of the calls that are handed over on the slow side: from which on, and with which it is sure.
const MOST: f64 = 0.5;
const NEARLY_ALL: f64 = 0.9;
/// Largest share on the fast side: reads that miss are handed over, too.
const FEW: f64 = 0.2;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let handed = delta.of(|d| share(d.workload.handed_over, d.operations()));
    if handed.slow < MOST || handed.fast > FEW {
        return None;
    }
    Some(Match {
        confidence: grade(handed.slow, MOST, NEARLY_ALL),
        share_ns: None,
        claim: format!(
            "{:.0} % of the calls are carried out by worker threads of io_uring, where {:.0} % were",
            100.0 * handed.slow,
            100.0 * handed.fast
        ),
        evidence: vec![Figure::new("share of calls given to workers", handed, Unit::Share)],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, sure};
    use super::RULE;

    /// All of ten calls are handed over, then none.
    fn handed() -> Pair {
        Pair::of(|p| p.slow.workload.handed_over = 10)
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("MOST", |p, x| p.slow.workload.handed_over = x as u64, 5.0, 4.0),
            ("FEW", |p, x| p.fast.workload.handed_over = x as u64, 2.0, 3.0),
        ];
        hold(&RULE, handed, 1.0, edges);
        sure(&RULE, handed, &[("NEARLY_ALL", |p, x| p.slow.workload.handed_over = x as u64, 7.0, 0.7862)]);
    }
}
