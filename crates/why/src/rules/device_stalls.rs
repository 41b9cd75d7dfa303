//! A few commands take very long.

use std::ops::Range;

use super::cost::{Cost, Facts, MARKED, TRIPS};
use super::instead::Saved;
use super::{Figure, Match, Rule, grade};
use crate::delta::{Delta, Unit};
use crate::digest::Digest;
use iowhy_stack::units::SECTOR_BYTES;

pub(super) const RULE: Rule = Rule {
    name: "device-stalls",
    layer: "device",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Times,
    what: "A few commands take very much longer than all others.",
    why: "Error recovery, garbage collection, thermal throttling or a busy host stop a device for a moment; a task \
          that waits then waits for all of it.",
    events: "The median time at the device is as before, and the sum of the times far beyond it has grown by the \
             difference; load is as before.",
    example: "An SSD that collects garbage; a disk that retries sectors; a virtual disk whose host pauses.",
    change: "Look at SMART and at the kernel log; ask the provider; keep fewer commands in flight if the tail \
             comes with load.",
    refute: "The tail of the times at the device is as on the fast side.",
    since: "Every kernel; it is the device.",
    consequences: &["device-latency", "noisy-neighbour", "device-idle-exit"],
    switches: &[super::Switch::OtherJob],
    find,
    cost: Some(cost),
};

/// Medians of its kind, beyond which a command is stalled: seeks and queues take a few.
const STALLED: f64 = 12.0;
/// Medians, slow over fast, if ordinary commands are as they were.
const AS_BEFORE: Range<f64> = 0.5..2.0;
/// Growth of the depth, from which on the tail may come with the load.
const DEEPER: f64 = 3.0;
/// Growth of the time beyond that limit: a few stalls come at random, and their sum varies by half.
const MORE: f64 = 3.0;
/// Part of the difference that commands have to take longer.
const LEAST_PART: f64 = 0.3;
/// Part of that which has to be stalls.
const STALLS: f64 = 0.6;
/// Growth of the time of stalls, half sure and sure.
const GRADE: (f64, f64) = (2.0, 6.0);
/// Highest confidence: a neighbour's large requests look alike.
const MOST_SURE: f64 = 0.85;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let usual = |d: &Digest| {
        let most = d.commands.classes.values().max_by_key(|class| class.count());
        most.map_or(0.0, |class| class.median())
    };
    // Of a kind with few commands the median may be a stalled one.
    let tail = |d: &Digest| {
        let usual = usual(d);
        d.commands.classes.values().map(|class| class.excess_over(STALLED * class.median().min(usual))).sum::<f64>()
    };
    let all = |d: &Digest| d.commands.classes.values().map(|class| class.sum()).sum::<f64>();
    let excess = delta.per_operation(tail);
    let whole = delta.per_operation(all);
    let median = delta.of(usual);
    let deepest = delta.of(|d| f64::from(d.commands.deepest));
    let alike = AS_BEFORE.contains(&median.ratio()) && deepest.ratio() < DEEPER;
    let own = excess.difference() / whole.difference().max(1.0);
    if !alike || !excess.rose(MORE) || whole.difference() < LEAST_PART * delta.slower_by() || own < STALLS {
        return None;
    }
    Some(Match {
        confidence: grade(excess.ratio(), GRADE.0, GRADE.1).min(MOST_SURE),
        share_ns: Some(excess.difference()),
        claim: format!(
            "commands that take more than {STALLED:.0} times the median add {:.2} ms to each call (before {:.2}); \
            the median \
             is {:.2} ms (before {:.2})",
            excess.slow / 1e6,
            excess.fast / 1e6,
            median.slow / 1e6,
            median.fast / 1e6
        ),
        evidence: vec![
            Figure::new("time of stalled commands for each call", excess, Unit::Ns),
            Figure::new("median time at the device", median, Unit::Ns),
        ],
    })
}

/// A command that takes as long is stalled on any drive, ns: seeks, queues and flushes of healthy ones are shorter.
const LONG: f64 = 250e6;
/// Bytes a second that are written to a disk with an arm all the time: it has no time to stand still.
const STEADY: f64 = 80e6;
fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let most = facts.digest.commands.classes.values().max_by_key(|class| class.count())?;
    let limit = (STALLED * most.median()).max(LONG);
    // In a deep queue a command takes as long while the device is at work; when it stands still, none completes.
    let of = |usual: f64| facts.digest.commands.gaps.excess_beyond(limit, usual);
    let excess = of(most.median()).min(facts.in_layers(&TRIPS));
    // Behind a neighbour's requests a command takes as long on a drive that never stands still.
    let crowded = !facts.others.is_empty() && facts.digest.foreign.in_the_way as f64 >= excess;
    // A drive that writes as fast as it turns does not stand still: its cache is full now and then.
    let written = facts.digest.commands.own_sectors[1] as f64 * SECTOR_BYTES as f64;
    let writes = facts.turns() == Some(true) && written >= STEADY * facts.whole_ns / 1e9;
    if excess <= 0.0 || crowded || writes {
        return None;
    }
    let saved = Saved::of(excess, excess.min(of(limit)), excess);
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: MARKED,
        claim: format!(
            "the device stands still: single commands take more than {:.0} ms, others {:.2} ms",
            limit / 1e6,
            most.median() / 1e6
        ),
        setting: "another device, or its errors mended (smartctl, dmesg)".to_owned(),
        evidence: vec![
            ("time of stalled commands", excess, Unit::Ns),
            ("median time at the device", most.median(), Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread, sure};
    use super::RULE;
    use crate::digest::{Class, Digest, Layer, Place};
    use iowhy_stack::units::Nanos;

    /// The middle of a bucket, ns.
    const LONG: f64 = 1_179_648.0;
    const USUAL: Class = Class { write: false, octave: 0, place: Place::Next, load: crate::digest::Load::Alone };

    fn stalls(d: &mut Digest, n: f64) {
        d.commands.classes.insert(Class { place: Place::Far, ..USUAL }, spread(n as u64, LONG));
    }

    fn usual(d: &mut Digest, ns: f64) {
        d.commands.classes.insert(USUAL, spread(1000, ns));
    }

    /// A thousand commands of 1 us and a hundred long ones; 350 long ones on the slow side.
    fn stalled() -> Pair {
        Pair::of(|p| {
            p.both(|d| usual(d, 1000.0));
            stalls(&mut p.fast, 100.0);
            stalls(&mut p.slow, 350.0);
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("STALLED", |p, x| p.both(|d| usual(d, x)), 39_321.0, 39_322.0),
            ("AS_BEFORE", |p, x| usual(&mut p.slow, x), 1999.0, 2000.0),
            ("AS_BEFORE, less", |p, x| usual(&mut p.slow, x), 500.0, 499.0),
            ("DEEPER", |p, x| (p.fast.commands.deepest, p.slow.commands.deepest) = (100, x as u32), 299.0, 300.0),
            ("MORE", |p, x| stalls(&mut p.slow, x), 301.0, 300.0),
            ("LEAST_PART", |p, x| p.slow.elapsed = Nanos(x as u64), 984_040_000.0, 984_040_010.0),
            (
                "STALLS",
                |p, x| {
                    let more = Class { octave: 1, ..USUAL };
                    p.slow.commands.classes.insert(more, spread(x as u64, 1000.0));
                },
                191_608.0,
                191_609.0,
            ),
        ];
        hold(&RULE, stalled, 0.755, edges);
        sure(&RULE, stalled, &[("MOST_SURE", |p, x| stalls(&mut p.slow, x), 600.0, 0.85)]);
    }

    #[test]
    fn costs() {
        fn of(a: &mut Alone, usual: f64, longest: f64) {
            let mut class = spread(100, usual);
            class.add(longest as u64);
            a.digest.commands.gaps = class.clone();
            a.digest.commands.classes = [(Class::default(), class)].into();
            a.digest.elapsed = Nanos(2_000_000_000);
            a.digest.time.ns[0][Layer::Device as usize] = 2e9;
        }
        let stands = || Alone::of(|a| of(a, 1e5, 1.2e9));
        let edges: &[AloneEdge] = &[
            ("LONG", |a, x| of(a, 1e5, x), 6e8, 2.2e8),
            ("STALLED, alone", |a, x| of(a, x, 1.2e9), 5e7, 2e8),
            (
                "crowded",
                |a, x| (a.others, a.digest.foreign.in_the_way) = (vec![("x".to_owned(), 9)], x as u64),
                1e9,
                1.3e9,
            ),
            ("STEADY", steady, 312_499.0, 312_500.0),
        ];
        fn steady(a: &mut Alone, sectors: f64) {
            a.set("recording", "disk", "sda");
            a.set("sda", "rotational", "1");
            a.digest.commands.own_sectors[1] = sectors as u64;
        }
        hold_cost(&RULE, stands, (60.4, 0.85), edges);
        let mut deep = stands();
        deep.digest.commands.gaps = spread(100, 1e6);
        assert!(deep.ask(&RULE).is_none(), "others complete meanwhile");
    }
}
