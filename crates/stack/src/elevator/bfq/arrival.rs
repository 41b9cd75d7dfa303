//! A request arrives: what its queue is like, whether that is raised, and whether it pushes out the one in service
//! (`bfq_insert_request`, `bfq_add_request`, `bfq_bfqq_handle_idle_busy_switch`).

use super::service::Expiry;
use super::wf2q::{JOURNAL_WEIGHT, WEIGHT};
use super::{BURST_QUEUES, Bfq, LONG_AGO, MIN_THINK, Now, RAISE_IDLE_MS, SOFT_FACTOR, SOFT_RATE, Tick, WAKER_WINDOW};
use crate::event::{Content, IdleEnd, RqId};
use crate::request::{Request, Requests};
use crate::sorted::slot;
use crate::units::Nanos;

/// Sectors from which a request alone is worth ending a wait at once.
const NOT_SMALL: u32 = 32;
/// Time in which a task must be busy by four fifths.
const INTENSITY_WINDOW: Nanos = Nanos::from_ms(200);

impl Bfq {
    /// Gives a request its queue, unless it has it (`bfq_init_rq`).
    pub(super) fn prepare(&mut self, requests: &Requests, rq: RqId, now: Now) {
        if slot(&mut self.data, rq).prepared {
            return;
        }
        let request = requests[rq];
        let (task, sync) = (request.context.task, super::is_sync(&request));
        let base = if request.content == Content::Journal { JOURNAL_WEIGHT } else { WEIGHT };
        let queue = self.queue_for(task, sync, base, now);
        self.queues[queue].allocated += 1;
        self.tasks[task as usize].requests += 1;
        let q = &mut self.queues[queue];
        if q.merges_into.is_none() && q.tasks == 1 && self.asynchronous != Some(queue) {
            q.owner = Some(task);
        }
        if q.just_created && (self.burst_size > 0 || self.busy == 0) {
            self.note_burst(queue, now);
        }
        let data = super::Data { key: request.sector.0, queue: queue as u32, task, expires: now.at, prepared: true };
        self.data[rq.0 as usize] = data;
    }

    pub(super) fn insert(&mut self, requests: &Requests, rq: RqId, now: Now) {
        self.prepare(requests, rq, now);
        let request = requests[rq];
        let (task, sync, sector) = (request.context.task, super::is_sync(&request), request.sector.0);
        let mut queue = self.data[rq.0 as usize].queue as usize;
        if let Some(into) = self.cooperator(queue, task, sector, now) {
            self.queues[into].allocated += 1;
            self.queues[queue].allocated -= 1;
            if self.tasks[task as usize].queues[1] == Some(queue) {
                self.merge_up_to(task, queue, into, now);
            }
            self.queues[queue].just_created = false;
            self.release(queue);
            queue = into;
        }
        self.learn(queue, &request, now);
        let expires = now.at + self.fifo_expire[usize::from(sync)];
        self.data[rq.0 as usize] = super::Data { key: sector, queue: queue as u32, task, expires, prepared: true };
        self.add_request(queue, requests, rq, now);
        self.queues[queue].fifo.push_back(rq);
        self.hints.added(requests, rq);
        self.enqueued(queue, requests, rq, now);
    }

    /// Think time and distance.
    fn learn(&mut self, queue: usize, request: &Request, now: Now) {
        let (slice, rotational) = (self.slice_idle, self.rotational);
        let settled = self.queues[queue].split + self.ticks(RAISE_IDLE_MS) < now.tick;
        let hundred_ms = self.ticks(100);
        let q = &mut self.queues[queue];
        if q.in_driver == 0 && !q.busy {
            q.think.sample(now.at, slice * 2);
        }
        if q.sync && slice > Nanos::ZERO && settled {
            let short = !q.think.is_long(slice / 2);
            let changed = std::mem::replace(&mut q.short_think, short) != short;
            if changed
                && q.injection.baseline == Nanos::ZERO
                && (!short || q.injection.lowered + hundred_ms <= now.tick)
            {
                self.reset_injection(queue, now);
            }
        }
        let q = &mut self.queues[queue];
        q.seeks = q.seeks << 1 | u32::from(super::queue::is_far(q.last_pos, request, rotational));
        if q.only_seeks() && self.accounts[queue].raise > 1 && q.raising.length == self.soft_length {
            // It is not soft real time after all.
            if q.raising.interactive_since + self.raise_length() < now.tick {
                self.end_raising(queue, now);
            } else {
                self.back_to_interactive(queue);
            }
        }
    }

    fn add_request(&mut self, queue: usize, requests: &Requests, rq: RqId, now: Now) {
        let request = requests[rq];
        let raise_before = self.accounts[queue].raise;
        self.waiting += 1;
        self.queues[queue].waiting += 1;
        if self.queues[queue].sync {
            if self.tasks[request.context.task as usize].requests <= 1 {
                self.note_waker(queue, now);
                self.prepare_injection(queue, now);
            }
            self.note_intensity(queue, now);
        }
        let before = self.queues[queue].next;
        let next = self.nearer(requests, before, Some(rq), self.rate.last_position);
        let q = &mut self.queues[queue];
        q.tree.insert(request.sector.0, rq);
        q.next = next;
        if before != next {
            self.place(queue, requests, now);
        }
        let mut interactive = false;
        if !self.queues[queue].busy {
            interactive = self.becomes_busy(queue, requests, request.context.task, now);
        } else {
            let quiet = self.queues[queue].raising.since + self.ticks(500) < now.tick;
            if self.low_latency && raise_before == 1 && !self.queues[queue].sync && quiet {
                self.accounts[queue].raise = self.raise;
                self.queues[queue].raising.length = self.raise_length();
                self.raised_busy += 1;
            }
            if before != next {
                self.next_changed(queue, requests);
            }
        }
        if self.low_latency && (raise_before == 1 || self.accounts[queue].raise == 1 || interactive) {
            self.queues[queue].raising.since = now.tick;
        }
    }

    /// A queue has its first request. Says whether its task counts as interactive.
    fn becomes_busy(&mut self, queue: usize, requests: &Requests, task: u32, now: Now) -> bool {
        let (idle_ticks, ten_seconds) = (self.ticks(RAISE_IDLE_MS), self.ticks(10_000));
        let raise_before = self.accounts[queue].raise;
        let q = &mut self.queues[queue];
        let idle_for_long = q.in_driver == 0 && q.timeout + idle_ticks < now.tick;
        let in_time = now.at <= q.think.last_end + self.slice_idle * 3;
        let own = q.owner.is_some() || self.tasks[task as usize].stably_merged;
        let in_burst = q.in_large_burst;
        // Who has another priority does without.
        let usual = self.accounts[queue].base == WEIGHT;
        let soft = usual && !q.only_seeks() && !in_burst && q.soft_start < now.tick && q.in_driver == 0;
        let interactive = usual && !in_burst && idle_for_long;
        let deserves = self.low_latency && (raise_before > 1 || (q.sync && own && (interactive || soft)));
        if !q.just_created && idle_for_long && q.timeout + ten_seconds < now.tick {
            (q.in_burst_list, q.in_large_burst) = (false, false);
        }
        q.just_created = false;
        let split_for_long = q.split + idle_ticks < now.tick;
        let goes_on = self.budget_for_activation(queue, requests, in_time);
        if self.low_latency && split_for_long {
            self.raise_on_arrival(queue, deserves, interactive, in_burst, soft, now);
        }
        let q = &mut self.queues[queue];
        (q.backlogged, q.backlog_service, q.soft_update) = (now.tick, 0, false);
        self.becomes_active(queue);
        if let Some(serving) = self.serving {
            let (new, old) = (&self.accounts[queue], &self.accounts[serving]);
            let pushes =
                (goes_on && new.raise >= old.raise) || new.weight() > old.weight() || !self.better_to_idle(serving);
            if pushes {
                self.expire(serving, Expiry::Preempted, false, requests, now);
            }
        }
        interactive
    }

    /// The budget of a queue that becomes busy. Says whether it goes on with the old one.
    fn budget_for_activation(&mut self, queue: usize, requests: &Requests, in_time: bool) -> bool {
        let q = &mut self.queues[queue];
        let account = &self.accounts[queue];
        if q.may_go_on && in_time && account.left() > 0 {
            let budget = account.left().min(q.max_budget);
            let account = &mut self.accounts[queue];
            (account.budget, account.service) = (budget, 0);
            return true;
        }
        q.may_go_on = false;
        let max_budget = q.max_budget;
        let charge = q.next.map_or(0, |next| self.charge(queue, &requests[next]));
        let account = &mut self.accounts[queue];
        (account.budget, account.service) = (max_budget.max(charge), 0);
        false
    }

    fn raise_on_arrival(
        &mut self,
        queue: usize,
        deserves: bool,
        interactive: bool,
        in_burst: bool,
        soft: bool,
        now: Now,
    ) {
        let (length, min_budget) = (self.raise_length(), self.min_budget());
        let raising = &mut self.queues[queue].raising;
        let account = &mut self.accounts[queue];
        if account.raise == 1 && deserves {
            if interactive {
                (raising.service, raising.length, account.raise) = (0, length, self.raise);
            } else {
                raising.interactive_since = LONG_AGO;
                (raising.length, account.raise) = (self.soft_length, self.raise * SOFT_FACTOR);
            }
            account.budget = account.budget.min(2 * min_budget);
        } else if account.raise > 1 {
            if interactive {
                (raising.length, account.raise) = (length, self.raise);
            } else if in_burst {
                account.raise = 1;
            } else if soft {
                if raising.length != self.soft_length {
                    raising.interactive_since = raising.since;
                    (raising.length, account.raise) = (self.soft_length, self.raise * SOFT_FACTOR);
                }
                raising.since = now.tick;
            }
        }
    }

    /// How long interactive raising lasts: what a large program takes to start on this device.
    pub(super) fn raise_length(&self) -> Tick {
        let (rate, length) = if self.rotational_at_birth { super::ROTATING } else { super::FLASH };
        let length = rate * self.ticks(length) as u64 / self.rate.peak.max(1);
        (length as Tick).clamp(self.ticks(3_000), self.ticks(25_000))
    }

    pub(super) fn back_to_interactive(&mut self, queue: usize) {
        self.accounts[queue].raise = self.raise;
        let length = self.raise_length();
        let raising = &mut self.queues[queue].raising;
        (raising.length, raising.since) = (length, raising.interactive_since);
    }

    pub(super) fn end_raising(&mut self, queue: usize, now: Now) {
        let q = &mut self.queues[queue];
        if q.raising.length != self.soft_length {
            q.soft_start = now.tick;
        }
        self.raised_busy -= u32::from(q.busy && self.accounts[queue].raise > 1);
        self.accounts[queue].raise = 1;
        (q.raising.length, q.raising.since) = (0, now.tick);
    }

    /// When the next request may come for its task to count as soft real time.
    pub(super) fn soft_start(&self, queue: usize, now: Now) -> Tick {
        let q = &self.queues[queue];
        let by_rate = q.backlogged + Tick::from(self.hz.0) * q.backlog_service / SOFT_RATE;
        let by_idling = now.tick + (self.slice_idle.0 * u64::from(self.hz.0) / 1_000_000_000) as Tick + 4;
        q.soft_start.max(by_rate).max(by_idling)
    }

    /// A queue is new: perhaps one of a burst.
    fn note_burst(&mut self, queue: usize, now: Now) {
        let ten_ms = self.ticks(10);
        let q = &self.queues[queue];
        if q.in_burst_list || q.in_large_burst || q.split + ten_ms >= now.tick {
            return;
        }
        if self.last_in_burst + self.burst_gap < now.tick {
            self.large_burst = false;
            self.queues.iter_mut().for_each(|q| q.in_burst_list = false);
            let first = self.busy == 0;
            self.queues[queue].in_burst_list = first;
            self.burst_size = u32::from(first);
        } else if self.large_burst {
            self.queues[queue].in_large_burst = true;
        } else {
            self.burst_size += 1;
            self.queues[queue].in_burst_list = true;
            if self.burst_size == BURST_QUEUES {
                self.large_burst = true;
                for q in &mut self.queues {
                    q.in_large_burst |= std::mem::take(&mut q.in_burst_list);
                }
            }
        }
        self.last_in_burst = now.tick;
    }

    fn note_intensity(&mut self, queue: usize, now: Now) {
        let q = &mut self.queues[queue];
        let all = now.at.saturating_sub(q.intensity.since);
        if q.tree.is_empty() && q.in_driver == 0 {
            q.intensity.idle += now.at.saturating_sub(q.think.last_end);
        }
        if q.just_created {
            return;
        }
        q.intensity.io_bound = q.intensity.idle * 5 <= all;
        if all > INTENSITY_WINDOW {
            q.intensity.since = now.at.saturating_sub(all / 2);
            q.intensity.idle = q.intensity.idle / 2;
        }
    }

    /// The queue has got a request right after one of another queue was done: perhaps that is what it waits for.
    fn note_waker(&mut self, queue: usize, now: Now) {
        let recent = self.rate.last_completion.is_some_and(|at| now.at.saturating_sub(at) < MIN_THINK * 2);
        let Some(other) = self.last_completed.filter(|&other| other != queue && recent) else { return };
        let long = self.slice_idle * WAKER_WINDOW;
        let q = &mut self.queues[queue];
        if q.short_think {
            return;
        }
        if q.perhaps_waker != Some(other) || now.at > q.wakes_since + long {
            (q.perhaps_waker, q.wakes, q.wakes_since) = (Some(other), 1, now.at);
        } else {
            q.wakes += 1;
        }
        if q.wakes == 3 {
            self.set_waker(queue, Some(other));
        }
    }

    pub(super) fn set_waker(&mut self, queue: usize, waker: Option<usize>) {
        if let Some(old) = self.queues[queue].waker {
            self.queues[old].woken.retain(|&woken| woken != queue);
        }
        (self.queues[queue].waker, self.queues[queue].perhaps_waker) = (waker, None);
        if let Some(waker) = waker {
            self.queues[waker].woken.insert(0, queue);
        }
    }

    pub(super) fn reset_injection(&mut self, queue: usize, now: Now) {
        let q = &mut self.queues[queue];
        q.injection.baseline = Nanos::ZERO;
        q.injection.limit = u32::from(!q.short_think);
        q.injection.lowered = now.tick;
        self.measured = None;
    }

    /// The queue in service gets something after it was empty: how long that takes may tell what injection costs.
    fn prepare_injection(&mut self, queue: usize, now: Now) {
        let lowered = self.queues[queue].injection.lowered;
        if lowered + self.ticks(1000) <= now.tick {
            self.reset_injection(queue, now);
        }
        let injection = self.queues[queue].injection;
        let nothing = self.in_driver == 0;
        let comparable = nothing || (injection.baseline > Nanos::ZERO && self.injected);
        if self.serving == Some(queue) && comparable && injection.lowered + self.ticks(10) <= now.tick {
            (self.occupied_since, self.measure_next) = (now.at, true);
            self.injected &= !nothing;
        }
    }

    /// After the request has been queued: a wait for it is over, unless more will soon join it.
    fn enqueued(&mut self, queue: usize, requests: &Requests, rq: RqId, now: Now) {
        let request = &requests[rq];
        self.queues[queue].last_pos = request.end().0;
        if self.serving != Some(queue) || !self.queues[queue].awaited {
            return;
        }
        let timed_out = self.queues[queue].timeout <= now.tick;
        let small = self.queues[queue].waiting == 1 && request.nr_sectors < NOT_SMALL;
        if small && !timed_out && self.idling_boosts_throughput(queue) {
            return;
        }
        self.stop_waiting(IdleEnd::Hit);
        if timed_out {
            self.expire(queue, Expiry::Timeout, false, requests, now);
        }
    }
}
