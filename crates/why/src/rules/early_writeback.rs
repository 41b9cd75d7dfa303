//! Dirty pages are written while the program still works, and its reads wait behind them.

use super::cost::{Cost, Facts, MARKED, SEEN};
use super::instead::{self, Saved};
use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};
use crate::digest::{KIND_OTHER, KIND_SYNC, Layer, WAITS};
use iowhy_stack::units::PAGE_SECTORS;

pub(super) const RULE: Rule = Rule {
    name: "early-writeback",
    layer: "journal/writeback",
    needs: super::REQUESTS,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "Writing back begins early and competes with the program's reads; no writer is stopped.",
    why: "Dirty pages have to be written some day; if that is at once, pages that are changed again are written again, \
          and each write takes the device from a read with a waiting task.",
    events: "Writes at the device that no call waits for, more of them for an operation, while reads wait; no writer \
             sleeps.",
    example: "dirty_background_ratio=0 (or dirty_background_bytes of a few kilobytes) set to keep pauses short.",
    change: "Raise dirty_background_ratio and dirty_expire_centisecs; a scheduler that prefers reads (deadline, BFQ).",
    refute: "With the other side's limits for the background the reads take as long.",
    since: "Every kernel.",
    consequences: &["lost-locality", "reads-starved", "device-latency"],
    switches: &[Switch::OtherKind("writeback."), Switch::Other("machine.memory_mb")],
    find,
    cost: Some(cost),
};

/// Buffered writes: fewer are a report or a log.
const LEAST_WRITES: f64 = 10.0;
/// Growth of the requests that write back.
const MORE: f64 = 1.5;
/// Growth of the stops of writers, up to which they are stopped as often as before.
const STOPPED: f64 = 1.2;
/// Part of the difference that reads have to wait behind them.
const LEAST_PART: f64 = 0.1;
/// Growth of the requests that write back, half sure and sure.
const GRADE: (f64, f64) = (1.2, 3.0);

fn find(delta: &Delta<'_>) -> Option<Match> {
    let buffered = delta.of(|d| d.workload.calls[1].saturating_sub(d.workload.direct[1]) as f64);
    let written = delta.per_operation(|d| d.commands.written_back as f64);
    let behind = delta.per_operation(|d| d.commands.behind_writeback as f64);
    let reads = delta.per_operation(|d| d.latency[0].sum() / f64::from(d.time.slots.max(1)));
    let throttles = delta.per_operation(|d| d.sync.throttles as f64);
    // A drive takes writes into its cache at once and has to put them down later: each takes a command's time then.
    let price = delta.of(|d| {
        let commands = (d.commands.issued[0] + d.commands.issued[1]).max(1);
        d.commands.busy as f64 / commands as f64 / f64::from(d.time.slots.max(1))
    });
    let later = written.difference() * price.fast;
    let owned = behind.difference().max(later).min(reads.difference());
    if buffered.slow < LEAST_WRITES
        || !written.rose(MORE)
        || throttles.slow > STOPPED * throttles.fast
        || owned < LEAST_PART * delta.slower_by()
    {
        return None;
    }
    Some(Match {
        confidence: grade(written.ratio(), GRADE.0, GRADE.1),
        share_ns: Some(owned),
        claim: format!(
            "{:.2} requests of an operation write dirty pages back while the program reads (before {:.2}), though no \
             writer is stopped",
            written.slow, written.fast
        ),
        evidence: vec![
            Figure::new("requests that write back for an operation", written, Unit::Count),
            Figure::new("time of reads behind them for an operation", behind, Unit::Ns),
            Figure::new("time of reads for an operation", reads, Unit::Ns),
            Figure::new("stops of writers for an operation", throttles, Unit::Count),
        ],
    })
}

/// Percent of memory that may be dirty before writing back begins, by default.
const USUAL_RATIO: f64 = 10.0;
/// Hundredths of a second after which pages are written back, by default, and so early that reads meet it.
const USUAL_CS: f64 = 3000.0;
const YOUNG_CS: f64 = 100.0;
/// Part of the cost that is the least: what is dirty has to be written some time.
const LEAST: f64 = 0.3;

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    limited(facts).or_else(|| truncated(facts))
}

/// Writes of files that are truncated meanwhile, at least; part of the written pages that are dropped, and of the time
/// that it takes; commits for each.
const TRUNCATED: f64 = 16.0;
const MOSTLY: f64 = 0.5;
const COMMITS: f64 = 0.2;

/// Files that are truncated, replaced or removed while their pages are written back, which nobody has asked for.
fn truncated(facts: &Facts<'_>) -> Option<Cost> {
    let d = facts.digest;
    let [reads, writes] = d.commands.issued.map(|nr| nr as f64);
    let pages = d.commands.sectors[1] as f64 / PAGE_SECTORS as f64;
    let waits = facts.of_kinds(&[KIND_OTHER], &[&WAITS[..], &[Layer::Journal, Layer::Ready]].concat());
    let alone = d.workload.calls[KIND_SYNC] == 0 && d.sync.commits as f64 <= COMMITS * writes && reads <= writes;
    if writes < TRUNCATED || !alone || (d.cache.dropped as f64) < MOSTLY * pages || waits < MOSTLY * facts.whole_ns {
        return None;
    }
    let saved = Saved::of(waits, LEAST * waits, waits);
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: format!(
            "{writes:.0} requests write files back that are truncated or replaced at once, which has to wait for them"
        ),
        setting: "fewer truncations of the same file (or noauto_da_alloc, if a crash may leave it empty)".to_owned(),
        evidence: vec![
            ("requests that write", writes, Unit::Count),
            ("pages that are dropped", d.cache.dropped as f64, Unit::Pages),
            ("time that calls other than reads and writes wait", waits, Unit::Ns),
        ],
    })
}

/// A limit for the background that somebody has set, and reads behind what it makes be written.
fn limited(facts: &Facts<'_>) -> Option<Cost> {
    let number = |key: &str| facts.settings.get("sysctl", key).and_then(|value| value.parse::<f64>().ok());
    let bytes = number("vm.dirty_background_bytes").filter(|bytes| *bytes > 0.0);
    let ratio = || number("vm.dirty_background_ratio").filter(|ratio| *ratio < USUAL_RATIO);
    let usual = || format!("vm.dirty_background_ratio={USUAL_RATIO:.0}");
    let (limit, setting) = match (bytes, ratio()) {
        (Some(bytes), _) => (format!("vm.dirty_background_bytes={bytes:.0}"), usual()),
        (None, Some(ratio)) => (format!("vm.dirty_background_ratio={ratio:.0}"), usual()),
        (None, None) => {
            let age = number("vm.dirty_expire_centisecs")?.max(number("vm.dirty_writeback_centisecs")?);
            let limit = format!("vm.dirty_expire_centisecs and vm.dirty_writeback_centisecs of {age:.0} at most");
            (age <= YOUNG_CS).then_some((limit, format!("vm.dirty_expire_centisecs={USUAL_CS:.0}")))?
        }
    };
    let commands = &facts.digest.commands;
    let behind = commands.behind_writeback as f64;
    let most = behind.min(facts.reads_wait());
    // The disk has to read as much without the writes, for which it takes this long.
    let (size, nr) = instead::own(facts, 0);
    let alone = nr * instead::at_most(facts.service, size).unwrap_or(0.0);
    let ns = (facts.reads_wait() - alone).clamp(LEAST * most, most);
    let saved = Saved::of(ns, LEAST * most, most);
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: MARKED,
        claim: format!(
            "{limit}: {} requests write dirty pages back, and reads wait {:.0} ms behind them",
            commands.written_back,
            behind / 1e6
        ),
        setting,
        evidence: vec![
            ("requests that write back", commands.written_back as f64, Unit::Count),
            ("time of reads behind them", behind, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread};
    use super::RULE;
    use crate::digest::{KIND_OTHER, KIND_SYNC, Layer};

    /// Twenty writes beside ten reads; twice as many requests write back, and reads wait behind them for half of the
    /// difference.
    fn early() -> Pair {
        Pair::of(|p| {
            p.both(|d| (d.workload.calls[1], d.sync.throttles) = (20, 100));
            (p.fast.commands.written_back, p.slow.commands.written_back) = (100, 200);
            p.slow.commands.behind_writeback = 500_000;
        })
    }

    /// A hundred commands of 1 us keep the device busy, and a hundred more are to come.
    fn later() -> Pair {
        let mut pair = early();
        (pair.fast.commands.issued, pair.fast.commands.busy) = ([50, 50], 200_000);
        pair.slow.commands.behind_writeback = 0;
        pair
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("LEAST_WRITES", |p, x| p.slow.workload.calls[1] = x as u64, 10.0, 9.0),
            ("LEAST_WRITES, direct", |p, x| p.slow.workload.direct[1] = x as u64, 10.0, 11.0),
            ("MORE", |p, x| p.slow.commands.written_back = x as u64, 151.0, 150.0),
            ("STOPPED", |p, x| p.slow.sync.throttles = x as u64, 120.0, 121.0),
            ("LEAST_PART", |p, x| p.slow.commands.behind_writeback = x as u64, 100_000.0, 99_999.0),
            ("LEAST_PART, reads", |p, x| p.fast.latency[0] = spread(10, x), 190_000.0, 190_001.0),
        ];
        hold(&RULE, early, 0.779, edges);
        let edges: &[Edge] = &[("LEAST_PART", |p, x| p.fast.commands.busy = x as u64, 100_000.0, 99_999.0)];
        hold(&RULE, later, 0.779, edges);
    }

    #[test]
    fn costs() {
        let early = || {
            Alone::of(|a| {
                a.requests(0, 100, 8, 6e5);
                a.digest.commands.behind_writeback = 500_000;
                a.set("sysctl", "vm.dirty_background_ratio", "5");
            })
        };
        let edges: &[AloneEdge] = &[
            ("USUAL_RATIO", |a, x| a.set("sysctl", "vm.dirty_background_ratio", &x.to_string()), 9.0, 10.0),
            ("behind", |a, x| a.digest.commands.behind_writeback = x as u64, 100_000.0, 99_999.0),
        ];
        hold_cost(&RULE, early, (50.0, 0.85), edges);
        // Of 600 us that reads wait, a hundred of 4 us would be their own.
        let measured = || {
            let mut alone = early();
            alone.service = vec![(8, 4e3)];
            alone
        };
        hold_cost(&RULE, measured, (20.0, 0.85), &[]);
        fn expires(a: &mut Alone, cs: f64) {
            a.set("sysctl", "vm.dirty_expire_centisecs", &cs.to_string());
            a.set("sysctl", "vm.dirty_writeback_centisecs", "50");
        }
        let young = || {
            let mut alone = early();
            alone.set("sysctl", "vm.dirty_background_ratio", "10");
            expires(&mut alone, 50.0);
            alone
        };
        hold_cost(&RULE, young, (50.0, 0.85), &[("YOUNG_CS", expires, 100.0, 101.0)]);
        let found = young().ask(&RULE).expect("a cost");
        assert!(found.cost.setting.ends_with("=3000"), "{}: {found:?}", "USUAL_CS");
        // Twenty pages are written, and dropped.
        let truncated = || {
            Alone::of(|a| {
                a.requests(1, 20, 8, 6e5);
                (a.digest.commands.sectors[1], a.digest.cache.dropped) = (160, 20);
                a.digest.commands.issued[0] = 0;
                a.digest.time.ns[1][Layer::Device as usize] = 0.0;
                a.digest.time.ns[KIND_OTHER][Layer::Device as usize] = 6e5;
            })
        };
        let edges: &[AloneEdge] = &[
            ("TRUNCATED", |a, x| a.digest.commands.issued[1] = x as u64, 16.0, 15.0),
            ("MOSTLY, pages", |a, x| a.digest.cache.dropped = x as u64, 10.0, 9.0),
            ("MOSTLY", |a, x| a.digest.time.ns[KIND_OTHER][Layer::Device as usize] = x, 5e5, 4.9e5),
            ("COMMITS", |a, x| a.digest.sync.commits = x as u64, 4.0, 5.0),
            ("reads", |a, x| a.digest.commands.issued[0] = x as u64, 20.0, 21.0),
            ("syncs", |a, x| a.digest.workload.calls[KIND_SYNC] = x as u64, 0.0, 1.0),
        ];
        hold_cost(&RULE, truncated, (60.0, 0.8), edges);
    }
}
