//! A control group's CPU quota stops the workload.

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
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    let throttled = recorded::counter(delta, "cpu_throttled_ns");
    let ready = delta.time(|time| time.of(Layer::Ready));
    let limits = recorded::setting(delta, |key| key.contains("cpu.max") || key.contains("cfs_quota"));
    let counted = throttled.difference() > 0.1 * delta.slower_by() * delta.scale();
    if !counted || !ready.rose(1.2) || ready.difference() < 0.2 * delta.slower_by() {
        return None;
    }
    let set = limits.first().map_or(String::new(), |(name, [fast, slow])| format!(" ({name}: {fast} | {slow})"));
    Some(Match {
        confidence: 0.97,
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
