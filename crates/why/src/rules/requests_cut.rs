//! A limit cuts contiguous data into small requests.

use super::{Figure, Match, Rule, Switch, grade};
use crate::delta::{Delta, Unit};
use crate::digest::Digest;

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
};

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
        // Smaller windows make smaller requests, too, without any merging.
        let asked_alike = way == 1 || windows.ratio() > 0.8 || windows.fast == 0.0;
        let equal = (0.8..1.25).contains(&bytes.ratio());
        let fuller = full.rose(1.5) && full.difference() > 0.2 * requests.difference();
        if !(equal
            && asked_alike
            && largest.fell(1.3)
            && mean.fell(1.2)
            && requests.rose(1.2)
            && fuller
            && cut.slow.max(could.slow) > 0.3)
        {
            continue;
        }
        // That nothing joins although pieces would fit is another matter.
        let refused = delta.of(|d| d.bios.refused[way] as f64 / d.bios.could_join[way].max(1) as f64);
        if refused.slow > 0.3 {
            continue;
        }
        let found = Match {
            confidence: grade(requests.ratio(), 1.1, 2.0),
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
