//! Workloads: which call each thread makes next. The same generators feed the simulator and the live engines.
//!
//! Two generators exist: sysbench's file test, whose threads share counters and positions (`fileio`), and a stream of
//! calls that belongs to one thread, in fio's terms (`stream`), from which fio, dd, aio-stress and the rest are made.
//! Threads of the latter may read their written data again (`checked`).

mod checked;
mod draw;
mod fileio;
mod stream;
mod walk;

pub(crate) use checked::ReadingBack;
pub use checked::{Checks, ReadBack, TRIMMED, Trims, WriteState};
pub use draw::{Distribution, MAX_ZONES};
pub use fileio::{Dialect, FileIo, FileIoGenerator, Mode, PositionSource};
pub use stream::{
    After, BlockSizes, Log, Mix, Order, Rate, Scripted, Service, Stream, StreamGenerator, SyncEvery, Target, Think,
};
pub use walk::{Directions, Numbers, READ, Sizes, Span, TRIM, Turns, WRITE, Walk, Zones, file_sizes};

use crate::event::Op;
use crate::readahead::Advice;
use crate::units::Nanos;

/// Where a call finds its data.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Path {
    /// In the page cache.
    Cache,
    /// Past it (`O_DIRECT`).
    Direct,
    /// In a mapping.
    Mapping,
}

/// How a call is made by a thread that does not make all its calls alike.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct How {
    pub path: Path,
    /// Number of its set of descriptors: calls on one file with the same number share an open file.
    pub descriptors: u32,
    /// Said about the open file just before.
    pub advice: Option<Advice>,
}

/// One call to be made.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub op: Op,
    /// On which file.
    pub file: u32,
    /// From which byte.
    pub offset: u64,
    /// How many bytes; 0 for a sync.
    pub len_bytes: u32,
    /// The sync that is part of the same call (a write to a file opened O_SYNC or O_DSYNC).
    pub then: Option<Op>,
    /// The program's report counts it (1.0 leaves the last syncs out).
    pub counted: bool,
    /// How it is made, if not as its thread makes calls.
    pub how: Option<How>,
}

/// A thread's next action.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This call, now. `intended` is when it should have begun (earlier than now if the program is behind its rate).
    Do {
        call: Call,
        /// When it was due.
        intended: Nanos,
    },
    /// Nothing before this time; with [`WOKEN`] before a call of another thread has completed.
    At(Nanos),
    /// Dropping the clean cached pages of this region, then ask again.
    Drop(Target),
    /// Computing for this long, then ask again.
    Compute(Nanos),
    /// Nothing any more.
    Done,
}

/// The end of time: see [`Next::At`]. Only simulated jobs have threads that wait for one another.
pub const WOKEN: Nanos = Nanos(u64::MAX);

/// Hands out calls to threads.
pub trait Generator {
    /// Thread `thread` is free: what next?
    fn next(&mut self, thread: u32, now: Nanos) -> Next;

    /// A call of that thread has completed.
    fn completed(&mut self, thread: u32, call: &Call, now: Nanos);
}
