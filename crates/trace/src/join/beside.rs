//! I/O of a workload other than by read and write calls, joined to calls of its own.
//!
//! ```text
//! fault      a touch of a mapping that is not in memory is a read of a page: from the fault to the task's return to
//!            the CPU after it has slept, or to its last record before it goes on
//! libaio     what io_submit hands over is a call for each iocb that has bios: from the submission to the last
//!            completion; iocbs are in memory that a trace does not show, so bios give place and size
//! io_uring   a request is a call from its submission to its completion; what a worker queues is of the oldest one that
//!            was given away and has no bio
//! throttled  a bio that a limit has held back is issued by a worker of the kernel: it belongs to the task whose pages
//!            wait for one, or whose direct call of as many bytes has none
//! own        all other I/O of the workload's tasks (opening, listing, advice) is still the workload's
//! ```
//! Known limits: of buffered calls of libaio and of io_uring's workers only what reaches the device is seen.

use std::collections::{BTreeSet, HashMap, VecDeque};

use iowhy_stack::event::{CallId, Dir, Event, FileId, JournalStep, Op, RaKind, What};
use iowhy_stack::trace::{Dev, Extent, Inode, RaInput, Record, Rwbs, Seen, Trace};
use iowhy_stack::units::{Nanos, PAGE_BYTES, PageIndex, SECTOR_BYTES};

use super::{Joiner, Who, dir_of, end_of};
use crate::fields::field;
use crate::settings::Settings;

/// The tasks of a workload, if the trace has them.
pub fn tree(trace: &Trace, who: &Who) -> Option<BTreeSet<u32>> {
    if !who.pids.is_empty() {
        return Some(who.pids.iter().copied().collect());
    }
    let mut tree: BTreeSet<u32> = Settings::of(trace).roots.into_iter().collect();
    if tree.is_empty() {
        return None;
    }
    for record in &trace.records {
        match &record.seen {
            // Calls of tasks that are not followed are not recorded.
            Seen::CallStart { .. } => _ = tree.insert(record.pid),
            Seen::Other { name, fields } if name == "task:task_newtask" && tree.contains(&record.pid) => {
                tree.extend(field(fields, "pid").and_then(|pid| pid.parse::<u32>().ok()));
            }
            _ => {}
        }
    }
    // Threads that io_uring starts for a task are called after it.
    for (pid, name) in &trace.names {
        let owner = worker_of(name).or_else(|| name.strip_prefix("iou-sqp-")?.parse().ok());
        if owner.is_some_and(|owner| tree.contains(&owner)) {
            tree.insert(*pid);
        }
    }
    Some(tree)
}

/// The task that a thread of this name works for, if it is a worker of io_uring.
pub fn worker_of(name: &str) -> Option<u32> {
    name.strip_prefix("iou-wrk-")?.parse().ok()
}

/// Names of the kernel's own tasks, which work for others, and of ours, which record them or are their disk.
const KERNELS: [&str; 8] = ["kworker", "ksoftirqd", "jbd2", "xfsaild", "btrfs-", "loop", "kswapd", "iowhy"];

/// A process outside the workload whose tasks are `tree`.
pub fn is_other(trace: &Trace, tree: &BTreeSet<u32>, pid: u32) -> bool {
    let kernels = || KERNELS.iter().any(|of| trace.name(pid).unwrap_or("").starts_with(of));
    pid != 0 && !tree.contains(&pid) && !kernels()
}

/// Bytes of the largest bio of a direct call: one that is smaller is the last of its call.
const LARGEST: u32 = 1 << 20;

/// Origin of a call that is not a system call of its own.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// A page fault on a mapping.
    Fault,
    /// An iocb of libaio.
    Aio,
    /// A request of io_uring.
    Ring,
}

/// A call that runs next to or without system calls.
#[derive(Copy, Clone, Debug)]
struct AsyncCall {
    way: Way,
    /// Bios on their way.
    bios: u32,
    /// Its last record.
    last: Nanos,
    seq: u64,
    /// The task has slept in it.
    slept: bool,
}

/// The bookkeeping.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// By place.
    open: HashMap<usize, AsyncCall>,
    /// Requests of io_uring by their address.
    ring: HashMap<String, usize>,
    /// Requests of io_uring that a task has given to its workers, and that none is seen to carry out yet.
    given: HashMap<u32, VecDeque<usize>>,
    /// All of them: files, for a pipe or a socket is waited for without a worker.
    pub(super) for_workers: BTreeSet<usize>,
    /// iocbs that a task hands over just now.
    submitting: HashMap<u32, u64>,
    /// Bios of calls of libaio and io_uring by number.
    of_bio: HashMap<u32, usize>,
    /// Tasks that free memory just now.
    reclaiming: BTreeSet<u32>,
}

impl Joiner<'_> {
    /// The task frees memory.
    pub(super) fn reclaims(&self, pid: u32) -> bool {
        self.beside.reclaiming.contains(&pid)
    }

    /// Something of a task was seen: a call of ours goes on.
    pub(super) fn seen_of(&mut self, seq: u64, record: &Record) {
        let Some(call) = self.call_of(record.pid) else { return };
        if let Some(open) = self.beside.open.get_mut(&call) {
            (open.last, open.seq) = (record.at, seq);
        }
    }

    /// `of` is the file, the first byte and the length, as far as they are known.
    fn begin(&mut self, seq: u64, record: &Record, (op, way): (Op, Way), of: Option<(u32, u64, u64)>) {
        self.leave(record.pid);
        self.call_start(seq, record, op, -1, of.map(|(_, offset, _)| offset), of.map_or(0, |(.., len)| len));
        let Some(call) = self.call_of(record.pid) else { return };
        self.out.calls[call].file = of.map(|(file, ..)| file);
        self.out.calls[call].beside = Some(way);
        self.beside.open.insert(call, AsyncCall { way, bios: 0, last: record.at, seq, slept: false });
    }

    /// The task goes on with something else: a fault has ended, and calls that were handed over go on without it.
    pub(super) fn leave(&mut self, pid: u32) {
        let Some(call) = self.call_of(pid) else { return };
        let Some(open) = self.beside.open.get(&call).copied() else { return };
        if open.way == Way::Fault || (open.way == Way::Aio && open.bios == 0) {
            self.finish_beside(call, open.seq, open.last, 0);
        }
        self.let_go(pid);
    }

    fn let_go(&mut self, pid: u32) {
        self.end_run(pid);
        if let Some(task) = self.tasks.get_mut(&pid) {
            task.call = None;
            task.kind = None;
            task.window = None;
        }
    }

    fn finish_beside(&mut self, call: usize, seq: u64, at: Nanos, result: i64) {
        if self.beside.open.remove(&call).is_none() {
            return;
        }
        let record = &self.out.calls[call];
        let (op, pid, number) = (record.op, record.pid, record.call);
        let done = if result > 0 { result as u64 } else { record.len };
        let what = What::CallEnd { op, file: super::UNKNOWN_FILE, len_bytes: super::small(done) };
        let event = Event { at, call: CallId(number), what };
        self.events.push((at, seq, event));
        let record = &mut self.out.calls[call];
        record.end = Some(at);
        record.result = Some(done as i64);
        if self.call_of(pid) == Some(call) {
            self.let_go(pid);
        }
        self.waited(call);
    }

    /// A mapping is touched, and the page has to be found or read.
    pub(super) fn fault(&mut self, seq: u64, record: &Record, inode: Inode, index: u64) {
        let file = self.file(inode);
        let inside = self
            .call_of(record.pid)
            .is_some_and(|call| self.beside.open.get(&call).is_none_or(|open| open.way != Way::Fault));
        if !inside && self.out.tree.is_some() && self.own(record.pid) {
            let offset = index.saturating_mul(PAGE_BYTES);
            self.begin(seq, record, (Op::Read, Way::Fault), Some((file, offset, PAGE_BYTES)));
        }
        self.touched(record, inode, index);
        // What a fault reads without asking for it by name is around it.
        let task = self.tasks.entry(record.pid).or_default();
        (task.kind, task.mapped) = (Some(RaKind::Around), Some(file));
        let what = What::Fault { file: FileId(file), page: PageIndex(index), major: false };
        self.emit(seq, record, what);
    }

    /// A task leaves the CPU, another gets it.
    pub(super) fn switch(&mut self, seq: u64, record: &Record, next: u32, state: u16) {
        if state & 0xff != 0
            && let Some(call) = self.call_of(record.pid)
            && let Some(open) = self.beside.open.get_mut(&call)
        {
            open.slept = true;
        }
        if let Some(call) = self.call_of(next)
            && self.beside.open.get(&call).is_some_and(|open| open.way == Way::Fault && open.slept)
        {
            self.finish_beside(call, seq, record.at, 0);
        }
    }

    /// A page that a fault adds and no window has asked for is read alone: read-ahead is off, or the mapping is advised
    /// as random.
    pub(super) fn alone(&mut self, seq: u64, (at, pid): (Nanos, u32), file: u32, index: u64, nr_pages: u64) {
        let Some(call) = self.call_of(pid) else { return };
        let fault = self.beside.open.get(&call).is_some_and(|open| open.way == Way::Fault);
        let covered = self.tasks.get(&pid).is_some_and(|task| {
            let (of, from, to) = task.covered;
            of == file && (from..to).contains(&index)
        });
        if fault && !covered {
            let call = CallId(self.out.calls[call].call);
            let what = What::RaWindow {
                file: FileId(file),
                kind: RaKind::Single,
                order: 0,
                start: PageIndex(index),
                nr_pages: super::small(nr_pages),
                async_size: 0,
            };
            self.events.push((at, seq, Event { at, call, what }));
        }
    }

    /// System calls and events that are kept as text.
    pub(super) fn text(&mut self, seq: u64, record: &Record, name: &str, fields: &str) {
        let number = |key: &str| field(fields, key).and_then(|value| value.parse::<i64>().ok());
        let pid = record.pid;
        if !self.own(pid) {
            if name.starts_with("jbd2:") {
                self.journal(seq, record, name, fields);
            }
            return;
        }
        match name {
            "syscalls:sys_enter_io_submit" => {
                self.leave(pid);
                self.beside.submitting.insert(pid, number("nr").unwrap_or(1).max(1) as u64);
            }
            "syscalls:sys_exit_io_submit" => {
                self.leave(pid);
                self.beside.submitting.remove(&pid);
            }
            "io_uring:io_uring_submit_req" | "io_uring:io_uring_submit_sqe" => {
                let op = match number("opcode") {
                    Some(1 | 4 | 22) => Op::Read,
                    Some(2 | 5 | 23) => Op::Write,
                    Some(3) => Op::Fsync,
                    _ => return self.leave(pid),
                };
                self.begin(seq, record, (op, Way::Ring), None);
                if let (Some(call), Some(address)) = (self.call_of(pid), field(fields, "req")) {
                    self.beside.ring.insert(address.to_owned(), call);
                }
            }
            "io_uring:io_uring_complete" => {
                let call = field(fields, "req").and_then(|address| self.beside.ring.remove(address));
                if let Some(call) = call {
                    self.finish_beside(call, seq, record.at, number("res").unwrap_or(0));
                }
            }
            "io_uring:io_uring_queue_async_work" => {
                let call = field(fields, "req").and_then(|address| self.beside.ring.get(address));
                if let Some(call) = call.copied() {
                    self.beside.given.entry(pid).or_default().push_back(call);
                    self.beside.for_workers.insert(call);
                    let call = CallId(self.out.calls[call].call);
                    self.events.push((record.at, seq, Event { at: record.at, call, what: What::HandOver }));
                }
            }
            "vmscan:mm_vmscan_direct_reclaim_begin" | "vmscan:mm_vmscan_memcg_reclaim_begin" => {
                self.beside.reclaiming.insert(pid);
            }
            "vmscan:mm_vmscan_direct_reclaim_end" | "vmscan:mm_vmscan_memcg_reclaim_end" => {
                self.beside.reclaiming.remove(&pid);
            }
            "writeback:balance_dirty_pages" if number("pause").unwrap_or(0) > 0 => {
                let nr_dirty = super::small(number("dirty").unwrap_or(0).max(0) as u64);
                self.emit(seq, record, What::Throttle { nr_dirty });
            }
            _ if name.starts_with("syscalls:sys_enter_") => self.leave(pid),
            _ if name.starts_with("jbd2:") => self.journal(seq, record, name, fields),
            _ => {}
        }
    }

    fn journal(&mut self, seq: u64, record: &Record, name: &str, fields: &str) {
        let number = |key: &str| field(fields, key).and_then(|value| value.parse::<u32>().ok());
        let (step, tid, nr_blocks) = match name {
            "jbd2:jbd2_start_commit" => (JournalStep::Lock, number("transaction"), 0),
            "jbd2:jbd2_end_commit" => (JournalStep::Done, number("transaction"), 0),
            "jbd2:jbd2_run_stats" => (JournalStep::Log, number("tid"), number("blocks_logged").unwrap_or(0)),
            _ => return,
        };
        if let Some(tid) = tid {
            self.events.push((
                record.at,
                seq,
                Event { at: record.at, call: CallId::NONE, what: What::Journal { tid, step, nr_blocks } },
            ));
        }
    }

    /// A bio of one of io_uring's workers: more of its call, or the oldest one that waits for a worker.
    fn by_worker(&mut self, pid: u32, extent: &Extent) {
        let goes_on = self.call_of(pid).is_some_and(|call| {
            let last = self.out.calls[call].bios.last().map(|bio| &self.out.bios[*bio as usize].extent);
            let full = |last: &Extent| last.bytes >= LARGEST && end_of(last) == extent.sector.0;
            let cached = self.tasks.get(&pid).is_some_and(|task| !task.waiting.is_empty());
            self.beside.open.contains_key(&call) && (cached || last.is_none_or(full))
        });
        if !goes_on {
            self.takes(pid);
        }
    }

    /// A worker of io_uring looks at a page without a call: it has taken one.
    pub(super) fn looked_at(&mut self, pid: u32) {
        let works = |call| self.beside.open.contains_key(&call);
        if !self.beside.given.is_empty() && !self.call_of(pid).is_some_and(works) {
            self.takes(pid);
        }
    }

    /// The task takes the oldest call that waits for a worker, if it is one.
    fn takes(&mut self, pid: u32) {
        let owner = self.trace.name(pid).and_then(worker_of);
        let Some(given) = owner.and_then(|owner| self.beside.given.get_mut(&owner)) else { return };
        if let Some(call) = std::iter::from_fn(|| given.pop_front()).find(|call| self.beside.open.contains_key(call)) {
            self.tasks.entry(pid).or_default().call = Some(call);
        }
    }

    /// A bio is queued: by a task that hands over iocbs it begins a call, or goes on with one.
    pub(super) fn handed_over(&mut self, seq: u64, record: &Record, extent: &Extent) {
        if extent.rwbs.has(Rwbs::META) || extent.bytes == 0 {
            return;
        }
        let Some(left) = self.beside.submitting.get(&record.pid).copied() else {
            return self.by_worker(record.pid, extent);
        };
        let goes_on = self.call_of(record.pid).filter(|call| {
            let known = &self.out.calls[*call];
            let last = known.bios.last().map(|bio| end_of(&self.out.bios[*bio as usize].extent));
            left <= 1 && last.is_none_or(|end| end == extent.sector.0)
        });
        if goes_on.is_none() {
            let op = if dir_of(extent) == Dir::Read { Op::Read } else { Op::Write };
            self.begin(seq, record, (op, Way::Aio), None);
            self.beside.submitting.insert(record.pid, left.saturating_sub(1).max(1));
        }
    }

    /// The bio belongs to a call: its place and size are known.
    pub(super) fn belongs(&mut self, call: usize, bio: u32, extent: &Extent) {
        let Some(open) = self.beside.open.get_mut(&call) else { return };
        if open.way == Way::Fault {
            return;
        }
        open.bios += 1;
        self.beside.of_bio.insert(bio, call);
        let device = Inode { dev: Dev(0), ino: u64::from(extent.dev.0) };
        let file = self.file(device);
        let known = &mut self.out.calls[call];
        if known.file.is_none() {
            known.file = Some(file);
        }
        if known.offset.is_none() {
            known.offset = Some(extent.sector.0.saturating_mul(SECTOR_BYTES));
        }
        known.len += u64::from(extent.bytes);
    }

    /// A bio is done: a call of libaio ends with its last one.
    pub(super) fn bio_done(&mut self, seq: u64, record: &Record, bio: u32) {
        let Some(call) = self.beside.of_bio.remove(&bio) else { return };
        let Some(open) = self.beside.open.get_mut(&call) else { return };
        open.bios = open.bios.saturating_sub(1);
        if open.way == Way::Aio && open.bios == 0 {
            self.finish_beside(call, seq, record.at, 0);
        }
    }

    /// The task on whose behalf a worker of the kernel issues this bio, if that has been held back.
    pub(super) fn held_back(&self, record: &Record, extent: &Extent) -> Option<u32> {
        if extent.rwbs.has(Rwbs::META) || extent.bytes == 0 || self.own(record.pid) {
            return None;
        }
        if !self.trace.name(record.pid).is_some_and(|name| name.starts_with("kworker")) {
            return None;
        }
        let tree = self.out.tree.as_ref()?;
        let waits = |pid: &&u32| {
            let Some(task) = self.tasks.get(pid) else { return false };
            // A loop device's worker reads the file below, on another device.
            let there = |file: Option<u32>| {
                let file = file.and_then(|file| self.out.files.get(file as usize));
                file.is_some_and(|file| super::related(file.dev, extent.dev) || file.ino == u64::from(extent.dev.0))
            };
            if dir_of(extent) == Dir::Read && task.waiting.front().is_some_and(|pages| there(Some(pages.file))) {
                return true;
            }
            let Some(call) = task.call else { return false };
            let call = &self.out.calls[call];
            if !there(call.file) {
                return false;
            }
            let asked: u64 = call.bios.iter().map(|bio| u64::from(self.out.bios[*bio as usize].extent.bytes)).sum();
            let data = match dir_of(extent) {
                Dir::Read => call.op == Op::Read,
                Dir::Write => call.op == Op::Write && extent.rwbs.has(Rwbs::SYNC),
            };
            // Who writes through the page cache waits for no bio of its own.
            data && !(call.op == Op::Write && task.dirties)
                && call.pages_added == 0
                && asked + u64::from(extent.bytes) <= call.len
        };
        // Who has waited longest.
        tree.iter().filter(waits).min_by_key(|pid| self.tasks[pid].call.map(|call| self.out.calls[call].start)).copied()
    }

    /// A window that is read at once, as requested: by a kernel with a limit of 0, or after advice that the file is
    /// read at random.
    pub(super) fn forced(asked: Option<RaInput>, start: u64, nr_pages: u64) -> bool {
        let Some(input) = asked else { return false };
        if input.ra_pages == 0 {
            return true;
        }
        // A call that goes on where one ended, or begins a file, gets a window unless advice forbids it.
        let page = input.prev_pos.max(0) as u64 / PAGE_BYTES;
        let goes_on = input.index == 0 || input.index.wrapping_sub(page) <= 1 && input.prev_pos >= 0;
        goes_on && start == input.index && nr_pages <= input.req_count
    }
}
