//! `iowhy doctor`.

use std::path::PathBuf;

use anyhow::Context;
use iowhy_lab::doctor;
use iowhy_live::ledger;
use iowhy_text::diagnose::Problem;

use crate::output::{self, Exit};

/// Options of `iowhy doctor`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Folder whose disk to check
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Remove leftovers of earlier runs
    #[arg(long)]
    fix: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Looks at the machine. It fails if something is left behind.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let directory = std::fs::canonicalize(&arguments.directory)
        .with_context(|| format!("cannot look at {}", arguments.directory.display()))?;
    let report = iowhy_live::doctor::examine(&directory, arguments.fix)?;
    if arguments.json {
        output::print_json(&doctor::json(&report))?;
    } else {
        let details = if output::look().brief { String::new() } else { doctor::details(&report, output::bold()) };
        output::print(&(doctor::text(&report, output::bold()) + &details))?;
    }
    Ok(if report.is_clean() { Exit::Fine } else { Exit::Failed })
}

/// Undoes the leftovers of killed runs before another one begins, and reports it.
pub(crate) fn tidy() {
    // If the folder cannot be read the run itself finds that out, and says what to do.
    for left in ledger::sweep(&ledger::state_directory()).unwrap_or_default() {
        output::report(Problem::warning(format!("an earlier run left something behind: {left}")));
    }
}
