//! mq-deadline of Linux 4.11 .. 6.4.
//!
//! As [`super::mq_deadline`], but a sweep goes on with the request that came next when its last one left: requests that
//! arrive in between wait for the next sweep. In 6.1 each direction keeps that request, and a batch after a change of
//! direction goes on with it. In 5.10 only the last direction does: a change of direction starts with the oldest
//! request; and classes of priority are not looked at.
//!
//! Source: Linux 5.10, 6.1, `block/mq-deadline.c`, `__dd_dispatch_request`, `deadline_move_request`. Deviations: those
//! of [`super::mq_deadline`].

use super::Build;
use super::deadline::Sweep;
use super::mq_deadline::{self, OPTIONS, Tags};
use crate::origin::{Entry, Origin};

/// 6.1.
pub const ENTRY: Entry<Build> = Entry {
    name: "mq-deadline-6.1",
    summary: "sorted reads and writes with expiry, in batches of 16 (blk-mq, 5.18 to 6.4)",
    origin: &[Origin {
        kernels: "5.18 .. 6.4",
        file: "block/mq-deadline.c",
        function: "__dd_dispatch_request",
        notes: "dispatch, classes of priority and their ageing as in 6.1.192",
    }],
    options: OPTIONS,
    conformance: "order tables, a naive list, and `cargo xtask oracle`: the kernel's own code on random input",
    build: |options, hz| mq_deadline::build(options, hz, Sweep::NextOfEach, Tags::Word),
};

/// 5.10.
pub const ENTRY_5_10: Entry<Build> = Entry {
    name: "mq-deadline-5.10",
    summary: "sorted reads and writes with expiry, in batches of 16 (blk-mq, until 5.17)",
    origin: &[Origin {
        kernels: "4.11 .. 5.17",
        file: "block/mq-deadline.c",
        function: "__dd_dispatch_request",
        notes: "as in 5.10.262; the first kernel with the sweeps of 6.1 is remembered, not checked",
    }],
    options: OPTIONS,
    conformance: "order tables, a naive list, and `cargo xtask oracle`: the kernel's own code on random input",
    build: |options, hz| mq_deadline::build(options, hz, Sweep::Next { stays: true }, Tags::Free),
};

#[cfg(test)]
mod tests {
    use super::super::deadline::tests::check_batches;
    use super::super::testing::Driver;
    use crate::event::Dir::{Read, Write};

    #[test]
    fn batches_of_sixteen_start_with_the_oldest_and_go_two_to_one() {
        check_batches("mq-deadline-6.1", 250);
        check_batches("mq-deadline-5.10", 250);
    }

    #[test]
    fn since_5_18_each_direction_goes_on_where_it_was() {
        for (name, third) in [("mq-deadline-6.1", 900), ("mq-deadline-5.10", 100)] {
            let mut driver = Driver::with(name, 250, &[("fifo_batch", 1), ("writes_starved", 0)]);
            for sector in [500, 100, 900] {
                driver.submit(Read, sector, 8, 0);
            }
            assert_eq!(driver.step(), 500);
            driver.submit(Write, 200, 8, 0);
            assert_eq!([driver.step(), driver.step()], [200, third], "{name}");
        }
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
