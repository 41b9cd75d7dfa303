use crate::{explain_pair, names};

/// One reads now and then, the other writes back in bursts.
fn readers_and_bursts(on: &str, disk: &str) -> String {
    let time = "--time_based --runtime=8";
    format!(
        "run fio --name=r --rw=randread --bs=4k --size=2g --filename=r --thinktime=15ms {time} --name=w \
         --rw=randwrite --bs=64k --size=2g --rate_iops=80 --fsync=160 --filename=w {time} --on sim:{on} --disk \
         {disk}"
    )
}

#[test]
fn a_read_behind_a_burst_of_writes_is_found() {
    let disk = "sata-2010,queue_depth=1";
    let fair = readers_and_bursts("linux-3.3,elevator=deadline,elevator.fifo_batch=1", disk);
    for other in ["linux-3.3,elevator=noop", "linux-3.3,elevator=deadline,elevator.fifo_batch=1024"] {
        let found = explain_pair(4, &fair, &readers_and_bursts(other, disk));
        assert_eq!(names(&found).first(), Some(&"reads-starved"), "{other}: {found:#?}");
    }
    let slower =
        readers_and_bursts("linux-3.3,elevator=deadline,elevator.fifo_batch=1", "sata-2010,queue_depth=1,rpm=4200");
    let found = explain_pair(4, &fair, &slower);
    assert!(!names(&found).contains(&"reads-starved"), "{found:#?}");
}
