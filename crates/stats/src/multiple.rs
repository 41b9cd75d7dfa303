//! P-values of many rows at once.
//!
//! Holm: sorted from the smallest, the i-th of n is multiplied by n - i + 1 and is at least its predecessor. The chance
//! of one false alarm or more in the whole table stays below alpha whatever the rows have to do with one another.
//! Benjamini and Hochberg: sorted from the largest, the i-th smallest is multiplied by n / i and is at most its
//! successor. The expected share of false alarms among the alarms stays below alpha if the rows are independent or move
//! together.
//!
//! A NaN is a row that was not tested: it stays NaN and does not count as one of the n. Results are at most 1.
//! References: Holm 1979; Benjamini & Hochberg 1995.

use super::Method;

pub const METHOD: Method = Method {
    name: "multiple-testing",
    summary: "p-values of many rows at once",
    reference: "Holm 1979; Benjamini & Hochberg 1995",
    checked: "SciPy false_discovery_control; Holm by its definition",
};

/// Adjusted so that any false alarm in the table is as rare as alpha; in the order given.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let order = tested(p);
    let mut adjusted = vec![f64::NAN; p.len()];
    let mut least = 0.0f64;
    for (i, &row) in order.iter().enumerate() {
        least = least.max(p[row] * (order.len() - i) as f64).min(1.0);
        adjusted[row] = least;
    }
    adjusted
}

/// Adjusted so that the share of false ones among the alarms is alpha at most; in the order given.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let order = tested(p);
    let mut adjusted = vec![f64::NAN; p.len()];
    let mut most = 1.0f64;
    for (i, &row) in order.iter().enumerate().rev() {
        // Divided first: a factor of 1 or more cannot lower p by rounding.
        most = most.min(p[row] * (order.len() as f64 / (i + 1) as f64));
        adjusted[row] = most;
    }
    adjusted
}

/// The rows that have a p, from the smallest.
fn tested(p: &[f64]) -> Vec<usize> {
    debug_assert!(p.iter().all(|p| p.is_nan() || (0.0..=1.0).contains(p)), "not probabilities: {p:?}");
    let mut order: Vec<usize> = (0..p.len()).filter(|row| !p[*row].is_nan()).collect();
    order.sort_by(|x, y| p[*x].total_cmp(&p[*y]));
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::rank;
    use super::*;

    #[test]
    fn by_hand() {
        let p = [0.04, 0.01, f64::NAN, 0.03, 0.5];
        let holm = holm(&p);
        assert!(holm[2].is_nan());
        assert_eq!([holm[0], holm[1], holm[3], holm[4]], [0.09, 0.04, 0.09, 0.5]);
        let share = benjamini_hochberg(&p);
        assert!(share[2].is_nan());
        assert_eq!([share[1], share[4]], [0.04, 0.5]);
        // The third of four: 4 / 3 of its p, which the second one may not exceed.
        assert_eq!(share[0], share[3]);
        assert!((share[0] - 0.16 / 3.0).abs() < 1e-15);
    }

    #[test]
    fn what_scipy_and_the_definition_say() {
        for row in rank::vectors()["adjust"].as_array().expect("rows") {
            let p = rank::floats(&row["p"]);
            for (found, expected) in [(holm(&p), &row["holm"]), (benjamini_hochberg(&p), &row["bh"])] {
                for (found, expected) in found.iter().zip(rank::floats(expected)) {
                    assert!((found - expected).abs() < 1e-14, "{found} {expected}");
                }
            }
        }
    }

    #[test]
    fn nothing_and_untested_rows() {
        for adjust in [holm, benjamini_hochberg] {
            assert!(adjust(&[]).is_empty());
            assert!(adjust(&[f64::NAN, f64::NAN]).iter().all(|p| p.is_nan()));
            assert_eq!(adjust(&[0.2]), [0.2]);
            assert_eq!(adjust(&[1.0, 1.0, 0.0]), [1.0, 1.0, 0.0]);
        }
    }

    proptest! {
        /// Holm's procedure rejects, step by step, exactly the rows whose adjusted p is at most alpha.
        #[test]
        fn holm_rejects_what_its_steps_reject(p in prop::collection::vec(0.0..0.2f64, 1..30), alpha in 0.01..0.5f64) {
            let mut order: Vec<usize> = (0..p.len()).collect();
            order.sort_by(|x, y| p[*x].total_cmp(&p[*y]));
            let steps = order.iter().enumerate().take_while(|(i, row)| p[**row] * (p.len() - i) as f64 <= alpha);
            let mut rejected: Vec<usize> = steps.map(|(_, row)| *row).collect();
            rejected.sort_unstable();
            let adjusted = holm(&p);
            let found: Vec<usize> = (0..p.len()).filter(|row| adjusted[*row] <= alpha).collect();
            prop_assert_eq!(found, rejected);
            // The other adjustment is never stricter, and neither ever lowers a p.
            for (row, share) in benjamini_hochberg(&p).into_iter().enumerate() {
                prop_assert!(p[row] <= share && share <= adjusted[row]);
            }
        }
    }
}
