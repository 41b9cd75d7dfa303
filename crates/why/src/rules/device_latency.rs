//! Each command takes longer at the device, small ones as much as large ones.

use super::cost::{Cost, Facts, SEEN};
use super::device::{Kind, found};
use super::instead::{Saved, WAITS, kinds, own, price};
use super::{Match, Rule, Switch};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "device-latency",
    layer: "device",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Times,
    what: "Each command takes longer at the device, whatever its size.",
    why: "Seeks, rotation, the time to read flash or the way to a remote volume come once for each command; a task \
          that waits for commands one after the other waits that much longer.",
    events: "The time from issue to completion of equal commands (direction, size, place, load) is longer by about the \
             same amount at each size, and varies as before.",
    example: "A disk of 5400 revolutions a minute in place of one of 7200; a cloud volume in another zone; a disk \
              whose write cache is off (hdparm -W0).",
    change: "Keep more commands at the device, ask for fewer and larger ones, or get the old device back.",
    refute: "On the other side's device, with everything else as it is, the difference remains.",
    since: "Every kernel; it is the device.",
    consequences: &[],
    switches: &[Switch::OtherDevice],
    find,
    cost: Some(cost),
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    found(delta, Kind::Latency, "each command takes longer at the device")
}

/// Writes: fewer are chance.
const ENOUGH: f64 = 16.0;
/// Time of a write that waits for the platter, ns: less than half a turn of the fastest is a cache that says nothing.
const PLATTER: f64 = 2e6;
/// The least part of the cost: a cache takes what comes at once, and is emptied no faster than the platter turns.
const LEAST: f64 = 0.3;

/// A rotating disk without its write cache.
fn cost(facts: &Facts<'_>) -> Option<Cost> {
    if facts.of_disk("rotational")? != "1" || facts.of_disk("write_cache")? != "write through" {
        return None;
    }
    let (sectors, nr) = own(facts, 1);
    let each = facts.digest.commands.own_busy[1] as f64 / nr.max(1.0);
    if nr < ENOUGH || each < PLATTER {
        return None;
    }
    let waits = facts.of_kinds(kinds(1), &WAITS);
    // What is left is the way to the drive: that of a read which goes on where another one ended, as far as measured.
    let of_size = |(size, ns): &(u32, f64)| Some(ns * price(facts.service, f64::from(*size), sectors)? / each);
    let left = facts.service.first().and_then(of_size).map_or(0.0, |part| part.min(1.0));
    let saved = Saved::of(waits * (1.0 - left), LEAST * waits, waits);
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: format!("the disk's write cache is off: a write takes {:.1} ms, until it is on the platter", each / 1e6),
        setting: "the disk's write cache on (hdparm -W1), if a loss of power may lose what it holds".to_owned(),
        evidence: vec![("time of a write at the device", each, Unit::Ns)],
    })
}

#[cfg(test)]
mod tests {
    use super::super::device::tests::{bandwidth, latency};
    use super::super::edges::{Alone, AloneEdge, hold, hold_cost};
    use super::RULE;

    #[test]
    fn costs() {
        let off = || {
            Alone::of(|a| {
                a.set("recording", "disk", "sda");
                a.set("sda", "rotational", "1");
                a.set("sda", "write_cache", "write through");
                a.digest.elapsed = iowhy_stack::units::Nanos(160_000_000);
                a.requests(1, 20, 8, 8e7);
            })
        };
        let edges: &[AloneEdge] = &[
            ("ENOUGH", |a, x| a.requests(1, x as u64, 8, 8e7), 16.0, 15.0),
            ("PLATTER", |a, x| a.digest.commands.own_busy[1] = x as u64, 4e7, 3.999e7),
        ];
        hold_cost(&RULE, off, (50.0, 0.8), edges);
        let found = off().ask(&RULE).expect("a cost");
        assert!((found.bounds_pct[0] - 15.0).abs() < 0.1, "{}: {found:?}", "LEAST");
    }

    #[test]
    fn limits() {
        hold(&RULE, latency, 0.632, &[("another kind", |p, x| *p = [latency, bandwidth][x as usize](), 0.0, 1.0)]);
    }
}
