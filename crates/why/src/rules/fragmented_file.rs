//! A file lies in many pieces.

use std::ops::Range;

use super::cost::{Cost, Facts, SEEN};
use super::{Figure, Match, Rule, grade, instead, window_closed_by_hits};
use crate::delta::{Delta, Unit};
use iowhy_stack::units::{PAGE_SECTORS, SECTOR_BYTES};

pub(super) const RULE: Rule = Rule {
    name: "fragmented-file",
    layer: "device",
    needs: super::WINDOWS,
    owns: super::Owns::Reads,
    single: super::Single::Times,
    what: "The file lies in many small pieces, and each needs a request of its own.",
    why: "Pages that are neighbours in the file are not on the device: a window becomes many small requests \
          with a seek between them.",
    events: "As many pages in windows as large, but more requests, which do not go on where the one before ended.",
    example: "A database file that grew next to others; a volume that was nearly full; a file written in random order.",
    change: "Rewrite the file (e4defrag, xfs_fsr), reserve space before writing (fallocate), keep free space.",
    refute: "A fresh copy of the file is read as slowly.",
    since: "Every file system.",
    consequences: &[
        "device-latency",
        "device-bandwidth",
        "lost-locality",
        "merging-off",
        "requests-cut",
        "device-iops-cap",
        "cpu-bound-submission",
    ],
    switches: &[super::Switch::OtherJob],
    find,
    cost: Some(cost),
};

/// Mean sizes of reads, slow over fast, if they ask for the same.
const AS_LARGE: Range<f64> = 0.9..1.1;
/// Share of the reads that are direct, beyond which windows cannot be compared.
const DIRECT: f64 = 0.9;
/// Part of the bytes that are read which go into no file's cache, beyond which requests are not those of windows.
const OTHERS: f64 = 1.0 / 3.0;
/// Pages read for an operation, slow over fast, if they are equally many.
const AS_MANY: Range<f64> = 0.8..1.25;
/// Sizes and numbers of windows, slow over fast: a window may end at the end of a piece.
const ALIKE: Range<f64> = 0.67..1.5;
/// Share of the requests that could have joined another: from this on they lie side by side, and are not merged.
const JOINABLE: f64 = 0.5;
/// Growth of the requests, and fall of their size: pieces are smaller by as much as they are more.
const MORE: f64 = 1.5;
/// Requests for an operation: with fewer, the place of the file does not matter.
const LEAST_REQUESTS: f64 = 0.02;
/// Growth of the requests, half sure and sure.
const GRADE: (f64, f64) = (1.3, 3.0);
/// Highest confidence: limits of bios and requests cut reads, too.
const MOST_SURE: f64 = 0.9;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let pages = delta.per_operation(|d| d.cache.added as f64);
    let direct = delta.of(|d| super::reads::share(d.workload.direct[0], d.workload.calls[0]));
    let windows = delta.of(|d| d.windows.sizes.mean());
    // Pages read one by one have requests of their own wherever the file lies.
    let decisions = delta.per_operation(|d| d.windows.count.iter().sum::<u64>() as f64);
    let requests = delta.per_operation(|d| d.commands.issued[0] as f64);
    // Blocks of a small size have a bio each, and are merged again.
    let joinable =
        delta.of(|d| super::reads::share(d.bios.could_join[0].saturating_sub(d.bios.joined[0]), d.commands.issued[0]));
    let size = delta.of(|d| super::reads::share(d.commands.sectors[0] * SECTOR_BYTES, d.commands.issued[0]));
    let bytes = delta.of(|d| super::reads::share(d.workload.bytes[0], d.workload.calls[0]));
    let equal = AS_LARGE.contains(&bytes.ratio())
        && (direct.slow > DIRECT && direct.fast > DIRECT
            || AS_MANY.contains(&pages.ratio())
                && [windows, decisions].iter().all(|figure| ALIKE.contains(&figure.ratio())));
    let pieces = joinable.slow < JOINABLE && requests.rose(MORE) && size.fell(MORE);
    if !equal || !pieces || requests.slow < LEAST_REQUESTS {
        return None;
    }
    Some(Match {
        confidence: grade(requests.ratio(), GRADE.0, GRADE.1).min(MOST_SURE),
        share_ns: None,
        claim: format!(
            "equal windows become {:.2} requests a call of {:.0} KiB, against {:.2} of {:.0} KiB, and they do not lie \
             side by side",
            requests.slow,
            size.slow / 1024.0,
            requests.fast,
            size.fast / 1024.0
        ),
        evidence: vec![
            Figure::new("read requests for each call", requests, Unit::Ratio),
            Figure::new("mean size of a request", size, Unit::Bytes),
            Figure::new("mean size of a window", windows, Unit::Pages),
        ],
    })
}

/// Share of the reads that go on where others ended, from which on pieces matter.
const STREAMS: f64 = 0.5;
/// Part of the reads that are faults, beyond which most requests may be theirs.
const MAPPED: f64 = 0.5;
/// Windows: with fewer, their mean is chance.
const ENOUGH: u64 = 16;
/// Windows, and requests in one, from which on it is not whatever the others are.
const FEW: (u64, f64) = (4, 16.0);
/// Requests in a window: metadata between the data of a healthy file, and its last piece, cut some windows in two.
const PIECES: f64 = 4.0;
/// Share of the requests that begin where another one ended: then a limit cuts them, and not the file.
const SIDE_BY_SIDE: f64 = 0.5;
fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let d = facts.digest;
    let (size, requests) = instead::own(facts, 0);
    // Of pages that came: a window may reach beyond the end of its file.
    let most = facts.read_ahead_kb().map_or(f64::INFINITY, |(kib, _)| kib * 1024.0 / SECTOR_BYTES as f64);
    let window = super::reads::share(d.cache.added * PAGE_SECTORS, d.windows.sizes.count()).min(most);
    let side_by_side = super::reads::share(d.commands.contiguous[0], d.commands.issued[0]);
    let apart = d.bios.could_join[0].saturating_sub(d.bios.joined[0]);
    let joinable = super::reads::share(apart, d.commands.issued[0]);
    let direct = super::reads::share(d.workload.direct[0], d.workload.calls[0]);
    // Faults of code have no recorded windows of their own.
    let mapped = super::reads::share(d.workload.mapped, d.workload.calls[0]);
    let windows = d.windows.sizes.count();
    // Pages are written into the cache, too, and so the requests have to be as many.
    let pieces = (window / size.max(1.0)).min(super::reads::share(d.commands.issued[0], windows));
    let enough = windows >= ENOUGH || windows >= FEW.0 && pieces >= FEW.1;
    // Of requests that bring other pages, as those of a swap file do, windows say nothing.
    let others = super::reads::uncached(d) > OTHERS;
    let streams = facts.streams >= STREAMS
        && direct < DIRECT
        && mapped <= MAPPED
        && enough
        && !others
        && !window_closed_by_hits::parts_requests(facts);
    if !streams || pieces < PIECES || side_by_side.max(joinable) >= SIDE_BY_SIDE {
        return None;
    }
    let most = facts.number_of_disk("max_sectors_kb").map_or(window, |kib| kib * 1024.0 / 512.0);
    let saved = instead::in_order(facts, window.min(most))?;
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: format!(
            "windows of {:.0} KiB become {pieces:.0} requests each, of {:.0} KiB at places that are not side by side",
            window * 512.0 / 1024.0,
            size * 512.0 / 1024.0
        ),
        setting: "the file rewritten in one piece (e4defrag, xfs_fsr, cp)".to_owned(),
        evidence: vec![
            ("requests for a window", pieces, Unit::Ratio),
            ("mean size of a request", size * SECTOR_BYTES as f64, Unit::Bytes),
            ("read requests", requests, Unit::Count),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, spread, sure};
    use super::RULE;

    /// Ten thousand reads through equal windows; twice as many requests of half the size.
    fn pieces() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                d.latency[0] = spread(10_000, 1e5);
                (d.workload.calls[0], d.workload.bytes[0], d.cache.added) = (1000, 4_096_000, 10_000);
                (d.windows.sizes, d.windows.count[0], d.commands.sectors[0]) = (spread(1, 1000.0), 10_000, 1_000_000);
            });
            (p.fast.commands.issued[0], p.slow.commands.issued[0]) = (1000, 2000);
        })
    }

    /// The same with direct reads, and no windows on the slow side.
    fn direct() -> Pair {
        let mut pair = pieces();
        pair.both(|d| d.workload.direct[0] = 1000);
        pair.slow.windows = Default::default();
        pair
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("AS_LARGE", |p, x| p.slow.workload.bytes[0] = x as u64, 4_505_599.0, 4_505_600.0),
            ("AS_LARGE, less", |p, x| p.slow.workload.bytes[0] = x as u64, 3_686_400.0, 3_686_399.0),
            ("AS_MANY", |p, x| p.slow.cache.added = x as u64, 12_499.0, 12_500.0),
            ("AS_MANY, less", |p, x| p.slow.cache.added = x as u64, 8000.0, 7999.0),
            ("ALIKE, sizes", |p, x| p.slow.windows.sizes = spread(1, x), 1499.0, 1500.0),
            ("ALIKE, sizes, less", |p, x| p.slow.windows.sizes = spread(1, x), 670.0, 669.0),
            ("ALIKE, windows", |p, x| p.slow.windows.count[0] = x as u64, 14_999.0, 15_000.0),
            ("ALIKE, windows, less", |p, x| p.slow.windows.count[0] = x as u64, 6700.0, 6699.0),
            ("JOINABLE", |p, x| p.slow.bios.could_join[0] = x as u64, 999.0, 1000.0),
            (
                "JOINABLE, joined",
                |p, x| (p.slow.bios.could_join[0], p.slow.bios.joined[0]) = (1500, x as u64),
                501.0,
                500.0,
            ),
            (
                "MORE, requests",
                |p, x| (p.slow.commands.issued[0], p.slow.commands.sectors[0]) = (x as u64, 500_000),
                1501.0,
                1500.0,
            ),
            ("MORE, smaller", |p, x| p.fast.commands.sectors[0] = x as u64, 750_001.0, 750_000.0),
            (
                "LEAST_REQUESTS",
                |p, x| (p.fast.commands.issued[0], p.slow.commands.issued[0]) = (100, x as u64),
                200.0,
                199.0,
            ),
        ];
        hold(&RULE, pieces, 0.758, edges);
        let edges: &[Edge] = &[
            ("DIRECT", |p, x| p.slow.workload.direct[0] = x as u64, 901.0, 900.0),
            ("DIRECT, before", |p, x| p.fast.workload.direct[0] = x as u64, 901.0, 900.0),
        ];
        hold(&RULE, direct, 0.758, edges);
        sure(&RULE, pieces, &[("MOST_SURE", |p, x| p.slow.commands.issued[0] = x as u64, 3000.0, 0.9)]);
    }

    #[test]
    fn costs() {
        use super::super::edges::{Alone, AloneEdge, hold_cost, spread};
        let parts = || {
            Alone::of(|a| {
                a.streams = 1.0;
                a.requests(0, 256, 16, 1e6);
                a.set("sda", "read_ahead_kb", "16");
                a.digest.windows.sizes = spread(16, 32.0);
                a.digest.cache.added = 512;
            })
        };
        fn windows(a: &mut Alone, windows: f64) {
            (a.digest.windows.sizes, a.digest.commands.issued[0]) = (spread(windows as u64, 32.0), 128);
        }
        fn few(a: &mut Alone, windows: f64) {
            (a.digest.windows.sizes, a.digest.cache.added) = (spread(windows as u64, 1024.0), 512);
        }
        fn pieces(a: &mut Alone, requests: f64) {
            few(a, 4.0);
            a.digest.commands.issued[0] = requests as u64;
        }
        fn less(a: &mut Alone, pages: f64) {
            a.requests(0, 64, 16, 1e6);
            a.digest.cache.added = pages as u64;
        }
        let edges: &[AloneEdge] = &[
            ("STREAMS", |a, x| a.streams = x, 0.5, 0.49),
            ("ENOUGH", windows, 16.0, 15.0),
            ("FEW", few, 4.0, 3.0),
            ("FEW, pieces", pieces, 64.0, 63.0),
            ("a window", |a, x| a.set("recording", "disk", ["", "sda"][x as usize]), 0.0, 1.0),
            ("PIECES", less, 128.0, 127.0),
            ("OTHERS", |a, x| a.digest.cache.added = x as u64, 342.0, 341.0),
            ("PIECES, of requests", |a, x| a.digest.commands.issued[0] = x as u64, 64.0, 63.0),
            ("SIDE_BY_SIDE", |a, x| a.digest.commands.contiguous[0] = x as u64, 127.0, 128.0),
            ("SIDE_BY_SIDE, apart", |a, x| a.digest.bios.could_join[0] = x as u64, 127.0, 128.0),
            ("DIRECT, alone", |a, x| a.digest.workload.direct[0] = x as u64, 8.0, 9.0),
            ("MAPPED", |a, x| a.digest.workload.mapped = x as u64, 5.0, 6.0),
        ];
        hold_cost(&super::RULE, parts, (75.0, 0.8), edges);
        // Measured is a read in order: it is the present requests that take their ways.
        let measured = || {
            let mut parts = parts();
            parts.service = vec![(16, 100.0), (256, 1600.0)];
            parts
        };
        hold_cost(&super::RULE, measured, (93.75, 0.8), &[]);
    }
}
