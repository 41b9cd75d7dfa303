//! Few values: segments by least squares, tested by Student's t.
//!
//! k values before a change and m after it have (k+m)!/k!/m! orders, too few at 1 % for three values against six, and
//! no single split of two changes that undo each other is a good one. Here all changes are placed at once: for 1, 2 and
//! 3 of them, the segments with the least sum of squares, and t-tests of neighbouring means, with the deviation within
//! all segments. A p is multiplied by the number of tests and of ways to place the changes (Bonferroni), and by 2, 4 or
//! 8, so that the numbers of changes share the level. The largest number of which all changes count is taken.
//!
//! Limits: values are taken to be normal. Values of two modes with hardly any spread within change, by this test, in
//! 1.7 % of stable series of 10, 1.0 % of 12 and none of 20.
//!
//! References: Worsley 1979 for one change; Bellman 1961 for the segments; Prais & Winsten 1954 for the correlation.

use statrs::function::beta::checked_beta_reg;

use super::mean;

/// Most changes.
const MOST: usize = 3;

/// A series in segments.
pub(super) struct Segments<'a> {
    values: &'a [f64],
    /// The beginnings, and the end of the last.
    bounds: Vec<usize>,
}

impl<'a> Segments<'a> {
    pub(super) fn new(values: &'a [f64], changes: impl Iterator<Item = usize>) -> Segments<'a> {
        Segments { values, bounds: std::iter::once(0).chain(changes).chain([values.len()]).collect() }
    }

    /// Correlation of neighbours within the segments, without the bias by their means.
    pub(super) fn correlation(&self) -> f64 {
        let (mut together, mut alone, mut bias, mut pairs) = (0.0, 0.0, 0.0, 0.0);
        for part in self.bounds.windows(2).map(|pair| &self.values[pair[0]..pair[1]]) {
            let middle = mean(part);
            together += part.windows(2).map(|pair| (pair[0] - middle) * (pair[1] - middle)).sum::<f64>();
            alone += squares(part);
            bias += 1.0 - 1.0 / part.len().max(1) as f64;
            pairs += part.len() as f64 - 1.0;
        }
        // Of independent values, the products are -bias variances together, and the squares `pairs` of them.
        if alone > 0.0 { (together / alone + bias / pairs) * self.values.len() as f64 / pairs } else { 0.0 }
    }

    /// p of each change by the means next to it, if values follow their predecessors with correlation `phi`: the rest
    /// of each value, without that share of its predecessor, is independent.
    pub(super) fn t_tests(&self, phi: f64) -> Vec<f64> {
        let means = self.bounds.len() - 1;
        let first = (1.0 - phi * phi).sqrt();
        let segment = |nr: usize| self.bounds.partition_point(|bound| *bound <= nr) - 1;
        // The rest of a value, and the share of each mean in it.
        let rest = |nr: usize| match nr {
            0 => (first * self.values[0], [(0, first), (0, 0.0)]),
            _ => (self.values[nr] - phi * self.values[nr - 1], [(segment(nr), 1.0), (segment(nr - 1), -phi)]),
        };
        let mut rows = vec![vec![0.0; 2 * means + 1]; means];
        for (value, shares) in (0..self.values.len()).map(rest) {
            for (i, a) in shares {
                shares.iter().for_each(|(j, b)| rows[i][*j] += a * b);
                rows[i][means] += a * value;
            }
        }
        invert(&mut rows);
        let unexplained = |(value, shares): (f64, [(usize, f64); 2])| {
            let rest = shares.iter().fold(value, |rest, (nr, share)| rest - share * rows[*nr][means]);
            rest * rest
        };
        let free = self.values.len() as f64 - means as f64;
        let variance = (0..self.values.len()).map(rest).map(unexplained).sum::<f64>() / free;
        let inverse = |i: usize, j: usize| rows[i][means + 1 + j];
        let p = |nr: usize| {
            let apart = rows[nr + 1][means] - rows[nr][means];
            let spread = inverse(nr, nr) + inverse(nr + 1, nr + 1) - 2.0 * inverse(nr, nr + 1);
            match apart * apart / (variance * spread) {
                t_square if t_square.is_nan() => 1.0,
                t_square if t_square.is_infinite() => 0.0,
                t_square => checked_beta_reg(free / 2.0, 0.5, free / (free + t_square)).unwrap_or(1.0),
            }
        };
        (1..means).map(|nr| p(nr - 1)).collect()
    }
}

/// Solves the left square for the column behind it, and leaves its inverse behind that.
fn invert(rows: &mut [Vec<f64>]) {
    let n = rows.len();
    (0..n).for_each(|nr| rows[nr][n + 1 + nr..=n + 1 + nr].fill(1.0));
    for pivot in 0..n {
        let scale = rows[pivot][pivot];
        rows[pivot].iter_mut().for_each(|value| *value /= scale);
        let line = rows[pivot].clone();
        for row in rows.iter_mut().enumerate().filter(|(nr, _)| *nr != pivot).map(|(_, row)| row) {
            let times = row[pivot];
            row.iter_mut().zip(&line).for_each(|(value, other)| *value -= times * other);
        }
    }
}

/// The sum of squares around the mean.
fn squares(values: &[f64]) -> f64 {
    let middle = mean(values);
    values.iter().map(|value| (value - middle) * (value - middle)).sum()
}

/// Changes with their p, each `max_p` at most: the first value after it.
pub(super) fn find(values: &[f64], least: usize, max_p: f64) -> Vec<(usize, f64)> {
    let mut found = Vec::new();
    for places in best(values, least) {
        let nr = places.len();
        let tests = ways(values.len(), nr, least) * (nr << nr) as f64;
        let p = Segments::new(values, places.iter().copied()).t_tests(0.0);
        if p.iter().all(|p| p * tests <= max_p) {
            found = places.into_iter().zip(p.into_iter().map(|p| p * tests)).collect();
        }
    }
    found
}

/// The ways to place changes in `n` values so that segments have `least` of them.
pub(super) fn ways(n: usize, changes: usize, least: usize) -> f64 {
    let places = (n + changes).saturating_sub((changes + 1) * least.max(1));
    (0..changes).fold(1.0, |ways, k| ways * places.saturating_sub(k) as f64 / (k + 1) as f64)
}

/// For 1, 2, .. changes, as long as segments have `least` values, the places with the least sum of squares.
pub(super) fn best(values: &[f64], least: usize) -> Vec<Vec<usize>> {
    let (n, least) = (values.len(), least.max(1));
    let mut before: Vec<(f64, Vec<usize>)> = (0..=n).map(|end| (squares(&values[..end]), Vec::new())).collect();
    let mut all = Vec::new();
    for nr in (1..=MOST).filter(|nr| n >= (nr + 1) * least) {
        let mut now = vec![(f64::INFINITY, Vec::new()); n + 1];
        for end in (nr + 1) * least..=n {
            for start in nr * least..=end - least {
                let sum = before[start].0 + squares(&values[start..end]);
                if sum < now[end].0 {
                    now[end] = (sum, before[start].1.iter().copied().chain([start]).collect());
                }
            }
        }
        all.push(now[n].1.clone());
        before = now;
    }
    all
}
