//! The interval of a true share, from a count out of a total.
//!
//! The ends are the shares that would give this count or fewer, or this count or more, with half of the remaining
//! probability; both are quantiles of a beta distribution (Clopper & Pearson 1934). It covers at least its level, often
//! more. The numbers need not be whole: a share seen in trials that overlap is given the number of trials that do not.

use statrs::distribution::{Beta, ContinuousCDF};

use super::Method;

pub const METHOD: Method = Method {
    name: "share",
    summary: "the interval of a true share, from a count out of a total",
    reference: "Clopper & Pearson 1934",
    checked: "SciPy binomtest",
};

/// The interval of the share at `level`, having seen `count` of `of`; all of 0 to 1 of nothing.
pub fn interval(count: f64, of: f64, level: f64) -> (f64, f64) {
    if of.is_nan() || of <= 0.0 {
        return (0.0, 1.0);
    }
    let tail = (1.0 - level) / 2.0;
    let quantile = |a: f64, b: f64, p: f64| Beta::new(a, b).map_or(f64::NAN, |beta| beta.inverse_cdf(p));
    let low = if count <= 0.0 { 0.0 } else { quantile(count, of - count + 1.0, tail) };
    let high = if count >= of { 1.0 } else { quantile(count + 1.0, of - count, 1.0 - tail) };
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_that_scipy_gives() {
        // binomtest(k, n).proportion_ci(confidence_level=.., method='exact') of SciPy 1.16.3.
        for (count, of, level, low, high) in [
            (0.0, 2.0, 0.95, 0.0, 0.841_886_116_99),
            (1.0, 2.0, 0.95, 0.012_579_117_09, 0.987_420_882_91),
            (0.0, 100.0, 0.95, 0.0, 0.036_216_692_65),
            (20.0, 2000.0, 0.95, 0.006_118_657_54, 0.015_402_125_78),
            (7.0, 7.0, 0.99, 0.469_117_278_54, 1.0),
        ] {
            let found = interval(count, of, level);
            assert!((found.0 - low).abs() < 1e-8 && (found.1 - high).abs() < 1e-8, "{count} of {of}: {found:?}");
        }
        assert_eq!(interval(0.0, 0.0, 0.95), (0.0, 1.0));
    }
}
