//! 2024: requests that enter the scheduler when it is asked for one. Evidence: bios that joined a request, requests
//! that were united, sleeps for a tag.

use super::{Checks, ClaimResult, percent};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult};
use iowhy_stats::figure::share;

pub(in crate::incident) const CHECKS: Checks = &[("merging", merging)];

/// Least share of joined bios that counts as most, and the largest that counts as next to none.
const MOST: f64 = 0.5;
const FEW: f64 = 0.05;
/// Least sleeps for a tag of a request.
const WAITS: f64 = 0.1;

/// Bios, those that joined a request, requests that were united with another, and sleeps for a tag.
struct Seen {
    joined: f64,
    united: f64,
    waits: f64,
    kib: f64,
}

fn seen(row: &RowResult) -> Seen {
    let (merges, united) = (row.sum(|layers| layers.writes.merges), row.sum(|layers| layers.request_merges));
    let issued = row.sum(|layers| layers.writes.issued);
    let bios = merges + united + issued;
    let waits: u64 = row.samples().map(|sample| sample.outcome.request_waits[0]).sum();
    let sectors = row.sum(|layers| layers.writes.sectors);
    Seen {
        joined: share(merges, bios),
        united: share(united, bios),
        waits: share(waits, bios),
        kib: share(sectors, issued) / 2.0,
    }
}

fn merging(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let (Some(broken), Some(before)) = (result.part("broken"), result.part("before")) else {
        return checked.evidence.push("a row is missing".to_owned());
    };
    let [after, old] = [broken, before].map(seen);
    checked.held = old.joined > MOST && after.joined < FEW && after.united > old.united && after.waits > WAITS;
    for (row, seen) in [(before, old), (broken, after)] {
        checked.evidence.push(format!(
            "{}: {} of the bios join a request, {} are united with one later, {:.2} sleeps for a tag each, {:.0} KiB a \
             command",
            row.id,
            percent(seen.joined),
            percent(seen.united),
            seen.waits,
            seen.kib,
        ));
    }
}

/// The cause in words, every number from the events of all repetitions.
pub(in crate::incident) fn why(result: &IncidentResult) -> String {
    let (Some(broken), Some(before)) = (result.part("broken"), result.part("before")) else {
        return String::new();
    };
    let rate = |row: &RowResult| format!("{:.1} {}", row.simulated(), row.metric.unit);
    let [after, old] = [broken, before].map(seen);
    format!(
        "In {} {} of the bios join a request that waits, and hold no tag; in {} {} do. Requests enter the scheduler \
         only when it is asked for the next one, which a full device does not do, so a bio finds nobody to join, takes \
         a tag, and its submitter sleeps ({:.2} times for each bio, against {:.2}). At dispatch {} of them are united \
         with a neighbour, as far as tags have let them in: a command is {:.0} KiB instead of {:.0}, and {} become {}.",
        before.id,
        percent(old.joined),
        broken.id,
        percent(after.joined),
        after.waits,
        old.waits,
        percent(after.united),
        after.kib,
        old.kib,
        rate(before),
        rate(broken),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::claims::tests::{checked, result};

    #[test]
    fn without_its_rows_nothing_is_shown() {
        let result = result("write_mb_s", &[("a", &[1.0])]);
        assert!(!checked(&result, "kind='mechanism'", &[("c", merging)]).held);
        assert_eq!(why(&result), "");
    }
}
