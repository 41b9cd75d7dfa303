//! Each fsync makes the journal commit once more.

use std::ops::Range;

use super::cost::{Bounds, Cost, Facts, SEEN};
use super::{Figure, IN_CALLS, Match, Rule, Switch, grade, reads};
use crate::delta::{Delta, Unit};
use crate::digest::{Digest, KIND_SYNC};

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
    cost: Some(cost),
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

/// Syncs that need no commit, at least, and their part of all syncs.
const NEEDLESS: u64 = 10;
const MOSTLY: f64 = 0.6;
/// Commits for each sync: with fewer, several share one.
const A_COMMIT: f64 = 0.6;
/// Parts of the cost: commits overlap with the data, and flushes of one file's data may take as long.
const PARTS: Bounds = [0.6, 1.1];

/// Syncs of a file that grows with each, at least: of fewer a program has made its file. Part of the whole that they
/// cost, at least: logs do grow, and their programs know a lower price.
const GROWN: u64 = 32;
const MUCH: f64 = 0.3;

/// Syncs of data that was written in place: a commit writes down when; or to new places: where they are.
fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let (sync, syncs) = (&facts.digest.sync, facts.digest.workload.calls[KIND_SYNC]);
    let commits = reads::share(sync.commits, syncs);
    let grows = sync.grown >= GROWN && (sync.grown as f64) >= MOSTLY * syncs as f64;
    let in_place = sync.in_place >= NEEDLESS && (sync.in_place as f64) >= MOSTLY * syncs as f64;
    if !(grows || in_place) || commits < A_COMMIT {
        return None;
    }
    let needless = if grows { sync.grown } else { sync.in_place };
    // A sync without it flushes, too, but has less to flush.
    let each = (sync.commit.mean() - f64::midpoint(0.0, sync.flush.median())).max(0.0);
    let ns = (each * needless.min(sync.commits) as f64).min(facts.of_kinds(&[KIND_SYNC], IN_CALLS));
    if grows && ns < MUCH * facts.whole_ns {
        return None;
    }
    Some(Cost {
        ns,
        bounds: PARTS,
        confidence: SEEN,
        claim: format!(
            "{needless} of {syncs} syncs are {}: a commit of the journal each, {:.1} ms",
            if grows { "fdatasync after writes to new places of a file" } else { "fsync after writes in place" },
            sync.commit.mean() / 1e6
        ),
        setting: match grows {
            true => "a file that is written to its length before, and used again (as logs of databases are)".to_owned(),
            false => "fdatasync in place of fsync".to_owned(),
        },
        evidence: vec![
            ("commits for each sync", commits, Unit::Ratio),
            ("time of a commit", sync.commit.mean(), Unit::Ns),
            ("time of a flush", sync.flush.median(), Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread};
    use super::RULE;
    use crate::digest::{KIND_SYNC, Layer};

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
    fn costs() {
        // A hundred syncs of 8 us with a commit of 6 us and a flush of 2.
        fn syncs(a: &mut Alone, nr: u64) {
            a.digest.workload.calls[KIND_SYNC] = nr;
            (a.digest.sync.in_place, a.digest.sync.commits) = (nr, nr);
        }
        let needless = || {
            Alone::of(|a| {
                syncs(a, 100);
                a.digest.time.ns[KIND_SYNC][Layer::Device as usize] = 8e5;
                (a.digest.sync.commit, a.digest.sync.flush) = (spread(100, 6000.0), spread(100, 2000.0));
            })
        };
        let few = || {
            Alone::of(|a| {
                *a = needless();
                syncs(a, 10);
                a.digest.sync.commit = spread(10, 60_000.0);
            })
        };
        let edges: &[AloneEdge] = &[
            ("MOSTLY", |a, x| a.digest.sync.in_place = x as u64, 60.0, 59.0),
            ("A_COMMIT", |a, x| a.digest.sync.commits = x as u64, 60.0, 59.0),
        ];
        hold_cost(&RULE, needless, (50.0, 0.8), edges);
        hold_cost(&RULE, few, (59.0, 0.8), &[("NEEDLESS", |a, x| syncs(a, x as u64), 10.0, 9.0)]);
        // The same of a file that grows.
        fn grown(a: &mut Alone, nr: f64) {
            (a.digest.sync.in_place, a.digest.sync.grown) = (0, nr as u64);
        }
        let grows = || {
            Alone::of(|a| {
                *a = needless();
                grown(a, 100.0);
            })
        };
        fn few_grown(a: &mut Alone, nr: f64) {
            grown(a, nr);
            a.digest.workload.calls[KIND_SYNC] = nr as u64;
            a.digest.sync.commit = spread(100, 12_000.0);
        }
        let edges: &[AloneEdge] = &[
            ("MOSTLY, grown", grown, 60.0, 59.0),
            ("GROWN", few_grown, 32.0, 31.0),
            ("MUCH", |a, x| a.digest.sync.commit = spread(100, x), 4000.0, 3990.0),
        ];
        hold_cost(&RULE, grows, (50.0, 0.8), edges);
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
