//! Pages that a page fault of a mapping reads and maps: too many, or too few.
//!
//! Two signs: windows around faults have another size, and either more of their pages are never used or faults wait
//! more often; or as many pages come in, but more faults find their page in the cache unmapped (fault-around).

use iowhy_stack::event::RaKind;

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
};

const AROUND: [RaKind; 3] = [RaKind::Around, RaKind::Exec, RaKind::Huge];

fn unused(digest: &Digest) -> f64 {
    digest.windows.ahead.saturating_sub(digest.windows.used) as f64
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    let mapped = delta.of(|d| reads::share(d.workload.mapped, d.operations()));
    if !reads::equal(delta) || mapped.fast.max(mapped.slow) == 0.0 {
        return None;
    }
    let around = delta.of(|d| reads::share(reads::pages(d, &AROUND), reads::all_pages(d)));
    let size = delta.of(|d| reads::share(reads::pages(d, &AROUND), reads::windows(d, &AROUND)));
    let wasted = delta.per_operation(unused);
    let waits = reads::waits(delta);
    let minor = delta.per_operation(|d| d.cache.faults[0] as f64);
    let added = delta.per_operation(|d| d.cache.added as f64);
    let by_faults = around.slow > 0.3;
    let claim = if by_faults && size.rose(1.3) && wasted.rose(1.1) {
        format!("faults read {:.0} pages around them, against {:.0}, and most are never used", size.slow, size.fast)
    } else if by_faults && around.fast > 0.3 && size.fell(1.3) && waits.rose(1.1) {
        format!("faults read {:.0} pages around them, against {:.0}, and more of them wait", size.slow, size.fast)
    } else if minor.rose(1.3) && minor.difference() > 0.02 && added.ratio() < 1.1 && !waits.rose(1.1) {
        format!(
            "{:.3} touches of a hundred fault on cached pages, against {:.3}",
            100.0 * minor.slow,
            100.0 * minor.fast
        )
    } else {
        return None;
    };
    Some(Match {
        confidence: grade(size.ratio().max(1.0 / size.ratio()).max(minor.ratio()), 1.3, 2.0),
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
