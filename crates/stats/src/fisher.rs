//! Whether two shares differ: Fisher's exact test.
//!
//! With the margins of a two-by-two table held fixed, its first cell has a hypergeometric distribution if both rows
//! have the same share. The two-sided p-value is the probability of all tables at most as likely as this one. Weights
//! are built up from the likeliest table outwards by the ratio of neighbours, so nothing overflows.
//!
//! Reference: R. A. Fisher, Statistical Methods for Research Workers (1934); two sides as in R and SciPy.
//!
//! Limits: the time grows with the smallest margin. It is careful for small counts, as every exact test of shares is.

use super::Method;

pub const METHOD: Method = Method {
    name: "fisher",
    summary: "whether two shares differ",
    reference: "Fisher 1934",
    checked: "SciPy fisher_exact",
};

/// Tables whose probability differs by less than this part are equally likely: rounding must not separate them.
const SAME: f64 = 1e-9;

/// The two-sided p-value of equal shares of `low` on both sides; 1 if a margin is empty.
pub fn fisher_exact(a_low: u64, a_high: u64, b_low: u64, b_high: u64) -> f64 {
    let (a, b) = (a_low + a_high, b_low + b_high);
    let low = a_low + b_low;
    if a == 0 || b == 0 || low == 0 || low == a + b {
        return 1.0;
    }
    let (first, last) = (low.saturating_sub(b), low.min(a));
    // How much likelier the table with one more in the first cell is.
    let up = |k: u64| {
        let (k, a, b, low) = (k as f64, a as f64, b as f64, low as f64);
        (a - k) * (low - k) / ((k + 1.0) * (b - low + k + 1.0))
    };
    let likeliest = (((a + 1) as f64 * (low + 1) as f64 / (a + b + 2) as f64) as u64).clamp(first, last);
    let upwards = (likeliest..last).scan(1.0, |weight, k| {
        *weight *= up(k);
        Some((k + 1, *weight))
    });
    let downwards = (first..likeliest).rev().scan(1.0, |weight, k| {
        *weight /= up(k);
        Some((k, *weight))
    });
    let weights: Vec<(u64, f64)> = downwards.chain([(likeliest, 1.0)]).chain(upwards).collect();
    let own = weights.iter().find(|(k, _)| *k == a_low).map_or(1.0, |(_, weight)| *weight);
    // The smallest first, so that small tails are not lost in the sum.
    let mut all: Vec<f64> = weights.into_iter().map(|(_, weight)| weight).collect();
    all.sort_unstable_by(f64::total_cmp);
    let total: f64 = all.iter().sum();
    let tail: f64 = all.iter().take_while(|weight| **weight <= own * (1.0 + SAME)).sum();
    (tail / total).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_is_that_of_scipy() {
        let rows: Vec<(u64, u64, u64, u64, f64)> =
            serde_json::from_str(include_str!("../tests/vectors/fisher.json")).expect("the vectors are JSON");
        assert!(rows.len() >= 80);
        for (a_low, a_high, b_low, b_high, expected) in rows {
            let p = fisher_exact(a_low, a_high, b_low, b_high);
            assert!((p - expected).abs() <= 1e-12, "{a_low} {a_high} {b_low} {b_high}: {p}, not {expected}");
        }
    }

    #[test]
    fn the_sides_and_the_halves_may_change_places() {
        for cell in 0..400u64 {
            let [a, b, c, d] = [cell % 5, cell / 5 % 4, cell % 7, cell / 20];
            let p = fisher_exact(a, b, c, d);
            assert!((0.0..=1.0).contains(&p));
            for same in [fisher_exact(c, d, a, b), fisher_exact(b, a, d, c), fisher_exact(a, c, b, d)] {
                assert!((p - same).abs() < 1e-12, "{a} {b} {c} {d}");
            }
        }
    }

    #[test]
    fn empty_margins_say_nothing_and_large_counts_end() {
        for (a, b, c, d) in [(0, 0, 0, 0), (0, 0, 3, 4), (5, 5, 0, 0), (0, 7, 0, 9), (7, 0, 9, 0)] {
            assert_eq!(fisher_exact(a, b, c, d), 1.0);
        }
        assert!(fisher_exact(100_000, 0, 0, 100_000) < 1e-300);
        assert!((fisher_exact(50_000, 50_000, 50_000, 50_000) - 1.0).abs() < 1e-9);
    }
}
