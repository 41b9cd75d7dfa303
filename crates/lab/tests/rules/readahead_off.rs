use crate::{explain_pair, names};

#[test]
fn a_limit_of_nothing_is_told_from_a_small_one() {
    let job = |kernel: &str, key: &str| {
        format!("run fio --name=j --rw=read --size=8m --bs=16k --on sim:{kernel}{key} --disk ssd-sata-2011")
    };
    for kernel in ["linux-2.6.6", "linux-2.6.22", "linux-2.6.38", "linux-4.4", "linux-6.1", "linux-6.18"] {
        let found = explain_pair(3, &job(kernel, ""), &job(kernel, ",read_ahead_kb=0"));
        assert_eq!(names(&found).first(), Some(&"readahead-off"), "{kernel}: {found:#?}");
        let found = explain_pair(3, &job(kernel, ""), &job(kernel, ",read_ahead_kb=8"));
        assert!(!names(&found).contains(&"readahead-off"), "{kernel}: {found:#?}");
    }
}
