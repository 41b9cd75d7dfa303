//! ext4 with ordered data, as far as existing files are concerned.
//!
//! ```text
//! layout   extents inside the inode: no mapping blocks are read; journal at its place
//! write    overwritten data is not ordered (only newly allocated blocks are); the inode changes with every tick
//! read     the access time practically never changes (relatime); ext3 under this code adds a window's pages to the
//!          cache as it looks up their blocks: a reader that sleeps for an indirect block leaves a hole behind it
//! fsync    until 3.10, with the inode's lock: write the file's pages, wait, commit if the inode is dirty, else empty
//!          the drive's cache. Since then without the lock: tag the pages that are dirty now; look for tagged ones, at
//!          most 15 at a time and no further once there are fewer, and submit them; until 5.7 start a transaction,
//!          look once more behind the last one, where others may have tagged theirs meanwhile, and stop it; go once
//!          through the pages that are being written, in the same groups, and wait for each; have the transaction
//!          committed that changed the inode last; empty the drive's cache if that commit did not do so after the wait
//! commit   lock -> descriptor, metadata copies -> flush -> commit block with FUA
//! ```
//! Source: 4.4 and 6.1, `fs/ext4/fsync.c`, `fs/jbd2/commit.c`, through the block-layer specification 4.2 and 4.3; the
//! two looks from 6b8ed62008a4 (`fs/ext4/inode.c`) as posted, `92e6222dfb85` for the lock. Known
//! deviations: delayed allocation is not modelled (files exist and are laid out in one piece), nor is the difference
//! between fsync and fdatasync, nor log checkpointing. Files of ext3 lie in chunks of 8 MiB, while this code begins
//! them with pieces that double from 64 KiB to 4 MiB, each where one is free (seen under 6.18): which rhythm three
//! readers fall into is another there, though over all orders of starting they take as long.

use super::{BlockMap, Build, FsyncRule, JOURNAL_AT, MAPPING_CACHED, Rules};
use crate::origin::{Entry, OptionSpec, Options, Origin};

/// Key of [`Rules::journal_passes`].
const JOURNAL_PASSES: &str = "journal_passes";

/// Key of [`Rules::nowait`].
const NOWAIT: &str = "nowait";

/// Tunables; the largest folio order differs.
const fn options(max_folio_order: i64) -> [OptionSpec; 10] {
    [
        OptionSpec::number("start_mb", 1, (0, 1 << 24), "where the file system begins on the disk"),
        OptionSpec::number("journal_mb", 128, (1, 1 << 12), "size of the journal"),
        JOURNAL_AT,
        OptionSpec::number("gap_mb", 0, (0, 1 << 24), "distance of the files from the journal"),
        OptionSpec::switch("barriers", true, "empty the drive's cache around the commit block"),
        OptionSpec::number("commit_interval_s", 5, (1, 3600), "time between commits without a request"),
        OptionSpec::number("inodes_per_block", 16, (1, 64), "inodes of 256 bytes in a block"),
        OptionSpec::number(
            "max_folio_order",
            max_folio_order,
            (0, 9),
            "largest folio of the page cache; 0: single pages",
        ),
        OptionSpec::switch(
            JOURNAL_PASSES,
            false,
            "the journal's writes pass the writeback throttle (6a3afb6ac6, 6.7 and later)",
        ),
        OptionSpec::switch(
            NOWAIT,
            true,
            "open files say that they can be asked without waiting (FMODE_NOWAIT); off: as on ext2, tmpfs, NFS",
        ),
    ]
}

const ORIGIN: &[Origin] = &[Origin {
    kernels: "4.4 .. 6.18",
    file: "fs/ext4/fsync.c, fs/jbd2/commit.c",
    function: "ext4_sync_file, jbd2_journal_commit_transaction",
    notes: "files that exist, in one extent each",
}];

/// Tunables of ext3 under this code.
const OPTIONS_EXT3: &[OptionSpec] = &[
    OptionSpec::number("start_mb", 1, (0, 1 << 24), "where the file system begins on the disk"),
    OptionSpec::number("journal_mb", 128, (1, 1 << 12), "size of the journal"),
    JOURNAL_AT,
    OptionSpec::number("gap_mb", 0, (0, 1 << 24), "distance of the files from the journal"),
    OptionSpec::switch("barriers", true, "empty the drive's cache around the commit block"),
    OptionSpec::number("commit_interval_s", 5, (1, 3600), "time between commits without a request"),
    OptionSpec::number("inodes_per_block", 16, (1, 64), "inodes of 256 bytes in a block"),
    OptionSpec::choice(
        "indirect",
        &["chunk-end", "in-line"],
        0,
        "where indirect blocks lie: behind each 8 MiB chunk of a growing file, or in line with the data",
    ),
    MAPPING_CACHED,
];

/// Blocks of a chunk that a growing file is given at a time.
const CHUNK: u64 = 2048;

const CONFORMANCE: &str = "no recorded traces yet; held by the tests of the simulator";

/// ext3 file systems from 4.3 on.
pub(super) const ENTRY_EXT3: Entry<Build> = Entry {
    name: "ext3-4.3",
    summary: "an ext3 file system served by ext4's code (4.3 and later): indirect blocks behind each 8 MiB",
    origin: &[Origin {
        kernels: "4.3 .. 6.18",
        file: "fs/ext4/indirect.c, fs/ext4/mballoc.c",
        function: "ext4_ind_map_blocks, ext4_mb_normalize_request",
        notes: "placement from the allocator's rules, not from a disk image",
    }],
    options: OPTIONS_EXT3,
    conformance: CONFORMANCE,
    build: |options| Rules {
        block_map: match options.get("indirect") {
            0 => BlockMap::IndirectBehind(CHUNK),
            _ => BlockMap::Indirect,
        },
        add_as_mapped: true,
        mapping_cached: options.is_on("mapping_cached"),
        groups: false,
        ..rules(options, 0)
    },
};

/// Until 3.10.
pub(super) const ENTRY_2_6_38: Entry<Build> = Entry {
    name: "ext4-2.6.38",
    summary: "the same as ext4; fsync holds the inode's lock (until 3.10)",
    origin: ORIGIN,
    options: &options(0),
    conformance: CONFORMANCE,
    build: |options| Rules { fsync: FsyncRule::CommitIfDirty, ..build(options) },
};

/// From 3.11 to 5.7.
pub(super) const ENTRY_3_11: Entry<Build> = Entry {
    name: "ext4-3.11",
    summary: "the same as ext4; fsync starts a transaction and looks twice for pages to write (until 5.7)",
    origin: ORIGIN,
    options: &options(0),
    conformance: CONFORMANCE,
    build: |options| Rules { second_look: true, ..build(options) },
};

/// From 5.8 to 6.15.
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
    rules(options, options.unsigned("max_folio_order") as u8)
}

fn rules(options: &Options, max_folio_order: u8) -> Rules {
    // ext3 under this code does not have all switches.
    let given = |name: &str| options.iter().find(|(spec, _)| spec.name == name).map(|(_, value)| value != 0);
    Rules {
        groups: options.unsigned(JOURNAL_AT.name) > 0,
        fsync: FsyncRule::CommitOfInode,
        inodes_per_block: options.unsigned("inodes_per_block") as u32,
        commit_interval_s: options.unsigned("commit_interval_s"),
        max_folio_order,
        journal_passes: given(JOURNAL_PASSES).unwrap_or(false),
        nowait: given(NOWAIT).unwrap_or(true),
        ..Rules::placed(options)
    }
}
