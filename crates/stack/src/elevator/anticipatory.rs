//! The anticipatory elevator of Linux 2.6.5 .. 2.6.6-rc3.
//!
//! Requests are sorted by sector in two classes, sync (reads, and writes inside an fsync) and async; the classes take
//! turns in batches limited by time (async ones also by number). Within a class the next request is the nearest to
//! where the head stands, distances backwards counting double. When the device has completed a sync request, its
//! submitter is likely to ask for the next one within a moment; dispatching another task's request would move the
//! head away. So nothing is dispatched for up to 6 ms from the completion, unless that is not worth it: the chosen
//! request is the submitter's own or close to the head, the submitter has other requests or is gone, it usually thinks
//! longer than the wait, or the chosen request is nearer than the submitter's mean seek. Think times and seeks are
//! running means of 7/8 in fixed point. Every arrival repeats the test.
//!
//! Source: Linux 2.6.6-rc3, `drivers/block/as-iosched.c`, `as_dispatch_request` and `as_can_break_anticipation`.
//! Deviations: a task's request counts as dispatched until it completes, as with an IDE driver (a SCSI driver takes it
//! off the list earlier); front merges look into the class of the bio. `seek_break`, `close_rule` and
//! `clamp_seek_samples` are switches of ours that take a rule away.

use super::{Build, Ctx, Elevator, Quirks, is_nearer};
use crate::event::{Dir, IdleEnd, MergeKind, RqId};
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::request::{Bio, IoContext, Request, Requests};
use crate::sorted::{Fifo, MergeHints, Sorted, joins, slot};
use crate::units::{Hz, Jiffies, Nanos};
use std::collections::VecDeque;

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "anticipatory",
    summary: "sorted batches of sync and async requests; waits for the next read of the same task (Linux 2.6)",
    origin: &[Origin {
        kernels: "2.6.5 .. 2.6.6-rc3",
        file: "drivers/block/as-iosched.c",
        function: "as_can_break_anticipation",
        notes: "dispatch, break rules and fixed-point statistics as in the source, with the batch times of rc3",
    }],
    options: &[
        OptionSpec::number("read_expire_ms", 125, (0, 100_000), "age at which a sync request is overdue (HZ/8)"),
        OptionSpec::number("write_expire_ms", 250, (0, 100_000), "age at which an async request is overdue (HZ/4)"),
        OptionSpec::number("read_batch_expire_ms", 250, (0, 100_000), "length of a sync batch (HZ/4)"),
        OptionSpec::number("write_batch_expire_ms", 62, (0, 100_000), "intended length of an async batch (HZ/16)"),
        OptionSpec::number("antic_expire_ms", 6, (0, 1000), "longest wait for a task's next request (HZ/150)"),
        OptionSpec::number("max_thinktime_ms", 20, (1, 1000), "think times are cut off below this (HZ/50)"),
        OptionSpec::number("back_seek_sectors", 1 << 20, (0, 1 << 40), "farther behind the head counts as wrapped"),
        OptionSpec::number("back_seek_penalty", 2, (1, 1000), "factor of distances backwards"),
        OptionSpec::switch("seek_break", true, "a request nearer than the mean seek of the task ends the wait"),
        OptionSpec::switch("close_rule", true, "a request close to the head ends the wait"),
        OptionSpec::switch("clamp_seek_samples", true, "cut off seeks far beyond the mean"),
    ],
    conformance: "means, break rules, batches and waits in tables; the property test over all elevators",
    build,
};

fn build(options: &Options, hz: Hz) -> Box<dyn Elevator> {
    Box::new(Anticipatory::new(options, hz))
}

/// Index of the class of requests without waiters.
const ASYNC: usize = 0;
/// Index of the class of reads and of writes inside an fsync.
const SYNC: usize = 1;

/// How far the elevator is with waiting.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Status {
    /// Not waiting.
    Off,
    /// For the anticipated task's last request to complete.
    WaitRequest,
    /// For its next one.
    WaitNext,
    /// Waited, and not to wait again before something has been dispatched.
    Finished,
}

/// Statistics of one task.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Task {
    exited: bool,
    /// A sync request of it has completed.
    io_running: bool,
    /// A sync request of it has been queued.
    io_started: bool,
    nr_queued: u32,
    nr_dispatched: u32,
    /// Tick of its last completion.
    last_end: u64,
    /// Sector after its last sync request.
    last_position: u64,
    think: Mean,
    seek: Mean,
}

/// A running mean: samples and their total decay by 7/8, in units of 1/256.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Mean {
    samples: u64,
    total: u64,
    mean: u64,
}

impl Mean {
    fn decay(&mut self, value: u64) {
        self.samples = (7 * self.samples + 256) / 8;
        self.total = (7 * self.total + 256 * value) / 8;
    }
}

/// Statistics over the first samples of new tasks, for those of which nothing is known yet.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct History {
    max_thinktime: u64,
    clamp: bool,
    /// How probable it is that a task does not come back, of 256.
    exit_prob: u64,
    new_think_total: u64,
    new_think_mean: u64,
    new_seek_total: u64,
    new_seek_mean: u64,
}

impl History {
    /// `task` queues a sync request.
    fn update(&mut self, task: &mut Task, request: &Request, now: u64) {
        if task.io_running || task.io_started {
            let idle = task.nr_queued + task.nr_dispatched == 0;
            let think = if task.io_running && idle { (now - task.last_end).min(self.max_thinktime - 1) } else { 0 };
            self.think(task, think);
            self.seek(task, request.sector.0.abs_diff(task.last_position));
        }
        task.last_position = request.end().0;
        task.io_started = true;
    }

    fn think(&mut self, task: &mut Task, ticks: u64) {
        if task.think.samples == 0 {
            self.new_think_total = (7 * self.new_think_total + 256 * ticks) / 8;
            self.new_think_mean = self.new_think_total / 256;
            self.exit_prob = 7 * self.exit_prob / 8;
        }
        task.think.decay(ticks);
        task.think.mean = (task.think.total + 128) / task.think.samples;
    }

    fn seek(&mut self, task: &mut Task, sectors: u64) {
        if task.seek.samples == 0 {
            self.new_seek_total = (7 * self.new_seek_total + 256 * sectors) / 8;
            self.new_seek_mean = self.new_seek_total / 256;
        }
        let room = if task.seek.samples <= 60 { 2 << 20 } else { 128 << 10 };
        let sample = if self.clamp { sectors.min(4 * task.seek.mean + room) } else { sectors };
        task.seek.decay(sample);
        task.seek.mean = (task.seek.total + task.seek.samples / 2) / task.seek.samples;
    }

    /// A task of which nothing is known did not come back.
    fn gone(&mut self, task: &Task) {
        if task.think.samples == 0 {
            self.exit_prob = (7 * self.exit_prob + 256) / 8;
        }
    }
}

#[derive(Copy, Clone, Debug, Default)]
struct Data {
    /// Sector under which it stands in the tree.
    key: u64,
    /// Tick of its expiry.
    expires: u64,
    /// Task it belongs to; after a merge that of the older request.
    task: u32,
    /// Counted among the dispatched (a flush is not).
    counted: bool,
}

#[derive(Clone, Debug)]
struct Anticipatory {
    hz: Hz,
    fifo_expire: [u64; 2],
    batch_expire: [u64; 2],
    antic_expire: u64,
    back_seek: u64,
    back_penalty: u64,
    seek_break: bool,
    close_rule: bool,
    history: History,
    /// By task number.
    tasks: Vec<Task>,
    /// By request number.
    data: Vec<Data>,
    trees: [Sorted; 2],
    fifos: [Fifo; 2],
    hints: MergeHints,
    next: [Option<RqId>; 2],
    /// Sector after the last request dispatched of each class.
    last_sector: [u64; 2],
    dispatch: VecDeque<RqId>,
    /// Requests on the dispatch list or at the device.
    nr_dispatched: u32,
    /// Class of the current batch.
    batch: usize,
    batch_expires: u64,
    last_check_fifo: [u64; 2],
    /// The class has changed and the old batch is still being served.
    changed_batch: bool,
    /// The sync batch has begun but nothing of it has completed: its clock does not run yet.
    new_batch: bool,
    /// Length of an async batch in requests, tuned so that it takes the time intended.
    write_batch_count: u64,
    /// Requests left in this async batch.
    write_budget: u64,
    /// The async batch had no competition, so its time does not count.
    write_batch_idled: bool,
    status: Status,
    /// Tick of the completion that the wait counts from.
    antic_start: u64,
    /// Task of the last dispatched request if that was sync.
    last_task: Option<u32>,
    /// Whether that request has completed.
    task_finished: bool,
}

fn class(request: &Request) -> usize {
    if request.sync || request.dir == Dir::Read { SYNC } else { ASYNC }
}

impl Anticipatory {
    fn new(options: &Options, hz: Hz) -> Anticipatory {
        let ticks = |name| hz.from_ms(options.unsigned(name));
        let batch_expire = [ticks("write_batch_expire_ms"), ticks("read_batch_expire_ms")];
        Anticipatory {
            hz,
            fifo_expire: [ticks("write_expire_ms"), ticks("read_expire_ms")],
            batch_expire,
            antic_expire: ticks("antic_expire_ms"),
            back_seek: options.unsigned("back_seek_sectors"),
            back_penalty: options.unsigned("back_seek_penalty"),
            seek_break: options.is_on("seek_break"),
            close_rule: options.is_on("close_rule"),
            history: History {
                max_thinktime: ticks("max_thinktime_ms"),
                clamp: options.is_on("clamp_seek_samples"),
                ..History::default()
            },
            tasks: Vec::new(),
            data: Vec::new(),
            trees: Default::default(),
            fifos: Default::default(),
            hints: MergeHints::default(),
            next: [None; 2],
            last_sector: [0; 2],
            dispatch: VecDeque::new(),
            nr_dispatched: 0,
            batch: SYNC,
            batch_expires: batch_expire[SYNC],
            last_check_fifo: [0; 2],
            changed_batch: false,
            new_batch: false,
            write_batch_count: (batch_expire[ASYNC] / 10).max(2),
            write_budget: 0,
            write_batch_idled: false,
            status: Status::Off,
            antic_start: 0,
            last_task: None,
            task_finished: false,
        }
    }

    fn task(&mut self, task: u32) -> &mut Task {
        let index = task as usize;
        if index >= self.tasks.len() {
            self.tasks.resize(index + 1, Task::default());
        }
        &mut self.tasks[index]
    }

    fn waiting(&self) -> bool {
        matches!(self.status, Status::WaitRequest | Status::WaitNext)
    }

    /// The better of two requests of one class, as seen from where the class was left.
    fn choose(&self, requests: &Requests, a: Option<RqId>, b: Option<RqId>) -> Option<RqId> {
        let (Some(first), Some(second)) = (a, b) else {
            return a.or(b);
        };
        let last = self.last_sector[class(&requests[first])];
        let (from, to) = (requests[first].sector.0, requests[second].sector.0);
        let first_wins = is_nearer(last, from, to, self.back_seek, self.back_penalty);
        Some(if first_wins { first } else { second })
    }

    /// The request to dispatch after `rq`, which is still in its tree.
    fn find_next(&self, requests: &Requests, rq: RqId) -> Option<RqId> {
        let tree = &self.trees[class(&requests[rq])];
        let key = self.data[rq.0 as usize].key;
        let above = tree.after(key, rq).or_else(|| tree.first().filter(|&first| first != rq));
        self.choose(requests, above, tree.before(key, rq))
    }

    fn tree_insert(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        let (class, key) = (class(&ctx.requests[rq]), ctx.requests[rq].sector.0);
        // The loop ends because every turn takes one request out of the tree.
        while let Some(alias) = self.trees[class].at(key) {
            self.move_to_dispatch(ctx, alias);
        }
        self.data[rq.0 as usize].key = key;
        self.trees[class].insert(key, rq);
    }

    fn remove_queued(&mut self, requests: &Requests, rq: RqId) {
        let class = class(&requests[rq]);
        let Data { key, task, .. } = self.data[rq.0 as usize];
        self.task(task).nr_queued -= 1;
        if self.next[class] == Some(rq) {
            self.next[class] = self.find_next(requests, rq);
        }
        self.fifos[class].remove(rq);
        self.hints.removed(rq);
        let was_there = self.trees[class].remove(key, rq);
        debug_assert!(was_there, "request {} does not wait here", rq.0);
    }

    fn reposition(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        self.hints.merged(ctx.requests, rq);
        let key = self.data[rq.0 as usize].key;
        if key != ctx.requests[rq].sector.0 {
            // The cached next request stays what it was even if this one is now nearer.
            self.trees[class(&ctx.requests[rq])].remove(key, rq);
            self.tree_insert(ctx, rq);
            // An alias that has just left may have been the only other one.
            let class = class(&ctx.requests[rq]);
            self.next[class] = self.next[class].or(Some(rq));
        }
    }

    /// Ends a wait, if there is one, and has the queue run soon.
    fn stop_waiting(&mut self, ctx: &mut Ctx<'_>, end: IdleEnd) {
        if self.waiting() {
            self.status = Status::Finished;
            ctx.kick = true;
            ctx.idle_ended = Some(end);
        }
    }

    fn start_waiting(&mut self, ctx: &mut Ctx<'_>) {
        if self.status == Status::Off {
            self.status = if self.task_finished { Status::WaitNext } else { Status::WaitRequest };
            ctx.idle_started = true;
        }
    }

    fn move_to_dispatch(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        self.stop_waiting(ctx, IdleEnd::Broken);
        self.status = Status::Off;
        let class = class(&ctx.requests[rq]);
        let task = self.data[rq.0 as usize].task;
        self.last_sector[class] = ctx.requests[rq].end().0;
        if class == SYNC {
            self.last_task = Some(task);
        } else {
            self.last_task = None;
            self.write_budget = self.write_budget.saturating_sub(1);
        }
        self.task_finished = false;
        self.next[class] = self.find_next(ctx.requests, rq);
        self.remove_queued(ctx.requests, rq);
        self.dispatch.push_back(rq);
        self.data[rq.0 as usize].counted = true;
        self.task(task).nr_dispatched += 1;
        self.nr_dispatched += 1;
    }

    /// Whether the oldest of `class` is overdue; looked at once in the time after which that can happen.
    fn fifo_expired(&mut self, class: usize, now: u64) -> bool {
        if now - self.last_check_fifo[class] < self.fifo_expire[class] {
            return false;
        }
        self.last_check_fifo[class] = now;
        self.fifos[class].first().is_some_and(|rq| now > self.data[rq.0 as usize].expires)
    }

    fn batch_expired(&self, now: u64) -> bool {
        if self.changed_batch || self.new_batch {
            return false;
        }
        now > self.batch_expires || (self.batch == ASYNC && self.write_budget == 0)
    }

    /// Whether `request` is close to the head; the distance that counts as close grows while the wait lasts.
    fn is_close(&self, request: &Request, now: u64) -> bool {
        let last = self.last_sector[self.batch];
        let waited_ms = if self.status == Status::Off || !self.task_finished {
            0
        } else {
            (now - self.antic_start) * 1000 / u64::from(self.hz.0)
        };
        let window = if waited_ms <= 1 {
            64
        } else if waited_ms <= 20 && waited_ms <= self.antic_expire {
            64 << (waited_ms - 1)
        } else {
            return true;
        };
        let sector = request.sector.0;
        // The kernel's unsigned subtraction wraps at the start of the disk, where nothing is close then.
        last.wrapping_sub(window / 2) <= sector && sector <= last + window
    }

    /// Whether waiting for `task` is not worth it, given the request that would be dispatched instead.
    fn can_break(&mut self, task: u32, candidate: Option<(&Request, u32)>, now: u64) -> bool {
        if candidate.is_some_and(|(_, owner)| owner == task) {
            return true;
        }
        if self.task_finished && now - self.antic_start >= self.antic_expire {
            return true;
        }
        let known = *self.task(task);
        if known.exited {
            self.history.gone(&known);
            return true;
        }
        if known.nr_queued > 0 || known.nr_dispatched > 0 {
            return true;
        }
        if let Some((request, _)) = candidate
            && self.close_rule
            && class(request) == SYNC
            && self.is_close(request, now)
        {
            // Tasks that work side by side: the time spent on the other's request is not this one's thinking.
            self.task(task).last_end = now;
            return true;
        }
        if known.think.samples == 0 {
            if self.history.new_think_mean > self.antic_expire || self.history.exit_prob > 128 {
                return true;
            }
        } else if known.think.mean > self.antic_expire {
            return true;
        }
        let Some((request, _)) = candidate else {
            return false;
        };
        let expected = if known.seek.samples == 0 { self.history.new_seek_mean } else { known.seek.mean };
        self.seek_break && expected > request.sector.0.abs_diff(self.last_sector[SYNC])
    }

    fn can_anticipate(&mut self, requests: &Requests, chosen: Option<RqId>, now: u64) -> bool {
        let Some(task) = self.last_task else {
            return false;
        };
        if self.status == Status::Finished {
            return false;
        }
        let candidate = chosen.map(|rq| (&requests[rq], self.data[rq.0 as usize].task));
        !self.can_break(task, candidate, now)
    }

    /// Puts one request on the dispatch list, or decides not to.
    fn dispatch_one(&mut self, ctx: &mut Ctx<'_>) {
        let now = ctx.jiffies();
        let (reads, writes) = (!self.fifos[SYNC].is_empty(), !self.fifos[ASYNC].is_empty());
        if self.batch == ASYNC && !reads && (self.write_budget == 0 || !writes) {
            self.write_batch_idled = true;
        }
        if !(reads || writes) || self.waiting() || self.changed_batch {
            return;
        }
        let mut chosen = None;
        let mut overdue = false;
        if !(reads && writes && self.batch_expired(now)) {
            chosen = self.next[self.batch];
            if self.batch == SYNC && self.antic_expire > 0 {
                if self.fifo_expired(SYNC, now) {
                    overdue = true;
                } else if self.can_anticipate(ctx.requests, chosen, now) {
                    self.start_waiting(ctx);
                    return;
                }
            }
            if chosen.is_some() && !overdue && reads && !writes {
                self.batch_expires = now + self.batch_expire[SYNC];
            }
        }
        if chosen.is_none() && !overdue {
            chosen = if reads && !(writes && self.batch == SYNC) {
                self.changed_batch = self.changed_batch || self.batch == ASYNC;
                self.batch = SYNC;
                self.last_check_fifo[SYNC] = now;
                self.fifos[SYNC].first()
            } else {
                if self.batch == SYNC {
                    self.changed_batch = true;
                    self.new_batch = false;
                }
                self.batch = ASYNC;
                self.write_budget = self.write_batch_count;
                self.write_batch_idled = false;
                self.next[ASYNC]
            };
        }
        if overdue || self.fifo_expired(self.batch, now) {
            chosen = self.fifos[self.batch].first();
        }
        if self.changed_batch {
            if self.nr_dispatched > 0 {
                // The last completion of the old batch has the queue run again.
                return;
            }
            if self.batch == ASYNC {
                self.batch_expires = now + self.batch_expire[ASYNC];
            } else {
                self.new_batch = true;
            }
            self.changed_batch = false;
        }
        if let Some(rq) = chosen {
            self.move_to_dispatch(ctx, rq);
        }
    }

    /// Tunes the number of requests in an async batch by the time that the last one took.
    fn update_write_batch(&mut self, now: u64) {
        let target = self.batch_expire[ASYNC];
        let took = (now + target).saturating_sub(self.batch_expires);
        if took > target && !self.write_batch_idled {
            self.write_batch_count =
                if took > 3 * target { self.write_batch_count / 2 } else { self.write_batch_count - 1 };
        } else if took < target && self.write_budget == 0 {
            self.write_batch_count =
                if target > 3 * took { self.write_batch_count * 2 } else { self.write_batch_count + 1 };
        }
        self.write_batch_count = self.write_batch_count.max(1);
    }
}

impl Elevator for Anticipatory {
    fn quirks(&self) -> Quirks {
        Quirks::WAITING
    }

    fn merge(&mut self, ctx: &mut Ctx<'_>, bio: &Bio) -> Option<(RqId, MergeKind)> {
        if bio.flush {
            return None;
        }
        if let Some(found) = self.hints.find(ctx.requests, bio) {
            return Some(found);
        }
        let class = if bio.sync || bio.dir == Dir::Read { SYNC } else { ASYNC };
        let rq = self.trees[class].at(bio.sector.plus(u64::from(bio.nr_sectors)).0)?;
        (joins(&ctx.requests[rq], bio) == Some(MergeKind::Front)).then_some((rq, MergeKind::Front))
    }

    fn merged(&mut self, ctx: &mut Ctx<'_>, rq: RqId, _kind: MergeKind) {
        self.reposition(ctx, rq);
    }

    fn neighbour(&self, ctx: &Ctx<'_>, rq: RqId, side: MergeKind) -> Option<RqId> {
        let tree = &self.trees[class(&ctx.requests[rq])];
        let key = self.data[rq.0 as usize].key;
        match side {
            MergeKind::Back => tree.after(key, rq),
            MergeKind::Front => tree.before(key, rq),
        }
    }

    fn merged_requests(&mut self, ctx: &mut Ctx<'_>, kept: RqId, gone: RqId) {
        let (older, newer) = (self.data[gone.0 as usize], self.data[kept.0 as usize]);
        if older.expires < newer.expires {
            self.data[kept.0 as usize].expires = older.expires;
            self.data[kept.0 as usize].task = older.task;
            self.data[gone.0 as usize].task = newer.task;
            self.fifos[class(&ctx.requests[kept])].move_before(kept, gone);
        }
        self.remove_queued(ctx.requests, gone);
        self.reposition(ctx, kept);
    }

    fn add(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        let now = ctx.jiffies();
        let task = ctx.requests[rq].context.task;
        *slot(&mut self.data, rq) = Data { task, ..Data::default() };
        if ctx.requests[rq].flush {
            for class in [SYNC, ASYNC] {
                while let Some(next) = self.next[class] {
                    self.move_to_dispatch(ctx, next);
                }
            }
            self.hints.forget_last();
            self.dispatch.push_back(rq);
            return;
        }
        let class = class(&ctx.requests[rq]);
        self.task(task);
        let known = &mut self.tasks[task as usize];
        if class == SYNC {
            self.history.update(known, &ctx.requests[rq], now);
        }
        known.nr_queued += 1;
        self.tree_insert(ctx, rq);
        self.data[rq.0 as usize].expires = now + self.fifo_expire[class];
        self.fifos[class].push_back(rq);
        self.hints.added(ctx.requests, rq);
        self.next[class] = self.choose(ctx.requests, Some(rq), self.next[class]);
        if self.waiting()
            && let Some(anticipated) = self.last_task
            && self.can_break(anticipated, Some((&ctx.requests[rq], task)), now)
        {
            self.stop_waiting(ctx, if task == anticipated { IdleEnd::Hit } else { IdleEnd::Broken });
        }
    }

    fn next(&mut self, ctx: &mut Ctx<'_>) -> Option<RqId> {
        if self.dispatch.is_empty() {
            self.dispatch_one(ctx);
        }
        self.dispatch.pop_front()
    }

    fn completed(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        let now = ctx.jiffies();
        let Data { task, counted: true, .. } = self.data[rq.0 as usize] else {
            return;
        };
        self.data[rq.0 as usize].counted = false;
        let class = class(&ctx.requests[rq]);
        if self.changed_batch && self.nr_dispatched == 1 {
            ctx.kick = true;
            self.changed_batch = false;
            self.new_batch = self.new_batch || self.batch == SYNC;
        }
        self.nr_dispatched -= 1;
        self.task(task).nr_dispatched -= 1;
        if self.new_batch && self.batch == class {
            self.update_write_batch(now);
            self.batch_expires = now + self.batch_expire[SYNC];
            self.new_batch = false;
        }
        if self.last_task == Some(task) {
            self.antic_start = now;
            self.task_finished = true;
            if self.status == Status::WaitRequest {
                self.status = Status::WaitNext;
            }
        }
        if class == SYNC {
            let known = self.task(task);
            known.io_running = true;
            known.last_end = now;
        }
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.dispatch.len() + self.trees[0].len() + self.trees[1].len()
    }

    fn timer(&self) -> Option<Nanos> {
        (self.status == Status::WaitNext).then(|| self.hz.start(Jiffies(self.antic_start + self.antic_expire)))
    }

    fn on_timer(&mut self, ctx: &mut Ctx<'_>) {
        if self.waiting() {
            self.stop_waiting(ctx, IdleEnd::Timeout);
            if let Some(task) = self.last_task {
                let known = *self.task(task);
                self.history.gone(&known);
            }
        }
    }

    fn may_queue(&self, context: IoContext, _dir: Dir) -> Option<bool> {
        (self.waiting() && self.last_task == Some(context.task)).then_some(true)
    }

    fn task_exited(&mut self, _ctx: &mut Ctx<'_>, context: IoContext) {
        self.task(context.task).exited = true;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Driver;
    use super::*;
    use crate::event::Dir::{Read, Write};

    #[test]
    fn means_are_fixed_point_of_seven_eighths() {
        let mut history = History { max_thinktime: 20, clamp: true, ..History::default() };
        let mut task = Task::default();
        // (seek sample, samples, total, mean), worked out by hand; the fourth sample meets the narrow clamp.
        for (seek, samples, mean) in
            [(2_097_152, 32, 2_097_152), (0, 60, 978_671), (0, 84, 611_669), (100_000_000, 105, 1_213_768)]
        {
            history.seek(&mut task, seek);
            assert_eq!((task.seek.samples, task.seek.mean), (samples, mean), "after {seek}");
        }
        for (ticks, samples, mean) in [(4, 32, 8), (4, 60, 6), (19, 84, 11)] {
            history.think(&mut task, ticks);
            assert_eq!((task.think.samples, task.think.mean), (samples, mean), "after {ticks}");
        }
        assert_eq!((history.new_seek_mean, history.new_think_mean), (262_144, 0));
    }

    /// One jump of 2.1 million sectors and three of none, for ever. The count of samples stops at 249, not 256, because
    /// the division rounds down, so a mean m before the jump becomes 7/8 m + 32/249 of the jump after it, and 343/512
    /// of that three samples later. With the jump cut to 4 m + 131072 that has its fixed point at 163 thousand sectors.
    #[test]
    fn the_clamp_holds_the_mean_of_a_split_reader_at_its_fixed_point() {
        for (clamp, before_jump, after_jump) in [(true, 162_700, 242_900), (false, 437_000, 652_000)] {
            let mut history = History { max_thinktime: 20, clamp, ..History::default() };
            let mut task = Task::default();
            let mut means = [0; 2];
            for turn in 0..400 {
                means[0] = if turn % 4 == 0 { task.seek.mean } else { means[0] };
                history.seek(&mut task, if turn % 4 == 0 { 2_100_000 } else { 0 });
                means[1] = if turn % 4 == 0 { task.seek.mean } else { means[1] };
            }
            for (mean, expected) in means.into_iter().zip([before_jump, after_jump]) {
                assert!(mean.abs_diff(expected) < expected / 100, "clamp {clamp}: {mean}, not about {expected}");
            }
        }
    }

    /// An elevator whose last sync request ended at sector 100 000, belonged to task 0 and completed at tick 0.
    fn waiting_for_task_0() -> Anticipatory {
        let mut elevator = Anticipatory::new(&ENTRY.defaults(), Hz(1000));
        elevator.last_sector = [100_000; 2];
        (elevator.last_task, elevator.task_finished, elevator.status) = (Some(0), true, Status::WaitNext);
        *elevator.task(0) = Task { io_running: true, io_started: true, ..Task::default() };
        elevator
    }

    /// Task `task` of an idle device reads 8 sectors, and the read is started.
    fn start_read(driver: &mut Driver, sector: u64, task: u32) -> RqId {
        driver.submit(Read, sector, 8, task);
        let Some(rq) = driver.start() else { panic!("the read at {sector} is not started") };
        rq
    }

    fn read_at(sector: u64) -> Request {
        let mut driver = Driver::new("anticipatory", 1000);
        let rq = start_read(&mut driver, sector, 1);
        driver.requests[rq]
    }

    #[test]
    fn a_request_must_be_nearer_than_the_mean_seek() {
        for (mean, sector, ends) in [
            (5_000, 104_999, true),
            (5_000, 105_000, false),
            (5_000, 95_001, true),
            (5_000, 95_000, false),
            (0, 105_000, false),
        ] {
            let mut elevator = waiting_for_task_0();
            elevator.tasks[0].think = Mean { samples: 32, total: 0, mean: 0 };
            elevator.tasks[0].seek = Mean { samples: 32, total: 32 * mean, mean };
            assert_eq!(elevator.can_break(0, Some((&read_at(sector), 1)), 1), ends, "mean {mean}, sector {sector}");
        }
    }

    #[test]
    fn a_task_of_which_nothing_is_known_is_judged_by_the_others() {
        for (why, set, ends) in [
            ("nothing known at all", History::default(), false),
            ("new tasks think long", History { new_think_mean: 7, ..History::default() }, true),
            ("new tasks mostly go", History { exit_prob: 129, ..History::default() }, true),
            ("new tasks seek farther than this", History { new_seek_mean: 50_001, ..History::default() }, true),
            ("new tasks seek as far as this", History { new_seek_mean: 50_000, ..History::default() }, false),
        ] {
            let mut elevator = waiting_for_task_0();
            elevator.history = set;
            assert_eq!(elevator.can_break(0, Some((&read_at(150_000), 1)), 1), ends, "{why}");
        }
    }

    #[test]
    fn overdue_requests_are_looked_for_once_in_the_time_they_need() {
        for (ms, order) in [(125, [100, 900_000, 900_100]), (126, [900_000, 900_100, 100])] {
            let mut driver = Driver::with("anticipatory", 1000, &[("antic_expire_ms", 0)]);
            for sector in [900_000, 100, 900_100] {
                driver.submit(Read, sector, 8, 0);
            }
            driver.wait_ms(ms);
            assert_eq!(driver.drain(), order, "all three are overdue after more than 125 ms; here after {ms}");
        }
    }

    #[test]
    fn what_counts_as_close_grows_while_the_wait_lasts() {
        for (waited, below, above) in [(0, 32, 64), (1, 32, 64), (2, 64, 128), (4, 256, 512), (6, 1024, 2048)] {
            let elevator = waiting_for_task_0();
            for (sector, close) in [
                (100_000 - below - 1, false),
                (100_000 - below, true),
                (100_000 + above, true),
                (100_000 + above + 1, false),
            ] {
                assert_eq!(elevator.is_close(&read_at(sector), waited), close, "{sector} after {waited} ms");
            }
        }
        assert!(waiting_for_task_0().is_close(&read_at(0), 7), "after the wait everything is");
    }

    #[test]
    fn the_nearest_is_next_and_backwards_counts_double() {
        // Head at 2 000 000; what lies more than 1 048 576 behind it is for the next round.
        for (why, waiting, first) in [
            ("ahead and nearer", [2_000_100, 2_000_300], 2_000_100),
            ("behind, more than half as far", [1_999_900, 2_000_150], 2_000_150),
            ("behind, less than half as far", [1_999_900, 2_000_250], 1_999_900),
            ("equal: the one ahead", [1_999_900, 2_000_200], 2_000_200),
            ("wrapped: any other first", [900_000, 9_000_000], 9_000_000),
            ("both wrapped: the lower", [900_000, 800_000], 800_000),
        ] {
            for order in [waiting, [waiting[1], waiting[0]]] {
                let mut driver = Driver::with("anticipatory", 1000, &[("antic_expire_ms", 0)]);
                driver.submit(Read, 1_999_992, 8, 0);
                driver.step();
                order.iter().for_each(|&sector| driver.submit(Read, sector, 8, 0));
                assert_eq!(driver.step(), first, "{why}");
            }
        }
    }

    /// A driver whose task 0 has read 16 blocks in a row with a pause of 1 ms, at sector 128 of an idle disk.
    fn sequential_reader(options: &[(&str, i64)]) -> Driver {
        let mut driver = Driver::with("anticipatory", 1000, options);
        for i in 0..16 {
            driver.submit(Read, 8 * i, 8, 0);
            assert_eq!(driver.step(), 8 * i);
            driver.wait_ms(1);
        }
        driver
    }

    #[test]
    fn it_waits_for_a_task_that_comes_back_within_six_milliseconds() {
        for (after_ms, ended, order) in [
            (1, IdleEnd::Hit, [136, 10_000_000]),
            (5, IdleEnd::Hit, [136, 10_000_000]),
            (6, IdleEnd::Timeout, [10_000_000, 136]),
        ] {
            let mut driver = sequential_reader(&[]);
            let own = start_read(&mut driver, 128, 0);
            driver.submit(Read, 10_000_000, 8, 1);
            driver.complete(own);
            assert_eq!(driver.try_start(), None, "it waits");
            assert_eq!(driver.idle_started, 1);
            driver.wait_ms(after_ms);
            let mut served = Vec::new();
            if ended == IdleEnd::Timeout {
                served.push(driver.step());
            }
            driver.submit(Read, 136, 8, 0);
            served.extend(driver.drain());
            assert_eq!(served, order, "after {after_ms} ms");
            assert_eq!(driver.idle_ended.first(), Some(&ended), "after {after_ms} ms");
        }
    }

    #[test]
    fn each_rule_that_ends_a_wait_can_be_told_from_the_others() {
        // (why, options, mean seek of task 0 is large, sector of the other's request, waits)
        for (why, options, seeky, other, waits) in [
            ("far away: wait", vec![], false, 10_000_000, true),
            ("no anticipation", vec![("antic_expire_ms", 0)], false, 10_000_000, false),
            ("close to the head", vec![], false, 160, false),
            ("close to the head, rule off", vec![("close_rule", 0)], false, 160, true),
            ("nearer than the mean seek", vec![], true, 3_000_000, false),
            ("nearer than the mean seek, rule off", vec![("seek_break", 0)], true, 3_000_000, true),
        ] {
            let mut driver = Driver::with("anticipatory", 1000, &options);
            for i in 0..16u64 {
                let sector = if seeky { (i % 2) * 20_000_000 } else { 8 * i };
                driver.submit(Read, sector + if seeky { 8 * i } else { 0 }, 8, 0);
                driver.step();
                driver.wait_ms(1);
            }
            let own = start_read(&mut driver, 128, 0);
            driver.submit(Read, other, 8, 1);
            driver.complete(own);
            assert_eq!(driver.try_start().is_none(), waits, "{why}");
        }
    }

    #[test]
    fn a_task_that_thinks_long_is_not_waited_for() {
        let mut driver = Driver::new("anticipatory", 1000);
        for i in 0..16 {
            driver.submit(Read, 8 * i, 8, 0);
            driver.step();
            driver.wait_ms(12);
        }
        let own = start_read(&mut driver, 128, 0);
        driver.submit(Read, 10_000_000, 8, 1);
        driver.complete(own);
        assert!(driver.try_start().is_some());
    }

    #[test]
    fn a_task_that_has_ended_is_not_waited_for() {
        let mut driver = sequential_reader(&[]);
        let own = start_read(&mut driver, 128, 0);
        driver.submit(Read, 10_000_000, 8, 1);
        driver.exit(0);
        driver.complete(own);
        assert!(driver.try_start().is_some());
    }

    #[test]
    fn while_it_waits_the_anticipated_task_may_have_a_request() {
        let mut driver = sequential_reader(&[]);
        let own = start_read(&mut driver, 128, 0);
        driver.submit(Read, 10_000_000, 8, 1);
        driver.complete(own);
        assert_eq!(driver.try_start(), None);
        let may = |task| driver.elevator.may_queue(IoContext { task, thread_group: task }, Read);
        assert_eq!((may(0), may(1)), (Some(true), None));
    }

    #[test]
    fn two_sequential_readers_far_apart_are_served_in_long_turns() {
        let mut driver = Driver::new("anticipatory", 1000);
        let mut position = [0u64, 40_000_000];
        driver.submit(Read, position[0], 8, 0);
        driver.submit(Read, position[1], 8, 1);
        let (mut served, mut turns) = (0, Vec::new());
        let mut last = usize::MAX;
        let mut decided = None;
        while driver.now < Nanos::from_ms(5_000) {
            let Some(rq) = decided.or_else(|| driver.start()) else { panic!("a reader waits for nothing") };
            let task = driver.requests[rq].context.task as usize;
            if task != last {
                turns.push(driver.now);
                last = task;
            }
            served += 1;
            driver.now += Nanos::from_ms(2);
            driver.complete(rq);
            // The elevator decides before the reader runs, 0.1 ms later.
            decided = driver.try_start();
            driver.now += Nanos::from_us(100);
            position[task] += 8;
            driver.submit(Read, position[task], 8, task as u32);
        }
        // The device never stands still for longer than a reader needs, and the head moves only because the other's
        // read is overdue, which is looked at every 125 ms. The first turns are shorter: nothing is known yet.
        assert!(served > 2_300, "{served} requests in 5 s");
        assert!((20..=44).contains(&turns.len()), "{} turns in 5 s", turns.len());
        let short = turns[4..].windows(2).filter(|turn| turn[1] - turn[0] < Nanos::from_ms(124)).count();
        assert_eq!(short, 0, "{turns:?}");
    }

    #[test]
    fn async_writes_get_their_batch_after_the_sync_batch_has_expired() {
        let mut driver = Driver::with("anticipatory", 1000, &[("antic_expire_ms", 0)]);
        for i in 0..100 {
            driver.submit(Write, 1_000_000 + 100 * i, 8, 9);
        }
        for i in 0..1_000 {
            driver.submit(Read, 100 * i, 8, i as u32);
        }
        let mut runs: Vec<(Dir, u64, Nanos)> = Vec::new();
        while let Some(rq) = driver.start() {
            let dir = driver.requests[rq].dir;
            match runs.last_mut() {
                Some(last) if last.0 == dir => last.1 += 1,
                _ => runs.push((dir, 1, driver.now)),
            }
            driver.wait_ms(5);
            driver.complete(rq);
            if runs.len() == 5 {
                break;
            }
        }
        let shape: Vec<(Dir, u64)> = runs.iter().take(4).map(|run| (run.0, run.1)).collect();
        // A sync batch is over once its 250 ms have passed, an async one after 6 requests; those took less than half of
        // the 62 ms meant for them, but more than a third, so that the next one is one longer.
        assert_eq!(shape, [(Read, 51), (Write, 6), (Read, 52), (Write, 7)]);
    }
}
