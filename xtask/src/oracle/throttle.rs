//! The writeback throttle behind a queue without a scheduler: writes that sleep in it, and what wakes them

use std::collections::VecDeque;

use iowhy_stack::block::rules::{Budget, Flushes, Merging, QueueRules};
use iowhy_stack::block::{BlockQueue, QueueLimits, Submitted, Wakeup};
use iowhy_stack::elevator::ELEVATORS;
use iowhy_stack::event::Dir;
use iowhy_stack::kernel::Stack;
use iowhy_stack::record::Recorder;
use iowhy_stack::request::Bio;
use iowhy_stack::rng::Rng;
use iowhy_stack::units::{Hz, Nanos};

use super::elevators::{HZ, LIMITS, Obedient, bio};
use super::{Case, Policy, Step};

pub(super) const THROTTLE: Policy = Policy {
    name: "wbt",
    program: "wbt.c",
    files: &["block/blk-wbt.c", "block/blk-wbt.h", "block/blk-rq-qos.c", "block/blk-rq-qos.h"],
    headers: &["linux/list.h"],
    cuts: &[],
    draw: |rng, _| draw(rng),
    valid: |case| !case.settings.is_empty(),
    model,
    legend: &[
        ('#', "tags of the driver, rotational, volatile cache"),
        (
            'b',
            "0 read, 1 write in the background, 2 synchronous write, 3 direct write. Answer: n at the device, s \
             asleep, t without a tag",
        ),
        ('c', "the device completes one of those that it has, counted from the oldest; how many writes are woken"),
        ('d', "a task is stopped for dirty pages"),
        ('w', "microseconds pass; how many writes are woken at each end of a window"),
    ],
    not_decisions: &["c", "w", "d"],
};

fn draw(rng: &mut Rng) -> Case {
    let mut between = |low: i64, high: i64| low + rng.below((high - low + 1) as u64) as i64;
    let depth = [1, 2, 3, 8, 32, 128, between(1, 256)][between(0, 6) as usize];
    let settings = vec![Step::new('#', &[depth, between(0, 1), between(0, 1)])];
    let (reads, dirty, completions) = (between(0, 6), between(0, 1), between(3, 12));
    let (pause, nr_steps) = ([300, 3_000, 30_000, 200_000][between(0, 3) as usize], between(10, 400));
    let steps = (0..nr_steps).map(|_| match between(0, 24) {
        0..=4 => Step::new('w', &[between(0, pause)]),
        5 if dirty > 0 => Step::new('d', &[]),
        kind if kind < 6 + completions => Step::new('c', &[between(0, 15)]),
        _ => Step::new('b', &[if between(0, 9) < reads { 0 } else { [1, 1, 1, 2, 3][between(0, 4) as usize] }]),
    });
    Case { settings, steps: steps.collect() }
}

/// The model's answers.
fn model(stack: &Stack, case: &Case) -> Vec<String> {
    let setup = &case.settings[0];
    let device = Obedient::new(4000, setup.get(1) != 0);
    let rules = QueueRules {
        budget: Budget::Tags,
        driver_tags: setup.unsigned(0) as u32,
        write_cache: setup.get(2) != 0,
        flushes: Flushes::Sequenced,
        merging: Merging::Never,
        ..QueueRules::MULTI
    };
    let none = ELEVATORS.iter().find(|entry| entry.name == "none").expect("the table has it");
    let elevator = (none.build)(&none.defaults(), Hz(HZ));
    let plugging = (stack.plug.entry.build)(&stack.plug.options);
    let limits = QueueLimits { nr_requests: setup.unsigned(0) as u32, ..LIMITS };
    let mut queue = BlockQueue::new(limits, elevator, Box::new(device.clone()), plugging).with_rules(rules);
    let mut rec = Recorder::new(None);
    let mut now = Nanos(1_000_000_000 / u64::from(HZ));
    let (mut asleep, mut windows) = (VecDeque::<Bio>::new(), Vec::<Nanos>::new());
    let mut sector = 0;
    let mut answers = Vec::with_capacity(case.steps.len());
    let mut tagless = VecDeque::<Bio>::new();
    // Those that were woken come again in their order, those for a tag first.
    let wake = |queue: &mut BlockQueue, lines: [&mut VecDeque<Bio>; 2], at: Nanos, rec: &mut Recorder<'_>| {
        let [tagless, asleep] = lines;
        let nr_tags = (queue.take_freed(Dir::Read) as usize).min(tagless.len());
        let nr_places = queue.take_freed(Dir::Write) as usize;
        let woken: Vec<Bio> = tagless.drain(..nr_tags).chain(asleep.drain(..nr_places)).collect();
        for again in woken {
            match queue.resubmit(at, again, None, rec) {
                Submitted::Queued => {}
                Submitted::NoRequest(_) => tagless.push_back(again),
            }
        }
        if nr_places > 0 { format!(" {nr_places}") } else { String::new() }
    };
    for step in &case.steps {
        let mut answer = step.op.to_string();
        match step.op {
            'b' => {
                sector += 1000;
                let (kind, sync) = (step.get(0) & 3, if step.get(0) & 3 >= 2 { 3 } else { step.get(0) & 1 });
                let new = bio(&Step::new('b', &[sync, sector, 8, 2]), now);
                let new = Bio { no_idle: kind == 2, ..new };
                answer = match queue.submit(now, new, None, &mut rec) {
                    Submitted::NoRequest(Dir::Write) => {
                        asleep.push_back(new);
                        "s"
                    }
                    Submitted::NoRequest(Dir::Read) => {
                        tagless.push_back(new);
                        "t"
                    }
                    Submitted::Queued => "n",
                }
                .to_owned();
            }
            'c' if device.complete(step.unsigned(0)) => {
                queue.wake(now, Wakeup::Device, &mut rec);
                while queue.take_finished().is_some() {}
            }
            'd' => queue.note_dirty_wait(now),
            'w' => {
                let until = now + Nanos::from_us(step.unsigned(0));
                while let Some(at) = windows.iter().copied().filter(|at| *at <= until).min() {
                    windows.retain(|other| *other != at);
                    queue.wake(at, Wakeup::Throttle, &mut rec);
                    answer += &wake(&mut queue, [&mut tagless, &mut asleep], at, &mut rec);
                    queue.wakeups(|at, wakeup| windows.extend((wakeup == Wakeup::Throttle).then_some(at)));
                }
                now = until;
            }
            _ => {}
        }
        answer += &wake(&mut queue, [&mut tagless, &mut asleep], now, &mut rec);
        queue.wakeups(|at, wakeup| windows.extend((wakeup == Wakeup::Throttle).then_some(at)));
        answers.push(answer);
    }
    answers
}
