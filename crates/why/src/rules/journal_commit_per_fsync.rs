//! Each fsync makes the journal commit once more.

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
};

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
    let equal = syncs.slow > 0.0
        && (0.9..1.1).contains(&syncs.ratio())
        && delta.of(|d| d.workload.calls[2] as f64).slow >= 10.0;
    let more = commits.rose(1.2) && commits.rose_by(0.1) || blocks.rose(1.3) && blocks.rose_by(0.3);
    if !(equal && more && sync.rose(1.05)) {
        return None;
    }
    // What the additional commits cost at the price of one on the slow side, flushes apart.
    let price = delta.of(|d| d.sync.commit.mean()).slow;
    let of_commits = (commits.difference() * syncs.slow * price).max(0.0);
    let share = if price > 0.0 && commits.rose(1.2) { of_commits } else { syncs.slow * sync.difference() };
    Some(Match {
        confidence: grade(commits.ratio().max(blocks.ratio()), 1.1, 1.8),
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
