//! `web`: the page of `iowhy report`. Its types, lint and unit tests, whether what is committed was built from its
//! sources, and the tests in Chromium: the page with samples of its own, and every report that iowhy's own tests kept.
//!
//! Pictures of all pages, light and dark, are left next to the reports, in `tmp/reports` of the target folder.

use std::path::PathBuf;
use std::process::Command;

use crate::steps::{Steps, is_installed, none};
use crate::{Outcome, root, target_folder};

/// Where iowhy's tests keep the reports they made.
pub(crate) fn kept() -> PathBuf {
    target_folder().join("tmp/reports")
}

/// Incidents whose runs take minutes in the tests' build: nobody makes their reports there.
const LONG: &[&str] =
    &["2022-wbt-write-cache", "2024-flush-before-zeroing", "2024-plug-merge-end", "2024-plug-per-bio"];

/// Reports of incidents that the tests did not keep.
fn lacking() -> Result<Vec<&'static str>, String> {
    let known = iowhy_lab::incident::list().map_err(|error| error.to_string())?;
    let ids =
        known.iter().filter(|incident| incident.modelled).map(|incident| incident.id).filter(|id| !LONG.contains(id));
    Ok(ids.filter(|id| !kept().join(format!("{id}.html")).is_file()).collect())
}

/// A program in the folder of the page.
fn here(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root().join("web")).args(arguments);
    command
}

/// All steps. With `reports`, every incident has to have left a report.
pub(crate) fn steps(steps: &mut Steps, reports: bool) {
    let missing: Vec<&str> = ["node", "npm", "chromium"].into_iter().filter(|program| !is_installed(program)).collect();
    if !missing.is_empty() {
        steps.skip("page", &format!("not installed: {}", missing.join(", ")));
        return;
    }
    // The lock file names the packages of other platforms, too, whether or not a registry has them.
    let install = ["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
    steps.run("page: packages", &mut here("npm", &install));
    steps.run("page: built from its sources", &mut here("node", &["build.mjs", "--check"]));
    steps.run("page: types and lint", &mut here("npm", &["run", "--silent", "check"]));
    steps.run("page: unit tests", &mut here("npm", &["test", "--silent"]));
    match lacking() {
        Ok(lacking) if lacking.is_empty() || !reports => {}
        Ok(lacking) => steps.fail("page", &format!("the tests kept no report of {}", lacking.join(", "))),
        Err(message) => steps.fail("page", &message),
    }
    let mut browser = here("node", &["tests/browser.mjs", "--failures", "--out"]);
    browser.arg(kept().join("pages"));
    if kept().is_dir() {
        browser.arg("--reports").arg(kept());
    }
    // Built for its own tests.
    let iowhy = target_folder().join("debug/iowhy");
    if iowhy.is_file() {
        browser.arg("--iowhy").arg(iowhy);
    } else {
        steps.skip("page: served", "iowhy is not built: cargo build");
    }
    steps.run("page: in Chromium", &mut browser);
}

/// The command.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    none(arguments)?;
    let mut all = Steps::default();
    steps(&mut all, false);
    all.end()
}
