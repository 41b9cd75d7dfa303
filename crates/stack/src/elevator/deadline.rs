//! The deadline elevator of Linux 2.6.0 .. 2.6.18, and the core that its successors share.
//!
//! Reads and writes wait in a tree by sector and a list by age each. A batch goes on with the next higher sector of the
//! same direction. Here only contiguous requests count as one batch, so with random I/O the direction is chosen again
//! for every request: reads, except that writes get their turn after being passed over `writes_starved` times. Within
//! the chosen direction comes first the oldest request if it has expired, else the next higher sector if the direction
//! did not change, else the lowest sector of all. A new request with the start sector of a waiting one sends the old
//! one to the dispatch list. A flush sends everything there.
//!
//! Source: Linux 2.6.6 and 2.6.18, `drivers/block/deadline-iosched.c`, `deadline_dispatch_requests`. Deviations: none
//! known.

use super::{Build, Ctx, Elevator, Quirks};
use crate::event::{Dir, MergeKind, RqId};
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::request::{Bio, IoClass, NR_CLASSES, Request, Requests};
use crate::sorted::{Fifo, MergeHints, Sorted, joins, slot};
use crate::units::{Hz, Nanos, TickClock};
use std::collections::VecDeque;

/// The tunables that all deadline elevators have.
pub(super) const OPTIONS: &[OptionSpec] = &[
    OptionSpec::number("read_expire_ms", 500, (0, 1_000_000), "age at which a read is overdue"),
    OptionSpec::number("write_expire_ms", 5000, (0, 1_000_000), "age at which a write is overdue"),
    OptionSpec::number("writes_starved", 2, (0, 1_000_000), "how often reads may go before writes"),
    OptionSpec::number("fifo_batch", 16, (0, 1_000_000), "requests in a batch"),
    OptionSpec::switch("front_merges", true, "look for requests that start where a bio ends"),
];

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "deadline",
    summary: "sorted reads and writes with expiry; only contiguous requests form a batch (Linux 2.6.0 .. 2.6.18)",
    origin: &[Origin {
        kernels: "2.6.0 .. 2.6.18",
        file: "drivers/block/deadline-iosched.c",
        function: "deadline_dispatch_requests",
        notes: "dispatch, aliases, one-hit cache and hash as in the source",
    }],
    options: OPTIONS,
    conformance: "order tables, and every small world against a naive list; no kernel vectors",
    build,
};

fn build(options: &Options, hz: Hz) -> Box<dyn Elevator> {
    let rules = Rules {
        contiguous_batches: true,
        restart_at_lowest: true,
        alias_leaves: true,
        due_is_expired: false,
        sweep: Sweep::Next { stays: false },
        has_classes: false,
    };
    Box::new(Deadline::new(options, hz, rules))
}

/// Differences between the deadline elevators of kernels.
#[derive(Copy, Clone, Debug)]
pub(super) struct Rules {
    /// A request that does not continue the last one uses up the whole batch.
    pub(super) contiguous_batches: bool,
    /// A sweep starts at the lowest sector (else with the oldest request).
    pub(super) restart_at_lowest: bool,
    /// Of two requests with one start sector the old one is dispatched at once (else both wait).
    pub(super) alias_leaves: bool,
    /// A request is overdue at its time, not only after it.
    pub(super) due_is_expired: bool,
    /// Where a sweep goes on.
    pub(super) sweep: Sweep,
    /// Requests of each class of priority have lists of their own.
    pub(super) has_classes: bool,
}

/// Where a sweep goes on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Sweep {
    /// With the request that came next when the last one left, in the last direction only.
    Next {
        /// That request stays the next one when it grows at its front and so moves in the tree (else the one behind it
        /// is).
        stays: bool,
    },
    /// With that request, and each direction keeps its own; it stays the next one, too.
    NextOfEach,
    /// Each direction remembers the place of its last request and goes on with whatever waits there or behind it.
    Position,
}

#[derive(Copy, Clone, Debug, Default)]
struct Data {
    /// Sector under which it stands in the tree.
    key: u64,
    /// Tick of its expiry.
    expires: u64,
}

/// Waiting requests of one class, by direction.
#[derive(Clone, Debug, Default)]
struct Lane {
    trees: [Sorted; 2],
    fifos: [Fifo; 2],
    /// Continuation of the sweep; at most one of the two unless each direction has its own.
    next: [Option<RqId>; 2],
    /// Start of the last request of each direction.
    latest: [u64; 2],
}

#[derive(Clone, Debug)]
pub(super) struct Deadline {
    rules: Rules,
    clock: TickClock,
    /// Ticks until a read or write expires.
    expire: [u64; 2],
    writes_starved: u64,
    fifo_batch: u64,
    front_merges: bool,
    /// By class; only the first is used without classes.
    lanes: [Lane; NR_CLASSES],
    hints: MergeHints,
    data: Vec<Data>,
    /// Direction of the last request of all.
    last_dir: Dir,
    last_sector: u64,
    batching: u64,
    starved: u64,
    dispatch: VecDeque<RqId>,
}

/// A tunable in ms as ticks, rounded up (`msecs_to_jiffies`).
pub(super) fn ticks(options: &Options, hz: Hz, name: &str) -> u64 {
    (options.unsigned(name) * u64::from(hz.0)).div_ceil(1_000)
}

impl Deadline {
    pub(super) fn new(options: &Options, hz: Hz, rules: Rules) -> Deadline {
        Deadline {
            rules,
            clock: TickClock::new(hz),
            expire: ["read_expire_ms", "write_expire_ms"].map(|name| ticks(options, hz, name)),
            writes_starved: options.unsigned("writes_starved"),
            fifo_batch: options.unsigned("fifo_batch"),
            front_merges: options.is_on("front_merges"),
            lanes: Default::default(),
            hints: MergeHints::default(),
            data: Vec::new(),
            last_dir: Dir::Write,
            last_sector: 0,
            batching: 0,
            starved: 0,
            dispatch: VecDeque::new(),
        }
    }

    #[inline]
    fn lane(&self, class: IoClass) -> usize {
        if self.rules.has_classes { class as usize } else { 0 }
    }

    #[inline]
    fn lane_of(&mut self, request: &Request) -> &mut Lane {
        let lane = self.lane(request.class);
        &mut self.lanes[lane]
    }

    #[inline]
    fn tree_insert(&mut self, requests: &Requests, rq: RqId) {
        let request = &requests[rq];
        let (dir, key) = (request.dir as usize, request.sector.0);
        if self.rules.alias_leaves {
            self.send_aliases(requests, dir, key);
        }
        slot(&mut self.data, rq).key = key;
        self.lane_of(request).trees[dir].insert(key, rq);
    }

    /// Takes `rq` out of its tree; the sweep goes on behind it.
    fn tree_remove(&mut self, requests: &Requests, rq: RqId) {
        let (dir, key) = (requests[rq].dir as usize, self.data[rq.0 as usize].key);
        let lane = self.lane_of(&requests[rq]);
        let after = lane.trees[dir].take(key, rq);
        if lane.next[dir] == Some(rq) {
            lane.next[dir] = after;
        }
    }

    fn remove(&mut self, requests: &Requests, rq: RqId) {
        self.lane_of(&requests[rq]).fifos[requests[rq].dir as usize].remove(rq);
        self.hints.removed(rq);
        self.tree_remove(requests, rq);
    }

    fn reposition(&mut self, requests: &Requests, rq: RqId) {
        if self.data[rq.0 as usize].key != requests[rq].sector.0 {
            let next = self.lane_of(&requests[rq]).next;
            self.tree_remove(requests, rq);
            self.tree_insert(requests, rq);
            if self.rules.sweep != (Sweep::Next { stays: false }) {
                self.lane_of(&requests[rq]).next = next;
            }
        }
    }

    /// Makes `rq` the end of the sweep and takes it out, to be dispatched.
    fn take_out(&mut self, requests: &Requests, rq: RqId) {
        let request = &requests[rq];
        let (dir, key, of_each) =
            (request.dir as usize, self.data[rq.0 as usize].key, self.rules.sweep == Sweep::NextOfEach);
        self.hints.removed(rq);
        let lane = self.lane_of(request);
        lane.fifos[dir].remove(rq);
        let after = lane.trees[dir].take(key, rq);
        if !of_each {
            lane.next = [None; 2];
        }
        lane.next[dir] = after;
        lane.latest[dir] = request.sector.0;
        self.last_dir = request.dir;
        self.last_sector = request.end().0;
    }

    /// Sends away what waits at this sector.
    fn send_aliases(&mut self, requests: &Requests, dir: usize, key: u64) {
        // The loop ends because every turn takes one request out of the tree.
        while let Some(alias) = self.lanes[0].trees[dir].at(key) {
            self.take_out(requests, alias);
            self.dispatch.push_back(alias);
        }
    }

    fn has_expired(&mut self, lane: usize, dir: usize, now: Nanos) -> bool {
        let now = self.clock.at(now).0;
        self.lanes[lane].fifos[dir].first().is_some_and(|rq| {
            let expires = self.data[rq.0 as usize].expires;
            if self.rules.due_is_expired { now >= expires } else { now > expires }
        })
    }

    /// Everything queued so far goes before a flush.
    #[cold]
    fn add_flush(&mut self, ctx: &Ctx<'_>, flush: RqId) {
        while let Some(rq) = self.select(ctx.requests, 0, ctx.now, 0) {
            self.dispatch.push_back(rq);
        }
        self.hints.forget_last();
        self.dispatch.push_back(flush);
    }

    /// Takes out the request of this class whose turn it is, if there is one and it has waited for `age` ticks.
    #[inline]
    pub(super) fn select(&mut self, requests: &Requests, lane: usize, now: Nanos, age: u64) -> Option<RqId> {
        let rq = match self.continuing(requests, lane) {
            Some(rq) => rq,
            None => {
                let rq = self.choose(lane, now)?;
                self.last_dir = requests[rq].dir;
                rq
            }
        };
        if age > 0 {
            let since = self.data[rq.0 as usize].expires - self.expire[requests[rq].dir as usize];
            if since + age > self.clock.at(now).0 {
                return None;
            }
        }
        self.batching += 1;
        self.take_out(requests, rq);
        Some(rq)
    }

    /// Where the sweep of a direction goes on.
    #[inline]
    fn sweep(&self, lane: usize, dir: usize) -> Option<RqId> {
        let Lane { trees, next, latest, .. } = &self.lanes[lane];
        if self.rules.sweep == Sweep::Position { trees[dir].at_or_behind(latest[dir]) } else { next[dir] }
    }

    /// The next request of the current batch.
    fn continuing(&mut self, requests: &Requests, lane: usize) -> Option<RqId> {
        if self.batching >= self.fifo_batch && !self.rules.contiguous_batches {
            return None;
        }
        let rq = self.sweep(lane, self.last_dir as usize)?;
        if self.rules.contiguous_batches && requests[rq].sector.0 != self.last_sector {
            self.batching += self.fifo_batch;
        }
        (self.batching < self.fifo_batch).then_some(rq)
    }

    /// The first request after a decision between reads and writes.
    fn choose(&mut self, lane: usize, now: Nanos) -> Option<RqId> {
        let [reads, writes] = [0, 1].map(|dir| !self.lanes[lane].trees[dir].is_empty());
        let mut dir = Dir::Read;
        if reads {
            if writes {
                let passed_over = self.starved;
                self.starved += 1;
                if passed_over >= self.writes_starved {
                    dir = Dir::Write;
                }
            }
        } else if writes {
            dir = Dir::Write;
        } else {
            return None;
        }
        if dir == Dir::Write {
            self.starved = 0;
        }
        let dir = dir as usize;
        let expired = self.has_expired(lane, dir, now);
        match self.sweep(lane, dir) {
            Some(next) if !expired => {
                // The old elevator goes on counting here, so that a long sweep ends even contiguous batches.
                if !self.rules.contiguous_batches {
                    self.batching = 0;
                }
                Some(next)
            }
            _ => {
                self.batching = 0;
                let Lane { trees, fifos, .. } = &self.lanes[lane];
                if expired || !self.rules.restart_at_lowest { fifos[dir].first() } else { trees[dir].first() }
            }
        }
    }
}

impl Elevator for Deadline {
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
        if !self.front_merges {
            return None;
        }
        let rq = self.lanes[self.lane(bio.class)].trees[bio.dir as usize]
            .at(bio.sector.plus(u64::from(bio.nr_sectors)).0)?;
        (joins(&ctx.requests[rq], bio) == Some(MergeKind::Front)).then_some((rq, MergeKind::Front))
    }

    fn merged(&mut self, ctx: &mut Ctx<'_>, rq: RqId, kind: MergeKind) {
        // 2.6.6 has a hash of its own, and always moves it there; of the others see the hints.
        let kind = if self.rules.alias_leaves { MergeKind::Back } else { kind };
        self.hints.grown(ctx.requests, rq, kind);
        self.reposition(ctx.requests, rq);
    }

    fn neighbour(&self, ctx: &Ctx<'_>, rq: RqId, side: MergeKind) -> Option<RqId> {
        let request = &ctx.requests[rq];
        let tree = &self.lanes[self.lane(request.class)].trees[request.dir as usize];
        let key = self.data[rq.0 as usize].key;
        match side {
            MergeKind::Back => tree.after(key, rq),
            MergeKind::Front => tree.before(key, rq),
        }
    }

    fn merged_requests(&mut self, ctx: &mut Ctx<'_>, kept: RqId, gone: RqId) {
        let expires = self.data[gone.0 as usize].expires;
        if expires < self.data[kept.0 as usize].expires {
            self.data[kept.0 as usize].expires = expires;
            let request = &ctx.requests[kept];
            self.lane_of(request).fifos[request.dir as usize].move_before(kept, gone);
        }
        self.remove(ctx.requests, gone);
        self.hints.merged(ctx.requests, kept);
        self.reposition(ctx.requests, kept);
    }

    #[inline]
    fn add(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        if ctx.requests[rq].flush {
            return self.add_flush(ctx, rq);
        }
        let dir = ctx.requests[rq].dir as usize;
        self.tree_insert(ctx.requests, rq);
        self.data[rq.0 as usize].expires = self.clock.at(ctx.now).0 + self.expire[dir];
        self.lane_of(&ctx.requests[rq]).fifos[dir].push_back(rq);
        self.hints.added(ctx.requests, rq);
    }

    #[inline]
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Option<RqId> {
        match self.dispatch.pop_front() {
            None => self.select(ctx.requests, 0, ctx.now, 0),
            dispatched => dispatched,
        }
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.dispatch.len() + self.lanes.iter().flat_map(|lane| &lane.trees).map(Sorted::len).sum::<usize>()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Driver, permutations};
    use crate::event::Dir::{Read, Write};
    use crate::rng::Rng;
    use proptest::prelude::*;

    /// Which directions `name` serves when 100 reads and 100 writes wait at random places: `R16 R16 W16` and so on.
    pub(in super::super) fn runs(name: &str) -> Vec<(char, usize)> {
        let mut rng = Rng::stream(1, "deadline");
        let mut driver = Driver::new(name, 1000);
        for _ in 0..100 {
            for dir in [Read, Write] {
                driver.submit(dir, rng.below(1 << 30) * 64, 8, 0);
            }
        }
        let mut runs: Vec<(char, usize)> = Vec::new();
        while let Some(rq) = driver.start() {
            let letter = if driver.requests[rq].dir == Read { 'R' } else { 'W' };
            match runs.last_mut() {
                Some(last) if last.0 == letter => last.1 += 1,
                _ => runs.push((letter, 1)),
            }
            driver.complete(rq);
        }
        runs
    }

    /// Which directions the successor `name` serves, and that it starts a sweep with the oldest, not the lowest.
    pub(in super::super) fn check_batches(name: &str, hz: u32) {
        let mut driver = Driver::new(name, hz);
        for i in 0..64 {
            driver.submit(Read, 1000 * i, 8, 0);
            driver.submit(Write, 1000 * i + 500, 8, 0);
        }
        let dirs: String = (0..128).map(|_| if driver.step().is_multiple_of(1000) { 'R' } else { 'W' }).collect();
        let [r, w] = ["R", "W"].map(|dir| dir.repeat(16));
        assert_eq!(dirs, [&*r, &*r, &*w, &*r, &*r, &*w, &*w, &*w].concat(), "{name}");
        let mut driver = Driver::new(name, hz);
        for sector in [500, 100, 900, 300] {
            driver.submit(Read, sector, 8, 0);
        }
        assert_eq!(driver.drain(), [500, 900, 100, 300], "{name}");
    }

    #[test]
    fn random_reads_and_writes_go_two_to_one() {
        let mut expected = [('R', 2), ('W', 1)].repeat(50);
        expected.push(('W', 50));
        // The 50th write and those left over are one run.
        expected[99] = ('W', 51);
        expected.truncate(100);
        assert_eq!(runs("deadline"), expected);
    }

    #[test]
    fn every_change_of_direction_restarts_at_the_lowest_sector() {
        let mut driver = Driver::new("deadline", 1000);
        for sector in [400, 300, 200, 100] {
            driver.submit(Read, sector, 8, 0);
            driver.submit(Write, sector + 50, 8, 0);
        }
        assert_eq!(driver.drain(), [100, 200, 150, 300, 400, 250, 350, 450]);
    }

    #[test]
    fn after_a_write_reads_below_come_first() {
        let mut driver = Driver::new("deadline", 1000);
        for sector in [100, 200, 300] {
            driver.submit(Read, sector, 8, 0);
        }
        driver.submit(Write, 1000, 8, 0);
        assert_eq!([driver.step(), driver.step(), driver.step()], [100, 200, 1000]);
        driver.submit(Read, 40, 8, 0);
        assert_eq!(driver.drain(), [40, 300]);
    }

    #[test]
    fn an_expired_read_goes_first_only_after_its_tick() {
        for (ms, first) in [(500, 100), (501, 900)] {
            let mut driver = Driver::new("deadline", 1000);
            driver.submit(Read, 900, 8, 0);
            driver.submit(Read, 100, 8, 0);
            driver.wait_ms(ms);
            assert_eq!(driver.step(), first, "after {ms} ms");
        }
    }

    #[test]
    fn of_two_requests_for_one_sector_the_old_one_leaves_at_once() {
        let mut driver = Driver::new("deadline", 1000);
        driver.submit(Read, 100, 8, 0);
        driver.submit(Read, 500, 8, 0);
        driver.submit(Read, 500, 4, 0);
        assert_eq!(driver.starts(), [(500, 8), (100, 8), (500, 4)]);
    }

    #[test]
    fn of_two_united_requests_the_earlier_expiry_holds() {
        // The read at 1116 is the oldest; the bio at 1108 unites it with the one at 1100.
        let mut driver = Driver::new("deadline", 1000);
        driver.submit(Read, 1116, 8, 0);
        driver.wait_ms(100);
        driver.submit(Read, 900, 8, 0);
        driver.submit(Read, 1100, 8, 0);
        driver.submit(Read, 1108, 8, 0);
        driver.submit(Read, 100, 8, 0);
        driver.wait_ms(401);
        assert_eq!(driver.starts()[0], (1100, 24), "overdue since the oldest part is");
    }

    #[test]
    fn the_sweep_steps_over_a_request_that_grows_at_its_front() {
        let mut driver = Driver::new("deadline", 1000);
        for sector in [100, 200, 216, 400] {
            driver.submit(Read, sector, 8, 0);
        }
        assert_eq!(driver.step(), 100);
        // The next of the sweep, 200, grows at its front and so moves in the tree: taking it out advances the sweep.
        driver.submit(Read, 192, 8, 0);
        driver.submit(Read, 50, 8, 0);
        assert_eq!(driver.drain(), [216, 400, 50, 192], "the sweep has left the request that moved");
    }

    #[test]
    fn front_merges_can_be_turned_off() {
        for (on, requests) in [(1, 2), (0, 3)] {
            let mut driver = Driver::with("deadline", 1000, &[("front_merges", on)]);
            // The first request stays in the one-hit cache, which does not know of the switch.
            for sector in [1000, 108, 100] {
                driver.submit(Read, sector, 8, 0);
            }
            assert_eq!(driver.elevator.len(), requests);
        }
    }

    /// Dispatch over a plain list of (arrival, sector, is write), 8 sectors each, nothing contiguous or expired.
    fn naive(arrivals: &[(u64, bool)]) -> Vec<u64> {
        let mut waiting: Vec<(u64, bool)> = arrivals.to_vec();
        let (mut out, mut starved, mut sweep) = (Vec::new(), 0, None::<(u64, bool)>);
        while !waiting.is_empty() {
            let reads = waiting.iter().any(|request| !request.1);
            let writes = waiting.iter().any(|request| request.1);
            let write = if reads && writes {
                starved += 1;
                starved > 2
            } else {
                writes
            };
            starved = if write { 0 } else { starved };
            let of_dir = |request: &&(u64, bool)| request.1 == write;
            let above = sweep
                .filter(|last| last.1 == write)
                .and_then(|last| waiting.iter().filter(of_dir).filter(|request| request.0 > last.0).min().copied());
            let lowest = waiting.iter().filter(of_dir).min().copied();
            let Some(chosen) = above.or(lowest) else { unreachable!("the direction was chosen for its requests") };
            waiting.retain(|request| *request != chosen);
            sweep = Some(chosen);
            out.push(chosen.0);
        }
        out
    }

    #[test]
    fn every_small_world_agrees_with_a_naive_list() {
        let mut worlds = 0;
        for sectors in permutations(&[100, 200, 300, 400, 500, 600], 5) {
            for mask in 0..1u32 << sectors.len() {
                let arrivals: Vec<(u64, bool)> =
                    sectors.iter().enumerate().map(|(i, &sector)| (sector, mask >> i & 1 == 1)).collect();
                let mut driver = Driver::new("deadline", 1000);
                for &(sector, write) in &arrivals {
                    driver.submit(if write { Write } else { Read }, sector, 8, 0);
                }
                assert_eq!(driver.drain(), naive(&arrivals), "{arrivals:?}");
                worlds += 1;
            }
        }
        assert_eq!(worlds, 1 + 6 * 2 + 30 * 4 + 120 * 8 + 360 * 16 + 720 * 32);
    }

    /// A request of the list that [`Naive`] keeps.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    struct Waiting {
        sector: u64,
        write: bool,
        expires: u64,
    }

    /// Dispatch with expiry over a plain list: the algorithm in the head of this file, without trees, lists or hints.
    /// Requests never touch each other, so none is contiguous with another.
    struct Naive {
        name: &'static str,
        waiting: Vec<Waiting>,
        /// The request after the last one of each direction, as of when that one left.
        sweep: [Option<Waiting>; 2],
        /// Since 6.5: where the last request of each direction was, and which direction was the last.
        latest: [u64; 2],
        last_is_write: bool,
        batching: u64,
        starved: u64,
    }

    impl Naive {
        fn oldest(&self, write: bool) -> Option<Waiting> {
            self.waiting.iter().find(|request| request.write == write).copied()
        }

        fn lowest(&self, write: bool, above: Option<u64>) -> Option<Waiting> {
            let of_dir = self.waiting.iter().filter(|request| request.write == write);
            of_dir.filter(|request| above.is_none_or(|last| request.sector > last)).min_by_key(|r| r.sector).copied()
        }

        fn sweep_of(&self, write: bool) -> Option<Waiting> {
            if self.name == "mq-deadline" {
                let from = self.latest[usize::from(write)];
                let of_dir = self.waiting.iter().filter(|request| request.write == write && request.sector >= from);
                of_dir.min_by_key(|request| request.sector).copied()
            } else {
                self.sweep[usize::from(write)]
            }
        }

        fn dispatch(&mut self, now: u64) -> Option<u64> {
            let batch = if self.name == "deadline" { 1 } else { 16 };
            let chosen = match self.sweep_of(self.last_is_write).filter(|_| self.batching < batch) {
                Some(next) => next,
                None => {
                    let (reads, writes) = (self.oldest(false).is_some(), self.oldest(true).is_some());
                    let write = writes && (!reads || self.starved >= 2);
                    self.starved = if write { 0 } else { self.starved + u64::from(writes) };
                    // A batch ends when another one begins, not when there is nothing to dispatch.
                    let oldest = self.oldest(write)?;
                    self.batching = 0;
                    let overdue =
                        if self.name.starts_with("mq") { now >= oldest.expires } else { now > oldest.expires };
                    match self.sweep_of(write) {
                        _ if overdue => oldest,
                        Some(next) => next,
                        None if self.name == "deadline" => self.lowest(write, None)?,
                        None => oldest,
                    }
                }
            };
            self.batching += 1;
            self.waiting.retain(|request| *request != chosen);
            if self.name != "mq-deadline-6.1" {
                self.sweep = [None; 2];
            }
            self.sweep[usize::from(chosen.write)] = self.lowest(chosen.write, Some(chosen.sector));
            (self.latest[usize::from(chosen.write)], self.last_is_write) = (chosen.sector, chosen.write);
            Some(chosen.sector)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Expiry is honoured as the naive list does, for any arrivals. A step is a submission (sector, write) or a
        /// dispatch after a wait.
        #[test]
        fn expiry_is_that_of_a_naive_list(
            steps in proptest::collection::vec((0..3u8, 0..40u64, any::<bool>(), 0..400u64), 1..250),
        ) {
            for name in ["deadline", "deadline-3.2", "mq-deadline-5.10", "mq-deadline-6.1", "mq-deadline"] {
                let expire = [("read_expire_ms", 300), ("write_expire_ms", 1500)];
                let mut driver = Driver::with(name, 1000, &expire);
                let mut naive = Naive {
                    name,
                    waiting: vec![],
                    sweep: [None; 2],
                    latest: [0; 2],
                    last_is_write: true,
                    batching: 0,
                    starved: 0,
                };
                for &(kind, place, write, wait) in &steps {
                    let (sector, now) = (place * 100 + u64::from(write) * 50, driver.now.0 / 1_000_000);
                    if kind > 0 && !naive.waiting.iter().any(|request| request.sector == sector) {
                        driver.submit(if write { Write } else { Read }, sector, 8, 0);
                        let expires = now + expire[usize::from(write)].1 as u64;
                        naive.waiting.push(Waiting { sector, write, expires });
                    } else if kind == 0 {
                        driver.wait_ms(wait);
                        let now = driver.now.0 / 1_000_000;
                        let wanted = naive.dispatch(now);
                        let got = driver.start().map(|rq| {
                            let sector = driver.requests[rq].sector.0;
                            driver.complete(rq);
                            sector
                        });
                        prop_assert_eq!(got, wanted, "{} at {} ms", name, now);
                    }
                }
            }
        }
    }
}
