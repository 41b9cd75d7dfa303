//! 6.12 (and 6.18, which adds to it): on-demand read-ahead on large folios, misses and markers decided apart.
//!
//! A miss starts a stream if it is the file's first page, larger than the limit, or next to the previous read; the tail
//! is what the request leaves, or half the window. A miss with more cached pages before it than it asks
//! for continues a stream that the state has forgotten. Any other miss is random: exactly the request is read and the
//! state stays. A marker where the state expects it moves the window on and enlarges it; another one makes the
//! policy look in the cache where that stream's next hole is. Windows are cut into folios: 6.12 adds 2 to the order of
//! the folio that carried the marker.
//!
//! Source: Linux 6.12, mm/readahead.c, `page_cache_sync_ra`, `page_cache_async_ra`, `page_cache_ra_order`.
//!
//! Known deviations: memory never fails, and block cgroups are never congested.

use super::parts::folios::{Cut, FolioState};
use super::parts::next_size;
use super::parts::probe::{cached_run_before, first_miss_from};
use super::{Advice, Build, FaultWindow, Folio, Limits, Mapping, ReadRequest, Readahead, Token};
use crate::event::RaKind;
use crate::origin::{Entry, Options, Origin};
use crate::read_loop::LoopStyle;
use crate::trace::RaInput;
use crate::units::PageIndex;

/// 6.12.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-6.12",
    summary: "on-demand read-ahead with markers on large folios; misses and markers decided apart",
    origin: &[Origin {
        kernels: "6.12",
        file: "mm/readahead.c",
        function: "page_cache_sync_ra, page_cache_async_ra, page_cache_ra_order",
        notes: "decisions compared case by case with the kernel's own functions",
    }],
    options: &[],
    conformance: "golden vectors linux-6.12: 113 cases, every submission, folio, marker and state",
    build,
};

/// Smaller windows are not worth large folios (6.12).
const MIN_FOLIO_WINDOW: u64 = 4;

/// How the order of a window's folios is found.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Orders {
    /// 6.12: from the folio that carried the marker.
    FromMarker,
    /// 6.18: kept in the state, raised by 2 with every marker; windows end where a folio of that order would.
    FromState,
}

fn build(_options: &Options, limits: &Limits) -> Box<dyn Readahead> {
    Folios::boxed(limits, Orders::FromMarker)
}

/// The policy of both kernels.
pub(super) struct Folios {
    state: FolioState,
    orders: Orders,
}

impl Folios {
    pub(super) fn boxed(limits: &Limits, orders: Orders) -> Box<dyn Readahead> {
        Box::new(Folios { state: FolioState::new(limits), orders })
    }

    /// Cuts and submits the window of the state. `hint` is the order of the folio that carried the marker.
    fn submit(&mut self, mapping: &mut dyn Mapping, kind: RaKind, hint: u8) {
        let max_order = mapping.limits().max_folio_order;
        let state = &mut self.state;
        state.announce(mapping, if self.orders == Orders::FromState { state.order } else { hint });
        let whole = (PageIndex(state.start), state.size, state.async_size);
        let order = match self.orders {
            _ if state.size == 0 => return,
            Orders::FromMarker if max_order == 0 || state.size < MIN_FOLIO_WINDOW => {
                return FolioState::plain(mapping, kind, whole.0, whole.1, whole.2);
            }
            Orders::FromMarker if hint < max_order => hint + 2,
            Orders::FromMarker => hint,
            Orders::FromState if max_order == 0 => {
                state.order = 0;
                return FolioState::plain(mapping, kind, whole.0, whole.1, whole.2);
            }
            Orders::FromState => state.order,
        };
        let order = order.min(max_order).min(state.size.ilog2() as u8);
        if self.orders == Orders::FromState {
            state.order = order;
        }
        let (stop, early) = state.place(mapping, kind, Cut { order, skip_order_1: false });
        if early {
            // 6.12 reads the whole size again from where it stopped, and so goes past the window; 6.18 the rest.
            let nr_pages = match self.orders {
                Orders::FromMarker => whole.1,
                Orders::FromState => whole.1 - (stop - whole.0.0),
            };
            FolioState::plain(mapping, kind, PageIndex(stop), nr_pages, whole.2);
        }
    }
}

impl Readahead for Folios {
    fn style(&self) -> LoopStyle {
        LoopStyle::Batch { max_folios: 31, prev_pos_per_folio: false }
    }

    fn begin(&mut self, _mapping: &mut dyn Mapping, _request: &ReadRequest) -> Token {
        Token::default()
    }

    fn on_miss(&mut self, _call: Token, mapping: &mut dyn Mapping, page: PageIndex, nr_requested: u64) {
        let state = &mut self.state;
        if state.max == 0 {
            return state.force(mapping, page, 1);
        }
        if state.random {
            return state.force(mapping, page, nr_requested);
        }
        let max = state.effective_max(mapping, nr_requested);
        if page.0 == 0 || nr_requested > max || page.0.wrapping_sub(state.prev_page()) <= 1 {
            state.initial(page, nr_requested, max);
            if state.async_size == 0 {
                state.async_size = state.size / 2;
            }
        } else {
            let mut history = cached_run_before(mapping, page, max);
            if history <= nr_requested {
                return FolioState::plain(mapping, RaKind::Sync, page, nr_requested, 0);
            }
            if history == page.0 {
                history *= 2;
            }
            state.start = page.0;
            state.size = (history + nr_requested).min(max);
            state.async_size = 1;
        }
        state.order = 0;
        self.submit(mapping, RaKind::Sync, 0);
    }

    fn on_marker(&mut self, _call: Token, mapping: &mut dyn Mapping, page: PageIndex, nr_requested: u64) {
        let state = &mut self.state;
        if state.max == 0 || mapping.under_writeback(page) {
            return;
        }
        let folio = mapping.folio(page).unwrap_or(Folio { first: page, order: 0 });
        mapping.clear_marker(page);
        let max = state.effective_max(mapping, nr_requested);
        let expected = (state.start + state.size).wrapping_sub(state.async_size) >> folio.order << folio.order;
        if page.0 == expected {
            state.start += state.size;
            state.size = state.size.max(next_size(state.size, max));
        } else {
            let start = first_miss_from(mapping, page.plus(1), max).0.unwrap_or(page.0 + 1 + max);
            if start == 0 || start.wrapping_sub(page.0) > max {
                return;
            }
            state.start = start;
            state.size = next_size(start - page.0 + nr_requested, max);
        }
        if self.orders == Orders::FromState {
            state.order += 2;
            let align = u32::from(state.order).min(max.trailing_zeros());
            let aligned_end = (state.start + state.size) >> align << align;
            if aligned_end > state.start {
                state.size = aligned_end - state.start;
            }
        }
        state.async_size = state.size;
        self.submit(mapping, RaKind::Async, folio.order);
    }

    fn copied(&mut self, _call: Token, pos: u64) {
        self.state.prev_pos = pos;
    }

    fn end(&mut self, _call: Token, _pos: u64) {}

    fn max_pages(&self) -> u64 {
        self.state.max
    }

    fn prev_page(&self) -> u64 {
        self.state.prev_page()
    }

    fn fault_window(&mut self, mapping: &mut dyn Mapping, window: &FaultWindow) {
        let start = self.state.take_over(window);
        self.submit(mapping, window.kind, window.order);
        self.state.start = start;
    }

    fn restore(&mut self, start: Option<PageIndex>, input: &RaInput) -> bool {
        self.state.restore(start, input);
        true
    }

    fn advise(&mut self, mapping: &mut dyn Mapping, advice: Advice) {
        self.state.advise(mapping, advice);
    }

    fn trace(&self) -> Vec<i64> {
        let mut trace = self.state.trace();
        if self.orders == Orders::FromState {
            trace.push(i64::from(self.state.order));
        }
        trace
    }
}
