//! The page cache of one file for the models, and what they decide about it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

use iowhy_stack::fault::FaultCache;
use iowhy_stack::read_loop::LoopStyle;
use iowhy_stack::readahead::{
    Advice, Decision, FaultWindow, Folio, Limits, Mapping, ReadRequest, Readahead, Token, Window,
};
use iowhy_stack::trace::RaInput;
use iowhy_stack::units::{PAGE_BYTES, PageIndex, SECTOR_BYTES};

use iowhy_trace::recorded::{Line, Recorded, What};

/// A cached folio.
#[derive(Copy, Clone, Debug)]
struct Cached {
    order: u8,
    marked: bool,
}

/// A model's decisions, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Decisions {
    /// Calls of the kernel's functions and folios added, as the kernel's trace shows them.
    pub(super) lines: Vec<What>,
    /// Runs of pages submitted in one go: first page, pages, folios.
    pub(super) submitted: Vec<(u64, u64, u64)>,
}

/// The page cache. All I/O is over at once: decisions depend on the cached pages only.
pub(super) struct Pages {
    file_bytes: u64,
    limits: Limits,
    folios: BTreeMap<u64, Cached>,
    /// Where the last look-up ended.
    last: Cell<Option<(u64, u8)>>,
    /// The model's decisions since the last call.
    pub(super) told: Decisions,
    /// Other tasks' additions after the model has decided on its next window.
    late: Vec<What>,
    /// Pages added in this way.
    came_late: Vec<u64>,
    /// Size and tail that another task has written by the time at which the rest of a window is computed.
    rest: Option<(u64, u64)>,
    /// That rest has been read instead of the model's.
    rest_read: bool,
}

impl Pages {
    pub(super) fn new(recorded: &Recorded) -> Pages {
        Pages {
            file_bytes: recorded.file_bytes,
            limits: Limits {
                ra_pages: recorded.ra_pages,
                io_pages: recorded.io_pages,
                max_folio_order: recorded.max_folio_order,
                max_sane: u64::MAX,
            },
            folios: BTreeMap::new(),
            last: Cell::new(None),
            told: Decisions::default(),
            late: Vec::new(),
            came_late: Vec::new(),
            rest: None,
            rest_read: false,
        }
    }

    /// Others add these folios between the next decision and the first page that is added for it.
    pub(super) fn others_meanwhile(&mut self, late: &[What]) {
        self.late = late.to_vec();
    }

    /// The rest of a window whose folios end early is computed from this size and tail: `page_cache_ra_order` reads
    /// them again, and another task may have written them.
    pub(super) fn rest_is(&mut self, rest: Option<(u64, u64)>) {
        self.rest = rest;
    }

    /// The model's decisions since the last call.
    pub(super) fn take(&mut self) -> Decisions {
        (self.rest, self.rest_read) = (None, false);
        std::mem::take(&mut self.told)
    }

    /// Applies another task's change to the cache, if possible, and returns its reversal.
    pub(super) fn change(&mut self, what: What) -> Option<What> {
        let opposite = match what {
            What::Add { index, order } if !self.any(index, order) => What::Remove { index, order },
            What::Remove { index, order } if self.find(PageIndex(index)).is_some() => What::Add { index, order },
            _ => return None,
        };
        self.apply(what);
        Some(opposite)
    }

    /// Whether any page of the folio is present.
    fn any(&self, index: u64, order: u8) -> bool {
        (index..index + (1 << order)).any(|page| self.find(PageIndex(page)).is_some())
    }

    /// Reads the rest of a window by the other task's size and tail (`do_page_cache_ra`); false if it is none.
    fn read_rest(&mut self, at: PageIndex) -> bool {
        let Some((size, lookahead)) = self.rest else { return false };
        let ordered = self.told.lines.iter().find_map(|what| match *what {
            What::Order { index, .. } => Some(index),
            _ => None,
        });
        let Some(start) = ordered else { return false };
        self.rest_read = true;
        let left = size.saturating_sub(at.0 - start).min(self.file_bytes.div_ceil(PAGE_BYTES).saturating_sub(at.0));
        if left > 0 {
            self.told.lines.push(What::Unbounded { index: at.0, nr_pages: left, lookahead });
            self.add_absent(at.0..at.0 + left, None);
        }
        true
    }

    /// Adds every absent page of the range by itself.
    fn add_absent(&mut self, pages: Range<u64>, marker: Option<PageIndex>) -> u64 {
        let absent: Vec<u64> = pages.filter(|page| !self.present(PageIndex(*page))).collect();
        for &page in &absent {
            let folio = Folio { first: PageIndex(page), order: 0 };
            self.add(folio, marker == Some(folio.first));
        }
        for run in absent.chunk_by(|before, after| before + 1 == *after) {
            self.told.submitted.push((run[0], run.len() as u64, run.len() as u64));
        }
        absent.len() as u64
    }

    /// Applies another task's change to the cache.
    pub(super) fn apply(&mut self, what: What) {
        match what {
            What::Add { index, order } => self.insert(Folio { first: PageIndex(index), order }, false),
            What::Remove { index, .. } => {
                self.last.set(None);
                self.folios.remove(&index);
            }
            _ => {}
        }
    }

    /// Takes back what the model added, and what others did meanwhile.
    pub(super) fn undo(&mut self, told: &Decisions) {
        self.last.set(None);
        self.late.clear();
        for index in std::mem::take(&mut self.came_late) {
            self.folios.remove(&index);
        }
        for what in &told.lines {
            if let What::Add { index, .. } = what {
                self.folios.remove(index);
            }
        }
    }

    /// Sets the cache to the trace's contents; markers stay on folios that stay.
    pub(super) fn is_to_be(&mut self, actual: &Pages) {
        self.last.set(None);
        let mut folios = actual.folios.clone();
        for (first, cached) in &mut folios {
            cached.marked = self.folios.get(first).is_some_and(|old| old.marked && old.order == cached.order);
        }
        self.folios = folios;
    }

    fn insert(&mut self, folio: Folio, marked: bool) {
        self.last.set(None);
        self.folios.insert(folio.first.0, Cached { order: folio.order, marked });
    }

    fn find(&self, page: PageIndex) -> Option<(u64, Cached)> {
        let (first, cached) = self.folios.range(..=page.0).next_back()?;
        (page.0 < first + (1 << cached.order)).then_some((*first, *cached))
    }

    fn add(&mut self, folio: Folio, marked: bool) {
        self.told.lines.push(What::Add { index: folio.first.0, order: folio.order });
        self.insert(folio, marked);
    }
}

impl Mapping for Pages {
    fn size_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn congested(&self) -> bool {
        false
    }

    fn present(&self, page: PageIndex) -> bool {
        if let Some((first, order)) = self.last.get()
            && (first..first + (1 << order)).contains(&page.0)
        {
            return true;
        }
        let found = self.find(page);
        self.last.set(found.map(|(first, cached)| (first, cached.order)));
        found.is_some()
    }

    fn uptodate(&self, page: PageIndex) -> bool {
        self.present(page)
    }

    fn locked(&self, _page: PageIndex) -> bool {
        false
    }

    fn under_writeback(&self, _page: PageIndex) -> bool {
        false
    }

    fn marked(&self, page: PageIndex) -> bool {
        self.find(page).is_some_and(|(_, cached)| cached.marked)
    }

    fn folio(&self, page: PageIndex) -> Option<Folio> {
        self.find(page).map(|(first, cached)| Folio { first: PageIndex(first), order: cached.order })
    }

    fn clean_run(&self, page: PageIndex, nr_pages: u64) -> u64 {
        let mut at = page.0;
        let end = page.0.saturating_add(nr_pages);
        while at < end {
            match self.find(PageIndex(at)) {
                Some((first, cached)) if !cached.marked => at = first + (1 << cached.order),
                _ => break,
            }
        }
        at.min(end) - page.0
    }

    fn clear_marker(&mut self, page: PageIndex) {
        if let Some((first, _)) = self.find(page)
            && let Some(cached) = self.folios.get_mut(&first)
        {
            cached.marked = false;
        }
    }

    fn read_pages(&mut self, window: &Window) -> u64 {
        if self.rest_read {
            return 0;
        }
        self.add_absent(window.start.0..window.start.0.saturating_add(window.nr_pages), window.marker)
    }

    fn read_folios(&mut self, window: &Window, folios: &[Folio]) {
        let (Some(first), Some(last)) = (folios.first(), folios.last()) else { return };
        for folio in folios {
            self.add(*folio, window.marker == Some(folio.first));
        }
        let nr_pages = last.first.0 + (1 << last.order) - first.first.0;
        self.told.submitted.push((first.first.0, nr_pages, folios.len() as u64));
    }

    fn decided(&mut self, decision: Decision) {
        if let Decision::Unbounded { start, .. } = decision
            && self.read_rest(start)
        {
            return;
        }
        self.told.lines.push(match decision {
            Decision::Ordered { start, order, size, async_size, max } => What::Order {
                index: start.0,
                order: u32::from(order),
                size: half(size),
                async_size: half(async_size),
                ra_pages: half(max),
            },
            Decision::Unbounded { start, nr_pages, lookahead } => {
                What::Unbounded { index: start.0, nr_pages, lookahead }
            }
            Decision::Sync { fields } => What::Sync(input(fields)),
            Decision::Async { fields } => What::Async(input(fields)),
        });
        for what in std::mem::take(&mut self.late) {
            if let What::Add { index, order } = what
                && !self.any(index, order)
            {
                self.came_late.push(index);
                self.apply(what);
            }
        }
    }
}

impl FaultCache for Pages {}

/// Fields of the kernel's state are 32 bits wide.
fn half(value: u64) -> u32 {
    value as u32
}

fn input([index, req_count, order, size, async_size, ra_pages, mmap_miss, prev_pos]: [i64; 8]) -> RaInput {
    RaInput {
        index: index as u64,
        req_count: req_count as u64,
        order: order as u32,
        size: size as u32,
        async_size: async_size as u32,
        ra_pages: ra_pages as u32,
        mmap_miss: mmap_miss as u32,
        prev_pos,
    }
}

/// A policy that records the calls for which the kernel has trace events.
pub(super) struct Traced<'a>(pub(super) &'a mut dyn Readahead);

impl Traced<'_> {
    fn fields(&self, page: PageIndex, nr_requested: u64) -> [i64; 8] {
        // The columns of the recorded traces: start, size, async size, limit, previous position, order.
        let trace = self.0.trace();
        let column = |nr: usize| trace.get(nr).copied().unwrap_or(0);
        [page.0 as i64, nr_requested as i64, column(5), column(1), column(2), column(3), 0, column(4)]
    }
}

impl Readahead for Traced<'_> {
    fn style(&self) -> LoopStyle {
        self.0.style()
    }

    fn begin(&mut self, mapping: &mut dyn Mapping, request: &ReadRequest) -> Token {
        self.0.begin(mapping, request)
    }

    fn on_page(&mut self, call: Token, mapping: &mut dyn Mapping, page: PageIndex, remaining_bytes: u64) -> PageIndex {
        self.0.on_page(call, mapping, page, remaining_bytes)
    }

    fn on_miss(&mut self, call: Token, mapping: &mut dyn Mapping, page: PageIndex, nr_requested: u64) {
        mapping.decided(Decision::Sync { fields: self.fields(page, nr_requested) });
        self.0.on_miss(call, mapping, page, nr_requested);
    }

    fn on_marker(&mut self, call: Token, mapping: &mut dyn Mapping, page: PageIndex, nr_requested: u64) {
        mapping.decided(Decision::Async { fields: self.fields(page, nr_requested) });
        self.0.on_marker(call, mapping, page, nr_requested);
    }

    fn copied(&mut self, call: Token, pos: u64) {
        self.0.copied(call, pos);
    }

    fn end(&mut self, call: Token, pos: u64) {
        self.0.end(call, pos);
    }

    fn max_pages(&self) -> u64 {
        self.0.max_pages()
    }

    fn prev_page(&self) -> u64 {
        self.0.prev_page()
    }

    fn fault_window(&mut self, mapping: &mut dyn Mapping, window: &FaultWindow) {
        self.0.fault_window(mapping, window);
    }

    fn restore(&mut self, start: Option<PageIndex>, input: &RaInput) -> bool {
        self.0.restore(start, input)
    }

    fn advise(&mut self, mapping: &mut dyn Mapping, advice: Advice) {
        self.0.advise(mapping, advice);
    }

    fn trace(&self) -> Vec<i64> {
        self.0.trace()
    }
}

/// The bios that the pages submitted must become: whether those seen are such.
///
/// A bio goes on over all that is submitted at once, until the disk's blocks are not side by side, or it has as many
/// segments as fit (256, each a folio or several that are neighbours in memory). How much a bio holds beyond that is
/// for the memory to say, so a bio may end anywhere after 256 folios. The last page is read up to the last block of the
/// file. A page whose blocks are not side by side on the disk is read block by block, and ends the bio before it
/// (`ext4_mpage_readpages`, `block_read_full_folio`). Blocks that are not on the disk need
/// none, and events do not show which: of a file with holes only an upper
/// bound is known. One that is missing counts if what the task did `is_over`: a recording may end before.
pub(super) fn same_bios(told: &Decisions, lines: &[Line], recorded: &Recorded, is_over: bool) -> (u64, u64) {
    const SEGMENTS: u64 = 256;
    let bios: Vec<(u64, u64)> = lines.iter().filter_map(|line| line.what.bio()).collect();
    let file_end = recorded.disk_end();
    let due =
        |first: u64, nr_pages: u64| ((first + nr_pages) * PAGE_BYTES).min(file_end).saturating_sub(first * PAGE_BYTES);
    if recorded.holes {
        let most: u64 = told.submitted.iter().map(|submitted| due(submitted.0, submitted.1)).sum();
        let ends = bios.iter().scan(0, |end, bio| {
            *end += bio.1;
            Some(*end)
        });
        return (bios.len() as u64, ends.filter(|end| *end <= most).count() as u64);
    }
    let (mut at, mut matched, mut missing) = (0, 0, 0);
    let block = recorded.block();
    // The bios from `nr` on that are the blocks of one page, not side by side, up to `most` bytes.
    let scattered = |nr: usize, most: u64| {
        let n = (PAGE_BYTES.min(most) / block) as usize;
        let page = bios.get(nr..nr + n).filter(|page| n > 1 && page.iter().all(|bio| bio.1 == block));
        page.filter(|page| page.windows(2).any(|two| two[1].0 != two[0].0 + block / SECTOR_BYTES)).map(|_| n)
    };
    for &(first, nr_pages, nr_folios) in &told.submitted {
        let mut left = due(first, nr_pages);
        while left > 0 {
            if let Some(n) = scattered(at, left) {
                (at, left, matched) = (at + n, left - n as u64 * block, matched + n as u64);
                continue;
            }
            let Some(&(sector, bytes)) = bios.get(at).filter(|bio| bio.1 <= left) else { break };
            at += 1;
            left -= bytes;
            let apart = bios.get(at).is_some_and(|next| next.0 != sector + bytes / SECTOR_BYTES);
            let apart = apart || scattered(at, left).is_some();
            let full = nr_folios > SEGMENTS && bytes / PAGE_BYTES * nr_folios / nr_pages >= SEGMENTS;
            matched += u64::from(left == 0 || apart || full);
        }
        missing += u64::from(left > 0 && is_over);
    }
    ((bios.len() as u64).max(matched + missing), matched)
}
