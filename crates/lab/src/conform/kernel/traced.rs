//! From a trace to what happened with each file.
//!
//! Calls name descriptors, their consequences name inodes. A call belongs to the file whose pages the same task touches
//! before it ends, or to the file that its descriptor was opened with, if it is in the trace (reads past the page cache
//! touch none). Advice touches none; it belongs to the file of the other calls on the same open file, and a descriptor
//! is another one after it was closed or opened. `read` begins where the open file's last call ended or `lseek` put it.
//! How much `preadv` and its like ask for is in memory that the trace does not show: the pages that are looked up say
//! it, or the result. Reads of io_uring are not calls; advice on a descriptor without calls is taken to be for the next
//! file that is read ahead of without any.
//!
//! `madvise` names addresses; `mmap` has the file and pages there, if its descriptor's file is known. `munmap` and
//! `mremap` are not followed: addresses are another file's once another one is mapped there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iowhy_stack::event::Op;
use iowhy_stack::trace::{Extent, Inode, Record, Rwbs, Seen, Trace};
use iowhy_stack::units::PAGE_BYTES;

use super::is_window;
use iowhy_trace::fields;
use iowhy_trace::join::descriptors::Descriptors;
use iowhy_trace::recorded::{Hint, Line, Recorded, What};

/// Largest folio order of ext4's and XFS's mappings where nothing shows that there are none.
const MAX_FOLIO_ORDER: u8 = 9;
const SECTOR_BYTES: u64 = 512;
const PROT_EXEC: u64 = 4;

/// The devices below the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Type of the file system.
    pub filesystem: String,
    /// Bytes of a block of it.
    pub block_bytes: u64,
    pub read_ahead_kb: u64,
    pub max_sectors_kb: u64,
    /// `max_segments`, if requests leave in the order in which they come: no elevator.
    pub max_segments: u64,
}

/// An open file: descriptors that were made of one another share it.
type Descriptor = usize;

/// A question without a call: which record, whose, of which file.
type Loose = (usize, u32, Inode);

/// Bios that were sent and not overtaken by others for the same sectors: where each begins, by the major number of its
/// device, and where it ends, of which file and task it is.
type OnTheWay = BTreeMap<(u32, u64), (u64, usize, u32)>;

/// Earlier bios for these sectors are over: an older bio that begins within a new one would hide it.
fn forget(bios: &mut OnTheWay, major: u32, first: u64, end: u64) {
    while let Some((&key, &(old_end, at, task))) = bios.range((major, 0)..(major, end)).next_back()
        && old_end > first
    {
        bios.remove(&key);
        if old_end > end {
            bios.insert((major, end), (old_end, at, task));
        }
        if key.1 < first {
            bios.insert(key, (first, at, task));
        }
    }
}

/// A call of a task.
#[derive(Clone, Debug)]
struct Call {
    pid: u32,
    begin: usize,
    end: usize,
    kind: Kind,
    descriptor: Descriptor,
    file: Option<Inode>,
    result: i64,
    /// First page and last page that were asked about.
    pages: Option<(u64, u64)>,
    /// Advice on a descriptor whose file nothing shows: it may be any that is read without calls.
    of_any: bool,
}

#[derive(Copy, Clone, Debug)]
enum Kind {
    Read {
        offset: Option<u64>,
        len_bytes: u64,
    },
    /// Or anything else but a read. It moves the position if the call does not name one.
    Write {
        moves: bool,
    },
    Seek,
    Advise {
        hint: Hint,
        offset: u64,
        len_bytes: u64,
    },
}

/// The value of a field that is kept as text.
fn field(fields: &str, name: &str) -> Option<u64> {
    let value = fields.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
    match value.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => value.parse().ok().or_else(|| value.parse::<i64>().ok().map(|value| value as u64)),
    }
}

/// A file that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Which one.
    pub inode: Inode,
    pub device: Device,
    /// Pages in the cache at the end.
    pub cached: Vec<Range<u64>>,
    /// Its size.
    pub bytes: u64,
    /// Parts of it are not on the disk.
    pub holes: bool,
    /// Bytes at its end that are kept with its metadata.
    pub tail: u64,
    pub job: String,
}

/// The file that one of our own records names.
fn told_file(fields: &str) -> Option<Inode> {
    let dev = fields::device(fields).filter(|_| fields::field(fields, "kind") == Some("file"))?;
    Some(Inode { dev, ino: fields::field(fields, "ino")?.parse().ok()? })
}

/// A task's advice on a part of a file's mapping.
#[derive(Copy, Clone, Debug)]
struct MappingAdvice {
    nr: usize,
    pid: u32,
    file: Inode,
    what: What,
}

/// A part that a call maps: length, file, first byte of it.
type Part = (u64, Option<Inode>, u64);

/// Parts of the address spaces that files are mapped to.
#[derive(Debug, Default)]
struct Mapped {
    /// By space and first address: the address after the last, the file, the first byte of it.
    parts: BTreeMap<(usize, u64), (u64, Inode, u64)>,
    /// Calls on their way, and whether it is to be executable.
    pending: BTreeMap<u32, (Part, bool)>,
}

impl Mapped {
    /// Something is mapped to these addresses, over whatever was there.
    fn map(&mut self, space: usize, first: u64, (len, file, offset): Part) {
        let end = first.saturating_add(len.next_multiple_of(PAGE_BYTES));
        while let Some((&key, &(old_end, old_file, old_offset))) =
            self.parts.range((space, 0)..(space, end)).next_back()
            && old_end > first
        {
            self.parts.remove(&key);
            if old_end > end {
                self.parts.insert((space, end), (old_end, old_file, old_offset + (end - key.1)));
            }
            if key.1 < first {
                self.parts.insert(key, (first, old_file, old_offset));
            }
        }
        if let Some(file) = file {
            self.parts.insert((space, first), (end, file, offset));
        }
    }

    /// The files at these addresses, with their first and last pages there.
    fn pages(&self, space: usize, first: u64, len: u64) -> Vec<(Inode, u64, u64)> {
        let end = first.saturating_add(len.next_multiple_of(PAGE_BYTES));
        let parts = self.parts.range((space, 0)..(space, end)).filter(|(_, part)| part.0 > first);
        let pages = parts.map(|((_, start), (part_end, file, offset))| {
            let page = |address: u64| (offset + (address - start)) / PAGE_BYTES;
            (*file, page(first.max(*start)), page(end.min(*part_end)).saturating_sub(1))
        });
        pages.collect()
    }
}

/// The calls of a trace.
#[derive(Default)]
struct Calls {
    calls: Vec<Call>,
    /// Where read-ahead was asked for without a call, and of which file.
    loose: Vec<Loose>,
    /// Files of descriptors, as far as the trace itself has them.
    told: BTreeMap<Descriptor, Inode>,
    said: Vec<MappingAdvice>,
}

/// State while the records of a trace are read, in order.
#[derive(Default)]
struct Reading {
    found: Calls,
    mapped: Mapped,
    descriptors: Descriptors,
    /// Calls in progress, by task.
    at_work: BTreeMap<u32, usize>,
}

/// Every call, with the files that are known.
fn calls(trace: &Trace) -> Calls {
    let mut reading = Reading::default();
    for (nr, Record { pid, seen, .. }) in trace.records.iter().enumerate() {
        match seen {
            Seen::CallStart { op: Op::Read, fd, offset, len_bytes } => {
                reading.begin(nr, *pid, *fd, Kind::Read { offset: *offset, len_bytes: *len_bytes });
            }
            Seen::CallStart { op, fd, offset, .. } => {
                reading.begin(nr, *pid, *fd, Kind::Write { moves: *op == Op::Write && offset.is_none() });
            }
            Seen::CallEnd { result, .. } => reading.end(nr, *pid, *result),
            Seen::Other { name, fields } => reading.other(nr, *pid, name, fields),
            Seen::RaSync { file, .. } if !reading.at_work.contains_key(pid) => {
                reading.found.loose.push((nr, *pid, *file));
            }
            _ => reading.touched(*pid, seen),
        }
    }
    reading.found
}

impl Reading {
    fn begin(&mut self, nr: usize, pid: u32, fd: i32, kind: Kind) {
        let descriptor = self.descriptors.of(pid, fd);
        self.at_work.insert(pid, self.found.calls.len());
        self.found.calls.push(Call {
            pid,
            begin: nr,
            end: usize::MAX,
            kind,
            descriptor,
            file: None,
            result: 0,
            pages: None,
            of_any: false,
        });
    }

    fn end(&mut self, nr: usize, pid: u32, result: i64) {
        if let Some(call) = self.at_work.remove(&pid) {
            let call = &mut self.found.calls[call];
            (call.end, call.result) = (nr, result);
        }
    }

    /// A system call that neither reads nor writes, or what the recorder says of a descriptor.
    fn other(&mut self, nr: usize, pid: u32, name: &str, fields: &str) {
        let number = |name: &str| field(fields, name).unwrap_or(0);
        let fd = |name: &str| number(name) as i32;
        if let ("iowhy:opened" | "iowhy:descriptor", Some(file)) = (name, told_file(fields)) {
            self.found.told.insert(self.descriptors.of(pid, fd("fd")), file);
        }
        self.descriptors.other(pid, name, fields);
        match name.strip_prefix("syscalls:sys_").unwrap_or_default() {
            "enter_fadvise64" => {
                let hint = Hint::of(number("advice"));
                let (offset, len_bytes) = (number("offset"), number("len"));
                self.begin(nr, pid, fd("fd"), Kind::Advise { hint, offset, len_bytes });
            }
            "enter_readahead" => {
                let (offset, len_bytes) = (number("offset"), number("count"));
                self.begin(nr, pid, fd("fd"), Kind::Advise { hint: Hint::WillNeed, offset, len_bytes });
            }
            "enter_lseek" => self.begin(nr, pid, fd("fd"), Kind::Seek),
            "exit_fadvise64" | "exit_readahead" | "exit_lseek" => self.end(nr, pid, number("ret") as i64),
            "enter_mmap" => {
                let file = Some(fd("fd")).filter(|fd| *fd >= 0);
                let file = file.and_then(|fd| self.found.told.get(&self.descriptors.of(pid, fd)).copied());
                let executable = number("prot") & PROT_EXEC != 0;
                self.mapped.pending.insert(pid, ((number("len"), file, number("off")), executable));
            }
            "exit_mmap" => {
                let (space, first) = (self.descriptors.shared_by(pid), number("ret"));
                let Some((part, executable)) = self.mapped.pending.remove(&pid) else { return };
                // Errors are the last few numbers.
                if first < u64::MAX - PAGE_BYTES {
                    self.mapped.map(space, first, part);
                    // A mapping begins without advice.
                    let hint = if executable { Hint::Executable } else { Hint::Normal };
                    self.advised(nr, pid, (first, part.0), hint);
                }
            }
            "enter_madvise" => {
                // The numbers of these are those of posix_fadvise.
                let hint = Hint::of(number("behavior"));
                if let Hint::Normal | Hint::Random | Hint::Sequential = hint {
                    self.advised(nr, pid, (number("start"), number("len_in")), hint);
                }
            }
            _ => {}
        }
    }

    /// Advice about a part of the address space: where it begins, and its length in bytes.
    fn advised(&mut self, nr: usize, pid: u32, (start, len): (u64, u64), hint: Hint) {
        let pages = self.mapped.pages(self.descriptors.shared_by(pid), start, len).into_iter();
        let said = |(file, first, last)| MappingAdvice { nr, pid, file, what: What::MapAdvice { first, last, hint } };
        self.found.said.extend(pages.map(said));
    }

    /// An event within a call says which file it is on.
    fn touched(&mut self, pid: u32, seen: &Seen) {
        let (Some(file), Some(call)) = (seen.file(), self.at_work.get(&pid)) else { return };
        let call = &mut self.found.calls[*call];
        // A write may read other pages first, but its own come last; of a read all are its own.
        if call.file.is_none() || matches!(call.kind, Kind::Write { .. }) {
            call.file = Some(file);
        }
        if call.pages.is_none() {
            call.pages = match seen {
                Seen::GetPages { index, last_index, .. } => Some((*index, *last_index)),
                Seen::RaSync { input, .. } => Some((input.index, (input.index + input.req_count).saturating_sub(1))),
                _ => None,
            };
        }
    }
}

/// Calls without pages of their own belong to the file of the others on their descriptor; reads say where they begin
/// and how long they are.
fn complete(calls: &mut [Call], loose: &[Loose], mut files: BTreeMap<Descriptor, Inode>) {
    for call in calls.iter() {
        if let Some(file) = call.file {
            files.entry(call.descriptor).or_insert(file);
        }
    }
    let mut positions: BTreeMap<Descriptor, u64> = BTreeMap::new();
    for call in calls.iter_mut() {
        call.file = call.file.or_else(|| files.get(&call.descriptor).copied());
        if call.file.is_none() && matches!(call.kind, Kind::Advise { .. }) {
            // The same task's next, or else anybody's: workers of io_uring ask for it.
            let mut later = loose.iter().filter(|(nr, ..)| *nr > call.begin);
            let any = later.clone().next();
            call.of_any =
                matches!(call.kind, Kind::Advise { hint: Hint::Normal | Hint::Random | Hint::Sequential, .. });
            call.file = later.find(|(_, pid, _)| *pid == call.pid).or(any).map(|(.., file)| *file);
        }
        let moved = u64::try_from(call.result).unwrap_or(0);
        match &mut call.kind {
            Kind::Seek => drop(positions.insert(call.descriptor, moved)),
            Kind::Read { offset, len_bytes } => {
                let known = offset.is_some();
                let position = positions.entry(call.descriptor).or_default();
                let mut at = offset.unwrap_or(*position);
                if let Some((first, last)) = call.pages {
                    // A read whose first pages come with one that is still being read shows the later ones only.
                    let possible = at / PAGE_BYTES..=(at + (*len_bytes).max(moved)) / PAGE_BYTES;
                    if !known && !possible.contains(&first) {
                        at = first * PAGE_BYTES;
                    }
                    if *len_bytes == 0 {
                        let to_the_page = ((last + 1) * PAGE_BYTES).saturating_sub(at);
                        let whole = (at + moved).div_ceil(PAGE_BYTES) == last + 1;
                        *len_bytes = if whole { moved } else { to_the_page };
                    }
                }
                if *len_bytes == 0 {
                    *len_bytes = moved;
                }
                if !known {
                    *position = at + moved;
                }
                *offset = Some(at);
            }
            Kind::Write { moves: true } => *positions.entry(call.descriptor).or_default() += moved,
            Kind::Write { .. } | Kind::Advise { .. } => {}
        }
    }
}

/// The record of a file before its lines are known: nothing but the pages that were cached before.
fn empty(trace: &Trace, file: &File) -> Recorded {
    let device = &file.device;
    Recorded {
        job: file.job.clone(),
        kernel: trace.kernel.clone(),
        filesystem: device.filesystem.clone(),
        file_bytes: file.bytes,
        ra_pages: device.read_ahead_kb * 1024 / PAGE_BYTES,
        io_pages: device.max_sectors_kb * 1024 / PAGE_BYTES,
        max_folio_order: 0,
        max_segments: device.max_segments,
        block_bytes: device.block_bytes,
        tail_bytes: file.tail,
        holes: file.holes,
        lost: trace.lost,
        lines: Vec::new(),
    }
}

/// Pages that were cached before the trace: those that leave without having been added, and those that are there at the
/// end without any event.
fn cached_before(trace: &Trace, files: &[File]) -> Vec<Vec<What>> {
    let mut first: BTreeMap<Inode, (BTreeSet<u64>, BTreeMap<u64, u8>)> =
        files.iter().filter(|file| !file.cached.is_empty()).map(|file| (file.inode, Default::default())).collect();
    for Record { seen, .. } in &trace.records {
        let (file, index, order, left) = match *seen {
            Seen::PageAdd { file, index, order } => (file, index, order, false),
            Seen::PageRemove { file, index, order } => (file, index, order, true),
            _ => continue,
        };
        let (changed, before) = first.entry(file).or_default();
        let pages = index..index + (1 << order);
        if left && pages.clone().all(|page| !changed.contains(&page)) {
            before.insert(index, order);
        }
        changed.extend(pages);
    }
    let of = |file: &File| {
        let Some((changed, before)) = first.get_mut(&file.inode) else { return Vec::new() };
        let still = file.cached.iter().cloned().flatten().filter(|page| !changed.contains(page));
        before.extend(still.map(|page| (page, 0)));
        before.iter().map(|(&index, &order)| What::Add { index, order }).collect()
    };
    files.iter().map(of).collect()
}

/// Pages that reads got and that nothing had added: they were cached before, and others dropped them meanwhile.
fn read_before(recorded: &Recorded) -> BTreeSet<u64> {
    let mut added: BTreeSet<u64> = BTreeSet::new();
    let mut before = BTreeSet::new();
    for (at, line) in recorded.lines.iter().enumerate() {
        match line.what {
            What::Add { index, order } => added.extend(index..index + (1 << order)),
            What::Read { offset, .. } => {
                let end = recorded.end_of_call(at);
                let own = || recorded.lines[at..end].iter().filter(|other| other.task == line.task);
                let read = own().find_map(|other| match other.what {
                    What::End { result } => u64::try_from(result).ok().filter(|result| *result > 0),
                    _ => None,
                });
                let Some(read) = read.filter(|_| recorded.looks_up(at, end)) else { continue };
                let pages =
                    offset / PAGE_BYTES..offset.saturating_add(read).min(recorded.file_bytes).div_ceil(PAGE_BYTES);
                let within: BTreeSet<u64> = recorded.lines[at..end]
                    .iter()
                    .filter_map(|other| match other.what {
                        What::Add { index, order } => Some(index..index + (1 << order)),
                        _ => None,
                    })
                    .flatten()
                    .collect();
                before.extend(pages.filter(|page| !added.contains(page) && !within.contains(page)));
            }
            _ => {}
        }
    }
    before
}

/// Files that tasks touched last.
#[derive(Default)]
struct Latest {
    files: BTreeMap<u32, Inode>,
    /// Bytes of pages that a task has added in its call and not asked a device for: bios beyond them are of metadata.
    /// Those of a call that adds none go past the page cache.
    wanted: BTreeMap<u32, u64>,
    /// Pages of a device's own: its number, first page, page after the last. Metadata, or the end of a file of erofs.
    own_pages: BTreeMap<u32, (u64, u64, u64)>,
}

impl Latest {
    /// The file that a record is of: a bio is of the file that the task touched last, unless it reads the device's own
    /// page.
    fn file_of(
        &mut self,
        pid: u32,
        seen: &Seen,
        of_call: Option<Inode>,
        is_known: impl Fn(Inode) -> bool,
    ) -> Option<Inode> {
        let is_own = |extent: &Extent| {
            self.own_pages.get(&pid).is_some_and(|(device, first, end)| {
                let page = extent.sector.0 * SECTOR_BYTES / PAGE_BYTES;
                u64::from(extent.dev.0) == *device && (*first..*end).contains(&page)
            })
        };
        let latest = |extent: &Extent| self.files.get(&pid).copied().filter(|file| file.dev == extent.dev);
        let file = match seen {
            Seen::Queue(extent) if is_own(extent) => None,
            Seen::Queue(extent) => latest(extent).filter(|_| self.wanted.get(&pid).is_none_or(|bytes| *bytes > 0)),
            Seen::Split { extent, .. } => latest(extent),
            _ => seen.file().or(of_call),
        };
        match seen {
            Seen::CallStart { .. } => drop(self.wanted.remove(&pid)),
            Seen::CallEnd { .. } | Seen::Fault { .. } | Seen::RaSync { .. } | Seen::RaAsync { .. } => {
                self.wanted.insert(pid, 0);
            }
            Seen::Other { name, .. } if name.starts_with("syscalls:sys_enter_") => drop(self.wanted.insert(pid, 0)),
            Seen::PageAdd { file, order, .. } if is_known(*file) => {
                *self.wanted.entry(pid).or_default() += PAGE_BYTES << order
            }
            Seen::Queue(extent) if file.is_some() => {
                let left = |bytes: &mut u64| *bytes = bytes.saturating_sub(extent.bytes.into());
                self.wanted.entry(pid).and_modify(left);
            }
            _ => {}
        }
        match (seen, file) {
            (&Seen::PageAdd { index, order, .. }, Some(file)) if file.dev.major() == 0 && !is_known(file) => {
                self.own_pages.insert(pid, (file.ino, index, index + (1 << order)));
            }
            (_, Some(file)) => drop(self.files.insert(pid, file)),
            _ => {}
        }
        file
    }
}

/// A trace's events for these files, each in a record of its own.
pub fn records(trace: &Trace, files: &[File]) -> Vec<Recorded> {
    let Calls { mut calls, loose, told, said } = calls(trace);
    complete(&mut calls, &loose, told);
    let mut marks: BTreeMap<usize, usize> = BTreeMap::new();
    for (nr, call) in calls.iter().enumerate().filter(|(_, call)| call.file.is_some()) {
        marks.insert(call.begin, nr);
        if call.end != usize::MAX {
            marks.insert(call.end, nr);
        }
    }
    let mut made: Vec<Recorded> = files.iter().map(|file| empty(trace, file)).collect();
    for (recorded, before) in made.iter_mut().zip(cached_before(trace, files)) {
        recorded.lines.extend(before.into_iter().map(|what| Line { task: 0, what }));
    }
    let mut numbers: Vec<(BTreeMap<u32, u32>, BTreeMap<Descriptor, i32>)> = vec![Default::default(); files.len()];
    let positions: BTreeMap<Inode, usize> = files.iter().zip(0..).map(|(file, at)| (file.inode, at)).collect();
    let position = |file: Inode| positions.get(&file).copied();
    let mut said = said.into_iter().peekable();
    let mut latest = Latest::default();
    let mut on_the_way = OnTheWay::new();
    for (nr, Record { pid, seen, .. }) in trace.records.iter().enumerate() {
        while let Some(MappingAdvice { pid, file, what, .. }) = said.next_if(|said| said.nr <= nr) {
            if let Some(at) = position(file) {
                let tasks = &mut numbers[at].0;
                let next = tasks.len() as u32;
                let task = *tasks.entry(pid).or_insert(next);
                made[at].lines.push(Line { task, what });
            }
        }
        let call = marks.get(&nr).map(|call| &calls[*call]);
        let file = latest.file_of(*pid, seen, call.and_then(|call| call.file), |file| position(file).is_some());
        let Some(at) = file.and_then(position) else {
            // Requests are issued by anybody, under the number of the whole disk; their bios say whose they are.
            if let Seen::Issue(extent) = seen
                && let Some((_, &(end, at, task))) =
                    on_the_way.range(..=(extent.dev.major(), extent.sector.0)).next_back()
                && extent.sector.0 < end
                && extent.rwbs.has(Rwbs::READ)
            {
                let what = What::Issue { sector: extent.sector.0, bytes: extent.bytes };
                made[at].lines.push(Line { task, what });
            }
            continue;
        };
        if let Some(call) = call.filter(|call| call.of_any) {
            let files: BTreeSet<Inode> = loose.iter().map(|(.., file)| *file).collect();
            for at in files.into_iter().filter_map(position) {
                let (tasks, descriptors) = &mut numbers[at];
                let (next_task, next) = (tasks.len() as u32, descriptors.len() as i32);
                let task = *tasks.entry(*pid).or_insert(next_task);
                let what = match call.kind {
                    Kind::Advise { hint, offset, len_bytes } if call.begin == nr => What::Advise {
                        fd: *descriptors.entry(call.descriptor).or_insert(next),
                        hint,
                        offset,
                        len_bytes,
                    },
                    _ => What::End { result: call.result },
                };
                made[at].lines.push(Line { task, what });
            }
            continue;
        }
        let (tasks, descriptors) = &mut numbers[at];
        let next = descriptors.len() as i32;
        let descriptor = |of: Descriptor| *descriptors.entry(of).or_insert(next);
        let Some(what) = what_of(nr, seen, call, descriptor) else { continue };
        let next = tasks.len() as u32;
        let task = *tasks.entry(*pid).or_insert(next);
        if let (What::Bio { sector, bytes }, Some(extent)) = (what, seen.extent()) {
            let end = sector + u64::from(bytes) / SECTOR_BYTES;
            forget(&mut on_the_way, extent.dev.major(), sector, end);
            on_the_way.insert((extent.dev.major(), sector), (end, at, task));
        }
        made[at].lines.push(Line { task, what });
    }
    for recorded in &mut made {
        let before = read_before(recorded);
        let added = before.into_iter().map(|index| Line { task: 0, what: What::Add { index, order: 0 } });
        recorded.lines.splice(0..0, added);
        recorded.max_folio_order = max_folio_order(&recorded.lines);
    }
    made
}

/// The line of a record on the file; nothing if it is of no interest.
fn what_of(nr: usize, seen: &Seen, call: Option<&Call>, mut descriptor: impl FnMut(Descriptor) -> i32) -> Option<What> {
    Some(match (seen, call) {
        (_, Some(call)) if call.begin == nr => match call.kind {
            Kind::Read { offset, len_bytes } => {
                What::Read { fd: descriptor(call.descriptor), offset: offset.unwrap_or(0), len_bytes }
            }
            Kind::Write { .. } => What::Write { fd: descriptor(call.descriptor) },
            Kind::Advise { hint, offset, len_bytes } => {
                What::Advise { fd: descriptor(call.descriptor), hint, offset, len_bytes }
            }
            Kind::Seek => return None,
        },
        (_, Some(call)) if matches!(call.kind, Kind::Seek) => return None,
        (_, Some(call)) => What::End { result: call.result },
        (Seen::RaSync { input, .. }, _) => What::Sync(*input),
        (Seen::RaAsync { input, .. }, _) => What::Async(*input),
        (&Seen::RaOrder { index, order, size, async_size, ra_pages, .. }, _) => {
            What::Order { index, order, size, async_size, ra_pages }
        }
        (&Seen::RaUnbounded { index, nr_to_read, lookahead_size, .. }, _) => {
            What::Unbounded { index, nr_pages: nr_to_read, lookahead: lookahead_size }
        }
        (&Seen::GetPages { index, last_index, .. }, _) => What::Get { index, last: last_index },
        (&Seen::PageAdd { index, order, .. }, _) => What::Add { index, order },
        (&Seen::Fault { index, .. }, _) => What::Fault { index },
        (Seen::Split { extent, rest }, _) => What::Split { sector: extent.sector.0, rest: rest.0 },
        (&Seen::PageRemove { index, order, .. }, _) => What::Remove { index, order },
        (Seen::Queue(extent), _) if extent.rwbs.has(Rwbs::READ) && !extent.rwbs.has(Rwbs::META) => {
            What::Bio { sector: extent.sector.0, bytes: extent.bytes }
        }
        _ => return None,
    })
}

/// 0 if no folio is larger than a page, and either nothing is seen of windows, or a window to be cut into folios was
/// read as single pages from its start, where the first folio would have had room.
fn max_folio_order(lines: &[Line]) -> u8 {
    if lines.iter().any(|line| matches!(line.what, What::Add { order: 1.., .. })) {
        return MAX_FOLIO_ORDER;
    }
    // Kernels that do not tell of windows are older than ext4's large folios, and some do not tell an order either.
    let adds = lines.iter().any(|line| matches!(line.what, What::Add { .. }));
    if adds && !lines.iter().any(|line| matches!(line.what, What::Sync(_) | What::Async(_)) || is_window(&line.what)) {
        return 0;
    }
    for (nr, line) in lines.iter().enumerate() {
        let What::Order { index, order, size, .. } = line.what else { continue };
        let mut own = lines[nr + 1..].iter().filter(|other| other.task == line.task).map(|other| other.what);
        match own.next() {
            // Folios come without a further question, also those of one page.
            Some(What::Add { .. }) => return MAX_FOLIO_ORDER,
            // A window whose first folio would have a page that is there already is read as single pages, too.
            Some(What::Unbounded { index: at, nr_pages, .. }) if at == index => {
                let order = order.min(MAX_FOLIO_ORDER.into()).min(index.trailing_zeros());
                let wanted = nr_pages.min(u64::from(size)).min(1 << order);
                let added = own.zip(index..).take_while(|(what, page)| *what == What::Add { index: *page, order: 0 });
                if wanted > 0 && added.take(wanted as usize).count() as u64 == wanted {
                    return 0;
                }
            }
            _ => {}
        }
    }
    MAX_FOLIO_ORDER
}

#[cfg(test)]
mod tests {
    use iowhy_stack::trace::{Dev, RaInput};
    use iowhy_stack::units::{Nanos, Sector};

    use super::*;

    const FILE: Inode = Inode { dev: Dev::new(7, 0), ino: 9 };

    #[test]
    fn folios_larger_than_a_page_are_possible_unless_a_window_shows_that_they_are_not() {
        let add = |index| What::Add { index, order: 0 };
        let window = |index, order| What::Order { index, order, size: 16, async_size: 16, ra_pages: 32 };
        let pages = |index, nr_pages| What::Unbounded { index, nr_pages, lookahead: 3 };
        let rows: &[(&str, &[What], u8)] = &[
            ("a large folio", &[What::Add { index: 0, order: 2 }], 9),
            ("pages, and nothing is seen of windows", &[add(0), add(1)], 0),
            ("a window that is cut into folios of one page", &[window(0, 0), add(0), add(1)], 9),
            ("a window of single pages", &[window(0, 0), pages(0, 4), add(0), pages(0, 4)], 0),
            ("the folio's last page is there", &[window(4, 2), pages(4, 16), add(4), add(5), add(6), add(8)], 9),
            ("all of the folio was absent", &[window(4, 2), pages(4, 16), add(4), add(5), add(6), add(7)], 0),
            ("a folio of 2 pages has room", &[window(2, 2), pages(2, 16), add(2), add(3), add(8)], 0),
            ("the file ends before", &[window(4, 2), pages(4, 2), add(4), add(5)], 0),
        ];
        for (name, what, order) in rows {
            let lines: Vec<Line> = what.iter().map(|what| Line { task: 0, what: *what }).collect();
            assert_eq!(max_folio_order(&lines), *order, "{name}");
        }
    }

    #[test]
    fn bios_beyond_the_pages_that_were_added_are_of_metadata() {
        let dev = FILE.dev;
        let bio = |sector, bytes| Seen::Queue(Extent { dev, sector: Sector(sector), bytes, rwbs: Rwbs::READ });
        let call = |name: &str| Seen::Other { name: format!("syscalls:sys_enter_{name}"), fields: String::new() };
        let add = |index| Seen::PageAdd { file: FILE, index, order: 0 };
        let own = |index| Seen::PageAdd { file: Inode { dev: Dev::new(0, 3), ino: u64::from(dev.0) }, index, order: 0 };
        let sync = Seen::RaSync { file: FILE, input: RaInput::default() };
        let end = Seen::CallEnd { op: Op::Read, result: 4096 };
        // The sectors of the file's bios.
        let rows: &[(&str, &[Seen], &[u64])] = &[
            ("of the pages", &[sync.clone(), add(0), add(1), bio(80, 4096), bio(800, 4096)], &[80, 800]),
            ("behind the pages", &[sync.clone(), add(0), bio(80, 4096), bio(262_276, 1024)], &[80]),
            ("after the call", &[sync.clone(), add(0), end, bio(80, 1024)], &[]),
            ("of another call", &[sync.clone(), add(0), call("newfstatat"), own(9), bio(80, 1024)], &[]),
            ("beyond the end nothing is added", &[sync.clone(), bio(80, 1024)], &[]),
        ];
        for (name, seen, sectors) in rows {
            let records = seen.iter().cloned().zip(1..);
            let records = records.map(|(seen, nr)| Record { at: Nanos(nr), cpu: 0, pid: 1, seen }).collect();
            let trace = Trace { kernel: "6.18.1".to_owned(), records, ..Trace::default() };
            let file = File {
                inode: FILE,
                device: Device::default(),
                cached: Vec::new(),
                bytes: 1 << 20,
                holes: false,
                tail: 0,
                job: String::new(),
            };
            let recorded = &super::records(&trace, &[file])[0];
            let of = |line: &Line| if let What::Bio { sector, .. } = line.what { Some(sector) } else { None };
            assert_eq!(recorded.lines.iter().filter_map(of).collect::<Vec<_>>(), *sectors, "{name}");
        }
    }
}
