use crate::{explain_pair, names};

#[test]
fn an_order_that_jumps_is_named() {
    let job = |options: &str, on: &str, disk: &str| format!("run fio --name=j {options} --on sim:{on} --disk {disk}");
    let streams = "--rw=read --bs=64k --size=16m --numjobs=4";
    let deep = "--rw=randread --bs=16k --size=8g --number_ios=600 --direct=1 --ioengine=libaio --iodepth=32";
    let one = "ide-2004";
    let one_stream = "--rw=read --bs=64k --size=64m";
    let inner = "linux-4.4,filesystem.start_mb=800000";
    for (options, a, b, disk) in [
        (streams, "linux-4.4", "linux-4.4,elevator.slice_idle_ms=0", "sata-2014"),
        (deep, "linux-3.2.0,elevator=deadline", "linux-3.2.0,elevator=noop", one),
    ] {
        let found = explain_pair(3, &job(options, a, disk), &job(options, b, disk));
        assert_eq!(names(&found).first(), Some(&"lost-locality"), "{a} and {b}: {found:#?}");
    }
    for (a, b) in [
        (job(deep, "linux-3.2.0,elevator=noop", one), job(deep, "linux-3.2.0,elevator=noop", "ide-2004,rpm=5400")),
        (job(streams, "linux-4.4", "sata-2014"), job(streams, "linux-4.4", "sata-2014,seek_avg_us=14000")),
        (job(streams, "linux-4.4", "sata-2014"), job(streams, "linux-4.4", "sata-2014")),
        // The file lies elsewhere, which is one long way.
        (job(one_stream, "linux-4.4", "sata-2014"), job(one_stream, inner, "sata-2014")),
    ] {
        let found = explain_pair(3, &a, &b);
        assert!(!names(&found).contains(&"lost-locality"), "{a} and {b}: {found:#?}");
    }
}
