//! The request queue: everything between a bio and the device that is the same for all elevators.
//!
//! ```text
//! submit      join a request of the submitter's plug list, or one the elevator offers, if the sizes allow it;
//!             else allocate a request (the submitter sleeps if there is none) and give it to the list or the elevator
//! plug        per queue: set when a request comes to an empty queue; pulled by a waiter, a threshold or a timer
//!             per task: requests stay on the submitter's list until it is flushed
//! run         while the device has room: the elevator's next request is issued
//! complete    the elevator is notified, the request is freed, the next one is issued; only then do waiters wake
//! ```
//! Files of this module: `legacy` (pools of requests), `mq` (tags of blk-mq), `flush` (flushes in steps), `wbt`
//! (throttled writeback), `io_max` (limits of a control group, before all this), `io_latency` (latency targets of
//! control groups, where the writeback throttle stands), `driver` (tags that are not the device's), `rules` (features
//! by kernel). With blk-mq:
//!
//! ```text
//! submit      join the newest request of the plug list, or one of the scheduler's or of the newest 8 of the software
//!             queue; wait for the writeback throttle; take a tag
//! no plug     with a scheduler: insert, run; without: straight to the driver, to `dispatch` if that refuses
//! flush plug  with a scheduler: inserted in the order they came; without: straight to the driver, until 6.12 the
//!             newest first; from a task that goes to sleep: software queue, and the worker thread runs it
//! run         what the driver refused first, then the scheduler, one at a time; a software queue in bulk unless the
//!             driver has been refusing
//! ```
//! A merge that is refused for its size bars the request from further merging (2.6.6). `nomerges` (2.6.26) takes
//! away everything but plug lists and the last request joined (1), or all of it (2, `elv_merge`). Source: 2.6.6-rc3
//! `drivers/block/ll_rw_blk.c` (`__make_request`, `get_request`, `attempt_merge`), 2.4.27 the same file, later kernels
//! `block/blk-core.c`, 6.1 `block/blk-mq.c`, `block/blk-mq-sched.c`; see the block-layer specification, section 1.
//! Known deviations: one segment per page; segments' 64 KiB boundaries and soft barriers are not modelled; the 3 ms
//! retry after a lost budget is not needed, because every completion runs the queue.

mod driver;
mod flush;
pub mod io_latency;
pub mod io_max;
mod legacy;
mod mq;
pub mod rules;
mod wbt;

use driver::Driver;
use flush::{FlushQueue, Step, Steps};
use legacy::Pools;
use mq::Tags;
use rules::{Budget, Flushes, Kind, Merging, QueueRules};
use wbt::Wbt;

use crate::device::{Command, Completion, Device};
use crate::elevator::{Ctx, Elevator, Quirks};
use crate::event::{CallId, Content, Dir, IdleEnd, MergeKind, RqId, UnplugCause, What};
use crate::lifecycle::submitter;
use crate::plug::{PlugJoin, PlugOrder, Plugging};
use crate::record::Recorder;
use crate::request::{Bio, BioId, Bios, IoClass, IoContext, Request, Requests};
use crate::sorted::{joins, slot};
use crate::tag_map::Limit;
use crate::units::{Hz, Nanos, PAGE_SECTORS, Sector};
use std::collections::VecDeque;

/// A call that the queue wants at a later time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// The device has something to do.
    Device,
    /// A command reaches the device.
    Command(RqId),
    /// The interrupt of a completed request has been handled.
    Interrupt(RqId),
    /// The elevator's timer.
    Elevator,
    /// The plug's timer.
    Plug,
    /// The kernel's worker thread runs the queue.
    Run,
    /// The elevator has the plug pulled and the queue run.
    Unplug,
    /// The elevator had nothing to give although something waits: the worker thread asks again.
    Retry,
    /// A window of the writeback throttle is over while somebody waits for a place.
    Throttle,
}

/// Limits and costs of a queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Tick rate.
    pub hz: Hz,
    /// Largest request, sectors.
    pub max_sectors: u32,
    /// Most pages in a request.
    pub max_segments: u32,
    /// Requests (each class, or together if `max_queue_sectors` is set). 0: 128, or with blk-mq what the tags allow.
    pub nr_requests: u32,
    /// Requests a task may take beyond that after having waited.
    pub batch_requests: u32,
    /// For how long.
    pub batch_time: Nanos,
    /// Sectors queued at which writers wait (2.4); 0 for no limit.
    pub max_queue_sectors: u64,
    /// CPU time to start a command.
    pub command: Nanos,
    /// CPU time to handle an interrupt.
    pub interrupt: Nanos,
    /// Delay of the worker thread.
    pub kblockd: Nanos,
}

/// The result of submitting a bio.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It is on its way.
    Queued,
    /// No request is free, or the writeback throttle is shut: wait in the line of this class and submit again.
    NoRequest(Dir),
}

/// How a bio was taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Taken {
    /// With a request of its own, or without any.
    New,
    /// Into a request that was there already.
    Joined,
    /// Not at all; the submitter joins the line of this class.
    NoRequest(Dir),
}

/// Requests that a task holds back.
pub type PlugList = Vec<RqId>;

/// Default number of requests of a legacy queue (`BLKDEV_MAX_RQ`).
const DEFAULT_REQUESTS: u32 = 128;

/// Time after which an elevator that gave nothing is asked again (`BLK_MQ_BUDGET_DELAY`).
const RETRY_MS: u64 = 3;

/// Devices of at most this number of commands are taken for SCSI or SATA.
const SCSI_DEPTH: u32 = 32;

/// The queue's own state of a request, next to the part that elevators see.
#[derive(Copy, Clone, Debug, Default)]
struct Extra {
    /// Hardware queue whose tag it holds.
    hw_queue: u32,
    tag: u32,
    /// The elevator has had it.
    elevated: bool,
    /// Counted by the writeback throttle.
    throttled: bool,
    /// Goes through the flush machinery.
    sequenced: bool,
    /// Its data must pass the drive's cache.
    fua: bool,
}

/// Requests of an elevator in a call (see [`Ctx`]).
struct ElevatorRequests {
    kick: bool,
    unplugs: bool,
    run_now: bool,
    idle_started: bool,
    idle_ended: Option<IdleEnd>,
}

/// The queue of one device, its elevator, and the device.
pub struct BlockQueue {
    limits: QueueLimits,
    /// `nr_requests` as asked for.
    asked_requests: u32,
    elevator: Box<dyn Elevator>,
    device: Box<dyn Device>,
    plugging: Plugging,
    requests: Requests,
    bios: Bios,
    extra: Vec<Extra>,
    rules: QueueRules,
    pools: Pools,
    tags: Tags,
    wbt: Option<Wbt>,
    flush: FlushQueue,
    /// Requests that go before anything of the elevator's: refused by the driver, or of the flush machinery.
    dispatch: VecDeque<RqId>,
    /// Requests that have yet to enter the scheduler.
    held: Vec<RqId>,
    /// When the kernel's worker thread runs the queue for bios without a plug.
    worker_at: Option<Nanos>,
    /// blk-mq.
    multi: bool,
    quirks: Quirks,
    /// The elevator is asked only while the device has room.
    budgeted: bool,
    bio_based: bool,
    rotational: bool,
    queued_sectors: u64,
    /// The request that was last joined, or else came first, and still waits; kept only if nothing else may be joined.
    last_merge: Option<RqId>,
    /// Requests that were freed and for which a waiter has yet to be woken, by class.
    freed: [u32; 2],
    /// Requests that wait in the elevator: its own `len`, without having to ask.
    waiting: u32,
    in_driver: u32,
    depth: u32,
    plugged: bool,
    /// The device had no room when more waited.
    refused: bool,

    device_at: Option<Nanos>,
    retry_at: Option<Nanos>,
    throttle_at: Option<Nanos>,
    elevator_at: Option<Nanos>,
    plug_at: Option<Nanos>,
    /// Reports of rotating disks on each request's last command, by request.
    completions: Vec<Completion>,
    /// Done by the device, interrupt not yet handled.
    done: Vec<Completion>,
    finished: Vec<Bio>,
    wakeups: Vec<(Nanos, Wakeup)>,
}

impl BlockQueue {
    /// An idle queue.
    pub fn new(
        limits: QueueLimits,
        elevator: Box<dyn Elevator>,
        device: Box<dyn Device>,
        plugging: Plugging,
    ) -> BlockQueue {
        let quirks = elevator.quirks();
        let depth = device.queue_depth();
        let rotational = device.rotational();
        let mut queue = BlockQueue {
            limits,
            asked_requests: limits.nr_requests,
            elevator,
            device,
            plugging,
            requests: Requests::default(),
            bios: Bios::default(),
            extra: Vec::new(),
            rules: QueueRules::V2_6_0,
            pools: Pools::default(),
            tags: Tags::default(),
            wbt: None,
            flush: FlushQueue::default(),
            dispatch: VecDeque::new(),
            held: Vec::new(),
            worker_at: None,
            multi: false,
            quirks,
            budgeted: false,
            bio_based: false,
            rotational,
            queued_sectors: 0,
            last_merge: None,
            freed: [0; 2],
            waiting: 0,
            in_driver: 0,
            depth,
            plugged: false,
            refused: false,

            device_at: None,
            retry_at: None,
            throttle_at: None,
            elevator_at: None,
            plug_at: None,
            completions: Vec::new(),
            done: Vec::new(),
            finished: Vec::new(),
            wakeups: Vec::new(),
        };
        queue.set_rules(QueueRules { bio_based: false, ..QueueRules::V2_6_0 });
        queue
    }

    /// The same queue under the rules of another kernel. Must be called before it is used.
    pub fn with_rules(mut self, rules: QueueRules) -> BlockQueue {
        assert!(self.is_idle(), "the rules of a queue are those of its kernel");
        let has_requests = rules.kind == Kind::Multi && !(rules.bio_based && self.device.bio_based());
        if has_requests && rules.driver_tags > 0 {
            self.device = Box::new(Driver::new(self.device, rules.driver_tags));
        }
        self.set_rules(rules);
        self
    }

    fn set_rules(&mut self, rules: QueueRules) {
        self.rules = rules;
        self.multi = rules.kind == Kind::Multi;
        self.bio_based = rules.bio_based && self.device.bio_based();
        self.pools = Pools::new(&rules);
        if self.multi {
            let per_queue = self.device.queue_depth();
            let nr_hw_queues = match rules.nr_hw_queues {
                0 => self.device.nr_hw_queues(),
                nr => nr.min(self.device.nr_hw_queues()),
            };
            self.depth = per_queue * nr_hw_queues;
            let automatic = if self.quirks.schedules { 2 * per_queue.min(128) } else { per_queue };
            let limit = match self.asked_requests {
                0 => automatic,
                // Without a scheduler the tags are the driver's, and it has no more of them.
                nr if !self.quirks.schedules => nr.min(per_queue),
                nr => nr,
            };
            self.limits.nr_requests = limit;
            self.tags = Tags::new(nr_hw_queues, limit, self.quirks.schedules.then_some(rules.shallow_pct));
            self.budgeted = match rules.budget {
                Budget::Auto => per_queue <= SCSI_DEPTH,
                Budget::Tags => false,
                Budget::Device => true,
            };
            let throttles = rules.wbt && !self.quirks.regulates_writeback;
            // Only SCSI tells how many commands its device takes (`blk_queue_depth`).
            let depth = if self.budgeted { per_queue } else { limit };
            self.wbt = throttles.then(|| Wbt::new(&rules, self.rotational, depth, self.limits.hz));
        } else {
            self.limits.nr_requests = if self.asked_requests == 0 { DEFAULT_REQUESTS } else { self.asked_requests };
            if let Some(nr_requests) = self.elevator.nr_requests() {
                self.limits.nr_requests = self.limits.nr_requests.max(nr_requests);
            }
        }
    }

    /// The rules it works by.
    pub fn rules(&self) -> &QueueRules {
        &self.rules
    }

    /// Tags of the hardware queue that has most of them in use, and how many there are (blk-mq; else zeroes).
    pub fn tags(&self) -> (u32, u32) {
        let used = (0..self.tags.nr_hw_queues() as u32).map(|queue| self.tags.used(queue)).max();
        (used.unwrap_or(0), self.tags.limit())
    }

    /// The pool whose waiters a bio joins when it gets no request: [`Dir::Read`] stands for the first pool of a legacy
    /// queue (reads, or everything synchronous) and for tags, [`Dir::Write`] for the second and the throttle. It
    /// is the argument of [`BlockQueue::should_wake_waiter`] and [`BlockQueue::no_waiters`].
    fn waiter_class(&self, bio: &Bio) -> Dir {
        if self.multi || self.pools.class(bio.dir, bio.sync) == 0 { Dir::Read } else { Dir::Write }
    }

    /// A task has been stopped because too much is dirty: the writeback throttle lets more through for a while.
    pub fn note_dirty_wait(&mut self, now: Nanos) {
        if let Some(wbt) = &mut self.wbt {
            wbt.dirty_wait(now);
        }
    }

    pub fn device(&self) -> &dyn Device {
        self.device.as_ref()
    }

    /// Largest bio worth building, in sectors.
    pub fn max_sectors(&self) -> u32 {
        self.limits.max_sectors
    }

    /// The most pieces of memory in a request.
    pub fn max_segments(&self) -> u32 {
        self.limits.max_segments
    }

    /// The most pages that lie apart in a request.
    pub fn max_pages(&self) -> u64 {
        (u64::from(self.limits.max_sectors) / PAGE_SECTORS).min(u64::from(self.limits.max_segments))
    }

    /// Whether plugs belong to tasks.
    pub fn plugging(&self) -> Plugging {
        self.plugging
    }

    /// Whether one direction has enough requests that read-ahead and writeback should hold back.
    pub fn congested(&self, dir: Dir) -> bool {
        // Tags know no congestion.
        !self.multi && self.pools.congested(dir)
    }

    /// A request was allocated for a bio of this kind.
    #[inline(always)]
    fn note_allocated(&mut self, id: RqId, bio: &Bio) {
        let mut extra = Extra::default();
        if self.multi {
            extra.hw_queue = self.tags.queue_of(bio.context.task);
            extra.tag = self.tags.take(extra.hw_queue);
            extra.throttled = self.throttle_of(bio).is_some();
        } else {
            self.pools.took(self.pools.class(bio.dir, bio.sync), &self.limits);
        }
        *slot(&mut self.extra, id) = extra;
    }

    /// A request with a place in the throttle no longer needs it.
    fn give_back_place(&mut self, id: RqId, now: Nanos) {
        if let Some(wbt) = &mut self.wbt {
            if std::mem::take(&mut self.extra[id.0 as usize].throttled) {
                wbt.gave_back(now);
            }
            self.freed[Dir::Write as usize] += wbt.take_woken();
        }
    }

    /// A request is to be freed: one that waits for such a one is to be woken if there is room now.
    #[inline]
    fn note_freed(&mut self, id: RqId, now: Nanos) {
        if self.multi {
            let Extra { hw_queue, tag, .. } = self.extra[id.0 as usize];
            self.freed[Dir::Read as usize] += self.tags.give(hw_queue, tag);
            self.give_back_place(id, now);
            return;
        }
        let Request { dir, sync, .. } = self.requests[id];
        let class = self.pools.class(dir, sync);
        self.pools.gave(class, &self.limits);
        if self.limits.max_queue_sectors == 0 {
            self.freed[class] += u32::from(self.pools.should_wake_waiter(class, &self.limits, self.queued_sectors));
            return;
        }
        // One pool for everybody.
        for class in [Dir::Read, Dir::Write] {
            self.freed[class as usize] += u32::from(self.should_wake_waiter(class));
        }
    }

    /// Whether requests were freed since [`BlockQueue::take_freed`].
    pub fn has_freed(&self) -> bool {
        self.freed != [0; 2]
    }

    /// How many waiters of this class are to be woken: one for each request that was freed and left room.
    pub fn take_freed(&mut self, class: Dir) -> u32 {
        std::mem::take(&mut self.freed[class as usize])
    }

    /// Hands over the queue's wishes for later calls, in the order of their origin.
    #[inline]
    pub fn wakeups(&mut self, mut take: impl FnMut(Nanos, Wakeup)) {
        for &(at, wakeup) in &self.wakeups {
            take(at, wakeup);
        }
        self.wakeups.clear();
    }

    /// Takes a completed bio.
    pub fn take_finished(&mut self) -> Option<Bio> {
        self.finished.pop()
    }

    /// Whether nothing waits and nothing is at the device.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Nothing waits. A drive that takes one command at a time keeps the one in progress on the list.
    #[inline]
    fn is_empty(&self) -> bool {
        debug_assert_eq!(self.waiting as usize, self.elevator.len(), "the elevator counts otherwise");
        self.waiting == 0 && !(self.depth == 1 && self.in_driver > 0)
    }

    /// Asks the elevator, then does what it has asked for.
    #[inline(always)]
    fn elevator<R>(
        &mut self,
        now: Nanos,
        rec: &mut Recorder<'_>,
        ask: impl FnOnce(&mut dyn Elevator, &mut Ctx<'_>) -> R,
    ) -> R {
        let mut ctx = Ctx::new(now, self.limits.hz, &mut self.requests);
        ctx.in_driver = self.in_driver;
        ctx.driver_tags = self.depth;
        ctx.plugged = self.plugged;
        ctx.max_sectors = self.limits.max_sectors;
        ctx.rotational = self.rotational;
        ctx.last_only = self.rules.merging == Merging::OneHit;
        let answer = ask(self.elevator.as_mut(), &mut ctx);
        if ctx.asks() {
            let asked = ElevatorRequests {
                kick: ctx.kick,
                unplugs: ctx.kick_unplugs,
                run_now: ctx.run_now,
                idle_started: ctx.idle_started,
                idle_ended: ctx.idle_ended,
            };
            self.heed(asked, now, rec);
        }
        if self.quirks.has_timer {
            self.watch_elevator(now);
        }
        debug_assert!(self.quirks.has_timer || self.elevator.timer().is_none(), "an elevator with a timer says so");
        answer
    }

    /// Does what the elevator has asked for.
    #[inline(never)]
    fn heed(&mut self, asked: ElevatorRequests, now: Nanos, rec: &mut Recorder<'_>) {
        if let Some(cause) = asked.idle_ended {
            rec.event(now, CallId::NONE, What::IdleEnd { cause });
        }
        if asked.idle_started {
            rec.event(now, CallId::NONE, What::IdleStart);
        }
        if asked.run_now {
            self.wakeups.push((now, Wakeup::Unplug));
        } else if asked.kick {
            let wakeup = if asked.unplugs { Wakeup::Unplug } else { Wakeup::Run };
            self.wakeups.push((now + self.limits.kblockd, wakeup));
        }
    }

    /// Has the throttle asked at the end of its window if somebody waits for a place.
    fn watch_throttle(&mut self, now: Nanos) {
        let timer = self.wbt.as_ref().and_then(Wbt::timer);
        if timer != self.throttle_at {
            self.throttle_at = timer;
            self.wakeups.extend(timer.map(|at| (at.max(now), Wakeup::Throttle)));
        }
    }

    #[inline(never)]
    fn watch_elevator(&mut self, now: Nanos) {
        let timer = self.elevator.timer();
        if timer != self.elevator_at {
            self.elevator_at = timer;
            if let Some(at) = timer {
                self.wakeups.push((at.max(now), Wakeup::Elevator));
            }
        }
    }

    /// The request that the elevator lets go next.
    #[inline]
    fn next_of_elevator(&mut self, now: Nanos, rec: &mut Recorder<'_>) -> Option<RqId> {
        let next = self.elevator(now, rec, |e, ctx| e.next(ctx));
        self.waiting -= u32::from(next.is_some());
        if self.last_merge == next {
            self.last_merge = None;
        }
        next
    }

    /// Hands in a bio. `plug` is the submitter's list if it has one.
    pub fn submit(&mut self, now: Nanos, bio: Bio, plug: Option<&mut PlugList>, rec: &mut Recorder<'_>) -> Submitted {
        match self.take_bio(now, bio, plug, false, rec) {
            Taken::New | Taken::Joined => Submitted::Queued,
            Taken::NoRequest(class) => Submitted::NoRequest(class),
        }
    }

    /// Hands in a bio again whose submitter has waited for a request and was woken because there is one. If the bio can
    /// join another by now, the request is for the next who waits (2.6.6: `freereq`).
    #[cold]
    pub fn resubmit(&mut self, now: Nanos, bio: Bio, plug: Option<&mut PlugList>, rec: &mut Recorder<'_>) -> Submitted {
        match self.take_bio(now, bio, plug, true, rec) {
            Taken::New => Submitted::Queued,
            Taken::Joined => {
                let class = self.waiter_class(&bio);
                self.freed[class as usize] += u32::from(self.should_wake_waiter(class));
                Submitted::Queued
            }
            Taken::NoRequest(class) => Submitted::NoRequest(class),
        }
    }

    #[inline(always)]
    fn take_bio(
        &mut self,
        now: Nanos,
        mut bio: Bio,
        plug: Option<&mut PlugList>,
        again: bool,
        rec: &mut Recorder<'_>,
    ) -> Taken {
        bio.next = BioId::NONE;
        if self.bio_based {
            // No request, no statistics, no time: the target ends the bio as it is handed in.
            self.finished.push(bio);
            return Taken::New;
        }
        if bio.flush && self.rules.flushes == Flushes::Sequenced && !self.rules.write_cache {
            if bio.nr_sectors == 0 {
                self.finished.push(bio);
                return Taken::New;
            }
            bio.flush = false;
        }
        let Bio { dir, content, sector, nr_sectors, .. } = bio;
        let what = What::BioQueue { dir, content, sector, nr_sectors };
        // A bio is known by its call: one of no call has its event together with its request, lest two be mixed up.
        let named = submitter(bio.call) != CallId::NONE;
        if !again {
            bio.queued = now;
            if named {
                rec.event(now, bio.call, what);
            }
        }
        let taken = |rec: &mut Recorder<'_>| {
            if !named {
                rec.event(now, bio.call, what);
            }
        };
        // blk-mq waits for a tag behind its attempts to merge, and does not try again.
        let merges = !(again && self.multi);
        let mut plug = plug;
        if merges
            && let Some(list) = plug.as_deref_mut()
            && let Some((rq, kind)) = self.plug_candidate(list, &bio)
        {
            taken(rec);
            self.join(rq, kind, bio, now, rec);
            return Taken::Joined;
        }
        let was_empty = self.is_empty();
        // As a request it may continue another one: the one it was to join was too large, or came while it waited.
        let mut may_unite = !merges || self.quirks.merges_within_queues;
        if merges && !was_empty && !bio.flush && self.rules.merging != Merging::Never {
            let offered = self.elevator(now, rec, |e, ctx| e.merge(ctx, &bio)).filter(|(rq, _)| self.may_join(*rq));
            if let Some((rq, kind)) = offered {
                if self.size_allows(rq, bio.nr_sectors) {
                    taken(rec);
                    self.join(rq, kind, bio, now, rec);
                    self.elevator(now, rec, |e, ctx| e.merged(ctx, rq, kind));
                    self.note_merge(rq);
                    self.unite_neighbour(rq, kind, now, rec);
                    // blk-mq runs the queue for new requests and completions only.
                    if !self.multi {
                        self.after_queueing(now, rec);
                    }
                    return Taken::Joined;
                }
                may_unite = true;
                self.requests[rq].no_merge = true;
                if self.last_merge == Some(rq) {
                    self.last_merge = None;
                }
            }
        }
        if let Err(class) = self.has_request(&bio, again, now, rec) {
            self.unplug(now, UnplugCause::NoRequest, rec);
            return Taken::NoRequest(class);
        }
        taken(rec);
        if self.multi {
            self.queue_multi(bio, plug, may_unite, now, rec);
            return Taken::New;
        }
        if was_empty && let Plugging::Queue { delay, .. } = self.plugging {
            self.set_plug(now, delay, bio.call, rec);
        }
        self.queue_legacy(bio, plug, now, rec);
        Taken::New
    }

    /// Takes a bio into a request of a legacy queue.
    #[inline(never)]
    fn queue_legacy(&mut self, bio: Bio, plug: Option<&mut PlugList>, now: Nanos, rec: &mut Recorder<'_>) {
        let rq = self.allocate(bio, now, rec);
        if bio.flush && self.rules.flushes == Flushes::Sequenced {
            self.begin_flush(rq, now, rec);
            self.run(now, rec);
        } else if let Some(list) = plug {
            self.add_to_plug(rq, list, now, rec);
        } else {
            self.insert(rq, now, rec);
            match self.plugging {
                Plugging::Queue { .. } => self.after_queueing(now, rec),
                Plugging::Task { .. } => self.run(now, rec),
            }
        }
    }

    /// Takes a bio into a request of blk-mq and sends that on.
    #[inline(always)]
    fn queue_multi(
        &mut self,
        bio: Bio,
        plug: Option<&mut PlugList>,
        may_unite: bool,
        now: Nanos,
        rec: &mut Recorder<'_>,
    ) {
        let rq = self.allocate(bio, now, rec);
        if bio.flush && self.rules.flushes == Flushes::Sequenced {
            self.begin_flush(rq, now, rec);
            self.run(now, rec);
        } else if let Some(list) = plug {
            self.add_to_plug(rq, list, now, rec);
        } else if self.quirks.schedules || (self.tags.is_busy() && (self.tags.nr_hw_queues() == 1 || !bio.sync)) {
            if may_unite || self.holds_requests() {
                self.insert_or_hold(rq, now, rec);
            } else {
                self.insert(rq, now, rec);
            }
            if self.rules.worker_runs {
                self.run_by_worker(now);
            } else {
                self.run(now, rec);
            }
        } else {
            self.issue_directly(rq, now, rec);
        }
    }

    /// Has the kernel's worker thread run the queue; it is called once until it has.
    fn run_by_worker(&mut self, now: Nanos) {
        if self.worker_at.is_none() {
            let at = now + self.limits.kblockd;
            self.worker_at = Some(at);
            self.wakeups.push((at, Wakeup::Run));
        }
    }

    /// Whether requests enter the scheduler only when it is asked for one.
    fn holds_requests(&self) -> bool {
        self.rules.late_insertion && self.quirks.schedules
    }

    /// Gives a request to the elevator, or holds it until that is asked for one.
    fn insert_or_hold(&mut self, id: RqId, now: Nanos, rec: &mut Recorder<'_>) {
        if self.holds_requests() {
            self.held.push(id);
        } else {
            self.insert_or_unite(id, now, rec);
        }
    }

    /// Requests that were held enter the scheduler, and are united with those that they continue.
    fn insert_held(&mut self, now: Nanos, rec: &mut Recorder<'_>) {
        for id in std::mem::take(&mut self.held) {
            self.insert_or_unite(id, now, rec);
        }
    }

    /// Past the software queue to the driver.
    fn issue_directly(&mut self, rq: RqId, now: Nanos, rec: &mut Recorder<'_>) {
        let request = &mut self.requests[rq];
        request.inserted = now;
        rec.event(now, request.call, What::Insert { rq });
        let room = self.in_driver < self.depth;
        if room {
            self.issue(rq, now, rec);
        } else {
            self.requests[rq].started = true;
            self.dispatch.push_back(rq);
        }
        self.tags.driver_was(!room);
    }

    /// Puts a request on a task's list, which is flushed first if it is full.
    #[inline(always)]
    fn add_to_plug(&mut self, rq: RqId, list: &mut PlugList, now: Nanos, rec: &mut Recorder<'_>) {
        let Plugging::Task { max_requests, flush_sectors, first_counts, joins, .. } = self.plugging else {
            unreachable!("only kernels whose tasks plug pass a list")
        };
        // Since 5.16 sizes count only where requests grow.
        let sizes = joins == PlugJoin::Any || self.rules.merging != Merging::Never;
        let counts = if first_counts { list.first() } else { list.last() }.filter(|_| sizes);
        let large = counts.is_some_and(|rq| flush_sectors > 0 && self.requests[*rq].nr_sectors >= flush_sectors);
        if (max_requests > 0 && list.len() >= max_requests as usize) || large {
            self.flush_plug(now, list, UnplugCause::Threshold, rec);
        }
        if list.is_empty() {
            rec.event(now, self.requests[rq].call, What::Plug);
        }
        list.push(rq);
    }

    /// A request of a plug list that the bio could join, newest first. Those that would become too large are left alone
    /// from now on.
    fn plug_candidate(&mut self, list: &PlugList, bio: &Bio) -> Option<(RqId, MergeKind)> {
        if bio.flush || (self.rules.merging == Merging::Never && self.plug_heeds_nomerges()) {
            return None;
        }
        let joins_from = match self.plugging {
            Plugging::Task { joins, .. } => joins,
            _ => PlugJoin::Any,
        };
        let looked_at = match joins_from {
            PlugJoin::Any => &list[..],
            PlugJoin::Newest => &list[list.len().saturating_sub(1)..],
            PlugJoin::Oldest => &list[..list.len().min(1)],
        };
        looked_at.iter().rev().find_map(|&id| {
            let kind = joins(&self.requests[id], bio)?;
            let fits = self.size_allows(id, bio.nr_sectors);
            self.requests[id].no_merge |= !fits;
            fits.then_some((id, kind))
        })
    }

    fn plug_heeds_nomerges(&self) -> bool {
        matches!(self.plugging, Plugging::Task { heeds_nomerges: true, .. })
    }

    /// Whether a request that the elevator offers may be joined, as far as `nomerges` is concerned. The kernel tries
    /// the last one before the elevator looks; that the elevator would prefer another one is not a case that matters.
    #[inline(always)]
    fn may_join(&self, rq: RqId) -> bool {
        match self.rules.merging {
            Merging::All => true,
            Merging::OneHit => !self.quirks.has_one_hit_cache || self.last_merge == Some(rq),
            Merging::Never => false,
        }
    }

    /// A request has been joined.
    #[inline(always)]
    fn note_merge(&mut self, rq: RqId) {
        self.last_merge = Some(rq);
    }

    fn size_allows(&self, rq: RqId, more_sectors: u32) -> bool {
        let sectors = self.requests[rq].nr_sectors + more_sectors;
        sectors <= self.limits.max_sectors && sectors.div_ceil(PAGE_SECTORS as u32) <= self.limits.max_segments
    }

    /// Joins a bio to a request at one end. The request stays in the class it was allocated in (`is_sync` of 2.6.6).
    fn join(&mut self, id: RqId, kind: MergeKind, mut bio: Bio, now: Nanos, rec: &mut Recorder<'_>) {
        rec.event(now, bio.call, What::Merge { rq: id, kind, nr_sectors: bio.nr_sectors });
        self.queued_sectors += u64::from(bio.nr_sectors);
        let rq = &mut self.requests[id];
        rq.nr_sectors += bio.nr_sectors;
        rq.nr_bios += 1;
        match kind {
            MergeKind::Back => {
                let last = rq.last;
                let new = self.bios.insert(bio);
                self.bios[last].next = new;
                self.requests[id].last = new;
            }
            MergeKind::Front => {
                rq.sector = bio.sector;
                bio.next = rq.first;
                self.requests[id].first = self.bios.insert(bio);
            }
        }
    }

    /// After a bio has closed the gap between two requests, makes them one.
    fn unite_neighbour(&mut self, id: RqId, kind: MergeKind, now: Nanos, rec: &mut Recorder<'_>) {
        if let Some(other) = self.elevator(now, rec, |e, ctx| e.neighbour(ctx, id, kind)) {
            let (front, back) = if kind == MergeKind::Back { (id, other) } else { (other, id) };
            self.unite(front, back, now, rec);
        }
    }

    /// Makes two waiting requests one, if the second continues the first, and frees that.
    fn unite(&mut self, front: RqId, back: RqId, now: Nanos, rec: &mut Recorder<'_>) {
        if self.make_one(front, back, now, rec) {
            self.free(back, now);
        }
    }

    /// The same; the second is not freed yet.
    fn make_one(&mut self, front: RqId, back: RqId, now: Nanos, rec: &mut Recorder<'_>) -> bool {
        let (a, b) = (self.requests[front], self.requests[back]);
        let fits = a.end() == b.sector
            && a.dir == b.dir
            && a.class == b.class
            && !(a.started || b.started || a.flush || b.flush || a.no_merge || b.no_merge)
            && self.size_allows(front, b.nr_sectors);
        if fits {
            self.append(front, back);
            self.elevator(now, rec, |e, ctx| e.merged_requests(ctx, front, back));
            self.note_merge(front);
            self.waiting -= 1;
            rec.event(now, a.call, What::MergeRequests { rq: front, gone: back });
        }
        fits
    }

    /// The throttle, if it is there and for bios of this kind.
    #[inline]
    fn throttle_of(&mut self, bio: &Bio) -> Option<&mut Wbt> {
        self.wbt.as_mut().filter(|_| Wbt::concerns(bio))
    }

    /// A request for this bio's submitter, which has waited for it if it comes `again`; or the line in which to wait.
    fn has_request(&mut self, bio: &Bio, again: bool, now: Nanos, rec: &mut Recorder<'_>) -> Result<(), Dir> {
        let has = if self.multi {
            if let Some(wbt) = self.throttle_of(bio) {
                let may = wbt.may_write(bio, again, now);
                let woken = wbt.take_woken();
                self.freed[Dir::Write as usize] += woken;
                if !may {
                    self.watch_throttle(now);
                    return Err(Dir::Write);
                }
            }
            let nr_tags = self.tags.limit();
            let limit = if self.quirks.schedules {
                self.elevator(now, rec, |e, ctx| e.tag_limit(ctx, bio, nr_tags))
            } else {
                Limit::None
            };
            let has = self.tags.reserve(self.tags.queue_of(bio.context.task), limit);
            if !has && let Some(wbt) = self.throttle_of(bio) {
                wbt.comes_again();
            }
            has
        } else {
            let elevator = &self.elevator;
            self.pools.has_request(bio, now, &self.limits, self.queued_sectors, || {
                elevator.may_queue(bio.context, bio.dir) == Some(true)
            })
        };
        if has { Ok(()) } else { Err(self.waiter_class(bio)) }
    }

    /// A task that has waited for a request may take several.
    pub fn make_batcher(&mut self, task: u32, now: Nanos) {
        if !self.multi {
            self.pools.make_batcher(task, now, &self.limits);
        }
    }

    /// Whether a task that waits for a request of this class should be woken.
    pub fn should_wake_waiter(&self, class: Dir) -> bool {
        if self.multi {
            // The throttle wakes its waiters itself.
            return class == Dir::Read && self.tags.any_free();
        }
        self.pools.should_wake_waiter(class as usize, &self.limits, self.queued_sectors)
    }

    /// A request of this class has no waiters any more.
    pub fn no_waiters(&mut self, class: Dir) {
        if !self.multi {
            self.pools.no_waiters(class as usize, &self.limits);
        }
    }

    #[inline(always)]
    fn allocate(&mut self, bio: Bio, now: Nanos, rec: &mut Recorder<'_>) -> RqId {
        self.queued_sectors += u64::from(bio.nr_sectors);
        let id = self.bios.insert(bio);
        let rq = self.requests.insert(Request {
            sector: bio.sector,
            nr_sectors: bio.nr_sectors,
            dir: bio.dir,
            content: bio.content,
            sync: bio.sync,
            no_idle: bio.no_idle,
            class: bio.class,
            prio: bio.prio,
            flush: bio.flush,
            started: false,
            no_merge: false,
            context: bio.context,
            call: bio.call,
            nr_bios: 1,
            first: id,
            last: id,
            queued: now,
            allocated: now,
            inserted: now,
            issued: now,
        });
        self.note_allocated(rq, &bio);
        rec.event(now, bio.call, What::GetRequest { rq });
        rq
    }

    fn insert(&mut self, id: RqId, now: Nanos, rec: &mut Recorder<'_>) {
        let rq = &mut self.requests[id];
        rq.inserted = now;
        rec.event(now, rq.call, What::Insert { rq: id });
        self.extra[id.0 as usize].elevated = true;
        self.elevator(now, rec, |e, ctx| e.add(ctx, id));
        let mergeable = !self.requests[id].flush && !self.requests[id].no_merge;
        if self.last_merge.is_none() && mergeable {
            self.last_merge = Some(id);
        }
        self.waiting += 1;
    }

    /// Gives a request from a plug list to the elevator, or unites it with one that it continues.
    #[inline]
    fn insert_or_unite(&mut self, id: RqId, now: Nanos, rec: &mut Recorder<'_>) {
        if self.waiting == 0 || !self.unite_with_waiting(id, now, rec) {
            self.insert(id, now, rec);
        }
    }

    /// The waiting request that `id` continues.
    fn continued(&mut self, id: RqId, now: Nanos, rec: &mut Recorder<'_>) -> Option<RqId> {
        let Request { sector, nr_sectors, first, .. } = self.requests[id];
        // A bio without sectors continues nothing at its end, where nobody looks; a request does not continue itself.
        let nr_sectors = if self.last_merge == Some(id) { nr_sectors } else { 0 };
        let as_bio = Bio { sector, nr_sectors, ..self.bios[first] };
        match self.elevator(now, rec, |e, ctx| e.continued(ctx, id, &as_bio)) {
            Some((found, MergeKind::Back)) if self.may_join(found) => Some(found),
            _ => None,
        }
    }

    /// Unites a request from a plug list with one that it continues, if there is one. With blk-mq one that was found by
    /// its end, and not as the last merged, is united with those that it continues in turn (`elv_attempt_insert_merge`,
    /// which legacy queues have from 3.8 on).
    fn unite_with_waiting(&mut self, id: RqId, now: Nanos, rec: &mut Recorder<'_>) -> bool {
        let request = self.requests[id];
        if !self.quirks.merges_on_insert || self.rules.merging == Merging::Never || request.no_merge {
            return false;
        }
        let found = self.continued(id, now, rec).filter(|kept| self.size_allows(*kept, request.nr_sectors));
        let Some(kept) = found else { return false };
        let by_end = self.last_merge != Some(kept);
        rec.event(now, request.call, What::Insert { rq: id });
        self.append(kept, id);
        let call = self.requests[kept].call;
        self.elevator(now, rec, |e, ctx| e.merged_unqueued(ctx, kept, id));
        self.note_merge(kept);
        rec.event(now, call, What::MergeRequests { rq: kept, gone: id });
        if self.multi && by_end {
            self.unite_further(kept, now, rec);
        }
        self.free(id, now);
        true
    }

    /// Unites a waiting request with those that it continues in turn; the last one united is freed first.
    fn unite_further(&mut self, id: RqId, now: Nanos, rec: &mut Recorder<'_>) {
        if let Some(kept) = self.continued(id, now, rec)
            && self.make_one(kept, id, now, rec)
        {
            self.unite_further(kept, now, rec);
            self.free(id, now);
        }
    }

    /// A request that is part of another one now is no more.
    fn free(&mut self, id: RqId, now: Nanos) {
        self.note_freed(id, now);
        self.requests.release(id);
    }

    /// Moves the bios of `gone` behind those of `kept`, which ends where it starts.
    fn append(&mut self, kept: RqId, gone: RqId) {
        let b = self.requests[gone];
        let a = &mut self.requests[kept];
        let last = a.last;
        a.nr_sectors += b.nr_sectors;
        a.nr_bios += b.nr_bios;
        a.last = b.last;
        a.queued = a.queued.min(b.queued);
        a.allocated = a.allocated.min(b.allocated);
        self.bios[last].next = b.first;
    }

    fn set_plug(&mut self, now: Nanos, delay: Nanos, call: CallId, rec: &mut Recorder<'_>) {
        if self.plugged {
            return;
        }
        self.plugged = true;
        rec.event(now, call, What::Plug);
        if delay > Nanos::ZERO {
            let hz = self.limits.hz;
            let ticks = (delay.0 * u64::from(hz.0) / 1_000_000_000).max(1);
            let at = hz.timer(now, ticks);
            self.plug_at = Some(at);
            self.wakeups.push((at, Wakeup::Plug));
        }
    }

    /// A queue that plugs itself looks whether enough has come together.
    fn after_queueing(&mut self, now: Nanos, rec: &mut Recorder<'_>) {
        let Plugging::Queue { threshold, exact, .. } = self.plugging else {
            return self.run(now, rec);
        };
        if !self.plugged {
            return;
        }
        let waiting = self.pools.in_use().saturating_sub(self.in_driver);
        let reached = threshold > 0 && if exact { waiting == threshold } else { waiting >= threshold };
        if reached {
            self.unplug(now, UnplugCause::Threshold, rec);
        }
    }

    /// Pulls the queue's plug, if it is plugged, and runs it.
    pub fn unplug(&mut self, now: Nanos, cause: UnplugCause, rec: &mut Recorder<'_>) {
        if !self.plugged {
            return;
        }
        self.plugged = false;
        self.plug_at = None;
        let nr_requests = self.waiting;
        rec.event(now, CallId::NONE, What::Unplug { cause, nr_requests });
        self.run(now, rec);
    }

    /// Gives the requests of a task's list to the elevator, or past it to the driver, and runs the queue.
    pub fn flush_plug(&mut self, now: Nanos, list: &mut PlugList, cause: UnplugCause, rec: &mut Recorder<'_>) {
        if list.is_empty() {
            return;
        }
        if self.multi && !self.quirks.schedules {
            let nr_requests = list.len() as u32;
            rec.event(now, self.requests[list[0]].call, What::Unplug { cause, nr_requests });
            if let [rq] = list[..] {
                list.clear();
                return self.issue_directly(rq, now, rec);
            }
            if matches!(self.plugging, Plugging::Task { order: PlugOrder::Newest, .. }) {
                list.reverse();
            }
            list.drain(..).for_each(|rq| self.issue_directly(rq, now, rec));
            return;
        }
        self.unload_plug(now, list, cause, rec);
        self.run(now, rec);
    }

    /// The same for a task that goes to sleep without waiting for I/O: the kernel's worker thread runs the queue.
    pub fn flush_plug_from_schedule(&mut self, now: Nanos, list: &mut PlugList, rec: &mut Recorder<'_>) {
        if list.is_empty() {
            return;
        }
        self.unload_plug(now, list, UnplugCause::Schedule, rec);
        self.wakeups.push((now + self.limits.kblockd, Wakeup::Run));
    }

    /// Gives the requests of a task's list to the elevator.
    fn unload_plug(&mut self, now: Nanos, list: &mut PlugList, cause: UnplugCause, rec: &mut Recorder<'_>) {
        let nr_requests = list.len() as u32;
        rec.event(now, self.requests[list[0]].call, What::Unplug { cause, nr_requests });
        if let [rq] = list[..] {
            list.clear();
            return self.insert_or_hold(rq, now, rec);
        }
        if let Plugging::Task { order: PlugOrder::Sector, .. } = self.plugging {
            let requests = &self.requests;
            list.sort_by_key(|&rq| requests[rq].sector);
        }
        for rq in list.drain(..) {
            self.insert_or_hold(rq, now, rec);
        }
    }

    /// Issues requests while the queue is unplugged and the device has room.
    #[inline]
    pub fn run(&mut self, now: Nanos, rec: &mut Recorder<'_>) {
        if self.waiting > 0 || !self.dispatch.is_empty() || !self.held.is_empty() {
            self.run_waiting(now, rec);
        }
    }

    fn run_waiting(&mut self, now: Nanos, rec: &mut Recorder<'_>) {
        if self.multi {
            if !self.dispatch.is_empty() && !self.drain_dispatch(now, rec) {
                return;
            }
            if self.waiting > 0 || !self.held.is_empty() {
                self.run_multi(now, rec);
            }
            return;
        }
        while !self.plugged && self.in_driver < self.depth {
            let id = match self.dispatch.pop_front() {
                Some(id) => id,
                None if self.waiting == 0 => break,
                None => match self.next_of_elevator(now, rec) {
                    Some(id) => id,
                    None => break,
                },
            };
            self.issue_waiting(id, now, rec);
        }
    }

    /// Gives the driver what it refused before. Says whether it took everything.
    fn drain_dispatch(&mut self, now: Nanos, rec: &mut Recorder<'_>) -> bool {
        while self.in_driver < self.depth {
            let Some(id) = self.dispatch.pop_front() else { break };
            self.issue_waiting(id, now, rec);
        }
        let empty = self.dispatch.is_empty();
        self.tags.driver_was(!empty);
        empty
    }

    /// Asks the scheduler, or empties the software queue.
    #[inline]
    fn run_multi(&mut self, now: Nanos, rec: &mut Recorder<'_>) {
        if !self.quirks.schedules && !self.tags.is_busy() {
            while let Some(id) = self.next_of_elevator(now, rec) {
                self.requests[id].started = true;
                self.dispatch.push_back(id);
            }
            self.drain_dispatch(now, rec);
            return;
        }
        let mut gave_none = true;
        self.retry_at = None;
        while self.waiting > 0 || !self.held.is_empty() {
            if self.in_driver >= self.depth && (self.budgeted || !self.quirks.schedules) {
                self.refused = true;
                return;
            }
            if !self.held.is_empty() {
                self.insert_held(now, rec);
            }
            let Some(id) = self.next_of_elevator(now, rec) else {
                if gave_none && self.quirks.asks_to_be_run {
                    let at = self.limits.hz.timer(now, self.limits.hz.from_ms(RETRY_MS) + 1);
                    self.retry_at = Some(at);
                    self.wakeups.push((at, Wakeup::Retry));
                }
                return;
            };
            gave_none = false;
            if self.in_driver == self.depth {
                // It has no driver tag, although it has left the elevator.
                self.requests[id].started = true;
                self.dispatch.push_back(id);
                self.tags.driver_was(true);
                return;
            }
            self.issue(id, now, rec);
            self.tags.driver_was(false);
        }
    }

    /// A flush of 2.6.37 and later sets out.
    fn begin_flush(&mut self, id: RqId, now: Nanos, rec: &mut Recorder<'_>) {
        let data = self.requests[id].nr_sectors > 0;
        rec.event(now, self.requests[id].call, What::Insert { rq: id });
        let extra = &mut self.extra[id.0 as usize];
        extra.sequenced = true;
        extra.fua = data && self.rules.fua;
        let after = data && !self.rules.fua;
        *slot(&mut self.flush.steps, id) = Steps { before: true, data, after };
        self.next_step(id, now, rec);
    }

    /// Sends a request of the flush machinery on.
    fn next_step(&mut self, id: RqId, now: Nanos, rec: &mut Recorder<'_>) {
        match self.flush.steps[id.0 as usize].take() {
            Step::Flush => {
                self.flush.wants(id, now);
                self.kick_flush(now);
            }
            Step::Data => {
                self.flush.data_in_flight += 1;
                self.dispatch.push_back(id);
            }
            Step::Done => self.finish_sequenced(id, now, rec),
        }
    }

    /// A request of the flush machinery has been through all its steps.
    #[cold]
    fn finish_sequenced(&mut self, id: RqId, now: Nanos, rec: &mut Recorder<'_>) {
        self.finish(id, now, rec);
    }

    /// Makes a flush command if one is due.
    fn kick_flush(&mut self, now: Nanos) {
        if !self.flush.is_due(now) {
            return;
        }
        let command = self.requests.insert(Request {
            sector: Sector(0),
            nr_sectors: 0,
            dir: Dir::Write,
            content: Content::Data,
            sync: true,
            no_idle: true,
            class: IoClass::BestEffort,
            prio: false,
            flush: true,
            started: true,
            no_merge: true,
            context: IoContext::default(),
            call: CallId::NONE,
            nr_bios: 0,
            first: BioId::NONE,
            last: BioId::NONE,
            queued: now,
            allocated: now,
            inserted: now,
            issued: now,
        });
        *slot(&mut self.extra, command) = Extra::default();
        self.flush.start(command);
        self.dispatch.push_back(command);
    }

    /// A request of the machinery, or its command, is done at the device.
    fn flush_step_done(&mut self, id: RqId, now: Nanos, rec: &mut Recorder<'_>) {
        if self.flush.is_command(id) {
            self.requests.release(id);
            for served in self.flush.finish() {
                self.next_step(served, now, rec);
            }
        } else {
            self.flush.data_in_flight -= 1;
            // The throttle hears of the end of the data; the flush after it holds no place.
            self.give_back_place(id, now);
            self.next_step(id, now, rec);
        }
        self.kick_flush(now);
    }

    /// The same as `issue`, once in the program rather than at every place.
    #[inline(never)]
    fn issue_waiting(&mut self, id: RqId, now: Nanos, rec: &mut Recorder<'_>) {
        self.issue(id, now, rec);
    }

    /// Starts a command.
    #[inline(always)]
    fn issue(&mut self, id: RqId, now: Nanos, rec: &mut Recorder<'_>) {
        self.in_driver += 1;
        let in_flight = self.in_driver as u16;
        if self.flush.is_command(id) {
            self.issue_flush(now, rec);
        } else {
            let rq = &mut self.requests[id];
            rq.started = true;
            rq.issued = now;
            let Request { sector, nr_sectors, dir, content, call, .. } = *rq;
            rec.event(now, call, What::Issue { rq: id, dir, content, sector, nr_sectors, in_flight });
            if let Some(wbt) = &mut self.wbt {
                wbt.issued(id.0, dir, now);
            }
        }
        if self.limits.command == Nanos::ZERO {
            self.command(id, now);
        } else {
            self.wakeups.push((now + self.limits.command, Wakeup::Command(id)));
        }
    }

    /// The flush command starts: for the empty requests that it serves this is all there is.
    fn issue_flush(&mut self, now: Nanos, rec: &mut Recorder<'_>) {
        let in_flight = self.in_driver as u16;
        for &served in self.flush.running() {
            let rq = &mut self.requests[served];
            if rq.nr_sectors == 0 {
                rq.issued = now;
                let Request { sector, nr_sectors, dir, content, call, .. } = *rq;
                rec.event(now, call, What::Issue { rq: served, dir, content, sector, nr_sectors, in_flight });
            }
        }
    }

    /// The command of a request reaches the device.
    #[inline(always)]
    fn command(&mut self, id: RqId, now: Nanos) {
        let rq = &self.requests[id];
        let command = Command {
            tag: id.0,
            sector: rq.sector,
            nr_sectors: rq.nr_sectors,
            dir: rq.dir,
            // In steps, the flush is a command of its own.
            flush: rq.flush && !self.extra[id.0 as usize].sequenced,
            fua: (rq.flush && rq.nr_sectors > 0 && !self.extra[id.0 as usize].sequenced)
                || self.extra[id.0 as usize].fua,
        };
        // Let the device catch up first, so that it sees its own events in order of time.
        if self.device_at.is_some_and(|at| at <= now) {
            self.advance(now);
            self.interrupts(now);
        }
        let next = self.device.submit_and_look(now, command);
        self.watch_device(next, now);
    }

    /// Takes what the device has done by now. Returns when something next happens inside it.
    #[inline]
    fn advance(&mut self, now: Nanos) -> Option<Nanos> {
        let next = self.device.advance_all(now, &mut self.done);
        if self.rotational {
            for completion in &self.done {
                *slot(&mut self.completions, RqId(completion.tag)) = *completion;
            }
        }
        next
    }

    /// Has the interrupts of completed requests handled in a moment.
    fn interrupts(&mut self, now: Nanos) {
        let at = now + self.limits.interrupt;
        self.wakeups.extend(self.done.drain(..).map(|done| (at, Wakeup::Interrupt(RqId(done.tag)))));
    }

    /// Asks to be woken when the device next has something to do.
    #[inline]
    fn watch_device(&mut self, next: Option<Nanos>, now: Nanos) {
        if next != self.device_at {
            self.device_at = next;
            if let Some(at) = next {
                self.wakeups.push((at.max(now), Wakeup::Device));
            }
        }
    }

    /// A time the queue asked for has come. Wakeups that have been overtaken do nothing.
    pub fn wake(&mut self, now: Nanos, wakeup: Wakeup, rec: &mut Recorder<'_>) {
        match wakeup {
            Wakeup::Device => {
                if self.device_at.is_some_and(|at| at <= now) {
                    let next = self.advance(now);
                    self.device_at = None;
                    self.watch_device(next, now);
                    if self.limits.interrupt > Nanos::ZERO {
                        self.interrupts(now);
                    } else if let [Completion { tag, .. }] = self.done[..] {
                        self.done.clear();
                        self.complete(RqId(tag), now, rec);
                    } else {
                        let mut done = std::mem::take(&mut self.done);
                        done.drain(..).for_each(|done| self.complete(RqId(done.tag), now, rec));
                        self.done = done;
                    }
                }
            }
            Wakeup::Command(rq) => self.command(rq, now),
            Wakeup::Interrupt(rq) => self.complete(rq, now, rec),
            Wakeup::Elevator => {
                if self.elevator_at.is_some_and(|at| at <= now) {
                    self.elevator_at = None;
                    self.elevator(now, rec, |e, ctx| e.on_timer(ctx));
                }
            }
            Wakeup::Plug => {
                if self.plug_at == Some(now) {
                    self.plug_at = None;
                    if self.plugged {
                        self.plugged = false;
                        let nr_requests = self.waiting;
                        rec.event(now, CallId::NONE, What::Unplug { cause: UnplugCause::Timer, nr_requests });
                        self.wakeups.push((now + self.limits.kblockd, Wakeup::Run));
                    }
                }
            }
            Wakeup::Run => {
                self.worker_at = self.worker_at.filter(|at| *at > now);
                self.run(now, rec);
            }
            Wakeup::Retry => {
                if self.retry_at == Some(now) {
                    self.run(now, rec);
                }
            }
            Wakeup::Throttle => {
                if self.throttle_at == Some(now) {
                    self.throttle_at = None;
                    if let Some(wbt) = &mut self.wbt {
                        wbt.look(now);
                        self.freed[Dir::Write as usize] += wbt.take_woken();
                    }
                    self.watch_throttle(now);
                }
            }
            Wakeup::Unplug => {
                self.unplug(now, UnplugCause::Waiter, rec);
                self.run(now, rec);
            }
        }
    }

    fn complete(&mut self, id: RqId, now: Nanos, rec: &mut Recorder<'_>) {
        self.in_driver -= 1;
        if self.extra[id.0 as usize].sequenced || self.flush.is_command(id) {
            self.flush_step_done(id, now, rec);
        } else {
            if self.rotational {
                let Completion { media, seek, rotation, .. } = self.completions[id.0 as usize];
                let (seek_us, rotation_us) = ((seek.0 / 1000) as u32, (rotation.0 / 1000) as u32);
                rec.event(now, self.requests[id].call, What::ServiceModel { rq: id, seek_us, rotation_us, media });
            }
            self.finish(id, now, rec);
        }
        let refused = std::mem::take(&mut self.refused) || !self.dispatch.is_empty();
        if refused || !(self.multi && self.quirks.asks_to_be_run) {
            self.run(now, rec);
        }
    }

    /// A request is done: its bios go back to their submitters.
    #[inline(always)]
    fn finish(&mut self, id: RqId, now: Nanos, rec: &mut Recorder<'_>) {
        let Request { call, dir, nr_sectors, nr_bios, first, issued, .. } = self.requests[id];
        rec.event(now, call, What::Complete { rq: id, dir, nr_sectors });
        let elevated = self.extra[id.0 as usize].elevated;
        if elevated && self.quirks.minds_completions {
            self.elevator(now, rec, |e, ctx| e.completed(ctx, id));
        }
        // Empty flushes are not among the writes that it counts.
        if let Some(wbt) = &mut self.wbt
            && nr_sectors > 0
        {
            wbt.completed(id.0, dir, now.saturating_sub(issued), now);
        }
        self.queued_sectors -= u64::from(nr_sectors);
        self.note_freed(id, now);
        self.requests.release(id);
        let mut next = first;
        while next != BioId::NONE {
            let bio = self.bios[next];
            self.bios.release(next);
            self.finished.push(bio);
            next = bio.next;
        }
        // Bios are taken from the end, so the first must be there.
        if nr_bios > 1 {
            let len = self.finished.len();
            self.finished[len - nr_bios as usize..].reverse();
        }
    }

    /// A task of this context begins, with that many long seeks behind it.
    pub fn task_started(&mut self, context: IoContext, startup_seeks: u32) {
        self.elevator.task_started(context, startup_seeks);
    }

    /// A task of this context has ended.
    pub fn task_exited(&mut self, now: Nanos, context: IoContext, rec: &mut Recorder<'_>) {
        self.elevator(now, rec, |e, ctx| e.task_exited(ctx, context));
    }
}
