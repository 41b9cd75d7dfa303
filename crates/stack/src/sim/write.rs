//! Buffered writes, syncs, and writeback.

use super::{Done, World};
use crate::event::{Content, Dir, FileId, What};
use crate::filesystem::{FsyncRule, Ordered};
use crate::page_cache::Flag;
use crate::readahead::Folio;
use crate::units::{Nanos, PAGE_BYTES, PAGE_SECTORS, PageIndex};

/// Pages that an fsync looks up at a time (`PAGEVEC_SIZE`).
const PAGES_AT_ONCE: usize = 15;

impl World<'_, '_> {
    /// Takes the inode's mutex (`i_sem`).
    pub(super) async fn lock_inode(&self, file: FileId) {
        self.settle().await;
        loop {
            {
                let task = self.current.get();
                let mut vfs = self.vfs.borrow_mut();
                let inode = &mut vfs.files[file.0 as usize].inode;
                if inode.holder.is_none() {
                    inode.holder = Some(task);
                    return;
                }
                inode.waiters.push(task);
            }
            self.block_task().await;
        }
    }

    pub(super) fn unlock_inode(&self, file: FileId) {
        let next = {
            let mut vfs = self.vfs.borrow_mut();
            let inode = &mut vfs.files[file.0 as usize].inode;
            inode.holder = None;
            if inode.waiters.is_empty() { None } else { Some(inode.waiters.remove(0)) }
        };
        if let Some(task) = next {
            self.wake(task);
        }
    }

    /// A buffered `pwrite` into existing blocks. Returns the bytes written.
    pub(super) async fn write(&self, file: FileId, offset: u64, len_bytes: u32) -> u64 {
        let end = offset + u64::from(len_bytes);
        self.lock_inode(file).await;
        self.touch_mtime(file).await;
        // Behind this there is nothing to read.
        let old = if self.fs.starts_empty { self.extend(file, offset, end).await } else { u64::MAX };
        let mut at = offset;
        while at < end {
            let page = PageIndex::of(at);
            let page_end = (page.0 + 1) * PAGE_BYTES;
            let whole = (at.is_multiple_of(PAGE_BYTES) && end >= page_end) || page.0 * PAGE_BYTES >= old;
            self.write_page(file, page, whole).await;
            at = page_end.min(end);
        }
        self.unlock_inode(file);
        if std::mem::take(&mut self.vfs.borrow_mut().reclaim_met_dirty) {
            self.kick_writeback();
        }
        self.balance_dirty(len_bytes).await;
        u64::from(len_bytes)
    }

    /// The file ends at `end` at least; what lies between its end and `offset` is zeroed, which is the rest of a page.
    /// Returns its end until now.
    async fn extend(&self, file: FileId, offset: u64, end: u64) -> u64 {
        let old = {
            let mut vfs = self.vfs.borrow_mut();
            let known = &mut vfs.files[file.0 as usize].written_end;
            std::mem::replace(known, end.max(*known))
        };
        if offset <= old {
            return old;
        }
        if self.fs.flushes_gap {
            self.write_and_wait(file, PageIndex::of(old), PageIndex(offset.div_ceil(PAGE_BYTES))).await;
        }
        if !old.is_multiple_of(PAGE_BYTES) {
            self.write_page(file, PageIndex::of(old), false).await;
        }
        old
    }

    /// Copies into one page, which becomes dirty, within a handle of the journal.
    async fn write_page(&self, file: FileId, page: PageIndex, whole: bool) {
        let device = self.vfs.borrow().is_device(file);
        let handle = if device { None } else { Some(self.start_handle().await) };
        let hole = self.vfs.borrow_mut().files[file.0 as usize].holes.remove(&page.0);
        if !whole && !hole && !self.vfs.borrow().cache.is(file, page, Flag::Uptodate) {
            self.fill_page(file, page).await;
        }
        self.map(file, page).await;
        self.wait_page(file, page).await;
        {
            let at = (self.now.get(), self.call_id());
            let mut vfs = self.vfs.borrow_mut();
            if !vfs.cache.is(file, page, Flag::Present) {
                vfs.make_room(1, at, &mut self.rec.borrow_mut());
                vfs.cache.add(file, Folio { first: page, order: 0 }, true);
                self.rec.borrow_mut().event(at.0, at.1, What::PageAdd { file, page, nr_pages: 1 });
                self.charge(self.machine.page_add);
            }
            vfs.cache.set(file, page, 1, Flag::Uptodate, true);
            vfs.cache.touch(file, page, 1);
        }
        if let Some(handle) = handle
            && self.fs.ordered == Ordered::Written
        {
            self.order_data(handle, file, page).await;
        }
        {
            let mut vfs = self.vfs.borrow_mut();
            vfs.cache.set(file, page, 1, Flag::Dirty, true);
            vfs.files[file.0 as usize].dirty_since.get_or_insert(self.now.get());
        }
        self.charge(self.machine.page_lookup + self.machine.page_copy);
        if let Some(handle) = handle {
            self.stop_handle(handle, false).await;
        }
    }

    /// Reads a page that is about to be changed in part.
    pub(super) async fn fill_page(&self, file: FileId, page: PageIndex) {
        let absent = {
            let at = (self.now.get(), self.call_id());
            let mut vfs = self.vfs.borrow_mut();
            let absent = !vfs.cache.is(file, page, Flag::Present);
            if absent {
                vfs.make_room(1, at, &mut self.rec.borrow_mut());
                vfs.cache.add(file, Folio { first: page, order: 0 }, false);
                self.rec.borrow_mut().event(at.0, at.1, What::PageAdd { file, page, nr_pages: 1 });
            }
            absent
        };
        if absent {
            self.event(What::Miss { file, page });
            self.read_run(file, page, 1).await;
        }
        self.wait_page(file, page).await;
    }

    /// Hands the dirty pages of a file to the block layer, at most `max_pages`. Returns how many there were.
    pub(super) async fn write_dirty(&self, file: FileId, max_pages: u64) -> u64 {
        let mut written = 0;
        let mut at = PageIndex(0);
        self.start_plug();
        while written < max_pages {
            let Some(page) = self.vfs.borrow().cache.next_with(file, at, Flag::Dirty) else { break };
            let ordered = if self.vfs.borrow().is_device(file) { Ordered::Allocated } else { self.fs.ordered };
            let nr_pages = match ordered {
                // With ordered data each page goes through a handle of its own.
                Ordered::Written => {
                    let handle = self.start_handle().await;
                    let nr_pages = self.write_run(file, page, 1).await;
                    if nr_pages > 0 {
                        self.attach(handle, file, page);
                    }
                    self.stop_handle(handle, false).await;
                    nr_pages
                }
                Ordered::Allocated => self.write_run(file, page, self.bio_max_pages()).await,
            };
            written += nr_pages;
            at = page.plus(nr_pages.max(1));
        }
        self.finish_plug();
        let mut vfs = self.vfs.borrow_mut();
        if vfs.cache.next_with(file, PageIndex(0), Flag::Dirty).is_none() {
            vfs.files[file.0 as usize].dirty_since = None;
        }
        written
    }

    /// Hands the pages that are dirty now to the block layer, and with a second look those behind them that other
    /// fsyncs have tagged in the meantime.
    async fn write_tagged(&self, file: FileId) {
        self.settle().await;
        {
            let vfs = &mut *self.vfs.borrow_mut();
            let dirty = vfs.cache.pages_with(file, PageIndex(0), Flag::Dirty);
            vfs.files[file.0 as usize].inode.tagged.extend(dirty);
        }
        self.start_plug();
        let (behind, mut written) = self.look(file, PageIndex(0)).await;
        if self.fs.second_look {
            // A handle and a look cost what they cost a write to a page.
            self.charge(self.machine.page_lookup);
            let handle = self.start_handle().await;
            written += self.look(file, behind).await.1;
            self.stop_handle(handle, false).await;
        }
        self.finish_plug();
        let mut vfs = self.vfs.borrow_mut();
        vfs.empty_syncs += u64::from(written == 0);
        if vfs.cache.next_with(file, PageIndex(0), Flag::Dirty).is_none() {
            vfs.files[file.0 as usize].dirty_since = None;
        }
    }

    /// Submits tagged pages from `at` on, a group of them after the other; a group that is not full is the last.
    /// Returns the place behind the last page, and the pages submitted.
    async fn look(&self, file: FileId, mut at: PageIndex) -> (PageIndex, u64) {
        let mut written = 0;
        loop {
            let group: Vec<PageIndex> = {
                let vfs = self.vfs.borrow();
                vfs.files[file.0 as usize].inode.tagged.range(at..).take(PAGES_AT_ONCE).copied().collect()
            };
            for &page in &group {
                if page < at {
                    continue;
                }
                let run = {
                    let vfs = self.vfs.borrow();
                    let tagged = vfs.files[file.0 as usize].inode.tagged.range(page..);
                    let most = self.bio_max_pages() as usize;
                    tagged.zip(page.0..).take(most).take_while(|(tagged, nr)| tagged.0 == *nr).count() as u64
                };
                // What another task has submitted by now is not waited for here.
                let dirty = self.vfs.borrow().cache.is(file, page, Flag::Dirty);
                let nr_pages = if dirty && run > 0 { self.write_run(file, page, run).await } else { 0 };
                written += nr_pages;
                at = at.max(page.plus(nr_pages.max(1)));
            }
            if group.len() < PAGES_AT_ONCE {
                return (at, written);
            }
        }
    }

    /// Submits the dirty pages from `page` on that lie together, at most `max_pages`. Pages that another task has begun
    /// to write in the meantime are waited for and not written again.
    pub(super) async fn write_run(&self, file: FileId, page: PageIndex, max_pages: u64) -> u64 {
        self.wait_page_written(file, page).await;
        self.settle().await;
        let buffer = if self.buffer_sectors > 0 && self.vfs.borrow().is_device(file) { self.buffer_sectors } else { 0 };
        let nr_pages = {
            let mut vfs = self.vfs.borrow_mut();
            let max_pages = if buffer > 0 { 1 } else { max_pages }
                .min(u64::from(self.block.borrow().max_sectors()) / PAGE_SECTORS)
                .min(vfs.pages_to_boundary(&self.fs, file, page));
            let ready = |page| vfs.cache.is(file, page, Flag::Dirty) && !vfs.cache.is(file, page, Flag::Writeback);
            let mut nr_pages = 0;
            while nr_pages < max_pages && ready(page.plus(nr_pages)) {
                nr_pages += 1;
            }
            if nr_pages == 0 {
                return 0;
            }
            vfs.cache.set(file, page, nr_pages, Flag::Dirty, false);
            vfs.cache.set(file, page, nr_pages, Flag::Writeback, true);
            let tagged = &mut vfs.files[file.0 as usize].inode.tagged;
            if !tagged.is_empty() {
                for nr in 0..nr_pages {
                    tagged.remove(&page.plus(nr));
                }
            }
            nr_pages
        };
        self.event(What::Writeback { file, page, nr_pages: nr_pages as u32 });
        let sector = self.vfs.borrow().sector_of(&self.fs, file, page);
        let done = Done::Write { file, page };
        let mut nr_sectors = (nr_pages * PAGE_SECTORS) as u32;
        let mut at = sector;
        if buffer > 0 {
            // The page is done with its last buffer.
            while nr_sectors > buffer {
                self.submit(Dir::Write, Content::Data, at, buffer, false, Done::Nothing).await;
                at = at.plus(u64::from(buffer));
                nr_sectors -= buffer;
            }
        }
        self.submit(Dir::Write, Content::Data, at, nr_sectors, false, done).await;
        nr_pages
    }

    /// Waits until nothing of a file is being written.
    pub(super) async fn wait_written(&self, file: FileId) {
        loop {
            let page = self.vfs.borrow().cache.next_with(file, PageIndex(0), Flag::Writeback);
            match page {
                Some(page) => self.wait_page_written(file, page).await,
                None => return,
            }
        }
    }

    /// Goes once through the pages that are being written, a group of them after the other, and waits for each; a group
    /// that is not full is the last. Writes that others begin meanwhile are not waited for.
    async fn wait_once(&self, file: FileId) {
        let mut at = PageIndex(0);
        loop {
            let group: Vec<PageIndex> =
                self.vfs.borrow().cache.pages_with(file, at, Flag::Writeback).take(PAGES_AT_ONCE).collect();
            for &page in &group {
                self.wait_page_written(file, page).await;
                at = page.plus(1);
            }
            if group.len() < PAGES_AT_ONCE {
                return;
            }
        }
    }

    /// `fsync` and `fdatasync`.
    pub(super) async fn fsync(&self, file: FileId, data_only: bool) {
        if self.vfs.borrow().is_device(file) {
            self.set_sync_write(true);
            self.write_dirty(file, u64::MAX).await;
            self.wait_written(file).await;
            self.flush_device().await;
            self.set_sync_write(false);
            return;
        }
        match self.fs.fsync {
            FsyncRule::AlwaysCommit => {
                self.lock_inode(file).await;
                self.force_commit().await;
                self.unlock_inode(file);
            }
            FsyncRule::CommitIfDirty => {
                self.set_sync_write(true);
                self.write_dirty(file, u64::MAX).await;
                if self.fs.ordered == Ordered::Allocated {
                    self.wait_written(file).await;
                }
                self.lock_inode(file).await;
                let dirty = {
                    let mut vfs = self.vfs.borrow_mut();
                    let inode = &mut vfs.files[file.0 as usize].inode;
                    // Only time stamps ever change here, and fdatasync does not care about these (ext4).
                    let dirty = inode.dirty && (self.fs.time_in_seconds || !data_only);
                    inode.dirty &= !dirty;
                    dirty
                };
                if dirty {
                    self.force_commit().await;
                } else if self.fs.barriers {
                    self.flush_device().await;
                }
                self.unlock_inode(file);
                self.wait_written(file).await;
                self.set_sync_write(false);
            }
            FsyncRule::CommitOfInode => {
                self.set_sync_write(true);
                self.write_tagged(file).await;
                self.wait_once(file).await;
                // Only time stamps ever change here, and fdatasync does not care about these.
                let tid = if data_only { 0 } else { self.vfs.borrow().files[file.0 as usize].inode.sync_tid };
                if !self.commit_of(tid).await && self.fs.barriers {
                    self.flush_device().await;
                }
                self.set_sync_write(false);
            }
        }
    }

    fn set_sync_write(&self, on: bool) {
        self.sched.borrow_mut().task_mut(self.current.get()).sync_write = on;
    }

    fn dirty_and_limits(&self) -> (u64, u64, u64) {
        let vfs = self.vfs.borrow();
        let dirty = vfs.cache.nr_dirty() + vfs.cache.nr_writeback();
        let (total, available) = (self.machine.total_pages, self.machine.cache_pages);
        let rules = &self.writeback;
        (dirty, rules.pages(rules.dirty_pct, total, available), rules.pages(rules.background_pct, total, available))
    }

    /// After a write: wakes the daemon above the background limit, and makes the writer write or wait above the other.
    pub(super) async fn balance_dirty(&self, len_bytes: u32) {
        let since = {
            let mut vfs = self.vfs.borrow_mut();
            vfs.dirtied_pages += u64::from(len_bytes).div_ceil(PAGE_BYTES);
            vfs.dirtied_pages
        };
        if since < self.writeback.check_pages {
            return;
        }
        self.vfs.borrow_mut().dirtied_pages = 0;
        let (dirty, limit, background) = self.dirty_and_limits();
        if dirty > background {
            self.kick_writeback();
        }
        if dirty <= limit {
            return;
        }
        self.event(What::Throttle { nr_dirty: dirty as u32 });
        self.block.borrow_mut().note_dirty_wait(self.now.get());
        let mut written = 0;
        while written < self.writeback.throttle_pages {
            let (dirty, limit, _) = self.dirty_and_limits();
            if dirty <= limit {
                return;
            }
            let nr_pages = match self.oldest_dirty_file(None) {
                Some(file) => {
                    let max_pages = (self.writeback.throttle_pages - written).min(self.writeback.round_pages);
                    self.write_dirty(file, max_pages).await
                }
                None => 0,
            };
            if nr_pages == 0 {
                // Everything is on its way already: wait a little for it to arrive.
                self.kick_io();
                self.sleep_until(self.now.get() + Nanos::from_ms(10)).await;
            }
            written += nr_pages;
        }
    }

    /// The file that has been dirty longest, if it was dirtied before `before`.
    fn oldest_dirty_file(&self, before: Option<Nanos>) -> Option<FileId> {
        let vfs = self.vfs.borrow();
        let dirty = vfs.files.iter().enumerate().filter_map(|(index, file)| Some((file.dirty_since?, index)));
        let (since, index) = dirty.min()?;
        before.is_none_or(|before| since <= before).then_some(FileId(index as u32))
    }

    pub(super) fn kick_writeback(&self) {
        let task = self.nr_threads_tasks() + 1;
        self.vfs.borrow_mut().background_wanted = true;
        self.wake(task);
    }

    /// pdflush, kupdate and bdflush in one: old pages every interval, and down to the lower limit when asked.
    pub(super) async fn writeback_daemon(&self) {
        let rules = self.writeback;
        let mut next_round = rules.interval;
        loop {
            self.sleep_until(next_round).await;
            let wanted = std::mem::take(&mut self.vfs.borrow_mut().background_wanted);
            if wanted {
                let stop = rules.pages(rules.stop_pct, self.machine.total_pages, self.machine.cache_pages);
                while self.vfs.borrow().cache.nr_dirty() > stop {
                    let Some(file) = self.oldest_dirty_file(None) else { break };
                    if self.write_dirty(file, rules.round_pages).await == 0 {
                        break;
                    }
                    self.pause_if_congested().await;
                }
            }
            if self.now.get() >= next_round {
                let before = self.now.get().saturating_sub(rules.age);
                if self.now.get() >= rules.age {
                    while let Some(file) = self.oldest_dirty_file(Some(before)) {
                        if self.write_dirty(file, rules.round_pages).await == 0 {
                            break;
                        }
                        self.pause_if_congested().await;
                    }
                    self.write_old_metadata(before).await;
                }
                next_round = self.now.get() + rules.interval;
            }
            // The daemon's last act in a round is to run the queue (bdflush runs tq_disk).
            self.kick_io();
        }
    }

    async fn pause_if_congested(&self) {
        if self.block.borrow().congested(Dir::Write) {
            self.kick_io();
            self.sleep_until(self.now.get() + Nanos::from_ms(100)).await;
        }
    }
}
