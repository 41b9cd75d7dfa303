//! No elevator (`none` of blk-mq): first in, first out.
//!
//! Requests wait in a software queue only while the driver takes no more, and leave in the order they came. A bio is
//! compared with the newest eight of them, both ends of each; two requests are never united.
//!
//! Source: Linux 5.x .. 6.12, `block/blk-merge.c`, `blk_bio_list_merge`. Deviations: one software queue, where the
//! kernel has one for each processor.

use super::{Build, Ctx, Elevator, Quirks};
use crate::event::{MergeKind, RqId};
use crate::origin::{Entry, Options, Origin};
use crate::request::Bio;
use crate::sorted::{Line, joins};
use crate::units::Hz;

/// Requests a bio is compared with.
const CHECKED: usize = 8;

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "none",
    summary: "first in, first out, merging with the newest eight requests (blk-mq)",
    origin: &[Origin {
        kernels: "4.0 .. 6.12",
        file: "block/blk-merge.c",
        function: "blk_bio_list_merge",
        notes: "one software queue instead of one for each processor",
    }],
    options: &[],
    conformance: "order and merge tables; the property test over all elevators",
    build,
};

fn build(_options: &Options, _hz: Hz) -> Box<dyn Elevator> {
    Box::new(SoftwareQueue { line: Line::default() })
}

#[derive(Clone, Debug)]
struct SoftwareQueue {
    line: Line<()>,
}

impl Elevator for SoftwareQueue {
    fn quirks(&self) -> Quirks {
        // Its list is short, and `nomerges=1` does not keep it from being looked through.
        Quirks { schedules: false, has_one_hit_cache: false, merges_on_insert: false, ..Quirks::SORTING }
    }

    fn merge(&mut self, ctx: &mut Ctx<'_>, bio: &Bio) -> Option<(RqId, MergeKind)> {
        let newest = self.line.entries().iter().rev().take(CHECKED);
        newest
            .take_while(|entry| !entry.flush)
            .find_map(|entry| joins(&ctx.requests[entry.rq], bio).map(|kind| (entry.rq, kind)))
    }

    fn merged(&mut self, ctx: &mut Ctx<'_>, rq: RqId, _kind: MergeKind) {
        if let Some(index) = self.line.position(rq) {
            self.line.grown(index, ctx.requests);
        }
    }

    fn neighbour(&self, _ctx: &Ctx<'_>, _rq: RqId, _side: MergeKind) -> Option<RqId> {
        None
    }

    fn merged_requests(&mut self, ctx: &mut Ctx<'_>, kept: RqId, gone: RqId) {
        if let Some(index) = self.line.position(gone) {
            self.line.remove(index);
        }
        self.merged(ctx, kept, MergeKind::Back);
    }

    fn add(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        self.line.push_back(ctx.requests, rq, ());
    }

    fn next(&mut self, _ctx: &mut Ctx<'_>) -> Option<RqId> {
        self.line.pop_front()
    }

    fn is_empty(&self) -> bool {
        self.line.entries().is_empty()
    }

    fn len(&self) -> usize {
        self.line.entries().len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Driver;
    use crate::event::Dir::Read;

    #[test]
    fn only_the_newest_eight_are_merged_into() {
        for (others, requests) in [(7, 8), (8, 10)] {
            let mut driver = Driver::new("none", 250);
            driver.submit(Read, 100, 8, 0);
            (0..others).for_each(|i| driver.submit(Read, 10_000 + 100 * i, 8, 0));
            driver.submit(Read, 108, 8, 0);
            assert_eq!(driver.elevator.len(), requests, "{others} requests in between");
        }
    }

    #[test]
    fn neighbours_are_not_united_and_nothing_is_sorted() {
        let mut driver = Driver::new("none", 250);
        for sector in [116, 100, 108, 50] {
            driver.submit(Read, sector, 8, 0);
        }
        assert_eq!(driver.drain(), [116, 100, 50]);
    }
}
