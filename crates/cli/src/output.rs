//! Input and output of a verb: its arguments, standard output and standard error, without panics when a reader stops
//! early.

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use iowhy_live::guard::{Output, OutputError};
use iowhy_text::diagnose::{Problem, Problems};
use serde_json::Value;

/// The arguments of a verb that parses them itself. An argument that is not UTF-8 is a problem.
pub(crate) fn words(arguments: &[OsString], problems: &mut Problems) -> Vec<String> {
    let mut words = Vec::new();
    for argument in arguments {
        match argument.to_str() {
            Some(word) => words.push(word.to_owned()),
            None => problems.push(Problem::error(format!("`{}` is not UTF-8", argument.to_string_lossy()))),
        }
    }
    words
}

/// How a command ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Fine,
    /// A check failed.
    Failed,
    /// A usage or input error.
    Usage,
    /// Not enough evidence to decide.
    Inconclusive,
    /// Done and stored, but some clean-up failed.
    Unclean,
    /// The machine failed: a full disk, an I/O error, a denied facility.
    Machine,
    /// A signal ended it: 128 and its number.
    Signal(u8),
    /// For `git bisect run`: this commit cannot be tested.
    Skip,
    /// For `git bisect run`: the bisection cannot continue.
    Abort,
}

impl Exit {
    /// For the process.
    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Exit::Fine => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Inconclusive => 3,
            Exit::Unclean => 4,
            Exit::Machine => 5,
            Exit::Signal(code) => code,
            Exit::Skip => 125,
            Exit::Abort => 128,
        })
    }

    /// The exit code for `git bisect run`, where 1 to 124 mark a commit as bad.
    pub(crate) fn for_bisection(self) -> Exit {
        match self {
            Exit::Usage | Exit::Machine | Exit::Signal(_) => Exit::Abort,
            Exit::Inconclusive => Exit::Skip,
            Exit::Unclean => Exit::Fine,
            Exit::Fine | Exit::Failed | Exit::Skip | Exit::Abort => self,
        }
    }

    /// The exit code for an error: a machine failure, or a usage error.
    pub(crate) fn of_error(error: &anyhow::Error) -> Exit {
        let error = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
        let machine = error.is_some_and(|error| match error.kind() {
            ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::OutOfMemory
            | ErrorKind::PermissionDenied
            | ErrorKind::ResourceBusy
            | ErrorKind::TimedOut => true,
            // EIO, ENFILE, EMFILE.
            _ => matches!(error.raw_os_error(), Some(5 | 23 | 24)),
        });
        if machine { Exit::Machine } else { Exit::Usage }
    }

    /// The exit code after a signal, and after incomplete clean-up.
    pub(crate) fn with(self, signal: Option<u8>, unclean: bool) -> Exit {
        match (self, signal) {
            (Exit::Failed | Exit::Usage | Exit::Machine, Some(code)) => Exit::Signal(code),
            (Exit::Fine, _) if unclean => Exit::Unclean,
            _ => self,
        }
    }
}

/// Begins an output file of a verb. A file that may not be written is a usage error, and the command ends there.
pub(crate) fn begin(path: &Path, force: bool) -> anyhow::Result<Result<Output, Exit>> {
    match Output::create(path, force) {
        Ok(out) => Ok(Ok(out)),
        Err(OutputError::Refused(refused)) => {
            complain(&Problem::error(refused.to_string()).render());
            Ok(Err(Exit::Usage))
        }
        Err(error) => Err(error.into()),
    }
}

/// Prints `text`. A closed pipe is not a failure.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(text.as_bytes())
}

/// Prints bytes that need not be text.
pub(crate) fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write to standard output"),
        _ => Ok(()),
    }
}

/// Prints one JSON object.
pub(crate) fn print_json(value: &Value) -> anyhow::Result<()> {
    print(&format!("{value:#}\n"))
}

/// Prints `text` to standard error. A closed standard error is ignored.
pub(crate) fn complain(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// The codes for bold words on a terminal, empty elsewhere.
pub(crate) fn bold() -> fn(&str) -> String {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if std::io::stdout().is_terminal() && !plain { |text| format!("\x1b[1m{text}\x1b[0m") } else { str::to_owned }
}
