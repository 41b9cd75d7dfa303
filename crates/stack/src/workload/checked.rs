//! Threads that read what they have written.
//!
//! ```text
//! work    calls as the thread's generator hands them out; every write is remembered, and forgets what it overlaps
//! backlog after this number of writes, that many of them are read
//! trims   a share of the writes is trimmed in batches: those read as zeroes, or are not read
//! drain   at the end of a pass (fio: do_verify) no call is made until those in flight have ended
//! check   cached pages are dropped as before a pass, then all that was written is read, in the order of places, or of
//!         the writes where places are drawn from a map
//! ```
//!
//! Source: fio 3.33, by its calls (`backend.c`, `do_verify`; `io_u.c`, `get_io_u`; `iolog.c`, `log_io_piece`). Data are
//! not compared here. Deviations: `experimental_verify` reads in the same order, not by drawing the places again; a
//! simulated `verify_only` does not count the writes that it leaves out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::Serialize;

use super::{Call, Generator, Next, Stream, StreamGenerator, Target};
use crate::event::Op;
use crate::rng::Rng;
use crate::units::Nanos;

/// Reads of a thread's own data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Checks {
    /// After each pass, everything that it wrote in it.
    pub after_writes: bool,
    /// Its own reads are checked as well.
    pub reads: bool,
    /// After this number of writes, that many of them; 0 for none.
    pub backlog: (u64, u64),
    pub trims: Option<Trims>,
    /// Nothing is written: only the places of the writes are read.
    pub dry: bool,
    /// In the order of the writes; else in that of their places.
    pub as_written: bool,
    /// Cached pages are dropped before the reads at the end of a pass.
    pub drops: bool,
    /// Where an earlier run ended: no more is read than it had written.
    #[serde(skip)]
    pub state: Option<Arc<WriteState>>,
}

impl Checks {
    /// Whether anything is read again or checked: data that are only written need no list of their places.
    fn needs_places(&self) -> bool {
        let again = self.after_writes || self.dry || self.backlog.0 > 0 || self.trims.is_some();
        again || self.reads || self.state.is_some()
    }
}

/// How far the writes of a thread have come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteState {
    /// Calls in flight at most.
    pub depth: u32,
    /// Writes that have ended.
    pub writes: u64,
    /// Where the last of them began, oldest first: of each file at most as many as there were in flight.
    pub last: BTreeMap<u32, VecDeque<u64>>,
}

impl WriteState {
    /// A write of a thread with that depth has ended.
    pub fn add(&mut self, depth: u32, file: u32, offset: u64) {
        (self.depth, self.writes) = (depth, self.writes + 1);
        let last = self.last.entry(file).or_default();
        last.extend([offset]);
        if last.len() > depth as usize {
            last.pop_front();
        }
    }

    /// Whether a read behind `reads` others is of a place that may not have been written: as fio, only those that were
    /// in flight at the end are looked up.
    fn lacks(&self, reads: u64, file: u32, offset: u64) -> bool {
        let depth = u64::from(self.depth);
        let early = reads < depth || self.writes.wrapping_sub(reads) > depth;
        let known = || self.last.get(&file).is_some_and(|last| last.contains(&offset));
        !(known() || early && self.writes > depth)
    }
}

/// Written blocks that are trimmed before they are checked.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trims {
    /// How many of them.
    pub percent: u32,
    /// After this number of writes, that many are trimmed.
    pub backlog: (u64, u64),
    /// They are read, and have to be zeroes.
    pub zero: bool,
}

/// Which bytes a thread has written last, in the pieces in which it did, and of which generation they are.
#[derive(Debug, Default)]
struct WriteMap {
    pieces: BTreeMap<(u32, u64), (u32, u64)>,
    /// The same in the order of the writes, if they are to be taken out so.
    order: Option<VecDeque<(u32, u64)>>,
}

impl WriteMap {
    fn new(as_written: bool) -> WriteMap {
        WriteMap { order: as_written.then(VecDeque::new), ..WriteMap::default() }
    }

    /// A piece was written. Earlier ones that it overlaps are no longer as they were written, and are forgotten.
    fn add(&mut self, (file, offset, len_bytes): (u32, u64, u32), generation: u64) {
        let end = offset + u64::from(len_bytes);
        let before = self.pieces.range(..(file, offset)).next_back();
        let mut stale: Vec<(u32, u64)> = before
            .filter(|((other, start), len)| *other == file && start + u64::from(len.0) > offset)
            .map(|(key, _)| *key)
            .into_iter()
            .collect();
        stale.extend(self.pieces.range((file, offset)..(file, end)).map(|(key, _)| *key));
        for key in &stale {
            self.pieces.remove(key);
        }
        self.pieces.insert((file, offset), (len_bytes, generation));
        if let Some(order) = &mut self.order {
            if !stale.is_empty() {
                order.retain(|key| !stale.contains(key));
            }
            order.push_back((file, offset));
        }
    }

    /// Takes the first piece out, in order of place or of the writes.
    fn pop(&mut self) -> Option<((u32, u64), (u32, u64))> {
        let Some(order) = &mut self.order else { return self.pieces.pop_first() };
        loop {
            // Pieces that were trimmed are not there.
            if let Some(piece) = self.pieces.remove_entry(&order.pop_front()?) {
                return Some(piece);
            }
        }
    }
}

/// The generation of a block that has been trimmed.
pub const TRIMMED: u64 = u64::MAX;

/// A thread that reads what it has written.
#[derive(Debug)]
pub struct ReadBack {
    checks: Checks,
    targets: Vec<Target>,
    written: WriteMap,
    /// Reads in flight that are made to be checked, and their generation.
    asked: BTreeMap<(u32, u64), Option<u64>>,
    pass: u64,
    in_flight: u32,
    state: Phase,
    /// Reads of the backlog that are left.
    batch: u64,
    /// The last call was one of them.
    read_back: bool,
    /// Blocks to trim, and trims of this batch that are left.
    to_trim: VecDeque<(u32, u64)>,
    trim_batch: u64,
    chance: Rng,
    /// The next call of the thread, when everything has been checked.
    held: Option<Next>,
    /// Reads that have ended.
    reads: u64,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Phase {
    Work,
    /// Waits for the last calls.
    Drain,
    /// The pages of this target are dropped next.
    Drop(usize),
    Check,
    Over,
}

/// Looked at again then if nothing has completed.
const A_WHILE: Nanos = Nanos::from_ms(1000);

impl ReadBack {
    /// Of a thread with these calls, if it reads anything again.
    pub fn of(stream: &Stream) -> Option<ReadBack> {
        let checks = stream.checks.as_deref().filter(|checks| checks.needs_places())?.clone();
        Some(ReadBack {
            written: WriteMap::new(checks.as_written),
            targets: if checks.drops { stream.targets.clone() } else { Vec::new() },
            checks,
            asked: BTreeMap::new(),
            pass: 0,
            in_flight: 0,
            state: Phase::Work,
            batch: 0,
            read_back: false,
            to_trim: VecDeque::new(),
            trim_batch: 0,
            chance: Rng::stream(0, "trims"),
            held: None,
            reads: 0,
        })
    }

    /// What next? `calls` has the thread's own ones.
    pub fn next(&mut self, calls: &mut StreamGenerator, thread: u32, now: Nanos) -> Next {
        loop {
            match self.state {
                Phase::Drain if self.in_flight > 0 => return Next::At(now + A_WHILE),
                Phase::Drain => self.state = Phase::Drop(0),
                Phase::Drop(number) => match self.targets.get(number) {
                    Some(target) => {
                        self.state = Phase::Drop(number + 1);
                        return Next::Drop(*target);
                    }
                    None => self.state = Phase::Check,
                },
                Phase::Check => {
                    if let Some(read) = self.read_back(now) {
                        return read;
                    }
                    if self.in_flight > 0 {
                        return Next::At(now + A_WHILE);
                    }
                    self.read_back = false;
                    match self.held.take() {
                        Some(next) => {
                            self.state = Phase::Work;
                            self.in_flight += u32::from(matches!(next, Next::Do { .. }));
                            return next;
                        }
                        None => self.state = Phase::Over,
                    }
                }
                Phase::Over => return Next::Done,
                Phase::Work => {}
            }
            if self.state != Phase::Work {
                continue;
            }
            if let Some(read) = self.backlog(now) {
                return read;
            }
            if let Some(trim) = self.trim(now) {
                return trim;
            }
            let next = calls.next(thread, now);
            match next {
                Next::Do { call, .. } if matches!(call.op, Op::Read | Op::Write) => {
                    let pass = calls.pass(thread);
                    let over = std::mem::replace(&mut self.pass, pass);
                    if self.checks.after_writes && over > 0 && over != pass {
                        self.held = Some(next);
                        self.state = Phase::Drain;
                        continue;
                    }
                    if call.op == Op::Read && self.checks.reads && self.lacks(call.file, call.offset) {
                        self.state = Phase::Over;
                        continue;
                    }
                    self.in_flight += 1;
                    self.read_back = false;
                    return next;
                }
                // Before the next pass: what this one has written comes first.
                Next::Drop(_) if self.checks.after_writes && self.pass > 0 => {
                    self.pass = 0;
                    self.held = Some(next);
                    self.state = Phase::Drain;
                }
                Next::Done if self.checks.after_writes && !calls.late(thread, now) => self.state = Phase::Drain,
                Next::Do { .. } => {
                    self.in_flight += 1;
                    return next;
                }
                other => return other,
            }
        }
    }

    /// A call has ended.
    pub fn completed(&mut self, call: &Call) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.reads += u64::from(call.op == Op::Read);
    }

    /// A call is counted, and not made.
    pub fn pretends(&self, call: &Call) -> bool {
        self.checks.dry && call.op == Op::Write
    }

    /// A call has written that many bytes of a generation.
    pub fn wrote(&mut self, call: &Call, len_bytes: u32, generation: u64) {
        self.written.add((call.file, call.offset, len_bytes), generation);
        if let Some(trims) = self.checks.trims
            && self.chance.below(100) < u64::from(trims.percent)
        {
            self.to_trim.push_back((call.file, call.offset));
        }
    }

    /// Whether a read is made to be checked, and which generation must be there if that is known: [`TRIMMED`] for
    /// zeroes.
    pub fn asked(&mut self, call: &Call) -> Option<Option<u64>> {
        self.asked.remove(&(call.file, call.offset)).or(self.checks.reads.then_some(None))
    }

    /// A read of the first piece that was written and has not been checked.
    fn read_back(&mut self, now: Nanos) -> Option<Next> {
        let ((file, offset), (len_bytes, generation)) = self.written.pop()?;
        if self.lacks(file, offset) {
            self.state = Phase::Over;
            return Some(Next::Done);
        }
        self.asked.insert((file, offset), Some(generation).filter(|_| !self.checks.dry || generation == TRIMMED));
        self.in_flight += 1;
        self.read_back = true;
        let call = Call { op: Op::Read, file, offset, len_bytes, then: None, counted: true, how: None };
        Some(Next::Do { call, intended: now })
    }

    /// A read of the backlog, if it is due.
    fn backlog(&mut self, now: Nanos) -> Option<Next> {
        let (writes, batch) = self.checks.backlog;
        let waiting = self.written.pieces.len() as u64;
        if writes > 0 && self.batch == 0 && waiting > 0 && waiting.is_multiple_of(writes) && !self.read_back {
            self.batch = if batch == 0 { writes } else { batch };
        }
        self.batch = self.batch.checked_sub(1)?;
        self.read_back(now).or_else(|| {
            self.batch = 0;
            None
        })
    }

    /// Whether an earlier run may not have written there.
    fn lacks(&self, file: u32, offset: u64) -> bool {
        self.checks.state.as_ref().is_some_and(|state| state.lacks(self.reads, file, offset))
    }

    /// A trim of a block that was written, if one is due.
    fn trim(&mut self, now: Nanos) -> Option<Next> {
        let Trims { backlog: (writes, batch), zero, .. } = self.checks.trims?;
        if self.trim_batch == 0 && (self.read_back || !(self.written.pieces.len() as u64).is_multiple_of(writes)) {
            return None;
        }
        let (place, (len_bytes, generation)) = loop {
            let place = self.to_trim.pop_front()?;
            if let Some(piece) = self.written.pieces.get_mut(&place) {
                break (place, piece);
            }
        };
        if self.trim_batch == 0 {
            self.trim_batch = if batch == 0 { writes } else { batch };
        }
        self.trim_batch -= 1;
        let ((file, offset), len_bytes) = (place, *len_bytes);
        if zero {
            *generation = TRIMMED;
        } else {
            self.written.pieces.remove(&place);
        }
        self.in_flight += 1;
        let call = Call { op: Op::Trim, file, offset, len_bytes, then: None, counted: true, how: None };
        Some(Next::Do { call, intended: now })
    }
}

/// Simulated threads, some of which read what they have written.
pub(crate) struct ReadingBack {
    calls: StreamGenerator,
    threads: Vec<Option<ReadBack>>,
}

impl ReadingBack {
    pub(crate) fn new(calls: StreamGenerator, threads: Vec<Option<ReadBack>>) -> ReadingBack {
        ReadingBack { calls, threads }
    }
}

impl Generator for ReadingBack {
    fn next(&mut self, thread: u32, now: Nanos) -> Next {
        let (calls, back) = (&mut self.calls, &mut self.threads[thread as usize]);
        let Some(back) = back else { return calls.next(thread, now) };
        loop {
            match back.next(calls, thread, now) {
                Next::Do { call, .. } if back.pretends(&call) => {
                    back.wrote(&call, call.len_bytes, 0);
                    back.completed(&call);
                    calls.completed(thread, &call, now);
                }
                next => return next,
            }
        }
    }

    fn completed(&mut self, thread: u32, call: &Call, now: Nanos) {
        if let Some(back) = &mut self.threads[thread as usize] {
            match call.op {
                Op::Write => back.wrote(call, call.len_bytes, 0),
                // A read with nothing to compare.
                Op::Read => _ = back.asked(call),
                _ => {}
            }
            back.completed(call);
        }
        self.calls.completed(thread, call, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Mix;
    use proptest::prelude::{prop_assert_eq, proptest};

    /// A thread with calls in flight, of which any may end first: whether calls are as the phases want them.
    fn reads_all_that_it_wrote(passes: u64, depth: usize, backlog: (u64, u64), drops: bool, order: &[usize]) {
        let target = Target { file: 0, start: 0, len_bytes: 16 * 4096 };
        let checks = Some(Box::new(Checks { after_writes: true, backlog, drops, ..Checks::default() }));
        let drop_between_passes = drops;
        let once = Stream::sequential(Mix::Write, vec![target], 4096);
        let stream = Stream { passes, checks, drop_between_passes, ..once };
        let back = vec![ReadBack::of(&stream)];
        let mut calls = ReadingBack::new(StreamGenerator::new(vec![stream], 1), back);
        let mut in_flight: Vec<Call> = Vec::new();
        let (mut writes, mut reads, mut dropped) = (0, 0, 0);
        let mut order = order.iter().cycle();
        loop {
            let next = if in_flight.len() < depth { calls.next(0, Nanos::ZERO) } else { Next::At(Nanos::ZERO) };
            match next {
                Next::Do { call, .. } if call.op == Op::Write => {
                    assert!(
                        writes % 16 > 0 || (reads, in_flight.len()) == (writes, 0),
                        "a pass before the last is read"
                    );
                    writes += 1;
                    in_flight.push(call);
                }
                Next::Do { call, .. } => {
                    let writing = in_flight.iter().any(|call| call.op == Op::Write);
                    assert!(backlog.0 > 0 || !writing, "a read beside writes");
                    reads += 1;
                    in_flight.push(call);
                }
                Next::Drop(_) => dropped += 1,
                Next::At(_) => {
                    let number = order.next().expect("an order") % in_flight.len();
                    let call = in_flight.swap_remove(number);
                    calls.completed(0, &call, Nanos::ZERO);
                }
                Next::Compute(_) => unreachable!("nothing is computed"),
                Next::Done => break,
            }
        }
        assert!(in_flight.is_empty(), "it waits for its reads");
        assert_eq!((writes, reads), (16 * passes, 16 * passes));
        assert_eq!(dropped, if drops { 2 * passes - 1 } else { 0 });
    }

    proptest! {
        #[test]
        fn a_pass_is_read_once_when_its_writes_have_ended(
            passes in 1u64..4,
            depth in 1usize..6,
            backlog in proptest::sample::select(vec![(0, 0), (4, 0), (5, 2)]),
            drops: bool,
            order in proptest::collection::vec(0usize..8, 1..8),
        ) {
            reads_all_that_it_wrote(passes, depth, backlog, drops, &order);
        }

        #[test]
        fn what_is_read_back_is_what_nothing_was_written_over(
            writes in proptest::collection::vec((0u32..2, 0u64..40, 1u32..12), 1..60),
            as_written: bool,
        ) {
            let mut written = WriteMap::new(as_written);
            // Which write every byte was last written by.
            let mut bytes = vec![[None; 64]; 2];
            for (number, (file, offset, len)) in writes.iter().enumerate() {
                written.add((*file, *offset, *len), number as u64);
                bytes[*file as usize][*offset as usize..][..*len as usize].fill(Some(number));
            }
            let mut found = Vec::new();
            while let Some(((file, offset), (len, _))) = written.pop() {
                found.push((file, offset, len));
            }
            let whole = |(number, (file, offset, len)): (usize, &(u32, u64, u32))| {
                bytes[*file as usize][*offset as usize..][..*len as usize].iter().all(|by| *by == Some(number))
            };
            let mut expected: Vec<_> =
                writes.iter().enumerate().filter(|write| whole(*write)).map(|(_, write)| *write).collect();
            if !as_written {
                expected.sort_unstable();
            }
            prop_assert_eq!(found, expected);
        }
    }
}
