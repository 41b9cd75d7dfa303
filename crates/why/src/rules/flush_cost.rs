//! The drive's cache is flushed, and everybody waits for it.

use std::ops::Range;

use super::cost::{Cost, Facts, SEEN};
use super::{Figure, Match, Rule, Switch, grade, instead};
use crate::delta::{Delta, Unit};
use crate::digest::Spread;

pub(super) const RULE: Rule = Rule {
    name: "flush-cost",
    layer: "journal/writeback",
    needs: super::REQUESTS,
    owns: super::Owns::Writes,
    single: super::Single::Times,
    what: "Flushes of the drive's write cache (barriers) take the time.",
    why: "A flush is done when all that the drive has cached is on the medium; on a disk that is a seek and a \
          revolution or more, for each fsync.",
    events: "Commands without data at the device while a sync is in progress; their time in each sync is longer.",
    example: "ext3 on barriers by default since 3.1; a virtual disk whose host began to honour flushes.",
    change: "Fewer syncs (group commit), a drive with a protected cache; barriers off only if power cannot fail.",
    refute: "With barriers off, or the write cache off, the syncs take as long.",
    since: "Barriers since 2.6.9 (ordered), flushes and FUA since 2.6.37.",
    consequences: &["slice-idling", "journal-commit-per-fsync"],
    switches: &[
        Switch::Other("filesystem.barriers"),
        Switch::Other("write_cache"),
        Switch::OtherDevice,
        Switch::Queue("write_cache"),
    ],
    find,
    cost: Some(cost),
};

/// Syncs for an operation, slow over fast: a few dozen among random calls are never equally many.
const AS_OFTEN: Range<f64> = 0.75..1.33;
/// Growth of the time with flushes in progress.
const MORE: f64 = 1.2;
/// Part of the difference that this growth has to be.
const LEAST_PART: f64 = 0.1;
/// Growth of the time of a sync, where there were flushes before.
const LONGER: f64 = 1.05;
/// Growth of the time with flushes in progress, half sure and sure.
const GRADE: (f64, f64) = (1.1, 1.5);

fn find(delta: &Delta<'_>) -> Option<Match> {
    let syncs = delta.per_operation(|d| d.workload.calls[2] as f64);
    let flushing = delta.per_operation(|d| d.sync.flushing / f64::from(d.time.slots.max(1)));
    let each = delta.of(|d| d.sync.flushing / d.latency[2].count().max(1) as f64);
    let sync = delta.of(|d| d.latency[2].mean());
    let equal = AS_OFTEN.contains(&syncs.ratio());
    let count = delta.per_operation(|d| d.sync.flush.count() as f64);
    let new = count.fast == 0.0 && count.slow > 0.0;
    if !(syncs.slow > 0.0
        && equal
        && flushing.rose(MORE)
        && flushing.difference() > LEAST_PART * delta.slower_by()
        && (new || sync.rose(LONGER)))
    {
        return None;
    }
    Some(Match {
        confidence: grade(flushing.ratio(), GRADE.0, GRADE.1),
        share_ns: Some(flushing.difference()),
        claim: format!(
            "flushes of the drive's cache take {:.1} ms of the {:.1} ms of a sync (before {:.1} of {:.1})",
            each.slow / 1e6,
            sync.slow / 1e6,
            each.fast / 1e6,
            sync.fast / 1e6
        ),
        evidence: vec![
            Figure::new("time of flushes in a sync", each, Unit::Ns),
            Figure::new("time of a sync", sync, Unit::Ns),
            Figure::new("flush commands for an operation", count, Unit::Count),
        ],
    })
}

/// Flushes of a run that are worth a word.
const ENOUGH: u64 = 4;
/// Time of a flush that is long for a device without moving parts, ns, and against a write there.
const LONG: (f64, f64) = (5e6, 5.0);
/// Part of the cost that goes for certain: without a volatile cache the writes themselves take longer.
const LEAST_SAVED: f64 = 0.5;

pub(super) fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let sync = &facts.digest.sync;
    let each = sync.flush.mean();
    let (_, nr) = instead::own(facts, 1);
    let write = instead::times(facts, 1).map(Spread::sum).sum::<f64>() / nr.max(1.0);
    // On a disk that turns, every flush takes a turn or more.
    if facts.turns() != Some(false)
        || sync.flush.count() < ENOUGH
        || nr == 0.0
        || each < LONG.0
        || each < LONG.1 * write
    {
        return None;
    }
    Some(Cost {
        ns: sync.flushing / f64::from(facts.digest.time.slots.max(1)),
        bounds: [LEAST_SAVED, 1.0],
        confidence: SEEN,
        claim: format!(
            "a flush of the drive's write cache takes {:.1} ms, and a write {:.1} ms: each sync waits for that",
            each / 1e6,
            write / 1e6
        ),
        setting: "a drive whose cache is protected against power loss, or fewer syncs".to_owned(),
        evidence: vec![
            ("time of a flush", each, Unit::Ns),
            ("time of a write at the device", write, Unit::Ns),
            ("flushes for an operation", sync.flush.count() as f64 / facts.operations(), Unit::Ratio),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread};
    use super::RULE;

    /// A hundred syncs that take a tenth longer, and flushes that take 1.3 ms instead of 1 ms in all.
    fn longer() -> Pair {
        Pair::of(|p| {
            p.both(|d| d.workload.calls[2] = 100);
            (p.fast.latency[2], p.slow.latency[2]) = (spread(1, 1000.0), spread(1, 1100.0));
            (p.fast.sync.flushing, p.slow.sync.flushing) = (1e6, 1.3e6);
        })
    }

    /// Flushes where there were none, in syncs that take as long.
    fn new() -> Pair {
        let mut pair = longer();
        pair.fast.latency[2] = pair.slow.latency[2].clone();
        pair.slow.sync.flush = spread(1, 1000.0);
        pair
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("AS_OFTEN", |p, x| p.slow.workload.calls[2] = x as u64, 132.0, 133.0),
            ("AS_OFTEN, less", |p, x| p.slow.workload.calls[2] = x as u64, 75.0, 74.0),
            ("no syncs", |p, x| p.both(|d| d.workload.calls[2] = x as u64), 1.0, 0.0),
            ("MORE", |p, x| p.slow.sync.flushing = x, 1_200_001.0, 1_200_000.0),
            ("LEAST_PART", |p, x| (p.fast.sync.flushing, p.slow.sync.flushing) = (0.0, x), 100_001.0, 100_000.0),
            ("LONGER", |p, x| p.slow.latency[2] = spread(1, x), 1051.0, 1050.0),
        ];
        hold(&RULE, longer, 0.769, edges);
        let edges: &[Edge] = &[
            ("flushes", |p, x| p.slow.sync.flush = spread(x as u64, 1000.0), 1.0, 0.0),
            ("no flushes before", |p, x| p.fast.sync.flush = spread(x as u64, 1000.0), 0.0, 1.0),
        ];
        hold(&RULE, new, 0.769, edges);
    }

    #[test]
    fn costs() {
        let slow = || {
            Alone::of(|a| {
                a.digest.elapsed = iowhy_stack::units::Nanos(200_000_000);
                a.set("recording", "disk", "vdb");
                a.set("vdb", "rotational", "0");
                a.requests(1, 10, 8, 1e6);
                a.digest.sync.flush = spread(10, 1e7);
                a.digest.sync.flushing = 1e8;
            })
        };
        let turns: fn(&mut Alone, f64) = |a, x| a.set("vdb", "rotational", &x.to_string());
        let edges: &[AloneEdge] = &[
            ("a disk that turns", turns, 0.0, 1.0),
            ("ENOUGH", |a, x| a.digest.sync.flush = spread(x as u64, 1e7), 4.0, 3.0),
            ("LONG", |a, x| a.digest.sync.flush = spread(10, x), 5.2e6, 4.8e6),
            ("LONG, against a write", |a, x| a.requests(1, 10, 8, x), 1.9e7, 2.1e7),
        ];
        hold_cost(&RULE, slow, (50.0, 0.8), edges);
        let found = slow().ask(&RULE).expect("a cost");
        assert!((found.bounds_pct[0] - 25.0).abs() < 0.1, "{}: {found:?}", "LEAST_SAVED");
    }
}
