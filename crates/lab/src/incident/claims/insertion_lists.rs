//! 2024: requests that enter the scheduler when it is asked for one. Evidence: bios that join, requests
//! that are united, sleeps for a tag.

use super::{Checks, ClaimResult, percent};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult};
use iowhy_stats::figure::share;

pub(in crate::incident) const CHECKS: Checks = &[("merging", merging)];

/// Least share of the bios that counts as most, and the largest that counts as next to none.
const MOST: f64 = 0.5;
const FEW: f64 = 0.1;

fn bios(row: &RowResult) -> u64 {
    row.sum(|layers| layers.writes.merges + layers.writes.issued)
}

/// The part of the bios that joined a request; those whose requests were united later had one of their own.
fn joined(row: &RowResult) -> f64 {
    share(row.sum(|layers| layers.writes.merges.saturating_sub(layers.request_merges)), bios(row))
}

/// Requests that were united with another, for a bio.
fn united(row: &RowResult) -> f64 {
    share(row.sum(|layers| layers.request_merges), bios(row))
}

/// Sleeps for a tag, for a bio.
fn sleeps(row: &RowResult) -> f64 {
    share(row.samples().map(|sample| sample.outcome.request_waits[0]).sum(), bios(row))
}

fn merging(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let Some([broken, before]) = result.parts(["broken", "before"]) else {
        return checked.evidence.push("a row is missing".to_owned());
    };
    let bios_join = joined(before) > MOST && joined(broken) < FEW;
    checked.held = bios_join && united(broken) > united(before) && sleeps(broken) > sleeps(before);
    for row in [before, broken] {
        checked.evidence.push(format!(
            "{}: {} of the bios join a request, {} are united later, {:.2} sleeps for a tag each",
            row.id,
            percent(joined(row)),
            percent(united(row)),
            sleeps(row)
        ));
    }
}

/// The cause in words, every number from the events of all repetitions.
pub(in crate::incident) fn why(result: &IncidentResult) -> String {
    let Some([broken, before, fixed]) = result.parts(["broken", "before", "fixed"]) else {
        return String::new();
    };
    let rate = |row: &RowResult| format!("{:.2} {}", row.simulated(), row.metric.unit);
    let size = |row: &RowResult| share(bios(row), row.sum(|layers| layers.writes.issued));
    format!(
        "In {} {} of the bios join a request that waits in the scheduler, and {:.1} bios go to the drive at a time. In \
         {} a request enters it only when the drive has room and asks: bios that come before find none, {} join, each \
         of the others takes a tag, and when there are no more its job sleeps ({:.2} times a bio, before {:.2}). \
         Requests that have entered are united with their neighbours, but of so few only {} are: {:.1} bios go to the \
         drive at a time, {} instead of {}. With tags for all of them {} are united, and the rate is {}.",
        before.id,
        percent(joined(before)),
        size(before),
        broken.id,
        percent(joined(broken)),
        sleeps(broken),
        sleeps(before),
        percent(united(broken)),
        size(broken),
        rate(broken),
        rate(before),
        percent(united(fixed)),
        rate(fixed),
    )
}
