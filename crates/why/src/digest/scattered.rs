//! The way of an arm from read to read, against the shortest one.

use std::collections::BTreeMap;

use iowhy_stack::trace::{Dev, Rwbs};
use iowhy_stack::units::SECTOR_BYTES;
use iowhy_trace::join::Joined;

/// Reads of the workload on the device with most of them.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Scattered {
    /// Reads that begin elsewhere than the one before them ended.
    pub jumps: u64,
    /// Sectors from the first of them to the end of the last.
    pub span: u64,
    /// The way between them in spans: 1 if they come in order, a third of their number by chance.
    pub ways: f64,
}

/// Sectors that a disk passes over as it goes on.
const NEAR: u64 = 256;

/// In the order of their requests.
pub fn of(joined: &Joined) -> Scattered {
    #[derive(Default)]
    struct Arm {
        reads: u64,
        jumps: u64,
        way: u64,
        first: u64,
        at: u64,
        last: u64,
    }
    let mut arms: BTreeMap<Dev, Arm> = BTreeMap::new();
    let own = joined.requests.iter().filter(|request| request.extent.rwbs.has(Rwbs::READ) && !request.calls.is_empty());
    for request in own {
        let sector = request.extent.sector.0;
        let end = sector + u64::from(request.extent.bytes) / SECTOR_BYTES;
        let arm = arms.entry(request.extent.dev).or_insert_with(|| Arm { first: sector, at: sector, ..Arm::default() });
        let way = arm.at.abs_diff(sector);
        arm.reads += 1;
        arm.jumps += u64::from(way > NEAR);
        arm.way += way;
        (arm.first, arm.at, arm.last) = (arm.first.min(sector), end, arm.last.max(end));
    }
    let most = arms.into_values().max_by_key(|arm| arm.reads).unwrap_or_default();
    let span = most.last - most.first;
    Scattered { jumps: most.jumps, span, ways: most.way as f64 / span.max(1) as f64 }
}

#[cfg(test)]
mod tests {
    use super::{Scattered, of};
    use iowhy_stack::trace::{Extent, Rwbs};
    use iowhy_stack::units::Sector;
    use iowhy_trace::join::{Joined, RequestRecord};

    #[test]
    fn the_way_is_counted_in_ways_over_all_reads() {
        for (sectors, jumps, span, ways) in [
            (&[0, 1000, 2000, 3000][..], 3, 3008, 2976.0 / 3008.0),
            (&[0, 8, 16, 272, 280], 0, 288, 248.0 / 288.0),
            (&[0, 3000, 0, 3000], 3, 3008, (2992.0 + 3008.0 + 2992.0) / 3008.0),
            (&[7], 0, 8, 0.0),
            (&[], 0, 0, 0.0),
        ] {
            let request = |sector: &u64| RequestRecord {
                extent: Extent { rwbs: Rwbs::READ, sector: Sector(*sector), bytes: 4096, ..Extent::default() },
                calls: vec![1],
                ..RequestRecord::default()
            };
            let own: Vec<RequestRecord> = sectors.iter().map(request).collect();
            // Those of others do not count.
            let others = own.iter().map(|of| RequestRecord { calls: Vec::new(), ..of.clone() });
            let requests = own.iter().cloned().chain(others).collect();
            assert_eq!(of(&Joined { requests, ..Joined::default() }), Scattered { jumps, span, ways }, "{sectors:?}");
        }
    }
}
