//! Files, open files, and the page cache as the read-ahead policies see it.

use std::collections::{BTreeMap, BTreeSet};

use super::journal::Inode;
use super::mmap::Mappings;
use super::tasks::TaskId;
use crate::advice::{self, FileAdvice, FileFlags};
use crate::event::{CallId, Eviction, FileId, RaClose, RaKind, What};
use crate::fault::{self, Access, Fault, FaultCache, FaultContext, FaultStep, MapAdvice};
use crate::filesystem::{Groups, Rules};
use crate::job::{Extent, FileSpec, Job, Place};
use crate::kernel::Chosen;
use crate::page_cache::{Flag, PageCache, RECLAIM_BATCH};
use crate::read_loop::{ReadLoop, Step};
use crate::readahead::{Advice, Build, Folio, Limits, Mapping, ReadRequest, Readahead, Window};
use crate::record::Recorder;
use crate::units::{self, Nanos, PAGE_BYTES, PAGE_SECTORS, PageIndex, Sector};
use crate::workload::Target;

/// A block that maps file data to disk.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum MapState {
    /// Not in memory.
    Absent,
    /// Being read.
    Reading,
    /// In memory, for good.
    Cached,
}

/// A file of the workload.
#[derive(Clone, Debug)]
pub(super) struct File {
    /// Its size.
    pub(super) bytes: u64,
    /// On the bare device: its first sector.
    pub(super) device: Option<Sector>,
    /// Blocks between the first file of the file system and this one.
    base: u64,
    /// Where blocks are that do not follow it, in order.
    extents: Vec<Extent>,
    mapping: Vec<MapState>,
    /// Open descriptors of the device; the pages go with the last.
    pub(super) openers: u32,
    pub(super) inode: Inode,
    /// When its oldest dirty page was dirtied.
    pub(super) dirty_since: Option<Nanos>,
    /// Its end, if files are empty at first.
    pub(super) written_end: u64,
    /// Pages without blocks.
    pub(super) holes: BTreeSet<u64>,
    /// Pages that are mapped executable: from, to before.
    executable: Vec<(PageIndex, PageIndex)>,
}

/// A decision of a read-ahead policy that has been put into the page cache and must now be submitted.
#[derive(Clone, Debug)]
pub(super) struct Submission {
    /// Of which file.
    pub(super) file: FileId,
    /// Runs of new pages: first page, pages.
    pub(super) runs: Vec<(PageIndex, u64)>,
    /// They lie ahead of the reader.
    pub(super) ahead: bool,
    /// Its pages have not been added yet: the look-up of their blocks adds them.
    pub(super) planned: bool,
    /// The page that gets the marker of a planned submission.
    pub(super) marker: Option<PageIndex>,
}

type PageWaiters = BTreeMap<(FileId, PageIndex), Vec<TaskId>>;

/// Files and their pages.
pub(super) struct Vfs {
    pub(super) cache: PageCache,
    pub(super) files: Vec<File>,
    /// Runs whose pages have been added and not been submitted.
    pub(super) pending: Vec<Submission>,
    /// Dirty pages that reclaim met: writeback should run.
    pub(super) reclaim_met_dirty: bool,
    /// Syncs that found no page to write.
    pub(super) empty_syncs: u64,
    /// Pages dirtied since a writer last looked at the limits.
    pub(super) dirtied_pages: u64,
    /// The writeback daemon was asked to work.
    pub(super) background_wanted: bool,
    /// Mappings of open files.
    pub(super) mappings: Mappings,
    descriptors: Vec<Option<Box<dyn Readahead>>>,
    /// This kernel's policy need not see reads that hit.
    hits_are_silent: bool,
    /// It has the queue run after windows ahead of the reader.
    pub(super) kicks_queue: bool,
    limits: Limits,
    add_as_mapped: bool,
    /// The waiter for a page is woken when the one before it has had the page's lock.
    pub(super) wakes_one: bool,
    read_waiters: PageWaiters,
    write_waiters: PageWaiters,
    mapping_waiters: BTreeMap<(FileId, u32), Vec<TaskId>>,
}

impl Vfs {
    /// Files on a device of that size. Block groups are given up if the room that whole files leave behind in them is
    /// needed.
    pub(super) fn fitting(
        specs: &[FileSpec],
        rules: &mut Rules,
        limits: Limits,
        cache_pages: u64,
        nr_descriptors: usize,
        nr_sectors: u64,
    ) -> (Vfs, u64) {
        let made = Vfs::new(specs, rules, limits, cache_pages, nr_descriptors);
        if !rules.groups || rules.end(made.1).0 <= nr_sectors {
            return made;
        }
        rules.groups = false;
        Vfs::new(specs, rules, limits, cache_pages, nr_descriptors)
    }

    /// Files as the job describes them, none of them cached. Returns the blocks that the file system needs, too.
    pub(super) fn new(
        specs: &[FileSpec],
        rules: &Rules,
        limits: Limits,
        cache_pages: u64,
        nr_descriptors: usize,
    ) -> (Vfs, u64) {
        let mut nr_blocks = 0;
        let mut groups = rules.groups.then(|| Groups::new(rules));
        let mut files = Vec::with_capacity(specs.len());
        for (number, spec) in specs.iter().enumerate() {
            let nr_pages = spec.bytes.div_ceil(PAGE_BYTES);
            let (device, nr_mapping) = match spec.place {
                Place::FileSystem => (None, rules.nr_mapping_blocks(nr_pages)),
                Place::Device { start } => (Some(start), 0),
            };
            let base = nr_blocks;
            let mut extents = Vec::new();
            match &mut groups {
                _ if device.is_some() => {}
                None => nr_blocks += rules.file_blocks(nr_pages),
                Some(groups) => {
                    let mut page = 0;
                    for (block, nr_pages) in groups.place(rules.file_blocks(nr_pages)) {
                        extents.push(Extent { file: number as u32, page, nr_pages, sector: rules.sector(block) });
                        page += nr_pages;
                        nr_blocks = nr_blocks.max((block + nr_pages).saturating_sub(rules.files_start()));
                    }
                }
            }
            let mapping = vec![MapState::Absent; nr_mapping as usize];
            let inode = Inode::default();
            files.push(File {
                bytes: spec.bytes,
                device,
                base,
                extents,
                mapping,
                openers: 0,
                inode,
                dirty_since: None,
                written_end: 0,
                holes: BTreeSet::new(),
                executable: Vec::new(),
            });
        }
        let mut descriptors = Vec::new();
        descriptors.resize_with(nr_descriptors, || None);
        let vfs = Vfs {
            cache: PageCache::new(specs.len() as u32, cache_pages),
            mappings: Mappings::new(specs.len(), nr_descriptors),
            files,
            pending: Vec::new(),
            reclaim_met_dirty: false,
            empty_syncs: 0,
            dirtied_pages: 0,
            background_wanted: false,
            descriptors,
            hits_are_silent: false,
            kicks_queue: false,
            limits,
            add_as_mapped: rules.add_as_mapped,
            wakes_one: false,
            read_waiters: BTreeMap::new(),
            write_waiters: BTreeMap::new(),
            mapping_waiters: BTreeMap::new(),
        };
        (vfs, nr_blocks)
    }

    /// Puts the state at the start of the run into the cache.
    pub(super) fn start(&mut self, job: &Job, mapping_cached: bool) {
        for extent in &job.extents {
            self.files[extent.file as usize].extents.clear();
        }
        for extent in &job.extents {
            self.files[extent.file as usize].extents.push(*extent);
        }
        let pages = |region: &Target| {
            let end = (region.start + region.len_bytes).div_ceil(PAGE_BYTES);
            (region.file as usize, PageIndex::of(region.start), PageIndex(end))
        };
        for (file, first, end) in job.holes.iter().map(pages) {
            self.files[file].holes.extend(first.0..end.0);
        }
        for (file, first, end) in job.executable.iter().map(pages) {
            self.files[file].executable.push((first, end));
        }
        for (file, mut at, end) in job.cached.iter().map(pages) {
            let file = FileId(file as u32);
            while let Some((first, nr_pages)) = self.cache.next_absent_run(file, at, end) {
                at = first.plus(nr_pages);
                let room = self.cache.capacity().saturating_sub(self.cache.nr_pages());
                for page in (first.0..at.0).take(room as usize).map(PageIndex) {
                    self.cache.add(file, Folio { first: page, order: 0 }, true);
                }
            }
        }
        let mut warm = super::tail_pages(job.cache).min(self.cache.capacity());
        let mut warm_of = vec![0; self.files.len()];
        for (file, warm_pages) in self.files.iter_mut().zip(&mut warm_of).rev() {
            *warm_pages = warm.min(file.bytes.div_ceil(PAGE_BYTES));
            warm -= *warm_pages;
            if mapping_cached || *warm_pages > 0 {
                file.mapping.fill(MapState::Cached);
            }
        }
        for (index, warm_pages) in warm_of.into_iter().enumerate() {
            let nr_pages = self.files[index].bytes.div_ceil(PAGE_BYTES);
            for page in nr_pages - warm_pages..nr_pages {
                self.cache.add(FileId(index as u32), Folio { first: PageIndex(page), order: 0 }, true);
            }
        }
    }

    #[inline]
    pub(super) fn file_bytes(&self, file: FileId) -> u64 {
        self.files[file.0 as usize].bytes
    }

    /// Whether a file is a bare device.
    #[inline]
    pub(super) fn is_device(&self, file: FileId) -> bool {
        self.files[file.0 as usize].device.is_some()
    }

    /// Where a page of a file lies.
    pub(super) fn sector_of(&self, rules: &Rules, file: FileId, page: PageIndex) -> Sector {
        let file = &self.files[file.0 as usize];
        match file.device {
            Some(start) => start.plus(page.0 * PAGE_SECTORS),
            None => {
                let before = file.extents.partition_point(|extent| extent.page <= page.0);
                match before.checked_sub(1).map(|last| file.extents[last]) {
                    Some(extent) => extent.sector.plus((page.0 - extent.page) * PAGE_SECTORS),
                    None => rules.sector_of(file.base, page),
                }
            }
        }
    }

    /// Where a mapping block of a file lies.
    pub(super) fn mapping_sector(&self, rules: &Rules, file: FileId, block: u32) -> Sector {
        rules.mapping_sector(self.files[file.0 as usize].base, block)
    }

    /// Pages from `page` on that one bio may carry as far as the file's layout is concerned.
    pub(super) fn pages_to_boundary(&self, rules: &Rules, file: FileId, page: PageIndex) -> u64 {
        if self.is_device(file) {
            return u64::MAX;
        }
        let extents = &self.files[file.0 as usize].extents;
        let next = extents.get(extents.partition_point(|extent| extent.page <= page.0));
        next.map_or(u64::MAX, |next| next.page - page.0).min(rules.pages_to_boundary(page))
    }

    /// The program's advice on an open file, and on its mapping if it has one.
    pub(super) fn advise(
        &mut self,
        (descriptor, file): (usize, FileId),
        ra: &Chosen<Build>,
        rules: &advice::Rules,
        advice: Advice,
        at: (Nanos, CallId),
        rec: &mut Recorder<'_>,
    ) {
        let limits = self.limits;
        let file_bytes = self.file_bytes(file);
        let ra = self.descriptors[descriptor].get_or_insert_with(|| (ra.entry.build)(&ra.options, &limits));
        let mut view = View {
            cache: &mut self.cache,
            mappings: None,
            pending: &mut self.pending,
            add_as_mapped: self.add_as_mapped,
            met_dirty: &mut self.reclaim_met_dirty,
            file,
            file_bytes,
            limits,
            congested: false,
            at,
            rec,
        };
        let open = self.mappings.get_mut(descriptor);
        let of_file = match advice {
            Advice::Normal => FileAdvice::Normal,
            Advice::Random => FileAdvice::Random,
            Advice::Sequential => FileAdvice::Sequential,
            Advice::WillNeed { .. } => FileAdvice::WillNeed,
        };
        match (advice, open) {
            (Advice::WillNeed { offset, len_bytes }, Some(open)) => {
                let end = if len_bytes == 0 { file_bytes } else { offset + len_bytes };
                let range = (PageIndex::of(offset), PageIndex(end.div_ceil(PAGE_BYTES)));
                advice::mapping_will_need(open.mapped.parts(range.0, range.1), ra.as_mut(), &mut view);
            }
            (_, open) => {
                let range = match advice {
                    Advice::WillNeed { offset, len_bytes } => (offset, len_bytes),
                    _ => (0, 0),
                };
                rules.advise_file(of_file, range, &mut FileFlags::default(), ra.as_mut(), &mut view);
                if let Some(open) = open {
                    let expect = match advice {
                        Advice::Random => MapAdvice::Random,
                        Advice::Sequential => MapAdvice::Sequential,
                        Advice::Normal | Advice::WillNeed { .. } => MapAdvice::Normal,
                    };
                    open.mapped.advise(PageIndex(0), PageIndex(u64::MAX), expect);
                }
            }
        }
        self.make_room(0, at, rec);
    }

    /// Opens the file if this descriptor is new, and maps it if it is not mapped.
    pub(super) fn map_file(&mut self, descriptor: usize, file: FileId, ra: &Chosen<Build>) {
        let (limits, nr_pages) = (self.limits, self.file_bytes(file).div_ceil(PAGE_BYTES));
        let ra = self.descriptors[descriptor].get_or_insert_with(|| (ra.entry.build)(&ra.options, &limits));
        self.kicks_queue = ra.kicks_queue();
        self.mappings.open(descriptor, file, nr_pages, &self.files[file.0 as usize].executable);
    }

    /// The fault that a touch of a mapped file's page takes, if any.
    pub(super) fn fault_of(&mut self, descriptor: usize, page: PageIndex, access: Access) -> Option<Fault> {
        let Some(open) = self.mappings.get_mut(descriptor) else { unreachable!("files are mapped before touches") };
        Fault::of_touch(&mut open.mapped, page, access)
    }

    /// Whether a page of a mapped file is mapped.
    pub(super) fn is_mapped(&mut self, descriptor: usize, page: PageIndex) -> bool {
        self.mappings.get_mut(descriptor).is_some_and(|open| open.mapped.is_mapped(page))
    }

    /// Turns a fault's crank once. Returns how many pages it mapped, too. Room for the pages it added is made
    /// afterwards, when the mapping is free to be looked at.
    pub(super) fn step_fault(
        &mut self,
        fault: &mut Fault,
        rules: &fault::Rules,
        (descriptor, file): (usize, FileId),
        congested: bool,
        at: (Nanos, CallId),
        rec: &mut Recorder<'_>,
    ) -> (FaultStep, u64) {
        let file_bytes = self.file_bytes(file);
        let (Some(ra), Some(open)) = (&mut self.descriptors[descriptor], self.mappings.get_mut(descriptor)) else {
            unreachable!("files are mapped before touches")
        };
        let before = open.mapped.nr_mapped();
        let mut view = View {
            cache: &mut self.cache,
            mappings: None,
            pending: &mut self.pending,
            // A fault has the mapping in hand, and its pages at once.
            add_as_mapped: false,
            met_dirty: &mut self.reclaim_met_dirty,
            file,
            file_bytes,
            limits: self.limits,
            congested,
            at,
            rec,
        };
        let mut context =
            FaultContext { ra: ra.as_mut(), misses: &open.misses, mapped: &mut open.mapped, cache: &mut view };
        let step = fault.step(rules, &mut context);
        let nr_mapped = open.mapped.nr_mapped().saturating_sub(before);
        // A fault that has ended added nothing, and its page must not go before it was used.
        if !matches!(step, FaultStep::Done(_)) {
            self.make_room(0, at, rec);
        }
        (step, nr_mapped)
    }

    /// Takes a page's folio out of the cache and out of all mappings. Returns its first page and length.
    pub(super) fn remove(&mut self, file: FileId, page: PageIndex) -> Option<(PageIndex, u64)> {
        let gone = self.cache.remove(file, page);
        if let Some((first, nr_pages)) = gone {
            self.mappings.unmap(file, first, nr_pages);
        }
        gone
    }

    /// Cached runs of a file: first page, pages.
    pub(super) fn cached_runs(&self, file: FileId) -> Vec<(u64, u64)> {
        units::runs(self.cache.pages_with(file, PageIndex(0), Flag::Present).map(|page| page.0))
    }

    /// Turns a read loop's crank once.
    #[inline]
    pub(super) fn step(
        &mut self,
        read: &mut ReadLoop,
        descriptor: usize,
        file: FileId,
        congested: bool,
        at: (Nanos, CallId),
        rec: &mut Recorder<'_>,
    ) -> Step {
        let file_bytes = self.file_bytes(file);
        let Some(ra) = &mut self.descriptors[descriptor] else { unreachable!("files are opened before they are read") };
        let mut view = View {
            cache: &mut self.cache,
            mappings: Some(&mut self.mappings),
            pending: &mut self.pending,
            add_as_mapped: self.add_as_mapped,
            met_dirty: &mut self.reclaim_met_dirty,
            file,
            file_bytes,
            limits: self.limits,
            congested,
            at,
            rec,
        };
        read.step(ra.as_mut(), &mut view)
    }

    /// Begins a read call; opens the file if this descriptor is new.
    pub(super) fn begin_read(&mut self, descriptor: usize, ra: &Chosen<Build>, request: ReadRequest) -> ReadLoop {
        let limits = self.limits;
        let ra = self.descriptors[descriptor].get_or_insert_with(|| (ra.entry.build)(&ra.options, &limits));
        self.hits_are_silent = ra.asks_nothing_of_hits();
        self.kicks_queue = ra.kicks_queue();
        ReadLoop::new(ra.as_ref(), request, false)
    }

    /// A read call whose pages are all cached, in one go: the pages it touched, or `None` if it must be walked.
    #[inline]
    pub(super) fn read_cached(
        &mut self,
        descriptor: usize,
        file: FileId,
        request: &ReadRequest,
        at: (Nanos, CallId),
        rec: &mut Recorder<'_>,
    ) -> Option<(PageIndex, u64)> {
        let file_bytes = self.file_bytes(file);
        if !self.hits_are_silent || request.len_bytes == 0 || request.offset + request.len_bytes > file_bytes {
            return None;
        }
        let ra = self.descriptors[descriptor].as_mut()?;
        let first = request.first_page();
        let nr_pages = request.end_page().0 - first.0;
        if !self.cache.touch_if_clean(file, first, nr_pages) {
            return None;
        }
        let mut view = View {
            cache: &mut self.cache,
            mappings: Some(&mut self.mappings),
            pending: &mut self.pending,
            add_as_mapped: self.add_as_mapped,
            met_dirty: &mut self.reclaim_met_dirty,
            file,
            file_bytes,
            limits: self.limits,
            congested: false,
            at,
            rec,
        };
        ra.hit(&mut view, request);
        Some((first, nr_pages))
    }

    /// Makes room for `more` pages.
    pub(super) fn make_room(&mut self, more: u64, at: (Nanos, CallId), rec: &mut Recorder<'_>) {
        make_room(&mut self.cache, &mut self.mappings, more, &mut self.reclaim_met_dirty, at, rec);
    }

    /// Adds the pages of a planned submission from `first` to `end` that no other task has added. Returns them as runs.
    pub(super) fn add_planned(
        &mut self,
        file: FileId,
        (first, end): (PageIndex, PageIndex),
        marker: Option<PageIndex>,
        at: (Nanos, CallId),
        rec: &mut Recorder<'_>,
    ) -> Vec<(PageIndex, u64)> {
        self.make_room(end.0 - first.0, at, rec);
        let mut runs = Vec::new();
        let mut from = first;
        while let Some((start, nr_pages)) = self.cache.next_absent_run(file, from, end) {
            from = start.plus(nr_pages);
            for page in (start.0..from.0).map(PageIndex) {
                self.cache.add(file, Folio { first: page, order: 0 }, false);
                if marker == Some(page) {
                    self.cache.set(file, page, 1, Flag::Marked, true);
                }
            }
            rec.event(at.0, at.1, What::PageAdd { file, page: start, nr_pages: nr_pages as u32 });
            runs.push((start, nr_pages));
        }
        runs
    }

    /// Whether the blocks that map a page are in memory.
    pub(super) fn mapping_is_cached(&self, rules: &Rules, file: FileId, page: PageIndex) -> bool {
        let file = &self.files[file.0 as usize];
        let is_cached = |block: u32| file.mapping[block as usize] == MapState::Cached;
        file.device.is_some() || rules.mapping_of(page).into_iter().flatten().all(is_cached)
    }

    pub(super) fn under_writeback(&self, file: FileId, page: PageIndex) -> bool {
        self.cache.is(file, page, Flag::Writeback)
    }

    /// Whether `task` must sleep for a page that is being read; if so it will be woken.
    pub(super) fn wait_for_read(&mut self, file: FileId, page: PageIndex, task: TaskId) -> bool {
        let wait = self.cache.is(file, page, Flag::Locked);
        if wait {
            self.read_waiters.entry((file, page)).or_default().push(task);
        }
        wait
    }

    /// Whether `task` must sleep for a page that is being written; if so it will be woken.
    pub(super) fn wait_for_write(&mut self, file: FileId, page: PageIndex, task: TaskId) -> bool {
        let wait = self.cache.is(file, page, Flag::Writeback);
        if wait {
            self.write_waiters.entry((file, page)).or_default().push(task);
        }
        wait
    }

    /// Pages have been read: the tasks to wake.
    pub(super) fn read_done(&mut self, file: FileId, page: PageIndex, nr_pages: u64) -> Vec<TaskId> {
        self.cache.set(file, page, nr_pages, Flag::Uptodate, true);
        self.cache.set(file, page, nr_pages, Flag::Locked, false);
        if !self.wakes_one {
            return take_waiters(&mut self.read_waiters, file, page, nr_pages);
        }
        let pages = (file, page)..(file, page.plus(nr_pages));
        let keys: Vec<(FileId, PageIndex)> = self.read_waiters.range(pages).map(|(key, _)| *key).collect();
        keys.into_iter().filter_map(|(file, page)| self.next_read_waiter(file, page)).collect()
    }

    /// The task that has waited longest for a page, if any: it waits no more.
    pub(super) fn next_read_waiter(&mut self, file: FileId, page: PageIndex) -> Option<TaskId> {
        let waiters = self.read_waiters.get_mut(&(file, page))?;
        let first = waiters.remove(0);
        if waiters.is_empty() {
            self.read_waiters.remove(&(file, page));
        }
        Some(first)
    }

    /// Pages have been written: the tasks to wake.
    pub(super) fn write_done(&mut self, file: FileId, page: PageIndex, nr_pages: u64) -> Vec<TaskId> {
        self.cache.set(file, page, nr_pages, Flag::Writeback, false);
        take_waiters(&mut self.write_waiters, file, page, nr_pages)
    }

    /// The state of a mapping block; an absent one is being read from now on.
    pub(super) fn want_mapping(&mut self, file: FileId, block: u32) -> MapState {
        let state = &mut self.files[file.0 as usize].mapping[block as usize];
        let was = *state;
        if was == MapState::Absent {
            *state = MapState::Reading;
        }
        was
    }

    /// Whether `task` must sleep for a mapping block; if so it will be woken.
    pub(super) fn wait_for_mapping(&mut self, file: FileId, block: u32, task: TaskId) -> bool {
        let wait = self.files[file.0 as usize].mapping[block as usize] != MapState::Cached;
        if wait {
            self.mapping_waiters.entry((file, block)).or_default().push(task);
        }
        wait
    }

    /// A mapping block has been read: the tasks to wake.
    pub(super) fn mapping_done(&mut self, file: FileId, block: u32) -> Vec<TaskId> {
        self.files[file.0 as usize].mapping[block as usize] = MapState::Cached;
        self.mapping_waiters.remove(&(file, block)).unwrap_or_default()
    }
}

fn take_waiters(waiters: &mut PageWaiters, file: FileId, page: PageIndex, nr_pages: u64) -> Vec<TaskId> {
    let mut woken = Vec::new();
    while !waiters.is_empty() {
        let found = waiters.range((file, page)..(file, page.plus(nr_pages))).next().map(|(key, _)| *key);
        let Some(key) = found else { break };
        woken.extend(waiters.remove(&key).unwrap_or_default());
    }
    woken
}

fn make_room(
    cache: &mut PageCache,
    mappings: &mut Mappings,
    more: u64,
    met_dirty: &mut bool,
    at: (Nanos, CallId),
    rec: &mut Recorder<'_>,
) {
    let short = cache.shortage(more);
    if short == 0 {
        return;
    }
    let take_uses = |file, first, nr_pages| mappings.take_uses(file, first, nr_pages);
    let reclaimed = cache.reclaim(short.max(RECLAIM_BATCH), take_uses);
    *met_dirty |= !reclaimed.dirty.is_empty();
    for (file, page, nr_pages) in reclaimed.gone {
        mappings.unmap(file, page, nr_pages);
        rec.event(at.0, at.1, What::PageRemove { file, page, nr_pages: nr_pages as u32, cause: Eviction::Reclaim });
    }
}

/// One file's page cache, for the duration of one step.
struct View<'a, 's> {
    cache: &'a mut PageCache,
    /// None while a fault has one of them: room is made after it then.
    mappings: Option<&'a mut Mappings>,
    pending: &'a mut Vec<Submission>,
    add_as_mapped: bool,
    met_dirty: &'a mut bool,
    file: FileId,
    file_bytes: u64,
    limits: Limits,
    congested: bool,
    at: (Nanos, CallId),
    rec: &'a mut Recorder<'s>,
}

impl View<'_, '_> {
    fn decided(&mut self, window: &Window, order: u8) {
        let what = What::RaWindow {
            file: self.file,
            kind: window.kind,
            order,
            start: window.start,
            nr_pages: window.nr_pages as u32,
            async_size: window.async_size.unwrap_or(0) as u32,
        };
        self.rec.event(self.at.0, self.at.1, what);
    }

    fn make_room(&mut self, more: u64) {
        if let Some(mappings) = &mut self.mappings {
            make_room(self.cache, mappings, more, self.met_dirty, self.at, self.rec);
        }
    }

    fn added(&mut self, page: PageIndex, nr_pages: u64) {
        let what = What::PageAdd { file: self.file, page, nr_pages: nr_pages as u32 };
        self.rec.event(self.at.0, self.at.1, what);
    }
}

impl FaultCache for View<'_, '_> {}

impl Mapping for View<'_, '_> {
    fn size_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn congested(&self) -> bool {
        self.congested
    }

    fn present(&self, page: PageIndex) -> bool {
        self.cache.is(self.file, page, Flag::Present)
    }

    fn uptodate(&self, page: PageIndex) -> bool {
        self.cache.is(self.file, page, Flag::Uptodate)
    }

    fn locked(&self, page: PageIndex) -> bool {
        self.cache.is(self.file, page, Flag::Locked)
    }

    fn under_writeback(&self, page: PageIndex) -> bool {
        self.cache.is(self.file, page, Flag::Writeback)
    }

    fn marked(&self, page: PageIndex) -> bool {
        self.cache.is(self.file, page, Flag::Marked)
    }

    fn folio(&self, page: PageIndex) -> Option<Folio> {
        self.cache.folio(self.file, page)
    }

    fn clean_run(&self, page: PageIndex, nr_pages: u64) -> u64 {
        self.cache.clean_run(self.file, page, nr_pages)
    }

    fn clear_marker(&mut self, page: PageIndex) {
        if let Some(folio) = self.cache.folio(self.file, page) {
            self.cache.set(self.file, folio.first, 1 << folio.order, Flag::Marked, false);
        }
    }

    fn read_pages(&mut self, window: &Window) -> u64 {
        self.decided(window, 0);
        let end = window.start.plus(window.nr_pages);
        let last_page = self.file_bytes.div_ceil(PAGE_BYTES);
        let mut submission = Submission {
            file: self.file,
            runs: Vec::new(),
            ahead: window.kind == RaKind::Async,
            planned: self.add_as_mapped,
            marker: window.marker,
        };
        let mut nr_new = 0;
        let mut at = window.start;
        while let Some((first, mut nr_pages)) = self.cache.next_absent_run(self.file, at, end) {
            if submission.planned && first.0 < last_page {
                nr_pages = nr_pages.min(last_page - first.0);
                submission.runs.push((first, nr_pages));
                nr_new += nr_pages;
                at = first.plus(nr_pages);
                continue;
            }
            self.make_room(nr_pages);
            for page in first.0..first.0 + nr_pages {
                let page = PageIndex(page);
                // A page beyond the end has no block: it is zero-filled, not read.
                self.cache.add(self.file, Folio { first: page, order: 0 }, page.0 >= last_page);
                if window.marker == Some(page) {
                    self.cache.set(self.file, page, 1, Flag::Marked, true);
                }
            }
            self.added(first, nr_pages);
            let on_disk = nr_pages.min(last_page.saturating_sub(first.0));
            if on_disk > 0 {
                submission.runs.push((first, on_disk));
            }
            nr_new += nr_pages;
            at = first.plus(nr_pages);
        }
        if !submission.runs.is_empty() {
            self.pending.push(submission);
        }
        nr_new
    }

    fn read_folios(&mut self, window: &Window, folios: &[Folio]) {
        self.decided(window, folios.iter().map(|folio| folio.order).max().unwrap_or(0));
        let last_page = self.file_bytes.div_ceil(PAGE_BYTES);
        let mut runs: Vec<(PageIndex, u64)> = Vec::new();
        for folio in folios {
            let nr_pages = 1u64 << folio.order;
            self.make_room(nr_pages);
            self.cache.add(self.file, *folio, folio.first.0 >= last_page);
            if window.marker.is_some_and(|page| page.0 >= folio.first.0 && page.0 < folio.first.0 + nr_pages) {
                self.cache.set(self.file, folio.first, nr_pages, Flag::Marked, true);
            }
            match runs.last_mut() {
                Some((first, length)) if first.plus(*length) == folio.first => *length += nr_pages,
                _ => runs.push((folio.first, nr_pages)),
            }
        }
        for &(first, nr_pages) in &runs {
            self.added(first, nr_pages);
        }
        runs.retain(|(first, _)| first.0 < last_page);
        if !runs.is_empty() {
            let ahead = window.kind == RaKind::Async;
            self.pending.push(Submission { file: self.file, runs, ahead, planned: false, marker: None });
        }
    }

    fn closed(&mut self, cause: RaClose) {
        self.rec.event(self.at.0, self.at.1, What::RaClosed { file: self.file, cause });
    }

    fn reopened(&mut self) {
        self.rec.event(self.at.0, self.at.1, What::RaReopened { file: self.file });
    }
}
