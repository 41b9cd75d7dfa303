//! 2022: throttled writers that sleep until nothing of theirs is in flight. Evidence: commands at the drive.

use iowhy_stack::histogram::Histogram;

use super::{Checks, ClaimResult};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult};

pub(in crate::incident) const CHECKS: Checks = &[("dry", dry)];

/// Largest part of the commands at the drive that is left.
const LEFT: f64 = 0.75;

/// Commands at the drive when one is issued, this one included: the mean over the repetitions.
fn depth(row: &RowResult) -> f64 {
    let mean = |depth: &Histogram| depth.sum() as f64 / depth.count().max(1) as f64;
    super::mean(row.samples().map(|sample| mean(&sample.layers().depth)))
}

fn waits(row: &RowResult) -> u64 {
    row.samples().map(|sample| sample.outcome.request_waits[1]).sum()
}

fn dry(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let Some([broken, before]) = result.parts(["broken", "before"]) else {
        return checked.evidence.push("a row is missing".to_owned());
    };
    checked.held = [broken, before].iter().all(|row| waits(row) > 0) && depth(broken) < LEFT * depth(before);
    let seen = [broken, before].map(|row| format!("{} {:.1} ({} sleeps)", row.id, depth(row), waits(row)));
    checked.evidence.push(format!("commands at the drive, and sleeps of throttled writers: {}", seen.join(", ")));
}

/// The cause in words, every number from the events of all repetitions.
pub(in crate::incident) fn why(result: &IncidentResult) -> String {
    let Some([broken, before, fixed]) = result.parts(["broken", "before", "fixed"]) else {
        return String::new();
    };
    let rate = |row: &RowResult| format!("{:.1} {}", row.simulated(), row.metric.unit);
    format!(
        "The throttle lets a number of synced writes through and has the others wait, {} times in {} and {} times in \
         {}. There they are woken as soon as some writes have ended, and {:.1} commands are at the drive on average; \
         here only when none is left in flight, and {:.1} are: the drive runs dry between two turns, and {} become {}. \
         Without the throttle the rate is {}.",
        waits(before),
        before.id,
        waits(broken),
        broken.id,
        depth(before),
        depth(broken),
        rate(before),
        rate(broken),
        rate(fixed),
    )
}
