//! Where a thread's calls come from.

use std::sync::{Mutex, PoisonError};

use iowhy_stack::units::Nanos;
use iowhy_stack::workload::{Call, FileIoGenerator, Generator, Next, ReadBack, StreamGenerator};

/// Hands out the calls of one thread.
pub(crate) trait Source {
    /// Asking is slow, so the clock must be read again before the call.
    const SLOW: bool;

    /// What next?
    fn next(&mut self, now: Nanos) -> Next;

    /// A call has been done.
    fn completed(&mut self, call: &Call, now: Nanos);

    /// A call is counted, and not made.
    fn pretends(&self, _call: &Call) -> bool {
        false
    }

    /// A call has written that many bytes of a generation.
    fn wrote(&mut self, _call: &Call, _len_bytes: u32, _generation: u64) {}

    /// Whether a read is made to be checked, as [`ReadBack::asked`].
    fn asked(&mut self, _call: &Call) -> Option<Option<u64>> {
        None
    }
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

/// A thread that reads what it has written, to be checked.
pub(crate) struct Checked<'a> {
    pub calls: &'a mut StreamGenerator,
    pub back: &'a mut ReadBack,
}

impl Source for Checked<'_> {
    const SLOW: bool = true;

    fn next(&mut self, now: Nanos) -> Next {
        self.back.next(self.calls, 0, now)
    }

    fn completed(&mut self, call: &Call, now: Nanos) {
        self.back.completed(call);
        Generator::completed(self.calls, 0, call, now);
    }

    fn pretends(&self, call: &Call) -> bool {
        self.back.pretends(call)
    }

    fn wrote(&mut self, call: &Call, len_bytes: u32, generation: u64) {
        self.back.wrote(call, len_bytes, generation);
    }

    fn asked(&mut self, call: &Call) -> Option<Option<u64>> {
        self.back.asked(call)
    }
}
