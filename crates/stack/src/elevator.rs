//! Elevators: which waiting request the device gets next.
//!
//! An elevator is a pure state machine. The request queue (`block.rs`) does everything that is the same for all of
//! them: it allocates requests, checks sizes, joins bios to requests, plugs, and talks to the device. It asks the
//! elevator which request a bio could join, gives it requests, and asks for the next one. An elevator's dispatch list,
//! where its kernel has one, is the elevator's own.

pub mod anticipatory;
pub mod bfq;
pub mod cfq_2_6_18;
pub mod cfq_2_6_18_186;
pub mod cfq_2_6_18_194_sync;
pub mod cfq_2_6_18_198;
pub mod cfq_2_6_33;
pub mod cfq_2_6_6;
pub mod cfq_3_2;
pub mod cfq_4_4;
pub mod deadline;
pub mod deadline_3_2;
pub mod kyber;
pub mod linus_2_4;
pub mod mq_deadline;
pub mod mq_deadline_6_1;
pub mod none;
pub mod noop;

use crate::event::{Dir, IdleEnd, MergeKind, RqId};
use crate::origin::{Entry, Options};
use crate::request::{Bio, IoContext, Requests};
use crate::tag_map::Limit;
use crate::units::{Hz, Nanos};
use std::collections::VecDeque;

/// An elevator's view, and its means to ask for calls.
pub struct Ctx<'a> {
    pub now: Nanos,
    /// The kernel's tick rate: elevators before 5.0 think in jiffies.
    pub hz: Hz,
    /// All requests of the queue.
    pub requests: &'a mut Requests,
    /// Requests the device has.
    pub in_driver: u32,
    /// Tags of the driver (only the BFQ of 7.2 looks).
    pub driver_tags: u32,
    /// The queue is plugged (only the 2.4 elevator looks).
    pub plugged: bool,
    /// Largest request of this queue in sectors (only the 2.4 elevator looks: its scan goes on past a request that
    /// would become too large).
    pub max_sectors: u32,
    /// Seeks cost time on this device (CFQ and BFQ judge distances by it).
    pub rotational: bool,
    /// Of requests that a bio could join the one last joined is tried only (`nomerges=1`; only BFQ looks: a try may
    /// unite queues).
    pub last_only: bool,
    /// Set by the elevator: run the queue soon, from the kernel's worker thread.
    pub kick: bool,
    /// Set by the elevator along with that: the queue's plug is pulled as well (CFQ since 2.6.10).
    pub kick_unplugs: bool,
    /// Set by the elevator: run the queue at once, its plug pulled, as soon as it has done with this request.
    pub run_now: bool,
    /// Set by the elevator: a deliberate wait has begun.
    pub idle_started: bool,
    /// Set by the elevator: a deliberate wait has ended, and how.
    pub idle_ended: Option<IdleEnd>,
}

impl<'a> Ctx<'a> {
    /// A context in which nothing has been asked for yet.
    pub fn new(now: Nanos, hz: Hz, requests: &'a mut Requests) -> Ctx<'a> {
        Ctx {
            now,
            hz,
            requests,
            in_driver: 0,
            driver_tags: u32::MAX,
            plugged: false,
            max_sectors: u32::MAX,
            rotational: true,
            last_only: false,
            kick: false,
            kick_unplugs: false,
            run_now: false,
            idle_started: false,
            idle_ended: None,
        }
    }

    /// Whether the elevator has asked for something or waits on purpose.
    #[inline]
    pub(crate) fn asks(&self) -> bool {
        self.kick | self.run_now | self.idle_started | self.idle_ended.is_some()
    }

    /// Have the kernel's worker thread pull the plug and run the queue soon, if `wanted`.
    pub fn kick_unplugged(&mut self, wanted: bool) {
        self.kick |= wanted;
        self.kick_unplugs |= wanted;
    }

    /// The current tick.
    pub fn jiffies(&self) -> u64 {
        self.hz.at(self.now).0
    }
}

/// Properties of an elevator that the queue needs beforehand.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Quirks {
    /// [`Elevator::timer`] may say something: the queue asks after every call only then.
    pub has_timer: bool,
    /// [`Elevator::completed`] does something.
    pub minds_completions: bool,
    /// A completion runs the queue only if the elevator asks for it, or the driver has been refusing (blk-mq with
    /// `has_work`); asked in vain, it is asked again 3 ms later.
    pub asks_to_be_run: bool,
    /// It puts requests in an order (all but `none`, whose requests hold a tag of the driver from the start).
    pub schedules: bool,
    /// A request from a plug list is united with a waiting one that it continues.
    pub merges_on_insert: bool,
    /// It tries the request that was last joined before it looks for others (`elv_merge`): that one is left with
    /// `nomerges=1`.
    pub has_one_hit_cache: bool,
    /// A bio joins requests of its task's queue only; a request from a plug, or whose bio joined none, those of any.
    pub merges_within_queues: bool,
    /// It looks after buffered writes itself, so that the queue does not throttle them.
    pub regulates_writeback: bool,
}

impl Quirks {
    /// Those of most elevators that only sort.
    pub const SORTING: Quirks = Quirks {
        has_timer: false,
        minds_completions: false,
        asks_to_be_run: false,
        schedules: true,
        merges_on_insert: true,
        has_one_hit_cache: true,
        merges_within_queues: false,
        regulates_writeback: false,
    };
    /// Those of most elevators that wait for the next request of a task.
    pub const WAITING: Quirks = Quirks { has_timer: true, minds_completions: true, ..Quirks::SORTING };
}

/// The rules of one elevator of one kernel. Order of calls for a request: `merge` (for its bio; no), `add`, perhaps
/// `merged` / `merged_requests`, `next` (yes), `completed`.
pub trait Elevator {
    /// Properties that the queue needs beforehand; always the same.
    fn quirks(&self) -> Quirks;

    /// The request that `bio` could join, and at which end. The queue checks the size afterwards, and calls
    /// [`Elevator::merged`] if the bio has been joined. Started, flush and `no_merge` requests must not be offered.
    fn merge(&mut self, ctx: &mut Ctx<'_>, bio: &Bio) -> Option<(RqId, MergeKind)>;

    /// A bio has joined `rq` at the end `kind`; the request's sector and length are already the new ones.
    fn merged(&mut self, ctx: &mut Ctx<'_>, rq: RqId, kind: MergeKind);

    /// The same for `rq`, which has not been queued yet or is waiting, as a `bio`: any request that it continues.
    fn continued(&mut self, ctx: &mut Ctx<'_>, _rq: RqId, bio: &Bio) -> Option<(RqId, MergeKind)> {
        self.merge(ctx, bio)
    }

    /// `gone`, which has not been queued, has joined `kept`, which it continues.
    fn merged_unqueued(&mut self, ctx: &mut Ctx<'_>, kept: RqId, _gone: RqId) {
        self.merged(ctx, kept, MergeKind::Back);
    }

    /// The waiting request just before (`Front`) or after (`Back`) `rq` in the elevator's order, which the queue may
    /// then try to unite with it.
    fn neighbour(&self, ctx: &Ctx<'_>, rq: RqId, side: MergeKind) -> Option<RqId>;

    /// `gone` has been united with `kept` and will not be dispatched. The two requests' sectors and lengths are already
    /// the new ones; `gone` keeps its old sector so that it can be found.
    fn merged_requests(&mut self, ctx: &mut Ctx<'_>, kept: RqId, gone: RqId);

    /// A new request is to be queued.
    fn add(&mut self, ctx: &mut Ctx<'_>, rq: RqId);

    /// The request that the driver shall start now; it leaves the elevator. `None`: nothing waits, or waiting is better
    /// ([`Elevator::is_empty`] decides which).
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Option<RqId>;

    /// The device has completed `rq`. Called before the driver asks for the next request, and before the submitter
    /// runs; not called without [`Quirks::minds_completions`].
    fn completed(&mut self, _ctx: &mut Ctx<'_>, _rq: RqId) {}

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

    /// Whether `context` may have a request of direction `dir` although none is free (`may_queue`), `None` for no
    /// opinion.
    fn may_queue(&self, _context: IoContext, _dir: Dir) -> Option<bool> {
        None
    }

    /// A task begins that has made `startup_seeks` long seeks on this device already (loading its program and libraries
    /// from a cache that was dropped). Called before its first request; CFQ and BFQ keep seek histories.
    fn task_started(&mut self, _context: IoContext, _startup_seeks: u32) {}

    /// A task has ended.
    fn task_exited(&mut self, _ctx: &mut Ctx<'_>, _context: IoContext) {}

    /// Which of the queue's `nr_tags` scheduler tags `bio` may take (`limit_depth`).
    fn tag_limit(&mut self, _ctx: &mut Ctx<'_>, _bio: &Bio, _nr_tags: u32) -> Limit {
        Limit::None
    }

    /// The request limit that this elevator imposes on the queue (the first CFQ raises it), if any.
    fn nr_requests(&self) -> Option<u32> {
        None
    }
}

/// Requests behind a flush, for elevators that have no order of their own between a flush and other requests: they wait
/// until the flush has left, which waits until the elevator has nothing else.
#[derive(Clone, Debug, Default)]
struct Barrier {
    /// A flush, if there is anything, and what came after it.
    behind: VecDeque<RqId>,
}

impl Barrier {
    /// Whether `rq` is a flush or has come after one; then it is kept here.
    fn holds(&mut self, ctx: &Ctx<'_>, rq: RqId) -> bool {
        let holds = !self.behind.is_empty() || ctx.requests[rq].flush;
        if holds {
            self.behind.push_back(rq);
        }
        holds
    }

    /// The flush, once nothing of before waits any more.
    fn pop(&mut self) -> Option<RqId> {
        self.behind.pop_front()
    }

    /// Something that waited for that flush only.
    fn release(&mut self, ctx: &Ctx<'_>) -> Option<RqId> {
        self.behind.pop_front_if(|rq| !ctx.requests[*rq].flush)
    }

    fn len(&self) -> usize {
        self.behind.len()
    }
}

/// Makes an elevator for a kernel with the given tick rate.
pub type Build = fn(&Options, Hz) -> Box<dyn Elevator>;

/// Every elevator.
pub const ELEVATORS: &[&Entry<Build>] = &[
    &linus_2_4::ENTRY,
    &noop::ENTRY,
    &deadline::ENTRY,
    &deadline_3_2::ENTRY,
    &anticipatory::ENTRY,
    &cfq_2_6_6::ENTRY,
    &cfq_2_6_18::ENTRY,
    &cfq_2_6_18_186::ENTRY,
    &cfq_2_6_18_194_sync::ENTRY,
    &cfq_2_6_18_198::ENTRY,
    &cfq_2_6_33::ENTRY,
    &cfq_3_2::ENTRY,
    &cfq_4_4::ENTRY,
    &none::ENTRY,
    &mq_deadline::ENTRY,
    &mq_deadline_6_1::ENTRY,
    &mq_deadline_6_1::ENTRY_5_10,
    &kyber::ENTRY,
    &kyber::ENTRY_6_1,
    &kyber::ENTRY_7_2,
    &bfq::ENTRY,
    &bfq::ENTRY_6_1,
    &bfq::ENTRY_7_2,
];

/// Whether the head, which is at `last`, had better go to `a` than to `b` (sectors): the shorter way, where each sector
/// backwards counts as `back_penalty`; sectors more than `back_max` behind are for the next round, which begins at the
/// lowest (`as_choose_req`, `cfq_choose_req`).
fn is_nearer(last: u64, a: u64, b: u64, back_max: u64, back_penalty: u64) -> bool {
    let cost = |sector: u64| {
        if sector >= last {
            Some(sector - last)
        } else if sector + back_max >= last {
            Some((last - sector) * back_penalty)
        } else {
            None
        }
    };
    match (cost(a), cost(b)) {
        (Some(_), None) => true,
        (None, Some(_)) => false,
        (None, None) => a <= b,
        (Some(x), Some(y)) => x < y || (x == y && a >= b),
    }
}

/// A driver small enough to read, for the tests of the elevators.
#[cfg(test)]
mod testing {
    use super::*;
    use crate::event::{CallId, Content};
    use crate::origin::find;
    use crate::request::{BioId, IoClass, Request};
    use crate::units::Sector;

    /// Every order of at most `most` of `items`.
    pub(super) fn permutations(items: &[u64], most: usize) -> Vec<Vec<u64>> {
        let mut all = vec![Vec::new()];
        let mut from = 0;
        for _ in 0..most {
            let to = all.len();
            for i in from..to {
                for &item in items {
                    if !all[i].contains(&item) {
                        let longer: Vec<u64> = [all[i].as_slice(), &[item]].concat();
                        all.push(longer);
                    }
                }
            }
            from = to;
        }
        all
    }

    pub(super) struct Driver {
        pub(super) elevator: Box<dyn Elevator>,
        pub(super) requests: Requests,
        pub(super) now: Nanos,
        pub(super) plugged: bool,
        pub(super) max_sectors: u32,
        pub(super) in_driver: u32,
        pub(super) idle_started: u32,
        pub(super) idle_ended: Vec<IdleEnd>,
        hz: Hz,
    }

    impl Driver {
        pub(super) fn new(name: &str, hz: u32) -> Driver {
            Driver::with(name, hz, &[])
        }

        pub(super) fn with(name: &str, hz: u32, settings: &[(&str, i64)]) -> Driver {
            let entry = find(ELEVATORS, name).expect("an elevator of this name");
            let mut options = entry.defaults();
            settings.iter().for_each(|&(name, value)| options.set(name, value));
            Driver {
                elevator: (entry.build)(&options, Hz(hz)),
                requests: Requests::default(),
                now: Nanos::ZERO,
                plugged: false,
                max_sectors: 1024,
                in_driver: 0,
                idle_started: 0,
                idle_ended: Vec::new(),
                hz: Hz(hz),
            }
        }

        /// Runs `act` with a context and keeps what the elevator asked for.
        fn call<R>(&mut self, act: impl FnOnce(&mut dyn Elevator, &mut Ctx<'_>) -> R) -> R {
            let mut ctx = Ctx::new(self.now, self.hz, &mut self.requests);
            (ctx.in_driver, ctx.plugged, ctx.max_sectors) = (self.in_driver, self.plugged, self.max_sectors);
            let result = act(&mut *self.elevator, &mut ctx);
            self.idle_started += u32::from(ctx.idle_started);
            self.idle_ended.extend(ctx.idle_ended);
            result
        }

        pub(super) fn tag_limit(&mut self, bio: &Bio, nr_tags: u32) -> Limit {
            self.call(|elevator, ctx| elevator.tag_limit(ctx, bio, nr_tags))
        }

        pub(super) fn bio(&self, dir: Dir, sector: u64, nr_sectors: u32) -> Bio {
            Bio {
                sector: Sector(sector),
                nr_sectors,
                dir,
                content: Content::Data,
                sync: dir == Dir::Read,
                no_idle: false,
                class: IoClass::BestEffort,
                prio: false,
                flush: false,
                context: IoContext::default(),
                call: CallId::NONE,
                queued: self.now,
                token: 0,
                next: BioId::NONE,
            }
        }

        pub(super) fn submit(&mut self, dir: Dir, sector: u64, nr_sectors: u32, task: u32) {
            let bio = Bio { context: IoContext { task, thread_group: task }, ..self.bio(dir, sector, nr_sectors) };
            self.submit_bio(&bio);
        }

        pub(super) fn submit_flush(&mut self) {
            self.submit_bio(&Bio { sync: true, flush: true, ..self.bio(Dir::Write, 0, 0) });
        }

        /// The queue's handling of a bio. Returns the request it is in and those that vanished into that one.
        pub(super) fn submit_bio(&mut self, bio: &Bio) -> (RqId, Option<RqId>) {
            if let Some((rq, kind)) = self.call(|elevator, ctx| elevator.merge(ctx, bio)) {
                let request = &mut self.requests[rq];
                assert!(!request.started && !request.flush && !request.no_merge && request.dir == bio.dir);
                match kind {
                    MergeKind::Back => assert_eq!(request.end(), bio.sector),
                    MergeKind::Front => assert_eq!(bio.sector.plus(u64::from(bio.nr_sectors)), request.sector),
                }
                if request.nr_sectors + bio.nr_sectors <= self.max_sectors {
                    request.nr_sectors += bio.nr_sectors;
                    if kind == MergeKind::Front {
                        request.sector = bio.sector;
                    }
                    self.call(|elevator, ctx| elevator.merged(ctx, rq, kind));
                    return self.unite(rq, kind);
                }
                request.no_merge = true;
            }
            let rq = self.take(bio);
            self.call(|elevator, ctx| elevator.add(ctx, rq));
            (rq, None)
        }

        /// A request of its own for a bio.
        pub(super) fn take(&mut self, bio: &Bio) -> RqId {
            self.requests.insert(Request {
                sector: bio.sector,
                nr_sectors: bio.nr_sectors,
                dir: bio.dir,
                content: bio.content,
                sync: bio.sync,
                no_idle: bio.no_idle,
                class: bio.class,
                prio: bio.prio,
                flush: bio.flush,
                started: false,
                no_merge: false,
                context: bio.context,
                call: bio.call,
                nr_bios: 1,
                first: BioId::NONE,
                last: BioId::NONE,
                queued: self.now,
                allocated: self.now,
                inserted: self.now,
                issued: Nanos::ZERO,
            })
        }

        /// Tries to unite `rq` with its neighbour.
        fn unite(&mut self, rq: RqId, side: MergeKind) -> (RqId, Option<RqId>) {
            let Some(other) = self.call(|elevator, ctx| elevator.neighbour(ctx, rq, side)) else {
                return (rq, None);
            };
            let (kept, gone) = if side == MergeKind::Back { (rq, other) } else { (other, rq) };
            let (low, high) = (self.requests[kept], self.requests[gone]);
            let fits = low.nr_sectors + high.nr_sectors <= self.max_sectors;
            let free = ![low, high].iter().any(|request| request.started || request.flush || request.no_merge);
            if !fits || !free || low.end() != high.sector || low.dir != high.dir {
                return (rq, None);
            }
            self.requests[kept].nr_sectors += high.nr_sectors;
            self.call(|elevator, ctx| elevator.merged_requests(ctx, kept, gone));
            self.requests.release(gone);
            (kept, Some(gone))
        }

        /// The elevator's next request, if it gives one now.
        pub(super) fn try_start(&mut self) -> Option<RqId> {
            let rq = self.call(|elevator, ctx| elevator.next(ctx))?;
            assert!(!self.requests[rq].started, "request {} is given out twice", rq.0);
            self.requests[rq].started = true;
            self.in_driver += 1;
            Some(rq)
        }

        /// Its next request, waiting for its timer if need be; `None` if it is empty.
        pub(super) fn start(&mut self) -> Option<RqId> {
            for _ in 0..10 {
                if let Some(rq) = self.try_start() {
                    return Some(rq);
                }
                if self.elevator.is_empty() {
                    return None;
                }
                if let Some(at) = self.elevator.timer() {
                    self.now = self.now.max(at);
                    self.call(|elevator, ctx| elevator.on_timer(ctx));
                }
            }
            panic!("{} requests wait, and nothing makes the elevator give one out", self.elevator.len());
        }

        pub(super) fn complete(&mut self, rq: RqId) {
            self.in_driver -= 1;
            self.call(|elevator, ctx| elevator.completed(ctx, rq));
            self.requests.release(rq);
        }

        pub(super) fn exit(&mut self, task: u32) {
            self.call(|elevator, ctx| elevator.task_exited(ctx, IoContext { task, thread_group: task }));
        }

        /// Starts and completes one request; its first sector.
        pub(super) fn step(&mut self) -> u64 {
            let rq = self.start().expect("something waits");
            self.complete(rq);
            self.requests[rq].sector.0
        }

        /// Serves everything one by one: (first sector, sectors).
        pub(super) fn starts(&mut self) -> Vec<(u64, u32)> {
            let mut served = Vec::new();
            while let Some(rq) = self.start() {
                served.push((self.requests[rq].sector.0, self.requests[rq].nr_sectors));
                self.complete(rq);
            }
            served
        }

        /// Serves everything one by one: first sectors.
        pub(super) fn drain(&mut self) -> Vec<u64> {
            self.starts().into_iter().map(|(sector, _)| sector).collect()
        }

        /// Lets time pass, with the timers that fall into it.
        pub(super) fn wait_ms(&mut self, ms: u64) {
            let until = self.now + Nanos::from_ms(ms);
            while let Some(at) = self.elevator.timer().filter(|&at| at <= until) {
                self.now = self.now.max(at);
                self.call(|elevator, ctx| elevator.on_timer(ctx));
            }
            self.now = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Driver;
    use super::*;
    use crate::event::{CallId, Content};
    use crate::request::{BioId, IoClass};
    use crate::units::Sector;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_file_is_listed_and_says_where_it_comes_from() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/elevator");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".rs"))
            .collect();
        files.sort();
        let table = include_str!("elevator.rs");
        for file in &files {
            let text = std::fs::read_to_string(format!("{folder}/{file}")).unwrap();
            assert!(
                table.contains(&format!("&{}::ENTRY,", file.trim_end_matches(".rs"))),
                "{file} is not in the table"
            );
            assert!(text.starts_with("//! ") && text.contains("//! Source: Linux "), "{file} does not name its source");
        }
        assert!(files.len() <= ELEVATORS.len());
        for entry in ELEVATORS {
            let origin = entry.origin.first().expect("an origin");
            assert!(origin.file.ends_with(".c") && !origin.function.is_empty(), "{} cites no function", entry.name);
            assert_eq!(ELEVATORS.iter().filter(|other| other.name == entry.name).count(), 1, "{}", entry.name);
        }
    }

    /// One step of a workload.
    #[derive(Clone, Debug)]
    enum Step {
        Bio { write: bool, sync: bool, block: u64, blocks: u32, task: u32 },
        Flush,
        Start,
        Complete(usize),
        Wait(u64),
        Exit(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            12 => (any::<bool>(), any::<bool>(), 0u64..60, 1u32..4, 0u32..5)
                .prop_map(|(write, sync, block, blocks, task)| Step::Bio { write, sync, block, blocks, task }),
            1 => Just(Step::Flush),
            6 => Just(Step::Start),
            6 => (0usize..100).prop_map(Step::Complete),
            4 => (0u64..300).prop_map(Step::Wait),
            1 => (0u32..5).prop_map(Step::Exit),
        ]
    }

    /// Contents of a request: numbers of bios and flushes in the order they were queued.
    type Load = BTreeMap<u32, Vec<u64>>;

    /// Takes a request from the elevator and checks it against the queued ones.
    fn served(driver: &Driver, rq: RqId, loads: &mut Load, flushes: &mut Vec<u64>, name: &str) {
        let load = loads.remove(&rq.0).unwrap_or_else(|| panic!("{name}: request {} was not queued", rq.0));
        assert!(!load.is_empty());
        let request = &driver.requests[rq];
        if request.flush {
            let flush = load[0];
            flushes.retain(|&other| other != flush);
            let earliest = loads.values().flatten().min().copied().unwrap_or(u64::MAX);
            assert!(earliest > flush, "{name}: flush {flush} overtakes {earliest}");
        }
    }

    fn play(name: &str, hz: u32, depth: u32, steps: &[Step]) {
        let mut driver = Driver::new(name, hz);
        driver.max_sectors = 64;
        let (mut loads, mut flushes, mut at_device) = (Load::new(), Vec::new(), Vec::new());
        let mut queued_sectors = 0u64;
        for (turn, step) in steps.iter().enumerate() {
            driver.plugged = driver.in_driver == 0 && turn % 3 == 0;
            match *step {
                Step::Bio { .. } | Step::Flush => {
                    let (dir, sync, sector, nr_sectors, task, flush) = match *step {
                        Step::Bio { write, sync, block, blocks, task } => (
                            if write { Dir::Write } else { Dir::Read },
                            sync || !write,
                            block * 8,
                            blocks * 8,
                            task,
                            false,
                        ),
                        _ => (Dir::Write, true, 0, 0, 0, true),
                    };
                    let bio = Bio {
                        sector: Sector(sector),
                        nr_sectors,
                        dir,
                        content: Content::Data,
                        sync,
                        no_idle: false,
                        class: IoClass::BestEffort,
                        prio: false,
                        flush,
                        context: IoContext { task, thread_group: task / 2 },
                        call: CallId::NONE,
                        queued: driver.now,
                        token: turn as u64,
                        next: BioId::NONE,
                    };
                    queued_sectors += u64::from(nr_sectors);
                    let (rq, gone) = driver.submit_bio(&bio);
                    loads.entry(rq.0).or_default().push(turn as u64);
                    if let Some(gone) = gone {
                        // The bio may have gone into either of the two, so both loads are now with the survivor.
                        let moved = loads.remove(&gone.0).unwrap_or_default();
                        loads.entry(rq.0).or_default().extend(moved);
                    }
                    if flush {
                        flushes.push(turn as u64);
                    }
                }
                Step::Start if driver.in_driver < depth => {
                    if let Some(rq) = driver.try_start() {
                        served(&driver, rq, &mut loads, &mut flushes, name);
                        queued_sectors -= u64::from(driver.requests[rq].nr_sectors);
                        at_device.push(rq);
                    }
                }
                Step::Complete(which) if !at_device.is_empty() => {
                    let rq = at_device.remove(which % at_device.len());
                    driver.complete(rq);
                }
                Step::Wait(tenths) => {
                    driver.now += Nanos::from_us(100 * tenths % 50);
                    driver.wait_ms(tenths / 10);
                }
                Step::Exit(task) => driver.exit(task),
                Step::Start | Step::Complete(_) => {}
            }
            assert_eq!(driver.elevator.len(), loads.len(), "{name}");
            assert_eq!(driver.elevator.is_empty(), loads.is_empty(), "{name}");
        }
        at_device.drain(..).for_each(|rq| driver.complete(rq));
        while let Some(rq) = driver.start() {
            served(&driver, rq, &mut loads, &mut flushes, name);
            queued_sectors -= u64::from(driver.requests[rq].nr_sectors);
            driver.complete(rq);
        }
        assert!(loads.is_empty() && flushes.is_empty() && driver.requests.is_empty(), "{name} has lost {loads:?}");
        assert_eq!(queued_sectors, 0, "{name}");
        // CFQ also waits for a task when nothing else is to be done.
        driver.wait_ms(1_000);
        assert_eq!(driver.idle_started as usize, driver.idle_ended.len(), "{name}: a wait has no end, or two");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Every queued request leaves exactly once, a flush after everything before it, and everything leaves.
        #[test]
        fn nothing_is_lost_doubled_or_stuck(
            steps in proptest::collection::vec(step(), 1..250),
            hz in prop_oneof![Just(100u32), Just(250), Just(1000)],
            depth in 1u32..5,
        ) {
            for entry in ELEVATORS {
                play(entry.name, hz, depth, &steps);
            }
        }
    }
}
