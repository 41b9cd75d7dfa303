//! Bios that merge into one large request are all done when the last of them is.
//!
//! Known limit: no pair of simulated runs has been found in which this makes a job slower by itself (2.6.38 with noop
//! and larger requests is faster, for a command costs more than the wait for its last page): the rule is held by
//! made-up digests only.

use std::ops::Range;

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "merge-delays-first-page",
    layer: "merging",
    needs: super::REQUESTS,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "Small reads wait for a large merged request: their page is done only when all of the request is.",
    why: "A page that is asked for is put behind, or in one request with, pages that are not yet; the caller sleeps \
          until the whole request has been transferred.",
    events: "Bios are as large as before but more of them join; read requests are larger, and a call that needs a \
             small part of one waits longer at the device, though the device moves as many bytes a second.",
    example: "A lazy plug that joins the read-ahead of two windows; noop, which merges whatever stands side by side.",
    change: "Lower max_sectors_kb to about the size that the application asks for, or read ahead less.",
    refute: "With requests as small as on the other side the calls wait as long.",
    since: "Every kernel that merges.",
    consequences: &[],
    switches: &[Switch::Other("max_sectors_kb"), Switch::OtherKind("plug."), Switch::Other("elevator")],
    find,
    cost: None,
};

/// Ratio of bio sizes, and of bytes per call: only merging may differ.
const EQUAL: Range<f64> = 0.9..1.1;
/// Ratio of request sizes: a slightly larger request delays its first page by little.
const LARGER: f64 = 1.3;
/// Growth of the share of bios that join: without it, larger requests come from elsewhere.
const JOINED: f64 = 0.1;
/// Calls that fit into a request: a call that needs most of one waits for its own data.
const CALLS: f64 = 2.0;
/// Quantile of read times: waits for the largest requests show in the longest calls.
const LONGEST: f64 = 0.99;
/// Growth of that time: the commands that merging saves may outweigh less.
const LONGER: f64 = 1.2;
/// Ratios of request sizes, half sure and sure.
const GRADE: (f64, f64) = (1.2, 3.0);
/// Upper bound: larger requests usually help, so another cause remains possible.
const MOST_SURE: f64 = 0.8;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let request = delta.of(|d| d.commands.sizes[0].mean() * 512.0);
    let bio = delta.of(|d| d.bios.sizes[0].mean() * 512.0);
    let call = delta.of(|d| d.workload.bytes[0] as f64 / d.workload.calls[0].max(1) as f64);
    let joined = delta.of(|d| d.bios.joined[0] as f64 / d.bios.count[0].max(1) as f64);
    let wait = delta.of(|d| d.latency[0].quantile(LONGEST));
    let bytes = delta.per_operation(|d| d.commands.sectors[0] as f64 * 512.0);
    let equal = EQUAL.contains(&bio.ratio()) && EQUAL.contains(&bytes.ratio());
    let merged = request.rose(LARGER) && joined.rose_by(JOINED);
    if !(equal && merged && call.slow * CALLS <= request.slow && wait.rose(LONGER)) {
        return None;
    }
    Some(Match {
        confidence: grade(request.ratio(), GRADE.0, GRADE.1).min(MOST_SURE),
        share_ns: None,
        claim: format!(
            "reads of {:.0} KB wait for requests of {:.0} KB, into which {:.0} % of the bios were merged",
            call.slow / 1024.0,
            request.slow / 1024.0,
            100.0 * joined.slow
        ),
        evidence: vec![
            Figure::new("mean read request", request, Unit::Bytes),
            Figure::new("mean read bio", bio, Unit::Bytes),
            Figure::new("share of bios that joined a request", joined, Unit::Share),
            Figure::new("longest read calls (99 %)", wait, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, spread, sure};
    use super::RULE;

    /// Requests of 8 KiB instead of 4 KiB, because half of the bios join.
    fn merged() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                d.bios.count[0] = 1000;
                d.bios.sizes[0] = spread(1, 1000.0);
                d.commands.sectors[0] = 1000;
            });
            p.slow.bios.joined[0] = 500;
            p.fast.commands.sizes[0] = spread(1, 8.0);
            p.slow.commands.sizes[0] = spread(1, 16.0);
        })
    }

    fn larger(p: &mut Pair, slow: f64) {
        p.fast.commands.sizes[0] = spread(1, 1000.0);
        p.slow.commands.sizes[0] = spread(1, slow);
    }

    /// A few of a hundred calls take longer.
    fn longest(p: &mut Pair, few: f64) {
        p.both(|d| d.latency[0] = spread(100, 100_000.0));
        p.slow.latency[0] = spread(100 - few as u64, 100_000.0);
        p.slow.latency[0].merge(&spread(few as u64, 200_000.0));
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("EQUAL, smaller bios", |p, x| p.slow.bios.sizes[0] = spread(1, x), 900.0, 899.0),
            ("EQUAL, larger bios", |p, x| p.slow.bios.sizes[0] = spread(1, x), 1099.0, 1100.0),
            ("EQUAL, fewer bytes", |p, x| p.slow.commands.sectors[0] = x as u64, 900.0, 899.0),
            ("EQUAL, more bytes", |p, x| p.slow.commands.sectors[0] = x as u64, 1099.0, 1100.0),
            ("LARGER", larger, 1301.0, 1300.0),
            ("JOINED", |p, x| p.slow.bios.joined[0] = x as u64, 100.0, 99.0),
            ("CALLS", |p, x| p.slow.workload.bytes[0] = x as u64, 40_960.0, 40_961.0),
            ("LONGEST", longest, 2.0, 1.0),
            ("LONGER", |p, x| p.slow.latency[0] = spread(10, x), 120_001.0, 120_000.0),
        ];
        hold(&RULE, merged, 0.7787, edges);
        sure(&RULE, merged, &[("MOST_SURE", larger, 3000.0, 0.8)]);
    }
}
