//! blktrace's files: 400,000 requests with five events each (Q, G, I, D, C) on two CPUs, 2,000,000 records in all.
//!
//! Phases: from the files to counts, averages and percentiles of every phase, in this process, against `blkparse -d`
//! and btt as processes of their own; averages must be equal to the nanosecond. Text: blkparse's, to a file that
//! takes all, against blkparse itself; before, both are written out and must be equal byte for byte. CPU time of the
//! processes comes from `wait4`, by way of Python, which has it without unsafe code.

use super::{Aim, Figure, Sample, Setting, compare, timed};
use iowhy_stack::rng::Rng;
use iowhy_stack::trace::{Dev, Extent, Record, Rwbs, Seen, Trace};
use iowhy_stack::units::{Nanos, Sector};
use iowhy_trace::format::blkparse::{self, Options};
use iowhy_trace::format::blktrace::{self, Merge};
use iowhy_trace::phases::{Phase, Phases, Tables};
use std::fs::File;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Requests of the trace.
const REQUESTS: usize = 400_000;
/// Records of a request.
const STEPS: usize = 5;

/// Runs commands, one after the other, and prints their CPU time in ns. They are separated by `--`.
const SCRIPT: &str = "\
import os, subprocess, sys
words, used = sys.argv[2:], 0
while words:
    end = words.index('--')
    child = subprocess.Popen(words[:end], cwd=sys.argv[1], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    assert status == 0, status
    used += usage.ru_utime + usage.ru_stime
    words = words[end + 1:]
print(round(used * 1e9))
sys.stdout.flush()
os._exit(0)
";

pub(super) fn run(setting: &Setting) -> Result<Vec<Figure>, String> {
    let folder = setting.folder.join("blktrace");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let nr_requests = REQUESTS / setting.divisor;
    let paths = [folder.join("t")];
    blktrace::write(&trace(nr_requests), &paths[0], &mut |path, bytes| std::fs::write(path, bytes))
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    let there = |program: &str| Command::new(program).arg("-V").output().is_ok();
    let missing = (!there("blkparse") || !there("btt")).then(|| "blktrace is not installed".to_owned());
    let operations = nr_requests * STEPS;

    let mut measure_ours = || {
        let mut result = Err("not measured".to_owned());
        let sample = timed(operations, || {
            result = phases(&paths);
            result.as_ref().map_or(0, digest)
        });
        result.map(|_| sample)
    };
    peak("phases", || phases(&paths).map(|tables| digest(&tables)))?;
    let mut measure_peer = || {
        let merge = ["blkparse", "-i", "t", "-d", "merged", "-O", "--"];
        let ns = processes(&folder, &[&merge[..], &["btt", "-i", "merged", "-o", "b", "--"]].concat(), operations)?;
        let report = folder.join("b.avg");
        let report = std::fs::read_to_string(&report).map_err(|error| format!("{}: {error}", report.display()))?;
        Ok(Sample { ns, answer: peer_digest(&report) })
    };
    let peer: Result<super::Measure<'_>, String> = match &missing {
        None => Ok(&mut measure_peer),
        Some(reason) => Err(reason.clone()),
    };
    let aim = Aim { unit: "ns/event", peer_name: "blkparse + btt", goal: Some(20.0), limit: None };
    let phases = compare(setting, "blktrace, phases".to_owned(), aim, &mut measure_ours, peer)?;

    if missing.is_none() {
        let file = folder.join("ours.txt");
        let out = &mut File::create(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        text(&paths, out)?;
        processes(&folder, &["blkparse", "-i", "t", "-o", "peer.txt", "--"], operations)?;
        let read = |name: &str| std::fs::read(folder.join(name)).map_err(|error| format!("{name}: {error}"));
        if read("ours.txt")? != read("peer.txt")? {
            return Err(format!("blktrace, text: WRONG ANSWER: see ours.txt and peer.txt in {}", folder.display()));
        }
    }
    let mut measure_ours = || {
        let mut nowhere = File::create("/dev/null").map_err(|error| error.to_string())?;
        let mut result = Err("not measured".to_owned());
        let sample = timed(operations, || {
            result = text(&paths, &mut nowhere);
            *result.as_ref().unwrap_or(&0)
        });
        result.map(|_| sample)
    };
    peak("text", || text(&paths, &mut std::io::sink()))?;
    let mut measure_peer = || {
        let ns = processes(&folder, &["blkparse", "-i", "t", "-o", "/dev/null", "--"], operations)?;
        // What it writes was compared above.
        Ok(Sample { ns, answer: operations as u64 })
    };
    let peer: Result<super::Measure<'_>, String> = match missing {
        None => Ok(&mut measure_peer),
        Some(reason) => Err(reason),
    };
    let aim = Aim { unit: "ns/event", peer_name: "blkparse", goal: Some(8.0), limit: None };
    let text = compare(setting, "blktrace, text".to_owned(), aim, &mut measure_ours, peer)?;
    Ok(vec![phases, text])
}

/// Phases of the files.
fn phases(paths: &[PathBuf]) -> Result<Tables, String> {
    let mut merge = Merge::open(paths).map_err(|fault| fault.to_string())?;
    let start_ns = merge.start_ns();
    let mut phases = Phases::default();
    let all: Result<(), std::convert::Infallible> = merge.for_each_raw(|raw, payload, _| {
        phases.add(&raw.record(payload, start_ns));
        Ok(())
    });
    let Ok(()) = all;
    match merge.heading().faults.first() {
        Some(fault) => Err(fault.to_string()),
        None => Ok(phases.finish()),
    }
}

/// Writes the text of the files; returns the number of events.
fn text(paths: &[PathBuf], out: &mut dyn std::io::Write) -> Result<u64, String> {
    let mut merge = Merge::open(paths).map_err(|fault| fault.to_string())?;
    let options = Options { name: "t".to_owned(), ..Options::default() };
    let summary = blkparse::export(&mut merge, &options, out).map_err(|error| error.to_string())?;
    Ok(summary.events)
}

/// Counts and averages of all phases that happened, as a number; percentiles are computed as well.
fn digest(tables: &Tables) -> u64 {
    let mut sum = 0;
    for phase in Phase::ALL {
        let times = tables.all.of(phase);
        for thousandths in [500, 900, 990, 999] {
            black_box(times.quantile(thousandths, 1000));
        }
        if times.count() > 0 {
            // As btt prints it: in double precision, to the nanosecond.
            let average = format!("{:.9}", times.sum() as f64 / 1e9 / times.count() as f64);
            sum = mixed(sum, phase.name(), &average, &times.count().to_string());
        }
    }
    sum
}

/// The same of btt's report.
fn peer_digest(report: &str) -> u64 {
    let all = report.lines().skip_while(|line| !line.contains("All Devices")).skip(1);
    let mut sum = 0;
    for line in all.take_while(|line| !line.contains("====================")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [name, _, average, _, count] = words[..]
            && Phase::ALL.iter().any(|phase| phase.name() == name)
        {
            sum = mixed(sum, name, average, count);
        }
    }
    sum
}

fn mixed(sum: u64, name: &str, average: &str, count: &str) -> u64 {
    let bytes = [name, average, count].into_iter().flat_map(str::bytes);
    bytes.fold(sum, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3).rotate_left(5))
}

/// CPU time of processes, divided by `operations`.
fn processes(folder: &Path, words: &[&str], operations: usize) -> Result<f64, String> {
    let output = Command::new("python3")
        .args(["-c", SCRIPT])
        .arg(folder)
        .args(words)
        // Where no locale is found, thousands are not separated.
        .env("LOCPATH", "none")
        .output()
        .map_err(|error| format!("python3 could not be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().parse::<u64>() {
        Ok(ns) => Ok(ns as f64 / operations as f64),
        Err(_) => Err(format!("{}: {}", words[0], String::from_utf8_lossy(&output.stderr))),
    }
}

/// Does something and says by how much the memory of this process grew meanwhile at most.
fn peak(name: &str, work: impl FnOnce() -> Result<u64, String>) -> Result<(), String> {
    // The kernel forgets the highest mark.
    let reset = std::fs::write("/proc/self/clear_refs", "5").is_ok();
    let kib = |field: &str| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with(field))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let before = kib("VmRSS:");
    black_box(work()?);
    if let (true, Some(before), Some(after)) = (reset, before, kib("VmHWM:")) {
        eprintln!("bench: blktrace, {name}: {} KiB more at most", after.saturating_sub(before));
    }
    Ok(())
}

/// The trace, in the order of its times.
fn trace(nr_requests: usize) -> Trace {
    let mut rng = Rng::stream(1, "bench.blktrace");
    let names = vec![(0, "swapper/0".to_owned()), (4711, "fio".to_owned())];
    let mut trace = Trace { names, started_ns: 1_700_000_000_000_000_000, ..Trace::default() };
    let mut now = 0;
    for nr in 0..nr_requests {
        now += 1_000 + rng.below(3_000);
        let rwbs = if rng.below(4) == 0 { Rwbs::WRITE.with(Rwbs::SYNC) } else { Rwbs::READ };
        let extent =
            Extent { dev: Dev::new(8, 0), sector: Sector(8 * rng.below(1 << 32)), bytes: 4096 << rng.below(4), rwbs };
        let queued = now;
        let allocated = queued + 200 + rng.below(600);
        let inserted = allocated + 100 + rng.below(300);
        let issued = inserted + 300 + rng.below(3_000);
        let done = issued + 20_000 + rng.below(135_000);
        let cpu = nr as u32 % 2;
        let mut push = |at: u64, pid: u32, seen: Seen| trace.records.push(Record { at: Nanos(at), cpu, pid, seen });
        push(queued, 4711, Seen::Queue(extent));
        push(allocated, 4711, Seen::GetRequest(extent));
        push(inserted, 4711, Seen::Insert(extent));
        push(issued, 4711, Seen::Issue(extent));
        push(done, 0, Seen::Complete { extent, error: 0 });
    }
    trace.records.sort_by_key(|record| record.at);
    trace
}
