//! A fuzzer for everything that reads input of people: fio job files, fio and sysbench command lines,
//! fio's logs, files with samples, traces in every form, and records of a kernel's work on a file.
//!
//! It takes a text of a corpus (the shipped jobs, those below, a trace written in every form), changes it in a few
//! places and hands it to the parsers of that corpus. The changes follow from a seed and a counter, so that a crash can
//! be repeated. A parser may refuse a text, it may not panic; a text that makes it panic is saved.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iowhy_compare::{history, samples};
use iowhy_fio as fio;
use iowhy_fio::iolog::Iolog;
use iowhy_fio::job::Replay;
use iowhy_fio::logs::{self, Columns};
use iowhy_lab::conform::vectors;
use iowhy_lab::modelled_disk;
use iowhy_lab::run;
use iowhy_lab::sysbench;
use iowhy_stack::rng::Rng;
use iowhy_stack::trace::{Dev, Extent, Record, Rwbs, Seen, Trace};
use iowhy_stack::units::{Nanos, Sector};
use iowhy_text::diagnose::Problems;
use iowhy_trace::format::blktrace;
use iowhy_trace::recorded::Recorded;
use iowhy_trace::{self as trace, Part, join, stat};
use iowhy_why as explain;

use crate::{Outcome, cargo, root};

/// Command lines to start from, words separated by blanks.
const COMMAND_LINES: &[&str] = &[
    "--num-threads=16 --test=fileio --file-total-size=3G --file-test-mode=rndrw run --on=sim:linux-2.4.25",
    "fileio --file-test-mode rndrd --on sim:linux-6.18 run --threads 4",
    "fileio --file-test-mode=rndwr --on sim:linux-6.18 run --file-extra-flags=direct,dsync --file-io-mode=async \
     --file-async-backlog=8 --cache=tail:64M",
    "fileio --threads=0 --file-block-size=x --file-rw-ratio=0 --on sim:linux-9.9 run",
    "fileio --file-total-size=3G prepare --time=5 --max-time=6 --seed=1 --rand-seed=2 --disk ide-2004,rpm=7200",
    "--output-format=json,normal --on sim:linux-6.18 --bs=8k --name=a --size=64k --rw randread --time_based \
     --runtime=5",
    "job.fio --on=sim:linux-6.18,elevator=kyber,read_ahead_kb=0 --disk=sata-2014,rpm=7200 --repeat=3 --label=a --trace",
    "dd bs=4k --on sim:linux-2.6.6-rc3+read-populate --on=sim:linux-4.4 --disk nvme-2020,size=4G --until=5% --budget 9",
    "pgbench scale=10 --on=kernel:linux-6.12,memory=1g --profile=quiet --seed 18446744073709551615 --warm-up=2 --json",
    "size=64M,scheduler=bfq,read_ahead_kb=128,depth=4,partitions=2,fs=ext4,power=off,fault=eio:1-9",
    "--name=a --size=50% --bssplit=4k/50:8k/50,16k/100 --bsrange=1k-4k,2k-8k --rate=1m,2m --section=a -- job.fio",
];

/// Logs to start from.
const LOGS: &[&str] = &[
    "fio version 2 iolog\na add\na open\na read 0 4096\na wait 300 0\na write 512 4096\na datasync 0 0\na close\n",
    "fio version 3 iolog\n1 a add\n1 b add\n2 a open\n500 a read 0 512\n700 b trim 0 4096\n600 b sync 0 0\n9 a close\n",
    "500, 34504, 0, 0, 0, 0\n500, 35200, 1, 0, 0, 0x4001\n1000, 32905, 2, 4096, 65536, 0, 77\n",
];

/// Files with samples to start from.
const SAMPLES: &[&str] = &[
    "goos: linux\nBenchmarkRead/bs=4k-8 \t 100000\t 123.5 ns/op\t 33.2 MB/s\nBenchmarkRead/bs=4k-8 1 1e3 ns/op\n",
    "run,iops,p99 ms\n1,100.5,3\n2,NaN,4\n3,\"1,000\",5\n",
    "a\tb\n1\t2\n-inf\t0x10\n",
    "12.5\n13\n1e300\n\n# a comment\nNaN\n",
    "{\"fio version\":\"fio-3.33\",\"jobs\":[{\"jobname\":\"a\",\"read\":{\"iops\":1.5,\"bw\":6,\
     \"clat_ns\":{\"mean\":1,\
     \"percentile\":{\"99.000000\":12}}}}]}",
    "File operations:\n    reads/s:                      824.00\nThroughput:\n    read, MiB/s:                  12.87\n\
     Latency (ms):\n         95th percentile:       1.0\n",
    "[{\"schema\":\"iowhy.run/1\",\"jobs\":[]}]",
];

/// Pieces that mean something to a parser, to be put in where they may not fit.
const PIECES: &[&str] = &[
    "=",
    ",",
    ":",
    "/",
    "-",
    "%",
    "(",
    ")",
    "^",
    "*",
    "$pagesize",
    "$ncpus",
    "${HOME}",
    "${",
    "0x",
    "18446744073709551616",
    "-9223372036854775808",
    "k",
    "kib",
    "GiB",
    "ms",
    "[",
    "]",
    "[global]\n",
    ";",
    "#",
    "\n",
    "\r\n",
    "include ",
    "\u{feff}",
    "ü",
    "\0",
    " ",
    "--",
    "bs=",
    "bssplit=",
    "zipf:",
    "iodepth=",
    "4k/50:",
    "1e9",
    ".5",
    "tail:",
    "sim:",
    "+",
];

/// Reads bytes, and may refuse them.
type Parser = Box<dyn Fn(&[u8])>;

/// A parser of texts, by name.
type Text = (&'static str, fn(&str));

/// Something that reads.
struct Target {
    name: String,
    run: Parser,
}

impl Target {
    /// Bytes that are no text are refused before any such parser sees them.
    fn of_text(name: impl Into<String>, run: impl Fn(&str) + 'static) -> Target {
        Target { name: name.into(), run: Box::new(move |bytes| run(&String::from_utf8_lossy(bytes))) }
    }
}

/// Parsers, and what they are started with.
struct Group {
    corpus: Vec<Vec<u8>>,
    targets: Vec<Target>,
}

/// Every parser.
fn groups() -> Result<Vec<Group>, String> {
    let texts: [Text; 9] = [
        ("fio-job", fio_job),
        ("fio-arguments", fio_arguments),
        ("sysbench", sysbench_line),
        ("iolog", iolog_text),
        ("fio-log", fio_log_text),
        ("record", record_text),
        ("run-arguments", run_line),
        ("disk", disk_line),
        ("history", |text| drop(history::read::read(text, "fuzz", &[], &mut Problems::default()))),
    ];
    let typed =
        Group { corpus: corpus()?, targets: texts.into_iter().map(|(name, run)| Target::of_text(name, run)).collect() };
    let bytes = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    let mut targets: Vec<Target> = samples::FORMATS
        .iter()
        .map(|format| {
            let run = |text: &str| samples_text(format.name, text);
            Target::of_text(format!("samples-{}", format.name), run)
        })
        .collect();
    targets.push(Target::of_text("samples", |text| {
        let _ = samples::read("fuzz", text, None, &mut Problems::default());
    }));
    let samples = Group { corpus: bytes(SAMPLES), targets };
    let golden = Group { corpus: vec![vectors()?], targets: vec![Target::of_text("golden", golden_text)] };
    let mut targets: Vec<Target> = trace::FORMATS
        .iter()
        .filter(|format| format.is_read())
        .map(|format| Target {
            name: format!("trace-{}", format.name),
            run: Box::new(move |bytes| trace_file(format, bytes)),
        })
        .collect();
    targets.push(Target { name: "trace".to_owned(), run: Box::new(any_trace) });
    Ok(vec![typed, samples, golden, Group { corpus: traces()?, targets }])
}

/// `cargo xtask fuzz smoke [--seconds N] [--seed N]`.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let usage = || "usage: cargo xtask fuzz smoke [--seconds N] [--seed N]".to_owned();
    let Some(("smoke", rest)) = arguments.split_first().map(|(word, rest)| (word.as_str(), rest)) else {
        return Err(usage());
    };
    let (mut seconds, mut seed, mut optimised) = (60, 1, false);
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        if word == OPTIMISED {
            optimised = true;
            continue;
        }
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), words.next().cloned()),
        };
        let value = value.and_then(|value| value.parse::<u64>().ok()).ok_or_else(usage)?;
        match name {
            "--seconds" => seconds = value,
            "--seed" => seed = value,
            _ => return Err(usage()),
        }
    }
    if !optimised {
        return again_optimised(rest);
    }
    let groups = groups()?;
    let nr_texts: usize = groups.iter().map(|group| group.corpus.len()).sum();
    let nr_targets: usize = groups.iter().map(|group| group.targets.len()).sum();
    println!("fuzz: {nr_texts} texts, {nr_targets} parsers, seed {seed}, {seconds} s");
    let smoke = smoke(&groups, seed, Duration::from_secs(seconds));
    let rate = smoke.executions as f64 / smoke.elapsed.as_secs_f64().max(0.001);
    println!("fuzz: {} executions, {rate:.0} a second, longest text {} bytes", smoke.executions, smoke.longest);
    match smoke.crash {
        None => Ok(()),
        Some((name, text)) => {
            let path = save(&name, &text)?;
            Err(format!("{name} panics; the text is in {}", path.display()))
        }
    }
}

/// Says that this program was built by [`again_optimised`].
const OPTIMISED: &str = "--optimised";

/// Runs the same command in a build of its own: optimised, because a slow fuzzer finds nothing, yet with the checks of
/// a debug build, because an overflow is a mistake as well.
fn again_optimised(arguments: &[String]) -> Outcome {
    let status = cargo()
        .args([
            "run",
            "--quiet",
            "--package",
            "xtask",
            "--target-dir",
            "target/fuzz/build",
            "--",
            "fuzz",
            "smoke",
            OPTIMISED,
        ])
        .args(arguments)
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "2")
        .status()
        .map_err(|error| format!("cargo does not start: {error}"))?;
    if status.success() { Ok(()) } else { Err("fuzz: failed".to_owned()) }
}

/// Results of a run.
struct Smoke {
    executions: u64,
    longest: usize,
    elapsed: Duration,
    crash: Option<(String, Vec<u8>)>,
}

/// Runs the parsers on changed texts until the time is over or one of them panics.
fn smoke(groups: &[Group], seed: u64, time: Duration) -> Smoke {
    let started = Instant::now();
    let mut result = Smoke { executions: 0, longest: 0, elapsed: Duration::ZERO, crash: None };
    let mut random = Random(seed);
    // Texts that were changed already are changed again, so that mistakes add up.
    let mut pools: Vec<Vec<Vec<u8>>> = groups.iter().map(|group| group.corpus.clone()).collect();
    while result.crash.is_none() && (started.elapsed() < time || result.executions == 0) {
        let which = random.below(groups.len());
        let (Group { corpus, targets }, pool) = (&groups[which], &mut pools[which]);
        let picked = random.below(pool.len());
        let other = random.below(pool.len());
        let text = mutate(&pool[picked], &pool[other], &mut random);
        result.longest = result.longest.max(text.len());
        for target in targets {
            result.executions += 1;
            if catch_unwind(AssertUnwindSafe(|| (target.run)(&text))).is_err() {
                result.crash = Some((target.name.clone(), text.clone()));
                break;
            }
        }
        if random.below(16) == 0 {
            let slot = random.below(corpus.len() * 8);
            // The corpus itself stays; what is behind it is replaced in turn.
            match pool.get_mut(corpus.len() + slot) {
                Some(place) => *place = text,
                None => pool.push(text),
            }
        }
    }
    result.elapsed = started.elapsed();
    result
}

fn fio_job(text: &str) {
    // A file that includes itself is part of the game.
    let load = |name: &str| {
        if name.len().is_multiple_of(3) { Ok("bs=4k\ninclude abc\n".to_owned()) } else { Err(String::new()) }
    };
    let variable = |name: &str| name.len().is_multiple_of(2).then(|| "4k".to_owned());
    let world = fio::World { load: &load, variable: &variable, ..fio::World::empty() };
    let mut problems = Problems::default();
    if let Some(file) = fio::parse("fuzz", text, &world, &mut problems) {
        for job in &file.jobs {
            // What is printed must be read again, unless a value became more than a file can hold.
            let _ = fio::parse("again", &job.to_text(), &world, &mut Problems::default());
            let _ = job.to_arguments(false).len() + job.file_names(0).len().min(1);
        }
    }
    assert!(problems.list.len() <= text.len() + 1024, "more problems than text");
    let _ = problems.render().len();
}

fn words(text: &str) -> Vec<String> {
    text.split([' ', '\n']).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn fio_arguments(text: &str) {
    let mut problems = Problems::default();
    let _ = fio::command_line(&words(text), &fio::World::empty(), &mut problems);
    let _ = problems.render().len();
}

fn sysbench_line(text: &str) {
    let mut problems = Problems::default();
    let _ = sysbench::resolve(&words(text), &mut problems);
    let _ = problems.render().len();
}

fn run_line(text: &str) {
    let mut problems = Problems::default();
    let load = |name: &str| {
        if name.len().is_multiple_of(2) { Ok("[a]\nrw=read\nsize=4k\n".to_owned()) } else { Err(String::new()) }
    };
    let world = fio::World { load: &load, ..fio::World::empty() };
    let request = run::resolve(&words(text), &world, &mut problems);
    assert!(request.is_some() || problems.any_error(), "it is refused, and nobody says why");
    let _ = problems.render().len();
}

fn disk_line(text: &str) {
    let mut problems = Problems::default();
    for disk in words(text) {
        let _ = modelled_disk::parse_disk("fuzz", &disk, &mut problems);
        let settings: Vec<String> = disk.split(',').map(str::to_owned).collect();
        let _ = modelled_disk::changes(&settings, &mut problems);
        let _ = modelled_disk::twin(&disk, &disk, true);
    }
    let _ = problems.render().len();
}

/// Two cases of the shortest vectors.
fn vectors() -> Result<Vec<u8>, String> {
    let path = root().join("crates/lab/tests/golden/linux-2.6.7.json");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut all: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if let Some(cases) = all.get_mut("cases").and_then(serde_json::Value::as_array_mut) {
        cases.truncate(2);
    }
    Ok(all.to_string().into_bytes())
}

fn golden_text(text: &str) {
    let _ = vectors::check_text(Path::new("linux-2.6.7.json"), text);
}

fn iolog_text(text: &str) {
    let options = Replay {
        logs: vec!["log".to_owned()],
        no_stall: false,
        redirect: None,
        scale: 3,
        align: 512,
        time_scale: 7,
        skip: vec!["write"],
    };
    let mut problems = Problems::default();
    if let Some(log) = Iolog::parse("log", text, None, &mut problems) {
        let mut again = Vec::new();
        // What was read can be written, and is the same again.
        assert!(log.write(&mut again).is_ok());
        let again = Iolog::parse("again", &String::from_utf8_lossy(&again), None, &mut Problems::default());
        assert!(again.as_ref() == Some(&log));
        let replayed = log.replay(&options);
        let numbers: Vec<u32> = (0..).take(replayed.files.len()).collect();
        assert_eq!(replayed.stream(&numbers).is_none(), replayed.calls.is_empty());
    }
    let _ = problems.render().len();
}

fn fio_log_text(text: &str) {
    let mut problems = Problems::default();
    for number in 0..8_u32 {
        let columns = Columns { both: number & 1 > 0, offset: number & 2 > 0, issued: number & 4 > 0 };
        let _ = logs::parse("log", text, columns, &mut problems).len();
    }
    let _ = problems.render().len();
}

fn record_text(text: &str) {
    if let Ok(recorded) = Recorded::from_text(text) {
        // What was read can be written, and is the same again.
        assert!(Recorded::from_text(&recorded.to_text()).is_ok_and(|again| again == recorded));
    }
}

fn samples_text(format: &str, text: &str) {
    let mut problems = Problems::default();
    let found = samples::read("fuzz", text, Some(format), &mut problems);
    assert!(found.is_some() || problems.any_error(), "nothing was read, and nobody says why");
    let _ = problems.render().len();
}

fn trace_file(format: &trace::Format, bytes: &[u8]) {
    let mut problems = Problems::default();
    let _ = (format.detect)("fuzz", bytes);
    let found = format.read_one("fuzz", bytes, &mut problems);
    match found {
        Some(trace) => {
            assert!(trace.records.is_sorted_by_key(|record| record.at), "records are not in the order of their times");
            // It may be refused, for a CPU that no machine has.
            let _ = format.write_one(&trace, &mut Vec::new());
        }
        None => assert!(problems.any_error(), "nothing was read, and nobody says why"),
    }
    let _ = problems.render().len();
}

/// Reads what the form is found out of, and the halves as files of two CPUs.
fn any_trace(bytes: &[u8]) {
    let mut problems = Problems::default();
    let found = trace::read("fuzz", bytes, &mut problems);
    assert!(found.is_some() || problems.any_error(), "nothing was read, and nobody says why");
    if let Some(trace) = found {
        // What explains and counts has to bear whatever can be read.
        let joined = join::join(&trace, &join::Who::default());
        let side =
            || explain::Side { runs: vec![explain::digest::Digest::of(&joined.events)], ..explain::Side::default() };
        let _ = explain::json::explain(&explain::explain(&side(), &side(), None));
        let _ = stat::stat(&trace, &stat::Ask::default()).text();
    }
    let (first, second) = bytes.split_at(bytes.len() / 2 / blktrace::RECORD_BYTES * blktrace::RECORD_BYTES);
    let parts = [Part { name: "t.blktrace.0", bytes: first }, Part { name: "t.blktrace.1", bytes: second }];
    let _ = blktrace::read_parts(&parts, &mut problems);
    let _ = problems.render().len();
}

/// A small trace in every form that can be written, and as a machine of the other byte order writes blktrace's.
fn traces() -> Result<Vec<Vec<u8>>, String> {
    let mut texts = Vec::new();
    for seed in 0..2 {
        let trace = small_trace(seed);
        // Forms that are only written are of no use here.
        for format in trace::FORMATS.iter().filter(|format| format.is_read()) {
            let mut bytes = Vec::new();
            if format.write_one(&trace, &mut bytes).is_ok() {
                texts.push(bytes);
            }
        }
    }
    let mut swapped = Vec::new();
    blktrace::write_merged(&small_trace(2), &mut swapped).map_err(|error| error.to_string())?;
    let mut at = 0;
    while let Some(record) = swapped.get_mut(at..at + blktrace::RECORD_BYTES) {
        at += blktrace::RECORD_BYTES + usize::from(u16::from_le_bytes([record[46], record[47]]));
        for (start, end) in [(8, 16), (16, 24), (44, 46), (46, 48)] {
            record[start..end].reverse();
        }
        for start in [0, 4, 24, 28, 32, 36, 40] {
            record[start..start + 4].reverse();
        }
    }
    texts.push(swapped);
    Ok(texts)
}

/// A trace with a few bios from beginning to end.
fn small_trace(seed: u64) -> Trace {
    let mut rng = Rng::stream(seed, "fuzz.trace");
    let names = vec![(0, "swapper".to_owned()), (7, "fio".to_owned())];
    let mut trace = Trace { started_ns: 1_700_000_000_000_000_000, names, ..Trace::default() };
    for nr in 0..5 {
        let (dev, rwbs) = (Dev::new(8, 0), [Rwbs::READ, Rwbs::WRITE.with(Rwbs::SYNC)][rng.below(2) as usize]);
        let extent = Extent { dev, sector: Sector(rng.below(1 << 30)), bytes: 4096, rwbs };
        let from = Dev::new(253, 0);
        let seen = [
            Seen::Queue(extent),
            Seen::Remap { extent, from, from_sector: Sector(rng.below(1 << 30)) },
            Seen::GetRequest(extent),
            Seen::Plug { dev: Some(dev) },
            Seen::Insert(extent),
            Seen::Unplug { dev: Some(dev), nr_requests: 1, timer: false },
            Seen::Issue(extent),
            Seen::Message { dev, text: "a message".to_owned() },
            Seen::Complete { extent, error: 0 },
        ];
        for (step, seen) in seen.into_iter().enumerate() {
            let at = Nanos(nr * 1_000_000 + step as u64 * 1000 + rng.below(900));
            trace.records.push(Record { at, cpu: (step / 8) as u32, pid: 7, seen });
        }
    }
    trace
}

/// Files of a folder in the order of their names.
fn files(folder: &str) -> Result<Vec<(PathBuf, Vec<u8>)>, String> {
    let folder = root().join(folder);
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let read = |path: PathBuf| match fs::read(&path) {
        Ok(bytes) => Ok((path, bytes)),
        Err(error) => Err(format!("{}: {error}", path.display())),
    };
    paths.into_iter().map(read).collect()
}

/// The shipped jobs in the order of their names, the command lines, the logs and the shorter records.
fn corpus() -> Result<Vec<Vec<u8>>, String> {
    let jobs = files("jobs")?.into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "fio"));
    let records = files("traces/linux-6.18")?.into_iter().filter(|(_, bytes)| bytes.len() < MAX_TEXT / 2);
    let mut texts: Vec<Vec<u8>> = jobs.chain(records).map(|(_, bytes)| bytes).collect();
    texts.extend(COMMAND_LINES.iter().chain(LOGS).map(|text| text.as_bytes().to_vec()));
    Ok(texts)
}

/// Keeps a text that made a parser panic.
fn save(name: &str, text: &[u8]) -> Result<PathBuf, String> {
    let folder = root().join("target/fuzz");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let path = folder.join(format!("crash-{name}.txt"));
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if there is none.
    fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.next() % bound as u64) as usize }
    }
}

/// Longest text that is made.
const MAX_TEXT: usize = 16 << 10;

/// `text` changed in one to eight places, with parts of `other`.
fn mutate(text: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for _ in 0..=random.below(8) {
        let at = random.below(bytes.len() + 1);
        let length = random.below(16).min(bytes.len() - at);
        match random.below(9) {
            0 => drop(bytes.drain(at..at + length)),
            1 => {
                let piece = PIECES[random.below(PIECES.len())];
                bytes.splice(at..at, piece.bytes());
            }
            2 => {
                let piece = PIECES[random.below(PIECES.len())];
                bytes.splice(at..at + length, piece.bytes());
            }
            3 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            4 => {
                // A run of the same, which finds what counts or nests.
                let piece = PIECES[random.below(PIECES.len())].repeat(1 + random.below(64));
                bytes.splice(at..at, piece.bytes());
            }
            5 => {
                let part = bytes[at..at + length].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, part);
            }
            6 => {
                let from = random.below(other.len() + 1);
                let end = (from + random.below(64)).min(other.len());
                bytes.splice(at..at, other[from..end].iter().copied());
            }
            7 => {
                let digits = (random.next() >> random.below(64)).to_string();
                bytes.splice(at..at + length, digits.bytes());
            }
            _ => bytes.truncate(at.max(bytes.len() / 2)),
        }
    }
    bytes.truncate(MAX_TEXT);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_texts() {
        let make = |seed| {
            let mut random = Random(seed);
            (0..50).map(|_| mutate(b"[a]\nbs=4k\n", b"size=1g", &mut random)).collect::<Vec<_>>()
        };
        assert_eq!(make(7), make(7));
        assert_ne!(make(7), make(8));
    }

    #[test]
    fn a_panic_is_found_and_its_text_kept() {
        let fragile = |text: &str| assert!(!text.contains("zipf"), "as planned");
        let targets = vec![Target::of_text("fragile", fragile)];
        let groups = [Group { corpus: vec![b"[a]\nsize=4k\n".to_vec()], targets }];
        let found = smoke(&groups, 1, Duration::from_secs(20));
        let is_it = |text: &[u8]| String::from_utf8_lossy(text).contains("zipf");
        assert!(found.crash.is_some_and(|(name, text)| name == "fragile" && is_it(&text)));
    }

    #[test]
    fn the_parsers_survive_a_moment() {
        let groups = groups().expect("the corpora");
        assert!(groups.iter().all(|group| !group.corpus.is_empty() && !group.targets.is_empty()));
        let all = groups.iter().flat_map(|group| &group.corpus);
        assert!(all.clone().count() > 40 && all.clone().all(|text| text.len() < MAX_TEXT));
        let smoke = smoke(&groups, 1, Duration::from_millis(800));
        assert!(smoke.crash.is_none(), "{:?}", smoke.crash);
    }

    #[test]
    fn what_the_traces_begin_with_is_read_as_it_is() {
        for text in traces().expect("the corpus") {
            let mut problems = Problems::default();
            assert!(trace::read("fuzz", &text, &mut problems).is_some(), "{}", problems.render());
            assert!(problems.list.is_empty(), "{}", problems.render());
        }
    }
}
