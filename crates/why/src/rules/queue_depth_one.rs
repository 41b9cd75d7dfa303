//! The device gets requests one at a time where it had several.

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "queue-depth-one",
    layer: "elevator",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "The device is given one request (or few) at a time, while others wait.",
    why: "A device with several channels, or one that orders commands itself, works at a fraction of its speed with \
          one command; the rest stand in line above it.",
    events: "As many requests wait, or calls wait for room, as before, but the number at the device does not exceed \
             one (or a quarter of the earlier number).",
    example: "NCQ switched off (queue_depth=1 in sysfs); CFQ that serves one queue at a time on an array.",
    change: "Raise the device's queue_depth; a scheduler without slices (none, mq-deadline); slice_idle=0 on CFQ.",
    refute: "With the other side's queue depth and scheduler the number at the device stays as low.",
    since: "Every kernel; queue_depth in sysfs since 2.6.",
    consequences: &["cpu-bound-submission", "reads-starved", "writes-starved"],
    switches: &[Switch::Other("elevator"), Switch::OtherDevice, Switch::Queue("scheduler")],
    find,
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    let deepest = delta.of(|d| f64::from(d.commands.deepest));
    let waiting = delta.of(|d| d.commands.waiting() as f64 / d.elapsed.0.max(1) as f64);
    let overlapping =
        delta.of(|d| d.workload.overlapping as f64 / (d.workload.calls[0] + d.workload.calls[1]).max(1) as f64);
    let calls = delta.of(|d| f64::from(d.workload.concurrency));
    let limit = delta.of(|d| f64::from(d.commands.depth_limit()));
    let held = waiting.slow > 0.1 && limit.slow <= deepest.fast / 2.0 && waiting.difference() > 0.05;
    // Callers that find no tag wait before they have a request.
    let kept_out = overlapping.slow > 0.5 && calls.slow > deepest.slow && deepest.fast >= 4.0 * deepest.slow;
    let lower = deepest.fast >= 2.0 * deepest.slow.max(limit.slow) && deepest.sure();
    // Without requests the depth is unknown.
    if !(lower && (held || kept_out)) || deepest.slow < 1.0 {
        return None;
    }
    Some(Match {
        confidence: grade(deepest.fast / deepest.slow.max(1.0), 1.3, 3.0),
        share_ns: None,
        claim: format!(
            "the device has {:.0} requests at most where it had {:.0}, while others wait",
            deepest.slow, deepest.fast
        ),
        evidence: vec![
            Figure::new("most requests at the device", deepest, Unit::Count),
            Figure::new("requests at the device while others wait", limit, Unit::Count),
            Figure::new("share of the time with requests waiting", waiting, Unit::Share),
            Figure::new("most calls in progress", calls, Unit::Count),
        ],
    })
}
