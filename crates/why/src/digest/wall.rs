//! Where the time by the clock went, from the states of the recorded tasks.
//!
//! ```text
//! running    in a call or a fault: CPU; elsewhere: the application's own
//! ready      CPU wait: woken or preempted, and not running
//! blocked    in a call, a fault, or without a call where no signal wakes it: until the request that it waits for is
//!            queued (lock, journal), inserted (plug), issued (elevator), done (device)
//! asleep     in pipes, sockets, futexes, poll, wait, or stopped: idle; if all tasks are, the program pauses, or waits
//!            for its asynchronous calls: where their requests are
//! ```
//! At each moment the tasks that are not idle share the time, so that all of it adds up to the clock's. The request
//! that a task waits for is, in this order: the last of its own that is done while it is blocked; the last that carries
//! a page which its call asks for; the last that is done on the CPU that wakes it, just before. A sync, or a write that
//! waits for a commit, waits for whatever is being written. Only recordings with the scheduler's events have this.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use iowhy_stack::event::Op;
use iowhy_stack::trace::{Rwbs, Seen, Trace};
use iowhy_stack::units::Nanos;

use super::{KIND_OTHER, KIND_SYNC, KINDS, LAYERS, Layer, kind_of};
use iowhy_trace::fields::{WAITS_FOR_DESCRIPTORS, field};
use iowhy_trace::join::beside::{is_other, worker_of};
use iowhy_trace::join::{Joined, NoFile};
use iowhy_trace::settings::Settings;

/// How long after a completion the task that waited for it is woken at most, ns.
const WOKEN_WITHIN: u64 = 300_000;
/// How long a task is frozen at least, ns, and the place of it in [`Wall::stopped`].
const FREEZES: u64 = 20_000_000;
pub const FROZEN: usize = 2;
/// Stretches of equally many calls that a run is cut into, to see how much it varies within itself.
pub(crate) const BLOCKS: usize = 12;

/// The clock's time of a run, by who has it.
#[derive(Clone, Debug, Default)]
pub struct Wall {
    pub span_ns: u64,
    /// By kind of call (reads, writes, syncs, other) and layer, ns.
    pub ns: [[f64; LAYERS.len()]; KINDS],
    /// How often tasks became ready to run, and had to wait for it.
    pub wakes: u64,
    /// Time of these waits, of each task for itself, ns.
    pub ready_ns: f64,
    /// Of this the waits for a CPU that a task outside the workload had until then, or took, ns, by its name.
    pub behind: BTreeMap<String, f64>,
    /// Time of tasks that wait for a file's lock (flock, fcntl), ns, and how often.
    pub locked: (f64, u64),
    /// Time of tasks in reclaim, ns, and how often.
    pub reclaim: (f64, u64),
    /// Bios that a limit has held back.
    pub held_back: u64,
    /// Time blocked by dirty limits, ns.
    pub dirty_ns: f64,
    /// Time in io_submit that waits for requests which it has queued itself, ns, and how often.
    pub submitting: (f64, u64),
    /// Time of tasks that a signal, a tracer, and a freezer has stopped, ns, and how often.
    pub stopped: [(f64, u64); 3],
    /// Time of the stretches of equally many calls, ns.
    pub blocks: Vec<f64>,
}

impl Wall {
    /// Nothing runs for longer than the kernel has counted: a task that a quota stops at the end of a system call is
    /// not always seen to leave the CPU, and is ready meanwhile.
    pub(super) fn ran_at_most(&mut self, cpu_ns: f64) {
        const ROUNDING: f64 = 20e6;
        let ran: f64 = self.ns.iter().map(|of| of[Layer::Application as usize] + of[Layer::Cpu as usize]).sum();
        let own = &mut self.ns[KIND_OTHER];
        let excess = (ran - 1.1 * cpu_ns - ROUNDING).clamp(0.0, own[Layer::Application as usize]);
        own[Layer::Application as usize] -= excess;
        own[Layer::Ready as usize] += excess;
    }

    /// Relative standard error of the time, as far as the run itself shows: stretches of equal work differ by this.
    pub fn relative_error(&self) -> Option<f64> {
        // A program's first and last stretch do other work than the rest, and so medians speak.
        let median = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied()
        };
        let middle = median(self.blocks.clone()).filter(|middle| *middle > 0.0)?;
        let apart = median(self.blocks.iter().map(|block| (block - middle).abs()).collect())?;
        (self.blocks.len() == BLOCKS).then(|| 1.4826 * apart / middle / (BLOCKS as f64).sqrt())
    }
}

/// State of a task besides computing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Doing {
    /// A call or fault by place in [`Joined::calls`].
    Call(usize, usize),
    /// Another system call of files.
    Other,
    /// It hands over calls of libaio.
    Submit,
    /// It waits for calls of libaio or io_uring.
    Reap,
    /// It sleeps on purpose.
    Sleep,
    /// It waits for the lock of a file that another has.
    Lock,
}

#[derive(Copy, Clone, Debug)]
struct Interval {
    from: Nanos,
    to: Nanos,
    doing: Doing,
}

/// F_SETLKW and F_OFD_SETLKW, as traces have them.
const WAITS_FOR_LOCK: [&str; 4] = ["7", "0x7", "38", "0x26"];

/// States of tasks, in order, for each.
fn intervals(trace: &Trace, joined: &Joined, own: &dyn Fn(u32) -> bool, end: Nanos) -> HashMap<u32, Vec<Interval>> {
    let mut all: HashMap<u32, Vec<Interval>> = HashMap::new();
    for (place, call) in joined.calls.iter().enumerate() {
        // A sync waits for whatever its descriptor's file system writes.
        let no_data = joined.no_file.get(&call.call) == Some(&NoFile::NoData) && kind_of(call.op) != KIND_SYNC;
        if call.is_asynchronous() || no_data {
            continue;
        }
        let doing = Doing::Call(place, kind_of(call.op));
        all.entry(call.pid).or_default().push(Interval { from: call.start, to: call.end.unwrap_or(end), doing });
    }
    let mut open: HashMap<u32, (Nanos, Doing)> = HashMap::new();
    let others = || trace.records.iter().filter(|record| own(record.pid));
    // Calls whose ends are not recorded (close, dup) take no time that could be told from what comes after them.
    let mut ends: BTreeSet<&str> = BTreeSet::new();
    for record in others() {
        if let Seen::Other { name, .. } = &record.seen {
            ends.extend(name.strip_prefix("syscalls:sys_exit_"));
        }
    }
    for record in others() {
        let Seen::Other { name, fields } = &record.seen else { continue };
        if let Some(call) = name.strip_prefix("syscalls:sys_enter_") {
            let doing = match call {
                "io_submit" => Doing::Submit,
                "io_getevents" | "io_pgetevents" | "io_uring_enter" => Doing::Reap,
                "nanosleep" | "clock_nanosleep" => Doing::Sleep,
                "flock" => Doing::Lock,
                "fcntl" if field(fields, "cmd").is_some_and(|cmd| WAITS_FOR_LOCK.contains(&cmd)) => Doing::Lock,
                // Waiting for whatever comes is not the doing of storage.
                _ if WAITS_FOR_DESCRIPTORS.contains(&call) || !ends.contains(call) => continue,
                _ => Doing::Other,
            };
            open.insert(record.pid, (record.at, doing));
        } else if name.starts_with("syscalls:sys_exit_")
            && let Some((from, doing)) = open.remove(&record.pid)
        {
            all.entry(record.pid).or_default().push(Interval { from, to: record.at, doing });
        }
    }
    for (pid, (from, doing)) in open {
        all.entry(pid).or_default().push(Interval { from, to: end, doing });
    }
    all.values_mut().for_each(|list| list.sort_by_key(|interval| (interval.from, interval.to)));
    all
}

/// Requests as blocked tasks look for them.
struct Requests<'a> {
    joined: &'a Joined,
    /// Completions in order, with the CPU and the request.
    done: Vec<(Nanos, u32, u32)>,
    /// The same of each task's own.
    own: HashMap<u32, Vec<(Nanos, u32)>>,
    /// Writes with the elevator, and at the device, from each moment on.
    writes: Vec<(Nanos, [i32; 2])>,
}

impl<'a> Requests<'a> {
    fn new(trace: &Trace, joined: &'a Joined) -> Requests<'a> {
        let mut cpus: HashMap<(Nanos, u64), u32> = HashMap::new();
        for record in &trace.records {
            if let Seen::Complete { extent, .. } = &record.seen {
                cpus.insert((record.at, extent.sector.0), record.cpu);
            }
        }
        let (mut done, mut own, mut writes) = (Vec::new(), HashMap::<u32, Vec<(Nanos, u32)>>::new(), Vec::new());
        for (number, request) in (0..).zip(&joined.requests) {
            let Some(at) = request.completed else { continue };
            let cpu = cpus.get(&(at, request.extent.sector.0)).copied().unwrap_or(u32::MAX);
            done.push((at, cpu, number));
            for pid in &request.pids {
                own.entry(*pid).or_default().push((at, number));
            }
            let Some(issued) = request.issued else { continue };
            if request.extent.rwbs.has(Rwbs::READ) {
                continue;
            }
            if let Some(inserted) = request.inserted.filter(|at| *at < issued) {
                writes.push((inserted, [1, 0]));
                writes.push((issued, [-1, 0]));
            }
            writes.push((issued, [0, 1]));
            writes.push((at, [0, -1]));
        }
        done.sort_unstable();
        own.values_mut().for_each(|list| list.sort_unstable());
        writes.sort_unstable_by_key(|(at, _)| *at);
        // Each change becomes what there is after it.
        let mut now = [0; 2];
        for (_, change) in &mut writes {
            now = [now[0] + change[0], now[1] + change[1]];
            *change = now;
        }
        Requests { joined, done, own, writes }
    }

    /// The request that a task has waited for in this time.
    fn of(&self, pid: u32, call: Option<usize>, (from, to): (Nanos, Nanos), cpu: u32) -> Option<u32> {
        let late = Nanos(to.0.saturating_add(20_000));
        let own = self.own.get(&pid).and_then(|list| {
            let end = list.partition_point(|(at, _)| *at <= late);
            list[..end].last().filter(|(at, _)| *at >= from).map(|(_, request)| *request)
        });
        let asked = || {
            let waited = &self.joined.calls.get(call?)?.waited_for;
            let at = |request: &u32| self.joined.requests[*request as usize].completed.unwrap_or_default();
            waited.iter().rev().find(|request| at(request) >= from && at(request) <= late).copied()
        };
        let woken = || {
            let end = self.done.partition_point(|(at, ..)| *at <= to);
            let soon = |(at, ..): &&(Nanos, u32, u32)| *at >= from && to.saturating_sub(*at).0 <= WOKEN_WITHIN;
            let mut before = self.done[..end].iter().rev().take_while(soon);
            before.find(|(_, on, _)| *on == cpu).map(|(.., request)| *request)
        };
        own.or_else(asked).or_else(woken)
    }
}

/// Time of one task with one owner.
#[derive(Copy, Clone, Debug)]
struct Segment {
    from: Nanos,
    to: Nanos,
    /// Kind and layer; nothing if it is idle.
    owner: Option<(usize, Layer)>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    Running(Nanos),
    Ready(Nanos),
    Blocked(Nanos, bool),
    /// By whom, as in [`Wall::stopped`].
    Stopped(Nanos, usize),
    Gone,
}

struct Walk<'a> {
    requests: Requests<'a>,
    intervals: HashMap<u32, Vec<Interval>>,
    out: Vec<Segment>,
    wall: Wall,
    /// Kind of most calls of libaio and io_uring.
    reaped: usize,
    /// Threads of io_uring: whatever they do is the kernel's code.
    workers: BTreeSet<u32>,
    /// Tasks that the dirty limits stop just now.
    stopped: HashMap<u32, Nanos>,
    /// Since when tasks reclaim memory.
    reclaim: HashMap<u32, Nanos>,
    /// Sleeps on purpose.
    slept: Vec<(Nanos, Nanos)>,
}

impl Walk<'_> {
    /// Events of reclaim and of the dirty limits.
    fn other(&mut self, (pid, at): (u32, Nanos), name: &str, fields: &str) {
        match name {
            "vmscan:mm_vmscan_direct_reclaim_begin" | "vmscan:mm_vmscan_memcg_reclaim_begin" => {
                self.reclaim.entry(pid).or_insert(at);
            }
            "vmscan:mm_vmscan_direct_reclaim_end" | "vmscan:mm_vmscan_memcg_reclaim_end" => {
                if let Some(from) = self.reclaim.remove(&pid) {
                    self.wall.reclaim.0 += at.saturating_sub(from).0 as f64;
                    self.wall.reclaim.1 += 1;
                }
            }
            "writeback:balance_dirty_pages" => {
                let pause = field(fields, "pause").and_then(|pause| pause.parse::<i64>().ok()).unwrap_or(0);
                if pause > 0 {
                    self.stopped.insert(pid, at);
                }
            }
            _ => {}
        }
    }

    /// A stretch in which somebody else has stopped the task.
    fn stopped(&mut self, (from, to): (Nanos, Nanos), by: usize) {
        let (ns, times) = &mut self.wall.stopped[by];
        *ns += to.saturating_sub(from).0 as f64;
        *times += 1;
    }

    /// Whether a sleep that no signal ends, and that another process has ended, was a freezer's: in no call, without a
    /// request, and longer than locks of the kernel are held.
    fn is_frozen(&self, pid: u32, (from, to): (Nanos, Nanos), cpu: u32) -> bool {
        let long = to.saturating_sub(from).0 >= FREEZES;
        long && self.doing(pid, from).is_none() && self.requests.of(pid, None, (from, to), cpu).is_none()
    }

    fn push(&mut self, from: Nanos, to: Nanos, owner: Option<(usize, Layer)>) {
        if to > from {
            self.out.push(Segment { from, to, owner });
        }
    }

    /// The task's state at this time.
    fn doing(&self, pid: u32, at: Nanos) -> Option<Interval> {
        let list = self.intervals.get(&pid)?;
        let end = list.partition_point(|interval| interval.from <= at);
        // A call that another one is nested in began earlier.
        list[..end].iter().rev().take(2).find(|interval| interval.to > at || interval.from == at).copied()
    }

    fn kind(&self, doing: Option<Doing>) -> usize {
        match doing {
            Some(Doing::Call(_, kind)) => kind,
            Some(Doing::Reap | Doing::Submit) => self.reaped,
            _ => KIND_OTHER,
        }
    }

    /// A stretch on the CPU: calls and the gaps between them.
    fn ran(&mut self, pid: u32, from: Nanos, to: Nanos) {
        let mut at = from;
        let list = self.intervals.get(&pid).map_or(&[][..], Vec::as_slice);
        let begin = list.partition_point(|interval| interval.from < from).saturating_sub(2);
        let mut parts = Vec::new();
        for interval in list[begin..].iter().take_while(|interval| interval.from < to) {
            let (start, end) = (interval.from.max(at), interval.to.min(to));
            if end <= start {
                continue;
            }
            parts.push((at, start, None));
            parts.push((start, end, Some(interval.doing)));
            at = end;
        }
        parts.push((at, to, None));
        let is_worker = self.workers.contains(&pid);
        for (from, to, doing) in parts {
            let layer = if doing.is_some() || is_worker { Layer::Cpu } else { Layer::Application };
            self.push(from, to, Some((self.kind(doing), layer)));
        }
    }

    /// A stretch in which it could have run, and somebody else had the CPU.
    fn waited(&mut self, pid: u32, (from, at): (Nanos, Nanos), other: Option<&str>) {
        let kind = self.kind(self.doing(pid, from).map(|interval| interval.doing));
        let ns = at.saturating_sub(from).0 as f64;
        self.wall.wakes += 1;
        self.wall.ready_ns += ns;
        if let Some(name) = other {
            *self.wall.behind.entry(name.to_owned()).or_default() += ns;
        }
        self.push(from, at, Some((kind, Layer::Ready)));
    }

    /// Doings of tasks as the recording ends.
    fn ends(&mut self, states: BTreeMap<u32, State>, end: Nanos) {
        for (pid, state) in states {
            match state {
                State::Running(from) => self.ran(pid, from, end),
                State::Ready(from) => self.push(from, end, Some((KIND_OTHER, Layer::Ready))),
                State::Blocked(from, deep) => self.blocked(pid, (from, end), deep, u32::MAX),
                State::Stopped(from, by) => self.stopped((from, end), by),
                State::Gone => {}
            }
        }
    }

    /// A stretch without the CPU that ends with being woken on a CPU.
    fn blocked(&mut self, pid: u32, (from, to): (Nanos, Nanos), deep: bool, cpu: u32) {
        let interval = self.doing(pid, from);
        let doing = interval.map(|interval| interval.doing);
        let kind = self.kind(doing);
        match doing {
            Some(Doing::Sleep) => {
                self.slept.push((from, to));
                return self.push(from, to, None);
            }
            Some(Doing::Lock) => {
                self.wall.locked.0 += to.saturating_sub(from).0 as f64;
                self.wall.locked.1 += 1;
                return self.push(from, to, None);
            }
            None if !deep => return self.push(from, to, None),
            // Pipes and sockets whose creation was not seen: signals do not wake tasks that wait for a page or a lock.
            Some(Doing::Call(call, _)) if !deep && self.requests.joined.calls[call].file.is_none() => {
                return self.push(from, to, None);
            }
            _ => {}
        }
        let joined = self.requests.joined;
        let copies = matches!(doing, Some(Doing::Call(call, _)) if joined.calls[call].copies());
        if self.stopped.remove(&pid).is_some_and(|at| interval.is_none_or(|interval| at >= interval.from)) {
            self.wall.dirty_ns += to.saturating_sub(from).0 as f64;
            return self.push(from, to, Some((if copies { 1 } else { kind }, Layer::Journal)));
        }
        let call = if let Some(Doing::Call(call, _)) = doing { Some(call) } else { None };
        let sync = kind == 2;
        let found = if sync { None } else { self.requests.of(pid, call, (from, to), cpu) };
        // A copy waits for the writes of what it copied before.
        let writes = found.is_none_or(|request| !joined.requests[request as usize].extent.rwbs.has(Rwbs::READ));
        let kind = if copies && writes { 1 } else { kind };
        let Some(request) = found else { return self.writes(kind, from, to, sync) };
        let request = &joined.requests[request as usize];
        // A free place in a queue comes with a request that was queued before.
        let begun = interval.filter(|interval| interval.doing == Doing::Submit).map(|interval| interval.from);
        if begun.is_some_and(|begun| request.queued.is_some_and(|queued| queued >= begun)) {
            self.wall.submitting.0 += to.saturating_sub(from).0 as f64;
            self.wall.submitting.1 += 1;
        }
        let bound = |at: Option<Nanos>, before: Nanos| at.unwrap_or(before).clamp(before, to);
        let queued = bound(request.queued.or(request.inserted).or(request.issued), from);
        let allocated = bound(request.allocated, queued);
        let inserted = bound(request.inserted.or(request.issued), allocated);
        let issued = bound(request.issued, inserted);
        let done = bound(request.completed, issued);
        self.push(from, queued, Some((kind, Layer::Lock)));
        self.push(queued, allocated, Some((kind, Layer::Elevator)));
        self.push(allocated, inserted, Some((kind, Layer::Plug)));
        self.push(inserted, issued, Some((kind, Layer::Elevator)));
        self.push(issued, done, Some((kind, Layer::Device)));
        // One that ends long before is not what it has waited for to the end.
        let woken = to.saturating_sub(done).0 <= WOKEN_WITHIN;
        self.push(done, to, Some((kind, if woken { Layer::Ready } else { Layer::Lock })));
    }

    /// Blocked without a request of its own: by concurrent writes, else by a lock or the journal.
    fn writes(&mut self, kind: usize, from: Nanos, to: Nanos, sync: bool) {
        let writing = sync || kind == 1;
        let none = if writing { Layer::Journal } else { Layer::Lock };
        if !writing && kind != KIND_OTHER {
            return self.push(from, to, Some((kind, none)));
        }
        let mut at = from;
        let mut place = self.requests.writes.partition_point(|(at, _)| *at <= from);
        while at < to {
            let [elevator, device] = place.checked_sub(1).map_or([0; 2], |last| self.requests.writes[last].1);
            let layer = match () {
                () if device > 0 => Layer::Device,
                () if elevator > 0 => Layer::Elevator,
                () => none,
            };
            let next = self.requests.writes.get(place).map_or(to, |(at, _)| (*at).min(to));
            self.push(at, next, Some((kind, layer)));
            at = next;
            place += 1;
        }
    }
}

/// The clock's time of a recording; nothing if it has no states of tasks.
pub fn of(trace: &Trace, joined: &Joined, settings: &Settings) -> Option<Wall> {
    let callers = || joined.calls.iter().map(|call| call.pid).collect();
    let tree: BTreeSet<u32> = joined.tree.clone().unwrap_or_else(callers);
    let own = |pid: u32| pid != 0 && tree.contains(&pid);
    if !trace.records.iter().any(|record| matches!(record.seen, Seen::Switch { .. })) {
        return None;
    }
    let last = trace.records.last()?.at;
    let of_command = settings.command.map(|command| command.span);
    let first = trace.records.iter().find(|record| own(record.pid) && record.at > Nanos(0)).map(|record| record.at);
    let [begin, end] = of_command.unwrap_or([first?, last]);
    let asynchronous = joined.calls.iter().filter(|call| call.is_asynchronous());
    let (writes, reads): (Vec<_>, Vec<_>) = asynchronous.partition(|call| call.op != Op::Read);
    let is_worker = |pid: &u32| trace.name(*pid).and_then(worker_of).is_some();
    let mut walk = Walk {
        requests: Requests::new(trace, joined),
        intervals: intervals(trace, joined, &own, last),
        out: Vec::new(),
        wall: Wall { span_ns: end.saturating_sub(begin).0, ..Wall::default() },
        reaped: usize::from(writes.len() > reads.len()),
        stopped: HashMap::new(),
        reclaim: HashMap::new(),
        slept: Vec::new(),
        workers: tree.iter().copied().filter(is_worker).collect(),
    };
    let mut states: BTreeMap<u32, State> = BTreeMap::new();
    // Who took the CPU from a task that could go on.
    let mut takers: HashMap<u32, u32> = HashMap::new();
    for record in &trace.records {
        let at = record.at;
        match &record.seen {
            Seen::Switch { next, state } => {
                if own(record.pid) {
                    takers.insert(record.pid, *next);
                    let before = states.get(&record.pid).copied().unwrap_or(State::Running(at));
                    if let State::Running(from) | State::Ready(from) = before {
                        walk.ran(record.pid, from, at);
                    }
                    let after = match state & 0xff {
                        0 => State::Ready(at),
                        1 => State::Blocked(at, false),
                        4 | 8 => State::Stopped(at, usize::from(state & 8 != 0)),
                        0x10 | 0x20 | 0x80 => State::Gone,
                        _ => State::Blocked(at, true),
                    };
                    states.insert(record.pid, after);
                }
                if own(*next) {
                    match states.get(next).copied() {
                        Some(State::Ready(from)) => {
                            // Or the CPU that it gets now had nothing to do.
                            let taker = takers.get(next).copied().filter(|_| record.pid == 0);
                            let before = taker.unwrap_or(record.pid);
                            let other = is_other(trace, &tree, before);
                            let name = other.then(|| trace.name(before).unwrap_or("another task"));
                            walk.waited(*next, (from, at), name);
                        }
                        Some(State::Blocked(from, deep)) => walk.blocked(*next, (from, at), deep, record.cpu),
                        Some(State::Stopped(from, by)) => walk.stopped((from, at), by),
                        _ => {}
                    }
                    states.insert(*next, State::Running(at));
                }
            }
            Seen::Wake { pid } if own(*pid) => {
                match states.get(pid).copied() {
                    Some(State::Blocked(from, true))
                        if walk.is_frozen(*pid, (from, at), record.cpu) && is_other(trace, &tree, record.pid) =>
                    {
                        walk.stopped((from, at), FROZEN);
                    }
                    Some(State::Blocked(from, deep)) => walk.blocked(*pid, (from, at), deep, record.cpu),
                    Some(State::Stopped(from, by)) => walk.stopped((from, at), by),
                    _ => continue,
                }
                takers.remove(pid);
                states.insert(*pid, State::Ready(at));
            }
            // These happen in whichever task runs, or are records of our own.
            Seen::Issue(_) | Seen::Complete { .. } | Seen::Insert(_) => {}
            Seen::Other { name, .. } if name.starts_with("iowhy:") => {}
            seen if own(record.pid) => {
                states.entry(record.pid).or_insert(State::Running(at));
                if let Seen::Other { name, fields } = seen {
                    walk.other((record.pid, at), name, fields);
                }
            }
            _ => {}
        }
    }
    walk.ends(states, end);
    walk.wall.held_back = joined.calls.iter().map(|call| u64::from(call.held_back)).sum();
    let mut wall = walk.wall;
    let background = background(joined, &walk.slept);
    share([&walk.out, &background], begin, end, &mut wall);
    wall.blocks = blocks(joined, begin, end);
    Some(wall)
}

/// Where the requests of asynchronous calls are, and the program's sleeps: nobody's.
fn background(joined: &Joined, slept: &[(Nanos, Nanos)]) -> Vec<Segment> {
    let mut out: Vec<Segment> = slept.iter().map(|(from, to)| Segment { from: *from, to: *to, owner: None }).collect();
    for call in joined.calls.iter().filter(|call| call.is_asynchronous()) {
        let last = call.requests.iter().map(|request| &joined.requests[*request as usize]);
        let Some(request) = last.max_by_key(|request| request.completed) else { continue };
        let Some(done) = request.completed else { continue };
        let issued = request.issued.unwrap_or(done).max(call.start);
        for (from, to, layer) in [(call.start, issued, Layer::Elevator), (issued, done, Layer::Device)] {
            out.push(Segment { from, to, owner: Some((kind_of(call.op), layer)) });
        }
    }
    out
}

/// Those who have a moment: how many of each kind and layer, and all of them.
struct Owners {
    counts: [i32; KINDS * LAYERS.len()],
    all: i32,
}

impl Owners {
    const NONE: Owners = Owners { counts: [0; KINDS * LAYERS.len()], all: 0 };

    /// They have this time in equal parts.
    fn pass(&self, ns: f64, wall: &mut Wall) {
        for (owner, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            wall.ns[owner / LAYERS.len()][owner % LAYERS.len()] += ns * f64::from(*count) / f64::from(self.all);
        }
    }
}

/// Gives each moment to the tasks that are not idle, in equal parts; without any to the background, unless a task
/// sleeps on purpose; else the program pauses.
fn share(segments: [&[Segment]; 2], begin: Nanos, end: Nanos, wall: &mut Wall) {
    let mut changes: Vec<(Nanos, i32, usize, Option<usize>)> = Vec::new();
    for (of, segment) in (0..).zip(segments).flat_map(|(of, list)| list.iter().map(move |segment| (of, segment))) {
        let (from, to) = (segment.from.clamp(begin, end), segment.to.clamp(begin, end));
        if to > from && (of == 1 || segment.owner.is_some()) {
            let owner = segment.owner.map(|(kind, layer)| kind * LAYERS.len() + layer as usize);
            changes.push((from, 1, of, owner));
            changes.push((to, -1, of, owner));
        }
    }
    changes.sort_unstable_by_key(|(at, ..)| *at);
    changes.push((end, 0, 1, None));
    let (mut owners, mut asleep, mut at) = ([Owners::NONE; 2], 0, begin);
    for (when, change, of, owner) in changes {
        let passed = when.saturating_sub(at).0 as f64;
        at = when;
        match &owners {
            [tasks, _] if tasks.all > 0 => tasks.pass(passed, wall),
            [_, background] if background.all > 0 && asleep == 0 => background.pass(passed, wall),
            _ => wall.ns[KIND_OTHER][Layer::Pause as usize] += passed,
        }
        match owner {
            Some(owner) => {
                owners[of].counts[owner] += change;
                owners[of].all += change;
            }
            None => asleep += change,
        }
    }
}

/// Times of stretches with equally many calls.
fn blocks(joined: &Joined, begin: Nanos, end: Nanos) -> Vec<f64> {
    let mut ends: Vec<Nanos> = joined.calls.iter().filter_map(|call| call.end).collect();
    ends.sort_unstable();
    if ends.len() < 4 * BLOCKS {
        return Vec::new();
    }
    let mut at = begin;
    (1..=BLOCKS)
        .map(|nr| {
            let to = if nr == BLOCKS { end } else { ends[nr * ends.len() / BLOCKS] };
            let took = to.saturating_sub(at).0 as f64;
            at = to;
            took
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Layer, of};
    use iowhy_text::diagnose::Problems;
    use iowhy_trace::join::{Who, join};
    use iowhy_trace::settings::Settings;

    /// A call of this many bytes waits for a write of another task: time of reads and of writes at the device, ns.
    fn waits(count: u64) -> [f64; 2] {
        let text = format!(
            "# tracer: nop\n\
             t-7 [000] ..... 0.000000001: syscalls:sys_enter_openat: __syscall_nr=257 dfd=0 filename=0x1 flags=0\n\
             t-7 [000] ..... 0.000000002: syscalls:sys_exit_openat: __syscall_nr=257 ret=3\n\
             t-7 [000] ..... 0.000000003: iowhy:opened: fd=3 kind=file dev=7,0 ino=5\n\
             t-7 [000] ..... 0.000000004: sys_read(fd: 3, buf: 0, count: {count:x})\n\
             w-9 [001] ..... 0.000000005: block_rq_issue: 7,0 W 4096 () 800 + 8 none,0,0 [w]\n\
             t-7 [000] ..... 0.000000010: sched_switch: prev_comm=t prev_state=D ==> next_pid=0\n\
             w-9 [001] ..... 0.000001010: block_rq_complete: 7,0 W () 800 + 8 none,0,0 [0]\n\
             w-9 [001] ..... 0.000001011: sched_waking: pid=7\n\
             w-9 [000] ..... 0.000001012: sched_switch: prev_comm=swapper prev_state=R ==> next_pid=7\n\
             t-7 [000] ..... 0.000001020: sys_read -> 0x1000\n"
        );
        let mut problems = Problems::default();
        let trace = iowhy_trace::format::read("t.trace", text.as_bytes(), &mut problems).expect("a trace");
        let wall = of(&trace, &join(&trace, &Who::default()), &Settings::of(&trace)).expect("states of tasks");
        [0, 1].map(|kind| wall.ns[kind][Layer::Device as usize])
    }

    #[test]
    fn a_copy_waits_for_writes_of_its_own() {
        assert_eq!(waits(4096), [1000.0, 0.0]);
        assert_eq!(waits(1 << 30), [0.0, 1000.0]);
    }
}
