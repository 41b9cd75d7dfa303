//! BFQ: budgets of sectors shared out by weight, idling, weight raising, injection, and queues that become one.
//!
//! ```text
//! queues    one for each task's synchronous requests, one for all asynchronous ones; each a tree and a list by age
//! turn      by virtual time (`wf2q`): until its budget is used, 125 ms are over, or it is empty and waiting for more
//!           is not worth it; a queue that comes back at once goes on with its budget, and may push out the other
//! charge    sectors (async: times 3); queues that seek or are late pay for what the peak rate would do in their time
//! budget    times 4 when used up, times 2 when late, less after waiting in vain, else the used part; at most what the
//!           estimated peak rate (`rate`) does in 125 ms
//! raising   weight times 30 for new queues and those back after 2 s (interactive, 3 to 25 s or 120,000 sectors), times
//!           3,000 for those that ask little (soft real time, 300 ms); not for 8 queues created in a burst (`arrival`)
//! idling    8 ms if the device gains by it (a stream, on a disk or without queueing, nobody raised), for a raised
//!           queue among others (20 ms), for the only busy one (2 ms if it seeks); then requests of others may be
//!           injected: of the queue whose completions it waits for, or as many as hardly lengthen its own (`service`)
//! merging   queues near each other, and those of one program, become one (`merge`)
//! ```
//! Source: Linux 6.1 to 7.2, `block/bfq-iosched.c` and `block/bfq-wf2q.c`. Known deviations: no groups, actuators or
//! `strict_guarantees`, no I/O priorities but that of the thread whose first request is the journal's. A queue is made
//! a moment before its first request arrives; with 6.9 and later, and a plug, the kernel's clock stands still between
//! the two, and the first think time counts as endless. `last_idling_start` plus a time in nanoseconds as ticks (6.1 to
//! 7.2) never comes, so that it raises no injection limit here either. On a queue whose flushes are ordered everything
//! behind a flush waits until it has left. Kernels before 5.17 are taken for 6.1: 5.10 unites no queues for good and
//! learns what is bound by I/O in another way.

mod arrival;
mod merge;
mod queue;
mod rate;
mod service;
#[cfg(test)]
mod tests;
mod wf2q;

use super::{Barrier, Build, Ctx, Elevator, Quirks, is_nearer};
use crate::event::{Content, Dir, IdleEnd, MergeKind, RqId};
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::rb_tree::RbTree;
use crate::request::{Bio, IoContext, Request, Requests};
use crate::sorted::{MergeHints, joins, mergeable};
use crate::tag_map::{Limit, Shape};
use crate::units::{Hz, Nanos};
use queue::{Queue, Task};
use rate::Rate;
use service::Expiry;
use wf2q::Accounts;

/// Ticks; time before the start is negative.
type Tick = i64;
const LONG_AGO: Tick = -(1 << 40);

/// Sectors a microsecond that the reference drives do, fixed point, and how long raising lasts on them, ms.
const ROTATING: (u64, u64) = (14_000, 7_000);
const FLASH: (u64, u64) = (33_000, 2_500);
/// A distance that counts as far, and a request that is not small.
const SEEK_SECTORS: u64 = 800;
const SMALL_SECTORS: u32 = 64;
/// Thinking that takes no time; the wait for a queue that seeks.
const MIN_THINK: Nanos = Nanos::from_ms(2);
/// Idle time after which a task is taken for interactive.
const RAISE_IDLE_MS: u64 = 2_000;
/// A soft real-time queue is raised that much more, and asks for at most that many sectors a second.
const SOFT_FACTOR: u64 = 100;
const SOFT_RATE: i64 = 7_000;
const SOFT_MS: u64 = 300;
const BURST_MS: u64 = 180;
const BURST_QUEUES: u32 = 8;
/// Lead of a queue that has written the files of a run.
const USED_SECTORS: i64 = 200_000;
/// Waits in which a waker must be seen three times.
const WAKER_WINDOW: u64 = 128;

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
    OptionSpec::switch("used", false, "begin as on a disk to which others have written just before"),
];

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "bfq",
    summary: "budgets by weight, idling and raised weights for interactive tasks (blk-mq)",
    origin: &[Origin {
        kernels: "6.12 .. 6.18",
        file: "block/bfq-iosched.c",
        function: "bfq_select_queue, bfq_bfqq_expire",
        notes: "one group, priorities of tasks and journal only; injection, wakers, stable merges included",
    }],
    options: OPTIONS,
    conformance: "tables of turns, waits, raising and merges; the property test over all elevators; runs of modelled \
                  disks under 6.18 next to their twins; budgets and weights in the log of 6.18; `cargo xtask oracle`: \
                  the kernel's own code on random input",
    build: |options, hz| Box::new(begin(options, hz, Rules { limits: Limits::Map, injection_unset: false })),
};

/// Until 6.11.
pub const ENTRY_6_1: Entry<Build> = Entry {
    name: "bfq-6.1",
    summary: "as bfq; writes have a share of each word of the scheduler's tags, and the injection limit of a queue is \
              reset by its first request",
    origin: &[Origin {
        kernels: "5.17 .. 6.11",
        file: "block/bfq-iosched.c",
        function: "bfq_limit_depth, bfq_update_depths",
        notes: "as in 6.1.192; which level of 6.12 changed it is not known; earlier kernels have the nearest",
    }],
    build: |options, hz| Box::new(begin(options, hz, Rules { limits: Limits::Words, injection_unset: true })),
    ..ENTRY
};

/// 7.2.
pub const ENTRY_7_2: Entry<Build> = Entry {
    name: "bfq-7.2",
    summary: "as bfq; writes have as many scheduler tags as the driver has, or a share of these",
    origin: &[Origin {
        kernels: "7.2",
        file: "block/bfq-iosched.c",
        function: "bfq_depth_updated, bfq_init_queue",
        notes: "the limits are computed before async_depth is; since when is not known",
    }],
    build: |options, hz| Box::new(begin(options, hz, Rules { limits: Limits::Driver, injection_unset: false })),
    ..ENTRY
};

/// The tags that writes have a share of.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Limits {
    /// Each word of the map of scheduler tags.
    Words,
    /// The map.
    Map,
    /// The driver's tags, as long as nobody sets `nr_requests` or `async_depth`.
    Driver,
}

/// Differences between kernels.
#[derive(Copy, Clone, Debug)]
struct Rules {
    limits: Limits,
    /// A new queue's injection limit counts as lowered long ago, not as it is made.
    injection_unset: bool,
}

fn begin(options: &Options, hz: Hz, rules: Rules) -> Bfq {
    let ms = |name| Nanos::from_ms(options.unsigned(name));
    let timeout = match options.unsigned("timeout_sync_ms") {
        // The kernel's own is an eighth of a second in ticks, rounded down.
        125 => Tick::from(hz.0 / 8),
        asked => ticks(hz, asked),
    };
    let fixed_budget = options.unsigned("max_budget") as i64;
    Bfq {
        hz,
        rules,
        slice_idle: Nanos::from_us(options.unsigned("slice_idle_us")),
        timeout,
        set_timeout: options.unsigned("timeout_sync_ms") != 125,
        fixed_budget,
        fifo_expire: [ms("fifo_expire_async_ms"), ms("fifo_expire_sync_ms")],
        back_max: options.unsigned("back_seek_max_kb") * 2,
        back_penalty: options.unsigned("back_seek_penalty"),
        low_latency: options.is_on("low_latency"),
        raise: options.unsigned("wr_coeff"),
        used: options.is_on("used"),
        soft_length: ticks(hz, SOFT_MS),
        burst_gap: ticks(hz, BURST_MS),
        rotational: true,
        rotational_at_birth: true,
        accounts: Accounts::default(),
        queues: Vec::new(),
        by_next: RbTree::default(),
        free: Vec::new(),
        asynchronous: None,
        tasks: Vec::new(),
        data: Vec::new(),
        hints: MergeHints::default(),
        barrier: Barrier::default(),
        rate: Rate::default(),
        waiting: 0,
        in_driver: 0,
        busy: 0,
        raised_busy: 0,
        serving: None,
        serving_last_pos: 0,
        turn_since: Nanos::ZERO,
        turns: 0,
        max_budget: if fixed_budget == 0 { 16 * 1024 } else { fixed_budget },
        idling_since: Nanos::ZERO,
        idle_until: None,
        noticed: false,
        queueing: None,
        most_in_driver: 0,
        queueing_samples: 0,
        flash_with_queueing: false,
        measure_next: false,
        measured: None,
        occupied_since: Nanos::ZERO,
        injected: false,
        last_completed: None,
        last_created: None,
        last_in_burst: LONG_AGO,
        burst_size: 0,
        large_burst: false,
        kick: false,
        started: false,
        ended: None,
    }
}

/// Milliseconds in ticks, rounded up.
fn ticks(hz: Hz, ms: u64) -> Tick {
    (ms * u64::from(hz.0)).div_ceil(1000) as Tick
}

/// Whether somebody waits for a request, as far as its queue is concerned.
fn is_sync(request: &Request) -> bool {
    request.sync || request.dir == Dir::Read
}

/// The time, and the kernel's.
#[derive(Copy, Clone, Debug)]
struct Now {
    at: Nanos,
    tick: Tick,
}

#[derive(Copy, Clone, Debug, Default)]
struct Data {
    /// Sector under which it stands in the tree.
    key: u64,
    queue: u32,
    task: u32,
    expires: Nanos,
    /// It has its queue, though it may not be there yet.
    prepared: bool,
}

#[derive(Clone, Debug)]
struct Bfq {
    hz: Hz,
    rules: Rules,
    slice_idle: Nanos,
    timeout: Tick,
    /// Somebody has set it, which has the budget follow the rate from the start.
    set_timeout: bool,
    fixed_budget: i64,
    /// By kind: asynchronous, synchronous.
    fifo_expire: [Nanos; 2],
    back_max: u64,
    back_penalty: u64,
    low_latency: bool,
    raise: u64,
    used: bool,
    soft_length: Tick,
    burst_gap: Tick,
    rotational: bool,
    rotational_at_birth: bool,
    accounts: Accounts,
    queues: Vec<Queue>,
    /// Queues that may be united with others, by the sector of their next request.
    by_next: RbTree,
    free: Vec<usize>,
    asynchronous: Option<usize>,
    tasks: Vec<Task>,
    data: Vec<Data>,
    hints: MergeHints,
    barrier: Barrier,
    rate: Rate,
    waiting: usize,
    in_driver: u32,
    /// Busy queues, and the raised ones of them.
    busy: u32,
    raised_busy: u32,
    serving: Option<usize>,
    serving_last_pos: u64,
    turn_since: Nanos,
    /// Turns that began, counted up to 249.
    turns: u32,
    max_budget: i64,
    idling_since: Nanos,
    /// The queue in service is empty, and until then its next request is waited for.
    idle_until: Option<Nanos>,
    /// Something else has been held back for it.
    noticed: bool,
    /// Whether the device takes several requests; not known at first.
    queueing: Option<bool>,
    most_in_driver: u32,
    queueing_samples: u32,
    flash_with_queueing: bool,
    /// The next request of the queue in service, or this one, is measured; since when.
    measure_next: bool,
    measured: Option<RqId>,
    occupied_since: Nanos,
    injected: bool,
    last_completed: Option<usize>,
    last_created: Option<usize>,
    last_in_burst: Tick,
    burst_size: u32,
    large_burst: bool,
    /// For the queue: run it, a wait has begun, has ended.
    kick: bool,
    started: bool,
    ended: Option<IdleEnd>,
}

impl Bfq {
    fn ticks(&self, ms: u64) -> Tick {
        ticks(self.hz, ms)
    }

    /// Begins a call: a wait that held up nothing, and had no timer, ended when it had to.
    fn enter(&mut self, ctx: &Ctx<'_>) -> Now {
        if self.rate.peak == 0 {
            self.rate.begin(ctx.rotational);
            self.rotational_at_birth = ctx.rotational;
            self.flash_with_queueing = !ctx.rotational;
            if self.set_timeout {
                self.rate_changed();
            }
            if self.used {
                self.was_used();
            }
        }
        self.rotational = ctx.rotational;
        if let Some(until) = self.idle_until.filter(|until| *until <= ctx.now && self.waiting == 0) {
            let then = Now { at: until, tick: self.hz.at(until).0 as Tick };
            self.wait_is_over(ctx.requests, then);
        }
        Now { at: ctx.now, tick: ctx.jiffies() as Tick }
    }

    /// Others have used the device: it has shown its queueing, turns have been counted, and the queues of who formatted
    /// it, of who wrote the files and of the journal have had more than the clock shows, and keep that slow. Budgets
    /// come from their rate.
    fn was_used(&mut self) {
        (self.queueing, self.flash_with_queueing) = (Some(true), !self.rotational_at_birth);
        self.turns = 249;
        for base in [wf2q::WEIGHT, wf2q::WEIGHT, wf2q::JOURNAL_WEIGHT] {
            let queue = self.new_queue(true, base, Now { at: Nanos::ZERO, tick: LONG_AGO });
            self.queues[queue].tasks = 1;
            self.accounts.is_ahead(queue, USED_SECTORS);
        }
    }

    /// Ends a call: what the queue has to do.
    fn leave_with(&mut self, ctx: &mut Ctx<'_>) {
        ctx.kick_unplugged(std::mem::take(&mut self.kick));
        ctx.idle_started |= std::mem::take(&mut self.started);
        if let Some(how) = self.ended.take() {
            ctx.idle_ended = Some(how);
        }
    }

    /// A wait that holds something up is one that can be seen.
    fn note_wait(&mut self) {
        if self.idle_until.is_some() && !std::mem::replace(&mut self.noticed, true) {
            self.started = true;
        }
    }

    /// Has the queue run soon, if there is anything.
    fn schedule(&mut self) {
        self.kick |= self.waiting > 0;
    }

    fn new_queue(&mut self, sync: bool, base: u64, now: Now) -> usize {
        let mut queue = Queue::new(sync, self.new_budget(), now);
        if self.rules.injection_unset {
            queue.injection.lowered = LONG_AGO;
        }
        let index = match self.free.pop() {
            Some(index) => {
                self.queues[index] = queue;
                index
            }
            None => {
                self.queues.push(queue);
                self.queues.len() - 1
            }
        };
        self.accounts.open(index, base);
        index
    }

    /// The one of two requests of a queue that goes first: metadata, else the nearer to `last`.
    fn nearer(&self, requests: &Requests, a: Option<RqId>, b: Option<RqId>, last: u64) -> Option<RqId> {
        let (Some(x), Some(y)) = (a, b) else { return a.or(b) };
        let (x, y) = (&requests[x], &requests[y]);
        let meta = |request: &Request| request.content == Content::Metadata;
        let first = match (meta(x), meta(y)) {
            (true, false) => true,
            (false, true) => false,
            _ => is_nearer(last, x.sector.0, y.sector.0, self.back_max, self.back_penalty),
        };
        if first { a } else { b }
    }

    /// The request after `rq`, which leaves its queue.
    fn next_after(&mut self, queue: usize, requests: &Requests, rq: RqId, now: Now) -> Option<RqId> {
        let q = &mut self.queues[queue];
        if !std::mem::replace(&mut q.fifo_seen, true)
            && let Some(oldest) = q.fifo.first()
            && oldest != rq
            && now.at >= self.data[oldest.0 as usize].expires
        {
            return Some(oldest);
        }
        let q = &self.queues[queue];
        let key = self.data[rq.0 as usize].key;
        let behind = q.tree.after(key, rq).or_else(|| q.tree.first().filter(|first| *first != rq));
        self.nearer(requests, behind, q.tree.before(key, rq), key)
    }

    fn remove(&mut self, requests: &Requests, rq: RqId, now: Now) {
        let Data { key, queue, .. } = self.data[rq.0 as usize];
        let queue = queue as usize;
        if self.queues[queue].next == Some(rq) {
            self.queues[queue].next = self.next_after(queue, requests, rq, now);
            self.next_changed(queue, requests);
        }
        let q = &mut self.queues[queue];
        q.tree.remove(key, rq);
        q.fifo.remove(rq);
        q.waiting -= 1;
        self.hints.removed(rq);
        self.waiting -= 1;
        if !self.queues[queue].tree.is_empty() {
            return self.place(queue, requests, now);
        }
        self.unplace(queue);
        let q = &mut self.queues[queue];
        q.next = None;
        if q.busy && self.serving != Some(queue) {
            self.no_longer_busy(queue, false);
            let account = &mut self.accounts[queue];
            (account.budget, account.service) = (0, 0);
        }
    }

    /// A request begins earlier than it did.
    fn moved(&mut self, requests: &Requests, rq: RqId, now: Now) {
        let Data { key, queue, .. } = self.data[rq.0 as usize];
        let (queue, sector) = (queue as usize, requests[rq].sector.0);
        if key == sector {
            return;
        }
        let q = &mut self.queues[queue];
        let passes = q.tree.before(key, rq).is_some_and(|other| sector < self.data[other.0 as usize].key);
        q.tree.remove(key, rq);
        q.tree.insert(sector, rq);
        self.data[rq.0 as usize].key = sector;
        if self.queues[queue].next == Some(rq) && self.by_next.contains(queue) {
            self.by_next.set_key(queue, sector);
        }
        if !passes {
            return;
        }
        let before = self.queues[queue].next;
        let next = self.nearer(requests, before, Some(rq), self.rate.last_position);
        self.queues[queue].next = next;
        if before != next {
            self.next_changed(queue, requests);
            self.place(queue, requests, now);
        }
    }

    /// A request is no more.
    fn forget(&mut self, rq: RqId) {
        let Data { queue, task, .. } = self.data[rq.0 as usize];
        self.data[rq.0 as usize].prepared = false;
        self.queues[queue as usize].allocated -= 1;
        self.tasks[task as usize].requests -= 1;
        self.release(queue as usize);
    }

    /// Whether a bio may join a request: of its queue, which may just become another one (`bfq_allow_bio_merge`).
    fn allows(&mut self, own: &mut Option<usize>, bio: &Bio, rq: RqId, requests: &Requests, now: Now) -> bool {
        let request = &requests[rq];
        let (task, sync) = (bio.context.task, bio.sync || bio.dir == Dir::Read);
        let alike = mergeable(request) && request.dir == bio.dir && request.class == bio.class;
        let Some(queue) = own.filter(|_| alike && (is_sync(request) || !sync)) else { return false };
        if let Some(into) = self.cooperator(queue, task, bio.sector.0, now) {
            self.merge_up_to(task, queue, into, now);
            *own = Some(into);
        }
        *own == Some(self.data[rq.0 as usize].queue as usize)
    }

    fn queue_of(&self, task: u32, sync: bool) -> Option<usize> {
        self.tasks.get(task as usize)?.queues[usize::from(sync)]
    }

    /// A task has ended: nobody waits for it.
    fn exit(&mut self, task: u32, requests: &Requests, now: Now) {
        let Some(known) = self.tasks.get_mut(task as usize) else { return };
        if let Some(with) = known.stable_with.take() {
            self.queues[with].stable_refs -= 1;
            self.release(with);
        }
        for kind in [1, 0] {
            let Some(queue) = self.tasks[task as usize].queues[kind] else { continue };
            self.redirect(task, kind, None);
            if self.serving == Some(queue) {
                self.leave(queue, Expiry::Timeout, requests, now);
                self.schedule();
            }
            self.drop_successors(queue);
            self.drop_task(queue);
        }
        let requests = self.tasks[task as usize].requests;
        self.tasks[task as usize] = Task { requests, ..Task::default() };
    }
}

impl Elevator for Bfq {
    fn quirks(&self) -> Quirks {
        Quirks { regulates_writeback: true, asks_to_be_run: true, merges_within_queues: true, ..Quirks::WAITING }
    }

    fn merge(&mut self, ctx: &mut Ctx<'_>, bio: &Bio) -> Option<(RqId, MergeKind)> {
        if bio.flush || self.waiting == 0 {
            return None;
        }
        let now = self.enter(ctx);
        let mut queue = self.queue_of(bio.context.task, bio.sync || bio.dir == Dir::Read);
        let requests = &*ctx.requests;
        let mut found = self.hints.newest().filter(|&rq| self.allows(&mut queue, bio, rq, requests, now));
        let mut kind = found.and_then(|rq| joins(&requests[rq], bio));
        if kind.is_none() && !ctx.last_only {
            let behind = self.hints.ending_at(requests, bio.sector.0);
            found = behind.filter(|&rq| self.allows(&mut queue, bio, rq, requests, now));
            kind = Some(MergeKind::Back);
            if found.is_none() {
                let end = bio.sector.plus(u64::from(bio.nr_sectors)).0;
                let before = queue.and_then(|queue| self.queues[queue].tree.at(end));
                found = before.filter(|&rq| self.allows(&mut queue, bio, rq, requests, now));
                kind = Some(MergeKind::Front);
            }
        }
        let found = found.filter(|&rq| kind.is_some() && self.allows(&mut queue, bio, rq, requests, now));
        self.leave_with(ctx);
        found.zip(kind)
    }

    fn continued(&mut self, ctx: &mut Ctx<'_>, rq: RqId, bio: &Bio) -> Option<(RqId, MergeKind)> {
        if bio.flush {
            return None;
        }
        let now = self.enter(ctx);
        self.prepare(ctx.requests, rq, now);
        self.leave_with(ctx);
        self.hints.find(ctx.requests, bio)
    }

    fn merged(&mut self, ctx: &mut Ctx<'_>, rq: RqId, kind: MergeKind) {
        self.hints.grown(ctx.requests, rq, kind);
        let now = self.enter(ctx);
        self.moved(ctx.requests, rq, now);
        self.leave_with(ctx);
    }

    fn merged_unqueued(&mut self, ctx: &mut Ctx<'_>, kept: RqId, gone: RqId) {
        self.hints.merged(ctx.requests, kept);
        self.forget(gone);
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
        let now = self.enter(ctx);
        let (a, b) = (self.data[kept.0 as usize], self.data[gone.0 as usize]);
        let queue = a.queue as usize;
        if a.queue == b.queue && b.expires < a.expires {
            self.data[kept.0 as usize].expires = b.expires;
            self.queues[queue].fifo.move_before(kept, gone);
        }
        if self.queues[queue].next == Some(gone) {
            self.queues[queue].next = Some(kept);
        }
        self.remove(ctx.requests, gone, now);
        self.forget(gone);
        self.hints.merged(ctx.requests, kept);
        self.leave_with(ctx);
    }

    fn add(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        let now = self.enter(ctx);
        if self.barrier.holds(ctx, rq) {
            self.stop_waiting(IdleEnd::Broken);
            self.kick = true;
        } else {
            self.insert(ctx.requests, rq, now);
        }
        self.leave_with(ctx);
    }

    fn next(&mut self, ctx: &mut Ctx<'_>) -> Option<RqId> {
        let now = self.enter(ctx);
        if self.waiting == 0
            && let Some(flush) = self.barrier.pop()
        {
            while let Some(rq) = self.barrier.release(ctx) {
                self.insert(ctx.requests, rq, now);
            }
            self.leave_with(ctx);
            return Some(flush);
        }
        let selected = if self.busy == 0 { None } else { self.select(ctx.requests, now) };
        let rq = selected.map(|queue| self.dispatch(queue, ctx.requests, now));
        if self.waiting > 0 {
            self.note_wait();
        } else if self.idle_until.is_some() && std::mem::take(&mut self.noticed) {
            // The wait goes on, but it holds up nothing any more.
            self.ended = Some(IdleEnd::Broken);
        }
        self.leave_with(ctx);
        rq
    }

    fn completed(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        let now = self.enter(ctx);
        if !ctx.requests[rq].flush {
            self.done(ctx.requests, rq, now);
        }
        self.kick |= self.barrier.len() > 0;
        self.leave_with(ctx);
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.waiting + self.barrier.len()
    }

    fn timer(&self) -> Option<Nanos> {
        self.idle_until.filter(|_| self.waiting > 0)
    }

    fn on_timer(&mut self, ctx: &mut Ctx<'_>) {
        let now = self.enter(ctx);
        if self.idle_until.is_some_and(|until| until <= now.at) {
            self.wait_is_over(ctx.requests, now);
        }
        self.leave_with(ctx);
    }

    fn task_exited(&mut self, ctx: &mut Ctx<'_>, context: IoContext) {
        let now = self.enter(ctx);
        self.exit(context.task, ctx.requests, now);
        self.leave_with(ctx);
    }

    fn tag_limit(&mut self, ctx: &mut Ctx<'_>, bio: &Bio, nr_tags: u32) -> Limit {
        self.enter(ctx);
        self.leave_with(ctx);
        let sync = bio.sync || bio.dir == Dir::Read;
        // Reads are free; while a raised queue is busy, writes have less.
        let (sixteenths, of_driver) = match (bio.dir, sync, self.raised_busy > 0) {
            (Dir::Read, _, _) => (16, nr_tags),
            (Dir::Write, true, false) => (12, ctx.driver_tags),
            (Dir::Write, false, false) => (8, ctx.driver_tags * 2 / 3),
            (Dir::Write, true, true) => (6, ctx.driver_tags / 2),
            (Dir::Write, false, true) => (3, ctx.driver_tags / 4),
        };
        let word = Shape::new(nr_tags).of_word();
        let of = |all: u32| (all * sixteenths / 16).max(1);
        let (limit, free) = match self.rules.limits {
            _ if bio.dir == Dir::Read => (nr_tags, Limit::None),
            Limits::Words => (nr_tags * of(word) / word, Limit::OfWord(of(word))),
            Limits::Map => (of(nr_tags), Limit::OfMap(of(nr_tags))),
            Limits::Driver if of_driver.max(1) >= nr_tags => (of_driver.max(1), Limit::None),
            Limits::Driver => (of_driver.max(1), Limit::OfMap(of_driver.max(1))),
        };
        // A queue that has its share by weight gets a certain tag only, which somebody else has as a rule.
        let Some(queue) = self.queue_of(bio.context.task, sync).filter(|&queue| self.accounts[queue].counted) else {
            return free;
        };
        let (weight, all) = (self.accounts[queue].weight(), self.accounts.weights().max(1));
        let share = (u64::from(limit) * weight + all / 2) / all;
        match self.rules.limits {
            _ if u64::from(self.queues[queue].allocated) < share => free,
            Limits::Words => Limit::OfWord(1),
            Limits::Map | Limits::Driver => Limit::OfMap(1),
        }
    }
}
