//! The page cache: which pages of which files are in memory, and in what state.
//!
//! Pages are kept in chunks of 64 with one bitmap per flag, so that a run of pages is tested or changed a word at a
//! time and an absent page costs nothing. Replacement is the two-list LRU of 2.4 and later:
//! ```text
//! add        at the head of the inactive list
//! touch      first: referenced; again: to the head of the active list, no longer referenced
//! reclaim    from the tail of the inactive list: clean pages go, referenced or not; dirty ones are reported for
//!            writeback and go back to the head, locked ones go back to the head; those used through a mapping go back
//!            to the head the first time and to the active list the second time
//! hold       a page with sleeping waiters is not reclaimed until they have run
//! balance    while the active list is longer than the inactive one, its tail moves to the inactive list
//! ```
//! Source: 2.4.27 and 2.6.6-rc3 `mm/vmscan.c` (`shrink_cache`, `refill_inactive_zone`), `mm/swap.c`
//! (`mark_page_accessed`). Known deviations: one zone, no swap; a batch that a read has collected
//! is not held while it submits read-ahead; later kernels' shadow entries and generations are not modelled here.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::event::FileId;
use crate::readahead::Folio;
use crate::units::PageIndex;

/// Flags of pages. The first four are all that a read of cached pages looks at.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Flag {
    /// Its data is valid.
    Uptodate,
    /// Carries the read-ahead marker.
    Marked,
    /// Touched once since it was added or last aged.
    Referenced,
    /// On the active list.
    Active,
    /// In the cache.
    Present,
    /// Being read.
    Locked,
    /// Changed since it was last written.
    Dirty,
    /// Being written.
    Writeback,
    /// Not the first page of its folio.
    Tail,
}

const NR_FLAGS: usize = 9;
const NIL: u32 = u32::MAX;

/// 64 pages. Aligned to a cache line, so that a read of cached pages touches one.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Chunk {
    flags: [u64; NR_FLAGS],
    /// LRU entry of each page (of the first page of a folio).
    entries: [u32; 64],
}

impl Chunk {
    fn new() -> Box<Chunk> {
        Box::new(Chunk { flags: [0; NR_FLAGS], entries: [NIL; 64] })
    }
}

/// A page or folio on one of the lists.
#[derive(Copy, Clone, Debug)]
struct Entry {
    file: u32,
    order: u8,
    page: u64,
    previous: u32,
    next: u32,
}

#[derive(Copy, Clone, Debug)]
struct List {
    head: u32,
    tail: u32,
    nr_pages: u64,
}

impl Default for List {
    fn default() -> List {
        List { head: NIL, tail: NIL, nr_pages: 0 }
    }
}

const INACTIVE: usize = 0;
const ACTIVE: usize = 1;

/// Pages taken out by one reclaim.
pub const RECLAIM_BATCH: u64 = 32;

/// Pages looked at for each page wanted.
const SCAN_FACTOR: u64 = 8;

/// Results of reclaim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Folios that went: file, first page, pages.
    pub gone: Vec<(FileId, PageIndex, u64)>,
    /// Dirty pages met: they must be written before they can go.
    pub dirty: Vec<(FileId, PageIndex)>,
}

/// Chunks up to here are found by their number, those beyond (of huge devices, where few pages are cached) in a tree.
const NEAR: u64 = 1 << 22;

/// The chunks of one file.
#[derive(Clone, Debug, Default)]
struct Chunks {
    near: Vec<Option<Box<Chunk>>>,
    far: BTreeMap<u64, Box<Chunk>>,
    /// Numbers of the chunks with dirty pages, and with pages being written.
    marks: [BTreeSet<u64>; 2],
    /// Pages in them.
    nr_pages: u64,
    /// Counts additions and removals.
    changes: u64,
}

impl Chunks {
    #[inline]
    fn get(&self, index: u64) -> Option<&Chunk> {
        if index < NEAR { self.near.get(index as usize)?.as_deref() } else { self.far.get(&index).map(Box::as_ref) }
    }

    fn get_mut(&mut self, index: u64) -> &mut Chunk {
        if index >= NEAR {
            return self.far.entry(index).or_insert_with(Chunk::new);
        }
        let index = index as usize;
        if index >= self.near.len() {
            self.near.resize(index + 1, None);
        }
        self.near[index].get_or_insert_with(Chunk::new)
    }

    /// The first chunk at or after `index` and before `end` that may have pages with `flag`, and its number.
    fn next(&self, index: u64, end: u64, flag: Flag) -> Option<(u64, &Chunk)> {
        if let Some(marks) = self.marks.get(mark_of(flag)) {
            let found = if index < end { marks.range(index..end).next() } else { None };
            return found.and_then(|&index| Some((index, self.get(index)?)));
        }
        let mut at = index;
        while at < end && (at as usize) < self.near.len() {
            if let Some(chunk) = &self.near[at as usize] {
                return Some((at, chunk));
            }
            at += 1;
        }
        let far = index.max(NEAR);
        if far >= end {
            return None;
        }
        self.far.range(far..end).next().map(|(index, chunk)| (*index, chunk.as_ref()))
    }

    /// Brings the marks of some chunks in line with their flags.
    fn mark(&mut self, chunks: RangeInclusive<u64>, flag: Flag) {
        for index in chunks {
            let any = self.get(index).is_some_and(|chunk| chunk.flags[flag as usize] != 0);
            let marks = &mut self.marks[mark_of(flag)];
            if any {
                marks.insert(index)
            } else {
                marks.remove(&index)
            };
        }
    }
}

/// The page cache of one machine.
#[derive(Clone, Debug)]
pub struct PageCache {
    files: Vec<Chunks>,
    entries: Vec<Entry>,
    free_entries: Vec<u32>,
    lists: [List; 2],
    capacity: u64,
    nr_dirty: u64,
    nr_writeback: u64,
    /// References of those who sleep for a page, by file and page.
    held: BTreeMap<(u32, u64), u32>,
}

/// The place in [`Chunks::marks`] of a flag; of others there are none.
fn mark_of(flag: Flag) -> usize {
    match flag {
        Flag::Dirty => 0,
        Flag::Writeback => 1,
        _ => usize::MAX,
    }
}

/// The bits `from ..` of a word, at most `nr` of them.
fn mask(from: u64, nr: u64) -> u64 {
    if nr >= 64 { u64::MAX << from } else { ((1 << nr) - 1) << from }
}

impl PageCache {
    /// An empty cache of `capacity` pages for `nr_files` files.
    pub fn new(nr_files: u32, capacity: u64) -> PageCache {
        PageCache {
            files: vec![Chunks::default(); nr_files as usize],
            entries: Vec::new(),
            free_entries: Vec::new(),
            lists: [List::default(); 2],
            capacity,
            nr_dirty: 0,
            nr_writeback: 0,
            held: BTreeMap::new(),
        }
    }

    /// Keeps a page from being reclaimed, as the reference does that a sleeping reader has on it. Otherwise readers in
    /// a memory that is too small for all of their windows would take each other's pages for ever.
    pub fn hold(&mut self, file: FileId, page: PageIndex) {
        *self.held.entry((file.0, page.0)).or_default() += 1;
    }

    /// Ends one [`PageCache::hold`] of a page.
    pub fn release(&mut self, file: FileId, page: PageIndex) {
        let key = (file.0, page.0);
        let left = self.held.get_mut(&key).map(|count| {
            *count -= 1;
            *count
        });
        debug_assert!(left.is_some(), "the page has no holder");
        if left == Some(0) {
            self.held.remove(&key);
        }
    }

    fn is_held(&self, file: FileId, first: PageIndex, nr_pages: u64) -> bool {
        let range = (file.0, first.0)..(file.0, first.0 + nr_pages);
        !self.held.is_empty() && self.held.range(range).next().is_some()
    }

    /// Pages in the cache.
    pub fn nr_pages(&self) -> u64 {
        self.lists[INACTIVE].nr_pages + self.lists[ACTIVE].nr_pages
    }

    /// Pages it can hold.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Dirty pages.
    pub fn nr_dirty(&self) -> u64 {
        self.nr_dirty
    }

    /// Pages being written.
    pub fn nr_writeback(&self) -> u64 {
        self.nr_writeback
    }

    #[inline]
    fn chunk(&self, file: FileId, page: PageIndex) -> Option<&Chunk> {
        self.files[file.0 as usize].get(page.0 / 64)
    }

    fn chunk_mut(&mut self, file: FileId, page: PageIndex) -> &mut Chunk {
        self.files[file.0 as usize].get_mut(page.0 / 64)
    }

    /// Whether a page has a flag.
    #[inline]
    pub fn is(&self, file: FileId, page: PageIndex, flag: Flag) -> bool {
        self.chunk(file, page).is_some_and(|chunk| chunk.flags[flag as usize] >> (page.0 % 64) & 1 == 1)
    }

    /// Sets or clears a flag of a run of present pages. [`Flag::Present`], [`Flag::Active`] and [`Flag::Tail`] are the
    /// cache's own.
    pub fn set(&mut self, file: FileId, page: PageIndex, nr_pages: u64, flag: Flag, on: bool) {
        debug_assert!(!matches!(flag, Flag::Present | Flag::Active | Flag::Tail));
        let mut changed = 0;
        self.words(file, page, nr_pages, |chunk, bits| {
            debug_assert_eq!(chunk.flags[Flag::Present as usize] & bits, bits, "flag of an absent page");
            let word = &mut chunk.flags[flag as usize];
            let new = if on { *word | bits } else { *word & !bits };
            changed += u64::from((*word ^ new).count_ones());
            *word = new;
        });
        let counter = match flag {
            Flag::Dirty => &mut self.nr_dirty,
            Flag::Writeback => &mut self.nr_writeback,
            _ => return,
        };
        *counter = if on { *counter + changed } else { *counter - changed };
        if changed > 0 {
            self.files[file.0 as usize].mark(page.0 / 64..=(page.0 + nr_pages - 1) / 64, flag);
        }
    }

    /// Calls `change` with each chunk of a run and the bits of it that belong to the run.
    fn words(&mut self, file: FileId, page: PageIndex, nr_pages: u64, mut change: impl FnMut(&mut Chunk, u64)) {
        let (mut at, end) = (page.0, page.0 + nr_pages);
        while at < end {
            let nr = (64 - at % 64).min(end - at);
            change(self.chunk_mut(file, PageIndex(at)), mask(at % 64, nr));
            at += nr;
        }
    }

    /// Pages from `page` on, at most `nr_pages`, that are up to date and unmarked.
    #[inline]
    pub fn clean_run(&self, file: FileId, page: PageIndex, nr_pages: u64) -> u64 {
        let (mut at, end) = (page.0, page.0 + nr_pages);
        while at < end {
            let Some(chunk) = self.chunk(file, PageIndex(at)) else { break };
            let good = chunk.flags[Flag::Uptodate as usize] & !chunk.flags[Flag::Marked as usize];
            let run = u64::from((!(good >> (at % 64))).trailing_zeros()).min(64 - at % 64);
            at += run;
            if run < 64 - (at - run) % 64 {
                break;
            }
        }
        at.min(end) - page.0
    }

    /// The run of absent pages that begins at or after `page` and before `end`: its first page and its length.
    pub fn next_absent_run(&self, file: FileId, page: PageIndex, end: PageIndex) -> Option<(PageIndex, u64)> {
        let present = |at: u64| {
            self.chunk(file, PageIndex(at)).map_or(0, |chunk| chunk.flags[Flag::Present as usize]) >> (at % 64)
        };
        let mut at = page.0;
        while at < end.0 {
            let skip = u64::from(present(at).trailing_ones()).min(64 - at % 64);
            if skip == 0 {
                break;
            }
            at += skip;
        }
        let first = at;
        while at < end.0 {
            let run = u64::from(present(at).trailing_zeros()).min(64 - at % 64);
            if run == 0 {
                break;
            }
            at += run;
        }
        let at = at.min(end.0);
        (first < at).then(|| (PageIndex(first), at - first))
    }

    /// The next page at or after `page` that has `flag`.
    pub fn next_with(&self, file: FileId, page: PageIndex, flag: Flag) -> Option<PageIndex> {
        self.next_with_before(file, page, PageIndex(u64::MAX), flag)
    }

    /// The same, looking only before `end`.
    pub fn next_with_before(&self, file: FileId, page: PageIndex, end: PageIndex, flag: Flag) -> Option<PageIndex> {
        let chunks = &self.files[file.0 as usize];
        let mut at = page.0;
        while at < end.0
            && let Some((index, chunk)) = chunks.next(at / 64, end.0.div_ceil(64), flag)
        {
            at = at.max(index * 64);
            let word = chunk.flags[flag as usize] >> (at % 64);
            if word != 0 {
                let found = at + u64::from(word.trailing_zeros());
                return (found < end.0).then_some(PageIndex(found));
            }
            at = (index + 1) * 64;
        }
        None
    }

    /// All pages at or after `page` that have `flag`, in order.
    pub fn pages_with(&self, file: FileId, page: PageIndex, flag: Flag) -> impl Iterator<Item = PageIndex> + '_ {
        let next = move |page| self.next_with(file, page, flag);
        std::iter::successors(next(page), move |page| next(page.plus(1)))
    }

    /// Pages of one file in the cache.
    pub fn file_pages(&self, file: FileId) -> u64 {
        self.files[file.0 as usize].nr_pages
    }

    /// A number that is another whenever a page of the file has come or gone.
    pub fn file_changes(&self, file: FileId) -> u64 {
        self.files[file.0 as usize].changes
    }

    /// The folio that holds a present page.
    pub fn folio(&self, file: FileId, page: PageIndex) -> Option<Folio> {
        if !self.is(file, page, Flag::Present) {
            return None;
        }
        let mut first = page.0;
        while self.is(file, PageIndex(first), Flag::Tail) {
            first -= 1;
        }
        let chunk = self.chunk(file, PageIndex(first))?;
        let entry = chunk.entries[(first % 64) as usize];
        Some(Folio { first: PageIndex(first), order: self.entries[entry as usize].order })
    }

    /// Adds an absent folio at the head of the inactive list, locked or up to date.
    pub fn add(&mut self, file: FileId, folio: Folio, uptodate: bool) {
        let nr_pages = 1u64 << folio.order;
        let entry = Entry { file: file.0, order: folio.order, page: folio.first.0, previous: NIL, next: NIL };
        let slot = match self.free_entries.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        let state = if uptodate { Flag::Uptodate } else { Flag::Locked };
        self.words(file, folio.first, nr_pages, |chunk, bits| {
            debug_assert_eq!(chunk.flags[Flag::Present as usize] & bits, 0, "a page was added twice");
            chunk.flags[Flag::Present as usize] |= bits;
            chunk.flags[state as usize] |= bits;
        });
        if nr_pages > 1 {
            self.words(file, folio.first.plus(1), nr_pages - 1, |chunk, bits| {
                chunk.flags[Flag::Tail as usize] |= bits;
            });
        }
        self.chunk_mut(file, folio.first).entries[(folio.first.0 % 64) as usize] = slot;
        self.push_head(INACTIVE, slot);
        let chunks = &mut self.files[file.0 as usize];
        chunks.nr_pages += nr_pages;
        chunks.changes += 1;
    }

    /// Takes a page's folio out of the cache. Returns its first page and length.
    pub fn remove(&mut self, file: FileId, page: PageIndex) -> Option<(PageIndex, u64)> {
        let folio = self.folio(file, page)?;
        let nr_pages = 1u64 << folio.order;
        if self.any(file, folio.first, nr_pages, Flag::Dirty) {
            self.set(file, folio.first, nr_pages, Flag::Dirty, false);
        }
        let slot = self.chunk_mut(file, folio.first).entries[(folio.first.0 % 64) as usize];
        let active = self.is(file, folio.first, Flag::Active);
        self.unlink(if active { ACTIVE } else { INACTIVE }, slot);
        self.words(file, folio.first, nr_pages, |chunk, bits| {
            for word in &mut chunk.flags {
                *word &= !bits;
            }
        });
        self.free_entries.push(slot);
        let chunks = &mut self.files[file.0 as usize];
        chunks.nr_pages -= nr_pages;
        chunks.changes += 1;
        Some((folio.first, nr_pages))
    }

    /// Whether a page of the folio that this page is in is locked, dirty or being written. It goes as a whole or not at
    /// all.
    pub fn is_busy(&self, file: FileId, page: PageIndex) -> bool {
        let busy =
            |flag| self.folio(file, page).is_some_and(|folio| self.any(file, folio.first, 1 << folio.order, flag));
        [Flag::Locked, Flag::Writeback, Flag::Dirty].into_iter().any(busy)
    }

    /// Pages were used: the first use marks them, the second moves them to the active list. Those that went while their
    /// reader was submitting read-ahead are left out.
    #[inline]
    pub fn touch(&mut self, file: FileId, page: PageIndex, nr_pages: u64) {
        let (mut at, end) = (page.0, page.0 + nr_pages);
        while at < end {
            let nr = (64 - at % 64).min(end - at);
            let flags = &mut self.chunk_mut(file, PageIndex(at)).flags;
            let bits = mask(at % 64, nr) & flags[Flag::Present as usize];
            let again = flags[Flag::Referenced as usize] & !flags[Flag::Active as usize] & bits;
            flags[Flag::Referenced as usize] |= bits;
            if again != 0 {
                self.activate(file, at & !63, again);
            }
            at += nr;
        }
    }

    /// Touches a run of pages if all of them are up to date and unmarked; returns whether they were.
    #[inline]
    pub fn touch_if_clean(&mut self, file: FileId, page: PageIndex, nr_pages: u64) -> bool {
        if page.0 % 64 + nr_pages > 64 {
            let clean = self.clean_run(file, page, nr_pages) == nr_pages;
            if clean {
                self.touch(file, page, nr_pages);
            }
            return clean;
        }
        // Nearly always the run lies within one chunk, and one look at it does.
        let bits = mask(page.0 % 64, nr_pages);
        let slot = self.files[file.0 as usize].near.get_mut((page.0 / 64) as usize);
        let Some(flags) = slot.and_then(Option::as_deref_mut).map(|chunk| &mut chunk.flags) else { return false };
        if flags[Flag::Uptodate as usize] & !flags[Flag::Marked as usize] & bits != bits {
            return false;
        }
        let again = flags[Flag::Referenced as usize] & !flags[Flag::Active as usize] & bits;
        flags[Flag::Referenced as usize] |= bits;
        if again != 0 {
            self.activate(file, page.0 & !63, again);
        }
        true
    }

    /// Moves the folios of the given pages of a chunk to the active list.
    fn activate(&mut self, file: FileId, base: u64, mut pages: u64) {
        while pages != 0 {
            let page = PageIndex(base + u64::from(pages.trailing_zeros()));
            let Some(folio) = self.folio(file, page) else { unreachable!("a referenced page is present") };
            let nr_pages = 1u64 << folio.order;
            let slot = self.chunk_mut(file, folio.first).entries[(folio.first.0 % 64) as usize];
            self.unlink(INACTIVE, slot);
            self.push_head(ACTIVE, slot);
            self.words(file, folio.first, nr_pages, |chunk, bits| {
                chunk.flags[Flag::Active as usize] |= bits;
                chunk.flags[Flag::Referenced as usize] &= !bits;
            });
            let last = folio.first.0 + nr_pages - base;
            pages &= if last >= 64 { 0 } else { u64::MAX << last };
        }
    }

    /// Pages over capacity if `more` were added.
    pub fn shortage(&self, more: u64) -> u64 {
        (self.nr_pages() + more).saturating_sub(self.capacity)
    }

    /// Frees at least `want` pages if they are found among a limited number at the tail. A cache full of dirty or busy
    /// pages thus grows beyond its capacity for a while: the dirty limits hold back tasks that dirty pages, not the
    /// cache.
    ///
    /// `take_uses` returns the number of mappings through which a folio has been used since the last call. Such a folio
    /// goes round once more, or to the active list if it was used before or through several of them. These do not count
    /// as looked at: looking at them takes away what saves them.
    pub fn reclaim(&mut self, want: u64, mut take_uses: impl FnMut(FileId, PageIndex, u64) -> u32) -> Reclaimed {
        let mut result = Reclaimed::default();
        let mut freed = 0;
        let mut to_scan = self.nr_pages().min(SCAN_FACTOR * want);
        while freed < want && to_scan > 0 {
            self.balance();
            let slot = self.lists[INACTIVE].tail;
            if slot == NIL {
                break;
            }
            let Entry { file, order, page, .. } = self.entries[slot as usize];
            let (file, first, nr_pages) = (FileId(file), PageIndex(page), 1u64 << order);
            let busy = self.any(file, first, nr_pages, Flag::Locked)
                || self.any(file, first, nr_pages, Flag::Writeback)
                || self.is_held(file, first, nr_pages);
            let dirty = self.any(file, first, nr_pages, Flag::Dirty);
            let uses = if busy || dirty { 0 } else { take_uses(file, first, nr_pages) };
            if uses > 0 {
                if uses > 1 || self.any(file, first, nr_pages, Flag::Referenced) {
                    self.activate(file, first.0 & !63, 1 << (first.0 % 64));
                } else {
                    self.set(file, first, nr_pages, Flag::Referenced, true);
                    self.unlink(INACTIVE, slot);
                    self.push_head(INACTIVE, slot);
                }
                continue;
            }
            to_scan = to_scan.saturating_sub(nr_pages);
            if busy || dirty {
                if dirty && !busy {
                    result.dirty.push((file, first));
                }
                self.unlink(INACTIVE, slot);
                self.push_head(INACTIVE, slot);
                continue;
            }
            self.remove(file, first);
            result.gone.push((file, first, nr_pages));
            freed += nr_pages;
        }
        result
    }

    fn any(&self, file: FileId, page: PageIndex, nr_pages: u64, flag: Flag) -> bool {
        self.next_with_before(file, page, page.plus(nr_pages), flag).is_some()
    }

    /// Moves the tail of the active list over while it is longer than the inactive one.
    fn balance(&mut self) {
        while self.lists[ACTIVE].nr_pages > self.lists[INACTIVE].nr_pages {
            let slot = self.lists[ACTIVE].tail;
            let Entry { file, order, page, .. } = self.entries[slot as usize];
            self.unlink(ACTIVE, slot);
            self.push_head(INACTIVE, slot);
            self.words(FileId(file), PageIndex(page), 1 << order, |chunk, bits| {
                chunk.flags[Flag::Active as usize] &= !bits;
                chunk.flags[Flag::Referenced as usize] &= !bits;
            });
        }
    }

    fn push_head(&mut self, list: usize, slot: u32) {
        let head = self.lists[list].head;
        self.entries[slot as usize].previous = NIL;
        self.entries[slot as usize].next = head;
        match head {
            NIL => self.lists[list].tail = slot,
            head => self.entries[head as usize].previous = slot,
        }
        self.lists[list].head = slot;
        self.lists[list].nr_pages += 1 << self.entries[slot as usize].order;
    }

    fn unlink(&mut self, list: usize, slot: u32) {
        let Entry { previous, next, order, .. } = self.entries[slot as usize];
        match previous {
            NIL => self.lists[list].head = next,
            previous => self.entries[previous as usize].next = next,
        }
        match next {
            NIL => self.lists[list].tail = previous,
            next => self.entries[next as usize].previous = previous,
        }
        self.lists[list].nr_pages -= 1 << order;
    }

    /// Bytes that the state of all pages takes (tables of absent pages included).
    pub fn state_bytes(&self) -> u64 {
        let table = |chunks: &Chunks| chunks.near.capacity() * size_of::<Option<Box<Chunk>>>();
        let tables: usize = self.files.iter().map(table).sum();
        let nr_chunks = |chunks: &Chunks| chunks.near.iter().flatten().count() + chunks.far.len();
        let chunks: usize = self.files.iter().map(nr_chunks).sum::<usize>() * size_of::<Chunk>();
        (tables + chunks + self.entries.capacity() * size_of::<Entry>() + self.free_entries.capacity() * 4) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const FILE: FileId = FileId(0);

    fn add(cache: &mut PageCache, page: u64, order: u8) {
        cache.add(FILE, Folio { first: PageIndex(page), order }, true);
    }

    #[test]
    fn runs_end_at_markers_and_holes_also_across_words() {
        let mut cache = PageCache::new(1, 1000);
        for page in (10..70).chain(72..200) {
            add(&mut cache, page, 0);
        }
        cache.set(FILE, PageIndex(150), 1, Flag::Marked, true);
        let run = |page, nr| cache.clean_run(FILE, PageIndex(page), nr);
        assert_eq!(
            [run(9, 5), run(10, 5), run(10, 100), run(72, 500), run(151, 500), run(5000, 3)],
            [0, 5, 60, 78, 49, 0]
        );
        let hole = |page, end| cache.next_absent_run(FILE, PageIndex(page), PageIndex(end)).map(|(p, n)| (p.0, n));
        assert_eq!(
            [hole(0, 300), hole(12, 300), hole(72, 300), hole(72, 150)],
            [Some((0, 10)), Some((70, 2)), Some((200, 100)), None]
        );
    }

    #[test]
    fn a_large_folio_lives_and_goes_as_one() {
        let mut cache = PageCache::new(1, 1000);
        add(&mut cache, 64, 7);
        assert_eq!(cache.folio(FILE, PageIndex(130)), Some(Folio { first: PageIndex(64), order: 7 }));
        cache.touch(FILE, PageIndex(70), 1);
        cache.touch(FILE, PageIndex(70), 1);
        assert!(cache.is(FILE, PageIndex(191), Flag::Active));
        assert_eq!(cache.remove(FILE, PageIndex(100)), Some((PageIndex(64), 128)));
        assert_eq!((cache.nr_pages(), cache.is(FILE, PageIndex(64), Flag::Present)), (0, false));
    }

    #[test]
    fn dirty_and_locked_pages_are_passed_over() {
        let mut cache = PageCache::new(1, 4);
        for page in 0..3 {
            add(&mut cache, page, 0);
        }
        cache.add(FILE, Folio { first: PageIndex(3), order: 0 }, false);
        cache.set(FILE, PageIndex(0), 1, Flag::Dirty, true);
        let result = cache.reclaim(3, |_, _, _| 0);
        assert_eq!(result.dirty, [(FILE, PageIndex(0))]);
        assert_eq!(result.gone, [(FILE, PageIndex(1), 1), (FILE, PageIndex(2), 1)]);
        assert_eq!(cache.nr_dirty(), 1);
    }

    #[test]
    fn absent_pages_of_a_huge_file_cost_next_to_nothing() {
        let mut cache = PageCache::new(1, 1000);
        add(&mut cache, (64 << 30) / 4096 - 1, 0);
        assert!(cache.state_bytes() < 4 << 20, "{} bytes for 64 GiB", cache.state_bytes());
    }

    /// The two lists as plain queues, head first.
    #[derive(Default)]
    struct Naive {
        inactive: VecDeque<(u64, bool)>,
        active: VecDeque<u64>,
    }

    impl Naive {
        fn touch(&mut self, page: u64) {
            if let Some(at) = self.inactive.iter().position(|&(p, _)| p == page) {
                if self.inactive[at].1 {
                    self.inactive.remove(at);
                    self.active.push_front(page);
                } else {
                    self.inactive[at].1 = true;
                }
            }
        }

        fn reclaim(&mut self) -> Option<u64> {
            while self.active.len() > self.inactive.len() {
                let page = self.active.pop_back().expect("not empty");
                self.inactive.push_front((page, false));
            }
            self.inactive.pop_back().map(|(page, _)| page)
        }

        fn holds(&self, page: u64) -> bool {
            self.active.contains(&page) || self.inactive.iter().any(|&(p, _)| p == page)
        }
    }

    proptest! {
        #[test]
        fn the_lists_behave_like_plain_queues(pages in proptest::collection::vec(0u64..150, 1..400)) {
            let mut cache = PageCache::new(1, 40);
            let mut naive = Naive::default();
            for page in pages {
                prop_assert_eq!(cache.is(FILE, PageIndex(page), Flag::Present), naive.holds(page));
                if naive.holds(page) {
                    cache.touch(FILE, PageIndex(page), 1);
                    naive.touch(page);
                } else {
                    if cache.shortage(1) > 0 {
                        let gone = cache.reclaim(1, |_, _, _| 0).gone;
                        prop_assert_eq!(gone.first().map(|g| g.1.0), naive.reclaim());
                    }
                    add(&mut cache, page, 0);
                    naive.inactive.push_front((page, false));
                }
                prop_assert_eq!(cache.nr_pages(), (naive.active.len() + naive.inactive.len()) as u64);
            }
        }
    }
}
