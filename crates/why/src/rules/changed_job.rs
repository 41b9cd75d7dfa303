//! The job itself is another one: other sizes, other places, more threads, more syncs.
//!
//! The difference has to matter: calls of that kind move a part of the bytes, or are often made and own a part of the
//! difference. Two writes of a report that grew by a line make no other job.

use std::collections::BTreeMap;

use super::{Figure, Match, Rule, grade};
use super::{reads, recorded, syncs_added};
use crate::delta::{Basis, Contrast, Delta, Unit};
use crate::digest::Digest;
use iowhy_stats::figure::share;

pub(super) const RULE: Rule = Rule {
    name: "changed-job",
    layer: "application",
    needs: super::CALLS,
    owns: super::Owns::Everything,
    single: super::Single::Counts,
    what: "The two sides do not run the same job.",
    why: "Other sizes, places, threads or syncs ask for other work, whatever the kernel does with it.",
    events: "The calls differ before anything below them does: their sizes, the share of reads, writes and syncs, how \
             many are in progress at once, how often one goes on where another ended, whether they use the page cache.",
    example: "bs=4k in one job file and bs=16k in the other; a library that calls fsync after each record.",
    change: "Compare equal jobs, or take the difference as the price of the job.",
    refute: "The same job file on both sides shows the same difference.",
    since: "Every kernel.",
    consequences: &[
        "cpu-bound-submission",
        "syncs-added",
        "queue-depth-one",
        "lost-locality",
        "reads-starved",
        "writes-starved",
        "slice-idling",
        "writeback-throttling",
        "journal-commit-per-fsync",
        "merge-delays-first-page",
        "read-larger-than-window",
        "metadata-reads",
        "early-writeback",
    ],
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

/// A feature of a job: name, unit, the kinds of calls it is about, how much of a difference counts, the condition for
/// it to count, and the figure.
type Feature = (&'static str, Unit, &'static [usize], Scale, fn(&Delta<'_>) -> bool, fn(&Digest) -> f64);

/// How differences of a feature are judged.
#[derive(Copy, Clone)]
enum Scale {
    /// By their size.
    Absolute(f64),
    /// By their ratio.
    Ratio(f64),
}

impl Scale {
    /// How far beyond what counts a difference is, as a ratio; less than 1 if it does not count.
    fn beyond(self, contrast: &Contrast) -> f64 {
        match self {
            Scale::Absolute(least) => contrast.difference().abs() / least,
            Scale::Ratio(least) => {
                let ratio = contrast.ratio();
                ratio.max(1.0 / ratio) / least
            }
        }
    }
}

/// Part of the bytes, or of the calls, that makes a kind of calls one that matters.
const PART: f64 = 0.05;
/// Part of the difference that such calls have to own if they move hardly any bytes.
const OWNED: f64 = 0.1;

/// Calls of this kind (reads, writes, syncs) are a part of the job that can make the difference.
fn material(delta: &Delta<'_>, kind: usize) -> bool {
    let part = |of: fn(&Digest) -> &[u64; 3]| {
        let part = delta.of(|d| share(of(d)[kind], of(d).iter().sum()));
        part.fast.max(part.slow)
    };
    let time = delta.per_operation(|d| d.latency[kind].sum() / f64::from(d.time.slots.max(1)));
    // Syncs move no bytes, and a few of them can take all of the time.
    let often = kind == 2 || part(|d| &d.workload.calls) >= PART;
    part(|d| &d.workload.bytes) >= PART || often && time.difference() >= OWNED * delta.slower_by()
}

fn data_calls(digest: &Digest) -> u64 {
    digest.workload.calls[0] + digest.workload.calls[1]
}

fn always(_: &Delta<'_>) -> bool {
    true
}

/// Both sides made as many calls: neither did less because it was slower and had only limited time.
fn as_many(delta: &Delta<'_>) -> bool {
    (0.97..=1.03).contains(&delta.of(|d| data_calls(d) as f64).ratio())
}

/// The run does not end by the clock. If it does, threads that are slowed down make fewer calls among all.
fn by_work(delta: &Delta<'_>) -> bool {
    let elapsed = delta.of(|d| d.elapsed.0 as f64).ratio();
    as_many(delta) || !(0.93..=1.07).contains(&elapsed)
}

/// Every file of the job had a good chance to be seen.
fn files_seen(delta: &Delta<'_>) -> bool {
    let calls = delta.of(|d| share(data_calls(d), u64::from(d.workload.files)));
    calls.fast.min(calls.slow) > 20.0
}

/// On the side with fewer calls in progress they wait for I/O and are nearly always as many as they can be. Calls that
/// never wait are in progress one at a time, however many threads there are; and with scarce requests, submitting is
/// too slow to reach the depth of the job.
fn filled(delta: &Delta<'_>) -> bool {
    let most = delta.of(|d| f64::from(d.workload.concurrency));
    let full = delta.of(|d| d.latency.iter().map(|l| l.sum()).sum::<f64>() / reads::in_calls(d).max(1.0));
    let waited = delta.of(|d| share(d.time.waited, d.calls()));
    let [low, full, waited] =
        if most.fast < most.slow { [most.fast, full.fast, waited.fast] } else { [most.slow, full.slow, waited.slow] };
    // A device that takes fewer keeps callers out, too: one more is in progress than it has.
    let depth = delta.of(|d| f64::from(d.commands.deepest));
    let shut = depth.slow > 0.0 && 2.0 * depth.slow <= depth.fast && most.slow > depth.slow;
    // And where bios no longer share requests, fewer calls have one.
    let requests = delta.of(|d| share(d.commands.issued[0] + d.commands.issued[1], data_calls(d)));
    let bios = delta.of(|d| share(d.bios.count[0] + d.bios.count[1], data_calls(d)));
    let scarce = most.slow < most.fast && requests.ratio() > 1.5 && (0.9..1.1).contains(&bios.ratio());
    full >= 0.9 * low && waited > 0.1 && !shut && !scarce
}

const SYNCS: &str = "syncs for each write";

const FEATURES: &[Feature] = &[
    ("share of reads among calls", Unit::Share, &[0, 1], Scale::Absolute(0.05), by_work, |d| {
        share(d.workload.calls[0], data_calls(d))
    }),
    (SYNCS, Unit::Ratio, &[2], Scale::Ratio(1.2), always, |d| share(d.workload.calls[2], d.workload.calls[1].max(1))),
    ("mean size of a read call", Unit::Bytes, &[0], Scale::Ratio(1.1), by_work, |d| {
        share(d.workload.bytes[0], d.workload.calls[0])
    }),
    ("mean size of a write call", Unit::Bytes, &[1], Scale::Ratio(1.1), by_work, |d| {
        share(d.workload.bytes[1], d.workload.calls[1])
    }),
    ("most calls in progress at once", Unit::Count, &[0, 1, 2], Scale::Ratio(1.2), filled, |d| {
        f64::from(d.workload.concurrency)
    }),
    ("files", Unit::Count, &[0, 1], Scale::Ratio(1.5), files_seen, |d| f64::from(d.workload.files)),
    ("share of calls that go on where one ended", Unit::Share, &[0, 1], Scale::Absolute(0.1), by_work, |d| {
        share(d.workload.sequential[0] + d.workload.sequential[1], data_calls(d))
    }),
    // A call without any event may be one that found its page mapped; it is taken for neither.
    ("share of calls that go round the page cache", Unit::Share, &[0, 1], Scale::Absolute(0.25), by_work, |d| {
        let quiet = d.workload.quiet[0] + d.workload.quiet[1];
        share(d.workload.direct[0] + d.workload.direct[1], data_calls(d) - quiet.min(data_calls(d)))
    }),
    ("share of calls in the busiest tenth of the regions", Unit::Share, &[0, 1], Scale::Absolute(0.1), as_many, |d| {
        d.workload.top_tenth
    }),
];

/// Features that a program does not come by through what it finds in its files.
const CHOSEN: [&str; 2] = [SYNCS, "share of calls that go round the page cache"];

fn find(delta: &Delta<'_>) -> Option<Match> {
    let faults = reads::faults(delta);
    if faults && reads::of_faults(delta).slow > reads::MOST_FAULTS {
        return None;
    }
    let mut evidence = Vec::new();
    let mut words = Vec::new();
    let mut beyond = 1f64;
    // One recording a side of the same command line: sizes and places may follow from what the program found.
    let alike = recorded::typed_alike(delta);
    let matters = [0, 1, 2].map(|kind| material(delta, kind));
    let alike_or_faults = alike || faults;
    for (what, unit, kinds, scale, holds, figure) in FEATURES {
        let contrast = delta.of(figure);
        // One call in thousands does not characterise a job.
        let some = matches!(scale, Scale::Absolute(_)) || contrast.fast.max(contrast.slow) > 1e-2;
        let differs = some && scale.beyond(&contrast) >= 1.0 && (!alike_or_faults || CHOSEN.contains(what));
        if differs && contrast.sure() && kinds.iter().any(|kind| matters[*kind]) && holds(delta) {
            beyond = beyond.max(scale.beyond(&contrast));
            words.push(*what);
            evidence.push(Figure::new(*what, contrast, *unit));
        }
    }
    for (kind, name) in ["reads", "writes"].into_iter().enumerate() {
        let (Some(fast), Some(slow)) = (delta.fast.runs.first(), delta.slow.runs.first()) else { continue };
        let far = distance(&fast.workload.sizes[kind], &slow.workload.sizes[kind]);
        let both = fast.workload.calls[kind].min(slow.workload.calls[kind]) > 100;
        if far > 0.1 && both && matters[kind] && evidence.is_empty() && !alike_or_faults {
            let contrast = delta.of(|d| d.workload.sizes[kind].len() as f64);
            beyond = beyond.max(far / 0.1);
            words.push("sizes of calls");
            evidence.push(Figure::new(format!("different sizes of {name}"), contrast, Unit::Count));
        }
    }
    if delta.fast.live && delta.slow.live && !alike_or_faults {
        // The most that were ever in progress may be of a program's start.
        let name = "calls in progress on average";
        let depth = delta.of(|d| d.latency[..2].iter().map(|l| l.sum()).sum::<f64>() / reads::in_calls(d).max(1.0));
        if depth.fell(2.0) && depth.fast > 2.0 {
            beyond = beyond.max(1.0 / depth.ratio());
            words.push(name);
            evidence.push(Figure::new(name, depth, Unit::Count));
        }
    }
    if delta.basis == Basis::Run && !alike {
        // Two commands by the clock: one may just do more, even with one that does little but start.
        for (kind, name) in ["bytes read by calls", "bytes written by calls"].into_iter().enumerate() {
            let bytes = delta.of(|d| d.workload.bytes[kind] as f64);
            if bytes.rose(1.25) && bytes.slow > 1e6 && matters[kind] {
                beyond = beyond.max(bytes.ratio() / 1.25);
                words.push(name);
                evidence.push(Figure::new(name, bytes, Unit::Bytes));
            }
        }
    }
    // Programs that sync more often write elsewhere for that, too.
    if words.is_empty() || words.contains(&SYNCS) && syncs_added::is_all(delta) {
        return None;
    }
    let claim = format!("the jobs differ: {}", words.join(", "));
    Some(Match { confidence: 0.97 * grade(beyond, 0.7, 1.6), share_ns: None, claim, evidence })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_report_beside_the_work_makes_no_other_job() {
        use crate::{Delta, Side, digest::Digest};
        use iowhy_stack::units::Nanos;
        // A thousand reads, and some writes of `bytes` bytes that take a part of the time.
        let side = |elapsed: u64, writes: u64, bytes: u64, of_writes: f64| {
            let mut run = Digest { elapsed: Nanos(elapsed), ..Digest::default() };
            run.workload.calls = [1000, writes, 0];
            run.workload.bytes = [4_096_000, writes * bytes, 0];
            let part = (elapsed as f64 * of_writes) as u64;
            (0..1000).for_each(|_| run.latency[0].add((elapsed - part) / 1000));
            (0..writes).for_each(|_| run.latency[1].add(part / writes));
            run.time.slots = 1;
            Side { runs: vec![run], ..Side::default() }
        };
        for (writes, bytes, of_writes, expected) in [
            (2, 900, 0.0, false),
            (2, 900, 0.5, false),
            (100, 900, 0.0, false),
            (100, 900, 0.5, true),
            (100, 90_000, 0.0, true),
        ] {
            let (fast, slow) = (side(1_000_000, writes, 700, 0.0), side(2_000_000, writes, bytes, of_writes));
            let found = super::find(&Delta::new(&fast, &slow));
            assert_eq!(found.is_some(), expected, "{writes} writes of {bytes}, {of_writes}: {found:#?}");
        }
    }
}
