use crate::{explain_pair, names};

#[test]
fn a_small_cache_is_told_from_other_causes() {
    let job = |key: &str| {
        format!(
            "run fio --name=j --rw=randread --size=32m --bs=4k --number_ios=12000 --norandommap \
             --on sim:linux-6.18{key} --disk nvme"
        )
    };
    let found = explain_pair(3, &job(""), &job(",machine.memory_mb=20"));
    assert_eq!(names(&found).first(), Some(&"cache-too-small"), "{found:#?}");
    for key in ["", ",read_ahead_kb=0", ",elevator=bfq"] {
        let found = explain_pair(3, &job(""), &job(key));
        assert!(!names(&found).contains(&"cache-too-small"), "{key}: {found:#?}");
    }
}
