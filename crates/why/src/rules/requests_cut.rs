//! A limit cuts contiguous data into small requests.

use super::cost::{Cost, Facts, MARKED, TRIPS};
use super::instead::{self, Saved};
use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};
use crate::digest::Digest;
use iowhy_stack::units::{PAGE_SECTORS, SECTOR_BYTES};

pub(super) const RULE: Rule = Rule {
    name: "requests-cut",
    layer: "merging",
    needs: super::REQUESTS,
    owns: super::Owns::Calls,
    single: super::Single::Counts,
    what: "A limit on the size or the segments of a request cuts contiguous data into many small requests.",
    why: "Each request costs the CPU, the driver and the device once; where a device charges for operations, or takes \
          one at a time, many small requests take longer than a few large ones.",
    events: "The largest request has become smaller, the same bytes go in more requests, and these follow one another \
             seamlessly, most of them as large as any: a bio that begins where an unissued request ends does not \
             join it.",
    example: "max_sectors_kb lowered for latency's sake, below reads of 1 MiB; a controller with few segments.",
    change: "Raise max_sectors_kb (up to max_hw_sectors_kb); use larger pages where the segments run out.",
    refute: "With the other side's max_sectors_kb and max_segments the requests are still cut.",
    since: "Every kernel; max_sectors_kb in sysfs since 2.6.10.",
    consequences: &[],
    switches: &[Switch::Other("max_sectors_kb"), Switch::Other("max_segments"), Switch::Queue("max_sectors_kb")],
    find,
    cost: Some(cost),
};

/// Ratio of window sizes above which reads are asked for alike: smaller windows make smaller requests, too.
const WINDOWS: f64 = 0.8;
/// Ratios of bytes for an operation that are alike.
const ALIKE: std::ops::Range<f64> = 0.8..1.25;
/// Factor by which the largest request is smaller: limits are changed by factors of two, segments by less.
const SMALLER: f64 = 1.3;
/// Factor by which the mean request is smaller: small files and odd ends stay as they were.
const SMALLER_MEAN: f64 = 1.2;
/// Factor by which requests are more, as the mean size makes them.
const MORE: f64 = 1.2;
/// Factor by which more bios meet a request without room.
const FULLER: f64 = 1.5;
/// Such bios for each request more: one bio can bring several requests, and some requests are issued too early.
const PART: f64 = 0.2;
/// Share of requests that end at the limit, or of bios that begin at the end of another one: contiguous data.
const CONTIGUOUS: f64 = 0.3;
/// Share of the bios that could join and did not, though there was room: then `merging-off` is asked.
const REFUSED: f64 = 0.3;
/// Factors by which requests are more, half sure and sure: a limit cut in half doubles them.
const GRADE: (f64, f64) = (1.1, 2.0);

/// Bios of file data that met an unissued request they continue and could not join it for its size, for an operation.
fn full(d: &Digest, way: usize) -> f64 {
    d.bios.could_join[way].saturating_sub(d.bios.joined[way] + d.bios.refused[way]) as f64
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    let mut best: Option<Match> = None;
    for (way, name) in ["read", "write"].into_iter().enumerate() {
        let largest = delta.of(|d| d.commands.sizes[way].max() as f64 * 512.0);
        let mean = delta.of(|d| d.commands.sizes[way].mean() * 512.0);
        let requests = delta.per_operation(|d| d.commands.issued[way] as f64);
        let bytes = delta.per_operation(|d| d.commands.sectors[way] as f64 * 512.0);
        let full = delta.per_operation(|d| full(d, way));
        let cut = delta.of(|d| d.commands.cut[way] as f64 / d.commands.issued[way].max(1) as f64);
        // Those that are issued backwards do not look contiguous; their bios did.
        let could = delta.of(|d| d.bios.could_join[way] as f64 / d.bios.count[way].max(1) as f64);
        let windows = delta.of(|d| d.windows.sizes.mean());
        let alike = (way == 1 || windows.ratio() > WINDOWS) && ALIKE.contains(&bytes.ratio());
        let smaller = largest.fell(SMALLER) && mean.fell(SMALLER_MEAN) && requests.rose(MORE);
        let fuller = full.rose(FULLER) && full.difference() > PART * requests.difference();
        let refused = delta.of(|d| d.bios.refused[way] as f64 / d.bios.could_join[way].max(1) as f64);
        let contiguous = cut.slow.max(could.slow) > CONTIGUOUS;
        if !(alike && smaller && fuller && contiguous) || refused.slow > REFUSED {
            continue;
        }
        let found = Match {
            confidence: grade(requests.ratio(), GRADE.0, GRADE.1),
            share_ns: None,
            claim: format!(
                "{name}s are cut into requests of {:.0} KB at most, where {:.0} KB went before: {:.1} times as many \
                 requests",
                largest.slow / 1024.0,
                largest.fast / 1024.0,
                requests.ratio()
            ),
            evidence: vec![
                Figure::new(format!("largest {name} request"), largest, Unit::Bytes),
                Figure::new(format!("mean {name} request"), mean, Unit::Bytes),
                Figure::new(format!("{name} requests for an operation"), requests, Unit::Count),
                Figure::new("bios that could not join for size, for an operation", full, Unit::Count),
            ],
        };
        if best.as_ref().is_none_or(|best| found.confidence > best.confidence) {
            best = Some(found);
        }
    }
    best
}

/// KiB of a request that no default is below, unless the device takes less, and that the kernel's default is.
const LARGE_KB: f64 = 512.0;
const USUAL_KB: f64 = 1280.0;

/// Requests of one direction that a limit cuts: the part that goes on in another one, their mean sectors, and what
/// whole ones save.
fn cut(facts: &Facts<'_>, limit: f64, most: f64, way: usize) -> Option<(f64, f64, Saved)> {
    let commands = &facts.digest.commands;
    let cut = commands.cut[way] as f64 / commands.issued[way].max(1) as f64;
    // Those that are smaller end for other reasons.
    let met = commands.sizes[way].max() as f64 > limit * 1024.0 / 512.0 - PAGE_SECTORS as f64;
    if cut < CONTIGUOUS || !met {
        return None;
    }
    // Those that end at the limit go on in the next one, up to the usual limit, and to the end of a direct call.
    let (size, _) = instead::own(facts, way);
    let work = &facts.digest.workload;
    let call = work.bytes[way] as f64 / SECTOR_BYTES as f64 / work.calls[way].max(1) as f64;
    let end = if work.direct[way] > work.calls[way] - work.direct[way] { call.max(size) } else { f64::INFINITY };
    let whole = (size / (1.0 - cut).max(limit / USUAL_KB)).min(most.min(USUAL_KB) * 1024.0 / 512.0).min(end);
    Some((cut, size, instead::fewer(facts, way, whole, false)?))
}

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let commands = &facts.digest.commands;
    let way = usize::from(commands.own_sectors[1] > commands.own_sectors[0]);
    let most = facts.number_of_disk("max_hw_sectors_kb").unwrap_or(LARGE_KB);
    let limit = facts.number_of_disk("max_sectors_kb").filter(|limit| *limit < most.min(LARGE_KB))?;
    let (cut_here, size, saved) = cut(facts, limit, most, way)?;
    // A copy has both, one after the other or side by side: no more than all waits can go.
    let back = cut(facts, limit, most, 1 - way).map_or(0.0, |(.., saved)| saved.ns);
    let waits = facts.in_layers(&TRIPS);
    let both = saved.ns + back.min((waits - saved.ns).max(0.0));
    let [least, largest] = saved.bounds.map(|part| part * saved.ns);
    let saved = Saved::of(both, least, largest.max(both));
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: MARKED,
        claim: format!(
            "max_sectors_kb={limit:.0}: {:.0} % of the requests end there and go on in another one, and {:.0} is usual",
            100.0 * cut_here,
            most.min(USUAL_KB)
        ),
        setting: format!("max_sectors_kb={:.0}", most.min(USUAL_KB)),
        evidence: vec![
            ("share of requests that end at the limit and go on", cut_here, Unit::Share),
            ("mean size of a request", size * 512.0, Unit::Bytes),
        ],
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::edges::{Edge, Pair, hold, spread};
    use super::RULE;

    /// The same sectors in 1500 requests instead of 1000, as bios find no room.
    pub(in super::super) fn cut(p: &mut Pair, way: usize) {
        p.both(|d| d.commands.sectors[way] = 100_000);
        (p.fast.commands.issued[way], p.slow.commands.issued[way]) = (1000, 1500);
        (p.fast.commands.sizes[way], p.slow.commands.sizes[way]) = (spread(1, 1000.0), spread(1, 500.0));
        (p.slow.bios.count[way], p.slow.bios.could_join[way], p.slow.bios.joined[way]) = (2000, 1100, 500);
    }

    fn reads() -> Pair {
        Pair::of(|p| cut(p, 0))
    }

    /// Writes, which have no windows.
    fn writes() -> Pair {
        Pair::of(|p| {
            cut(p, 1);
            (p.fast.windows.sizes, p.slow.windows.sizes) = (spread(1, 1000.0), spread(1, 1.0));
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            (
                "WINDOWS",
                |p, x| (p.fast.windows.sizes, p.slow.windows.sizes) = (spread(1, 1000.0), spread(1, x)),
                801.0,
                800.0,
            ),
            ("ALIKE, fewer", |p, x| p.slow.commands.sectors[0] = x as u64, 80_001.0, 79_999.0),
            ("ALIKE, more", |p, x| p.slow.commands.sectors[0] = x as u64, 124_999.0, 125_001.0),
            ("SMALLER", |p, x| p.slow.commands.sizes[0] = spread(1, x), 769.0, 770.0),
            (
                "SMALLER_MEAN",
                |p, x| {
                    p.fast.commands.sizes[0].add(200);
                    p.slow.commands.sizes[0] = spread(1, x);
                },
                499.0,
                500.0,
            ),
            ("MORE", |p, x| p.slow.commands.issued[0] = x as u64, 1201.0, 1200.0),
            (
                "FULLER",
                |p, x| (p.fast.bios.could_join[0], p.slow.bios.could_join[0]) = (400, 500 + x as u64),
                601.0,
                600.0,
            ),
            ("PART", |p, x| p.slow.bios.joined[0] = 1100 - x as u64, 101.0, 100.0),
            ("CONTIGUOUS bios", |p, x| p.slow.bios.count[0] = x as u64, 3666.0, 3667.0),
            (
                "CONTIGUOUS requests",
                |p, x| (p.slow.bios.count[0], p.slow.commands.cut[0]) = (10_000, x as u64),
                451.0,
                450.0,
            ),
            ("REFUSED", |p, x| (p.slow.bios.joined[0], p.slow.bios.refused[0]) = (0, x as u64), 330.0, 331.0),
            ("refused are not full", |p, x| p.slow.bios.refused[0] = x as u64, 329.0, 500.0),
        ];
        hold(&RULE, reads, 0.7594, edges);
        hold(&RULE, writes, 0.7594, &[("MORE writes", |p, x| p.slow.commands.issued[1] = x as u64, 1201.0, 1200.0)]);
    }

    #[test]
    fn costs() {
        use super::super::edges::{Alone, AloneEdge, hold_cost};
        fn limit(a: &mut Alone, kib: f64) {
            a.set("sda", "max_sectors_kb", &kib.to_string());
            a.digest.commands.sizes[0] = super::super::edges::spread(16, 2.0 * kib);
        }
        let cut = || {
            Alone::of(|a| {
                a.set("recording", "disk", "sda");
                a.set("sda", "max_hw_sectors_kb", "1280");
                a.requests(0, 16, 128, 8e5);
                limit(a, 64.0);
                a.digest.commands.cut[0] = 15;
            })
        };
        let edges: &[AloneEdge] = &[
            ("LARGE_KB", limit, 511.0, 512.0),
            (
                "USUAL_KB, or what the device takes",
                |a, x| a.set("sda", "max_hw_sectors_kb", &x.to_string()),
                1280.0,
                64.0,
            ),
            ("CONTIGUOUS, alone", |a, x| a.digest.commands.cut[0] = x as u64, 5.0, 4.0),
            ("met", |a, x| a.digest.commands.sizes[0] = super::super::edges::spread(16, x), 121.0, 120.0),
        ];
        hold_cost(&super::RULE, cut, (60.0, 0.85), edges);
        // Two at once now, and later one that takes as long: a 16th of the requests, twice the time.
        let side_by_side = || {
            Alone::of(|a| {
                *a = cut();
                a.service = vec![(128, 1e5), (2048, 1e5)];
            })
        };
        hold_cost(&super::RULE, side_by_side, (70.0, 0.85), &[]);
        // A copy: half of it are writes.
        let copy = || {
            Alone::of(|a| {
                *a = cut();
                a.requests(1, 16, 128, 4e5);
                a.requests(0, 16, 128, 4e5);
                limit(a, 64.0);
                (a.digest.commands.cut, a.digest.commands.sizes[1]) = ([15; 2], super::super::edges::spread(16, 128.0));
            })
        };
        hold_cost(&super::RULE, copy, (60.0, 0.85), &[]);
    }
}
