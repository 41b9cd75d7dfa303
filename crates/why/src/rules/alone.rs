//! Reads without any window: by advice, or because the limit is 0. Shared parts of the two rules about it.
//!
//! ```text
//!                       calls of several pages         calls of one page, mappings
//! advice, since 2.6.34  one read as large as the call  one page
//! advice, before        page by page                   one page
//! limit of 0            page by page                   one page
//! ```
//! Where both look alike both are reported, with half the confidence; only an experiment separates them.

use iowhy_stack::event::{RaKind, UnplugCause};

use super::cost::{Cost, Facts, MARKED};
use super::{Figure, Match, reads, recorded};
use crate::delta::{Contrast, Delta, Unit};

/// The mechanism behind pages that are read without windows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Alone {
    /// Advice: calls are read as they are.
    Advice,
    /// A limit of 0: every page is read for itself.
    Off,
    /// Either.
    Either,
}

/// The match of the rule for `wanted`: `confidence` if it is sure and if it may as well be the other, its claim, and
/// the addition in the latter case.
pub(super) fn found(
    delta: &Delta<'_>,
    wanted: Alone,
    (sure, either): (f64, f64),
    claim: &str,
    reservation: &str,
) -> Option<Match> {
    let (share, means) = of(delta)?;
    // A recording knows the limit of the disk that is read.
    let means = match recorded::limit_of_readahead(delta.slow) {
        Some(..=ONE_PAGE) => Alone::Off,
        Some(_) => Alone::Advice,
        None => means,
    };
    let (confidence, reservation) = match means {
        Alone::Either => (either, reservation),
        means if means == wanted => (sure, ""),
        _ => return None,
    };
    let waits = reads::waits(delta);
    Some(Match {
        confidence,
        share_ns: None,
        claim: format!("{claim}: a call waits {:.2} times, against {:.2}{reservation}", waits.slow, waits.fast),
        evidence: vec![
            Figure::new("pages read without a window", share, Unit::Share),
            Figure::new("waits for each call", waits, Unit::Ratio),
        ],
    })
}

/// Read-ahead limit, KiB, up to which windows are off: they begin at two pages.
const ONE_PAGE: u64 = 4;
/// Share of the pages that come without a window on the slow side.
const NEARLY: f64 = 0.99;
/// The same of a recording: a program that is recorded from its start reads its libraries, too.
const NEARLY_LIVE: f64 = 0.9;
/// The same on the fast side, from which on it is read without windows itself.
const ALONE_BEFORE: f64 = 0.7;
/// Growth of that share, absolute.
const MORE: f64 = 0.3;
/// Pages in windows of the fast side: a side that reads nothing reads nothing without windows, either.
const LEAST_PAGES: f64 = 16.0;
/// Growth of the waits for a call: advice that costs none is good advice.
const MORE_WAITS: f64 = 1.05;
/// Mean pages of a call, or of a read without a window, beyond which most have several.
const SEVERAL: f64 = 1.5;
/// Share of the pages that read-ahead has left out, from which on they are not read by advice.
const LEFT_OUT: f64 = 0.5;

const KINDS: [RaKind; 2] = [RaKind::Force, RaKind::Single];

/// The slow side reads without windows, and the fast side does not: the share of pages that come so, and what it means.
fn of(delta: &Delta<'_>) -> Option<(Contrast, Alone)> {
    let alone = delta.of(|d| reads::share(reads::pages(d, &KINDS), reads::all_pages(d)));
    let closes = delta.of(|d| d.windows.closes.iter().sum::<u64>() as f64);
    let waits = reads::waits(delta);
    let nearly = if delta.slow.live { NEARLY_LIVE } else { NEARLY };
    let all = alone.slow > nearly && alone.fast < ALONE_BEFORE && alone.rose_by(MORE);
    let compared = delta.of(|d| reads::all_pages(d) as f64).fast >= LEAST_PAGES;
    if !(reads::equal(delta) && compared && all && closes.slow == 0.0 && waits.rose(MORE_WAITS)) {
        return None;
    }
    let slow = |figure: &dyn Fn(&crate::digest::Digest) -> f64| delta.of(figure).slow;
    let at_once = slow(&|d| reads::share(reads::pages(d, &KINDS), reads::windows(d, &KINDS)));
    let single = slow(&|d| reads::share(reads::pages(d, &[RaKind::Single]), reads::pages(d, &KINDS)));
    let mapped = slow(&|d| f64::from(u8::from(reads::mapped(d)))) > 0.0;
    let task_plug = slow(&|d| {
        let causes = [UnplugCause::Finish, UnplugCause::Schedule];
        causes.iter().map(|cause| d.plugs.unplugs[*cause as usize]).sum::<u64>() as f64
    });
    let several = slow(&reads::call_pages) > SEVERAL;
    let means = match () {
        () if mapped => Alone::Either,
        () if at_once > SEVERAL => Alone::Advice,
        () if !several && single < LEFT_OUT => Alone::Either,
        // Kernels whose tasks have plugs read calls as they are when advised to.
        () if task_plug > 0.0 => Alone::Off,
        () => Alone::Either,
    };
    Some((alone, means))
}

/// Share of the reads that go on where others ended, from which on the advice is wrong.
const STREAMS: f64 = 0.8;

/// Calls that ask for pages ahead, for each read without a window, from which on it is these that bring them.
const ASKED: f64 = 0.5;

/// The cost of reads without windows though the limit has room for them: the program has advised so.
pub(super) fn cost_of_advice(facts: &Facts<'_>) -> Option<Cost> {
    let d = facts.digest;
    // Where other files are read with windows, it is the trips that count.
    let trips = reads::share(reads::windows(d, &KINDS), d.windows.count.iter().sum());
    let alone = reads::share(reads::pages(d, &KINDS), reads::all_pages(d)).max(trips);
    let (limit, key) = facts.read_ahead_kb().filter(|(kib, _)| *kib > ONE_PAGE as f64)?;
    let streams = facts.streams;
    // Pages that the program asks for itself, before it reads them, need no window.
    let asked = reads::share(d.windows.asked, reads::windows(d, &KINDS));
    let few = (reads::all_pages(d) as f64) < LEAST_PAGES;
    if alone < NEARLY_LIVE || streams < STREAMS || few || asked >= ASKED {
        return None;
    }
    let saved = reads::in_windows(facts, limit)?;
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: MARKED,
        claim: format!(
            "{:.0} % of the reads go on where others ended, and their pages come without a window, though \
             {key} is {limit:.0}: the file is advised as random",
            100.0 * streams
        ),
        setting: "no POSIX_FADV_RANDOM or MADV_RANDOM".to_owned(),
        evidence: vec![
            ("share read without a window", alone, Unit::Share),
            ("reads that go on where others ended", streams, Unit::Share),
            ("waits for each read", d.time.waits as f64 / facts.operations(), Unit::Ratio),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost};
    use super::super::{random_advice, readahead_off};
    use crate::digest::Digest;
    use iowhy_stack::event::{RaKind, UnplugCause};

    const SYNC: usize = RaKind::Sync as usize;
    const FORCE: usize = RaKind::Force as usize;
    const SINGLE: usize = RaKind::Single as usize;

    /// Of a thousand pages these come without a window.
    fn alone(d: &mut Digest, kind: usize, pages: f64) {
        d.windows.pages = [0; 7];
        (d.windows.pages[kind], d.windows.pages[SYNC]) = (pages as u64, 1000 - pages as u64);
    }

    /// The same on both sides, the slow one recorded.
    fn recorded(p: &mut Pair, fast: f64, slow: f64) {
        p.sides[1].live = true;
        alone(&mut p.fast, FORCE, fast);
        alone(&mut p.slow, FORCE, slow);
    }

    /// Calls of two pages, each read as it is on the slow side.
    fn advised() -> Pair {
        Pair::of(|p| {
            p.both(|d| (d.workload.bytes[0], d.time.waits) = (81_920, 100));
            alone(&mut p.fast, FORCE, 0.0);
            alone(&mut p.slow, FORCE, 999.0);
            (p.slow.windows.count[FORCE], p.slow.time.waits) = (500, 200);
            p.slow.plugs.unplugs[UnplugCause::Finish as usize] = 1;
        })
    }

    /// Calls of a page, which look alike with a limit of 0.
    fn either() -> Pair {
        let mut pair = advised();
        pair.both(|d| d.workload.bytes[0] = 40_960);
        pair.slow.windows.count[FORCE] = 1000;
        pair
    }

    /// Every page of calls of two is read for itself.
    fn off() -> Pair {
        let mut pair = advised();
        alone(&mut pair.slow, SINGLE, 1000.0);
        pair.slow.windows.count[FORCE] = 1000;
        pair
    }

    /// Reads for each page, unplugs by a task that ends a submission and by one that sleeps.
    fn plugged(p: &mut Pair, finish: f64, schedule: f64) {
        alone(&mut p.slow, SINGLE, 1000.0);
        p.slow.plugs.unplugs[UnplugCause::Finish as usize] = finish as u64;
        p.slow.plugs.unplugs[UnplugCause::Schedule as usize] = schedule as u64;
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("equal calls", |p, x| p.slow.workload.bytes[0] = x as u64, 81_920.0, 163_840.0),
            ("NEARLY", |p, x| alone(&mut p.slow, FORCE, x), 991.0, 990.0),
            ("NEARLY_LIVE", |p, x| recorded(p, 0.0, x), 901.0, 900.0),
            ("ALONE_BEFORE", |p, x| recorded(p, x, 1000.0), 699.0, 700.0),
            ("MORE", |p, x| recorded(p, x, 910.0), 610.0, 611.0),
            ("LEAST_PAGES", |p, x| p.fast.windows.pages[SYNC] = x as u64, 16.0, 15.0),
            ("closed windows", |p, x| p.slow.windows.closes[0] = x as u64, 0.0, 1.0),
            ("MORE_WAITS", |p, x| p.slow.time.waits = x as u64, 106.0, 105.0),
            ("SEVERAL, at once", |p, x| p.slow.windows.count[FORCE] = x as u64, 665.0, 666.0),
            ("ONE_PAGE", |p, x| p.set("sda", "read_ahead_kb", ["128", ["4", "5"][x as usize]]), 1.0, 0.0),
        ];
        hold(&random_advice::RULE, advised, 0.95, edges);
        let edges: &[Edge] = &[
            ("SEVERAL, a call", |p, x| p.both(|d| d.workload.bytes[0] = x as u64), 61_440.0, 61_441.0),
            (
                "LEFT_OUT",
                |p, x| (p.slow.windows.pages[SINGLE], p.slow.windows.pages[FORCE]) = (x as u64, 1000 - x as u64),
                499.0,
                500.0,
            ),
            ("Finish", |p, x| plugged(p, x, 0.0), 0.0, 1.0),
            ("Schedule", |p, x| plugged(p, 0.0, x), 0.0, 1.0),
            (
                "a mapping",
                |p, x| {
                    plugged(p, 1.0, 0.0);
                    p.slow.workload.mapped = x as u64;
                },
                1.0,
                0.0,
            ),
        ];
        hold(&random_advice::RULE, either, 0.55, edges);
        let edges: &[Edge] =
            &[("ONE_PAGE", |p, x| p.set("sda", "read_ahead_kb", ["128", ["4", "5"][x as usize]]), 0.0, 1.0)];
        hold(&readahead_off::RULE, off, 0.95, edges);
    }

    #[test]
    fn costs_of_advice() {
        let advised = || {
            Alone::of(|a| {
                a.set("recording", "disk", "sda");
                a.set("sda", "read_ahead_kb", "128");
                a.streams = 1.0;
                alone(&mut a.digest, FORCE, 1000.0);
                a.requests(0, 100, 8, 1e6);
            })
        };
        fn asked(a: &mut Alone, calls: f64) {
            a.digest.windows.count[FORCE] = 100;
            a.digest.windows.asked = calls as u64;
        }
        fn pages(a: &mut Alone, pages: f64) {
            a.digest.windows.pages = [0; 7];
            a.digest.windows.pages[FORCE] = pages as u64;
        }
        let edges: &[AloneEdge] = &[
            ("NEARLY_LIVE, alone", |a, x| alone(&mut a.digest, FORCE, x), 900.0, 899.0),
            ("ONE_PAGE, alone", |a, x| a.set("sda", "read_ahead_kb", &x.to_string()), 5.0, 4.0),
            ("STREAMS", |a, x| a.streams = x, 0.8, 0.79),
            ("LEAST_PAGES, alone", pages, 16.0, 15.0),
            ("ASKED", asked, 49.0, 50.0),
        ];
        hold_cost(&random_advice::RULE, advised, (82.3, 0.85), edges);
        // Few pages of many, but most of the trips.
        let beside = || {
            let mut alone = advised();
            (alone.digest.windows.pages[FORCE], alone.digest.windows.pages[SYNC]) = (100, 1000);
            (alone.digest.windows.count[FORCE], alone.digest.windows.count[SYNC]) = (100, 10);
            alone
        };
        let trips: AloneEdge = ("NEARLY_LIVE, trips", |a, x| a.digest.windows.count[SYNC] = x as u64, 11.0, 12.0);
        hold_cost(&random_advice::RULE, beside, (82.3, 0.85), &[trips]);
    }
}
