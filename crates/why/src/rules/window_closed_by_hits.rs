//! Read-ahead turned itself off because what it looked for was in the cache already.
//!
//! In 2.6.5 to 2.6.6 a window whose pages are all cached counts as a failure and shrinks the next one; after enough of
//! them the window closes, and it takes a full window of sequential misses, read one by one, to open it again. 2.6.10
//! to 2.6.22 stop after 256 cached pages. Known limit: only simulated runs say why a window closed, and the kernels
//! that do this are too old to be traced. Half-cached files on 2.6.5, 2.6.6 and 2.6.22 (runs of 128 KiB written, then
//! all of it read) came out faster than files without cached pages, because hits save more than single pages cost: the
//! rule is held by made-up digests only. Of one side: from 2.6.23 on windows stay, but cached pages cut them into
//! requests.

use super::cost::{Cost, Facts, SEEN};
use super::{Figure, Match, Rule, grade, instead, reads};
use crate::delta::{Delta, Unit};
use iowhy_stack::units::SECTOR_BYTES;

pub(super) const RULE: Rule = Rule {
    name: "window-closed-by-hits",
    layer: "read-ahead",
    needs: super::WINDOWS,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "Read-ahead closes its window because pages that it would read are cached already.",
    why: "A stretch of cached pages is taken as a sign that read-ahead is of no use. Behind it, where pages are \
          missing again, they come one by one until the kernel has seen enough misses in a row. Newer kernels keep \
          the window, but each stretch of missing pages in it is a request of its own.",
    events: "Windows are closed by hits; afterwards calls of several pages get single pages, each waited for.",
    example: "Reading on from a part of a file that was just read or written, on 2.6.6; reading a file of which \
              lookups have cached pages here and there.",
    change: "Use a kernel from 2.6.23 on, or drop the cached part first (POSIX_FADV_DONTNEED).",
    refute: "With an empty cache at the start the difference stays.",
    since: "2.6.5 to 2.6.22; worst before 2.6.7. On-demand read-ahead (2.6.23) looks at missing pages only, and is cut \
            by the others.",
    consequences: &[],
    switches: &[super::Switch::Other("readahead"), super::Switch::DropPages],
    find,
    cost: Some(cost),
};

/// Stretches of cached pages for each read request: one cuts a window in two.
const CUT: f64 = 0.45;
/// The same, from which on requests that are not side by side in their file are none of its pieces.
const SOME_CUT: f64 = 0.3;
/// Stretches at least.
const STRETCHES: u64 = 32;

/// Windows that are cut into pieces by pages that were in the cache already.
fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let (d, [stretches, cached]) = (facts.digest, facts.digest.windows.holes);
    if stretches < STRETCHES || !cuts(facts, CUT) {
        return None;
    }
    let (size, _) = instead::own(facts, 0);
    let (kib, _) = facts.read_ahead_kb()?;
    // Without them a window is one request, which reads the cached pages, too.
    let missing = reads::share(d.cache.added, d.cache.added + cached);
    let saved = instead::fewer(facts, 0, kib * 1024.0 / SECTOR_BYTES as f64 * missing, true)?;
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: format!(
            "{stretches} stretches of pages that are cached already cut the windows into requests of {:.0} KiB",
            size * SECTOR_BYTES as f64 / 1024.0
        ),
        setting: "the file dropped from the cache before it is read (POSIX_FADV_DONTNEED)".to_owned(),
        evidence: vec![
            ("cached stretches", stretches as f64, Unit::Count),
            ("pages of a stretch", reads::share(cached, stretches), Unit::Pages),
            ("mean size of a request", size * SECTOR_BYTES as f64, Unit::Bytes),
        ],
    })
}

/// Whether so large a part of the read requests ends at cached pages.
fn cuts(facts: &Facts<'_>, part: f64) -> bool {
    let [stretches, _] = facts.digest.windows.holes;
    stretches as f64 >= part * instead::own(facts, 0).1
}

/// Whether requests of reads lie apart because cached pages are between them.
pub(super) fn parts_requests(facts: &Facts<'_>) -> bool {
    cuts(facts, SOME_CUT)
}

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
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost};
    use super::super::fragmented_file;
    use super::RULE;
    use crate::digest::Spread;

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

    #[test]
    fn costs() {
        // A hundred requests of two pages between cached ones; 128 KiB have half of their pages, which are 8 requests.
        let cut = || {
            Alone::of(|a| {
                a.set("recording", "disk", "sda");
                a.set("sda", "read_ahead_kb", "128");
                a.requests(0, 100, 16, 1e6);
                (a.digest.cache.added, a.digest.windows.holes) = (200, [100, 200]);
            })
        };
        let edges: &[AloneEdge] = &[("CUT", |a, x| a.digest.windows.holes[0] = x as u64, 45.0, 44.0)];
        hold_cost(&RULE, cut, (64.6, 0.8), edges);
        let few = || {
            let mut alone = cut();
            alone.requests(0, 40, 16, 1e6);
            alone.digest.windows.holes[0] = 32;
            alone
        };
        hold_cost(&RULE, few, (64.6, 0.8), &[("STRETCHES", |a, x| a.digest.windows.holes[0] = x as u64, 32.0, 31.0)]);
        // Pieces of a file.
        let pieces = || {
            Alone::of(|a| {
                a.streams = 1.0;
                a.requests(0, 256, 16, 1e6);
                a.digest.windows.sizes = Spread::default();
                (0..16).for_each(|_| a.digest.windows.sizes.add(32));
                a.digest.cache.added = 512;
            })
        };
        let edges: &[AloneEdge] = &[("SOME_CUT", |a, x| a.digest.windows.holes[0] = x as u64, 76.0, 77.0)];
        hold_cost(&fragmented_file::RULE, pieces, (75.0, 0.8), edges);
    }
}
