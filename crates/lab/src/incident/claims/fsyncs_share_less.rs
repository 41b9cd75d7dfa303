//! 2023: fsyncs of one file that no longer look twice for pages to write. Evidence: syncs that find nothing left to
//! write, writes for a commit, handles.

use super::{Checks, ClaimResult, percent};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult};
use iowhy_stats::figure::share;

pub(in crate::incident) const CHECKS: Checks = &[("batching", batching)];

/// Largest part of the writes for a commit that is left, and of the syncs that find nothing to write.
const WRITES_LEFT: f64 = 0.98;
const EMPTY_LEFT: f64 = 2.0 / 3.0;

fn writes_for_a_commit(row: &RowResult) -> f64 {
    share(row.sum(|layers| layers.calls[1]), row.sum(|layers| layers.commits))
}

/// The part of the syncs that found all pages written by others.
fn empty(row: &RowResult) -> f64 {
    share(row.samples().map(|sample| sample.outcome.empty_syncs).sum(), row.sum(|layers| layers.calls[2]))
}

fn handles_for_a_write(row: &RowResult) -> f64 {
    share(row.samples().map(|sample| sample.outcome.handles).sum(), row.sum(|layers| layers.calls[1]))
}

fn batching(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let Some([broken, before]) = result.parts(["broken", "before"]) else {
        return checked.evidence.push("a row is missing".to_owned());
    };
    let fewer_writes = writes_for_a_commit(broken) <= WRITES_LEFT * writes_for_a_commit(before);
    checked.held = fewer_writes && empty(broken) <= EMPTY_LEFT * empty(before);
    for row in [before, broken] {
        checked.evidence.push(format!(
            "{}: {:.2} writes for a commit, {} of the syncs find nothing to write, {:.2} handles for a write",
            row.id,
            writes_for_a_commit(row),
            percent(empty(row)),
            handles_for_a_write(row)
        ));
    }
}

/// The cause in words, every number from the events of all repetitions.
pub(in crate::incident) fn why(result: &IncidentResult) -> String {
    let Some([broken, before, own]) = result.parts(["broken", "before", "own"]) else {
        return String::new();
    };
    let rate = |row: &RowResult| format!("{:.1} {}", row.simulated(), row.metric.unit);
    format!(
        "In {} each sync looks once more for pages behind the last one it has submitted, and takes what others have \
         tagged meanwhile: {} of the syncs find nothing left to write and share the commit of those that wrote for \
         them, {:.2} writes for each commit. In {} nobody looks again: {} find nothing, {:.2} writes share a commit, \
         and {} become {}. Of the handles, {:.2} for a write before and {:.2} now, one is the one that the second look \
         needed. Where each thread has a file of its own, the second look finds nothing of others: {}.",
        before.id,
        percent(empty(before)),
        writes_for_a_commit(before),
        broken.id,
        percent(empty(broken)),
        writes_for_a_commit(broken),
        rate(before),
        rate(broken),
        handles_for_a_write(before),
        handles_for_a_write(broken),
        rate(own),
    )
}
