//! Each write waits until its data are on the medium.

use super::IO;
use super::{Figure, Match, Rule, grade};
use crate::delta::{Contrast, Delta, Unit};
use crate::digest::Digest;

pub(super) const RULE: Rule = Rule {
    name: "synchronous-writes",
    layer: "journal/writeback",
    needs: super::CALLS_AND_BIOS,
    owns: super::Owns::Writes,
    single: super::Single::Counts,
    what: "Each write waits until its data, and the metadata to find them, are on the medium.",
    why: "O_SYNC and O_DSYNC, and the mount option sync, make an fsync of every write: the data, a commit of \
          the journal, a flush.",
    events: "As many writes and syncs as before, but writes have bios of their own, or commits and flushes come \
             with each of them, and they wait for these.",
    example: "open(.., O_DSYNC) in a library; mount -o sync; dd oflag=sync; innodb_flush_method=O_DSYNC.",
    change: "Drop the flag or the mount option and sync once for many writes, or put the log on a device with a \
             protected cache.",
    refute: "Without the flag or the mount option writes wait as long.",
    since: "Every kernel.",
    consequences: &[
        "flush-cost",
        "journal-commit-per-fsync",
        "cpu-bound-submission",
        "device-latency",
        "writeback-throttling",
    ],
    switches: &[super::Switch::OtherJob],
    find,
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    let writes = delta.of(|d| d.workload.calls[1] as f64);
    let of_writes = |figure: &dyn Fn(&Digest) -> f64| delta.of(|d| figure(d) / d.workload.calls[1].max(1) as f64);
    let syncs = of_writes(&|d| d.workload.calls[2] as f64);
    let through = of_writes(&|d| d.workload.written_through as f64);
    let forced = of_writes(&|d| (d.sync.commits + d.sync.flush.count()) as f64);
    let time = delta.time(|time| time.within(&[1], IO));
    let direct = of_writes(&|d| d.workload.direct[1] as f64);
    let as_many = (0.8..1.25).contains(&writes.ratio()) && syncs.slow <= 1.2 * syncs.fast + 0.02;
    let new = through.rose_by(0.5) && direct.slow < 0.5 || forced.rose_by(0.3) && forced.rose(2.0);
    let stopped = delta.of(|d| d.wall.as_ref().map_or(0.0, |wall| wall.dirty_ns / wall.span_ns.max(1) as f64));
    if writes.slow < 4.0 || !as_many || !new || stopped.rose_by(0.2) || time.difference() < 0.3 * delta.slower_by() {
        return None;
    }
    let each = Contrast::of_means(time.fast * delta.scale() / writes.fast, time.slow * delta.scale() / writes.slow);
    Some(Match {
        confidence: grade(each.ratio(), 1.3, 3.0).min(0.97),
        share_ns: Some(time.difference()),
        claim: format!(
            "{:.0} % of the writes go to the device within the call (before {:.0} %), with {:.2} commits and \
            flushes each \
             (before {:.2})",
            100.0 * through.slow,
            100.0 * through.fast,
            forced.slow,
            forced.fast
        ),
        evidence: vec![
            Figure::new("share of writes with bios of their own", through, Unit::Share),
            Figure::new("commits and flushes for each write", forced, Unit::Ratio),
            Figure::new("time that a write waits for the medium", each, Unit::Ns),
        ],
    })
}
