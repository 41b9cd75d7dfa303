//! A queue of requests, the task that feeds it, and what is remembered of both.

use super::{LONG_AGO, Now, SEEK_SECTORS, SMALL_SECTORS, Tick};
use crate::event::RqId;
use crate::request::Request;
use crate::sorted::{Fifo, Sorted};
use crate::units::Nanos;

/// Far requests among the last 32 with which a queue counts as seeking.
const SEEKY: u32 = 19;

/// How long a queue stays empty after a completion.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Think {
    pub(super) last_end: Nanos,
    total: u64,
    samples: u64,
    pub(super) mean: u64,
}

impl Think {
    pub(super) fn sample(&mut self, now: Nanos, most: Nanos) {
        let took = now.saturating_sub(self.last_end).0.min(most.0);
        self.samples = (7 * self.samples + 256) / 8;
        self.total = (7 * self.total + 256 * took) / 8;
        self.mean = (self.total + 128) / self.samples;
    }

    pub(super) fn is_long(&self, limit: Nanos) -> bool {
        self.samples > 80 && self.mean > limit.0
    }
}

/// Weight raising of a queue; the factor itself is in its account.
#[derive(Copy, Clone, Debug)]
pub(super) struct Raising {
    /// How long it lasts, ticks.
    pub(super) length: Tick,
    /// When it began, or the last one ended.
    pub(super) since: Tick,
    /// When the interactive raising began that a soft real-time one has interrupted.
    pub(super) interactive_since: Tick,
    /// Sectors served meanwhile.
    pub(super) service: i64,
}

/// How many requests of others go to the device while a queue is waited for.
#[derive(Copy, Clone, Debug)]
pub(super) struct Injection {
    pub(super) limit: u32,
    pub(super) lowered: Tick,
    /// Time from arrival to completion without any; 0: not known.
    pub(super) baseline: Nanos,
}

/// How much of its time a task has nothing to do here.
#[derive(Copy, Clone, Debug)]
pub(super) struct Intensity {
    pub(super) since: Nanos,
    pub(super) idle: Nanos,
    pub(super) io_bound: bool,
}

/// State that a queue gives back to its task when several have shared one and part again.
#[derive(Copy, Clone, Debug)]
pub(super) struct Traits {
    pub(super) short_think: bool,
    pub(super) think: Think,
    pub(super) intensity: Intensity,
    pub(super) injection: Injection,
    pub(super) raise: u64,
    pub(super) raising: Raising,
    pub(super) in_large_burst: bool,
    pub(super) in_burst_list: bool,
}

/// The facts about a task.
#[derive(Clone, Debug, Default)]
pub(super) struct Task {
    /// Its queues: asynchronous, synchronous.
    pub(super) queues: [Option<usize>; 2],
    /// Its requests that are not done.
    pub(super) requests: u32,
    /// The queue that its own may be united with for good.
    pub(super) stable_with: Option<usize>,
    pub(super) stably_merged: bool,
    pub(super) saved: Option<Traits>,
}

#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) used: bool,
    pub(super) sync: bool,
    pub(super) tree: Sorted,
    pub(super) fifo: Fifo,
    pub(super) next: Option<RqId>,
    /// Requests that wait here, and that the driver has.
    pub(super) waiting: u32,
    pub(super) in_driver: u32,
    /// Requests that name this queue.
    pub(super) allocated: u32,
    pub(super) max_budget: i64,
    /// End of its time in service; once it is out and empty: since when.
    pub(super) timeout: Tick,
    pub(super) busy: bool,
    pub(super) just_created: bool,
    /// Its timer runs: it is empty, in service, and waited for.
    pub(super) awaited: bool,
    /// It went out empty, and nothing forbids to go on with the same budget.
    pub(super) may_go_on: bool,
    /// The oldest request has been looked at in this turn.
    pub(super) fifo_seen: bool,
    pub(super) short_think: bool,
    pub(super) in_large_burst: bool,
    pub(super) in_burst_list: bool,
    /// Several tasks use it; they should part.
    pub(super) shared: bool,
    pub(super) parts: bool,
    pub(super) soft_update: bool,
    /// The last 32 requests, 1 for a far one.
    pub(super) seeks: u32,
    pub(super) last_pos: u64,
    pub(super) think: Think,
    pub(super) intensity: Intensity,
    pub(super) created: Tick,
    pub(super) first_io: Tick,
    pub(super) split: Tick,
    pub(super) raising: Raising,
    /// Before then its requests come too fast for soft real time.
    pub(super) soft_start: Tick,
    pub(super) backlogged: Tick,
    pub(super) backlog_service: i64,
    pub(super) injection: Injection,
    /// The queue whose completions it waits for; a candidate, how often it was, and since when.
    pub(super) waker: Option<usize>,
    pub(super) perhaps_waker: Option<usize>,
    pub(super) wakes: u32,
    pub(super) wakes_since: Nanos,
    /// Queues that wait for this one, the latest first.
    pub(super) woken: Vec<usize>,
    /// The queue that takes over its tasks.
    pub(super) merges_into: Option<usize>,
    /// Tasks that use it, or will.
    pub(super) tasks: u32,
    /// Tasks that may be united with it for good.
    pub(super) stable_refs: u32,
    /// The only task.
    pub(super) owner: Option<u32>,
}

impl Queue {
    pub(super) fn new(sync: bool, max_budget: i64, now: Now) -> Queue {
        Queue {
            used: true,
            sync,
            tree: Sorted::default(),
            fifo: Fifo::default(),
            next: None,
            waiting: 0,
            in_driver: 0,
            allocated: 0,
            max_budget: 2 * max_budget / 3,
            timeout: LONG_AGO,
            busy: false,
            just_created: sync,
            awaited: false,
            may_go_on: false,
            fifo_seen: false,
            short_think: sync,
            in_large_burst: false,
            in_burst_list: false,
            shared: false,
            parts: false,
            soft_update: false,
            // The first request is far in all likelihood.
            seeks: 1,
            last_pos: 0,
            think: Think { last_end: now.at, ..Think::default() },
            // It is made a moment before it has something.
            intensity: Intensity { since: now.at.saturating_sub(Nanos(1)), idle: Nanos::ZERO, io_bound: true },
            created: now.tick,
            first_io: 0,
            split: LONG_AGO,
            raising: Raising { length: 0, since: now.tick, interactive_since: LONG_AGO, service: 0 },
            soft_start: now.tick,
            backlogged: 0,
            backlog_service: 0,
            injection: Injection { limit: 0, lowered: now.tick, baseline: Nanos::ZERO },
            waker: None,
            perhaps_waker: None,
            wakes: 0,
            wakes_since: Nanos::ZERO,
            woken: Vec::new(),
            merges_into: None,
            tasks: 0,
            stable_refs: 0,
            owner: None,
        }
    }

    pub(super) fn seeky(&self) -> bool {
        self.seeks.count_ones() > SEEKY
    }

    /// Nothing but far requests: never soft real time.
    pub(super) fn only_seeks(&self) -> bool {
        self.seeks == u32::MAX
    }
}

/// Whether a request is far from a position (0: none yet). On flash only small ones are.
pub(super) fn is_far(from: u64, request: &Request, rotational: bool) -> bool {
    from != 0 && request.sector.0.abs_diff(from) > SEEK_SECTORS && (rotational || request.nr_sectors < SMALL_SECTORS)
}
