//! A limit lets a number of commands a second pass, whatever their size.

use super::device::{Kind, found};
use super::{Match, Rule, Switch, paced};
use crate::delta::Delta;

pub(super) const RULE: Rule = Rule {
    name: "device-iops-cap",
    layer: "device",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Times,
    what: "A cap limits the commands a second.",
    why: "Beyond the cap a command waits for its turn, however idle the device is.",
    events: "The time from one completion to the next has become constant, and is the same for small commands and \
             large ones; before, it varied and was shorter.",
    example: "A cloud volume with 3000 operations a second, its burst credit used up.",
    change: "Fewer, larger commands (larger read-ahead, merging, larger blocks), or a volume with more operations.",
    refute: "Larger commands move as many bytes a second as small ones did.",
    since: "Every kernel; it is the device, or a limit in front of it (blk-throttle, a hypervisor).",
    consequences: &["device-latency"],
    switches: &[
        Switch::Other("disk.iops_limit"),
        Switch::Other("disk.burst_iops"),
        Switch::Other("disk.burst_s"),
        Switch::OtherDevice,
    ],
    find,
    cost: Some(|facts| paced::cap(facts, true)),
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    found(delta, Kind::Cap, "a cap limits the commands a second")
}

#[cfg(test)]
mod tests {
    use super::super::device::tests::{cap, latency};
    use super::super::edges::hold;
    use super::RULE;

    #[test]
    fn limits() {
        hold(&RULE, cap, 0.632, &[("another kind", |p, x| *p = [cap, latency][x as usize](), 0.0, 1.0)]);
    }
}
