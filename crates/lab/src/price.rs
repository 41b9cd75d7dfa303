//! The price of watching: a job without, and with each way of watching it, in blocks of random order.
//!
//! ```text
//! job        words of `iowhy run`, a command, or by default direct reads of 4 KiB on a loop device whose file is in
//!            memory: its requests cost next to nothing, so the events are as large a part of them as they can be
//! ways       tracefs armed (rings that overwrite) and recording, BPF recording and sums, of the whole machine;
//!            blktrace, bpftrace (a line a request, as biosnoop) and perf trace where they are installed
//! judge      the difference of each from the job without, block by block and each by itself (`stats::blocks`), as some
//!            disturb more than others: throughput that is lost, and what the 99th percentile of its calls gains
//! ns/event   the time that was lost against the events that were recorded meanwhile
//! ```
//! Limits: jobs with several threads lose in all of them at once, so an event costs a thread more than is shown; of
//! commands the 99th percentile is not known.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use iowhy_live::capture::flight::Flight;
use iowhy_live::capture::sum::Sums;
use iowhy_live::capture::{Ask, Capture, CaptureError, Level, Via};
use iowhy_live::command::Running;
use iowhy_live::ledger::{Guard, Ledger, LoopOptions};
use iowhy_live::machine::Disk;
use iowhy_stats::blocks;
use iowhy_stats::figure::finite;
use iowhy_text::diagnose::Problems;
use serde_json::{Value, json};

use crate::run::backend::{Making, Shared};
use crate::run::metrics::Metrics;
use crate::run::{self, Backend, Executed, Refusal, RunRecord, RunRequest, Variant};

/// The job and the ways to be priced.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Words of `iowhy run`, in which DISK stands for a disk in memory; the usual job without any.
    pub job: Vec<String>,
    /// A command instead.
    pub command: Vec<String>,
    /// Blocks.
    pub runs: u32,
    pub seed: u64,
    pub level: Level,
    /// Length of a run of the usual job.
    pub length: Duration,
}

/// The price of a way.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub way: &'static str,
    pub mode: &'static str,
    /// Mean of its runs.
    pub events: f64,
    /// Nothing where no events were recorded.
    pub ns_per_event: Option<f64>,
    /// Throughput that is lost, percent, and its interval.
    pub throughput_pct: f64,
    pub ci_pct: [f64; 2],
    /// Growth of the 99th percentile, percent; nothing of commands.
    pub p99_pct: Option<f64>,
    pub p99_ci_pct: Option<[f64; 2]>,
}

/// The prices.
#[derive(Clone, Debug)]
pub struct Prices {
    pub job: String,
    pub level: Level,
    pub runs: u32,
    pub rows: Vec<Row>,
    /// Ways that were not tried, and why.
    pub not_run: Vec<(String, String)>,
}

/// Why there are none.
#[derive(Debug, thiserror::Error)]
pub enum PriceError {
    #[error("the words for the job are wrong")]
    Words(Problems),
    #[error("a signal ended it")]
    Signal,
    #[error("the job cannot be judged: {0}")]
    Nothing(&'static str),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error(transparent)]
    Run(#[from] Refusal),
    #[error("cannot make the disk of the usual job: {0}")]
    Disk(#[from] io::Error),
}

/// Coverage of an interval.
const LEVEL: f64 = 0.95;
/// Bytes of the usual job's disk.
const BYTES: u64 = 64 << 20;
/// Rings of the armed recorder, bytes.
const MEMORY: u64 = 64 << 20;
/// Memory of the sums, bytes.
const SUMS: u64 = 16 << 20;
/// The metric of the recorded events.
const EVENTS: &str = "watched_events";

/// Stands for the disk in words.
const DISK: &str = "DISK";

/// A way of watching.
#[derive(Copy, Clone, Debug)]
enum Way {
    Without,
    Armed,
    Recording(Via),
    Summing,
    Peer(&'static Peer),
}

/// Another program.
#[derive(Debug)]
struct Peer {
    name: &'static str,
    program: &'static str,
    /// `DISK` stands for the node of the disk.
    arguments: &'static [&'static str],
    /// Until it records.
    warm_up: Duration,
    /// Events in what it wrote.
    events: fn(&[u8]) -> u64,
}

fn lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Two for each line that begins with a time: the issue is remembered, the completion written.
fn requests(bytes: &[u8]) -> u64 {
    let of = |line: &&[u8]| line.first().is_some_and(u8::is_ascii_digit);
    2 * bytes.split(|byte| *byte == b'\n').filter(of).count() as u64
}

/// Records of `struct blk_io_trace`: 48 bytes, the last two of them the length of what follows.
fn blktraces(mut bytes: &[u8]) -> u64 {
    let mut count = 0;
    while let Some(length) = bytes.get(46..48) {
        let more = u16::from_ne_bytes([length[0], length[1]]);
        bytes = bytes.get(48 + usize::from(more)..).unwrap_or_default();
        count += 1;
    }
    count
}

/// A line for each request, as biosnoop writes them. By tracepoints: kprobes are often denied.
const BY_REQUEST: &str = "tracepoint:block:block_rq_issue { @at[args->dev, args->sector] = nsecs; \
    @by[args->dev, args->sector] = comm; } \
    tracepoint:block:block_rq_complete /@at[args->dev, args->sector]/ { \
    printf(\"%u %s %u %d %u\\n\", elapsed / 1000, @by[args->dev, args->sector], args->dev, args->sector, \
    (nsecs - @at[args->dev, args->sector]) / 1000); \
    delete(@at[args->dev, args->sector]); delete(@by[args->dev, args->sector]); }";

const PEERS: [Peer; 3] = [
    Peer {
        name: "blktrace",
        program: "blktrace",
        arguments: &["-d", "DISK", "-o", "-"],
        warm_up: Duration::from_millis(500),
        events: blktraces,
    },
    Peer {
        name: "bpftrace",
        program: "bpftrace",
        arguments: &["-e", BY_REQUEST],
        warm_up: Duration::from_secs(3),
        events: requests,
    },
    Peer {
        name: "perf trace",
        program: "perf",
        arguments: &[
            "trace",
            "-a",
            "--no-syscalls",
            "-e",
            "block:block_rq_insert,block:block_rq_issue,block:block_rq_complete",
            "-o",
            "/dev/stdout",
        ],
        warm_up: Duration::from_secs(1),
        events: lines,
    },
];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Without => "without",
            Way::Armed => Via::Tracefs.name(),
            Way::Recording(via) => via.name(),
            Way::Summing => "bpf",
            Way::Peer(peer) => peer.name,
        }
    }

    fn mode(self) -> &'static str {
        match self {
            Way::Armed => "armed",
            Way::Summing => "aggregating",
            Way::Without | Way::Recording(_) | Way::Peer(_) => "recording",
        }
    }

    fn label(self) -> String {
        if matches!(self, Way::Without) { self.name().to_owned() } else { format!("{} {}", self.name(), self.mode()) }
    }
}

/// The ways that can be tried here; the others with the reason.
fn ways() -> (Vec<Way>, Vec<(String, String)>) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = |program: &str| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let (here, missing): (Vec<&Peer>, Vec<&Peer>) = PEERS.iter().partition(|peer| installed(peer.program));
    let peers = here.into_iter().map(Way::Peer);
    let missing = missing.into_iter().map(|peer| (peer.name.to_owned(), format!("no `{}` in PATH", peer.program)));
    let recording = [Via::Tracefs, Via::Bpf].map(Way::Recording);
    let ours = [Way::Without, Way::Armed].into_iter().chain(recording).chain([Way::Summing]);
    (ours.chain(peers).collect(), missing.collect())
}

/// Why a peer did not watch.
#[derive(Debug, thiserror::Error)]
enum PeerError {
    #[error("cannot start `{0}`: {1}")]
    Start(&'static str, io::Error),
    #[error("`{0}` ended at once: {1}")]
    Ended(&'static str, String),
    #[error("`{0}` recorded nothing")]
    Nothing(&'static str),
}

/// Something that watches.
enum Watching {
    Nothing,
    Armed(Box<Flight>),
    Recording(Capture),
    Summing(Box<Sums>),
    Peer { peer: &'static Peer, running: Running, out: JoinHandle<Vec<u8>>, _noted: Option<Guard> },
}

/// All that comes out of something.
fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read until then counts.
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

impl Watching {
    fn begin(way: Way, level: Level, disk: &Path, ledger: &Ledger) -> Result<Watching, Refusal> {
        let ask = Ask { level, ..Ask::default() };
        let captured = |error: CaptureError| Refusal::from(crate::recording::RecordError::from(error));
        Ok(match way {
            Way::Without => Watching::Nothing,
            Way::Armed => Watching::Armed(Box::new(Flight::start(&ask, ledger, MEMORY, false).map_err(captured)?)),
            Way::Recording(via) => {
                let ask = Ask { via: Some(via), ..ask };
                Watching::Recording(Capture::start_with(&ask, ledger).map_err(captured)?)
            }
            // The job is this process.
            Way::Summing => {
                let ask = Ask { pids: vec![std::process::id()], ..ask };
                Watching::Summing(Box::new(Sums::start(&ask, SUMS).map_err(captured)?))
            }
            Way::Peer(peer) => {
                let mut command = Command::new(peer.program);
                let node = |word: &&str| if *word == DISK { disk.as_os_str().to_owned() } else { (*word).into() };
                command.args(peer.arguments.iter().map(node)).stdin(Stdio::null());
                let started = io::pipe().and_then(|(out, into)| {
                    command.stdout(into.try_clone()?).stderr(into);
                    Ok((Running::spawn(command)?, collect(out)))
                });
                let (running, out) = started.map_err(|error| Refusal::new(PeerError::Start(peer.name, error)))?;
                let noted = ledger.note_process(running.pid).ok();
                if running.ended_within(peer.warm_up).is_ok() {
                    let bytes = out.join().unwrap_or_default();
                    let last = String::from_utf8_lossy(&bytes).trim_end().lines().last().unwrap_or("").to_owned();
                    return Err(Refusal::new(PeerError::Ended(peer.name, last)));
                }
                Watching::Peer { peer, running, out, _noted: noted }
            }
        })
    }

    /// Ends it; the number of events that it recorded.
    fn end(self) -> Result<u64, Refusal> {
        let captured = |error: CaptureError| Refusal::from(crate::recording::RecordError::from(error));
        match self {
            Watching::Nothing => Ok(0),
            Watching::Armed(flight) => Ok(flight.events()),
            Watching::Recording(capture) => Ok(capture.stop().map_err(captured)?.cost.events),
            Watching::Summing(sums) => Ok(sums.stop().map_err(captured)?.events()),
            Watching::Peer { peer, running, out, .. } => {
                running.interrupt();
                let _ = running.end();
                match (peer.events)(&out.join().unwrap_or_default()) {
                    0 => Err(Refusal::new(PeerError::Nothing(peer.name))),
                    events => Ok(events),
                }
            }
        }
    }
}

/// Runs that are watched.
#[derive(Debug)]
struct Watched {
    way: Way,
    level: Level,
    disk: PathBuf,
    runs: Arc<dyn Backend>,
    /// Made once: a ledger of each run would look for leftovers again.
    ledger: Arc<OnceLock<Ledger>>,
}

impl Backend for Watched {
    fn make(&self, making: &Making<'_>, shared: &mut Shared) -> Result<RunRecord, Refusal> {
        if self.ledger.get().is_none() {
            // If another was quicker, that one is as good.
            let _ = self.ledger.set(Ledger::open()?.0);
        }
        let Some(ledger) = self.ledger.get() else { return self.runs.make(making, shared) };
        let watching = Watching::begin(self.way, self.level, &self.disk, ledger)?;
        let made = self.runs.make(making, shared);
        let events = watching.end();
        let mut record = made?;
        record.metrics.push((EVENTS.to_owned(), events? as f64));
        Ok(record)
    }
}

/// The usual job's disk: a loop device on a file in memory.
///
/// # Errors
/// If it cannot be made.
pub fn disk(ledger: &Ledger) -> Result<(PathBuf, Guard), PriceError> {
    let path = Path::new("/dev/shm").join(format!("iowhy-price-{}", std::process::id()));
    let refused = |error: iowhy_live::ledger::LedgerError| PriceError::Run(error.into());
    let (files, file) = ledger.create_files(std::slice::from_ref(&path)).map_err(refused)?;
    files.first().map_or(Ok(()), |file| file.set_len(BYTES))?;
    // Holes would be read without their pages.
    fs::write(&path, vec![1; BYTES as usize])?;
    let (node, attached) = ledger.attach_loop(&path, LoopOptions::default()).map_err(refused)?;
    Ok((node, file.and(attached)))
}

/// Words of the job.
fn job(asked: &Asked) -> Vec<String> {
    if !asked.job.is_empty() {
        return asked.job.clone();
    }
    let runtime = format!("--runtime={}ms", asked.length.as_millis());
    let job = ["fio", "--name=price", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=psync", "--filename=DISK"];
    job.into_iter().chain(["--time_based", &runtime]).map(str::to_owned).collect()
}

/// The request for the job, once.
fn request(asked: &Asked, disk: Option<&Path>) -> Result<Box<RunRequest>, PriceError> {
    let mut words: Vec<String> =
        ["--on=live", &format!("--runs={}", asked.runs), &format!("--seed={}", asked.seed)].map(str::to_owned).into();
    if let Some(disk) = disk {
        let named = |word: &String| word.replace(DISK, &disk.display().to_string());
        words.extend(job(asked).iter().map(named));
    } else if asked.command.is_empty() {
        words.extend(asked.job.iter().cloned());
    } else {
        words.push("--".to_owned());
        words.extend(asked.command.iter().cloned());
    }
    run::asked(&words, &run::here()).map_err(PriceError::Words)
}

/// Measures the prices.
///
/// # Errors
/// If the job cannot be run, or the kernel cannot be traced, or a signal comes.
pub fn price(asked: &Asked, tell: &dyn Fn(&str)) -> Result<Prices, PriceError> {
    let (ledger, _) = Ledger::open().map_err(CaptureError::from)?;
    let own = asked.command.is_empty() && job(asked).iter().any(|word| word.contains(DISK));
    let made = if own { Some(disk(&ledger)?) } else { None };
    let mut request = request(asked, made.as_ref().map(|(node, _)| node.as_path()))?;
    let node = match &made {
        Some((node, _)) => node.clone(),
        None => Path::new("/dev").join(Disk::below(&request.folder.path).name.unwrap_or_default()),
    };
    let (ways, mut not_run) = ways();
    let Some(first) = request.variants.pop() else { return Err(PriceError::Nothing("a job is missing")) };
    let ledger = Arc::new(OnceLock::from(ledger));
    let variant = |way: &Way| Variant {
        label: way.label(),
        backend: Arc::new(Watched {
            way: *way,
            level: asked.level,
            disk: node.clone(),
            runs: Arc::clone(&first.backend),
            ledger: Arc::clone(&ledger),
        }),
        ..first.clone()
    };
    request.variants = ways.iter().map(variant).collect();
    tell(&format!("{} blocks of {} runs", request.blocks(), ways.len()));
    let executed = run::execute(&request, &|_, _| {});
    if executed.interrupted {
        return Err(PriceError::Signal);
    }
    let job = if own {
        request.job.join(" ")
    } else {
        asked.job.iter().chain(&asked.command).cloned().collect::<Vec<_>>().join(" ")
    };
    let rows = judge(executed, request.blocks() as usize, &ways, &mut not_run)?;
    Ok(Prices { job, level: asked.level, runs: asked.runs, rows, not_run })
}

fn metric(metrics: &Metrics, name: &str) -> Option<f64> {
    metrics.iter().find(|(known, _)| known == name).map(|(_, value)| *value).filter(|value| *value > 0.0)
}

/// Figures of one run: time for a call, or of the whole, its length, its events, its 99th percentile.
#[derive(Copy, Clone, Debug, PartialEq)]
struct Run {
    time: f64,
    length_ns: f64,
    events: f64,
    p99: Option<f64>,
}

fn of(metrics: &Metrics) -> Option<Run> {
    let length = metric(metrics, "elapsed_s")?;
    let time = metric(metrics, "iops").map_or(length, |iops| 1.0 / iops);
    let (events, p99) = (metric(metrics, EVENTS).unwrap_or(0.0), metric(metrics, "p99_ns"));
    Some(Run { time, length_ns: length * 1e9, events, p99 })
}

/// Sorts the runs into blocks, and compares.
fn judge(
    executed: Executed,
    blocks: usize,
    ways: &[Way],
    not_run: &mut Vec<(String, String)>,
) -> Result<Vec<Row>, PriceError> {
    let mut table: Vec<Vec<Option<Run>>> = vec![vec![None; ways.len()]; blocks];
    for run in &executed.runs {
        table[run.slot.block as usize][run.slot.variant] = of(&run.record.metrics).filter(|_| !run.record.failed);
    }
    for (label, refusal) in executed.refused {
        if label == ways[0].label() {
            return Err(refusal.into());
        }
        not_run.push((label, refusal.to_string()));
    }
    compared(&table, ways).ok_or(PriceError::Nothing("runs of it failed, or did nothing"))
}

/// Rows of all ways but the first that have a run in each block; nothing if the first has not.
fn compared(table: &[Vec<Option<Run>>], ways: &[Way]) -> Option<Vec<Row>> {
    let whole: Vec<usize> = (0..ways.len()).filter(|arm| table.iter().all(|of| of[*arm].is_some())).collect();
    if whole.first() != Some(&0) || table.is_empty() {
        return None;
    }
    let mean = |arm: usize, of: fn(Run) -> f64| {
        table.iter().filter_map(|row| row[arm]).map(of).sum::<f64>() / table.len() as f64
    };
    // Each by itself: the noise of programs that disturb more is not the others'.
    let against = |arm: usize, of: fn(Run) -> Option<f64>| -> Option<blocks::Difference> {
        let pair = |row: &Vec<Option<Run>>| Some(vec![of(row[0]?)?.ln(), of(row[arm]?)?.ln()]);
        let pairs: Option<Vec<Vec<f64>>> = table.iter().map(pair).collect();
        blocks::differences(&pairs?, LEVEL).pop()
    };
    let lost = |logarithm: f64| 100.0 * (1.0 - (-logarithm).exp());
    let gained = |logarithm: f64| 100.0 * (logarithm.exp() - 1.0);
    let row = |arm: &usize| -> Option<Row> {
        let time = against(*arm, |run| Some(run.time))?;
        let tail = against(*arm, |run| run.p99);
        let events = mean(*arm, |run| run.events);
        let throughput_pct = lost(time.centre);
        Some(Row {
            way: ways[*arm].name(),
            mode: ways[*arm].mode(),
            events,
            ns_per_event: (events > 0.0).then(|| throughput_pct / 100.0 * mean(*arm, |run| run.length_ns) / events),
            throughput_pct,
            ci_pct: [lost(time.low), lost(time.high)],
            p99_pct: tail.map(|tail| gained(tail.centre)),
            p99_ci_pct: tail.map(|tail| [gained(tail.low), gained(tail.high)]),
        })
    };
    whole[1..].iter().map(row).collect()
}

/// As JSON (`iowhy.trace-price/1`).
pub fn json(prices: &Prices) -> Value {
    let row = |row: &Row| {
        json!({
            "way": row.way,
            "mode": row.mode,
            "events": finite(row.events),
            "ns_per_event": row.ns_per_event.map(finite),
            "throughput_pct": finite(row.throughput_pct),
            "p99_pct": row.p99_pct.map(finite),
            "p99_ci_pct": row.p99_ci_pct.map(|ci| ci.map(finite)),
            "ci_pct": row.ci_pct.map(finite),
        })
    };
    json!({
        "schema": "iowhy.trace-price/1",
        "job": prices.job,
        "level": prices.level.name(),
        "runs": prices.runs,
        "rows": prices.rows.iter().map(row).collect::<Vec<_>>(),
        "not_run": prices.not_run.iter().map(|(way, why)| json!({ "way": way, "why": why })).collect::<Vec<_>>(),
    })
}

/// As a table.
pub fn text(prices: &Prices) -> String {
    let mut text = format!("{}, level {}, {} blocks\n", prices.job, prices.level.name(), prices.runs);
    text.push_str(&format!(
        "{:<28} {:>9} {:>8} {:>18} {:>8}\n",
        "way", "ns/event", "lost %", "95 % interval", "p99 +%"
    ));
    for row in &prices.rows {
        let figure =
            |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
        text.push_str(&format!(
            "{:<28} {:>9} {:>8.1} {:>18} {:>8}\n",
            format!("{} {}", row.way, row.mode),
            figure(row.ns_per_event, 0),
            row.throughput_pct,
            format!("{:.1} to {:.1}", row.ci_pct[0], row.ci_pct[1]),
            figure(row.p99_pct, 1),
        ));
    }
    for (way, why) in &prices.not_run {
        text.push_str(&format!("{way}: not run, {why}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_that_is_lost_and_its_share_of_an_event_are_by_blocks() {
        let run = |time, events, p99| Some(Run { time, length_ns: 1e9, events, p99: Some(p99) });
        // A slow block and a fast one: what is lost is a fifth in both.
        let table = [
            vec![run(8.0, 0.0, 10.0), run(10.0, 1e6, 15.0), run(8.0, 0.0, 10.0)],
            vec![run(4.0, 0.0, 6.0), run(5.0, 3e6, 9.0), None],
        ];
        let ways = [Way::Without, Way::Recording(Via::Tracefs), Way::Peer(&PEERS[0])];
        let rows = compared(&table, &ways).expect("the job ran");
        let [row] = rows.as_slice() else { panic!("only whole ways count: {rows:?}") };
        assert_eq!((row.way, row.mode, row.events), ("tracefs", "recording", 2e6));
        assert!(
            (row.throughput_pct - 20.0).abs() < 1e-9 && row.ns_per_event.is_some_and(|ns| (ns - 100.0).abs() < 1e-9)
        );
        assert!(row.p99_pct.is_some_and(|pct| (pct - 50.0).abs() < 1e-9), "{row:?}");
        assert!((row.ci_pct[0] - 20.0).abs() < 1e-6 && (row.ci_pct[1] - 20.0).abs() < 1e-6);
        assert_eq!(compared(&[vec![None, run(1.0, 1.0, 1.0), None]], &ways), None);
        // A way whose runs differ a lot widens its own interval alone.
        let wild =
            [vec![table[0][0], table[0][1], run(8.0, 1.0, 1.0)], vec![table[1][0], table[1][1], run(40.0, 1.0, 1.0)]];
        let rows = compared(&wild, &ways).expect("the job ran");
        assert!((rows[0].ci_pct[1] - rows[0].ci_pct[0]).abs() < 1e-6, "{rows:?}");
        assert!(rows[1].ci_pct[1] - rows[1].ci_pct[0] > 10.0, "{rows:?}");
    }

    #[test]
    fn events_of_peers_are_counted_in_what_they_write() {
        assert_eq!((lines(b"a\nb\n"), requests(b"Attaching 2 probes\n17 dd 8 0 12\n")), (2, 2));
        let record = |more: u16| {
            let mut bytes = vec![0_u8; 48 + usize::from(more)];
            bytes[46..48].copy_from_slice(&more.to_ne_bytes());
            bytes
        };
        let bytes = [record(0), record(12), record(0), vec![0; 30]].concat();
        assert_eq!(blktraces(&bytes), 3);
    }
}
