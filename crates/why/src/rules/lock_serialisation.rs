//! Calls on one file go one after the other, each with a lock that the others wait for.
//!
//! Events do not show locks. The rule looks for the effect of a lock on calls: a call that began during another one on
//! its file has no event until such a one has ended ([`crate::digest::Turns`]), and hardly ever have
//! two calls on the file bios at once, though as many calls are in progress as before. Waiters for a tag or a request
//! are silent, too, but then other bios of the file are on their way; and a depth of one that keeps callers out
//! altogether leaves fewer calls in progress. Known limits: a mutex of the program around its calls is outside them,
//! and leaves fewer calls in progress as well, which is a changed job in events; readers that are woken one after the
//! other for one page have been attached to its request, and count for it.

use std::ops::Range;

use super::cost::{Bounds, Cost, Facts, SEEN, TRIPS};
use super::instead::Saved;
use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};
use crate::digest::Layer;
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
    cost: Some(cost),
};

/// Ratio of most calls in progress: a maximum shows one moment and varies more than a mean.
const AS_MANY: Range<f64> = 0.8..1.25;
/// Ratio of call sizes: larger calls hold the lock for longer by themselves.
const AS_LARGE: Range<f64> = 0.9..1.1;
/// Share of the calls' time that they wait for a turn: short turns are normal on a shared file.
const MANY: f64 = 0.2;
/// Ratio of these shares: a lock that both sides wait for is not the difference.
const MORE: f64 = 2.0;
/// Growth of the wait per operation: a larger share of shorter calls costs nothing.
const LONGER: f64 = 1.5;
/// Part of the difference: a shorter wait follows from another cause.
const LEAST_PART: f64 = 0.2;
/// Share of first bios that come while the file has others in flight: an exclusive lock allows hardly any.
const TOGETHER: f64 = 0.1;
/// First bios per call: with fewer, calls rarely meet at the device, lock or not.
const BIOS: f64 = 0.2;
/// Quantile of times without I/O: the quickest tenth finds the lock free.
const QUICKEST: f64 = 0.1;
/// Ratio of the quickest times: code that is slower with the lock free points to the CPU.
const SLOWER_CPU: f64 = 1.5;
/// One plus the growth of the share, half sure and sure.
const GRADE: (f64, f64) = (1.1, 1.6);

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
    let equal = AS_MANY.contains(&calls.ratio()) && AS_LARGE.contains(&size.ratio()) && calls.slow > 1.0;
    // Of calls without bios the quick ones find the lock free; a slower CPU makes these slower, too.
    let quick = delta.of(|d| d.without_io[way].quantile(QUICKEST));
    let bios = delta.of(|d| share(d.turns.first_bios[0] + d.turns.first_bios[1], d.workload.calls[way]));
    let one_by_one = together.slow < TOGETHER && (bios.slow > BIOS || quick.ratio() < SLOWER_CPU);
    let rose = waited.slow > MANY && waited.slow > MORE * waited.fast && wait.rose(LONGER);
    let material = wait.difference() > LEAST_PART * delta.slower_by();
    if !(equal && one_by_one && rose && material) {
        return None;
    }
    let mean = delta.of(|d| d.turns.wait[way].mean());
    Some(Match {
        confidence: grade(1.0 + waited.difference(), GRADE.0, GRADE.1),
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

/// Confidence of the cost, and its bounds: what no lock keeps apart may meet at the device.
const ALONE: (f64, Bounds) = (0.85, [0.3, 1.0]);

/// Part of the time that tasks are blocked without a request, from which on a lock keeps readers and writers apart.
const BLOCKED: f64 = 0.3;

/// Readers share the lock, and wait for writers that wait for them.
fn shared(facts: &Facts<'_>) -> Option<Cost> {
    let d = facts.digest;
    let waited = [0, 1].map(|way| d.turns.wait[way].sum() / d.latency[way].sum().max(1.0));
    // Blocked writes count as the journal's where nothing is known of what they wait for.
    let blocked = facts.of_kinds(&[0], &[Layer::Lock]) + facts.of_kinds(&[1], &[Layer::Lock, Layer::Journal]);
    let commits = d.sync.commits + d.sync.flush.count();
    let apart = waited.iter().all(|waited| *waited >= MANY);
    if d.workload.concurrency <= 1 || !apart || commits > 0 || blocked < BLOCKED * facts.whole_ns {
        return None;
    }
    let (confidence, bounds) = ALONE;
    Some(Cost {
        ns: blocked,
        bounds,
        confidence,
        claim: format!(
            "reads and writes of a file wait for each other: {:.0} % of the time of reads, {:.0} % of that of writes",
            100.0 * waited[0],
            100.0 * waited[1]
        ),
        setting: "a file for each thread, or direct I/O".to_owned(),
        evidence: vec![
            ("share of the reads' time that they wait for others on their file", waited[0], Unit::Share),
            ("the same of writes", waited[1], Unit::Share),
            ("time blocked without a request", blocked, Unit::Ns),
        ],
    })
}

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    shared(facts).or_else(|| exclusive(facts)).or_else(|| of_the_program(facts))
}

/// Wakes of a reader by another one, for each read, from which on they take turns.
const HANDED: f64 = 0.3;
/// Readers that a device serves at once, at most: more give nothing on many.
const AT_ONCE: f64 = 8.0;

/// Tasks that read a file in turn: a lock of the program keeps their calls apart.
fn of_the_program(facts: &Facts<'_>) -> Option<Cost> {
    let d = facts.digest;
    let (wakes, woken) = d.turns.handed;
    let reads = d.workload.calls[0];
    let apart = d.workload.concurrency <= u32::midpoint(woken, 1);
    if woken <= 1 || (wakes as f64) < HANDED * reads as f64 || !apart {
        return None;
    }
    let waits = facts.of_kinds(&[0], &TRIPS);
    let readers = f64::from(woken).min(AT_ONCE);
    // An arm serves one at a time, and gains by choosing.
    let gains = if facts.turns() == Some(true) { readers.sqrt() } else { readers };
    let saved = Saved::of(waits * (1.0 - 1.0 / gains), 0.0, waits);
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: format!(
            "{woken} threads read a file in turn: a lock of the program keeps their calls apart ({wakes} hand-overs)"
        ),
        setting: "reads with an offset (pread), without a lock around them".to_owned(),
        evidence: vec![
            ("wakes of a reader by another", wakes as f64, Unit::Count),
            ("reads", reads as f64, Unit::Count),
            ("time that reads wait for I/O", waits, Unit::Ns),
        ],
    })
}

/// One call at a time.
fn exclusive(facts: &Facts<'_>) -> Option<Cost> {
    let turns = &facts.digest.turns;
    let way = usize::from(turns.wait[1].sum() > turns.wait[0].sum());
    let waited = turns.wait[way].sum() / facts.digest.latency[way].sum().max(1.0);
    let together = share(turns.first_bios[1], turns.first_bios[0] + turns.first_bios[1]);
    let bios = share(turns.first_bios[0] + turns.first_bios[1], facts.digest.workload.calls[way]);
    let concurrency = facts.digest.workload.concurrency;
    if concurrency <= 1 || waited < MANY || together > TOGETHER || bios < BIOS {
        return None;
    }
    let (confidence, bounds) = ALONE;
    Some(Cost {
        ns: turns.wait[way].sum() / f64::from(concurrency),
        bounds,
        confidence,
        claim: format!(
            "{:.0} % of the time of {} calls is waiting until another call on their file has done, {:.0} us each time",
            100.0 * waited,
            ["read", "write"][way],
            turns.wait[way].mean() / 1e3
        ),
        setting: "a file for each thread, or preallocated blocks".to_owned(),
        evidence: vec![
            ("share of the calls' time that they wait for others on their file", waited, Unit::Share),
            ("how long they wait", turns.wait[way].mean(), Unit::Ns),
            ("share of first bios during other bios of the file", together, Unit::Share),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread};
    use super::RULE;
    use crate::digest::Layer;

    /// Two calls at a time, ten in all, that wait for half of their 4 ms on the slow side. A thousand bios.
    fn turns() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                d.workload.concurrency = 2;
                d.turns.first_bios = [1000, 0];
                d.without_io[0] = spread(1, 1000.0);
            });
            p.fast.latency[0] = spread(10, 200_000.0);
            p.slow.latency[0] = spread(10, 400_000.0);
            p.slow.turns.wait[0] = spread(1, 2_000_000.0);
        })
    }

    /// The same with writes.
    fn writes() -> Pair {
        let mut pair = turns();
        for d in [&mut pair.fast, &mut pair.slow] {
            d.latency.swap(0, 1);
            d.turns.wait.swap(0, 1);
            d.workload.calls.swap(0, 1);
            d.workload.bytes.swap(0, 1);
        }
        pair
    }

    /// A hundred calls in progress on the fast side, with waits enough for all.
    fn calls(p: &mut Pair, slow: f64) {
        p.slow.turns.wait[0] = spread(1, 2e8);
        (p.fast.workload.concurrency, p.slow.workload.concurrency) = (100, slow as u32);
    }

    /// Waits on the fast side, a small share of long calls.
    fn longer(p: &mut Pair, slow: f64) {
        p.fast.latency[0] = spread(10, 1_000_000.0);
        p.fast.turns.wait[0] = spread(1, 1_000_000.0);
        p.slow.turns.wait[0] = spread(1, slow);
    }

    /// More calls in progress: each waits for less time of an operation.
    fn least_part(p: &mut Pair, slow: f64) {
        p.both(|d| d.workload.concurrency = 8);
        p.slow.turns.wait[0] = spread(1, slow);
    }

    /// A slow CPU, and bios of few calls.
    fn bios(p: &mut Pair, bios: f64) {
        p.both(|d| d.workload.calls[0] = 1000);
        p.slow.turns.first_bios = [bios as u64, 0];
        p.slow.without_io[0] = spread(1, 2000.0);
    }

    /// No bios, and some of a thousand calls as quick as on the fast side.
    fn quickest(p: &mut Pair, quick: f64) {
        p.slow.turns.first_bios = [0; 2];
        p.slow.without_io[0] = spread(1000 - quick as u64, 9000.0);
        p.slow.without_io[0].merge(&spread(quick as u64, 1000.0));
    }

    fn slower_cpu(p: &mut Pair, slow: f64) {
        p.slow.turns.first_bios = [0; 2];
        p.slow.without_io[0] = spread(1, slow);
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("AS_MANY, fewer", calls, 80.0, 79.0),
            ("AS_MANY, more", calls, 124.0, 125.0),
            ("AS_LARGE, smaller", |p, x| p.slow.workload.bytes[0] = x as u64, 36_864.0, 36_863.0),
            ("AS_LARGE, larger", |p, x| p.slow.workload.bytes[0] = x as u64, 45_055.0, 45_056.0),
            ("one call at a time", |p, x| p.both(|d| d.workload.concurrency = x as u32), 2.0, 1.0),
            ("MANY", |p, x| p.slow.turns.wait[0] = spread(1, x), 800_001.0, 800_000.0),
            ("MORE", |p, x| p.fast.turns.wait[0] = spread(1, x), 499_999.0, 500_000.0),
            ("LONGER", longer, 1_500_001.0, 1_500_000.0),
            ("LEAST_PART", least_part, 1_600_001.0, 1_600_000.0),
            ("TOGETHER", |p, x| p.slow.turns.first_bios = [1000 - x as u64, x as u64], 99.0, 100.0),
            ("BIOS", bios, 201.0, 200.0),
            ("QUICKEST", quickest, 100.0, 99.0),
            ("SLOWER_CPU", slower_cpu, 1499.0, 1500.0),
        ];
        hold(&RULE, turns, 0.9139, edges);
        hold(
            &RULE,
            writes,
            0.9139,
            &[("MANY, writes", |p, x| p.slow.turns.wait[1] = spread(1, x), 800_001.0, 800_000.0)],
        );
    }

    #[test]
    fn costs() {
        let turns = || {
            Alone::of(|a| {
                a.digest.workload.concurrency = 2;
                a.digest.turns.wait[0] = spread(10, 80_000.0);
                a.digest.turns.first_bios = [100, 0];
                a.digest.workload.calls[0] = 100;
            })
        };
        let edges: &[AloneEdge] = &[
            ("MANY, alone", |a, x| a.digest.turns.wait[0] = spread(1, x), 200_000.0, 199_000.0),
            ("TOGETHER, alone", |a, x| a.digest.turns.first_bios = [100 - x as u64, x as u64], 10.0, 11.0),
            ("BIOS, alone", |a, x| a.digest.turns.first_bios = [x as u64, 0], 20.0, 19.0),
            ("concurrency", |a, x| a.digest.workload.concurrency = x as u32, 2.0, 1.0),
        ];
        hold_cost(&RULE, turns, (40.0, 0.85), edges);
        // Ten reads and ten writes of 100 us, of which half is waiting for the others; first bios meet.
        let shared = || {
            Alone::of(|a| {
                a.digest.workload.concurrency = 2;
                a.digest.latency[1] = spread(10, 1e5);
                a.digest.turns.wait = [0, 1].map(|_| spread(10, 5e4));
                a.digest.turns.first_bios = [0, 100];
                a.digest.time.ns[0][Layer::Lock as usize] = 3e5;
                a.digest.time.ns[1][Layer::Journal as usize] = 3e5;
            })
        };
        let edges: &[AloneEdge] = &[
            ("MANY, reads", |a, x| a.digest.turns.wait[0] = spread(10, x), 20_000.0, 19_000.0),
            ("MANY, writes", |a, x| a.digest.turns.wait[1] = spread(10, x), 20_000.0, 19_000.0),
            ("BLOCKED", |a, x| a.digest.time.ns[0][Layer::Lock as usize] = x, 0.0, -1e3),
            ("commits", |a, x| a.digest.sync.commits = x as u64, 0.0, 1.0),
        ];
        hold_cost(&RULE, shared, (60.0, 0.85), edges);
        let handed = || {
            Alone::of(|a| {
                a.requests(0, 10, 8, 8e5);
                (a.digest.turns.handed, a.digest.workload.concurrency) = ((10, 4), 1);
            })
        };
        let edges: &[AloneEdge] = &[
            ("HANDED", |a, x| a.digest.turns.handed.0 = x as u64, 3.0, 2.0),
            ("woken", |a, x| a.digest.turns.handed.1 = x as u32, 2.0, 1.0),
            ("concurrency", |a, x| a.digest.workload.concurrency = x as u32, 2.0, 3.0),
        ];
        hold_cost(&RULE, handed, (60.0, 0.8), edges);
        let many = || {
            Alone::of(|a| {
                *a = handed();
                a.digest.turns.handed = (10, 100);
            })
        };
        hold_cost(&RULE, many, (70.0, 0.8), &[("AT_ONCE", |a, x| a.digest.turns.handed.1 = x as u32, 8.0, 1.0)]);
    }
}
