//! Callers that share an open file share its read-ahead state, and take it from one another.
//!
//! Two signs. In 2.6.5 to 2.6.6 the state is asked page by page and turns itself off when calls interleave: calls of
//! several pages then read them one by one, which is counted directly. In kernels with windows that go on by position,
//! a stream that another one has pushed out of the state restarts: windows of sequential calls begin instead of being
//! continued, while streams run side by side in one file. Known limit: events do not name descriptors; streams that
//! restart for another reason in the same file look alike, except after eviction, which is looked at.

use iowhy_stack::event::RaKind;

use super::{Figure, Match, Rule, grade, reads};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "shared-readahead-state",
    layer: "read-ahead",
    needs: super::WINDOWS,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "Several callers read through one open file, interleave on its read-ahead state, and close or thrash the \
           window.",
    why: "The state belongs to the open file, not to the caller. Each sees the others' places as jumps. The window \
          shrinks, closes, or begins again at its first size, so that several small reads, one after the other, \
          replace one request.",
    events: "Calls of several pages overlap on one file and get single pages (2.6.5 to 2.6.6), or sequential calls get \
             new windows instead of continued ones. Windows are closed by interleaved misses, where the source tells.",
    example: "2004: a sysbench of 16 threads over 128 shared descriptors took 55 percent longer on 2.6.6-rc3 than on \
              2.4.25, with every elevator; jobs/interleaved-readers.fio against iowhy_descriptors=own.",
    change: "Open the file once for each thread or stream, or read with preadv2 and calls as large as the records.",
    refute: "With a descriptor for each thread the difference stays.",
    since: "Every kernel; worst in 2.6.5 to 2.6.6, a private copy for each call since 2.6.7.",
    consequences: &[],
    switches: &[
        super::Switch::Patch("private-copy"),
        super::Switch::Word("--iowhy_descriptors=own"),
        super::Switch::Other("readahead"),
        super::Switch::OwnDescriptors,
    ],
    find,
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    if !reads::equal(delta) {
        return None;
    }
    closed(delta).or_else(|| restarted(delta))
}

/// Windows closed by interleaving: several pages of a call come one by one.
fn closed(delta: &Delta<'_>) -> Option<Match> {
    let split = delta.of(|d| reads::share(d.windows.calls_split, d.windows.calls_missed));
    let overlapping = delta.of(|d| reads::share(d.windows.overlapping_split[1], d.windows.overlapping_split[0]));
    let closes = delta.per_operation(|d| d.windows.closes[0] as f64);
    let hits = delta.per_operation(|d| d.windows.closes[2] as f64);
    let windows = delta.of(|d| reads::windows(d, &[RaKind::Sync, RaKind::Async]) as f64);
    // A state that never had a window was not closed by anybody.
    let by_others = closes.slow > 1.5 * closes.fast && closes.difference() > hits.difference();
    if !(split.rose_by(0.05) && overlapping.rose_by(0.05) && by_others && windows.slow > 0.0) {
        return None;
    }
    let size = delta.of(|d| d.bios.sizes[0].mean() * 512.0);
    Some(Match {
        confidence: grade(split.difference(), 0.05, 0.3).max(0.8),
        share_ns: None,
        claim: format!(
            "calls interleave on shared open files and close their windows: {:.0} % of the reads that miss get their \
             pages one by one, against {:.0} %",
            100.0 * split.slow,
            100.0 * split.fast
        ),
        evidence: vec![
            Figure::new("missing reads that come page by page", split, Unit::Share),
            Figure::new("the same of reads that overlap others on their file", overlapping, Unit::Share),
            Figure::new("windows closed by interleaving, for each call", closes, Unit::Ratio),
            Figure::new("mean size of a read bio", size, Unit::Bytes),
        ],
    })
}

/// Streams that have to restart.
fn restarted(delta: &Delta<'_>) -> Option<Match> {
    let restarts = reads::restarts(delta);
    let overlapping = delta.of(|d| reads::share(d.workload.overlapping, d.workload.calls[0] + d.workload.calls[1]));
    let again = delta.per_operation(|d| d.cache.again as f64);
    let thrashed = delta.of(|d| reads::share(d.windows.thrashed, d.windows.ahead));
    let waits = reads::waits(delta);
    let sizes = delta.of(|d| d.windows.sizes.mean());
    // A restarting stream has been pushed out by another task's call.
    let begun = delta.of(|d| d.windows.sequential_sizes.count() as f64);
    let switches = delta.of(|d| d.workload.interleaved_streams as f64);
    let interleaved = switches.slow > 0.5 * begun.slow && overlapping.slow > 0.1;
    let evicted = again.rose(1.1) || thrashed.rose_by(0.02);
    if !(restarts.rose_by(0.05)
        && restarts.rose(1.5)
        && interleaved
        && !evicted
        && (waits.rose(1.03) || sizes.fell(1.1)))
    {
        return None;
    }
    Some(Match {
        confidence: grade(restarts.difference(), 0.05, 0.3).max(0.7),
        share_ns: None,
        claim: format!(
            "sequential streams interleave on one open file and push each other out of its read-ahead state: {:.0} % \
             of the windows restart, against {:.0} %",
            100.0 * restarts.slow,
            100.0 * restarts.fast
        ),
        evidence: vec![
            Figure::new("windows of sequential calls that restart", restarts, Unit::Share),
            Figure::new("mean window", sizes, Unit::Pages),
            Figure::new("waits for each call", waits, Unit::Ratio),
        ],
    })
}
