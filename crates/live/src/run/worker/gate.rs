//! Threads begin together, in the order of their numbers.
//!
//! The first one decides much under some schedulers (BFQ unites the queues of a job with the one that came first), and
//! scripts written for fio, which releases its threads in order, expect it to be the same each time.

use super::*;
use std::collections::BTreeMap;
use std::thread::Thread;

/// Lets the threads of a group begin together.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    /// Threads that wait, by their numbers.
    waiting: BTreeMap<u32, Thread>,
    /// Threads that have left.
    left: u32,
    /// The clock, and when the group began; or that it will not.
    opened: Option<Option<(Clock, Nanos)>>,
}

impl GateState {
    /// The next one in order may go.
    fn call_next(&self) {
        if let Some((_, thread)) = self.waiting.first_key_value() {
            thread.unpark();
        }
    }
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread waits until the gate is opened and all before it have gone; none if its group will not run.
    pub(super) fn pass(&self, number: u32) -> Option<(Clock, Nanos)> {
        self.state().waiting.insert(number, std::thread::current());
        self.changed.notify_all();
        loop {
            let mut state = self.state();
            if let Some(opened) = state.opened
                && state.waiting.first_key_value().is_some_and(|(first, _)| *first == number)
            {
                state.waiting.remove(&number);
                state.call_next();
                return opened;
            }
            drop(state);
            std::thread::park();
        }
    }

    /// A thread will not come, or not any more.
    pub(crate) fn leave(&self) {
        self.state().left += 1;
        self.changed.notify_all();
    }

    /// Waits until `threads` threads wait, or have left.
    pub(crate) fn wait_for(&self, threads: u32) {
        let mut state = self.state();
        while state.waiting.len() as u32 + state.left < threads {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets all threads go, or ends them.
    pub(crate) fn open(&self, started: Option<(Clock, Nanos)>) {
        let mut state = self.state();
        state.opened = Some(started);
        state.call_next();
    }
}
