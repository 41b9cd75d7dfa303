//! Calls on one file go one after the other, each with a lock that the others wait for.
//!
//! Events do not show locks. The rule looks for the effect of a lock on calls: a call that began during another one on
//! its file has no event until such a one has ended ([`crate::digest::Turns`]), and hardly ever have
//! two calls on the file bios at once, though as many calls are in progress as before. Waiters for a tag or a request
//! are silent, too, but then other bios of the file are on their way; and a depth of one that keeps callers out
//! altogether leaves fewer calls in progress. Known limits: a mutex of the program around its calls is outside them,
//! and leaves fewer calls in progress as well, which is a changed job in events; readers that are woken one after the
//! other for one page have been attached to its request, and count for it.

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};
use iowhy_stats::figure::share;

pub(super) const RULE: Rule = Rule {
    name: "lock-serialisation",
    layer: "lock/wait",
    needs: super::CALLS_AND_BIOS,
    owns: super::Owns::Code,
    single: super::Single::Counts,
    what: "Calls on one file go one after the other: each waits for the inode's lock until the one before it is done.",
    why: "A writer holds the lock of the inode (i_mutex, i_rwsem since 4.7) until its call ends; with direct I/O that \
          includes the device's time. Threads on one file are then no faster than one, and a device with many channels \
          works with one of them.",
    events: "Of calls that begin while another one on the file is in progress nothing is seen until that one has \
             ended; at no time do two calls on the file have bios on their way. As many calls are in progress as \
             before.",
    example: "Four threads with direct writes to one file on ext4 of 4.4 (exclusive) against 6.x (shared), or against \
              XFS.",
    change: "A file for each thread, or a raw device; XFS, or a kernel whose ext4 shares the lock for overwrites; \
             preallocate, so that writes do not extend the file; fewer and larger calls, or asynchronous ones.",
    refute: "With a file for each thread the calls still wait as long without any I/O of their own.",
    since: "Every kernel. Direct overwrites of ext4 share the lock since 5.6 (with dioread_nolock since 3.7); direct \
            writes of XFS since it exists; buffered writes never do.",
    consequences: &["queue-depth-one", "invalidation-cost", "cpu-bound-submission"],
    switches: &[Switch::Other("direct.inode_lock"), Switch::Other("filesystem"), Switch::Other("direct")],
    find,
};

/// Share of the time of the calls that has to be waiting for a turn.
const MANY: f64 = 0.2;
/// Share of the first bios that may come while another call on the file has some.
const TOGETHER: f64 = 0.1;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let names = ["read", "write"];
    let per_slot =
        |way: usize| delta.per_operation(move |d| d.turns.wait[way].sum() / f64::from(d.workload.concurrency.max(1)));
    let wait = [0, 1].map(per_slot);
    let way = usize::from(wait[1].difference() > wait[0].difference());
    let wait = wait[way];
    // Locks are not fair: one thread may come again and again while the others wait, and few calls wait for long.
    let waited = delta.of(|d| d.turns.wait[way].sum() / d.latency[way].sum().max(1.0));
    let together = delta.of(|d| share(d.turns.first_bios[1], d.turns.first_bios[0] + d.turns.first_bios[1]));
    let calls = delta.of(|d| f64::from(d.workload.concurrency));
    let size = delta.of(|d| share(d.workload.bytes[way], d.workload.calls[way]));
    let equal = (0.8..1.25).contains(&calls.ratio()) && (0.9..1.1).contains(&size.ratio()) && calls.slow > 1.0;
    // Of calls without bios the quick ones find the lock free; a slower CPU makes these slower, too.
    let quick = delta.of(|d| d.without_io[way].quantile(0.1));
    let bios = delta.of(|d| share(d.turns.first_bios[0] + d.turns.first_bios[1], d.workload.calls[way]));
    let one_by_one = together.slow < TOGETHER && (bios.slow > 0.2 || quick.ratio() < 1.5);
    let rose = waited.slow > MANY && waited.slow > 2.0 * waited.fast && wait.rose(1.5);
    let material = wait.difference() > 0.2 * delta.slower_by();
    if !(equal && one_by_one && rose && material) {
        return None;
    }
    let mean = delta.of(|d| d.turns.wait[way].mean());
    Some(Match {
        confidence: grade(1.0 + waited.difference(), 1.1, 1.6),
        share_ns: None,
        claim: format!(
            "{:.0} % of the time of {} calls is waiting until another call on their file has done, {:.1} us each time \
             (before: {:.0} %)",
            100.0 * waited.slow,
            names[way],
            mean.slow / 1e3,
            100.0 * waited.fast
        ),
        evidence: vec![
            Figure::new(
                format!("share of the time of {} calls that they wait for others on their file", names[way]),
                waited,
                Unit::Share,
            ),
            Figure::new("how long they wait", mean, Unit::Ns),
            Figure::new("share of first bios during other bios of the file", together, Unit::Share),
            Figure::new("most calls in progress", calls, Unit::Count),
        ],
    })
}
