//! 2024: tasks that wait for a tag are woken one by one. Evidence: requests for each sleep.

use super::{Checks, ClaimResult};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult};
use iowhy_stats::figure::share;

pub(in crate::incident) const CHECKS: Checks = &[("batch", batch)];

/// Most requests for a sleep that count as one by one.
const ONE: f64 = 1.5;
/// Least factor of a batch.
const MORE: f64 = 2.0;

/// Requests that a task is given for each time that it sleeps for a tag; 0 if nobody does.
fn given(row: &RowResult) -> f64 {
    let waits: u64 = row.samples().map(|sample| sample.outcome.request_waits[0]).sum();
    share(row.sum(|layers| layers.reads.issued + layers.writes.issued), waits)
}

fn batch(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let (Some(broken), Some(before)) = (result.part("broken"), result.part("before")) else {
        return checked.evidence.push("a row is missing".to_owned());
    };
    checked.held = given(broken) > 0.0 && given(broken) < ONE && given(before) >= MORE * given(broken);
    let seen = [broken, before].map(|row| format!("{} {:.2}", row.id, given(row)));
    checked.evidence.push(format!("requests for each sleep: {}", seen.join(", ")));
}

/// The cause in words, every number from the events of all repetitions.
pub(in crate::incident) fn why(result: &IncidentResult) -> String {
    let (Some(broken), Some(before)) = (result.part("broken"), result.part("before")) else {
        return String::new();
    };
    let rate = |row: &RowResult| format!("{:.0} {}", row.simulated(), row.metric.unit);
    format!(
        "More is wanted than there are tags, so tasks sleep for one. In {} a task is given {:.1} requests for each \
         sleep, in {} {:.1}: the map wakes as many waiters as tags have come free since the last time, and that is an \
         eighth of the tags that an allocation is sure to see. Each sleep costs the processor a switch, and the \
         processor is the limit: {} become {}.",
        broken.id,
        given(broken),
        before.id,
        given(before),
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
        let result = result("read_mb_s", &[("a", &[1.0])]);
        assert!(!checked(&result, "kind='mechanism'", &[("c", batch)]).held);
        assert_eq!(why(&result), "");
    }
}
