//! Jobs that are other people's programs: they are run where they are installed, and their results are read.
//!
//! A program has a process group of its own, so that a signal can end it with all its children, by its number.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use iowhy_live::disk::Spec;
use iowhy_live::free_memory;
use iowhy_live::machine::{Disk, Machine};
use iowhy_text::diagnose::Problem;
use serde_json::{Map, json};

use super::backend::{Audience, Backend, Making, Note, Refusal, RunRecord, Shared};
use super::metrics::Metrics;
use super::{LIVE, own_disk, record};
use crate::on_kernel;
use crate::store::NewRun;

/// Between two looks at whether it has ended.
const TICK: Duration = Duration::from_millis(20);

/// Names and values of what a program measured.
pub type Figures = Vec<(String, f64)>;

/// A program and its arguments.
#[derive(Clone, Debug)]
pub struct Program {
    pub name: &'static str,
    /// The Debian package that has it.
    pub package: &'static str,
    pub arguments: Vec<String>,
    /// Parses the results in its output.
    pub import: fn(&str) -> Result<Figures, String>,
}

/// A run of a program.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Its command line.
    pub command: Vec<String>,
    /// When it was started.
    pub started: SystemTime,
    /// From its start to its end.
    pub elapsed: Duration,
    /// Its measurements.
    pub figures: Figures,
    /// A signal ended it early.
    pub interrupted: bool,
}

/// Why a program has no result.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is not there.
    #[error("`{name}` is not installed: apt-get install {package}")]
    Missing {
        name: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// It could not be run.
    #[error("cannot run `{name}`: {source}")]
    Start {
        name: &'static str,
        /// Why not.
        source: io::Error,
    },
    #[error("`{command}` failed ({status}): {message}")]
    Failed {
        command: String,
        /// How it ended.
        status: String,
        /// The end of its output.
        message: String,
    },
    /// Its output is not understood.
    #[error("the output of `{name}` is not understood: {message}")]
    Output {
        name: &'static str,
        /// Where reading it failed.
        message: String,
    },
}

/// Reads all of a program's output, so that it never waits for a reader.
fn reader(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Figures read before a failure are worth having.
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

fn text_of(reader: JoinHandle<Vec<u8>>) -> String {
    String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
}

/// Ends a process group by its number. Every shell has this `kill`, and it takes groups.
pub(super) fn end_group(group: u32, signal: &str) {
    // A group that has gone meanwhile needs no end.
    let _ = Command::new("sh").arg("-c").arg(format!("kill -{signal} -{group}")).stderr(Stdio::null()).status();
}

impl Program {
    /// Its command line.
    pub fn command(&self) -> Vec<String> {
        std::iter::once(self.name.to_owned()).chain(self.arguments.iter().cloned()).collect()
    }

    /// Runs it to its end, or to that of the user's patience.
    ///
    /// # Errors
    /// If it is not installed, fails, or its output cannot be parsed.
    pub fn run(&self) -> Result<Ran, ProgramError> {
        let started = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => ProgramError::Missing { name: self.name, package: self.package },
            _ => ProgramError::Start { name: self.name, source },
        };
        let _signals = iowhy_live::signal::Guard::take();
        free_memory::touch(free_memory::OF_A_COMMAND);
        let (clock, started_at) = (Instant::now(), SystemTime::now());
        let mut child = Command::new(self.name)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(started)?;
        let [out, err] = [child.stdout.take().map(reader), child.stderr.take().map(reader)];
        let mut interrupted = false;
        let status = loop {
            match child.try_wait().map_err(started)? {
                Some(status) => break status,
                None if iowhy_live::signal::raised() && !interrupted => {
                    interrupted = true;
                    end_group(child.id(), "TERM");
                }
                None => std::thread::sleep(TICK),
            }
        };
        let elapsed = clock.elapsed();
        let [text, said] = [out, err].map(|reader| reader.map_or_else(String::new, text_of));
        let command = self.command();
        if interrupted {
            let figures = (self.import)(&text).unwrap_or_default();
            return Ok(Ran { command, started: started_at, elapsed, figures, interrupted });
        }
        if !status.success() {
            let lines: Vec<&str> = said.lines().rev().take(3).collect();
            let message = lines.into_iter().rev().collect::<Vec<_>>().join("; ");
            return Err(ProgramError::Failed { command: command.join(" "), status: status.to_string(), message });
        }
        let figures = (self.import)(&text).map_err(|message| ProgramError::Output { name: self.name, message })?;
        Ok(Ran { command, started: started_at, elapsed, figures, interrupted })
    }
}

/// An installed program on the running kernel.
#[derive(Clone, Debug)]
pub struct Installed {
    pub program: Program,
    /// The disk that is made for each run.
    pub modelled: Option<Spec>,
}

impl Backend for Installed {
    fn make(&self, making: &Making<'_>, _shared: &mut Shared) -> Result<RunRecord, Refusal> {
        let modelled = own_disk::hold(self.modelled.as_ref(), making.seed)?;
        let ran = self.program.run()?;
        own_disk::end(modelled)?;
        let early = if ran.interrupted { ", ended early by a signal" } else { "" };
        let mut detail = format!("{:.3} s{early}\n\n", ran.elapsed.as_secs_f64());
        ran.figures.iter().for_each(|(name, value)| detail.push_str(&format!("{name:<24}{value:.1}\n")));
        let command = ran.command.join(" ");
        let ended = || Problem::warning("a signal ended the run early");
        let row = || NewRun {
            resolved: Some(command.clone()),
            ..record::of_machine(&Machine::read(), &Disk::below(&making.request.folder.path))
        };
        Ok(RunRecord {
            metrics: metrics(&ran),
            place: LIVE.to_owned(),
            made_on: format!("live, {}: {command}", on_kernel::machine::kernel()),
            detail,
            more: Map::from_iter([(
                "live".to_owned(),
                json!({ "interrupted": ran.interrupted, "command": ran.command }),
            )]),
            began: ran.started.duration_since(std::time::UNIX_EPOCH).ok(),
            notes: ran.interrupted.then(|| Note { problem: ended(), audience: Audience::Store }).into_iter().collect(),
            interrupted: ran.interrupted,
            row: making.store.map(|_| Ok(Box::new(row()))),
            ..RunRecord::default()
        })
    }

    fn uses_folder(&self) -> bool {
        self.modelled.is_none()
    }
}

impl From<ProgramError> for Refusal {
    fn from(error: ProgramError) -> Refusal {
        Refusal::new(error)
    }
}

/// Figures measured by another program. Its own names stay; those that every run has are there, too.
fn metrics(ran: &Ran) -> Metrics {
    let elapsed = ran.elapsed.as_secs_f64();
    let mut metrics = vec![("elapsed_s".to_owned(), elapsed), ("mean_process_elapsed_s".to_owned(), elapsed)];
    let iops = ran.figures.iter().find(|(name, _)| matches!(name.as_str(), "seeks_per_s" | "tps"));
    metrics.push(("iops".to_owned(), iops.map_or(0.0, |(_, value)| *value)));
    metrics.extend(ran.figures.iter().cloned());
    metrics
}
