//! Pages had to be read that were in the page cache on the fast side.

use std::ops::Range;

use super::cost::{Bounds, Cost, Facts, MARKED};
use super::{Figure, Match, Rule, grade};
use crate::delta::{Delta, Unit};
use crate::digest::Digest;
use iowhy_stack::units::PAGE_BYTES;

pub(super) const RULE: Rule = Rule {
    name: "cold-cache",
    layer: "page cache",
    needs: super::CALLS_AND_PAGES,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "Pages had to be read from the device that the fast side found in the page cache.",
    why: "A page in memory costs a copy, a page on the device a request; nothing else has to be different.",
    events: "Equal calls, but more pages are put into the cache, each for the first time: they were not evicted \
             during the run, they were not there when it began.",
    example: "The first run after a reboot against the second; a backup that pushed the database out of the cache.",
    change: "Compare runs that begin alike: drop the cache before both, or read the files before both.",
    refute: "With the files in the cache before the run, or dropped before both runs, the difference remains.",
    since: "Every kernel.",
    consequences: &["cpu-bound-submission", "device-latency", "random-advice", "window-too-small", "window-too-large"],
    switches: &[super::Switch::OtherJob],
    find,
    cost: Some(cost),
};

/// Pages put into the cache for each page asked for, up to which a side found what it asked for there.
const NOTHING_READ: f64 = 0.05;

/// Bytes asked for, slow over fast, of equal calls.
const AS_MUCH: Range<f64> = 0.9..1.1;
/// Share of direct reads, from which on the cache does not matter.
const DIRECT: f64 = 0.5;
/// Growth of the pages put into the cache, and of the bytes read from devices: half as many more are not chance.
const MORE: f64 = 1.5;
/// Growth of the pages put into the cache for each page asked for: fewer are metadata and libraries.
const LEAST_MORE: f64 = 0.05;
/// Share of the pages put into the cache that had been there: beyond it, the cache is too small rather than cold.
const AGAIN: f64 = 0.2;
/// Share of the pages read ahead that are used, below which read-ahead reads for nobody.
const USED: f64 = 0.5;
/// Pages put into the cache for each page asked for, beyond which read-ahead has brought some.
const BEYOND: f64 = 1.2;
/// Growth of the pages put into the cache, half sure and sure.
const GRADE: (f64, f64) = (1.3, 4.0);
/// Highest confidence: pages may be new for other reasons, like a file that is another one.
const MOST_SURE: f64 = 0.95;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let bytes = delta.of(|d| d.workload.bytes[0] as f64);
    let each = |figure: &dyn Fn(&Digest) -> f64| {
        delta.of(|d| figure(d) / (d.workload.bytes[0] as f64 / PAGE_BYTES as f64).max(1.0))
    };
    let added = each(&|d| d.cache.added as f64);
    let again = each(&|d| d.cache.again as f64);
    let read = delta.of(|d| d.commands.sectors[0] as f64 * 512.0);
    let direct = delta.of(|d| super::reads::share(d.workload.direct[0], d.workload.calls[0]));
    let equal = AS_MUCH.contains(&bytes.ratio()) && bytes.slow > 0.0 && direct.slow < DIRECT;
    let more = added.rose(MORE) && added.rose_by(LEAST_MORE) && read.rose(MORE);
    if !equal || !more || again.slow > AGAIN * added.slow {
        return None;
    }
    // Read-ahead of what nobody asks for is another cause, if the fast side reads at all.
    let used = delta.of(|d| super::reads::share(d.windows.used, d.windows.ahead));
    if used.slow < USED && added.fast > NOTHING_READ && added.slow > BEYOND {
        return None;
    }
    Some(Match {
        confidence: grade(added.ratio(), GRADE.0, GRADE.1).min(MOST_SURE),
        share_ns: None,
        claim: format!(
            "{:.0} % of the reads come from the device for the first time, against {:.0} %",
            (100.0 * added.slow).min(100.0),
            (100.0 * added.fast).min(100.0)
        ),
        evidence: vec![
            Figure::new("pages put into the cache for each page asked for", added, Unit::Ratio),
            Figure::new("bytes read from devices", read, Unit::Bytes),
        ],
    })
}

/// Part of the pages that come back to the cache which others have taken out of it.
const BY_OTHERS: f64 = 0.5;
/// Part of the time in which tasks of the machine wait for memory, beyond which it is reclaim that takes pages out.
const SHORT: f64 = 0.01;
/// Parts of the cost: what would have been found may still wait for its neighbours.
const PARTS: Bounds = [0.6, 1.0];

/// Of one side it is known what the cache had before only where pages come back that somebody took out.
fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let (cache, seen) = (&facts.digest.cache, facts.digest.foreign.dropped);
    let (again, added) = (cache.again as f64, cache.added.max(1) as f64);
    // Of tasks that are not followed it is only seen that the pages are gone.
    let gone = cache.again.saturating_sub(cache.reclaimed + cache.dropped);
    let short = facts.counter("memory_some_pressure_ns") > SHORT * facts.whole_ns;
    let by_others = if short { seen } else { seen.max(gone) };
    // An open of FUSE drops what its server has cached once more.
    let itself = if facts.filesystem(|kind| kind.starts_with("fuse")).is_some() { 0 } else { cache.dropped_and_read() };
    let enough = |dropped: u64| again > 0.0 && dropped as f64 >= BY_OTHERS * again && cache.reclaimed <= dropped;
    let (dropped, who, setting) = match (enough(by_others), enough(itself)) {
        (true, _) => (by_others, "another process", "the process that drops them (POSIX_FADV_DONTNEED, drop_caches)"),
        (false, true) => {
            let who = if facts.settings.command.is_some() { "the program itself" } else { "a recorded process" };
            (itself, who, "no POSIX_FADV_DONTNEED (dd iflag=nocache) and no drop_caches before what is read again")
        }
        (false, false) => return None,
    };
    let part = (again.min(dropped as f64) / added).min(1.0);
    Some(Cost {
        ns: facts.reads_wait() * part,
        bounds: PARTS,
        confidence: MARKED,
        claim: format!(
            "{:.0} % of the pages that are read had been in the page cache before {who} dropped them",
            100.0 * part
        ),
        setting: setting.to_owned(),
        evidence: vec![
            ("pages read again", again, Unit::Pages),
            ("dropped pages", dropped as f64, Unit::Pages),
            ("time that reads wait for I/O", facts.reads_wait(), Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, sure};
    use super::RULE;

    /// Reads of a thousand pages, of which a hundred are not in the cache, and two hundred on the slow side.
    fn cold() -> Pair {
        Pair::of(|p| {
            p.both(|d| (d.workload.calls[0], d.workload.bytes[0]) = (1000, 4_096_000));
            (p.fast.cache.added, p.fast.commands.sectors[0]) = (100, 1000);
            (p.slow.cache.added, p.slow.commands.sectors[0]) = (200, 2000);
        })
    }

    /// The same with three pages instead of one for each page asked for; all are used.
    fn ahead() -> Pair {
        let mut pair = cold();
        (pair.fast.cache.added, pair.slow.cache.added) = (1000, 3000);
        (pair.slow.windows.ahead, pair.slow.windows.used) = (1000, 1000);
        pair
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("AS_MUCH", |p, x| p.slow.workload.bytes[0] = x as u64, 4_505_599.0, 4_505_600.0),
            ("AS_MUCH, less", |p, x| p.slow.workload.bytes[0] = x as u64, 3_686_400.0, 3_686_399.0),
            ("DIRECT", |p, x| p.slow.workload.direct[0] = x as u64, 499.0, 500.0),
            ("MORE, pages", |p, x| p.slow.cache.added = x as u64, 151.0, 150.0),
            ("MORE, bytes", |p, x| p.slow.commands.sectors[0] = x as u64, 1501.0, 1500.0),
            ("LEAST_MORE", |p, x| (p.fast.cache.added, p.slow.cache.added) = (0, x as u64), 50.0, 49.0),
            ("AGAIN", |p, x| (p.slow.cache.added, p.slow.cache.again) = (500, x as u64), 100.0, 101.0),
        ];
        hold(&RULE, cold, 0.692, edges);
        let edges: &[Edge] = &[
            ("reads", |p, x| p.both(|d| d.workload.bytes[0] = x as u64), 4_096_000.0, 0.0),
            ("USED", |p, x| p.slow.windows.used = x as u64, 500.0, 499.0),
            ("NOTHING_READ", |p, x| (p.fast.cache.added, p.slow.windows.used) = (x as u64, 0), 50.0, 51.0),
            (
                "BEYOND",
                |p, x| (p.fast.cache.added, p.slow.cache.added, p.slow.windows.used) = (500, x as u64, 0),
                1200.0,
                1201.0,
            ),
        ];
        hold(&RULE, ahead, 0.872, edges);
        sure(&RULE, cold, &[("MOST_SURE", |p, x| p.slow.cache.added = x as u64, 400.0, 0.95)]);
    }

    #[test]
    fn costs() {
        let dropped = || {
            Alone::of(|a| {
                a.requests(0, 10, 8, 8e5);
                let cache = &mut a.digest.cache;
                (cache.added, cache.again, a.digest.foreign.dropped) = (100, 50, 50);
            })
        };
        let short: fn(&mut Alone, f64) = |a, ns| {
            a.count("memory_some_pressure_ns", ns as u64);
            a.digest.foreign.dropped = 0;
        };
        let edges: &[AloneEdge] = &[
            ("BY_OTHERS", |a, x| (a.digest.foreign.dropped, a.digest.cache.dropped) = (x as u64, 50), 25.0, 24.0),
            ("again", |a, x| a.digest.cache.again = x as u64, 13.0, 0.0),
            ("reclaimed", |a, x| a.digest.cache.reclaimed = x as u64, 50.0, 51.0),
            ("SHORT", short, 10_000.0, 10_001.0),
        ];
        hold_cost(&RULE, dropped, (40.0, 0.85), edges);
        let itself = || {
            Alone::of(|a| {
                a.requests(0, 50, 8, 8e5);
                let cache = &mut a.digest.cache;
                (cache.added, cache.again, cache.again_by_reads, cache.dropped) = (100, 50, 50, 50);
            })
        };
        let edges: &[AloneEdge] = &[
            (
                "BY_OTHERS, itself",
                |a, x| (a.digest.cache.dropped, a.digest.cache.reclaimed) = (x as u64, 24),
                25.0,
                24.0,
            ),
            ("read", |a, x| a.digest.cache.again_by_reads = x as u64, 25.0, 24.0),
            ("FUSE", |a, x| a.set("/x", "filesystem", ["ext4", "fuse"][x as usize]), 0.0, 1.0),
        ];
        hold_cost(&RULE, itself, (40.0, 0.85), edges);
    }
}
