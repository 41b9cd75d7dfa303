use crate::{explain_pair, names};

#[test]
fn calls_that_go_to_workers_are_told_from_slower_code() {
    let job = |on: &str| {
        format!(
            "run fio --name=j --bs=4k --ioengine=io_uring --filesize=2m --nrfiles=64 --iodepth=16 --rw=randread \
             --iowhy_cache=warm --number_ios=2000 --on sim:linux-6.1{on}"
        )
    };
    let before = ",filesystem.nowait=off,machine.cpus=1";
    let after = "+ring-fmode-nowait,filesystem.nowait=off,machine.cpus=1";
    let found = explain_pair(2, &job(before), &job(after));
    assert_eq!(names(&found), ["calls-to-workers"], "{found:#?}");
    for (a, b) in [
        (before, ",filesystem.nowait=off,machine.cpus=1,machine.page_copy_ns=2000"),
        (after, "+ring-fmode-nowait,filesystem.nowait=off,machine.cpus=1,machine.page_copy_ns=2000"),
        (before, before),
        (after, after),
        (",machine.cpus=1", "+ring-fmode-nowait,machine.cpus=1"),
    ] {
        let found = explain_pair(2, &job(a), &job(b));
        assert!(!names(&found).contains(&"calls-to-workers"), "{a} and {b}: {found:#?}");
    }
}
