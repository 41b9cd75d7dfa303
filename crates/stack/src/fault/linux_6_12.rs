//! 6.12: as 6.18, but executables are read around like any other mapping, and folios are mapped page by page.
//!
//! Fault-around never leaves its window, a page that is found takes one off the misses even while it is being read, and
//! random access reads single pages in executable mappings too. With large folios the window around a page
//! is cut into folios of order 2.
//!
//! Source: Linux 6.12, mm/filemap.c, `filemap_fault`, `filemap_map_pages`; mm/memory.c, `finish_fault`.
//!
//! Known deviations: from reading the source only; not compared with a running kernel.

use super::{Build, Rules, linux_6_18};
use crate::origin::{Entry, Options, Origin};

/// 6.12.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-6.12",
    summary: "read around, or ahead by advice; fault-around keeps to its window",
    origin: &[Origin {
        kernels: "6.12",
        file: "mm/filemap.c, mm/memory.c",
        function: "filemap_fault, do_sync_mmap_readahead, filemap_map_pages, finish_fault",
        notes: "from the source only",
    }],
    options: super::OPTIONS,
    conformance: "none: read in the source, no recorded vectors",
    build,
};

fn build(options: &Options) -> Rules {
    super::tuned(options, RULES)
}

pub(super) const RULES: Rules =
    Rules { whole_folios: false, locked_is_hit: true, exec_windows: false, ..linux_6_18::RULES };
