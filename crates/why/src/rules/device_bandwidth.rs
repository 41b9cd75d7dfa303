//! Commands take longer at the device in proportion to their size.

use std::ops::Range;

use super::cost::{Cost, Facts, Paced, SEEN};
use super::device::{Kind, found};
use super::device_latency::{keeps_busy, may_wake};
use super::instead::{Saved, kinds, own, reads_of};
use super::{Match, Rule, Switch, paced, reads};
use crate::delta::{Delta, Unit};
use crate::digest::{Place, WAITS};
use iowhy_stack::units::SECTOR_BYTES;

pub(super) const RULE: Rule = Rule {
    name: "device-bandwidth",
    layer: "device",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Times,
    what: "The device moves fewer bytes a second.",
    why: "The medium, the link or a cap on bytes sets the time of a large command; a sequential stream waits for it.",
    events: "The time from issue to completion of equal commands is longer in proportion to their size. With commands \
             of one size, completions keep a constant pace that is slower, and each command is large.",
    example: "A SATA port that came up at 1.5 Gbit/s; the inner cylinders of a disk; a volume with 125 MB/s.",
    change: "Read less, or compress; use the outer part of the disk, another link, a volume with a larger allowance.",
    refute: "On the other side's device, with everything else as it is, the difference remains.",
    since: "Every kernel; it is the device.",
    consequences: &["device-latency"],
    switches: &[Switch::OtherDevice],
    find,
    cost: Some(cost),
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    found(delta, Kind::Bandwidth, "the device moves fewer bytes a second")
}

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    // Where most of the bytes are read in vain, the device has room for those that are not.
    let in_vain = [reads::cost_of_waste, reads::cost_of_faults].iter().filter_map(|of| of(facts));
    if in_vain.map(|of| of.ns).fold(0.0, f64::max) >= IN_VAIN * facts.whole_ns {
        return None;
    }
    paced::cap(facts, false).or_else(|| [0, 1].into_iter().find_map(|way| slow_medium(facts, way)))
}

/// Part of the time that goes with pages in vain, from which on these are the cause.
const IN_VAIN: f64 = 0.4;
/// Reads: fewer are chance.
const ENOUGH: f64 = 16.0;
/// Their mean size, sectors, from which on bytes decide.
const LARGE: f64 = 128.0;
/// Part of the reads' time at the device that goes to those that begin where the one before ended.
const MOSTLY: f64 = 0.5;
/// Time that a read may need besides its bytes, ns: without a moving head, and for a turn of a slow disk.
const WAY: f64 = 2e6;
const TURN: f64 = 11e6;
/// Rate, bytes a second, below which no sound disk reads on; the usual one, and those of the slowest disk that queues
/// and of the fastest.
const SLOWEST: f64 = 20e6;
const USUAL: f64 = 100e6;
const SOUND: Range<f64> = 40e6..250e6;
/// Requests at once on a disk without an arm, from which on time goes by bytes: one alone may wait for a long way, or
/// for a device that wakes up.
const QUEUED: f64 = 1.5;

/// Large reads, which go on where others ended unless the disk queues them, or large writes, that keep the device busy
/// at a rate that no sound disk has.
fn slow_medium(facts: &Facts<'_>, way: usize) -> Option<Cost> {
    let (sectors, nr) = own(facts, way);
    let commands = &facts.digest.commands;
    let busy = commands.own_busy[way] as f64;
    let bytes = nr * sectors * SECTOR_BYTES as f64;
    let turns = facts.turns()?;
    let queues = !turns && commands.at_once() >= QUEUED;
    // What requests need besides their bytes they need at once.
    let besides = if turns { TURN } else { WAY / commands.at_once().max(1.0) };
    let slowest = if queues { SOUND.start } else { SLOWEST };
    let slow = bytes * 1e9 <= slowest * (busy - besides * nr);
    let alone = if way == 0 {
        let [next, all] = reads_of(facts, |class| queues || class.place == Place::Next);
        let slow = |it: Paced| f64::from(Paced::LARGE) * SECTOR_BYTES as f64 * 1e9 <= slowest * it.at_once[1];
        keeps_busy(facts) && next >= MOSTLY * all && !may_wake(facts, slow)
    } else {
        facts.others.is_empty() && commands.issued[0] as f64 <= nr && busy >= MOSTLY * facts.whole_ns
    };
    if nr < ENOUGH || sectors < LARGE || !slow || !alone {
        return None;
    }
    let rate = bytes * 1e9 / busy;
    let waits = facts.of_kinds(kinds(way), &WAITS);
    let with = |sound: f64| waits * (1.0 - rate / sound);
    let saved = Saved::of(with(USUAL), with(SOUND.start), with(SOUND.end));
    let does = ["gives", "takes"][way];
    let what = ["to large reads", "of large writes"][way];
    let [rate_of, size_of, time_of] = [
        ["bytes a second while it reads", "mean size of a read", "time that the device reads"],
        ["bytes a second while it writes", "mean size of a write", "time that the device writes"],
    ][way];
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: format!("the device {does} {:.1} MB/s {what}; {:.0} is usual", rate / 1e6, USUAL / 1e6),
        setting: format!("a faster device{}, or fewer bytes (compression)", [" or link", ""][way]),
        evidence: vec![
            (rate_of, rate, Unit::Bytes),
            (size_of, sectors * SECTOR_BYTES as f64, Unit::Bytes),
            (time_of, busy, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::cost::Paced;
    use super::super::device::tests::{bandwidth, latency};
    use super::super::edges::{Alone, AloneEdge, hold, hold_cost, spread, windows};
    use super::RULE;
    use crate::digest::{Class, Load, Place};
    use iowhy_stack::event::RaKind;

    /// 100 requests of 128 KiB at 10 MiB/s.
    fn medium(way: usize) -> Alone {
        Alone::of(|a| {
            a.set("recording", "disk", "sda");
            a.set("sda", "rotational", "0");
            a.digest.elapsed = iowhy_stack::units::Nanos(1_600_000_000);
            a.requests(way, 100, 256, 1.25e9);
            a.digest.commands.busy = 1_250_000_000;
        })
    }

    /// Reads that go on where others ended.
    fn slow() -> Alone {
        Alone::of(|a| {
            *a = medium(0);
            a.digest.commands.classes = [(Class::default(), spread(100, 1.25e7))].into();
        })
    }

    /// Of 100 requests these find the device at rest; one without a pause takes `at_once` ns, if it is known.
    fn at_rest(a: &mut Alone, nr: f64, at_once: f64) {
        let rested = Class { load: Load::Rested, ..Class::default() };
        a.digest.commands.classes = [(Class::default(), 100.0 - nr), (rested, nr)]
            .into_iter()
            .filter(|(_, nr)| *nr > 0.0)
            .map(|(class, nr)| (class, spread(nr as u64, 1.25e7)))
            .collect();
        a.paced = at_once.is_finite().then_some(Paced { at_once: [at_once; 2], paused: [1.25e7; 2] });
    }

    /// Requests, `depth` of them at once.
    fn queued(a: &mut Alone, busy: f64, depth: f64) {
        a.requests(0, 100, 256, busy);
        a.digest.commands.busy = busy as u64;
        let class = Class { place: Place::Far, ..Class::default() };
        a.digest.commands.classes = [(class, spread(100, depth * busy / 100.0))].into();
    }

    /// The same that keep the device busy for half of the time.
    fn of_half(a: &mut Alone, way: usize, busy: f64) {
        a.digest.elapsed.0 = 800_000_000;
        queued(a, busy, 2.0);
        a.requests(way, 100, 256, busy);
    }

    #[test]
    fn costs_of_a_slow_medium() {
        // 1 - sqrt(0.238) of 1.25 s are 0.4 of 1.6 s.
        let wasted: fn(&mut Alone, f64) = |a, used| {
            a.set("sda", "read_ahead_kb", "4096");
            windows(&mut a.digest, RaKind::Sync, 10.0, 2560.0);
            (a.digest.cache.added, a.digest.windows.ahead, a.digest.windows.used) = (2560, 2560, used as u64);
        };
        let away: fn(&mut Alone, f64) = |a, nr| {
            let class = Class { place: Place::Far, ..Class::default() };
            a.digest.commands.classes.insert(class, spread(nr as u64, 1.25e7));
            a.digest.commands.busy = 2_500_000_000;
        };
        let edges: &[AloneEdge] = &[
            ("ENOUGH", |a, x| a.requests(0, x as u64, 512, 1.25e9), 16.0, 15.0),
            ("LARGE", |a, x| a.requests(0, 100, x as u64, 1.25e9), 128.0, 127.0),
            ("BUSY", |a, x| a.digest.elapsed.0 = x as u64, 2_500_000_000.0, 2_500_000_001.0),
            ("IN_VAIN", wasted, 611.0, 609.0),
            ("OTHERS", |a, x| a.others = vec![("cp".to_owned(), x as u64)], 25.0, 26.0),
            ("MOSTLY", away, 100.0, 101.0),
            ("SLOWEST", |a, x| a.requests(0, 100, 256, x), 8.554e8, 8.553e8),
            ("WAY", |a, x| a.requests(0, 100, 256, x), 8.554e8, 8.553e8),
            ("SOUND", |a, x| of_half(a, 0, x), 4.277e8, 4.276e8),
            ("QUEUED", |a, x| (queued(a, 7.8e8, x), a.digest.elapsed.0 = 1_500_000_000).1, 1.5, 1.499),
            ("MOSTLY, at rest", |a, x| at_rest(a, x, f64::INFINITY), 50.0, 51.0),
            ("SLOWEST, without pauses", |a, x| at_rest(a, 100.0, x), 6.554e6, 6.553e6),
            ("TURN", |a, x| a.set("sda", "rotational", &x.to_string()), 0.0, 1.0),
        ];
        hold_cost(&RULE, slow, (69.9, 0.8), edges);
        let found = slow().ask(&RULE).expect("a cost");
        assert!((found.saves_pct - 69.9).abs() < 0.1, "{}: {found:?}", "USUAL");
        assert!((found.bounds_pct[0] - 57.6).abs() < 0.1, "{}: {found:?}", "SOUND");
    }

    #[test]
    fn costs_of_writes() {
        let edges: &[AloneEdge] = &[
            ("ENOUGH", |a, x| a.requests(1, x as u64, 512, 1.25e9), 16.0, 15.0),
            ("LARGE", |a, x| a.requests(1, 100, x as u64, 1.25e9), 128.0, 127.0),
            ("MOSTLY", |a, x| a.digest.elapsed.0 = x as u64, 2_500_000_000.0, 2_500_000_001.0),
            ("others", |a, x| a.others = vec![("cp".to_owned(), 1); x as usize], 0.0, 1.0),
            ("reads", |a, x| a.digest.commands.issued[0] = x as u64, 100.0, 101.0),
            ("SOUND", |a, x| of_half(a, 1, x), 4.277e8, 4.276e8),
            ("TURN", |a, x| a.set("sda", "rotational", &x.to_string()), 0.0, 1.0),
        ];
        hold_cost(&RULE, || medium(1), (69.9, 0.8), edges);
    }

    #[test]
    fn limits() {
        hold(&RULE, bandwidth, 0.632, &[("another kind", |p, x| *p = [bandwidth, latency][x as usize](), 0.0, 1.0)]);
    }
}
