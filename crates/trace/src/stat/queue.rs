//! The kernel's disk counters, and figures that they cannot give: sizes, batches, depth, idle time, seeks.
//!
//! A request is in flight from its G to the C that ends it, and is counted when it ends, as in the kernel
//! (`block/blk-core.c`, `blk-mq.c`, `blk-merge.c`: start time at allocation, sectors with each part that is done,
//! merges of bios and of requests alike). It grows by M and F; a merge of two requests keeps the earlier start. Where
//! allocations are not traced a request begins with its I or D. On a device that shows no requests at all (dm, md,
//! zram) bios count, from Q to C, as the kernel does there.
//!
//! The kernel's version decides how `await` and `aqu-sz` are made ([`Rules`]):
//! - From 6.9 on a plug reads the clock once: every request that a task puts into it has the start of the first, until
//!   the plug is pulled or the task loses its CPU (`blk_time_get_ns`). Pulling only because the plug is full does not
//!   count: there U is followed by P without a Q. So `await` holds time that no phase of the request has.
//! - A command that flushes starts when it is wanted (G of the write that asks for it, or the end of the flush before),
//!   not when it is inserted, which a worker does later.
//! - From 5.0 on `weighted` is the sum of the times of requests that ended; before it is the integral of those in
//!   flight, which is also taken where no kernel is known.
//!
//! Known limits. `io_ticks` is the exact time with a request in flight; from 5.0 on kernels ask once in a tick of the
//! clock (`update_io_ticks`), which is as often too much as too little. The kernel takes the end of a request after the
//! ends of its bios, or before a batch of requests, and C is in between: `await` here lacks the time that the end of
//! the bios takes, a few us for each request and about 0.2 us for each bio. That a task lost its CPU is seen in
//! `sched_switch`, in another task on its CPU, or in its own record on another CPU; otherwise it goes
//! unseen, and the start is too early by at most the time from P to U. Kernels from 6.9 to early 2026 keep the start of
//! a task that is preempted. Where other devices are filtered out, so is what they did to the plug. A request whose
//! completion is not in the trace stays in flight until its sectors are used again.

use crate::iostat::{DirStats, DiskStats};
use iowhy_stack::histogram::Histogram;
use iowhy_stack::trace::{Dev, Extent, Record, Rwbs, Seen};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most requests that are looked at to find the one that a bio joins.
const LOOK_BACK: usize = 256;

/// Meaning of a kernel's counters.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Rules {
    /// Requests of one plug have one start.
    one_start_for_a_plug: bool,
    /// `weighted` is the sum of the times of what ended.
    weighted_of_ended: bool,
}

impl Rules {
    /// Of a release as `uname -r` prints it.
    fn of(release: &str) -> Rules {
        let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => {
                Rules { one_start_for_a_plug: (major, minor) >= (6, 9), weighted_of_ended: (major, minor) >= (5, 0) }
            }
            _ => Rules::default(),
        }
    }
}

/// Effect of a task's plug on the times of its requests.
#[derive(Copy, Clone, Debug, Default)]
struct Plugged {
    cpu: u32,
    /// The plug holds requests.
    holds: bool,
    /// The time that it read.
    read: Option<u64>,
    /// The same, after U: P brings it back if nothing was queued in between.
    let_go: Option<u64>,
    /// A request was allocated then that will be the plug's first if P follows.
    first: Option<u64>,
}

impl Plugged {
    /// The task lost its CPU.
    fn forget(&mut self) {
        (self.read, self.let_go, self.first) = (None, None, None);
    }
}

/// The plugs of all tasks.
#[derive(Debug, Default)]
struct Clocks {
    tasks: HashMap<u32, Plugged>,
    on_cpu: HashMap<u32, u32>,
}

impl Clocks {
    /// Takes the next record; the start of its request if it is an allocation.
    fn start(&mut self, record: &Record) -> u64 {
        let (at, pid) = (record.at.0, record.pid);
        if let Some(before) = self.on_cpu.insert(record.cpu, pid).filter(|before| *before != pid)
            && let Some(task) = self.tasks.get_mut(&before)
        {
            task.forget();
        }
        let task = self.tasks.entry(pid).or_insert(Plugged { cpu: record.cpu, ..Plugged::default() });
        if task.cpu != record.cpu {
            task.forget();
            task.cpu = record.cpu;
        }
        // The request that P is about was allocated just before; interrupts may say that something is done.
        let first = task.first.take();
        match &record.seen {
            Seen::Complete { .. } => task.first = first,
            Seen::Queue(_) => task.let_go = None,
            Seen::GetRequest(_) => {
                task.let_go = None;
                if let Some(read) = task.read {
                    return read;
                }
                if task.holds {
                    task.read = Some(at);
                } else {
                    task.first = Some(at);
                }
            }
            Seen::Plug { .. } => {
                task.read = task.let_go.take().or(task.read).or(first);
                task.holds = true;
            }
            Seen::Unplug { timer, .. } => {
                // Several devices in one plug are let go one by one.
                let read = task.read.take().or(task.let_go);
                task.forget();
                (task.holds, task.let_go) = (false, read.filter(|_| !timer));
            }
            Seen::Switch { .. } => task.forget(),
            _ => {}
        }
        at
    }
}

/// Which counters a bio or request belongs to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Discard,
    Flush,
}

impl Kind {
    fn of(extent: &Extent) -> Option<Kind> {
        if extent.rwbs.has(Rwbs::PASSTHROUGH) {
            None
        } else if extent.bytes == 0 {
            // The empty write that asks for a flush is a write to the kernel; the command made of it is a flush.
            let flush = extent.rwbs.has(Rwbs::PREFLUSH).then_some(Kind::Flush);
            if extent.rwbs.has(Rwbs::WRITE) { Some(Kind::Write) } else { flush }
        } else if extent.rwbs.has(Rwbs::DISCARD) {
            Some(Kind::Discard)
        } else if extent.rwbs.has(Rwbs::READ) {
            Some(Kind::Read)
        } else {
            Some(Kind::Write)
        }
    }
}

/// Where a request is found. Those without bytes have sectors that differ from event to event.
fn place(extent: &Extent) -> u64 {
    if extent.bytes == 0 { u64::MAX } else { extent.sector.0 }
}

/// Sizes of bios or requests, bytes.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    /// How many of each size.
    pub by_bytes: BTreeMap<u32, u64>,
}

impl Sizes {
    fn add(&mut self, bytes: u32) {
        *self.by_bytes.entry(bytes).or_default() += 1;
    }

    /// How many there are.
    pub fn n(&self) -> u64 {
        self.by_bytes.values().sum()
    }

    pub fn bytes(&self) -> u64 {
        self.by_bytes.iter().map(|(bytes, n)| u64::from(*bytes) * n).sum()
    }

    /// The size that `percent` of them do not exceed (nearest rank), bytes.
    pub fn percentile(&self, percent: u64) -> Option<u32> {
        let rank = (self.n() * percent).div_ceil(100).max(1);
        let mut seen = 0;
        self.by_bytes
            .iter()
            .find(|(_, n)| {
                seen += **n;
                seen >= rank
            })
            .map(|(bytes, _)| *bytes)
    }
}

/// One direction of a device.
#[derive(Clone, Debug, Default)]
pub struct Direction {
    /// Bios as they were queued.
    pub bios: Sizes,
    /// Requests as they were first issued.
    pub requests: Sizes,
    /// Bios merged at the end of a request.
    pub back_merges: u64,
    /// Bios merged at the start.
    pub front_merges: u64,
    /// Requests merged into another.
    pub request_merges: u64,
    pub completed_bytes: u64,
}

/// A device as its trace shows it.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub read: Direction,
    /// Writes.
    pub write: Direction,
    pub discard: Direction,
    /// Requests at the device when one is issued, that one included.
    pub depth: Histogram,
    /// Time with a request at the device, ns.
    pub busy_ns: u64,
    /// Time without one at the device while at least one was waiting, ns.
    pub idle_waiting_ns: u64,
    /// Requests that did not begin where the one before ended.
    pub seeks: u64,
    /// Sum of the distances, sectors.
    pub seek_sectors: u64,
    /// Requests issued, again ones included.
    pub issues: u64,
    /// Requests that came back undone.
    pub requeues: u64,
    /// Bios that were split.
    pub splits: u64,
    /// Completions of requests of which nothing else is known.
    pub unmatched: u64,
    /// Requests that were still in flight when their sectors were used again, or at the end.
    pub unfinished: u64,
    /// Counters at the end of each interval, and at the end of all.
    pub readings: Vec<DiskStats>,
}

/// Requests held back and let go.
#[derive(Clone, Debug, Default)]
pub struct Plugs {
    pub plugs: u64,
    pub unplugs: u64,
    /// Of these, by the timer.
    pub timer_unplugs: u64,
    /// Requests by unplug.
    pub batches: Histogram,
}

#[derive(Copy, Clone, Debug)]
struct Request {
    end: u64,
    allocated: u64,
    issued: Option<u64>,
    kind: Kind,
}

#[derive(Copy, Clone, Debug, Default)]
struct Counters {
    ios: u64,
    merges: u64,
    sectors: u64,
    ticks_ns: u64,
}

/// A device while its records come in.
#[derive(Debug, Default)]
struct Live {
    bio_based: bool,
    rules: Rules,
    /// Since when a flush is wanted that has not begun.
    flush_wanted: Option<u64>,
    disk: Disk,
    /// By first sector and a number that separates those of one sector.
    requests: BTreeMap<(u64, u64), Request>,
    next: u64,
    in_driver: u64,
    last_end: u64,
    accounted: u64,
    counters: [Counters; 4],
    io_ns: u64,
    weighted_ns: u128,
}

impl Live {
    fn account(&mut self, now: u64) {
        let passed = now.saturating_sub(self.accounted);
        if passed == 0 {
            return;
        }
        let in_queue = self.requests.len() as u64;
        if in_queue > 0 {
            self.io_ns += passed;
            self.weighted_ns += u128::from(in_queue) * u128::from(passed);
        }
        if self.in_driver > 0 {
            self.disk.busy_ns += passed;
        } else if in_queue > 0 {
            self.disk.idle_waiting_ns += passed;
        }
        self.accounted = now;
    }

    fn reading(&self) -> DiskStats {
        let ms = |ns: u64| ns / 1_000_000;
        let of = |kind: Kind| {
            let counters = &self.counters[kind as usize];
            let Counters { ios, merges, sectors, ticks_ns } = *counters;
            DirStats { ios, merges, sectors, ticks_ms: ms(ticks_ns) }
        };
        let ended: u128 = self.counters.iter().map(|counters| u128::from(counters.ticks_ns)).sum();
        let weighted_ns = if self.rules.weighted_of_ended { ended } else { self.weighted_ns };
        DiskStats {
            read: of(Kind::Read),
            write: of(Kind::Write),
            discard: of(Kind::Discard),
            in_flight: self.requests.len() as u64,
            io_ticks_ms: ms(self.io_ns),
            weighted_ms: u64::try_from(weighted_ns / 1_000_000).unwrap_or(u64::MAX),
            flush_ios: self.counters[Kind::Flush as usize].ios,
            flush_ticks_ms: ms(self.counters[Kind::Flush as usize].ticks_ns),
        }
    }

    fn direction(&mut self, kind: Kind) -> Option<&mut Direction> {
        match kind {
            Kind::Read => Some(&mut self.disk.read),
            Kind::Write => Some(&mut self.disk.write),
            Kind::Discard => Some(&mut self.disk.discard),
            Kind::Flush => None,
        }
    }

    fn start(&mut self, at: u64, extent: &Extent, kind: Kind) -> (u64, u64) {
        let sector = place(extent);
        let key = (sector, self.next);
        self.next += 1;
        let at = if kind == Kind::Flush { self.flush_wanted.take().unwrap_or(at) } else { at };
        let end = sector.saturating_add(u64::from(extent.bytes / 512));
        self.requests.insert(key, Request { end, allocated: at, issued: None, kind });
        key
    }

    /// The request that begins at `sector` and that `fits`, the oldest first.
    fn at(&self, sector: u64, fits: impl Fn(&Request) -> bool) -> Option<(u64, u64)> {
        self.requests.range((sector, 0)..=(sector, u64::MAX)).find(|(_, request)| fits(request)).map(|(key, _)| *key)
    }

    /// The request that waits and ends at `sector`.
    fn ending(&self, sector: u64, kind: Kind) -> Option<(u64, u64)> {
        let fits = |request: &Request| request.end == sector && request.issued.is_none() && request.kind == kind;
        let before = self.requests.range(..(sector, 0)).rev().take(LOOK_BACK);
        before.into_iter().find(|(_, request)| fits(request)).map(|(key, _)| *key)
    }

    fn merge(&mut self, extent: &Extent, kind: Kind, front: bool) {
        let (sector, nr_sectors) = (extent.sector.0, u64::from(extent.bytes / 512));
        self.counters[kind as usize].merges += 1;
        // A request that joins the one before it has the same letter as a bio.
        let whole = |request: &Request| request.issued.is_none() && request.end == sector + nr_sectors;
        let united = !front && self.unite(sector, kind, whole);
        if let Some(direction) = self.direction(kind) {
            match (united, front) {
                (true, _) => direction.request_merges += 1,
                (false, true) => direction.front_merges += 1,
                (false, false) => direction.back_merges += 1,
            }
        }
        if united {
            return;
        }
        if front {
            let waits = |request: &Request| request.issued.is_none() && request.kind == kind;
            if let Some(key) = self.at(sector + nr_sectors, waits)
                && let Some(request) = self.requests.remove(&key)
            {
                self.requests.insert((sector, key.1), request);
            }
        } else if let Some(key) = self.ending(sector, kind)
            && let Some(request) = self.requests.get_mut(&key)
        {
            request.end += nr_sectors;
        }
    }

    /// Unites the request at `sector` with the one that ends there.
    fn unite(&mut self, sector: u64, kind: Kind, fits: impl Fn(&Request) -> bool) -> bool {
        let (Some(next), Some(before)) = (self.at(sector, fits), self.ending(sector, kind)) else { return false };
        let Some(gone) = self.requests.remove(&next) else { return false };
        if let Some(request) = self.requests.get_mut(&before) {
            request.end = gone.end;
            request.allocated = request.allocated.min(gone.allocated);
        }
        true
    }

    fn issue(&mut self, at: u64, extent: &Extent, kind: Kind, again: bool) {
        let sector = place(extent);
        let mut known = self.at(sector, |request| request.issued.is_none() && request.kind == kind);
        if known.is_none() {
            if let Some(lost) = self.at(sector, |request| request.kind == kind && !self.bio_based) {
                self.requests.remove(&lost);
                self.in_driver = self.in_driver.saturating_sub(1);
                self.disk.unfinished += 1;
            }
            known = Some(self.start(at, extent, kind));
        }
        if let Some(request) = known.and_then(|key| self.requests.get_mut(&key)) {
            request.issued = Some(at);
            request.end = sector.saturating_add(u64::from(extent.bytes / 512));
        }
        self.in_driver += 1;
        self.disk.depth.record(self.in_driver);
        self.disk.issues += 1;
        if extent.bytes > 0 {
            if sector != self.last_end {
                self.disk.seeks += 1;
                self.disk.seek_sectors += sector.abs_diff(self.last_end);
            }
            self.last_end = sector.saturating_add(u64::from(extent.bytes / 512));
            if !again && let Some(direction) = self.direction(kind) {
                direction.requests.add(extent.bytes);
            }
        }
    }

    fn complete(&mut self, at: u64, extent: &Extent, kind: Kind) {
        let (sector, nr_sectors) = (place(extent), u64::from(extent.bytes / 512));
        self.counters[kind as usize].sectors += nr_sectors;
        if let Some(direction) = self.direction(kind) {
            direction.completed_bytes += u64::from(extent.bytes);
        }
        let known = self
            .at(sector, |request| request.issued.is_some() && request.kind == kind)
            .or_else(|| self.at(sector, |request| request.kind == kind));
        let Some((key, request)) = known.and_then(|key| Some((key, self.requests.remove(&key)?))) else {
            self.disk.unmatched += 1;
            self.counters[kind as usize].ios += 1;
            return;
        };
        if sector.saturating_add(nr_sectors) < request.end {
            self.requests.insert((sector + nr_sectors, key.1), request);
            return;
        }
        self.counters[kind as usize].ios += 1;
        if kind == Kind::Flush && self.flush_wanted.is_some() {
            self.flush_wanted = Some(at);
        }
        self.counters[kind as usize].ticks_ns += at.saturating_sub(request.allocated);
        if request.issued.is_some() {
            self.in_driver = self.in_driver.saturating_sub(1);
        }
    }

    /// Takes a record of this device; a request that is allocated by it has the time `start`.
    fn take(&mut self, at: u64, start: u64, seen: &Seen) {
        let extent = match seen {
            Seen::Complete { extent, .. } | Seen::Split { extent, .. } => extent,
            Seen::Queue(extent)
            | Seen::GetRequest(extent)
            | Seen::BackMerge(extent)
            | Seen::FrontMerge(extent)
            | Seen::MergeRequests(extent)
            | Seen::Insert(extent)
            | Seen::Issue(extent)
            | Seen::Requeue(extent) => extent,
            _ => return,
        };
        let Some(kind) = Kind::of(extent) else { return };
        self.account(at);
        match seen {
            Seen::Queue(_) => {
                if let Some(direction) = self.direction(kind).filter(|_| extent.bytes > 0) {
                    direction.bios.add(extent.bytes);
                }
                if self.bio_based {
                    self.issue(at, extent, kind, true);
                }
            }
            Seen::GetRequest(_) => {
                if kind == Kind::Write && extent.rwbs.has(Rwbs::PREFLUSH) {
                    self.flush_wanted.get_or_insert(at);
                }
                self.start(start, extent, kind);
            }
            Seen::BackMerge(_) => self.merge(extent, kind, false),
            Seen::FrontMerge(_) => self.merge(extent, kind, true),
            Seen::MergeRequests(_) => {
                self.counters[kind as usize].merges += 1;
                self.unite(extent.sector.0, kind, |request| request.issued.is_none());
                if let Some(direction) = self.direction(kind) {
                    direction.request_merges += 1;
                }
            }
            Seen::Insert(_) => {
                let known = self.at(place(extent), |request| request.issued.is_none() && request.kind == kind);
                if known.is_none() {
                    self.start(at, extent, kind);
                }
            }
            Seen::Issue(_) => {
                self.issue(at, extent, kind, false);
            }
            Seen::Requeue(_) => {
                self.disk.requeues += 1;
                let issued = self.at(place(extent), |request| request.issued.is_some() && request.kind == kind);
                if let Some(request) = issued.and_then(|key| self.requests.get_mut(&key)) {
                    request.issued = None;
                    self.in_driver = self.in_driver.saturating_sub(1);
                    // It is issued again with the same size, which must not count twice.
                    if let Some(direction) = self.direction(kind)
                        && let Some(n) = direction.requests.by_bytes.get_mut(&extent.bytes)
                    {
                        *n = n.saturating_sub(1);
                    }
                }
            }
            Seen::Complete { .. } => self.complete(at, extent, kind),
            Seen::Split { .. } => self.disk.splits += 1,
            _ => {}
        }
    }
}

/// The device a record of the block layer is about.
fn device(seen: &Seen) -> Option<Dev> {
    match seen {
        // Passed on or copied, it comes again as a bio of its own.
        Seen::Bounce(_) | Seen::Remap { .. } => None,
        seen => seen.extent().map(|extent| extent.dev),
    }
}

/// All devices of a trace, in the order of their numbers, and the plugs. `ends` are the times at which the counters are
/// read; `release` is the kernel that counts, as far as it is known.
pub(super) fn disks(records: &[Record], ends: &[u64], release: &str) -> (Vec<(Dev, Disk)>, Plugs) {
    let rules = Rules::of(release);
    let mut clocks = rules.one_start_for_a_plug.then(Clocks::default);
    let (mut with_requests, mut done) = (BTreeSet::new(), BTreeSet::new());
    for record in records {
        let Some(dev) = device(&record.seen) else { continue };
        match record.seen {
            Seen::GetRequest(_) | Seen::Issue(_) | Seen::Insert(_) => {
                with_requests.insert(dev);
            }
            Seen::Complete { .. } => {
                done.insert(dev);
            }
            _ => {}
        }
    }
    let live = |dev: &Dev| (*dev, Live { bio_based: !with_requests.contains(dev), rules, ..Live::default() });
    let mut live: BTreeMap<Dev, Live> = with_requests.union(&done).map(live).collect();
    let mut plugs = Plugs::default();
    let mut ends = ends.iter().copied().peekable();
    for record in records {
        let at = record.at.0;
        while let Some(end) = ends.next_if(|end| *end < at) {
            read(&mut live, end);
        }
        let start = clocks.as_mut().map_or(at, |clocks| clocks.start(record));
        match &record.seen {
            Seen::Plug { .. } => plugs.plugs += 1,
            Seen::Unplug { nr_requests, timer, .. } => {
                plugs.unplugs += 1;
                plugs.timer_unplugs += u64::from(*timer);
                plugs.batches.record(u64::from(*nr_requests));
            }
            seen => {
                if let Some(device) = device(seen).and_then(|dev| live.get_mut(&dev)) {
                    device.take(at, start, seen);
                }
            }
        }
    }
    ends.for_each(|end| read(&mut live, end));
    let finish = |(dev, mut live): (Dev, Live)| {
        live.disk.unfinished += live.requests.len() as u64;
        for direction in [&mut live.disk.read, &mut live.disk.write, &mut live.disk.discard] {
            direction.requests.by_bytes.retain(|_, n| *n > 0);
        }
        (dev, live.disk)
    };
    (live.into_iter().map(finish).collect(), plugs)
}

/// Reads the counters of all devices at `end`.
fn read(live: &mut BTreeMap<Dev, Live>, end: u64) {
    for device in live.values_mut() {
        device.account(end);
        let reading = device.reading();
        device.disk.readings.push(reading);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iowhy_stack::units::{Nanos, Sector};

    const DISK: Dev = Dev(8 << 20);

    /// Records from lines `ms cpu pid letter [sector sectors [R|W|FW|F]]`.
    fn records(text: &str) -> Vec<Record> {
        let record = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |nr: usize| words[nr].parse::<u64>().expect("a number");
            let rwbs = |letters: &str| match letters {
                "R" => Rwbs::READ,
                "W" => Rwbs::WRITE,
                "FW" => Rwbs::WRITE.with(Rwbs::PREFLUSH),
                _ => Rwbs::PREFLUSH,
            };
            let bytes = || number(5) as u32 * 512;
            let extent = || Extent { dev: DISK, sector: Sector(number(4)), bytes: bytes(), rwbs: rwbs(words[6]) };
            let seen = match words[3] {
                "Q" => Seen::Queue(extent()),
                "G" => Seen::GetRequest(extent()),
                "D" => Seen::Issue(extent()),
                "C" => Seen::Complete { extent: extent(), error: 0 },
                "P" => Seen::Plug { dev: None },
                "U" => Seen::Unplug { dev: None, nr_requests: 1, timer: false },
                "UT" => Seen::Unplug { dev: None, nr_requests: 1, timer: true },
                "switch" => Seen::Switch { next: 0, state: 2 },
                "page" => Seen::PageAdd { file: Default::default(), index: 0, order: 0 },
                other => panic!("what is {other}"),
            };
            Record { at: Nanos::from_ms(number(0)), cpu: number(1) as u32, pid: number(2) as u32, seen }
        };
        text.split(';').map(record).collect()
    }

    fn reading(text: &str, release: &str) -> DiskStats {
        let records = records(text);
        let end = records.last().expect("there are some").at.0;
        disks(&records, &[end], release).0[0].1.readings[0]
    }

    #[test]
    fn releases_have_rules() {
        let table = [
            ("", (false, false)),
            ("simulated", (false, false)),
            ("2.6.32-754.el6", (false, false)),
            ("4.20.17", (false, false)),
            ("5.0.0-rc1", (false, true)),
            ("6.8.12-amd64", (false, true)),
            ("6.9.0", (true, true)),
            ("6.18.44+deb13", (true, true)),
            ("7.0", (true, true)),
        ];
        for (release, expected) in table {
            let rules = Rules::of(release);
            assert_eq!((rules.one_start_for_a_plug, rules.weighted_of_ended), expected, "{release}");
        }
    }

    /// Two requests, allocated at 10 and at 14 ms and done at 20 ms: events in between decide on the start of the
    /// second.
    #[test]
    fn requests_of_a_plug_have_one_start_as_long_as_it_is_known() {
        let table = [
            ("nothing", "", 10),
            ("no plug", "unplugged", 14),
            ("the plug is full", "15 0 1 U;15 0 1 D 0 8 R;15 0 1 P", 10),
            ("let go", "12 0 1 U;12 0 1 D 0 8 R", 14),
            ("full, and then let go", "11 0 1 U;11 0 1 P;12 0 1 U;12 0 1 Q 80 8 R", 14),
            ("full", "11 0 1 U;11 0 1 P", 10),
            ("let go because it waits", "12 0 1 UT;12 0 1 P", 14),
            ("a bio in between is of another plug", "11 0 1 U;11 0 1 Q 160 8 R;12 0 1 P", 14),
            ("the scheduler", "12 0 1 switch", 14),
            ("another task on the CPU", "12 0 2 page", 14),
            ("on another CPU", "12 3 1 page", 14),
            ("another task elsewhere", "12 1 2 page", 10),
            ("an interrupt", "12 0 1 C 800 8 R", 10),
        ];
        for (what, between, start) in table {
            let (plug, between) = if between == "unplugged" { ("", "") } else { ("10 0 1 P;", between) };
            let between: Vec<&str> = between.split(';').filter(|record| !record.is_empty()).collect();
            let (early, late): (Vec<&str>, Vec<&str>) = between.iter().partition(|record| !record.starts_with("15"));
            let join = |records: &[&str]| records.iter().map(|record| format!("{record};")).collect::<String>();
            // The last task on the first CPU again, so that the second allocation means nothing.
            let text = format!(
                "9 0 1 Q 0 8 R;10 0 1 G 0 8 R;{plug}{}13 0 1 Q 80 8 W;14 0 1 G 80 8 W;{}20 1 9 C 0 8 R;20 1 9 C 80 8 W",
                join(&early),
                join(&late)
            );
            let ticks = |release| {
                let reading = reading(&text, release);
                (reading.write.ios, reading.write.ticks_ms)
            };
            assert_eq!(ticks("6.18.44"), (1, 20 - start), "{what}");
            assert_eq!(ticks("6.8.1"), (1, 6), "{what}: such kernels look at the clock each time");
        }
    }

    /// A plug that goes on after its task lost the CPU has a new start for all that follow.
    #[test]
    fn a_plug_reads_the_clock_again_after_a_switch() {
        let text = "1 0 1 G 0 8 W;1 0 1 P;2 0 1 switch;3 0 1 G 80 8 W;5 0 1 G 160 8 W;6 0 1 U;\
                    9 1 9 C 0 8 W;9 1 9 C 80 8 W;9 1 9 C 160 8 W";
        assert_eq!(reading(text, "6.18").write.ticks_ms, 8 + 6 + 6);
        // What another device put into the plug is not seen: the first allocation of ours is the best that is known.
        let text = "1 0 1 G 0 8 W;1 0 1 D 0 8 W;2 0 1 page;3 0 1 P;5 0 1 G 80 8 W;9 1 9 C 0 8 W;9 1 9 C 80 8 W";
        assert_eq!(reading(text, "6.18").write.ticks_ms, 8 + 4);
    }

    /// Flushes: wanted at 1, inserted at 3, done at 7; a second one is wanted meanwhile.
    #[test]
    fn a_flush_starts_when_it_is_wanted() {
        let text = "1 0 1 G 0 0 FW;3 0 9 D 0 0 F;4 0 2 G 0 0 FW;7 1 9 C 0 0 F;7 1 9 C 0 0 FW;\
                    9 0 9 D 0 0 F;12 1 9 C 0 0 F;12 1 9 C 0 0 FW";
        let stats = reading(text, "6.18");
        assert_eq!((stats.flush_ios, stats.flush_ticks_ms), (2, (7 - 1) + (12 - 7)));
        assert_eq!((stats.write.ios, stats.write.ticks_ms), (2, (7 - 1) + (12 - 4)));
    }

    #[test]
    fn weighted_is_what_the_kernel_makes_of_it() {
        // One that ends and one that does not.
        let text = "0 0 1 G 0 8 R;2 0 2 G 80 8 R;6 0 1 C 0 8 R;8 0 1 page";
        let weighted = |release| (reading(text, release).weighted_ms, reading(text, release).in_flight);
        assert_eq!([weighted("4.20"), weighted(""), weighted("5.0")], [(12, 1), (12, 1), (6, 1)]);
    }
}
