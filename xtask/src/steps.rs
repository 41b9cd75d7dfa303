//! Steps of a check, the programs they need, and what failed.

use crate::{Outcome, cargo};
use std::process::Command;

/// Steps that failed, with what a person needs to know.
#[derive(Default)]
pub(crate) struct Steps {
    failed: Vec<String>,
}

impl Steps {
    /// One step.
    pub(crate) fn run(&mut self, name: &str, command: &mut Command) {
        eprintln!("xtask: {name}");
        match command.status() {
            Ok(status) if status.success() => {}
            Ok(status) => self.failed.push(format!("{name}: {status}")),
            Err(error) => self.failed.push(format!("{name}: could not be started: {error}")),
        }
    }

    /// A step that failed without a program.
    pub(crate) fn fail(&mut self, name: &str, why: &str) {
        self.failed.push(format!("{name}: {why}"));
    }

    /// A step that cannot be taken, which is a failure under `CI=true`.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        let text = format!("{name}: SKIPPED, {why}");
        if in_ci() {
            self.failed.push(text);
        } else {
            eprintln!("xtask: {text}");
        }
    }

    /// Runs a cargo subcommand that is a separate component of the toolchain.
    fn component(&mut self, name: &str, component: &str, arguments: &[&str]) {
        let present = cargo().args([arguments[0], "--version"]).output().is_ok_and(|output| output.status.success());
        if present {
            self.run(name, cargo().args(arguments));
        } else {
            self.skip(name, &format!("not installed: rustup component add {component}"));
        }
    }

    /// Formatting and clippy.
    pub(crate) fn lint(&mut self) {
        self.component("formatting", "rustfmt", &["fmt", "--all", "--check"]);
        self.component(
            "clippy",
            "clippy",
            &["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"],
        );
    }

    /// Takes what failed in other steps.
    pub(crate) fn absorb(&mut self, other: Steps) {
        self.failed.extend(other.failed);
    }

    /// The result of all of them.
    pub(crate) fn end(self) -> Outcome {
        if self.failed.is_empty() { Ok(()) } else { Err(format!("xtask: FAILED\n  {}", self.failed.join("\n  "))) }
    }
}

pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

/// Whether a program is where programs are, those for administrators included.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(std::path::PathBuf::from));
    folders.into_iter().any(|folder| folder.join(program).is_file())
}

pub(crate) fn none(arguments: &[String]) -> Outcome {
    if arguments.is_empty() { Ok(()) } else { Err(format!("no arguments wanted: {}", arguments.join(" "))) }
}
