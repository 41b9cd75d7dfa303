use crate::{explain_pair, names};

#[test]
fn indirect_blocks_are_named_and_not_a_cap_or_the_elevator() {
    let job =
        |on: &str| format!("run fio --name=j --rw=read --bs=64k --size=64m --on sim:linux-4.4,{on} --disk sata-2014");
    let found = explain_pair(3, &job("filesystem=xfs"), &job("filesystem=ext3-4.3"));
    assert_eq!(names(&found), ["metadata-reads"], "{found:#?}");
    for (a, b) in [
        ("filesystem=ext3-4.3", "filesystem=ext3-4.3,read_ahead_kb=16"),
        ("filesystem=xfs", "filesystem=xfs,filesystem.start_mb=800000"),
    ] {
        let found = explain_pair(3, &job(a), &job(b));
        assert!(!names(&found).contains(&"metadata-reads"), "{a} and {b}: {found:#?}");
    }
}
