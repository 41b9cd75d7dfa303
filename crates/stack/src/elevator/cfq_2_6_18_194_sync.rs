//! The time-sliced CFQ of RHEL 5.5 with a test patch that honours the sync flag of writes.
//!
//! As [`super::cfq_2_6_18_186`], but a write with the sync flag (direct I/O, fsync) goes to its task's sync queue:
//! slices of 100 ms, and waiting for the task's next request.
//!
//! Source: Linux 2.6.18-194.el5, `block/cfq-iosched.c`, `cfq_set_request`, and the description of the patch.
//! Deviations: those of [`super::cfq_2_6_18_186`].

use super::cfq_2_6_18::{Cfq, OPTIONS, Rules, Sharing, Writes};
use super::{Build, Elevator};
use crate::origin::{Entry, Options, Origin};
use crate::units::Hz;

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "cfq-2.6.18-194+sync",
    summary: "as cfq-2.6.18-186 with direct writes among the sync requests (the test patch of bug 574285)",
    origin: &[Origin {
        kernels: "2.6.18-194 with a test patch",
        file: "block/cfq-iosched.c",
        function: "cfq_set_request",
        notes: "the patch is known from its description: requests with the sync flag are sync, all else as in -194",
    }],
    options: OPTIONS,
    conformance: "a closed loop of writers, merge and cooperation tables; the property test over all elevators; no \
                  kernel vectors",
    build,
};

fn build(options: &Options, hz: Hz) -> Box<dyn Elevator> {
    let rules = Rules { writes: Writes::Flagged, sharing: Sharing::Task, cooperate: true, must_queue: None };
    Box::new(Cfq::new(options, hz, rules))
}
