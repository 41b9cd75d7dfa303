//! Pieces that several read-ahead policies share: window sizes, clipping to the file, forced reads, per-call copies.

pub(super) mod folios;
pub(super) mod probe;
pub(super) mod step;

use super::{Limits, Mapping, Token, Window};
use crate::event::RaKind;
use crate::units::{PAGE_BYTES, PageIndex};

/// Pages that a forced read submits at a time (2 MiB).
const FORCE_CHUNK: u64 = 512;

/// Size of the first window of a stream (`get_init_ra_size`): a power of two, 4 or 2 times the request while that is
/// small against `max`. A request larger than `max` gets `max`.
pub(super) fn init_size(nr_requested: u64, max: u64) -> u64 {
    let size = nr_requested.max(1).next_power_of_two();
    if size <= max / 32 {
        size * 4
    } else if size <= max / 4 {
        size * 2
    } else {
        max
    }
}

/// Size of the window after one of `size` (`get_next_ra_size`): 4 or 2 times as large, at most `max`.
pub(super) fn next_size(size: u64, max: u64) -> u64 {
    let times = if size < max / 16 { 4 } else { 2 };
    size.saturating_mul(times).min(max)
}

/// The file's last page; none if the file is empty.
pub(super) fn last_page(mapping: &dyn Mapping) -> Option<u64> {
    Some(mapping.size_bytes().checked_sub(1)? / PAGE_BYTES)
}

/// How many of the `nr_pages` from `start` on the file has.
pub(super) fn clipped(mapping: &dyn Mapping, start: PageIndex, nr_pages: u64) -> u64 {
    match last_page(mapping) {
        Some(last) if start.0 <= last => nr_pages.min(last - start.0 + 1),
        _ => 0,
    }
}

/// Reads the absent pages of a window as one submission, holes and all (until 4.x). The marker's place is counted in
/// the window as asked for, not as clipped. Returns how many pages were new.
pub(super) fn read_at_once(
    mapping: &mut dyn Mapping,
    kind: RaKind,
    start: PageIndex,
    nr_pages: u64,
    async_size: Option<u64>,
) -> u64 {
    let nr_clipped = clipped(mapping, start, nr_pages);
    if nr_clipped == 0 {
        return 0;
    }
    let marker = marker(start, nr_pages, async_size);
    mapping.read_pages(&Window { kind, start, nr_pages: nr_clipped, async_size, marker })
}

/// Reads the absent pages of a window already clipped to the file, each run of absent pages as a submission of its own
/// (since 4.17).
pub(super) fn read_runs(
    mapping: &mut dyn Mapping,
    kind: RaKind,
    start: PageIndex,
    nr_pages: u64,
    async_size: u64,
    marker: Option<PageIndex>,
) {
    let end = start.0 + nr_pages;
    let mut page = start.0;
    while page < end {
        if mapping.present(PageIndex(page)) {
            page += 1;
            continue;
        }
        let first = page;
        while page < end && !mapping.present(PageIndex(page)) {
            page += 1;
        }
        mapping.read_pages(&Window {
            kind,
            start: PageIndex(first),
            nr_pages: page - first,
            async_size: Some(async_size),
            marker: marker.filter(|marker| (first..page).contains(&marker.0)),
        });
    }
}

/// The page that starts the last `async_size` of the window's `nr_pages`; none if that is nothing or more than all.
pub(super) fn marker(start: PageIndex, nr_pages: u64, async_size: Option<u64>) -> Option<PageIndex> {
    let async_size = async_size.filter(|&size| size > 0)?;
    Some(start.plus(nr_pages.checked_sub(async_size)?))
}

/// Calls `read` for every chunk of a forced read (`force_page_cache_readahead`), as far as the file goes.
pub(super) fn force_chunks(
    mapping: &mut dyn Mapping,
    start: PageIndex,
    nr_pages: u64,
    mut read: impl FnMut(&mut dyn Mapping, PageIndex, u64),
) {
    let end = start.0 + clipped(mapping, start, nr_pages);
    let mut page = start.0;
    while page < end {
        let chunk = FORCE_CHUNK.min(end - page);
        read(mapping, PageIndex(page), chunk);
        page += chunk;
    }
}

/// Pages that advice about `len_bytes` bytes from `offset` on touches; 0 bytes mean everything from there on.
pub(super) fn pages_touched(offset: u64, len_bytes: u64) -> (PageIndex, u64) {
    let first = PageIndex::of(offset);
    if len_bytes == 0 {
        return (first, u64::MAX - first.0);
    }
    (first, PageIndex::of(offset.saturating_add(len_bytes - 1)).0 - first.0 + 1)
}

/// `max_sane_readahead`: `nr_pages`, or less if memory is short.
pub(super) fn max_sane(limits: Limits, nr_pages: u64) -> u64 {
    nr_pages.min(limits.max_sane)
}

/// A machine word as the recorded traces print it: signed.
pub(super) fn word(value: u64) -> i64 {
    value as i64
}

/// States that calls in progress keep for themselves, found again by their token.
#[derive(Clone, Debug)]
pub(super) struct Copies<T> {
    slots: Vec<T>,
    free: Vec<u32>,
}

impl<T: Copy> Copies<T> {
    pub(super) fn new() -> Copies<T> {
        Copies { slots: Vec::new(), free: Vec::new() }
    }

    /// Keeps `value` for a call that begins.
    pub(super) fn take(&mut self, value: T) -> Token {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = value;
                Token(slot)
            }
            None => {
                self.slots.push(value);
                Token(self.slots.len() as u32 - 1)
            }
        }
    }

    /// The value of a call in progress.
    pub(super) fn get(&mut self, call: Token) -> &mut T {
        &mut self.slots[call.0 as usize]
    }

    /// Takes the value back from a call that ends.
    pub(super) fn give_back(&mut self, call: Token) -> T {
        debug_assert!(!self.free.contains(&call.0), "{call:?} has ended before");
        self.free.push(call.0);
        self.slots[call.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_start_small_and_grow_to_the_limit() {
        let first: Vec<u64> = [1, 2, 3, 5, 9, 64].iter().map(|&req| init_size(req, 32)).collect();
        assert_eq!(first, [4, 4, 8, 16, 32, 32]);
        let small: Vec<u64> = [1, 2, 3].iter().map(|&req| init_size(req, 8)).collect();
        assert_eq!(small, [2, 4, 8]);
        let next: Vec<u64> = [1, 2, 8, 16, 32].iter().map(|&size| next_size(size, 32)).collect();
        assert_eq!(next, [4, 4, 16, 32, 32]);
    }

    #[test]
    fn the_marker_needs_a_tail_that_fits_the_window() {
        assert_eq!(marker(PageIndex(8), 16, Some(4)), Some(PageIndex(20)));
        assert_eq!(marker(PageIndex(8), 16, Some(16)), Some(PageIndex(8)));
        assert_eq!(marker(PageIndex(8), 16, Some(17)), None);
        assert_eq!(marker(PageIndex(8), 16, Some(0)), None);
        assert_eq!(marker(PageIndex(8), 16, None), None);
    }

    #[test]
    fn advice_counts_every_page_it_touches() {
        assert_eq!(pages_touched(4095, 2), (PageIndex(0), 2));
        assert_eq!(pages_touched(8192, 4096), (PageIndex(2), 1));
        assert_eq!(pages_touched(4096, 0), (PageIndex(1), u64::MAX - 1));
    }
}
