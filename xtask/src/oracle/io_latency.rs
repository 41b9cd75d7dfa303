//! Latency targets of sibling control groups (`io.latency`): bios that wait, depths, and the siblings' cookie

use iowhy_stack::block::io_latency::{Done, IoLatency, NO_SCALE, Setup, Version};
use iowhy_stack::kernel::Stack;
use iowhy_stack::rng::Rng;
use iowhy_stack::units::{Hz, Nanos};

use super::elevators::HZ;
use super::{Case, Policy, Step};

pub(super) const IO_LATENCY: Policy = Policy {
    name: "io-latency",
    program: "io_latency.c",
    files: &[],
    headers: &["linux/list.h"],
    cuts: &[
        ("include/linux/blk_types.h", TIMES),
        ("block/blk.h", TIMES),
        ("include/linux/blk-cgroup.h", DELAYS),
        ("block/blk-cgroup.h", DELAYS),
        ("block/blk-cgroup.c", DELAYS),
        ("block/blk-stat.c", &["blk_rq_stat_init", "blk_rq_stat_sum", "blk_rq_stat_add"]),
        ("block/blk-rq-qos.h", WAITS),
        ("block/blk-rq-qos.c", WAITS),
        ("block/blk-iolatency.c", PARTS),
    ],
    draw: |rng, _| draw(rng),
    valid: |case| case.settings.len() == 1 && case.settings[0].op == '#',
    model,
    legend: &[
        ('#', "requests of the queue, rotational, processors, microseconds since the boot, targets of four groups"),
        ('b', "group; 1: metadata. Answer: p passes, s waits; !: its task has to look at the delay"),
        ('c', "one of those in flight, from the oldest, is completed; its processor; 1: it was refused"),
        ('t', "group, its target from now on (not the first or the last while bios are in flight)"),
        ('r', "nanoseconds that a task of the group sleeps on its way out of a system call"),
        ('w', "microseconds pass; @ each tick at which the timer looked"),
        (' ', "targets in microseconds, 0: none. Then what is new: ^ a bio that was woken, k the cookie below 10^6,"),
        (' ', "d a group's depth, u its uses of the delay"),
    ],
    not_decisions: &["c", "t", "w", "r"],
};

/// A bio's time, until 6.12.
const TIMES: &[&str] = &[
    "BIO_ISSUE_RES_BITS",
    "BIO_ISSUE_SIZE_BITS",
    "BIO_ISSUE_RES_SHIFT",
    "BIO_ISSUE_SIZE_SHIFT",
    "BIO_ISSUE_TIME_MASK",
    "BIO_ISSUE_SIZE_MASK",
    "BIO_ISSUE_RES_MASK",
    "struct blk_rq_stat",
    "__bio_issue_time",
    "bio_issue_time",
    "bio_issue_init",
];

const DELAYS: &[&str] = &[
    "bio_issue_as_root_blkg",
    "blkcg_use_delay",
    "blkcg_unuse_delay",
    "blkcg_clear_delay",
    "blkcg_scale_delay",
    "blkcg_maybe_throttle_blkg",
    "blkcg_add_delay",
];

const WAITS: &[&str] = &[
    "enum rq_qos_id",
    "struct rq_wait",
    "struct rq_depth",
    "struct rq_qos",
    "rq_wait_init",
    "atomic_inc_below",
    "rq_wait_inc_below",
    "struct rq_qos_wait_data",
    "rq_qos_wake_function",
    "rq_qos_wait",
];

const PARTS: &[&str] = &[
    "DEFAULT_SCALE_COOKIE",
    "struct blk_iolatency",
    "struct child_latency_info",
    "struct percentile_stats",
    "struct latency_stat",
    "struct iolatency_grp",
    "BLKIOLATENCY_MIN_WIN_SIZE",
    "BLKIOLATENCY_MAX_WIN_SIZE",
    "SCALE_DOWN_FACTOR",
    "SCALE_UP_FACTOR",
    "BLKIOLATENCY_MIN_ADJUST_TIME",
    "BLKIOLATENCY_MIN_GOOD_SAMPLES",
    "BLKIOLATENCY",
    "pd_to_lat",
    "blkg_to_lat",
    "lat_to_blkg",
    "latency_stat_init",
    "latency_stat_sum",
    "latency_stat_record_time",
    "latency_sum_ok",
    "latency_stat_samples",
    "iolat_cleanup_cb",
    "iolat_acquire_inflight",
    "__blkcg_iolatency_throttle",
    "scale_amount",
    "scale_cookie_change",
    "scale_change",
    "check_scale_change",
    "blkcg_iolatency_throttle",
    "iolatency_record_time",
    "iolatency_check_latencies",
    "blkcg_iolatency_done_bio",
    "blkiolatency_timer_fn",
    "iolatency_set_min_lat_nsec",
    "iolatency_clear_scaling",
    "iolatency_pd_init",
];

const NR_GROUPS: usize = 4;
/// Where a step has its targets.
const TARGETS: usize = 4;

/// A group is slowed down until it collects uses of the delay; then metadata adds to that, while uses are given back.
fn draw_delay(rng: &mut Rng) -> Case {
    let mut between = |low: i64, high: i64| low + rng.below((high - low + 1) as u64) as i64;
    let setup = [between(1, 8), between(0, 1), 1, between(0, 1_000), 1_000, between(100_000, 500_000)];
    let one = |group, took, pause| {
        [('b', group), ('w', took), ('c', 0), ('w', pause), ('r', 1)].map(|(op, number)| Step::new(op, &[number]))
    };
    let mut steps = Vec::new();
    for _ in 0..between(5, 20) {
        steps.extend(one(0, 5_000, 0));
        (0..3).for_each(|_| steps.extend(one(1, 100, 200_000)));
    }
    let (burst, before) = (between(1, 14), between(0, 9));
    (0..before).for_each(|_| steps.extend(one(1, 100, between(900_000, 1_300_000))));
    steps.extend((0..burst).map(|_| Step::new('b', &[1, 1])).chain([Step::new('w', &[10])]));
    steps.extend((0..burst).map(|_| Step::new('c', &[0])));
    (0..15).for_each(|_| steps.extend(one(1, 100, between(900_000, 1_300_000))));
    Case { settings: vec![Step::new('#', &setup)], steps }
}

fn draw(rng: &mut Rng) -> Case {
    if rng.below(12) == 0 {
        return draw_delay(rng);
    }
    let mut between = |low: i64, high: i64| low + rng.below((high - low + 1) as u64) as i64;
    // Microseconds of a target, and of pauses, that are near to each other.
    let scale = [100, 2_000, 30_000, 150_000][between(0, 3) as usize];
    let mut target = |none: i64| if between(0, 9) < none { 0 } else { between(1, 3 * scale) };
    let targets: Vec<i64> = (0..NR_GROUPS).map(|group| target(if group == 0 { 1 } else { 4 })).collect();
    let changed: Vec<i64> = (0..16).map(|_| target(3)).collect();
    let requests = [1, 2, 4, 37, 64, 256, between(1, 1024)][between(0, 6) as usize];
    // Near the time at which 51 bits are over, or not.
    let boot = if between(0, 3) == 0 { (1 << 51) / 1000 - between(0, 60_000_000) } else { between(0, 10_000_000) };
    let mut setup = vec![requests, between(0, 1), between(1, 4), boot];
    setup.extend(targets);
    // Few groups at a time, so that some miss their targets and some do not.
    let (metadata, refused, groups) = (between(0, 6), between(0, 3), between(1, NR_GROUPS as i64) - 1);
    let (length, mut steps) = (between(50, 1500) as usize, Vec::new());
    while steps.len() < length {
        let group = between(0, groups);
        if between(0, 2) == 0 {
            let (bios, completions, pauses) = (between(4, 12), between(4, 12), between(2, 10));
            let longest = [scale, 4 * scale, 400_000][between(0, 2) as usize];
            steps.extend((0..between(20, 300)).map(|_| match between(0, 2 + bios + completions + pauses) {
                0 => Step::new('r', &[between(0, groups)]),
                1 if between(0, 19) == 0 => Step::new('t', &[between(0, groups), changed[between(0, 15) as usize]]),
                2 => Step::new('w', &[between(0, 700_000) * if between(0, 19) == 0 { 10 } else { 1 }]),
                kind if kind < 3 + pauses => Step::new('w', &[between(0, longest)]),
                kind if kind < 3 + pauses + completions => {
                    Step::new('c', &[between(0, 15), between(0, 3), i64::from(between(0, 39) < refused)])
                }
                _ => Step::new('b', &[between(0, groups), i64::from(between(0, 19) < metadata)]),
            }));
            continue;
        }
        // One group's bios, one after the other and about as long each, in several windows, then a few of another's.
        let (took, bios) =
            (if between(0, 2) == 0 { setup[TARGETS + group as usize] } else { between(0, scale) }, between(1, 14));
        let (jitter, other, others) = (took / 4 * between(0, 1), between(0, groups), between(0, 12));
        let as_root = [between(0, 12), between(0, 12)];
        steps.extend((0..20).map(|_| Step::new('c', &[0])));
        for _ in 0..between(1, 12) * if between(0, 7) == 0 { 5 } else { 1 } {
            for bio in 0..bios + others {
                let is_other = bio >= bios;
                let metadata = i64::from(between(0, 12) > as_root[usize::from(is_other)]);
                steps.push(Step::new('b', &[if is_other { other } else { group }, metadata]));
                steps.push(Step::new('w', &[took + between(0, jitter)]));
                steps.push(Step::new('c', &[0, between(0, 3)]));
            }
            steps.push(Step::new('r', &[other]));
            steps.push(Step::new('w', &[[1_000_000, between(100_000, 900_000)][usize::from(between(0, 3) > 0)]]));
            steps.push(Step::new('r', &[other]));
        }
    }
    steps.truncate(2 * length);
    Case { settings: vec![Step::new('#', &setup)], steps }
}

/// The groups as they were described last.
struct Said {
    cookie: u32,
    of_groups: [(Option<u32>, u32); NR_GROUPS],
}

impl Said {
    /// News since then.
    fn news(&mut self, groups: &IoLatency) -> String {
        let mut text = String::new();
        if std::mem::replace(&mut self.cookie, groups.cookie()) != groups.cookie() {
            text += &format!(" k{}", NO_SCALE - groups.cookie());
        }
        for (group, (depth, uses)) in self.of_groups.iter_mut().enumerate() {
            if std::mem::replace(depth, groups.depth(group)) != groups.depth(group) {
                let shown = groups.depth(group).map_or("max".to_owned(), |depth| depth.to_string());
                text += &format!(" d{group}={shown}");
            }
            if std::mem::replace(uses, groups.delay_uses(group)) != groups.delay_uses(group) {
                text += &format!(" u{group}={}", groups.delay_uses(group));
            }
        }
        text
    }
}

/// The model's answers.
fn model(stack: &Stack, case: &Case) -> Vec<String> {
    let numbers = &case.settings[0];
    let version = if stack.kernel.name == "linux-7.2" { Version::V7_2 } else { Version::V6_1 };
    let setup = Setup {
        rotating: numbers.get(1) != 0,
        nr_requests: numbers.unsigned(0).max(1) as u32,
        processors: numbers.unsigned(2).max(1) as usize,
        hz: Hz(HZ),
    };
    let tick = Nanos(1_000_000_000 / u64::from(HZ));
    let mut now = tick + Nanos::from_us(numbers.unsigned(3));
    let mut targets: Vec<Nanos> =
        (0..NR_GROUPS).map(|group| Nanos::from_us(numbers.unsigned(TARGETS + group))).collect();
    let mut groups = IoLatency::new(version, setup, now, &targets);
    let mut said = Said { cookie: NO_SCALE, of_groups: [(None, 0); NR_GROUPS] };
    // Of each bio: its group, when it came, whether it is metadata; and those in flight.
    let (mut bios, mut flying) = (Vec::<(usize, Nanos, bool)>::new(), Vec::<u32>::new());
    let mut answers = Vec::with_capacity(case.steps.len());
    for step in &case.steps {
        let mut answer = step.op.to_string();
        let group = step.unsigned(0) as usize % NR_GROUPS;
        match step.op {
            'b' => {
                let (bio, as_root) = (bios.len() as u32, step.get(1) & 1 != 0);
                bios.push((group, now, as_root));
                let what = groups.submit(now, group, as_root, bio);
                answer = format!("{}{}", if what.passes { 'p' } else { 's' }, if what.delayed { "!" } else { "" });
                flying.extend(what.passes.then_some(bio));
            }
            'c' if !flying.is_empty() => {
                let bio = flying.remove(step.unsigned(0) as usize % flying.len());
                let (group, submitted, as_root) = bios[bio as usize];
                let processor = step.unsigned(1) as usize % setup.processors;
                groups.complete(now, &Done { group, submitted, processor, as_root, again: step.get(2) & 1 != 0 });
            }
            't' => {
                let was = std::mem::replace(&mut targets[group], Nanos::from_us(step.unsigned(1)));
                let would_be = targets.iter().any(|target| target.0 > 0);
                if would_be == groups.is_enabled() || flying.is_empty() {
                    groups.set_target(group, targets[group]);
                } else {
                    targets[group] = was;
                }
            }
            'r' => answer += &format!(" {}", groups.delay(now, group).0),
            'w' => {
                let until = now + Nanos::from_us(step.unsigned(0));
                while let Some(at) = groups.timer().filter(|at| *at <= until) {
                    answer += &format!(" @{}", at.0 / tick.0);
                    groups.fire(at);
                    answer += &said.news(&groups);
                }
                now = until;
            }
            _ => {}
        }
        for bio in groups.take_woken() {
            answer += &format!(" ^{bio}");
            flying.push(bio);
        }
        answer += &said.news(&groups);
        answers.push(answer);
    }
    answers
}
