//! Fewer fsyncs find their pages written by another's fsync.

use std::ops::Range;

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};
use crate::digest::KIND_SYNC;

pub(super) const RULE: Rule = Rule {
    name: "syncs-share-less",
    layer: "journal/writeback",
    needs: super::CALLS_AND_BIOS,
    owns: super::Owns::Writes,
    single: super::Single::Counts,
    what: "Fewer fsyncs find that another's fsync has written their pages, and more commits or commands are made for \
           them.",
    why: "An fsync that takes the pages of others along makes them wait for the same writes, and they go on to one \
          commit together; where each writes its own, they drift apart and commits are for fewer of them.",
    events: "As many syncs for a write; but fewer of them submit no data, and there are more commits, or more commands \
             that write data, for each.",
    example: "ext4 since 5.8 (6b8ed62008a4): threads that write one file and call fsync, -2 to -5 %.",
    change: "Let one thread call fsync for all; write more data before each call; a file for each thread does no harm.",
    refute: "With a file for each thread the difference is as large.",
    since: "5.8; a smaller step of the same kind came with 4.15.",
    consequences: &["journal-commit-per-fsync"],
    switches: &[Switch::Other("filesystem"), Switch::OtherKind("filesystem.")],
    find,
    cost: None,
};

/// Ratio of syncs per operation: within a tenth both sides ask for the same.
const AS_MANY: Range<f64> = 0.9..1.1;
/// Syncs without data in the fast run: the number of fewer varies by more than the rule looks for.
const LEAST_EMPTY: f64 = 300.0;
/// Factor by which their share is smaller on the slow side.
const FEWER: f64 = 1.33;
/// Factors by which commits or data commands for a sync are more; times need no limit, as the share has one.
const MORE: f64 = 1.005;
/// Factors by which the share is smaller, half sure and sure.
const GRADE: (f64, f64) = (1.2, 2.5);

fn find(delta: &Delta<'_>) -> Option<Match> {
    let syncs = delta.per_operation(|d| d.workload.calls[KIND_SYNC] as f64);
    let count = delta.of(|d| d.sync.empty as f64);
    let for_a_sync = |figure: fn(&crate::digest::Digest) -> f64| {
        delta.of(move |d| figure(d) / d.workload.calls[KIND_SYNC].max(1) as f64)
    };
    let empty = for_a_sync(|d| d.sync.empty as f64);
    let commits = for_a_sync(|d| d.sync.commits as f64);
    let commands = for_a_sync(|d| d.commands.issued[1] as f64);
    let takes = delta.of(|d| d.latency[KIND_SYNC].mean());
    let more = commits.rose(MORE) || commands.rose(MORE);
    if !AS_MANY.contains(&syncs.ratio())
        || count.fast < LEAST_EMPTY
        || !empty.fell(FEWER)
        || !more
        || takes.slow <= takes.fast
    {
        return None;
    }
    Some(Match {
        confidence: grade(empty.fast / empty.slow.max(f64::MIN_POSITIVE), GRADE.0, GRADE.1),
        share_ns: None,
        claim: format!(
            "{:.1} % of the syncs find their pages written by others, where {:.1} % did, and {:.3} commits are made \
             for a sync (before {:.3})",
            100.0 * empty.slow,
            100.0 * empty.fast,
            commits.slow,
            commits.fast
        ),
        evidence: vec![
            Figure::new("share of the syncs that submit no data", empty, Unit::Share),
            Figure::new("commits for a sync", commits, Unit::Count),
            Figure::new("write commands for a sync", commands, Unit::Count),
            Figure::new("time of a sync", takes, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, spread};
    use super::RULE;

    /// Ten thousand syncs, of which a tenth are empty on the fast side and a twentieth on the slow one.
    fn apart() -> Pair {
        Pair::of(|p| {
            p.both(|d| d.workload.calls = [0, 10_000, 10_000]);
            (p.fast.sync.empty, p.slow.sync.empty) = (1000, 500);
            (p.fast.sync.commits, p.slow.sync.commits) = (1000, 1100);
            p.fast.latency[2] = spread(10, 1000.0);
            p.slow.latency[2] = spread(10, 1100.0);
        })
    }

    fn commands() -> Pair {
        let mut pair = apart();
        pair.slow.sync.commits = 1000;
        (pair.fast.commands.issued[1], pair.slow.commands.issued[1]) = (1000, 1100);
        pair
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("AS_MANY, fewer", |p, x| p.slow.workload.calls[2] = x as u64, 9000.0, 8999.0),
            ("AS_MANY, more", |p, x| p.slow.workload.calls[2] = x as u64, 10_500.0, 11_000.0),
            ("LEAST_EMPTY", |p, x| (p.fast.sync.empty, p.slow.sync.empty) = (x as u64, x as u64 / 2), 300.0, 299.0),
            ("FEWER", |p, x| p.slow.sync.empty = x as u64, 751.0, 752.0),
            ("MORE", |p, x| p.slow.sync.commits = x as u64, 1006.0, 1004.0),
            ("slower", |p, x| p.slow.latency[2] = spread(10, x), 1001.0, 1000.0),
        ];
        hold(&RULE, apart, 0.8480, edges);
        let edges: &[Edge] = &[("MORE, commands", |p, x| p.slow.commands.issued[1] = x as u64, 1006.0, 1004.0)];
        hold(&RULE, commands, 0.8480, edges);
    }
}
