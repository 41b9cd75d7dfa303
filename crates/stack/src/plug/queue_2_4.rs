//! The queue of 2.4 plugs itself and is unplugged by the global task queue.
//!
//! A buffer that arrives at an empty queue plugs it and puts the unplugging on `tq_disk`. Tasks that wait for a buffer
//! or a page run that task queue, and so do tasks that wait for a free request. It has neither timer nor threshold; but
//! every five seconds some daemon comes past (`kupdate` waits for buffers in each of its rounds), without which a plug
//! whose waiters came before its requests would stay for ever.
//! Source: 2.4.27, `drivers/block/ll_rw_blk.c`, `generic_plug_device` and `__make_request`; `fs/buffer.c`, `kupdate`
//! (from memory). Known deviations: one device, so running the task queue unplugs that one only; the five seconds count
//! from the plug.

use super::{Build, Plugging};
use crate::origin::{Entry, Origin};
use crate::units::Nanos;

/// Time between two rounds of `kupdate`.
const ROUND: Nanos = Nanos::from_secs(5);

/// The entry of this file.
pub(super) const ENTRY: Entry<Build> = Entry {
    name: "queue-2.4",
    summary: "the queue plugs itself when empty; only a waiter unplugs it, or a daemon's round",
    origin: &[Origin {
        kernels: "2.4.0 .. 2.4.37",
        file: "drivers/block/ll_rw_blk.c",
        function: "generic_plug_device",
        notes: "read in 2.4.27",
    }],
    options: &[],
    conformance: "held by the tests of the request queue; no recorded traces of this kernel exist",
    build: |_| Plugging::Queue { threshold: 0, exact: false, delay: ROUND },
};
