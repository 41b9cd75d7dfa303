//! CFQ of Linux 2.6.33 .. 4.x: time slices per process, queues of like kind on one of three service trees.
//!
//! A task has a queue for its sync requests; async ones share a single queue. A busy queue stands on the tree of its
//! kind (async; sync without idle window; sync with one) under the tick at which its turn is due. Trees take turns for
//! a time by their number of queues, the queues of a tree in order of their keys; a turn is 100 ms (async 40 ms), less
//! if many queues have to fit into 300 ms, and its clock starts with the first completion. When a sync queue runs empty
//! the elevator waits 8 ms for its next request, unless the task thinks longer, or seeks: more than 4 of the last 32
//! requests lay over 800 sectors from the one before. A seeky queue is waited for only as the last of its tree. An
//! empty queue gives way to one whose next request is within 8192 sectors of the head; if neither is seeky the two
//! become one with the next request of the process, until the shared queue is seeky at the end of a turn. A request may
//! also take the turn over (sync from async, metadata, one close to the head while the elevator waits). A queue has
//! up to 4 requests at the device, 8 early in its turn, any number if it is alone; async ones wait for sync ones.
//!
//! Source: Linux 2.6.38 and 4.4.155, `block/cfq-iosched.c`, `cfq_select_queue`, `cfq_may_dispatch`,
//! `cfq_completed_request`, `cfq_rq_enqueued`. [`Rules`] has the differences between kernels. Deviations: one group,
//! best effort class and priority 4 only; a request gets its queue when it is queued, not when it is allocated, so
//! merging of queues takes effect after a plug; of two queues close to the head on either side the nearer one is taken
//! (the kernel: whichever its tree meets first); a flush drains the elevator, as barriers did, on every kernel; a
//! task's exit takes effect at the next call; the queue that is waited for may have requests beyond the limit without
//! counting them. `cooperate` is a switch of ours.

mod core;
#[cfg(test)]
mod tests;

pub(super) use self::core::Cfq;
use super::{Build, Elevator};
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::units::Hz;

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "cfq-2.6.38",
    summary: "time slices per process on three service trees, with idling (Linux 2.6.33 .. 2.6.39)",
    origin: &[Origin {
        kernels: "2.6.38",
        file: "block/cfq-iosched.c",
        function: "cfq_select_queue",
        notes: "read in 2.6.38; one group, class and priority; earlier 2.6.3x differ in details not looked up",
    }],
    options: OPTIONS,
    conformance: "turns, waits, merging, limits and preemption in tables; the property test; no kernel traces",
    build,
};

fn build(options: &Options, hz: Hz) -> Box<dyn Elevator> {
    let rules = Rules { tree_think_time: false, lone_sync_unlimited: false, overdue_passes: false, alias_leaves: true };
    Box::new(Cfq::new(options, hz, rules))
}

/// Tunables of every kernel of the family.
pub(super) const OPTIONS: &[OptionSpec] = &[
    OptionSpec::number("quantum", 8, (1, 10_000), "most requests of a queue at the device, half of it late in a turn"),
    OptionSpec::number("fifo_expire_sync_ms", 125, (0, 100_000), "age at which a sync request is overdue (HZ/8)"),
    OptionSpec::number("fifo_expire_async_ms", 250, (0, 100_000), "age at which an async request is overdue (HZ/4)"),
    OptionSpec::number("back_seek_max_kb", 16 * 1024, (0, 1 << 40), "farther behind the head counts as wrapped"),
    OptionSpec::number("back_seek_penalty", 2, (1, 1000), "factor of distances backwards"),
    OptionSpec::number("slice_sync_ms", 100, (1, 100_000), "turn of a sync queue (HZ/10)"),
    OptionSpec::number("slice_async_ms", 40, (1, 100_000), "turn of the async queue (HZ/25)"),
    OptionSpec::number("slice_async_rq", 2, (1, 1000), "an async turn is at most 8 times as many requests"),
    OptionSpec::number("slice_idle_ms", 8, (0, 10_000), "longest wait for the next request of a queue (HZ/125)"),
    OptionSpec::number("group_idle_ms", 8, (0, 10_000), "the same for the last queue there is (HZ/125)"),
    OptionSpec::number(
        "target_latency_ms",
        300,
        (1, 100_000),
        "time in which every queue shall have its turn (HZ*3/10)",
    ),
    OptionSpec::switch("low_latency", true, "shorten turns to meet the target, let async writes in gradually"),
    OptionSpec::switch("cooperate", true, "give way to close queues and merge with them (not a kernel tunable)"),
];

/// Differences between the kernels of the family.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// The last queue of a tree, and of all, is waited for only if the think time seen there is short; async requests
    /// say nothing of a task's think time (3.1).
    pub(super) tree_think_time: bool,
    /// The only busy sync queue has no limit at the device although an async queue is busy (3.0).
    pub(super) lone_sync_unlimited: bool,
    /// An overdue request leaves whatever the limits say, and sync requests do not take its turn over (after 3.2).
    pub(super) overdue_passes: bool,
    /// A request with the start sector of a new one leaves at once (up to 3.0).
    pub(super) alias_leaves: bool,
}
