//! Each command takes longer at the device, small ones as much as large ones.

use super::device::{Kind, found};
use super::{Match, Rule, Switch};
use crate::delta::Delta;

pub(super) const RULE: Rule = Rule {
    name: "device-latency",
    layer: "device",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Times,
    what: "Each command takes longer at the device, whatever its size.",
    why: "Seeks, rotation, the time to read flash or the way to a remote volume come once for each command; a task \
          that waits for commands one after the other waits that much longer.",
    events: "The time from issue to completion of equal commands (direction, size, place, load) is longer by about the \
             same amount at each size, and varies as before.",
    example: "A disk of 5400 revolutions a minute in place of one of 7200; a cloud volume in another zone.",
    change: "Keep more commands at the device, ask for fewer and larger ones, or get the old device back.",
    refute: "On the other side's device, with everything else as it is, the difference remains.",
    since: "Every kernel; it is the device.",
    consequences: &[],
    switches: &[Switch::OtherDevice],
    find,
    cost: None,
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    found(delta, Kind::Latency, "each command takes longer at the device")
}

#[cfg(test)]
mod tests {
    use super::super::device::tests::{bandwidth, latency};
    use super::super::edges::hold;
    use super::RULE;

    #[test]
    fn limits() {
        hold(&RULE, latency, 0.632, &[("another kind", |p, x| *p = [latency, bandwidth][x as usize](), 0.0, 1.0)]);
    }
}
