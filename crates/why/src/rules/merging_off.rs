//! Bios that continue a request do not join it, although it would hold them.

use std::ops::Range;

use super::cost::{Cost, Facts, SEEN};
use super::instead;
use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};
use crate::digest::WAITS;

pub(super) const RULE: Rule = Rule {
    name: "merging-off",
    layer: "merging",
    needs: super::REQUESTS,
    owns: super::Owns::Calls,
    single: super::Single::Counts,
    what: "Bios that continue a waiting request get requests of their own.",
    why: "Several commands replace a single one: each costs the CPU, the driver and the device once.",
    events: "Bios are as large as before, and as many continue a request that has not been issued; before, most of \
             these joined it, now none does, though it has room.",
    example: "nomerges=2 left in sysfs after a benchmark; a stacked device that hands on each bio at once.",
    change: "Write 0 to queue/nomerges; have the program ask for larger pieces.",
    refute: "With nomerges at 0 on the slow side the bios still do not join.",
    since: "nomerges in sysfs since 2.6.26, its value 2 since 2.6.36; before, elevators without merging.",
    // Where nothing joins, the largest request is the largest bio.
    consequences: &["requests-cut"],
    switches: &[
        Switch::Other("nomerges"),
        Switch::Key("nomerges", "0"),
        Switch::Queue("nomerges"),
        Switch::QueueTo("nomerges", "0"),
        Switch::Other("elevator"),
    ],
    find,
    cost: Some(cost),
};

/// Ratio of bio sizes: larger bios leave less to merge.
const EQUAL: Range<f64> = 0.9..1.1;
/// Share of bios that could join: with fewer, merging saves few commands.
const COULD: f64 = 0.1;
/// Share of these that join on the fast side: with fewer, merging was of little use before.
const JOINED: f64 = 0.3;
/// Share of these that join on the slow side: nomerges=1 leaves the simplest merges.
const STILL_JOINED: f64 = 0.1;
/// Ratio of request sizes: lost merges that hardly shrink requests cost little.
const SMALLER: f64 = 1.2;
/// Ratios of request sizes, half sure and sure.
const GRADE: (f64, f64) = (1.1, 2.0);

fn find(delta: &Delta<'_>) -> Option<Match> {
    for (way, name) in ["read", "write"].into_iter().enumerate() {
        let part = |joined: u64, could: u64| if could == 0 { 0.0 } else { joined as f64 / could as f64 };
        let joined = delta.of(|d| part(d.bios.joined[way], d.bios.could_join[way]));
        let could = delta.of(|d| part(d.bios.could_join[way], d.bios.count[way]));
        let size = delta.of(|d| d.bios.sizes[way].mean() * 512.0);
        let request = delta.of(|d| d.commands.sizes[way].mean() * 512.0);
        let equal = EQUAL.contains(&size.ratio()) && could.fast > COULD && could.slow > COULD;
        if equal && joined.fast > JOINED && joined.slow < STILL_JOINED && request.fell(SMALLER) {
            return Some(Match {
                confidence: grade(request.fast / request.slow.max(1.0), GRADE.0, GRADE.1),
                share_ns: None,
                claim: format!(
                    "{name} bios that continue a request no longer join it: {:.0} % do, where {:.0} % did",
                    100.0 * joined.slow,
                    100.0 * joined.fast
                ),
                evidence: vec![
                    Figure::new(format!("share of the {name} bios that could join and did"), joined, Unit::Share),
                    Figure::new(format!("share of {name} bios that could join"), could, Unit::Share),
                    Figure::new(format!("mean {name} bio"), size, Unit::Bytes),
                    Figure::new(format!("mean {name} request"), request, Unit::Bytes),
                ],
            });
        }
    }
    None
}

/// KiB of a request if the disk's own limit is not known: most drives take more.
const LARGE_KB: f64 = 512.0;

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let bios = &facts.digest.bios;
    let way = usize::from(bios.could_join[1] > bios.could_join[0]);
    let apart = bios.could_join[way].saturating_sub(bios.joined[way]) as f64 / (bios.count[way].max(1)) as f64;
    let off = facts.number_of_disk("nomerges").filter(|level| *level > 0.0)?;
    let time = facts.in_layers(&WAITS);
    // As many requests less as bios do not join.
    let most = facts.number_of_disk("max_sectors_kb").unwrap_or(LARGE_KB) * 1024.0 / 512.0;
    let saved = instead::fewer(facts, way, (instead::own(facts, way).0 / (1.0 - apart)).min(most), false)?;
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: format!(
            "nomerges={off:.0}: {:.0} % of the bios could join the request before them, and do not",
            100.0 * apart
        ),
        setting: "nomerges=0".to_owned(),
        evidence: vec![
            ("share of bios that could join a request and do not", apart, Unit::Share),
            ("time in I/O", time, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread};
    use super::RULE;

    /// A thousand bios that continue one another; all join and make requests of half the size more, then none does.
    fn off(way: usize) -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                d.bios.count[way] = 1000;
                d.bios.could_join[way] = 1000;
                d.bios.sizes[way] = spread(1, 1000.0);
            });
            p.fast.bios.joined[way] = 1000;
            p.fast.commands.sizes[way] = spread(1, 1500.0);
            p.slow.commands.sizes[way] = spread(1, 1000.0);
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("EQUAL, smaller", |p, x| p.slow.bios.sizes[0] = spread(1, x), 900.0, 899.0),
            ("EQUAL, larger", |p, x| p.slow.bios.sizes[0] = spread(1, x), 1099.0, 1100.0),
            ("COULD", |p, x| p.slow.bios.could_join[0] = x as u64, 101.0, 100.0),
            ("COULD, fast", |p, x| p.fast.bios.could_join[0] = x as u64, 101.0, 100.0),
            ("JOINED", |p, x| p.fast.bios.joined[0] = x as u64, 301.0, 300.0),
            ("STILL_JOINED", |p, x| p.slow.bios.joined[0] = x as u64, 99.0, 100.0),
            ("SMALLER", |p, x| p.fast.commands.sizes[0] = spread(1, x), 1201.0, 1200.0),
        ];
        hold(&RULE, || off(0), 0.7594, edges);
        hold(&RULE, || off(1), 0.7594, &[("JOINED, writes", |p, x| p.fast.bios.joined[1] = x as u64, 301.0, 300.0)]);
    }

    #[test]
    fn costs() {
        let apart = || {
            Alone::of(|a| {
                (a.digest.bios.count[0], a.digest.bios.could_join[0]) = (100, 100);
                a.set("recording", "disk", "sda");
                a.set("sda", "nomerges", "2");
                a.requests(0, 100, 8, 8e5);
            })
        };
        let edges: &[AloneEdge] = &[
            ("nomerges", |a, x| a.set("sda", "nomerges", &x.to_string()), 1.0, 0.0),
            ("LARGE_KB, or the disk's own", |a, x| a.set("sda", "max_sectors_kb", &x.to_string()), 512.0, 4.0),
        ];
        hold_cost(&RULE, apart, (72.9, 0.8), edges);
    }
}
