//! Steps of a check, the programs they need, and what failed.

use crate::{Outcome, cargo};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longest time of a step: what hangs is to be named while there is still somebody who reads it.
const PATIENCE: Duration = Duration::from_mins(45);
/// Longest time of a build: a cold one takes a quarter of it.
const BUILD: Duration = Duration::from_mins(20);
/// Longest time in which a killed process is expected to be gone.
const GONE: Duration = Duration::from_secs(30);

/// Steps that failed, with what a person needs to know.
#[derive(Default)]
pub(crate) struct Steps {
    failed: Vec<String>,
}

impl Steps {
    /// One step.
    pub(crate) fn run(&mut self, name: &str, command: &mut Command) {
        if let Err(why) = timed(name, command, PATIENCE) {
            self.failed.push(format!("{name}: {why}"));
        }
    }

    /// A build, which may be a download first. One that hangs is ended, and the next step that needs it goes on with
    /// what there is: its result is the one that counts.
    pub(crate) fn build(name: &str, command: &mut Command) {
        if let Err(why) = timed(name, command, BUILD) {
            eprintln!("xtask: {name}: {why}");
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

/// Runs a step and says how long it took and how much of the disk is left, as a full one fails in many ways; what went
/// wrong.
fn timed(name: &str, command: &mut Command, patience: Duration) -> Outcome {
    eprintln!("xtask: {name}");
    let started = Instant::now();
    let ended = command.spawn().and_then(|child| wait(child, patience));
    let left = rustix::fs::statvfs(crate::root()).map_or(0, |disk| (disk.f_bavail * disk.f_frsize) >> 20);
    eprintln!("xtask: {name}: {:.0} s, {left} MiB left on the disk", started.elapsed().as_secs_f64());
    match ended {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(status.to_string()),
        Ok(Err(processes)) => Err(format!("did not end within {patience:?}; its processes:\n{processes}")),
        Err(error) => Err(format!("could not be started: {error}")),
    }
}

/// Waits for the end. If that is not in sight, the child and the processes below it are stopped, ended and waited for:
/// the list of them, with their states and what they wait for, belongs at the end of the output, which is kept longest.
pub(crate) fn wait(mut child: Child, patience: Duration) -> std::io::Result<Result<ExitStatus, String>> {
    let started = Instant::now();
    while started.elapsed() < patience {
        if let Some(status) = child.try_wait()? {
            return Ok(Ok(status));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut found = vec![child.id().to_string()];
    let mut processes = String::new();
    // One that is not stopped yet may start another behind the back of `ps`.
    loop {
        Command::new("kill").arg("-STOP").args(&found).stderr(Stdio::null()).status()?;
        let before = found.len();
        processes.extend(below(&mut found)?);
        if found.len() == before {
            break;
        }
    }
    Command::new("kill").arg("-KILL").args(&found).stderr(Stdio::null()).status()?;
    child.wait()?;
    // Until a write has ended, its process may add to a folder that the next one wants to be empty.
    let killed = Instant::now();
    while found.iter().any(|process| is_alive(process)) && killed.elapsed() < GONE {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(Err(processes))
}

/// Adds the processes below those found; returns their lines.
fn below(found: &mut Vec<String>) -> std::io::Result<Vec<String>> {
    let output = Command::new("ps").args(["-eo", "pid,ppid,stat,etimes,wchan:32,args"]).output()?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let of = |line: &str, column: usize| line.split_whitespace().nth(column).unwrap_or_default().to_owned();
    let (mut nr, mut lines) = (0, Vec::new());
    while nr < found.len() {
        for line in listed.lines().filter(|line| of(line, 1) == found[nr]).collect::<Vec<_>>() {
            if !found.contains(&of(line, 0)) {
                lines.push(format!("    {line}\n"));
                found.push(of(line, 0));
            }
        }
        nr += 1;
    }
    Ok(lines)
}

/// A process that has ended may be listed until its parent notices.
fn is_alive(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !stat.is_empty() && ![") Z ", ") X "].iter().any(|state| stat.contains(state))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_does_not_end_is_ended_with_all_that_it_has_started() {
        let quick = Command::new("true").spawn().expect("true starts");
        assert!(wait(quick, PATIENCE).expect("it ends").is_ok_and(|status| status.success()));
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", "sleep 1000 & echo $!; wait"]).stdout(std::process::Stdio::piped()).spawn();
        let mut line = String::new();
        let out = child.as_mut().expect("sh starts").stdout.take().expect("a pipe");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("a number");
        assert!(wait(child.expect("sh starts"), Duration::ZERO).expect("ps and kill start").is_err());
        assert!(!is_alive(line.trim()));
    }
}
