//! 2012: read-ahead that sits in the plug its own reader holds.

use super::{Checks, ClaimResult, ratios};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, extremes, mean};

/// What checks the claims that are not a matter of two rows.
pub(in crate::incident) const CHECKS: Checks = &[("any-scheduler", any_scheduler)];

/// How far the slow-downs with different schedulers may lie apart.
const SAME: f64 = 0.05;

/// The compared pairs, one for each scheduler, have one ratio.
fn any_scheduler(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) {
    let ratios = ratios(result, claim, checked);
    let (low, high) = extremes(ratios.iter().copied());
    checked.lower = Some(1.0 - SAME);
    // Two schedulers at least, or there is nothing to compare.
    if ratios.len() > 1 && mean(ratios.into_iter()) > 0.0 {
        checked.judge(low / high);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::claims::tests::{checked, compare, result};

    #[test]
    fn slow_downs_lie_together_or_apart() {
        let rows: [(&str, &[f64]); 4] = [("new", &[250.0]), ("a", &[50.0]), ("b", &[51.0]), ("c", &[60.0])];
        let mut result = result("read_mb_s", &rows);
        let checks: Checks = &[("c", any_scheduler)];
        compare(&mut result, &[("a", "new"), ("b", "new")]);
        assert!(checked(&result, "kind='bound'", checks).held);
        compare(&mut result, &[("a", "new"), ("c", "new")]);
        assert!(!checked(&result, "kind='bound'", checks).held);
        compare(&mut result, &[("a", "new")]);
        assert!(!checked(&result, "kind='bound'", checks).held);
    }
}
