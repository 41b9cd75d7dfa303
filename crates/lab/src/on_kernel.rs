//! Runs on the running kernel, for every verb that makes some: simulated jobs as plans for real files, the run with the
//! machine's counters before and after, and its report.
//!
//! ```text
//! place      a file is made in the directory of the run, under the name the job gives it; a job's
//!            /dev/iowhy-disk is a file iowhy-disk there (on a modelled disk without file system: that disk); any other
//!            /dev/NAME is that device, if it exists
//! regions    several regions of a device are one file, with the places of the calls moved
//! size       a file is as large as the last region of it that a call can reach
//! engine     calls one after the other are psync, calls in flight libaio, mappings mmap
//! ```
//! The guard of the live crate decides on permission to write. Settings that only a simulator needs (CPU costs, seeks
//! at the start, processes) are left out.

pub mod machine;
pub mod requests;

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use iowhy_live::capture::Captured;
use iowhy_live::ledger::LedgerError;
use iowhy_live::machine::{Disk, DiskDelta, Machine, current_diskstats};
use iowhy_live::outcome::ThreadOutcome;
use iowhy_live::plan::{Allow, Cache, File, OpenSync, Thread};
use iowhy_live::run::{LiveError, Progress};
use iowhy_live::{Outcome, Plan};
use iowhy_stack::event::Op;
use iowhy_stack::histogram::Histogram;
use iowhy_stack::job::{CacheStart, Engine, FileSpec, Job, Place, Workload};
use iowhy_stack::outcome::{Counts, Interval};
use iowhy_stack::units::{Nanos, SECTOR_BYTES};
use serde_json::{Value, json};

use crate::recording;
use iowhy_fio::FioFile;
use iowhy_text as text;
use iowhy_text::diagnose::{Problem, Problems};
use requests::Requests;

/// The device that job files name where any will do.
pub const ANY_DEVICE: &str = "/dev/iowhy-disk";

/// Samples of bandwidth if nothing else is asked for.
const SAMPLE: Duration = Duration::from_millis(500);

/// Failed calls that are reported in full.
const TOLD: usize = 3;

/// A state of the page cache as it is typed.
pub fn cache_name(cache: Cache) -> &'static str {
    match cache {
        Cache::AsFound => "as-found",
        Cache::Cold => "cold",
        Cache::Warm => "warm",
    }
}

/// Files that exist, may be written, and stay.
pub fn files(paths: impl IntoIterator<Item = PathBuf>) -> Vec<File> {
    paths
        .into_iter()
        .map(|path| File { path, may_create: false, remove: false, reserve: false, as_found: true })
        .collect()
}

/// A plan of these parts.
pub fn plan(job: Job, files: Vec<File>, threads: Vec<Thread>, cache: Cache) -> Plan {
    let sample = if job.interval > Nanos::ZERO { Duration::from_nanos(job.interval.0) } else { SAMPLE };
    Plan { job, files, threads, sample, cache, allow: Allow::default() }
}

/// The path of a file that a job names `name`.
fn path_of(name: &str, dir: &Path) -> Result<PathBuf, Problem> {
    let inside = Path::new(name.strip_prefix("/dev/").filter(|_| name == ANY_DEVICE).unwrap_or(name));
    if name.starts_with("/dev/") && name != ANY_DEVICE {
        return match inside.exists() {
            true => Ok(inside.to_owned()),
            false => Err(Problem::error(format!("this machine has no `{name}`"))
                .help(format!("a device that it has, or {ANY_DEVICE}: a file in the directory of the run"))),
        };
    }
    if inside.components().any(|part| matches!(part, Component::ParentDir)) || inside.is_absolute() {
        return Err(Problem::error(format!("`{name}` lies outside of the directory of the run"))
            .help("a name without its folder, and --dir=FOLDER"));
    }
    Ok(dir.join(inside))
}

/// Jobs of fio with their files in a directory.
pub fn moved(mut file: FioFile, dir: &Path, problems: &mut Problems) -> Option<FioFile> {
    let mut found = Problems::default();
    for job in &mut file.jobs {
        let folders = if job.directories.is_empty() { vec![String::new()] } else { job.directories.clone() };
        let mut paths = Vec::new();
        for folder in &folders {
            let path = if folder.is_empty() { Ok(dir.to_owned()) } else { path_of(folder, dir) };
            match path {
                Ok(path) => paths.push(path.to_string_lossy().into_owned()),
                Err(problem) => found.push(problem),
            }
        }
        job.directories = paths;
        for name in &mut job.filenames {
            match path_of(name, Path::new("")) {
                Ok(path) => *name = path.to_string_lossy().into_owned(),
                Err(problem) => found.push(problem),
            }
        }
    }
    let failed = found.any_error();
    for problem in found.list {
        if !problems.list.contains(&problem) {
            problems.push(problem);
        }
    }
    (!failed).then_some(file)
}

/// The plan of a simulated job on real files called `names`, one for each file of the job.
pub fn live_plan(job: &Job, names: &[String], dir: &Path, problems: &mut Problems) -> Option<Plan> {
    let mut job = job.clone();
    let placed = job.placed_files();
    let cache = match job.cache {
        CacheStart::Cold => Cache::Cold,
        CacheStart::Tail { .. } => Cache::Warm,
    };
    job.region_jitter = 0;
    let Workload::Threads { files, threads } = &mut job.workload else { return None };
    let mut made: Vec<(File, u64)> = Vec::new();
    let mut moved = Vec::new();
    for (nr, spec) in placed.iter().enumerate() {
        let name = names.get(nr).map_or_else(|| format!("file.{nr}"), Clone::clone);
        let path = match path_of(&name, dir) {
            Ok(path) => path,
            Err(problem) => {
                if !problems.list.contains(&problem) {
                    problems.push(problem);
                }
                return None;
            }
        };
        let shift = match spec.place {
            Place::FileSystem => 0,
            Place::Device { start } => start.0 * SECTOR_BYTES,
        };
        let at = made.iter().position(|(file, _)| file.path == path).unwrap_or_else(|| {
            let device = path.starts_with("/dev");
            let file = File { path, may_create: !device, remove: !device, reserve: false, as_found: false };
            made.push((file, 0));
            made.len() - 1
        });
        moved.push((at as u32, shift));
    }
    for thread in threads.iter_mut() {
        for target in thread.stream.targets_mut() {
            let (file, shift) = moved[target.file as usize];
            target.file = file;
            target.start += shift;
            let end = &mut made[file as usize].1;
            *end = (*end).max(target.start + target.len_bytes);
        }
        thread.spec.tool = None;
        thread.spec.startup_seeks = 0;
    }
    let plans = threads
        .iter_mut()
        .map(|thread| {
            let open_sync = match thread.stream.synchronous_writes.take() {
                Some(Op::Fsync) => Some(OpenSync::Sync),
                Some(_) => Some(OpenSync::Dsync),
                None => None,
            };
            let plan = Thread { open_sync, ..Thread::default() };
            match thread.spec.engine {
                Engine::Sync => plan,
                Engine::Mmap => Thread { engine: "mmap", ..plan },
                Engine::Null => Thread { engine: "null", ..plan },
                Engine::Aio { depth, batch_submit, batch_complete } => {
                    Thread { engine: "libaio", depth, batch_submit, batch_complete: (batch_complete, 0), ..plan }
                }
                Engine::Ring { depth, batch_submit, batch_complete } => {
                    Thread { engine: "io_uring", depth, batch_submit, batch_complete: (batch_complete, 0), ..plan }
                }
            }
        })
        .collect();
    // A file that no call reaches still has to be there.
    *files = made.iter().map(|(_, bytes)| FileSpec { bytes: (*bytes).max(1), place: Place::FileSystem }).collect();
    let files = made.into_iter().map(|(file, _)| file).collect();
    let mut plan = plan(job, files, plans, cache);
    plan.allow.directory = Some(dir.to_owned());
    Some(plan)
}

/// A run that was made, and the machine it was made on.
#[derive(Clone, Debug)]
pub struct Live {
    pub plan: Plan,
    pub outcome: Outcome,
    /// The machine before the run.
    pub machine: Machine,
    /// The disk below the first file.
    pub disk: Disk,
    /// Activity of every disk meanwhile, the making of files included.
    pub disks: Vec<DiskDelta>,
    /// Threads that could not be run because of a file, and why.
    pub left_out: Vec<String>,
    /// It was traced.
    pub traced: Option<Box<Traced>>,
    /// The modelled disk it was made on, as it was at its end.
    pub modelled: Option<Box<iowhy_live::disk::State>>,
}

/// Messages about the tracing of a run.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Level, events, losses and cost.
    pub json: Value,
    /// Processes outside the workload that put pages of its files into the cache, and how many pages.
    pub foreign: Vec<(String, u64)>,
    /// Its requests in figures.
    pub requests: Requests,
    /// Messages for the user.
    pub complaints: Problems,
}

impl Traced {
    /// Of a capture, which can go then.
    pub fn of(captured: &Captured) -> Traced {
        let (requests, complaints) = (Requests::default(), recording::complaints(captured));
        Traced { json: recording::json(captured), foreign: Vec::new(), requests, complaints }
    }
}

/// The plan without the threads that work on a file, and how many those are; nothing if none would be left.
fn without(plan: &Plan, path: &Path) -> Option<(Plan, usize)> {
    let same = |file: &File| file.path == path || std::path::absolute(&file.path).is_ok_and(|known| known == path);
    let file = plan.files.iter().position(same)? as u32;
    let mut plan = plan.clone();
    let nr_threads = plan.threads.len();
    let uses: Vec<bool> =
        (0..nr_threads as u32).map(|thread| plan.job.workload.files_of(thread).contains(&file)).collect();
    let Workload::Threads { files, threads } = &mut plan.job.workload else { return None };
    let mut left = uses.iter();
    threads.retain(|_| left.next() == Some(&false));
    let mut left = uses.iter();
    plan.threads.retain(|_| left.next() == Some(&false));
    for target in threads.iter_mut().flat_map(|thread| thread.stream.targets_mut()) {
        target.file -= u32::from(target.file > file);
    }
    files.remove(file as usize);
    plan.files.remove(file as usize);
    let dropped = nr_threads - threads.len();
    (!threads.is_empty()).then_some((plan, dropped))
}

/// The file that an error is about, if the rest could run without it.
fn culprit(error: &LiveError) -> Option<&Path> {
    match error {
        LiveError::File { path, .. } | LiveError::Small { path, .. } => Some(path),
        LiveError::Ledger(LedgerError::Io { path, .. }) => Some(path),
        _ => None,
    }
}

impl Live {
    /// Makes the run. `progress` gets the runner's messages. If a file cannot be made ready, the threads that work on
    /// it are left out, and the others run.
    ///
    /// # Errors
    /// Why it could not be begun.
    pub fn make(mut plan: Plan, progress: &dyn Fn(Progress)) -> Result<Live, LiveError> {
        let machine = Machine::read();
        let before = current_diskstats();
        let clock = std::time::Instant::now();
        let mut left_out = Vec::new();
        let outcome = loop {
            let error = match iowhy_live::run::run(&plan, progress) {
                Ok(outcome) => break outcome,
                Err(error) => error,
            };
            let Some((rest, dropped)) = culprit(&error).and_then(|path| without(&plan, path)) else {
                return Err(error);
            };
            left_out.push(format!("{} left out: {error}", text::count(dropped as u64, "thread", "threads")));
            plan = rest;
        };
        let disks = DiskDelta::all(&before, &current_diskstats(), clock.elapsed());
        let disk = plan.files.first().map(|file| Disk::below(&file.path)).unwrap_or_default();
        Ok(Live { plan, outcome, machine, disk, disks, left_out, traced: None, modelled: None })
    }

    /// CPU time of all threads.
    pub fn cpu_s(&self) -> f64 {
        self.outcome.threads.iter().map(|thread| (thread.usage.user + thread.usage.system).as_secs_f64()).sum()
    }

    /// Sum of something over the threads.
    pub fn sum(&self, of: fn(&ThreadOutcome) -> u64) -> u64 {
        self.outcome.threads.iter().map(of).sum()
    }

    /// Whether a call failed, or data were wrong.
    pub fn failed(&self) -> bool {
        self.sum(|thread| thread.nr_errors) > 0 || self.outcome.interrupted || !self.left_out.is_empty()
    }

    /// The samples of all threads together, if the job asks for a report in intervals. The rest of the last one is
    /// shown if it is at least half as long as the others.
    pub fn intervals(&self) -> Vec<Interval> {
        if self.plan.job.interval == Nanos::ZERO {
            return Vec::new();
        }
        let samples = |thread: &ThreadOutcome| thread.samples.len();
        let n = self.outcome.threads.iter().map(samples).max().unwrap_or(0);
        let long = |nr: usize| {
            let of = |thread: &ThreadOutcome| thread.samples.get(nr).map_or(0, |sample| sample.length.0);
            self.outcome.threads.iter().map(of).max().unwrap_or(0) >= self.plan.job.interval.0 / 2
        };
        (0..n)
            .filter(|nr| long(*nr))
            .map(|nr| {
                let mut interval =
                    Interval { end: Nanos::ZERO, counts: Counts::default(), latency: Histogram::default() };
                for sample in self.outcome.threads.iter().filter_map(|thread| thread.samples.get(nr)) {
                    interval.end = interval.end.max(sample.end);
                    interval.counts.merge(&sample.counts);
                    interval.latency.merge(&sample.latency);
                }
                interval
            })
            .collect()
    }

    /// Messages for the user: calls that failed, and an early end.
    pub fn complaints(&self) -> Problems {
        let mut problems = Problems::default();
        if self.outcome.interrupted {
            problems.push(Problem::warning("a signal ended the run early: these are its results up to then"));
        }
        self.left_out.iter().for_each(|text| problems.push(Problem::error(text.clone())));
        let of_tracing = self.traced.iter().flat_map(|traced| &traced.complaints.list);
        of_tracing.for_each(|problem| problems.push(problem.clone()));
        let short = self.sum(|thread| thread.short);
        if short > 0 {
            problems.push(Problem::warning(format!("{short} calls moved fewer bytes than they asked for")));
        }
        for (nr, thread) in self.outcome.threads.iter().enumerate().filter(|(_, thread)| thread.nr_errors > 0) {
            for error in thread.errors.iter().take(TOLD) {
                let path = self.plan.files.get(error.file as usize).map(|file| file.path.display().to_string());
                problems.push(Problem::error(format!(
                    "thread {nr}: {} of `{}`, {} bytes from byte {}: {}",
                    op_name(error.op),
                    path.unwrap_or_default(),
                    error.len_bytes,
                    error.offset,
                    error.message
                )));
            }
            let told = thread.errors.len().min(TOLD) as u64;
            if thread.nr_errors > told {
                problems.push(Problem::error(format!("thread {nr}: {} calls more failed", thread.nr_errors - told)));
            }
        }
        problems
    }

    /// The fields that a real run has and a simulated one has not.
    pub fn json(&self) -> Value {
        let errors: Vec<Value> = self
            .outcome
            .threads
            .iter()
            .enumerate()
            .flat_map(|(nr, thread)| thread.errors.iter().map(move |error| (nr, error)))
            .map(|(nr, error)| {
                json!({
                    "thread": nr,
                    "file": error.file,
                    "op": op_name(error.op),
                    "offset": error.offset,
                    "bytes": error.len_bytes,
                    "errno": error.errno,
                    "message": error.message,
                })
            })
            .collect();
        let specs = self.plan.job.workload.files();
        let files: Vec<Value> = self
            .plan
            .files
            .iter()
            .enumerate()
            .map(|(nr, file)| {
                let resident = self.outcome.resident.get(nr).copied().unwrap_or_default();
                json!({
                    "path": file.path.to_string_lossy(),
                    "bytes": specs.get(nr).map_or(0, |file| file.bytes),
                    "resident_pages_before": resident.before,
                    "resident_pages_after": resident.after,
                })
            })
            .collect();
        let engines = self.plan.threads.iter().fold(Vec::new(), |mut known: Vec<&str>, thread| {
            if !known.contains(&thread.engine) {
                known.push(thread.engine);
            }
            known
        });
        let mut value = json!({
            "interrupted": self.outcome.interrupted,
            "cache": cache_name(self.plan.cache),
            "engines": engines,
            "files": files,
            "errors": errors,
            "left_out": self.left_out,
            "machine": machine::machine_json(&self.machine),
            "disk": machine::disk_json(&self.disk),
            "diskstats": self.disks.iter().map(machine::delta_json).collect::<Vec<_>>(),
        });
        if let Some(state) = &self.modelled {
            value["modelled"] = crate::modelled_disk::json(state);
        }
        if let Some(traced) = &self.traced {
            value["trace"] = traced.json.clone();
        }
        value
    }
}

fn op_name(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Fsync => "fsync",
        Op::Fdatasync => "fdatasync",
        Op::Trim => "trim",
    }
}
