//! Page faults on mapped files: the pages that a touch of an absent page reads and maps.
//!
//! A [`Fault`] is one fault in progress. It first looks whether the page can be mapped from the cache together with its
//! neighbours (fault-around). If not, it looks the page up. A page that is there moves the stream on if it carries the
//! read-ahead marker, and is waited for if it is still being read. A page that is not makes the fault read a window: by
//! the mapping's advice, or around the page; a counter of misses (`mmap_miss`) stops that where it does not help. After
//! every wait the fault restarts, because the kernel has let go of its lock.
//!
//! The kernels differ in constants and in single steps, so they share this machine: a kernel's file in the folder holds
//! its [`Rules`]. Read-ahead windows are decided by the open file's [`Readahead`] policy, which read(2) shares.
//!
//! Sources: mm/filemap.c (`filemap_fault`, `do_sync_mmap_readahead`, `do_async_mmap_readahead`, `filemap_map_pages`),
//! mm/memory.c (`do_read_fault`, `do_fault_around`, `finish_fault`).
//!
//! Known deviations: memory never fails; concurrent faults interleave only where a fault waits.

pub mod linux_2_6_38;
pub mod linux_2_6_6;
pub mod linux_4_4;
pub mod linux_5_4;
pub mod linux_6_1;
pub mod linux_6_12;
pub mod linux_6_18;
pub mod linux_6_6;

mod mapped;

pub use mapped::{MapAdvice, MappedFile, Protection, Pte, TABLE_PAGES, Vma};

use std::cell::Cell;

use crate::advice;
use crate::event::RaKind;
use crate::origin::{Entry, OptionSpec, Options};
use crate::readahead::{FaultWindow, Mapping, ReadRequest, Readahead, StepText, Token, Window};
use crate::units::{PAGE_BYTES, PageIndex};

/// A kernel's behaviour in a fault, where the kernels differ.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Pages of the aligned window that is mapped around a fault; 1 maps none.
    pub fault_around_pages: u64,
    /// Fault-around sets the accessed bit of every page it maps (x86), or only that of the page touched (arm64).
    pub around_is_access: bool,
    /// A folio that fits is mapped whole, also where it leaves the window.
    pub whole_folios: bool,
    /// Fault-around counts no page of folios that were evicted while active, when it takes hits off the misses.
    pub workingset_is_no_hit: bool,
    /// Fault-around counts only pages that it maps itself.
    pub counts_only_new: bool,
    /// Fault-around gives up in an unused page table if the first folio reaches the end of the file.
    pub end_needs_table: bool,
    /// Folios of 512 pages are mapped by one entry where they fit.
    pub huge_entries: bool,
    /// A page that is found takes one off the misses even while it is being read.
    pub locked_is_hit: bool,
    /// A page that is found does nothing if the file's read-ahead limit is 0.
    pub hits_need_limit: bool,
    /// The fault restarts after it has moved a stream on.
    pub retries_after_marker: bool,
    /// Only the first pass of a fault looks at markers, even if that pass was a hit.
    pub tried_after_any_retry: bool,
    /// Misses are counted up to here.
    pub most_misses: u32,
    /// More misses than this stop reading around.
    pub lots_of_misses: u32,
    /// Mappings that ask for huge pages get two folios of 512 pages.
    pub huge_windows: bool,
    /// Executable mappings have windows that start at the page and end with the mapping.
    pub exec_windows: bool,
    /// The last quarter of a window around a page is its asynchronous tail.
    pub around_has_tail: bool,
    /// A miss right after the page of the previous access counts as sequential, and faults set that page.
    pub tracks_position: bool,
    /// A window around a page is the device's limit and leaves the state of the open file alone; the policy sees faults
    /// in sequential mappings as reads of one page (until 2.6.30).
    pub ignores_state: bool,
    /// The same kernel's handling of advice.
    pub advice: advice::Rules,
}

impl Rules {
    /// Its steps where kernels differ, in words.
    pub fn steps(&self) -> Vec<StepText> {
        let around = self.fault_around_pages > 1;
        let pick = |first: bool, answers: [&'static str; 2]| if first { answers[0] } else { answers[1] };
        let yes_no = |name, yes: bool| (name, pick(yes, ["yes", "no"]));
        vec![
            yes_no("fault-around: maps cached pages around a fault", around),
            yes_no("fault-around: maps folios whole, also where they leave the window", around && self.whole_folios),
            yes_no("fault-around: maps folios of 512 pages by one entry", around && self.huge_entries),
            (
                "fault-around: takes off the misses",
                match (around, self.counts_only_new, self.workingset_is_no_hit) {
                    (false, ..) => "nothing",
                    (_, true, _) => "pages that it maps itself",
                    (_, _, true) => "each usable page, but none that was evicted while active",
                    _ => "each usable page",
                },
            ),
            yes_no(
                "fault-around: gives up at the end of the file in an unused page table",
                around && self.end_needs_table,
            ),
            (
                "a page that is found takes one off the misses",
                pick(self.locked_is_hit, ["even while it is being read", "unless it is being read"]),
            ),
            yes_no("a limit of 0 keeps pages that are found from counting", self.hits_need_limit),
            yes_no("a fault restarts after it has moved a stream on", self.retries_after_marker),
            (
                "a restarted fault looks at markers",
                pick(self.tried_after_any_retry, ["no more", "again, unless its page was missing"]),
            ),
            yes_no("misses are counted to 1000 at most", self.most_misses == 1000),
            yes_no("mappings that ask for huge pages get windows of 4 MiB", self.huge_windows),
            yes_no("executable mappings get windows that start at the page", self.exec_windows),
            yes_no("a window around a page has a marker", self.around_has_tail),
            yes_no("a fault right behind the last access counts as sequential", self.tracks_position),
            yes_no("a window around a page leaves the state of read(2) alone", self.ignores_state),
            yes_no("advice: NOREUSE is a flag of the open file", self.advice.noreuse_is_flag),
            yes_no("advice: DONTNEED to the end of the file drops its last, partial page", self.advice.drops_last_page),
            yes_no("advice: use through mappings with random advice keeps no page", self.advice.random_is_no_use),
            yes_no(
                "advice: readahead(2) of no bytes means the whole file at any offset",
                self.advice.readahead_0_is_all,
            ),
        ]
    }
}

/// The page cache of one file as faults see it.
pub trait FaultCache: Mapping {
    /// Whether the folio of the page was on the active list when it was evicted the last time.
    fn workingset(&self, _page: PageIndex) -> bool {
        false
    }

    /// Something happened that the kernel has a trace event for.
    fn observed(&mut self, _event: FaultEvent) {}
}

/// Trace events of a fault.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FaultEvent {
    /// The page was looked up (`mm_filemap_fault`).
    Fault {
        /// The page touched.
        page: PageIndex,
    },
    /// Pages of this window were mapped as far as they could be (`mm_filemap_map_pages`).
    MapPages {
        /// First page of the window.
        first: PageIndex,
        /// Last page of the window.
        last: PageIndex,
    },
}

/// The driver's next action before it calls [`Fault::step`] again.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FaultStep {
    /// Carry out the submissions made so far, then go on.
    Submitted,
    /// Sleep until this page is up to date (or gone).
    Wait(PageIndex),
    /// The fault has ended.
    Done(FaultEnd),
}

/// How a fault ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FaultEnd {
    /// The page is mapped, from the cache as it was.
    Minor,
    /// The page is mapped, after it had to be read.
    Major,
    /// The page is beyond the file, or beyond the mapping.
    BusError,
}

/// Misses of an open file that faults count (`mmap_miss`). Mappings of one open file share it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MmapMiss(Cell<u32>);

impl MmapMiss {
    /// How many there are.
    pub fn get(&self) -> u32 {
        self.0.get()
    }

    fn add(&self, most: u32) {
        self.0.set(self.0.get().max(self.0.get().saturating_add(1).min(most)));
    }

    fn take_back(&self, nr_hits: u32) {
        self.0.set(self.0.get().saturating_sub(nr_hits));
    }
}

/// The state that a fault works on.
pub struct FaultContext<'a> {
    /// The read-ahead state of the open file.
    pub ra: &'a mut dyn Readahead,
    pub misses: &'a MmapMiss,
    pub mapped: &'a mut MappedFile,
    /// The page cache of the file.
    pub cache: &'a mut dyn FaultCache,
}

/// Kind of the access.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load (or an instruction fetch).
    Read,
    /// A store.
    Write,
    /// `MADV_POPULATE_READ`, which faults from within the kernel.
    Populate,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// Try to map from the cache.
    Around,
    /// Look the page up.
    Look,
    /// The page was there, and its marker has been dealt with.
    Found { retry: bool },
    /// A window has been read.
    Missed,
    /// Wait for the page, then restart.
    Waiting,
    /// Map the page.
    Finish,
    /// It has ended like this.
    Ended(FaultEnd),
}

/// A fault in progress.
#[derive(Copy, Clone, Debug)]
pub struct Fault {
    page: PageIndex,
    access: Access,
    tried: bool,
    major: bool,
    stage: Stage,
}

impl Fault {
    /// The fault that a touch of `page` takes; none if it is mapped in a way that allows the access.
    pub fn of_touch(mapped: &mut MappedFile, page: PageIndex, access: Access) -> Option<Fault> {
        match mapped.access(page, access == Access::Write) {
            true => None,
            false => Some(Fault { page, access, tried: false, major: false, stage: Stage::Around }),
        }
    }

    /// Goes on until something must be done outside.
    pub fn step(&mut self, rules: &Rules, context: &mut FaultContext) -> FaultStep {
        loop {
            match self.stage {
                Stage::Around => {
                    self.stage = Stage::Look;
                    let Some(vma) = context.mapped.vma(self.page) else {
                        self.stage = Stage::Ended(FaultEnd::BusError);
                        continue;
                    };
                    // A private page that is written is copied from the cache page, mapped already or not.
                    if self.access == Access::Write && context.mapped.is_mapped(self.page) {
                        self.stage = Stage::Finish;
                    } else if self.access != Access::Write && fault_around(rules, context, &vma, self.page) {
                        self.end();
                    }
                }
                Stage::Look => {
                    if let Some(step) = self.look(rules, context) {
                        return step;
                    }
                }
                Stage::Found { retry } => {
                    if context.cache.present(self.page) && !context.cache.uptodate(self.page) {
                        // The first pass lets go of its lock to wait, so it has to look again; a later one keeps it.
                        self.stage = Stage::Found { retry: retry || !self.tried };
                        return FaultStep::Wait(self.page);
                    }
                    if retry || !context.cache.present(self.page) {
                        self.tried |= rules.tried_after_any_retry || self.access == Access::Populate;
                        self.stage = Stage::Around;
                    } else {
                        self.stage = Stage::Finish;
                    }
                }
                Stage::Missed => {
                    self.stage = Stage::Waiting;
                    if !context.cache.present(self.page) {
                        context.cache.read_pages(&Window {
                            kind: RaKind::Single,
                            start: self.page,
                            nr_pages: 1,
                            async_size: None,
                            marker: None,
                        });
                        return FaultStep::Submitted;
                    }
                }
                Stage::Waiting => {
                    if context.cache.present(self.page) && !context.cache.uptodate(self.page) {
                        return FaultStep::Wait(self.page);
                    }
                    self.tried = true;
                    self.stage = Stage::Around;
                }
                Stage::Finish => {
                    finish_fault(rules, context, self.page, self.access);
                    self.end();
                }
                Stage::Ended(end) => return FaultStep::Done(end),
            }
        }
    }

    fn end(&mut self) {
        self.stage = Stage::Ended(if self.major { FaultEnd::Major } else { FaultEnd::Minor });
    }

    /// `filemap_fault` up to where it may wait.
    fn look(&mut self, rules: &Rules, context: &mut FaultContext) -> Option<FaultStep> {
        let page = self.page;
        if page.0 >= context.cache.size_bytes().div_ceil(PAGE_BYTES) {
            self.stage = Stage::Ended(FaultEnd::BusError);
            return None;
        }
        context.cache.observed(FaultEvent::Fault { page });
        let vma = context.mapped.vma(page).expect("looked up when the pass began");
        if rules.ignores_state && vma.advice == MapAdvice::Sequential && !self.tried {
            let was_present = context.cache.present(page);
            tell(context, page);
            self.major = !was_present;
            self.stage = if context.cache.present(page) { Stage::Found { retry: false } } else { Stage::Missed };
            return Some(FaultStep::Submitted);
        }
        if !context.cache.present(page) {
            (self.major, self.stage) = (true, Stage::Missed);
            read_window(rules, context, &vma, page);
            return Some(FaultStep::Submitted);
        }
        self.stage = Stage::Found { retry: false };
        let max = context.ra.max_pages();
        if self.tried || vma.advice == MapAdvice::Random || (rules.hits_need_limit && max == 0) {
            return None;
        }
        if context.cache.uptodate(page) || rules.locked_is_hit {
            context.misses.take_back(1);
        }
        if context.cache.marked(page) {
            let FaultContext { ra, cache, .. } = context;
            ra.on_marker(Token::default(), *cache, page, max);
            self.stage = Stage::Found { retry: rules.retries_after_marker };
            return Some(FaultStep::Submitted);
        }
        None
    }
}

/// Tells the policy of a touch as if it were a read of the page.
fn tell(context: &mut FaultContext, page: PageIndex) {
    let FaultContext { ra, cache, .. } = context;
    let cache: &mut dyn Mapping = *cache;
    let request = ReadRequest { offset: page.0 * PAGE_BYTES, len_bytes: PAGE_BYTES };
    let call = ra.begin(cache, &request);
    ra.on_page(call, cache, page, PAGE_BYTES);
    if !cache.present(page) {
        ra.on_miss(call, cache, page, 1);
    }
    ra.copied(call, request.offset + PAGE_BYTES);
    ra.end(call, request.offset + PAGE_BYTES);
}

/// Pages of a window for mappings that ask for huge pages: two folios, or one if access is random.
const HUGE_ORDER: u8 = 9;

/// The window that a miss reads, if any (`do_sync_mmap_readahead`).
fn read_window(rules: &Rules, context: &mut FaultContext, vma: &Vma, page: PageIndex) {
    let FaultContext { ra, misses, cache, .. } = context;
    let cache: &mut dyn Mapping = *cache;
    let max = if rules.ignores_state { cache.limits().ra_pages } else { ra.max_pages() };
    let is_random = vma.advice == MapAdvice::Random;
    if rules.huge_windows && vma.huge {
        let folio = 1 << HUGE_ORDER;
        let window = FaultWindow {
            kind: RaKind::Huge,
            start: PageIndex(page.0 & !(folio - 1)),
            size: if is_random { folio } else { 2 * folio },
            async_size: folio,
            order: HUGE_ORDER,
            keeps_start: true,
        };
        return ra.fault_window(cache, &window);
    }
    let is_exec = rules.exec_windows && vma.exec;
    if (is_random && !is_exec) || max == 0 {
        return;
    }
    let follows = rules.tracks_position && page.0.wrapping_sub(1) == ra.prev_page();
    if vma.advice == MapAdvice::Sequential || follows {
        return ra.on_miss(Token::default(), cache, page, max);
    }
    misses.add(rules.most_misses);
    if misses.get() > rules.lots_of_misses {
        return;
    }
    let window =
        FaultWindow { kind: RaKind::Around, start: page, size: max, async_size: 0, order: 0, keeps_start: false };
    let window = if is_exec {
        let size = (page.0 + max).min(vma.end.0) - page.0;
        FaultWindow { kind: RaKind::Exec, size, ..window }
    } else {
        let size = max.min(cache.limits().max_sane);
        let async_size = if rules.around_has_tail { size / 4 } else { 0 };
        FaultWindow { start: PageIndex(page.0.saturating_sub(size / 2)), size, async_size, ..window }
    };
    if rules.ignores_state {
        let last = cache.size_bytes().div_ceil(PAGE_BYTES);
        let nr_pages = window.size.min(last - window.start.0);
        cache.read_pages(&Window { kind: window.kind, start: window.start, nr_pages, async_size: None, marker: None });
        return;
    }
    ra.fault_window(cache, &window);
}

/// Maps what the cache has around `page` (`do_fault_around`, `filemap_map_pages`); whether `page` is mapped now.
fn fault_around(rules: &Rules, context: &mut FaultContext, vma: &Vma, page: PageIndex) -> bool {
    let FaultContext { misses, mapped, cache, .. } = context;
    let Some(last_page) = cache.size_bytes().checked_sub(1).map(|last| last / PAGE_BYTES) else { return false };
    if rules.fault_around_pages <= 1 {
        return false;
    }
    let (first, last) = mapped.around(vma, page, rules.fault_around_pages);
    let usable = |cache: &dyn FaultCache, page| cache.uptodate(PageIndex(page)) && !cache.marked(PageIndex(page));
    let mut at = first;
    let Some(start) = (first..=last).find(|&at| usable(*cache, at)) else { return false };
    let folio = cache.folio(PageIndex(start)).expect("an up-to-date page is in a folio");
    let end = folio.first.0 + (1 << folio.order);
    let table = mapped.table_of(page);
    if !rules.end_needs_table || end <= last_page {
        let huge = folio.order == HUGE_ORDER && rules.huge_entries;
        if huge && !mapped.has_table(table) && mapped.map_huge(vma, folio.first) {
            return true;
        }
        mapped.add_table(table);
    } else if !mapped.has_table(table) {
        return false;
    }
    let last = last.min(last_page);
    let mut nr_hits = 0;
    while at <= last {
        if !usable(*cache, at) {
            at += 1;
            continue;
        }
        let folio = cache.folio(PageIndex(at)).expect("an up-to-date page is in a folio");
        let folio_end = folio.first.0 + (1 << folio.order);
        let mut range = folio.first.0.max(first)..folio_end.min(last + 1);
        if rules.whole_folios && folio_end <= last_page && mapped.fits(vma, folio.first, folio_end) {
            range = folio.first.0..folio_end;
        }
        let is_hit = !(rules.workingset_is_no_hit && cache.workingset(PageIndex(at)));
        for each in range {
            let accessed = rules.around_is_access || each == page.0;
            let new = mapped.map(PageIndex(each), accessed);
            nr_hits += u32::from(is_hit && (new || !rules.counts_only_new));
        }
        at = folio_end;
    }
    cache.observed(FaultEvent::MapPages { first: PageIndex(first), last: PageIndex(last) });
    misses.take_back(nr_hits);
    mapped.is_mapped(page)
}

/// Maps the page that was looked up (`finish_fault`).
fn finish_fault(rules: &Rules, context: &mut FaultContext, page: PageIndex, access: Access) {
    let FaultContext { ra, mapped, cache, .. } = context;
    let vma = mapped.vma(page).expect("looked up when the pass began");
    if rules.tracks_position {
        ra.copied(Token::default(), (page.0 + 1) * PAGE_BYTES);
    }
    mapped.add_table(mapped.table_of(page));
    if access == Access::Write && !mapped.protection().shared {
        mapped.map_copy(page);
        return;
    }
    let folio = cache.folio(page).expect("a page that was waited for is there");
    let pages = folio.first.0..folio.first.0 + (1 << folio.order);
    let whole = rules.whole_folios
        && (pages.end - 1) * PAGE_BYTES < cache.size_bytes()
        && mapped.fits(&vma, folio.first, pages.end)
        && pages.clone().all(|page| !mapped.is_mapped(PageIndex(page)));
    for each in if whole { pages } else { page.0..page.0 + 1 } {
        mapped.map(PageIndex(each), rules.around_is_access || each == page.0);
    }
    if access == Access::Write {
        mapped.access(page, true);
    }
}

/// Makes the rules of a kernel.
pub type Build = fn(&Options) -> Rules;

/// Every kernel's fault, by age.
pub const FAULTS: &[&Entry<Build>] = &[
    &linux_2_6_6::ENTRY,
    &linux_2_6_38::ENTRY,
    &linux_4_4::ENTRY,
    &linux_5_4::ENTRY,
    &linux_6_1::ENTRY,
    &linux_6_6::ENTRY,
    &linux_6_6::ENTRY_6_8,
    &linux_6_6::ENTRY_6_11,
    &linux_6_12::ENTRY,
    &linux_6_18::ENTRY,
];

/// The tunables since fault-around exists.
const OPTIONS: &[OptionSpec] = &[
    OptionSpec::number(
        "fault_around_kb",
        64,
        (4, 2048),
        "window mapped around a fault, a power of two; 4 maps one page (fault_around_bytes, debugfs)",
    ),
    OptionSpec::switch(
        "fault_around_accessed",
        true,
        "pages mapped around a fault look accessed (on for x86, off for arm64)",
    ),
];

/// Takes over the tunables of [`OPTIONS`]. The kernel rounds its window down to a power of two, so this does too.
fn tuned(options: &Options, rules: Rules) -> Rules {
    let pages = (options.unsigned("fault_around_kb") * 1024 / PAGE_BYTES).max(1);
    Rules { fault_around_pages: 1 << pages.ilog2(), around_is_access: options.is_on("fault_around_accessed"), ..rules }
}
