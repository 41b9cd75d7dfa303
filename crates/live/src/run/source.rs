//! Where a thread's calls come from.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use iowhy_stack::event::Op;
use iowhy_stack::units::Nanos;
use iowhy_stack::workload::{Call, FileIoGenerator, Generator, Next, StreamGenerator};

/// Hands out the calls of one thread.
pub(crate) trait Source {
    /// Asking is slow, so the clock must be read again before the call.
    const SLOW: bool;

    /// What next?
    fn next(&mut self, now: Nanos) -> Next;

    /// A call has been done.
    fn completed(&mut self, call: &Call, now: Nanos);
}

/// A thread with a stream of its own: no lock.
impl Source for StreamGenerator {
    const SLOW: bool = false;

    #[inline(always)]
    fn next(&mut self, now: Nanos) -> Next {
        Generator::next(self, 0, now)
    }

    #[inline(always)]
    fn completed(&mut self, _call: &Call, _now: Nanos) {}
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
pub(crate) struct WriteMap(BTreeMap<(u32, u64), (u32, u64)>);

impl WriteMap {
    /// A piece was written. Earlier ones that it overlaps are no longer as they were written, and are forgotten.
    pub(crate) fn add(&mut self, (file, offset, len_bytes): (u32, u64, u32), generation: u64) {
        let end = offset + u64::from(len_bytes);
        let before = self.0.range(..(file, offset)).next_back();
        let mut stale: Vec<(u32, u64)> = before
            .filter(|((other, start), len)| *other == file && start + u64::from(len.0) > offset)
            .map(|(key, _)| *key)
            .into_iter()
            .collect();
        stale.extend(self.0.range((file, offset)..(file, end)).map(|(key, _)| *key));
        for key in stale {
            self.0.remove(&key);
        }
        self.0.insert((file, offset), (len_bytes, generation));
    }

    /// Reads of everything, in order of place.
    pub(crate) fn recheck(&self) -> Recheck {
        let pieces: Vec<_> = self.0.iter().map(|((file, offset), (len, _))| (*file, *offset, *len)).collect();
        Recheck(pieces.into_iter())
    }

    /// The generation of the piece at a place.
    pub(crate) fn generation(&self, file: u32, offset: u64) -> Option<u64> {
        self.0.get(&(file, offset)).map(|(_, generation)| *generation)
    }
}

/// Reads the written blocks.
pub(crate) struct Recheck(std::vec::IntoIter<(u32, u64, u32)>);

impl Source for Recheck {
    const SLOW: bool = true;

    fn next(&mut self, now: Nanos) -> Next {
        match self.0.next() {
            Some((file, offset, len_bytes)) => Next::Do {
                call: Call { op: Op::Read, file, offset, len_bytes, then: None, counted: true, how: None },
                intended: now,
            },
            None => Next::Done,
        }
    }

    fn completed(&mut self, _call: &Call, _now: Nanos) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert_eq, proptest};

    proptest! {
        #[test]
        fn what_is_read_back_is_what_nothing_was_written_over(
            writes in proptest::collection::vec((0u32..2, 0u64..40, 1u32..12), 1..60),
        ) {
            let mut written = WriteMap::default();
            // Which write every byte was last written by.
            let mut bytes = vec![[None; 64]; 2];
            for (number, (file, offset, len)) in writes.iter().enumerate() {
                written.add((*file, *offset, *len), number as u64);
                bytes[*file as usize][*offset as usize..][..*len as usize].fill(Some(number));
            }
            let mut found = Vec::new();
            let mut recheck = written.recheck();
            while let Next::Do { call, .. } = recheck.next(Nanos::ZERO) {
                found.push((call.file, call.offset, call.len_bytes));
            }
            let whole = |(number, (file, offset, len)): (usize, &(u32, u64, u32))| {
                bytes[*file as usize][*offset as usize..][..*len as usize].iter().all(|by| *by == Some(number))
            };
            let mut expected: Vec<_> =
                writes.iter().enumerate().filter(|write| whole(*write)).map(|(_, write)| *write).collect();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }
}
