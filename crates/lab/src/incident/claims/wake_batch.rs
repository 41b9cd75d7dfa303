//! 2024: tasks that wait for a tag are woken one by one. Evidence: requests between two sleeps, and processor time.

use super::{Checks, ClaimResult};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult};
use iowhy_stats::figure::share;

pub(in crate::incident) const CHECKS: Checks = &[("batch", batch)];

/// Most requests between two sleeps if each tag wakes a task, and the factor by which a batch gives more.
const ONE: f64 = 1.5;
const MORE: f64 = 2.0;

/// Requests that a task is given between two sleeps for a tag.
fn between_sleeps(row: &RowResult) -> f64 {
    let sleeps = row.samples().map(|sample| sample.outcome.request_waits[0]).sum();
    share(row.sum(|layers| layers.reads.issued), sleeps)
}

/// Requests at the device when one is issued, this one included.
fn depth(row: &RowResult) -> f64 {
    share(row.samples().map(|sample| sample.layers().depth.sum() as u64).sum(), row.sum(|layers| layers.depth.count()))
}

fn batch(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let (Some(broken), Some(before)) = (result.part("broken"), result.part("before")) else {
        return checked.evidence.push("a row is missing".to_owned());
    };
    let [after, earlier] = [broken, before].map(between_sleeps);
    checked.held = after > 0.0 && after < ONE && earlier >= MORE * after;
    let seen = [broken, before].map(|row| format!("{} {:.2}", row.id, between_sleeps(row)));
    checked.evidence.push(format!("requests between two sleeps for a tag: {}", seen.join(", ")));
}

/// The cause in words, every number from the events of all repetitions.
pub(in crate::incident) fn why(result: &IncidentResult) -> String {
    let [Some(broken), Some(before), Some(fixed)] = ["broken", "before", "fixed"].map(|part| result.part(part)) else {
        return String::new();
    };
    let rate = |row: &RowResult| format!("{:.0} {}", row.simulated(), row.metric.unit);
    let cost = |row: &RowResult| {
        let busy = super::mean(row.samples().map(|sample| sample.outcome.cpu_busy.as_secs_f64() * 1e6));
        busy / super::mean(row.samples().map(|sample| sample.layers().reads.issued as f64)).max(1.0)
    };
    format!(
        "More requests are wanted than there are tags, so tasks sleep for one. In {} they are woken when eight have come \
         free, and get {:.1} requests in a turn; in {} one tag wakes one task, which gets {:.1}. A request then costs \
         the processors {:.2} us instead of {:.2}. The rate does not fall by it: {} instead of {}, as a task sleeps only \
         while all tags are in use, and fewer of them lie unused than with a batch ({:.1} requests are at the device, \
         before {:.1}). With tags for all nobody sleeps, and the rate is {}.",
        before.id,
        between_sleeps(before),
        broken.id,
        between_sleeps(broken),
        cost(broken),
        cost(before),
        rate(broken),
        rate(before),
        depth(broken),
        depth(before),
        rate(fixed),
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
