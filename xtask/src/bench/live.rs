//! The live engines against fio: the same job in alternating pairs, CPU time of the thread that makes the calls.
//!
//! fio runs as it would be tuned by hand: as a thread, without the reading of clocks (`gtod_reduce`) where the goal is
//! its tuned job. Ours records the latency of every call in all rows. The file is small enough to stay cached, and both
//! leave the cache as they find it.

use super::{Aim, Figure, Sample, Setting, compare};
use iowhy_live::outcome::Outcome;
use iowhy_live::plan::{Allow, Cache, File, Plan, Thread};
use iowhy_stack::job::{FileSpec, Job, Place, ThreadJob, ThreadSpec, Workload};
use iowhy_stack::rng::Rng;
use iowhy_stack::workload::{Distribution, Mix, Order, Stream, Target};
use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const BLOCK: u32 = 4096;
/// Size of the cached file.
const FILE_BYTES: u64 = 256 << 20;
/// Size of the file that the null engine does not read.
const NULL_BYTES: u64 = 1 << 30;

/// A row: its name, fio's arguments, our engine, calls, the ratio aimed at.
struct Case {
    name: &'static str,
    fio: &'static [&'static str],
    engine: &'static str,
    depth: u32,
    batch: u32,
    /// Every block once a pass, as fio does unless told otherwise.
    once: bool,
    calls: u64,
    goal: f64,
}

const TUNED: &[&str] = &[
    "--ioengine=io_uring",
    "--fixedbufs",
    "--registerfiles",
    "--norandommap",
    "--iodepth_batch_complete_min=1",
    "--gtod_reduce=1",
];

const CASES: &[Case] = &[
    Case {
        name: "live null, every latency",
        fio: &["--ioengine=null"],
        engine: "null",
        depth: 1,
        batch: 1,
        once: true,
        calls: 8_000_000,
        goal: 3.0,
    },
    Case {
        name: "live psync, cached file",
        fio: &["--ioengine=psync", "--norandommap"],
        engine: "psync",
        depth: 1,
        batch: 1,
        once: false,
        calls: 600_000,
        goal: 1.25,
    },
    Case {
        name: "live io_uring depth 32, cached file",
        fio: &["--iodepth=32", "--iodepth_batch_submit=8"],
        engine: "io_uring",
        depth: 32,
        batch: 8,
        once: false,
        calls: 600_000,
        goal: 1.3,
    },
    Case {
        name: "live io_uring depth 128, cached file",
        fio: &["--iodepth=128", "--iodepth_batch_submit=32"],
        engine: "io_uring",
        depth: 128,
        batch: 32,
        once: false,
        calls: 600_000,
        goal: 1.3,
    },
];

pub(super) fn run(setting: &Setting) -> Result<Vec<Figure>, String> {
    let file = cached_file(&setting.folder)?;
    let version = Command::new("fio").arg("--version").output();
    let peer = match &version {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        _ => Err("fio is not installed (`apt-get install fio`)".to_owned()),
    };
    let mut figures = Vec::new();
    for case in CASES {
        let calls = case.calls / setting.divisor as u64;
        let mut ours = || sample(&ours(case, &file, calls)?, calls);
        let mut fio = || fio(case, &file, calls);
        let aim = Aim { unit: "ns/call", peer_name: "fio 3.33", goal: Some(case.goal), limit: None };
        let fio: Result<super::Measure<'_>, String> = match &peer {
            Ok(version) if version == "fio-3.33" => Ok(&mut fio),
            Ok(version) => Err(format!("{version} is installed, and the goal is fio 3.33's")),
            Err(reason) => Err(reason.clone()),
        };
        figures.push(compare(setting, case.name.to_owned(), aim, &mut ours, fio)?);
    }
    figures.push(above_bare_loop(setting, &file)?);
    std::fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(figures)
}

/// A file of random bytes, all of it in the page cache.
fn cached_file(folder: &Path) -> Result<PathBuf, String> {
    let path = folder.join("live.data");
    let failed = |error| format!("{}: {error}", path.display());
    let mut rng = Rng::stream(1, "bench.live");
    let chunk: Vec<u8> = (0..1 << 17).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    let file = std::fs::File::create(&path).map_err(failed)?;
    for offset in (0..FILE_BYTES).step_by(chunk.len()) {
        file.write_all_at(&chunk, offset).map_err(failed)?;
    }
    // Writing it back later would take the CPU from whoever is measured then.
    file.sync_all().map_err(failed)?;
    Ok(path)
}

fn plan(case: &Case, path: &Path, calls: u64) -> Plan {
    let bytes = if case.engine == "null" { NULL_BYTES } else { FILE_BYTES };
    let mut stream = Stream::random(Mix::Read, Target { file: 0, start: 0, len_bytes: bytes }, BLOCK, calls);
    if case.once {
        stream.order = Order::Random { distribution: Distribution::Uniform, once: true, run: 1, random_pct: 100 };
    }
    let files = vec![FileSpec { bytes, place: Place::FileSystem }];
    let threads = vec![ThreadJob { spec: ThreadSpec::new(0), stream }];
    let uring = case.engine == "io_uring";
    Plan {
        job: Job::new(Workload::Threads { files, threads }, 1),
        files: vec![File { path: path.to_owned(), may_create: false, remove: false, reserve: false, as_found: true }],
        threads: vec![Thread {
            engine: case.engine,
            depth: case.depth,
            batch_submit: case.batch,
            fixed_buffers: uring,
            registered_files: uring,
            ..Thread::default()
        }],
        sample: Duration::ZERO,
        cache: Cache::AsFound,
        allow: Allow::default(),
    }
}

fn ours(case: &Case, path: &Path, calls: u64) -> Result<Outcome, String> {
    let outcome = iowhy_live::run::run(&plan(case, path, calls), &|_| ()).map_err(|error| error.to_string())?;
    if let Some(error) = outcome.threads[0].errors.first() {
        return Err(format!("{}: {}", case.name, error.message));
    }
    if outcome.latency.count() != calls {
        return Err(format!("{}: WRONG ANSWER: {} latencies of {calls} calls", case.name, outcome.latency.count()));
    }
    Ok(outcome)
}

fn sample(outcome: &Outcome, calls: u64) -> Result<Sample, String> {
    let usage = outcome.threads[0].usage;
    let ns = (usage.user + usage.system).as_nanos() as f64 / calls as f64;
    Ok(Sample { ns, answer: outcome.counts.read_bytes })
}

/// One run of fio.
fn fio(case: &Case, path: &Path, calls: u64) -> Result<Sample, String> {
    let bytes = if case.engine == "null" { NULL_BYTES } else { FILE_BYTES };
    let mut command = Command::new("fio");
    command
        .args(["--name=bench", "--thread", "--rw=randread", "--bs=4k", "--invalidate=0", "--output-format=json"])
        .arg(format!("--size={bytes}"))
        .arg(format!("--io_size={}", calls * u64::from(BLOCK)))
        .args(case.fio);
    if case.engine == "io_uring" {
        command.args(TUNED);
    }
    if case.engine != "null" {
        command.arg(format!("--filename={}", path.display()));
    }
    let output = command.output().map_err(|error| format!("fio: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(&text)
        .map_err(|error| format!("fio: {error}: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
    let job = &report["jobs"][0];
    let number = |value: &Value| value.as_f64().ok_or_else(|| format!("fio: no number in {value}"));
    let cpu = number(&job["usr_cpu"])? + number(&job["sys_cpu"])?;
    let ns = cpu / 100.0 * number(&job["job_runtime"])? * 1e6 / calls as f64;
    let answer = job["read"]["io_bytes"].as_u64().ok_or("fio: no read.io_bytes in its report")?;
    Ok(Sample { ns, answer })
}

/// Cost of a call above the same calls in a loop that does nothing else.
fn above_bare_loop(setting: &Setting, path: &Path) -> Result<Figure, String> {
    let case = &CASES[1];
    let calls = case.calls / setting.divisor as u64;
    let file = std::fs::File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut ours = || {
        let outcome = ours(case, path, calls)?;
        let with = sample(&outcome, calls)?;
        let mut rng = Rng::stream(1, "bench.bare");
        let mut buffer = vec![0u8; BLOCK as usize];
        let bare = super::timed(calls as usize, || {
            let blocks = FILE_BYTES / u64::from(BLOCK);
            let read = |_| file.read_at(&mut buffer, rng.below(blocks) * u64::from(BLOCK)).unwrap_or(0) as u64;
            (0..calls).map(read).sum()
        });
        if bare.answer != with.answer {
            return Err(format!("{}: WRONG ANSWER: the bare loop has read {} bytes", case.name, bare.answer));
        }
        Ok(Sample { ns: with.ns - bare.ns, answer: with.answer })
    };
    let aim = Aim { unit: "ns/call", peer_name: "none", goal: None, limit: Some(60.0) };
    let none = Err("the difference to a bare loop of pread: an absolute limit".to_owned());
    compare(setting, "live psync above a bare loop".to_owned(), aim, &mut ours, none)
}
