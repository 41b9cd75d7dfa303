//! The plug of a task: requests stay on a list of the submitter until it is flushed.
//!
//! ```text
//! submit       join the list's requests, newest first (from 5.16 on the newest only); else the elevator's; else a new
//!              request on the list
//! list full    flushed before another request is added: 16 (3.1), 32 or a last request of 128 KiB (5.10), 32 or a
//!              first request of 128 KiB (6.13)
//! task sleeps  flushed
//! order        as they came; by sector from 3.9 on, not in 5.x; from 5.16 to 6.12 the newest first unless an elevator
//!              gets them
//! join         from 6.13 to 6.15, whose lists grow at the other end, the oldest only
//! finish       flushed; in 2.6.39 .. 3.2 the outermost plug is that of the whole read call, later of one submission
//! ```
//! Source: 3.2.7 and 4.4 `block/blk-core.c` (`blk_queue_bio`, `blk_flush_plug_list`), 5.10, 6.1, 6.12, 7.2
//! `block/blk-mq.c` (`blk_add_rq_to_plug`, `blk_mq_flush_plug_list`), `block/blk-merge.c` (`blk_attempt_plug_merge`);
//! the words of the revert of e70c301faece. Known deviations: one queue, so the sorting by queue and the limit of 64
//! for lists over several queues do not arise; where order changed (3.9, 6.13), and since when lists heed `nomerges`
//! (3.13; 3.2.7 does not, 4.4 does: here from 3.9 on), is from memory.

use super::{Build, PlugJoin, PlugOrder, Plugging};
use crate::origin::{Entry, OptionSpec, Options, Origin};

/// Options with the given defaults: requests, KiB, order, the requests that a bio may join.
const fn options(max_requests: i64, flush_kb: i64, order: PlugOrder, joins: PlugJoin) -> [OptionSpec; 4] {
    [
        OptionSpec::number(
            "max_requests",
            max_requests,
            (0, 1 << 16),
            "requests at which the list is flushed; 0: no limit",
        ),
        OptionSpec::number("flush_kb", flush_kb, (0, 1 << 20), "size of the last request at which it is; 0: no limit"),
        OptionSpec::choice(
            "order",
            &["arrival", "sector", "newest"],
            order as usize,
            "order in which its requests leave (newest: only to a driver without an elevator in between)",
        ),
        OptionSpec::choice(
            "joins",
            &["any", "newest", "oldest"],
            joins as usize,
            "requests of the list that a bio is compared with",
        ),
    ]
}

const ORIGIN: &[Origin] = &[Origin {
    kernels: "2.6.39 .. 6.18",
    file: "block/blk-core.c, block/blk-mq.c",
    function: "blk_start_plug, blk_flush_plug_list",
    notes: "read in 3.2.7, 4.4 and 6.1",
}];

const ORACLE: &str = "`cargo xtask oracle`: the kernel's own code on random input";
const CONFORMANCE: &str = "held by the tests of the request queue; traces of 6.18 come with the capture layer";

/// 2.6.39 and 3.0.
pub(super) const ENTRY_2_6_39: Entry<Build> = Entry {
    name: "task-2.6.39",
    summary: "plug of the task, held for the whole read call, no limit",
    origin: ORIGIN,
    options: &options(0, 0, PlugOrder::Arrival, PlugJoin::Any),
    conformance: CONFORMANCE,
    build: |options| build(options, true, false),
};

/// 3.1 and 3.2 before the fix.
pub(super) const ENTRY_3_1: Entry<Build> = Entry {
    name: "task-3.1",
    summary: "plug of the task, held for the whole read call, flushed at 16 requests",
    origin: ORIGIN,
    options: &options(16, 0, PlugOrder::Arrival, PlugJoin::Any),
    conformance: CONFORMANCE,
    build: |options| build(options, true, false),
};

/// 3.3 and stable kernels with the fix, until 3.8.
pub(super) const ENTRY_3_3: Entry<Build> = Entry {
    name: "task-3.3",
    summary: "plug of the task for one submission, flushed at 16 requests",
    origin: ORIGIN,
    options: &options(16, 0, PlugOrder::Arrival, PlugJoin::Any),
    conformance: CONFORMANCE,
    build: |options| build(options, false, false),
};

/// 3.9 until 5.15.
pub(super) const ENTRY_3_9: Entry<Build> = Entry {
    name: "task-3.9",
    summary: "plug of the task for one submission, flushed at 16 requests, in order of sectors",
    origin: ORIGIN,
    options: &options(16, 0, PlugOrder::Sector, PlugJoin::Any),
    conformance: CONFORMANCE,
    build: |options| build(options, false, true),
};

/// blk-mq until 5.15.
pub(super) const ENTRY_5_10: Entry<Build> = Entry {
    name: "task-5.10",
    summary: "plug of the task for one submission, flushed at 32 requests or after one of 128 KiB, as they came",
    origin: ORIGIN,
    options: &options(32, 128, PlugOrder::Arrival, PlugJoin::Any),
    conformance: ORACLE,
    build: |options| build(options, false, true),
};

/// 5.16 until 6.12.
pub(super) const ENTRY_5_16: Entry<Build> = Entry {
    name: "task-5.16",
    summary: "plug of the task for one submission, flushed at 32 requests or after one of 128 KiB",
    origin: ORIGIN,
    options: &options(32, 128, PlugOrder::Newest, PlugJoin::Newest),
    conformance: ORACLE,
    build: |options| batched(options, false),
};

/// 6.13 to 6.15.
pub(super) const ENTRY_6_13: Entry<Build> = Entry {
    name: "task-6.13",
    summary: "as task-5.16, but its requests leave as they came, the first one's size counts, and it alone is joined",
    origin: ORIGIN,
    options: &options(32, 128, PlugOrder::Arrival, PlugJoin::Oldest),
    conformance: CONFORMANCE,
    build: |options| batched(options, true),
};

/// 6.16 and later, and late levels of 6.12.
pub(super) const ENTRY_6_16: Entry<Build> = Entry {
    name: "task-6.16",
    summary: "as task-6.13, and a bio can join the newest again",
    origin: ORIGIN,
    options: &options(32, 128, PlugOrder::Arrival, PlugJoin::Newest),
    conformance: ORACLE,
    build: |options| batched(options, true),
};

fn build(options: &Options, whole_call: bool, heeds_nomerges: bool) -> Plugging {
    Plugging::Task {
        max_requests: options.unsigned("max_requests") as u32,
        flush_sectors: options.unsigned("flush_kb") as u32 * 2,
        whole_call,
        first_counts: false,
        heeds_nomerges,
        order: [PlugOrder::Arrival, PlugOrder::Sector, PlugOrder::Newest][options.unsigned("order") as usize],
        joins: [PlugJoin::Any, PlugJoin::Newest, PlugJoin::Oldest][options.unsigned("joins") as usize],
    }
}

/// The lists of 5.16 and later, which are flushed by size.
fn batched(options: &Options, counts_first: bool) -> Plugging {
    let mut plugging = build(options, false, true);
    if let Plugging::Task { first_counts, .. } = &mut plugging {
        *first_counts = counts_first;
    }
    plugging
}
