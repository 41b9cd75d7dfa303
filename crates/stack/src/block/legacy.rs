//! Allocation of requests before blk-mq: two pools of `nr_requests`, batching, congestion.
//!
//! ```text
//! allocate   a pool that is almost used up becomes full, and the task that filled it a batcher: it may take
//!            `batch_requests` more within `batch_time`; others wait, unless the elevator wants them
//! cap        from 2.6.18 on no task takes more than 3/2 of the pool
//! free       a waiter is woken if there is room, one for each request; the pool stops being full without waiters
//! 2.4        one pool for both directions, and a limit of sectors: readers may go a quarter beyond
//! ```
//! Source: 2.6.6 and 2.6.18 `drivers/block/ll_rw_blk.c`, 3.2 and 4.4 `block/blk-core.c`, `get_request`; 2.4.27
//! `__get_request_wait`. Congestion ends below 111 requests of 128 and begins above 112, as the kernel has it.
//!
//! Known deviation: a pool is full until it has no waiters only in 2.6.6 (`__freed_request`). In 2.6.18, 2.6.38 and 4.4
//! it stops being full as soon as there is room, regardless of waiters. That came between the two: the file's revision
//! 1.281 of
//! 1 December 2004, three weeks before 2.6.10, has it (the context of a patch on the kernel's list, January 2005).

use super::QueueLimits;
use super::rules::{Classes, QueueRules};
use crate::event::Dir;
use crate::request::Bio;
use crate::units::Nanos;

/// A task that may take requests although there are none left.
#[derive(Copy, Clone, Debug)]
struct Batcher {
    task: u32,
    left: u32,
    until: Nanos,
}

/// The pools of a queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Pools {
    by_sync: bool,
    hard_cap: bool,
    allocated: [u32; 2],
    congested: [bool; 2],
    full: [bool; 2],
    batchers: Vec<Batcher>,
}

impl Pools {
    pub(super) fn new(rules: &QueueRules) -> Pools {
        Pools { by_sync: rules.classes == Classes::Sync, hard_cap: rules.hard_cap, ..Pools::default() }
    }

    /// The pool that a request of this kind comes from.
    #[inline]
    pub(super) fn class(&self, dir: Dir, sync: bool) -> usize {
        if self.by_sync { usize::from(!(sync || dir == Dir::Read)) } else { dir as usize }
    }

    /// Requests of both pools in use.
    #[inline]
    pub(super) fn in_use(&self) -> u32 {
        self.allocated[0] + self.allocated[1]
    }

    pub(super) fn congested(&self, dir: Dir) -> bool {
        self.congested[dir as usize]
    }

    /// A request was allocated: a pool of 128 counts as congested from 113 on.
    #[inline]
    pub(super) fn took(&mut self, class: usize, limits: &QueueLimits) {
        let n = limits.nr_requests;
        self.allocated[class] += 1;
        self.congested[class] |= self.allocated[class] > n - n / 8;
    }

    /// One was freed: it no longer does below 111.
    #[inline]
    pub(super) fn gave(&mut self, class: usize, limits: &QueueLimits) {
        let n = limits.nr_requests;
        self.allocated[class] -= 1;
        self.congested[class] &= self.allocated[class] + 1 >= n - n / 8;
    }

    /// Whether this bio's submitter can have a request now. `wanted` is the elevator's answer.
    #[inline]
    pub(super) fn has_request(
        &mut self,
        bio: &Bio,
        now: Nanos,
        limits: &QueueLimits,
        queued_sectors: u64,
        wanted: impl FnOnce() -> bool,
    ) -> bool {
        if limits.max_queue_sectors > 0 {
            // 2.4: one pool; writers wait for bytes, readers may go a quarter beyond.
            let room = match bio.dir {
                Dir::Write => limits.max_queue_sectors,
                Dir::Read => limits.max_queue_sectors + limits.max_queue_sectors / 4,
            };
            return self.in_use() < limits.nr_requests && queued_sectors <= room;
        }
        let class = self.class(bio.dir, bio.sync);
        let task = bio.context.task;
        let filled = self.allocated[class] + 1 >= limits.nr_requests && !self.full[class];
        if filled {
            self.full[class] = true;
            self.make_batcher(task, now, limits);
        }
        if !self.full[class] {
            return true;
        }
        if self.hard_cap && self.allocated[class] >= limits.nr_requests + limits.nr_requests / 2 {
            return false;
        }
        if wanted() {
            return true;
        }
        let batch = self.batchers.iter_mut().find(|b| b.task == task && b.left > 0 && b.until >= now);
        match batch {
            Some(batch) => {
                batch.left -= 1;
                true
            }
            None => false,
        }
    }

    /// A task that has waited for a request may take several, but at least the one that it was woken for.
    pub(super) fn make_batcher(&mut self, task: u32, now: Nanos, limits: &QueueLimits) {
        let batcher = Batcher { task, left: limits.batch_requests.max(1), until: now + limits.batch_time };
        match self.batchers.iter_mut().find(|b| b.task == task) {
            Some(known) => *known = batcher,
            None => self.batchers.push(batcher),
        }
    }

    pub(super) fn should_wake_waiter(&self, class: usize, limits: &QueueLimits, queued_sectors: u64) -> bool {
        if limits.max_queue_sectors > 0 {
            let free = limits.nr_requests - self.in_use();
            let quarter = limits.max_queue_sectors / 4;
            return free >= limits.batch_requests.min(limits.nr_requests / 4)
                && queued_sectors <= limits.max_queue_sectors - quarter;
        }
        self.allocated[class] < limits.nr_requests
    }

    pub(super) fn no_waiters(&mut self, class: usize, limits: &QueueLimits) {
        if self.allocated[class] < limits.nr_requests {
            self.full[class] = false;
        }
    }
}
