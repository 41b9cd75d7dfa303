//! The queues, the trees, and the rules that every kernel of the family shares.

use super::super::{Ctx, Elevator, Quirks, is_nearer};
use super::Rules;
use crate::event::{Dir, IdleEnd, MergeKind, RqId};
use crate::origin::Options;
use crate::request::{Bio, IoContext, Requests};
use crate::sorted::{Fifo, MergeHints, Sorted, joins, slot};
use crate::units::{Hz, Nanos, PAGE_SECTORS};
use std::collections::VecDeque;

/// A jump longer than this is a seek.
const SEEK_SECTORS: u64 = 800;
/// On a device without seeks, a smaller request counts as one.
const SMALL_SECTORS: u32 = 64;
/// Among the last 32 requests, more than this many seeks make a queue seeky.
const SEEKS_ALLOWED: u32 = 4;
/// A request at most so far from the head is close to it.
const CLOSE_SECTORS: u64 = 8192;
/// Requests at the device that show that it queues.
const QUEUEING_DEPTH: u32 = 5;
/// Requests that a queue must have waiting to be a deep one.
const DEEP: u32 = 4;
/// A tree's time is at least this many ticks.
const SHORTEST_TREE_TIME: u64 = 2;

/// Trees, in the order in which they are preferred if their keys are equal.
const ASYNC: usize = 0;
/// Tree of the sync queues that are not waited for one by one.
const NOIDLE: usize = 1;
/// Tree of those that are.
const SYNC: usize = 2;

/// How long it takes from a completion to the next request: a mean that decays by 7/8, in units of 1/256.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct ThinkTime {
    last_end: u64,
    samples: u64,
    total: u64,
    mean: u64,
}

impl ThinkTime {
    /// A request has come; a pause counts as at most twice the wait.
    fn update(&mut self, now: u64, wait: u64) {
        let pause = (now - self.last_end).min(2 * wait);
        self.samples = (7 * self.samples + 256) / 8;
        self.total = (7 * self.total + 256 * pause) / 8;
        self.mean = (self.total + 128) / self.samples;
    }

    fn is_known(&self) -> bool {
        self.samples > 80
    }

    fn exceeds(&self, wait: u64) -> bool {
        self.is_known() && self.mean > wait
    }
}

/// Statistics of one task.
#[derive(Copy, Clone, Debug, Default)]
struct Task {
    sync_queue: Option<usize>,
    think: ThinkTime,
    /// Seeks it has made before its first request here.
    startup_seeks: u32,
    /// Has had requests here.
    known: bool,
    exited: bool,
}

/// A queue: the waiting requests of a task, or of several that work side by side, or the async ones of all.
#[derive(Clone, Debug, Default)]
struct Queue {
    sync: bool,
    /// Counts as busy and stands on `tree` under `key`.
    busy: bool,
    tree: usize,
    key: i64,
    /// Found by its next request's distance to the head.
    findable: bool,
    sorted: Sorted,
    fifo: Fifo,
    next: Option<RqId>,
    prio_pending: u32,
    /// Requests at the device or on the dispatch list.
    dispatched: u32,
    /// Tasks that use it, and those that will because their queue is to be merged into it.
    users: u32,
    /// Requests of it there are.
    requests: u32,
    /// The queue that its tasks shall use from their next request on.
    merge_into: Option<usize>,
    /// The last 32 requests, the newest in bit 0: 1 for a seek.
    seek_history: u32,
    last_end: u64,
    slice_start: u64,
    slice_end: u64,
    /// Ticks that were left of its last turn, or minus those that it took too much.
    slice_left: i64,
    slice_dispatched: u32,
    /// Its turn's clock does not run yet.
    slice_new: bool,
    idle_window: bool,
    wait_request: bool,
    /// Waits although its turn is over, being the only queue.
    wait_busy: bool,
    must_dispatch: bool,
    fifo_checked: bool,
    deep: bool,
    /// Shared by several tasks.
    shared: bool,
    /// To be taken apart again.
    split: bool,
}

impl Queue {
    fn kind(&self) -> usize {
        match (self.sync, self.idle_window) {
            (false, _) => ASYNC,
            (true, false) => NOIDLE,
            (true, true) => SYNC,
        }
    }

    fn seeky(&self) -> bool {
        self.seek_history.count_ones() > SEEKS_ALLOWED
    }

    fn slice_used(&self, now: u64) -> bool {
        !self.slice_new && now >= self.slice_end
    }
}

/// A service tree: queues by the tick at which their turn is due.
#[derive(Clone, Debug, Default)]
struct Tree {
    queues: Vec<(i64, usize)>,
    think: ThinkTime,
}

impl Tree {
    fn insert(&mut self, key: i64, queue: usize) {
        let at = self.queues.partition_point(|entry| entry.0 <= key);
        self.queues.insert(at, (key, queue));
    }

    fn remove(&mut self, queue: usize) {
        let at = self.queues.iter().position(|entry| entry.1 == queue).expect("a busy queue stands on its tree");
        self.queues.remove(at);
    }
}

#[derive(Copy, Clone, Debug, Default)]
struct Data {
    /// Sector under which it stands in its queue.
    key: u64,
    queue: usize,
    task: u32,
    sync: bool,
    /// Tick at which it is overdue.
    expires: u64,
    /// Belongs to a queue (a flush does not).
    queued: bool,
}

/// The elevator.
#[derive(Clone, Debug)]
pub(in super::super) struct Cfq {
    hz: Hz,
    rules: Rules,
    quantum: u32,
    /// Async and sync, as for all arrays of two.
    fifo_expire: [u64; 2],
    back_seek: u64,
    back_penalty: u64,
    slice: [u64; 2],
    async_requests: u32,
    slice_idle: u64,
    group_idle: u64,
    target_latency: u64,
    low_latency: bool,
    cooperate: bool,

    /// By task number.
    tasks: Vec<Task>,
    queues: Vec<Queue>,
    free: Vec<usize>,
    async_queue: Option<usize>,
    trees: [Tree; 3],
    /// Busy queues whose next request may be close to the head.
    findable: Vec<usize>,
    /// By request number.
    data: Vec<Data>,
    hints: MergeHints,
    dispatch: VecDeque<RqId>,
    /// The sector at which the dispatch list's order begins: behind the request that left it last.
    boundary: u64,

    active: Option<usize>,
    /// Task of the first request of this turn.
    active_task: Option<u32>,
    /// The active queue's task has ended.
    active_exited: bool,
    serving: usize,
    tree_expires: i64,
    /// The rest of the tree's time when the last turn ended.
    tree_left: i64,
    think: ThinkTime,
    busy: u32,
    busy_sync: u32,
    /// Queues on the trees; differs from `busy` while one is being put on.
    on_trees: i64,
    busy_mean: u64,
    waiting: u32,
    dispatched: u32,
    in_flight: [u32; 2],
    in_driver: u32,
    last_position: u64,
    /// Tick at which a sync request completed late.
    last_delayed_sync: i64,
    queueing: Option<bool>,
    queueing_samples: u32,
    deepest: u32,
    /// When the wait for the active queue's next request ends.
    idle_until: Option<Nanos>,
    /// It keeps others waiting.
    idling: bool,
}

impl Cfq {
    /// An empty elevator.
    pub(in super::super) fn new(options: &Options, hz: Hz, rules: Rules) -> Cfq {
        let ticks = |name| hz.from_ms(options.unsigned(name));
        Cfq {
            hz,
            rules,
            quantum: options.unsigned("quantum") as u32,
            fifo_expire: [ticks("fifo_expire_async_ms"), ticks("fifo_expire_sync_ms")],
            back_seek: 2 * options.unsigned("back_seek_max_kb"),
            back_penalty: options.unsigned("back_seek_penalty"),
            slice: [ticks("slice_async_ms"), ticks("slice_sync_ms")],
            // Twice the base for each of the priority levels from 4 to 7.
            async_requests: 8 * options.unsigned("slice_async_rq") as u32,
            slice_idle: ticks("slice_idle_ms"),
            group_idle: ticks("group_idle_ms"),
            target_latency: ticks("target_latency_ms"),
            low_latency: options.is_on("low_latency"),
            cooperate: options.is_on("cooperate"),
            tasks: Vec::new(),
            queues: Vec::new(),
            free: Vec::new(),
            async_queue: None,
            trees: Default::default(),
            findable: Vec::new(),
            data: Vec::new(),
            hints: MergeHints::default(),
            dispatch: VecDeque::new(),
            boundary: 0,
            active: None,
            active_task: None,
            active_exited: false,
            serving: ASYNC,
            tree_expires: -1,
            tree_left: 0,
            think: ThinkTime::default(),
            busy: 0,
            busy_sync: 0,
            on_trees: 0,
            busy_mean: 0,
            waiting: 0,
            dispatched: 0,
            in_flight: [0; 2],
            in_driver: 0,
            last_position: 0,
            last_delayed_sync: -i64::from(hz.0),
            queueing: None,
            queueing_samples: 0,
            deepest: 0,
            idle_until: None,
            idling: false,
        }
    }

    fn task(&mut self, task: u32) -> &mut Task {
        let index = task as usize;
        if index >= self.tasks.len() {
            self.tasks.resize(index + 1, Task::default());
        }
        &mut self.tasks[index]
    }

    // ---- queues of tasks ----

    fn new_queue(&mut self, sync: bool) -> usize {
        let id = self.free.pop().unwrap_or(self.queues.len());
        if id == self.queues.len() {
            self.queues.push(Queue::default());
        }
        let old = std::mem::take(&mut self.queues[id]);
        debug_assert!(!old.busy && old.sorted.is_empty() && old.requests == 0);
        // The memory of the old one's indexes is kept.
        self.queues[id] =
            Queue { sync, idle_window: sync, users: 1, sorted: old.sorted, fifo: old.fifo, ..Queue::default() };
        id
    }

    /// The queue that a new request of `task` goes to. Here merges and splits take effect.
    fn queue_for(&mut self, task: u32, sync: bool, now: u64) -> usize {
        let known = self.task(task);
        if !known.known || known.exited {
            let think = ThinkTime { last_end: now, ..ThinkTime::default() };
            *known = Task { startup_seeks: known.startup_seeks, think, known: true, ..Task::default() };
        }
        if !sync {
            return match self.async_queue {
                Some(queue) => queue,
                None => {
                    let queue = self.new_queue(false);
                    self.async_queue = Some(queue);
                    queue
                }
            };
        }
        if let Some(own) = self.tasks[task as usize].sync_queue {
            if !(self.queues[own].shared && self.queues[own].split) {
                return self.follow_merge(task, own);
            }
            if self.queues[own].users == 1 {
                (self.queues[own].shared, self.queues[own].split) = (false, false);
                return self.follow_merge(task, own);
            }
            self.leave(own);
        }
        let queue = self.new_queue(true);
        let seeks = std::mem::take(&mut self.tasks[task as usize].startup_seeks);
        self.queues[queue].seek_history = if seeks >= 32 { u32::MAX } else { (1 << seeks) - 1 };
        self.tasks[task as usize].sync_queue = Some(queue);
        queue
    }

    /// Moves `task` on to the queue that its own is to be merged into, if any.
    fn follow_merge(&mut self, task: u32, own: usize) -> usize {
        let Some(queue) = self.queues[own].merge_into else {
            return own;
        };
        self.queues[queue].shared = true;
        self.tasks[task as usize].sync_queue = Some(queue);
        self.queues[own].users -= 1;
        self.free_if_unused(own);
        queue
    }

    /// A task does not use `queue` any more, nor those that it would have been merged into.
    fn leave(&mut self, queue: usize) {
        let mut at = Some(queue);
        while let Some(id) = at {
            at = self.queues[id].merge_into;
            self.queues[id].users -= 1;
            self.free_if_unused(id);
        }
    }

    fn free_if_unused(&mut self, id: usize) {
        let queue = &self.queues[id];
        if queue.users == 0 && queue.requests == 0 && self.active != Some(id) {
            debug_assert!(!queue.busy && queue.sync);
            self.free.push(id);
        }
    }

    /// Arranges that the tasks of one of two queues use the other from their next request on.
    fn arrange_merge(&mut self, own: usize, other: usize) {
        if self.queues[other].users == 0 {
            return;
        }
        let mut other = other;
        while let Some(further) = self.queues[other].merge_into {
            if further == own {
                return;
            }
            other = further;
        }
        let (own_users, other_users) = (self.queues[own].users, self.queues[other].users);
        if own_users == 0 || other_users == 0 {
            return;
        }
        let (from, to) = if other_users >= own_users { (own, other) } else { (other, own) };
        self.queues[from].merge_into = Some(to);
        self.queues[to].users += self.queues[from].users;
    }

    // ---- requests of a queue ----

    /// The better of two requests, as seen from sector `last`.
    fn choose(&self, requests: &Requests, a: Option<RqId>, b: Option<RqId>, last: u64) -> Option<RqId> {
        let (Some(first), Some(second)) = (a, b) else {
            return a.or(b);
        };
        if requests[first].prio != requests[second].prio {
            return if requests[first].prio { a } else { b };
        }
        let (from, to) = (requests[first].sector.0, requests[second].sector.0);
        let first_wins = is_nearer(last, from, to, self.back_seek, self.back_penalty);
        if first_wins { a } else { b }
    }

    /// The request to serve after `rq`, which is still in its queue.
    fn find_next(&self, requests: &Requests, rq: RqId) -> Option<RqId> {
        let Data { key, queue, .. } = self.data[rq.0 as usize];
        let sorted = &self.queues[queue].sorted;
        let after = sorted.after(key, rq).or_else(|| sorted.first().filter(|&first| first != rq));
        self.choose(requests, after, sorted.before(key, rq), requests[rq].sector.0)
    }

    /// Puts `rq` into its queue's order.
    fn sort_in(&mut self, requests: &Requests, rq: RqId, now: u64) {
        let (id, key) = (self.data[rq.0 as usize].queue, requests[rq].sector.0);
        // The loop ends because every turn takes one request out.
        while self.rules.alias_leaves
            && let Some(alias) = self.queues[id].sorted.at(key)
        {
            self.move_to_dispatch(requests, alias);
        }
        self.data[rq.0 as usize].key = key;
        self.queues[id].sorted.insert(key, rq);
        if !self.queues[id].busy {
            self.queues[id].busy = true;
            self.busy += 1;
            self.busy_sync += u32::from(self.queues[id].sync);
            self.put_on_tree(id, false, true, now);
            self.make_findable(requests, id);
        }
        let old = self.queues[id].next;
        let next = self.choose(requests, old, Some(rq), self.last_position);
        self.queues[id].next = next;
        if next != old {
            self.make_findable(requests, id);
        }
    }

    /// Takes `rq` out of its queue. It no longer is the queue's next.
    fn take_out(&mut self, requests: &Requests, rq: RqId) {
        let Data { key, queue: id, .. } = self.data[rq.0 as usize];
        let queue = &mut self.queues[id];
        queue.fifo.remove(rq);
        let was_there = queue.sorted.remove(key, rq);
        debug_assert!(was_there && queue.next != Some(rq), "request {} does not wait here", rq.0);
        queue.prio_pending -= u32::from(requests[rq].prio);
        if queue.sorted.is_empty() {
            self.hide(id);
        }
        self.hints.removed(rq);
        self.waiting -= 1;
    }

    fn move_to_dispatch(&mut self, requests: &Requests, rq: RqId) {
        let id = self.data[rq.0 as usize].queue;
        self.queues[id].next = self.find_next(requests, rq);
        self.take_out(requests, rq);
        let queue = &mut self.queues[id];
        queue.dispatched += 1;
        self.dispatched += 1;
        self.in_flight[usize::from(queue.sync)] += 1;
        // One sweep upwards from the boundary, then one from the start of the disk; never past the other direction or
        // a flush.
        let request = &requests[rq];
        let place = self.dispatch.iter().rposition(|&other| {
            let other = &requests[other];
            let ours_wraps = request.sector.0 < self.boundary;
            let other_wraps = other.sector.0 < self.boundary;
            let ordered = if ours_wraps == other_wraps { request.sector >= other.sector } else { ours_wraps };
            other.flush || other.dir != request.dir || ordered
        });
        self.dispatch.insert(place.map_or(0, |place| place + 1), rq);
    }

    // ---- where a queue is found ----

    fn hide(&mut self, id: usize) {
        if self.queues[id].findable {
            self.queues[id].findable = false;
            self.findable.retain(|&other| other != id);
        }
    }

    /// Files `id` under the sector of its next request. Of two queues at one sector only the first is found.
    fn make_findable(&mut self, requests: &Requests, id: usize) {
        self.hide(id);
        let Some(next) = self.queues[id].next else {
            return;
        };
        let sector = requests[next].sector;
        let taken = |&other: &usize| self.queues[other].next.is_some_and(|rq| requests[rq].sector == sector);
        if !self.findable.iter().any(taken) {
            self.queues[id].findable = true;
            self.findable.push(id);
        }
    }

    /// The queue that `own`, which is empty, gives way to.
    fn cooperator(&self, requests: &Requests, own: usize) -> Option<usize> {
        let queue = &self.queues[own];
        if !self.cooperate || !queue.sync || queue.seeky() || self.on_trees == 1 {
            return None;
        }
        let last = self.last_position;
        let next_of = |&other: &usize| self.queues[other].next.map(|rq| (requests[rq].sector.0, other));
        let (sector, other) = self
            .findable
            .iter()
            .filter_map(next_of)
            .min_by_key(|&(sector, _)| (sector.abs_diff(last), sector < last))?;
        let distance = sector.abs_diff(last);
        let close = distance <= CLOSE_SECTORS;
        (close && self.queues[other].sync && !self.queues[other].seeky()).then_some(other)
    }

    // ---- turns ----

    /// Ticks of a turn of `id`. The mean number of busy queues follows rises quickly and falls slowly.
    fn turn(&mut self, id: usize) -> u64 {
        let slice = self.slice[usize::from(self.queues[id].sync)];
        if !self.low_latency {
            return slice;
        }
        let busy = self.on_trees.max(0) as u64;
        let (low, high) = (self.busy_mean.min(busy), self.busy_mean.max(busy));
        self.busy_mean = (3 * high + low + 2) / 4;
        let expected = self.slice[1] * self.busy_mean;
        if expected <= self.target_latency {
            return slice;
        }
        let shortest = slice.min(2 * self.slice_idle * slice / self.slice[1]);
        (slice * self.target_latency / expected).max(shortest)
    }

    /// Puts a busy queue on the tree of its kind, or to its new place; `is_new` if it stands on none.
    fn put_on_tree(&mut self, id: usize, front: bool, is_new: bool, now: u64) {
        let tree = self.queues[id].kind();
        let key = if front {
            let first = self.trees[tree].queues.first().map_or(now as i64, |first| first.0);
            first - i64::from(self.hz.0)
        } else {
            // Others' turns are worth a sync turn of the highest priority, less its own.
            let base = self.slice[1];
            let offset = (base + base / 5 * 4 - self.slice[usize::from(self.queues[id].sync)]) as i64;
            let left = std::mem::take(&mut self.queues[id].slice_left);
            now as i64 + (self.on_trees - 1) * offset - left
        };
        if !is_new {
            let queue = &self.queues[id];
            if queue.key == key && queue.tree == tree {
                return;
            }
            self.trees[queue.tree].remove(id);
        } else {
            self.on_trees += 1;
        }
        (self.queues[id].key, self.queues[id].tree) = (key, tree);
        self.trees[tree].insert(key, id);
    }

    /// The wait for the active queue's next request is over.
    fn stop_waiting(&mut self, ctx: &mut Ctx<'_>, end: IdleEnd) {
        self.idle_until = None;
        if self.idling {
            self.idling = false;
            ctx.idle_ended = Some(end);
        }
    }

    /// Ends the turn of the active queue; with `keep`, the rest of it counts next time.
    fn expire(&mut self, ctx: &mut Ctx<'_>, keep: bool, now: u64) {
        let Some(id) = self.active else {
            return;
        };
        self.stop_waiting(ctx, IdleEnd::Broken);
        let queue = &mut self.queues[id];
        (queue.wait_request, queue.wait_busy) = (false, false);
        queue.split |= queue.shared && queue.seeky();
        if keep {
            let left = if queue.slice_new { self.turn(id) as i64 } else { queue.slice_end as i64 - now as i64 };
            self.queues[id].slice_left = left;
        }
        self.tree_left = (self.tree_expires - now as i64).max(0);
        if self.queues[id].busy {
            if self.queues[id].sorted.is_empty() {
                self.rest(id);
            } else {
                self.put_on_tree(id, false, false, now);
                self.make_findable(ctx.requests, id);
            }
        }
        (self.active, self.active_task, self.active_exited) = (None, None, false);
        self.free_if_unused(id);
    }

    /// Takes an empty queue off its tree.
    fn rest(&mut self, id: usize) {
        self.hide(id);
        let queue = &mut self.queues[id];
        queue.busy = false;
        self.trees[queue.tree].remove(id);
        self.busy -= 1;
        self.busy_sync -= u32::from(queue.sync);
        self.on_trees -= 1;
        if self.on_trees == 0 {
            self.tree_left = 0;
        }
    }

    fn activate(&mut self, id: usize) {
        let queue = &mut self.queues[id];
        (queue.slice_start, queue.slice_end, queue.slice_dispatched) = (0, 0, 0);
        (queue.wait_request, queue.must_dispatch, queue.fifo_checked) = (false, false, false);
        queue.slice_new = true;
        self.active = Some(id);
    }

    /// Goes on with the tree being served while it has time and queues; else with the one whose first queue is due
    /// earliest.
    fn choose_tree(&mut self, now: u64) {
        self.tree_expires = if self.tree_left > 0 { now as i64 + self.tree_left } else { now as i64 - 1 };
        if !self.trees[self.serving].queues.is_empty() && now as i64 <= self.tree_expires {
            return;
        }
        let firsts = (0..3).filter_map(|tree| self.trees[tree].queues.first().map(|first| (first.0, tree)));
        self.serving = firsts.min().map_or(NOIDLE, |(_, tree)| tree);
        let count = self.trees[self.serving].queues.len() as u64;
        let busy = self.busy_mean.max(self.on_trees as u64).max(1);
        let share = self.target_latency * count / busy;
        let time = if self.serving == ASYNC {
            share.min(self.target_latency * count / u64::from(self.busy.max(1))) * self.slice[0] / self.slice[1]
        } else {
            share.max(2 * self.slice_idle)
        };
        self.tree_expires = (now + time.max(SHORTEST_TREE_TIME)) as i64;
    }

    /// A device without seeks that queues is not worth waiting for. Until it has been watched it is taken to queue.
    fn fast_device(&self, ctx: &Ctx<'_>) -> bool {
        !ctx.rotational && self.queueing.unwrap_or(true)
    }

    fn should_idle(&self, ctx: &Ctx<'_>, id: usize) -> bool {
        let queue = &self.queues[id];
        if self.slice_idle == 0 {
            return false;
        }
        if queue.idle_window && !self.fast_device(ctx) {
            return true;
        }
        let tree = &self.trees[queue.tree];
        let quick = !self.rules.tree_think_time || !tree.think.exceeds(self.slice_idle);
        queue.sync && tree.queues.len() == 1 && quick
    }

    /// Whether all there is deserves a wait.
    fn group_is_quick(&self) -> bool {
        !self.rules.tree_think_time || !self.think.exceeds(self.group_idle)
    }

    /// The active queue is empty and nothing of it is at the device: starts the wait if it is worth it.
    fn arm_wait(&mut self, ctx: &mut Ctx<'_>, id: usize, now: u64) {
        if self.fast_device(ctx) {
            return;
        }
        let own = self.should_idle(ctx, id);
        let wait = if own { self.slice_idle } else { self.group_idle };
        if wait == 0 || self.queues[id].dispatched > 0 || (!own && self.on_trees > 1) {
            return;
        }
        let Some(task) = self.active_task else {
            return;
        };
        let Task { exited, think, .. } = self.tasks[task as usize];
        let left = self.queues[id].slice_end.saturating_sub(now);
        if exited || (think.is_known() && left < think.mean) {
            return;
        }
        self.stop_waiting(ctx, IdleEnd::Broken);
        self.queues[id].wait_request = true;
        self.idle_until = Some(self.hz.timer(ctx.now, wait));
    }

    /// The queue to serve now; `None` if waiting is better.
    fn select(&mut self, ctx: &mut Ctx<'_>, now: u64) -> Option<usize> {
        let mut successor = None;
        if let Some(id) = self.active {
            if self.waiting == 0 {
                return None;
            }
            let queue = &self.queues[id];
            let (empty, alone) = (queue.sorted.is_empty(), self.on_trees == 1);
            let group_waits = self.group_idle > 0 && alone && self.dispatched > 0 && self.group_is_quick();
            if queue.wait_busy && !empty {
                // It was the only one, and has kept the device for its group long enough.
            } else if queue.slice_used(now) && !queue.must_dispatch {
                let owed = alone && empty && queue.dispatched > 0 && self.should_idle(ctx, id);
                if owed || group_waits {
                    return None;
                }
            } else if !empty {
                return Some(id);
            } else if let Some(close) = self.cooperator(ctx.requests, id) {
                if queue.merge_into.is_none() {
                    self.arrange_merge(id, close);
                }
                successor = Some(close);
            } else if self.idle_until.is_some() {
                if !self.idling {
                    self.idling = true;
                    ctx.idle_started = true;
                }
                return None;
            } else {
                let early = queue.slice_new || queue.slice_end.wrapping_sub(now) > now.wrapping_sub(queue.slice_start);
                if queue.seeky() && queue.idle_window && early {
                    // The device serves its seeks faster than it makes them.
                    (self.queues[id].deep, self.queues[id].idle_window) = (false, false);
                }
                if (self.queues[id].dispatched > 0 && self.should_idle(ctx, id)) || group_waits {
                    return None;
                }
            }
            self.expire(ctx, false, now);
        }
        if successor.is_none() {
            self.choose_tree(now);
            if self.waiting > 0 {
                successor = self.trees[self.serving].queues.first().map(|first| first.1);
            }
        }
        if let Some(id) = successor {
            self.activate(id);
        }
        successor
    }

    fn may_dispatch(&self, ctx: &Ctx<'_>, id: usize, now: u64) -> bool {
        let queue = &self.queues[id];
        if self.rules.overdue_passes && queue.must_dispatch {
            return true;
        }
        if self.should_idle(ctx, id) && self.in_flight[0] > 0 {
            return false;
        }
        if !queue.sync && self.in_flight[1] > 0 {
            return false;
        }
        let mut most = (self.quantum / 2).max(1);
        if queue.dispatched >= most {
            let unlimited = self.rules.lone_sync_unlimited && queue.sync && self.busy_sync == 1;
            let soon = queue.slice_new || now + self.slice_idle * u64::from(queue.dispatched) > queue.slice_end;
            if self.busy > 1 && soon && !unlimited {
                return false;
            }
            most = if self.busy == 1 || unlimited { u32::MAX } else { self.quantum };
        }
        if !queue.sync && self.low_latency {
            let turns = (now as i64 - self.last_delayed_sync) as u64 / self.slice[1];
            let allowed = if turns == 0 && queue.dispatched == 0 { 1 } else { turns };
            most = most.min(allowed.min(u64::from(u32::MAX)) as u32);
        }
        queue.dispatched < most
    }

    /// The oldest of `id` if it is overdue; looked at once in a turn.
    fn overdue(&mut self, id: usize, now: u64) -> Option<RqId> {
        let queue = &mut self.queues[id];
        if std::mem::replace(&mut queue.fifo_checked, true) {
            return None;
        }
        queue.fifo.first().filter(|rq| now >= self.data[rq.0 as usize].expires)
    }

    /// Puts one request on the dispatch list, or decides not to.
    fn dispatch_one(&mut self, ctx: &mut Ctx<'_>, now: u64) {
        if self.busy == 0 {
            return;
        }
        let Some(id) = self.select(ctx, now) else {
            return;
        };
        let mut overdue = None;
        if self.rules.overdue_passes {
            overdue = self.overdue(id, now);
            self.queues[id].must_dispatch |= overdue.is_some();
        }
        if !self.may_dispatch(ctx, id, now) {
            return;
        }
        if !self.rules.overdue_passes {
            overdue = self.overdue(id, now);
        }
        let Some(rq) = overdue.or(self.queues[id].next) else {
            unreachable!("a selected queue has requests");
        };
        self.move_to_dispatch(ctx.requests, rq);
        self.active_task = self.active_task.or(Some(self.data[rq.0 as usize].task));
        let queue = &mut self.queues[id];
        queue.slice_dispatched += 1;
        queue.must_dispatch = false;
        if self.busy > 1 && !queue.sync && queue.slice_dispatched >= self.async_requests {
            queue.slice_end = now + 1;
            self.expire(ctx, false, now);
        }
    }

    /// Everything that waits goes to the dispatch list, queue by queue.
    fn drain(&mut self, ctx: &mut Ctx<'_>, now: u64) {
        self.expire(ctx, false, now);
        while let Some(&(_, id)) = self.trees.iter().find_map(|tree| tree.queues.first()) {
            self.activate(id);
            while let Some(rq) = self.queues[id].next {
                self.move_to_dispatch(ctx.requests, rq);
            }
            self.expire(ctx, false, now);
        }
        debug_assert_eq!((self.waiting, self.busy), (0, 0));
    }

    // ---- what happens to the rules when a request comes ----

    fn update_idle_window(&mut self, ctx: &Ctx<'_>, id: usize, task: u32) {
        let think = self.tasks[task as usize].think;
        let queue = &mut self.queues[id];
        if !queue.sync {
            return;
        }
        queue.deep |= queue.sorted.len() >= DEEP as usize;
        if queue.next.is_some_and(|rq| ctx.requests[rq].no_idle)
            || self.slice_idle == 0
            || (!queue.deep && queue.seeky())
        {
            queue.idle_window = false;
        } else if think.is_known() {
            queue.idle_window = think.mean <= self.slice_idle;
        }
    }

    /// Whether the new request `rq` of `id` takes the turn from the active queue.
    fn preempts(&self, ctx: &Ctx<'_>, id: usize, rq: RqId, now: u64) -> bool {
        let Some(active_id) = self.active else {
            return false;
        };
        let (new, active) = (&self.queues[id], &self.queues[active_id]);
        let empty = active.sorted.is_empty();
        let promised = self.rules.overdue_passes && active.must_dispatch;
        if new.sync && !active.sync && !promised {
            return true;
        }
        let same_tree = self.serving == NOIDLE && new.kind() == NOIDLE;
        active.slice_used(now)
            || (same_tree && self.trees[new.tree].queues.len() == 2 && empty)
            || (ctx.requests[rq].prio && active.prio_pending == 0)
            || (empty && !self.should_idle(ctx, active_id))
            || (self.active_task.is_some()
                && active.wait_request
                && ctx.requests[rq].sector.0.abs_diff(self.last_position) <= CLOSE_SECTORS)
    }

    fn preempt(&mut self, ctx: &mut Ctx<'_>, id: usize, now: u64) {
        let old = self.active.map(|active| self.queues[active].kind());
        self.expire(ctx, true, now);
        if old != Some(self.queues[id].kind()) {
            // The old tree's time is forfeited, or the new queue would not come next.
            self.tree_left = 0;
        }
        self.put_on_tree(id, true, false, now);
        self.queues[id].slice_end = 0;
        self.queues[id].slice_new = true;
        ctx.run_now = true;
    }

    /// Looks at a new request: statistics, the end of a wait, preemption.
    fn enqueued(&mut self, ctx: &mut Ctx<'_>, rq: RqId, now: u64) {
        let Data { queue: id, task, sync, .. } = self.data[rq.0 as usize];
        let request = ctx.requests[rq];
        self.waiting += 1;
        if sync || !self.rules.tree_think_time {
            self.tasks[task as usize].think.update(now, self.slice_idle);
        }
        if self.rules.tree_think_time {
            if sync {
                self.trees[self.queues[id].tree].think.update(now, self.slice_idle);
            }
            self.think.update(now, self.group_idle);
        }
        let queue = &mut self.queues[id];
        queue.prio_pending += u32::from(request.prio);
        let jump = if queue.last_end == 0 { 0 } else { request.sector.0.abs_diff(queue.last_end) };
        let seek = if ctx.rotational { jump > SEEK_SECTORS } else { request.nr_sectors < SMALL_SECTORS };
        queue.seek_history = (queue.seek_history << 1) | u32::from(seek);
        queue.last_end = request.end().0;
        self.update_idle_window(ctx, id, task);
        if self.active == Some(id) {
            if self.queues[id].wait_request {
                if u64::from(request.nr_sectors) > PAGE_SECTORS || self.busy > 1 {
                    self.stop_waiting(ctx, IdleEnd::Hit);
                    self.queues[id].wait_request = false;
                    ctx.run_now = true;
                } else {
                    // A small request may still grow: the plug decides when it leaves, or else the wait's end. The
                    // timer goes on.
                    if self.idling {
                        self.idling = false;
                        ctx.idle_ended = Some(IdleEnd::Hit);
                    }
                    self.queues[id].must_dispatch = true;
                }
            }
        } else if self.preempts(ctx, id, rq, now) {
            self.preempt(ctx, id, now);
        }
    }

    /// Finds out whether the device queues: whether it ever has 5 requests while there are enough.
    fn watch_depth(&mut self) {
        self.deepest = self.deepest.max(self.in_driver);
        let few = |requests: u32| requests < QUEUEING_DEPTH;
        if self.queueing == Some(true) || (self.waiting <= QUEUEING_DEPTH && self.in_driver <= QUEUEING_DEPTH) {
            return;
        }
        if let Some(id) = self.active {
            let queue = &self.queues[id];
            let own = queue.dispatched + queue.sorted.len() as u32;
            if queue.idle_window && few(own) && few(self.in_driver) {
                return;
            }
        }
        self.queueing_samples += 1;
        if self.queueing_samples > 50 {
            self.queueing = Some(!few(self.deepest));
        }
    }

    /// The only queue there is has run empty, and its turn ends before its next request is to be expected.
    fn should_wait_busy(&self, id: usize, now: u64) -> bool {
        let queue = &self.queues[id];
        if !queue.sorted.is_empty() || self.on_trees > 1 || !self.group_is_quick() {
            return false;
        }
        if queue.slice_used(now) {
            return true;
        }
        let left = queue.slice_end.wrapping_sub(now);
        let late = |task: u32| {
            let think = self.tasks[task as usize].think;
            think.is_known() && left < think.mean
        };
        self.active_task.is_some_and(late) || left == 1
    }

    /// Catches up on changes that needed no request: the end of a wait, the exit of a task.
    fn catch_up(&mut self, ctx: &mut Ctx<'_>) {
        if let Some(at) = self.idle_until.filter(|&at| at <= ctx.now) {
            let then = self.hz.at(at).0;
            self.stop_waiting(ctx, IdleEnd::Timeout);
            let Some(id) = self.active else {
                unreachable!("a wait ends with the turn");
            };
            let queue = &mut self.queues[id];
            let pending = queue.must_dispatch || (!queue.slice_used(then) && !queue.sorted.is_empty());
            if !pending {
                if !queue.slice_used(then) {
                    queue.deep = false;
                }
                self.expire(ctx, false, then);
            }
            ctx.kick_unplugged(self.busy > 0);
        }
        if std::mem::take(&mut self.active_exited) {
            self.expire(ctx, false, ctx.jiffies());
            ctx.kick_unplugged(self.busy > 0);
        }
    }

    /// A request of `id` is gone.
    fn forget(&mut self, id: usize) {
        self.queues[id].requests -= 1;
        self.free_if_unused(id);
    }

    /// The queue that a request like `bio` would go to now.
    fn queue_of(&self, bio: &Bio) -> Option<usize> {
        let task = self.tasks.get(bio.context.task as usize)?;
        if !task.known || task.exited {
            None
        } else if bio.sync || bio.dir == Dir::Read {
            task.sync_queue
        } else {
            self.async_queue
        }
    }
}

impl Elevator for Cfq {
    fn quirks(&self) -> Quirks {
        Quirks::WAITING
    }

    fn merge(&mut self, ctx: &mut Ctx<'_>, bio: &Bio) -> Option<(RqId, MergeKind)> {
        let own = self.queue_of(bio)?;
        let allowed = |rq: RqId| self.data[rq.0 as usize].queue == own;
        if let Some(found) = self.hints.last(ctx.requests, bio).filter(|&(rq, _)| allowed(rq)) {
            return Some(found);
        }
        if let Some(rq) = self.hints.back(ctx.requests, bio).filter(|&rq| allowed(rq)) {
            return Some((rq, MergeKind::Back));
        }
        let rq = self.queues[own].sorted.at(bio.sector.plus(u64::from(bio.nr_sectors)).0)?;
        (joins(&ctx.requests[rq], bio) == Some(MergeKind::Front)).then_some((rq, MergeKind::Front))
    }

    fn merged(&mut self, ctx: &mut Ctx<'_>, rq: RqId, kind: MergeKind) {
        self.hints.grown(ctx.requests, rq, kind);
        if kind == MergeKind::Front {
            let Data { key, queue, .. } = self.data[rq.0 as usize];
            self.queues[queue].sorted.remove(key, rq);
            self.sort_in(ctx.requests, rq, ctx.jiffies());
        }
    }

    fn neighbour(&self, _ctx: &Ctx<'_>, rq: RqId, side: MergeKind) -> Option<RqId> {
        let Data { key, queue, .. } = self.data[rq.0 as usize];
        match side {
            MergeKind::Back => self.queues[queue].sorted.after(key, rq),
            MergeKind::Front => self.queues[queue].sorted.before(key, rq),
        }
    }

    fn merged_requests(&mut self, ctx: &mut Ctx<'_>, kept: RqId, gone: RqId) {
        let id = self.data[kept.0 as usize].queue;
        let expires = self.data[gone.0 as usize].expires;
        if expires < self.data[kept.0 as usize].expires {
            self.data[kept.0 as usize].expires = expires;
            self.queues[id].fifo.move_before(kept, gone);
        }
        if self.queues[id].next == Some(gone) {
            self.queues[id].next = Some(kept);
        }
        self.take_out(ctx.requests, gone);
        self.hints.merged(ctx.requests, kept);
        self.forget(id);
    }

    fn add(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        self.catch_up(ctx);
        let now = ctx.jiffies();
        let request = ctx.requests[rq];
        *slot(&mut self.data, rq) = Data::default();
        if request.flush {
            self.drain(ctx, now);
            self.dispatch.push_back(rq);
            // The caller that drains the elevator runs the queue, too.
            ctx.run_now = true;
            return;
        }
        let sync = request.sync || request.dir == Dir::Read;
        let task = request.context.task;
        let queue = self.queue_for(task, sync, now);
        let expires = now + self.fifo_expire[usize::from(sync)];
        self.data[rq.0 as usize] = Data { key: 0, queue, task, sync, expires, queued: true };
        self.queues[queue].requests += 1;
        self.queues[queue].fifo.push_back(rq);
        self.hints.added(ctx.requests, rq);
        self.sort_in(ctx.requests, rq, now);
        self.enqueued(ctx, rq, now);
    }

    fn next(&mut self, ctx: &mut Ctx<'_>) -> Option<RqId> {
        if self.idle_until.is_some() || self.active_exited {
            self.catch_up(ctx);
        }
        if self.dispatch.is_empty() {
            self.dispatch_one(ctx, ctx.jiffies());
        }
        let rq = self.dispatch.pop_front()?;
        if self.data[rq.0 as usize].queued {
            self.in_driver += 1;
            self.last_position = ctx.requests[rq].end().0;
            self.boundary = self.last_position;
        }
        Some(rq)
    }

    fn completed(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        self.catch_up(ctx);
        let Data { queue: id, task, sync, queued: true, .. } = self.data[rq.0 as usize] else {
            return;
        };
        let now = ctx.jiffies();
        self.watch_depth();
        self.in_driver -= 1;
        self.dispatched -= 1;
        self.queues[id].dispatched -= 1;
        self.in_flight[usize::from(self.queues[id].sync)] -= 1;
        if sync {
            self.tasks[task as usize].think.last_end = now;
            let queue = &self.queues[id];
            let tree = if queue.busy { queue.tree } else { queue.kind() };
            self.trees[tree].think.last_end = now;
            if self.hz.at(ctx.requests[rq].allocated).0 + self.fifo_expire[1] <= now {
                self.last_delayed_sync = now as i64;
            }
        }
        self.think.last_end = now;
        if self.active == Some(id) {
            if self.queues[id].slice_new {
                let turn = self.turn(id);
                let queue = &mut self.queues[id];
                (queue.slice_start, queue.slice_end, queue.slice_new) = (now, now + turn, false);
            }
            if self.should_wait_busy(id, now) {
                let more = if self.slice_idle > 0 { self.slice_idle } else { self.group_idle };
                self.queues[id].slice_end = now + more;
                self.queues[id].wait_busy = true;
            }
            if self.queues[id].slice_used(now) {
                self.expire(ctx, true, now);
            } else if sync && self.queues[id].sorted.is_empty() && self.cooperator(ctx.requests, id).is_none() {
                self.arm_wait(ctx, id, now);
            }
        }
        self.data[rq.0 as usize].queued = false;
        self.forget(id);
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.dispatch.len() + self.waiting as usize
    }

    fn timer(&self) -> Option<Nanos> {
        self.idle_until
    }

    fn on_timer(&mut self, ctx: &mut Ctx<'_>) {
        self.catch_up(ctx);
    }

    fn may_queue(&self, context: IoContext, dir: Dir) -> Option<bool> {
        let waited_for = self.active.filter(|&id| self.queues[id].wait_request);
        let own = self.tasks.get(context.task as usize).and_then(|task| task.sync_queue);
        (dir == Dir::Read && waited_for.is_some() && waited_for == own).then_some(true)
    }

    fn task_started(&mut self, context: IoContext, startup_seeks: u32) {
        self.task(context.task).startup_seeks = startup_seeks;
    }

    fn task_exited(&mut self, _ctx: &mut Ctx<'_>, context: IoContext) {
        let task = self.task(context.task);
        (task.exited, task.startup_seeks) = (true, 0);
        if let Some(queue) = task.sync_queue.take() {
            self.active_exited |= self.active == Some(queue);
            self.leave(queue);
        }
    }
}
