//! The no-op elevator of Linux 2.6.6: first in, first out, with merging.
//!
//! Requests leave in the order they came. A bio first tries the request last merged into, then the whole list from its
//! tail, both ends of each request; a request that a flush stands behind is out of reach. After a merge the
//! neighbours in the list, not in sector order, are tried.
//!
//! Source: Linux 2.6.0 .. 2.6.9, `drivers/block/noop-iosched.c`, `elevator_noop_merge`. Deviations: none known. Later
//! kernels look for merges through a hash instead of the whole list.

use super::{Build, Ctx, Elevator, Quirks};
use crate::event::{MergeKind, RqId};
use crate::origin::{Entry, Options, Origin};
use crate::request::{Bio, Requests};
use crate::sorted::{Line, joins};
use crate::units::Hz;

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "noop",
    summary: "first in, first out, merging with any waiting request (Linux 2.6)",
    origin: &[Origin {
        kernels: "2.6.0 .. 2.6.9",
        file: "drivers/block/noop-iosched.c",
        function: "elevator_noop_merge",
        notes: "list order and scan as in the source",
    }],
    options: &[],
    conformance: "order and merge tables; the property test over all elevators",
    build,
};

fn build(_options: &Options, _hz: Hz) -> Box<dyn Elevator> {
    Box::new(Noop { line: Line::default(), last: None })
}

#[derive(Clone, Debug)]
struct Noop {
    line: Line<()>,
    /// The one-hit cache.
    last: Option<RqId>,
}

impl Noop {
    fn try_last(&mut self, requests: &Requests, bio: &Bio) -> Option<(RqId, MergeKind)> {
        let rq = self.last?;
        if requests[rq].no_merge {
            self.last = None;
            return None;
        }
        joins(&requests[rq], bio).map(|kind| (rq, kind))
    }
}

impl Elevator for Noop {
    fn quirks(&self) -> Quirks {
        Quirks::SORTING
    }

    fn merge(&mut self, ctx: &mut Ctx<'_>, bio: &Bio) -> Option<(RqId, MergeKind)> {
        if bio.flush {
            return None;
        }
        if let Some(found) = self.try_last(ctx.requests, bio) {
            return Some(found);
        }
        let (start, end) = (bio.sector.0, bio.sector.plus(u64::from(bio.nr_sectors)).0);
        for entry in self.line.entries().iter().rev() {
            if entry.flush {
                return None;
            }
            if (entry.end == start || entry.start == end)
                && let Some(kind) = joins(&ctx.requests[entry.rq], bio)
            {
                return Some((entry.rq, kind));
            }
        }
        None
    }

    fn merged(&mut self, ctx: &mut Ctx<'_>, rq: RqId, _kind: MergeKind) {
        self.last = Some(rq);
        if let Some(index) = self.line.position(rq) {
            self.line.grown(index, ctx.requests);
        }
    }

    fn neighbour(&self, _ctx: &Ctx<'_>, rq: RqId, side: MergeKind) -> Option<RqId> {
        let index = self.line.position(rq)?;
        let beside = match side {
            MergeKind::Back => index + 1,
            MergeKind::Front => index.checked_sub(1)?,
        };
        self.line.entries().get(beside).filter(|entry| !entry.flush).map(|entry| entry.rq)
    }

    fn merged_requests(&mut self, ctx: &mut Ctx<'_>, kept: RqId, gone: RqId) {
        if self.last == Some(gone) {
            self.last = None;
        }
        if let Some(index) = self.line.position(gone) {
            self.line.remove(index);
        }
        if let Some(index) = self.line.position(kept) {
            self.line.grown(index, ctx.requests);
        }
    }

    fn add(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        self.line.push_back(ctx.requests, rq, ());
        if ctx.requests[rq].flush {
            self.last = None;
        } else {
            self.last = self.last.or(Some(rq));
        }
    }

    fn next(&mut self, _ctx: &mut Ctx<'_>) -> Option<RqId> {
        let rq = self.line.pop_front()?;
        if self.last == Some(rq) {
            self.last = None;
        }
        Some(rq)
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
    use crate::event::Dir::{Read, Write};

    #[test]
    fn requests_leave_as_they_came_and_merge_anywhere() {
        for (arrivals, order) in [
            (vec![(Read, 300), (Read, 100), (Write, 200)], vec![300, 100, 200]),
            // Both ends, past other requests, but never across directions.
            (vec![(Read, 300), (Read, 100), (Read, 308)], vec![300, 100]),
            (vec![(Read, 300), (Read, 100), (Read, 292)], vec![292, 100]),
            (vec![(Read, 300), (Read, 100), (Write, 308)], vec![300, 100, 308]),
            // Two requests are united only if they are neighbours in the list.
            (vec![(Read, 100), (Read, 116), (Read, 108)], vec![100]),
            (vec![(Read, 100), (Read, 500), (Read, 116), (Read, 108)], vec![100, 500, 116]),
        ] {
            let mut driver = Driver::new("noop", 1000);
            arrivals.iter().for_each(|&(dir, sector)| driver.submit(dir, sector, 8, 0));
            assert_eq!(driver.drain(), order, "arrivals {arrivals:?}");
        }
    }

    #[test]
    fn nothing_merges_across_a_flush() {
        let mut driver = Driver::new("noop", 1000);
        driver.submit(Write, 100, 8, 0);
        driver.submit_flush();
        driver.submit(Write, 108, 8, 0);
        assert_eq!(driver.drain(), [100, 0, 108]);
    }
}
