//! Another process uses the device.

use super::cost::{Cost, Facts, MARKED};
use super::instead;
use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};
use crate::digest::Digest;

pub(super) const RULE: Rule = Rule {
    name: "noisy-neighbour",
    layer: "device",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "Requests from outside the workload take the device.",
    why: "The workload's requests wait behind them, and on a disk the arm leaves the workload's place.",
    events: "Reads that belong to no call of the workload, or writes of pages that no call of it has written, at the \
             device while requests of the workload wait.",
    example: "updatedb, a backup, or another virtual machine on the same disk.",
    change: "Move it, stop it, or limit it (ionice with CFQ or BFQ, io.max).",
    refute: "Without the other process the difference remains.",
    since: "Every kernel.",
    consequences: &["lost-locality"],
    switches: &[Switch::OtherJob],
    find,
    cost: Some(cost),
};

/// Growth of the time share that others take: short visits of daemons are normal.
const SHARE: f64 = 0.03;
/// Ratio of these shares: a neighbour on both sides is not the difference.
const MORE: f64 = 1.5;
/// Part of the difference: a smaller one is not worth a finding.
const LEAST_PART: f64 = 0.05;
/// One plus the growth of the share, half sure and sure.
const GRADE: (f64, f64) = (1.02, 1.2);

fn find(delta: &Delta<'_>) -> Option<Match> {
    // A drive takes writes into its cache at once and puts them down later: each takes a command's time then.
    let price = delta.of(|d| {
        let commands = (d.commands.issued[0] + d.commands.issued[1]).max(1);
        d.commands.busy as f64 / commands as f64
    });
    let taken = |d: &Digest| {
        let later = d.foreign.writes as f64 * price.fast;
        later.max(d.foreign.in_the_way as f64).min(d.elapsed.0 as f64)
    };
    let share = delta.of(|d| taken(d) / d.elapsed.0.max(1) as f64);
    let requests = delta.per_operation(|d| (d.foreign.reads + d.foreign.writes) as f64);
    let time = delta.of_work(taken);
    if !(share.rose_by(SHARE) && share.ratio() > MORE && time.difference() > LEAST_PART * delta.slower_by()) {
        return None;
    }
    let slower = delta.slower_by();
    let who = delta.slow.runs.first().map(|run| &run.foreign.names).and_then(|names| names.first());
    let who = who.map_or_else(|| "a process outside the workload".to_owned(), |(name, _)| name.clone());
    Some(Match {
        confidence: grade(1.0 + share.difference(), GRADE.0, GRADE.1),
        share_ns: Some(time.difference().min(slower)),
        claim: format!(
            "{who} uses the device for {:.0} % of the time while the workload waits (before {:.0} %)",
            100.0 * share.slow,
            100.0 * share.fast
        ),
        evidence: vec![
            Figure::new("share of the time with others' requests in the way", share, Unit::Share),
            Figure::new("reads and writes of others for an operation", requests, Unit::Count),
            Figure::new("time of others' requests for an operation", time, Unit::Ns),
        ],
    })
}

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let (way, taken) = (facts.digest.foreign.in_the_way as f64, facts.digest.commands.taken);
    let requests = facts.digest.foreign.reads + facts.digest.foreign.writes;
    // The kernel's own tasks work for somebody, perhaps for the target.
    let (who, _) = facts.others.first()?;
    let saved = instead::quieter(facts);
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: MARKED,
        claim: format!(
            "{who} uses the device, too: its requests are there for {:.0} % of the time while those of the target wait",
            100.0 * way / (facts.digest.elapsed.0.max(1)) as f64
        ),
        setting: format!("{who} elsewhere, later, or limited (io.max)"),
        evidence: vec![
            ("time with others' requests in the way", way, Unit::Ns),
            ("part of the device that they take of it", taken, Unit::Ns),
            ("reads and writes of others for an operation", requests as f64 / facts.operations(), Unit::Count),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost};
    use super::RULE;
    use iowhy_stack::units::Nanos;

    /// Others are in the way for a tenth of the slow side's 2 ms. A command takes 1 us.
    fn neighbour() -> Pair {
        Pair::of(|p| {
            p.fast.commands.issued = [5, 5];
            p.fast.commands.busy = 10_000;
            p.slow.foreign.in_the_way = 200_000;
        })
    }

    /// Others are in the way on both sides.
    fn both(p: &mut Pair, fast: f64) {
        (p.fast.foreign.in_the_way, p.slow.foreign.in_the_way) = (fast as u64, 1_500_000);
    }

    /// Ten times the time of the fast side, of which a small part is that of others.
    fn slower(p: &mut Pair, slow: f64) {
        p.slow.elapsed = Nanos(10_000_000);
        p.slow.foreign.in_the_way = slow as u64;
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("SHARE", |p, x| p.slow.foreign.in_the_way = x as u64, 60_000.0, 59_999.0),
            (
                "SHARE, of writes put down later",
                |p, x| (p.slow.foreign.in_the_way, p.slow.foreign.writes) = (0, x as u64),
                60.0,
                59.0,
            ),
            ("MORE", both, 499_999.0, 500_000.0),
            ("LEAST_PART", slower, 450_001.0, 450_000.0),
        ];
        hold(&RULE, neighbour, 0.7323, edges);
    }

    #[test]
    fn costs() {
        let beside = || {
            Alone::of(|a| {
                a.others = vec![("x".to_owned(), 9)];
                a.requests(0, 10, 8, 6e5);
                (a.digest.commands.taken, a.digest.commands.taken_by_size) = (4e5, 4e5);
            })
        };
        let edges: &[AloneEdge] = &[("others", |a, x| a.others.truncate(x as usize), 1.0, 0.0)];
        hold_cost(&RULE, beside, (40.0, 0.85), edges);
    }
}
