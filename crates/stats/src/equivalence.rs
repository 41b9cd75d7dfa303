//! Whether a difference is surely smaller than a margin.
//!
//! That p is large does not show that two things are the same: few or noisy samples have a large p as well. The two
//! one-sided tests turn the burden round. One rejects that the difference is below -margin, the other that it is above
//! +margin; if both do, it is within. Both do exactly if a two-sided interval lies inside the margin: an interval of
//! level 1 - alpha leaves at most alpha / 2 on either side, so each test has the level alpha / 2. At a true difference
//! of margin or more only one of them can err, so calling such a pair the same has a chance of alpha / 2 at most. (An
//! interval of level 1 - 2 alpha would give alpha.) Nothing has to be adjusted for there being two tests.
//!
//! Limits: it is as good as the coverage of the interval. The bounds of the margin belong to it, so a margin of 0 holds
//! for constant equal samples only. Reference: Schuirmann 1987.

use super::Method;

pub const METHOD: Method = Method {
    name: "equivalence",
    summary: "whether a difference is surely smaller than a margin",
    reference: "Schuirmann 1987, two one-sided tests by the interval",
    checked: "the interval it is made of",
};

/// Whether the interval lies within the margin on both sides of 0. An interval with a NaN or without bounds does not,
/// nor does any within a margin that is negative or NaN.
pub fn within(ci: (f64, f64), margin: f64) -> bool {
    ci.0.is_finite() && ci.1.is_finite() && -margin <= ci.0 && ci.0 <= ci.1 && ci.1 <= margin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_within_if_both_its_bounds_are() {
        let infinite = f64::INFINITY;
        for (low, high, margin, expected) in [
            (-0.5, 0.9, 1.0, true),
            (-1.0, 1.0, 1.0, true),
            (-1.01, 0.0, 1.0, false),
            (0.0, 1.01, 1.0, false),
            (2.0, 3.0, 1.0, false),
            (-3.0, -2.0, 1.0, false),
            (0.0, 0.0, 0.0, true),
            (-0.0, 0.0, 0.0, true),
            (0.1, 0.2, 0.0, false),
            (-infinite, infinite, infinite, false),
            (-infinite, 0.0, 1.0, false),
            (f64::NAN, 0.0, 1.0, false),
            (0.0, f64::NAN, 1.0, false),
            (0.0, 0.0, f64::NAN, false),
            (0.0, 0.0, -1.0, false),
        ] {
            assert_eq!(within((low, high), margin), expected, "{low} {high} {margin}");
        }
    }
}
