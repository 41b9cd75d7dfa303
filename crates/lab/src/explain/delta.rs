//! Two sides, put so that one is slow and the other fast, and figures of both with their noise.
//!
//! Rules ask for contrasts: a figure of every run, as the mean of each side with the spread between runs. A contrast is
//! sure if the means differ by more than runs of one side differ from each other; single runs have no spread, and then
//! a relative difference beyond the noise of simulated runs has to do, which is said in the answer.

use super::digest::{Digest, Time};
use super::{MATERIAL_PCT, Side};
use crate::compare::Verdict;
use crate::stats::mann_whitney;

/// What a figure counts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Bytes.
    Bytes,
    /// Pages.
    Pages,
    /// A share, 0 to 1.
    Share,
    /// A number of something.
    Count,
    /// A ratio.
    Ratio,
    /// Bytes a second.
    BytesPerS,
}

impl Unit {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Unit::Ns => "ns",
            Unit::Bytes => "bytes",
            Unit::Pages => "pages",
            Unit::Share => "share",
            Unit::Count => "count",
            Unit::Ratio => "ratio",
            Unit::BytesPerS => "bytes_per_s",
        }
    }
}

/// A figure of both sides: the means over their runs.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Contrast {
    /// Of the fast side.
    pub fast: f64,
    /// Of the slow side.
    pub slow: f64,
    /// Standard error of the difference; nothing if there are single runs only.
    pub error: Option<f64>,
}

/// Standard errors that a difference has to have to be sure: with few runs, the t distribution's tails count.
const SURE: f64 = 5.0;
/// Relative difference that is sure between single runs.
const SURE_SINGLE: f64 = 0.02;

impl Contrast {
    /// Slow minus fast.
    pub fn difference(&self) -> f64 {
        self.slow - self.fast
    }

    /// Slow over fast; infinite if only the fast side is 0, 1 if both are.
    pub fn ratio(&self) -> f64 {
        match (self.fast == 0.0, self.slow == 0.0) {
            (true, true) => 1.0,
            (true, false) => f64::INFINITY,
            _ => self.slow / self.fast,
        }
    }

    /// The sides differ by more than their runs do.
    pub fn sure(&self) -> bool {
        let difference = self.difference().abs();
        match self.error {
            Some(error) => difference > SURE * error && difference > 0.0,
            None => difference > SURE_SINGLE * self.fast.abs().max(self.slow.abs()),
        }
    }

    /// Surely larger on the slow side, by this factor at least.
    pub fn rose(&self, factor: f64) -> bool {
        self.sure() && self.slow > self.fast * factor
    }

    /// Surely smaller on the slow side, by this factor at least.
    pub fn fell(&self, factor: f64) -> bool {
        self.sure() && self.fast > self.slow * factor
    }

    /// Larger on the slow side by this much at least, surely.
    pub fn rose_by(&self, amount: f64) -> bool {
        self.sure() && self.difference() >= amount
    }

    /// Smaller on the slow side by this much at least, surely.
    pub fn fell_by(&self, amount: f64) -> bool {
        self.sure() && -self.difference() >= amount
    }
}

/// Two sides.
#[derive(Debug)]
pub struct Delta<'a> {
    /// The fast one.
    pub fast: &'a Side,
    /// The slow one.
    pub slow: &'a Side,
    /// The base is the slow one.
    pub a_is_slow: bool,
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    let n = values.len() as f64;
    if n < 2.0 { 0.0 } else { values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0) }
}

/// Time for an operation: all of the run, by the calls that read or write (or sync, if there are no others), ns.
pub fn time_per_operation(digest: &Digest) -> f64 {
    let n = digest.operations();
    if n == 0 { digest.elapsed.0 as f64 } else { digest.elapsed.0 as f64 / n as f64 }
}

impl<'a> Delta<'a> {
    /// Of base and candidate.
    pub fn new(a: &'a Side, b: &'a Side) -> Delta<'a> {
        let time = |side: &Side| mean(&side.runs.iter().map(time_per_operation).collect::<Vec<f64>>());
        let a_is_slow = time(a) > time(b);
        let (slow, fast) = if a_is_slow { (a, b) } else { (b, a) };
        Delta { fast, slow, a_is_slow }
    }

    /// A figure of every run.
    pub fn of(&self, figure: impl Fn(&Digest) -> f64) -> Contrast {
        let values = |side: &Side| side.runs.iter().map(&figure).collect::<Vec<f64>>();
        let (fast, slow) = (values(self.fast), values(self.slow));
        let single = fast.len() < 2 || slow.len() < 2;
        let error = (variance(&fast) / fast.len().max(1) as f64 + variance(&slow) / slow.len().max(1) as f64).sqrt();
        Contrast { fast: mean(&fast), slow: mean(&slow), error: (!single).then_some(error) }
    }

    /// A figure of every run, for each operation.
    pub fn per_operation(&self, figure: impl Fn(&Digest) -> f64) -> Contrast {
        self.of(|digest| figure(digest) / digest.operations().max(1) as f64)
    }

    /// The time of a layer, or of several, for each operation, as part of the time for an operation, ns.
    pub fn time(&self, part: impl Fn(&Time) -> f64) -> Contrast {
        self.per_operation(|digest| part(&digest.time) / f64::from(digest.time.slots.max(1)))
    }

    /// Time for an operation, base and candidate, ns.
    pub fn time_ns(&self) -> [f64; 2] {
        let whole = self.of(time_per_operation);
        if self.a_is_slow { [whole.slow, whole.fast] } else { [whole.fast, whole.slow] }
    }

    /// Base first.
    pub fn oriented(&self, contrast: &Contrast) -> [f64; 2] {
        if self.a_is_slow { [contrast.slow, contrast.fast] } else { [contrast.fast, contrast.slow] }
    }

    /// Change of the time for an operation from base to candidate, percent.
    pub fn change_pct(&self) -> f64 {
        let [a, b] = self.time_ns();
        if a > 0.0 { 100.0 * (b - a) / a } else { 0.0 }
    }

    /// By how much an operation takes longer on the slow side, ns.
    pub fn slower_by(&self) -> f64 {
        self.of(time_per_operation).difference().max(f64::MIN_POSITIVE)
    }

    /// What may be said of the difference, and why.
    pub fn verdict(&self) -> (Verdict, String) {
        let change = self.change_pct();
        let changed = if change > 0.0 { Verdict::Regression } else { Verdict::Improvement };
        let values = |side: &Side| side.runs.iter().map(time_per_operation).collect::<Vec<f64>>();
        let (fast, slow) = (values(self.fast), values(self.slow));
        if fast.is_empty() || slow.is_empty() {
            return (Verdict::Inconclusive, "one side has no runs".to_owned());
        }
        if fast.len() < 2 || slow.len() < 2 {
            return if change.abs() < 2.0 * MATERIAL_PCT {
                (Verdict::Inconclusive, "single runs that differ this little may differ by chance".to_owned())
            } else {
                (changed, "single runs: how much of it is chance cannot be told".to_owned())
            };
        }
        if change.abs() < MATERIAL_PCT {
            return (Verdict::Same, format!("the sides differ by less than {MATERIAL_PCT} %"));
        }
        let whole = self.of(time_per_operation);
        // With few runs a rank test cannot be sure of anything; then the spread has to speak.
        let few = fast.len().min(slow.len()) < 5;
        let p = mann_whitney::test(&fast, &slow).map_or(1.0, |test| test.p);
        let apart = if few { whole.sure() } else { p < 0.01 };
        match apart {
            true if few => (changed, "the sides differ by more than five standard errors".to_owned()),
            true => (changed, format!("runs of both sides rank apart: Mann-Whitney, p = {p:.4}")),
            false if few => (Verdict::Inconclusive, "the runs of a side differ as much as the sides do".to_owned()),
            false => (Verdict::Inconclusive, format!("it may be chance: Mann-Whitney, p = {p:.4}")),
        }
    }

    /// What should be known about the runs.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for side in [self.fast, self.slow] {
            if side.lost > 0 {
                warnings.push(format!(
                    "{}: the kernel lost {} events; what is missing was not seen",
                    side.label, side.lost
                ));
            }
            if side.inferred_windows {
                warnings
                    .push(format!("{}: windows are inferred from pages; this kernel does not trace them", side.label));
            }
            if side.runs.iter().any(|run| run.operations() == 0) {
                warnings.push(format!("{}: a run has no calls; its time is taken as a whole", side.label));
            }
        }
        if self.fast.runs.len() < 2 || self.slow.runs.len() < 2 {
            warnings.push("single runs have no spread: repeat them (5 of each are enough for most)".to_owned());
        }
        warnings
    }
}
