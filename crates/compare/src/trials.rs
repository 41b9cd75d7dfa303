//! How often comparisons are wrong: known distributions, compared thousands of times.
//!
//! A *false alarm* is a regression or an improvement where both sides come from the same distribution. An interval
//! *covers* if it holds the change that was made. A change is *found* if the verdict names its direction. Shares come
//! with their exact interval (Clopper & Pearson 1934). The table in docs/METHODS.md is made of these trials by
//! `cargo xtask methods`; tests run fewer of them.

use iowhy_stack::rng::Rng;
use rayon::prelude::*;

use super::{Settings, Verdict, compare};
use iowhy_stats::metric::{Column, Group, Metric};
use iowhy_stats::{modes, share};

/// Draws samples.
type Draw = fn(&mut Rng, usize) -> Vec<f64>;

/// A distribution that samples come from. All are around 100.
#[derive(Debug)]
pub struct Source {
    pub name: &'static str,
    pub summary: &'static str,
    /// Draws values in the order in which they would be measured.
    pub draw: Draw,
}

/// Every distribution.
pub const SOURCES: &[Source] = &[
    Source { name: "normal", summary: "CV 2 %", draw: |rng, n| each(n, || 100.0 + 2.0 * normal(rng)) },
    Source { name: "lognormal", summary: "sigma 0.5", draw: |rng, n| each(n, || 100.0 * (0.5 * normal(rng)).exp()) },
    Source { name: "heavy tail", summary: "CV 2 % but for Pareto's tail, exponent 1.5, upwards", draw: heavy },
    Source {
        name: "two modes",
        summary: "70 % at 100, 30 % at 63, CV 2 % each",
        draw: |rng, n| each(n, || (if uniform(rng) < 0.7 { 100.0 } else { 63.0 }) * (1.0 + 0.02 * normal(rng))),
    },
    Source { name: "autocorrelated", summary: "AR(1) with 0.6, CV 2 %", draw: |rng, n| ar1(rng, n, 0.6) },
    Source {
        name: "quantised",
        summary: "CV 2 %, rounded to steps of 2",
        draw: |rng, n| each(n, || 2.0 * (50.0 + normal(rng)).round()),
    },
];

fn each(n: usize, mut draw: impl FnMut() -> f64) -> Vec<f64> {
    (0..n).map(|_| draw()).collect()
}

/// Strictly between 0 and 1.
fn uniform(rng: &mut Rng) -> f64 {
    ((rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// Box & Muller 1958.
fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * uniform(rng).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(rng)).cos()
}

fn heavy(rng: &mut Rng, n: usize) -> Vec<f64> {
    each(n, || 98.0 + 2.0 * uniform(rng).powf(-1.0 / 1.5) + 0.5 * normal(rng))
}

fn ar1(rng: &mut Rng, n: usize, phi: f64) -> Vec<f64> {
    let fresh = (1.0f64 - phi * phi).sqrt();
    let mut state = normal(rng);
    each(n, || {
        state = phi * state + fresh * normal(rng);
        100.0 + 2.0 * state
    })
}

/// A count out of a total.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// How many.
    pub count: u64,
    /// Of how many.
    pub of: u64,
}

impl Share {
    /// In percent.
    pub fn pct(self) -> f64 {
        100.0 * self.count as f64 / self.of.max(1) as f64
    }

    /// The interval of the true share at 95 %, in percent.
    pub fn ci_pct(self) -> (f64, f64) {
        let (low, high) = share::interval(self.count as f64, self.of as f64, 0.95);
        (100.0 * low, 100.0 * high)
    }
}

/// The results of many comparisons of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Regressions and improvements in the direction of the change that was made; without a change, any.
    pub found: Share,
    /// The same in the other direction; without a change, none.
    pub wrong: Share,
    /// Intervals that hold the change that was made; one without bounds does.
    pub covered: Share,
    /// Intervals with bounds.
    pub bounded: Share,
    /// Verdicts of sameness.
    pub same: Share,
}

/// A group of one column of samples.
pub fn group(label: &str, values: Vec<f64>) -> Group {
    let metric = Metric::of("iops");
    let column = Column { metric, values, runs: Vec::new(), left_out: 0 };
    Group { label: label.to_owned(), runs: Vec::new(), columns: vec![column] }
}

/// Percent that is nothing but rounding.
const ROUNDED: f64 = 1e-9;

/// Compares `n` samples of the distribution with `n` others that are `change_pct` larger, `times` times.
pub fn trial(source: &Source, n: usize, change_pct: f64, settings: &Settings, times: u64) -> Trial {
    let one = |nr: u64| {
        let mut rng = Rng::stream(nr, source.name);
        let a = (source.draw)(&mut rng, n);
        let b = (source.draw)(&mut rng, n).iter().map(|x| x * (1.0 + change_pct / 100.0)).collect();
        let row = compare(&group("a", a), &group("b", b), settings).rows.remove(0);
        let (low, high) = row.ci_pct;
        let up = row.verdict == Verdict::Improvement;
        let changed = up || row.verdict == Verdict::Regression;
        let right = changed && (change_pct == 0.0 || up == (change_pct > 0.0));
        let bounded = low.is_finite() && high.is_finite();
        // An end that is a value of the lattice itself may be off by what logarithms round.
        let holds = low - ROUNDED <= change_pct && change_pct <= high + ROUNDED;
        [right, changed && !right, row.verdict == Verdict::Same, bounded, holds]
    };
    let counts = (0..times)
        .into_par_iter()
        .map(|nr| one(nr).map(u64::from))
        .reduce(|| [0; 5], |a, b| std::array::from_fn(|k| a[k] + b[k]));
    let [found, wrong, same, bounded, covered] = counts;
    let of_all = |count: u64| Share { count, of: times };
    Trial {
        found: of_all(found),
        wrong: of_all(wrong),
        covered: of_all(covered),
        bounded: of_all(bounded),
        same: of_all(same),
    }
}

/// How often two modes are seen where a share `second` of `n` runs is at `level` of the others (CV 2 %).
pub fn second_mode(n: usize, second: f64, level: f64, alpha: f64, times: u64) -> Share {
    let one = |nr: u64| {
        let mut rng = Rng::stream(nr, "second mode");
        let draw = || {
            let centre = if uniform(&mut rng) < second { 100.0 * level } else { 100.0 };
            centre * (1.0 + 0.02 * normal(&mut rng))
        };
        modes::find(&each(n, draw), alpha).len() == 2
    };
    Share { count: (0..times).into_par_iter().filter(|nr| one(*nr)).count() as u64, of: times }
}

/// How often more than one mode is seen in samples of a distribution that has one.
pub fn false_modes(source: &Source, n: usize, alpha: f64, times: u64) -> Share {
    let one = |nr: u64| modes::find(&(source.draw)(&mut Rng::stream(nr, source.name), n), alpha).len() > 1;
    Share { count: (0..times).into_par_iter().filter(|nr| one(*nr)).count() as u64, of: times }
}
