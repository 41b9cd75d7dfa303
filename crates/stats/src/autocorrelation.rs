//! How much neighbouring samples resemble each other, and what that costs.
//!
//! The lag-1 correlation is taken of ranks, each series ranked by itself, so that neither a shift between series nor an
//! outlier counts; sums over all series are divided once. Such an estimate is too low by about (1 + 3 r) / n for series
//! of n values, which is taken off. If values follow their predecessor with correlation r, a mean of them varies (1 +
//! r) / (1 - r) times as much as one of independent values.
//!
//! [`assess`] computes the correction for a test of two samples. Few values determine r badly, and the error of its
//! estimate costs more where r is too low. So a part of its standard error is added, 0.1 + 2.5 / n of it. The variance
//! is inflated for the sum, and Student's t with two degrees of freedom fewer than the effective size takes the place
//! of the normal distribution. Only an estimate far enough above 0, in standard errors of its own, counts, so that
//! independent samples lose little ([`COUNTS_FROM`]). By simulation, with two AR(1) samples of r = 0.3 to 0.9, a rank
//! test at alpha 0.01 gives at most 1.5 % false alarms with 15 values each, 1.3 % with 20 and more; intervals of
//! independent samples cover at most 1.2 points more than their level.
//!
//! Limits: with fewer than 15 values each, no method can keep that and still see differences of independent samples: no
//! rule on the rank sum and r that keeps 0.013 finds a shift of 2.5 deviations in more than 0.60 of pairs of ten values
//! (a linear program over both). There only evident dependence counts, and r = 0.5 gives up to 8 % false alarms. Runs
//! in random order need no such care, since then the order itself makes the test hold.
//!
//! References: Kendall 1954 and Marriott and Pope 1954 for the bias; Bayley and Hammersley 1946 for the effective size;
//! Ljung and Box 1978.

use super::Method;

pub const METHOD: Method = Method {
    name: "autocorrelation",
    summary: "how much neighbouring samples resemble each other, and the cost of that",
    reference: "lag-1 with its bias taken off (Kendall 1954); effective size n(1-r)/(1+r)",
    checked: "simulated AR(1) samples",
};

/// No correlation is taken to be higher: the effective size must not be nothing.
const HIGHEST: f64 = 0.99;
/// Series shorter than this say nothing.
const LEAST_SERIES: usize = 4;
/// The parts of the standard error that are added to the correlation: of any size, and of one value.
const ADDED: (f64, f64) = (0.1, 2.5);
/// Standard errors above 0 from which a correlation is evident.
const EVIDENT: f64 = 2.0;
/// With this number of values in each sample, or more, a correlation counts from a lower number of standard errors
/// above 0 on. Found by simulation: more errors let false alarms of weak dependence pass, fewer make intervals of
/// independent samples wide.
pub const COUNTS_FROM: &[(f64, f64)] = &[(0.0, EVIDENT), (15.0, 0.5), (40.0, 1.0)];
/// With fewer degrees of freedom no rank sum is extreme enough.
const LEAST_FREEDOM: f64 = 2.0;

/// The known order in which samples were taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Unknown: dependence counts where it shows, by [`COUNTS_FROM`].
    Unknown,
    /// Both sides were taken in random order: neighbours may resemble each other, and the test still holds.
    Random,
    /// First one side, then the other, with a machine that remembers: dependence always counts. Ten values of each side
    /// find half of what they find if they are independent.
    Serial,
}

/// The cost of dependence between neighbours for a test of two samples.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Dependence {
    /// Lag-1 correlation of both samples, its bias taken off.
    pub lag1: f64,
    /// The factor for the variance of the test's statistic; exactly 1 without a correction.
    pub inflation: f64,
    /// Degrees of freedom of Student's t that the statistic is held against if the inflation is more than 1.
    pub df: f64,
    /// Whether too few independent values remain for any conclusion.
    pub too_dependent: bool,
    /// Whether the correlation itself is beyond what independent samples show in one of forty cases.
    pub evident: bool,
}

/// The correction for dependence in a test of two samples, each in the order in which it was taken.
pub fn assess(a: &[f64], b: &[f64], order: Order) -> Dependence {
    let both = [a, b];
    let count = (a.len() + b.len()) as f64;
    let Some((lag1, error)) = estimate(&both) else {
        return Dependence { lag1: 0.0, inflation: 1.0, df: count - 2.0, too_dependent: false, evident: false };
    };
    let counts_from = COUNTS_FROM.iter().rev().find(|(length, _)| count / 2.0 >= *length);
    let errors = match order {
        Order::Unknown => counts_from.map_or(EVIDENT, |(_, errors)| *errors),
        Order::Random => f64::INFINITY,
        Order::Serial => f64::NEG_INFINITY,
    };
    let careful = lag1 + (ADDED.0 + ADDED.1 * 2.0 / count) * error;
    let inflation = if lag1 > errors * error { inflation(careful) } else { 1.0 };
    let df = count / inflation - 2.0;
    Dependence {
        lag1,
        inflation,
        df: df.max(1.0),
        too_dependent: inflation > 1.0 && df < LEAST_FREEDOM,
        evident: lag1 > EVIDENT * error,
    }
}

/// Lag-1 correlation of ranks over several series, its bias taken off; 0 if they are too short or constant.
pub fn lag1(samples: &[&[f64]]) -> f64 {
    estimate(samples).map_or(0.0, |(lag1, _)| lag1)
}

/// The correlation, and its standard error if there is none.
fn estimate(samples: &[&[f64]]) -> Option<(f64, f64)> {
    let series: Vec<&&[f64]> = samples.iter().filter(|values| values.len() >= LEAST_SERIES).collect();
    let (mut together, mut alone) = (0.0, 0.0);
    for values in &series {
        let ranks = centred_ranks(values);
        together += ranks.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>();
        alone += ranks.iter().map(|rank| rank * rank).sum::<f64>();
    }
    if alone <= 0.0 {
        return None;
    }
    let count = series.iter().map(|values| values.len()).sum::<usize>() as f64;
    let length = count / series.len() as f64;
    // E(r) = rho - (1 + 3 rho) / n, solved for rho.
    let kept = 1.0 - 3.0 / length;
    let lag1 = ((together / alone + 1.0 / length) / kept).clamp(-HIGHEST, HIGHEST);
    Some((lag1, ((length - 2.0) / length / count).sqrt() / kept))
}

/// Ranks less their mean; equal values share theirs.
fn centred_ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<(f64, usize)> = values.iter().copied().zip(0..).collect();
    order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let middle = (values.len() as f64 - 1.0) / 2.0;
    let mut ranks = vec![0.0; values.len()];
    let mut below = 0;
    for tie in order.chunk_by(|a, b| a.0 == b.0) {
        let rank = below as f64 + (tie.len() as f64 - 1.0) / 2.0 - middle;
        for (_, nr) in tie {
            ranks[*nr] = rank;
        }
        below += tie.len();
    }
    ranks
}

/// How many times as much as of independent values a mean varies: 1 at least, and 199 at most.
pub fn inflation(lag1: f64) -> f64 {
    let lag1 = lag1.clamp(0.0, HIGHEST);
    (1.0 + lag1) / (1.0 - lag1)
}

/// As many independent values say as much.
pub fn effective(n: usize, lag1: f64) -> f64 {
    n as f64 / inflation(lag1)
}

#[cfg(test)]
mod tests {
    use iowhy_stack::rng::Rng;
    use statrs::distribution::StudentsT;

    use super::*;
    use statrs::distribution::ContinuousCDF;

    fn unit(rng: &mut Rng) -> f64 {
        (rng.below(1 << 53) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Values that follow their predecessors with correlation `phi`.
    fn ar1(rng: &mut Rng, n: usize, phi: f64) -> Vec<f64> {
        let mut bell = || (-2.0 * unit(rng).ln()).sqrt() * (std::f64::consts::TAU * unit(rng)).cos();
        let mut last = bell();
        let mut next = || {
            let now = last;
            last = phi * last + (1.0 - phi * phi).sqrt() * bell();
            now
        };
        (0..n).map(|_| next()).collect()
    }

    #[test]
    fn the_correlation_is_found_without_its_bias() {
        // Of ranks, a correlation is a little lower than that of the normal values beneath.
        for (n, phi, low, high) in [
            (10, 0.0, -0.05, 0.05),
            (10, 0.3, 0.2, 0.32),
            (40, 0.5, 0.43, 0.5),
            (40, 0.9, 0.78, 0.9),
            (40, -0.3, -0.33, -0.24),
        ] {
            let mut rng = Rng::stream(1, "bias");
            let rounds = 300;
            let sum: f64 = (0..rounds).map(|_| lag1(&[&ar1(&mut rng, n, phi), &ar1(&mut rng, n, phi)])).sum();
            let mean = sum / f64::from(rounds);
            assert!((low..=high).contains(&mean), "{n} values of {phi}: {mean}");
        }
    }

    #[test]
    fn neither_a_shift_nor_an_outlier_counts() {
        let mut rng = Rng::stream(2, "shift");
        let a = ar1(&mut rng, 30, 0.4);
        let b = ar1(&mut rng, 30, 0.4);
        let plain = lag1(&[&a, &b]);
        let shifted: Vec<f64> = b.iter().map(|value| value * 10.0 + 1e6).collect();
        assert!((lag1(&[&a, &shifted]) - plain).abs() < 1e-12);
        let most = a.iter().copied().fold(f64::MIN, f64::max);
        let outlier: Vec<f64> = a.iter().map(|value| if *value == most { 1e12 } else { *value }).collect();
        assert!((lag1(&[&outlier, &b]) - plain).abs() < 1e-12);
    }

    #[test]
    fn what_dependence_costs() {
        for (lag1, expected) in [(-0.5, 1.0), (0.0, 1.0), (0.5, 3.0), (0.9, 19.0), (1.0, 199.0)] {
            assert!((inflation(lag1) - expected).abs() < 1e-9, "{lag1}");
        }
        assert!((effective(30, 0.5) - 10.0).abs() < 1e-12);
        assert_eq!(effective(30, -0.5), 30.0);
    }

    #[test]
    fn odd_samples_cost_nothing() {
        for (a, b) in [(&[][..], &[][..]), (&[1.0], &[2.0, 3.0]), (&[4.0; 20], &[5.0; 20])] {
            let dependence = assess(a, b, Order::Unknown);
            assert_eq!((dependence.lag1, dependence.inflation), (0.0, 1.0));
            assert!(!dependence.too_dependent && !dependence.evident);
        }
        let alternating: Vec<f64> = (0..20).map(|nr| f64::from(nr % 2)).collect();
        assert_eq!(assess(&alternating, &alternating, Order::Unknown).inflation, 1.0);
        // A staircase leaves nothing to conclude from.
        let stairs: Vec<f64> = (0..10).map(f64::from).collect();
        assert!(
            assess(&stairs, &stairs, Order::Unknown).too_dependent && assess(&stairs, &stairs, Order::Unknown).evident
        );
    }

    #[test]
    fn independent_samples_are_rarely_evident_and_dependent_ones_are() {
        for (phi, least, most) in [(0.0, 0, 16), (0.7, 380, 400)] {
            let mut rng = Rng::stream(3, "evident");
            let seen = (0..400)
                .filter(|_| assess(&ar1(&mut rng, 40, phi), &ar1(&mut rng, 40, phi), Order::Unknown).evident)
                .count();
            assert!((least..=most).contains(&seen), "{phi}: {seen} of 400");
        }
    }

    #[test]
    fn a_rank_test_that_allows_for_it_keeps_its_level() {
        // Rank sums of two samples, without ties, against Student's t: alarms of 600 at alpha 0.01.
        for (n, phi) in [(20, 0.5), (20, 0.9), (40, 0.3)] {
            let mut rng = Rng::stream(4, "level");
            let mut alarms = [0, 0];
            for _ in 0..600 {
                let (a, b) = (ar1(&mut rng, n, phi), ar1(&mut rng, n, phi));
                let wins: usize = a.iter().map(|x| b.iter().filter(|y| *y < x).count()).sum();
                let size = n as f64;
                let dependence = assess(&a, &b, Order::Unknown);
                let t = |inflation: f64| {
                    let off = ((wins as f64 - size * size / 2.0).abs() - 0.5).max(0.0);
                    off / (inflation * size * size * (2.0 * size + 1.0) / 12.0).sqrt()
                };
                let student = StudentsT::new(0.0, 1.0, dependence.df).expect("one degree of freedom at least");
                let alarm = !dependence.too_dependent && 2.0 * student.sf(t(dependence.inflation)) <= 0.01;
                alarms[0] += usize::from(alarm);
                alarms[1] += usize::from(t(1.0) > 2.576);
            }
            assert!(alarms[0] <= 13 && alarms[1] > 20, "{n} values of {phi}: {alarms:?}");
        }
    }
}
