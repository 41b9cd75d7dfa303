//! Shared parts of the folio-based kernels (5.16 to 6.18): the state of an open file, and the division of a window into
//! folios.

use super::{clipped, force_chunks, init_size, last_page, marker, pages_touched, read_runs, word};
use crate::event::RaKind;
use crate::readahead::{Advice, Decision, FaultWindow, Folio, Limits, Mapping, Window};
use crate::trace::RaInput;
use crate::units::{PAGE_BYTES, PageIndex};

/// The read-ahead state of an open file (`struct file_ra_state` and its random flag).
#[derive(Clone, Debug)]
pub(in crate::readahead) struct FolioState {
    /// First page of the most recent window.
    pub(in crate::readahead) start: u64,
    /// Its pages.
    pub(in crate::readahead) size: u64,
    /// Those of its asynchronous tail.
    pub(in crate::readahead) async_size: u64,
    /// Preferred folio order (6.18).
    pub(in crate::readahead) order: u8,
    /// Read-ahead limit.
    pub(in crate::readahead) max: u64,
    /// Byte after the previous read; all ones at open.
    pub(in crate::readahead) prev_pos: u64,
    /// The program has advised random reads.
    pub(in crate::readahead) random: bool,
    /// Space to list the folios of a window, kept to save allocations.
    folios: Vec<Folio>,
}

/// How a window is cut into folios.
#[derive(Copy, Clone, Debug)]
pub(in crate::readahead) struct Cut {
    /// Largest order to use.
    pub(in crate::readahead) order: u8,
    /// 6.1 never uses order 1.
    pub(in crate::readahead) skip_order_1: bool,
    /// A window that ends with the file carries a marker (until 6.x).
    pub(in crate::readahead) marks_end: bool,
}

impl Cut {
    fn allowed(self, order: u8) -> u8 {
        if self.skip_order_1 && order == 1 { 0 } else { order }
    }
}

impl FolioState {
    pub(in crate::readahead) fn new(limits: &Limits) -> FolioState {
        FolioState {
            start: 0,
            size: 0,
            async_size: 0,
            order: 0,
            max: limits.ra_pages,
            prev_pos: u64::MAX,
            random: false,
            folios: Vec::new(),
        }
    }

    /// The limit for a request: `max`, but a larger request may grow to what the device takes at once.
    pub(in crate::readahead) fn effective_max(&self, mapping: &dyn Mapping, nr_requested: u64) -> u64 {
        let io_pages = mapping.limits().io_pages;
        if nr_requested > self.max && io_pages > self.max { nr_requested.min(io_pages) } else { self.max }
    }

    /// The page of the previous read's end; all ones before the first.
    pub(in crate::readahead) fn prev_page(&self) -> u64 {
        (self.prev_pos as i64 >> PAGE_BYTES.trailing_zeros()) as u64
    }

    /// Order-0 pages, a submission for every run of absent ones (`do_page_cache_ra`). The tail is counted from the
    /// clipped end.
    pub(in crate::readahead) fn plain(
        mapping: &mut dyn Mapping,
        kind: RaKind,
        start: PageIndex,
        nr_pages: u64,
        lookahead: u64,
    ) {
        let nr_pages = clipped(mapping, start, nr_pages);
        if nr_pages == 0 {
            return;
        }
        mapping.decided(Decision::Unbounded { start, nr_pages, lookahead });
        read_runs(mapping, kind, start, nr_pages, lookahead, marker(start, nr_pages, Some(lookahead)));
    }

    /// Exactly these pages, as many as one request may have at most (`force_page_cache_ra`).
    pub(in crate::readahead) fn force(&self, mapping: &mut dyn Mapping, start: PageIndex, nr_pages: u64) {
        let most = mapping.limits().io_pages.max(self.max);
        force_chunks(mapping, start, nr_pages.min(most), |mapping, start, nr_pages| {
            FolioState::plain(mapping, RaKind::Force, start, nr_pages, 0);
        });
    }

    /// Cuts the window into folios, places them up to the first that would not fit, and submits those. Returns the page
    /// where it stopped and whether that was before the window's end.
    pub(in crate::readahead) fn place(&mut self, mapping: &mut dyn Mapping, kind: RaKind, cut: Cut) -> (u64, bool) {
        let start = self.start;
        let Some(last) = last_page(mapping) else { return (start, false) };
        let limit = last.min(start + self.size - 1);
        let mark = start + self.size - self.async_size.min(self.size);
        let mut folios = std::mem::take(&mut self.folios);
        folios.clear();
        let mut marker = None;
        let mut page = start;
        while page <= limit {
            let mut order = cut.order;
            if page & ((1 << order) - 1) != 0 {
                order = cut.allowed(page.trailing_zeros() as u8);
            }
            while page + (1 << order) - 1 > limit {
                order = cut.allowed(order - 1);
            }
            if (page..page + (1 << order)).any(|page| mapping.present(PageIndex(page))) {
                break;
            }
            if page == mark >> order << order && (cut.marks_end || last >= start + self.size) {
                marker = Some(PageIndex(page));
            }
            folios.push(Folio { first: PageIndex(page), order });
            page += 1 << order;
        }
        if !folios.is_empty() {
            let window = Window {
                kind,
                start: PageIndex(start),
                nr_pages: page - start,
                async_size: Some(self.async_size),
                marker,
            };
            mapping.read_folios(&window, &folios);
        }
        self.folios = folios;
        (page, page <= limit)
    }

    /// Tells who listens that the window of the state is about to be cut into folios of about `order`.
    pub(in crate::readahead) fn announce(&self, mapping: &mut dyn Mapping, order: u8) {
        let &FolioState { start, size, async_size, max, .. } = self;
        mapping.decided(Decision::Ordered { start: PageIndex(start), order, size, async_size, max });
    }

    /// Takes over the window of a page fault. Returns the start to put back once it is read.
    pub(in crate::readahead) fn take_over(&mut self, window: &FaultWindow) -> u64 {
        let before = std::mem::replace(&mut self.start, window.start.0);
        (self.size, self.async_size, self.order) = (window.size, window.async_size, window.order);
        if window.keeps_start { before } else { self.start }
    }

    /// Takes over what a trace shows of the state.
    pub(in crate::readahead) fn restore(&mut self, start: Option<PageIndex>, input: &RaInput) {
        self.start = start.map_or(self.start, |start| start.0);
        (self.size, self.async_size) = (u64::from(input.size), u64::from(input.async_size));
        self.order = u8::try_from(input.order).unwrap_or(u8::MAX);
        (self.max, self.prev_pos) = (u64::from(input.ra_pages), input.prev_pos as u64);
    }

    /// Starts a window of a stream at `page`; the tail is what the request does not need.
    pub(in crate::readahead) fn initial(&mut self, page: PageIndex, nr_requested: u64, max: u64) {
        self.start = page.0;
        self.size = init_size(nr_requested, max);
        self.async_size = self.size.saturating_sub(nr_requested);
    }

    pub(in crate::readahead) fn advise(&mut self, mapping: &mut dyn Mapping, advice: Advice) {
        match advice {
            Advice::Normal => (self.max, self.random) = (mapping.limits().ra_pages, false),
            Advice::Random => self.random = true,
            Advice::Sequential => (self.max, self.random) = (2 * mapping.limits().ra_pages, false),
            Advice::WillNeed { offset, len_bytes } => {
                let (first, nr_pages) = pages_touched(offset, len_bytes);
                self.force(mapping, first, nr_pages);
            }
        }
    }

    /// The columns of the recorded traces up to 6.12.
    pub(in crate::readahead) fn trace(&self) -> Vec<i64> {
        [self.start, self.size, self.async_size, self.max, self.prev_pos].map(word).to_vec()
    }
}
