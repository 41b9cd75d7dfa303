//! Capture of the running kernel's I/O path: its events, from tracefs or from BPF programs, as records.
//!
//! ```text
//! source     `tracefs`: two private instances with the kernel's own ring buffers; `programs`: BPF on raw tracepoints,
//!            with a ring of its own. Both know the same events, filters and records
//! reading    one thread empties the rings while they fill; events are decoded when the capture is over
//! stacks     on request: who has called tasks that begin to wait, `iowhy:stack` before their switch
//! files      calls name descriptors; records of our own name their files: `iowhy:descriptor` for those
//!            open when the capture began, `iowhy:opened` behind the end of an open
//! ```
//! Source: `Documentation/trace/ftrace.rst` and `Documentation/bpf`. Limits: how much `readv` and its like ask for is
//! in memory that a trace does not show. Memory is bounded by [`Ask::memory_mib`]; later events are counted as lost.
//! Those of the sources stand in their heads.

mod bpf;
mod decode;
mod events;
pub mod flight;
mod format;
mod instance;
mod letters;
mod opened;
mod programs;
mod reader;
mod ring;
mod shape;
mod stacks;
pub mod sum;
#[cfg(test)]
mod tests;
mod tracefs;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use iowhy_stack::trace::{Dev, Inode, Record, Seen, Trace};
use iowhy_stack::units::Nanos;
use rustix::thread::CapabilitySet;

use crate::ledger::{Guard, Ledger, LedgerError};
use crate::machine;
use decode::Decoded;
use events::{Event, LEAVING, Place};
use opened::{OpenDescriptor, Opens};
use programs::Programs;
use reader::{Page, Reader, Rings, Taken};
use shape::Shape;
use stacks::STACK_NAME;
use tracefs::Instances;
pub use tracefs::tracefs;

/// How much is looked at.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Requests as they are issued and completed.
    Light,
    /// Calls, pages, read-ahead, bios and requests.
    #[default]
    Layers,
    /// Also lookups of pages, faults, the scheduler of tasks, io_uring, writeback, journals and file systems.
    Full,
}

impl Level {
    /// All of them, the cheapest first.
    pub const ALL: [Level; 3] = [Level::Light, Level::Layers, Level::Full];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Level::Light => "light",
            Level::Layers => "layers",
            Level::Full => "full",
        }
    }
}

/// Stacks, where they are asked for and missing.
pub const STACKS: &str = "stacks of callers";
/// Begins what says that BPF is missing, where it was to record and tracefs took its place; then comes the reason.
pub const NO_BPF: &str = "BPF, so tracefs recorded: ";

/// Where the events come from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Via {
    /// The kernel's own tracing.
    Tracefs,
    /// BPF programs on raw tracepoints.
    Bpf,
}

impl Via {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Via::Tracefs => "tracefs",
            Via::Bpf => "bpf",
        }
    }
}

/// Settings of a capture. Nothing named is everything on the machine but this process's own threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// How much.
    pub level: Level,
    /// Of these processes with their threads, and what they start.
    pub pids: Vec<u32>,
    /// Of the processes and threads that the calling thread starts from now on.
    pub children: bool,
    /// Of tasks that are named only, even while there are none: more come with [`Capture::follow`].
    pub named: bool,
    /// Pages of these files only.
    pub inodes: Vec<Inode>,
    /// Bios and requests of these devices only, and pages of theirs; a disk and its partitions are different devices.
    pub devices: Vec<Dev>,
    /// Ring buffer of each CPU and instance.
    pub buffer_kib: u32,
    /// The most that is kept, MiB; less where a control group limits this process.
    pub memory_mib: u32,
    /// Events left out, as if this kernel had none of them: groups, for example `readahead`.
    pub without: Vec<String>,
    /// Tracefs by default, and BPF where the kernel denies it; for stacks the other way round.
    pub via: Option<Via>,
    /// Also what has called tasks that begin to wait, where there are states of tasks; only BPF programs record it.
    pub stacks: bool,
}

impl Default for Ask {
    fn default() -> Ask {
        Ask {
            level: Level::default(),
            pids: Vec::new(),
            children: false,
            named: false,
            inodes: Vec::new(),
            devices: Vec::new(),
            buffer_kib: 8192,
            memory_mib: 256,
            without: Vec::new(),
            via: None,
            stacks: false,
        }
    }
}

impl Ask {
    /// Whether it is about some tasks only.
    fn of_tasks(&self) -> bool {
        self.named || self.children || !self.pids.is_empty()
    }

    /// Whether an event of the table is asked for. States of all tasks of a machine would be more than all the rest.
    fn wants(&self, event: &Event) -> bool {
        event.level <= self.level && (event.place != Place::State || self.of_tasks() || self.level == Level::Full)
    }

    /// Whether an event of this name is left out.
    fn leaves_out(&self, name: &str) -> bool {
        let group = name.split('/').next().unwrap_or(name);
        self.without.iter().any(|without| without == group)
    }

    /// Whether pages are followed that others take away from the tasks.
    fn sees_reclaim(&self) -> bool {
        self.of_tasks() && self.level == Level::Full
    }
}

/// Why nothing was captured.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// This user may not.
    #[error(
        "tracing the kernel needs root: run it with sudo (or with CAP_BPF and CAP_PERFMON for BPF programs, or \
         CAP_DAC_OVERRIDE for tracefs)"
    )]
    NotAllowed,
    /// The kernel has no tracefs, or does not let us mount it.
    #[error("no tracefs, and it cannot be mounted: {0}")]
    NoTracefs(LedgerError),
    /// The kernel offers none of the events asked for.
    #[error("this kernel offers none of the events of the level `{}`", .0.name())]
    NoEvents(Level),
    /// It refuses BPF programs, all or those that are needed.
    #[error("the kernel refuses BPF programs, {0}; `iowhy trace record --via tracefs` does without")]
    Bpf(String),
    /// None of the two ways to record is open.
    #[error("{}; nor is BPF a way, {}", tracefs.reason(), bpf.reason())]
    Neither {
        /// Why not tracefs.
        tracefs: Box<CaptureError>,
        /// Why not BPF.
        bpf: Box<CaptureError>,
    },
    /// A process that was asked for is not there.
    #[error("no process {0}")]
    NoProcess(u32),
    /// Something made for it could not be made or undone.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A file of tracefs could not be read or written.
    #[error("cannot {attempt} {}: {error}", path.display())]
    Io {
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file of tracefs has a form that we do not understand.
    #[error("cannot understand {}: {what}", path.display())]
    Strange {
        /// Which file.
        path: PathBuf,
        /// The mistake.
        what: String,
    },
}

impl CaptureError {
    /// Without the advice to take the other way, which has been tried.
    pub(crate) fn reason(&self) -> String {
        match self {
            CaptureError::Bpf(why) => format!("the kernel refuses BPF programs, {why}"),
            other => other.to_string(),
        }
    }
}

/// Cost of the capture itself.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Events taken out of the rings.
    pub events: u64,
    /// Bytes taken out of the rings.
    pub bytes: u64,
    /// Processor time of the reading thread.
    pub reader_cpu: Duration,
    /// Cost of an event for the task that causes it, picoseconds: measured before the capture began, with a short call
    /// whose begin and end are traced. It is an estimate: events have different sizes, filters cost something, too, and
    /// so do the caches that an event fills.
    pub event_ps: u64,
}

impl Cost {
    /// Estimated time that the events took from those who caused them.
    pub fn estimated(&self) -> Duration {
        Duration::from_nanos(self.events.saturating_mul(self.event_ps) / 1000)
    }
}

/// A capture that is over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Captured {
    pub trace: Trace,
    /// At which level.
    pub level: Level,
    /// How long it went on.
    pub length: Duration,
    pub cost: Cost,
    /// Events asked for that this kernel does not offer, and filters that it did not take.
    pub missing: Vec<String>,
    /// CLOCK_MONOTONIC at the start of the trace, ns: other clocks of this machine can be joined with it.
    pub monotonic_ns: u64,
    /// Events that could not be decoded.
    pub undecoded: u64,
    /// Of the lost events, those that memory had no room for.
    pub over_memory: u64,
}

/// A capture that goes on.
#[derive(Debug)]
pub struct Capture {
    level: Level,
    /// Taken when it is stopped. Declared before the guard: all open files are closed before it is removed.
    running: Option<Running>,
    guard: Option<Guard>,
    missing: Vec<String>,
    monotonic_ns: u64,
    started_ns: u64,
    event_ps: u64,
    /// The thread that asked: its own activity is not of interest.
    own: Vec<u32>,
    /// Its children are of interest, too.
    children: bool,
    /// Pages are followed that others take away from the tasks.
    leaving: bool,
}

#[derive(Debug)]
struct Running {
    source: Box<dyn Source>,
    shapes: BTreeMap<u16, Shape>,
    reader: Reader,
    /// Descriptors that were open when it began.
    held: Vec<OpenDescriptor>,
}

/// Which events are recorded.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum On {
    All,
    /// Pages that leave the page cache.
    Leaving,
    Nothing,
}

/// Where events come from.
trait Source: std::fmt::Debug + Send {
    fn rings(&mut self) -> Result<Box<dyn Rings>, CaptureError>;
    /// Names the tasks whose events are wanted; `own` are of no interest, the first of them starts commands.
    fn aim(&mut self, ask: &Ask, own: &[u32]) -> Result<(), CaptureError>;
    /// Follows these processes, too, but not the thread that reads; yields whether they have threads.
    fn follow(&mut self, pids: &[u32], reader: u32) -> Result<bool, CaptureError>;
    fn switch(&mut self, on: On) -> Result<(), CaptureError>;
    fn decode(&self, decoded: &mut Decoded, page: &Page<'_>, shapes: &BTreeMap<u16, Shape>, start_ns: u64);
    /// Names of processes that the kernel has saved.
    fn names(&self) -> BTreeMap<u32, String>;
    /// Events that the rings had no room for.
    fn lost(&self) -> u64;
}

/// A source that is switched off.
struct Prepared<S> {
    source: S,
    guard: Option<Guard>,
    shapes: BTreeMap<u16, Shape>,
    missing: Vec<String>,
    event_ps: u64,
}

impl<S: Source + 'static> Prepared<S> {
    fn boxed(self) -> Prepared<Box<dyn Source>> {
        let Prepared { source, guard, shapes, missing, event_ps } = self;
        Prepared { source: Box::new(source), guard, shapes, missing, event_ps }
    }
}

/// The source that was asked for; if none was, tracefs, and BPF where that is denied.
fn prepare(ask: &Ask, ledger: &Ledger) -> Result<Prepared<Box<dyn Source>>, CaptureError> {
    let by_tracefs = || Instances::make(ask, ledger, [ask.buffer_kib; 2]).map(Prepared::boxed);
    let by_programs = || Programs::make(ask).map(Prepared::boxed);
    let mut prepared = match ask.via {
        Some(Via::Tracefs) => by_tracefs(),
        Some(Via::Bpf) => by_programs(),
        None if ask.stacks => by_programs().or_else(|bpf| {
            let note = format!("{NO_BPF}{}", bpf.reason());
            let mut made = by_tracefs().map_err(|tracefs| neither(tracefs, bpf))?;
            made.missing.push(note);
            Ok(made)
        }),
        None => instead(by_tracefs(), by_programs),
    }?;
    if ask.stacks && prepared.shapes.values().all(|shape| shape.name != STACK_NAME) {
        prepared.missing.push(STACKS.to_owned());
    }
    if prepared.shapes.is_empty() { Err(CaptureError::NoEvents(ask.level)) } else { Ok(prepared) }
}

/// Tracefs, or else BPF with a note of it; both reasons where neither is to be had.
fn instead<S>(
    by_tracefs: Result<Prepared<S>, CaptureError>,
    by_programs: impl FnOnce() -> Result<Prepared<S>, CaptureError>,
) -> Result<Prepared<S>, CaptureError> {
    by_tracefs.or_else(|tracefs| {
        let note = format!("tracefs, so BPF recorded ({tracefs})");
        let mut prepared = by_programs().map_err(|bpf| neither(tracefs, bpf))?;
        prepared.missing.push(note);
        Ok(prepared)
    })
}

fn neither(tracefs: CaptureError, bpf: CaptureError) -> CaptureError {
    CaptureError::Neither { tracefs: Box::new(tracefs), bpf: Box::new(bpf) }
}

/// Fails if the kernel refuses one of the BPF programs that record; none of them is attached.
pub(crate) fn programs_are_accepted() -> Result<(), CaptureError> {
    Programs::accepted()
}

/// CLOCK_MONOTONIC, which the events have too, ns.
pub fn monotonic_ns() -> u64 {
    crate::clock::monotonic()
}

/// Number of the calling thread.
fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_pid().unsigned_abs()
}

/// Fails unless this task is root's, has the capabilities for BPF programs or for instances of tracefs, or its group
/// may make these; the kernel may refuse it all the same.
pub(crate) fn allowed() -> Result<(), CaptureError> {
    let effective = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let programs = CapabilitySet::BPF | CapabilitySet::PERFMON;
    let enough = effective.contains(programs) || effective.contains(CapabilitySet::DAC_OVERRIDE);
    let enough = enough || rustix::process::geteuid().is_root() || tracefs::is_writable();
    if enough { Ok(()) } else { Err(CaptureError::NotAllowed) }
}

/// Files that the tasks have open already.
fn held(ask: &Ask) -> Vec<opened::OpenDescriptor> {
    match ask.level {
        Level::Light => Vec::new(),
        _ if ask.of_tasks() => {
            let mut of = ask.pids.clone();
            of.extend(ask.children.then(thread_id));
            opened::held(&of)
        }
        _ => opened::held(&opened::everybody()),
    }
}

/// Bytes of events that may be kept where memory is limited to `limit` bytes. Records, their sorting and the columns
/// that are written take 16 bytes for each byte of a recording up to 5 MiB, 64 MiB and 6 for each byte of a longer one
/// (the most that a control group used, recordings of 0.8 to 75 MB); about a quarter of the limit stays free.
fn room(limit: u64) -> u64 {
    (limit / 24).max(limit.saturating_sub(80 << 20) / 8)
}

impl Capture {
    /// Begins. Leftovers of earlier runs are removed first.
    ///
    /// # Errors
    /// If this user may not, or the kernel cannot.
    pub fn start(ask: &Ask) -> Result<Capture, CaptureError> {
        allowed()?;
        let (ledger, _) = Ledger::open()?;
        Capture::start_with(ask, &ledger)
    }

    /// The same with a ledger that is open already.
    ///
    /// # Errors
    /// As for [`start`](Capture::start).
    pub fn start_with(ask: &Ask, ledger: &Ledger) -> Result<Capture, CaptureError> {
        let Prepared { mut source, guard, shapes, mut missing, event_ps } = prepare(ask, ledger)?;
        // Calls have descriptors; levels without calls need none of them.
        let opens = (ask.level >= Level::Layers).then(Opens::start).and_then(|opens| {
            opens.map_err(|error| missing.push(format!("telling who opens which file ({error})"))).ok()
        });
        let allowed = machine::memory_limit().map_or(u64::MAX, room);
        let reader = Reader::start(source.rings()?, allowed.min(u64::from(ask.memory_mib) << 20), opens)?;
        let own = vec![thread_id(), reader.thread];
        source.aim(ask, &own)?;
        let monotonic_ns = monotonic_ns();
        let started_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let name = LEAVING.replacen('/', ":", 1);
        let leaving = ask.sees_reclaim() && shapes.values().any(|shape| shape.name == name);
        source.switch(On::All)?;
        // Files opened from now on are in the trace.
        let held = held(ask);
        let running = Running { source, shapes, reader, held };
        Ok(Capture {
            level: ask.level,
            running: Some(running),
            guard,
            missing,
            monotonic_ns,
            started_ns,
            event_ps,
            own,
            children: ask.children,
            leaving,
        })
    }

    /// Ends it, removes everything made for it, and decodes the events.
    ///
    /// # Errors
    /// If a file of tracefs cannot be read.
    pub fn stop(self) -> Result<Captured, CaptureError> {
        self.stop_and(|_| ())
    }

    /// The same; `look` looks at the page cache once the tasks are no longer followed. Pages that leave until it has
    /// looked are in the trace, too, if it has those that others take away.
    ///
    /// # Errors
    /// As for [`stop`](Capture::stop).
    pub fn stop_and(mut self, look: impl FnOnce(&mut Captured)) -> Result<Captured, CaptureError> {
        let Some(Running { mut source, shapes, reader, held }) = self.running.take() else {
            return Ok(Captured::default());
        };
        source.switch(if self.leaving { On::Leaving } else { On::Nothing })?;
        let length = Duration::from_nanos(monotonic_ns().saturating_sub(self.monotonic_ns));
        let Some((mut taken, mut rings)) = reader.stop() else { return Ok(Captured::default()) };
        let known = source.names();
        let own = decode::Own { threads: std::mem::take(&mut self.own), children: self.children };
        let mut decoded = Decoded { own, ..Decoded::default() };
        taken.pages().for_each(|page| source.decode(&mut decoded, &page, &shapes, self.monotonic_ns));
        let begin = [self.monotonic_ns, self.started_ns];
        let mut trace = trace_of(&mut decoded, begin, &held, std::mem::take(&mut taken.opened), &known, &self.missing);
        stacks::name(&mut trace.records, &taken.mappings, self.monotonic_ns);
        let mut captured = Captured {
            trace,
            level: self.level,
            length,
            cost: Cost {
                events: decoded.events + taken.over_memory,
                bytes: taken.bytes,
                reader_cpu: taken.cpu,
                event_ps: self.event_ps,
            },
            missing: std::mem::take(&mut self.missing),
            monotonic_ns: self.monotonic_ns,
            undecoded: decoded.undecoded,
            over_memory: taken.over_memory,
        };
        look(&mut captured);
        if self.leaving {
            source.switch(On::Nothing)?;
            let (mut rest, mut decoded) = (Taken::default(), Decoded::default());
            rest.all(&mut *rings, u64::MAX);
            rest.pages().for_each(|page| source.decode(&mut decoded, &page, &shapes, self.monotonic_ns));
            captured.left_at_last(decoded);
        }
        // All open files are closed before the guard removes what they are of.
        drop(rings);
        captured.trace.lost = source.lost().max(decoded.missed) + taken.over_memory;
        // The events are kept even if something cannot be undone.
        self.guard.take().into_iter().for_each(Guard::release);
        Ok(captured)
    }

    /// Follows more processes, with the files that they have open; those that have ended are left out.
    ///
    /// # Errors
    /// If a file of tracefs cannot be written.
    pub fn follow(&mut self, pids: &[u32]) -> Result<(), CaptureError> {
        let Some(running) = self.running.as_mut().filter(|_| !pids.is_empty()) else { return Ok(()) };
        running.source.follow(pids, running.reader.thread)?;
        if self.level > Level::Light {
            running.held.extend(opened::held(pids));
        }
        Ok(())
    }

    /// CLOCK_MONOTONIC when it began, ns.
    pub fn monotonic_ns(&self) -> u64 {
        self.monotonic_ns
    }

    /// Events asked for that this kernel does not offer.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }
}

impl Captured {
    /// Adds paths of files that the caller knows.
    pub fn name_files(&mut self, paths: impl IntoIterator<Item = (Inode, String)>) {
        // As the caller calls them, not as we found them.
        for (file, path) in paths {
            self.trace.paths.retain(|(known, _)| *known != file);
            self.trace.paths.push((file, path));
        }
        self.trace.paths.sort();
    }

    /// Pages of its files that left after its end.
    fn left_at_last(&mut self, decoded: Decoded) {
        let end = self.trace.records.last().map_or(Nanos(0), |record| record.at);
        let files: BTreeSet<Inode> = self.trace.records.iter().filter_map(|record| record.seen.file()).collect();
        let left =
            decoded.records.into_iter().filter(|record| record.seen.file().is_some_and(|it| files.contains(&it)));
        self.trace.records.extend(left.map(|record| Record { at: end, ..record }));
    }

    /// A time of CLOCK_MONOTONIC as one of the trace.
    pub fn at(&self, monotonic_ns: u64) -> Nanos {
        Nanos(monotonic_ns.saturating_sub(self.monotonic_ns))
    }
}

/// The trace of decoded events, without its losses. It begins at `begin`, of CLOCK_MONOTONIC and of the calendar.
fn trace_of(
    decoded: &mut Decoded,
    begin: [u64; 2],
    held: &[OpenDescriptor],
    opened: Vec<opened::Opened>,
    known: &BTreeMap<u32, String>,
    missing: &[String],
) -> Trace {
    let last_names = decoded.last_names();
    let mut records = std::mem::take(&mut decoded.records);
    // Pages that others drop are of interest if the tasks had to do with their files.
    let removed = |record: &Record| matches!(record.seen, Seen::PageRemove { .. });
    let others = || records.iter().filter(|record| !removed(record));
    let touched: BTreeSet<Inode> = others().filter_map(|record| record.seen.file()).collect();
    let at_work: BTreeSet<u32> = others().map(|record| record.pid).collect();
    let wanted = |record: &Record| {
        at_work.contains(&record.pid) || record.seen.file().is_none_or(|file| touched.contains(&file))
    };
    records.retain(|record| !removed(record) || wanted(record));
    // Stable, and quick for streams that are in order already.
    records.sort_by_key(|record| record.at);
    let mut paths = opened::add(&mut records, held, opened, begin[0]);
    paths.sort();
    paths.dedup_by_key(|(file, _)| *file);
    let names = names(&records, last_names, known);
    let windows = ["readahead:page_cache_sync_ra", "readahead:page_cache_ra_unbounded"];
    Trace {
        records,
        started_ns: begin[1],
        names,
        paths,
        kernel: machine::Machine::read().kernel_release.unwrap_or_default(),
        lost: 0,
        inferred_windows: windows.iter().any(|name| missing.iter().any(|missing| missing == name)),
    }
}

/// Names of the processes in these records: as the events say, else as the kernel has saved them, else as they are
/// called now.
fn names(
    records: &[Record],
    mut of_events: BTreeMap<u32, String>,
    saved: &BTreeMap<u32, String>,
) -> Vec<(u32, String)> {
    let mut pids: Vec<u32> = records.iter().map(|record| record.pid).filter(|pid| *pid != 0).collect();
    pids.sort_unstable();
    pids.dedup();
    for pid in pids {
        if of_events.contains_key(&pid) {
            continue;
        }
        let now = || fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned());
        if let Some(name) = saved.get(&pid).cloned().or_else(now) {
            of_events.insert(pid, name);
        }
    }
    of_events.into_iter().filter(|(pid, _)| *pid != 0).collect()
}
