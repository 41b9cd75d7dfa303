//! The difference of two means, of samples that need not spread alike.
//!
//! The difference of the means over its standard error follows Student's law with the degrees of freedom that Welch and
//! Satterthwaite give (Welch 1947). It is right for normal samples and nearly so for means of others; for what may have
//! heavy tails or modes there are the ranks. A side of one value has no spread, and the interval is infinite then,
//! unless neither side can spread.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::Method;

pub const METHOD: Method = Method {
    name: "welch",
    summary: "interval of the difference of two means that spread differently",
    reference: "Welch 1947",
    checked: "SciPy ttest_ind",
};

/// The interval of the mean of `b` minus that of `a` at `level`; infinite of fewer than two values on a side.
pub fn interval(a: &[f64], b: &[f64], level: f64) -> (f64, f64) {
    let moments = |values: &[f64]| {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (n, mean, square / n)
    };
    if a.len() < 2 || b.len() < 2 {
        return (f64::NEG_INFINITY, f64::INFINITY);
    }
    let ((n_a, mean_a, error_a), (n_b, mean_b, error_b)) = (moments(a), moments(b));
    let (difference, error) = (mean_b - mean_a, error_a + error_b);
    if error <= 0.0 {
        return (difference, difference);
    }
    let freedom = error * error / (error_a * error_a / (n_a - 1.0) + error_b * error_b / (n_b - 1.0));
    let quantile = StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |law| law.inverse_cdf(0.5 + level / 2.0));
    let half = quantile * error.sqrt();
    (difference - half, difference + half)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both samples, the level, and the ends.
    type Case = (&'static [f64], &'static [f64], f64, f64, f64);

    #[test]
    fn the_values_that_scipy_gives() {
        // ttest_ind(b, a, equal_var=False).confidence_interval(level) of SciPy 1.16.3.
        let cases: &[Case] = &[
            (&[1.0, 2.0, 3.0, 4.0], &[2.0, 4.0, 6.0, 8.0, 10.0], 0.95, -0.385_368_081, 7.385_368_081),
            (&[10.0, 10.1, 9.9], &[12.0, 12.4, 11.8], 0.99, 0.683_140_416, 3.450_192_918),
            (&[5.0, 5.0], &[7.0, 9.0], 0.95, -9.706_204_736, 15.706_204_736),
        ];
        for (a, b, level, low, high) in cases {
            let found = interval(a, b, *level);
            assert!((found.0 - low).abs() < 1e-6 && (found.1 - high).abs() < 1e-6, "{a:?} {b:?}: {found:?}");
        }
        assert_eq!(interval(&[1.0], &[2.0, 3.0], 0.95), (f64::NEG_INFINITY, f64::INFINITY));
        assert_eq!(interval(&[1.0, 1.0], &[3.0, 3.0], 0.95), (2.0, 2.0));
    }
}
