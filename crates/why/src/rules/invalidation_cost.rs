//! Direct writes over pages that the workload's own buffered calls keep in the page cache.
//!
//! The price is the CPU time of a direct write before its first bio: there the look-up and the dropping of pages lie.
//! It is this rule's business if such writes are there and take longer before their bios, while the buffered reads of
//! the same run do not take longer on the CPU (then it would be the machine). Known limit: a second look-up after the
//! transfer is not seen apart.

use super::{Figure, Match, Rule, grade};
use crate::delta::{Delta, Unit};
use crate::digest::Digest;

pub(super) const RULE: Rule = Rule {
    name: "invalidation-cost",
    layer: "page cache",
    needs: super::CALLS_AND_PAGES,
    owns: super::Owns::Code,
    single: super::Single::Counts,
    what: "Direct writes look for and drop the pages that the workload's own buffered calls keep in the page cache.",
    why: "Before and after its transfer a direct write writes back and drops the cached pages of its range. The \
          look-up is paid as long as the file has any page in the cache, the dropping for each page in the range.",
    events: "Direct calls on files with cached pages take longer before their first bio; pages are dropped; the bios \
             and the buffered calls are as before.",
    example: "A database that writes with O_DIRECT while a backup reads the same files through the page cache.",
    change: "Do not mix both kinds of calls on one file: open it with O_DIRECT everywhere, or nowhere; drop the pages \
             that a backup has read (POSIX_FADV_DONTNEED).",
    refute: "With buffered calls to other files (or without them) direct writes take as long before their first bio.",
    since: "Every kernel with direct I/O; look-ups end with the range since 4.20.",
    consequences: &["cpu-bound-submission"],
    switches: &[super::Switch::OtherKind("direct."), super::Switch::Other("direct"), super::Switch::DropPages],
    find,
    cost: None,
};

/// Share of direct writes over own pages: fewer hardly move the mean of all.
const MANY: f64 = 0.1;
/// Ratio of these shares: where fewer writes meet pages, pages do not explain longer times.
const KEPT: f64 = 0.9;
/// Growth of a time in code that counts: less may come from the machine.
const LONGER: f64 = 1.2;
/// Part of the whole difference: a smaller one is not worth a finding.
const LEAST_PART: f64 = 0.05;
/// Ratios of times before the first bio, half sure and sure.
const GRADE: (f64, f64) = (1.1, 2.0);

fn over_own(digest: &Digest) -> f64 {
    digest.cache.direct_over_own as f64 / (digest.workload.direct[1] + digest.workload.quiet[1]).max(1) as f64
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    let own = delta.of(over_own);
    // A device that takes bios without a trace has none before which time could pass.
    let before = delta.of(|digest| match digest.before_bio[1].count() {
        0 => digest.without_io[1].mean(),
        _ => digest.before_bio[1].mean(),
    });
    if own.slow < MANY || own.slow < own.fast * KEPT || !before.rose(LONGER) {
        return None;
    }
    let reads = delta.of(|digest| digest.without_io[0].median());
    if reads.rose(LONGER) {
        return None;
    }
    let writes = delta.per_operation(|digest| (digest.workload.direct[1] + digest.workload.quiet[1]) as f64);
    let slots = delta.of(|digest| f64::from(digest.time.slots.max(1)));
    let share = before.difference() * writes.slow / slots.slow;
    if share < LEAST_PART * delta.slower_by() {
        return None;
    }
    let dropped = delta.per_operation(|digest| digest.cache.dropped as f64);
    let claim = format!(
        "{:.0} % of the direct writes go to files that buffered calls of the workload keep in the page cache, and take \
         {:.1} us instead of {:.1} us before their first bio",
        100.0 * own.slow,
        before.slow / 1e3,
        before.fast / 1e3,
    );
    let evidence = vec![
        Figure::new("share of direct writes over the workload's own pages", own, Unit::Share),
        Figure::new("time of a write before its first bio", before, Unit::Ns),
        Figure::new("pages dropped for an operation", dropped, Unit::Pages),
    ];
    Some(Match { confidence: grade(before.ratio(), GRADE.0, GRADE.1), share_ns: Some(share), claim, evidence })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, spread};
    use super::RULE;

    /// A thousand direct writes, half of them over own pages, that take 1.5 us instead of 1 us before their bios.
    fn writes() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                d.workload.direct[1] = 1000;
                d.cache.direct_over_own = 500;
                d.without_io[0] = spread(1, 1000.0);
            });
            p.fast.before_bio[1] = spread(1, 1000.0);
            p.slow.before_bio[1] = spread(1, 1500.0);
        })
    }

    /// A device that takes bios without a trace.
    fn untraced(p: &mut Pair, slow: f64) {
        for (run, value) in [(&mut p.fast, 1000.0), (&mut p.slow, slow)] {
            run.before_bio[1] = spread(0, 0.0);
            run.without_io[1] = spread(1, value);
        }
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("MANY", |p, x| p.both(|d| d.cache.direct_over_own = x as u64), 100.0, 99.0),
            ("KEPT", |p, x| p.slow.cache.direct_over_own = x as u64, 450.0, 449.0),
            ("LONGER", |p, x| p.slow.before_bio[1] = spread(1, x), 1201.0, 1200.0),
            ("LONGER, without bios", untraced, 1201.0, 1200.0),
            ("LONGER, reads as well", |p, x| p.slow.without_io[0] = spread(1, x), 1200.0, 1201.0),
            ("LEAST_PART", |p, x| p.slow.workload.direct[1] = x as u64, 100.0, 99.0),
        ];
        hold(&RULE, writes, 0.7594, edges);
    }
}
