//! mq-deadline of Linux 6.5 and later.
//!
//! Reads and writes wait in a tree by sector and a list by age each. A batch is up to `fifo_batch` requests in sweep
//! order: the first at the place of the last request of its direction, or behind it, whenever it came. A new batch goes
//! to the reads unless writes have been passed over `writes_starved` times; it starts with the oldest request of its
//! direction if that is overdue or if nothing waits behind the place where that direction's sweep was.
//!
//! Source: Linux 6.5 .. 6.18, `block/mq-deadline.c`, `__dd_dispatch_request` and `deadline_from_pos`, as the change
//! that introduced the latter describes it (June 2023). Deviations: requests carry no I/O priority yet, so there is one
//! class, and ageing between classes (`prio_aging_expire`) has nothing to do. Flushes pass the scheduler; on a queue
//! whose flushes are ordered, one waits until all requests queued before it have left, and holds up nothing behind it.

use super::deadline::{self, Deadline, Rules};
use super::{Build, Ctx, Elevator, Quirks};
use crate::event::{Dir, MergeKind, RqId};
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::request::Bio;
use crate::sorted::slot;
use crate::units::Hz;
use std::collections::VecDeque;

/// The tunables of all deadline elevators, and the limit on tags.
pub(super) const OPTIONS: &[OptionSpec] = &[
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
    summary: "sorted reads and writes with expiry, in batches of 16 (blk-mq, 6.5 and later)",
    origin: &[Origin {
        kernels: "6.5 .. 6.18",
        file: "block/mq-deadline.c",
        function: "__dd_dispatch_request",
        notes: "dispatch of one class; no priorities, so no ageing",
    }],
    options: OPTIONS,
    conformance: "order tables, and random arrivals against a naive list; no kernel vectors",
    build: |options, hz| build(options, hz, true),
};

/// An mq-deadline that keeps its sweep as a position, or as the request that came next.
pub(super) fn build(options: &Options, hz: Hz, sweep_is_position: bool) -> Box<dyn Elevator> {
    let rules = Rules {
        contiguous_batches: false,
        restart_at_lowest: false,
        alias_leaves: false,
        due_is_expired: true,
        sweep_is_position,
    };
    Box::new(MqDeadline {
        core: Deadline::new(options, hz, rules),
        async_depth: options.unsigned("async_depth") as u32,
        flushes: VecDeque::new(),
        passed: VecDeque::new(),
        waiting: 0,
        epoch: 0,
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
    /// Requests that wait, by epoch, without the current.
    passed: VecDeque<u32>,
    /// Requests of the current epoch that wait.
    waiting: u32,
    /// Number of the current epoch.
    epoch: u64,
    /// Epoch of each request.
    epochs: Vec<u64>,
}

impl MqDeadline {
    #[inline]
    fn left(&mut self, rq: RqId) {
        match (self.epoch - self.epochs[rq.0 as usize]) as usize {
            0 => self.waiting -= 1,
            ago => {
                let place = self.passed.len() - ago;
                self.passed[place] -= 1;
            }
        }
    }
}

impl Elevator for MqDeadline {
    fn quirks(&self) -> Quirks {
        Quirks::SORTING
    }

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
            self.passed.push_back(self.waiting);
            self.waiting = 0;
            self.epoch += 1;
            return;
        }
        *slot(&mut self.epochs, rq) = self.epoch;
        self.waiting += 1;
        self.core.add(ctx, rq);
    }

    fn next(&mut self, ctx: &mut Ctx<'_>) -> Option<RqId> {
        if let Some(0) = self.passed.front() {
            self.passed.pop_front();
            return self.flushes.pop_front();
        }
        let rq = self.core.next(ctx)?;
        self.left(rq);
        Some(rq)
    }

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
    use super::super::testing::Driver;
    use crate::event::Dir::{Read, Write};

    #[test]
    fn each_direction_goes_on_where_it_was_and_the_first_batch_is_of_writes() {
        let mut driver = Driver::new("mq-deadline", 250);
        for i in 0..64 {
            driver.submit(Read, 1000 * i, 8, 0);
            driver.submit(Write, 1000 * i + 500, 8, 0);
        }
        let sectors: Vec<u64> = (0..128).map(|_| driver.step()).collect();
        let dirs: String = sectors.iter().map(|sector| if sector % 1000 == 0 { 'R' } else { 'W' }).collect();
        // The last direction of a new queue is write, and something waits behind its place, which is the start.
        let [r, w] = ["R", "W"].map(|dir| dir.repeat(16));
        assert_eq!(dirs, [&*w, &*r, &*r, &*w, &*r, &*r, &*w, &*w].concat());
        let reads: Vec<u64> = sectors.into_iter().filter(|sector| sector % 1000 == 0).collect();
        assert!(reads.is_sorted(), "{reads:?}");
    }

    #[test]
    fn a_sweep_that_has_ended_starts_with_the_oldest() {
        let mut driver = Driver::new("mq-deadline", 250);
        driver.submit(Read, 1000, 8, 0);
        assert_eq!(driver.step(), 1000);
        for sector in [500, 100, 900, 300] {
            driver.submit(Read, sector, 8, 0);
        }
        assert_eq!(driver.drain(), [500, 900, 100, 300]);
    }

    #[test]
    fn a_request_is_overdue_on_its_tick() {
        for (ms, second) in [(499, 900), (500, 100)] {
            let mut driver = Driver::with("mq-deadline", 1000, &[("fifo_batch", 1)]);
            driver.submit(Read, 500, 8, 0);
            assert_eq!(driver.step(), 500);
            driver.submit(Read, 100, 8, 0);
            driver.submit(Read, 900, 8, 0);
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
