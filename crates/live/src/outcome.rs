//! Results of a run on the running kernel.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use iowhy_stack::event::Op;
use iowhy_stack::histogram::Histogram;
use iowhy_stack::outcome::{Counts, JobTotals, ThreadTotals};
use iowhy_stack::units::Nanos;
use iowhy_stack::workload::WriteState;

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
    /// Time to lay out the files; not part of the run.
    pub set_up: Duration,
    /// The harness's own cost for each call: a run of the null engine with the same stream, ns; none if it was not
    /// measured.
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

/// Results of one thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadOutcome {
    /// Calls, and when it began and ended, as the simulator has it.
    pub totals: ThreadTotals,
    /// Latencies of reads, writes, syncs and trims.
    pub latency: [Latency; 4],
    /// The same of reads (0) and writes (1) by I/O priority, if calls have one: completion and whole.
    pub by_priority: BTreeMap<(usize, u16), Latency>,
    /// Its CPU usage.
    pub usage: Usage,
    /// Counts, one for each [`Plan::sample`](crate::Plan) (the last may be shorter).
    pub samples: Vec<Sample>,
    /// Calls by the number in flight when they began, themselves included: 1, 2, 4, 8, 16, 32, 64 or more.
    pub depths: [u64; 7],
    /// Calls handed in with one system call: 0, 1..4, ..8, ..16, ..32, ..64, more.
    pub submitted: [u64; 7],
    /// Completions taken at once, in the same classes.
    pub completed: [u64; 7],
    /// Calls that moved fewer bytes than asked for.
    pub short: u64,
    /// Errors, in order; at most [`MAX_ERRORS`] are kept, `nr_errors` counts all.
    pub errors: Vec<CallError>,
    /// How many calls failed.
    pub nr_errors: u64,
    /// An error that is not forgiven has ended it.
    pub failed: bool,
    /// Blocks whose data were checked.
    pub verified: u64,
    /// Its last writes, if data are checked.
    pub state: WriteState,
    /// Every call, if the plan asked for it.
    pub calls: Vec<CallRecord>,
    /// Nothing is counted before, from the start of the run.
    pub warm_at: Nanos,
    /// How steady it was, if it was to end for that.
    pub steady: Option<Steadiness>,
    /// The depth that was looked for; 0 if none was.
    pub found_depth: u32,
    /// Number of the thread in the system.
    pub tid: u32,
    /// Requested features that were not available (polling, registered buffers, ...), in words.
    pub notes: Vec<String>,
}

impl ThreadOutcome {
    /// An error that is not one of a call of its own.
    pub(crate) fn fail(&mut self, op: Op, errno: i32, message: String) {
        self.nr_errors += 1;
        self.failed = true;
        if self.errors.len() < MAX_ERRORS {
            let at = self.totals.end;
            self.errors.push(CallError { file: 0, op, offset: 0, len_bytes: 0, at, errno, message });
        }
    }
}

/// The last looks at a thread, or at its reporting group, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steadiness {
    /// It was steady, and was ended.
    pub attained: bool,
    /// The value that was judged last: a second, or percent.
    pub criterion: f64,
    /// The slope, a second; 0 if it is not judged.
    pub slope: f64,
    /// The largest distance from the mean; 0 if it is not judged.
    pub deviation: f64,
    /// Calls a second.
    pub calls: Vec<u64>,
    /// Bytes a second.
    pub bytes: Vec<u64>,
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
    /// The whole, from when it began, of calls with a rate: they may begin after they were due.
    pub begun: Histogram,
    /// Sum of squares of each of the four, for standard deviations.
    pub squares: [f64; 4],
}

/// Resource usage of a thread (`getrusage(RUSAGE_THREAD)`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time in user mode.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
    /// Context switches because it waited.
    pub voluntary: u64,
    /// Context switches because another task had to run.
    pub involuntary: u64,
    /// Page faults served without I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
}

/// Counts of a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Its end, from the start of the run.
    pub end: Nanos,
    pub length: Nanos,
    pub counts: Counts,
    /// Latencies of its calls, ns, if the plan asked for them.
    pub latency: Histogram,
}

/// A call that failed, or data that are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// The file's number.
    pub file: u32,
    pub op: Op,
    /// From which byte.
    pub offset: u64,
    /// How many bytes.
    pub len_bytes: u32,
    /// Its time, from the start of the run.
    pub at: Nanos,
    /// Error number of the system; 0 if data did not match.
    pub errno: i32,
    /// In words; for data: the place, the expected and the found value.
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
    pub op: Op,
    /// On which file.
    pub file: u32,
    /// From which byte.
    pub offset: u64,
    /// How many bytes were asked for.
    pub len_bytes: u32,
}
