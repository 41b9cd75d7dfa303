//! The run itself.
//!
//! ```text
//! set-up    files are laid out, the page cache is brought into the state asked for; none of this is timed
//! groups    one after the other; files are opened, threads make their engines, and begin together; the warm-up is
//!           counted from the beginning of each group
//! clock     starts with the first group; cached pages are counted just before, and after the last call
//! end       by the streams themselves, by an error (of that thread alone), or by SIGINT or SIGTERM: then what has been
//!           measured so far is the result, marked as interrupted
//! after     the run's own files are removed if the plan asks for it; a short run of the null engine with the
//!           first thread's calls shows what the harness costs
//! ```

mod buffers;
mod control;
mod harness;
mod meter;
mod source;
mod task;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use iowhy_stack::event::Op;
use iowhy_stack::job::{ThreadSpec, Workload};
use iowhy_stack::origin::{Entry, find};
use iowhy_stack::outcome::{Counts, JobTotals};
use iowhy_stack::readahead::Advice;
use iowhy_stack::units::Nanos;
use iowhy_stack::workload::{
    BlockSizes, Directions, FileIo, FileIoGenerator, Mix, ReadBack, Stream, StreamGenerator, TRIM,
};

use crate::clock::Clock;
use crate::engine::offload::DRIVE;
use crate::engine::{Build, ENGINES, OpenFile};
use crate::files::{self, Flags, LayOutError, Need};
use crate::ledger::{self, Ledger, LedgerError};
use crate::outcome::{Outcome, Resident, ThreadOutcome};
use crate::plan::{Cache, Plan, Terms, Thread};
use crate::{cache, guard, signal};

pub use worker::Worker;
pub(crate) use worker::drive;

use control::Control;
use harness::harness;
use meter::Published;
use worker::{Calls, Gate, Obstacle};

/// How far a run is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A file is being laid out.
    SetUp {
        /// Its number.
        file: u32,
        /// Bytes laid out; the first report has 0.
        done_bytes: u64,
        /// Bytes that will be.
        total_bytes: u64,
    },
    /// All files are laid out.
    Ready,
    /// Threads run.
    Running {
        /// Since the clock started.
        elapsed: Nanos,
        /// Which group.
        group: u32,
        /// Its threads that have not ended.
        threads: u32,
        /// Counts of all threads, a twentieth of a second old at most.
        counts: Counts,
    },
}

impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Progress::SetUp { file, done_bytes, total_bytes } => {
                write!(f, "laying out file {file}: {} of {} MiB", done_bytes >> 20, total_bytes.div_ceil(1 << 20))
            }
            Progress::Ready => f.write_str("all files are laid out"),
            Progress::Running { elapsed, threads, counts, .. } => {
                let Counts { reads, writes, syncs, .. } = counts;
                let seconds = elapsed.0 / 1_000_000_000;
                write!(f, "{seconds} s, {threads} threads, {reads} reads, {writes} writes, {syncs} syncs")
            }
        }
    }
}

/// Why a run could not be made. Errors of calls are not in it: they are in the [`Outcome`].
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The job is not one that can be run.
    #[error("the job cannot be run: {0}")]
    Job(String),
    /// No such engine.
    #[error("unknown engine `{name}`; there are {known}")]
    Engine {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// A file could not be prepared.
    #[error("{action} {path}: {source}{}", hint(source.raw_os_error().unwrap_or(0)))]
    File {
        /// The attempt.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A device is too small.
    #[error("{path} has {have_bytes} bytes, and the job works on {need_bytes}: make the job's size smaller")]
    Small {
        /// The device.
        path: PathBuf,
        /// Its size.
        have_bytes: u64,
        /// The job's need.
        need_bytes: u64,
    },
    /// A file system would be full.
    #[error(
        "{} needs {} MiB, with the other files there, and {} MiB can be had (a twentieth of the file system, 1 GiB at \
         most, stays free): make the job's size smaller, or allow it with --allow-write={}",
        path.display(), need_bytes.div_ceil(1 << 20), free_bytes >> 20, path.display()
    )]
    Room {
        /// The first file of it.
        path: PathBuf,
        /// The files' need besides their present size.
        need_bytes: u64,
        /// The usable space.
        free_bytes: u64,
    },
    /// A thread could not be started.
    #[error("thread {thread} could not be started: {source}: try fewer threads, or raise `ulimit -u`")]
    Spawn {
        /// Its number.
        thread: u32,
        /// The system's error.
        source: io::Error,
    },
    /// A file that may be missed would be written.
    #[error(transparent)]
    Refused(#[from] guard::Refused),
    /// A change of the run could not be written down, or not be undone.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A signal came before the clock had started.
    #[error("interrupted by a signal while the files were being laid out; nothing was measured")]
    Interrupted,
}

/// Advice after an error of the system, as a clause to put behind its name.
fn hint(errno: i32) -> &'static str {
    match errno {
        libc::ENOSPC => ": free some space, or make the job's files smaller",
        libc::EDQUOT => ": the quota is used up; free some space, or make the job's files smaller",
        libc::EACCES | libc::EPERM => ": try as root, or with files of your own",
        libc::EROFS => ": the file system is read-only; remount it, or put the files elsewhere",
        libc::ENOENT => ": the file is not there, or has vanished",
        libc::EINVAL => ": with direct I/O, sizes and offsets must be multiples of the logical block size",
        libc::EMFILE => ": raise `ulimit -n`",
        libc::ENOSYS => ": this kernel does not have it; see `iowhy doctor`",
        libc::EIO => ": see the kernel's log (`dmesg`)",
        libc::ESTALE => ": the file has vanished on the server",
        _ => "",
    }
}

/// How often the caller hears of the progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// How long the null engine runs to measure the harness.
const HARNESS_TIME: Nanos = Nanos::from_ms(5);

/// A thread's state before it runs.
struct Part<'p> {
    spec: ThreadSpec,
    thread: &'p Thread,
    engine: &'static Entry<Build>,
    files: Vec<u32>,
    /// It reads, it writes.
    directions: (bool, bool),
    call_bytes: u32,
    rated: bool,
}

/// Makes the run.
///
/// # Errors
/// If it could not begin. Results of its calls are in the outcome.
pub fn run(plan: &Plan, progress: &dyn Fn(Progress)) -> Result<Outcome, LiveError> {
    run_with_reports(plan, progress, None)
}

/// Time between reports of a run that goes on, and where its results so far go.
pub type Reports<'a> = (Duration, &'a dyn Fn(&Outcome));

/// Makes the run, and gives its results so far each time the interval is over.
///
/// # Errors
/// If it could not begin. Results of its calls are in the outcome.
pub fn run_with_reports(
    plan: &Plan,
    progress: &dyn Fn(Progress),
    reports: Option<Reports<'_>>,
) -> Result<Outcome, LiveError> {
    let parts = parts(plan)?;
    let _signals = signal::Guard::take();
    let mut seen = guard::check(plan)?;
    let specs = plan.job.workload.files();
    check_room(plan, &specs)?;
    let set_up_from = Instant::now();
    let made = make_files(plan, &mut seen)?;
    let written = |number: &usize| guard::writes(&plan.job, *number as u32);
    (0..seen.len()).filter(written).for_each(|number| seen[number].unsettle());
    set_up(plan, &seen, &parts, progress)?;
    progress(Progress::Ready);
    let set_up = set_up_from.elapsed();
    if signal::raised() {
        return Err(LiveError::Interrupted);
    }
    let shared = match &plan.job.workload {
        Workload::FileIo(fileio) => Some(Mutex::new(FileIoGenerator::new(fileio.clone(), plan.job.seed))),
        Workload::Threads { .. } => None,
    };
    let published: Vec<Published> = parts.iter().map(|_| Published::default()).collect();
    let control = Control::new(plan);
    if reports.is_some() {
        published.iter().for_each(Published::ask);
    }
    let mut run = Run {
        plan,
        control: &control,
        seen: &seen,
        parts: &parts,
        shared: shared.as_ref(),
        published: &published,
        progress,
        reports,
        descriptors: BTreeMap::new(),
        started: None,
        resident: vec![Resident::default(); specs.len()],
        outcomes: vec![ThreadOutcome::default(); parts.len()],
        interrupted: false,
    };
    let nr_groups = parts.iter().map(|part| part.spec.group + 1).max().unwrap_or(0);
    for group in 0..nr_groups {
        if signal::raised() {
            run.interrupted = true;
            break;
        }
        run.group(group)?;
    }
    run.interrupted |= signal::raised();
    for (resident, pages) in run.resident.iter_mut().zip(resident_pages(plan)) {
        resident.after = pages;
    }
    // Descriptors of the run write back dirty data when they go.
    run.descriptors.clear();
    seen.iter().for_each(guard::Seen::note);
    seen.iter().for_each(guard::Seen::settle);
    // The measurement is kept even if something cannot be undone.
    made.removed.into_iter().for_each(ledger::Guard::release);
    // Not before: the next start removes what a killed run has made, complete or not.
    if let Err(error) = made.kept.map(ledger::Guard::keep).transpose() {
        ledger::tell(&error);
    }
    let harness_ns = (!run.interrupted).then(|| harness(plan, &parts)).flatten();
    Ok(run.outcome(set_up, harness_ns))
}

/// Looks at every thread of the plan, and at whether the plan fits together.
fn parts(plan: &Plan) -> Result<Vec<Part<'_>>, LiveError> {
    plan.job.check().map_err(LiveError::Job)?;
    let specs = plan.job.workload.threads();
    if specs.len() != plan.threads.len() {
        let (have, want) = (plan.threads.len(), specs.len());
        return Err(LiveError::Job(format!("it has {want} threads, and {have} of them are described")));
    }
    let nr_files = plan.job.workload.files().len();
    if nr_files != plan.files.len() {
        return Err(LiveError::Job(format!("it has {nr_files} files, and {} of them have paths", plan.files.len())));
    }
    let mut parts = Vec::with_capacity(specs.len());
    for (number, (spec, thread)) in specs.into_iter().zip(&plan.threads).enumerate() {
        let engine = find(ENGINES, thread.engine).ok_or_else(|| LiveError::Engine {
            name: thread.engine.to_owned(),
            known: ENGINES.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", "),
        })?;
        let (directions, call_bytes, rated) = match &plan.job.workload {
            Workload::FileIo(fileio) => {
                let merged = fileio.block_bytes.saturating_mul(fileio.merged_requests.max(1));
                ((fileio.mode.reads(), fileio.mode.writes()), merged, fileio.rate > 0)
            }
            Workload::Threads { threads, .. } => {
                let stream = &threads[number].stream;
                (directions_of(stream), largest_call(stream), stream.rate.is_some() || stream.script.is_some())
            }
        };
        // Data are read back to be checked.
        let directions = (directions.0 || thread.verify.is_some(), directions.1);
        let files = plan.job.workload.files_of(number as u32);
        parts.push(Part { spec, thread, engine, files, directions, call_bytes, rated });
    }
    Ok(parts)
}

/// Whether a stream reads, and whether it writes.
fn directions_of(stream: &Stream) -> (bool, bool) {
    if let Some(script) = &stream.script {
        let has = |op: Op| script.iter().any(|step| step.call.op == op);
        return (has(Op::Read), has(Op::Write) || has(Op::Trim));
    }
    let (reads, writes) = match stream.mix {
        Mix::Read => (true, false),
        Mix::Write => (false, true),
        Mix::Mixed(_) | Mix::ReadAndWriteBack(_) => (true, true),
    };
    (reads, writes || stream.log.is_some())
}

/// Bytes of the largest call of a stream.
fn largest_call(stream: &Stream) -> u32 {
    let scripted = stream.script.iter().flat_map(|script| script.iter()).map(|step| step.call.len_bytes);
    let drawn = stream.blocks.iter().map(BlockSizes::largest);
    let log = stream.log.iter().map(|log| log.len_bytes);
    // What is trimmed is written then.
    let trimmed = stream.walk.iter().filter(|walk| walk.directions == Directions::TrimWrite);
    let trimmed = trimmed.map(|walk| u32::try_from(walk.sizes[TRIM].most).unwrap_or(u32::MAX));
    scripted.chain(drawn).chain(log).chain(trimmed).max().unwrap_or(0).max(4096)
}

/// The run's own files.
#[derive(Default)]
struct OwnFiles {
    /// Files and folders that go after the run. They are the first to go after an error, too: they may be in folders
    /// that would have stayed.
    removed: Option<ledger::Guard>,
    /// Files that stay, and the folders that they need.
    kept: Option<ledger::Guard>,
}

/// Refuses files that would fill a file system.
fn check_room(plan: &Plan, specs: &[iowhy_stack::job::FileSpec]) -> Result<(), LiveError> {
    let made = plan.files.iter().zip(specs).filter(|(file, _)| file.may_create);
    let made: Vec<(&Path, u64)> = made.map(|(file, spec)| (file.path.as_path(), spec.bytes)).collect();
    match files::room(&made) {
        Some((path, ..)) if guard::names(&path, &plan.allow) => Ok(()),
        Some((path, need_bytes, free_bytes)) => Err(LiveError::Room { path, need_bytes, free_bytes }),
        None => Ok(()),
    }
}

/// Makes the files that are missing, empty as yet. Whatever happens to the process, the next one finds them.
fn make_files(plan: &Plan, seen: &mut [guard::Seen]) -> Result<OwnFiles, LiveError> {
    let (ledger, _) = Ledger::open()?;
    let missing: Vec<_> = plan
        .files
        .iter()
        .zip(&*seen)
        .filter(|(file, seen)| file.may_create && !seen.is_there())
        .map(|(it, _)| it)
        .collect();
    let mut made = OwnFiles::default();
    let mut folders: Vec<&Path> = missing.iter().flat_map(|file| file.path.ancestors().skip(1)).collect();
    folders.retain(|folder| !folder.as_os_str().is_empty() && !folder.exists());
    folders.sort_unstable();
    folders.dedup();
    for folder in folders {
        let stays = missing.iter().any(|file| !file.remove && file.path.starts_with(folder));
        made.add(stays, ledger.create_directory(folder)?);
    }
    for stays in [true, false] {
        let mut paths: Vec<PathBuf> =
            missing.iter().filter(|file| file.remove != stays).map(|file| file.path.clone()).collect();
        paths.sort_unstable();
        paths.dedup();
        if !paths.is_empty() {
            let (files, guard) = ledger.create_files(&paths)?;
            made.add(stays, guard);
            for (file, seen) in plan.files.iter().zip(&mut *seen) {
                if let Ok(at) = paths.binary_search(&file.path) {
                    let failed = |source| LiveError::File { action: "looking at", path: file.path.clone(), source };
                    seen.became(&files[at]).map_err(failed)?;
                }
            }
        }
    }
    Ok(made)
}

impl OwnFiles {
    fn add(&mut self, stays: bool, guard: ledger::Guard) {
        let whole = if stays { &mut self.kept } else { &mut self.removed };
        *whole = Some(match whole.take() {
            Some(earlier) => earlier.and(guard),
            None => guard,
        });
    }
}

/// Lays the files out and brings the page cache into the state asked for.
fn set_up(plan: &Plan, seen: &[guard::Seen], parts: &[Part<'_>], progress: &dyn Fn(Progress)) -> Result<(), LiveError> {
    for (number, (file, spec)) in plan.files.iter().zip(plan.job.workload.files()).enumerate() {
        if signal::raised() {
            return Err(LiveError::Interrupted);
        }
        let number = number as u32;
        let need = need(number, spec.bytes, plan, parts);
        let mut report = |done_bytes: u64| {
            progress(Progress::SetUp { file: number, done_bytes, total_bytes: need.bytes });
        };
        files::lay_out(file, &seen[number as usize], number, &need, &mut report).map_err(|error| match error {
            LayOutError::Io(source) => LiveError::File { action: "laying out", path: file.path.clone(), source },
            LayOutError::Small(have_bytes) => {
                LiveError::Small { path: file.path.clone(), have_bytes, need_bytes: need.bytes }
            }
        })?;
    }
    for file in &plan.files {
        let failed = |action| move |source| LiveError::File { action, path: file.path.clone(), source };
        // A file that is not there is reported by the threads that work on it.
        let Ok(open) = File::open(&file.path) else { continue };
        match plan.cache {
            Cache::AsFound => {}
            Cache::Cold => cache::make_cold(&open).map_err(failed("dropping the cached pages of"))?,
            Cache::Warm => {
                let bytes = crate::guard::size_of(&open).map_err(failed("looking at"))?;
                cache::make_warm(&open, bytes).map_err(failed("reading"))?;
            }
        }
    }
    // Only what comes into the page cache needs memory. Half of the blocks that were freed last may go to others.
    let cached = |part: &&Part<'_>| !part.spec.direct && part.thread.engine != "null" && plan.cache != Cache::Warm;
    let used = |file: &u32| parts.iter().filter(cached).any(|part| part.files.contains(file));
    let specs = plan.job.workload.files();
    let bytes: u64 = (0..).zip(specs).filter(|(file, _)| used(file)).map(|(_, spec)| spec.bytes).sum();
    crate::free_memory::touch(bytes.saturating_mul(2));
    Ok(())
}

/// The uses of a file.
fn need(number: u32, bytes: u64, plan: &Plan, parts: &[Part<'_>]) -> Need {
    let mut users = (0..parts.len()).filter(|index| parts[*index].files.contains(&number));
    let data = users.any(|index| match &plan.job.workload {
        Workload::FileIo(fileio) => fileio.mode.reads(),
        Workload::Threads { threads, .. } => directions_of(&threads[index].stream).0,
    });
    Need { bytes, data }
}

/// Cached pages of each file of the plan.
fn resident_pages(plan: &Plan) -> Vec<u64> {
    let pages = |file: &crate::plan::File| {
        let open = File::open(&file.path).ok()?;
        let bytes = crate::guard::size_of(&open).ok()?;
        cache::resident_pages(&open, bytes)
    };
    plan.files.iter().map(|file| pages(file).unwrap_or(0)).collect()
}

/// A run in progress.
struct Run<'r> {
    plan: &'r Plan,
    control: &'r Control<'r>,
    seen: &'r [guard::Seen],
    parts: &'r [Part<'r>],
    shared: Option<&'r Mutex<FileIoGenerator>>,
    published: &'r [Published],
    progress: &'r dyn Fn(Progress),
    reports: Option<Reports<'r>>,
    /// Open files by set of descriptors, number and flags. They are closed here: threads have tables of descriptors of
    /// their own, and would close them there only.
    descriptors: BTreeMap<(u32, u32, Flags), (Arc<File>, u64)>,
    started: Option<(Clock, SystemTime)>,
    resident: Vec<Resident>,
    outcomes: Vec<ThreadOutcome>,
    interrupted: bool,
}

impl Run<'_> {
    /// Runs the threads of one group.
    fn group(&mut self, group: u32) -> Result<(), LiveError> {
        let members: Vec<u32> =
            (0..self.parts.len() as u32).filter(|number| self.parts[*number as usize].spec.group == group).collect();
        if members.is_empty() {
            return Ok(());
        }
        let opened: Vec<_> = members.iter().map(|number| self.open_files(*number)).collect();
        for number in &members {
            self.prepare_cache(*number);
        }
        let gate = Gate::default();
        let left = (Mutex::new(members.len() as u32), Condvar::new());
        let (plan, parts) = (self.plan, self.parts);
        let mut workers: Vec<Worker<'_>> = members
            .iter()
            .zip(opened)
            .map(|(number, (files, obstacle))| {
                let part = &parts[*number as usize];
                let calls = match (&plan.job.workload, self.shared) {
                    (Workload::Threads { threads, .. }, _) => {
                        let stream = threads[*number as usize].stream.clone();
                        let back = ReadBack::of(&stream);
                        let calls = Box::new(StreamGenerator::new(vec![stream], plan.job.seed));
                        match back {
                            Some(back) => Calls::Checked(calls, Box::new(back)),
                            None => Calls::Stream(calls),
                        }
                    }
                    (Workload::FileIo(_), Some(shared)) => Calls::Shared(shared),
                    (Workload::FileIo(_), None) => unreachable!("sysbench jobs have a shared generator"),
                };
                let published = &self.published[*number as usize];
                worker(plan, part, *number, files, obstacle, calls, (Some(&gate), self.control), published)
            })
            .collect();
        std::thread::scope(|scope| {
            for worker in &mut workers {
                let (number, left, gate) = (worker.number, &left, &gate);
                let part = &parts[number as usize];
                let drive = if part.thread.offload { DRIVE } else { part.engine.build.drive };
                let thread = std::thread::Builder::new().name(format!("iowhy-{number}"));
                let spawned = thread.spawn_scoped(scope, move || {
                    let _leaving = Leaving(left, gate);
                    drive(worker);
                });
                if let Err(source) = spawned {
                    gate.open(None);
                    return Err(LiveError::Spawn { thread: number, source });
                }
            }
            gate.wait_for(members.len() as u32);
            let (clock, since) = self.start_clock();
            gate.open(Some((clock, since)));
            self.watch(group, (clock, since), &left);
            Ok(())
        })?;
        for worker in workers {
            let mut outcome = worker.outcome;
            let (steady, slow) = self.control.found(worker.number);
            outcome.steady = steady;
            if let Some(message) = slow {
                outcome.fail(Op::Read, libc::EIO, message);
            }
            self.outcomes[worker.number as usize] = outcome;
        }
        Ok(())
    }

    /// The clock of the run, and what it shows now.
    fn start_clock(&mut self) -> (Clock, Nanos) {
        if let Some((clock, _)) = self.started {
            return (clock, clock.now());
        }
        for (resident, pages) in self.resident.iter_mut().zip(resident_pages(self.plan)) {
            resident.before = pages;
        }
        // The first clock of a process measures the rate of the counter, which takes a while.
        Clock::start();
        let started = SystemTime::now();
        let clock = Clock::start();
        self.started = Some((clock, started));
        (clock, Nanos::ZERO)
    }

    /// Reports until the last thread has ended.
    fn watch(&self, group: u32, (clock, since): (Clock, Nanos), (left, ended): &(Mutex<u32>, Condvar)) {
        let mut threads = left.lock().unwrap_or_else(PoisonError::into_inner);
        let mut due = self.reports.map(|(every, report)| (since + nanos(every), every, report, false));
        while *threads > 0 {
            let waited = ended.wait_timeout(threads, PROGRESS_EVERY).unwrap_or_else(PoisonError::into_inner);
            threads = waited.0;
            if waited.1.timed_out() {
                let mut counts = Counts::default();
                self.published.iter().for_each(|published| counts.merge(&published.get().0));
                self.control.look(clock.now(), since, self.published);
                if let Some((at, every, report, asked)) = &mut due
                    && clock.now() >= *at
                {
                    // Threads answer before the next look.
                    if *asked {
                        let so_far = self.published.iter().map(|one| one.results().unwrap_or_default()).collect();
                        report(&self.assemble(so_far, (false, Vec::new()), (Duration::ZERO, None)));
                        *at += nanos(*every);
                    } else {
                        self.published.iter().for_each(Published::ask);
                    }
                    *asked = !*asked;
                }
                (self.progress)(Progress::Running { elapsed: clock.now(), group, threads: *threads, counts });
            }
        }
    }

    /// Opens the files of a thread, or takes what its set of descriptors has open.
    fn open_files(&mut self, number: u32) -> (Vec<OpenFile>, Option<Obstacle>) {
        let part = &self.parts[number as usize];
        let mut open = vec![OpenFile::default(); self.plan.files.len()];
        let mut obstacle = None;
        if part.thread.engine == "null" {
            return (open, None);
        }
        let set = self.set_of(number);
        for file in &part.files {
            let key = (set, *file, self.flags_of(number, *file));
            if !self.descriptors.contains_key(&key) {
                let path = &self.plan.files[*file as usize].path;
                let seen = &self.seen[*file as usize];
                let opened = match files::open(seen, key.2) {
                    Err(error) if error.raw_os_error() == Some(libc::EMFILE) && files::raise_limit() => {
                        files::open(seen, key.2)
                    }
                    other => other,
                };
                let opened = opened.and_then(|file| {
                    let bytes = crate::guard::size_of(&file)?;
                    Ok((Arc::new(file), bytes))
                });
                match opened {
                    Ok(opened) => {
                        self.descriptors.insert(key, opened);
                    }
                    Err(error) => {
                        let errno = error.raw_os_error().unwrap_or(libc::EIO);
                        let message = format!("opening {}: {error}{}", path.display(), hint(errno));
                        obstacle = obstacle.or(Some(Obstacle { file: *file, errno, message }));
                        continue;
                    }
                }
            }
            if let Some((opened, bytes)) = self.descriptors.get(&key) {
                open[*file as usize] = OpenFile {
                    file: Some(Arc::clone(opened)),
                    bytes: *bytes,
                    writable: key.2.write,
                    direct: key.2.direct,
                };
            }
        }
        (open, obstacle)
    }

    /// The set of descriptors of a thread. The position of a file is part of the open file, so threads that use it
    /// have sets of their own.
    fn set_of(&self, number: u32) -> u32 {
        let part = &self.parts[number as usize];
        if part.thread.engine == "sync" { u32::MAX - number } else { part.spec.descriptors }
    }

    /// A file is open for writing if any thread of the set writes to it.
    fn flags_of(&self, number: u32, file: u32) -> Flags {
        let part = &self.parts[number as usize];
        let write = (0..self.parts.len() as u32).any(|other| {
            let its = &self.parts[other as usize];
            self.set_of(other) == self.set_of(number) && its.directions.1 && its.files.contains(&file)
        });
        Flags::new(write, part.spec.direct, part.thread.open_sync)
    }

    /// A thread's advice on its files when it has opened them.
    fn prepare_cache(&self, number: u32) {
        let part = &self.parts[number as usize];
        for file in &part.files {
            let key = (self.set_of(number), *file, self.flags_of(number, *file));
            let Some((open, _)) = self.descriptors.get(&key) else { continue };
            // Advice is only that: the run goes on with a file system that does not take it.
            if part.spec.invalidate {
                let _ = cache::drop_clean(open);
            }
            let _ = match part.spec.advice {
                None => Ok(()),
                Some(Advice::Normal) => cache::advise(open, 0, 0, cache::Advice::Normal),
                Some(Advice::Random) => cache::advise(open, 0, 0, cache::Advice::Random),
                Some(Advice::Sequential) => cache::advise(open, 0, 0, cache::Advice::Sequential),
                Some(Advice::WillNeed { offset, len_bytes }) => {
                    cache::advise(open, offset, len_bytes, cache::Advice::WillNeed)
                }
            };
        }
    }

    /// Puts the threads' shares together.
    fn outcome(mut self, set_up: Duration, harness_ns: Option<f64>) -> Outcome {
        let (threads, resident) = (std::mem::take(&mut self.outcomes), std::mem::take(&mut self.resident));
        self.assemble(threads, (self.interrupted, resident), (set_up, harness_ns))
    }

    fn assemble(
        &self,
        threads: Vec<ThreadOutcome>,
        (interrupted, resident): (bool, Vec<Resident>),
        (set_up, harness_ns): (Duration, Option<f64>),
    ) -> Outcome {
        let nr_jobs = self.parts.iter().map(|part| part.spec.job + 1).max().unwrap_or(0);
        let mut jobs = vec![JobTotals::default(); nr_jobs as usize];
        let mut seen = vec![false; nr_jobs as usize];
        let (mut counts, mut latency) = (Counts::default(), iowhy_stack::histogram::Histogram::default());
        for (thread, part) in threads.iter().zip(self.parts) {
            let job = &mut jobs[part.spec.job as usize];
            let first = !std::mem::replace(&mut seen[part.spec.job as usize], true);
            job.start = if first { thread.totals.start } else { job.start.min(thread.totals.start) };
            job.end = job.end.max(thread.totals.end);
            job.counts.merge(&thread.totals.counts);
            counts.merge(&thread.totals.counts);
            for (mine, its) in job.latency.iter_mut().zip(&thread.latency) {
                mine.merge(&its.total);
                latency.merge(&its.total);
            }
        }
        let start = threads.iter().map(|thread| thread.totals.start).min().unwrap_or_default();
        let end = threads.iter().map(|thread| thread.totals.end).max().unwrap_or_default();
        Outcome {
            started: self.started.map_or_else(SystemTime::now, |(_, started)| started),
            elapsed: end.saturating_sub(start),
            counts,
            latency,
            threads,
            jobs,
            interrupted,
            resident,
            set_up,
            harness_ns,
        }
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Tells the main thread that one has ended, even if it panics.
struct Leaving<'a>(&'a (Mutex<u32>, Condvar), &'a Gate);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.1.notify_all();
        self.1.leave();
    }
}

#[expect(clippy::too_many_arguments, reason = "one call for the run and one for the harness")]
fn worker<'w>(
    plan: &'w Plan,
    part: &'w Part<'_>,
    number: u32,
    files: Vec<OpenFile>,
    obstacle: Option<Obstacle>,
    calls: Calls<'w>,
    (gate, control): (Option<&'w Gate>, &'w Control<'w>),
    published: &'w Published,
) -> Worker<'w> {
    Worker {
        number,
        spec: &part.spec,
        thread: part.thread,
        paths: &plan.files,
        files,
        obstacle,
        calls,
        rated: part.rated,
        call_bytes: part.call_bytes,
        directions: part.directions,
        seed: plan.job.seed << 16 | u64::from(number),
        sample: nanos(plan.sample),
        warmup: plan.job.warmup,
        gate,
        control,
        published,
        outcome: ThreadOutcome::default(),
    }
}
