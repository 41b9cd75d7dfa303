//! Direct I/O: the cached pages of the range are written and dropped as the kernel's rules say, then the device is
//! used.

use super::{BIO_MAX_PAGES, Class, Done, World};
use crate::direct_io::bios::{Assembly, Bio, Buffer, Disk};
use crate::direct_io::{After, InodeLock};
use crate::event::{Content, Dir, Eviction, FileId, Op, UnplugCause, What};
use crate::page_cache::Flag;
use crate::plug::Plugging;
use crate::units::{PAGE_BYTES, PageIndex, SECTOR_BYTES, Sector};

/// Properties that disks have in common here.
const DISK: Disk = Disk {
    logical: SECTOR_BYTES,
    physical: SECTOR_BYTES,
    max_sectors: 0,
    max_segments: 0,
    segment_bytes: 65_536,
    chunk_sectors: 0,
    dma_mask: SECTOR_BYTES - 1,
};

/// The cached pages of a file as of one of its changes.
#[derive(Clone, Debug, Default)]
pub(super) struct CachedRuns {
    changes: u64,
    /// First page, pages.
    runs: Vec<(u64, u64)>,
}

impl World<'_, '_> {
    /// A read or write past the page cache, to its end. Returns the bytes moved.
    pub(super) async fn direct_io(&self, op: Op, file: FileId, offset: u64, len_bytes: u32) -> u64 {
        let locks = self.direct_locks(file);
        if locks {
            self.lock_inode(file).await;
        }
        let counter = self.sched.borrow_mut().new_counter(self.current.get());
        let moved = self.direct_submit(op, file, offset, len_bytes, counter, false).await;
        if locks && op == Op::Read {
            self.unlock_inode(file);
        }
        self.wait_counter(counter).await;
        if op == Op::Write {
            self.invalidate(file, offset, moved).await;
            if locks {
                self.unlock_inode(file);
            }
        }
        moved
    }

    /// Whether direct calls on the file take its inode's lock for themselves.
    pub(super) fn direct_locks(&self, file: FileId) -> bool {
        self.direct.inode_lock == InodeLock::Exclusive
            && !self.fs.shares_direct_writes
            && !self.vfs.borrow().is_device(file)
    }

    /// The submission of such a call; each of its bios is counted by `counter`. Returns the bytes it will move.
    pub(super) async fn direct_submit(
        &self,
        op: Op,
        file: FileId,
        offset: u64,
        len_bytes: u32,
        counter: u32,
        asynchronous: bool,
    ) -> u64 {
        let dir = if op == Op::Read { Dir::Read } else { Dir::Write };
        let end_offset = (offset + u64::from(len_bytes)).min(self.vfs.borrow().file_bytes(file));
        let (first, end) = (PageIndex::of(offset), PageIndex(end_offset.div_ceil(PAGE_BYTES)));
        self.settle().await;
        if dir == Dir::Write {
            self.touch_mtime(file).await;
        }
        self.write_and_wait(file, first, end).await;
        if dir == Dir::Write {
            self.invalidate(file, offset, end_offset.saturating_sub(offset)).await;
        }
        self.charge(self.direct.page * end.0.saturating_sub(first.0));
        let plug = self.direct.plug;
        if plug {
            self.start_plug();
        }
        let class = Class { sync: dir == Dir::Read || self.direct.sync, no_idle: false };
        let transfer_end = self.transfer_end(op, file, offset, len_bytes).max(end_offset);
        let (mut at, mut bio) = (offset, Bio::default());
        while at < transfer_end {
            let page = PageIndex::of(at);
            self.map(file, page).await;
            let sector = self.vfs.borrow().sector_of(&self.fs, file, page).plus(at % PAGE_BYTES / SECTOR_BYTES);
            let next = at + self.next_part(&mut bio, file, sector, (offset, at, transfer_end));
            let nr_sectors = (next - at).div_ceil(SECTOR_BYTES) as u32;
            self.sched.borrow_mut().count_up(counter);
            self.submit_as(class, dir, Content::Data, (sector, nr_sectors), false, Done::Counted(counter)).await;
            if class.sync && dir == Dir::Write && matches!(self.plugging, Plugging::Queue { .. }) {
                // A bio that is marked synchronous does not wait for others to join it.
                self.block.borrow_mut().unplug(self.now.get(), UnplugCause::Waiter, &mut self.rec.borrow_mut());
                self.after_block();
            }
            at = next;
        }
        if plug {
            self.finish_plug();
        }
        if asynchronous && !self.direct.batch && matches!(self.plugging, Plugging::Queue { .. }) {
            // Nobody may come to wait for this call soon, and in 2.4 the plug would stay for seconds.
            self.kick_io();
        }
        if asynchronous && dir == Dir::Write && self.direct.after == After::Always {
            self.invalidate(file, offset, end_offset.saturating_sub(offset)).await;
        }
        end_offset.saturating_sub(offset)
    }

    /// Where the transfer of a call ends: whole sectors, and of a file that is read its last block.
    fn transfer_end(&self, op: Op, file: FileId, offset: u64, len_bytes: u32) -> u64 {
        let (end, vfs) = (offset + u64::from(len_bytes), self.vfs.borrow());
        let file_bytes = vfs.file_bytes(file);
        if self.direct.assembly == Assembly::Requests || offset >= file_bytes {
            return offset;
        }
        let blocks = op == Op::Read && !vfs.is_device(file);
        end.min(if blocks { file_bytes.next_multiple_of(PAGE_BYTES) } else { file_bytes })
            .next_multiple_of(SECTOR_BYTES)
    }

    /// Bytes of the next part of a call that has come from `offset` to `at`, with what is left of its bio.
    fn next_part(&self, bio: &mut Bio, file: FileId, sector: Sector, (offset, at, end): (u64, u64, u64)) -> u64 {
        let page = PageIndex::of(at);
        let (block, nr_pages) = (self.block.borrow(), self.vfs.borrow().pages_to_boundary(&self.fs, file, page));
        let until = |nr_pages: u64| page.0.saturating_add(nr_pages).saturating_mul(PAGE_BYTES).min(end);
        if self.direct.assembly == Assembly::Requests {
            return until(nr_pages.min(BIO_MAX_PAGES).min(block.max_pages()).max(1)) - at;
        }
        let disk = Disk { max_sectors: block.max_sectors().into(), max_segments: block.max_segments().into(), ..DISK };
        if bio.bytes() == 0 {
            let left = (until(nr_pages) - at).next_multiple_of(SECTOR_BYTES);
            *bio = Bio::assemble(self.direct.assembly, &disk, Buffer::APART, at - offset, left);
        }
        bio.cut(&disk, sector.0)
    }

    /// Writes the dirty cached pages of a range and waits for them (`filemap_write_and_wait_range`).
    pub(super) async fn write_and_wait(&self, file: FileId, first: PageIndex, end: PageIndex) {
        if self.vfs.borrow().cache.file_pages(file) == 0 {
            return;
        }
        let mut at = first;
        loop {
            let next = self.vfs.borrow().cache.next_with_before(file, at, end, Flag::Dirty);
            let Some(page) = next else { break };
            self.write_run(file, page, 1).await;
            at = page.plus(1);
        }
        let mut at = first;
        loop {
            let next = self.vfs.borrow().cache.next_with_before(file, at, end, Flag::Writeback);
            let Some(page) = next else { break };
            self.wait_page_written(file, page).await;
            at = page.plus(1);
        }
    }

    /// Drops the cached pages of a range that are not in use; pays for looking for them if there are any in the file.
    async fn invalidate(&self, file: FileId, offset: u64, len_bytes: u64) {
        if len_bytes == 0 || self.vfs.borrow().cache.file_pages(file) == 0 {
            return;
        }
        let (first, end) = (PageIndex::of(offset), PageIndex((offset + len_bytes).div_ceil(PAGE_BYTES)));
        self.charge_lookup(file, first, end);
        self.drop_pages(file, first, end);
        self.settle().await;
    }

    fn charge_lookup(&self, file: FileId, first: PageIndex, end: PageIndex) {
        let changes = self.vfs.borrow().cache.file_changes(file);
        let mut cached = self.cached_runs.borrow_mut();
        let cached = &mut cached[file.0 as usize];
        if cached.changes != changes {
            *cached = CachedRuns { changes, runs: self.vfs.borrow().cached_runs(file) };
        }
        self.charge(self.direct.lookup_cost(&cached.runs, first.0, end.0 - first.0));
    }

    /// Drops the clean pages of a range that are not in use.
    pub(super) fn drop_pages(&self, file: FileId, first: PageIndex, end: PageIndex) {
        let mut at = first;
        loop {
            let next = self.vfs.borrow().cache.next_with_before(file, at, end, Flag::Present);
            let Some(page) = next else { return };
            at = page.plus(1);
            let gone = {
                let mut vfs = self.vfs.borrow_mut();
                if vfs.cache.is_busy(file, page) { None } else { vfs.remove(file, page) }
            };
            if let Some((page, nr_pages)) = gone {
                let cause = Eviction::Dropped;
                self.event(What::PageRemove { file, page, nr_pages: nr_pages as u32, cause });
            }
        }
    }
}
