//! Commands of a device in a trace: from the driver to their end.

use std::collections::{BTreeMap, VecDeque};

use iowhy_stack::trace::{Dev, Extent, Rwbs, Seen, Trace};

/// A command at the device.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When the device got it, and when it was done: ns.
    pub at: u64,
    pub done: u64,
    pub sector: u64,
    /// 0 for a pure flush.
    pub sectors: u32,
    pub write: bool,
}

/// The commands of a device that were both issued and done, in the order of their issue. Discards and passthrough
/// commands are left out.
pub fn samples(trace: &Trace, device: Dev) -> Vec<Sample> {
    let mut waiting: BTreeMap<(u64, u32), VecDeque<usize>> = BTreeMap::new();
    let mut found: Vec<Sample> = Vec::new();
    for record in &trace.records {
        let (extent, issued) = match &record.seen {
            Seen::Issue(extent) => (extent, true),
            Seen::Complete { extent, .. } => (extent, false),
            Seen::Requeue(extent) if extent.dev == device => {
                waiting.remove(&key(extent));
                continue;
            }
            _ => continue,
        };
        let other = [Rwbs::PASSTHROUGH, Rwbs::DISCARD].into_iter().any(|bit| extent.rwbs.has(bit));
        if extent.dev != device || other || (extent.bytes == 0 && !extent.rwbs.has(Rwbs::PREFLUSH)) {
            continue;
        }
        let at = record.at.0;
        if issued {
            waiting.entry(key(extent)).or_default().push_back(found.len());
            let write = extent.rwbs.has(Rwbs::WRITE) || extent.bytes == 0;
            let (sector, sectors) = (extent.sector.0, extent.bytes / 512);
            found.push(Sample { at, done: u64::MAX, sector, sectors, write });
        } else if let Some(nr) = waiting.get_mut(&key(extent)).and_then(VecDeque::pop_front) {
            found[nr].done = at.max(found[nr].at + 1);
        }
    }
    found.retain(|sample| sample.done != u64::MAX);
    found
}

/// The device with the most requests that were issued in a trace.
pub fn busiest(trace: &Trace) -> Option<Dev> {
    let mut devices: BTreeMap<Dev, u64> = BTreeMap::new();
    for record in &trace.records {
        if let Seen::Issue(extent) = &record.seen {
            *devices.entry(extent.dev).or_default() += 1;
        }
    }
    let most = devices.into_iter().max_by_key(|(_, nr)| *nr)?.0;
    (!samples(trace, most).is_empty()).then_some(most)
}

/// The key that a completion is found by. All flushes are alike.
fn key(extent: &Extent) -> (u64, u32) {
    if extent.bytes == 0 { (u64::MAX, 0) } else { (extent.sector.0, extent.bytes) }
}
