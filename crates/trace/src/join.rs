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
//!            until a bio of data is queued (a window's pages are all added before they are read), and is marked as
//!            inferred; a page of a call that wants more, or behind such a page, was read alone
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
mod block;
pub mod descriptors;
mod records;

use crate::fields::{device, field};
pub use beside::Way;
use block::take;
use descriptors::Descriptors;
pub use descriptors::NoFile;
use iowhy_stack::trace::RaInput;
use records::ALL;
pub use records::*;

/// The file of a call whose file is unknown.
pub const UNKNOWN_FILE: FileId = FileId(u32::MAX);

/// Pages around those of a call, of 4 KiB, that may still be its file's: windows, and large folios.
const NEAR: u64 = 16384;

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
    /// The run of pages that an inferred window is made of, and whether its call wants pages behind its first.
    run: Option<(u64, Window, bool)>,
    /// File and page behind the last inferred window, if that was of one page.
    after_one: Option<(u32, u64)>,
    last_bio: Option<u32>,
    /// The file of its last fault.
    mapped: Option<u32>,
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

/// Whether a task is a thread of the kernel, by its name.
pub fn of_kernel(trace: &Trace, pid: u32) -> bool {
    const KERNEL: [&str; 8] = ["kworker", "jbd2/", "xfsaild", "ksoftirqd", "kswapd", "loop", "khugepaged", "kcompactd"];
    let name = trace.name(pid).unwrap_or("kworker");
    pid == 0 || KERNEL.iter().any(|kernel| name.starts_with(kernel))
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

    /// A process outside the workload that is not a thread of the kernel.
    fn of_process(&self, pid: u32) -> bool {
        !self.own(pid) && !of_kernel(self.trace, pid)
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
                if !memory && self.out.tree.is_some() && self.of_process(record.pid) {
                    self.out.others_dropped += u64::from(nr_pages);
                }
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
        // A sync without a descriptor is of a mapping: most likely the one that was touched last.
        let mapped = self.tasks.get(&record.pid).and_then(|task| task.mapped).filter(|_| op == Op::Fsync && fd < 0);
        self.out.calls.push(CallRecord {
            fd,
            open: small(open as u64),
            file: mapped.or(known.file),
            synchronous: known.synchronous,
            offset: offset.or(known.pos.filter(|_| matches!(op, Op::Read | Op::Write))),
            len,
            ..CallRecord::begun(number as u32 + 1, record.pid, op, record.at)
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
        // It ends now: a request that is not complete yet was not waited for.
        let during = |request: &RequestRecord| request.completed.is_some_and(|at| at >= start);
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
        self.looked_at(record.pid);
        if let Some(place) = self.call_of(record.pid) {
            let call = &mut self.out.calls[place];
            // A device's own pages say where the file is: they are not where the call is.
            let first = call.offset.unwrap_or(0) / PAGE_BYTES;
            let near = first.saturating_sub(NEAR)..first.saturating_add(call.len.div_ceil(PAGE_BYTES) + NEAR);
            if call.offset.is_some() && file.dev.major() == 0 && !near.contains(&index) {
                return number;
            }
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

    /// The run of pages that a task adds is over: it was a window. A window has the call's pages, or goes on where a
    /// reader goes on; one page that does neither was read alone.
    fn end_run(&mut self, pid: u32) {
        let Some(task) = self.tasks.get_mut(&pid) else { return };
        let Some((seq, mut window, wants_more)) = task.run.take() else { return };
        let one = window.kind == RaKind::Sync && window.nr_pages == 1;
        if one && (wants_more || task.after_one == Some((window.file, window.start))) {
            window.kind = RaKind::Single;
        }
        task.after_one = one.then_some((window.file, window.start + 1));
        self.out.inferred_windows = true;
        self.decided(seq, pid, window);
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
                .is_some_and(|(_, window, _)| window.file == file && window.start + window.nr_pages == index);
            if !goes_on {
                self.end_run(record.pid);
                // A run that begins with a page that the call asks for is what it missed.
                let wanted = call.map(|call| &self.out.calls[call]).map(|call| {
                    let offset = call.offset.unwrap_or(0);
                    (offset / PAGE_BYTES, offset.saturating_add(call.len.max(1) - 1) / PAGE_BYTES)
                });
                let asked = wanted.is_some_and(|(first, last)| index >= first && index <= last);
                let wants_more = asked && wanted.is_some_and(|(_, last)| index < last);
                let kind = if asked { RaKind::Sync } else { RaKind::Async };
                let at = record.at;
                let (start, order) = (index, u32::from(order));
                let window = Window { at, file, kind, start, nr_pages: 0, async_size: None, order, inferred: true };
                self.tasks.entry(record.pid).or_default().run = Some((seq - 1, window, wants_more));
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
        if let Some((_, window, _)) = &mut task.run {
            window.nr_pages += nr_pages;
        }
        // Pages just added are carried by nothing yet.
        for page in 0..nr_pages.min(1 << 20) {
            self.carriers.remove(&(file, index.saturating_add(page)));
        }
        if !writes {
            match task.waiting.back_mut() {
                Some(last) if last.file == file && last.start + last.nr_pages == index => last.nr_pages += nr_pages,
                _ => task.waiting.push_back(Pages { file, start: index, nr_pages }),
            }
        }
        self.emit(seq, record, what);
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
        for (place, call) in self.out.calls.iter_mut().enumerate() {
            let open = self.descriptors.open(self.opens[place]);
            call.file = call.file.or(open.file);
            if call.file.is_none() {
                let is_file = self.beside.for_workers.contains(&place);
                self.out.no_file.insert(call.call, if is_file { NoFile::Untold } else { open.reason() });
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
                    // A folder is synced as well, and with syncfs a whole file system.
                    Some(NoFile::NoData) => matches!(calls[event.call.0 as usize - 1].op, Op::Fsync | Op::Fdatasync),
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
                    if call.beside.is_some() || !(1..=ALL).contains(&call.len) {
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

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
