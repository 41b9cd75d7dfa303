//! Quantiles as weighted means of all order statistics, and how they shift.
//!
//! The Harrell-Davis estimate of the quantile `q` of `n` sorted values weighs the `i`-th by the probability that a beta
//! number of shapes `(n + 1) q` and `(n + 1) (1 - q)` falls between `(i - 1) / n` and `i / n`. It varies less than one
//! or two order statistics do, and it does not jump where values are few. Weights that do not matter (below 1e-20 of
//! the largest) are not computed, so that ten million values cost a few thousand weights: where the beta law is wide
//! its density is integrated in each cell (Gauss and Legendre, four points), which loses no digits in gamma functions
//! of millions; near the ends, where it is not smooth, the regularised incomplete beta function is used. Standard
//! errors are those of the jackknife. Shifts (Wilcox 1995) are the difference of two estimates and its percentile
//! bootstrap; of a resample only the order statistics that have weight are drawn, as sums of exponential spacings.
//!
//! Limits: in a tail that holds fewer than a handful of values the weights reach to the extreme ones, and one outlier
//! moves the estimate. Shifts of samples above 50,000 values are bootstrapped with the plain quantile, from which this
//! one no longer differs by more than a small part of its error.

use super::Method;
use super::bootstrap::draws::{Draws, Gamma};
use super::bootstrap::{Interval, bounded, clipped, percent, percentiles, quantile_draws};
use iowhy_stack::rng::Rng;
use statrs::function::beta::beta_reg;

pub const METHOD: Method = Method {
    name: "harrell-davis",
    summary: "quantiles as weighted means of all order statistics, and how they shift",
    reference: "Harrell & Davis 1982; Wilcox 1995",
    checked: "SciPy hdquantiles",
};

/// Weights this much smaller than the largest are left out.
const NOTHING: f64 = 1e-20;

/// Samples above this size are bootstrapped with plain quantiles.
const RESAMPLED: usize = 50_000;

/// Smallest shape whose beta density is smooth enough within every cell that matters.
const SMOOTH: f64 = 40.0;

/// Index of the first weight that matters, and these weights, whose sum is 1.
///
/// Probabilities of a beta number of shapes `a` and `b` for the cells of a grid of `cells`.
fn weights(cells: usize, a: f64, b: f64) -> (usize, Vec<f64>) {
    let cell: &dyn Fn(usize) -> f64 = if a.min(b) < SMOOTH {
        // Computed from the end that is near, where places are exact.
        if b < a {
            &move |i| {
                below((cells - i) as f64 / cells as f64, b, a) - below((cells - i - 1) as f64 / cells as f64, b, a)
            }
        } else {
            &move |i| below((i + 1) as f64 / cells as f64, a, b) - below(i as f64 / cells as f64, a, b)
        }
    } else {
        &move |i| smooth(i, cells, a, b)
    };
    // The mean lies in a cell of large weight for every shape; from there on both ways until nothing is left.
    let start = ((a / (a + b) * cells as f64) as usize).min(cells - 1);
    let mut largest = 0.0f64;
    let mut walk = |places: &mut dyn Iterator<Item = usize>| {
        let mut found = Vec::new();
        for place in places {
            let weight = cell(place).max(0.0);
            largest = largest.max(weight);
            if weight < largest * NOTHING {
                break;
            }
            found.push(weight);
        }
        found
    };
    let above = walk(&mut (start..cells));
    let mut found = walk(&mut (0..start).rev());
    let first = start - found.len();
    found.reverse();
    found.extend(above);
    let sum: f64 = found.iter().sum();
    found.iter_mut().for_each(|weight| *weight /= sum);
    (first, found)
}

/// Probability below `x`.
fn below(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        0.0
    } else if x >= 1.0 {
        1.0
    } else {
        beta_reg(a, b, x)
    }
}

/// A cell of the density, relative to its height at the mean.
fn smooth(cell: usize, cells: usize, a: f64, b: f64) -> f64 {
    const POINTS: [(f64, f64); 4] = [
        (-0.861_136_311_594_052_6, 0.173_927_422_568_726_93),
        (-0.339_981_043_584_856_26, 0.326_072_577_431_273_07),
        (0.339_981_043_584_856_26, 0.326_072_577_431_273_07),
        (0.861_136_311_594_052_6, 0.173_927_422_568_726_93),
    ];
    let mean = a / (a + b);
    let middle = cell as f64 + 0.5;
    POINTS
        .iter()
        .map(|(place, weight)| {
            // Of the distance from the mean: both logarithms are then near 0.
            let distance = (middle + 0.5 * place) / cells as f64 - mean;
            weight * ((a - 1.0) * (distance / mean).ln_1p() + (b - 1.0) * (-distance / (1.0 - mean)).ln_1p()).exp()
        })
        .sum()
}

/// The quantile `q` of sorted values. NaN of none.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    assert!((0.0..=1.0).contains(&q), "a quantile lies between 0 and 1");
    let n = sorted.len();
    match (n, q) {
        (0, _) => f64::NAN,
        (1, _) | (_, 0.0) => sorted[0],
        (_, 1.0) => sorted[n - 1],
        _ => {
            let shape = (n + 1) as f64;
            let (first, weights) = weights(n, shape * q, shape * (1.0 - q));
            weighted(&sorted[first..], &weights)
        }
    }
}

/// The weighted sum, taken from the first value on: equal values give exactly that value.
fn weighted(values: &[f64], weights: &[f64]) -> f64 {
    let origin = values[0];
    origin + values.iter().zip(weights).map(|(value, weight)| weight * (value - origin)).sum::<f64>()
}

/// A shift of a quantile from one sample to another.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Shift {
    /// In the unit of the samples.
    pub units: Interval,
    /// In percent of the first sample's quantile.
    pub pct: Interval,
}

/// How the quantile shifts from `a` to `b`. One set of draws makes both intervals.
///
/// As with plain quantiles, an end is infinite where order statistics could not bound it at this level.
pub fn shift(a_sorted: &[f64], b_sorted: &[f64], q: f64, draws: u32, level: f64, rng: &mut Rng) -> Shift {
    let (from, to) = (quantile(a_sorted, q), quantile(b_sorted, q));
    let pairs = if a_sorted.is_empty() || b_sorted.is_empty() {
        Vec::new()
    } else if a_sorted.len().max(b_sorted.len()) > RESAMPLED || q == 0.0 || q == 1.0 {
        quantile_draws(a_sorted, b_sorted, q, draws, |a, b| (a, b), rng)
    } else {
        let (mut a, mut b) = (Resampled::new(a_sorted, q), Resampled::new(b_sorted, q));
        let mut source = Draws::new(rng);
        (0..draws).map(|_| (a.draw(&mut source), b.draw(&mut source))).collect()
    };
    let bounded = bounded(a_sorted.len(), b_sorted.len(), q, level);
    let interval = |figure: fn(f64, f64) -> f64| {
        let mut drawn: Vec<f64> = pairs.iter().map(|(a, b)| figure(*a, *b)).collect();
        clipped(percentiles(&mut drawn, figure(from, to), level), bounded)
    };
    Shift { units: interval(|a, b| b - a), pct: interval(percent) }
}

/// Estimates of resamples.
struct Resampled<'a> {
    sorted: &'a [f64],
    weights: Vec<f64>,
    /// All that lies up to the first order statistic with weight, and beyond the last.
    below: Gamma,
    above: Gamma,
    spacings: Vec<f64>,
}

impl<'a> Resampled<'a> {
    fn new(sorted: &'a [f64], q: f64) -> Resampled<'a> {
        // The bootstrap's own noise hides what smaller weights could add.
        const HIDDEN: f64 = 1e-9;
        let n = sorted.len();
        let (first, all) =
            if n == 1 { (0, vec![1.0]) } else { weights(n, (n + 1) as f64 * q, (n + 1) as f64 * (1.0 - q)) };
        let least = HIDDEN * all.iter().copied().fold(0.0, f64::max);
        let skipped = all.iter().take_while(|weight| **weight < least).count();
        let after = all.iter().rev().take_while(|weight| **weight < least).count();
        let mut weights = all[skipped..all.len() - after].to_vec();
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= sum);
        let first = first + skipped;
        let above = Gamma::new(n + 1 - (first + weights.len()));
        Resampled { sorted, below: Gamma::new(first + 1), above, spacings: Vec::with_capacity(weights.len()), weights }
    }

    /// The estimate of one resample.
    fn draw(&mut self, draws: &mut Draws<'_>) -> f64 {
        let n = self.sorted.len();
        let mut sum = draws.gamma(&self.below);
        self.spacings.clear();
        self.spacings.push(sum);
        for _ in 1..self.weights.len() {
            sum += draws.exponential();
            self.spacings.push(sum);
        }
        sum += draws.gamma(&self.above);
        let scale = n as f64 / sum;
        let value = |place: f64| self.sorted[((place * scale) as usize).min(n - 1)];
        let origin = value(self.spacings[0]);
        origin + self.spacings.iter().zip(&self.weights).map(|(at, weight)| weight * (value(*at) - origin)).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::sorted;
    use super::*;
    use serde_json::Value;

    /// The standard error of the quantile, by leaving out each value. NaN of fewer than two values, and at the
    /// extremes.
    fn standard_error(sorted: &[f64], q: f64) -> f64 {
        let n = sorted.len();
        if n < 2 || q <= 0.0 || q >= 1.0 {
            return f64::NAN;
        }
        // Without one value there are n - 1 with weights of their own: those left of it keep their place, those right
        // of it move one to the left.
        let (first, weights) = weights(n - 1, n as f64 * q, n as f64 * (1.0 - q));
        let values = &sorted[first..=first + weights.len()];
        let origin = values[0];
        // Leaving out the first of `values` or any before them shifts all weights; each next one shifts one less.
        let mut estimate: f64 = weights.iter().zip(&values[1..]).map(|(weight, value)| weight * (value - origin)).sum();
        let mut left_out = vec![(estimate, first + 1)];
        for (i, weight) in weights.iter().enumerate() {
            estimate -= weight * (values[i + 1] - values[i]);
            let times = if i + 1 == weights.len() { n - first - weights.len() } else { 1 };
            left_out.push((estimate, times));
        }
        let mean = left_out.iter().map(|(value, times)| value * *times as f64).sum::<f64>() / n as f64;
        let squares = left_out.iter().map(|(value, times)| (value - mean).powi(2) * *times as f64).sum::<f64>();
        (squares / n as f64 * (n - 1) as f64).sqrt()
    }

    /// The values that the generator of the vectors makes, too.
    fn spread(n: usize) -> Vec<f64> {
        let step = 0.618_033_988_749_894_9;
        sorted(&(0..n).map(|i| -100.0 * (1.0 - ((i + 1) as f64 * step) % 1.0).ln()).collect::<Vec<f64>>())
    }

    #[test]
    fn estimates_and_errors_are_scipys() {
        let vectors: Value =
            serde_json::from_str(include_str!("../tests/vectors/resampling.json")).expect("the vectors are JSON");
        for case in vectors["harrell_davis"].as_array().expect("cases") {
            let number = |key: &str| case[key].as_f64().expect("a number");
            let (n, q) = (number("n") as usize, number("q"));
            let values = spread(n);
            let (value, error) = (quantile(&values, q), standard_error(&values, q));
            assert!((value - number("value")).abs() <= 1e-9 * number("value"), "{case}: {value}");
            let expected = number("standard_error");
            assert!((error - expected).abs() <= 1e-8 * expected.max(1e-3 * value), "{case}: {error}");
        }
    }

    #[test]
    fn the_two_ways_to_weights_agree() {
        // Shapes just above the border are smooth enough for the quadrature.
        for (cells, a) in [(1_000, 40.0), (1_000, 41.5), (200, 100.5), (5_000, 60.0)] {
            let b = cells as f64 + 1.0 - a;
            let (first, ours) = weights(cells, a, b);
            for (i, weight) in ours.iter().enumerate() {
                let at = |place: usize| below(place as f64 / cells as f64, a, b);
                let exact = at(first + i + 1) - at(first + i);
                assert!((weight - exact).abs() < 1e-11, "{cells} {a}: {weight} {exact}");
            }
        }
    }

    #[test]
    fn ten_million_cells_have_few_weights() {
        for q in [0.5, 0.99, 0.999_999_5] {
            let shape = 10_000_001.0;
            let (first, weights) = weights(10_000_000, shape * q, shape * (1.0 - q));
            assert!(weights.len() < 40_000 && (weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            let mean: f64 = weights.iter().enumerate().map(|(i, weight)| (first + i) as f64 * weight).sum();
            let expected = q * 1e7 - 0.5;
            assert!((mean - expected).abs() < 0.01, "q {q}: {mean} {expected}");
        }
    }

    #[test]
    fn equal_values_have_that_quantile_and_no_error() {
        let values = [0.1; 37];
        assert_eq!((quantile(&values, 0.3), standard_error(&values, 0.3)), (0.1, 0.0));
        let shift = shift(&values, &values, 0.5, 99, 0.95, &mut Rng::stream(1, "test"));
        assert_eq!((shift.units.low, shift.units.high, shift.pct.estimate), (0.0, 0.0, 0.0));
    }

    #[test]
    fn what_does_not_exist_is_nan() {
        assert!(quantile(&[], 0.5).is_nan() && standard_error(&[1.0], 0.5).is_nan());
        assert_eq!((quantile(&[1.0, 2.0], 0.0), quantile(&[1.0, 2.0], 1.0), quantile(&[7.0], 0.5)), (1.0, 2.0, 7.0));
        let none = shift(&[], &[1.0], 0.5, 99, 0.95, &mut Rng::stream(1, "test"));
        assert!(none.units.estimate.is_nan() && none.units.high == f64::INFINITY);
    }

    #[test]
    fn estimates_of_resamples_are_those_of_whole_resamples() {
        const DRAWS: usize = 4_000;
        let mut rng = Rng::stream(6, "test");
        for (n, q) in [(5, 0.5), (40, 0.9), (150, 0.5)] {
            let values = spread(n);
            let mut closed = Resampled::new(&values, q);
            let ours: Vec<f64> = {
                let mut source = Draws::new(&mut rng);
                (0..DRAWS).map(|_| closed.draw(&mut source)).collect()
            };
            let (first, weights) = weights(n, (n + 1) as f64 * q, (n + 1) as f64 * (1.0 - q));
            let slow: Vec<f64> = (0..DRAWS)
                .map(|_| {
                    let resample: Vec<f64> = (0..n).map(|_| values[rng.below(n as u64) as usize]).collect();
                    weighted(&sorted(&resample)[first..], &weights)
                })
                .collect();
            let (ours, slow) = (sorted(&ours), sorted(&slow));
            let share = |drawn: &[f64], at: f64| drawn.partition_point(|value| *value <= at) as f64 / DRAWS as f64;
            let far = slow.iter().map(|at| (share(&ours, at + 1e-9) - share(&slow, at + 1e-9)).abs());
            let far = far.fold(0.0, f64::max);
            // Kolmogorov: 999 of 1,000 pairs of equal distributions are nearer.
            assert!(far < 1.95 * (2.0 / DRAWS as f64).sqrt(), "n {n} q {q}: {far}");
        }
    }

    #[test]
    fn a_shift_is_found_in_both_units() {
        let a = spread(300);
        let b: Vec<f64> = a.iter().map(|value| value * 1.5).collect();
        let found = shift(&a, &b, 0.5, 1_999, 0.95, &mut Rng::stream(1, "test"));
        assert!((found.pct.estimate - 50.0).abs() < 1e-9, "{found:?}");
        // The standard error of either is known, and of the difference of two independent samples.
        let error = (standard_error(&a, 0.5).powi(2) + standard_error(&b, 0.5).powi(2)).sqrt();
        let width = (found.units.high - found.units.low) / (2.0 * 1.96);
        assert!((width / error - 1.0).abs() < 0.15, "{width} {error}");
        let tail = shift(&a[..20], &b[..20], 0.99, 99, 0.95, &mut Rng::stream(1, "test"));
        assert!(tail.pct.low.is_infinite() && tail.pct.high.is_infinite());
    }

    #[test]
    fn large_samples_shift_alike() {
        // Just above and just below the border.
        let (large, fewer) = (spread(RESAMPLED + 1), spread(RESAMPLED));
        let mut rng = Rng::stream(1, "test");
        let plain = shift(&large, &large, 0.5, 500, 0.95, &mut rng);
        let weighted = shift(&fewer[..2_000], &fewer[..2_000], 0.5, 200, 0.95, &mut rng);
        assert!(plain.units.low < 0.0 && plain.units.high > 0.0);
        assert!(weighted.units.low < 0.0 && weighted.units.high > 0.0);
        // Widths go with the density at the quantile; the whole sample at its median has 1 / 200.
        let width = plain.units.high - plain.units.low;
        let expected = 2.0 * 1.96 * 2.0f64.sqrt() * 100.0 / (RESAMPLED as f64).sqrt();
        assert!((width / expected - 1.0).abs() < 0.25, "{width} {expected}");
    }
}
