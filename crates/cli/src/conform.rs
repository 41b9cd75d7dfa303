//! `iowhy conform`.

use std::path::Path;

use iowhy_lab::{conform, golden};

use crate::output::{self, Exit};

/// Compares the models with the vectors in a folder.
pub(crate) fn run(folder: &Path, json: bool) -> anyhow::Result<Exit> {
    let report = golden::check_folder(folder)?;
    if json {
        output::print_json(&conform::json(&report))?;
    } else {
        output::print(&conform::text(&report, output::bold()))?;
    }
    Ok(if report.all_matched() { Exit::Fine } else { Exit::Failed })
}
