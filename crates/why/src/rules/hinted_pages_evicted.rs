//! Pages of mappings that were advised to be random are evicted though they are hot.
//!
//! Since 6.4 a reference through such a mapping is invisible to reclaim, and its pages have no second chance. The rule
//! looks at mapped reads with a cache as large as before that has to read more again. Known limit: another policy of
//! reclaim with the same effect on mapped pages looks alike.

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
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    let mapped = delta.of(|d| reads::share(d.workload.mapped, d.operations()));
    let again = delta.per_operation(|d| d.cache.again as f64);
    let added = delta.per_operation(|d| d.cache.added as f64);
    let held = delta.of(|d| d.cache.most as f64);
    let reclaimed = delta.per_operation(|d| d.cache.reclaimed as f64);
    let same_cache = (0.95..=1.05).contains(&held.ratio());
    let evicts = reclaimed.fast > 0.0 && reclaimed.slow > 0.0;
    if !(reads::equal(delta) && mapped.slow > 0.0 && same_cache && evicts && again.rose(1.1) && added.rose(1.03)) {
        return None;
    }
    // Larger windows read more again, too, but then each brings more pages.
    let window = delta.of(|d| reads::share(reads::all_pages(d), d.windows.count.iter().sum()));
    if window.rose(1.1) {
        return None;
    }
    Some(Match {
        confidence: grade(again.ratio(), 1.1, 1.5).max(0.7),
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
