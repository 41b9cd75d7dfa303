//! Another process uses the device.

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
};

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
    if !(share.rose_by(0.03) && share.ratio() > 1.5 && time.difference() > 0.05 * delta.slower_by()) {
        return None;
    }
    let slower = delta.slower_by();
    let who = delta.slow.runs.first().map(|run| &run.foreign.names).and_then(|names| names.first());
    let who = who.map_or_else(|| "a process outside the workload".to_owned(), |(name, _)| name.clone());
    Some(Match {
        confidence: grade(1.0 + share.difference(), 1.02, 1.2),
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

#[cfg(test)]
mod tests {
    use crate::{Delta, Side, digest::Digest};
    use iowhy_stack::units::Nanos;

    fn side(elapsed: u64, in_the_way: u64) -> Side {
        let run = |nr: u64| {
            let mut run = Digest { elapsed: Nanos(elapsed + nr), ..Digest::default() };
            (0..100).for_each(|_| run.latency[0].add(elapsed / 100));
            run.foreign.reads = in_the_way / 10_000;
            run.foreign.in_the_way = in_the_way;
            run
        };
        Side { runs: (0..3).map(run).collect(), ..Side::default() }
    }

    #[test]
    fn only_what_is_in_the_way_is_a_neighbour() {
        for (fast, slow, expected) in
            [(0, 900_000, true), (0, 10_000, false), (500_000, 520_000, false), (100_000, 900_000, true)]
        {
            let (fast, slow) = (side(1_000_000, fast), side(2_000_000, slow));
            let found = super::find(&Delta::new(&fast, &slow));
            assert_eq!(found.is_some(), expected, "{fast:?} {slow:?}");
        }
    }
}
