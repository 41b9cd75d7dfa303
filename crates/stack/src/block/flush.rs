//! Flushes since 2.6.37: past the elevator, in steps, several requests served by one command.
//!
//! ```text
//! steps     flush the cache (if the drive has one that forgets), write the data, flush again unless the drive could
//!           write past its cache; an empty flush has the first step only
//! pending   waiters for a flush are on a list; while one command is in progress the next ones gather
//! command   issued when neither one nor data of the machinery is in progress (or after 5 s of waiting); it serves
//!           everybody who was pending
//! ```
//! Source: Linux 4.4 and 6.1, `block/blk-flush.c` (`blk_insert_flush`, `blk_kick_flush`). Known deviations: data of
//! several requests is dispatched in the order they got there, the kernel puts each at the head.

use crate::event::RqId;
use crate::units::Nanos;

/// Longest time that data in progress may hold up a flush command.
const PENDING_TIMEOUT: Nanos = Nanos::from_secs(5);

/// Steps left for a request.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) before: bool,
    pub(super) data: bool,
    pub(super) after: bool,
}

/// The next step of a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Flush,
    Data,
    Done,
}

impl Steps {
    /// Takes out the next step.
    pub(super) fn take(&mut self) -> Step {
        if std::mem::take(&mut self.before) {
            Step::Flush
        } else if std::mem::take(&mut self.data) {
            Step::Data
        } else if std::mem::take(&mut self.after) {
            Step::Flush
        } else {
            Step::Done
        }
    }
}

/// The machinery of one queue.
#[derive(Clone, Debug, Default)]
pub(super) struct FlushQueue {
    /// Requests that need a flush.
    pending: Vec<RqId>,
    pending_since: Nanos,
    /// Those that the command in progress serves.
    running: Vec<RqId>,
    command: Option<RqId>,
    /// Requests whose data is in progress.
    pub(super) data_in_flight: u32,
    /// Steps left, by request.
    pub(super) steps: Vec<Steps>,
}

impl FlushQueue {
    /// `rq` needs a flush.
    pub(super) fn wants(&mut self, rq: RqId, now: Nanos) {
        if self.pending.is_empty() {
            self.pending_since = now;
        }
        self.pending.push(rq);
    }

    /// Whether a command is to be issued now.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.command.is_none()
            && !self.pending.is_empty()
            && (self.data_in_flight == 0 || now >= self.pending_since + PENDING_TIMEOUT)
    }

    /// `command` has been made for all that are pending.
    pub(super) fn start(&mut self, command: RqId) {
        debug_assert!(self.command.is_none() && self.running.is_empty());
        self.command = Some(command);
        std::mem::swap(&mut self.pending, &mut self.running);
    }

    #[inline]
    pub(super) fn is_command(&self, rq: RqId) -> bool {
        self.command == Some(rq)
    }

    /// Those it serves.
    pub(super) fn running(&self) -> &[RqId] {
        &self.running
    }

    /// The command is done: those it has served.
    pub(super) fn finish(&mut self) -> Vec<RqId> {
        self.command = None;
        std::mem::take(&mut self.running)
    }
}
