use crate::{explain_pair, names};

const RULE: &str = "cpu-bound-submission";
const CACHED: &str = "run fio --name=j --rw=randread --random_distribution=zipf:1.1 --bs=4k --size=48m \
                      --number_ios=3000 --iowhy_cache=warm";
const DEEP: &str = "run fio --name=j --rw=randread --bs=4k --size=1g --number_ios=1500 --direct=1 \
                    --ioengine=libaio --iodepth=8";
const ALONE: &str = "run fio --name=j --rw=randwrite --bs=4k --size=1g --number_ios=600 --direct=1";
const STREAM: &str = "run fio --name=j --rw=read --bs=64k --size=16m";

#[test]
fn slower_code_is_found_where_it_is_what_calls_spend_their_time_on() {
    for (job, on, key, disk) in [
        (CACHED, "linux-6.18", "machine.syscall_ns=4000", "nvme"),
        (CACHED, "linux-2.6.18-164.el5", "machine.page_copy_ns=5000", "sata-2010"),
        (CACHED, "linux-4.4", "machine.syscall_ns=4000", "sata-2014"),
        (ALONE, "linux-6.18", "machine.syscall_ns=20000", "nvme"),
    ] {
        let found = explain_pair(
            4,
            &format!("{job} --on sim:{on} --disk {disk}"),
            &format!("{job} --on sim:{on},{key} --disk {disk}"),
        );
        assert_eq!(names(&found).first(), Some(&RULE), "{job} {on} {key}: {found:#?}");
    }
}

#[test]
fn more_work_or_slower_requests_are_not_slower_code() {
    for (job, on, disk, other_on, other_disk) in [
        (CACHED, "linux-6.18", "nvme", "linux-6.18", "nvme"),
        (STREAM, "linux-6.18", "nvme", "linux-6.18,read_ahead_kb=16", "nvme"),
        (STREAM, "linux-6.18", "nvme", "linux-6.18,read_ahead_kb=0", "nvme"),
        (STREAM, "linux-4.4", "sata-2014", "linux-4.4", "sata-2014,media_rate_kb_s=50000"),
        (DEEP, "linux-6.1", "nvme", "linux-6.1", "nvme,queue_depth=1"),
        (DEEP, "linux-6.1", "nvme", "linux-6.1", "nvme,read_us=240"),
        (
            "run fio --name=j --rw=read --bs=512k --size=64m --direct=1",
            "linux-6.18,max_sectors_kb=512",
            "nvme",
            "linux-6.18,max_sectors_kb=32",
            "nvme",
        ),
        (CACHED, "linux-6.18,machine.memory_mb=4096", "nvme", "linux-6.18,machine.memory_mb=1050", "nvme"),
    ] {
        let (a, b) =
            (format!("{job} --on sim:{on} --disk {disk}"), format!("{job} --on sim:{other_on} --disk {other_disk}"));
        let found = explain_pair(4, &a, &b);
        assert!(!names(&found).contains(&RULE), "{a}\n{b}\n{found:#?}");
    }
    let changed = |bs| format!("{STREAM} --bs={bs} --on sim:linux-6.18 --disk nvme");
    let found = explain_pair(4, &changed("16k"), &changed("256k"));
    assert!(!names(&found).contains(&RULE), "{found:#?}");
}
