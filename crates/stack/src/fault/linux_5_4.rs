//! 5.4 to 5.15: as 6.1, without windows or entries for huge pages, and a limit of 0 does not keep hits from counting.
//!
//! A fault that starts or waits for I/O lets go of the lock of the mappings and restarts (since 5.1); the second pass
//! looks at no marker again. Fault-around takes every usable page off the misses, mapped before or not.
//!
//! Source: Linux 5.1 .. 5.15, mm/filemap.c, `filemap_fault`, `do_async_mmap_readahead`, `filemap_map_pages`.
//!
//! Known deviations: from memory; not compared with a running kernel. From which kernel on a limit of 0 keeps hits from
//! counting is not known; here it is 6.1.

use super::{Build, Rules, linux_6_1};
use crate::origin::{Entry, Options, Origin};

/// 5.4, 5.10 and 5.15.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-5.4",
    summary: "read around or ahead, on single pages; a fault that waits restarts",
    origin: &[Origin {
        kernels: "5.1 .. 5.15",
        file: "mm/filemap.c",
        function: "filemap_fault, do_sync_mmap_readahead, do_async_mmap_readahead, filemap_map_pages",
        notes: "from memory",
    }],
    options: super::OPTIONS,
    conformance: "none: from memory, no recorded vectors",
    build,
};

fn build(options: &Options) -> Rules {
    super::tuned(
        options,
        Rules { huge_entries: false, huge_windows: false, hits_need_limit: false, ..linux_6_1::RULES },
    )
}
