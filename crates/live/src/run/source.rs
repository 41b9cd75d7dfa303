//! Where a thread's calls come from.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use iowhy_stack::event::Op;
use iowhy_stack::rng::Rng;
use iowhy_stack::units::Nanos;
use iowhy_stack::workload::{Call, FileIoGenerator, Generator, Next, StreamGenerator};

use crate::plan::{Trims, Verify};

/// Hands out the calls of one thread.
pub(crate) trait Source {
    /// Asking is slow, so the clock must be read again before the call.
    const SLOW: bool;

    /// What next?
    fn next(&mut self, now: Nanos) -> Next;

    /// A call has been done.
    fn completed(&mut self, call: &Call, now: Nanos);

    /// The pass over everything that the last call belongs to, from 1.
    fn pass(&self) -> u64 {
        1
    }

    /// The time is over.
    fn late(&self, _now: Nanos) -> bool {
        false
    }

    /// A call is counted, and not made.
    fn pretends(&self, _call: &Call) -> bool {
        false
    }

    /// A call has written that many bytes of a generation.
    fn wrote(&mut self, _call: &Call, _len_bytes: u32, _generation: u64) {}

    /// Whether a read is made to be checked, and which generation must be there if that is known: [`TRIMMED`] for
    /// zeroes.
    fn asked(&mut self, _call: &Call) -> Option<Option<u64>> {
        None
    }
}

/// The generation of a block that has been trimmed.
pub(crate) const TRIMMED: u64 = u64::MAX;

/// A thread with a stream of its own: no lock.
impl Source for StreamGenerator {
    const SLOW: bool = false;

    #[inline(always)]
    fn next(&mut self, now: Nanos) -> Next {
        Generator::next(self, 0, now)
    }

    #[inline(always)]
    fn completed(&mut self, _call: &Call, _now: Nanos) {}

    fn pass(&self) -> u64 {
        StreamGenerator::pass(self, 0)
    }

    fn late(&self, now: Nanos) -> bool {
        StreamGenerator::late(self, 0, now)
    }
}

/// A thread of sysbench: counters and positions are shared.
pub(crate) struct Shared<'a> {
    pub generator: &'a Mutex<FileIoGenerator>,
    pub thread: u32,
}

impl Source for Shared<'_> {
    const SLOW: bool = true;

    fn next(&mut self, now: Nanos) -> Next {
        self.generator.lock().unwrap_or_else(PoisonError::into_inner).next(self.thread, now)
    }

    fn completed(&mut self, call: &Call, now: Nanos) {
        self.generator.lock().unwrap_or_else(PoisonError::into_inner).completed(self.thread, call, now);
    }
}

/// Which bytes a thread has written last, in the pieces in which it did, and of which generation they are.
#[derive(Debug, Default)]
pub(crate) struct WriteMap {
    pieces: BTreeMap<(u32, u64), (u32, u64)>,
    /// The same in the order of the writes, if they are to be taken out so.
    order: Option<VecDeque<(u32, u64)>>,
}

impl WriteMap {
    fn new(as_written: bool) -> WriteMap {
        WriteMap { order: as_written.then(VecDeque::new), ..WriteMap::default() }
    }

    /// A piece was written. Earlier ones that it overlaps are no longer as they were written, and are forgotten.
    pub(crate) fn add(&mut self, (file, offset, len_bytes): (u32, u64, u32), generation: u64) {
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

/// A thread that reads what it has written, to be checked.
pub(crate) struct Checked<'a, S> {
    calls: &'a mut S,
    verify: &'a Verify,
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
    Check,
    Over,
}

impl<'a, S: Source> Checked<'a, S> {
    pub(crate) fn new(calls: &'a mut S, verify: &'a Verify) -> Checked<'a, S> {
        Checked {
            calls,
            verify,
            written: WriteMap::new(verify.as_written),
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
        }
    }

    /// A read of the first piece that was written and has not been checked.
    fn read_back(&mut self, now: Nanos) -> Option<Next> {
        let ((file, offset), (len_bytes, generation)) = self.written.pop()?;
        if self.lacks(file, offset) {
            self.state = Phase::Over;
            return Some(Next::Done);
        }
        self.asked.insert((file, offset), Some(generation).filter(|_| !self.verify.dry || generation == TRIMMED));
        self.in_flight += 1;
        self.read_back = true;
        let call = Call { op: Op::Read, file, offset, len_bytes, then: None, counted: true, how: None };
        Some(Next::Do { call, intended: now })
    }

    /// A read of the backlog, if it is due.
    fn backlog(&mut self, now: Nanos) -> Option<Next> {
        let (writes, batch) = self.verify.backlog;
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
}

impl<S> Checked<'_, S> {
    /// Whether an earlier run may not have written there.
    fn lacks(&self, file: u32, offset: u64) -> bool {
        self.verify.state.as_ref().is_some_and(|state| state.lacks(self.reads, file, offset))
    }

    /// A trim of a block that was written, if one is due.
    fn trim(&mut self, now: Nanos) -> Option<Next> {
        let Trims { backlog: (writes, batch), zero, .. } = self.verify.trims?;
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

/// Looked at again then if nothing has completed.
const A_WHILE: Nanos = Nanos::from_ms(1000);

impl<S: Source> Source for Checked<'_, S> {
    const SLOW: bool = true;

    fn next(&mut self, now: Nanos) -> Next {
        loop {
            match self.state {
                Phase::Drain if self.in_flight > 0 => return Next::At(now + A_WHILE),
                Phase::Drain => self.state = Phase::Check,
                Phase::Check => {
                    if let Some(read) = self.read_back(now) {
                        return read;
                    }
                    if self.in_flight > 0 {
                        return Next::At(now + A_WHILE);
                    }
                    self.read_back = false;
                    match self.held.take() {
                        Some(next @ Next::Do { .. }) => {
                            self.state = Phase::Work;
                            self.in_flight += 1;
                            return next;
                        }
                        _ => self.state = Phase::Over,
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
            let next = self.calls.next(now);
            let pass = self.calls.pass();
            match next {
                Next::Do { call, .. } if matches!(call.op, Op::Read | Op::Write) => {
                    let over = std::mem::replace(&mut self.pass, pass);
                    if self.verify.after_writes && over > 0 && over != pass {
                        self.held = Some(next);
                        self.state = Phase::Drain;
                        continue;
                    }
                    if call.op == Op::Read && self.verify.reads && self.lacks(call.file, call.offset) {
                        self.state = Phase::Over;
                        continue;
                    }
                    self.in_flight += 1;
                    self.read_back = false;
                    return next;
                }
                Next::Done if self.verify.after_writes && !self.calls.late(now) => self.state = Phase::Drain,
                Next::Do { .. } => {
                    self.in_flight += 1;
                    return next;
                }
                other => return other,
            }
        }
    }

    fn completed(&mut self, call: &Call, now: Nanos) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.reads += u64::from(call.op == Op::Read);
        self.calls.completed(call, now);
    }

    fn pretends(&self, call: &Call) -> bool {
        self.verify.dry && call.op == Op::Write
    }

    fn wrote(&mut self, call: &Call, len_bytes: u32, generation: u64) {
        self.written.add((call.file, call.offset, len_bytes), generation);
        if let Some(trims) = self.verify.trims
            && self.chance.below(100) < u64::from(trims.percent)
        {
            self.to_trim.push_back((call.file, call.offset));
        }
    }

    fn asked(&mut self, call: &Call) -> Option<Option<u64>> {
        self.asked.remove(&(call.file, call.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert_eq, proptest};

    proptest! {
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
