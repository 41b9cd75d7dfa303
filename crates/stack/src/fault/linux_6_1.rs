//! 6.1: as 6.12, with every retried fault marked as tried, and every usable page a hit.
//!
//! Parts of a mapping have no locks of their own yet: a fault that has waited knows that it did, and looks at no marker
//! again. Fault-around has no exception for the end of the file and none for pages evicted while active.
//!
//! Source: Linux 6.1, mm/filemap.c, `filemap_fault`, `filemap_map_pages`; mm/memory.c, `finish_fault`.
//!
//! Known deviations: from reading the source only; not compared with a running kernel.

use super::{Build, Rules, linux_6_12};
use crate::advice;
use crate::origin::{Entry, Options, Origin};

/// 6.1.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-6.1",
    summary: "read around, or ahead by advice; a retried fault looks at no marker",
    origin: &[Origin {
        kernels: "6.1",
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

pub(super) const RULES: Rules = Rules {
    workingset_is_no_hit: false,
    end_needs_table: false,
    tried_after_any_retry: true,
    advice: advice::LINUX_6_1,
    ..linux_6_12::RULES
};
