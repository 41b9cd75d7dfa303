use crate::{explain_pair, names};

fn job(file: &str, disk: &str, keys: &str) -> String {
    format!(
        "run fio --name=r --rw=randread --filename=f --size=16m --number_ios=600 --bs=4k --name=w --rw=randwrite \
         --filename={file} --size=16m --number_ios=2000 --bs=4k --direct=1 --thread --on sim:linux-3.3{keys} \
         --disk {disk}"
    )
}

#[test]
fn dear_invalidation_is_found_and_told_from_a_slow_machine() {
    for disk in ["nvme", "zero"] {
        let dear = ",direct.invalidate_ns=20000";
        let found = explain_pair(4, &job("f", disk, ""), &job("f", disk, dear));
        assert_eq!(names(&found).first(), Some(&"invalidation-cost"), "{found:#?}");
        for (a, b) in [
            (job("f", disk, ""), job("f", disk, "")),
            (job("f", disk, ""), job("f", disk, ",machine.syscall_ns=20000")),
            (job("g", disk, ""), job("g", disk, dear)),
        ] {
            let found = explain_pair(4, &a, &b);
            assert!(!names(&found).contains(&"invalidation-cost"), "{a}\n{b}\n{found:#?}");
        }
    }
}
