use crate::{explain_pair, names};

fn job(on: &str, disk: &str) -> String {
    format!(
        "run dd if=/dev/zero of=/dev/sdb bs=4096 count=1000 oflag=direct writers=2 distance=125g jitter=16m \
         --on sim:linux-2.6.18-186.el5{on} --disk sata-2010,write_cache_slots=37{disk}"
    )
}

#[test]
fn writers_that_exclude_each_other_are_named() {
    let found = explain_pair(64, &job("+without-cfq-hash-removal", ""), &job("", ""));
    assert_eq!(names(&found).first(), Some(&"async-queue-per-task"), "{found:#?}");
    for (a, b) in [
        (job("", ""), job("", "")),
        (job("", ""), job("", ",tfw_us=200")),
        (job("+without-cfq-hash-removal", ""), job("+without-cfq-hash-removal", ",tfw_us=200")),
    ] {
        let found = explain_pair(5, &a, &b);
        assert!(!names(&found).contains(&"async-queue-per-task"), "{a} and {b}: {found:#?}");
    }
}
