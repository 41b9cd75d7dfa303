//! Elevators behind a queue: the model's queue with a device that the case controls, against the kernel's merging

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use iowhy_stack::block::rules::{Budget, Flushes, Merging, QueueRules};
use iowhy_stack::block::{BlockQueue, PlugList, QueueLimits, Submitted, Wakeup};
use iowhy_stack::device::{Command, Completion, Device, DeviceStats};
use iowhy_stack::elevator::{ELEVATORS, Elevator};
use iowhy_stack::event::{CallId, Content, Dir, Event, EventSink, UnplugCause, What};
use iowhy_stack::kernel::Stack;
use iowhy_stack::record::Recorder;
use iowhy_stack::request::{Bio, BioId, IoClass, IoContext};
use iowhy_stack::rng::Rng;
use iowhy_stack::units::{Hz, Nanos, Sector};

use super::{Case, Policy, Step};

/// Tick rate of the shim.
pub(super) const HZ: u32 = 250;

pub(super) const HEADERS: &[&str] = &[
    "linux/list.h",
    "linux/hash.h",
    "linux/hashtable.h",
    "linux/rbtree.h",
    "linux/rbtree_types.h",
    "linux/rbtree_augmented.h",
    "linux/sbitmap.h",
];

/// The lookup of requests that a bio, or a request, may join, and the joining.
const MERGING: &[(&str, &[&str])] = &[
    (
        "block/elevator.c",
        &[
            "rq_hash_key",
            "elv_bio_merge_ok",
            "__elv_rqhash_del",
            "elv_rqhash_del",
            "elv_rqhash_add",
            "elv_rqhash_reposition",
            "elv_rqhash_find",
            "elv_rb_add",
            "elv_rb_del",
            "elv_rb_find",
            "elv_merge",
            "elv_merged_request",
            "elv_merge_requests",
            "elv_latter_request",
            "elv_former_request",
            "elv_rb_latter_request",
            "elv_rb_former_request",
            "elv_attempt_insert_merge",
        ],
    ),
    (
        "block/blk-merge.c",
        &[
            "blk_try_req_merge",
            "ll_new_hw_segment",
            "ll_back_merge_fn",
            "ll_front_merge_fn",
            "ll_merge_requests_fn",
            "blk_rq_merge_ok",
            "blk_try_merge",
            "attempt_merge",
            "attempt_back_merge",
            "attempt_front_merge",
            "blk_attempt_req_merge",
            "bio_attempt_back_merge",
            "bio_attempt_front_merge",
            "blk_mq_sched_try_merge",
            "blk_attempt_bio_merge",
            "blk_bio_list_merge",
            "blk_attempt_plug_merge",
        ],
    ),
    ("block/blk-mq-sched.c", &["blk_mq_sched_try_insert_merge", "blk_mq_sched_insert_requests"]),
    ("block/blk.h", &["BLK_MAX_REQUEST_COUNT", "BLK_PLUG_FLUSH_SIZE"]),
    (
        "include/linux/blk-mq.h",
        &[
            "rq_list_add",
            "rq_list_add_tail",
            "rq_list_add_head",
            "rq_list_pop",
            "rq_list_peek",
            "rq_list_next",
            "rq_list_empty",
            "rq_list_for_each",
        ],
    ),
    (
        "block/blk-mq.c",
        &[
            "blk_plug_max_rq_count",
            "blk_add_rq_to_plug",
            "plug_rq_cmp",
            "blk_mq_flush_plug_list",
            "blk_mq_dispatch_plug_list",
            "blk_mq_dispatch_list",
        ],
    ),
];

const LEGEND: &[(char, &str)] = &[
    ('#', "device takes that many, largest request in sectors, most segments, nomerges, scheduler tags, rotational"),
    ('=', "number of a tunable, value"),
    (
        'b',
        "bio: 0 read, 1 write, 3 synchronous write; sector; sectors; class 1 real time, 2 best effort, 3 idle; task. \
         Answer: j joined, n new, x no tag; then what was issued",
    ),
    ('p', "the same onto the plug of the task"),
    ('u', "the plug is flushed"),
    ('e', "the task of that number ends"),
    ('c', "the device completes one of those that it has, counted from the oldest"),
    ('w', "microseconds pass"),
];

/// A tunable: its key in the model, how many of the kernel's units are one there, and the bounds of what is tried.
type Tunable = (&'static str, i64, (i64, i64));

const DEADLINE: &[Tunable] = &[
    ("read_expire_ms", 1, (1, 800)),
    ("write_expire_ms", 1, (1, 4000)),
    ("writes_starved", 1, (0, 4)),
    ("fifo_batch", 1, (0, 20)),
    ("front_merges", 1, (0, 1)),
    ("prio_aging_expire_ms", 1, (0, 2000)),
];

pub(super) const MQ_DEADLINE: Policy = Policy {
    name: "mq-deadline",
    program: "deadline.c",
    files: &["block/mq-deadline.c", "lib/sbitmap.c", "lib/rbtree.c"],
    headers: HEADERS,
    cuts: MERGING,
    draw: |rng, _| draw(rng, DEADLINE, 2, 2),
    valid: |case| valid(case, 2),
    model: |stack, case| model(stack, case, "mq-deadline", DEADLINE),
    legend: LEGEND,
    not_decisions: &["c", "w", "u"],
};

const LATENCIES: &[Tunable] = &[("read_lat_us", 1000, (1, 20_000)), ("write_lat_us", 1000, (1, 40_000))];

pub(super) const KYBER: Policy = Policy {
    name: "kyber",
    program: "kyber.c",
    files: &["block/kyber-iosched.c", "lib/sbitmap.c", "lib/rbtree.c"],
    draw: |rng, _| draw(rng, LATENCIES, 1, 2),
    model: |stack, case| model(stack, case, "kyber", LATENCIES),
    ..MQ_DEADLINE
};

/// Tasks of `shim/bfq.c`, and its tunables.
const MOST_TASKS: i64 = 64;
const BUDGETS: &[Tunable] = &[
    ("slice_idle_us", 1, (0, 12_000)),
    ("timeout_sync_ms", 1, (1, 120)),
    ("max_budget", 1, (1, 20_000)),
    ("fifo_expire_sync_ms", 1, (1, 300)),
    ("fifo_expire_async_ms", 1, (1, 500)),
    ("back_seek_max_kb", 1, (1, 16_384)),
    ("back_seek_penalty", 1, (1, 8)),
    ("low_latency", 1, (0, 1)),
];

pub(super) const BFQ: Policy = Policy {
    name: "bfq",
    program: "bfq.c",
    files: &["block/bfq-iosched.c", "block/bfq-iosched.h", "block/bfq-wf2q.c", "lib/sbitmap.c", "lib/rbtree.c"],
    draw: |rng, _| of_tasks(draw(rng, BUDGETS, 1, 1), rng),
    model: |stack, case| model(stack, case, "bfq", BUDGETS),
    valid: |case| valid(case, 1) && valid_tasks(case),
    not_decisions: &["c", "w", "u", "e"],
    ..MQ_DEADLINE
};

/// Shares a case out to tasks, of which the first plugs; when another ends, a new one comes.
fn of_tasks(mut case: Case, rng: &mut Rng) -> Case {
    let mut tasks: Vec<i64> = (0..[1, 2, 3, 5, 12][rng.below(5) as usize]).collect();
    let mut next = tasks.len() as i64;
    case.settings[0].arguments.push(rng.below(2) as i64);
    let (pauses, ends) = ([0, 0, 2][rng.below(3) as usize], rng.below(4) == 0);
    // A device that takes its time.
    let service_us = [0, 0, 300, 6_000][rng.below(4) as usize];
    if service_us > 0 {
        let mut wait = || Step::new('w', &[rng.below(service_us) as i64]);
        case.steps = case.steps.into_iter().flat_map(|step| [wait(), step]).collect();
    }
    for step in &mut case.steps {
        let chosen = rng.below(tasks.len() as u64) as usize;
        match step.op {
            'b' => step.arguments.push(tasks[chosen]),
            'p' => step.arguments.push(0),
            'w' if rng.below(10) < pauses => step.arguments[0] += 1_000_000 * rng.below(5) as i64,
            'w' if ends && chosen > 0 && next < MOST_TASKS => {
                *step = Step::new('e', &[std::mem::replace(&mut tasks[chosen], next)]);
                next += 1;
            }
            _ => {}
        }
        // One priority.
        if matches!(step.op, 'b' | 'p') {
            step.arguments[3] = 2;
        }
    }
    case
}

/// One priority; the first task plugs and stays; nothing comes of a task that has ended.
fn valid_tasks(case: &Case) -> bool {
    let mut ended = BTreeSet::new();
    case.steps.iter().all(|step| match step.op {
        'b' => step.get(3) == 2 && !ended.contains(&step.get(4)),
        'p' => step.get(3) == 2 && step.get(4) == 0,
        'e' => step.get(0) > 0 && ended.insert(step.get(0)),
        _ => true,
    })
}

/// A random case. No two requests of one of its `directions` start at one sector: which of them a bio finds depends on
/// the shape of the kernel's tree.
fn draw(rng: &mut Rng, tunables: &[Tunable], most_nomerges: i64, directions: i64) -> Case {
    let mut between = |low: i64, high: i64| low + rng.below((high - low + 1) as u64) as i64;
    let depth = [1, 1, 2, 4, 16][between(0, 4) as usize];
    let (max_sectors, segments) =
        ([32, 64, 256, 2560][between(0, 3) as usize], [4, 16, 128, 168][between(0, 3) as usize]);
    let nomerges = [0, 0, 0, 0, 1, 2][between(0, 5) as usize].min(most_nomerges);
    let tags = [4000, 256, 64, 8, between(1, 300)][between(0, 4) as usize];
    let mut settings = vec![Step::new('#', &[depth, max_sectors, segments, nomerges, tags])];
    for (number, (_, unit, (low, high))) in tunables.iter().enumerate() {
        if between(0, 2) == 0 {
            settings.push(Step::new('=', &[number as i64, between(*low, *high) * unit]));
        }
    }
    // Small worlds touch each other, large ones do not; few completions fill the queue.
    let (places, writes, completions) = ([12, 40, 400, 100_000][between(0, 3) as usize], between(0, 4), between(2, 9));
    let plugged = [0, 0, 5, 9][between(0, 3) as usize];
    let classes = [0, 0, 3, 9][between(0, 3) as usize];
    let (pause, nr_steps) = ([50, 3_000, 40_000, 400_000][between(0, 3) as usize], between(10, 250));
    let (mut next, mut used) = (0, BTreeSet::new());
    let steps = (0..nr_steps).map(|_| match between(0, 20) {
        0 => Step::new('w', &[between(0, pause)]),
        1 => Step::new('u', &[]),
        kind if kind < 2 + completions => Step::new('c', &[between(0, 15)]),
        kind => {
            let kind_of_bio = if between(0, 4) < writes { [1, 3][between(0, 1) as usize] } else { 0 };
            let mut block = if kind % 3 == 0 { next } else { between(0, places) };
            let mut blocks = [between(1, 4), between(1, 4), between(1, 40)][between(0, 2) as usize];
            let tree = kind_of_bio & (directions - 1);
            while used.contains(&(tree, block)) {
                block += 1;
            }
            while (1..blocks).any(|more| used.contains(&(tree, block + more))) {
                blocks -= 1;
            }
            used.extend((0..blocks).map(|more| (tree, block + more)));
            next = block + blocks;
            let class = if between(0, 9) < classes { between(1, 3) } else { 2 };
            let op = if between(0, 9) < plugged { 'p' } else { 'b' };
            Step::new(op, &[kind_of_bio, 8 * block, 8 * blocks, class])
        }
    });
    let steps = steps.collect();
    Case { settings, steps }
}

/// Bios of whole pages and a class, none of which overlaps another of its direction.
fn valid(case: &Case, directions: i64) -> bool {
    let mut used = BTreeSet::new();
    case.steps.iter().filter(|step| matches!(step.op, 'b' | 'p')).all(|step| {
        let [kind, sector, sectors, class] = [0, 1, 2, 3].map(|index| step.get(index));
        let aligned = sector % 8 == 0 && sectors % 8 == 0 && sectors > 0 && class > 0;
        aligned && (0..sectors / 8).all(|page| used.insert((kind & (directions - 1), sector / 8 + page)))
    })
}

/// Limits of a queue that costs no time.
pub(super) const LIMITS: QueueLimits = QueueLimits {
    hz: Hz(HZ),
    max_sectors: 2560,
    max_segments: 168,
    nr_requests: 4000,
    batch_requests: 0,
    batch_time: Nanos::ZERO,
    max_queue_sectors: 0,
    command: Nanos::ZERO,
    interrupt: Nanos::ZERO,
    kblockd: Nanos::ZERO,
};

/// A device that completes what it is told to.
#[derive(Clone, Default)]
pub(super) struct Obedient {
    state: Arc<Mutex<State>>,
    depth: u32,
    rotational: bool,
}

#[derive(Default)]
struct State {
    in_flight: Vec<u32>,
    done: Vec<u32>,
    issued: String,
}

impl Obedient {
    pub(super) fn new(depth: u32, rotational: bool) -> Obedient {
        Obedient { depth, rotational, ..Obedient::default() }
    }

    fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut self.state.lock().expect("one thread"))
    }

    /// Completes the request of that place among those that it has, counted from the oldest; whether it has one.
    pub(super) fn complete(&self, place: u64) -> bool {
        self.with(|state| {
            let place = place as usize % state.in_flight.len().max(1);
            let tag = (place < state.in_flight.len()).then(|| state.in_flight.remove(place));
            state.done.extend(tag);
            tag.is_some()
        })
    }
}

impl Device for Obedient {
    fn queue_depth(&self) -> u32 {
        self.depth
    }

    fn nr_sectors(&self) -> u64 {
        u64::MAX
    }

    fn submit(&mut self, _now: Nanos, command: Command) {
        self.with(|state| {
            state.in_flight.push(command.tag);
            let letter = if command.dir == Dir::Read { 'R' } else { 'W' };
            state.issued += &format!(" {letter}{}+{}", command.sector.0, command.nr_sectors);
        });
    }

    fn next(&self) -> Option<Nanos> {
        self.with(|state| (!state.in_flight.is_empty()).then_some(Nanos::ZERO))
    }

    fn advance(&mut self, _now: Nanos) -> Option<Completion> {
        self.with(|state| state.done.pop()).map(|tag| Completion { tag, ..Completion::default() })
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }

    fn rotational(&self) -> bool {
        self.rotational
    }
}

/// The elevator that this kernel calls so, with the tunables of the case.
fn elevator(stack: &Stack, case: &Case, name: &str, tunables: &[Tunable]) -> Box<dyn Elevator> {
    let names = stack.kernel.elevator_names;
    let name = names.iter().find(|(short, _)| *short == name).map_or(name, |(_, full)| full);
    let entry = ELEVATORS.iter().find(|entry| entry.name == name).expect("the table has the elevators of its kernels");
    let mut options = entry.defaults();
    for step in case.settings.iter().filter(|step| step.op == '=') {
        let (key, unit, _) = tunables[step.unsigned(0) as usize];
        options.set(key, step.get(1) / unit);
    }
    (entry.build)(&options, Hz(HZ))
}

/// The model's answers.
fn model(stack: &Stack, case: &Case, name: &str, tunables: &[Tunable]) -> Vec<String> {
    let setup = &case.settings[0];
    let device = Obedient::new(setup.unsigned(0) as u32, setup.get(5) != 0);
    let limits = QueueLimits {
        max_sectors: setup.unsigned(1) as u32,
        max_segments: setup.unsigned(2) as u32,
        nr_requests: setup.unsigned(4) as u32,
        ..LIMITS
    };
    let rules = QueueRules {
        budget: Budget::Device,
        wbt: false,
        flushes: Flushes::Sequenced,
        merging: [Merging::All, Merging::OneHit, Merging::Never][setup.unsigned(3) as usize],
        ..QueueRules::MULTI
    };
    let plugging = (stack.plug.entry.build)(&stack.plug.options);
    let mut list = PlugList::new();
    let queue = BlockQueue::new(limits, elevator(stack, case, name, tunables), Box::new(device.clone()), plugging);
    // Requests that were united give a tag back while another takes one.
    let united = Rc::new(Cell::new(0));
    let mut sink = United(united.clone());
    let (mut queue, mut rec) = (queue.with_rules(rules), Recorder::new(Some(&mut sink)));
    let mut now = Nanos(1_000_000_000 / u64::from(HZ));
    let mut answers = Vec::with_capacity(case.steps.len());
    let mut timers: Vec<Nanos> = Vec::new();
    for step in &case.steps {
        let mut answer = step.op.to_string();
        match step.op {
            'b' | 'p' => {
                let bio = bio(step, now);
                united.set(0);
                let before = queue.tags().0;
                let plug = (step.op == 'p').then_some(&mut list);
                answer = match queue.submit(now, bio, plug, &mut rec) {
                    Submitted::NoRequest(_) => "x",
                    Submitted::Queued if queue.tags().0 + united.get() > before => "n",
                    Submitted::Queued => "j",
                }
                .to_owned();
            }
            'e' => queue.task_exited(now, context(step.get(0)), &mut rec),
            'u' => queue.flush_plug(now, &mut list, UnplugCause::Finish, &mut rec),
            'c' => {
                if device.complete(step.unsigned(0)) {
                    queue.wake(now, Wakeup::Device, &mut rec);
                    while queue.take_finished().is_some() {}
                }
            }
            _ => {
                let until = now + Nanos::from_us(step.unsigned(0));
                while let Some(at) = timers.iter().copied().filter(|at| *at <= until).min() {
                    timers.retain(|other| *other != at);
                    queue.wake(at, Wakeup::Elevator, &mut rec);
                    while asks(&mut queue, &mut timers) {
                        queue.wake(at, Wakeup::Run, &mut rec);
                    }
                }
                now = until;
            }
        }
        // The shim's worker runs the queue at once.
        while asks(&mut queue, &mut timers) {
            queue.wake(now, Wakeup::Run, &mut rec);
        }
        answer += &device.with(|state| std::mem::take(&mut state.issued));
        answers.push(answer);
    }
    answers
}

/// Counts requests that were united with another.
struct United(Rc<Cell<u32>>);

impl EventSink for United {
    fn event(&mut self, event: &Event) {
        if matches!(event.what, What::MergeRequests { .. }) {
            self.0.set(self.0.get() + 1);
        }
    }
}

/// Takes down when the elevator wants to be woken; whether the worker is to run the queue.
fn asks(queue: &mut BlockQueue, timers: &mut Vec<Nanos>) -> bool {
    let mut runs = false;
    queue.wakeups(|at, wakeup| match wakeup {
        Wakeup::Elevator => timers.push(at),
        Wakeup::Run | Wakeup::Unplug => runs = true,
        _ => {}
    });
    runs
}

fn context(task: i64) -> IoContext {
    IoContext { task: task as u32, thread_group: task as u32 / 4 }
}

pub(super) fn bio(step: &Step, now: Nanos) -> Bio {
    Bio {
        sector: Sector(step.unsigned(1)),
        nr_sectors: step.unsigned(2) as u32,
        dir: if step.get(0) & 1 == 0 { Dir::Read } else { Dir::Write },
        content: Content::Data,
        sync: step.get(0) != 1,
        no_idle: false,
        class: [IoClass::RealTime, IoClass::BestEffort, IoClass::Idle][(step.unsigned(3) as usize).clamp(1, 3) - 1],
        prio: false,
        flush: false,
        context: context(step.get(4)),
        call: CallId::NONE,
        queued: now,
        token: 0,
        next: BioId::NONE,
    }
}
