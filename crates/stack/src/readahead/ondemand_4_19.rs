//! 4.19: on-demand read-ahead that knows how large a request the device takes.
//!
//! As 4.4, except: a request over the limit may grow to the device's largest request and is then read exactly, in one
//! piece; a window that would be all tail gets the next one as its tail only within the limit, otherwise half of it; a
//! forced read is cut to the larger of limit and largest request; and every run of absent pages is a submission
//! of its own, so that a cached page in a window splits it.
//!
//! Source: Linux 4.19, mm/readahead.c, `ondemand_readahead` and `__do_page_cache_readahead`.
//!
//! Known deviations: congestion is the queue's; that of a control group is not modelled.

use super::ondemand_2_6_23::{Kernel, OnDemand};
use super::{Build, Limits, Readahead};
use crate::origin::{Entry, Options, Origin};

/// 4.19.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-4.19",
    summary: "on-demand read-ahead with markers; requests may exceed the limit up to the device's largest",
    origin: &[Origin {
        kernels: "4.19",
        file: "mm/readahead.c",
        function: "ondemand_readahead, __do_page_cache_readahead",
        notes: "decisions compared case by case with the kernel's own functions",
    }],
    options: &[],
    conformance: "golden vectors linux-4.19: every submission, marker and state",
    build,
};

fn build(_options: &Options, limits: &Limits) -> Box<dyn Readahead> {
    OnDemand::boxed(limits, Kernel::V4_19)
}
