//! Writes of parts of pages wait until the rest of the page is read.

use super::cost::{Cost, Facts, MARKED};
use super::instead::Saved;
use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "partial-page-writes",
    layer: "page cache",
    needs: super::CALLS_AND_BIOS,
    owns: super::Owns::Writes,
    single: super::Single::Counts,
    what: "Writes of parts of pages wait until those pages are read from the device.",
    why: "The page cache keeps whole pages. A write that covers one in part needs the rest of it: if the page holds \
          data and is not in the cache, it is read first, one page at a time and without read-ahead.",
    events: "Reads of data by write calls whose begin or end is within a page.",
    example: "Records of 4000 bytes that are updated in place after a restart; a block size of 512 bytes or 2 KiB over \
              pages of 4 KiB.",
    change: "Write whole, aligned pages; or read the file (POSIX_FADV_WILLNEED) before it is updated; or use direct \
             I/O.",
    refute: "With whole, aligned pages, or with the file in the cache, writes take as long.",
    since: "Every kernel.",
    consequences: &["synchronous-writes", "device-latency", "cold-cache", "syncs-added"],
    switches: &[Switch::OtherJob],
    find,
    cost: Some(cost),
};

/// Part of the difference: a smaller one is not worth a finding.
const LEAST_PART: f64 = 0.3;
/// Growth of the share of writes that read first.
const MORE: f64 = 0.1;
/// One plus the growth of that share, half sure and sure.
const GRADE: (f64, f64) = (1.1, 1.6);
/// Highest confidence: the pages may be out of the cache for a reason of their own.
const MOST_SURE: f64 = 0.95;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let share = delta.of(|d| d.workload.read_first[0] as f64 / d.workload.calls[1].max(1) as f64);
    let time = delta.of_work(|d| d.workload.read_first[1] as f64);
    if !share.rose_by(MORE) || time.difference() < LEAST_PART * delta.slower_by() {
        return None;
    }
    Some(Match {
        confidence: grade(1.0 + share.difference(), GRADE.0, GRADE.1).min(MOST_SURE),
        share_ns: Some(time.difference().min(delta.slower_by())),
        claim: format!(
            "{:.0} % of the writes cover pages in part and wait until these are read (before {:.0} %)",
            100.0 * share.slow,
            100.0 * share.fast
        ),
        evidence: vec![
            Figure::new("share of writes that read first", share, Unit::Share),
            Figure::new("time until pages are read, for an operation", time, Unit::Ns),
        ],
    })
}

/// Writes that read first: fewer are the end of a file.
const ENOUGH: u64 = 16;
/// The least part of the cost: what is written has to reach the device, too.
const LEAST: f64 = 0.5;

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let [writes, ns] = facts.digest.workload.read_first;
    if writes < ENOUGH {
        return None;
    }
    // Several tasks wait at once.
    let waits = facts.of_kinds(&[1], &super::cost::TRIPS);
    let ns = (ns as f64).min(waits);
    let saved = Saved::of(ns, LEAST * ns, waits);
    let share = writes as f64 / facts.digest.workload.calls[1].max(1) as f64;
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: MARKED,
        claim: format!("{:.0} % of the writes cover pages in part and wait until these are read", 100.0 * share),
        setting: "writes of whole, aligned pages".to_owned(),
        evidence: vec![
            ("share of writes that read first", share, Unit::Share),
            ("time until pages are read", ns, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, sure};
    use super::RULE;
    use crate::digest::{Layer, Spread};

    /// Ten writes of a run; on the slow side each reads its page first, for half of its time.
    fn partial() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                d.workload.calls = [0, 10, 0];
                d.latency.swap(0, 1);
            });
            p.slow.workload.read_first = [10, 1_000_000];
            p.slow.time.ns[1][Layer::Device as usize] = 1e6;
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("LEAST_PART", |p, x| p.slow.workload.read_first[1] = x as u64, 300_000.0, 299_999.0),
            ("MORE", |p, x| p.fast.workload.read_first = [x as u64, 0], 8.0, 9.0),
        ];
        hold(&RULE, partial, 0.95, edges);
        let put: fn(&mut Pair, f64) = |p, x| p.slow.workload.read_first[0] = x as u64;
        sure(&RULE, partial, &[("MOST_SURE", put, 10.0, 0.95), ("GRADE", put, 3.0, 0.7229)]);
    }

    #[test]
    fn costs() {
        let alone = || {
            Alone::of(|a| {
                a.digest.workload.calls[1] = 20;
                a.digest.latency = [Spread::default(), a.digest.latency[0].clone(), Spread::default()];
                a.digest.workload.read_first = [20, 500_000];
                a.digest.time.ns[1][Layer::Device as usize] = 5e5;
            })
        };
        let edges: &[AloneEdge] = &[("ENOUGH", |a, x| a.digest.workload.read_first[0] = x as u64, 16.0, 15.0)];
        hold_cost(&RULE, alone, (50.0, 0.85), edges);
        let found = alone().ask(&RULE).expect("a cost");
        assert!((found.bounds_pct[0] - 25.0).abs() < 0.1, "{}: {found:?}", "LEAST");
    }
}
