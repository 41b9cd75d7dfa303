//! The program itself takes longer between its calls.

use std::ops::RangeInclusive;

use super::cost::{Bounds, Cost, Facts, Sleeps};
use super::{Figure, Match, Rule, Switch, changed_job, grade};
use crate::delta::{Delta, Unit};
use crate::digest::{Digest, Layer, Spread};

pub(super) const RULE: Rule = Rule {
    name: "program-pauses",
    layer: "application",
    needs: super::CALLS,
    owns: super::Owns::Pauses,
    single: super::Single::Times,
    what: "The program makes the same calls, with longer pauses between them.",
    why: "Work on the data, sleeps and waits elsewhere in the program are not I/O; nothing below it can make them \
          shorter.",
    events: "The calls are equal, and the time from the end of one to the begin of the next is longer.",
    example: "A think time or a rate limit in a job file; a program that compresses the data it has read.",
    change: "Look at the program (perf record, strace -c between the calls); more threads hide pauses.",
    refute: "Without the pauses the calls follow one another as late.",
    since: "Every kernel.",
    consequences: &[],
    switches: &[Switch::OtherJob],
    find,
    cost: Some(cost),
};

/// Calls take as long up to this ratio.
const EQUAL: f64 = 1.15;
/// Growth of pauses, and of the time without calls: less may come from the machine.
const LONGER: f64 = 1.2;
/// Part of the difference: a smaller one is not worth a finding.
const LEAST_PART: f64 = 0.1;
/// Growth of the median pause: a few long pauses may come from preemption.
const MEDIAN: f64 = 1.1;
/// Ratio of most calls in progress: with more of them, pauses hide behind other calls.
const AS_MANY: RangeInclusive<f64> = 0.9..=1.1;
/// Ratios of pauses, half sure and sure.
const GRADE: (f64, f64) = (1.1, 2.0);

fn latency(d: &Digest) -> f64 {
    d.latency.iter().map(Spread::sum).sum::<f64>() / d.calls().max(1) as f64
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    let pauses = delta.per_operation(|d| d.pauses.sum() / f64::from(d.time.slots.max(1)));
    let silent = delta.per_operation(|d| d.silent as f64);
    // Where tasks' states are known, computing is not pausing.
    let computing = if delta.stated() { 0.0 } else { 1.0 };
    let application = delta.time(|time| time.of(Layer::Pause) + computing * time.of(Layer::Application));
    // Of several calls in flight, the next may have to wait for others: that is not a pause, and all of them are
    // slower. But while none is in flight, the program is at work with something else.
    let equal = delta.of(latency).ratio() < EQUAL;
    let whole = if equal { pauses.difference() } else { silent.difference() };
    let owned = whole.min(application.difference());
    let least = LEAST_PART * delta.slower_by();
    if !pauses.rose(LONGER) || !silent.rose(LONGER) || silent.difference() < least || owned < least {
        return None;
    }
    // Pauses that only coincide more often are not longer; and where most calls follow at once, only a program with one
    // of them in flight can tell.
    let median = delta.of(|d| d.pauses.median());
    let most = delta.of(|d| f64::from(d.workload.concurrency));
    let longer = median.rose(MEDIAN) || median.slow == 0.0 && most.slow <= 1.0;
    if !longer || !AS_MANY.contains(&most.ratio()) || (changed_job::RULE.find)(delta).is_some() {
        return None;
    }
    let each = delta.of(|d| d.pauses.mean());
    Some(Match {
        confidence: grade(pauses.ratio(), GRADE.0, GRADE.1),
        share_ns: Some(owned),
        claim: format!(
            "the program lets {:.1} us pass between two calls (before {:.1} us), which are equal",
            each.slow / 1e3,
            each.fast / 1e3
        ),
        evidence: vec![
            Figure::new("time between two calls", each, Unit::Ns),
            Figure::new("time with no call in progress for an operation", silent, Unit::Ns),
            Figure::new("time of a call", delta.of(latency), Unit::Ns),
        ],
    })
}

/// Sleeps for each call, from which on the program paces itself.
const PACED: f64 = 0.3;
/// Sleeps from which on it is held back whatever the calls between them: a few belong to a begin or an end, where a
/// script gives a server time to start, or a program looks after its workers (six and eight in healthy tables).
const OFTEN: u64 = 10;
/// Most of their time that a single one may have: a client that tries again after a second is not paced.
const ONE: f64 = 0.5;
/// Least part of the time that it sleeps: timers take less (two servers of healthy tables: 23 and 28 %).
const ASLEEP: f64 = 0.3;
/// Part of these sleeps with nothing else going on: who asks again and again for the end of another task sleeps while
/// that one works.
const IDLE: f64 = 0.7;
/// Bytes that a process moves for each ns of its sleeps: with less to do it is paced by design, as a service, a
/// monitor, or sleep(1) in a script.
const BUSY: f64 = 1e6 / 1e9;
/// Confidence of the cost, and its bounds.
const ALONE: (f64, Bounds) = (0.85, [0.9, 1.0]);

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let stopped = facts.digest.wall.as_ref().map_or([(0.0, 0); 3], |wall| wall.stopped);
    let stands: f64 = stopped.iter().map(|(ns, _)| ns).sum();
    if stands > facts.asleep() {
        return Some(from_outside(facts, stopped, stands));
    }
    let locked = facts.digest.wall.as_ref().map_or((0.0, 0), |wall| wall.locked);
    if locked.0 > facts.asleep() {
        return Some(for_locks(facts, locked));
    }
    let at_work = facts.sleeps.iter().filter(|of| of.moved as f64 >= BUSY * of.ns);
    let Sleeps { times, ns: asleep, longest_ns, once_ns, .. } = at_work.copied().fold(Sleeps::default(), Sleeps::and);
    let pauses = facts.in_layers(&[Layer::Pause]).min(asleep);
    let held = times >= OFTEN && once_ns <= ONE * asleep && pauses >= IDLE * longest_ns;
    let paced = times > 0 && times as f64 >= PACED * facts.operations();
    if pauses < ASLEEP * facts.whole_ns || !held && !paced {
        return None;
    }
    let (confidence, bounds) = ALONE;
    Some(Cost {
        ns: pauses,
        bounds,
        confidence,
        claim: format!(
            "the program sleeps on purpose: {times} times between its calls, {:.2} ms each",
            asleep / 1e6 / (times.max(1)) as f64
        ),
        setting: "no sleep in the program".to_owned(),
        evidence: vec![
            ("sleeps for each call", times as f64 / facts.operations(), Unit::Ratio),
            ("time asleep with nothing else going on", pauses, Unit::Ns),
        ],
    })
}

/// Bounds of the time under a tracer that is recorded, too: it may be busy for others meanwhile.
const TRACED: Bounds = [0.5, 1.0];

/// The cost of waits for a file's lock that another process has.
fn for_locks(facts: &Facts<'_>, (ns, times): (f64, u64)) -> Cost {
    let pauses = facts.in_layers(&[Layer::Pause]).min(ns);
    let (confidence, bounds) = ALONE;
    Cost {
        ns: pauses,
        bounds,
        confidence,
        claim: format!(
            "{}: {:.0} ms each, until another process lets go of it",
            iowhy_text::count(times, "wait for the lock of a file", "waits for the lock of a file"),
            ns / 1e6 / times.max(1) as f64
        ),
        setting: "a lock of its own, or one that the other process holds for less time".to_owned(),
        evidence: vec![
            ("time in which tasks wait for locks", ns, Unit::Ns),
            ("of it with nothing else going on", pauses, Unit::Ns),
        ],
    }
}

/// Somebody else stops the program.
fn from_outside(facts: &Facts<'_>, stopped: [(f64, u64); 3], stands: f64) -> Cost {
    let most = (0..stopped.len()).max_by(|a, b| stopped[*a].0.total_cmp(&stopped[*b].0)).unwrap_or(0);
    let traced = most == 1;
    let (who, setting) = [
        ("SIGSTOP or a terminal", "the process that sends SIGSTOP"),
        ("a tracer", "no tracer (strace, a debugger) attached to the program"),
        ("a freezer", "a control group that nobody freezes"),
    ][most];
    let (ns, times) = stopped[most];
    // A tracer works meanwhile, and may be a part of the recorded command.
    let pauses = facts.in_layers(&[Layer::Pause]).min(stands);
    let lost = if traced { ns.min(facts.whole_ns).max(pauses) } else { pauses };
    let (confidence, bounds) = ALONE;
    Cost {
        ns: lost,
        bounds: if lost > pauses { TRACED } else { bounds },
        confidence,
        claim: format!("{who} stops the program {times} times, for {:.2} ms each", ns / 1e6 / times.max(1) as f64),
        setting: setting.to_owned(),
        evidence: vec![
            ("stops for each call", times as f64 / facts.operations(), Unit::Ratio),
            ("time stopped", lost, Unit::Ns),
            ("of it with nothing else going on", pauses, Unit::Ns),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread};
    use super::{RULE, Sleeps};
    use crate::digest::wall::{FROZEN, Wall};
    use crate::digest::{Digest, KIND_OTHER, Layer};

    /// Ten equal calls with pauses of 100 us, then of 150 us, during which no other is in progress.
    fn pauses() -> Pair {
        Pair::of(|p| {
            for (d, pause) in [(&mut p.fast, 100_000), (&mut p.slow, 150_000)] {
                d.latency[0] = spread(10, 100_000.0);
                d.pauses = spread(10, pause as f64);
                d.silent = 10 * pause;
                asleep(d, 10.0 * pause as f64);
            }
        })
    }

    fn asleep(d: &mut Digest, ns: f64) {
        d.time.ns[KIND_OTHER][Layer::Pause as usize] = ns;
    }

    /// Slower calls: what counts is the time without any, not that between two.
    fn slower_calls(p: &mut Pair, latency: f64) {
        p.fast.pauses = spread(10, 10_000.0);
        p.slow.pauses = spread(10, 19_000.0);
        p.slow.latency[0] = spread(10, latency);
    }

    /// The program computes instead; `stated` if the states of its tasks are known.
    fn computes(p: &mut Pair, stated: f64) {
        p.both(|d| {
            let [pause, own] = [Layer::Pause, Layer::Application].map(|layer| layer as usize);
            d.time.ns[KIND_OTHER].swap(pause, own);
            d.wall = (stated > 0.0).then(Default::default);
        });
    }

    /// Six pauses of this length, and four long ones.
    fn median(p: &mut Pair, slow: f64) {
        p.slow.pauses = spread(6, slow);
        p.slow.pauses.merge(&spread(4, 1e6));
    }

    /// Most calls follow at once on both sides.
    fn at_once(p: &mut Pair, in_progress: f64) {
        p.fast.pauses = spread(6, 0.0);
        p.fast.pauses.merge(&spread(4, 100_000.0));
        median(p, 0.0);
        p.both(|d| d.workload.concurrency = in_progress as u32);
    }

    fn in_progress(p: &mut Pair, slow: f64) {
        (p.fast.workload.concurrency, p.slow.workload.concurrency) = (1000, slow as u32);
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("EQUAL", slower_calls, 115_000.0, 114_999.0),
            ("LONGER, pauses", |p, x| p.slow.pauses = spread(10, x), 120_001.0, 120_000.0),
            ("LONGER, without a call", |p, x| p.slow.silent = x as u64, 1_200_001.0, 1_200_000.0),
            ("LEAST_PART, without a call", |p, x| (p.fast.silent, p.slow.silent) = (0, x as u64), 100_000.0, 99_999.0),
            ("LEAST_PART, asleep", |p, x| asleep(&mut p.slow, 1e6 + x), 100_000.0, 99_999.0),
            ("computing", computes, 0.0, 1.0),
            ("MEDIAN", median, 110_001.0, 110_000.0),
            ("one call at a time", at_once, 1.0, 2.0),
            ("AS_MANY, fewer", in_progress, 900.0, 899.0),
            ("AS_MANY, more", in_progress, 1100.0, 1101.0),
            ("equal jobs", |p, x| p.slow.workload.sequential[0] = x as u64, 0.0, 10.0),
        ];
        hold(&RULE, pauses, 0.7594, edges);
    }

    #[test]
    fn costs() {
        let sleeps = || {
            Alone::of(|a| {
                a.sleeps = vec![Sleeps { times: 10, ns: 5e5, moved: 10_000, ..Sleeps::default() }];
                a.digest.time.ns[3][Layer::Pause as usize] = 6e5;
            })
        };
        fn of(a: &mut Alone, times: f64, ns: f64) {
            a.digest.latency[0] = spread(100, 1e4);
            a.sleeps = vec![Sleeps { times: times as u64, ns, longest_ns: ns, once_ns: 0.0, moved: 10_000 }];
        }
        fn two(a: &mut Alone, moved: f64) {
            a.sleeps.push(Sleeps { moved: moved as u64, ..a.sleeps[0] });
            (a.sleeps[0].times, a.sleeps[0].moved) = (1000, 0);
        }
        let edges: &[AloneEdge] = &[
            ("PACED", |a, x| a.sleeps[0].times = x as u64, 3.0, 2.0),
            ("BUSY", |a, x| a.sleeps[0].moved = x as u64, 500.0, 499.0),
            ("BUSY, of each process", two, 500.0, 499.0),
            ("ASLEEP", |a, x| a.sleeps[0].ns = x, 3e5, 2.99e5),
            ("OFTEN", |a, x| of(a, x, 5e5), 10.0, 9.0),
            ("ONE", |a, x| (of(a, 10.0, 5e5), a.sleeps[0].once_ns = x).1, 2.5e5, 2.51e5),
            ("IDLE", |a, x| of(a, 10.0, x), 8.5e5, 8.6e5),
            ("others sleep, too", |a, x| (of(a, 10.0, 2e6), a.sleeps[0].longest_ns = x).1, 8.5e5, 8.6e5),
        ];
        hold_cost(&RULE, sleeps, (50.0, 0.85), edges);
        for by in 0..=FROZEN {
            let stopped = || {
                Alone::of(|a| {
                    a.sleeps = vec![Sleeps { ns: 1e5, ..Sleeps::default() }];
                    a.digest.time.ns[3][Layer::Pause as usize] = 6e5;
                    let mut wall = Wall::default();
                    wall.stopped[by] = (4e5, 3);
                    a.digest.wall = Some(wall);
                })
            };
            hold_cost(&RULE, stopped, (40.0, 0.85), &[("stopped for longer", |a, x| a.sleeps[0].ns = x, 3.9e5, 4e5)]);
        }
        let locked = || {
            Alone::of(|a| {
                a.sleeps = vec![Sleeps { ns: 1e5, ..Sleeps::default() }];
                a.digest.time.ns[3][Layer::Pause as usize] = 6e5;
                a.digest.wall = Some(Wall { locked: (4e5, 3), ..Wall::default() });
            })
        };
        hold_cost(&RULE, locked, (40.0, 0.85), &[]);
        // The tracer is recorded, too: nothing pauses.
        let traced = Alone::of(|a| {
            let mut wall = Wall::default();
            wall.stopped[1] = (4e5, 3);
            a.digest.wall = Some(wall);
        });
        let found = traced.ask(&RULE).expect("a cost");
        assert!((found.saves_pct - 40.0).abs() < 0.1, "{found:?}");
        assert!((found.bounds_pct[0] - 20.0).abs() < 0.1, "{}: {found:?}", "TRACED");
    }
}
