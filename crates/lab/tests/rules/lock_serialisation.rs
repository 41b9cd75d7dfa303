use crate::{explain_pair, names};

const RULE: &str = "lock-serialisation";
const DIRECT: &str = "--rw=randwrite --bs=4k --size=64m --direct=1 --number_ios=150 --numjobs=4 --thread";

fn job(options: &str, on: &str, disk: &str) -> String {
    format!("run fio --name=j {options} --on sim:{on} --disk {disk}")
}

#[test]
fn writers_of_one_file_that_go_one_after_the_other_are_found() {
    let one = format!("{DIRECT} --filename=f");
    for (a, b, disk) in [
        ("linux-4.4,elevator=deadline,direct.inode_lock=shared", "linux-4.4,elevator=deadline", "ssd-sata-2011"),
        ("linux-4.19,elevator=noop,filesystem=xfs", "linux-4.19,elevator=noop", "ssd-sata-2011"),
        ("linux-6.18", "linux-6.18,direct.inode_lock=exclusive", "nvme"),
        ("linux-6.12", "linux-6.12,direct.inode_lock=exclusive", "virtio"),
    ] {
        let found = explain_pair(3, &job(&one, a, disk), &job(&one, b, disk));
        assert_eq!(names(&found).first(), Some(&RULE), "{a} {b}: {found:#?}");
    }
    // Buffered writers of one file against such as have a file each: that is another job, and this is why.
    let buffered = "--rw=randwrite --bs=16k --size=64m --number_ios=1000 --numjobs=4 --thread";
    let (own, shared) = (buffered.to_owned(), format!("{buffered} --filename=f"));
    let found = explain_pair(3, &job(&own, "linux-6.18", "nvme"), &job(&shared, "linux-6.18", "nvme"));
    assert!(names(&found).contains(&RULE), "{found:#?}");
}

#[test]
fn files_of_their_own_slow_devices_and_scarce_tags_are_no_locks() {
    let one = format!("{DIRECT} --filename=f");
    let deep = "--rw=randread --bs=4k --size=1g --number_ios=500 --direct=1 --ioengine=libaio --iodepth=16";
    let cached = "--rw=randread --bs=4k --size=16m --number_ios=1500 --numjobs=4 --filename=f --iowhy_cache=warm";
    for (options, a, b) in [
        // A file each.
        (DIRECT, ("linux-6.18", "nvme"), ("linux-6.18,direct.inode_lock=exclusive", "nvme")),
        // The lock is there on both sides; it is the device that is slower.
        (&one, ("linux-4.4,elevator=noop", "ssd-sata-2011"), ("linux-4.4,elevator=noop", "sata-2014")),
        (&one, ("linux-6.18", "nvme"), ("linux-6.18", "nvme,write_us=90")),
        (deep, ("linux-6.18", "nvme"), ("linux-6.18", "nvme,queue_depth=1")),
        (deep, ("linux-6.18,elevator=mq-deadline", "nvme"), ("linux-6.18,elevator=mq-deadline", "nvme,queue_depth=1")),
        (cached, ("linux-6.18", "nvme"), ("linux-6.18,machine.syscall_ns=6000", "nvme")),
    ] {
        let found = explain_pair(3, &job(options, a.0, a.1), &job(options, b.0, b.1));
        assert!(!names(&found).contains(&RULE), "{options} {b:?}: {found:#?}");
    }
}
