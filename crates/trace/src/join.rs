//! Joins the records of a trace to calls: one record for each call with its windows, pages, bios and requests, and the
//! same in the simulator's words ([`Event`]).
//!
//! ```text
//! call       what a task does between the begin and the end of a system call is done for that call
//! file       the descriptor's, if it is known (see `descriptors`); else the mapping whose pages the call looks up;
//!            later
//!            calls on the same open file go to the same file, and earlier ones where nothing else is known
//! page, bio  a task adds pages to a mapping and then submits bios for them in the same order: a read bio takes as many
//!            pages as it has bytes from those that wait (not those of metadata; pages that a write adds do not)
//! request    a bio makes a request [G] or joins one that ends or begins where it begins or ends [M, F]; where a trace
//!            has no such records, a request that is issued takes the queued bios of its sectors
//! complete   of a request, by its sectors; of a bio alone, if it has no request
//! waited     of the requests with pages that the call asks for, or with its own bios that carry no pages of a mapping,
//!            those that complete while it runs
//! windows    as traced; from a kernel that has no tracepoints for them, each run of pages that a call adds is one,
//!            until
//!            a bio of data is queued (a window's pages are all added before they are read), and is marked as inferred
//! ```
//! Source: the order of `page_cache_ra_unbounded`, `submit_bio_noacct`, `blk_mq_submit_bio` and `blk_update_request`
//! (6.18). Known limits: a bio of another task for pages of this one (swap, helper threads of a file system) goes to
//! that task; in a trace without opens and closes, only pages distinguish descriptors that are opened again with other
//! files; events that could not be linked are counted in [`Leftovers`].

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use iowhy_stack::event::{
    CallId, Content, Dir, Event, Eviction, FileId, MergeKind, Op, RaKind, RqId, UnplugCause, What,
};
use iowhy_stack::trace::{Dev, Extent, Inode, Record, Rwbs, Seen, Trace};
use iowhy_stack::units::{Nanos, PAGE_BYTES, PageIndex, SECTOR_BYTES, Sector};

pub mod beside;
pub mod descriptors;

use crate::fields::{device, field};
pub use beside::Way;
use descriptors::Descriptors;
pub use descriptors::NoFile;
use iowhy_stack::trace::RaInput;

/// The file of a call whose file is unknown.
pub const UNKNOWN_FILE: FileId = FileId(u32::MAX);

/// The owner of the calls, and the known facts about its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// Threads of the workload; empty for all that make calls.
    pub pids: Vec<u32>,
    /// Files of the workload; they get the numbers 0, 1, .. in this order, others follow as they are met.
    pub files: Vec<Inode>,
    /// Which file a descriptor of a thread is.
    pub descriptors: Vec<(u32, i32, Inode)>,
}

/// A window of read-ahead.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// When.
    pub at: Nanos,
    /// Of which file.
    pub file: u32,
    /// Because a page was missing, or ahead of need.
    pub kind: RaKind,
    /// First page.
    pub start: u64,
    pub nr_pages: u64,
    /// Pages of it ahead of the next marker; nothing where it was inferred.
    pub async_size: Option<u64>,
    /// Order of folios to begin with.
    pub order: u32,
    /// It was inferred from pages added.
    pub inferred: bool,
}

/// Pages of a file, one behind the other, that one process put into the cache.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    /// Of which file.
    pub file: u32,
    /// First page.
    pub start: u64,
    /// How many.
    pub nr_pages: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BioRecord {
    /// When it reached the queue.
    pub at: Nanos,
    /// By whom.
    pub pid: u32,
    /// For which call; 0 for none.
    pub call: u32,
    pub extent: Extent,
    /// Pages of the cache that it reads into.
    pub pages: Vec<Pages>,
    /// Its request, by place in [`Joined::requests`].
    pub request: Option<u32>,
    /// When it was done, if it has no request.
    pub completed: Option<Nanos>,
}

/// A request, from its first bio to its completion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRecord {
    /// As issued.
    pub extent: Extent,
    /// Its bios, by place in [`Joined::bios`].
    pub bios: Vec<u32>,
    /// Calls that they are for.
    pub calls: Vec<u32>,
    /// Submitting processes.
    pub pids: Vec<u32>,
    /// When its first bio was queued.
    pub queued: Option<Nanos>,
    /// When it was given to the elevator.
    pub inserted: Option<Nanos>,
    /// When it was given to the driver (the last time).
    pub issued: Option<Nanos>,
    /// When it was done.
    pub completed: Option<Nanos>,
    /// With which error.
    pub error: i32,
    /// It was merged into another.
    pub merged: bool,
}

/// A call and all that was done for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// Its number, from 1.
    pub call: u32,
    /// By which thread.
    pub pid: u32,
    pub op: Op,
    /// On which descriptor.
    pub fd: i32,
    /// Which file, by number in [`Joined::files`].
    pub file: Option<u32>,
    /// From which byte, as far as anybody knows.
    pub offset: Option<u64>,
    /// Bytes asked for.
    pub len: u64,
    /// Begin.
    pub start: Nanos,
    /// End; nothing if the trace ends before.
    pub end: Option<Nanos>,
    /// Bytes done, or a negative error.
    pub result: Option<i64>,
    /// Windows that it decided on.
    pub windows: Vec<Window>,
    /// Pages that it added to the cache.
    pub pages_added: u64,
    /// Its bios, by place in [`Joined::bios`].
    pub bios: Vec<u32>,
    /// Their requests, by place in [`Joined::requests`].
    pub requests: Vec<u32>,
    /// Requests that it waited for, its own and those of others, in the order of their completions; the last one let it
    /// go on.
    pub waited_for: Vec<u32>,
    /// Time within the call during which at least one of those was at the device.
    pub device: Nanos,
    /// Requests of those that were caused by others: by other processes, or by earlier calls.
    pub by_others: u32,
    /// Set if it is not a system call of its own.
    pub beside: Option<Way>,
    /// Bios of it that a worker of the kernel issued, because something held them back.
    pub held_back: u32,
}

/// A call for more than this asks for all of the file (copy_file_range, sendfile).
const ALL: u64 = 16 << 20;

impl CallRecord {
    /// Bytes asked for, or those that there were if it asked for whatever there is.
    fn done_len(&self) -> u64 {
        if self.len <= ALL { self.len } else { self.result.map_or(self.len, |done| (done.max(0) as u64).min(self.len)) }
    }
}

/// A process that put pages into a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Putter {
    /// Which file.
    pub file: u32,
    /// By whom.
    pub pid: u32,
    /// The process's name, if the trace knows it.
    pub name: String,
    /// How many pages.
    pub nr_pages: u64,
    /// It belongs to the workload.
    pub own: bool,
}

/// Events that could not be linked.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Ends of calls that began before the trace.
    pub call_ends: u64,
    /// Calls that the trace does not see end.
    pub open_calls: u64,
    /// Calls that read or write an unknown file.
    pub calls_without_file: u64,
    /// Pages that were added for a read and that no bio carried.
    pub pages_without_bio: u64,
    /// Bios without a request or a completion.
    pub bios: u64,
    /// Merges into unseen requests.
    pub merges: u64,
    /// Requests that were issued and have no bio.
    pub requests_without_bio: u64,
    /// Requests that the trace does not see end.
    pub open_requests: u64,
    /// Completions of nothing that was seen.
    pub completions: u64,
}

impl Leftovers {
    /// All together.
    pub fn total(&self) -> u64 {
        self.call_ends
            + self.open_calls
            + self.calls_without_file
            + self.pages_without_bio
            + self.bios
            + self.merges
            + self.requests_without_bio
            + self.open_requests
            + self.completions
    }
}

/// A joined trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Joined {
    /// Everything in the simulator's words.
    pub events: Vec<Event>,
    /// Calls in the order of their begins; call N is at N - 1.
    pub calls: Vec<CallRecord>,
    /// Files by number.
    pub files: Vec<Inode>,
    /// Bios in the order in which they were queued.
    pub bios: Vec<BioRecord>,
    /// Requests in the order in which they were made.
    pub requests: Vec<RequestRecord>,
    /// Processes that put pages into mappings, most pages first.
    pub putters: Vec<Putter>,
    /// Tasks of the workload, if the trace has them.
    pub tree: Option<BTreeSet<u32>>,
    /// Calls whose file is unknown, by number, and why.
    pub no_file: BTreeMap<u32, NoFile>,
    /// Windows were inferred.
    pub inferred_windows: bool,
    /// Bytes that processes outside the workload submitted to be written themselves (direct calls, syncs).
    pub others_wrote: u64,
    /// Windows that belong to no call of the workload.
    pub windows_of_others: u64,
    pub leftovers: Leftovers,
}

/// A task while the trace goes on.
#[derive(Debug, Default)]
struct Task {
    /// The call that it makes, by place.
    call: Option<usize>,
    /// Pages that wait for a bio, one behind the other.
    waiting: VecDeque<Pages>,
    /// Why the next window will be read.
    kind: Option<RaKind>,
    /// The request of a missing page, until there is a window.
    asked: Option<RaInput>,
    /// It has written through the page cache.
    dirties: bool,
    /// File, first page and page after the last of the last window.
    covered: (u32, u64, u64),
    /// The last window, and whether nothing was added since: the kernel traces some twice.
    window: Option<(Nanos, u32, u64)>,
    /// The run of pages that an inferred window is made of.
    run: Option<(u64, Window)>,
    last_bio: Option<u32>,
}

struct Joiner<'a> {
    trace: &'a Trace,
    out: Joined,
    numbers: HashMap<Inode, u32>,
    tasks: HashMap<u32, Task>,
    descriptors: Descriptors,
    /// The open file of each call.
    opens: Vec<usize>,
    /// Bios without a request, by first sector.
    bios: HashMap<u64, Vec<u32>>,
    /// Requests not yet issued, and issued ones, by first sector.
    waiting: BTreeMap<u64, Vec<u32>>,
    issued: HashMap<u64, Vec<u32>>,
    /// Bios whose request is done, whose own completion may follow.
    done: HashMap<u64, u32>,
    /// Number of a request in events, and numbers that are free.
    slots: Vec<u32>,
    free: Vec<u32>,
    nr_slots: u32,
    in_flight: u16,
    /// Which request carries a page.
    carriers: HashMap<(u32, u64), u32>,
    put: BTreeMap<(u32, u32), u64>,
    /// Bios that are the rest of one that was cut, and have no event yet.
    untold: BTreeSet<u32>,
    /// Events with their places in the order.
    events: Vec<(Nanos, u64, Event)>,
    infer: bool,
    /// The recording is one of our own, which sees every open.
    ours: bool,
    beside: beside::Calls,
}

/// Joins the records of a trace.
pub fn join(trace: &Trace, who: &Who) -> Joined {
    let has_windows = trace
        .records
        .iter()
        .any(|record| matches!(record.seen, Seen::RaOrder { .. } | Seen::RaUnbounded { .. } | Seen::RaSync { .. }));
    let tree = beside::tree(trace, who);
    let mut joiner = Joiner {
        trace,
        ours: who.pids.is_empty() && tree.is_some(),
        numbers: HashMap::new(),
        tasks: HashMap::new(),
        descriptors: Descriptors::default(),
        opens: Vec::new(),
        bios: HashMap::new(),
        waiting: BTreeMap::new(),
        issued: HashMap::new(),
        done: HashMap::new(),
        slots: Vec::new(),
        free: Vec::new(),
        nr_slots: 0,
        in_flight: 0,
        carriers: HashMap::new(),
        put: BTreeMap::new(),
        untold: BTreeSet::new(),
        events: Vec::new(),
        // Our own recordings say whether windows could be seen; others only show some, or none.
        infer: trace.inferred_windows || !has_windows && tree.is_none(),
        beside: beside::Calls::default(),
        out: Joined { tree, ..Joined::default() },
    };
    for file in &who.files {
        joiner.file(*file);
    }
    for (pid, fd, file) in &who.descriptors {
        let number = joiner.file(*file);
        joiner.descriptors.is(*pid, *fd, Some(number));
    }
    for (nr, record) in (0_u64..).zip(&trace.records) {
        // Two places for each record, so that an inferred window comes before its pages.
        joiner.record(2 * nr + 1, record);
    }
    joiner.finish()
}

fn pages_of(extent: &Extent) -> u64 {
    u64::from(extent.bytes).div_ceil(PAGE_BYTES)
}

fn end_of(extent: &Extent) -> u64 {
    extent.sector.0 + u64::from(extent.bytes) / SECTOR_BYTES
}

fn nr_sectors(extent: &Extent) -> u32 {
    extent.bytes / SECTOR_BYTES as u32
}

/// All but reads change something: they write, discard, flush, or zero, which has no letter.
fn dir_of(extent: &Extent) -> Dir {
    if extent.rwbs.has(Rwbs::READ) { Dir::Read } else { Dir::Write }
}

/// A command without a letter of its own is a file system's (it zeroes its tables) or a driver's: no call's data.
fn content_of(extent: &Extent) -> Content {
    let own = extent.rwbs.has(Rwbs::META) || extent.rwbs.has(Rwbs::PASSTHROUGH);
    if own { Content::Metadata } else { Content::Data }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The same device, or a partition and its disk.
fn related(a: Dev, b: Dev) -> bool {
    a == b || a.major() == b.major()
}

impl Joiner<'_> {
    fn file(&mut self, file: Inode) -> u32 {
        let files = &mut self.out.files;
        *self.numbers.entry(file).or_insert_with(|| {
            files.push(file);
            files.len() as u32 - 1
        })
    }

    fn own(&self, pid: u32) -> bool {
        self.out.tree.as_ref().is_none_or(|tree| tree.contains(&pid))
    }

    /// A process outside the workload that is not a thread of the kernel, by its name.
    fn of_process(&self, pid: u32) -> bool {
        const KERNEL: [&str; 8] =
            ["kworker", "jbd2/", "xfsaild", "ksoftirqd", "kswapd", "loop", "khugepaged", "kcompactd"];
        !self.own(pid) && pid != 0 && {
            let name = self.trace.name(pid).unwrap_or("kworker");
            !KERNEL.iter().any(|kernel| name.starts_with(kernel))
        }
    }

    /// I/O of the workload outside of its calls.
    fn nobody(&self, pid: u32) -> CallId {
        if self.out.tree.as_ref().is_some_and(|tree| tree.contains(&pid)) { CallId::OWN } else { CallId::NONE }
    }

    fn call_of(&self, pid: u32) -> Option<usize> {
        self.tasks.get(&pid).and_then(|task| task.call)
    }

    fn emit(&mut self, seq: u64, record: &Record, what: What) {
        let call = self.call_of(record.pid);
        let call = call.map_or_else(|| self.nobody(record.pid), |call| CallId(self.out.calls[call].call));
        self.events.push((record.at, seq, Event { at: record.at, call, what }));
    }

    fn record(&mut self, seq: u64, record: &Record) {
        match &record.seen {
            // They happen in whichever task runs.
            Seen::Issue(_) | Seen::Complete { .. } | Seen::Insert(_) | Seen::Switch { .. } | Seen::Wake { .. } => {}
            _ => self.seen_of(seq, record),
        }
        match &record.seen {
            Seen::CallStart { op, fd, offset, len_bytes } if self.own(record.pid) => {
                self.call_start(seq, record, *op, *fd, *offset, *len_bytes);
            }
            Seen::CallEnd { op, result } if self.own(record.pid) => self.call_end(seq, record, *op, *result),
            Seen::RaSync { file, input } => {
                let file = self.touched(record, *file, input.index);
                self.end_run(record.pid);
                let task = self.tasks.entry(record.pid).or_default();
                (task.kind, task.asked) = (Some(RaKind::Sync), Some(*input));
                let (file, page) = (FileId(file), PageIndex(input.index));
                self.emit(seq, record, What::Miss { file, page });
            }
            Seen::RaAsync { file, input } => {
                self.touched(record, *file, input.index);
                let task = self.tasks.entry(record.pid).or_default();
                (task.kind, task.asked) = (Some(RaKind::Async), None);
            }
            Seen::RaOrder { file, index, order, size, async_size, .. } => {
                self.tasks.entry(record.pid).or_default().asked = None;
                self.window(seq, record, *file, *index, *order, u64::from(*size), u64::from(*async_size));
            }
            Seen::RaUnbounded { file, index, nr_to_read, lookahead_size } => {
                let task = self.tasks.entry(record.pid).or_default();
                if *lookahead_size == 0 && Joiner::forced(task.asked.take(), *index, *nr_to_read) {
                    task.kind = Some(RaKind::Force);
                }
                self.window(seq, record, *file, *index, 0, *nr_to_read, *lookahead_size);
            }
            Seen::GetPages { file, index, .. } => {
                self.touched(record, *file, *index);
            }
            Seen::Fault { file, index } => self.fault(seq, record, *file, *index),
            Seen::Switch { next, state } => self.switch(seq, record, *next, *state),
            Seen::PageAdd { file, index, order } => self.page_add(seq, record, *file, *index, *order),
            Seen::PageRemove { file, index, order } => {
                let file = FileId(self.file(*file));
                let nr_pages = 1_u32 << (*order).min(31);
                let memory = record.pid == 0 || self.reclaims(record.pid);
                let cause = if memory { Eviction::Reclaim } else { Eviction::Dropped };
                let what = What::PageRemove { file, page: PageIndex(*index), nr_pages, cause };
                self.emit(seq, record, what);
            }
            Seen::Queue(extent) => self.queue(seq, record, extent),
            Seen::Split { extent, rest } => self.split(seq, record, extent, rest.0),
            Seen::GetRequest(extent) => self.get_request(seq, record, extent),
            Seen::BackMerge(extent) => self.merge(seq, record, extent, MergeKind::Back),
            Seen::FrontMerge(extent) => self.merge(seq, record, extent, MergeKind::Front),
            Seen::MergeRequests(extent) => self.merge_requests(seq, record, extent),
            Seen::Insert(extent) => {
                let Some(request) = self.gathered(record, extent) else { return };
                self.out.requests[request as usize].inserted = Some(record.at);
                let rq = RqId(self.slots[request as usize]);
                self.emit_for(seq, record, request, What::Insert { rq });
            }
            Seen::Issue(extent) => self.issue(seq, record, extent),
            Seen::Requeue(extent) => {
                let Some(request) = take(&mut self.issued, &self.out.requests, extent) else { return };
                self.in_flight = self.in_flight.saturating_sub(1);
                self.waiting.entry(extent.sector.0).or_default().push(request);
            }
            Seen::Complete { extent, error } => self.complete(seq, record, extent, *error),
            Seen::Plug { .. } => self.emit(seq, record, What::Plug),
            Seen::Unplug { nr_requests, timer, .. } => {
                let cause = if *timer { UnplugCause::Timer } else { UnplugCause::Finish };
                self.emit(seq, record, What::Unplug { cause, nr_requests: *nr_requests });
            }
            Seen::Other { name, fields } => {
                self.other(record.pid, name, fields);
                self.text(seq, record, name, fields);
            }
            // Calls of others, and what says nothing about calls.
            _ => {}
        }
    }

    fn other(&mut self, pid: u32, name: &str, fields: &str) {
        let Some(ours) = name.strip_prefix("iowhy:") else {
            self.descriptors.other(pid, name, fields);
            return;
        };
        let number = |name: &str| field(fields, name)?.parse::<u64>().ok();
        let of_data = matches!(field(fields, "kind"), Some("file" | "block"));
        let (Some(fd), Some(dev), Some(ino)) = (number("fd"), device(fields), number("ino")) else { return };
        let file = of_data.then(|| self.file(Inode { dev, ino }));
        match ours {
            "opened" => self.descriptors.is(pid, fd as i32, file),
            "descriptor" => self.descriptors.was(pid, fd as i32, file, fields),
            _ => {}
        }
    }

    /// An event about a request belongs to the call of its first bio.
    fn emit_for(&mut self, seq: u64, record: &Record, request: u32, what: What) {
        let bios = &self.out.requests[request as usize].bios;
        let first = bios.first().map(|bio| &self.out.bios[*bio as usize]);
        let call = match first {
            Some(bio) if bio.call == 0 => self.nobody(bio.pid),
            first => CallId(first.map_or(0, |bio| bio.call)),
        };
        self.events.push((record.at, seq, Event { at: record.at, call, what }));
    }

    fn call_start(&mut self, seq: u64, record: &Record, op: Op, fd: i32, offset: Option<u64>, len: u64) {
        self.leave(record.pid);
        let number = self.out.calls.len();
        let open = self.descriptors.of(record.pid, fd);
        self.opens.push(open);
        let known = *self.descriptors.open(open);
        self.out.calls.push(CallRecord {
            call: number as u32 + 1,
            pid: record.pid,
            op,
            fd,
            file: known.file,
            offset: offset.or(known.pos.filter(|_| matches!(op, Op::Read | Op::Write))),
            len,
            start: record.at,
            end: None,
            result: None,
            windows: Vec::new(),
            pages_added: 0,
            bios: Vec::new(),
            requests: Vec::new(),
            waited_for: Vec::new(),
            device: Nanos::ZERO,
            by_others: 0,
            beside: None,
            held_back: 0,
        });
        let task = self.tasks.entry(record.pid).or_default();
        self.out.leftovers.open_calls += u64::from(task.call.is_some());
        task.call = Some(number);
        // File and offset are filled in when all is known.
        let what = What::CallStart { op, file: UNKNOWN_FILE, offset: 0, len_bytes: small(len) };
        self.emit(seq, record, what);
    }

    fn call_end(&mut self, seq: u64, record: &Record, op: Op, result: i64) {
        self.end_run(record.pid);
        let Some(number) = self.call_of(record.pid) else {
            self.out.leftovers.call_ends += 1;
            return;
        };
        let len_bytes = if matches!(op, Op::Read | Op::Write) { small(result.max(0) as u64) } else { 0 };
        self.emit(seq, record, What::CallEnd { op, file: UNKNOWN_FILE, len_bytes });
        let task = self.tasks.entry(record.pid).or_default();
        task.call = None;
        task.kind = None;
        task.window = None;
        self.out.leftovers.pages_without_bio += task.waiting.drain(..).map(|pages| pages.nr_pages).sum::<u64>();
        let call = &mut self.out.calls[number];
        call.end = Some(record.at);
        call.result = Some(result);
        let at = call.offset.map(|offset| offset + result.max(0) as u64);
        let known = self.descriptors.open(self.opens[number]);
        if !known.certain {
            known.file = call.file.or(known.file);
        }
        known.pos = at.filter(|_| matches!(op, Op::Read | Op::Write)).or(known.pos);
        self.waited(number);
    }

    /// Which requests a call that has ended has waited for.
    fn waited(&mut self, number: usize) {
        let call = &self.out.calls[number];
        let (start, Some(end)) = (call.start, call.end) else { return };
        let mut found: Vec<u32> = Vec::new();
        let during = |request: &RequestRecord| request.completed.is_some_and(|at| at >= start && at <= end);
        for bio in &call.bios {
            let bio = &self.out.bios[*bio as usize];
            if let Some(request) = bio.request.filter(|_| bio.pages.is_empty()) {
                found.push(request);
            }
        }
        if let (Op::Read, Some(file), Some(offset), 1..) = (call.op, call.file, call.offset, call.len) {
            let last = (offset.saturating_add(call.done_len()).max(1) - 1) / PAGE_BYTES;
            for page in (offset / PAGE_BYTES..=last).take(1 << 20) {
                found.extend(self.carriers.get(&(file, page)));
            }
        }
        found.retain(|request| during(&self.out.requests[*request as usize]));
        found.sort_unstable();
        found.dedup();
        found.sort_by_key(|request| self.out.requests[*request as usize].completed);
        let mut spans: Vec<(Nanos, Nanos)> = found
            .iter()
            .filter_map(|request| {
                let request = &self.out.requests[*request as usize];
                Some((request.issued?.max(start), request.completed?.min(end)))
            })
            .collect();
        spans.sort();
        let (mut device, mut covered) = (0, start);
        for (from, to) in spans {
            device += to.saturating_sub(from.max(covered)).0;
            covered = covered.max(to);
        }
        let id = call.call;
        let others = found.iter().filter(|request| !self.out.requests[**request as usize].calls.contains(&id)).count();
        let call = &mut self.out.calls[number];
        call.waited_for = found;
        call.device = Nanos(device);
        call.by_others = others as u32;
    }

    /// A task looks at a page of a mapping: that is the file of its call.
    fn touched(&mut self, record: &Record, file: Inode, index: u64) -> u32 {
        let number = self.file(file);
        if let Some(place) = self.call_of(record.pid) {
            let call = &mut self.out.calls[place];
            // A descriptor may have been closed and be another file now, unless that would be known.
            if matches!(call.op, Op::Read | Op::Write) && !self.descriptors.open(self.opens[place]).certain {
                call.file = Some(number);
            }
            if call.offset.is_none() && call.file == Some(number) {
                call.offset = Some(index.saturating_mul(PAGE_BYTES));
            }
        }
        number
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one record")]
    fn window(&mut self, seq: u64, record: &Record, file: Inode, start: u64, order: u32, nr_pages: u64, ahead: u64) {
        let file = self.file(file);
        let task = self.tasks.entry(record.pid).or_default();
        self.out.leftovers.pages_without_bio += task.waiting.drain(..).map(|pages| pages.nr_pages).sum::<u64>();
        // Where folios of an order cannot be had, the same window is traced once more as single pages.
        task.covered = (file, start, start.saturating_add(nr_pages));
        let again = task.window.is_some_and(|(_, known, index)| (known, index) == (file, start));
        task.window = Some((record.at, file, start));
        if again {
            return;
        }
        let mut kind = task.kind.unwrap_or(RaKind::Force);
        // A fault that reads only its own page reads nothing around it.
        if nr_pages == 1 && self.call_of(record.pid).is_some_and(|call| self.out.calls[call].beside == Some(Way::Fault))
        {
            kind = RaKind::Single;
        }
        let at = record.at;
        let window = Window { at, file, kind, start, nr_pages, async_size: Some(ahead), order, inferred: false };
        self.decided(seq, record.pid, window);
    }

    fn decided(&mut self, seq: u64, pid: u32, window: Window) {
        let call = self.call_of(pid);
        match call {
            Some(call) => self.out.calls[call].windows.push(window),
            None => self.out.windows_of_others += u64::from(self.nobody(pid) == CallId::NONE),
        }
        let what = What::RaWindow {
            file: FileId(window.file),
            kind: window.kind,
            order: window.order.min(63) as u8,
            start: PageIndex(window.start),
            nr_pages: small(window.nr_pages),
            async_size: small(window.async_size.unwrap_or(0)),
        };
        let call = call.map_or_else(|| self.nobody(pid), |call| CallId(self.out.calls[call].call));
        self.events.push((window.at, seq, Event { at: window.at, call, what }));
    }

    /// The run of pages that a task adds is over: it was a window.
    fn end_run(&mut self, pid: u32) {
        if let Some((seq, window)) = self.tasks.get_mut(&pid).and_then(|task| task.run.take()) {
            self.out.inferred_windows = true;
            self.decided(seq, pid, window);
        }
    }

    fn page_add(&mut self, seq: u64, record: &Record, inode: Inode, index: u64, order: u8) {
        let nr_pages = 1_u64 << order.min(31);
        let file = self.touched(record, inode, index);
        *self.put.entry((file, record.pid)).or_default() += nr_pages;
        let what = What::PageAdd { file: FileId(file), page: PageIndex(index), nr_pages: small(nr_pages) };
        let call = self.call_of(record.pid);
        let writes = call.is_some_and(|call| self.out.calls[call].op != Op::Read);
        if let Some(call) = call {
            self.out.calls[call].pages_added += nr_pages;
        }
        if !writes && self.infer {
            let goes_on = self
                .tasks
                .get(&record.pid)
                .and_then(|task| task.run.as_ref())
                .is_some_and(|(_, window)| window.file == file && window.start + window.nr_pages == index);
            if !goes_on {
                self.end_run(record.pid);
                // A run that begins with a page that the call asks for is what it missed.
                let asked = call.map(|call| &self.out.calls[call]).is_some_and(|call| {
                    let offset = call.offset.unwrap_or(0);
                    index >= offset / PAGE_BYTES && index <= offset.saturating_add(call.len.max(1) - 1) / PAGE_BYTES
                });
                let kind = if asked { RaKind::Sync } else { RaKind::Async };
                let at = record.at;
                let (start, order) = (index, u32::from(order));
                let window = Window { at, file, kind, start, nr_pages: 0, async_size: None, order, inferred: true };
                self.tasks.entry(record.pid).or_default().run = Some((seq - 1, window));
            }
        }
        if writes {
            self.tasks.entry(record.pid).or_default().dirties = true;
        }
        if !writes && !self.infer {
            self.alone(seq, (record.at, record.pid), file, index, nr_pages);
        }
        let task = self.tasks.entry(record.pid).or_default();
        task.window = None;
        if let Some((_, window)) = &mut task.run {
            window.nr_pages += nr_pages;
        }
        self.carriers.retain_page(file, index, nr_pages);
        if !writes {
            match task.waiting.back_mut() {
                Some(last) if last.file == file && last.start + last.nr_pages == index => last.nr_pages += nr_pages,
                _ => task.waiting.push_back(Pages { file, start: index, nr_pages }),
            }
        }
        self.emit(seq, record, what);
    }

    fn queue(&mut self, seq: u64, record: &Record, extent: &Extent) {
        let own = Record { pid: self.held_back(record, extent).unwrap_or(record.pid), ..record.clone() };
        let held_back = own.pid != record.pid;
        let record = &own;
        self.handed_over(seq, record, extent);
        if dir_of(extent) == Dir::Read && !extent.rwbs.has(Rwbs::META) {
            self.end_run(record.pid);
        }
        if dir_of(extent) == Dir::Write && self.out.tree.is_some() && self.of_process(record.pid) {
            self.out.others_wrote += u64::from(extent.bytes);
        }
        let place = self.call_of(record.pid);
        let call = place.map_or(0, |call| self.out.calls[call].call);
        let number = self.out.bios.len() as u32;
        let mut pages = Vec::new();
        let task = self.tasks.entry(record.pid).or_default();
        task.last_bio = Some(number);
        if dir_of(extent) == Dir::Read && !extent.rwbs.has(Rwbs::META) {
            let mut left = pages_of(extent);
            while left > 0
                && let Some(first) = task.waiting.front_mut()
            {
                let nr_pages = first.nr_pages.min(left);
                pages.push(Pages { nr_pages, ..*first });
                left -= nr_pages;
                first.start += nr_pages;
                first.nr_pages -= nr_pages;
                if first.nr_pages == 0 {
                    task.waiting.pop_front();
                }
            }
        }
        if let Some(call) = place {
            self.out.calls[call].bios.push(number);
            self.out.calls[call].held_back += u32::from(held_back);
            self.belongs(call, number, extent);
        }
        let bio =
            BioRecord { at: record.at, pid: record.pid, call, extent: *extent, pages, request: None, completed: None };
        self.out.bios.push(bio);
        self.bios.entry(extent.sector.0).or_default().push(number);
        let (dir, nr_sectors) = (dir_of(extent), nr_sectors(extent));
        let journal = self.trace.name(record.pid).is_some_and(|name| name.starts_with("jbd2/"));
        let content = if journal { Content::Journal } else { content_of(extent) };
        self.emit(seq, record, What::BioQueue { dir, content, sector: extent.sector, nr_sectors });
    }

    /// A bio is cut: the front is as long as its request may be, and the rest is a bio of its own, as if it had been
    /// queued when it is its turn.
    fn split(&mut self, seq: u64, record: &Record, extent: &Extent, rest: u64) {
        let begins = extent.sector.0;
        let fits = |bio: &u32| {
            let known = &self.out.bios[*bio as usize].extent;
            related(known.dev, extent.dev) && end_of(known) > rest
        };
        let found = self.bios.get(&begins).and_then(|list| list.iter().find(|bio| fits(bio)).copied());
        let Some(number) = found.filter(|_| rest > begins) else { return };
        let first = &mut self.out.bios[number as usize];
        let end = end_of(&first.extent);
        let mut left = (rest - begins) * SECTOR_BYTES / PAGE_BYTES;
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for pages in first.pages.drain(..) {
            let here = pages.nr_pages.min(left);
            left -= here;
            if here > 0 {
                own.push(Pages { nr_pages: here, ..pages });
            }
            if here < pages.nr_pages {
                others.push(Pages { start: pages.start + here, nr_pages: pages.nr_pages - here, ..pages });
            }
        }
        first.pages = own;
        first.extent.bytes = ((rest - begins) * SECTOR_BYTES) as u32;
        let mut second = first.clone();
        (second.at, second.pages) = (record.at, others);
        second.extent.sector = Sector(rest);
        second.extent.bytes = ((end - rest) * SECTOR_BYTES) as u32;
        let shorter = nr_sectors(&first.extent);
        if !self.untold.contains(&number) {
            let told = self.events.iter_mut().rev().find_map(|(.., event)| match &mut event.what {
                What::BioQueue { sector, nr_sectors, .. } if sector.0 == begins => Some(nr_sectors),
                _ => None,
            });
            if let Some(nr_sectors) = told {
                *nr_sectors = shorter;
            }
        }
        self.tell(seq, record, number);
        let new = self.out.bios.len() as u32;
        if second.call > 0 {
            self.out.calls[second.call as usize - 1].bios.push(new);
        }
        self.out.bios.push(second);
        self.bios.entry(rest).or_default().push(new);
        self.untold.insert(new);
    }

    /// It is the turn of a bio that is the rest of another.
    fn tell(&mut self, seq: u64, record: &Record, bio: u32) {
        if self.untold.remove(&bio) {
            let bio = &self.out.bios[bio as usize];
            let extent = &bio.extent;
            let (dir, content, nr_sectors) = (dir_of(extent), content_of(extent), nr_sectors(extent));
            let what = What::BioQueue { dir, content, sector: extent.sector, nr_sectors };
            let event = Event { at: record.at, call: CallId(bio.call), what };
            self.events.push((record.at, seq, event));
        }
    }

    /// The queued bio that these sectors are of: the task's own last one rather than another.
    fn bio(&mut self, pid: u32, extent: &Extent) -> Option<u32> {
        let last = self.tasks.get(&pid).and_then(|task| task.last_bio);
        let list = self.bios.get_mut(&extent.sector.0)?;
        let fits = |bio: &u32| related(self.out.bios[*bio as usize].extent.dev, extent.dev);
        let place = list.iter().position(|bio| Some(*bio) == last).or_else(|| list.iter().position(fits))?;
        let bio = list.remove(place);
        if list.is_empty() {
            self.bios.remove(&extent.sector.0);
        }
        Some(bio)
    }

    /// A bio becomes part of a request.
    fn attach(&mut self, bio: u32, request: u32) {
        let record = &mut self.out.bios[bio as usize];
        record.request = Some(request);
        for pages in &record.pages {
            for page in 0..pages.nr_pages {
                self.carriers.insert((pages.file, pages.start + page), request);
            }
        }
        let to = &mut self.out.requests[request as usize];
        to.bios.push(bio);
        to.queued = Some(to.queued.map_or(record.at, |at| at.min(record.at)));
        if !to.pids.contains(&record.pid) {
            to.pids.push(record.pid);
        }
        if record.call > 0 {
            if !to.calls.contains(&record.call) {
                to.calls.push(record.call);
            }
            let call = &mut self.out.calls[record.call as usize - 1];
            if call.requests.last() != Some(&request) && !call.requests.contains(&request) {
                call.requests.push(request);
            }
        }
    }

    /// A new request of these sectors.
    fn new_request(&mut self, extent: &Extent) -> u32 {
        let request = self.out.requests.len() as u32;
        self.out.requests.push(RequestRecord { extent: *extent, ..RequestRecord::default() });
        let slot = self.free.pop().unwrap_or_else(|| {
            self.nr_slots += 1;
            self.nr_slots - 1
        });
        self.slots.push(slot);
        self.waiting.entry(extent.sector.0).or_default().push(request);
        request
    }

    fn get_request(&mut self, seq: u64, record: &Record, extent: &Extent) {
        let bio = self.bio(record.pid, extent);
        let request = self.new_request(extent);
        if let Some(bio) = bio {
            self.tell(seq, record, bio);
            self.attach(bio, request);
        }
        let rq = RqId(self.slots[request as usize]);
        self.emit_for(seq, record, request, What::GetRequest { rq });
    }

    /// The request not yet issued that begins (or ends) at this sector.
    fn beside(&self, dev: Dev, dir: Dir, sector: u64, at_end: bool) -> Option<u32> {
        let fits = |request: &&u32| {
            let extent = &self.out.requests[**request as usize].extent;
            related(extent.dev, dev) && dir_of(extent) == dir && (!at_end || end_of(extent) == sector)
        };
        if !at_end {
            return self.waiting.get(&sector)?.iter().rev().find(fits).copied();
        }
        // Requests are short, so the one that ends here begins close by.
        self.waiting.range(..sector).rev().take(64).find_map(|(_, list)| list.iter().rev().find(fits).copied())
    }

    fn merge(&mut self, seq: u64, record: &Record, extent: &Extent, kind: MergeKind) {
        let bio = self.bio(record.pid, extent);
        if let Some(bio) = bio {
            self.tell(seq, record, bio);
        }
        let dir = dir_of(extent);
        let found = match kind {
            MergeKind::Back => self.beside(extent.dev, dir, extent.sector.0, true),
            MergeKind::Front => self.beside(extent.dev, dir, end_of(extent), false),
        };
        let Some(request) = found else {
            self.out.leftovers.merges += 1;
            // The bio waits for the request that is issued with its sectors.
            if let Some(bio) = bio {
                self.bios.entry(extent.sector.0).or_default().push(bio);
            }
            return;
        };
        let to = &mut self.out.requests[request as usize].extent;
        to.bytes = to.bytes.saturating_add(extent.bytes);
        if kind == MergeKind::Front {
            let old = std::mem::replace(&mut to.sector, extent.sector);
            drop_from(&mut self.waiting, old.0, request);
            self.waiting.entry(extent.sector.0).or_default().push(request);
        }
        if let Some(bio) = bio {
            self.attach(bio, request);
        }
        let (rq, nr_sectors) = (RqId(self.slots[request as usize]), nr_sectors(extent));
        // A worker may do it for the task whose bio it is.
        let pid = bio.map_or(record.pid, |bio| self.out.bios[bio as usize].pid);
        self.emit(seq, &Record { pid, ..record.clone() }, What::Merge { rq, kind, nr_sectors });
    }

    fn merge_requests(&mut self, seq: u64, record: &Record, extent: &Extent) {
        let dir = dir_of(extent);
        let gone = self.beside(extent.dev, dir, extent.sector.0, false);
        let stays = self.beside(extent.dev, dir, extent.sector.0, true);
        let (Some(gone), Some(stays)) = (gone, stays) else {
            self.out.leftovers.merges += 1;
            return;
        };
        drop_from(&mut self.waiting, extent.sector.0, gone);
        let bytes = self.out.requests[gone as usize].extent.bytes;
        self.out.requests[gone as usize].merged = true;
        let to = &mut self.out.requests[stays as usize].extent;
        to.bytes = to.bytes.saturating_add(bytes);
        for bio in std::mem::take(&mut self.out.requests[gone as usize].bios) {
            self.attach(bio, stays);
        }
        let (rq, gone_rq) = (RqId(self.slots[stays as usize]), RqId(self.slots[gone as usize]));
        self.free.push(gone_rq.0);
        self.emit_for(seq, record, stays, What::MergeRequests { rq, gone: gone_rq });
    }

    /// The request of these sectors that is not yet issued; if its making was not seen, one of the queued bios.
    fn gathered(&mut self, record: &Record, extent: &Extent) -> Option<u32> {
        if let Some(known) = self.beside(extent.dev, dir_of(extent), extent.sector.0, false) {
            return Some(known);
        }
        let mut bios = Vec::new();
        let mut sector = extent.sector.0;
        // A flush has no sectors, and no bio of its own that could be recognized.
        while sector < end_of(extent)
            && let Some(bio) = self.bio(record.pid, &Extent { sector: Sector(sector), ..*extent })
        {
            sector = end_of(&self.out.bios[bio as usize].extent).max(sector + 1);
            bios.push(bio);
        }
        let request = self.new_request(extent);
        bios.into_iter().for_each(|bio| self.attach(bio, request));
        Some(request)
    }

    fn issue(&mut self, seq: u64, record: &Record, extent: &Extent) {
        let Some(request) = self.gathered(record, extent) else { return };
        drop_from(&mut self.waiting, extent.sector.0, request);
        self.issued.entry(extent.sector.0).or_default().push(request);
        self.in_flight = self.in_flight.saturating_add(1);
        let known = &mut self.out.requests[request as usize];
        // The issued extent counts: a bio may have been split, and merges missed.
        known.extent = *extent;
        known.issued = Some(record.at);
        self.out.leftovers.requests_without_bio += u64::from(known.bios.is_empty() && extent.bytes > 0);
        let what = What::Issue {
            rq: RqId(self.slots[request as usize]),
            dir: dir_of(extent),
            content: content_of(extent),
            sector: extent.sector,
            nr_sectors: nr_sectors(extent),
            in_flight: self.in_flight,
        };
        self.emit_for(seq, record, request, what);
    }

    fn complete(&mut self, seq: u64, record: &Record, extent: &Extent, error: i32) {
        if let Some(request) = take(&mut self.issued, &self.out.requests, extent) {
            let known = &mut self.out.requests[request as usize];
            known.error = error;
            let done = known.completed.is_none() && extent.bytes < known.extent.bytes && extent.bytes > 0;
            if done {
                // A part of it: the rest begins behind that.
                let rest =
                    Extent { sector: Sector(end_of(extent)), bytes: known.extent.bytes - extent.bytes, ..known.extent };
                known.extent.bytes = rest.bytes;
                known.extent.sector = rest.sector;
                self.issued.entry(rest.sector.0).or_default().push(request);
                return;
            }
            known.completed = Some(record.at);
            let bios = known.bios.clone();
            for bio in &bios {
                self.done.insert(self.out.bios[*bio as usize].extent.sector.0, *bio);
            }
            self.in_flight = self.in_flight.saturating_sub(1);
            let rq = RqId(self.slots[request as usize]);
            self.free.push(rq.0);
            let what = What::Complete { rq, dir: dir_of(extent), nr_sectors: nr_sectors(extent) };
            self.emit_for(seq, record, request, what);
            bios.into_iter().for_each(|bio| self.bio_done(seq, record, bio));
            return;
        }
        // A bio's own completion follows that of its request.
        if self.done.remove(&extent.sector.0).is_some() {
            return;
        }
        match self.bio(record.pid, extent) {
            Some(bio) => {
                self.out.bios[bio as usize].completed = Some(record.at);
                self.bio_done(seq, record, bio);
            }
            None => self.out.leftovers.completions += 1,
        }
    }

    fn finish(mut self) -> Joined {
        let pids: Vec<u32> = self.tasks.keys().copied().collect();
        for pid in pids {
            self.leave(pid);
            self.end_run(pid);
        }
        let left = &mut self.out.leftovers;
        for task in self.tasks.values() {
            left.open_calls += u64::from(task.call.is_some());
            left.pages_without_bio += task.waiting.iter().map(|pages| pages.nr_pages).sum::<u64>();
        }
        left.bios = self.out.bios.iter().filter(|bio| bio.request.is_none() && bio.completed.is_none()).count() as u64;
        let open = |request: &&RequestRecord| request.completed.is_none() && !request.merged;
        left.open_requests = self.out.requests.iter().filter(open).count() as u64;
        for call in &mut self.out.calls {
            let open = self.descriptors.open(self.opens[call.call as usize - 1]);
            call.file = call.file.or(open.file);
            if call.file.is_none() {
                self.out.no_file.insert(call.call, open.reason());
            }
            let data = matches!(call.op, Op::Read | Op::Write);
            left.calls_without_file += u64::from(call.file.is_none() && data);
        }
        let trace = self.trace;
        self.out.putters = (self.put.iter())
            .map(|((file, pid), nr_pages)| Putter {
                file: *file,
                pid: *pid,
                name: trace.name(*pid).unwrap_or_default().to_owned(),
                nr_pages: *nr_pages,
                own: self.own(*pid),
            })
            .collect();
        self.out.putters.sort_by_key(|putter| std::cmp::Reverse(putter.nr_pages));
        self.events.sort_by_key(|(at, seq, _)| (*at, *seq));
        let ours = self.ours;
        let (calls, no_file) = (&self.out.calls, &self.out.no_file);
        // Pipes, terminals and the like are not I/O.
        let of_data = |(_, _, event): &(Nanos, u64, Event)| {
            !matches!(event.what, What::CallStart { .. } | What::CallEnd { .. })
                || match no_file.get(&event.call.0) {
                    Some(NoFile::NoData) => false,
                    // Where every open is seen, what nobody saw being opened is a pipe or a socket.
                    Some(NoFile::Unseen) => !ours,
                    _ => true,
                }
        };
        let named = |(_, _, mut event): (Nanos, u64, Event)| {
            if let What::CallStart { file, .. } | What::CallEnd { file, .. } = &mut event.what {
                let call = &calls[event.call.0 as usize - 1];
                *file = call.file.map_or(UNKNOWN_FILE, FileId);
                if let What::CallStart { offset, len_bytes, .. } = &mut event.what {
                    *offset = call.offset.unwrap_or(0);
                    if call.beside.is_some() || call.len > ALL {
                        *len_bytes = small(call.done_len());
                    }
                }
            }
            event
        };
        self.out.events = std::mem::take(&mut self.events).into_iter().filter(of_data).map(named).collect();
        self.out
    }
}

/// Which request carries which page.
trait Carriers {
    /// Pages that are added again are carried by nothing yet.
    fn retain_page(&mut self, file: u32, start: u64, nr_pages: u64);
}

impl Carriers for HashMap<(u32, u64), u32> {
    fn retain_page(&mut self, file: u32, start: u64, nr_pages: u64) {
        for page in 0..nr_pages.min(1 << 20) {
            self.remove(&(file, start.saturating_add(page)));
        }
    }
}

fn drop_from(lists: &mut BTreeMap<u64, Vec<u32>>, sector: u64, request: u32) {
    if let Some(list) = lists.get_mut(&sector) {
        list.retain(|known| *known != request);
        if list.is_empty() {
            lists.remove(&sector);
        }
    }
}

/// Takes the issued request of these sectors out of the lists: of several, the one as long as this.
fn take(lists: &mut HashMap<u64, Vec<u32>>, requests: &[RequestRecord], extent: &Extent) -> Option<u32> {
    let list = lists.get_mut(&extent.sector.0)?;
    let same = |request: &u32| requests[*request as usize].extent.dev == extent.dev;
    let fits = |request: &u32| same(request) && requests[*request as usize].extent.bytes == extent.bytes;
    let larger = |request: &u32| same(request) && requests[*request as usize].extent.bytes > extent.bytes;
    let place = list.iter().position(fits).or_else(|| list.iter().position(larger))?;
    let request = list.remove(place);
    if list.is_empty() {
        lists.remove(&extent.sector.0);
    }
    Some(request)
}

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
