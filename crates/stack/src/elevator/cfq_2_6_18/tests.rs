//! Tests of the four flavours.

use super::super::testing::Driver;
use super::*;
use crate::event::Dir::{Read, Write};
use crate::event::{CallId, Content};
use crate::request::{BioId, IoClass};
use crate::rng::Rng;
use std::collections::BTreeMap;

const SHARED: &str = "cfq-2.6.18-164";
const OWN: &str = "cfq-2.6.18-186";
const PATCHED: &str = "cfq-2.6.18-194+sync";
const SYNC_WRITES: &str = "cfq-2.6.18-198";
const ALL: [&str; 4] = [SHARED, OWN, PATCHED, SYNC_WRITES];

fn bio(dir: Dir, sync: bool, sector: u64, task: u32) -> Bio {
    Bio {
        sector: Sector(sector),
        nr_sectors: 8,
        dir,
        content: Content::Data,
        sync,
        no_idle: false,
        class: IoClass::BestEffort,
        prio: false,
        flush: false,
        context: IoContext { task, thread_group: task },
        call: CallId::NONE,
        queued: Nanos::ZERO,
        token: 0,
        next: BioId::NONE,
    }
}

/// Results of a closed loop of tasks, each with one request at a time.
struct LoopResult {
    /// Requests completed, by task.
    served: Vec<u64>,
    /// Most requests at the device.
    outstanding: usize,
    /// Most tasks with a request there.
    tasks: usize,
    /// How often a request was started while one of another task was there.
    together: usize,
    /// When the device was first given a request of another task than the last, and whose.
    turns: Vec<(Nanos, u32)>,
    waits: u32,
    ended: Nanos,
}

/// Task `t` asks for the sectors of `place(t, i)`; each request takes a random time of its own, and the next one comes
/// after a moment. Ends after `limit` or when `requests` have been completed.
struct Closed {
    dir: Dir,
    tasks: u32,
    depth: usize,
    limit: Nanos,
    requests: u64,
    place: fn(u32, u64, Nanos) -> u64,
}

/// Four regions, far from each other.
fn apart(task: u32, i: u64, _now: Nanos) -> u64 {
    u64::from(task) * 50_000_000 + 8 * i
}

impl Closed {
    fn writers(tasks: u32, depth: usize) -> Closed {
        Closed { dir: Write, tasks, depth, limit: Nanos::from_secs(4), requests: u64::MAX, place: apart }
    }

    fn run(&self, name: &str, settings: &[(&str, i64)]) -> LoopResult {
        enum What {
            Arrival(u32),
            Completion(RqId),
        }
        let mut driver = Driver::with(name, 1000, settings);
        let mut rng = Rng::stream(1, "service");
        let mut events = BTreeMap::new();
        let mut number = 0;
        let mut at_device: Vec<RqId> = Vec::new();
        let mut asked = vec![0; self.tasks as usize];
        let mut seen = LoopResult {
            served: vec![0; self.tasks as usize],
            outstanding: 0,
            tasks: 0,
            together: 0,
            turns: Vec::new(),
            waits: 0,
            ended: Nanos::ZERO,
        };
        for task in 0..self.tasks {
            events.insert((Nanos::from_us(u64::from(task)), number), What::Arrival(task));
            number += 1;
        }
        while let Some((&(at, _), _)) = events.first_key_value()
            && at < self.limit
            && seen.served.iter().sum::<u64>() < self.requests
        {
            let timer = driver.elevator.timer().map(|timer| timer.max(driver.now));
            if let Some(timer) = timer.filter(|&timer| timer <= at) {
                driver.now = timer;
                driver.wait_ms(0);
            } else {
                driver.now = at;
                match events.pop_first().expect("there is a first").1 {
                    What::Arrival(task) => {
                        let i = &mut asked[task as usize];
                        driver.submit_bio(&bio(self.dir, true, (self.place)(task, *i, at), task));
                        *i += 1;
                    }
                    What::Completion(rq) => {
                        let task = driver.requests[rq].context.task;
                        seen.served[task as usize] += 1;
                        at_device.retain(|&other| other != rq);
                        driver.complete(rq);
                        events.insert((at + Nanos::from_us(20), number), What::Arrival(task));
                        number += 1;
                    }
                }
            }
            while at_device.len() < self.depth
                && let Some(rq) = driver.try_start()
            {
                let task = driver.requests[rq].context.task;
                if seen.turns.last().is_none_or(|turn| turn.1 != task) {
                    seen.turns.push((driver.now, task));
                }
                at_device.push(rq);
                seen.outstanding = seen.outstanding.max(at_device.len());
                let mut tasks: Vec<u32> = at_device.iter().map(|&rq| driver.requests[rq].context.task).collect();
                tasks.sort_unstable();
                tasks.dedup();
                seen.tasks = seen.tasks.max(tasks.len());
                seen.together += usize::from(tasks.len() > 1);
                let done = driver.now + Nanos::from_us(50 + rng.below(400));
                events.insert((done, number), What::Completion(rq));
                number += 1;
            }
        }
        seen.waits = driver.idle_started;
        seen.ended = driver.now;
        seen
    }
}

#[test]
fn direct_writers_share_the_device_only_while_they_share_a_queue() {
    for tasks in [2, 4] {
        let writers = Closed::writers(tasks, 31);
        let old = writers.run(SHARED, &[]);
        assert!(old.tasks >= 2 && old.waits == 0, "{tasks} writers: {} together", old.tasks);
        let new = writers.run(OWN, &[]);
        assert_eq!((new.tasks, new.outstanding, new.waits), (1, 1, 0), "{tasks} writers");
        let (old, new): (u64, u64) = (old.served.iter().sum(), new.served.iter().sum());
        assert!(old > new * 13 / 10, "{tasks} writers on a device that serves all at once: {old} and {new}");
    }
}

#[test]
fn a_device_that_takes_one_request_at_a_time_shows_no_difference() {
    for tasks in [2, 4] {
        let writers = Closed { requests: 5_000, ..Closed::writers(tasks, 1) };
        let (old, new) = (writers.run(SHARED, &[]), writers.run(OWN, &[]));
        assert_eq!(old.ended, new.ended, "{tasks} writers");
    }
}

#[test]
fn sync_writers_have_the_device_to_themselves_for_a_slice() {
    for (name, tasks) in [(PATCHED, 2), (PATCHED, 4), (SYNC_WRITES, 2), (SYNC_WRITES, 4)] {
        let seen = Closed::writers(tasks, 31).run(name, &[]);
        // Whose slice ends while it has a request at the device leaves it there.
        assert!(seen.tasks <= 2 && seen.together < seen.turns.len(), "{name}: {} together", seen.together);
        assert!(seen.waits > 1_000, "{name}: the device is kept idle after every request, not {} times", seen.waits);
        for turn in seen.turns.windows(2) {
            let ms = (turn[1].0 - turn[0].0).0 / 1_000_000;
            assert!((100..=103).contains(&ms), "{name}: a turn of {ms} ms");
        }
        assert!(seen.turns.len() >= 38, "{name}: {} turns in 4 s", seen.turns.len());
        let (least, most) = (seen.served.iter().min().unwrap(), seen.served.iter().max().unwrap());
        assert!(least * 5 > most * 4, "{name}: {:?}", seen.served);
    }
}

#[test]
fn without_idling_sync_writers_share_the_device_as_they_did_before() {
    for tasks in [2, 4] {
        let writers = Closed::writers(tasks, 31);
        let before: u64 = writers.run(SHARED, &[]).served.iter().sum();
        for name in [PATCHED, SYNC_WRITES] {
            let seen = writers.run(name, &[("slice_idle_ms", 0)]);
            let served: u64 = seen.served.iter().sum();
            assert!(seen.tasks >= 2 && seen.waits == 0, "{name}");
            assert!(served.abs_diff(before) * 50 < before, "{name}, {tasks} writers: {served}, before {before}");
        }
    }
}

/// Tasks of one file, each reading every other block.
fn interleaved(task: u32, i: u64, _now: Nanos) -> u64 {
    1_000_000 + 16 * i + 8 * u64::from(task)
}

#[test]
fn readers_side_by_side_cooperate_in_the_later_flavours() {
    for (name, switches) in [(SHARED, 0..100), (OWN, 2_000..100_000), (SYNC_WRITES, 2_000..100_000)] {
        let readers = Closed { dir: Read, place: interleaved, ..Closed::writers(2, 1) };
        let seen = readers.run(name, &[]);
        assert!(switches.contains(&seen.turns.len()), "{name}: {} turns in 4 s", seen.turns.len());
    }
}

/// Side by side for a second, then far apart.
fn parting(task: u32, i: u64, now: Nanos) -> u64 {
    if now < Nanos::from_secs(1) { interleaved(task, i, now) } else { apart(task, i, now) + 10_000_000 }
}

#[test]
fn united_queues_are_parted_a_second_after_their_tasks_have_parted() {
    let readers = Closed { dir: Read, place: parting, ..Closed::writers(2, 1) };
    let seen = readers.run(SYNC_WRITES, &[]);
    let turns = |from: u64, to: u64| {
        let (from, to) = (Nanos::from_ms(from), Nanos::from_ms(to));
        seen.turns.iter().filter(|turn| turn.0 >= from && turn.0 < to).count()
    };
    assert!(turns(100, 1_000) > 500, "they cooperate: {}", turns(100, 1_000));
    assert!(turns(1_100, 1_900) > 500, "still one queue: {}", turns(1_100, 1_900));
    assert!((15..=25).contains(&turns(2_100, 4_000)), "a slice each: {}", turns(2_100, 4_000));
}

#[test]
fn means_are_fixed_point_of_seven_eighths() {
    let (mut seeks, mut think) = (Mean::default(), Mean::default());
    // (seek sample, samples, mean), worked out by hand; the fourth sample meets the narrow clamp.
    for (seek, samples, mean) in
        [(9_000_000, 32, 2_097_152), (0, 60, 978_671), (0, 84, 611_669), (100_000_000, 105, 1_213_768)]
    {
        seeks.seek(seek);
        assert_eq!((seeks.samples, seeks.mean, seeks.valid()), (samples, mean, samples > 80), "after {seek}");
    }
    for (ticks, samples, mean) in [(4, 32, 8), (4, 60, 6), (16, 84, 10)] {
        think.think(ticks);
        assert_eq!((think.samples, think.mean), (samples, mean), "after {ticks}");
    }
}

/// A driver whose task 0 has read `blocks` blocks with the given stride and pause; the last is at the device, and task
/// 1 wants something far away.
fn one_reader(name: &str, settings: &[(&str, i64)], blocks: u64, stride: u64, pause_ms: u64) -> (Driver, RqId) {
    let mut driver = Driver::with(name, 1000, settings);
    for i in 0..blocks {
        driver.submit(Read, 1_000_000 + stride * i, 8, 0);
        if i + 1 < blocks {
            driver.step();
            driver.wait_ms(pause_ms);
        }
    }
    let own = driver.start().expect("the last read");
    driver.submit(Read, 90_000_000, 8, 1);
    (driver, own)
}

#[test]
fn it_waits_eight_milliseconds_for_the_next_read_of_the_task() {
    for name in ALL {
        for (after_ms, ended, order) in [
            (0, IdleEnd::Hit, [0, 1]),
            (7, IdleEnd::Hit, [0, 1]),
            (8, IdleEnd::Timeout, [1, 0]),
            (20, IdleEnd::Timeout, [1, 0]),
        ] {
            let (mut driver, own) = one_reader(name, &[], 1, 8, 1);
            driver.complete(own);
            assert_eq!(driver.try_start(), None, "{name} waits");
            assert_eq!(driver.idle_started, 1, "{name}");
            driver.wait_ms(after_ms);
            driver.submit(Read, 1_000_008, 8, 0);
            let served: Vec<u32> = (0..2)
                .map(|_| {
                    let rq = driver.start().expect("two wait");
                    driver.complete(rq);
                    driver.requests[rq].context.task
                })
                .collect();
            assert_eq!((driver.idle_ended[0], served), (ended, order.to_vec()), "{name} after {after_ms} ms");
        }
    }
}

#[test]
fn how_long_it_waits_depends_on_what_is_known_of_the_task() {
    for (why, settings, blocks, stride, pause, waits) in [
        ("sequential", vec![], 9, 8, 1, [8; 4]),
        ("another limit", vec![("slice_idle_ms", 3)], 9, 8, 1, [3; 4]),
        ("no idling at all", vec![("slice_idle_ms", 0)], 9, 8, 1, [0; 4]),
        ("thinks 8 ms", vec![], 9, 8, 8, [8; 4]),
        ("thinks 12 ms", vec![], 9, 8, 12, [0; 4]),
        ("seeks farther than 8192 sectors", vec![], 30, 20_000, 1, [8, 2, 2, 2]),
        ("seeks farther than 131072 sectors", vec![], 30, 200_000, 1, [2; 4]),
        // The third sample of the think time is the first to count.
        ("two samples of 12 ms", vec![], 2, 8, 12, [8; 4]),
        ("three samples of 12 ms", vec![], 3, 8, 12, [0; 4]),
    ] {
        for (name, wait) in ALL.into_iter().zip(waits) {
            let (mut driver, own) = one_reader(name, &settings, blocks, stride, pause);
            driver.complete(own);
            let begin = driver.now;
            let other = driver.start().expect("the other's read");
            assert_eq!(driver.requests[other].context.task, 1);
            assert_eq!(driver.now - begin, Nanos::from_ms(wait), "{why}, {name}");
        }
    }
}

#[test]
fn a_seeky_task_is_not_waited_for_on_a_device_that_queues() {
    for (depth, waits) in [(4, true), (5, false)] {
        let mut driver = Driver::new(SYNC_WRITES, 1000);
        (0..depth).for_each(|i| driver.submit(Read, 70_000_000 + 16 * i, 8, 7));
        let rqs: Vec<RqId> = (0..depth).map(|_| driver.try_start().expect("a read")).collect();
        rqs.into_iter().for_each(|rq| driver.complete(rq));
        driver.wait_ms(50);
        for i in 0..20 {
            driver.submit(Read, 20_000 * (i + 1), 8, 0);
            driver.step();
        }
        driver.submit(Read, 90_000_000, 8, 1);
        assert_eq!(driver.try_start().is_none(), waits, "{depth} reads at the device");
    }
}

#[test]
fn a_task_that_ends_or_writes_is_waited_for_no_longer() {
    for name in ALL {
        let (mut driver, own) = one_reader(name, &[], 4, 8, 1);
        driver.exit(0);
        driver.complete(own);
        assert!(driver.try_start().is_some(), "{name}: its task has ended");
        let (mut driver, own) = one_reader(name, &[], 4, 8, 1);
        driver.complete(own);
        assert_eq!(driver.try_start(), None);
        driver.submit(Write, 500, 8, 3);
        assert_eq!(driver.try_start(), None, "{name}: the write of another changes nothing");
        driver.submit(Write, 5_000, 8, 0);
        assert_eq!(driver.idle_ended.last(), Some(&IdleEnd::Broken), "{name}");
        let first = driver.try_start().expect("something else goes on");
        assert_eq!(driver.requests[first].context.task, 1, "{name}");
    }
}

#[test]
fn a_request_that_waits_too_long_goes_first_once_in_a_slice() {
    // Four of a queue are moved at a time, and sorted; an overdue one takes one of the four places.
    let (in_order, overdue) = ([100, 200, 300, 400, 500, 900_000], [100, 200, 300, 900_000, 400, 500]);
    for name in ALL {
        for (dir, ms, order) in
            [(Read, 125, in_order), (Read, 126, overdue), (Write, 250, in_order), (Write, 251, overdue)]
        {
            let mut driver = Driver::new(name, 1000);
            for sector in [900_000, 100, 200, 300, 400, 500] {
                driver.submit(dir, sector, 8, 0);
            }
            driver.wait_ms(ms);
            assert_eq!(driver.drain(), order, "{name} {dir:?} after {ms} ms");
        }
    }
}

#[test]
fn slices_end() {
    // (flavour, direction, ms a request, requests in a run)
    for (name, dir, ms, run) in [
        // Requests are moved four at a time, so those that were moved at 100 ms come after the end.
        (SHARED, Read, 5, 24),
        (SYNC_WRITES, Read, 5, 24),
        (OWN, Write, 1, 16),
        (PATCHED, Write, 1, 16),
        (OWN, Write, 5, 12),
    ] {
        let mut driver = Driver::new(name, 1000);
        for i in 0..60 {
            (0..2).for_each(|task| driver.submit(dir, 50_000_000 * u64::from(task) + 100 * i, 8, task));
        }
        let mut runs: Vec<(u32, u64)> = Vec::new();
        while let Some(rq) = driver.start() {
            driver.wait_ms(ms);
            let task = driver.requests[rq].context.task;
            match runs.last_mut() {
                Some(last) if last.0 == task => last.1 += 1,
                _ => runs.push((task, 1)),
            }
            driver.complete(rq);
        }
        assert_eq!(runs[..4], [(0, run), (1, run), (0, run), (1, run)], "{name} {dir:?}");
    }
}

#[test]
fn the_dispatch_list_ascends_from_the_last_request_and_wraps() {
    for name in ALL {
        let mut driver = Driver::with(name, 1000, &[("quantum", 8)]);
        driver.submit(Read, 4_992, 8, 0);
        driver.step();
        [100, 9_000, 200, 7_000].iter().for_each(|&sector| driver.submit(Read, sector, 8, 0));
        assert_eq!(driver.drain(), [7_000, 9_000, 100, 200], "{name}");
    }
}

#[test]
fn the_nearest_is_next_and_backwards_counts_double() {
    for name in ALL {
        for (why, settings, waiting, first) in [
            ("ahead and nearer", vec![], [2_000_100, 2_000_300], 2_000_100),
            ("behind, more than half as far", vec![], [1_999_900, 2_000_150], 2_000_150),
            ("behind, less than half as far", vec![], [1_999_900, 2_000_250], 1_999_900),
            ("backwards three times", vec![("back_seek_penalty", 3)], [1_999_900, 2_000_250], 2_000_250),
            ("too far behind", vec![("back_seek_max_kb", 49)], [1_999_900, 2_000_250], 2_000_250),
        ] {
            for order in [waiting, [waiting[1], waiting[0]]] {
                let settings: Vec<(&str, i64)> = settings.iter().copied().chain([("quantum", 1)]).collect();
                let mut driver = Driver::with(name, 1000, &settings);
                driver.submit(Read, 1_999_992, 8, 0);
                driver.step();
                order.iter().for_each(|&sector| driver.submit(Read, sector, 8, 0));
                assert_eq!(driver.step(), first, "{why}, {name}");
            }
        }
    }
}

#[test]
fn front_merges_are_looked_for_where_the_flavour_thinks_the_bio_belongs() {
    // (flavour, sync flag, task of the bio, requests left of three)
    for (name, sync, task, left) in [
        (SHARED, false, 0, 2),
        (SHARED, true, 0, 2),
        (SHARED, false, 1, 2),
        (OWN, false, 0, 2),
        (OWN, true, 0, 3),
        (OWN, false, 1, 3),
        (PATCHED, true, 0, 2),
        (PATCHED, true, 1, 3),
        (SYNC_WRITES, true, 0, 2),
        (SYNC_WRITES, true, 1, 3),
        (SYNC_WRITES, false, 1, 2),
    ] {
        let mut driver = Driver::new(name, 1000);
        // Task 1 has an async queue, its own or the common one; the first request is what the one-hit cache knows.
        driver.submit_bio(&bio(Write, false, 9_000, 1));
        driver.submit_bio(&bio(Write, sync, 108, 0));
        driver.submit_bio(&bio(Write, sync, 100, task));
        assert_eq!(driver.elevator.len(), left, "{name}, sync {sync}, task {task}");
        // At the back anybody may join.
        driver.submit_bio(&bio(Write, sync, 116, task));
        assert_eq!(driver.elevator.len(), left, "{name}, sync {sync}, task {task}, back");
    }
}

#[test]
fn a_task_that_is_waited_for_may_have_one_request_more_in_a_slice() {
    for (name, dir, may) in
        [(SHARED, Read, Some(true)), (OWN, Read, None), (PATCHED, Write, None), (SYNC_WRITES, Write, Some(true))]
    {
        let mut driver = Driver::new(name, 1000);
        driver.submit_bio(&bio(dir, true, 100, 0));
        let rq = driver.start().expect("a request");
        let ask = |driver: &Driver, task| driver.elevator.may_queue(IoContext { task, thread_group: task }, dir);
        assert_eq!(ask(&driver, 0), None, "{name}: not waited for yet");
        driver.complete(rq);
        assert_eq!((ask(&driver, 1), ask(&driver, 0), ask(&driver, 0)), (None, may, None), "{name}");
    }
}

#[test]
fn the_queue_that_was_served_longest_ago_is_next() {
    for name in ALL {
        let mut driver = Driver::new(name, 1000);
        let place = |task: u32, i: u64| 10_000_000 * u64::from(task + 1) + 100 * i;
        for task in [2, 0, 1] {
            driver.submit(Read, place(task, 0), 8, task);
            driver.step();
            driver.wait_ms(20);
        }
        (0..4).for_each(|task| driver.submit(Read, place(task, 1), 8, task));
        let mut served = Vec::new();
        while let Some(rq) = driver.start() {
            served.push(driver.requests[rq].context.task);
            driver.complete(rq);
        }
        assert_eq!(served, [1, 3, 2, 0], "{name}: 1 is still active, 3 was never served");
    }
}
