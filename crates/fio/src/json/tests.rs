use std::time::{Duration, SystemTime};

use iowhy_live::outcome::{CallError, Outcome, Sample, ThreadOutcome};
use iowhy_stack::event::Op;
use iowhy_stack::histogram::Histogram;
use iowhy_stack::outcome::{Counts, ThreadTotals};
use iowhy_stack::units::Nanos;
use proptest::prelude::{Strategy, any, prop, prop_assert_eq, proptest};
use serde_json::Value;

use super::*;
use crate::live::{LiveJobs, jobs};
use crate::result::{self, not_begun, results};
use crate::{World, parse};
use iowhy_text::diagnose::Problems;

pub(crate) fn live_jobs(text: &str) -> LiveJobs {
    let world = World { live: true, ..World::empty() };
    let mut problems = Problems::default();
    let file = parse("test.fio", text, &world, &mut problems).unwrap_or_else(|| panic!("{}", problems.render()));
    jobs(file, None, &world, &mut problems).unwrap_or_else(|| panic!("{}", problems.render()))
}

/// A thread that made reads and writes of 4 KiB with these latencies, ns.
pub(crate) fn thread(reads: &[u64], writes: &[u64], end: Nanos) -> ThreadOutcome {
    let mut outcome = ThreadOutcome { tid: 77, ..ThreadOutcome::default() };
    for (number, list) in [reads, writes].into_iter().enumerate() {
        let latency = &mut outcome.latency[number];
        for value in list {
            for (at, (histogram, value)) in
                [(&mut latency.submission, 100), (&mut latency.completion, *value), (&mut latency.total, value + 100)]
                    .into_iter()
                    .enumerate()
            {
                histogram.record(value);
                latency.squares[at] += (value as f64).powi(2);
            }
        }
    }
    outcome.totals = ThreadTotals {
        counts: Counts {
            reads: reads.len() as u64,
            writes: writes.len() as u64,
            read_bytes: 4096 * reads.len() as u64,
            written_bytes: 4096 * writes.len() as u64,
            syncs: 0,
            ..Counts::default()
        },
        start: Nanos(1_000_000),
        end,
        ..ThreadTotals::default()
    };
    outcome.depths[0] = (reads.len() + writes.len()) as u64;
    outcome.submitted[1] = 1;
    outcome.completed[1] = 1;
    outcome
}

pub(crate) fn outcome(threads: Vec<ThreadOutcome>) -> Outcome {
    Outcome {
        started: SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_282_622_865),
        elapsed: Nanos::from_ms(30),
        counts: Counts::default(),
        latency: Histogram::default(),
        threads,
        jobs: Vec::new(),
        interrupted: false,
        resident: Vec::new(),
        set_up: Duration::ZERO,
        harness_ns: None,
    }
}

fn of(text: &str, threads: Vec<ThreadOutcome>, plus: bool) -> Value {
    let (jobs, outcome) = (live_jobs(text), outcome(threads));
    document(&results(&jobs, &outcome, Vec::new()), plus)
}

#[test]
fn rates_follow_from_bytes_and_whole_milliseconds() {
    let made = thread(&[500, 1500, 2500], &[], Nanos(27_900_000));
    let document = of("[a]\nsize=12k\n", vec![made], false);
    let read = &document["jobs"][0]["read"];
    assert_eq!(read["runtime"], 26);
    assert_eq!(read["bw_bytes"], 12288 * 1000 / 26);
    assert_eq!(read["bw"], 12288 * 1000 / 26 / 1024);
    assert_eq!(read["iops"], 115.384615);
    assert_eq!(read["clat_ns"]["mean"], 1500.0);
    assert_eq!(read["clat_ns"]["stddev"], 1000.0, "divided by n - 1");
    assert_eq!((&read["clat_ns"]["min"], &read["clat_ns"]["max"]), (&json!(500), &json!(2500)));
    assert_eq!(read["slat_ns"]["N"], 0, "calls of psync have no submission of their own");
    assert_eq!(document["jobs"][0]["write"]["total_ios"], 0);
    assert_eq!(document["jobs"][0]["trim"]["total_ios"], 0);
    assert_eq!(document["time"], "Sat Nov 21 17:37:02 2026");
    assert_eq!(document["timestamp_ms"], 1_795_282_622_865u64);
}

#[test]
fn percentiles_are_middles_of_the_bucket_that_reaches_them() {
    let made = thread(&[130, 131, 5000, 30_000_000_000], &[], Nanos(9_000_000));
    let document = of("[a]\nsize=12k\npercentile_list=99.9:50:25:75\n", vec![made], true);
    let clat = &document["jobs"][0]["read"]["clat_ns"];
    // 128..255 has buckets of two; 4096..8191 of 64; values above 17 s are in the last one.
    let bins = json!({ "131": 2, "5024": 1, "17112760320": 1 });
    assert_eq!(clat["bins"], bins);
    let wanted = json!({ "25.000000": 131, "50.000000": 131, "75.000000": 5024, "99.900000": 17_112_760_320u64 });
    assert_eq!(clat["percentile"], wanted);
    let keys: Vec<&String> = clat["percentile"].as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["25.000000", "50.000000", "75.000000", "99.900000"], "in order");
    assert!(document["jobs"][0]["read"]["lat_ns"].get("percentile").is_none(), "lat_percentiles is off");
}

#[test]
fn job_options_always_have_what_fio_plot_needs() {
    let document = of(
        "[global]\nrw=randread\niodepth=4\nioengine=libaio\n[a]\nsize=8k\n",
        vec![thread(&[9], &[], Nanos(2_000_000))],
        false,
    );
    let options = &document["jobs"][0]["job options"];
    let wanted = json!({ "name": "a", "size": "8k", "rw": "randread", "iodepth": "4", "numjobs": "1", "bs": "4096" });
    assert_eq!(*options, wanted);
    assert_eq!(document["global options"]["rw"], "randread");
    let document =
        of("[a]\nsize=8k\ntime_based\nruntime=1\nbs=,16k\n", vec![thread(&[9], &[], Nanos(2_000_000))], false);
    assert_eq!(document["jobs"][0]["job options"]["time_based"], "", "a flag is an empty text");
    assert_eq!(document["jobs"][0]["job options"]["bs"], ",16k", "as it was written");
}

#[test]
fn with_a_rate_a_latency_begins_with_the_call() {
    let mut late = thread(&[1000; 3], &[], Nanos(11_000_000));
    for value in [1100; 3] {
        late.latency[0].begun.record(value);
        late.latency[0].total.record(value + 1_000_000);
    }
    let document = of("[a]\nsize=8k\nioengine=libaio\n", vec![late], false);
    let mean = |name: &str| document["jobs"][0]["read"][name]["mean"].as_f64();
    assert_eq!([mean("slat_ns"), mean("clat_ns"), mean("lat_ns")], [Some(100.0), Some(1000.0), Some(1100.0)]);
}

#[test]
fn steadiness_has_a_place_for_every_look() {
    let mut one = thread(&[9], &[], Nanos(2_000_000));
    let (calls, bytes) = (vec![10, 20], vec![4096, 8192]);
    one.steady = Some(Steadiness { criterion: 12.5, deviation: 3.0, calls, bytes, ..Steadiness::default() });
    let document = of("[a]\nsize=8k\nss_dur=3\nss=iops:5%\n", vec![one], false);
    let wanted = json!({
        "ss": "iops:5.000000%",
        "duration": 3,
        "attained": 0,
        "criterion": "12.500000%",
        "max_deviation": 3.0,
        "slope": 0.0,
        "data": { "bw_mean": 4096, "iops_mean": 10, "iops": [10, 20, 0], "bw": [4096, 8192, 0] },
    });
    assert_eq!(document["jobs"][0]["steadystate"], wanted);
}

#[test]
fn clones_are_apart_unless_they_report_as_a_group() {
    let threads = || vec![thread(&[1000; 3], &[], Nanos(11_000_000)), thread(&[3000; 5], &[], Nanos(21_000_000))];
    let apart = of("[a]\nsize=8k\nnumjobs=2\n", threads(), false);
    let counts: Vec<&Value> = [0, 1].map(|job| &apart["jobs"][job]["read"]["total_ios"]).to_vec();
    assert_eq!(counts, [3, 5]);
    let group = of("[a]\nsize=8k\nnumjobs=2\ngroup_reporting\n", threads(), false);
    assert_eq!(group["jobs"].as_array().map(Vec::len), Some(1));
    let read = &group["jobs"][0]["read"];
    assert_eq!((&read["total_ios"], &read["runtime"]), (&json!(8), &json!(20)), "the longest time counts");
    assert_eq!(read["clat_ns"]["mean"], 2250.0);
    assert_eq!(group["jobs"][0]["job_runtime"], 30);
    let groups = of("[a]\nsize=8k\n[b]\nstonewall\nsize=8k\n", threads(), false);
    assert_eq!([&groups["jobs"][0]["groupid"], &groups["jobs"][1]["groupid"]], [0, 1]);
}

#[test]
fn directions_can_be_one() {
    let made = thread(&[1000; 3], &[2000; 1], Nanos(5_000_000));
    let document = of("[a]\nsize=8k\nrw=randrw\nunified_rw_reporting=mixed\n", vec![made], false);
    let job = document["jobs"][0].as_object().expect("an object");
    assert!(!job.contains_key("read") && !job.contains_key("write") && !job.contains_key("trim"));
    assert_eq!((&job["mixed"]["total_ios"], &job["mixed"]["io_bytes"]), (&json!(4), &json!(16384)));
    assert_eq!(job["mixed"]["clat_ns"]["mean"], 1250.0);
    assert!(!job.contains_key("sync"));
    let made = thread(&[1000; 3], &[2000; 1], Nanos(5_000_000));
    let document = of("[a]\nsize=8k\nrw=randrw\nunified_rw_reporting=both\n", vec![made], false);
    let ios = ["read", "write", "mixed"].map(|name| document["jobs"][0][name]["total_ios"].clone());
    assert_eq!(ios, [json!(3), json!(1), json!(4)]);
    assert_eq!(document["jobs"][0]["mixed"]["clat_ns"]["mean"], 1250.0);
}

#[test]
fn fdatasync_is_timed_and_not_counted() {
    for (option, count) in [("fsync=1", 2), ("fdatasync=1", 0), ("fsync=1\nfdatasync=1", 2)] {
        let mut made = thread(&[], &[2000; 2], Nanos(5_000_000));
        made.totals.counts.syncs = 2;
        made.latency[2].total.record(9000);
        let document = of(&format!("[a]\nsize=8k\nrw=write\n{option}\n"), vec![made], false);
        let sync = &document["jobs"][0]["sync"];
        assert_eq!((&sync["total_ios"], &sync["lat_ns"]["N"]), (&json!(count), &json!(1)), "{option}");
    }
}

#[test]
fn samples_of_threads_add_up_and_a_short_last_one_is_left_out() {
    let sampled = |reads: [u64; 3]| {
        let mut made = thread(&[1000], &[], Nanos(1_200_000_000));
        let counts = |reads: u64| Counts { reads, read_bytes: reads * 4096, ..Counts::default() };
        let of = |end: u64, length: u64, reads: u64| Sample {
            end: Nanos::from_ms(end),
            length: Nanos::from_ms(length),
            counts: counts(reads),
            ..Sample::default()
        };
        made.samples = vec![of(500, 500, reads[0]), of(1000, 500, reads[1]), of(1200, 200, reads[2])];
        made
    };
    let text = "[a]\nsize=8k\nnumjobs=2\ngroup_reporting\n";
    let document = of(text, vec![sampled([10, 20, 1]), sampled([30, 30, 1])], false);
    let read = &document["jobs"][0]["read"];
    assert_eq!((&read["iops_samples"], &read["iops_mean"]), (&json!(4), &json!(90.0)));
    assert_eq!((&read["iops_min"], &read["iops_max"]), (&json!(80), &json!(100)));
    assert_eq!(read["bw_mean"], 360.0);
    assert_eq!(read["bw_agg"], 100.0);
}

#[test]
fn latencies_that_are_switched_off_are_empty() {
    let made = || vec![thread(&[1000; 3], &[], Nanos(5_000_000))];
    let document = of("[a]\nsize=8k\ngtod_reduce=1\n", made(), true);
    let read = &document["jobs"][0]["read"];
    for name in ["slat_ns", "clat_ns", "lat_ns"] {
        assert_eq!(read[name], json!({ "min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0 }), "{name}");
    }
    assert_eq!(read["total_ios"], 3);
    let document = of("[a]\nsize=8k\nstats=0\n", made(), true);
    assert_eq!(document["jobs"], json!([]), "a job without statistics is not reported");
}

#[test]
fn errors_are_in_the_document_and_the_rest_is_kept() {
    let mut made = thread(&[1000; 3], &[], Nanos(5_000_000));
    let error = |errno| CallError {
        file: 0,
        op: Op::Read,
        offset: 0,
        len_bytes: 4096,
        at: Nanos(3),
        errno,
        message: "what happened".to_owned(),
    };
    made.errors = vec![error(5), error(28)];
    made.nr_errors = 2;
    let fine = thread(&[7; 2], &[], Nanos(5_000_000));
    let text = "[a]\nsize=8k\n[b]\nsize=8k\n";
    let document = of(text, vec![made.clone(), fine], false);
    assert_eq!((&document["jobs"][0]["error"], &document["jobs"][0]["read"]["total_ios"]), (&json!(5), &json!(3)));
    assert_eq!(document["jobs"][1]["error"], 0);
    made.errors = vec![error(0)];
    let document = of("[a]\nsize=8k\n", vec![made], false);
    assert_eq!(document["jobs"][0]["error"], 84, "data that are wrong");
    let jobs = live_jobs(text);
    let nothing = super::document(&not_begun(&jobs, 2), true);
    assert_eq!([&nothing["jobs"][0]["error"], &nothing["jobs"][1]["error"]], [2, 2]);
    assert_eq!(nothing["jobs"][0]["read"]["bw_bytes"], 0);
}

#[test]
fn dates_are_those_of_the_calendar() {
    let at = |seconds| result::date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    assert_eq!(at(0), "Thu Jan  1 00:00:00 1970");
    assert_eq!(at(951_782_399), "Mon Feb 28 23:59:59 2000");
    assert_eq!(at(951_782_400), "Tue Feb 29 00:00:00 2000");
    assert_eq!(at(1_795_282_622), "Sat Nov 21 17:37:02 2026");
    assert_eq!(at(4_107_542_399), "Sun Feb 28 23:59:59 2100");
}

/// Values of every size, not only large ones.
fn value() -> impl Strategy<Value = u64> {
    (any::<u32>(), 0..30u32).prop_map(|(value, shift)| u64::from(value >> shift))
}

proptest! {
    /// The document against a slow count over the values themselves.
    #[test]
    fn bins_and_percentiles_are_those_of_the_values(
        values in prop::collection::vec(value(), 1..80),
    ) {
        let document = of("[a]\nsize=8k\n", vec![thread(&values, &[], Nanos(5_000_000))], true);
        let clat = &document["jobs"][0]["read"]["clat_ns"];
        // The seven leading bits name the bucket; its middle is in the middle of what they leave open.
        let middle = |value: u64| {
            let open = (64 - value.leading_zeros()).saturating_sub(7);
            (value >> open << open) + if open == 0 { 0 } else { 1 << (open - 1) }
        };
        let mut middles: Vec<u64> = values.iter().map(|value| middle(*value)).collect();
        middles.sort_unstable();
        let bins = clat["bins"].as_object().expect("an object");
        for (key, count) in bins {
            let nr = middles.iter().filter(|middle| middle.to_string() == *key).count();
            prop_assert_eq!(count.as_u64(), Some(nr as u64), "bin {}", key);
        }
        let sum: u64 = bins.values().filter_map(Value::as_u64).sum();
        prop_assert_eq!(sum, values.len() as u64);
        for (key, at) in clat["percentile"].as_object().expect("an object") {
            let percent: f64 = key.parse().expect("a number");
            let rank = ((middles.len() as f64 * percent / 100.0).ceil() as usize).max(1);
            prop_assert_eq!(at.as_u64(), Some(middles[rank - 1]), "{}", key);
        }
    }
}
