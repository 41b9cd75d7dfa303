//! Throttled writers sleep until none of their writes is left at the device.

use std::ops::Range;

use super::cost::{Cost, Facts, SEEN};
use super::instead::{Saved, at_once, kinds, own};
use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};
use crate::digest::{Layer, WAITS};

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
    cost: Some(cost),
};

/// Target latency by default, us, of a device without an arm and with one: with less time a sound device misses it.
const USUAL: f64 = 2000.0;
const USUAL_SEEK: f64 = 75_000.0;
/// Part of the writes that wait for others to end before they become requests, and writes: fewer are chance.
const LATE: f64 = 0.2;
const ENOUGH: f64 = 16.0;
/// Writes at the device at once where the throttle has gone down all its steps, and without it.
const SCALED_DOWN: f64 = 3.0;
const FREE: f64 = 32.0;

/// A target that the device cannot meet: the throttle lets ever fewer writes through.
fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let usual = if facts.turns()? { USUAL_SEEK } else { USUAL };
    let target = facts.number_of_disk("wbt_lat_usec").filter(|target| *target > 0.0 && *target < usual)?;
    let [_, late] = facts.digest.commands.late_shares();
    let (_, nr) = own(facts, 1);
    let depth = at_once(facts, 1);
    if late < LATE || nr < ENOUGH || depth > SCALED_DOWN {
        return None;
    }
    let waits = facts.of_kinds(kinds(1), &WAITS) + facts.in_layers(&[Layer::Journal]);
    // A device that does them one after the other gives nothing.
    let saved = Saved::of(waits * (1.0 - (depth / FREE).sqrt()), 0.0, waits * (1.0 - depth / FREE));
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: format!(
            "wbt_lat_usec={target:.0}: {:.0} % of the writes wait for the throttle, which lets {depth:.1} at once \
             through",
            100.0 * late
        ),
        setting: format!("wbt_lat_usec={usual:.0}"),
        evidence: vec![
            ("share of the writes that wait before they become requests", late, Unit::Share),
            ("writes at the device at once", depth, Unit::Count),
        ],
    })
}

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
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost};
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

    #[test]
    fn costs() {
        let throttled = || {
            Alone::of(|a| {
                a.set("recording", "disk", "sda");
                a.set("sda", "rotational", "0");
                a.set("sda", "wbt_lat_usec", "500");
                a.requests(1, 100, 256, 8e5);
                a.digest.commands.late_tags[1] = 50;
            })
        };
        fn with_an_arm(a: &mut Alone, target: f64) {
            a.set("sda", "rotational", "1");
            a.set("sda", "wbt_lat_usec", &target.to_string());
        }
        let edges: &[AloneEdge] = &[
            ("USUAL", |a, x| a.set("sda", "wbt_lat_usec", &x.to_string()), 1999.0, 2000.0),
            ("USUAL, and none", |a, x| a.set("sda", "wbt_lat_usec", &x.to_string()), 1.0, 0.0),
            ("USUAL_SEEK", with_an_arm, 74_999.0, 75_000.0),
            ("LATE", |a, x| a.digest.commands.late_tags[1] = x as u64, 20.0, 19.0),
            ("ENOUGH", |a, x| a.requests(1, x as u64, 256, 8e5), 16.0, 15.0),
            ("SCALED_DOWN", |a, x| a.digest.commands.own_busy[1] = x as u64, 266_667.0, 266_666.0),
        ];
        hold_cost(&RULE, throttled, (65.9, 0.8), edges);
        let found = throttled().ask(&RULE).expect("a cost");
        assert!((found.saves_pct - 65.9).abs() < 0.1, "{}: {found:?}", "FREE");
    }
}
