//! A run at a glance, in one pass: slices of equal length, every call with its I/O, the fate of the files' pages, and
//! the distribution of events in time.
//!
//! ```text
//! slices   as many as fit between half of the most and the most: when there are too many, neighbours become one
//! calls    begin, end, place, and a sum over its windows, bios and requests with their sizes, in any order, by which
//!          two calls that were served differently are recognised
//! lanes    of calls in progress at once: the lowest one that is free, which is the thread's own as long as threads
//!          call without a pause; events do not name threads
//! marks    the time of every 64th event, so that a part of the run can be chosen by how much there is to show of it
//! pages    a byte for each: found at the first touch, missed, brought by read-ahead, brought by others; a page that
//!          was read ahead is used when a call asks for it, since not every trace has hits
//! ```
//! A request belongs to the call whose bio it was made for. The run begins with its first call and ends with its last;
//! without calls, with the first and the last event. Events before or behind are in no slice.

use std::collections::{BTreeSet, HashMap, VecDeque};

use iowhy_stack::event::{CallId, Dir, Event, EventSink, Op, What};
use iowhy_stack::lifecycle::{Lifecycle, Request, Stage, Step};
use iowhy_stack::units::PAGE_BYTES;

use super::{Overview, Stalls, Strips};

/// Most slices.
pub const SLICES: usize = 2_000;
/// Length of a slice to begin with, ns.
const SLICE: u64 = 1_000;
/// Events from one mark to the next.
pub const MARK: u64 = 64;
/// The end of a call that has none.
pub const NEVER: u64 = u64::MAX;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its number in the events.
    pub id: u32,
    pub op: Op,
    /// Where it stands among the calls in progress with it.
    pub lane: u16,
    /// On which file.
    pub file: u32,
    /// From which byte.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u32,
    /// When it began, on the clock of the events.
    pub start: u64,
    /// When it ended; [`NEVER`] if it did not.
    pub end: u64,
    /// A sum over its I/O.
    pub done: u64,
}

impl Call {
    /// Its request: equal on two sides if it is the same call.
    fn asked(&self) -> (u32, u64, u32, u8) {
        (self.file, self.offset, self.bytes, self.op as u8)
    }

    /// How long it took; 0 if it did not end.
    pub fn took(&self) -> u64 {
        if self.end == NEVER { 0 } else { self.end - self.start }
    }
}

/// History of a page.
mod page {
    /// The workload asked for it, and it was there.
    pub(super) const FOUND: u8 = 1;
    /// It was asked for, and was absent.
    pub(super) const MISSED: u8 = 2;
    /// It was read ahead of the requested pages.
    pub(super) const AHEAD: u8 = 4;
    /// Others brought it.
    pub(super) const FOREIGN: u8 = 8;
    /// It was taken out since.
    pub(super) const GONE: u8 = 16;
}

/// Pages in a chunk.
const CHUNK: u64 = 4096;

/// A byte for each page that was ever spoken of.
#[derive(Debug, Default)]
pub(super) struct Pages {
    chunks: HashMap<(u32, u64), usize>,
    bytes: Vec<Box<[u8; CHUNK as usize]>>,
    last: Option<((u32, u64), usize)>,
    /// One past the last page spoken of, by file.
    ends: HashMap<u32, u64>,
}

impl Pages {
    pub(super) fn each(&mut self, file: u32, first: u64, nr: u64, change: impl Fn(&mut u8)) {
        let end = first.saturating_add(nr);
        if end > first {
            let known = self.ends.entry(file).or_default();
            *known = (*known).max(end);
        }
        let mut at = first;
        while at < end {
            let key = (file, at / CHUNK);
            let chunk = match self.last {
                Some((known, chunk)) if known == key => chunk,
                _ => {
                    let bytes = &mut self.bytes;
                    *self.chunks.entry(key).or_insert_with(|| {
                        bytes.push(Box::new([0; CHUNK as usize]));
                        bytes.len() - 1
                    })
                }
            };
            self.last = Some((key, chunk));
            let upto = end.min((at / CHUNK + 1) * CHUNK);
            let (from, to) = ((at % CHUNK) as usize, ((upto - 1) % CHUNK) as usize);
            self.bytes[chunk][from..=to].iter_mut().for_each(&change);
            at = upto;
        }
    }

    /// The same of pages that were spoken of, and of no others.
    fn each_known(&mut self, file: u32, first: u64, nr: u64, change: impl Fn(&mut u8)) {
        let end = first.saturating_add(nr).min(self.ends.get(&file).copied().unwrap_or(0));
        let mut at = first;
        while at < end {
            let upto = end.min((at / CHUNK + 1) * CHUNK);
            if let Some(chunk) = self.chunks.get(&(file, at / CHUNK)) {
                let (from, to) = ((at % CHUNK) as usize, ((upto - 1) % CHUNK) as usize);
                self.bytes[*chunk][from..=to].iter_mut().for_each(&change);
            }
            at = upto;
        }
    }

    /// Every page that was spoken of, and those around it.
    pub(super) fn all(&mut self, change: impl Fn(&mut u8)) {
        self.bytes.iter_mut().for_each(|bytes| bytes.iter_mut().for_each(&change));
    }

    /// A sum over the pages of each strip of a file.
    pub(super) fn sums(&self, file: u32, strip_pages: u64, strips: usize, of: impl Fn(u8) -> u64) -> Vec<u64> {
        let mut sums = vec![0; strips];
        for ((_, chunk), bytes) in self.chunks.iter().filter(|((of, _), _)| *of == file) {
            for (page, byte) in (chunk * CHUNK..).zip(self.bytes[*bytes].iter()) {
                if let Some(sum) = sums.get_mut((page / strip_pages) as usize) {
                    *sum += of(*byte);
                }
            }
        }
        sums
    }

    /// How many pages of each state but the first are in each strip of a file, and whether others brought one.
    fn count(&self, file: u32, strip_pages: u64, strips: usize) -> Vec<([u64; 5], bool)> {
        let mut counts = vec![([0; 5], false); strips];
        for ((_, chunk), bytes) in self.chunks.iter().filter(|((of, _), _)| *of == file) {
            for (page, byte) in (chunk * CHUNK..).zip(self.bytes[*bytes].iter()).filter(|(_, byte)| **byte != 0) {
                if let Some((counts, foreign)) = counts.get_mut((page / strip_pages) as usize) {
                    counts[state(*byte)] += 1;
                    *foreign |= byte & page::FOREIGN != 0;
                }
            }
        }
        counts
    }
}

/// The state of a page as a report has it.
fn state(byte: u8) -> usize {
    match byte {
        byte if byte & page::FOREIGN != 0 => 4,
        byte if byte & page::MISSED != 0 => 2,
        byte if byte & page::FOUND != 0 => 1,
        byte if byte & page::AHEAD != 0 => 3,
        _ => 0,
    }
}

#[derive(Copy, Clone, Debug)]
struct Slice {
    depth: (u32, u32),
    bytes: [u64; 2],
    calls: u32,
    starved: u64,
    done_bytes: u64,
    done_calls: u64,
}

/// Makes a survey.
#[derive(Debug)]
pub struct Survey {
    /// Calls in the order in which they began.
    pub calls: Vec<Call>,
    /// Times of events, on their clock.
    marks: Vec<u64>,
    /// Events seen.
    pub nr_events: u64,
    begin: Option<u64>,
    first: u64,
    now: u64,
    last_end: Option<u64>,
    slice: u64,
    slices: Vec<Slice>,
    lanes: Vec<bool>,
    /// Calls whose place differs from their number.
    places: HashMap<CallId, usize>,
    open: usize,
    life: Lifecycle<()>,
    pages: Pages,
    starving: bool,
    stalls: Stalls,
}

impl Default for Survey {
    fn default() -> Survey {
        Survey {
            calls: Vec::new(),
            marks: Vec::new(),
            nr_events: 0,
            begin: None,
            first: 0,
            now: 0,
            last_end: None,
            slice: SLICE,
            slices: Vec::new(),
            lanes: Vec::new(),
            places: HashMap::new(),
            open: 0,
            life: Lifecycle::default(),
            pages: Pages::default(),
            starving: false,
            stalls: Stalls::default(),
        }
    }
}

/// A hash of an action, so that different sums mean different actions.
fn word(what: u64, size: u64) -> u64 {
    let word = (size ^ (what << 60)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word ^ (word >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

impl EventSink for Survey {
    fn event(&mut self, event: &Event) {
        if self.nr_events == 0 {
            self.first = event.at.0;
        }
        if self.nr_events.is_multiple_of(MARK) {
            self.marks.push(event.at.0);
        }
        self.nr_events += 1;
        self.pass(event.at.0);
        let call = self.place(event.call);
        let step = self.life.event(event);
        match event.what {
            What::CallStart { op, file, offset, len_bytes } => self.begin_call(event, op, file.0, offset, len_bytes),
            What::CallEnd { .. } => {
                if let Some(call) = call.filter(|call| self.calls[*call].end == NEVER) {
                    let call = &mut self.calls[call];
                    call.end = self.now;
                    if let Some(slice) = self.slices.last_mut() {
                        slice.done_calls += 1;
                        slice.done_bytes += u64::from(call.bytes);
                    }
                    self.lanes[usize::from(call.lane)] = false;
                    self.open -= 1;
                    self.last_end = Some(self.now);
                }
            }
            What::Hit { file, page, nr_pages } if call.is_some() => {
                self.pages.each(file.0, page.0, u64::from(nr_pages), |byte| *byte |= page::FOUND);
            }
            What::Miss { file, page } if call.is_some() => {
                // A page that was there is missed again only after it had gone.
                let missed = |byte: &mut u8| *byte |= if *byte & page::FOUND == 0 { page::MISSED } else { 0 };
                self.pages.each(file.0, page.0, 1, missed);
            }
            What::Fault { file, page, major } if call.is_some() => {
                let seen = if major { page::MISSED } else { page::FOUND };
                self.pages.each(file.0, page.0, 1, |byte| *byte |= if *byte & page::FOUND == 0 { seen } else { 0 });
            }
            What::RaWindow { nr_pages, kind, .. } => self.did(call, word(1 + kind as u64, u64::from(nr_pages))),
            What::PageRemove { file, page, nr_pages, .. } => {
                self.pages.each_known(file.0, page.0, u64::from(nr_pages), |byte| *byte |= page::GONE);
            }
            What::PageAdd { file, page, nr_pages } => self.page_add(call, file.0, page.0, u64::from(nr_pages)),
            What::BioQueue { dir, nr_sectors, .. } => self.did(call, word(8 + dir as u64, u64::from(nr_sectors))),
            What::Issue { rq, dir, nr_sectors, .. } if matches!(step, Step::Issued(_)) => {
                let owner = self.life.get(rq).and_then(|request| self.place(request.call));
                self.did(owner, word(10 + dir as u64, u64::from(nr_sectors)));
                self.deepen();
            }
            What::Complete { dir, nr_sectors, .. } => {
                if let (Step::Completed(Request { stage: Stage::Issued, .. }), Some(slice)) =
                    (step, self.slices.last_mut())
                {
                    slice.bytes[usize::from(dir == Dir::Write)] += u64::from(nr_sectors) * 512;
                    self.deepen();
                }
            }
            _ => {}
        }
    }
}

impl Survey {
    /// The place of a call among all.
    pub(super) fn place(&self, id: CallId) -> Option<usize> {
        let place = id.0.checked_sub(1)? as usize;
        if self.calls.get(place).is_some_and(|call| call.id == id.0) {
            return Some(place);
        }
        self.places.get(&id).copied()
    }

    fn did(&mut self, call: Option<usize>, word: u64) {
        if let Some(call) = call {
            let call = &mut self.calls[call];
            call.done = call.done.wrapping_add(word);
        }
    }

    /// The depth counts in the slice of now.
    fn deepen(&mut self) {
        let depth = self.life.depth;
        if let Some(slice) = self.slices.last_mut() {
            slice.depth = (slice.depth.0.min(depth), slice.depth.1.max(depth));
        }
    }

    /// Time goes on.
    fn pass(&mut self, now: u64) {
        // Until the first call the run begins with its first event; whether there will be one is not known yet.
        let begin = self.begin.unwrap_or(self.first);
        let from = self.now.max(begin);
        self.now = now;
        let depth = self.life.depth;
        let starving = depth == 0 && self.life.queued > 0;
        let mut at = if self.slices.is_empty() { begin } else { from };
        if now < begin {
            return;
        }
        if starving && now > from {
            self.stalls.count += u64::from(!self.starving);
            self.stalls.ns += now - from;
            self.starving = true;
        }
        self.starving &= starving;
        loop {
            let index = ((at.max(begin) - begin) / self.slice) as usize;
            if index >= SLICES {
                self.halve();
                continue;
            }
            while self.slices.len() <= index {
                let depth = (depth, depth);
                self.slices.push(Slice { depth, bytes: [0; 2], calls: 0, starved: 0, done_bytes: 0, done_calls: 0 });
            }
            let end = begin + (index as u64 + 1) * self.slice;
            let upto = now.min(end);
            if starving {
                self.slices[index].starved += upto.saturating_sub(at);
            }
            if end > now {
                return;
            }
            at = end;
        }
    }

    /// Two slices become one.
    fn halve(&mut self) {
        self.slice *= 2;
        let merged = self.slices.chunks(2).map(|pair| {
            let mut one = pair[0];
            for other in &pair[1..] {
                one.depth = (one.depth.0.min(other.depth.0), one.depth.1.max(other.depth.1));
                one.bytes[0] += other.bytes[0];
                one.bytes[1] += other.bytes[1];
                one.calls += other.calls;
                one.starved += other.starved;
                one.done_bytes += other.done_bytes;
                one.done_calls += other.done_calls;
            }
            one
        });
        self.slices = merged.collect();
    }

    fn begin_call(&mut self, event: &Event, op: Op, file: u32, offset: u64, bytes: u32) {
        if self.begin.is_none() {
            // What came before belongs to no slice.
            self.begin = Some(self.now);
            (self.slice, self.slices) = (SLICE, Vec::new());
            (self.starving, self.stalls) = (false, Stalls::default());
            self.pass(self.now);
        }
        let lane = self.lanes.iter().position(|taken| !taken).unwrap_or(self.lanes.len());
        let lane = lane.min(usize::from(u16::MAX));
        if lane >= self.lanes.len() {
            self.lanes.push(false);
        }
        self.lanes[lane] = true;
        self.open += 1;
        if let Some(slice) = self.slices.last_mut() {
            slice.calls += 1;
        }
        if op == Op::Read {
            let end = offset.saturating_add(u64::from(bytes.max(1))).div_ceil(PAGE_BYTES);
            let first = offset / PAGE_BYTES;
            let used = |byte: &mut u8| {
                *byte |= if *byte & (page::AHEAD | page::GONE) == page::AHEAD { page::FOUND } else { 0 }
            };
            self.pages.each_known(file, first, end - first, used);
        }
        let place = self.calls.len();
        if event.call.0 as usize != place + 1 {
            self.places.insert(event.call, place);
        }
        let (start, id) = (self.now, event.call.0);
        self.calls.push(Call { id, op, lane: lane as u16, file, offset, bytes, start, end: NEVER, done: 0 });
    }

    fn page_add(&mut self, call: Option<usize>, file: u32, page: u64, nr: u64) {
        let Some(call) = call else {
            return self.pages.each(file, page, nr, |byte| *byte |= page::FOREIGN);
        };
        let call = self.calls[call];
        let own = call.offset / PAGE_BYTES..(call.offset + u64::from(call.bytes.max(1))).div_ceil(PAGE_BYTES);
        let end = page + nr;
        if call.op != Op::Read || call.file != file {
            return;
        }
        for (from, to) in [(page, end.min(own.start)), (page.max(own.end), end)] {
            if from < to {
                self.pages.each(file, from, to - from, |byte| *byte = (*byte | page::AHEAD) & !page::GONE);
            }
        }
    }

    /// When the run begins, on the clock of the events.
    pub fn begins(&self) -> u64 {
        self.begin.unwrap_or(self.first)
    }

    /// When it ends.
    pub fn ends(&self) -> u64 {
        self.last_end.filter(|_| self.open == 0).unwrap_or(self.now)
    }

    /// The time of an event, by its number, or the end of the run.
    pub fn time_of(&self, event: u64) -> u64 {
        self.marks.get(event.div_ceil(MARK) as usize).copied().unwrap_or(self.ends() + 1)
    }

    /// The number of the last marked event before a time.
    pub fn event_at(&self, time: u64) -> u64 {
        (self.marks.partition_point(|mark| *mark < time) as u64).saturating_sub(1) * MARK
    }

    /// The slices of the run.
    pub fn overview(&self) -> Overview {
        let elapsed = self.ends() - self.begins();
        let nr = ((elapsed / self.slice) as usize + 1).min(self.slices.len());
        let mut out = Overview { slice_ns: self.slice, ..Overview::default() };
        let (mut bytes, mut calls) = (0, 0);
        for slice in &self.slices[..nr] {
            out.depth_min.push(slice.depth.0);
            out.depth_max.push(slice.depth.1);
            out.read_bytes.push(slice.bytes[0]);
            out.write_bytes.push(slice.bytes[1]);
            out.calls.push(slice.calls);
            // Of runs without calls, what the device has done.
            bytes += if self.calls.is_empty() { slice.bytes[0] + slice.bytes[1] } else { slice.done_bytes };
            calls += slice.done_calls;
            out.done_bytes.push(bytes);
            out.done_calls.push(calls);
            let share = slice.starved as f64 / self.slice as f64;
            out.starved.push((share * 1e4).round() / 1e4);
        }
        out
    }

    /// All stalls of the run.
    pub fn stalls(&self) -> Stalls {
        self.stalls
    }

    /// Calls that have not ended, or of which requests have not been issued, by their places.
    fn unserved(&self) -> BTreeSet<usize> {
        let open = self.calls.iter().enumerate().filter(|(_, call)| call.end == NEVER).map(|(place, _)| place);
        let held = self.life.open().filter(|(_, request)| request.stage != Stage::Issued);
        open.chain(held.filter_map(|(_, request)| self.place(request.call))).collect()
    }

    /// One past the last page that was spoken of, by file.
    pub fn pages_of(&self, file: u32) -> u64 {
        self.pages.ends.get(&file).copied().unwrap_or(0)
    }

    /// Files that were called on or whose pages were spoken of, by their numbers in the events.
    pub fn files(&self) -> BTreeSet<u32> {
        self.calls.iter().map(|call| call.file).chain(self.pages.ends.keys().copied()).collect()
    }

    /// At most `most` strips of a file of this number of pages. `by` is the name of the processes that brought
    /// unrequested pages.
    pub fn strips(&self, file: u32, nr_pages: u64, most: u64, by: &str) -> Strips {
        let strip_pages = nr_pages.div_ceil(most).max(1);
        let mut out = Strips { file, strip_pages, ..Strips::default() };
        for (counts, foreign) in self.pages.count(file, strip_pages, nr_pages.div_ceil(strip_pages) as usize) {
            // Of all touched pages; of equally many the one that is rarer elsewhere.
            let most = (1..5).max_by_key(|state| (counts[*state], *state)).filter(|state| counts[*state] > 0);
            out.state.push(most.unwrap_or(0) as u8);
            out.by.push(foreign.then(|| by.to_owned()));
        }
        out
    }
}

/// The first call that two runs served differently: its place in each. The same call is one with the same file, place
/// and length; of several such calls the first of one run is set against the first of the other, and so on. Calls that
/// were still being served when the events ended are treated alike.
pub fn first_difference(a: &Survey, b: &Survey) -> Option<(usize, usize)> {
    let unserved = [a.unserved(), b.unserved()];
    let differ = |mine: usize, theirs: usize| {
        a.calls[mine].done != b.calls[theirs].done && !unserved[0].contains(&mine) && !unserved[1].contains(&theirs)
    };
    let alike = a.calls.iter().zip(&b.calls).take_while(|(a, b)| a.asked() == b.asked()).count();
    if let Some(nr) = (0..alike).find(|nr| differ(*nr, *nr)) {
        return Some((nr, nr));
    }
    let nr = alike;
    let mut others: HashMap<(u32, u64, u32, u8), VecDeque<usize>> = HashMap::new();
    for (place, call) in b.calls.iter().enumerate().skip(nr) {
        others.entry(call.asked()).or_default().push_back(place);
    }
    let rest = a.calls.iter().enumerate().skip(nr);
    rest.filter_map(|(place, call)| Some((place, others.get_mut(&call.asked())?.pop_front()?)))
        .find(|(mine, theirs)| differ(*mine, *theirs))
}
