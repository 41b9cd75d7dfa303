//! `iowhy run`: jobs of fio and built-in jobs on simulated stacks and on the running kernel.
//!
//! The words behind `run` become a [`RunRequest`] with every mistake reported at once: which job, at which places, how
//! often. Each place has a [`Variant`] with the plan made for it. [`execute`] makes the runs, those of several variants
//! in blocks of random order ([`design`]), and records each as soon as it has ended ([`record`]); [`report`] shows
//! them. Files of live runs are in one directory ([`Folder`]); nothing is touched before the first run.

mod aio_stress;
mod bonnie;
mod dd;
pub mod design;
pub(crate) mod fio;
pub mod guest;
mod limit;
pub mod metrics;
pub mod options;
mod paralleldd;
mod pgbench;
pub mod program;
pub mod record;
pub mod replay;
pub mod report;
pub mod traced;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use iowhy_live::capture::Level;
use iowhy_live::disk::{DiskError, Held as HeldDisk, Spec, State};
use iowhy_live::plan::Cache;
use iowhy_live::run::Progress;
use iowhy_stack::event::EventSink;
use iowhy_stack::job::{Job, ThreadJob, Workload};
use iowhy_stack::kernel::Stack;
use iowhy_stack::machine::Machine;
use iowhy_stack::outcome::{JobTotals, Outcome, Plan, RunError};
use iowhy_stack::rng::Rng;
use iowhy_stack::sim;
use iowhy_stack::units::{PAGE_BYTES, SECTOR_BYTES};

use crate::modelled_disk;
use crate::on_kernel::{self, Live, Traced};
use crate::place;
use crate::recording::during;
use crate::store::{self, DataFile, EventWriter, RunId, Sampler, Store, StoreError};
pub use design::{Slot, Until, schedule};
use iowhy_fio as fio_jobs;
use iowhy_fio::World;
use iowhy_text as text;
use iowhy_text::diagnose::{Problem, Problems, Severity, Span};
use iowhy_trace::join::join;
use limit::Limit;
use options::{Opt, Values};
use program::{Program, Ran};

/// Makes the command line of a program from the options of a job and the directory.
type Tell = fn(&Values<'_>, &Path, &mut Problems) -> Option<Program>;

/// A built-in job.
#[derive(Debug)]
pub struct Builtin {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// What whoever uses it should know.
    pub notes: &'static str,
    /// Its options.
    pub options: &'static [Opt],
    /// Makes the job.
    build: fn(&Values<'_>, &mut Stack, &mut Problems) -> Option<(Job, Shape)>,
    /// The program that is run on the running kernel, if the job only imitates one.
    program: Option<Tell>,
}

/// Every built-in job.
pub const BUILTINS: &[&Builtin] =
    &[&dd::ENTRY, &paralleldd::ENTRY, &aio_stress::ENTRY, &bonnie::ENTRY, &pgbench::ENTRY];

/// A metric that one job has and others have not.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// Which line of the report it is taken from.
    pub line: usize,
    /// How.
    pub of: fn(&JobTotals) -> f64,
}

/// What the report needs to know of a job.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Names of the lines of the report.
    pub lines: Vec<String>,
    /// Metrics of its own.
    pub figures: Vec<Figure>,
    /// Seeds of streams that are the same in every run (fio's `randrepeat`), by thread; the others change.
    pub fixed_seeds: Vec<Option<u64>>,
    /// Names of the files of the job, as the job has them.
    pub files: Vec<String>,
}

impl Shape {
    /// A report with these lines. A name that comes twice gets a number.
    pub fn of<S: AsRef<str>>(lines: impl IntoIterator<Item = S>) -> Shape {
        let mut shape = Shape::default();
        for line in lines {
            let name = line.as_ref();
            let same = |other: &String| other == name;
            let nr = (2..).find(|nr| !shape.lines.contains(&format!("{name}-{nr}")));
            let name = match (shape.lines.iter().any(same), nr) {
                (true, Some(nr)) => format!("{name}-{nr}"),
                _ => name.to_owned(),
            };
            shape.lines.push(name);
        }
        shape
    }

    /// The job with another seed.
    pub(crate) fn seed(&self, job: &mut Job, seed: u64) {
        job.seed = seed;
        if let Workload::Threads { threads, .. } = &mut job.workload {
            for (thread, fixed) in threads.iter_mut().zip(&self.fixed_seeds) {
                if let Some(fixed) = fixed {
                    // The generator mixes the seed of the run in like this; here it must cancel out.
                    thread.stream.seed = fixed ^ seed.rotate_left(32);
                }
            }
        }
    }

    /// The plan with another seed.
    pub fn seeded(&self, plan: &Plan, seed: u64) -> Plan {
        let mut plan = plan.clone();
        self.seed(&mut plan.job, seed);
        plan
    }
}

/// What is run at a place.
#[derive(Clone, Debug)]
pub enum Task {
    /// A job in the simulator.
    Simulated(Box<Plan>),
    /// A job on the running kernel.
    Live(Box<iowhy_live::Plan>),
    /// Another program on the running kernel.
    Program(Program),
    /// A job on a kernel that is booted for it.
    Guest(Box<guest::GuestTask>),
}

impl Task {
    /// It works on files of this machine.
    pub fn is_live(&self) -> bool {
        matches!(self, Task::Live(_) | Task::Program(_))
    }
}

/// One place to run the job on.
#[derive(Clone, Debug)]
pub struct Variant {
    /// `--on`, as typed.
    pub on: String,
    /// `--disk`, as typed.
    pub disk: Option<String>,
    /// What its runs are called.
    pub label: String,
    /// What is run, with the first seed.
    pub task: Task,
    /// What the report needs to know.
    pub shape: Shape,
    /// The modelled disk that is made for each of its runs on the running kernel.
    pub modelled: Option<Box<Spec>>,
    /// `--on` and `--disk` of a simulated place in full: they mean the same in any company.
    pub in_full: Option<(String, Option<String>)>,
}

/// The directory of live runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
    /// It is made for these runs, and removed after them.
    pub temporary: bool,
}

/// A command line that means something.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The job, as typed.
    pub job: Vec<String>,
    /// Where.
    pub variants: Vec<Variant>,
    /// Runs on each.
    pub repeat: u32,
    /// Seed of the first run.
    pub seed: u64,
    /// Print JSON.
    pub json: bool,
    /// Where the files of live runs are.
    pub folder: Folder,
    /// Blocks that only warm up.
    pub warm_up: u32,
    /// When there are enough runs; otherwise there are as many as `repeat` says.
    pub until: Option<Until>,
    /// Where the runs are kept, if they are.
    pub keep: Option<Keep>,
    /// What was warned of when the command line was read.
    pub warnings: Vec<String>,
    /// Words that ask for the same job on the running kernel, whatever the current directory is.
    pub again: Vec<String>,
}

/// How runs are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The directory of the store.
    pub directory: PathBuf,
    /// Keeping them was asked for in so many words; otherwise it follows from the label, and runs are made even if they
    /// cannot be kept.
    pub asked: bool,
    /// With everything that happened: all of it in simulated ones, at this level in live ones.
    pub trace: Option<Level>,
    /// Without a word of what they were made on.
    pub blind: bool,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub enum Request {
    /// This text.
    Help(String),
    /// Runs.
    Run(Box<RunRequest>),
}

/// Options of the verb: name, whether it takes a value, help.
const OPTIONS: &[(&str, bool, &str)] = &[
    ("on", true, "live, sim:KERNEL[+PATCH..][,key=value..] or kernel:KERNEL[,key=value..]; several times to compare"),
    (
        "disk",
        true,
        "NAME[,key=value..]: the modelled device; live and kernel, as root: one made for each run, with file system \
         (fs=ext4) and queue (`iowhy disk create --help`); `here` for none; once, or once for each --on",
    ),
    ("repeat", true, "runs on each, with seeds S, S+1, .. [1]"),
    ("seed", true, "seed of the first run [1]"),
    ("warm-up", true, "blocks of runs that only warm up, and are in no comparison [0]"),
    ("until", true, "go on until the median, or the shift between places, is known to so many percent (level 99 %)"),
    ("budget", true, "with --until: most runs on each"),
    ("label", true, "name of the runs, which are kept; once, or once for each --on"),
    ("store", true, "keep the runs in this directory [IOWHY_STORE; with --label, else the user's data directory]"),
    ("trace", false, "keep all events, too; live (as root): --trace=light, layers or full [layers]"),
    ("blind", false, "keep runs without a word of kernel, policies, tunables, disk and place"),
    ("dir", true, "live: where the files are [a new directory here, removed afterwards]"),
    ("cache", true, "live: cold, warm or as-found: the files' pages at the start [as the job says]"),
    ("allow-write", true, "live: a device or file that may be written whatever it holds; may be repeated"),
    ("size-limit", true, "bytes that each job works on at most, such as 4m"),
    ("time-limit", true, "seconds that each job works at most"),
    ("timeout", true, "kernel: seconds that a boot with its run may take [by the job, at least 180]"),
    ("replay", true, "of a trace: closed (each call when the last has ended) or open (at the recorded times) [closed]"),
    ("json", false, "one JSON object (iowhy.run/1)"),
    ("help", false, "this text; with a built-in job, its options"),
];

/// The word that makes the words behind it those of fio's command line.
const FIO: &str = "fio";

/// What the words behind `iowhy run` ask for, or everything that is wrong with them. Files are read through `world`,
/// whose numbers of the machine are replaced by those of the simulated one. Warnings are left in `problems` in either
/// case.
pub fn resolve(words: &[String], world: &World<'_>, problems: &mut Problems) -> Option<Request> {
    let line = take_apart(words, problems);
    let builtin = line.job.first().and_then(|word| BUILTINS.iter().find(|builtin| builtin.name == *word));
    if line.help {
        problems.list.clear();
        return Some(Request::Help(builtin.map_or_else(help, |builtin| help_of(builtin))));
    }
    let mut found = Problems::default();
    let folder = match line.all("dir").first() {
        Some(dir) => Folder { path: PathBuf::from(dir), temporary: false },
        None => Folder { path: PathBuf::from(format!("iowhy-run-{}", std::process::id())), temporary: true },
    };
    let mut request = RunRequest {
        job: line.job.clone(),
        variants: Vec::new(),
        repeat: line.number("repeat", (1, 10_000), 1, &mut found) as u32,
        seed: line.number("seed", (0, u64::MAX / 2), 1, &mut found),
        json: line.json,
        folder,
        warm_up: line.number("warm-up", (0, 10_000), 0, &mut found) as u32,
        until: line.until(&mut found),
        keep: line.keep(world, &mut found),
        warnings: Vec::new(),
        again: line.again(),
    };
    if line.job.is_empty() {
        let names: Vec<&str> = BUILTINS.iter().map(|builtin| builtin.name).collect();
        found.push(
            Problem::error("there is no job to run").help(format!("a fio job file, or one of {}", names.join(", "))),
        );
    }
    let (ons, disks, labels) = (line.all("on"), line.all("disk"), line.all("label"));
    if ons.is_empty() {
        let help = "--on live, --on sim:linux-6.18 (`iowhy models kernel` lists them) or --on kernel:debian-6.1";
        found.push(Problem::error("`--on` is missing").help(help));
        disks.iter().for_each(|disk| place::check_disk(disk, &mut found));
    }
    // Disks that are as many as the simulated places are theirs, and the others are where files are anyway.
    let nr_simulated = ons.iter().filter(|on| **on != LIVE).count();
    let simulated_only = disks.len() > 1 && disks.len() == nr_simulated && disks.len() != ons.len();
    for (name, list, fits) in [("disk", &disks, simulated_only), ("label", &labels, false)] {
        if list.len() > 1 && list.len() != ons.len() && !fits {
            let text = format!("`--{name}` is given {} times, `--on` {} times", list.len(), ons.len());
            found.push(Problem::error(text).help(format!("one `--{name}` for all, or one for each `--on`")));
        }
    }
    let live = line.live(&request.folder, &mut found);
    let limit = line.limit(&mut found);
    let replay = line.replay(&mut found);
    let timeout = line.timeout(&mut found);
    // Disks of live places: a simulated place with one of them is its twin.
    let live_disk = |(nr, on): (usize, &&str)| {
        let disk = if disks.len() > 1 { disks.get(nr) } else { disks.first() };
        disk.copied().filter(|disk| *on == LIVE && *disk != HERE && !simulated_only)
    };
    let on_live: Vec<&str> = ons.iter().enumerate().filter_map(live_disk).collect();
    let mut disks_left = disks.iter();
    let mut spots: Vec<(&str, Option<&str>, Option<Spot>)> = Vec::new();
    for (nr, on) in ons.iter().enumerate() {
        if *on == LIVE && simulated_only {
            spots.push((on, None, Some(Spot::Live(None))));
            continue;
        }
        let disk = if disks.len() > 1 { disks_left.next() } else { disks.first() }.copied();
        let disk = disk.filter(|disk| *disk != HERE);
        let name = format!("run-{}-{nr}", std::process::id());
        if *on == LIVE {
            let spot = match disk {
                None => Some(Spot::Live(None)),
                Some(disk) => {
                    modelled_disk::parse_disk(&name, disk, &mut found).map(|wanted| Spot::Live(Some(Box::new(wanted))))
                }
            };
            spots.push((on, disk, spot));
            continue;
        }
        if on.starts_with(guest::PREFIX) {
            let place = guest::parse(on, disk.map(|disk| (name.as_str(), disk)), &mut found);
            spots.push((on, disk, place.map(|wanted| Spot::Guest(Box::new(wanted)))));
            continue;
        }
        let beside = |disk: &str| on_live.contains(&disk);
        let twin = disk.map(|disk| modelled_disk::twin(on, disk, beside(disk)));
        let (place, of_model) = twin.as_ref().map_or((*on, None), |(on, disk, _)| (on.as_str(), Some(disk.as_str())));
        let stack = place::parse(place, of_model, &mut found);
        let in_full = (place.to_owned(), of_model.map(str::to_owned));
        match twin {
            // A mistake in the disk is told once, by whoever shows best where it is.
            Some((.., problems)) if stack.is_some() && problems.any_error() => found.list.extend(problems.list),
            _ => spots.push((on, disk, stack.map(|stack| Spot::Simulated(Box::new(stack), in_full)))),
        }
    }
    let derived = labels.len() != ons.len();
    // Without a place the job is still checked, on any, so that its mistakes are told too.
    let elsewhere = [("", None, Some(Spot::Simulated(Box::new(any_stack()), (String::new(), None))))];
    let tried = if spots.iter().any(|(.., spot)| spot.is_some()) { &spots[..] } else { &elsewhere[..] };
    for (nr, (on, disk, spot)) in tried.iter().enumerate() {
        let Some(spot) = spot else { continue };
        if line.job.is_empty() {
            break;
        }
        let built = match spot {
            Spot::Simulated(stack, _) => {
                simulated(&line.job, builtin, world, stack, (&limit, replay), &mut found).map(|(plan, shape)| {
                    let plan = shape.seeded(&plan, request.seed);
                    (Task::Simulated(Box::new(plan)), shape)
                })
            }
            Spot::Live(None) => on_this_kernel(&line.job, builtin, world, &live, (&limit, replay), &mut found),
            Spot::Live(Some(wanted)) => {
                let live = LiveOptions { folder: wanted.spec.mount_point(), ..live.clone() };
                on_this_kernel(&line.job, builtin, world, &live, (&limit, replay), &mut found)
            }
            Spot::Guest(wanted) => {
                let asked = guest::Asked {
                    words: &line.job,
                    builtin,
                    cache: live.cache,
                    limits: (&limit, replay),
                    options: guest::options(&line.given),
                    timeout,
                };
                guest::task(wanted, &asked, world, &mut found)
            }
        };
        let (Some((mut task, shape)), false) = (built, ons.is_empty()) else { continue };
        if ons.get(nr) != Some(on) {
            continue;
        }
        let name = if line.blind { format!("{}", nr + 1) } else { (*on).to_owned() };
        let label = match labels.get(nr).or(labels.first()) {
            Some(label) if !derived => (*label).to_owned(),
            Some(label) => format!("{label}/{name}"),
            None if line.blind => format!("blind/{name}"),
            None => name,
        };
        let modelled = match spot {
            Spot::Live(Some(wanted)) => Some(Box::new(put_on(wanted, &mut task))),
            _ => None,
        };
        let in_full = match spot {
            Spot::Simulated(_, in_full) => Some(in_full.clone()),
            Spot::Live(_) | Spot::Guest(_) => None,
        };
        let disk = disk.map(str::to_owned);
        request.variants.push(Variant { on: (*on).to_owned(), disk, label, task, shape, modelled, in_full });
    }
    if derived {
        distinguish(&mut request.variants);
    }
    for problem in found.list {
        // Every stack says the same about the job.
        if !problems.list.contains(&problem) {
            problems.push(problem);
        }
    }
    request.warnings = problems.list.iter().map(|problem| problem.message.clone()).collect();
    if problems.any_error() { None } else { Some(Request::Run(Box::new(request))) }
}

/// Makes labels that were derived from places differ, so that runs of different disks are not taken for one another:
/// with the disk, and with a number if that is the same, too.
fn distinguish(variants: &mut [Variant]) {
    let plain: Vec<String> = variants.iter().map(|variant| variant.label.clone()).collect();
    for (nr, variant) in variants.iter_mut().enumerate() {
        if plain.iter().filter(|label| **label == plain[nr]).count() > 1
            && let Some(disk) = &variant.disk
        {
            variant.label = format!("{}@{disk}", plain[nr]);
        }
    }
    let with_disk: Vec<String> = variants.iter().map(|variant| variant.label.clone()).collect();
    for (nr, variant) in variants.iter_mut().enumerate() {
        let before = with_disk[..nr].iter().filter(|label| **label == with_disk[nr]).count();
        if before > 0 {
            variant.label = format!("{}#{}", with_disk[nr], before + 1);
        }
    }
}

/// The word for the running kernel.
const LIVE: &str = "live";

/// The word for the disk that is there, where others are modelled.
const HERE: &str = "here";

/// A place as it is named.
enum Spot {
    /// With the words for it in full.
    Simulated(Box<Stack>, (String, Option<String>)),
    /// On a modelled disk, or where the files are anyway.
    Live(Option<Box<modelled_disk::Wanted>>),
    /// On a kernel that is booted.
    Guest(Box<guest::Wanted>),
}

/// The disk for a task whose files are in the folder where its file system would be mounted. A job that names nothing
/// but the disk itself gets it without a file system, unless one was asked for.
fn put_on(wanted: &modelled_disk::Wanted, task: &mut Task) -> Spec {
    let mut spec = wanted.spec.clone();
    let folder = spec.mount_point();
    let whole = folder.join(on_kernel::ANY_DEVICE.trim_start_matches("/dev/"));
    if let Task::Live(plan) = task
        && spec.filesystem.is_none()
        && !plan.files.is_empty()
        && plan.files.iter().all(|file| file.path == whole)
    {
        for file in &mut plan.files {
            *file = iowhy_live::plan::File { path: spec.link(), may_create: false, remove: false, ..file.clone() };
        }
        return spec;
    }
    if !wanted.says_filesystem {
        spec.filesystem = Some("ext4".to_owned());
    }
    spec
}

/// What a live run is told on the command line.
#[derive(Clone)]
struct LiveOptions {
    folder: PathBuf,
    cache: Option<Cache>,
    allow: Vec<PathBuf>,
}

/// A stack to check jobs with that are not simulated.
fn any_stack() -> Stack {
    Stack::new(&iowhy_stack::kernel::KERNELS[iowhy_stack::kernel::KERNELS.len() - 1])
}

/// The plan of a job on a simulated stack.
fn simulated(
    words: &[String],
    builtin: Option<&&'static Builtin>,
    world: &World<'_>,
    stack: &Stack,
    (limit, replay): (&Limit, replay::Mode),
    problems: &mut Problems,
) -> Option<(Plan, Shape)> {
    let mut stack = stack.clone();
    let (mut job, shape) = match builtin {
        Some(builtin) => {
            let values = options::parse(builtin.name, builtin.options, &words[1..], problems);
            if problems.any_error() { None } else { (builtin.build)(&values, &mut stack, problems) }
        }
        None if replay::is_trace(words) => {
            replay::build(&words[0], replay, replay::Ground::Simulated(device_bytes(&stack)), problems)
        }
        None => {
            let world = world_of(&stack, world);
            fio_file(words, &world, problems).and_then(|file| fio::build(&file, &world, &mut stack, problems))
        }
    }?;
    let _ = limit.apply(&mut job);
    checked(&job, problems).then_some((Plan { stack, job }, shape))
}

/// What is run of a job on the running kernel.
fn on_this_kernel(
    words: &[String],
    builtin: Option<&&'static Builtin>,
    world: &World<'_>,
    live: &LiveOptions,
    (limit, replay): (&Limit, replay::Mode),
    problems: &mut Problems,
) -> Option<(Task, Shape)> {
    let (mut plan, shape) = match builtin {
        Some(builtin) => {
            let mut words = words[1..].to_vec();
            // Real calls are as small as they are.
            let folds = builtin.options.iter().any(|option| option.name == "fold");
            if folds && !words.iter().any(|word| word.starts_with("fold=")) {
                words.push("fold=0".to_owned());
            }
            let values = options::parse(builtin.name, builtin.options, &words, problems);
            if problems.any_error() {
                return None;
            }
            if let Some(program) = builtin.program {
                return program(&values, &live.folder, problems)
                    .map(|program| (Task::Program(program), Shape::default()));
            }
            let (job, shape) = (builtin.build)(&values, &mut any_stack(), problems)?;
            (on_kernel::live_plan(&job, &shape.files, &live.folder, problems)?, shape)
        }
        None if replay::is_trace(words) => {
            let (job, shape) = replay::build(&words[0], replay, replay::Ground::Live, problems)?;
            (on_kernel::live_plan(&job, &shape.files, &live.folder, problems)?, shape)
        }
        None => {
            let file = fio_file(words, world, problems)?;
            let file = on_kernel::moved(file, &live.folder, problems)?;
            let jobs = fio_jobs::live::jobs(file, Some(0), world, problems)?;
            let fixed = |origin: &fio_jobs::live::ThreadOf, thread: &ThreadJob| {
                jobs.file.jobs[origin.job].rand_repeat.then_some(thread.stream.seed)
            };
            let mut shape = Shape::of(&jobs.lines);
            if let Workload::Threads { threads, .. } = &jobs.plan.job.workload {
                shape.fixed_seeds =
                    jobs.threads.iter().zip(threads).map(|(origin, thread)| fixed(origin, thread)).collect();
            }
            let mut plan = jobs.plan;
            plan.allow.directory = Some(live.folder.clone());
            // What the run makes goes with it, whatever the directory is.
            plan.files.iter_mut().filter(|file| file.may_create).for_each(|file| file.remove = true);
            // Threads drop pages as they start; so that nothing is left that was written just before, all is written
            // back and dropped first.
            let dropped = plan.job.workload.threads().iter().any(|thread| thread.invalidate);
            if plan.cache == Cache::AsFound && dropped {
                plan.cache = Cache::Cold;
            }
            (plan, shape)
        }
    };
    let kept = limit.apply(&mut plan.job);
    let mut used = kept.iter();
    plan.files.retain(|_| used.next() == Some(&true));
    if let Some(cache) = live.cache {
        plan.cache = cache;
    }
    plan.allow.write.extend(live.allow.iter().cloned());
    checked(&plan.job, problems).then_some((Task::Live(Box::new(plan)), shape))
}

fn checked(job: &Job, problems: &mut Problems) -> bool {
    match job.check() {
        Ok(()) => true,
        Err(text) => {
            problems.push(Problem::error(text));
            false
        }
    }
}

/// The plan of a command line with one `--on`, for rows of incidents; files cannot be named.
pub fn plan(words: &[String], problems: &mut Problems) -> Option<(Plan, Shape)> {
    let before = problems.list.len();
    let request = resolve(words, &World::empty(), problems);
    let run = match request {
        Some(Request::Run(run)) => run,
        Some(Request::Help(_)) => {
            problems.push(Problem::error("`--help` describes no run"));
            return None;
        }
        None => return None,
    };
    if run.repeat > 1 || run.variants.len() > 1 {
        problems.push(Problem::error("one run is meant here: one `--on`, no `--repeat`"));
        return None;
    }
    problems.list[before..].iter().all(|problem| problem.severity == Severity::Warning).then_some(())?;
    let variant = run.variants.into_iter().next()?;
    match variant.task {
        Task::Simulated(plan) => Some((*plan, variant.shape)),
        Task::Live(_) | Task::Program(_) | Task::Guest(_) => {
            problems.push(Problem::error("a simulated run is meant here").help("--on sim:linux-6.18"));
            None
        }
    }
}

/// Options and job of a command line.
#[derive(Default)]
struct Line {
    job: Vec<String>,
    given: Vec<(&'static str, String, Span)>,
    json: bool,
    help: bool,
    trace: Option<Level>,
    blind: bool,
}

impl Line {
    fn all(&self, name: &str) -> Vec<&str> {
        self.given.iter().filter(|(known, ..)| *known == name).map(|(_, value, _)| value.as_str()).collect()
    }

    fn number(&self, name: &str, (min, max): (u64, u64), default: u64, problems: &mut Problems) -> u64 {
        let mut given = self.given.iter().filter(|(known, ..)| *known == name);
        let Some((_, value, span)) = given.next() else { return default };
        if let Some((_, other, span)) = given.find(|(_, other, _)| other != value) {
            let text = format!("`--{name}` is {value} and {other}");
            problems.push(Problem::error(text).at(span.clone()).help("keep one of them"));
        }
        match value.parse() {
            Ok(number) if (min..=max).contains(&number) => number,
            _ => {
                let text = format!("`--{name}` takes a whole number of at least {min}, not `{value}`");
                problems.push(Problem::error(text).at(span.clone()));
                default
            }
        }
    }
}

impl Line {
    /// The job and what else shapes a live run, with whole paths; each run says of its own what disk it was made on.
    fn again(&self) -> Vec<String> {
        let mut words = self.job.clone();
        for (name, value, _) in &self.given {
            let whole = || std::path::absolute(value).map_or_else(|_| value.clone(), |path| path.display().to_string());
            let value = match *name {
                "dir" | "allow-write" => whole(),
                "cache" | "size-limit" | "time-limit" | "replay" => value.clone(),
                _ => continue,
            };
            words.push(format!("--{name}={value}"));
        }
        words
    }

    /// The options of live runs.
    fn live(&self, folder: &Folder, problems: &mut Problems) -> LiveOptions {
        let cache = self.given.iter().find(|(known, ..)| *known == "cache").and_then(|(_, value, span)| {
            let known = [Cache::AsFound, Cache::Cold, Cache::Warm];
            let found = known.into_iter().find(|cache| on_kernel::cache_name(*cache) == value);
            if found.is_none() {
                let text = format!("`--cache` takes cold, warm or as-found, not `{value}`");
                problems.push(Problem::error(text).at(span.clone()));
            }
            found
        });
        if !self.all("on").contains(&LIVE) {
            let in_guest = self.all("on").iter().any(|on| on.starts_with(guest::PREFIX));
            let unused = ["dir", "cache", "allow-write"].iter().filter(|name| !(in_guest && **name == "cache"));
            for name in unused.filter(|name| !self.all(name).is_empty()) {
                let text = format!("`--{name}` is for live runs, and there is none");
                problems.push(Problem::warning(text).help("--on live"));
            }
        }
        let allow = self.all("allow-write").into_iter().map(PathBuf::from).collect();
        LiveOptions { folder: folder.path.clone(), cache, allow }
    }

    /// The time for a guest.
    fn timeout(&self, problems: &mut Problems) -> Option<Duration> {
        let seconds = self.number("timeout", (1, 1_000_000), 0, problems);
        if seconds > 0 && !self.all("on").iter().any(|on| on.starts_with(guest::PREFIX)) {
            let text = "`--timeout` is for kernels that are booted, and there is none";
            problems.push(Problem::warning(text).help("--on kernel:debian-6.1"));
        }
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    /// The stopping rule.
    fn until(&self, problems: &mut Problems) -> Option<Until> {
        let given = |name: &str| self.given.iter().find(|(known, ..)| *known == name);
        let budget = given("budget").map(|_| self.number("budget", (2, 10_000), 2, problems) as u32);
        let Some((_, value, span)) = given("until") else {
            if budget.is_some() {
                problems.push(Problem::error("`--budget` is for `--until`, which is missing").help("--repeat N"));
            }
            return None;
        };
        let pct = value.trim_end_matches('%').parse().ok().filter(|pct: &f64| *pct > 0.0 && *pct <= 1000.0);
        if pct.is_none() {
            let text = format!("`--until` takes percent above 0, such as 2, not `{value}`");
            problems.push(Problem::error(text).at(span.clone()));
        }
        if budget.is_none() {
            let help = "--budget 40: it ends there even if the interval is still wide";
            problems.push(Problem::error("`--until` needs `--budget`").at(span.clone()).help(help));
        }
        Some(Until { pct: pct?, budget: budget? })
    }

    /// Where runs are kept: if a store is named, or if what is asked for makes sense of kept runs only.
    fn keep(&self, world: &World<'_>, problems: &mut Problems) -> Option<Keep> {
        let named = self.all("store").first().map(PathBuf::from);
        let variable = (world.variable)(store::VARIABLE).is_some_and(|value| !value.is_empty());
        let asked = named.is_some() || variable || self.trace.is_some() || self.blind;
        if !asked && self.all("label").is_empty() {
            return None;
        }
        let Some(directory) = store::directory(named.as_deref(), world.variable) else {
            let text = StoreError::NoPlace.to_string();
            problems.push(if asked { Problem::error(text) } else { Problem::warning(text) });
            return None;
        };
        Some(Keep { directory, asked, trace: self.trace, blind: self.blind })
    }

    /// How times of a trace are kept.
    fn replay(&self, problems: &mut Problems) -> replay::Mode {
        let Some((_, value, span)) = self.given.iter().find(|(known, ..)| *known == "replay") else {
            return replay::Mode::default();
        };
        if !replay::is_trace(&self.job) {
            problems.push(Problem::warning("`--replay` is for traces, and this job is none").at(span.clone()));
        }
        replay::Mode::parse(value).unwrap_or_else(|| {
            let text = format!("`--replay` takes closed or open, not `{value}`");
            problems.push(Problem::error(text).at(span.clone()));
            replay::Mode::default()
        })
    }

    /// The limits of jobs.
    fn limit(&self, problems: &mut Problems) -> Limit {
        let bytes = self.given.iter().find(|(known, ..)| *known == "size-limit").and_then(|(_, value, span)| {
            let bytes = iowhy_fio::value::integer(value, 1024, (4096, 1 << 60)).map(i64::unsigned_abs);
            if bytes.is_err() {
                let text = format!("`--size-limit` takes a size of at least 4k, such as 4m, not `{value}`");
                problems.push(Problem::error(text).at(span.clone()));
            }
            bytes.ok()
        });
        let seconds = self.number("time-limit", (1, 1_000_000), 0, problems);
        Limit { bytes, time: (seconds > 0).then(|| Duration::from_secs(seconds)) }
    }
}

fn take_apart(words: &[String], problems: &mut Problems) -> Line {
    let mut line = Line::default();
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        let Some(body) = word.strip_prefix("--").filter(|body| !body.is_empty()) else {
            if word.starts_with('-') && word.len() > 1 && word != "--" && word != "-h" {
                problems.push(Problem::error(format!("unknown option `{word}`")).at(Span::whole(word)));
            } else if word == "-h" {
                line.help = true;
            } else if word != "--" {
                line.job.push(word.clone());
            }
            continue;
        };
        let (name, inline) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        let is_fio = line.job.first().is_some_and(|job| job == FIO);
        if is_fio && OPTIONS.iter().all(|(known, ..)| *known != name) {
            line.job.push(word.clone());
            continue;
        }
        let Some((name, takes_value, _)) = OPTIONS.iter().find(|(known, ..)| *known == name) else {
            let names = OPTIONS.iter().map(|(name, ..)| format!("--{name}"));
            problems.push(
                Problem::error(format!("unknown option `--{name}`"))
                    .at(Span::bytes(word, 0, name.len() + 2))
                    .near(&format!("--{name}"), names)
                    .help("`iowhy run --help` lists the options"),
            );
            continue;
        };
        if !takes_value {
            if *name == "trace" {
                let named = inline.as_deref().unwrap_or(Level::default().name());
                line.trace = Level::ALL.into_iter().find(|level| level.name() == named);
                if line.trace.is_none() {
                    let text = format!("`--trace` takes light, layers or full, not `{named}`");
                    problems.push(Problem::error(text).at(Span::whole(word)));
                }
                continue;
            }
            if let Some(value) = inline {
                let text = format!("`--{name}` takes no value, and has `{value}`");
                problems.push(Problem::error(text).at(Span::whole(word)));
            }
            line.json |= *name == "json";
            line.help |= *name == "help";
            line.blind |= *name == "blind";
            continue;
        }
        let separate = inline.is_none();
        let value = inline.or_else(|| rest.next_if(|next| !next.starts_with("--")).cloned());
        match value.filter(|value| !value.is_empty()) {
            Some(value) => {
                let shown = if separate { value.clone() } else { word.clone() };
                line.given.push((name, value, Span::whole(&shown)));
            }
            None => problems.push(Problem::error(format!("`--{name}` needs a value")).at(Span::whole(word))),
        }
    }
    line
}

/// The jobs of fio job files, or of words of fio's command line.
fn fio_file(words: &[String], world: &World<'_>, problems: &mut Problems) -> Option<fio_jobs::FioFile> {
    match words.split_first() {
        Some((first, rest)) if first == FIO => of_words(rest, world, problems),
        _ => of_files(words, world, problems),
    }
}

/// The jobs of fio job files.
fn of_files(names: &[String], world: &World<'_>, problems: &mut Problems) -> Option<fio_jobs::FioFile> {
    let mut found = Problems::default();
    for name in names {
        let known = BUILTINS.iter().map(|builtin| builtin.name);
        if BUILTINS.iter().any(|builtin| builtin.name == name) {
            let text = format!("`{name}` is a built-in job, and comes first");
            found.push(Problem::error(text).at(Span::whole(name)).help(format!("iowhy run {name} key=value ..")));
        } else if name.ends_with(".toml") {
            let text = format!("`{name}` is a TOML job, which this release does not take yet");
            found.push(Problem::error(text).at(Span::whole(name)).help("a fio job file (.fio)"));
        } else if let Err(error) = (world.load)(name)
            && name != "-"
        {
            let text = format!("`{name}` is no built-in job, and no file that can be read: {error}");
            found.push(
                Problem::error(text)
                    .at(Span::whole(name))
                    .near(name, known)
                    .help("`iowhy run --help` lists the built-in jobs"),
            );
        }
    }
    let file = if found.any_error() { None } else { fio_jobs::parse_files(names, world, &mut found) };
    problems.list.append(&mut found.list);
    file
}

/// The jobs of words of fio's command line.
fn of_words(words: &[String], world: &World<'_>, problems: &mut Problems) -> Option<fio_jobs::FioFile> {
    let invocation = fio_jobs::command_line(words, world, problems)?;
    if invocation.settings.action != fio_jobs::Action::Run {
        problems.push(Problem::error("these words of fio describe no run").help("--name=.. --rw=.. --size=.."));
        return None;
    }
    Some(invocation.file)
}

/// The world as it is on the simulated machine.
fn world_of<'a>(stack: &Stack, world: &World<'a>) -> World<'a> {
    let machine = machine(stack);
    World {
        page_bytes: PAGE_BYTES,
        memory_mib: (machine.total_pages * PAGE_BYTES) >> 20,
        cpus: u64::from(machine.nr_cpus),
        ..*world
    }
}

/// The machine of a stack.
fn machine(stack: &Stack) -> Machine {
    (stack.machine.entry.build)(&stack.machine.options)
}

/// Bytes of the device of a stack.
fn device_bytes(stack: &Stack) -> u64 {
    (stack.device.entry.build)(&stack.device.options, Rng::stream(0, "size")).nr_sectors() * SECTOR_BYTES
}

/// A run that was made.
#[derive(Debug)]
pub struct Finished {
    /// Its place among the others, and its seed.
    pub slot: Slot,
    /// When it began, ns since 1970.
    pub started_ns: u64,
    /// When it ended.
    pub finished_ns: u64,
    /// What came of it.
    pub made: Made,
    /// Its id in the store, if it was recorded.
    pub id: Option<RunId>,
}

/// What came of a run.
#[derive(Debug)]
pub enum Made {
    /// In the simulator.
    Simulated(Box<(Plan, Outcome)>),
    /// On the running kernel.
    Live(Box<Live>),
    /// By another program.
    Program(Ran),
    /// On a kernel that was booted for it.
    Guest(Box<guest::InGuest>),
}

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// In the simulator.
    #[error("{0}")]
    Simulated(RunError),
    /// On the running kernel.
    #[error(transparent)]
    Live(#[from] iowhy_live::run::LiveError),
    /// By another program.
    #[error(transparent)]
    Program(#[from] program::ProgramError),
    /// It was to be traced, and could not be.
    #[error(transparent)]
    Trace(#[from] crate::recording::RecordError),
    /// In a guest.
    #[error(transparent)]
    Guest(#[from] iowhy_live::guest::GuestError),
    /// The ledger of what is made is not to be had.
    #[error(transparent)]
    Ledger(#[from] iowhy_live::ledger::LedgerError),
    /// The modelled disk could not be made.
    #[error(transparent)]
    Disk(#[from] iowhy_live::disk::DiskError),
    /// There is no directory for the files.
    #[error("cannot make the directory `{}`: {source}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// What was done of a request.
#[derive(Debug, Default)]
pub struct Executed {
    /// Runs that were made.
    pub runs: Vec<Finished>,
    /// Places at which a run could not be made, and why; each is told once.
    pub refused: Vec<(String, Refusal)>,
    /// A signal ended it early.
    pub interrupted: bool,
    /// Why a run could not be recorded. It was made all the same, and is the last.
    pub unrecorded: Option<StoreError>,
}

/// The directory of live runs while it is needed. A temporary one is in the ledger, so that it goes whatever happens.
struct Held {
    temporary: Option<(PathBuf, iowhy_live::ledger::Guard)>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some((path, guard)) = self.temporary.take() else { return };
        // The ledger removes empty directories only; what programs left in ours is not worth more than the run.
        for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
            let path = entry.path();
            let folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let _ = if folder { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        }
        // If it cannot be removed now, the next start tries again and `iowhy doctor` tells.
        drop(guard);
    }
}

/// Makes the directory of live runs, if there are any.
fn hold(request: &RunRequest) -> Result<Held, Refusal> {
    let live = |variant: &Variant| variant.task.is_live() && variant.modelled.is_none();
    let Folder { path, temporary } = &request.folder;
    if !request.variants.iter().any(live) {
        return Ok(Held { temporary: None });
    }
    if *temporary {
        let (ledger, _) = iowhy_live::ledger::Ledger::open()?;
        let guard = ledger.create_scratch_directory(path)?;
        return Ok(Held { temporary: Some((path.clone(), guard)) });
    }
    std::fs::create_dir_all(path).map_err(|source| Refusal::Folder { path: path.clone(), source })?;
    Ok(Held { temporary: None })
}

/// Makes the runs, and keeps none. See [`execute_into`].
pub fn execute(request: &RunRequest, progress: &dyn Fn(usize, usize)) -> Executed {
    execute_into(request, None, progress)
}

/// Makes the runs. A place that refuses is left out from then on; the others go on. Each is recorded in the store, if
/// there is one, before the next is made; if one cannot be recorded, no more are made. `progress` is told how many runs
/// are done, and of how many (at most); so is whoever looks at the store.
pub fn execute_into(request: &RunRequest, store: Option<&Store>, progress: &dyn Fn(usize, usize)) -> Executed {
    let mut executed = Executed::default();
    let _held = match hold(request) {
        Ok(held) => held,
        Err(refusal) => {
            executed.refused.push((LIVE.to_owned(), refusal));
            return executed;
        }
    };
    // A signal between two live runs, or in a simulated one beside them, ends the rest as well.
    let live = |variant: &Variant| !matches!(variant.task, Task::Simulated(_));
    let signals = request.variants.iter().any(live).then(iowhy_live::signal::Guard::take);
    let session = session(request);
    let mut host: Option<guest::Host> = None;
    let mut order = design::Order::new(request);
    let most = (request.blocks() as usize) * request.variants.len();
    let mut flight = store.map(|store| store.announce(&announced(request), most as u64));
    let mut out: Vec<usize> = Vec::new();
    let mut done = 0;
    'blocks: for block in 0..request.blocks() {
        if enough(request, &executed, block) {
            break;
        }
        for slot in order.block() {
            progress(done, most);
            done += 1;
            if out.contains(&slot.variant) {
                continue;
            }
            let variant = &request.variants[slot.variant];
            if let Some(flight) = &mut flight {
                flight.begins(&variant.label, done as u64 - 1);
            }
            let started_ns = store::nanoseconds(SystemTime::now());
            let trace = request.keep.as_ref().and_then(|keep| keep.trace);
            match variant.make(slot.seed, store, trace, &mut host) {
                Ok((made, files)) => {
                    executed.interrupted |= match &made {
                        Made::Simulated(_) => false,
                        Made::Live(live) => live.outcome.interrupted,
                        Made::Program(ran) => ran.interrupted,
                        // A guest that was interrupted has brought nothing.
                        Made::Guest(_) => false,
                    };
                    let finished_ns = store::nanoseconds(SystemTime::now());
                    let mut run = Finished { slot, started_ns, finished_ns, made, id: None };
                    if let Some(store) = store {
                        let recorded =
                            files.and_then(|files| store.record(&record::row(request, &run, &session, files)));
                        match recorded {
                            Ok(id) => run.id = Some(id),
                            Err(error) => executed.unrecorded = Some(error),
                        }
                    }
                    executed.runs.push(run);
                }
                Err(refusal) => {
                    executed.interrupted |= matches!(
                        refusal,
                        Refusal::Live(iowhy_live::run::LiveError::Interrupted)
                            | Refusal::Guest(iowhy_live::guest::GuestError::Interrupted)
                    );
                    executed.refused.push((variant.label.clone(), refusal));
                    out.push(slot.variant);
                }
            }
            executed.interrupted |= signals.is_some() && iowhy_live::signal::raised();
            if executed.interrupted || executed.unrecorded.is_some() {
                break 'blocks;
            }
        }
    }
    progress(most, most);
    executed
}

/// What others are told is being made.
fn announced(request: &RunRequest) -> String {
    let runs = if request.until.is_some() { "runs at most" } else { "runs" };
    // A blind run keeps no word of its job.
    let blind = request.keep.as_ref().is_some_and(|keep| keep.blind);
    if blind { runs.to_owned() } else { format!("{runs} of {}", request.job.join(" ")) }
}

/// Whether the stopping rule says that the blocks before this one are enough. It is asked between blocks only, so that
/// all places have as many runs.
fn enough(request: &RunRequest, executed: &Executed, block: u64) -> bool {
    let Some(until) = request.until else { return false };
    block >= u64::from(request.warm_up) + u64::from(request.repeat)
        && design::precision(request, &executed.runs, until.pct).is_some_and(|precision| precision.reached())
}

/// An id for all runs of one command: of no other command, on this machine or another.
fn session(request: &RunRequest) -> String {
    let now = store::nanoseconds(SystemTime::now());
    let text = format!("{:?} {} {now} {}", request.job, request.seed, std::process::id());
    blake3::hash(text.as_bytes()).to_hex().as_str()[..16].to_owned()
}

/// A run, and what is kept of it besides its row. That this could not be written is no reason to lose the run.
type MadeAndKept = (Made, Result<Vec<DataFile>, StoreError>);

impl Variant {
    /// Makes a run, and writes its samples (and its events) to a store.
    fn make(
        &self,
        seed: u64,
        store: Option<&Store>,
        trace: Option<Level>,
        host: &mut Option<guest::Host>,
    ) -> Result<MadeAndKept, Refusal> {
        Ok(match &self.task {
            Task::Simulated(plan) => {
                let plan = self.shape.seeded(plan, seed);
                let (outcome, files) = simulate(&plan, store, trace.is_some())?;
                (Made::Simulated(Box::new((plan, outcome))), files)
            }
            Task::Live(plan) => {
                let mut plan = (**plan).clone();
                self.shape.seed(&mut plan.job, seed);
                let paths: Vec<PathBuf> = plan.files.iter().map(|file| file.path.clone()).collect();
                let spec = self.modelled.as_deref();
                let Some(level) = trace else {
                    let live = on_disk(spec, seed, &paths, |progress| -> Result<Live, Refusal> {
                        Ok(Live::make(plan, progress)?)
                    })?;
                    let samples = |store| store::live_samples(&live, store).map(|file| vec![file]);
                    let files = store.map_or(Ok(Vec::new()), samples);
                    return Ok((Made::Live(Box::new(live)), files));
                };
                let mut captured = None;
                let mut live = on_disk(spec, seed, &paths, |progress| -> Result<Live, Refusal> {
                    let (live, events) = during(level, &paths, || Live::make(plan, progress))?;
                    captured = Some(events);
                    Ok(live?)
                })?;
                let Some(mut captured) = captured else { unreachable!("a run that was made was captured") };
                let mut traced = Traced::of(&captured);
                let who = traced::prepare(&mut captured.trace, &live);
                let joined = join(&captured.trace, &who);
                let foreign = joined.putters.iter().filter(|putter| !putter.own && putter.pid != std::process::id());
                traced.foreign = foreign.map(|putter| (putter.name.clone(), putter.nr_pages)).collect();
                traced.requests = crate::on_kernel::requests::Requests::of(&joined.events);
                live.traced = Some(Box::new(traced));
                let keep = |store| -> Result<Vec<DataFile>, StoreError> {
                    let mut writer = EventWriter::new(store)?;
                    joined.events.iter().for_each(|event| writer.event(event));
                    Ok(vec![writer.finish_events()?, store::live_samples(&live, store)?])
                };
                // Without a store there is nowhere to keep events.
                let files = store.map_or(Ok(Vec::new()), keep);
                (Made::Live(Box::new(live)), files)
            }
            Task::Program(program) => {
                let modelled = hold_disk(self.modelled.as_deref(), seed)?;
                let ran = program.run()?;
                end(modelled)?;
                (Made::Program(ran), Ok(Vec::new()))
            }
            Task::Guest(task) => {
                if host.is_none() {
                    *host = Some(guest::Host::new()?);
                }
                let Some(host) = host else { unreachable!("it was made just now") };
                let (made, files) = host.make(task, seed, store, trace)?;
                (Made::Guest(Box::new(made)), files)
            }
        })
    }
}

/// Makes the disk for a run.
fn hold_disk(spec: Option<&Spec>, seed: u64) -> Result<Option<HeldDisk>, DiskError> {
    let Some(spec) = spec else { return Ok(None) };
    iowhy_live::disk::hold(Spec { seed, ..spec.clone() }).map(Some)
}

/// Makes a live run on a disk of its own, if it has one, whose files are at `paths`.
pub(crate) fn on_disk<E: From<DiskError>>(
    spec: Option<&Spec>,
    seed: u64,
    paths: &[PathBuf],
    make: impl FnOnce(&dyn Fn(Progress)) -> Result<Live, E>,
) -> Result<Live, E> {
    let disk = hold_disk(spec, seed)?;
    let laid_out = Cell::new(false);
    // Files are laid out without waiting for the model.
    let progress = |progress: Progress| {
        if disk.is_none() && !iowhy_live::guest::is_inside() {
            return;
        }
        let hurry = |on: bool| {
            iowhy_live::guest::tell_laying_out(on);
            // A disk that does not answer any more is seen by the job itself.
            let _ = disk.as_ref().map(|disk| disk.hurry(on));
        };
        match progress {
            Progress::SetUp { .. } if !laid_out.get() => {
                laid_out.set(true);
                hurry(true);
            }
            Progress::Ready if laid_out.get() => {
                // What is still to be written of them is not the job's.
                paths.iter().filter_map(|path| std::fs::File::open(path).ok()).for_each(|file| {
                    let _ = file.sync_all();
                });
                hurry(false);
            }
            _ => {}
        }
    };
    let mut live = make(&progress)?;
    live.modelled = end(disk)?;
    Ok(live)
}

/// Takes the disk of a run away; how it was at the end.
fn end(modelled: Option<HeldDisk>) -> Result<Option<Box<State>>, DiskError> {
    let Some(held) = modelled else { return Ok(None) };
    let state = held.stat()?;
    held.remove()?;
    Ok(Some(Box::new(state)))
}

/// A simulated run, and what is kept of it.
fn simulate(
    plan: &Plan,
    store: Option<&Store>,
    trace: bool,
) -> Result<(Outcome, Result<Vec<DataFile>, StoreError>), Refusal> {
    let Some(store) = store else {
        return Ok((sim::run(plan).map_err(Refusal::Simulated)?, Ok(Vec::new())));
    };
    if trace {
        let mut writer = match EventWriter::new(store) {
            Ok(writer) => writer,
            Err(error) => return Ok((sim::run(plan).map_err(Refusal::Simulated)?, Err(error))),
        };
        let outcome = sim::run_with(plan, &mut writer).map_err(Refusal::Simulated)?;
        return Ok((outcome, writer.finish(store).map(Vec::from)));
    }
    let mut sampler = Sampler::default();
    let outcome = sim::run_with(plan, &mut sampler).map_err(Refusal::Simulated)?;
    Ok((outcome, sampler.finish(store).map(|file| vec![file])))
}

/// The help of the verb.
fn help() -> String {
    let mut out = String::from(
        "iowhy run JOB.. --on WHERE [--on WHERE2 ..] [OPTIONS]\n\nRuns a job on the running kernel (--on live), in the \
         simulator\n(--on sim:KERNEL), or on a kernel that QEMU boots (--on kernel:KERNEL). JOB is\none or more fio \
         job files (- is standard input), `fio` with words of fio's\ncommand line, a trace that was recorded, or a \
         built-in job with key=value words:\n\n",
    );
    for builtin in BUILTINS {
        out.push_str(&text::item(builtin.name, builtin.summary, 14));
    }
    out.push_str("\n`iowhy run NAME --help` lists the options of a built-in job.\n\n");
    for (name, takes_value, help) in OPTIONS {
        let value = if *takes_value { "=VALUE" } else { "" };
        out.push_str(&text::item(&format!("--{name}{value}"), help, 18));
    }
    out.push_str(&guest::help());
    out.push_str(
        "\nExamples:\n  iowhy run jobs/randread-qd32.fio --on live --on sim:linux-6.18 --disk ide-2004\n  \
         iowhy run paralleldd size=64m readers=3 --on live --cache cold --repeat 5\n  \
         iowhy run dd of=/dev/sda bs=4k oflag=direct count=4096 writers=2 \\\n    \
         --on sim:linux-2.6.18-164.el5 --on sim:linux-2.6.18-186.el5 --repeat 5\n",
    );
    out
}

/// The help of a built-in job.
fn help_of(builtin: &Builtin) -> String {
    let mut out = format!("iowhy run {} [KEY=VALUE ..] --on WHERE [OPTIONS]\n\n", builtin.name);
    for line in text::wrap(&format!("{}. {}", capital(builtin.summary), builtin.notes), 78) {
        out.push_str(&line);
        out.push('\n');
    }
    out.push('\n');
    out.push_str(&options::help(builtin.options));
    out
}

fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

#[cfg(test)]
mod tests;
