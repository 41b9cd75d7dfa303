//! blktrace's binary files: a record of 48 bytes for each event, and a payload behind some; a file for each CPU
//! (`NAME.blktrace.N`), or one with all of them in the order of their times (`blkparse -d`).
//!
//! ```text
//! record      magic and version, sequence, time ns (64), sector (64), bytes, action, pid, device, cpu, error (16),
//!             payload length (16); 32 bits without a statement, in the byte order of the machine that traced
//! action      low 16 bits: the event; high 16 bits: categories
//! payload     big-endian: unplug and split a number (64), remap two devices (32) and a sector (64)
//! notify      name of a process (16 bytes), clock on the wall (seconds and ns, 32 each), message (text)
//! ```
//! [`Merge`] reads files in pieces of [`BATCH`] records and merges them by time. Events of a CPU come in runs, so it
//! stays with a file until another has an earlier time, and compares with no other meanwhile. Memory is a buffer
//! and a batch for each file, however long the trace is. [`Reader`] is that as an iterator of [`Record`]s,
//! [`for_each`] the same without moving records, [`read`] all of it at once; [`write()`] writes such files.
//!
//! Damage ends the file it is in, because the start of the next record is then unknown; earlier records are kept, and a
//! [`Fault`] has the expectation and the byte. Faults come after the last record.
//!
//! Source: the kernel's `include/uapi/linux/blktrace_api.h` and `kernel/trace/blktrace.c` as of version 7 of the
//! format, and blktrace 1.2.0, whose blkparse and btt are the judges in the tests. Files are merged and names of
//! processes become known in blkparse's order, so that its text can be made of the same records. Known limits: version
//! 8 of the format (64-bit actions, Linux 6.19) is refused; drivers' private data are kept as text only; a payload's
//! cgroup is skipped.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use iowhy_stack::trace::{Dev, Extent, Record, Seen, Trace};
use iowhy_stack::units::{Nanos, Sector};

use crate::Part;
use iowhy_text::diagnose::{Problem, Problems};

pub mod bits;
pub mod replay;
pub mod write;

#[cfg(test)]
pub(super) mod tests;

use super::{Format, Reading, Writing};
pub use write::{WriteCounts, write, write_merged};

/// The form.
pub const FORMAT: Format = Format {
    name: "blktrace",
    summary: "blktrace's records, a file for each CPU or one with all, for blkparse and btt",
    extensions: &["blktrace"],
    detect,
    read: Reading::Parts(read_parts),
    write: Writing::Parts(
        |trace, mut out| write_merged(trace, &mut out).map(|_| ()),
        |trace, prefix, create| write(trace, prefix, create).map(|written| written.left_out),
    ),
};

pub const RECORD_BYTES: usize = 48;
/// Records of a file that are read ahead, as many as blkparse does.
pub const BATCH: usize = 512;
/// The upper three bytes of the first field.
const MAGIC: u32 = 0x6561_7400;
/// The lowest.
const VERSION: u32 = 7;
/// Bytes that are asked of a file at once.
const BUFFER_BYTES: usize = 128 << 10;
/// Faults of a file that are reported one by one.
const MAX_TOLD: u64 = 10;
/// A gap between sequence numbers from here on is a damaged number, not that many lost events.
const LARGEST_GAP: u32 = 1 << 24;

/// The fields of a record.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw {
    /// The kernel's clock, ns.
    pub time_ns: u64,
    /// First sector.
    pub sector: u64,
    /// How many bytes.
    pub bytes: u32,
    /// The action, and its categories: see [`bits`].
    pub action: u32,
    /// By whom.
    pub pid: u32,
    /// On which device.
    pub device: u32,
    /// On which CPU.
    pub cpu: u32,
    /// Number of the event on its CPU.
    pub sequence: u32,
    /// A negative errno, cut to 16 bits.
    pub error: u16,
    /// Bytes of the payload.
    pub payload_len: u16,
    /// Where it begins among those of its batch.
    pub(crate) payload_at: u32,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub file: String,
    /// The byte where the record begins that could not be read.
    pub offset: u64,
    /// The expectation, and the bytes found.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: at byte {}: {}", self.file, self.offset, self.what)
    }
}

impl std::error::Error for Fault {}

/// Statements of files other than events, as far as they have been read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heading {
    /// Names of processes. The first one counts.
    names: BTreeMap<u32, Box<[u8]>>,
    /// The kernel's clock, and the one on the wall at that time, ns since 1970.
    clock: Option<(u64, u64)>,
    /// Events that the kernel had no room for: gaps in the sequence numbers of a CPU and device.
    pub lost: u64,
    /// Unreadable parts.
    pub faults: Vec<Fault>,
    /// Faults beyond those listed.
    pub more_faults: u64,
}

impl Heading {
    /// The name of a process, in whatever encoding it has.
    pub fn name(&self, pid: u32) -> Option<&[u8]> {
        self.names.get(&pid).map(|name| &**name)
    }

    /// Names by pid, sorted by pid.
    pub fn names(&self) -> Vec<(u32, String)> {
        self.names.iter().map(|(pid, name)| (*pid, String::from_utf8_lossy(name).into_owned())).collect()
    }

    fn fault(&mut self, stream: &mut Stream, what: String) {
        stream.nr_faults += 1;
        if stream.nr_faults > MAX_TOLD {
            self.more_faults += 1;
        } else {
            self.faults.push(Fault { file: stream.name.clone(), offset: stream.offset, what });
        }
    }

    /// Takes a notify record; those with a message are events and do not come here.
    fn notify(&mut self, raw: &Raw, payload: &[u8], swapped: bool) {
        match raw.action ^ bits::NOTIFY {
            bits::PROCESS => {
                let end = payload.iter().position(|byte| *byte == 0).unwrap_or(payload.len()).min(15);
                self.names.entry(raw.pid).or_insert_with(|| payload[..end].into());
            }
            bits::TIMESTAMP => {
                if let Ok(both) = <[u8; 8]>::try_from(payload) {
                    let (seconds, ns) = (number32(&both[..4], swapped), number32(&both[4..], swapped));
                    self.clock = Some((raw.time_ns, u64::from(seconds) * 1_000_000_000 + u64::from(ns)));
                }
            }
            // Notifications of later kernels are not losses.
            _ => {}
        }
    }
}

/// A file that is being read.
struct Stream {
    name: String,
    source: Box<dyn Read + Send>,
    /// The CPU whose file it is; a merged file has all.
    cpu: Option<u32>,
    /// Whether its byte order is not this machine's; the first record shows it.
    swapped: Option<bool>,
    /// Bytes read; `start .. end` is not used yet.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Where in the file `start` is.
    offset: u64,
    batch: Vec<Raw>,
    /// The first record of the batch that was not handed on.
    next: usize,
    /// Payloads of the batch.
    payloads: Vec<u8>,
    /// Nothing more comes.
    ended: bool,
    nr_faults: u64,
    /// Last sequence number of each device and CPU, the one seen last in front.
    sequences: Vec<(u32, u32, u32)>,
}

impl Stream {
    fn new(name: String, source: Box<dyn Read + Send>, cpu: Option<u32>) -> Stream {
        Stream {
            name,
            source,
            cpu,
            swapped: None,
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
            offset: 0,
            batch: Vec::with_capacity(BATCH),
            next: 0,
            payloads: Vec::new(),
            ended: false,
            nr_faults: 0,
            sequences: Vec::new(),
        }
    }

    /// Makes `wanted` bytes available, or as many as there still are.
    fn fill(&mut self, wanted: usize) -> io::Result<usize> {
        while self.end - self.start < wanted {
            if self.buffer.len() - self.start < wanted {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
                if self.buffer.len() < wanted {
                    self.buffer.resize(wanted, 0);
                }
            }
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.end - self.start)
    }

    /// Reads the next batch. Notify records are taken by the heading and do not count.
    fn prime(&mut self, heading: &mut Heading) {
        self.batch.clear();
        self.payloads.clear();
        self.next = 0;
        while self.batch.len() < BATCH && !self.ended {
            if let Err(what) = self.take(heading) {
                self.ended = true;
                if let Some(what) = what {
                    heading.fault(self, what);
                }
            }
        }
    }

    /// Reads one record. An error ends the file; without a text it is the end.
    #[inline]
    fn take(&mut self, heading: &mut Heading) -> Result<(), Option<String>> {
        if self.end - self.start < RECORD_BYTES {
            match self.fill(RECORD_BYTES) {
                Ok(0) => return Err(None),
                Ok(RECORD_BYTES..) => {}
                Ok(left) => return Err(Some(format!("the file ends inside a record: {left} of {RECORD_BYTES} bytes"))),
                Err(error) => return Err(Some(format!("a record was expected: {error}"))),
            }
        }
        let Some((bytes, _)) = self.buffer[self.start..self.end].split_first_chunk::<RECORD_BYTES>() else {
            return Err(None);
        };
        let magic = number32(&bytes[..4], false);
        let swapped = match self.swapped {
            Some(swapped) => swapped,
            None => magic & !0xff != MAGIC && magic.swap_bytes() & !0xff == MAGIC,
        };
        let magic = if swapped { magic.swap_bytes() } else { magic };
        if magic != MAGIC | VERSION {
            return Err(Some(wrong_magic(magic)));
        }
        self.swapped = Some(swapped);
        let mut raw = Raw::decode(bytes, swapped);
        let mut length = RECORD_BYTES;
        if raw.payload_len > 0 {
            length += usize::from(raw.payload_len);
            match self.fill(length) {
                Ok(there) if there >= length => {}
                Ok(there) => {
                    let (there, wanted) = (there - RECORD_BYTES, raw.payload_len);
                    return Err(Some(format!("the file ends inside a payload: {there} of {wanted} bytes")));
                }
                Err(error) => return Err(Some(format!("a payload was expected: {error}"))),
            }
        }
        let mut payload = self.start + RECORD_BYTES..self.start + length;
        if raw.action & bits::CGROUP != 0 {
            // The number of a cgroup is in front of what the payload would be otherwise.
            raw.action &= !bits::CGROUP;
            payload.start += payload.len().min(8);
            raw.payload_len = payload.len() as u16;
        }
        if raw.action & bits::NOTIFY != 0 && raw.action != bits::NOTIFY | bits::MESSAGE {
            heading.notify(&raw, &self.buffer[payload], swapped);
        } else if self.cpu.is_some_and(|cpu| cpu != raw.cpu) {
            let what = format!("a record of CPU {} in the file of CPU {}", raw.cpu, self.cpu.unwrap_or_default());
            heading.fault(self, what);
        } else if usize::from(raw.payload_len) < bits::payload_bytes(raw.action) {
            let (there, wanted) = (raw.payload_len, bits::payload_bytes(raw.action));
            let what = format!("a payload of {there} bytes, expected {wanted} for this action");
            heading.fault(self, what);
        } else {
            if raw.action & bits::NOTIFY == 0 {
                heading.lost += u64::from(self.gap(&raw));
            }
            if !payload.is_empty() {
                raw.payload_at = self.payloads.len() as u32;
                self.payloads.extend_from_slice(&self.buffer[payload]);
            }
            self.batch.push(raw);
        }
        self.start += length;
        self.offset += length as u64;
        Ok(())
    }

    /// How many events of its CPU are missing before this one.
    #[inline]
    fn gap(&mut self, raw: &Raw) -> u32 {
        let is_known = |(device, cpu, _): &(u32, u32, u32)| *device == raw.device && *cpu == raw.cpu;
        if !self.sequences.first().is_some_and(is_known) {
            match self.sequences.iter().position(is_known) {
                Some(place) => self.sequences.swap(0, place),
                None => {
                    // A damaged device or CPU is forgotten again.
                    self.sequences.truncate(1 << 10);
                    self.sequences.insert(0, (raw.device, raw.cpu, raw.sequence.wrapping_sub(1)));
                }
            }
        }
        let last = std::mem::replace(&mut self.sequences[0].2, raw.sequence);
        let gap = raw.sequence.wrapping_sub(last).wrapping_sub(1);
        if gap < LARGEST_GAP { gap } else { 0 }
    }

    fn time(&self) -> u64 {
        self.batch.get(self.next).map_or(u64::MAX, |raw| raw.time_ns)
    }

    fn payload(&self, raw: &Raw) -> &[u8] {
        let start = raw.payload_at as usize;
        self.payloads.get(start..start + usize::from(raw.payload_len)).unwrap_or_default()
    }
}

fn wrong_magic(magic: u32) -> String {
    if magic & !0xff == MAGIC {
        format!("version {} of blktrace's records, expected {VERSION}", magic & 0xff)
    } else {
        format!("no record: expected {:#010x}, found {magic:#010x}", MAGIC | VERSION)
    }
}

/// A number of the first four bytes.
fn number32(bytes: &[u8], swapped: bool) -> u32 {
    let number = bytes.first_chunk().map_or(0, |four| u32::from_le_bytes(*four));
    if swapped { number.swap_bytes() } else { number }
}

/// A number of the first four bytes of a payload, which is big-endian.
fn big32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |four| u32::from_be_bytes(*four))
}

/// A number of the first eight bytes of a payload.
fn big64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |eight| u64::from_be_bytes(*eight))
}

impl Raw {
    /// Of a file's bytes. Swapped: the other way round than little-endian, which is how numbers are read first.
    #[inline]
    fn decode(bytes: &[u8; RECORD_BYTES], swapped: bool) -> Raw {
        let mut eights = [0_u64; RECORD_BYTES / 8];
        for (number, eight) in eights.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *number = u64::from_le_bytes(*eight);
        }
        if swapped {
            return Raw::swapped(bytes);
        }
        let [first, time_ns, sector, bytes_action, pid_device, last] = eights;
        Raw {
            time_ns,
            sector,
            bytes: bytes_action as u32,
            action: (bytes_action >> 32) as u32,
            pid: pid_device as u32,
            device: (pid_device >> 32) as u32,
            cpu: last as u32,
            sequence: (first >> 32) as u32,
            error: (last >> 32) as u16,
            payload_len: (last >> 48) as u16,
            payload_at: 0,
        }
    }

    #[cold]
    fn swapped(bytes: &[u8; RECORD_BYTES]) -> Raw {
        Raw {
            time_ns: big64(&bytes[8..]),
            sector: big64(&bytes[16..]),
            bytes: big32(&bytes[24..]),
            action: big32(&bytes[28..]),
            pid: big32(&bytes[32..]),
            device: big32(&bytes[36..]),
            cpu: big32(&bytes[40..]),
            sequence: big32(&bytes[4..]),
            error: (big32(&bytes[44..]) >> 16) as u16,
            payload_len: big32(&bytes[44..]) as u16,
            payload_at: 0,
        }
    }

    /// The same as a record of a trace that began at `start_ns` of the kernel's clock.
    #[inline]
    pub fn record(&self, payload: &[u8], start_ns: u64) -> Record {
        Record {
            at: Nanos(self.time_ns.saturating_sub(start_ns)),
            cpu: self.cpu,
            pid: self.pid,
            seen: self.seen(payload),
        }
    }

    #[inline]
    fn seen(&self, payload: &[u8]) -> Seen {
        let dev = Dev(self.device);
        let extent =
            Extent { dev, sector: Sector(self.sector), bytes: self.bytes, rwbs: bits::rwbs(self.action, self.bytes) };
        if self.action & bits::NOTIFY != 0 {
            let end = payload.iter().position(|byte| *byte == 0).unwrap_or(payload.len());
            return Seen::Message { dev, text: String::from_utf8_lossy(&payload[..end]).into_owned() };
        }
        match self.action & bits::WHAT {
            bits::QUEUE => Seen::Queue(extent),
            bits::BACK_MERGE => Seen::BackMerge(extent),
            bits::FRONT_MERGE => Seen::FrontMerge(extent),
            bits::GET_REQUEST => Seen::GetRequest(extent),
            bits::SLEEP => Seen::Sleep(extent),
            bits::REQUEUE => Seen::Requeue(extent),
            bits::ISSUE => Seen::Issue(extent),
            bits::COMPLETE => Seen::Complete { extent, error: i32::from(self.error as i16) },
            bits::PLUG => Seen::Plug { dev: Some(dev) },
            what @ (bits::UNPLUG | bits::UNPLUG_TIMER) => {
                Seen::Unplug { dev: Some(dev), nr_requests: big64(payload) as u32, timer: what == bits::UNPLUG_TIMER }
            }
            bits::INSERT => Seen::Insert(extent),
            bits::SPLIT => Seen::Split { extent, rest: Sector(big64(payload)) },
            bits::BOUNCE => Seen::Bounce(extent),
            bits::REMAP => Seen::Remap {
                extent: Extent { dev: Dev(self.remapped(payload).0), ..extent },
                from: Dev(self.remapped(payload).1),
                from_sector: Sector(self.remapped(payload).2),
            },
            what => other(what, self, payload),
        }
    }

    /// The number that an unplug or a split has.
    pub(super) fn number(&self, payload: &[u8]) -> u64 {
        big64(payload)
    }

    /// The device a remap goes to, the one it comes from and the sector there.
    pub(super) fn remapped(&self, payload: &[u8]) -> (u32, u32, u64) {
        let part = |start: usize| payload.get(start..).unwrap_or_default();
        (big32(part(4)), big32(part(0)), big64(part(8)))
    }
}

/// Records without a place in a trace's vocabulary.
#[cold]
fn other(what: u32, raw: &Raw, payload: &[u8]) -> Seen {
    let name = match what {
        bits::ABORT => "blktrace:abort".to_owned(),
        bits::DRIVER_DATA => "blktrace:driver_data".to_owned(),
        other => format!("blktrace:action_{other}"),
    };
    let hex: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
    let (dev, sector, bytes) = (Dev(raw.device), raw.sector, raw.bytes);
    Seen::Other { name, fields: format!("{},{} {sector} + {bytes} {hex}", dev.major(), dev.minor()).trim_end().into() }
}

/// Files merged by time.
pub struct Merge {
    streams: Vec<Stream>,
    /// Files that have a record, the earliest in front.
    order: Vec<usize>,
    heading: Heading,
    /// The time of the first record.
    start_ns: u64,
    /// The record in front was handed out.
    taken: bool,
}

impl fmt::Debug for Merge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files: Vec<&str> = self.streams.iter().map(|stream| stream.name.as_str()).collect();
        f.debug_struct("Merge").field("files", &files).field("heading", &self.heading).finish()
    }
}

/// The CPU whose file this is by its name.
pub fn cpu_of(name: &str) -> Option<u32> {
    let (stem, number) = name.rsplit_once('.')?;
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if digits && stem.ends_with(".blktrace") { number.parse().ok() } else { None }
}

/// The files that are meant by a path: all `PATH.blktrace.N`; of a name like that, all with the same beginning; a file
/// that is there as it is, which has all CPUs.
pub fn files_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let prefix = match (cpu_of(name), name.rfind(".blktrace.")) {
        (Some(_), Some(end)) => &name[..end],
        _ if path.is_file() => return Ok(vec![path.to_owned()]),
        _ => name,
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let other = entry?.file_name();
        let Some(other) = other.to_str() else { continue };
        let is_part = other.strip_prefix(prefix).is_some_and(|rest| rest.strip_prefix(".blktrace.").is_some());
        if let (true, Some(cpu)) = (is_part, cpu_of(other)) {
            found.push((cpu, path.with_file_name(other)));
        }
    }
    found.sort();
    if found.is_empty() {
        let text = format!("there is neither `{}` nor `{}.blktrace.0`", path.display(), path.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

impl Merge {
    /// Of files: each path as in [`files_of`].
    pub fn open(paths: &[PathBuf]) -> Result<Merge, Fault> {
        let fault = |path: &Path, error: io::Error| Fault {
            file: path.display().to_string(),
            offset: 0,
            what: format!("cannot be read: {error}"),
        };
        let mut files = Vec::new();
        for path in paths {
            for file in files_of(path).map_err(|error| fault(path, error))? {
                if !files.contains(&file) {
                    files.push(file);
                }
            }
        }
        let mut sources: Vec<(String, Box<dyn Read + Send>)> = Vec::new();
        for file in files {
            let source = File::open(&file).map_err(|error| fault(&file, error))?;
            sources.push((file.display().to_string(), Box::new(source)));
        }
        Ok(Merge::new(sources))
    }

    /// Of anything that can be read. Names say of which CPU a file is, as in [`cpu_of`].
    pub fn new(sources: Vec<(String, Box<dyn Read + Send>)>) -> Merge {
        let streams: Vec<Stream> = sources
            .into_iter()
            .map(|(name, source)| {
                let cpu = cpu_of(&name);
                Stream::new(name, source, cpu)
            })
            .collect();
        let mut merge = Merge { streams, order: Vec::new(), heading: Heading::default(), start_ns: 0, taken: false };
        for nr in 0..merge.streams.len() {
            merge.streams[nr].prime(&mut merge.heading);
            if !merge.streams[nr].batch.is_empty() {
                merge.place(nr);
            }
        }
        merge.start_ns = merge.order.first().map_or(0, |first| merge.streams[*first].time());
        merge
    }

    /// The headings of the files so far.
    pub fn heading(&self) -> &Heading {
        &self.heading
    }

    /// The kernel's clock at the first record, ns.
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// When the trace began, ns since 1970; 0 if no file had it up to now.
    pub fn started_ns(&self) -> u64 {
        let Some((clock, wall)) = self.heading.clock else { return 0 };
        wall.wrapping_add(self.start_ns.wrapping_sub(clock))
    }

    /// Puts a file where its next record belongs. Of equal times the file that is in front stays there; behind it, the
    /// one that came last goes first. This is how blkparse does it.
    fn place(&mut self, nr: usize) {
        let time = self.streams[nr].time();
        let front = self.order.first().is_none_or(|first| time < self.streams[*first].time());
        let mut at = usize::from(!front);
        while at > 0 && self.order.get(at).is_some_and(|other| self.streams[*other].time() < time) {
            at += 1;
        }
        self.order.insert(at, nr);
    }

    /// Puts the file in front, whose next record has changed, where it belongs.
    fn settle(&mut self) {
        let Some(&nr) = self.order.first() else { return };
        let stream = &mut self.streams[nr];
        if stream.next >= stream.batch.len() {
            stream.prime(&mut self.heading);
            if stream.batch.is_empty() {
                self.order.remove(0);
                return;
            }
        }
        let time = self.streams[nr].time();
        if self.order.get(1).is_some_and(|second| time > self.streams[*second].time()) {
            self.order.remove(0);
            self.place(nr);
        }
    }

    /// The next record and its payload.
    #[inline]
    pub fn next_raw(&mut self) -> Option<(&Raw, &[u8])> {
        if std::mem::take(&mut self.taken) {
            self.streams[self.order[0]].next += 1;
            self.settle();
        }
        let stream = &self.streams[*self.order.first()?];
        let raw = stream.batch.get(stream.next)?;
        self.taken = true;
        Some((raw, stream.payload(raw)))
    }

    /// Hands on every remaining record, with its payload and the state so far.
    #[inline]
    pub fn for_each_raw<E>(&mut self, mut f: impl FnMut(&Raw, &[u8], &Heading) -> Result<(), E>) -> Result<(), E> {
        if std::mem::take(&mut self.taken) {
            self.streams[self.order[0]].next += 1;
            self.settle();
        }
        while let Some(&nr) = self.order.first() {
            let limit = self.order.get(1).map_or(u64::MAX, |second| self.streams[*second].time());
            let stream = &mut self.streams[nr];
            let batch = stream.batch.get(stream.next..).unwrap_or_default();
            // The record in front is due in any case, even if its file's times run backwards.
            let run = 1 + batch.iter().skip(1).take_while(|raw| raw.time_ns <= limit).count();
            for raw in batch.iter().take(run) {
                f(raw, stream.payload(raw), &self.heading)?;
            }
            stream.next += run;
            self.settle();
        }
        Ok(())
    }
}

/// The records of a trace, and after them what could not be read.
#[derive(Debug)]
pub struct Reader {
    merge: Merge,
    told: usize,
}

impl Reader {
    /// Of files: each path as in [`files_of`].
    pub fn open(paths: &[PathBuf]) -> Result<Reader, Fault> {
        Ok(Reader::of(Merge::open(paths)?))
    }

    /// Of files that are merged.
    pub fn of(merge: Merge) -> Reader {
        Reader { merge, told: 0 }
    }

    /// The headings of the files so far.
    pub fn heading(&self) -> &Heading {
        self.merge.heading()
    }

    /// When the trace began, ns since 1970; 0 if no file had it up to now.
    pub fn started_ns(&self) -> u64 {
        self.merge.started_ns()
    }
}

impl Iterator for Reader {
    type Item = Result<Record, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let start_ns = self.merge.start_ns;
        if let Some((raw, payload)) = self.merge.next_raw() {
            return Some(Ok(raw.record(payload, start_ns)));
        }
        let fault = self.merge.heading.faults.get(self.told)?.clone();
        self.told += 1;
        Some(Err(fault))
    }
}

/// Hands every record of these files to `f`, in the order of their times, with no memory taken for each.
pub fn for_each(paths: &[PathBuf], mut f: impl FnMut(&Record)) -> Result<Heading, Fault> {
    let mut merge = Merge::open(paths)?;
    let start_ns = merge.start_ns;
    let all: Result<(), std::convert::Infallible> = merge.for_each_raw(|raw, payload, _| {
        f(&raw.record(payload, start_ns));
        Ok(())
    });
    let Ok(()) = all;
    Ok(merge.heading)
}

/// Reads all of these files: the trace, and what could not be read.
pub fn read(paths: &[PathBuf]) -> Result<(Trace, Vec<Fault>), Fault> {
    Ok(collect(Merge::open(paths)?))
}

/// Reads all that is left.
pub fn collect(mut merge: Merge) -> (Trace, Vec<Fault>) {
    let start_ns = merge.start_ns;
    let mut trace = Trace::default();
    while let Some((raw, payload)) = merge.next_raw() {
        trace.records.push(raw.record(payload, start_ns));
    }
    if !trace.records.is_sorted_by_key(|record| record.at) {
        trace.records.sort_by_key(|record| record.at);
    }
    trace.started_ns = merge.started_ns();
    trace.names = merge.heading.names();
    trace.lost = merge.heading.lost;
    (trace, merge.heading.faults)
}

/// Whether a file with this beginning is blktrace's.
pub fn detect(_: &str, bytes: &[u8]) -> bool {
    bytes.len() >= RECORD_BYTES && [false, true].iter().any(|swapped| number32(bytes, *swapped) & !0xff == MAGIC)
}

/// Reads the parts of a trace. Unreadable parts are warnings, unless nothing is readable.
pub fn read_parts(parts: &[Part<'_>], problems: &mut Problems) -> Option<Trace> {
    let sources = parts
        .iter()
        .map(|part| {
            let source: Box<dyn Read + Send> = Box::new(io::Cursor::new(part.bytes.to_vec()));
            (part.name.to_owned(), source)
        })
        .collect();
    let (trace, faults) = collect(Merge::new(sources));
    let nothing = trace.records.is_empty() && !faults.is_empty();
    for fault in faults {
        let text = fault.to_string();
        problems.push(if nothing { Problem::error(text) } else { Problem::warning(text) });
    }
    (!nothing).then_some(trace)
}
