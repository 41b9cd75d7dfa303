//! 6.1 to 6.10: on-demand read-ahead on large folios, one decision for misses and markers.
//!
//! A page that is where the state expects it (the marker, or the page after the window) moves the window on and
//! enlarges it. A marker that the state does not know makes the policy look in the cache how far that stream has come.
//! A first page of the file, a request larger than the limit, or a page next to the previous read starts a stream. A
//! run of cached pages before the page that is longer than the request shows a stream too. Anything else is random and
//! is read exactly. A window that would be all tail gets the next one as its tail, if the limit allows. Windows are
//! cut into folios whose order grows by 2 with every marker, except that order 1 is not used.
//!
//! Stable updates changed single steps ([`Level`]): until 6.1.12 a batch has the page behind the request; from 6.6 on
//! the position is stored once a call; order 1 is used from 6.6.62 on; and a stream's window never shrinks from 6.1.124
//! and 6.6.70 on. 6.8 has the steps of 6.6.57; 6.9 and 6.10 those of 6.6.69, with batches of 31.
//!
//! Source: Linux 6.1, 6.6, 6.8, mm/readahead.c, `ondemand_readahead` and `page_cache_ra_order`; mm/filemap.c,
//! `filemap_read`. In which level a step changed is from the stable review mails.
//!
//! Known deviations: memory never fails, and block cgroups are never congested.

use super::parts::folios::{Cut, FolioState};
use super::parts::probe::{cached_run_before, first_miss_from};
use super::parts::{next_size, step};
use super::{Advice, Build, FaultWindow, Folio, Limits, Mapping, ReadRequest, Readahead, StepText, Token};
use crate::event::RaKind;
use crate::origin::{Entry, Origin};
use crate::read_loop::{Batches, LoopStyle};
use crate::units::PageIndex;

/// Single steps that changed between the kernels of this family.
#[derive(Copy, Clone, Debug)]
struct Level {
    /// Most folios in a batch.
    max_folios: u8,
    /// A batch may have the page behind the request.
    past_request: bool,
    /// The position is stored after each folio.
    prev_pos_per_folio: bool,
    /// The next window of a stream is at least as large as the last.
    keeps_size: bool,
    /// Folios of order 1 are used.
    order_1: bool,
}

const V6_1: Level =
    Level { max_folios: 15, past_request: false, prev_pos_per_folio: true, keeps_size: true, order_1: false };
const V6_6: Level = Level { prev_pos_per_folio: false, order_1: true, ..V6_1 };

/// The common part of all entries.
const BASE: Entry<Build> =
    Entry { name: "", summary: "", origin: &[], options: &[], conformance: "", build: |_, limits| boxed(limits, V6_1) };

const fn origin(kernels: &'static str, notes: &'static str) -> Origin {
    Origin { kernels, file: "mm/readahead.c, mm/filemap.c", function: FUNCTIONS, notes }
}

const FUNCTIONS: &str = "ondemand_readahead, page_cache_ra_order, filemap_read";
const DECISIONS: &str = "decisions compared case by case with the kernel's own functions";

/// 6.1 until its level 12.
pub const ENTRY_6_1_12: Entry<Build> = Entry {
    name: "linux-6.1.12",
    summary: "as 6.1.123; batches have the page behind the request, so that its marker is met one call early",
    origin: &[origin("6.1 .. 6.1.12", "the vectors of 5.15.85 have the same batches")],
    conformance: "none of its own: steps of linux-6.1 and linux-5.15.85, which have vectors",
    build: |_, limits| boxed(limits, Level { past_request: true, keeps_size: false, ..V6_1 }),
    ..BASE
};

/// 6.1 from its level 13 to 123.
pub const ENTRY_6_1_123: Entry<Build> = Entry {
    name: "linux-6.1.123",
    summary: "as 6.1; after a request over the limit the window of a stream falls back to the limit",
    origin: &[origin("6.1.13 .. 6.1.123", "the vectors of 6.6.57 have the same windows")],
    conformance: "none of its own: steps of linux-6.1 and linux-6.6.57, which have vectors",
    build: |_, limits| boxed(limits, Level { keeps_size: false, ..V6_1 }),
    ..BASE
};

/// 6.1 from its level 124 on.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-6.1",
    summary: "on-demand read-ahead with markers on large folios, one rule for misses and markers",
    origin: &[origin("6.1.124 ..", "decisions compared case by case with the functions of 6.1.192")],
    conformance: "golden vectors linux-6.1: 113 cases, every submission, folio, marker and state",
    ..BASE
};

/// 6.6 until its level 61, and 6.8.
pub const ENTRY_6_6_57: Entry<Build> = Entry {
    name: "linux-6.6.57",
    summary: "as 6.1.123; the position is stored once a call",
    origin: &[origin("6.6 .. 6.6.61, 6.8", DECISIONS)],
    conformance: "golden vectors linux-6.6.57 and linux-6.8: 87 cases each, every submission, folio, marker and state",
    build: |_, limits| boxed(limits, Level { keeps_size: false, order_1: false, ..V6_6 }),
    ..BASE
};

/// 6.6 from its level 62 to 69.
pub const ENTRY_6_6_69: Entry<Build> = Entry {
    name: "linux-6.6.69",
    summary: "as 6.6.57; folios of order 1 are used",
    origin: &[origin("6.6.62 .. 6.6.69", "both steps are in the vectors of 6.6.57 and 6.6.87")],
    conformance: "none of its own: steps of linux-6.6 and linux-6.6.57, which have vectors",
    build: |_, limits| boxed(limits, Level { keeps_size: false, ..V6_6 }),
    ..BASE
};

/// 6.6 from its level 70 on.
pub const ENTRY_6_6: Entry<Build> = Entry {
    name: "linux-6.6",
    summary: "as 6.6.69; the window of a stream never shrinks",
    origin: &[origin("6.6.70 ..", "decisions compared case by case with the functions of 6.6.87")],
    conformance: "golden vectors linux-6.6: 87 cases, every submission, folio, marker and state",
    build: |_, limits| boxed(limits, V6_6),
    ..BASE
};

/// 6.9 and 6.10.
pub const ENTRY_6_10: Entry<Build> = Entry {
    name: "linux-6.10",
    summary: "as 6.6.69; batches of 31 folios",
    origin: &[origin("6.9 .. 6.10", "from the mails that brought its steps; all are in vectors of other kernels")],
    conformance: "none of its own: steps of linux-6.6, linux-6.6.57 and linux-6.11, which have vectors",
    build: |_, limits| boxed(limits, Level { keeps_size: false, max_folios: 31, ..V6_6 }),
    ..BASE
};

/// Largest folio order that page tables can map at once, and this kernel's only limit on orders.
const MAX_ORDER: u8 = 9;
/// Smaller windows are not worth large folios.
const MIN_FOLIO_WINDOW: u64 = 4;

fn boxed(limits: &Limits, level: Level) -> Box<dyn Readahead> {
    Box::new(Folios61 { state: FolioState::new(limits), level })
}

struct Folios61 {
    state: FolioState,
    level: Level,
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
            let next = next_size(state.size, max);
            state.size = if self.level.keeps_size { next.max(state.size) } else { next };
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
            let mut history = cached_run_before(mapping, page, max, false);
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
        let (stop, early) =
            state.place(mapping, kind, Cut { order, skip_order_1: !self.level.order_1, marks_end: true });
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
        let Level { max_folios, past_request, prev_pos_per_folio, .. } = self.level;
        LoopStyle::Batch(Batches { max_folios, prev_pos_per_folio, past_request, late_size: false })
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

    fn steps(&self) -> Vec<StepText> {
        let Level { keeps_size, order_1, .. } = self.level;
        let mut steps = vec![
            step::one_rule(true),
            step::behind_window(true),
            step::next_window(keeps_size),
            step::in_vain(step::LAST_PROBED),
            step::folios(if order_1 {
                "two orders more than the folio with the marker"
            } else {
                "two orders more than the folio with the marker, but never order 1"
            }),
            step::largest_folio(false),
            step::in_the_way(false),
            step::marks_end(true),
            step::history(true),
        ];
        steps.extend(step::SINCE_5_10);
        steps
    }

    fn trace(&self) -> Vec<i64> {
        self.state.trace()
    }
}
