//! Tables of turns, waits, raising and merges.

use super::*;
use crate::elevator::testing::Driver;
use crate::request::IoContext;
use crate::rng::Rng;
use Dir::{Read, Write};
use std::collections::VecDeque;

/// Sectors that two tasks get in turn while both always have a sequential request waiting; longest runs.
fn runs(settings: &[(&str, i64)], requests: u64) -> Vec<(bool, u64)> {
    let mut driver = Driver::with("bfq", 1000, settings);
    let mut runs: Vec<(bool, u64)> = Vec::new();
    let mut next = [0u64, 1 << 30];
    for task in [0, 1] {
        driver.submit(Read, next[task], 1024, task as u32);
    }
    for _ in 0..requests {
        let rq = driver.start().expect("both have something");
        let task = usize::from(driver.requests[rq].sector.0 >= 1 << 30);
        driver.now += Nanos::from_ms(4);
        driver.complete(rq);
        next[task] += 1024;
        driver.submit(Read, next[task], 1024, task as u32);
        match runs.last_mut() {
            Some((last, nr)) if *last == (task == 1) => *nr += 1,
            _ => runs.push((task == 1, 1)),
        }
    }
    runs
}

#[test]
fn a_budget_is_served_in_one_go_and_then_it_is_the_others_turn() {
    // 16384 sectors are 16 requests, 64 ms; a new queue has two thirds of that.
    let plain = [("low_latency", 0)];
    let found = runs(&plain, 84);
    assert_eq!(found, [(false, 10), (true, 10), (false, 16), (true, 16), (false, 16), (true, 16)]);
    // A tenth of that, which counts from the second turn on: two requests would be too much for it.
    assert!(runs(&[("low_latency", 0), ("max_budget", 1700)], 40)[2..].iter().all(|(_, nr)| *nr == 1));
    // Time in service ends a slot too: 40 ms are 10 requests.
    let timed = [("low_latency", 0), ("timeout_sync_ms", 40), ("max_budget", 20_000)];
    assert!(runs(&timed, 60)[..3].iter().all(|(_, nr)| *nr == 10));
}

#[test]
fn the_next_request_of_a_sequential_reader_is_waited_for() {
    for (slice_idle_us, arrives_us, waits) in [(8_000, 7_000, true), (8_000, 9_000, false), (0, 10, false)] {
        let mut driver = Driver::with("bfq", 1000, &[("low_latency", 0), ("slice_idle_us", slice_idle_us)]);
        driver.submit(Read, 100, 8, 0);
        let own = driver.start().expect("the first");
        driver.submit(Read, 900_000, 8, 1);
        driver.now += Nanos::from_ms(5);
        driver.complete(own);
        let arrives = driver.now + Nanos::from_us(arrives_us);
        let mut other = driver.try_start();
        assert_eq!(other.is_none(), slice_idle_us > 0);
        if let Some(at) = driver.elevator.timer().filter(|at| *at <= arrives) {
            driver.now = at;
            driver.wait_ms(0);
            other = driver.try_start();
        }
        driver.now = arrives;
        driver.submit(Read, 108, 8, 0);
        assert_eq!(other.is_none(), waits, "slice_idle {slice_idle_us} us, next after {arrives_us} us");
    }
}

#[test]
fn a_new_task_goes_before_one_that_writes_much() {
    let mut driver = Driver::new("bfq", 1000);
    for i in 0..64 {
        driver.submit(Write, 1_000_000 + i * 4096, 1024, 0);
    }
    let first = driver.start().expect("a write");
    assert_eq!(driver.requests[first].dir, Write);
    driver.submit(Read, 500, 8, 7);
    driver.complete(first);
    // The writes' budget goes on, 16 requests less what an asynchronous sector costs more; then come the reads.
    let before = (0..64).take_while(|_| driver.step() != 500).count();
    assert!(before <= 16, "{before} writes went before");
}

type Logged = (u64, u32, Option<(i64, u64)>);

/// Four random readers on a disk that others have used: when a read arrives (us), whose it is, and the budget and
/// weight that the log of 6.18 shows for its queue (`calc_finish`); or when it is done.
#[rustfmt::skip]
const LOGGED: &[Logged] = &[
    (0, 3, Some((1024, 1200))), (19, 0, Some((1024, 1200))), (97, 1, Some((1024, 1200))), (157, 2, Some((1024, 1200))),
    (8813, 0, None), (8876, 0, Some((896, 120000))), (13531, 2, None), (13592, 2, Some((896, 120000))),
    (16709, 1, None), (16740, 1, Some((896, 120000))), (21930, 3, None), (21959, 3, Some((896, 120000))),
    (24493, 2, None), (24508, 2, Some((768, 120000))), (30794, 0, None), (30825, 0, Some((768, 120000))),
    (33482, 1, None), (33503, 1, Some((768, 120000))), (38144, 2, None), (38160, 2, Some((640, 120000))),
    (42851, 0, None), (42874, 0, Some((640, 120000))), (46057, 2, None), (46070, 2, Some((512, 120000))),
    (51927, 0, None), (51943, 0, Some((512, 120000))), (55791, 3, None), (55825, 3, Some((768, 120000))),
    (60323, 1, None), (60344, 1, Some((640, 120000))), (65431, 2, None), (65450, 2, Some((384, 120000))),
    (67599, 3, None), (67613, 3, Some((640, 120000))), (69971, 0, None), (69987, 0, Some((384, 120000))),
    (71576, 1, None), (71591, 1, Some((512, 120000))), (75322, 2, None), (75336, 2, Some((256, 120000))),
    (77914, 0, None), (77929, 0, Some((256, 120000))), (79964, 3, None), (79978, 3, Some((512, 120000))),
    (83863, 0, None), (83878, 0, Some((128, 120000))), (85780, 3, None), (85792, 3, Some((384, 120000))),
    (90772, 0, None), (90786, 0, Some((1024, 120000))), (93643, 2, None), (93658, 2, Some((128, 120000))),
    (96596, 0, None), (96609, 0, Some((896, 120000))), (99338, 3, None), (99352, 3, Some((256, 120000))),
    (101552, 2, None), (101565, 2, Some((1024, 120000))), (105118, 3, None), (105135, 3, Some((128, 120000))),
    (111281, 1, None), (111302, 1, Some((384, 120000))), (113772, 0, None), (113788, 0, Some((768, 120000))),
];

#[test]
fn budgets_and_weights_are_those_in_the_log_of_the_kernel() {
    let mut options = ENTRY.defaults();
    options.set("used", 1);
    let mut bfq = begin(&options, Hz(250), Rules { limits: Limits::Map, injection_unset: false });
    let mut driver = Driver::new("none", 250);
    let mut in_driver = [None; 4];
    for (nr, &(us, task, logged)) in LOGGED.iter().enumerate() {
        driver.now = Nanos::from_secs(1) + Nanos::from_us(us);
        let far = (nr as u64 * 7_919 % 97 + 1) * 100_000;
        let context = IoContext { task, thread_group: task };
        let read = Bio { context, ..driver.bio(Read, far, 128) };
        let arrived = logged.map(|_| driver.take(&read));
        let mut ctx = Ctx::new(driver.now, Hz(250), &mut driver.requests);
        if let Some(rq) = arrived {
            bfq.add(&mut ctx, rq);
            let account = &bfq.accounts[bfq.queue_of(task, true).expect("it has one")];
            assert_eq!(Some((account.budget, account.weight())), logged, "at {us} us, task {task}");
        } else if let Some(rq) = in_driver[task as usize].take() {
            bfq.completed(&mut ctx, rq);
        }
        while let Some(rq) = bfq.next(&mut ctx) {
            in_driver[ctx.requests[rq].context.task as usize] = Some(rq);
        }
    }
}

/// Four random readers of one program on a disk that does a request in 3.5 ms and takes all four at once; the second
/// one's 37th read is near its 36th.
fn random_readers(driver: &mut Driver, requests: u64, mut each: impl FnMut(&mut Driver)) {
    let mut rng = Rng::stream(7, "readers");
    let mut at_device = VecDeque::new();
    let mut reads = [0u64; 4];
    let mut last = [0u64; 4];
    let mut submit = |driver: &mut Driver, task: usize| {
        reads[task] += 1;
        let far = 1_000_000 * (task as u64 + 1) + rng.below(1000) * 900;
        last[task] = if task == 1 && reads[task] == 37 { last[task] + 256 } else { far };
        driver.submit(Read, last[task], 128, task as u32);
    };
    for task in 0..4 {
        submit(driver, task);
        at_device.extend(driver.try_start());
    }
    for _ in 0..requests {
        let rq = at_device.pop_front().expect("nobody is waited for");
        driver.now += Nanos::from_us(3_500);
        let task = driver.requests[rq].context.task as usize;
        driver.complete(rq);
        driver.now += Nanos::from_us(50);
        submit(driver, task);
        while let Some(rq) = driver.try_start() {
            at_device.push_back(rq);
        }
        each(driver);
    }
}

/// When the second of them may have hardly any requests after they have become one, 600 ms after the first: from when
/// to when, ms.
fn short_of_requests(settings: &[(&str, i64)]) -> Option<(u64, u64)> {
    let mut driver = Driver::with("bfq", 250, settings);
    let mut short = Vec::new();
    random_readers(&mut driver, 1500, |driver| {
        let bio = Bio { context: IoContext { task: 1, thread_group: 1 }, ..driver.bio(Read, 5_000_000, 128) };
        if driver.now > Nanos::from_ms(620) && driver.tag_limit(&bio, 256) != Limit::None {
            short.push(driver.now.0 / 1_000_000);
        }
    });
    Some((*short.first()?, *short.last()?))
}

#[test]
fn queues_of_one_program_become_one() {
    assert_eq!(short_of_requests(&[]), None);
    assert_eq!(short_of_requests(&[("used", 1)]), Some((621, 891)));
    assert_eq!(short_of_requests(&[("used", 1), ("low_latency", 0)]), None);
}
