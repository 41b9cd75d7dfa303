//! XFS, as far as existing files are concerned.
//!
//! ```text
//! layout   one extent per file: no mapping blocks are read; the log lies in front of the files (really mid-disk)
//! write    the time stamps change the inode in memory, at most once a second's worth of ticks
//! fsync    write the file's pages, wait, force the log if the inode changed (group commit: callers during a force
//!          waits for the next), else empty the drive's cache only
//! extend   a write that begins behind the end of the file zeroes the gap: the rest of the last page; in 6.12-rc it
//!          writes the dirty pages of the gap first, and waits (`flush_gap`)
//! force    log buffers -> flush -> last buffer with FUA
//! ```
//! Source: 4.4 and 6.1, `fs/xfs/xfs_file.c`, `fs/xfs/xfs_log.c`, through the block-layer specification 4.3; the gap
//! from the commit's and its successor's messages (c5c810b94cfd, 7d9b474ee4cc). Known
//! deviations: the journal of this simulator (descriptor, metadata, commit block) forces the log; allocation groups are
//! missing: `start_mb` puts the file system where the group would be.

use super::{Build, JOURNAL_AT, Rules, STARTS_EMPTY};
use crate::origin::{Entry, OptionSpec, Options, Origin};

const fn options(max_folio_order: i64) -> [OptionSpec; 8] {
    [
        OptionSpec::number("start_mb", 1, (0, 1 << 24), "where the file system (or the file's group) begins on disk"),
        OptionSpec::number("journal_mb", 64, (1, 1 << 12), "size of the log"),
        JOURNAL_AT,
        OptionSpec::number("gap_mb", 0, (0, 1 << 24), "distance of the files from the log"),
        OptionSpec::switch("barriers", true, "empty the drive's cache around a log force"),
        OptionSpec::number("max_folio_order", max_folio_order, (0, 9), "largest folio; 0: single pages"),
        STARTS_EMPTY,
        OptionSpec::switch(
            "flush_gap",
            false,
            "a write behind the end first writes out the dirty pages between (c5c810b94cfd)",
        ),
    ]
}

const ORIGIN: &[Origin] = &[Origin {
    kernels: "4.4 .. 6.18",
    file: "fs/xfs/xfs_file.c, fs/xfs/xfs_log.c",
    function: "xfs_file_fsync, xfs_log_force_lsn",
    notes: "files that exist, in one extent each",
}];

const CONFORMANCE: &str = "no recorded traces yet; held by the tests of the simulator";

/// Until 5.17.
pub(super) const ENTRY: Entry<Build> = Entry {
    name: "xfs",
    summary: "XFS: extents, log force only if the inode changed (simplified)",
    origin: ORIGIN,
    options: &options(0),
    conformance: CONFORMANCE,
    build,
};

/// From 5.18: large folios.
pub(super) const ENTRY_5_18: Entry<Build> = Entry {
    name: "xfs-5.18",
    summary: "the same with large folios in the page cache",
    origin: ORIGIN,
    options: &options(9),
    conformance: CONFORMANCE,
    build,
};

fn build(options: &Options) -> Rules {
    Rules {
        max_folio_order: options.unsigned("max_folio_order") as u8,
        shares_direct_writes: true,
        starts_empty: options.is_on(STARTS_EMPTY.name),
        flushes_gap: options.is_on("flush_gap"),
        ..Rules::placed(options)
    }
}
