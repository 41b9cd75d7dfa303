//! The simulator: turns the policies' cranks.
//!
//! Threads of the program, the journal's daemon and the writeback daemon are tasks, written as `async` functions and
//! polled by hand: a task runs until it must wait for time, for a CPU or for another task, and the end of the wait puts
//! it on the run queue. No executor, no threads, no wakers; the order of everything is that of the event queue.
//!
//! A running task goes ahead without the event queue as long as nothing else is due before it is done, which is what
//! makes cached reads cheap. CPU time is charged to a debt that is settled before anything that others can see.
//!
//! Modelled: buffered, mapped and direct reads and writes and syncs of existing files and of the bare device, one by
//! one or many in flight, their page cache, faults, read-ahead, journal, writeback, plug, elevator and device; the
//! opening of a device by several threads and the device manager's reaction. Not modelled: the CPU's own caches, NUMA,
//! preemption inside a system call, several devices.

mod aio;
mod direct;
mod journal;
mod mmap;
mod open;
mod read;
mod tasks;
mod vfs;
mod workers;
mod write;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::block::io_max::{self, IoMax};
use crate::block::rules::QueueRules;
use crate::block::{BlockQueue, QueueLimits, Submitted, Wakeup};
use crate::direct_io;
use crate::event::{CallId, Content, Dir, EventSink, FileId, Op, UnplugCause, What};
use crate::fault;
use crate::filesystem;
use crate::histogram::Histogram;
use crate::job::{CacheStart, Engine, Place, ThreadSpec, is_data};
use crate::machine::Machine;
use crate::outcome::{Counts, Interval, JobTotals, Outcome, Plan, RunError, ThreadTotals};
use crate::plug::Plugging;
use crate::queue::EventQueue;
use crate::readahead::{Advice, Limits};
use crate::record::Recorder;
use crate::request::{Bio, BioId, IoClass, IoContext};
use crate::rng::Rng;
use crate::units::{Hz, Nanos, PAGE_BYTES, PAGE_SECTORS, PageIndex, SECTOR_BYTES, Sector};
use crate::workload::{Call, Generator, Next, Path, Target, WOKEN};
use crate::writeback;

use journal::Journal;
use tasks::{Sched, TaskId};
use vfs::Vfs;
use workers::{Tried, Workers};

/// Something that is due.
#[derive(Copy, Clone, Debug)]
enum Due {
    /// A task goes on: it has a CPU.
    Resume(TaskId),
    /// A sleeping task's time has come, unless it was woken since.
    Timeout(TaskId, u32),
    /// The request queue asked for it.
    Block(Wakeup),
}

/// Most happenings in one run, so that none is endless: more than any sensible job needs.
const MAX_HAPPENINGS: u64 = 1 << 31;

/// Daemons tick for ever: if no call has begun or ended for this long, none will.
const MAX_STANDSTILL: Nanos = Nanos::from_secs(24 * 3600);

/// Pieces of memory in one bio.
const BIO_MAX_PAGES: u64 = 256;

/// The meaning of a bio's end for its submitter.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Done {
    /// Pages have been read.
    Read { file: FileId, page: PageIndex },
    /// Pages have been written.
    Write { file: FileId, page: PageIndex },
    /// A mapping block has been read.
    Mapping { file: FileId, block: u32 },
    /// One of the bios a task waits for.
    Counted(u32),
    /// Nobody waits for this one.
    Nothing,
}

impl Done {
    fn token(self) -> u64 {
        let pack = |kind: u64, high: u32, low: u64| {
            assert!(high < 1 << 22 && low < 1 << 40, "a file number or page beyond what a token holds");
            kind << 62 | u64::from(high) << 40 | low
        };
        match self {
            Done::Read { file, page } => pack(0, file.0, page.0),
            Done::Write { file, page } => pack(1, file.0, page.0),
            Done::Mapping { file, block } => pack(2, file.0, u64::from(block)),
            Done::Counted(slot) => pack(3, 0, u64::from(slot)),
            Done::Nothing => pack(3, 1, 0),
        }
    }

    fn from_token(token: u64) -> Done {
        let file = FileId((token >> 40) as u32 & ((1 << 22) - 1));
        let low = token & ((1 << 40) - 1);
        match token >> 62 {
            0 => Done::Read { file, page: PageIndex(low) },
            1 => Done::Write { file, page: PageIndex(low) },
            2 => Done::Mapping { file, block: low as u32 },
            _ if file.0 > 0 => Done::Nothing,
            _ => Done::Counted(low as u32),
        }
    }
}

/// Counters of the program's report.
struct Report {
    generator: Box<dyn Generator>,
    warmup: Nanos,
    interval: Nanos,
    counts: Counts,
    latency: Histogram,
    threads: Vec<ThreadTotals>,
    jobs: Vec<JobTotals>,
    intervals: Vec<Interval>,
    interval_counts: Counts,
    interval_latency: Histogram,
    next_call: u32,
    running: u32,
    end: Nanos,
}

impl Report {
    fn new(plan: &Plan, threads: &[ThreadSpec]) -> Report {
        let nr_jobs = threads.iter().map(|thread| thread.job + 1).max().unwrap_or(0);
        Report {
            generator: plan.job.workload.generator(plan.job.seed),
            warmup: plan.job.warmup,
            interval: plan.job.interval,
            counts: Counts::default(),
            latency: Histogram::default(),
            threads: vec![ThreadTotals::default(); threads.len()],
            jobs: vec![JobTotals::default(); nr_jobs as usize],
            intervals: Vec::new(),
            interval_counts: Counts::default(),
            interval_latency: Histogram::default(),
            next_call: 1,
            running: threads.len() as u32,
            end: Nanos::ZERO,
        }
    }

    fn close_intervals(&mut self, now: Nanos) {
        while self.interval > Nanos::ZERO && now >= self.interval * (self.intervals.len() as u64 + 1) {
            let end = self.interval * (self.intervals.len() as u64 + 1);
            let counts = std::mem::take(&mut self.interval_counts);
            let latency = std::mem::take(&mut self.interval_latency);
            self.intervals.push(Interval { end, counts, latency });
        }
    }

    fn completed(&mut self, (thread, job): (u32, u32), call: &Call, len_bytes: u64, intended: Nanos, now: Nanos) {
        self.close_intervals(now);
        self.generator.completed(thread, call, now);
        if now < self.warmup || !call.counted {
            return;
        }
        let latency = now.saturating_sub(intended);
        self.counts.add(call.op, len_bytes);
        if self.interval > Nanos::ZERO {
            self.interval_counts.add(call.op, len_bytes);
            self.interval_latency.record(latency.0);
        }
        self.latency.record(latency.0);
        let totals = &mut self.threads[thread as usize];
        totals.events += 1;
        totals.busy += latency;
        totals.counts.add(call.op, len_bytes);
        let job = &mut self.jobs[job as usize];
        job.counts.add(call.op, len_bytes);
        let kind = match call.op {
            Op::Read => 0,
            Op::Write => 1,
            Op::Fsync | Op::Fdatasync | Op::Trim => 2,
        };
        job.latency[kind].record(latency.0);
    }

    /// A thread begins.
    fn begun(&mut self, thread: u32, now: Nanos) {
        self.threads[thread as usize].start = now;
    }

    /// A thread has ended.
    fn ended(&mut self, thread: u32, spec: &ThreadSpec, now: Nanos) {
        let totals = &mut self.threads[thread as usize];
        totals.end = now;
        let job = &mut self.jobs[spec.job as usize];
        let first = job.end == Nanos::ZERO;
        job.start = if first { totals.start } else { job.start.min(totals.start) };
        job.end = job.end.max(now);
        self.running -= 1;
        self.end = self.end.max(now);
    }
}

/// The machine: everything the tasks share. Each part has its own cell; none is held across a wait.
struct World<'p, 's> {
    machine: Machine,
    hz: Hz,
    fs: filesystem::Rules,
    writeback: writeback::Rules,
    direct: direct_io::Rules,
    plugging: Plugging,
    fault: fault::Rules,
    /// Sectors that each bio of a bare device's pages has at most; 0 for no such limit.
    buffer_sectors: u32,
    plan: &'p Plan,
    threads: Vec<ThreadSpec>,
    nr_files: usize,
    now: Cell<Nanos>,
    /// When the first thread started.
    begun: Cell<Nanos>,
    debt: Cell<u64>,
    stolen: Cell<u64>,
    cpu_busy: Cell<u64>,
    happenings: Cell<u64>,
    progress: Cell<Nanos>,
    current: Cell<TaskId>,
    /// The call that the current task is in, and the CPU time it has had since it got a CPU: copies of what the run
    /// queue keeps, taken when a task goes on.
    current_call: Cell<CallId>,
    ran: Cell<Nanos>,
    due: RefCell<EventQueue<Due>>,
    /// When the next event is due, once that was asked; unknown after an event was taken.
    next_due: Cell<Option<Nanos>>,
    sched: RefCell<Sched>,
    block: RefCell<BlockQueue>,
    vfs: RefCell<Vfs>,
    journal: RefCell<Journal>,
    groups: RefCell<Groups>,
    /// Threads that wait for a call of another one.
    followers: RefCell<Vec<TaskId>>,
    /// Limits of the workload's control group, and the tasks whose bios they hold back.
    limits: RefCell<Option<IoMax>>,
    held_back: RefCell<Vec<TaskId>>,
    aio: RefCell<aio::Aio>,
    workers: RefCell<Workers>,
    opening: RefCell<open::OpeningState>,
    /// Pages of the device that were cached when its last descriptor was closed.
    stale_pages: Cell<u64>,
    /// The cached part of each file, for the cost of looking for its pages.
    cached_runs: RefCell<Vec<direct::CachedRuns>>,
    host_rng: RefCell<Rng>,
    rec: RefCell<Recorder<'s>>,
    report: RefCell<Report>,
}

/// Groups of threads that run one after the other.
struct Groups {
    /// Threads of each group that have not ended.
    left: Vec<u32>,
    /// The group that runs, and since when.
    current: usize,
    since: Nanos,
    waiters: Vec<TaskId>,
}

impl Groups {
    fn new(threads: &[ThreadSpec]) -> Groups {
        let nr_groups = threads.iter().map(|thread| thread.group as usize + 1).max().unwrap_or(0);
        let mut left = vec![0; nr_groups];
        threads.iter().for_each(|thread| left[thread.group as usize] += 1);
        let current = left.iter().position(|nr| *nr > 0).unwrap_or(0);
        Groups { left, current, since: Nanos::ZERO, waiters: Vec::new() }
    }
}

/// How the elevator should see a bio.
#[derive(Copy, Clone, Debug)]
struct Class {
    sync: bool,
    no_idle: bool,
}

type Task<'w> = Pin<Box<dyn Future<Output = ()> + 'w>>;

/// Runs a plan.
///
/// # Errors
/// If the job does not fit the device, cannot be run as described, or never ends.
pub fn run(plan: &Plan) -> Result<Outcome, RunError> {
    run_to(plan, None)
}

/// Runs a plan and hands every event to `sink`.
///
/// # Errors
/// As [`run`].
pub fn run_with(plan: &Plan, sink: &mut dyn EventSink) -> Result<Outcome, RunError> {
    run_to(plan, Some(sink))
}

fn run_to(plan: &Plan, sink: Option<&mut dyn EventSink>) -> Result<Outcome, RunError> {
    let world = World::new(plan, sink)?;
    let mut tasks: Vec<Option<Task<'_>>> = Vec::new();
    for thread in 0..world.threads.len() as u32 {
        tasks.push(Some(Box::pin(world.thread(thread))));
    }
    tasks.push(Some(Box::pin(world.journal_daemon())));
    tasks.push(Some(Box::pin(world.writeback_daemon())));
    for number in 0..world.nr_probes() {
        tasks.push(Some(Box::pin(world.probe(number))));
    }
    let nr_awake = tasks.len() as u32;
    let tried = [Tried::Regular, Tried::Marked, Tried::Polled][plan.stack.options.unsigned("ring_nowait") as usize];
    let workers = Workers::new(&world.threads, world.machine.nr_cpus, nr_awake, !world.fs.nowait, tried);
    for &thread in workers.threads() {
        tasks.push(Some(Box::pin(world.worker(thread))));
    }
    world.workers.replace(workers);
    world.start_tasks(tasks.len() as u32, nr_awake);
    world.turn(&mut tasks)?;
    drop(tasks);
    Ok(world.outcome())
}

impl<'p, 's> World<'p, 's> {
    fn new(plan: &'p Plan, sink: Option<&'s mut dyn EventSink>) -> Result<World<'p, 's>, RunError> {
        let (stack, job) = (&plan.stack, &plan.job);
        let machine = (stack.machine.entry.build)(&stack.machine.options);
        let mut fs = (stack.filesystem.entry.build)(&stack.filesystem.options);
        let (hz, queue) = (stack.hz(), &stack.options);
        let max_sectors = (queue.unsigned("max_sectors_kb") * 2) as u32;
        let max_segments = queue.unsigned("max_segments") as u32;
        let limits = QueueLimits {
            hz,
            max_sectors,
            max_segments,
            nr_requests: queue.unsigned("nr_requests") as u32,
            batch_requests: queue.unsigned("batch_requests") as u32,
            batch_time: Nanos::from_ms(queue.unsigned("batch_time_ms")),
            max_queue_sectors: queue.unsigned("max_queue_kb") * 2,
            command: machine.command,
            interrupt: machine.interrupt,
            kblockd: Nanos::from_us(queue.unsigned("kblockd_us")),
        };
        let device = (stack.device.entry.build)(&stack.device.options, Rng::stream(job.seed, "device"));
        let elevator = (stack.elevator.entry.build)(&stack.elevator.options, hz);
        let plugging = (stack.plug.entry.build)(&stack.plug.options);
        let nr_sectors = device.nr_sectors();
        let block = BlockQueue::new(limits, elevator, device, plugging).with_rules(QueueRules::from_options(queue));

        job.check().map_err(RunError::Job)?;
        let (files, threads) = (job.placed_files(), job.workload.threads());
        let limits = Limits {
            ra_pages: queue.unsigned("read_ahead_kb") / 4,
            // Not of `max_segments`: a segment may have several pages.
            io_pages: (u64::from(max_sectors) / PAGE_SECTORS).max(1),
            max_folio_order: fs.max_folio_order,
            max_sane: machine.cache_pages / 2,
        };
        let nr_descriptors = job.workload.nr_descriptors() * files.len();
        let (mut vfs, nr_blocks) =
            Vfs::fitting(&files, &mut fs, limits, machine.cache_pages, nr_descriptors, nr_sectors);
        let end = fs.end(nr_blocks);
        if nr_blocks > 0 && end.0 > nr_sectors {
            let start = fs.end(0);
            return Err(RunError::TooLarge {
                need_bytes: (end.0 - start.0) * SECTOR_BYTES,
                have_bytes: nr_sectors.saturating_sub(start.0) * SECTOR_BYTES,
            });
        }
        let mut ends = files.iter().filter_map(|file| match file.place {
            Place::Device { start } => Some(start.0 * SECTOR_BYTES + file.bytes),
            Place::FileSystem => None,
        });
        let have_bytes = nr_sectors * SECTOR_BYTES;
        if let Some(need_bytes) = ends.find(|end| *end > have_bytes) {
            return Err(RunError::TooLarge { need_bytes, have_bytes });
        }
        let io_max = io_max::VERSIONS[queue.unsigned("io_max") as usize];
        vfs.start(job, job.mapping_cached || fs.mapping_cached);
        vfs.wakes_one = queue.get("page_wait") == 1;
        let fault = (stack.fault.entry.build)(&stack.fault.options);
        vfs.mappings.set_random_is_no_use(fault.advice.random_is_no_use);
        Ok(World {
            machine,
            hz,
            fs,
            writeback: (stack.writeback.entry.build)(&stack.writeback.options),
            direct: (stack.direct.entry.build)(&stack.direct.options),
            plugging,
            fault,
            buffer_sectors: queue.unsigned("buffer_kb") as u32 * 2,
            plan,
            nr_files: files.len(),
            groups: RefCell::new(Groups::new(&threads)),
            followers: RefCell::new(Vec::new()),
            limits: RefCell::new(job.throttle.map(|limits| IoMax::new(io_max, &limits, hz))),
            held_back: RefCell::default(),
            aio: RefCell::new(aio::Aio::new(threads.len())),
            workers: RefCell::default(),
            opening: RefCell::new(open::OpeningState::new(job)),
            stale_pages: Cell::new(0),
            cached_runs: RefCell::new(vec![direct::CachedRuns::default(); files.len()]),
            host_rng: RefCell::new(Rng::stream(job.seed, "host")),
            report: RefCell::new(Report::new(plan, &threads)),
            threads,
            now: Cell::new(Nanos::ZERO),
            begun: Cell::new(Nanos::ZERO),
            debt: Cell::new(0),
            stolen: Cell::new(0),
            cpu_busy: Cell::new(0),
            happenings: Cell::new(0),
            progress: Cell::new(Nanos::ZERO),
            current: Cell::new(0),
            current_call: Cell::new(CallId::NONE),
            ran: Cell::new(Nanos::ZERO),
            due: RefCell::new(EventQueue::default()),
            next_due: Cell::new(None),
            sched: RefCell::new(Sched::new(machine.nr_cpus)),
            block: RefCell::new(block),
            vfs: RefCell::new(vfs),
            journal: RefCell::new(Journal::default()),
            rec: RefCell::new(Recorder::new(sink)),
        })
    }

    /// Makes things happen until every thread of the program has ended.
    fn turn(&self, tasks: &mut [Option<Task<'_>>]) -> Result<(), RunError> {
        let mut context = Context::from_waker(Waker::noop());
        while self.report.borrow().running > 0 {
            let Some((at, due)) = self.due.borrow_mut().pop() else {
                let nr_tasks = self.report.borrow().running;
                return Err(RunError::Stuck { at: self.now.get(), nr_tasks });
            };
            self.next_due.set(None);
            self.now.set(at);
            if at > self.progress.get() + MAX_STANDSTILL {
                let nr_tasks = self.report.borrow().running;
                return Err(RunError::Stuck { at, nr_tasks });
            }
            self.happenings.set(self.happenings.get() + 1);
            if self.happenings.get() > MAX_HAPPENINGS {
                return Err(RunError::Endless { at, nr_events: self.happenings.get() });
            }
            match due {
                Due::Resume(task) => {
                    self.switch_to(task);
                    let slot = &mut tasks[task as usize];
                    if let Some(future) = slot
                        && let Poll::Ready(()) = future.as_mut().poll(&mut context)
                    {
                        *slot = None;
                        self.release_cpu();
                    }
                }
                Due::Timeout(task, sleep) => self.timeout(task, sleep),
                Due::Block(wakeup) => {
                    if matches!(wakeup, Wakeup::Interrupt(_)) {
                        self.steal(self.machine.interrupt);
                    }
                    self.block.borrow_mut().wake(at, wakeup, &mut self.rec.borrow_mut());
                    self.after_block();
                }
            }
        }
        Ok(())
    }

    fn outcome(self) -> Outcome {
        let opening = self.opening_totals();
        let mut report = self.report.into_inner();
        let end = report.end;
        report.close_intervals(end);
        let (hash, layers) = self.rec.into_inner().finish(end);
        let first = report.threads.iter().map(|thread| thread.start).min().unwrap_or_default();
        Outcome {
            elapsed: end.saturating_sub(self.begun.get()),
            end,
            counted_from: first.max(report.warmup),
            counts: report.counts,
            latency: report.latency,
            threads: report.threads,
            jobs: report.jobs,
            opening,
            intervals: report.intervals,
            layers,
            device: self.block.borrow().device().stats(),
            event_hash: hash.value(),
            nr_events: hash.nr_events(),
            cpu_busy: Nanos(self.cpu_busy.get()),
            request_waits: self.sched.borrow().request_waits(),
            switches: self.sched.borrow().switches,
            handles: self.journal.borrow().handles(),
            empty_syncs: self.vfs.borrow().empty_syncs,
        }
    }

    /// A thread of the program.
    async fn thread(&self, thread: u32) {
        let spec = &self.threads[thread as usize];
        self.wait_for_group(spec).await;
        self.open_device(thread).await;
        self.report.borrow_mut().begun(thread, self.now.get());
        let context = self.context();
        self.block.borrow_mut().task_started(context, spec.startup_seeks);
        self.advise_at_open(thread).await;
        match spec.engine {
            Engine::Sync | Engine::Mmap | Engine::Null => self.one_by_one(thread).await,
            Engine::Aio { depth, batch_submit, batch_complete }
            | Engine::Ring { depth, batch_submit, batch_complete } => {
                self.many_in_flight(thread, depth, batch_submit, batch_complete).await;
            }
        }
        self.settle().await;
        self.close_device(thread);
        self.block.borrow_mut().task_exited(self.now.get(), context, &mut self.rec.borrow_mut());
        self.after_block();
        self.report.borrow_mut().ended(thread, spec, self.now.get());
        self.leave_group(spec);
    }

    /// Sleeps until the groups before a thread's own have ended, and then its delay.
    async fn wait_for_group(&self, spec: &ThreadSpec) {
        let group = spec.group as usize;
        while self.groups.borrow().current < group {
            self.groups.borrow_mut().waiters.push(self.current.get());
            self.block_task().await;
        }
        if spec.start_delay > Nanos::ZERO {
            let since = self.groups.borrow().since;
            self.sleep_until(since + spec.start_delay).await;
        }
    }

    /// A thread has ended; if it was the last of its group, the next one begins.
    fn leave_group(&self, spec: &ThreadSpec) {
        let woken = {
            let mut groups = self.groups.borrow_mut();
            groups.left[spec.group as usize] -= 1;
            let mut next = groups.current;
            while next < groups.left.len() && groups.left[next] == 0 {
                next += 1;
            }
            if next == groups.current {
                return;
            }
            groups.current = next;
            groups.since = self.now.get();
            std::mem::take(&mut groups.waiters)
        };
        woken.into_iter().for_each(|task| self.wake(task));
    }

    /// The program's advice on its files after opening them.
    async fn advise_at_open(&self, thread: u32) {
        let spec = &self.threads[thread as usize];
        let files =
            if spec.invalidate || spec.advice.is_some() { self.plan.job.workload.files_of(thread) } else { vec![] };
        if spec.invalidate {
            for file in &files {
                self.drop_pages(FileId(*file), PageIndex(0), PageIndex(u64::MAX));
            }
        }
        let Some(advice) = spec.advice else { return };
        for file in files {
            let file = FileId(file);
            let descriptor = self.descriptor(thread, file);
            self.advise((descriptor, file), advice, spec.engine == Engine::Mmap);
            self.carry_out().await;
        }
    }

    /// A program drops the cached pages of a region, whole pages and those at the end of the file.
    async fn drop_target(&self, Target { file, start, len_bytes }: Target) {
        self.charge(self.machine.syscall);
        self.settle().await;
        let (file, end) = (FileId(file), start + len_bytes);
        let at_end = end >= self.vfs.borrow().file_bytes(file);
        let end = if at_end { u64::MAX } else { end / PAGE_BYTES };
        self.drop_pages(file, PageIndex(start.div_ceil(PAGE_BYTES)), PageIndex(end));
    }

    /// Advice on an open file, which is mapped if `mapped`; what it asks for has to be carried out.
    fn advise(&self, (descriptor, file): (usize, FileId), advice: Advice, mapped: bool) {
        let at = (self.now.get(), self.call_id());
        let (ra, rec) = (&self.plan.stack.readahead, &mut self.rec.borrow_mut());
        let mut vfs = self.vfs.borrow_mut();
        if mapped {
            vfs.map_file(descriptor, file, ra);
        }
        vfs.advise((descriptor, file), ra, &self.fault.advice, advice, at, rec);
    }

    /// A thread's calls one after the other.
    async fn one_by_one(&self, thread: u32) {
        let spec = &self.threads[thread as usize];
        let tool = spec.tool.unwrap_or(self.machine.tool);
        loop {
            let next = self.report.borrow_mut().generator.next(thread, self.now.get());
            let (call, intended) = match next {
                Next::Do { call, intended } => (call, intended),
                Next::At(WOKEN) => {
                    self.follow().await;
                    continue;
                }
                Next::At(time) => {
                    self.sleep_until(time).await;
                    continue;
                }
                Next::Compute(time) => {
                    self.charge(time);
                    self.settle().await;
                    continue;
                }
                Next::Drop(target) => {
                    self.drop_target(target).await;
                    continue;
                }
                Next::Done => break,
            };
            // A call takes time on every machine, however its costs are set: otherwise a run could be endless.
            let touches = self.path_of(spec, &call) == Path::Mapping && is_data(call.op);
            let entry = if touches || spec.engine == Engine::Null { Nanos::ZERO } else { self.machine.syscall };
            self.charge(Nanos((tool + entry).0.max(1)));
            let len_bytes = self.call(thread, &call).await;
            self.completed((thread, spec.job), &call, len_bytes, intended);
        }
    }

    /// A call has ended.
    fn completed(&self, of: (u32, u32), call: &Call, len_bytes: u64, intended: Nanos) {
        self.report.borrow_mut().completed(of, call, len_bytes, intended, self.now.get());
        if !self.followers.borrow().is_empty() {
            let followers = std::mem::take(&mut *self.followers.borrow_mut());
            followers.into_iter().for_each(|task| self.wake(task));
        }
    }

    /// Sleeps until some call of another thread has ended.
    async fn follow(&self) {
        self.settle().await;
        self.followers.borrow_mut().push(self.current.get());
        self.block_task().await;
    }

    /// Where a call finds its data.
    fn path_of(&self, spec: &ThreadSpec, call: &Call) -> Path {
        match (call.how, spec.engine) {
            (Some(how), _) => how.path,
            (None, Engine::Mmap) => Path::Mapping,
            (None, _) if spec.direct => Path::Direct,
            (None, _) => Path::Cache,
        }
    }

    /// Numbers a call that begins.
    fn start_call(&self, call: &Call) -> CallId {
        let id = {
            let mut report = self.report.borrow_mut();
            let id = CallId(report.next_call);
            report.next_call += 1;
            id
        };
        self.begin_call(id);
        self.progress.set(self.now.get());
        let file = FileId(call.file);
        self.event(What::CallStart { op: call.op, file, offset: call.offset, len_bytes: call.len_bytes });
        id
    }

    /// One call, from entry to exit. Returns the bytes read or written.
    async fn call(&self, thread: u32, call: &Call) -> u64 {
        self.start_call(call);
        let len_bytes = self.carry_out_call(thread, call).await;
        self.event(What::CallEnd { op: call.op, file: FileId(call.file), len_bytes: len_bytes as u32 });
        self.begin_call(CallId::NONE);
        len_bytes
    }

    /// The part of a thread's call between begin and end, whichever task does it.
    async fn carry_out_call(&self, thread: u32, call: &Call) -> u64 {
        let file = FileId(call.file);
        let spec = &self.threads[thread as usize];
        if spec.engine == Engine::Null {
            return u64::from(call.len_bytes);
        }
        let descriptor = match call.how {
            Some(how) => how.descriptors as usize * self.nr_files + call.file as usize,
            None => self.descriptor(thread, file),
        };
        let path = self.path_of(spec, call);
        if let Some(advice) = call.how.and_then(|how| how.advice) {
            self.advise((descriptor, file), advice, path == Path::Mapping);
            self.carry_out().await;
        }
        let len_bytes = match (call.op, path) {
            (Op::Read | Op::Write, Path::Mapping) => {
                self.touch_range(call.op, descriptor, file, call.offset, call.len_bytes).await
            }
            (Op::Read, Path::Cache) => self.read(descriptor, file, call.offset, call.len_bytes).await,
            (Op::Write, Path::Cache) => self.write(file, call.offset, call.len_bytes).await,
            (Op::Read | Op::Write, Path::Direct) => self.direct_io(call.op, file, call.offset, call.len_bytes).await,
            (Op::Fsync | Op::Fdatasync, _) => {
                self.fsync(file, call.op == Op::Fdatasync).await;
                0
            }
            (Op::Trim, _) => u64::from(call.len_bytes),
        };
        if let Some(sync) = call.then {
            self.fsync(file, sync == Op::Fdatasync).await;
        }
        self.settle().await;
        len_bytes
    }

    /// Most pages in a bio of the page cache: it has places for 256 pieces, and a folio is one.
    fn bio_max_pages(&self) -> u64 {
        BIO_MAX_PAGES << self.fs.max_folio_order
    }

    fn descriptor(&self, thread: u32, file: FileId) -> usize {
        self.threads[thread as usize].descriptors as usize * self.nr_files + file.0 as usize
    }

    /// Records an event of the current task's call.
    #[inline(always)]
    fn event(&self, what: What) {
        self.rec.borrow_mut().event(self.now.get(), self.call_id(), what);
    }

    /// The current task's context, as elevators see it.
    fn context(&self) -> IoContext {
        let task = self.current.get();
        // Daemons and probes are processes of their own.
        let thread_group = self.thread_of(task).map_or(task, |thread| thread.process);
        IoContext { task, thread_group }
    }

    /// Whether the current task keeps a plug list now.
    fn plug_open(&self) -> bool {
        matches!(self.plugging, Plugging::Task { .. }) && self.sched.borrow().task(self.current.get()).plug_depth > 0
    }

    /// Opens a plug of the current task, where tasks plug.
    fn start_plug(&self) {
        self.sched.borrow_mut().task_mut(self.current.get()).plug_depth += 1;
    }

    /// Closes it; the outermost one is flushed.
    fn finish_plug(&self) {
        let depth = {
            let mut sched = self.sched.borrow_mut();
            let task = sched.task_mut(self.current.get());
            task.plug_depth -= 1;
            task.plug_depth
        };
        if depth == 0 {
            self.flush_own_plug(UnplugCause::Finish);
        }
    }

    /// Gives the requests that the current task holds back to the queue.
    #[inline]
    fn flush_own_plug(&self, cause: UnplugCause) {
        if !self.sched.borrow().task(self.current.get()).plug.is_empty() {
            self.flush_plug_list(cause);
        }
    }

    /// The same for a task that goes to sleep: the kernel's worker thread runs the queue.
    fn flush_plug_asleep(&self) {
        if self.sched.borrow().task(self.current.get()).plug.is_empty() {
            return;
        }
        let mut list = std::mem::take(&mut self.sched.borrow_mut().task_mut(self.current.get()).plug);
        self.block.borrow_mut().flush_plug_from_schedule(self.now.get(), &mut list, &mut self.rec.borrow_mut());
        self.after_block();
        self.sched.borrow_mut().task_mut(self.current.get()).plug = list;
    }

    fn flush_plug_list(&self, cause: UnplugCause) {
        let mut list = std::mem::take(&mut self.sched.borrow_mut().task_mut(self.current.get()).plug);
        self.block.borrow_mut().flush_plug(self.now.get(), &mut list, cause, &mut self.rec.borrow_mut());
        self.after_block();
        self.sched.borrow_mut().task_mut(self.current.get()).plug = list;
    }

    /// The current task is about to sleep on I/O: nothing may be held back.
    fn kick_io(&self) {
        match self.plugging {
            Plugging::Task { .. } => self.flush_own_plug(UnplugCause::Schedule),
            Plugging::Queue { .. } => {
                self.block.borrow_mut().unplug(self.now.get(), UnplugCause::Waiter, &mut self.rec.borrow_mut());
                self.after_block();
            }
        }
    }

    /// Submits a bio for the current task; sleeps until a request is free.
    async fn submit(&self, dir: Dir, content: Content, sector: Sector, nr_sectors: u32, flush: bool, done: Done) {
        let sync_write = dir == Dir::Write
            && (self.sched.borrow().task(self.current.get()).sync_write
                || (content == Content::Journal && self.fs.journal_sync));
        // Nobody follows up on what fsync and the journal write.
        // The throttle leaves those alone that say more will follow; a flush without data is an fsync's own.
        let passes = content == Content::Journal && nr_sectors > 0 && self.fs.journal_passes;
        let class = Class { sync: dir == Dir::Read || sync_write, no_idle: sync_write && !passes };
        self.submit_as(class, dir, content, (sector, nr_sectors), flush, done).await;
    }

    /// The same with the class given.
    async fn submit_as(
        &self,
        class: Class,
        dir: Dir,
        content: Content,
        (sector, nr_sectors): (Sector, u32),
        flush: bool,
        done: Done,
    ) {
        self.charge(self.machine.bio);
        self.settle().await;
        self.throttle(dir, nr_sectors).await;
        let bio = Bio {
            sector,
            nr_sectors,
            dir,
            content,
            sync: class.sync,
            no_idle: class.no_idle,
            class: IoClass::BestEffort,
            prio: false,
            flush,
            context: self.context(),
            call: self.call_id(),
            queued: self.now.get(),
            token: done.token(),
            next: BioId::NONE,
        };
        let mut waited = false;
        loop {
            let plugged = self.plug_open() && !flush;
            let submitted = {
                let mut sched = self.sched.borrow_mut();
                let list = if plugged { Some(&mut sched.task_mut(self.current.get()).plug) } else { None };
                let (mut block, mut rec) = (self.block.borrow_mut(), self.rec.borrow_mut());
                match waited {
                    false => block.submit(self.now.get(), bio, list, &mut rec),
                    true => block.resubmit(self.now.get(), bio, list, &mut rec),
                }
            };
            let Submitted::NoRequest(class) = submitted else {
                self.after_block();
                return;
            };
            // Requests that are flushed now may be united, which frees some: perhaps there is one for this task.
            self.sched.borrow_mut().wait_for_request(self.current.get(), class);
            self.after_block();
            self.kick_io();
            // Only a free request ends this sleep, not what else may wake the task (a daemon is asked for its work).
            while self.sched.borrow().waits_for_request(self.current.get()) {
                self.block_task().await;
            }
            self.block.borrow_mut().make_batcher(self.current.get(), self.now.get());
            waited = true;
        }
    }

    /// Holds a bio back as the limits of the workload's control group want it.
    async fn throttle(&self, dir: Dir, nr_sectors: u32) {
        let task = self.current.get();
        let own = self.thread_of(task).is_some_and(|thread| !thread.stranger);
        let passes = {
            let mut limits = self.limits.borrow_mut();
            let Some(limits) = limits.as_mut().filter(|_| own) else { return };
            limits.submit(self.now.get(), dir, u64::from(nr_sectors) * SECTOR_BYTES, task)
        };
        if passes {
            return;
        }
        self.held_back.borrow_mut().push(task);
        while self.held_back.borrow().contains(&task) {
            let timer = self.limits.borrow().as_ref().and_then(IoMax::timer);
            let Some(at) = timer else { unreachable!("somebody is held back") };
            self.kick_io();
            self.sleep_until(at).await;
            let gone = self.limits.borrow_mut().as_mut().map(|limits| limits.fire(self.now.get()));
            for other in gone.into_iter().flatten() {
                self.held_back.borrow_mut().retain(|held| *held != other);
                if other != task {
                    self.wake(other);
                }
            }
        }
    }

    /// After every use of the request queue: note its wishes for later calls, and finish completed requests.
    fn after_block(&self) {
        let mut block = self.block.borrow_mut();
        block.wakeups(|at, wakeup| self.push_due(at, Due::Block(wakeup)));
        while let Some(bio) = block.take_finished() {
            drop(block);
            self.finished(&bio);
            block = self.block.borrow_mut();
        }
        if block.has_freed() {
            drop(block);
            self.wake_request_waiters();
        }
    }

    /// For each request that was freed, wakes the one that has waited longest.
    fn wake_request_waiters(&self) {
        for class in [Dir::Read, Dir::Write] {
            let freed = self.block.borrow_mut().take_freed(class);
            for _ in 0..freed {
                let waiter = self.sched.borrow_mut().next_request_waiter(class);
                if let Some(task) = waiter {
                    self.wake(task);
                }
                if self.sched.borrow().nobody_waits_for_request(class) {
                    self.block.borrow_mut().no_waiters(class);
                }
            }
        }
    }

    fn finished(&self, bio: &Bio) {
        let nr_pages = u64::from(bio.nr_sectors).div_ceil(PAGE_SECTORS);
        match Done::from_token(bio.token) {
            Done::Read { file, page } => {
                let woken = self.vfs.borrow_mut().read_done(file, page, nr_pages);
                woken.into_iter().for_each(|task| self.wake(task));
            }
            Done::Write { file, page } => {
                let woken = self.vfs.borrow_mut().write_done(file, page, nr_pages);
                woken.into_iter().for_each(|task| self.wake(task));
            }
            Done::Mapping { file, block } => {
                let woken = self.vfs.borrow_mut().mapping_done(file, block);
                woken.into_iter().for_each(|task| self.wake(task));
            }
            Done::Counted(slot) => self.count_down(slot),
            Done::Nothing => {}
        }
    }

    /// Makes sure that the blocks which map a page are in memory, reading them one after the other.
    async fn map(&self, file: FileId, page: PageIndex) {
        if self.vfs.borrow().is_device(file) {
            return;
        }
        for block in self.fs.mapping_of(page).into_iter().flatten() {
            let state = self.vfs.borrow_mut().want_mapping(file, block);
            if state == vfs::MapState::Cached {
                continue;
            }
            if state == vfs::MapState::Absent {
                let sector = self.vfs.borrow().mapping_sector(&self.fs, file, block);
                let done = Done::Mapping { file, block };
                self.submit(Dir::Read, Content::Mapping, sector, PAGE_SECTORS as u32, false, done).await;
            }
            self.settle().await;
            while self.vfs.borrow_mut().wait_for_mapping(file, block, self.current.get()) {
                self.kick_io();
                self.block_task().await;
            }
        }
    }

    /// Sleeps until the read of a page has ended (and it is up to date, or gone).
    async fn wait_page(&self, file: FileId, page: PageIndex) {
        self.settle().await;
        while self.vfs.borrow_mut().wait_for_read(file, page, self.current.get()) {
            self.kick_io();
            self.block_task().await;
        }
        // The last holder of the lock passes it on.
        let next = {
            let mut vfs = self.vfs.borrow_mut();
            if vfs.wakes_one { vfs.next_read_waiter(file, page) } else { None }
        };
        if let Some(task) = next {
            self.wake(task);
        }
    }

    /// Sleeps until a page is not being written.
    async fn wait_page_written(&self, file: FileId, page: PageIndex) {
        if !self.vfs.borrow().under_writeback(file, page) {
            return;
        }
        self.settle().await;
        while self.vfs.borrow_mut().wait_for_write(file, page, self.current.get()) {
            self.kick_io();
            self.block_task().await;
        }
    }
}

/// Pages of cached file data at the start.
fn tail_pages(cache: CacheStart) -> u64 {
    match cache {
        CacheStart::Cold => 0,
        CacheStart::Tail { bytes } => bytes / PAGE_BYTES,
    }
}
