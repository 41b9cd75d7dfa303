//! A control group's CPU quota stops the workload.

use super::cost::{Bounds, Cost, Facts};
use super::recorded;
use super::{Figure, Match, Rule};
use crate::delta::{Delta, Unit};
use crate::digest::Layer;

pub(super) const RULE: Rule = Rule {
    name: "cpu-quota",
    layer: "CPU wait",
    needs: super::STATES,
    owns: super::Owns::Ready,
    single: super::Single::Counts,
    what: "A quota of CPU time (cpu.max, cfs_quota_us) stops the tasks of the workload until the next period.",
    why: "When the group has used its quota, none of its tasks runs until the period of 100 ms is over, \
          whatever they wait for.",
    events: "The group's throttled time (cpu.stat) grew, and tasks that could run wait for a CPU.",
    example: "A container with a limit of half a CPU; a systemd unit with CPUQuota=.",
    change: "Raise or remove the quota (cpu.max, cpu.cfs_quota_us, limits.cpu), or use fewer CPU-hungry options.",
    refute: "Without the quota the time by the clock is as long.",
    since: "CFS bandwidth control, since 3.2.",
    consequences: &["cpu-bound-submission", "cpu-contention", "changed-job"],
    switches: &[super::Switch::OtherJob],
    find,
    cost: Some(cost),
};

/// Throttled time over the difference by the clock: tasks that take turns are throttled together.
const THROTTLED: f64 = 0.1;
/// Growth of the time that tasks wait for a CPU.
const MORE: f64 = 1.2;
/// Part of the difference that this growth has to be.
const LEAST_PART: f64 = 0.2;
/// Confidence: the kernel itself counts the throttled time.
const SURE: f64 = 0.97;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let throttled = recorded::counter(delta, "cpu_throttled_ns");
    let ready = delta.time(|time| time.of(Layer::Ready));
    let limits = recorded::setting(delta, |key| key.contains("cpu.max") || key.contains("cfs_quota"));
    let counted = throttled.difference() > THROTTLED * delta.slower_by() * delta.scale();
    if !counted || !ready.rose(MORE) || ready.difference() < LEAST_PART * delta.slower_by() {
        return None;
    }
    let set = limits.first().map_or(String::new(), |(name, [fast, slow])| format!(" ({name}: {fast} | {slow})"));
    Some(Match {
        confidence: SURE,
        share_ns: Some(ready.difference()),
        claim: format!(
            "the control group was throttled for {:.0} ms of CPU time, against {:.0}{set}",
            throttled.slow / 1e6,
            throttled.fast / 1e6
        ),
        evidence: vec![
            Figure::new("throttled time of the control group", throttled, Unit::Ns),
            Figure::new("time that tasks wait for a CPU", recorded::scaled(delta, ready), Unit::Ns),
        ],
    })
}

/// Confidence of the cost, and its bounds.
const ALONE: (f64, Bounds) = (SURE, [0.8, 1.0]);

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let (throttled, ready) = (facts.counter("cpu_throttled_ns"), facts.in_layers(&[Layer::Ready]));
    if throttled < THROTTLED * facts.whole_ns {
        return None;
    }
    let quota = facts.setting(|_, key| key.contains("cpu.max") || key.contains("cfs_quota"));
    let set = quota.map_or(String::new(), |(key, value)| format!(" ({key}: {value})"));
    let (confidence, bounds) = ALONE;
    // Tasks that are stopped together would run together, on as many CPUs as there are.
    let wall = facts.digest.wall.as_ref()?;
    let run = facts.in_layers(&[Layer::Application, Layer::Cpu]);
    let at_once =
        ((wall.ready_ns + run) / (ready + run).max(1.0)).clamp(1.0, facts.cpus().map_or(1.0, |all| all.max(1) as f64));
    let cpu = facts.digest.command.map_or(f64::INFINITY, |command| command.cpu_ns.iter().sum::<u64>() as f64);
    let together = (run - cpu / at_once).max(0.0);
    Some(Cost {
        ns: ready.min(throttled) + together,
        bounds,
        confidence,
        claim: format!(
            "the control group's CPU quota{set} stopped its tasks for {:.0} ms of CPU time",
            throttled / 1e6
        ),
        setting: quota.map_or("cpu.max", |(key, _)| key).to_owned() + " removed or raised",
        evidence: vec![
            ("throttled time of the control group", throttled, Unit::Ns),
            ("time that tasks wait for a CPU", ready, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, sure};
    use super::RULE;
    use crate::digest::{Layer, wall::Wall};
    use iowhy_trace::settings::Command;

    const READY: usize = Layer::Ready as usize;

    /// The slow side waits half a millisecond for a CPU, and was throttled for as long.
    fn throttled() -> Pair {
        Pair::of(|p| {
            p.slow.time.ns[0][READY] = 5e5;
            p.count("cpu_throttled_ns", [0, 500_000]);
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("THROTTLED", |p, x| p.count("cpu_throttled_ns", [100, x as u64]), 10_101.0, 10_100.0),
            ("MORE", |p, x| (p.fast.time.ns[0][READY], p.slow.time.ns[0][READY]) = (1e6, x), 1_200_001.0, 1_200_000.0),
            ("LEAST_PART", |p, x| p.slow.time.ns[0][READY] = x, 200_000.0, 199_999.0),
        ];
        hold(&RULE, throttled, 0.97, edges);
        sure(&RULE, throttled, &[("SURE", |p, x| p.slow.time.ns[0][READY] = x, 1e6, 0.97)]);
    }

    #[test]
    fn costs() {
        let stopped = || {
            Alone::of(|a| {
                a.count("cpu_throttled_ns", 400_000);
                a.digest.time.ns[0][Layer::Ready as usize] = 5e5;
            })
        };
        let edges: &[AloneEdge] =
            &[("THROTTLED, alone", |a, x| a.count("cpu_throttled_ns", x as u64), 100_000.0, 99_999.0)];
        hold_cost(&RULE, stopped, (40.0, 0.89), edges);
        // Two tasks that are stopped together, and would run together.
        let two = || {
            Alone::of(|a| {
                *a = stopped();
                a.set("machine", "cpus", "2");
                a.digest.time.ns[0][Layer::Cpu as usize] = 4e5;
                a.digest.wall = Some(Wall { ready_ns: 1.4e6, ..Wall::default() });
                a.digest.command = Some(Command { cpu_ns: [4e5 as u64, 0], ..Command::default() });
            })
        };
        hold_cost(&RULE, two, (60.0, 0.89), &[]);
    }
}
