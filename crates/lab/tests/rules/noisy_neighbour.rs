use crate::{explain_pair, names};

const WRITES_BACK: &str = "linux-4.4,elevator=deadline,writeback.dirty_background_ratio=0,\
                           writeback.background_stop_ratio=0";

#[test]
fn writing_back_what_the_workload_has_written_is_no_neighbour() {
    let job = |options: &str, on: &str| {
        format!("run fio --name=j --bs=16k --size=1g --number_ios=400 {options} --on sim:{on} --disk sata-2014")
    };
    for options in ["--rw=randrw", "--rw=randrw --fsync=20", "--rw=randwrite --direct=1"] {
        let found = explain_pair(3, &job(options, "linux-4.4,elevator=deadline"), &job(options, WRITES_BACK));
        assert!(!names(&found).contains(&"noisy-neighbour"), "{options}: {found:#?}");
    }
}
