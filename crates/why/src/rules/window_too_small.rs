//! Streams that are recognised, and read ahead with small windows.
//!
//! The size that counts is that of windows that go on ahead of a reader (async ones): they have reached the limit. The
//! rule demands that streams go on as before, so that a state which is lost, shared or turned off is not taken for
//! this; unless windows that go on have stopped growing, which only a limit does.

use iowhy_stack::event::RaKind;

use super::{Figure, Match, Rule, grade, reads};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "window-too-small",
    layer: "read-ahead",
    needs: super::WINDOWS,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "Sequential streams are read ahead in smaller windows than on the fast side.",
    why: "A window is one trip to the device. With smaller ones the fixed cost of a request, a seek between streams, \
          or the wait of a reader that has used up the window is paid more often.",
    events: "Windows go on ahead of the readers as before, but each has fewer pages; there are more requests, and \
             readers wait more often.",
    example: "read_ahead_kb 128 instead of 512 under three parallel readers on a disk (2018).",
    change: "Raise read_ahead_kb until the device is kept busy: the time of a request times the rate of the device.",
    refute: "With the limit of the fast side the difference stays.",
    since: "Every kernel.",
    consequences: &[],
    switches: &[super::Switch::Other("read_ahead_kb"), super::Switch::Queue("read_ahead_kb")],
    find,
    cost: Some(|facts| reads::cost_of_limit(facts, false)),
};

/// Factors by which windows are smaller, half sure and sure: a limit cut in half leaves no doubt.
const GRADE: (f64, f64) = (1.3, 2.0);
/// Factor by which a page of a mapping is waited for more often, like the windows have shrunk.
const MORE_FAULTS: f64 = 1.3;
/// Pages in windows of faults from which on their mean size says anything: half a window of 128 KiB.
const ENOUGH_PAGES: f64 = 16.0;
/// Ratios of pages in windows of faults that are alike: what faults map decides how much is read, within a factor.
const ALIKE: std::ops::Range<f64> = 0.4..2.5;
/// Share of pages in windows that go on: a few windows ahead of chance neighbours make no stream.
const STREAMS: f64 = 0.3;
/// Share of sequential calls from which on streams are what is read.
const SEQUENTIAL: f64 = 0.5;
/// Growth of the share of windows that start a stream where streams lose their state, which is another rule.
const RESTARTS: f64 = 0.05;
/// Factor by which bios or waits have grown: windows of half the size double the bios, others hide a part of that.
const MORE_TRIPS: f64 = 1.1;

/// Mappings: windows of all kinds, and how often a page of them is waited for.
fn of_faults(delta: &Delta<'_>) -> Option<Match> {
    const ALL: &[RaKind] = &[RaKind::Sync, RaKind::Async, RaKind::Around, RaKind::Exec];
    let size = delta.of(|d| reads::share(reads::pages(d, ALL), reads::windows(d, ALL)));
    let waits = reads::waits(delta);
    let some = delta.of(|d| reads::pages(d, ALL) as f64);
    let trips = size.fell(reads::SMALLER) && waits.rose(MORE_FAULTS);
    if !trips || some.slow < ENOUGH_PAGES || !ALIKE.contains(&some.ratio()) {
        return None;
    }
    Some(Match {
        confidence: grade(1.0 / size.ratio(), GRADE.0, GRADE.1),
        share_ns: None,
        claim: format!(
            "faults are served by windows of {:.0} pages, against {:.0}; a page is waited for {:.3} times, \
             against {:.3}",
            size.slow, size.fast, waits.slow, waits.fast
        ),
        evidence: vec![
            Figure::new("pages in a window", size, Unit::Pages),
            Figure::new("waits for each page", waits, Unit::Ratio),
        ],
    })
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    if !reads::equal(delta) {
        return None;
    }
    if reads::faults(delta) {
        return of_faults(delta);
    }
    let size = delta.of(reads::ahead);
    let streams = delta.of(|d| reads::share(reads::pages(d, &[RaKind::Async]), reads::all_pages(d)));
    let sequential = delta.of(|d| reads::share(d.workload.sequential[0], d.workload.calls[0]));
    let requests = delta.per_operation(|d| d.bios.count[0] as f64);
    let waits = reads::waits(delta);
    let flows = streams.slow > STREAMS && streams.fast > STREAMS && sequential.slow > SEQUENTIAL;
    let lost = reads::restarts(delta).rose_by(RESTARTS) && !reads::limited(delta);
    if !(size.fell(reads::SMALLER) && flows && !lost && (requests.rose(MORE_TRIPS) || waits.rose(MORE_TRIPS))) {
        return None;
    }
    Some(Match {
        confidence: grade(1.0 / size.ratio(), GRADE.0, GRADE.1),
        share_ns: None,
        claim: format!(
            "streams are read ahead in windows of {:.0} pages, against {:.0}; a call waits {:.3} times, against {:.3}",
            size.slow, size.fast, waits.slow, waits.fast
        ),
        evidence: vec![
            Figure::new("pages in a window that goes on", size, Unit::Pages),
            Figure::new("read bios for each call", requests, Unit::Ratio),
            Figure::new("waits for each call", waits, Unit::Ratio),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, spread, windows};
    use super::RULE;
    use iowhy_stack::event::RaKind::{Around, Async, Sync};

    /// Sequential reads: windows of 32 pages go on ahead of them on the fast side, two thirds as large on the slow one.
    fn streams() -> Pair {
        Pair::of(|p| {
            p.both(|d| d.workload.sequential[0] = d.workload.calls[0]);
            windows(&mut p.fast, Async, 1000.0, 32_000.0);
            windows(&mut p.slow, Async, 1500.0, 32_000.0);
            (p.fast.bios.count[0], p.slow.bios.count[0]) = (1000, 1500);
        })
    }

    /// Touches of a mapping with windows around them, on a running kernel.
    fn faults() -> Pair {
        Pair::of(|p| {
            p.sides[1].live = true;
            p.both(|d| (d.workload.mapped, d.cache.added) = (10, 1000));
            windows(&mut p.fast, Around, 1000.0, 32_000.0);
            windows(&mut p.slow, Around, 1500.0, 32_000.0);
            (p.fast.time.waits, p.slow.time.waits) = (1000, 1500);
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("SMALLER", |p, x| windows(&mut p.slow, Async, 1000.0, x), 24_615.0, 24_616.0),
            (
                "STREAMS",
                |p, x| {
                    windows(&mut p.slow, Async, 1500.0, 30_000.0);
                    windows(&mut p.slow, Sync, 1.0, x);
                },
                69_999.0,
                70_000.0,
            ),
            (
                "STREAMS, fast side",
                |p, x| {
                    windows(&mut p.fast, Async, 1000.0, 30_000.0);
                    windows(&mut p.fast, Sync, 1.0, x);
                },
                69_999.0,
                70_000.0,
            ),
            (
                "SEQUENTIAL",
                |p, x| p.both(|d| (d.workload.calls[0], d.workload.sequential[0]) = (1000, x as u64)),
                501.0,
                500.0,
            ),
            ("RESTARTS", |p, x| p.slow.windows.sequential_sizes = spread(x as u64, 1.0), 74.0, 75.0),
            ("GROWTH", |p, x| p.slow.windows.sequential_sizes = spread(75, x), 15.0, 14.0),
            ("MORE_TRIPS, bios", |p, x| p.slow.bios.count[0] = x as u64, 1101.0, 1100.0),
            (
                "MORE_TRIPS, waits",
                |p, x| {
                    p.slow.bios.count[0] = 1000;
                    (p.fast.time.waits, p.slow.time.waits) = (1000, x as u64);
                },
                1101.0,
                1100.0,
            ),
            ("equal reads", |p, x| p.slow.workload.direct[0] = x as u64, 0.0, 1.0),
        ];
        hold(&RULE, streams, 0.6661, edges);
        let edges: &[Edge] = &[
            ("SMALLER, mapped", |p, x| windows(&mut p.slow, Around, 1000.0, x), 24_615.0, 24_616.0),
            ("MORE_FAULTS", |p, x| p.slow.time.waits = x as u64, 1301.0, 1300.0),
            ("MORE_FAULTS, pages", |p, x| p.slow.cache.added = x as u64, 1153.0, 1154.0),
            (
                "ENOUGH_PAGES",
                |p, x| {
                    windows(&mut p.fast, Around, 10.0, 32.0);
                    windows(&mut p.slow, Around, x, x);
                },
                16.0,
                15.0,
            ),
            ("ALIKE, fewer", |p, x| windows(&mut p.slow, Around, 1500.0, x), 12_801.0, 12_799.0),
            ("ALIKE, more", |p, x| windows(&mut p.slow, Around, 15_000.0, x), 79_999.0, 80_000.0),
        ];
        hold(&RULE, faults, 0.6661, edges);
    }
}
