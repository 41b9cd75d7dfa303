use crate::{explain_pair, names};

#[test]
fn a_slower_medium_link_or_cap_on_bytes_is_named() {
    let job = |options: &str, on: &str, disk: &str| format!("run fio --name=j {options} --on sim:{on} --disk {disk}");
    let stream = "--rw=read --bs=64k --size=32m";
    for (on, a, b) in [
        ("linux-4.4", "sata-2014", "sata-2014,media_rate_kb_s=90000,inner_rate_kb_s=50000"),
        ("linux-3.2.0", "ssd-sata-2011", "ssd-sata-2011,link_rate_kb_s=100000"),
        ("linux-6.18", "virtio", "virtio,bw_limit_mb=60"),
    ] {
        let found = explain_pair(3, &job(stream, on, a), &job(stream, on, b));
        assert_eq!(names(&found).first(), Some(&"device-bandwidth"), "{a} and {b}: {found:#?}");
    }
    // The same disk farther in.
    let (outer, inner) = ("linux-4.4", "linux-4.4,filesystem.start_mb=800000");
    let long = "--rw=read --bs=64k --size=64m";
    let found = explain_pair(3, &job(long, outer, "sata-2014"), &job(long, inner, "sata-2014"));
    assert_eq!(names(&found), ["device-bandwidth"], "{found:#?}");
    let random = "--rw=randread --bs=4k --size=1g --number_ios=300";
    for (a, b) in [
        (job(random, "linux-4.4", "sata-2014"), job(random, "linux-4.4", "sata-2014,rpm=5400")),
        (job(stream, "linux-4.4", "sata-2014"), job(stream, "linux-4.4", "sata-2014")),
    ] {
        let found = explain_pair(3, &a, &b);
        assert!(!names(&found).contains(&"device-bandwidth"), "{a} and {b}: {found:#?}");
    }
}
