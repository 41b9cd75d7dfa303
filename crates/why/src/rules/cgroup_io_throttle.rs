//! A control group's limit holds bios back.

use super::recorded;
use super::{Figure, Match, Rule};
use crate::delta::{Delta, Unit};
use crate::digest::Layer;

pub(super) const RULE: Rule = Rule {
    name: "cgroup-io-throttle",
    layer: "lock/wait",
    needs: super::STATES,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "A limit on a control group's I/O (io.max, blkio.throttle) holds bios back before they reach a queue.",
    why: "Beyond the limit a bio waits until its share of the next slice comes, however idle the device is.",
    events: "Calls sleep before their bios are queued, and a worker of the kernel queues them; the device itself is as \
             fast as before.",
    example: "A container with io.max riops=500; docker run --device-read-bps.",
    change: "Raise or remove the limit (io.max, blkio.throttle.*), or make fewer and larger requests if \
             operations are limited.",
    refute: "Without the limit calls sleep as long before their bios are queued.",
    since: "blk-throttle, since 2.6.37; io.max of control groups v2 since 4.5.",
    consequences: &[
        "device-iops-cap",
        "device-bandwidth",
        "device-latency",
        "lock-serialisation",
        "writeback-throttling",
        "queue-depth-one",
        "cpu-bound-submission",
    ],
    switches: &[super::Switch::OtherJob],
    find,
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    let held = delta.per_operation(|d| d.wall.as_ref().map_or(0.0, |wall| wall.held_back as f64));
    let asleep = delta.time(|time| time.of(Layer::Lock) + time.of(Layer::Journal));
    let limits = recorded::setting(delta, |key| {
        key.contains("throttle.") || key.contains("io.max") || key.contains("io.latency")
    });
    let new_limit = limits.first().filter(|(_, [_, slow])| slow != "unset");
    let seen = held.rose(2.0) && held.rose_by(0.005);
    let grew = asleep.difference() > 0.2 * delta.slower_by();
    if !grew || !(seen || new_limit.is_some()) {
        return None;
    }
    let set = new_limit.map_or(String::new(), |(name, [fast, slow])| format!(" ({name}: {fast} | {slow})"));
    Some(Match {
        confidence: if seen && new_limit.is_some() { 0.98 } else { 0.85 },
        share_ns: None,
        claim: format!(
            "bios are held back before they are queued: {:.2} for each call, against {:.2}{set}",
            held.slow, held.fast
        ),
        evidence: vec![
            Figure::new("bios held back for each call", held, Unit::Ratio),
            Figure::new("time asleep before a bio is queued", recorded::scaled(delta, asleep), Unit::Ns),
        ],
    })
}
