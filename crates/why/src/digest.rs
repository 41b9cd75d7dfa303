//! One run in numbers: everything that rules and attribution ask of the events of a run, gathered in one pass.
//!
//! The events are those of the simulator or a joined trace of the running kernel; both speak one vocabulary, and
//! nothing here knows which one it was. Events that only a simulator can know (`..Model`) are ignored.
//!
//! ```text
//! workload   the requests: sizes, places, threads, syncs; it has to be equal for the rest to be the kernel's
//!            doing
//! cache      pages found, missing, put in, taken out, read again after they had been taken out
//! windows    read-ahead decisions, the fate of their pages, why windows were closed
//! bios       sizes; which could have joined the request before them, and which did
//! plugs      how long requests are held, and how long the device has nothing to do meanwhile
//! commands   sizes, places, order in which waiting requests are taken, how many are at the device
//! device     time at the device by kind of command, so that equal commands are compared with equal ones
//! sync       commits, flushes, throttled writers
//! turns      calls without any event until another one on their file has ended: the mark of a lock
//! foreign    I/O that the workload did not request
//! time       who waits for what, adding up to the whole ([`Time`])
//! ```
//! A request belongs to a call if it carries pages that the call asks for (or none of a file at all); pages read ahead
//! of a call's own range keep no task waiting until one asks for them. Known limits: events of a trace do not separate
//! a thread that sleeps from one that computes, so [`Layer::Lock`] is the time of calls beyond four times the median of
//! their kind without any I/O; calls that wait for a page that another call has asked for, but that is in no request
//! yet, count as computing.

mod commands;
pub mod discards;
mod figures;
pub mod in_place;
pub mod mutex;
mod pages;
pub mod partial;
pub mod piped;
pub mod scattered;
pub mod stacks;
pub mod synced;
pub mod tags;
mod tally;
mod waits;
pub mod wall;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use iowhy_stack::event::{CallId, Content, Dir, Event, EventSink, Eviction, JournalStep, MergeKind, Op, RqId, What};
use iowhy_stack::lifecycle::{Bio, Stage, Step};
use iowhy_stack::units::{Nanos, PAGE_BYTES, PAGE_SECTORS, SECTOR_BYTES};

use commands::Own;
pub use commands::{Class, Commands, Load, Moments, Place, Ways, Within};
pub use figures::{Bios, Cache, Foreign, Plugs, Sync, Turns, Windows, Workload};
use iowhy_trace::settings::Command;
use stacks::Stacks;
pub use tally::{PageSet, Spread};
use waits::Waits;
pub use waits::{KIND_OTHER, KIND_SYNC, KINDS, LAYERS, Layer, Time, WAITS};
use wall::Wall;

/// A run in numbers.
#[derive(Clone, Debug, Default)]
pub struct Digest {
    /// From the first call to the end of the last, or from the first event to the last without calls.
    pub elapsed: Nanos,
    /// Events seen.
    pub nr_events: u64,
    pub workload: Workload,
    /// Latencies of reads, writes and syncs, ns.
    pub latency: [Spread; 3],
    /// Time of a call before its first bio, ns: reads and writes.
    pub before_bio: [Spread; 2],
    /// Time of calls during which they wait for no I/O, ns.
    pub without_io: [Spread; 3],
    /// Time from the completion of a call's last request to its end, ns: reads and writes that waited for one.
    pub after_io: [Spread; 2],
    /// Latencies of those that waited for none, ns.
    pub never_waited: [Spread; 2],
    /// Time between two calls: from an end to the first begin after it that follows no earlier one, ns.
    pub pauses: Spread,
    /// Time between the first call and the last with no call in progress, ns.
    pub silent: u64,
    /// Pages.
    pub cache: Cache,
    /// Read-ahead.
    pub windows: Windows,
    pub bios: Bios,
    pub plugs: Plugs,
    /// Requests and the device.
    pub commands: Commands,
    /// Journal and writers.
    pub sync: Sync,
    /// Calls that wait for one another.
    pub turns: Turns,
    /// Others.
    pub foreign: Foreign,
    /// Where the time went.
    pub time: Time,
    /// The same by the clock, from the states of the tasks, if they were recorded.
    pub wall: Option<Wall>,
    /// Resource usage of the command, if it was one.
    pub command: Option<Command>,
    /// Where its tasks wait, if stacks were recorded.
    pub stacks: Stacks,
}

impl Digest {
    /// Takes the clock's time for the time of the run.
    pub fn by_the_clock(&mut self, mut wall: Option<Wall>, command: Option<Command>) {
        self.command = command;
        if let (Some(wall), Some(command)) = (&mut wall, command) {
            wall.ran_at_most((command.cpu_ns[0] + command.cpu_ns[1]) as f64);
        }
        let span = wall.as_ref().map(|wall| wall.span_ns).or(command.map(|command| command.wall_ns()));
        if let Some(span) = span {
            self.elapsed = Nanos(span);
        }
        if let Some(wall) = &wall {
            let slots = f64::from(self.time.slots.max(1));
            self.time.ns = wall.ns.map(|kind| kind.map(|ns| ns * slots));
        }
        self.wall = wall;
    }

    /// Takes as many slots as calls are in progress on average instead of at most: in a recording of the whole machine,
    /// a service that makes a call now and then does not halve the time of the one that is at work.
    pub fn share_time(&mut self) {
        let calls: f64 = self.latency.iter().map(Spread::sum).sum();
        let busy = self.elapsed.0.saturating_sub(self.silent).max(1);
        let most = self.time.slots.max(1);
        let slots = ((calls / busy as f64).round() as u32).clamp(1, most);
        for layer in [Layer::Application, Layer::Pause] {
            self.time.ns[KIND_OTHER][layer as usize] *= f64::from(slots) / f64::from(most);
        }
        self.time.slots = slots;
    }

    /// Of these events, which are in order of time.
    pub fn of(events: &[Event]) -> Digest {
        let mut observer = Observer::default();
        events.iter().for_each(|event| observer.event(event));
        observer.finish()
    }

    /// All calls that ended.
    pub fn calls(&self) -> u64 {
        self.latency.iter().map(Spread::count).sum()
    }

    /// Number of calls that read or write, or of syncs without others.
    pub fn operations(&self) -> u64 {
        let data = self.latency[0].count() + self.latency[1].count();
        if data > 0 { data } else { self.latency[2].count() }
    }
}

/// Bytes read for each one written, from which on a workload only reads.
const FEW_BYTES: u64 = 100;
/// Ends of calls that a stream may go on from, for each file.
const STREAMS: usize = 32;

#[derive(Clone, Debug, Default)]
struct FileState {
    ends: VecDeque<u64>,
    /// The page behind the last one that a read put into the cache.
    added_to: u64,
    open_calls: u32,
    last_end: Nanos,
    /// Pages in the cache put there by the workload, and by others.
    cached: [u64; 2],
    /// Reads and writes.
    calls: u64,
    /// Reads and writes that went round the page cache for sure.
    direct: [u64; 2],
    /// Some call touched the cache.
    buffered: bool,
    /// Quiet reads and writes over pages of anybody, of others, of the workload's own.
    quiet_over: [[u64; 3]; 2],
}

#[derive(Clone, Debug)]
struct Call {
    id: CallId,
    op: Op,
    file: u32,
    first: u64,
    last: u64,
    len_bytes: u64,
    start: Nanos,
    sequential: bool,
    overlapping: bool,
    missed: bool,
    singles: u32,
    touched_cache: bool,
    own_data_bio: bool,
    mapped: bool,
    /// Something was seen of it.
    acted: bool,
    /// Bytes written by its bios.
    written: u64,
    /// It dropped pages.
    dropped: bool,
    before_bio: Option<Nanos>,
    /// End and length of the last request for pages that it has put there, and file and first page of its bio.
    cut: Option<(u64, u32, u32, u64)>,
    /// Pages added that no bio has taken yet.
    pending: VecDeque<(u32, u64, u32)>,
}

impl Call {
    fn wants(&self, file: u32, page: u64, nr: u32) -> bool {
        file == self.file && page <= self.last && page + u64::from(nr) > self.first
    }
}

/// Turns events into a [`Digest`].
#[derive(Debug, Default)]
pub struct Observer {
    out: Digest,
    /// Files that were synced.
    synced: BTreeSet<u32>,
    begin: Option<Nanos>,
    last_end: Option<Nanos>,
    now: Nanos,
    calls: Vec<Call>,
    places: std::collections::HashMap<u32, usize>,
    files: BTreeMap<u32, FileState>,
    regions: BTreeMap<(u32, u64), u64>,
    ever: PageSet,
    cached: PageSet,
    ahead: PageSet,
    /// Pages that others put there.
    others: PageSet,
    /// The next event is not the workload's.
    stranger: bool,
    last_bio: [Option<(u64, u32)>; 2],
    locked: BTreeMap<u32, Nanos>,
    /// Ends of calls that no other call has begun after.
    ended: VecDeque<Nanos>,
    /// Pages that calls of the workload have dirtied, at most.
    dirtied: u64,
    /// Pages in writeback for no task, without a bio yet, and whether the workload had dirtied them.
    /// Only simulated runs have it.
    written_back: Vec<(u32, bool)>,
    tells_writeback: bool,
    /// Syncs in progress, flushes at the device, and since when both are counted.
    syncs: u32,
    flushes: Vec<RqId>,
    flushed: Nanos,
    waits: Waits,
    commands: commands::Observer,
}

impl EventSink for Observer {
    fn event(&mut self, event: &Event) {
        self.out.nr_events += 1;
        self.now = event.at;
        self.stranger = event.call == CallId::NONE;
        self.pass_flushes();
        self.commands.pass(event.at);
        let step = self.commands.life.event(event);
        let call = self.places.get(&event.call.0).copied().filter(|_| event.call != CallId::NONE);
        if let Some(call) = call {
            self.turn(call);
        }
        match event.what {
            What::CallStart { op, file, offset, len_bytes } => {
                self.call_start(event.call, op, file.0, offset, len_bytes);
            }
            What::CallEnd { .. } => self.call_end(event.call),
            What::Hit { file, page, nr_pages } => {
                self.out.cache.hits += u64::from(nr_pages);
                self.use_pages(file.0, page.0, u64::from(nr_pages));
                if let Some(call) = call {
                    self.calls[call].touched_cache = true;
                }
            }
            What::Miss { .. } => {
                self.out.cache.misses += 1;
                if let Some(call) = call {
                    self.calls[call].missed = true;
                    self.calls[call].touched_cache = true;
                }
            }
            What::Fault { major, file, page } => {
                self.out.cache.faults[usize::from(major)] += 1;
                self.use_pages(file.0, page.0, 1);
                if let Some(call) = call {
                    self.calls[call].mapped = true;
                    self.calls[call].touched_cache = true;
                }
            }
            What::RaWindow { kind, nr_pages, .. } => self.window(call, kind, nr_pages),
            What::RaClosed { cause, .. } => {
                self.out.windows.closes[cause as usize] += 1;
            }
            What::RaReopened { .. } | What::ServiceModel { .. } | What::Plug => {}
            What::Writeback { file, page, nr_pages } => self.write_back(call, file.0, page.0, nr_pages),
            What::PageAdd { file, page, nr_pages } => self.page_add(call, file.0, page.0, nr_pages),
            What::PageRemove { file, page, nr_pages, cause } => {
                self.page_remove(call, (file.0, page.0, u64::from(nr_pages)), cause);
            }
            What::BioQueue { .. } => self.bio(event.call, call),
            What::GetRequest { rq } => {
                let Step::Allocated(request) = step else { return };
                self.allocate(call, rq, &request);
            }
            What::Merge { rq, kind, .. } => {
                let Step::Joined(Some(bio)) = step else { return };
                self.merge(call, rq, kind, &bio);
            }
            What::MergeRequests { rq, gone } => {
                self.commands.unite(rq, gone, step);
                self.waits.unite(event.at, rq.0, gone.0);
            }
            What::Unplug { cause, nr_requests } => {
                self.out.plugs.unplugs[cause as usize] += 1;
                if nr_requests > 0 {
                    self.out.plugs.batch.add(u64::from(nr_requests));
                }
            }
            What::Insert { rq } => {
                let Step::Inserted = step else { return };
                self.commands.insert(event.at, rq, &mut self.out.plugs);
                self.waits.enter(event.at, rq.0, Stage::Waiting);
            }
            What::Issue { rq, dir, nr_sectors, .. } => {
                let Step::Issued(before) = step else { return };
                if nr_sectors == 0 {
                    self.flushes.push(rq);
                }
                self.commands.issue(event.at, rq, before, &mut self.out.plugs);
                self.waits.issue(event.at, rq.0, dir);
            }
            What::Complete { rq, .. } => {
                let Step::Completed(request) = step else { return };
                self.flushes.retain(|known| *known != rq);
                self.commands.complete(event.at, rq, &request, &mut self.out);
                self.waits.complete(event.at, rq.0);
            }
            What::HandOver => self.out.workload.handed_over += u64::from(call.is_some()),
            What::IdleStart => self.commands.idle(event.at, true),
            What::IdleEnd { .. } => self.commands.idle(event.at, false),
            What::Journal { tid, step, nr_blocks } => self.journal(tid, step, nr_blocks),
            What::Throttle { .. } => {
                self.out.sync.throttles += 1;
                if let Some(call) = call {
                    self.waits.throttle(event.at, call);
                }
            }
        }
    }
}

impl Observer {
    fn write_back(&mut self, call: Option<usize>, file: u32, page: u64, nr_pages: u32) {
        let reached = |first| page < first && page + u64::from(nr_pages) >= first;
        let meets = |call: &Call| call.op == Op::Write && call.file == file && reached(call.first);
        self.out.sync.in_front += u64::from(call.is_some_and(|call| meets(&self.calls[call])));
        self.tells_writeback = true;
        if call.is_none() {
            // A file that no call was made on is not the workload's if others put its pages there.
            let own = self.files.get(&file).is_none_or(|state| state.calls > 0 || state.cached[1] == 0);
            self.written_back.push((nr_pages, own));
        }
    }

    fn page_remove(&mut self, call: Option<usize>, (file, page, nr): (u32, u64, u64), cause: Eviction) {
        match cause {
            Eviction::Reclaim => self.out.cache.reclaimed += nr,
            Eviction::Dropped => self.out.cache.dropped += nr,
        }
        // What leaves was there, even if it came before the first event.
        self.ever.insert(file, page, nr);
        self.out.windows.thrashed += self.ahead.remove(file, page, nr);
        let known = self.cached.remove(file, page, nr);
        let foreign = self.others.remove(file, page, nr).min(known);
        if let (Some(call), Eviction::Dropped) = (call, cause) {
            self.calls[call].dropped |= self.calls[call].file == file;
        }
        if let Some(state) = self.files.get_mut(&file) {
            state.cached[0] = state.cached[0].saturating_sub(known - foreign);
            state.cached[1] = state.cached[1].saturating_sub(foreign);
        }
    }

    fn allocate(&mut self, call: Option<usize>, rq: RqId, request: &commands::Request) {
        let (mut pages, mut waits) = (request.own.pages, request.own.wanted);
        if let (Some(call), Some((file, first, nr))) = (call, pages) {
            if let Some((of, whole)) = self.cut(call, request).filter(|(of, whole)| *of == file && *whole < first) {
                let nr = (first - whole) as u32 + nr;
                waits |= self.calls[call].wants(of, whole, nr);
                pages = Some((of, whole, nr));
            }
            let begins = pages.map_or(first, |(_, first, _)| first);
            let end = request.sector + u64::from(request.nr_sectors);
            self.calls[call].cut = Some((end, request.nr_sectors, file, begins));
        }
        self.commands.allocate(request);
        self.waits.allocate(rq.0, request.dir, pages);
        if let (Some(call), true) = (call, waits) {
            self.waits.attach(self.now, call, rq.0, request.own.wanted);
        }
        if let Some(neighbour) = request.own.neighbour {
            // It got a request of its own though it could have joined one.
            let together = self.commands.sectors_of(neighbour) + request.nr_sectors;
            let largest = self.commands.largest(request.dir);
            self.out.bios.refused[request.dir as usize] += u64::from(together <= largest);
        }
    }

    /// File and first page of the bio that a request has the rest of. A bio that is longer than a request may be is
    /// cut, and none of its pages is there before the last part is, so that calls wait for all of them. Such a part
    /// begins where one of the largest size has ended, and the call has added no pages in between.
    fn cut(&self, call: usize, request: &commands::Request) -> Option<(u32, u64)> {
        let (end, nr_sectors, file, first) = self.calls[call].cut?;
        let whole = nr_sectors >= self.commands.largest(request.dir);
        (whole && end == request.sector).then_some((file, first))
    }

    fn merge(&mut self, call: Option<usize>, rq: RqId, kind: MergeKind, bio: &Bio<Own>) {
        if bio.own.neighbour.is_some() {
            self.out.bios.joined[bio.dir as usize] += 1;
        }
        self.commands.merge(rq, kind == MergeKind::Front, call.is_some() && bio.own.wanted);
        self.waits.merge(rq.0, bio.own.pages);
        if let (Some(call), true) = (call, bio.own.wanted) {
            self.waits.attach(self.now, call, rq.0, true);
        }
    }

    fn journal(&mut self, tid: u32, step: JournalStep, nr_blocks: u32) {
        match step {
            JournalStep::Lock => {
                self.locked.insert(tid, self.now);
            }
            JournalStep::Data => {}
            JournalStep::Log | JournalStep::CommitBlock => self.out.sync.blocks += u64::from(nr_blocks),
            JournalStep::Done => {
                self.out.sync.commits += 1;
                if let Some(since) = self.locked.remove(&tid) {
                    self.out.sync.commit.add(self.now.saturating_sub(since).0);
                }
            }
        }
    }

    /// Time goes by for syncs that wait for a flush.
    fn pass_flushes(&mut self) {
        let passed = self.now.saturating_sub(self.flushed).0;
        self.flushed = self.now;
        if self.syncs > 0 && passed > 0 && (!self.flushes.is_empty() || self.commands.held_back()) {
            self.out.sync.flushing += f64::from(self.syncs) * passed as f64;
        }
    }

    fn call_start(&mut self, id: CallId, op: Op, file: u32, offset: u64, len_bytes: u32) {
        let at = self.now;
        self.begin.get_or_insert(at);
        if let Some(end) = self.ended.pop_front() {
            self.out.pauses.add(at.saturating_sub(end).0);
        }
        if let Some(end) = self.last_end.filter(|_| self.calls.is_empty()) {
            self.out.silent += at.saturating_sub(end).0;
        }
        let kind = kind_of(op);
        self.syncs += u32::from(kind == 2);
        if matches!(op, Op::Fsync | Op::Fdatasync) && file != iowhy_trace::join::UNKNOWN_FILE.0 {
            self.synced.insert(file);
        }
        let work = &mut self.out.workload;
        work.calls[kind] += 1;
        work.bytes[kind] += u64::from(len_bytes);
        // Who reads prints a few lines, too.
        self.commands.reads_only = work.calls[2] == 0 && FEW_BYTES * work.bytes[1] <= work.bytes[0];
        let state = self.files.entry(file).or_default();
        let overlapping = state.open_calls > 0;
        state.open_calls += 1;
        let mut sequential = false;
        let end = offset + u64::from(len_bytes);
        if kind < 2 {
            *work.sizes[kind].entry(len_bytes).or_default() += 1;
            work.overlapping += u64::from(overlapping);
            let from = state.ends.iter().position(|known| *known == offset);
            sequential = from.is_some();
            if let Some(from) = from {
                work.sequential[kind] += 1;
                // Another stream's call came between.
                work.interleaved_streams += u64::from(from + 1 != state.ends.len());
                state.ends.remove(from);
            } else if state.ends.len() == STREAMS {
                state.ends.pop_front();
            }
            state.ends.push_back(end);
            *self.regions.entry((file, offset >> 20)).or_default() += 1;
        }
        let (first, last) = (offset / PAGE_BYTES, end.max(offset + 1).div_ceil(PAGE_BYTES) - 1);
        state.calls += u64::from(kind < 2);
        if op == Op::Write {
            self.dirtied += last - first + 1;
        }
        if op == Op::Read {
            self.use_pages(file, first, last - first + 1);
        }
        let call = Call {
            id,
            op,
            file,
            first,
            last,
            len_bytes: u64::from(len_bytes),
            start: at,
            sequential,
            overlapping,
            missed: false,
            singles: 0,
            touched_cache: false,
            own_data_bio: false,
            mapped: false,
            acted: false,
            written: 0,
            dropped: false,
            before_bio: None,
            cut: None,
            pending: VecDeque::new(),
        };
        self.places.insert(id.0, self.calls.len());
        self.calls.push(call);
        self.out.workload.concurrency = self.out.workload.concurrency.max(self.calls.len() as u32);
        let place = self.calls.len() - 1;
        self.waits.begin(at, op, file);
        if op == Op::Read {
            self.waits.join_flying(at, place, file, first, last);
        }
    }

    /// Something is seen of a call: if it is the first, and another call on the file has done with its I/O or ended
    /// meanwhile, that one may have been in the way.
    fn turn(&mut self, place: usize) {
        let call = &mut self.calls[place];
        let kind = kind_of(call.op);
        if call.acted || kind == 2 {
            return;
        }
        call.acted = true;
        let Some(state) = self.files.get(&call.file) else { return };
        // A lock is given up before the call that had it returns.
        let freed = state.last_end.max(self.waits.on_file(call.file).1);
        if call.overlapping && freed > call.start {
            self.out.turns.waited[kind] += 1;
            self.out.turns.wait[kind].add(freed.saturating_sub(call.start).0);
        }
    }

    fn call_end(&mut self, id: CallId) {
        let at = self.now;
        let Some(place) = self.places.remove(&id.0) else { return };
        let call = self.calls.swap_remove(place);
        self.last_end = Some(at);
        if let Some(moved) = self.calls.get(place) {
            self.places.insert(moved.id.0, place);
        }
        let kind = kind_of(call.op);
        self.syncs -= u32::from(kind == 2);
        self.ended.push_back(at);
        let done = self.waits.done(place);
        let without_io = self.waits.end(at, place);
        let out = &mut self.out;
        if kind < 2 {
            match done {
                Some(done) => out.after_io[kind].add(at.saturating_sub(done).0),
                None => out.never_waited[kind].add(at.saturating_sub(call.start).0),
            }
        }
        out.latency[kind].add(at.saturating_sub(call.start).0);
        out.without_io[kind].add(without_io);
        let Some(state) = self.files.get_mut(&call.file) else { return };
        state.open_calls = state.open_calls.saturating_sub(1);
        state.last_end = at;
        if kind == 2 {
            out.sync.empty += u64::from(call.written == 0);
            return;
        }
        if let Some(before) = call.before_bio {
            out.before_bio[kind].add(before.0);
        }
        out.workload.written_through += u64::from(kind == 1 && call.written > 0);
        // A write through the cache into a page that is there has a bio and no new page, too, but may be of any length.
        let direct = call.own_data_bio && !call.touched_cache && call.len_bytes.is_multiple_of(SECTOR_BYTES);
        let quiet = !call.own_data_bio && !call.touched_cache;
        out.workload.direct[kind] += u64::from(direct);
        out.workload.quiet[kind] += u64::from(quiet);
        out.workload.mapped += u64::from(call.mapped);
        if direct {
            let beside = if call.op == Op::Read { 0 } else { call.len_bytes };
            let cleared = call.written > beside || call.dropped;
            out.cache.direct_cleared[kind] += u64::from(cleared);
            out.cache.direct_latency[usize::from(!cleared)].add(at.saturating_sub(call.start).0);
        }
        if (direct || quiet) && call.op == Op::Write {
            self.dirtied = self.dirtied.saturating_sub(call.last - call.first + 1);
        }
        state.buffered |= call.touched_cache;
        let over = [state.cached[0] + state.cached[1] > 0, state.cached[1] > 0, state.cached[0] > 0].map(u64::from);
        if direct {
            state.direct[kind] += 1;
            out.cache.direct_over_cached += over[0];
            out.cache.direct_over_foreign += over[1];
            out.cache.direct_over_own += over[2];
        } else if quiet {
            // Who drops pages does not use them.
            state.direct[kind] += u64::from(call.dropped);
            state.quiet_over[kind].iter_mut().zip(over).for_each(|(sum, over)| *sum += over);
        }
        if kind == 0 && call.missed {
            let split = call.singles > 1;
            out.windows.calls_missed += 1;
            out.windows.calls_split += u64::from(split);
            if call.overlapping && call.last > call.first {
                out.windows.overlapping_split[0] += 1;
                out.windows.overlapping_split[1] += u64::from(split);
            }
        }
    }

    fn bio(&mut self, id: CallId, call: Option<usize>) {
        let Some(&mut Bio { at, dir, content, sector, nr_sectors, .. }) = self.commands.life.bio(id) else { return };
        let way = dir as usize;
        let (mut wanted, mut pages) = (true, None);
        if let Some(call) = call.map(|call| &mut self.calls[call]) {
            if call.before_bio.is_none() {
                call.before_bio = Some(at.saturating_sub(call.start));
                if self.files.get(&call.file).is_some_and(|state| state.open_calls > 1) && kind_of(call.op) < 2 {
                    let together = self.waits.on_file(call.file).0 > 0;
                    self.out.turns.first_bios[usize::from(together)] += 1;
                }
            }
            if dir == Dir::Write && content == Content::Data {
                call.written += u64::from(nr_sectors) * SECTOR_BYTES;
            }
            call.own_data_bio |= content == Content::Data;
            if dir == Dir::Read && content == Content::Data {
                (wanted, pages) = call.carried(sector, nr_sectors);
            }
        }
        // A task that only reads has nothing for a journal either.
        let written = dir == Dir::Write && self.commands.reads_only;
        let somebodys = content == Content::Data || dir == Dir::Read || written;
        let nobodys = self.stranger && nr_sectors > 0 && somebodys;
        let nr_pages = u64::from(nr_sectors).div_ceil(PAGE_SECTORS);
        let writeback = nobodys && dir == Dir::Write && self.is_own_writeback(nr_pages);
        let foreign = nobodys && !writeback;
        self.out.foreign.reads += u64::from(foreign && dir == Dir::Read);
        self.out.foreign.writes += u64::from(foreign && dir == Dir::Write);
        if dir == Dir::Write && content == Content::Data && !foreign {
            self.dirtied = self.dirtied.saturating_sub(nr_pages);
        }
        if let Some(call) = call.filter(|_| dir == Dir::Read).map(|call| &self.calls[call]) {
            let own = pages.is_some_and(|(file, page, _)| call.is_map(file, page, sector));
            let mapping = matches!(content, Content::Mapping | Content::Metadata) || own;
            let read = call.op == Op::Read;
            self.out.bios.lookups += u64::from(mapping && read);
            self.dirtied = self.dirtied.saturating_sub(nr_pages * u64::from(own && read));
        }
        if nr_sectors > 0 {
            self.out.bios.count[way] += 1;
            self.out.bios.sizes[way].add(u64::from(nr_sectors));
        }
        let neighbour =
            self.last_bio[way].filter(|(end, _)| *end == sector).and_then(|_| self.commands.waiting_until(dir, sector));
        self.out.bios.could_join[way] += u64::from(neighbour.is_some());
        self.last_bio[way] = Some((sector + u64::from(nr_sectors), nr_sectors));
        if let Some(call) = call.filter(|_| wanted) {
            self.waits.bio(at, call);
        }
        if let Some(bio) = self.commands.life.bio(id) {
            let ahead = call.is_some() && !wanted;
            bio.own = Own { foreign, writeback, wanted, ahead, pages, neighbour, ..Own::default() };
        }
    }

    /// Does a bio that nobody asked for write back what the workload had dirtied?
    fn is_own_writeback(&mut self, nr_pages: u64) -> bool {
        match self.written_back.iter().position(|(nr, _)| u64::from(*nr) == nr_pages) {
            Some(place) => self.written_back.remove(place).1,
            // Where nobody tells, it may be as long as there is something to write back.
            None => !self.tells_writeback && self.dirtied > 0,
        }
    }

    /// The digest of all that came.
    pub fn finish(mut self) -> Digest {
        let begin = self.begin.unwrap_or(Nanos::ZERO);
        // Whatever else goes on when the workload has ended is none of its time.
        let end = self.last_end.filter(|_| self.calls.is_empty()).unwrap_or(self.now);
        let elapsed = end.saturating_sub(begin);
        let out = &mut self.out;
        out.elapsed = elapsed;
        // A report or two written on the side do not make another job.
        let (calls, used) = self
            .files
            .values()
            .fold((0, 0), |(calls, used), file| (calls + file.calls, used + u64::from(file.calls > 0)));
        let many = |file: &&FileState| file.calls > 0 && 20 * file.calls * used >= calls;
        out.workload.files = self.files.values().filter(many).count() as u32;
        // A quiet call may be a direct one only on a file that is used so: buffered calls whose page is mapped or
        // found without a word are quiet, too. A device that takes bios as they are tells nothing; there, writes are
        // direct if no call on the file has to do with the cache.
        let tells = out.bios.count != [0; 2];
        for file in self.files.values() {
            for kind in 0..2 {
                if file.direct[kind] > 0 || kind == 1 && !tells && !file.buffered {
                    let [any, others, own] = file.quiet_over[kind];
                    out.cache.direct_over_cached += any;
                    out.cache.direct_over_foreign += others;
                    out.cache.direct_over_own += own;
                }
            }
        }
        out.workload.regions = self.regions.len() as u64;
        out.sync.files = self.synced.len() as u64;
        let mut counts: Vec<u64> = self.regions.values().copied().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let (all, tenth) = (counts.iter().sum::<u64>(), counts.len().div_ceil(10));
        out.workload.top_tenth = if all == 0 { 0.0 } else { counts[..tenth].iter().sum::<u64>() as f64 / all as f64 };
        (out.commands, out.plugs.device_starved) = self.commands.finish(self.now);
        out.foreign.device = out.commands.foreign.min(elapsed.0);
        out.foreign.in_the_way = out.commands.in_the_way.min(elapsed.0);
        out.time = self.waits.finish(self.now, elapsed, out);
        self.out
    }
}

/// Index of a kind of call: reads, writes, syncs.
pub fn kind_of(op: Op) -> usize {
    match op {
        Op::Read => 0,
        Op::Write => 1,
        Op::Fsync | Op::Fdatasync | Op::Trim => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::waits::Layer;
    use super::*;
    use iowhy_stack::event::FileId;
    use iowhy_stack::units::{PageIndex, Sector};

    /// A call wants four pages and adds 16; their bio is cut into four requests, or goes in one. A second call wants
    /// the next four, which came with the first. What both wait for at the device, ns.
    #[test]
    fn pages_of_a_cut_bio_are_there_with_its_last_part() {
        for parts in [1, 4] {
            let mut events = Vec::new();
            let mut put = |at, call, what| events.push(Event { at: Nanos(at), call: CallId(call), what });
            let (op, file, dir, content) = (Op::Read, FileId(0), Dir::Read, Content::Data);
            let (len_bytes, nr_sectors) = (16384, 128 / parts);
            put(10, 1, What::CallStart { op, file, offset: 0, len_bytes });
            put(11, 1, What::PageAdd { file, page: PageIndex(0), nr_pages: 16 });
            for part in 0..parts {
                let (rq, sector) = (RqId(part), Sector(u64::from(part * nr_sectors)));
                put(12, 1, What::BioQueue { dir, content, sector, nr_sectors });
                put(12, 1, What::GetRequest { rq });
            }
            for part in 0..parts {
                let (rq, sector) = (RqId(part), Sector(u64::from(part * nr_sectors)));
                put(20, 0, What::Issue { rq, dir, content, sector, nr_sectors, in_flight: 1 });
            }
            put(320, 2, What::CallStart { op, file, offset: 16384, len_bytes });
            for part in 0..parts {
                let at = if parts == 1 { 500 } else { 200 + 100 * u64::from(part) };
                put(at, 0, What::Complete { rq: RqId(part), dir, nr_sectors });
            }
            put(501, 1, What::CallEnd { op, file, len_bytes });
            put(502, 2, What::CallEnd { op, file, len_bytes });
            events.sort_by_key(|event| event.at);
            let time = Digest::of(&events).time;
            assert_eq!(time.of(Layer::Device), 480.0 + 180.0, "{parts} parts: {time:?}");
        }
    }

    /// Reads of two tasks: the second one's are rare, or as many.
    #[test]
    fn a_call_now_and_then_does_not_halve_the_time_of_the_others() {
        for (last, slots) in [(30, 1), (990, 2)] {
            let (op, file, len_bytes) = (Op::Read, FileId(0), 4096);
            let start = What::CallStart { op, file, offset: 0, len_bytes };
            let whats = [(10, 1, start), (20, 2, start), (last, 2, What::CallEnd { op, file, len_bytes })];
            let events: Vec<Event> = whats
                .into_iter()
                .chain([(1000, 1, What::CallEnd { op, file, len_bytes })])
                .map(|(at, call, what)| Event { at: Nanos(at), call: CallId(call), what })
                .collect();
            let mut digest = Digest::of(&events);
            assert_eq!(digest.time.slots, 2);
            digest.share_time();
            assert_eq!(digest.time.slots, slots, "until {last}");
        }
    }

    /// A direct write reads a block of a map, and is direct all the same; one that adds a page of its file is not.
    #[test]
    fn a_block_of_a_map_is_no_page_of_a_direct_write() {
        for (added, direct) in [(1, 1), (0, 0)] {
            let (op, file, dir, content) = (Op::Write, FileId(0), Dir::Write, Content::Data);
            let whats = [
                What::CallStart { op, file, offset: 0, len_bytes: 4096 },
                What::PageAdd { file: FileId(added), page: PageIndex(50), nr_pages: 1 },
                What::BioQueue { dir, content, sector: Sector(8), nr_sectors: 8 },
                What::CallEnd { op, file, len_bytes: 4096 },
            ];
            let events: Vec<Event> =
                (1..).zip(whats).map(|(at, what)| Event { at: Nanos(at), call: CallId(1), what }).collect();
            assert_eq!(Digest::of(&events).workload.direct[1], direct, "a page of file {added}");
        }
    }

    /// A stream of two calls adds three pages, of which the second is cached, then a map's page: its read is one that
    /// the call waits for, and the page that was there a hole.
    #[test]
    fn pages_that_were_there_are_holes_and_a_read_of_a_map_is_a_lookup() {
        let mut events = Vec::new();
        let mut put = |at, call, what| events.push(Event { at: Nanos(at), call: CallId(call), what });
        let (op, file, dir, content, len_bytes) = (Op::Read, FileId(0), Dir::Read, Content::Data, 8192);
        for (at, call, page) in [(10, 1, 0), (100, 2, 2)] {
            put(at, call, What::CallStart { op, file, offset: page * 4096, len_bytes });
            put(at + 1, call, What::PageAdd { file, page: PageIndex(page), nr_pages: 1 });
            if call == 2 {
                put(at + 2, call, What::PageAdd { file: FileId(1), page: PageIndex(50), nr_pages: 1 });
            }
            for (nr, sector) in [(0, 400), (1, 8 * page)].into_iter().skip(2 - call as usize) {
                let (rq, at, sector) = (RqId(call * 2 + nr), at + 10 * u64::from(nr), Sector(sector));
                put(at + 3, call, What::BioQueue { dir, content, sector, nr_sectors: 8 });
                put(at + 3, call, What::GetRequest { rq });
                put(at + 4, 0, What::Issue { rq, dir, content, sector, nr_sectors: 8, in_flight: 1 });
                put(at + 9, 0, What::Complete { rq, dir, nr_sectors: 8 });
            }
            put(at + 30, call, What::CallEnd { op, file, len_bytes });
        }
        let found = Digest::of(&events);
        assert_eq!((found.windows.holes, found.bios.lookups), ([1, 1], 1));
    }
}
