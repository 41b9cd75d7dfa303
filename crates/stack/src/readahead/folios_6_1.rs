//! 6.1: on-demand read-ahead on large folios, one decision for misses and markers.
//!
//! A page that is where the state expects it (the marker, or the page after the window) moves the window on and
//! enlarges it. A marker that the state does not know makes the policy look in the cache how far that stream has come.
//! A first page of the file, a request larger than the limit, or a page next to the previous read starts a stream. A
//! run of cached pages before the page that is longer than the request shows a stream too. Anything else is random and
//! is read exactly. A window that would be all tail gets the next one as its tail, if the limit allows. Windows are
//! cut into folios whose order grows by 2 with every marker, except that order 1 is not used.
//!
//! Source: Linux 6.1, mm/readahead.c, `ondemand_readahead` and `page_cache_ra_order`.
//!
//! Known deviations: memory never fails, and block cgroups are never congested.

use super::parts::folios::{Cut, FolioState};
use super::parts::next_size;
use super::parts::probe::{cached_run_before, first_miss_from};
use super::{Advice, Build, FaultWindow, Folio, Limits, Mapping, ReadRequest, Readahead, Token};
use crate::event::RaKind;
use crate::origin::{Entry, Options, Origin};
use crate::read_loop::LoopStyle;
use crate::units::PageIndex;

/// 6.1.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-6.1",
    summary: "on-demand read-ahead with markers on large folios, one rule for misses and markers",
    origin: &[Origin {
        kernels: "6.1",
        file: "mm/readahead.c",
        function: "ondemand_readahead, page_cache_ra_order",
        notes: "decisions compared case by case with the kernel's own functions",
    }],
    options: &[],
    conformance: "golden vectors linux-6.1: 113 cases, every submission, folio, marker and state",
    build,
};

/// Largest folio order that page tables can map at once, and this kernel's only limit on orders.
const MAX_ORDER: u8 = 9;
/// Smaller windows are not worth large folios.
const MIN_FOLIO_WINDOW: u64 = 4;

fn build(_options: &Options, limits: &Limits) -> Box<dyn Readahead> {
    Box::new(Folios61 { state: FolioState::new(limits) })
}

struct Folios61 {
    state: FolioState,
}

impl Folios61 {
    fn decide(&mut self, mapping: &mut dyn Mapping, kind: RaKind, page: PageIndex, marked: Option<Folio>, req: u64) {
        let state = &mut self.state;
        let max = state.effective_max(mapping, req);
        let order = marked.map_or(0, |folio| folio.order);
        let trigger = (state.start + state.size).wrapping_sub(state.async_size) >> order << order;
        let mut initial = page.0 == 0;
        if initial {
            // The first page of the file always starts a stream.
        } else if page.0 == trigger || page.0 == state.start + state.size {
            state.start += state.size;
            state.size = state.size.max(next_size(state.size, max));
            state.async_size = state.size;
        } else if marked.is_some() {
            let (miss, last_probed) = first_miss_from(mapping, page.plus(1), max);
            let start = miss.unwrap_or(last_probed);
            if start == 0 || start.wrapping_sub(page.0) > max {
                return;
            }
            state.start = start;
            state.size = next_size(start - page.0 + req, max);
            state.async_size = state.size;
        } else if req > max || page.0.wrapping_sub(state.prev_page()) <= 1 {
            initial = true;
        } else {
            let mut history = cached_run_before(mapping, page, max);
            if history <= req {
                FolioState::plain(mapping, kind, page, req, 0);
                return;
            }
            if history >= page.0 {
                history *= 2;
            }
            state.start = page.0;
            state.size = (history + req).min(max);
            state.async_size = 1;
        }
        if initial {
            state.initial(page, req, max);
            if state.async_size == 0 {
                state.async_size = state.size;
            }
        }
        if page.0 == state.start && state.size == state.async_size {
            let add = next_size(state.size, max);
            if state.size + add <= max {
                state.async_size = add;
                state.size += add;
            } else {
                state.size = max;
                state.async_size = max / 2;
            }
        }
        self.submit(mapping, kind, order);
    }

    fn submit(&mut self, mapping: &mut dyn Mapping, kind: RaKind, hint: u8) {
        let state = &mut self.state;
        state.announce(mapping, hint);
        let large = mapping.limits().max_folio_order > 0;
        if !large || state.size < MIN_FOLIO_WINDOW {
            FolioState::plain(mapping, kind, PageIndex(state.start), state.size, state.async_size);
            return;
        }
        let mut order = hint;
        if order < MAX_ORDER {
            order = (order + 2).min(MAX_ORDER);
            while 1 << order > state.size {
                order -= 1;
            }
        }
        let (size, async_size) = (state.size, state.async_size);
        let (stop, early) = state.place(mapping, kind, Cut { order, skip_order_1: true });
        if early {
            FolioState::plain(mapping, kind, PageIndex(stop), size, async_size);
        } else if let Some(last) = super::parts::last_page(mapping) {
            // Only a window that starts after the end of the file grows here, for nothing.
            let limit = last.min(state.start + size - 1);
            state.size += stop - limit - 1;
            state.async_size += stop - limit - 1;
        }
    }
}

impl Readahead for Folios61 {
    fn style(&self) -> LoopStyle {
        LoopStyle::Batch { max_folios: 15, prev_pos_per_folio: true }
    }

    fn begin(&mut self, _mapping: &mut dyn Mapping, _request: &ReadRequest) -> Token {
        Token::default()
    }

    fn on_miss(&mut self, _call: Token, mapping: &mut dyn Mapping, page: PageIndex, nr_requested: u64) {
        if self.state.max == 0 {
            self.state.force(mapping, page, 1);
        } else if self.state.random {
            self.state.force(mapping, page, nr_requested);
        } else {
            self.decide(mapping, RaKind::Sync, page, None, nr_requested);
        }
    }

    fn on_marker(&mut self, _call: Token, mapping: &mut dyn Mapping, page: PageIndex, nr_requested: u64) {
        if self.state.max == 0 || mapping.under_writeback(page) {
            return;
        }
        let folio = mapping.folio(page).unwrap_or(Folio { first: page, order: 0 });
        mapping.clear_marker(page);
        self.decide(mapping, RaKind::Async, page, Some(folio), nr_requested);
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

    fn advise(&mut self, mapping: &mut dyn Mapping, advice: Advice) {
        self.state.advise(mapping, advice);
    }

    fn trace(&self) -> Vec<i64> {
        self.state.trace()
    }
}
