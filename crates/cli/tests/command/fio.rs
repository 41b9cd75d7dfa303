//! `iowhy fio` against the installed fio: the same jobs, the same amounts, reports that hold to the same rules.
//!
//! Without fio these tests say so and pass; with CI=true they fail.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;

use crate::{root, text};

/// A folder that is gone when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fio-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder for the test");
        Folder(path)
    }

    fn inside(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(&path).expect("a folder for the test");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether fio is there. If not it is said; where everything must be tested, that is a failure.
fn fio_is_there() -> bool {
    let there = Command::new("fio").arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "fio is not installed: apt-get install fio");
        eprintln!("SKIPPED: fio is not installed, so nothing was compared with it");
    }
    there
}

/// Both programs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Who {
    Fio,
    Iowhy,
}

fn command(who: Who, folder: &Path, arguments: &[&str]) -> Output {
    let mut command = match who {
        // fio 3.33 may wait for ever for a thread of its own.
        Who::Fio => {
            let mut command = Command::new("timeout");
            command.args(["--kill-after=5", "120", "fio"]);
            command
        }
        Who::Iowhy => {
            let mut command = Command::new(env!("CARGO_BIN_EXE_iowhy"));
            command.arg("fio");
            command
        }
    };
    command.args(arguments).current_dir(folder).env("WHERE", "24").env("NO_COLOR", "1");
    command.stdin(Stdio::null()).output().expect("the program starts")
}

/// The document of a run that must succeed.
fn document(who: Who, folder: &Path, arguments: &[&str]) -> Value {
    let mut all = vec!["--output-format=json+"];
    all.extend(arguments);
    let output = command(who, folder, &all);
    assert!(output.status.success(), "{who:?} {arguments:?}\n{}", text(&output.stderr));
    // fio's notes on layouts come before the document.
    let printed = text(&output.stdout);
    let start = printed.find("{\n").unwrap_or_else(|| panic!("{who:?} {arguments:?} printed no JSON: {printed}"));
    assert!(who == Who::Fio || start == 0, "something stands before the document: {printed}");
    serde_json::from_str(&printed[start..]).unwrap_or_else(|error| panic!("{who:?} {arguments:?}: {error}"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no whole number"))
}

fn float(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn jobs(document: &Value) -> &Vec<Value> {
    document["jobs"].as_array().expect("a list of jobs")
}

/// What must hold of any report of fio's kind.
fn check_identities(who: Who, name: &str, document: &Value) {
    for key in ["fio version", "timestamp", "timestamp_ms", "time", "jobs"] {
        assert!(document.get(key).is_some(), "{who:?} {name}: no `{key}`");
    }
    for job in jobs(document).iter().filter(|job| job.get("jobname").is_some()) {
        let at = format!("{who:?} {name}, job {}", job["jobname"]);
        for direction in ["read", "write", "trim", "mixed"].into_iter().filter(|key| job.get(*key).is_some()) {
            check_direction(who, &format!("{at}, {direction}"), &job[direction]);
        }
        check_latency(&format!("{at}, sync"), &job["sync"]["lat_ns"]);
        let ios: u64 = ["read", "write", "trim"].iter().map(|key| number(&job[*key]["total_ios"])).sum();
        let share = |key: &str| -> f64 { job[key].as_object().expect("classes").values().map(float).sum() };
        if ios > 0 {
            let classes = share("latency_ns") + share("latency_us") + share("latency_ms");
            // As below, fio counts some more where a warm-up ends.
            let most = if who == Who::Fio { 102.0 } else { 100.01 };
            assert!(99.99 < classes && classes < most, "{at}: classes of latencies are {classes} %");
            // Syncs count as well, so that there may be more than all. Of calls handed in at once fio counts some only.
            let least = if who == Who::Fio { 50.0 } else { 99.9 };
            assert!(share("iodepth_level") > least, "{at}: depths are {} %", share("iodepth_level"));
            for key in ["iodepth_submit", "iodepth_complete"] {
                assert!((share(key) - 100.0).abs() < 0.01, "{at}: {key} is {} %", share(key));
            }
        }
    }
}

fn check_direction(who: Who, at: &str, direction: &Value) {
    let get = |key: &str| number(&direction[key]);
    let (bytes, runtime) = (get("io_bytes"), get("runtime"));
    assert_eq!(get("io_kbytes"), bytes / 1024, "{at}");
    let rate = (bytes * 1000).checked_div(runtime).unwrap_or(0);
    assert_eq!(get("bw_bytes"), rate, "{at}: {bytes} bytes in {runtime} ms");
    assert_eq!(get("bw"), rate / 1024, "{at}");
    let iops = if runtime == 0 { 0.0 } else { get("total_ios") as f64 * 1000.0 / runtime as f64 };
    assert!((float(&direction["iops"]) - iops).abs() < 1e-5, "{at}: {} and {iops} I/Os a second", direction["iops"]);
    // fio counts what is short against reads, fdatasync among it.
    assert!(who == Who::Fio || (get("short_ios"), get("drop_ios")) == (0, 0), "{at}");
    for key in ["slat_ns", "clat_ns", "lat_ns"] {
        check_latency(&format!("{at}, {key}"), &direction[key]);
    }
    for key in ["clat_ns", "lat_ns"] {
        let (measured, ios) = (number(&direction[key]["N"]), get("total_ios"));
        // Where a warm-up ends fio counts some latencies before it counts calls.
        assert!(measured == ios || who == Who::Fio && measured > ios, "{at}, {key}: {measured} of {ios}");
    }
    assert_eq!(direction["bw_samples"], direction["iops_samples"], "{at}");
}

fn check_latency(at: &str, latency: &Value) {
    let count = number(&latency["N"]);
    let (min, max, mean) = (number(&latency["min"]), number(&latency["max"]), float(&latency["mean"]));
    assert!(float(&latency["stddev"]) >= 0.0, "{at}");
    if count == 0 {
        assert_eq!((min, max, mean), (0, 0, 0.0), "{at}");
        return;
    }
    assert!(min as f64 <= mean && mean <= max as f64, "{at}: {mean} is not within {min} and {max}");
    let Some(bins) = latency.get("bins").and_then(Value::as_object) else { return };
    let mut bins: Vec<(u64, u64)> =
        bins.iter().map(|(key, count)| (key.parse().expect("a bin is a number"), number(count))).collect();
    bins.retain(|(_, count)| *count > 0);
    bins.sort_unstable();
    assert_eq!(bins.iter().map(|(_, count)| count).sum::<u64>(), count, "{at}: bins");
    for (key, _) in &bins {
        let open = (64 - key.leading_zeros()).saturating_sub(7);
        let middle = if open == 0 { 0 } else { 1 << (open - 1) };
        assert_eq!(key & ((1 << open) - 1), middle, "{at}: {key} is not the middle of a bucket");
    }
    for (percent, value) in latency["percentile"].as_object().expect("percentiles") {
        // Six digits behind the point: millionths of a percent.
        let wanted: u128 = percent.replace('.', "").parse().expect("a percentage");
        let first = |enough: &dyn Fn(u128, u128) -> bool| {
            let mut seen = 0;
            let reached = bins.iter().find(|(_, number)| {
                seen += u128::from(*number);
                enough(seen * 100_000_000, wanted * u128::from(count))
            });
            reached.or(bins.last()).expect("a bin").0
        };
        // Floating point, which fio counts with, may miss an exact hit.
        let expected = [first(&|seen, wanted| seen >= wanted), first(&|seen, wanted| seen > wanted)];
        assert!(expected.contains(&number(value)), "{at}: percentile {percent} is {value}, not {expected:?}");
    }
}

/// Keys of the first that the second has not. What stands below some keys depends on the run or on the user.
fn missing_keys(first: &Value, second: &Value, path: &str, found: &mut Vec<String>) {
    match (first, second) {
        (Value::Object(first), Value::Object(second)) => {
            for (key, value) in first {
                let below = format!("{path}/{key}");
                match second.get(key) {
                    // A job that is ended by the clock may not have come to its first write on a busy machine.
                    None if matches!(key.as_str(), "percentile" | "bins") && second.get("N") == Some(&0.into()) => {}
                    None => found.push(below),
                    Some(_) if matches!(key.as_str(), "percentile" | "bins" | "job options" | "disk_util") => {}
                    Some(other) => missing_keys(value, other, &below, found),
                }
            }
        }
        (Value::Array(first), Value::Array(second)) => {
            for (index, (value, other)) in first.iter().zip(second).enumerate() {
                missing_keys(value, other, &format!("{path}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// A shipped job as both programs take it, made small: without options of ours, with a file for the device.
fn small(job: &str) -> String {
    let mut out = String::new();
    // With a mix of sizes the limit of calls must come before that of bytes: it is the same in each run.
    let split = job.contains("bssplit");
    // Each write waits for the device.
    let synced = job.contains("fsync=1\n") || job.contains("sync=dsync");
    for line in job.lines() {
        let line = line.trim();
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let small = match (key, value) {
            (key, _) if key.starts_with('#') || key.starts_with("iowhy_") => continue,
            ("filename", "/dev/iowhy-disk") => "device",
            ("size", value) => match value.trim_end_matches(['k', 'm', 'g']).parse::<u64>() {
                // Shares of many files stay whole blocks.
                Ok(32_000) => "800k",
                Ok(_) if value.ends_with('k') => value,
                Ok(_) if split => "16m",
                Ok(_) if synced => "256k",
                Ok(_) => "1m",
                Err(_) => value,
            },
            ("nrfiles", "2000") => "50",
            ("nrfiles", "32") => "8",
            ("bs", "1m") => "256k",
            ("numjobs", "16") => "4",
            ("offset_increment", _) => "1m",
            ("number_ios", value) => match value.parse::<u64>() {
                Ok(..100) => value,
                _ => "100",
            },
            ("runtime", _) => "300ms",
            ("ramp_time", _) => "100ms",
            ("rate_iops", "60" | "150") => "1000",
            ("rate_iops", _) => "20000",
            // fio 3.33 sleeps for hours once its spin took longer than the whole pause.
            ("thinktime", _) if job.contains("thinktime_spin") => "50ms",
            ("thinktime", _) => "200",
            ("thinktime_spin", _) => "50",
            (_, value) => value,
        };
        let _ = if line.contains('=') { writeln!(out, "{key}={small}") } else { writeln!(out, "{line}") };
    }
    out
}

/// Whether fio has put jobs together that did not ask for it, because another one of their group did: it leaves entries
/// without a name behind.
fn is_put_together(document: &Value) -> bool {
    jobs(document).iter().any(|job| job.get("jobname").is_none())
}

/// How a job's amounts compare.
fn compare(name: &str, fio: &Value, iowhy: &Value, job_text: &str) {
    if is_put_together(fio) {
        let sum = |document: &Value, direction: &str| {
            jobs(document).iter().map(|job| number(&job[direction]["total_ios"])).sum::<u64>()
        };
        for direction in ["read", "write", "sync"] {
            assert_eq!(sum(iowhy, direction), sum(fio, direction), "{name}: {direction}");
        }
        return;
    }
    let keys =
        |key: &str| [fio, iowhy].map(|document| jobs(document).iter().map(|job| job[key].clone()).collect::<Vec<_>>());
    for key in ["jobname", "groupid", "error", "latency_depth"] {
        let [theirs, ours] = keys(key);
        assert_eq!(ours, theirs, "{name}: {key}");
    }
    for (theirs, ours) in jobs(fio).iter().zip(jobs(iowhy)) {
        let at = format!("{name}, job {}", ours["jobname"]);
        let of = |job: &Value, direction: &str, key: &str| number(&job[direction][key]);
        let both = |key: &str| [theirs, ours].map(|job| of(job, "read", key) + of(job, "write", key));
        if job_text.contains("time_based") {
            let [theirs, ours] = both("total_ios");
            assert!(ours > 0 && theirs > 0, "{at}: {theirs} and {ours} I/Os");
            continue;
        }
        let [their_ios, our_ios] = both("total_ios");
        // With a mix of sizes and a limit of calls, what is moved is a matter of chance.
        if !job_text.contains("bssplit") {
            let [theirs, ours] = both("io_bytes");
            assert_eq!(ours, theirs, "{at}: bytes");
        }
        assert_eq!(our_ios, their_ios, "{at}: I/Os");
        let (their_reads, our_reads) = (of(theirs, "read", "total_ios"), of(ours, "read", "total_ios"));
        let mixed = their_reads > 0 && of(theirs, "write", "total_ios") > 0;
        if mixed {
            // The share of reads is that of the job; five deviations of a fair draw.
            let option = |text: &str| {
                job_text
                    .lines()
                    .find_map(|line| line.strip_prefix(text))
                    .map(|value| value.parse::<f64>().expect("percent"))
            };
            let share = ours["job options"]["rwmixread"].as_str().and_then(|text| text.parse::<f64>().ok());
            let share = share.or(option("rwmixread=")).unwrap_or(50.0) / 100.0;
            let deviation = (our_ios as f64 * share * (1.0 - share)).sqrt();
            for (who, reads) in [("fio", their_reads), ("iowhy", our_reads)] {
                let off = (reads as f64 - our_ios as f64 * share).abs();
                assert!(off <= 5.0 * deviation + 1.0, "{at}: {who} read {reads} of {our_ios}, {share} was wanted");
            }
        } else {
            assert_eq!(our_reads, their_reads, "{at}: reads");
        }
        let (their_syncs, our_syncs) = (number(&theirs["sync"]["total_ios"]), number(&ours["sync"]["total_ios"]));
        if mixed {
            assert_eq!(our_syncs > 0, their_syncs > 0, "{at}: {their_syncs} and {our_syncs} syncs");
        } else if job_text.contains("fdatasync=") {
            // fio counts the latencies of fdatasync, and not the calls.
            assert_eq!(our_syncs, number(&theirs["sync"]["lat_ns"]["N"]), "{at}: syncs");
        } else {
            assert_eq!(our_syncs, their_syncs, "{at}: syncs");
        }
    }
}

#[test]
fn shipped_jobs_do_the_same_in_both_programs() {
    if !fio_is_there() {
        return;
    }
    let folder = Folder::new("jobs");
    let mut names: Vec<PathBuf> = fs::read_dir(root().join("jobs"))
        .expect("a folder of jobs")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "fio"))
        .collect();
    names.sort();
    assert!(names.len() > 40, "{} jobs", names.len());
    let left = Mutex::new(names.into_iter());
    let one = |path: &Path| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let whole = command(Who::Iowhy, &folder.0, &["--parse-only", path.to_str().expect("UTF-8")]);
        assert!(whole.status.success(), "{name}: {}", text(&whole.stderr));
        let job = small(&fs::read_to_string(path).expect("a job file"));
        let file = folder.0.join(format!("{name}.fio"));
        fs::write(&file, &job).expect("the job is written");
        let documents = [Who::Fio, Who::Iowhy].map(|who| {
            let place = folder.inside(&format!("{name}-{who:?}"));
            let document = document(who, &place, &[file.to_str().expect("UTF-8")]);
            check_identities(who, &name, &document);
            let _ = fs::remove_dir_all(place);
            document
        });
        compare(&name, &documents[0], &documents[1], &job);
        if !is_put_together(&documents[0]) {
            let mut missing = Vec::new();
            missing_keys(&documents[0], &documents[1], "", &mut missing);
            assert_eq!(missing, [""; 0], "{name}: keys that fio has");
        }
        for job in jobs(&documents[1]) {
            for key in ["rw", "iodepth", "numjobs", "bs"] {
                assert!(job["job options"][key].is_string(), "{name}: no `{key}` in the job's options");
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = left.lock().expect("no thread panicked").next();
                    let Some(path) = next else { break };
                    one(&path);
                }
            });
        }
    });
}

/// Calls of a recorded list: action, offset, length.
fn recorded(path: &Path) -> Vec<(String, u64, u64)> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(text.starts_with("fio version 3 iolog\n"), "{text}");
    text.lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, _, action, offset, len] = words[..] else { return None };
            Some((action.to_owned(), offset.parse().expect("an offset"), len.parse().expect("a length")))
        })
        .filter(|(action, ..)| matches!(action.as_str(), "read" | "write" | "trim"))
        .collect()
}

#[test]
fn random_jobs_visit_every_block_once_and_repeat_only_if_they_may() {
    if !fio_is_there() {
        return;
    }
    let folder = Folder::new("coverage");
    // Options, how often each place is visited at most (no limit if that is a matter of chance), and whether places are
    // the same in both.
    for (number, (options, times, same)) in [
        ("--rw=randread --bs=4k --size=1m", Some(1), true),
        ("--rw=randwrite --bs=8k --size=512k --ioengine=libaio --iodepth=8", Some(1), true),
        ("--rw=randread --bs=4k --size=256k --loops=2", Some(2), true),
        ("--rw=randread --bs=4k --size=256k --norandommap", None, false),
        ("--rw=read --bs=16k --size=256k", Some(1), true),
        ("--rw=read:48k --bs=16k --size=1m", Some(4), true),
        ("--rw=randread --bs=4k --size=256k --offset=128k --filesize=512k", Some(1), false),
    ]
    .into_iter()
    .enumerate()
    {
        let mut arguments = vec!["--name=job", "--write_iolog=calls"];
        arguments.extend(options.split_whitespace());
        let visits = [Who::Fio, Who::Iowhy].map(|who| {
            let place = folder.inside(&format!("{number}-{who:?}"));
            document(who, &place, &arguments);
            let mut visits: BTreeMap<(u64, u64), u32> = BTreeMap::new();
            for (_, offset, len) in recorded(&place.join("calls")) {
                *visits.entry((offset, len)).or_default() += 1;
            }
            visits
        });
        let [theirs, ours] = &visits;
        let sum = |visits: &BTreeMap<(u64, u64), u32>| visits.values().sum::<u32>();
        assert_eq!(sum(ours), sum(theirs), "{options}: calls");
        for visits in [theirs, ours] {
            let most = visits.values().max().copied().unwrap_or(0);
            assert!(times.map_or(most > 1, |times| most == times), "{options}: {visits:?}");
        }
        if same {
            assert_eq!(ours, theirs, "{options}: places");
        }
    }
}

/// Sections whose bytes and calls show how a program has read them. The null engine makes no I/O.
const TRAPS: &str = "\
; a comment
# another
[global]
ioengine=null
bs=512
size=8k
[units-k]
size=4K
[units-ki]
size=4ki
[units-kb]
size=4kb
[units-kib-is-a-thousand]
size=4kib
[units-MiB-is-a-million]
size=1MiB
bs=10000
[hexadecimal]
size=0x1000
[page]
size=3*$pagesize
[environment]
size=${WHERE}k
[nothing-in-the-environment]
size=4${NO_SUCH_VARIABLE}k
[thousands]
kb_base=1000
size=4k
bs=500
[thousands-kib]
kb_base=1000
size=4kib
bs=512
[cut-at-a-semicolon]
description=hello;world
[cut-at-a-hash]
description=hello#world
[globalish]
size=2k
[after-globalish]
[name-with]bracket]
[one-for-both-writes]
rw=write
bs=1k,2k
[empty-place-keeps-the-default]
rw=write
bs=,2k
[empty-place-for-reads]
rw=read
bs=,2k
[halves]
size=10k
io_size=50%
[more-than-the-size]
size=4k
io_size=6k
[calls]
number_ios=3
[loops]
loops=3
[range]
rw=read
bsrange=1k-1k
[range-with-colon]
rw=read
bsrange=2k:2k
[split]
rw=read
bssplit=1k/100
[split-for-writes]
rw=write
bssplit=4k/100,1k/100
[read-share-last-wins]
rw=write
bs=1k
[clones]
numjobs=2
[group]
new_group
numjobs=2
group_reporting
[new-group]
new_group
[wall]
stonewall
[included]
include more.inc
[holes]
rw=read:1k
bs=1k
[renamed]
name=other
";

#[test]
fn traps_of_the_grammar_are_the_same_traps() {
    if !fio_is_there() {
        return;
    }
    let folder = Folder::new("traps");
    fs::write(folder.0.join("traps.fio"), TRAPS).expect("the jobs are written");
    fs::write(folder.0.join("more.inc"), "size=6k\nbs=1k\n").expect("what they include is written");
    let seen = [Who::Fio, Who::Iowhy].map(|who| {
        let document = document(who, &folder.0, &["traps.fio"]);
        let seen = |job: &Value| {
            let amount = |direction: &str, key: &str| job[direction][key].clone();
            (
                format!("{} in {}", job["jobname"], job["groupid"]),
                [amount("read", "io_bytes"), amount("read", "total_ios")],
                [amount("write", "io_bytes"), amount("write", "total_ios")],
                job.get("desc").cloned(),
            )
        };
        jobs(&document).iter().map(seen).collect::<Vec<_>>()
    });
    let [theirs, ours] = seen;
    assert!(theirs.len() > 33, "{} jobs", theirs.len());
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn what_fio_refuses_is_refused_and_some_more() {
    if !fio_is_there() {
        return;
    }
    let folder = Folder::new("refused");
    // The job, whether fio takes it, whether we do: what means nothing is not passed over here.
    for (number, (job, by_fio, by_us)) in [
        ("[a]\nsize=4k\n", true, true),
        ("[a]\nsize=4k\nbs=4k\n[b]\nsize=4k\nwait_for=a\n", true, true),
        ("[a]\nsize=4k\nbsrange=1k-4k,8k-16k\n", true, true),
        ("[a]\nsize=4k\nruntime=10\ntime_based\nthinktime=5ms\n", true, true),
        ("size=4k\n[a]\nsize=4k\n", false, false),
        ("[a]\nsize=4k\nno_such_option=1\n", false, false),
        ("[a]\nsize=4k\nrw=sideways\n", false, false),
        ("[a]\nsize=x4\n", false, false),
        ("[a]\nsize=4k\nnumjobs=two\n", false, false),
        ("[a]\nsize=4k\nrwmixread=101\n", false, false),
        ("[a]\nrw=randread\nsize=4k\nrandom_distribution=nonsense\n", false, false),
        ("[a]\nsize=4k\niodepth=0\n", false, false),
        ("[a]\nsize=4k\nbs=0\n", false, false),
        ("[a]\nsize=4k\nverify=nonsense\n", false, false),
        ("[a]\nsize=4x\n", true, false),
        ("[a]\nsize=4k\nioengine=no_such_engine\n", true, false),
        ("[a]\nsize=4k\nbssplit=4k/60:8k/60\n", true, false),
        ("[a]\nsize=4k\ninclude no_such_file\n", true, false),
        ("[a]\nsize=4k\nwait_for=nobody\n", true, false),
        ("[a]\nsize=4k\nruntime=10x\n", true, false),
        ("[a]\nrate=1m\nrate_iops=10\nsize=4k\n", true, false),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("{number}.fio");
        fs::write(folder.0.join(&name), job).expect("the job is written");
        let [theirs, ours] = [Who::Fio, Who::Iowhy].map(|who| command(who, &folder.0, &["--parse-only", &name]));
        assert_eq!(theirs.status.success(), by_fio, "fio {job}\n{}", text(&theirs.stderr));
        assert_eq!(ours.status.code(), Some(if by_us { 0 } else { 2 }), "iowhy {job}\n{}", text(&ours.stderr));
    }
}

#[test]
fn a_job_printed_as_a_command_line_is_the_same_job_for_fio() {
    if !fio_is_there() {
        return;
    }
    let folder = Folder::new("showcmd");
    let job =
        "[global]\nioengine=null\nsize=${WHERE}k\n[a]\nrw=randwrite\nbs=2k\ndescription=x y\n[b]\nstonewall\nbs=512\n";
    fs::write(folder.0.join("job.fio"), job).expect("the job is written");
    let shown = command(Who::Iowhy, &folder.0, &["--showcmd", "job.fio"]);
    let shown = text(&shown.stdout).replace("'--description=x y' ", "");
    let words: Vec<&str> = shown.split_whitespace().collect();
    assert_eq!(words[0], "fio", "{shown}");
    let amounts = |document: &Value| {
        let of = |job: &Value| [&job["read"]["io_bytes"], &job["write"]["io_bytes"], &job["groupid"]].map(number);
        jobs(document).iter().map(of).collect::<Vec<_>>()
    };
    let theirs = amounts(&document(Who::Fio, &folder.0, &words[1..]));
    assert_eq!(theirs, [[0, 24 << 10, 0], [24 << 10, 0, 1]]);
    assert_eq!(amounts(&document(Who::Iowhy, &folder.0, &["job.fio"])), theirs);
}

#[test]
fn each_replays_what_the_other_has_recorded() {
    if !fio_is_there() {
        return;
    }
    let folder = Folder::new("replay");
    for (writer, reader) in [(Who::Fio, Who::Iowhy), (Who::Iowhy, Who::Fio)] {
        let place = folder.inside(&format!("{writer:?}"));
        let options = ["--name=a", "--rw=randrw", "--bs=4k", "--size=256k", "--fsync=7", "--write_iolog=calls"];
        let written = document(writer, &place, &options);
        let mut line = vec!["--name=b", "--read_iolog=calls", "--replay_no_stall=1"];
        if reader == Who::Iowhy {
            // fio has made the file, so it is not written without being allowed.
            let output = command(reader, &place, &line);
            let message = text(&output.stderr);
            assert!(!output.status.success() && message.contains("--allow-write=a.0.0"), "{message}");
            line.insert(0, "--allow-write=a.0.0");
        }
        let replayed = document(reader, &place, &line);
        check_identities(reader, "replay", &replayed);
        let amounts = |document: &Value| {
            let job = &jobs(document)[0];
            [&job["read"]["io_bytes"], &job["write"]["io_bytes"], &job["read"]["total_ios"]].map(number)
        };
        assert_eq!(amounts(&replayed), amounts(&written), "{writer:?} to {reader:?}");
    }
}

#[test]
fn errors_leave_a_whole_document_and_exit_code_1() {
    let folder = Folder::new("errors");
    let job = "[missing]\nfilename=job.fio/file\nsize=64k\nrw=write\n[fine]\nsize=64k\nrw=write\n";
    fs::write(folder.0.join("job.fio"), job).expect("the job is written");
    let output = command(Who::Iowhy, &folder.0, &["--output-format=json", "job.fio"]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("job.fio/file") && message.contains("Not a directory"), "{message}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(document["jobs"][0]["error"], 20, "{document:#}");
    for (line, expected) in [
        ("--name=a --size=4k --rw=nonsense", "rw"),
        ("--name=a --size=4k --on=sim:linux-6.18", "iowhy run JOBFILE --on sim:linux-6.18"),
        ("--name=a --size=4k --minimal --terse-version=7", "has no version `7`"),
        ("--cmdhelp=no_such_option", "unknown option"),
        ("no-such-file.fio", "no-such-file.fio"),
        ("", "nothing to do"),
    ] {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let output = command(Who::Iowhy, &folder.0, &arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}\n{message}");
        assert!(message.contains(expected) && output.stdout.is_empty(), "{line}\n{message}");
    }
}

/// Bytes and calls of reads, writes and trims of all jobs.
fn moved(who: Who, folder: &Folder, line: &str) -> Vec<[f64; 6]> {
    let arguments: Vec<&str> = line.split_whitespace().chain(["--name=x", "--output-format=json"]).collect();
    let output = command(who, &folder.0, &arguments);
    let start = output.stdout.iter().position(|byte| *byte == b'{').unwrap_or_default();
    let document: Value = serde_json::from_slice(&output.stdout[start..])
        .unwrap_or_else(|error| panic!("{who:?} {line}: {error}\n{}", text(&output.stderr)));
    let of = |job: &Value, key: &str| ["io_bytes", "total_ios"].map(|field| float(&job[key][field]));
    jobs(&document)
        .iter()
        .map(|job| {
            let ([a, b], [c, d], [e, f]) = (of(job, "read"), of(job, "write"), of(job, "trim"));
            [a, b, c, d, e, f]
        })
        .collect()
}

#[test]
fn as_much_is_moved_with_as_many_calls_as_by_fio() {
    if !fio_is_there() {
        return;
    }
    for line in [
        "--rw=randread --bssplit=4k/50:64k/50 --size=16m",
        "--rw=randrw --bs=4k,16k --size=1m",
        "--rw=randrw --bssplit=512/10:1k/5:2k/5:4k/60:8k/2:16k/4:32k/4:64k/10 --rwmixread=80 --size=4m",
        "--rw=read:64k --size=1m",
        "--rw=write:-8k --size=1m",
        "--rw=read --size=50% --filesize=512k",
        "--rw=randrw --size=1m --nrfiles=3 --loops=2 --numjobs=2",
        "--rw=randread --size=512k --filesize=1m --zonemode=strided --zonesize=16k --zonerange=64k --zoneskip=32k",
        "--ioengine=null --rw=randtrimwrite --size=256k",
        "--rw=rw --bsrange=4k-64k --size=4m --verify=crc32c --do_verify=0",
        "--rw=randrw --bsrange=4k-16k --size=1m --verify=sha1 --ioengine=libaio --iodepth=8",
        "--rw=write --size=256k --verify=md5 --loops=3",
        "--rw=write --size=256k --verify=md5 --verify_backlog=16 --verify_backlog_batch=4",
        "--ioengine=null --rw=randrw --size=256k --verify=md5",
        "--ioengine=null --rw=randtrimwrite --filesize=1m --bsrange=512/25:1k:25:2k:25:4k/25",
        "--ioengine=null --rw=randtrimwrite --filesize=1m --bs=4k,4k,8k --norandommap",
        "--rw=randwrite --size=1m --ioengine=libaio --iodepth=8 --serialize_overlap=1 --norandommap",
    ] {
        let found = [Who::Fio, Who::Iowhy].map(|who| moved(who, &Folder::new("moved"), line));
        assert_eq!(found[0], found[1], "{line}");
    }
    // Threads that submit change nothing about the calls; with them, fio 3.33 hangs in one run of six.
    let line = "--rw=randrw --size=1m --iodepth=4";
    let found = [(Who::Fio, line.to_owned()), (Who::Iowhy, format!("{line} --io_submit_mode=offload"))]
        .map(|(who, line)| moved(who, &Folder::new("moved"), &line));
    assert_eq!(found[0], found[1], "offload");
}

#[test]
fn either_checks_what_the_other_has_written() {
    if !fio_is_there() {
        return;
    }
    let sums = "md5 crc64 crc32 crc32c crc16 crc7 sha1 sha256 sha512 sha3-224 sha3-512 xxhash meta pattern";
    for sum in sums.split(' ') {
        for shape in ["--bs=4k", "--bs=8k --verify_interval=1k --verify_offset=300"] {
            let pattern = if sum == "pattern" { "--verify_pattern=\"abc\"%o0x01" } else { "--verify_fatal=1" };
            for (writes, reads) in [(Who::Fio, Who::Iowhy), (Who::Iowhy, Who::Fio), (Who::Iowhy, Who::Iowhy)] {
                let folder = Folder::new("checked");
                for (who, rw) in [(writes, "--rw=randwrite"), (reads, "--rw=read")] {
                    let line = format!("--name=x --size=128k --verify={sum} {shape} {pattern} --do_verify=0 {rw}");
                    let output = command(who, &folder.0, &line.split(' ').collect::<Vec<_>>());
                    let message = text(&output.stderr);
                    assert!(output.status.success(), "{writes:?} then {who:?}: {line}\n{message}");
                }
            }
        }
    }
}

#[test]
fn verify_states_are_those_of_fio() {
    if !fio_is_there() {
        return;
    }
    let line = ["--name=a", "--size=64k", "--nrfiles=2", "--verify=crc32c"];
    let with = |more: &[&'static str]| [&line[..], more].concat();
    let written = [Who::Fio, Who::Iowhy].map(|who| {
        let folder = Folder::new("state");
        document(who, &folder.0, &with(&["--rw=write", "--number_ios=9", "--do_verify=0"]));
        (fs::read(folder.0.join("local-a-0-verify.state")).expect("a state is kept"), folder)
    });
    assert_eq!(written[0].0, written[1].0, "the same bytes");
    for (_, folder) in &written {
        for who in [Who::Fio, Who::Iowhy] {
            let document = document(who, &folder.0, &with(&["--rw=read", "--verify_state_load=1"]));
            let job = &jobs(&document)[0];
            assert_eq!((&job["error"], &job["read"]["total_ios"]), (&Value::from(0), &Value::from(9)), "{who:?}");
        }
    }
    let missing = command(Who::Iowhy, &written[0].1.0, &with(&["--rw=read", "--verify_state_load=1", "--aux-path=x"]));
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("x/local-a-0-verify.state"), "{}", text(&missing.stderr));
}

#[test]
fn terse_lines_have_the_fields_of_fios() {
    if !fio_is_there() {
        return;
    }
    let folder = Folder::new("terse");
    for version in ["2", "3", "4", "5"] {
        let line = |who: Who| {
            let output = command(
                who,
                &folder.0,
                &[
                    "--minimal",
                    &format!("--terse-version={version}"),
                    "--name=a",
                    "--description=text",
                    "--size=1m",
                    "--rw=randrw",
                    "--ioengine=null",
                ],
            );
            text(&output.stdout).trim_end().to_owned()
        };
        // Figures differ, and so does the version; names of percentiles, signs and amounts do not.
        let shape = |line: &str| -> Vec<String> {
            let of = |field: &str| field.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect();
            line.split(';')
                .map(|field| field.strip_prefix("fio-3.33").map_or_else(|| of(field), |_| "fio".to_owned()))
                .collect()
        };
        let [ours, theirs] = [line(Who::Iowhy), line(Who::Fio)];
        assert_eq!(shape(&ours), shape(&theirs), "version {version}: {ours}\n{theirs}");
    }
}

#[test]
fn a_byte_that_was_flipped_is_found_and_named() {
    let folder = Folder::new("verify");
    let write = ["--name=a", "--rw=write", "--bs=4k", "--size=64k", "--verify=crc32c"];
    let written = document(Who::Iowhy, &folder.0, &write);
    assert_eq!(jobs(&written)[0]["error"], 0);
    let path = folder.0.join("a.0.0");
    let mut data = fs::read(&path).expect("the file is there");
    data[20_000] ^= 1;
    fs::write(&path, data).expect("the file is changed");
    let read = ["--output-format=json", "--name=a", "--rw=read", "--bs=4k", "--size=64k", "--verify=crc32c"];
    let output = command(Who::Iowhy, &folder.0, &read);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("a.0.0") && message.contains("20000"), "{message}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(document["jobs"][0]["error"], 84);
}

#[test]
fn logs_are_written_where_the_job_says() {
    let folder = Folder::new("logs");
    let line = [
        "--name=a",
        "--rw=randread",
        "--bs=4k",
        "--size=256k",
        "--numjobs=2",
        "--write_lat_log=x",
        "--write_bw_log=x",
        "--write_iops_log=x",
    ];
    document(Who::Iowhy, &folder.0, &line);
    for kind in ["lat", "clat", "bw", "iops"] {
        for clone in 1..=2 {
            let name = format!("x_{kind}.{clone}.log");
            let log = fs::read_to_string(folder.0.join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(log.lines().count(), 64, "{name}");
            let first: Vec<&str> = log.lines().next().expect("a row").split(", ").collect();
            assert_eq!(first[2..4], ["0", "4096"], "{name}: direction and block size");
        }
    }
}

#[test]
fn the_report_goes_where_it_is_asked_to_and_several_shapes_can_be_had_at_once() {
    let folder = Folder::new("output");
    let line = ["--output=report", "--output-format=normal,json", "--name=a", "--rw=read", "--size=64k"];
    let output = command(Who::Iowhy, &folder.0, &line);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{}", text(&output.stderr));
    let report = fs::read_to_string(folder.0.join("report")).expect("the report is there");
    assert!(report.contains("a: (groupid=0, jobs=1): err= 0: pid="), "{report}");
    assert!(report.contains("Run status group 0 (all jobs):\n   READ: bw="), "{report}");
    let start = report.find("\n{\n").expect("a lone brace begins the document");
    let document: Value = serde_json::from_str(&report[start..]).expect("a document");
    check_identities(Who::Iowhy, "output", &document);
}

#[test]
fn a_signal_ends_a_run_with_what_there_is() {
    let folder = Folder::new("signal");
    let mut child = Command::new(env!("CARGO_BIN_EXE_iowhy"))
        .args([
            "fio",
            "--output-format=json",
            "--name=a",
            "--rw=randread",
            "--size=64k",
            "--runtime=60",
            "--time_based",
        ])
        .args(["--thinktime=1000", "--write_bw_log=x"])
        .current_dir(&folder.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // The file is made before the clock starts; a moment later there are calls.
    let file = folder.0.join("a.0.0");
    for _ in 0..200 {
        std::thread::sleep(Duration::from_millis(20));
        if fs::metadata(&file).is_ok_and(|metadata| metadata.len() == 65536) {
            break;
        }
    }
    std::thread::sleep(Duration::from_millis(400));
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    if !sent.success() {
        let _ = child.kill();
    }
    let output = child.wait_with_output().expect("it ends");
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{message}");
    assert!(message.contains("a signal ended the run early"), "{message}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    let reads = number(&document["jobs"][0]["read"]["total_ios"]);
    assert!(reads > 0, "{document:#}");
    let log = fs::read_to_string(folder.0.join("x_bw.1.log")).expect("logs are written all the same");
    assert_eq!(log.lines().count() as u64, reads);
}
