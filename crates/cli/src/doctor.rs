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
    /// Folder whose disk is checked
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Undo leftovers of earlier runs
    #[arg(long)]
    fix: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Checks the machine. It fails if there are leftovers.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let directory = std::fs::canonicalize(&arguments.directory)
        .with_context(|| format!("cannot read {}", arguments.directory.display()))?;
    let report = iowhy_live::doctor::examine(&directory, arguments.fix)?;
    if arguments.json {
        output::print_json(&doctor::json(&report))?;
    } else {
        output::print(&doctor::text(&report, output::bold()))?;
    }
    Ok(if report.is_clean() { Exit::Fine } else { Exit::Failed })
}

/// Undoes leftovers of killed runs before another run begins, and reports them.
pub(crate) fn tidy() {
    // If the folder cannot be read, the run itself detects and reports it.
    for left in ledger::sweep(&ledger::state_directory()).unwrap_or_default() {
        output::complain(&Problem::warning(format!("leftover of an earlier run: {left}")).render());
    }
}
