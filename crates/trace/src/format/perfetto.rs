//! A trace for Perfetto (<https://ui.perfetto.dev>): one track for each layer, and flows from calls to requests.
//!
//! ```text
//! calls        a track for each thread: a slice from the begin to the end of each call
//! page cache   an instant for each run of pages that a task adds
//! read-ahead   an instant for each window
//! plug         a slice from each plug to its unplug
//! queue        a slice for each request, from its first bio (or its making) to its issue
//! device       a slice for each request, from issue to completion
//! ```
//! Slices of a track must nest, and requests overlap: queue and device have as many tracks (lanes) as requests were
//! there at once. A request's slices are in the flows of all calls that it was for, or that waited for it; flow ids are
//! numbers of requests. The sizes, sectors, offsets and files are annotations. The file is a sequence of packets, so it
//! is written packet by packet and needs no more memory than the joined trace.
//!
//! Source: `protos/perfetto/trace/{trace,trace_packet,track_event/*}.proto`; only the fields in use are declared.

use std::collections::BTreeMap;
use std::io::{self, Write};

use iowhy_stack::event::What;
use iowhy_stack::trace::{Rwbs, Seen, Trace};
use iowhy_stack::units::Nanos;
use prost::Message;

use super::{Format, Reading, Writing};
use crate::join::{Joined, Who, join};
use crate::row::{op_word, rwbs_letters};

/// The form.
pub const FORMAT: Format = Format {
    name: "perfetto",
    summary: "for ui.perfetto.dev: a track for each layer, flows from calls to requests",
    extensions: &["pftrace", "perfetto-trace"],
    detect: |_, _| false,
    read: Reading::Never,
    write: Writing::One(|trace, mut out| write(trace, &mut out)),
};

/// `perfetto.protos.TracePacket`.
#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

/// `perfetto.protos.Trace`.
#[derive(Clone, PartialEq, Message)]
struct Packets {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<Packet>,
}

/// `perfetto.protos.TrackDescriptor`.
#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
}

/// `perfetto.protos.TrackEvent`.
#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<Annotation>,
    #[prost(int32, optional, tag = "9")]
    kind: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flow_ids: Vec<u64>,
}

/// `perfetto.protos.DebugAnnotation`.
#[derive(Clone, PartialEq, Message)]
struct Annotation {
    #[prost(uint64, optional, tag = "3")]
    number: Option<u64>,
    #[prost(string, optional, tag = "6")]
    text: Option<String>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
}

const BEGIN: i32 = 1;
const END: i32 = 2;
const INSTANT: i32 = 3;
/// All packets are of one sequence, whose state the first one clears.
const SEQUENCE: u32 = 1;
const CLEARED: u32 = 1;

fn number(name: &str, number: u64) -> Annotation {
    Annotation { name: Some(name.to_owned()), number: Some(number), text: None }
}

fn words(name: &str, text: impl Into<String>) -> Annotation {
    Annotation { name: Some(name.to_owned()), number: None, text: Some(text.into()) }
}

/// Packets in no order of time; they are sorted before they are written.
#[derive(Default)]
struct Draft {
    tracks: Vec<TrackDescriptor>,
    /// Time, order at the same time (ends first), and what.
    events: Vec<(u64, u8, TrackEvent)>,
}

impl Draft {
    fn track(&mut self, name: impl Into<String>, parent: Option<u64>) -> u64 {
        let uuid = self.tracks.len() as u64 + 1;
        self.tracks.push(TrackDescriptor { uuid: Some(uuid), name: Some(name.into()), parent_uuid: parent });
        uuid
    }

    fn slice(&mut self, track: u64, (from, to): (Nanos, Nanos), name: String, flows: Vec<u64>, notes: Vec<Annotation>) {
        let begin = TrackEvent {
            debug_annotations: notes,
            kind: Some(BEGIN),
            track_uuid: Some(track),
            name: Some(name),
            flow_ids: flows,
        };
        let end = TrackEvent { kind: Some(END), track_uuid: Some(track), ..TrackEvent::default() };
        // A slice without length ends behind its begin.
        let last = if to > from { 0 } else { 2 };
        self.events.push((from.0, 1, begin));
        self.events.push((to.0.max(from.0), last, end));
    }

    fn instant(&mut self, track: u64, at: Nanos, name: String, notes: Vec<Annotation>) {
        let event = TrackEvent {
            debug_annotations: notes,
            kind: Some(INSTANT),
            track_uuid: Some(track),
            name: Some(name),
            flow_ids: Vec::new(),
        };
        self.events.push((at.0, 1, event));
    }

    /// Slices that may overlap, on as many lanes as it takes.
    fn lanes(&mut self, name: &str, mut slices: Vec<(Nanos, Nanos, usize)>, of: impl Fn(usize) -> Slice) {
        let parent = self.track(name, None);
        slices.sort();
        let mut free: Vec<(u64, Nanos)> = Vec::new();
        for (from, to, which) in slices {
            let lane = match free.iter().position(|(_, until)| *until <= from) {
                Some(lane) => lane,
                None => {
                    let track = self.track(format!("{name} {}", free.len() + 1), Some(parent));
                    free.push((track, Nanos::ZERO));
                    free.len() - 1
                }
            };
            // A slice without length keeps its lane, so that another at the same time does not end it.
            free[lane].1 = to.max(Nanos(from.0 + 1));
            let (text, flows, notes) = of(which);
            self.slice(free[lane].0, (from, to), text, flows, notes);
        }
    }
}

/// Name, flows and annotations of a slice.
type Slice = (String, Vec<u64>, Vec<Annotation>);

/// Writes one.
///
/// # Errors
/// The error of `out`.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    write_joined(trace, &join(trace, &Who::default()), out)
}

/// Writes one that has been joined.
///
/// # Errors
/// The error of `out`.
pub fn write_joined(trace: &Trace, joined: &Joined, out: &mut impl Write) -> io::Result<()> {
    let mut draft = Draft::default();
    calls(trace, joined, &mut draft);
    cache(joined, &mut draft);
    plugs(trace, &mut draft);
    requests(joined, &mut draft);
    let Draft { tracks, mut events } = draft;
    events.sort_by_key(|(at, order, _)| (*at, *order));
    let mut out = io::BufWriter::new(out);
    let mut flags = Some(CLEARED);
    let mut put = |packet: Packet| out.write_all(&Packets { packet: vec![packet] }.encode_to_vec());
    for track in tracks {
        put(Packet {
            track_descriptor: Some(track),
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: flags.take(),
            ..Packet::default()
        })?;
    }
    for (at, _, event) in events {
        put(Packet {
            timestamp: Some(at),
            track_event: Some(event),
            trusted_packet_sequence_id: Some(SEQUENCE),
            ..Packet::default()
        })?;
    }
    out.flush()
}

fn path_of(trace: &Trace, joined: &Joined, file: Option<u32>) -> String {
    let Some(inode) = file.and_then(|file| joined.files.get(file as usize)) else { return "unknown".to_owned() };
    let known = trace.paths.iter().find(|(known, _)| known == inode).map(|(_, path)| path.clone());
    known.unwrap_or_else(|| format!("{}:{} inode {}", inode.dev.major(), inode.dev.minor(), inode.ino))
}

fn flow(request: u32) -> u64 {
    u64::from(request) + 1
}

fn calls(trace: &Trace, joined: &Joined, draft: &mut Draft) {
    let parent = draft.track("calls", None);
    let mut threads: BTreeMap<u32, u64> = BTreeMap::new();
    for call in &joined.calls {
        let track = *threads.entry(call.pid).or_insert_with(|| {
            let name = trace.name(call.pid).unwrap_or("thread");
            draft.track(format!("{name} {}", call.pid), Some(parent))
        });
        let mut notes = vec![
            number("call", u64::from(call.call)),
            words("file", path_of(trace, joined, call.file)),
            number("bytes", call.len),
            number("pages added", call.pages_added),
            number("device ns", call.device.0),
        ];
        notes.extend(call.offset.map(|offset| number("offset", offset)));
        notes.extend(call.result.filter(|result| *result < 0).map(|result| words("error", result.to_string())));
        let mut flows: Vec<u64> = call.requests.iter().chain(&call.waited_for).map(|request| flow(*request)).collect();
        flows.sort_unstable();
        flows.dedup();
        let to = call.end.unwrap_or(call.start);
        draft.slice(track, (call.start, to), op_word(call.op).to_owned(), flows, notes);
    }
}

fn cache(joined: &Joined, draft: &mut Draft) {
    let pages = draft.track("page cache", None);
    let windows = draft.track("read-ahead", None);
    for event in &joined.events {
        match event.what {
            What::PageAdd { file, page, nr_pages } => {
                let notes = vec![
                    number("file", u64::from(file.0)),
                    number("page", page.0),
                    number("pages", u64::from(nr_pages)),
                    number("call", u64::from(event.call.0)),
                ];
                draft.instant(pages, event.at, "add".to_owned(), notes);
            }
            What::RaWindow { file, kind, order, start, nr_pages, async_size } => {
                let mut notes = vec![
                    number("file", u64::from(file.0)),
                    number("start", start.0),
                    number("pages", u64::from(nr_pages)),
                    number("order", u64::from(order)),
                    number("call", u64::from(event.call.0)),
                ];
                if joined.inferred_windows {
                    notes.push(words("source", "inferred from pages"));
                } else {
                    notes.push(number("async size", u64::from(async_size)));
                }
                draft.instant(windows, event.at, format!("{kind:?}").to_lowercase(), notes);
            }
            _ => {}
        }
    }
}

/// Plugs are of tasks, so each task has a lane.
fn plugs(trace: &Trace, draft: &mut Draft) {
    let parent = draft.track("plug", None);
    let mut open: BTreeMap<u32, Nanos> = BTreeMap::new();
    let mut lanes: BTreeMap<u32, u64> = BTreeMap::new();
    for record in &trace.records {
        match record.seen {
            Seen::Plug { .. } => {
                open.entry(record.pid).or_insert(record.at);
            }
            Seen::Unplug { nr_requests, .. } => {
                let Some(from) = open.remove(&record.pid) else { continue };
                let lane = *lanes.entry(record.pid).or_insert_with(|| {
                    draft.track(format!("plug of {}", trace.name(record.pid).unwrap_or("task")), Some(parent))
                });
                let notes = vec![number("requests", u64::from(nr_requests))];
                draft.slice(lane, (from, record.at), "plugged".to_owned(), Vec::new(), notes);
            }
            _ => {}
        }
    }
}

fn requests(joined: &Joined, draft: &mut Draft) {
    let mut queued = Vec::new();
    let mut at_device = Vec::new();
    for (number, request) in joined.requests.iter().enumerate() {
        let Some(issued) = request.issued else { continue };
        if let Some(begin) = request.queued.or(request.inserted).filter(|begin| *begin <= issued) {
            queued.push((begin, issued, number));
        }
        if let Some(end) = request.completed.filter(|end| *end >= issued) {
            at_device.push((issued, end, number));
        }
    }
    let slice = |which: usize| {
        let request = &joined.requests[which];
        let extent = request.extent;
        let kind = if extent.rwbs.has(Rwbs::WRITE) { "write" } else { "read" };
        let mut notes = vec![
            number("sector", extent.sector.0),
            number("bytes", u64::from(extent.bytes)),
            words("rwbs", rwbs_letters(extent.rwbs)),
            number("bios", request.bios.len() as u64),
        ];
        if request.calls.is_empty() {
            notes.push(words("caused by", "no call of the workload"));
        }
        (format!("{kind} {} KiB", extent.bytes / 1024), vec![flow(which as u32)], notes)
    };
    draft.lanes("elevator queue", queued, slice);
    draft.lanes("device", at_device, slice);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::samples;

    #[test]
    fn our_own_bytes_decode_to_layers_slices_and_flows() {
        let trace = samples::buffered_read();
        let mut bytes = Vec::new();
        write(&trace, &mut bytes).expect("memory takes everything");
        let packets = Packets::decode(&bytes[..]).expect("it is a sequence of packets").packet;
        let tracks: Vec<&TrackDescriptor> =
            packets.iter().filter_map(|packet| packet.track_descriptor.as_ref()).collect();
        let named =
            |name: &str| tracks.iter().find(|track| track.name.as_deref() == Some(name)).and_then(|track| track.uuid);
        for layer in ["calls", "page cache", "read-ahead", "plug", "elevator queue", "device"] {
            assert!(named(layer).is_some(), "{layer}");
        }
        assert_eq!(packets[0].sequence_flags, Some(CLEARED));
        // Every slice that begins ends on its track, and nothing is earlier than the slice before.
        let mut depth: BTreeMap<u64, i32> = BTreeMap::new();
        let mut last = 0;
        let mut flows: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for packet in &packets {
            let Some(event) = &packet.track_event else { continue };
            let (at, track) = (packet.timestamp.expect("a time"), event.track_uuid.expect("a track"));
            assert!(at >= last);
            last = at;
            let open = depth.entry(track).or_default();
            *open += match event.kind {
                Some(BEGIN) => 1,
                Some(END) => -1,
                _ => 0,
            };
            assert!((0..=1).contains(open), "slices of a track follow one another");
            for id in &event.flow_ids {
                flows.entry(*id).or_default().push(track);
            }
        }
        assert!(depth.values().all(|open| *open == 0));
        // The one request: from the call over the queue to the device.
        let [call, queue, device] = [named("fio 5"), named("elevator queue 1"), named("device 1")];
        assert_eq!(flows.get(&1), Some(&vec![call.unwrap_or(0), queue.unwrap_or(0), device.unwrap_or(0)]));
    }
}
