//! 2025: io_uring's reads of FUSE files wait where they are handed in. Evidence: calls that are handed over, and
//! requests at the server.

use super::{Checks, ClaimResult, handed_over, percent};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult};

pub(in crate::incident) const CHECKS: Checks = &[("waits-where-handed-in", waits_where_handed_in)];

/// Least share of the reads that counts as all, and the largest that counts as none.
const ALL: f64 = 0.99;
const NONE: f64 = 0.01;
/// Requests at the server in the mean: at most for one, and at least for four.
const ONE: f64 = 1.05;
const FOUR: f64 = 3.5;

/// Requests at the server when another comes, this one included, in the mean.
fn at_server(row: &RowResult) -> f64 {
    let (sum, nr) = row.samples().fold((0, 0), |(sum, nr), sample| {
        let depth = &sample.layers().depth;
        (sum + depth.sum(), nr + depth.count())
    });
    sum as f64 / nr.max(1) as f64
}

fn waits_where_handed_in(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let Some([broken, before]) = result.parts(["broken", "before"]) else {
        return checked.evidence.push("a row is missing".to_owned());
    };
    let workers = handed_over(before) >= ALL && handed_over(broken) < NONE;
    checked.held = workers && at_server(before) > FOUR && at_server(broken) < ONE;
    for row in [before, broken] {
        checked.evidence.push(format!(
            "{}: {} of the reads are given to workers, {:.2} requests are at the server",
            row.id,
            percent(handed_over(row)),
            at_server(row)
        ));
    }
}

/// The cause in words, every number from the events of all repetitions.
pub(in crate::incident) fn why(result: &IncidentResult) -> String {
    let Some([broken, before, fixed]) = result.parts(["broken", "before", "fixed"]) else {
        return String::new();
    };
    let rate = |row: &RowResult| format!("{:.2} {}", row.simulated(), row.metric.unit);
    format!(
        "The server's files do not say that they can be asked without waiting. In {} {} of the reads therefore go to \
         worker threads, which wait side by side: {:.1} requests are at the server. In {} poll is asked as well and \
         says \"ready\": {} go to workers, the others are carried out where they are handed in, and each waits for its \
         answer there: {:.1} at the server, {} instead of {}. With poll not asked the same kernel has {:.1} at the \
         server, and {}.",
        before.id,
        percent(handed_over(before)),
        at_server(before),
        broken.id,
        percent(handed_over(broken)),
        at_server(broken),
        rate(broken),
        rate(before),
        at_server(fixed),
        rate(fixed),
    )
}
