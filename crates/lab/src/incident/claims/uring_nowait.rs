//! 2025: io_uring gives cached reads to worker threads. Evidence: reads that are handed over, and context switches.

use super::{Checks, ClaimResult, handed_over, percent, reads};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult};
use iowhy_stats::figure::share;

pub(in crate::incident) const CHECKS: Checks = &[("workers", workers)];

/// Least share of the reads that counts as nearly all, and the largest that counts as nearly none.
const ALL: f64 = 0.99;
const NONE: f64 = 0.01;

/// Context switches for a read.
fn switches(row: &RowResult) -> f64 {
    share(row.samples().map(|sample| sample.outcome.switches).sum(), reads(row))
}

fn workers(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let Some([broken, before]) = result.parts(["broken", "before"]) else {
        return checked.evidence.push("a row is missing".to_owned());
    };
    checked.held = handed_over(broken) >= ALL && handed_over(before) <= NONE && switches(broken) > switches(before);
    for row in [before, broken] {
        checked.evidence.push(format!(
            "{}: {} of the reads are given to workers, {:.3} context switches a read",
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
    let rate = |row: &RowResult| format!("{:.0} reads a second", row.simulated());
    let cpu_us = |row: &RowResult| {
        let busy: f64 = row.samples().map(|sample| sample.outcome.cpu_busy.as_secs_f64()).sum();
        1e6 * busy / reads(row).max(1) as f64
    };
    format!(
        "The files do not say that they can be asked without waiting. In {} {} of the cached reads are copied anyway \
         as they are handed in, {:.1} us of processor time each. In {} {} go to worker threads: {:.1} us each, as a \
         worker is woken and copies on the other thread of the submitter's core, which slows both; {} instead of {}. \
         On files that say that they can be asked the same kernel hands {} over and makes {}.",
        before.id,
        percent(1.0 - handed_over(before)),
        cpu_us(before),
        broken.id,
        percent(handed_over(broken)),
        cpu_us(broken),
        rate(broken),
        rate(before),
        percent(handed_over(fixed)),
        rate(fixed),
    )
}
