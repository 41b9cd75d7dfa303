//! The fate of pages: windows, hits that are hits, and the processes that added pages.
//!
//! ```text
//! window      a decision (RaOrder, RaUnbounded, or where the kernel shows none: pages added in one row by one task in
//!             one call). A page of it that was added is used once a call, a lookup or a fault touches it; removed
//!             before that it is thrashed; never touched, wasted
//! looked up   pages of a file that a read call touched, each once a call, however often the kernel looked. The
//!             lookups give the file and the pages where they are traced, else the call does
//! missed      of these, the pages that the same task had to add during the call
//! ```
//! A read call is of the page cache if pages were looked up or added in it or its descriptor is of a file with pages;
//! one that queues reads itself and touches no page is direct; `pread` without any I/O was all hits. Other reads are of
//! pipes and the like, and are counted apart. Descriptors become known by pages that are added, looked up or asked for
//! in a call; only a thread that did so, or all threads if they agree, is believed.
//!
//! Known limits: pages cached before the trace began are seen only when they are used. A position that only the kernel
//! knows (`read` without an offset) is followed from 0, and corrected where lookups are traced.

use iowhy_stack::event::Op;
use iowhy_stack::trace::{Inode, Record, Rwbs, Seen};
use std::collections::{BTreeMap, HashMap};

/// Windows of read-ahead and what became of their pages.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// Windows.
    pub n: u64,
    /// Of these, decided because a page was missing.
    pub sync: u64,
    /// Of these, decided because a marked page was reached.
    pub ahead: u64,
    /// Pages that windows asked for.
    pub pages: u64,
    /// Of these, the pages that were added.
    pub added: u64,
    /// Added pages that were used.
    pub used: u64,
    /// Added pages that remained unused until the trace ended.
    pub wasted: u64,
    /// Added pages that were removed before anybody used them.
    pub thrashed: u64,
    /// Windows were inferred from the pages added.
    pub inferred: bool,
}

/// Lookups of pages by read calls.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// Pages looked up.
    pub looked_up: u64,
    /// Of these, the pages that had to be added for it.
    pub missed: u64,
    /// Read calls through the page cache.
    pub calls: u64,
    /// Read calls around it.
    pub direct_calls: u64,
    /// Read calls of unknown files: pipes, sockets, terminals.
    pub other_calls: u64,
    /// Lookups were traced.
    pub traced: bool,
}

impl Lookups {
    /// Share of the pages looked up that were there, 0 to 1; nothing if none was looked up.
    pub fn hit_ratio(&self) -> Option<f64> {
        (self.looked_up > 0).then(|| 1.0 - self.missed as f64 / self.looked_up as f64)
    }
}

impl Cache {
    /// Pages that calls found, and of these, those that read-ahead had brought within the trace; the rest were there
    /// before, or were read again.
    pub fn found(&self) -> (u64, u64) {
        let found = self.lookups.looked_up.saturating_sub(self.lookups.missed);
        (found, self.windows.used.saturating_sub(self.lookups.missed).min(found))
    }
}

/// A process's additions to a file's pages.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Pages added.
    pub added: u64,
    /// Of these, the pages that were still there at the end.
    pub left: u64,
}

/// Page events.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    pub windows: Windows,
    pub lookups: Lookups,
    /// By file and process.
    pub shares: BTreeMap<(Inode, u32), Share>,
    /// Pages removed.
    pub removed: u64,
    /// Read, write and sync calls that began, by process.
    pub calls: BTreeMap<u32, u64>,
}

#[derive(Copy, Clone, Debug)]
struct Page {
    by: u32,
    windowed: bool,
    used: bool,
}

#[derive(Clone, Debug)]
struct Call {
    op: Op,
    fd: i32,
    offset: Option<u64>,
    file: Option<Inode>,
    /// Pages looked up: first, and the one after the last.
    span: Option<(u64, u64)>,
    /// The first page that was missing or reached a marker.
    asked: Option<u64>,
    /// Pages added by the call.
    added: Vec<(Inode, u64, u64)>,
    queued_reads: bool,
    /// A window was decided on by the call, or pages were added or looked up.
    paged: bool,
}

#[derive(Copy, Clone, Debug)]
struct Window {
    start: u64,
    end: u64,
}

#[derive(Default)]
struct Observer {
    cache: Cache,
    pages: HashMap<(Inode, u64), Page>,
    /// Windows that were decided on last, by file; more than one stream may be reading.
    windows: HashMap<Inode, Vec<Window>>,
    calls: HashMap<u32, Call>,
    descriptors: HashMap<(u32, i32), Inode>,
    positions: HashMap<(u32, i32), u64>,
    infer: bool,
    /// The last pages added by a process, to infer windows from.
    run: HashMap<u32, (Inode, u64)>,
}

/// Windows of a file that pages may still be added for.
const OPEN_WINDOWS: usize = 16;

impl Observer {
    fn window(&mut self, pid: u32, file: Inode, start: u64, nr_pages: u64) {
        self.cache.windows.n += 1;
        self.cache.windows.pages += nr_pages;
        let windows = self.windows.entry(file).or_default();
        if windows.len() == OPEN_WINDOWS {
            windows.remove(0);
        }
        windows.push(Window { start, end: start + nr_pages });
        self.touch(pid, file);
    }

    /// A call of `pid` has to do with this file.
    fn touch(&mut self, pid: u32, file: Inode) {
        if let Some(call) = self.calls.get_mut(&pid) {
            call.paged = true;
            if call.file.is_none() {
                call.file = Some(file);
                self.descriptors.insert((pid, call.fd), file);
            }
        }
    }

    /// Read-ahead was asked for at a page.
    fn ask(&mut self, pid: u32, file: Inode, index: u64) {
        self.touch(pid, file);
        if let Some(call) = self.calls.get_mut(&pid) {
            call.asked = call.asked.or(Some(index));
        }
    }

    fn add(&mut self, pid: u32, file: Inode, index: u64, order: u8) {
        let end = index + (1u64 << order.min(30));
        if self.infer {
            let goes_on = self.run.insert(pid, (file, end)) == Some((file, index));
            if !goes_on {
                self.window(pid, file, index, 0);
            }
            self.cache.windows.pages += end - index;
            if let Some(window) = self.windows.get_mut(&file).and_then(|windows| windows.last_mut()) {
                window.end = end;
            }
        }
        self.touch(pid, file);
        if let Some(call) = self.calls.get_mut(&pid) {
            call.added.push((file, index, end));
        }
        let share = self.cache.shares.entry((file, pid)).or_default();
        share.added += end - index;
        let windows = self.windows.get(&file).map_or(&[][..], Vec::as_slice);
        for page in index..end {
            let windowed = windows.iter().any(|window| window.start <= page && page < window.end);
            self.cache.windows.added += u64::from(windowed);
            self.pages.insert((file, page), Page { by: pid, windowed, used: false });
        }
    }

    fn remove(&mut self, file: Inode, index: u64, order: u8) {
        for page in index..index + (1u64 << order.min(30)) {
            self.cache.removed += 1;
            if let Some(page) = self.pages.remove(&(file, page))
                && page.windowed
                && !page.used
            {
                self.cache.windows.thrashed += 1;
            }
        }
    }

    fn use_pages(&mut self, file: Inode, start: u64, end: u64) {
        // A lookup beyond the end of a file may name more pages than there are.
        for page in start..end.min(start + (1 << 20)) {
            if let Some(page) = self.pages.get_mut(&(file, page))
                && !page.used
            {
                page.used = true;
                self.cache.windows.used += u64::from(page.windowed);
            }
        }
    }

    fn get_pages(&mut self, pid: u32, file: Inode, index: u64, end: u64) {
        self.touch(pid, file);
        match self.calls.get_mut(&pid) {
            Some(call) if call.op == Op::Read => {
                call.file = Some(file);
                call.span = Some(match call.span {
                    Some((first, last)) => (first.min(index), last.max(end)),
                    None => (index, end),
                });
            }
            // Without calls each lookup stands for itself; the kernel repeats one with the same end.
            _ => {
                self.cache.lookups.looked_up += end.saturating_sub(index);
                self.use_pages(file, index, end);
            }
        }
    }

    /// The file of a descriptor: as the thread itself showed, or as all others agree.
    fn file_of(&self, pid: u32, fd: i32) -> Option<Inode> {
        if let Some(file) = self.descriptors.get(&(pid, fd)) {
            return Some(*file);
        }
        let mut others = self.descriptors.iter().filter(|((_, known), _)| *known == fd).map(|(_, file)| *file);
        let first = others.next()?;
        others.all(|file| file == first).then_some(first)
    }

    fn end_call(&mut self, pid: u32, result: i64) {
        self.run.remove(&pid);
        let Some(call) = self.calls.remove(&pid) else { return };
        if call.op != Op::Read {
            return;
        }
        let bytes = u64::try_from(result).unwrap_or(0);
        let known = call.file.or_else(|| self.file_of(pid, call.fd));
        let position = self.positions.entry((pid, call.fd)).or_default();
        if call.offset.is_none() {
            // The descriptor was moved: looked-up or missing pages show its position.
            let pages = *position / 4096..(*position + bytes).div_ceil(4096);
            let elsewhere = call.asked.filter(|asked| !pages.contains(asked));
            if let Some(first) = call.span.map(|(first, _)| first).filter(|first| *first != pages.start).or(elsewhere) {
                *position = first * 4096;
            }
        }
        let offset = call.offset.unwrap_or(*position);
        if call.offset.is_none() {
            *position = offset + bytes;
        }
        if call.queued_reads && !call.paged {
            self.cache.lookups.direct_calls += 1;
            return;
        }
        if known.is_none() && call.offset.is_none() {
            self.cache.lookups.other_calls += 1;
            return;
        }
        self.cache.lookups.calls += 1;
        let whole = if bytes == 0 { (0, 0) } else { (offset / 4096, (offset + bytes).div_ceil(4096)) };
        let (start, end) = whole;
        self.cache.lookups.looked_up += end - start;
        let Some(file) = known else { return };
        let missed = call
            .added
            .iter()
            .filter(|(added, ..)| *added == file)
            .map(|(_, first, last)| (*last).min(end).saturating_sub((*first).max(start)))
            .sum::<u64>();
        self.cache.lookups.missed += missed.min(end - start);
        self.use_pages(file, start, end);
    }

    fn take(&mut self, record: &Record) {
        let pid = record.pid;
        match record.seen {
            Seen::CallStart { op, fd, offset, .. } => {
                *self.cache.calls.entry(pid).or_default() += 1;
                let call = Call {
                    op,
                    fd,
                    offset,
                    file: None,
                    span: None,
                    asked: None,
                    added: Vec::new(),
                    queued_reads: false,
                    paged: false,
                };
                self.calls.insert(pid, call);
            }
            Seen::CallEnd { result, .. } => self.end_call(pid, result),
            Seen::RaSync { file, input } => {
                self.cache.windows.sync += 1;
                self.ask(pid, file, input.index);
            }
            Seen::RaAsync { file, input } => {
                self.cache.windows.ahead += 1;
                self.ask(pid, file, input.index);
            }
            Seen::RaOrder { file, index, size, .. } => self.window(pid, file, index, u64::from(size)),
            Seen::RaUnbounded { file, index, nr_to_read, .. } => {
                // Where folios fail the kernel goes on with pages, and says so for the rest of the window.
                let rest = self
                    .windows
                    .get(&file)
                    .and_then(|windows| windows.last())
                    .is_some_and(|window| window.start <= index && index + nr_to_read <= window.end);
                if !rest {
                    self.window(pid, file, index, nr_to_read);
                }
            }
            Seen::GetPages { file, index, last_index } => self.get_pages(pid, file, index, last_index),
            Seen::PageAdd { file, index, order } => self.add(pid, file, index, order),
            Seen::PageRemove { file, index, order } => self.remove(file, index, order),
            Seen::Fault { file, index } => self.use_pages(file, index, index + 1),
            Seen::Queue(extent) if extent.rwbs.has(Rwbs::READ) => {
                if let Some(call) = self.calls.get_mut(&pid) {
                    call.queued_reads = true;
                }
            }
            _ => {}
        }
    }
}

/// Follows the pages of a trace.
pub(super) fn cache(records: &[Record], inferred: bool) -> Cache {
    let decided = records.iter().any(|record| matches!(record.seen, Seen::RaOrder { .. } | Seen::RaUnbounded { .. }));
    let infer = inferred && !decided;
    let mut observer = Observer { infer, ..Observer::default() };
    observer.cache.windows.inferred = inferred;
    observer.cache.lookups.traced = records.iter().any(|record| matches!(record.seen, Seen::GetPages { .. }));
    records.iter().for_each(|record| observer.take(record));
    let Observer { mut cache, pages, .. } = observer;
    for ((file, _), page) in &pages {
        if let Some(share) = cache.shares.get_mut(&(*file, page.by)) {
            share.left += 1;
        }
        cache.windows.wasted += u64::from(page.windowed && !page.used);
    }
    cache
}
