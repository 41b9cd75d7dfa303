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

use super::parts::probe::{cached_run_before, first_miss_from};
use super::parts::step;
use super::parts::{clipped, force_chunks, init_size, marker, max_sane, next_size, pages_touched, read_at_once};
use super::parts::{read_runs, word};
use super::{Advice, Build, FaultWindow, Limits, Mapping, ReadRequest, Readahead, StepText, Token};
use crate::event::RaKind;
use crate::origin::{Entry, Options, Origin};
use crate::read_loop::{Batches, LoopStyle};
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

/// The kernels of this family, by the changes that matter here, in their order.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kernel {
    V2_6_38,
    V4_4,
    V4_19,
    V5_4,
    V5_10,
    V5_15_85,
    V5_15,
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
            _ if nr_requested > self.max && limits.io_pages > self.max => nr_requested.min(limits.io_pages),
            _ => self.max,
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
            let Some(start) = self.hole_behind(mapping, at, max) else { return };
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
            if self.kernel >= Kernel::V4_19 && self.size + add > max {
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

    /// Where a stream that the state does not know goes on behind a marker; none if nobody knows that. Since 4.20
    /// the last of `max` cached pages counts as a hole.
    fn hole_behind(&self, mapping: &dyn Mapping, at: u64, max: u64) -> Option<u64> {
        if self.kernel >= Kernel::V5_4 {
            let (hole, last_probed) = first_miss_from(mapping, PageIndex(at + 1), max);
            return Some(hole.unwrap_or(last_probed)).filter(|&start| start > at && start - at <= max);
        }
        (at + 1..=at + max).find(|&page| !mapping.present(PageIndex(page)))
    }

    /// `try_context_readahead`: pages cached just before the miss show a stream that the state does not know.
    fn continue_history(&mut self, mapping: &dyn Mapping, at: u64, req: u64, max: u64) -> bool {
        let before = match self.kernel >= Kernel::V5_4 {
            true => cached_run_before(mapping, PageIndex(at), max, false),
            false => (0..max.min(at)).take_while(|back| mapping.present(PageIndex(at - 1 - back))).count() as u64,
        };
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

    /// `__do_page_cache_readahead`: one submission with holes until 4.4, one for each run since. The marker's place is
    /// counted from the end of the window, from 5.10 on from the end of what the file has of it.
    fn plain(&self, mapping: &mut dyn Mapping, kind: RaKind, start: PageIndex, nr_pages: u64, async_size: u64) {
        if self.kernel < Kernel::V4_19 {
            read_at_once(mapping, kind, start, nr_pages, Some(async_size));
            return;
        }
        let nr_clipped = clipped(mapping, start, nr_pages);
        let counted = if self.kernel >= Kernel::V5_10 { nr_clipped } else { nr_pages };
        read_runs(mapping, kind, start, nr_clipped, async_size, marker(start, counted, Some(async_size)));
    }

    /// `force_page_cache_readahead`.
    fn force(&self, mapping: &mut dyn Mapping, start: PageIndex, nr_pages: u64) {
        let limits = mapping.limits();
        let nr_pages = match self.kernel {
            Kernel::V2_6_38 => max_sane(limits, nr_pages),
            Kernel::V4_4 => nr_pages.min(limits.ra_pages),
            _ => nr_pages.min(limits.io_pages.max(self.max)),
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
        if self.kernel < Kernel::V5_15_85 {
            return LoopStyle::OnDemand;
        }
        let past_request = self.kernel == Kernel::V5_15_85;
        LoopStyle::Batch(Batches { max_folios: 15, prev_pos_per_folio: true, past_request, late_size: true })
    }

    fn begin(&mut self, _mapping: &mut dyn Mapping, _request: &ReadRequest) -> Token {
        if self.kernel >= Kernel::V5_15_85 {
            return Token::default();
        }
        // 0 is for what is done outside of calls.
        self.nr_calls = self.nr_calls.wrapping_add(1).max(1);
        let call = Token(self.nr_calls);
        self.calls.push((call, self.prev_pos));
        call
    }

    fn on_miss(&mut self, _call: Token, mapping: &mut dyn Mapping, page: PageIndex, nr_requested: u64) {
        if self.max == 0 {
            // Until 5.8 the page is then read alone.
            if self.kernel >= Kernel::V5_10 {
                self.force(mapping, page, 1);
            }
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
        if self.kernel >= Kernel::V5_15_85 {
            self.prev_pos = pos;
            return;
        }
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

    fn steps(&self) -> Vec<StepText> {
        let since = |kernel| self.kernel >= kernel;
        let mut steps = vec![
            step::one_rule(true),
            step::behind_window(true),
            step::next_window(false),
            step::in_vain(if since(Kernel::V5_4) { step::LAST_PROBED } else { step::ENDS }),
            step::history(since(Kernel::V5_4)),
            step::over_limit(since(Kernel::V4_19)),
            step::marker_from_clipped(since(Kernel::V5_10)),
            step::limit_0(since(Kernel::V5_10)),
            step::folios("single pages"),
        ];
        steps.push(match self.kernel {
            Kernel::V2_6_38 => ("cached pages before a miss", "show a stream, however few"),
            _ => ("cached pages before a miss", "show a stream if they are more than the request"),
        });
        steps.push(match since(Kernel::V4_19) {
            true => ("a cached page in a window", "splits it into two submissions"),
            false => ("a cached page in a window", "leaves a hole in its submission"),
        });
        steps
    }

    fn trace(&self) -> Vec<i64> {
        [self.start, self.size, self.async_size, self.max, self.prev_pos].map(word).to_vec()
    }
}
