//! The working set does not fit into the page cache any more.
//!
//! Pages are evicted, missed and read again. That the cache itself is smaller shows in the most pages it ever held. If
//! it holds as many as on the fast side and still has to read more again, the choice of the victims is to blame, not
//! its size; that is left to other rules.

use super::{Figure, Match, Rule, grade, reads};
use crate::delta::{Delta, Unit};
use crate::digest::Layer;

pub(super) const RULE: Rule = Rule {
    name: "cache-too-small",
    layer: "page cache",
    needs: super::CALLS_AND_PAGES,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "The working set does not fit into the page cache: pages are evicted, and read again.",
    why: "A copy from memory becomes a read from the device.",
    events: "Pages are reclaimed; pages that had been in the cache before are added again; the share of hits falls at \
             equal calls.",
    example: "Random reads over 128 MiB with 64 MiB of memory instead of enough: 30 percent slower.",
    change: "More memory or a larger limit of the memory cgroup, fewer other users of it, or a smaller working set.",
    refute: "With the memory of the fast side the difference stays.",
    since: "Every kernel.",
    consequences: &[],
    switches: &[super::Switch::Other("machine.memory_mb"), super::Switch::OtherKind("machine.")],
    find,
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    // Larger windows need more of the cache, which is none the smaller for it.
    if !reads::equal(delta) || delta.of(|d| d.windows.sizes.max() as f64).rose(1.5) {
        return None;
    }
    let again = delta.per_operation(|d| d.cache.again as f64);
    let added = delta.per_operation(|d| d.cache.added as f64);
    let reclaimed = delta.per_operation(|d| d.cache.reclaimed as f64);
    let misses = delta.per_operation(|d| d.cache.misses as f64);
    let waits = delta.time(|time| time.of(Layer::Device) + time.of(Layer::Elevator) + time.of(Layer::Plug));
    let hits = delta.of(|d| reads::share(d.cache.hits, d.cache.hits + d.cache.misses));
    let evicts = reclaimed.slow > 0.0 && reclaimed.rose(1.01);
    let held = delta.of(|d| d.cache.most as f64);
    let read_again = again.rose(1.05) && again.difference() > 0.02 * added.slow && held.fell(1.05);
    // Where equal calls had found everything, each page that is read now drives out one that will be asked for.
    let had_all = misses.slow > 0.001 && misses.fast < 0.1 * misses.slow && reclaimed.slow > 0.5 * added.slow;
    if !(evicts && (read_again || had_all) && added.rose(1.02)) {
        return None;
    }
    Some(Match {
        confidence: if read_again { grade(again.difference() / added.slow, 0.02, 0.1).max(0.8) } else { 0.8 },
        share_ns: Some(waits.difference().max(0.0)),
        claim: format!(
            "the pages in use do not fit the cache: for {:.2} pages that a call reads {:.2} are evicted, and {:.0} % \
             of the reads had been there before; {:.1} % of the pages are found, against {:.1} %",
            added.slow,
            reclaimed.slow,
            100.0 * again.slow / added.slow,
            100.0 * hits.slow,
            100.0 * hits.fast
        ),
        evidence: vec![
            Figure::new("pages read again, for each call", again, Unit::Pages),
            Figure::new("pages evicted, for each call", reclaimed, Unit::Pages),
            Figure::new("pages found", hits, Unit::Share),
        ],
    })
}
