//! What the kernel's disk counters would have said, and what they cannot say: sizes, batches, depth, idle time, seeks.
//!
//! A request is in flight from its G to the C that ends it, and is counted when it ends, as in the kernel
//! (`block/blk-core.c`, `blk-mq.c`, `blk-merge.c`: start time at allocation, sectors with each part that is done,
//! merges of bios and of requests alike). It grows by M and F; a merge of two requests keeps the earlier start. Where
//! allocations are not traced a request begins with its I or D. On a device that shows no requests at all (dm, md,
//! zram) bios count, from Q to C, as the kernel does there.
//!
//! Known limits: `io_ticks` is the exact time with a request in flight, which multi-queue kernels round to ticks of
//! the clock. A request whose completion is not in the trace stays in flight until its sectors are used again.

use crate::iostat::{DirStats, DiskStats};
use iowhy_stack::histogram::Histogram;
use iowhy_stack::trace::{Dev, Extent, Record, Rwbs, Seen};
use std::collections::{BTreeMap, BTreeSet};

/// Most requests that are looked at to find the one that a bio joins.
const LOOK_BACK: usize = 256;

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

    /// All their bytes.
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
    /// Bytes completed.
    pub completed_bytes: u64,
}

/// A device as its trace shows it.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// Reads.
    pub read: Direction,
    /// Writes.
    pub write: Direction,
    /// Discards.
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
    /// Plugs.
    pub plugs: u64,
    /// Unplugs.
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
    disk: Disk,
    /// By first sector and a number that tells those of one sector apart.
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
        DiskStats {
            read: of(Kind::Read),
            write: of(Kind::Write),
            discard: of(Kind::Discard),
            in_flight: self.requests.len() as u64,
            io_ticks_ms: ms(self.io_ns),
            weighted_ms: u64::try_from(self.weighted_ns / 1_000_000).unwrap_or(u64::MAX),
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
        self.counters[kind as usize].ticks_ns += at.saturating_sub(request.allocated);
        if request.issued.is_some() {
            self.in_driver = self.in_driver.saturating_sub(1);
        }
    }

    fn take(&mut self, at: u64, seen: &Seen) {
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
                self.start(at, extent, kind);
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
/// read.
pub(super) fn disks(records: &[Record], ends: &[u64]) -> (Vec<(Dev, Disk)>, Plugs) {
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
    let live = |dev: &Dev| (*dev, Live { bio_based: !with_requests.contains(dev), ..Live::default() });
    let mut live: BTreeMap<Dev, Live> = with_requests.union(&done).map(live).collect();
    let mut plugs = Plugs::default();
    let mut ends = ends.iter().copied().peekable();
    for record in records {
        let at = record.at.0;
        while let Some(end) = ends.next_if(|end| *end < at) {
            read(&mut live, end);
        }
        match &record.seen {
            Seen::Plug { .. } => plugs.plugs += 1,
            Seen::Unplug { nr_requests, timer, .. } => {
                plugs.unplugs += 1;
                plugs.timer_unplugs += u64::from(*timer);
                plugs.batches.record(u64::from(*nr_requests));
            }
            seen => {
                if let Some(device) = device(seen).and_then(|dev| live.get_mut(&dev)) {
                    device.take(at, seen);
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
