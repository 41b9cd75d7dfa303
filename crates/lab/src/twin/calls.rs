//! The recorded calls as a job.
//!
//! ```text
//! thread     one for each task that made calls; calls of libaio and io_uring are one of their own, as deep as seen
//! pause      a task computes between two calls as long as it had a CPU, and sleeps for the rest, as recorded; what it
//!            waited for a CPU, in calls too, is computing, beyond the usual time of a wake-up
//! after      a task that slept between two calls until another one woke it goes on that much later than the last
//!            call that led there, the waker's own or the one that the waker had waited for; so does a new task
//! open file  descriptors that are one open file share its read-ahead; advice is given before the next call on it
//! file       as long as a short read says, else as far as it was used; its blocks where bios found them
//! cached     what a call used, or a window had in it, and nobody added
//! others     bios of tasks outside of the workload are direct calls on the bare device
//! ```
//! Source: `iowhy_trace::join`; the idea of keeping dependencies is that of //TRACE (Mesnier et al., FAST 2007).
//!
//! Known limits: of several wake-ups between two calls the last counts; tasks in io_uring or libaio wait for nobody
//! else; touches of mapped pages are not seen, and those between two
//! faults that are near are assumed; blocks that were only written lie where the file system's layout has
//! them; dropped pages (`POSIX_FADV_DONTNEED`) stay; writes of the kernel's threads are others' only if the workload
//! writes nothing; calls on other disks are part of the pauses.

use std::collections::{BTreeMap, HashMap, HashSet};

use iowhy_stack::event::Op;
use iowhy_stack::job::{Engine, Extent, FileSpec, Job, Place, ThreadJob, ThreadSpec, Workload};
use iowhy_stack::readahead::Advice;
use iowhy_stack::trace::{Dev, Record, Rwbs, Seen, Trace};
use iowhy_stack::units::{Nanos, PAGE_BYTES, PAGE_SECTORS, SECTOR_BYTES, Sector};
use iowhy_stack::workload::{After, How, Mix, Path, Scripted, Stream, Target};
use iowhy_trace::advice::advised;
use iowhy_trace::fields::field;
use iowhy_trace::join::{CallRecord, Joined, Way, of_kernel};
use iowhy_why::digest::PageSet;

use super::regions::{self, InProgress, region};
use crate::run::replay::{self, Mode, ReplaySite};

/// Calls, and records in all, of the stretch of a recording that is made again.
const MOST_CALLS: usize = 10_000;
const MOST_RECORDS: usize = 120_000;
/// Places at which a stretch of a longer recording may begin.
const STRETCHES: usize = 16;
/// Wake-ups from which on there is a usual one.
const LEAST_WAKES: usize = 20;
/// Without states of tasks, pauses up to this are computing.
const COMPUTING: u64 = 200_000;

/// A recording as a job.
pub(super) struct Recorded {
    pub(super) job: Job,
    /// Files of the join, by their numbers in the job; files of others follow.
    pub(super) files: Vec<u32>,
    /// Threads of the workload; those of others follow.
    pub(super) own: usize,
    /// Names of the threads of others.
    pub(super) others: Vec<String>,
    /// Calls that are made again, by place in the join.
    pub(super) calls: Vec<usize>,
    /// From the begin of the first to the end of the last.
    pub(super) span: (Nanos, Nanos),
    /// Share of all calls that they are, where the recording was too long.
    pub(super) part: f64,
    /// The kernel has no events of read-ahead.
    pub(super) inferred: bool,
    pub(super) device: Dev,
    pub(super) costs: Costs,
    /// Sectors that the disk has at least.
    pub(super) nr_sectors: u64,
}

impl Recorded {
    pub(super) fn within(&self, at: Nanos) -> bool {
        at >= self.span.0 && at <= self.span.1
    }
}

/// A call of a thread, or of another one before it: thread, calls it has made, the end of the last.
type Last = (usize, u32, Nanos);

/// The state of a task, since when.
#[derive(Copy, Clone, Default)]
enum State {
    #[default]
    Unknown,
    Runs(Nanos),
    Sleeps(Nanos),
    /// It was woken, or pushed off its CPU, and has none yet.
    Comes(Nanos),
}

/// Time of a task, ns: running, asleep, ready without a CPU; and how often it was woken.
#[derive(Copy, Clone, Default)]
pub(super) struct Spent {
    pub(super) ran: u64,
    slept: u64,
    late: u64,
    wakes: u64,
}

#[derive(Default)]
struct Task {
    ready: Option<Nanos>,
    state: State,
    /// Since the last begin or end of a call.
    spent: Spent,
    /// When it was last woken.
    woken: Option<Nanos>,
    /// Time in calls since its last one began that it was ready, beyond what a wake-up takes, ns.
    waited: u64,
    /// The last call of its own, and what it has waited for since then.
    own: Option<Last>,
    other: Option<Last>,
    /// Calls in progress: what wakes it then is their business.
    busy: u32,
}

impl Task {
    /// The task goes on in another state.
    fn becomes(&mut self, state: State, at: Nanos) {
        let since = |from: Nanos| at.saturating_sub(from).0;
        match self.state {
            State::Unknown => {}
            State::Runs(from) => self.spent.ran += since(from),
            State::Sleeps(from) => self.spent.slept += since(from),
            State::Comes(from) => self.spent.late += since(from),
        }
        self.state = state;
    }

    /// Its time up to now, from now on counted anew; `running` tells that it runs.
    fn spent(&mut self, at: Nanos, running: bool) -> Spent {
        let state = match self.state {
            State::Unknown | State::Sleeps(_) | State::Comes(_) if running => State::Runs(at),
            State::Runs(_) => State::Runs(at),
            other => other,
        };
        self.becomes(state, at);
        std::mem::take(&mut self.spent)
    }

    fn latest(&self) -> Option<Last> {
        self.other.or(self.own)
    }
}

struct Thread {
    steps: Vec<Scripted>,
    ended: u32,
    in_flight: u32,
    depth: u32,
    ready: Nanos,
    asynchronous: bool,
}

/// A call's work, and the time that it took the processors.
pub(super) struct Work {
    pub(super) pages: u64,
    pub(super) added: u64,
    pub(super) bios: u64,
    pub(super) spent: Spent,
}

/// Costs of code, as far as states of tasks were recorded.
pub(super) struct Costs {
    pub(super) work: Vec<Work>,
    /// From being woken to running: the least and the usual time, ns.
    pub(super) late: Option<(u64, u64)>,
}

#[derive(Copy, Clone)]
enum Item {
    End(usize),
    Wake(u32, u32),
    New(u32, u32),
    /// It leaves a CPU, to sleep or not.
    Leaves(u32, bool),
    Enters(u32),
    Start(usize),
}

/// The disk that the workload's bios go to, most bytes first.
fn device_of(joined: &Joined) -> Option<Dev> {
    let own = |pid: u32| joined.tree.as_ref().is_none_or(|tree| tree.contains(&pid));
    let mut bytes: BTreeMap<Dev, u64> = BTreeMap::new();
    for bio in joined.bios.iter().filter(|bio| bio.call != 0 || own(bio.pid)) {
        *bytes.entry(bio.extent.dev).or_default() += u64::from(bio.extent.bytes);
    }
    bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(dev, _)| dev)
}

/// The stretch of calls in order of their begins that is most like the whole: by the time that a call takes.
fn stretch(joined: &Joined, calls: &[usize], most: usize) -> (usize, usize) {
    if calls.len() <= most {
        return (0, calls.len());
    }
    let time = |from: usize, to: usize| {
        let of = |place: usize| joined.calls[calls[place]].start.0;
        of(to - 1).saturating_sub(of(from)) as f64 / (to - from) as f64
    };
    let whole = time(0, calls.len());
    let begins = (0..STRETCHES).map(|nr| (calls.len() - most) * nr / (STRETCHES - 1));
    let unlike = |from: usize| (time(from, from + most).max(1.0) / whole.max(1.0)).ln().abs();
    let best = begins.min_by(|a, b| unlike(*a).total_cmp(&unlike(*b))).unwrap_or(0);
    (best, best + most)
}

/// Advice on descriptors and on mappings, with its time.
fn advice(trace: &Trace) -> HashMap<(u32, i32), Vec<(Nanos, Advice)>> {
    let mut all: HashMap<(u32, i32), Vec<(Nanos, Advice)>> = HashMap::new();
    for record in &trace.records {
        if let Some((fd, advice)) = advised(&record.seen) {
            all.entry((record.pid, fd)).or_default().push((record.at, advice));
        }
    }
    all
}

fn path_of(joined: &Joined, call: &CallRecord) -> Path {
    match call.beside {
        Some(Way::Fault) => Path::Mapping,
        _ if replay::bare(joined, call) => Path::Direct,
        Some(Way::Aio) => Path::Direct,
        _ => Path::Cache,
    }
}

/// Time that a task of the workload usually takes from being woken to running: the 10th percentile, and the mean of
/// the middle; ns. Other tasks on the processors are seldom in it.
fn lateness(items: &[(Nanos, u8, Item)]) -> Option<(u64, u64)> {
    // Asleep, and woken since then or not.
    let mut asleep: HashMap<u32, Option<Nanos>> = HashMap::new();
    let mut all: Vec<u64> = Vec::new();
    for (at, _, item) in items {
        match item {
            Item::Leaves(pid, true) => drop(asleep.insert(*pid, None)),
            Item::Wake(_, pid) => {
                if let Some(woken @ None) = asleep.get_mut(pid) {
                    *woken = Some(*at);
                }
            }
            Item::Enters(pid) => all.extend(asleep.remove(pid).flatten().map(|woken| at.saturating_sub(woken).0)),
            _ => {}
        }
    }
    all.sort_unstable();
    let middle = &all[all.len() / 10..all.len() - all.len() / 10];
    (middle.len() >= LEAST_WAKES).then(|| (middle[0], middle.iter().sum::<u64>() / middle.len() as u64))
}

/// Events of tasks, and the calls that are made again, in order.
fn items(trace: &Trace, joined: &Joined, known: &[usize]) -> Vec<(Nanos, u8, Item)> {
    let own = |pid: u32| joined.tree.as_ref().is_none_or(|tree| tree.contains(&pid));
    let mut items = Vec::new();
    let mut waking: HashSet<u32> = HashSet::new();
    for Record { at, pid, seen, .. } in &trace.records {
        // Not every switch from an idle processor is recorded: what a task does shows that it runs.
        items.extend(waking.remove(pid).then_some((*at, 1, Item::Enters(*pid))));
        match seen {
            Seen::Wake { pid: woken } if own(*woken) => {
                waking.insert(*woken);
                items.push((*at, 1, Item::Wake(*pid, *woken)));
            }
            Seen::Switch { next, state } => {
                waking.remove(next);
                items.extend(own(*pid).then_some((*at, 1, Item::Leaves(*pid, state & 0xff != 0))));
                items.extend(own(*next).then_some((*at, 1, Item::Enters(*next))));
            }
            Seen::Other { name, fields } if name == "task:task_newtask" && own(*pid) => {
                let child = field(fields, "pid").and_then(|pid| pid.parse().ok());
                items.extend(child.map(|child| (*at, 1, Item::New(*pid, child))));
            }
            _ => {}
        }
    }
    for place in known {
        let call = &joined.calls[*place];
        items.push((call.start, 2, Item::Start(*place)));
        items.extend(call.end.map(|end| (end, 0, Item::End(*place))));
    }
    items.sort_by_key(|(at, rank, _)| (*at, *rank));
    items
}

/// The job that a joined recording is.
///
/// # Errors
/// In words, if nothing of it can be made again.
pub(super) fn of(trace: &Trace, joined: &Joined) -> Result<Recorded, String> {
    let device = device_of(joined).ok_or("the recording has no bios of the workload: nothing waited for a disk")?;
    let here = |dev: Dev| dev.major() == 0 || dev == device || dev.major() == device.major();
    let on_disk = |call: &CallRecord| call.file.is_some_and(|file| here(joined.files[file as usize].dev));
    // Everything that blocks in files, and of that the calls that are made again.
    let known: Vec<usize> = (0..joined.calls.len()).filter(|place| joined.calls[*place].file.is_some()).collect();
    let is_again =
        |place: &usize| on_disk(&joined.calls[*place]) && replay::again(joined, &joined.calls[*place]).is_ok();
    let all: Vec<usize> = known.iter().copied().filter(is_again).collect();
    if all.is_empty() {
        return Err("the recording has no calls on files of the disk that can be made again".to_owned());
    }
    let per_call = trace.records.len().div_ceil(all.len()).max(1);
    let (from, to) = stretch(joined, &all, MOST_CALLS.min((MOST_RECORDS / per_call).max(100)));
    let calls: Vec<usize> = all[from..to].to_vec();
    let first = joined.calls[calls[0]].start;
    let last = calls.iter().map(|call| joined.calls[*call].end.unwrap_or(joined.calls[*call].start)).max();
    let span = (first, last.unwrap_or(first));

    let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
    let mut files: Vec<u32> = Vec::new();
    for place in &calls {
        let file = joined.calls[*place].file.unwrap_or_default();
        numbers.entry(file).or_insert_with(|| {
            files.push(file);
            files.len() as u32 - 1
        });
    }
    let (mut threads, costs) = threads(trace, joined, (&known, &calls), &numbers, span);
    let mut used = Used::of(trace, joined, &calls, &numbers, span);
    let mut was_there = |file: u32, page: u64| used.there.iter_mut().any(|pages| pages.count(file, page, 1) > 0);
    threads.iter_mut().for_each(|thread| thread.touch_between(&mut was_there));
    let extents = extents(joined, &calls, &numbers, device);
    let mut specs: Vec<FileSpec> =
        used.bytes.iter().map(|bytes| FileSpec { bytes: (*bytes).max(1), place: Place::FileSystem }).collect();
    let mut placed = Vec::new();
    for (file, spec) in (0..).zip(&mut specs) {
        let of_file: Vec<Extent> = extents.iter().filter(|extent| extent.file == file).copied().collect();
        let bare = joined.files[files[file as usize] as usize].dev.major() == 0
            && of_file.iter().all(|extent| extent.sector.0 == extent.page * PAGE_SECTORS);
        if bare && !of_file.is_empty() {
            spec.place = Place::Device { start: Sector(0) };
        } else {
            placed.extend(of_file);
        }
    }
    let own = threads.len();
    let mut jobs: Vec<ThreadJob> = (0..).zip(threads).map(|(nr, thread)| thread.job(nr, &specs)).collect();
    let others = others(trace, joined, (&calls, device, span), &mut specs, &mut jobs);
    let ends = placed.iter().map(|extent| extent.sector.0 + extent.nr_pages * PAGE_SECTORS);
    let whole =
        specs.iter().filter(|spec| spec.place != Place::FileSystem).map(|spec| spec.bytes.div_ceil(SECTOR_BYTES));
    let nr_sectors = ends.chain(whole).max().unwrap_or(0);
    let mut job = Job::new(Workload::Threads { files: specs, threads: jobs }, 1);
    (job.cached, job.extents, job.mapping_cached) = (used.cached, placed, true);
    (job.holes, job.executable) = regions::of(trace, joined, &calls, &numbers);
    job.check()?;
    let part = calls.len() as f64 / all.len() as f64;
    let inferred = joined.inferred_windows;
    Ok(Recorded { job, files, own, others, calls, span, part, inferred, device, costs, nr_sectors })
}

/// Faults that go on where the pages mapped by the one before may end: what lies between was touched, too.
const MAPPED: u64 = 512;

impl Thread {
    /// Lets each fault touch the pages up to the next one, if that follows soon.
    fn touch_between(&mut self, was_there: &mut dyn FnMut(u32, u64) -> bool) {
        let page = |step: &Scripted| step.call.offset / PAGE_BYTES;
        let is_fault = |step: &Scripted| step.call.how.is_some_and(|how| how.path == Path::Mapping);
        for nr in 1..self.steps.len() {
            let [fault, next] = [nr - 1, nr].map(|nr| self.steps[nr]);
            let nr_pages = page(&next).saturating_sub(page(&fault));
            if is_fault(&fault) && is_fault(&next) && fault.call.file == next.call.file && nr_pages <= MAPPED {
                let between = page(&fault) + 1..page(&next);
                let nr_pages = 1 + between.take_while(|page| was_there(fault.call.file, *page)).count() as u64;
                self.steps[nr - 1].call.len_bytes = (nr_pages * PAGE_BYTES) as u32;
            }
        }
    }

    fn job(self, nr: u32, files: &[FileSpec]) -> ThreadJob {
        let mut used: Vec<u32> = self.steps.iter().map(|step| step.call.file).collect();
        used.sort_unstable();
        used.dedup();
        let target = |file: u32| Target { file, start: 0, len_bytes: files[file as usize].bytes };
        let targets = used.into_iter().map(target).collect();
        let engine = match self.asynchronous {
            true => Engine::Aio { depth: self.depth.max(1), batch_submit: 1, batch_complete: 1 },
            false => Engine::Sync,
        };
        let stream = Stream { script: Some(self.steps.into()), ..Stream::sequential(Mix::Read, targets, 4096) };
        let spec = ThreadSpec { job: nr, descriptors: 0, engine, tool: Some(Nanos::ZERO), ..ThreadSpec::new(nr) };
        ThreadJob { spec, stream }
    }
}

/// Advice by task and descriptor, with the times when it was given.
type Advised = HashMap<(u32, i32), Vec<(Nanos, Advice)>>;

/// The records of a workload, followed from first to last.
struct Follower<'a> {
    joined: &'a Joined,
    numbers: &'a BTreeMap<u32, u32>,
    span: (Nanos, Nanos),
    /// Calls that are made again.
    made: HashSet<usize>,
    /// Whether states of tasks were recorded, and the usual time from a wake-up to a processor, ns.
    stated: bool,
    usual: u64,
    advice: Advised,
    advised: HashSet<(u32, u32)>,
    opens: HashMap<u32, Vec<u32>>,
    tasks: HashMap<u32, Task>,
    threads: Vec<Thread>,
    numbered: HashMap<(u32, bool), usize>,
    work: Vec<Work>,
}

impl Follower<'_> {
    fn follow(&mut self, at: Nanos, item: Item) {
        match item {
            Item::Leaves(pid, sleeps) => {
                let state = if sleeps { State::Sleeps(at) } else { State::Comes(at) };
                self.tasks.entry(pid).or_default().becomes(state, at);
            }
            Item::Enters(pid) => self.tasks.entry(pid).or_default().becomes(State::Runs(at), at),
            Item::Wake(waker, woken) => {
                let cause = self.tasks.get(&waker).and_then(Task::latest).filter(|_| waker != woken);
                let task = self.tasks.entry(woken).or_default();
                if let State::Sleeps(_) = task.state {
                    task.becomes(State::Comes(at), at);
                    task.spent.wakes += 1;
                    task.woken = Some(at);
                }
                if task.busy == 0 && cause.is_some() {
                    task.other = cause;
                }
            }
            Item::New(parent, child) => {
                let cause = self.tasks.get(&parent).and_then(Task::latest);
                self.tasks.insert(child, Task { ready: Some(at), other: cause, ..Task::default() });
            }
            Item::Start(place) => self.start(at, place),
            Item::End(place) => self.end(at, place),
        }
    }

    /// The way of a call: path, descriptors, and the advice since the last one.
    fn how(&mut self, at: Nanos, call: &CallRecord, file: u32) -> How {
        let of_file = self.opens.entry(file).or_default();
        let set = of_file.iter().position(|open| *open == call.open).unwrap_or_else(|| {
            of_file.push(call.open);
            of_file.len() - 1
        });
        let due = |list: &Vec<(Nanos, Advice)>| list.iter().rev().find(|(given, _)| *given <= at).copied();
        let said = match call.fd {
            // Of mappings nobody knows which one: it counts for all files that the task maps.
            -1 => {
                let given = self.advice.get(&(call.pid, -1)).and_then(due);
                given.filter(|_| self.advised.insert((call.pid, file)))
            }
            fd => self.advice.get_mut(&(call.pid, fd)).and_then(|list| {
                let said = due(list);
                list.retain(|(given, _)| *given > at);
                said
            }),
        };
        How { path: path_of(self.joined, call), descriptors: set as u32, advice: said.map(|(_, it)| it) }
    }

    fn start(&mut self, at: Nanos, place: usize) {
        let joined = self.joined;
        let call = &joined.calls[place];
        let beside = call.is_asynchronous();
        // Of a call whose end was not seen nobody knows how long it kept its task.
        let busy = u32::from(!beside && call.end.is_some());
        if !self.made.contains(&place) {
            self.tasks.entry(call.pid).or_default().busy += busy;
            return;
        }
        let Ok(again) = replay::again(joined, call) else { return };
        let how = self.how(at, call, again.file);
        let synced = how.path == Path::Cache
            && call.op == Op::Write
            && call.bios.iter().any(|bio| {
                let extent = &joined.bios[*bio as usize].extent;
                extent.rwbs.has(Rwbs::WRITE.with(Rwbs::SYNC)) && !extent.rwbs.has(Rwbs::META)
            });
        let step = Scripted::new(iowhy_stack::workload::Call {
            file: self.numbers[&again.file],
            then: synced.then_some(Op::Fdatasync),
            how: Some(how),
            ..again
        });
        let task = self.tasks.entry(call.pid).or_default();
        let number = *self.numbered.entry((call.pid, beside)).or_insert_with(|| {
            let ready = task.ready.filter(|ready| *ready >= self.span.0).unwrap_or(self.span.0);
            self.threads.push(Thread { steps: vec![], ended: 0, in_flight: 0, depth: 0, ready, asynchronous: beside });
            self.threads.len() - 1
        });
        task.busy += busy;
        let step = self.timed(at, (call.pid, beside), number, step);
        let thread = &mut self.threads[number];
        thread.steps.push(step);
        thread.in_flight += 1;
        thread.depth = thread.depth.max(thread.in_flight);
    }

    /// A call with what its thread did since the one before: it computed, slept, or waited for a call of another one.
    fn timed(&mut self, at: Nanos, (pid, beside): (u32, bool), number: usize, mut step: Scripted) -> Scripted {
        let thread = &self.threads[number];
        let task = self.tasks.entry(pid).or_default();
        // While others are in flight nobody knows whether the task has waited or thought.
        let ready = if thread.in_flight == 0 { thread.ready } else { at };
        let gap = at.saturating_sub(ready);
        let spent = task.spent(at, true);
        // Others that have the processors are kept as they were; a wake-up is the model's.
        let beyond = spent.late.saturating_sub(self.usual * spent.wakes);
        let ran = match self.stated {
            // Time without any other state is computing.
            true => gap.0.saturating_sub(spent.slept + spent.late) + beyond,
            false if gap.0 <= COMPUTING => gap.0,
            false => 0,
        };
        step.spin = Nanos(ran).min(gap);
        match task.other.take().filter(|(other, _, end)| *other != number && *end >= self.span.0 && !beside) {
            Some((other, calls, end)) => {
                // The model has its own time from a wake-up to a processor.
                let after = task.woken.map_or(0, |woken| at.saturating_sub(woken).0.saturating_sub(spent.late));
                let lag = task.woken.filter(|woken| *woken >= end).map_or(at, |woken| woken + Nanos(after));
                step.spin = step.spin.saturating_sub(Nanos(after));
                let lag = lag.saturating_sub(end);
                step.after = Some(After { thread: other as u32, calls, lag });
            }
            None if self.stated => step.pause = Nanos(spent.slept).min(gap.saturating_sub(step.spin)),
            None => step.pause = gap.saturating_sub(step.spin),
        }
        if step.after.is_none() && thread.steps.is_empty() {
            step.pause += thread.ready.saturating_sub(self.span.0);
        }
        step.spin += Nanos(std::mem::take(&mut task.waited));
        step
    }

    fn end(&mut self, at: Nanos, place: usize) {
        let call = &self.joined.calls[place];
        let beside = call.is_asynchronous();
        let task = self.tasks.entry(call.pid).or_default();
        let spent = task.spent(at, true);
        if !beside {
            task.busy = task.busy.saturating_sub(1);
        }
        let number = self.numbered.get(&(call.pid, beside)).copied();
        let Some(number) = number.filter(|_| self.made.contains(&place)) else { return };
        let thread = &mut self.threads[number];
        thread.in_flight = thread.in_flight.saturating_sub(1);
        thread.ended += 1;
        thread.ready = at;
        (task.own, task.other) = (Some((number, thread.ended, at)), None);
        if self.stated && !beside {
            task.waited = spent.late.saturating_sub(self.usual * spent.wakes);
            let pages = call.result.unwrap_or(0).max(0) as u64;
            let (pages, added) = (pages.div_ceil(PAGE_BYTES), call.pages_added);
            self.work.push(Work { pages, added, bios: call.bios.len() as u64, spent });
        }
    }
}

/// The threads of the workload with their calls.
fn threads(
    trace: &Trace,
    joined: &Joined,
    (known, calls): (&[usize], &[usize]),
    numbers: &BTreeMap<u32, u32>,
    span: (Nanos, Nanos),
) -> (Vec<Thread>, Costs) {
    let items = items(trace, joined, known);
    let late = lateness(&items);
    let mut follower = Follower {
        joined,
        numbers,
        span,
        made: calls.iter().copied().collect(),
        stated: trace.records.iter().any(|record| matches!(record.seen, Seen::Switch { .. })),
        usual: late.map_or(0, |(_, mean)| mean),
        advice: advice(trace),
        advised: HashSet::new(),
        opens: HashMap::new(),
        tasks: HashMap::new(),
        threads: Vec::new(),
        numbered: HashMap::new(),
        work: Vec::new(),
    };
    items.into_iter().for_each(|(at, _, item)| follower.follow(at, item));
    let Follower { threads, work, .. } = follower;
    (threads, Costs { work, late })
}

/// How far files were used, and what was cached at first, or at any time.
struct Used {
    bytes: Vec<u64>,
    cached: Vec<Target>,
    there: [PageSet; 2],
}

impl Used {
    fn of(trace: &Trace, joined: &Joined, calls: &[usize], numbers: &BTreeMap<u32, u32>, span: (Nanos, Nanos)) -> Used {
        let mut reach = vec![0_u64; numbers.len()];
        let mut ends: Vec<Option<u64>> = vec![None; numbers.len()];
        let inodes: HashMap<_, u32> =
            numbers.iter().map(|(known, number)| (joined.files[*known as usize], *number)).collect();
        let mut added = PageSet::default();
        let mut found = PageSet::default();
        let mut cached: Vec<(u32, u64, u64)> = Vec::new();
        let mut finds = |added: &mut PageSet, file: u32, from: u64, to: u64| {
            for page in from..to {
                if added.count(file, page, 1) == 0 && found.insert(file, page, 1) == 0 {
                    match cached.last_mut() {
                        Some((last, _, end)) if *last == file && *end == page => *end += 1,
                        _ => cached.push((file, page, page + 1)),
                    }
                }
            }
        };
        // Short reads anywhere in the recording say where a file ends.
        for call in &joined.calls {
            let (Some(file), Some(offset), Some(done)) = (call.file, call.offset, call.result) else { continue };
            let Some(number) = numbers.get(&file) else { continue };
            if call.op == Op::Read && done >= 0 && (done as u64) < call.len && call.beside.is_none() {
                let end = offset.saturating_add(done as u64);
                let known = &mut ends[*number as usize];
                *known = Some(known.unwrap_or(0).max(end));
            }
        }
        let mut by_end: Vec<usize> = calls.to_vec();
        by_end.sort_by_key(|call| joined.calls[*call].end);
        let mut done = by_end.into_iter().peekable();
        let mut windows = Vec::new();
        let mut progress = InProgress::new(joined, calls);
        for record in trace.records.iter().filter(|record| record.at >= span.0 && record.at <= span.1) {
            while let Some(place) = done.next_if(|place| joined.calls[*place].end.is_some_and(|end| end <= record.at)) {
                let call = &joined.calls[place];
                let Ok(again) = replay::again(joined, call) else { continue };
                let number = numbers[&again.file];
                let end = again.offset.saturating_add(u64::from(again.len_bytes));
                reach[number as usize] = reach[number as usize].max(end);
                if again.len_bytes > 0 && path_of(joined, call) != Path::Direct {
                    finds(&mut added, number, again.offset / PAGE_BYTES, end.div_ceil(PAGE_BYTES));
                }
            }
            let Some(number) = record.seen.file().and_then(|inode| inodes.get(&inode)).copied() else { continue };
            if progress.is_unasked(record) {
                continue;
            }
            match record.seen {
                Seen::PageAdd { index, order, .. } => {
                    added.insert(number, index, 1 << order.min(31));
                    let end = (index + (1 << order.min(31))) * PAGE_BYTES;
                    reach[number as usize] = reach[number as usize].max(end);
                }
                Seen::RaOrder { index, size, .. } => windows.push((number, index, u64::from(size))),
                Seen::RaUnbounded { index, nr_to_read, .. } => windows.push((number, index, nr_to_read)),
                _ => {}
            }
        }
        for place in done {
            if let Ok(again) = replay::again(joined, &joined.calls[place]) {
                let number = numbers[&again.file] as usize;
                reach[number] = reach[number].max(again.offset.saturating_add(u64::from(again.len_bytes)));
            }
        }
        let bytes: Vec<u64> = reach
            .iter()
            .zip(&ends)
            .map(|(reach, end)| match end {
                // Folios may go beyond the end.
                Some(end) if end.next_multiple_of(1 << 21) >= *reach => (*end).max(1),
                _ => reach.next_multiple_of(PAGE_BYTES),
            })
            .collect();
        for (number, start, nr) in windows {
            let end = (start.saturating_add(nr)).min(bytes[number as usize].div_ceil(PAGE_BYTES));
            finds(&mut added, number, start, end);
        }
        Used { bytes, cached: cached.into_iter().map(region).collect(), there: [added, found] }
    }
}

/// Where bios found the blocks of files.
fn extents(joined: &Joined, calls: &[usize], numbers: &BTreeMap<u32, u32>, device: Dev) -> Vec<Extent> {
    let mut seen: Vec<Extent> = Vec::new();
    for bio in joined.bios.iter().filter(|bio| bio.extent.dev == device) {
        let mut sector = bio.extent.sector;
        for pages in &bio.pages {
            if let Some(file) = numbers.get(&pages.file) {
                seen.push(Extent { file: *file, page: pages.start, nr_pages: pages.nr_pages, sector });
            }
            sector = sector.plus(pages.nr_pages * PAGE_SECTORS);
        }
    }
    for call in calls.iter().map(|place| &joined.calls[*place]) {
        let (Some(file), Some(offset)) = (call.file.and_then(|file| numbers.get(&file)), call.offset) else { continue };
        if path_of(joined, call) != Path::Direct || !offset.is_multiple_of(PAGE_BYTES) {
            continue;
        }
        let mut page = offset / PAGE_BYTES;
        for bio in call.bios.iter().map(|bio| &joined.bios[*bio as usize]) {
            let data = bio.extent.dev == device && bio.pages.is_empty() && !bio.extent.rwbs.has(Rwbs::META);
            if data && bio.extent.bytes > 0 {
                let nr_pages = u64::from(bio.extent.bytes).div_ceil(PAGE_BYTES);
                seen.push(Extent { file: *file, page, nr_pages, sector: bio.extent.sector });
                page += nr_pages;
            }
        }
    }
    seen.sort_by_key(|extent| (extent.file, extent.page));
    let mut out: Vec<Extent> = Vec::new();
    for mut extent in seen {
        if let Some(last) = out.last_mut().filter(|last| last.file == extent.file) {
            let end = last.page + last.nr_pages;
            let known = end.saturating_sub(extent.page).min(extent.nr_pages);
            extent.page += known;
            extent.nr_pages -= known;
            extent.sector = extent.sector.plus(known * PAGE_SECTORS);
            if extent.nr_pages == 0 {
                continue;
            }
            if extent.sector.0 == last.sector.0 + (extent.page - last.page) * PAGE_SECTORS {
                last.nr_pages = extent.page + extent.nr_pages - last.page;
                continue;
            }
        }
        out.push(extent);
    }
    out
}

/// Adds the bios of others as threads on the bare device; yields their names.
fn others(
    trace: &Trace,
    joined: &Joined,
    (calls, device, span): (&[usize], Dev, (Nanos, Nanos)),
    files: &mut Vec<FileSpec>,
    threads: &mut Vec<ThreadJob>,
) -> Vec<String> {
    let Some(tree) = &joined.tree else { return Vec::new() };
    let writes = calls.iter().any(|place| joined.calls[*place].op != Op::Read);
    let theirs = |record: &Record| {
        let Seen::Queue(extent) = &record.seen else { return false };
        let of_worker =
            of_kernel(trace, record.pid) && (writes || extent.rwbs.has(Rwbs::READ) || extent.rwbs.has(Rwbs::META));
        let within = record.at >= span.0 && record.at <= span.1;
        within && extent.dev == device && !tree.contains(&record.pid) && !of_worker
    };
    let held: HashSet<(Nanos, u64)> =
        (joined.bios.iter().filter(|bio| bio.call != 0)).map(|bio| (bio.at, bio.extent.sector.0)).collect();
    let theirs = |record: &Record| {
        theirs(record) && record.seen.extent().is_some_and(|it| !held.contains(&(record.at, it.sector.0)))
    };
    let found = replay::of_bios(trace, Mode::Closed, ReplaySite::Simulated(u64::MAX), &theirs);
    let base = files.len() as u32;
    let begin = trace.records.iter().find(|record| theirs(record)).map_or(span.0, |record| record.at);
    files.extend(found.files.iter().map(|file| FileSpec { bytes: file.bytes.next_multiple_of(PAGE_BYTES), ..*file }));
    let mut names = Vec::new();
    for mut other in found.threads.into_iter().filter(|thread| !thread.steps.is_empty()) {
        let nr = threads.len() as u32;
        // Closed replays begin with the first bio of all.
        other.steps[0].pause += begin.saturating_sub(span.0);
        other.steps.iter_mut().for_each(|step| step.call.file += base);
        let target = |file: u32| Target { file, start: 0, len_bytes: files[file as usize].bytes };
        let targets = (base..files.len() as u32).map(target).collect();
        let stream = Stream { script: Some(other.steps.into()), ..Stream::sequential(Mix::Read, targets, 4096) };
        let spec = ThreadSpec {
            job: nr,
            descriptors: 0,
            direct: true,
            engine: other.engine,
            tool: Some(Nanos::ZERO),
            stranger: true,
            ..ThreadSpec::new(nr)
        };
        threads.push(ThreadJob { spec, stream });
        names.push(other.name);
    }
    names
}
