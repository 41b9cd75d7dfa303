//! The time-sliced CFQ of RHEL 5.6: the sync flag counts, async requests are shared again.
//!
//! As [`super::cfq_2_6_18_186`], but a request knows whether its bio was sync: a write with the flag (direct I/O,
//! fsync) goes to its task's sync queue. Other writes of all tasks of one priority share a queue, which is never given
//! up.
//!
//! Source: Linux 2.6.18-238.el5, `block/cfq-iosched.c`, `cfq_get_queue` and `cfq_set_request`. Deviations: those of
//! [`super::cfq_2_6_18`]; a task that is waited for may always have a request for a write, with or without the flag.

use super::cfq_2_6_18::{Cfq, OPTIONS, Rules, Sharing, Writes};
use super::{Build, Elevator};
use crate::event::Dir;
use crate::origin::{Entry, Options, Origin};
use crate::units::Hz;

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "cfq-2.6.18-198",
    summary: "time slices; direct writes are sync, one async queue for all tasks (RHEL 5.6)",
    origin: &[Origin {
        kernels: "2.6.18-198 .. 2.6.18-238",
        file: "block/cfq-iosched.c",
        function: "cfq_get_queue",
        notes: "compared with -194.11.1 and -238, which have the change of -198",
    }],
    options: OPTIONS,
    conformance: "a closed loop of writers, merge and cooperation tables; the property test over all elevators; no \
                  kernel vectors",
    build,
};

fn build(options: &Options, hz: Hz) -> Box<dyn Elevator> {
    let rules =
        Rules { writes: Writes::Flagged, sharing: Sharing::Priority, cooperate: true, must_queue: Some(Dir::Write) };
    Box::new(Cfq::new(options, hz, rules))
}
