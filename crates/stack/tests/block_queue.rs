//! The request queue driven by itself: merging, plugging, allocation, without a file system above it.

use iowhy_stack::block::{BlockQueue, PlugList, QueueLimits, Submitted, Wakeup};
use iowhy_stack::event::{CallId, Content, Dir, Event, MergeKind, UnplugCause, What};
use iowhy_stack::kernel::{Stack, find_kernel};
use iowhy_stack::plug::Plugging;
use iowhy_stack::queue::EventQueue;
use iowhy_stack::record::Recorder;
use iowhy_stack::request::{Bio, BioId, IoContext};
use iowhy_stack::rng::Rng;
use iowhy_stack::units::{Hz, Nanos, Sector};

use Dir::{Read, Write};

/// No plug at all: requests go straight to the elevator.
const UNPLUGGED: Plugging = Plugging::Task { max_requests: 0, flush_sectors: 0, whole_call: false };
/// A queue that only a waiter unplugs.
const HELD: Plugging = Plugging::Queue { threshold: 0, exact: false, delay: Nanos::ZERO };

/// What a test wants of a queue.
#[derive(Copy, Clone)]
struct Setup {
    elevator: &'static str,
    device: &'static str,
    depth: Option<&'static str>,
    plugging: Plugging,
    nr_requests: u32,
    batch_requests: u32,
    max_sectors: u32,
    max_segments: u32,
    max_queue_sectors: u64,
}

const SETUP: Setup = Setup {
    elevator: "noop",
    device: "zero",
    depth: None,
    plugging: HELD,
    nr_requests: 128,
    batch_requests: 32,
    max_sectors: 256,
    max_segments: 256,
    max_queue_sectors: 0,
};

/// Elevators that merge, one for each way of looking for neighbours.
const ELEVATORS: &[&str] = &["noop", "deadline", "anticipatory", "cfq", "linus", "deadline-3.2", "mq-deadline"];

const HZ: Hz = Hz(1000);

/// A queue, the time, what is due, and what has happened.
struct Driver {
    queue: BlockQueue,
    due: EventQueue<Wakeup>,
    now: Nanos,
    events: Vec<Event>,
    finished: Vec<u64>,
    task: u32,
    sync: bool,
}

impl Driver {
    fn new(setup: Setup) -> Driver {
        let mut stack = Stack::new(find_kernel("linux-2.6.6-rc3").expect("a known kernel"));
        stack.set("elevator", setup.elevator).expect("a known elevator");
        stack.set_device(setup.device).expect("a known device");
        if let Some(depth) = setup.depth {
            stack.set_device_option("queue_depth", depth).expect("a depth within its range");
        }
        let limits = QueueLimits {
            hz: HZ,
            max_sectors: setup.max_sectors,
            max_segments: setup.max_segments,
            nr_requests: setup.nr_requests,
            batch_requests: setup.batch_requests,
            batch_time: Nanos::from_ms(20),
            max_queue_sectors: setup.max_queue_sectors,
            command: Nanos::ZERO,
            interrupt: Nanos::ZERO,
            kblockd: Nanos::from_us(15),
        };
        let device = (stack.device.entry.build)(&stack.device.options, Rng::stream(1, "device"));
        let elevator = (stack.elevator.entry.build)(&stack.elevator.options, HZ);
        Driver {
            queue: BlockQueue::new(limits, elevator, device, setup.plugging),
            due: EventQueue::default(),
            now: Nanos::ZERO,
            events: Vec::new(),
            finished: Vec::new(),
            task: 0,
            sync: true,
        }
    }

    /// Uses the queue and then notes what it wants to be told and what it has finished.
    fn with<R>(&mut self, act: impl FnOnce(&mut BlockQueue, Nanos, &mut Recorder<'_>) -> R) -> R {
        let mut rec = Recorder::new(Some(&mut self.events));
        let answer = act(&mut self.queue, self.now, &mut rec);
        let due = &mut self.due;
        self.queue.wakeups(|at, wakeup| due.push(at, wakeup));
        while let Some(bio) = self.queue.take_finished() {
            self.finished.push(bio.token);
        }
        answer
    }

    fn bio(&self, dir: Dir, sector: u64, nr_sectors: u32, flush: bool) -> Bio {
        Bio {
            sector: Sector(sector),
            nr_sectors,
            dir,
            content: Content::Data,
            sync: self.sync,
            no_idle: false,
            prio: false,
            flush,
            context: IoContext { task: self.task, thread_group: 0 },
            call: CallId(1),
            queued: Nanos::ZERO,
            token: sector,
            next: BioId::NONE,
        }
    }

    fn submit(&mut self, dir: Dir, sector: u64, nr_sectors: u32) -> Submitted {
        let bio = self.bio(dir, sector, nr_sectors, false);
        self.with(|queue, now, rec| queue.submit(now, bio, None, rec))
    }

    fn submit_to(&mut self, list: &mut PlugList, dir: Dir, sector: u64, nr_sectors: u32) -> Submitted {
        let bio = self.bio(dir, sector, nr_sectors, false);
        self.with(|queue, now, rec| queue.submit(now, bio, Some(list), rec))
    }

    fn unplug(&mut self) {
        self.with(|queue, now, rec| queue.unplug(now, UnplugCause::Waiter, rec));
    }

    /// Lets everything that is due up to `until` happen.
    fn run_until(&mut self, until: Nanos) {
        while self.due.next_at().is_some_and(|at| at <= until) {
            let (at, wakeup) = self.due.pop().expect("there is one");
            assert!(at >= self.now, "time goes backwards");
            self.now = at;
            self.with(|queue, now, rec| queue.wake(now, wakeup, rec));
        }
    }

    /// Lets everything happen until nothing is left in the queue.
    fn drain(&mut self) {
        self.unplug();
        while !self.queue.is_idle() {
            let (at, wakeup) = self.due.pop().expect("a queue that is not idle waits for something");
            assert!(at >= self.now, "time goes backwards");
            self.now = at;
            self.with(|queue, now, rec| queue.wake(now, wakeup, rec));
        }
    }

    /// First sector and length of each command so far.
    fn issued(&self) -> Vec<(u64, u32)> {
        let issue = |event: &Event| match event.what {
            What::Issue { sector, nr_sectors, .. } => Some((sector.0, nr_sectors)),
            _ => None,
        };
        self.events.iter().filter_map(issue).collect()
    }

    fn unplugs(&self) -> Vec<(UnplugCause, u32)> {
        let unplug = |event: &Event| match event.what {
            What::Unplug { cause, nr_requests } => Some((cause, nr_requests)),
            _ => None,
        };
        self.events.iter().filter_map(unplug).collect()
    }

    fn count(&self, which: impl Fn(&What) -> bool) -> usize {
        self.events.iter().filter(|event| which(&event.what)).count()
    }
}

/// Submits bios to a held queue and returns the commands that come out, by sector.
fn commands(setup: Setup, bios: &[(Dir, u64, u32)]) -> Vec<(u64, u32)> {
    let mut driver = Driver::new(setup);
    for &(dir, sector, nr_sectors) in bios {
        assert_eq!(driver.submit(dir, sector, nr_sectors), Submitted::Queued);
    }
    driver.drain();
    let mut tokens = driver.finished.clone();
    tokens.sort_unstable();
    let mut sent: Vec<u64> = bios.iter().map(|&(_, sector, _)| sector).collect();
    sent.sort_unstable();
    assert_eq!(tokens, sent, "every bio is given back once");
    let mut issued = driver.issued();
    issued.sort_unstable();
    issued
}

#[test]
fn bios_join_at_either_end_and_a_filled_gap_unites_its_neighbours() {
    for &elevator in ELEVATORS {
        let setup = Setup { elevator, ..SETUP };
        for (bios, expected) in [
            (vec![(Read, 100, 8), (Read, 108, 8)], vec![(100, 16)]),
            (vec![(Read, 108, 8), (Read, 100, 8)], vec![(100, 16)]),
            (vec![(Read, 100, 8), (Read, 116, 8), (Read, 108, 8)], vec![(100, 24)]),
            (vec![(Read, 100, 8), (Read, 109, 8)], vec![(100, 8), (109, 8)]),
            (vec![(Read, 100, 8), (Write, 108, 8)], vec![(100, 8), (108, 8)]),
        ] {
            assert_eq!(commands(setup, &bios), expected, "{elevator}: {bios:?}");
        }
    }
}

#[test]
fn a_request_grows_to_its_limits_and_no_further() {
    for &elevator in ELEVATORS {
        for (max_sectors, max_segments, expected) in
            [(32, 256, vec![(0, 32), (32, 8)]), (256, 3, vec![(0, 24), (24, 16)]), (256, 256, vec![(0, 40)])]
        {
            let setup = Setup { elevator, max_sectors, max_segments, ..SETUP };
            let bios: Vec<_> = (0..5).map(|page| (Read, page * 8, 8)).collect();
            assert_eq!(commands(setup, &bios), expected, "{elevator}: {max_sectors} sectors, {max_segments} segments");
        }
    }
}

#[test]
fn a_request_that_refused_a_bio_for_its_size_takes_no_other() {
    for &elevator in ELEVATORS {
        // The second bio does not fit. The third would (24 + 8 sectors), had the request not refused one before; 2.4
        // has no such mark and passes over requests that are too large.
        let bios = [(Read, 100, 24), (Read, 124, 16), (Read, 92, 8)];
        let expected =
            if elevator == "linus" { vec![(92, 32), (124, 16)] } else { vec![(92, 8), (100, 24), (124, 16)] };
        assert_eq!(commands(Setup { elevator, max_sectors: 32, ..SETUP }, &bios), expected, "{elevator}");
    }
}

#[test]
fn neighbours_that_would_be_too_large_together_stay_apart() {
    for &elevator in ELEVATORS {
        let setup = Setup { elevator, max_sectors: 32, ..SETUP };
        let bios = [(Read, 100, 16), (Read, 124, 16), (Read, 116, 8)];
        let found = commands(setup, &bios);
        assert_eq!(found.len(), 2, "{elevator}: {found:?}");
        assert_eq!(found.iter().map(|(_, nr_sectors)| nr_sectors).sum::<u32>(), 40, "{elevator}");
        assert!(found.iter().all(|(_, nr_sectors)| *nr_sectors <= 32), "{elevator}: {found:?}");
    }
}

#[test]
fn a_flush_is_never_merged_with_anything() {
    for &elevator in ELEVATORS {
        let mut driver = Driver::new(Setup { elevator, ..SETUP });
        driver.submit(Write, 100, 8);
        let flush = driver.bio(Write, 108, 8, true);
        driver.with(|queue, now, rec| queue.submit(now, flush, None, rec));
        driver.submit(Write, 116, 8);
        driver.drain();
        assert_eq!(driver.issued().len(), 3, "{elevator}");
    }
}

/// Until 2.6.12 the count had to be met exactly. With one queue under one lock every arrival is looked at, so that the
/// count cannot jump over the threshold and both rules must do the same.
#[test]
fn the_queue_unplugs_when_as_many_requests_wait_as_the_threshold_says() {
    for exact in [true, false] {
        for (threshold, expected) in
            [(4, [0, 0, 0, 4, 4, 4]), (2, [0, 2, 2, 4, 4, 6]), (1, [1, 2, 3, 4, 5, 6]), (0, [0; 6])]
        {
            let plugging = Plugging::Queue { threshold, exact, delay: Nanos::ZERO };
            let mut driver = Driver::new(Setup { plugging, device: "nvme", ..SETUP });
            // The drive takes everything, so that the queue is empty and plugs itself again with the next request.
            let issued = [0, 1, 2, 3, 4, 5].map(|request| {
                driver.submit(Read, request * 1000, 8);
                driver.issued().len()
            });
            assert_eq!(issued, expected, "threshold {threshold}, exact {exact}");
            assert!(driver.unplugs().iter().all(|unplug| *unplug == (UnplugCause::Threshold, threshold)));
        }
    }
}

#[test]
fn a_merged_bio_is_no_request_for_the_threshold() {
    let plugging = Plugging::Queue { threshold: 4, exact: true, delay: Nanos::ZERO };
    let mut driver = Driver::new(Setup { plugging, ..SETUP });
    for request in 0..3 {
        driver.submit(Read, request * 1000, 8);
    }
    for bio in 1..10 {
        driver.submit(Read, bio * 8, 8);
    }
    assert_eq!(driver.issued(), []);
    driver.submit(Read, 5000, 8);
    assert_eq!(driver.issued(), [(0, 80), (1000, 8), (2000, 8), (5000, 8)]);
}

#[test]
fn the_plugs_timer_fires_on_the_third_tick_and_the_worker_thread_runs_the_queue() {
    for (set_us, fires_us) in [(0, 3_000), (300, 3_000), (1_300, 4_000), (1_999, 4_000), (2_000, 5_000)] {
        let plugging = Plugging::Queue { threshold: 4, exact: true, delay: Nanos::from_ms(3) };
        let mut driver = Driver::new(Setup { plugging, device: "nvme", ..SETUP });
        driver.now = Nanos::from_us(set_us);
        driver.submit(Read, 0, 8);
        driver.run_until(Nanos::from_us(fires_us - 1));
        assert_eq!(driver.unplugs(), [], "set at {set_us} us");
        driver.run_until(Nanos::from_us(fires_us));
        assert_eq!(driver.unplugs(), [(UnplugCause::Timer, 1)], "set at {set_us} us");
        assert_eq!(driver.issued(), [], "the timer itself must not run the queue");
        driver.run_until(Nanos::from_us(fires_us + 15));
        assert_eq!(driver.issued(), [(0, 8)], "set at {set_us} us");
    }
}

#[test]
fn a_timer_that_a_waiter_has_overtaken_does_nothing() {
    let plugging = Plugging::Queue { threshold: 4, exact: true, delay: Nanos::from_ms(3) };
    let mut driver = Driver::new(Setup { plugging, device: "nvme", ..SETUP });
    driver.submit(Read, 0, 8);
    driver.unplug();
    driver.run_until(Nanos::from_ms(1));
    driver.submit(Read, 1000, 8);
    // The first timer would fire at 3 ms; the second request was plugged after 0.1 ms and has until its own.
    let second = driver.events.iter().filter(|event| event.what == What::Plug).nth(1).expect("plugged twice").at;
    driver.run_until(HZ.timer(second, 3));
    assert_eq!(driver.unplugs(), [(UnplugCause::Waiter, 1), (UnplugCause::Timer, 1)]);
    assert_eq!(driver.events.last().expect("events").at, HZ.timer(second, 3));
}

#[test]
fn a_full_queue_refuses_all_but_the_task_that_filled_it_for_a_while() {
    let setup = Setup { nr_requests: 4, batch_requests: 2, ..SETUP };
    let mut driver = Driver::new(setup);
    let mut next = 0;
    let mut submit = |driver: &mut Driver, task| {
        driver.task = task;
        next += 1000;
        driver.submit(Read, next, 8)
    };
    // The fourth request fills the queue; its task may take two in all beyond the third.
    for _ in 0..5 {
        assert_eq!(submit(&mut driver, 0), Submitted::Queued);
    }
    assert_eq!(driver.unplugs(), []);
    assert_eq!(submit(&mut driver, 0), Submitted::NoRequest);
    assert_eq!(driver.unplugs(), [(UnplugCause::NoRequest, 5)], "whoever must wait pulls the plug");
    assert_eq!(submit(&mut driver, 1), Submitted::NoRequest);
    // The other direction has requests of its own.
    driver.task = 1;
    assert_eq!(driver.submit(Write, 90_000, 8), Submitted::Queued);
    driver.drain();
    driver.with(|queue, _, _| {
        assert!(queue.should_wake_waiter(Read));
        queue.no_waiters(Read);
    });
    assert_eq!(submit(&mut driver, 1), Submitted::Queued);
}

#[test]
fn a_task_that_has_waited_may_take_several_requests_but_only_for_20_ms() {
    for (wait_ms, expected) in [(0, Submitted::Queued), (20, Submitted::Queued), (21, Submitted::NoRequest)] {
        let mut driver = Driver::new(Setup { nr_requests: 4, batch_requests: 2, ..SETUP });
        for request in 0..5 {
            driver.submit(Read, request * 1000, 8);
        }
        driver.task = 7;
        assert_eq!(driver.submit(Read, 70_000, 8), Submitted::NoRequest);
        // The waiter is made a batcher when it wakes up, and comes back after a while. The queue is still full, because
        // it has been plugged again and nothing has ended: the device is not asked.
        driver.with(|queue, now, _| queue.make_batcher(7, now));
        driver.now = Nanos::from_ms(wait_ms);
        assert_eq!(driver.submit(Read, 70_000, 8), expected, "after {wait_ms} ms");
    }
}

#[test]
fn the_pool_of_2_4_is_shared_and_writers_wait_for_bytes_before_readers_do() {
    let setup = Setup { elevator: "linus", nr_requests: 1024, max_queue_sectors: 64, max_sectors: 16, ..SETUP };
    let refused_at = |dir| {
        let mut driver = Driver::new(setup);
        (0..100).take_while(|request| driver.submit(dir, request * 1000, 8) == Submitted::Queued).count()
    };
    // 64 sectors are reached with the eighth; one more is needed to be beyond; readers may have a quarter more.
    assert_eq!((refused_at(Write), refused_at(Read)), (9, 11));
    let mut driver = Driver::new(Setup { nr_requests: 4, max_queue_sectors: 1 << 20, ..setup });
    let taken = [Read, Write, Read, Write, Read].map(|dir| {
        let at = driver.events.len() as u64 * 1000;
        driver.submit(dir, at, 8)
    });
    assert_eq!(taken[3..], [Submitted::Queued, Submitted::NoRequest]);
}

#[test]
fn a_queue_of_128_is_congested_from_113_requests_on() {
    let mut driver = Driver::new(Setup { device: "nvme", depth: Some("1"), ..SETUP });
    for request in 0..120u64 {
        let congested = driver.queue.congested(Read);
        assert_eq!(congested, request >= 113, "{request} requests");
        driver.submit(Read, request * 1000, 8);
    }
    assert!(!driver.queue.congested(Write), "each direction counts for itself");
    driver.unplug();
    let mut seen = Vec::new();
    while !driver.queue.is_idle() {
        let left = 120 - driver.finished.len();
        seen.push(left);
        // The kernel says so until fewer than 111 are left, the model until fewer than 113: hysteresis of two requests
        // is left out, so nothing is expected of 111 and 112.
        if !(111..113).contains(&left) {
            assert_eq!(driver.queue.congested(Read), left >= 113, "{left} requests left");
        }
        let next = driver.due.next_at().expect("something is at the device");
        driver.run_until(next);
    }
    assert!(seen.contains(&113) && seen.contains(&110), "the device takes one at a time");
}

#[test]
fn a_plug_list_is_flushed_at_its_limits_before_another_request_is_added() {
    let lists =
        |max_requests, flush_kb: u32| Plugging::Task { max_requests, flush_sectors: flush_kb * 2, whole_call: false };
    for (plugging, nr_sectors, flushed_before) in [
        (lists(16, 0), 8, Some(16)),
        (lists(32, 128), 8, Some(32)),
        (lists(32, 128), 248, Some(32)),
        // 128 KiB: the very next request flushes.
        (lists(32, 128), 256, Some(1)),
        (lists(16, 0), 256, Some(16)),
        (lists(0, 0), 8, None),
    ] {
        let mut driver = Driver::new(Setup { plugging, device: "nvme", max_sectors: 2560, ..SETUP });
        let mut list = PlugList::new();
        let mut nr_requests = 0;
        while driver.unplugs().is_empty() && nr_requests < 100 {
            // Far apart, highest first.
            assert_eq!(driver.submit_to(&mut list, Read, 900_000 - nr_requests * 1000, nr_sectors), Submitted::Queued);
            nr_requests += 1;
        }
        match flushed_before {
            Some(limit) => {
                assert_eq!(driver.unplugs(), [(UnplugCause::Threshold, limit)], "{plugging:?}, {nr_sectors} sectors");
                assert_eq!((nr_requests as u32, list.len()), (limit + 1, 1), "{plugging:?}, {nr_sectors} sectors");
                let issued = driver.issued();
                assert_eq!(issued.len(), limit as usize);
                assert!(issued.is_sorted(), "a list is sorted before the elevator gets it: {issued:?}");
            }
            None => assert_eq!((driver.issued().len(), list.len()), (0, 100)),
        }
    }
}

#[test]
fn bios_join_requests_on_the_plug_list_which_nobody_else_sees() {
    let mut driver = Driver::new(Setup { plugging: UNPLUGGED, device: "nvme", ..SETUP });
    let mut list = PlugList::new();
    for sector in [100, 108, 116, 92, 500] {
        driver.submit_to(&mut list, Read, sector, 8);
    }
    assert_eq!((list.len(), driver.issued()), (2, vec![]));
    assert_eq!(driver.count(|what| matches!(what, What::Merge { kind: MergeKind::Back, .. })), 2);
    assert_eq!(driver.count(|what| matches!(what, What::Merge { kind: MergeKind::Front, .. })), 1);
    // Another task's bio next to it is a request of its own, and is issued at once.
    driver.submit(Read, 124, 8);
    assert_eq!(driver.issued(), [(124, 8)]);
    driver.with(|queue, now, rec| queue.flush_plug(now, &mut list, UnplugCause::Finish, rec));
    assert_eq!(driver.issued(), [(124, 8), (92, 32), (500, 8)]);
    assert_eq!(driver.unplugs(), [(UnplugCause::Finish, 2)]);
    driver.drain();
    assert_eq!(driver.finished.len(), 6);
}

#[test]
fn a_task_that_is_refused_a_request_has_lost_nothing() {
    let mut driver = Driver::new(Setup { nr_requests: 4, batch_requests: 0, ..SETUP });
    let taken = (0..10).filter(|request| driver.submit(Read, request * 1000, 8) == Submitted::Queued).count();
    driver.drain();
    assert_eq!(driver.finished.len(), taken);
    assert_eq!(driver.count(|what| matches!(what, What::BioQueue { .. })), taken, "a refused bio has not been queued");
}

#[test]
fn the_device_never_has_more_than_its_depth_and_is_kept_busy() {
    for (depth, nr) in [("1", 1), ("4", 4), ("31", 31)] {
        for &elevator in ELEVATORS {
            let setup = Setup { elevator, device: "nvme", depth: Some(depth), plugging: UNPLUGGED, ..SETUP };
            let mut driver = Driver::new(setup);
            for request in 0..64 {
                driver.submit(Read, request * 5000, 8);
            }
            assert_eq!(driver.issued().len(), nr, "{elevator}");
            driver.drain();
            let most = driver.events.iter().filter_map(|event| match event.what {
                What::Issue { in_flight, .. } => Some(in_flight),
                _ => None,
            });
            assert_eq!(most.max(), Some(nr as u16), "{elevator}");
            assert_eq!(driver.finished.len(), 64, "{elevator}");
        }
    }
}
