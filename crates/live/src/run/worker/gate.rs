//! Threads begin together.

use super::*;

/// Lets the threads of a group begin together.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    /// Threads that wait, or have left.
    waiting: u32,
    /// The clock, and when the group began; or that it will not.
    opened: Option<Option<(Clock, Nanos)>>,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread waits until the gate is opened; none if its group will not run.
    pub(super) fn pass(&self) -> Option<(Clock, Nanos)> {
        let mut state = self.state();
        state.waiting += 1;
        self.changed.notify_all();
        loop {
            if let Some(opened) = state.opened {
                return opened;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A thread will not come, or not any more.
    pub(crate) fn leave(&self) {
        self.state().waiting += 1;
        self.changed.notify_all();
    }

    /// Waits until `threads` threads wait, or have left.
    pub(crate) fn wait_for(&self, threads: u32) {
        let mut state = self.state();
        while state.waiting < threads {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets all threads go, or ends them.
    pub(crate) fn open(&self, started: Option<(Clock, Nanos)>) {
        self.state().opened = Some(started);
        self.changed.notify_all();
    }
}
