//! A stream of calls that belongs to one thread, in the terms of fio, from which fio, dd, aio-stress, paralleldd,
//! bonnie++ and the profile of pgbench are made.
//!
//! ```text
//! where     targets (a region of a file each) served round robin, one after the other, or at random; within a target
//!           one call behind the other (with holes), or at random places (every place once a pass, or drawn)
//! what      reads, writes, a random mix of both, or reads of which some are written back
//! how much until a number of bytes, calls or passes is done, or for some time
//! when      as fast as possible, at a rate (fixed or Poisson), with thinking in between
//! syncs     after every n writes, with each write (O_SYNC), at the end; a log that is appended and synced every n
//!           calls
//! walk      places, sizes, mix and amount as fio itself draws them (`walk.rs`), instead of these
//! cache     cached pages are dropped between two passes (`invalidate`)
//! script    or none of this: a list of calls with their times, as a recorded one is replayed, each perhaps after a
//!           call of another thread
//! ```
//! Source: fio's manual and `io_u.c`, through docs/studies/compatibility.md 4.1 and 4.2. Known deviations: without
//! a walk positions are not fio's own numbers (coverage and mix are).

mod pace;
mod walked;

use serde::Serialize;

use std::sync::Arc;

use super::draw::{Distribution, Permutation, Places};
use super::walk::{self, Directions, Walk, Walker};
use super::{Call, Checks, Generator, Next, WOKEN};
use crate::event::Op;
use crate::rng::Rng;
use crate::units::Nanos;
use pace::Pace;

pub use pace::Rate;

/// A region of a file.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Target {
    /// Which file.
    pub file: u32,
    /// First byte.
    pub start: u64,
    pub len_bytes: u64,
}

/// Which target comes next.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Service {
    /// This number of calls to one, then the next.
    RoundRobin(u32),
    /// One to its end, then the next.
    Sequential,
    /// Drawn for each call.
    Random,
}

/// Reads and writes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Mix {
    /// Reads only.
    Read,
    /// Writes only.
    Write,
    /// Each call is a read with this chance, percent.
    Mixed(u32),
    /// Reads, each followed with this chance (percent) by a write of the same block.
    ReadAndWriteBack(u32),
}

/// Order of places within a target.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Order {
    /// One behind the other, with a hole between them.
    Sequential {
        /// Size of the hole.
        hole_bytes: u64,
    },
    /// At random.
    Random {
        /// How places are drawn.
        distribution: Distribution,
        /// Every place once before any is visited again (uniform only).
        once: bool,
        /// Calls in a row from each new place on, at least 1.
        run: u32,
        /// Share of calls that go to a new place, percent; the others follow their predecessor.
        random_pct: u32,
    },
}

/// Bytes per call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum BlockSizes {
    /// Always the same.
    Fixed(u32),
    /// Uniform between two sizes, a multiple of the smaller.
    Range(u32, u32),
    /// Sizes and their shares, percent.
    Split(Vec<(u32, u32)>),
}

impl BlockSizes {
    /// The smallest size, which places are aligned to.
    pub fn smallest(&self) -> u32 {
        match self {
            BlockSizes::Fixed(size) | BlockSizes::Range(size, _) => *size,
            BlockSizes::Split(sizes) => sizes.iter().map(|(size, _)| *size).min().unwrap_or(4096),
        }
    }

    /// The largest size.
    pub fn largest(&self) -> u32 {
        match self {
            BlockSizes::Fixed(size) => *size,
            BlockSizes::Range(low, high) => *low.max(high),
            BlockSizes::Split(sizes) => sizes.iter().map(|(size, _)| *size).max().unwrap_or(4096),
        }
    }

    fn draw(&self, rng: &mut Rng) -> u32 {
        match self {
            BlockSizes::Fixed(size) => *size,
            BlockSizes::Range(low, high) => low * (1 + rng.below(u64::from(high / low)) as u32),
            BlockSizes::Split(sizes) => {
                let total: u64 = sizes.iter().map(|(_, share)| u64::from(*share)).sum();
                let mut point = rng.below(total.max(1));
                for (size, share) in sizes {
                    if point < u64::from(*share) {
                        return *size;
                    }
                    point -= u64::from(*share);
                }
                self.smallest()
            }
        }
    }
}

/// A sync after a number of writes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SyncEvery {
    pub writes: u32,
    /// `Op::Fsync` or `Op::Fdatasync`.
    pub op: Op,
}

/// A pause after a number of calls.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Think {
    pub calls: u32,
    /// Length of the pause.
    pub time: Nanos,
    /// How much of it the CPU works.
    pub spin: Nanos,
    /// It also follows on this time of I/O; zero for never.
    pub io_time: Nanos,
}

/// A log that is appended to and synced (a database's write-ahead log).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Log {
    /// Where it is written, round and round.
    pub target: Target,
    /// Calls before each.
    pub calls: u32,
    /// Bytes appended.
    pub len_bytes: u32,
}

/// A call of another thread that a call waits for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct After {
    /// The other thread, by its place in the job; it has a script, too.
    pub thread: u32,
    /// It has made this number of calls.
    pub calls: u32,
    /// Time from the end of the last of them.
    pub lag: Nanos,
}

/// A call of a script.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Scripted {
    /// When it is due, from the thread's first look at the script on; zero for as soon as possible.
    pub at: Nanos,
    /// Pause from when the thread is ready for it (its call before has ended) to its begin, as a recorded program
    /// thinks between two calls.
    pub pause: Nanos,
    /// Before that, it computes for this long.
    pub spin: Nanos,
    /// It is not begun before this.
    pub after: Option<After>,
    pub call: Call,
}

/// A recorded log may have millions of calls; a description of the job has their number.
fn nr_calls<S: serde::Serializer>(script: &Option<Arc<[Scripted]>>, to: S) -> Result<S::Ok, S::Error> {
    script.as_ref().map(|calls| calls.len()).serialize(to)
}

/// The calls of one thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stream {
    /// Regions it works on; at least one, none empty.
    pub targets: Vec<Target>,
    /// Which comes next.
    pub service: Service,
    /// Reads and writes.
    pub mix: Mix,
    /// Places.
    pub order: Order,
    /// Bytes per read and per write.
    pub blocks: [BlockSizes; 2],
    /// Bytes to move in all; 0 for no limit.
    pub limit_bytes: u64,
    /// Calls to make; 0 for no limit.
    pub limit_calls: u64,
    /// Times everything is gone through; 0 for no limit.
    pub passes: u64,
    /// Time to work; zero for no limit.
    pub max_time: Nanos,
    /// Syncs in between.
    pub sync: Option<SyncEvery>,
    /// Sync within each write (files opened O_SYNC or O_DSYNC).
    pub synchronous_writes: Option<Op>,
    /// Sync of each file at the end.
    pub end_sync: Option<Op>,
    /// Syncs as fio makes them: none behind the last write, another one after each read that follows a sync directly,
    /// and those at the end are not counted.
    pub fio_syncs: bool,
    /// Cached pages of its regions are dropped before each pass but the first, as fio has it (`invalidate`).
    pub drop_between_passes: bool,
    /// Pauses.
    pub think: Option<Think>,
    /// Speed limit.
    pub rate: Option<Rate>,
    pub log: Option<Log>,
    /// Seed of its draws; threads with equal seeds draw equal places.
    pub seed: u64,
    /// Calls to make instead of drawn ones; of the limits only the time counts then.
    #[serde(serialize_with = "nr_calls")]
    pub script: Option<Arc<[Scripted]>>,
    /// Places, sizes and directions as fio itself draws them, until it has no more; the seed is for the rest, then. Of
    /// the limits only the time counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub walk: Option<Box<Walk>>,
    /// Written data are read again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks: Option<Box<Checks>>,
}

impl Scripted {
    /// `call`, when the thread is ready for it.
    pub fn new(call: Call) -> Scripted {
        Scripted { at: Nanos::ZERO, pause: Nanos::ZERO, spin: Nanos::ZERO, after: None, call }
    }
}

impl Stream {
    /// Every region that it works on, that of its log last.
    pub fn targets_mut(&mut self) -> impl Iterator<Item = &mut Target> {
        self.targets.iter_mut().chain(self.log.as_mut().map(|log| &mut log.target))
    }

    /// Reads or writes of `targets` one behind the other, once.
    pub fn sequential(mix: Mix, targets: Vec<Target>, block_bytes: u32) -> Stream {
        Stream {
            targets,
            service: Service::Sequential,
            mix,
            order: Order::Sequential { hole_bytes: 0 },
            blocks: [BlockSizes::Fixed(block_bytes), BlockSizes::Fixed(block_bytes)],
            limit_bytes: 0,
            limit_calls: 0,
            passes: 1,
            max_time: Nanos::ZERO,
            sync: None,
            synchronous_writes: None,
            end_sync: None,
            fio_syncs: false,
            drop_between_passes: false,
            think: None,
            rate: None,
            log: None,
            seed: 0,
            script: None,
            walk: None,
            checks: None,
        }
    }

    /// Reads or writes at random places of one target, `calls` of them.
    pub fn random(mix: Mix, target: Target, block_bytes: u32, calls: u64) -> Stream {
        Stream {
            order: Order::Random { distribution: Distribution::Uniform, once: false, run: 1, random_pct: 100 },
            limit_calls: calls,
            passes: 0,
            ..Stream::sequential(mix, vec![target], block_bytes)
        }
    }

    fn total_bytes(&self) -> u64 {
        self.targets.iter().map(|target| target.len_bytes).sum()
    }
}

/// Where a thread is within one target.
#[derive(Clone, Debug)]
struct Cursor {
    /// Next byte of reads and of writes, from the start of the target.
    next: [u64; 2],
    /// Places visited in this pass.
    visited: u64,
    places: Option<Places>,
    permutation: Option<Permutation>,
    /// Calls left in the run.
    run_left: u32,
    at: u64,
}

#[derive(Clone, Debug)]
struct State {
    rng: Rng,
    arrivals: Rng,
    cursors: Vec<Cursor>,
    /// The current target and calls made to it in a row.
    current: usize,
    in_a_row: u32,
    bytes: u64,
    calls: u64,
    pass_bytes: u64,
    passes: u64,
    unsynced: u64,
    last_written: u32,
    /// The call before was one of the syncs in between.
    synced: bool,
    owed_sync: Option<(Op, u32)>,
    write_back: Option<(u32, u64, u32)>,
    log_at: u64,
    log_owed: Option<bool>,
    thought: u64,
    /// End of the pause before.
    thought_at: Option<Nanos>,
    think_left: Option<Nanos>,
    end_synced: usize,
    /// The next region whose pages are dropped before the pass goes on.
    to_drop: usize,
    started: Option<Nanos>,
    /// End of the pause before the next call of a script.
    paused_until: Option<Nanos>,
    /// It has computed for that call.
    spun: bool,
    /// Ends of the calls of a script.
    ended: Vec<Nanos>,
    pace: Pace,
    walker: Option<Box<Walker>>,
}

/// The generator behind [`Stream`]s, one for each thread.
#[derive(Clone, Debug)]
pub struct StreamGenerator {
    streams: Vec<Stream>,
    states: Vec<State>,
}

impl StreamGenerator {
    /// Generators at the start of a run; `seed` is mixed into the seeds of the streams.
    ///
    /// # Panics
    /// If a stream has no target, an empty one, or none that a block fits into: jobs are checked before.
    pub fn new(streams: Vec<Stream>, seed: u64) -> StreamGenerator {
        let states = streams.iter().map(|stream| State::new(stream, seed)).collect();
        StreamGenerator { streams, states }
    }

    /// The pass that the last data call of a thread belongs to, from 1.
    pub fn pass(&self, thread: u32) -> u64 {
        let (stream, state) = (&self.streams[thread as usize], &self.states[thread as usize]);
        let begun = if stream.passes > 1 { state.passes + u64::from(state.pass_bytes > 0) } else { 1 };
        state.walker.as_ref().map_or(begun, |walker| walker.pass())
    }

    /// Whether a thread has worked for all of its time.
    pub fn late(&self, thread: u32, now: Nanos) -> bool {
        self.states[thread as usize].late(&self.streams[thread as usize], now)
    }

    /// Time that a stream works; zero for no limit.
    pub fn max_time(&self, thread: u32) -> Nanos {
        self.streams[thread as usize].max_time
    }
}

impl State {
    fn new(stream: &Stream, seed: u64) -> State {
        assert!(!stream.targets.is_empty(), "a stream without targets");
        let seed = stream.seed ^ seed.rotate_left(32);
        let align = u64::from(align(stream));
        let cursors = stream
            .targets
            .iter()
            .enumerate()
            .map(|(index, target)| {
                assert!(target.len_bytes > 0, "an empty target");
                let key = seed ^ (index as u64).wrapping_mul(0x9e37_79b9);
                let n = (target.len_bytes / align).max(1);
                let (places, permutation) = match stream.order {
                    Order::Sequential { .. } => (None, None),
                    Order::Random { distribution: Distribution::Uniform, once: true, .. } => {
                        (None, Some(Permutation::new(n, key)))
                    }
                    Order::Random { distribution, .. } => (Some(Places::new(n, distribution, key)), None),
                };
                Cursor { next: [0; 2], visited: 0, places, permutation, run_left: 0, at: 0 }
            })
            .collect();
        State {
            rng: Rng::stream(seed, "positions"),
            arrivals: Rng::stream(seed, "arrivals"),
            cursors,
            current: 0,
            in_a_row: 0,
            bytes: 0,
            calls: 0,
            pass_bytes: 0,
            passes: 0,
            unsynced: 0,
            last_written: 0,
            synced: false,
            owed_sync: None,
            write_back: None,
            log_at: 0,
            log_owed: None,
            thought: 0,
            thought_at: None,
            think_left: None,
            end_synced: 0,
            to_drop: usize::MAX,
            started: None,
            paused_until: None,
            spun: false,
            ended: Vec::new(),
            pace: Pace::default(),
            walker: stream.walk.as_ref().map(|walk| Box::new(Walker::new(walk, seed))),
        }
    }

    fn late(&self, stream: &Stream, now: Nanos) -> bool {
        let worked = now.saturating_sub(self.started.unwrap_or(now));
        stream.max_time > Nanos::ZERO && worked >= stream.max_time
    }

    fn may_go_on(&mut self, stream: &Stream, now: Nanos) -> bool {
        if self.late(stream, now) {
            return false;
        }
        if let (Some(walker), Some(walk)) = (&mut self.walker, &stream.walk) {
            return walker.goes_on(walk);
        }
        (stream.limit_bytes == 0 || self.bytes < stream.limit_bytes)
            && (stream.limit_calls == 0 || self.calls < stream.limit_calls)
            && (stream.passes == 0 || self.passes < stream.passes)
    }

    /// Thinking that is due: computing first, then sleeping. If it is ignored, what is due waits as long.
    fn thinking(&mut self, think: Think, ignored: bool, now: Nanos) -> Option<Next> {
        if let Some(left) = self.think_left.take() {
            return Some(Next::At(now + left));
        }
        // As fio: the first pause is as late as if one had just begun.
        let since = *self.thought_at.get_or_insert(now + think.time);
        let timed = think.io_time > Nanos::ZERO && now.saturating_sub(since) >= think.io_time;
        if timed || self.calls > self.thought && self.calls.is_multiple_of(u64::from(think.calls.max(1))) {
            self.thought = self.calls;
            self.thought_at = Some(now + think.time);
            if ignored {
                self.pace.shift(think.time);
            }
            if think.spin > Nanos::ZERO {
                let rest = think.time.saturating_sub(think.spin);
                self.think_left = (rest > Nanos::ZERO).then_some(rest);
                return Some(Next::Compute(think.spin));
            }
            return Some(Next::At(now + think.time));
        }
        None
    }

    fn pick_target(&mut self, stream: &Stream) {
        let nr_targets = stream.targets.len();
        match stream.service {
            Service::RoundRobin(calls) if self.in_a_row >= calls.max(1) => {
                self.current = (self.current + 1) % nr_targets;
                self.in_a_row = 0;
            }
            Service::Random if nr_targets > 1 => {
                self.current = self.rng.below(nr_targets as u64) as usize;
                // A file that has been gone through is not chosen again while there are others.
                let over = |target: usize| {
                    matches!(stream.order, Order::Sequential { .. })
                        && self.cursors[target].next.iter().sum::<u64>() >= stream.targets[target].len_bytes
                };
                let fresh =
                    (0..nr_targets).map(|step| (self.current + step) % nr_targets).find(|target| !over(*target));
                self.current = fresh.unwrap_or(self.current);
            }
            _ => {}
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
    }

    /// The next data call.
    fn data_call(&mut self, stream: &Stream, now: Nanos) -> Call {
        if let Some((file, offset, len_bytes)) = self.write_back.take() {
            return self.write(stream, file, offset, len_bytes);
        }
        self.pick_target(stream);
        let target = stream.targets[self.current];
        let op = match stream.mix {
            Mix::Read | Mix::ReadAndWriteBack(_) => Op::Read,
            Mix::Write => Op::Write,
            Mix::Mixed(read_pct) => {
                let drawn = usize::from(self.rng.below(100) >= u64::from(read_pct));
                if stream.rate.as_ref().map_or(drawn, |rate| self.pace.pick(rate, drawn, now)) == walk::READ {
                    Op::Read
                } else {
                    Op::Write
                }
            }
        };
        let dir = usize::from(op == Op::Write);
        let wanted = u64::from(stream.blocks[dir].draw(&mut self.rng));
        let place = match stream.order {
            Order::Sequential { hole_bytes } => {
                let cursor = &mut self.cursors[self.current];
                let place = if cursor.next[dir] < target.len_bytes { cursor.next[dir] } else { 0 };
                cursor.next[dir] = place + wanted + hole_bytes;
                place
            }
            Order::Random { run, random_pct, .. } => self.random_place(stream, &target, wanted, run, random_pct),
        };
        let len = wanted.min(target.len_bytes - place);
        let len = if stream.limit_bytes == 0 { len } else { len.min(stream.limit_bytes - self.bytes) };
        self.account(stream, &target, len);
        let offset = target.start + place;
        if op == Op::Write {
            return self.write(stream, target.file, offset, len as u32);
        }
        if let Mix::ReadAndWriteBack(pct) = stream.mix
            && self.rng.below(100) < u64::from(pct)
        {
            self.write_back = Some((target.file, offset, len as u32));
        }
        Call { op, file: target.file, offset, len_bytes: len as u32, then: None, counted: true, how: None }
    }

    fn random_place(&mut self, stream: &Stream, target: &Target, wanted: u64, run: u32, random_pct: u32) -> u64 {
        let align = u64::from(align(stream));
        let follow = random_pct < 100 && self.rng.below(100) >= u64::from(random_pct);
        let cursor = &mut self.cursors[self.current];
        if (cursor.run_left > 0 || follow) && cursor.at + wanted <= target.len_bytes {
            cursor.run_left = cursor.run_left.saturating_sub(1);
            let place = cursor.at;
            cursor.at += wanted;
            return place;
        }
        let n = (target.len_bytes / align).max(1);
        let block = match (&cursor.permutation, &cursor.places) {
            (Some(permutation), _) => permutation.at(cursor.visited % n),
            (None, Some(places)) => places.draw(&mut self.rng),
            (None, None) => unreachable!("a random order has places"),
        };
        cursor.visited += 1;
        if cursor.visited.is_multiple_of(n)
            && let Some(permutation) = &mut cursor.permutation
        {
            *permutation = Permutation::new(n, self.rng.next_u64());
        }
        cursor.run_left = run.saturating_sub(1);
        // A block that would run over the end begins earlier, so that it has its size.
        let place = (block * align).min(target.len_bytes.saturating_sub(wanted) / align * align);
        cursor.at = place + wanted;
        place
    }

    /// Counts a call against the limits, and ends targets and passes.
    fn account(&mut self, stream: &Stream, target: &Target, len: u64) {
        self.bytes += len;
        self.calls += 1;
        let hole = match stream.order {
            Order::Sequential { hole_bytes } => hole_bytes,
            Order::Random { .. } => 0,
        };
        self.pass_bytes += len + hole;
        if stream.service == Service::Sequential && matches!(stream.order, Order::Sequential { .. }) {
            let done = self.cursors[self.current].next.iter().sum::<u64>() >= target.len_bytes;
            if done {
                self.cursors[self.current].next = [0; 2];
                self.current = (self.current + 1) % stream.targets.len();
            }
        }
        if self.pass_bytes >= stream.total_bytes() {
            self.pass_bytes = 0;
            self.passes += 1;
            if stream.drop_between_passes {
                self.to_drop = 0;
            }
        }
        if let Some(log) = stream.log
            && self.calls.is_multiple_of(u64::from(log.calls.max(1)))
        {
            self.log_owed = Some(false);
        }
    }

    fn write(&mut self, stream: &Stream, file: u32, offset: u64, len_bytes: u32) -> Call {
        self.unsynced += 1;
        self.last_written = file;
        if let Some(sync) = stream.sync
            && !stream.fio_syncs
            && self.unsynced >= u64::from(sync.writes.max(1))
        {
            self.unsynced = 0;
            self.owed_sync = Some((sync.op, file));
        }
        Call { op: Op::Write, file, offset, len_bytes, then: stream.synchronous_writes, counted: true, how: None }
    }

    /// The sync that fio makes before its next call, if there is one: it looks whether the number of writes so far can
    /// be divided, not whether there was a write since.
    fn fio_sync(&mut self, stream: &Stream) -> Option<Call> {
        let sync = stream.sync.filter(|_| stream.fio_syncs)?;
        let due = self.unsynced > 0 && self.unsynced.is_multiple_of(u64::from(sync.writes.max(1)));
        self.synced = due && !self.synced;
        self.synced.then(|| sync_call(sync.op, self.last_written))
    }

    /// The next call of a script.
    fn scripted(&mut self, stream: &Stream, script: &[Scripted], released: Option<Nanos>, now: Nanos) -> Next {
        let started = *self.started.get_or_insert(now);
        let over = stream.max_time > Nanos::ZERO && now.saturating_sub(started) >= stream.max_time;
        let Some(step) = script.get(self.calls as usize).filter(|_| !over) else { return Next::Done };
        if step.spin > Nanos::ZERO && !std::mem::replace(&mut self.spun, true) {
            return Next::Compute(step.spin);
        }
        let ready = match step.pause {
            Nanos::ZERO => started,
            pause => *self.paused_until.get_or_insert(now + pause),
        };
        let Some(released) = released else { return Next::At(WOKEN) };
        let due = (started + step.at).max(ready).max(released);
        if due > now {
            return Next::At(due);
        }
        self.calls += 1;
        self.spun = false;
        self.paused_until = None;
        Next::Do { call: step.call, intended: if step.at == Nanos::ZERO { now } else { due } }
    }

    /// A part of a log append that is owed: the write, then its sync.
    fn log_call(&mut self, log: Log) -> Option<Call> {
        let sync = self.log_owed?;
        let file = log.target.file;
        if sync {
            self.log_owed = None;
            return Some(sync_call(Op::Fdatasync, file));
        }
        self.log_owed = Some(true);
        if self.log_at + u64::from(log.len_bytes) > log.target.len_bytes {
            self.log_at = 0;
        }
        let offset = log.target.start + self.log_at;
        self.log_at += u64::from(log.len_bytes);
        Some(Call { op: Op::Write, file, offset, len_bytes: log.len_bytes, then: None, counted: true, how: None })
    }
}

/// Places are multiples of the smallest block.
fn align(stream: &Stream) -> u32 {
    let sizes = match stream.mix {
        Mix::Read => &stream.blocks[..1],
        Mix::Write => &stream.blocks[1..],
        Mix::Mixed(_) | Mix::ReadAndWriteBack(_) => &stream.blocks[..],
    };
    sizes.iter().map(BlockSizes::smallest).min().unwrap_or(4096).max(1)
}

/// Directions that a call may have: those that a rate is kept of.
fn directions(stream: &Stream) -> &'static [usize] {
    let mixed = |read_pct| match read_pct {
        0 => &[walk::WRITE][..],
        100 => &[walk::READ],
        _ => &[walk::READ, walk::WRITE],
    };
    match (stream.walk.as_ref().map(|walk| walk.directions), stream.mix) {
        (Some(Directions::Only(walk::READ)), _) | (None, Mix::Read | Mix::ReadAndWriteBack(_)) => &[walk::READ],
        (Some(Directions::Only(walk::TRIM)), _) => &[walk::TRIM],
        (Some(Directions::Only(_) | Directions::TrimWrite), _) | (None, Mix::Write) => &[walk::WRITE],
        (Some(Directions::Mixed(read_pct)), _) => mixed(read_pct),
        (None, Mix::Mixed(read_pct)) => mixed(read_pct),
    }
}

fn sync_call(op: Op, file: u32) -> Call {
    Call { op, file, offset: 0, len_bytes: 0, then: None, counted: true, how: None }
}

impl Generator for StreamGenerator {
    fn next(&mut self, thread: u32, now: Nanos) -> Next {
        let (stream, state) = (&self.streams[thread as usize], &mut self.states[thread as usize]);
        if let Some(script) = &stream.script {
            let after = script.get(state.calls as usize).and_then(|step| step.after);
            let released = after.map_or(Some(Nanos::ZERO), |after| {
                let ended = &self.states[after.thread as usize].ended;
                let last = ended.get((after.calls as usize).checked_sub(1)?)?;
                Some(*last + after.lag)
            });
            return self.states[thread as usize].scripted(stream, script, released, now);
        }
        state.started.get_or_insert(now);
        if let Some((op, file)) = state.owed_sync.take() {
            return Next::Do { call: sync_call(op, file), intended: now };
        }
        if let Some(log) = stream.log
            && let Some(call) = state.log_call(log)
        {
            return Next::Do { call, intended: now };
        }
        if state.write_back.is_none() {
            if !state.may_go_on(stream, now) {
                if let Some(op) = stream.end_sync
                    && let Some(target) = stream.targets.get(state.end_synced)
                {
                    state.end_synced += 1;
                    let call = Call { counted: !stream.fio_syncs, ..sync_call(op, target.file) };
                    return Next::Do { call, intended: now };
                }
                return Next::Done;
            }
            if let Some(target) = stream.targets.get(state.to_drop) {
                state.to_drop += 1;
                return Next::Drop(*target);
            }
            if let Some(call) = state.fio_sync(stream) {
                return Next::Do { call, intended: now };
            }
            if let Some(think) = stream.think
                && let Some(next) = state.thinking(think, stream.rate.is_some_and(|rate| rate.ignores_pauses), now)
            {
                return next;
            }
        }
        if let Some(rate) = &stream.rate
            && let Err(due) = state.pace.look(rate, directions(stream), now)
        {
            return Next::At(due);
        }
        let call = match &stream.walk {
            None => state.data_call(stream, now),
            Some(walk) => match state.walked(stream, walk, now) {
                Some(call) => call,
                None => return self.next(thread, now),
            },
        };
        let intended = stream.rate.as_ref().map_or(now, |rate| {
            let direction = match call.op {
                Op::Read => walk::READ,
                Op::Trim => walk::TRIM,
                _ => walk::WRITE,
            };
            state.pace.made(rate, direction, call.len_bytes, &mut state.arrivals, now)
        });
        Next::Do { call, intended }
    }

    fn completed(&mut self, thread: u32, _call: &Call, now: Nanos) {
        if self.streams[thread as usize].script.is_some() {
            self.states[thread as usize].ended.push(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    fn target(file: u32, len_bytes: u64) -> Target {
        Target { file, start: 0, len_bytes }
    }

    /// The calls of a stream that never waits: letter, file, offset / 4096, length / 4096.
    fn calls(stream: Stream) -> Vec<(char, u32, u64, u32)> {
        let mut generator = StreamGenerator::new(vec![stream], 1);
        let mut calls = Vec::new();
        while let Next::Do { call, .. } = generator.next(0, Nanos::ZERO) {
            let letter = match call.op {
                Op::Read => 'r',
                Op::Write => 'w',
                Op::Fsync => 's',
                Op::Fdatasync => 'd',
                Op::Trim => 't',
            };
            calls.push((letter, call.file, call.offset / 4096, call.len_bytes / 4096));
            assert!(calls.len() < 10_000);
        }
        calls
    }

    #[test]
    fn one_pass_reads_target_after_target() {
        let stream = Stream::sequential(Mix::Read, vec![target(0, 8192), target(1, 4096)], 4096);
        assert_eq!(calls(stream), [('r', 0, 0, 1), ('r', 0, 1, 1), ('r', 1, 0, 1)]);
    }

    #[test]
    fn pages_of_every_region_are_dropped_between_passes_and_not_behind_the_last() {
        for (drops, passes, limit_bytes, expected) in
            [(true, 2, 0, "ccdDcc"), (true, 0, 5 * 4096, "ccdDccdDc"), (true, 1, 0, "cc"), (false, 2, 0, "cccc")]
        {
            let targets = vec![target(0, 4096), Target { file: 1, start: 8192, len_bytes: 4096 }];
            let mut stream = Stream::sequential(Mix::Read, targets, 4096);
            (stream.drop_between_passes, stream.passes, stream.limit_bytes) = (drops, passes, limit_bytes);
            let mut generator = StreamGenerator::new(vec![stream], 1);
            let mut seen = String::new();
            while seen.len() < 20 {
                seen.push(match generator.next(0, Nanos::ZERO) {
                    Next::Do { .. } => 'c',
                    Next::Drop(region) if region == target(0, 4096) => 'd',
                    Next::Drop(region) if (region.file, region.start) == (1, 8192) => 'D',
                    Next::Done => break,
                    other => panic!("{other:?}"),
                });
            }
            assert_eq!(seen, expected, "{drops} {passes} {limit_bytes}");
        }
    }

    #[test]
    fn round_robin_takes_a_record_of_each_file_in_turn() {
        let mut stream = Stream::sequential(Mix::Write, vec![target(0, 8192), target(1, 8192)], 4096);
        stream.service = Service::RoundRobin(1);
        assert_eq!(calls(stream), [('w', 0, 0, 1), ('w', 1, 0, 1), ('w', 0, 1, 1), ('w', 1, 1, 1)]);
    }

    #[test]
    fn rewriting_writes_each_block_back_and_syncs_at_the_end() {
        let mut stream = Stream::sequential(Mix::ReadAndWriteBack(100), vec![target(0, 8192)], 4096);
        stream.end_sync = Some(Op::Fsync);
        assert_eq!(calls(stream), [('r', 0, 0, 1), ('w', 0, 0, 1), ('r', 0, 1, 1), ('w', 0, 1, 1), ('s', 0, 0, 0)]);
    }

    #[test]
    fn syncs_and_log_appends_come_between() {
        let mut stream = Stream::sequential(Mix::Write, vec![target(0, 16384)], 4096);
        stream.sync = Some(SyncEvery { writes: 2, op: Op::Fdatasync });
        stream.log = Some(Log { target: target(9, 8192), calls: 4, len_bytes: 8192 });
        let story: String = calls(stream).iter().map(|call| call.0).collect();
        assert_eq!(story, "wwdwwdwd");
    }

    #[test]
    fn fio_syncs_between_writes_only_and_again_after_a_read() {
        let mut stream = Stream::sequential(Mix::Write, vec![target(0, 16384)], 4096);
        stream.fio_syncs = true;
        stream.sync = Some(SyncEvery { writes: 2, op: Op::Fsync });
        stream.end_sync = Some(Op::Fsync);
        let story = |stream: Stream| calls(stream).iter().map(|call| call.0).collect::<String>();
        assert_eq!(story(stream.clone()), "wwswws", "the last one is that of the end");
        let mut generator = StreamGenerator::new(vec![stream.clone()], 1);
        let counted = std::iter::from_fn(|| match generator.next(0, Nanos::ZERO) {
            Next::Do { call, .. } => Some(call.counted),
            _ => None,
        });
        assert_eq!(counted.collect::<Vec<_>>(), [true, true, true, true, true, false]);
        stream.mix = Mix::Mixed(50);
        stream.targets[0].len_bytes = 64 * 4096;
        stream.end_sync = None;
        let story = story(stream);
        let (mut writes, mut before) = (0, 's');
        for (at, call) in story.char_indices() {
            let due = writes > 0 && writes % 2 == 0 && before != 's';
            assert_eq!(call == 's', due, "call {at} of {story}");
            writes += i32::from(call == 'w');
            before = call;
        }
        assert!(story.contains("srs"), "{story}");
    }

    #[test]
    fn a_script_is_kept_to_the_letter_and_to_the_clock() {
        let read = Call { op: Op::Read, file: 0, offset: 8192, len_bytes: 512, then: None, counted: true, how: None };
        let steps = [(read, 100), (sync_call(Op::Fsync, 0), 100)]
            .map(|(call, at)| Scripted { at: Nanos(at), ..Scripted::new(call) });
        let mut stream = Stream::sequential(Mix::Read, vec![target(0, 16384)], 4096);
        stream.script = Some(Arc::from(steps));
        let mut generator = StreamGenerator::new(vec![stream], 1);
        assert_eq!(generator.next(0, Nanos(7)), Next::At(Nanos(107)));
        assert_eq!(generator.next(0, Nanos(150)), Next::Do { call: read, intended: Nanos(107) });
        let sync = Next::Do { call: sync_call(Op::Fsync, 0), intended: Nanos(107) };
        assert_eq!((generator.next(0, Nanos(200)), generator.next(0, Nanos(300))), (sync, Next::Done));
    }

    #[test]
    fn a_call_waits_for_one_of_another_thread_and_computes_before() {
        let read = sync_call(Op::Fsync, 0);
        let after = Some(After { thread: 1, calls: 2, lag: Nanos(30) });
        let late = Scripted { spin: Nanos(5), after, ..Scripted::new(read) };
        let stream = |steps: &[Scripted]| Stream {
            script: Some(Arc::from(steps)),
            ..Stream::sequential(Mix::Read, vec![target(0, 4096)], 4096)
        };
        let mut generator = StreamGenerator::new(vec![stream(&[late]), stream(&[Scripted::new(read); 2])], 1);
        assert_eq!(generator.next(0, Nanos(10)), Next::Compute(Nanos(5)));
        generator.completed(1, &read, Nanos(12));
        assert_eq!(generator.next(0, Nanos(15)), Next::At(WOKEN));
        generator.completed(1, &read, Nanos(20));
        assert_eq!(generator.next(0, Nanos(20)), Next::At(Nanos(50)));
        assert_eq!(generator.next(0, Nanos(50)), Next::Do { call: read, intended: Nanos(50) });
    }

    #[test]
    fn a_pause_follows_every_so_many_calls() {
        let mut stream = Stream::sequential(Mix::Read, vec![target(0, 12288)], 4096);
        stream.think = Some(Think { calls: 2, time: Nanos(100), spin: Nanos(30), io_time: Nanos::ZERO });
        let mut generator = StreamGenerator::new(vec![stream], 1);
        let mut story = Vec::new();
        let mut now = Nanos::ZERO;
        loop {
            match generator.next(0, now) {
                Next::Do { .. } => story.push("read".to_owned()),
                Next::Compute(time) => story.push(format!("compute {}", time.0)),
                Next::At(time) => {
                    story.push(format!("sleep {}", time.0 - now.0));
                    now = time;
                }
                Next::Drop(_) => story.push("drop".to_owned()),
                Next::Done => break,
            }
        }
        assert_eq!(story, ["read", "read", "compute 30", "sleep 70", "read"]);
    }

    #[test]
    fn pauses_are_made_up_for_unless_the_rate_ignores_them() {
        for (ignores_pauses, expected) in [(false, [0, 100, 600, 600]), (true, [0, 100, 700, 800])] {
            let mut stream = Stream::sequential(Mix::Read, vec![target(0, 16384)], 4096);
            stream.think = Some(Think { calls: 2, time: Nanos(500), spin: Nanos::ZERO, io_time: Nanos::ZERO });
            stream.rate = Some(Rate { ignores_pauses, ..Rate::of_calls(10_000_000, 4096) });
            let mut generator = StreamGenerator::new(vec![stream], 1);
            let (mut now, mut begun) = (Nanos::ZERO, Vec::new());
            loop {
                match generator.next(0, now) {
                    Next::Do { .. } => begun.push(now.0),
                    Next::At(time) => now = time,
                    _ => break,
                }
            }
            assert_eq!(begun, expected, "{ignores_pauses}");
        }
    }

    #[test]
    fn a_rate_spaces_the_calls_and_says_when_they_were_due() {
        let mut stream = Stream::sequential(Mix::Read, vec![target(0, 12288)], 4096);
        stream.rate = Some(Rate::of_calls(1000, 4096));
        let mut generator = StreamGenerator::new(vec![stream], 1);
        assert!(matches!(generator.next(0, Nanos(5)), Next::Do { intended: Nanos(5), .. }));
        assert_eq!(generator.next(0, Nanos(6)), Next::At(Nanos(1_000_005)));
        assert!(matches!(generator.next(0, Nanos(3_000_000)), Next::Do { intended: Nanos(1_000_005), .. }));
        assert!(matches!(generator.next(0, Nanos(3_000_000)), Next::Do { intended: Nanos(2_000_005), .. }));
    }

    proptest! {
        #[test]
        fn with_a_map_every_block_is_visited_once_a_pass(blocks in 1u64..200, seed in any::<u64>()) {
            let mut stream = Stream::random(Mix::Read, target(0, blocks * 4096), 4096, 0);
            stream.order =
                Order::Random { distribution: Distribution::Uniform, once: true, run: 1, random_pct: 100 };
            stream.passes = 2;
            stream.seed = seed;
            let calls = calls(stream);
            prop_assert_eq!(calls.len() as u64, 2 * blocks);
            for pass in calls.chunks(blocks as usize) {
                let mut seen: Vec<u64> = pass.iter().map(|call| call.2).collect();
                seen.sort_unstable();
                prop_assert_eq!(seen, (0..blocks).collect::<Vec<_>>());
            }
        }

        #[test]
        fn every_call_stays_within_its_target(
            len in 1u64..300_000,
            start in 0u64..10_000,
            block in 512u32..70_000,
            shape in 0u32..5,
            seed in any::<u64>(),
        ) {
            let region = Target { file: 3, start, len_bytes: len };
            let mut stream = Stream::random(Mix::Mixed(50), region, block, 100);
            stream.seed = seed;
            stream.blocks[1] = BlockSizes::Range(block / 2, block * 2);
            let distribution = [Distribution::Zipf(900), Distribution::Pareto(300), Distribution::Normal(200)];
            stream.order = match shape {
                0..=2 => {
                    let distribution = distribution[shape as usize];
                    Order::Random { distribution, once: false, run: 1 + shape, random_pct: 70 }
                }
                3 => Order::Random { distribution: Distribution::Uniform, once: true, run: 1, random_pct: 100 },
                _ => Order::Sequential { hole_bytes: 4096 },
            };
            let mut generator = StreamGenerator::new(vec![stream], seed);
            let mut nr_calls = 0;
            while let Next::Do { call, .. } = generator.next(0, Nanos::ZERO) {
                prop_assert!(call.len_bytes > 0 && call.offset >= start);
                prop_assert!(call.offset + u64::from(call.len_bytes) <= start + len);
                nr_calls += 1;
            }
            prop_assert_eq!(nr_calls, 100);
        }
    }
}
