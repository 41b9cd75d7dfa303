use crate::{explain_pair, names};

#[test]
fn pieces_of_a_call_are_found() {
    let job =
        |key: &str| format!("run fio --name=j --rw=randread --size=64m --bs=1m --on sim:linux-6.18{key} --disk nvme");
    let found = explain_pair(3, &job(""), &job(",max_sectors_kb=64"));
    assert_eq!(names(&found).first(), Some(&"read-larger-than-window"), "{found:#?}");
    for key in ["", ",read_ahead_kb=16", ",machine.memory_mb=64"] {
        let found = explain_pair(3, &job(""), &job(key));
        assert!(!names(&found).contains(&"read-larger-than-window"), "{key}: {found:#?}");
    }
}
