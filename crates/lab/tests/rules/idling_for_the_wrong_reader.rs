use crate::{explain_pair, names};

fn job(readers: u32, on: &str) -> String {
    format!(
        "run paralleldd readers={readers} size=64m startup_seeks=4 tool_ns=112 --on sim:linux-4.4{on},\
         filesystem=ext3-4.3,elevator=cfq,page_wait=one-by-one,machine.wake_min_us=10,machine.wake_max_us=190,\
         machine.noise_pct=90 --disk sata-2014"
    )
}

#[test]
fn readers_of_one_file_are_waited_for_in_vain_with_small_windows() {
    let found = explain_pair(16, &job(3, "+readahead-512k"), &job(3, ""));
    assert_eq!(names(&found).first(), Some(&"idling-for-the-wrong-reader"), "{found:#?}");
    for (readers, a, b) in [(3, "", ""), (1, "+readahead-512k", ""), (3, "+readahead-512k", "+readahead-512k")] {
        let found = explain_pair(5, &job(readers, a), &job(readers, b));
        assert!(!names(&found).contains(&"idling-for-the-wrong-reader"), "{readers} {a} {b}: {found:#?}");
    }
}
