//! A thread of a run: the loop that asks for calls, hands them to the engine, and times them.
//!
//! ```text
//! one by one   a call begins when the one before has ended: the same time stamp serves for both, and what the harness
//!              takes in between (`harness_ns`) is part of the latency. Where preparing a call takes long (new data,
//!              a shared generator) the clock is read again before it
//! in flight    calls are handed in until the depth or the batch is reached, then completions are taken; all that are
//!              taken at once have ended at the same time
//! due          a call that is late because the program was busy has begun when it was due, not when it got its turn
//! short        the rest is asked for again, as part of the same call; at the end of the file nothing more comes
//! ```

mod checks;
mod flight;
mod gate;
mod search;
mod terms;

use std::io::ErrorKind;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iowhy_stack::event::Op;
use iowhy_stack::job::ThreadSpec;
use iowhy_stack::rng::Rng;
use iowhy_stack::units::Nanos;
use iowhy_stack::workload::{Call, FileIoGenerator, Next, ReadBack, StreamGenerator, TRIMMED, Target};
use rustix::thread::{UnshareFlags, set_current_timer_slack, unshare_unsafe};

use super::buffers::Buffers;
use super::control::{Control, Flow};
use super::meter::{Meter, Published, Times};
use super::source::{Checked, Shared, Source};
use super::task::{difference, place, thread_id, usage};
use crate::clock::Clock;
use crate::engine::{Completion, Engine, Io, Open, OpenFile, Setup, Submit};
use crate::memory::Buffer;
use crate::outcome::ThreadOutcome;
use crate::{cache, plan, signal, validate, verify};
use flight::{Flight, Pending};
pub(crate) use gate::Gate;
use search::{Search, Verdict};

/// Waits shorter than this are spent looking at the clock: a sleeping thread does not wake up on time.
const SPIN: Nanos = Nanos::from_us(80);
/// A sleeping thread looks for a signal this often.
const NAP: Nanos = Nanos::from_ms(50);

/// A thread with calls in flight asks for its turn again after this time.
const TURN: Nanos = Nanos::from_us(20);

/// An engine that is full and has nothing to reap is asked so often before it is given up.
const MAX_TRIES: u32 = 100_000;

/// The source of the thread's calls.
pub(crate) enum Calls<'a> {
    Stream(Box<StreamGenerator>),
    /// Written data are read again.
    Checked(Box<StreamGenerator>, Box<ReadBack>),
    Shared(&'a Mutex<FileIoGenerator>),
}

/// A file that could not be opened, or another reason not to begin.
pub(crate) struct Obstacle {
    pub file: u32,
    pub errno: i32,
    pub message: String,
}

/// Everything that a thread needs.
pub struct Worker<'a> {
    pub(super) number: u32,
    pub(super) spec: &'a ThreadSpec,
    pub(super) thread: &'a plan::Thread,
    pub(super) paths: &'a [plan::File],
    pub(super) files: Vec<OpenFile>,
    pub(super) obstacle: Option<Obstacle>,
    pub(super) calls: Calls<'a>,
    /// It has a rate: calls may be due before they begin.
    pub(super) rated: bool,
    /// Largest call, and whether it reads and writes.
    pub(super) call_bytes: u32,
    pub(super) directions: (bool, bool),
    pub(super) seed: u64,
    pub(super) sample: Nanos,
    pub(super) warmup: Nanos,
    /// None: it begins at once, and alone.
    pub(super) gate: Option<&'a Gate>,
    pub(super) control: &'a Control<'a>,
    pub(super) published: &'a Published,
    /// Its result.
    pub(super) outcome: ThreadOutcome,
}

/// State that the loops share.
struct Loop<'a> {
    clock: Clock,
    meter: Meter<'a>,
    buffers: Buffers,
    files: Vec<OpenFile>,
    paths: &'a [plan::File],
    thread: &'a plan::Thread,
    /// Some calls have an I/O priority of their own.
    prioritised: bool,
    chance: Rng,
    /// The thread has ended because of an error.
    failed: bool,
    /// Set if something else ends the thread.
    stop: &'a AtomicBool,
    turns: Option<Turns<'a>>,
    search: Option<Search>,
    /// The depth that was looked for has been found and measured.
    found: bool,
}

/// A thread's turns in its flow.
struct Turns<'a> {
    flow: &'a Flow,
    terms: plan::Flow,
    /// Calls of its own.
    own: u64,
    /// It has a turn that it has not used.
    has: bool,
    /// Nobody waits longer.
    until: Nanos,
}

/// Makes the engine, and runs the thread with it.
pub(crate) fn drive<E: Open>(worker: &mut Worker<'_>) {
    let prepared = worker.prepare::<E>();
    let (clock, since) = match worker.gate {
        None => (Clock::start(), Nanos::ZERO),
        Some(gate) => match gate.pass(worker.number) {
            Some(started) => started,
            None => return,
        },
    };
    let (mut engine, buffers) = match prepared {
        Ok(prepared) => prepared,
        Err(obstacle) => {
            worker.give_up(obstacle, clock.now());
            worker.control.end(worker.number, true, 0);
            return;
        }
    };
    let synchronous = engine.synchronous();
    let mut state = Loop {
        clock,
        meter: Meter::new(worker.thread, worker.sample, (!synchronous, worker.rated), worker.published),
        buffers,
        files: std::mem::take(&mut worker.files),
        paths: worker.paths,
        thread: worker.thread,
        prioritised: worker.thread.priorities.iter().any(|list| !list.is_empty()),
        chance: Rng::stream(worker.seed, "priorities"),
        failed: false,
        stop: worker.control.stop_of(worker.number),
        turns: None,
        search: worker.thread.search.map(|of| Search::new(of, worker.thread.depth.max(1))),
        found: false,
    };
    let after = &worker.thread.terms.after;
    let mut since = since;
    if !after.is_empty() {
        since = state.wait_for(worker.control, after);
        if worker.spec.invalidate {
            (0..state.files.len() as u32)
                .for_each(|file| state.drop_pages(&mut engine, Target { file, start: 0, len_bytes: 0 }));
        }
    }
    if worker.spec.start_delay > Nanos::ZERO {
        state.wait_until(since + worker.spec.start_delay);
    }
    let before = usage();
    let now = clock.now();
    state.meter.begin(now, (since + worker.warmup).max(now + worker.thread.warmup));
    worker.control.begin(worker.number);
    if let (Some(flow), Some(terms)) = (worker.control.flow_of(worker.number), worker.thread.terms.flow) {
        let until = match &worker.calls {
            Calls::Stream(stream) | Calls::Checked(stream, _) => stream.max_time(0),
            Calls::Shared(_) => Nanos::ZERO,
        };
        let until = if until == Nanos::ZERO { Nanos(u64::MAX) } else { now + until };
        state.turns = Some(Turns { flow, terms, own: 0, has: false, until });
    }
    match &mut worker.calls {
        Calls::Stream(stream) => state.run(&mut engine, stream.as_mut()),
        Calls::Checked(calls, back) => state.run(&mut engine, &mut Checked { calls, back }),
        Calls::Shared(generator) => state.run(&mut engine, &mut Shared { generator, thread: worker.number }),
    }
    let end = clock.now();
    let used = difference(&usage(), &state.meter.warm.unwrap_or(before));
    let calls = state.turns.as_ref().map_or(0, |turns| turns.own);
    worker.control.end(worker.number, state.failed, calls);
    let found_depth = state.search.as_ref().map_or(0, |search| search.depth);
    let notes = engine.notes();
    // Calls that an error of the engine has left in flight end with it.
    drop(engine);
    let mut outcome = state.meter.end(end, worker.thread.split_latency, used);
    outcome.notes = std::mem::take(&mut worker.outcome.notes);
    outcome.notes.extend(notes);
    outcome.tid = thread_id();
    outcome.found_depth = found_depth;
    outcome.failed = state.failed;
    worker.published.keep(&outcome);
    worker.outcome = outcome;
}

impl Worker<'_> {
    /// Everything that takes time before the clock starts.
    fn prepare<E: Open>(&mut self) -> Result<(E, Buffers), Obstacle> {
        if let Some(obstacle) = self.obstacle.take() {
            return Err(obstacle);
        }
        // Sleeps end when they should, not up to 50 us later.
        let _ = set_current_timer_slack(Some(NonZeroU64::MIN));
        // A table of descriptors that nobody shares: as in a program of one thread, the kernel need not count who uses
        // a file during each call. Where it cannot be had, calls are a little dearer.
        // SAFETY: the open files stay those of before, and no descriptor made from here on goes to another thread.
        let _ = unsafe { unshare_unsafe(UnshareFlags::FILES) };
        self.outcome.notes.extend(place(self.thread));
        let failed = |what: &str, error: &std::io::Error| Obstacle {
            file: 0,
            errno: error.raw_os_error().unwrap_or(libc::EIO),
            message: format!("{what}: {error}"),
        };
        let thread = self.thread;
        let fill = if thread.verify.is_some() { plan::Fill::Checked } else { thread.fill.clone() };
        let depth = thread.depth.max(1);
        let buffers =
            Buffers::new(depth, self.call_bytes, thread.align, self.directions, fill, thread.verify.clone(), self.seed)
                .map_err(|error| failed("memory for the buffers", &error))?;
        let setup = Setup {
            engine: thread.engine,
            depth,
            files: &self.files,
            buffers: buffers.pool(),
            fixed_buffers: thread.fixed_buffers,
            registered_files: thread.registered_files,
            poll: thread.poll,
            kernel_thread: thread.kernel_thread,
            advice: self.spec.advice,
        };
        let engine = E::open(&setup).map_err(|error| failed(&format!("engine {}", thread.engine), &error))?;
        Ok((engine, buffers))
    }

    /// The thread never began.
    fn give_up(&mut self, obstacle: Obstacle, now: Nanos) {
        let op = if self.directions.1 && !self.directions.0 { Op::Write } else { Op::Read };
        self.outcome.totals.start = now;
        self.outcome.totals.end = now;
        self.outcome.nr_errors = 1;
        self.outcome.failed = true;
        self.outcome.tid = thread_id();
        self.outcome.errors.push(crate::outcome::CallError {
            file: obstacle.file,
            op,
            offset: 0,
            len_bytes: 0,
            at: now,
            errno: obstacle.errno,
            message: obstacle.message,
        });
    }
}

impl Loop<'_> {
    fn run<E: Engine, S: Source>(&mut self, engine: &mut E, source: &mut S) {
        if engine.synchronous() {
            self.one_by_one(engine, source);
        } else {
            self.in_flight(engine, source);
        }
    }

    /// Sleeps, and spins for the last bit.
    #[cold]
    fn wait_until(&self, time: Nanos) {
        loop {
            let left = time.saturating_sub(self.clock.now());
            if left == Nanos::ZERO || self.over() {
                return;
            }
            if left > SPIN {
                std::thread::sleep(Duration::from_nanos((left.0 - SPIN.0).min(NAP.0)));
            } else {
                std::hint::spin_loop();
            }
        }
    }

    #[cold]
    fn compute(&self, time: Nanos) {
        let until = self.clock.now() + time;
        while self.clock.now() < until && !self.over() {
            std::hint::spin_loop();
        }
    }

    /// Drops the clean cached pages of a region. It is advice: the run goes on with a file system that does not take
    /// it.
    #[cold]
    fn drop_pages<E: Engine>(&self, engine: &mut E, Target { file, start, len_bytes }: Target) {
        engine.unmap(file);
        if let Some(open) = &self.files[file as usize].file {
            let _ = cache::advise(open, start, len_bytes, cache::Advice::DontNeed);
        }
    }

    /// The call as the engine gets it, with its data. Says whether that took long.
    #[inline(always)]
    fn io(&mut self, call: &Call, slot: u32) -> (Io, bool) {
        let long = call.op == Op::Write && !matches!(self.thread.fill, plan::Fill::Same);
        let buffer = self.buffers.take(slot, call);
        let Call { op, file, offset, len_bytes, .. } = *call;
        let priority = if self.prioritised { self.priority(call) } else { 0 };
        (Io { slot, op, file, offset, buffer, from: 0, len_bytes, priority }, long)
    }

    /// A draw of the priority of a call.
    #[cold]
    fn priority(&mut self, call: &Call) -> u16 {
        let list = match call.op {
            Op::Read => &self.thread.priorities[0],
            Op::Write => &self.thread.priorities[1],
            _ => return 0,
        };
        let mut drawn = self.chance.below(100) as u32;
        let mut fitting = list.iter().filter(|entry| entry.len_bytes == 0 || entry.len_bytes == call.len_bytes);
        let found = fitting.find(|entry| {
            let hit = drawn < entry.percent;
            drawn = drawn.saturating_sub(entry.percent);
            hit
        });
        found.map_or(0, |entry| entry.value)
    }

    fn one_by_one<E: Engine, S: Source>(&mut self, engine: &mut E, source: &mut S) {
        let mut now = self.clock.now();
        let judges = self.search.is_some() || self.thread.max_latency > Nanos::ZERO;
        while !self.over() {
            if self.turns.is_some() && self.turn(&mut now, true).is_none() {
                return;
            }
            let (call, intended) = match source.next(now) {
                Next::Do { call, intended } => (call, intended),
                Next::At(time) => {
                    self.wait_until(time);
                    now = self.clock.now();
                    continue;
                }
                Next::Compute(time) => {
                    self.compute(time);
                    now = self.clock.now();
                    continue;
                }
                Next::Drop(target) => {
                    self.drop_pages(engine, target);
                    now = self.clock.now();
                    continue;
                }
                Next::Done => return,
            };
            if source.pretends(&call) {
                self.pretend(source, &call, now);
                continue;
            }
            if let Some(turns) = &mut self.turns {
                turns.has = false;
            }
            let (io, long) = self.io(&call, 0);
            let begin = if S::SLOW || long { self.clock.now() } else { now };
            let due = if intended == now { begin } else { intended };
            let mut done = done(engine.submit(io));
            let moved = if done.result == done.io.len_bytes as i32 && call.then.is_none() {
                done.io.len_bytes
            } else {
                let finished;
                (done, finished) = self.finish(engine, &call, done);
                match finished {
                    Ok(moved) => moved,
                    Err(errno) => {
                        self.buffers.put(done.io.buffer);
                        now = self.clock.now();
                        self.fail(&call, now, errno);
                        if self.failed {
                            return;
                        }
                        source.completed(&call, now);
                        continue;
                    }
                }
            };
            now = self.clock.now();
            self.meter.count(&call, moved, &Times { due, begin, handed: begin, end: now });
            if self.prioritised {
                self.meter.count_priority(&call, done.io.priority, &Times { due, begin, handed: begin, end: now });
            }
            if self.looks() {
                self.look_at(source, &call, &done.io.buffer, (moved, self.buffers.generation()), now);
            }
            self.buffers.put(done.io.buffer);
            if judges {
                self.judge(&call, now.saturating_sub(begin), now);
            }
            if self.failed || self.found {
                return;
            }
            source.completed(&call, now);
        }
    }

    /// Counts a call that is not made.
    #[cold]
    fn pretend<S: Source>(&mut self, source: &mut S, call: &Call, now: Nanos) {
        self.meter.count(call, call.len_bytes, &Times { due: now, begin: now, handed: now, end: now });
        self.meter.out.state.add(self.thread.depth.max(1), call.file, call.offset);
        source.wrote(call, call.len_bytes, 0);
        source.completed(call, now);
    }

    /// The rest of a call that was short or has a sync of its own.
    #[cold]
    fn finish<E: Engine>(
        &mut self,
        engine: &mut E,
        call: &Call,
        Completion { mut io, mut result }: Completion,
    ) -> (Completion, Result<u32, i32>) {
        let mut moved = 0;
        loop {
            match self.rest_of(call, &mut io, &mut moved, result) {
                Ok(true) => Completion { io, result } = done(engine.submit(io)),
                Ok(false) => return (Completion { io, result }, Ok(moved)),
                Err(errno) => return (Completion { io, result }, Err(errno)),
            }
        }
    }

    /// Turns a call whose last part had this result into its rest; false if it is complete.
    fn rest_of(&mut self, call: &Call, io: &mut Io, moved: &mut u32, result: i32) -> Result<bool, i32> {
        if result == -libc::EINTR {
            return Ok(true);
        }
        if result < 0 {
            return Err(-result);
        }
        if matches!(io.op, Op::Fsync | Op::Fdatasync) {
            return Ok(false);
        }
        let result = result as u32;
        if *moved == 0 && result < io.len_bytes {
            self.meter.out.short += 1;
        }
        *moved += result;
        // A direct call that ends within a sector has met the end of the file; another one from there is not allowed.
        let at_end = result == 0 || (self.files[io.file as usize].direct && !result.is_multiple_of(512));
        if result < io.len_bytes && !at_end {
            io.offset += u64::from(result);
            io.len_bytes -= result;
            io.from += result;
            return Ok(true);
        }
        match call.then {
            Some(op) if self.thread.open_sync.is_none() => {
                io.op = op;
                io.len_bytes = 0;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    #[cold]
    fn fail(&mut self, call: &Call, now: Nanos, errno: i32) {
        let path = self.paths.get(call.file as usize).map(|file| file.path.display().to_string()).unwrap_or_default();
        let what = match call.op {
            Op::Read => format!("read of {} bytes at {} of {path}", call.len_bytes, call.offset),
            Op::Write => format!("write of {} bytes at {} of {path}", call.len_bytes, call.offset),
            Op::Fsync => format!("fsync of {path}"),
            Op::Fdatasync => format!("fdatasync of {path}"),
            Op::Trim => format!("trim of {} bytes at {} of {path}", call.len_bytes, call.offset),
        };
        let hint = super::hint(errno);
        let message = format!("{what}: {}{hint}", std::io::Error::from_raw_os_error(errno));
        self.meter.error(call, now, errno, message);
        self.failed |= !self.thread.forgives[usize::from(call.op != Op::Read)].contains(&errno);
    }

    fn in_flight<E: Engine, S: Source>(&mut self, engine: &mut E, source: &mut S) {
        let depth = self.thread.depth.max(1);
        let (min_complete, max_complete) = self.thread.batch_complete;
        let max_complete = if max_complete == 0 { depth } else { max_complete };
        let mut flight = Flight {
            free: (0..depth).rev().collect(),
            pending: vec![None; depth as usize],
            queued: Vec::with_capacity(depth as usize),
            done: Vec::with_capacity(depth as usize),
            broken: false,
        };
        let mut now = self.clock.now();
        let low = if self.thread.depth_low == 0 { depth } else { self.thread.depth_low };
        let mut over = false;
        // The queue was full, and is let run down to this.
        let mut drains = None;
        loop {
            over |= self.failed || self.found || self.over();
            let most = self.search.as_ref().map_or(depth, |search| search.depth);
            if drains.is_some_and(|left| flight.in_flight() <= left) {
                drains = None;
            }
            let pause = match drains {
                None => self.fill(engine, source, &mut flight, most, &mut now, &mut over),
                Some(_) => None,
            };
            self.commit(engine, &mut flight);
            let in_flight = flight.in_flight();
            if in_flight == 0 && flight.done.is_empty() {
                match pause {
                    _ if over => return,
                    Some(time) => self.wait_until(time),
                    None => {}
                }
                now = self.clock.now();
                continue;
            }
            let full = drains.is_some() || in_flight >= most;
            if full && low < depth && drains.is_none() {
                drains = Some(low);
            }
            let (min, timeout) = match pause {
                _ if over || full => (min_complete.clamp(1, in_flight.max(1)), None),
                // Wakes up a little early, and then looks again and again.
                Some(time) => {
                    let left = time.saturating_sub(self.clock.now()).saturating_sub(SPIN);
                    (u32::from(left > Nanos::ZERO), Some(Duration::from_nanos(left.min(NAP).0)))
                }
                None if self.thread.when_full && flight.done.is_empty() => {
                    now = self.clock.now();
                    continue;
                }
                None => (0, None),
            };
            if flight.done.is_empty()
                && let Err(error) = engine.reap(min, max_complete.max(min), timeout, &mut flight.done)
            {
                now = self.clock.now();
                self.engine_failed("waiting for completions", &error, now, &mut flight);
                return;
            }
            now = self.clock.now();
            if min > 0 || !flight.done.is_empty() {
                self.meter.completed(flight.done.len() as u32);
            }
            self.take(engine, source, &mut flight, now);
            if let Some(search) = &self.search
                && search.depth < most
            {
                // Calls of the greater depth would be slow, too.
                drains = Some(0);
            }
        }
    }

    /// Hands in calls while there is room among `most`; yields when the next one is due if that is later.
    fn fill<E: Engine, S: Source>(
        &mut self,
        engine: &mut E,
        source: &mut S,
        flight: &mut Flight,
        most: u32,
        now: &mut Nanos,
        over: &mut bool,
    ) -> Option<Nanos> {
        let batch_submit = self.thread.batch_submit.clamp(1, flight.pending.len() as u32);
        let mut batch = 0;
        while !*over && !flight.broken && batch < batch_submit && flight.in_flight() < most {
            if self.turns.is_some() {
                match self.turn(now, flight.in_flight() == 0) {
                    Some(true) => {}
                    Some(false) => return Some(*now + TURN),
                    None => {
                        *over = true;
                        return None;
                    }
                }
            }
            match source.next(*now) {
                Next::Do { call, .. } if source.pretends(&call) => self.pretend(source, &call, *now),
                Next::Do { call, intended } => {
                    let at_once = intended == *now;
                    if self.thread.one_by_place && self.make_way(engine, source, flight, &call) {
                        *now = self.clock.now();
                    }
                    let Some(slot) = flight.free.pop() else { unreachable!("a slot was free just now") };
                    if let Some(turns) = &mut self.turns {
                        turns.has = false;
                    }
                    let (io, long) = self.io(&call, slot);
                    let begin = if S::SLOW || long { self.clock.now() } else { *now };
                    let due = if at_once { begin } else { intended };
                    let generation = self.buffers.generation();
                    flight.pending[slot as usize] =
                        Some(Pending { call, moved: 0, generation, due, begin, handed: begin });
                    self.meter.depth(flight.in_flight());
                    batch += 1;
                    self.submit(engine, source, flight, io);
                }
                Next::At(time) => return Some(time),
                Next::Compute(time) => {
                    self.commit(engine, flight);
                    self.compute(time);
                    *now = self.clock.now();
                }
                Next::Drop(target) => {
                    self.commit(engine, flight);
                    self.drop_pages(engine, target);
                    *now = self.clock.now();
                }
                Next::Done => *over = true,
            }
        }
        None
    }

    /// Hands one call to the engine, making room if there is none.
    fn submit<E: Engine, S: Source>(&mut self, engine: &mut E, source: &mut S, flight: &mut Flight, mut io: Io) {
        let (slot, mut tries) = (io.slot, 0);
        loop {
            match engine.submit(io) {
                Submit::Queued => {
                    flight.queued.push(slot);
                    return;
                }
                Submit::Done(completion) => {
                    let now = self.clock.now();
                    self.meter.completed(1);
                    flight.done.push(completion);
                    self.take(engine, source, flight, now);
                    return;
                }
                Submit::Full(back) => {
                    io = back;
                    self.commit(engine, flight);
                    let mut done = std::mem::take(&mut flight.done);
                    let result = engine.reap(1, u32::MAX, None, &mut done);
                    let now = self.clock.now();
                    flight.done = done;
                    tries = if flight.done.is_empty() { tries + 1 } else { 0 };
                    let stuck = tries > MAX_TRIES;
                    if let Err(error) = result.and(if stuck { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }) {
                        self.engine_failed("waiting for completions", &error, now, flight);
                        self.buffers.put(io.buffer);
                        return;
                    }
                    self.take(engine, source, flight, now);
                }
            }
        }
    }

    /// Waits until no call in flight overlaps with this one; says whether it had to.
    #[cold]
    fn make_way<E: Engine, S: Source>(
        &mut self,
        engine: &mut E,
        source: &mut S,
        flight: &mut Flight,
        call: &Call,
    ) -> bool {
        let end = |call: &Call| call.offset + u64::from(call.len_bytes);
        let meets = |other: &Pending| {
            let (other, syncs) = (&other.call, [Op::Fsync, Op::Fdatasync]);
            other.file == call.file
                && !syncs.contains(&other.op)
                && other.offset < end(call)
                && call.offset < end(other)
        };
        let mut waited = false;
        while !flight.broken && flight.pending.iter().flatten().any(meets) {
            waited = true;
            self.commit(engine, flight);
            if let Err(error) = engine.reap(1, u32::MAX, None, &mut flight.done) {
                let now = self.clock.now();
                self.engine_failed("waiting for completions", &error, now, flight);
                break;
            }
            let now = self.clock.now();
            self.meter.completed(flight.done.len() as u32);
            self.take(engine, source, flight, now);
        }
        waited
    }

    fn commit<E: Engine>(&mut self, engine: &mut E, flight: &mut Flight) {
        if flight.queued.is_empty() {
            return;
        }
        match engine.commit() {
            Ok(nr_calls) => {
                let now = self.clock.now();
                self.meter.submitted(nr_calls);
                for slot in flight.queued.drain(..) {
                    if let Some(pending) = &mut flight.pending[slot as usize] {
                        pending.handed = now;
                    }
                }
            }
            Err(error) => {
                let now = self.clock.now();
                self.engine_failed("handing calls in", &error, now, flight);
            }
        }
    }

    /// Completions that have been taken from the engine.
    fn take<E: Engine, S: Source>(&mut self, engine: &mut E, source: &mut S, flight: &mut Flight, now: Nanos) {
        let mut done = std::mem::take(&mut flight.done);
        for Completion { mut io, result } in done.drain(..) {
            let slot = io.slot;
            let Some(pending) = &mut flight.pending[slot as usize] else {
                self.buffers.put(io.buffer);
                continue;
            };
            let whole = result == io.len_bytes as i32 && pending.moved == 0 && pending.call.then.is_none();
            if whole {
                pending.moved = result as u32;
            } else {
                match self.rest_of(&pending.call, &mut io, &mut pending.moved, result) {
                    Ok(false) => {}
                    Ok(true) => {
                        self.submit(engine, source, flight, io);
                        continue;
                    }
                    Err(errno) => {
                        let call = pending.call;
                        flight.release(slot);
                        self.buffers.put(io.buffer);
                        self.fail(&call, now, errno);
                        source.completed(&call, now);
                        continue;
                    }
                }
            }
            let Pending { call, moved, generation, due, begin, handed, .. } = *pending;
            flight.release(slot);
            self.meter.count(&call, moved, &Times { due, begin, handed, end: now });
            if self.search.is_some() || self.thread.max_latency > Nanos::ZERO {
                self.judge(&call, now.saturating_sub(begin), now);
            }
            if self.prioritised {
                self.meter.count_priority(&call, io.priority, &Times { due, begin, handed, end: now });
            }
            if self.looks() {
                self.look_at(source, &call, &io.buffer, (moved, generation), now);
            }
            self.buffers.put(io.buffer);
            source.completed(&call, now);
        }
        // Completions that came in meanwhile, while room was made for the rest of a call, have been handled there.
        if flight.done.is_empty() {
            flight.done = done;
        }
    }

    /// The engine itself has failed: the state of the calls in flight is unknown.
    #[cold]
    fn engine_failed(&mut self, what: &str, error: &std::io::Error, now: Nanos, flight: &mut Flight) {
        let none = Call { op: Op::Read, file: 0, offset: 0, len_bytes: 0, then: None, counted: false, how: None };
        let call = flight.pending.iter().flatten().map(|pending| pending.call).next().unwrap_or(none);
        let message = format!("engine {}: {what}: {error}", self.thread.engine);
        self.meter.error(&call, now, error.raw_os_error().unwrap_or(libc::EIO), message);
        self.failed = true;
        flight.broken = true;
        flight.queued.clear();
        flight.done.drain(..).for_each(|done| self.buffers.put(done.io.buffer));
        for slot in 0..flight.pending.len() as u32 {
            if flight.pending[slot as usize].is_some() {
                flight.release(slot);
            }
        }
    }
}

/// The answer of an engine that is synchronous.
#[inline(always)]
fn done(answer: Submit) -> Completion {
    match answer {
        Submit::Done(completion) => completion,
        Submit::Queued | Submit::Full(_) => unreachable!("a synchronous engine answers Done"),
    }
}
