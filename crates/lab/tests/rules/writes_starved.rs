use crate::{explain_pair, names};

#[test]
fn a_write_behind_many_readers_is_found() {
    let job = |keys: &str, disk: &str| {
        let time = "--time_based --runtime=8";
        format!(
            "run fio --name=w --rw=randwrite --bs=4k --size=2g --direct=1 --filename=w --thinktime=15ms {time} \
             --name=r --rw=randread --bs=4k --size=4g --direct=1 --numjobs=24 --thinktime=1s --thinktime_blocks=3 \
             --filename=r {time} --on sim:linux-3.3,elevator=deadline,elevator.fifo_batch=1,{keys} --disk \
             sata-2010,queue_depth=1{disk}"
        )
    };
    let fair = job("elevator.writes_starved=1", "");
    let starved = job("elevator.writes_starved=50,elevator.write_expire_ms=60000", "");
    let found = explain_pair(4, &fair, &starved);
    assert_eq!(names(&found).first(), Some(&"writes-starved"), "{found:#?}");
    let slower = explain_pair(4, &fair, &job("elevator.writes_starved=1", ",rpm=5400"));
    assert!(!names(&slower).contains(&"writes-starved"), "{slower:#?}");
}

#[test]
fn a_slower_device_starves_nobody() {
    let job = |disk: &str| {
        format!(
            "run fio --name=j --rw=randrw --bs=8k --size=1g --number_ios=100 --numjobs=4 --direct=1 \
             --on sim:linux-6.18,elevator=mq-deadline --disk {disk}"
        )
    };
    for disk in ["sata-2014,rpm=5400", "sata-2014", "sata-2014,queue_depth=1"] {
        let found = explain_pair(3, &job("sata-2014"), &job(disk));
        let starved = |name: &&str| name.ends_with("-starved");
        assert!(!names(&found).iter().any(starved), "{disk}: {found:#?}");
    }
}
