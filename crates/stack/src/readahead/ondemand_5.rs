//! 5.4, 5.10 and 5.15: on-demand read-ahead on a page cache that is an xarray.
//!
//! As 4.19, except in 5.4: looking for a hole in vain ends at the last page looked at, not behind it, so a marker
//! with cached pages all the way behind it moves its stream on instead of ending it, and such a run before a miss
//! counts one page less. In 5.10 also: the marker's place is counted from the end of what the file has of the window,
//! so that it vanishes where less than the tail is left; and with a limit of 0 each page is a forced read. In 5.15
//! also: pages are looked up in batches of 15, of which a marker ends one; the position moves after each page copied,
//! to the byte behind it; and the file's size is looked at once the pages are there, so that a read at or beyond the
//! end moves the state and reads a page. Until 5.15.94 a batch may have the page behind the request: its marker moves
//! the stream on one call early.
//!
//! Source: Linux 5.4, 5.10, 5.15, mm/readahead.c, `ondemand_readahead`; mm/filemap.c, `page_cache_next_miss`,
//! `page_cache_prev_miss`, `filemap_get_pages`.
//!
//! Known deviations: congestion is the queue's; that of a control group is not modelled. 5.15.85 waits for the page
//! behind the request if that one is being read, which is not modelled.

use super::ondemand_2_6_23::{Kernel, OnDemand};
use super::{Build, Limits, Readahead};
use crate::origin::{Entry, Options, Origin};

const DECISIONS: &str = "decisions compared case by case with the kernel's own functions";

/// 5.4.
pub const ENTRY_5_4: Entry<Build> = Entry {
    name: "linux-5.4",
    summary: "as 4.19; looking for a hole in vain ends at the last page looked at",
    origin: &[Origin {
        kernels: "5.4.273",
        file: "mm/readahead.c, mm/filemap.c",
        function: "ondemand_readahead, page_cache_next_miss, page_cache_prev_miss",
        notes: DECISIONS,
    }],
    options: &[],
    conformance: "golden vectors linux-5.4: 80 cases, every submission, marker and state",
    build: |_: &Options, limits: &Limits| -> Box<dyn Readahead> { OnDemand::boxed(limits, Kernel::V5_4) },
};

/// 5.10.
pub const ENTRY_5_10: Entry<Build> = Entry {
    name: "linux-5.10",
    summary: "as 5.4; the marker is counted from the end of the file, and a limit of 0 forces single pages",
    origin: &[Origin {
        kernels: "5.10.262",
        file: "mm/readahead.c",
        function: "ondemand_readahead, do_page_cache_ra, page_cache_sync_ra",
        notes: DECISIONS,
    }],
    options: &[],
    conformance: "golden vectors linux-5.10: 80 cases, every submission, marker and state",
    build: |_: &Options, limits: &Limits| -> Box<dyn Readahead> { OnDemand::boxed(limits, Kernel::V5_10) },
};

/// 5.15 until its level 94.
pub const ENTRY_5_15_85: Entry<Build> = Entry {
    name: "linux-5.15.85",
    summary: "as 5.15; batches have the page behind the request, so that its marker is met one call early",
    origin: &[Origin {
        kernels: "5.15 .. 5.15.94",
        file: "mm/readahead.c, mm/filemap.c",
        function: "ondemand_readahead, filemap_get_pages",
        notes: "decisions compared case by case with the functions of 5.15.85; fixed by \"mm/filemap: fix page end in \
                filemap_get_read_batch\"",
    }],
    options: &[],
    conformance: "golden vectors linux-5.15.85: 76 cases, every submission, marker and state",
    build: |_: &Options, limits: &Limits| -> Box<dyn Readahead> { OnDemand::boxed(limits, Kernel::V5_15_85) },
};

/// 5.15 from its level 95 on.
pub const ENTRY_5_15: Entry<Build> = Entry {
    name: "linux-5.15",
    summary: "as 5.10; pages in batches of 15, the position is a byte and moves with each page",
    origin: &[Origin {
        kernels: "5.15.95 ..",
        file: "mm/readahead.c, mm/filemap.c",
        function: "ondemand_readahead, filemap_read, filemap_get_pages",
        notes: "decisions compared case by case with the functions of 5.15.135",
    }],
    options: &[],
    conformance: "golden vectors linux-5.15: 76 cases, every submission, marker and state",
    build: |_: &Options, limits: &Limits| -> Box<dyn Readahead> { OnDemand::boxed(limits, Kernel::V5_15) },
};
