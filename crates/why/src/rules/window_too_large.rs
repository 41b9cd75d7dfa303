//! Pages read ahead that remain unused, or are gone before a use.
//!
//! Counted for each operation: pages read ahead of calls less those that were requested later. Pages that were evicted
//! before their use count only if the cache holds as many pages as on the fast side: in a smaller cache they are the
//! cache's doing. Windows around page faults are left to `mmap-read-around`.

use iowhy_stack::event::RaKind;

use super::{Figure, Match, Rule, grade, reads};
use crate::delta::{Delta, Unit};
use crate::digest::Digest;

pub(super) const RULE: Rule = Rule {
    name: "window-too-large",
    layer: "read-ahead",
    needs: super::WINDOWS,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "Read-ahead brings more pages than are used: they are never requested, or evicted before that.",
    why: "Each such page costs time at the device, and room in the cache that pages of use would have had.",
    events: "Pages are added ahead of calls and leave the cache, or the run ends, without a hit on them; requests are \
             larger than the calls.",
    example: "read_ahead_kb=4096 under many streams in little memory: windows push each other out unread.",
    change: "Lower read_ahead_kb, or advise random reads (POSIX_FADV_RANDOM, MADV_RANDOM).",
    refute: "With the limit of the fast side the difference stays.",
    since: "Every kernel; 2.4 and 2.6.5 to 2.6.22 read ahead of random reads, too.",
    consequences: &[],
    switches: &[
        super::Switch::Other("read_ahead_kb"),
        super::Switch::Queue("read_ahead_kb"),
        super::Switch::Word("--fadvise_hint=random"),
    ],
    find,
    cost: Some(reads::cost_of_waste),
};

const FAULTS: &[RaKind] = &[RaKind::Around, RaKind::Exec, RaKind::Huge];

/// Share of pages in windows around faults, beyond which `mmap-read-around` has the windows.
const MOST_FAULTS: f64 = 0.3;
/// Factor by which a cache is smaller: then what it evicts is its own doing.
const SMALLER_CACHE: f64 = 1.05;
/// Factor by which pages read in vain have grown: windows at the end of a run leave a few on both sides.
const MORE_WASTED: f64 = 1.3;
/// Pages read in vain more, as a part of all that the fast side reads: fewer cost hardly any of the device's time.
const PART: f64 = 0.1;
/// Factor by which pages read have grown, as waste of that part makes them.
const MORE_PAGES: f64 = 1.1;
/// Part of the pages read more that nobody uses, at least.
const LEAST_OF_ADDED: f64 = 0.5;
/// Parts read in vain, half sure and sure: half as much again leaves no doubt.
const GRADE: (f64, f64) = (0.1, 0.5);
/// Confidence at least: pages are counted one by one, and nothing else reads ahead of calls.
const LEAST_SURE: f64 = 0.7;

fn unused(digest: &Digest) -> f64 {
    digest.windows.ahead.saturating_sub(digest.windows.used + digest.windows.thrashed) as f64
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    let faults = delta.of(|d| reads::share(reads::pages(d, FAULTS), reads::all_pages(d)));
    if !reads::equal(delta) || faults.fast.max(faults.slow) > MOST_FAULTS {
        return None;
    }
    let held = delta.of(|d| d.cache.most as f64);
    let same_cache = !held.fell(SMALLER_CACHE);
    let wasted = delta.per_operation(|d| unused(d) + if same_cache { d.windows.thrashed as f64 } else { 0.0 });
    let added = delta.per_operation(|d| d.cache.added as f64);
    let part = if added.fast > 0.0 { wasted.difference() / added.fast } else { 0.0 };
    // Windows that the end of a run leaves unused are a matter of its length.
    if !(wasted.rose(MORE_WASTED) && part > PART && added.rose(MORE_PAGES)) {
        return None;
    }
    // Where most of the extra pages are requested, the fast side had them already.
    if wasted.difference() < LEAST_OF_ADDED * added.difference() {
        return None;
    }
    Some(Match {
        confidence: grade(part, GRADE.0, GRADE.1).max(LEAST_SURE),
        share_ns: None,
        claim: format!(
            "{:.2} pages that are read ahead for each call remain unused, against {:.2}",
            wasted.slow, wasted.fast
        ),
        evidence: vec![
            Figure::new("pages read ahead in vain, for each call", wasted, Unit::Pages),
            Figure::new("pages read for each call", added, Unit::Pages),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, windows};
    use super::RULE;
    use iowhy_stack::event::RaKind::{Around, Sync};

    /// 1000 pages read on the fast side, 300 more in vain on the slow one.
    fn wasted() -> Pair {
        Pair::of(|p| {
            p.both(|d| windows(d, Sync, 100.0, 700.0));
            (p.fast.cache.added, p.slow.cache.added, p.slow.windows.ahead) = (1000, 1300, 300);
        })
    }

    fn slightly() -> Pair {
        Pair::of(|p| {
            *p = wasted();
            (p.slow.cache.added, p.slow.windows.ahead) = (1110, 110);
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("MOST_FAULTS", |p, x| windows(&mut p.slow, Around, 1.0, x), 300.0, 301.0),
            ("MOST_FAULTS, fast side", |p, x| windows(&mut p.fast, Around, 1.0, x), 300.0, 301.0),
            (
                "SMALLER_CACHE",
                |p, x| {
                    p.slow.windows.thrashed = 300;
                    (p.fast.cache.most, p.slow.cache.most) = (x as u64, 1000);
                },
                1050.0,
                1051.0,
            ),
            ("MORE_WASTED", |p, x| (p.fast.windows.ahead, p.slow.windows.ahead) = (1000, x as u64), 1301.0, 1300.0),
            ("MORE_PAGES", |p, x| p.slow.cache.added = x as u64, 1101.0, 1100.0),
            ("LEAST_OF_ADDED", |p, x| p.slow.cache.added = x as u64, 1600.0, 1601.0),
            ("pages used", |p, x| p.slow.windows.used = x as u64, 150.0, 151.0),
            ("pages on the fast side", |p, x| (p.fast.cache.added, p.slow.cache.added) = (x as u64, 400), 1.0, 0.0),
            ("equal reads", |p, x| p.slow.workload.direct[0] = x as u64, 0.0, 1.0),
        ];
        hold(&RULE, wasted, 0.8413, edges);
        let part: Edge = ("PART", |p, x| p.slow.windows.ahead = x as u64, 101.0, 100.0);
        hold(&RULE, slightly, 0.7, &[part, ("LEAST_SURE", part.1, 110.0, 99.0)]);
    }
}
