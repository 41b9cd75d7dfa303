//! Foreign syncs make the workload's own wait.

use super::IO;
use super::{Figure, Match, Rule, grade};
use crate::delta::{Delta, Unit};
use crate::digest::Digest;

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
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    let syncs = delta.of(|d| (d.workload.calls[2] + d.workload.written_through) as f64);
    let as_many = (0.8..1.25).contains(&syncs.ratio()) && syncs.slow >= 4.0;
    let each = |figure: &dyn Fn(&Digest) -> f64| {
        delta.of(|d| figure(d) / ((d.workload.calls[2] + d.workload.written_through).max(1)) as f64)
    };
    let commits = each(&|d| d.sync.commits as f64);
    let written = delta.of(|d| d.workload.bytes[1] as f64);
    let sectors = each(&|d| d.commands.sectors[1] as f64 * 512.0);
    let time = delta.time(|time| time.within(&[1, 2], IO));
    let more = sectors.rose(1.3) || commits.rose(1.25);
    let others = delta.of(|d| d.foreign.processes_wrote as f64 / (d.commands.sectors[1] as f64 * 512.0).max(1.0));
    if !as_many || !(0.8..1.25).contains(&written.ratio()) || !more || time.difference() < 0.3 * delta.slower_by() {
        return None;
    }
    if !others.rose_by(0.05) {
        return None;
    }
    Some(Match {
        confidence: grade(others.slow.max(0.05) / others.fast.max(0.05), 1.2, 3.0).min(0.9),
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
