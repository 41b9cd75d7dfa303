//! Queues of tasks that work together become one (`bfq_setup_cooperator`, `bfq_do_or_sched_stable_merge`, splits).
//!
//! ```text
//! close     for 100 ms from its first service, a synchronous queue that does not seek may be united with one whose
//!           next request is within 8192 sectors of its own: the one in service, or the nearest; they part if the
//!           result seeks
//! stable    queues created within 180 ms of the one that began the last 600 ms belong to one program: united for good
//!           when both are 600 ms old, if waiting for them would not make the device faster; on flash with queueing at
//!           their creation (and nothing is united for being close)
//! ```
//! Uniting redirects the later requests of a queue's tasks; what it has already stays where it is.

use super::queue::{Queue, Traits};
use super::{Bfq, LONG_AGO, Now, Tick};
use crate::rb_tree::Side;
use crate::request::Requests;

/// Sectors between requests that count as close.
const CLOSE: u64 = 8 * 1024;
const STABLE_MS: u64 = 600;

impl Bfq {
    fn too_late_to_merge(&self, queue: usize, now: Now) -> bool {
        let queue = &self.queues[queue];
        queue.backlog_service > 0 && queue.first_io + Tick::from(self.hz.0 / 10) < now.tick
    }

    /// The queue may be found by its next request, if it may still be united with others.
    pub(super) fn place(&mut self, queue: usize, requests: &Requests, now: Now) {
        if self.flash_with_queueing {
            return;
        }
        self.unplace(queue);
        let Some(next) = self.queues[queue].next.filter(|_| !self.too_late_to_merge(queue, now)) else { return };
        let sector = requests[next].sector.0;
        if self.by_next.search(sector).is_none_or(|found| self.by_next.key(found) != sector) {
            self.by_next.insert(queue, sector);
        }
    }

    pub(super) fn unplace(&mut self, queue: usize) {
        if self.by_next.contains(queue) {
            self.by_next.remove(queue);
        }
    }

    /// A queue whose next request is close to a sector: at it, or one of the two around it.
    fn find_close(&self, sector: u64) -> Option<usize> {
        let found = self.by_next.search(sector)?;
        let is_close = |queue: &usize| self.by_next.key(*queue).abs_diff(sector) <= CLOSE;
        let side = if self.by_next.key(found) < sector { Side::Right } else { Side::Left };
        Some(found).filter(is_close).or_else(|| self.by_next.neighbour(found, side).filter(is_close))
    }

    fn may_cooperate(&self, queue: usize, other: usize, now: Now) -> bool {
        let (a, b) = (&self.queues[queue], &self.queues[other]);
        !self.too_late_to_merge(other, now) && !a.seeky() && !b.seeky() && a.sync && b.sync
    }

    /// Has the tasks of `queue` use `into`, or what that becomes, from their next requests on.
    fn arrange_merge(&mut self, queue: usize, mut into: usize) -> Option<usize> {
        if self.queues[into].tasks == 0 {
            return None;
        }
        while let Some(next) = self.queues[into].merges_into {
            if next == queue {
                return None;
            }
            into = next;
        }
        if self.queues[queue].tasks == 0 || self.queues[into].tasks == 0 || into == queue {
            return None;
        }
        self.queues[queue].merges_into = Some(into);
        self.queues[into].tasks += self.queues[queue].tasks;
        Some(into)
    }

    fn arrange_stable_merge(&mut self, queue: usize, with: usize, task: u32) -> Option<usize> {
        self.tasks[task as usize].stable_with = None;
        let mut into = None;
        let tasks = self.queues[queue].tasks.min(self.queues[with].tasks);
        if !self.idling_boosts_throughput(queue) && tasks > 0 {
            into = self.arrange_merge(queue, with);
            if let Some(into) = into {
                self.tasks[task as usize].stably_merged = true;
                if let Some(owner) = self.queues[into].owner {
                    self.tasks[owner as usize].stably_merged = true;
                }
            }
        }
        self.queues[with].stable_refs -= 1;
        self.release(with);
        into
    }

    /// The queue with which that of a task had better be united, at a bio or request that begins at `sector`.
    pub(super) fn cooperator(&mut self, queue: usize, task: u32, sector: u64, now: Now) -> Option<usize> {
        if let Some(mut into) = self.queues[queue].merges_into {
            while let Some(next) = self.queues[into].merges_into {
                into = next;
            }
            return Some(into);
        }
        if self.flash_with_queueing {
            return None;
        }
        let old = now.tick - self.ticks(STABLE_MS);
        let Queue { sync, just_created, split, created, .. } = self.queues[queue];
        if let Some(with) = self.tasks[task as usize].stable_with
            && sync
            && !just_created
            && split < old
            && created < old
        {
            return self.arrange_stable_merge(queue, with, task);
        }
        if self.too_late_to_merge(queue, now) || self.busy == 1 {
            return None;
        }
        if let Some(serving) = self.serving
            && serving != queue
            && self.serving_last_pos.abs_diff(sector) <= CLOSE
            && self.may_cooperate(queue, serving, now)
            && let Some(into) = self.arrange_merge(queue, serving)
        {
            return Some(into);
        }
        let close = self.find_close(sector).filter(|close| *close != queue)?;
        if self.may_cooperate(queue, close, now) { self.arrange_merge(queue, close) } else { None }
    }

    /// Redirects a task from `queue` towards `into`, step by step.
    pub(super) fn merge_up_to(&mut self, task: u32, mut queue: usize, into: usize, now: Now) {
        while queue != into {
            queue = self.merge_one(task, queue, now);
        }
    }

    fn merge_one(&mut self, task: u32, queue: usize, now: Now) -> usize {
        let into = self.queues[queue].merges_into.expect("a merge was arranged");
        self.save(queue, now);
        self.save(into, now);
        let io_bound = std::mem::replace(&mut self.queues[queue].intensity.io_bound, false);
        self.queues[into].intensity.io_bound |= io_bound;
        if let Some(waker) = self.queues[queue].waker.filter(|waker| *waker != into)
            && self.queues[into].waker.is_none()
        {
            self.set_waker(into, Some(waker));
        }
        let raise = self.accounts[queue].raise;
        if raise > 1 {
            if self.accounts[into].raise == 1 {
                self.accounts[into].raise = raise;
                let from = self.queues[queue].raising;
                let raising = &mut self.queues[into].raising;
                (raising.length, raising.since) = (from.length, from.since);
                raising.interactive_since = from.interactive_since;
                self.raised_busy += u32::from(self.queues[into].busy);
            }
            self.accounts[queue].raise = 1;
            self.raised_busy -= u32::from(self.queues[queue].busy);
        }
        self.redirect(task, 1, Some(into));
        self.queues[into].shared = true;
        (self.queues[into].owner, self.queues[queue].owner) = (None, None);
        if self.last_created == Some(queue) {
            self.last_created = Some(into);
        }
        self.drop_task(queue);
        into
    }

    /// Sets the queue of a task's requests of one kind.
    pub(super) fn redirect(&mut self, task: u32, kind: usize, queue: Option<usize>) {
        let old = std::mem::replace(&mut self.tasks[task as usize].queues[kind], queue);
        if let Some(old) = old
            && self.queues[old].owner == Some(task)
        {
            self.queues[old].owner = None;
        }
        if let Some(with) = self.tasks[task as usize].stable_with
            && queue == Some(with)
        {
            self.tasks[task as usize].stable_with = None;
            self.queues[with].stable_refs -= 1;
            self.release(with);
        }
    }

    /// One task fewer uses a queue.
    pub(super) fn drop_task(&mut self, queue: usize) {
        if self.queues[queue].busy && self.queues[queue].tree.is_empty() && self.serving != Some(queue) {
            self.no_longer_busy(queue, false);
        }
        if self.last_created == Some(queue) {
            self.last_created = None;
        }
        self.queues[queue].tasks -= 1;
        self.release(queue);
    }

    /// Keeps what a task's own queue has been like, as long as it has one.
    fn save(&mut self, queue: usize, now: Now) {
        let Some(owner) = self.queues[queue].owner else { return };
        let q = &self.queues[queue];
        let mut traits = Traits {
            short_think: q.short_think,
            think: q.think,
            intensity: q.intensity,
            injection: q.injection,
            raise: self.accounts[queue].raise,
            raising: q.raising,
            in_large_burst: q.in_large_burst,
            in_burst_list: q.in_burst_list,
        };
        if q.just_created && !q.in_large_burst && self.low_latency {
            // It would have been raised by its first request.
            traits.raise = self.raise;
            traits.raising.interactive_since = LONG_AGO;
            (traits.raising.length, traits.raising.since) = (self.raise_length(), now.tick);
        }
        self.tasks[owner as usize].saved = Some(traits);
    }

    /// Gives a task's queue of its own back what it was like. `existed`: it is the shared one, of which it is the last.
    fn resume(&mut self, queue: usize, task: u32, existed: bool, now: Now) {
        let Some(traits) = self.tasks[task as usize].saved else { return };
        let before = self.accounts[queue].raise;
        let q = &mut self.queues[queue];
        (q.short_think, q.intensity, q.injection, q.think) =
            (traits.short_think, traits.intensity, traits.injection, traits.think);
        q.raising = traits.raising;
        let mut raise = if self.low_latency { traits.raise } else { before };
        if raise > 1 && (q.in_large_burst || q.raising.since + q.raising.length < now.tick) {
            let soft = q.raising.length == self.soft_length && !q.in_large_burst;
            if soft && self.queues[queue].raising.interactive_since + self.raise_length() >= now.tick {
                self.back_to_interactive(queue);
                raise = self.raise;
            } else {
                raise = 1;
            }
        }
        self.accounts[queue].raise = raise;
        if existed && self.queues[queue].busy {
            self.raised_busy += u32::from(before == 1 && raise > 1);
            self.raised_busy -= u32::from(before > 1 && raise == 1);
        }
    }

    /// The queue that a request of a task goes to. A shared one that seeks is left.
    pub(super) fn queue_for(&mut self, task: u32, sync: bool, base: u64, now: Now) -> usize {
        if task as usize >= self.tasks.len() {
            self.tasks.resize(task as usize + 1, Default::default());
        }
        let kind = usize::from(sync);
        let Some(queue) = self.tasks[task as usize].queues[kind] else {
            let queue = self.get_queue(task, sync, base, false, now);
            self.redirect(task, kind, Some(queue));
            return queue;
        };
        let Queue { shared, parts, in_large_burst, .. } = self.queues[queue];
        if !shared || !parts || self.tasks[task as usize].stably_merged {
            return queue;
        }
        let waker = self.lasting_waker(queue);
        if in_large_burst && let Some(saved) = &mut self.tasks[task as usize].saved {
            saved.in_large_burst = true;
        }
        if self.queues[queue].tasks == 1 && self.queues[queue].merges_into.is_none() {
            (self.queues[queue].shared, self.queues[queue].parts) = (false, false);
            self.resume(queue, task, true, now);
            return queue;
        }
        self.redirect(task, kind, None);
        self.drop_successors(queue);
        self.drop_task(queue);
        let own = self.get_queue(task, sync, base, true, now);
        self.redirect(task, kind, Some(own));
        if let Some(Traits { in_large_burst, in_burst_list, .. }) = self.tasks[task as usize].saved {
            self.queues[own].in_large_burst = in_large_burst || (in_burst_list && self.large_burst);
            self.queues[own].in_burst_list = in_burst_list && !self.queues[own].in_large_burst;
        }
        self.queues[own].split = now.tick;
        self.resume(own, task, false, now);
        self.set_waker(own, waker.filter(|&waker| self.queues[waker].used));
        own
    }

    /// The queue's waker, if that will go on to exist when this task has left.
    fn lasting_waker(&self, queue: usize) -> Option<usize> {
        let waker = self.queues[queue].waker?;
        let mut next = self.queues[queue].merges_into;
        let mut needed = 1;
        while let Some(into) = next {
            if into == waker {
                needed = 2;
                break;
            }
            next = self.queues[into].merges_into;
        }
        (self.queues[waker].tasks >= needed).then_some(waker)
    }

    /// A task will not follow its queue's merge any more.
    pub(super) fn drop_successors(&mut self, queue: usize) {
        let mut next = self.queues[queue].merges_into;
        while let Some(into) = next {
            next = self.queues[into].merges_into;
            self.queues[into].tasks -= 1;
            self.release(into);
        }
    }

    /// A queue for a task that has none of that kind.
    fn get_queue(&mut self, task: u32, sync: bool, base: u64, split: bool, now: Now) -> usize {
        if !sync {
            // There is one for everybody, which stays.
            let queue = match self.asynchronous {
                Some(queue) => queue,
                None => {
                    let queue = self.new_queue(false, super::wf2q::WEIGHT, now);
                    self.queues[queue].tasks = 1;
                    self.asynchronous = Some(queue);
                    queue
                }
            };
            self.queues[queue].tasks += 1;
            return queue;
        }
        let queue = self.new_queue(true, base, now);
        self.queues[queue].tasks = 1;
        if split { queue } else { self.consider_stable_merge(queue, task, now) }
    }

    fn consider_stable_merge(&mut self, queue: usize, task: u32, now: Now) -> usize {
        let Some(last) = self.last_created else {
            self.last_created = Some(queue);
            return queue;
        };
        let created = self.queues[last].created;
        if created + self.ticks(STABLE_MS) < now.tick || self.accounts[last].base != self.accounts[queue].base {
            self.last_created = Some(queue);
        } else if created + self.burst_gap >= now.tick {
            if !self.flash_with_queueing {
                self.queues[last].stable_refs += 1;
                self.tasks[task as usize].stable_with = Some(last);
                return queue;
            }
            if let Some(into) = self.arrange_merge(queue, last) {
                if let Some(owner) = self.queues[into].owner {
                    self.tasks[owner as usize].stably_merged = true;
                }
                self.tasks[task as usize].stably_merged = true;
                self.queues[queue].owner = Some(task);
                return self.merge_one(task, queue, now);
            }
        }
        queue
    }
}
