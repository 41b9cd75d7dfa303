//! ext3 with ordered data, as in 2.4 and in 2.6.
//!
//! ```text
//! layout   12 direct blocks, indirect blocks in line with the data, journal at its place
//! write    each page runs in a handle; the page becomes ordered data of the running transaction; the first write in a
//!          new second changes the inode (a handle on its table block)
//! read     in a new second, the same for the access time
//! fsync    2.4: always a commit, which writes the data; 2.6: write the file's pages, commit if the inode is dirty
//! commit   lock (wait for handles) -> ordered data, 64 at a time -> descriptor, metadata copies -> commit block
//! forced   2.4 yields, 2.6 sleeps a tick, until no new handle joined; the commit asked for may carry many askers
//! ```
//! Source: 2.4.27 and 2.6.6-rc3, `fs/ext3/{inode,fsync}.c`, `fs/jbd/{transaction,commit}.c`, through the block-layer
//! specification 4.2 and 4.3 and docs/studies/incident-2004.md. Known deviations: no bitmaps (files exist), no
//! checkpointing for lack of log space, no quota, one block group.

use super::{Atime, BlockMap, Build, FsyncRule, GroupCommit, JOURNAL_AT, MAPPING_CACHED, Ordered, Rules};
use crate::origin::{Entry, OptionSpec, Options, Origin};

/// Tunables; the defaults that differ: group commit, fsync rule.
const fn options(group_commit: usize, fsync: usize) -> [OptionSpec; 11] {
    [
        OptionSpec::number("start_mb", 64, (0, 1 << 24), "where the file system begins on the disk"),
        OptionSpec::number("journal_mb", 32, (1, 1 << 12), "size of the journal"),
        JOURNAL_AT,
        OptionSpec::number("gap_mb", 0, (0, 1 << 24), "distance of the files from the journal"),
        OptionSpec::choice(
            "group_commit",
            &["yield", "tick", "never"],
            group_commit,
            "how forced commits wait for others",
        ),
        OptionSpec::choice("fsync", &["always-commit", "commit-if-dirty"], fsync, "effect of fsync on a clean file"),
        OptionSpec::switch("atime", true, "reads change the inode once a second"),
        OptionSpec::switch(
            "barriers",
            false,
            "empty the drive's cache around the commit block (off by default in 2004)",
        ),
        OptionSpec::number("commit_interval_s", 5, (1, 3600), "time between commits without a request"),
        OptionSpec::number("inodes_per_block", 32, (1, 64), "inodes of 128 bytes in a block"),
        MAPPING_CACHED,
    ]
}

const CONFORMANCE: &str = "held by the tests of the simulator against the study's counts of commits and mapping reads";

/// 2.4.
pub(super) const ENTRY_2_4: Entry<Build> = Entry {
    name: "ext3-2.4",
    summary: "ext3 data=ordered of 2.4: every fsync forces a commit",
    origin: &[Origin {
        kernels: "2.4.20 .. 2.4.27",
        file: "fs/ext3/fsync.c, fs/jbd/commit.c",
        function: "ext3_sync_file, journal_commit_transaction",
        notes: "indirect blocks simplified to one layout",
    }],
    options: &options(0, 0),
    conformance: CONFORMANCE,
    build: |options| build(options, true),
};

/// 2.6.
pub(super) const ENTRY_2_6: Entry<Build> = Entry {
    name: "ext3-2.6",
    summary: "ext3 data=ordered of 2.6: fsync commits if the inode is dirty, joint commits wait a tick",
    origin: &[Origin {
        kernels: "2.6.0 .. 2.6.38",
        file: "fs/ext3/fsync.c, fs/jbd/commit.c",
        function: "ext3_sync_file, journal_commit_transaction",
        notes: "read in 2.6.6-rc3; later kernels of this range wait differently for others to join",
    }],
    options: &options(1, 1),
    conformance: CONFORMANCE,
    build: |options| build(options, false),
};

fn build(options: &Options, page_by_page: bool) -> Rules {
    Rules {
        block_map: BlockMap::Indirect,
        ordered: Ordered::Written,
        fsync: if options.get("fsync") == 0 { FsyncRule::AlwaysCommit } else { FsyncRule::CommitIfDirty },
        group_commit: match options.get("group_commit") {
            0 => GroupCommit::Yield,
            1 => GroupCommit::Tick,
            _ => GroupCommit::Never,
        },
        atime: if options.is_on("atime") { Atime::EverySecond } else { Atime::Rarely },
        time_in_seconds: true,
        journal_sync: false,
        inodes_per_block: options.unsigned("inodes_per_block") as u32,
        commit_interval_s: options.unsigned("commit_interval_s"),
        page_by_page,
        mapping_cached: options.is_on("mapping_cached"),
        ..Rules::placed(options)
    }
}
