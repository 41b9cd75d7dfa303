//! Jobs that are other people's programs: they are run where they are installed, and their results are read.
//!
//! A program has a process group of its own, so that a signal can end it with all its children, by its number.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Between two looks at whether it has ended.
const TICK: Duration = Duration::from_millis(20);

/// Names and values of what a program measured.
pub type Figures = Vec<(String, f64)>;

/// A program and its arguments.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// The Debian package that has it.
    pub package: &'static str,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What of its output is a result.
    pub import: fn(&str) -> Result<Figures, String>,
}

/// What a program did.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Its command line.
    pub command: Vec<String>,
    /// When it was started.
    pub started: SystemTime,
    /// From its start to its end.
    pub elapsed: Duration,
    /// What it measured.
    pub figures: Figures,
    /// A signal ended it early.
    pub interrupted: bool,
}

/// Why there is no result of a program.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is not there.
    #[error("`{name}` is not installed: apt-get install {package}")]
    Missing {
        /// Its name.
        name: &'static str,
        /// What has it.
        package: &'static str,
    },
    /// It could not be run.
    #[error("cannot run `{name}`: {source}")]
    Start {
        /// Its name.
        name: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// It failed.
    #[error("`{command}` failed ({status}): {message}")]
    Failed {
        /// What was run.
        command: String,
        /// How it ended.
        status: String,
        /// The end of what it said.
        message: String,
    },
    /// Its output is not understood.
    #[error("the output of `{name}` is not understood: {message}")]
    Output {
        /// Its name.
        name: &'static str,
        /// Where reading it failed.
        message: String,
    },
}

/// Reads all that a program says, so that it never waits for a reader.
fn reader(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before a failure is worth having.
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

fn text_of(reader: JoinHandle<Vec<u8>>) -> String {
    String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
}

/// Ends a process group by its number. Every shell has this `kill`, and it takes groups.
fn end_group(group: u32) {
    // A group that has gone meanwhile needs no end.
    let _ = Command::new("sh").arg("-c").arg(format!("kill -TERM -{group}")).stderr(Stdio::null()).status();
}

impl Program {
    /// Its command line.
    pub fn command(&self) -> Vec<String> {
        std::iter::once(self.name.to_owned()).chain(self.arguments.iter().cloned()).collect()
    }

    /// Runs it to its end, or to that of the user's patience.
    ///
    /// # Errors
    /// If it is not installed, fails, or says what nobody understands.
    pub fn run(&self) -> Result<Ran, ProgramError> {
        let started = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => ProgramError::Missing { name: self.name, package: self.package },
            _ => ProgramError::Start { name: self.name, source },
        };
        let _signals = iowhy_live::signal::Guard::take();
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
                    end_group(child.id());
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
