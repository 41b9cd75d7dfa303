use crate::{explain_pair, names};

#[test]
fn advice_is_told_from_a_limit_of_nothing() {
    let job = |options: &str, on: &str| {
        format!("run fio --name=j --rw=read --size=8m --bs=16k {options} --on sim:{on} --disk ssd-sata-2011")
    };
    for kernel in ["linux-2.6.38", "linux-4.4", "linux-6.18"] {
        let found = explain_pair(3, &job("", kernel), &job("--fadvise_hint=random", kernel));
        assert_eq!(names(&found).first(), Some(&"random-advice"), "{kernel}: {found:#?}");
    }
    for on in ["linux-6.18", "linux-6.18,read_ahead_kb=0", "linux-6.18,read_ahead_kb=8"] {
        let found = explain_pair(3, &job("", "linux-6.18"), &job("", on));
        assert!(!names(&found).contains(&"random-advice"), "{on}: {found:#?}");
    }
}
