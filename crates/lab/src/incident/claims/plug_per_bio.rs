//! 2024: a plug around every bio, which runs the queue at once. Evidence: bios of a request.

use super::{Checks, ClaimResult};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult};
use iowhy_stats::figure::share;

pub(in crate::incident) const CHECKS: Checks = &[("merging", merging)];

/// Largest part of the bios of a request that is left.
const LEFT: f64 = 2.0 / 3.0;

/// Bios of a request as it is issued.
fn bios(row: &RowResult) -> f64 {
    let issued = row.sum(|layers| layers.writes.issued);
    share(row.sum(|layers| layers.writes.merges) + issued, issued)
}

fn merging(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let Some([broken, before]) = result.parts(["broken", "before"]) else {
        return checked.evidence.push("a row is missing".to_owned());
    };
    checked.held = bios(broken) < LEFT * bios(before);
    let seen = [broken, before].map(|row| format!("{} {:.2}", row.id, bios(row)));
    checked.evidence.push(format!("bios of a request: {}", seen.join(", ")));
}

/// The cause in words, every number from the events of all repetitions.
pub(in crate::incident) fn why(result: &IncidentResult) -> String {
    let Some([broken, before, fixed]) = result.parts(["broken", "before", "fixed"]) else {
        return String::new();
    };
    let rate = |row: &RowResult| format!("{:.1} {}", row.simulated(), row.metric.unit);
    format!(
        "Nobody holds the bios back, and the scheduler has room. In {} a bio has the kernel's worker thread run the \
         queue; until it does others join: {:.1} bios a request. In {} the submitter runs the queue itself as soon as \
         the bio is in, and the device, which has room, gets it alone: {:.1} bios a request, {} instead of {}. {} is \
         the new kernel with the worker in place again: {:.1} bios, {}.",
        before.id,
        bios(before),
        broken.id,
        bios(broken),
        rate(broken),
        rate(before),
        fixed.id,
        bios(fixed),
        rate(fixed),
    )
}
