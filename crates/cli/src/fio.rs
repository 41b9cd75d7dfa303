//! `iowhy fio`.

use std::ffi::OsString;
use std::fmt::Write;
use std::io::{BufReader, BufWriter, ErrorKind, IsTerminal, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context;
use iowhy_fio::live::{self, LiveJobs};
use iowhy_fio::result::{self, Results};
use iowhy_fio::{self as fio, Action, Format, Settings, World, json, logs, normal, terse};
use iowhy_live::Outcome;
use iowhy_live::guard::{self, Output};
use iowhy_text::diagnose::{Problem, Problems};

use crate::output::{self, Bar, Exit};

pub(crate) const HELP: &str = "iowhy fio [OPTIONS] [JOBFILE ..] [--name=JOB --OPTION=VALUE ..]

Run fio's jobs on the running kernel, with fio's reports. Options of jobs are
fio's: `iowhy fio --cmdhelp` lists them. Jobs on simulated kernels:
`iowhy run JOBFILE --on sim:linux-6.18`.

  --output-format=F   normal, terse, json or json+, comma between [normal]
  --output=FILE       file of the report
  --parse-only        check the jobs, run nothing
  --showcmd[=FILE]    print the jobs as a command line
  --section=NAME      only this section of the job file; may be repeated
  --readonly          refuse jobs that write
  --allow-write=PATH  a device or file that may be written whatever it holds
  --status-interval=T report of the run so far each time T is over
  --inflate-log=FILE  print a log that is stored compressed
  --seed=N            seed of the random numbers
  --cmdhelp[=OPTION]  options of jobs
  --enghelp           engines
  --version           the version

Exit codes: 0 fine, 1 a job had errors, 2 a usage or input error.
Examples:
  iowhy fio --name=r --rw=randread --size=64m --runtime=5 --time_based
  iowhy fio --parse-only jobs/randread-qd32.fio
";

/// The machine as job files see it.
fn world<'a>(load: &'a dyn Fn(&str) -> Result<String, String>) -> World<'a> {
    let memory = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    World {
        load,
        variable: &|name| std::env::var(name).ok(),
        memory_mib: memory.map_or(1024, |kib| kib / 1024),
        cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64),
        live: true,
        ..World::empty()
    }
}

/// Runs the verb.
pub(crate) fn run(arguments: &[OsString]) -> anyhow::Result<Exit> {
    let mut problems = Problems::default();
    let words = output::words(arguments, &mut problems);
    let world = world(&iowhy_lab::run::load);
    let invocation = fio::command_line(&words, &world, &mut problems).filter(|_| !problems.any_error());
    let Some(invocation) = invocation else {
        output::report_all(&problems);
        return Ok(Exit::Usage);
    };
    let settings = invocation.settings;
    check(&settings, &mut problems);
    if problems.any_error() {
        output::report_all(&problems);
        return Ok(Exit::Usage);
    }
    let text = match &settings.action {
        Action::Run => None,
        Action::ParseOnly if settings.debug_parse => Some(live::parsed(&invocation.file)),
        Action::ParseOnly => Some(String::new()),
        Action::ShowCommand => {
            let words = invocation.file.jobs.iter().flat_map(|job| job.to_arguments(true));
            let words: Vec<String> = words.map(|word| quoted(&word)).collect();
            Some(format!("fio {}\n", words.join(" ")))
        }
        Action::Help => Some(HELP.to_owned()),
        Action::Version => Some(format!("{}\n", json::VERSION)),
        Action::Options(name) => match live::help(name.as_deref()) {
            Some(text) => Some(text),
            None => {
                let name = name.clone().unwrap_or_default();
                let problem = Problem::error(format!("unknown option `{name}`"));
                output::report(problem.near(&name, fio::options::names()));
                return Ok(Exit::Usage);
            }
        },
        Action::Engines => Some(normal::engines()),
        Action::Unpack(name) => return unpack(name),
    };
    if let Some(text) = text {
        output::report_all(&problems);
        output::print(&text)?;
        return Ok(Exit::Fine);
    }
    live::check_folders(&invocation.file, &mut problems);
    let mut jobs = live::jobs(invocation.file, settings.seed, &world, &mut problems);
    if let Some(jobs) = &mut jobs {
        jobs.load_states(settings.aux_path.as_deref(), &mut problems);
    }
    let jobs = jobs.filter(|_| !problems.any_error());
    output::report_all(&problems);
    match jobs {
        None => Ok(Exit::Usage),
        Some(mut jobs) => {
            let allowed: Vec<PathBuf> = settings.allow_write.iter().map(Into::into).collect();
            jobs.plan.allow.write.clone_from(&allowed);
            guard::allow_everywhere(allowed);
            measure(&jobs, &settings)
        }
    }
}

/// Prints a log that is stored compressed.
fn unpack(name: &str) -> anyhow::Result<Exit> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let log = std::fs::File::open(name).and_then(|file| logs::unpack(BufReader::new(file), &mut out));
    match log.and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            output::report(Problem::error(format!("cannot read the log `{name}`: {error}")));
            Ok(Exit::Usage)
        }
        _ => Ok(Exit::Fine),
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+%@".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// Options that only the simulator, or only fio, has.
fn check(settings: &Settings, problems: &mut Problems) {
    if let Some(on) = settings.on.as_ref().filter(|on| *on != "live") {
        let problem = Problem::error(format!("`iowhy fio` runs on the running kernel, not on `{on}`"));
        problems.push(problem.help(format!("iowhy run JOBFILE --on {on}, or iowhy run fio --name=.. --on {on}")));
    }
    if settings.disk.is_some() {
        let problem = Problem::error("`--disk` is for simulated runs: here the disk is the one below the files");
        problems.push(problem.help("filename=, directory="));
    }
}

fn measure(jobs: &LiveJobs, settings: &Settings) -> anyhow::Result<Exit> {
    let human = settings.formats.contains(&Format::Normal);
    let mut text = String::new();
    if human {
        text.push_str(&normal::banner(&jobs.file.jobs));
    }
    // As fio: off a terminal standard error has problems alone.
    let bar = Bar::new("fio", "jobs", !human || !std::io::stderr().is_terminal());
    // What may not be written is refused before anything runs.
    let mut out = None;
    let totals = settings.bandwidth_log.then_some(logs::TOTALS.map(str::to_owned));
    for name in settings.output.iter().chain(&live::logs(jobs)).chain(totals.iter().flatten()) {
        match output::begin(Path::new(name), false)? {
            Ok(begun) => out = out.or(Some(begun).filter(|_| Some(name) == settings.output.as_ref())),
            Err(exit) => return Ok(exit),
        }
    }
    crate::doctor::tidy();
    let early = std::cell::RefCell::new(String::new());
    let status = |outcome: &Outcome| {
        let Ok(text) = shown(&result::results(jobs, outcome, Vec::new()), settings) else { return };
        // Into a file they go with the last one.
        if settings.output.is_some() {
            early.borrow_mut().push_str(&text);
        } else {
            let _ = output::print(&text);
        }
    };
    if !settings.status_every.is_zero() && human && settings.output.is_none() {
        output::print(&std::mem::take(&mut text))?;
    }
    let reports = Some((settings.status_every, &status as &dyn Fn(&Outcome))).filter(|(every, _)| !every.is_zero());
    let made = live::run(jobs, &|progress| bar.name(live::shown(&progress)), reports);
    text.push_str(&early.take());
    drop(bar);
    let (outcome, disks) = match made {
        Ok(made) => made,
        Err(obstacle) => {
            output::report(Problem::error(obstacle.message));
            if obstacle.usage {
                return Ok(Exit::Usage);
            }
            report(text, &result::not_begun(jobs, obstacle.errno), settings, out)?;
            return Ok(Exit::Failed);
        }
    };
    output::report_all(live::complaints(jobs, &outcome));
    let results = result::results(jobs, &outcome, disks);
    let failed = results.any_error() || outcome.interrupted;
    report(text, &results, settings, out)?;
    output::report_all(live::write_states(jobs, &outcome, settings.aux_path.as_deref()));
    let totals = || if settings.bandwidth_log { live::write_totals(jobs, &outcome) } else { Ok(()) };
    if let Err(error) = live::write_logs(jobs, &outcome).and_then(|_| totals()) {
        output::report(Problem::error(error.to_string()));
        return Ok(Exit::Failed);
    }
    Ok(if failed { Exit::Failed } else { Exit::Fine })
}

/// Prints the report in every shape that was asked for.
fn report(mut text: String, results: &Results<'_>, settings: &Settings, out: Option<Output>) -> anyhow::Result<()> {
    text.push_str(&shown(results, settings)?);
    let Some(mut out) = out else { return output::print(&text) };
    out.write_all(text.as_bytes()).context("cannot write the report")?;
    Ok(out.finish()?)
}

/// The report in every shape that was asked for.
fn shown(results: &Results<'_>, settings: &Settings) -> anyhow::Result<String> {
    let mut text = String::new();
    for format in &settings.formats {
        match format {
            Format::Normal => text.push_str(&normal::report(results)),
            Format::Json => writeln!(text, "{:#}", json::document(results, false))?,
            // One document is enough, and json+ has everything that is in json.
            Format::JsonPlus => writeln!(text, "{:#}", json::document(results, true))?,
            Format::Terse => text.push_str(&terse::lines(results, settings.terse_version)),
        }
    }
    Ok(text)
}
