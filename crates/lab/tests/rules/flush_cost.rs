use crate::{explain_pair, names};

#[test]
fn barriers_and_slow_flushes_are_named() {
    let job = |on: &str, disk: &str| {
        format!(
            "run fio --name=j --rw=randwrite --bs=4k --size=64m --number_ios=150 --fsync=1 --on sim:{on} --disk \
             {disk}"
        )
    };
    for (a, b, disk_a, disk_b) in [
        ("linux-4.4,filesystem.barriers=off", "linux-4.4", "sata-2014", "sata-2014"),
        ("linux-4.4,write_cache=off", "linux-4.4", "sata-2014", "sata-2014"),
        ("linux-6.18", "linux-6.18", "virtio", "virtio,flush_us=5000"),
    ] {
        let found = explain_pair(3, &job(a, disk_a), &job(b, disk_b));
        assert_eq!(names(&found).first(), Some(&"flush-cost"), "{a} and {b}, {disk_b}: {found:#?}");
        let [flushes, sync, ..] = &found.findings[0].evidence[..] else { panic!("{found:#?}") };
        assert!(flushes.a <= sync.a && flushes.b <= sync.b, "more than a sync takes: {found:#?}");
    }
    for (a, b) in [("virtio", "virtio,write_us=3000"), ("virtio", "virtio")] {
        let found = explain_pair(3, &job("linux-6.18", a), &job("linux-6.18", b));
        assert_ne!(names(&found).first(), Some(&"flush-cost"), "{a} and {b}: {found:#?}");
    }
}
