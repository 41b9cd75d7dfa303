use crate::{explain_pair, names};

fn writers(keys: &str, options: &str) -> String {
    format!(
        "run fio --name=j --rw=randwrite --filename=/dev/mapper/zzz --size=25g --norandommap --direct=1 \
         --iodepth=64 --iodepth_batch_complete=16 --iodepth_batch_submit=16 --ioengine=libaio \
         --offset_increment=50g --ramp_time=150ms --iowhy_actor=blkid --iowhy_probe_delay=5ms-15ms --bs=4k \
         --numjobs=2 --thread --number_ios=12000 {options} \
         --on sim:{keys},machine=xeon-2012,machine.tool_ns=500,machine.bio_ns=1200,machine.noise_pct=20 \
         --disk zero,nr_sectors=4000000000000"
    )
}

#[test]
fn pages_of_others_are_found_whether_they_are_always_there_or_by_chance() {
    let kernel = "linux-3.2.0,direct.slot_ps=1560";
    let clean = writers(kernel, "--iowhy_open_stagger=1ms");
    let stale = explain_pair(4, &clean, &writers(kernel, "--iowhy_open_stagger=0"));
    assert_eq!(names(&stale).first(), Some(&"stale-pages-under-direct-io"), "{stale:#?}");
    assert!(!names(&stale).contains(&"cpu-bound-submission"), "{stale:#?}");
    // The other way round it is an improvement for the same reason.
    let better = explain_pair(4, &writers(kernel, "--iowhy_open_stagger=0"), &clean);
    assert_eq!(names(&better).first(), Some(&"stale-pages-under-direct-io"), "{better:#?}");
}

#[test]
fn others_pages_that_cost_nothing_or_no_pages_at_all_are_not_named() {
    let kernel = "linux-3.2.0,direct.slot_ps=1560";
    let clean = writers(kernel, "--iowhy_open_stagger=1ms");
    let slower = writers(&format!("{kernel},machine.syscall_ns=8000"), "--iowhy_open_stagger=1ms");
    let free = writers("linux-6.18,direct.invalidate_ns=0", "--iowhy_open_stagger=0");
    let free_clean = writers("linux-6.18,direct.invalidate_ns=0", "--iowhy_open_stagger=1ms");
    for (a, b) in [(&clean, &clean), (&clean, &slower), (&free_clean, &free)] {
        let found = explain_pair(4, a, b);
        assert!(!names(&found).contains(&"stale-pages-under-direct-io"), "{a}\n{b}\n{found:#?}");
    }
}
