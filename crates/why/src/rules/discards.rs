//! Discards are in the way.

use super::cost::{Cost, Facts, MARKED};
use super::instead::Saved;
use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};
use crate::digest::WAITS;

pub(super) const RULE: Rule = Rule {
    name: "discards",
    layer: "device",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "The device works on discards while requests of the workload wait.",
    why: "A discard (TRIM, UNMAP, a hole in the image of a loop device) changes the drive's own map of its blocks; \
          many drives do nothing else meanwhile, and a large one takes as long as hundreds of reads.",
    events: "Requests with the letter D at the device, and requests of the workload with the elevator or at the device \
             during that time.",
    example: "A file system mounted with `discard` whose files are deleted while others are read; fstrim in the busy \
              hours.",
    change: "Mount without `discard` and run fstrim.timer at night; a lower discard_max_bytes; discard=async of btrfs.",
    refute: "Without discards (`nodiscard`, no fstrim) the calls take as long.",
    since: "Discards since 2.6.28.",
    consequences: &["noisy-neighbour", "device-latency", "device-stalls", "foreign-sync"],
    switches: &[Switch::OtherJob],
    find,
    cost: Some(cost),
};

/// Growth of the share of the time with discards in the way: a few at the end of a run are normal.
const SHARE: f64 = 0.05;
/// Part of the difference: a smaller one is not worth a finding.
const LEAST_PART: f64 = 0.3;
/// One plus the growth of the share, half sure and sure.
const GRADE: (f64, f64) = (1.05, 1.4);
/// Highest confidence: the task that discards does other things, too.
const MOST_SURE: f64 = 0.89;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let share = delta.of(|d| d.foreign.discarding as f64 / d.elapsed.0.max(1) as f64);
    let time = delta.of_work(|d| d.foreign.discarding as f64);
    if !share.rose_by(SHARE) || time.difference() < LEAST_PART * delta.slower_by() {
        return None;
    }
    Some(Match {
        confidence: grade(1.0 + share.difference(), GRADE.0, GRADE.1).min(MOST_SURE),
        share_ns: Some(time.difference().min(delta.slower_by())),
        claim: format!(
            "discards are at the device for {:.0} % of the time while the workload waits (before {:.0} %)",
            100.0 * share.slow,
            100.0 * share.fast
        ),
        evidence: vec![
            Figure::new("share of the time with discards in the way", share, Unit::Share),
            Figure::new("discards for an operation", delta.per_operation(|d| d.foreign.discards as f64), Unit::Count),
            Figure::new("time of discards in the way for an operation", time, Unit::Ns),
        ],
    })
}

/// The least part of the cost: a drive may serve others meanwhile.
const LEAST: f64 = 0.3;

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let (way, waits) = (facts.digest.foreign.discarding as f64, facts.in_layers(&WAITS));
    // Who discards may also write, and that goes with it.
    let saved = Saved::of(way.min(waits), LEAST * way.min(waits), waits);
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: MARKED,
        claim: format!(
            "{} discards are at the device for {:.0} % of the time while requests of the target wait",
            facts.digest.foreign.discards,
            100.0 * way / (facts.digest.elapsed.0.max(1)) as f64
        ),
        setting: "no discards meanwhile (`nodiscard`, fstrim at another time)".to_owned(),
        evidence: vec![
            ("time with discards in the way", way, Unit::Ns),
            ("time that calls wait for I/O", waits, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, sure};
    use super::RULE;
    use iowhy_stack::units::Nanos;

    /// Discards for half of the slow side's 2 ms.
    fn trimmed() -> Pair {
        Pair::of(|p| (p.slow.foreign.discards, p.slow.foreign.discarding) = (3, 1_000_000))
    }

    #[test]
    fn limits() {
        let put: fn(&mut Pair, f64) = |p, x| p.slow.foreign.discarding = x as u64;
        let little: fn(&mut Pair, f64) = |p, x| {
            (p.slow.elapsed, p.slow.foreign.discarding) = (Nanos(1_010_000), x as u64);
        };
        let edges: &[Edge] = &[("SHARE", little, 50_500.0, 50_499.0), ("LEAST_PART", put, 300_000.0, 299_999.0)];
        hold(&RULE, trimmed, 0.89, edges);
        sure(&RULE, trimmed, &[("MOST_SURE", put, 2e6, 0.89), ("GRADE", put, 400_000.0, 0.7321)]);
    }

    #[test]
    fn costs() {
        let beside = || {
            Alone::of(|a| {
                a.requests(0, 10, 8, 8e5);
                (a.digest.foreign.discards, a.digest.foreign.discarding) = (4, 500_000);
            })
        };
        let edges: &[AloneEdge] = &[("in the way", |a, x| a.digest.foreign.discarding = x as u64, 100_000.0, 99_999.0)];
        hold_cost(&RULE, beside, (50.0, 0.85), edges);
        let found = beside().ask(&RULE).expect("a cost");
        assert!((found.bounds_pct[0] - 15.0).abs() < 0.1, "{}: {found:?}", "LEAST");
    }
}
