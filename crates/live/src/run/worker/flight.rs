//! The slots of a thread with calls in flight.

use iowhy_stack::units::Nanos;
use iowhy_stack::workload::Call;

use crate::engine::Completion;

/// A call in flight.
#[derive(Copy, Clone)]
pub(super) struct Pending {
    pub(super) call: Call,
    pub(super) moved: u32,
    /// Which write of the thread it is.
    pub(super) generation: u64,
    pub(super) due: Nanos,
    pub(super) begin: Nanos,
    pub(super) handed: Nanos,
}

/// Free slots, and what is in the others.
pub(super) struct Flight {
    /// Used last, used first: their buffers are still in the processor's cache.
    pub(super) free: Vec<u32>,
    pub(super) pending: Vec<Option<Pending>>,
    pub(super) queued: Vec<u32>,
    pub(super) done: Vec<Completion>,
    /// The engine has failed, and may still have buffers of slots that look free.
    pub(super) broken: bool,
}

impl Flight {
    pub(super) fn in_flight(&self) -> u32 {
        (self.pending.len() - self.free.len()) as u32
    }

    pub(super) fn release(&mut self, slot: u32) {
        self.pending[slot as usize] = None;
        self.free.push(slot);
    }
}
