use crate::{explain_pair, names};

#[test]
fn windows_around_faults_are_found() {
    let job = |how: &str, on: &str| format!("run fio --name=j --ioengine=mmap --bs=4k {how} --on sim:{on} --disk nvme");
    let random = "--rw=randread --fadvise_hint=0 --size=8g --number_ios=300";
    let dense = "--rw=read --size=8m";
    for (how, fast, slow) in
        [(random, "linux-4.4", "linux-4.4,read_ahead_kb=4096"), (random, "linux-6.18", "linux-6.18,read_ahead_kb=4096")]
    {
        let found = explain_pair(3, &job(how, fast), &job(how, slow));
        assert_eq!(names(&found).first(), Some(&"mmap-read-around"), "{slow}: {found:#?}");
        let found = explain_pair(3, &job(how, fast), &job(how, fast));
        assert!(names(&found).is_empty(), "{fast}: {found:#?}");
    }
    let found = explain_pair(3, &job(dense, "linux-6.18"), &job(dense, "linux-6.18,read_ahead_kb=0"));
    assert!(!names(&found).contains(&"mmap-read-around"), "{found:#?}");
}
