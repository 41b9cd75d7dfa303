use crate::{explain_pair, names};

#[test]
fn a_slower_arm_or_backend_is_named_and_nothing_above_it() {
    let job = |options: &str, on: &str, disk: &str| format!("run fio --name=j {options} --on sim:{on} --disk {disk}");
    let random = "--rw=randread --bs=4k --size=2g --number_ios=300";
    let deep = "--rw=randread --bs=4k --size=2g --number_ios=1000 --direct=1 --ioengine=libaio --iodepth=16";
    let next = "--rw=read --bs=4k --size=64m --number_ios=500 --direct=1";
    for (options, on, a, b) in [
        (random, "linux-4.4", "sata-2014", "sata-2014,rpm=5400"),
        (random, "linux-6.18", "nvme", "nvme,read_us=200"),
        (deep, "linux-6.18", "virtio", "virtio,read_us=900"),
        // Each command that follows on comes too late for its sector, and waits for a whole turn.
        (next, "linux-4.4", "sata-2014", "sata-2014,lookahead_kb=0"),
    ] {
        let found = explain_pair(3, &job(options, on, a), &job(options, on, b));
        assert_eq!(names(&found).first(), Some(&"device-latency"), "{a} and {b}: {found:#?}");
    }
    for (a, b) in [
        (job(deep, "linux-6.18", "nvme"), job(deep, "linux-6.18,elevator=bfq", "nvme")),
        (job(random, "linux-6.18", "nvme"), job(random, "linux-6.18", "nvme")),
        (job(deep, "linux-6.18", "virtio"), job(deep, "linux-6.18", "virtio,iops_limit=3000")),
    ] {
        let found = explain_pair(3, &a, &b);
        assert!(!names(&found).contains(&"device-latency"), "{a} and {b}: {found:#?}");
    }
}
