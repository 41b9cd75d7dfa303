//! The widest gap between two distribution functions.
//!
//! D is the largest difference of the shares at or below any value. Without ties every way to mix the two samples is a
//! lattice path from (0, 0) to (n, m), and D is d or more if the path leaves a band round the diagonal. Equal sizes:
//! reflection gives an alternating sum. Others: the share of paths to each point that have left the band, point by
//! point; all terms of the sum are positive, so small shares keep their digits. Where that takes too long, Kolmogorov's
//! distribution of one sample of n m / (n + m) values stands in (Hodges), by whichever of these holds: Smirnov's sum
//! for tails (twice the one-sided share), Durbin's matrix, the series of Pelz and Good.
//!
//! Limits: with ties the exact p is too large, never too small. Of more than 100,000 values the tail of the stand-in is
//! its limit form 2 exp(-(6 n d + 1)^2 / 18 n), right to about 1 in 1,000. Weak at differences in the tails.
//! References: Hodges 1958; Durbin 1973; Marsaglia, Tsang & Wang 2003; Simard & L'Ecuyer 2011; Stephens 1970.

use statrs::function::gamma::ln_gamma;

use super::Method;
use super::rank;

pub const METHOD: Method = Method {
    name: "kolmogorov-smirnov",
    summary: "the widest gap between two distribution functions",
    reference: "Hodges 1958, exact by lattice paths",
    checked: "SciPy ks_2samp",
};

/// Results of the test.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct KolmogorovSmirnov {
    /// The widest gap.
    pub d: f64,
    /// Two-sided.
    pub p: f64,
    /// Whether all paths were counted.
    pub exact: bool,
}

/// Most points of the lattice that are visited.
const POINTS: u64 = 1_000_000;

/// The gap and its p: exact for equal sizes and where the band is small; `None` if a side is empty.
pub fn two_sample(a: &[f64], b: &[f64]) -> Option<KolmogorovSmirnov> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let (n, m) = (a.len() as u64, b.len() as u64);
    let gap = widest(&rank::ascending(a), &rank::ascending(b));
    let d = gap as f64 / (n * m) as f64;
    // The band holds this share of the lattice at most.
    let points = ((n * m) as f64 * (2.0 * d).min(1.0)) as u64;
    let (p, exact) = if n == m {
        (reflected(n, gap / n), true)
    } else if points <= POINTS {
        (outside(n, m, gap), true)
    } else {
        (one_sample((n as f64 * m as f64 / (n + m) as f64).round(), d), false)
    };
    Some(KolmogorovSmirnov { d, p: p.clamp(0.0, 1.0), exact })
}

/// The gap times n m, which is whole.
fn widest(a: &[f64], b: &[f64]) -> u64 {
    let (n, m) = (a.len() as u64, b.len() as u64);
    let (mut i, mut j, mut gap) = (0, 0, 0);
    for group in rank::groups(a, b) {
        i += group.a as u64;
        j += group.b as u64;
        gap = gap.max((i * m).abs_diff(j * n));
    }
    gap
}

/// Share of the paths to (n, n) that somewhere are `h` or more off the diagonal.
fn reflected(n: u64, h: u64) -> f64 {
    if h == 0 {
        return 1.0;
    }
    // 2 (C(2n, n-h) - C(2n, n-2h) + ..) / C(2n, n), each term as a factor of the one before it, from the last.
    let mut share = 0.0;
    for k in (0..=n / h).rev() {
        let mut factor = 1.0;
        for j in 0..h {
            // Once it is 0 it stays so.
            if k * h + j >= n || factor == 0.0 {
                factor = 0.0;
                break;
            }
            factor *= (n - k * h - j) as f64 / (n + k * h + j + 1) as f64;
        }
        share = factor * (1.0 - share);
    }
    2.0 * share
}

/// Share of the paths to (n, m) that somewhere have a gap of `gap` / (n m) or more.
fn outside(n: u64, m: u64, gap: u64) -> f64 {
    // The rows are those of the larger side: short rows stay in the cache.
    let (n, m) = (n.max(m), n.min(m));
    if gap == 0 {
        return 1.0;
    }
    // Of row i, share[j] is that of the paths to (i, j); outside the band it is 1. The band moves up with the rows, so
    // only its inside needs a pass, and the point after it starts as 1.
    let mut share = vec![1.0f64; m as usize + 1];
    for i in 0..=n {
        // |i m - j n| < gap.
        let from = (i * m).checked_sub(gap).map_or(0, |beyond| beyond / n + 1);
        let to = ((i * m + gap - 1) / n).min(m);
        // What has fallen below the band has left it.
        if from > 0 && from <= m {
            share[from as usize - 1] = 1.0;
        }
        for j in from..=to {
            let at = j as usize;
            share[at] = match (i, j) {
                (0, 0) => 0.0,
                (0, _) => share[at - 1],
                (_, 0) => share[at],
                // The last step to (i, j) is as often along i as i is of i + j. The division does not
                // wait for the point before.
                _ => {
                    let inverse = 1.0 / (i + j) as f64;
                    share[at] * (i as f64 * inverse) + share[at - 1] * (j as f64 * inverse)
                }
            };
        }
    }
    share[m as usize]
}

/// Share of the samples of n values of a continuous distribution whose gap to it is d or more.
fn one_sample(n: f64, d: f64) -> f64 {
    let t = n * d;
    if d >= 1.0 {
        return 0.0;
    }
    if t <= 0.5 {
        return 1.0;
    }
    // Up to 140 values Durbin's matrix is small and has digits enough; past 4 the two one-sided events do not meet.
    let square = t * d;
    if d >= 0.5 || t >= n - 1.0 || square >= if n <= 140.0 { 4.0 } else { 2.2 } {
        return 2.0 * one_sided(n, d);
    }
    if n <= 140.0 || (n <= 5_000.0 && n * d.powf(1.5) <= 1.4) {
        return 1.0 - durbin(n, d);
    }
    1.0 - pelz_good(n, d)
}

/// Share of the samples whose gap on one side is d or more (Smirnov's sum), or its limit form.
fn one_sided(n: f64, d: f64) -> f64 {
    if n > 100_000.0 {
        let six = 6.0 * n * d + 1.0;
        return (-six * six / (18.0 * n)).exp();
    }
    let mut sum = 0.0;
    let whole = ln_gamma(n + 1.0);
    let mut j = 0.0;
    while j <= n * (1.0 - d) {
        let (left, right) = (1.0 - d - j / n, d + j / n);
        let log = whole - ln_gamma(j + 1.0) - ln_gamma(n - j + 1.0) + (j - 1.0) * right.ln();
        // The last power is that of 0 to the 0 if d is 1 - j / n there.
        let rest = n - j;
        sum += if left > 0.0 { (log + rest * left.ln()).exp() } else { 0.0 };
        j += 1.0;
    }
    d * sum
}

/// Share of the samples whose gap is less than d, by the power of Durbin's matrix (Marsaglia, Tsang & Wang).
fn durbin(n: f64, d: f64) -> f64 {
    // d = (k - h) / n.
    let k = (n * d).ceil();
    let h = k - n * d;
    let size = 2 * k as usize - 1;
    // (i, j) is 1 / (i - j + 1)! up to the first diagonal above the main one, else 0; the first column and the last
    // row, which is its mirror image, lose the part that is cut off.
    let mut inverse = vec![1.0; size + 1];
    for i in 1..=size {
        inverse[i] = inverse[i - 1] / i as f64;
    }
    let mut matrix = Matrix { size, cells: vec![0.0; size * size], exponent: 0 };
    for i in 0..size {
        for j in 0..size.min(i + 2) {
            matrix.cells[i * size + j] = inverse[i + 1 - j];
        }
    }
    for i in 0..size {
        let cut = h.powi(i as i32 + 1) * inverse[i + 1];
        matrix.cells[i * size] -= cut;
        matrix.cells[(size - 1) * size + (size - 1 - i)] -= cut;
    }
    if h > 0.5 {
        matrix.cells[(size - 1) * size] += (2.0 * h - 1.0).powi(size as i32) * inverse[size];
    }
    let power = matrix.power(n as u64);
    let at = k as usize - 1;
    let mut share = power.cells[at * size + at];
    let mut exponent = power.exponent;
    let mut i = 1.0;
    while i <= n {
        share *= i / n;
        if share < 1e-140 {
            share *= 1e140;
            exponent -= 140;
        }
        i += 1.0;
    }
    share * 10f64.powi(exponent)
}

/// A square matrix times a power of ten, so that high powers do not overflow.
struct Matrix {
    size: usize,
    cells: Vec<f64>,
    exponent: i32,
}

impl Matrix {
    /// The product with another.
    fn times(&self, other: &Matrix) -> Matrix {
        let size = self.size;
        let mut cells = vec![0.0; size * size];
        for (row, left) in cells.chunks_exact_mut(size).zip(self.cells.chunks_exact(size)) {
            for (factor, right) in left.iter().zip(other.cells.chunks_exact(size)) {
                for (cell, value) in row.iter_mut().zip(right) {
                    *cell += factor * value;
                }
            }
        }
        let mut product = Matrix { size, cells, exponent: self.exponent + other.exponent };
        if product.cells[size / 2 * size + size / 2] > 1e140 {
            product.cells.iter_mut().for_each(|cell| *cell *= 1e-140);
            product.exponent += 140;
        }
        product
    }

    /// Itself `times` times, at least once.
    fn power(self, times: u64) -> Matrix {
        if times == 1 {
            return self;
        }
        let square = self.times(&self).power(times / 2);
        if times % 2 == 1 { square.times(&self) } else { square }
    }
}

/// The same for many values: Kolmogorov's limit and three terms in 1 / sqrt(n) (Pelz & Good), in the form that
/// converges quickly for small gaps.
fn pelz_good(n: f64, d: f64) -> f64 {
    let z = n.sqrt() * d;
    let (z2, z4, z6) = (z * z, z.powi(4), z.powi(6));
    let rate = std::f64::consts::PI.powi(2) / (2.0 * z2);
    // For z below 0.04 every term is smaller than a float can be.
    if rate / 4.0 > 708.0 {
        return 0.0;
    }
    let pi2 = std::f64::consts::PI.powi(2);
    let mut terms = [0.0; 4];
    let (mut second, mut third) = (0.0, 0.0);
    // Both signs of k at once; what follows the first hundred is nothing for any z that gets here.
    for k in 0..100 {
        let half = pi2 * (f64::from(k) + 0.5).powi(2);
        let weight = 2.0 * (-half / (2.0 * z2)).exp();
        terms[0] += weight;
        terms[1] += weight * (half - z2);
        terms[2] += weight * (6.0 * z6 + 2.0 * z4 + half * (2.0 * z4 - 5.0 * z2) + half * half * (1.0 - 2.0 * z2));
        terms[3] += weight
            * (half.powi(3) * (5.0 - 30.0 * z2)
                + half * half * (212.0 * z4 - 60.0 * z2)
                + half * (135.0 * z4 - 96.0 * z6)
                - 30.0 * z6
                - 90.0 * z4 * z4);
        let whole = pi2 * f64::from(k) * f64::from(k);
        let weight = 2.0 * (-whole / (2.0 * z2)).exp();
        second += weight * whole;
        third += weight * whole * (3.0 * z2 - whole);
    }
    let half_pi = (std::f64::consts::PI / 2.0).sqrt();
    let limit = half_pi * terms[0] / z;
    let first = half_pi * terms[1] / (6.0 * z4);
    let second = half_pi * (terms[2] / (72.0 * z.powi(7)) - second / (36.0 * z.powi(3)));
    let third = half_pi * (terms[3] / (6480.0 * z.powi(10)) + third / (216.0 * z6));
    limit + first / n.sqrt() + second / n + third / n.powf(1.5)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Share of all mixtures of n and m distinct values with a gap of `gap` / (n m) or more.
    fn brute(n: u64, m: u64, gap: u64) -> f64 {
        let (mut found, mut all) = (0u64, 0u64);
        for mask in (0u32..1 << (n + m)).filter(|mask| u64::from(mask.count_ones()) == n) {
            let (mut i, mut j, mut widest) = (0u64, 0u64, 0);
            for bit in 0..n + m {
                if mask >> bit & 1 == 1 {
                    i += 1;
                } else {
                    j += 1;
                }
                widest = widest.max((i * m).abs_diff(j * n));
            }
            found += u64::from(widest >= gap);
            all += 1;
        }
        found as f64 / all as f64
    }

    #[test]
    fn shares_are_those_of_all_mixtures() {
        for (n, m) in [(1, 1), (2, 2), (5, 5), (6, 6), (1, 4), (3, 4), (4, 6), (7, 2), (5, 7), (2, 9)] {
            for gap in 0..=n * m {
                let expected = brute(n, m, gap);
                assert!((outside(n, m, gap) - expected).abs() < 1e-14, "{n} {m} {gap}");
                if n == m && gap % n == 0 {
                    assert!((reflected(n, gap / n) - expected).abs() < 1e-14, "{n} {gap}");
                }
            }
        }
    }

    #[test]
    fn both_exact_ways_agree_far_out_in_the_tail() {
        for (n, h) in [(50, 10), (50, 40), (50, 50), (300, 30), (300, 290), (1_000, 1)] {
            let (path, sum) = (outside(n, n, h * n), reflected(n, h));
            assert!((path / sum - 1.0).abs() < 1e-10, "{n} {h} {path} {sum}");
        }
    }

    #[test]
    fn the_stand_in_has_no_steps_where_its_ways_meet() {
        // Smirnov's sum leaves out the samples with gaps on both sides: about 2 exp(-8 n d^2) of them.
        for (n, d) in [(140.0, (4.0f64 / 140.0).sqrt()), (1_000.0, (2.2f64 / 1_000.0).sqrt())] {
            let both = 2.0 * (-8.0 * n * d * d).exp();
            let jump = one_sample(n, d * 0.999_999_9) - one_sample(n, d * 1.000_000_1);
            assert!(jump.abs() < both * 2.0 + 1e-7, "{n} {jump}");
        }
        for (n, d) in [(141.0f64, 0.046), (1_000.0, 0.0125), (5_000.0, 0.0042)] {
            assert!((durbin(n, d) - pelz_good(n, d)).abs() < 1e-5, "{n} {d}");
        }
        for d in [0.006, 0.008, 0.01] {
            let sum = one_sided(100_000.0, d);
            assert!((one_sided(100_000.1, d) / sum - 1.0).abs() < 2e-3, "{d}");
        }
    }

    #[test]
    fn what_scipy_says() {
        for row in rank::vectors()["pairs"].as_array().expect("rows") {
            let expected = rank::floats(&row["ks"]);
            let found = two_sample(&rank::floats(&row["a"]), &rank::floats(&row["b"])).expect("both have values");
            assert!(rank::agree(found.d, expected[0], 12.0), "{found:?} {expected:?}");
            // SciPy counts paths up to 10,000 values, as this does for all of these.
            assert!(found.exact && rank::agree(found.p, expected[1], 9.0), "{found:?} {expected:?}");
        }
        for row in rank::vectors()["kolmogorov"].as_array().expect("rows") {
            let [n, d, expected] = rank::floats(row)[..] else { panic!("three numbers") };
            let found = one_sample(n, d);
            // The limit form of the tail is only as good as the head of this file says.
            let digits = if n > 100_000.0 { 3.0 } else { 8.5 };
            assert!(
                rank::agree(found, expected, digits) || (found - expected).abs() < 1e-11,
                "{n} {d} {found} {expected}"
            );
        }
    }

    #[test]
    fn any_sizes_and_values_have_an_answer() {
        assert_eq!(two_sample(&[], &[1.0]), None);
        assert_eq!(two_sample(&[1.0], &[]), None);
        let same = two_sample(&[2.0; 7], &[2.0; 9]).expect("both have values");
        assert_eq!((same.d, same.p), (0.0, 1.0));
        let apart = two_sample(&[-0.0, 0.0], &[1.0]).expect("both have values");
        assert_eq!((apart.d, apart.exact), (1.0, true));
        assert!((apart.p - 2.0 / 3.0).abs() < 1e-15);
    }

    proptest! {
        #[test]
        fn the_gap_is_the_widest_over_all_values(
            a in prop::collection::vec((-9i32..9).prop_map(f64::from), 1..40),
            b in prop::collection::vec((-9i32..9).prop_map(f64::from), 1..40),
        ) {
            let share = |of: &[f64], x: f64| of.iter().filter(|y| **y <= x).count() as f64 / of.len() as f64;
            let widest = a.iter().chain(&b).map(|x| (share(&a, *x) - share(&b, *x)).abs()).fold(0.0, f64::max);
            let found = two_sample(&a, &b).expect("both have values");
            prop_assert!((found.d - widest).abs() < 1e-12);
            prop_assert!((0.0..=1.0).contains(&found.p));
        }
    }
}
