//! Read-ahead turned itself off because what it looked for was in the cache already.
//!
//! In 2.6.5 to 2.6.6 a window whose pages are all cached counts as a failure and shrinks the next one; after enough of
//! them the window closes, and it takes a full window of sequential misses, read one by one, to open it again. 2.6.10
//! to 2.6.22 stop after 256 cached pages. Known limit: only simulated runs say why a window closed, and the kernels
//! that do this are too old to be traced. Half-cached files on 2.6.5, 2.6.6 and 2.6.22 (runs of 128 KiB written, then
//! all of it read) came out faster than files without cached pages, because hits save more than single pages cost: the
//! rule is held by made-up digests only.

use super::{Figure, Match, Rule, grade, reads};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "window-closed-by-hits",
    layer: "read-ahead",
    needs: super::WINDOWS,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "Read-ahead closes its window because pages that it would read are cached already.",
    why: "A stretch of cached pages is taken as a sign that read-ahead is of no use. Behind it, where pages are \
          missing again, they come one by one until the kernel has seen enough misses in a row.",
    events: "Windows are closed by hits; afterwards calls of several pages get single pages, each waited for.",
    example: "Reading on from a part of a file that was just read or written, on 2.6.6.",
    change: "Use a kernel from 2.6.23 on, or drop the cached part first (POSIX_FADV_DONTNEED).",
    refute: "With an empty cache at the start the difference stays.",
    since: "2.6.5 to 2.6.22; worst before 2.6.7. On-demand read-ahead (2.6.23) looks at missing pages only.",
    consequences: &[],
    switches: &[super::Switch::Other("readahead"), super::Switch::DropPages],
    find,
    cost: None,
};

/// Factor by which more windows are closed by hits: one or two a run are chance.
const MORE_HITS: f64 = 1.5;
/// By how much the share of missing reads that come page by page has grown, for the closed windows to matter.
const SPLIT: f64 = 0.05;
/// Factor by which calls wait more often: pages found in the cache make up for some that come alone.
const MORE_WAITS: f64 = 1.05;
/// The growth of that share, half sure and sure.
const GRADE: (f64, f64) = (0.05, 0.3);
/// Confidence at least: the source itself names the reason why a window was closed.
const LEAST_SURE: f64 = 0.8;

fn find(delta: &Delta<'_>) -> Option<Match> {
    if !reads::equal(delta) {
        return None;
    }
    let split = delta.of(|d| reads::share(d.windows.calls_split, d.windows.calls_missed));
    let hits = delta.per_operation(|d| d.windows.closes[2] as f64);
    let others = delta.per_operation(|d| (d.windows.closes[0] + d.windows.closes[1]) as f64);
    let waits = reads::waits(delta);
    let by_hits = hits.rose(MORE_HITS) && hits.difference() > others.difference();
    if !(split.rose_by(SPLIT) && by_hits && waits.rose(MORE_WAITS)) {
        return None;
    }
    Some(Match {
        confidence: grade(split.difference(), GRADE.0, GRADE.1).max(LEAST_SURE),
        share_ns: None,
        claim: format!(
            "windows close because of cached pages: {:.0} % of the reads that miss get their pages one by one, against \
             {:.0} %",
            100.0 * split.slow,
            100.0 * split.fast
        ),
        evidence: vec![
            Figure::new("windows closed by hits, for each call", hits, Unit::Ratio),
            Figure::new("missing reads that come page by page", split, Unit::Share),
            Figure::new("waits for each call", waits, Unit::Ratio),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold};
    use super::RULE;

    /// Windows that hits have closed, after which a fifth of the reads comes page by page.
    fn closed() -> Pair {
        Pair::of(|p| {
            p.both(|d| d.windows.calls_missed = 1000);
            (p.slow.windows.calls_split, p.slow.windows.closes[2]) = (200, 400);
            (p.fast.time.waits, p.slow.time.waits) = (1000, 1600);
        })
    }

    fn barely() -> Pair {
        Pair::of(|p| {
            *p = closed();
            p.slow.windows.calls_split = 60;
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("MORE_HITS", |p, x| (p.fast.windows.closes[2], p.slow.windows.closes[2]) = (200, x as u64), 301.0, 300.0),
            ("SPLIT", |p, x| p.slow.windows.calls_split = x as u64, 50.0, 49.0),
            ("MORE_WAITS", |p, x| p.slow.time.waits = x as u64, 1051.0, 1050.0),
            ("closed by interleaved misses", |p, x| p.slow.windows.closes[0] = x as u64, 399.0, 400.0),
            ("closed by misses", |p, x| p.slow.windows.closes[1] = x as u64, 399.0, 400.0),
            ("equal reads", |p, x| p.slow.workload.direct[0] = x as u64, 0.0, 1.0),
        ];
        hold(&RULE, closed, 0.887, edges);
        hold(&RULE, barely, 0.8, &[("LEAST_SURE", |p, x| p.slow.windows.calls_split = x as u64, 60.0, 49.0)]);
    }
}
