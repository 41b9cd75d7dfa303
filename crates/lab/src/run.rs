//! `iowhy run`: jobs of fio and built-in jobs on simulated stacks.
//!
//! The words behind `run` become a [`RunRequest`] with every mistake reported at once: which job, on which stacks, how
//! often. Each stack has a [`Variant`] with the plan made for it. [`execute`] makes the runs, those of several variants
//! in blocks of random order; [`report`] shows them.

mod aio_stress;
mod bonnie;
mod dd;
mod fio;
pub mod options;
mod paralleldd;
mod pgbench;
pub mod report;

use iowhy_stack::job::{Job, Workload};
use iowhy_stack::kernel::Stack;
use iowhy_stack::machine::Machine;
use iowhy_stack::outcome::{JobTotals, Outcome, Plan, RunError};
use iowhy_stack::rng::Rng;
use iowhy_stack::sim;
use iowhy_stack::units::{PAGE_BYTES, SECTOR_BYTES};

use crate::diagnose::{Problem, Problems, Severity, Span};
use crate::fio::World;
use crate::{fio as fio_jobs, place, text};
use options::{Opt, Values};

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

    /// The plan with another seed.
    pub fn seeded(&self, plan: &Plan, seed: u64) -> Plan {
        let mut plan = plan.clone();
        plan.job.seed = seed;
        if let Workload::Threads { threads, .. } = &mut plan.job.workload {
            for (thread, fixed) in threads.iter_mut().zip(&self.fixed_seeds) {
                if let Some(fixed) = fixed {
                    // The generator mixes the seed of the run in like this; here it must cancel out.
                    thread.stream.seed = fixed ^ seed.rotate_left(32);
                }
            }
        }
        plan
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
    pub plan: Plan,
    /// What the report needs to know.
    pub shape: Shape,
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
    ("on", true, "sim:KERNEL[+PATCH..][,key=value..]; several times to compare"),
    ("disk", true, "NAME[,key=value..]: the device; once, or once for each --on"),
    ("repeat", true, "runs on each, with seeds S, S+1, .. [1]"),
    ("seed", true, "seed of the first run [1]"),
    ("label", true, "name of the runs; once, or once for each --on"),
    ("json", false, "one JSON object (iowhy.run/1)"),
    ("help", false, "this text; with a built-in job, its options"),
];

/// Options that later releases will have.
const LATER: &[(&str, &str)] =
    &[("store", "keeping runs"), ("trace", "keeping traces of runs"), ("blind", "runs stored without their names")];

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
    let mut request = RunRequest {
        job: line.job.clone(),
        variants: Vec::new(),
        repeat: line.number("repeat", (1, 10_000), 1, &mut found) as u32,
        seed: line.number("seed", (0, u64::MAX / 2), 1, &mut found),
        json: line.json,
    };
    if line.job.is_empty() {
        let names: Vec<&str> = BUILTINS.iter().map(|builtin| builtin.name).collect();
        found.push(
            Problem::error("there is no job to run").help(format!("a fio job file, or one of {}", names.join(", "))),
        );
    }
    let (ons, disks, labels) = (line.all("on"), line.all("disk"), line.all("label"));
    if ons.is_empty() {
        found.push(Problem::error("`--on` is missing").help("--on sim:linux-6.18 (`iowhy models kernel` lists them)"));
        disks.iter().for_each(|disk| place::check_disk(disk, &mut found));
    }
    for (name, list) in [("disk", &disks), ("label", &labels)] {
        if list.len() > 1 && list.len() != ons.len() {
            let text = format!("`--{name}` is given {} times, `--on` {} times", list.len(), ons.len());
            found.push(Problem::error(text).help(format!("one `--{name}` for all, or one for each `--on`")));
        }
    }
    let mut stacks: Vec<Option<Stack>> = Vec::new();
    for (nr, on) in ons.iter().enumerate() {
        let disk = disks.get(nr).or(disks.first());
        stacks.push(place::parse(on, disk.copied(), &mut found));
    }
    // Without a place the job is still checked, on any, so that its mistakes are told too.
    let elsewhere = [Some(Stack::new(&iowhy_stack::kernel::KERNELS[iowhy_stack::kernel::KERNELS.len() - 1]))];
    let tried = if stacks.iter().any(Option::is_some) { &stacks[..] } else { &elsewhere[..] };
    for (nr, stack) in tried.iter().enumerate() {
        let Some(stack) = stack else { continue };
        let mut stack = stack.clone();
        if line.job.is_empty() {
            break;
        }
        let built = match builtin {
            Some(builtin) => {
                let values = options::parse(builtin.name, builtin.options, &line.job[1..], &mut found);
                if found.any_error() { None } else { (builtin.build)(&values, &mut stack, &mut found) }
            }
            None if line.job[0] == FIO => of_words(&line.job[1..], world, &mut stack, &mut found),
            None => of_files(&line.job, world, &mut stack, &mut found),
        };
        let (Some((job, shape)), Some(on)) = (built, ons.get(nr)) else { continue };
        if let Err(text) = job.check() {
            found.push(Problem::error(text));
            continue;
        }
        let label = match labels.get(nr).or(labels.first()) {
            Some(label) if labels.len() == ons.len() => (*label).to_owned(),
            Some(label) => format!("{label}/{on}"),
            None => (*on).to_owned(),
        };
        let plan = shape.seeded(&Plan { stack, job }, request.seed);
        let disk = disks.get(nr).or(disks.first()).map(|disk| (*disk).to_owned());
        request.variants.push(Variant { on: (*on).to_owned(), disk, label, plan, shape });
    }
    for problem in found.list {
        // Every stack says the same about the job.
        if !problems.list.contains(&problem) {
            problems.push(problem);
        }
    }
    if problems.any_error() { None } else { Some(Request::Run(Box::new(request))) }
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
    run.variants.into_iter().next().map(|variant| (variant.plan, variant.shape))
}

/// Options and job of a command line.
#[derive(Default)]
struct Line {
    job: Vec<String>,
    given: Vec<(&'static str, String, Span)>,
    json: bool,
    help: bool,
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
        if let Some((_, what)) = LATER.iter().find(|(later, _)| *later == name) {
            let text = format!("`--{name}` is not part of this release: {what} comes later");
            problems.push(Problem::error(text).at(Span::whole(word)).help("leave it out"));
            // Its value is no job.
            if inline.is_none() && name == "store" {
                rest.next_if(|next| !next.starts_with("--"));
            }
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
            if let Some(value) = inline {
                let text = format!("`--{name}` takes no value, and has `{value}`");
                problems.push(Problem::error(text).at(Span::whole(word)));
            }
            line.json |= *name == "json";
            line.help |= *name == "help";
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

/// The job of fio job files.
fn of_files(names: &[String], world: &World<'_>, stack: &mut Stack, problems: &mut Problems) -> Option<(Job, Shape)> {
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
    let built = if found.any_error() {
        None
    } else {
        let world = world_of(stack, world);
        fio_jobs::parse_files(names, &world, &mut found).and_then(|file| fio::build(&file, stack, &mut found))
    };
    problems.list.append(&mut found.list);
    built
}

/// The job of words of fio's command line.
fn of_words(words: &[String], world: &World<'_>, stack: &mut Stack, problems: &mut Problems) -> Option<(Job, Shape)> {
    let invocation = fio_jobs::command_line(words, &world_of(stack, world), problems)?;
    if invocation.settings.action != fio_jobs::Action::Run {
        problems.push(Problem::error("these words of fio describe no run").help("--name=.. --rw=.. --size=.."));
        return None;
    }
    fio::build(&invocation.file, stack, problems)
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
    /// On which variant.
    pub variant: usize,
    /// With which seed.
    pub seed: u64,
    /// What was run.
    pub plan: Plan,
    /// What came of it.
    pub outcome: Outcome,
}

/// The runs in the order in which they are made: a run of each variant makes a block, and each block has an order of
/// its own.
pub fn schedule(request: &RunRequest) -> Vec<(usize, u64)> {
    let mut rng = Rng::stream(request.seed, "order of runs");
    let mut runs = Vec::new();
    for repetition in 0..u64::from(request.repeat) {
        let mut block: Vec<usize> = (0..request.variants.len()).collect();
        for last in (1..block.len()).rev() {
            block.swap(last, rng.below(last as u64 + 1) as usize);
        }
        runs.extend(block.into_iter().map(|variant| (variant, request.seed + repetition)));
    }
    runs
}

/// Makes the runs. `progress` is told how many are done, and of how many.
///
/// # Errors
/// The first run that could not be made, with its place.
pub fn execute(request: &RunRequest, progress: &dyn Fn(usize, usize)) -> Result<Vec<Finished>, (String, RunError)> {
    let runs = schedule(request);
    let mut finished = Vec::new();
    for (done, (number, seed)) in runs.iter().enumerate() {
        progress(done, runs.len());
        let variant = &request.variants[*number];
        let plan = variant.shape.seeded(&variant.plan, *seed);
        let outcome = sim::run(&plan).map_err(|error| (variant.on.clone(), error))?;
        finished.push(Finished { variant: *number, seed: *seed, plan, outcome });
    }
    progress(runs.len(), runs.len());
    Ok(finished)
}

/// The help of the verb.
fn help() -> String {
    let mut out = String::from(
        "iowhy run JOB.. --on WHERE [--on WHERE2 ..] [OPTIONS]\n\nRuns a job in the simulator. JOB is one or more fio \
         job files (- is standard\ninput), `fio` with words of fio's command line, or a built-in job with key=value \
          words:\n\n",
    );
    for builtin in BUILTINS {
        out.push_str(&text::item(builtin.name, builtin.summary, 14));
    }
    out.push_str("\n`iowhy run NAME --help` lists the options of a built-in job.\n\n");
    for (name, takes_value, help) in OPTIONS {
        let value = if *takes_value { "=VALUE" } else { "" };
        out.push_str(&text::item(&format!("--{name}{value}"), help, 18));
    }
    out.push_str(
        "\nExamples:\n  iowhy run jobs/randread-qd32.fio --on sim:linux-6.18 --disk nvme\n  \
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
