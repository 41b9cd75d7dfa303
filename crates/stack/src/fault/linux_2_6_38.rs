//! 2.6.38: no fault-around; faults and read(2) share the position by which access is sequential.
//!
//! Every page takes a fault of its own, and every fault notes its page as the previous position: a plain scan of a
//! mapping therefore counts as sequential, and read(2) on the same open file disturbs it (and is disturbed). A window
//! around a page is all synchronous, and limited by free memory. Misses are counted without a cap and every
//! page found takes one off; a file with 100 more misses than hits is not read around any more.
//!
//! Source: Linux 2.6.38, mm/filemap.c, `filemap_fault`, `do_sync_mmap_readahead`.
//!
//! Known deviations: from reading the source only. The second pass of a fault that waited is not counted as a hit.

use super::{Build, Rules, linux_4_4};
use crate::origin::{Entry, Options, Origin};

/// 2.6.38.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-2.6.38",
    summary: "no fault-around (the nearest there is for 2.6.23 to 3.14); faults set the position by which sequential \
              access is known",
    origin: &[Origin {
        kernels: "2.6.38",
        file: "mm/filemap.c",
        function: "filemap_fault, do_sync_mmap_readahead",
        notes: "from the source only",
    }],
    options: &[],
    conformance: "none: read in the source, no recorded vectors",
    build,
};

fn build(_options: &Options) -> Rules {
    RULES
}

pub(super) const RULES: Rules = Rules {
    fault_around_pages: 1,
    most_misses: i32::MAX as u32,
    around_has_tail: false,
    tracks_position: true,
    ..linux_4_4::RULES
};
