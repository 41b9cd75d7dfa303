//! Commands take longer at the device in proportion to their size.

use super::device::{Kind, found};
use super::{Match, Rule, Switch, paced};
use crate::delta::Delta;

pub(super) const RULE: Rule = Rule {
    name: "device-bandwidth",
    layer: "device",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Times,
    what: "The device moves fewer bytes a second.",
    why: "The medium, the link or a cap on bytes sets the time of a large command; a sequential stream waits for it.",
    events: "The time from issue to completion of equal commands is longer in proportion to their size. With commands \
             of one size, completions keep a constant pace that is slower, and each command is large.",
    example: "A SATA port that came up at 1.5 Gbit/s; the inner cylinders of a disk; a volume with 125 MB/s.",
    change: "Read less, or compress; use the outer part of the disk, another link, a volume with a larger allowance.",
    refute: "On the other side's device, with everything else as it is, the difference remains.",
    since: "Every kernel; it is the device.",
    consequences: &[],
    switches: &[Switch::OtherDevice],
    find,
    cost: Some(|facts| paced::cap(facts, false)),
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    found(delta, Kind::Bandwidth, "the device moves fewer bytes a second")
}

#[cfg(test)]
mod tests {
    use super::super::device::tests::{bandwidth, latency};
    use super::super::edges::hold;
    use super::RULE;

    #[test]
    fn limits() {
        hold(&RULE, bandwidth, 0.632, &[("another kind", |p, x| *p = [bandwidth, latency][x as usize](), 0.0, 1.0)]);
    }
}
