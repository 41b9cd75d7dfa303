//! The first complete fair queueing elevator (Linux 2.6.6): shares by thread group, without time slices.
//!
//! Every thread group with waiting requests has a queue sorted by sector, reads and writes together. A queue that
//! becomes busy goes to the head of the round-robin list. When the dispatch list is empty it is refilled: as many times
//! as there are busy queues, and again until `quantum` requests have been moved, the lowest request of the first queue
//! is taken; the list is never rotated. Each is put into the dispatch list roughly by sector: before the last element
//! if it is below the first, else before the element nearest the tail that is not below it, else at the tail. With one
//! queue that is ascending order, with several it is not. Without expiry, idling or preference for reads.
//!
//! Source: Linux 2.6.5-bk2 .. 2.6.6, `drivers/block/cfq-iosched.c`, `cfq_dispatch_requests`. Deviations: the request
//! an IDE driver is working on does not stay at the head of the dispatch list here, which matters only to a request
//! that goes there because another one with its start sector arrives.

use super::{Build, Ctx, Elevator, Quirks};
use crate::event::{Dir, MergeKind, RqId};
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::request::{Bio, IoContext, Requests};
use crate::sorted::{MergeHints, Sorted, joins, slot};
use crate::units::Hz;
use std::collections::VecDeque;

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "cfq-2.6.6",
    summary: "round robin over thread groups, without slices or idling (Linux 2.6.6)",
    origin: &[Origin {
        kernels: "2.6.5-bk2 .. 2.6.6",
        file: "drivers/block/cfq-iosched.c",
        function: "cfq_dispatch_requests",
        notes: "refill without rotation and the order of the dispatch list as in the source",
    }],
    options: &[
        OptionSpec::number("quantum", 4, (1, 1024), "requests moved at a time"),
        OptionSpec::number("queued", 8, (0, 8192), "requests held back from the share of each queue"),
        OptionSpec::number("max_queued", 128, (1, 8192), "most requests of a direction in one queue"),
        OptionSpec::number("nr_requests", 8192, (4, 8192), "request limit imposed on the queue"),
    ],
    conformance: "order tables; the property test over all elevators; no kernel vectors",
    build,
};

fn build(options: &Options, _hz: Hz) -> Box<dyn Elevator> {
    Box::new(Cfq {
        quantum: options.unsigned("quantum"),
        queued: options.get("queued"),
        max_queued: options.get("max_queued"),
        nr_requests: options.get("nr_requests"),
        queues: Vec::new(),
        round_robin: Vec::new(),
        hints: MergeHints::default(),
        data: Vec::new(),
        dispatch: VecDeque::new(),
        len: 0,
    })
}

/// The queue of one thread group.
#[derive(Clone, Debug, Default)]
struct Queue {
    tree: Sorted,
    /// Waiting reads and writes.
    queued: [i64; 2],
    /// Whether it is in the round-robin list.
    busy: bool,
}

#[derive(Copy, Clone, Debug, Default)]
struct Data {
    key: u64,
    group: usize,
}

#[derive(Clone, Debug)]
struct Cfq {
    quantum: u64,
    queued: i64,
    max_queued: i64,
    nr_requests: i64,
    /// By thread group.
    queues: Vec<Queue>,
    /// Busy thread groups; the first of the kernel's list is the last here.
    round_robin: Vec<usize>,
    hints: MergeHints,
    data: Vec<Data>,
    dispatch: VecDeque<RqId>,
    len: usize,
}

impl Cfq {
    fn queue_of(&mut self, group: usize) -> &mut Queue {
        if group >= self.queues.len() {
            self.queues.resize_with(group + 1, Queue::default);
        }
        &mut self.queues[group]
    }

    fn tree_insert(&mut self, requests: &Requests, rq: RqId) {
        let (group, dir, key) = (self.data[rq.0 as usize].group, requests[rq].dir as usize, requests[rq].sector.0);
        while let Some(alias) = self.queues[group].tree.at(key) {
            self.move_to_dispatch(requests, alias);
        }
        self.data[rq.0 as usize].key = key;
        self.queues[group].tree.insert(key, rq);
        self.queues[group].queued[dir] += 1;
    }

    fn tree_remove(&mut self, requests: &Requests, rq: RqId) {
        let Data { key, group } = self.data[rq.0 as usize];
        let queue = &mut self.queues[group];
        let was_there = queue.tree.remove(key, rq);
        debug_assert!(was_there, "request {} does not wait here", rq.0);
        queue.queued[requests[rq].dir as usize] -= 1;
    }

    fn reposition(&mut self, requests: &Requests, rq: RqId) {
        self.hints.merged(requests, rq);
        if self.data[rq.0 as usize].key != requests[rq].sector.0 {
            self.tree_remove(requests, rq);
            self.tree_insert(requests, rq);
        }
    }

    /// Puts `rq` into the dispatch list where the kernel's half-hearted sort puts it.
    fn move_to_dispatch(&mut self, requests: &Requests, rq: RqId) {
        self.tree_remove(requests, rq);
        self.hints.removed(rq);
        let sector = requests[rq].sector;
        let place = match self.dispatch.front() {
            None => 0,
            Some(&first) if sector < requests[first].sector => self.dispatch.len() - 1,
            Some(_) => {
                let at = self.dispatch.iter().rposition(|&other| sector <= requests[other].sector);
                at.unwrap_or(self.dispatch.len())
            }
        };
        self.dispatch.insert(place, rq);
    }

    /// Takes empty queues off the list. Only the first can have become empty by a dispatch.
    fn put_if_empty(&mut self, group: usize) -> bool {
        let queue = &mut self.queues[group];
        if !queue.tree.is_empty() || !queue.busy {
            return false;
        }
        queue.busy = false;
        self.round_robin.retain(|&busy| busy != group);
        true
    }

    /// Refills the dispatch list. Says whether anything was moved.
    fn refill(&mut self, requests: &Requests) -> bool {
        let mut moved = 0;
        loop {
            let mut alive = 0;
            for _ in 0..self.round_robin.len() {
                let Some(&group) = self.round_robin.last() else { break };
                let Some(lowest) = self.queues[group].tree.first() else { break };
                self.move_to_dispatch(requests, lowest);
                moved += 1;
                if !self.put_if_empty(group) {
                    alive += 1;
                }
            }
            if moved >= self.quantum || alive == 0 {
                return moved > 0;
            }
        }
    }
}

impl Elevator for Cfq {
    fn quirks(&self) -> Quirks {
        Quirks::SORTING
    }

    fn merge(&mut self, ctx: &mut Ctx<'_>, bio: &Bio) -> Option<(RqId, MergeKind)> {
        if bio.flush {
            return None;
        }
        if let Some(found) = self.hints.find(ctx.requests, bio) {
            return Some(found);
        }
        // A request is joined at its front only by its own thread group.
        let queue = self.queues.get(bio.context.thread_group as usize)?;
        let rq = queue.tree.at(bio.sector.plus(u64::from(bio.nr_sectors)).0)?;
        (joins(&ctx.requests[rq], bio) == Some(MergeKind::Front)).then_some((rq, MergeKind::Front))
    }

    fn merged(&mut self, ctx: &mut Ctx<'_>, rq: RqId, _kind: MergeKind) {
        self.reposition(ctx.requests, rq);
    }

    fn neighbour(&self, _ctx: &Ctx<'_>, rq: RqId, side: MergeKind) -> Option<RqId> {
        let Data { key, group } = self.data[rq.0 as usize];
        match side {
            MergeKind::Back => self.queues[group].tree.after(key, rq),
            MergeKind::Front => self.queues[group].tree.before(key, rq),
        }
    }

    fn merged_requests(&mut self, ctx: &mut Ctx<'_>, kept: RqId, gone: RqId) {
        self.hints.removed(gone);
        self.tree_remove(ctx.requests, gone);
        self.len -= 1;
        self.put_if_empty(self.data[gone.0 as usize].group);
        self.reposition(ctx.requests, kept);
    }

    fn add(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        self.len += 1;
        if ctx.requests[rq].flush {
            while self.refill(ctx.requests) {}
            self.hints.forget_last();
            self.dispatch.push_back(rq);
            return;
        }
        let group = ctx.requests[rq].context.thread_group as usize;
        *slot(&mut self.data, rq) = Data { key: 0, group };
        self.queue_of(group);
        self.tree_insert(ctx.requests, rq);
        self.hints.added(ctx.requests, rq);
        if !self.queues[group].busy {
            self.queues[group].busy = true;
            self.round_robin.push(group);
        }
    }

    fn next(&mut self, ctx: &mut Ctx<'_>) -> Option<RqId> {
        if self.dispatch.is_empty() {
            self.refill(ctx.requests);
        }
        let rq = self.dispatch.pop_front()?;
        self.len -= 1;
        Some(rq)
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn len(&self) -> usize {
        self.len
    }

    fn may_queue(&self, context: IoContext, dir: Dir) -> Option<bool> {
        let (busy, queue) = (self.round_robin.len() as i64, self.queues.get(context.thread_group as usize));
        match queue {
            Some(queue) if queue.busy => {
                let limit = ((self.nr_requests - self.queued) / busy).max(3).min(self.max_queued);
                Some(queue.queued[dir as usize] <= limit)
            }
            _ => Some(true),
        }
    }

    fn nr_requests(&self) -> Option<u32> {
        Some(self.nr_requests as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Driver;
    use crate::event::Dir::{Read, Write};
    use crate::request::IoContext;

    #[test]
    fn the_dispatch_order_is_quirky() {
        for (why, arrivals, order) in [
            (
                "one queue: ascending, four at a time",
                vec![(0, 500), (0, 100), (0, 300), (0, 200), (0, 400), (0, 50)],
                vec![50, 100, 200, 300, 400, 500],
            ),
            (
                // Group 2 came last and is first. The first turn takes 10, 20 and 30 of it and empties it, the second
                // takes 5 and 15 of group 1: 5 is below the first and goes before the last; 15 goes before 30, the
                // first from the tail that is not below it.
                "three queues: the newest is emptied first",
                vec![(0, 1), (0, 2), (1, 5), (1, 15), (2, 10), (2, 20), (2, 30)],
                vec![10, 20, 5, 15, 30, 1, 2],
            ),
            (
                // 200, then 300 behind it, then 100: below the first, so it goes before the last.
                "three queues of one request each: the lowest does not get to the front",
                vec![(0, 100), (1, 300), (2, 200)],
                vec![200, 100, 300],
            ),
        ] {
            let mut driver = Driver::new("cfq-2.6.6", 1000);
            arrivals.iter().for_each(|&(task, sector)| driver.submit(Read, sector * 16, 8, task));
            let served: Vec<u64> = driver.drain().iter().map(|sector| sector / 16).collect();
            assert_eq!(served, order, "{why}");
        }
    }

    #[test]
    fn a_request_is_joined_at_its_front_by_its_own_group_only() {
        for (task, requests) in [(0, 2), (1, 3)] {
            let mut driver = Driver::new("cfq-2.6.6", 1000);
            driver.submit(Read, 5000, 8, 0);
            driver.submit(Read, 108, 8, 0);
            driver.submit(Read, 100, 8, task);
            assert_eq!(driver.elevator.len(), requests, "task {task}");
        }
    }

    #[test]
    fn a_queue_may_have_its_share_of_each_direction() {
        let mut driver = Driver::with("cfq-2.6.6", 1000, &[("nr_requests", 28)]);
        for i in 0..11 {
            driver.submit(Read, 100 * i, 8, 0);
        }
        driver.submit(Read, 7, 8, 1);
        let may = |task, dir| driver.elevator.may_queue(IoContext { task, thread_group: task }, dir);
        // (28 - 8) / 2 queues = 10.
        assert_eq!(
            (may(0, Read), may(0, Write), may(1, Read), may(9, Read)),
            (Some(false), Some(true), Some(true), Some(true))
        );
    }
}
