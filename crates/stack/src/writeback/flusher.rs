//! 2.6.22 and later: flusher threads and limits that refer to available memory.
//!
//! ```text
//! writer    above 20 % of free and file memory: waits while the flusher catches up
//! flusher   woken above 10 %, until below
//! periodic  every 5 s, files first dirtied more than 30 s ago
//! order     file by file, ascending pages
//! ```
//! Source: 3.2 and 6.1, `mm/page-writeback.c`, `balance_dirty_pages`; `fs/fs-writeback.c`. Known deviations: no
//! estimate of
//! the device's bandwidth: a writer above the limit writes pages itself instead of sleeping for a computed time.

use super::{Base, Build, options, rules};
use crate::origin::{Entry, Origin};

/// The entry of this file.
pub(super) const ENTRY: Entry<Build> = Entry {
    name: "flusher",
    summary: "flusher at 10 %, writers at 20 % of available memory, every 5 s files dirty for 30 s",
    origin: &[Origin {
        kernels: "2.6.22 .. 6.18",
        file: "mm/page-writeback.c, fs/fs-writeback.c",
        function: "balance_dirty_pages, wb_writeback",
        notes: "limits exact, pauses simplified",
    }],
    options: &options(20, 10, 10),
    conformance: "held by the tests of the simulator; traces of 6.18 come with the capture layer",
    build: |options| rules(options, Base::Available, true, 32, u64::MAX, 1024),
};
