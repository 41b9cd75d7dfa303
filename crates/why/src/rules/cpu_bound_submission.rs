//! Equal calls take more CPU time.
//!
//! Code that does more takes longer, and that is not this rule's business: it asks for equal calls (the rule of changed
//! jobs finds nothing), and then either for equal work below them (pages, windows, bios, requests, faults, waits for an
//! operation), or, where that is not equal, for more time of the ordinary call, if the ordinary call does no I/O on
//! either side. Known limits: a layer above the page cache that does more looks like one that does the same more
//! slowly; calls that wait for a CPU or for a page that another call is about to ask for count as computing.

use super::cost::{Cost, Facts, SEEN};
use super::instead::Saved;
use super::{Figure, Match, Rule, changed_job, grade};
use crate::delta::{Contrast, Delta, Unit};
use crate::digest::{Digest, Layer, WAITS};

pub(super) const RULE: Rule = Rule {
    name: "cpu-bound-submission",
    layer: "CPU",
    needs: super::CALLS_AND_BIOS,
    owns: super::Owns::Code,
    single: super::Single::Never,
    what: "Equal calls that lead to equal I/O take more CPU time.",
    why: "System calls, look-ups, copies and the building of bios take their time before a request exists and after it \
          has ended; with a fast device, or with hits, that is most of the time of a call.",
    events: "The time of calls in which nothing of theirs is plugged, queued or at the device is longer, for as many \
             calls, pages, windows, bios and requests; requests themselves are as fast as before.",
    example: "A kernel with mitigations of CPU faults against one without: a pread from the cache takes 0.4 us more.",
    change: "Profile the CPU (perf record -g): mitigations, debugging options, tracing, a lower clock; make fewer and \
             larger calls.",
    refute: "The profile shows no more CPU time in the calls, or the same kernel with the same options is as slow.",
    since: "Every kernel.",
    consequences: &[],
    switches: &[super::Switch::OtherKind("machine."), super::Switch::Other("machine")],
    find,
    cost: Some(cost),
};

/// Growth of work for an operation up to which it counts as equal.
const EQUAL: f64 = 1.05;
/// Share of the reads that go on where others ended.
const STREAMS: f64 = 0.8;
/// Growth of CPU time that counts.
const SLOWER: f64 = 1.1;
/// Part of the whole difference that the CPU has to have to be a cause.
const LEAST_PART: f64 = 0.05;
/// The share of calls that may miss if the median call is to be one that finds all it asks for.
const MOSTLY: f64 = 0.45;
/// Share of the time with the device busy, from which on callers may wait for a tag instead of computing.
const BUSY: f64 = 0.9;
/// Growth of the CPU time of the median call, half sure and sure.
const GRADE: (f64, f64) = (EQUAL, 1.5);

/// The kernel's work for calls: name and number.
type Work = (&'static str, fn(&Digest) -> f64);

const WORK: &[Work] = &[
    ("pages added", |d| d.cache.added as f64),
    ("read-ahead windows", |d| d.windows.count.iter().sum::<u64>() as f64),
    ("bios", |d| (d.bios.count[0] + d.bios.count[1]) as f64),
    ("requests", |d| (d.commands.issued[0] + d.commands.issued[1]) as f64),
    ("faults", |d| (d.cache.faults[0] + d.cache.faults[1]) as f64),
    ("waits for I/O", |d| d.time.waits as f64),
    ("writers held back", |d| d.sync.throttles as f64),
    ("direct calls over cached pages", |d| d.cache.direct_over_cached as f64),
    ("pages dropped or reclaimed", |d| (d.cache.dropped + d.cache.reclaimed) as f64),
];

/// Fewer of these per operation make no difference to their mean.
const RARE: f64 = 0.01;

fn grew(work: &Contrast) -> bool {
    work.slow > RARE && work.slow > work.fast * EQUAL
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    if (changed_job::RULE.find)(delta).is_some() {
        return None;
    }
    let code = delta.time(|time| time.of(Layer::Cpu) + time.of(Layer::Lock));
    // A task that waits for a free tag of a busy device has no request yet, and seems to compute.
    let busy = delta.of(|d| d.commands.busy as f64 / d.elapsed.0.max(1) as f64).slow;
    let spare = delta.of(|d| f64::from(d.workload.concurrency) - f64::from(d.commands.deepest)).slow;
    if busy > BUSY && spare > 0.0 || !code.rose(SLOWER) {
        return None;
    }
    let kind = usize::from(
        delta.slow.runs.iter().map(|d| d.without_io[1].count()).sum::<u64>()
            > delta.slow.runs.iter().map(|d| d.without_io[0].count()).sum::<u64>(),
    );
    let median = delta.of(|digest| digest.without_io[kind].median());
    let equal = WORK.iter().all(|(_, of)| !grew(&delta.per_operation(of)));
    let misses = delta.of(|d| d.windows.calls_missed as f64 / d.latency[0].count().max(1) as f64);
    let mostly_hits = kind == 0 && misses.fast.max(misses.slow) < MOSTLY;
    // The ordinary call must be slower; a few that take very long have waited for something.
    if !median.rose(SLOWER) || !(equal || mostly_hits) {
        return None;
    }
    let share = if equal { code.difference() } else { median.difference().min(code.difference()) };
    if share < LEAST_PART * delta.slower_by() {
        return None;
    }
    let of_what = ["read", "write"][kind];
    let claim = format!(
        "a {of_what} takes {:.1} us of CPU time instead of {:.1} us, at equal calls{}",
        median.slow / 1e3,
        median.fast / 1e3,
        if equal { " and equal work below them" } else { ", of which most do no I/O" },
    );
    let mut evidence = vec![
        Figure::new("CPU time of an operation", code, Unit::Ns),
        Figure::new(format!("CPU time of the median {of_what}"), median, Unit::Ns),
    ];
    if equal {
        let requests = delta.per_operation(|d| (d.commands.issued[0] + d.commands.issued[1]) as f64);
        evidence.push(Figure::new("requests for an operation", requests, Unit::Ratio));
    } else {
        evidence.push(Figure::new("share of reads that miss", misses, Unit::Share));
    }
    Some(Match { confidence: grade(median.ratio(), GRADE.0, GRADE.1), share_ns: Some(share), claim, evidence })
}

/// Calls of one side, and their mean bytes, up to which the call costs more than its bytes.
const MANY: u64 = 1000;
const SMALL: f64 = 512.0;
/// Bytes of a call whose cost is that of its bytes.
const LARGE: f64 = 4096.0;
/// Part of the time that the kernel's code for them has to have: a log of small records takes a quarter of it.
const MUCH: f64 = 0.35;

/// The cost of small calls: the same bytes in fewer ones. The program has its own work for each of them, too, of which
/// nobody knows how much would stay.
fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let work = &facts.digest.workload;
    let way = usize::from(work.calls[1] > work.calls[0]);
    let (calls, name) = (work.calls[way], ["reads", "writes"][way]);
    let goes_on = way == 1 || facts.streams >= STREAMS;
    let of_files = (goes_on, calls, work.bytes[way], facts.of_kinds(&[way], &[Layer::Cpu]), name);
    // Who reads from a pipe waits for what another task waits for.
    let of_pipes = work.piped.ns.min(facts.whole_ns - facts.in_layers(&WAITS));
    let piped = (true, work.piped.calls, work.piped.bytes, of_pipes, "calls on pipes or sockets");
    let small = |(goes_on, calls, bytes, code, name)| {
        let bytes = bytes as f64 / u64::max(calls, 1) as f64;
        (goes_on && calls >= MANY && bytes <= SMALL && code >= MUCH * facts.whole_ns)
            .then_some((calls, bytes, code, name))
    };
    let (calls, bytes, code, name) = small(of_files).or_else(|| small(piped))?;
    let part = 1.0 - bytes / LARGE;
    let program = facts.in_layers(&[Layer::Application]);
    let saved = Saved::of(
        (code + f64::midpoint(0.0, program)) * part,
        f64::midpoint(0.0, code) * part,
        (code + program) * part,
    );
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: format!(
            "{calls} {name} of {bytes:.0} bytes: the kernel's code takes {:.0} ns for each",
            code / calls as f64
        ),
        setting: format!("{name} of {LARGE:.0} bytes or more (a buffer in the program)"),
        evidence: vec![
            ("bytes of a call", bytes, Unit::Bytes),
            ("time of the kernel's code for them", code, Unit::Ns),
            ("time of the program's code", program, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread};
    use super::RULE;
    use crate::digest::Layer;
    use crate::digest::piped::Piped;

    #[test]
    fn costs() {
        fn calls(a: &mut Alone, calls: f64, bytes: f64) {
            (a.digest.workload.calls[0], a.digest.workload.bytes[0]) = (calls as u64, (calls * bytes) as u64);
        }
        let small = || {
            Alone::of(|a| {
                calls(a, 2000.0, 16.0);
                a.streams = 1.0;
                a.digest.time.ns[0][CPU] = 5e5;
            })
        };
        let edges: &[AloneEdge] = &[
            ("MANY", |a, x| calls(a, x, 16.0), 1000.0, 999.0),
            ("SMALL", |a, x| calls(a, 2000.0, x), 512.0, 513.0),
            ("STREAMS", |a, x| a.streams = x, 0.8, 0.79),
            ("MUCH", |a, x| a.digest.time.ns[0][CPU] = x, 3.5e5, 3.49e5),
        ];
        hold_cost(&RULE, small, (49.8, 0.8), edges);
        let piped = || Alone::of(|a| a.digest.workload.piped = Piped { calls: 2000, bytes: 32_000, ns: 5e5 });
        let edges: &[AloneEdge] = &[("MUCH, piped", |a, x| a.digest.workload.piped.ns = x, 3.5e5, 3.49e5)];
        hold_cost(&RULE, piped, (49.8, 0.8), edges);
        let waits: fn(&mut Alone, f64) = |a, x| a.digest.time.ns[0][Layer::Device as usize] = x;
        hold_cost(&RULE, piped, (49.8, 0.8), &[("waits of others", waits, 6.5e5, 6.51e5)]);
        let mut larger = small();
        calls(&mut larger, 2000.0, 512.0);
        let saves = larger.ask(&RULE).expect("a cost").saves_pct;
        assert!((saves - 43.75).abs() < 0.1, "{}: {saves}", "LARGE");
    }

    /// Ten thousand reads of 100 and 200 ns, half of it code; all miss, and ask for the same.
    fn missing() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                d.latency[0] = spread(10_000, 1e5);
                d.windows.calls_missed = 10_000;
                d.without_io[0] = spread(1, 100.0);
            });
            (p.fast.time.ns[0][CPU], p.slow.time.ns[0][CPU]) = (5e5, 1e6);
            p.slow.without_io[0] = spread(1, 130.0);
        })
    }

    /// The same reads find their pages; some other work has grown.
    fn finding() -> Pair {
        let mut pair = missing();
        pair.both(|d| d.windows.calls_missed = 0);
        pair.slow.bios.count[0] = 1000;
        pair
    }

    const CPU: usize = Layer::Cpu as usize;
    const LOCK: usize = Layer::Lock as usize;

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("equal jobs", |p, x| p.slow.workload.bytes[0] = x as u64, 40_960.0, 81_920.0),
            ("SLOWER, code", |p, x| p.slow.time.ns[0][CPU] = x, 550_001.0, 550_000.0),
            ("SLOWER, locks", |p, x| (p.slow.time.ns[0][CPU], p.slow.time.ns[0][LOCK]) = (5e5, x), 50_001.0, 50_000.0),
            ("SLOWER, median", |p, x| p.slow.without_io[0] = spread(1, x), 111.0, 110.0),
            ("SLOWER, writes", |p, x| p.slow.without_io[1] = spread(x as u64, 0.0), 1.0, 2.0),
            ("LEAST_PART", |p, x| (p.fast.time.ns[0][CPU], p.slow.time.ns[0][CPU]) = (0.0, x), 50_000.0, 49_999.0),
            ("BUSY", |p, x| p.slow.commands.busy = x as u64, 1_800_000.0, 1_800_001.0),
            ("tags", |p, x| (p.slow.commands.busy, p.slow.commands.deepest) = (2_000_000, x as u32), 1.0, 0.0),
            ("EQUAL", |p, x| (p.fast.bios.count[0], p.slow.bios.count[0]) = (10_000, x as u64), 10_500.0, 10_501.0),
            ("RARE", |p, x| p.slow.cache.added = x as u64, 100.0, 101.0),
            ("windows", |p, x| p.slow.windows.count[0] = x as u64, 100.0, 101.0),
            ("bios", |p, x| p.slow.bios.count[1] = x as u64, 100.0, 101.0),
            ("requests", |p, x| p.slow.commands.issued[1] = x as u64, 100.0, 101.0),
            ("faults", |p, x| p.slow.cache.faults[1] = x as u64, 100.0, 101.0),
            ("waits", |p, x| p.slow.time.waits = x as u64, 100.0, 101.0),
            ("throttles", |p, x| p.slow.sync.throttles = x as u64, 100.0, 101.0),
            ("cached", |p, x| p.slow.cache.direct_over_cached = x as u64, 100.0, 101.0),
            ("dropped", |p, x| p.slow.cache.dropped = x as u64, 100.0, 101.0),
        ];
        hold(&RULE, missing, 0.799, edges);
        let edges: &[Edge] = &[
            ("MOSTLY", |p, x| p.slow.windows.calls_missed = x as u64, 4499.0, 4500.0),
            ("MOSTLY, before", |p, x| p.fast.windows.calls_missed = x as u64, 4499.0, 4500.0),
            (
                "MOSTLY, writes",
                |p, x| (p.fast.without_io[1], p.slow.without_io[1]) = (spread(1, 100.0), spread(x as u64, 130.0)),
                1.0,
                2.0,
            ),
            (
                "LEAST_PART, median",
                |p, x| (p.fast.without_io[0], p.slow.without_io[0]) = (spread(1, 10.0), spread(1, x)),
                15.0,
                14.0,
            ),
            (
                "LEAST_PART, code",
                |p, x| (p.fast.time.ns[0][CPU], p.slow.time.ns[0][CPU]) = (0.0, x),
                50_000.0,
                49_999.0,
            ),
        ];
        hold(&RULE, finding, 0.799, edges);
    }
}
