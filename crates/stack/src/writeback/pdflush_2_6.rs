//! 2.6.0 .. 2.6.21: pdflush, and writers that write one and a half times what they dirtied.
//!
//! ```text
//! writer    every 1024 pages or so: above 40 % of memory, writes 1.5 times as many pages of this device
//! pdflush   woken above 10 %, 1024 pages of a file in a round, until below
//! kupdate   every 5 s, files first dirtied more than 30 s ago
//! order     file by file, ascending pages
//! ```
//! Source: 2.6.6-rc3, `mm/page-writeback.c`, `balance_dirty_pages`, `background_writeout`, `wb_kupdate`. Known
//! deviations: one daemon instead of two to eight; waiting for congestion to end is waiting for a request.

use super::{Base, Build, options, rules};
use crate::origin::{Entry, Origin};

/// The entry of this file.
pub(super) const ENTRY: Entry<Build> = Entry {
    name: "pdflush-2.6",
    summary: "pdflush at 10 %, writers at 40 % of memory, every 5 s files dirty for 30 s",
    origin: &[Origin {
        kernels: "2.6.0 .. 2.6.21",
        file: "mm/page-writeback.c",
        function: "balance_dirty_pages, background_writeout, wb_kupdate",
        notes: "read in 2.6.6-rc3",
    }],
    options: &options(40, 10, 10),
    conformance: "held by the tests of the simulator; no recorded traces of these kernels exist",
    build: |options| rules(options, Base::Total, true, 1024, 1536, 1024),
};
