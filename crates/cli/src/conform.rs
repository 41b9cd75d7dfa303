//! `iowhy conform`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use iowhy_lab::conform;
use iowhy_lab::conform::kernel::Report;
use iowhy_lab::conform::kernel::live::{self, ConformError, ConformRequest};
use iowhy_lab::conform::vectors;
use iowhy_lab::recording::{self, RecordError, Request};
use iowhy_lab::run::{self, guest};
use iowhy_live::capture::Level;
use iowhy_live::guard::Output;
use iowhy_text::diagnose::{Problem, Problems};

use crate::output::{self, Exit};
use crate::trace::Way;

/// Its command line.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
#[command(override_usage = "iowhy conform [OPTIONS] <--golden DIR|--live|RECORDING> [-- COMMAND...]")]
#[command(after_help = "Exit codes: 0 as expected (--live: all bios and requests, and decisions and page\n\
    adds of files that one task reads; 99 % of others), 1 a mismatch beyond that,\n\
    2 a usage or input error, 3 the kernel cannot be traced here (no root,\n\
    neither tracefs nor BPF), events were lost, or nothing was judged. Everything\n\
    that was seen and not compared is listed, with the reason.")]
pub(crate) struct Arguments {
    /// Folder with <kernel>.json files
    #[arg(long, value_name = "DIR", group = "what")]
    golden: Option<PathBuf>,
    /// Run jobs or COMMAND here, trace them, compare every decision
    #[arg(long, group = "what")]
    live: bool,
    /// Recording of `trace record --level full`
    #[arg(value_name = "RECORDING", group = "what")]
    recording: Option<PathBuf>,
    /// --live: program to run and judge, with its arguments
    #[arg(last = true, value_name = "COMMAND", requires = "live",
        conflicts_with_all = ["job", "dir", "read_ahead_kb", "record", "on"])]
    command: Vec<String>,
    /// --live: a fio job file or a built-in job [all]
    #[arg(long, value_name = "JOB", requires = "live")]
    job: Vec<String>,
    /// --live: work in this folder [loop devices]
    #[arg(long, value_name = "DIR", requires = "live")]
    dir: Option<PathBuf>,
    /// --live: read_ahead_kb; may be repeated [several]
    #[arg(long, value_name = "N", requires = "live")]
    read_ahead_kb: Vec<u64>,
    /// --live: keep the recordings in this folder, as text
    #[arg(long, value_name = "DIR", requires = "live")]
    record: Option<PathBuf>,
    /// --live: tracefs or bpf [default: tracefs, or bpf if denied]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "WAY", requires = "live", conflicts_with = "on")]
    via: Option<Way>,
    /// --live: kernel:KERNEL[,key=value..] [this kernel]
    #[arg(long, value_name = "WHERE", requires = "live", conflicts_with_all = ["dir", "record", "read_ahead_kb"])]
    on: Option<String>,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Compares the models with vectors in a folder, or with the running kernel.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    match (&arguments.golden, &arguments.on, &arguments.recording) {
        (Some(folder), ..) => vectors(folder, arguments.json),
        (None, Some(on), _) => elsewhere(arguments, on),
        (None, None, Some(path)) => recorded(path, arguments.json),
        (None, None, None) if !arguments.command.is_empty() => foreign(arguments),
        (None, None, None) => running(arguments),
    }
}

/// Ring buffer of each CPU for a program.
const BUFFER_KIB: u32 = 16 << 10;

/// How long a guest may take for all jobs.
const LIMIT: Duration = Duration::from_secs(600);

/// The same on a kernel that is booted for it: this very command, in a guest.
fn elsewhere(arguments: &Arguments, on: &str) -> anyhow::Result<Exit> {
    let mut problems = Problems::default();
    let wanted = guest::parse(on, None, &mut problems);
    if wanted.is_none() && !problems.any_error() {
        problems.push(Problem::error(format!("`{on}` is not a kernel that can be booted")).help("kernel:debian-6.1"));
    }
    let files = run::files_for_guest(&arguments.job, on, &mut problems);
    output::report_all(&problems);
    let Some(wanted) = wanted.filter(|_| !problems.any_error()) else { return Ok(Exit::Usage) };
    let mut words = ["conform".to_owned(), "--live".to_owned(), format!("--dir={}", iowhy_live::guest::DATA)].to_vec();
    words.extend(arguments.job.iter().map(|job| format!("--job={job}")));
    words.extend(arguments.json.then(|| "--json".to_owned()));
    let (brought, printed) = match guest::command(&wanted, words, files, LIMIT) {
        Ok(brought) => brought,
        Err(error) if error.inconclusive => {
            output::report(Problem::error(error.to_string()));
            return Ok(Exit::Inconclusive);
        }
        Err(error) => return Err(error.into()),
    };
    brought.messages.iter().for_each(|line| output::complain(&format!("{line}\n")));
    output::print(&printed)?;
    Ok(match brought.status {
        0 => Exit::Fine,
        1 => Exit::Failed,
        2 => Exit::Usage,
        _ => Exit::Inconclusive,
    })
}

fn vectors(folder: &Path, json: bool) -> anyhow::Result<Exit> {
    let report = vectors::check_folder(folder)?;
    if json {
        output::print_json(&conform::json(&report))?;
    } else {
        output::print(&conform::text(&report, output::bold()))?;
    }
    Ok(if report.all_matched() { Exit::Fine } else { Exit::Failed })
}

fn running(arguments: &Arguments) -> anyhow::Result<Exit> {
    let asked = ConformRequest {
        jobs: arguments.job.clone(),
        dir: arguments.dir.clone(),
        read_ahead_kb: arguments.read_ahead_kb.clone(),
        via: arguments.via.map(Into::into),
    };
    let progress = |what: &str| {
        if !arguments.json {
            output::complain(&format!("{what}\n"));
        }
    };
    let compared = match live::run(&asked, &run::here(), &progress) {
        Ok(compared) => compared,
        Err(ConformError::Wrong(problems)) => {
            output::report_all(&problems);
            return Ok(Exit::Usage);
        }
        Err(error @ (ConformError::Capture(_) | ConformError::NoFileSystem(_))) => {
            output::report(Problem::error(error.to_string()));
            return Ok(Exit::Inconclusive);
        }
        Err(error) => return Err(error.into()),
    };
    output::report_all(&compared.warnings);
    if let Some(folder) = &arguments.record {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
        for (name, text) in compared.texts() {
            Output::write(&folder.join(name), text.as_bytes(), false)?;
        }
    }
    show(&compared.report, arguments.json)
}

fn show(report: &Report, json: bool) -> anyhow::Result<Exit> {
    if json {
        output::print_json(&report.json())?;
    } else {
        output::print(&report.text(output::bold()))?;
    }
    Ok(match report.as_expected() {
        true => Exit::Fine,
        false if report.lost > 0 || !report.has_evidence() => Exit::Inconclusive,
        false => Exit::Failed,
    })
}

/// Compares a recording that was made before.
fn recorded(path: &Path, json: bool) -> anyhow::Result<Exit> {
    let mut problems = Problems::default();
    let found = iowhy_trace::load(path, &mut problems);
    output::report_all(&problems);
    let Some(trace) = found else { return Ok(Exit::Usage) };
    show(&conform::kernel::foreign::compare(&trace), json)
}

/// Runs a program, and compares what the kernel did for it.
fn foreign(arguments: &Arguments) -> anyhow::Result<Exit> {
    crate::doctor::tidy();
    let request = Request {
        level: Level::Full,
        command: arguments.command.clone(),
        buffer_kib: BUFFER_KIB,
        via: arguments.via.map(Into::into),
        ..Request::default()
    };
    let recorded = match recording::record(&request, &mut |problem| output::report(problem.clone())) {
        Err(error @ RecordError::Capture(_)) => {
            output::report(Problem::error(error.to_string()));
            return Ok(Exit::Inconclusive);
        }
        Err(error @ RecordError::Command { .. }) => {
            output::report(Problem::error(error.to_string()));
            return Ok(Exit::Usage);
        }
        recorded => recorded?,
    };
    let mut problems = recording::complaints(&recorded.captured);
    if let Some(status) = recorded.status.filter(|status| !status.success()) {
        problems.push(Problem::warning(format!("the command failed: {status}")));
    }
    output::report_all(&problems);
    show(&conform::kernel::foreign::compare(&recorded.captured.trace), arguments.json)
}
