//! 6.18: large folios mapped whole, windows for executables, misses that fault-around takes back.
//!
//! A miss reads two folios of 512 pages if the mapping asks for huge pages; nothing but the page if access is random or
//! the limit is 0; the pages of a read(2) if it is sequential; the pages behind it, up to the mapping's end, if it is
//! executable; otherwise the limit's worth of pages around it, the last quarter behind a marker. Fault-around maps 16
//! pages, or whole folios among them, but never a folio with the marker: so the marked page always takes a fault that
//! looks at it. Every page mapped this way takes one off the misses, so they rarely reach the 100 that stop
//! reading around. A marker or a page in flight sends the fault through its look-up twice.
//!
//! Source: Linux 6.18, mm/filemap.c, `filemap_fault`, `filemap_map_pages`; mm/memory.c, `finish_fault`.
//!
//! Known deviations: executables' folios have order 0 as on x86 (arm64: 64 KiB).

use super::{Build, Rules};
use crate::advice;
use crate::origin::{Entry, Options, Origin};

/// 6.18.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-6.18",
    summary: "read around, or ahead by advice; fault-around maps whole folios but none with a marker",
    origin: &[Origin {
        kernels: "6.18",
        file: "mm/filemap.c, mm/memory.c",
        function: "filemap_fault, do_sync_mmap_readahead, filemap_map_pages, finish_fault",
        notes: "decisions and trace events compared case by case with a running 6.18",
    }],
    options: super::OPTIONS,
    conformance: "golden vectors linux-6.18-mmap: 185 cases, every submission, trace event, state and mapped page",
    build,
};

fn build(options: &Options) -> Rules {
    super::tuned(options, RULES)
}

pub(super) const RULES: Rules = Rules {
    fault_around_pages: 16,
    around_is_access: true,
    whole_folios: true,
    workingset_is_no_hit: true,
    counts_only_new: false,
    end_needs_table: true,
    huge_entries: true,
    locked_is_hit: false,
    hits_need_limit: true,
    retries_after_marker: true,
    tried_after_any_retry: false,
    most_misses: 1000,
    lots_of_misses: 100,
    huge_windows: true,
    exec_windows: true,
    around_has_tail: true,
    tracks_position: false,
    ignores_state: false,
    advice: advice::LINUX_6_18,
};
