//! The deadline elevator of Linux 2.6.24 .. 4.x (single queue).
//!
//! As its predecessor, but a batch is up to `fifo_batch` requests in sweep order, contiguous or not, and a new batch
//! starts with the oldest request of its direction unless the sweep of that direction is still going on. Requests with
//! one start sector wait side by side.
//!
//! Source: Linux 3.2, `block/deadline-iosched.c`, `deadline_dispatch_requests`. Deviations: before 3.1 an old request
//! with the start sector of a new one left at once, as in [`super::deadline`]; this file follows 3.2.

use super::deadline::{Deadline, OPTIONS, Rules, Sweep};
use super::{Build, Elevator};
use crate::origin::{Entry, Options, Origin};
use crate::units::Hz;

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "deadline-3.2",
    summary: "sorted reads and writes with expiry, in batches of 16 (Linux 2.6.24 .. 4.x)",
    origin: &[Origin {
        kernels: "2.6.24 .. 4.20",
        file: "block/deadline-iosched.c",
        function: "deadline_dispatch_requests",
        notes: "3.2 as in the source; the first kernel with these batches is remembered, not checked",
    }],
    options: OPTIONS,
    conformance: "order tables; no kernel vectors",
    build,
};

fn build(options: &Options, hz: Hz) -> Box<dyn Elevator> {
    let rules = Rules {
        contiguous_batches: false,
        restart_at_lowest: false,
        alias_leaves: false,
        due_is_expired: false,
        sweep: Sweep::Next { stays: true },
        has_classes: false,
    };
    Box::new(Deadline::new(options, hz, rules))
}

#[cfg(test)]
mod tests {
    use super::super::deadline::tests::check_batches;
    use super::super::testing::Driver;
    use crate::event::Dir::Read;

    #[test]
    fn batches_of_sixteen_start_with_the_oldest_and_go_two_to_one() {
        check_batches("deadline-3.2", 1000);
    }

    #[test]
    fn requests_for_one_sector_leave_side_by_side() {
        let mut driver = Driver::new("deadline-3.2", 1000);
        driver.submit(Read, 100, 8, 0);
        driver.submit(Read, 500, 8, 0);
        driver.submit(Read, 500, 4, 0);
        assert_eq!(driver.starts(), [(100, 8), (500, 8), (500, 4)]);
    }
}
