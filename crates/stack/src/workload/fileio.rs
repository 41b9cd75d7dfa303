//! sysbench fileio. Its request rules, from the earliest public revision (0.4) and from 1.0:
//! ```text
//! direction   read while (reads + 1) / (writes + 1) < ratio, else write; completed operations of all threads (0.4)
//! or of
//!             this thread (1.0) are counted, so the mix is exact and no dice are thrown
//! position    uniform over the whole set, down to a block; file = position / file size
//! fsync       once something is written, when the number of requests handed out is a multiple of the frequency, the
//! next
//!             requests are syncs of file 0, 1, ... until every file had one; each thread that comes free gets one; the
//!             number does not move and no read or write is handed out meanwhile
//! limit       0.4: requests; 1.0 (since 1.0.15): requests and the syncs of passes
//! end         0.4: after the last request one sync per file is handed out; 1.0: each thread syncs every file, and
//!             the report leaves these out
//! ```
//! Source: sysbench 0.4 and 1.0, `tests/fileio/sb_fileio.c`. Known deviations: the 1.0 random path updates shared
//! counters without a lock; here it is as if it held one.

use serde::Serialize;

use super::draw::exponential;
use super::{Call, Generator, Next};
use crate::event::Op;
use crate::rng::{GlibcRandom, Rng};
use crate::units::Nanos;

/// Access pattern of sysbench fileio (`--file-test-mode`).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Mode {
    /// Sequential write of new files (`seqwr`).
    SeqWrite,
    /// Sequential rewrite (`seqrewr`).
    SeqRewrite,
    /// Sequential read (`seqrd`).
    SeqRead,
    /// Random read (`rndrd`).
    RandomRead,
    /// Random write (`rndwr`).
    RandomWrite,
    /// Random reads and writes (`rndrw`).
    RandomReadWrite,
}

impl Mode {
    /// Names and modes, as typed.
    pub const NAMES: &'static [(&'static str, Mode)] = &[
        ("seqwr", Mode::SeqWrite),
        ("seqrewr", Mode::SeqRewrite),
        ("seqrd", Mode::SeqRead),
        ("rndrd", Mode::RandomRead),
        ("rndwr", Mode::RandomWrite),
        ("rndrw", Mode::RandomReadWrite),
    ];

    /// Whether it reads at all.
    pub fn reads(self) -> bool {
        !self.writes() || self == Mode::RandomReadWrite
    }

    /// Whether it writes at all.
    pub fn writes(self) -> bool {
        !matches!(self, Mode::SeqRead | Mode::RandomRead)
    }
}

/// Whose request rules: the program of 2004 to 2015, or today's.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Dialect {
    /// 0.4: counters over all threads; one final sync per file.
    V0_4,
    /// 1.0: counters per thread; each thread syncs every file at the end.
    V1_0,
}

/// Where random positions come from.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub enum PositionSource {
    /// The C library's `random()`, never seeded: every run sees the same positions (sysbench 0.4 without `--init-rng`).
    GlibcUnseeded,
    /// Our generator, seeded.
    Seeded(u64),
}

/// sysbench fileio: all requests of its command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileIo {
    /// Worker threads (`--threads`).
    pub threads: u32,
    /// Files (`--file-num`).
    pub nr_files: u32,
    /// Bytes in all files together (`--file-total-size`).
    pub total_bytes: u64,
    /// Bytes per request (`--file-block-size`).
    pub block_bytes: u32,
    /// Pattern (`--file-test-mode`).
    pub mode: Mode,
    /// Reads per write, in thousandths (`--file-rw-ratio` 1.5 is 1500).
    pub rw_ratio_milli: u64,
    /// Requests between sync passes; 0 for none (`--file-fsync-freq`).
    pub fsync_freq: u64,
    /// Sync after each write (`--file-fsync-all`).
    pub fsync_all: bool,
    /// Sync at the end (`--file-fsync-end`).
    pub fsync_end: bool,
    /// `Op::Fsync` or `Op::Fdatasync` (`--file-fsync-mode`).
    pub fsync_op: Op,
    /// Files opened O_SYNC or O_DSYNC: each write is followed by this sync within the same call.
    pub synchronous_writes: Option<Op>,
    /// Merge at most this many requests of neighbouring blocks; 0 for none (`--file-merged-requests`).
    pub merged_requests: u32,
    /// Requests to make; 0 for no limit (`--events`).
    pub max_events: u64,
    /// Seconds to run; 0 for no limit (`--time`).
    pub max_time: Nanos,
    /// Events a second to aim at, 0 for as fast as possible (`--rate`).
    pub rate: u64,
    /// Whose rules.
    pub dialect: Dialect,
    /// Where positions come from.
    pub positions: PositionSource,
    /// Each thread opens its own descriptors (the program itself shares one descriptor per file).
    pub own_descriptors: bool,
    /// Each thread is a thread group of its own, as under LinuxThreads.
    pub linux_threads: bool,
    /// Past the page cache (`--file-extra-flags=direct`).
    pub direct: bool,
    /// Calls that one thread keeps in flight (`--file-io-mode=async`); 1 for synchronous.
    pub in_flight: u32,
}

impl FileIo {
    /// Bytes in each file.
    pub fn file_bytes(&self) -> u64 {
        self.total_bytes / u64::from(self.nr_files)
    }
}

/// The generator behind [`FileIo`].
pub struct FileIoGenerator {
    job: FileIo,
    /// Bytes of a file, and of all files: asked for with every request.
    file_bytes: u64,
    total_bytes: u64,
    positions: Positions,
    arrivals: Rng,
    /// Requests handed out, syncs not counted.
    handed_out: u64,
    /// The same with the syncs of passes.
    events: u64,
    reads_done: u64,
    writes_done: u64,
    dirty: bool,
    next_sync: u32,
    final_sync: Option<u32>,
    sequential: (u32, u64),
    threads: Vec<Thread>,
    next_arrival: Nanos,
}

enum Positions {
    Glibc(GlibcRandom),
    Seeded(Rng),
}

#[derive(Copy, Clone, Debug, Default)]
struct Thread {
    reads_done: u64,
    writes_done: u64,
    /// The file just written, if a sync of it must follow.
    owed: Option<u32>,
    /// Files already synced at the end (1.0).
    final_synced: u32,
    /// An arrival that the thread waits for.
    due: Option<Nanos>,
}

impl FileIoGenerator {
    /// A generator at the start of a run.
    ///
    /// # Panics
    /// Without threads or files, or with empty files or blocks: the command line has been checked before.
    pub fn new(job: FileIo, seed: u64) -> FileIoGenerator {
        assert!(job.threads > 0 && job.nr_files > 0 && job.block_bytes > 0 && job.file_bytes() > 0);
        let positions = match job.positions {
            PositionSource::GlibcUnseeded => Positions::Glibc(GlibcRandom::new(1)),
            PositionSource::Seeded(seed) => Positions::Seeded(Rng::stream(seed, "positions")),
        };
        let threads = vec![Thread::default(); job.threads as usize];
        FileIoGenerator {
            positions,
            arrivals: Rng::stream(seed, "arrivals"),
            handed_out: 0,
            events: 0,
            reads_done: 0,
            writes_done: 0,
            dirty: false,
            next_sync: 0,
            final_sync: None,
            sequential: (0, 0),
            threads,
            next_arrival: Nanos::ZERO,
            file_bytes: job.file_bytes(),
            total_bytes: job.file_bytes() * u64::from(job.nr_files),
            job,
        }
    }

    /// Whether the limits still allow another call. Syncs of a pass count as events since 1.0.15, whose own test
    /// makes 150 events on 4 files with a sync pass every 100; before, 150 requests made 158 events.
    fn may_go_on(&self, now: Nanos) -> bool {
        let counted = match self.job.dialect {
            Dialect::V0_4 => self.handed_out,
            Dialect::V1_0 => self.events,
        };
        (self.job.max_events == 0 || counted < self.job.max_events)
            && (self.job.max_time == Nanos::ZERO || now < self.job.max_time)
    }

    fn random_position(&mut self) -> u64 {
        let total = self.total_bytes;
        let position = match &mut self.positions {
            // The program scales the number to the range 0 .. 1 first, in 30 bits.
            Positions::Glibc(random) => {
                let fraction = u64::from(random.next_u31()) % 0x3fff_ffff;
                (u128::from(fraction) * u128::from(total) / 0x3fff_ffff) as u64
            }
            Positions::Seeded(rng) => rng.below(total),
        };
        position - position % u64::from(self.job.block_bytes)
    }

    fn wants_read(&self, thread: u32) -> bool {
        match self.job.mode {
            Mode::SeqRead | Mode::RandomRead => true,
            Mode::SeqWrite | Mode::SeqRewrite | Mode::RandomWrite => false,
            Mode::RandomReadWrite => {
                let (reads, writes) = match self.job.dialect {
                    Dialect::V0_4 => (self.reads_done, self.writes_done),
                    Dialect::V1_0 => {
                        let thread = &self.threads[thread as usize];
                        (thread.reads_done, thread.writes_done)
                    }
                };
                (reads + 1) * 1000 < (writes + 1) * self.job.rw_ratio_milli
            }
        }
    }

    fn sync(&self, file: u32) -> Call {
        Call { op: self.job.fsync_op, file, offset: 0, len_bytes: 0, then: None, counted: true, how: None }
    }

    /// The sync pass in progress, or one that is due.
    fn periodic_sync(&mut self) -> Option<Call> {
        let job = &self.job;
        let due = job.fsync_freq > 0 && !job.fsync_all && self.dirty && self.handed_out.is_multiple_of(job.fsync_freq);
        if !due {
            return None;
        }
        let call = self.sync(self.next_sync);
        self.next_sync += 1;
        if self.next_sync == self.job.nr_files {
            self.next_sync = 0;
            self.dirty = false;
        }
        Some(call)
    }

    fn sequential_position(&mut self) -> (u32, u64, u32) {
        let (file, offset) = self.sequential;
        let size = self.file_bytes;
        let len = u64::from(self.job.block_bytes).min(size - offset);
        let end = offset + len;
        self.sequential = if end < size { (file, end) } else { ((file + 1) % self.job.nr_files, 0) };
        (file, offset, len as u32)
    }

    fn data_call(&mut self, thread: u32) -> Call {
        let op = if self.wants_read(thread) { Op::Read } else { Op::Write };
        let (file, offset, len_bytes) = match self.job.mode {
            Mode::SeqWrite | Mode::SeqRewrite | Mode::SeqRead => {
                let (file, offset, mut len) = self.sequential_position();
                // Neighbouring requests become one call as long as they stay in the file.
                for _ in 1..self.job.merged_requests {
                    if self.sequential.0 != file || self.sequential.1 == 0 {
                        break;
                    }
                    len += self.sequential_position().2;
                }
                (file, offset, len)
            }
            Mode::RandomRead | Mode::RandomWrite | Mode::RandomReadWrite => {
                let position = self.random_position();
                let size = self.file_bytes;
                let offset = position % size;
                let len = u64::from(self.job.block_bytes).min(size - offset);
                ((position / size) as u32, offset, len as u32)
            }
        };
        let mut then = None;
        if op == Op::Write {
            self.dirty = true;
            then = self.job.synchronous_writes;
            if self.job.fsync_all {
                self.threads[thread as usize].owed = Some(file);
            }
        }
        self.handed_out += 1;
        Call { op, file, offset, len_bytes, then, counted: true, how: None }
    }

    /// The sync at the end of the run, if this thread has one left to do.
    fn final_sync(&mut self, thread: u32) -> Option<Call> {
        if !self.job.fsync_end || !self.job.mode.writes() {
            return None;
        }
        let nr_files = self.job.nr_files;
        let file = match self.job.dialect {
            Dialect::V0_4 => self.final_sync.get_or_insert(0),
            Dialect::V1_0 => &mut self.threads[thread as usize].final_synced,
        };
        if *file == nr_files {
            return None;
        }
        let this = *file;
        *file += 1;
        Some(Call { counted: self.job.dialect == Dialect::V0_4, ..self.sync(this) })
    }

    /// The time to the next arrival.
    fn gap(&mut self) -> Nanos {
        exponential(&mut self.arrivals, Nanos(1_000_000_000 / self.job.rate.max(1)))
    }
}

impl Generator for FileIoGenerator {
    fn next(&mut self, thread: u32, now: Nanos) -> Next {
        let slot = thread as usize;
        if let Some(file) = self.threads[slot].owed.take() {
            return Next::Do { call: self.sync(file), intended: now };
        }
        if !self.may_go_on(now) {
            return match self.final_sync(thread) {
                Some(call) => Next::Do { call, intended: now },
                None => Next::Done,
            };
        }
        let mut intended = now;
        if self.job.rate > 0 {
            let due = match self.threads[slot].due {
                Some(due) => due,
                None => {
                    let gap = self.gap();
                    self.next_arrival += gap;
                    self.next_arrival
                }
            };
            if due > now {
                self.threads[slot].due = Some(due);
                return Next::At(due);
            }
            self.threads[slot].due = None;
            intended = due;
        }
        self.events += 1;
        let call = match self.periodic_sync() {
            Some(call) => call,
            None => self.data_call(thread),
        };
        Next::Do { call, intended }
    }

    fn completed(&mut self, thread: u32, call: &Call, _now: Nanos) {
        let own = &mut self.threads[thread as usize];
        match call.op {
            Op::Read => {
                self.reads_done += 1;
                own.reads_done += 1;
            }
            Op::Write => {
                self.writes_done += 1;
                own.writes_done += 1;
            }
            Op::Fsync | Op::Fdatasync | Op::Trim => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> FileIo {
        FileIo {
            threads: 1,
            nr_files: 4,
            total_bytes: 4 << 20,
            block_bytes: 16384,
            mode: Mode::RandomReadWrite,
            rw_ratio_milli: 1500,
            fsync_freq: 10,
            fsync_all: false,
            fsync_end: true,
            fsync_op: Op::Fsync,
            synchronous_writes: None,
            merged_requests: 0,
            max_events: 20,
            max_time: Nanos::ZERO,
            rate: 0,
            dialect: Dialect::V0_4,
            positions: PositionSource::Seeded(1),
            own_descriptors: false,
            linux_threads: false,
            direct: false,
            in_flight: 1,
        }
    }

    /// One letter a call: r, w, or the file number of a sync.
    fn story(job: FileIo) -> String {
        let mut generator = FileIoGenerator::new(job, 1);
        let mut story = String::new();
        while let Next::Do { call, .. } = generator.next(0, Nanos::ZERO) {
            story.push(match call.op {
                Op::Read => 'r',
                Op::Write => 'w',
                Op::Fsync | Op::Fdatasync | Op::Trim => char::from_digit(call.file, 10).expect("few files"),
            });
            generator.completed(0, &call, Nanos::ZERO);
        }
        story
    }

    #[test]
    fn the_mix_is_exact_and_sync_passes_interrupt_it() {
        assert_eq!(story(job()), "rwrwrrwrwr0123rwrwrrwrwr0123");
    }

    #[test]
    fn reads_need_no_sync_at_the_end() {
        assert_eq!(story(FileIo { mode: Mode::RandomRead, max_events: 3, ..job() }), "rrr");
    }

    #[test]
    fn each_write_is_synced_if_asked() {
        let all = FileIo { mode: Mode::SeqWrite, fsync_all: true, max_events: 2, fsync_end: false, ..job() };
        assert_eq!(story(all), "w0w0");
    }

    #[test]
    fn sysbenchs_own_test_of_150_events_makes_146_requests_and_one_pass() {
        let job = FileIo { dialect: Dialect::V1_0, fsync_freq: 100, max_events: 150, ..job() };
        let story = story(job);
        let requests = story.chars().filter(char::is_ascii_alphabetic).count();
        // The four calls after that are the last syncs, which the report leaves out.
        assert_eq!((requests, story.len()), (146, 154));
    }

    #[test]
    fn sequential_requests_walk_file_by_file_and_merge_within_a_file() {
        let job = FileIo { mode: Mode::SeqRead, max_events: 70, total_bytes: 4 << 20, merged_requests: 4, ..job() };
        let mut generator = FileIoGenerator::new(job, 1);
        let mut calls = Vec::new();
        while let Next::Do { call, .. } = generator.next(0, Nanos::ZERO) {
            calls.push((call.file, call.offset, call.len_bytes));
            generator.completed(0, &call, Nanos::ZERO);
        }
        assert_eq!(calls[0], (0, 0, 65536));
        assert_eq!(calls[15], (0, 15 * 65536, 65536));
        assert_eq!(calls[16], (1, 0, 65536));
        assert_eq!(calls[64], (0, 0, 65536));
    }

    #[test]
    fn arrivals_keep_the_rate_in_the_mean() {
        let job = FileIo { rate: 1000, ..job() };
        let mut generator = FileIoGenerator::new(job, 3);
        let total: u64 = (0..20_000).map(|_| generator.gap().0).sum();
        let mean_us = total / 20_000 / 1000;
        assert!((980..=1020).contains(&mean_us), "mean gap {mean_us} us instead of 1000");
    }
}
