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
    cost: None,
};

/// Share of sequential calls from which on async windows go on ahead of a stream, and are not waited for.
const STREAMS: f64 = 0.5;
/// Factor by which windows are smaller: limits are changed by factors of two, and a mean over odd ends is below that.
const SMALLER: f64 = 1.3;
/// Part of its call that a window has at most: beyond it the rest is an odd end and not a second piece.
const PART_OF_CALL: f64 = 0.75;
/// Pages that a window has more than: single pages are read-ahead that is off or closed.
const SINGLE_PAGE: f64 = 1.5;
/// Factor by which the pieces of a call have grown, like the windows have shrunk.
const MORE_PIECES: f64 = 1.3;
/// Pieces of a call from which on it comes in pieces: a few calls that begin inside a window have two, anyway.
const PIECES: f64 = 1.2;
/// Share of all pages that come in such windows: with less of them, other windows decide.
const WAITED_FOR: f64 = 0.5;
/// Factor by which read bios have grown: pieces that share a bio cost no trip to the device.
const MORE_BIOS: f64 = 1.1;
/// Factors by which the pieces of a call have grown, half sure and sure: twice as many is a limit cut in half.
const GRADE: (f64, f64) = (1.3, 2.0);

/// Kinds of windows that are pieces of a call.
fn kinds(digest: &Digest) -> &'static [RaKind] {
    let sequential = reads::share(digest.workload.sequential[0], digest.workload.calls[0]);
    if sequential > STREAMS { &[RaKind::Sync, RaKind::Force] } else { &[RaKind::Sync, RaKind::Force, RaKind::Async] }
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
    let smaller = size.fell(SMALLER) && size.slow < PART_OF_CALL * call.slow && size.slow > SINGLE_PAGE;
    let more = pieces.rose(MORE_PIECES) && pieces.slow > PIECES && bios.rose(MORE_BIOS);
    if !(more && smaller && blocking.slow > WAITED_FOR) {
        return None;
    }
    Some(Match {
        confidence: grade(pieces.ratio(), GRADE.0, GRADE.1),
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

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, windows};
    use super::RULE;
    use iowhy_stack::event::RaKind::{Around, Async, Force};
    use iowhy_stack::units::PAGE_BYTES;

    /// 1000 reads of 16 pages: in one piece each on the fast side, in 1.5 pieces of 10 pages on the slow one.
    fn pieces() -> Pair {
        Pair::of(|p| {
            p.both(|d| (d.workload.calls[0], d.workload.bytes[0]) = (1000, 16_000 * PAGE_BYTES));
            windows(&mut p.fast, Force, 1000.0, 16_000.0);
            windows(&mut p.slow, Force, 1500.0, 15_000.0);
            (p.fast.bios.count[0], p.slow.bios.count[0]) = (1000, 1500);
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            (
                "STREAMS",
                |p, x| {
                    p.both(|d| d.workload.sequential[0] = x as u64);
                    windows(&mut p.slow, Force, 0.0, 0.0);
                    windows(&mut p.slow, Async, 1500.0, 15_000.0);
                },
                500.0,
                501.0,
            ),
            ("SMALLER", |p, x| windows(&mut p.fast, Force, 1000.0, x), 13_001.0, 13_000.0),
            ("PART_OF_CALL", |p, x| windows(&mut p.slow, Force, 1500.0, x), 17_999.0, 18_000.0),
            ("SINGLE_PAGE", |p, x| windows(&mut p.slow, Force, 1500.0, x), 2251.0, 2250.0),
            ("MORE_PIECES", |p, x| windows(&mut p.slow, Force, x, 10.0 * x), 1301.0, 1300.0),
            (
                "PIECES",
                |p, x| {
                    windows(&mut p.fast, Force, 900.0, 14_400.0);
                    windows(&mut p.slow, Force, x, 10.0 * x);
                },
                1201.0,
                1200.0,
            ),
            ("WAITED_FOR", |p, x| windows(&mut p.slow, Around, 1.0, x), 14_999.0, 15_000.0),
            ("MORE_BIOS", |p, x| p.slow.bios.count[0] = x as u64, 1101.0, 1100.0),
            ("equal reads", |p, x| p.slow.workload.direct[0] = x as u64, 99.0, 100.0),
        ];
        hold(&RULE, pieces, 0.6661, edges);
    }
}
