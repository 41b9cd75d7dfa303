//! mq-deadline of Linux 5.18 .. 6.4.
//!
//! As [`super::mq_deadline`], but a sweep goes on with the request that came next when its last one left, and only in
//! the direction of that one: requests that arrive in between wait for the next sweep, and a change of direction starts
//! with the oldest request.
//!
//! Source: Linux 6.1, `block/mq-deadline.c`, `__dd_dispatch_request`. Deviations: those of [`super::mq_deadline`].

use super::Build;
use super::mq_deadline::{self, OPTIONS};
use crate::origin::{Entry, Origin};

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "mq-deadline-6.1",
    summary: "sorted reads and writes with expiry, in batches of 16 (blk-mq, up to 6.4)",
    origin: &[Origin {
        kernels: "5.18 .. 6.4",
        file: "block/mq-deadline.c",
        function: "__dd_dispatch_request",
        notes: "dispatch of one class as in 6.1; no priorities, so no ageing",
    }],
    options: OPTIONS,
    conformance: "order tables, and random arrivals against a naive list; no kernel vectors",
    build: |options, hz| mq_deadline::build(options, hz, false),
};

#[cfg(test)]
mod tests {
    use super::super::deadline::tests::check_batches;
    use super::super::testing::Driver;
    use crate::event::Dir::Read;

    #[test]
    fn batches_of_sixteen_start_with_the_oldest_and_go_two_to_one() {
        check_batches("mq-deadline-6.1", 250);
    }

    #[test]
    fn who_comes_between_is_passed_over_until_6_5() {
        for (name, expected) in [("mq-deadline-6.1", [500, 900, 600]), ("mq-deadline", [500, 600, 900])] {
            let mut driver = Driver::new(name, 250);
            driver.submit(Read, 500, 8, 0);
            driver.submit(Read, 900, 8, 0);
            let first = driver.step();
            driver.submit(Read, 600, 8, 0);
            assert_eq!([first, driver.step(), driver.step()], expected, "{name}");
        }
    }
}
