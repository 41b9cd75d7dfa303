//! mq-deadline of Linux 6.5 and later.
//!
//! Reads and writes wait in a tree by sector and a list by age each. A batch is up to `fifo_batch` requests in sweep
//! order: the first at the place of the last request of its direction, or behind it, whenever it came. A new batch goes
//! to the reads unless writes have been passed over `writes_starved` times; it starts with the oldest request of its
//! direction if that is overdue or if nothing waits behind the place where that direction's sweep was. Each class of
//! priority has lists of its own; a class waits until the device has completed everything of those above it, but for
//! requests older than `prio_aging_expire`.
//!
//! Source: Linux 6.5 .. 6.18, `block/mq-deadline.c`, `__dd_dispatch_request` and `deadline_from_pos`, as the change
//! that introduced the latter describes it (June 2023). Deviations: levels within a class do not keep bios apart; of
//! two waiting requests with one start, which happens if they overlap, the older one is offered to a bio that ends
//! there, in the kernel the one that is higher in its tree. Flushes pass the scheduler; on a queue whose flushes are
//! ordered, one waits until all requests queued before it have left, and holds up nothing behind it.

use super::deadline::{self, Deadline, Rules, Sweep};
use super::{Build, Ctx, Elevator, Quirks};
use crate::event::{Dir, MergeKind, RqId};
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::request::{Bio, IoClass, NR_CLASSES};
use crate::sorted::slot;
use crate::tag_map::{Limit, Shape};
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
    OptionSpec::number(
        "prio_aging_expire_ms",
        10_000,
        (0, 1_000_000),
        "age at which requests of lower priority classes go first (5.14 and later)",
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
        notes: "dispatch, classes of priority and their ageing as in 6.12 and 7.2",
    }],
    options: OPTIONS,
    conformance: "order tables, a naive list, and `cargo xtask oracle`: the kernel's own code on random input",
    build: |options, hz| build(options, hz, Sweep::Position, Tags::Map),
};

/// The number that `async_depth` limits.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Tags {
    /// Nothing: there is none yet (until 5.13).
    Free,
    /// Words of the map of tags, in proportion.
    Word,
    /// The map.
    Map,
}

/// An mq-deadline whose sweeps go on, and whose writes take tags, like this.
pub(super) fn build(options: &Options, hz: Hz, sweep: Sweep, tags: Tags) -> Box<dyn Elevator> {
    let rules = Rules {
        contiguous_batches: false,
        restart_at_lowest: false,
        alias_leaves: false,
        due_is_expired: true,
        sweep,
        has_classes: tags != Tags::Free,
    };
    Box::new(MqDeadline {
        core: Deadline::new(options, hz, rules),
        has_classes: rules.has_classes,
        aging: deadline::ticks(options, hz, "prio_aging_expire_ms"),
        queued: [0; NR_CLASSES],
        async_depth: options.unsigned("async_depth") as u32,
        tags,
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
    has_classes: bool,
    /// Age in ticks at which requests of the lower classes go first.
    aging: u64,
    /// Requests of each class that wait, or that the device has.
    queued: [u32; NR_CLASSES],
    /// Tags for all but synchronous reads; 0 for no limit.
    async_depth: u32,
    tags: Tags,
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
    /// An old request of a lower class, else the next of the highest class that has any, even if it has nothing to
    /// give.
    #[inline]
    fn next_of_classes(&mut self, ctx: &mut Ctx<'_>) -> Option<RqId> {
        if self.queued.iter().filter(|queued| **queued > 0).count() >= 2 {
            let aged = |class| self.core.select(ctx.requests, class, ctx.now, self.aging);
            if let Some(rq) = (IoClass::BestEffort as usize..NR_CLASSES).find_map(aged) {
                return Some(rq);
            }
        }
        let class = self.queued.iter().position(|queued| *queued > 0)?;
        self.core.select(ctx.requests, class, ctx.now, 0)
    }

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
        Quirks { minds_completions: self.has_classes, ..Quirks::SORTING }
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
        self.queued[ctx.requests[gone].class as usize] -= 1;
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
        self.queued[ctx.requests[rq].class as usize] += 1;
        *slot(&mut self.epochs, rq) = self.epoch;
        self.waiting += 1;
        self.core.add(ctx, rq);
    }

    fn next(&mut self, ctx: &mut Ctx<'_>) -> Option<RqId> {
        if let Some(0) = self.passed.front() {
            self.passed.pop_front();
            return self.flushes.pop_front();
        }
        let rq = if self.has_classes { self.next_of_classes(ctx)? } else { self.core.next(ctx)? };
        self.left(rq);
        Some(rq)
    }

    fn completed(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        if !ctx.requests[rq].flush {
            self.queued[ctx.requests[rq].class as usize] -= 1;
        }
    }

    fn tag_limit(&mut self, _ctx: &mut Ctx<'_>, bio: &Bio, nr_tags: u32) -> Limit {
        let depth = if self.async_depth == 0 { nr_tags } else { self.async_depth };
        match self.tags {
            Tags::Map if bio.dir == Dir::Write => Limit::OfMap(depth),
            Tags::Word if bio.dir == Dir::Write => {
                Limit::OfWord((depth * Shape::new(nr_tags).of_word()).div_ceil(nr_tags))
            }
            _ => Limit::None,
        }
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

    /// As the kernel's own code has it (`cargo xtask oracle`).
    #[test]
    fn the_one_hit_cache_is_free_once_its_request_refused_a_bio() {
        let mut driver = Driver::with("mq-deadline", 250, &[("front_merges", 0)]);
        // 1024 sectors are the most.
        for (sector, nr_sectors) in [(5000, 1024), (4992, 8), (4984, 8)] {
            driver.submit(Read, sector, nr_sectors, 0);
        }
        assert_eq!(driver.drain(), [4984, 5000]);
    }

    /// As the kernel's own code has it, too.
    #[test]
    fn a_request_that_grew_at_its_front_is_found_behind_newer_ones_of_its_end() {
        let mut driver = Driver::new("mq-deadline", 250);
        for (dir, sector) in [(Read, 900), (Write, 900), (Read, 892), (Read, 100), (Read, 108), (Read, 908)] {
            driver.submit(dir, sector, 8, 0);
        }
        let mut sectors = driver.drain();
        sectors.sort_unstable();
        assert_eq!(sectors, [100, 892, 900, 908]);
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
