//! Two groups of runs in, a verdict for each metric out.
//!
//! The run is the unit: latencies within a run depend on one another, so a metric has one value for each run. The known
//! properties of the samples decide the method, and the row names it.

/// The verdict on a metric.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The candidate is worse.
    Regression,
    /// The candidate is better.
    Improvement,
    /// The difference is surely smaller than the margin.
    Same,
    /// The samples do not say.
    Inconclusive,
}

impl Verdict {
    /// As JSON and tables have it.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Regression => "regression",
            Verdict::Improvement => "improvement",
            Verdict::Same => "same",
            Verdict::Inconclusive => "inconclusive",
        }
    }
}

pub mod benchstat;
pub mod calibrate;
pub mod drawn;
pub mod gate;
pub mod github;
pub mod history;
pub mod json;
mod judge;
pub mod junit;
pub mod mail;
pub mod mermaid;
pub mod mmtests;
pub mod openmetrics;
pub mod options;
pub mod samples;
pub mod tables;
pub mod text;
pub mod trials;
pub mod warning;

use iowhy_stats::autocorrelation::Order;
use iowhy_stats::metric::{Group, HEADLINES, Metric, headline};
use iowhy_stats::modes::Mode;
use iowhy_stats::{Method, multiple};
use options::OptionShift;
use warning::Warning;

/// How p-values of many rows are adjusted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Adjust {
    /// Benjamini and Hochberg: of the rows that are called different, at most a share alpha is not. If none is, the
    /// chance to call any so is at most alpha. Rows that measure the same thing do not make each other weaker.
    Discoveries,
    /// Holm: the chance to call any row different that is not is at most alpha.
    Family,
}

impl Adjust {
    pub fn word(self) -> &'static str {
        match self {
            Adjust::Discoveries => "bh",
            Adjust::Family => "holm",
        }
    }

    /// The adjusted values.
    fn of(self, p: &[f64]) -> Vec<f64> {
        match self {
            Adjust::Discoveries => multiple::benjamini_hochberg(p),
            Adjust::Family => multiple::holm(p),
        }
    }
}

/// Settings of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Largest share of false alarms over all rows of a table; intervals have the level 1 - alpha.
    pub alpha: f64,
    /// Differences up to this many percent count as none.
    pub margin_pct: f64,
    /// How p-values of many rows are adjusted.
    pub adjust: Adjust,
    /// In which order samples of unknown origin were taken.
    pub order: Order,
    /// Metrics to compare; empty for the headlines.
    pub metrics: Vec<String>,
    /// Also describe the difference by what decides nothing: effects, shifts of quantiles.
    pub detail: bool,
    /// Draws of every resampling.
    pub draws: u32,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            alpha: 0.01,
            margin_pct: 1.0,
            adjust: Adjust::Discoveries,
            order: Order::Unknown,
            metrics: Vec::new(),
            detail: true,
            draws: 9_999,
            seed: 1,
        }
    }
}

/// One side of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Values.
    pub n: usize,
    /// Their median; NaN of none.
    pub median: f64,
    /// Interval of the median at the level of the table, by order statistics; infinite where there are too few values
    /// to bound it.
    pub median_ci: (f64, f64),
    pub mean: f64,
    /// Their deviation in percent of the mean; NaN of fewer than two.
    pub cv_pct: f64,
    /// Smallest and largest.
    pub range: (f64, f64),
    /// The groups they fall into: one unless shown otherwise, none of no values.
    pub modes: Vec<Mode>,
    /// The values in the order in which they were taken, thinned out to a few hundred: for sparklines and plots.
    pub shown: Vec<f64>,
}

/// Where the candidate's quantile lies.
#[derive(Clone, Debug, PartialEq)]
pub struct TailShift {
    /// Which quantile, in percent.
    pub quantile_pct: f64,
    /// Of the base.
    pub a: f64,
    /// Of the candidate.
    pub b: f64,
    /// Change in percent of the base.
    pub change_pct: f64,
    /// Its interval at the level of the table, not adjusted for other rows.
    pub ci_pct: (f64, f64),
}

/// A figure that describes the difference and decides nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// `cliffs_delta`, `hedges_g`, `ks_d`, `anderson_darling_p` ..
    pub name: &'static str,
    /// The figure.
    pub value: f64,
}

/// One metric of both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Which.
    pub metric: Metric,
    /// The base.
    pub a: Summary,
    /// The candidate.
    pub b: Summary,
    /// Change from A to B in percent of A: positive is larger, not better. NaN if it does not exist.
    pub change_pct: f64,
    /// Its interval at the level 1 - alpha; infinite where the samples bound nothing.
    pub ci_pct: (f64, f64),
    /// Probability of such a difference, or a larger one, if there is none; 1 where nothing can be tested.
    pub p: f64,
    /// The same over all rows.
    pub p_adjusted: f64,
    pub verdict: Verdict,
    /// Further runs of each side that a difference of the margin takes to be seen; `None` if unknown, 0 if there are
    /// enough.
    pub runs_needed: Option<u64>,
    /// The smallest change that these samples would show with a power of 80 %, percent.
    pub detectable_pct: f64,
    /// Shifts of quantiles.
    pub tails: Vec<TailShift>,
    /// Other descriptions of the difference.
    pub effects: Vec<Effect>,
    /// The methods used, the deciding one first.
    pub methods: Vec<&'static Method>,
    /// Why, in a sentence.
    pub because: String,
    pub warnings: Vec<Warning>,
}

/// In which order the runs of two sides were made.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Design {
    /// In blocks of random order.
    Interleaved,
    /// First all of one side, then all of the other.
    Sequential,
}

impl Design {
    pub fn word(self) -> &'static str {
        match self {
            Design::Interleaved => "interleaved",
            Design::Sequential => "sequential",
        }
    }
}

/// This machine's noise, from its own runs: `iowhy calibrate`.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// For which job.
    pub job: String,
    /// On which metric.
    pub metric: String,
    /// The order of its runs: interleaved, or one side after the other.
    pub design: Design,
    /// Runs it was made of.
    pub runs: usize,
    /// Runs of each side in its comparisons.
    pub per_side: usize,
    /// Comparisons of equal things.
    pub comparisons: usize,
    /// How many of them raised an alarm.
    pub false_alarms: usize,
    /// Interval of their share at 95 %.
    pub false_alarm_ci: (f64, f64),
    /// Smallest change that is seen with a power of 80 %, percent.
    pub detectable_pct: f64,
}

/// A whole table.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Label of the base.
    pub a: String,
    /// Label of the candidate.
    pub b: String,
    /// As asked.
    pub settings: Settings,
    pub rows: Vec<Row>,
    /// The worst that follows: a regression if there is one, then inconclusive, then improvement, then same.
    pub verdict: Verdict,
    /// Warnings about the whole comparison.
    pub warnings: Vec<Warning>,
    /// Results of earlier calibrations of this machine.
    pub calibration: Vec<Calibration>,
    /// Quantiles of the latencies of single calls, where these are known run by run.
    pub latencies: Vec<TailShift>,
    /// Options of the jobs that differ.
    pub options: Vec<OptionShift>,
}

/// Compares candidate `b` with base `a`.
pub fn compare(a: &Group, b: &Group, settings: &Settings) -> Comparison {
    let mut warnings = Vec::new();
    let mut rows = Vec::new();
    for name in chosen(a, b, settings) {
        match (a.column(&name), b.column(&name)) {
            (Some(base), Some(candidate)) => {
                let mut row = judge::row((a, base), (b, candidate), settings);
                judge::shape(&mut row, a, b);
                rows.push(row);
            }
            (base, candidate) => {
                for (group, _) in [(a, base), (b, candidate)].iter().filter(|(_, column)| column.is_some()) {
                    warnings.push(Warning::OnlyOneSide { side: group.label.clone(), metric: name.clone() });
                }
            }
        }
    }
    let p: Vec<f64> = rows.iter().map(|row| row.p).collect();
    for (row, adjusted) in rows.iter_mut().zip(settings.adjust.of(&p)) {
        row.p_adjusted = adjusted;
        judge::decide(row, settings);
    }
    // Metrics of the runs are as good as the runs.
    warnings.extend(of_runs(a, b));
    let verdict = overall(rows.iter().map(|row| row.verdict));
    Comparison {
        a: a.label.clone(),
        b: b.label.clone(),
        settings: settings.clone(),
        rows,
        verdict,
        warnings,
        calibration: Vec::new(),
        latencies: Vec::new(),
        options: options::differing(a, b),
    }
}

/// How quantiles of the latencies of single calls shift, in percent of A: runs are drawn first, then blocks of calls
/// within each, because calls of one run resemble each other. Nothing of fewer than two runs on a side: the next run
/// is what a comparison is about.
pub fn latencies(a: &[Vec<f64>], b: &[Vec<f64>], settings: &Settings) -> Vec<TailShift> {
    judge::latencies(a, b, settings)
}

/// The verdict on a table: the one that calls for most.
pub fn overall(rows: impl IntoIterator<Item = Verdict>) -> Verdict {
    let order = [Verdict::Same, Verdict::Improvement, Verdict::Inconclusive, Verdict::Regression];
    let rank = |verdict: &Verdict| order.iter().position(|other| other == verdict);
    rows.into_iter().max_by_key(rank).unwrap_or(Verdict::Inconclusive)
}

/// Names of the metrics to compare: those that are asked for; else the headlines, if there are any; else all.
fn chosen(a: &Group, b: &Group, settings: &Settings) -> Vec<String> {
    if !settings.metrics.is_empty() {
        return settings.metrics.clone();
    }
    let mut all: Vec<String> = Vec::new();
    for column in a.columns.iter().chain(&b.columns) {
        if !all.contains(&column.metric.name) {
            all.push(column.metric.name.clone());
        }
    }
    // A job that does not write has a rate of writing, which is zero.
    let zero = |group: &Group, name: &str| {
        group.column(name).is_none_or(|column| column.values.iter().all(|value| *value == 0.0))
    };
    let rank = |name: &String| HEADLINES.iter().position(|known| name.rsplit('/').next() == Some(known));
    let mut headlines: Vec<String> =
        all.iter().filter(|name| headline(name) && !(zero(a, name) && zero(b, name))).cloned().collect();
    headlines.sort_by_key(|name| (name.rfind('/').map(|at| name[..at].to_owned()), rank(name)));
    if headlines.is_empty() { all } else { headlines }
}

/// Oddities of the runs themselves.
fn of_runs(a: &Group, b: &Group) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for group in [a, b] {
        let warned = group.runs.iter().filter(|run| !run.warnings.is_empty());
        if let Some(first) = warned.clone().next() {
            let text = first.warnings.first().cloned().unwrap_or_default();
            warnings.push(Warning::RunsWarned { text, runs: warned.count() });
        }
    }
    let (Some(first), false) = (a.runs.first(), b.runs.is_empty()) else { return warnings };
    let all = || a.runs.iter().chain(&b.runs);
    if all().any(|run| run.machine != first.machine) {
        warnings.push(Warning::OtherMachine);
    }
    if all().any(|run| run.job != first.job) {
        warnings.push(Warning::OtherJob);
    }
    let shared = a.runs.iter().any(|run| run.block.is_some() && b.runs.iter().any(|other| other.block == run.block));
    if !shared && all().any(|run| !run.simulated) {
        warnings.push(Warning::NotInterleaved);
    }
    warnings
}

#[cfg(test)]
mod tests;
