//! 2024: the journal's writes pass the writeback throttle. Evidence: commits for each sync call.

use super::{Checks, ClaimResult};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult};
use iowhy_stats::figure::share;

pub(in crate::incident) const CHECKS: Checks = &[("commits", commits)];

/// Least factor by which there are more commits.
const MORE: f64 = 1.03;

/// Commits for each sync call.
fn for_a_sync(row: &RowResult) -> f64 {
    share(row.sum(|layers| layers.commits), row.sum(|layers| layers.calls[2]))
}

/// The 95th percentile of the latency of calls, ms, mean over the repetitions.
fn p95_ms(row: &RowResult) -> f64 {
    super::mean(row.samples().map(|sample| sample.outcome.latency.quantile(95, 100).unwrap_or(0) as f64 / 1e6))
}

fn commits(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let (Some(broken), Some(before)) = (result.part("broken"), result.part("before")) else {
        return checked.evidence.push("a row is missing".to_owned());
    };
    checked.held = for_a_sync(broken) >= MORE * for_a_sync(before) && for_a_sync(before) > 0.0;
    for row in [broken, before] {
        checked.evidence.push(format!(
            "{}: {:.4} commits for each sync call, 95% of the calls within {:.2} ms",
            row.id,
            for_a_sync(row),
            p95_ms(row)
        ));
    }
}

/// The cause in words, every number from the events of all repetitions.
pub(in crate::incident) fn why(result: &IncidentResult) -> String {
    let (Some(broken), Some(before)) = (result.part("broken"), result.part("before")) else {
        return String::new();
    };
    let rate = |row: &RowResult| format!("{:.0} {}", row.simulated(), row.metric.unit);
    format!(
        "In {} the journal's blocks share the throttle's limit with data; in {} they pass it. There are {:.4} commits \
         for each sync call instead of {:.4}, 95% of the calls take up to {:.2} ms instead of {:.2}, and {} become {}.",
        before.id,
        broken.id,
        for_a_sync(broken),
        for_a_sync(before),
        p95_ms(broken),
        p95_ms(before),
        rate(before),
        rate(broken),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::claims::tests::{checked, result};

    #[test]
    fn without_its_rows_nothing_is_shown() {
        let result = result("calls_per_s", &[("a", &[1.0])]);
        assert!(!checked(&result, "kind='mechanism'", &[("c", commits)]).held);
        assert_eq!(why(&result), "");
    }
}
