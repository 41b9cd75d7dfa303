//! Direct I/O: the kernel's handling of the page cache when a program goes round it, and the cost of that.
//!
//! ```text
//! read    write the cached dirty pages of the range and wait; no invalidation
//! write   the same, then drop the cached pages of the range before the transfer and again after it; if the mapping has
//!         no page at all, both are skipped
//! cost    one look-up each time. Until 3.3 the look-up walks slot by slot through the radix tree until it meets *some*
//!         page behind the range, which is far if the only pages lie at the end of a huge device; 3.4 skips empty slots
//!         of a node by their bits; since 4.20 the look-up ends with the range
//! unplug  an asynchronous call pulls a queue's plug once its bios are handed in; from 2.6.33 on io_submit does it
//! plug    the bios of one call; from 2.6.39 on those of one io_submit, since 5.0 only if it has more than two calls
//! bio     until 4.19 at most `max_sectors_kb`, and as many pages as a request has segments: a program's pages lie
//!         apart; since then 256 pages, which the block layer cuts (see `bios`)
//! lock    ext3 and ext4: a write holds `i_mutex` (`i_rwsem` since 4.7) until its I/O is done, or if asynchronous
//!         until it is submitted; a read until its bios are on their way (`DIO_LOCKING`). ext4 of 5.6 and later shares
//!         it for writes over blocks that exist, XFS always has; a device has no such lock
//! ```
//! Source: 3.2.7 `mm/filemap.c` (`generic_file_direct_write`), `mm/truncate.c` (`invalidate_inode_pages2_range`),
//! `lib/radix-tree.c` (`__lookup`), 6.1 `mm/filemap.c` and `block/fops.c`; the block-layer specification, section 3.
//! Known deviations: shared holders of the lock do not keep buffered writers out; ext4's share came with 5.6 (from
//! memory), here with 4.20; bouncing of page references between CPUs is not charged; a page that cannot be dropped does
//! not turn the write into a buffered one.

pub mod bios;

use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::units::Nanos;
use bios::Assembly;

/// How pages of a range are looked for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Slot by slot, beyond the end of the range if need be.
    Slots,
    /// Over empty slots in one step per node, beyond the end of the range if need be.
    Bits,
    /// Within the range only.
    Bounded,
}

/// When the cached pages are dropped a second time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// After every write; after submission where it is asynchronous.
    Always,
    /// After synchronous writes only.
    Synchronous,
}

/// Locking between direct calls on one regular file; XFS has always let them pass (`xfs_file_dio_write_aligned`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum InodeLock {
    /// A write holds the inode's lock until its I/O is done; a read takes it until its bios are on their way.
    Exclusive,
    /// Writes over blocks that exist go side by side, and so do reads.
    Shared,
}

/// The rules of one kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Writes are marked synchronous, and pull a queue's plug at once.
    pub sync: bool,
    /// The submission of one call is plugged.
    pub plug: bool,
    /// A queue's plug is pulled when a batch of asynchronous calls has been handed in (`io_submit`), not after each.
    pub batch: bool,
    /// A batch of more calls than this is plugged as a whole (`AIO_PLUG_THRESHOLD`).
    pub plug_above: u32,
    /// How pages are looked for.
    pub lookup: Lookup,
    /// When they are dropped again.
    pub after: After,
    /// CPU time of one look-up.
    pub call: Nanos,
    /// CPU time of one slot test, in picoseconds.
    pub slot_ps: u64,
    /// CPU time per page of a call: pinning the program's memory, building bios.
    pub page: Nanos,
    /// Locking between calls on one file.
    pub inode_lock: InodeLock,
    /// How bios are made.
    pub assembly: Assembly,
}

/// Makes the rules.
pub type Build = fn(&Options) -> Rules;

/// Every way of going round the page cache.
pub const DIRECT_IOS: &[&Entry<Build>] = &[&EARLY, &SYNC_FLAG, &BATCH, &SLOTS, &BITS, &BOUNDED, &ROUNDS, &BIOS];

const fn options(page_ns: i64, inode_lock: InodeLock) -> [OptionSpec; 4] {
    [
        OptionSpec::number("invalidate_ns", 50, (0, 1_000_000), "CPU time of one look-up of cached pages"),
        OptionSpec::number("slot_ps", 1_500, (0, 1_000_000), "CPU time of one slot test of it, picoseconds"),
        OptionSpec::number("dio_page_ns", page_ns, (0, 1_000_000), "CPU time per page of a direct call"),
        OptionSpec::choice(
            "inode_lock",
            &["exclusive", "shared"],
            inode_lock as usize,
            "whether direct writes to one regular file go one after the other (i_mutex); never with XFS",
        ),
    ]
}

const CONFORMANCE: &str = "slot tests held to the counts of docs/studies/block-layer.md; times are assumptions";
const ORACLE: &str =
    "bios and their parts: `cargo xtask oracle`, the kernel's own code on random input; times are assumptions";

const fn origin(kernels: &'static str, file: &'static str) -> [Origin; 1] {
    [Origin { kernels, file, function: "generic_file_direct_write, invalidate_inode_pages2_range", notes: "" }]
}

const EARLY: Entry<Build> = Entry {
    name: "dio-2.6.6",
    summary: "writes look like any other; no plug",
    origin: &origin("2.4 .. 2.6.13", "mm/filemap.c"),
    options: &options(0, InodeLock::Exclusive),
    conformance: CONFORMANCE,
    build: |options| Rules { sync: false, ..rules(options) },
};

const SYNC_FLAG: Entry<Build> = Entry {
    name: "dio-2.6.18",
    summary: "writes carry the sync flag and pull the queue's plug",
    origin: &origin("2.6.14 .. 2.6.32", "fs/direct-io.c"),
    options: &options(0, InodeLock::Exclusive),
    conformance: CONFORMANCE,
    build: rules,
};

const BATCH: Entry<Build> = Entry {
    name: "dio-2.6.33",
    summary: "the same; other asynchronous calls pull it when all of one io_submit are handed in",
    origin: &origin("2.6.33 .. 2.6.38", "fs/direct-io.c, fs/aio.c"),
    options: &options(0, InodeLock::Exclusive),
    conformance: CONFORMANCE,
    build: |options| Rules { batch: true, ..rules(options) },
};

const SLOTS: Entry<Build> = Entry {
    name: "dio-3.2",
    summary: "plugged; look-ups walk the radix tree slot by slot, beyond the range",
    origin: &origin("2.6.39 .. 3.3", "mm/filemap.c, lib/radix-tree.c"),
    options: &options(200, InodeLock::Exclusive),
    conformance: CONFORMANCE,
    build: |options| Rules { plug: true, ..rules(options) },
};

const BITS: Entry<Build> = Entry {
    name: "dio-3.4",
    summary: "plugged; look-ups skip empty slots",
    origin: &origin("3.4 .. 4.19", "mm/filemap.c, lib/radix-tree.c"),
    options: &options(150, InodeLock::Exclusive),
    conformance: CONFORMANCE,
    build: |options| Rules { plug: true, lookup: Lookup::Bits, ..rules(options) },
};

const BOUNDED: Entry<Build> = Entry {
    name: "dio-4.20",
    summary: "plugged; look-ups end with the range, and asynchronous writes are not followed by one",
    origin: &origin("4.20 .. 5.19", "mm/filemap.c, lib/xarray.c, fs/block_dev.c, fs/iomap/direct-io.c"),
    options: &options(100, InodeLock::Shared),
    conformance: ORACLE,
    build: |options| bounded(options, Assembly::Blocks),
};

const ROUNDS: Entry<Build> = Entry {
    name: "dio-6.0",
    summary: "as dio-4.20; memory need only be aligned as DMA asks for it",
    origin: &origin("6.0 .. 7.1", "mm/filemap.c, block/fops.c, block/bio.c, fs/iomap/direct-io.c"),
    options: &options(100, InodeLock::Shared),
    conformance: ORACLE,
    build: |options| bounded(options, Assembly::Rounds),
};

const BIOS: Entry<Build> = Entry {
    name: "dio-7.2",
    summary: "as dio-6.0; pieces of memory end with each round of pages, alignment is looked at by bio",
    origin: &origin("7.2", "mm/filemap.c, block/fops.c, lib/iov_iter.c, fs/iomap/direct-io.c"),
    options: &options(100, InodeLock::Shared),
    conformance: ORACLE,
    build: |options| bounded(options, Assembly::Bios),
};

fn bounded(options: &Options, assembly: Assembly) -> Rules {
    Rules { plug: true, plug_above: 2, lookup: Lookup::Bounded, after: After::Synchronous, assembly, ..rules(options) }
}

fn rules(options: &Options) -> Rules {
    Rules {
        sync: true,
        plug: false,
        batch: false,
        plug_above: 0,
        lookup: Lookup::Slots,
        after: After::Always,
        call: Nanos(options.unsigned("invalidate_ns")),
        slot_ps: options.unsigned("slot_ps"),
        page: Nanos(options.unsigned("dio_page_ns")),
        inode_lock: [InodeLock::Exclusive, InodeLock::Shared][options.unsigned("inode_lock") as usize],
        assembly: Assembly::Requests,
    }
}

impl Rules {
    /// CPU time of one look-up of `nr_pages` pages from `first` on in a mapping of which these runs are cached
    /// (first page, pages; ascending, apart).
    pub fn lookup_cost(&self, runs: &[(u64, u64)], first: u64, nr_pages: u64) -> Nanos {
        let tests = match self.lookup {
            Lookup::Slots => slot_tests(runs, first, nr_pages.min(PAGEVEC)),
            // A node's empty slots cost one test, and there are about 64 / 8 words and branches to it.
            Lookup::Bits => slot_tests(runs, first, nr_pages.min(PAGEVEC)) / 8,
            Lookup::Bounded => 0,
        };
        Nanos(self.call.0 + tests * self.slot_ps / 1000)
    }
}

/// Pages that one look-up asks for at most.
const PAGEVEC: u64 = 14;
/// Bits of an index that one level of the tree decides.
const LEVEL_BITS: u32 = 6;

/// Slots that the radix tree of 2.6 .. 3.3 tests in one look-up of up to `wanted` pages from `index` on.
///
/// The tree is as high as its largest page needs. From the root down, empty slots are tested one after the other until
/// one is found that holds anything; at the end of a node the walk starts again from the root. On the lowest level the
/// rest of the node is tested for pages.
pub fn slot_tests(runs: &[(u64, u64)], index: u64, wanted: u64) -> u64 {
    let Some(&(start, length)) = runs.last() else { return 0 };
    let last = start + length - 1;
    let mut height = 1;
    while height * LEVEL_BITS < u64::BITS && last >> (height * LEVEL_BITS) != 0 {
        height += 1;
    }
    let beyond = |index: u64| height * LEVEL_BITS < u64::BITS && index >> (height * LEVEL_BITS) != 0;
    // The first cached page at or after an index.
    let next = |index: u64| {
        let run = runs.partition_point(|(start, length)| start + length <= index);
        runs.get(run).map(|(start, _)| (*start).max(index))
    };
    let (mut at, mut tests, mut found) = (index, 0, 0);
    'again: while found < wanted && !beyond(at) {
        for level in (1..height).rev() {
            let shift = level * LEVEL_BITS;
            let slot = at >> shift & 63;
            let slot_start = at >> shift << shift;
            let slots_to_go = match next(slot_start) {
                Some(page) if page >> (shift + LEVEL_BITS) == at >> (shift + LEVEL_BITS) => (page >> shift & 63) - slot,
                _ => {
                    tests += 64 - slot;
                    match ((at >> (shift + LEVEL_BITS)) + 1).checked_shl(shift + LEVEL_BITS) {
                        Some(next) if next != 0 => at = next,
                        _ => return tests,
                    }
                    continue 'again;
                }
            };
            tests += slots_to_go + 1;
            if slots_to_go > 0 {
                at = slot_start + (slots_to_go << shift);
            }
        }
        let node_end = ((at >> LEVEL_BITS) + 1) << LEVEL_BITS;
        while at < node_end && found < wanted {
            tests += 1;
            found += u64::from(next(at) == Some(at));
            at += 1;
        }
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The tree as such: a node is found by its level and prefix.
    fn oracle(pages: &std::collections::BTreeSet<u64>, index: u64, wanted: u64) -> u64 {
        let Some(&last) = pages.last() else { return 0 };
        let mut height = 1;
        while last >> (height * 6) != 0 {
            height += 1;
        }
        let holds = |level: u32, prefix: u64| pages.range(prefix << (6 * level)..(prefix + 1) << (6 * level)).next();
        let (mut at, mut tests, mut found) = (index, 0, 0);
        'again: while found < wanted && at >> (6 * height) == 0 {
            for level in (1..height).rev() {
                loop {
                    tests += 1;
                    if holds(level, at >> (6 * level)).is_some() {
                        break;
                    }
                    at = ((at >> (6 * level)) + 1) << (6 * level);
                    if (at >> (6 * level)) % 64 == 0 {
                        continue 'again;
                    }
                }
            }
            loop {
                tests += 1;
                found += u64::from(pages.contains(&at));
                at += 1;
                if at % 64 == 0 || found == wanted {
                    break;
                }
            }
        }
        tests
    }

    /// Pages 0 .. 12 and the last 12 of a device, 4 KiB look-ups in its first 25 GB: mean slot tests.
    fn mean_tests(device_pages: u64) -> u64 {
        let runs = [(0, 13), (device_pages - 12, 12)];
        let draws = 4000;
        let total: u64 = (0..draws).map(|i| slot_tests(&runs, (i * 1639) % (25_000_000_000 / 4096), 1)).sum();
        total / draws
    }

    #[test]
    fn pages_at_both_ends_cost_what_the_study_counted() {
        // The study counted 400 on the device of the report, and some 230 and 200 on devices of 1 TB and 100 GB, whose
        // exact sizes it does not give; where in its node the last page lies makes the difference.
        let tests = mean_tests(4_000_000_000_000 * 512 / 4096);
        assert!(tests.abs_diff(400) <= 40, "{tests}");
        for (bytes, least, most) in [(1_000_000_000_000u64, 150, 330), (100_000_000_000, 120, 280)] {
            let tests = mean_tests(bytes / 4096);
            assert!((least..=most).contains(&tests), "{bytes} bytes: {tests}");
        }
    }

    #[test]
    fn pages_at_the_start_only_cost_nothing() {
        assert_eq!(slot_tests(&[(0, 13)], 5_000, 1), 0);
        assert_eq!(slot_tests(&[], 5_000, 1), 0);
    }

    proptest! {
        #[test]
        fn the_walk_tests_as_many_slots_as_the_tree_has(
            pages in proptest::collection::btree_set(0u64..300_000, 1..20),
            index in 0u64..400_000,
            wanted in 1u64..15,
        ) {
            let mut runs: Vec<(u64, u64)> = Vec::new();
            for &page in &pages {
                match runs.last_mut() {
                    Some((start, length)) if *start + *length == page => *length += 1,
                    _ => runs.push((page, 1)),
                }
            }
            prop_assert_eq!(slot_tests(&runs, index, wanted), oracle(&pages, index, wanted));
        }
    }
}
