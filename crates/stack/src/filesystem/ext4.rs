//! ext4 with ordered data, as far as existing files are concerned.
//!
//! ```text
//! layout   extents inside the inode: no mapping blocks are read; journal before the files
//! write    overwritten data is not ordered (only newly allocated blocks are); the inode changes with every tick
//! read     the access time practically never changes (relatime)
//! fsync    write the file's pages, wait, commit if the inode is dirty, else empty the drive's cache
//! commit   lock -> descriptor, metadata copies -> flush -> commit block with FUA
//! ```
//! Source: 4.4 and 6.1, `fs/ext4/fsync.c`, `fs/jbd2/commit.c`, through the block-layer specification 4.2 and 4.3. Known
//! deviations: delayed allocation is not modelled (files exist and are laid out in one piece), nor is the difference
//! between fsync and fdatasync, nor log checkpointing.

use super::{Atime, BlockMap, Build, FsyncRule, GroupCommit, Ordered, Rules};
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::units::Sector;

/// Tunables; the largest folio order differs.
const fn options(max_folio_order: i64) -> [OptionSpec; 7] {
    [
        OptionSpec::number("start_mb", 1, (0, 1 << 24), "where the file system begins on the disk"),
        OptionSpec::number("journal_mb", 128, (1, 1 << 12), "size of the journal, at the start of the file system"),
        OptionSpec::number("gap_mb", 0, (0, 1 << 24), "distance of the files from the journal"),
        OptionSpec::switch("barriers", true, "empty the drive's cache around the commit block"),
        OptionSpec::number("commit_interval_s", 5, (1, 3600), "time between commits nobody asks for"),
        OptionSpec::number("inodes_per_block", 16, (1, 64), "inodes of 256 bytes in a block"),
        OptionSpec::number(
            "max_folio_order",
            max_folio_order,
            (0, 9),
            "largest folio of the page cache; 0: single pages",
        ),
    ]
}

const ORIGIN: &[Origin] = &[Origin {
    kernels: "4.4 .. 6.18",
    file: "fs/ext4/fsync.c, fs/jbd2/commit.c",
    function: "ext4_sync_file, jbd2_journal_commit_transaction",
    notes: "files that exist, in one extent each",
}];

const CONFORMANCE: &str = "no recorded traces yet; held by the tests of the simulator";

/// Until 6.15.
pub(super) const ENTRY: Entry<Build> = Entry {
    name: "ext4",
    summary: "ext4 data=ordered: extents, barriers, only new blocks ordered (simplified)",
    origin: ORIGIN,
    options: &options(0),
    conformance: CONFORMANCE,
    build,
};

/// From 6.16: large folios.
pub(super) const ENTRY_6_16: Entry<Build> = Entry {
    name: "ext4-6.16",
    summary: "the same with large folios in the page cache",
    origin: ORIGIN,
    options: &options(9),
    conformance: CONFORMANCE,
    build,
};

fn build(options: &Options) -> Rules {
    Rules {
        start: Sector(options.unsigned("start_mb") * 2048),
        journal_blocks: options.unsigned("journal_mb") * 256,
        gap_blocks: options.unsigned("gap_mb") * 256,
        block_map: BlockMap::Extents,
        ordered: Ordered::Allocated,
        fsync: FsyncRule::CommitIfDirty,
        group_commit: GroupCommit::Never,
        atime: Atime::Rarely,
        time_in_seconds: false,
        barriers: options.is_on("barriers"),
        inodes_per_block: options.unsigned("inodes_per_block") as u32,
        commit_interval_s: options.unsigned("commit_interval_s"),
        page_by_page: false,
        max_folio_order: options.unsigned("max_folio_order") as u8,
    }
}
