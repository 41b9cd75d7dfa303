//! Elevators: which waiting request the device gets next.
//!
//! An elevator is a pure state machine. The request queue (`block.rs`) does everything that is the same for all of
//! them: it allocates requests, checks sizes, joins bios to requests, plugs, and talks to the device. It asks the
//! elevator which request a bio could join, gives it requests, and asks for the next one. An elevator's dispatch list,
//! where its kernel has one, is the elevator's own.

use crate::event::{IdleEnd, MergeKind, RqId};
use crate::origin::{Entry, Options};
use crate::request::{Bio, IoContext, Requests};
use crate::units::{Hz, Nanos};

/// What an elevator may look at, and what it may ask for.
pub struct Ctx<'a> {
    /// Now.
    pub now: Nanos,
    /// The kernel's tick rate: elevators before 5.0 think in jiffies.
    pub hz: Hz,
    /// All requests of the queue.
    pub requests: &'a mut Requests,
    /// Requests the device has.
    pub in_driver: u32,
    /// The queue is plugged (only the 2.4 elevator looks).
    pub plugged: bool,
    /// Set by the elevator: run the queue soon, from the kernel's worker thread.
    pub kick: bool,
    /// Set by the elevator: a deliberate wait has begun.
    pub idle_started: bool,
    /// Set by the elevator: a deliberate wait has ended, and how.
    pub idle_ended: Option<IdleEnd>,
}

impl<'a> Ctx<'a> {
    /// A context in which nothing has been asked for yet.
    pub fn new(now: Nanos, hz: Hz, requests: &'a mut Requests) -> Ctx<'a> {
        Ctx { now, hz, requests, in_driver: 0, plugged: false, kick: false, idle_started: false, idle_ended: None }
    }

    /// The current tick.
    pub fn jiffies(&self) -> u64 {
        self.hz.at(self.now).0
    }
}

/// The rules of one elevator of one kernel. Order of calls for a request: `merge` (for its bio; no), `add`, perhaps
/// `merged` / `merged_requests`, `next` (yes), `completed`.
pub trait Elevator {
    /// The request that `bio` could join, and at which end. The queue checks the size afterwards, and calls
    /// [`Elevator::merged`] if the bio has been joined. Started, flush and `no_merge` requests must not be offered.
    fn merge(&mut self, ctx: &mut Ctx<'_>, bio: &Bio) -> Option<(RqId, MergeKind)>;

    /// A bio has joined `rq` at the end `kind`; the request's sector and length are already the new ones.
    fn merged(&mut self, ctx: &mut Ctx<'_>, rq: RqId, kind: MergeKind);

    /// The waiting request just before (`Front`) or after (`Back`) `rq` in the elevator's order, which the queue may then
    /// try to unite with it.
    fn neighbour(&self, ctx: &Ctx<'_>, rq: RqId, side: MergeKind) -> Option<RqId>;

    /// `gone` has been united with `kept` and will not be dispatched. The two requests' sectors and lengths are already
    /// the new ones; `gone` keeps its old sector so that it can be found.
    fn merged_requests(&mut self, ctx: &mut Ctx<'_>, kept: RqId, gone: RqId);

    /// A new request is to be queued.
    fn add(&mut self, ctx: &mut Ctx<'_>, rq: RqId);

    /// The request that the driver shall start now; it leaves the elevator. `None`: nothing waits, or waiting is better
    /// ([`Elevator::is_empty`] tells which).
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Option<RqId>;

    /// The device has completed `rq`. Called before the driver asks for the next request, and before the submitter runs.
    fn completed(&mut self, ctx: &mut Ctx<'_>, rq: RqId);

    /// Nothing waits here (requests the driver has do not count).
    fn is_empty(&self) -> bool;

    /// Requests that wait here.
    fn len(&self) -> usize;

    /// When [`Elevator::on_timer`] wants to be called.
    fn timer(&self) -> Option<Nanos> {
        None
    }

    /// The time given by [`Elevator::timer`] has come. Set `ctx.kick` if the queue should be run.
    fn on_timer(&mut self, _ctx: &mut Ctx<'_>) {}

    /// Whether `context` may have a request although none is free (`may_queue`), `None` for no opinion.
    fn may_queue(&self, _context: IoContext) -> Option<bool> {
        None
    }

    /// A task has ended.
    fn task_exited(&mut self, _context: IoContext) {}

    /// The request limit that this elevator imposes on the queue (the first CFQ raises it), if any.
    fn nr_requests(&self) -> Option<u32> {
        None
    }
}

/// Makes an elevator for a kernel with the given tick rate.
pub type Build = fn(&Options, Hz) -> Box<dyn Elevator>;

/// Every elevator.
pub const ELEVATORS: &[&Entry<Build>] = &[];
