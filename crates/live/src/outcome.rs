//! What a run on the running kernel yields.

use std::time::{Duration, SystemTime};

use iowhy_stack::event::Op;
use iowhy_stack::histogram::Histogram;
use iowhy_stack::outcome::{Counts, JobTotals, ThreadTotals};
use iowhy_stack::units::Nanos;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When the clock started.
    pub started: SystemTime,
    /// From the first call to the end of the last.
    pub elapsed: Nanos,
    /// Calls counted (after the warm-up).
    pub counts: Counts,
    /// Latency of those calls from when they were due, ns.
    pub latency: Histogram,
    /// Each thread's share.
    pub threads: Vec<ThreadOutcome>,
    /// Lines of the report, as the simulator has them.
    pub jobs: Vec<JobTotals>,
    /// Whether a signal ended it early.
    pub interrupted: bool,
    /// Pages of each file in the page cache: before and after.
    pub resident: Vec<Resident>,
    /// What laying out the files took; not part of the run.
    pub set_up: Duration,
    /// What the harness itself costs for each call: a run of the null engine with the same stream, ns; none if it was
    /// not measured.
    pub harness_ns: Option<f64>,
}

/// How much of a file is in the page cache.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Pages cached before the first call.
    pub before: u64,
    /// Pages cached after the last.
    pub after: u64,
}

/// What one thread did.
#[derive(Clone, Debug, Default)]
pub struct ThreadOutcome {
    /// Calls, and when it began and ended, as the simulator has it.
    pub totals: ThreadTotals,
    /// Latencies of reads, writes and syncs.
    pub latency: [Latency; 3],
    /// What it used of the CPU.
    pub usage: Usage,
    /// Samples of what was done, one for each [`Plan::sample`](crate::Plan) (the last may be shorter).
    pub samples: Vec<Sample>,
    /// Calls that began while so many were in flight, themselves included: 1, 2, 4, 8, 16, 32, 64 or more.
    pub depths: [u64; 7],
    /// Calls handed in with one system call: 0, 1..4, ..8, ..16, ..32, ..64, more.
    pub submitted: [u64; 7],
    /// Completions taken at once, in the same classes.
    pub completed: [u64; 7],
    /// Calls that moved fewer bytes than asked for.
    pub short: u64,
    /// What went wrong, in order; at most [`MAX_ERRORS`] are kept, `nr_errors` counts all.
    pub errors: Vec<CallError>,
    /// How many calls failed.
    pub nr_errors: u64,
    /// Blocks whose data were checked.
    pub verified: u64,
    /// Every call, if the plan asked for it.
    pub calls: Vec<CallRecord>,
    /// Number of the thread in the system.
    pub tid: u32,
    /// What was asked for and could not be had (polling, registered buffers, ...), in words.
    pub notes: Vec<String>,
}

/// Errors of one thread that are kept.
pub const MAX_ERRORS: usize = 16;

/// Latencies of one kind of call, ns.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    /// From preparing the call to its being handed to the kernel (asynchronous engines).
    pub submission: Histogram,
    /// From there to its completion.
    pub completion: Histogram,
    /// The whole, from when it was due.
    pub total: Histogram,
    /// Sum of squares of each of the three, for standard deviations.
    pub squares: [f64; 3],
}

/// What a thread used (`getrusage(RUSAGE_THREAD)`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time in user mode.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
    /// Context switches because it waited.
    pub voluntary: u64,
    /// Context switches because somebody else had to run.
    pub involuntary: u64,
    /// Page faults served without I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
}

/// What was done in a stretch of time.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Its end, from the start of the run.
    pub end: Nanos,
    /// Its length.
    pub length: Nanos,
    /// What was done in it.
    pub counts: Counts,
}

/// A call that failed, or data that are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// The file's number.
    pub file: u32,
    /// What was attempted.
    pub op: Op,
    /// From which byte.
    pub offset: u64,
    /// How many bytes.
    pub len_bytes: u32,
    /// What happened, from the start of the run.
    pub at: Nanos,
    /// Error number of the system; 0 if data did not match.
    pub errno: i32,
    /// In words; for data: the place, what was expected and what was found.
    pub message: String,
}

/// One call.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// When it began, from the start of the run.
    pub at: Nanos,
    /// How long it took from when it was due.
    pub took: Nanos,
    /// How long after it was due it began; part of `took`.
    pub late: Nanos,
    /// How long the part before the kernel had it took.
    pub submission: Nanos,
    /// What it was.
    pub op: Op,
    /// On which file.
    pub file: u32,
    /// From which byte.
    pub offset: u64,
    /// How many bytes were asked for.
    pub len_bytes: u32,
}
