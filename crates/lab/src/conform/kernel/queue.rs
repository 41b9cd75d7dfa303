//! Requests of a disk under its scheduler: what becomes of every bio, against what the rules of the queue make of it.
//!
//! Question by question, as for decisions: the state of the queue (plugs, requests that wait) is what the events show
//! when a bio arrives; the model says whether the bio joins a request, which one, or is a new one, and whether two
//! requests become one. A request matches if it is issued with the place and size that the model has for it, and
//! everything that made it was the model's.
//!
//! ```text
//! a bio             is cut at the largest request, or after as many pages as a request may have pieces at least
//! plug              joins the last request of the task's plug, behind or in front (`blk_attempt_plug_merge`)
//! none              else one of the same CPU's last eight that wait (`blk_mq_sched_bio_merge`), if nobody took them
//! kyber             else one of the CPU's last eight of its direction (`kyber_bio_merge`), until a request of that
//!                   direction is dispatched: then all of them wait elsewhere
//! mq-deadline       else any that waits, behind or in front (`elv_merge`), which may then join its neighbour
//!                   (`attempt_back_merge`); a plug's request joins the one that ends where it begins
//!                   (`elv_attempt_insert_merge`)
//! bfq               as mq-deadline, but a bio only joins requests of its own queue: of the same task for certain
//! none of these     becomes a new request
//! ```
//! A request that was once refused for its size takes no more. Both are right where no event shows which: a request
//! may have been taken off a moment before it is issued, or before the first of the run of requests that its task
//! issues one right after the other, or it waits for the driver with those that are issued next; where pages may be
//! too many pieces of memory; and where two requests end at the
//! same sector.
//!
//! Known limits: the order of requests and their times are not judged; nor are discards, flushes without data, and
//! requests whose bios came before the trace. Control groups and priorities of tasks keep requests apart, too, and are
//! taken to be one. Before 6.0 the plug is searched differently.
//!
//! Source: Linux 6.18, block/blk-mq.c, `blk_mq_submit_bio`, `blk_add_rq_to_plug`; block/blk-merge.c,
//! `ll_back_merge_fn`, `attempt_merge`, `blk_bio_list_merge`; block/elevator.c, `elv_merge`; block/mq-deadline.c,
//! `dd_insert_request`; block/kyber-iosched.c, `kyber_flush_busy_kcqs`; block/bfq-iosched.c, `bfq_allow_bio_merge`.

use std::collections::{BTreeMap, BTreeSet};

use iowhy_stack::trace::{Dev, Extent, Record, Rwbs, Seen, Trace};
use iowhy_stack::units::{Nanos, PAGE_BYTES, SECTOR_BYTES};

use super::Count;

/// How bios find requests that wait.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Finds {
    /// Those of this CPU, until somebody takes them.
    OfCpu,
    /// Those of this CPU and direction, until one of the direction is dispatched.
    OfDirection,
    /// Any.
    Any,
    /// Any of the same task; those of others perhaps.
    OfTask,
}

/// The schedulers whose rules are known.
const SCHEDULERS: &[(&str, Finds)] =
    &[("none", Finds::OfCpu), ("kyber", Finds::OfDirection), ("mq-deadline", Finds::Any), ("bfq", Finds::OfTask)];

/// A queue, as sysfs has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    pub name: String,
    pub number: Dev,
    pub scheduler: String,
    pub max_sectors_kb: u64,
    pub max_segments: u64,
    pub physical_block_bytes: u64,
    pub nomerges: u64,
    /// Memory may not have gaps: whether it has is in no event.
    pub no_gaps: bool,
}

/// The comparison of one disk.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskChecked {
    pub name: String,
    pub scheduler: String,
    pub requests: Count,
}

/// Events before a run of issues within which its requests may have been taken.
const SOON: usize = 64;
/// Requests that may wait for the driver outside of the scheduler: each CPU takes one off before it knows that the
/// device takes no more.
const TAKEN: usize = 4;
/// The longest time between two issues of a run.
const RUN: Nanos = Nanos(100_000);
/// Requests of a list that are looked at (`blk_bio_list_merge`).
const LOOKED_AT: usize = 8;
/// Sectors between tasks that work close by (`BFQQ_CLOSE_THR`).
const CLOSE: u64 = 8 * 1024;
/// Bios that wait to be seen as requests, at most.
const MOST_PARTS: usize = 4096;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Place {
    /// In the plug of its task.
    Plug,
    /// It left the plug and is not seen in the queue yet.
    Between,
    /// In the scheduler.
    Waits,
    /// In the scheduler, where perhaps no bio looks.
    PerhapsOut,
    /// In the scheduler, where no bio looks.
    OutOfReach,
}

#[derive(Clone, Debug)]
struct Request {
    first: u64,
    bytes: u64,
    rwbs: Rwbs,
    task: u32,
    cpu: u32,
    place: Place,
    /// The record by which it came there.
    since: usize,
    nr_bios: u64,
    /// A bio of it may be another's that ended at the same sector.
    doubtful: bool,
    /// It was refused once.
    closed: bool,
    /// The workload has a bio in it.
    own: bool,
    /// Everything that made it was the model's, or what was not.
    wrong: Option<String>,
}

impl Request {
    fn end(&self) -> u64 {
        self.first + self.bytes / SECTOR_BYTES
    }

    fn direction(&self) -> Rwbs {
        Rwbs(self.rwbs.0 & (Rwbs::READ.0 | Rwbs::WRITE.0))
    }
}

/// A bio, or the rest of one, that is not yet a request.
#[derive(Copy, Clone, Debug)]
struct Part {
    first: u64,
    bytes: u64,
    own: bool,
    /// It was cut where nothing asks for it.
    badly_cut: bool,
}

/// Whether two can be one.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fits {
    No,
    Perhaps,
    Yes,
}

/// The tasks whose work this is.
pub(super) fn workload(trace: &Trace) -> BTreeSet<u32> {
    let is_own = |seen: &Seen| seen.file().is_some() || matches!(seen, Seen::CallStart { .. });
    trace.records.iter().filter(|record| is_own(&record.seen)).map(|record| record.pid).collect()
}

/// Compares the requests of one disk that the workload has a part in; nothing under an unknown scheduler.
pub(super) fn compare(trace: &Trace, queue: &Queue, workload: &BTreeSet<u32>) -> Option<DiskChecked> {
    let finds = SCHEDULERS.iter().find(|(name, _)| *name == queue.scheduler)?.1;
    let is_here = |dev: Dev| dev == queue.number || (dev.major() == queue.number.major() && is_part(dev, queue));
    let mut model = Model { queue, finds, requests: Vec::new(), parts: Vec::new(), due: None, count: Count::default() };
    // By where a request begins: when it is issued, and when the run of issues began; and when any is.
    let mut issues: BTreeMap<u64, Vec<(usize, usize)>> = BTreeMap::new();
    let mut all: Vec<usize> = Vec::new();
    let mut runs: BTreeMap<u32, (Nanos, usize)> = BTreeMap::new();
    for (nr, Record { at, pid, seen, .. }) in trace.records.iter().enumerate() {
        match seen {
            Seen::Issue(extent) if is_here(extent.dev) => {
                let run = runs.entry(*pid).or_insert((*at, nr));
                let begun = if at.0 - run.0.0 <= RUN.0 { run.1 } else { nr };
                *run = (*at, begun);
                issues.entry(extent.sector.0).or_default().push((nr, begun));
                all.push(nr);
            }
            Seen::Complete { .. } => {}
            _ => drop(runs.remove(pid)),
        }
    }
    for (nr, Record { pid, cpu, seen, .. }) in trace.records.iter().enumerate() {
        if let Seen::Unplug { nr_requests, .. } = seen {
            model.unplug(*pid, *nr_requests as usize);
        }
        let Some(extent) = seen.extent().filter(|extent| is_here(extent.dev)) else { continue };
        if !matches!(seen, Seen::MergeRequests(_)) {
            model.nothing_joined(*pid);
        }
        let soon = |request: &Request| {
            let of = issues.get(&request.first).map_or(&[][..], Vec::as_slice);
            let next = all.partition_point(|issue| *issue < nr) + TAKEN - 1;
            let next = all.get(next).copied().unwrap_or(usize::MAX);
            of.iter().any(|(issue, run)| *issue >= nr && (*run <= nr + SOON || *issue <= next))
        };
        let task = Task { pid: *pid, cpu: *cpu, nr };
        match seen {
            Seen::Queue(_) if extent.bytes > 0 => model.arrives(extent, workload.contains(pid)),
            Seen::Split { rest, .. } => model.split(extent.sector.0, rest.0),
            Seen::GetRequest(_) => model.placed(task, extent, None, &soon),
            Seen::BackMerge(_) => model.placed(task, extent, Some(true), &soon),
            Seen::FrontMerge(_) => model.placed(task, extent, Some(false), &soon),
            Seen::MergeRequests(_) => model.joined(*pid, extent),
            Seen::Insert(_) => model.inserted(task, extent, &soon),
            Seen::Issue(_) => {
                let of = issues.get(&extent.sector.0).and_then(|all| all.iter().find(|(issue, _)| *issue == nr));
                // Those that were taken off and had to wait for the driver were taken off before the run.
                let taken = all.partition_point(|issue| *issue < nr).checked_sub(TAKEN).map_or(0, |at| all[at]);
                model.issued(extent, of.map_or(nr, |(_, run)| *run).min(taken));
            }
            _ => {}
        }
    }
    let Queue { name, scheduler, .. } = queue.clone();
    Some(DiskChecked { name, scheduler, requests: model.count })
}

/// Whether this is a partition, which has a number behind that of its disk.
fn is_part(dev: Dev, queue: &Queue) -> bool {
    // Numbers of loop devices and their like are the disks' own.
    let of_disks = queue.name.starts_with("loop") || queue.name.starts_with("ram") || queue.name.starts_with("zram");
    !of_disks && (queue.number.minor()..queue.number.minor() + 16).contains(&dev.minor())
}

#[derive(Copy, Clone, Debug)]
struct Task {
    pid: u32,
    cpu: u32,
    /// The record of what it does.
    nr: usize,
}

struct Model<'a> {
    queue: &'a Queue,
    finds: Finds,
    /// Those that are not issued, in the order in which they came to where they are.
    requests: Vec<Request>,
    parts: Vec<Part>,
    /// A task has made a request reach its neighbour: they must become one next.
    due: Option<(u32, u64)>,
    count: Count,
}

impl Model<'_> {
    fn most_bytes(&self) -> u64 {
        self.queue.max_sectors_kb * 1024
    }

    /// Whether this may be more pieces of memory than a request has: that of a program need not begin with a page.
    fn may_be_too_many(&self, bytes: u64, nr_bios: u64) -> bool {
        bytes.div_ceil(PAGE_BYTES) + nr_bios > self.queue.max_segments || self.queue.no_gaps
    }

    fn arrives(&mut self, extent: &Extent, own: bool) {
        if self.parts.len() == MOST_PARTS {
            self.parts.remove(0);
        }
        let (first, bytes) = (extent.sector.0, u64::from(extent.bytes));
        self.parts.push(Part { first, bytes, own, badly_cut: false });
    }

    fn split(&mut self, first: u64, rest: u64) {
        let Some(at) = self.parts.iter().rposition(|part| part.first == first) else { return };
        let part = self.parts[at];
        let before = rest.saturating_sub(first) * SECTOR_BYTES;
        if before == 0 || before >= part.bytes {
            return;
        }
        // The second part begins with a physical block, if there is one within reach.
        let block = self.queue.physical_block_bytes.max(SECTOR_BYTES);
        let (start, end) = (first * SECTOR_BYTES, first * SECTOR_BYTES + self.most_bytes());
        let aligned = (end / block * block).saturating_sub(start);
        let by_size = part.bytes > self.most_bytes() && [aligned, self.most_bytes()].contains(&before);
        let is_full = self.queue.no_gaps || before.div_ceil(PAGE_BYTES) + 1 >= self.queue.max_segments;
        let by_memory = self.may_be_too_many(part.bytes, 1) && is_full;
        let badly_cut = part.badly_cut || !(by_size || by_memory);
        self.parts[at] = Part { bytes: before, badly_cut, ..part };
        self.parts.push(Part { first: rest, bytes: part.bytes - before, badly_cut, ..part });
    }

    /// Whether this many bytes of these bios fit into one request.
    fn size(&self, bytes: u64, nr_bios: u64) -> Fits {
        match bytes > self.most_bytes() {
            true => Fits::No,
            false if self.may_be_too_many(bytes, nr_bios) => Fits::Perhaps,
            false => Fits::Yes,
        }
    }

    /// Whether nothing but size is in the way.
    fn alike(&self, request: &Request, extent: &Extent) -> bool {
        // Metadata is accounted to nobody's control group.
        let kinds = [Rwbs::READ, Rwbs::WRITE, Rwbs::META, Rwbs::DISCARD];
        let unmergeable = |rwbs: Rwbs| rwbs.has(Rwbs::PREFLUSH) || rwbs.has(Rwbs::FUA) || rwbs.has(Rwbs::PASSTHROUGH);
        let same = kinds.iter().all(|kind| request.rwbs.has(*kind) == extent.rwbs.has(*kind));
        same && !request.closed && !unmergeable(request.rwbs) && !unmergeable(extent.rwbs) && self.queue.nomerges < 2
    }

    /// Requests that a bio can join by the rules, the first that counts first, with whether it must.
    fn candidates(&self, task: Task, extent: &Extent, soon: &dyn Fn(&Request) -> bool) -> Vec<(usize, bool, Fits)> {
        let end = extent.sector.0 + u64::from(extent.bytes) / SECTOR_BYTES;
        let touches = |request: &Request| request.end() == extent.sector.0 || request.first == end;
        let fits = |request: &Request| match self.alike(request, extent) && touches(request) {
            true => self.size(request.bytes + u64::from(extent.bytes), request.nr_bios + 1),
            false => Fits::No,
        };
        let back = |request: &Request| request.end() == extent.sector.0;
        let mut found = Vec::new();
        let plugged = self.requests.iter().rposition(|it| it.place == Place::Plug && it.task == task.pid);
        if let Some(at) = plugged {
            found.push((at, back(&self.requests[at]), fits(&self.requests[at])));
        }
        let waits = [Place::Waits, Place::PerhapsOut];
        let waits = self.requests.iter().enumerate().rev().filter(|(_, it)| waits.contains(&it.place));
        let is_near = |it: &Request| match self.finds {
            Finds::OfCpu => it.cpu == task.cpu,
            Finds::OfDirection => it.cpu == task.cpu && extent.rwbs.has(it.direction()),
            Finds::Any | Finds::OfTask => true,
        };
        let most = match self.finds {
            Finds::OfCpu | Finds::OfDirection => LOOKED_AT,
            Finds::Any | Finds::OfTask => usize::MAX,
        };
        for (at, request) in waits.filter(|(_, it)| is_near(it)).take(most) {
            let is_certain = match self.finds {
                Finds::OfCpu => false,
                Finds::OfTask => {
                    let same = request.rwbs.has(Rwbs::SYNC) == extent.rwbs.has(Rwbs::SYNC);
                    same && request.task == task.pid && !self.has_neighbours(request)
                }
                Finds::Any | Finds::OfDirection => true,
            };
            let is_certain = is_certain && !soon(request) && request.place == Place::Waits && self.queue.nomerges == 0;
            found.push((at, back(request), if is_certain { fits(request) } else { fits(request).min(Fits::Perhaps) }));
        }
        found.retain(|(at, ..)| touches(&self.requests[*at]));
        // Which of those that end or begin at the same sector is found, no event shows.
        let waiting = found.iter().filter(|(at, ..)| self.requests[*at].place != Place::Plug);
        if waiting.clone().count() > 1 && waiting.clone().any(|(.., fits)| *fits < Fits::Yes) {
            let waits = |at: usize| self.requests[at].place != Place::Plug;
            found.iter_mut().filter(|(at, ..)| waits(*at)).for_each(|it| it.2 = it.2.min(Fits::Perhaps));
        }
        found
    }

    /// Whether another task works close by: bfq may have made one queue of both meanwhile (`bfq_setup_cooperator`).
    fn has_neighbours(&self, request: &Request) -> bool {
        let is_near = |it: &Request| it.task != request.task && it.first.abs_diff(request.first) <= CLOSE;
        self.requests.iter().any(is_near)
    }

    /// A bio became a new request, or joined one at its end (`Some(true)`) or start.
    fn placed(&mut self, task: Task, extent: &Extent, join: Option<bool>, soon: &dyn Fn(&Request) -> bool) {
        let (first, bytes) = (extent.sector.0, u64::from(extent.bytes));
        // Nothing is known of what came before the trace.
        let Some(at) = self.parts.iter().rposition(|part| (part.first, part.bytes) == (first, bytes)) else { return };
        let part = self.parts.remove(at);
        let cut = part.badly_cut || bytes > self.most_bytes();
        let mut wrong = cut.then(|| format!("a bio of {bytes} bytes at sector {first} was cut elsewhere"));
        let candidates = self.candidates(task, extent, soon);
        let Some(is_back) = join else {
            if let Some((must, ..)) = candidates.iter().find(|(.., fits)| *fits == Fits::Yes) {
                let it = &self.requests[*must];
                wrong =
                    Some(format!("a bio at sector {first} is a new request, model: joins {}+{}", it.first, it.bytes));
            }
            // Those that were asked and refused take no more.
            candidates.iter().for_each(|(at, ..)| {
                if self.requests[*at].place == Place::Plug || self.alike(&self.requests[*at], extent) {
                    self.requests[*at].closed |= self.size(self.requests[*at].bytes + bytes, 1) == Fits::No;
                }
            });
            let place = Place::Plug;
            let (rwbs, own) = (extent.rwbs, part.own);
            let Task { pid, cpu, nr } = task;
            let (closed, doubtful) = (false, false);
            self.requests.push(Request {
                first,
                bytes,
                rwbs,
                task: pid,
                cpu,
                place,
                since: nr,
                nr_bios: 1,
                doubtful,
                closed,
                own,
                wrong,
            });
            return;
        };
        let end = first + bytes / SECTOR_BYTES;
        let same = candidates.iter().filter(|(_, back, _)| *back == is_back);
        if same.clone().count() > 1 {
            same.for_each(|(at, ..)| self.requests[*at].doubtful = true);
        }
        let allowed =
            candidates.iter().find(|(_, back, fits)| *back == is_back && *fits > Fits::No).map(|(at, ..)| *at);
        // What the kernel did counts from here on.
        let reaches = |it: &Request| if is_back { it.end() == first } else { it.first == end };
        let other = || self.requests.iter().rposition(|it| it.place != Place::Between && reaches(it));
        let Some(at) = allowed.or_else(other) else { return };
        if allowed.is_none() {
            let it = &self.requests[at];
            wrong = Some(format!("a bio at sector {first} joined {}+{}, model: it does not", it.first, it.bytes));
        }
        let request = &mut self.requests[at];
        request.bytes += bytes;
        request.first = request.first.min(first);
        request.nr_bios += 1;
        request.own |= part.own;
        request.wrong = request.wrong.take().or(wrong);
        self.reaches_neighbour(task.pid, at, is_back, soon);
    }

    /// A request that waits and grew must become one with the one that it reaches now.
    fn reaches_neighbour(&mut self, pid: u32, at: usize, is_back: bool, soon: &dyn Fn(&Request) -> bool) {
        let request = &self.requests[at];
        if request.place != Place::Waits || !matches!(self.finds, Finds::Any) {
            return;
        }
        let is_next = |it: &Request| if is_back { it.first == request.end() } else { it.end() == request.first };
        let next = self.requests.iter().find(|it| it.place == Place::Waits && is_next(it) && self.both(request, it));
        let must = next.filter(|it| !soon(it) && !soon(request));
        let must = must.filter(|it| self.size(request.bytes + it.bytes, request.nr_bios + it.nr_bios) == Fits::Yes);
        self.due = must.map(|_| (pid, request.first));
    }

    /// Whether two requests are alike.
    fn both(&self, one: &Request, other: &Request) -> bool {
        let extent = Extent { rwbs: other.rwbs, ..Extent::default() };
        self.alike(one, &extent) && !other.closed
    }

    /// The task goes on without having made one of two requests that it had to.
    fn nothing_joined(&mut self, pid: u32) {
        if let Some((_, first)) = self.due.take_if(|(by, _)| *by == pid)
            && let Some(request) = self.requests.iter_mut().find(|it| it.first == first)
        {
            request.wrong.get_or_insert_with(|| format!("the request at sector {first} was not united with the next"));
        }
    }

    /// Two requests became one: this is the second.
    fn joined(&mut self, pid: u32, extent: &Extent) {
        self.due.take_if(|(by, _)| *by == pid);
        let is_it = |it: &Request| (it.first, it.bytes) == (extent.sector.0, u64::from(extent.bytes));
        let Some(at) = self.requests.iter().position(is_it) else { return };
        let second = self.requests.remove(at);
        let is_before = |it: &&mut Request| it.place == Place::Waits && it.end() == second.first;
        let several = self.requests.iter_mut().filter(is_before).count() > 1;
        self.requests.iter_mut().filter(is_before).for_each(|it| it.doubtful |= several || second.doubtful);
        let found = self.requests.iter().position(|it| it.place == Place::Waits && it.end() == second.first);
        let Some(at) = found else { return };
        let first = &self.requests[at];
        let fits = self.both(first, &second)
            && self.size(first.bytes + second.bytes, first.nr_bios + second.nr_bios) > Fits::No
            && matches!(self.finds, Finds::Any | Finds::OfTask);
        let wrong = second.wrong.or_else(|| {
            (!fits).then(|| format!("requests at sectors {} and {} became one", first.first, second.first))
        });
        let first = &mut self.requests[at];
        first.bytes += second.bytes;
        first.nr_bios += second.nr_bios;
        first.own |= second.own;
        first.wrong = first.wrong.take().or(wrong);
    }

    /// A plug's requests go to the queue; one that is being added stays.
    fn unplug(&mut self, pid: u32, n: usize) {
        let plugged = self.requests.iter_mut().filter(|it| it.place == Place::Plug && it.task == pid);
        plugged.take(n).for_each(|it| it.place = Place::Between);
    }

    /// A request waits in the scheduler from now on.
    fn inserted(&mut self, task: Task, extent: &Extent, soon: &dyn Fn(&Request) -> bool) {
        let is_it = |it: &Request| {
            (it.first, it.bytes) == (extent.sector.0, u64::from(extent.bytes)) && it.place != Place::Waits
        };
        let Some(at) = self.requests.iter().position(is_it) else { return };
        let mut request = self.requests.remove(at);
        if matches!(self.finds, Finds::Any | Finds::OfTask) {
            let is_before = |it: &&Request| it.place == Place::Waits && it.end() == request.first && !soon(it);
            let before = self.requests.iter().filter(is_before).find(|it| self.both(it, &request));
            let size = |it: &Request| self.size(it.bytes + request.bytes, it.nr_bios + request.nr_bios);
            if let Some(it) = before.filter(|it| size(it) == Fits::Yes && self.queue.nomerges == 0) {
                let text = format!("the request at sector {} was inserted, model: joins {}", request.first, it.first);
                request.wrong.get_or_insert(text);
            }
        }
        (request.place, request.since) = (Place::Waits, task.nr);
        self.requests.push(request);
    }

    /// A request goes to the driver, in a run of them that began with this record.
    fn issued(&mut self, extent: &Extent, run: usize) {
        let (first, bytes) = (extent.sector.0, u64::from(extent.bytes));
        let exact = self.requests.iter().position(|it| (it.first, it.bytes) == (first, bytes));
        let found = exact.or_else(|| self.requests.iter().position(|it| it.first == first));
        let Some(at) = found.filter(|_| bytes > 0) else { return };
        let request = self.requests.remove(at);
        let reachable = [Place::Waits, Place::PerhapsOut];
        if self.finds == Finds::OfDirection && reachable.contains(&request.place) {
            let direction = request.direction();
            let here = |it: &&mut Request| reachable.contains(&it.place) && it.direction() == direction;
            for it in self.requests.iter_mut().filter(here) {
                it.place = if it.since < run { Place::OutOfReach } else { Place::PerhapsOut };
            }
        }
        if !request.own || request.direction() == Rwbs::default() {
            return;
        }
        if exact.is_none() && request.doubtful {
            return;
        }
        self.count.of += 1;
        let wrong = request.wrong.or_else(|| {
            let size = request.bytes;
            exact.is_none().then(|| format!("request of {size} bytes at sector {first}: kernel {bytes}"))
        });
        match wrong {
            None => self.count.matched += 1,
            Some(text) => self.count.mismatches.push(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use iowhy_stack::units::Sector;

    use super::*;

    /// Requests of at most 64 KiB and 16 pieces, from lines of `letter task sector sectors`: Q a bio, X it is split
    /// there, G a new request, M and F joined at the end or start, U the plug's end with so many requests, R a request
    /// that joined another, I inserted, D issued.
    fn compared(scheduler: &str, lines: &str) -> (u64, u64) {
        let dev = Dev::new(8, 0);
        let record = |(nr, line): (usize, &str)| {
            let mut words = line.split_whitespace();
            let letter = words.next().expect("a letter");
            let numbers: Vec<u64> = words.map(|word| word.parse().expect("a number")).collect();
            let [task, first, n] = numbers[..] else { panic!("{line}") };
            let bytes = (n * SECTOR_BYTES) as u32;
            let extent = Extent { dev, sector: Sector(first), bytes, rwbs: Rwbs::READ.with(Rwbs::SYNC) };
            let seen = match letter {
                "Q" => Seen::Queue(extent),
                "X" => Seen::Split { extent, rest: Sector(first + n) },
                "G" => Seen::GetRequest(extent),
                "M" => Seen::BackMerge(extent),
                "F" => Seen::FrontMerge(extent),
                "U" => Seen::Unplug { dev: None, nr_requests: n as u32, timer: false },
                "R" => Seen::MergeRequests(extent),
                "I" => Seen::Insert(extent),
                "D" => Seen::Issue(extent),
                other => panic!("{other}"),
            };
            // Issues lie far apart, so that none is of a run.
            Record { at: Nanos(nr as u64 * 1_000_000), cpu: 0, pid: task as u32, seen }
        };
        let lines: Vec<&str> = lines.split(';').map(str::trim).filter(|line| !line.is_empty()).collect();
        // What is issued at once may have been taken before: other events, then other issues are in between.
        let far = (0..SOON).map(|_| "U 99 0 0").chain(["D 9 900 8"; TAKEN]);
        let spread = lines.iter().flat_map(|line| if *line == "--" { far.clone().collect() } else { vec![*line] });
        let records: Vec<Record> = spread.enumerate().map(record).collect();
        let trace = Trace { records, ..Trace::default() };
        let queue = Queue {
            name: "sda".to_owned(),
            number: dev,
            scheduler: scheduler.to_owned(),
            max_sectors_kb: 64,
            max_segments: 17,
            ..Queue::default()
        };
        let checked = compare(&trace, &queue, &BTreeSet::from([1, 2])).expect("a known scheduler");
        assert_eq!(checked.requests.mismatches.len() as u64, checked.requests.of - checked.requests.matched);
        (checked.requests.of, checked.requests.matched)
    }

    /// The case, schedulers, lines (`@` is a request of 8 sectors that waits), requests and how many match.
    type Row<'a> = (&'a str, &'a [&'a str], &'a str, (u64, u64));

    #[test]
    fn bios_become_the_requests_that_the_rules_of_the_scheduler_make() {
        const ONE: &str = "Q 1 0 8; G 1 0 8; U 1 0 1; I 1 0 8; --;";
        let all = ["none", "mq-deadline", "kyber", "bfq"];
        let rows: &[Row<'_>] = &[
            ("one for one", &all, "Q 1 0 8; G 1 0 8; D 1 0 8", (1, 1)),
            ("another size", &all, "Q 1 0 8; G 1 0 8; D 1 0 16", (1, 0)),
            ("the plug joins", &all, "Q 1 0 8; G 1 0 8; Q 1 8 8; M 1 8 8; D 1 0 16", (1, 1)),
            ("in front, too", &all, "Q 1 8 8; G 1 8 8; Q 1 0 8; F 1 0 8; D 1 0 16", (1, 1)),
            ("and must", &all, "Q 1 0 8; G 1 0 8; Q 1 8 8; G 1 8 8; D 1 0 8; D 1 8 8", (2, 1)),
            ("not strangers", &all, "Q 1 0 8; G 1 0 8; Q 1 64 8; G 1 64 8; D 1 0 8; D 1 64 8", (2, 2)),
            ("nor another's plug", &all, "Q 1 0 8; G 1 0 8; Q 2 8 8; G 2 8 8; D 1 0 8; D 2 8 8", (2, 2)),
            ("nor too much", &all, "Q 1 0 128; G 1 0 128; Q 1 128 8; G 1 128 8; D 1 0 128; D 1 128 8", (2, 2)),
            ("it may not", &all, "Q 1 0 128; G 1 0 128; Q 1 128 8; M 1 128 8; D 1 0 136", (1, 0)),
            (
                "cut at the largest",
                &all,
                "Q 1 0 136; X 1 0 128; G 1 0 128; Q 1 900 0; G 1 128 8; D 1 0 128; D 1 128 8",
                (2, 2),
            ),
            ("not before", &all, "Q 1 0 64; X 1 0 32; G 1 0 32; G 1 32 32; D 1 0 32; D 1 32 32", (2, 0)),
            ("and it must", &all, "Q 1 0 136; G 1 0 136; D 1 0 136", (1, 0)),
            ("what waits is joined", &["mq-deadline", "kyber", "bfq"], "@ Q 1 8 8; M 1 8 8; D 3 0 16", (1, 1)),
            ("and must be", &["mq-deadline", "kyber", "bfq"], "@ Q 1 8 8; G 1 8 8; --; D 3 0 8; D 3 8 8", (2, 1)),
            ("perhaps without a scheduler", &["none"], "@ Q 1 8 8; G 1 8 8; --; D 3 0 8; D 3 8 8", (2, 2)),
            ("by others, too", &["mq-deadline"], "@ Q 2 8 8; G 2 8 8; --; D 3 0 8; D 3 8 8", (2, 1)),
            ("by others perhaps", &["bfq"], "@ Q 2 8 8; G 2 8 8; --; D 3 0 8; D 3 8 8", (2, 2)),
            (
                "not what is dispatched next",
                &["mq-deadline", "bfq"],
                "@ Q 1 8 8; G 1 8 8; D 3 0 8; --; D 3 8 8",
                (2, 2),
            ),
            (
                "two become one",
                &["mq-deadline"],
                "@ Q 1 16 8; G 1 16 8; U 1 0 1; I 1 16 8; --; Q 2 8 8; M 2 8 8; R 2 16 8; --; D 3 0 24",
                (1, 1),
            ),
            (
                "and must",
                &["mq-deadline"],
                "@ Q 1 16 8; G 1 16 8; U 1 0 1; I 1 16 8; --; Q 2 8 8; M 2 8 8; Q 2 99 8; --; D 3 0 16; D 3 16 8",
                (2, 1),
            ),
            (
                "what comes from a plug, too",
                &["mq-deadline", "bfq"],
                "Q 2 8 8; G 2 8 8; @ U 2 0 1; R 2 8 8; --; D 3 0 16",
                (1, 1),
            ),
            ("and must", &["mq-deadline", "bfq"], "Q 2 8 8; G 2 8 8; @ U 2 0 1; I 2 8 8; --; D 3 0 8; D 3 8 8", (2, 1)),
            (
                "nothing is joined after a dispatch of the direction",
                &["kyber"],
                "@ Q 1 64 8; G 1 64 8; U 1 0 1; I 1 64 8; --; D 3 64 8; --; Q 1 8 8; M 1 8 8; D 3 0 16",
                (2, 1),
            ),
        ];
        for (name, schedulers, lines, expected) in rows {
            for scheduler in *schedulers {
                assert_eq!(compared(scheduler, &lines.replace('@', ONE)), *expected, "{name}, {scheduler}");
            }
        }
    }
}
