//! A row drawn as text: its samples in run order, and their positions if they have modes.
//!
//! Both sides are on one scale. With more samples than columns, neighbours share a column and their median is drawn,
//! which a stray sample does not move; the number that share one is printed.

use super::Row;
use iowhy_stats::{median_sorted, sorted};

/// Columns of the samples in their order.
pub const COLUMNS: usize = 24;
/// Columns of the range of values.
pub const PLACES: usize = 60;

/// The pictures of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// The smallest and the largest of all samples.
    pub range: (f64, f64),
    /// Values drawn in the columns of A and of B.
    pub columns: [Vec<f64>; 2],
    /// Samples that share a column, of the side that has most.
    pub per_column: f64,
    /// Samples at each place of the range, of both sides, if one of them has modes.
    pub places: Option<[Vec<f64>; 2]>,
}

/// Values in at most `most` columns: the median of neighbours where there are more.
pub fn binned(values: &[f64], most: usize) -> Vec<f64> {
    let n = values.len().min(most);
    let place = |nr: usize| nr * values.len() / n;
    (0..n).map(|nr| median_sorted(&sorted(&values[place(nr)..place(nr + 1)]))).collect()
}

/// The smallest and the largest.
pub fn range<'a>(values: impl IntoIterator<Item = &'a f64>) -> (f64, f64) {
    values.into_iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(*x), high.max(*x)))
}

pub fn of(row: &Row) -> Drawn {
    let sides = [&row.a, &row.b];
    let (low, high) = range(sides.into_iter().flat_map(|side| &side.shown));
    let place = |value: f64| {
        let place = (value - low) / (high - low) * PLACES as f64;
        if place.is_finite() { (place as usize).min(PLACES - 1) } else { 0 }
    };
    let places = sides.map(|side| {
        let mut counts = vec![0.0; PLACES];
        side.shown.iter().for_each(|value| counts[place(*value)] += 1.0);
        counts
    });
    Drawn {
        range: (low, high),
        columns: sides.map(|side| binned(&side.shown, COLUMNS)),
        per_column: sides.map(|side| side.n as f64 / COLUMNS as f64).into_iter().fold(1.0, f64::max),
        places: sides.iter().any(|side| side.modes.len() > 1).then_some(places),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::text::tests::row;
    use iowhy_stats::Better;

    #[test]
    fn neighbours_share_a_column_by_their_median() {
        for (values, most, expected) in [
            (&[1.0, 2.0, 900.0, 5.0, 6.0, 7.0][..], 2, &[2.0, 6.0][..]),
            (&[3.0, 1.0], 24, &[3.0, 1.0]),
            (&[1.0, 2.0, 3.0, 4.0, 5.0], 2, &[1.5, 4.0]),
            (&[], 24, &[]),
            (&[7.0], 1, &[7.0]),
        ] {
            assert_eq!(binned(values, most), expected);
        }
    }

    #[test]
    fn places_are_drawn_where_there_are_modes_and_count_every_sample() {
        let mut row = row(Better::Lower, (3.0, 6.0), Verdict::Regression);
        assert_eq!(of(&row).places, None);
        assert_eq!((of(&row).range, of(&row).per_column), ((1.0, 2.0), 1.0));
        let mode = iowhy_stats::modes::Mode {
            mean: 1.0,
            centre: 1.0,
            min: 1.0,
            max: 1.0,
            count: 1,
            share: 0.5,
            members: vec![0],
        };
        row.b.modes = vec![mode.clone(), mode];
        let [a, b] = of(&row).places.expect("modes");
        let full = |side: &[f64]| -> Vec<usize> { (0..PLACES).filter(|nr| side[*nr] > 0.0).collect() };
        assert_eq!((full(&a), full(&b)), (vec![0, 15, 30], vec![15, 30, 59]));
        assert_eq!(a.iter().sum::<f64>(), 3.0);
        // Equal samples have one place; no samples have none.
        (row.a.shown, row.b.shown) = (vec![4.0; 100], Vec::new());
        row.a.n = 100;
        let drawn = of(&row);
        let [a, b] = drawn.places.expect("modes");
        assert_eq!((full(&a), full(&b), drawn.per_column), (vec![0], vec![], 100.0 / 24.0));
    }
}
