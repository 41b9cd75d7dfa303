//! Requests from their allocation to their completion: sizes, order, how many, how long.
//!
//! ```text
//! size       sectors when issued; the largest shows where requests are cut
//! order      whenever two or more wait, is the one that is taken the next one up from the head?
//! depth      requests at the device, by the time that requests wait besides
//! class      direction, size in octaves of pages, place (follows on, near, far), load (alone, alone after a pause,
//!            more)
//! D2C        time at the device, by class; so that a device is compared with itself on equal commands
//! gaps       time without a completion while the device has something to do: of a stall all of it
//! spacing    time between completions while the device has more to do: the mark of a limit on operations
//! cycles     the same for commands one after the other, with its spread: a cap makes the pace constant
//! ```

use std::collections::BTreeMap;

use iowhy_stack::event::{Content, Dir, RqId};
use iowhy_stack::lifecycle::{self, Lifecycle, Stage, Step};
use iowhy_stack::units::{Nanos, PAGE_SECTORS};
use iowhy_stats::figure::share;

use super::tally::Spread;
use super::{Digest, Plugs};

/// Where a command lies from the one before it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// It begins where that one ends.
    #[default]
    Next,
    /// Within 2 MiB of it.
    Near,
    /// Anywhere else.
    Far,
}

/// The device's other work when a command comes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Load {
    /// Nothing, since less than 100 us.
    #[default]
    Alone,
    /// Nothing, since longer.
    Rested,
    /// One to three others.
    Few,
    /// Four to fifteen.
    Some,
    /// More.
    Many,
}

/// Commands that should take equally long.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class {
    /// It writes.
    pub write: bool,
    /// Octave of its size in pages: 0 is up to one page, 1 up to two, 2 up to four, ..
    pub octave: u8,
    /// Where it lies.
    pub place: Place,
    /// Other work.
    pub load: Load,
}

/// Mean and spread of many values, exactly: buckets are too wide to separate a constant pace from a nearly constant
/// one.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Moments {
    /// How many.
    pub count: u64,
    pub sum: f64,
    /// The sum of their squares.
    pub squares: f64,
}

impl Moments {
    /// Counts a value.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        self.squares += value * value;
    }

    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// The standard deviation; 0 of none.
    pub fn deviation(&self) -> f64 {
        if self.count == 0 { 0.0 } else { (self.squares / self.count as f64 - self.mean().powi(2)).max(0.0).sqrt() }
    }
}

/// Remaining differences among commands of one class.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Within {
    /// Sum of the numbers of commands that were at the device already.
    pub ahead: u64,
    /// Sum of the numbers of commands that ended while these were at the device: some came later, and were taken first.
    pub passed: u64,
    /// Sum of the square roots of the distances, sectors: proportional to the time of seeks.
    pub root_distance: f64,
    /// Sum of the sizes, sectors.
    pub sectors: u64,
    /// Time at the device, ns.
    pub took: Moments,
}

/// Ways from the end of one command to the begin of the next.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Ways {
    /// Commands that begin elsewhere.
    pub elsewhere: u64,
    /// Sum of the distances, sectors.
    pub distance: f64,
    /// Sum of their square roots.
    pub root_distance: f64,
}

/// The device rests after this time without a command, ns.
const REST: u64 = 100_000;
/// Sectors of 2 MiB.
const NEAR: u64 = 4096;
/// Most waiting requests that are looked at to judge an order.
const LOOKED_AT: usize = 64;
/// Number of distinct depths.
const DEPTHS: usize = 129;

/// Commands of a run.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    /// Issued: reads and writes; flushes are not counted.
    pub issued: [u64; 2],
    /// Of these, requests that found none of their direction at the device.
    pub to_empty: [u64; 2],
    /// Sectors of these.
    pub sectors: [u64; 2],
    /// Sizes, sectors.
    pub sizes: [Spread; 2],
    /// Blocks of metadata and journals among them.
    pub meta: [u64; 2],
    /// Issued requests that end where another one, issued within a few commands, begins.
    pub contiguous: [u64; 2],
    /// Of these, requests that are as large as any of the run.
    pub cut: [u64; 2],
    /// Merges of bios, at the end and at the start, and of requests.
    pub merges: [u64; 3],
    /// Time from insertion to issue, ns.
    pub i2d: [Spread; 2],
    /// Choices: how often two or more waited when one was taken.
    pub choices: u64,
    /// How often it was the next one up from the head.
    pub next_up: u64,
    /// Commands that do not begin where the one before them ended.
    pub seeks: u64,
    /// How far those lie, sectors.
    pub distance: f64,
    /// The same in the order in which commands end: a device that queues takes them in this order.
    pub ended: Ways,
    /// Changes of direction.
    pub turns: u64,
    /// Time at each depth while others wait with the elevator, ns.
    pub depth_when_waiting: Vec<u64>,
    /// Most requests at the device at once, and most of those of the workload that belong to different files.
    pub deepest: u32,
    /// Reads and writes that waited for a tag. Only recordings have it.
    pub late_tags: [u64; 2],
    /// Time with the device idle while requests wait with the elevator, ns.
    pub idle_waiting: u64,
    /// Deliberate waits of the elevator: how often, and how long, ns. Only simulated runs have it.
    pub idles: u64,
    /// Their time, ns.
    pub idle_time: u64,
    /// Time with something at the device, ns.
    pub busy: u64,
    /// Time at the device by class, ns.
    pub classes: BTreeMap<Class, Spread>,
    /// How the commands of a class vary among themselves.
    pub within: BTreeMap<Class, Within>,
    /// Time between completions of commands that found the device in use or just left, ns, by octave of the size.
    pub cycles: BTreeMap<u8, Moments>,
    /// Time between completions while the device has more to do, ns, by octave of the size in pages.
    pub spacing: BTreeMap<u8, Spread>,
    /// Time from one completion to the next, or from the issue where the device was idle, ns.
    pub gaps: Spread,
    /// Time of foreign requests at the device, ns.
    pub foreign: u64,
    /// Of that, with requests of the workload waiting or at the device, ns.
    pub in_the_way: u64,
    /// The same time, of each moment the part of the requests at the device that are others': what the workload would
    /// get back from a device that divides itself, ns.
    pub taken: f64,
    /// The same with each request counted by its sectors: of a device whose time goes by bytes.
    pub taken_by_size: f64,
    /// Of the time with something at a loop device that with no data at the disk below it, ns: that of the layers
    /// between both. Only recordings have it.
    pub in_layers: u64,
    /// Time with reads, and with writes, of the workload at the device, ns.
    pub own_busy: [u64; 2],
    /// Sectors that it reads and writes.
    pub own_sectors: [u64; 2],
    /// Times at the device of the workload's own requests, by their class as it is alone: of all of them, and of those
    /// that met nothing of others there, ns.
    pub own: BTreeMap<Class, [Spread; 2]>,
    /// Time of reads of metadata from their allocation to their completion, ns.
    pub meta_reads: u64,
    /// Requests that write back pages that the workload had dirtied, without a request of its.
    pub written_back: u64,
    /// Time of these at the device while reads of the workload wait or are there, ns.
    pub behind_writeback: u64,
}

impl Commands {
    /// Number of commands, at least one.
    pub fn number(&self) -> f64 {
        self.issued.iter().sum::<u64>().max(1) as f64
    }

    /// Share of those that do not begin where the one before them ended.
    pub fn seek_share(&self) -> f64 {
        self.seeks as f64 / self.number()
    }

    /// Shares of the reads and of the writes that waited for a tag.
    pub fn late_shares(&self) -> [f64; 2] {
        [0, 1].map(|way| self.late_tags[way] as f64 / self.issued[way].max(1) as f64)
    }

    /// Mean number at the device while it is busy.
    pub fn at_once(&self) -> f64 {
        self.classes.values().map(Spread::sum).sum::<f64>() / self.busy.max(1) as f64
    }

    /// The number at the device that is not exceeded while others wait, for all but a hundredth of that time; 0 if
    /// nothing ever waits.
    pub fn depth_limit(&self) -> u32 {
        let all: u64 = self.depth_when_waiting.iter().sum();
        let mut seen = 0;
        for (depth, ns) in self.depth_when_waiting.iter().enumerate() {
            seen += ns;
            if all > 0 && seen as f64 >= 0.99 * all as f64 {
                return depth as u32;
            }
        }
        0
    }

    /// Time with requests waiting, ns.
    pub fn waiting(&self) -> u64 {
        self.depth_when_waiting.iter().sum()
    }
}

/// State of a bio or request besides its life.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Own {
    pub(super) foreign: bool,
    /// It writes back pages that the workload had dirtied, without a request of its.
    pub(super) writeback: bool,
    /// It carries something the call waits for.
    pub(super) wanted: bool,
    /// It carries only pages without waiters.
    pub(super) ahead: bool,
    /// Place of the bio's pages.
    pub(super) pages: Option<(u32, u64, u32)>,
    /// The request of the bio before it that it could join.
    pub(super) neighbour: Option<RqId>,
    pub(super) meta: bool,
    pub(super) class: Class,
    /// Time with others' requests at the device up to its issue, ns.
    pub(super) met: u64,
    /// Commands that had ended when it was issued.
    pub(super) ended: u64,
}

pub(super) type Request = lifecycle::Request<Own>;

/// Follows requests.
#[derive(Debug, Default)]
pub(super) struct Observer {
    out: Commands,
    pub(super) life: Lifecycle<Own>,
    /// With the elevator, in the order of their insertion.
    waiting: Vec<RqId>,
    /// Reads held in plugs.
    held_reads: u32,
    foreign_in_flight: u32,
    /// Sectors of others', and of the workload's own requests at the device; reads and writes among the latter.
    sectors: [u64; 2],
    at_device: [u32; 2],
    writeback_in_flight: u32,
    /// Requests of the workload, and reads among them, that wait or are at the device.
    own: [u32; 2],
    accounted: Nanos,
    idle_since: Option<Nanos>,
    idle_from: Nanos,
    head: u64,
    /// Commands that have ended, and where the last of them did.
    ended: u64,
    ended_at: Option<u64>,
    last_dir: Option<Dir>,
    last_done: Option<Nanos>,
    /// The last completion of all.
    last_end: Option<Nanos>,
    /// Ends of the last commands, with their sizes.
    ends: [[(u64, u32); 8]; 2],
    nr: [usize; 2],
    /// How often a command of each size ended where another began.
    continued: [BTreeMap<u32, u64>; 2],
    starved: u64,
    /// The workload has hardly done anything but read so far: nothing of it is to be flushed.
    pub(super) reads_only: bool,
}

impl Observer {
    /// The device is idle, and requests wait, though the elevator does not want it so: the mark of a flush that is not
    /// a command of its own.
    pub(super) fn held_back(&self) -> bool {
        self.life.depth == 0 && !self.waiting.is_empty() && self.idle_since.is_none()
    }

    /// Time goes by for those that wait or are at the device.
    pub(super) fn pass(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.accounted).0;
        if passed == 0 {
            return;
        }
        self.accounted = now;
        let out = &mut self.out;
        if !self.waiting.is_empty() {
            if out.depth_when_waiting.is_empty() {
                out.depth_when_waiting = vec![0; DEPTHS];
            }
            out.depth_when_waiting[(self.life.depth as usize).min(DEPTHS - 1)] += passed;
        }
        if self.life.depth > 0 {
            out.busy += passed;
        } else if !self.waiting.is_empty() {
            out.idle_waiting += passed;
        } else if self.held_reads > 0 {
            self.starved += passed;
        }
        for (busy, at_device) in out.own_busy.iter_mut().zip(self.at_device) {
            *busy += if at_device > 0 { passed } else { 0 };
        }
        if self.foreign_in_flight > 0 {
            out.foreign += passed;
            if self.own[0] > 0 {
                out.in_the_way += passed;
                let own = self.life.depth.saturating_sub(self.foreign_in_flight).max(1);
                out.taken +=
                    passed as f64 * share(self.foreign_in_flight.into(), (self.foreign_in_flight + own).into());
                // Where none of its requests is there, one as large as usual waits.
                let usual =
                    out.sizes.iter().map(Spread::sum).sum::<f64>() / out.issued.iter().sum::<u64>().max(1) as f64;
                let [others, own] = self.sectors.map(|sectors| sectors as f64);
                let own = if own > 0.0 { own } else { usual.max(1.0) };
                out.taken_by_size += passed as f64 * others / (others + own);
            }
        }
        if self.writeback_in_flight > 0 && self.own[1] > 0 {
            out.behind_writeback += passed;
        }
    }

    pub(super) fn allocate(&mut self, request: &Request) {
        self.held_reads += u32::from(request.dir == Dir::Read);
    }

    pub(super) fn merge(&mut self, rq: RqId, front: bool, wanted: bool) {
        self.out.merges[usize::from(front)] += 1;
        if let Some(request) = self.life.get_mut(rq) {
            request.own.ahead &= !wanted;
        }
    }

    pub(super) fn unite(&mut self, rq: RqId, gone: RqId, step: Step<Own>) {
        self.out.merges[2] += 1;
        let Step::United(old) = step else { return };
        self.leave(gone, &old);
        self.gone(&old);
        if let Some(request) = self.life.get_mut(rq) {
            request.own.ahead &= old.own.ahead;
        }
    }

    /// A request of the workload, or without an owner, comes to the elevator.
    fn enter(&mut self, request: &Request) {
        let own = u32::from(!request.own.foreign);
        self.own[0] += own;
        self.own[1] += own * u32::from(request.dir == Dir::Read);
    }

    /// It has gone from the elevator or the device for good.
    fn gone(&mut self, request: &Request) {
        let own = u32::from(!request.own.foreign && request.stage != Stage::Held);
        self.own[0] = self.own[0].saturating_sub(own);
        self.own[1] = self.own[1].saturating_sub(own * u32::from(request.dir == Dir::Read));
    }

    /// A request leaves its place.
    fn leave(&mut self, rq: RqId, request: &Request) {
        match request.stage {
            Stage::Held => {
                self.held_reads = self.held_reads.saturating_sub(u32::from(request.dir == Dir::Read));
            }
            Stage::Waiting => self.waiting.retain(|known| *known != rq),
            Stage::Issued => {
                let (way, own) = (request.dir as usize, usize::from(!request.own.foreign));
                self.sectors[own] = self.sectors[own].saturating_sub(request.nr_sectors.into());
                if own == 1 {
                    self.at_device[way] = self.at_device[way].saturating_sub(1);
                }
                self.foreign_in_flight = self.foreign_in_flight.saturating_sub(u32::from(request.own.foreign));
                self.writeback_in_flight = self.writeback_in_flight.saturating_sub(u32::from(request.own.writeback));
            }
        }
    }

    /// The request, not issued yet, that ends here.
    pub(super) fn waiting_until(&self, dir: Dir, end: u64) -> Option<RqId> {
        // The newest is the likeliest, and plugs and elevators look there first, too.
        let ends = |request: &Request| request.dir == dir && request.sector + u64::from(request.nr_sectors) == end;
        let fits = |request: &Request| ends(request) && request.stage != Stage::Issued && request.nr_sectors > 0;
        self.life.open().rev().find(|(_, request)| fits(request)).map(|(rq, _)| rq)
    }

    pub(super) fn sectors_of(&self, rq: RqId) -> u32 {
        self.life.get(rq).map_or(0, |request| request.nr_sectors)
    }

    /// The largest command so far, sectors.
    pub(super) fn largest(&self, dir: Dir) -> u32 {
        self.out.sizes[dir as usize].max() as u32
    }

    pub(super) fn insert(&mut self, now: Nanos, rq: RqId, plugs: &mut Plugs) {
        let Some(request) = self.life.get(rq).copied() else { return };
        self.leave(rq, &Request { stage: Stage::Held, ..request });
        if request.dir == Dir::Read {
            let held = now.saturating_sub(request.queued).0;
            if request.own.ahead { plugs.held_ahead.add(held) } else { plugs.held.add(held) }
        }
        self.enter(&request);
        self.waiting.push(rq);
    }

    /// A request is issued first, out of `before`.
    pub(super) fn issue(&mut self, now: Nanos, rq: RqId, before: Option<Stage>, plugs: &mut Plugs) {
        if before == Some(Stage::Held) {
            // Handed to the driver without a stop at the elevator.
            self.insert(now, rq, plugs);
        }
        let Some(request) = self.life.get(rq).copied() else { return };
        let Request { dir, content, sector, nr_sectors, .. } = request;
        let flush = nr_sectors == 0;
        if before.is_some() {
            self.order(rq, sector);
            self.leave(rq, &Request { stage: Stage::Waiting, ..request });
            if !flush {
                self.out.i2d[dir as usize].add(now.saturating_sub(request.inserted.unwrap_or(now)).0);
            }
        }
        let in_flight = self.life.depth - 1;
        let rested = in_flight == 0 && now.saturating_sub(self.idle_from).0 >= REST;
        let load = match in_flight {
            0 if rested => Load::Rested,
            0 => Load::Alone,
            1..=3 => Load::Few,
            4..=15 => Load::Some,
            _ => Load::Many,
        };
        let from_head = self.head.abs_diff(sector);
        // Where the head was before the first command nobody knows.
        let distance = if self.last_dir.is_some() { from_head } else { 0 };
        let place = match from_head {
            0 => Place::Next,
            1..=NEAR => Place::Near,
            _ => Place::Far,
        };
        let pages = u64::from(nr_sectors).div_ceil(PAGE_SECTORS).max(1);
        let octave = pages.next_power_of_two().ilog2() as u8;
        let class = Class { write: dir == Dir::Write, octave, place, load };
        let foreign = if before.is_some() { request.own.foreign } else { flush && self.reads_only };
        let meta = !flush && !foreign && content != Content::Data;
        if let Some(request) = self.life.get_mut(rq) {
            let (met, ended) = (self.out.foreign, self.ended);
            request.own = Own { foreign, meta, class, met, ended, ..request.own };
        }
        self.out.to_empty[dir as usize] += u64::from(!flush && self.at_device[dir as usize] == 0);
        self.sectors[usize::from(!foreign)] += u64::from(nr_sectors);
        self.at_device[dir as usize] += u32::from(!foreign);
        if before.is_none() {
            self.enter(&Request { own: Own { foreign, ..request.own }, ..request });
        }
        self.out.written_back += u64::from(request.own.writeback);
        self.writeback_in_flight += u32::from(request.own.writeback);
        if !flush {
            let within = self.out.within.entry(class).or_default();
            within.ahead += u64::from(in_flight);
            within.root_distance += (distance as f64).sqrt();
            within.sectors += u64::from(nr_sectors);
        }
        self.foreign_in_flight += u32::from(foreign);
        self.out.deepest = self.out.deepest.max(self.life.depth);
        if flush {
            return;
        }
        let way = dir as usize;
        let out = &mut self.out;
        out.own_sectors[way] += if foreign { 0 } else { u64::from(nr_sectors) };
        out.issued[way] += 1;
        out.sectors[way] += u64::from(nr_sectors);
        out.sizes[way].add(u64::from(nr_sectors));
        out.meta[way] += u64::from(content != Content::Data && !foreign);
        if distance > 0 {
            out.seeks += 1;
            out.distance += distance as f64;
        }
        out.turns += u64::from(self.last_dir.is_some_and(|last| last != dir));
        self.last_dir = Some(dir);
        self.head = sector + u64::from(nr_sectors);
        if let Some((_, size)) = self.ends[way].iter().find(|(end, size)| *end == sector && *size > 0) {
            out.contiguous[way] += 1;
            *self.continued[way].entry(*size).or_default() += 1;
        }
        let nr = self.nr[way] % 8;
        self.ends[way][nr] = (self.head, nr_sectors);
        self.nr[way] += 1;
    }

    /// Which of those that wait is taken?
    fn order(&mut self, rq: RqId, sector: u64) {
        if self.waiting.len() < 2 || self.waiting.len() > LOOKED_AT {
            return;
        }
        let mut next_up = true;
        for other in self.waiting.iter().filter(|other| **other != rq) {
            if let Some(other) = self.life.get(*other) {
                let up = |sector: u64| (sector < self.head, sector);
                next_up &= up(sector) <= up(other.sector);
            }
        }
        self.out.choices += 1;
        self.out.next_up += u64::from(next_up);
    }

    pub(super) fn complete(&mut self, now: Nanos, rq: RqId, request: &Request, digest: &mut Digest) {
        self.leave(rq, request);
        self.gone(request);
        let Some(issued) = request.issued else { return };
        let Own { meta, class, .. } = request.own;
        if meta && request.dir == Dir::Read && digest.workload.calls.iter().any(|calls| *calls > 0) {
            self.out.meta_reads += now.saturating_sub(request.queued).0;
        }
        let took = now.saturating_sub(issued).0;
        if request.nr_sectors == 0 {
            // Flushes before the first call belong to the making of the files.
            if digest.workload.calls.iter().any(|calls| *calls > 0) {
                digest.sync.flush.add(took);
            }
        } else {
            self.out.classes.entry(class).or_default().add(took);
            let within = self.out.within.entry(class).or_default();
            within.took.add(took as f64);
            within.passed += self.ended - request.own.ended;
            self.ended += 1;
            let distance = self.ended_at.map_or(0, |at| at.abs_diff(request.sector));
            self.ended_at = Some(request.sector + u64::from(request.nr_sectors));
            self.out.ended.elsewhere += u64::from(distance > 0);
            self.out.ended.distance += distance as f64;
            self.out.ended.root_distance += (distance as f64).sqrt();
            if !request.own.foreign {
                let [all, alone] = self.out.own.entry(Class { load: Load::Alone, ..class }).or_default();
                all.add(took);
                if request.own.met == self.out.foreign && self.foreign_in_flight == 0 {
                    alone.add(took);
                }
            }
            if let Some(last) = self.last_end.filter(|_| class.load != Load::Rested) {
                let cycle = now.saturating_sub(last).0 as f64;
                self.out.cycles.entry(class.octave).or_default().add(cycle);
            }
            self.out.gaps.add(self.last_done.map_or(took, |last| now.saturating_sub(last).0));
            if let Some(last) = self.last_done {
                self.out.spacing.entry(class.octave).or_default().add(now.saturating_sub(last).0);
            }
        }
        self.last_end = Some(now);
        if self.life.depth == 0 {
            self.idle_from = now;
            self.last_done = None;
        } else {
            self.last_done = Some(now);
        }
    }

    pub(super) fn idle(&mut self, now: Nanos, begins: bool) {
        if begins {
            self.out.idles += 1;
            self.idle_since = Some(now);
        } else if let Some(since) = self.idle_since.take() {
            self.out.idle_time += now.saturating_sub(since).0;
        }
    }

    /// The statistics, and the time that the device starved below a plug, ns.
    pub(super) fn finish(mut self, now: Nanos) -> (Commands, u64) {
        self.pass(now);
        for way in 0..2 {
            // Commands are as large as any if they have the largest size, or fill the last pages below it.
            let largest = self.out.sizes[way].max() as u32;
            let of = |(size, n): (&u32, &u64)| if *size + 8 > largest { *n } else { 0 };
            self.out.cut[way] = self.continued[way].iter().map(of).sum();
        }
        (self.out, self.starved)
    }
}
