//! Calls free memory before they get any.

use super::cost::{Bounds, Cost, Facts, TRIPS};
use super::{Figure, IO, Match, Rule, instead, reads, recorded};
use crate::delta::{Delta, Unit};
use crate::digest::Layer;
use iowhy_stack::units::{PAGE_BYTES, SECTOR_BYTES};

pub(super) const RULE: Rule = Rule {
    name: "memory-reclaim",
    layer: "page cache",
    needs: super::STATES,
    owns: super::Owns::Calls,
    single: super::Single::Counts,
    what: "A limit of memory makes calls free pages before they can have new ones.",
    why: "A control group at its limit (memory.max, memory.high), or a machine without free memory, reclaims \
          in the call that asks for a page: it scans lists, writes dirty pages, drops clean ones that are read \
          again.",
    events: "Direct reclaim within calls and faults, for as many calls; pages that were dropped are read again.",
    example: "A container whose memory limit was lowered; a batch job that takes the memory of a database.",
    change: "Raise the limit, make the working set smaller, or go round the page cache (O_DIRECT).",
    refute: "With the fast side's memory as much is reclaimed.",
    since: "Control groups since 2.6.25; direct reclaim in every kernel.",
    // Reads that were not made before say nothing of a device that has changed.
    consequences: &[
        "cache-too-small",
        "cpu-bound-submission",
        "writeback-throttling",
        "changed-job",
        "cold-cache",
        "device-idle-exit",
        "device-latency",
    ],
    switches: &[super::Switch::OtherJob],
    find,
    cost: Some(cost),
};

/// Ratio of reclaims per call: with little free memory the fast side reclaims, too.
const TIMES: f64 = 3.0;
/// Additional reclaims per call: fewer than one for a thousand calls cost nothing.
const OFTENER: f64 = 0.001;
/// Part of the difference that reclaim takes: a smaller one is not worth a finding.
const PART: f64 = 0.1;
/// Additional pages read again per call: one for ten calls, each a wait for the device.
const AGAIN: f64 = 0.1;
/// Ratio of pages read again: a cache too small on both sides is not the difference.
const AGAIN_TIMES: f64 = 2.0;
/// Ratio of limit hits: the kernel then names the group's limit itself.
const HITS: f64 = 3.0;
/// Confidence without and with more limit hits: without them the whole machine may lack memory.
const SURE: (f64, f64) = (0.8, 0.95);

fn find(delta: &Delta<'_>) -> Option<Match> {
    let times = delta.per_operation(|d| d.wall.as_ref().map_or(0.0, |wall| wall.reclaim.1 as f64));
    let time = delta.of(|d| d.wall.as_ref().map_or(0.0, |wall| wall.reclaim.0));
    let again = delta.per_operation(|d| d.cache.again as f64);
    let hits = recorded::counter(delta, "memory_limit_hits");
    let all = delta.slower_by() * delta.scale();
    let reclaims = times.rose(TIMES) && times.rose_by(OFTENER);
    let material = time.difference() > PART * all || again.rose_by(AGAIN) && again.rose(AGAIN_TIMES);
    if !reclaims || !material {
        return None;
    }
    Some(Match {
        confidence: if hits.rose(HITS) { SURE.1 } else { SURE.0 },
        share_ns: None,
        claim: format!(
            "calls reclaim memory {:.3} times each (before {:.3}), {:.0} ms in all; {:.2} pages a call are read again \
             (before {:.2})",
            times.slow,
            times.fast,
            time.slow / 1e6,
            again.slow,
            again.fast
        ),
        evidence: vec![
            Figure::new("reclaims for each call", times, Unit::Ratio),
            Figure::new("time in reclaim", time, Unit::Ns),
            Figure::new("pages read again for each call", again, Unit::Pages),
            Figure::new("times that the group was at its limit", hits, Unit::Count),
        ],
    })
}

/// Confidence of the cost without and with a group at its limit, and its bounds.
const ALONE: (f64, f64, Bounds) = (0.76, 0.89, [0.6, 1.1]);

/// Part of the bytes that are read which go into no file's cache, from which on swap is read.
const FROM_SWAP: f64 = 0.5;

/// Part of the bytes that are read which come from swap: pages that no file's cache gets, and no direct call.
fn from_swap(facts: &Facts<'_>) -> f64 {
    let others = reads::uncached(facts.digest);
    if others >= FROM_SWAP && facts.digest.workload.direct[0] == 0 { others } else { 0.0 }
}

/// Part of the cost that are pages read again, from which on the working set is too large for the cache.
const REREAD: f64 = 0.8;

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    short(facts).filter(|(_, again)| *again < REREAD).map(|(cost, _)| cost)
}

/// The same where its pages are mostly read again.
pub(super) fn reread(facts: &Facts<'_>) -> Option<Cost> {
    short(facts).filter(|(_, again)| *again >= REREAD).map(|(cost, _)| cost)
}

/// The cost of short memory, and the part of it that are pages of files read again.
fn short(facts: &Facts<'_>) -> Option<(Cost, f64)> {
    let wall = facts.digest.wall.as_ref()?;
    let cache = &facts.digest.cache;
    // Pages that are read again are waited for again, by others that want them, too.
    let again = cache.again.min(cache.reclaimed) as f64;
    // Calls that list and look up read, too.
    let waits = facts.of_kinds(instead::kinds(0), &TRIPS) + facts.of_kinds(&[0], &[Layer::Lock, Layer::Cpu]);
    // Pages that are written come into the cache without a read.
    let read = facts.digest.commands.sectors[0] * SECTOR_BYTES / PAGE_BYTES;
    let read = if read > 0 { read.min(cache.added) } else { cache.added };
    let again = again / read.max(1) as f64;
    let waits = waits * again.min(1.0);
    let swapped = from_swap(facts);
    let swap_waits = facts.of_kinds(instead::kinds(0), &TRIPS) * swapped;
    let limit = facts.setting(|of, key| of == "cgroup" && key.starts_with("memory."));
    let hits = facts.counter("memory_limit_hits");
    if wall.reclaim.1 == 0 {
        return None;
    }
    let (without, with, bounds) = ALONE;
    // Data that do not fit are written back at once, and who writes waits for it, in reclaim and outside.
    let written = facts.digest.workload.bytes[1];
    let full = limit.is_some_and(|(_, value)| value.parse().is_ok_and(|bytes: u64| written > bytes));
    let writes = if full { facts.of_kinds(&[1], IO) } else { 0.0 };
    let ns = wall.reclaim.0.max(writes) + waits.max(swap_waits);
    let reread = if waits > swap_waits { waits / ns } else { 0.0 };
    let cost = Cost {
        ns,
        bounds,
        confidence: if hits > 0.0 || limit.is_some() { with } else { without },
        claim: format!(
            "{}: calls reclaim memory for {:.0} ms, and {}",
            limit.map_or("memory is short".to_owned(), |(key, value)| format!("the control group has {key}={value}")),
            wall.reclaim.0 / 1e6,
            if swapped > 0.0 {
                format!("{:.0} % of the bytes that are read come from swap", 100.0 * swapped)
            } else {
                format!("{:.0} % of the pages are read again", 100.0 * again.min(1.0))
            }
        ),
        setting: limit.map_or("more memory".to_owned(), |(key, _)| format!("{key} raised")),
        evidence: vec![
            ("time in reclaim", wall.reclaim.0, Unit::Ns),
            ("pages read again for each call", cache.again as f64 / facts.operations(), Unit::Pages),
            ("times that the group was at its limit", hits, Unit::Count),
        ],
    };
    Some((cost, reread))
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread, sure};
    use super::{Layer, RULE};
    use crate::digest::wall::Wall;

    /// Two commands of a thousand calls: on the slow side ten times as many reclaims, for half of the difference.
    fn reclaims() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                d.latency[0] = spread(1000, 1000.0);
                d.command = Some(Default::default());
            });
            p.fast.wall = Some(Wall { reclaim: (0.0, 100), ..Wall::default() });
            p.slow.wall = Some(Wall { reclaim: (500_000.0, 1000), ..Wall::default() });
        })
    }

    fn reclaimed(p: &mut Pair) -> [&mut (f64, u64); 2] {
        [&mut p.fast, &mut p.slow].map(|d| &mut d.wall.get_or_insert_default().reclaim)
    }

    /// Reclaims of a hundred thousand calls, none on the fast side.
    fn oftener(p: &mut Pair, slow: f64) {
        p.both(|d| d.latency[0] = spread(100_000, 10.0));
        let [fast, slow_side] = reclaimed(p);
        (fast.1, slow_side.1) = (0, slow as u64);
    }

    /// No time in reclaim, but pages that are read again.
    fn again(p: &mut Pair, fast: u64, slow: f64) {
        reclaimed(p)[1].0 = 0.0;
        (p.fast.cache.again, p.slow.cache.again) = (fast, slow as u64);
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("TIMES", |p, x| reclaimed(p)[1].1 = x as u64, 301.0, 300.0),
            ("OFTENER", oftener, 100.0, 99.0),
            ("PART", |p, x| reclaimed(p)[1].0 = x, 100_001.0, 100_000.0),
            ("AGAIN", |p, x| again(p, 0, x), 100.0, 99.0),
            ("AGAIN_TIMES", |p, x| again(p, 1000, x), 2001.0, 2000.0),
        ];
        hold(&RULE, reclaims, 0.8, edges);
        let hits: fn(&mut Pair, f64) = |p, x| p.count("memory_limit_hits", [100, x as u64]);
        sure(&RULE, reclaims, &[("HITS", hits, 300.0, 0.8), ("HITS", hits, 301.0, 0.95)]);
    }

    #[test]
    fn costs() {
        fn reclaims(a: &mut Alone, times: f64) {
            a.digest.wall = Some(Wall { reclaim: (3e5, times as u64), ..Wall::default() });
        }
        let short = || {
            Alone::of(|a| {
                reclaims(a, 10.0);
                (a.digest.cache.added, a.digest.cache.again, a.digest.cache.reclaimed) = (100, 50, 100);
                a.digest.time.ns[0][Layer::Device as usize] = 4e5;
                a.set("cgroup", "memory.max", "1000000");
            })
        };
        fn waits(a: &mut Alone, ns: f64) {
            a.digest.time.ns[0][Layer::Device as usize] = ns;
        }
        let edges: &[AloneEdge] = &[("reclaims", reclaims, 1.0, 0.0), ("REREAD", waits, 2.39e6, 2.41e6)];
        hold_cost(&RULE, short, (50.0, 0.89), edges);
        // Half of the pages that came into the cache were written.
        let mut half = short();
        half.digest.commands.sectors[0] = 400;
        assert!((half.ask(&RULE).expect("a cost").saves_pct - 70.0).abs() < 0.1);
        let mut full = short();
        (full.digest.workload.bytes[1], full.digest.time.ns[1][Layer::Device as usize]) = (1_000_001, 5e5);
        assert!((full.ask(&RULE).expect("a cost").saves_pct - 70.0).abs() < 0.1);
        // Three of four pages that were read are in no file's cache.
        fn added(a: &mut Alone, pages: f64) {
            a.digest.wall = Some(Wall { reclaim: (0.0, 10), ..Wall::default() });
            a.requests(0, 100, 32, 4e5);
            a.digest.cache.added = pages as u64;
        }
        let swaps = || Alone::of(|a| added(a, 100.0));
        let edges: &[AloneEdge] = &[
            ("FROM_SWAP", added, 200.0, 201.0),
            ("direct", |a, calls| a.digest.workload.direct[0] = calls as u64, 0.0, 1.0),
        ];
        hold_cost(&RULE, swaps, (30.0, 0.76), edges);
    }
}
