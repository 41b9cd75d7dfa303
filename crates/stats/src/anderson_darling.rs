//! Whether samples come from one distribution: any difference counts, and the tails weigh more.
//!
//! At each distinct pooled value the count of a sample up to there (half of those equal to it) is compared with its
//! share of the pooled count; the squares are weighted by 1 over the variance of that count, which is small in the
//! tails. The sum, less its mean k - 1 and over its deviation if nothing differs, is the statistic. Its p comes from
//! Scholz and Stephens' table of critical values: log p as a square function of the statistic, fitted to the seven
//! points.
//!
//! Limits: the table goes from p = 0.25 to 0.001; beyond, p is the end of it and `bounded` is set. The table is for
//! large samples; it is good enough from about 5 values each. The variance does not know of ties, so with many of them
//! the test is careful. Fewer than four values or one value only: no answer.
//! Reference: Scholz & Stephens 1987, equation 7 (midranks), table 2.

use super::Method;
use super::rank;

pub const METHOD: Method = Method {
    name: "anderson-darling",
    summary: "whether samples come from one distribution, any difference counts, tails weigh more",
    reference: "Scholz & Stephens 1987, k-sample statistic for midranks",
    checked: "SciPy anderson_ksamp",
};

/// Results of the test.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct AndersonDarling {
    /// Less its mean and over its deviation if nothing differs.
    pub statistic: f64,
    /// By the table.
    pub p: f64,
    /// Whether the table ends there: p is at most 0.001 or at least 0.25.
    pub bounded: bool,
}

/// Of two or more samples; `None` if one is empty, if there are fewer than four values or if all are equal.
pub fn k_sample(samples: &[&[f64]]) -> Option<AndersonDarling> {
    let all: usize = samples.iter().map(|sample| sample.len()).sum();
    if samples.len() < 2 || all < 4 || samples.iter().any(|sample| sample.is_empty()) {
        return None;
    }
    let sorted: Vec<_> = samples.iter().map(|sample| rank::ascending(sample)).collect();
    let sum = weighted_squares(&sorted, all as f64)?;
    let more = (samples.len() - 1) as f64;
    let statistic = (sum - more) / deviation(samples, all as f64);
    let (p, bounded) = by_table(statistic, more);
    Some(AndersonDarling { statistic, p, bounded })
}

/// The sum over all distinct values; `None` if there is one only.
fn weighted_squares(sorted: &[impl AsRef<[f64]>], all: f64) -> Option<f64> {
    let mut at = vec![0usize; sorted.len()];
    let mut sums = vec![0.0; sorted.len()];
    let mut seen = 0.0;
    let mut distinct = 0;
    loop {
        let heads = sorted.iter().zip(&at).filter_map(|(sample, at)| sample.as_ref().get(*at));
        let Some(value) = heads.copied().reduce(f64::min) else { break };
        distinct += 1;
        let from = at.clone();
        for (sample, at) in sorted.iter().zip(&mut at) {
            while sample.as_ref().get(*at) == Some(&value) {
                *at += 1;
            }
        }
        let equal = at.iter().zip(&from).map(|(to, from)| to - from).sum::<usize>() as f64;
        let middle = seen + equal / 2.0;
        let weight = equal / all / (middle * (all - middle) - all * equal / 4.0);
        for (((sum, sample), from), to) in sums.iter_mut().zip(sorted).zip(&from).zip(&at) {
            let gap = all * ((from + to) as f64 / 2.0) - middle * sample.as_ref().len() as f64;
            *sum += weight * gap * gap;
        }
        seen += equal;
    }
    if distinct < 2 {
        return None;
    }
    let total: f64 = sums.iter().zip(sorted).map(|(sum, sample)| sum / sample.as_ref().len() as f64).sum();
    Some(total * (all - 1.0) / all)
}

/// Deviation of the sum if nothing differs (their equation 4).
fn deviation(samples: &[&[f64]], all: f64) -> f64 {
    let k = samples.len() as f64;
    let inverse: f64 = samples.iter().map(|sample| 1.0 / sample.len() as f64).sum();
    // h is the sum of 1/i below N, g the sum of 1/((N - i) j) over i < j < N: the inner sums are partial ones of h.
    let (mut h, mut g) = (1.0 / (all - 1.0), 0.0);
    let mut i = 2.0;
    while i < all {
        g += h / i;
        h += 1.0 / (all - i);
        i += 1.0;
    }
    let a = (4.0 * g - 6.0) * (k - 1.0) + (10.0 - 6.0 * g) * inverse;
    let b = (2.0 * g - 4.0) * k * k + 8.0 * h * k + (2.0 * g - 14.0 * h - 4.0) * inverse - 8.0 * h + 4.0 * g - 6.0;
    let c = (6.0 * h + 2.0 * g - 2.0) * k * k + (4.0 * h - 4.0 * g + 6.0) * k + (2.0 * h - 6.0) * inverse + 4.0 * h;
    let d = (2.0 * h + 6.0) * k * k - 4.0 * h * k;
    let above = ((a * all + b) * all + c) * all + d;
    (above / ((all - 1.0) * (all - 2.0) * (all - 3.0))).sqrt()
}

/// Share, and the three coefficients of its critical value in 1, 1/sqrt(m) and 1/m, of their table 2.
const TABLE: [(f64, [f64; 3]); 7] = [
    (0.25, [0.675, -0.245, -0.105]),
    (0.1, [1.281, 0.25, -0.305]),
    (0.05, [1.645, 0.678, -0.362]),
    (0.025, [1.96, 1.149, -0.391]),
    (0.01, [2.326, 1.822, -0.396]),
    (0.005, [2.573, 2.364, -0.345]),
    (0.001, [3.085, 3.615, -0.154]),
];

/// The p of a statistic with m = k - 1, and whether it is at an end of the table.
fn by_table(statistic: f64, m: f64) -> (f64, bool) {
    let critical = TABLE.map(|(_, [b0, b1, b2])| b0 + b1 / m.sqrt() + b2 / m);
    if statistic < critical[0] {
        return (TABLE[0].0, true);
    }
    if statistic > critical[6] {
        return (TABLE[6].0, true);
    }
    // Least squares for log p = c0 + c1 x + c2 x^2, x counted from the mean of the points so that the sums of powers
    // are of like size.
    let mean = critical.iter().sum::<f64>() / 7.0;
    let (mut powers, mut right) = ([0.0; 5], [0.0; 3]);
    for (value, (share, _)) in critical.iter().zip(TABLE) {
        let x = value - mean;
        for (power, sum) in powers.iter_mut().enumerate() {
            *sum += x.powi(power as i32);
        }
        for (power, sum) in right.iter_mut().enumerate() {
            *sum += x.powi(power as i32) * share.ln();
        }
    }
    let column = |i: usize| [powers[i], powers[i + 1], powers[i + 2]];
    let matrix = [column(0), column(1), column(2)];
    // Cramer's rule; the points differ, so the determinant is not 0.
    let whole = determinant(matrix);
    let with = |i: usize| {
        let mut replaced = matrix;
        replaced[i] = right;
        determinant(replaced) / whole
    };
    let x = statistic - mean;
    ((with(0) + x * (with(1) + x * with(2))).exp(), false)
}

/// Of three by three, given by columns.
fn determinant([p, q, r]: [[f64; 3]; 3]) -> f64 {
    p[0] * (q[1] * r[2] - q[2] * r[1]) - p[1] * (q[0] * r[2] - q[2] * r[0]) + p[2] * (q[0] * r[1] - q[1] * r[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds a result to a pair of a statistic and a p.
    fn assert_is(found: Option<AndersonDarling>, statistic: f64, p: f64) {
        let found = found.expect("values that differ");
        assert!((found.statistic - statistic).abs() < 1e-9 * statistic.abs().max(1.0), "{found:?} {statistic}");
        assert!(rank::agree(found.p, p, 9.0), "{found:?} {p}");
        assert_eq!(found.bounded, p == 0.25 || p == 0.001, "{found:?}");
    }

    #[test]
    fn what_scipy_says() {
        for row in rank::vectors()["pairs"].as_array().expect("rows") {
            let (a, b, expected) = (rank::floats(&row["a"]), rank::floats(&row["b"]), rank::floats(&row["ad"]));
            assert_is(k_sample(&[&a, &b]), expected[0], expected[1]);
        }
        for row in rank::vectors()["k_sample"].as_array().expect("rows") {
            let samples: Vec<Vec<f64>> = row["samples"].as_array().expect("samples").iter().map(rank::floats).collect();
            let samples: Vec<&[f64]> = samples.iter().map(Vec::as_slice).collect();
            let number = |name: &str| row[name].as_f64().expect("a number");
            assert_is(k_sample(&samples), number("statistic"), number("p"));
        }
    }

    #[test]
    fn what_cannot_be_told_is_none() {
        assert_eq!(k_sample(&[]), None);
        assert_eq!(k_sample(&[&[1.0, 2.0, 3.0, 4.0]]), None);
        assert_eq!(k_sample(&[&[1.0, 2.0, 3.0, 4.0], &[]]), None);
        assert_eq!(k_sample(&[&[1.0, 2.0], &[3.0]]), None);
        assert_eq!(k_sample(&[&[0.0, -0.0, 0.0], &[0.0, 0.0, -0.0]]), None);
    }

    #[test]
    fn the_order_of_the_samples_and_a_rising_function_change_nothing() {
        let (a, b) = ([3.0, 1.0, 4.0, 1.5, 5.0], [9.0, 2.0, 6.0, 5.0, 3.5, 8.0]);
        let found = k_sample(&[&a, &b]).expect("values that differ");
        let swapped = k_sample(&[&b, &a]).expect("values that differ");
        assert!((found.statistic - swapped.statistic).abs() < 1e-12);
        let (a, b) = (a.map(f64::exp), b.map(f64::exp));
        assert_eq!(k_sample(&[&a, &b]), Some(found));
    }
}
