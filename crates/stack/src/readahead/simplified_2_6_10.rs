//! 2.6.10 to 2.6.22: "simplified readahead", with the size of the request.
//!
//! A current window and a window ahead, on a private copy for every call. An access that does not continue the
//! previous one turns the windows off and reads exactly the request (at most the limit). The first access at the start
//! of the file, or the second contiguous one, opens a window of 2 or 4 times the request. Crossing into the window
//! ahead makes it the current one and reads the next, twice or four times as large, a little smaller after a miss.
//! Windows ahead are not read while the queue is congested, unless the request needs them. When 256 pages in windows
//! turned out to be cached already, read-ahead stops (`INCACHE`) until the next miss.
//!
//! Source: Linux 2.6.22, mm/readahead.c, `page_cache_readahead`, `make_ahead_window`, `handle_ra_miss`; mm/filemap.c,
//! `do_generic_mapping_read`.
//!
//! Known deviations: none known.

use super::parts::{Copies, force_chunks, init_size, max_sane, next_size, pages_touched, read_at_once, word};
use super::{Advice, Build, Limits, Mapping, ReadRequest, Readahead, Token};
use crate::event::{RaClose, RaKind};
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::read_loop::LoopStyle;
use crate::units::PageIndex;

/// 2.6.22.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-2.6.22",
    summary: "simplified read-ahead told the request's size; stops after 256 pages that were cached already",
    origin: &[Origin {
        kernels: "2.6.10 .. 2.6.22",
        file: "mm/readahead.c",
        function: "page_cache_readahead, make_ahead_window, handle_ra_miss",
        notes: "decisions compared case by case with the functions of 2.6.22.19",
    }],
    options: &[OptionSpec::number(
        "max_cache_hit",
        256,
        (1, 1 << 30),
        "pages found cached in windows before read-ahead stops (VM_MAX_CACHE_HIT)",
    )],
    conformance: "golden vectors linux-2.6.22: 117 cases, every submission and state",
    build,
};

/// Pages of a window ahead after a miss, at least (16 KiB).
const MIN: u64 = 4;
/// A page was absent when it was wanted (`RA_FLAG_MISS`).
const MISS: u64 = 1;
/// The file seems to be cached (`RA_FLAG_INCACHE`).
const INCACHE: u64 = 2;

fn build(options: &Options, limits: &Limits) -> Box<dyn Readahead> {
    let shared = State {
        start: 0,
        size: 0,
        flags: 0,
        hits: 0,
        last: u64::MAX,
        ahead_start: 0,
        ahead_size: 0,
        max: limits.ra_pages,
    };
    Box::new(Simplified { shared, copies: Copies::new(), max_cache_hit: options.unsigned("max_cache_hit") })
}

/// `struct file_ra_state`, in machine words that may wrap.
#[derive(Copy, Clone, Debug)]
struct State {
    start: u64,
    size: u64,
    flags: u64,
    /// Pages found cached in windows since the last new one.
    hits: u64,
    /// Last page of the previous access; all ones before the first.
    last: u64,
    ahead_start: u64,
    ahead_size: u64,
    max: u64,
}

/// A call's own state.
#[derive(Copy, Clone, Debug)]
struct Call {
    state: State,
    end_page: u64,
}

struct Simplified {
    shared: State,
    copies: Copies<Call>,
    max_cache_hit: u64,
}

impl State {
    /// `page_cache_readahead`: the page at which to ask again.
    fn access(&mut self, mapping: &mut dyn Mapping, page: u64, nr_requested: u64, max_cache_hit: u64) -> u64 {
        let (mut page, mut nr_requested) = (page, nr_requested);
        if page == self.last {
            nr_requested -= 1;
            if nr_requested > 0 {
                page += 1;
            }
        }
        let sequential = page == self.last.wrapping_add(1);
        self.last = page;
        let nr_wanted = nr_requested.min(self.max);
        if nr_wanted == 0 || self.flags & INCACHE != 0 {
            return self.last.wrapping_add(1);
        }
        self.last += nr_wanted - 1;
        if sequential && self.size == 0 {
            self.size = init_size(nr_wanted, self.max);
            self.start = page;
            if self.read(mapping, RaKind::Sync, page, self.size, max_cache_hit) && nr_requested >= self.max {
                self.ahead(mapping, true, max_cache_hit);
            }
        } else if !sequential {
            self.turn_off();
            self.read(mapping, RaKind::Sync, page, nr_wanted, max_cache_hit);
        } else {
            let go_on = self.ahead_start != 0 || self.ahead(mapping, false, max_cache_hit);
            if go_on && self.last >= self.ahead_start {
                (self.start, self.size) = (self.ahead_start, self.ahead_size);
                self.ahead(mapping, false, max_cache_hit);
                self.stay_within_ahead();
            } else if !go_on {
                self.stay_within_ahead();
            }
        }
        self.last.wrapping_add(1)
    }

    fn stay_within_ahead(&mut self) {
        self.last = self.last.min(self.ahead_start.wrapping_add(self.ahead_size).wrapping_sub(1));
    }

    /// `make_ahead_window`: reads the window after the current one.
    fn ahead(&mut self, mapping: &mut dyn Mapping, force: bool, max_cache_hit: u64) -> bool {
        let size = if self.flags & MISS != 0 {
            self.flags &= !MISS;
            self.size.wrapping_sub(2).max(MIN)
        } else {
            next_size(self.size, self.max)
        };
        self.ahead_size = size.min(self.max);
        self.ahead_start = self.start.wrapping_add(self.size);
        let needed = force || self.last >= self.ahead_start;
        let read = (needed || !mapping.congested())
            && self.read(mapping, RaKind::Async, self.ahead_start, self.ahead_size, max_cache_hit);
        if !read && !force {
            self.reset_ahead();
        }
        read
    }

    /// Forgets the window ahead. Its end is kept as its size, which keeps the last page from being moved back.
    fn reset_ahead(&mut self) {
        self.ahead_size = self.ahead_size.wrapping_add(self.ahead_start);
        self.ahead_start = 0;
    }

    fn turn_off(&mut self) {
        (self.start, self.size, self.flags) = (0, 0, 0);
        self.reset_ahead();
    }

    /// Reads the absent pages of a window; fails if the file seems to be cached.
    fn read(&mut self, mapping: &mut dyn Mapping, kind: RaKind, start: u64, nr_pages: u64, max_cache_hit: u64) -> bool {
        if read_at_once(mapping, kind, PageIndex(start), nr_pages, None) > 0 {
            self.hits = 0;
            return true;
        }
        self.hits += nr_pages;
        if self.hits < max_cache_hit {
            return true;
        }
        self.turn_off();
        self.flags |= INCACHE;
        mapping.closed(RaClose::Hits);
        false
    }
}

impl Readahead for Simplified {
    fn style(&self) -> LoopStyle {
        LoopStyle::AskFirst
    }

    fn begin(&mut self, _mapping: &mut dyn Mapping, request: &ReadRequest) -> Token {
        self.copies.take(Call { state: self.shared, end_page: request.end_page().0 })
    }

    fn on_page(&mut self, call: Token, mapping: &mut dyn Mapping, page: PageIndex, _remaining_bytes: u64) -> PageIndex {
        let call = self.copies.get(call);
        PageIndex(call.state.access(mapping, page.0, call.end_page - page.0, self.max_cache_hit))
    }

    fn on_miss(&mut self, call: Token, mapping: &mut dyn Mapping, _page: PageIndex, _nr_requested: u64) {
        let state = &mut self.copies.get(call).state;
        if state.flags & INCACHE != 0 {
            mapping.reopened();
        }
        state.flags = (state.flags | MISS) & !INCACHE;
        state.hits = 0;
    }

    fn end(&mut self, call: Token, _pos: u64) {
        self.shared = self.copies.give_back(call).state;
    }

    fn advise(&mut self, mapping: &mut dyn Mapping, advice: Advice) {
        let limits = mapping.limits();
        match advice {
            Advice::Normal => self.shared.max = limits.ra_pages,
            Advice::Random => self.shared.max = 0,
            Advice::Sequential => self.shared.max = 2 * limits.ra_pages,
            Advice::WillNeed { offset, len_bytes } => {
                let (first, nr_pages) = pages_touched(offset, len_bytes);
                force_chunks(mapping, first, max_sane(limits, nr_pages), |mapping, start, nr_pages| {
                    read_at_once(mapping, RaKind::Force, start, nr_pages, None);
                });
            }
        }
    }

    fn trace(&self) -> Vec<i64> {
        let State { start, size, flags, hits, last, ahead_start, ahead_size, max } = self.shared;
        [start, size, flags, hits, last, ahead_start, ahead_size, max].map(word).to_vec()
    }
}
