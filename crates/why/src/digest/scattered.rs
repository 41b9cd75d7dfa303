//! The way of an arm from file to file, against the shortest one.

use std::collections::BTreeMap;

use iowhy_stack::trace::{Dev, Rwbs};
use iowhy_trace::join::Joined;

/// Files that are read one after the other from one device, and the way between their first requests as a multiple of
/// the way over all of them in order: 1 if they come in order, a third of their number by chance.
pub fn of(joined: &Joined) -> (u64, f64) {
    // By device: files in the order of their first requests, and where these begin.
    let mut seen: BTreeMap<(Dev, u32), u64> = BTreeMap::new();
    let mut firsts: BTreeMap<Dev, Vec<u64>> = BTreeMap::new();
    for request in joined.requests.iter().filter(|request| request.extent.rwbs.has(Rwbs::READ)) {
        let call = request.calls.first().and_then(|call| joined.calls.get((*call as usize).checked_sub(1)?));
        let Some(file) = call.and_then(|call| call.file) else { continue };
        let (dev, sector) = (request.extent.dev, request.extent.sector.0);
        if seen.insert((dev, file), sector).is_none() {
            firsts.entry(dev).or_default().push(sector);
        }
    }
    let Some(most) = firsts.values().max_by_key(|list| list.len()) else { return (0, 0.0) };
    let way: u64 = most.windows(2).map(|pair| pair[0].abs_diff(pair[1])).sum();
    let span = most.iter().max().zip(most.iter().min()).map_or(0, |(max, min)| max - min);
    (most.len() as u64, way as f64 / span.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::digest::in_place::tests::call;
    use iowhy_stack::event::Op;
    use iowhy_stack::trace::{Extent, Rwbs};
    use iowhy_stack::units::Sector;
    use iowhy_trace::join::{Joined, RequestRecord};

    #[test]
    fn the_way_is_counted_in_ways_over_all_files() {
        for (sectors, ways) in [(&[0, 10, 20, 30][..], 1.0), (&[0, 30, 0, 30], 3.0), (&[7], 0.0), (&[], 0.0)] {
            let calls = (0..).zip(sectors).map(|(nr, _)| call(nr, Op::Read, Some(0), 8)).collect();
            let request = |(nr, sector): (u32, &u64)| RequestRecord {
                extent: Extent { rwbs: Rwbs::READ, sector: Sector(*sector), ..Extent::default() },
                calls: vec![nr + 1],
                ..RequestRecord::default()
            };
            let requests: Vec<RequestRecord> = (0..).zip(sectors).map(request).collect();
            // What comes later of a file does not count.
            let requests = [requests.clone(), requests].concat();
            assert_eq!(
                of(&Joined { calls, requests, ..Joined::default() }),
                (sectors.len() as u64, ways),
                "{sectors:?}"
            );
        }
    }
}
