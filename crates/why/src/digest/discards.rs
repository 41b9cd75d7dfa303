//! Discards at a device while requests of the workload wait there, or its syncs: how many, and for how long. Its own
//! discards are waited for, too.
//!
//! A file system mounted with `discard` discards when it commits, so that syncs wait for it.

use std::collections::BTreeMap;

use iowhy_stack::event::Op;
use iowhy_stack::trace::{Dev, Rwbs};
use iowhy_trace::join::Joined;

/// Discards, and the time with one at a device that a request or a sync of the workload waits for or is at, ns.
pub fn of(joined: &Joined) -> (u64, u64) {
    // By device: when the numbers of discards and of others change, and by how much.
    let mut changes: BTreeMap<Dev, Vec<(u64, [i32; 2])>> = BTreeMap::new();
    let mut discards = 0;
    for request in &joined.requests {
        let (Some(issued), Some(done)) = (request.issued, request.completed) else { continue };
        let discard = request.extent.rwbs.has(Rwbs::DISCARD);
        let own = joined.tree.as_ref().is_none_or(|tree| request.pids.iter().any(|pid| tree.contains(pid)));
        if !discard && !own {
            continue;
        }
        discards += u64::from(discard);
        let from = if discard { issued } else { request.queued.or(request.inserted).unwrap_or(issued) };
        let one = [i32::from(discard), i32::from(own)];
        let list = changes.entry(request.extent.dev).or_default();
        list.extend([(from.0, one), (done.0.max(from.0), one.map(|n| -n))]);
    }
    let mut in_the_way = 0;
    let syncs = joined.calls.iter().filter(|call| matches!(call.op, Op::Fsync | Op::Fdatasync));
    let syncs: Vec<(u32, u64, u64)> = syncs
        .filter_map(|call| {
            let file = joined.files.get(call.file? as usize)?;
            Some((file.dev.major(), call.start.0, call.end?.0))
        })
        .collect();
    for (dev, mut list) in changes {
        // Partitions have numbers of their own.
        for (_, from, to) in syncs.iter().filter(|(major, ..)| discards > 0 && *major == dev.major()) {
            list.extend([(*from, [0, 1]), (*to, [0, -1])]);
        }
        list.sort_unstable();
        let (mut there, mut since) = ([0_i32; 2], 0);
        for (at, change) in list {
            in_the_way += if there[0] > 0 && there[1] > 0 { at - since } else { 0 };
            (there, since) = ([there[0] + change[0], there[1] + change[1]], at);
        }
    }
    (discards, in_the_way)
}
