//! Replays recorded reads and mapped accesses in a control group with little memory, and yields the evicted pages.
//!
//! A [`Case`] describes a program's work on one file. [`replay`] drives the read loop, the read-ahead policy and the
//! faults over a page cache with instant I/O, whose folios live on a kernel's [`TwoList`]. A folio is charged before it
//! goes to its list; a charge over the limit calls reclaim for it. Other charges to the group are not recorded: a case
//! names the cached pages at which the limit was first hit, and from there on the replay adds what the page
//! cache itself costs, one node of its tree for every 64 pages that are cached or have left a shadow.
//!
//! Time passes only in sleeps; every two seconds of it the statistics are folded.

use std::collections::{BTreeMap, BTreeSet};

use crate::advice::FileFlags;
use crate::fault::{
    Access, Fault, FaultCache, FaultContext, FaultStep, MapAdvice, MappedFile, MmapMiss, Protection, Rules,
};
use crate::origin::Entry;
use crate::read_loop::{ReadLoop, Step};
use crate::readahead::{self, Advice, Folio, Limits, Mapping, ReadRequest, Readahead, Window};
use crate::reclaim::Lists as _;
use crate::reclaim::two_list::{self, Condition, FolioId, Folios, Recency, References, Shadow, TwoList};
use crate::units::{PAGE_BYTES, PageIndex};

/// Advice about a part of a mapping.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum MemoryAdvice {
    /// Expected kind of accesses.
    Expect(MapAdvice),
    /// `MADV_DONTNEED`: unmap.
    DontNeed,
    /// `MADV_COLD`.
    Cold,
    /// `MADV_PAGEOUT`.
    PageOut,
}

/// Something that the program of a case does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Opens the file.
    Open {
        /// Its number from now on.
        fd: u64,
        /// `POSIX_FADV_RANDOM` on it.
        random: bool,
        /// `POSIX_FADV_NOREUSE` on it.
        noreuse: bool,
    },
    /// Maps the whole file.
    Mmap {
        /// Number of the mapping from now on.
        mapping: u64,
        /// The open file.
        fd: u64,
        protection: Protection,
    },
    Munmap {
        /// Number of the mapping.
        mapping: u64,
    },
    /// Reads a range in calls of `chunk_bytes`.
    Read {
        /// Number of the open file.
        fd: u64,
        /// First byte.
        offset: u64,
        len_bytes: u64,
        /// Bytes of one call.
        chunk_bytes: u64,
        /// With `RWF_DONTCACHE`.
        dontcache: bool,
    },
    /// Reads these pages, one in a call.
    ReadPages {
        /// Number of the open file.
        fd: u64,
        pages: Vec<u64>,
    },
    /// Touches these pages of a mapping.
    Touch {
        /// Number of the mapping.
        mapping: u64,
        pages: Vec<u64>,
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
    /// A reader of the group's statistics folds them.
    ReadStatistics,
    /// Time passes.
    Sleep {
        /// How much of it.
        ms: u64,
    },
}

/// Recorded inputs.
#[derive(Clone, Debug)]
pub struct Case {
    /// Size of the file.
    pub nr_file_pages: u64,
    /// Cached pages when the group's limit was hit first.
    pub nr_pages_at_limit: u64,
    /// Limits of the device and the file.
    pub limits: Limits,
    /// Operations.
    pub ops: Vec<Op>,
}

/// The models of one kernel.
#[derive(Copy, Clone)]
pub struct Models<'a> {
    /// Reclaim.
    pub two_list: &'a Entry<two_list::Build>,
    pub fault: &'a Rules,
    /// Read-ahead.
    pub readahead: &'a Entry<readahead::Build>,
}

/// Results of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Pages in the order in which they left the cache.
    pub evicted: Vec<u64>,
    /// Pages cached in the end.
    pub cached: Vec<u64>,
    /// Pages on the inactive and on the active list in the end.
    pub nr_listed: (u64, u64),
}

/// The worker folds statistics at this interval.
const FOLD_MS: u64 = 2000;
/// Fruitless calls of reclaim before a charge exceeds the limit anyway (the kernel would look for a victim to kill).
const MOST_RETRIES: u32 = 16;
/// Bytes of a node of the page cache's tree, and pages below it.
const NODE_BYTES: u64 = 576;
const NODE_PAGES: u64 = 64;

/// Replays `case` through the models of one kernel.
///
/// # Panics
/// If an operation names an open file or a mapping that the case has not (or no longer).
pub fn replay(models: &Models, case: &Case) -> Replayed {
    let mut replayer = Replayer {
        fault: *models.fault,
        open: &|limits| (models.readahead.build)(&models.readahead.defaults(), limits),
        cache: Cache {
            store: Store { size_bytes: case.nr_file_pages * PAGE_BYTES, limits: case.limits, ..Store::default() },
            lists: (models.two_list.build)(&models.two_list.defaults()),
        },
        files: BTreeMap::new(),
        mappings: BTreeMap::new(),
        nr_pages_at_limit: case.nr_pages_at_limit,
        limit: None,
        now_ms: 0,
    };
    case.ops.iter().for_each(|op| replayer.run(op));
    let Cache { store, mut lists } = replayer.cache;
    lists.drain();
    Replayed {
        evicted: store.evicted,
        cached: store.pages.into_keys().collect(),
        nr_listed: (lists.nr_inactive(), lists.nr_active()),
    }
}

struct Replayer<'a> {
    fault: Rules,
    open: &'a dyn Fn(&Limits) -> Box<dyn Readahead>,
    cache: Cache,
    files: BTreeMap<u64, File>,
    mappings: BTreeMap<u64, (u64, MappedFile)>,
    nr_pages_at_limit: u64,
    /// Pages that may be charged, once the limit has been hit.
    limit: Option<u64>,
    now_ms: u64,
}

struct File {
    ra: Box<dyn Readahead>,
    misses: MmapMiss,
    flags: FileFlags,
}

impl Replayer<'_> {
    fn run(&mut self, op: &Op) {
        match *op {
            Op::Open { fd, random, noreuse } => {
                let mut ra = (self.open)(&self.cache.store.limits);
                if random {
                    ra.advise(&mut self.cache, Advice::Random);
                }
                self.files.insert(fd, File { ra, misses: MmapMiss::default(), flags: FileFlags { noreuse } });
            }
            Op::Mmap { mapping, fd, protection } => {
                let nr_pages = self.cache.store.size_bytes / PAGE_BYTES;
                self.mappings.insert(mapping, (fd, MappedFile::new(PageIndex(0), nr_pages, 0, protection)));
            }
            Op::Munmap { mapping } => {
                self.unmap(mapping, PageIndex(0), PageIndex(u64::MAX));
                self.mappings.remove(&mapping);
            }
            Op::Read { fd, offset, len_bytes, chunk_bytes, dontcache } => {
                let mut at = 0;
                while at < len_bytes {
                    let len = chunk_bytes.min(len_bytes - at);
                    self.read(fd, ReadRequest { offset: offset + at, len_bytes: len }, dontcache);
                    at += len;
                }
            }
            Op::ReadPages { fd, ref pages } => {
                for page in pages {
                    self.read(fd, ReadRequest { offset: page * PAGE_BYTES, len_bytes: PAGE_BYTES }, false);
                }
            }
            Op::Touch { mapping, ref pages } => pages.iter().for_each(|page| self.touch(mapping, PageIndex(*page))),
            Op::Madvise { mapping, offset, len_bytes, advice } => {
                let range = (PageIndex::of(offset), PageIndex((offset + len_bytes).div_ceil(PAGE_BYTES)));
                self.madvise(mapping, range, advice);
            }
            Op::ReadStatistics => self.cache.lists.fold(),
            Op::Sleep { ms } => {
                let before = self.now_ms / FOLD_MS;
                self.now_ms += ms;
                if self.now_ms / FOLD_MS > before {
                    self.cache.lists.fold();
                }
            }
        }
    }

    fn read(&mut self, fd: u64, request: ReadRequest, dontcache: bool) {
        let file = self.files.get_mut(&fd).expect("a case reads only its open files");
        let mut ra = std::mem::replace(&mut file.ra, (self.open)(&self.cache.store.limits));
        let prev_pos = ra.trace().get(4).copied().unwrap_or(-1);
        let mut last_pos = prev_pos;
        let mut pos = request.offset;
        let mut read = ReadLoop::new(ra.as_ref(), request, false);
        self.cache.store.dropbehind = dontcache;
        loop {
            let step = read.step(ra.as_mut(), &mut self.cache);
            self.admit();
            match step {
                Step::Done { .. } => break,
                Step::Copy { page, nr_pages, len_bytes } => {
                    self.copied(page.0..page.0 + nr_pages, (pos, last_pos), dontcache);
                    pos += len_bytes;
                    last_pos = pos as i64;
                }
                Step::Submitted | Step::SchedulingPoint | Step::Wait(_) => {}
            }
        }
        self.cache.store.dropbehind = false;
        self.files.get_mut(&fd).expect("it was open above").ra = ra;
    }

    /// Marks what a read has copied, and drops what it must not leave behind. A folio where the previous read ended
    /// is not marked again.
    fn copied(&mut self, pages: std::ops::Range<u64>, (pos, last_pos): (u64, i64), dontcache: bool) {
        let Cache { store, lists } = &mut self.cache;
        let mut page = pages.start;
        while page < pages.end {
            let Some(&id) = store.pages.get(&page) else {
                page += 1;
                continue;
            };
            let folio = store.folio_of[&id];
            let end = folio.first.0 + (1 << folio.order);
            let shift = u32::from(folio.order) + PAGE_BYTES.trailing_zeros();
            if page != pages.start || (pos as i64) >> shift != (last_pos - 1) >> shift {
                lists.mark_accessed(id);
            }
            if !dontcache {
                lists.keep_behind(id);
                store.behind.remove(&id);
            } else if store.behind.contains(&id) {
                lists.remove(id);
                store.forget(id, None);
            }
            page = end;
        }
    }

    fn touch(&mut self, mapping: u64, page: PageIndex) {
        let (fd, mapped) = self.mappings.get_mut(&mapping).expect("a case touches only its mappings");
        let fd = *fd;
        let Some(mut fault) = Fault::of_touch(mapped, page, Access::Read) else { return };
        loop {
            let (_, mapped) = self.mappings.get_mut(&mapping).expect("it is mapped");
            let file = self.files.get_mut(&fd).expect("a mapping is of an open file");
            let mut context =
                FaultContext { ra: file.ra.as_mut(), misses: &file.misses, mapped, cache: &mut self.cache };
            let step = fault.step(&self.fault, &mut context);
            self.admit();
            if let FaultStep::Done(_) = step {
                break;
            }
        }
    }

    fn madvise(&mut self, mapping: u64, (first, end): (PageIndex, PageIndex), advice: MemoryAdvice) {
        match advice {
            MemoryAdvice::Expect(advice) => {
                let (_, mapped) = self.mappings.get_mut(&mapping).expect("a case advises about its mappings");
                mapped.advise(first, end, advice);
            }
            MemoryAdvice::DontNeed => self.unmap(mapping, first, end),
            MemoryAdvice::Cold => {
                self.cache.lists.drain();
                for id in self.mapped_folios(mapping, first, end) {
                    self.cache.lists.cool(id);
                }
            }
            MemoryAdvice::PageOut => {
                let list = self.mapped_folios(mapping, first, end);
                let (lists, mut view) = self.split();
                lists.page_out(&list, &mut view);
            }
        }
    }

    /// Folios mapped in a range, in order; their accessed bits are cleared.
    fn mapped_folios(&mut self, mapping: u64, first: PageIndex, end: PageIndex) -> Vec<FolioId> {
        let (_, mapped) = self.mappings.get_mut(&mapping).expect("a case advises about its mappings");
        let mut ids: Vec<FolioId> = Vec::new();
        for (&page, &id) in self.cache.store.pages.range(first.0..end.0) {
            if let Some(pte) = mapped.cache_entry(PageIndex(page)) {
                pte.accessed = false;
                ids.push(id);
            }
        }
        ids.dedup();
        ids
    }

    /// Unmaps pages; those used through a mapping that counts are marked accessed.
    fn unmap(&mut self, mapping: u64, first: PageIndex, end: PageIndex) {
        let (fd, mapped) = self.mappings.get_mut(&mapping).expect("a case unmaps only its mappings");
        let noreuse = self.files[fd].flags.noreuse;
        let recency = self.cache.lists.rules().recency;
        let vmas = mapped.vmas().to_vec();
        for (page, pte) in mapped.unmap(first, end) {
            let vma = vmas.iter().find(|vma| vma.first <= page && page < vma.end);
            let counts = vma.is_some_and(|vma| counts(recency, vma.advice, noreuse));
            if pte.accessed
                && !pte.copy
                && counts
                && let Some(&id) = self.cache.store.pages.get(&page.0)
            {
                self.cache.lists.mark_accessed(id);
            }
        }
    }

    /// Charges the folios that were added, and puts them on their list.
    fn admit(&mut self) {
        for folio in std::mem::take(&mut self.cache.store.pending) {
            let nr_pages = 1 << folio.order;
            let mut nr_retries = 0;
            while self.over_limit(nr_pages) && nr_retries < MOST_RETRIES {
                let (lists, mut view) = self.split();
                let nr_freed = lists.reclaim(nr_pages, &mut view);
                nr_retries += u32::from(nr_freed == 0);
            }
            let Cache { store, lists } = &mut self.cache;
            let pages = folio.first.0..folio.first.0 + nr_pages;
            let shadow = pages.clone().filter_map(|page| store.shadows.remove(&page)).last();
            let id = lists.add(nr_pages, shadow, store.dropbehind);
            store.charge(&folio);
            store.folio_of.insert(id, folio);
            if store.dropbehind {
                store.behind.insert(id);
            }
            pages.for_each(|page| {
                store.pages.insert(page, id);
            });
        }
    }

    /// Whether `nr_pages` more do not fit. The limit is found when it is hit first.
    fn over_limit(&mut self, nr_pages: u64) -> bool {
        let store = &self.cache.store;
        let nr_charged = store.pages.len() as u64 + store.nr_tree_pages();
        if self.limit.is_none() && store.pages.len() as u64 + nr_pages > self.nr_pages_at_limit {
            self.limit = Some(self.nr_pages_at_limit + store.nr_tree_pages());
        }
        self.limit.is_some_and(|limit| nr_charged + nr_pages > limit)
    }

    /// The lists, and what they look at.
    fn split(&mut self) -> (&mut TwoList, View<'_>) {
        let recency = self.cache.lists.rules().recency;
        let Cache { store, lists } = &mut self.cache;
        (lists, View { store, mappings: &mut self.mappings, files: &self.files, recency })
    }
}

/// Whether references through a mapping count.
fn counts(recency: Recency, advice: MapAdvice, noreuse: bool) -> bool {
    match recency {
        Recency::NotAdvised => advice == MapAdvice::Normal && !noreuse,
        Recency::NotSequential => advice != MapAdvice::Sequential,
    }
}

/// Folios as reclaim sees them.
struct View<'a> {
    store: &'a mut Store,
    mappings: &'a mut BTreeMap<u64, (u64, MappedFile)>,
    files: &'a BTreeMap<u64, File>,
    recency: Recency,
}

impl Folios for View<'_> {
    fn references(&mut self, folio: FolioId) -> References {
        let Folio { first, order } = self.store.folio_of[&folio];
        let mut references = References::default();
        for (fd, mapped) in self.mappings.values_mut() {
            let noreuse = self.files[fd].flags.noreuse;
            let mut used = false;
            for page in (first.0..first.0 + (1 << order)).map(PageIndex) {
                let Some(vma) = mapped.vma(page) else { continue };
                let counts = counts(self.recency, vma.advice, noreuse);
                // Bits that do not count are left alone since 6.3, and cleared before.
                if let Some(pte) = mapped.cache_entry(page)
                    && (counts || self.recency == Recency::NotSequential)
                {
                    used |= std::mem::replace(&mut pte.accessed, false) && counts;
                }
            }
            references.nr_mappings += u32::from(used);
            references.exec |= used && mapped.protection().exec;
        }
        references
    }

    fn condition(&self, _folio: FolioId) -> Condition {
        Condition::Clean
    }

    fn is_mapped(&self, folio: FolioId) -> bool {
        let Folio { first, order } = self.store.folio_of[&folio];
        let mut pages = (first.0..first.0 + (1 << order)).map(PageIndex);
        pages.any(|page| self.mappings.values().any(|(_, mapped)| mapped.is_mapped(page)))
    }

    fn file_is_mapped(&self, _folio: FolioId) -> bool {
        !self.mappings.is_empty()
    }

    fn evict(&mut self, folio: FolioId, shadow: Shadow) {
        let Folio { first, order } = self.store.folio_of[&folio];
        for page in first.0..first.0 + (1 << order) {
            for (_, mapped) in self.mappings.values_mut() {
                mapped.remove_entry(PageIndex(page));
            }
        }
        self.store.forget(folio, Some(shadow));
    }
}

struct Cache {
    store: Store,
    lists: TwoList,
}

/// The page cache without its lists.
#[derive(Default)]
struct Store {
    size_bytes: u64,
    limits: Limits,
    pages: BTreeMap<u64, FolioId>,
    folio_of: BTreeMap<FolioId, Folio>,
    shadows: BTreeMap<u64, Shadow>,
    markers: BTreeSet<u64>,
    /// Folios added by the policy that have not been charged yet.
    pending: Vec<Folio>,
    /// New folios are dropped behind the read.
    dropbehind: bool,
    behind: BTreeSet<FolioId>,
    /// Nodes of the tree that exist, on its two lowest levels.
    nodes: [BTreeSet<u64>; 2],
    evicted: Vec<u64>,
}

impl Store {
    fn forget(&mut self, id: FolioId, shadow: Option<Shadow>) {
        let Folio { first, order } = self.folio_of.remove(&id).expect("it is cached");
        for page in first.0..first.0 + (1 << order) {
            self.pages.remove(&page);
            self.evicted.push(page);
            if let Some(shadow) = shadow {
                self.shadows.insert(page, shadow);
            }
        }
        self.markers.remove(&first.0);
        self.behind.remove(&id);
    }

    fn charge(&mut self, folio: &Folio) {
        self.nodes[0].insert(folio.first.0 / NODE_PAGES);
        self.nodes[1].insert(folio.first.0 / (NODE_PAGES * NODE_PAGES));
    }

    /// Pages that the tree's nodes take.
    fn nr_tree_pages(&self) -> u64 {
        let nr_nodes: u64 = self.nodes.iter().map(|nodes| nodes.len() as u64).sum();
        (nr_nodes * NODE_BYTES).div_ceil(PAGE_BYTES)
    }

    fn pending(&self, page: PageIndex) -> Option<Folio> {
        self.pending.iter().find(|folio| folio.first <= page && page.0 < folio.first.0 + (1 << folio.order)).copied()
    }
}

impl Mapping for Cache {
    fn size_bytes(&self) -> u64 {
        self.store.size_bytes
    }

    fn limits(&self) -> Limits {
        self.store.limits
    }

    fn congested(&self) -> bool {
        false
    }

    fn present(&self, page: PageIndex) -> bool {
        self.folio(page).is_some()
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
        self.folio(page).is_some_and(|folio| self.store.markers.contains(&folio.first.0))
    }

    fn folio(&self, page: PageIndex) -> Option<Folio> {
        match self.store.pages.get(&page.0) {
            Some(id) => Some(self.store.folio_of[id]),
            None => self.store.pending(page),
        }
    }

    fn clean_run(&self, page: PageIndex, nr_pages: u64) -> u64 {
        let clean = |page| self.present(page) && !self.marked(page);
        (0..nr_pages).take_while(|ahead| clean(page.plus(*ahead))).count() as u64
    }

    fn clear_marker(&mut self, page: PageIndex) {
        if let Some(folio) = self.folio(page) {
            self.store.markers.remove(&folio.first.0);
        }
    }

    fn read_pages(&mut self, window: &Window) -> u64 {
        let pages = (window.start.0..window.start.0 + window.nr_pages).map(PageIndex);
        let absent: Vec<Folio> =
            pages.filter(|page| !self.present(*page)).map(|first| Folio { first, order: 0 }).collect();
        self.read_folios(window, &absent);
        absent.len() as u64
    }

    fn read_folios(&mut self, window: &Window, folios: &[Folio]) {
        self.store.pending.extend_from_slice(folios);
        let markers = folios.iter().filter(|folio| window.marker == Some(folio.first));
        self.store.markers.extend(markers.map(|folio| folio.first.0));
    }
}

impl FaultCache for Cache {
    fn workingset(&self, page: PageIndex) -> bool {
        self.store.pages.get(&page.0).is_some_and(|id| self.lists.is_workingset(*id))
    }
}
