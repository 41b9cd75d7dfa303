//! One buffered `read(2)` call in progress: the kernels' read loops as state machines.
//!
//! A loop looks pages up through [`Mapping`], asks its [`Readahead`] policy where its kernel does, and returns a
//! [`Step`] whenever something must happen outside: time, I/O, copying. Between two steps anything may have changed,
//! so a loop that waited looks again.

use crate::event::RaKind;
use crate::readahead::{Folio, Limits, Mapping, ReadRequest, Readahead, Token, Window};
use crate::units::{PAGE_BYTES, PageIndex};

/// How a kernel's read loop walks pages.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LoopStyle {
    /// 2.4: look up, read ahead around locked pages, wait (`do_generic_file_read`). No scheduling point.
    Linux24,
    /// 2.6.0 .. 2.6.22: the policy is asked about a page before it is looked up, and returns the page to ask about next
    /// (`do_generic_mapping_read`).
    AskFirst,
    /// 2.6.23 .. 5.x: the policy is asked about misses and markers, page by page (`do_generic_file_read`).
    OnDemand,
    /// 5.12 ..: batches of folios are looked up; the policy is asked about misses and the batch's last folio
    /// (`filemap_read`).
    Batch(Batches),
}

impl LoopStyle {
    /// Its steps where kernels differ, in words.
    pub fn steps(self) -> Vec<(&'static str, &'static str)> {
        let (batch, behind, position, late) = match self {
            LoopStyle::Linux24 | LoopStyle::AskFirst => ("one by one", false, "", false),
            LoopStyle::OnDemand => ("one by one", false, "the last page touched, stored at the end of a call", true),
            LoopStyle::Batch(rules) => (
                if rules.max_folios > 15 { "in batches of 31 folios" } else { "in batches of 15 folios" },
                rules.past_request,
                if rules.prev_pos_per_folio {
                    "the byte behind what was copied, stored after each folio"
                } else {
                    "the byte behind what was copied, stored at the end of a call"
                },
                rules.late_size,
            ),
        };
        let mut steps = vec![("pages are looked up", batch)];
        if !position.is_empty() {
            steps.push(("position of the last read", position));
        }
        steps.push((
            "a batch ends",
            if behind { "one page behind the request, whose marker it meets a call early" } else { "with the request" },
        ));
        steps.push((
            "a read at or beyond the end of the file",
            if late { "reads a page and moves the state" } else { "does nothing" },
        ));
        steps
    }
}

/// How the kernels' loops over batches differ.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Batches {
    /// Most folios in a batch.
    pub max_folios: u8,
    /// `prev_pos` is stored after every folio copied (until 6.5) rather than once at the end of the call.
    pub prev_pos_per_folio: bool,
    /// A batch may have the page behind the request, too, and ends there if that page carries the marker (5.12 to
    /// 5.15.94, 6.1 to 6.1.12).
    pub past_request: bool,
    /// The pages are single ones, and the file's size is looked at only once they are at hand (5.15): a read at or
    /// beyond the end is made.
    pub late_size: bool,
}

/// The driver's next action before it calls [`ReadLoop::step`] again.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The kernel may switch tasks here. Only returned by a loop made with `interleave`.
    SchedulingPoint,
    /// Carry out the submissions made so far, then go on.
    Submitted,
    /// Sleep until this page is up to date (or gone); pages submitted so far must have been started first.
    Wait(PageIndex),
    /// Copy these pages (all up to date) to the caller.
    Copy {
        /// First page.
        page: PageIndex,
        /// How many.
        nr_pages: u64,
        /// Bytes of them that are asked for and exist.
        len_bytes: u64,
    },
    /// The call has ended; the number of bytes it read.
    Done {
        /// Bytes read.
        len_bytes: u64,
    },
}

/// Where a loop goes on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// The call has not begun.
    Begin,
    /// Top of the kernel's loop.
    Top,
    /// Past the scheduling point: ask first, where the kernel does.
    Ask,
    /// Look the page up.
    Lookup,
    /// The policy knows of a miss: look again.
    AfterMiss,
    /// The page is present; its marker has not been looked at.
    Marker,
    /// A batch that ends with a folio whose marker or data need a look; the marker has been dealt with.
    Tail { first: PageIndex, end: PageIndex },
    /// The page was there and not up to date when last seen.
    Waiting,
    /// Nothing more to do but end.
    Finish,
    /// The end has been reported.
    Ended,
}

/// A call in progress. Small and plain: it lives on the driver's stack.
#[derive(Copy, Clone, Debug)]
pub struct ReadLoop {
    request: ReadRequest,
    token: Token,
    style: LoopStyle,
    interleave: bool,
    stage: Stage,
    /// Next byte to copy.
    pos: u64,
    /// Byte after the last one asked for.
    end: u64,
    /// The page at which an `AskFirst` policy wants to be asked.
    ask_at: PageIndex,
}

/// A batch of pages found in the cache: a run that can be copied as it is, and perhaps one more folio that cannot.
struct Batch {
    /// First page after the run.
    end: PageIndex,
    /// A folio that is marked or not up to date.
    tail: Option<Folio>,
}

impl ReadLoop {
    /// A call that has not looked at anything yet. `interleave` asks for [`Step::SchedulingPoint`]s, and for pages one
    /// at a time between them.
    pub fn new(ra: &dyn Readahead, request: ReadRequest, interleave: bool) -> ReadLoop {
        ReadLoop {
            request,
            token: Token::default(),
            style: ra.style(),
            interleave,
            stage: Stage::Begin,
            pos: request.offset,
            end: request.offset.saturating_add(request.len_bytes),
            ask_at: request.first_page(),
        }
    }

    /// Goes on until something must be done outside.
    #[inline]
    pub fn step<M: Mapping>(&mut self, ra: &mut dyn Readahead, mapping: &mut M) -> Step {
        if self.stage == Stage::Begin
            && let Some(step) = self.begin(ra, mapping)
        {
            return step;
        }
        match self.style {
            LoopStyle::OnDemand => self.on_demand(ra, mapping),
            LoopStyle::Batch(rules) => self.batch(ra, mapping, rules),
            LoopStyle::AskFirst => self.ask_first(ra, mapping),
            LoopStyle::Linux24 => self.linux_2_4(ra, mapping),
        }
    }

    fn begin<M: Mapping>(&mut self, ra: &mut dyn Readahead, mapping: &mut M) -> Option<Step> {
        let looks = matches!(self.style, LoopStyle::Batch(rules) if !rules.late_size);
        // Most batch kernels leave a read at or after the end of the file before they touch any state.
        if self.pos == self.end || (looks && self.pos >= mapping.size_bytes()) {
            self.stage = Stage::Ended;
            return Some(Step::Done { len_bytes: 0 });
        }
        self.stage = Stage::Top;
        let mut mapping = Watch::new(mapping);
        self.token = ra.begin(&mut mapping, &self.request);
        mapping.submitted.then_some(Step::Submitted)
    }

    /// 2.4 reads the absent page first and then asks for more around it, before it waits.
    fn linux_2_4<M: Mapping>(&mut self, ra: &mut dyn Readahead, mapping: &mut M) -> Step {
        loop {
            let page = self.page();
            match self.stage {
                Stage::Waiting if mapping.uptodate(page) => return self.copy_page(mapping),
                Stage::Waiting if mapping.present(page) => return Step::Wait(page),
                Stage::Finish | Stage::Ended => return self.finish(ra, false),
                _ if self.pos >= self.end.min(mapping.size_bytes()) => self.stage = Stage::Finish,
                _ => {
                    let mut watch = Watch::new(mapping);
                    if !watch.present(page) {
                        watch.read_pages(&single(page));
                        if !watch.uptodate(page) {
                            ra.on_page(self.token, &mut watch, page, self.end - self.pos);
                        }
                    } else {
                        ra.on_page(self.token, &mut watch, page, self.end - self.pos);
                    }
                    self.stage = Stage::Waiting;
                    if watch.submitted {
                        return Step::Submitted;
                    }
                }
            }
        }
    }

    /// 2.6.0 to 2.6.22: ask, look up, read pages alone that are still absent.
    fn ask_first<M: Mapping>(&mut self, ra: &mut dyn Readahead, mapping: &mut M) -> Step {
        loop {
            let page = self.page();
            match self.stage {
                Stage::Begin | Stage::Top => {
                    if self.pos >= self.end.min(mapping.size_bytes()) {
                        self.stage = Stage::Finish;
                        continue;
                    }
                    self.stage = Stage::Ask;
                    if self.interleave {
                        return Step::SchedulingPoint;
                    }
                }
                Stage::Ask => {
                    self.stage = Stage::Lookup;
                    if page == self.ask_at {
                        let mut watch = Watch::new(mapping);
                        self.ask_at = ra.on_page(self.token, &mut watch, page, self.end - self.pos);
                        if watch.submitted {
                            return Step::Submitted;
                        }
                    }
                }
                Stage::Lookup => {
                    // Up to the page where it asks again, the kernel's loop does nothing but copy what it finds.
                    let wanted = self.end.min(mapping.size_bytes()).div_ceil(PAGE_BYTES) - page.0;
                    let unasked = match self.ask_at.0.checked_sub(page.0) {
                        Some(pages) if pages > 0 => pages,
                        _ => u64::MAX,
                    };
                    if !self.interleave && unasked > 1 && wanted > 1 {
                        let run = mapping.clean_run(page, unasked.min(wanted));
                        if run > 0 {
                            return self.copy(mapping, page.plus(run));
                        }
                    }
                    if !mapping.present(page) {
                        let mut watch = Watch::new(mapping);
                        ra.on_miss(self.token, &mut watch, page, self.nr_requested(page));
                        watch.read_pages(&single(page));
                        self.stage = Stage::Waiting;
                        return Step::Submitted;
                    }
                    self.stage = Stage::Waiting;
                }
                Stage::Waiting if mapping.uptodate(page) => return self.copy_page(mapping),
                Stage::Waiting if mapping.present(page) => return Step::Wait(page),
                Stage::Waiting => self.stage = Stage::Lookup,
                _ => return self.finish(ra, false),
            }
        }
    }

    /// 2.6.23 to 5.x: look up; the end of the file is only looked at once a page is at hand.
    fn on_demand<M: Mapping>(&mut self, ra: &mut dyn Readahead, mapping: &mut M) -> Step {
        loop {
            let page = self.page();
            match self.stage {
                Stage::Begin | Stage::Top => {
                    if self.pos >= self.end {
                        self.stage = Stage::Finish;
                        continue;
                    }
                    self.stage = Stage::Lookup;
                    if self.interleave {
                        return Step::SchedulingPoint;
                    }
                }
                Stage::Lookup => {
                    let limit = self.end.min(mapping.size_bytes());
                    if self.pos < limit {
                        let wanted = if self.interleave { 1 } else { limit.div_ceil(PAGE_BYTES) - page.0 };
                        let run = mapping.clean_run(page, wanted);
                        if run > 0 {
                            return self.copy(mapping, page.plus(run));
                        }
                    }
                    if mapping.present(page) {
                        self.stage = Stage::Marker;
                    } else {
                        self.stage = Stage::AfterMiss;
                        let mut watch = Watch::new(mapping);
                        ra.on_miss(self.token, &mut watch, page, self.nr_requested(page));
                        if watch.submitted {
                            return Step::Submitted;
                        }
                    }
                }
                Stage::AfterMiss => {
                    if mapping.present(page) {
                        self.stage = Stage::Marker;
                    } else {
                        mapping.read_pages(&single(page));
                        self.stage = Stage::Waiting;
                        return Step::Submitted;
                    }
                }
                Stage::Marker => {
                    self.stage = Stage::Waiting;
                    if mapping.marked(page) {
                        let mut watch = Watch::new(mapping);
                        ra.on_marker(self.token, &mut watch, page, self.nr_requested(page));
                        if watch.submitted {
                            return Step::Submitted;
                        }
                    }
                }
                Stage::Waiting => {
                    if !mapping.uptodate(page) {
                        if mapping.present(page) {
                            return Step::Wait(page);
                        }
                        self.stage = Stage::Lookup;
                    } else if self.pos < mapping.size_bytes() {
                        return self.copy_page(mapping);
                    } else {
                        self.stage = Stage::Finish;
                    }
                }
                _ => return self.finish(ra, true),
            }
        }
    }

    /// 5.12 and later: a batch of folios at a time.
    fn batch<M: Mapping>(&mut self, ra: &mut dyn Readahead, mapping: &mut M, rules: Batches) -> Step {
        loop {
            let page = self.page();
            match self.stage {
                Stage::Begin | Stage::Top => {
                    let begun = self.pos > self.request.offset;
                    if rules.prev_pos_per_folio && begun {
                        ra.copied(self.token, self.pos);
                    }
                    if (begun || !rules.late_size) && self.pos >= self.end.min(mapping.size_bytes()) {
                        self.stage = Stage::Finish;
                        continue;
                    }
                    self.stage = Stage::Lookup;
                    if self.interleave {
                        return Step::SchedulingPoint;
                    }
                }
                Stage::Lookup | Stage::AfterMiss => {
                    let nr_pages = self.last_page_end().0 - page.0 + u64::from(rules.past_request);
                    if !self.interleave && mapping.clean_run(page, nr_pages) == nr_pages {
                        // Batches of clean pages ask the policy nothing, so however many there are, they are one copy.
                        match self.copy_existing(mapping, page.plus(nr_pages)) {
                            Some(step) => return step,
                            None => continue,
                        }
                    }
                    let batch = collect(mapping, page, nr_pages, u64::from(rules.max_folios));
                    if let Some(folio) = batch.tail {
                        let end = folio.first.plus(1 << folio.order);
                        self.stage = Stage::Tail { first: folio.first, end };
                        if mapping.marked(folio.first) {
                            let mut watch = Watch::new(mapping);
                            ra.on_marker(self.token, &mut watch, folio.first, self.nr_requested(folio.first));
                            if watch.submitted {
                                return Step::Submitted;
                            }
                        }
                    } else if batch.end > page {
                        if let Some(step) = self.copy_existing(mapping, batch.end) {
                            return step;
                        }
                    } else if self.stage == Stage::Lookup {
                        self.stage = Stage::AfterMiss;
                        let mut watch = Watch::new(mapping);
                        ra.on_miss(self.token, &mut watch, page, self.nr_requested(page));
                        if watch.submitted {
                            return Step::Submitted;
                        }
                    } else {
                        mapping.read_pages(&single(page));
                        self.stage = Stage::Waiting;
                        return Step::Submitted;
                    }
                }
                Stage::Tail { first, end } => {
                    let end = if mapping.uptodate(first) { end } else { first };
                    // A large folio may begin before the page.
                    if end <= page {
                        self.stage = Stage::Waiting;
                    } else if let Some(step) = self.copy_existing(mapping, end) {
                        return step;
                    }
                }
                Stage::Waiting => {
                    if mapping.uptodate(page) {
                        let folio = mapping.folio(page).unwrap_or(Folio { first: page, order: 0 });
                        if let Some(step) = self.copy_existing(mapping, folio.first.plus(1 << folio.order)) {
                            return step;
                        }
                    } else if mapping.present(page) {
                        return Step::Wait(page);
                    } else {
                        self.stage = Stage::Lookup;
                    }
                }
                _ => return self.finish(ra, !rules.prev_pos_per_folio),
            }
        }
    }

    /// The page that holds the next byte.
    fn page(&self) -> PageIndex {
        PageIndex::of(self.pos)
    }

    /// The page after the last byte asked for, whether the file reaches that far or not.
    fn last_page_end(&self) -> PageIndex {
        PageIndex(self.end.div_ceil(PAGE_BYTES))
    }

    /// Pages from `page` to the end of the request, as every kernel here counts them: not clipped to the file.
    fn nr_requested(&self, page: PageIndex) -> u64 {
        self.last_page_end().0 - page.0
    }

    /// Copies up to page `end`, unless the file ends before: then the call does.
    fn copy_existing<M: Mapping>(&mut self, mapping: &M, end: PageIndex) -> Option<Step> {
        if self.pos < mapping.size_bytes() {
            return Some(self.copy(mapping, end));
        }
        self.stage = Stage::Finish;
        None
    }

    fn copy_page<M: Mapping>(&mut self, mapping: &M) -> Step {
        self.copy(mapping, self.page().plus(1))
    }

    /// Copies up to page `end`, the end of the request or the end of the file, whichever comes first.
    fn copy<M: Mapping>(&mut self, mapping: &M, end: PageIndex) -> Step {
        let page = self.page();
        let to = self.end.min(mapping.size_bytes()).min(end.0 * PAGE_BYTES);
        assert!(to > self.pos, "a copy of nothing would never end: {} to {to}", self.pos);
        let len_bytes = to - self.pos;
        self.pos = to;
        self.stage = Stage::Top;
        Step::Copy { page, nr_pages: to.div_ceil(PAGE_BYTES) - page.0, len_bytes }
    }

    fn finish(&mut self, ra: &mut dyn Readahead, moves_prev_pos: bool) -> Step {
        if self.stage == Stage::Finish {
            self.stage = Stage::Ended;
            if moves_prev_pos && self.pos > self.request.offset {
                ra.copied(self.token, self.pos);
            }
            ra.end(self.token, self.pos);
        }
        Step::Done { len_bytes: self.pos - self.request.offset }
    }
}

/// Walks present folios upward from `page`, over at most `nr_pages` pages and `max_folios` folios, and stops after the
/// first that is marked or not up to date (`filemap_get_read_batch`).
fn collect<M: Mapping>(mapping: &M, page: PageIndex, nr_pages: u64, max_folios: u64) -> Batch {
    // A page is at most a folio, so this many pages can never be too many folios.
    let run = mapping.clean_run(page, nr_pages.min(max_folios));
    let mut end = page.plus(run);
    if run == nr_pages {
        return Batch { end, tail: None };
    }
    let mut nr_folios = run;
    if run == max_folios && mapping.limits().max_folio_order > 0 {
        // The run may be fewer folios than pages: count them, and go on until the batch is really full.
        (end, nr_folios) = (page, 0);
        while nr_folios < max_folios && end.0 < page.0 + run {
            let Some(folio) = mapping.folio(end) else { break };
            (end, nr_folios) = (folio.first.plus(1 << folio.order), nr_folios + 1);
        }
    }
    while nr_folios < max_folios && end.0 < page.0 + nr_pages {
        let Some(folio) = mapping.folio(end) else { break };
        if mapping.marked(folio.first) || !mapping.uptodate(end) {
            return Batch { end, tail: Some(folio) };
        }
        (end, nr_folios) = (folio.first.plus(1 << folio.order), nr_folios + 1);
    }
    Batch { end, tail: None }
}

/// A page read alone.
fn single(page: PageIndex) -> Window {
    Window { kind: RaKind::Single, start: page, nr_pages: 1, async_size: None, marker: None }
}

/// A mapping that remembers whether anything was submitted through it.
struct Watch<'a> {
    inner: &'a mut dyn Mapping,
    submitted: bool,
}

impl<'a> Watch<'a> {
    fn new(inner: &'a mut dyn Mapping) -> Watch<'a> {
        Watch { inner, submitted: false }
    }
}

impl Mapping for Watch<'_> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn congested(&self) -> bool {
        self.inner.congested()
    }

    fn present(&self, page: PageIndex) -> bool {
        self.inner.present(page)
    }

    fn uptodate(&self, page: PageIndex) -> bool {
        self.inner.uptodate(page)
    }

    fn locked(&self, page: PageIndex) -> bool {
        self.inner.locked(page)
    }

    fn under_writeback(&self, page: PageIndex) -> bool {
        self.inner.under_writeback(page)
    }

    fn marked(&self, page: PageIndex) -> bool {
        self.inner.marked(page)
    }

    fn folio(&self, page: PageIndex) -> Option<Folio> {
        self.inner.folio(page)
    }

    fn clean_run(&self, page: PageIndex, nr_pages: u64) -> u64 {
        self.inner.clean_run(page, nr_pages)
    }

    fn clear_marker(&mut self, page: PageIndex) {
        self.inner.clear_marker(page);
    }

    fn read_pages(&mut self, window: &Window) -> u64 {
        let nr_new = self.inner.read_pages(window);
        self.submitted |= nr_new > 0;
        nr_new
    }

    fn read_folios(&mut self, window: &Window, folios: &[Folio]) {
        self.submitted |= !folios.is_empty();
        self.inner.read_folios(window, folios);
    }

    fn decided(&mut self, decision: crate::readahead::Decision) {
        self.inner.decided(decision);
    }

    fn closed(&mut self, cause: crate::event::RaClose) {
        self.inner.closed(cause);
    }

    fn reopened(&mut self) {
        self.inner.reopened();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin;
    use crate::readahead::READAHEADS;

    /// A file of which everything is cached, except that some pages are still being read.
    struct Cached {
        size_bytes: u64,
        in_flight: Vec<u64>,
        gone: Vec<u64>,
        submitted: Vec<(u64, u64)>,
    }

    impl Mapping for Cached {
        fn size_bytes(&self) -> u64 {
            self.size_bytes
        }

        fn limits(&self) -> Limits {
            Limits { ra_pages: 32, io_pages: 256, max_folio_order: 0, max_sane: u64::MAX }
        }

        fn congested(&self) -> bool {
            false
        }

        fn present(&self, page: PageIndex) -> bool {
            page.0 < self.size_bytes.div_ceil(PAGE_BYTES) && !self.gone.contains(&page.0)
        }

        fn uptodate(&self, page: PageIndex) -> bool {
            self.present(page) && !self.in_flight.contains(&page.0)
        }

        fn locked(&self, page: PageIndex) -> bool {
            self.in_flight.contains(&page.0)
        }

        fn under_writeback(&self, _page: PageIndex) -> bool {
            false
        }

        fn marked(&self, _page: PageIndex) -> bool {
            false
        }

        fn folio(&self, page: PageIndex) -> Option<Folio> {
            self.present(page).then_some(Folio { first: page, order: 0 })
        }

        fn clean_run(&self, page: PageIndex, nr_pages: u64) -> u64 {
            (0..nr_pages).take_while(|&ahead| self.uptodate(page.plus(ahead))).count() as u64
        }

        fn clear_marker(&mut self, _page: PageIndex) {}

        fn read_pages(&mut self, window: &Window) -> u64 {
            let pages = window.start.0..window.start.0 + window.nr_pages;
            let new: Vec<u64> = pages.filter(|&page| !self.present(PageIndex(page))).collect();
            self.gone.retain(|page| !new.contains(page));
            self.in_flight.extend(&new);
            self.submitted.extend(new.iter().map(|&page| (page, 1)));
            new.len() as u64
        }

        fn read_folios(&mut self, window: &Window, _folios: &[Folio]) {
            self.read_pages(window);
        }
    }

    fn steps(name: &str, mapping: &mut Cached, offset: u64, len_bytes: u64) -> Vec<Step> {
        let entry = origin::find(READAHEADS, name).expect("a policy of this name");
        let mut ra = (entry.build)(&entry.defaults(), &mapping.limits());
        let mut read = ReadLoop::new(ra.as_ref(), ReadRequest { offset, len_bytes }, false);
        let mut steps = Vec::new();
        loop {
            let step = read.step(ra.as_mut(), mapping);
            steps.push(step);
            match step {
                Step::Done { .. } => return steps,
                Step::Wait(page) => mapping.in_flight.retain(|&other| other != page.0),
                _ => assert!(steps.len() < 100, "{name}: {steps:?}"),
            }
        }
    }

    fn copy(page: u64, nr_pages: u64, len_bytes: u64) -> Step {
        Step::Copy { page: PageIndex(page), nr_pages, len_bytes }
    }

    fn whole(size_bytes: u64) -> Cached {
        Cached { size_bytes, in_flight: Vec::new(), gone: Vec::new(), submitted: Vec::new() }
    }

    #[test]
    fn a_run_of_hits_is_one_step() {
        for name in ["linux-2.6.38", "linux-4.4", "linux-4.19", "linux-6.1", "linux-6.12", "linux-6.18", "off"] {
            let expected = [copy(1, 3, 10_000), Step::Done { len_bytes: 10_000 }];
            assert_eq!(steps(name, &mut whole(1 << 20), 5_000, 10_000), expected, "{name}");
            let at_the_end = steps(name, &mut whole(10_000), 8_192, 4_096);
            assert_eq!(at_the_end[0], copy(2, 1, 1_808), "{name}");
        }
        // A batch holds 31 folios, but batches that ask the policy nothing are one copy.
        let batches = [copy(0, 40, 40 * 4096), Step::Done { len_bytes: 40 * 4096 }];
        assert_eq!(steps("linux-6.18", &mut whole(1 << 20), 0, 40 * 4096), batches);
    }

    #[test]
    fn a_read_that_hits_leaves_the_same_state_whether_its_loop_is_walked_or_not() {
        let mut rng = crate::rng::Rng::stream(1, "hits");
        for entry in READAHEADS {
            let mut mapping = whole(1 << 20);
            let make = || (entry.build)(&entry.defaults(), &mapping.limits());
            let (mut walked, mut told) = (make(), make());
            if !told.asks_nothing_of_hits() {
                continue;
            }
            for _ in 0..200 {
                let offset = rng.below((1 << 20) - 70_000);
                let request = ReadRequest { offset, len_bytes: 1 + rng.below(70_000) };
                let mut read = ReadLoop::new(walked.as_ref(), request, false);
                while !matches!(read.step(walked.as_mut(), &mut mapping), Step::Done { .. }) {}
                told.hit(&mut mapping, &request);
                assert_eq!(walked.trace(), told.trace(), "{} {request:?}", entry.name);
            }
        }
    }

    #[test]
    fn every_policy_copies_a_cached_page_in_two_steps() {
        for entry in READAHEADS {
            let mut mapping = whole(1 << 20);
            // Page 200 is in the middle: nothing after it is absent, so nothing is read.
            let expected = [copy(200, 1, 4_096), Step::Done { len_bytes: 4_096 }];
            assert_eq!(steps(entry.name, &mut mapping, 200 * 4_096, 4_096), expected, "{}", entry.name);
            assert!(mapping.submitted.is_empty());
        }
    }

    #[test]
    fn a_page_still_being_read_is_waited_for_once_the_pages_before_it_are_copied() {
        for name in ["linux-2.6.38", "linux-6.18"] {
            let mut mapping = whole(1 << 20);
            mapping.in_flight = vec![2];
            let taken = steps(name, &mut mapping, 0, 4 * 4_096);
            assert_eq!(taken[..2], [copy(0, 2, 8_192), Step::Wait(PageIndex(2))], "{name}");
            assert_eq!(taken.last(), Some(&Step::Done { len_bytes: 16_384 }), "{name}");
        }
    }

    #[test]
    fn a_page_that_went_while_it_was_waited_for_is_looked_up_again() {
        for entry in READAHEADS {
            let mut mapping = whole(1 << 20);
            mapping.in_flight = vec![7];
            let mut ra = (entry.build)(&entry.defaults(), &mapping.limits());
            let request = ReadRequest { offset: 7 * 4_096, len_bytes: 4_096 };
            let mut read = ReadLoop::new(ra.as_ref(), request, false);
            assert_eq!(read.step(ra.as_mut(), &mut mapping), Step::Wait(PageIndex(7)), "{}", entry.name);
            mapping.in_flight.clear();
            mapping.gone = vec![7];
            assert_eq!(read.step(ra.as_mut(), &mut mapping), Step::Submitted, "{}", entry.name);
            assert_eq!(mapping.submitted, [(7, 1)], "{}", entry.name);
            assert_eq!(read.step(ra.as_mut(), &mut mapping), Step::Wait(PageIndex(7)), "{}", entry.name);
        }
    }

    #[test]
    fn a_call_that_copies_nothing_stores_the_position_that_it_found() {
        for (name, stores) in [
            ("linux-2.6.38", true),
            ("linux-4.4", true),
            ("linux-4.19", true),
            ("linux-6.1", false),
            ("linux-6.18", false),
        ] {
            let entry = origin::find(READAHEADS, name).expect("a policy of this name");
            let mut mapping = whole(1_000_000);
            let mut ra = (entry.build)(&entry.defaults(), &mapping.limits());
            let read = |ra: &dyn Readahead, offset| ReadLoop::new(ra, ReadRequest { offset, len_bytes: 10 }, true);
            let position = |ra: &dyn Readahead| ra.trace()[4];
            // At the end of the file, and before its first look-up another reads on the same open file.
            let (mut beyond, mut other) = (read(ra.as_ref(), 1_000_000), read(ra.as_ref(), 20_000));
            let first = beyond.step(ra.as_mut(), &mut mapping);
            assert_eq!(first == Step::SchedulingPoint, stores, "{name}: {first:?}");
            while !matches!(other.step(ra.as_mut(), &mut mapping), Step::Done { .. }) {}
            assert_ne!(position(ra.as_ref()), -1, "{name}");
            while !matches!(beyond.step(ra.as_mut(), &mut mapping), Step::Done { .. }) {}
            assert_eq!(position(ra.as_ref()) == -1, stores, "{name}");
        }
    }
}
