//! Logs of fio read here, and logs written here read by the installed fio; recorded calls replayed here, on the running
//! kernel and in the simulator.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use iowhy_fio as fio_jobs;
use iowhy_fio::World;
use iowhy_fio::iolog::{Action, Iolog};
use iowhy_fio::job::Replay;
use iowhy_fio::logs::{self, Columns, Direction};
use iowhy_lab::run::simulator::Simulator;
use iowhy_lab::run::{self, Request};
use iowhy_live::outcome::CallRecord;
use iowhy_stack::event::Op;
use iowhy_stack::sim;
use iowhy_stack::units::Nanos;
use iowhy_text::diagnose::Problems;
use serde_json::Value;

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("iowhy-formats-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn write(&self, name: &str, text: &[u8]) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    /// The name of a file in it.
    fn name(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    /// Runs fio in it; its first job.
    fn fio(&self, arguments: &str) -> Value {
        let output = fio(&self.0, arguments);
        let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "fio {arguments}: {text}{errors}");
        let start = text.find("{\n").unwrap_or_else(|| panic!("fio {arguments}: {text}{errors}"));
        let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        values.next().unwrap().unwrap()["jobs"][0].clone()
    }

    fn iolog(&self, name: &str) -> Iolog {
        let mut problems = Problems::default();
        let log = Iolog::parse(name, &self.read(name), None, &mut problems);
        assert_eq!(problems.render(), "");
        log.unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn fio(directory: &Path, arguments: &str) -> Output {
    Command::new("fio")
        .args(["--output-format=json"])
        .args(arguments.split_whitespace())
        .current_dir(directory)
        .output()
        .unwrap()
}

/// Whether there is a fio. Without one the test says so, and fails where it must not be missing.
fn has_fio(test: &str) -> bool {
    let found = Command::new("fio").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        assert!(!std::env::var("CI").is_ok_and(|ci| ci == "true"), "{test}: fio is not installed");
        eprintln!("{test}: SKIPPED, fio is not installed");
    }
    found
}

/// The I/O of a log: action, name of the file, offset, length.
fn ios(log: &Iolog) -> Vec<(Action, String, u64, u32)> {
    let is_io = |action| !matches!(action, Action::Add | Action::Open | Action::Close);
    let entries = log.entries.iter().filter(|entry| is_io(entry.action));
    entries.map(|entry| (entry.action, log.files[entry.file as usize].clone(), entry.offset, entry.len_bytes)).collect()
}

/// Calls half a millisecond apart on two files.
fn calls() -> Vec<CallRecord> {
    let call = |n: u64| {
        let op = [Op::Read, Op::Write, Op::Read, Op::Fdatasync, Op::Write, Op::Read, Op::Fsync][n as usize % 7];
        let data = matches!(op, Op::Read | Op::Write);
        CallRecord {
            at: Nanos::from_us(n * 500),
            took: Nanos::from_us(20),
            late: Nanos::ZERO,
            submission: Nanos::ZERO,
            op,
            file: (n % 3 / 2) as u32,
            offset: if data { n * 5 % 32 * 4096 } else { 0 },
            len_bytes: if data { 512 << (n % 4) } else { 0 },
        }
    };
    (0..300).map(call).collect()
}

const FILES: [&str; 2] = ["one", "two"];

/// What fio has read and written, by its log of latencies.
fn carried_out(scratch: &Scratch) -> Vec<(Op, u64, u32)> {
    let mut problems = Problems::default();
    let columns = Columns { offset: true, ..Columns::default() };
    let rows = logs::parse("p_lat.1.log", &scratch.read("p_lat.1.log"), columns, &mut problems);
    assert_eq!(problems.render(), "");
    let op = |direction| if direction == Direction::Read { Op::Read } else { Op::Write };
    rows.iter().map(|row| (op(row.direction), row.offset, row.block_bytes as u32)).collect()
}

fn with_log(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    let mut text = Vec::new();
    Iolog::of_calls(&FILES.map(str::to_owned), &calls()).write(&mut text).unwrap();
    scratch.write("ours.log", &text);
    for file in FILES {
        scratch.write(file, &[7; 33 * 4096]);
    }
    scratch
}

#[test]
fn fio_replays_a_log_written_here() {
    if !has_fio("fio_replays_a_log_written_here") {
        return;
    }
    let scratch = with_log("ours");
    let job = scratch.fio("--name=r --read_iolog=ours.log --write_lat_log=p --log_offset=1");
    let is_data = |call: &CallRecord| matches!(call.op, Op::Read | Op::Write);
    let ours = calls().into_iter().filter(is_data).map(|call| (call.op, call.offset, call.len_bytes));
    assert_eq!(carried_out(&scratch), ours.collect::<Vec<_>>());
    let of = |op| calls().into_iter().filter(|call| call.op == op).collect::<Vec<_>>();
    for (op, name) in [(Op::Read, "read"), (Op::Write, "write")] {
        assert_eq!(job[name]["total_ios"], of(op).len(), "{name}");
        assert_eq!(job[name]["io_bytes"], of(op).iter().map(|call| u64::from(call.len_bytes)).sum::<u64>(), "{name}");
    }
    // Of both kinds of sync fio counts one and times both.
    assert_eq!(job["sync"]["total_ios"], of(Op::Fsync).len());
    assert_eq!(job["sync"]["lat_ns"]["N"], of(Op::Fsync).len() + of(Op::Fdatasync).len());
    assert!(job["job_runtime"].as_u64() >= Some(149), "{} ms", job["job_runtime"]);
}

#[test]
fn options_of_replaying_do_what_they_do_in_fio() {
    if !has_fio("options_of_replaying_do_what_they_do_in_fio") {
        return;
    }
    let scratch = with_log("options");
    let plain = Replay {
        logs: vec!["ours.log".to_owned()],
        no_stall: true,
        redirect: None,
        scale: 1,
        align: 0,
        time_scale: 100,
        skip: Vec::new(),
    };
    let load = |name: &str| Ok(scratch.read(name));
    // Not `replay_skip`: fio 3.33 takes no notice of it in an iolog, later ones do.
    for (arguments, options) in [
        ("--replay_scale=4", Replay { scale: 4, ..plain.clone() }),
        ("--replay_align=16384", Replay { align: 16384, ..plain.clone() }),
        ("--replay_redirect=one", Replay { redirect: Some("one".to_owned()), ..plain.clone() }),
    ] {
        let job = scratch.fio(&format!(
            "--name=r --read_iolog=ours.log --replay_no_stall=1 --write_lat_log=p --log_offset=1 {arguments}"
        ));
        let mut problems = Problems::default();
        let ours = iowhy_fio::iolog::load(&options, 0, &load, &mut problems).unwrap();
        assert_eq!(problems.render(), "");
        let (data, syncs): (Vec<_>, Vec<_>) =
            ours.calls.iter().map(|step| step.call).partition(|call| matches!(call.op, Op::Read | Op::Write));
        let data: Vec<_> = data.iter().map(|call| (call.op, call.offset, call.len_bytes)).collect();
        assert_eq!(data, carried_out(&scratch), "{arguments}");
        assert_eq!(job["sync"]["lat_ns"]["N"], syncs.len(), "{arguments}");
    }
}

#[test]
fn a_wait_of_version_2_is_until_a_number_of_milliseconds() {
    if !has_fio("a_wait_of_version_2_is_until_a_number_of_milliseconds") {
        return;
    }
    let scratch = Scratch::new("wait");
    scratch.write("one", &[0; 8192]);
    let text = "fio version 2 iolog\none add\none open\none read 0 512\none wait 300 0\none read 512 512\n\
                one wait 200 0\none read 1024 512\none close\n";
    scratch.write("ours.log", text.as_bytes());
    let clock = Instant::now();
    let job = scratch.fio("--name=r --read_iolog=ours.log");
    assert_eq!(job["read"]["total_ios"], 3);
    // Microseconds would be over at once.
    assert!(clock.elapsed().as_millis() >= 300, "{:?}", clock.elapsed());
}

#[test]
fn logs_of_fio_agree_with_its_report() {
    if !has_fio("logs_of_fio_agree_with_its_report") {
        return;
    }
    let scratch = Scratch::new("logs");
    let job = scratch.fio(
        "--name=w --rw=randrw --bs=4k --size=2m --filename=one --write_lat_log=p --write_bw_log=p --write_iops_log=p \
         --log_offset=1 --unlink=1",
    );
    let columns = Columns { offset: true, ..Columns::default() };
    let read = |name: &str| {
        let mut problems = Problems::default();
        let rows = logs::parse(name, &scratch.read(name), columns, &mut problems);
        assert_eq!(problems.render(), "");
        rows
    };
    let lat = read("p_lat.1.log");
    for (direction, name) in [(Direction::Read, "read"), (Direction::Write, "write")] {
        let values: Vec<u64> = lat.iter().filter(|row| row.direction == direction).map(|row| row.value).collect();
        assert_eq!(job[name]["total_ios"], values.len());
        let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
        let told = job[name]["lat_ns"]["mean"].as_f64().unwrap();
        assert!((mean - told).abs() <= told / 1000.0, "{name}: {mean} and {told}");
    }
    assert!(lat.iter().all(|row| row.block_bytes == 4096 && row.offset < 2 << 20 && row.offset % 4096 == 0));
    assert_eq!((read("p_clat.1.log").len(), read("p_bw.1.log").len()), (lat.len(), lat.len()));
    assert!(read("p_iops.1.log").iter().all(|row| row.value == 1));
}

/// What `iowhy fio` makes of arguments, on the running kernel.
fn live(arguments: &[String]) -> (fio_jobs::live::LiveJobs, iowhy_live::Outcome) {
    let load = |name: &str| std::fs::read_to_string(name).map_err(|error| error.to_string());
    let world = World { load: &load, live: true, ..World::empty() };
    let mut problems = Problems::default();
    let invocation = fio_jobs::command_line(arguments, &world, &mut problems);
    let jobs = invocation.and_then(|invocation| fio_jobs::live::jobs(invocation.file, Some(1), &world, &mut problems));
    let jobs = jobs.unwrap_or_else(|| panic!("{}", problems.render()));
    let (outcome, _) = fio_jobs::live::run(&jobs, &|_| (), None).unwrap_or_else(|error| panic!("{error:?}"));
    (jobs, outcome)
}

/// A log of reads at a pace of 1,000 a second, recorded by fio if there is one.
fn paced_log(scratch: &Scratch, nr_calls: u64) -> String {
    if has_fio("a_log_replays_at_its_pace") {
        scratch.write("data", &vec![1; 1 << 20]);
        let arguments = format!(
            "--name=w --rw=randread --bs=4k --size=1m --filename={} --rate_iops=1000 --io_size={} \
             --write_iolog=paced.log",
            scratch.name("data"),
            nr_calls * 4096
        );
        scratch.fio(&arguments);
        return scratch.name("paced.log");
    }
    let call = |n: u64| CallRecord {
        at: Nanos::from_us(n * 1000),
        took: Nanos(0),
        late: Nanos(0),
        submission: Nanos(0),
        op: Op::Read,
        file: 0,
        offset: n % 256 * 4096,
        len_bytes: 4096,
    };
    let calls: Vec<CallRecord> = (0..nr_calls).map(call).collect();
    scratch.write("data", &vec![1; 1 << 20]);
    let mut text = Vec::new();
    Iolog::of_calls(&[scratch.name("data")], &calls).write(&mut text).unwrap();
    scratch.write("paced.log", &text);
    scratch.name("paced.log")
}

#[test]
fn a_log_replays_at_its_pace() {
    let scratch = Scratch::new("pace");
    let nr_calls = 1500;
    let name = paced_log(&scratch, nr_calls);
    let log = scratch.iolog("paced.log");
    let times: Vec<u64> =
        log.entries.iter().filter(|entry| entry.action == Action::Read).map(|entry| entry.at_us).collect();
    assert_eq!(times.len() as u64, nr_calls);
    // From the first line of the log, as the clock of the replay.
    let span = (times[times.len() - 1] - log.entries[0].at_us) * 1000;
    let arguments = ["--name=r".to_owned(), format!("--read_iolog={name}"), format!("--write_iolog={name}.2")];
    let mut tries = Vec::new();
    // A busy machine may hold one replay up, not three.
    for _ in 0..3 {
        let (jobs, outcome) = live(&arguments);
        assert_eq!((outcome.counts.reads, outcome.counts.read_bytes), (nr_calls, nr_calls * 4096));
        let thread = &outcome.threads[0];
        let (elapsed, calls) = (thread.totals.elapsed().0, &thread.calls);
        // Nothing is ahead of its time, whatever the machine does.
        let begin = log.entries[0].at_us;
        for (call, at_us) in calls.iter().zip(&times) {
            assert!(call.at.0 + 1000 >= thread.totals.start.0 + (at_us - begin) * 1000, "{call:?}");
        }
        assert_eq!(calls.len() as u64, nr_calls);
        fio_jobs::live::write_logs(&jobs, &outcome).unwrap();
        assert_eq!(ios(&scratch.iolog("paced.log.2")), ios(&log));
        assert!(elapsed + 1000 >= span, "{elapsed} ns for {span}");
        if elapsed <= span + span / 100 {
            eprintln!("a log of {span} ns took {elapsed} ns");
            return;
        }
        tries.push(elapsed);
    }
    panic!("a log of {span} ns took {tries:?} ns");
}

#[test]
fn the_simulator_replays_a_log() {
    let scratch = with_log("simulated");
    let text = scratch.read("ours.log");
    let load = |name: &str| if name == "ours.log" { Ok(text.clone()) } else { Err("no such file".to_owned()) };
    let world = World { load: &load, ..World::empty() };
    let simulate = |options: &str| {
        let words = format!("fio --name=r --read_iolog=ours.log --on sim:linux-6.18 --on sim:linux-2.6.22 {options}");
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let mut problems = Problems::default();
        let Some(Request::Run(request)) = run::resolve(&words, &world, &mut problems) else {
            panic!("{}", problems.render());
        };
        let outcome = |variant: &run::Variant| {
            sim::run(&variant.backend::<Simulator>().expect("a simulated place").plan).expect("it runs")
        };
        request.variants.iter().map(outcome).collect::<Vec<_>>()
    };
    let mut expected: BTreeMap<Op, u64> = BTreeMap::new();
    calls().iter().for_each(|call| *expected.entry(call.op).or_default() += 1);
    let span = Nanos::from_us(299 * 500);
    for outcome in simulate("") {
        let counts = outcome.counts;
        assert_eq!((counts.reads, counts.writes), (expected[&Op::Read], expected[&Op::Write]));
        assert_eq!(counts.syncs, expected[&Op::Fsync] + expected[&Op::Fdatasync]);
        assert!(outcome.elapsed >= span, "{} for {span}", outcome.elapsed);
    }
    let half = simulate("--replay_skip=write,sync --replay_time_scale=50 --replay_redirect=/dev/sda --direct=1");
    for outcome in half {
        assert_eq!((outcome.counts.reads, outcome.counts.writes), (expected[&Op::Read], 0));
    }
}
