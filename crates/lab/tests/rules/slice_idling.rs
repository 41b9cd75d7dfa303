use crate::{explain_pair, names};

#[test]
fn idling_is_named_where_it_costs() {
    let job = |options: &str, on: &str, disk: &str| format!("run fio --name=j {options} --on sim:{on} --disk {disk}");
    let mixed = "--rw=randrw --rwmixread=50 --bs=8k --size=1g --number_ios=200 --numjobs=4 --direct=1";
    let thinking = "--randrepeat=0 --rw=read --bs=64k --size=8m --numjobs=4 --thinktime=2ms --thinktime_blocks=1";
    let cfq = |ms: u32| format!("linux-4.4,elevator=cfq,elevator.slice_idle_ms={ms}");
    for (options, a, b, disk) in
        [(thinking, &cfq(0), &cfq(8), "sata-2014"), (thinking, &cfq(0), &cfq(8), "sata-2014,queue_depth=1")]
    {
        let found = explain_pair(3, &job(options, a, disk), &job(options, b, disk));
        assert_eq!(names(&found).first(), Some(&"slice-idling"), "{a} and {b}: {found:#?}");
    }
    let syncs = "--rw=randwrite --bs=4k --size=64m --number_ios=100 --fsync=1";
    for (a, b) in [
        (job(mixed, "linux-6.18,elevator=bfq", "nvme"), job(mixed, "linux-6.18,elevator=bfq", "nvme,read_us=300")),
        // Tasks that begin together are one program to BFQ, and on flash it waits for none of them.
        (job(mixed, "linux-6.18", "nvme"), job(mixed, "linux-6.18,elevator=bfq", "nvme")),
        (job(syncs, "linux-4.4,filesystem.barriers=off", "sata-2014"), job(syncs, "linux-4.4", "sata-2014")),
    ] {
        let found = explain_pair(3, &a, &b);
        assert!(!names(&found).contains(&"slice-idling"), "{a} and {b}: {found:#?}");
    }
}
