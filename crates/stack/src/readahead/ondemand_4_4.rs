//! 4.4: on-demand read-ahead with a stricter test for forgotten streams.
//!
//! As 2.6.38, except: cached pages before a miss show a stream only if they are more than the request asks for, and the
//! window is then that history plus the request with a tail of one page. The limit no longer depends on free
//! memory, and a forced read is cut to the device's read-ahead limit. The device's largest request does not matter: one
//! over the limit still reads twice the limit.
//!
//! Source: Linux 4.4, mm/readahead.c, `ondemand_readahead` and `try_context_readahead`.
//!
//! Known deviations: congestion is the queue's; that of a control group is not modelled.

use super::ondemand_2_6_23::{Kernel, OnDemand};
use super::{Build, Limits, Readahead};
use crate::origin::{Entry, Options, Origin};

/// 4.4.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-4.4",
    summary: "on-demand read-ahead with markers; forgotten streams need more history than the request",
    origin: &[Origin {
        kernels: "4.4",
        file: "mm/readahead.c",
        function: "ondemand_readahead, try_context_readahead",
        notes: "decisions compared case by case with the kernel's own functions",
    }],
    options: &[],
    conformance: "golden vectors linux-4.4: every submission, marker and state",
    build,
};

fn build(_options: &Options, limits: &Limits) -> Box<dyn Readahead> {
    OnDemand::boxed(limits, Kernel::V4_4)
}
