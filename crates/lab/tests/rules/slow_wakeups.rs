use crate::{explain_pair, names};

#[test]
fn late_wakeups_are_told_from_slower_code() {
    let job = |options: &str, on: &str| format!("run fio --name=j {options} --on sim:linux-6.18{on} --disk nvme");
    let alone = "--rw=randread --bs=4k --size=2g --number_ios=300";
    let stream = "--rw=read --bs=16k --size=16m";
    let direct = "--rw=randwrite --bs=4k --size=1g --number_ios=300 --direct=1";
    let wake = ",machine.wake_min_us=100,machine.wake_max_us=200";
    for options in [alone, stream, direct] {
        let found = explain_pair(3, &job(options, ""), &job(options, wake));
        assert_eq!(names(&found).first(), Some(&"slow-wakeups"), "{options}: {found:#?}");
        assert!(!names(&found).contains(&"cpu-bound-submission"), "{options}: {found:#?}");
        for other in [",machine.syscall_ns=20000", ",machine.page_copy_ns=5000", ""] {
            let found = explain_pair(3, &job(options, ""), &job(options, other));
            assert!(!names(&found).contains(&"slow-wakeups"), "{options}{other}: {found:#?}");
        }
    }
}
