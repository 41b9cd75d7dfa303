//! The time-sliced complete fair queueing elevator of RHEL 5 (2.6.18), as released up to -164, and its later flavours.
//!
//! Requests wait in queues sorted by sector: one for the sync requests of each task, and one for async requests, which
//! all tasks share (or not: that is what the flavours differ in). One queue is active until its slice ends: 100 ms for
//! a sync queue, 40 ms or 16 requests for an async one. While it has requests up to four at a time are moved to the
//! dispatch list, first one whose time is up, then the nearest to the last position, distances backwards counting
//! double. When it has none but one is at the device, nothing is dispatched for anybody. When a sync queue has none at
//! all, the device is kept idle up to 8 ms for the next request of its task, unless the task thinks longer than that,
//! or the device queues commands and the task seeks far. The next queue is the one that was served longest ago; one
//! with requests at the device comes after all others. With `cooperate`, a sync queue gives way to one whose next
//! request is close, and the two become one queue with the next request of the first task.
//!
//! Source: Linux 2.6.18-164.15.1.el5, `block/cfq-iosched.c`, `cfq_select_queue` and `cfq_dispatch_requests`; for the
//! flavours -194.el5, -194.11.1.el5 and -238.el5, the same file. Deviations: all tasks have the default priority, so
//! there is one list of waiting queues, and no real-time and idle classes; preemption is left out because its test asks
//! for a flag that only the active queue can have, so without the idle class it never happens. Of two queues on both
//! sides of the last position and both close, the nearer is the cooperator (the kernel's choice follows from the shape
//! of its tree). The slice of a task that ends is given up with the next event of the queue, not at once. The
//! worker thread runs here the requests that the kernel's insertion runs at once.

use super::{Build, Ctx, Elevator, Quirks, is_nearer};
use crate::event::{Dir, IdleEnd, MergeKind, RqId};
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::request::{Bio, IoContext, Request, Requests};
use crate::sorted::{Fifo, MergeHints, Sorted, joins, slot};
use crate::units::{Hz, Jiffies, Nanos, PAGE_SECTORS, Sector};
use std::cell::Cell;
use std::collections::VecDeque;

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "cfq-2.6.18-164",
    summary: "time slices per task with idling; one async queue for all tasks, direct writes in it (RHEL 5.4)",
    origin: &[Origin {
        kernels: "2.6.18-128 .. 2.6.18-164",
        file: "block/cfq-iosched.c",
        function: "cfq_select_queue",
        notes: "rules and fixed-point statistics as in -164.15.1; the file of -128 is the same",
    }],
    options: OPTIONS,
    conformance: "order, slice and idle tables, a closed loop of writers; the property test over all elevators; no \
                  kernel vectors",
    build,
};

/// Tunables of all flavours.
pub(super) const OPTIONS: &[OptionSpec] = &[
    OptionSpec::number("quantum", 4, (1, 1024), "requests of one queue moved at a time"),
    OptionSpec::number("queued", 8, (1, 8192), "shown by the kernel, which never looks at it; without effect here too"),
    OptionSpec::number("fifo_expire_sync_ms", 125, (0, 100_000), "age at which a sync request goes first (HZ/8)"),
    OptionSpec::number("fifo_expire_async_ms", 250, (0, 100_000), "age at which an async request goes first (HZ/4)"),
    OptionSpec::number("back_seek_max_kb", 16_384, (0, 1 << 30), "farthest request backwards that is considered"),
    OptionSpec::number("back_seek_penalty", 2, (1, 1000), "factor of a distance backwards"),
    OptionSpec::number("slice_sync_ms", 100, (1, 100_000), "slice of a sync queue (HZ/10)"),
    OptionSpec::number("slice_async_ms", 40, (1, 100_000), "slice of an async queue (HZ/25)"),
    OptionSpec::number("slice_async_rq", 2, (1, 1024), "an async slice also ends after eight times as many requests"),
    OptionSpec::number("slice_idle_ms", 8, (0, 1000), "longest wait for a task's next request (HZ/125); 0 for none"),
];

fn build(options: &Options, hz: Hz) -> Box<dyn Elevator> {
    Box::new(Cfq::new(
        options,
        hz,
        Rules { writes: Writes::Async, sharing: Sharing::Hash, cooperate: false, must_queue: Some(Dir::Read) },
    ))
}

/// Which writes are sync.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    /// None: the sync flag is neither looked at for requests nor for bios.
    Async,
    /// None, but a bio with the flag looks for a request to join among the sync ones, where it cannot be.
    AsyncMergedAsSync,
    /// Those with the flag.
    Flagged,
}

/// Tasks that share an async queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// All; the queue is found by a hash and goes when it is unused.
    Hash,
    /// None: each task has its own.
    Task,
    /// Everybody of one priority; the queue stays.
    Priority,
}

/// Differences between the flavours.
#[derive(Copy, Clone, Debug)]
pub(super) struct Rules {
    /// Which writes are sync.
    pub(super) writes: Writes,
    /// Tasks that share an async queue.
    pub(super) sharing: Sharing,
    /// Close queues give way to each other and unite; seeks are known per queue, and the position is that of the last
    /// request started, not of the last one moved to the dispatch list.
    pub(super) cooperate: bool,
    /// For which direction a task that is waited for may always have a request.
    pub(super) must_queue: Option<Dir>,
}

const ASYNC: usize = 0;
const SYNC: usize = 1;

/// A queue whose mean seek is longer, in sectors, is seeky (`cooperate`).
const SEEKY_QUEUE: u64 = 8 << 10;
/// The same of a task.
const SEEKY_TASK: u64 = 128 << 10;
/// Wait for a seeky task, ms.
const SEEKY_IDLE_MS: u64 = 2;
/// Requests at the device beyond which it evidently queues commands.
const QUEUEING_DEPTH: u32 = 4;

/// A running mean: samples and their total decay by 7/8, in units of 1/256.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Mean {
    samples: u64,
    total: u64,
    mean: u64,
}

impl Mean {
    fn add(&mut self, value: u64, rounding: u64) {
        self.samples = (7 * self.samples + 256) / 8;
        self.total = (7 * self.total + 256 * value) / 8;
        self.mean = (self.total + rounding) / self.samples;
    }

    /// Three samples are enough to believe in it.
    fn valid(&self) -> bool {
        self.samples > 80
    }

    fn think(&mut self, ticks: u64) {
        self.add(ticks, 128);
    }

    /// Odd long seeks are cut to four means and some.
    fn seek(&mut self, sectors: u64) {
        let room = if self.samples <= 60 { 2 << 20 } else { 128 << 10 };
        let samples = (7 * self.samples + 256) / 8;
        self.add(sectors.min(4 * self.mean + room), samples / 2);
    }
}

/// Where requests of a task or queue have been.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Seeks {
    mean: Mean,
    /// Sector after its last sync request; 0 if there was none.
    last: u64,
}

impl Seeks {
    fn seeky(&self, limit: u64) -> bool {
        self.mean.mean > limit
    }

    fn known_seeky(&self, limit: u64) -> bool {
        self.mean.valid() && self.seeky(limit)
    }
}

/// Which list a queue is on.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
enum List {
    /// None: nothing waits in it.
    #[default]
    Off,
    /// Waiting for a turn, by last service.
    Waiting,
    /// Of the current turn.
    Current,
    /// Has requests at the device.
    Busy,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    tree: Sorted,
    fifo: Fifo,
    next: Option<RqId>,
    list: List,
    sync: bool,
    /// Tasks that use it, or will because their queue is to be united with it.
    tasks: u32,
    /// Requests of it, from insertion to completion.
    allocated: u32,
    /// Requests moved to the dispatch list and not yet completed.
    dispatched: u32,
    /// Worth waiting for.
    idle_window: bool,
    /// It is waited for, or was when the wait ran out.
    wait_request: bool,
    /// The end of its slice is not looked at before its next turn.
    must_dispatch: bool,
    /// It has had the overdue request that it may have in a slice.
    fifo_expired: bool,
    /// Its task was given a request beyond the limit in this slice.
    must_allocated: Cell<bool>,
    /// Last tick of its slice, once something of it has been dispatched.
    slice_end: Option<u64>,
    service_last: Option<u64>,
    seeks: Seeks,
    /// Queue that its tasks are to use from their next request on.
    unite_with: Option<usize>,
    /// Other tasks' queues have been united with it.
    united: bool,
    /// Since when it has been seeky although united.
    seeky_since: Option<u64>,
}

/// A task's use of this device (`cfq_io_context`).
#[derive(Copy, Clone, Debug, Default)]
struct User {
    queues: [Option<usize>; 2],
    last_end: u64,
    think: Mean,
    seeks: Seeks,
}

#[derive(Copy, Clone, Debug, Default)]
struct Data {
    /// Sector under which it stands in the tree.
    key: u64,
    queue: usize,
    task: u32,
    /// Tick of the oldest bio in it.
    start: u64,
    /// Sorted: not a flush.
    sorted: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Cfq {
    hz: Hz,
    rules: Rules,
    quantum: u64,
    fifo_expire: [u64; 2],
    back_max: u64,
    back_penalty: u64,
    slice: [u64; 2],
    slice_async_requests: u64,
    slice_idle: u64,
    queues: Vec<Queue>,
    /// Numbers of queues that are gone.
    free: Vec<usize>,
    /// The async queue of everybody.
    shared: Option<usize>,
    waiting: Vec<usize>,
    current: Vec<usize>,
    busy: Vec<usize>,
    active: Option<usize>,
    /// Task of the first request of this slice.
    active_task: Option<u32>,
    /// It has ended.
    active_task_gone: bool,
    /// Requests moved in this slice.
    slice_dispatched: u64,
    /// Tick at which the wait ends.
    idle_until: Option<u64>,
    last_position: u64,
    in_driver: u32,
    /// The device queues commands.
    queueing: bool,
    /// By task number.
    users: Vec<Option<User>>,
    /// Tasks that have ended and still hold queues.
    leaving: Vec<u32>,
    /// By request number.
    data: Vec<Data>,
    hints: MergeHints,
    dispatch: VecDeque<RqId>,
    /// End of the last request started: the dispatch list is an ascent from here and another from sector 0.
    boundary: u64,
    /// Flush that is to set the boundary.
    boundary_flush: Option<RqId>,
    len: usize,
}

/// Seven priorities below the highest, of which the default is the fifth: twice the base for it and each below.
const ASYNC_REQUESTS_FACTOR: u64 = 2 * (1 + 7 - 4);

impl Cfq {
    pub(super) fn new(options: &Options, hz: Hz, rules: Rules) -> Cfq {
        let ticks = |name| hz.from_ms(options.unsigned(name));
        Cfq {
            hz,
            rules,
            quantum: options.unsigned("quantum"),
            fifo_expire: [ticks("fifo_expire_async_ms"), ticks("fifo_expire_sync_ms")],
            back_max: 2 * options.unsigned("back_seek_max_kb"),
            back_penalty: options.unsigned("back_seek_penalty"),
            slice: [ticks("slice_async_ms"), ticks("slice_sync_ms")],
            slice_async_requests: ASYNC_REQUESTS_FACTOR * options.unsigned("slice_async_rq"),
            slice_idle: ticks("slice_idle_ms"),
            queues: Vec::new(),
            free: Vec::new(),
            shared: None,
            waiting: Vec::new(),
            current: Vec::new(),
            busy: Vec::new(),
            active: None,
            active_task: None,
            active_task_gone: false,
            slice_dispatched: 0,
            idle_until: None,
            last_position: 0,
            in_driver: 0,
            queueing: false,
            users: Vec::new(),
            leaving: Vec::new(),
            data: Vec::new(),
            hints: MergeHints::default(),
            dispatch: VecDeque::new(),
            boundary: 0,
            boundary_flush: None,
            len: 0,
        }
    }

    /// Queues in which something waits.
    fn nr_busy(&self) -> usize {
        self.waiting.len() + self.current.len() + self.busy.len()
    }

    fn schedule_dispatch(&self, ctx: &mut Ctx<'_>) {
        ctx.kick_unplugged(self.nr_busy() > 0);
    }

    fn is_sync(&self, request: &Request) -> bool {
        request.dir == Dir::Read || (request.sync && self.rules.writes == Writes::Flagged)
    }

    // Lists of queues.

    fn list(&mut self, list: List) -> Option<&mut Vec<usize>> {
        match list {
            List::Off => None,
            List::Waiting => Some(&mut self.waiting),
            List::Current => Some(&mut self.current),
            List::Busy => Some(&mut self.busy),
        }
    }

    fn unlist(&mut self, queue: usize) {
        let from = std::mem::take(&mut self.queues[queue].list);
        if let Some(list) = self.list(from)
            && let Some(at) = list.iter().position(|&other| other == queue)
        {
            list.remove(at);
        }
    }

    /// Puts a queue in which something waits to its place.
    fn file(&mut self, queue: usize) {
        self.unlist(queue);
        if self.queues[queue].dispatched > 0 {
            self.queues[queue].list = List::Busy;
            self.busy.push(queue);
            return;
        }
        let own = self.queues[queue].service_last;
        // Behind those never served and those served earlier; in front of those served in the same tick.
        let behind = |&other: &usize| {
            let service = self.queues[other].service_last;
            service.is_none() || own.is_some_and(|own| service < Some(own))
        };
        let at = self.waiting.iter().rposition(behind).map_or(0, |at| at + 1);
        self.waiting.insert(at, queue);
        self.queues[queue].list = List::Waiting;
    }

    // Queues and their users.

    fn new_queue(&mut self, sync: bool) -> usize {
        let number = self.free.pop().unwrap_or_else(|| {
            self.queues.push(Queue::default());
            self.queues.len() - 1
        });
        let (tree, fifo) =
            (std::mem::take(&mut self.queues[number].tree), std::mem::take(&mut self.queues[number].fifo));
        self.queues[number] = Queue { tree, fifo, sync, idle_window: true, ..Queue::default() };
        number
    }

    fn put_task(&mut self, ctx: &mut Ctx<'_>, queue: usize) {
        self.queues[queue].tasks -= 1;
        self.drop_if_unused(ctx, queue);
    }

    fn drop_if_unused(&mut self, ctx: &mut Ctx<'_>, queue: usize) {
        let known = &self.queues[queue];
        if known.tasks + known.allocated > 0 {
            return;
        }
        debug_assert!(known.tree.is_empty() && known.list == List::Off);
        if self.active == Some(queue) {
            self.expire(ctx, queue, IdleEnd::Broken);
        }
        if self.shared == Some(queue) {
            self.shared = None;
        }
        self.free.push(queue);
    }

    fn user(&mut self, task: u32) -> Option<&mut User> {
        self.users.get_mut(task as usize)?.as_mut()
    }

    /// The queue that a new request of `task` belongs to.
    fn queue_for(&mut self, ctx: &mut Ctx<'_>, task: u32, class: usize) -> usize {
        let (index, now) = (task as usize, ctx.jiffies());
        if index >= self.users.len() {
            self.users.resize(index + 1, None);
        }
        let user = self.users[index].get_or_insert_with(|| User { last_end: now, ..User::default() });
        if let Some(queue) = user.queues[class] {
            let known = &mut self.queues[queue];
            let apart = known.united && known.seeky_since.is_some_and(|since| now > since + u64::from(self.hz.0));
            if !apart {
                let Some(other) = known.unite_with else { return queue };
                user.queues[class] = Some(other);
                self.queues[other].united = true;
                self.put_task(ctx, queue);
                return other;
            }
            if known.tasks == 1 {
                (known.united, known.seeky_since) = (false, None);
                return queue;
            }
            self.put_task(ctx, queue);
        }
        let shares = class == ASYNC && self.rules.sharing != Sharing::Task;
        let queue = match self.shared {
            Some(shared) if shares => shared,
            _ => self.new_queue(class == SYNC),
        };
        if shares && self.shared.is_none() {
            self.shared = Some(queue);
            self.queues[queue].tasks += u32::from(self.rules.sharing == Sharing::Priority);
        }
        self.queues[queue].tasks += 1;
        if let Some(user) = self.user(task) {
            user.queues[class] = Some(queue);
        }
        queue
    }

    /// Gives back what tasks that have ended held.
    fn settle_exits(&mut self, ctx: &mut Ctx<'_>) {
        if self.leaving.is_empty() {
            return;
        }
        for task in std::mem::take(&mut self.leaving) {
            let Some(user) = self.users[task as usize].take() else { continue };
            for queue in user.queues.into_iter().flatten() {
                if self.active == Some(queue) {
                    self.expire(ctx, queue, IdleEnd::Broken);
                    self.schedule_dispatch(ctx);
                }
                let mut other = self.queues[queue].unite_with;
                while let Some(next) = other {
                    other = self.queues[next].unite_with;
                    self.put_task(ctx, next);
                }
                self.put_task(ctx, queue);
            }
        }
    }

    // The trees.

    /// The better of two requests of one queue.
    fn choose(&self, requests: &Requests, a: Option<RqId>, b: Option<RqId>) -> Option<RqId> {
        let (Some(first), Some(second)) = (a, b) else {
            return a.or(b);
        };
        let last = self.last_position;
        let (from, to) = (requests[first].sector.0, requests[second].sector.0);
        let first_wins = is_nearer(last, from, to, self.back_max, self.back_penalty);
        Some(if first_wins { first } else { second })
    }

    /// The request to dispatch after `rq`, which is still in its tree.
    fn find_next(&self, requests: &Requests, rq: RqId) -> Option<RqId> {
        let Data { key, queue, .. } = self.data[rq.0 as usize];
        let tree = &self.queues[queue].tree;
        let above = tree.after(key, rq).or_else(|| tree.first().filter(|&first| first != rq));
        self.choose(requests, above, tree.before(key, rq))
    }

    fn tree_insert(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        let (queue, key) = (self.data[rq.0 as usize].queue, ctx.requests[rq].sector.0);
        while let Some(alias) = self.queues[queue].tree.at(key) {
            self.move_to_dispatch(ctx.requests, alias);
        }
        self.data[rq.0 as usize].key = key;
        self.queues[queue].tree.insert(key, rq);
        if self.queues[queue].list == List::Off {
            self.file(queue);
        }
        self.queues[queue].next = self.choose(ctx.requests, self.queues[queue].next, Some(rq));
    }

    /// Takes `rq` out of its queue.
    fn remove(&mut self, requests: &Requests, rq: RqId) {
        let Data { key, queue, .. } = self.data[rq.0 as usize];
        if self.queues[queue].next == Some(rq) {
            self.queues[queue].next = self.find_next(requests, rq);
        }
        let known = &mut self.queues[queue];
        known.fifo.remove(rq);
        let was_there = known.tree.remove(key, rq);
        debug_assert!(was_there, "request {} does not wait here", rq.0);
        self.hints.removed(rq);
        if self.queues[queue].tree.is_empty() {
            self.unlist(queue);
        }
    }

    fn move_to_dispatch(&mut self, requests: &Requests, rq: RqId) {
        let queue = self.data[rq.0 as usize].queue;
        self.queues[queue].next = self.find_next(requests, rq);
        self.remove(requests, rq);
        self.queues[queue].dispatched += 1;
        let (sector, boundary) = (requests[rq].sector.0, self.boundary);
        let before = |&other: &RqId| {
            let Request { sector: at, flush, .. } = requests[other];
            match (sector >= boundary, at.0 >= boundary) {
                _ if flush => true,
                (true, false) => false,
                (false, true) => true,
                _ => sector >= at.0,
            }
        };
        let at = self.dispatch.iter().rposition(before).map_or(0, |at| at + 1);
        self.dispatch.insert(at, rq);
        if !self.rules.cooperate
            && let Some(&last) = self.dispatch.back()
        {
            self.last_position = requests[last].end().0;
        }
    }

    fn reposition(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        self.hints.merged(ctx.requests, rq);
        let Data { key, queue, .. } = self.data[rq.0 as usize];
        if key != ctx.requests[rq].sector.0 {
            if self.queues[queue].next == Some(rq) {
                self.queues[queue].next = self.find_next(ctx.requests, rq);
            }
            self.queues[queue].tree.remove(key, rq);
            self.tree_insert(ctx, rq);
        }
    }

    // Slices.

    fn stop_timer(&mut self, ctx: &mut Ctx<'_>, end: IdleEnd) {
        if self.idle_until.take().is_some() {
            ctx.idle_ended = Some(end);
        }
    }

    /// Ends the slice of the active queue. A wait for it ends for the reason `end`.
    fn expire(&mut self, ctx: &mut Ctx<'_>, queue: usize, end: IdleEnd) {
        debug_assert_eq!(self.active, Some(queue));
        self.stop_timer(ctx, end);
        if self.queues[queue].dispatched == 0 {
            self.queues[queue].service_last = Some(ctx.jiffies());
            self.schedule_dispatch(ctx);
        }
        let known = &mut self.queues[queue];
        (known.must_dispatch, known.wait_request) = (false, false);
        if known.list != List::Off {
            self.file(queue);
        }
        (self.active, self.slice_dispatched) = (None, 0);
        (self.active_task, self.active_task_gone) = (None, false);
    }

    fn activate(&mut self, cooperator: Option<usize>) -> Option<usize> {
        let mut queue = cooperator;
        if queue.is_none() {
            if self.current.is_empty() {
                std::mem::swap(&mut self.current, &mut self.waiting);
                self.current.iter().for_each(|&queue| self.queues[queue].list = List::Current);
            }
            queue = self.current.first().or(self.busy.first()).copied();
        }
        if let Some(queue) = queue {
            let known = &mut self.queues[queue];
            known.slice_end = None;
            known.fifo_expired = false;
            known.must_allocated.set(false);
        }
        self.active = queue;
        queue
    }

    /// Whether the active queue's user seeks, as far as the queue has seen.
    fn known_seeky(&self, queue: usize) -> bool {
        if self.rules.cooperate {
            return self.queues[queue].seeks.known_seeky(SEEKY_QUEUE);
        }
        let user = self.active_task.and_then(|task| self.users.get(task as usize)?.as_ref());
        user.is_some_and(|user| user.seeks.known_seeky(SEEKY_TASK))
    }

    /// Begins to wait for the next request of the active queue, or goes on with it. Says whether it does.
    fn arm_idle(&mut self, ctx: &mut Ctx<'_>, queue: usize) -> bool {
        let nobody = self.active_task.is_none() || self.active_task_gone;
        if self.slice_idle == 0 || !self.queues[queue].idle_window || nobody {
            return false;
        }
        let known = &mut self.queues[queue];
        (known.must_dispatch, known.wait_request) = (true, true);
        let seeky = self.hz.from_ms(SEEKY_IDLE_MS);
        let ticks = if self.known_seeky(queue) { self.slice_idle.min(seeky) } else { self.slice_idle };
        ctx.idle_started |= self.idle_until.is_none();
        self.idle_until = Some(ctx.jiffies() + ticks);
        true
    }

    /// The sync queue whose next request is close to the last position, if the active queue `queue` may give way to it.
    fn cooperator(&self, queue: usize) -> Option<usize> {
        let own = &self.queues[queue];
        if !self.rules.cooperate || !own.sync || own.seeks.known_seeky(SEEKY_QUEUE) {
            return None;
        }
        let close = if own.seeks.mean.valid() { own.seeks.mean.mean } else { SEEKY_QUEUE };
        let lists = self.waiting.iter().chain(&self.current).chain(&self.busy);
        let distance = |&queue: &usize| {
            let next = self.queues[queue].next?;
            Some((self.last_position.abs_diff(self.data[next.0 as usize].key), queue))
        };
        let (distance, other) = lists.filter_map(distance).min_by_key(|&(distance, _)| distance)?;
        let known = &self.queues[other];
        (distance <= close && known.sync && !known.seeks.known_seeky(SEEKY_QUEUE)).then_some(other)
    }

    /// Has one of two cooperating queues take the other's place, that with more tasks if they differ.
    fn plan_union(&mut self, queue: usize, other: usize) {
        if self.queues[queue].unite_with.is_some() || self.queues[other].tasks == 0 {
            return;
        }
        let mut target = other;
        while let Some(next) = self.queues[target].unite_with {
            if next == queue {
                return;
            }
            target = next;
        }
        let (own, others) = (self.queues[queue].tasks, self.queues[target].tasks);
        if own == 0 || others == 0 {
            return;
        }
        let (from, to) = if others >= own { (queue, target) } else { (target, queue) };
        self.queues[from].unite_with = Some(to);
        let tasks = self.queues[from].tasks;
        self.queues[to].tasks += tasks;
    }

    /// The queue to dispatch from, `None` if there is none or the active one is waited for.
    fn select(&mut self, ctx: &mut Ctx<'_>) -> Option<usize> {
        let Some(queue) = self.active else {
            return self.activate(None);
        };
        let mut cooperator = None;
        let known = &self.queues[queue];
        if known.must_dispatch || !self.slice_over(queue, ctx.jiffies()) {
            if !known.tree.is_empty() {
                return Some(queue);
            }
            cooperator = self.cooperator(queue);
            if let Some(other) = cooperator {
                self.plan_union(queue, other);
            } else if known.dispatched > 0 || (known.sync && self.arm_idle(ctx, queue)) {
                return None;
            }
        }
        self.expire(ctx, queue, IdleEnd::Broken);
        self.activate(cooperator)
    }

    /// A slice whose end is not set yet was not used when it began and is over.
    fn slice_over(&self, queue: usize, now: u64) -> bool {
        self.queues[queue].slice_end.is_none_or(|end| now > end)
    }

    /// Moves requests of the active queue to the dispatch list.
    fn dispatch_from(&mut self, ctx: &mut Ctx<'_>, queue: usize) {
        let now = ctx.jiffies();
        let class = usize::from(self.queues[queue].sync);
        for _ in 0..self.quantum {
            let known = &mut self.queues[queue];
            let oldest = known.fifo.first().filter(|_| !known.fifo_expired);
            let overdue = oldest.filter(|rq| now > self.data[rq.0 as usize].start + self.fifo_expire[class]);
            known.fifo_expired |= overdue.is_some();
            let Some(rq) = overdue.or(known.next) else { break };
            self.move_to_dispatch(ctx.requests, rq);
            self.slice_dispatched += 1;
            self.active_task = self.active_task.or(Some(self.data[rq.0 as usize].task));
        }
        let slice = self.slice[class];
        let known = &mut self.queues[queue];
        known.slice_end.get_or_insert(now + slice);
        let used_up = class == ASYNC && self.slice_dispatched >= self.slice_async_requests;
        if used_up || !known.idle_window {
            self.expire(ctx, queue, IdleEnd::Broken);
        }
    }

    /// Refills the dispatch list.
    fn refill(&mut self, ctx: &mut Ctx<'_>) {
        let mut previous = None;
        while self.nr_busy() > 0
            && let Some(queue) = self.select(ctx)
            && previous != Some(queue)
        {
            let known = &mut self.queues[queue];
            (known.must_dispatch, known.wait_request) = (false, false);
            self.stop_timer(ctx, IdleEnd::Hit);
            self.dispatch_from(ctx, queue);
            if self.queues[queue].idle_window && self.active.is_some() {
                break;
            }
            previous = Some(queue);
        }
    }

    /// Moves everything to the dispatch list.
    fn dispatch_all(&mut self, ctx: &mut Ctx<'_>) {
        for list in [List::Waiting, List::Busy, List::Current] {
            while let Some(queue) = self.list(list).and_then(|list| list.first().copied()) {
                while let Some(rq) = self.queues[queue].next {
                    self.move_to_dispatch(ctx.requests, rq);
                }
            }
        }
        if let Some(active) = self.active {
            self.expire(ctx, active, IdleEnd::Broken);
        }
        // The caller that drains the elevator runs the queue, too.
        ctx.run_now = true;
    }

    /// A request has been queued: keeps the books of its user, and sees whether it ends a wait.
    fn enqueued(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        let Data { queue, task, .. } = self.data[rq.0 as usize];
        let (now, request) = (ctx.jiffies(), ctx.requests[rq]);
        if !self.queues[queue].sync {
            // The task that is waited for does something else.
            if self.active_task == Some(task)
                && !self.active_task_gone
                && self.idle_until.is_some()
                && let Some(active) = self.active
            {
                self.expire(ctx, active, IdleEnd::Broken);
                ctx.run_now = true;
            }
            return;
        }
        self.learn(queue, task, &request, now);
        if self.active != Some(queue) || !self.queues[queue].wait_request {
            return;
        }
        self.queues[queue].must_dispatch = true;
        // With `cooperate` a lone small request waits for its unplug, so that it can grow.
        let small = u64::from(request.nr_sectors) <= PAGE_SECTORS;
        if !self.rules.cooperate || !small || self.nr_busy() > 1 {
            self.stop_timer(ctx, IdleEnd::Hit);
            ctx.run_now = true;
        }
    }

    /// Think times, seeks, and what follows from them.
    fn learn(&mut self, queue: usize, task: u32, request: &Request, now: u64) {
        let Some(user) = self.users[task as usize].as_mut() else { return };
        user.think.think((now - user.last_end).min(2 * self.slice_idle));
        let known = &mut self.queues[queue];
        let Sector(sector) = request.sector;
        let (seeks, limit) =
            if self.rules.cooperate { (&mut known.seeks, SEEKY_QUEUE) } else { (&mut user.seeks, SEEKY_TASK) };
        // Only the later kernels know that a first request has no seek.
        let first = self.rules.cooperate && seeks.last == 0;
        seeks.mean.seek(if first { 0 } else { sector.abs_diff(seeks.last) });
        seeks.last = request.end().0;
        let seeky = seeks.seeky(limit);
        if known.united {
            known.seeky_since = seeky.then(|| known.seeky_since.unwrap_or(now));
        }
        if self.slice_idle == 0 || (self.queueing && seeky) {
            known.idle_window = false;
        } else if user.think.valid() {
            known.idle_window = user.think.mean <= self.slice_idle;
        }
    }
}

impl Elevator for Cfq {
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
        let sync = bio.dir == Dir::Read || (bio.sync && self.rules.writes != Writes::Async);
        let queue = match (sync, self.rules.sharing) {
            (false, Sharing::Hash) => self.shared,
            _ => self.user(bio.context.task)?.queues[usize::from(sync)],
        };
        let rq = self.queues[queue?].tree.at(bio.sector.plus(u64::from(bio.nr_sectors)).0)?;
        (joins(&ctx.requests[rq], bio) == Some(MergeKind::Front)).then_some((rq, MergeKind::Front))
    }

    fn merged(&mut self, ctx: &mut Ctx<'_>, rq: RqId, _kind: MergeKind) {
        self.reposition(ctx, rq);
    }

    fn neighbour(&self, _ctx: &Ctx<'_>, rq: RqId, side: MergeKind) -> Option<RqId> {
        let Data { key, queue, .. } = self.data[rq.0 as usize];
        match side {
            MergeKind::Back => self.queues[queue].tree.after(key, rq),
            MergeKind::Front => self.queues[queue].tree.before(key, rq),
        }
    }

    fn merged_requests(&mut self, ctx: &mut Ctx<'_>, kept: RqId, gone: RqId) {
        let Data { queue, start, .. } = self.data[gone.0 as usize];
        // The place in the fifo stays: the kernel compares start times that it has just made equal.
        let oldest = &mut self.data[kept.0 as usize].start;
        *oldest = start.min(*oldest);
        self.reposition(ctx, kept);
        self.remove(ctx.requests, gone);
        self.len -= 1;
        self.queues[queue].allocated -= 1;
        self.drop_if_unused(ctx, queue);
    }

    fn add(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        self.settle_exits(ctx);
        self.len += 1;
        let request = ctx.requests[rq];
        if request.flush {
            *slot(&mut self.data, rq) = Data::default();
            self.dispatch_all(ctx);
            self.hints.forget_last();
            (self.boundary, self.boundary_flush) = (request.end().0, Some(rq));
            self.dispatch.push_back(rq);
            return;
        }
        let task = request.context.task;
        let queue = self.queue_for(ctx, task, usize::from(self.is_sync(&request)));
        self.queues[queue].allocated += 1;
        *slot(&mut self.data, rq) = Data { key: 0, queue, task, start: ctx.jiffies(), sorted: true };
        self.tree_insert(ctx, rq);
        self.queues[queue].fifo.push_back(rq);
        self.hints.added(ctx.requests, rq);
        self.enqueued(ctx, rq);
    }

    fn next(&mut self, ctx: &mut Ctx<'_>) -> Option<RqId> {
        self.settle_exits(ctx);
        if self.dispatch.is_empty() {
            self.refill(ctx);
        }
        let rq = self.dispatch.pop_front()?;
        self.len -= 1;
        let end = ctx.requests[rq].end().0;
        if self.boundary_flush.is_none_or(|flush| flush == rq) {
            (self.boundary, self.boundary_flush) = (end, None);
        }
        if self.data[rq.0 as usize].sorted {
            self.in_driver += 1;
            self.queueing |= self.in_driver > QUEUEING_DEPTH;
            if self.rules.cooperate {
                self.last_position = end;
            }
        }
        Some(rq)
    }

    fn completed(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        self.settle_exits(ctx);
        let Data { queue, task, sorted: true, .. } = self.data[rq.0 as usize] else {
            return;
        };
        let now = ctx.jiffies();
        self.in_driver -= 1;
        let known = &mut self.queues[queue];
        known.dispatched -= 1;
        if known.dispatched == 0 && known.list != List::Off {
            known.service_last = Some(now);
            self.file(queue);
        }
        let sync = self.queues[queue].sync;
        if sync && let Some(user) = self.user(task) {
            user.last_end = now;
        }
        if self.active == Some(queue) {
            if self.slice_over(queue, now) {
                self.expire(ctx, queue, IdleEnd::Broken);
            } else if sync && self.queues[queue].tree.is_empty() && self.cooperator(queue).is_none() {
                self.arm_idle(ctx, queue);
            }
        }
        if self.in_driver == 0 {
            self.schedule_dispatch(ctx);
        }
        self.queues[queue].allocated -= 1;
        self.drop_if_unused(ctx, queue);
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn len(&self) -> usize {
        self.len
    }

    fn timer(&self) -> Option<Nanos> {
        self.idle_until.map(|tick| self.hz.start(Jiffies(tick)))
    }

    fn on_timer(&mut self, ctx: &mut Ctx<'_>) {
        self.settle_exits(ctx);
        let now = ctx.jiffies();
        if self.idle_until.is_none_or(|at| at > now) {
            return;
        }
        self.stop_timer(ctx, IdleEnd::Timeout);
        if let Some(active) = self.active {
            if !self.slice_over(active, now) {
                // With nothing to do for anybody it may as well stay active.
                if self.nr_busy() == 0 {
                    return;
                }
                if !self.queues[active].tree.is_empty() {
                    self.queues[active].must_dispatch = true;
                    ctx.kick_unplugged(true);
                    return;
                }
            }
            self.expire(ctx, active, IdleEnd::Timeout);
        }
        self.schedule_dispatch(ctx);
    }

    fn may_queue(&self, context: IoContext, dir: Dir) -> Option<bool> {
        let user = self.users.get(context.task as usize)?.as_ref()?;
        let queue = &self.queues[user.queues[SYNC]?];
        let must = self.rules.must_queue == Some(dir) && queue.wait_request && !queue.must_allocated.get();
        must.then(|| {
            queue.must_allocated.set(true);
            true
        })
    }

    fn task_exited(&mut self, _ctx: &mut Ctx<'_>, context: IoContext) {
        self.active_task_gone |= self.active_task == Some(context.task);
        if self.users.get(context.task as usize).is_some_and(Option::is_some) {
            self.leaving.push(context.task);
        }
    }
}

#[cfg(test)]
mod tests;
