//! CFQ of Linux 3.1 .. 3.2.
//!
//! As in [`super::cfq_2_6_33`], but think times are kept of each service tree and of all queues together as well: the
//! last queue of a tree is not waited for if requests there come in too slowly. A lone sync queue has no limit at the
//! device. Requests with one start sector wait side by side.
//!
//! Source: Linux 3.1, `block/cfq-iosched.c`, `cfq_should_idle` and `cfq_may_dispatch`. Deviations: 3.2 itself was not
//! at hand, its file is taken to be that of 3.1 (read in a vendor's tree); the others of [`super::cfq_2_6_33`].

use super::cfq_2_6_33::{Cfq, OPTIONS, Rules};
use super::{Build, Elevator};
use crate::origin::{Entry, Options, Origin};
use crate::units::Hz;

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "cfq-3.2",
    summary: "time slices per process on three service trees, with idling (Linux 3.1, 3.2)",
    origin: &[Origin {
        kernels: "3.1 .. 3.2",
        file: "block/cfq-iosched.c",
        function: "cfq_may_dispatch",
        notes: "dispatch and selection read in 3.1, the rest taken from 2.6.38 and 4.4, which agree there",
    }],
    options: OPTIONS,
    conformance: "turns, waits, merging, limits and preemption in tables; the property test; no kernel traces",
    build,
};

fn build(options: &Options, hz: Hz) -> Box<dyn Elevator> {
    let rules = Rules { tree_think_time: true, lone_sync_unlimited: true, overdue_passes: false, alias_leaves: false };
    Box::new(Cfq::new(options, hz, rules))
}
