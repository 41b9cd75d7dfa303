//! Work of a run: files, and the settings of each thread that a job of the simulator does not have.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use iowhy_stack::job::Job;
use iowhy_stack::units::Nanos;

/// A run on the running kernel.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Threads and their calls. Its files are those of `files`, in the same order; of its `ThreadSpec`s everything
    /// counts but what only a simulator needs (`startup_seeks`, processes: all threads are in this process).
    pub job: Job,
    /// Where the files of the job are.
    pub files: Vec<File>,
    /// Further settings of each thread of the job.
    pub threads: Vec<Thread>,
    /// Length of the samples of bandwidth and IOPS.
    pub sample: Duration,
    /// Contents of the page cache when the clock starts.
    pub cache: Cache,
    /// Permission to write besides the run's own files.
    pub allow: Allow,
}

/// The user's permission to write; see [`guard`](crate::guard).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    /// Devices and files that may be written whatever they hold (`--allow-write=/dev/loop7`).
    pub write: Vec<PathBuf>,
    /// The directory of the job: nothing outside is written. `None` if each file was named with its own.
    pub directory: Option<PathBuf>,
}

/// A file or a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub path: PathBuf,
    /// It may be made, or made longer, before the run.
    pub may_create: bool,
    /// It is removed after the run if the run made it.
    pub remove: bool,
    /// Its blocks are reserved in one piece before it is filled, where the file system can do that (fio's `fallocate`);
    /// else they are allocated as it grows.
    pub reserve: bool,
    /// Existing files are written whatever they hold, as sysbench does with the files of its own names.
    pub as_found: bool,
}

/// The state of the page cache at the start, as far as the files of the job are concerned.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// As it is.
    #[default]
    AsFound,
    /// Clean pages of the files are dropped first (`POSIX_FADV_DONTNEED`, after a sync of the file).
    Cold,
    /// The files are read from end to end first.
    Warm,
}

/// Data of writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fill {
    /// One buffer of random bytes, a little of it changed with each write (fio's `scramble_buffers`).
    #[default]
    Scrambled,
    /// The same random bytes each time.
    Same,
    Zeroes,
    /// New random bytes with each write (fio's `refill_buffers`).
    Fresh,
    /// New data with each write that can be compressed, or repeat earlier ones.
    Made(Arc<Content>),
    /// The data that [`Verify`] needs.
    Checked,
    /// Data with a sum behind them ([`validate`](crate::validate)), which reads are held to.
    Summed,
}

/// Properties of written data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Length of a chunk, bytes.
    pub chunk_bytes: u32,
    /// Chunks that are equal to an earlier one, percent.
    pub repeats: u8,
    /// Number of chunks that these are drawn from; 0 for the last new one.
    pub drawn_from: u64,
    /// All threads draw from the same chunks.
    pub shared: bool,
    /// Part of a chunk that has the pattern, percent.
    pub pattern_percent: u8,
    /// Zeroes without one.
    pub pattern: Option<Arc<[u8]>>,
}

impl Content {
    /// Every write has the same data.
    pub(crate) fn is_constant(&self) -> bool {
        self.pattern_percent == 100 && self.pattern.is_some() && self.repeats == 0
    }
}

/// Checking of data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verify {
    /// Which sum the header of each block carries.
    pub sum: Sum,
    /// Bytes between two headers; 0 for one to a call.
    pub interval_bytes: u32,
    /// Place of header and sum in their block.
    pub at_bytes: u32,
    /// The data, if not drawn.
    pub pattern: Option<Pattern>,
    /// The first mismatch ends the thread.
    pub fatal: bool,
}

/// A pattern that data repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    pub bytes: Arc<[u8]>,
    /// Where in it the offset of the call stands, eight bytes each.
    pub offsets: Arc<[usize]>,
}

/// Sums over a block, as fio names them.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Sum {
    #[default]
    Crc32c,
    Crc7,
    Crc16,
    /// From the highest bit down, starting at 0.
    Crc32,
    Crc64,
    Md5,
    Sha1,
    Sha256,
    Sha512,
    /// With this number of bytes.
    Sha3(u8),
    /// XXH32.
    Xxhash,
    /// The header alone.
    Header,
    /// The header before a pattern.
    PatternHeader,
    /// A pattern without a header.
    Pattern,
    /// Nothing is written or checked: reads are made only.
    Null,
}

/// Settings of a thread of a live run besides its `ThreadSpec` and stream.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Name of its engine in [`ENGINES`](crate::engine::ENGINES).
    pub engine: &'static str,
    /// Calls are made by threads of their own, one for each in flight.
    pub offload: bool,
    /// Calls in flight at most; 1 for synchronous engines that the thread itself uses.
    pub depth: u32,
    /// Calls handed in with one system call at most.
    pub batch_submit: u32,
    /// Completions waited for at least when the depth is reached, and taken at most (0: as many as there are).
    pub batch_complete: (u32, u32),
    /// io_uring: buffers registered with the ring.
    pub fixed_buffers: bool,
    /// io_uring: files registered with the ring.
    pub registered_files: bool,
    /// io_uring, pvsync2: completions are polled for (`IORING_SETUP_IOPOLL`, `RWF_HIPRI`).
    pub poll: bool,
    /// io_uring: a thread of the kernel hands calls in, on this CPU if one is named (`IORING_SETUP_SQPOLL`).
    pub kernel_thread: Option<Option<u32>>,
    /// libaio, io_uring: I/O priorities of calls, for reads and for writes; those without one have the thread's.
    pub priorities: [Vec<Priority>; 2],
    /// Files are opened with `O_SYNC` or `O_DSYNC`.
    pub open_sync: Option<OpenSync>,
    pub fill: Fill,
    /// Alignment of buffers.
    pub align: u32,
    /// Data are checked.
    pub verify: Option<Verify>,
    /// Latencies are kept with each sample.
    pub sample_latency: bool,
    /// Completions are taken only when the depth is reached, and at the end.
    pub when_full: bool,
    /// A call that overlaps with one in flight is handed in when that has ended.
    pub one_by_place: bool,
    /// Every call is kept in [`ThreadOutcome::calls`](crate::outcome::ThreadOutcome::calls).
    pub keep_calls: bool,
    /// Submission and completion are measured apart (else only the whole).
    pub split_latency: bool,
    /// Errors that do not end the thread: of reads, and of other calls.
    pub forgives: [Vec<i32>; 2],
    /// CPUs it may run on; empty for all.
    pub cpus: Vec<usize>,
    /// Its priorities, if not those that it is started with: niceness, and that of its I/O as `ioprio_set` has it.
    pub nice: Option<i32>,
    pub io_priority: Option<u16>,
    /// Calls in flight at which a full queue is filled again; 0 for one less than the depth.
    pub depth_low: u32,
    /// Calls that end within this time from the thread's begin do not count; the warm-up of the job is another one,
    /// from the begin of the group.
    pub warmup: Nanos,
    /// Its end, and its share, among others.
    pub terms: Terms,
    /// A depth to look for.
    pub search: Option<Search>,
    /// A call that takes longer ends the thread with an error; zero for no limit.
    pub max_latency: Nanos,
}

/// When a thread ends besides at the end of its calls, which others end with it, and its share of their calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    /// Number of its reporting group.
    pub group: u32,
    /// Threads that end when it has ended.
    pub ends: Ends,
    /// Threads that end after an error of it.
    pub error_ends: Ends,
    /// Threads that end before it begins, by number.
    pub after: Vec<u32>,
    pub flow: Option<Flow>,
    pub least: Option<Least>,
    pub steady: Option<Steady>,
}

/// Threads that end with another.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Ends {
    #[default]
    None,
    /// Those of its reporting group.
    Group,
    /// Those that have begun.
    Running,
    All,
}

/// Calls shared among threads that run at the same time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Threads with equal numbers share.
    pub number: u32,
    pub weight: u32,
    /// Pause of a thread that is ahead; zero: it asks again and again.
    pub sleep: Nanos,
}

/// A speed below which a thread is ended; reads and writes, 0 for none.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Least {
    /// Calls a second.
    pub calls: [u64; 2],
    /// Bytes a second.
    pub bytes: [u64; 2],
    /// Time over which they are measured.
    pub cycle: Nanos,
}

/// The quantity that has to be steady.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Calls a second.
    Calls,
    /// Bytes a second.
    Bytes,
}

/// Steadiness that ends a thread.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Steady {
    pub measure: Measure,
    /// The slope of the line through the window is judged, a second; else the largest distance from its mean.
    pub slope: bool,
    /// It is taken as percent of the mean.
    pub percent: bool,
    /// It has to be below.
    pub limit: f64,
    /// Looks in the window, one a second.
    pub looks: u32,
    /// Time before the first look counts.
    pub ramp: Nanos,
    /// Threads of a reporting group are judged together.
    pub together: bool,
}

/// The search for the depth that keeps latencies below a target.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Search {
    pub target: Nanos,
    /// Time for which a depth is tried.
    pub window: Nanos,
    /// Part of the calls that must be as fast, percent.
    pub percent: f64,
    /// The thread goes on with the depth it has found.
    pub goes_on: bool,
}

/// An I/O priority that some calls have.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Priority {
    /// Only calls of that length; 0 for all.
    pub len_bytes: u32,
    /// How many of them.
    pub percent: u32,
    /// Class and level as `ioprio_set` has them.
    pub value: u16,
}

/// Flags for opening.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum OpenSync {
    /// `O_SYNC`.
    Sync,
    /// `O_DSYNC`.
    Dsync,
}

impl Default for Thread {
    fn default() -> Thread {
        Thread {
            engine: "psync",
            offload: false,
            depth: 1,
            batch_submit: 1,
            batch_complete: (1, 0),
            fixed_buffers: false,
            registered_files: false,
            poll: false,
            kernel_thread: None,
            priorities: Default::default(),
            open_sync: None,
            fill: Fill::Scrambled,
            align: 4096,
            verify: None,
            sample_latency: false,
            when_full: false,
            one_by_place: false,
            keep_calls: false,
            split_latency: true,
            forgives: Default::default(),
            cpus: Vec::new(),
            nice: None,
            io_priority: None,
            depth_low: 0,
            warmup: Nanos::ZERO,
            terms: Terms::default(),
            search: None,
            max_latency: Nanos::ZERO,
        }
    }
}
