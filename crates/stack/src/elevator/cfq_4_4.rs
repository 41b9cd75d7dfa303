//! CFQ of Linux 4.4.
//!
//! As in [`super::cfq_3_2`], but an overdue request leaves whatever the limits at the device say, and a sync request
//! does not take the turn over from an async queue that is about to serve one.
//!
//! Source: Linux 4.4.155, `block/cfq-iosched.c`, `cfq_dispatch_request` and `cfq_may_dispatch`. Deviations: those of
//! [`super::cfq_2_6_33`].

use super::cfq_2_6_33::{Cfq, OPTIONS, Rules};
use super::{Build, Elevator};
use crate::origin::{Entry, Options, Origin};
use crate::units::Hz;

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "cfq-4.4",
    summary: "time slices per process on three service trees, with idling (Linux 4.4)",
    origin: &[Origin {
        kernels: "4.4",
        file: "block/cfq-iosched.c",
        function: "cfq_select_queue",
        notes: "read in 4.4.155; one group, class and priority; kernels between 3.3 and 4.8 differ little",
    }],
    options: OPTIONS,
    conformance: "turns, waits, merging, limits and preemption in tables; the property test; no kernel traces",
    build,
};

fn build(options: &Options, hz: Hz) -> Box<dyn Elevator> {
    let rules = Rules { tree_think_time: true, lone_sync_unlimited: true, overdue_passes: true, alias_leaves: false };
    Box::new(Cfq::new(options, hz, rules))
}
