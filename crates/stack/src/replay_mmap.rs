//! Replays recorded accesses through mappings, and the advice between them, with I/O that settles.
//!
//! A [`Case`] describes a file, its open files, its mappings and a program's work on them.
//! [`replay`] drives [`Fault`], [`ReadLoop`] and the read-ahead policy over them. I/O is settled between touches: pages
//! that a touch started are up to date at the next one. Within a touch, a read without a waiter is still in flight; a
//! wait for a page ends everything submitted together with it and all before it. `MADV_POPULATE_READ` counts as one
//! touch.
//!
//! The result has all submissions, the trace events of the kernel in their order, and the cached and mapped pages in
//! the end.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::advice::{self, FileAdvice, FileFlags};
use crate::event::RaKind;
use crate::fault::{
    Access, Fault, FaultCache, FaultContext, FaultEnd, FaultEvent, FaultStep, MapAdvice, MappedFile, MmapMiss,
    Protection, Rules,
};
use crate::origin::{Entry, Options};
use crate::read_loop::{LoopStyle, ReadLoop, Step};
use crate::readahead::{
    self, Advice, Decision, FaultWindow, Folio, Limits, Mapping, ReadRequest, Readahead, Token, Window,
};
use crate::units::{self, PAGE_BYTES, PageIndex};

/// A mapping of a case.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// Number of the mapping.
    pub id: u64,
    /// The open file that it maps.
    pub fd: u64,
    /// First page of the file.
    pub file_page: u64,
    pub nr_pages: u64,
    pub protection: Protection,
    /// Place of its first page in a page table of 512 entries.
    pub slot: u64,
}

/// `madvise`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum MemoryAdvice {
    /// Expected kind of accesses.
    Expect(MapAdvice),
    /// `MADV_HUGEPAGE` or `MADV_NOHUGEPAGE`.
    Huge(bool),
    /// `MADV_WILLNEED`.
    WillNeed,
    /// `MADV_DONTNEED`.
    DontNeed,
    /// `MADV_POPULATE_READ`.
    PopulateRead,
}

/// Something that the program of a case does. Offsets within a mapping count from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Touches single bytes of a mapping, one after the other.
    Touch {
        /// Number of the mapping.
        mapping: u64,
        /// Pages of the mapping, in this order.
        pages: Vec<u64>,
        /// Stores, not loads.
        write: bool,
    },
    /// Advice about a part of a mapping.
    Madvise {
        /// Number of the mapping.
        mapping: u64,
        /// First byte.
        offset: u64,
        len_bytes: u64,
        advice: MemoryAdvice,
    },
    Read {
        /// Number of the open file.
        fd: u64,
        /// First byte.
        offset: u64,
        len_bytes: u64,
    },
    /// `posix_fadvise`.
    Fadvise {
        /// Number of the open file.
        fd: u64,
        /// First byte.
        offset: u64,
        len_bytes: u64,
        advice: FileAdvice,
    },
    Readahead {
        /// Number of the open file.
        fd: u64,
        /// First byte.
        offset: u64,
        len_bytes: u64,
    },
    /// `POSIX_FADV_DONTNEED` on an open file of its own.
    Evict {
        /// First byte.
        offset: u64,
        len_bytes: u64,
    },
    /// `munmap` of a whole mapping.
    Munmap {
        /// Number of the mapping.
        mapping: u64,
    },
    /// The device's read-ahead limit changes.
    SetRa {
        /// The new limit in pages.
        ra_pages: u64,
    },
}

/// Recorded inputs.
#[derive(Clone, Debug, Default)]
pub struct Case {
    /// Size of the file.
    pub file_bytes: u64,
    /// Read-ahead limit of the device.
    pub ra_pages: u64,
    /// Largest request of the device.
    pub io_pages: u64,
    /// Largest folio order of the file.
    pub max_folio_order: u8,
    /// Window of fault-around.
    pub fault_around_pages: u64,
    /// Runs of pages cached from the start: first page, pages.
    pub cached_initially: Vec<(u64, u64)>,
    /// Numbers of the open files.
    pub fds: Vec<u64>,
    pub mappings: Vec<Map>,
    /// Operations.
    pub ops: Vec<Op>,
}

/// Where in a case something happened.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Number of the operation.
    pub op: usize,
    /// Number of the touch within it; none where the operation is not a list of touches.
    pub touch: Option<usize>,
}

/// A run of pages that was submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// When.
    pub place: Place,
    /// Number of the kernel's call that submitted it.
    pub call: u64,
    /// First page.
    pub start: u64,
    pub nr_pages: u64,
    /// Why.
    pub kind: RaKind,
    /// The asynchronous tail of its window.
    pub async_size: Option<u64>,
    /// Largest folio order.
    pub order: u8,
    /// First page and order of the folios larger than a page.
    pub folios: Vec<(u64, u8)>,
}

/// A trace event of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRow {
    /// When.
    pub place: Place,
    /// Its short name.
    pub event: &'static str,
    pub fields: Vec<i64>,
}

/// The state of an open file in the end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FinalState {
    /// Preferred folio order.
    pub order: i64,
    /// Pages of the last window.
    pub size: i64,
    /// Its asynchronous tail.
    pub async_size: i64,
    /// Read-ahead limit.
    pub max: i64,
    /// Misses.
    pub mmap_miss: i64,
    /// Where the previous read ended.
    pub prev_pos: i64,
}

/// Results of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Everything submitted, in order.
    pub submissions: Vec<Submission>,
    /// Trace events, in order.
    pub trace: Vec<TraceRow>,
    /// Return value of every operation: bytes read; 0 for the others, or -14 (EFAULT) for a touch or a population that
    /// went beyond the file.
    pub returned: Vec<i64>,
    /// The open files in the end.
    pub final_state: BTreeMap<u64, FinalState>,
    /// Runs of cached pages in the end: first page, pages.
    pub cached_runs: Vec<(u64, u64)>,
    /// Runs of mapped pages of the file, for every mapping that is left.
    pub mapped_runs: BTreeMap<u64, Vec<(u64, u64)>>,
}

/// `EFAULT`, as a system call returns it.
const EFAULT: i64 = -14;

/// Replays `case` with the rules of one kernel and its read-ahead policy.
///
/// # Panics
/// If an operation names an open file or a mapping that the case has not (or no longer).
pub fn replay(
    rules: &Rules,
    advice_rules: &advice::Rules,
    (entry, options): (&Entry<readahead::Build>, &Options),
    case: &Case,
) -> Replayed {
    let cache = Cache::new(case);
    let rules = Rules { fault_around_pages: case.fault_around_pages, ..*rules };
    let open = |&fd: &u64| {
        let file = File {
            ra: (entry.build)(options, &cache.limits),
            misses: MmapMiss::default(),
            flags: FileFlags::default(),
        };
        (fd, file)
    };
    // Every mapping has page tables of its own.
    let map = |map: &Map| {
        let mapped = MappedFile::new(PageIndex(map.file_page), map.nr_pages, map.slot, map.protection);
        (map.id, (map.fd, PageIndex(map.file_page), mapped))
    };
    let mut replayer = Replayer {
        rules,
        advice_rules: *advice_rules,
        files: case.fds.iter().map(open).collect(),
        mappings: case.mappings.iter().map(map).collect(),
        cache,
    };
    let mut returned = Vec::new();
    for (number, op) in case.ops.iter().enumerate() {
        replayer.cache.place = Place { op: number, touch: None };
        returned.push(replayer.run(op));
        replayer.cache.settle();
    }
    let Replayer { files, mappings, cache, .. } = replayer;
    Replayed {
        returned,
        final_state: files.iter().map(|(&fd, file)| (fd, file.final_state())).collect(),
        cached_runs: cache.runs(),
        mapped_runs: mappings.iter().map(|(&id, (_, _, mapped))| (id, mapped.runs())).collect(),
        submissions: cache.submissions,
        trace: cache.trace,
    }
}

/// An open file.
struct File {
    ra: Box<dyn Readahead>,
    misses: MmapMiss,
    flags: FileFlags,
}

impl File {
    /// Its policy, telling of misses and markers.
    fn traced(&mut self) -> Traced<'_> {
        Traced { ra: self.ra.as_mut(), misses: &self.misses }
    }

    fn final_state(&self) -> FinalState {
        let state = State::of(self.ra.as_ref());
        FinalState {
            order: state.order,
            size: state.size,
            async_size: state.async_size,
            max: state.max,
            mmap_miss: i64::from(self.misses.get()),
            prev_pos: state.prev_pos,
        }
    }
}

/// A policy's own account of itself, by name.
struct State {
    size: i64,
    async_size: i64,
    max: i64,
    prev_pos: i64,
    order: i64,
}

impl State {
    fn of(ra: &dyn Readahead) -> State {
        let trace = ra.trace();
        let field = |index| trace.get(index).copied().unwrap_or(0);
        State { size: field(1), async_size: field(2), max: field(3), prev_pos: field(4), order: field(5) }
    }
}

struct Replayer {
    rules: Rules,
    advice_rules: advice::Rules,
    files: BTreeMap<u64, File>,
    mappings: BTreeMap<u64, (u64, PageIndex, MappedFile)>,
    cache: Cache,
}

impl Replayer {
    fn run(&mut self, op: &Op) -> i64 {
        match *op {
            Op::Touch { mapping, ref pages, write } => {
                let first = self.mappings[&mapping].1;
                let access = if write { Access::Write } else { Access::Read };
                for (number, page) in pages.iter().enumerate() {
                    self.cache.place.touch = Some(number);
                    let end = self.touch(mapping, first.plus(*page), access);
                    self.cache.settle();
                    if end == FaultEnd::BusError {
                        return EFAULT;
                    }
                }
                0
            }
            Op::Madvise { mapping, offset, len_bytes, advice } => self.madvise(mapping, offset, len_bytes, advice),
            Op::Read { fd, offset, len_bytes } => {
                let file = self.files.get_mut(&fd).expect("a case names only its open files");
                self.cache.instant = true;
                let copied = read(&mut file.traced(), &mut self.cache, ReadRequest { offset, len_bytes });
                self.cache.instant = false;
                copied as i64
            }
            Op::Fadvise { fd, offset, len_bytes, advice } => {
                let file = self.files.get_mut(&fd).expect("a case names only its open files");
                let range = (offset, len_bytes);
                let gone =
                    self.advice_rules.advise_file(advice, range, &mut file.flags, file.ra.as_mut(), &mut self.cache);
                self.drop_pages(gone);
                0
            }
            Op::Readahead { fd, offset, len_bytes } => {
                let file = self.files.get_mut(&fd).expect("a case names only its open files");
                self.advice_rules.readahead(offset, len_bytes, file.ra.as_mut(), &mut self.cache);
                0
            }
            Op::Evict { offset, len_bytes } => {
                let gone = self.advice_rules.dropped(self.cache.size_bytes, offset, len_bytes);
                self.drop_pages(gone);
                0
            }
            Op::Munmap { mapping } => {
                self.mappings.remove(&mapping).expect("a case unmaps only mapped parts");
                0
            }
            Op::SetRa { ra_pages } => {
                self.cache.limits.ra_pages = ra_pages;
                0
            }
        }
    }

    fn madvise(&mut self, id: u64, offset: u64, len_bytes: u64, advice: MemoryAdvice) -> i64 {
        let (fd, start, mapped) = self.mappings.get_mut(&id).expect("a case names only its mappings");
        let first = start.plus(offset / PAGE_BYTES);
        let end = start.plus((offset + len_bytes).div_ceil(PAGE_BYTES));
        match advice {
            MemoryAdvice::Expect(advice) => mapped.advise(first, end, advice),
            MemoryAdvice::Huge(huge) => mapped.advise_huge(first, end, huge),
            MemoryAdvice::DontNeed => drop(mapped.unmap(first, end)),
            MemoryAdvice::WillNeed => {
                let file = self.files.get_mut(fd).expect("a case names only its open files");
                advice::mapping_will_need(mapped.parts(first, end), file.ra.as_mut(), &mut self.cache);
            }
            MemoryAdvice::PopulateRead => {
                for page in first.0..end.0 {
                    if self.touch(id, PageIndex(page), Access::Populate) == FaultEnd::BusError {
                        return EFAULT;
                    }
                }
            }
        }
        0
    }

    fn touch(&mut self, id: u64, page: PageIndex, access: Access) -> FaultEnd {
        let (fd, _, mapped) = self.mappings.get_mut(&id).expect("a case names only its mappings");
        let Some(mut fault) = Fault::of_touch(mapped, page, access) else { return FaultEnd::Minor };
        let file = self.files.get_mut(fd).expect("a case names only its open files");
        let misses = &file.misses;
        let mut ra = Traced { ra: file.ra.as_mut(), misses };
        loop {
            let mut context = FaultContext { ra: &mut ra, misses, mapped, cache: &mut self.cache };
            match fault.step(&self.rules, &mut context) {
                FaultStep::Submitted => self.cache.group += 1,
                FaultStep::Wait(page) => self.cache.wait(page),
                FaultStep::Done(end) => return end,
            }
        }
    }

    /// Drops folios that lie entirely in the range and are not mapped.
    fn drop_pages(&mut self, range: Range<u64>) {
        let mut firsts: Vec<u64> = self.cache.pages.range(range.clone()).map(|(_, page)| page.folio.first.0).collect();
        firsts.dedup();
        for first in firsts {
            let folio = self.cache.pages[&first].folio;
            let pages = first..first + (1 << folio.order);
            let mut maps = |page: u64| {
                self.mappings.values_mut().any(|(_, _, mapped)| mapped.cache_entry(PageIndex(page)).is_some())
            };
            if first < range.start || pages.end > range.end || pages.clone().any(&mut maps) {
                continue;
            }
            self.cache.pages.retain(|page, _| !pages.contains(page));
        }
    }
}

/// Runs one `read(2)`; the bytes it copied.
fn read(ra: &mut dyn Readahead, cache: &mut Cache, request: ReadRequest) -> u64 {
    let mut read = ReadLoop::new(ra, request, false);
    loop {
        match read.step(ra, cache) {
            Step::Done { len_bytes } => return len_bytes,
            Step::Wait(page) => cache.wait(page),
            Step::Submitted | Step::SchedulingPoint | Step::Copy { .. } => {}
        }
    }
}

/// A policy that records the calls for which the kernel has trace events.
struct Traced<'a> {
    ra: &'a mut dyn Readahead,
    misses: &'a MmapMiss,
}

impl Traced<'_> {
    fn fields(&self, page: PageIndex, nr_requested: u64) -> [i64; 8] {
        let state = State::of(self.ra);
        let State { size, async_size, max, prev_pos, order } = state;
        let (at, misses) = (page.0 as i64, i64::from(self.misses.get()));
        [at, nr_requested as i64, order, size, async_size, max, misses, prev_pos]
    }
}

impl Readahead for Traced<'_> {
    fn style(&self) -> LoopStyle {
        self.ra.style()
    }

    fn begin(&mut self, mapping: &mut dyn Mapping, request: &ReadRequest) -> Token {
        self.ra.begin(mapping, request)
    }

    fn on_page(&mut self, call: Token, mapping: &mut dyn Mapping, page: PageIndex, remaining_bytes: u64) -> PageIndex {
        self.ra.on_page(call, mapping, page, remaining_bytes)
    }

    fn on_miss(&mut self, call: Token, mapping: &mut dyn Mapping, page: PageIndex, nr_requested: u64) {
        mapping.decided(Decision::Sync { fields: self.fields(page, nr_requested) });
        self.ra.on_miss(call, mapping, page, nr_requested);
    }

    fn on_marker(&mut self, call: Token, mapping: &mut dyn Mapping, page: PageIndex, nr_requested: u64) {
        if self.ra.max_pages() > 0 {
            mapping.decided(Decision::Async { fields: self.fields(page, nr_requested) });
        }
        self.ra.on_marker(call, mapping, page, nr_requested);
    }

    fn copied(&mut self, call: Token, pos: u64) {
        self.ra.copied(call, pos);
    }

    fn end(&mut self, call: Token, pos: u64) {
        self.ra.end(call, pos);
    }

    fn asks_nothing_of_hits(&self) -> bool {
        self.ra.asks_nothing_of_hits()
    }

    fn hit(&mut self, mapping: &mut dyn Mapping, request: &ReadRequest) {
        self.ra.hit(mapping, request);
    }

    fn max_pages(&self) -> u64 {
        self.ra.max_pages()
    }

    fn prev_page(&self) -> u64 {
        self.ra.prev_page()
    }

    fn fault_window(&mut self, mapping: &mut dyn Mapping, window: &FaultWindow) {
        self.ra.fault_window(mapping, window);
    }

    fn advise(&mut self, mapping: &mut dyn Mapping, advice: Advice) {
        self.ra.advise(mapping, advice);
    }

    fn trace(&self) -> Vec<i64> {
        self.ra.trace()
    }
}

/// A cached page.
#[derive(Copy, Clone, Debug)]
struct Page {
    folio: Folio,
    marked: bool,
    /// The group of submissions that it is read with, until that has ended.
    in_flight: Option<u64>,
}

struct Cache {
    size_bytes: u64,
    limits: Limits,
    pages: BTreeMap<u64, Page>,
    place: Place,
    /// Reads settle at once.
    instant: bool,
    /// The submissions of one decision are a group, which ends as a whole.
    group: u64,
    /// Pages in flight, by group.
    in_flight: Vec<(u64, PageIndex)>,
    nr_calls: u64,
    submissions: Vec<Submission>,
    trace: Vec<TraceRow>,
}

impl Cache {
    fn new(case: &Case) -> Cache {
        let order_0 = |page| Page { folio: Folio { first: PageIndex(page), order: 0 }, marked: false, in_flight: None };
        let cached = case.cached_initially.iter().flat_map(|&(start, nr_pages)| start..start + nr_pages);
        Cache {
            size_bytes: case.file_bytes,
            limits: Limits {
                ra_pages: case.ra_pages,
                io_pages: case.io_pages,
                max_folio_order: case.max_folio_order,
                max_sane: u64::MAX,
            },
            pages: cached.map(|page| (page, order_0(page))).collect(),
            place: Place::default(),
            instant: false,
            group: 0,
            in_flight: Vec::new(),
            nr_calls: 0,
            submissions: Vec::new(),
            trace: Vec::new(),
        }
    }

    fn add(&mut self, folio: Folio, marked: bool) {
        let in_flight = (!self.instant).then_some(self.group);
        for page in folio.first.0..folio.first.0 + (1 << folio.order) {
            let before = self.pages.insert(page, Page { folio, marked, in_flight });
            assert!(before.is_none(), "page {page} was added twice");
            self.in_flight.extend(in_flight.map(|number| (number, PageIndex(page))));
        }
    }

    fn submit(&mut self, window: &Window, start: u64, nr_pages: u64, folios: Vec<(u64, u8)>) {
        if window.kind == RaKind::Single {
            self.nr_calls += 1;
        }
        self.submissions.push(Submission {
            place: self.place,
            call: self.nr_calls.saturating_sub(1),
            start,
            nr_pages,
            kind: window.kind,
            async_size: window.async_size,
            order: folios.iter().map(|folio| folio.1).max().unwrap_or(0),
            folios,
        });
    }

    /// Ends the group that reads `page`, and those before it.
    fn wait(&mut self, page: PageIndex) {
        let awaited = self.pages.get(&page.0).and_then(|page| page.in_flight);
        let awaited = awaited.expect("only pages in flight are waited for");
        self.end(|number| number <= awaited);
    }

    /// Ends everything.
    fn settle(&mut self) {
        self.end(|_| true);
    }

    fn end(&mut self, ends: impl Fn(u64) -> bool) {
        let pages = &mut self.pages;
        self.in_flight.retain(|(number, page)| {
            if let Some(page) = pages.get_mut(&page.0).filter(|_| ends(*number)) {
                page.in_flight = None;
            }
            !ends(*number)
        });
    }

    fn page(&self, page: PageIndex) -> Option<&Page> {
        self.pages.get(&page.0)
    }

    fn traced(&mut self, event: &'static str, fields: &[i64]) {
        self.trace.push(TraceRow { place: self.place, event, fields: fields.to_vec() });
    }

    fn runs(&self) -> Vec<(u64, u64)> {
        units::runs(self.pages.keys().copied())
    }
}

impl Mapping for Cache {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn congested(&self) -> bool {
        false
    }

    fn present(&self, page: PageIndex) -> bool {
        self.pages.contains_key(&page.0)
    }

    fn uptodate(&self, page: PageIndex) -> bool {
        self.page(page).is_some_and(|page| page.in_flight.is_none())
    }

    fn locked(&self, page: PageIndex) -> bool {
        self.page(page).is_some_and(|page| page.in_flight.is_some())
    }

    fn under_writeback(&self, _page: PageIndex) -> bool {
        false
    }

    fn marked(&self, page: PageIndex) -> bool {
        self.page(page).is_some_and(|page| page.marked)
    }

    fn folio(&self, page: PageIndex) -> Option<Folio> {
        self.page(page).map(|page| page.folio)
    }

    fn clean_run(&self, page: PageIndex, nr_pages: u64) -> u64 {
        let clean = |page| self.pages.get(&page).is_some_and(|page| !page.marked && page.in_flight.is_none());
        (0..nr_pages).take_while(|ahead| clean(page.0 + ahead)).count() as u64
    }

    fn clear_marker(&mut self, page: PageIndex) {
        let Some(&Page { folio, .. }) = self.page(page) else { return };
        for page in folio.first.0..folio.first.0 + (1 << folio.order) {
            if let Some(page) = self.pages.get_mut(&page) {
                page.marked = false;
            }
        }
    }

    fn read_pages(&mut self, window: &Window) -> u64 {
        let pages = window.start.0..window.start.0 + window.nr_pages;
        let absent: Vec<u64> = pages.filter(|page| !self.pages.contains_key(page)).collect();
        for run in absent.chunk_by(|before, after| before + 1 == *after) {
            for &page in run {
                let first = PageIndex(page);
                self.add(Folio { first, order: 0 }, window.marker == Some(first));
            }
            self.submit(window, run[0], run.len() as u64, Vec::new());
        }
        absent.len() as u64
    }

    fn read_folios(&mut self, window: &Window, folios: &[Folio]) {
        let (Some(first), Some(last)) = (folios.first(), folios.last()) else { return };
        for folio in folios {
            self.add(*folio, window.marker == Some(folio.first));
        }
        let large = folios.iter().filter(|folio| folio.order > 0).map(|folio| (folio.first.0, folio.order)).collect();
        self.submit(window, first.first.0, last.first.0 + (1 << last.order) - first.first.0, large);
    }

    fn decided(&mut self, decision: Decision) {
        match decision {
            Decision::Ordered { start, order, size, async_size, max } => {
                self.nr_calls += 1;
                let order = i64::from(order);
                self.traced("ra_order", &[start.0 as i64, order, size as i64, async_size as i64, max as i64]);
            }
            Decision::Unbounded { start, nr_pages, lookahead } => {
                self.nr_calls += 1;
                self.traced("unbounded", &[start.0 as i64, nr_pages as i64, lookahead as i64]);
            }
            Decision::Sync { fields } => self.traced("sync_ra", &fields),
            Decision::Async { fields } => self.traced("async_ra", &fields),
        }
    }
}

impl FaultCache for Cache {
    fn observed(&mut self, event: FaultEvent) {
        match event {
            FaultEvent::Fault { page } => self.traced("fault", &[page.0 as i64]),
            FaultEvent::MapPages { first, last } => self.traced("map", &[first.0 as i64, last.0 as i64]),
        }
    }
}
