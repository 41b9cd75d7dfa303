//! Plugging: how long requests are held back so that neighbours can join them.

mod queue_2_4;
mod queue_2_6;
mod task;

use crate::origin::{Entry, Options};
use crate::units::Nanos;

/// The rules of one kernel, as a value: plugged tasks, and causes of an unplug. A waiter always does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Plugging {
    /// The queue plugs itself when a request comes while it is empty.
    Queue {
        /// Requests waiting at which it unplugs; 0 for never.
        threshold: u32,
        /// The threshold counts only if it is met exactly (until 2.6.12).
        exact: bool,
        /// Time after which it unplugs; zero for never.
        delay: Nanos,
    },
    /// The task keeps its requests on a list of its own.
    Task {
        /// Requests on the list at which it is flushed before another is added; 0 for no limit.
        max_requests: u32,
        /// Size of the last request on the list, in sectors, at which it is flushed likewise; 0 for no limit.
        flush_sectors: u32,
        /// The size that counts is that of the first request (6.13).
        first_counts: bool,
        /// Requests of the list that a bio is compared with.
        joins: PlugJoin,
        /// The list is held for the whole read call rather than for one submission.
        whole_call: bool,
        /// `nomerges` keeps bios from joining requests of the list (since about 3.13).
        heeds_nomerges: bool,
        /// In which order its requests leave.
        order: PlugOrder,
    },
}

/// Requests of a task's list that a bio is compared with.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PlugJoin {
    /// All, the newest first.
    Any,
    /// The newest only (blk-mq since 5.16).
    Newest,
    /// The one that came first (6.13 .. 6.15).
    Oldest,
}

/// In which order the requests of a task's list leave it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PlugOrder {
    /// As they came.
    Arrival,
    Sector,
    /// The newest first where no elevator puts them in order again (5.16 .. 6.12); as they came through an elevator.
    Newest,
}

/// Makes the rules.
pub type Build = fn(&Options) -> Plugging;

/// Every way of plugging.
pub const PLUGS: &[&Entry<Build>] = &[
    &queue_2_4::ENTRY,
    &queue_2_6::ENTRY,
    &queue_2_6::ENTRY_2_6_13,
    &task::ENTRY_2_6_39,
    &task::ENTRY_3_1,
    &task::ENTRY_3_3,
    &task::ENTRY_3_9,
    &task::ENTRY_5_10,
    &task::ENTRY_5_16,
    &task::ENTRY_6_13,
    &task::ENTRY_6_16,
];
