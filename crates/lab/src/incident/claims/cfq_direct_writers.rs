//! 2010: direct writers whose requests CFQ took for asynchronous ones.

use super::{Checks, ClaimResult, ratios};
use crate::incident::IncidentResult;
use crate::incident::file::Claim;

/// What checks the claims that are not a matter of two rows.
pub(in crate::incident) const CHECKS: Checks = &[("driver-depth-one", driver_depth_one)];

/// How far old and new may lie apart and be called equal.
const EQUAL: f64 = 0.02;

/// The compared pairs, new against old with one request at a time, are equal.
fn driver_depth_one(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) {
    (checked.lower, checked.upper) = (Some(1.0 - EQUAL), Some(1.0 + EQUAL));
    let ratios = ratios(result, claim, checked);
    if let Some(farthest) = ratios.into_iter().max_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs())) {
        checked.judge(farthest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::claims::tests::{checked, compare, result};

    #[test]
    fn every_pair_must_be_equal() {
        let rows: [(&str, &[f64]); 3] = [("old", &[10.0]), ("new", &[10.1]), ("slow", &[8.0])];
        let mut result = result("write_mb_s", &rows);
        let checks: Checks = &[("c", driver_depth_one)];
        compare(&mut result, &[("new", "old"), ("new", "old")]);
        assert!(checked(&result, "kind='mechanism'", checks).held);
        compare(&mut result, &[("new", "old"), ("slow", "old")]);
        assert!(!checked(&result, "kind='mechanism'", checks).held);
    }
}
