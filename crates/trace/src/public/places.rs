//! Places of requests: public traces as the records that a kernel's trace would have, and keys of caches on a disk.
//!
//! A request is a bio that was queued and issued at its arrival, and completed after its response time where the trace
//! has that. A key of a cache has no place: it gets whole pages of its own, as many as its largest object needs, behind
//! those of the keys that came before it. So a key is always read where it was written, and keys that first came
//! together lie together. Deletions and requests without bytes have no place and are left out.

use std::collections::HashMap;
use std::path::Path;

use iowhy_stack::trace::{Dev, Extent, Record, Rwbs, Seen, Trace};
use iowhy_stack::units::{Nanos, PAGE_BYTES, SECTOR_BYTES, Sector};
use iowhy_text::diagnose::{Problem, Problems};

use super::{Access, Mixed, Provenance, Purpose, Source, stream};

/// Every request of a trace that reads or writes, in the order of arrival, each at its place; and the number of those
/// that were left out.
pub fn settled(path: &Path, source: &Source, problems: &mut Problems) -> Option<(Vec<Access>, Provenance, u64)> {
    let (mut accesses, mut left_out) = (Vec::new(), 0);
    let found = stream(path, source, problems, &mut |access| {
        if access.purpose == Purpose::Delete || access.bytes == 0 {
            left_out += 1;
        } else {
            accesses.push(*access);
        }
    })?;
    if source.objects {
        settle(&mut accesses);
    }
    if !accesses.is_sorted_by_key(|access| access.at) {
        accesses.sort_by_key(|access| access.at);
    }
    Some((accesses, found, left_out))
}

/// Gives each key its place.
fn settle(accesses: &mut [Access]) {
    let mut numbers: HashMap<u64, usize, Mixed> = HashMap::default();
    let mut places: Vec<u64> = Vec::new();
    for access in &*accesses {
        let number = *numbers.entry(access.key).or_insert(places.len());
        let pages = u64::from(access.bytes).div_ceil(PAGE_BYTES);
        match places.get_mut(number) {
            Some(place) => *place = pages.max(*place),
            None => places.push(pages),
        }
    }
    let mut next = 0;
    for place in &mut places {
        next += std::mem::replace(place, next);
    }
    for access in accesses {
        access.key = places[numbers[&access.key]] * PAGE_BYTES;
    }
}

/// The device that a volume is.
pub fn dev(source: &Source, volume: u32) -> Dev {
    // Loop devices stand for volumes that are only numbers.
    if source.name == "fiu" { Dev(volume) } else { Dev::new(7, volume) }
}

/// The trace in a file, as a kernel's.
pub fn trace(path: &Path, source: &Source, problems: &mut Problems) -> Option<Trace> {
    let (accesses, provenance, left_out) = settled(path, source, problems)?;
    if left_out > 0 {
        let text = format!("{}: {left_out} requests that delete or have no bytes are left out", path.display());
        problems.push(Problem::warning(text));
    }
    let mut trace = Trace { started_ns: provenance.started_ns.unwrap_or(0), ..Trace::default() };
    for access in &accesses {
        let first = access.key / SECTOR_BYTES;
        let end = access.key.saturating_add(u64::from(access.bytes)).div_ceil(SECTOR_BYTES);
        let bytes = u32::try_from((end - first) * SECTOR_BYTES).unwrap_or(u32::MAX - (SECTOR_BYTES as u32 - 1));
        let rwbs = if access.purpose == Purpose::Read { Rwbs::READ } else { Rwbs::WRITE };
        let extent = Extent { dev: dev(source, access.volume), sector: Sector(first), bytes, rwbs };
        let mut add = |at, seen| trace.records.push(Record { at, cpu: 0, pid: access.pid, seen });
        add(access.at, Seen::Queue(extent));
        add(access.at, Seen::Issue(extent));
        if access.took > Nanos::ZERO {
            add(Nanos(access.at.0.saturating_add(access.took.0)), Seen::Complete { extent, error: 0 });
        }
    }
    trace.records.sort_by_key(|record| record.at);
    trace.names.push((0, source.name.to_owned()));
    Some(trace)
}
