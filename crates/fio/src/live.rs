//! Jobs of fio on the running kernel.
//!
//! ```text
//! calls      as the simulator has them: `run::fio::map` turns jobs into threads and streams
//! engines    by name; vsync and pvsync are pvsync2, posixaio is libaio, with a note
//! data       zero_buffers, refill_buffers, scramble_buffers, and as in `content`; with verify data that can be checked
//! verify     fio's headers and sums, or patterns. Reads of a job that only reads are checked as they come; writes are
//!            read again after each pass, or in its course (verify_backlog), unless do_verify=0; states as in `state`
//! cache      invalidate drops pages at the start and between passes; pre_read reads the files first
//! logs       of the calls kept: write_iolog (clones after the first have a number behind the name), write_bw_log and
//!            its like
//! processes  every clone is a thread of this process
//! ```
//! Options accepted without effect are in [`NOT_CARRIED_OUT`](super::carried_out::NOT_CARRIED_OUT) and listed once.

mod data;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufWriter, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use iowhy_live::guard::Output;
use iowhy_live::ledger::LedgerError;
use iowhy_live::machine::{self, Disk, DiskDelta};
use iowhy_live::outcome::{CallError, ThreadOutcome};
use iowhy_live::plan::{self, Allow, Cache, Ends, File, Fill, Measure, OpenSync, Priority, Sum, Terms, Thread, Verify};
use iowhy_live::run::{LiveError, Progress, Reports};
use iowhy_live::{Outcome, Plan};
use iowhy_stack::job::Workload;
use iowhy_stack::units::Nanos;

use super::carried_out::not_carried_out;
use super::job::SyncMode;
use super::options::{self, Engine, Value};
use super::value::CacheState;
use super::{FioFile, FioJob, World};
use crate::iolog::Iolog;
use crate::logs::{self, LogThread};
use crate::map::{Ground, map};
use crate::state;
use iowhy_text::diagnose::{Problem, Problems};

/// Which job a thread is of.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ThreadOf {
    /// Number of the job in the file.
    pub job: usize,
    /// Number of the clone, from 0.
    pub clone: u32,
    /// Line of the report.
    pub line: u32,
}

/// Jobs that are ready to run.
#[derive(Clone, Debug)]
pub struct LiveJobs {
    /// The jobs.
    pub file: FioFile,
    pub plan: Plan,
    /// Which job each thread is of.
    pub threads: Vec<ThreadOf>,
    /// Names of the lines of the report.
    pub lines: Vec<String>,
    /// Differences from the jobs' wishes, in words.
    pub notes: Vec<String>,
}

impl LiveJobs {
    /// The run's numbers of the files of a thread, in the order of its job.
    fn files_of(&self, origin: ThreadOf) -> Vec<u32> {
        let number = |name: String| self.plan.files.iter().position(|file| file.path == Path::new(&name));
        let names = self.file.jobs[origin.job].file_names(origin.clone);
        names.into_iter().filter_map(number).map(|number| number as u32).collect()
    }

    /// Reads the states of earlier runs that jobs ask for (`verify_state_load`).
    pub fn load_states(&mut self, folder: Option<&str>, problems: &mut Problems) {
        for (number, origin) in self.threads.clone().into_iter().enumerate() {
            let job = &self.file.jobs[origin.job];
            if !job.on("verify_state_load") || self.plan.threads[number].verify.is_none() {
                continue;
            }
            let name = state::name(folder, &job.name, number);
            let bytes = std::fs::read(&name).map_err(|error| error.to_string());
            match bytes.and_then(|bytes| state::read(&bytes, &self.files_of(origin))) {
                Ok(state) => {
                    if let Workload::Threads { threads, .. } = &mut self.plan.job.workload
                        && let Some(checks) = &mut threads[number].stream.checks
                    {
                        checks.state = Some(state.into());
                    }
                }
                Err(why) => {
                    let problem = Problem::error(format!("cannot read the verify state `{name}`: {why}"));
                    problems.push(problem.help("verify_state_load=0, or --aux-path=FOLDER"));
                }
            }
        }
    }
}

/// The running machine.
struct Running<'a> {
    load: &'a dyn Fn(&str) -> Result<String, String>,
}

impl Ground for Running<'_> {
    fn is_device(&self, name: &str) -> bool {
        std::fs::metadata(name).is_ok_and(|metadata| metadata.file_type().is_block_device())
    }

    fn bytes(&self, name: &str) -> Option<u64> {
        let metadata = std::fs::metadata(name).ok()?;
        if metadata.file_type().is_block_device() {
            return std::fs::File::open(name).ok()?.seek(SeekFrom::End(0)).ok();
        }
        (metadata.is_file() && metadata.len() > 0).then_some(metadata.len())
    }

    fn loader(&self) -> &dyn Fn(&str) -> Result<String, String> {
        self.load
    }
}

/// A problem for each folder of a job that does not exist: fio makes none. A run on a disk of its own makes its folder
/// later.
pub fn check_folders(file: &FioFile, problems: &mut Problems) {
    let folders: BTreeSet<&String> = file.jobs.iter().flat_map(|job| &job.directories).collect();
    for folder in folders.into_iter().filter(|folder| !Path::new(folder).is_dir()) {
        let problem = Problem::error(format!("option `directory`: `{folder}` is not a directory"));
        problems.push(problem.help(format!("mkdir -p {folder}")));
    }
}

/// Jobs made ready; nothing if they cannot be run. `seed` is the user's, for all draws; without one those of jobs
/// without `randrepeat` differ from run to run.
pub fn jobs(file: FioFile, seed: Option<u64>, world: &World<'_>, problems: &mut Problems) -> Option<LiveJobs> {
    let mut found = Problems::default();
    let ground = Running { load: world.load };
    let mapped = map(&file, &ground, None, &mut found);
    let mut mapping = Mapping { problems: &mut found };
    let threads: Vec<Vec<Thread>> = file.jobs.iter().map(|job| mapping.threads(job)).collect();
    let failed = found.any_error();
    problems.list.append(&mut found.list);
    let mapped = mapped.filter(|_| !failed)?;
    let mut job = mapped.job;
    let Workload::Threads { threads: specs, .. } = &mut job.workload else { return None };
    let chance = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    for (thread, fixed) in specs.iter_mut().zip(&mapped.seeds) {
        if fixed.is_none() {
            thread.stream.seed ^= chance as u64;
        }
    }
    // The generators mix the seed of the run into their own; 0 leaves those as the jobs give them.
    job.seed = seed.unwrap_or(0);
    let origins: Vec<ThreadOf> = (mapped.origins.iter().zip(specs.iter()))
        .map(|((job, clone), thread)| ThreadOf { job: *job, clone: *clone, line: thread.spec.job })
        .collect();
    let mut threads: Vec<Thread> =
        origins.iter().map(|origin| threads[origin.job][origin.clone as usize].clone()).collect();
    for (thread, origin) in threads.iter_mut().zip(&origins) {
        let Some(wanted) = &file.jobs[origin.job].wait_for else { continue };
        let awaited = file.jobs[..origin.job].iter().rposition(|job| job.name == *wanted);
        let of_it = |(_, other): &(u32, &ThreadOf)| Some(other.job) == awaited;
        thread.terms.after = (0..).zip(&origins).filter(of_it).map(|(number, _)| number).collect();
    }
    let mut known: BTreeMap<String, Vec<&FioJob>> = BTreeMap::new();
    for job in &file.jobs {
        let names: BTreeSet<String> = (0..job.numjobs).flat_map(|clone| job.file_names(clone)).collect();
        names.into_iter().for_each(|name| known.entry(name).or_default().push(job));
    }
    let plan = Plan {
        files: mapped
            .names
            .iter()
            .map(|name| live_file(name, known.get(name).map_or(&[][..], Vec::as_slice)))
            .collect(),
        threads,
        sample: sample(&file.jobs),
        cache: cache(&file.jobs),
        allow: Allow { directory: folder(&file.jobs), ..Allow::default() },
        job,
    };
    let notes = problems.list.iter().map(|problem| problem.message.clone()).collect();
    Some(LiveJobs { file, plan, threads: origins, lines: mapped.lines, notes })
}

/// The folder that no file of the jobs may leave; nothing if they name several, or name their files with folders from
/// the root on.
fn folder(jobs: &[FioJob]) -> Option<PathBuf> {
    if jobs.iter().flat_map(|job| &job.filenames).any(|name| name.starts_with('/')) {
        return None;
    }
    let here = String::from(".");
    let of = |job: &FioJob| if job.directories.is_empty() { vec![here.clone()] } else { job.directories.clone() };
    let mut folders: Vec<String> = jobs.iter().flat_map(of).collect();
    folders.sort_unstable();
    folders.dedup();
    if folders.len() == 1 { folders.pop().map(PathBuf::from) } else { None }
}

/// Settings of a file, from the jobs that use it.
fn live_file(name: &str, jobs: &[&FioJob]) -> File {
    let users = || jobs.iter().copied();
    let forbidden = |job: &FioJob| job.given("allow_file_create") == Some(Value::Switch(false));
    let grows = |job: &FioJob| matches!(job.given("fallocate"), Some(Value::Word("none" | "truncate" | "0")));
    let device = Path::new(name).starts_with("/dev/");
    // Without I/O it needs no file.
    let idle = users().next().is_some() && users().all(|job| job.engine == Engine::Null);
    File {
        path: PathBuf::from(name),
        may_create: !device && !idle && !users().any(forbidden),
        remove: users().any(|job| job.on("unlink")),
        reserve: !users().any(grows),
        as_found: false,
    }
}

/// The shortest window of samples that is asked for.
fn sample(jobs: &[FioJob]) -> Duration {
    let window = |job: &FioJob| {
        let logged = job.logs.bandwidth.is_some() || job.logs.iops.is_some();
        let log = if logged { job.logs.average_us } else { 0 };
        [job.logs.bandwidth_sample_us, job.logs.iops_sample_us, log]
    };
    let windows = jobs.iter().flat_map(window);
    Duration::from_micros(windows.filter(|window| *window > 0).min().unwrap_or(500_000))
}

fn cache(jobs: &[FioJob]) -> Cache {
    let asked = |wanted: fn(&CacheState) -> bool| jobs.iter().filter_map(|job| job.ours.cache.as_ref()).any(wanted);
    if jobs.iter().any(|job| job.pre_read) || asked(|state| *state != CacheState::Cold) {
        Cache::Warm
    } else if asked(|state| *state == CacheState::Cold) {
        Cache::Cold
    } else {
        // Threads drop pages themselves (`invalidate`).
        Cache::AsFound
    }
}

/// Ends of a job besides its own, and its share among others.
fn terms(job: &FioJob) -> Terms {
    let what = match job.word("exit_what") {
        "all" => Ends::All,
        "stonewall" => Ends::Running,
        _ => Ends::Group,
    };
    let when = |asked: bool| if asked { what } else { Ends::None };
    let weight = u32::try_from(job.number("flow")).unwrap_or(0);
    let (calls, bytes) = (job.pair("rate_iops_min"), job.pair("rate_min"));
    let cycle = match job.micros("rate_cycle") {
        0 => Nanos::from_secs(1),
        micros => Nanos::from_us(micros),
    };
    Terms {
        group: job.group,
        ends: when(job.exitall),
        error_ends: when(job.on("exitall_on_error")),
        after: Vec::new(),
        flow: (weight > 0).then(|| plan::Flow {
            number: u32::try_from(job.number("flow_id")).unwrap_or(0),
            weight,
            sleep: Nanos::from_us(job.micros("flow_sleep")),
        }),
        least: (calls != [0; 2] || bytes != [0; 2]).then_some(plan::Least { calls, bytes, cycle }),
        steady: steady(job),
    }
}

/// The latency that a job looks for (`latency_target`); zero if it looks for none.
pub(crate) fn target(job: &FioJob) -> plan::Search {
    plan::Search {
        target: Nanos::from_us(job.micros("latency_target")),
        window: Nanos::from_us(job.micros("latency_window")),
        percent: job.decimal("latency_percentile").unwrap_or(100.0),
        goes_on: job.on("latency_run"),
    }
}

/// The steadiness that ends a job (`steadystate`).
pub(crate) fn steady(job: &FioJob) -> Option<plan::Steady> {
    let looks = job.micros("steadystate_duration") / 1_000_000;
    if looks == 0 {
        return None;
    }
    let text = match job.given("steadystate") {
        Some(Value::Text(text)) => text,
        _ => "iops_slope:0.01%".to_owned(),
    };
    let (measure, limit) = text.split_once(':').unwrap_or((&text, "0"));
    Some(plan::Steady {
        measure: if measure.starts_with("bw") { Measure::Bytes } else { Measure::Calls },
        slope: measure.ends_with("_slope"),
        percent: limit.ends_with('%'),
        limit: limit.trim_end_matches('%').parse().unwrap_or(0.0),
        looks: u32::try_from(looks).unwrap_or(u32::MAX),
        ramp: Nanos::from_us(job.micros("steadystate_ramp_time")),
        together: job.group_reporting,
    })
}

/// Errors that are not fatal by themselves.
const EIO: i32 = 5;
const EILSEQ: i32 = 84;

/// Names of errors that calls on files have.
const ERRORS: &[(&str, i32)] = &[
    ("EPERM", 1),
    ("ENOENT", 2),
    ("EINTR", 4),
    ("EIO", EIO),
    ("ENXIO", 6),
    ("EBADF", 9),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EFAULT", 14),
    ("EBUSY", 16),
    ("ENODEV", 19),
    ("EINVAL", 22),
    ("EFBIG", 27),
    ("ENOSPC", 28),
    ("EROFS", 30),
    ("EILSEQ", EILSEQ),
    ("EOPNOTSUPP", 95),
    ("ETIMEDOUT", 110),
    ("ESTALE", 116),
    ("EREMOTEIO", 121),
    ("EDQUOT", 122),
];

struct Mapping<'a> {
    problems: &'a mut Problems,
}

impl Mapping<'_> {
    /// Needs of a job's clones besides their streams.
    fn threads(&mut self, job: &FioJob) -> Vec<Thread> {
        let verify = self.verify(job);
        let cpus = self.cpus(job);
        let split = job.word("cpus_allowed_policy") == "split";
        let logged = LogThread::needs_calls(&job.logs) || job.write_iolog.is_some();
        let align = u32::try_from(job.number("iomem_align")).unwrap_or(0);
        let thread = Thread {
            engine: self.engine(job),
            offload: job.word("io_submit_mode") == "offload",
            depth: job.iodepth,
            batch_submit: job.iodepth_batch,
            batch_complete: (job.batch_complete_min, job.batch_complete_max),
            fixed_buffers: job.on("fixedbufs"),
            registered_files: job.on("registerfiles"),
            poll: job.on("hipri"),
            kernel_thread: job
                .on("sqthread_poll")
                .then(|| job.given("sqthread_poll_cpu").map(|_| job.number("sqthread_poll_cpu") as u32)),
            priorities: self.priorities(job),
            open_sync: match job.sync {
                SyncMode::None => None,
                SyncMode::Sync => Some(OpenSync::Sync),
                SyncMode::Dsync => Some(OpenSync::Dsync),
            },
            fill: match verify {
                Some(_) => Fill::Checked,
                None if let Some(content) = self.content(job) => Fill::Made(Arc::new(content)),
                None if job.on("zero_buffers") => Fill::Zeroes,
                None if job.on("refill_buffers") => Fill::Fresh,
                None if job.given("scramble_buffers") == Some(Value::Switch(false)) => Fill::Same,
                None => Fill::Scrambled,
            },
            align: if align.is_power_of_two() { align.max(4096) } else { 4096 },
            verify,
            sample_latency: false,
            when_full: false,
            one_by_place: job.on("serialize_overlap"),
            keep_calls: logged,
            split_latency: !(job.reporting.disable_slat && job.reporting.disable_clat) || logged,
            forgives: self.forgives(job),
            cpus: cpus.clone(),
            nice: match job.given("nice") {
                Some(Value::Int(nice)) => Some(nice as i32),
                _ => None,
            },
            // As fio: without a class it is best effort.
            io_priority: (job.given("prio").is_some() || job.given("prioclass").is_some()).then(|| {
                let class = Some(job.number("prioclass")).filter(|class| *class > 0).unwrap_or(2);
                (class as u16) << 13 | job.number("prio") as u16
            }),
            depth_low: job.iodepth_low,
            warmup: Nanos::from_us(job.ramp_us),
            terms: terms(job),
            search: Some(target(job)).filter(|search| search.target > Nanos::ZERO),
            max_latency: Nanos::from_us(job.micros("max_latency")),
        };
        (0..job.numjobs as usize)
            .map(|clone| match cpus.get(clone % cpus.len().max(1)) {
                Some(cpu) if split => Thread { cpus: vec![*cpu], ..thread.clone() },
                _ => thread.clone(),
            })
            .collect()
    }

    fn engine(&mut self, job: &FioJob) -> &'static str {
        let nearest = match job.engine {
            Engine::Vsync | Engine::Pvsync => "pvsync2",
            Engine::Posixaio => "libaio",
            engine => return engine.name(),
        };
        let text = format!("`{}` is run as {nearest}, which is nearest to it here", job.engine.name());
        let note = Problem::note(text);
        if !self.problems.list.contains(&note) {
            self.problems.push(note);
        }
        nearest
    }

    fn verify(&mut self, job: &FioJob) -> Option<Verify> {
        let pattern = match job.given("verify_pattern") {
            Some(Value::Text(text)) => Some(self.pattern("verify_pattern", &text)?),
            _ => None,
        };
        // As fio: the header may not begin within the place that it has without this.
        if (1..40).contains(&job.number("verify_offset")) {
            let problem = Problem::error("option `verify_offset`: a value below 40, the length of fio's header");
            self.problems.push(problem.help("verify_offset=40"));
        }
        let name = match job.word("verify") {
            _ if !job.verifies() => return None,
            "0" => "pattern_hdr",
            name => name,
        };
        let sum = Sum::ALL.iter().find(|entry| entry.0 == name).map_or(Sum::Null, |entry| entry.1);
        let write = &job.blocks.write;
        let small = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        // As fio: no longer than the least block, and a part of the least and the largest.
        let mut interval = match job.number("verify_interval") {
            0 if write.max != write.min => write.min,
            interval => interval,
        };
        if interval > write.min {
            interval = write.min;
        } else if job.mode.read && interval > job.blocks.read.min {
            interval = job.blocks.read.min;
        }
        if interval == 0 || !write.min.is_multiple_of(interval) || !write.max.is_multiple_of(interval) {
            interval = gcd(write.min, write.max);
        }
        Some(Verify {
            // Without I/O there is nothing to compare; the reads are made all the same.
            sum: if job.engine == Engine::Null { Sum::Null } else { sum },
            interval_bytes: if job.unaligned { 0 } else { small(interval) },
            at_bytes: small(job.number("verify_offset")),
            pattern,
            fatal: job.on("verify_fatal") || !matches!(job.word("continue_on_error"), "verify" | "all" | "1"),
        })
    }

    /// Errors after which reads and writes go on (`continue_on_error`, `ignore_error`).
    fn forgives(&mut self, job: &FioJob) -> [Vec<i32>; 2] {
        let usual = match job.word("continue_on_error") {
            "read" => [true, false],
            "write" => [false, true],
            "io" | "all" | "1" => [true; 2],
            _ => [false; 2],
        };
        let mut sides = usual.map(|usual| if usual { vec![EIO, EILSEQ] } else { Vec::new() });
        let Some(Value::Text(text)) = job.given("ignore_error") else { return sides };
        for (side, list) in sides.iter_mut().zip(text.split(',')).filter(|(_, list)| !list.trim().is_empty()) {
            side.clear();
            for word in list.split(':').map(str::trim).filter(|word| !word.is_empty()) {
                let named = ERRORS.iter().find(|(name, _)| *name == word).map(|(_, number)| *number);
                match named.or_else(|| word.parse::<i32>().ok().map(i32::abs)) {
                    Some(number) => side.push(number),
                    None => {
                        let problem = Problem::error(format!("option `ignore_error`: `{word}` is not an error"));
                        let names = ERRORS.iter().map(|(name, _)| *name);
                        self.problems.push(problem.near(word, names).help("ignore_error=EIO,ENOSPC:28"));
                    }
                }
            }
        }
        sides
    }

    /// Priorities of reads and writes (`cmdprio_*`).
    fn priorities(&mut self, job: &FioJob) -> [Vec<Priority>; 2] {
        let two = |name: &str| match job.given(name) {
            Some(Value::Ints(given)) => [given.read, given.write].map(|one| one.map(|n| n.unsigned_abs() as u32)),
            _ => [None; 2],
        };
        let (classes, levels) = (two("cmdprio_class"), two("cmdprio"));
        // Class 1 is the one for real time.
        let value = |class: u32, level: u32| ((class & 7) << 13 | level & 7) as u16;
        let usual = [0, 1].map(|side| value(classes[side].unwrap_or(1), levels[side].unwrap_or(0)));
        let Some(Value::Text(split)) = job.given("cmdprio_bssplit") else {
            let percents = two("cmdprio_percentage");
            return [0, 1].map(|side| match percents[side] {
                None | Some(0) => Vec::new(),
                Some(percent) => vec![Priority { len_bytes: 0, percent, value: usual[side] }],
            });
        };
        let sides: Vec<&str> = split.split(',').collect();
        [0, 1].map(|side| {
            let text = sides.get(side).or(sides.last()).copied().unwrap_or_default();
            let mut list = Vec::new();
            for entry in text.split(':').filter(|entry| !entry.is_empty()) {
                let mut parts = entry.split('/');
                let size = parts.next().unwrap_or_default();
                let size = crate::value::integer(size, job.reporting.kb_base, (1, i64::from(u32::MAX)));
                let numbers: Result<Vec<u32>, _> = parts.map(str::parse).collect();
                let (Ok(size), Ok(numbers)) = (size, numbers) else {
                    let problem = Problem::error(format!("option `cmdprio_bssplit`: `{entry}` is not SIZE/PERCENT"));
                    self.problems.push(problem.help("cmdprio_bssplit=64k/25/1/1:4k/50"));
                    continue;
                };
                let chosen = match numbers[..] {
                    [_, class, level] => value(class, level),
                    _ => usual[side],
                };
                let percent = numbers.first().copied().unwrap_or(0);
                list.push(Priority { len_bytes: size.unsigned_abs() as u32, percent, value: chosen });
            }
            list
        })
    }

    /// The processors of `cpus_allowed` or `cpumask`.
    fn cpus(&mut self, job: &FioJob) -> Vec<usize> {
        let mask = job.number("cpumask");
        let mut cpus: Vec<usize> = (0..64).filter(|cpu| mask >> cpu & 1 == 1).collect();
        let Some(Value::Text(list)) = job.given("cpus_allowed") else { return cpus };
        cpus.clear();
        for part in list.split([',', ':']).map(str::trim) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
                (Ok(first), Ok(last)) if first <= last && last < 4096 => cpus.extend(first..=last),
                _ => {
                    let text = format!("option `cpus_allowed`: `{part}` is neither a processor nor a range of them");
                    self.problems.push(Problem::error(text).help("cpus_allowed=0,2-3"));
                }
            }
        }
        cpus
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Why a run could not be begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// In words.
    pub message: String,
    /// The system's number of the error, or that of an invalid argument.
    pub errno: i32,
    /// It is the job that makes no sense.
    pub usage: bool,
}

impl From<LiveError> for Obstacle {
    fn from(error: LiveError) -> Obstacle {
        let mut source = std::error::Error::source(&error);
        let mut errno = match &error {
            LiveError::Ledger(LedgerError::Io { error, .. }) => error.raw_os_error().unwrap_or(5),
            _ => 22,
        };
        while let Some(cause) = source {
            if let Some(number) = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error) {
                errno = number;
            }
            source = cause.source();
        }
        let usage = matches!(error, LiveError::Job(_) | LiveError::Engine { .. });
        Obstacle { message: error.to_string(), errno, usage }
    }
}

/// Makes the run; the devices below its files are looked at before and after.
///
/// # Errors
/// Why it could not be begun.
pub fn run(
    jobs: &LiveJobs,
    progress: &dyn Fn(Progress),
    reports: Option<Reports<'_>>,
) -> Result<(Outcome, Vec<DiskDelta>), Obstacle> {
    let wanted = jobs.file.jobs.iter().any(|job| job.reporting.disk_util && job.engine != Engine::Null);
    let before = machine::current_diskstats();
    let clock = Instant::now();
    let outcome = iowhy_live::run::run_with_reports(&jobs.plan, progress, reports)?;
    let mut disks = Vec::new();
    if wanted {
        let after = machine::current_diskstats();
        let below: Vec<String> = jobs.plan.files.iter().filter_map(|file| Disk::below(&file.path).name).collect();
        for now in after.iter().filter(|now| below.contains(&now.name)) {
            let then = before.iter().find(|then| then.number == now.number && then.name == now.name);
            disks.extend(then.map(|then| DiskDelta::between(then, now, clock.elapsed())));
        }
    }
    Ok((outcome, disks))
}

/// How far a run is, for a line on a terminal.
pub fn shown(progress: &Progress) -> String {
    match progress {
        Progress::SetUp { file, done_bytes, total_bytes } => {
            format!("laying out file {}: {} of {} MiB", file + 1, done_bytes >> 20, total_bytes >> 20)
        }
        Progress::Ready => "all files are laid out".to_owned(),
        Progress::Running { threads, counts, .. } => {
            format!("{threads} running: {} reads, {} writes, {} syncs", counts.reads, counts.writes, counts.syncs)
        }
    }
}

/// Writes the logs that jobs ask for; the names of the files.
///
/// # Errors
/// The system's error, with the name in front.
pub fn write_logs(jobs: &LiveJobs, outcome: &Outcome) -> std::io::Result<Vec<String>> {
    let create = |name: &str| Ok::<_, std::io::Error>(BufWriter::new(Output::create(Path::new(name), false)?));
    let end = |out: BufWriter<Output>| Ok(out.into_inner().map_err(std::io::IntoInnerError::into_error)?.finish()?);
    let mut logs = Vec::new();
    let mut written = Vec::new();
    let since_1970 = outcome.started.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let names: Vec<String> = jobs.plan.files.iter().map(|file| file.path.to_string_lossy().into_owned()).collect();
    for ((number, origin), thread) in (1..).zip(&jobs.threads).zip(&outcome.threads) {
        let job = &jobs.file.jobs[origin.job];
        let asynchronous = job.asynchronous();
        let epoch_ms = if job.on("log_unix_epoch") { since_1970 } else { 0 };
        logs.push(LogThread { number, job: &job.name, logs: &job.logs, outcome: thread, asynchronous, epoch_ms });
        if let Some(name) = iolog_name(job, origin.clone) {
            let failed = |error: std::io::Error| {
                std::io::Error::new(error.kind(), format!("cannot write the iolog `{name}`: {error}"))
            };
            let mut out = create(&name).map_err(failed)?;
            let done = Iolog::of_calls(&names, &thread.calls).write(&mut out).and_then(|()| end(out));
            done.map_err(failed)?;
            written.push(name);
        }
    }
    for (name, out) in logs::write_all(&logs, &mut |name| create(name))? {
        end(out)?;
        written.push(name);
    }
    Ok(written)
}

/// Writes the bandwidth of all jobs together ([`logs::TOTALS`]).
///
/// # Errors
/// The system's error, with the name in front.
pub fn write_totals(jobs: &LiveJobs, outcome: &Outcome) -> std::io::Result<()> {
    let length = Nanos(u64::try_from(jobs.plan.sample.as_nanos()).unwrap_or(u64::MAX));
    for (name, rows) in logs::TOTALS.iter().zip(logs::totals(&outcome.threads, length)) {
        let named = |error| std::io::Error::other(format!("log `{name}`: {error}"));
        Output::write(Path::new(name), rows.as_bytes(), false).map_err(named)?;
    }
    Ok(())
}

/// Writes the states of verified writes (`verify_state_save`); those that could not be written.
pub fn write_states(jobs: &LiveJobs, outcome: &Outcome, folder: Option<&str>) -> Problems {
    let mut problems = Problems::default();
    for (number, (origin, thread)) in jobs.threads.iter().zip(&outcome.threads).enumerate() {
        let (job, plan) = (&jobs.file.jobs[origin.job], &jobs.plan.threads[number]);
        let saves = job.given("verify_state_save") != Some(Value::Switch(false));
        if !saves || !job.mode.write || plan.verify.is_none() || thread.state.writes == 0 {
            continue;
        }
        let name = state::name(folder, &job.name, number);
        let bytes = state::write(&thread.state, plan.depth.max(1), &jobs.files_of(*origin), &job.name, number);
        if let Err(error) = Output::write(Path::new(&name), &bytes, false) {
            problems.push(Problem::warning(format!("verify state: {error}")));
        }
    }
    problems
}

/// Names of the logs that the jobs ask for.
pub fn logs(jobs: &LiveJobs) -> Vec<String> {
    let names = (1..).zip(&jobs.threads).flat_map(|(number, origin)| {
        let job = &jobs.file.jobs[origin.job];
        let outcome = &ThreadOutcome::default();
        let thread = LogThread { number, job: &job.name, logs: &job.logs, outcome, asynchronous: true, epoch_ms: 0 };
        thread.names().into_iter().map(|(_, name)| name).chain(iolog_name(job, origin.clone)).collect::<Vec<_>>()
    });
    names.collect()
}

/// Where the calls of a clone of a job go (`write_iolog`).
fn iolog_name(job: &FioJob, clone: u32) -> Option<String> {
    let name = job.write_iolog.as_ref()?;
    Some(if clone == 0 { name.clone() } else { format!("{name}.{clone}") })
}

/// Messages after a run: an early end, and calls that failed.
pub fn complaints(jobs: &LiveJobs, outcome: &Outcome) -> Problems {
    let mut problems = Problems::default();
    if outcome.interrupted {
        problems.push(Problem::warning("a signal ended the run early: these are its results up to then"));
    }
    for (thread, origin) in outcome.threads.iter().zip(&jobs.threads) {
        let name = &jobs.file.jobs[origin.job].name;
        for error in thread.errors.iter().take(TOLD) {
            // In fio's words, which scripts look for.
            let place = match (error.errno, jobs.plan.files.get(error.file as usize)) {
                (0, Some(file)) => {
                    let (file, CallError { offset, len_bytes, .. }) = (file.path.display(), error);
                    format!("verify failed at file {file} offset {offset}, length {len_bytes}: ")
                }
                _ => String::new(),
            };
            problems.push(Problem::error(format!("job `{name}`: {place}{}", error.message)));
        }
        let more = thread.nr_errors.saturating_sub(TOLD as u64);
        if more > 0 {
            problems.push(Problem::error(format!("job `{name}`: {more} more calls failed")));
        }
    }
    problems
}

/// Meanings of values that programs read from fio's `--debug=parse`.
pub fn parsed(file: &FioFile) -> String {
    let own = file.jobs.iter().flat_map(|job| &job.options);
    let written = file.globals.iter().chain(own).filter(|setting| setting.option.name == "steadystate");
    let shown = |setting: &super::Setting| {
        let (measure, limit) = setting.value.split_once(':').unwrap_or((&setting.value, "0"));
        match (limit.strip_suffix('%'), limit.parse::<f64>()) {
            (Some(percent), _) => format!("threshold to {:.6}%", percent.parse().unwrap_or(0.0)),
            (None, Ok(limit)) if measure.starts_with("bw") => format!("BW threshold to {limit:.0}"),
            (None, limit) => format!("IOPS threshold to {:.6}", limit.unwrap_or(0.0)),
        }
    };
    written.map(|setting| format!("parse    set steady state {}\n", shown(setting))).collect()
}

/// Errors of a thread that are reported in full.
const TOLD: usize = 3;

/// The options for a terminal, or one of them; nothing for an unknown option.
pub fn help(name: Option<&str>) -> Option<String> {
    let mut text = String::new();
    if let Some(name) = name {
        let option = options::find(name)?;
        text.push_str(&described(option));
        return Some(text);
    }
    for (group, title) in options::Group::ALL {
        text.push_str(&format!("\n{title}:\n"));
        for option in options::OPTIONS.iter().filter(|option| option.group == *group) {
            text.push_str(&described(option));
        }
    }
    Some(text)
}

fn described(option: &options::Opt) -> String {
    let mut line = option.help.to_owned();
    if !option.default.is_empty() && option.kind != options::Kind::Flag {
        line.push_str(&format!(" [{}]", option.default));
    }
    if !option.aliases.is_empty() {
        line.push_str(&format!(" (also {})", option.aliases.join(", ")));
    }
    if let Some(why) = not_carried_out(option.name) {
        line.push_str(&format!("; not carried out: {why}"));
    }
    iowhy_text::item(&format!("{}{}", option.name, option.kind.shown()), &line, 31)
}

#[cfg(test)]
mod tests;
