//! 2.4: bdflush and kupdate, and writers that write 32 buffers themselves.
//!
//! ```text
//! writer    above 60 % dirty of free and buffer memory: writes 32 buffers itself
//! bdflush   woken above 30 %, writes until below 20 %
//! kupdate   every 5 s, buffers older than 30 s
//! order     the list of dirty buffers, oldest first
//! ```
//! Source: 2.4.27, `fs/buffer.c`, `balance_dirty`, `bdflush`, `kupdate`, `bdf_prm`. Known deviations: age is kept per
//! file, so the order among files is that of their first dirty page, and ascending within a file.

use super::{Base, Build, options, rules};
use crate::origin::{Entry, Origin};

/// The entry of this file.
pub(super) const ENTRY: Entry<Build> = Entry {
    name: "bdflush-2.4",
    summary: "bdflush at 30 %, writers at 60 %, kupdate every 5 s for buffers of 30 s",
    origin: &[Origin {
        kernels: "2.4.20 .. 2.4.27",
        file: "fs/buffer.c",
        function: "balance_dirty, bdflush, kupdate",
        notes: "percentages of bdf_prm",
    }],
    options: &options(60, 30, 20),
    conformance: "held by the tests of the simulator; no recorded traces of this kernel exist",
    build: |options| rules(options, Base::Available, false, 1, 32, 500),
};
