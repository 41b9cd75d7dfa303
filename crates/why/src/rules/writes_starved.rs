//! Writes wait with the elevator while reads pass.

use super::{Match, Rule, Switch, reads_starved};
use crate::delta::Delta;

pub(super) const RULE: Rule = Rule {
    name: "writes-starved",
    layer: "elevator",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "Writes wait with the elevator while reads pass them.",
    why: "A preference for reads is right until a task waits for a write: an fsync, a direct write, a log.",
    events: "The time from insertion to issue grows for writes much more than for reads, at as many commands of each.",
    example: "deadline with writes_starved raised; CFQ, whose async queue gets the smallest slices; kyber's tokens.",
    change: "A smaller writes_starved or write_expire; a scheduler that treats synchronous writes as such.",
    refute: "With the other side's scheduler and its tunables writes wait as long.",
    since: "Every kernel; deadline's writes_starved since 2.5.39.",
    consequences: &[],
    switches: &[Switch::Other("elevator"), Switch::OtherKind("elevator."), Switch::Queue("scheduler")],
    find,
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    reads_starved::starved(delta, 1)
}
