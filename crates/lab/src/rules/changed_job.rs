//! The job itself is another one: other sizes, other places, more threads, more syncs.

use std::collections::BTreeMap;

use super::{Figure, Match, Rule};
use crate::explain::delta::{Delta, Unit};
use crate::explain::digest::Digest;

pub(super) const RULE: Rule = Rule {
    name: "changed-job",
    layer: "application",
    what: "The two sides do not run the same job.",
    why: "Other sizes, places, threads or syncs ask for other work, whatever the kernel does with it.",
    events: "The calls differ before anything below them does: their sizes, the share of reads, writes and syncs, how \
             many are in progress at once, how often one goes on where another ended, whether they pass the page cache.",
    example: "bs=4k in one job file and bs=16k in the other; a library that calls fsync after each record.",
    change: "Compare equal jobs, or take the difference as the price of the job.",
    refute: "The same job file on both sides shows the same difference.",
    since: "Every kernel.",
    consequences: &[],
    switches: &[super::Switch::OtherJob],
    find,
};

/// How much two distributions over sizes differ: half the sum of the differences of their shares, 0 to 1.
fn distance(a: &BTreeMap<u32, u64>, b: &BTreeMap<u32, u64>) -> f64 {
    let total = |of: &BTreeMap<u32, u64>| of.values().sum::<u64>().max(1) as f64;
    let (all_a, all_b) = (total(a), total(b));
    let mut sum = 0.0;
    for size in a.keys().chain(b.keys().filter(|size| !a.contains_key(size))) {
        let share = |of: &BTreeMap<u32, u64>, all| of.get(size).copied().unwrap_or(0) as f64 / all;
        sum += (share(a, all_a) - share(b, all_b)).abs();
    }
    sum / 2.0
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A feature of a job: name, unit, how much of a difference counts, and the figure.
type Feature = (&'static str, Unit, Scale, fn(&Digest) -> f64);

/// How differences of a feature are judged.
#[derive(Copy, Clone)]
enum Scale {
    /// By their size.
    Absolute(f64),
    /// By their ratio.
    Ratio(f64),
}

const FEATURES: &[Feature] = &[
    ("share of reads among calls", Unit::Share, Scale::Absolute(0.03), |d| {
        share(d.workload.calls[0], d.workload.calls[0] + d.workload.calls[1])
    }),
    ("syncs for each write", Unit::Ratio, Scale::Ratio(1.15), |d| {
        share(d.workload.calls[2], d.workload.calls[1].max(1))
    }),
    ("mean size of a read call", Unit::Bytes, Scale::Ratio(1.1), |d| {
        share(d.workload.bytes[0], d.workload.calls[0])
    }),
    ("mean size of a write call", Unit::Bytes, Scale::Ratio(1.1), |d| {
        share(d.workload.bytes[1], d.workload.calls[1])
    }),
    ("most calls in progress at once", Unit::Count, Scale::Ratio(1.2), |d| f64::from(d.workload.concurrency)),
    ("files", Unit::Count, Scale::Ratio(1.2), |d| f64::from(d.workload.files)),
    ("share of calls that go on where one ended", Unit::Share, Scale::Absolute(0.1), |d| {
        share(
            d.workload.sequential[0] + d.workload.sequential[1],
            d.workload.calls[0] + d.workload.calls[1],
        )
    }),
    ("share of calls that go round the page cache", Unit::Share, Scale::Absolute(0.1), |d| {
        share(d.workload.direct[0] + d.workload.direct[1], d.workload.calls[0] + d.workload.calls[1])
    }),
    ("share of calls in the busiest tenth of the regions", Unit::Share, Scale::Absolute(0.1), |d| d.workload.top_tenth),
];

fn find(delta: &Delta<'_>) -> Option<Match> {
    let mut evidence = Vec::new();
    let mut words = Vec::new();
    for (what, unit, scale, figure) in FEATURES {
        let contrast = delta.of(figure);
        let differs = match scale {
            Scale::Absolute(least) => contrast.difference().abs() >= *least,
            Scale::Ratio(least) => {
                let ratio = contrast.ratio();
                // One call in thousands is no feature of a job.
                (ratio >= *least || ratio <= 1.0 / least) && contrast.fast.max(contrast.slow) > 1e-4
            }
        };
        if differs && contrast.sure() {
            words.push(*what);
            evidence.push(Figure::new(*what, contrast, *unit));
        }
    }
    for (kind, name) in ["reads", "writes"].into_iter().enumerate() {
        let (Some(fast), Some(slow)) = (delta.fast.runs.first(), delta.slow.runs.first()) else { continue };
        let far = distance(&fast.workload.sizes[kind], &slow.workload.sizes[kind]);
        let both = fast.workload.calls[kind].min(slow.workload.calls[kind]) > 100;
        if far > 0.1 && both && evidence.is_empty() {
            let contrast = delta.of(|d| d.workload.sizes[kind].len() as f64);
            words.push("sizes of calls");
            evidence.push(Figure::new(format!("different sizes of {name}"), contrast, Unit::Count));
        }
    }
    if words.is_empty() {
        return None;
    }
    let claim = format!("the jobs differ: {}", words.join(", "));
    Some(Match { confidence: 0.95, share_ns: None, claim, evidence })
}
