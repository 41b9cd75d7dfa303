//! File systems: where the blocks of a file lie, and what makes them durable.
//!
//! A file system is a value of rules ([`Rules`]); the simulator carries them out. Files are laid out one after the
//! other as programs leave them on a fresh file system.

mod ext3;
mod ext4;
mod fuse;
mod xfs;

use crate::origin::{Entry, OptionSpec, Options};
use crate::units::{PAGE_SECTORS, PageIndex, Sector};

/// How a file's pages are found on disk.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum BlockMap {
    /// Direct blocks, then indirect blocks that lie in line with the data they map.
    Indirect,
    /// The same, but the file is allocated in chunks of this number of blocks, and the indirect blocks that become
    /// necessary inside a chunk lie behind its end (a growing file under the allocator of ext4).
    IndirectBehind(u64),
    /// Extents that fit into the inode.
    Extents,
}

/// Which data a commit writes before its own blocks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Ordered {
    /// Everything overwritten or newly written since the last commit.
    Written,
    /// Only newly allocated blocks: nothing, for files that exist.
    Allocated,
}

/// Effect of `fsync`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FsyncRule {
    /// Forces a commit, also for a clean file; data is written by the commit (2.4).
    AlwaysCommit,
    /// Writes the file's dirty pages, then commits if the inode is dirty, all the while with its lock (2.6 and later).
    CommitIfDirty,
    /// Writes the pages that are dirty when it begins, waits, and has the transaction committed that changed the inode
    /// last, without the inode's lock (ext4 since 3.11). The drive's cache is emptied if that commit did not, or not
    /// after the pages.
    CommitOfInode,
}

/// How a task that forces a commit waits for others to join.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum GroupCommit {
    /// Yields the CPU until no other task joined (2.4).
    Yield,
    /// Sleeps a tick at a time until no other task joined (2.6).
    Tick,
    /// Does not wait.
    Never,
}

/// When reading changes the inode.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Atime {
    /// Once a second (the time stamp's granularity).
    EverySecond,
    /// Practically never (`relatime`, `noatime`).
    Rarely,
}

/// The rules of one file system of one kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// First sector of the file system.
    pub start: Sector,
    /// Blocks of the journal.
    pub journal_blocks: u64,
    /// Its first block, counted from `start`; wherever it is, the files begin behind room for one at `start`.
    pub journal_at: u64,
    /// Blocks between the end of the journal and the first file.
    pub gap_blocks: u64,
    /// Files lie in block groups as mke2fs makes them, rather than one behind the other.
    pub groups: bool,
    /// How files are mapped.
    pub block_map: BlockMap,
    /// Data that commits write.
    pub ordered: Ordered,
    /// Effect of fsync.
    pub fsync: FsyncRule,
    /// How forced commits are shared.
    pub group_commit: GroupCommit,
    /// When reads dirty the inode.
    pub atime: Atime,
    /// Inode times change at most once a second rather than with every tick.
    pub time_in_seconds: bool,
    /// The drive's cache is emptied before the commit block, and the commit block is forced to the medium.
    pub barriers: bool,
    /// The journal's own writes are marked synchronous.
    pub journal_sync: bool,
    /// Inodes in a block of the inode table.
    pub inodes_per_block: u32,
    /// Time between commits without a request, in seconds.
    pub commit_interval_s: u64,
    /// Pages are submitted one by one (2.4) rather than as multi-page bios.
    pub page_by_page: bool,
    /// The pages of a read window enter the cache as their blocks are looked up: a task that sleeps for a mapping block
    /// leaves a hole behind the page it looks up, where another reader may begin a window of its own. Otherwise they
    /// enter all at once.
    pub add_as_mapped: bool,
    /// Largest folio order of a file's page cache; 0 without large folios.
    pub max_folio_order: u8,
    /// Direct writes to one file go side by side, in every kernel.
    pub shares_direct_writes: bool,
    /// Files have no data at the beginning: a write behind the end so far has the gap zeroed.
    pub starts_empty: bool,
    /// The dirty pages of the gap are written out and waited for first (`iomap_zero_range` of 6.12-rc).
    pub flushes_gap: bool,
    /// An fsync that has handed over its pages starts a transaction and looks once more for pages behind them (ext4
    /// until 5.7).
    pub second_look: bool,
    /// The journal's writes pass the writeback throttle (jbd2 since 6.7).
    pub journal_passes: bool,
    /// The blocks that map the files are in memory at the start, for any job.
    pub mapping_cached: bool,
    /// Open files say that they can be asked without waiting, and reads that miss go on by themselves (`FMODE_NOWAIT`
    /// and `FMODE_BUF_RASYNC`).
    pub nowait: bool,
    /// They have a poll operation, which says that they are ready.
    pub polls: bool,
    /// A direct call waits for its I/O where it is made, asynchronous or not.
    pub direct_waits: bool,
}

impl Rules {
    /// Extents and a journal, and nothing special: a file system states what differs.
    const PLAIN: Rules = Rules {
        start: Sector(2048),
        journal_blocks: 256,
        journal_at: 0,
        gap_blocks: 0,
        groups: false,
        block_map: BlockMap::Extents,
        ordered: Ordered::Allocated,
        fsync: FsyncRule::CommitIfDirty,
        group_commit: GroupCommit::Never,
        atime: Atime::Rarely,
        time_in_seconds: false,
        barriers: false,
        journal_sync: true,
        inodes_per_block: 8,
        commit_interval_s: 30,
        page_by_page: false,
        mapping_cached: false,
        add_as_mapped: false,
        max_folio_order: 0,
        shares_direct_writes: false,
        starts_empty: false,
        flushes_gap: false,
        second_look: false,
        journal_passes: false,
        nowait: true,
        polls: false,
        direct_waits: false,
    };

    /// [`Rules::PLAIN`] where the options place it and its journal.
    fn placed(options: &Options) -> Rules {
        Rules {
            start: Sector(options.unsigned("start_mb") * 2048),
            journal_blocks: options.unsigned("journal_mb") * 256,
            journal_at: options.unsigned(JOURNAL_AT.name) * 256,
            gap_blocks: options.unsigned("gap_mb") * 256,
            barriers: options.is_on("barriers"),
            ..Rules::PLAIN
        }
    }
}

/// Key of [`Rules::starts_empty`].
const STARTS_EMPTY: OptionSpec =
    OptionSpec::switch("starts_empty", false, "files are empty at first, and grow as they are written");

/// Distance of the journal from the start of the file system: tools that make file systems put it into the middle.
pub const JOURNAL_AT: OptionSpec =
    OptionSpec::number("journal_at_mb", 0, (0, 1 << 24), "distance of the journal from the start of the file system");

/// The switch for [`Rules::mapping_cached`]. Files that were written just before a run and whose pages alone were
/// dropped are like that.
pub const MAPPING_CACHED: OptionSpec =
    OptionSpec::switch("mapping_cached", false, "the blocks that map the files are in memory at the start");

/// Direct blocks of an inode.
const DIRECT: u64 = 12;
/// Pointers in an indirect block.
const POINTERS: u64 = 1024;
/// Blocks reserved for the inode tables of the files' directory.
const INODE_TABLE_BLOCKS: u64 = 512;

impl Rules {
    /// Blocks that a file of `nr_pages` pages takes on disk, mapping blocks included.
    pub fn file_blocks(&self, nr_pages: u64) -> u64 {
        let Some(last) = nr_pages.checked_sub(1) else { return 0 };
        match self.block_map {
            BlockMap::Extents => nr_pages,
            BlockMap::Indirect => self.position(PageIndex(last)) + 1,
            BlockMap::IndirectBehind(chunk) => {
                let data = self.position(PageIndex(last)) + 1;
                // The mapping blocks of the last chunk lie behind where it would end if it were full.
                match self.nr_mapping_blocks(nr_pages) {
                    0 => data,
                    nr => data.max(self.mapping_position(nr - 1) + 1).max((last / chunk + 1) * chunk),
                }
            }
        }
    }

    /// Place of a page among the blocks of its file.
    fn position(&self, page: PageIndex) -> u64 {
        match self.block_map {
            BlockMap::Extents => page.0,
            BlockMap::Indirect => match page.0 {
                p if p < DIRECT => p,
                p if p < DIRECT + POINTERS => p + 1,
                // The double indirect block, and one indirect block before each run of 1024.
                p => p + 3 + (p - DIRECT - POINTERS) / POINTERS,
            },
            BlockMap::IndirectBehind(chunk) => page.0 + mapping_blocks_before(page.0 / chunk * chunk),
        }
    }

    /// The mapping blocks needed to find a page, in the order they are read: numbers among the mapping blocks of the
    /// file (0 the first indirect block, 1 the double indirect block, 2.. those below it).
    pub fn mapping_of(&self, page: PageIndex) -> [Option<u32>; 2] {
        match self.block_map {
            BlockMap::Extents => [None, None],
            _ if page.0 < DIRECT => [None, None],
            _ if page.0 < DIRECT + POINTERS => [Some(0), None],
            _ => [Some(1), Some(2 + ((page.0 - DIRECT - POINTERS) / POINTERS) as u32)],
        }
    }

    /// Place of a mapping block among the blocks of its file.
    fn mapping_position(&self, block: u32) -> u64 {
        if let BlockMap::IndirectBehind(chunk) = self.block_map {
            let first_page = first_page_of(block);
            let end = (first_page / chunk + 1) * chunk;
            // Behind the chunk's data, in the order in which they became necessary.
            return end + u64::from(block);
        }
        match block {
            0 => DIRECT,
            1 => DIRECT + POINTERS + 1,
            deep => DIRECT + POINTERS + 2 + u64::from(deep - 2) * (POINTERS + 1),
        }
    }

    /// Mapping blocks of a file of `nr_pages` pages.
    pub fn nr_mapping_blocks(&self, nr_pages: u64) -> u32 {
        match self.block_map {
            BlockMap::Extents => 0,
            BlockMap::Indirect | BlockMap::IndirectBehind(_) => mapping_blocks_before(nr_pages) as u32,
        }
    }

    /// Pages from `page` on that are mapped by the same block as it: an I/O ends there.
    pub fn pages_to_boundary(&self, page: PageIndex) -> u64 {
        match self.block_map {
            BlockMap::Extents => u64::MAX,
            _ if page.0 < DIRECT => DIRECT - page.0,
            _ => POINTERS - (page.0 - DIRECT) % POINTERS,
        }
    }

    /// The block behind the journal's room at the start, where files begin that lie one behind the other.
    pub fn files_start(&self) -> u64 {
        self.journal_blocks + INODE_TABLE_BLOCKS + self.gap_blocks
    }

    /// Where a block lies, counted from the first of the file system.
    pub fn sector(&self, block: u64) -> Sector {
        self.start.plus(block * PAGE_SECTORS)
    }

    /// Where a page lies of a file that begins `base` blocks behind the first one.
    pub fn sector_of(&self, base: u64, page: PageIndex) -> Sector {
        self.sector(self.files_start() + base + self.position(page))
    }

    /// Where a mapping block of it lies.
    pub fn mapping_sector(&self, base: u64, block: u32) -> Sector {
        self.sector(self.files_start() + base + self.mapping_position(block))
    }

    /// Where a block of the journal lies.
    pub fn journal_sector(&self, block: u64) -> Sector {
        self.sector(self.journal_at + block % self.journal_blocks)
    }

    /// The block of the inode table that holds a file's inode.
    pub fn inode_block(&self, file: u32) -> u32 {
        file / self.inodes_per_block
    }

    /// Where a block of the inode table lies.
    pub fn inode_sector(&self, block: u32) -> Sector {
        self.sector(self.journal_blocks + u64::from(block) % INODE_TABLE_BLOCKS)
    }

    /// The sector after the last file, if all files together take `nr_blocks`.
    pub fn end(&self, nr_blocks: u64) -> Sector {
        self.sector(self.files_start() + nr_blocks)
    }
}

/// Blocks of a block group, of its inode table, and of a copy of the superblock with room for descriptors; groups whose
/// tables lie together in the first of them (mke2fs 1.47, file systems of 2 GB and more).
pub const GROUP: u64 = 32_768;
const GROUP_TABLE: u64 = 512;
const GROUP_COPY: u64 = 513;
pub const FLEXIBLE: u64 = 16;
/// Blocks of the largest chunk that the allocator keeps count of.
const LARGEST_CHUNK: u64 = GROUP / 4;
/// Files that no group holds begin in each group at a multiple of these blocks.
const PIECE: u64 = 2048;

/// Whether a block group begins with a copy of the superblock (`sparse_super`).
pub fn has_copy(group: u64) -> bool {
    let is_power = |base: u64| (0..).map_while(|exponent| base.checked_pow(exponent)).any(|power| power == group);
    group == 0 || [3, 5, 7].into_iter().any(is_power)
}

/// Free blocks of a file system made of block groups: where ext4's allocator (`fs/ext4/mballoc.c`, measured on 6.18)
/// puts files that are allocated in one call. A power of two of blocks gets an aligned chunk, out of the smallest free
/// one of the group; other numbers get the first room that holds them, or whole groups. Known deviations: the allocator
/// sometimes puts a number that is not a power of two into the group of the file before.
pub struct Groups {
    /// First block and end, of one group each, in order.
    free: Vec<(u64, u64)>,
    next: u64,
    /// Where the search for chunks and whole groups begins: data go to the group behind that with the tables, and on
    /// from where the last went.
    goal: u64,
    journal: (u64, u64),
}

impl Groups {
    /// Groups without files.
    pub fn new(rules: &Rules) -> Groups {
        let journal = (rules.journal_at, rules.journal_at + rules.journal_blocks);
        Groups { free: Vec::new(), next: 0, goal: 1, journal }
    }

    /// Opens groups until this one is open.
    fn open(&mut self, group: u64) {
        while self.next <= group {
            let (begin, end) = (self.next * GROUP, (self.next + 1) * GROUP);
            let tables = if self.next.is_multiple_of(FLEXIBLE) { FLEXIBLE * (GROUP_TABLE + 2) } else { 0 };
            let begin = begin + tables + if has_copy(self.next) { GROUP_COPY } else { 0 };
            let (from, to) = self.journal;
            let pieces = [(begin, end.min(from)), (begin.max(to), end)];
            self.free.extend(pieces.into_iter().filter(|(begin, end)| begin < end));
            self.next += 1;
        }
    }

    fn take(&mut self, at: u64, blocks: u64) {
        let nr = self.free.partition_point(|(_, end)| *end <= at);
        let (begin, end) = self.free[nr];
        let rest = [(begin, at), (at + blocks, end)].into_iter().filter(|(begin, end)| begin < end);
        self.free.splice(nr..=nr, rest);
    }

    /// Room for `blocks` blocks. First block and number of each piece.
    pub fn place(&mut self, blocks: u64) -> Vec<(u64, u64)> {
        if blocks == 0 {
            return Vec::new();
        }
        if blocks <= LARGEST_CHUNK && blocks.is_power_of_two() {
            return vec![(self.chunk(blocks), blocks)];
        }
        if blocks > GROUP - GROUP_COPY {
            return self.pieces(blocks);
        }
        let mut nr = 0;
        loop {
            match self.free.get(nr) {
                None => self.open(self.next),
                Some((begin, end)) if end - begin >= blocks => {
                    let at = *begin;
                    self.take(at, blocks);
                    return vec![(at, blocks)];
                }
                Some(_) => nr += 1,
            }
        }
    }

    /// An aligned chunk of the first group that has one.
    fn chunk(&mut self, blocks: u64) -> u64 {
        for group in self.goal.. {
            self.open(group);
            let here = self.free.iter().filter(|(begin, _)| begin / GROUP == group);
            let chunks = here.flat_map(|(begin, end)| chunks(*begin, *end)).filter(|(_, size)| *size >= blocks);
            if let Some((at, _)) = chunks.min_by_key(|(at, size)| (*size, *at)) {
                self.take(at, blocks);
                self.goal = group;
                return at;
            }
        }
        unreachable!("each group behind the last has a free chunk");
    }

    /// All that is free from the goal on.
    fn pieces(&mut self, blocks: u64) -> Vec<(u64, u64)> {
        let mut pieces = Vec::new();
        let (mut left, mut group) = (blocks, self.goal);
        while left > 0 {
            self.open(group);
            let here: Vec<_> = self.free.iter().filter(|(begin, _)| begin / GROUP == group).copied().collect();
            for (begin, end) in here {
                let at = begin.next_multiple_of(PIECE);
                let taken = end.saturating_sub(at).min(left);
                if taken > 0 {
                    self.take(at, taken);
                    pieces.push((at, taken));
                    left -= taken;
                }
            }
            self.goal = group;
            group += 1;
        }
        pieces
    }
}

/// The aligned chunks of a free piece, and their sizes.
fn chunks(begin: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let chunk = move |at: u64| {
        let fits = |size: &u64| at.is_multiple_of(*size) && at + size <= end;
        (0..=LARGEST_CHUNK.ilog2()).rev().map(|order| 1 << order).find(fits).map(|size: u64| (at, size))
    };
    std::iter::successors(chunk(begin), move |(at, size)| chunk(at + size))
}

/// Mapping blocks that the pages before `page` make necessary.
fn mapping_blocks_before(page: u64) -> u64 {
    match page {
        p if p <= DIRECT => 0,
        p if p <= DIRECT + POINTERS => 1,
        p => 2 + (p - DIRECT - POINTERS).div_ceil(POINTERS),
    }
}

/// The page that makes a mapping block necessary.
fn first_page_of(block: u32) -> u64 {
    match block {
        0 => DIRECT,
        1 | 2 => DIRECT + POINTERS,
        deep => DIRECT + POINTERS + u64::from(deep - 2) * POINTERS,
    }
}

/// Makes the rules.
pub type Build = fn(&Options) -> Rules;

/// Every file system.
pub const FILESYSTEMS: &[&Entry<Build>] = &[
    &ext3::ENTRY_2_4,
    &ext3::ENTRY_2_6,
    &ext4::ENTRY_EXT3,
    &ext4::ENTRY_2_6_38,
    &ext4::ENTRY_3_11,
    &ext4::ENTRY,
    &ext4::ENTRY_6_16,
    &xfs::ENTRY,
    &xfs::ENTRY_5_18,
    &fuse::ENTRY,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// As `filefrag -v` has files that are allocated at once in a fresh file system of 4 GB under Linux 6.18.
    #[test]
    fn files_lie_in_their_groups_as_under_ext4() {
        let rules = Rules { journal_at: 17 * GROUP, journal_blocks: 16_384, groups: true, ..ext3() };
        // Files, and their pieces.
        type Case = (&'static [u64], &'static [(u64, u64)]);
        let table: &[Case] = &[
            (&[16_384; 4], &[(8_737, 16_384), (33_281, 16_384), (65_536, 16_384), (81_920, 16_384)]),
            (&[8192, 4096, 2048, 1024], &[(40_960, 8192), (36_864, 4096), (34_816, 2048), (33_792, 1024)]),
            (
                &[8192, 8192, 8192, 8192, 8192, 8192, 8192, 4096, 4096, 512],
                &[
                    (40_960, 8192),
                    (49_152, 8192),
                    (57_344, 8192),
                    (65_536, 8192),
                    (73_728, 8192),
                    (81_920, 8192),
                    (90_112, 8192),
                    (102_400, 4096),
                    (106_496, 4096),
                    (99_328, 512),
                ],
            ),
            (&[256], &[(33_536, 256)]),
            (&[25_600], &[(33_281, 25_600)]),
            (
                &[32_768, 32_768, 256],
                &[(34_816, 30_720), (65_536, 2048), (67_584, 30_720), (100_352, 2048), (99_072, 256)],
            ),
            (&[65_536], &[(34_816, 30_720), (65_536, 32_768), (100_352, 2048)]),
            (
                &[131_072, 8192],
                &[
                    (34_816, 30_720),
                    (65_536, 32_768),
                    (100_352, 30_720),
                    (131_072, 32_768),
                    (165_888, 4096),
                    (172_032, 8192),
                ],
            ),
        ];
        for (files, placed) in table {
            let mut groups = Groups::new(&rules);
            let pieces: Vec<_> = files.iter().flat_map(|blocks| groups.place(*blocks)).collect();
            assert_eq!(pieces, *placed, "{files:?}");
        }
        let large = Groups::new(&rules).place(600_000);
        assert_eq!(large.iter().map(|piece| piece.1).sum::<u64>(), 600_000);
        let ours = 17 * GROUP..17 * GROUP + 16_384;
        assert!(large.iter().all(|(begin, blocks)| begin + blocks <= ours.start || *begin >= ours.end), "{large:?}");
    }

    fn ext3() -> Rules {
        (ext3::ENTRY_2_6.build)(&ext3::ENTRY_2_6.defaults())
    }

    #[test]
    fn a_file_of_24_mib_has_7_mapping_blocks_in_line_with_its_data() {
        let rules = ext3();
        assert_eq!(rules.nr_mapping_blocks(6144), 7);
        assert_eq!(rules.file_blocks(6144), 6144 + 7);
        let mut places: Vec<u64> = (0..6144).map(|page| rules.position(PageIndex(page))).collect();
        places.extend((0..7).map(|block| rules.mapping_position(block)));
        places.sort_unstable();
        assert_eq!(places, (0..6151).collect::<Vec<u64>>(), "every block is used exactly once");
        for (block, first_page) in [(0, 12), (2, 1036), (3, 2060)] {
            let page = rules.position(PageIndex(first_page));
            assert_eq!(rules.mapping_position(block) + 1, page, "a mapping block lies before the data it maps");
        }
    }

    #[test]
    fn behind_each_chunk_of_8_mib_lie_its_two_mapping_blocks() {
        let rules = (ext4::ENTRY_EXT3.build)(&ext4::ENTRY_EXT3.defaults());
        for nr_pages in [5, 12, 13, 1036, 1037, 2048, 2061, 6144, 20_000] {
            let mut places: Vec<u64> = (0..nr_pages).map(|page| rules.position(PageIndex(page))).collect();
            places.extend((0..rules.nr_mapping_blocks(nr_pages)).map(|block| rules.mapping_position(block)));
            let nr = places.len();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), nr, "no block of a file of {nr_pages} pages is used twice");
            assert!(places.last().is_none_or(|last| *last < rules.file_blocks(nr_pages)), "{nr_pages}");
        }
        // Pages 2060.. need mapping block 3, which lies behind the second chunk: 2048 + 2048 pages, 3 blocks before.
        assert_eq!((rules.position(PageIndex(2048)), rules.mapping_position(3)), (2048 + 3, 4096 + 3));
    }

    #[test]
    fn aligned_16_kib_reads_never_straddle_a_boundary() {
        let rules = ext3();
        for first in (0..6144).step_by(4) {
            assert!(rules.pages_to_boundary(PageIndex(first)) >= 4, "page {first}");
        }
    }

    #[test]
    fn extents_need_no_mapping_blocks() {
        let rules = (ext4::ENTRY.build)(&ext4::ENTRY.defaults());
        assert_eq!((rules.nr_mapping_blocks(6144), rules.file_blocks(6144)), (0, 6144));
        assert_eq!(rules.mapping_of(PageIndex(5000)), [None, None]);
    }
}
