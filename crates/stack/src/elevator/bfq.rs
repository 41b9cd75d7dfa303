//! BFQ, approximately: budgets of sectors shared out by weight, idling, weight-raising, injection.
//!
//! ```text
//! queues    one for each task's synchronous requests, one for all asynchronous ones; each a tree and a list by age
//! service   the queue with the smallest virtual finish time among those whose start has come; until its budget is
//!           used, 125 ms are over, or it is empty and waiting for more is not worth it
//! charge    sectors served (async: times 3); slow or late queues pay for their time; over weight this moves the
//!           queue's start and over all weights the common clock
//! budget    doubled when used up, a quarter less after waiting in vain, else the used part; at most what the device
//!           does in 125 ms
//! raising   weight times 30 for new queues and those back after 2 s (interactive), and for queues that ask little
//!           (soft real time, 300 ms); not when more than 8 queues appear in a burst
//! idling    8 ms for sequential tasks (2 ms for seeking ones among equals, 20 ms if raised); on flash with queueing
//!           only for raised queues; meanwhile up to `inject_limit` requests of others go to the device
//! ```
//! Source: Linux 6.1, `block/bfq-iosched.c`, constants and rules. Deviations: an approximation. No groups, priorities
//! or merging of cooperating queues; one level of B-WF2Q+ by linear search; the peak rate is an average over long slots
//! instead of over filtered samples; budgets follow fewer cases; injection compares single service times. On a queue
//! whose flushes are ordered everything behind a flush waits until it has left.

use super::{Barrier, Build, Ctx, Elevator, Quirks};
use crate::event::{Dir, IdleEnd, MergeKind, RqId};
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::request::{Bio, Request, Requests};
use crate::sorted::{Fifo, MergeHints, Sorted, joins, slot};
use crate::units::{Hz, Nanos};

/// Weight of a queue that was not raised.
const WEIGHT: u64 = 100;
/// Fixed point of virtual time.
const VIRTUAL: u64 = 1 << 20;
/// Charge for an asynchronous sector.
const ASYNC_CHARGE: u64 = 3;
/// Budget until enough budgets have been seen, sectors.
const DEFAULT_BUDGET: u64 = 16_384;
const MIN_BUDGETS: u32 = 194;
const SEEK_SECTORS: u64 = 800;
const SMALL_SECTORS: u32 = 64;
const SEEKY: u32 = 19;
/// Sectors a second that the reference drives do, and how long raising lasts on them.
const ROTATING: (u64, Nanos) = (213_623, Nanos::from_ms(7_000));
const FLASH: (u64, Nanos) = (503_540, Nanos::from_ms(2_500));
const RAISE_MIN: Nanos = Nanos::from_secs(3);
const RAISE_MAX: Nanos = Nanos::from_secs(25);
/// Sectors after which an interactive queue has had enough.
const RAISED_SECTORS: u64 = 120_000;
const SOFT_RATE: u64 = 7_000;
const SOFT_TIME: Nanos = Nanos::from_ms(300);
const BURST_GAP: Nanos = Nanos::from_ms(180);
const BURST_QUEUES: u32 = 8;
const SEEKY_IDLE: Nanos = Nanos::from_ms(2);
const RAISED_IDLE: Nanos = Nanos::from_ms(20);
/// Requests in the driver and dispatches over which queueing is noticed.
const QUEUEING: u32 = 3;
const QUEUEING_SAMPLES: u32 = 32;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::number("slice_idle_us", 8_000, (0, 1_000_000), "time to wait for the next request of a queue"),
    OptionSpec::number("timeout_sync_ms", 125, (1, 100_000), "longest time in service"),
    OptionSpec::number("max_budget", 0, (0, 1 << 24), "sectors in one service; 0: from the device's rate"),
    OptionSpec::number("fifo_expire_sync_ms", 125, (0, 1_000_000), "age at which a synchronous request goes first"),
    OptionSpec::number("fifo_expire_async_ms", 250, (0, 1_000_000), "the same for an asynchronous one"),
    OptionSpec::number("back_seek_max_kb", 16_384, (0, 1 << 24), "how far back a request still counts as near"),
    OptionSpec::number("back_seek_penalty", 2, (1, 1_000), "cost of a sector backwards"),
    OptionSpec::switch("low_latency", true, "raise the weight of interactive and soft real-time queues"),
    OptionSpec::number("wr_coeff", 30, (1, 1_000), "times the weight of a raised queue"),
];

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "bfq",
    summary: "budgets by weight, idling and raised weights for interactive tasks (blk-mq); an approximation",
    origin: &[Origin {
        kernels: "4.12 .. 6.12",
        file: "block/bfq-iosched.c",
        function: "bfq_select_queue, bfq_bfqq_expire",
        notes: "constants and rules as in 6.1; budgets, peak rate and injection simplified",
    }],
    options: OPTIONS,
    conformance: "tables of shares and waits; the property test over all elevators; not held to the kernel",
    build,
};

fn build(options: &Options, _hz: Hz) -> Box<dyn Elevator> {
    let ms = |name| Nanos::from_ms(options.unsigned(name));
    Box::new(Bfq {
        slice_idle: Nanos::from_us(options.unsigned("slice_idle_us")),
        timeout: ms("timeout_sync_ms"),
        fixed_budget: options.unsigned("max_budget"),
        expire: [ms("fifo_expire_sync_ms"), ms("fifo_expire_async_ms")],
        back_max: options.unsigned("back_seek_max_kb") * 2,
        back_penalty: options.unsigned("back_seek_penalty"),
        low_latency: options.is_on("low_latency"),
        coefficient: options.unsigned("wr_coeff"),
        queues: vec![Queue { live: true, ..Queue::default() }],
        hints: MergeHints::default(),
        data: Vec::new(),
        barrier: Barrier::default(),
        waiting: 0,
        serving: None,
        clock: 0,
        last_end: 0,
        idle_until: None,
        noticed: false,
        slot_start: Nanos::ZERO,
        peak_rate: 0,
        budgets_seen: 0,
        samples: (0, 0),
        queueing: None,
        last_created: None,
        burst: 0,
    })
}

#[derive(Copy, Clone, Debug, Default)]
struct Data {
    /// Sector under which it stands in the tree.
    key: u64,
    queue: u32,
    expires: Nanos,
    /// When the queue it came to was empty: how long it took is compared for injection.
    first_at: Option<Nanos>,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    live: bool,
    sync: bool,
    tree: Sorted,
    fifo: Fifo,
    /// Virtual start time, valid while something waits.
    start: u64,
    budget: u64,
    /// Sectors served in the slot.
    service: u64,
    in_driver: u32,
    last_end: u64,
    seeks: u32,
    /// Weight is raised until then; for how many sectors more.
    raised_until: Option<Nanos>,
    raised_left: u64,
    in_burst: bool,
    empty_since: Nanos,
    backlogged_since: Nanos,
    backlogged_sectors: u64,
    inject_limit: u32,
    injected: bool,
    baseline: Option<Nanos>,
}

impl Queue {
    fn raised(&self, now: Nanos) -> bool {
        self.raised_until.is_some_and(|until| now < until)
    }

    fn seeky(&self) -> bool {
        self.seeks.count_ones() > SEEKY
    }
}

#[derive(Clone, Debug)]
struct Bfq {
    slice_idle: Nanos,
    timeout: Nanos,
    fixed_budget: u64,
    expire: [Nanos; 2],
    back_max: u64,
    back_penalty: u64,
    low_latency: bool,
    coefficient: u64,
    /// The asynchronous one, then one for each task by number.
    queues: Vec<Queue>,
    hints: MergeHints,
    data: Vec<Data>,
    barrier: Barrier,
    waiting: usize,
    serving: Option<usize>,
    clock: u64,
    last_end: u64,
    /// The queue in service is empty, and until then its next request is waited for.
    idle_until: Option<Nanos>,
    /// Something else has been held back for it.
    noticed: bool,
    slot_start: Nanos,
    /// Sectors a second; 0 while unknown.
    peak_rate: u64,
    budgets_seen: u32,
    /// Most requests in the driver, and the number of dispatches.
    samples: (u32, u32),
    queueing: Option<bool>,
    last_created: Option<Nanos>,
    burst: u32,
}

impl Bfq {
    fn max_budget(&self) -> u64 {
        match self.fixed_budget {
            0 if self.budgets_seen >= MIN_BUDGETS && self.peak_rate > 0 => {
                (self.peak_rate * (self.timeout.0 / 1_000_000) / 1000).max(32)
            }
            0 => DEFAULT_BUDGET,
            fixed => fixed,
        }
    }

    fn weight(&self, queue: &Queue, now: Nanos) -> u64 {
        if queue.raised(now) { WEIGHT * self.coefficient } else { WEIGHT }
    }

    fn queue_of(&mut self, bio_sync: bool, dir: Dir, task: u32, now: Nanos) -> usize {
        if !bio_sync && dir == Dir::Write {
            return 0;
        }
        let index = task as usize + 1;
        if index >= self.queues.len() {
            self.queues.resize(index + 1, Queue::default());
        }
        if !self.queues[index].live {
            let close = self.last_created.is_some_and(|at| now < at + BURST_GAP);
            self.burst = if close { self.burst + 1 } else { 1 };
            self.last_created = Some(now);
            let in_burst = self.burst > BURST_QUEUES;
            self.queues[index] = Queue { live: true, sync: true, in_burst, inject_limit: 1, ..Queue::default() };
        }
        index
    }

    fn raise_time(&self, rotational: bool) -> Nanos {
        let (rate, time) = if rotational { ROTATING } else { FLASH };
        let peak = if self.peak_rate > 0 { self.peak_rate } else { rate * 2 / 3 };
        Nanos(time.0 / 1000 * rate / peak * 1000).clamp(RAISE_MIN, RAISE_MAX)
    }

    /// A queue gets its first request after having been empty.
    fn becomes_busy(&mut self, index: usize, is_new: bool, ctx: &Ctx<'_>) {
        let now = ctx.now;
        let (time, clock) = (self.raise_time(ctx.rotational), self.clock);
        let low_latency = self.low_latency;
        let queue = &mut self.queues[index];
        queue.start = queue.start.max(clock);
        if queue.sync && low_latency && !queue.in_burst && !queue.raised(now) {
            let idle = now.saturating_sub(queue.empty_since);
            let allowance = Nanos(queue.backlogged_sectors * 1_000_000_000 / SOFT_RATE);
            if is_new || idle >= Nanos::from_secs(2) {
                queue.raised_until = Some(now + time);
                queue.raised_left = RAISED_SECTORS;
            } else if now > queue.backlogged_since + allowance && queue.backlogged_sectors > 0 {
                queue.raised_until = Some(now + SOFT_TIME);
                queue.raised_left = u64::MAX;
            }
        }
        (queue.backlogged_since, queue.backlogged_sectors) = (now, 0);
    }

    fn queue_request(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        let now = ctx.now;
        if let (Some(serving), true) = (self.serving, self.idle_until.is_some_and(|until| now >= until)) {
            self.expire(serving, Expiry::Idle, ctx);
        }
        let Request { sector, nr_sectors, dir, sync, context, .. } = ctx.requests[rq];
        let index = self.queue_of(sync, dir, context.task, now);
        // Every queue has a budget from its first request on.
        let is_new = self.queues[index].budget == 0;
        let was_empty = self.queues[index].tree.is_empty();
        if was_empty && self.serving != Some(index) {
            self.becomes_busy(index, is_new, ctx);
        }
        let most = self.max_budget();
        let expire = self.expire[usize::from(index == 0)];
        let queue = &mut self.queues[index];
        if queue.budget == 0 {
            queue.budget = most;
        }
        let far = sector.0.abs_diff(queue.last_end) > SEEK_SECTORS && (ctx.rotational || nr_sectors < SMALL_SECTORS);
        queue.seeks = queue.seeks << 1 | u32::from(far);
        queue.last_end = ctx.requests[rq].end().0;
        let first_at = (was_empty && queue.in_driver == 0).then_some(now);
        *slot(&mut self.data, rq) = Data { key: sector.0, queue: index as u32, expires: now + expire, first_at };
        queue.tree.insert(sector.0, rq);
        queue.fifo.push_back(rq);
        self.waiting += 1;
        self.hints.added(ctx.requests, rq);
        if self.serving == Some(index) {
            self.end_wait(IdleEnd::Hit, ctx);
        }
    }

    /// A wait is over. It has been noticed only if something else could have been served meanwhile.
    fn end_wait(&mut self, how: IdleEnd, ctx: &mut Ctx<'_>) {
        if self.idle_until.take().is_some() && std::mem::take(&mut self.noticed) {
            ctx.idle_ended = Some(how);
            ctx.kick_unplugged(true);
        }
    }

    fn remove(&mut self, rq: RqId) {
        let Data { key, queue, .. } = self.data[rq.0 as usize];
        let queue = &mut self.queues[queue as usize];
        queue.tree.remove(key, rq);
        queue.fifo.remove(rq);
        self.hints.removed(rq);
        self.waiting -= 1;
    }

    /// The request of a queue that goes next: an overdue one, else the nearest, backwards counting more.
    fn choose(&self, index: usize, requests: &Requests, now: Nanos) -> Option<RqId> {
        let queue = &self.queues[index];
        let oldest = queue.fifo.first()?;
        if now >= self.data[oldest.0 as usize].expires {
            return Some(oldest);
        }
        let from = self.last_end;
        let mut best: Option<((bool, u64), RqId)> = None;
        let (before, behind) = queue.tree.around(from);
        let candidates = [behind, before, queue.tree.first()];
        for rq in candidates.into_iter().flatten() {
            let sector = requests[rq].sector.0;
            let cost = if sector >= from {
                (false, sector - from)
            } else if from - sector <= self.back_max {
                (false, (from - sector) * self.back_penalty)
            } else {
                (true, sector)
            };
            if best.is_none_or(|(other, _)| cost < other) {
                best = Some((cost, rq));
            }
        }
        best.map(|(_, rq)| rq)
    }

    /// Whether an empty queue in service is worth waiting for.
    fn should_idle(&self, index: usize, ctx: &Ctx<'_>) -> bool {
        let queue = &self.queues[index];
        if !queue.sync || !queue.live || self.slice_idle == Nanos::ZERO {
            return false;
        }
        let now = ctx.now;
        let raised = queue.raised(now);
        let others_raised =
            self.queues.iter().enumerate().any(|(i, q)| i != index && !q.tree.is_empty() && q.raised(now));
        let queueing = self.queueing == Some(true);
        let throughput = (ctx.rotational && !queueing) || ((ctx.rotational || !queueing) && !queue.seeky());
        // Weights are unequal as soon as one is raised.
        raised || others_raised || throughput
    }

    fn idle_time(&self, index: usize, now: Nanos) -> Nanos {
        let queue = &self.queues[index];
        if queue.raised(now) {
            self.slice_idle.max(RAISED_IDLE)
        } else if queue.seeky() {
            self.slice_idle.min(SEEKY_IDLE)
        } else {
            self.slice_idle
        }
    }

    /// Ends the service of the current queue.
    fn expire(&mut self, index: usize, why: Expiry, ctx: &mut Ctx<'_>) {
        let now = ctx.now;
        let most = self.max_budget();
        let took = now.saturating_sub(self.slot_start);
        let weights: u64 = self
            .queues
            .iter()
            .enumerate()
            .filter(|(i, q)| *i == index || !q.tree.is_empty())
            .map(|(_, q)| self.weight(q, now))
            .sum();
        let queue = &self.queues[index];
        let raised = queue.raised(now);
        let (weight, service) = (self.weight(queue, now), queue.service);
        let by_time = most * took.0.min(self.timeout.0) / self.timeout.0.max(1);
        let slow = queue.sync && (why == Expiry::Timeout || (queue.seeky() && took > self.timeout / 8));
        let mut charge = if slow && !raised { service.max(by_time) } else { service };
        if !queue.sync {
            charge *= ASYNC_CHARGE;
        }
        if took >= Nanos::from_ms(20) && queue.sync {
            let rate = service * 1_000_000 / (took.0 / 1000);
            self.peak_rate = if self.peak_rate == 0 { rate } else { (7 * self.peak_rate + rate) / 8 };
        }
        self.budgets_seen += 1;
        self.clock += charge * VIRTUAL / weights.max(1);
        let queue = &mut self.queues[index];
        queue.start += charge * VIRTUAL / weight;
        queue.budget = match why {
            Expiry::Budget | Expiry::Timeout => (queue.budget * 2).min(most),
            Expiry::Idle => (queue.budget - queue.budget / 4).max(32),
            Expiry::Empty => service.clamp(32, most),
        };
        queue.budget = queue.budget.min(most);
        queue.service = 0;
        if queue.tree.is_empty() {
            queue.empty_since = now;
        }
        self.serving = None;
        self.end_wait(if why == Expiry::Idle { IdleEnd::Timeout } else { IdleEnd::Broken }, ctx);
    }

    /// Picks the queue to be served.
    fn select(&mut self, now: Nanos) -> Option<usize> {
        let busy = || self.queues.iter().enumerate().filter(|(_, queue)| !queue.tree.is_empty());
        let earliest = busy().map(|(_, queue)| queue.start).min()?;
        let clock = self.clock.max(earliest);
        let finish = |queue: &Queue| queue.start + queue.budget * VIRTUAL / self.weight(queue, now);
        let chosen = busy().filter(|(_, q)| q.start <= clock).min_by_key(|(index, q)| (finish(q), *index))?.0;
        self.clock = clock;
        Some(chosen)
    }

    fn dispatch(&mut self, index: usize, rq: RqId, ctx: &Ctx<'_>) -> RqId {
        let sectors = u64::from(ctx.requests[rq].nr_sectors);
        self.remove(rq);
        self.last_end = ctx.requests[rq].end().0;
        let queue = &mut self.queues[index];
        queue.in_driver += 1;
        queue.service += sectors;
        queue.backlogged_sectors += sectors;
        if queue.raised_until.is_some() {
            queue.raised_left = queue.raised_left.saturating_sub(sectors);
            if queue.raised_left == 0 {
                queue.raised_until = None;
            }
        }
        let (most, nr) = self.samples;
        self.samples = (most.max(ctx.in_driver + 1), nr + 1);
        if self.samples.1 >= QUEUEING_SAMPLES {
            self.queueing = Some(self.samples.0 >= QUEUEING);
            self.samples = (0, 0);
        }
        rq
    }

    /// A request of another queue while the one in service has nothing.
    fn inject(&mut self, index: usize, ctx: &Ctx<'_>) -> Option<RqId> {
        if ctx.in_driver >= self.queues[index].inject_limit || self.queues[index].in_driver == 0 {
            return None;
        }
        let other = (0..self.queues.len()).find(|&i| i != index && !self.queues[i].tree.is_empty())?;
        let rq = self.choose(other, ctx.requests, ctx.now)?;
        self.queues[index].injected = true;
        Some(self.dispatch(other, rq, ctx))
    }
}

/// Why a queue's service ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Expiry {
    Budget,
    Timeout,
    Idle,
    Empty,
}

impl Elevator for Bfq {
    fn quirks(&self) -> Quirks {
        Quirks { regulates_writeback: true, ..Quirks::WAITING }
    }

    fn merge(&mut self, ctx: &mut Ctx<'_>, bio: &Bio) -> Option<(RqId, MergeKind)> {
        if bio.flush {
            return None;
        }
        if let Some(found) = self.hints.find(ctx.requests, bio) {
            return Some(found);
        }
        let index = if bio.sync || bio.dir == Dir::Read { bio.context.task as usize + 1 } else { 0 };
        let rq = self.queues.get(index)?.tree.at(bio.sector.plus(u64::from(bio.nr_sectors)).0)?;
        (joins(&ctx.requests[rq], bio) == Some(MergeKind::Front)).then_some((rq, MergeKind::Front))
    }

    fn merged(&mut self, ctx: &mut Ctx<'_>, rq: RqId, _kind: MergeKind) {
        self.hints.merged(ctx.requests, rq);
        let Data { key, queue, .. } = self.data[rq.0 as usize];
        let sector = ctx.requests[rq].sector.0;
        if key != sector {
            let tree = &mut self.queues[queue as usize].tree;
            tree.remove(key, rq);
            tree.insert(sector, rq);
            self.data[rq.0 as usize].key = sector;
        }
    }

    fn neighbour(&self, _ctx: &Ctx<'_>, rq: RqId, side: MergeKind) -> Option<RqId> {
        let Data { key, queue, .. } = self.data[rq.0 as usize];
        let tree = &self.queues[queue as usize].tree;
        match side {
            MergeKind::Back => tree.after(key, rq),
            MergeKind::Front => tree.before(key, rq),
        }
    }

    fn merged_requests(&mut self, ctx: &mut Ctx<'_>, kept: RqId, gone: RqId) {
        let (a, b) = (self.data[kept.0 as usize], self.data[gone.0 as usize]);
        if b.expires < a.expires && a.queue == b.queue {
            self.data[kept.0 as usize].expires = b.expires;
            self.queues[a.queue as usize].fifo.move_before(kept, gone);
        }
        self.remove(gone);
        self.merged(ctx, kept, MergeKind::Back);
    }

    fn add(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        if !self.barrier.holds(ctx, rq) {
            self.queue_request(ctx, rq);
        } else {
            self.end_wait(IdleEnd::Broken, ctx);
        }
    }

    fn next(&mut self, ctx: &mut Ctx<'_>) -> Option<RqId> {
        if self.waiting == 0
            && let Some(flush) = self.barrier.pop()
        {
            while let Some(rq) = self.barrier.release(ctx) {
                self.queue_request(ctx, rq);
            }
            return Some(flush);
        }
        if let Some(index) = self.serving {
            let timed_out = ctx.now >= self.slot_start + self.timeout;
            match self.choose(index, ctx.requests, ctx.now) {
                Some(rq) => {
                    let (queue, sectors) = (&self.queues[index], u64::from(ctx.requests[rq].nr_sectors));
                    // The first request goes in any case, or a large one would never leave.
                    if queue.service > 0 && timed_out {
                        self.expire(index, Expiry::Timeout, ctx);
                    } else if queue.service > 0 && queue.service + sectors > queue.budget {
                        self.expire(index, Expiry::Budget, ctx);
                    } else {
                        return Some(self.dispatch(index, rq, ctx));
                    }
                }
                None if self.idle_until.is_some_and(|until| ctx.now < until) => {
                    let injected = self.inject(index, ctx);
                    if self.waiting > 0 && injected.is_none() && !std::mem::replace(&mut self.noticed, true) {
                        ctx.idle_started = true;
                    } else if self.waiting == 0 && std::mem::take(&mut self.noticed) {
                        // The wait goes on, but it holds up nothing any more.
                        ctx.idle_ended = Some(IdleEnd::Broken);
                    }
                    return injected;
                }
                None if self.idle_until.is_some() => self.expire(index, Expiry::Idle, ctx),
                None if self.queues[index].in_driver > 0 && self.waiting > 0 && self.should_idle(index, ctx) => {
                    return self.inject(index, ctx);
                }
                None => self.expire(index, Expiry::Empty, ctx),
            }
        }
        let index = self.select(ctx.now)?;
        self.serving = Some(index);
        self.slot_start = ctx.now;
        self.queues[index].service = 0;
        let rq = self.choose(index, ctx.requests, ctx.now)?;
        Some(self.dispatch(index, rq, ctx))
    }

    fn completed(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        if ctx.requests[rq].flush {
            return;
        }
        let Data { queue: index, first_at, .. } = self.data[rq.0 as usize];
        let index = index as usize;
        let queue = &mut self.queues[index];
        queue.in_driver -= 1;
        if let Some(at) = first_at.filter(|_| queue.sync) {
            let took = ctx.now.saturating_sub(at);
            let baseline = queue.baseline.unwrap_or(took);
            if !queue.injected {
                queue.baseline = Some(if queue.baseline.is_none() { took } else { baseline.min(took) });
            } else if took.0 * 2 < baseline.0 * 3 {
                queue.inject_limit = (queue.inject_limit + 1).min(self.samples.0.max(1));
            } else {
                queue.inject_limit = queue.inject_limit.saturating_sub(1);
            }
            queue.injected = false;
        }
        let empty = queue.in_driver == 0 && queue.tree.is_empty();
        if empty && self.serving == Some(index) && self.idle_until.is_none() && self.barrier.len() == 0 {
            if self.should_idle(index, ctx) {
                self.idle_until = Some(ctx.now + self.idle_time(index, ctx.now));
            } else {
                self.expire(index, Expiry::Empty, ctx);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.waiting + self.barrier.len()
    }

    fn timer(&self) -> Option<Nanos> {
        self.idle_until.filter(|_| self.noticed)
    }

    fn on_timer(&mut self, ctx: &mut Ctx<'_>) {
        if let (Some(index), Some(_)) = (self.serving, self.idle_until) {
            self.expire(index, Expiry::Idle, ctx);
        }
    }

    fn task_exited(&mut self, context: crate::request::IoContext) {
        // The queue may still have requests; it is created again if the number comes back.
        if let Some(queue) = self.queues.get_mut(context.task as usize + 1)
            && queue.tree.is_empty()
            && queue.in_driver == 0
        {
            queue.live = false;
        }
    }

    fn depth_limit(&self, bio: &Bio, nr_tags: u32) -> u32 {
        // Reads are free; while a raised queue is busy, writes have less.
        match (bio.dir, bio.sync, self.queues.iter().any(|queue| queue.raised_until.is_some() && queue.in_driver > 0)) {
            (Dir::Read, _, _) => nr_tags,
            (Dir::Write, true, false) => nr_tags * 3 / 4,
            (Dir::Write, false, false) => nr_tags / 2,
            (Dir::Write, true, true) => nr_tags * 6 / 16,
            (Dir::Write, false, true) => nr_tags * 3 / 16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Driver;
    use super::*;
    use Dir::{Read, Write};

    /// Sectors that two tasks get in turn while both always have a sequential request waiting; longest runs.
    fn runs(settings: &[(&str, i64)], requests: u64) -> Vec<(bool, u64)> {
        let mut driver = Driver::with("bfq", 1000, settings);
        let mut runs: Vec<(bool, u64)> = Vec::new();
        let mut next = [0u64, 1 << 30];
        for task in [0, 1] {
            driver.submit(Read, next[task], 1024, task as u32);
        }
        for _ in 0..requests {
            let rq = driver.start().expect("both have something");
            let task = usize::from(driver.requests[rq].sector.0 >= 1 << 30);
            driver.now += Nanos::from_ms(4);
            driver.complete(rq);
            next[task] += 1024;
            driver.submit(Read, next[task], 1024, task as u32);
            match runs.last_mut() {
                Some((last, nr)) if *last == (task == 1) => *nr += 1,
                _ => runs.push((task == 1, 1)),
            }
        }
        runs
    }

    #[test]
    fn a_budget_is_served_in_one_go_and_then_it_is_the_others_turn() {
        // 16384 sectors are 16 requests, 64 ms.
        let plain = [("low_latency", 0)];
        let found = runs(&plain, 96);
        assert_eq!(found, [(false, 16), (true, 16), (false, 16), (true, 16), (false, 16), (true, 16)]);
        // A tenth of that: two requests would be too much for it.
        assert!(runs(&[("low_latency", 0), ("max_budget", 1700)], 20).iter().all(|(_, nr)| *nr == 1));
        // Time in service ends a slot too: 40 ms are 10 requests.
        assert!(runs(&[("low_latency", 0), ("timeout_sync_ms", 40)], 60)[..3].iter().all(|(_, nr)| *nr == 10));
    }

    #[test]
    fn the_next_request_of_a_sequential_reader_is_waited_for() {
        for (slice_idle_us, arrives_us, waits) in [(8_000, 7_000, true), (8_000, 9_000, false), (0, 10, false)] {
            let mut driver = Driver::with("bfq", 1000, &[("low_latency", 0), ("slice_idle_us", slice_idle_us)]);
            driver.submit(Read, 100, 8, 0);
            let own = driver.start().expect("the first");
            driver.submit(Read, 900_000, 8, 1);
            driver.now += Nanos::from_ms(5);
            driver.complete(own);
            let arrives = driver.now + Nanos::from_us(arrives_us);
            let mut other = driver.try_start();
            assert_eq!(other.is_none(), slice_idle_us > 0);
            if let Some(at) = driver.elevator.timer().filter(|at| *at <= arrives) {
                driver.now = at;
                driver.wait_ms(0);
                other = driver.try_start();
            }
            driver.now = arrives;
            driver.submit(Read, 108, 8, 0);
            assert_eq!(other.is_none(), waits, "slice_idle {slice_idle_us} us, next after {arrives_us} us");
        }
    }

    #[test]
    fn a_new_task_goes_before_one_that_writes_much() {
        let mut driver = Driver::new("bfq", 1000);
        for i in 0..64 {
            driver.submit(Write, 1_000_000 + i * 4096, 1024, 0);
        }
        let first = driver.start().expect("a write");
        assert_eq!(driver.requests[first].dir, Write);
        driver.submit(Read, 500, 8, 7);
        driver.complete(first);
        // The writes' budget goes on, 16 requests less what an asynchronous sector costs more; then come the reads.
        let before = (0..64).take_while(|_| driver.step() != 500).count();
        assert!(before <= 16, "{before} writes went before");
    }
}
