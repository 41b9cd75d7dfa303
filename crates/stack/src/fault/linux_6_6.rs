//! 6.6 to 6.11: the steps between 6.1 and 6.12.
//!
//! From 6.3 on use through mappings with random advice keeps no page, and NOREUSE is a flag. From 6.7 on parts of a
//! mapping have locks of their own for files, too: a retried fault may look at a marker again. From 6.10 on
//! fault-around does not count pages evicted while active. The exception of fault-around for the end of the file comes
//! later.
//!
//! Source: Linux 6.3 .. 6.11, mm/filemap.c, `filemap_fault`, `filemap_map_pages`.
//!
//! Known deviations: from memory of the changes; not compared with a running kernel.

use super::{Build, Rules, linux_6_1};
use crate::advice;
use crate::origin::{Entry, Options, Origin};

const ORIGIN: &[Origin] = &[Origin {
    kernels: "6.6 .. 6.11",
    file: "mm/filemap.c, mm/memory.c",
    function: "filemap_fault, do_sync_mmap_readahead, filemap_map_pages, finish_fault",
    notes: "from memory of the changes between 6.1 and 6.12",
}];
const CONFORMANCE: &str = "none: from memory, no recorded vectors";
const RULES: Rules = Rules { advice: advice::LINUX_6_18, ..linux_6_1::RULES };
const RULES_6_8: Rules = Rules { tried_after_any_retry: false, ..RULES };

/// 6.6.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-6.6",
    summary: "as 6.1; random advice takes the second chance from pages",
    origin: ORIGIN,
    options: super::OPTIONS,
    conformance: CONFORMANCE,
    build: |options: &Options| super::tuned(options, RULES),
};

/// 6.8.
pub const ENTRY_6_8: Entry<Build> = Entry {
    name: "linux-6.8",
    summary: "as 6.6; a retried fault may look at a marker again",
    build: |options: &Options| super::tuned(options, RULES_6_8),
    ..ENTRY
};

/// 6.11.
pub const ENTRY_6_11: Entry<Build> = Entry {
    name: "linux-6.11",
    summary: "as 6.8; fault-around does not count pages evicted while active",
    build: |options: &Options| super::tuned(options, Rules { workingset_is_no_hit: true, ..RULES_6_8 }),
    ..ENTRY
};
