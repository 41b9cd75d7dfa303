//! The journal (JBD) and its daemon: one running and one committing transaction.

use std::collections::{BTreeMap, BTreeSet};

use super::tasks::TaskId;
use super::{Done, World};
use crate::event::{Content, Dir, FileId, JournalStep, What};
use crate::filesystem::GroupCommit;
use crate::page_cache::Flag;
use crate::units::{Nanos, PAGE_SECTORS, PageIndex};

/// Ordered data is handed to the block layer in groups of this many buffers.
const BUFFERS_AT_ONCE: usize = 64;

/// State of an inode.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    /// Access time, in the file system's granularity.
    pub(super) atime: u64,
    /// Modification time.
    pub(super) mtime: u64,
    /// Changed since it was last written or committed.
    pub(super) dirty: bool,
    /// The transaction that changed it last.
    pub(super) sync_tid: u32,
    /// Pages that an fsync is about to write.
    pub(super) tagged: BTreeSet<PageIndex>,
    /// Holder of its mutex (`i_sem`).
    pub(super) holder: Option<TaskId>,
    /// Tasks waiting for it, in order.
    pub(super) waiters: Vec<TaskId>,
}

#[derive(Clone, Debug, Default)]
struct Transaction {
    tid: u32,
    started: Nanos,
    /// Open handles.
    updates: u32,
    /// Handles ever started: shows a joint commit whether another task joined.
    handle_count: u32,
    /// No new handles: a commit has begun.
    locked: bool,
    /// Its metadata is being copied to the log: these blocks cannot be changed.
    logging: bool,
    /// Its commit block, which empties the drive's cache, is next or on its way.
    flushing: bool,
    /// Pages to be written before the metadata.
    data: Vec<(FileId, PageIndex)>,
    /// Blocks of the inode table that it changes.
    metadata: BTreeSet<u32>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    running: Option<Transaction>,
    committing: Option<Transaction>,
    last_tid: u32,
    committed: u32,
    requested: u32,
    /// Handles ever started.
    handles: u64,
    head: u64,
    /// Which transaction a page's data belongs to.
    attached: BTreeMap<(FileId, PageIndex), u32>,
    /// Changed blocks of the inode table that are in the log and not in place, and since when.
    in_log: BTreeMap<u32, Nanos>,
    handle_waiters: Vec<TaskId>,
    update_waiters: Vec<TaskId>,
    commit_waiters: Vec<TaskId>,
    log_waiters: Vec<TaskId>,
}

/// An open handle: the transaction it belongs to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Handle(u32);

impl Journal {
    pub(super) fn handles(&self) -> u64 {
        self.handles
    }
}

impl World<'_, '_> {
    /// Tasks that are threads of the program; the journal's daemon comes after them, then the writeback daemon.
    pub(super) fn nr_threads_tasks(&self) -> TaskId {
        self.threads.len() as TaskId
    }

    fn wake_all(&self, which: impl Fn(&mut Journal) -> &mut Vec<TaskId>) {
        let woken = std::mem::take(which(&mut self.journal.borrow_mut()));
        woken.into_iter().for_each(|task| self.wake(task));
    }

    /// Joins the running transaction, or starts one; waits while a commit is locking it.
    pub(super) async fn start_handle(&self) -> Handle {
        self.settle().await;
        loop {
            {
                let now = self.now.get();
                let task = self.current.get();
                let mut journal = self.journal.borrow_mut();
                let journal = &mut *journal;
                if journal.running.is_none() {
                    journal.last_tid += 1;
                    let tid = journal.last_tid;
                    journal.running = Some(Transaction { tid, started: now, ..Transaction::default() });
                }
                match &mut journal.running {
                    Some(running) if !running.locked => {
                        running.updates += 1;
                        running.handle_count += 1;
                        journal.handles += 1;
                        return Handle(running.tid);
                    }
                    _ => journal.handle_waiters.push(task),
                }
            }
            self.block_task().await;
        }
    }

    /// Ends a handle. A synchronous one first lets others join, then waits for the commit.
    pub(super) async fn stop_handle(&self, handle: Handle, sync: bool) {
        self.settle().await;
        if sync {
            loop {
                let before = self.handle_count(handle);
                match self.fs.group_commit {
                    GroupCommit::Yield => self.yield_cpu().await,
                    GroupCommit::Tick => self.sleep_until(self.hz.timer(self.now.get(), 1)).await,
                    GroupCommit::Never => break,
                }
                if self.handle_count(handle) == before {
                    break;
                }
            }
        }
        let last = {
            let mut journal = self.journal.borrow_mut();
            let Some(running) = &mut journal.running else { unreachable!("a transaction outlives its handles") };
            assert_eq!(running.tid, handle.0, "a handle belongs to the running transaction");
            running.updates -= 1;
            running.updates == 0
        };
        if last {
            self.wake_all(|journal| &mut journal.update_waiters);
        }
        if sync {
            self.request_commit(handle.0);
            self.wait_committed(handle.0).await;
        }
    }

    async fn wait_committed(&self, tid: u32) {
        self.settle().await;
        loop {
            {
                let mut journal = self.journal.borrow_mut();
                if journal.committed >= tid {
                    return;
                }
                journal.commit_waiters.push(self.current.get());
            }
            self.block_task().await;
        }
    }

    /// Has a transaction committed, unless it is, and waits. Whether the drive's cache is emptied by that from now on.
    pub(super) async fn commit_of(&self, tid: u32) -> bool {
        self.settle().await;
        let (wanted, flushes) = {
            let journal = self.journal.borrow();
            let begun = journal.committing.as_ref().filter(|committing| committing.tid == tid);
            let flushes = self.fs.barriers && begun.is_none_or(|committing| !committing.flushing);
            (journal.committed < tid, flushes)
        };
        if wanted {
            self.request_commit(tid);
            self.wait_committed(tid).await;
        }
        wanted && flushes
    }

    fn handle_count(&self, handle: Handle) -> u32 {
        match &self.journal.borrow().running {
            Some(running) if running.tid == handle.0 => running.handle_count,
            _ => 0,
        }
    }

    fn request_commit(&self, tid: u32) {
        let mut journal = self.journal.borrow_mut();
        journal.requested = journal.requested.max(tid);
        drop(journal);
        self.wake(self.nr_threads_tasks());
    }

    /// Commits, also if there is nothing to commit, and waits for it.
    pub(super) async fn force_commit(&self) {
        let handle = self.start_handle().await;
        self.stop_handle(handle, true).await;
    }

    /// Notes that a page must be written before the transaction's metadata.
    pub(super) fn attach(&self, handle: Handle, file: FileId, page: PageIndex) {
        let mut journal = self.journal.borrow_mut();
        let journal = &mut *journal;
        if journal.attached.insert((file, page), handle.0) != Some(handle.0)
            && let Some(running) = &mut journal.running
        {
            running.data.push((file, page));
        }
    }

    /// Makes a page ordered data of the running transaction. If the committing one still has to write it, that is done
    /// first.
    pub(super) async fn order_data(&self, handle: Handle, file: FileId, page: PageIndex) {
        let (other, dirty) = {
            let journal = self.journal.borrow();
            let owner = journal.attached.get(&(file, page)).copied();
            let other = owner.is_some_and(|tid| tid != handle.0 && tid > journal.committed);
            (other, self.vfs.borrow().cache.is(file, page, Flag::Dirty))
        };
        if other && dirty {
            self.write_run(file, page, 1).await;
            self.wait_page_written(file, page).await;
        }
        self.attach(handle, file, page);
    }

    fn time_stamp(&self) -> u64 {
        // Counted from 1, so that a file never touched has a stamp of its own.
        1 + if self.fs.time_in_seconds { self.now.get().0 / 1_000_000_000 } else { self.hz.at(self.now.get()).0 }
    }

    /// Reading a file changes its access time.
    pub(super) async fn touch_atime(&self, file: FileId) {
        if self.vfs.borrow().is_device(file) {
            return;
        }
        let stamp = self.time_stamp();
        let changed = {
            let mut vfs = self.vfs.borrow_mut();
            let inode = &mut vfs.files[file.0 as usize].inode;
            std::mem::replace(&mut inode.atime, stamp) != stamp
        };
        if changed {
            self.dirty_inode(file).await;
        }
    }

    /// Writing a file changes its modification time.
    pub(super) async fn touch_mtime(&self, file: FileId) {
        if self.vfs.borrow().is_device(file) {
            return;
        }
        let stamp = self.time_stamp();
        let changed = {
            let mut vfs = self.vfs.borrow_mut();
            let inode = &mut vfs.files[file.0 as usize].inode;
            std::mem::replace(&mut inode.mtime, stamp) != stamp
        };
        if changed {
            self.dirty_inode(file).await;
        }
    }

    /// Puts the inode's block into the running transaction. A block that is just being copied to the log is waited for.
    async fn dirty_inode(&self, file: FileId) {
        let block = self.fs.inode_block(file.0);
        self.vfs.borrow_mut().files[file.0 as usize].inode.dirty = true;
        let handle = self.start_handle().await;
        self.vfs.borrow_mut().files[file.0 as usize].inode.sync_tid = handle.0;
        loop {
            {
                let mut journal = self.journal.borrow_mut();
                let journal = &mut *journal;
                let busy = journal.committing.as_ref().is_some_and(|c| c.logging && c.metadata.contains(&block));
                if !busy {
                    let Some(running) = &mut journal.running else { unreachable!("a handle keeps it running") };
                    running.metadata.insert(block);
                    journal.in_log.remove(&block);
                    break;
                }
                journal.log_waiters.push(self.current.get());
            }
            self.block_task().await;
        }
        self.stop_handle(handle, false).await;
    }

    /// kjournald.
    pub(super) async fn journal_daemon(&self) {
        let interval = Nanos::from_secs(self.fs.commit_interval_s);
        loop {
            let (commit, wake_at) = {
                let journal = self.journal.borrow();
                let now = self.now.get();
                match &journal.running {
                    Some(running) => {
                        let due = running.started + interval;
                        (journal.requested >= running.tid || now >= due, due)
                    }
                    None => (false, now + interval),
                }
            };
            if commit {
                self.commit().await;
            } else {
                self.sleep_until(wake_at).await;
            }
        }
    }

    fn journal_event(&self, tid: u32, step: JournalStep, nr_blocks: usize) {
        self.event(What::Journal { tid, step, nr_blocks: nr_blocks as u32 });
    }

    /// Commits the running transaction.
    async fn commit(&self) {
        let tid = {
            let mut journal = self.journal.borrow_mut();
            let Some(running) = &mut journal.running else { return };
            running.locked = true;
            running.tid
        };
        self.journal_event(tid, JournalStep::Lock, 0);
        loop {
            {
                let mut journal = self.journal.borrow_mut();
                let journal = &mut *journal;
                if journal.running.as_ref().is_none_or(|running| running.updates == 0) {
                    journal.committing = journal.running.take();
                    break;
                }
                journal.update_waiters.push(self.current.get());
            }
            self.block_task().await;
        }
        self.wake_all(|journal| &mut journal.handle_waiters);

        let data = match &self.journal.borrow().committing {
            Some(committing) => committing.data.clone(),
            None => Vec::new(),
        };
        self.journal_event(tid, JournalStep::Data, data.len());
        self.write_ordered(tid, &data).await;

        let metadata: Vec<u32> = match &mut self.journal.borrow_mut().committing {
            Some(committing) => {
                committing.logging = true;
                committing.metadata.iter().copied().collect()
            }
            None => Vec::new(),
        };
        if !metadata.is_empty() {
            // A descriptor block and a copy of each block.
            let nr_blocks = metadata.len() + 1;
            self.journal_event(tid, JournalStep::Log, nr_blocks);
            let counter = self.sched.borrow_mut().new_counter(self.current.get());
            self.start_plug();
            for _ in 0..nr_blocks {
                self.log_block(counter, false).await;
            }
            self.finish_plug();
            self.wait_counter(counter).await;
        }
        if let Some(committing) = &mut self.journal.borrow_mut().committing {
            committing.logging = false;
            committing.flushing = true;
        }
        self.wake_all(|journal| &mut journal.log_waiters);

        self.journal_event(tid, JournalStep::CommitBlock, 1);
        let counter = self.sched.borrow_mut().new_counter(self.current.get());
        self.log_block(counter, self.fs.barriers).await;
        self.wait_counter(counter).await;

        {
            let now = self.now.get();
            let mut journal = self.journal.borrow_mut();
            let journal = &mut *journal;
            journal.committed = tid;
            journal.committing = None;
            for &(file, page) in &data {
                if journal.attached.get(&(file, page)) == Some(&tid) {
                    journal.attached.remove(&(file, page));
                }
            }
            for block in metadata {
                if journal.running.as_ref().is_none_or(|running| !running.metadata.contains(&block)) {
                    journal.in_log.entry(block).or_insert(now);
                }
            }
        }
        self.journal_event(tid, JournalStep::Done, 0);
        self.wake_all(|journal| &mut journal.commit_waiters);
    }

    /// Writes the data of a transaction and waits for it: dirty pages are submitted, pages in writeback are waited for
    /// and written again if they changed meanwhile.
    async fn write_ordered(&self, tid: u32, data: &[(FileId, PageIndex)]) {
        let mine = |key: &(FileId, PageIndex)| self.journal.borrow().attached.get(key) == Some(&tid);
        for group in data.chunks(BUFFERS_AT_ONCE) {
            self.start_plug();
            for &(file, page) in group {
                if mine(&(file, page)) && !self.vfs.borrow().under_writeback(file, page) {
                    self.write_run(file, page, 1).await;
                }
            }
            self.finish_plug();
        }
        for &(file, page) in data {
            self.wait_page_written(file, page).await;
            if mine(&(file, page)) && self.write_run(file, page, 1).await > 0 {
                self.wait_page_written(file, page).await;
            }
        }
    }

    /// Writes the next block of the log.
    async fn log_block(&self, counter: u32, flush: bool) {
        let sector = {
            let mut journal = self.journal.borrow_mut();
            journal.head += 1;
            self.fs.journal_sector(journal.head)
        };
        self.sched.borrow_mut().count_up(counter);
        let done = Done::Counted(counter);
        self.submit(Dir::Write, Content::Journal, sector, PAGE_SECTORS as u32, flush, done).await;
    }

    /// Empties the drive's write cache.
    pub(super) async fn flush_device(&self) {
        let counter = self.sched.borrow_mut().new_counter(self.current.get());
        self.sched.borrow_mut().count_up(counter);
        let sector = self.fs.journal_sector(0);
        self.submit(Dir::Write, Content::Journal, sector, 0, true, Done::Counted(counter)).await;
        self.wait_counter(counter).await;
    }

    /// Writes blocks of the inode table in place that have been in the log since before `before`.
    pub(super) async fn write_old_metadata(&self, before: Nanos) {
        let old: Vec<u32> = {
            let journal = self.journal.borrow();
            journal.in_log.iter().filter(|(_, since)| **since <= before).map(|(block, _)| *block).collect()
        };
        let counter = self.sched.borrow_mut().new_counter(self.current.get());
        for block in old {
            self.journal.borrow_mut().in_log.remove(&block);
            self.sched.borrow_mut().count_up(counter);
            let sector = self.fs.inode_sector(block);
            let done = Done::Counted(counter);
            self.submit(Dir::Write, Content::Metadata, sector, PAGE_SECTORS as u32, false, done).await;
        }
        self.wait_counter(counter).await;
    }
}
