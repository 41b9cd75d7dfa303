//! 2024: bios of half a page that find the wrong end of the plug list. Evidence: bios that joined a request.

use super::{Checks, ClaimResult, percent};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult};
use iowhy_stats::figure::share;

pub(in crate::incident) const CHECKS: Checks = &[("merges", merges)];

/// Largest share of joined bios that counts as none, and the least where each page is two of them.
const FEW: f64 = 0.05;
const ONE_A_PAGE: f64 = 0.45;

/// The part of the writing bios that joined a request.
fn joined(row: &RowResult) -> f64 {
    let merges = row.sum(|layers| layers.writes.merges);
    share(merges, merges + row.sum(|layers| layers.writes.issued))
}

fn merges(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let Some([broken, before, fixed]) = result.parts(["broken", "before", "fixed"]) else {
        return checked.evidence.push("a row is missing".to_owned());
    };
    checked.held = joined(broken) < FEW && [before, fixed].iter().all(|row| joined(row) >= ONE_A_PAGE);
    let seen = [broken, before, fixed].map(|row| format!("{} {}", row.id, percent(joined(row))));
    checked.evidence.push(format!("bios that joined a request: {}", seen.join(", ")));
}

/// The cause in words, every number from the events of all repetitions.
pub(in crate::incident) fn why(result: &IncidentResult) -> String {
    let Some([broken, before, fixed]) = result.parts(["broken", "before", "fixed"]) else {
        return String::new();
    };
    let rate = |row: &RowResult| format!("{:.0} {}", row.simulated(), row.metric.unit);
    format!(
        "Each page is handed in as two bios, one behind the other. In {} {} of the bios join a request, in {} {}: a \
         task compares a bio with one request of its list only, and in the one kernel that is the newest, in the other \
         the oldest. The device takes a limited number of commands, so {} become {}. With the comparison made at the \
         other end and the order left as it is, {} join and the rate is {}: the order in which requests leave has no \
         part in it.",
        broken.id,
        percent(joined(broken)),
        before.id,
        percent(joined(before)),
        rate(before),
        rate(broken),
        percent(joined(fixed)),
        rate(fixed),
    )
}
