use crate::{explain_pair, names};

#[test]
fn victims_are_told_from_a_smaller_cache() {
    let job = |on: &str| {
        format!(
            "run fio --name=j --rw=randread --ioengine=mmap --fadvise_hint=random --norandommap \
             --random_distribution=zipf:1.1 --bs=4k --number_ios=30000 --size=64m --on sim:{on} --disk nvme"
        )
    };
    let slow = "linux-6.18,machine.memory_mb=32";
    let found = explain_pair(5, &job("linux-6.1,machine.memory_mb=32"), &job(slow));
    assert_eq!(names(&found).first(), Some(&"hinted-pages-evicted"), "{found:#?}");
    for on in [slow, "linux-6.18,machine.memory_mb=48"] {
        let found = explain_pair(5, &job(on), &job(slow));
        assert!(!names(&found).contains(&"hinted-pages-evicted"), "{on}: {found:#?}");
    }
}
