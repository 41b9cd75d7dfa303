//! Each command takes longer at the device, small ones as much as large ones.

use std::ops::Range;

use super::cost::{Cost, Facts, Paced, SEEN};
use super::device::{Kind, found};
use super::instead::{Saved, at_once, kinds, own, price, reads_of, times};
use super::{Match, Rule, Switch};
use crate::delta::{Delta, Unit};
use crate::digest::{Load, Place, Spread, WAITS};
use iowhy_stack::units::SECTOR_BYTES;

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

/// Requests: fewer are chance.
const ENOUGH: f64 = 16.0;
/// Time of a write that waits for the platter, ns: less than half a turn of the fastest is a cache that says nothing.
const PLATTER: f64 = 2e6;
/// Bytes a second that even a slow disk writes in one go.
const SLOW_RATE: f64 = 60e6;
/// The least part of the cost: a cache takes what comes at once, and is emptied no faster than the platter turns.
const LEAST: f64 = 0.3;

/// Small reads, sectors: with more bytes a slow link is as likely as a long way.
const SMALL: f64 = 64.0;
/// Requests at the device at once, up to which their times are shared out among them: more make a queue.
const FEW: f64 = 2.0;
/// The same of reads that come after a turn: the drive has gone on to the next of two.
const ONE: f64 = 1.2;
/// Part of the time that has to be spent so: a device that is asked seldom may have been asleep.
const BUSY: f64 = 0.5;
/// Part of the requests that may be others'.
const OTHERS: f64 = 0.25;
/// Part of their time that classes of long ones have.
const MOSTLY: f64 = 0.5;
/// Times of a lone small read, ns, without a moving head and with one: beyond what any sound drive or volume takes,
/// usual, and of the fastest and the slowest that are sound.
const LONG: f64 = 2e6;
const LONG_SEEK: f64 = 30e6;
const USUAL: f64 = 0.5e6;
const USUAL_SEEK: f64 = 8e6;
const SOUND: Range<f64> = 0.1e6..1e6;
const SOUND_SEEK: Range<f64> = 4e6..16e6;

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    unbuffered(facts).or_else(|| far(facts)).or_else(|| turned(facts))
}

/// Mean sectors of the workload's own requests of a direction, and how many; the device's time for each, ns, and that
/// time without what its bytes take on a slow disk.
fn beside_bytes(facts: &Facts<'_>, way: usize) -> [f64; 4] {
    let (sectors, nr) = own(facts, way);
    let each = facts.digest.commands.own_busy[way] as f64 / nr.max(1.0);
    [sectors, nr, each, each - sectors * SECTOR_BYTES as f64 * 1e9 / SLOW_RATE]
}

/// A rotating disk without its write cache.
fn unbuffered(facts: &Facts<'_>) -> Option<Cost> {
    if !facts.turns()? || facts.of_disk("write_cache")? != "write through" {
        return None;
    }
    // Large writes take the time of their bytes, with the cache or without.
    let [sectors, nr, each, turn] = beside_bytes(facts, 1);
    if nr < ENOUGH || turn < PLATTER {
        return None;
    }
    let waits = facts.of_kinds(kinds(1), &WAITS) * turn / each;
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

/// A rotating disk that reads on only when it is asked: the next read comes too late, and waits for a turn.
fn turned(facts: &Facts<'_>) -> Option<Cost> {
    let [sectors, nr, each, turn] = beside_bytes(facts, 0);
    let [next, all] = reads_of(facts, |class| class.place == Place::Next);
    let late = facts.turns()? && nr >= ENOUGH && turn >= PLATTER && next > MOSTLY * all;
    if !late || at_once(facts, 0) > ONE || !keeps_busy(facts) || may_wake(facts, |_| false) {
        return None;
    }
    let waits = facts.of_kinds(kinds(0), &WAITS);
    let without = waits * turn / each;
    let saved = Saved::of(without, LEAST * without, waits);
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: format!(
            "reads of {sectors:.0} sectors, each where the one before ended, take {:.1} ms: a turn of a disk",
            each / 1e6
        ),
        setting: "the drive's look-ahead on (hdparm -A1), or larger reads, or more of them in flight".to_owned(),
        evidence: vec![("time of a read at the device", each, Unit::Ns), ("reads", nr, Unit::Count)],
    })
}

/// Reads keep the device busy, and hardly anybody else uses it.
pub(super) fn keeps_busy(facts: &Facts<'_>) -> bool {
    let (_, nr) = own(facts, 0);
    let others: u64 = facts.others.iter().map(|(_, nr)| nr).sum();
    others as f64 <= OTHERS * nr && facts.digest.commands.own_busy[0] as f64 >= BUSY * facts.whole_ns
}

/// A read that finds the device at rest may wake it up, unless a probe shows that reads without pauses take `as_long`.
pub(super) fn may_wake(facts: &Facts<'_>, as_long: impl Fn(Paced) -> bool) -> bool {
    let [rested, all] = reads_of(facts, |class| class.load == Load::Rested);
    rested > MOSTLY * all && !facts.paced.is_some_and(as_long)
}

/// Small reads, one by one or nearly so, each of which takes longer than any sound device of this kind does.
pub(super) fn far(facts: &Facts<'_>) -> Option<Cost> {
    let (sectors, nr) = own(facts, 0);
    let (limit, usual, sound) = match facts.turns()? {
        true => (LONG_SEEK, USUAL_SEEK, SOUND_SEEK),
        false => (LONG, USUAL, SOUND),
    };
    let sum: f64 = times(facts, 0).map(Spread::sum).sum();
    // Writes of its own at the device make a read wait there, too.
    let depth = at_once(facts, 0).max(facts.digest.commands.at_once()).max(1.0);
    if may_wake(facts, |it| it.at_once[0] >= limit) {
        return None;
    }
    let long: f64 = times(facts, 0).filter(|all| all.median() >= limit * depth).map(Spread::sum).sum();
    if nr < ENOUGH || sectors > SMALL || depth > FEW || !keeps_busy(facts) || long < MOSTLY * sum {
        return None;
    }
    let (waits, each) = (facts.of_kinds(kinds(0), &WAITS), sum / nr);
    let without = |lone: f64| waits * (1.0 - lone * depth / each);
    let saved = Saved::of(without(usual), without(sound.end), without(sound.start));
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: format!(
            "reads of {sectors:.0} sectors, {depth:.1} at once, take {:.1} ms each at the device; {:.1} ms is usual",
            each / 1e6,
            usual * depth / 1e6
        ),
        setting: "a faster device, or more reads in flight (prefetch, threads)".to_owned(),
        evidence: vec![("time of a read at the device", each, Unit::Ns), ("reads", nr, Unit::Count)],
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::device::tests::{bandwidth, latency};
    use super::super::edges::{Alone, AloneEdge, hold, hold_cost, spread};
    use super::{Paced, RULE};
    use crate::digest::{Class, Load, Place, Spread};

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
            ("PLATTER", |a, x| a.digest.commands.own_busy[1] = x as u64, 4.137e7, 4.136e7),
            ("SLOW_RATE", |a, x| a.requests(1, 20, x as u64, 8e7), 234.0, 235.0),
        ];
        hold_cost(&RULE, off, (49.1, 0.8), edges);
        let found = off().ask(&RULE).expect("a cost");
        assert!((found.bounds_pct[0] - 14.7).abs() < 0.1, "{}: {found:?}", "LEAST");
    }

    /// 100 reads that take `ns` together.
    fn reads(rotational: &str, elapsed_ms: u64, sectors: u64, ns: f64) -> Alone {
        Alone::of(|a| {
            a.set("recording", "disk", "sda");
            a.set("sda", "rotational", rotational);
            a.digest.elapsed = iowhy_stack::units::Nanos(elapsed_ms * 1_000_000);
            a.requests(0, 100, sectors, ns);
        })
    }

    /// 100 reads of 64 KiB that take 6 ms each, one after the other.
    #[test]
    fn costs_of_turns() {
        fn of(a: &mut Alone, classes: [(Place, Load, f64); 2]) {
            let class = |(place, load, nr)| (Class { place, load, ..Class::default() }, spread(nr as u64, 6e6));
            a.digest.commands.classes = classes.into_iter().filter(|of| of.2 > 0.0).map(class).collect();
        }
        fn away(a: &mut Alone, nr: f64) {
            of(a, [(Place::Next, Load::Alone, 100.0), (Place::Far, Load::Alone, nr)]);
        }
        let late = || {
            Alone::of(|a| {
                *a = reads("1", 800, 128, 6e8);
                a.digest.commands.busy = 600_000_000;
                away(a, 0.0);
            })
        };
        let edges: &[AloneEdge] = &[
            (
                "ENOUGH",
                |a, x| (a.requests(0, x as u64, 128, x * 6e6), a.digest.elapsed.0 = x as u64 * 8_000_000).1,
                16.0,
                15.0,
            ),
            ("SLOW_RATE", |a, x| a.requests(0, 100, x as u64, 6e8), 468.0, 469.0),
            ("MOSTLY", away, 99.0, 100.0),
            ("ONE", |a, x| a.digest.commands.own_busy[0] = (6e8 / x) as u64, 1.199, 1.201),
            ("BUSY", |a, x| a.digest.elapsed.0 = x as u64, 1_200_000_000.0, 1_200_000_001.0),
            ("turns", |a, x| a.set("sda", "rotational", &x.to_string()), 1.0, 0.0),
            (
                "at rest",
                |a, x| of(a, [(Place::Next, Load::Alone, 100.0), (Place::Next, Load::Rested, x)]),
                100.0,
                101.0,
            ),
        ];
        hold_cost(&RULE, late, (61.3, 0.8), edges);
    }

    /// 100 reads of 4 KiB that take 5 ms each, one by one.
    pub(in super::super) fn remote() -> Alone {
        Alone::of(|a| {
            *a = reads("0", 600, 8, 5e8);
            a.digest.commands.busy = 500_000_000;
        })
    }

    /// Two at once.
    fn of_two(a: &mut Alone, busy: f64) {
        (a.digest.commands.own_busy[0], a.digest.commands.busy) = (busy as u64, busy as u64);
        a.digest.time.ns[0][crate::digest::Layer::Device as usize] = busy;
        a.digest.elapsed.0 = 1 + busy as u64;
    }

    #[test]
    fn costs_of_the_way() {
        let edges: &[AloneEdge] = &[
            ("ENOUGH", |a, x| a.requests(0, x as u64, 8, 5e8), 16.0, 15.0),
            ("SMALL", |a, x| a.requests(0, 100, x as u64, 5e8), 64.0, 65.0),
            ("FEW", |a, x| (a.requests(0, 100, 8, 8e8), of_two(a, x)).1, 4e8, 3.99e8),
            ("LONG, of two", |a, x| (a.requests(0, 100, 8, 2.0 * x), of_two(a, x)).1, 3e8, 1.9e8),
            ("BUSY", |a, x| a.digest.elapsed.0 = x as u64, 1_000_000_000.0, 1_000_000_001.0),
            ("OTHERS", |a, x| a.others = vec![("cp".to_owned(), x as u64)], 25.0, 26.0),
            ("LONG", |a, x| a.requests(0, 100, 8, x), 3e8, 1.7e8),
            ("a moving head", |a, x| a.set("sda", "rotational", &x.to_string()), 0.0, 1.0),
        ];
        hold_cost(&RULE, remote, (75.0, 0.8), edges);
        let mostly: AloneEdge = (
            "MOSTLY",
            |a, x| {
                let short = spread(1000, x / 1000.0);
                a.digest.commands.own.insert(Class { octave: 3, ..Class::default() }, [short, Spread::default()]);
                a.digest.commands.own_busy[0] += x as u64;
            },
            5e8,
            5.1e8,
        );
        hold_cost(&RULE, remote, (75.0, 0.8), &[mostly]);
        // After pauses they may wake the device up, unless reads without pauses take as long.
        let after_pauses: AloneEdge = (
            "LONG",
            |a, x| {
                let class = Class { load: Load::Rested, ..Class::default() };
                a.digest.commands.classes = [(class, spread(100, 5e6))].into();
                a.paced = Some(Paced { at_once: [x; 2], paused: [3e6; 2] });
            },
            2e6,
            1.99e6,
        );
        hold_cost(&RULE, remote, (75.0, 0.8), &[after_pauses]);
        let crowded: AloneEdge = (
            "FEW, with writes",
            |a, x| {
                let writes = Class { write: true, ..Class::default() };
                a.digest.commands.classes = [(Class::default(), spread(100, 5e6)), (writes, spread(1, x))].into();
            },
            4.9e8,
            5.1e8,
        );
        hold_cost(&RULE, remote, (75.0, 0.8), &[crowded]);
        let found = remote().ask(&RULE).expect("a cost");
        assert!((found.saves_pct - 75.0).abs() < 0.1, "{}: a tenth of 5 ms", "USUAL");
        let [least, most] = found.bounds_pct;
        assert!((least - 66.7).abs() < 0.1 && most > 81.6, "{}: {found:?}", "SOUND");
        // 40 ms with a head: 4/5 of it are saved, 3/5 at least, 9/10 at most.
        let seeks = || reads("1", 4000, 8, 4e9);
        hold_cost(&RULE, seeks, (80.0, 0.8), &[("LONG_SEEK", |a, x| a.requests(0, 100, 8, x), 3.2e9, 2.4e9)]);
        let found = seeks().ask(&RULE).expect("a cost");
        assert!((found.saves_pct - 80.0).abs() < 0.1, "{}: {found:?}", "USUAL_SEEK");
        assert!((found.bounds_pct[0] - 60.0).abs() < 0.1, "{}: {found:?}", "SOUND_SEEK");
    }

    #[test]
    fn limits() {
        hold(&RULE, latency, 0.632, &[("another kind", |p, x| *p = [latency, bandwidth][x as usize](), 0.0, 1.0)]);
    }
}
