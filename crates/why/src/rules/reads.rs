//! Shared parts of the rules about reads through the page cache: equal calls, and how pages come in.
//!
//! Read-ahead and the cache are judged by what they make of equal reads: of the same size, as often sequential, as
//! often through the cache. How many are in progress, or how long the run is, does not matter to that.

use super::cost::{Cost, Facts, MARKED, SEEN};
use super::instead::{self, Saved};
use super::paced;
use crate::delta::{Contrast, Delta, Unit};
use crate::digest::{Digest, Layer};
use iowhy_stack::event::RaKind;
use iowhy_stack::units::{PAGE_BYTES, PAGE_SECTORS, SECTOR_BYTES};
pub(super) use iowhy_stats::figure::share;

/// Part of the bytes that the workload's requests read which go into no file's cache.
pub(super) fn uncached(digest: &Digest) -> f64 {
    1.0 - (digest.cache.added * PAGE_SECTORS) as f64 / digest.commands.own_sectors[0].max(1) as f64
}

/// Pages that a read call asks for.
pub(super) fn call_pages(digest: &Digest) -> f64 {
    share(digest.workload.bytes[0], digest.workload.calls[0]) / PAGE_BYTES as f64
}

/// The calls of a recording are mostly page faults, whose number and order follow from what faults before them mapped:
/// a program does not choose them.
pub(super) fn faults(delta: &Delta<'_>) -> bool {
    let of_faults = of_faults(delta);
    delta.live() && of_faults.fast.max(of_faults.slow) > MOST_FAULTS
}

/// Part of the calls that are page faults, beyond which they are not a choice of the job.
pub(super) const MOST_FAULTS: f64 = 0.3;
/// Ratios of call sizes that are alike: programs mix in a few short reads, and a tenth changes no window.
const SIZES: std::ops::RangeInclusive<f64> = 0.91..=1.1;
/// Shares of calls differ by less than this where they are alike, as sizes do.
const CLOSE: f64 = 0.1;
/// Share of direct reads from which on the few others say nothing of read-ahead.
const DIRECT: f64 = 0.9;

/// Part of the calls that are page faults.
pub(super) fn of_faults(delta: &Delta<'_>) -> Contrast {
    delta.of(|d| share(d.workload.mapped, d.workload.calls[0] + d.workload.calls[1]))
}

/// Read-ahead is asked the same on both sides: sizes within a tenth, as often sequential, through the cache.
pub(super) fn equal(delta: &Delta<'_>) -> bool {
    let size = delta.of(call_pages);
    let sequential = delta.of(|d| share(d.workload.sequential[0], d.workload.calls[0]));
    let direct = delta.of(|d| share(d.workload.direct[0], d.workload.calls[0]));
    let reads = delta.of(|d| share(d.workload.calls[0], d.workload.calls[0] + d.workload.calls[1]));
    let close = |contrast: Contrast| contrast.difference().abs() < CLOSE;
    size.fast > 0.0
        && (SIZES.contains(&size.ratio()) && close(sequential) || faults(delta))
        && close(direct)
        && direct.slow < DIRECT
        && close(reads)
}

/// Pages in windows of these kinds.
pub(super) fn pages(digest: &Digest, kinds: &[RaKind]) -> u64 {
    kinds.iter().map(|kind| digest.windows.pages[*kind as usize]).sum()
}

/// Windows of these kinds.
pub(super) fn windows(digest: &Digest, kinds: &[RaKind]) -> u64 {
    kinds.iter().map(|kind| digest.windows.count[*kind as usize]).sum()
}

/// Pages in all windows.
pub(super) fn all_pages(digest: &Digest) -> u64 {
    digest.windows.pages.iter().sum()
}

/// How often an operation waits for I/O.
pub(super) fn waits(delta: &Delta<'_>) -> Contrast {
    if faults(delta) {
        // Who maps more pages with a fault has fewer faults: pages are what both have as many of.
        return delta.of(|d| share(d.time.waits, d.cache.added));
    }
    delta.per_operation(|d| d.time.waits as f64)
}

/// Windows of sequential calls that had to restart instead of going on, among all windows of streams.
pub(super) fn restarts(delta: &Delta<'_>) -> Contrast {
    delta.of(|d| share(d.windows.sequential_sizes.count(), windows(d, &[RaKind::Sync, RaKind::Async])))
}

/// Factor by which a window that goes on is larger than the one that begins its stream, until it meets a limit: every
/// kernel at least doubles them.
const GROWTH: f64 = 1.5;

/// Mean pages of a window that goes on ahead of its reader.
pub(super) fn ahead(digest: &Digest) -> f64 {
    share(pages(digest, &[RaKind::Async]), windows(digest, &[RaKind::Async]))
}

/// Windows that go on are smaller on the slow side, and no larger than those that begin a stream: it is a limit that
/// they meet, for streams that lose their state grow again after each loss.
pub(super) fn limited(delta: &Delta<'_>) -> bool {
    let begun = delta.of(|d| d.windows.sequential_sizes.mean());
    let size = delta.of(ahead);
    size.fell(SMALLER) && size.slow > 0.0 && size.slow < GROWTH * begun.slow
}

/// Factor by which windows are smaller: limits are changed by factors of two, and a mean over odd ends is below that.
pub(super) const SMALLER: f64 = 1.3;

/// Most of the pages are those of page faults.
pub(super) fn mapped(digest: &Digest) -> bool {
    digest.workload.mapped > 0
}

/// Time of a run with a call in progress, ns: a recorded command has a start and an end besides.
pub(super) fn in_calls(d: &Digest) -> f64 {
    let besides = if d.wall.is_some() { d.time.of(Layer::Application) + d.time.of(Layer::Pause) } else { 0.0 };
    (d.elapsed.0 as f64 - besides / f64::from(d.time.slots.max(1))).max(0.0)
}

/// KiB of a window by default; a limit of this or less is small; one of a page is off.
pub(super) const USUAL_KB: f64 = 128.0;
const SMALL_KB: f64 = 32.0;
/// Window that btrfs sets for its own backing device, KiB.
const BTRFS_KB: f64 = 4096.0;
const PAGE_KB: f64 = 4.0;
/// Share of the reads that go on where others ended, from which on windows matter.
const STREAMS: f64 = 0.5;
/// Reads ahead of the reader with windows of `kib`: at most as large as a request may be, and as the stretches are.
pub(super) fn in_windows(facts: &Facts<'_>, kib: f64) -> Option<Saved> {
    let most = facts.number_of_disk("max_sectors_kb").unwrap_or(kib);
    instead::fewer(facts, 0, kib.min(most) * 1024.0 / 512.0, true)
}

/// The same of a file system that a process serves: each window is a trip to it, and no request of the reader. With the
/// time that reads wait for it, ns, and the trips.
fn served(facts: &Facts<'_>, kib: f64) -> Option<(Saved, f64, u64)> {
    let d = facts.digest;
    let trips: u64 = d.windows.count.iter().sum();
    let growth = kib * 1024.0 / PAGE_BYTES as f64 / share(all_pages(d), trips).max(1.0);
    if instead::own(facts, 0).1 > 0.0 || growth <= 1.0 {
        return None;
    }
    let waits = facts.of_kinds(&[0], &[Layer::Pause, Layer::Lock, Layer::Ready]);
    let code = facts.of_kinds(&[0], &[Layer::Cpu]);
    let part = 1.0 - 1.0 / growth;
    Some((Saved::of(waits * part, f64::midpoint(0.0, waits * part), (waits + code) * part), waits, trips))
}

/// The cost of a read-ahead limit far below the kernel's own, which streams meet: of one that turns it off, or another.
pub(super) fn cost_of_limit(facts: &Facts<'_>, off: bool) -> Option<Cost> {
    let d = facts.digest;
    let (limit, key) = facts.read_ahead_kb().filter(|(kib, _)| *kib <= SMALL_KB && (*kib <= PAGE_KB) == off)?;
    let reads = d.workload.calls[0];
    let direct = share(d.workload.direct[0], reads);
    // The kernel itself reads so, too, without calls that read: pages one by one, side by side.
    let in_order = off && share(d.commands.contiguous[0], d.commands.issued[0]) >= STREAMS;
    if facts.streams < STREAMS && !in_order || direct >= DIRECT {
        return None;
    }
    let is_btrfs = |((_, key), value): (&(String, String), &String)| key == "filesystem" && value == "btrfs";
    let of_mount = key != "read_ahead_kb";
    let btrfs = of_mount && facts.settings.values.iter().any(is_btrfs);
    let usual = if btrfs { BTRFS_KB } else { USUAL_KB };
    let waits = facts.reads_wait();
    let (saved, waits, trips) = match in_windows(facts, usual) {
        Some(saved) => (saved, waits, d.time.waits),
        None if of_mount => served(facts, usual)?,
        None => return None,
    };
    let trips = trips as f64 / facts.operations();
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: MARKED,
        claim: format!("{key}={limit:.0}: streams wait {trips:.2} times for each read, and {usual:.0} is usual"),
        setting: format!("{key}={usual:.0}"),
        evidence: vec![
            ("pages in a window", share(all_pages(d), d.windows.count.iter().sum()), Unit::Pages),
            ("waits for each read", trips, Unit::Ratio),
            ("time that reads wait for I/O", waits, Unit::Ns),
        ],
    })
}

/// Windows around faults.
pub(super) const AROUND: &[RaKind] = &[RaKind::Around, RaKind::Exec, RaKind::Huge];
/// Part of the pages read that nobody uses, from which on a window is too large.
const IN_VAIN: f64 = 0.3;
/// Part of the pages in windows around faults, beyond which faults say what is used.
const OF_FAULTS: f64 = 0.1;
/// Part of the pages that come in around faults, below which the others are read ahead of a stream of faults, whose
/// touches are not seen.
const OF_STREAMS: f64 = 0.5;
/// Pages that a fault maps at most: the others of these are touched unseen.
const AROUND_PAGES: u64 = 16;
/// Part of the likeliest saving that is the least: a drive may take longer for a command than its bytes need.
const LEAST: f64 = 0.5;

/// Requests that a kernel reads ahead by itself, of the size that a device prefers.
const REQUESTS_AHEAD: f64 = 2.0;

/// Whether a read-ahead limit, KiB, is beyond what a kernel sets by itself (block/blk-settings.c,
/// blk_apply_bdi_limits): 128, or twice the size that the device prefers, for which a rotating disk that has none gets
/// the largest request.
fn raised(facts: &Facts<'_>, limit: f64) -> bool {
    let preferred = facts.number_of_disk("optimal_io_size").filter(|bytes| *bytes > 0.0).map(|bytes| bytes / 1024.0);
    let request = match facts.turns() {
        Some(false) => 0.0,
        _ => facts.number_of_disk("max_sectors_kb").unwrap_or(f64::INFINITY),
    };
    limit > USUAL_KB.max(REQUESTS_AHEAD * preferred.unwrap_or(request))
}

/// Whether most of the calls are touches of mappings.
fn touched(d: &Digest) -> bool {
    d.workload.mapped > d.operations() - d.workload.mapped.min(d.operations())
}

/// Part of the pages in vain from which on reads come at random places, and KiB of a window for such.
const AT_RANDOM: f64 = 0.9;
const LEAST_KB: f64 = 16.0;

/// The cost of a read-ahead limit above the kernel's own, many of whose pages no read uses.
pub(super) fn cost_of_waste(facts: &Facts<'_>) -> Option<Cost> {
    let d = facts.digest;
    let limit = facts.number_of_disk("read_ahead_kb").filter(|kib| *kib > USUAL_KB)?;
    // Faults read around them in vain by design, unless somebody has raised the limit.
    let touched = touched(d);
    let around = share(pages(d, AROUND), all_pages(d));
    let faults = touched || around > OF_FAULTS;
    if faults && (!raised(facts, limit) || touched && around < OF_STREAMS) {
        return None;
    }
    let seen = if faults { AROUND_PAGES } else { 1 };
    let unused = d.windows.ahead.saturating_sub(seen * d.windows.used);
    let in_vain = share(unused, d.cache.added);
    // A window that is larger than a request has several, and its reader waits for the first.
    let window = share(all_pages(d), d.windows.count.iter().sum()) * PAGE_SECTORS as f64;
    let from = instead::own(facts, 0).0.max(window);
    // Where nearly all is in vain, reads come at random places: windows of the usual size would be, too.
    let kib = if in_vain >= AT_RANDOM { LEAST_KB } else { USUAL_KB };
    let to = (from * (1.0 - in_vain)).max(kib * 1024.0 / SECTOR_BYTES as f64);
    if in_vain < IN_VAIN || to >= from {
        return None;
    }
    let waits = facts.reads_wait();
    let saved = smaller(facts, waits, [from, to]);
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: MARKED,
        claim: format!(
            "read_ahead_kb={limit:.0}: {:.0} % of the pages that are read remain unused, and {USUAL_KB:.0} is usual",
            100.0 * in_vain
        ),
        setting: format!("read_ahead_kb={kib:.0}"),
        evidence: vec![
            ("pages in a window", share(all_pages(d), d.windows.count.iter().sum()), Unit::Pages),
            ("pages read in vain", unused as f64, Unit::Pages),
            ("time that reads wait for I/O", waits, Unit::Ns),
        ],
    })
}

/// The part of the time that reads wait which reads of fewer sectors save, ns.
fn smaller(facts: &Facts<'_>, waits: f64, [from, to]: [f64; 2]) -> Saved {
    // A drive that takes as long for any request saves nothing, and one whose time goes by bytes as much as goes.
    let by_bytes = waits * (1.0 - to / from);
    let likely = match instead::price(facts.service, to, from) {
        _ if paced::cap(facts, false).is_some() => by_bytes,
        Some(price) => waits * (1.0 - 1.0 / price),
        None => waits * (1.0 - (to / from).sqrt()),
    };
    let likely = likely.min(by_bytes);
    Saved::of(likely, LEAST * likely, by_bytes)
}

/// Pages read around faults for each that a later fault finds among them, from which on faults come at random places.
const FOUND: f64 = 320.0;
/// Part of the time that reads of a page would save, for anybody to notice.
const NOTICED: f64 = 0.4;

/// The cost of a usual read-ahead limit to faults at random places, where the device takes longer for more bytes.
pub(super) fn cost_of_faults(facts: &Facts<'_>) -> Option<Cost> {
    let d = facts.digest;
    let [around, nr] = [pages(d, AROUND), windows(d, AROUND)];
    let random = around as f64 >= FOUND * d.windows.used.max(1) as f64;
    if !touched(d) || !random || share(around, all_pages(d)) < AT_RANDOM || cost_of_waste(facts).is_some() {
        return None;
    }
    let (waits, each) = (facts.reads_wait(), share(around, nr));
    let sectors = PAGE_SECTORS as f64;
    let saved = smaller(facts, waits, [each * sectors, sectors]);
    (each > 1.0 && saved.ns >= NOTICED * facts.whole_ns).then(|| Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: format!("faults at random places read {each:.0} pages around them, and hardly any of these is used"),
        setting: "madvise(MADV_RANDOM) on the mapping".to_owned(),
        evidence: vec![
            ("pages in a window around a fault", each, Unit::Pages),
            ("of them found by later faults", d.windows.used as f64, Unit::Pages),
            ("time that reads wait for I/O", waits, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, spread, windows};
    use super::super::{Match, Rule, window_too_small};
    use super::{Delta, PAGE_BYTES, RaKind, equal, limited};

    fn holds(holds: bool) -> Option<Match> {
        holds.then(|| Match { confidence: 1.0, share_ns: None, claim: String::new(), evidence: Vec::new() })
    }

    const fn speaks_if(find: fn(&Delta<'_>) -> Option<Match>) -> Rule {
        Rule { find, ..window_too_small::RULE }
    }

    /// Speaks where reads are equal.
    const EQUAL: Rule = speaks_if(|delta| holds(equal(delta)));
    /// Speaks where windows meet a limit.
    const LIMITED: Rule = speaks_if(|delta| holds(limited(delta)));

    /// Windows that go on ahead of a reader: of 32 pages, and of two on the slow side, where they begin with two.
    fn capped() -> Pair {
        Pair::of(|p| {
            windows(&mut p.fast, RaKind::Async, 1000.0, 32_000.0);
            windows(&mut p.slow, RaKind::Async, 1000.0, 2000.0);
            p.slow.windows.sequential_sizes = spread(100, 2.0);
        })
    }

    /// 1000 reads of a page on both sides.
    fn alike() -> Pair {
        Pair::of(|p| p.both(|d| (d.workload.calls[0], d.workload.bytes[0]) = (1000, 1000 * PAGE_BYTES)))
    }

    /// Page faults on both sides, which have to be of no size.
    fn faults() -> Pair {
        Pair::of(|p| {
            *p = alike();
            p.sides[1].live = true;
            p.slow.workload.mapped = 400;
            p.slow.workload.bytes[0] *= 2;
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("SIZES, small", |p, x| p.slow.workload.bytes[0] = x as u64, 3_728_000.0, 3_727_000.0),
            ("SIZES, large", |p, x| p.slow.workload.bytes[0] = x as u64, 4_505_000.0, 4_506_000.0),
            ("CLOSE, sequential", |p, x| p.slow.workload.sequential[0] = x as u64, 99.0, 100.0),
            ("CLOSE, direct", |p, x| p.fast.workload.direct[0] = x as u64, 99.0, 100.0),
            ("CLOSE, writes", |p, x| p.slow.workload.calls[1] = x as u64, 111.0, 112.0),
            ("DIRECT", |p, x| p.both(|d| d.workload.direct[0] = x as u64), 899.0, 900.0),
        ];
        hold(&EQUAL, alike, 1.0, edges);
        let edges: &[Edge] = &[
            ("MOST_FAULTS", |p, x| p.slow.workload.mapped = x as u64, 301.0, 300.0),
            (
                "MOST_FAULTS, fast side",
                |p, x| (p.fast.workload.mapped, p.slow.workload.mapped) = (x as u64, 0),
                301.0,
                300.0,
            ),
            ("a running kernel", |p, x| p.sides[1].live = x > 0.0, 1.0, 0.0),
            ("reads", |p, x| p.fast.workload.bytes[0] = x as u64, 1.0, 0.0),
        ];
        hold(&EQUAL, faults, 1.0, edges);
        let edges: &[Edge] = &[
            ("GROWTH", |p, x| windows(&mut p.slow, RaKind::Async, 1000.0, x), 2999.0, 3000.0),
            ("SMALLER", |p, x| windows(&mut p.fast, RaKind::Async, 1000.0, x), 2601.0, 2600.0),
            ("windows that go on", |p, x| windows(&mut p.slow, RaKind::Async, 1.0, x), 1.0, 0.0),
        ];
        hold(&LIMITED, capped, 1.0, edges);
    }
}

#[cfg(test)]
mod costs {
    use super::super::cost::Paced;
    use super::super::edges::{Alone, AloneEdge, hold_cost, windows};
    use super::super::{mmap_read_around, readahead_off, window_too_large, window_too_small};
    use super::{LEAST, RaKind};

    fn limited(kib: &str) -> Alone {
        Alone::of(|a| {
            a.set("recording", "disk", "sda");
            a.set("sda", "read_ahead_kb", kib);
            a.streams = 1.0;
            a.requests(0, 100, 8, 1e6);
        })
    }

    fn to(a: &mut Alone, kib: f64) {
        a.set("sda", "read_ahead_kb", &kib.to_string());
    }

    #[test]
    fn costs_of_limits() {
        let edges: &[AloneEdge] = &[
            ("SMALL_KB", to, 32.0, 33.0),
            ("PAGE_KB", to, 5.0, 4.0),
            ("USUAL_KB", to, 8.0, 128.0),
            ("STREAMS", |a, x| a.streams = x, 0.5, 0.49),
            ("DIRECT", |a, x| a.digest.workload.direct[0] = x as u64, 8.0, 9.0),
        ];
        hold_cost(&window_too_small::RULE, || limited("8"), (82.3, 0.85), edges);
        hold_cost(&readahead_off::RULE, || limited("0"), (82.3, 0.85), &[("PAGE_KB", to, 4.0, 5.0)]);
        // Requests of a call are as large as the usual window of others, and far below that of btrfs.
        fn own(a: &mut Alone, size: f64) {
            *a = limited("0");
            a.requests(0, 10, size as u64, 1e6);
            a.set("/x", "read_ahead_kb", "4");
            a.set("/x", "filesystem", "btrfs");
        }
        let edges: &[AloneEdge] = &[("BTRFS_KB", own, 6000.0, 8192.0)];
        hold_cost(&readahead_off::RULE, || Alone::of(|a| own(a, 256.0)), (82.3, 0.85), edges);
    }

    #[test]
    fn costs_of_waste() {
        // Half of the pages of windows of 1 MiB are used.
        let reads = || {
            Alone::of(|a| {
                a.set("recording", "disk", "sda");
                a.set("sda", "read_ahead_kb", "1024");
                a.requests(0, 10, 2048, 1e6);
                windows(&mut a.digest, RaKind::Sync, 10.0, 2560.0);
                (a.digest.cache.added, a.digest.windows.ahead, a.digest.windows.used) = (2560, 2560, 1280);
            })
        };
        let edges: &[AloneEdge] = &[
            ("USUAL_KB", |a, x| a.set("sda", "read_ahead_kb", &x.to_string()), 129.0, 128.0),
            ("IN_VAIN", |a, x| a.digest.windows.used = x as u64, 1792.0, 1793.0),
            ("OF_FAULTS", |a, x| windows(&mut a.digest, RaKind::Around, 1.0, x), 284.0, 285.0),
            ("mapped", |a, x| a.digest.workload.mapped = x as u64, 0.0, 10.0),
        ];
        // 1 - sqrt(1/2).
        hold_cost(&window_too_large::RULE, reads, (29.3, 0.85), edges);
        for (limit, used, setting, pct) in [
            ("AT_RANDOM, less", 257, "read_ahead_kb=128", 64.6),
            ("AT_RANDOM", 256, "read_ahead_kb=16", 68.4),
            ("LEAST_KB", 0, "read_ahead_kb=16", 87.5),
        ] {
            let mut random = reads();
            random.digest.windows.used = used;
            let found = random.ask(&window_too_large::RULE).expect("a cost");
            assert_eq!(found.cost.setting, setting, "{limit}");
            assert!((found.saves_pct - pct).abs() < 0.1, "{limit}: {}", found.saves_pct);
        }
        // Each fault on a page in the cache stands for 16 touched ones.
        let faults = || {
            Alone::of(|a| {
                a.digest = reads().digest;
                a.set("recording", "disk", "sda");
                a.set("sda", "read_ahead_kb", "1024");
                a.set("sda", "max_sectors_kb", "256");
                windows(&mut a.digest, RaKind::Around, 10.0, 2560.0);
                (a.digest.windows.used, a.digest.workload.mapped) = (80, 100);
            })
        };
        let streams: AloneEdge = ("OF_STREAMS", |a, x| windows(&mut a.digest, RaKind::Sync, 10.0, x), 2560.0, 2561.0);
        let edges: &[AloneEdge] = &[
            ("REQUESTS_AHEAD", |a, x| a.set("sda", "max_sectors_kb", &x.to_string()), 511.0, 512.0),
            ("REQUESTS_AHEAD, preferred", |a, x| a.set("sda", "optimal_io_size", &x.to_string()), 523_264.0, 524_288.0),
            (
                "rotational",
                |a, x| (a.set("sda", "max_sectors_kb", "512"), a.set("sda", "rotational", &x.to_string())).0,
                0.0,
                1.0,
            ),
            ("AROUND_PAGES", |a, x| a.digest.windows.used = x as u64, 112.0, 113.0),
            streams,
        ];
        hold_cost(&window_too_large::RULE, faults, (29.3, 0.85), edges);
        let found = reads().ask(&window_too_large::RULE).expect("a cost");
        assert!((found.bounds_pct[0] - LEAST * found.saves_pct).abs() < 0.1, "{}: {found:?}", "LEAST");
        // Where a cap lets bytes pass, a half of them takes half of the time.
        let mut capped = reads();
        capped.paced = Some(Paced { at_once: [1e3, 1.25e4], paused: [1e3, 1e3] });
        capped.requests(0, 10, 2048, 1e6);
        assert!(capped.ask(&window_too_large::RULE).expect("a cost").saves_pct > 49.9);
    }

    #[test]
    fn costs_of_faults() {
        let faults = || {
            Alone::of(|a| {
                a.set("recording", "disk", "sda");
                a.set("sda", "read_ahead_kb", "128");
                a.requests(0, 10, 256, 1e6);
                windows(&mut a.digest, RaKind::Around, 10.0, 320.0);
                (a.digest.cache.added, a.digest.windows.ahead, a.digest.workload.mapped) = (320, 310, 100);
            })
        };
        let edges: &[AloneEdge] = &[
            ("FOUND", |a, x| a.digest.windows.used = x as u64, 1.0, 2.0),
            ("AT_RANDOM, around", |a, x| windows(&mut a.digest, RaKind::Sync, 1.0, x), 35.0, 36.0),
            ("NOTICED", |a, x| a.requests(0, 10, 256, x), 4.87e5, 4.85e5),
            ("mapped", |a, x| a.digest.workload.mapped = x as u64, 6.0, 5.0),
            ("raised", raised, 128.0, 4096.0),
        ];
        fn raised(a: &mut Alone, kib: f64) {
            a.set("sda", "read_ahead_kb", &kib.to_string());
            a.set("sda", "max_sectors_kb", "256");
            a.requests(0, 10, 8192, 1e6);
            windows(&mut a.digest, RaKind::Around, 10.0, 10_240.0);
            (a.digest.cache.added, a.digest.windows.ahead) = (10_240, 10_240);
        }
        // 1 - sqrt(1/32).
        hold_cost(&mmap_read_around::RULE, faults, (82.3, 0.8), edges);
    }
}
