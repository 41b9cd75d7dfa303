//! The drive's cache is flushed, and everybody waits for it.

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};

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
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    let syncs = delta.per_operation(|d| d.workload.calls[2] as f64);
    let flushing = delta.per_operation(|d| d.sync.flushing / f64::from(d.time.slots.max(1)));
    let each = delta.of(|d| d.sync.flushing / d.latency[2].count().max(1) as f64);
    let sync = delta.of(|d| d.latency[2].mean());
    // A few dozen syncs among random calls are never equally many.
    let equal = (0.75..1.33).contains(&syncs.ratio());
    let count = delta.per_operation(|d| d.sync.flush.count() as f64);
    let new = count.fast == 0.0 && count.slow > 0.0;
    if !(syncs.slow > 0.0
        && equal
        && flushing.rose(1.2)
        && flushing.difference() > 0.1 * delta.slower_by()
        && (new || sync.rose(1.05)))
    {
        return None;
    }
    Some(Match {
        confidence: grade(flushing.ratio(), 1.1, 1.5),
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
