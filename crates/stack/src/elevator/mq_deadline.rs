//! mq-deadline of Linux 6.1.
//!
//! Reads and writes wait in a tree by sector and a list by age each. A batch is up to `fifo_batch` requests in sweep
//! order. A new batch goes to the reads unless writes have been passed over `writes_starved` times; it starts with the
//! oldest request of its direction if that is overdue or if no sweep of that direction is going on.
//!
//! Source: Linux 6.1, `block/mq-deadline.c`, `__dd_dispatch_request`. Deviations: requests carry no I/O priority yet,
//! so there is one class, and ageing between classes (`prio_aging_expire`) has nothing to do. Flushes pass the scheduler;
//! on a queue whose flushes are ordered, one waits until all requests queued before it have left, and holds up nothing
//! behind it.

use super::deadline::{self, Deadline, Rules};
use super::{Build, Ctx, Elevator};
use crate::event::{Dir, MergeKind, RqId};
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::request::Bio;
use crate::sorted::slot;
use crate::units::Hz;
use std::collections::VecDeque;

/// The tunables of all deadline elevators, and the limit on tags.
const OPTIONS: &[OptionSpec] = &[
    deadline::OPTIONS[0],
    deadline::OPTIONS[1],
    deadline::OPTIONS[2],
    deadline::OPTIONS[3],
    deadline::OPTIONS[4],
    OptionSpec::number(
        "async_depth",
        0,
        (0, 1 << 20),
        "scheduler tags for all but synchronous reads; 0: all of them (6.1.192; 3/4 in 5.8 and early 6.1)",
    ),
];

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "mq-deadline",
    summary: "sorted reads and writes with expiry, in batches of 16 (blk-mq)",
    origin: &[Origin {
        kernels: "5.18 .. 6.2",
        file: "block/mq-deadline.c",
        function: "__dd_dispatch_request",
        notes: "dispatch of one class as in 6.1; no priorities, so no ageing; 6.3 keeps the sweep as a position",
    }],
    options: OPTIONS,
    conformance: "order tables; no kernel vectors",
    build,
};

fn build(options: &Options, hz: Hz) -> Box<dyn Elevator> {
    let rules =
        Rules { contiguous_batches: false, restart_at_lowest: false, alias_leaves: false, due_is_expired: true };
    Box::new(MqDeadline {
        core: Deadline::new(options, hz, rules),
        async_depth: options.unsigned("async_depth") as u32,
        flushes: VecDeque::new(),
        waiting: VecDeque::from([0]),
        first_epoch: 0,
        epochs: Vec::new(),
    })
}

/// An epoch is the time between two flushes. A flush may go once nothing of the epochs before it waits.
#[derive(Clone, Debug)]
struct MqDeadline {
    core: Deadline,
    /// Tags for all but synchronous reads; 0 for no limit.
    async_depth: u32,
    /// Flushes that wait, one at the end of each epoch but the current.
    flushes: VecDeque<RqId>,
    /// Requests that wait, by epoch.
    waiting: VecDeque<u32>,
    /// Number of the first of them.
    first_epoch: u64,
    /// Epoch of each request.
    epochs: Vec<u64>,
}

impl MqDeadline {
    fn left(&mut self, rq: RqId) {
        let epoch = self.epochs[rq.0 as usize] - self.first_epoch;
        self.waiting[epoch as usize] -= 1;
    }
}

impl Elevator for MqDeadline {
    fn merge(&mut self, ctx: &mut Ctx<'_>, bio: &Bio) -> Option<(RqId, MergeKind)> {
        self.core.merge(ctx, bio)
    }

    fn merged(&mut self, ctx: &mut Ctx<'_>, rq: RqId, kind: MergeKind) {
        self.core.merged(ctx, rq, kind);
    }

    fn neighbour(&self, ctx: &Ctx<'_>, rq: RqId, side: MergeKind) -> Option<RqId> {
        self.core.neighbour(ctx, rq, side)
    }

    fn merged_requests(&mut self, ctx: &mut Ctx<'_>, kept: RqId, gone: RqId) {
        self.core.merged_requests(ctx, kept, gone);
        // What remains must leave before the earlier of the two flushes that waited for its parts.
        let (a, b) = (self.epochs[kept.0 as usize], self.epochs[gone.0 as usize]);
        self.epochs[gone.0 as usize] = a.max(b);
        self.left(gone);
        self.epochs[kept.0 as usize] = a.min(b);
    }

    fn add(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        if ctx.requests[rq].flush {
            self.flushes.push_back(rq);
            self.waiting.push_back(0);
            return;
        }
        *slot(&mut self.epochs, rq) = self.first_epoch + self.flushes.len() as u64;
        self.waiting[self.flushes.len()] += 1;
        self.core.add(ctx, rq);
    }

    fn next(&mut self, ctx: &mut Ctx<'_>) -> Option<RqId> {
        if self.waiting[0] == 0
            && let Some(flush) = self.flushes.pop_front()
        {
            self.waiting.pop_front();
            self.first_epoch += 1;
            return Some(flush);
        }
        let rq = self.core.next(ctx)?;
        self.left(rq);
        Some(rq)
    }

    fn completed(&mut self, _ctx: &mut Ctx<'_>, _rq: RqId) {}

    fn depth_limit(&self, bio: &Bio, nr_tags: u32) -> u32 {
        if bio.dir == Dir::Read || self.async_depth == 0 { nr_tags } else { self.async_depth.min(nr_tags) }
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.core.len() + self.flushes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::deadline::tests::check_batches;
    use super::super::testing::Driver;
    use crate::event::Dir::Read;

    #[test]
    fn batches_of_sixteen_start_with_the_oldest_and_go_two_to_one() {
        check_batches("mq-deadline", 250);
    }

    #[test]
    fn a_request_is_overdue_on_its_tick() {
        for (ms, second) in [(499, 900), (500, 100)] {
            let mut driver = Driver::with("mq-deadline", 1000, &[("fifo_batch", 1)]);
            for sector in [500, 100, 900] {
                driver.submit(Read, sector, 8, 0);
            }
            assert_eq!(driver.step(), 500);
            driver.wait_ms(ms);
            assert_eq!(driver.step(), second, "after {ms} ms");
        }
    }

    #[test]
    fn a_flush_waits_for_what_was_queued_before_it_and_holds_up_nothing() {
        let mut driver = Driver::new("mq-deadline", 250);
        driver.submit(Read, 100, 8, 0);
        driver.submit(Read, 300, 8, 0);
        driver.submit_flush();
        driver.submit(Read, 200, 8, 0);
        driver.submit(Read, 400, 8, 0);
        assert_eq!(driver.drain(), [100, 200, 300, 0, 400]);
    }
}
