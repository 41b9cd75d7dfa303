//! Pages that a page fault of a mapping reads and maps: too many, or too few.
//!
//! Two signs: windows around faults have another size, and either more of their pages are never used or faults wait
//! more often; or as many pages come in, but more faults find their page in the cache unmapped (fault-around).

use super::reads::AROUND;
use super::{Figure, Match, Rule, grade, reads};
use crate::delta::{Delta, Unit};
use crate::digest::Digest;

pub(super) const RULE: Rule = Rule {
    name: "mmap-read-around",
    layer: "read-ahead",
    needs: super::WINDOWS,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "A fault in a mapped file reads or maps too many pages around it, or too few.",
    why: "A fault knows one address, no size. The kernel reads read_ahead_kb around it: far too much for random \
          touches, far too little for dense ones. Fault-around maps cached pages nearby; without it each faults.",
    events: "Windows of the kind `around` of another size, with more untouched pages or more faults that wait; or more \
             minor faults for the same pages.",
    example: "read_ahead_kb=4096 instead of 128 under random touches of a mapped file of several GB.",
    change: "MADV_RANDOM for random touches, MADV_SEQUENTIAL or MADV_POPULATE_READ for dense ones, or another \
             read_ahead_kb.",
    refute: "With the limit of the fast side the difference stays.",
    since: "Every kernel; fault-around since 3.15.",
    consequences: &["window-too-large", "window-too-small"],
    switches: &[
        super::Switch::Other("read_ahead_kb"),
        super::Switch::OtherKind("fault."),
        super::Switch::Other("fault"),
        super::Switch::Queue("read_ahead_kb"),
    ],
    find,
    cost: Some(reads::cost_of_faults),
};

/// Share of pages from windows around faults: with fewer, other reads decide.
const BY_FAULTS: f64 = 0.3;
/// Ratio of window sizes, or of faults on cached pages: the ends of a file change sizes by less.
const OTHER: f64 = 1.3;
/// Growth of wasted pages, waits or pages read: a tenth, up to which equal runs are alike.
const MORE: f64 = 1.1;
/// Additional faults on cached pages per touch: a minor fault is cheap next to a read.
const MINOR: f64 = 0.02;
/// Ratios of window sizes or of faults, half sure and sure.
const GRADE: (f64, f64) = (1.3, 2.0);

fn unused(digest: &Digest) -> f64 {
    digest.windows.ahead.saturating_sub(digest.windows.used) as f64
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    let mapped = delta.of(|d| reads::share(d.workload.mapped, d.operations()));
    if !reads::equal(delta) || mapped.fast.max(mapped.slow) == 0.0 {
        return None;
    }
    let around = delta.of(|d| reads::share(reads::pages(d, AROUND), reads::all_pages(d)));
    let size = delta.of(|d| reads::share(reads::pages(d, AROUND), reads::windows(d, AROUND)));
    let wasted = delta.per_operation(unused);
    let waits = reads::waits(delta);
    let minor = delta.per_operation(|d| d.cache.faults[0] as f64);
    let added = delta.per_operation(|d| d.cache.added as f64);
    let by_faults = around.slow > BY_FAULTS;
    let claim = if by_faults && size.rose(OTHER) && wasted.rose(MORE) {
        format!("faults read {:.0} pages around them, against {:.0}, and most are never used", size.slow, size.fast)
    } else if by_faults && around.fast > BY_FAULTS && size.fell(OTHER) && waits.rose(MORE) {
        format!("faults read {:.0} pages around them, against {:.0}, and more of them wait", size.slow, size.fast)
    } else if minor.rose(OTHER) && minor.difference() > MINOR && added.ratio() < MORE && !waits.rose(MORE) {
        format!(
            "{:.3} touches of a hundred fault on cached pages, against {:.3}",
            100.0 * minor.slow,
            100.0 * minor.fast
        )
    } else {
        return None;
    };
    Some(Match {
        confidence: grade(size.ratio().max(1.0 / size.ratio()).max(minor.ratio()), GRADE.0, GRADE.1),
        share_ns: None,
        claim,
        evidence: vec![
            Figure::new("pages in a window around a fault", size, Unit::Pages),
            Figure::new("pages read in vain, for each touch", wasted, Unit::Pages),
            Figure::new("faults on cached pages, for each touch", minor, Unit::Ratio),
            Figure::new("waits for each touch", waits, Unit::Ratio),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, spread};
    use super::RULE;
    use iowhy_stack::event::RaKind;

    /// Touches of a mapping, with a hundred windows of this many pages in all around them.
    fn touches(fast: u64, slow: u64) -> Pair {
        Pair::of(|p| {
            for (d, pages) in [(&mut p.fast, fast), (&mut p.slow, slow)] {
                d.workload.mapped = 10;
                d.windows.count[RaKind::Around as usize] = 100;
                around(d, pages as f64);
            }
        })
    }

    fn around(d: &mut crate::digest::Digest, pages: f64) {
        d.windows.pages[RaKind::Around as usize] = pages as u64;
    }

    /// Half as many pages more in a window, and twice as many in vain.
    fn wasted() -> Pair {
        let mut pair = touches(1000, 1500);
        (pair.fast.windows.ahead, pair.slow.windows.ahead) = (1000, 2000);
        pair
    }

    /// A third of the pages less in a window, and twice as many waits.
    fn waits() -> Pair {
        let mut pair = touches(1500, 1000);
        (pair.fast.time.waits, pair.slow.time.waits) = (1000, 2000);
        pair
    }

    /// Equal windows, and ten thousand touches of which one in ten, then 15 %, faults on a cached page.
    fn minor() -> Pair {
        let mut pair = touches(1000, 1000);
        pair.both(|d| {
            d.latency[0] = spread(10_000, 10.0);
            d.cache.added = 10_000;
            d.time.waits = 10_000;
        });
        (pair.fast.cache.faults[0], pair.slow.cache.faults[0]) = (1000, 1500);
        pair
    }

    #[test]
    fn limits() {
        const SYNC: usize = RaKind::Sync as usize;
        let edges: &[Edge] = &[
            ("mappings", |p, x| (p.fast.workload.mapped, p.slow.workload.mapped) = (0, x as u64), 1.0, 0.0),
            ("equal reads", |p, x| p.slow.workload.sequential[0] = x as u64, 0.0, 10.0),
            ("BY_FAULTS", |p, x| p.slow.windows.pages[SYNC] = x as u64, 3499.0, 3500.0),
            ("OTHER", |p, x| around(&mut p.slow, x), 1301.0, 1300.0),
            ("MORE", |p, x| p.slow.windows.ahead = x as u64, 1101.0, 1100.0),
            ("MORE, used", |p, x| p.slow.windows.used = x as u64, 899.0, 900.0),
        ];
        hold(&RULE, wasted, 0.6661, edges);
        let edges: &[Edge] = &[
            ("BY_FAULTS, slow", |p, x| p.slow.windows.pages[SYNC] = x as u64, 2333.0, 2334.0),
            ("BY_FAULTS, fast", |p, x| p.fast.windows.pages[SYNC] = x as u64, 3499.0, 3500.0),
            ("OTHER", |p, x| around(&mut p.fast, x), 1301.0, 1300.0),
            ("MORE", |p, x| p.slow.time.waits = x as u64, 1101.0, 1100.0),
        ];
        hold(&RULE, waits, 0.6661, edges);
        let edges: &[Edge] = &[
            ("OTHER", |p, x| p.slow.cache.faults[0] = x as u64, 1301.0, 1300.0),
            ("MINOR", |p, x| (p.fast.cache.faults[0], p.slow.cache.faults[0]) = (0, x as u64), 201.0, 200.0),
            ("MORE, pages", |p, x| p.slow.cache.added = x as u64, 10_999.0, 11_000.0),
            ("MORE, waits", |p, x| p.slow.time.waits = x as u64, 11_000.0, 11_001.0),
        ];
        hold(&RULE, minor, 0.6661, edges);
    }
}
