use crate::{explain_pair, names};

#[test]
fn lower_dirty_limits_are_named() {
    let job = |options: &str, on: &str| {
        format!(
            "run fio --name=j --bs=64k {options} --on sim:{on},machine.memory_mb=1024,machine.reserved_mb=64 \
             --disk sata-2014"
        )
    };
    let low = ",writeback.dirty_ratio=6,writeback.dirty_background_ratio=3";
    let write = "--rw=write --size=128m";
    for on in ["linux-4.4", "linux-6.18"] {
        let found = explain_pair(3, &job(write, on), &job(write, &format!("{on}{low}")));
        assert_eq!(names(&found).first(), Some(&"writeback-throttling"), "{on}: {found:#?}");
        let found = explain_pair(3, &job(write, on), &job(write, on));
        assert!(!names(&found).contains(&"writeback-throttling"), "{on}: {found:#?}");
    }
    let direct = "--rw=write --size=32m --direct=1";
    let found = explain_pair(3, &job(direct, "linux-4.4"), &job(direct, &format!("linux-4.4{low}")));
    assert!(!names(&found).contains(&"writeback-throttling"), "{found:#?}");
}
