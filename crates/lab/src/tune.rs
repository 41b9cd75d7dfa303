//! The best safe settings for a job that can be repeated, and what makes them last.
//!
//! ```text
//! record       the job as it is, once
//! search       combinations of settings on its twin (`crate::twin`), whose disk is what the recording shows, joined
//!              with a short probe that only reads
//! candidates   the best three that are far from one another; where the twin has fewer, or does not agree with the
//!              recording, settings of rules that leave a mark on one side, then steps that nobody has tried
//! trial        blocks in random order, each with the job as it is and with every candidate, through the ledger
//!              (`run::execute`): restored after each run, after a signal, and by the next start
//! judge        the interval of each from what is left of the blocks (`stats::blocks`): the best is one that is surely
//!              better, and by 2 % at least; else what is there stays. Of a saving that the twin or a rule predicted,
//!              the trial is the second witness: a narrower interval is enough, and the twin's prediction counts as one
//!              more measurement, with the spread that its predictions have been seen to have, if the trial does not
//!              refute it
//! keep         a rule of udev, a unit of systemd, a line for sysctl                       (`keep`)
//! ```
//! Limits: a job has to do the same work each time; a gain that needs a setting which the twin has wrong and nobody
//! tried is missed; few runs only settle differences beyond their noise.

pub mod json;
mod keep;
mod record;
pub mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iowhy_live::machine::Disk;
use iowhy_live::signal;
use iowhy_stats::blocks;
use iowhy_text::diagnose::Problems;

use crate::recording::RecordError;
use crate::run::backend::{Making, Shared};
use crate::run::metrics::Metrics;
use crate::run::{self, Backend, Executed, Refusal, RunRecord, RunRequest};
use crate::twin::{ALIKE, Agreement, Combination, as_good};
use crate::why::trial::make_cold;
pub use keep::Keep;

/// Candidates at most, runs of the trial in all, and blocks at least.
const CANDIDATES: usize = 3;
const RUNS: u32 = 8;
const LEAST_BLOCKS: u32 = 2;
/// Coverage of an interval, and of the one that is enough for what was predicted.
const LEVEL: f64 = 0.9;
const LEVEL_PREDICTED: f64 = 0.6;
/// Half of that interval of what is obtained about what the twin predicts, points: of 15 predictions of `cargo xtask
/// tune` 9 were within it.
const TWIN_HALF: f64 = 12.0;
/// Gain that is worth a change, percent of the time.
const LEAST: f64 = 2.0;

/// Settings together, `KEY` and value.
pub type Settings = Vec<(&'static str, String)>;

/// A job that is to be tuned.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// As `iowhy run` takes it.
    pub job: Vec<String>,
    /// A command instead.
    pub command: Vec<String>,
    /// Where the files are.
    pub dir: Option<PathBuf>,
    /// State of the cache at the start.
    pub cache: Option<String>,
    /// Runs of each candidate.
    pub runs: Option<u32>,
    pub seed: u64,
}

/// The reason to try something.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The twin, which agrees with the recording.
    Twin,
    /// The twin, which does not.
    Guess,
    /// A rule read its cost off the recording.
    Rule,
    /// Nobody knows.
    Untested,
}

/// Share of the time that is saved, and its 90 % interval, percent.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Saving {
    pub pct: f64,
    /// Infinite of a single block.
    pub ci_pct: [f64; 2],
}

/// Settings that were tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    pub settings: Settings,
    pub origin: Origin,
    /// On the twin, if it agrees; the interval is that of its draws.
    pub predicted: Option<Saving>,
    /// On the running kernel.
    pub obtained: Saving,
    /// Saving and lower end of the interval that decide, percent.
    believed_pct: f64,
    least_pct: f64,
}

impl Tried {
    fn new(settings: Settings, origin: Origin, predicted: Option<Saving>) -> Tried {
        let unknown = Saving { pct: 0.0, ci_pct: [f64::NEG_INFINITY, f64::INFINITY] };
        Tried { settings, origin, predicted, obtained: unknown, believed_pct: 0.0, least_pct: f64::NEG_INFINITY }
    }

    /// The twin, in nearly all draws, or a rule saw the saving before it was tried.
    fn is_expected(&self) -> bool {
        self.origin == Origin::Rule || self.predicted.is_some_and(|of| of.pct >= LEAST && of.ci_pct[0] > 0.0)
    }

    /// Takes the trial: a saving with its interval, and half of the interval that is enough for what was predicted.
    fn judged(mut self, obtained: Saving, half: f64) -> Tried {
        (self.obtained, self.believed_pct, self.least_pct) = (obtained, obtained.pct, obtained.ci_pct[0]);
        let refuted = |of: Saving| !(obtained.ci_pct[0]..=obtained.ci_pct[1]).contains(&of.pct);
        if self.is_expected() && !self.predicted.is_some_and(refuted) && half.is_finite() {
            self.least_pct = obtained.pct - half;
            if let Some(predicted) = self.predicted {
                // Two measurements, each weighed by its precision.
                let [trial, twin] = [half.max(f64::EPSILON), TWIN_HALF].map(|half| half.powi(-2));
                self.believed_pct = (obtained.pct * trial + predicted.pct * twin) / (trial + twin);
                self.least_pct = self.believed_pct - (trial + twin).powf(-0.5);
            }
        }
        self
    }

    fn is_better(&self) -> bool {
        self.least_pct > 0.0 && self.obtained.pct >= LEAST
    }
}

/// A change of the program with which the twin is faster.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub setting: String,
    pub predicted: Saving,
    /// The line that a programmer writes.
    pub code: String,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Tuned {
    pub target: String,
    pub disk: String,
    pub agreement: Agreement,
    pub tried: Vec<Tried>,
    /// Place of the best one among those.
    pub best: Option<usize>,
    pub keep: Vec<Keep>,
    pub options: Vec<Change>,
    /// All runs of the job, the recorded one with them.
    pub runs: u32,
    /// Candidates that could not be tried, and why.
    pub refused: Vec<(String, String)>,
}

/// Reason for no answer.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    #[error("the words for the job are wrong")]
    Words(Problems),
    #[error("a signal ended it; every setting is as it was")]
    Signal,
    #[error("the job uses no disk here: nothing to tune")]
    NoDisk,
    #[error("the job is another program; give its command behind `--`")]
    Program,
    #[error("the command failed ({0})")]
    Failed(String),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Run(#[from] Refusal),
    #[error("the job cannot be judged: {0}")]
    Nothing(&'static str),
}

/// `KEY=VALUE`, with commas between several.
pub fn shown(settings: &[(&'static str, String)]) -> String {
    settings.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

impl Tuned {
    /// It looks better, and nobody can be sure.
    pub fn undecided(&self) -> Option<&Tried> {
        let open = self.tried.iter().filter(|of| self.best.is_none() && of.obtained.pct >= LEAST && !of.is_better());
        open.max_by(|a, b| a.obtained.pct.total_cmp(&b.obtained.pct))
    }
}

/// The best of those that are surely better; of those as good the one with fewest changes.
fn best(tried: &[Tried]) -> Option<usize> {
    let better = || tried.iter().enumerate().filter(|(_, of)| of.is_better());
    let most = better().map(|(_, of)| of.believed_pct).fold(0.0, f64::max);
    let alike = better().filter(|(_, of)| as_good(of.believed_pct, most, ALIKE));
    alike.min_by_key(|(_, of)| of.settings.len()).map(|(nr, _)| nr)
}

/// Finds the best safe settings for a job, and restores everything.
///
/// # Errors
/// If the job cannot be recorded or run, uses no disk, or a signal comes.
pub fn tune(asked: &Asked, tell: &dyn Fn(&str)) -> Result<Tuned, TuneError> {
    let _signals = signal::Guard::take();
    let calm = || if signal::raised() { Err(TuneError::Signal) } else { Ok(()) };
    tell("recording the job as it is");
    let seen = record::job(asked)?;
    calm()?;
    tell("searching the twin");
    let (twin, agreement) = record::twin(&seen);
    let disk = seen.disk.clone();
    let possible = |key: &str, value: &str| is_possible(&disk, key, value);
    let combined = twin.as_ref().map_or_else(Vec::new, |twin| twin.combinations(&possible, CANDIDATES));
    calm()?;
    let origin = if agreement.usable { Origin::Twin } else { Origin::Guess };
    let candidates = candidates(combined, origin, &seen, &possible);
    let target = if asked.command.is_empty() { &asked.job } else { &asked.command }.join(" ");
    let options = twin.iter().filter(|_| agreement.usable).flat_map(keep::changes).collect();
    let mut tuned = Tuned {
        target,
        disk: disk.clone(),
        agreement,
        tried: Vec::new(),
        best: None,
        keep: Vec::new(),
        options,
        runs: seen.runs,
        refused: Vec::new(),
    };
    if candidates.is_empty() {
        return Ok(tuned);
    }
    let all: Vec<String> = candidates.iter().map(|of| shown(&of.settings)).collect();
    tell(&format!("trying {}", all.join("; ")));
    trial(asked, &seen, candidates, &mut tuned)?;
    tuned.best = best(&tuned.tried);
    if let Some(best) = tuned.best {
        tuned.keep = keep::lasting(&disk, seen.mount.as_deref(), &tuned.tried[best].settings);
    }
    Ok(tuned)
}

/// A setting of a queue, or of the machine.
fn file_of(disk: &str, key: &str) -> PathBuf {
    match key.strip_prefix("vm.") {
        Some(name) => Path::new("/proc/sys/vm").join(name),
        None => Path::new("/sys/block").join(disk).join("queue").join(key),
    }
}

/// Whether the kernel offers a value of a setting.
fn is_possible(disk: &str, key: &str, value: &str) -> bool {
    let read = |key: &str| fs::read_to_string(file_of(disk, key)).ok();
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let Some(now) = read(key) else { return false };
    match key {
        "scheduler" => now.split_whitespace().any(|word| word.trim_matches(['[', ']']) == value),
        "max_sectors_kb" => read("max_hw_sectors_kb").and_then(|most| number(&most)) >= number(value),
        // Without a scheduler they are the tags of the device.
        "nr_requests" => number(value) <= number(&now) || read("scheduler").is_some_and(|it| !it.contains("[none]")),
        _ => true,
    }
}

/// Steps that are worth a run where nobody knows better.
const STEPS: &[(&str, &[&str])] = &[
    ("read_ahead_kb", &["1024", "128", "16"]),
    ("scheduler", &["mq-deadline", "none", "kyber"]),
    ("nomerges", &["0"]),
    ("nr_requests", &["64", "256"]),
    ("max_sectors_kb", &["1024", "512", "128"]),
];

/// Up to three candidates.
fn candidates(
    combined: Vec<Combination>,
    origin: Origin,
    seen: &record::Seen,
    possible: &dyn Fn(&str, &str) -> bool,
) -> Vec<Tried> {
    let mut out: Vec<Tried> = Vec::new();
    let from_rules = seen.rules.iter().filter(|(key, value)| possible(key, value));
    let from_rules: Vec<Tried> =
        from_rules.map(|(key, value)| Tried::new(vec![(*key, value.clone())], Origin::Rule, None)).collect();
    let from_twin = combined.into_iter().filter(|of| of.saves_pct > 0.0).map(|of| {
        let predicted = (origin == Origin::Twin).then_some(Saving { pct: of.saves_pct, ci_pct: of.saves_ci_pct });
        Tried::new(of.settings, origin, predicted)
    });
    if origin == Origin::Guess {
        out.extend(from_rules);
        out.extend(from_twin);
    } else {
        out.extend(from_twin);
        out.extend(from_rules);
    }
    // On top of the best known.
    let base = out.first().map(|first| first.settings.clone()).unwrap_or_default();
    for (key, values) in STEPS {
        let now = seen.value(key);
        let taken = |out: &[Tried]| out.iter().any(|of| of.settings.iter().any(|(known, _)| known == key));
        let matters = *key != "read_ahead_kb" || seen.cached;
        let value = values.iter().find(|value| now.as_deref() != Some(**value) && possible(key, value));
        if let Some(value) = value.filter(|_| matters && !taken(&out)) {
            let mut settings = base.clone();
            settings.push((*key, (*value).to_owned()));
            out.push(Tried::new(settings, Origin::Untested, None));
        }
    }
    let mut known: Vec<Settings> = Vec::new();
    out.retain(|of| {
        let new = !known.contains(&of.settings);
        known.push(of.settings.clone());
        new
    });
    out.truncate(CANDIDATES);
    out
}

/// The request for runs at places.
fn request(asked: &Asked, ons: &[String], runs: u32) -> Result<Box<RunRequest>, TuneError> {
    let mut words: Vec<String> = asked.job.clone();
    for on in ons {
        words.extend(["--on".to_owned(), on.clone()]);
    }
    words.extend(asked.dir.iter().map(|dir| format!("--dir={}", dir.display())));
    words.extend([format!("--runs={runs}"), format!("--seed={}", asked.seed)]);
    if asked.command.is_empty() {
        words.extend(asked.cache.iter().map(|cache| format!("--cache={cache}")));
    } else {
        words.push("--".to_owned());
        words.extend(asked.command.iter().cloned());
    }
    run::asked(&words, &run::here()).map_err(TuneError::Words)
}

/// Runs of a command with its files out of the cache.
#[derive(Debug)]
struct Cold {
    files: Arc<[PathBuf]>,
    runs: Arc<dyn Backend>,
}

impl Backend for Cold {
    fn make(&self, making: &Making<'_>, shared: &mut Shared) -> Result<RunRecord, Refusal> {
        make_cold(&self.files);
        self.runs.make(making, shared)
    }
}

/// Time for the same work: for a byte, else for a call, else of the whole.
fn time_of(metrics: &Metrics) -> Option<f64> {
    let of = |name: &str| metrics.iter().find(|(known, _)| known == name).map_or(0.0, |(_, value)| *value);
    let rate = [of("read_mb_s") + of("write_mb_s"), of("iops"), of("syncs_per_s")].into_iter().find(|rate| *rate > 0.0);
    rate.map(|rate| 1.0 / rate).or(Some(of("elapsed_s"))).filter(|time| *time > 0.0)
}

fn trial(asked: &Asked, seen: &record::Seen, candidates: Vec<Tried>, tuned: &mut Tuned) -> Result<(), TuneError> {
    let arms = candidates.len() as u32 + 1;
    let blocks = asked.runs.unwrap_or((RUNS / arms).max(LEAST_BLOCKS));
    let mut ons = vec!["live".to_owned()];
    ons.extend(candidates.iter().map(|of| format!("live,{}", shown(&of.settings))));
    let mut request = request(asked, &ons, blocks)?;
    if Disk::below(&request.folder.path).name.as_ref() != Some(&seen.disk) {
        // The disk that the job works on, wherever it was started.
        request.folder.path = Path::new("/dev").join(&seen.disk);
        request.folder.temporary = false;
    }
    if !asked.command.is_empty() {
        for variant in &mut request.variants {
            variant.backend = Arc::new(Cold { files: seen.files.clone(), runs: Arc::clone(&variant.backend) });
        }
    }
    let executed = run::execute(&request, &|_, _| {});
    tuned.runs += executed.runs.len() as u32;
    if executed.interrupted {
        return Err(TuneError::Signal);
    }
    judge(executed, &request, candidates, tuned)
}

/// Sorts the runs into blocks, and compares each candidate with the job as it is.
fn judge(executed: Executed, request: &RunRequest, candidates: Vec<Tried>, tuned: &mut Tuned) -> Result<(), TuneError> {
    let blocks = request.blocks() as usize;
    let mut times: Vec<Vec<Option<f64>>> = vec![vec![None; request.variants.len()]; blocks];
    for run in &executed.runs {
        times[run.slot.block as usize][run.slot.variant] = time_of(&run.record.metrics).filter(|_| !run.record.failed);
    }
    let whole: Vec<usize> =
        (0..request.variants.len()).filter(|arm| times.iter().all(|of| of[*arm].is_some())).collect();
    for (label, refusal) in executed.refused {
        if label == request.variants[0].label {
            return Err(refusal.into());
        }
        tuned.refused.push((label, refusal.to_string()));
    }
    if whole.first() != Some(&0) {
        return Err(TuneError::Nothing("runs of it failed, or did nothing"));
    }
    let rows: Vec<Vec<f64>> =
        times.iter().map(|row| whole.iter().filter_map(|arm| row[*arm]).map(f64::ln).collect()).collect();
    let saved = |logarithm: f64| 100.0 * (1.0 - logarithm.exp());
    let at = |level: f64| blocks::differences(&rows, level);
    for ((arm, of), predicted) in whole[1..].iter().zip(at(LEVEL)).zip(at(LEVEL_PREDICTED)) {
        let tried = candidates[arm - 1].clone();
        let obtained = Saving { pct: saved(of.centre), ci_pct: [saved(of.high), saved(of.low)] };
        let half = (saved(predicted.low) - saved(predicted.high)) / 2.0;
        tuned.tried.push(tried.judged(obtained, half));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
