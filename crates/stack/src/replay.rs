//! Replays recorded inputs through a read-ahead policy with instant I/O.
//!
//! A [`Case`] describes a file, its cache and its readers; [`replay`] drives [`ReadLoop`] and the policy
//! over them and yields the submissions, the state after every read, and the cached pages in the end. Nothing is timed:
//! a page is up to date as soon as it is submitted, except in 2.4's two models of when I/O ends.

use std::collections::BTreeMap;

use crate::event::{RaClose, RaKind};
use crate::origin::{Entry, Options};
use crate::read_loop::{LoopStyle, ReadLoop, Step};
use crate::readahead::{Advice, Build, Folio, Limits, Mapping, ReadRequest, Readahead, Window};
use crate::units::{self, PAGE_BYTES, PageIndex};

/// When I/O ends.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum IoModel {
    /// At once.
    #[default]
    Instant,
    /// When someone waits: everything submitted up to the page waited for, in order; nothing else.
    Fifo,
    /// When someone waits, and at the end of every call: everything submitted so far.
    Batch,
}

/// One read of a case.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// First byte.
    pub offset: u64,
    /// Bytes asked for.
    pub len_bytes: u64,
    /// Number of the open file.
    pub fd: u64,
}

/// Something that happens between reads.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// These pages leave the cache, except folios that are only partly among them and pages under I/O.
    Evict {
        /// First page.
        start: u64,
        /// How many.
        nr_pages: u64,
    },
    /// The program advises about an open file.
    Advise {
        /// Number of the open file.
        fd: u64,
        advice: Advice,
    },
    /// The read side of the queue becomes congested, or ceases to be.
    Congested(bool),
}

/// Recorded inputs.
#[derive(Clone, Debug)]
pub struct Case {
    /// Size of the file.
    pub file_bytes: u64,
    /// Read-ahead limit of the device.
    pub ra_pages: u64,
    /// Largest request of the device.
    pub io_pages: u64,
    /// Largest folio order of the mapping.
    pub max_folio_order: u8,
    /// When I/O ends.
    pub io_model: IoModel,
    /// The reads in the order of their numbers.
    pub reads: Vec<Read>,
    /// Numbers of reads that run at the same time, one thread each; threads take turns at scheduling points.
    pub groups: Vec<Vec<usize>>,
    /// Runs of pages cached from the start: first page, pages.
    pub cached_initially: Vec<(u64, u64)>,
    /// Events before the read of that number.
    pub happenings: Vec<(usize, Happening)>,
}

impl Default for Case {
    fn default() -> Case {
        Case {
            file_bytes: 0,
            ra_pages: 32,
            io_pages: 0,
            max_folio_order: 0,
            io_model: IoModel::Instant,
            reads: Vec::new(),
            groups: Vec::new(),
            cached_initially: Vec::new(),
            happenings: Vec::new(),
        }
    }
}

/// A run of pages that was submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// For which read.
    pub read: usize,
    /// Number of the submission; runs with the same number went together. In 2.4, pages read so far when the end of
    /// the run was noticed.
    pub call: u64,
    /// First page.
    pub start: u64,
    /// How many.
    pub nr_pages: u64,
    /// Why.
    pub kind: RaKind,
    /// The lookahead argument, where the kernel has one.
    pub async_size: Option<u64>,
    /// The page that carries the marker.
    pub marker: Option<u64>,
    /// Largest folio order; none in kernels without folios.
    pub order: Option<u8>,
    /// First page and order of the folios larger than a page.
    pub folios: Vec<(u64, u8)>,
}

/// Results of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Everything submitted, in order.
    pub submissions: Vec<Submission>,
    /// The state of its open file after every read (after the whole group for reads of a group).
    pub trace: Vec<Vec<i64>>,
    /// The state of every open file in the end, by number.
    pub final_state: BTreeMap<u64, Vec<i64>>,
    /// Runs of cached pages in the end: first page, pages.
    pub cached_runs: Vec<(u64, u64)>,
    /// Bytes that each read copied.
    pub copied: Vec<u64>,
    /// Why read-ahead turned itself off, each time it did.
    pub closed: Vec<RaClose>,
    /// How often it turned itself on again.
    pub nr_reopened: u64,
}

/// Replays `case` through the policy `entry` with these options.
pub fn replay(entry: &Entry<Build>, options: &Options, case: &Case) -> Replayed {
    let mut replayer = Replayer {
        cache: Cache::new(case),
        build: &|limits| (entry.build)(options, limits),
        files: BTreeMap::new(),
        trace: vec![Vec::new(); case.reads.len()],
        copied: vec![0; case.reads.len()],
    };
    let mut happenings = case.happenings.iter().peekable();
    let mut done = vec![false; case.reads.len()];
    for number in 0..case.reads.len() {
        while let Some((_, happening)) = happenings.next_if(|(before, _)| *before <= number) {
            replayer.happen(number, happening);
        }
        if done[number] {
            continue;
        }
        let alone = [number];
        let group = case.groups.iter().map(Vec::as_slice).find(|group| group.contains(&number)).unwrap_or(&alone);
        replayer.run(case, group);
        group.iter().for_each(|&member| done[member] = true);
    }
    for (before, happening) in happenings {
        replayer.happen(*before, happening);
    }
    let Replayer { cache, files, trace, copied, .. } = replayer;
    Replayed {
        cached_runs: cache.runs(),
        submissions: cache.submissions,
        trace,
        final_state: files.iter().map(|(&fd, ra)| (fd, ra.trace())).collect(),
        copied,
        closed: cache.closed,
        nr_reopened: cache.nr_reopened,
    }
}

struct Replayer<'a> {
    cache: Cache,
    build: &'a dyn Fn(&Limits) -> Box<dyn Readahead>,
    files: BTreeMap<u64, Box<dyn Readahead>>,
    trace: Vec<Vec<i64>>,
    copied: Vec<u64>,
}

impl Replayer<'_> {
    /// The open file `fd`, and the cache. It is opened on first use.
    fn open(&mut self, fd: u64) -> (&mut dyn Readahead, &mut Cache) {
        let limits = self.cache.limits;
        let ra = self.files.entry(fd).or_insert_with(|| (self.build)(&limits));
        self.cache.style = Some(ra.style());
        (ra.as_mut(), &mut self.cache)
    }

    fn happen(&mut self, number: usize, happening: &Happening) {
        self.cache.read = number;
        match *happening {
            Happening::Evict { start, nr_pages } => self.cache.evict(start, nr_pages),
            Happening::Congested(congested) => self.cache.congested = congested,
            Happening::Advise { fd, advice } => {
                let (ra, cache) = self.open(fd);
                ra.advise(cache, advice);
            }
        }
    }

    /// Runs the reads of a group, a turn each until all have ended.
    fn run(&mut self, case: &Case, group: &[usize]) {
        let mut running: Vec<(usize, ReadLoop)> = Vec::new();
        for &number in group {
            let Read { offset, len_bytes, fd } = case.reads[number];
            let (ra, _) = self.open(fd);
            running.push((number, ReadLoop::new(ra, ReadRequest { offset, len_bytes }, group.len() > 1)));
        }
        while !running.is_empty() {
            running.retain_mut(|(number, read)| !self.turn(case.reads[*number].fd, *number, read));
        }
        for &number in group {
            self.trace[number] = self.files[&case.reads[number].fd].trace();
        }
    }

    /// Goes on to the next scheduling point; whether the read has ended.
    fn turn(&mut self, fd: u64, number: usize, read: &mut ReadLoop) -> bool {
        self.cache.read = number;
        let (ra, cache) = self.open(fd);
        let mut copied = 0;
        let ended = loop {
            match read.step(ra, cache) {
                Step::SchedulingPoint => break false,
                Step::Submitted => {}
                Step::Wait(page) => cache.wait(page),
                Step::Copy { page, nr_pages, len_bytes } => {
                    for page in page.0..page.0 + nr_pages {
                        assert!(cache.uptodate(PageIndex(page)), "page {page} copied before it was read");
                    }
                    copied += len_bytes;
                }
                Step::Done { .. } => {
                    cache.call_ended();
                    break true;
                }
            }
        };
        self.copied[number] += copied;
        ended
    }
}

/// A cached page.
#[derive(Copy, Clone, Debug)]
struct Page {
    folio: Folio,
    marked: bool,
    in_flight: bool,
}

/// The page cache of the replayed file.
struct Cache {
    size_bytes: u64,
    limits: Limits,
    io_model: IoModel,
    style: Option<LoopStyle>,
    congested: bool,
    pages: BTreeMap<u64, Page>,
    /// Pages being read, in the order of submission.
    in_flight: Vec<u64>,
    /// The read now being replayed.
    read: usize,
    nr_calls: u64,
    submissions: Vec<Submission>,
    closed: Vec<RaClose>,
    nr_reopened: u64,
}

impl Cache {
    fn new(case: &Case) -> Cache {
        let order_0 =
            |page| Page { folio: Folio { first: PageIndex(page), order: 0 }, marked: false, in_flight: false };
        let cached = case.cached_initially.iter().flat_map(|&(start, nr_pages)| start..start + nr_pages);
        Cache {
            size_bytes: case.file_bytes,
            limits: Limits {
                ra_pages: case.ra_pages,
                io_pages: case.io_pages,
                max_folio_order: case.max_folio_order,
                max_sane: u64::MAX,
            },
            io_model: case.io_model,
            style: None,
            congested: false,
            pages: cached.map(|page| (page, order_0(page))).collect(),
            in_flight: Vec::new(),
            read: 0,
            nr_calls: 0,
            submissions: Vec::new(),
            closed: Vec::new(),
            nr_reopened: 0,
        }
    }

    fn page(&self, page: PageIndex) -> Option<&Page> {
        self.pages.get(&page.0)
    }

    /// Whether the kernel submits page by page (2.4).
    fn page_by_page(&self) -> bool {
        self.style == Some(LoopStyle::Linux24)
    }

    /// Adds a folio and starts its I/O.
    fn add(&mut self, folio: Folio, marked: bool, needs_io: bool) {
        let in_flight = needs_io && self.io_model != IoModel::Instant;
        for page in folio.first.0..folio.first.0 + (1 << folio.order) {
            let before = self.pages.insert(page, Page { folio, marked, in_flight });
            assert!(before.is_none(), "page {page} was added twice");
            if in_flight {
                self.in_flight.push(page);
            }
        }
    }

    fn submit(&mut self, window: &Window, call: u64, start: u64, nr_pages: u64, folios: Vec<(u64, u8)>, order: u8) {
        let marker = window.marker.map(|marker| marker.0).filter(|marker| (start..start + nr_pages).contains(marker));
        self.submissions.push(Submission {
            read: self.read,
            call,
            start,
            nr_pages,
            kind: window.kind,
            async_size: window.async_size,
            marker,
            order: matches!(self.style, Some(LoopStyle::Batch(rules)) if !rules.late_size).then_some(order),
            folios,
        });
    }

    /// Someone waits for `page`.
    fn wait(&mut self, page: PageIndex) {
        let nr_done = match self.io_model {
            IoModel::Fifo => {
                // A folio is up to date when its last page is.
                let last = self.page(page).map_or(page.0, |page| page.folio.first.0 + (1 << page.folio.order) - 1);
                self.in_flight.iter().position(|&other| other == last).map_or(0, |index| index + 1)
            }
            IoModel::Instant | IoModel::Batch => self.in_flight.len(),
        };
        assert!(nr_done > 0, "waiting for page {} which is not being read", page.0);
        self.complete(nr_done);
    }

    fn call_ended(&mut self) {
        if self.io_model == IoModel::Batch {
            self.complete(self.in_flight.len());
        }
    }

    fn complete(&mut self, nr_pages: usize) {
        for page in self.in_flight.drain(..nr_pages) {
            if let Some(page) = self.pages.get_mut(&page) {
                page.in_flight = false;
            }
        }
    }

    fn evict(&mut self, start: u64, nr_pages: u64) {
        let end = start.saturating_add(nr_pages);
        let gone: Vec<u64> = self
            .pages
            .range(start..end)
            .filter_map(|(&index, page)| {
                let Folio { first, order } = page.folio;
                let whole = first.0 >= start && first.0 + (1 << order) <= end;
                (whole && !page.in_flight).then_some(index)
            })
            .collect();
        for page in gone {
            self.pages.remove(&page);
        }
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
        self.congested
    }

    fn present(&self, page: PageIndex) -> bool {
        self.pages.contains_key(&page.0)
    }

    fn uptodate(&self, page: PageIndex) -> bool {
        self.page(page).is_some_and(|page| !page.in_flight)
    }

    fn locked(&self, page: PageIndex) -> bool {
        self.page(page).is_some_and(|page| page.in_flight)
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
        let clean = |page| self.pages.get(&page).is_some_and(|page| !page.marked && !page.in_flight);
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
        let absent: Vec<u64> =
            (window.start.0..window.start.0 + window.nr_pages).filter(|page| !self.pages.contains_key(page)).collect();
        if absent.is_empty() {
            return 0;
        }
        if !self.page_by_page() {
            self.nr_calls += 1;
        }
        // 2.4 adds the page at the end of a file whose size is a multiple of the page size, and reads nothing for it.
        let has_data = |page: u64| !self.page_by_page() || page * PAGE_BYTES < self.size_bytes;
        let with_data: Vec<u64> = absent.iter().copied().filter(|&page| has_data(page)).collect();
        for &page in &absent {
            let folio = Folio { first: PageIndex(page), order: 0 };
            let needs_io = with_data.last().is_some_and(|&last| page <= last);
            self.add(folio, window.marker == Some(folio.first), needs_io);
        }
        for run in with_data.chunk_by(|before, after| before + 1 == *after) {
            let mut nr_calls = self.nr_calls;
            if self.page_by_page() {
                // The recorder noticed the end of a run when it had counted the first page after it.
                self.nr_calls += run.len() as u64;
                nr_calls = self.nr_calls + u64::from(run.last() != with_data.last());
            }
            self.submit(window, nr_calls, run[0], run.len() as u64, Vec::new(), 0);
        }
        absent.len() as u64
    }

    fn read_folios(&mut self, window: &Window, folios: &[Folio]) {
        let (Some(first), Some(last)) = (folios.first(), folios.last()) else { return };
        self.nr_calls += 1;
        for folio in folios {
            self.add(*folio, window.marker == Some(folio.first), true);
        }
        let large = folios.iter().filter(|folio| folio.order > 0).map(|folio| (folio.first.0, folio.order)).collect();
        let order = folios.iter().map(|folio| folio.order).max().unwrap_or(0);
        let nr_pages = last.first.0 + (1 << last.order) - first.first.0;
        self.submit(window, self.nr_calls, first.first.0, nr_pages, large, order);
    }

    fn closed(&mut self, cause: RaClose) {
        self.closed.push(cause);
    }

    fn reopened(&mut self) {
        self.nr_reopened += 1;
    }
}
