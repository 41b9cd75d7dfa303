//! Reads past the page cache (`O_DIRECT`): the bios of each call (`iomap_dio_rw`: ext4, XFS and their like).
//!
//! ```text
//! what        from the call's first byte to its last, or to the end of the file's last block
//! a bio ends  with the call; where the file goes on elsewhere on the disk; or with 256 pieces of memory
//! a piece     at least a page, but for the first and the last: user memory need not begin with a page. Pages side
//!             by side in memory are one piece, which events do not show. So a bio may end from 255 pages on, and
//!             need not at any size
//! ```
//! So the sum of a call's bios is judged exactly, and that none ends without need. Where the file ended comes from the
//! call's result; how much `preadv` asked for is in no event, so at the end of the file up to a block is right. How
//! bios are cut and united to requests is judged with all others ([`super::requests`]).
//!
//! Known limits: where a file lies is in no event either: after any gap between
//! bios the next is taken to be where the file goes on, and of a file with holes only the most that there may be is
//! judged. Extents that touch (ext4 begins another after 128 MiB) look like a bio that ended without need. Reads of
//! io_uring and libaio are not calls; and descriptors whose file the trace does not name are unknown, for example two
//! of one file that a thread opened one right after the other (`fanotify` merges them). Before 6.12 events do not
//! separate these reads from others.
//!
//! Source: Linux 6.18, fs/iomap/direct-io.c, `iomap_dio_bio_iter`; block/bio.c, `bio_iov_iter_get_pages`;
//! `BIO_MAX_VECS`.

use iowhy_stack::units::PAGE_BYTES;

use super::Count;
use iowhy_trace::recorded::{Recorded, What};

const SECTOR_BYTES: u64 = 512;
/// Bytes from which a bio may have all 256 pieces.
const MAY_BE_FULL: u64 = 255 * PAGE_BYTES;

/// Compares the bios of every call that went past the page cache.
pub(super) fn compare(recorded: &Recorded) -> Count {
    let mut count = Count::default();
    for (at, line) in recorded.lines.iter().enumerate() {
        let What::Read { offset, len_bytes, .. } = line.what else { continue };
        let end = recorded.end_of_call(at);
        if recorded.looks_up(at, end) {
            continue;
        }
        let own = || recorded.lines[at + 1..end].iter().filter(|other| other.task == line.task).map(|other| other.what);
        let result = own().find_map(|what| match what {
            What::End { result } => u64::try_from(result).ok(),
            _ => None,
        });
        // A call that was still on its way when the trace ended.
        let Some(result) = result else { continue };
        let bios: Vec<(u64, u64)> = own().filter_map(|what| what.bio()).collect();
        let to_the_block = (offset + result).next_multiple_of(recorded.block()) - offset;
        let total: u64 = bios.iter().map(|bio| bio.1).sum();
        let at_the_end = offset + result >= recorded.file_bytes || result % SECTOR_BYTES > 0;
        let due = match result < len_bytes {
            true => to_the_block.min(len_bytes),
            // How much `preadv` asked for is not known, if it got less.
            false if at_the_end => total.max(result.next_multiple_of(SECTOR_BYTES)).min(to_the_block),
            false => len_bytes,
        };
        let (of, matched) = judge(due, &bios, recorded.holes);
        count.of += of;
        count.matched += matched;
        if matched < of {
            count
                .mismatches
                .push(format!("{len_bytes} bytes from {offset}, past the page cache: {due} due, bios {bios:?}"));
        }
    }
    count
}

/// How many bios there are, one more if any is missing, and how many of them are right.
fn judge(due: u64, bios: &[(u64, u64)], holes: bool) -> (u64, u64) {
    let total: u64 = bios.iter().map(|bio| bio.1).sum();
    let mut before = 0;
    let mut matched = 0;
    for (nr, &(sector, bytes)) in bios.iter().enumerate() {
        before += bytes;
        let ends_well = holes
            || bytes >= MAY_BE_FULL
            || match bios.get(nr + 1) {
                Some(next) => next.0 != sector + bytes / SECTOR_BYTES,
                None => total == due,
            };
        matched += u64::from(before <= due && ends_well && bytes % SECTOR_BYTES == 0);
    }
    let is_missing = total < due && !holes;
    (bios.len() as u64 + u64::from(is_missing), matched)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iowhy_trace::recorded::Line;

    const KIB: u64 = 1024;

    /// The case, bytes of the call, sector and bytes of each bio, whether the file has holes; the number of bios
    /// inspected, and the number right.
    type Row<'a> = (&'a str, u64, &'a [(u64, u64)], bool, (u64, u64));

    #[test]
    fn bios_end_with_the_call_or_the_extent_or_when_they_are_full() {
        let full = 1020 * KIB;
        let rows: &[Row<'_>] = &[
            ("one", 4 * KIB, &[(8, 4 * KIB)], false, (1, 1)),
            ("half a KiB", 512, &[(9, 512)], false, (1, 1)),
            ("no whole sector", 600, &[(9, 600)], false, (1, 0)),
            ("too little", 8 * KIB, &[(8, 4 * KIB)], false, (2, 0)),
            ("too much", 4 * KIB, &[(8, 8 * KIB)], false, (1, 0)),
            ("none", 4 * KIB, &[], false, (1, 0)),
            ("two without need", 8 * KIB, &[(8, 4 * KIB), (16, 4 * KIB)], false, (2, 1)),
            ("the file goes on elsewhere", 8 * KIB, &[(8, 4 * KIB), (80, 4 * KIB)], false, (2, 2)),
            ("or before", 8 * KIB, &[(80, 4 * KIB), (8, 4 * KIB)], false, (2, 2)),
            ("full", full + 4 * KIB, &[(0, full), (2040, 4 * KIB)], false, (2, 2)),
            ("not full yet", full + 4 * KIB, &[(0, full - 512), (2039, 4 * KIB + 512)], false, (2, 1)),
            ("large pieces", 8192 * KIB, &[(0, 8192 * KIB)], false, (1, 1)),
            ("a full one, then nothing", 2 * full, &[(0, full)], false, (2, 1)),
            ("holes", 64 * KIB, &[(0, 4 * KIB), (8, 4 * KIB)], true, (2, 2)),
            ("nothing but holes", 64 * KIB, &[], true, (0, 0)),
            ("more than that", 8 * KIB, &[(0, 4 * KIB), (8, 8 * KIB)], true, (2, 1)),
        ];
        for (name, due, bios, holes, expected) in rows {
            assert_eq!(judge(*due, bios, *holes), *expected, "{name}");
        }
    }

    #[test]
    fn only_calls_that_look_nothing_up_are_judged() {
        let read = |offset, len_bytes| What::Read { fd: 0, offset, len_bytes };
        let bio = |kib: u64| What::Bio { sector: 0, bytes: (kib * KIB) as u32 };
        let end = |result| What::End { result };
        let rows: &[(&str, &[What], (u64, u64))] = &[
            ("past the cache", &[read(0, 8192), bio(8), end(8192)], (1, 1)),
            ("the wrong size", &[read(0, 8192), bio(12), end(8192)], (1, 0)),
            ("through the cache", &[read(0, 8192), What::Get { index: 0, last: 2 }, bio(12), end(8192)], (0, 0)),
            ("nothing read", &[read(1 << 20, 8192), end(0)], (0, 0)),
            ("refused", &[read(1, 8192), end(-22)], (0, 0)),
            ("the last block", &[read(4096, 65536), bio(4), end(1000)], (1, 1)),
            ("from the middle of it", &[read(4608, 65536), What::Bio { sector: 0, bytes: 3584 }, end(500)], (1, 1)),
            ("not beyond what was asked", &[read(4096, 512), What::Bio { sector: 0, bytes: 512 }, end(100)], (1, 1)),
            ("nobody knows how much", &[read(4096, 700), bio(4), end(700)], (1, 1)),
            ("but not more than the block", &[read(4096, 700), bio(8), end(700)], (1, 0)),
            ("nor in the middle of the file", &[read(4096, 1024), bio(4), end(1024)], (1, 0)),
            ("not over", &[read(0, 8192), bio(4)], (0, 0)),
            ("from within a sector", &[read(100, 3996), bio(4), end(3996)], (1, 0)),
        ];
        for (name, lines, expected) in rows {
            let lines = lines.iter().map(|what| Line { task: 0, what: *what }).collect();
            let recorded = Recorded { kernel: "6.18.1".to_owned(), file_bytes: 1 << 20, lines, ..Recorded::default() };
            let count = compare(&recorded);
            assert_eq!((count.of, count.matched), *expected, "{name}");
            assert_eq!(count.mismatches.len() as u64, expected.0 - expected.1, "{name}");
        }
    }
}
