//! 2.6.23 to 3.x: on-demand read-ahead, asked about misses and markers only.
//!
//! The first page of the tail of each window carries a marker; reaching it reads the next window, twice or four times
//! as large. A miss where the state expects one (the tail's start, or the page after the window) does the same. A
//! marker that the state does not know makes the policy look in the cache where that stream ends. A miss at the first
//! page of the file, of a request larger than the limit, or next to the previous page starts a stream; so does one
//! with cached pages just before it. Any other miss is random: exactly the request is read and the state stays. A
//! window that would be all tail gets the next window as its tail, up to twice the limit.
//!
//! A call stores the last position when it ends: where it copied to, or, if it copied nothing, the position that it
//! found when it began, over whatever another call on the open file has stored meanwhile.
//!
//! Source: Linux 2.6.38, mm/readahead.c, `ondemand_readahead`; mm/filemap.c, `do_generic_file_read`.
//!
//! Known deviations: POSIX_FADV_RANDOM sets a flag, as since 2.6.34; before that it set the limit to 0.

use super::parts::{clipped, force_chunks, init_size, marker, max_sane, next_size, pages_touched, read_at_once};
use super::parts::{read_runs, word};
use super::{Advice, Build, FaultWindow, Limits, Mapping, ReadRequest, Readahead, Token};
use crate::event::RaKind;
use crate::origin::{Entry, Options, Origin};
use crate::read_loop::LoopStyle;
use crate::units::{PAGE_BYTES, PageIndex};

/// 2.6.38; 2.6.39 and 3.2 too.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-2.6.38",
    summary: "on-demand read-ahead with markers; a request over the limit reads twice the limit",
    origin: &[Origin {
        kernels: "2.6.34 .. 3.2",
        file: "mm/readahead.c",
        function: "ondemand_readahead",
        notes: "decisions compared case by case with the kernel's own functions; 2.6.38, 2.6.39 and 3.2 are identical",
    }],
    options: &[],
    conformance: "golden vectors linux-2.6.38: 117 cases, every submission, marker and state",
    build,
};

fn build(_options: &Options, limits: &Limits) -> Box<dyn Readahead> {
    OnDemand::boxed(limits, Kernel::V2_6_38)
}

/// The kernels of this family, by the changes that matter here.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    V2_6_38,
    V4_4,
    V4_19,
}

/// The read-ahead state of an open file (`struct file_ra_state` and its random flag).
pub(super) struct OnDemand {
    kernel: Kernel,
    start: u64,
    size: u64,
    async_size: u64,
    max: u64,
    /// Last page touched and the offset in it where the next read would go on; all ones at open.
    prev_pos: u64,
    random: bool,
    /// Calls that have copied nothing yet, with the position that each found.
    calls: Vec<(Token, u64)>,
    nr_calls: u32,
}

impl OnDemand {
    pub(super) fn boxed(limits: &Limits, kernel: Kernel) -> Box<dyn Readahead> {
        Box::new(OnDemand {
            kernel,
            start: 0,
            size: 0,
            async_size: 0,
            max: limits.ra_pages,
            prev_pos: u64::MAX,
            random: false,
            calls: Vec::new(),
            nr_calls: 0,
        })
    }

    fn effective_max(&self, limits: Limits, nr_requested: u64) -> u64 {
        match self.kernel {
            Kernel::V2_6_38 => max_sane(limits, self.max),
            Kernel::V4_4 => self.max,
            Kernel::V4_19 if nr_requested > self.max && limits.io_pages > self.max => nr_requested.min(limits.io_pages),
            Kernel::V4_19 => self.max,
        }
    }

    /// `ondemand_readahead`.
    fn decide(&mut self, mapping: &mut dyn Mapping, kind: RaKind, page: PageIndex, nr_requested: u64) {
        let max = self.effective_max(mapping.limits(), nr_requested);
        let (at, req) = (page.0, nr_requested);
        let window_end = self.start + self.size;
        let prev_page = self.prev_page();
        if at == 0 {
            self.initial(at, req, max);
        } else if at == window_end.wrapping_sub(self.async_size) || at == window_end {
            self.start = window_end;
            self.size = next_size(self.size, max);
            self.async_size = self.size;
        } else if kind == RaKind::Async {
            let probed = (at + 1..=at + max).find(|&page| !mapping.present(PageIndex(page)));
            let Some(start) = probed else { return };
            self.start = start;
            self.size = next_size(start - at + req, max);
            self.async_size = self.size;
        } else if req > max || at.wrapping_sub(prev_page) <= 1 {
            self.initial(at, req, max);
        } else if !self.continue_history(mapping, at, req, max) {
            return self.plain(mapping, kind, page, req, 0);
        }
        if at == self.start && self.size == self.async_size {
            let add = next_size(self.size, max);
            if self.kernel == Kernel::V4_19 && self.size + add > max {
                self.size = max;
                self.async_size = max / 2;
            } else {
                self.async_size = add;
                self.size += add;
            }
        }
        self.plain(mapping, kind, PageIndex(self.start), self.size, self.async_size);
    }

    fn initial(&mut self, at: u64, req: u64, max: u64) {
        self.start = at;
        self.size = init_size(req, max);
        self.async_size = if self.size > req { self.size - req } else { self.size };
    }

    /// `try_context_readahead`: pages cached just before the miss show a stream that the state does not know.
    fn continue_history(&mut self, mapping: &dyn Mapping, at: u64, req: u64, max: u64) -> bool {
        let before = (0..max.min(at)).take_while(|back| mapping.present(PageIndex(at - 1 - back))).count() as u64;
        let enough = if self.kernel == Kernel::V2_6_38 { 0 } else { req };
        if before <= enough {
            return false;
        }
        let history = if before >= at { 2 * before } else { before };
        self.start = at;
        if self.kernel == Kernel::V2_6_38 {
            self.size = init_size(history + req, max);
            self.async_size = self.size;
        } else {
            self.size = (history + req).min(max);
            self.async_size = 1;
        }
        true
    }

    /// `__do_page_cache_readahead`: one submission with holes until 4.4, one for each run in 4.19.
    fn plain(&self, mapping: &mut dyn Mapping, kind: RaKind, start: PageIndex, nr_pages: u64, async_size: u64) {
        if self.kernel == Kernel::V4_19 {
            let marker = marker(start, nr_pages, Some(async_size));
            let nr_pages = clipped(mapping, start, nr_pages);
            read_runs(mapping, kind, start, nr_pages, async_size, marker);
        } else {
            read_at_once(mapping, kind, start, nr_pages, Some(async_size));
        }
    }

    /// `force_page_cache_readahead`.
    fn force(&self, mapping: &mut dyn Mapping, start: PageIndex, nr_pages: u64) {
        let limits = mapping.limits();
        let nr_pages = match self.kernel {
            Kernel::V2_6_38 => max_sane(limits, nr_pages),
            Kernel::V4_4 => nr_pages.min(limits.ra_pages),
            Kernel::V4_19 => nr_pages.min(limits.io_pages.max(self.max)),
        };
        force_chunks(mapping, start, nr_pages, |mapping, start, nr_pages| {
            self.plain(mapping, RaKind::Force, start, nr_pages, 0);
        });
    }
}

impl Readahead for OnDemand {
    fn kicks_queue(&self) -> bool {
        self.kernel == Kernel::V2_6_38
    }

    fn style(&self) -> LoopStyle {
        LoopStyle::OnDemand
    }

    fn begin(&mut self, _mapping: &mut dyn Mapping, _request: &ReadRequest) -> Token {
        // 0 is for what is done outside of calls.
        self.nr_calls = self.nr_calls.wrapping_add(1).max(1);
        let call = Token(self.nr_calls);
        self.calls.push((call, self.prev_pos));
        call
    }

    fn on_miss(&mut self, _call: Token, mapping: &mut dyn Mapping, page: PageIndex, nr_requested: u64) {
        if self.max == 0 {
            // The page is then read alone.
        } else if self.random {
            self.force(mapping, page, nr_requested);
        } else {
            self.decide(mapping, RaKind::Sync, page, nr_requested);
        }
    }

    fn on_marker(&mut self, _call: Token, mapping: &mut dyn Mapping, page: PageIndex, nr_requested: u64) {
        if self.max == 0 || mapping.under_writeback(page) {
            return;
        }
        mapping.clear_marker(page);
        // The marker is nonetheless gone: the stream goes on at the next miss.
        if !mapping.congested() {
            self.decide(mapping, RaKind::Async, page, nr_requested);
        }
    }

    fn copied(&mut self, call: Token, pos: u64) {
        self.calls.retain(|(other, _)| *other != call);
        let last_page = (pos - 1) / PAGE_BYTES;
        self.prev_pos = last_page * PAGE_BYTES + pos % PAGE_BYTES;
    }

    fn end(&mut self, call: Token, _pos: u64) {
        if let Some(at) = self.calls.iter().position(|(other, _)| *other == call) {
            self.prev_pos = self.calls.remove(at).1;
        }
    }

    fn max_pages(&self) -> u64 {
        self.max
    }

    fn prev_page(&self) -> u64 {
        (self.prev_pos as i64 >> PAGE_BYTES.trailing_zeros()) as u64
    }

    fn fault_window(&mut self, mapping: &mut dyn Mapping, window: &FaultWindow) {
        (self.start, self.size, self.async_size) = (window.start.0, window.size, window.async_size);
        self.plain(mapping, window.kind, window.start, window.size, window.async_size);
    }

    fn advise(&mut self, mapping: &mut dyn Mapping, advice: Advice) {
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

    fn trace(&self) -> Vec<i64> {
        [self.start, self.size, self.async_size, self.max, self.prev_pos].map(word).to_vec()
    }
}
