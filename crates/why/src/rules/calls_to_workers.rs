//! Calls of io_uring are carried out by its worker threads instead of while they are handed in.

use super::cost::{Cost, Facts, SEEN};
use super::instead::Saved;
use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};
use crate::digest::Layer;
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
    change: "Leave out IOSQE_ASYNC; read what is cached with plain pread; write a file to its full length first; use \
             a file system that sets FMODE_NOWAIT, or a kernel in which this one does (NFS: 2026).",
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
    cost: Some(cost),
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

/// The part of the wake-ups that goes at least: the submitter is woken in any case.
const LEAST: f64 = 0.3;
/// Time in the kernel of a call that is done as it is handed in, ns: a cached read of 4 KiB takes it.
const CODE: f64 = 5000.0;

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let calls = facts.digest.workload.calls;
    // Syncs are always given to workers.
    let handed = facts.digest.workload.handed_over.saturating_sub(calls[2]);
    let handed = share(handed, calls[0] + calls[1]);
    if handed < MOST {
        return None;
    }
    let trips = handed * facts.in_layers(&[Layer::Ready, Layer::Lock]);
    let code = facts.in_layers(&[Layer::Cpu]);
    let kept = CODE * (calls[0] + calls[1]) as f64;
    let saved = Saved::of(trips + handed * (code - kept).max(0.0), LEAST * trips, trips + code);
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: format!(
            "{:.0} % of the calls are given to worker threads of io_uring: each waits for a worker to wake up, and its \
             submitter for the worker",
            100.0 * handed
        ),
        setting: "calls that are done as they are handed in (no IOSQE_ASYNC)".to_owned(),
        evidence: vec![
            ("share of calls given to workers", handed, Unit::Share),
            ("time that tasks wait for a CPU, or for each other", trips, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, sure};
    use super::RULE;
    use crate::digest::Layer;
    use iowhy_stack::units::Nanos;

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

    #[test]
    fn costs() {
        let given = || {
            Alone::of(|a| {
                (a.digest.workload.handed_over, a.digest.workload.calls) = (10, [10, 0, 0]);
                a.digest.time.ns[0][Layer::Ready as usize] = 4e5;
            })
        };
        let edges: &[AloneEdge] = &[
            ("MOST", |a, x| a.digest.workload.handed_over = x as u64, 5.0, 4.0),
            ("syncs", |a, x| a.digest.workload.calls[2] = x as u64, 5.0, 6.0),
        ];
        hold_cost(&RULE, given, (40.0, 0.8), edges);
        // Half of the time is code of 10 us a call.
        let mut code = given();
        code.digest.time.ns[0] = Default::default();
        (code.digest.elapsed, code.digest.time.ns[0][Layer::Cpu as usize]) = (Nanos(200_000), 1e5);
        assert!((code.ask(&RULE).expect("a cost").saves_pct - 25.0).abs() < 0.1, "{}", "CODE");
        let found = given().ask(&RULE).expect("a cost");
        assert!((found.bounds_pct[0] - 12.0).abs() < 0.1, "{}: {found:?}", "LEAST");
    }
}
