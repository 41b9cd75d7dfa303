use iowhy_live::machine::DiskDelta;
use iowhy_stack::units::Nanos;

use super::*;
use crate::json::tests::{live_jobs, outcome, thread};
use crate::result::results;

#[test]
fn numbers_have_the_room_that_fio_gives_them() {
    for (bytes, expected) in [
        (0, "0B"),
        (1023, "1023B"),
        (8192, "8192B"),
        (12288, "12.0KiB"),
        (992 << 10, "992KiB"),
        (1 << 20, "1024KiB"),
        (50_790_400, "48.4MiB"),
        (350 << 20, "350MiB"),
        (3821 << 20, "3821MiB"),
        (8_192_000_000, "7813MiB"),
        (200 << 30, "200GiB"),
    ] {
        assert_eq!(binary(bytes, "B"), expected);
    }
    for (number, digits, expected) in [
        (7996.0, 4, "7996"),
        (12_400.0, 4, "12.4k"),
        (85_333.0, 4, "85.3k"),
        (489_000.0, 4, "489k"),
        (1_234_567.0, 4, "1235k"),
        (12_345_678.0, 4, "12.3M"),
        (655_644.0, 6, "655644"),
        (2_879_200.0, 6, "2879.2k"),
    ] {
        assert_eq!(short(number, digits, false, ""), expected);
    }
    assert_eq!(speed(50_790_400), "48.4MiB/s (50.8MB/s)");
    assert_eq!(speed(2_002_780_160), "1910MiB/s (2003MB/s)");
}

#[test]
fn the_report_is_laid_out_as_fio_lays_it_out() {
    let jobs = live_jobs("[a]\nsize=12k\nrw=randrw\nioengine=libaio\niodepth=4\npercentile_list=50:99.9:100\n");
    let mut made = thread(&[500, 1500, 260_000], &[3_000, 200_000], Nanos(21_000_000));
    made.totals.counts.syncs = 2;
    made.latency[2].total.record(70_000);
    made.latency[2].total.record(90_000);
    made.latency[2].squares[2] = 70_000f64.powi(2) + 90_000f64.powi(2);
    let disk = DiskDelta { name: "vda".to_owned(), ios: [3, 2], util_pct: 12.5, ..DiskDelta::default() };
    let outcome = outcome(vec![made]);
    let text = report(&results(&jobs, &outcome, vec![disk]));
    let expected = "\
a: (groupid=0, jobs=1): err= 0: pid=77: Sat Nov 21 17:37:02 2026
  read: IOPS=150, BW=600KiB/s (614kB/s)(12.0KiB/20msec)
    slat (nsec): min=100, max=100, avg=100.00, stdev= 0.00
    clat (nsec): min=500, max=260000, avg=87333.33, stdev=149534.56
     lat (nsec): min=600, max=260100, avg=87433.33, stdev=149534.56
    clat percentiles (nsec):
     | 50.00th=[ 1496], 99.90th=[259072], 100.00th=[259072]
  write: IOPS=100, BW=400KiB/s (410kB/s)(8192B/20msec); 0 zone resets
    slat (nsec): min=100, max=100, avg=100.00, stdev= 0.00
    clat (usec): min=3, max=200, avg=101.50, stdev=139.30
     lat (usec): min=3, max=200, avg=101.60, stdev=139.30
    clat percentiles (usec):
     | 50.00th=[    3], 99.90th=[  200], 100.00th=[  200]
  lat (nsec)   : 750=20.00%
  lat (usec)   : 2=20.00%, 4=20.00%, 250=20.00%, 500=20.00%
  fsync/fdatasync/sync_file_range:
    sync (nsec): min=70000, max=90000, avg=80000.00, stdev=14142.14
    sync percentiles (nsec):
     | 50.00th=[70144], 99.90th=[89600], 100.00th=[89600]
  cpu          : usr=0.00%, sys=0.00%, ctx=0, majf=0, minf=0
  IO depths    : 1=100.0%, 2=0.0%, 4=0.0%, 8=0.0%, 16=0.0%, 32=0.0%, >=64=0.0%
     submit    : 0=0.0%, 4=100.0%, 8=0.0%, 16=0.0%, 32=0.0%, 64=0.0%, >=64=0.0%
     complete  : 0=0.0%, 4=100.0%, 8=0.0%, 16=0.0%, 32=0.0%, 64=0.0%, >=64=0.0%
     issued rwts: total=3,2,0,2 short=0,0,0,0 dropped=0,0,0,0
     latency   : target=0, window=0, percentile=100.00%, depth=4

Run status group 0 (all jobs):
   READ: bw=600KiB/s (614kB/s), 600KiB/s-600KiB/s (614kB/s-614kB/s), io=12.0KiB (12.3kB), run=20-20msec
  WRITE: bw=400KiB/s (410kB/s), 400KiB/s-400KiB/s (410kB/s-410kB/s), io=8192B (8192B), run=20-20msec

Disk stats (read/write):
  vda: ios=3/2, merge=0/0, ticks=0/0, in_queue=0, util=12.50%
";
    let differ = text.lines().zip(expected.lines()).find(|(found, wanted)| found != wanted);
    assert_eq!(text, expected, "first at {differ:?}");
}

#[test]
fn the_banner_names_jobs_and_threads() {
    let jobs = live_jobs("[a]\nsize=12k\nnumjobs=2\nbs=4k,16k\n");
    let wanted = "\
a: (g=0): rw=read, bs=(R) 4096B-4096B, (W) 16.0KiB-16.0KiB, (T) 16.0KiB-16.0KiB, ioengine=psync, iodepth=1
...
fio-3.33-iowhy-0.1.0
Starting 2 threads

";
    assert_eq!(banner(&jobs.file.jobs), wanted);
}
