//! The behaviour that the family is known for, with a device that serves one request after another.

use super::super::testing::Driver;
use super::super::{Ctx, ELEVATORS};
use crate::event::Dir::{self, Read, Write};
use crate::event::{CallId, Content, RqId};
use crate::origin::find;
use crate::request::{Bio, BioId, IoClass, IoContext, Request};
use crate::units::{Hz, Nanos, Sector};
use std::collections::{BTreeSet, VecDeque};

const FAMILY: [&str; 3] = ["cfq-2.6.38", "cfq-3.2", "cfq-4.4"];

fn context(task: u32) -> IoContext {
    IoContext { task, thread_group: task }
}

fn bio(dir: Dir, sector: u64, nr_sectors: u32, task: u32) -> Bio {
    Bio {
        sector: Sector(sector),
        nr_sectors,
        dir,
        content: Content::Data,
        sync: dir == Read,
        no_idle: false,
        class: IoClass::BestEffort,
        prio: false,
        flush: false,
        context: context(task),
        call: CallId::NONE,
        queued: Nanos::ZERO,
        token: 0,
        next: BioId::NONE,
    }
}

/// A device that takes many requests and serves them in the order in which it got them.
struct Disk {
    driver: Driver,
    depth: u32,
    /// At the device, with the time at which each will be done.
    busy: Vec<(Nanos, RqId)>,
    head: u64,
    free_at: Nanos,
    /// Time in which requests waited and the device had nothing to do.
    wasted: Nanos,
    /// Task and start of everything served.
    served: Vec<(u32, Nanos)>,
}

impl Disk {
    fn new(name: &str, hz: u32, depth: u32, settings: &[(&str, i64)]) -> Disk {
        let driver = Driver::with(name, hz, settings);
        let (head, free_at, wasted) = (0, Nanos::ZERO, Nanos::ZERO);
        Disk { driver, depth, busy: Vec::new(), head, free_at, wasted, served: Vec::new() }
    }

    fn feed(&mut self) {
        while self.driver.in_driver < self.depth
            && let Some(rq) = self.driver.try_start()
        {
            let Request { sector, nr_sectors, context, .. } = self.driver.requests[rq];
            // 150 MB/s, and 8 ms for every jump.
            let seek = if sector.0 == self.head { Nanos::ZERO } else { Nanos::from_ms(8) };
            self.head = sector.0 + u64::from(nr_sectors);
            let begin = self.free_at.max(self.driver.now);
            self.free_at = begin + seek + Nanos(3_400 * u64::from(nr_sectors));
            self.busy.push((self.free_at, rq));
            self.served.push((context.task, begin));
        }
    }

    /// Runs until a request is done or `until` has come. The request.
    fn run(&mut self, until: Nanos) -> Option<Request> {
        loop {
            self.feed();
            let done = self.busy.first().map(|entry| entry.0);
            let timer = self.driver.elevator.timer();
            let at = [done, timer].into_iter().flatten().fold(until, Nanos::min).max(self.driver.now);
            if self.busy.is_empty() && !self.driver.elevator.is_empty() {
                self.wasted += at - self.driver.now;
            }
            self.driver.now = at;
            self.driver.wait_ms(0);
            if done == Some(at) {
                let (_, rq) = self.busy.remove(0);
                let request = self.driver.requests[rq];
                self.driver.complete(rq);
                return Some(request);
            }
            if at == until {
                return None;
            }
        }
    }
}

/// Readers that each ask for the next request 0.1 ms after the last one is done. `next` gives its sector.
fn read_in_parallel(disk: &mut Disk, readers: u32, end: Nanos, mut next: impl FnMut(u32) -> (u64, u32)) {
    let mut ready: Vec<Option<Nanos>> = vec![Some(Nanos::ZERO); readers as usize];
    while disk.driver.now < end {
        for task in 0..readers {
            if ready[task as usize].is_some_and(|at| at <= disk.driver.now) {
                let (sector, nr_sectors) = next(task);
                disk.driver.submit(Read, sector, nr_sectors, task);
                ready[task as usize] = None;
            }
        }
        let until = ready.iter().flatten().copied().fold(end, Nanos::min);
        if let Some(request) = disk.run(until) {
            ready[request.context.task as usize] = Some(disk.driver.now + Nanos::from_us(100));
        }
    }
}

#[test]
fn two_sequential_readers_far_apart_have_turns_of_100_ms() {
    for name in FAMILY {
        for hz in [250, 1000] {
            let mut disk = Disk::new(name, hz, 31, &[]);
            let mut position = [1_000_000, 500_000_000];
            read_in_parallel(&mut disk, 2, Nanos::from_ms(3_000), |task| {
                position[task as usize] += 256;
                (position[task as usize] - 256, 256)
            });
            let mut turns = vec![disk.served[0]];
            for &(task, at) in &disk.served {
                if turns[turns.len() - 1].0 != task {
                    turns.push((task, at));
                }
            }
            let lengths: Vec<Nanos> = turns.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
            assert!((25..=30).contains(&lengths.len()), "{name}: {} turns in 3 s", lengths.len());
            for &length in &lengths[1..] {
                assert!(length > Nanos::from_ms(99) && length < Nanos::from_ms(120), "{name}, {hz}: {lengths:?}");
            }
            assert!(disk.driver.idle_started > 500, "{name} waits for the reader whose turn it is");
        }
    }
}

#[test]
fn without_slice_idle_nothing_waits() {
    for name in FAMILY {
        let mut disk = Disk::new(name, 250, 31, &[("slice_idle_ms", 0)]);
        let mut position = [1_000_000, 500_000_000];
        read_in_parallel(&mut disk, 2, Nanos::from_ms(1_000), |task| {
            position[task as usize] += 256;
            (position[task as usize] - 256, 256)
        });
        assert_eq!((disk.driver.idle_started, disk.wasted), (0, Nanos::ZERO), "{name}");
        assert!(disk.served.windows(2).filter(|pair| pair[0].0 != pair[1].0).count() > 100, "{name}");
    }
}

#[test]
fn more_than_four_seeks_among_the_last_32_requests_end_the_waiting() {
    for name in FAMILY {
        for (seeks, jump, waits) in [(0, 801, true), (4, 801, true), (5, 801, false), (12, 800, true)] {
            let mut driver = Driver::new(name, 1000);
            // The other one seeks as well, so that neither is the last of its tree.
            for i in 0..6 {
                driver.submit(Read, 900_000_000 + 1_000_000 * (i % 2), 8, 1);
                driver.step();
            }
            let mut sector = 1_000_000;
            for i in 0..40 {
                sector += if (20 - seeks..20).contains(&i) { 8 + jump } else { 8 };
                driver.submit(Read, sector, 8, 0);
                if i == 39 {
                    break;
                }
                driver.step();
                // A queue changes its tree between turns, so one turn is left to end for lack of requests.
                driver.wait_ms(if i == 25 { 20 } else { 1 });
            }
            let own = driver.start().expect("the last one of the reader");
            driver.submit(Read, 950_000_000, 8, 1);
            driver.complete(own);
            assert_eq!(driver.try_start().is_none(), waits, "{name}: {seeks} seeks of {jump}");
        }
    }
}

/// `readers` take turns in reading windows of 256 sectors of one file: window k + 2 is asked for 0.2 ms after window k
/// has been read. With `block_maps`, everyone's first window is followed by a block far away. Returns the disk after
/// `windows` windows.
fn rotate(name: &str, readers: u32, windows: u64, seeks: (u32, bool), settings: &[(&str, i64)]) -> Disk {
    let (startup_seeks, block_maps) = seeks;
    let base = 1_000_000;
    let mut disk = Disk::new(name, 250, 31, settings);
    (0..readers).for_each(|task| disk.driver.elevator.task_started(context(task), startup_seeks));
    let mut to_ask = VecDeque::from([Nanos::ZERO; 2]);
    let (mut asked, mut read, mut done) = (0, 0, BTreeSet::new());
    while read < windows {
        while to_ask.front().is_some_and(|&at| at <= disk.driver.now) {
            to_ask.pop_front();
            let (sector, task) = (base + 256 * asked, (asked % u64::from(readers)) as u32);
            disk.driver.submit(Read, sector, 256, task);
            if block_maps && asked < u64::from(readers) {
                disk.driver.submit(Read, sector + 100_000, 8, task);
            }
            asked += 1;
        }
        let until = to_ask.front().copied().unwrap_or(disk.driver.now + Nanos::from_ms(100));
        if let Some(request) = disk.run(until) {
            let first = (request.sector.0 - base) / 256;
            done.extend((0..u64::from(request.nr_sectors / 256)).map(|i| first + i));
        }
        while done.remove(&read) {
            read += 1;
            to_ask.push_back(disk.driver.now + Nanos::from_us(200));
        }
    }
    disk
}

/// Whether the requests of tasks 0 and 1 go to one queue: only then are they joined.
fn share_a_queue(disk: &mut Disk) -> bool {
    let (first, _) = disk.driver.submit_bio(&bio(Read, 2_000_000_000, 8, 0));
    let (second, _) = disk.driver.submit_bio(&bio(Read, 2_000_000_008, 8, 1));
    first == second
}

#[test]
fn readers_in_rotation_are_waited_for_until_their_jumps_are_seeks() {
    for name in FAMILY {
        for (readers, jump, waits) in
            [(2, 256, true), (3, 512, true), (4, 768, true), (5, 1024, false), (8, 1792, false)]
        {
            let disk = rotate(name, readers, 1_000, (0, false), &[("cooperate", 0)]);
            let per_window = Nanos(disk.wasted.0 / 1_000);
            if waits {
                assert!(
                    per_window > Nanos::from_ms(1),
                    "{name}: {readers} readers, {jump}: waits {per_window} a window"
                );
            } else {
                let most = Nanos::from_us(300);
                assert!(per_window < most, "{name}: {readers} readers, {jump}: waits {per_window} a window");
            }
        }
    }
}

#[test]
fn close_queues_without_seeks_become_one() {
    for name in FAMILY {
        for readers in [2, 3, 4] {
            let mut disk = rotate(name, readers, 100, (0, false), &[]);
            assert!(share_a_queue(&mut disk), "{name}, {readers} readers");
            let mut disk = rotate(name, readers, 100, (0, false), &[("cooperate", 0)]);
            assert!(!share_a_queue(&mut disk), "{name}, {readers} readers");
        }
        // Four seeks are forgiven; with two jumps more they are not, until they are forgotten after 32 requests each.
        for (startup_seeks, block_maps, merged) in [(4, false, true), (2, true, true), (4, true, false)] {
            let mut disk = rotate(name, 3, 80, (startup_seeks, block_maps), &[]);
            assert_eq!(share_a_queue(&mut disk), merged, "{name}: {startup_seeks} seeks, {block_maps}");
        }
    }
}

#[test]
fn a_shared_queue_that_seeks_is_taken_apart() {
    for name in FAMILY {
        let mut disk = rotate(name, 2, 100, (0, false), &[]);
        assert!(share_a_queue(&mut disk), "{name}");
        let mut sector = 0;
        let end = disk.driver.now + Nanos::from_ms(2_000);
        read_in_parallel(&mut disk, 2, end, |task| {
            sector += 10_000;
            (sector + 500_000_000 * u64::from(task), 8)
        });
        assert!(!share_a_queue(&mut disk), "{name}");
    }
}

/// Starts as many requests as leave now: their tasks.
fn burst(driver: &mut Driver) -> Vec<u32> {
    std::iter::from_fn(|| driver.try_start().map(|rq| driver.requests[rq].context.task)).collect()
}

#[test]
fn async_writes_wait_while_sync_requests_are_at_the_device() {
    for name in FAMILY {
        let mut driver = Driver::with(name, 250, &[("slice_idle_ms", 0), ("group_idle_ms", 0)]);
        driver.submit(Read, 1_000, 8, 0);
        let read = driver.start().expect("the read");
        driver.submit(Write, 5_000, 8, 9);
        assert_eq!(driver.try_start(), None, "{name}");
        driver.complete(read);
        assert_eq!(burst(&mut driver), [9], "{name}");
    }
}

#[test]
fn a_read_takes_the_turn_from_writes_and_lets_them_drain() {
    for name in FAMILY {
        let mut driver = Driver::new(name, 250);
        (0..20).for_each(|i| driver.submit(Write, 5_000 + 100 * i, 8, 9));
        let write = driver.start().expect("a write");
        driver.submit(Read, 900_000_000, 8, 0);
        assert_eq!(driver.try_start(), None, "{name}: the write is still at the device");
        driver.complete(write);
        assert_eq!(burst(&mut driver), [0], "{name}");
    }
}

#[test]
fn how_many_requests_of_a_queue_are_at_the_device() {
    for (name, beside_writes) in [("cfq-2.6.38", 4), ("cfq-3.2", 20), ("cfq-4.4", 20)] {
        let reads = |driver: &mut Driver, task: u32| {
            (0..20).for_each(|i| driver.submit(Read, 1_000_000 * u64::from(task + 1) + 100 * i, 8, task));
        };
        let mut alone = Driver::new(name, 250);
        reads(&mut alone, 0);
        assert_eq!(burst(&mut alone).len(), 20, "{name}: alone");
        let mut driver = Driver::new(name, 250);
        reads(&mut driver, 0);
        reads(&mut driver, 1);
        let first = driver.start().expect("a read");
        assert_eq!(burst(&mut driver), [0; 3], "{name}: until something completes, 4");
        driver.complete(first);
        assert_eq!(burst(&mut driver), [0; 5], "{name}: then up to 8");
        let mut driver = Driver::new(name, 250);
        reads(&mut driver, 0);
        driver.submit(Write, 5_000, 8, 9);
        assert_eq!(burst(&mut driver).len(), beside_writes, "{name}: beside a write");
    }
}

#[test]
fn writes_alone_are_let_in_by_the_time_since_a_read_was_late() {
    for name in FAMILY {
        for (ms, at_device) in [(0, 10), (100, 11), (500, 15)] {
            let mut driver = Driver::new(name, 250);
            driver.wait_ms(ms);
            (0..40).for_each(|i| driver.submit(Write, 5_000 + 100 * i, 8, 9));
            assert_eq!(burst(&mut driver).len(), at_device, "{name} after {ms} ms");
        }
        let mut driver = Driver::with(name, 250, &[("low_latency", 0)]);
        (0..40).for_each(|i| driver.submit(Write, 5_000 + 100 * i, 8, 9));
        assert_eq!(burst(&mut driver).len(), 40, "{name}");
    }
}

#[test]
fn an_overdue_request_comes_first_in_its_turn() {
    for name in FAMILY {
        for (ms, first) in [(120, 96), (124, 900_000_000)] {
            let mut driver = Driver::new(name, 250);
            driver.submit(Read, 900_000_000, 8, 0);
            driver.wait_ms(ms);
            driver.submit(Read, 96, 8, 0);
            assert_eq!(driver.step(), first, "{name} after {ms} ms");
        }
    }
}

#[test]
fn an_overdue_read_passes_the_writes_at_the_device_in_4_4_only() {
    for (name, passes) in [("cfq-2.6.38", false), ("cfq-3.2", false), ("cfq-4.4", true)] {
        let mut driver = Driver::new(name, 250);
        driver.submit(Write, 5_000, 8, 9);
        driver.start().expect("the write");
        driver.submit(Read, 900_000_000, 8, 0);
        driver.wait_ms(200);
        assert_eq!(driver.try_start().is_some(), passes, "{name}");
    }
}

#[test]
fn metadata_takes_the_turn_from_plain_reads() {
    for name in FAMILY {
        for (prio, order) in [(false, [0, 0]), (true, [1, 0])] {
            let mut driver = Driver::new(name, 250);
            (0..9).for_each(|i| driver.submit(Read, 1_000_000 + 100 * i, 8, 0));
            driver.step();
            driver.submit_bio(&Bio { prio, ..bio(Read, 900_000_000, 8, 1) });
            let served: Vec<u32> = (0..2)
                .map(|_| {
                    let rq = driver.start().expect("a read");
                    driver.complete(rq);
                    driver.requests[rq].context.task
                })
                .collect();
            assert_eq!(served, order, "{name}");
        }
    }
}

#[test]
fn a_task_that_promises_nothing_is_not_waited_for() {
    for name in FAMILY {
        for (no_idle, waits) in [(false, true), (true, false)] {
            let mut driver = Driver::new(name, 250);
            // Another task of the same kind, so that neither is the last of its tree.
            for task in [1, 0] {
                for i in 0..3 {
                    driver.submit_bio(&Bio { no_idle, ..bio(Read, 1_000_000 * u64::from(task) + 8 * i, 8, task) });
                    if (task, i) != (0, 2) {
                        driver.step();
                    }
                }
            }
            let own = driver.start().expect("the last one of task 0");
            driver.submit_bio(&Bio { no_idle, ..bio(Read, 950_000_000, 8, 1) });
            driver.complete(own);
            assert_eq!(driver.try_start().is_none(), waits, "{name}");
        }
    }
}

#[test]
fn a_wait_ends_on_the_second_tick() {
    // Armed at 3 ms, 8 ms of HZ 250 are over at 8 ms; of HZ 1000 at 11 ms.
    for name in FAMILY {
        for (hz, until) in [(250, 8), (1000, 11)] {
            let mut driver = Driver::new(name, hz);
            driver.submit(Read, 1_000_000, 8, 0);
            let own = driver.start().expect("the read");
            driver.wait_ms(3);
            driver.submit(Read, 900_000_000, 8, 1);
            driver.complete(own);
            assert_eq!(driver.try_start(), None);
            assert_eq!(driver.elevator.timer(), Some(Nanos::from_ms(until)), "{name}, {hz}");
            driver.exit(0);
            assert!(driver.try_start().is_some(), "{name}: nobody is left to wait for");
        }
    }
}

#[test]
fn fast_devices_are_not_waited_for() {
    for name in FAMILY {
        for (rotational, waits) in [(true, true), (false, false)] {
            let mut driver = Driver::new(name, 250);
            let entry = find(ELEVATORS, name).expect("an entry");
            let mut elevator = (entry.build)(&entry.defaults(), Hz(250));
            std::mem::swap(&mut driver.elevator, &mut elevator);
            let add = |driver: &mut Driver, sector: u64, task: u32| {
                let bio = bio(Read, sector, 256, task);
                let rq = driver.requests.insert(Request {
                    sector: bio.sector,
                    nr_sectors: bio.nr_sectors,
                    dir: bio.dir,
                    content: bio.content,
                    sync: true,
                    no_idle: false,
                    class: IoClass::BestEffort,
                    prio: false,
                    flush: false,
                    started: false,
                    no_merge: false,
                    context: bio.context,
                    call: bio.call,
                    nr_bios: 1,
                    first: BioId::NONE,
                    last: BioId::NONE,
                    queued: Nanos::ZERO,
                    allocated: Nanos::ZERO,
                    inserted: Nanos::ZERO,
                    issued: Nanos::ZERO,
                });
                let mut ctx = Ctx::new(Nanos::ZERO, Hz(250), &mut driver.requests);
                ctx.rotational = rotational;
                driver.elevator.add(&mut ctx, rq);
            };
            add(&mut driver, 1_000_000, 0);
            let mut ctx = Ctx::new(Nanos::ZERO, Hz(250), &mut driver.requests);
            ctx.rotational = rotational;
            let own = driver.elevator.next(&mut ctx).expect("the read");
            add(&mut driver, 900_000_000, 1);
            let mut ctx = Ctx::new(Nanos::ZERO, Hz(250), &mut driver.requests);
            ctx.rotational = rotational;
            driver.elevator.completed(&mut ctx, own);
            assert_eq!(driver.elevator.next(&mut ctx).is_none(), waits, "{name}");
        }
    }
}

#[test]
fn a_request_is_joined_by_its_own_task_only() {
    for name in FAMILY {
        for (task, sector, joined) in [(0, 1_008, true), (1, 1_008, false), (0, 992, true), (1, 992, false)] {
            let mut driver = Driver::new(name, 250);
            let (first, _) = driver.submit_bio(&bio(Read, 1_000, 8, 0));
            driver.submit(Read, 5_000, 8, 1);
            let (second, _) = driver.submit_bio(&bio(Read, sector, 8, task));
            assert_eq!(first == second, joined, "{name}: task {task} at {sector}");
            // The writes of all tasks are in one queue.
            let (first, _) = driver.submit_bio(&bio(Write, 1_000, 8, 0));
            driver.submit(Write, 5_000, 8, task);
            let (second, _) = driver.submit_bio(&bio(Write, sector, 8, task));
            assert_eq!(first, second, "{name}: task {task} at {sector}");
        }
    }
}
