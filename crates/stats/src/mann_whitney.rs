//! Whether one sample tends to be larger, by ranks.
//!
//! U of `b` counts the pairs in which `b` is larger, a tie as one half. If both come from one distribution, every way
//! to deal the pooled values out to the sides is equally likely. Small samples: all of them are counted, without ties
//! by Mann and Whitney's distribution, with ties by Klotz's conditional one, built up over the groups of equal values.
//! The two-sided p is twice the smaller tail, at most 1. Others: the normal law with the variance corrected for ties
//! and U moved half a step to the middle.
//!
//! Limits: exact up to 50 values a side (or 8 against 10,000); with ties up to 25 (or 8 against 100), as benchstat.
//! With ties and unequal sizes U is not symmetric; benchstat doubles the tail of the other side's value then, and has
//! p above 1 or 0 for such samples. Here each tail is that of U itself. A difference in spread alone shows little.
//! References: Mann & Whitney 1947; Klotz 1966; Lehmann 1975.

use statrs::function::beta::beta_reg;
use statrs::function::erf::erfc;

use super::Method;
use super::rank::{self, Ranks, Tied};

pub const METHOD: Method = Method {
    name: "mann-whitney",
    summary: "whether one sample tends to be larger, by ranks",
    reference: "Mann & Whitney 1947; with ties Klotz 1966",
    checked: "SciPy mannwhitneyu; benchstat; counting all arrangements",
};

/// Results of the test.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct MannWhitney {
    /// Pairs in which `b` is larger, and half of those that tie.
    pub u: f64,
    /// Two-sided.
    pub p: f64,
    /// Whether all arrangements were counted.
    pub exact: bool,
    /// Whether any two values are equal.
    pub ties: bool,
}

/// Exact where that is quick, else asymptotic with both corrections; `None` if a side is empty.
pub fn test(a: &[f64], b: &[f64]) -> Option<MannWhitney> {
    let (a, b) = (rank::ascending(a), rank::ascending(b));
    let ranks = Ranks::of(&a, &b)?;
    Some(exact_of(&a, &b, &ranks).unwrap_or_else(|| asymptotic_of(&ranks, true)))
}

/// By counting all arrangements; `None` if a side is empty or there are too many.
pub fn exact(a: &[f64], b: &[f64]) -> Option<MannWhitney> {
    let (a, b) = (rank::ascending(a), rank::ascending(b));
    exact_of(&a, &b, &Ranks::of(&a, &b)?)
}

/// For values that depend on one another: the variance is `inflation` times as large (less than 1 counts as 1), and p
/// comes from Student's law with `df` degrees of freedom (less than 1 counts as 1). It is never below that of [`test`],
/// and 1 if either figure is NaN.
pub fn inflated(a: &[f64], b: &[f64], inflation: f64, df: f64) -> Option<MannWhitney> {
    let (a, b) = (rank::ascending(a), rank::ascending(b));
    let plain = test(&a, &b)?;
    let ranks = Ranks::of(&a, &b)?;
    let p = if inflation.is_nan() || df.is_nan() {
        1.0
    } else {
        student_two_sided(standardised(&ranks, true) / inflation.max(1.0).sqrt(), df.max(1.0))
    };
    Some(MannWhitney { p: p.max(plain.p), exact: false, ..plain })
}

/// The smallest two-sided p that samples of these sizes can have: 2 / C(n + m, n); 1 if one is empty.
pub fn least_p(n: usize, m: usize) -> f64 {
    let (small, large) = (n.min(m), n.max(m));
    let mut p = 2.0;
    for i in 1..=small {
        p *= i as f64 / (large + i) as f64;
        if p == 0.0 {
            break;
        }
    }
    p.min(1.0)
}

/// Whether the conditional distribution with ties is quick to build.
fn ties_fit(n: usize, m: usize) -> bool {
    let (small, large) = (n.min(m), n.max(m));
    large <= 25 || (small <= 8 && large <= 100)
}

/// The exact test of ascending samples.
fn exact_of(a: &[f64], b: &[f64], ranks: &Ranks) -> Option<MannWhitney> {
    let p = match ranks.ties {
        true if ties_fit(ranks.n, ranks.m) => tied_p(a, b, ranks),
        false if rank::counts_fit(ranks.n, ranks.m) => {
            // Without ties twice U is even.
            let smaller = (ranks.twice_smaller() / 2) as usize;
            2.0 * rank::cumulative(ranks.n, ranks.m, smaller)[smaller]
        }
        _ => return None,
    };
    Some(MannWhitney { u: ranks.twice_u as f64 / 2.0, p: p.min(1.0), exact: true, ties: ranks.ties })
}

/// Twice the smaller tail of U given the ties.
fn tied_p(a: &[f64], b: &[f64], ranks: &Ranks) -> f64 {
    // The side with the smaller U is counted up to it only; whichever side has fewer values is the one that is dealt.
    // Dealing the other one from the top gives the same pairs.
    let flip = ranks.twice_u > rank::pairs(ranks.n, ranks.m);
    let mut groups: Vec<Tied> = rank::groups(a, b).collect();
    let (of, other) = if flip { (ranks.n, ranks.m) } else { (ranks.m, ranks.n) };
    let dealt = of.min(other);
    if other < of {
        groups.reverse();
    }
    let most = ranks.twice_smaller() as usize;
    // ways[c][x]: how often c values have been dealt with twice U = x so far.
    let mut ways = vec![vec![0.0f64; most + 1]; dealt + 1];
    ways[0][0] = 1.0;
    let mut before = 0;
    for group in groups {
        let t = group.a + group.b;
        let rest = ranks.n + ranks.m - before - t;
        for c in (0..=dealt.min(before)).rev() {
            let (from, to) = ways.split_at_mut(c + 1);
            let from = &from[c];
            let mut choices = 1.0;
            for e in 1..=t.min(dealt - c) {
                choices = choices * (t + 1 - e) as f64 / e as f64;
                // Those dealt now are above all that went to the other side before, and tie with what is left of
                // the group.
                let more = e * (2 * (before - c) + (t - e));
                // A row that can no longer be filled up is of no use.
                if more > most || c + e + rest < dealt {
                    continue;
                }
                for (sum, way) in to[e - 1][more..].iter_mut().zip(from) {
                    *sum += choices * way;
                }
            }
        }
        before += t;
    }
    let total = rank::choose(ranks.n + ranks.m, dealt);
    let lower: f64 = ways[dealt].iter().sum::<f64>() / total;
    let upper = 1.0 - lower + ways[dealt][most] / total;
    2.0 * lower.min(upper)
}

/// The asymptotic test.
fn asymptotic_of(ranks: &Ranks, continuity: bool) -> MannWhitney {
    let z = standardised(ranks, continuity);
    let p = erfc(z / std::f64::consts::SQRT_2).min(1.0);
    MannWhitney { u: ranks.twice_u as f64 / 2.0, p, exact: false, ties: ranks.ties }
}

/// How many deviations the larger U is above the middle. With the correction it may be below: then p is 1, as it is
/// for values that are all equal.
fn standardised(ranks: &Ranks, continuity: bool) -> f64 {
    let deviation = ranks.deviation();
    if deviation == 0.0 {
        return 0.0;
    }
    let above = (rank::pairs(ranks.n, ranks.m) - ranks.twice_smaller()) as f64 / 2.0;
    (above - if continuity { 0.5 } else { 0.0 }) / deviation
}

/// Two-sided p of Student's law; infinite `df` is the normal one.
fn student_two_sided(t: f64, df: f64) -> f64 {
    if t <= 0.0 {
        return 1.0;
    }
    // The continued fraction of the incomplete beta function gets slow; the first term in 1 / df is right to 12 digits.
    if df > 1e6 {
        return erfc(t * (1.0 - (t * t + 1.0) / (4.0 * df)).max(0.0) / std::f64::consts::SQRT_2);
    }
    beta_reg(df / 2.0, 0.5, df / (df + t * t))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Both sides of a row of the vectors.
    fn sides(row: &serde_json::Value) -> (Vec<f64>, Vec<f64>) {
        (rank::floats(&row["a"]), rank::floats(&row["b"]))
    }

    #[test]
    fn what_scipy_says() {
        for row in rank::vectors()["pairs"].as_array().expect("rows") {
            let (a, b) = sides(row);
            let by_the_normal_law = |continuity| {
                let ranks = Ranks::of(&rank::ascending(&a), &rank::ascending(&b));
                ranks.map(|ranks| asymptotic_of(&ranks, continuity))
            };
            for (name, found) in [
                ("asymptotic", by_the_normal_law(true)),
                ("uncorrected", by_the_normal_law(false)),
                ("exact", exact(&a, &b)),
            ] {
                let (Some(found), true) = (found, row[name].is_array()) else { continue };
                let expected = rank::floats(&row[name]);
                assert_eq!(found.u, expected[0]);
                assert!(rank::agree(found.p, expected[1], 9.0), "{name} {found:?} {expected:?}");
            }
            let best = test(&a, &b).expect("both have values");
            assert!(!row["exact"].is_array() || best.exact, "{best:?}");
        }
    }

    #[test]
    fn with_ties_what_counting_all_arrangements_says() {
        for row in rank::vectors()["klotz"].as_array().expect("rows") {
            let (a, b) = sides(row);
            let (found, swapped) = (test(&a, &b).expect("values"), test(&b, &a).expect("values"));
            assert!(found.exact, "{found:?}");
            assert!(rank::agree(found.p, row["p"].as_f64().expect("a number"), 12.0), "{found:?} {}", row["p"]);
            assert!(rank::agree(swapped.p, found.p, 12.0));
        }
    }

    #[test]
    fn what_benchstat_prints() {
        for row in rank::vectors()["benchstat"].as_array().expect("rows") {
            let (a, b) = sides(row);
            let (found, printed) = (test(&a, &b).expect("values"), row["p"].as_f64().expect("a number"));
            assert!((found.p - printed).abs() <= 0.000_5 + 1e-12, "{found:?} {printed}");
        }
    }

    #[test]
    fn students_tail_is_that_of_scipy() {
        for row in rank::vectors()["student"].as_array().expect("rows") {
            let [t, df, p] = rank::floats(row)[..] else { panic!("three numbers") };
            let found = student_two_sided(t, df);
            assert!(rank::agree(found, p, 8.0), "{t} {df} {found} {p}");
        }
        assert!(rank::agree(student_two_sided(2.5, 1e6), student_two_sided(2.5, 1_000_001.0), 9.0));
    }

    #[test]
    fn the_least_p_is_that_of_samples_apart() {
        for (n, m) in [(1, 1), (1, 5), (3, 3), (4, 7), (5, 5), (20, 30)] {
            let a: Vec<f64> = (0..n).map(|i| i as f64).collect();
            let b: Vec<f64> = (0..m).map(|i| 1e3 + i as f64).collect();
            let p = test(&a, &b).expect("both have values").p;
            assert!(rank::agree(least_p(n, m), p, 12.0), "{n} {m} {p}");
        }
        assert_eq!((least_p(0, 9), least_p(9, 0), least_p(10_000_000, 10_000_000)), (1.0, 1.0, 0.0));
    }

    #[test]
    fn empty_and_constant_samples_raise_no_alarm() {
        assert_eq!(test(&[], &[1.0]), None);
        assert_eq!(test(&[1.0], &[]), None);
        for n in [1, 5, 25, 40, 500] {
            let found = test(&vec![7.0; n], &vec![7.0; n + 1]).expect("both have values");
            assert_eq!((found.p, found.u), (1.0, (n * (n + 1)) as f64 / 2.0));
        }
        let zeros = test(&[0.0, -0.0, 0.0], &[-0.0, 0.0, -0.0]).expect("both have values");
        assert_eq!((zeros.p, zeros.ties), (1.0, true));
    }

    proptest! {
        #[test]
        fn inflation_never_lowers_p(
            a in prop::collection::vec((0i32..30).prop_map(f64::from), 1..60),
            b in prop::collection::vec((5i32..35).prop_map(f64::from), 1..60),
            inflation in 0.2..9.0f64,
            df in 0.5..200.0f64,
        ) {
            let plain = test(&a, &b).expect("both have values");
            let found = inflated(&a, &b, inflation, df).expect("both have values");
            let more = inflated(&a, &b, inflation + 1.0, df).expect("both have values");
            prop_assert!(plain.p <= found.p && found.p <= more.p && more.p <= 1.0);
            prop_assert_eq!(found.u, plain.u);
            let unknown = inflated(&a, &b, f64::NAN, df).expect("both have values");
            prop_assert_eq!(unknown.p, 1.0);
            // The larger of two samples is the same whichever is called the first.
            let swapped = test(&b, &a).expect("both have values");
            prop_assert_eq!(swapped.u, (a.len() * b.len()) as f64 - plain.u);
            prop_assert!(rank::agree(swapped.p, plain.p, 10.0));
        }
    }
}
