use crate::{explain_pair, names};

#[test]
fn windows_that_push_each_other_out_are_found() {
    let job = |size: u32, memory: u32, window: u32| {
        format!(
            "run fio --name=j --rw=read --size={size}m --bs=4k --numjobs=8 --thread \
             --on sim:linux-4.4,machine.memory_mb={memory},read_ahead_kb={window} --disk sata-2014"
        )
    };
    let found = explain_pair(2, &job(16, 32, 128), &job(16, 32, 4096));
    assert_eq!(names(&found).first(), Some(&"window-too-large"), "{found:#?}");
    // Windows that just fit are a gain, and nothing is too large without a difference.
    for window in [128, 2048] {
        let found = explain_pair(2, &job(8, 16, 128), &job(8, 16, window));
        assert!(!names(&found).contains(&"window-too-large"), "{window}: {found:#?}");
    }
}
