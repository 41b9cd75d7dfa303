//! The request queue: everything between a bio and the device that is the same for all elevators.
//!
//! ```text
//! submit      join a request of the submitter's plug list, or one the elevator offers, if the sizes allow it;
//!             else allocate a request (the submitter sleeps if there is none) and give it to the list or the elevator
//! plug        per queue: set when a request comes to an empty queue; pulled by a waiter, a threshold or a timer
//!             per task: requests stay on the submitter's list until it is flushed
//! run         while the device has room: the elevator's next request is issued
//! complete    the elevator is told, the request is freed, the next one is issued; only then is anybody woken
//! ```
//! A merge that is refused for its size bars the request from further merging (2.6.6). Source: 2.6.6-rc3
//! `drivers/block/ll_rw_blk.c` (`__make_request`, `get_request`, `attempt_merge`), 2.4.27 the same file, later kernels
//! `block/blk-core.c`; see the block-layer specification, section 1. Known deviations: one segment per page; segments'
//! 64 KiB boundaries and soft barriers are not modelled; blk-mq's tags are a plain count of requests.

use crate::device::{Command, Completion, Device};
use crate::elevator::{Ctx, Elevator};
use crate::event::{CallId, Dir, MergeKind, RqId, UnplugCause, What};
use crate::plug::Plugging;
use crate::record::Recorder;
use crate::request::{Bio, BioId, Bios, IoContext, Request, Requests};
use crate::units::{Hz, Nanos, PAGE_SECTORS};

/// Something that the queue wants to be told at a later time.
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
    /// Requests (each direction, or together if `max_queue_sectors` is set).
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

/// What became of a bio.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It is on its way.
    Queued,
    /// There is no free request: wait for one and submit again.
    NoRequest,
}

/// Requests that a task holds back.
pub type PlugList = Vec<RqId>;

/// A task that may take requests although there are none left.
#[derive(Copy, Clone, Debug)]
struct Batcher {
    task: u32,
    left: u32,
    until: Nanos,
}

/// The queue of one device, its elevator, and the device.
pub struct BlockQueue {
    limits: QueueLimits,
    elevator: Box<dyn Elevator>,
    device: Box<dyn Device>,
    plugging: Plugging,
    requests: Requests,
    bios: Bios,
    allocated: [u32; 2],
    congested: [bool; 2],
    full: [bool; 2],
    batchers: Vec<Batcher>,
    queued_sectors: u64,
    in_driver: u32,
    depth: u32,
    plugged: bool,
    /// The elevator keeps the device idle on purpose.
    idling: bool,
    device_at: Option<Nanos>,
    elevator_at: Option<Nanos>,
    plug_at: Option<Nanos>,
    completions: Vec<Completion>,
    /// Done by the device, interrupt not yet handled.
    done: Vec<RqId>,
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
        let mut limits = limits;
        if let Some(nr_requests) = elevator.nr_requests() {
            limits.nr_requests = limits.nr_requests.max(nr_requests);
        }
        let depth = device.queue_depth();
        BlockQueue {
            limits,
            elevator,
            device,
            plugging,
            requests: Requests::default(),
            bios: Bios::default(),
            allocated: [0; 2],
            congested: [false; 2],
            full: [false; 2],
            batchers: Vec::new(),
            queued_sectors: 0,
            in_driver: 0,
            depth,
            plugged: false,
            idling: false,
            device_at: None,
            elevator_at: None,
            plug_at: None,
            completions: Vec::new(),
            done: Vec::new(),
            finished: Vec::new(),
            wakeups: Vec::new(),
        }
    }

    /// The device.
    pub fn device(&self) -> &dyn Device {
        self.device.as_ref()
    }

    /// Largest bio worth building, in sectors.
    pub fn max_sectors(&self) -> u32 {
        self.limits.max_sectors
    }

    /// Whether plugs belong to tasks.
    pub fn plugging(&self) -> Plugging {
        self.plugging
    }

    /// Whether one direction has so many requests that read-ahead and writeback should hold back.
    pub fn congested(&self, dir: Dir) -> bool {
        self.congested[dir as usize]
    }

    /// A request of this direction was allocated: a queue of 128 counts as congested from 113 on.
    fn note_allocated(&mut self, dir: Dir) {
        let n = self.limits.nr_requests;
        self.allocated[dir as usize] += 1;
        self.congested[dir as usize] |= self.allocated[dir as usize] > n - n / 8;
    }

    /// One was freed: it no longer does below 111.
    fn note_freed(&mut self, dir: Dir) {
        let n = self.limits.nr_requests;
        self.allocated[dir as usize] -= 1;
        self.congested[dir as usize] &= self.allocated[dir as usize] + 1 >= n - n / 8;
    }

    /// Hands over what the queue wants to be told and when, in the order it came up.
    pub fn wakeups(&mut self, mut take: impl FnMut(Nanos, Wakeup)) {
        for (at, wakeup) in self.wakeups.drain(..) {
            take(at, wakeup);
        }
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
    fn is_empty(&self) -> bool {
        self.elevator.is_empty() && !(self.depth == 1 && self.in_driver > 0)
    }

    fn elevator<R>(
        &mut self,
        now: Nanos,
        rec: &mut Recorder<'_>,
        ask: impl FnOnce(&mut dyn Elevator, &mut Ctx<'_>) -> R,
    ) -> R {
        let mut ctx = Ctx::new(now, self.limits.hz, &mut self.requests);
        ctx.in_driver = self.in_driver;
        ctx.plugged = self.plugged;
        ctx.max_sectors = self.limits.max_sectors;
        ctx.rotational = self.device.rotational();
        let answer = ask(self.elevator.as_mut(), &mut ctx);
        let (kick, started, ended) = (ctx.kick, ctx.idle_started, ctx.idle_ended);
        if let Some(cause) = ended {
            rec.event(now, CallId::NONE, What::IdleEnd { cause });
        }
        if started {
            rec.event(now, CallId::NONE, What::IdleStart);
        }
        self.idling = started || (self.idling && ended.is_none());
        if kick {
            self.wakeups.push((now + self.limits.kblockd, Wakeup::Run));
        }
        // Only an elevator that idles has a timer to ask for.
        if self.idling || self.elevator_at.is_some() {
            let timer = self.elevator.timer();
            if timer != self.elevator_at {
                self.elevator_at = timer;
                if let Some(at) = timer {
                    self.wakeups.push((at.max(now), Wakeup::Elevator));
                }
            }
        }
        answer
    }

    /// Hands in a bio. `plug` is the submitter's list if it has one.
    pub fn submit(
        &mut self,
        now: Nanos,
        mut bio: Bio,
        plug: Option<&mut PlugList>,
        rec: &mut Recorder<'_>,
    ) -> Submitted {
        bio.queued = now;
        bio.next = BioId::NONE;
        let what =
            What::BioQueue { dir: bio.dir, content: bio.content, sector: bio.sector, nr_sectors: bio.nr_sectors };
        let mut plug = plug;
        if let Some(list) = plug.as_deref_mut()
            && let Some((rq, kind)) = self.plug_candidate(list, &bio)
        {
            rec.event(now, bio.call, what);
            self.join(rq, kind, bio, now, rec);
            return Submitted::Queued;
        }
        let was_empty = self.is_empty();
        if !was_empty && !bio.flush {
            let offered = self.elevator(now, rec, |e, ctx| e.merge(ctx, &bio));
            if let Some((rq, kind)) = offered {
                if self.size_allows(rq, bio.nr_sectors) {
                    rec.event(now, bio.call, what);
                    self.join(rq, kind, bio, now, rec);
                    self.elevator(now, rec, |e, ctx| e.merged(ctx, rq, kind));
                    self.unite_neighbour(rq, kind, now, rec);
                    self.after_queueing(now, rec);
                    return Submitted::Queued;
                }
                self.requests[rq].no_merge = true;
            }
        }
        if !self.has_request(&bio, now) {
            self.unplug(now, UnplugCause::NoRequest, rec);
            return Submitted::NoRequest;
        }
        rec.event(now, bio.call, what);
        if was_empty && let Plugging::Queue { delay, .. } = self.plugging {
            self.set_plug(now, delay, bio.call, rec);
        }
        let rq = self.allocate(bio, now, rec);
        match plug {
            Some(list) => {
                let Plugging::Task { max_requests, flush_sectors, .. } = self.plugging else {
                    unreachable!("only kernels whose tasks plug pass a list")
                };
                let large = list
                    .last()
                    .is_some_and(|last| flush_sectors > 0 && self.requests[*last].nr_sectors >= flush_sectors);
                if (max_requests > 0 && list.len() >= max_requests as usize) || large {
                    self.flush_plug(now, list, UnplugCause::Threshold, rec);
                }
                if list.is_empty() {
                    rec.event(now, bio.call, What::Plug);
                }
                list.push(rq);
            }
            None => {
                self.insert(rq, now, rec);
                match self.plugging {
                    Plugging::Queue { .. } => self.after_queueing(now, rec),
                    Plugging::Task { .. } => self.run(now, rec),
                }
            }
        }
        Submitted::Queued
    }

    /// A request of a plug list that the bio could join, newest first.
    fn plug_candidate(&self, list: &PlugList, bio: &Bio) -> Option<(RqId, MergeKind)> {
        if bio.flush {
            return None;
        }
        list.iter().rev().find_map(|&id| {
            let rq = &self.requests[id];
            if rq.dir != bio.dir || rq.flush || rq.no_merge || !self.size_allows(id, bio.nr_sectors) {
                None
            } else if rq.end() == bio.sector {
                Some((id, MergeKind::Back))
            } else if bio.sector.plus(u64::from(bio.nr_sectors)) == rq.sector {
                Some((id, MergeKind::Front))
            } else {
                None
            }
        })
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
        let Some(other) = self.elevator(now, rec, |e, ctx| e.neighbour(ctx, id, kind)) else { return };
        let (front, back) = if kind == MergeKind::Back { (id, other) } else { (other, id) };
        let (a, b) = (self.requests[front], self.requests[back]);
        let fits = a.end() == b.sector
            && a.dir == b.dir
            && !(a.started || b.started || a.flush || b.flush || a.no_merge || b.no_merge)
            && self.size_allows(front, b.nr_sectors);
        if !fits {
            return;
        }
        self.bios[a.last].next = b.first;
        let kept = &mut self.requests[front];
        kept.nr_sectors += b.nr_sectors;
        kept.nr_bios += b.nr_bios;
        kept.last = b.last;
        kept.queued = kept.queued.min(b.queued);
        kept.allocated = kept.allocated.min(b.allocated);
        self.elevator(now, rec, |e, ctx| e.merged_requests(ctx, front, back));
        rec.event(now, a.call, What::MergeRequests { rq: front, gone: back });
        self.note_freed(b.dir);
        self.requests.release(back);
    }

    /// Whether this bio's submitter can have a request now.
    fn has_request(&mut self, bio: &Bio, now: Nanos) -> bool {
        let limits = &self.limits;
        if limits.max_queue_sectors > 0 {
            // 2.4: one pool; writers wait for bytes, readers may go a quarter beyond.
            let room = match bio.dir {
                Dir::Write => limits.max_queue_sectors,
                Dir::Read => limits.max_queue_sectors + limits.max_queue_sectors / 4,
            };
            return self.allocated[0] + self.allocated[1] < limits.nr_requests && self.queued_sectors <= room;
        }
        let dir = bio.dir as usize;
        let task = bio.context.task;
        if self.allocated[dir] + 1 >= limits.nr_requests && !self.full[dir] {
            self.full[dir] = true;
            self.make_batcher(task, now);
        }
        if !self.full[dir] || self.elevator.may_queue(bio.context, bio.dir) == Some(true) {
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

    /// A task that has waited for a request may take several.
    pub fn make_batcher(&mut self, task: u32, now: Nanos) {
        let batcher = Batcher { task, left: self.limits.batch_requests, until: now + self.limits.batch_time };
        match self.batchers.iter_mut().find(|b| b.task == task) {
            Some(known) => *known = batcher,
            None => self.batchers.push(batcher),
        }
    }

    /// Whether a task that waits for a request of this direction should be woken.
    pub fn should_wake_waiter(&self, dir: Dir) -> bool {
        if self.limits.max_queue_sectors > 0 {
            let free = self.limits.nr_requests - self.allocated[0] - self.allocated[1];
            let quarter = self.limits.max_queue_sectors / 4;
            return free >= self.limits.batch_requests.min(self.limits.nr_requests / 4)
                && self.queued_sectors <= self.limits.max_queue_sectors - quarter;
        }
        self.allocated[dir as usize] < self.limits.nr_requests
    }

    /// Nobody waits for a request of this direction any more.
    pub fn no_waiters(&mut self, dir: Dir) {
        if self.allocated[dir as usize] + 1 < self.limits.nr_requests {
            self.full[dir as usize] = false;
        }
    }

    fn allocate(&mut self, bio: Bio, now: Nanos, rec: &mut Recorder<'_>) -> RqId {
        self.note_allocated(bio.dir);
        self.queued_sectors += u64::from(bio.nr_sectors);
        let id = self.bios.insert(bio);
        let rq = self.requests.insert(Request {
            sector: bio.sector,
            nr_sectors: bio.nr_sectors,
            dir: bio.dir,
            content: bio.content,
            sync: bio.sync,
            no_idle: bio.no_idle,
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
        rec.event(now, bio.call, What::GetRequest { rq });
        rq
    }

    fn insert(&mut self, id: RqId, now: Nanos, rec: &mut Recorder<'_>) {
        let rq = &mut self.requests[id];
        rq.inserted = now;
        rec.event(now, rq.call, What::Insert { rq: id });
        self.elevator(now, rec, |e, ctx| e.add(ctx, id));
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
        let waiting = self.allocated[0] + self.allocated[1] - self.in_driver;
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
        let nr_requests = self.elevator.len() as u32;
        rec.event(now, CallId::NONE, What::Unplug { cause, nr_requests });
        self.run(now, rec);
    }

    /// Gives the requests of a task's list to the elevator and runs the queue.
    pub fn flush_plug(&mut self, now: Nanos, list: &mut PlugList, cause: UnplugCause, rec: &mut Recorder<'_>) {
        if list.is_empty() {
            return;
        }
        let nr_requests = list.len() as u32;
        rec.event(now, self.requests[list[0]].call, What::Unplug { cause, nr_requests });
        let requests = &self.requests;
        list.sort_by_key(|&rq| requests[rq].sector);
        for rq in list.drain(..) {
            self.insert(rq, now, rec);
        }
        self.run(now, rec);
    }

    /// Issues requests while the queue is unplugged and the device has room.
    pub fn run(&mut self, now: Nanos, rec: &mut Recorder<'_>) {
        while !self.plugged && self.in_driver < self.depth && !self.elevator.is_empty() {
            let Some(id) = self.elevator(now, rec, |e, ctx| e.next(ctx)) else { break };
            self.in_driver += 1;
            let rq = &mut self.requests[id];
            rq.started = true;
            rq.issued = now;
            let Request { sector, nr_sectors, dir, content, call, .. } = *rq;
            let in_flight = self.in_driver as u16;
            rec.event(now, call, What::Issue { rq: id, dir, content, sector, nr_sectors, in_flight });
            if self.limits.command == Nanos::ZERO {
                self.command(id, now);
            } else {
                self.wakeups.push((now + self.limits.command, Wakeup::Command(id)));
            }
        }
    }

    /// The command of a request reaches the device.
    fn command(&mut self, id: RqId, now: Nanos) {
        let rq = &self.requests[id];
        let command = Command {
            tag: id.0,
            sector: rq.sector,
            nr_sectors: rq.nr_sectors,
            dir: rq.dir,
            flush: rq.flush,
            fua: rq.flush && rq.nr_sectors > 0,
        };
        // Let the device catch up first, so that it sees its own events in order of time.
        if self.device_at.is_some_and(|at| at <= now) {
            self.advance(now);
            self.interrupts(now);
        }
        self.device.submit(now, command);
        self.watch_device(now);
    }

    /// Takes what the device has done by now.
    fn advance(&mut self, now: Nanos) {
        while let Some(completion) = self.device.advance(now) {
            let tag = completion.tag as usize;
            if tag >= self.completions.len() {
                self.completions.resize(tag + 1, Completion::default());
            }
            self.completions[tag] = completion;
            self.done.push(RqId(completion.tag));
        }
    }

    /// Has the interrupts of what is done handled in a moment.
    fn interrupts(&mut self, now: Nanos) {
        let at = now + self.limits.interrupt;
        self.wakeups.extend(self.done.drain(..).map(|rq| (at, Wakeup::Interrupt(rq))));
    }

    fn watch_device(&mut self, now: Nanos) {
        let next = self.device.next();
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
                    self.advance(now);
                    self.device_at = None;
                    self.watch_device(now);
                    if self.limits.interrupt > Nanos::ZERO {
                        self.interrupts(now);
                    } else {
                        let mut done = std::mem::take(&mut self.done);
                        done.drain(..).for_each(|rq| self.complete(rq, now, rec));
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
                        let nr_requests = self.elevator.len() as u32;
                        rec.event(now, CallId::NONE, What::Unplug { cause: UnplugCause::Timer, nr_requests });
                        self.wakeups.push((now + self.limits.kblockd, Wakeup::Run));
                    }
                }
            }
            Wakeup::Run => self.run(now, rec),
        }
    }

    fn complete(&mut self, id: RqId, now: Nanos, rec: &mut Recorder<'_>) {
        let Request { call, dir, nr_sectors, nr_bios, first, .. } = self.requests[id];
        let Completion { media, seek, rotation, .. } = self.completions[id.0 as usize];
        if self.device.rotational() {
            let (seek_us, rotation_us) = ((seek.0 / 1000) as u32, (rotation.0 / 1000) as u32);
            rec.event(now, call, What::ServiceModel { rq: id, seek_us, rotation_us, media });
        }
        rec.event(now, call, What::Complete { rq: id, dir, nr_sectors });
        self.in_driver -= 1;
        self.elevator(now, rec, |e, ctx| e.completed(ctx, id));
        self.note_freed(dir);
        self.queued_sectors -= u64::from(nr_sectors);
        self.requests.release(id);
        let mut next = first;
        while next != BioId::NONE {
            let bio = self.bios[next];
            self.bios.release(next);
            self.finished.push(bio);
            next = bio.next;
        }
        // Bios are taken from the end, so the first must be there.
        let nr = nr_bios as usize;
        let len = self.finished.len();
        self.finished[len - nr..].reverse();
        self.run(now, rec);
    }

    /// A task of this context begins, with that many long seeks behind it.
    pub fn task_started(&mut self, context: IoContext, startup_seeks: u32) {
        self.elevator.task_started(context, startup_seeks);
    }

    /// A task of this context has ended.
    pub fn task_exited(&mut self, context: IoContext) {
        self.elevator.task_exited(context);
    }
}
