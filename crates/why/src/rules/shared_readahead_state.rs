//! Callers that share an open file share its read-ahead state, and take it from one another.
//!
//! Two signs. In 2.6.5 to 2.6.6 the state is asked page by page and turns itself off when calls interleave: calls of
//! several pages then read them one by one, which is counted directly. In kernels with windows that go on by position,
//! a stream that another one has pushed out of the state restarts: windows of sequential calls begin instead of being
//! continued, while streams run side by side in one file. Known limit: events do not name descriptors; streams that
//! restart for another reason in the same file look alike, except after eviction, and where a smaller limit stops the
//! growth of windows: both are looked at. One side alone: each task's reads go on where its last one ended, and another
//! task's come in between on the same open file.

use iowhy_stack::event::RaKind;
use iowhy_stack::units::SECTOR_BYTES;

use super::cost::{Cost, Facts, SEEN};
use super::instead::{fewer, own};
use super::{Figure, Match, Rule, grade, reads};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "shared-readahead-state",
    layer: "read-ahead",
    needs: super::WINDOWS,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "Several callers read through one open file, interleave on its read-ahead state, and close or thrash the \
           window.",
    why: "The state belongs to the open file, not to the caller. Each sees the others' places as jumps. The window \
          shrinks, closes, or begins again at its first size, so that several small reads, one after the other, \
          replace one request.",
    events: "Calls of several pages overlap on one file and get single pages (2.6.5 to 2.6.6), or sequential calls get \
             new windows instead of continued ones. Windows are closed by interleaved misses, where the source tells.",
    example: "2004: a sysbench of 16 threads over 128 shared descriptors took 55 percent longer on 2.6.6-rc3 than on \
              2.4.25, with every elevator; jobs/interleaved-readers.fio against iowhy_descriptors=own.",
    change: "Open the file once for each thread or stream, or read with preadv2 and calls as large as the records.",
    refute: "With a descriptor for each thread the difference stays.",
    since: "Every kernel; worst in 2.6.5 to 2.6.6, a private copy for each call since 2.6.7.",
    consequences: &[],
    switches: &[
        super::Switch::Patch("private-copy"),
        super::Switch::Word("--iowhy_descriptors=own"),
        super::Switch::Other("readahead"),
        super::Switch::OwnDescriptors,
    ],
    find,
    cost: Some(cost),
};

/// By how much the share of missing reads that come page by page has grown, for the closed windows to matter.
const SPLIT: f64 = 0.05;
/// Factor by which more windows are closed by interleaving: one or two a run are chance.
const MORE_CLOSES: f64 = 1.5;
/// Confidence at least where windows are closed: the source itself names the reason.
const LEAST_SURE_CLOSED: f64 = 0.8;
/// By how much the share of windows that start a stream has grown: the first window of a stream always does.
const RESTARTS: f64 = 0.05;
/// Factor by which that share has grown: short streams begin often on any state.
const MORE_RESTARTS: f64 = 1.5;
/// Changes of the stream for a window that begins anew: where most have none, streams restart by themselves.
const CHANGES: f64 = 0.5;
/// Share of calls that begin while another is in progress on their file: less is one reader after the other.
const OVERLAPPING: f64 = 0.1;
/// Factor by which pages read again have grown: then eviction ends the windows.
const AGAIN: f64 = 1.1;
/// By how much the share of pages evicted before their use has grown: the same.
const THRASHED: f64 = 0.02;
/// Factor by which calls wait more often: pages that somebody else is reading are waited for in any case.
const MORE_WAITS: f64 = 1.03;
/// Factor by which windows are smaller: those that start a stream have a fraction of the limit.
const SMALLER: f64 = 1.1;
/// Confidence at least where streams begin anew: places are counted, and descriptors are not known.
const LEAST_SURE_RESTARTED: f64 = 0.7;
/// The growth of either share, half sure and sure.
const GRADE: (f64, f64) = (0.05, 0.3);

fn find(delta: &Delta<'_>) -> Option<Match> {
    if !reads::equal(delta) {
        return None;
    }
    closed(delta).or_else(|| restarted(delta))
}

/// Windows closed by interleaving: several pages of a call come one by one.
fn closed(delta: &Delta<'_>) -> Option<Match> {
    let split = delta.of(|d| reads::share(d.windows.calls_split, d.windows.calls_missed));
    let overlapping = delta.of(|d| reads::share(d.windows.overlapping_split[1], d.windows.overlapping_split[0]));
    let closes = delta.per_operation(|d| d.windows.closes[0] as f64);
    let hits = delta.per_operation(|d| d.windows.closes[2] as f64);
    let windows = delta.of(|d| reads::windows(d, &[RaKind::Sync, RaKind::Async]) as f64);
    // A state that never had a window was not closed by anybody.
    let by_others = closes.slow > MORE_CLOSES * closes.fast && closes.difference() > hits.difference();
    if !(split.rose_by(SPLIT) && overlapping.rose_by(SPLIT) && by_others && windows.slow > 0.0) {
        return None;
    }
    let size = delta.of(|d| d.bios.sizes[0].mean() * 512.0);
    Some(Match {
        confidence: grade(split.difference(), GRADE.0, GRADE.1).max(LEAST_SURE_CLOSED),
        share_ns: None,
        claim: format!(
            "calls interleave on shared open files and close their windows: {:.0} % of the reads that miss get their \
             pages one by one, against {:.0} %",
            100.0 * split.slow,
            100.0 * split.fast
        ),
        evidence: vec![
            Figure::new("missing reads that come page by page", split, Unit::Share),
            Figure::new("the same of reads that overlap others on their file", overlapping, Unit::Share),
            Figure::new("windows closed by interleaving, for each call", closes, Unit::Ratio),
            Figure::new("mean size of a read bio", size, Unit::Bytes),
        ],
    })
}

/// Streams that have to restart.
fn restarted(delta: &Delta<'_>) -> Option<Match> {
    let restarts = reads::restarts(delta);
    let overlapping = delta.of(|d| reads::share(d.workload.overlapping, d.workload.calls[0] + d.workload.calls[1]));
    let again = delta.per_operation(|d| d.cache.again as f64);
    let thrashed = delta.of(|d| reads::share(d.windows.thrashed, d.windows.ahead));
    let waits = reads::waits(delta);
    let sizes = delta.of(|d| d.windows.sizes.mean());
    // A restarting stream has been pushed out by another task's call.
    let begun = delta.of(|d| d.windows.sequential_sizes.count() as f64);
    let switches = delta.of(|d| d.workload.interleaved_streams as f64);
    let interleaved = switches.slow > CHANGES * begun.slow && overlapping.slow > OVERLAPPING;
    let evicted = again.rose(AGAIN) || thrashed.rose_by(THRASHED);
    let more = restarts.rose_by(RESTARTS) && restarts.rose(MORE_RESTARTS);
    if !(more && interleaved && !evicted && !reads::limited(delta) && (waits.rose(MORE_WAITS) || sizes.fell(SMALLER))) {
        return None;
    }
    Some(Match {
        confidence: grade(restarts.difference(), GRADE.0, GRADE.1).max(LEAST_SURE_RESTARTED),
        share_ns: None,
        claim: format!(
            "sequential streams interleave on one open file and push each other out of its read-ahead state: {:.0} % \
             of the windows restart, against {:.0} %",
            100.0 * restarts.slow,
            100.0 * restarts.fast
        ),
        evidence: vec![
            Figure::new("windows of sequential calls that restart", restarts, Unit::Share),
            Figure::new("mean window", sizes, Unit::Pages),
            Figure::new("waits for each call", waits, Unit::Ratio),
        ],
    })
}

/// Share of the reads that come behind another task's on their open file.
const TAKEN: f64 = 0.15;
/// Share of the reads that are of a stream: others lose nothing.
const STREAMS: f64 = 0.5;
/// Share of the windows that restart, of one side alone.
const RESTARTED: f64 = 0.3;

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let windows = &facts.digest.windows;
    let all = reads::windows(facts.digest, &[RaKind::Sync, RaKind::Async]);
    let restarts = reads::share(windows.sequential_sizes.count(), all);
    if facts.taken < TAKEN || facts.streams < STREAMS || restarts < RESTARTED {
        return None;
    }
    let (sectors, _) = own(facts, 0);
    let sectors_of_kib = 1024.0 / SECTOR_BYTES as f64;
    let saved = fewer(facts, 0, sectors_of_kib * facts.read_ahead_kb()?.0, true)?;
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: format!(
            "tasks take turns on one open file: {:.0} % of its reads come behind another task's, and {:.0} % of the \
             windows restart, with {:.0} KiB a request",
            100.0 * facts.taken,
            100.0 * restarts,
            sectors / sectors_of_kib
        ),
        setting: "a descriptor for each thread".to_owned(),
        evidence: vec![
            ("reads behind another task's on their open file", facts.taken, Unit::Share),
            ("windows that restart", restarts, Unit::Share),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread, windows};
    use super::RULE;
    use iowhy_stack::event::RaKind::{Async, Sync};

    /// Windows that interleaving has closed, after which a fifth of the reads comes page by page.
    fn closed() -> Pair {
        Pair::of(|p| {
            p.both(|d| (d.windows.calls_missed, d.windows.overlapping_split[0]) = (1000, 1000));
            (p.slow.windows.calls_split, p.slow.windows.overlapping_split[1]) = (200, 200);
            p.slow.windows.closes[0] = 400;
            windows(&mut p.slow, Sync, 1.0, 4.0);
        })
    }

    /// Streams side by side in one file: a tenth of the windows begins anew on the fast side, 0.3 on the slow one.
    fn restarted() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                windows(d, Async, 1000.0, 4000.0);
                (d.workload.calls[0], d.workload.bytes[0], d.windows.ahead) = (1000, 1000 * 4096, 1000);
            });
            p.fast.windows.sequential_sizes = spread(100, 4.0);
            p.slow.windows.sequential_sizes = spread(300, 4.0);
            (p.slow.workload.overlapping, p.slow.workload.interleaved_streams) = (500, 400);
            (p.fast.time.waits, p.slow.time.waits) = (1000, 1500);
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("SPLIT", |p, x| p.slow.windows.calls_split = x as u64, 50.0, 49.0),
            ("SPLIT, overlapping", |p, x| p.slow.windows.overlapping_split[1] = x as u64, 50.0, 49.0),
            (
                "MORE_CLOSES",
                |p, x| (p.fast.windows.closes[0], p.slow.windows.closes[0]) = (200, x as u64),
                301.0,
                300.0,
            ),
            ("closed by hits", |p, x| p.slow.windows.closes[2] = x as u64, 399.0, 400.0),
            ("a window to close", |p, x| windows(&mut p.slow, Sync, x, 0.0), 1.0, 0.0),
            ("equal reads", |p, x| p.slow.workload.direct[0] = x as u64, 0.0, 1.0),
        ];
        hold(&RULE, closed, 0.887, edges);
        let edges: &[Edge] = &[
            (
                "RESTARTS",
                |p, x| {
                    p.fast.windows.sequential_sizes = spread(0, 0.0);
                    p.slow.windows.sequential_sizes = spread(x as u64, 4.0);
                },
                50.0,
                49.0,
            ),
            (
                "MORE_RESTARTS",
                |p, x| {
                    p.fast.windows.sequential_sizes = spread(200, 4.0);
                    p.slow.windows.sequential_sizes = spread(x as u64, 4.0);
                },
                301.0,
                300.0,
            ),
            ("CHANGES", |p, x| p.slow.workload.interleaved_streams = x as u64, 151.0, 150.0),
            ("OVERLAPPING", |p, x| p.slow.workload.overlapping = x as u64, 101.0, 100.0),
            ("AGAIN", |p, x| (p.fast.cache.again, p.slow.cache.again) = (1000, x as u64), 1100.0, 1101.0),
            ("THRASHED", |p, x| p.slow.windows.thrashed = x as u64, 19.0, 20.0),
            ("MORE_WAITS", |p, x| p.slow.time.waits = x as u64, 1031.0, 1030.0),
            (
                "SMALLER",
                |p, x| {
                    p.slow.time.waits = 1000;
                    (p.fast.windows.sizes, p.slow.windows.sizes) = (spread(1, x), spread(1, 1000.0));
                },
                1101.0,
                1100.0,
            ),
            (
                "GROWTH",
                |p, x| {
                    windows(&mut p.fast, Async, 1000.0, 40_000.0);
                    windows(&mut p.slow, Async, 1000.0, x);
                },
                6000.0,
                5999.0,
            ),
        ];
        hold(&RULE, restarted, 0.887, edges);
    }

    #[test]
    fn counts_are_sure_at_a_small_growth() {
        let closed = || {
            Pair::of(|p| {
                *p = closed();
                p.slow.windows.calls_split = 60;
            })
        };
        let restarted = || {
            Pair::of(|p| {
                *p = restarted();
                p.slow.windows.sequential_sizes = spread(160, 4.0);
            })
        };
        hold(&RULE, closed, 0.8, &[("LEAST_SURE_CLOSED", |p, x| p.slow.windows.calls_split = x as u64, 60.0, 49.0)]);
        hold(&RULE, restarted, 0.7, &[("LEAST_SURE_RESTARTED", |p, x| p.slow.time.waits = x as u64, 1031.0, 1030.0)]);
    }

    #[test]
    fn costs() {
        let turns = || {
            Alone::of(|a| {
                a.set("recording", "disk", "sda");
                a.set("sda", "read_ahead_kb", "128");
                a.requests(0, 100, 16, 1e6);
                (a.taken, a.streams) = (0.8, 0.9);
                windows(&mut a.digest, Sync, 100.0, 400.0);
                a.digest.windows.sequential_sizes = spread(80, 4.0);
            })
        };
        let edges: &[AloneEdge] = &[
            ("TAKEN", |a, x| a.taken = x, 0.15, 0.14),
            ("STREAMS", |a, x| a.streams = x, 0.5, 0.49),
            ("RESTARTED", |a, x| a.digest.windows.sequential_sizes = spread(x as u64, 4.0), 30.0, 29.0),
        ];
        hold_cost(&RULE, turns, (75.0, 0.8), edges);
    }
}
