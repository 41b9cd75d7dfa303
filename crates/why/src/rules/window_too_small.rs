//! Streams that are recognised, and read ahead with small windows.
//!
//! The size that counts is that of windows that go on ahead of a reader (async ones): they have reached the limit. The
//! rule demands that streams go on as before, so that a state which is lost, shared or turned off is not taken for
//! this.

use iowhy_stack::event::RaKind;

use super::{Figure, Match, Rule, grade, reads};
use crate::delta::{Delta, Unit};
use crate::digest::Digest;

pub(super) const RULE: Rule = Rule {
    name: "window-too-small",
    layer: "read-ahead",
    needs: super::WINDOWS,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "Sequential streams are read ahead in smaller windows than on the fast side.",
    why: "A window is one trip to the device. With smaller ones the fixed cost of a request, a seek between streams, \
          or the wait of a reader that has used up the window is paid more often.",
    events: "Windows go on ahead of the readers as before, but each has fewer pages; there are more requests, and \
             readers wait more often.",
    example: "read_ahead_kb 128 instead of 512 under three parallel readers on a disk (2018).",
    change: "Raise read_ahead_kb until the device is kept busy: the time of a request times the rate of the device.",
    refute: "With the limit of the fast side the difference stays.",
    since: "Every kernel.",
    consequences: &[],
    switches: &[super::Switch::Other("read_ahead_kb"), super::Switch::Queue("read_ahead_kb")],
    find,
};

fn ahead(digest: &Digest) -> f64 {
    reads::share(reads::pages(digest, &[RaKind::Async]), reads::windows(digest, &[RaKind::Async]))
}

/// Mappings: windows of all kinds, and how often a page of them is waited for.
fn of_faults(delta: &Delta<'_>) -> Option<Match> {
    const ALL: [RaKind; 4] = [RaKind::Sync, RaKind::Async, RaKind::Around, RaKind::Exec];
    let size = delta.of(|d| reads::share(reads::pages(d, &ALL), reads::windows(d, &ALL)));
    let waits = reads::waits(delta);
    let some = delta.of(|d| reads::pages(d, &ALL) as f64);
    if !size.fell(1.3) || !waits.rose(1.3) || some.slow < 16.0 || !(0.4..2.5).contains(&some.ratio()) {
        return None;
    }
    Some(Match {
        confidence: grade(1.0 / size.ratio(), 1.3, 2.0),
        share_ns: None,
        claim: format!(
            "faults are served by windows of {:.0} pages, against {:.0}; a page is waited for {:.3} times, \
             against {:.3}",
            size.slow, size.fast, waits.slow, waits.fast
        ),
        evidence: vec![
            Figure::new("pages in a window", size, Unit::Pages),
            Figure::new("waits for each page", waits, Unit::Ratio),
        ],
    })
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    if !reads::equal(delta) {
        return None;
    }
    if reads::faults(delta) {
        return of_faults(delta);
    }
    let size = delta.of(ahead);
    let streams = delta.of(|d| reads::share(reads::pages(d, &[RaKind::Async]), reads::all_pages(d)));
    let sequential = delta.of(|d| reads::share(d.workload.sequential[0], d.workload.calls[0]));
    let requests = delta.per_operation(|d| d.bios.count[0] as f64);
    let waits = reads::waits(delta);
    // A few windows ahead of chance neighbours are not a stream.
    let flows = streams.slow > 0.3 && streams.fast > 0.3 && sequential.slow > 0.5;
    let lost = reads::restarts(delta).rose_by(0.05);
    if !(size.fell(1.3) && flows && !lost && (requests.rose(1.1) || waits.rose(1.1))) {
        return None;
    }
    Some(Match {
        confidence: grade(1.0 / size.ratio(), 1.3, 2.0),
        share_ns: None,
        claim: format!(
            "streams are read ahead in windows of {:.0} pages, against {:.0}; a call waits {:.3} times, against {:.3}",
            size.slow, size.fast, waits.slow, waits.fast
        ),
        evidence: vec![
            Figure::new("pages in a window that goes on", size, Unit::Pages),
            Figure::new("read bios for each call", requests, Unit::Ratio),
            Figure::new("waits for each call", waits, Unit::Ratio),
        ],
    })
}
