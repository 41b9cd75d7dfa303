//! 2024: a write behind the end of a file writes out the file's last page first. Evidence: commands for a record.

use super::{Checks, ClaimResult};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult};
use iowhy_stats::figure::share;

pub(in crate::incident) const CHECKS: Checks = &[("commands", commands)];

/// Least commands for a record where each waits for one, and most where none does.
const EACH: f64 = 0.8;
const FEW: f64 = 0.2;

/// Commands that write data, for each write call.
fn for_a_record(row: &RowResult) -> f64 {
    share(row.sum(|layers| layers.writes.data), row.sum(|layers| layers.calls[1]))
}

fn commands(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let Some([broken, before]) = result.parts(["broken", "before"]) else {
        return checked.evidence.push("a row is missing".to_owned());
    };
    checked.held = for_a_record(broken) >= EACH && for_a_record(before) <= FEW;
    let seen = [broken, before].map(|row| format!("{} {:.3}", row.id, for_a_record(row)));
    checked.evidence.push(format!("commands for a record: {}", seen.join(", ")));
}

/// The cause in words, every number from the events of all repetitions.
pub(in crate::incident) fn why(result: &IncidentResult) -> String {
    let Some([broken, before]) = result.parts(["broken", "before"]) else {
        return String::new();
    };
    let rate = |row: &RowResult| format!("{:.2} {}", row.simulated(), row.metric.unit);
    let of_aligned = result.part("aligned").map_or_else(String::new, |row| {
        format!(" Where records end on a page that page is not part of the gap: {} in {}.", rate(row), row.id)
    });
    format!(
        "Each record begins behind the end of the file, so the rest of its last page is zeroed. In {} that page is \
         written to the disk and waited for first, {:.2} commands for each record; in {} there are {:.3}, made by the \
         flusher: {} become {}.{of_aligned}",
        broken.id,
        for_a_record(broken),
        before.id,
        for_a_record(before),
        rate(before),
        rate(broken),
    )
}
