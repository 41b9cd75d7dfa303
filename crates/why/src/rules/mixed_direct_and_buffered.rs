//! Buffered and direct calls on one file: the pages that the one left in the page cache, the other has to clear away
//! first.
//!
//! A direct call that writes more than it was asked to (or writes at all, if it reads), or that drops pages, has
//! cleared its range. The price is the time by which such calls take longer than other direct calls of the same runs,
//! and what buffered calls read again: of one side, all of their time, and of the reads' waits the part that goes to
//! pages which direct writes dropped. Known limit: pages that are only looked for, and not there, are the business of
//! `invalidation-cost`.

use std::ops::Range;

use super::cost::{Cost, Facts, MARKED, TRIPS};
use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};
use crate::digest::Digest;
use iowhy_stats::figure::share;

pub(super) const RULE: Rule = Rule {
    name: "mixed-direct-and-buffered",
    layer: "page cache",
    needs: super::CALLS_AND_PAGES,
    owns: super::Owns::Calls,
    single: super::Single::Counts,
    what: "Direct calls go to ranges of a file that buffered calls have in the page cache.",
    why: "Before a direct call may use the device, dirty pages of its range are written back and waited for, and \
          before a write the pages are dropped; pages that buffered calls still need have to be read again.",
    events: "Direct reads have write bios of their own, direct writes write more than they were asked to or drop \
             pages, and take longer than other direct calls.",
    example: "A database that reads with O_DIRECT the files that its loader writes through the page cache.",
    change: "Open the file with O_DIRECT everywhere, or nowhere; sync and drop the pages (fsync, POSIX_FADV_DONTNEED) \
             before direct calls begin.",
    refute: "With the buffered calls on another file, direct calls take as long.",
    since: "Every kernel with direct I/O.",
    consequences: &["invalidation-cost", "cpu-bound-submission", "cache-too-small", "cold-cache"],
    switches: &[Switch::OtherJob],
    find,
    cost: Some(cost),
};

/// Share of direct calls that clear their range: fewer hardly move the mean of all.
const MANY: f64 = 0.05;
/// Ratio of these shares: clearing on both sides is not the difference.
const MORE: f64 = 2.0;
/// Share of direct calls: below 1 % the job is a buffered one.
const DIRECT: f64 = 0.01;
/// Ratio of direct shares: beyond an octave the job itself has changed.
const ALIKE: Range<f64> = 0.5..2.0;
/// Calls over own pages for each one that clears: with fewer, pages of others are in the way.
const OWN: f64 = 0.5;
/// Ratio of times of clearing calls and others: without it clearing costs the call itself nothing.
const DEARER: f64 = 1.1;
/// Additional pages read again per operation: dropped pages then cost the buffered calls time.
const AGAIN: f64 = 0.1;
/// One plus the growth of the clearing share, half sure and sure.
const GRADE: (f64, f64) = (1.02, 1.3);

fn direct(digest: &Digest) -> u64 {
    digest.workload.direct[0] + digest.workload.direct[1]
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    let cleared = delta.of(|d| share(d.cache.direct_cleared.iter().sum(), direct(d)));
    let calls = delta.of(|d| share(direct(d), d.workload.calls[0] + d.workload.calls[1]));
    let again = delta.per_operation(|d| d.cache.again as f64);
    let longer = delta.of(|d| d.cache.direct_latency[0].mean());
    let others = delta.of(|d| d.cache.direct_latency[1].mean());
    // As many direct calls on the other side, and they did not have to.
    let equal = calls.fast > DIRECT && ALIKE.contains(&calls.ratio());
    // Foreign pages are the business of `stale-pages-under-direct-io`.
    let own = delta.of(|d| share(d.cache.direct_over_own, direct(d)));
    let dearer = longer.slow > DEARER * others.fast.max(others.slow) || again.difference() > AGAIN;
    if !(equal
        && own.slow > OWN * cleared.slow
        && dearer
        && cleared.slow > MANY
        && cleared.slow > MORE * cleared.fast
        && cleared.sure())
    {
        return None;
    }
    Some(Match {
        confidence: grade(1.0 + cleared.difference(), GRADE.0, GRADE.1),
        share_ns: None,
        claim: format!(
            "{:.0} % of the direct calls first clear pages of buffered calls out of their range, and take {:.0} us \
             instead of {:.0} us",
            100.0 * cleared.slow,
            longer.slow / 1e3,
            others.fast / 1e3
        ),
        evidence: vec![
            Figure::new("share of the direct calls that clear their range first", cleared, Unit::Share),
            Figure::new("time of such a call", longer, Unit::Ns),
            Figure::new("time of any other direct call", others, Unit::Ns),
            Figure::new("pages read again for an operation", again, Unit::Pages),
        ],
    })
}

/// The least part of the cost: with O_DIRECT everywhere the data still have to reach the device.
const LEAST: f64 = 0.5;
/// Direct calls that clear their range: fewer are chance.
const ENOUGH: u64 = 16;

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let part = clearing(facts)?;
    is_own(facts, part).then(|| {
        let setting = "O_DIRECT in all calls on the file, or in none";
        let mut cost = cleared(facts, part, "clear pages of buffered calls out of their range", setting);
        let cache = &facts.digest.cache;
        let again = if cache.direct_cleared[1] >= ENOUGH { cache.dropped_and_read() } else { 0 };
        if again > 0 {
            let read = facts.reads_wait() * again as f64 / cache.added.max(again) as f64;
            cost.ns = (cost.ns + read).min(facts.whole_ns);
            cost.evidence.push(("pages read again", again as f64, Unit::Pages));
        }
        cost
    })
}

/// Share of the direct calls that clear their range first, if these are many.
pub(super) fn clearing(facts: &Facts<'_>) -> Option<f64> {
    let clearing = facts.digest.cache.direct_cleared.iter().sum::<u64>();
    let part = share(clearing, direct(facts.digest));
    (clearing >= ENOUGH && part > MANY).then_some(part)
}

/// The workload itself has put the pages there.
pub(super) fn is_own(facts: &Facts<'_>, part: f64) -> bool {
    let (cache, work) = (&facts.digest.cache, &facts.digest.workload);
    // Of pages that were there before only what was written into them is its own.
    let dirtied = cache.direct_cleared[0].min(work.calls[1].saturating_sub(work.direct[1]));
    share(cache.direct_over_own.max(dirtied), direct(facts.digest)) > OWN * part
}

/// The cost of it.
pub(super) fn cleared(facts: &Facts<'_>, part: f64, does: &str, setting: &str) -> Cost {
    let latency = &facts.digest.cache.direct_latency[0];
    // Without O_DIRECT, or the others, they find nothing to do.
    let waits = facts.of_kinds(&[0, 1], &TRIPS);
    Cost {
        ns: latency.sum().min(waits),
        bounds: [LEAST, 1.0],
        confidence: MARKED,
        claim: format!("{:.0} % of the direct calls first {does}, {:.0} us each", 100.0 * part, latency.mean() / 1e3),
        setting: setting.to_owned(),
        evidence: vec![
            ("share of the direct calls that clear their range first", part, Unit::Share),
            ("time of such a call", latency.mean(), Unit::Ns),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread};
    use super::RULE;
    use crate::digest::Layer;
    use crate::{Delta, Side};

    #[test]
    fn costs() {
        let alone = || {
            Alone::of(|a| {
                (a.digest.workload.direct[0], a.digest.cache.direct_over_own) = (100, 100);
                a.digest.cache.direct_cleared[0] = 50;
                a.digest.cache.direct_latency[0] = spread(50, 12_000.0);
                a.digest.time.ns[0][Layer::Device as usize] = 8e5;
            })
        };
        let edges: &[AloneEdge] = &[
            ("ENOUGH", |a, x| a.digest.cache.direct_cleared[0] = x as u64, 16.0, 15.0),
            ("MANY, alone", |a, x| a.digest.workload.direct[0] = x as u64, 999.0, 1000.0),
            ("OWN, alone", |a, x| a.digest.cache.direct_over_own = x as u64, 26.0, 25.0),
            (
                "OWN, dirtied",
                |a, x| (a.digest.cache.direct_over_own, a.digest.workload.calls[1]) = (0, x as u64),
                26.0,
                25.0,
            ),
        ];
        hold_cost(&RULE, alone, (60.0, 0.85), edges);
        let found = alone().ask(&RULE).expect("a cost");
        assert!((found.bounds_pct[0] - 30.0).abs() < 0.1, "{}: {found:?}", "LEAST");
        // Of the pages that direct writes drop half are read again.
        let again = |cleared: u64| {
            let mut a = alone();
            a.digest.cache.direct_cleared = [50 - cleared, cleared];
            (a.digest.cache.dropped, a.digest.cache.again_by_reads, a.digest.cache.added) = (50, 25, 100);
            a.ask(&RULE).expect("a cost").saves_pct
        };
        assert!(again(16) > again(15) + 10.0 && (again(15) - 60.0).abs() < 0.1, "{} and {}", again(16), again(15));
    }

    /// Ten thousand direct calls, of which 15 % clear their range first and take twice the time of others.
    fn cleared() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                d.workload.calls[0] = 10_000;
                d.workload.direct[0] = 10_000;
                d.cache.direct_over_own = 5000;
                d.cache.direct_latency[1] = spread(1, 1000.0);
            });
            p.slow.cache.direct_cleared[0] = 1500;
            p.slow.cache.direct_latency[0] = spread(1, 2000.0);
        })
    }

    /// Pages of a thousand calls are read again, and no call takes longer.
    fn again(p: &mut Pair, slow: f64) {
        p.both(|d| d.latency[0] = spread(1000, 1000.0));
        p.slow.cache.direct_latency[0] = spread(1, 1000.0);
        p.slow.cache.again = slow as u64;
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("MANY", |p, x| p.slow.cache.direct_cleared[0] = x as u64, 501.0, 500.0),
            ("MORE", |p, x| p.fast.cache.direct_cleared[1] = x as u64, 749.0, 750.0),
            ("DIRECT", |p, x| p.both(|d| d.workload.direct = [0, x as u64]), 101.0, 100.0),
            ("ALIKE, fewer", |p, x| p.slow.workload.direct[0] = x as u64, 5000.0, 4999.0),
            (
                "ALIKE, more",
                |p, x| (p.fast.workload.direct[0], p.slow.workload.direct[0]) = (5000, x as u64),
                9999.0,
                10_000.0,
            ),
            ("OWN", |p, x| p.slow.cache.direct_over_own = x as u64, 751.0, 750.0),
            ("DEARER", |p, x| p.slow.cache.direct_latency[0] = spread(1, x), 1101.0, 1100.0),
            ("DEARER, others on the fast side", |p, x| p.fast.cache.direct_latency[1] = spread(1, x), 1818.0, 1819.0),
            ("DEARER, others on the slow side", |p, x| p.slow.cache.direct_latency[1] = spread(1, x), 1818.0, 1819.0),
            ("AGAIN", again, 101.0, 100.0),
        ];
        hold(&RULE, cleared, 0.7473, edges);
    }

    #[test]
    fn runs_that_differ_as_much_as_the_sides_show_nothing() {
        let Pair { fast, slow, .. } = cleared();
        for (cleared, expected) in [(1500, true), (0, false)] {
            let mut other = slow.clone();
            other.cache.direct_cleared[0] = cleared;
            let sides = [vec![fast.clone(); 2], vec![slow.clone(), other]];
            let [fast, slow] = sides.map(|runs| Side { runs, ..Side::default() });
            assert_eq!((RULE.find)(&Delta::of_roles(&fast, &slow, false)).is_some(), expected);
        }
    }
}
