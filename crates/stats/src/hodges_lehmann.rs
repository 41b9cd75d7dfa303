//! The shift between two samples and its interval.
//!
//! The estimate is the median of all n m differences b - a. The interval holds the shifts that Mann and Whitney's test
//! would not reject: it runs from the c-th smallest difference to the c-th largest, with the largest c for which
//! P(U < c) <= (1 - level) / 2. Small samples take c from the exact distribution of U, others from the normal law with
//! half a step of correction. If no c will do, the bounds are infinite.
//!
//! The differences are never written down. With both samples sorted they form a matrix whose rows and columns ascend,
//! and how many are at most x is counted by one walk along its edge. A target rank is bracketed between values; draws
//! from within the bracket give two pivots close to the target, whose counts narrow it, some hundredfold each time,
//! until the rest is small enough to be listed. Should the draws mislead, the bracket is halved over the keys of the
//! floats, at most 64 times. The draws have a fixed seed and do not change the result.
//!
//! Ties: the closed interval still covers a shift at least as often as without ties (Randles & Wolfe 1979, by breaking
//! ties at random); the tie-corrected variance would be too small for shifts between the steps of quantised values, so
//! the larger one is used. A tie-corrected test can therefore reject where a bound of this interval is 0.
//! References: Hodges & Lehmann 1963; Lehmann 1975; selection after Johnson & Mizoguchi 1978 and Floyd & Rivest 1975.

use std::rc::Rc;

use iowhy_stack::rng::Rng;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::Method;
use super::rank;

pub const METHOD: Method = Method {
    name: "hodges-lehmann",
    summary: "the shift between two samples and its interval",
    reference: "Hodges & Lehmann 1963; Lehmann 1975, by inverting Mann-Whitney",
    checked: "brute force over all differences",
};

/// A shift from `a` to `b`.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Shift {
    /// Median of all differences.
    pub estimate: f64,
    /// Lower bound; minus infinity if the samples are too few for the level.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
    /// Whether the bounds come from the exact distribution.
    pub exact: bool,
}

/// Most differences that are listed and selected from, for samples of any size.
const LISTED: u64 = 4_096;

/// The shift and its interval at `level`, for example 0.99; `None` if a side is empty.
///
/// # Panics
/// If the level is not between 0 and 1.
pub fn shift(a: &[f64], b: &[f64], level: f64) -> Option<Shift> {
    let (n, m) = (a.len(), b.len());
    let (edge, exact) = plain_edge(n, m, level);
    bounded(a, b, edge, exact)
}

/// For values that depend on one another: as if the variance of U were `inflation` times as large (less than 1 counts
/// as 1) and estimated with `df` degrees of freedom (less than 1 counts as 1). Never narrower than [`shift`]; unbounded
/// if either figure is NaN.
///
/// # Panics
/// If the level is not between 0 and 1.
pub fn shift_inflated(a: &[f64], b: &[f64], level: f64, inflation: f64, df: f64) -> Option<Shift> {
    let (n, m) = (a.len(), b.len());
    let edge = if inflation.is_nan() || df.is_nan() {
        0
    } else {
        let wide = normal_edge(n, m, student_quantile(level, df.max(1.0)) * inflation.max(1.0).sqrt());
        wide.min(plain_edge(n, m, level).0)
    };
    bounded(a, b, edge, false)
}

/// Which difference from either end bounds the interval, counted from 1, and whether that is exact; 0 for none.
fn plain_edge(n: usize, m: usize, level: f64) -> (u64, bool) {
    assert!(level > 0.0 && level < 1.0, "a level of {level}");
    if n == 0 || m == 0 {
        return (0, false);
    }
    if !rank::counts_fit(n, m) {
        return (normal_edge(n, m, normal_quantile(level)), false);
    }
    // 1 - level is rounded; a share that is meant to be equal to it must not fail for that.
    let tail = (1.0 - level) / 2.0 * (1.0 + 1e-12);
    let shares = rank::cumulative(n, m, n * m / 2);
    (shares.partition_point(|share| *share <= tail) as u64, true)
}

/// The same by the normal law, `width` deviations from the middle.
fn normal_edge(n: usize, m: usize, width: f64) -> u64 {
    let edge = rank::pairs(n, m) as f64 / 2.0 + 0.5 - width * rank::deviation(n, m, 0.0);
    // Converting a negative value gives 0: no bound.
    edge.floor() as u64
}

/// How many deviations to either side hold this share of the normal law.
fn normal_quantile(level: f64) -> f64 {
    Normal::standard().inverse_cdf(0.5 + level / 2.0)
}

/// The same of Student's law.
fn student_quantile(level: f64, df: f64) -> f64 {
    let normal = normal_quantile(level);
    // The inverse of the incomplete beta function gets slow; the first term in 1 / df is right to 12 digits.
    if df > 1e6 {
        return normal + normal * (normal * normal + 1.0) / (4.0 * df);
    }
    let student = StudentsT::new(0.0, 1.0, df).expect("at least one degree of freedom");
    student.inverse_cdf(0.5 + level / 2.0).max(normal)
}

/// The estimate and the differences at the edges.
fn bounded(a: &[f64], b: &[f64], edge: u64, exact: bool) -> Option<Shift> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let (a, b) = (rank::ascending(a), rank::ascending(b));
    // Differences of huge values may not be finite; those of a quarter of them are.
    let largest = [a[0], a[a.len() - 1], b[0], b[b.len() - 1]].into_iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    if largest > f64::MAX / 4.0 {
        let quarter = |samples: &[f64]| samples.iter().map(|x| x / 4.0).collect::<Vec<f64>>();
        let small = bounded(&quarter(&a), &quarter(&b), edge, exact)?;
        return Some(Shift { estimate: small.estimate * 4.0, low: small.low * 4.0, high: small.high * 4.0, exact });
    }
    let all = rank::pairs(a.len(), b.len());
    let differences = Differences { a: &a, b: &b, listed: LISTED.max(2 * (a.len() + b.len()) as u64) };
    // For large samples the three targets are close together: narrow the bracket round all of them first.
    let (first, last) = if edge == 0 { ((all - 1) / 2, all / 2) } else { (edge - 1, all - edge) };
    let shared = differences.narrow_round(first.min((all - 1) / 2), last.max(all / 2));
    let (below, above) = differences.two(shared.clone(), (all - 1) / 2);
    let estimate = if all % 2 == 1 { below } else { f64::midpoint(below, above) };
    let (low, high) = match edge {
        0 => (f64::NEG_INFINITY, f64::INFINITY),
        _ => (differences.two(shared.clone(), first).0, differences.two(shared, last).0),
    };
    Some(Shift { estimate, low, high, exact })
}

/// All differences b - a of two ascending samples, by rank from 0.
struct Differences<'s> {
    a: &'s [f64],
    b: &'s [f64],
    /// The number from which differences are listed rather than narrowed down further.
    listed: u64,
}

/// Which differences are at most a value.
#[derive(Clone, Debug)]
struct Edge {
    value: f64,
    /// How many are.
    upto: u64,
    /// How many of each row are.
    at: Rc<[u32]>,
}

/// The differences above one edge and up to another.
#[derive(Clone, Debug)]
struct Bracket {
    low: Edge,
    high: Edge,
}

impl Bracket {
    /// How many are in it.
    fn len(&self) -> u64 {
        self.high.upto - self.low.upto
    }

    /// Whether no float is between the bounds, so that all are equal to the upper one.
    fn is_one_value(&self) -> bool {
        self.low.value.next_up() >= self.high.value
    }

    /// Takes a pivot for a bound if the ranks `first` to `last` stay inside.
    fn cut(&mut self, pivot: Edge, first: u64, last: u64) {
        if pivot.upto <= first {
            self.low = pivot;
        } else if pivot.upto > last {
            self.high = pivot;
        }
    }
}

impl Differences<'_> {
    /// All of them.
    fn all(&self) -> Bracket {
        let (n, m) = (self.a.len(), self.b.len());
        let whole = u32::try_from(m).expect("fewer than 2^32 values");
        let lowest = (self.b[0] - self.a[n - 1]).next_down();
        let highest = self.b[m - 1] - self.a[0];
        Bracket {
            low: Edge { value: lowest, upto: 0, at: vec![0; n].into() },
            high: Edge { value: highest, upto: rank::pairs(n, m), at: vec![whole; n].into() },
        }
    }

    /// The count of differences up to `value`. Rounding is monotone, so rounded differences ascend as the true ones do.
    fn edge(&self, value: f64) -> Edge {
        let (a, b) = (self.a, self.b);
        let mut at = vec![b.len() as u32; a.len()];
        let (mut i, mut j) = (0, 0);
        // Which way the walk goes cannot be foreseen, so it is made of sums and not of branches.
        while i < a.len() && j < b.len() {
            let within = b[j] - a[i] <= value;
            at[i] = j as u32;
            j += usize::from(within);
            i += usize::from(!within);
        }
        // The row at which the columns ran out is in whole.
        if i < a.len() {
            at[i] = b.len() as u32;
        }
        Edge { value, upto: at.iter().map(|count| u64::from(*count)).sum(), at: at.into() }
    }

    /// Each row's values inside the bracket, in order: its `a` and a range of `b`.
    fn rows<'r>(&'r self, bracket: &'r Bracket) -> impl Iterator<Item = (f64, &'r [f64])> {
        let ranges = bracket.low.at.iter().zip(bracket.high.at.iter());
        self.a.iter().zip(ranges).map(|(a, (from, to))| (*a, &self.b[*from as usize..*to as usize]))
    }

    /// One draw from each of `parts` equal stretches of the bracket, ascending.
    fn draw(&self, bracket: &Bracket, parts: u64) -> Vec<f64> {
        let stretch = bracket.len() / parts;
        let mut rng = Rng::stream(bracket.len(), "hodges-lehmann");
        let mut drawn = Vec::with_capacity(parts as usize);
        let (mut seen, mut next) = (0, rng.below(stretch));
        for (a, row) in self.rows(bracket) {
            while next < seen + row.len() as u64 {
                drawn.push(row[(next - seen) as usize] - a);
                next = drawn.len() as u64 * stretch + rng.below(stretch);
            }
            seen += row.len() as u64;
        }
        drawn.sort_unstable_by(f64::total_cmp);
        drawn
    }

    /// Makes the bracket round the ranks `first` to `last` smaller, if the draws allow.
    fn narrow(&self, bracket: &mut Bracket, first: u64, last: u64) {
        // More draws bring the pivots closer to the target but have to be sorted.
        let parts = (self.listed / 16).clamp(512, 1 << 16).min(bracket.len());
        let drawn = self.draw(bracket, parts);
        let size = drawn.len() as f64;
        let share = |rank: u64| (rank - bracket.low.upto) as f64 / bracket.len() as f64;
        let slack = |share: f64| 3.0 * (size * share * (1.0 - share)).sqrt() + 2.0;
        let (from, to) = (share(first), share(last));
        let low = from * size - slack(from);
        let high = to * size + slack(to);
        if low >= 0.0 {
            // Just below the draw, so that equal draws leave a bracket of one value.
            self.cut(bracket, drawn[low as usize].next_down(), first, last);
        }
        if high < size - 1.0 {
            self.cut(bracket, drawn[high as usize], first, last);
        }
    }

    /// Cuts the bracket at a value inside it.
    fn cut(&self, bracket: &mut Bracket, value: f64, first: u64, last: u64) {
        if bracket.low.value < value && value < bracket.high.value {
            bracket.cut(self.edge(value), first, last);
        }
    }

    /// The bracket round several ranks, as small as is worth the walks.
    fn narrow_round(&self, first: u64, last: u64) -> Bracket {
        let mut bracket = self.all();
        // Once the ranks take up a fifth of the bracket, one of them alone is narrowed down further than all together.
        while bracket.len() > self.listed && !bracket.is_one_value() && last - first < bracket.len() / 5 {
            let before = bracket.len();
            self.narrow(&mut bracket, first, last);
            if bracket.len() > before / 4 {
                break;
            }
        }
        bracket
    }

    /// The differences of `rank` and of the next one; the last one has itself for next.
    fn two(&self, mut bracket: Bracket, rank: u64) -> (f64, f64) {
        debug_assert!(bracket.low.upto <= rank && rank < bracket.high.upto, "{rank} is outside");
        while bracket.len() > self.listed && !bracket.is_one_value() {
            let before = bracket.len();
            self.narrow(&mut bracket, rank, rank);
            if bracket.len() > before / 2 && !bracket.is_one_value() {
                let middle = middle(bracket.low.value, bracket.high.value);
                self.cut(&mut bracket, middle, rank, rank);
            }
        }
        let last = rank + 1 == rank::pairs(self.a.len(), self.b.len());
        let next_within = rank + 1 < bracket.high.upto;
        let (value, next) = if bracket.is_one_value() {
            (bracket.high.value, bracket.high.value)
        } else {
            let mut left = Vec::with_capacity(bracket.len() as usize);
            self.rows(&bracket).for_each(|(a, row)| left.extend(row.iter().map(|b| b - a)));
            let at = (rank - bracket.low.upto) as usize;
            let (_, value, above) = left.select_nth_unstable_by(at, f64::total_cmp);
            (*value, above.iter().copied().fold(f64::INFINITY, f64::min))
        };
        match (last, next_within) {
            (true, _) => (value, value),
            (false, true) => (value, next),
            (false, false) => (value, self.after(&bracket.high)),
        }
    }

    /// The smallest difference beyond an edge.
    fn after(&self, edge: &Edge) -> f64 {
        let beyond = self.a.iter().zip(edge.at.iter()).filter_map(|(a, at)| Some(self.b.get(*at as usize)? - a));
        beyond.fold(f64::INFINITY, f64::min)
    }
}

/// The float halfway between two others, in the order of floats.
fn middle(low: f64, high: f64) -> f64 {
    // Turns the bits below the sign of negative floats round: whole numbers then ascend as the floats do.
    let turn = |bits: i64| bits ^ ((bits >> 63) as u64 >> 1) as i64;
    let key = |x: f64| i128::from(turn(x.to_bits() as i64));
    f64::from_bits(turn(((key(low) + key(high)) >> 1) as i64) as u64)
}

#[cfg(test)]
mod tests {
    use iowhy_stack::rng::Rng;
    use proptest::prelude::*;

    use super::*;

    /// All differences, sorted.
    fn brute(a: &[f64], b: &[f64]) -> Vec<f64> {
        let mut all: Vec<f64> = b.iter().flat_map(|b| a.iter().map(move |a| b - a)).collect();
        all.sort_unstable_by(f64::total_cmp);
        all
    }

    /// Samples of every kind: fine, quantised, constant, of both signs and far apart.
    fn samples() -> impl Strategy<Value = Vec<f64>> {
        prop_oneof![
            prop::collection::vec(-1e3..1e3, 1..60),
            prop::collection::vec((-4i32..5).prop_map(f64::from), 1..60),
            prop::collection::vec((0i32..400).prop_map(|x| f64::from(x) * 0.1), 1..60),
            prop::collection::vec(prop_oneof![Just(-0.0), Just(0.0), Just(1e-300), Just(1e12)], 1..40),
            (any::<i32>(), 1usize..60).prop_map(|(x, n)| vec![f64::from(x); n]),
            prop::collection::vec(-300.0..300.0, 1..60).prop_map(|xs| xs.into_iter().map(f64::exp2).collect()),
        ]
    }

    proptest! {
        #[test]
        fn every_rank_is_that_of_all_differences(
            a in samples(),
            b in samples(),
            at in 0.0..1.0f64,
            listed in 1u64..200,
        ) {
            let all = brute(&a, &b);
            let (a, b) = (rank::ascending(&a), rank::ascending(&b));
            let differences = Differences { a: &a, b: &b, listed };
            let rank = ((all.len() as f64 * at) as usize).min(all.len() - 1);
            let (value, next) = differences.two(differences.all(), rank as u64);
            prop_assert_eq!(value, all[rank]);
            prop_assert_eq!(next, all[(rank + 1).min(all.len() - 1)]);
            let far = (rank + 20).min(all.len() - 1);
            let shared = differences.narrow_round(rank as u64, far as u64);
            prop_assert_eq!(differences.two(shared.clone(), rank as u64).0, all[rank]);
            prop_assert_eq!(differences.two(shared, far as u64).0, all[far]);
        }

        #[test]
        fn the_interval_is_what_the_test_does_not_reject(a in samples(), b in samples(), level in 0.5..0.999f64) {
            let all = brute(&a, &b);
            let found = shift(&a, &b, level).expect("both have values");
            prop_assert_eq!(found.estimate, crate::median_sorted(&all));
            prop_assert!(found.low <= found.estimate && found.estimate <= found.high);
            let (edge, exact) = plain_edge(a.len(), b.len(), level);
            prop_assert_eq!(found.exact, exact);
            if edge == 0 {
                prop_assert_eq!((found.low, found.high), (f64::NEG_INFINITY, f64::INFINITY));
            } else {
                let edge = edge as usize;
                prop_assert_eq!((found.low, found.high), (all[edge - 1], all[all.len() - edge]));
            }
            let wide = shift_inflated(&a, &b, level, 2.5, 6.0).expect("both have values");
            prop_assert!(wide.low <= found.low && wide.high >= found.high);
            prop_assert_eq!(wide.estimate, found.estimate);
        }
    }

    #[test]
    fn an_untied_interval_leaves_out_zero_exactly_where_the_test_rejects() {
        // Interleaved ranks of every degree: the first of b are low, the rest high.
        for n in [3, 5, 8, 20, 50, 60] {
            for split in 0..=n {
                let a: Vec<f64> = (0..n).map(|i| i as f64 * 2.0).collect();
                let b: Vec<f64> =
                    (0..n).map(|i| if i < split { i as f64 * 2.0 + 1.0 } else { 2e3 + i as f64 * 2.0 + 1.0 }).collect();
                for level in [0.9, 0.95, 0.99] {
                    let p = crate::mann_whitney::test(&a, &b).expect("both have values").p;
                    let found = shift(&a, &b, level).expect("both have values");
                    let outside = found.low > 0.0 || found.high < 0.0;
                    assert_eq!(outside, p <= (1.0 - level) * (1.0 + 1e-9), "{n} {split} {level} {p} {found:?}");
                }
            }
        }
    }

    #[test]
    fn too_few_values_bound_nothing() {
        assert_eq!(shift(&[], &[1.0], 0.95), None);
        assert_eq!(shift(&[1.0], &[], 0.95), None);
        let open = Shift { estimate: 2.0, low: f64::NEG_INFINITY, high: f64::INFINITY, exact: true };
        assert_eq!(shift(&[1.0], &[3.0], 0.99), Some(open));
        // 2 / C(8, 4) = 0.029: enough for 95 %, not for 99 %; and not for anything if the inflation is unknown.
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [11.0, 12.0, 13.0, 14.0]);
        assert_eq!(shift(&a, &b, 0.95), Some(Shift { estimate: 10.0, low: 7.0, high: 13.0, exact: true }));
        assert_eq!(shift(&a, &b, 0.99), Some(Shift { estimate: 10.0, ..open }));
        let unknown = shift_inflated(&a, &b, 0.95, f64::NAN, 5.0);
        assert_eq!(unknown, Some(Shift { estimate: 10.0, exact: false, ..open }));
    }

    #[test]
    fn huge_and_tiny_values_do_not_overflow() {
        let found = shift(&[-1e308, 1e308], &[-1e308, 1e308], 0.5).expect("both have values");
        assert_eq!(found.estimate, 0.0);
        let found = shift(&[f64::MIN; 60], &[f64::MAX; 60], 0.99).expect("both have values");
        assert_eq!((found.low, found.high), (f64::INFINITY, f64::INFINITY));
        let tiny = shift(&[0.0; 100], &[5e-324; 100], 0.99).expect("both have values");
        assert_eq!((tiny.low, tiny.estimate, tiny.high), (5e-324, 5e-324, 5e-324));
    }

    #[test]
    fn many_values_agree_with_all_differences() {
        // Enough that the bracket has to be narrowed; in the second kind most differences are equal to others.
        let mut rng = Rng::stream(7, "many");
        for steps in [1_000_000_007, 40] {
            let mut draw = |n: usize| (0..n).map(|_| rng.below(steps) as f64 / 16.0).collect::<Vec<f64>>();
            let (a, b) = (draw(400), draw(300));
            let all = brute(&a, &b);
            let found = shift(&a, &b, 0.99).expect("both have values");
            let edge = plain_edge(400, 300, 0.99).0 as usize;
            assert_eq!(found.estimate, crate::median_sorted(&all));
            assert_eq!((found.low, found.high), (all[edge - 1], all[all.len() - edge]));
        }
    }

    #[test]
    fn quantiles_of_students_law_are_the_printed_ones() {
        for (level, df, t) in [(0.95, 1.0, 12.706_204_736), (0.95, 10.0, 2.228_138_852), (0.99, 4.0, 4.604_094_871)] {
            assert!((student_quantile(level, df) - t).abs() < 1e-8, "{level} {df} {}", student_quantile(level, df));
        }
        for df in [1e6, 1_000_001.0, 1e8, f64::INFINITY] {
            assert!((student_quantile(0.99, df) - 2.575_829_304).abs() < 1e-5, "{df}");
        }
    }
}
