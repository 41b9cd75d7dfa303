//! The working set does not fit into the page cache any more.
//!
//! Pages are evicted, missed and read again. That the cache itself is smaller shows in the most pages it ever held. If
//! it holds as many as on the fast side and still has to read more again, the choice of the victims is to blame, not
//! its size; that is left to other rules.

use super::{Figure, Match, Rule, grade, memory_reclaim, reads};
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
    cost: Some(memory_reclaim::reread),
};

/// Factor by which the largest window has grown: such windows need more of the cache, which is none the smaller for it.
const LARGER_WINDOWS: f64 = 1.5;
/// Growth of the pages evicted for an operation: beyond rounding, for equal reads evict equally many.
const MORE_EVICTED: f64 = 1.01;
/// Growth of the pages read again for an operation: 5 % are beyond the order of random reads.
const MORE_AGAIN: f64 = 1.05;
/// Growth of the pages read again, as a share of all that are read: fewer cost little time.
const AGAIN: f64 = 0.02;
/// Factor by which the most pages ever held have fallen: a cache of equal size chooses other victims.
const SMALLER: f64 = 1.05;
/// Pages missing for an operation: with fewer the cache still has everything.
const LEAST_MISSES: f64 = 0.001;
/// The fast side's misses over the slow one's, if it had nearly everything.
const HAD_ALL: f64 = 0.1;
/// Pages evicted for each page that is read: about one in a full cache, and half of them leave room for its filling.
const DRIVEN_OUT: f64 = 0.5;
/// Growth of the pages read for an operation: evictions that lead to no reads cost nothing.
const MORE_ADDED: f64 = 1.02;
/// Confidence of pages that are surely evicted, few though they may be.
const LEAST_SURE: f64 = 0.8;
/// Growth of the share that is read again, half sure and sure.
const GRADE: (f64, f64) = (AGAIN, 0.1);

fn find(delta: &Delta<'_>) -> Option<Match> {
    if !reads::equal(delta) || delta.of(|d| d.windows.sizes.max() as f64).rose(LARGER_WINDOWS) {
        return None;
    }
    let again = delta.per_operation(|d| d.cache.again as f64);
    let added = delta.per_operation(|d| d.cache.added as f64);
    let reclaimed = delta.per_operation(|d| d.cache.reclaimed as f64);
    let misses = delta.per_operation(|d| d.cache.misses as f64);
    let waits = delta.time(|time| time.of(Layer::Device) + time.of(Layer::Elevator) + time.of(Layer::Plug));
    let hits = delta.of(|d| reads::share(d.cache.hits, d.cache.hits + d.cache.misses));
    let held = delta.of(|d| d.cache.most as f64);
    let read_again = again.rose(MORE_AGAIN) && again.difference() > AGAIN * added.slow && held.fell(SMALLER);
    // Where equal calls had found everything, each page that is read now drives out one that will be asked for.
    let had_all =
        misses.slow > LEAST_MISSES && misses.fast < HAD_ALL * misses.slow && reclaimed.slow > DRIVEN_OUT * added.slow;
    if !(reclaimed.rose(MORE_EVICTED) && (read_again || had_all) && added.rose(MORE_ADDED)) {
        return None;
    }
    let rise = if read_again { again.difference() / added.slow } else { 0.0 };
    Some(Match {
        confidence: grade(rise, GRADE.0, GRADE.1).max(LEAST_SURE),
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

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread, sure};
    use super::{Layer, RULE};
    use crate::digest::wall::Wall;

    /// 1000 pages are read again, and 140 more on the slow side, whose cache held a tenth less.
    fn read_again() -> Pair {
        Pair::of(|p| {
            (p.fast.cache.added, p.fast.cache.again, p.fast.cache.reclaimed, p.fast.cache.most) =
                (1000, 1000, 1000, 1100);
            (p.slow.cache.added, p.slow.cache.again, p.slow.cache.reclaimed, p.slow.cache.most) =
                (2000, 1140, 2000, 1000);
            p.both(|d| d.windows.sizes.add(100));
        })
    }

    /// A hundred thousand reads that miss a page each, where they had found all of them.
    fn had_all() -> Pair {
        Pair::of(|p| {
            p.both(|d| d.latency[0] = spread(100_000, 1e5));
            (p.slow.cache.added, p.slow.cache.misses, p.slow.cache.reclaimed) = (100_000, 100_000, 100_000);
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("equal calls", |p, x| p.slow.workload.bytes[0] = x as u64, 40_960.0, 81_920.0),
            ("LARGER_WINDOWS", |p, x| p.slow.windows.sizes.add(x as u64), 150.0, 151.0),
            ("MORE_EVICTED", |p, x| p.slow.cache.reclaimed = x as u64, 1011.0, 1010.0),
            ("MORE_AGAIN", |p, x| p.slow.cache.again = x as u64, 1051.0, 1050.0),
            ("AGAIN", |p, x| (p.fast.cache.again, p.slow.cache.again) = (100, x as u64), 141.0, 140.0),
            ("SMALLER", |p, x| p.fast.cache.most = x as u64, 1051.0, 1050.0),
            ("MORE_ADDED", |p, x| p.slow.cache.added = x as u64, 1021.0, 1020.0),
        ];
        hold(&RULE, read_again, 0.889, edges);
        sure(&RULE, read_again, &[("LEAST_SURE", |p, x| p.slow.cache.again = x as u64, 1100.0, 0.8)]);
        let edges: &[Edge] = &[
            ("LEAST_MISSES", |p, x| p.slow.cache.misses = x as u64, 101.0, 100.0),
            ("HAD_ALL", |p, x| p.fast.cache.misses = x as u64, 9999.0, 10_000.0),
            ("DRIVEN_OUT", |p, x| p.slow.cache.reclaimed = x as u64, 50_001.0, 50_000.0),
        ];
        hold(&RULE, had_all, 0.8, edges);
    }

    /// Half of what calls wait for is read again, and this long is spent in reclaim, ns.
    fn reread(reclaim: f64) -> Alone {
        Alone::of(|a| {
            a.digest.wall = Some(Wall { reclaim: (reclaim, 10), ..Wall::default() });
            (a.digest.cache.added, a.digest.cache.again, a.digest.cache.reclaimed) = (100, 50, 100);
            a.digest.time.ns[0][Layer::Device as usize] = 8e5;
        })
    }

    #[test]
    fn costs() {
        let edges: &[AloneEdge] = &[("REREAD", |a, x| *a = reread(x), 1e5, 1.01e5)];
        hold_cost(&RULE, || reread(1e5), (50.0, 0.76), edges);
    }
}
