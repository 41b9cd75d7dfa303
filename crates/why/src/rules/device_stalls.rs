//! A few commands take very long.

use super::{Figure, Match, Rule, grade};
use crate::delta::{Delta, Unit};
use crate::digest::Digest;

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
};

/// A command is stalled beyond this number of medians of its kind.
const STALLED: f64 = 12.0;

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
    let alike = (0.5..2.0).contains(&median.ratio()) && deepest.ratio() < 3.0;
    let own = excess.difference() / whole.difference().max(1.0);
    if !alike || !excess.rose(3.0) || whole.difference() < 0.3 * delta.slower_by() || own < 0.6 {
        return None;
    }
    Some(Match {
        confidence: grade(excess.ratio(), 2.0, 6.0).min(0.85),
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
