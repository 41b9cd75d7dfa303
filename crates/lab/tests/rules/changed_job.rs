use crate::{explain_pair, names};

fn job(options: &str, on: &str) -> String {
    format!("run fio --name=j --size=64m --number_ios=300 {options} --on sim:{on} --disk sata-2014")
}

#[test]
fn another_job_is_no_work_of_the_kernel() {
    for (a, b) in [
        ("--rw=randread --bs=4k", "--rw=randread --bs=256k"),
        ("--rw=randread --bs=4k", "--rw=randread --bs=4k --numjobs=3"),
        ("--rw=write --bs=4k", "--rw=write --bs=4k --fsync=4"),
        ("--rw=read --bs=4k", "--rw=randread --bs=4k"),
        ("--rw=write --bs=16k", "--rw=write --bs=16k --direct=1"),
    ] {
        let found = explain_pair(5, &job(a, "linux-4.4"), &job(b, "linux-4.4"));
        assert_eq!(names(&found).first(), Some(&"changed-job"), "{a} and {b}: {found:#?}");
    }
}

#[test]
fn what_lies_below_a_job_does_not_change_it() {
    for (options, a, b) in [
        ("--rw=randread --bs=4k", "linux-4.4", "linux-4.4"),
        ("--rw=read --bs=16k --numjobs=4", "linux-4.4", "linux-4.4,read_ahead_kb=0"),
        ("--rw=read --bs=16k --ioengine=mmap", "linux-6.18", "linux-6.18,read_ahead_kb=0"),
        ("--rw=randrw --bs=16k --numjobs=4", "linux-2.6.22", "linux-2.6.6"),
        ("--rw=write --bs=64k --numjobs=4", "linux-6.18", "linux-6.18,machine.memory_mb=16"),
    ] {
        let found = explain_pair(3, &job(options, a), &job(options, b));
        assert!(!names(&found).contains(&"changed-job"), "{options} on {b}: {found:#?}");
    }
}
