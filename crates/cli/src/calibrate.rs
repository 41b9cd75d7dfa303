//! `iowhy calibrate`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::bail;
use clap::Args;
use iowhy_compare::Settings;
use iowhy_compare::calibrate::{self, Ask};
use iowhy_lab::store::{self, Store, StoreError};
use iowhy_stats::metric::Group;
use serde_json::json;

use crate::output::{self, Exit};

#[derive(Args)]
#[command(about = "Measure this machine's false-alarm rate with runs of one configuration")]
#[command(after_help = "Makes equal runs and compares them with themselves. The result is kept in the\n\
    store, and comparisons of the same job on the same machine quote it.\n\nExamples:\n  iowhy calibrate --runs 40 -- \
    jobs/seq-read.fio --on live\n  iowhy calibrate --from base --per-side 2\n\nExit codes: 0 calibrated, \
    1 runs failed, 2 a usage or input error, 3 too\nfew runs.")]
pub(crate) struct Arguments {
    /// Runs to make
    #[arg(long, default_value_t = 40, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=10_000))]
    runs: u32,
    /// Runs of each side of a comparison
    #[arg(long, default_value_t = 10, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=5_000))]
    per_side: u32,
    /// Share of false alarms that comparisons allow
    #[arg(long, default_value = "0.01", value_parser = crate::compare::alpha)]
    alpha: f64,
    /// Metric; may be repeated [default: those of every job]
    #[arg(long, value_name = "M")]
    metric: Vec<String>,
    /// Runs in the store already: a label, a tag, ids
    #[arg(long, value_name = "L", conflicts_with = "words")]
    from: Option<String>,
    /// Store [default: IOWHY_STORE, or the data directory]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Job and place, as `iowhy run` takes them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "JOB --on WHERE")]
    words: Vec<OsString>,
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let variable = |name: &str| std::env::var(name).ok();
    let directory = store::directory(arguments.store.as_deref(), &variable).ok_or(StoreError::NoPlace)?;
    let store = match &arguments.from {
        Some(_) => Store::open_existing(&directory)?,
        None => Store::open(&directory)?,
    };
    let group = match &arguments.from {
        Some(from) => store.group(from)?,
        None => match made(arguments, &store)? {
            Ok(group) => group,
            Err(exit) => return Ok(exit),
        },
    };
    let settings = Settings { alpha: arguments.alpha, metrics: arguments.metric.clone(), ..Settings::default() };
    let ask = Ask { per_side: arguments.per_side as usize, settings };
    let found = calibrate::of_runs(&group, &ask);
    let report = calibrate::json(&found, &ask);
    if let Some(machine) = group.runs.first().map(|run| run.machine.as_str()) {
        let now = store::nanoseconds(SystemTime::now());
        for calibration in &found {
            let details = json!({ "alpha": arguments.alpha, "version": env!("CARGO_PKG_VERSION") });
            store.record_calibration(machine, calibration, now, &details)?;
        }
    }
    if arguments.json {
        output::print_json(&report)?;
    } else {
        output::print(&calibrate::text(&found, &ask))?;
    }
    if found.is_empty() {
        let runs = group.runs.len();
        let least = 2 * ask.per_side;
        output::complain(&format!(
            "warning: {runs} runs with such metrics make no comparison of {} a side\n  = help: at least {least} runs, \
             or a smaller --per-side\n",
            ask.per_side
        ));
        return Ok(Exit::Inconclusive);
    }
    Ok(Exit::Fine)
}

/// Makes the runs and takes them out of the store again; or how the command ends, if that failed.
fn made(arguments: &Arguments, store: &Store) -> anyhow::Result<Result<Group, Exit>> {
    if arguments.words.is_empty() {
        bail!("no job to calibrate: iowhy calibrate JOB --on WHERE, or --from LABEL");
    }
    let mut words = arguments.words.clone();
    words.push(format!("--repeat={}", arguments.runs).into());
    words.push(OsString::from("--store"));
    words.push(store.directory().as_os_str().to_owned());
    let executed = match crate::run::record(&words)? {
        Ok(executed) => executed,
        Err(exit) => return Ok(Err(exit)),
    };
    if executed.failed {
        return Ok(Err(Exit::Failed));
    }
    if executed.places != 1 {
        bail!("a calibration is of one configuration, not of {}: one --on", executed.places);
    }
    let ids: Vec<&str> = executed.ids.iter().map(String::as_str).collect();
    Ok(Ok(store.group(&ids.join(","))?))
}
