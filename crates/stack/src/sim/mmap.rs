//! Reads and writes through mappings: touches of pages, the faults they take, and what reclaim sees of them.
//!
//! ```text
//! read     touches the pages of the range one after the other; a mapped page costs no more than its copying
//! fault    the kernel's model of it is turned: its windows are submitted, its waits are slept
//! write    the same with stores; a page that was clean becomes dirty (a write fault if it was mapped), the file's time
//!          changes, and the dirty limits hold the writer back; the flusher writes the page like any other
//! reclaim  a folio used through a mapping since the last look goes round once more, and becomes active when used
//!          again; a folio that leaves the cache is unmapped, so that the next touch takes a fault
//! ```
//! Source: mm/filemap.c (`filemap_fault`), mm/memory.c (`do_shared_fault`), mm/vmscan.c (`folio_check_references`);
//! [`crate::fault`] and [`crate::advice`] say what the kernels do differently.
//!
//! Known deviations: one shared mapping of the whole file for each set of descriptors, aligned to page tables, made
//! when it is first needed and never unmapped; stores to clean pages fault on every kernel (since 2.6.19; before, msync
//! and reclaim looked for them); a store joins the running transaction of ext3 at once, not when
//! the page is written; processes that share descriptors share page tables; the accessed bits of pages that move
//! from the active to the inactive list stay as they are; a page that is being written may be stored to.

use super::World;
use crate::event::{Dir, FileId, Op, What};
use crate::fault::{Access, FaultEnd, FaultStep, MapAdvice, MappedFile, MmapMiss, Protection};
use crate::filesystem::Ordered;
use crate::page_cache::Flag;
use crate::units::{PAGE_BYTES, PageIndex};

/// A mapping of an open file.
pub(super) struct OpenMapping {
    /// Its page tables.
    pub(super) mapped: MappedFile,
    /// The open file's count of its misses.
    pub(super) misses: MmapMiss,
}

/// The mappings of all open files.
pub(super) struct Mappings {
    of_descriptor: Vec<Option<Box<OpenMapping>>>,
    /// Descriptors through which each file is mapped.
    of_file: Vec<Vec<usize>>,
    /// Use through mappings with random advice does not count.
    random_is_no_use: bool,
}

impl Mappings {
    pub(super) fn new(nr_files: usize, nr_descriptors: usize) -> Mappings {
        let mut of_descriptor = Vec::new();
        of_descriptor.resize_with(nr_descriptors, || None);
        Mappings { of_descriptor, of_file: vec![Vec::new(); nr_files], random_is_no_use: false }
    }

    /// Sets what this kernel makes of random mappings.
    pub(super) fn set_random_is_no_use(&mut self, random_is_no_use: bool) {
        self.random_is_no_use = random_is_no_use;
    }

    /// Maps the whole file unless that descriptor has mapped it, some regions executable.
    pub(super) fn open(
        &mut self,
        descriptor: usize,
        file: FileId,
        nr_pages: u64,
        executable: &[(PageIndex, PageIndex)],
    ) {
        if self.of_descriptor[descriptor].is_none() {
            let protection = Protection { exec: false, shared: true };
            let mut mapped = MappedFile::new(PageIndex(0), nr_pages, 0, protection);
            executable.iter().for_each(|(first, end)| mapped.make_executable(*first, *end));
            self.of_descriptor[descriptor] = Some(Box::new(OpenMapping { mapped, misses: MmapMiss::default() }));
            self.of_file[file.0 as usize].push(descriptor);
        }
    }

    /// The mapping of a descriptor, if there is one.
    pub(super) fn get_mut(&mut self, descriptor: usize) -> Option<&mut OpenMapping> {
        self.of_descriptor[descriptor].as_deref_mut()
    }

    /// Number of mappings through which a folio has been used since the last call.
    pub(super) fn take_uses(&mut self, file: FileId, first: PageIndex, nr_pages: u64) -> u32 {
        let mut uses = 0;
        for &descriptor in &self.of_file[file.0 as usize] {
            let Some(open) = &mut self.of_descriptor[descriptor] else { continue };
            let mut used = false;
            for page in (first.0..first.0 + nr_pages).map(PageIndex) {
                let Some(vma) = open.mapped.vma(page) else { continue };
                if vma.advice == MapAdvice::Random && self.random_is_no_use {
                    continue;
                }
                if let Some(entry) = open.mapped.cache_entry(page) {
                    used |= std::mem::take(&mut entry.accessed) && vma.advice != MapAdvice::Sequential;
                }
            }
            uses += u32::from(used);
        }
        uses
    }

    /// Unmaps pages that leave the cache.
    pub(super) fn unmap(&mut self, file: FileId, first: PageIndex, nr_pages: u64) {
        for &descriptor in &self.of_file[file.0 as usize] {
            if let Some(open) = &mut self.of_descriptor[descriptor] {
                for page in first.0..first.0 + nr_pages {
                    open.mapped.remove_entry(PageIndex(page));
                }
            }
        }
    }
}

/// Result of a touch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Touch {
    /// Nothing: the page was mapped.
    Mapped,
    /// A fault that did not sleep.
    Faulted,
    /// A fault that slept until the page was read.
    Waited,
}

impl World<'_, '_> {
    /// Reads or writes a range of a file through a mapping. Returns its bytes.
    pub(super) async fn touch_range(
        &self,
        op: Op,
        descriptor: usize,
        file: FileId,
        offset: u64,
        len_bytes: u32,
    ) -> u64 {
        self.vfs.borrow_mut().map_file(descriptor, file, &self.plan.stack.readahead);
        let access = if op == Op::Write { Access::Write } else { Access::Read };
        let end_offset = (offset + u64::from(len_bytes)).min(self.vfs.borrow().file_bytes(file));
        let end = end_offset.div_ceil(PAGE_BYTES);
        let mut hits = 0;
        for page in PageIndex::of(offset).0..end {
            let page = PageIndex(page);
            let touch = if access == Access::Write {
                self.store(descriptor, file, page).await
            } else {
                self.touch(descriptor, file, page, access).await
            };
            self.charge(self.machine.page_copy);
            hits = if touch == Touch::Waited { 0 } else { hits + 1 };
            // Neighbours that were there are one event, as in a read call.
            let last = page.0 + 1 == end || !self.vfs.borrow_mut().is_mapped(descriptor, page.plus(1));
            if access == Access::Read && last && hits > 0 {
                let first = PageIndex(page.0 + 1 - hits);
                self.event(What::Hit { file, page: first, nr_pages: hits as u32 });
                hits = 0;
            }
        }
        if std::mem::take(&mut self.vfs.borrow_mut().reclaim_met_dirty) {
            self.kick_writeback();
        }
        end_offset.saturating_sub(offset)
    }

    /// Touches one page, which is mapped and up to date afterwards.
    async fn touch(&self, descriptor: usize, file: FileId, page: PageIndex, access: Access) -> Touch {
        let Some(mut fault) = self.vfs.borrow_mut().fault_of(descriptor, page, access) else { return Touch::Mapped };
        self.charge(self.machine.fault);
        let (mut touch, mut held) = (Touch::Faulted, None);
        loop {
            let (step, nr_mapped) = {
                let congested = self.block.borrow().congested(Dir::Read);
                let at = (self.now.get(), self.call_id());
                let mut vfs = self.vfs.borrow_mut();
                let rec = &mut self.rec.borrow_mut();
                let step = vfs.step_fault(&mut fault, &self.fault, (descriptor, file), congested, at, rec);
                if let Some(page) = held.take() {
                    vfs.cache.release(file, page);
                }
                step
            };
            self.charge(self.machine.map_page * nr_mapped);
            match step {
                FaultStep::Submitted => self.carry_out().await,
                FaultStep::Wait(page) => {
                    if touch != Touch::Waited {
                        touch = Touch::Waited;
                        self.event(What::Miss { file, page });
                    }
                    self.vfs.borrow_mut().cache.hold(file, page);
                    held = Some(page);
                    self.wait_page(file, page).await;
                }
                FaultStep::Done(end) => {
                    debug_assert_ne!(end, FaultEnd::BusError, "calls are within their file");
                    self.event(What::Fault { file, page, major: end == FaultEnd::Major });
                    return touch;
                }
            }
        }
    }

    /// Stores to one page, which is dirty afterwards.
    async fn store(&self, descriptor: usize, file: FileId, page: PageIndex) -> Touch {
        if !self.vfs.borrow().cache.is(file, page, Flag::Dirty) {
            self.touch_mtime(file).await;
        }
        let ordered = self.fs.ordered == Ordered::Written && !self.vfs.borrow().is_device(file);
        let handle = if ordered { Some(self.start_handle().await) } else { None };
        let touch = self.touch(descriptor, file, page, Access::Write).await;
        // Nothing can come between the end of the touch and this: the page is there.
        let dirtied = {
            let mut vfs = self.vfs.borrow_mut();
            let dirtied = !vfs.cache.is(file, page, Flag::Dirty);
            if dirtied {
                vfs.cache.set(file, page, 1, Flag::Dirty, true);
                vfs.files[file.0 as usize].dirty_since.get_or_insert(self.now.get());
            }
            dirtied
        };
        if let Some(handle) = handle {
            if dirtied {
                self.attach(handle, file, page);
            }
            self.stop_handle(handle, false).await;
        }
        if dirtied {
            if touch == Touch::Mapped {
                self.charge(self.machine.fault);
                self.event(What::Fault { file, page, major: false });
            }
            self.balance_dirty(PAGE_BYTES as u32).await;
        }
        touch
    }
}
