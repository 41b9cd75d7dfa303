//! Commands of the user: `iowhy run -- './old args' -- './new args'`.
//!
//! ```text
//! shell        a command of one word is given to `sh -c`; one of several words is run as it is
//! calibration  before the first run, the mean of 20 empty shells; it is subtracted from wall, user and system time
//! hooks        --setup before all runs of a command, --prepare before each, --cleanup after all; not in its time
//! output       through a pipe, so that no program sees /dev/null and saves its work; the last 64 KiB are kept for a
//!              failure; with --show-output on standard error
//! signals      a command has a process group of its own, which is ended
//! ```
//! Time is that of the clock from fork to exit; the rest is the kernel's resource usage of the command and of all
//! children that it has waited for. The habits are those of hyperfine.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use iowhy_live::capture::{Captured, Level};
use iowhy_live::command::{Running, Usage};
use iowhy_live::free_memory;
use iowhy_live::machine::{Disk, Machine};
use iowhy_live::signal;
use iowhy_text::diagnose::{Problem, Severity};
use serde_json::{Map, Value, json};

use super::backend::{Audience, Backend, Making, Note, Refusal, RunRecord, Shared};
use super::metrics::Metrics;
use super::program::end_group;
use super::{LIVE, record};
use crate::on_kernel;
use crate::recording::{self, RecordError, Recorded};
use crate::store::{self, NewRun};

/// The end of a command's output that is kept.
const OUTPUT: usize = 64 << 10;
/// Between two looks at whether a signal has come.
const TICK: Duration = Duration::from_millis(20);
/// Time for a command to end itself when asked to.
const GRACE: Duration = Duration::from_secs(3);
/// How long the rest of the output of a command that has ended may take: what it started may keep the pipe.
const REST: Duration = Duration::from_millis(200);
/// Empty shells that are timed.
const SHELLS: u32 = 20;

/// A command that takes less than this many seconds should not be started by a shell.
const SHORT: f64 = 0.005;

/// A command with everything around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnCommand {
    /// As it was typed, with the values of its parameters.
    pub words: Vec<String>,
    /// Names and values of those.
    pub parameters: Vec<(String, String)>,
    pub setup: Option<String>,
    pub prepare: Option<String>,
    pub cleanup: Option<String>,
    pub show_output: bool,
    pub ignore_failure: bool,
}

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
enum OwnError {
    #[error("cannot start `{command}`: {error}")]
    Start { command: String, error: io::Error },
    #[error("{what} `{command}` failed ({status}); --ignore-failure takes it as a result{output}")]
    Failed { what: &'static str, command: String, status: String, output: String },
    #[error("`{command}` was interrupted")]
    Interrupted { command: String },
    #[error("the end of `{command}` was lost: somebody else waited for it")]
    Lost { command: String },
}

impl From<OwnError> for Refusal {
    fn from(error: OwnError) -> Refusal {
        Refusal { interrupted: matches!(error, OwnError::Interrupted { .. }), ..Refusal::new(error) }
    }
}

/// The output of a command, read while it runs.
struct Output {
    end: Arc<Mutex<VecDeque<u8>>>,
    done: Receiver<()>,
}

impl Output {
    fn of(mut pipe: impl Read + Send + 'static) -> Output {
        let end = Arc::new(Mutex::new(VecDeque::new()));
        let (kept, (tell, done)) = (Arc::clone(&end), channel());
        std::thread::spawn(move || {
            let mut buffer = vec![0; OUTPUT];
            while let Ok(n @ 1..) = pipe.read(&mut buffer) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend(&buffer[..n]);
                let over = kept.len().saturating_sub(OUTPUT);
                kept.drain(..over);
            }
            let _ = tell.send(());
        });
        Output { end, done }
    }

    fn text(&self) -> String {
        let _ = self.done.recv_timeout(REST);
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(end.make_contiguous()).into_owned()
    }
}

/// Ends the process group of a command when a signal comes.
struct Watchdog {
    group: Arc<AtomicU32>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    fn new() -> Watchdog {
        let (group, over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (watched, ended) = (Arc::clone(&group), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            let mut left = GRACE;
            let mut told = false;
            while !ended.load(Ordering::Relaxed) {
                std::thread::park_timeout(TICK);
                let group = watched.load(Ordering::Relaxed);
                if group == 0 || !signal::raised() || ended.load(Ordering::Relaxed) {
                    continue;
                }
                if !told || left.is_zero() {
                    end_group(group, if told { "KILL" } else { "TERM" });
                    told = true;
                }
                left = left.saturating_sub(TICK);
            }
        });
        Watchdog { group, over, thread: Some(thread) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It has no result.
            let _ = thread.join();
        }
    }
}

/// A command that has ended.
struct Ended {
    status: ExitStatus,
    usage: Usage,
    output: String,
    captured: Option<Captured>,
}

/// Whether a signal ends a command.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Signals {
    End,
    /// It clears up, and a signal may be the reason.
    Wait,
}

/// Runs a program to its end, or to that of the user's patience.
fn run(words: &[String], show: bool, trace: Option<Level>, signals: Signals) -> Result<Ended, Refusal> {
    let command = words.join(" ");
    let start_error = |error| OwnError::Start { command: command.clone(), error };
    let [program, arguments @ ..] = words else {
        return Err(start_error(io::ErrorKind::InvalidInput.into()).into());
    };
    let mut process = Command::new(program);
    process.args(arguments).stdin(Stdio::null()).process_group(0);
    let output = if show {
        process.stdout(io::stderr());
        None
    } else {
        let (reader, writer) = io::pipe().map_err(start_error)?;
        process.stdout(writer.try_clone().map_err(start_error)?).stderr(writer);
        Some(Output::of(reader))
    };
    let watchdog = (signals == Signals::End).then(Watchdog::new);
    let start = || {
        let running = Running::spawn(process)?;
        watchdog.iter().for_each(|watchdog| watchdog.group.store(running.pid, Ordering::Relaxed));
        Ok(running)
    };
    let (ended, captured) = match trace {
        None => (start().map_err(start_error)?.end(), None),
        Some(level) => {
            let request = recording::Request { level, command: words.to_vec(), ..recording::Request::default() };
            let failed = |error| RecordError::Command { program: program.clone(), error };
            let Recorded { captured, status, usage, .. } =
                recording::record_started(&request, || start().map(Some).map_err(failed), &mut |_| {})?;
            (status.zip(usage), Some(captured))
        }
    };
    drop(watchdog);
    if signals == Signals::End && signal::raised() {
        return Err(OwnError::Interrupted { command }.into());
    }
    let (status, usage) = ended.ok_or(OwnError::Lost { command })?;
    Ok(Ended { status, usage, output: output.map_or_else(String::new, |output| output.text()), captured })
}

/// The exit code of a shell for the same.
fn exit_code(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| 128 + signal);
    u8::try_from(status.code().or(signal).unwrap_or(1)).unwrap_or(1)
}

fn shell(command: &str) -> Vec<String> {
    ["sh", "-c", command].map(str::to_owned).to_vec()
}

/// Mean time of an empty shell, s: wall, user, system.
#[derive(Copy, Clone, Debug, Default)]
struct ShellTime([f64; 3]);

fn seconds(usage: &Usage) -> [f64; 3] {
    let [begun, ended] = usage.monotonic_ns;
    [ended.saturating_sub(begun), usage.user_ns, usage.system_ns].map(|ns| ns as f64 / 1e9)
}

impl ShellTime {
    fn measure() -> Result<ShellTime, Refusal> {
        let mut sum = [0.0; 3];
        for _ in 0..SHELLS {
            let ended = run(&shell(""), false, None, Signals::End)?;
            sum.iter_mut().zip(seconds(&ended.usage)).for_each(|(sum, one)| *sum += one);
        }
        Ok(ShellTime(sum.map(|sum| sum / f64::from(SHELLS))))
    }
}

impl OwnCommand {
    /// As people type it.
    pub fn text(&self) -> String {
        self.words.join(" ")
    }

    /// The program and its arguments.
    fn program(&self) -> Vec<String> {
        match self.words.as_slice() {
            [one] => shell(one),
            words => words.to_vec(),
        }
    }

    /// A command around the runs. Its failure ends all.
    fn hook(&self, what: &'static str, command: Option<&String>, signals: Signals) -> Result<(), Refusal> {
        let Some(command) = command else { return Ok(()) };
        let ended = run(&shell(command), self.show_output, None, signals)?;
        if ended.status.success() { Ok(()) } else { Err(failed(what, command, &ended)) }
    }

    fn metrics(ended: &Ended, shell: ShellTime) -> Metrics {
        let usage = &ended.usage;
        let times = seconds(usage);
        let net = |nr: usize| (times[nr] - shell.0[nr]).max(0.0);
        let [voluntary, involuntary] = usage.switches;
        let all = [
            ("elapsed_s", net(0)),
            ("user_s", net(1)),
            ("system_s", net(2)),
            ("minor_faults", usage.minor_faults as f64),
            ("major_faults", usage.major_faults as f64),
            ("read_bytes", usage.read_bytes as f64),
            ("written_bytes", usage.written_bytes as f64),
            ("voluntary_switches", voluntary as f64),
            ("involuntary_switches", involuntary as f64),
        ];
        all.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }
}

fn failed(what: &'static str, command: &str, ended: &Ended) -> Refusal {
    let output = match ended.output.trim_end() {
        "" => String::new(),
        output => format!("; its output:\n{output}"),
    };
    let (command, status) = (command.to_owned(), ended.status.to_string());
    let error = OwnError::Failed { what, command, status, output };
    Refusal { exit_code: Some(exit_code(ended.status)), ..Refusal::new(error) }
}

impl Backend for OwnCommand {
    fn make(&self, making: &Making<'_>, shared: &mut Shared) -> Result<RunRecord, Refusal> {
        let shell = match self.words.len() {
            1 => *shared.get(ShellTime::measure)?,
            _ => ShellTime::default(),
        };
        self.hook("the preparation", self.prepare.as_ref(), Signals::End)?;
        free_memory::touch(free_memory::OF_A_COMMAND);
        let began = SystemTime::now();
        let mut ended = run(&self.program(), self.show_output, making.trace(), Signals::End)?;
        if !ended.status.success() && !self.ignore_failure {
            return Err(failed("the command", &self.text(), &ended));
        }
        let disk = Disk::below(&making.request.folder.path);
        let metrics = OwnCommand::metrics(&ended, shell);
        let mut notes = Vec::new();
        if !ended.status.success() {
            let problem = Problem::warning(format!("`{}` failed ({}), which was ignored", self.text(), ended.status));
            notes.push(Note { problem, audience: Audience::Report });
        }
        let wall = metrics.first().map_or(0.0, |(_, elapsed)| *elapsed);
        if shell.0[0] > 0.0 && wall < SHORT {
            let text = format!("`{}` takes less than 5 ms, which the start of its shell blurs", self.text());
            let problem = Problem::warning(text).help("a program with its arguments as words, without quotes");
            notes.push(Note { problem, audience: Audience::Report });
        }
        let mut layers = json!({ "command": self.words, "exit_code": exit_code(ended.status) });
        let mut files = Vec::new();
        if let (Some(captured), Some(store)) = (ended.captured.take(), making.store) {
            let told = recording::complaints(&captured).list.into_iter();
            notes.extend(told.map(|problem| Note { problem, audience: Audience::Report }));
            layers[store::TRACE] = recording::json(&captured);
            files.push(store.keep_trace(&captured.trace));
        }
        let row = files.into_iter().collect::<Result<Vec<_>, _>>().map(|files| {
            Box::new(NewRun {
                resolved: Some(self.text()),
                layers: Some(layers),
                files,
                ..record::of_machine(&Machine::read(), &disk)
            })
        });
        let place: Vec<String> = [Some(on_kernel::machine::kernel()), disk.name, disk.filesystem, disk.queue.scheduler]
            .into_iter()
            .flatten()
            .collect();
        let parameters: Map<String, Value> =
            self.parameters.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        Ok(RunRecord {
            metrics,
            place: LIVE.to_owned(),
            made_on: format!("live, {}", place.join(", ")),
            more: Map::from_iter([(
                "live".to_owned(),
                json!({
                    "interrupted": false,
                    "command": self.words,
                    "parameters": parameters,
                    "exit_code": exit_code(ended.status),
                    "shell_s": shell.0[0],
                }),
            )]),
            began: began.duration_since(std::time::UNIX_EPOCH).ok(),
            failed: notes.iter().any(|note| note.problem.severity == Severity::Error),
            notes,
            row: making.store.map(|_| row),
            ..RunRecord::default()
        })
    }

    fn begin(&self) -> Result<(), Refusal> {
        self.hook("the set-up", self.setup.as_ref(), Signals::End)
    }

    fn end(&self) -> Result<(), Refusal> {
        self.hook("the clean-up", self.cleanup.as_ref(), Signals::Wait)
    }
}
