//! 4.4: read around or ahead on single pages; fault-around takes off the misses what it newly maps.
//!
//! A miss reads one page if access is random or the limit is 0, the pages of a read(2) if it is sequential, and
//! otherwise the limit's worth of pages around it, the last quarter behind a marker. A page that is found is mapped in
//! the same pass even if its marker moved the stream on. A limit of 0 does not keep the marker from being looked at.
//!
//! Source: Linux 4.4, mm/filemap.c, `filemap_fault`, `do_sync_mmap_readahead`, `filemap_map_pages`.
//!
//! Known deviations: from reading the source only; not compared with a running kernel.

use super::{Build, Rules, linux_6_18};
use crate::advice;
use crate::origin::{Entry, Options, Origin};

/// 4.4.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-4.4",
    summary: "read around or ahead, on single pages; fault-around of 16 pages (the nearest for 4.19 too)",
    origin: &[Origin {
        kernels: "3.15 .. 4.9",
        file: "mm/filemap.c",
        function: "filemap_fault, do_sync_mmap_readahead, filemap_map_pages",
        notes: "from the source of 4.4 only",
    }],
    options: super::OPTIONS,
    conformance: "none: read in the source, no recorded vectors",
    build,
};

fn build(options: &Options) -> Rules {
    super::tuned(options, RULES)
}

pub(super) const RULES: Rules = Rules {
    whole_folios: false,
    workingset_is_no_hit: false,
    counts_only_new: true,
    end_needs_table: false,
    huge_entries: false,
    locked_is_hit: true,
    hits_need_limit: false,
    retries_after_marker: false,
    tried_after_any_retry: true,
    huge_windows: false,
    exec_windows: false,
    advice: advice::LINUX_4_4,
    ..linux_6_18::RULES
};
