//! The time-sliced CFQ of RHEL 5.5: every task has an async queue of its own.
//!
//! As its predecessor ([`super::cfq_2_6_18`]), but the queues are found through the task, not a hash, so async requests
//! are shared no more; direct writes are still async. As nothing is dispatched for others while the active queue has a
//! request at the device, several direct writers keep it at one request where they kept it at one each before. Close
//! sync queues cooperate. A bio with the sync flag looks for a request to grow at its front in the sync queue,
//! where no write is.
//!
//! Source: Linux 2.6.18-194.el5, `block/cfq-iosched.c`, `cfq_get_queue` and `cfq_set_request`. Deviations: those of
//! [`super::cfq_2_6_18`]; two queues are not united if no task uses the other any more, as from -238 on (before, the
//! kernel followed stale pointers); no task is promised a request, because this kernel looks at the wrong queue.

use super::cfq_2_6_18::{Cfq, OPTIONS, Rules, Sharing, Writes};
use super::{Build, Elevator};
use crate::origin::{Entry, Options, Origin};
use crate::units::Hz;

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "cfq-2.6.18-186",
    summary: "time slices; every task has its own async queue, direct writes in it (RHEL 5.5)",
    origin: &[Origin {
        kernels: "2.6.18-186 .. 2.6.18-194",
        file: "block/cfq-iosched.c",
        function: "cfq_get_queue",
        notes: "compared with -194; -186 and -193 are taken to be the same",
    }],
    options: OPTIONS,
    conformance: "a closed loop of writers, merge and cooperation tables; the property test over all elevators; no \
                  kernel vectors",
    build,
};

fn build(options: &Options, hz: Hz) -> Box<dyn Elevator> {
    let rules = Rules { writes: Writes::AsyncMergedAsSync, sharing: Sharing::Task, cooperate: true, must_queue: None };
    Box::new(Cfq::new(options, hz, rules))
}
