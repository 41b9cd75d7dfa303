//! Pages of mappings that were advised to be random are evicted though they are hot.
//!
//! Since 6.4 a reference through such a mapping is invisible to reclaim, and its pages have no second chance. The rule
//! looks at mapped reads with a cache as large as before that has to read more again. Known limit: another policy of
//! reclaim with the same effect on mapped pages looks alike.

use std::ops::RangeInclusive;

use super::{Figure, Match, Rule, grade, reads};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "hinted-pages-evicted",
    layer: "page cache",
    needs: super::CALLS_AND_PAGES,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "Hot pages of a mapping with MADV_RANDOM or MADV_SEQUENTIAL are evicted as if they were unused.",
    why: "Since 6.4 reclaim does not look at references through mappings with such advice. Pages that are touched over \
          and over leave the cache as soon as those that are touched once, and have to be read again.",
    events: "Page faults in mappings read pages that had been in the cache before, more often than on the fast side, \
             though the cache holds as many pages.",
    example: "A database that maps its file with MADV_RANDOM: hot pages were read again 27 times as often on 6.18.",
    change: "Use MADV_NORMAL with a small read_ahead_kb for hot mappings, or read with pread.",
    refute: "Without the advice the difference stays.",
    since: "Kernels since 6.4.",
    consequences: &[],
    switches: &[super::Switch::Word("--fadvise_hint=0"), super::Switch::NoAdvice],
    find,
    cost: None,
};

/// Most pages in the cache, slow over fast, if it is as large.
const AS_LARGE: RangeInclusive<f64> = 0.95..=1.05;
/// Growth of the pages read again for a touch.
const MORE_AGAIN: f64 = 1.1;
/// Growth of all pages read for a touch: those read again are a part of them.
const MORE_ADDED: f64 = 1.03;
/// Growth of the mean window: larger windows read more again, too, but then each brings more pages.
const LARGER_WINDOWS: f64 = 1.1;
/// Growth of the pages read again, half sure and sure.
const GRADE: (f64, f64) = (MORE_AGAIN, 1.5);
/// Confidence of a small growth: nothing else evicts other pages from a cache of this size.
const LEAST_SURE: f64 = 0.7;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let mapped = delta.of(|d| reads::share(d.workload.mapped, d.operations()));
    let again = delta.per_operation(|d| d.cache.again as f64);
    let added = delta.per_operation(|d| d.cache.added as f64);
    let held = delta.of(|d| d.cache.most as f64);
    let reclaimed = delta.per_operation(|d| d.cache.reclaimed as f64);
    let same_cache = AS_LARGE.contains(&held.ratio());
    let evicts = reclaimed.fast > 0.0 && reclaimed.slow > 0.0;
    if !(reads::equal(delta)
        && mapped.slow > 0.0
        && same_cache
        && evicts
        && again.rose(MORE_AGAIN)
        && added.rose(MORE_ADDED))
    {
        return None;
    }
    let window = delta.of(|d| reads::share(reads::all_pages(d), d.windows.count.iter().sum()));
    if window.rose(LARGER_WINDOWS) {
        return None;
    }
    Some(Match {
        confidence: grade(again.ratio(), GRADE.0, GRADE.1).max(LEAST_SURE),
        share_ns: None,
        claim: format!(
            "mapped pages are read again {:.3} times a touch, against {:.3}, though the cache is as large",
            again.slow, again.fast
        ),
        evidence: vec![
            Figure::new("pages read again, for each call", again, Unit::Pages),
            Figure::new("most pages in the cache", held, Unit::Pages),
            Figure::new("touches that fault", mapped, Unit::Share),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, sure};
    use super::RULE;

    /// Touches of a mapping, that read 1.3 times as many pages again from a cache of a thousand.
    fn evicted() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                d.workload.mapped = 10;
                (d.cache.added, d.cache.again, d.cache.most, d.cache.reclaimed) = (1000, 1000, 1000, 1);
                (d.windows.count[0], d.windows.pages[0]) = (100, 1000);
            });
            (p.slow.cache.added, p.slow.cache.again) = (1300, 1300);
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("equal calls", |p, x| p.slow.workload.bytes[0] = x as u64, 40_960.0, 81_920.0),
            ("a mapping", |p, x| p.slow.workload.mapped = x as u64, 1.0, 0.0),
            ("AS_LARGE", |p, x| p.slow.cache.most = x as u64, 1050.0, 1051.0),
            ("AS_LARGE, less", |p, x| p.slow.cache.most = x as u64, 950.0, 949.0),
            ("evicts", |p, x| p.slow.cache.reclaimed = x as u64, 1.0, 0.0),
            ("evicted before", |p, x| p.fast.cache.reclaimed = x as u64, 1.0, 0.0),
            ("MORE_AGAIN", |p, x| p.slow.cache.again = x as u64, 1101.0, 1100.0),
            ("MORE_ADDED", |p, x| p.slow.cache.added = x as u64, 1031.0, 1030.0),
            ("LARGER_WINDOWS", |p, x| p.slow.windows.pages[0] = x as u64, 1100.0, 1101.0),
        ];
        hold(&RULE, evicted, 0.769, edges);
        sure(&RULE, evicted, &[("LEAST_SURE", |p, x| p.slow.cache.again = x as u64, 1150.0, 0.7)]);
    }
}
