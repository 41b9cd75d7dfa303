//! Meaning of a command line: a job at places, with every mistake reported at once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use iowhy_fio::World;
use iowhy_live::machine;
use iowhy_stack::outcome::Plan;
use iowhy_stack::trace::Dev;
use iowhy_text::diagnose::{Problem, Problems, Severity, Span};
use iowhy_text::input;
use iowhy_trace::format::blktrace;

use super::backend::{Backend, JobWords, Place, Typed};
use super::guest::GuestTask;
use super::knobs::{Knobs, WithKnobs, is_live};
use super::own::OwnCommand;
use super::simulator::{self, Simulator};
use super::words::{Line, help, help_of, take_apart};
use super::{BUILTINS, Folder, HERE, KINDS, LIVE, Own, Request, RunRequest, Shape, Variant};
use crate::place;

/// The request in the words behind `iowhy run`, or all mistakes in them. Files are read through `world`, whose numbers
/// of the machine are replaced by those of the simulated one. Warnings are left in `problems` in either case.
pub fn resolve(words: &[String], world: &World<'_>, problems: &mut Problems) -> Option<Request> {
    let line = take_apart(words, problems);
    let builtin = line.job.first().and_then(|word| BUILTINS.iter().find(|builtin| builtin.name == *word)).copied();
    if line.help {
        problems.list.clear();
        return Some(Request::Help(builtin.map_or_else(help, help_of)));
    }
    if !line.commands.is_empty() {
        return own_commands(&line, world, problems);
    }
    let mut found = Problems::default();
    line.refuse_of_commands(&mut found);
    let mut request = request(&line, world, &mut found);
    let typed = typed(&line, &mut found);
    let cache = line.cache(&mut found);
    let allow: Vec<PathBuf> = line.allow_write.iter().map(PathBuf::from).collect();
    let (limit, replay) = (line.limit(&mut found), line.replay(&mut found));
    let timeout = line.timeout(&mut found);
    let folder = request.folder.path.clone();
    let shaping = line.shaping();
    let asked = JobWords {
        words: &line.job,
        builtin,
        world,
        limit: &limit,
        replay,
        seed: request.seed,
        folder: &folder,
        cache,
        allow: &allow,
        timeout,
        shaping: &shaping,
    };
    let places: Vec<Option<Box<dyn Place>>> = typed
        .iter()
        .map(|typed| KINDS.iter().find(|kind| (kind.names)(typed.on)).and_then(|kind| (kind.read)(typed, &mut found)))
        .collect();
    if places.iter().all(Option::is_none) && !line.job.is_empty() {
        // Without a place the job is still checked, on any, so that its mistakes are reported too.
        let _ = simulator::anywhere().backend(&asked, &mut found);
    }
    for ((typed, place), label) in typed.iter().zip(&places).zip(labels(&line, &typed)) {
        let backend = place.as_ref().filter(|_| !line.job.is_empty()).and_then(|it| it.backend(&asked, &mut found));
        let Some((backend, shape)) = backend else { continue };
        let disk = typed.disk.map(str::to_owned);
        request.variants.push(Variant { on: typed.on.to_owned(), disk, label, backend, shape });
    }
    if line.label.len() != typed.len() {
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

/// The request for commands of the user: each at each place, which is the running kernel with or without settings.
fn own_commands(line: &Line, world: &World<'_>, problems: &mut Problems) -> Option<Request> {
    let mut request = request(line, world, problems);
    request.folder = Folder { path: PathBuf::from(line.dir.first().map_or(".", String::as_str)), temporary: false };
    let commands = line.own_commands(problems);
    request.job = commands.iter().map(OwnCommand::text).collect();
    let usual = [LIVE.to_owned()];
    let ons = if line.on.is_empty() { &usual[..] } else { &line.on };
    for on in ons.iter().filter(|on| !is_live(on)) {
        let problem = Problem::error(format!("commands run on the running kernel, and `{on}` is another place"));
        problems.push(problem.at(Span::whole(on)).help("--on live, or --on live,KEY=VALUE"));
    }
    let nr = ons.len() * commands.len();
    let given = &line.label;
    if given.len() > 1 && given.len() != nr {
        let text = format!("`--label` is given {} times, for {nr} commands and places", given.len());
        problems.push(Problem::error(text).help("one for all, or one for each"));
    }
    let places: Vec<(&String, Knobs)> = ons.iter().map(|on| (on, Knobs::read(on, problems))).collect();
    for command in &commands {
        for (on, knobs) in &places {
            let text = command.text();
            let name = match (commands.len(), ons.len()) {
                (_, 1) => text,
                (1, _) => (*on).clone(),
                _ => format!("{text} ({on})"),
            };
            let label = match given.get(request.variants.len()).or(given.first()) {
                Some(label) if given.len() == nr => label.clone(),
                Some(label) => format!("{label}/{name}"),
                None => name,
            };
            let runs: Arc<dyn Backend> = Arc::new(command.clone());
            let backend = match knobs.is_empty() {
                true => runs,
                false => Arc::new(WithKnobs { knobs: knobs.clone(), runs }),
            };
            let (on, shape) = ((*on).clone(), Shape::default());
            request.variants.push(Variant { on, disk: None, label, backend, shape });
        }
    }
    distinguish(&mut request.variants);
    request.own =
        Some(Own { commands: commands.iter().flat_map(|it| vec![it.clone(); ons.len()]).collect(), ..line.exports() });
    request.warnings = problems.list.iter().map(|problem| problem.message.clone()).collect();
    if problems.any_error() { None } else { Some(Request::Run(Box::new(request))) }
}

/// The runs that these words ask for.
///
/// # Errors
/// All mistakes, and an error if the words ask for help.
pub fn asked(words: &[String], world: &World<'_>) -> Result<Box<RunRequest>, Problems> {
    let mut problems = Problems::default();
    match resolve(words, world, &mut problems) {
        Some(Request::Run(request)) if !problems.any_error() => Ok(request),
        Some(Request::Help(_)) => Err(Problems { list: vec![Problem::error(NO_RUN)] }),
        _ => Err(problems),
    }
}

const NO_RUN: &str = "`--help` describes no run";

/// The request as yet without places.
fn request(line: &Line, world: &World<'_>, problems: &mut Problems) -> RunRequest {
    let folder = match line.dir.first() {
        Some(dir) => Folder { path: PathBuf::from(dir), temporary: false },
        None => Folder { path: PathBuf::from(format!("iowhy-run-{}", std::process::id())), temporary: true },
    };
    let request = RunRequest {
        job: line.job.clone(),
        variants: Vec::new(),
        repeat: line.repeat(problems),
        seed: line.seed(problems),
        json: line.json,
        folder,
        warm_up: line.warm_up(problems),
        until: line.until(problems),
        keep: line.keep(world, problems),
        warnings: Vec::new(),
        again: line.again(),
        own: None,
    };
    if line.job.is_empty() && line.commands.is_empty() {
        let names: Vec<&str> = BUILTINS.iter().map(|builtin| builtin.name).collect();
        problems.push(
            Problem::error("no job to run").help(format!("a fio job file, one of {}, or -- COMMAND", names.join(", "))),
        );
    }
    request
}

/// The places as they were typed, each with its disk.
fn typed<'a>(line: &'a Line, problems: &mut Problems) -> Vec<Typed<'a>> {
    let (ons, disks) = (&line.on, &line.disk);
    if ons.is_empty() {
        let help = "--on live, --on sim:linux-6.18 (`iowhy models kernel` lists them) or --on kernel:debian-6.1";
        problems.push(Problem::error("`--on` is missing").help(help));
        disks.iter().for_each(|disk| place::check_disk(disk, problems));
    }
    // Disks that are as many as the places that are not live are theirs, and the others are where files are anyway.
    let nr_others = ons.iter().filter(|on| !is_live(on)).count();
    let of_others = disks.len() > 1 && disks.len() == nr_others && disks.len() != ons.len();
    for (name, given, fits) in [("disk", disks.len(), of_others), ("label", line.label.len(), false)] {
        if given > 1 && given != ons.len() && !fits {
            let text = format!("`--{name}` is given {given} times, `--on` {} times", ons.len());
            problems.push(Problem::error(text).help(format!("one `--{name}` for all, or one for each `--on`")));
        }
    }
    let mut left = disks.iter();
    let mut disk_of = |on: &str| match disks.as_slice() {
        _ if of_others && is_live(on) => None,
        [only] => Some(only),
        _ => left.next(),
    };
    let mut typed: Vec<Typed<'_>> = Vec::new();
    for (nr, on) in ons.iter().enumerate() {
        let disk = disk_of(on).map(String::as_str);
        // A simulated place takes the profile of it.
        let simulated = on.starts_with("sim:");
        if disk == Some(HERE) && !is_live(on) && !simulated {
            let text = format!("`--disk {HERE}` is the disk of this machine, and `{on}` has no model of it");
            let help =
                format!("--disk {HERE} --disk MODEL, one for each --on (`iowhy models device` lists the models)");
            problems.push(Problem::error(text).at(Span::whole(on)).help(help));
        }
        let disk = disk.filter(|disk| *disk != HERE || simulated);
        typed.push(Typed { on, disk, beside: false, name: format!("run-{}-{nr}", std::process::id()) });
    }
    // A simulated place with the disk of a live one is its twin.
    let on_live: Vec<&str> = typed.iter().filter(|typed| is_live(typed.on)).filter_map(|typed| typed.disk).collect();
    typed.iter_mut().for_each(|typed| typed.beside = typed.disk.is_some_and(|disk| on_live.contains(&disk)));
    typed
}

/// Labels of the runs at each place.
fn labels(line: &Line, typed: &[Typed<'_>]) -> Vec<String> {
    let given = &line.label;
    let one_each = given.len() == typed.len();
    let of = |(nr, typed): (usize, &Typed<'_>)| {
        let name = if line.blind { format!("{}", nr + 1) } else { typed.on.to_owned() };
        match given.get(nr).or(given.first()) {
            Some(label) if one_each => label.clone(),
            Some(label) => format!("{label}/{name}"),
            None if line.blind => format!("blind/{name}"),
            None => name,
        }
    };
    typed.iter().enumerate().map(of).collect()
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

/// A text file, or standard input; a trace of blktrace as the iolog that fio's `read_iolog` takes it for. Logs may be
/// long; inputs other than files and standard input may have no end.
///
/// # Errors
/// Why it cannot be read.
pub fn load(name: &str) -> Result<String, String> {
    // Standard input can be read once, and a job is read for each place it runs on.
    static INPUT: OnceLock<Result<String, String>> = OnceLock::new();
    let path = Path::new(name);
    if name == "-" {
        return INPUT.get_or_init(|| input::standard(input::TEXT).map_err(|error| error.to_string())).clone();
    }
    let most = if path.is_file() { input::TEXT } else { input::JOB };
    let bytes = input::bytes(path, most).map_err(|error| error.to_string())?;
    if !blktrace::detect(name, &bytes) {
        return input::utf8(bytes).map_err(|error| error.to_string());
    }
    let mut log = Vec::new();
    blktrace::replay::iolog(bytes, &device_name).write(&mut log).map_err(|error| error.to_string())?;
    input::utf8(log).map_err(|error| error.to_string())
}

/// The name of a block device of this machine; of others a name that nothing has.
fn device_name(dev: Dev) -> String {
    let numbers = (dev.major(), dev.minor());
    let folder = machine::sysfs_folder(numbers);
    let name = folder.as_ref().and_then(|folder| folder.file_name()).map(|name| name.to_string_lossy().into_owned());
    format!("/dev/{}", name.unwrap_or_else(|| format!("block/{}:{}", numbers.0, numbers.1)))
}

/// The world of this process, with its files, its standard input and its environment, for every verb with a job.
pub fn here() -> World<'static> {
    World { load: &load, variable: &|name| std::env::var(name).ok(), ..World::empty() }
}

/// Files that jobs read which another command runs in a guest. Built-in jobs read none.
pub fn files_for_guest(jobs: &[String], on: &str, problems: &mut Problems) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for job in jobs.iter().filter(|job| Path::new(job).is_file()) {
        let Some(Request::Run(request)) = resolve(&[job.clone(), format!("--on={on}")], &here(), problems) else {
            continue;
        };
        let task = request.variants.first().and_then(|variant| variant.backend::<GuestTask>());
        files.extend(task.into_iter().flat_map(|task| task.files().iter().cloned()));
    }
    files
}

/// The plan of a command line with one `--on`.
pub fn plan(words: &[String], problems: &mut Problems) -> Option<(Plan, Shape)> {
    let before = problems.list.len();
    let request = resolve(words, &here(), problems);
    let run = match request {
        Some(Request::Run(run)) => run,
        Some(Request::Help(_)) => {
            problems.push(Problem::error(NO_RUN));
            return None;
        }
        None => return None,
    };
    if run.repeat > 1 || run.variants.len() > 1 {
        problems.push(Problem::error("one run is meant here: one `--on`, no `--runs`"));
        return None;
    }
    problems.list[before..].iter().all(|problem| problem.severity != Severity::Error).then_some(())?;
    let variant = run.variants.into_iter().next()?;
    let Some(simulator) = variant.backend::<Simulator>() else {
        problems.push(Problem::error("a simulated run is meant here").help("--on sim:linux-6.18"));
        return None;
    };
    Some((simulator.plan.clone(), variant.shape))
}
