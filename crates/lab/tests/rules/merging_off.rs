use crate::{explain_pair, names};

fn job(depth: u32, rw: &str, on: &str, disk: &str) -> String {
    format!(
        "run fio --name=j --rw={rw} --bs=4k --size=4m --direct=1 --ioengine=libaio --iodepth={depth} \
         --iodepth_batch_submit=16 --iodepth_batch_complete=16 --on sim:{on} --disk {disk}"
    )
}

#[test]
fn nomerges_under_a_job_whose_bios_join_is_found() {
    for (rw, on, disk) in [
        ("read", "linux-2.6.38,elevator=deadline", "sata-2010"),
        ("read", "linux-4.4,elevator=noop", "sata-2014,queue_depth=1"),
        ("read", "linux-6.18,nr_requests=64", "sata-2014,queue_depth=1"),
    ] {
        let found = explain_pair(3, &job(32, rw, on, disk), &job(32, rw, &format!("{on},nomerges=2"), disk));
        assert_eq!(names(&found).first(), Some(&"merging-off"), "{on}: {found:#?}");
        assert!(!names(&found).contains(&"requests-cut"), "{on}: {found:#?}");
    }
}

/// Bios of one io_submit join in its plug, which heeds `nomerges` in later kernels only.
#[test]
fn a_plug_that_does_not_heed_nomerges_hides_it() {
    let (on, disk) = ("linux-3.3,elevator=deadline", "sata-2010,queue_depth=1");
    let b = job(32, "write", &format!("{on},nomerges=2"), disk);
    let found = explain_pair(3, &job(32, "write", on, disk), &b);
    assert_eq!((found.change_pct, names(&found)), (0.0, Vec::new()), "{found:#?}");
}

#[test]
fn what_nomerges_does_not_touch_and_smaller_requests_are_not_called_so() {
    let (old, disk) = ("linux-4.4,elevator=deadline", "sata-2014,queue_depth=1");
    for (depth, key, other) in [
        // A stream joins the request that was joined last.
        (32, "nomerges=1", disk),
        (1, "nomerges=2", disk),
        (32, "max_sectors_kb=16", disk),
        (32, "nomerges=0", "sata-2014,queue_depth=1,rpm=5400"),
    ] {
        let b = job(depth, "read", &format!("{old},{key}"), other);
        let found = explain_pair(3, &job(depth, "read", old, disk), &b);
        assert!(!names(&found).contains(&"merging-off"), "{b}: {found:#?}");
    }
}
