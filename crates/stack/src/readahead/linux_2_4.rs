//! 2.4.25: read-ahead around the page that is locked for I/O.
//!
//! A call outside the window covered by the last two read-aheads resets the state. Before it looks at a page, each
//! call raises the amount to read ahead to what it needs itself (and to `min_readahead` if it was inside). The absent
//! page is read alone; while it is locked, the policy reads as many pages after it (synchronous case). A page found
//! unlocked near the end of the read-ahead area makes it read on from there (asynchronous case). Each read-ahead
//! doubles the amount, up to the limit. The state is shared, but since every call raises the amount to its own need,
//! concurrent calls never make it fall back to page-by-page reading.
//!
//! Source: Linux 2.4.25, mm/filemap.c, `do_generic_file_read` and `generic_file_readahead`.
//!
//! Known deviations: the bound is the text of 2.4.25 only (2.4.22 and before, 2.4.26 and later stop a page earlier).
//! `readahead(2)` is not modelled, and `posix_fadvise` did not exist: advice is ignored.

use super::parts::word;
use super::{Advice, Build, Limits, Mapping, ReadRequest, Readahead, Token, Window};
use crate::event::RaKind;
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::read_loop::LoopStyle;
use crate::units::{PAGE_BYTES, PageIndex};

/// 2.4.25.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-2.4.25",
    summary: "reads ahead around the locked page; every call raises the amount to its own need",
    origin: &[Origin {
        kernels: "2.4.25",
        file: "mm/filemap.c",
        function: "do_generic_file_read, generic_file_readahead",
        notes: "decisions compared case by case with the kernel's own functions, under two models of when I/O ends",
    }],
    options: &[OptionSpec::number(
        "min_readahead",
        3,
        (0, 1 << 20),
        "fewest pages to read ahead within the window (vm.min-readahead)",
    )],
    conformance: "golden vectors linux-2.4.25: 218 cases, every submission and state",
    build,
};

fn build(options: &Options, limits: &Limits) -> Box<dyn Readahead> {
    Box::new(Linux24 { min: options.unsigned("min_readahead"), max: limits.ra_pages, ..Linux24::default() })
}

/// The fields of `struct file`.
#[derive(Clone, Debug, Default)]
struct Linux24 {
    min: u64,
    max: u64,
    /// Has been read (`f_reada`).
    read: bool,
    /// Current amount (`f_ramax`).
    amount: u64,
    /// Page after the last one read ahead (`f_raend`).
    end: u64,
    /// Length of the last read-ahead (`f_ralen`).
    len: u64,
    /// Pages covered by the last two (`f_rawin`).
    covered: u64,
}

/// The token records whether the call began inside the window.
const INSIDE: Token = Token(1);
const OUTSIDE: Token = Token(0);

impl Readahead for Linux24 {
    fn style(&self) -> LoopStyle {
        LoopStyle::Linux24
    }

    fn begin(&mut self, _mapping: &mut dyn Mapping, request: &ReadRequest) -> Token {
        let page = request.first_page().0;
        let inside = page <= self.end && page + self.covered >= self.end;
        if !inside {
            (self.amount, self.end, self.len, self.covered) = (0, 0, 0, 0);
        }
        let needed_bytes = (request.offset % PAGE_BYTES).saturating_add(request.len_bytes);
        if page == 0 && needed_bytes <= PAGE_BYTES / 2 {
            self.amount = 0;
        } else {
            self.amount = self.amount.max(needed_bytes / PAGE_BYTES + 1);
            if inside {
                self.amount = self.amount.max(self.min);
            }
            self.amount = self.amount.min(self.max);
        }
        if inside { INSIDE } else { OUTSIDE }
    }

    fn on_page(&mut self, call: Token, mapping: &mut dyn Mapping, page: PageIndex, _remaining_bytes: u64) -> PageIndex {
        // For a size that is a multiple of the page size this is one page too far, as in the kernel.
        let file_end = mapping.size_bytes() / PAGE_BYTES;
        let page = page.0;
        let mut end = self.end;
        let mut wanted = 0;
        let mut kind = RaKind::Sync;
        if mapping.locked(PageIndex(page)) {
            if self.len == 0 || page >= end || page + self.covered < end {
                end = page;
                if end < file_end {
                    wanted = self.amount;
                }
                self.covered = 0;
                self.len = 1;
                if wanted == 0 {
                    self.end = page + 1;
                    self.covered += 1;
                }
            }
        } else if call == INSIDE && self.amount != 0 && end >= 1 && page <= end && page + self.len >= end {
            kind = RaKind::Async;
            end -= 1;
            if end < file_end {
                wanted = self.amount + 1;
                self.covered = self.len;
                self.len = 0;
            }
        }
        // Cached pages count too: the kernel does not ask what it found.
        let ahead = wanted.min(file_end.saturating_sub(end));
        if ahead > 0 {
            let start = PageIndex(end + 1);
            mapping.read_pages(&Window { kind, start, nr_pages: ahead, async_size: None, marker: None });
            self.len += ahead;
            self.covered += self.len;
            self.end = end + ahead + 1;
            self.amount = (2 * self.amount).min(self.max);
        }
        PageIndex(page + 1)
    }

    fn end(&mut self, _call: Token, _pos: u64) {
        self.read = true;
    }

    fn advise(&mut self, _mapping: &mut dyn Mapping, _advice: Advice) {}

    fn trace(&self) -> Vec<i64> {
        [u64::from(self.read), self.amount, self.end, self.len, self.covered].map(word).to_vec()
    }
}
