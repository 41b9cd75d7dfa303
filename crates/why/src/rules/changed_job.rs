//! The job itself is another one: other sizes, other places, more threads, more syncs.
//!
//! The difference has to matter: calls of that kind move a part of the bytes, or are often made and own a part of the
//! difference. Two writes of a report that grew by a line make no other job.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use super::{Figure, Match, Rule, grade};
use super::{reads, recorded, syncs_added};
use crate::Side;
use crate::delta::{Basis, Contrast, Delta, Unit};
use crate::digest::{Digest, KIND_SYNC};
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
    cost: None,
};

/// How often a call of another size is counted: where it is missing, and where it has come.
const TWICE: f64 = 2.0;

/// How much two distributions over sizes differ: half the sum of the differences of their shares, 0 to 1.
fn distance(a: &BTreeMap<u32, u64>, b: &BTreeMap<u32, u64>) -> f64 {
    let total = |of: &BTreeMap<u32, u64>| of.values().sum::<u64>().max(1) as f64;
    let (all_a, all_b) = (total(a), total(b));
    let mut sum = 0.0;
    for size in a.keys().chain(b.keys().filter(|size| !a.contains_key(size))) {
        let share = |of: &BTreeMap<u32, u64>, all| of.get(size).copied().unwrap_or(0) as f64 / all;
        sum += (share(a, all_a) - share(b, all_b)).abs();
    }
    sum / TWICE
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
    let often = kind == KIND_SYNC || part(|d| &d.workload.calls) >= PART;
    part(|d| &d.workload.bytes) >= PART || often && time.difference() >= OWNED * delta.slower_by()
}

/// Calls of the slow side over those of the fast one, if neither had less time: beyond 3 % one was cut short.
const AS_MANY: RangeInclusive<f64> = 0.97..=1.03;
/// Times of both sides, if a clock may have ended them: commands take a few percent to start and to stop.
const SAME_CLOCK: RangeInclusive<f64> = 0.93..=1.07;
/// Calls for each file, beyond which random calls have come to every one of them.
const FILES_SEEN: f64 = 20.0;
/// Factor by which the device's depth has fallen, and keeps callers out: settings halve it, chance does not.
const SHUT: f64 = 2.0;
/// Growth of the requests for each call, beyond which requests are scarce.
const SCARCE: f64 = 1.5;
/// Bios for each call, slow over fast, if the calls ask for the same.
const AS_MANY_BIOS: Range<f64> = 0.9..1.1;
/// Mean calls in progress over the most: threads that only wait for calls are always in one.
const FULL: f64 = 0.9;
/// Share of the calls that wait for I/O: with fewer, callers hardly ever meet.
const WAITED: f64 = 0.1;

fn data_calls(digest: &Digest) -> u64 {
    digest.workload.calls[0] + digest.workload.calls[1]
}

fn always(_: &Delta<'_>) -> bool {
    true
}

/// Both sides made as many calls: neither did less because it was slower and had only limited time.
fn as_many(delta: &Delta<'_>) -> bool {
    AS_MANY.contains(&delta.of(|d| data_calls(d) as f64).ratio())
}

/// The run does not end by the clock. If it does, threads that are slowed down make fewer calls among all.
fn by_work(delta: &Delta<'_>) -> bool {
    let elapsed = delta.of(|d| d.elapsed.0 as f64).ratio();
    as_many(delta) || !SAME_CLOCK.contains(&elapsed)
}

/// Every file of the job had a good chance to be seen.
fn files_seen(delta: &Delta<'_>) -> bool {
    let calls = delta.of(|d| share(data_calls(d), u64::from(d.workload.files)));
    calls.fast.min(calls.slow) > FILES_SEEN
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
    let shut = depth.slow > 0.0 && SHUT * depth.slow <= depth.fast && most.slow > depth.slow;
    // And where bios no longer share requests, fewer calls have one.
    let requests = delta.of(|d| share(d.commands.issued[0] + d.commands.issued[1], data_calls(d)));
    let bios = delta.of(|d| share(d.bios.count[0] + d.bios.count[1], data_calls(d)));
    let scarce = most.slow < most.fast && requests.ratio() > SCARCE && AS_MANY_BIOS.contains(&bios.ratio());
    full >= FULL * low && waited > WAITED && !shut && !scarce
}

const SYNCS: &str = "syncs for each write";

/// Difference of the share of reads: a mix is typed in steps of 5 %.
const READS: f64 = 0.05;
/// Growth of the syncs for each write.
const SYNCED: f64 = 1.2;
/// Growth of the mean size: sizes that are typed differ by more, those of equal random mixes by less.
const SIZE: f64 = 1.1;
/// Growth of the calls in progress: one more of five.
const IN_PROGRESS: f64 = 1.2;
/// Growth of the number of files: some have so few calls that they do not count on one side.
const FILES: f64 = 1.5;
/// Difference of the share of sequential calls: random ones follow on by chance, too.
const SEQUENTIAL: f64 = 0.1;
/// Difference of the share of direct calls: what a call is taken for depends on the events that a kernel has.
const DIRECT: f64 = 0.25;
/// Difference of the share of calls in the busiest regions.
const BUSIEST: f64 = 0.1;

const FEATURES: &[Feature] = &[
    ("share of reads among calls", Unit::Share, &[0, 1], Scale::Absolute(READS), by_work, |d| {
        share(d.workload.calls[0], data_calls(d))
    }),
    (SYNCS, Unit::Ratio, &[KIND_SYNC], Scale::Ratio(SYNCED), always, |d| {
        share(d.workload.calls[2], d.workload.calls[1].max(1))
    }),
    ("mean size of a read call", Unit::Bytes, &[0], Scale::Ratio(SIZE), by_work, |d| {
        share(d.workload.bytes[0], d.workload.calls[0])
    }),
    ("mean size of a write call", Unit::Bytes, &[1], Scale::Ratio(SIZE), by_work, |d| {
        share(d.workload.bytes[1], d.workload.calls[1])
    }),
    ("most calls in progress at once", Unit::Count, &[0, 1, KIND_SYNC], Scale::Ratio(IN_PROGRESS), filled, |d| {
        f64::from(d.workload.concurrency)
    }),
    ("files", Unit::Count, &[0, 1], Scale::Ratio(FILES), files_seen, |d| f64::from(d.workload.files)),
    ("share of calls that go on where one ended", Unit::Share, &[0, 1], Scale::Absolute(SEQUENTIAL), by_work, |d| {
        share(d.workload.sequential[0] + d.workload.sequential[1], data_calls(d))
    }),
    // A call without any event may be one that found its page mapped; it is taken for neither.
    ("share of calls that go round the page cache", Unit::Share, &[0, 1], Scale::Absolute(DIRECT), by_work, |d| {
        let quiet = d.workload.quiet[0] + d.workload.quiet[1];
        share(d.workload.direct[0] + d.workload.direct[1], data_calls(d) - quiet.min(data_calls(d)))
    }),
    (
        "share of calls in the busiest tenth of the regions",
        Unit::Share,
        &[0, 1],
        Scale::Absolute(BUSIEST),
        as_many,
        |d| d.workload.top_tenth,
    ),
];

/// Features that a program does not come by through what it finds in its files.
const CHOSEN: [&str; 2] = [SYNCS, "share of calls that go round the page cache"];

/// Ratios of both sides count beyond this: one call in a hundred does not characterise a job.
const RARE: f64 = 0.01;
/// Part of the calls that have another size.
const OTHER_SIZES: f64 = 0.1;
/// Calls of each side, beyond which their sizes are compared: fewer differ by chance.
const LEAST_CALLS: u64 = 100;
/// Factor by which the calls in progress on average have fallen, and what they were: below two nobody queues.
const SHALLOWER: f64 = 2.0;
/// Growth of the bytes that commands move.
const MORE_BYTES: f64 = 1.25;
/// Bytes that commands move at least: a start reads as much of libraries.
const LEAST_BYTES: f64 = 1e6;
/// Factor on the confidence: how much a program does may follow from what it finds.
const MOST_SURE: f64 = 0.97;
/// How far beyond its limit a feature is, half sure and sure: at the limit itself, it is more likely than not.
const GRADE: (f64, f64) = (0.7, 1.6);

fn find(delta: &Delta<'_>) -> Option<Match> {
    let faults = reads::faults(delta);
    if faults && reads::of_faults(delta).slow > reads::MOST_FAULTS {
        return None;
    }
    let mut evidence = Vec::new();
    let mut words = Vec::new();
    let mut beyond: f64 = 1.0;
    // One recording a side of the same command line: sizes and places may follow from what the program found.
    let alike = recorded::typed_alike(delta);
    let matters = [0, 1, KIND_SYNC].map(|kind| material(delta, kind));
    let alike_or_faults = alike || faults;
    for (what, unit, kinds, scale, holds, figure) in FEATURES {
        let contrast = delta.of(figure);
        let some = matches!(scale, Scale::Absolute(_)) || contrast.fast.max(contrast.slow) > RARE;
        let differs = some && scale.beyond(&contrast) >= 1.0 && (!alike_or_faults || CHOSEN.contains(what));
        if differs && contrast.sure() && kinds.iter().any(|kind| matters[*kind]) && holds(delta) {
            beyond = beyond.max(scale.beyond(&contrast));
            words.push(*what);
            evidence.push(Figure::new(*what, contrast, *unit));
        }
    }
    for (kind, name) in ["reads", "writes"].into_iter().enumerate() {
        if !matters[kind] || alike_or_faults || !evidence.is_empty() {
            continue;
        }
        let both = [delta.fast, delta.slow];
        let runs = || both.iter().flat_map(|side| &side.runs);
        let many = runs().all(|run| run.workload.calls[kind] > LEAST_CALLS);
        // What a program does by itself from run to run makes no other job.
        let far = |a: &Digest, b: &Digest| distance(&a.workload.sizes[kind], &b.workload.sizes[kind]);
        let pairs =
            |a: &'_ Side, b: &'_ Side| a.runs.iter().flat_map(|a| b.runs.iter().map(|b| far(a, b))).collect::<Vec<_>>();
        let within = both.into_iter().flat_map(|side| pairs(side, side)).fold(0.0, f64::max);
        let far = pairs(delta.fast, delta.slow).into_iter().fold(f64::INFINITY, f64::min);
        if far.is_finite() && far > OTHER_SIZES.max(within) && many {
            let contrast = delta.of(|d| d.workload.sizes[kind].len() as f64);
            beyond = beyond.max(far / OTHER_SIZES);
            words.push("sizes of calls");
            evidence.push(Figure::new(format!("different sizes of {name}"), contrast, Unit::Count));
        }
    }
    if delta.fast.live && delta.slow.live && !alike_or_faults {
        // The most that were ever in progress may be of a program's start.
        let name = "calls in progress on average";
        let depth = delta.of(|d| d.latency[..2].iter().map(|l| l.sum()).sum::<f64>() / reads::in_calls(d).max(1.0));
        if depth.fell(SHALLOWER) && depth.fast > SHALLOWER {
            beyond = beyond.max(1.0 / depth.ratio());
            words.push(name);
            evidence.push(Figure::new(name, depth, Unit::Count));
        }
    }
    if delta.basis == Basis::Run && !alike {
        // Two commands by the clock: one may just do more, even with one that does little but start.
        for (kind, name) in ["bytes read by calls", "bytes written by calls"].into_iter().enumerate() {
            let bytes = delta.of(|d| d.workload.bytes[kind] as f64);
            if bytes.rose(MORE_BYTES) && bytes.slow > LEAST_BYTES && matters[kind] {
                beyond = beyond.max(bytes.ratio() / MORE_BYTES);
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
    Some(Match { confidence: MOST_SURE * grade(beyond, GRADE.0, GRADE.1), share_ns: None, claim, evidence })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, spread, sure};
    use super::RULE;
    use crate::Side;
    use crate::delta::Delta;
    use crate::digest::Digest;
    use iowhy_stack::units::Nanos;

    const BYTES: u64 = 4_096_000;

    /// A thousand equal reads of 4 KiB, a hundred at a time on the fast side, fifty on the slow one.
    fn reads() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                let work = &mut d.workload;
                (work.calls[0], work.bytes[0], work.quiet[0]) = (1000, BYTES, 200);
                (work.concurrency, work.files) = (100, 20);
                d.latency[0] = spread(1000, 1e5);
                (d.time.waited, d.bios.count[0], d.commands.issued[0]) = (1000, 1000, 1000);
            });
        })
    }

    /// Reads of 1.3 times the size.
    fn larger() -> Pair {
        let mut pair = reads();
        pair.slow.workload.bytes[0] = 5_324_800;
        pair
    }

    /// The slow side's workload, with as many bytes.
    fn equal(p: &mut Pair) -> &mut crate::digest::Workload {
        p.slow.workload.bytes[0] = BYTES;
        &mut p.slow.workload
    }

    /// Calls of twice the size, fewer or more of them, in some time.
    fn cut_short(p: &mut Pair, calls: f64, elapsed: f64) {
        (p.slow.workload.calls[0], p.slow.workload.bytes[0]) = (calls as u64, calls as u64 * 8192);
        p.slow.elapsed = Nanos(elapsed as u64);
    }

    /// Half of the calls in a tenth of the regions, and as many calls as this.
    fn busiest(calls: f64) -> crate::digest::Workload {
        crate::digest::Workload { calls: [calls as u64, 0, 0], top_tenth: 0.5, ..reads().slow.workload }
    }

    /// Calls of 4 KiB, of which some of the thousand of the slow side have 8 KiB.
    fn other_sizes(p: &mut Pair, kind: usize, other: f64, calls: u64) {
        equal(p);
        p.both(|d| (d.workload.calls[kind], d.workload.bytes[kind]) = (calls, BYTES));
        p.fast.workload.sizes[kind] = [(4096, 1000)].into();
        p.slow.workload.sizes[kind] = [(4096, 1000 - other as u64), (8192, other as u64)].into();
    }

    /// Writes of so few bytes that only their time counts.
    fn slow_writes(p: &mut Pair, calls: u64, ns: f64) {
        p.both(|d| d.workload.calls[1] = calls);
        (p.slow.workload.bytes[1], p.slow.latency[1]) = (200_000, spread(1, ns));
    }

    /// A hundred small writes beside the reads, and larger ones on the slow side.
    fn writes() -> Pair {
        let mut pair = reads();
        pair.both(|d| d.workload.calls[1] = 100);
        (pair.fast.workload.bytes[1], pair.slow.workload.bytes[1]) = (100_000, 250_000);
        pair
    }

    /// A tenth of the thousand writes is synced, and more on the slow side.
    fn syncs() -> Pair {
        let mut pair = reads();
        pair.both(|d| d.workload.calls[1] = 1000);
        (pair.fast.workload.calls[2], pair.slow.workload.calls[2]) = (100, 130);
        pair.slow.latency[2] = spread(1, 1e6);
        pair
    }

    /// A hundred calls in progress where there were 120.
    fn fewer() -> Pair {
        let mut pair = reads();
        (pair.fast.workload.concurrency, pair.slow.elapsed) = (120, pair.fast.elapsed);
        pair
    }

    /// A quarter of the calls in progress on average.
    fn shallower() -> Pair {
        let mut pair = reads();
        pair.sides.iter_mut().for_each(|side| side.live = true);
        pair.slow.elapsed = Nanos(4_000_000);
        pair
    }

    /// Two commands, of which one makes more calls.
    fn commands() -> Pair {
        let mut pair = reads();
        pair.both(|d| d.command = Some(Default::default()));
        (pair.slow.workload.calls[0], pair.slow.workload.bytes[0]) = (1500, 6_000_000);
        pair
    }

    #[test]
    fn sizes_that_differ_from_run_to_run_make_no_other_job() {
        let mut pair = reads();
        other_sizes(&mut pair, 0, 300.0, 1000);
        let side = |runs: [&Digest; 2]| Side { runs: runs.map(Clone::clone).into(), ..Side::default() };
        let usual = side([&pair.fast, &pair.fast]);
        for (other, found) in [(&pair.slow, true), (&pair.fast, false)] {
            let now = side([&pair.slow, other]);
            assert_eq!(super::find(&Delta::new(&usual, &now)).is_some(), found);
        }
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("SIZE", |p, x| p.slow.workload.bytes[0] = x as u64, 4_505_600.0, 4_505_599.0),
            ("AS_MANY", |p, x| cut_short(p, x, 1e6), 1030.0, 1031.0),
            ("AS_MANY, fewer", |p, x| cut_short(p, x, 1e6), 970.0, 969.0),
            ("SAME_CLOCK", |p, x| cut_short(p, 2000.0, x), 1_070_001.0, 1_070_000.0),
            ("SAME_CLOCK, less", |p, x| cut_short(p, 2000.0, x), 929_999.0, 930_000.0),
            ("READS", |p, x| equal(p).calls = [1000 - x as u64, x as u64, 0], 50.0, 49.0),
            ("IN_PROGRESS", |p, x| equal(p).concurrency = x as u32, 120.0, 119.0),
            ("FILES", |p, x| equal(p).files = x as u32, 30.0, 29.0),
            ("FILES_SEEN", |p, x| equal(p).files = x as u32, 49.0, 50.0),
            ("SEQUENTIAL", |p, x| equal(p).sequential[0] = x as u64, 100.0, 99.0),
            ("DIRECT", |p, x| equal(p).direct[0] = x as u64, 200.0, 199.0),
            ("BUSIEST", |p, x| equal(p).top_tenth = x, 0.1, 0.0999),
            ("BUSIEST, as many", |p, x| *equal(p) = busiest(x), 1030.0, 1031.0),
            ("OTHER_SIZES", |p, x| other_sizes(p, 0, x, 1000), 101.0, 100.0),
            ("TWICE, writes", |p, x| other_sizes(p, 1, x, 1000), 101.0, 100.0),
            ("LEAST_CALLS", |p, x| other_sizes(p, 0, 500.0, x as u64), 101.0, 100.0),
            ("faults", |p, x| (p.sides[1].live, p.fast.workload.mapped) = (true, x as u64), 300.0, 301.0),
        ];
        hold(&RULE, larger, 0.792, edges);
        let edges: &[Edge] = &[
            ("SIZE, writes", |p, x| p.fast.workload.bytes[1] = x as u64, 227_272.0, 227_273.0),
            ("PART, bytes", |p, x| p.slow.workload.bytes[1] = x as u64, 215_579.0, 215_578.0),
            ("PART, calls", |p, x| slow_writes(p, x as u64, 1e9), 53.0, 52.0),
            ("OWNED", |p, x| slow_writes(p, 100, x), 99_901.0, 99_899.0),
        ];
        hold(&RULE, writes, 0.97, edges);
        let edges: &[Edge] = &[
            ("SYNCED", |p, x| p.slow.workload.calls[2] = x as u64, 120.0, 119.0),
            ("RARE", |p, x| (p.fast.workload.calls[2], p.slow.workload.calls[2]) = (0, x as u64), 11.0, 10.0),
            ("OWNED", |p, x| p.slow.latency[2] = spread(1, x), 100_000.0, 99_999.0),
            (
                "chosen",
                |p, x| (p.sides[1].live, p.fast.workload.mapped, p.slow.workload.mapped) = (true, 700, x as u64),
                600.0,
                601.0,
            ),
        ];
        hold(&RULE, syncs, 0.741, edges);
        let edges: &[Edge] = &[
            ("FULL", |p, x| p.slow.elapsed = Nanos(x as u64), 1_111_111.0, 1_111_112.0),
            ("WAITED", |p, x| p.slow.time.waited = x as u64, 101.0, 100.0),
            ("SHUT", |p, x| (p.fast.commands.deepest, p.slow.commands.deepest) = (100, x as u32), 51.0, 50.0),
            ("SHUT, callers", |p, x| (p.fast.commands.deepest, p.slow.commands.deepest) = (200, x as u32), 100.0, 99.0),
            ("SHUT, none", |p, x| (p.fast.commands.deepest, p.slow.commands.deepest) = (100, x as u32), 0.0, 1.0),
            ("SCARCE", |p, x| p.slow.commands.issued[0] = x as u64, 1500.0, 1501.0),
            (
                "AS_MANY_BIOS",
                |p, x| (p.slow.commands.issued[0], p.slow.bios.count[0]) = (2000, x as u64),
                1100.0,
                1099.0,
            ),
            (
                "AS_MANY_BIOS, less",
                |p, x| (p.slow.commands.issued[0], p.slow.bios.count[0]) = (2000, x as u64),
                899.0,
                900.0,
            ),
            (
                "SCARCE, more",
                |p, x| (p.slow.commands.issued[0], p.fast.workload.concurrency) = (2000, x as u32),
                80.0,
                120.0,
            ),
        ];
        hold(&RULE, fewer, 0.694, edges);
        let edges: &[Edge] = &[
            ("SHALLOWER", |p, x| p.slow.elapsed = Nanos(x as u64), 2_000_001.0, 2_000_000.0),
            (
                "SHALLOWER, two",
                |p, x| (p.fast.elapsed, p.slow.elapsed) = (Nanos(x as u64), Nanos(1 << 30)),
                49_999_999.0,
                5e7,
            ),
            ("fast side recorded", |p, x| p.sides[0].live = x > 0.0, 1.0, 0.0),
            ("slow side recorded", |p, x| p.sides[1].live = x > 0.0, 1.0, 0.0),
        ];
        hold(&RULE, shallower, 0.97, edges);
        sure(&RULE, larger, &[("MOST_SURE", |p, x| p.slow.workload.bytes[0] = x as u64, 8_192_000.0, 0.97)]);
        let edges: &[Edge] = &[
            (
                "MORE_BYTES",
                |p, x| (p.slow.workload.calls[0], p.slow.workload.bytes[0]) = (1250, x as u64),
                5_120_001.0,
                5_120_000.0,
            ),
            (
                "LEAST_BYTES",
                |p, x| (p.fast.workload.bytes[0], p.slow.workload.bytes[0]) = (690_000, x as u64),
                1_000_001.0,
                1_000_000.0,
            ),
            ("commands", |p, x| p.fast.command = (x > 0.0).then(Default::default), 1.0, 0.0),
        ];
        hold(&RULE, commands, 0.787, edges);
    }

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
