//! 2018: a larger read-ahead window.

use super::{Checks, ClaimResult, gains};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult};

/// What checks the claims that are not a matter of two rows.
pub(in crate::incident) const CHECKS: Checks = &[("bonnie-sys", falls), ("shape", shape)];

/// Every compared pair falls: its metric is a cost, so it gains.
fn falls(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) {
    checked.upper = claim.max_change_pct;
    let least = gains(result, claim, checked).into_iter().min_by(f64::total_cmp);
    if let Some(least) = least {
        // As a change: down is negative. Standing still is no fall.
        checked.judge(-least);
        checked.held &= least > 0.0;
    }
}

/// The table whose shape the claim is about, and its numbers of readers.
const TABLE: &str = "paralleldd-single-ext3-uma";
const READERS: [&str; 5] = ["1", "3", "5", "7", "8"];
/// How far 7 and 8 readers may be from one with small windows.
const MANY: f64 = 0.15;
/// How far any number of readers may be from one with large windows.
const FLAT: f64 = 0.10;

/// With small windows three readers are among the two worst cases and many readers are near one; with large windows
/// all are near one.
fn shape(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let column = |name: &str| -> Option<Vec<f64>> {
        READERS.iter().map(|n| result.row(&format!("{TABLE}/{name}/{n}")).map(RowResult::simulated)).collect()
    };
    let (Some(small), Some(large)) = (column("vanilla"), column("readahead")) else {
        checked.evidence.push(format!("a row of table {TABLE} does not exist"));
        return;
    };
    let distance = |values: &[f64], nr: usize| (values[nr] / values[0] - 1.0).abs();
    let worse = small.iter().filter(|value| **value > small[1]).count();
    let many = distance(&small, 3).max(distance(&small, 4));
    let flat = (1..READERS.len()).map(|nr| distance(&large, nr)).fold(0.0, f64::max);
    checked.held = small[0] > 0.0 && large[0] > 0.0 && small[1] > small[0] && worse < 2 && many <= MANY && flat <= FLAT;
    let list = |values: &[f64]| values.iter().map(|value| format!("{value:.2}")).collect::<Vec<_>>().join(" ");
    checked.evidence.push(format!("128 KB, {} readers: {} s", READERS.join("/"), list(&small)));
    checked.evidence.push(format!("512 KB: {} s", list(&large)));
    checked.evidence.push(format!(
        "with 128 KB {worse} cases are worse than three readers, 7 and 8 are within {:.1}% of one; with 512 KB all are \
         within {:.1}%",
        100.0 * many,
        100.0 * flat
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::claims::tests::{checked, compare, result};

    #[test]
    fn the_shape_is_recognised() {
        let good = [5.5, 7.7, 7.3, 5.8, 5.7];
        let flat = [5.5, 5.7, 5.8, 5.9, 5.8];
        let table = [
            (good, flat, true),
            // Flat with small windows too: three readers must be worse than one.
            ([5.5; 5], flat, false),
            ([5.5, 6.0, 7.0, 6.2, 6.1], flat, false),
            ([5.5, 7.7, 7.3, 6.8, 5.7], flat, false),
            (good, [5.5, 5.7, 6.2, 5.9, 5.8], false),
        ];
        for (small, large, held) in table {
            let mut rows: Vec<(String, [f64; 1])> = Vec::new();
            for (name, values) in [("vanilla", small), ("readahead", large)] {
                rows.extend(READERS.iter().zip(values).map(|(n, value)| (format!("{TABLE}/{name}/{n}"), [value])));
            }
            let rows: Vec<(&str, &[f64])> = rows.iter().map(|(id, value)| (id.as_str(), &value[..])).collect();
            let result = result("process_mean_s", &rows);
            assert_eq!(checked(&result, "kind='bound'", &[("c", shape)]).held, held, "{small:?} {large:?}");
        }
        assert!(!checked(&result("elapsed_s", &[]), "kind='bound'", &[("c", shape)]).held);
    }

    #[test]
    fn a_cost_must_fall() {
        for (after, held) in [(9.0, true), (10.0, false), (11.0, false)] {
            let mut result = result("cpu_s", &[("before", &[10.0]), ("after", &[after])]);
            compare(&mut result, &[("after", "before")]);
            assert_eq!(checked(&result, "kind='bound'\nmax_change_pct=0", &[("c", falls)]).held, held, "{after}");
        }
    }
}
