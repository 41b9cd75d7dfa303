use crate::{explain_pair, names};

#[test]
fn a_lower_limit_is_named_and_smaller_windows_are_not_called_one() {
    let job = |options: &str, on: &str, disk: &str| format!("run fio --name=j {options} --on sim:{on} --disk {disk}");
    let direct = "--rw=read --size=32m --bs=1m --direct=1";
    let writer = "--rw=write --size=32m --bs=1m --end_fsync=1";
    for (options, on, key, disk) in [
        (direct, "linux-6.18", "max_sectors_kb=16", "virtio,iops_limit=2000"),
        (direct, "linux-4.4", "max_sectors_kb=16", "virtio,iops_limit=2000"),
        (writer, "linux-2.6.18-164.el5", "max_sectors_kb=32", "sata-2010"),
    ] {
        let found = explain_pair(3, &job(options, on, disk), &job(options, &format!("{on},{key}"), disk));
        assert_eq!(names(&found).first(), Some(&"requests-cut"), "{on} {key}: {found:#?}");
    }
    let reader = "--rw=read --size=32m --bs=64k";
    for (a, b) in [
        (job(reader, "linux-6.18", "virtio"), job(reader, "linux-6.18,read_ahead_kb=16", "virtio")),
        (job(direct, "linux-6.18", "virtio"), job(direct, "linux-6.18", "virtio,read_us=2000")),
        (job(direct, "linux-6.18", "virtio"), job(direct, "linux-6.18", "virtio")),
    ] {
        let found = explain_pair(3, &a, &b);
        assert!(!names(&found).contains(&"requests-cut"), "{a} and {b}: {found:#?}");
    }
}
