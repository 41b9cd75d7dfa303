//! Worker threads of io_uring: they carry out reads that cannot be tried without waiting.
//!
//! ```text
//! handed in  tried at once    the file can be asked without waiting, and what it asks for is cached
//!            to a worker      it cannot (ring_nowait), or it would have to wait
//!            waits            it says that it can, and waits all the same: direct reads of FUSE (`direct_waits`)
//! to a worker                 into the ring's list -> wake the worker that became idle last and still sleeps
//!                                                  -> none, and no worker runs: one more, up to four a processor
//! worker     takes from the list until it is empty, then sleeps; if the last that runs goes to sleep for I/O while
//!            there is work, one more is made
//! done       into the completion ring; wakes the submitter if that waits for no more than there are
//! ```
//! Source: 6.6 and 6.10, `io_uring/io-wq.c` (`io_wq_enqueue`, `io_wq_activate_free_worker`, `io_wq_dec_running`,
//! `io_worker_handle_work`) and `io_uring/rw.c` (`io_read`); caec5ebe77f9 and f7c913438533 for what is tried. Known
//! deviations: the kernel's own work for a request that is handed over (its copy, the list's lock), and for a worker
//! that is made, has no cost of its own; workers stay for ever. Only reads are handed over: buffered writes, which most
//! file systems have carried out by workers on both sides of that commit, and syncs are done by their submitter. On
//! files that can be asked, a read that misses is waited for by its submitter rather than gone on with later.

use std::collections::VecDeque;

use super::World;
use super::tasks::TaskId;
use crate::event::{CallId, FileId, Op, What};
use crate::job::{Engine, ThreadSpec};
use crate::page_cache::Flag;
use crate::units::{PAGE_BYTES, PageIndex};
use crate::workload::{Call, Path};

/// Files that are tried without waiting, of those that do not say that they can be (`FMODE_NOWAIT`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Tried {
    /// All regular ones (until 6.4).
    #[default]
    Regular,
    /// None (6.5).
    Marked,
    /// Those whose poll operation says that they are ready (6.12).
    Polled,
}

/// Workers that a ring has at most, for each processor (bounded work).
const FOR_EACH_CPU: u32 = 4;

/// The workers of one thread's ring.
#[derive(Clone, Debug, Default)]
struct Ring {
    /// The first of their tasks, and how many there may be.
    first: TaskId,
    most: u32,
    made: u32,
    /// Those that do not sleep.
    running: u32,
    /// Those that have found no work, in the order in which they became idle.
    idle: Vec<TaskId>,
    /// Calls in flight that wait for a worker.
    work: VecDeque<u32>,
}

/// All of them, by thread.
#[derive(Debug, Default)]
pub(super) struct Workers {
    rings: Vec<Ring>,
    /// The first task, and the thread of each.
    first: TaskId,
    thread_of: Vec<u32>,
    tried: Tried,
}

impl Workers {
    /// The workers of these threads, whose tasks begin with `first`. `needed` if there are files that need them.
    pub(super) fn new(threads: &[ThreadSpec], nr_cpus: u32, first: TaskId, needed: bool, tried: Tried) -> Workers {
        let mut workers = Workers { first, tried, ..Workers::default() };
        for (thread, spec) in (0..).zip(threads) {
            let most = match spec.engine {
                Engine::Ring { depth, .. } if needed => depth.max(1).next_power_of_two().min(FOR_EACH_CPU * nr_cpus),
                _ => 0,
            };
            let first = first + workers.thread_of.len() as TaskId;
            workers.thread_of.extend((0..most).map(|_| thread));
            workers.rings.push(Ring { first, most, ..Ring::default() });
        }
        workers
    }

    /// The thread of each worker, in the order of their tasks.
    pub(super) fn threads(&self) -> &[u32] {
        &self.thread_of
    }

    fn of(&self, task: TaskId) -> Option<u32> {
        self.thread_of.get(task.checked_sub(self.first)? as usize).copied()
    }
}

impl World<'_, '_> {
    /// The thread of the program that a task is, or works for.
    pub(super) fn thread_of(&self, task: TaskId) -> Option<&ThreadSpec> {
        let thread = if task < self.nr_threads_tasks() { task } else { self.workers.borrow().of(task)? };
        Some(&self.threads[thread as usize])
    }

    /// Whether a call that is handed in has to go to a worker.
    pub(super) fn needs_worker(&self, call: &Call, path: Path) -> bool {
        let file = FileId(call.file);
        if call.op != Op::Read || self.fs.nowait || self.vfs.borrow().is_device(file) {
            return false;
        }
        let vfs = self.vfs.borrow();
        let end = (call.offset + u64::from(call.len_bytes)).min(vfs.file_bytes(file));
        let cached = || {
            let mut pages = call.offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
            pages.all(|page| vfs.cache.is(file, PageIndex(page), Flag::Uptodate))
        };
        let tried = match self.workers.borrow().tried {
            Tried::Regular => true,
            Tried::Marked => false,
            Tried::Polled => self.fs.polls,
        };
        !tried || path == Path::Cache && !cached()
    }

    /// Gives a call in flight to a worker.
    pub(super) async fn hand_over(&self, thread: u32, slot: u32) {
        self.settle().await;
        self.event(What::HandOver);
        self.begin_call(CallId::NONE);
        let woken = {
            let mut workers = self.workers.borrow_mut();
            let ring = &mut workers.rings[thread as usize];
            ring.work.push_back(slot);
            let sched = self.sched.borrow();
            let idle = ring.idle.iter().rev().copied().find(|task| sched.is_asleep(*task));
            idle.or_else(|| if ring.running == 0 { ring.make() } else { None })
        };
        if let Some(task) = woken {
            self.wake(task);
        }
    }

    /// A worker of a thread's ring.
    pub(super) async fn worker(&self, thread: u32) {
        loop {
            while let Some(slot) = self.take_work(thread) {
                let call = self.aio.borrow().call(slot);
                self.begin_call(call.0);
                let moved = self.carry_out_call(thread, &call.1).await;
                self.begin_call(CallId::NONE);
                self.aio.borrow_mut().moved(slot, moved);
                self.aio_done(slot);
            }
            let task = self.current.get();
            self.workers.borrow_mut().rings[thread as usize].idle.push(task);
            self.block_task().await;
            self.workers.borrow_mut().rings[thread as usize].idle.retain(|idle| *idle != task);
        }
    }

    fn take_work(&self, thread: u32) -> Option<u32> {
        self.workers.borrow_mut().rings[thread as usize].work.pop_front()
    }

    /// The current task goes to sleep. If it is a worker, returns its thread; the last that runs leaves another behind
    /// if there is work.
    pub(super) fn worker_sleeps(&self) -> Option<u32> {
        let (thread, made) = {
            let mut workers = self.workers.borrow_mut();
            let thread = workers.of(self.current.get())?;
            let ring = &mut workers.rings[thread as usize];
            ring.running -= 1;
            let wanted = ring.running == 0 && !ring.work.is_empty();
            (thread, if wanted { ring.make() } else { None })
        };
        if let Some(task) = made {
            self.wake(task);
        }
        Some(thread)
    }

    /// A worker of this thread goes on.
    pub(super) fn worker_runs(&self, thread: u32) {
        self.workers.borrow_mut().rings[thread as usize].running += 1;
    }
}

impl Ring {
    /// One more worker, which runs.
    fn make(&mut self) -> Option<TaskId> {
        if self.made >= self.most {
            return None;
        }
        let task = self.first + self.made;
        self.made += 1;
        self.running += 1;
        Some(task)
    }
}
