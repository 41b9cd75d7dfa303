//! How far apart two samples are, in figures that have no unit.
//!
//! Vargha and Delaney's A12 is the probability that a value of `b` is larger than one of `a`, a tie as one half: U over
//! n m. Cliff's delta is the same from -1 to 1: 2 A12 - 1. Both stay as they are if all values are put through a rising
//! function. Hedges' g is the difference of the means in units of the pooled deviation, times the factor
//! J = G(v/2) / (sqrt(v/2) G((v-1)/2)), v = n + m - 2, that takes out the bias of small samples.
//!
//! Limits: g is about normal values; one value far out ruins it. None of them includes its certainty. Undefined values
//! are NaN.
//! References: Cliff 1993; Vargha & Delaney 2000; Hedges 1981.

use statrs::function::gamma::ln_gamma;

use super::Method;
use super::rank::{self, Ranks};

pub const METHOD: Method = Method {
    name: "effect-size",
    summary: "how far apart two samples are in figures without a unit",
    reference: "Cliff 1993; Vargha & Delaney 2000; Hedges 1981",
    checked: "SciPy mannwhitneyu; NumPy by the definition",
};

/// Share of the pairs in which `b` is larger less the share in which it is smaller; NaN if a side is empty.
pub fn cliffs_delta(a: &[f64], b: &[f64]) -> f64 {
    let ranks = Ranks::of(&rank::ascending(a), &rank::ascending(b));
    ranks.map_or(f64::NAN, |ranks| {
        let pairs = rank::pairs(ranks.n, ranks.m) as f64;
        (ranks.twice_u as f64 - pairs) / pairs
    })
}

/// Mean of `b` less mean of `a` in units of the pooled deviation, without bias; NaN if a side is empty, if there are
/// fewer than four values in all, or if nothing varies.
pub fn hedges_g(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() || a.len() + b.len() < 4 {
        return f64::NAN;
    }
    // Constant samples have no spread, whatever rounding makes of their mean.
    let varies = |samples: &[f64]| samples.iter().any(|x| *x != samples[0]);
    if !varies(a) && !varies(b) {
        return f64::NAN;
    }
    let mean = |samples: &[f64]| samples.iter().sum::<f64>() / samples.len() as f64;
    let squares = |samples: &[f64], mean: f64| samples.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>();
    let (mean_a, mean_b) = (mean(a), mean(b));
    let freedom = (a.len() + b.len() - 2) as f64;
    let deviation = ((squares(a, mean_a) + squares(b, mean_b)) / freedom).sqrt();
    (mean_b - mean_a) / deviation * unbiased(freedom)
}

/// Hedges' factor for this many degrees of freedom, at least 2.
fn unbiased(freedom: f64) -> f64 {
    if freedom > 1_000.0 {
        // The difference of two large logarithms loses digits; the series is right to 1e-10 from here on.
        return 1.0 - 3.0 / (4.0 * freedom) - 7.0 / (32.0 * freedom * freedom);
    }
    (ln_gamma(freedom / 2.0) - ln_gamma((freedom - 1.0) / 2.0)).exp() / (freedom / 2.0).sqrt()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shares_are_those_of_all_pairs(
            a in prop::collection::vec((-5i32..5).prop_map(f64::from), 1..30),
            b in prop::collection::vec((-5i32..5).prop_map(f64::from), 1..30),
        ) {
            let pairs = || b.iter().flat_map(|b| a.iter().map(move |a| (*a, *b)));
            let count = |of: fn((f64, f64)) -> bool| pairs().filter(|pair| of(*pair)).count() as f64;
            let (more, less) = (count(|(a, b)| b > a), count(|(a, b)| b < a));
            let all = pairs().count() as f64;
            prop_assert!((cliffs_delta(&a, &b) - (more - less) / all).abs() < 1e-15);
            prop_assert_eq!(cliffs_delta(&a, &b), -cliffs_delta(&b, &a));
        }
    }

    #[test]
    fn what_does_not_exist_is_nan() {
        for effect in [cliffs_delta, hedges_g] {
            assert!(effect(&[], &[1.0, 2.0, 3.0, 4.0]).is_nan());
            assert!(effect(&[1.0, 2.0, 3.0, 4.0], &[]).is_nan());
        }
        assert!(hedges_g(&[1.0], &[2.0, 3.0]).is_nan());
        assert!(hedges_g(&[0.1; 9], &[0.2; 9]).is_nan());
    }

    #[test]
    fn both_ways_to_the_factor_meet() {
        assert!((unbiased(1_000.0) - unbiased(1_000.000_001)).abs() < 1e-9);
        // With two degrees of freedom it is 1 / sqrt(pi).
        assert!((unbiased(2.0) - std::f64::consts::PI.sqrt().recip()).abs() < 1e-12);
    }

    #[test]
    fn hedges_g_is_what_a_hand_gets() {
        // Means 2 and 4, both variances 1, v = 4: J = sqrt(2) G(2) / (2 G(1.5)) = 0.797885.
        assert!((hedges_g(&[1.0, 2.0, 3.0], &[3.0, 4.0, 5.0]) - 2.0 * 0.797_884_560_802_865).abs() < 1e-12);
    }

    #[test]
    fn what_numpy_and_scipy_say() {
        for row in rank::vectors()["pairs"].as_array().expect("rows") {
            let (a, b) = (rank::floats(&row["a"]), rank::floats(&row["b"]));
            let (g, u) = (row["hedges"].as_f64().expect("a number"), rank::floats(&row["asymptotic"])[0]);
            assert!((hedges_g(&a, &b) - g).abs() < 1e-10, "{g}");
            let pairs = (a.len() * b.len()) as f64;
            assert!((cliffs_delta(&a, &b) - (2.0 * u / pairs - 1.0)).abs() < 1e-12, "{u}");
        }
    }
}
