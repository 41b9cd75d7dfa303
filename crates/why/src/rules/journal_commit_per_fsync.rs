//! Each fsync makes the journal commit once more.

use std::ops::Range;

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};
use crate::digest::Digest;

pub(super) const RULE: Rule = Rule {
    name: "journal-commit-per-fsync",
    layer: "journal/writeback",
    needs: super::CALLS_AND_BIOS,
    owns: super::Owns::Writes,
    single: super::Single::Counts,
    what: "Each fsync forces a commit of the journal of its own, or a larger one, where it was shared or not needed.",
    why: "A commit writes a descriptor, the metadata and a commit block, one after the other; with several callers a \
          commit that does not wait a moment for the others is made once for each.",
    events: "More commits, or more blocks of the journal, for as many syncs of as many written pages; the sync waits \
             for these writes.",
    example: "fsync in place of fdatasync; ext3 of 2.4, which commits whether anything changed or not; no group \
              commit.",
    change: "fdatasync and files of a fixed size, fewer syncs, a file system or kernel with group commit.",
    refute: "With the other side's file system (or its group commit) there are as many commits for a sync.",
    since: "Journalling file systems; group commit in jbd since 2.4, by the device's speed since 2.6.28.",
    consequences: &[],
    switches: &[Switch::Other("filesystem"), Switch::OtherKind("filesystem.")],
    find,
    cost: None,
};

/// Ratio of syncs per operation: within a tenth both sides ask for the same.
const AS_MANY: Range<f64> = 0.9..1.1;
/// Syncs in a run: with fewer, the journal's periodic commits weigh too much.
const LEAST_SYNCS: f64 = 10.0;
/// Ratio of commits per sync: periodic commits make a smaller one.
const COMMITS_TIMES: f64 = 1.2;
/// Additional commits per sync: a high ratio of very few commits costs nothing.
const COMMITS_MORE: f64 = 0.1;
/// Ratio of blocks per sync: higher than that of commits, as other dirty metadata adds blocks.
const BLOCKS_TIMES: f64 = 1.3;
/// Additional blocks per sync: a high ratio of very few blocks costs nothing.
const BLOCKS_MORE: f64 = 0.3;
/// Growth of a sync's time: commits that nobody waits for cost nothing.
const LONGER: f64 = 1.05;
/// Ratios of commits or blocks per sync, half sure and sure.
const GRADE: (f64, f64) = (1.1, 1.8);

/// Blocks of journal and metadata written.
fn blocks(d: &Digest) -> f64 {
    (d.sync.blocks as f64).max(d.commands.meta[1] as f64)
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    let per_sync = |figure: fn(&Digest) -> f64| delta.of(move |d| figure(d) / d.workload.calls[2].max(1) as f64);
    let syncs = delta.per_operation(|d| d.workload.calls[2] as f64);
    let commits = per_sync(|d| d.sync.commits as f64);
    let blocks = per_sync(blocks);
    let sync = delta.of(|d| d.latency[2].mean());
    let equal = AS_MANY.contains(&syncs.ratio()) && delta.of(|d| d.workload.calls[2] as f64).slow >= LEAST_SYNCS;
    let more_commits = commits.rose(COMMITS_TIMES) && commits.rose_by(COMMITS_MORE);
    let more = more_commits || blocks.rose(BLOCKS_TIMES) && blocks.rose_by(BLOCKS_MORE);
    if !(equal && more && sync.rose(LONGER)) {
        return None;
    }
    // What the additional commits cost at the price of one on the slow side, flushes apart.
    let price = delta.of(|d| d.sync.commit.mean()).slow;
    let of_commits = commits.difference() * syncs.slow * price;
    let share = if price > 0.0 && commits.rose(COMMITS_TIMES) { of_commits } else { syncs.slow * sync.difference() };
    Some(Match {
        confidence: grade(commits.ratio().max(blocks.ratio()), GRADE.0, GRADE.1),
        share_ns: Some(share),
        claim: format!(
            "a sync makes {:.2} commits (before {:.2}) and {:.1} blocks of journal and metadata (before {:.1})",
            commits.slow, commits.fast, blocks.slow, blocks.fast
        ),
        evidence: vec![
            Figure::new("commits for a sync", commits, Unit::Count),
            Figure::new("blocks of journal and metadata for a sync", blocks, Unit::Count),
            Figure::new("time of a sync", sync, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, spread};
    use super::RULE;

    /// A thousand syncs that take twice the time on the slow side.
    fn syncs() -> Pair {
        Pair::of(|p| {
            p.both(|d| d.workload.calls[2] = 1000);
            p.fast.latency[2] = spread(1, 1000.0);
            p.slow.latency[2] = spread(1, 2000.0);
        })
    }

    fn commits() -> Pair {
        let mut pair = syncs();
        (pair.fast.sync.commits, pair.slow.sync.commits) = (1000, 1400);
        pair
    }

    fn blocks() -> Pair {
        let mut pair = syncs();
        (pair.fast.sync.blocks, pair.slow.sync.blocks) = (1000, 1400);
        pair
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("AS_MANY, fewer", |p, x| p.slow.workload.calls[2] = x as u64, 900.0, 899.0),
            ("AS_MANY, more", |p, x| p.slow.workload.calls[2] = x as u64, 1099.0, 1100.0),
            ("LEAST_SYNCS", |p, x| p.both(|d| d.workload.calls[2] = x as u64), 10.0, 9.0),
            ("COMMITS_TIMES", |p, x| p.slow.sync.commits = x as u64, 1201.0, 1200.0),
            ("COMMITS_MORE", |p, x| (p.fast.sync.commits, p.slow.sync.commits) = (0, x as u64), 100.0, 99.0),
            ("LONGER", |p, x| p.slow.latency[2] = spread(1, x), 1051.0, 1050.0),
        ];
        hold(&RULE, commits, 0.7448, edges);
        let edges: &[Edge] = &[
            ("BLOCKS_TIMES", |p, x| p.slow.sync.blocks = x as u64, 1301.0, 1300.0),
            ("BLOCKS_MORE", |p, x| (p.fast.sync.blocks, p.slow.sync.blocks) = (0, x as u64), 300.0, 299.0),
            (
                "BLOCKS_TIMES, of metadata",
                |p, x| (p.slow.sync.blocks, p.slow.commands.meta[1]) = (0, x as u64),
                1301.0,
                1300.0,
            ),
        ];
        hold(&RULE, blocks, 0.7448, edges);
    }

    #[test]
    fn commits_cost_their_price_and_blocks_what_syncs_take() {
        // Syncs, a hundred for each operation, take 1000 ns longer; a commit takes 500.
        for (base, commits, commit, share) in
            [(commits as fn() -> Pair, 1400, 500.0, 20_000.0), (commits, 1400, 0.0, 1e5), (blocks, 1200, 500.0, 1e5)]
        {
            let mut pair = base();
            (pair.fast.sync.commits, pair.slow.sync.commits) = (1000, commits);
            pair.slow.sync.commit = spread(1, commit);
            let found = pair.ask(&RULE).and_then(|found| found.share_ns).expect("a share of the difference");
            assert!((found - share).abs() < 1.0, "{commits} of {commit} ns: {found}");
        }
    }
}
