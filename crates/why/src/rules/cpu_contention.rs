//! Tasks of the workload are ready to run, and other tasks have the CPUs.

use super::cost::{Bounds, Cost, Facts};
use super::recorded;
use super::{Figure, Match, Rule, grade};
use crate::delta::{Delta, Unit};
use crate::digest::Layer;

pub(super) const RULE: Rule = Rule {
    name: "cpu-contention",
    layer: "CPU wait",
    needs: super::STATES,
    owns: super::Owns::Ready,
    single: super::Single::OwnTimes,
    what: "Tasks of the workload are ready to run and wait for a CPU.",
    why: "A task that is woken, or was preempted, goes on only when a CPU is free; others keep the CPUs busy, \
          or the workload has more tasks than CPUs.",
    events: "The time from being woken or preempted to running is longer, at equal work.",
    example: "A build or a backup with compression next to a database; a container pinned to one CPU.",
    change: "Move or renice the other work, give the workload more CPUs (cpuset, cpu.weight), or run fewer tasks.",
    refute: "Without the other work, or with more CPUs, the time by the clock is as long.",
    since: "Every kernel.",
    consequences: &["cpu-bound-submission"],
    switches: &[super::Switch::OtherJob],
    find,
    cost: Some(cost),
};

/// Part of the difference that has to be waiting for a CPU.
const LEAST_PART: f64 = 0.3;

/// CPUs that others have to keep busy beyond those of the fast side.
const LEAST_BUSY: f64 = 0.5;

/// Growth of each wait: the scheduler's own latency varies by less.
const LONGER: f64 = 1.5;

/// Growth of each wait, half sure and sure.
const GRADE: (f64, f64) = (1.3, 3.0);

/// Highest confidence: others may keep other CPUs busy than those that the workload waits for.
const MOST_SURE: f64 = 0.95;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let ready = delta.time(|time| time.of(Layer::Ready));
    let throttled = recorded::counter(delta, "cpu_throttled_ns");
    // A task that sleeps more often waits more often for a CPU, and that is not the CPUs' doing: each wait has to be
    // longer.
    let each = delta.of(|d| {
        let wakes = d.wall.as_ref().map_or(0, |wall| wall.wakes).max(1) as f64;
        d.time.of(Layer::Ready) / f64::from(d.time.slots.max(1)) / wakes
    });
    let wakes = ready.slow / each.slow;
    let own = (each.difference() * wakes).min(ready.difference());
    if own < LEAST_PART * delta.slower_by() || !each.rose(LONGER) || throttled.difference() > 0.0 {
        return None;
    }
    let busy = recorded::busy_cpus(delta);
    // Unless other tasks have the CPUs, it waits for itself.
    if busy.slow < busy.fast + LEAST_BUSY {
        return None;
    }
    Some(Match {
        confidence: grade(each.ratio(), GRADE.0, GRADE.1).min(MOST_SURE),
        share_ns: Some(own),
        claim: format!(
            "a task that could run waits {:.0} us for a CPU each time, against {:.0}; others keep {:.1} CPUs busy, \
             against {:.1}",
            each.slow / 1e3,
            each.fast / 1e3,
            busy.slow,
            busy.fast
        ),
        evidence: vec![
            Figure::new("wait for a CPU, each time", each, Unit::Ns),
            Figure::new("time that tasks wait for a CPU", recorded::scaled(delta, ready), Unit::Ns),
            Figure::new("CPUs that others keep busy", busy, Unit::Ratio),
        ],
    })
}

/// Part of the waits that ends as another program leaves the CPU: the rest are waits for tasks of the workload.
const BEHIND: f64 = 0.5;
/// Wait for a CPU, each time, ns: a wake-up of an idle one is shorter.
const EACH: f64 = 100e3;
/// Part of the time by the clock: less is what any machine with other things to do takes.
const MUCH: f64 = 0.2;
/// Confidence of the cost, and its bounds.
const ALONE: (f64, Bounds) = (0.85, [0.5, 1.0]);

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let wall = facts.digest.wall.as_ref()?;
    let ready = facts.in_layers(&[Layer::Ready]);
    let behind = wall.behind.values().sum::<f64>() / wall.ready_ns.max(1.0);
    let each = wall.ready_ns / wall.wakes.max(1) as f64;
    if each < EACH || facts.counter("cpu_throttled_ns") > 0.0 || ready < MUCH * facts.whole_ns {
        return None;
    }
    // It waits longer for other processes than for a CPU: those on the CPUs are a server of its own.
    if facts.in_layers(&[Layer::Pause]) > ready {
        return None;
    }
    let most = wall.behind.iter().max_by(|a, b| a.1.total_cmp(b.1)).filter(|_| behind >= BEHIND);
    let (reason, setting) = match most {
        Some((name, _)) => (
            format!("{:.0} % of it behind others ({name} most)", 100.0 * behind),
            "the other tasks elsewhere, or a higher priority (nice, cpu.weight)",
        ),
        None => {
            let (allowed, all) = fewer_cpus(facts)?;
            (format!("mostly for tasks of its own: they may use {allowed} of {all} CPUs"), "all CPUs (taskset, cpuset)")
        }
    };
    let (confidence, bounds) = ALONE;
    Some(Cost {
        ns: ready,
        bounds,
        confidence,
        claim: format!("a task that could run waits {:.0} us for a CPU each time, {reason}", each / 1e3),
        setting: setting.to_owned(),
        evidence: vec![
            ("wait for a CPU, each time", each, Unit::Ns),
            ("time that tasks wait for a CPU", ready, Unit::Ns),
            ("part of it while others have the CPU", behind, Unit::Share),
        ],
    })
}

/// CPUs that the workload may use, and those of the machine, if there are more.
fn fewer_cpus(facts: &Facts<'_>) -> Option<(u64, u64)> {
    let all = facts.cpus()?;
    let range = |words: &str| -> Option<u64> {
        let (from, to) = words.split_once('-').unwrap_or((words, words));
        to.parse::<u64>().ok()?.checked_sub(from.parse().ok()?)?.checked_add(1)
    };
    let allowed: u64 = facts.settings.get("process", "cpus_allowed")?.split(',').map(range).sum::<Option<u64>>()?;
    (allowed < all).then_some((allowed, all))
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, sure};
    use super::RULE;
    use crate::digest::{Layer, wall::Wall};

    const READY: usize = Layer::Ready as usize;

    fn wakes(wakes: u64) -> Option<Wall> {
        Some(Wall { wakes, ..Wall::default() })
    }

    /// Ten waits for a CPU, each of 50 us on the fast side and 100 us on the slow one; others keep a CPU busy there.
    fn contended() -> Pair {
        Pair::of(|p| {
            p.both(|d| d.wall = wakes(10));
            (p.fast.time.ns[0][READY], p.slow.time.ns[0][READY]) = (5e5, 1e6);
            p.count("others_cpu_ns", [0, 2_000_000]);
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("LEAST_PART", |p, x| p.slow.time.ns[0][READY] = x, 800_000.0, 799_999.0),
            (
                "LONGER",
                |p, x| (p.fast.time.ns[0][READY], p.slow.time.ns[0][READY]) = (8e5, x),
                1_200_001.0,
                1_200_000.0,
            ),
            ("more waits", |p, x| p.slow.wall = wakes(x as u64), 13.0, 14.0),
            ("fewer waits", |p, x| (p.fast.time.ns[0][READY], p.fast.wall) = (x, wakes(20)), 7e5, 700_001.0),
            ("a quota", |p, x| p.count("cpu_throttled_ns", [0, x as u64]), 0.0, 1.0),
            ("LEAST_BUSY", |p, x| p.count("others_cpu_ns", [500_000, x as u64]), 2_000_000.0, 1_999_999.0),
        ];
        hold(&RULE, contended, 0.758, edges);
        sure(&RULE, contended, &[("MOST_SURE", |p, x| p.slow.time.ns[0][READY] = x, 1_500_000.0, 0.95)]);
    }

    #[test]
    fn costs() {
        fn of(a: &mut Alone, each: f64, behind: f64) {
            a.digest.time.ns[0][READY] = 5e8;
            let wall = Wall { wakes: (5e8 / each) as u64, ready_ns: 5e8, ..Wall::default() };
            a.digest.wall = Some(Wall { behind: [("hog".to_owned(), behind * 5e8)].into(), ..wall });
        }
        let contended = || {
            Alone::of(|a| {
                a.digest.elapsed = iowhy_stack::units::Nanos(1_000_000_000);
                of(a, 1e6, 1.0);
            })
        };
        let edges: &[AloneEdge] = &[
            ("BEHIND", |a, x| of(a, 1e6, x), 0.5, 0.49),
            ("EACH", |a, x| of(a, x, 1.0), 1e5, 9.9e4),
            ("MUCH", |a, x| a.digest.time.ns[0][READY] = x, 2e8, 1.99e8),
            ("served", |a, x| a.digest.time.ns[3][Layer::Pause as usize] = x, 5e8, 5.01e8),
            ("a quota", |a, x| a.count("cpu_throttled_ns", x as u64), 0.0, 1.0),
        ];
        hold_cost(&RULE, contended, (50.0, 0.85), edges);
        // Behind tasks of its own, on fewer CPUs than there are.
        let bound = || {
            let mut alone = contended();
            of(&mut alone, 1e6, 0.0);
            alone.set("machine", "cpus", "4");
            alone.set("process", "cpus_allowed", "0,2-3");
            alone
        };
        let all: AloneEdge = ("all CPUs", |a, x| a.set("machine", "cpus", &x.to_string()), 4.0, 3.0);
        hold_cost(&RULE, bound, (50.0, 0.85), &[all]);
    }
}
