//! `bench recorder`, as root: the price of the recorders, and what they leave behind.
//!
//! ```text
//! prices      `iowhy trace price` of four jobs: direct reads of memory, by psync and io_uring, cached reads, and a
//!             modelled disk
//! triggers    200 under load: a thread notes the times of its reads, and each recording has to have exactly these
//! kills       SIGKILL of an armed recorder at random moments: `doctor` has to name and to mend what is left
//! neighbours  two armed recorders, and an instance of tracefs that is not ours
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use iowhy_lab::price;
use iowhy_lab::recording::armed::{self, Arm, Caught};
use iowhy_lab::recording::when::When;
use iowhy_lab::recording::{Request, dev};
use iowhy_lab::store::Store;
use iowhy_live::capture::{self, Level, monotonic_ns};
use iowhy_live::ledger::Ledger;
use iowhy_stack::rng::Rng;
use iowhy_stack::trace::{Dev, Seen, Trace};
use iowhy_text::part::Part;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{Outcome, release_binary, renew};

const TABLE: Part = Part { command: "cargo xtask bench recorder" };

/// Longest life of an instance that another program has.
const LIFE: Duration = Duration::from_mins(2);

/// Jobs; DISK is a disk in memory.
const JOBS: [(&str, &str); 4] = [
    ("direct 4k reads of memory", "fio --name=j --filename=DISK --rw=randread --bs=4k --direct=1 --ioengine=psync"),
    (
        "the same, io_uring, depth 8",
        "fio --name=j --filename=DISK --rw=randread --bs=4k --direct=1 --ioengine=io_uring --iodepth=8",
    ),
    ("cached 4k reads", "fio --name=j --filename=DISK --rw=randread --bs=4k --ioengine=psync --size=8m --invalidate=0"),
    (
        "direct 4k reads of a modelled NVMe",
        "--disk=nvme fio --name=j --rw=randread --bs=4k --direct=1 --ioengine=psync --size=32m",
    ),
];

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Measures, tests, and writes the page if asked to.
pub(super) fn run(folder: &Path, quick: bool, page: bool) -> Outcome {
    let (blocks, triggers, kills) = if quick { (3, 20, 5) } else { (20, 200, 50) };
    let binary = release_binary()?;
    let folder = folder.join("recorder");
    // What a run before has left there is of no use.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(text)?;
    let mut lines = Vec::new();
    let mut say = |line: String| {
        println!("{line}");
        lines.push(line);
    };
    // First those that can fail.
    say(triggered(triggers)?);
    say(killed(&binary, &folder, kills)?);
    say(neighbours(&binary, &folder)?);
    say(String::new());
    say(format!(
        "`cargo xtask bench recorder --page`: {blocks} blocks of random order, level layers, runs of half a second; in \
         brackets 95 % intervals."
    ));
    say(String::new());
    say("| job | way | ns an event | throughput lost % | p99 +% |".to_owned());
    say("| --- | --- | ---: | ---: | ---: |".to_owned());
    for (job, words) in JOBS {
        eprintln!("bench: recorder: {job}");
        rows(job, &prices(&binary, &folder, words, blocks)?).into_iter().for_each(&mut say);
    }
    if page { renew("BENCH.md", TABLE, &lines.join("\n")) } else { Ok(()) }
}

/// What `iowhy trace price --json` measures. A program of its own: the keeper of a modelled disk is the program that
/// asked for it.
fn prices(binary: &Path, folder: &Path, job: &str, blocks: u32) -> Result<Value, String> {
    let words = format!("trace price --json --runs {blocks} {job} --time_based --runtime=500ms");
    let output = iowhy(binary, folder, &words).output().map_err(text)?;
    if !output.status.success() {
        return Err(format!("`iowhy {words}`: {}", String::from_utf8_lossy(&output.stderr).trim_end()));
    }
    serde_json::from_slice(&output.stdout).map_err(text)
}

fn rows(job: &str, prices: &Value) -> Vec<String> {
    let all = |of: &str| prices[of].as_array().cloned().unwrap_or_default();
    let figure = |value: &Value, digits: usize| value.as_f64().map_or("-".to_owned(), |it| format!("{it:.digits$}"));
    let with = |row: &Value, value: &str, interval: &str| match &row[interval] {
        Value::Null => "-".to_owned(),
        ci => format!("{} ({} .. {})", figure(&row[value], 1), figure(&ci[0], 1), figure(&ci[1], 1)),
    };
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = |row: &Value| {
        let (ns, lost) = (figure(&row["ns_per_event"], 0), with(row, "throughput_pct", "ci_pct"));
        let tail = with(row, "p99_pct", "p99_ci_pct");
        format!("| {job} | {} {} | {ns} | {lost} | {tail} |", word(&row["way"]), word(&row["mode"]))
    };
    let not = |row: &Value| {
        // Not what the program said.
        let why = word(&row["why"]);
        format!("| {job} | {} | - | {} | - |", word(&row["way"]), why.split(": ").next().unwrap_or_default())
    };
    all("rows").iter().map(row).chain(all("not_run").iter().map(not)).collect()
}

/// Direct reads of 4 KiB, until it is enough: when each began and ended.
fn read(node: &Path, enough: &dyn Fn(usize) -> bool) -> Result<Vec<[u64; 2]>, String> {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(direct).open(node).map_err(text)?;
    let mut room = vec![0_u8; 8192];
    let first = room.as_ptr().align_offset(4096);
    let mut calls = Vec::new();
    while !enough(calls.len()) {
        let begun = monotonic_ns();
        let place = calls.len() as u64 % 4096 * 4096;
        file.read_exact_at(&mut room[first..first + 4096], place).map_err(text)?;
        calls.push([begun, monotonic_ns()]);
    }
    Ok(calls)
}

fn number(node: &Path) -> Result<Dev, String> {
    Ok(dev(fs::metadata(node).map_err(text)?.rdev()))
}

/// A recording: begin and end, its reads, its completions, and whether something is missing.
struct Kept {
    window: [u64; 2],
    /// Begins and ends of reads by thread, CLOCK_MONOTONIC.
    calls: Vec<(u32, u64, bool)>,
    completed: Vec<u64>,
    whole: bool,
}

fn kept(caught: &Caught, disk: Dev) -> Kept {
    let captured = &caught.captured;
    let begin = captured.monotonic_ns;
    let records = || captured.trace.records.iter();
    let call = |seen: &Seen| match seen {
        Seen::CallStart { .. } => Some(true),
        Seen::CallEnd { .. } => Some(false),
        _ => None,
    };
    let done = |seen: &Seen| matches!(seen, Seen::Complete { extent, .. } if extent.dev == disk);
    let ordered = captured.trace.records.is_sorted_by_key(|record| record.at);
    Kept {
        window: [begin, begin + captured.length.as_nanos() as u64],
        calls: records().filter_map(|it| Some((it.pid, begin + it.at.0, call(&it.seen)?))).collect(),
        completed: records().filter(|it| done(&it.seen)).map(|it| begin + it.at.0).collect(),
        whole: captured.trace.lost == 0 && captured.undecoded == 0 && !caught.short && ordered,
    }
}

/// Whether a recording has exactly these calls of a thread, as far as they are inside of it, and how many these are.
fn agrees(kept: &Kept, thread: u32, calls: &[[u64; 2]]) -> Result<usize, String> {
    let [begin, end] = kept.window;
    let inside: Vec<&[u64; 2]> = calls.iter().filter(|[from, to]| *from >= begin && *to <= end).collect();
    let (Some([first, _]), Some([_, last])) = (inside.first(), inside.last()) else { return Ok(0) };
    let within = |at: u64| (*first..=*last).contains(&at);
    let of: Vec<(u64, bool)> =
        kept.calls.iter().filter(|(pid, at, _)| *pid == thread && within(*at)).map(|(_, at, is)| (*at, *is)).collect();
    let completed = kept.completed.iter().filter(|at| within(**at)).count();
    let pair = |([from, to], seen): (&&[u64; 2], &[(u64, bool)])| match seen {
        [(a, true), (b, false)] => from <= a && a <= b && b <= to,
        _ => false,
    };
    let equal = of.len() == 2 * inside.len() && completed == inside.len();
    if equal && inside.iter().zip(of.chunks(2)).all(pair) {
        return Ok(inside.len());
    }
    let (n, seen) = (inside.len(), of.len());
    Err(format!("{n} reads were made, and {seen} begins and ends, and {completed} completions are recorded"))
}

/// Triggers under load.
fn triggered(number_of: u32) -> Result<String, String> {
    eprintln!("bench: recorder: {number_of} triggers");
    let (ledger, _) = Ledger::open().map_err(text)?;
    let (node, _disk) = price::disk(&ledger).map_err(text)?;
    let disk = number(&node)?;
    let (end, thread, done) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(u32::MAX));
    let (mut all, mut outcome) = (Vec::new(), Ok(0));
    let calls = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            thread.store(rustix::thread::gettid().as_raw_pid().unsigned_abs(), Ordering::SeqCst);
            read(&node, &|_| end.load(Ordering::SeqCst))
        });
        scope.spawn(|| {
            let mut rng = Rng::stream(1, "bench.recorder");
            for nr in 0..number_of {
                while done.load(Ordering::SeqCst) != nr {
                    if end.load(Ordering::SeqCst) {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(Duration::from_millis(20 + rng.below(60)));
                let _ = kill_process(rustix::process::getpid(), Signal::USR1);
            }
        });
        let arm = Arm {
            request: Request { level: Level::Layers, ..Request::default() },
            keep: Duration::from_millis(50),
            after: Duration::from_millis(5),
            memory: 128 << 20,
            when: vec![When::Signal],
            most: Some(number_of),
        };
        outcome = armed::arm(&arm, &mut || done.store(0, Ordering::SeqCst), &mut |caught| {
            all.push(kept(&caught, disk));
            done.fetch_add(1, Ordering::SeqCst);
            true
        });
        end.store(true, Ordering::SeqCst);
        load.join().map_err(|_| "the load panicked".to_owned())?
    })?;
    outcome.map_err(text)?;
    let thread = thread.load(Ordering::SeqCst);
    let mut counted = 0;
    for (nr, kept) in all.iter().enumerate() {
        let before = nr.checked_sub(1).map_or(0, |nr| all[nr].window[1]);
        if !kept.whole || kept.window[0] < before {
            return Err(format!("recording {nr} is not whole, or not in order"));
        }
        let found = agrees(kept, thread, &calls).map_err(|why| format!("recording {nr}: {why}"))?;
        if found == 0 {
            return Err(format!("recording {nr} has no read"));
        }
        counted += found;
    }
    if all.len() != number_of as usize {
        return Err(format!("{} recordings of {number_of} triggers", all.len()));
    }
    let reads = iowhy_text::grouped(counted as u64);
    Ok(format!(
        "{number_of} triggers under load: {number_of} recordings complete and in order; calls, completions and the \
         job's own count of {reads} reads are equal."
    ))
}

/// The instances of tracefs by name.
fn instances(tracefs: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(tracefs.join("instances")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn iowhy(binary: &Path, folder: &Path, words: &str) -> Command {
    let mut command = Command::new(binary);
    command.args(words.split(' ')).current_dir(folder);
    command.env("XDG_STATE_HOME", folder.join("state")).env("IOWHY_STORE", folder.join("store"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn signal(child: &Child, signal: Signal) -> Outcome {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("no number")?;
    kill_process(pid, signal).map_err(text)
}

/// Files in the folder of ledgers, and mounts of ours below it.
fn traces_of(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("state/iowhy")).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path().display().to_string());
    let state = folder.join("state").display().to_string();
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mounts = mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(|point| point.starts_with(&state));
    files.chain(mounts.map(str::to_owned)).collect()
}

/// Kills at random moments.
fn killed(binary: &Path, folder: &Path, kills: u32) -> Result<String, String> {
    eprintln!("bench: recorder: {kills} kills");
    let (ledger, _) = Ledger::open().map_err(text)?;
    let (tracefs, _mounted) = capture::tracefs(&ledger).map_err(text)?;
    let mut rng = Rng::stream(2, "bench.recorder");
    let mut left_something = 0;
    for nr in 0..kills {
        let before = instances(&tracefs);
        let words = "trace arm --keep 1s --after 10ms --memory 4M --store store --level layers";
        let mut child = iowhy(binary, folder, words).stderr(Stdio::null()).spawn().map_err(text)?;
        // SIGUSR1 is deadly until the recorder is armed.
        let moment = Duration::from_millis(rng.below(1500));
        std::thread::sleep(moment);
        if rng.below(2) == 0 && moment > Duration::from_secs(1) {
            signal(&child, Signal::USR1)?;
            std::thread::sleep(Duration::from_millis(rng.below(60)));
        }
        signal(&child, Signal::KILL)?;
        child.wait().map_err(text)?;
        let left: Vec<String> = instances(&tracefs).difference(&before).cloned().collect();
        let said = iowhy(binary, folder, "doctor").output().map_err(text)?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        // Those of living processes, which others may start meanwhile, go by themselves.
        let (named, others): (Vec<&String>, Vec<_>) = left.iter().partition(|name| said.contains(name.as_str()));
        left_something += u32::from(!named.is_empty());
        iowhy(binary, folder, "doctor --fix").output().map_err(text)?;
        let mut still = traces_of(folder);
        still.extend(named.into_iter().filter(|name| instances(&tracefs).contains(*name)).cloned());
        if !still.is_empty() {
            return Err(format!("kill {nr} after {moment:?}: `doctor --fix` leaves {}", still.join(", ")));
        }
        for name in others {
            let begun = Instant::now();
            while instances(&tracefs).contains(name) {
                if begun.elapsed() > LIFE {
                    return Err(format!("kill {nr} after {moment:?}: `doctor` does not name {name}:\n{said}"));
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
    Ok(format!(
        "SIGKILL at {kills} random moments: {left_something} left instances of tracefs; `doctor` named and `doctor \
         --fix` removed all."
    ))
}

/// An armed recorder, when it is.
fn armed(binary: &Path, folder: &Path) -> Result<Child, String> {
    let words = "trace arm --json --keep 30s --after 10ms --memory 32M --store store --level layers";
    let mut child = iowhy(binary, folder, words).spawn().map_err(text)?;
    let mut errors = BufReader::new(child.stderr.take().ok_or("no pipe")?);
    let mut line = String::new();
    while !line.starts_with("armed") {
        line.clear();
        if errors.read_line(&mut line).map_err(text)? == 0 {
            return Err("the recorder did not arm".to_owned());
        }
    }
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    Ok(child)
}

/// Requests that were issued to a disk, in the one recording of a recorder that ends.
fn recorded(mut child: Child, folder: &Path, disk: Dev) -> Result<usize, String> {
    signal(&child, Signal::TERM)?;
    let mut out = String::new();
    child.stdout.take().ok_or("no pipe")?.read_to_string(&mut out).map_err(text)?;
    child.wait().map_err(text)?;
    let value: Value = serde_json::from_str(&out).map_err(text)?;
    let [kept] = value["kept"].as_array().map_or(&[][..], Vec::as_slice) else { return Err(format!("kept: {out}")) };
    let run = kept["run"].as_str().ok_or("no run")?;
    let store = Store::open(&folder.join("store")).map_err(text)?;
    let trace: Trace = iowhy_lab::armed::kept(&store, run).map_err(text)?;
    let issued = |seen: &Seen| matches!(seen, Seen::Issue(extent) if extent.dev == disk);
    Ok(trace.records.iter().filter(|record| issued(&record.seen)).count())
}

/// Two recorders and somebody else.
fn neighbours(binary: &Path, folder: &Path) -> Result<String, String> {
    const READS: usize = 2000;
    eprintln!("bench: recorder: neighbours");
    let (ledger, _) = Ledger::open().map_err(text)?;
    let (node, _disk) = price::disk(&ledger).map_err(text)?;
    let disk = number(&node)?;
    let (tracefs, _mounted) = capture::tracefs(&ledger).map_err(text)?;
    let foreign = tracefs.join("instances").join(format!("bench-{}", std::process::id()));
    fs::create_dir(&foreign).map_err(text)?;
    let tested = (|| {
        let event = "events/block/block_rq_issue";
        fs::write(foreign.join(event).join("filter"), format!("dev == {}", disk.0)).map_err(text)?;
        fs::write(foreign.join(event).join("enable"), "1").map_err(text)?;
        let files = ["tracing_on", "trace_clock", "buffer_size_kb", "set_event", "set_event_pid"];
        let settings = || files.map(|name| fs::read_to_string(foreign.join(name)).unwrap_or_default());
        let before = settings();
        let both = [armed(binary, folder)?, armed(binary, folder)?];
        read(&node, &|done| done == READS)?;
        // The second one at once: their recordings must not meet.
        both.iter().try_for_each(|child| signal(child, Signal::USR1))?;
        std::thread::sleep(Duration::from_secs(3));
        let [first, second] = both;
        let counts = [recorded(first, folder, disk)?, recorded(second, folder, disk)?];
        let mut stats = String::new();
        for entry in fs::read_dir(foreign.join("per_cpu")).map_err(text)?.flatten() {
            let mut file = File::open(entry.path().join("stats")).map_err(text)?;
            file.read_to_string(&mut stats).map_err(text)?;
        }
        let of = |line: &str| line.strip_prefix("entries:").and_then(|n| n.trim().parse::<usize>().ok());
        let theirs: usize = stats.lines().filter_map(of).sum();
        if counts != [READS; 2] || theirs != READS || settings() != before {
            return Err(format!("of {READS} requests the recorders have {counts:?}, the foreign instance {theirs}"));
        }
        Ok(format!(
            "Two armed recorders and a foreign instance of tracefs: each has all of {READS} requests, and the foreign \
             one its settings."
        ))
    })();
    fs::remove_dir(&foreign).map_err(text)?;
    tested
}
