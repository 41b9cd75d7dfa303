use crate::{explain_pair, names};

#[test]
fn a_poll_that_says_ready_is_named_and_other_changes_are_not() {
    let job = |options: &str, on: &str, disk: &str| {
        format!(
            "run fio --name=j --rw=randread --bs=4k --filesize=1g --direct=1 --number_ios=500 {options} \
             --on sim:{on} --disk {disk}"
        )
    };
    let (ring, deep, disk) = ("--ioengine=io_uring --iodepth=4", "--ioengine=io_uring --iodepth=16", "virtio");
    let rule = "calls-wait-in-submission";
    for (options, on) in
        [(ring, "linux-6.14"), (deep, "linux-6.14"), (ring, "linux-6.1"), (ring, "linux-6.11+ring-poll")]
    {
        let on = format!("{on},filesystem=fuse");
        let found = explain_pair(3, &job(options, "linux-6.11,filesystem=fuse", disk), &job(options, &on, disk));
        assert_eq!(names(&found).first(), Some(&rule), "{options} {on}: {found:#?}");
    }
    for (a, b) in [
        // A slower server, on either side of the change.
        (job(ring, "linux-6.11,filesystem=fuse", disk), job(ring, "linux-6.11,filesystem=fuse", "virtio,read_us=900")),
        (job(ring, "linux-6.14,filesystem=fuse", disk), job(ring, "linux-6.14,filesystem=fuse", "virtio,read_us=900")),
        // Calls that are on their way when they have been handed in, on both sides.
        (job(ring, "linux-6.14", disk), job(ring, "linux-6.14", "virtio,read_us=900")),
        (job(ring, "linux-6.14", disk), job("--ioengine=io_uring --iodepth=1", "linux-6.14", disk)),
    ] {
        let found = explain_pair(3, &a, &b);
        assert!(!names(&found).contains(&rule), "{a} and {b}: {found:#?}");
    }
}
