use crate::{explain_pair, names};

#[test]
fn one_at_a_time_is_named_and_a_slow_device_is_not() {
    let job = |options: &str, on: &str, disk: &str| format!("run fio --name=j {options} --on sim:{on} --disk {disk}");
    let tasks = "--rw=randread --bs=16k --size=2g --number_ios=100 --numjobs=4 --direct=1";
    let deep = "--rw=randread --bs=4k --size=2g --number_ios=500 --direct=1 --ioengine=libaio --iodepth=16";
    for (options, on, a, b) in [
        (tasks, "linux-4.4,elevator=noop", "sata-2014", "sata-2014,queue_depth=1"),
        (deep, "linux-6.18", "nvme", "nvme,queue_depth=1"),
        (deep, "linux-6.18,elevator=mq-deadline", "nvme", "nvme,queue_depth=1"),
    ] {
        let found = explain_pair(3, &job(options, on, a), &job(options, on, b));
        assert_eq!(names(&found).first(), Some(&"queue-depth-one"), "{on} {b}: {found:#?}");
    }
    for (a, b) in [
        (job(tasks, "linux-4.4", "sata-2014"), job(tasks, "linux-4.4", "sata-2014,rpm=5400")),
        (job(deep, "linux-6.18", "nvme"), job(deep, "linux-6.18", "nvme,read_us=300")),
        (job(deep, "linux-6.18", "nvme"), job(&deep.replace("=16", "=1"), "linux-6.18", "nvme")),
    ] {
        let found = explain_pair(3, &a, &b);
        assert!(!names(&found).contains(&"queue-depth-one"), "{a} and {b}: {found:#?}");
    }
}
