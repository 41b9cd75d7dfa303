//! Writes blktrace's files as the kernel would have.
//!
//! There is a file for every CPU up to the highest, be it an empty one, because blkparse stops at the first that is
//! missing. The first begins with the clock on the wall; the name of a process comes before its first event, in that
//! event's file. Numbers are little-endian. Events that only a kernel's other tracepoints show have no place in these
//! files and are left out and counted. [`write_merged`] writes the one file that `blkparse -d` would make of these, for
//! btt and for `blkparse -i -`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use iowhy_stack::trace::{Dev, Extent, Record, Seen, Trace};

use super::{MAGIC, RECORD_BYTES, VERSION, bits};
use crate::format::Create;

/// Most CPUs that a kernel has.
const MOST_CPUS: u32 = 8192;
/// Bytes of a process's name with the zero behind it.
const NAME_BYTES: usize = 16;

/// Counts of written and skipped records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteCounts {
    /// The files, by CPU.
    pub files: Vec<PathBuf>,
    /// Events in them.
    pub events: u64,
    /// Records of the trace that have no form there.
    pub left_out: u64,
}

/// Contents of the files by CPU, and how many events they have and how many records they lack.
pub(crate) struct Encoded {
    pub files: Vec<Vec<u8>>,
    pub events: u64,
    pub left_out: u64,
}

/// Writes `PREFIX.blktrace.N`. Files of ours of the same name are replaced; those of more CPUs than the trace has would
/// become part of it, so that is refused.
pub fn write(trace: &Trace, prefix: &Path, create: Create<'_>) -> io::Result<WriteCounts> {
    let encoded = encode(trace, false)?;
    let Some(name) = prefix.file_name().and_then(|name| name.to_str()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("`{}` has no name", prefix.display())));
    };
    let path = |cpu: usize| prefix.with_file_name(format!("{name}.blktrace.{cpu}"));
    let behind = path(encoded.files.len());
    if behind.exists() {
        let text = format!("`{}` is of another trace and would be taken for a part of this one", behind.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    let mut written = WriteCounts { files: Vec::new(), events: encoded.events, left_out: encoded.left_out };
    for (cpu, bytes) in encoded.files.iter().enumerate() {
        create(&path(cpu), bytes)?;
        written.files.push(path(cpu));
    }
    Ok(written)
}

/// Writes one file with the events of all CPUs, in the order of the trace. Returns how many records have no form there.
///
/// # Errors
/// The error of `out`, and a CPU beyond those that blktrace has.
pub fn write_merged(trace: &Trace, out: &mut impl Write) -> io::Result<u64> {
    let encoded = encode(trace, true)?;
    out.write_all(&encoded.files[0])?;
    Ok(encoded.left_out)
}

/// The files' contents; of all CPUs in the first if they are `merged`.
pub(crate) fn encode(trace: &Trace, merged: bool) -> io::Result<Encoded> {
    let cpus = trace.records.iter().map(|record| record.cpu).max().map_or(1, |highest| highest.saturating_add(1));
    if cpus > MOST_CPUS {
        let text = format!("CPU {} is beyond the limit of blktrace ({})", cpus - 1, MOST_CPUS - 1);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let nr_files = if merged { 1 } else { cpus as usize };
    let mut encoded = Encoded { files: vec![Vec::new(); nr_files], events: 0, left_out: 0 };
    // The kernel counts by CPU what it traces of a device.
    let mut sequences: BTreeMap<(usize, Dev), u32> = BTreeMap::new();
    // A plug is of no device where it was traced; it is written as of the device that its CPU used last.
    let first_dev = trace.records.iter().find_map(|record| dev_of(&record.seen)).unwrap_or_default();
    let mut devs = vec![first_dev; cpus as usize];
    let mut named = BTreeSet::new();
    if let (true, Ok(seconds)) = (trace.started_ns > 0, u32::try_from(trace.started_ns / 1_000_000_000)) {
        let mut payload = [0; 8];
        payload[..4].copy_from_slice(&seconds.to_le_bytes());
        payload[4..].copy_from_slice(&((trace.started_ns % 1_000_000_000) as u32).to_le_bytes());
        let event = Event { action: bits::NOTIFY | bits::TIMESTAMP, dev: first_dev, ..Event::default() };
        push(
            &mut encoded.files[0],
            0,
            &Record { at: Default::default(), cpu: 0, pid: 0, seen: NOTHING },
            event,
            &payload,
        );
    }
    for record in &trace.records {
        let cpu = record.cpu as usize;
        let file = if merged { 0 } else { cpu };
        if let Some(dev) = dev_of(&record.seen) {
            devs[cpu] = dev;
        }
        let mut payload = Vec::new();
        let Some(event) = event(&record.seen, devs[cpu], &mut payload) else {
            encoded.left_out += 1;
            continue;
        };
        if named.insert(record.pid) {
            let mut name = [0; NAME_BYTES];
            let known = trace.name(record.pid).unwrap_or(if record.pid == 0 { "swapper" } else { "unknown" });
            let end = known.floor_char_boundary(NAME_BYTES - 1);
            name[..end].copy_from_slice(&known.as_bytes()[..end]);
            let event = Event { action: bits::NOTIFY | bits::PROCESS, dev: devs[cpu], ..Event::default() };
            push(&mut encoded.files[file], 0, record, event, &name);
        }
        let mut sequence = 0;
        if event.action & bits::NOTIFY == 0 {
            let last = sequences.entry((cpu, event.dev)).or_default();
            *last = last.wrapping_add(1);
            sequence = *last;
        }
        push(&mut encoded.files[file], sequence, record, event, &payload);
        encoded.events += 1;
    }
    Ok(encoded)
}

/// A record without what all have in common.
#[derive(Copy, Clone, Default)]
struct Event {
    action: u32,
    dev: Dev,
    sector: u64,
    bytes: u32,
    error: u16,
}

/// Stands for no event at all.
const NOTHING: Seen = Seen::Plug { dev: None };

fn push(file: &mut Vec<u8>, sequence: u32, record: &Record, event: Event, payload: &[u8]) {
    let before = file.len();
    file.extend((MAGIC | VERSION).to_le_bytes());
    file.extend(sequence.to_le_bytes());
    file.extend(record.at.0.to_le_bytes());
    file.extend(event.sector.to_le_bytes());
    for number in [event.bytes, event.action, record.pid, event.dev.0, record.cpu] {
        file.extend(number.to_le_bytes());
    }
    file.extend(event.error.to_le_bytes());
    // Messages are the only ones that could be longer, and those were cut.
    let length = payload.len().min(usize::from(u16::MAX));
    file.extend((length as u16).to_le_bytes());
    debug_assert_eq!(file.len() - before, RECORD_BYTES);
    file.extend_from_slice(&payload[..length]);
}

/// The device of an event.
fn dev_of(seen: &Seen) -> Option<Dev> {
    match seen {
        Seen::Plug { dev } | Seen::Unplug { dev, .. } => *dev,
        Seen::Message { dev, .. } => Some(*dev),
        seen => seen.extent().map(|extent| extent.dev),
    }
}

/// An event of this; nothing if blktrace has no such event.
fn event(seen: &Seen, dev: Dev, payload: &mut Vec<u8>) -> Option<Event> {
    // The kernel marks what happens to requests as of a file system, but not what happens to bios.
    let (what, extent) = match seen {
        Seen::Queue(extent) => (bits::QUEUE | bits::TC_QUEUE, extent),
        Seen::GetRequest(extent) => (bits::GET_REQUEST | bits::TC_QUEUE, extent),
        Seen::Sleep(extent) => (bits::SLEEP | bits::TC_QUEUE, extent),
        Seen::BackMerge(extent) => (bits::BACK_MERGE | bits::TC_QUEUE, extent),
        Seen::FrontMerge(extent) => (bits::FRONT_MERGE | bits::TC_QUEUE, extent),
        Seen::MergeRequests(extent) => (bits::BACK_MERGE | bits::TC_QUEUE | bits::TC_FS, extent),
        Seen::Insert(extent) => (bits::INSERT | bits::TC_QUEUE | bits::TC_FS, extent),
        Seen::Issue(extent) => (bits::ISSUE | bits::TC_ISSUE | bits::TC_FS, extent),
        Seen::Requeue(extent) => (bits::REQUEUE | bits::TC_REQUEUE | bits::TC_FS, extent),
        Seen::Complete { extent, .. } => (bits::COMPLETE | bits::TC_COMPLETE | bits::TC_FS, extent),
        Seen::Bounce(extent) => (bits::BOUNCE, extent),
        Seen::Split { extent, rest } => {
            payload.extend(rest.0.to_be_bytes());
            (bits::SPLIT, extent)
        }
        Seen::Remap { extent, from, from_sector } => {
            payload.extend(from.0.to_be_bytes());
            payload.extend(extent.dev.0.to_be_bytes());
            payload.extend(from_sector.0.to_be_bytes());
            (bits::REMAP | bits::TC_QUEUE, extent)
        }
        Seen::Plug { .. } => (bits::PLUG | bits::TC_QUEUE, &Extent { dev, ..Extent::default() }),
        Seen::Unplug { nr_requests, timer, .. } => {
            payload.extend(u64::from(*nr_requests).to_be_bytes());
            let what = if *timer { bits::UNPLUG_TIMER } else { bits::UNPLUG };
            (what | bits::TC_QUEUE, &Extent { dev, ..Extent::default() })
        }
        Seen::Message { text, .. } => {
            // Longer ones have no room.
            payload.extend_from_slice(&text.as_bytes()[..text.floor_char_boundary(usize::from(u16::MAX))]);
            return Some(Event { action: bits::NOTIFY | bits::MESSAGE, dev, ..Event::default() });
        }
        _ => return None,
    };
    let mut action = what | bits::categories(extent.rwbs);
    if action & bits::TC_PC != 0 {
        action &= !bits::TC_FS;
    }
    let error = match seen {
        Seen::Complete { error, .. } => *error as u16,
        _ => 0,
    };
    Some(Event { action, dev: extent.dev, sector: extent.sector.0, bytes: extent.bytes, error })
}
