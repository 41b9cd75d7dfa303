//! Paired differences: the signed-rank test, and the centre of the differences with its interval.
//!
//! The differences' sizes are ranked (zeros are dropped, ties share their mean rank) and the ranks of the positive
//! ones added up. If a difference is as likely to have either sign, each of the 2^n signings is equally likely: up to
//! [`EXACT`] differences the probabilities are counted, ties or not, by adding one rank after the other to a table of
//! sums; above, the normal approximation with the variance that ties leave. The centre is the median of the means of
//! all pairs of differences (Hodges & Lehmann 1963), its interval what the test would not reject. In a design of
//! randomised blocks the signs are random whatever changes from block to block, so drift and dependence between
//! neighbouring runs cancel.
//! Limits: interval and centre look at all n(n+1)/2 pairs; above [`THINNED`] differences evenly spaced ones of the
//! sorted differences stand for the rest.

use statrs::distribution::{ContinuousCDF, Normal};

use super::{Method, median_sorted, sorted};

pub const METHOD: Method = Method {
    name: "signed-rank",
    summary: "whether paired differences have one sign more than the other, and their centre with its interval",
    reference: "Wilcoxon 1945; Hodges & Lehmann 1963; zeros dropped as by Wilcoxon",
    checked: "SciPy wilcoxon",
};

/// Most differences whose distribution is counted out.
pub const EXACT: usize = 200;
/// More differences than this are thinned out for the interval.
const THINNED: usize = 2_000;

/// Results of the test.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct SignedRank {
    /// Sum of the ranks of the positive differences.
    pub w: f64,
    /// Two-sided.
    pub p: f64,
    /// Counted out rather than approximated.
    pub exact: bool,
    /// The centre of the differences.
    pub centre: f64,
    /// Lower end of its interval; infinite if there are too few differences.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The test and the interval of the centre at `level`; `None` of no differences.
pub fn test(differences: &[f64], level: f64) -> Option<SignedRank> {
    if differences.is_empty() {
        return None;
    }
    let (doubled, positive) = ranks(differences);
    let w = positive as f64 / 2.0;
    let exact = doubled.len() <= EXACT;
    let p = if doubled.is_empty() {
        1.0
    } else if exact {
        let table = sums(&doubled);
        let total = table.iter().sum::<f64>();
        let below: f64 = table[..=positive].iter().sum();
        let above: f64 = table[positive..].iter().sum();
        (2.0 * below.min(above) / total).min(1.0)
    } else {
        let mean: f64 = doubled.iter().map(|rank| *rank as f64 / 4.0).sum();
        let variance: f64 = doubled.iter().map(|rank| (*rank as f64 / 2.0).powi(2)).sum::<f64>() / 4.0;
        // The sum moves in steps of one: half a step towards the mean.
        let z = ((w - mean).abs() - 0.5).max(0.0) / variance.sqrt();
        (2.0 * Normal::standard().cdf(-z)).min(1.0)
    };
    let (centre, low, high) = centre(differences, level);
    Some(SignedRank { w, p, exact, centre, low, high })
}

/// The smallest two-sided p that `n` differences can give.
pub fn least_p(n: usize) -> f64 {
    2.0 * 0.5f64.powi(i32::try_from(n).unwrap_or(i32::MAX))
}

/// Twice the rank of each difference that is not zero, and the sum of those of the positive ones. Mean ranks of ties
/// are halves, so that twice a rank is a whole number.
fn ranks(differences: &[f64]) -> (Vec<usize>, usize) {
    let mut order: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    order.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
    let mut doubled = Vec::with_capacity(order.len());
    let mut positive = 0;
    let mut rest = &order[..];
    while let Some(first) = rest.first() {
        let ties = rest.iter().take_while(|d| d.abs() == first.abs()).count();
        let rank = 2 * doubled.len() + ties + 1;
        positive += rank * rest[..ties].iter().filter(|d| **d > 0.0).count();
        doubled.extend(std::iter::repeat_n(rank, ties));
        rest = &rest[ties..];
    }
    (doubled, positive)
}

/// How many signings have which sum of doubled ranks, as a share that keeps clear of overflow.
fn sums(doubled: &[usize]) -> Vec<f64> {
    let mut table = vec![0.0; doubled.iter().sum::<usize>() + 1];
    table[0] = 1.0;
    let mut top = 0;
    for rank in doubled {
        top += rank;
        for sum in (*rank..=top).rev() {
            table[sum] += table[sum - rank];
        }
        table[..=top].iter_mut().for_each(|ways| *ways *= 0.5);
    }
    table
}

/// Median of the Walsh averages, and the pair of them that bounds it.
fn centre(differences: &[f64], level: f64) -> (f64, f64, f64) {
    let all = sorted(differences);
    let n = all.len();
    let used: Vec<f64> = match n {
        _ if n <= THINNED => all,
        _ => (0..THINNED).map(|k| all[(2 * k + 1) * n / (2 * THINNED)]).collect(),
    };
    let mut averages = Vec::with_capacity(used.len() * (used.len() + 1) / 2);
    for (nr, low) in used.iter().enumerate() {
        averages.extend(used[nr..].iter().map(|high| f64::midpoint(*low, *high)));
    }
    averages.sort_unstable_by(f64::total_cmp);
    let pairs = averages.len();
    let outside = match n {
        _ if n <= EXACT => exact_outside(n, level),
        _ => {
            // The normal approximation of the rank below which the interval must not begin, as a share of all pairs.
            let (n, z) = (n as f64, Normal::standard().inverse_cdf(0.5 + level / 2.0));
            let all = n * (n + 1.0) / 2.0;
            let rank = all / 2.0 - z * (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
            Some((rank.max(0.0) / all * pairs as f64) as usize)
        }
    };
    let (low, high) = outside
        .map_or((f64::NEG_INFINITY, f64::INFINITY), |outside| (averages[outside], averages[pairs - 1 - outside]));
    (median_sorted(&averages), low, high)
}

/// How many of the smallest averages the interval leaves out, or nothing if even all of them do not reach the level.
fn exact_outside(n: usize, level: f64) -> Option<usize> {
    let doubled: Vec<usize> = (1..=n).map(|rank| 2 * rank).collect();
    let table = sums(&doubled);
    let mut below = 0.0;
    let mut left_out = None;
    for (nr, ways) in table.iter().step_by(2).enumerate() {
        below += ways;
        if 2.0 * below > 1.0 - level {
            break;
        }
        left_out = Some(nr);
    }
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_values_that_scipy_gives() {
        // wilcoxon(x, method=..) of SciPy 1.16.3. Without ties it is exact; with them, the exact permutation.
        let ten = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30, -0.40];
        let eight = [0.5, -1.25, 2.0, 3.5, 4.25, -0.75, 1.0, 6.0];
        let table: [(&[f64], f64, f64); 3] =
            [(&ten, 54.0, 0.003_906_25), (&eight, 30.0, 0.109_375), (&[1.0, 1.0, 1.0, -1.0, 2.0], 12.5, 0.312_5)];
        for (differences, w, p) in table {
            let found = test(differences, 0.95).expect("differences");
            assert!(found.exact && found.w == w, "{found:?}");
            assert!((found.p - p).abs() < 1e-12, "{found:?}, expected {p}");
        }
    }

    #[test]
    fn few_differences_bound_nothing_and_enough_do() {
        let differences: Vec<f64> = (1..=9).map(f64::from).collect();
        for (n, bounded) in [(1, false), (5, false), (7, false), (8, true), (9, true)] {
            let found = test(&differences[..n], 0.99).expect("differences");
            assert_eq!(found.low.is_finite() && found.high.is_finite(), bounded, "{n}: {found:?}");
            assert_eq!(found.p, least_p(n), "{n}");
        }
        assert_eq!(test(&[], 0.95), None);
        let zero = test(&[0.0; 12], 0.95).expect("differences");
        assert_eq!((zero.p, zero.centre, zero.low, zero.high), (1.0, 0.0, 0.0, 0.0));
    }

    #[test]
    fn the_approximation_joins_the_count() {
        let many: Vec<f64> = (0..201).map(|n| f64::from((n * 7919) % 211) - 90.0 + f64::from(n) * 1e-3).collect();
        let [exact, approximate] = [&many[..EXACT], &many[..]].map(|d| test(d, 0.95).expect("differences"));
        assert!(exact.exact && !approximate.exact);
        assert!((exact.p - approximate.p).abs() < 0.02, "{exact:?} {approximate:?}");
        assert!((exact.low - approximate.low).abs() < 1.5, "{exact:?} {approximate:?}");
    }

    proptest! {
        #[test]
        fn p_is_what_all_signings_say(
            sizes in prop::collection::vec(1..6i32, 1..10),
            signs in prop::collection::vec(any::<bool>(), 10),
        ) {
            let signed = |bits: usize| -> Vec<f64> {
                let sign = |nr: usize| if bits >> nr & 1 == 1 { 1.0 } else { -1.0 };
                sizes.iter().enumerate().map(|(nr, size)| sign(nr) * f64::from(*size)).collect()
            };
            let bits = signs.iter().enumerate().map(|(nr, sign)| usize::from(*sign) << nr).sum::<usize>();
            let own = signed(bits);
            let w = |differences: &[f64]| ranks(differences).1;
            let all: Vec<usize> = (0..1usize << sizes.len()).map(|bits| w(&signed(bits))).collect();
            let share = |of: &dyn Fn(usize) -> bool| {
                all.iter().filter(|other| of(**other)).count() as f64 / all.len() as f64
            };
            let mine = w(&own);
            let expected = (2.0 * share(&|other| other <= mine).min(share(&|other| other >= mine))).min(1.0);
            let found = test(&own, 0.9).expect("differences");
            prop_assert!((found.p - expected).abs() < 1e-12);
            prop_assert!(found.low <= found.centre && found.centre <= found.high);
        }
    }
}
