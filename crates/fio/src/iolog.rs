//! fio's iolog, versions 2 and 3: a list of the I/Os of one job, with files by name.
//!
//! ```text
//! version 2    `fio version 2 iolog`, then `FILE ACTION` or `FILE ACTION OFFSET LENGTH`; `wait` stands for a pause
//! version 3    `fio version 3 iolog`, then the same behind a time in microseconds; no `wait`
//! ```
//! [`Iolog::parse`] reads one, [`Iolog::write`] writes one; [`Iolog::of_calls`] makes one of the calls of a live run,
//! and [`Iolog::replay`] the calls to make of one, for the running kernel and for simulated ones alike. [`load`] does
//! all that `read_iolog` and the options of replaying ask for.
//!
//! Source: fio's reader and writer (`iolog.c`), through docs/studies/compatibility.md 4.6, and runs of fio 3.33. Where
//! fio's manual and fio differ, this follows fio: `wait` counts milliseconds since the start (the manual:
//! microseconds), and `replay_skip=sync` leaves `datasync` in (fio 3.33 heeds `replay_skip` in no iolog; later versions
//! do). Known deviations: fio waits for the gap between two I/Os from when it issued the first, and falls behind when
//! an I/O takes longer than that; here each I/O is due at its place on the clock, and its latency counts from then.
//! Closing and opening files again has no effect.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use iowhy_live::outcome::CallRecord;
use iowhy_stack::event::Op;
use iowhy_stack::units::Nanos;
use iowhy_stack::workload::{Call, Mix, Scripted, Stream, Target};

use crate::job::Replay;
use iowhy_text::diagnose::{Problem, Problems, Severity, Span};

/// Longest name of a file in a log, bytes.
const MAX_NAME: usize = 256;
/// Most unreadable lines that are reported one by one.
const MAX_TOLD: usize = 10;
/// Latest time that a call may be due: clocks must be able to go beyond it.
const LONGEST: Nanos = Nanos(u64::MAX / 4);
/// Bytes of a file that is only synced: a job has no empty files.
const SYNCED_ONLY_BYTES: u64 = 4096;

/// Which form a log has.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// Without times.
    Two,
    /// With times.
    Three,
}

impl Version {
    /// The first line of such a log.
    pub fn header(self) -> &'static str {
        match self {
            Version::Two => "fio version 2 iolog",
            Version::Three => "fio version 3 iolog",
        }
    }
}

/// Action of a line.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The file is going to be used.
    Add,
    Open,
    /// It is closed.
    Close,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// Bytes are discarded.
    Trim,
    /// fsync.
    Sync,
    /// fdatasync.
    Datasync,
    /// Nothing until `offset` milliseconds after the start; version 2 only.
    Wait,
}

/// Every action, by its name in logs.
const ACTIONS: &[(&str, Action)] = &[
    ("add", Action::Add),
    ("open", Action::Open),
    ("close", Action::Close),
    ("read", Action::Read),
    ("write", Action::Write),
    ("trim", Action::Trim),
    ("sync", Action::Sync),
    ("datasync", Action::Datasync),
    ("wait", Action::Wait),
];

impl Action {
    /// Its name in logs.
    pub fn name(self) -> &'static str {
        ACTIONS.iter().find(|(_, action)| *action == self).map_or("", |(name, _)| name)
    }

    fn find(name: &str) -> Option<Action> {
        ACTIONS.iter().find(|(known, _)| *known == name).map(|(_, action)| *action)
    }

    /// It concerns a file as a whole and has neither offset nor length.
    fn of_file(self) -> bool {
        matches!(self, Action::Add | Action::Open | Action::Close)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A line of a log.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, microseconds; 0 in version 2.
    pub at_us: u64,
    /// Which of [`Iolog::files`].
    pub file: u32,
    pub action: Action,
    /// From which byte; of a wait, milliseconds.
    pub offset: u64,
    /// How many bytes.
    pub len_bytes: u32,
}

/// A log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iolog {
    /// Its form.
    pub version: Version,
    /// Names of its files, in the order in which they are added.
    pub files: Vec<String>,
    /// Its lines.
    pub entries: Vec<Entry>,
}

impl Iolog {
    /// Reads a log. `name` is what problems call it; `redirect` is the one file that all I/O goes to
    /// (`replay_redirect`). As in fio, meaningless lines are skipped with a warning; a file that is used before it was
    /// added is an error, which fio does not survive.
    pub fn parse(name: &str, text: &str, redirect: Option<&str>, problems: &mut Problems) -> Option<Iolog> {
        let header = text.lines().next().unwrap_or_default();
        let version = match header {
            line if line.starts_with(Version::Two.header()) => Version::Two,
            line if line.starts_with(Version::Three.header()) => Version::Three,
            _ => {
                problems.push(no_log(name, header));
                return None;
            }
        };
        let log = Iolog { version, files: Vec::new(), entries: Vec::new() };
        let mut reader = Reader { log, numbers: BTreeMap::new(), last: (String::new(), 0), failed: false };
        let mut told = Vec::new();
        let mut nr_told = 0_u64;
        for (number, line) in (2_u64..).zip(text.lines().skip(1)) {
            if let Err(problem) = reader.line(line, redirect) {
                nr_told += 1;
                let first_error = problem.severity == Severity::Error
                    && told.iter().all(|other: &Problem| other.severity != Severity::Error);
                if told.len() < MAX_TOLD || first_error {
                    told.push(Problem { message: format!("{name}:{number}: {}", problem.message), ..problem });
                }
            }
        }
        let nr_more = nr_told - told.len() as u64;
        problems.list.append(&mut told);
        if nr_more > 0 {
            problems.push(Problem::warning(format!("{name}: {nr_more} more lines have such problems")));
        }
        (!reader.failed).then_some(reader.log)
    }

    /// Writes the log, as fio does.
    ///
    /// # Errors
    /// The error of `out`; a name that a log cannot hold, or a wait in version 3, which has none.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let refuse = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if let Some(name) = self.files.iter().find(|name| !can_hold(name)) {
            return refuse(format!(
                "an iolog cannot name the file `{name}`: names have no blanks and at most {MAX_NAME} bytes"
            ));
        }
        writeln!(out, "{}", self.version.header())?;
        for entry in &self.entries {
            let Some(file) = self.files.get(entry.file as usize) else {
                return refuse(format!("an entry is for file {}, which the log does not have", entry.file));
            };
            if self.version == Version::Three {
                if entry.action == Action::Wait {
                    return refuse("version 3 of the iolog has no `wait`".to_owned());
                }
                write!(out, "{} ", entry.at_us)?;
            }
            if entry.action.of_file() {
                writeln!(out, "{file} {}", entry.action)?;
            } else {
                writeln!(out, "{file} {} {} {}", entry.action, entry.offset, entry.len_bytes)?;
            }
        }
        Ok(())
    }

    /// The log of a thread's calls (`write_iolog`); `files` are the names of the files that calls have by number. Only
    /// those that are used are named. A call is listed when it began.
    pub fn of_calls(files: &[String], calls: &[CallRecord]) -> Iolog {
        let mut calls: Vec<&CallRecord> = calls.iter().filter(|call| (call.file as usize) < files.len()).collect();
        // Asynchronous calls are recorded as they complete.
        calls.sort_by_key(|call| call.at);
        let mut log = Iolog { version: Version::Three, files: Vec::new(), entries: Vec::new() };
        let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
        for call in &calls {
            numbers.entry(call.file).or_insert_with(|| {
                log.files.push(files[call.file as usize].clone());
                log.files.len() as u32 - 1
            });
        }
        // Times begin at 1: fio takes the gap behind a time of 0 for none.
        let of_files = |log: &mut Iolog, action, at_us| {
            for file in 0..log.files.len() as u32 {
                log.entries.push(Entry { at_us, file, action, offset: 0, len_bytes: 0 });
            }
        };
        of_files(&mut log, Action::Add, 1);
        of_files(&mut log, Action::Open, 1);
        let mut at_us = 1;
        for call in calls {
            at_us = 1 + call.at.0 / 1000;
            let action = match call.op {
                Op::Read => Action::Read,
                Op::Write => Action::Write,
                Op::Fsync => Action::Sync,
                Op::Fdatasync => Action::Datasync,
                Op::Trim => Action::Trim,
            };
            let (file, offset, len_bytes) = (numbers[&call.file], call.offset, call.len_bytes);
            log.entries.push(Entry { at_us, file, action, offset, len_bytes });
        }
        of_files(&mut log, Action::Close, at_us);
        log
    }

    /// The calls to make, with what the options of replaying change about them (`redirect` is [`Iolog::parse`]'s).
    pub fn replay(&self, options: &Replay) -> Replayed {
        let mut clock = Clock { due: Nanos::ZERO, last_us: 0, waited: false };
        let mut files: Vec<ReplayedFile> =
            self.files.iter().map(|name| ReplayedFile { name: name.clone(), bytes: 0 }).collect();
        let mut calls = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            // The gap before a line counts even if the line is a file's, but goes with a line that is left out.
            let gap = clock.gap(entry.at_us, options);
            if options.skip.contains(&entry.action.name()) {
                continue;
            }
            clock.due = Nanos(clock.due.0.saturating_add(gap.0)).min(LONGEST);
            let op = match entry.action {
                Action::Read => Op::Read,
                Action::Write => Op::Write,
                Action::Sync => Op::Fsync,
                Action::Datasync => Op::Fdatasync,
                Action::Wait if !options.no_stall => {
                    let until = Nanos(entry.offset.saturating_mul(1_000_000)).min(LONGEST);
                    clock.waited |= until > clock.due;
                    clock.due = clock.due.max(until);
                    continue;
                }
                Action::Trim => Op::Trim,
                Action::Wait | Action::Add | Action::Open | Action::Close => continue,
            };
            let (mut offset, mut len_bytes) = (0, 0);
            let file = &mut files[entry.file as usize];
            if matches!(op, Op::Read | Op::Write | Op::Trim) {
                if entry.len_bytes == 0 {
                    continue;
                }
                offset = entry.offset / options.scale.max(1);
                offset -= offset % options.align.max(1);
                len_bytes = entry.len_bytes;
                file.bytes = file.bytes.max(offset.saturating_add(u64::from(len_bytes)));
            } else {
                file.bytes = file.bytes.max(SYNCED_ONLY_BYTES);
            }
            let call = Call { op, file: entry.file, offset, len_bytes, then: None, counted: true, how: None };
            calls.push(Scripted { at: clock.take(self.version), ..Scripted::new(call) });
        }
        Replayed { files, calls }
    }
}

/// The time on the log's clock.
struct Clock {
    due: Nanos,
    last_us: u64,
    /// Version 2: there was a wait since the last call.
    waited: bool,
}

impl Clock {
    /// The pause before a line.
    fn gap(&mut self, at_us: u64, options: &Replay) -> Nanos {
        let last_us = std::mem::replace(&mut self.last_us, at_us);
        // Time 0 is fio's sign for no line before.
        if last_us == 0 || options.no_stall || at_us < last_us {
            return Nanos::ZERO;
        }
        let scaled = u128::from(at_us - last_us) * 1000 * 100 / u128::from(options.time_scale.max(1));
        Nanos(u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    /// When the next call is due; zero for as soon as the one before it is done.
    fn take(&mut self, version: Version) -> Nanos {
        match version {
            Version::Three => self.due,
            Version::Two if std::mem::take(&mut self.waited) => self.due,
            Version::Two => Nanos::ZERO,
        }
    }
}

/// A file of a replayed log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayedFile {
    /// Its name in the log.
    pub name: String,
    /// Where the last byte that is read or written ends; 0 if no call is for this file.
    pub bytes: u64,
}

/// Settings of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The log's files; calls have them by number.
    pub files: Vec<ReplayedFile>,
    /// The calls with their times.
    pub calls: Vec<Scripted>,
}

impl Replayed {
    /// The calls as what a thread does. `numbers` holds the number in the job of each file of the log; of files that no
    /// call is for it does not matter. Nothing without a call.
    ///
    /// # Panics
    /// If `numbers` is shorter than the list of files.
    pub fn stream(&self, numbers: &[u32]) -> Option<Stream> {
        let targets: Vec<Target> = (self.files.iter().zip(numbers))
            .filter(|(file, _)| file.bytes > 0)
            .map(|(file, number)| Target { file: *number, start: 0, len_bytes: file.bytes })
            .collect();
        if targets.is_empty() {
            return None;
        }
        let moved =
            |step: &Scripted| Scripted { call: Call { file: numbers[step.call.file as usize], ..step.call }, ..*step };
        let script: Arc<[Scripted]> = self.calls.iter().map(moved).collect();
        Some(Stream { script: Some(script), ..Stream::sequential(Mix::Read, targets, 4096) })
    }
}

/// Reads the log that clone number `clone` (from 0) of a job replays, and applies the job's options of replaying.
/// `load` yields the text of a file. Warnings are left in `problems` even if there is a result.
pub fn load(
    options: &Replay,
    clone: u32,
    load: &dyn Fn(&str) -> Result<String, String>,
    problems: &mut Problems,
) -> Option<Replayed> {
    let name = options.logs.get(clone as usize % options.logs.len().max(1))?;
    let text = match load(name) {
        Ok(text) => text,
        Err(error) => {
            let problem = Problem::error(format!("cannot read the iolog `{name}`: {error}"));
            problems.push(problem.help("a log as `write_iolog` makes it, or a trace of blktrace in one file"));
            return None;
        }
    };
    let log = Iolog::parse(name, &text, options.redirect.as_deref(), problems)?;
    let replayed = log.replay(options);
    if replayed.calls.is_empty() {
        problems.push(Problem::error(format!("{name}: there is nothing in it to replay")));
        return None;
    }
    Some(replayed)
}

/// A log being read.
struct Reader {
    log: Iolog,
    numbers: BTreeMap<String, u32>,
    /// Most lines are for the file of the line before.
    last: (String, u32),
    failed: bool,
}

impl Reader {
    fn line(&mut self, line: &str, redirect: Option<&str>) -> Result<(), Problem> {
        let version = self.log.version;
        let warn = |text: String| Problem::warning(text).at(span(line));
        let mut words = line.split_ascii_whitespace();
        let mut at_us = 0;
        if version == Version::Three {
            at_us = match words.next().map(str::parse) {
                Some(Ok(time)) => time,
                Some(Err(_)) => return Err(warn("a line begins with its time in microseconds".to_owned())),
                None => return Err(warn("an empty line is not an entry".to_owned())),
            };
        }
        let (Some(name), Some(word)) = (words.next(), words.next()) else {
            return Err(warn("an entry has a file and an action".to_owned()));
        };
        if name.len() > MAX_NAME {
            return Err(warn(format!("a name of a file has at most {MAX_NAME} bytes")));
        }
        let name = redirect.unwrap_or(name);
        // As in fio's reader, a word that is not a number ends the entry, and so does anything after a length.
        let offset = words.next().and_then(|word| word.parse::<u64>().ok());
        let length = offset.and_then(|_| words.next()).and_then(|word| word.parse::<u64>().ok());
        let Some(action) = Action::find(word) else {
            let names = ACTIONS.iter().map(|(name, _)| *name);
            return Err(warn(format!("unknown action `{word}`: the line is left out")).near(word, names));
        };
        if action == Action::Wait && version == Version::Three {
            return Err(warn("version 3 has times instead of `wait`: the line is left out".to_owned()));
        }
        let entry = match (action.of_file(), offset, length) {
            (true, None, None) => {
                Entry { at_us, file: self.file(name, action, line)?, action, offset: 0, len_bytes: 0 }
            }
            (false, Some(offset), Some(length)) => {
                let file = self.file(name, action, line)?;
                // fio reads lengths as 32 bits and drops the rest.
                let len_bytes = length as u32;
                self.log.entries.push(Entry { at_us, file, action, offset, len_bytes });
                if length > u64::from(u32::MAX) {
                    return Err(warn(format!("a length has 32 bits: {length} is read as {len_bytes}")));
                }
                return Ok(());
            }
            (true, ..) => return Err(warn(format!("`{word}` has neither offset nor length: the line is left out"))),
            (false, ..) => return Err(warn(format!("`{word}` has an offset and a length: the line is left out"))),
        };
        self.log.entries.push(entry);
        Ok(())
    }

    /// The number of a file, which `add` gives it.
    fn file(&mut self, name: &str, action: Action, line: &str) -> Result<u32, Problem> {
        if self.last.0 == name && !name.is_empty() {
            return Ok(self.last.1);
        }
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None if action == Action::Add => {
                let number = self.log.files.len() as u32;
                self.log.files.push(name.to_owned());
                self.numbers.insert(name.to_owned(), number);
                number
            }
            None => {
                self.failed = true;
                let problem = Problem::error(format!("`{name}` is used before it was added")).at(span(line));
                return Err(problem
                    .near(name, self.log.files.iter())
                    .help(format!("a line with `{name} add` before its first use")));
            }
        };
        self.last = (name.to_owned(), number);
        Ok(number)
    }
}

/// A line as the place of a problem; a very long one is cut.
fn span(line: &str) -> Span {
    Span::whole(&line.chars().take(100).collect::<String>())
}

/// Whether a log can have this name in it.
pub fn can_hold(name: &str) -> bool {
    !name.is_empty() && !name.contains(char::is_whitespace) && name.len() <= MAX_NAME
}

/// Why a file that does not begin with the right line is not a log.
fn no_log(name: &str, first: &str) -> Problem {
    // Direction, offset and length, with commas between.
    let numbers: Option<Vec<u64>> = first.split(',').map(|word| word.trim().parse().ok()).collect();
    let old = numbers.is_some_and(|numbers| numbers.len() == 3) || first.starts_with("fio version 1");
    let (what, help) = if old {
        ("version 1 of the iolog is not read, as fio no longer does", "a log of fio 2.0 or later")
    } else {
        ("not an iolog: its first line is `fio version 2 iolog` or `fio version 3 iolog`", "a log of `write_iolog`")
    };
    Problem::error(format!("{name}:1: {what}")).at(span(first)).help(help)
}

#[cfg(test)]
mod tests;
