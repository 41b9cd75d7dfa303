//! `iowhy tune`.

use std::path::PathBuf;

use iowhy_lab::recording::RecordError;
use iowhy_lab::tune::{self, Asked, TuneError, json, text};
use iowhy_text::diagnose::Problem;

use crate::output::{self, Exit};

#[derive(clap::Args)]
#[command(about = "Find the best safe settings for a job that can be repeated")]
#[command(override_usage = "iowhy tune [OPTIONS] <JOB...|-- COMMAND...>")]
#[command(after_help = "\
Settings of the disk's queue and limits of dirty pages are searched on a model of
the job, the best three tried in random order, and all restored. A command gets
its files out of the cache before each run. What makes the best one last is
printed, not installed.

  iowhy tune jobs/seq-read.fio
  iowhy tune -- dd if=big of=/dev/null bs=64k

Exit codes: 0 the best setting, or nothing here is better, 2 a usage or input
error, 3 cannot tell, 130 interrupted.")]
pub(crate) struct Arguments {
    /// fio job file or built-in job, as `iowhy run` takes it
    #[arg(value_name = "JOB", required_unless_present = "command", conflicts_with = "command")]
    job: Vec<String>,
    /// Directory of the job's files [a new one here, removed afterwards]
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    dir: Option<PathBuf>,
    /// cold, warm or as-found: the files' pages at the start [the job's]
    #[arg(long, value_name = "STATE", conflicts_with = "command")]
    cache: Option<String>,
    /// Runs of each setting [8 runs in all, at least 2 of each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Seed of the first run, and of the order
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// Command to repeat, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    crate::doctor::tidy();
    let asked = Asked {
        job: arguments.job.clone(),
        command: arguments.command.clone(),
        dir: arguments.dir.clone(),
        cache: arguments.cache.clone(),
        runs: arguments.runs,
        seed: arguments.seed,
    };
    let tell = |words: &str| {
        if !output::look().quiet && !arguments.json {
            output::complain(&format!("{words}\n"));
        }
    };
    let tuned = match tune::tune(&asked, &tell) {
        Ok(tuned) => tuned,
        Err(TuneError::Words(problems)) => {
            output::report_all(&problems);
            return Ok(Exit::Usage);
        }
        Err(error @ (TuneError::NoDisk | TuneError::Nothing(_) | TuneError::Record(RecordError::Capture(_)))) => {
            output::report(Problem::error(error.to_string()));
            return Ok(Exit::Inconclusive);
        }
        Err(error) => return Err(error.into()),
    };
    if arguments.json {
        output::print_json(&json::tune(&tuned))?;
    } else {
        output::print(&text::text(&tuned, output::look().brief, output::style()))?;
    }
    Ok(if tuned.undecided().is_some() { Exit::Inconclusive } else { Exit::Fine })
}
