//! Effects of advice about open files and mappings: `posix_fadvise`, `readahead(2)`, `MADV_WILLNEED`.
//!
//! Normal, random and sequential advice change the open file's read-ahead state, so its
//! [`Readahead`](crate::readahead::Readahead) policy takes them. `WILLNEED` and `readahead(2)` are forced reads, which
//! the policy makes too: silently no more than the larger of the file's read-ahead limit and the device's largest
//! request (4.4: than the device's read-ahead limit), in submissions of 512 pages without a marker. `DONTNEED` names
//! pages to drop, of which mapped, dirty and locked ones stay. `NOREUSE` is a flag of the open file that takes the
//! second chance from pages referenced through its mappings. Offset and length count only for `WILLNEED` and
//! `DONTNEED`.
//!
//! Sources: mm/fadvise.c, `generic_fadvise`; mm/readahead.c, `ksys_readahead`; mm/madvise.c, `madvise_willneed`; Linux
//! 6.18, 6.12, 6.1, 4.4.
//!
//! Known deviations: write-back that `DONTNEED` starts is the driver's business.

use serde::Serialize;

use std::ops::Range;

use crate::readahead::{Advice, Mapping, Readahead};
use crate::units::{PAGE_BYTES, PageIndex};

/// `POSIX_FADV_*`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub enum FileAdvice {
    /// The default.
    Normal,
    /// Reads will come in random order.
    Random,
    /// Reads will come in sequence.
    Sequential,
    /// The data will be used soon.
    WillNeed,
    /// The data will not be used soon.
    DontNeed,
    /// The data will be used once.
    NoReuse,
}

/// Flags of an open file that advice sets, apart from its read-ahead state.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFlags {
    /// References through mappings of this open file do not count (`FMODE_NOREUSE`).
    pub noreuse: bool,
}

/// Differences between the kernels.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `NOREUSE` sets a flag (since 6.3); before, it does nothing.
    pub noreuse_is_flag: bool,
    /// `DONTNEED` up to the end of the file includes its last, partial page.
    pub drops_last_page: bool,
    /// Use through a mapping with random advice does not keep a page in memory (since 6.3); through one with sequential
    /// advice it does not on any of them.
    pub random_is_no_use: bool,
    /// `readahead(2)` of no bytes means the whole file; otherwise only at offset 0.
    pub readahead_0_is_all: bool,
}

/// 6.3 to 6.18.
pub const LINUX_6_18: Rules =
    Rules { noreuse_is_flag: true, drops_last_page: true, random_is_no_use: true, readahead_0_is_all: true };
/// 6.1.
pub const LINUX_6_1: Rules = Rules { noreuse_is_flag: false, random_is_no_use: false, ..LINUX_6_18 };
/// 4.4 and before.
pub const LINUX_4_4: Rules = Rules { drops_last_page: false, readahead_0_is_all: false, ..LINUX_6_1 };

impl Rules {
    /// Applies `posix_fadvise(offset, len_bytes)` and returns the pages to drop, if any.
    pub fn advise_file(
        &self,
        advice: FileAdvice,
        (offset, len_bytes): (u64, u64),
        flags: &mut FileFlags,
        ra: &mut dyn Readahead,
        mapping: &mut dyn Mapping,
    ) -> Range<u64> {
        match advice {
            FileAdvice::Normal => {
                flags.noreuse = false;
                ra.advise(mapping, Advice::Normal);
            }
            FileAdvice::Random => ra.advise(mapping, Advice::Random),
            FileAdvice::Sequential => ra.advise(mapping, Advice::Sequential),
            FileAdvice::WillNeed => ra.advise(mapping, Advice::WillNeed { offset, len_bytes }),
            FileAdvice::NoReuse => flags.noreuse |= self.noreuse_is_flag,
            FileAdvice::DontNeed => return self.dropped(mapping.size_bytes(), offset, len_bytes),
        }
        0..0
    }

    /// Applies `readahead(2)`.
    pub fn readahead(&self, offset: u64, len_bytes: u64, ra: &mut dyn Readahead, mapping: &mut dyn Mapping) {
        if len_bytes > 0 || self.readahead_0_is_all || offset == 0 {
            ra.advise(mapping, Advice::WillNeed { offset, len_bytes });
        }
    }

    /// Pages that `DONTNEED` drops: those that lie entirely in the range. 0 bytes mean everything from `offset` on.
    pub fn dropped(&self, file_bytes: u64, offset: u64, len_bytes: u64) -> Range<u64> {
        let start = offset.div_ceil(PAGE_BYTES);
        let end = match offset.checked_add(len_bytes).filter(|_| len_bytes > 0) {
            Some(end) if end < file_bytes || !self.drops_last_page => end / PAGE_BYTES,
            Some(end) => end.div_ceil(PAGE_BYTES),
            None => u64::MAX,
        };
        start..end.max(start)
    }
}

/// Applies `MADV_WILLNEED` to pages of the file from `first` to before `end`: a forced read for every part of the
/// mapping with flags of its own. Nothing is mapped.
pub fn mapping_will_need(
    parts: impl IntoIterator<Item = (PageIndex, PageIndex)>,
    ra: &mut dyn Readahead,
    mapping: &mut dyn Mapping,
) {
    for (first, end) in parts {
        let advice = Advice::WillNeed { offset: first.0 * PAGE_BYTES, len_bytes: (end.0 - first.0) * PAGE_BYTES };
        ra.advise(mapping, advice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dont_need_takes_whole_pages_and_the_last_one() {
        let rows = [
            // file, offset, length, 6.18, 4.4
            (10_000, 0, 4096, 0..1, 0..1),
            (10_000, 1, 8191, 1..2, 1..2),
            (10_000, 4096, 5904, 1..3, 1..2),
            (10_000, 4096, 9000, 1..4, 1..3),
            (10_000, 4097, 0, 2..u64::MAX, 2..u64::MAX),
            (10_000, 100, 200, 1..1, 1..1),
        ];
        for (file, offset, len, new, old) in rows {
            assert_eq!(LINUX_6_18.dropped(file, offset, len), new, "{offset}+{len}");
            assert_eq!(LINUX_4_4.dropped(file, offset, len), old, "{offset}+{len}");
        }
    }
}
