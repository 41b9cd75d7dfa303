//! Input and output of a verb: its words, standard output and standard error, without panics: readers may stop at any
//! time.

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use iowhy_compare::text::Style;
use iowhy_live::guard::{Output, OutputError};
use iowhy_text::diagnose::{Problem, Problems, Severity};
use serde_json::{Value, json};

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

/// The look of the output.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Look {
    /// Colours: always, never, or on a terminal.
    pub(crate) colour: Option<bool>,
    /// Neither progress nor warnings.
    pub(crate) quiet: bool,
    /// The answer without its details.
    pub(crate) brief: bool,
    /// An error is a JSON object.
    pub(crate) json: bool,
}

/// Set once, by `main`.
static LOOK: OnceLock<Look> = OnceLock::new();
/// Errors of this command, for the JSON object.
static ERRORS: Mutex<Vec<Problem>> = Mutex::new(Vec::new());
/// Whether standard output has got anything.
static PRINTED: AtomicBool = AtomicBool::new(false);

pub(crate) fn set_look(look: Look) {
    LOOK.get_or_init(|| look);
}

pub(crate) fn look() -> Look {
    LOOK.get().copied().unwrap_or_default()
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
        ExitCode::from(self.number())
    }

    pub(crate) fn number(self) -> u8 {
        match self {
            Exit::Fine => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Inconclusive => 3,
            Exit::Unclean => 4,
            Exit::Machine => 5,
            Exit::Signal(code) | Exit::Command(code) => code,
            Exit::Skip => 125,
            Exit::Abort => 128,
        }
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
            report(Problem::error(refused.to_string()));
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
    PRINTED.store(true, Ordering::Relaxed);
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

/// Prints a problem to standard error; an error is kept for the JSON object, and `--quiet` leaves warnings out.
pub(crate) fn report(problem: Problem) {
    report_all(Problems { list: vec![problem] });
}

/// The same with several.
pub(crate) fn report_all(problems: impl std::borrow::Borrow<Problems>) {
    let (quiet, problems) = (look().quiet, problems.borrow());
    let shown = |problem: &&Problem| match problem.severity {
        Severity::Error => true,
        Severity::Warning => !quiet,
        Severity::Note => false,
    };
    for problem in problems.list.iter().filter(shown) {
        complain(&problem.render());
    }
    let errors = problems.list.iter().filter(|problem| problem.severity == Severity::Error).cloned();
    ERRORS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(errors);
}

/// With `--json`, a command that ends in an error and has printed nothing prints its errors as an object.
pub(crate) fn print_errors(exit: Exit) {
    if !look().json || exit == Exit::Fine || PRINTED.load(Ordering::Relaxed) {
        return;
    }
    let place = |span: &iowhy_text::diagnose::Span| json!({ "text": span.text, "start": span.start, "end": span.end });
    let errors = ERRORS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let problems: Vec<Value> = errors
        .iter()
        .map(|problem| {
            json!({
                "message": problem.message,
                "where": problem.span.as_ref().map(place),
                "nearest": problem.nearest,
                "try": problem.help,
            })
        })
        .collect();
    // What cannot be printed has no reader.
    let _ = print_json(&json!({ "schema": "iowhy.error/1", "exit": exit.number(), "problems": problems }));
}

/// Progress of long work. On a terminal it is a bar with the name of the work and the time that is left; elsewhere a
/// line on standard error every 30 s. It ends with its value.
pub(crate) struct Bar {
    bar: ProgressBar,
    lines: Option<(Sender<()>, JoinHandle<()>)>,
}

/// Time between two lines off a terminal.
const EVERY: Duration = Duration::from_secs(30);

impl Bar {
    /// `work` names what runs; `unit` what is counted.
    pub(crate) fn new(work: &str, unit: &str, hidden: bool) -> Bar {
        let hidden = hidden || look().quiet;
        let terminal = std::io::stderr().is_terminal();
        let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_message(work.to_owned());
        bar.set_prefix(unit.to_owned());
        bar.set_style(Bar::style("{spinner} {pos} of {len} {prefix}, {elapsed}, {eta} left {bar:20} {wide_msg}"));
        if !hidden && terminal {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        let lines = (!hidden && !terminal).then(|| Bar::lines(bar.clone(), unit.to_owned()));
        Bar { bar, lines }
    }

    /// The name takes what the other fields leave: the line does not wrap.
    fn style(template: &str) -> ProgressStyle {
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
    }

    fn lines(bar: ProgressBar, unit: String) -> (Sender<()>, JoinHandle<()>) {
        let (stop, stopped) = mpsc::channel();
        let since = Instant::now();
        let write = move || {
            while stopped.recv_timeout(EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                let of = bar.length().map_or(String::new(), |of| format!(" of {of}"));
                let (at, seconds) = (bar.position(), since.elapsed().as_secs());
                complain(&format!("{}: {at}{of} {unit} after {seconds} s\n", bar.message()));
            }
        };
        (stop, std::thread::spawn(write))
    }

    /// Moves it to `done` of `of`.
    pub(crate) fn advance(&self, done: u64, of: u64) {
        self.bar.set_length(of);
        self.bar.set_position(done);
    }

    /// One more of a number that is not known.
    pub(crate) fn count(&self) {
        self.bar.inc(1);
        self.bar.set_style(Bar::style("{spinner} {pos} {prefix}, {elapsed} {wide_msg}"));
    }

    /// Names what runs now; how much there is of it is not known.
    pub(crate) fn name(&self, work: String) {
        self.bar.set_message(work);
        self.bar.set_style(Bar::style("{spinner} {elapsed} {wide_msg}"));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        if let Some((stop, lines)) = self.lines.take() {
            drop(stop);
            let _ = lines.join();
        }
    }
}

/// Makes words bold where there are colours, and leaves them alone elsewhere.
pub(crate) fn bold() -> fn(&str) -> String {
    let plain = || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colour = look().colour.unwrap_or_else(|| std::io::stdout().is_terminal() && !plain());
    if colour { |text| format!("\x1b[1m{text}\x1b[0m") } else { str::to_owned }
}

/// Colours where bold words are wanted, too.
pub(crate) fn style() -> Style {
    Style { colour: !bold()("").is_empty(), verbose: false }
}
