//! Repeated runs that fall into two groups: two modes, of which a mean would describe neither.
//!
//! The sorted values are cut at their widest gap. Both sides are modes if each has two values at least and the gap is
//! much wider than either side is.

use serde_json::{Value, json};

/// Values that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Mode {
    /// Their mean.
    pub mean: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Which values, by their place.
    pub members: Vec<usize>,
}

/// Fewer values than this have no modes.
const LEAST_VALUES: usize = 8;
/// How much wider the gap must be than either mode.
const GAP_TO_WIDTH: f64 = 5.0;
/// The least gap, as a part of the higher mode: rounding is no mode.
const LEAST_GAP: f64 = 0.002;

/// The lower and the higher mode of some values, if there are two.
pub fn two(values: &[f64]) -> Option<[Mode; 2]> {
    if values.len() < LEAST_VALUES || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let gap = |cut: &usize| values[order[*cut]] - values[order[*cut - 1]];
    let cut = (1..order.len()).max_by(|a, b| gap(a).total_cmp(&gap(b)))?;
    let width = gap(&cut);
    let (low, high) = (mode(values, &order[..cut]), mode(values, &order[cut..]));
    let apart =
        [&low, &high].iter().all(|mode| mode.members.len() > 1 && width >= GAP_TO_WIDTH * (mode.max - mode.min));
    (apart && width > LEAST_GAP * high.max.abs()).then_some([low, high])
}

/// Modes as JSON: none, or the lower and the higher one.
pub fn json(modes: Option<&[Mode; 2]>) -> Value {
    let one = |mode: &Mode| json!({ "mean": mode.mean, "min": mode.min, "max": mode.max, "runs": mode.members.len() });
    modes.into_iter().flatten().map(one).collect()
}

/// Ascending values.
fn mode(values: &[f64], order: &[usize]) -> Mode {
    let mut members = order.to_vec();
    members.sort_unstable();
    let sum: f64 = order.iter().map(|nr| values[*nr]).sum();
    Mode {
        mean: sum / order.len() as f64,
        min: order.first().map_or(0.0, |nr| values[*nr]),
        max: order.last().map_or(0.0, |nr| values[*nr]),
        members,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_tight_groups_far_apart_are_two_modes_and_nothing_else_is() {
        let even: Vec<f64> = (0..20).map(|n| 100.0 + f64::from(n)).collect();
        type Case<'a> = (&'a str, &'a [f64], Option<(usize, usize)>);
        let table: [Case<'_>; 8] = [
            ("two groups", &[3.8, 2.4, 3.81, 3.8, 2.41, 3.8, 3.79, 3.8], Some((2, 6))),
            ("two groups without any width", &[1.0, 2.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0], Some((2, 6))),
            ("all the same", &[5.0; 9], None),
            ("evenly spread", &even, None),
            ("one that stands alone", &[3.8, 2.4, 3.81, 3.8, 3.8, 3.8, 3.79, 3.8], None),
            ("wide groups", &[3.8, 2.4, 4.4, 3.8, 2.9, 3.8, 3.3, 3.8], None),
            ("a difference of nothing", &[1.0, 1.001, 1.0, 1.001, 1.0, 1.0, 1.0, 1.001], None),
            ("too few", &[1.0, 2.0, 1.0, 2.0], None),
        ];
        for (name, values, expected) in table {
            let found = two(values).map(|[low, high]| (low.members.len(), high.members.len()));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn a_mode_knows_its_members() {
        let [low, high] = two(&[4.0, 2.0, 4.1, 4.0, 2.1, 4.0, 4.0, 4.0]).expect("two modes");
        assert_eq!(low.members, [1, 4]);
        assert_eq!((low.min, low.max, high.max), (2.0, 2.1, 4.1));
        assert!((low.mean - 2.05).abs() < 1e-12);
    }
}
