//! 6.11 to 6.14 (and 6.18 and 7.2, which add to it): on-demand read-ahead on large folios; misses and markers are
//! decided apart.
//!
//! A miss starts a stream if it is the file's first page, larger than the limit, or next to the previous read; the tail
//! is what the request leaves, or half the window. A miss with more cached pages before it than it asks
//! for continues a stream that the state has forgotten. Any other miss is random: exactly the request is read and the
//! state stays. A marker where the state expects it moves the window on and enlarges it; another one makes the
//! policy look in the cache where that stream's next hole is. Windows are cut into folios: 6.12 adds 2 to the order of
//! the folio that carried the marker.
//!
//! Single steps changed with stable updates, too ([`Level`]). Before 6.12.9 a stream's window may shrink. Until 6.12.43
//! and in 6.11 to 6.16 a marker with a whole limit of cached pages behind it places its window at itself. A page in
//! the way of folios makes 6.12.5 and later, and 6.13, read the whole size again, the others the rest. 6.11 limits
//! orders by the page tables' largest.
//!
//! Source: Linux 6.11, 6.12, 6.14, mm/readahead.c, `page_cache_sync_ra`, `page_cache_async_ra`, `page_cache_ra_order`;
//! mm/filemap.c, `page_cache_next_miss`. In which level a step changed is from the stable review mails.
//!
//! Known deviations: memory never fails, and block cgroups are never congested.

use super::parts::folios::{Cut, FolioState};
use super::parts::probe::{cached_run_before, first_miss_from};
use super::parts::{last_page, next_size, step};
use super::{Advice, Build, FaultWindow, Folio, Limits, Mapping, ReadRequest, Readahead, StepText, Token};
use crate::event::RaKind;
use crate::origin::{Entry, Origin};
use crate::read_loop::{Batches, LoopStyle};
use crate::trace::RaInput;
use crate::units::PageIndex;

/// Single steps that changed between the kernels of this family.
#[derive(Copy, Clone, Debug)]
pub(super) struct Level {
    orders: Orders,
    /// The next window of a stream is at least as large as the last.
    keeps_size: bool,
    /// A look for a hole in vain ends at the marker itself, not behind what was looked at.
    vain_is_marker: bool,
    /// After a cached page in its way a window reads its rest, not its whole size.
    reads_rest: bool,
    /// Orders are limited by the mapping, not by the page tables alone.
    limit_of_mapping: bool,
    /// A whole limit of cached pages before a miss counts whole, not one page less.
    whole_history: bool,
    /// A window that ends with the file carries a marker.
    marks_end: bool,
}

const V6_12: Level = Level {
    orders: Orders::FromMarker,
    keeps_size: true,
    vain_is_marker: false,
    reads_rest: false,
    limit_of_mapping: true,
    whole_history: false,
    marks_end: true,
};
const V6_12_4: Level = Level { keeps_size: false, vain_is_marker: true, reads_rest: true, ..V6_12 };
/// 6.18.
pub(super) const V6_18: Level = Level { orders: Orders::FromState, reads_rest: true, ..V6_12 };
/// 7.2.
pub(super) const V7_2: Level = Level { whole_history: true, marks_end: false, ..V6_18 };

/// The common part of all entries.
const BASE: Entry<Build> = Entry {
    name: "",
    summary: "",
    origin: &[],
    options: &[],
    conformance: "",
    build: |_, limits| Folios::boxed(limits, V6_12),
};

const fn origin(kernels: &'static str, notes: &'static str) -> Origin {
    Origin { kernels, file: "mm/readahead.c, mm/filemap.c", function: FUNCTIONS, notes }
}

const FUNCTIONS: &str = "page_cache_sync_ra, page_cache_async_ra, page_cache_ra_order, page_cache_next_miss";
const DECISIONS: &str = "decisions compared case by case with the kernel's own functions";

/// 6.11.
pub const ENTRY_6_11: Entry<Build> = Entry {
    name: "linux-6.11",
    summary: "as 6.12.4; folios up to order 9 whatever the file system's limit",
    origin: &[origin("6.11.11", DECISIONS)],
    conformance: "golden vectors linux-6.11: 87 cases, every submission, folio, marker and state",
    build: |_, limits| Folios::boxed(limits, Level { limit_of_mapping: false, ..V6_12_4 }),
    ..BASE
};

/// 6.12 until its level 4.
pub const ENTRY_6_12_4: Entry<Build> = Entry {
    name: "linux-6.12.4",
    summary: "as 6.12.8; after a cached page in its way a window reads its rest only",
    origin: &[origin("6.12 .. 6.12.4", "all steps are in the vectors of 6.11, 6.12 and 6.14")],
    conformance: "none of its own: steps of linux-6.11, linux-6.12 and linux-6.14, which have vectors",
    build: |_, limits| Folios::boxed(limits, V6_12_4),
    ..BASE
};

/// 6.12 from its level 5 to 8.
pub const ENTRY_6_12_8: Entry<Build> = Entry {
    name: "linux-6.12.8",
    summary: "as 6.12.43; after a request over the limit the window of a stream falls back to the limit",
    origin: &[origin("6.12.5 .. 6.12.8", "all steps are in the vectors of 6.11, 6.12 and 6.14")],
    conformance: "none of its own: steps of linux-6.11, linux-6.12 and linux-6.14, which have vectors",
    build: |_, limits| Folios::boxed(limits, Level { reads_rest: false, ..V6_12_4 }),
    ..BASE
};

/// 6.12 from its level 9 to 43, and 6.13.
pub const ENTRY_6_12_43: Entry<Build> = Entry {
    name: "linux-6.12.43",
    summary: "as 6.12; a marker with cached pages all the way behind it places its window at itself",
    origin: &[origin("6.12.9 .. 6.12.43, 6.13", "all steps are in the vectors of 6.12 and 6.14")],
    conformance: "none of its own: steps of linux-6.12 and linux-6.14, which have vectors",
    build: |_, limits| Folios::boxed(limits, Level { vain_is_marker: true, ..V6_12 }),
    ..BASE
};

/// 6.12 from its level 44 on.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-6.12",
    summary: "on-demand read-ahead with markers on large folios; misses and markers decided apart",
    origin: &[origin("6.12.44 ..", "decisions compared case by case with the functions of 6.12.117")],
    conformance: "golden vectors linux-6.12: 113 cases, every submission, folio, marker and state",
    ..BASE
};

/// 6.14.
pub const ENTRY_6_14: Entry<Build> = Entry {
    name: "linux-6.14",
    summary: "as 6.12.43; after a cached page in its way a window reads its rest only",
    origin: &[origin("6.14", DECISIONS)],
    conformance: "golden vectors linux-6.14: 87 cases, every submission, folio, marker and state",
    build: |_, limits| Folios::boxed(limits, Level { vain_is_marker: true, reads_rest: true, ..V6_12 }),
    ..BASE
};

/// Largest folio order that page tables can map at once.
const MAX_ORDER: u8 = 9;

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

/// The policy of these kernels.
pub(super) struct Folios {
    state: FolioState,
    level: Level,
}

impl Folios {
    pub(super) fn boxed(limits: &Limits, level: Level) -> Box<dyn Readahead> {
        Box::new(Folios { state: FolioState::new(limits), level })
    }

    /// Cuts and submits the window of the state. `hint` is the order of the folio that carried the marker.
    fn submit(&mut self, mapping: &mut dyn Mapping, kind: RaKind, hint: u8) {
        let Level { orders, reads_rest, limit_of_mapping, marks_end, .. } = self.level;
        let max_order = match mapping.limits().max_folio_order {
            1.. if !limit_of_mapping => MAX_ORDER,
            order => order,
        };
        let state = &mut self.state;
        state.announce(mapping, if orders == Orders::FromState { state.order } else { hint });
        let whole = (PageIndex(state.start), state.size, state.async_size);
        // The tail of pages that are read one by one.
        let tail = |mapping: &dyn Mapping, end: u64| {
            let marks = marks_end || last_page(mapping).is_none_or(|last| end <= last);
            if marks { whole.2 } else { 0 }
        };
        let order = match orders {
            _ if state.size == 0 => return,
            Orders::FromMarker if max_order == 0 || state.size < MIN_FOLIO_WINDOW => {
                return FolioState::plain(mapping, kind, whole.0, whole.1, whole.2);
            }
            Orders::FromMarker if hint < max_order => hint + 2,
            Orders::FromMarker => hint,
            Orders::FromState if max_order == 0 => {
                state.order = 0;
                let tail = tail(mapping, whole.0.0 + whole.1);
                return FolioState::plain(mapping, kind, whole.0, whole.1, tail);
            }
            Orders::FromState => state.order,
        };
        let order = order.min(max_order).min(state.size.ilog2() as u8);
        if orders == Orders::FromState {
            state.order = order;
        }
        let (stop, early) = state.place(mapping, kind, Cut { order, skip_order_1: false, marks_end });
        if early {
            // The whole size, from where it stopped, goes past the window.
            let nr_pages = if reads_rest { whole.1 - (stop - whole.0.0) } else { whole.1 };
            let tail = tail(mapping, stop + nr_pages);
            FolioState::plain(mapping, kind, PageIndex(stop), nr_pages, tail);
        }
    }
}

impl Readahead for Folios {
    fn style(&self) -> LoopStyle {
        let (past_request, late_size) = (false, false);
        LoopStyle::Batch(Batches { max_folios: 31, prev_pos_per_folio: false, past_request, late_size })
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
            let mut history = cached_run_before(mapping, page, max, self.level.whole_history);
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
            let next = next_size(state.size, max);
            state.size = if self.level.keeps_size { next.max(state.size) } else { next };
        } else {
            let in_vain = if self.level.vain_is_marker { page.0 } else { page.0 + 1 + max };
            let start = first_miss_from(mapping, page.plus(1), max).0.unwrap_or(in_vain);
            if start == 0 || start.wrapping_sub(page.0) > max {
                return;
            }
            state.start = start;
            state.size = next_size(start - page.0 + nr_requested, max);
        }
        if self.level.orders == Orders::FromState {
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

    fn steps(&self) -> Vec<StepText> {
        let Level { orders, keeps_size, vain_is_marker, reads_rest, limit_of_mapping, whole_history, marks_end } =
            self.level;
        let mut steps = vec![
            step::one_rule(false),
            step::behind_window(false),
            step::next_window(keeps_size),
            step::in_vain(if vain_is_marker { step::AT_MARKER } else { step::ENDS }),
            step::folios(match orders {
                Orders::FromMarker => "two orders more than the folio with the marker",
                Orders::FromState => {
                    "two orders more with each marker, from single pages on; windows end where one would"
                }
            }),
            step::largest_folio(limit_of_mapping),
            step::in_the_way(reads_rest),
            step::marks_end(marks_end),
            step::history(!whole_history),
        ];
        steps.extend(step::SINCE_5_10);
        steps
    }

    fn trace(&self) -> Vec<i64> {
        let mut trace = self.state.trace();
        if self.level.orders == Orders::FromState {
            trace.push(i64::from(self.state.order));
        }
        trace
    }
}
