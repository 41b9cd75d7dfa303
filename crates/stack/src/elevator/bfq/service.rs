//! The queue in service: which one is, for how long, and what happens while it has nothing (`bfq_select_queue`,
//! `bfq_bfqq_expire`, `bfq_better_to_idle`, `bfq_update_inject_limit`).

use super::{Bfq, LONG_AGO, MIN_THINK, Now, SMALL_SECTORS, Tick};
use crate::event::{IdleEnd, RqId};
use crate::request::{Request, Requests};
use crate::units::Nanos;

/// Charge for an asynchronous sector.
const ASYNC_CHARGE: i64 = 3;
/// Budget until enough turns have been seen, sectors.
const DEFAULT_BUDGET: i64 = 16 * 1024;
const MIN_TURNS: u32 = 194;
/// Sectors after which an interactive queue has had enough.
const RAISED_SECTORS: i64 = 120_000;
/// Least time to wait for a raised queue.
const RAISED_IDLE: Nanos = Nanos::from_ms(20);
/// Requests in the driver, and completions, by which queueing is noticed.
const QUEUEING: u32 = 3;
const QUEUEING_SAMPLES: u32 = 32;
/// Requests of others in the driver that make it pointless to count on a raised queue's share.
const MANY_OTHERS: u32 = 4;

/// Why a queue's service ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    TooIdle,
    Timeout,
    Exhausted,
    Empty,
    Preempted,
}

impl Bfq {
    fn most_budget(&self) -> i64 {
        if self.turns < MIN_TURNS { DEFAULT_BUDGET } else { self.max_budget }
    }

    pub(super) fn min_budget(&self) -> i64 {
        self.most_budget() / 32
    }

    pub(super) fn new_budget(&self) -> i64 {
        self.most_budget()
    }

    /// Sectors that the device moves at its peak in a turn.
    pub(super) fn budget_by_rate(&self) -> i64 {
        let ms = self.timeout as u64 * 1000 / u64::from(self.hz.0);
        ((self.rate.peak * 1000 * ms) >> super::rate::SHIFT) as i64
    }

    /// Sectors that a request costs its queue.
    pub(super) fn charge(&self, queue: usize, request: &Request) -> i64 {
        let sectors = i64::from(request.nr_sectors);
        let account = &self.accounts[queue];
        let full = !self.queues[queue].sync && account.raise == 1 && !self.accounts.asymmetric(queue);
        if full { sectors * ASYNC_CHARGE } else { sectors }
    }

    /// The next request of a queue has changed: its budget must be enough for it.
    pub(super) fn next_changed(&mut self, queue: usize, requests: &Requests) {
        let Some(next) = self.queues[queue].next.filter(|_| self.serving != Some(queue)) else { return };
        let budget =
            self.queues[queue].max_budget.max(self.charge(queue, &requests[next])).max(self.accounts[queue].service);
        if self.accounts[queue].budget != budget {
            self.accounts[queue].budget = budget;
            self.accounts.requeue(queue, false);
        }
    }

    pub(super) fn becomes_active(&mut self, queue: usize) {
        let back = std::mem::take(&mut self.queues[queue].may_go_on);
        self.accounts.activate(queue, back);
        self.queues[queue].busy = true;
        self.busy += 1;
        if self.queues[queue].in_driver == 0 {
            self.accounts.register(queue);
        }
        self.raised_busy += u32::from(self.accounts[queue].raise > 1);
    }

    pub(super) fn no_longer_busy(&mut self, queue: usize, expires: bool) {
        self.queues[queue].busy = false;
        self.busy -= 1;
        if self.queues[queue].in_driver == 0 {
            self.accounts.unregister(queue);
        }
        self.raised_busy -= u32::from(self.accounts[queue].raise > 1);
        self.accounts.deactivate(queue, expires);
    }

    /// A wait for the queue in service is over.
    pub(super) fn stop_waiting(&mut self, how: IdleEnd) {
        if let Some(queue) = self.serving {
            self.queues[queue].awaited = false;
        }
        if self.idle_until.take().is_some() && std::mem::take(&mut self.noticed) {
            self.ended = Some(how);
            self.kick = true;
        }
    }

    pub(super) fn idling_boosts_throughput(&self, queue: usize) -> bool {
        let q = &self.queues[queue];
        let queueing = self.queueing != Some(false);
        let streams = !q.seeky() && q.intensity.io_bound && q.short_think;
        let boosts = (self.rotational && !queueing) || ((self.rotational || !queueing) && streams);
        q.tasks > 0 && boosts && self.raised_busy == 0
    }

    /// Whether it is better to wait for the next request of a queue than to serve others.
    pub(super) fn better_to_idle(&self, queue: usize) -> bool {
        let q = &self.queues[queue];
        if q.tasks == 0 || self.slice_idle == Nanos::ZERO || !q.sync {
            return false;
        }
        self.idling_boosts_throughput(queue) || self.share_needs_idling(queue)
    }

    /// Whether the device's own order would take a queue's share away.
    fn share_needs_idling(&self, queue: usize) -> bool {
        let unequal = self.raised_busy < self.busy || self.in_driver >= self.queues[queue].in_driver + MANY_OTHERS;
        (self.accounts[queue].raise > 1 && unequal) || self.accounts.asymmetric(queue) || self.busy == 1
    }

    fn must_idle(&self, queue: usize) -> bool {
        self.queues[queue].tree.is_empty() && self.better_to_idle(queue)
    }

    fn has_timed_out(&self, queue: usize, now: Now) -> bool {
        let account = &self.accounts[queue];
        self.queues[queue].timeout <= now.tick && (!self.queues[queue].awaited || account.left() >= account.budget / 3)
    }

    /// Ends the service of the queue. `compensate`: the last wait does not count.
    pub(super) fn expire(&mut self, queue: usize, why: Expiry, compensate: bool, requests: &Requests, now: Now) {
        let (slow, took_ms) = self.is_slow(queue, compensate, now);
        let account = &self.accounts[queue];
        let late = why == Expiry::Timeout && account.left() >= account.budget / 3;
        if account.raise == 1 && (slow || late) {
            self.charge_time(queue, took_ms, now);
        }
        if self.low_latency {
            if self.accounts[queue].raise == 1 {
                self.queues[queue].raising.since = now.tick;
            }
            if self.queues[queue].tree.is_empty() {
                if self.queues[queue].in_driver == 0 {
                    self.queues[queue].soft_start = self.soft_start(queue, now);
                } else {
                    self.queues[queue].soft_update = true;
                }
            }
        }
        (self.injected, self.measure_next, self.measured) = (false, false, None);
        self.adapt_budget(queue, why, requests);
        self.leave(queue, why, requests, now);
        if !self.queues[queue].used {
            return;
        }
        if !self.queues[queue].busy && !matches!(why, Expiry::Timeout | Expiry::Exhausted) {
            self.queues[queue].may_go_on = true;
        } else {
            self.accounts[queue].service = 0;
        }
    }

    /// Takes the queue out of service (`__bfq_bfqq_expire`).
    pub(super) fn leave(&mut self, queue: usize, why: Expiry, requests: &Requests, now: Now) {
        let q = &mut self.queues[queue];
        q.parts |= q.shared && q.seeky();
        let empty = q.tree.is_empty();
        if empty && !(why == Expiry::Preempted && q.tasks > 0 && self.share_needs_idling(queue)) {
            let q = &mut self.queues[queue];
            if q.in_driver == 0 {
                q.timeout = now.tick;
            }
            self.no_longer_busy(queue, true);
        } else {
            self.accounts.requeue(queue, true);
            if !empty {
                self.place(queue, requests, now);
            }
        }
        self.stop_waiting(if why == Expiry::TooIdle { IdleEnd::Timeout } else { IdleEnd::Broken });
        self.serving = None;
        self.accounts.end();
        self.release(queue);
    }

    /// Whether a queue makes little of the device, and how long it has been in service, ms.
    fn is_slow(&self, queue: usize, compensate: bool, now: Now) -> (bool, i64) {
        let q = &self.queues[queue];
        if !q.sync {
            return (false, 0);
        }
        let until = if compensate { self.idling_since } else { now.at };
        let took_us = until.saturating_sub(self.turn_since).0 / 1000;
        if took_us < 1000 {
            // At least a seek, or as much as is waited for a queue that seeks.
            return (q.seeky(), if self.rotational { 8 } else { (MIN_THINK.0 / 1_000_000) as i64 });
        }
        let slow = if took_us > 20_000 { self.accounts[queue].service < self.max_budget / 2 } else { q.seeky() };
        (slow, (took_us / 1000) as i64)
    }

    /// Charges what the device would have done in that time.
    fn charge_time(&mut self, queue: usize, took_ms: i64, now: Now) {
        let usual_ms = i64::from(self.hz.0 / 8) * 1000 / i64::from(self.hz.0);
        let account = &mut self.accounts[queue];
        let by_time = self.max_budget * took_ms.min(usual_ms) / usual_ms;
        let charge = by_time.max(account.service);
        account.budget = account.budget.max(charge);
        let more = charge - account.service;
        self.served(queue, more, now);
    }

    fn served(&mut self, queue: usize, sectors: i64, now: Now) {
        let q = &mut self.queues[queue];
        if q.backlog_service == 0 {
            q.first_io = now.tick;
        }
        if self.accounts[queue].raise > 1 {
            q.raising.service += sectors;
        }
        q.backlog_service += sectors;
        self.accounts.serve(queue, sectors);
        self.release_forgotten();
    }

    /// The next budget, by the way in which this one ended.
    fn adapt_budget(&mut self, queue: usize, why: Expiry, requests: &Requests) {
        let (least, most) = (self.min_budget(), self.max_budget);
        let raise = self.accounts[queue].raise;
        let service = self.accounts[queue].service;
        let q = &mut self.queues[queue];
        let last = q.max_budget;
        let mut budget = if raise > 1 { 2 * least } else { last };
        if !q.sync {
            budget = most;
        } else if raise == 1 {
            budget = match why {
                Expiry::TooIdle if q.in_driver > 0 => (last * 2).min(most),
                Expiry::TooIdle if last > 5 * least => last - 4 * least,
                Expiry::TooIdle => least,
                Expiry::Timeout => (last * 2).min(most),
                Expiry::Exhausted => (last * 4).min(most),
                Expiry::Empty => service.max(least),
                Expiry::Preempted => return,
            };
        }
        if self.turns >= MIN_TURNS && self.fixed_budget == 0 {
            budget = budget.min(most);
        }
        q.max_budget = budget;
        if let Some(next) = q.next {
            self.accounts[queue].budget = budget.max(self.charge(queue, &requests[next]));
        }
    }

    fn begin_turn(&mut self, now: Now) -> Option<usize> {
        if self.busy == 0 {
            return None;
        }
        let queue = self.accounts.begin()?;
        let q = &mut self.queues[queue];
        q.fifo_seen = false;
        self.turns = (self.turns * 7 + 256) / 8;
        let account = &self.accounts[queue];
        let soft = q.raising.length == self.soft_length;
        if soft && account.raise > 1 && q.raising.since < now.tick && q.timeout < now.tick {
            // The time in which it was not served does not count.
            q.raising.since =
                if q.timeout > q.raising.since { q.raising.since + now.tick - q.timeout } else { now.tick };
        }
        let times = if soft { 1 } else { account.weight() / account.base };
        q.timeout = now.tick + self.timeout * times as Tick;
        self.turn_since = now.at;
        (self.serving, self.serving_last_pos) = (Some(queue), 0);
        Some(queue)
    }

    /// The queue that a request may be taken from now.
    pub(super) fn select(&mut self, requests: &Requests, now: Now) -> Option<usize> {
        let mut why = Expiry::Timeout;
        let mut expires = match self.serving {
            Some(queue) => self.has_timed_out(queue, now) && !self.must_idle(queue),
            None => false,
        };
        loop {
            if expires && let Some(queue) = self.serving {
                self.expire(queue, why, false, requests, now);
            }
            let queue = match self.serving {
                Some(queue) => queue,
                None => self.begin_turn(now)?,
            };
            if let Some(next) = self.queues[queue].next {
                if self.charge(queue, &requests[next]) <= self.accounts[queue].left() {
                    self.stop_waiting(IdleEnd::Hit);
                    return Some(queue);
                }
                why = Expiry::Exhausted;
            } else if self.queues[queue].awaited || (self.queues[queue].in_driver > 0 && self.better_to_idle(queue)) {
                return self.injects(queue, requests);
            } else {
                why = Expiry::Empty;
            }
            expires = true;
        }
    }

    /// The queue of which a request is served although `serving` is waited for.
    fn injects(&mut self, serving: usize, requests: &Requests) -> Option<usize> {
        let affordable = |queue: usize| {
            let next = self.queues[queue].next?;
            (self.charge(queue, &requests[next]) <= self.accounts[queue].left()).then_some(queue)
        };
        let q = &self.queues[serving];
        let busy = |queue: &usize| self.queues[*queue].busy;
        let own = q.owner.and_then(|task| {
            let queue = self.tasks[task as usize].queues[0].filter(busy)?;
            let next = self.queues[queue].next?;
            (requests[next].context.task == task).then_some(queue)
        });
        if let Some(queue) = own.and_then(affordable) {
            return Some(queue);
        }
        if let Some(queue) = q.waker.filter(busy).and_then(affordable) {
            return Some(queue);
        }
        if let Some(queue) = q.woken.first().copied().filter(busy).and_then(affordable) {
            return Some(queue);
        }
        let raise = self.accounts[serving].raise;
        if self.idling_boosts_throughput(serving) || (raise > 1 && self.raised_busy <= 1 && q.short_think) {
            return None;
        }
        let anybody = raise == 1 || !q.short_think;
        if self.in_driver >= q.injection.limit {
            return None;
        }
        let found = self.accounts.latest_first().find(|&queue| {
            (anybody || self.accounts[queue].raise > 1)
                && affordable(queue).is_some()
                && !self.queues[queue].next.is_some_and(|next| {
                    !self.rotational && requests[next].nr_sectors >= SMALL_SECTORS && self.in_driver >= 1
                })
        });
        self.injected |= found.is_some();
        found
    }

    /// Takes the next request of a queue.
    pub(super) fn dispatch(&mut self, queue: usize, requests: &Requests, now: Now) -> RqId {
        let rq = self.queues[queue].next.expect("the queue was selected for its request");
        let request = requests[rq];
        let charge = self.charge(queue, &request);
        self.served(queue, charge, now);
        let in_service = self.serving == Some(queue);
        if in_service && std::mem::take(&mut self.measure_next) {
            self.measured = Some(rq);
        }
        self.queues[queue].in_driver += 1;
        if self.rate.dispatched(&request, self.in_driver, self.rotational, now) {
            self.rate_changed();
        }
        if in_service {
            self.serving_last_pos = self.rate.last_position;
        }
        self.remove(requests, rq, now);
        self.in_driver += 1;
        if in_service {
            self.review_raising(queue, now);
        }
        rq
    }

    pub(super) fn rate_changed(&mut self) {
        if self.fixed_budget == 0 {
            self.max_budget = self.budget_by_rate();
        }
    }

    /// Ends raising that has lasted long enough (`bfq_update_wr_data`).
    fn review_raising(&mut self, queue: usize, now: Now) {
        if self.accounts[queue].raise > 1 {
            let q = &self.queues[queue];
            let soft = q.raising.length == self.soft_length;
            if q.in_large_burst {
                self.end_raising(queue, now);
            } else if q.raising.since + q.raising.length < now.tick {
                if !soft || q.raising.interactive_since + self.raise_length() < now.tick {
                    self.end_raising(queue, now);
                } else {
                    self.back_to_interactive(queue);
                }
            }
            let q = &self.queues[queue];
            let soft = q.raising.length == self.soft_length;
            if self.accounts[queue].raise > 1 && !soft && q.raising.service > RAISED_SECTORS {
                self.end_raising(queue, now);
            }
        }
        let account = &self.accounts[queue];
        if (account.weight() > account.base) != (account.raise > 1) {
            self.accounts.reweigh(queue);
        }
    }

    fn note_queueing(&mut self) {
        self.most_in_driver = self.most_in_driver.max(self.in_driver);
        if self.queueing == Some(true) || self.in_driver + self.waiting as u32 <= QUEUEING {
            return;
        }
        if let Some(queue) = self.serving {
            let q = &self.queues[queue];
            if q.short_think && q.in_driver + q.waiting < QUEUEING && self.in_driver < QUEUEING {
                return;
            }
        }
        self.queueing_samples += 1;
        if self.queueing_samples <= QUEUEING_SAMPLES {
            return;
        }
        self.queueing = Some(self.most_in_driver > QUEUEING);
        (self.most_in_driver, self.queueing_samples) = (0, 0);
        self.flash_with_queueing = !self.rotational && self.queueing == Some(true);
    }

    /// The measured request is done.
    fn adapt_injection(&mut self, queue: usize, now: Now) {
        let took = now.at.saturating_sub(self.occupied_since);
        let (alone, injected) = (self.in_driver == 1, self.injected);
        let most = self.most_in_driver;
        let injection = &mut self.queues[queue].injection;
        let limit = injection.limit;
        if injection.baseline > Nanos::ZERO && injected {
            let long = injection.baseline * 3 / 2;
            if took >= long && limit > 0 {
                (injection.limit, injection.lowered) = (limit - 1, now.tick);
            } else if took < long && limit <= most {
                injection.limit += 1;
            }
        }
        let first = injection.baseline == Nanos::ZERO;
        if (first && alone) || took < injection.baseline {
            if first {
                injection.limit = limit.max(1);
            }
            injection.baseline = took;
        } else if !injected && alone {
            injection.baseline = took;
        }
        (self.measured, self.injected) = (None, false);
    }

    /// A request is done.
    pub(super) fn done(&mut self, requests: &Requests, rq: RqId, now: Now) {
        let queue = self.data[rq.0 as usize].queue as usize;
        if self.measured == Some(rq) {
            self.adapt_injection(queue, now);
        }
        self.note_queueing();
        self.in_driver -= 1;
        let q = &mut self.queues[queue];
        q.in_driver -= 1;
        if q.in_driver == 0 && !q.busy {
            q.timeout = now.tick;
            self.accounts.unregister(queue);
        }
        let q = &mut self.queues[queue];
        q.think.last_end = now.at;
        if self.rate.completed(now) {
            self.rate_changed();
        }
        self.last_completed = (!self.queues[queue].shared).then_some(queue);
        let q = &self.queues[queue];
        if q.soft_update && q.in_driver == 0 && q.tree.is_empty() && self.accounts[queue].raise != self.raise {
            self.queues[queue].soft_start = self.soft_start(queue, now);
        }
        let idles = self.serving == Some(queue) && self.after_completion(queue, requests, now);
        if !idles && self.in_driver == 0 {
            self.schedule();
        }
        self.forget(rq);
    }

    /// Decides about the queue in service: whether it is or will be waited for.
    fn after_completion(&mut self, queue: usize, requests: &Requests, now: Now) -> bool {
        if self.must_idle(queue) {
            if self.queues[queue].in_driver == 0 {
                self.wait_for(queue, now);
            }
            return true;
        }
        if self.has_timed_out(queue, now) {
            self.expire(queue, Expiry::Timeout, false, requests, now);
        } else if self.queues[queue].tree.is_empty()
            && (self.queues[queue].in_driver == 0 || !self.better_to_idle(queue))
        {
            self.expire(queue, Expiry::Empty, false, requests, now);
        }
        false
    }

    /// Has the next request of the queue in service waited for.
    fn wait_for(&mut self, queue: usize, now: Now) {
        self.queues[queue].awaited = true;
        let raised = self.accounts[queue].raise > 1;
        let time = if raised {
            self.slice_idle.max(RAISED_IDLE)
        } else if self.queues[queue].seeky() && !self.accounts.asymmetric(queue) {
            self.slice_idle.min(MIN_THINK)
        } else {
            self.slice_idle
        };
        self.idling_since = now.at;
        self.idle_until = Some(now.at + time);
        if self.waiting > 0 {
            self.note_wait();
        }
    }

    /// The time for which the queue in service is waited has passed.
    pub(super) fn wait_is_over(&mut self, requests: &Requests, now: Now) {
        let Some(queue) = self.serving.filter(|_| self.idle_until.is_some()) else { return };
        self.queues[queue].awaited = false;
        if self.queues[queue].timeout <= now.tick {
            self.expire(queue, Expiry::Timeout, true, requests, now);
        } else if self.queues[queue].waiting == 0 {
            self.expire(queue, Expiry::TooIdle, true, requests, now);
        } else {
            self.stop_waiting(IdleEnd::Broken);
        }
        self.schedule();
    }

    /// A queue that nobody needs any more makes room for another one.
    pub(super) fn release(&mut self, queue: usize) {
        let q = &self.queues[queue];
        let needed = q.tasks > 0 || q.allocated > 0 || q.stable_refs > 0 || !q.used;
        if needed || self.accounts[queue].counted || self.serving == Some(queue) {
            return;
        }
        self.set_waker(queue, None);
        for woken in std::mem::take(&mut self.queues[queue].woken) {
            self.queues[woken].waker = None;
        }
        for other in &mut self.queues {
            if other.perhaps_waker == Some(queue) {
                other.perhaps_waker = None;
            }
        }
        for reference in [&mut self.last_completed, &mut self.last_created] {
            if *reference == Some(queue) {
                *reference = None;
            }
        }
        self.unplace(queue);
        let q = &mut self.queues[queue];
        (q.used, q.in_burst_list, q.timeout) = (false, false, LONG_AGO);
        self.free.push(queue);
    }

    /// Idle accounts that the clock has passed are forgotten, and perhaps their queues with them.
    fn release_forgotten(&mut self) {
        while let Some(queue) = self.accounts.take_forgotten() {
            self.release(queue);
        }
    }
}
