use crate::{explain_pair, names};

#[test]
fn waking_up_is_told_from_a_slower_device() {
    let job = |options: &str, disk: &str| {
        format!("run fio --name=j --size=1g --bs=4k --number_ios=200 {options} --on sim:linux-3.2.0 --disk {disk}")
    };
    let (pausing, busy) = ("--rw=randread --thinktime=1000", "--rw=randread");
    let mixed = "--rw=randread --thinktime=2000 --thinktime_blocks=4";
    let sleepy = "ssd-sata-2011,idle_threshold_us=200,idle_exit_us=3000";
    for options in [pausing, mixed] {
        let found = explain_pair(3, &job(options, "ssd-sata-2011"), &job(options, sleepy));
        assert_eq!(names(&found).first(), Some(&"device-idle-exit"), "{options}: {found:#?}");
    }
    for (options, other) in [(busy, sleepy), (busy, "ssd-sata-2011,read_us=200"), (mixed, "ssd-sata-2011,read_us=200")]
    {
        let found = explain_pair(3, &job(options, "ssd-sata-2011"), &job(options, other));
        assert!(!names(&found).contains(&"device-idle-exit"), "{options} {other}: {found:#?}");
    }
}
