//! Shared parts of the rules about reads through the page cache: equal calls, and how pages come in.
//!
//! Read-ahead and the cache are judged by what they make of equal reads: of the same size, as often sequential, as
//! often through the cache. How many are in progress, or how long the run is, does not matter to that.

use crate::delta::{Contrast, Delta};
use crate::digest::{Digest, Layer};
use iowhy_stack::event::RaKind;
use iowhy_stack::units::PAGE_BYTES;
pub(super) use iowhy_stats::figure::share;

/// Pages that a read call asks for.
pub(super) fn call_pages(digest: &Digest) -> f64 {
    share(digest.workload.bytes[0], digest.workload.calls[0]) / PAGE_BYTES as f64
}

/// The calls of a recording are mostly page faults, whose number and order follow from what faults before them mapped:
/// a program does not choose them.
pub(super) fn faults(delta: &Delta<'_>) -> bool {
    let of_faults = of_faults(delta);
    delta.live() && of_faults.fast.max(of_faults.slow) > MOST_FAULTS
}

/// Part of the calls that are page faults, beyond which they are not a choice of the job.
pub(super) const MOST_FAULTS: f64 = 0.3;

/// Part of the calls that are page faults.
pub(super) fn of_faults(delta: &Delta<'_>) -> Contrast {
    delta.of(|d| share(d.workload.mapped, d.workload.calls[0] + d.workload.calls[1]))
}

/// Read-ahead is asked the same on both sides: sizes within a tenth, as often sequential, through the cache.
pub(super) fn equal(delta: &Delta<'_>) -> bool {
    let size = delta.of(call_pages);
    let sequential = delta.of(|d| share(d.workload.sequential[0], d.workload.calls[0]));
    let direct = delta.of(|d| share(d.workload.direct[0], d.workload.calls[0]));
    let reads = delta.of(|d| share(d.workload.calls[0], d.workload.calls[0] + d.workload.calls[1]));
    let close = |contrast: Contrast| contrast.difference().abs() < 0.1;
    size.fast > 0.0
        && ((0.91..=1.1).contains(&size.ratio()) && close(sequential) || faults(delta))
        && close(direct)
        && direct.slow < 0.9
        && close(reads)
}

/// Pages in windows of these kinds.
pub(super) fn pages(digest: &Digest, kinds: &[RaKind]) -> u64 {
    kinds.iter().map(|kind| digest.windows.pages[*kind as usize]).sum()
}

/// Windows of these kinds.
pub(super) fn windows(digest: &Digest, kinds: &[RaKind]) -> u64 {
    kinds.iter().map(|kind| digest.windows.count[*kind as usize]).sum()
}

/// Pages in all windows.
pub(super) fn all_pages(digest: &Digest) -> u64 {
    digest.windows.pages.iter().sum()
}

/// How often an operation waits for I/O.
pub(super) fn waits(delta: &Delta<'_>) -> Contrast {
    if faults(delta) {
        // Who maps more pages with a fault has fewer faults: pages are what both have as many of.
        return delta.of(|d| share(d.time.waits, d.cache.added));
    }
    delta.per_operation(|d| d.time.waits as f64)
}

/// Windows of sequential calls that had to restart instead of going on, among all windows of streams.
pub(super) fn restarts(delta: &Delta<'_>) -> Contrast {
    delta.of(|d| share(d.windows.sequential_sizes.count(), windows(d, &[RaKind::Sync, RaKind::Async])))
}

/// Most of the pages are those of page faults.
pub(super) fn mapped(digest: &Digest) -> bool {
    digest.workload.mapped > 0
}

/// Time of a run with a call in progress, ns: a recorded command has a start and an end besides.
pub(super) fn in_calls(d: &Digest) -> f64 {
    let besides = if d.wall.is_some() { d.time.of(Layer::Application) + d.time.of(Layer::Pause) } else { 0.0 };
    (d.elapsed.0 as f64 - besides / f64::from(d.time.slots.max(1))).max(0.0)
}
