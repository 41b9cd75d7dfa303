//! 2.6.5 to 2.6.6: adaptive lazy read-ahead, asked about every page, its state shared by all calls on an open file.
//!
//! A current window and perhaps a window ahead of it. The first access reads half the limit. An access inside the
//! current window (or just after it) adds 2 to the length of the next I/O, one outside takes 2 away; at 0 read-ahead
//! turns OFF. An access outside starts a new window there, as long as the previous access got into the old one, plus
//! 2. An access inside reads the window ahead at once if runs are long, or else when the window's last page comes. A
//! window that brings nothing new (all cached, or the queue was congested) costs 1. A page that is absent nonetheless
//! costs
//! 3; when OFF, such misses are counted instead, and as many in sequence as the limit turn read-ahead on again. Two
//! calls whose pages alternate are outside each other's window all the time: a handful of accesses turns it OFF.
//!
//! Source: Linux 2.6.6-rc3, mm/readahead.c, `page_cache_readahead` and `handle_ra_miss`; mm/filemap.c,
//! `do_generic_mapping_read`. 2.6.5 and 2.6.6 decide alike.
//!
//! Known deviations: POSIX_FADV_WILLNEED counts whole pages of the length, as 2.6.5 and 2.6.6-rc3 do; 2.6.6 counts the
//! pages touched.

use super::parts::{Copies, clipped, force_chunks, max_sane, pages_touched, read_at_once, word};
use super::{Advice, Build, Limits, Mapping, ReadRequest, Readahead, Token};
use crate::event::{RaClose, RaKind};
use crate::origin::{Entry, Options, Origin};
use crate::read_loop::LoopStyle;
use crate::units::{PAGE_BYTES, PageIndex};

/// 2.6.6-rc3; 2.6.5 and 2.6.6 too.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-2.6.6-rc3",
    summary: "adaptive lazy read-ahead asked page by page; interleaved calls on one open file turn it off",
    origin: &[Origin {
        kernels: "2.6.5 .. 2.6.6",
        file: "mm/readahead.c",
        function: "page_cache_readahead, handle_ra_miss",
        notes: "decisions compared case by case with the kernel's own functions; 2.6.5, -rc3 and 2.6.6 are identical",
    }],
    options: &[],
    conformance: "golden vectors linux-2.6.6-rc3: 135 cases, every submission and state",
    build,
};

/// The next I/O is this long when read-ahead is off.
const OFF: u64 = u64::MAX;
/// Pages that are read ahead at least, if at all (16 KiB).
const MIN: u64 = 4;

fn build(_options: &Options, limits: &Limits) -> Box<dyn Readahead> {
    Lazy::boxed(limits, Variant::LINUX_2_6_6)
}

/// The position that the read loop passes to the policy.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Position {
    Page,
    /// The page plus the number of bytes still to copy: a mistake of the patch as posted.
    PagePlusBytes,
    /// The page plus the number of whole pages still to copy: the intention of the patch.
    PagePlusPages,
}

/// Differences between the kernels and patches of this family.
#[derive(Copy, Clone, Debug)]
pub(super) struct Variant {
    /// The position that the loop passes.
    pub(super) told: Position,
    /// Every call first reads its whole pages by force.
    pub(super) populate: bool,
    /// Every call works on its own copy of the state.
    pub(super) private_copy: bool,
    /// The arithmetic of "speed up readahead for seeky loads".
    pub(super) seeky: bool,
    /// POSIX_FADV_WILLNEED counts the pages touched.
    pub(super) willneed_touched: bool,
}

impl Variant {
    pub(super) const LINUX_2_6_6: Variant =
        Variant { told: Position::Page, populate: false, private_copy: false, seeky: false, willneed_touched: false };
}

/// `struct file_ra_state`, in machine words that may wrap.
#[derive(Copy, Clone, Debug)]
struct State {
    start: u64,
    size: u64,
    /// Length of the next I/O; 0 = never used.
    next: u64,
    /// Page of the previous access.
    last: u64,
    ahead_start: u64,
    ahead_size: u64,
    /// Length of the current sequential run.
    run: u64,
    /// Average length of runs.
    average: u64,
    max: u64,
}

impl State {
    /// `page_cache_readahead`. `interleaved`: the previous access came from another call in progress.
    fn on_page(&mut self, mapping: &mut dyn Mapping, page: u64, seeky: bool, interleaved: bool) {
        if (page == self.last && self.next != 0) || self.next == OFF || self.max == 0 {
            return;
        }
        let before = self.next;
        let first = self.next == 0;
        let mut kept = None;
        if first {
            self.next = self.max / 2;
            self.last = page;
            self.run += 1;
        } else {
            self.note_run(page, seeky);
            let previous = self.last;
            self.last = page;
            if (self.start..=self.start.wrapping_add(self.size)).contains(&page) {
                self.next = self.next.wrapping_add(2);
            } else {
                self.next = self.next.wrapping_sub(2);
            }
            // The kernel compares the low halves of the words as signed numbers.
            if self.next as i32 > self.max as i32 {
                self.next = self.max;
            }
            if self.next as i32 <= 0 {
                self.next = OFF;
                self.size = 0;
                mapping.closed(if interleaved { RaClose::InterleavedMisses } else { RaClose::Misses });
                return;
            }
            if self.covers(page) {
                self.inside(mapping, page, seeky, before);
                return;
            }
            if page == self.ahead_start {
                (self.start, self.size) = (self.ahead_start, self.ahead_size);
                self.last = self.start;
                (self.ahead_start, self.ahead_size) = (0, 0);
                return;
            }
            kept = self.covers(previous).then(|| previous - self.start + 2);
        }
        if !first {
            if seeky {
                self.next = self.average.min(self.max);
            } else if let Some(kept) = kept {
                self.next = kept;
            }
        }
        (self.start, self.size) = (page, self.next);
        (self.ahead_start, self.ahead_size) = (0, 0);
        let (nr_new, congested) = try_read(mapping, RaKind::Sync, page, self.size);
        if !first {
            self.judge(mapping, nr_new, before, congested);
        }
    }

    fn covers(&self, page: u64) -> bool {
        page >= self.start && page < self.start.wrapping_add(self.size)
    }

    /// Keeps the length of runs and their average.
    fn note_run(&mut self, page: u64, seeky: bool) {
        if page == self.last.wrapping_add(1) {
            if self.run <= 2 * self.max {
                self.run += 1;
            }
            return;
        }
        let mut average = self.average;
        if seeky && average < self.run {
            average += 1;
        }
        self.average = (average + self.run) / 2;
        self.run = 1;
    }

    /// An access inside the current window: perhaps it is time for the window ahead.
    fn inside(&mut self, mapping: &mut dyn Mapping, page: u64, seeky: bool, before: u64) {
        if self.ahead_start != 0 {
            return;
        }
        let mut expected = self.average;
        if self.run > expected {
            expected = (self.run + self.average + u64::from(seeky)) / 2;
        }
        let due = if seeky {
            expected > self.max
        } else {
            expected >= self.max || page == self.start.wrapping_add(self.size).wrapping_sub(1)
        };
        if due {
            self.ahead_start = self.start.wrapping_add(self.size);
            self.ahead_size = self.next;
            let (nr_new, congested) = try_read(mapping, RaKind::Async, self.ahead_start, self.ahead_size);
            self.judge(mapping, nr_new, before, congested);
        }
    }

    /// `check_ra_success`: a window that brought nothing shrinks the next one.
    fn judge(&mut self, mapping: &mut dyn Mapping, nr_new: u64, before: u64, congested: bool) {
        if nr_new > 0 {
            return;
        }
        if before > 1 {
            self.next = before - 1;
            if self.ahead_size != 0 {
                self.ahead_size = self.next;
            }
        } else {
            self.next = OFF;
            self.size = 0;
            mapping.closed(if congested { RaClose::Congestion } else { RaClose::Hits });
        }
    }

    /// `handle_ra_miss`: the page is absent although read-ahead has had its say.
    fn on_miss(&mut self, mapping: &mut dyn Mapping, page: u64, interleaved: bool) {
        if self.next == OFF {
            if page == self.last.wrapping_add(1) {
                self.size += 1;
                if self.size >= self.max {
                    self.start = page.wrapping_sub(self.max);
                    (self.next, self.size) = (self.max, self.max);
                    (self.ahead_start, self.ahead_size) = (0, 0);
                    mapping.reopened();
                }
            } else {
                self.size = self.size.saturating_sub(1);
            }
            self.last = page;
        } else {
            // Unsigned in the kernel: 1 and 0 wrap to a huge value, and 2 becomes exactly OFF.
            self.next = self.next.wrapping_sub(3).max(MIN);
            if self.next == OFF {
                mapping.closed(if interleaved { RaClose::InterleavedMisses } else { RaClose::Misses });
            }
        }
    }
}

/// `do_page_cache_readahead`: reads absent pages unless the queue is congested. Returns how many pages were new and
/// whether the queue was in the way.
fn try_read(mapping: &mut dyn Mapping, kind: RaKind, start: u64, nr_pages: u64) -> (u64, bool) {
    if mapping.congested() {
        return (0, true);
    }
    (read_at_once(mapping, kind, PageIndex(start), nr_pages, None), false)
}

/// Which calls made the accesses that the shared state sees.
#[derive(Copy, Clone, Debug, Default)]
struct Callers {
    /// Number of the next call to begin.
    next: u32,
    /// The call that made the previous access, and the number of the next call at the time when it ended, if it has.
    previous: Option<(u32, Option<u32>)>,
}

impl Callers {
    fn begin(&mut self) -> Token {
        let call = self.next;
        self.next = self.next.wrapping_add(1);
        Token(call)
    }

    /// Notes an access by `call`; whether the one before came from another call that was in progress together with it.
    fn access(&mut self, call: Token) -> bool {
        let interleaved = match self.previous {
            Some((previous, _)) if previous == call.0 => return false,
            Some((_, Some(began_later))) => (call.0.wrapping_sub(began_later) as i32) < 0,
            Some((_, None)) => true,
            None => false,
        };
        self.previous = Some((call.0, None));
        interleaved
    }

    fn end(&mut self, call: Token) {
        if let Some((previous, ended @ None)) = &mut self.previous
            && *previous == call.0
        {
            *ended = Some(self.next);
        }
    }
}

/// The policy of the whole family.
pub(super) struct Lazy {
    shared: State,
    variant: Variant,
    copies: Copies<State>,
    callers: Callers,
    /// The access now being worked on was interleaved with another call's.
    interleaved: bool,
}

impl Lazy {
    pub(super) fn boxed(limits: &Limits, variant: Variant) -> Box<dyn Readahead> {
        let max = limits.ra_pages;
        let shared =
            State { start: 0, size: 0, next: 0, last: 0, ahead_start: 0, ahead_size: 0, run: 0, average: max / 2, max };
        Box::new(Lazy { shared, variant, copies: Copies::new(), callers: Callers::default(), interleaved: false })
    }

    fn state(&mut self, call: Token) -> &mut State {
        if self.variant.private_copy { self.copies.get(call) } else { &mut self.shared }
    }
}

/// Reads these pages in any state, congestion or not.
fn force(mapping: &mut dyn Mapping, start: PageIndex, nr_pages: u64) {
    let nr_pages = max_sane(mapping.limits(), nr_pages);
    force_chunks(mapping, start, nr_pages, |mapping, start, nr_pages| {
        read_at_once(mapping, RaKind::Force, start, nr_pages, None);
    });
}

impl Readahead for Lazy {
    fn style(&self) -> LoopStyle {
        LoopStyle::AskFirst
    }

    fn begin(&mut self, mapping: &mut dyn Mapping, request: &ReadRequest) -> Token {
        if self.variant.populate {
            force(mapping, request.first_page(), request.len_bytes / PAGE_BYTES);
        }
        if self.variant.private_copy { self.copies.take(self.shared) } else { self.callers.begin() }
    }

    fn on_page(&mut self, call: Token, mapping: &mut dyn Mapping, page: PageIndex, remaining_bytes: u64) -> PageIndex {
        let told = match self.variant.told {
            Position::Page => page.0,
            Position::PagePlusBytes => page.0.wrapping_add(remaining_bytes),
            Position::PagePlusPages => page.0 + remaining_bytes / PAGE_BYTES,
        };
        // A call with its own copy sees its own accesses only.
        self.interleaved = !self.variant.private_copy && self.callers.access(call);
        let (seeky, interleaved) = (self.variant.seeky, self.interleaved);
        self.state(call).on_page(mapping, told, seeky, interleaved);
        page.plus(1)
    }

    fn on_miss(&mut self, call: Token, mapping: &mut dyn Mapping, page: PageIndex, _nr_requested: u64) {
        let interleaved = self.interleaved;
        self.state(call).on_miss(mapping, page.0, interleaved);
    }

    fn end(&mut self, call: Token, _pos: u64) {
        if self.variant.private_copy {
            self.shared = self.copies.give_back(call);
        } else {
            self.callers.end(call);
        }
    }

    fn advise(&mut self, mapping: &mut dyn Mapping, advice: Advice) {
        let device = mapping.limits().ra_pages;
        match advice {
            Advice::Normal => self.shared.max = device,
            Advice::Random => self.shared.max = 0,
            Advice::Sequential => self.shared.max = 2 * device,
            Advice::WillNeed { offset, len_bytes } => {
                let (first, touched) = pages_touched(offset, len_bytes);
                let whole = len_bytes / PAGE_BYTES;
                let nr_pages = if len_bytes == 0 || self.variant.willneed_touched { touched } else { whole };
                let nr_pages = clipped(mapping, first, nr_pages);
                force(mapping, first, nr_pages);
            }
        }
    }

    fn trace(&self) -> Vec<i64> {
        let State { start, size, next, last, ahead_start, ahead_size, run, average, max } = self.shared;
        [start, size, next, last, ahead_start, ahead_size, run, average, max].map(word).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_interleaved_only_if_both_calls_were_in_progress() {
        let mut callers = Callers::default();
        let first = callers.begin();
        assert!(!callers.access(first));
        callers.end(first);
        let second = callers.begin();
        assert!(!callers.access(second), "the first call had ended before the second began");
        let third = callers.begin();
        assert!(callers.access(third), "the second call was in progress");
        assert!(!callers.access(third), "twice the same call");
        callers.end(third);
        assert!(callers.access(second), "the third call has ended, but the second was in progress with it");
        callers.end(second);
        assert!(!callers.access(Token(callers.next)));
    }
}
