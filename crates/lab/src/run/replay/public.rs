//! A public trace as a job: its requests made again on the bare device, or on a file for each volume.
//!
//! ```text
//! tasks    one for each volume and process of the trace; direct I/O, whole sectors
//! open     each request at its arrival, however many are in flight then
//! closed   where the trace has response times: as many in flight as it had, a pause where nothing was in flight;
//!          without them, one at a time on each volume and without pauses, since the trace tells no dependence
//! places   volumes lie one behind another on the device; keys of caches have places of their own (`places`)
//! ```
//! Known limits: a closed replay keeps the depth, not which request another waited for; a job has at most 2^25
//! requests.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::path::Path;

use iowhy_stack::event::Op;
use iowhy_stack::job::{Engine, FileSpec, Place};
use iowhy_stack::units::{Nanos, SECTOR_BYTES, Sector};
use iowhy_stack::workload::Call;
use iowhy_text::diagnose::{Problem, Problems, Span};
use iowhy_trace::public::{Access, Purpose, Source, places};

use super::{Found, Mode, Replay, ReplaySite, Thread, timed};

/// Requests of a job at most.
const MOST_REQUESTS: usize = 1 << 25;
/// Volumes begin at whole MiB.
const ALIGNED_BYTES: u64 = 1 << 20;

/// Requests of one volume and process.
struct Task {
    steps: Vec<iowhy_stack::workload::Scripted>,
    /// Ends of requests in flight.
    open: BinaryHeap<Reverse<u64>>,
    /// The last end before the present.
    ready: Nanos,
    depth: u32,
    answered: bool,
}

/// The threads and files that a trace means.
pub(super) fn found(name: &str, source: &Source, how: Replay, ground: ReplaySite, out: &mut Problems) -> Option<Found> {
    let (accesses, from, left_out) = places::settled(Path::new(name), source, out)?;
    if accesses.len() > MOST_REQUESTS {
        let text = format!("`{name}` has {} requests, and a job has at most {MOST_REQUESTS}", accesses.len());
        out.push(Problem::error(text).at(Span::whole(name)).help("a part of it, for example its first million lines"));
        return None;
    }
    let packed = format!("{}, {}, {} requests, BLAKE3 {}", from.format, from.packed, from.records, from.blake3);
    out.push(Problem::note(format!("{name}: {packed}")));
    let mut volumes: Vec<(u32, u64)> = Vec::new();
    let mut numbers: BTreeMap<u32, usize> = BTreeMap::new();
    let mut tasks: BTreeMap<(usize, u32), Task> = BTreeMap::new();
    for access in &accesses {
        let volume = *numbers.entry(access.volume).or_insert_with(|| {
            volumes.push((access.volume, 0));
            volumes.len() - 1
        });
        let call = call(access, volume as u32);
        let end = call.offset.saturating_add(u64::from(call.len_bytes));
        volumes[volume].1 = end.max(volumes[volume].1);
        let task = tasks.entry((volume, access.pid)).or_insert_with(|| Task {
            steps: Vec::new(),
            open: BinaryHeap::new(),
            ready: Nanos::ZERO,
            depth: 1,
            answered: false,
        });
        task.add(access, call, how);
    }
    let lie = place(name, &mut volumes, ground, out)?;
    let threads = tasks.into_iter().map(|((volume, pid), task)| {
        let depth = if how.mode == Mode::Open { task.steps.len() as u32 } else { task.depth };
        let engine = match depth {
            1 => Engine::Sync,
            depth => Engine::Aio { depth, batch_submit: 1, batch_complete: 1 },
        };
        let name = if pid == 0 { String::new() } else { format!("-{pid}") };
        Thread { name: format!("{}-{}{name}", source.name, volumes[volume].0), steps: task.steps, direct: true, engine }
    });
    let what = "requests that delete a key or have no bytes";
    Some(Found {
        names: volumes.iter().map(|(volume, _)| format!("replay.{}.{volume}", source.name)).collect(),
        threads: threads.collect(),
        files: volumes.iter().zip(lie).map(|((_, bytes), place)| FileSpec { bytes: *bytes, place }).collect(),
        left_out: if left_out > 0 { vec![(left_out, what)] } else { Vec::new() },
    })
}

impl Task {
    fn add(&mut self, access: &Access, call: Call, how: Replay) {
        while let Some(Reverse(end)) = self.open.peek().copied()
            && end <= access.at.0
        {
            self.open.pop();
            self.ready = Nanos(end);
        }
        self.answered |= access.took > Nanos::ZERO;
        // While others are in flight nobody knows whether the task has waited or thought.
        let idle = self.answered && self.open.is_empty();
        let ready = if idle { self.ready } else { access.at };
        self.steps.push(timed(how.mode, how.scaled(access.at), how.scaled(ready), call));
        if access.took > Nanos::ZERO {
            self.open.push(Reverse(access.at.0.saturating_add(access.took.0)));
            self.depth = self.depth.max(self.open.len() as u32);
        }
    }
}

/// A request in whole sectors.
fn call(access: &Access, file: u32) -> Call {
    let offset = access.key / SECTOR_BYTES * SECTOR_BYTES;
    let end = access.key.saturating_add(u64::from(access.bytes)).checked_next_multiple_of(SECTOR_BYTES);
    let most = u64::from(u32::MAX) / SECTOR_BYTES * SECTOR_BYTES;
    let len_bytes = (end.unwrap_or(u64::MAX / SECTOR_BYTES * SECTOR_BYTES) - offset).min(most) as u32;
    let op = if access.purpose == Purpose::Read { Op::Read } else { Op::Write };
    Call { op, file, offset, len_bytes, then: None, counted: true, how: None }
}

/// Where volumes lie.
fn place(name: &str, volumes: &mut [(u32, u64)], ground: ReplaySite, out: &mut Problems) -> Option<Vec<Place>> {
    let ReplaySite::Simulated(disk) = ground else { return Some(vec![Place::FileSystem; volumes.len()]) };
    let mut next = 0_u64;
    let mut lie = Vec::new();
    for (_, bytes) in &*volumes {
        lie.push(Place::Device { start: Sector(next / SECTOR_BYTES) });
        next = next.saturating_add(*bytes).checked_next_multiple_of(ALIGNED_BYTES).unwrap_or(u64::MAX);
    }
    let end = volumes.last().map_or(0, |(_, bytes)| bytes % ALIGNED_BYTES);
    let needed = if end == 0 { next } else { next - ALIGNED_BYTES + end };
    if needed > disk {
        let many = iowhy_text::count(volumes.len() as u64, "volume", "volumes");
        let text = format!("{name}: {many} with {needed} bytes do not fit on the disk, which has {disk}");
        out.push(Problem::error(text).at(Span::whole(name)).help("--disk with a larger device"));
        return None;
    }
    Some(lie)
}
