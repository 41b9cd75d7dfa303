use crate::{explain_pair, names};

#[test]
fn time_between_calls_is_the_programs_and_time_in_them_is_not() {
    let job = |options: &str, disk: &str| format!("run fio --name=j {options} --on sim:linux-6.18 --disk {disk}");
    let alone = "--rw=randread --bs=4k --size=2g --number_ios=300";
    let four = "--rw=randread --bs=4k --size=1g --number_ios=200 --numjobs=4";
    let batches = "--rw=randread --bs=4k --size=2g --number_ios=1000 --direct=1 --ioengine=libaio --iodepth=32 \
                   --iodepth_batch_submit=16 --iodepth_batch_complete=16";
    for options in [alone, four] {
        let found = explain_pair(3, &job(options, "nvme"), &job(&format!("{options} --thinktime=1ms"), "nvme"));
        assert_eq!(names(&found).first(), Some(&"program-pauses"), "{options}: {found:#?}");
    }
    for options in [alone, four, batches] {
        for other in ["nvme,read_us=300", "nvme"] {
            let found = explain_pair(3, &job(options, "nvme"), &job(options, other));
            assert!(!names(&found).contains(&"program-pauses"), "{options} on {other}: {found:#?}");
        }
    }
}
