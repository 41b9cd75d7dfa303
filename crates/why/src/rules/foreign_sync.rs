//! Foreign syncs make the workload's own wait.

use std::ops::Range;

use super::IO;
use super::cost::{Bounds, Cost, Facts};
use super::{Figure, Match, Rule, grade, instead};
use crate::delta::{Delta, Unit};
use crate::digest::{Digest, KIND_SYNC};
use iowhy_stack::units::{PAGE_BYTES, SECTOR_BYTES};

pub(super) const RULE: Rule = Rule {
    name: "foreign-sync",
    layer: "journal/writeback",
    needs: super::CALLS_AND_BIOS,
    owns: super::Owns::Writes,
    single: super::Single::Counts,
    what: "Other processes sync files on the same file system, and the journal commits for them as well.",
    why: "A journal has one transaction at a time: a task that needs the next one waits for the commit of the last, \
          with all data that it takes along.",
    events: "As many syncs of as many bytes by the workload, but more commits and more time of each sync; writes \
             at the device that are not the workload's.",
    example: "A logger or a second database that calls fsync on the volume of the first.",
    change: "Put them on file systems of their own; fast_commit of ext4; sync less often.",
    refute: "Without the other process syncs take as long.",
    since: "Journalling file systems.",
    consequences: &["flush-cost", "journal-commit-per-fsync", "device-latency", "noisy-neighbour"],
    switches: &[super::Switch::OtherJob],
    find,
    cost: Some(cost),
};

/// Syncs and bytes of the workload, slow over fast, if there are equally many: both vary with the run's time.
const AS_MANY: Range<f64> = 0.8..1.25;
/// Syncs of the workload: with fewer, one commit of the kernel's own makes the difference.
const LEAST_SYNCS: f64 = 4.0;
/// Growth of the bytes written for each sync.
const MORE_WRITTEN: f64 = 1.3;
/// Growth of the commits for each sync.
const MORE_COMMITS: f64 = 1.25;
/// Part of the difference that writes and syncs have to wait longer.
const LEAST_PART: f64 = 0.3;
/// Share of the written bytes that others submit: every machine has a log that is written now and then.
const OTHERS: f64 = 0.05;
/// Growth of that share, half sure and sure.
const GRADE: (f64, f64) = (1.2, 3.0);
/// Highest confidence: others may write to other file systems of the disk.
const MOST_SURE: f64 = 0.9;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let syncs = delta.of(|d| (d.workload.calls[2] + d.workload.written_through) as f64);
    let as_many = AS_MANY.contains(&syncs.ratio()) && syncs.slow >= LEAST_SYNCS;
    let each = |figure: &dyn Fn(&Digest) -> f64| {
        delta.of(|d| figure(d) / ((d.workload.calls[2] + d.workload.written_through).max(1)) as f64)
    };
    let commits = each(&|d| d.sync.commits as f64);
    let written = delta.of(|d| d.workload.bytes[1] as f64);
    let sectors = each(&|d| d.commands.sectors[1] as f64 * 512.0);
    let time = delta.time(|time| time.within(&[1, KIND_SYNC], IO));
    let more = sectors.rose(MORE_WRITTEN) || commits.rose(MORE_COMMITS);
    let others = delta.of(|d| d.foreign.processes_wrote as f64 / (d.commands.sectors[1] as f64 * 512.0).max(1.0));
    let as_much = AS_MANY.contains(&written.ratio());
    let waits = time.difference() >= LEAST_PART * delta.slower_by();
    if !(as_many && as_much && more && waits && others.rose_by(OTHERS)) {
        return None;
    }
    Some(Match {
        confidence: grade(others.slow / others.fast.max(OTHERS), GRADE.0, GRADE.1).min(MOST_SURE),
        share_ns: Some(time.difference()),
        claim: format!(
            "the journal commits {:.2} times for each sync of the workload, against {:.2}; {:.0} % of the written \
            bytes \
             are other processes', against {:.0} %",
            commits.slow,
            commits.fast,
            100.0 * others.slow,
            100.0 * others.fast
        ),
        evidence: vec![
            Figure::new("commits for each sync", commits, Unit::Ratio),
            Figure::new("bytes written for each sync", sectors, Unit::Bytes),
            Figure::new("share of written bytes that others submit", others, Unit::Share),
        ],
    })
}

/// Share of the written bytes that others submit, from which on they are what a sync waits for.
const MOSTLY: f64 = 0.3;
/// Bytes of journal and metadata that a sync writes besides its data, at most as a rule.
const PER_SYNC: f64 = 32_768.0;
/// Writes of a commit, one after the other: the blocks that it is about, and its own.
const OF_COMMIT: f64 = 2.0;
/// Quantile of writes and flushes that nobody else's are in the way of.
const QUICK: f64 = 0.1;
/// Confidence of the cost, and its bounds.
const ALONE: (f64, Bounds) = (0.8, [0.3, 1.2]);

pub(super) fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let d = facts.digest;
    let syncs = (d.workload.calls[2] + d.workload.written_through) as f64;
    let written = (d.commands.sectors[1] as f64 * SECTOR_BYTES as f64).max(1.0);
    let submitted = (d.foreign.processes_wrote as f64 / written).min(1.0);
    // The kernel's tasks write for others, too: whatever calls and syncs of the workload do not explain.
    let pages = d.workload.bytes[1] + d.workload.calls[1] * PAGE_BYTES;
    let explained = (pages as f64 + syncs * PER_SYNC) / written;
    let others = if submitted < OTHERS { submitted } else { submitted.max(1.0 - explained) };
    if syncs < LEAST_SYNCS || others < MOSTLY {
        return None;
    }
    let time = facts.of_kinds(&[1, KIND_SYNC], IO);
    let (confidence, bounds) = ALONE;
    // Without the others a sync still has its own write, those of its commit, and a flush: as quick as some are now.
    let (_, nr) = instead::own(facts, 1);
    let write = instead::times(facts, 1).map(|of| of.count() as f64 * of.quantile(QUICK)).sum::<f64>() / nr.max(1.0);
    let commits = d.sync.commits as f64 / syncs;
    let own = syncs * (write * (1.0 + OF_COMMIT * commits.min(1.0)) + d.sync.flush.quantile(QUICK));
    let ns = (time - own).clamp(bounds[0] * others * time, others * time);
    let who = facts.others.first().map_or("other processes", |(name, _)| name.as_str());
    Some(Cost {
        ns,
        bounds: [bounds[0], bounds[1] * others * time / ns.max(1.0)],
        confidence,
        claim: format!("syncs take along what {who} wrote: {:.0} % of the written bytes", 100.0 * others),
        setting: format!("{who} on another file system"),
        evidence: vec![
            ("share of written bytes that are others'", others, Unit::Share),
            ("commits for each sync", commits, Unit::Ratio),
            ("time that writes and syncs wait", time, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread, sure};
    use super::RULE;
    use crate::digest::Layer;

    const DEVICE: usize = Layer::Device as usize;

    /// A thousand syncs that lead to twice as many commits; others submit a fifth of the bytes instead of a tenth.
    fn foreign() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                (d.workload.calls[2], d.workload.bytes[1]) = (1000, 1_000_000);
                d.commands.sectors[1] = 1000;
            });
            (p.fast.sync.commits, p.fast.foreign.processes_wrote) = (1000, 51_200);
            (p.slow.sync.commits, p.slow.foreign.processes_wrote) = (2000, 102_400);
            p.slow.time.ns[2][DEVICE] = 1e6;
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("AS_MANY, syncs", |p, x| p.slow.workload.calls[2] = x as u64, 1249.0, 1250.0),
            ("AS_MANY, fewer syncs", |p, x| p.slow.workload.calls[2] = x as u64, 800.0, 799.0),
            ("AS_MANY, written through", |p, x| p.slow.workload.written_through = x as u64, 249.0, 250.0),
            ("AS_MANY, bytes", |p, x| p.slow.workload.bytes[1] = x as u64, 1_249_999.0, 1_250_000.0),
            ("AS_MANY, fewer bytes", |p, x| p.slow.workload.bytes[1] = x as u64, 800_000.0, 799_999.0),
            ("LEAST_SYNCS", |p, x| p.both(|d| d.workload.calls[2] = x as u64), 4.0, 3.0),
            (
                "MORE_WRITTEN",
                |p, x| (p.slow.commands.sectors[1], p.slow.sync.commits) = (x as u64, 1000),
                1301.0,
                1300.0,
            ),
            ("MORE_COMMITS", |p, x| p.slow.sync.commits = x as u64, 1251.0, 1250.0),
            ("LEAST_PART", |p, x| p.slow.time.ns[2][DEVICE] = x, 300_000.0, 299_999.0),
            (
                "LEAST_PART, writes",
                |p, x| (p.slow.time.ns[2], p.slow.time.ns[1][DEVICE]) = ([0.0; 9], x),
                300_000.0,
                299_999.0,
            ),
            (
                "OTHERS",
                |p, x| (p.fast.foreign.processes_wrote, p.slow.foreign.processes_wrote) = (0, x as u64),
                25_600.0,
                25_599.0,
            ),
        ];
        hold(&RULE, foreign, 0.779, edges);
        sure(
            &RULE,
            foreign,
            &[
                (
                    "OTHERS",
                    |p, x| (p.fast.foreign.processes_wrote, p.slow.foreign.processes_wrote) = (0, x as u64),
                    51_200.0,
                    0.779,
                ),
                ("MOST_SURE", |p, x| p.slow.foreign.processes_wrote = x as u64, 200_000.0, 0.9),
            ],
        );
    }

    #[test]
    fn costs() {
        let shared = || {
            Alone::of(|a| {
                (a.digest.workload.calls[2], a.digest.workload.bytes[1]) = (10, 512_000);
                (a.digest.commands.sectors[1], a.digest.foreign.processes_wrote) = (1000, 256_000);
                a.digest.time.ns[crate::digest::KIND_SYNC][Layer::Device as usize] = 8e5;
            })
        };
        let edges: &[AloneEdge] = &[
            ("LEAST_SYNCS, alone", |a, x| a.digest.workload.calls[2] = x as u64, 4.0, 3.0),
            ("MOSTLY", |a, x| a.digest.foreign.processes_wrote = x as u64, 153_600.0, 153_599.0),
        ];
        hold_cost(&RULE, shared, (40.0, 0.8), edges);
        // Ten syncs with a commit each take 18 us for their own three writes, and 32 with a flush, of 80.
        let own = |flush: f64| {
            move || {
                Alone::of(|a| {
                    *a = shared();
                    a.requests(1, 10, 50, 6e4);
                    (a.digest.sync.commits, a.digest.sync.flush) = (10, spread(10, flush));
                    (a.digest.commands.sectors[1], a.digest.foreign.processes_wrote) = (1000, 500_000);
                    a.digest.time.ns[1][Layer::Device as usize] = 0.0;
                })
            }
        };
        for (flush, pct) in [(0.0, 62.0), (14e3, 48.0), (9e4, 23.4)] {
            let found = own(flush)().ask(&RULE).expect("a cost");
            assert!((found.saves_pct - pct).abs() < 0.1, "{} and {flush} ns: {found:?}", "OF_COMMIT");
        }
        // One flush of ten that is quick is as good as all.
        for (quick, pct) in [(1, 48.0), (0, 23.4)] {
            let mut some = own(0.0)();
            some.digest.sync.flush = spread(quick, 14e3);
            some.digest.sync.flush.merge(&spread(10 - quick, 9e4));
            let found = some.ask(&RULE).expect("a cost");
            assert!((found.saves_pct - pct).abs() < 0.1, "{}, {quick} of ten: {found:?}", "QUICK");
        }
        // The kernel's tasks write nearly all, and ten syncs explain a third of it.
        let by_kernel = || {
            let mut alone = shared();
            (alone.digest.workload.bytes[1], alone.digest.commands.sectors[1]) = (0, 1920);
            alone.digest.foreign.processes_wrote = 50_000;
            alone
        };
        let edges: &[AloneEdge] = &[
            ("OTHERS", |a, x| a.digest.foreign.processes_wrote = x as u64, 49_152.0, 49_151.0),
            ("PER_SYNC", |a, x| a.digest.workload.calls[2] = x as u64, 21.0, 22.0),
        ];
        hold_cost(&RULE, by_kernel, (53.3, 0.8), edges);
    }
}
