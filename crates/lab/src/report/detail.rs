//! Parts of a run with everything that happened in them, as lanes of rows.
//!
//! The parts are chosen before ([`parts`]), by the survey of the run: its start, the surroundings of the first call
//! that the two sides served differently, of the longest call, and of the calls that the first screen shows
//! ([`course`](super::course)), each with a limit of events. A run that has few
//! enough is shown as a whole. More detail of one side means more of the other as well, since both have the same number
//! of events.
//!
//! ```text
//! page     belongs to the window that the call has last decided on, if it lies in it
//! window   its pages are used when a call asks for them, those of the deciding call itself at once; pages taken out
//!          before is thrashed; the rest is unused at the end of the run
//! bio      of data takes pages that its call has added (reads) or the kernel has handed down (writes), in their order
//! request  begins with its first bio; when two become one, the one that remains has the earlier times
//! plug     ends with the first unplug of the same call; plugs of queues, which have no call, one after the other
//! ```
//! A row is kept if any of its time lies in a part. Calls that rows speak of are kept, too. Calls that began before the
//! run are shown from its start on.

use std::collections::{HashMap, VecDeque};

use iowhy_stack::event::{CallId, Content, Dir, Event, EventSink, Op, RaKind, UnplugCause, What};
use iowhy_stack::lifecycle::{self, Lifecycle, Step};
use iowhy_stack::units::{Nanos, PAGE_BYTES, PAGE_SECTORS};

use super::survey::{Call, NEVER, Survey};
use super::{Calls, Pages, Part, Plugs, Requests, Timeline, Windows};
use crate::store::events::{CONTENTS, UNPLUGS, WINDOWS, content_word, unplug_word, window_word};

/// Unknown or missing.
const NONE: i64 = -1;
/// Calls of a part, at most.
const MOST_CALLS: usize = 4_000;

/// A part on the clock of the events.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// From this time on.
    pub from: u64,
    /// Up to this one, which is not in it.
    pub to: u64,
    /// Why it is shown.
    pub why: &'static str,
}

/// The parts of a run, each with its number of events. `differs` is the first call that was served differently, `marks`
/// are other calls to show, and why.
pub fn parts(survey: &Survey, differs: Option<usize>, marks: &[(usize, &'static str)], events: u64) -> Vec<Span> {
    let (begin, end) = (survey.begins(), survey.ends() + 1);
    let first = survey.event_at(begin);
    if survey.nr_events - first <= 3 * events && survey.calls.len() <= 3 * MOST_CALLS {
        return vec![Span { from: begin, to: end, why: "start" }];
    }
    // No part has too many calls, however little each of them does.
    let bounded = |from: u64, to: u64| {
        let place = survey.calls.partition_point(|call| call.start < from) + MOST_CALLS;
        to.min(survey.calls.get(place).map_or(end, |call| call.start))
    };
    let part = |from: u64, to: u64, why| {
        let to = bounded(from, to);
        (from < to).then_some(Span { from, to, why })
    };
    // A little of what comes before is shown as well.
    let around = |time: u64, why| {
        let event = survey.event_at(time);
        let from = survey.time_of(event.saturating_sub(events / 8)).clamp(begin, time);
        let calls = survey.calls.partition_point(|call| call.start < time).saturating_sub(MOST_CALLS / 8);
        let from = from.max(survey.calls.get(calls).map_or(begin, |call| call.start)).min(time);
        part(from, survey.time_of(survey.event_at(from) + events), why)
    };
    let worst = survey.calls.iter().max_by_key(|call| (call.took(), std::cmp::Reverse(call.id)));
    let differs = differs.and_then(|place| survey.calls.get(place));
    let marked = marks.iter().filter_map(|(place, why)| Some((survey.calls.get(*place)?.start, *why)));
    let marked: Vec<Span> = marked.filter_map(|(start, why)| around(start, why)).collect();
    let all: Vec<Span> = [
        part(begin, survey.time_of(first + events), "start"),
        differs.and_then(|call| around(call.start, "first difference")),
        worst.filter(|call| call.took() > 0).and_then(|call| around(call.start, "worst")),
    ]
    .into_iter()
    .flatten()
    .chain(marked)
    .collect();
    apart(all)
}

/// Parts in order; what two would show is shown by the earlier one.
pub fn apart(mut all: Vec<Span>) -> Vec<Span> {
    all.sort_by_key(|part| part.from);
    let mut upto = 0;
    all.retain_mut(|part| {
        part.from = part.from.max(upto);
        upto = upto.max(part.to);
        part.from < part.to
    });
    all
}

/// Index of a variant among all.
fn index_of<T: PartialEq>(all: &[T], one: T) -> i64 {
    all.iter().position(|known| *known == one).map_or(NONE, |index| index as i64)
}

/// Pages of a file, one behind the other.
type Run = (u32, u64, u64);

#[derive(Debug, Default)]
struct Active {
    /// Pages that wait for a bio: of reads and of writes.
    pending: [VecDeque<Run>; 2],
    /// The window decided last, by row.
    window: Option<usize>,
}

type Request = lifecycle::Request<Option<Run>>;

#[derive(Copy, Clone, Debug)]
struct Window {
    at: u64,
    call: Option<usize>,
    kind: RaKind,
    pages: Run,
    async_size: u32,
    added: u64,
    used: u64,
    thrashed: u64,
}

#[derive(Copy, Clone, Debug)]
struct Plug {
    start: u64,
    end: u64,
    call: Option<usize>,
    cause: i64,
    nr: u32,
}

#[derive(Copy, Clone, Debug)]
struct PageRow {
    at: u64,
    call: Option<usize>,
    kind: u8,
    pages: Run,
}

/// Which window each page came with.
#[derive(Debug, Default)]
struct Owners {
    chunks: HashMap<(u32, u64), Box<[u32; 1024]>>,
}

impl Owners {
    /// The pages get an owner.
    fn give(&mut self, (file, first, nr): Run, owner: usize) {
        for page in first..first + nr {
            let chunk = self.chunks.entry((file, page / 1024)).or_insert_with(|| Box::new([0; 1024]));
            chunk[(page % 1024) as usize] = owner as u32 + 1;
        }
    }

    /// The pages have none from now on; `each` gets each that had one.
    fn take(&mut self, (file, first, nr): Run, mut each: impl FnMut(usize)) {
        if self.chunks.is_empty() {
            return;
        }
        let mut at = first;
        let end = first.saturating_add(nr);
        while at < end {
            let upto = end.min((at / 1024 + 1) * 1024);
            if let Some(chunk) = self.chunks.get_mut(&(file, at / 1024)) {
                for owner in &mut chunk[(at % 1024) as usize..=((upto - 1) % 1024) as usize] {
                    if *owner > 0 {
                        each(*owner as usize - 1);
                        *owner = 0;
                    }
                }
            }
            at = upto;
        }
    }
}

/// Makes the lanes.
#[derive(Debug)]
pub struct Builder<'a> {
    survey: &'a Survey,
    spans: Vec<Span>,
    begun: usize,
    active: HashMap<usize, Active>,
    nobody: Active,
    life: Lifecycle<Option<Run>>,
    owners: Owners,
    plugs_open: Vec<(u64, Option<usize>)>,
    pages: Vec<PageRow>,
    windows: Vec<Window>,
    plugs: Vec<Plug>,
    requests: Vec<Request>,
    now: u64,
}

impl<'a> Builder<'a> {
    /// Of these parts of a surveyed run.
    pub fn new(survey: &'a Survey, spans: Vec<Span>) -> Builder<'a> {
        Builder {
            survey,
            spans,
            begun: 0,
            active: HashMap::new(),
            nobody: Active::default(),
            life: Lifecycle::default(),
            owners: Owners::default(),
            plugs_open: Vec::new(),
            pages: Vec::new(),
            windows: Vec::new(),
            plugs: Vec::new(),
            requests: Vec::new(),
            now: 0,
        }
    }

    /// Whether any of a time is shown.
    fn shown(&self, from: u64, to: u64) -> bool {
        self.spans.iter().any(|span| from < span.to && to >= span.from)
    }

    fn state(&mut self, call: Option<usize>) -> &mut Active {
        match call {
            Some(call) => self.active.entry(call).or_default(),
            None => &mut self.nobody,
        }
    }

    fn page_row(&mut self, call: Option<usize>, kind: u8, pages: Run) {
        if !self.shown(self.now, self.now) {
            return;
        }
        // Runs of single pages that follow on each other are one row.
        if let Some(last) = self.pages.last_mut()
            && (last.at, last.call, last.kind, last.pages.0) == (self.now, call, kind, pages.0)
            && last.pages.1 + last.pages.2 == pages.1
        {
            last.pages.2 += pages.2;
            return;
        }
        self.pages.push(PageRow { at: self.now, call, kind, pages });
    }

    fn use_pages(&mut self, pages: Run) {
        let windows = &mut self.windows;
        self.owners.take(pages, |window| windows[window].used += 1);
    }

    /// Pages that a call asks for.
    fn asked(call: &Call) -> (u64, u64) {
        (call.offset / PAGE_BYTES, (call.offset + u64::from(call.bytes.max(1))).div_ceil(PAGE_BYTES))
    }

    fn page_add(&mut self, call: Option<usize>, pages: Run) {
        self.page_row(call, 0, pages);
        let Some(place) = call else { return };
        let of = self.survey.calls[place];
        let state = self.active.entry(place).or_default();
        if of.op == Op::Read {
            state.pending[0].push_back(pages);
        }
        let Some(window) = state.window else { return };
        let known = &mut self.windows[window];
        let (file, first, nr) = known.pages;
        let (from, to) = (pages.1.max(first), (pages.1 + pages.2).min(first + nr));
        if file != pages.0 || from >= to {
            return;
        }
        known.added += to - from;
        self.owners.give((file, from, to - from), window);
        let (own, end) = Builder::asked(&of);
        if of.file == file && own.max(from) < end.min(to) {
            self.use_pages((file, own.max(from), end.min(to) - own.max(from)));
        }
    }

    /// The pages of a bio of data.
    fn pages_of(&mut self, call: Option<usize>, dir: Dir, nr_sectors: u32) -> Option<Run> {
        let pending = &mut self.state(call).pending[dir as usize];
        let mut pages: Option<Run> = None;
        let mut left = u64::from(nr_sectors).div_ceil(PAGE_SECTORS);
        while left > 0
            && let Some((file, page, nr)) = pending.pop_front()
        {
            let taken = nr.min(left);
            left -= taken;
            if taken < nr {
                pending.push_front((file, page + taken, nr - taken));
            }
            pages = joined(pages, Some((file, page, taken)));
        }
        pages
    }

    fn keep(&mut self, request: Request) {
        if self.shown(request.queued.0, request.completed.map_or(self.now, |at| at.0)) {
            self.requests.push(request);
        }
    }

    fn unplug(&mut self, call: Option<usize>, cause: UnplugCause, nr: u32) {
        let same = self.plugs_open.iter().position(|(_, of)| *of == call);
        // A queue's plug is pulled by nobody; there is one at a time.
        let found = same.or((call.is_none() && !self.plugs_open.is_empty()).then_some(0));
        let (start, of) = found.map_or((self.now, call), |nr| self.plugs_open.remove(nr));
        if self.shown(start, self.now) {
            self.plugs.push(Plug { start, end: self.now, call: of, cause: index_of(&UNPLUGS, cause), nr });
        }
    }
}

/// Pages of both, if they lie one behind the other; else those of the first.
fn joined(a: Option<Run>, b: Option<Run>) -> Option<Run> {
    match (a, b) {
        (Some((file, first, nr)), Some((other, page, more))) if file == other => {
            if first + nr == page {
                Some((file, first, nr + more))
            } else if page + more == first {
                Some((file, page, nr + more))
            } else {
                a
            }
        }
        (None, b) => b,
        (a, _) => a,
    }
}

impl EventSink for Builder<'_> {
    fn event(&mut self, event: &Event) {
        self.now = event.at.0;
        let at = event.at.0;
        let call = self.survey.place(event.call).filter(|place| *place < self.begun);
        let step = self.life.event(event);
        match event.what {
            What::CallStart { op, .. } => {
                let place = self.begun;
                self.begun += 1;
                let of = self.survey.calls[place];
                debug_assert_eq!(of.id, event.call.0, "both passes see the same run");
                if op == Op::Read {
                    let (first, end) = Builder::asked(&of);
                    self.use_pages((of.file, first, end - first));
                }
            }
            What::CallEnd { .. } => {
                if let Some(place) = call {
                    // Its requests keep the place.
                    self.active.remove(&place);
                }
            }
            What::Hit { file, page, nr_pages } => {
                let pages = (file.0, page.0, u64::from(nr_pages));
                self.use_pages(pages);
                self.page_row(call, 1, pages);
            }
            What::Miss { file, page } => self.page_row(call, 2, (file.0, page.0, 1)),
            What::Fault { file, page, major } => {
                let pages = (file.0, page.0, 1);
                self.use_pages(pages);
                if !major {
                    self.page_row(call, 1, pages);
                }
            }
            What::RaWindow { file, kind, start, nr_pages, async_size, .. } => {
                if self.shown(at, at) {
                    let pages = (file.0, start.0, u64::from(nr_pages));
                    let window = Window { at, call, kind, pages, async_size, added: 0, used: 0, thrashed: 0 };
                    self.windows.push(window);
                    let row = self.windows.len() - 1;
                    self.state(call).window = Some(row);
                } else {
                    self.state(call).window = None;
                }
            }
            What::PageAdd { file, page, nr_pages } => self.page_add(call, (file.0, page.0, u64::from(nr_pages))),
            What::PageRemove { file, page, nr_pages, .. } => {
                let pages = (file.0, page.0, u64::from(nr_pages));
                let windows = &mut self.windows;
                self.owners.take(pages, |window| windows[window].thrashed += 1);
                self.page_row(call, 3, pages);
            }
            What::Writeback { file, page, nr_pages } => {
                self.state(call).pending[1].push_back((file.0, page.0, u64::from(nr_pages)));
            }
            What::BioQueue { dir, content: Content::Data, nr_sectors, .. } => {
                let pages = self.pages_of(call, dir, nr_sectors);
                if let Some(bio) = self.life.bio(event.call) {
                    bio.own = pages;
                }
            }
            What::Plug => self.plugs_open.push((at, call)),
            What::Unplug { cause, nr_requests } => self.unplug(call, cause, nr_requests),
            What::Merge { rq, nr_sectors, .. } => {
                if let (Step::Joined(bio), Some(request)) = (step, self.life.get_mut(rq)) {
                    // A bio whose queueing was not seen still has a length.
                    request.nr_sectors = request.nr_sectors.saturating_add(if bio.is_none() { nr_sectors } else { 0 });
                    request.own = joined(request.own, bio.and_then(|bio| bio.own));
                }
            }
            What::MergeRequests { rq, .. } => {
                if let (Step::United(gone), Some(request)) = (step, self.life.get_mut(rq)) {
                    request.own = joined(request.own, gone.own);
                }
            }
            What::Issue { rq, .. } => {
                // What has no bio is shown with the call that it is issued for.
                if let (Step::Issued(None), Some(request)) = (step, self.life.get_mut(rq)) {
                    request.call = event.call;
                }
            }
            What::Complete { .. } => {
                if let Step::Completed(request) = step {
                    self.keep(request);
                }
            }
            _ => {}
        }
    }
}

impl Builder<'_> {
    /// The timeline of all that came. Files and their map are left to the caller; `differs` is the first call that was
    /// served differently.
    pub fn finish(mut self, differs: Option<usize>) -> Timeline {
        let open: Vec<Request> = self.life.open().map(|(_, request)| *request).filter(|open| open.bios > 0).collect();
        open.into_iter().for_each(|request| self.keep(request));
        for (start, call) in std::mem::take(&mut self.plugs_open) {
            if self.shown(start, self.now) {
                self.plugs.push(Plug { start, end: self.now, call, cause: NONE, nr: 0 });
            }
        }
        let survey = self.survey;
        let begin = survey.begins();
        let clock = |time: u64| time.saturating_sub(begin) as i64;
        let end_of = |call: &Call| if call.end == NEVER { self.now } else { call.end };
        // Rows speak of calls that began before the part.
        let spoken = (self.pages.iter().map(|row| row.call))
            .chain(self.windows.iter().map(|row| row.call))
            .chain(self.plugs.iter().map(|row| row.call))
            .chain(self.requests.iter().map(|row| survey.place(row.call)));
        let mut kept: Vec<usize> = spoken.flatten().collect();
        let inside = survey.calls.iter().enumerate().filter(|(_, call)| self.shown(call.start, end_of(call)));
        kept.extend(inside.map(|(place, _)| place));
        kept.sort_unstable();
        kept.dedup();
        let row_of =
            |call: Option<usize>| call.and_then(|call| kept.binary_search(&call).ok()).map_or(NONE, |row| row as i64);
        let mut calls = Calls::default();
        for (place, call) in kept.iter().map(|place| (*place, &survey.calls[*place])) {
            calls.nr.push(place as u64 + 1);
            calls.start.push(clock(call.start));
            calls.end.push(clock(end_of(call)));
            calls.op.push(call.op as u8);
            calls.file.push(call.file);
            calls.offset.push(call.offset);
            calls.bytes.push(call.bytes);
            calls.thread.push(call.lane);
        }
        let mut pages = Pages::default();
        for row in &self.pages {
            pages.at.push(clock(row.at));
            pages.call.push(row_of(row.call));
            pages.kind.push(row.kind);
            pages.file.push(row.pages.0);
            pages.first.push(row.pages.1);
            pages.nr.push(row.pages.2);
        }
        let mut windows = Windows::default();
        for row in &self.windows {
            let (file, first, nr) = row.pages;
            let ahead = u64::from(row.async_size);
            windows.at.push(clock(row.at));
            windows.call.push(row_of(row.call));
            windows.kind.push(index_of(&WINDOWS, row.kind));
            windows.file.push(file);
            windows.first.push(first);
            windows.nr.push(nr);
            windows.marker.push(if ahead > 0 && ahead <= nr { (first + nr - ahead) as i64 } else { NONE });
            windows.used.push(row.used);
            windows.thrashed.push(row.thrashed);
            windows.unused.push(row.added.saturating_sub(row.used + row.thrashed));
        }
        self.plugs.sort_by_key(|plug| (plug.start, plug.end));
        let mut plugs = Plugs::default();
        for row in &self.plugs {
            plugs.start.push(clock(row.start));
            plugs.end.push(clock(row.end));
            plugs.call.push(row_of(row.call));
            plugs.cause.push(row.cause);
            plugs.nr.push(row.nr);
        }
        self.requests.sort_by_key(|request| (request.queued, request.allocated, request.sector));
        let requests = self.requests(begin, &|call| row_of(survey.place(call)));
        let part = |span: &Span| Part { from_ns: clock(span.from), to_ns: clock(span.to), why: span.why };
        Timeline {
            elapsed_ns: survey.ends().saturating_sub(begin),
            nr_events: survey.nr_events,
            overview: survey.overview(),
            stalls: survey.stalls(),
            detail: self.spans.iter().map(part).collect(),
            first_difference: differs.and_then(|call| kept.binary_search(&call).ok()),
            calls,
            pages,
            windows,
            window_kinds: WINDOWS.map(window_word).to_vec(),
            plugs,
            unplug_causes: UNPLUGS.map(unplug_word).to_vec(),
            requests,
            contents: CONTENTS.map(content_word).to_vec(),
            ..Timeline::default()
        }
    }

    /// The table of requests; `row_of` finds the row of a call.
    fn requests(&self, begin: u64, row_of: &dyn Fn(CallId) -> i64) -> Requests {
        let clock = |time: u64| time.saturating_sub(begin) as i64;
        let maybe = |time: Option<Nanos>| time.map_or(NONE, |time| clock(time.0));
        let mut requests = Requests::default();
        for row in &self.requests {
            requests.q.push(clock(row.queued.0));
            requests.g.push(clock(row.allocated.0));
            requests.i.push(maybe(row.inserted));
            requests.d.push(maybe(row.issued));
            requests.c.push(maybe(row.completed));
            requests.call.push(row_of(row.call));
            requests.dir.push(row.dir as u8);
            requests.content.push(index_of(&CONTENTS, row.content));
            requests.sector.push(row.sector);
            requests.sectors.push(row.nr_sectors);
            requests.bios.push(row.bios);
            requests.depth.push(row.depth);
            let pages = row.own.map(|(file, first, nr)| (i64::from(file), first as i64, nr as i64));
            let (file, first, nr) = pages.unwrap_or((NONE, NONE, NONE));
            requests.file.push(file);
            requests.first.push(first);
            requests.nr.push(nr);
        }
        requests
    }
}
