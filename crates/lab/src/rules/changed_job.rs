//! The job itself is another one: other sizes, other places, more threads, more syncs.

use std::collections::BTreeMap;

use super::{Figure, Match, Rule};
use crate::explain::delta::{Delta, Unit};
use crate::explain::digest::Digest;
use crate::measure::share;

pub(super) const RULE: Rule = Rule {
    name: "changed-job",
    layer: "application",
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
        "queue-depth-one",
        "lost-locality",
        "reads-starved",
        "writes-starved",
        "slice-idling",
        "writeback-throttling",
        "journal-commit-per-fsync",
        "merge-delays-first-page",
        "read-larger-than-window",
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

/// A feature of a job: name, unit, how much of a difference counts, what has to hold for it to count, and the figure.
type Feature = (&'static str, Unit, Scale, fn(&Delta<'_>) -> bool, fn(&Digest) -> f64);

/// How differences of a feature are judged.
#[derive(Copy, Clone)]
enum Scale {
    /// By their size.
    Absolute(f64),
    /// By their ratio.
    Ratio(f64),
}

fn data_calls(digest: &Digest) -> u64 {
    digest.workload.calls[0] + digest.workload.calls[1]
}

fn always(_: &Delta<'_>) -> bool {
    true
}

/// Both sides made as many calls: none of them did less because it was slower and had only so much time.
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
/// never wait are in progress one at a time, however many threads there are; and where requests are scarce, submitting
/// takes so long that the depth of the job is not reached.
fn filled(delta: &Delta<'_>) -> bool {
    let most = delta.of(|d| f64::from(d.workload.concurrency));
    let full = delta.of(|d| d.latency.iter().map(|l| l.sum()).sum::<f64>() / (d.elapsed.0 as f64).max(1.0));
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

const FEATURES: &[Feature] = &[
    ("share of reads among calls", Unit::Share, Scale::Absolute(0.05), by_work, |d| {
        share(d.workload.calls[0], data_calls(d))
    }),
    ("syncs for each write", Unit::Ratio, Scale::Ratio(1.2), always, |d| {
        share(d.workload.calls[2], d.workload.calls[1].max(1))
    }),
    ("mean size of a read call", Unit::Bytes, Scale::Ratio(1.1), by_work, |d| {
        share(d.workload.bytes[0], d.workload.calls[0])
    }),
    ("mean size of a write call", Unit::Bytes, Scale::Ratio(1.1), by_work, |d| {
        share(d.workload.bytes[1], d.workload.calls[1])
    }),
    ("most calls in progress at once", Unit::Count, Scale::Ratio(1.2), filled, |d| f64::from(d.workload.concurrency)),
    ("files", Unit::Count, Scale::Ratio(1.2), files_seen, |d| f64::from(d.workload.files)),
    ("share of calls that go on where one ended", Unit::Share, Scale::Absolute(0.1), by_work, |d| {
        share(d.workload.sequential[0] + d.workload.sequential[1], data_calls(d))
    }),
    // A call without any event may be one that found its page mapped; it is taken for neither.
    ("share of calls that go round the page cache", Unit::Share, Scale::Absolute(0.25), by_work, |d| {
        let quiet = d.workload.quiet[0] + d.workload.quiet[1];
        share(d.workload.direct[0] + d.workload.direct[1], data_calls(d) - quiet.min(data_calls(d)))
    }),
    ("share of calls in the busiest tenth of the regions", Unit::Share, Scale::Absolute(0.1), as_many, |d| {
        d.workload.top_tenth
    }),
];

fn find(delta: &Delta<'_>) -> Option<Match> {
    let mut evidence = Vec::new();
    let mut words = Vec::new();
    for (what, unit, scale, holds, figure) in FEATURES {
        let contrast = delta.of(figure);
        let differs = match scale {
            Scale::Absolute(least) => contrast.difference().abs() >= *least,
            Scale::Ratio(least) => {
                let ratio = contrast.ratio();
                // One call in thousands is no feature of a job.
                (ratio >= *least || ratio <= 1.0 / least) && contrast.fast.max(contrast.slow) > 1e-2
            }
        };
        if differs && contrast.sure() && holds(delta) {
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

#[cfg(test)]
mod tests {
    use crate::rules::tests::{explain_pair, names};

    fn job(options: &str, on: &str) -> String {
        format!("run fio --name=j --size=64m --number_ios=300 {options} --on sim:{on} --disk sata-2014")
    }

    #[test]
    fn another_job_is_no_work_of_the_kernel() {
        for (a, b) in [
            ("--rw=randread --bs=4k", "--rw=randread --bs=256k"),
            ("--rw=randread --bs=4k", "--rw=randread --bs=4k --numjobs=3"),
            ("--rw=write --bs=4k", "--rw=write --bs=4k --fsync=4"),
            ("--rw=read --bs=4k", "--rw=randread --bs=4k"),
            ("--rw=write --bs=16k", "--rw=write --bs=16k --direct=1"),
        ] {
            let found = explain_pair(5, &job(a, "linux-4.4"), &job(b, "linux-4.4"));
            assert_eq!(names(&found).first(), Some(&"changed-job"), "{a} and {b}: {found:#?}");
        }
    }

    #[test]
    fn what_lies_below_a_job_does_not_change_it() {
        for (options, a, b) in [
            ("--rw=randread --bs=4k", "linux-4.4", "linux-4.4"),
            ("--rw=read --bs=16k --numjobs=4", "linux-4.4", "linux-4.4,read_ahead_kb=0"),
            ("--rw=read --bs=16k --ioengine=mmap", "linux-6.18", "linux-6.18,read_ahead_kb=0"),
            ("--rw=randrw --bs=16k --numjobs=4", "linux-2.6.22", "linux-2.6.6"),
            ("--rw=write --bs=64k --numjobs=4", "linux-6.18", "linux-6.18,machine.memory_mb=16"),
        ] {
            let found = explain_pair(3, &job(options, a), &job(options, b));
            assert!(!names(&found).contains(&"changed-job"), "{options} on {b}: {found:#?}");
        }
    }
}
