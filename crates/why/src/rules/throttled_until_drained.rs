//! Throttled writers sleep until none of their writes is left at the device.

use std::ops::Range;

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "throttled-until-drained",
    layer: "elevator",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "Writeback throttling wakes writers only when none of their writes is left, so the device runs dry.",
    why: "A device that could have had the next write while it did the last ones has nothing to do, once for each \
          turn.",
    events: "As many writes as before are at the device at most, and syncs are as many; but several times as many \
             writes come to a device that has no other.",
    example: "8c5035dfbb94 (6.1-rc1) on a drive without a volatile cache; any kernel with blk-wbt on a drive with one.",
    change: "0 to queue/wbt_lat_usec; `write through` to queue/write_cache if the drive keeps its cache through a \
             power cut.",
    refute: "With the throttle off (wbt_lat_usec=0) as many writes come to an empty device.",
    since: "4.10, on drives with a volatile cache.",
    consequences: &["device-latency"],
    switches: &[Switch::Other("wbt_cache"), Switch::Other("write_cache"), Switch::Other("wbt")],
    find,
    cost: None,
};

/// Share of the writes that find no other at the device, on the slow side, and the factor by which it has grown.
const ALONE: f64 = 0.01;
const MORE: f64 = 2.0;
/// Ratios of the most requests at the device, and of syncs for an operation, that are alike.
const ALIKE: Range<f64> = 0.6..1.25;
/// Most at the device from which on a turn is a turn.
const DEEP: f64 = 4.0;
/// Factors, half sure and sure.
const GRADE: (f64, f64) = (1.5, 4.0);

fn find(delta: &Delta<'_>) -> Option<Match> {
    let alone = delta.of(|d| d.commands.to_empty[1] as f64 / d.commands.issued[1].max(1) as f64);
    let deepest = delta.of(|d| f64::from(d.commands.deepest));
    let syncs = delta.per_operation(|d| d.workload.calls[2] as f64);
    let alike = ALIKE.contains(&deepest.ratio()) && ALIKE.contains(&syncs.ratio()) && deepest.slow >= DEEP;
    if !(alike && alone.slow > ALONE && alone.rose(MORE)) {
        return None;
    }
    Some(Match {
        confidence: grade(alone.ratio(), GRADE.0, GRADE.1),
        share_ns: None,
        claim: format!(
            "{:.1} % of the writes come to a device that has no other, where {:.1} % did, and {:.0} are there at most",
            100.0 * alone.slow,
            100.0 * alone.fast,
            deepest.slow
        ),
        evidence: vec![
            Figure::new("share of writes that find no other at the device", alone, Unit::Share),
            Figure::new("most requests at the device", deepest, Unit::Count),
            Figure::new("syncs for an operation", syncs, Unit::Count),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold};
    use super::RULE;

    /// A thousand writes, up to 24 at once: 10 come to an empty device, then 40.
    fn drained() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                d.commands.issued[1] = 1000;
                d.commands.deepest = 24;
                d.workload.calls[2] = 100;
            });
            (p.fast.commands.to_empty[1], p.slow.commands.to_empty[1]) = (10, 40);
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("ALONE", |p, x| (p.fast.commands.to_empty[1], p.slow.commands.to_empty[1]) = (1, x as u64), 11.0, 10.0),
            ("MORE", |p, x| p.slow.commands.to_empty[1] = x as u64, 21.0, 20.0),
            ("ALIKE, shallower", |p, x| p.slow.commands.deepest = x as u32, 15.0, 14.0),
            ("ALIKE, more syncs", |p, x| p.slow.workload.calls[2] = x as u64, 124.0, 125.0),
            ("DEEP", |p, x| p.both(|d| d.commands.deepest = x as u32), 4.0, 3.0),
        ];
        hold(&RULE, drained, 1.0, edges);
    }
}
