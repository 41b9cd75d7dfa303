//! The difference split over layers, so that the parts add up to the whole.
//!
//! The time for an operation is divided among [`Layer`]s by what its calls wait for at each moment. Of the time that
//! they
//! wait for I/O, the part that comes of waiting more often is taken out and counted for the layer that makes it so, at
//! the price that a wait has on the fast side:
//!
//! ```text
//! page cache   more pages have to be read for an operation: (pages slow / pages fast - 1) x waits fast x price fast
//! read-ahead   beyond that, calls wait more often for the pages they read: a read comes in pieces, nothing is ahead
//!              (where most bytes come through the page cache: direct calls have no read-ahead)
//! merging      the same, if bios are as large as before and it is the requests that are not
//! plug, elevator, device   the rest: each of these waits takes longer there
//! ```
//! In the table the first three have no time of their own on the fast side. All columns add up to the time for an
//! operation. Fewer waits on the slow side are not a layer's gain; they stay where they are.

use iowhy_stack::units::{PAGE_BYTES, SECTOR_BYTES};

use super::Delta;
use super::digest::{Digest, LAYERS, WAITS};

/// A layer's part.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct LayerDelta {
    /// Its name.
    pub layer: &'static str,
    /// Of the base, ns for an operation.
    pub a: f64,
    /// Of the candidate.
    pub b: f64,
}

impl LayerDelta {
    /// B minus A, ns for an operation.
    pub fn delta(&self) -> f64 {
        self.b - self.a
    }
}

/// A layer's part as a step on the way from the time of A to that of B, ns.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Step {
    /// Whose part it is.
    pub of: LayerDelta,
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
}

/// Parts smaller than this are rounding, ns.
const LEAST_NS: f64 = 0.5;

/// The layers that have a part, one after the other, from the time of A on; the part of no layer comes last.
pub fn steps(layers: &[LayerDelta], [a, b]: [f64; 2]) -> Vec<Step> {
    let mut at = a;
    let mut step = |of: LayerDelta| {
        let from = at;
        at += of.delta();
        Step { of, from, to: at }
    };
    let told = layers.iter().filter(|of| of.a.abs() + of.b.abs() >= LEAST_NS);
    let mut steps: Vec<Step> = told.map(|of| step(*of)).collect();
    let rest = b - steps.last().map_or(a, |last| last.to);
    if rest.abs() > 0.0005 * a.max(b) {
        steps.push(step(LayerDelta { layer: "not in a layer", a: 0.0, b: rest }));
    }
    steps
}

/// Share of the bytes read that comes through the page cache, from which on calls wait for read-ahead.
const CACHED: f64 = 0.5;

/// The split from base to candidate.
pub fn split(delta: &Delta<'_>) -> Vec<LayerDelta> {
    let times = LAYERS.iter().map(|(layer, name)| (*layer, *name, delta.time(|time| time.of(*layer))));
    let times: Vec<_> = times.collect();
    let slots = |digest: &Digest| f64::from(digest.time.slots.max(1));
    let waits = delta.per_operation(|digest| digest.time.waits as f64 / slots(digest));
    let pages = delta.per_operation(|digest| digest.cache.added as f64);
    let in_io = delta.time(|time| WAITS.iter().map(|layer| time.of(*layer)).sum());
    let slower = in_io.difference().max(0.0);
    let price = if waits.fast > 0.0 { in_io.fast / waits.fast } else { 0.0 };
    let more = (waits.difference() * price).clamp(0.0, slower);
    // Pages that an operation reads more than on the fast side.
    let more_pages = if pages.fast > 0.0 { (pages.ratio() - 1.0).max(0.0) } else { 0.0 };
    let of_cache = (more_pages * in_io.fast).clamp(0.0, more);
    let bio = delta.of(|digest| digest.bios.sizes[0].mean());
    let request = delta.of(|digest| digest.commands.sizes[0].mean());
    let merging = (bio.ratio() - 1.0).abs() < 0.1 && request.ratio() < 0.9;
    // Nothing is read ahead of direct calls: those that wait more often do so where they wait.
    let sectors = delta.per_operation(|digest| digest.bios.sizes[0].sum());
    let cached = pages.slow > 0.0 && pages.slow * PAGE_BYTES as f64 >= CACHED * sectors.slow * SECTOR_BYTES as f64;
    let more = if merging || cached { more } else { of_cache };
    let in_pieces = more - of_cache;
    let [of_readahead, of_merging] = if merging { [0.0, in_pieces] } else { [in_pieces, 0.0] };
    let part = |layer, slow: f64| {
        let [a, b] = if delta.a_is_slow { [slow, 0.0] } else { [0.0, slow] };
        LayerDelta { layer, a, b }
    };
    let mut layers = Vec::new();
    for (layer, name, time) in &times {
        if WAITS.contains(layer) {
            continue;
        }
        let [a, b] = delta.oriented(time);
        layers.push(LayerDelta { layer: name, a, b });
    }
    let journal = layers.len() - 1;
    layers.insert(journal, part("merging", of_merging));
    layers.insert(journal, part("read-ahead", of_readahead));
    layers.insert(journal, part("page cache", of_cache));
    for (layer, name, time) in &times {
        if !WAITS.contains(layer) {
            continue;
        }
        // The part taken out above is taken from each in proportion to its time on the slow side.
        let taken = if in_io.slow > 0.0 { more * time.slow / in_io.slow } else { 0.0 };
        let mut own = *time;
        own.slow -= taken;
        let [a, b] = delta.oriented(&own);
        layers.push(LayerDelta { layer: name, a, b });
    }
    layers
}

#[cfg(test)]
mod tests {
    use iowhy_stack::units::Nanos;

    use super::*;
    use crate::Side;
    use crate::digest::Layer;

    #[test]
    fn direct_calls_have_no_read_ahead() {
        // A hundred operations of 4 KiB; the slow side waits four times as often, and adds some pages.
        let side = |waits: u64, pages: u64| {
            let mut run = Digest { elapsed: Nanos(waits * 1_000_000), ..Digest::default() };
            run.workload.calls[0] = 100;
            (run.time.slots, run.time.waits, run.cache.added) = (1, waits, pages);
            (0..100).for_each(|_| run.bios.sizes[0].add(8));
            run.time.ns[0][Layer::Device as usize] = waits as f64 * 1e6;
            Side { runs: vec![run], ..Side::default() }
        };
        for (pages, ahead) in [(0, false), (49, false), (50, true), (100, true)] {
            let (a, b) = (side(100, pages), side(400, pages));
            let layers = split(&Delta::new(&a, &b));
            let of = |name: &str| layers.iter().find(|of| of.layer == name).map_or(0.0, |of| of.b.round());
            assert_eq!(
                (of("read-ahead") > 0.0, of("device") > of("read-ahead")),
                (ahead, !ahead),
                "{pages}: {layers:?}"
            );
        }
    }

    #[test]
    fn steps_lead_from_a_to_b() {
        let layer = |layer, a, b| LayerDelta { layer, a, b };
        let layers = [layer("cpu", 100.0, 150.0), layer("plug", 0.0, 0.3), layer("device", 900.0, 700.0)];
        for (b, rest) in [(850.0, None), (900.0, Some(50.0)), (800.0, Some(-50.0)), (850.4, None)] {
            let steps = steps(&layers, [1000.0, b]);
            let spans: Vec<(f64, f64)> = steps.iter().take(2).map(|step| (step.from, step.to)).collect();
            assert_eq!(spans, [(1000.0, 1050.0), (1050.0, 850.0)]);
            assert_eq!(
                steps.get(2).map(|step| (step.of.layer, step.to - step.from)),
                rest.map(|ns| ("not in a layer", ns))
            );
        }
        assert_eq!(steps(&[], [0.0, 0.0]), []);
    }
}
