//! Results of a run.

use crate::device::DeviceStats;
use crate::event::Op;
use crate::histogram::Histogram;
use crate::job::Job;
use crate::kernel::Stack;
use crate::layers::Layers;
use crate::units::Nanos;

/// Operations done in some time.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Read calls.
    pub reads: u64,
    /// Write calls.
    pub writes: u64,
    /// Sync calls.
    pub syncs: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Discards.
    pub trims: u64,
    pub trimmed_bytes: u64,
}

impl Counts {
    /// Counts one call.
    pub fn add(&mut self, op: Op, len_bytes: u64) {
        match op {
            Op::Read => {
                self.reads += 1;
                self.read_bytes += len_bytes;
            }
            Op::Write => {
                self.writes += 1;
                self.written_bytes += len_bytes;
            }
            Op::Fsync | Op::Fdatasync => self.syncs += 1,
            Op::Trim => {
                self.trims += 1;
                self.trimmed_bytes += len_bytes;
            }
        }
    }

    /// The counts that have come since `before`, which is an earlier state of this counter.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            syncs: self.syncs - before.syncs,
            read_bytes: self.read_bytes - before.read_bytes,
            written_bytes: self.written_bytes - before.written_bytes,
            trims: self.trims - before.trims,
            trimmed_bytes: self.trimmed_bytes - before.trimmed_bytes,
        }
    }

    /// Adds the counts of another counter.
    pub fn merge(&mut self, more: &Counts) {
        self.reads += more.reads;
        self.writes += more.writes;
        self.syncs += more.syncs;
        self.read_bytes += more.read_bytes;
        self.written_bytes += more.written_bytes;
        self.trims += more.trims;
        self.trimmed_bytes += more.trimmed_bytes;
    }

    /// All calls.
    pub fn total(&self) -> u64 {
        self.reads + self.writes + self.syncs + self.trims
    }
}

/// One report interval.
#[derive(Clone, Debug)]
pub struct Interval {
    pub end: Nanos,
    pub counts: Counts,
    /// Latencies of the calls that ended in it, ns.
    pub latency: Histogram,
}

/// Counts of one thread.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadTotals {
    /// Calls.
    pub events: u64,
    /// Time spent in them.
    pub busy: Nanos,
    /// The same by kind.
    pub counts: Counts,
    /// When it began.
    pub start: Nanos,
    /// When its last call had ended.
    pub end: Nanos,
}

impl ThreadTotals {
    /// From its beginning to its end.
    pub fn elapsed(&self) -> Nanos {
        self.end.saturating_sub(self.start)
    }
}

/// Counts of the threads of one line of the report together.
#[derive(Clone, Debug, Default)]
pub struct JobTotals {
    /// Calls.
    pub counts: Counts,
    /// Latencies of reads, writes and syncs, from when they were due, ns.
    pub latency: [Histogram; 3],
    /// When the first of its threads began.
    pub start: Nanos,
    /// When the last had ended.
    pub end: Nanos,
}

/// Consequences of opening a device.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct OpeningTotals {
    /// Two threads opened it at once, and one had to close it again.
    pub raced: bool,
    /// Probes that ran.
    pub probes: u32,
    /// Pages of the device that probes left in the page cache and that were there at the end.
    pub stale_pages: u64,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// From the first thread's start to the end of the last call.
    pub elapsed: Nanos,
    /// When the last call had ended, by the clock of the threads, which begins before the first one's start.
    pub end: Nanos,
    /// From when on calls were counted: the end of the warm-up, or the first thread's beginning if that is later.
    pub counted_from: Nanos,
    /// Calls done after the warm-up.
    pub counts: Counts,
    /// Latency of those calls, from when they were due, ns.
    pub latency: Histogram,
    /// Each thread's share.
    pub threads: Vec<ThreadTotals>,
    /// Lines of the report.
    pub jobs: Vec<JobTotals>,
    /// Consequences of opening the device.
    pub opening: OpeningTotals,
    /// Report intervals, if asked for.
    pub intervals: Vec<Interval>,
    pub layers: Layers,
    /// The device's counters, its own work (emptying its write cache) included.
    pub device: DeviceStats,
    /// Hash of the event stream.
    pub event_hash: u64,
    pub nr_events: u64,
    /// Time the CPUs worked.
    pub cpu_busy: Nanos,
    /// How often a CPU went to a task (context switches).
    pub switches: u64,
    /// How often a task went to sleep because it got no request: for want of a request or tag (in a legacy queue of one
    /// for reads or synchronous ones), or by the writeback throttle (in a legacy queue for want of any other).
    pub request_waits: [u64; 2],
    /// Handles of the journal that were started.
    pub handles: u64,
    /// Syncs that found no page to write, in file systems that tag pages for them.
    pub empty_syncs: u64,
}

/// Why a run could not be made, or not to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// The files do not fit on the device.
    TooLarge {
        /// Bytes the files need, mapping blocks included.
        need_bytes: u64,
        /// Bytes the device has for files.
        have_bytes: u64,
    },
    /// The job cannot be run as described; the text has the reason.
    Job(String),
    /// The run exceeded the limit of events, and was given up at this simulated time.
    Endless {
        /// Simulated time reached.
        at: Nanos,
        /// Events processed.
        nr_events: u64,
    },
    /// Tasks wait for each other, or for something that will never happen: a mistake in a model.
    Stuck {
        /// Simulated time at which nothing was left to happen.
        at: Nanos,
        /// Tasks that still waited.
        nr_tasks: u32,
    },
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunError::TooLarge { need_bytes, have_bytes } => write!(
                f,
                "the files need {} MiB on disk, and the device has room for {} MiB: make them smaller or pick a \
                 larger --disk",
                need_bytes.div_ceil(1 << 20),
                have_bytes >> 20
            ),
            RunError::Job(text) => f.write_str(text),
            RunError::Endless { at, nr_events } => write!(
                f,
                "given up after {nr_events} events at {at} of simulated time: set --events or a shorter --time"
            ),
            RunError::Stuck { at, nr_tasks } => {
                write!(
                    f,
                    "{nr_tasks} tasks wait for something that will not happen, at {at}: this is a mistake in a model"
                )
            }
        }
    }
}

impl std::error::Error for RunError {}

/// A stack and a job: all that determines a run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub stack: Stack,
    pub job: Job,
}
