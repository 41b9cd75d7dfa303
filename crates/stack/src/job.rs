//! Jobs: everything about a run that is not the stack. Threads, files, and the state of the page cache.

use serde::Serialize;

use crate::event::Op;
use crate::origin::{Entry, Origin};
use crate::rng::Rng;
use crate::units::{Nanos, PAGE_BYTES, PAGE_SECTORS, Sector};
use crate::workload::{
    FileIo, FileIoGenerator, Generator, How, ReadBack, ReadingBack, Scripted, Stream, StreamGenerator, Target,
};

/// Contents of the page cache when the clock starts.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub enum CacheStart {
    /// Nothing.
    Cold,
    /// The last bytes written by the preparation of the files, as many as given (clipped to what memory holds),
    /// clean; the blocks that map them too.
    Tail {
        /// Bytes at the end of the last files.
        bytes: u64,
    },
}

/// Where the blocks of a file are.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Place {
    /// In the file system, laid out behind the files before it.
    FileSystem,
    /// On the bare device (the device node itself, or a partition), from this sector on.
    Device {
        /// First sector.
        start: Sector,
    },
}

/// A file of the workload.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileSpec {
    /// Its size.
    pub bytes: u64,
    /// Where it is.
    pub place: Place,
}

/// Blocks of a file of the file system that lie together elsewhere than its layout has them.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Extent {
    /// Which file.
    pub file: u32,
    /// Its first page in it, and how many.
    pub page: u64,
    pub nr_pages: u64,
    /// Where that page is.
    pub sector: Sector,
}

/// Limits of the workload's control group (blkio.throttle, io.max): bytes and requests a second, of reads and of
/// writes; 0 for none.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Throttle {
    pub bytes: [u64; 2],
    pub bios: [u64; 2],
}

/// How a thread makes its calls.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Engine {
    /// One after the other (`read`, `pread`, `readv` and their like).
    Sync,
    /// Several in flight (`libaio`). Buffered calls and syncs are carried out as they are submitted.
    Aio {
        /// Calls in flight at most.
        depth: u32,
        /// Calls handed in with one system call, at most.
        batch_submit: u32,
        /// Completions waited for when the depth is reached.
        batch_complete: u32,
    },
    /// The same with a ring (`io_uring`): reads of files that cannot be asked without waiting are carried out by
    /// workers.
    Ring {
        /// Calls in flight at most.
        depth: u32,
        /// Calls handed in with one system call, at most.
        batch_submit: u32,
        /// Completions waited for when the depth is reached.
        batch_complete: u32,
    },
    /// Through a mapping of the file: reads and writes are touches of pages.
    Mmap,
    /// Calls are counted and not made.
    Null,
}

const fn engine(
    name: &'static str,
    summary: &'static str,
    origin: &'static [Origin],
    conformance: &'static str,
    build: Engine,
) -> Entry<Engine> {
    Entry { name, summary, origin, options: &[], conformance, build }
}

/// Every engine, with its defaults.
pub const ENGINES: &[&Entry<Engine>] = &[
    &engine(
        "simulated-sync",
        "one call after the other: read, pread, readv and their like",
        &[Origin { kernels: "any", file: "mm/filemap.c", function: "the read and write paths", notes: "" }],
        "read-ahead's golden vectors; conservation tests of the simulator",
        Engine::Sync,
    ),
    &engine(
        "simulated-aio",
        "several calls in flight: libaio; buffered calls are carried out as they are submitted",
        &[Origin { kernels: "2.6 and later", file: "fs/aio.c", function: "io_submit, io_getevents", notes: "" }],
        "conservation tests of the simulator",
        Engine::Aio { depth: 1, batch_submit: 1, batch_complete: 1 },
    ),
    &engine(
        "simulated-ring",
        "several calls in flight: io_uring; reads that would have to wait, or cannot be tried, go to worker threads",
        &[Origin {
            kernels: "5.1 and later",
            file: "io_uring/rw.c, io_uring/io-wq.c",
            function: "io_read, io_wq_enqueue",
            notes: "read in 6.6 and 6.10",
        }],
        "conservation tests of the simulator",
        Engine::Ring { depth: 1, batch_submit: 1, batch_complete: 1 },
    ),
    &engine(
        "simulated-mmap",
        "touches of the pages of a shared mapping of each file",
        &[Origin { kernels: "any", file: "mm/filemap.c, mm/memory.c", function: "filemap_fault", notes: "" }],
        "golden vectors of faults; conservation tests of the simulator",
        Engine::Mmap,
    ),
    &engine(
        "simulated-null",
        "calls are done at once and nothing happens",
        &[Origin { kernels: "any", file: "engines/null.c", function: "fio_null_queue", notes: "no kernel code" }],
        "the same calls as the running kernel's null engine",
        Engine::Null,
    ),
];

/// A program's advice on a file it has opened (`posix_fadvise`).
pub use crate::readahead::Advice;

/// One thread of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadSpec {
    /// Its process (thread group).
    pub process: u32,
    /// Which line of the report it belongs to.
    pub job: u32,
    /// Groups run one after the other: it starts when all threads of earlier groups have ended.
    pub group: u32,
    /// Time from the start of its group to its own.
    pub start_delay: Nanos,
    /// How it makes calls.
    pub engine: Engine,
    /// Past the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Number of its set of descriptors: threads with the same number share open files.
    pub descriptors: u32,
    /// The program's own work for each call, if not the machine's `tool_ns`.
    pub tool: Option<Nanos>,
    /// Long seeks on this device that the start of the program has cost (loading its binary from a dropped cache);
    /// schedulers that keep a history count them.
    pub startup_seeks: u32,
    /// It is outside of the workload's control group, whose limits do not hold for it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stranger: bool,
    /// Said about each of its files after opening it.
    pub advice: Option<Advice>,
    /// The clean cached pages of its files are dropped when it starts (`POSIX_FADV_DONTNEED`; mapped ones too, which
    /// the kernel would keep).
    pub invalidate: bool,
}

impl ThreadSpec {
    /// A synchronous, buffered thread of process `process` with descriptors of its own.
    pub fn new(process: u32) -> ThreadSpec {
        ThreadSpec {
            process,
            job: 0,
            group: 0,
            start_delay: Nanos::ZERO,
            engine: Engine::Sync,
            direct: false,
            descriptors: process,
            tool: None,
            startup_seeks: 0,
            stranger: false,
            advice: None,
            invalidate: false,
        }
    }
}

/// A thread and what it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadJob {
    pub spec: ThreadSpec,
    pub stream: Stream,
}

/// The program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Workload {
    /// sysbench fileio.
    FileIo(FileIo),
    /// Threads with a stream of calls each.
    Threads {
        /// Files they work on.
        files: Vec<FileSpec>,
        threads: Vec<ThreadJob>,
    },
}

impl Workload {
    pub fn files(&self) -> Vec<FileSpec> {
        match self {
            Workload::FileIo(fileio) => {
                let file = FileSpec { bytes: fileio.file_bytes(), place: Place::FileSystem };
                vec![file; fileio.nr_files as usize]
            }
            Workload::Threads { files, .. } => files.clone(),
        }
    }

    pub fn threads(&self) -> Vec<ThreadSpec> {
        match self {
            Workload::FileIo(fileio) => (0..fileio.threads)
                .map(|thread| ThreadSpec {
                    process: if fileio.linux_threads { thread } else { 0 },
                    descriptors: if fileio.own_descriptors { thread } else { 0 },
                    direct: fileio.direct,
                    engine: match fileio.in_flight {
                        0 | 1 => Engine::Sync,
                        depth => Engine::Aio { depth, batch_submit: 1, batch_complete: 1 },
                    },
                    ..ThreadSpec::new(0)
                })
                .collect(),
            Workload::Threads { threads, .. } => threads.iter().map(|thread| thread.spec.clone()).collect(),
        }
    }

    /// The files that a thread works on.
    pub fn files_of(&self, thread: u32) -> Vec<u32> {
        match self {
            Workload::FileIo(fileio) => (0..fileio.nr_files).collect(),
            Workload::Threads { threads, .. } => {
                let stream = &threads[thread as usize].stream;
                let log = stream.log.map(|log| log.target);
                let mut files: Vec<u32> = stream.targets.iter().copied().chain(log).map(|target| target.file).collect();
                files.sort_unstable();
                files.dedup();
                files
            }
        }
    }

    /// Sets of descriptors.
    pub fn nr_descriptors(&self) -> usize {
        let of_threads = self.threads().iter().map(|thread| thread.descriptors).max();
        let Workload::Threads { threads, .. } = self else { return of_threads.map_or(1, |last| last as usize + 1) };
        let steps = threads.iter().filter_map(|thread| thread.stream.script.as_deref()).flatten();
        let of_calls = steps.filter_map(|step| step.call.how.map(|how: How| how.descriptors)).max();
        of_threads.max(of_calls).map_or(1, |last| last as usize + 1)
    }

    /// The generator of its calls.
    pub fn generator(&self, seed: u64) -> Box<dyn Generator> {
        match self {
            Workload::FileIo(fileio) => Box::new(FileIoGenerator::new(fileio.clone(), seed)),
            Workload::Threads { threads, .. } => {
                let streams = threads.iter().map(|thread| thread.stream.clone()).collect();
                let calls = StreamGenerator::new(streams, seed);
                let backs: Vec<_> = threads.iter().map(|thread| ReadBack::of(&thread.stream)).collect();
                if backs.iter().all(Option::is_none) {
                    return Box::new(calls);
                }
                Box::new(ReadingBack::new(calls, backs))
            }
        }
    }
}

/// The device manager's (udev) reaction when a descriptor of the device that was open for writing is closed: it has a
/// probe (blkid) read a few pages at both ends through the page cache.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// Time from the close to the probe's open: uniform between these.
    pub delay: (Nanos, Nanos),
    /// Pages read at the start of the device.
    pub first_pages: u32,
    /// Pages read at its end.
    pub last_pages: u32,
}

/// How the program avoids that two of its threads open the same device at once.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum OpenFix {
    /// Not at all: look up the name, open, add the name; a task that finds it added meanwhile closes and opens again.
    None,
    /// One lock over look-up, open and add.
    Serialise,
    /// A task that finds the name already there drops the device's cached pages once more.
    InvalidateWhenFound,
    /// Threads start only after the probe that the look at the device's size set off has gone.
    WaitForProbe,
}

/// How a multi-threaded program opens a device (fio).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Opening {
    /// The device is opened and closed once before, to learn its size.
    pub size_probe: bool,
    /// Time from that to the start of the threads.
    pub settle: Nanos,
    /// Time between the starts of two threads: uniform up to this.
    pub stagger: Nanos,
    /// Time that one open takes, in which another thread may look up the name.
    pub open: Nanos,
    /// The fix for the race.
    pub fix: OpenFix,
    /// With [`OpenFix::InvalidateWhenFound`]: time from finding the name to the dropping of pages.
    pub found_delay: Nanos,
    /// Cached pages of the device are dropped after opening (`BLKFLSBUF`).
    pub invalidate: bool,
    /// The device manager, if there is one.
    pub probe: Option<Probe>,
}

/// Everything about a run that is not the stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Job {
    /// The program.
    pub workload: Workload,
    /// How it opens the device; `None`: files are open when the clock starts.
    pub opening: Option<Opening>,
    /// Page cache at the start.
    pub cache: CacheStart,
    /// The blocks that map file data to disk are cached at the start.
    pub mapping_cached: bool,
    /// Regions of files that are cached at the start, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cached: Vec<Target>,
    /// Where blocks of files are, in the order of files and pages; a page without one follows the last before it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extents: Vec<Extent>,
    /// Regions of files that have no blocks at the start: a write to a part of such a page reads nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holes: Vec<Target>,
    /// Regions of files whose mappings are executable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub executable: Vec<Target>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Throttle>,
    /// Time before this is not counted in the report.
    pub warmup: Nanos,
    /// Length of a report interval; zero for none.
    pub interval: Nanos,
    /// Regions of the bare device begin up to this number of bytes behind their place, in steps of a page: each by a
    /// draw of its own with the seed, so that runs differ in the relative position of regions under the turning disk.
    pub region_jitter: u64,
    /// Seed of every random stream of the run.
    pub seed: u64,
}

impl Job {
    /// `workload` from a cold cache.
    pub fn new(workload: Workload, seed: u64) -> Job {
        Job {
            workload,
            opening: None,
            cache: CacheStart::Cold,
            mapping_cached: false,
            cached: Vec::new(),
            extents: Vec::new(),
            holes: Vec::new(),
            executable: Vec::new(),
            throttle: None,
            warmup: Nanos::ZERO,
            interval: Nanos::ZERO,
            region_jitter: 0,
            seed,
        }
    }

    /// The files at the places where they are in this run.
    pub fn placed_files(&self) -> Vec<FileSpec> {
        let mut files = self.workload.files();
        let nr_steps = self.region_jitter / PAGE_BYTES + 1;
        let mut rng = Rng::stream(self.seed, "regions");
        for file in &mut files {
            if let Place::Device { start } = &mut file.place {
                start.0 += rng.below(nr_steps) * PAGE_SECTORS;
            }
        }
        files
    }

    /// The sysbench job, if it is one.
    pub fn fileio(&self) -> Option<&FileIo> {
        match &self.workload {
            Workload::FileIo(fileio) => Some(fileio),
            Workload::Threads { .. } => None,
        }
    }

    /// The same, to change it.
    pub fn fileio_mut(&mut self) -> Option<&mut FileIo> {
        match &mut self.workload {
            Workload::FileIo(fileio) => Some(fileio),
            Workload::Threads { .. } => None,
        }
    }

    /// Why the job cannot be run on anything, if it cannot.
    ///
    /// # Errors
    /// The reason, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        let Workload::Threads { files, threads } = &self.workload else { return Ok(()) };
        if threads.is_empty() {
            return Err("the job has no threads".to_owned());
        }
        if files.is_empty() || files.iter().any(|file| file.bytes == 0) {
            return Err("the job has no files, or an empty one".to_owned());
        }
        for (index, ThreadJob { spec, stream }) in threads.iter().enumerate() {
            if stream.targets.is_empty() {
                return Err(format!("thread {index} works on nothing"));
            }
            let log = stream.log.map(|log| log.target);
            for target in stream.targets.iter().copied().chain(log) {
                let fits = files
                    .get(target.file as usize)
                    .is_some_and(|file| target.len_bytes > 0 && target.start + target.len_bytes <= file.bytes);
                if !fits {
                    return Err(format!(
                        "thread {index} works on bytes {} + {} of file {}, which has no such region",
                        target.start, target.len_bytes, target.file
                    ));
                }
            }
            let endless = stream.script.is_none()
                && stream.limit_bytes == 0
                && stream.limit_calls == 0
                && stream.passes == 0
                && stream.max_time == Nanos::ZERO;
            if endless {
                return Err(format!("thread {index} has no end: give it a time, a size or a number of calls"));
            }
            let known = |file: u32| stream.targets.iter().any(|target| target.file == file);
            if stream.script.iter().any(|script| script.iter().any(|step| !known(step.call.file))) {
                return Err(format!("thread {index} has a script with calls on a file that is none of its targets"));
            }
            let unknown = |step: &Scripted| step.after.is_some_and(|after| after.thread as usize >= threads.len());
            if stream.script.iter().any(|script| script.iter().any(unknown)) {
                return Err(format!("thread {index} waits for a thread that the job does not have"));
            }
            if spec.engine == Engine::Mmap && spec.direct {
                return Err(format!("thread {index} cannot read a mapping past the page cache"));
            }
        }
        Ok(())
    }
}

/// Whether an operation moves data.
pub(crate) fn is_data(op: Op) -> bool {
    matches!(op, Op::Read | Op::Write)
}
