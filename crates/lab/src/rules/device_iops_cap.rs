//! Somebody lets so many commands a second pass, whatever their size.

use super::device::{Kind, found};
use super::{Match, Rule, Switch};
use crate::explain::delta::Delta;

pub(super) const RULE: Rule = Rule {
    name: "device-iops-cap",
    layer: "device",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Times,
    what: "A cap lets only so many commands a second pass.",
    why: "Beyond the cap a command waits for its turn, however idle the device is.",
    events: "The time from one completion to the next has become constant, and is the same for small commands and \
             large ones; before, it varied and was shorter.",
    example: "A cloud volume with 3000 operations a second, its burst credit used up.",
    change: "Fewer, larger commands (larger read-ahead, merging, larger blocks), or a volume with more operations.",
    refute: "Larger commands move as many bytes a second as small ones did.",
    since: "Every kernel; it is the device, or a limit in front of it (blk-throttle, a hypervisor).",
    consequences: &[],
    switches: &[
        Switch::Other("disk.iops_limit"),
        Switch::Other("disk.burst_iops"),
        Switch::Other("disk.burst_s"),
        Switch::OtherDevice,
    ],
    find,
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    found(delta, Kind::Cap, "a cap lets only so many commands a second pass")
}

#[cfg(test)]
mod tests {
    use crate::rules::tests::{explain_pair, names};

    #[test]
    fn a_cap_on_operations_is_told_from_a_slower_backend() {
        let job = |options: &str, disk: &str| format!("run fio --name=j {options} --on sim:linux-6.18 --disk {disk}");
        let random = "--rw=randread --bs=4k --size=2g --number_ios=300";
        let deep = "--rw=randread --bs=4k --size=2g --number_ios=1000 --direct=1 --ioengine=libaio --iodepth=16";
        for (options, limit) in [(random, 500), (deep, 3000)] {
            let capped = format!("virtio,iops_limit={limit}");
            let found = explain_pair(3, &job(options, "virtio"), &job(options, &capped));
            assert_eq!(names(&found).first(), Some(&"device-iops-cap"), "{limit}: {found:#?}");
            for other in ["virtio,read_us=900", "virtio"] {
                let found = explain_pair(3, &job(options, "virtio"), &job(options, other));
                assert!(!names(&found).contains(&"device-iops-cap"), "{other}: {found:#?}");
            }
        }
    }
}
