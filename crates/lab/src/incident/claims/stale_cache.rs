//! 2012: direct writes that pay for pages somebody else left in the cache.

use super::{Checks, ClaimResult, ratios};
use crate::incident::IncidentResult;
use crate::incident::file::Claim;

/// What checks the claims that are not a matter of two rows.
pub(in crate::incident) const CHECKS: Checks = &[("large-blocks", large_blocks)];

/// Least and largest loss with large blocks, percent.
const LOSS_PCT: (f64, f64) = (0.5, 4.0);

/// The compared pair, stale against clean, loses a little.
fn large_blocks(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) {
    (checked.lower, checked.upper) = (Some(LOSS_PCT.0), Some(LOSS_PCT.1));
    if let [ratio] = ratios(result, claim, checked).as_slice() {
        checked.judge(100.0 * (1.0 - ratio));
        checked.spread = checked.spread.map(|(low, high)| (100.0 * (1.0 - high), 100.0 * (1.0 - low)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::claims::tests::{checked, compare, result};

    #[test]
    fn a_little_is_lost_not_nothing_and_not_much() {
        for (stale, held) in [(98.0, true), (100.0, false), (95.0, false)] {
            let mut result = result("write_mb_s", &[("clean", &[100.0]), ("stale", &[stale])]);
            compare(&mut result, &[("stale", "clean")]);
            assert_eq!(checked(&result, "kind='bound'", &[("c", large_blocks)]).held, held, "{stale}");
        }
    }
}
