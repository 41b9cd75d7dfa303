//! Common parts of the rank methods: one order, groups of equal values, and the spread of U if nothing differs.
//!
//! U of `b` counts the pairs in which `b` is larger; a tie counts one half, so twice U is whole. Without ties the
//! number of arrangements with U = u is the coefficient of x^u in the Gaussian binomial
//! prod_i (1 - x^(l+i)) / (1 - x^i); whole numbers of 128 bits keep it exact. -0.0 and 0.0 are one value.

use std::borrow::Cow;

/// The samples in ascending order: as they are if they are so already, so that several methods share one sort.
pub fn ascending(samples: &[f64]) -> Cow<'_, [f64]> {
    if samples.is_sorted_by(|x, y| x <= y) {
        return Cow::Borrowed(samples);
    }
    Cow::Owned(super::sorted(samples))
}

/// How often a value is in either sample.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Tied {
    /// In the first.
    pub a: usize,
    /// In the second.
    pub b: usize,
}

/// The distinct values of two ascending samples, from the smallest.
pub fn groups<'s>(a: &'s [f64], b: &'s [f64]) -> impl Iterator<Item = Tied> + 's {
    let (mut i, mut j) = (0, 0);
    std::iter::from_fn(move || {
        let value = match (a.get(i), b.get(j)) {
            (Some(&x), Some(&y)) => x.min(y),
            (Some(&x), None) => x,
            (None, Some(&y)) => y,
            (None, None) => return None,
        };
        let (from_i, from_j) = (i, j);
        while a.get(i) == Some(&value) {
            i += 1;
        }
        while b.get(j) == Some(&value) {
            j += 1;
        }
        Some(Tied { a: i - from_i, b: j - from_j })
    })
}

/// The ranks of two ascending samples.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Ranks {
    /// Values of the first.
    pub n: usize,
    /// Values of the second.
    pub m: usize,
    /// Twice U of the second.
    pub twice_u: u64,
    /// Sum of t^3 - t over the groups of t equal values.
    pub tie_term: f64,
    /// Whether any two values are equal.
    pub ties: bool,
}

impl Ranks {
    /// Of two ascending samples; `None` if one is empty.
    pub fn of(a: &[f64], b: &[f64]) -> Option<Ranks> {
        if a.is_empty() || b.is_empty() {
            return None;
        }
        let (mut below, mut twice_u, mut tie_term, mut ties) = (0u64, 0u64, 0.0, false);
        for group in groups(a, b) {
            twice_u += group.b as u64 * (2 * below + group.a as u64);
            below += group.a as u64;
            let t = (group.a + group.b) as f64;
            tie_term += t * (t * t - 1.0);
            ties |= group.a + group.b > 1;
        }
        Some(Ranks { n: a.len(), m: b.len(), twice_u, tie_term, ties })
    }

    /// Twice the smaller of the two U.
    pub fn twice_smaller(&self) -> u64 {
        self.twice_u.min(2 * pairs(self.n, self.m) - self.twice_u)
    }

    /// Deviation of U if nothing differs, given the ties; 0 if all values are equal.
    pub fn deviation(&self) -> f64 {
        let all = (self.n + self.m) as f64;
        deviation(self.n, self.m, self.tie_term / (all * (all - 1.0)))
    }
}

/// Pairs of a value of each side.
pub fn pairs(n: usize, m: usize) -> u64 {
    n as u64 * m as u64
}

/// Deviation of U; `correction` is the tie term over N (N - 1).
pub fn deviation(n: usize, m: usize, correction: f64) -> f64 {
    let (n, m) = (n as f64, m as f64);
    // Rounding must not make a variance of nothing negative.
    (n * m / 12.0 * (n + m + 1.0 - correction)).max(0.0).sqrt()
}

/// Binomial coefficient, exact while it has less than 53 bits.
pub fn choose(n: usize, k: usize) -> f64 {
    let k = k.min(n - k);
    (0..k).fold(1.0, |product, i| product * (n - i) as f64 / (i + 1) as f64)
}

/// Whether U's distribution without ties is computed exactly for these sizes. For a small side the normal law is poor
/// in the tails however large the other is; with both above 50 it is as good as the exact one.
pub fn counts_fit(n: usize, m: usize) -> bool {
    let (small, large) = (n.min(m), n.max(m));
    large <= 50 || (small <= 8 && large <= 10_000)
}

/// Shares of the arrangements with U = 0, 1 .. `most`, added up, without ties.
///
/// # Panics
/// If the sizes are beyond [`counts_fit`].
pub fn cumulative(n: usize, m: usize, most: usize) -> Vec<f64> {
    assert!(counts_fit(n, m), "more arrangements than 128 bits hold");
    let (small, large) = (n.min(m), n.max(m));
    let mut counts = vec![0i128; most + 1];
    counts[0] = 1;
    let mut total = 1i128;
    for i in 1..=small {
        // Times 1 - x^(large + i): from the top, so that each term is still the old one when it is read.
        for u in (large + i..=most).rev() {
            counts[u] -= counts[u - large - i];
        }
        // Over 1 - x^i, which is times 1 + x^i + x^2i ..
        for u in i..=most {
            counts[u] += counts[u - i];
        }
        total = total * (large + i) as i128 / i as i128;
    }
    let mut sum = 0i128;
    counts
        .iter()
        .map(|count| {
            sum += count;
            sum as f64 / total as f64
        })
        .collect()
}

/// Frozen answers of SciPy, NumPy and benchstat.
#[cfg(test)]
pub fn vectors() -> serde_json::Value {
    serde_json::from_str(include_str!("../tests/vectors/ranks.json")).expect("the vectors are JSON")
}

/// A list of numbers of the vectors.
#[cfg(test)]
pub fn floats(list: &serde_json::Value) -> Vec<f64> {
    list.as_array().expect("a list").iter().map(|number| number.as_f64().expect("a number")).collect()
}

/// Whether two figures agree to `digits` of them.
#[cfg(test)]
pub fn agree(found: f64, expected: f64, digits: f64) -> bool {
    found == expected || (found - expected).abs() <= 10f64.powf(-digits) * expected.abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_null_distribution_is_that_of_all_arrangements() {
        for (n, m) in [(1, 1), (1, 5), (3, 2), (4, 4), (5, 3), (6, 6)] {
            let mut counts = vec![0u64; n * m + 1];
            for mask in 0u32..1 << (n + m) {
                if mask.count_ones() as usize != n {
                    continue;
                }
                // A set bit is a value of the first; U counts those of the second above it.
                let above = |bit: usize| (bit..n + m).filter(|other| mask >> other & 1 == 0).count();
                let u: usize = (0..n + m).filter(|bit| mask >> bit & 1 == 1).map(above).sum();
                counts[u] += 1;
            }
            let total: u64 = counts.iter().sum();
            assert_eq!(total as f64, choose(n + m, n), "{n} {m}");
            let mut sum = 0;
            for (u, share) in cumulative(n, m, n * m).into_iter().enumerate() {
                sum += counts[u];
                assert_eq!(share, sum as f64 / total as f64, "{n} {m} {u}");
            }
        }
    }

    #[test]
    fn the_largest_exact_sizes_add_up_to_one() {
        for (n, m) in [(50, 50), (8, 2_000)] {
            let all = cumulative(n, m, n * m);
            assert_eq!(all.last(), Some(&1.0));
            assert!(all.is_sorted());
            // Symmetry: the part below the middle equals the part above it.
            let middle = n * m / 2;
            assert!((all[middle - 1] + all[middle] - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn groups_join_signed_zeros_and_count_both_sides() {
        let a = ascending(&[1.0, 0.0, -0.0, -2.0]).into_owned();
        let b = ascending(&[-0.0, 1.0, 1.0]).into_owned();
        let found: Vec<Tied> = groups(&a, &b).collect();
        assert_eq!(found, [Tied { a: 1, b: 0 }, Tied { a: 2, b: 1 }, Tied { a: 1, b: 2 }]);
        let ranks = Ranks::of(&a, &b).expect("both have values");
        // -0.0 is above -2 and ties with two; each 1 is above three and ties with one.
        assert_eq!(ranks.twice_u, 4 + 7 + 7);
        assert_eq!(ranks.tie_term, 48.0);
        assert!(Ranks::of(&[], &b).is_none() && Ranks::of(&a, &[]).is_none());
    }
}
