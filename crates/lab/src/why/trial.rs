//! `--try`: the safe changes on the running target, through the ledger.
//!
//! ```text
//! blocks     each has the target once as it is and once with the change, in random order, so that drift of the machine
//!            falls on both alike
//! command    is started again, with the files of the recording out of the cache, its output discarded: its wall time
//! tasks      a short recording of the same target: time for a byte of its calls, or for a call where none has bytes
//! windows    an open file keeps the read-ahead that the disk had when it was opened: for `read_ahead_kb` only calls of
//!            tasks on files that they opened since then count, by the time that they take
//! interval   signed ranks of the logarithms of the blocks' ratios, as one disturbed run of three makes a block many
//!            times slower, and none makes it many times faster; from the least to the largest if there are few
//! restored   after each run, after a signal, and by the next start if the process is killed
//! ```
//! Limits: a command must be able to run again on what the run before has left; what tasks ask for may change
//! meanwhile, and the interval shows it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use iowhy_live::capture::monotonic_ns;
use iowhy_live::command::Running;
use iowhy_live::ledger::{Ledger, LedgerError};
use iowhy_live::{cache, free_memory, signal};
use iowhy_stack::trace::{Inode, Seen, Trace};
use iowhy_stack::units::Nanos;
use iowhy_stats::signed_rank;
use iowhy_trace::fields::{device, field};
use iowhy_trace::join::{Who, join};

use super::Answer;
use super::facts::is_of_queue;
use crate::recording::{self, RecordError, Request};

/// Most findings that are tried.
const FINDINGS: usize = 2;
/// Blocks of a trial, and the least if the command takes long.
const BLOCKS: u32 = 6;
const LEAST_BLOCKS: u32 = 3;
/// Time that a trial of commands may take.
const TRIAL: Duration = Duration::from_secs(180);
/// Length of a recording of tasks, and how long it is waited for a file that they open.
const STRETCH: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(40);
/// Time by the clock that this may take: to begin and to end a recording takes seconds on a slow machine.
const CLOCK: Duration = Duration::from_secs(160);
/// The longest such recording.
const LONGEST: Duration = Duration::from_secs(16);
/// Bytes of calls on files that were just opened, at least.
const LEAST_OPENED: u64 = 1 << 20;
/// Coverage of the interval.
const LEVEL: f64 = 0.95;

/// The effect that a change obtained.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// Part of the time that went, percent, with its interval.
    pub saves_pct: f64,
    pub ci_pct: [f64; 2],
    pub blocks: u32,
}

impl Tried {
    /// Whether all of its interval is faster, or slower.
    pub fn is_decided(&self) -> bool {
        let [low, high] = self.ci_pct;
        low > 0.0 || high < 0.0
    }
}

/// Why a trial came to no end.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    #[error("a signal ended the trial; everything is as it was")]
    Signal,
    #[error("a trial needs a target that goes on or can be started again: processes, or a command behind `--`")]
    NoTarget,
    #[error("the target made no call while it was tried")]
    Idle,
    #[error(
        "the target read less than 1 MiB from files that it opened meanwhile, and open files keep their read-ahead: \
         let it open them again"
    )]
    KeepsOpen,
    #[error("cannot start `{0}` again: {1}")]
    Command(String, std::io::Error),
    #[error("the command failed when it was started again")]
    Failed,
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Tries the best safe findings of an answer about `request`, and notes what they obtained; how many were tried.
///
/// # Errors
/// If the target does not go on, a setting cannot be made or restored, or a signal comes.
pub fn try_safe(answer: &mut Answer, request: &Request, tell: &dyn Fn(&str)) -> Result<usize, TrialError> {
    let Some(disk) = answer.facts.settings.get("recording", "disk").map(str::to_owned) else { return Ok(0) };
    let files: Vec<PathBuf> = answer.facts.files.iter().map(|file| PathBuf::from(&file.name)).collect();
    let target = Target { request, files };
    let (ledger, _) = Ledger::open()?;
    let _signals = signal::Guard::take();
    let mut tried = 0;
    for finding in answer.findings.iter_mut().filter(|finding| finding.safe).take(FINDINGS) {
        let Some((key, value)) = is_of_queue(&finding.setting) else { continue };
        tell(&finding.setting);
        let file = Path::new("/sys/block").join(&disk).join("queue").join(key);
        finding.tried = Some(target.trial(&ledger, &file, value)?);
        tried += 1;
    }
    Ok(tried)
}

struct Target<'a> {
    request: &'a Request,
    files: Vec<PathBuf>,
}

impl Target<'_> {
    fn trial(&self, ledger: &Ledger, file: &Path, value: &str) -> Result<Tried, TrialError> {
        let begun = Instant::now();
        let opened_only = file.ends_with("read_ahead_kb");
        let mut ratios = Vec::new();
        for block in 0..BLOCKS {
            if block >= LEAST_BLOCKS && begun.elapsed() > TRIAL {
                break;
            }
            match self.block(ledger, file, value, opened_only) {
                Ok([as_it_is, changed]) => ratios.push(changed / as_it_is.max(f64::MIN_POSITIVE)),
                // It has come to rest; what it did before counts.
                Err(TrialError::KeepsOpen | TrialError::Idle) if block >= LEAST_BLOCKS => break,
                Err(error) => return Err(error),
            }
        }
        Ok(summary(&ratios))
    }

    /// Times as it is and with the change, in random order.
    fn block(&self, ledger: &Ledger, file: &Path, value: &str, opened_only: bool) -> Result<[f64; 2], TrialError> {
        let changed_first = (monotonic_ns() / 64).is_multiple_of(2);
        let mut times = [0.0; 2];
        for changed in [changed_first, !changed_first] {
            let guard = if changed { ledger.set(file, value)? } else { None };
            let took = self.measure(opened_only);
            guard.map_or(Ok(()), |guard| guard.undo())?;
            times[usize::from(changed)] = took?;
        }
        Ok(times)
    }

    /// The time for the same work.
    fn measure(&self, opened_only: bool) -> Result<f64, TrialError> {
        if signal::raised() {
            return Err(TrialError::Signal);
        }
        let Some((program, arguments)) = self.request.command.split_first() else {
            return self.of_tasks(opened_only);
        };
        make_cold(&self.files);
        free_memory::touch(free_memory::OF_A_COMMAND);
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let running = Running::spawn(command).map_err(|error| TrialError::Command(program.clone(), error))?;
        let (status, usage) = running.end().ok_or(TrialError::Failed)?;
        match () {
            () if signal::raised() => Err(TrialError::Signal),
            () if !status.success() => Err(TrialError::Failed),
            () => Ok((usage.monotonic_ns[1] - usage.monotonic_ns[0]) as f64),
        }
    }

    fn of_tasks(&self, opened_only: bool) -> Result<f64, TrialError> {
        let named = !self.request.pids.is_empty()
            || !self.request.comms.is_empty()
            || !self.request.cgroups.is_empty()
            || !self.request.units.is_empty()
            || !self.request.files.is_empty();
        if !named {
            return Err(TrialError::NoTarget);
        }
        let (begun, mut length, mut waited) = (Instant::now(), STRETCH, Duration::ZERO);
        let recorded = loop {
            let request = Request { length: Some(length), ..self.request.clone() };
            let recorded = recording::record(&request, &mut |_| {})?;
            waited += length;
            // A file that is opened late, or read slowly, needs a longer look.
            length = (2 * length).min(LONGEST);
            if recorded.interrupted {
                return Err(TrialError::Signal);
            }
            if !opened_only {
                break recorded;
            }
            if let Some(time) = of_opened(&recorded.captured.trace) {
                return Ok(time);
            }
            if waited >= PATIENCE || begun.elapsed() > CLOCK {
                return Err(TrialError::KeepsOpen);
            }
        };
        let joined = join(&recorded.captured.trace, &Who::default());
        let done = joined.calls.iter().filter(|call| call.end.is_some());
        let (calls, bytes) = done.fold((0_u64, 0_u64), |(calls, bytes), call| (calls + 1, bytes + call.moved()));
        let work = if bytes > 0 { bytes } else { calls };
        if work == 0 { Err(TrialError::Idle) } else { Ok(recorded.captured.length.as_nanos() as f64 / work as f64) }
    }
}

/// Drops the pages of files; what cannot be dropped is in the cache with a change and without it.
pub(crate) fn make_cold(files: &[PathBuf]) {
    for file in files.iter().filter_map(|path| File::open(path).ok()) {
        let _ = cache::make_cold(&file);
    }
}

/// Time for a byte of the calls on files that were opened in a recording; nothing if none was.
fn of_opened(trace: &Trace) -> Option<f64> {
    let mut opened: BTreeMap<(u32, Inode), Nanos> = BTreeMap::new();
    for record in &trace.records {
        let Seen::Other { name, fields } = &record.seen else { continue };
        if name == "iowhy:opened"
            && let (Some(dev), Some(ino)) = (device(fields), field(fields, "ino").and_then(|ino| ino.parse().ok()))
        {
            opened.entry((record.pid, Inode { dev, ino })).or_insert(record.at);
        }
    }
    let joined = join(trace, &Who::default());
    let (mut ns, mut bytes) = (0, 0);
    for call in &joined.calls {
        let file = call.file.and_then(|file| joined.files.get(file as usize));
        let since = file.and_then(|file| opened.get(&(call.pid, *file)));
        let (Some(end), Some(since)) = (call.end, since) else { continue };
        if call.start >= *since {
            ns += end.saturating_sub(call.start).0;
            bytes += call.moved();
        }
    }
    (bytes >= LEAST_OPENED).then(|| ns as f64 / bytes as f64)
}

/// The centre of the blocks' savings with its interval, from the time with the change by the time without.
fn summary(ratios: &[f64]) -> Tried {
    let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.max(f64::MIN_POSITIVE).ln()).collect();
    let least = logarithms.iter().copied().fold(f64::INFINITY, f64::min);
    let most = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let of = signed_rank::test(&logarithms, LEVEL);
    let (centre, low, high) = of.map_or((0.0, least, most), |of| (of.centre, of.low.max(least), of.high.min(most)));
    let saves = |logarithm: f64| 100.0 * (1.0 - logarithm.exp());
    Tried { saves_pct: saves(centre), ci_pct: [saves(high), saves(low)], blocks: ratios.len() as u32 }
}

#[cfg(test)]
mod tests {
    use super::summary;

    #[test]
    fn ratios_of_blocks_have_a_centre_and_an_interval() {
        for (ratios, centre, ci, decided) in [
            (&[0.5, 0.5, 0.5][..], 50.0, [50.0, 50.0], true),
            (&[2.0, 2.0, 2.0], -100.0, [-100.0, -100.0], true),
            (&[0.4, 0.8, 0.2], 60.0, [20.0, 80.0], true),
            (&[0.5, 2.0, 0.25, 4.0, 0.8, 1.25], 0.0, [-300.0, 75.0], false),
            // A disturbed run is one of three.
            (&[0.25, 0.25, 4.0], 50.0, [-300.0, 75.0], false),
        ] {
            let tried = summary(ratios);
            assert_eq!(tried.is_decided(), decided, "{ratios:?}: {tried:?}");
            assert!((tried.saves_pct - centre).abs() < 1e-9, "{ratios:?}: {tried:?}");
            assert!(
                tried.ci_pct.iter().zip(ci).all(|(is, should)| (is - should).abs() < 1e-9),
                "{ratios:?}: {tried:?}"
            );
        }
    }
}
