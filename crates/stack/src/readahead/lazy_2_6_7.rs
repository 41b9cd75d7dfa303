//! 2.6.7: the private copy of 2.6.6's successor, and "speed up readahead for seeky loads".
//!
//! As 2.6.6 with a private copy, but a window after a jump is as long as the average run instead of as far as the old
//! window was used; the average is rounded towards the run just ended; and the window ahead is read only when runs
//! are longer than the limit, no longer at the last page of the current window. Random reads settle at their own size
//! after a few calls, and long sequential reads take several windows to get going.
//!
//! Source: Linux 2.6.7, mm/readahead.c, `page_cache_readahead`; mm/filemap.c, `do_generic_mapping_read`.
//!
//! Known deviations: none known.

use super::lazy_2_6_5::{Lazy, Variant};
use super::{Build, Limits, Readahead};
use crate::origin::{Entry, Options, Origin};

/// 2.6.7.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-2.6.7",
    summary: "adaptive read-ahead on a private copy; windows after a jump as long as the average run",
    origin: &[Origin {
        kernels: "2.6.7",
        file: "mm/readahead.c",
        function: "page_cache_readahead, handle_ra_miss",
        notes: "decisions compared case by case with the kernel's own functions",
    }],
    options: &[],
    conformance: "golden vectors linux-2.6.7: 135 cases, every submission and state",
    build,
};

fn build(_options: &Options, limits: &Limits) -> Box<dyn Readahead> {
    let variant = Variant { private_copy: true, seeky: true, willneed_touched: true, ..Variant::LINUX_2_6_6 };
    Lazy::boxed(limits, variant)
}
