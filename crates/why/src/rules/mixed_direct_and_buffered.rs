//! Buffered and direct calls on one file: the pages that the one left in the page cache, the other has to clear away
//! first.
//!
//! A direct call that writes more than it was asked to (or writes at all, if it reads), or that drops pages, has
//! cleared its range. The price is the time by which such calls take longer than other direct calls of the same runs,
//! and what buffered calls read again. Known limit: pages that are only looked for, and not there, are the business of
//! `invalidation-cost`.

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
    consequences: &["invalidation-cost", "cpu-bound-submission", "cache-too-small"],
    switches: &[Switch::OtherJob],
    find,
};

/// Share of the direct calls that has to clear its range.
const MANY: f64 = 0.05;

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
    let equal = calls.fast > 0.01 && (0.5..2.0).contains(&calls.ratio());
    // Foreign pages are the business of `stale-pages-under-direct-io`.
    let own = delta.of(|d| share(d.cache.direct_over_own, direct(d)));
    let dearer = longer.slow > 1.1 * others.fast.max(others.slow) || again.difference() > 0.1;
    if !(equal
        && own.slow > 0.5 * cleared.slow
        && dearer
        && cleared.slow > MANY
        && cleared.slow > 2.0 * cleared.fast
        && cleared.sure())
    {
        return None;
    }
    Some(Match {
        confidence: grade(1.0 + cleared.difference(), 1.02, 1.3),
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
