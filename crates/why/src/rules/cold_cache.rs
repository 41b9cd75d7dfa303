//! Pages had to be read that were in the page cache on the fast side.

use super::{Figure, Match, Rule, grade};
use crate::delta::{Delta, Unit};
use crate::digest::Digest;

pub(super) const RULE: Rule = Rule {
    name: "cold-cache",
    layer: "page cache",
    needs: super::CALLS_AND_PAGES,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "Pages had to be read from the device that the fast side found in the page cache.",
    why: "A page in memory costs a copy, a page on the device a request; nothing else has to be different.",
    events: "Equal calls, but more pages are put into the cache, each for the first time: they were not evicted \
             during the run, they were not there when it began.",
    example: "The first run after a reboot against the second; a backup that pushed the database out of the cache.",
    change: "Compare runs that begin alike: drop the cache before both, or read the files before both.",
    refute: "With the files in the cache before the run, or dropped before both runs, the difference remains.",
    since: "Every kernel.",
    consequences: &["cpu-bound-submission", "device-latency", "random-advice", "window-too-small", "window-too-large"],
    switches: &[super::Switch::OtherJob],
    find,
};

/// Pages put into the cache for each page asked for, up to which a side found what it asked for there.
const NOTHING_READ: f64 = 0.05;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let bytes = delta.of(|d| d.workload.bytes[0] as f64);
    let each =
        |figure: &dyn Fn(&Digest) -> f64| delta.of(|d| figure(d) / (d.workload.bytes[0] as f64 / 4096.0).max(1.0));
    let added = each(&|d| d.cache.added as f64);
    let again = each(&|d| d.cache.again as f64);
    let read = delta.of(|d| d.commands.sectors[0] as f64 * 512.0);
    let direct = delta.of(|d| super::reads::share(d.workload.direct[0], d.workload.calls[0]));
    let equal = (0.9..1.1).contains(&bytes.ratio()) && bytes.slow > 0.0 && direct.slow < 0.5;
    if !equal || !added.rose(1.5) || !added.rose_by(0.05) || again.slow > 0.2 * added.slow || !read.rose(1.5) {
        return None;
    }
    // Read-ahead of what nobody asks for is another cause, if the fast side reads at all.
    let used = delta.of(|d| super::reads::share(d.windows.used, d.windows.ahead));
    if used.slow < 0.5 && added.fast > NOTHING_READ && added.slow > 1.2 {
        return None;
    }
    Some(Match {
        confidence: grade(added.ratio(), 1.3, 4.0).min(0.95),
        share_ns: None,
        claim: format!(
            "{:.0} % of the reads come from the device for the first time, against {:.0} %",
            (100.0 * added.slow).min(100.0),
            (100.0 * added.fast).min(100.0)
        ),
        evidence: vec![
            Figure::new("pages put into the cache for each page asked for", added, Unit::Ratio),
            Figure::new("bytes read from devices", read, Unit::Bytes),
        ],
    })
}
