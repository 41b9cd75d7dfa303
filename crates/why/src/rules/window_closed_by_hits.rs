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
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    if !reads::equal(delta) {
        return None;
    }
    let split = delta.of(|d| reads::share(d.windows.calls_split, d.windows.calls_missed));
    let hits = delta.per_operation(|d| d.windows.closes[2] as f64);
    let others = delta.per_operation(|d| (d.windows.closes[0] + d.windows.closes[1]) as f64);
    let waits = reads::waits(delta);
    let by_hits = hits.rose(1.5) && hits.difference() > others.difference();
    if !(split.rose_by(0.05) && by_hits && waits.rose(1.05)) {
        return None;
    }
    Some(Match {
        confidence: grade(split.difference(), 0.05, 0.3).max(0.8),
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
    use super::find;
    use crate::Side;
    use crate::delta::Delta;
    use crate::digest::Digest;

    /// Runs of 100 calls of four pages, of which `split` came page by page, with windows closed by cause.
    fn side(split: u64, closes: [u64; 4], call_ns: u64) -> Side {
        let run = |nr: u64| {
            let mut run = Digest::default();
            run.elapsed.0 = 100 * call_ns + nr;
            run.workload.calls[0] = 100;
            run.workload.bytes[0] = 100 * 16384;
            (0..100).for_each(|_| run.latency[0].add(call_ns));
            (run.windows.calls_missed, run.windows.calls_split, run.windows.closes) = (100, split, closes);
            run.time.waits = 100 + 3 * split;
            run
        };
        Side { runs: (0..3).map(run).collect(), ..Side::default() }
    }

    #[test]
    fn hits_are_blamed_only_if_they_closed_the_window() {
        for (split, closes, blamed) in [
            (40, [0, 0, 9, 0], true),
            (40, [9, 0, 2, 0], false),
            (40, [0, 9, 2, 0], false),
            (2, [0, 0, 9, 0], false),
            (40, [0, 0, 0, 0], false),
        ] {
            let (fast, slow) = (side(0, [0, 0, 1, 0], 1000), side(split, closes, 3000));
            assert_eq!(find(&Delta::new(&fast, &slow)).is_some(), blamed, "{split} {closes:?}");
        }
    }
}
