//! Where a series changes: energy statistic, split by split.
//!
//! A split of `x[s..k]` at `t` has the statistic Q = 2/(n+m) (C - m/(n-1) X - n/(m-1) Y): C is the sum of the
//! distances between the n values before and the m values after, X and Y are the sums within either part. The best
//! (t, k) of every piece of the series is a candidate; the candidate with the largest Q is tested by putting the values
//! of all pieces in random orders, and splits its piece if few orders reach its Q. The first that fails ends it.
//!
//! Three variants. [`e_divisive`] searches all t and k: O(n^2) time, O(n) memory. [`end_anchored`] fixes k at the end
//! of the piece: O(n log n). Of 100 values whose last 10 are 1.5 deviations higher it found 56 %, the full one 32 %,
//! since it has fewer places to be wrong at; but a change that is undone within a piece counts less, and a bump in the
//! middle is found less often (`detection` in the tests). [`windowed`] is Hunter: short windows, t-tests, weak points
//! taken out again; fast, but its t-tests after a search for the best place raise far more false alarms than their p.
//!
//! Limits: an order means nothing if neighbouring values resemble one another. `serial` then puts the innovations of a
//! first-order autoregression in random orders, whose coefficient comes from differences, which steps hardly touch
//! (Hall & Van Keilegom 2003, winsorised). [`adaptive`] is as cautious only where the series asks for it. Slow drift
//! comes out as a flight of steps. A p of n orders is at least 1/(n+1).
//!
//! References: Matteson & James, "A nonparametric approach for multiple change point analysis", JASA 109 (2014);
//! Fleming et al., "Hunter", ICPE 2023; Phipson & Smyth 2010 for p-values from random orders; Fenwick 1994.

mod adaptive;
mod anchored;
mod divide;
mod energy;
mod hunter;
mod steps;

use super::Method;

pub use adaptive::{Neighbours, SHORT, adaptive};
pub use divide::innovations;
pub use hunter::{Windows, windowed};

pub const METHOD: Method = Method {
    name: "e-divisive",
    summary: "where a series changes: energy statistic, split by split",
    reference: "Matteson & James 2014; Fleming et al. 2023",
    checked: "Apache Otava 0.8",
};

/// The criteria by which a split counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Largest p of a split that counts.
    pub max_p: f64,
    /// Random orders of a test.
    pub permutations: u32,
    /// Least values before and after a split: with 1, a single spike can be two changes.
    pub min_segment: usize,
    /// Seed of the orders.
    pub seed: u64,
    /// Whether the order found counts among the random ones, as it must for p to be one: (hits + 1) / (n + 1). Otava
    /// has hits / (n + 1).
    pub counts_itself: bool,
    /// Whether neighbouring values may resemble one another.
    pub serial: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { max_p: 0.01, permutations: 999, min_segment: 3, seed: 1, counts_itself: true, serial: true }
    }
}

impl Settings {
    /// As Otava's `compute_change_points_orig`.
    pub fn otava(max_p: f64, seed: u64) -> Settings {
        Settings { max_p, permutations: 100, min_segment: 1, seed, counts_itself: false, serial: false }
    }
}

#[derive(Copy, Clone, Debug, PartialEq)]
pub struct ChangePoint {
    /// The first value after it.
    pub index: usize,
    /// Its statistic.
    pub q: f64,
    pub p: f64,
    /// Mean from the change before to this one.
    pub mean_before: f64,
    /// Mean from this one to the next.
    pub mean_after: f64,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The changes, in the order of the series.
    pub points: Vec<ChangePoint>,
    /// p of the first test: that the series changes at all. 1 if it is too short to be tested.
    pub p: f64,
}

/// A place where a piece splits best.
#[derive(Copy, Clone, Debug, PartialEq)]
struct Candidate {
    index: usize,
    q: f64,
}

/// Changes by the full statistic.
///
/// # Panics
/// If a value is not finite.
pub fn e_divisive(series: &[f64], settings: &Settings) -> Found {
    divide::divide(&mut energy::Energy::new(settings.min_segment), series, settings)
}

/// Changes by the statistic whose second part always reaches to the end of the piece.
///
/// # Panics
/// If a value is not finite.
pub fn end_anchored(series: &[f64], settings: &Settings) -> Found {
    divide::divide(&mut anchored::Anchored::new(settings.min_segment), series, settings)
}

/// The series times a power of two, so that no sum of distances overflows or vanishes, and that power. Nothing is
/// rounded by it unless values differ by 300 orders of magnitude.
fn scaled(series: &[f64]) -> (Vec<f64>, f64) {
    assert!(series.iter().all(|value| value.is_finite()), "readers take out values that are not numbers");
    let largest = series.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
    let scale = if (1e-100..1e100).contains(&largest) || largest == 0.0 {
        1.0
    } else {
        (-largest.log2().floor()).clamp(-1000.0, 1000.0).exp2()
    };
    (series.iter().map(|value| value * scale).collect(), scale)
}

/// Enters the means next to each change, in the order of the series.
fn with_means(points: &mut [ChangePoint], series: &[f64]) {
    let (values, scale) = scaled(series);
    let bounds: Vec<usize> =
        std::iter::once(0).chain(points.iter().map(|point| point.index)).chain([series.len()]).collect();
    for (point, beside) in points.iter_mut().zip(bounds.windows(3)) {
        point.mean_before = mean(&values[beside[0]..beside[1]]) / scale;
        point.mean_after = mean(&values[beside[1]..beside[2]]) / scale;
    }
}

/// The mean, NaN of nothing.
fn mean(values: &[f64]) -> f64 {
    sum(values) / values.len() as f64
}

/// The sum by halves and eighths, as NumPy adds: values that are all equal then have the same mean here and there.
fn sum(values: &[f64]) -> f64 {
    if values.len() < 8 {
        return values.iter().sum();
    }
    if values.len() > 128 {
        let half = values.len() / 2 / 8 * 8;
        return sum(&values[..half]) + sum(&values[half..]);
    }
    let mut parts = [0.0; 8];
    let eights = values.chunks_exact(8);
    let rest = eights.remainder();
    for eight in eights {
        for (part, value) in parts.iter_mut().zip(eight) {
            *part += value;
        }
    }
    let [a, b, c, d, e, f, g, h] = parts;
    rest.iter().fold(((a + b) + (c + d)) + ((e + f) + (g + h)), |sum, value| sum + value)
}

#[cfg(test)]
mod tests;
