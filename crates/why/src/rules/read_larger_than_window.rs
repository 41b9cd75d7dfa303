//! Calls that are larger than what one window or request may have, read in pieces that are waited for.
//!
//! Counted are windows for each read call, and their size against that of the call. Windows that go on ahead of a
//! stream are not waited for, and count only if calls are not sequential: then they lie within a call. Pieces of one
//! page are read-ahead that is off or closed, and not this.

use iowhy_stack::event::RaKind;

use super::{Figure, Match, Rule, grade, reads};
use crate::delta::{Delta, Unit};
use crate::digest::Digest;

pub(super) const RULE: Rule = Rule {
    name: "read-larger-than-window",
    layer: "read-ahead",
    needs: super::WINDOWS,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "A read call is larger than the largest window or request, and is read in pieces, one after the other.",
    why: "A read without read-ahead goes in pieces of at most the larger of read_ahead_kb and max_sectors_kb. The next \
          piece is sent when the last has arrived, so that the device has one small request where it could have had \
          several.",
    events: "Several forced or sync windows for one call, each smaller than the call, with a wait between them.",
    example: "Random reads of 1 MiB with max_sectors_kb=64: eight pieces a call instead of two.",
    change: "Raise read_ahead_kb and max_sectors_kb to the size of the calls, or read with O_DIRECT.",
    refute: "With the limits of the fast side the difference stays.",
    since: "Every kernel since 2.6.7; calls may exceed the window up to the largest request since 4.10.",
    consequences: &[],
    switches: &[
        super::Switch::Other("max_sectors_kb"),
        super::Switch::Other("read_ahead_kb"),
        super::Switch::Queue("max_sectors_kb"),
        super::Switch::Queue("read_ahead_kb"),
    ],
    find,
};

/// Kinds of windows that are pieces of a call.
fn kinds(digest: &Digest) -> &'static [RaKind] {
    let sequential = reads::share(digest.workload.sequential[0], digest.workload.calls[0]);
    if sequential > 0.5 { &[RaKind::Sync, RaKind::Force] } else { &[RaKind::Sync, RaKind::Force, RaKind::Async] }
}

fn size(digest: &Digest) -> f64 {
    reads::share(reads::pages(digest, kinds(digest)), reads::windows(digest, kinds(digest)))
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    if !reads::equal(delta) {
        return None;
    }
    let size = delta.of(size);
    let call = delta.of(reads::call_pages);
    let pieces = delta.of(|d| reads::share(reads::windows(d, kinds(d)), d.workload.calls[0]));
    let blocking = delta.of(|d| reads::share(reads::pages(d, kinds(d)), reads::all_pages(d)));
    let waits = reads::waits(delta);
    let bios = delta.per_operation(|d| d.bios.count[0] as f64);
    let smaller = size.fell(1.3) && size.slow < 0.75 * call.slow && size.slow > 1.5;
    if !(pieces.rose(1.3) && smaller && pieces.slow > 1.2 && blocking.slow > 0.5 && bios.rose(1.1)) {
        return None;
    }
    Some(Match {
        confidence: grade(pieces.ratio(), 1.3, 2.0),
        share_ns: None,
        claim: format!(
            "a read of {:.0} pages comes in {:.1} pieces, against {:.1}",
            call.slow, pieces.slow, pieces.fast
        ),
        evidence: vec![
            Figure::new("windows for each call", pieces, Unit::Count),
            Figure::new("pages in such a window", size, Unit::Pages),
            Figure::new("waits for each call", waits, Unit::Ratio),
        ],
    })
}
