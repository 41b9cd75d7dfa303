use crate::{explain_pair, names};

#[test]
fn small_windows_are_found_on_every_kernel() {
    let job = |kernel: &str, key: &str| {
        format!("run fio --name=j --rw=read --size=8m --bs=16k --numjobs=3 --on sim:{kernel}{key} --disk nvme")
    };
    for kernel in ["linux-2.6.22", "linux-2.6.38", "linux-4.4", "linux-6.18"] {
        let found = explain_pair(3, &job(kernel, ""), &job(kernel, ",read_ahead_kb=16"));
        assert_eq!(names(&found).first(), Some(&"window-too-small"), "{kernel}: {found:#?}");
        for key in ["", ",read_ahead_kb=0", ",nr_requests=8"] {
            let found = explain_pair(3, &job(kernel, ""), &job(kernel, key));
            assert!(!names(&found).contains(&"window-too-small"), "{kernel}, {key}: {found:#?}");
        }
    }
}
