//! The queue of 2.6 plugs itself and is unplugged by a waiter, a threshold or a timer.
//!
//! ```text
//! a bio arrives at an empty queue        plugged, timer armed
//! 4 requests wait (allocated - started)  unplugged; until 2.6.12 only if the count is exactly met, also after a merge
//! 3 ms have passed                       unplugged from the kernel's worker thread
//! a bio marked synchronous               unplugged
//! a task waits for page or buffer        unplugged
//! ```
//! Source: 2.6.6-rc3, `drivers/block/ll_rw_blk.c`, `__make_request`, `blk_plug_device`, `generic_unplug_device`.

use super::{Build, Plugging};
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::units::Nanos;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::number("unplug_thresh", 4, (0, 1 << 16), "requests waiting at which the queue unplugs; 0 for never"),
    OptionSpec::number("unplug_delay_us", 3_000, (0, 10_000_000), "time after which it unplugs; 0 for never"),
];

const ORIGIN: &[Origin] = &[Origin {
    kernels: "2.6.0 .. 2.6.38",
    file: "drivers/block/ll_rw_blk.c",
    function: "blk_plug_device",
    notes: "read in 2.6.6-rc3; non-rotational devices with tags were never plugged in 2.6.38, which is not modelled",
}];

const CONFORMANCE: &str = "held by the tests of the request queue; no recorded traces of these kernels exist";

/// Until 2.6.12.
pub(super) const ENTRY: Entry<Build> = Entry {
    name: "queue-2.6",
    summary: "the queue plugs itself; a waiter, exactly 4 requests or 3 ms unplug it",
    origin: ORIGIN,
    options: OPTIONS,
    conformance: CONFORMANCE,
    build: |options| build(options, true),
};

/// From 2.6.13.
pub(super) const ENTRY_2_6_13: Entry<Build> = Entry {
    name: "queue-2.6.13",
    summary: "the queue plugs itself; a waiter, 4 or more requests or 3 ms unplug it",
    origin: ORIGIN,
    options: OPTIONS,
    conformance: CONFORMANCE,
    build: |options| build(options, false),
};

fn build(options: &Options, exact: bool) -> Plugging {
    Plugging::Queue {
        threshold: options.unsigned("unplug_thresh") as u32,
        exact,
        delay: Nanos::from_us(options.unsigned("unplug_delay_us")),
    }
}
