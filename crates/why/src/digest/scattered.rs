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
    /// Tasks with a tenth of them or more.
    pub readers: u32,
}

/// Sectors that a disk passes over as it goes on.
const NEAR: u64 = 256;
/// Reads for each of a task that counts, at most.
const OF_A_TASK: u64 = 10;

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
        tasks: BTreeMap<u32, u64>,
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
        for pid in request.pids.iter().take(1) {
            *arm.tasks.entry(*pid).or_default() += 1;
        }
        (arm.first, arm.at, arm.last) = (arm.first.min(sector), end, arm.last.max(end));
    }
    let most = arms.into_values().max_by_key(|arm| arm.reads).unwrap_or_default();
    let span = most.last - most.first;
    let readers = most.tasks.values().filter(|reads| **reads * OF_A_TASK >= most.reads).count() as u32;
    Scattered { jumps: most.jumps, span, ways: most.way as f64 / span.max(1) as f64, readers }
}

#[cfg(test)]
mod tests {
    use super::{Scattered, of};
    use iowhy_stack::trace::{Extent, Rwbs};
    use iowhy_stack::units::Sector;
    use iowhy_trace::join::{Joined, RequestRecord};

    #[test]
    fn the_way_is_counted_in_ways_over_all_reads() {
        let nearly = [[&[1000][..], &[0; 9]].concat(), [&[1000][..], &[0; 10]].concat()];
        for (sectors, jumps, span, ways, readers) in [
            (&[0, 1000, 2000, 3000][..], 3, 3008, 2976.0 / 3008.0, 4),
            (&[0, 8, 16, 272, 280], 0, 288, 248.0 / 288.0, 1),
            (&[0, 3000, 0, 3000], 3, 3008, (2992.0 + 3008.0 + 2992.0) / 3008.0, 2),
            (&nearly[0], 1, 1008, (1008.0 + 64.0) / 1008.0, 2),
            (&nearly[1], 1, 1008, (1008.0 + 72.0) / 1008.0, 1),
            (&[7], 0, 8, 0.0, 1),
            (&[], 0, 0, 0.0, 0),
        ] {
            let request = |sector: &u64| RequestRecord {
                extent: Extent { rwbs: Rwbs::READ, sector: Sector(*sector), bytes: 4096, ..Extent::default() },
                calls: vec![1],
                pids: vec![*sector as u32 / 1000],
                ..RequestRecord::default()
            };
            let own: Vec<RequestRecord> = sectors.iter().map(request).collect();
            // Those of others do not count.
            let others = own.iter().map(|of| RequestRecord { calls: Vec::new(), ..of.clone() });
            let requests = own.iter().cloned().chain(others).collect();
            assert_eq!(
                of(&Joined { requests, ..Joined::default() }),
                Scattered { jumps, span, ways, readers },
                "{sectors:?}"
            );
        }
    }
}
