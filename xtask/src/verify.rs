//! `test` and `check`.
//!
//! Tests run in the dev profile, where `iowhy-stack` is optimised and assertions are on. A tool that is missing is
//! named with what to install, and its step is skipped; under `CI=true` a skipped step is a failure.

use crate::{Outcome, cargo, tidy};
use std::process::Command;

/// Steps that failed, with what a person needs to know.
#[derive(Default)]
struct Steps {
    failed: Vec<String>,
}

impl Steps {
    fn run(&mut self, name: &str, command: &mut Command) {
        eprintln!("xtask: {name}");
        match command.status() {
            Ok(status) if status.success() => {}
            Ok(status) => self.failed.push(format!("{name}: {status}")),
            Err(error) => self.failed.push(format!("{name}: could not be started: {error}")),
        }
    }

    /// Runs a cargo subcommand that is a separate component of the toolchain.
    fn component(&mut self, name: &str, component: &str, arguments: &[&str]) {
        let present = cargo().args([arguments[0], "--version"]).output().is_ok_and(|output| output.status.success());
        if present {
            self.run(name, cargo().args(arguments));
        } else {
            let text = format!("{name}: SKIPPED, not installed: rustup component add {component}");
            if std::env::var("CI").is_ok_and(|ci| ci == "true") {
                self.failed.push(text);
            } else {
                eprintln!("xtask: {text}");
            }
        }
    }

    fn lint(&mut self) {
        self.component("formatting", "rustfmt", &["fmt", "--all", "--check"]);
        self.component(
            "clippy",
            "clippy",
            &["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"],
        );
    }

    fn end(self) -> Outcome {
        if self.failed.is_empty() { Ok(()) } else { Err(format!("xtask: FAILED\n  {}", self.failed.join("\n  "))) }
    }
}

/// Everything. `tidy` is one of xtask's own tests, so that plain `cargo test --workspace` has it too.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    none(arguments)?;
    let mut steps = Steps::default();
    steps.run("tests", cargo().args(["test", "--workspace", "--locked", "--no-fail-fast"]));
    steps.lint();
    steps.end()
}

/// Everything but the tests.
pub(crate) fn check(arguments: &[String]) -> Outcome {
    none(arguments)?;
    let mut steps = Steps::default();
    steps.lint();
    if let Err(message) = tidy::run(&[]) {
        steps.failed.push(message);
    }
    steps.end()
}

fn none(arguments: &[String]) -> Outcome {
    if arguments.is_empty() { Ok(()) } else { Err(format!("no arguments wanted: {}", arguments.join(" "))) }
}
