//! Limits of a control group (`io.max`): bios that pass, and when the others are let go

use iowhy_stack::block::io_max::{IoMax, VERSIONS};
use iowhy_stack::event::Dir;
use iowhy_stack::job::Throttle;
use iowhy_stack::kernel::Stack;
use iowhy_stack::rng::Rng;
use iowhy_stack::units::{Hz, Nanos, SECTOR_BYTES};

use super::elevators::{HEADERS, HZ};
use super::{Case, Policy, Step};

pub(super) const IO_MAX: Policy = Policy {
    name: "io-max",
    program: "io_max.c",
    files: &["lib/rbtree.c"],
    headers: HEADERS,
    cuts: &[("block/blk-throttle.h", TYPES), ("block/blk-throttle.c", TYPES), ("block/blk-throttle.c", PARTS)],
    draw: |rng, _| draw(rng),
    valid: |case| case.settings.len() == 1 && case.settings[0].op == '#',
    model,
    legend: &[
        ('#', "bytes a second of reads and of writes, reads and writes a second; 0: no limit"),
        ('b', "0 a read, 1 a write; sectors. Answer: p passes, s is held back"),
        ('w', "microseconds pass; @ each tick at which the timer looked, and the bios that went, counted from 0"),
    ],
    not_decisions: &["w"],
};

/// What the throttle consists of; some of it has moved to a header.
const TYPES: &[&str] = &[
    "LATENCY_BUCKET_SIZE",
    "struct throtl_qnode",
    "struct throtl_service_queue",
    "enum tg_state_flags",
    "struct latency_bucket",
    "struct avg_latency_bucket",
    "struct throtl_grp",
    "struct throtl_data",
    "pd_to_tg",
    "blkg_to_tg",
    "blk_should_throtl",
    "blk_throtl_activated",
];

/// Functions of the throttle for one group.
const PARTS: &[&str] = &[
    "THROTL_GRP_QUANTUM",
    "THROTL_QUANTUM",
    "DFL_THROTL_SLICE",
    "DFL_THROTL_SLICE_HD",
    "MIN_THROTL_BPS",
    "MIN_THROTL_IOPS",
    "rb_entry_tg",
    "throtl_log",
    "tg_to_blkg",
    "sq_to_tg",
    "sq_to_td",
    "throtl_adjusted_limit",
    "tg_bps_limit",
    "tg_iops_limit",
    "throtl_bio_data_size",
    "throtl_qnode_init",
    "throtl_qnode_add_bio",
    "throtl_peek_queued",
    "throtl_pop_queued",
    "throtl_service_queue_init",
    "tg_update_has_rules",
    "throtl_rb_first",
    "rb_erase_init",
    "throtl_rb_erase",
    "update_min_dispatch_time",
    "tg_service_queue_add",
    "__throtl_enqueue_tg",
    "throtl_enqueue_tg",
    "__throtl_dequeue_tg",
    "throtl_dequeue_tg",
    "throtl_schedule_pending_timer",
    "throtl_schedule_next_dispatch",
    "throtl_start_new_slice_with_credit",
    "throtl_start_new_slice",
    "throtl_set_slice_end",
    "throtl_extend_slice",
    "throtl_slice_used",
    "sq_queued",
    "calculate_io_allowed",
    "calculate_bytes_allowed",
    "throtl_trim_bps",
    "throtl_trim_iops",
    "throtl_trim_slice",
    "tg_with_in_iops_limit",
    "tg_with_in_bps_limit",
    "tg_within_iops_limit",
    "tg_within_bps_limit",
    "tg_may_dispatch",
    "throtl_charge_bio",
    "throtl_charge_bps_bio",
    "throtl_charge_iops_bio",
    "tg_update_slice",
    "tg_dispatch_bps_time",
    "tg_dispatch_iops_time",
    "tg_dispatch_time",
    "throtl_add_bio_tg",
    "tg_update_disptime",
    "start_parent_slice_with_credit",
    "tg_dispatch_one_bio",
    "throtl_dispatch_tg",
    "throtl_select_dispatch",
    "throtl_pending_timer_fn",
    "blk_throtl_dispatch_work_fn",
    "tg_within_limit",
    "__blk_throtl_bio",
    "blk_throtl_bio",
];

fn draw(rng: &mut Rng) -> Case {
    let mut between = |low: i64, high: i64| low + rng.below((high - low + 1) as u64) as i64;
    let mut bytes = || match between(0, 4) {
        0 | 1 => 0,
        2 => between(1, 300) * 1000,
        3 => between(1, 400) << 20,
        _ => between(1, 4000) * 4096,
    };
    let [reads, writes] = [bytes(), bytes()];
    let mut bios = || match between(0, 4) {
        0 | 1 => 0,
        2 => between(1, 30),
        3 => between(1, 100_000),
        _ => between(1, 2000),
    };
    let [nr_reads, nr_writes] = [bios(), bios()];
    let settings = vec![Step::new('#', &[reads, writes, nr_reads, nr_writes])];
    let (pause, pauses) = ([300, 5_000, 120_000, 3_000_000][between(0, 3) as usize], between(1, 8));
    let (largest, share) = ([8, 64, 2560][between(0, 2) as usize], between(0, 10));
    let steps = (0..between(20, 400)).map(|_| {
        if between(0, 9) < pauses {
            Step::new('w', &[between(0, pause)])
        } else {
            Step::new('b', &[i64::from(between(0, 9) < share), between(1, largest)])
        }
    });
    let steps = steps.collect();
    Case { settings, steps }
}

/// The model's answers.
fn model(stack: &Stack, case: &Case) -> Vec<String> {
    let rates = &case.settings[0];
    let limits =
        Throttle { bytes: [rates.unsigned(0), rates.unsigned(1)], bios: [rates.unsigned(2), rates.unsigned(3)] };
    let mut limits = IoMax::new(VERSIONS[stack.options.unsigned("io_max") as usize], &limits, Hz(HZ));
    let tick = Nanos(1_000_000_000 / u64::from(HZ));
    let (mut now, mut number) = (tick, 0);
    let mut answers = Vec::with_capacity(case.steps.len());
    for step in &case.steps {
        let mut answer = step.op.to_string();
        if step.op == 'b' {
            let dir = if step.get(0) & 1 == 0 { Dir::Read } else { Dir::Write };
            let passes = limits.submit(now, dir, step.unsigned(1).max(1) * SECTOR_BYTES, number);
            answer = if passes { "p" } else { "s" }.to_owned();
            number += 1;
        } else {
            let until = now + Nanos::from_us(step.unsigned(0));
            while let Some(at) = limits.timer().filter(|at| *at <= until) {
                answer += &format!(" @{}", at.0 / tick.0);
                limits.fire(at).iter().for_each(|bio| answer += &format!(" {bio}"));
            }
            now = until;
        }
        answers.push(answer);
    }
    answers
}
