//! One buffered `read(2)` call in progress: the kernels' read loops as state machines.

use crate::readahead::{Mapping, ReadRequest, Readahead, Token};
use crate::units::PageIndex;

/// How a kernel's read loop walks pages.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LoopStyle {
    /// 2.4: look up, read ahead around what is locked, wait (`do_generic_file_read`).
    Linux24,
    /// 2.6.0 .. 2.6.8: the policy is asked about every page before it is looked up.
    AskEveryPage,
    /// 2.6.10 .. 2.6.22: the policy is asked when the page it named comes.
    AskNextIndex,
    /// 2.6.23 .. 5.x: the policy is asked about misses and markers, page by page.
    OnDemand,
    /// 5.12 ..: batches of folios are looked up; the policy is asked about misses and the batch's last folio.
    Batch {
        /// Most folios in a batch.
        max_folios: u8,
        /// `prev_pos` is stored after every folio copied (6.1) rather than once at the end of the call.
        prev_pos_per_folio: bool,
    },
}

/// What whoever drives the loop must do before calling [`ReadLoop::step`] again.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The kernel may switch tasks here. Only the replayer of interleaved vectors cares.
    SchedulingPoint,
    /// Carry out the submissions made so far, then go on.
    Submitted,
    /// Sleep until this page is up to date (or gone); pages submitted so far must have been started first.
    Wait(PageIndex),
    /// Copy these pages (all up to date) to the caller.
    Copy {
        /// First page.
        page: PageIndex,
        /// How many.
        nr_pages: u64,
        /// Bytes of them that are asked for and exist.
        len_bytes: u64,
    },
    /// The call has ended; the number of bytes it read.
    Done {
        /// Bytes read.
        len_bytes: u64,
    },
}

/// A call in progress. Small and plain: it lives on the driver's stack.
#[derive(Copy, Clone, Debug)]
pub struct ReadLoop {
    request: ReadRequest,
    token: Token,
}

impl ReadLoop {
    /// A call that has not looked at anything yet.
    pub fn new(_ra: &dyn Readahead, request: ReadRequest) -> ReadLoop {
        ReadLoop { request, token: Token(0) }
    }

    /// Goes on until something must be done outside.
    pub fn step(&mut self, _ra: &mut dyn Readahead, _mapping: &mut dyn Mapping) -> Step {
        let _ = (self.request, self.token);
        Step::Done { len_bytes: 0 }
    }
}
