//! Asynchronous calls wait for their I/O where they are handed in, one after the other.
//!
//! Of io_uring two sides show it: its workers waited before. Of libaio one does: io_submit sleeps until a request is
//! done that it has queued itself. Known limit: a program that has stopped using io_uring looks the same, as events do
//! not say which calls are of a ring.

use super::cost::{Cost, Facts, MARKED};
use super::instead::Saved;
use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};
use crate::digest::{Layer, WAITS};
use iowhy_stats::figure::share;

pub(super) const RULE: Rule = Rule {
    name: "calls-wait-in-submission",
    layer: "lock/wait",
    needs: super::CALLS,
    owns: super::Owns::Calls,
    single: super::Single::Counts,
    what: "Asynchronous calls (io_uring, libaio) wait for their I/O while they are handed in, one after the other.",
    why: "io_uring_enter and io_submit go on to the next call only when the one before it is done: of as many calls \
          as the program wants in flight one is. libaio does so with every buffered call, and with direct writes that \
          make a file longer.",
    events: "Calls are no longer handed over to workers (io_uring_queue_async_work), and fewer are in progress; \
             io_submit sleeps until a request of its own is done.",
    example: "Direct reads of a FUSE server without FUSE_ASYNC_DIO in 6.12 and later (f7c913438533): poll reports its \
              files as ready, but reading them blocks.",
    change: "Set IOSQE_ASYNC (fio: force_async=1), or use more threads; have the server ask for FUSE_ASYNC_DIO. With \
             libaio: open with O_DIRECT, and write the file to its full length first.",
    refute: "With IOSQE_ASYNC on the slow side as few calls are in progress; or the program no longer uses io_uring.",
    since: "Until 6.4 for regular files without a block device; again since 6.12 (6.6.94) for files that have a poll \
            operation.",
    consequences: &["changed-job", "queue-depth-one", "cpu-bound-submission", "lock-serialisation", "slow-wakeups"],
    switches: &[Switch::Other("ring_nowait"), Switch::Other("filesystem.async_dio")],
    find,
    cost: Some(cost),
};

/// Share of the calls that are handed over on the fast side: from which on, and with which it is sure.
const MOST: f64 = 0.5;
const NEARLY_ALL: f64 = 0.9;
/// Largest share on the slow side.
const FEW: f64 = 0.2;
/// Factor by which the calls in progress have fallen.
const FEWER: f64 = 2.0;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let handed = delta.of(|d| share(d.workload.handed_over, d.operations()));
    let calls = delta.of(|d| f64::from(d.workload.concurrency));
    if handed.fast < MOST || handed.slow > FEW || calls.fast < FEWER * calls.slow {
        return None;
    }
    Some(Match {
        confidence: grade(handed.fast, MOST, NEARLY_ALL),
        share_ns: None,
        claim: format!(
            "{:.0} % of the calls go to worker threads of io_uring, where {:.0} % did: the others wait where they are \
             handed in, and {:.0} at most are in progress at once, where {:.0} were",
            100.0 * handed.slow,
            100.0 * handed.fast,
            calls.slow,
            calls.fast
        ),
        evidence: vec![
            Figure::new("share of calls given to workers", handed, Unit::Share),
            Figure::new("most calls in progress at once", calls, Unit::Count),
        ],
    })
}

/// Waits in io_submit for each call: where a map of blocks is read first, a few wait in any case.
const WAITING: f64 = 0.1;
/// The part of the waits that goes if calls overlap: likely, and at least.
const OVERLAPS: f64 = 0.95;
const LEAST: f64 = 0.3;

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let (ns, times) = facts.digest.wall.as_ref()?.submitting;
    let waits = ns.min(facts.in_layers(&WAITS) + facts.in_layers(&[Layer::Lock, Layer::Journal]));
    let often = times as f64 / facts.operations();
    if often < WAITING {
        return None;
    }
    let saved = Saved::of(OVERLAPS * waits, LEAST * waits, waits);
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: MARKED,
        claim: format!(
            "io_submit waits for I/O of its own {times} times, {:.0} % of the time: its calls are done one after the \
             other",
            100.0 * waits / facts.whole_ns.max(1.0)
        ),
        setting: "O_DIRECT on a file that has its full length".to_owned(),
        evidence: vec![
            ("time that io_submit waits for its own requests", waits, Unit::Ns),
            ("waits in io_submit for each call", often, Unit::Ratio),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, sure};
    use super::RULE;

    /// All of ten calls are handed over and four are in progress at once, then none and two.
    fn waits() -> Pair {
        Pair::of(|p| {
            p.fast.workload.handed_over = 10;
            (p.fast.workload.concurrency, p.slow.workload.concurrency) = (4, 2);
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("MOST", |p, x| p.fast.workload.handed_over = x as u64, 5.0, 4.0),
            ("FEW", |p, x| p.slow.workload.handed_over = x as u64, 2.0, 3.0),
            ("FEWER", |p, x| p.slow.workload.concurrency = x as u32, 2.0, 3.0),
        ];
        hold(&RULE, waits, 1.0, edges);
        sure(&RULE, waits, &[("NEARLY_ALL", |p, x| p.fast.workload.handed_over = x as u64, 7.0, 0.7862)]);
    }

    #[test]
    fn costs() {
        let waits = || {
            Alone::of(|a| {
                a.requests(0, 10, 8, 8e5);
                a.digest.wall.get_or_insert_default().submitting = (5e5, 10);
            })
        };
        let edges: &[AloneEdge] =
            &[("WAITING", |a, x| a.digest.wall.get_or_insert_default().submitting.1 = x as u64, 1.0, 0.0)];
        hold_cost(&RULE, waits, (47.5, 0.85), edges);
        let found = waits().ask(&RULE).expect("a cost");
        assert!((found.bounds_pct[0] - 15.0).abs() < 0.1, "{}, {}: {found:?}", "LEAST", "OVERLAPS");
    }
}
