//! 2025: reads of files without FMODE_NOWAIT are given to workers. Evidence: calls that are handed over, and switches.

use super::{Checks, ClaimResult, percent};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult};
use iowhy_stats::figure::share;

pub(in crate::incident) const CHECKS: Checks = &[("workers", workers)];

/// Least share of the reads that counts as nearly all, and the largest that counts as nearly none.
const NEARLY_ALL: f64 = 0.95;
const NEARLY_NONE: f64 = 0.05;

fn reads(row: &RowResult) -> u64 {
    row.samples().map(|sample| sample.outcome.counts.reads).sum()
}

/// The part of the reads that was given to workers.
fn handed_over(row: &RowResult) -> f64 {
    share(row.sum(|layers| layers.handed_over), reads(row))
}

/// How often a task got a CPU, for a read.
fn switches(row: &RowResult) -> f64 {
    share(row.samples().map(|sample| sample.outcome.switches).sum(), reads(row))
}

/// Time of the processors for a read, us.
fn cost(row: &RowResult) -> f64 {
    share(row.samples().map(|sample| sample.outcome.cpu_busy.0).sum(), reads(row)) / 1e3
}

fn workers(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let Some([broken, before]) = result.parts(["broken", "before"]) else {
        return checked.evidence.push("a row is missing".to_owned());
    };
    checked.held = handed_over(broken) >= NEARLY_ALL
        && handed_over(before) < NEARLY_NONE
        && switches(broken) > switches(before);
    for row in [before, broken] {
        checked.evidence.push(format!(
            "{}: {} of the reads are given to workers, {:.3} switches each",
            row.id,
            percent(handed_over(row)),
            switches(row)
        ));
    }
}

/// The cause in words, every number from the events of all repetitions.
pub(in crate::incident) fn why(result: &IncidentResult) -> String {
    let Some([broken, before, fixed]) = result.parts(["broken", "before", "fixed"]) else {
        return String::new();
    };
    let rate = |row: &RowResult| format!("{:.0} {}", row.simulated(), row.metric.unit);
    format!(
        "The pages are in the cache. In {} a read is tried as it is handed in, and copies them at once: {} of the reads \
         go to a worker. In {} a file without the mode is not tried: {} of them go to a worker thread, which is woken, \
         copies, and wakes the submitter. That is {:.2} switches a read instead of {:.2}, and {:.2} us of the \
         processors instead of {:.2}; {} instead of {}. On a file system that sets the mode the same kernel gives {} \
         of the reads to workers, and makes {}.",
        before.id,
        percent(handed_over(before)),
        broken.id,
        percent(handed_over(broken)),
        switches(broken),
        switches(before),
        cost(broken),
        cost(before),
        rate(broken),
        rate(before),
        percent(handed_over(fixed)),
        rate(fixed),
    )
}
