//! Discards keep the device busy while the workload waits.

use super::cost::{Cost, Facts};
use super::instead::{Saved, WAITS};
use super::{Match, Rule};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "discards",
    layer: "device",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "Requests wait for discards (TRIM) at the device.",
    why: "A discard of many blocks takes a drive, or the file below a loop device, long, and reads and writes that come \
          meanwhile wait for it.",
    events: "Requests of the workload that are at the device together with a discard take longer than the others.",
    example: "fstrim in the middle of the day; a file system mounted with discard that deletes large files.",
    change: "Mount without discard and run fstrim when nobody waits; lower discard_max_bytes of the queue.",
    refute: "Requests that meet no discard take as long.",
    since: "Discards since 2.6.28; fstrim since 2.6.37.",
    consequences: &["noisy-neighbour", "foreign-sync", "device-stalls", "device-latency"],
    switches: &[super::Switch::OtherJob],
    find,
    cost: Some(cost),
};

/// Two sides are compared by the requests that come of it: a digest does not tell discards apart.
fn find(_: &Delta<'_>) -> Option<Match> {
    None
}

/// Confidence of the cost.
const ALONE: f64 = 0.8;

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let discards = facts.discards;
    let [met, all] = discards.took;
    if discards.lost_ns <= 0.0 || all <= 0.0 {
        return None;
    }
    // The part of the requests' time that is lost is that of the waits; at most all waits that met a discard, and at
    // least half of the lost ones: who frees blocks writes besides.
    let waits = facts.in_layers(&WAITS);
    let saved = Saved::of(waits * discards.lost_ns / all, waits * discards.lost_ns / all / 2.0, waits * met / all);
    let mounted = facts.mounted_with("discard").map_or(String::new(), |point| format!("{point} has discard: "));
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: ALONE,
        claim: format!(
            "{mounted}{} discards are at the device, and {:.0} % of the time of requests is with one of them",
            discards.nr,
            100.0 * met / all
        ),
        setting: "no discards meanwhile (mount without discard, fstrim later)".to_owned(),
        evidence: vec![
            ("discards", discards.nr as f64, Unit::Count),
            ("time by which requests that meet one are longer", discards.lost_ns, Unit::Ns),
        ],
    })
}
