//! One device alone: what reads with pauses take, and what reads without take.
//!
//! ```text
//! dozes      a read after a pause takes longer than one behind another: the drive wakes up for it
//! cap        a read behind another takes longer than one after a pause: it waits for its turn, not for the medium; if
//!            small reads wait as long as large ones the cap is one on operations, else on bytes
//! met        the recorded requests, at the pace of the cap, fill at least half of the time, and not more than there is
//! saved      dozing: of requests that found the device idle for 100 us, what they took beyond a read behind another
//!            cap: the part of the wait that a read after a pause does not have
//! ```
//! Limits: only reads are tried; a cap whose store is full again after a pause of 25 ms looks like none, as does a
//! drive that dozes off later than that.

use super::cost::{Bounds, Cost, Facts, MARKED, Paced};
use super::instead;
use crate::delta::Unit;
use crate::digest::{Load, Spread, WAITS};
use iowhy_stack::units::{PAGE_SECTORS, SECTOR_BYTES};

/// Factor between reads with and without pauses.
const FACTOR: f64 = 2.0;
/// Least time that waking up takes, ns: processors of a virtual machine need 0.1 to 0.2 ms.
const LATE: f64 = 500e3;
/// Part of the time of large reads that small ones take under a cap on operations.
const ALIKE: f64 = 0.7;
/// Part of the time that requests have to fill at the pace of a cap, and the most: none lets more pass.
const MET: f64 = 0.5;
const PASSED: f64 = 1.25;
/// Bounds of what goes: a pause may be shorter than what it takes to doze off, and nobody knows the volume without cap.
const PARTS: Bounds = [0.5, 1.0];

/// The cost of a drive that dozes.
pub(super) fn dozing(facts: &Facts<'_>) -> Option<Cost> {
    let paced = facts.paced?;
    let [[awake, _], [rested, _]] = [paced.at_once, paced.paused];
    if rested < FACTOR * awake || rested < awake + LATE {
        return None;
    }
    let of_class = facts.digest.commands.classes.iter().filter(|(class, _)| class.load == Load::Rested);
    let late = of_class.map(|(class, all)| {
        let sectors = (PAGE_SECTORS << class.octave) as f64;
        all.count() as f64 * (all.mean() - Paced::at(paced.at_once, sectors)).clamp(0.0, rested - awake)
    });
    let ns = late.sum::<f64>().min(facts.in_layers(&WAITS));
    Some(Cost {
        ns,
        bounds: PARTS,
        confidence: MARKED,
        claim: format!(
            "the drive dozes: a read after a pause takes {:.2} ms, one behind another {:.2}",
            rested / 1e6,
            awake / 1e6
        ),
        setting: "the drive kept awake (link power management, APST, pm_qos)".to_owned(),
        evidence: vec![
            ("read of 4 KiB after a pause", rested, Unit::Ns),
            ("read of 4 KiB behind another", awake, Unit::Ns),
            ("time that requests take longer after pauses", ns, Unit::Ns),
        ],
    })
}

/// The cost of a cap, on operations or on bytes.
pub(super) fn cap(facts: &Facts<'_>, on_operations: bool) -> Option<Cost> {
    let paced = facts.paced?;
    let ([small, large], [_, free_large]) = (paced.at_once, paced.paused);
    if large < FACTOR * free_large || (small >= ALIKE * large) != on_operations {
        return None;
    }
    let bytes_s = f64::from(Paced::LARGE) * SECTOR_BYTES as f64 * 1e9 / large;
    let (mut turns, mut free) = (0.0, 0.0);
    for way in [0, 1] {
        let (sectors, nr) = instead::own(facts, way);
        turns += nr * if on_operations { small } else { sectors * SECTOR_BYTES as f64 * 1e9 / bytes_s };
        // Commands side by side would be served side by side.
        let at_device: f64 = instead::times(facts, way).map(Spread::sum).sum();
        let depth = (at_device / facts.digest.commands.own_busy[way].max(1) as f64).max(1.0);
        free += nr * Paced::at(paced.paused, sectors) / depth;
    }
    if turns < MET * facts.whole_ns || turns > PASSED * facts.whole_ns {
        return None;
    }
    let what = if on_operations {
        format!("{:.0} commands a second", 1e9 / small)
    } else {
        format!("{:.1} MB/s", bytes_s / 1e6)
    };
    Some(Cost {
        ns: facts.in_layers(&WAITS) * (1.0 - free / turns).max(0.0),
        bounds: PARTS,
        confidence: MARKED,
        claim: format!(
            "a cap lets {what} pass: a read of 128 KiB behind another takes {:.2} ms, one after a pause {:.2}",
            large / 1e6,
            free_large / 1e6
        ),
        setting: "a volume with a higher limit".to_owned(),
        evidence: vec![
            ("read of 128 KiB behind another", large, Unit::Ns),
            ("read of 128 KiB after a pause", free_large, Unit::Ns),
            ("read of 4 KiB behind another", small, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::cost::Paced;
    use super::super::edges::{Alone, AloneEdge, hold_cost, spread};
    use super::super::{device_bandwidth, device_idle_exit, device_iops_cap};
    use crate::digest::{Class, Load};

    fn paced(a: &mut Alone, at_once: [f64; 2], paused: [f64; 2]) {
        a.paced = Some(Paced { at_once, paused });
    }

    #[test]
    fn a_drive_that_dozes() {
        // Ten reads of a page after pauses, of 80 us each; awake they take 30.
        let dozes = || {
            Alone::of(|a| {
                a.requests(0, 10, 8, 8e6);
                a.digest.elapsed = iowhy_stack::units::Nanos(10_000_000);
                let class = Class { load: Load::Rested, ..Class::default() };
                a.digest.commands.classes = [(class, spread(10, 8e5))].into();
                paced(a, [3e5, 4e5], [8e5, 9e5]);
            })
        };
        let edges: &[AloneEdge] = &[
            ("FACTOR", |a, x| paced(a, [x, 4e5], [12e5, 13e5]), 6e5, 6.01e5),
            ("LATE", |a, x| paced(a, [3e5, 4e5], [x, 9e5]), 8e5, 7.99e5),
        ];
        hold_cost(&device_idle_exit::RULE, dozes, (50.0, 0.85), edges);
    }

    #[test]
    fn caps() {
        // Ten reads of 128 KiB that take 100 us each.
        let capped = |at_once: [f64; 2]| {
            move || {
                Alone::of(|a| {
                    a.requests(0, 10, 256, 1e6);
                    paced(a, at_once, [2e4, 2e4]);
                })
            }
        };
        let edges: &[AloneEdge] = &[
            ("FACTOR", |a, x| paced(a, [1e5, 1e5], [2e4, x]), 5e4, 5.01e4),
            ("ALIKE", |a, x| paced(a, [x, 1e5], [2e4, 2e4]), 7e4, 6.99e4),
            ("MET", |a, x| a.requests(0, x as u64, 256, 1e6), 5.0, 4.0),
            ("PASSED", |a, x| a.requests(0, x as u64, 256, 1e6), 12.0, 13.0),
        ];
        hold_cost(&device_iops_cap::RULE, capped([1e5, 1e5]), (80.0, 0.85), edges);
        let edges: &[AloneEdge] = &[("ALIKE", |a, x| paced(a, [x, 1e5], [2e4, 2e4]), 6.99e4, 7e4)];
        hold_cost(&device_bandwidth::RULE, capped([2e4, 1e5]), (80.0, 0.85), edges);
        let found = capped([1e5, 1e5])().ask(&device_iops_cap::RULE).expect("a cost");
        assert!((found.bounds_pct[0] - 40.0).abs() < 0.1, "{}: {found:?}", "PARTS");
    }
}
