use crate::{explain_pair, names};

#[test]
fn a_low_background_limit_is_named() {
    let job = |options: &str, on: &str| {
        format!("run fio --name=j --bs=16k --size=1g --number_ios=800 {options} --on sim:{on} --disk sata-2014")
    };
    let early = ",writeback.dirty_background_ratio=0,writeback.background_stop_ratio=0";
    for on in ["linux-4.4,elevator=deadline", "linux-6.18"] {
        let other = format!("{on}{early}");
        let found = explain_pair(3, &job("--rw=randrw", on), &job("--rw=randrw", &other));
        assert_eq!(names(&found).first(), Some(&"early-writeback"), "{on}: {found:#?}");
        for options in ["--rw=randread", "--rw=randrw --direct=1"] {
            let found = explain_pair(3, &job(options, on), &job(options, &other));
            assert!(!names(&found).contains(&"early-writeback"), "{on}: {found:#?}");
        }
    }
}
