//! Input and output of a verb: its words, standard output and standard error, without panics: readers may stop at any
//! time.

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use iowhy_compare::text::Style;
use iowhy_live::guard::{Output, OutputError};
use iowhy_text::diagnose::{Problem, Problems};
use serde_json::Value;

/// The words behind a verb that reads them itself. Bytes that are not UTF-8 are a problem.
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
    /// As it should.
    Fine,
    /// A check failed.
    Failed,
    /// The request makes no sense, or could not be read.
    Usage,
    /// There is not enough evidence to say.
    Inconclusive,
    /// Done and kept, but something could not be cleaned up.
    Unclean,
    /// The machine failed: a full disk, an I/O error, something it denies.
    Machine,
    /// A signal ended it: 128 and its number.
    Signal(u8),
    /// A command of the user failed with this code.
    Command(u8),
    /// For `git bisect run`: this commit cannot be tested.
    Skip,
    /// For `git bisect run`: the bisection makes no sense.
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
            Exit::Signal(code) | Exit::Command(code) => code,
            Exit::Skip => 125,
            Exit::Abort => 128,
        })
    }

    /// The same for `git bisect run`, to which 1 to 124 say that a commit is bad.
    pub(crate) fn for_bisection(self) -> Exit {
        match self {
            Exit::Usage | Exit::Machine | Exit::Signal(_) | Exit::Command(_) => Exit::Abort,
            Exit::Inconclusive => Exit::Skip,
            Exit::Unclean => Exit::Fine,
            Exit::Fine | Exit::Failed | Exit::Skip | Exit::Abort => self,
        }
    }

    /// Of a command that an error ended: the machine's, or a mistake in the request.
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

    /// Its value after a signal, or with leftovers that could not be cleaned up.
    pub(crate) fn with(self, signal: Option<u8>, unclean: bool) -> Exit {
        match (self, signal) {
            (Exit::Failed | Exit::Usage | Exit::Machine, Some(code)) => Exit::Signal(code),
            (Exit::Fine, _) if unclean => Exit::Unclean,
            _ => self,
        }
    }
}

/// Begins a file for what a verb yields. One that may not be written is a mistake, and the command ends there.
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

/// Prints `text`. A reader that has gone away has seen enough: that is not a failure.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(text.as_bytes())
}

/// The same with bytes that need not be text.
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

/// Prints `text` to standard error. Without a listener it writes nothing.
pub(crate) fn complain(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// A progress bar, drawn by a template of `indicatif`. It appears on a terminal only, and not with `--json`; the caller
/// clears it.
pub(crate) fn bar(template: &str, hidden: bool) -> ProgressBar {
    let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    if template.contains("{spinner}") {
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    bar
}

/// Moves a bar to `done` of `of`.
pub(crate) fn advance(bar: &ProgressBar, done: u64, of: u64) {
    bar.set_length(of);
    bar.set_position(done);
}

/// Makes words bold on a terminal, and leaves them alone elsewhere.
pub(crate) fn bold() -> fn(&str) -> String {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if std::io::stdout().is_terminal() && !plain { |text| format!("\x1b[1m{text}\x1b[0m") } else { str::to_owned }
}

/// Colours where bold words are wanted, too.
pub(crate) fn style() -> Style {
    Style { colour: !bold()("").is_empty() }
}
