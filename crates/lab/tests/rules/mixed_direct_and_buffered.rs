use crate::{explain_pair, names};

const RULE: &str = "mixed-direct-and-buffered";

/// Direct calls on `f`, buffered ones on `file`, and on another file so that both sides have the same files.
fn job(direct: &str, file: &str, on: &str, disk: &str) -> String {
    format!(
        "run fio --name=d --rw={direct} --bs=4k --size=4m --number_ios=500 --direct=1 --filename=f --name=b \
         --rw=randwrite --bs=4k --size=4m --number_ios=500 --thinktime=20us --filename={file} --name=c \
         --rw=randwrite --bs=4k --size=4m --number_ios=500 --filename=g --on sim:{on} --disk {disk}"
    )
}

#[test]
fn buffered_calls_in_the_way_of_direct_ones_are_found() {
    for (direct, on, disk) in [
        ("randread", "linux-6.18", "nvme"),
        ("randread", "linux-3.3,elevator=deadline", "ssd-sata-2011"),
        ("randread", "linux-6.1", "virtio"),
    ] {
        let found = explain_pair(3, &job(direct, "g", on, disk), &job(direct, "f", on, disk));
        assert_eq!(names(&found).first(), Some(&RULE), "{direct} {on}: {found:#?}");
    }
}

#[test]
fn what_makes_both_kinds_of_calls_slower_is_not_their_mixture() {
    for (file, on, disk, other_on, other_disk) in [
        ("f", "linux-6.18", "nvme", "linux-6.18", "nvme"),
        ("f", "linux-6.18", "nvme", "linux-6.18", "nvme,read_us=240"),
        ("g", "linux-6.18", "nvme", "linux-6.18,machine.syscall_ns=9000", "nvme"),
        ("g", "linux-6.18", "nvme", "linux-6.18", "nvme,read_us=240"),
    ] {
        let found = explain_pair(3, &job("randread", file, on, disk), &job("randread", file, other_on, other_disk));
        assert!(!names(&found).contains(&RULE), "{file} {other_on}: {found:#?}");
    }
}
