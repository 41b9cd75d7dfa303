//! Requests from their allocation to their completion: sizes, order, how many, how long.
//!
//! ```text
//! size       sectors when issued; the largest tells where requests are cut
//! order      whenever two or more wait, is the one that is taken the next one up from the head?
//! depth      requests at the device, by the time that requests wait besides
//! class      direction, size in octaves of pages, place (follows on, near, far), load (alone, alone after a pause,
//!            more)
//! D2C        time at the device, by class; so that a device is compared with itself on equal commands
//! spacing    time between completions while the device has more to do: what a limit on operations looks like
//! cycles     the same for commands one after the other, with its spread: a cap makes the pace constant
//! ```

use std::collections::BTreeMap;

use iowhy_stack::event::{Content, Dir};
use iowhy_stack::units::{Nanos, PAGE_SECTORS};

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

/// What else the device has to do when a command comes.
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
    /// What else there is to do.
    pub load: Load,
}

/// Mean and spread of many values, exactly: buckets are too wide to tell a constant pace from a nearly constant one.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Moments {
    /// How many.
    pub count: u64,
    /// Their sum.
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

    /// The mean; 0 of none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// The standard deviation; 0 of none.
    pub fn deviation(&self) -> f64 {
        if self.count == 0 { 0.0 } else { (self.squares / self.count as f64 - self.mean().powi(2)).max(0.0).sqrt() }
    }
}

/// What still differs among commands of one class.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Within {
    /// Sum of the numbers of commands that were at the device already.
    pub ahead: u64,
    /// Sum of the square roots of the distances, sectors: a seek takes about so long.
    pub root_distance: f64,
    /// Sum of the sizes, sectors.
    pub sectors: u64,
    /// Time at the device, ns.
    pub took: Moments,
}

/// The device rests after this time without a command, ns.
const REST: u64 = 100_000;
/// Sectors of 2 MiB.
const NEAR: u64 = 4096;
/// Most waiting requests that are looked at to judge an order.
const LOOKED_AT: usize = 64;
/// Depths that are told apart.
const DEPTHS: usize = 129;

/// Commands of a run.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    /// Issued: reads and writes; flushes are not counted.
    pub issued: [u64; 2],
    /// Sectors of these.
    pub sectors: [u64; 2],
    /// Sizes, sectors.
    pub sizes: [Spread; 2],
    /// Blocks of metadata and journals among them.
    pub meta: [u64; 2],
    /// Issued requests that end where another one, issued within a few commands, begins.
    pub contiguous: [u64; 2],
    /// Of these, such as are as large as any of the run.
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
    /// Changes of direction.
    pub turns: u64,
    /// Time with so many requests at the device while others wait with the elevator, ns.
    pub depth_when_waiting: Vec<u64>,
    /// Most requests at the device at once, and most of those of the workload that belong to different files.
    pub deepest: u32,
    /// Time with the device idle while requests wait with the elevator, ns.
    pub idle_waiting: u64,
    /// Deliberate waits of the elevator: how often, and how long, ns. Only simulated runs tell.
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
    /// Time of foreign requests at the device, ns.
    pub foreign: u64,
    /// Of that, with requests of the workload waiting or at the device, ns.
    pub in_the_way: u64,
    /// Time of reads of metadata from their allocation to their completion, ns.
    pub meta_reads: u64,
    /// Requests that write back what the workload had dirtied, on nobody's behalf.
    pub written_back: u64,
    /// Time of these at the device while reads of the workload wait or are there, ns.
    pub behind_writeback: u64,
}

impl Commands {
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

/// A request that is allocated.
pub(super) struct New {
    pub(super) rq: u32,
    pub(super) at: Nanos,
    pub(super) queued: Nanos,
    pub(super) dir: Dir,
    pub(super) sector: u64,
    pub(super) nr_sectors: u32,
    pub(super) foreign: bool,
    /// It writes back what the workload had dirtied, on nobody's behalf.
    pub(super) writeback: bool,
    /// It carries only what nobody waits for.
    pub(super) ahead: bool,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Plugged,
    Waiting,
    Issued,
}

#[derive(Copy, Clone, Debug)]
struct Request {
    dir: Dir,
    sector: u64,
    nr_sectors: u32,
    queued: Nanos,
    since: Nanos,
    stage: Stage,
    foreign: bool,
    writeback: bool,
    meta: bool,
    ahead: bool,
    class: Class,
    flush: bool,
}

/// Follows requests.
#[derive(Debug, Default)]
pub(super) struct Observer {
    out: Commands,
    requests: Vec<Option<Request>>,
    /// With the elevator, in the order of their insertion.
    waiting: Vec<u32>,
    /// Reads held in plugs.
    held_reads: u32,
    in_flight: u32,
    foreign_in_flight: u32,
    writeback_in_flight: u32,
    /// Requests of the workload, and reads among them, that wait or are at the device.
    own: [u32; 2],
    accounted: Nanos,
    idle_since: Option<Nanos>,
    idle_from: Nanos,
    head: u64,
    last_dir: Option<Dir>,
    last_done: Option<Nanos>,
    /// The last completion of all, whatever came between.
    last_end: Option<Nanos>,
    /// Ends of the last commands, with their sizes.
    ends: [[(u64, u32); 8]; 2],
    nr: [usize; 2],
    /// How often a command of each size ended where another began.
    continued: [BTreeMap<u32, u64>; 2],
    starved: u64,
    /// The workload has only read so far: nothing of it is to be flushed.
    pub(super) reads_only: bool,
}

impl Observer {
    /// The device has nothing to do, and requests wait, though the elevator does not want it so: what a flush looks
    /// like that is no command of its own.
    pub(super) fn held_back(&self) -> bool {
        self.in_flight == 0 && !self.waiting.is_empty() && self.idle_since.is_none()
    }

    fn get(&mut self, rq: u32) -> Option<&mut Request> {
        self.requests.get_mut(rq as usize)?.as_mut()
    }

    fn pass(&mut self, now: Nanos) {
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
            out.depth_when_waiting[(self.in_flight as usize).min(DEPTHS - 1)] += passed;
        }
        if self.in_flight > 0 {
            out.busy += passed;
        } else if !self.waiting.is_empty() {
            out.idle_waiting += passed;
        } else if self.held_reads > 0 {
            self.starved += passed;
        }
        if self.foreign_in_flight > 0 {
            out.foreign += passed;
            if self.own[0] > 0 {
                out.in_the_way += passed;
            }
        }
        if self.writeback_in_flight > 0 && self.own[1] > 0 {
            out.behind_writeback += passed;
        }
    }

    pub(super) fn allocate(&mut self, new: &New) {
        self.pass(new.at);
        let index = new.rq as usize;
        if index >= self.requests.len() {
            self.requests.resize(index + 1, None);
        }
        self.held_reads += u32::from(new.dir == Dir::Read);
        self.requests[index] = Some(Request {
            dir: new.dir,
            sector: new.sector,
            nr_sectors: new.nr_sectors,
            queued: new.queued,
            since: new.at,
            stage: Stage::Plugged,
            foreign: new.foreign,
            writeback: new.writeback,
            meta: false,
            ahead: new.ahead,
            class: Class::default(),
            flush: new.nr_sectors == 0,
        });
    }

    pub(super) fn merge(&mut self, rq: u32, nr_sectors: u32, front: bool, wanted: bool) {
        self.out.merges[usize::from(front)] += 1;
        if let Some(request) = self.get(rq) {
            request.nr_sectors += nr_sectors;
            request.ahead &= !wanted;
            if front {
                request.sector = request.sector.saturating_sub(u64::from(nr_sectors));
            }
        }
    }

    pub(super) fn unite(&mut self, rq: u32, gone: u32) {
        self.out.merges[2] += 1;
        let Some(old) = self.requests.get_mut(gone as usize).and_then(Option::take) else { return };
        self.leave(gone, &old);
        self.gone(&old);
        if let Some(request) = self.get(rq) {
            request.nr_sectors += old.nr_sectors;
            request.sector = request.sector.min(old.sector);
            request.queued = request.queued.min(old.queued);
            request.ahead &= old.ahead;
        }
    }

    /// A request of the workload, or of nobody, comes to the elevator.
    fn enter(&mut self, request: &Request) {
        let own = u32::from(!request.foreign);
        self.own[0] += own;
        self.own[1] += own * u32::from(request.dir == Dir::Read);
    }

    /// It has gone from the elevator or the device for good.
    fn gone(&mut self, request: &Request) {
        let own = u32::from(!request.foreign && request.stage != Stage::Plugged);
        self.own[0] = self.own[0].saturating_sub(own);
        self.own[1] = self.own[1].saturating_sub(own * u32::from(request.dir == Dir::Read));
    }

    /// A request is no longer where it was.
    fn leave(&mut self, rq: u32, request: &Request) {
        match request.stage {
            Stage::Plugged => {
                self.held_reads = self.held_reads.saturating_sub(u32::from(request.dir == Dir::Read));
            }
            Stage::Waiting => self.waiting.retain(|known| *known != rq),
            Stage::Issued => {
                self.in_flight = self.in_flight.saturating_sub(1);
                self.foreign_in_flight = self.foreign_in_flight.saturating_sub(u32::from(request.foreign));
                self.writeback_in_flight = self.writeback_in_flight.saturating_sub(u32::from(request.writeback));
            }
        }
    }

    /// The request, not issued yet, that ends here.
    pub(super) fn waiting_until(&self, dir: Dir, end: u64) -> Option<u32> {
        // The newest is the likeliest, and plugs and elevators look there first, too.
        let of = |(index, request): (usize, &Option<Request>)| {
            let request = request.as_ref()?;
            let ends = request.dir == dir && request.sector + u64::from(request.nr_sectors) == end;
            (ends && request.stage != Stage::Issued && request.nr_sectors > 0).then_some(index as u32)
        };
        self.requests.iter().enumerate().rev().find_map(of)
    }

    pub(super) fn sectors_of(&self, rq: u32) -> u32 {
        self.requests.get(rq as usize).and_then(Option::as_ref).map_or(0, |request| request.nr_sectors)
    }

    /// The largest command so far, sectors.
    pub(super) fn largest(&self, dir: Dir) -> u32 {
        self.out.sizes[dir as usize].max() as u32
    }

    pub(super) fn insert(&mut self, now: Nanos, rq: u32, plugs: &mut Plugs) {
        self.pass(now);
        let Some(mut request) = self.requests.get_mut(rq as usize).and_then(Option::take) else { return };
        if request.stage == Stage::Plugged {
            self.leave(rq, &request);
            if request.dir == Dir::Read {
                let held = now.saturating_sub(request.queued).0;
                if request.ahead { plugs.held_ahead.add(held) } else { plugs.held.add(held) }
            }
            self.enter(&request);
            request.stage = Stage::Waiting;
            request.since = now;
            self.waiting.push(rq);
        }
        self.requests[rq as usize] = Some(request);
    }

    pub(super) fn issue(
        &mut self,
        now: Nanos,
        rq: u32,
        (dir, content): (Dir, Content),
        sector: u64,
        nr_sectors: u32,
        plugs: &mut Plugs,
    ) {
        let direct = self.get(rq).is_some_and(|request| request.stage == Stage::Plugged);
        if direct {
            // Handed to the driver without a stop at the elevator.
            self.insert(now, rq, plugs);
        }
        self.pass(now);
        if self.requests.len() <= rq as usize {
            self.requests.resize(rq as usize + 1, None);
        }
        let known = self.requests[rq as usize].take();
        if known.is_some_and(|request| request.stage == Stage::Issued) {
            // Issued again after a requeue.
            self.requests[rq as usize] = known;
            return;
        }
        let flush = nr_sectors == 0;
        if let Some(request) = &known {
            self.order(rq, sector);
            self.leave(rq, request);
            if !flush {
                self.out.i2d[dir as usize].add(now.saturating_sub(request.since).0);
            }
        }
        let rested = self.in_flight == 0 && now.saturating_sub(self.idle_from).0 >= REST;
        let load = match self.in_flight {
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
        let foreign = known.map_or(flush && self.reads_only, |request| request.foreign);
        let blank = Request {
            dir,
            sector,
            nr_sectors,
            queued: now,
            since: now,
            stage: Stage::Issued,
            foreign,
            writeback: known.is_some_and(|request| request.writeback),
            meta: !flush && !foreign && content != Content::Data,
            ahead: false,
            class,
            flush,
        };
        if known.is_none() {
            self.enter(&blank);
        }
        self.out.written_back += u64::from(blank.writeback);
        self.writeback_in_flight += u32::from(blank.writeback);
        self.requests[rq as usize] = Some(Request { queued: known.map_or(now, |request| request.queued), ..blank });
        if !flush {
            let within = self.out.within.entry(class).or_default();
            within.ahead += u64::from(self.in_flight);
            within.root_distance += (distance as f64).sqrt();
            within.sectors += u64::from(nr_sectors);
        }
        self.in_flight += 1;
        self.foreign_in_flight += u32::from(foreign);
        self.out.deepest = self.out.deepest.max(self.in_flight);
        if flush {
            return;
        }
        let way = dir as usize;
        let out = &mut self.out;
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
    fn order(&mut self, rq: u32, sector: u64) {
        if self.waiting.len() < 2 || self.waiting.len() > LOOKED_AT {
            return;
        }
        let mut next_up = true;
        for other in self.waiting.iter().filter(|other| **other != rq) {
            if let Some(other) = self.requests.get(*other as usize).and_then(Option::as_ref) {
                let up = |sector: u64| (sector < self.head, sector);
                next_up &= up(sector) <= up(other.sector);
            }
        }
        self.out.choices += 1;
        self.out.next_up += u64::from(next_up);
    }

    pub(super) fn complete(&mut self, now: Nanos, rq: u32, digest: &mut Digest) {
        self.pass(now);
        let Some(request) = self.requests.get_mut(rq as usize).and_then(Option::take) else { return };
        self.leave(rq, &request);
        self.gone(&request);
        if request.stage != Stage::Issued {
            return;
        }
        if request.meta && request.dir == Dir::Read && digest.workload.calls.iter().any(|calls| *calls > 0) {
            self.out.meta_reads += now.saturating_sub(request.queued).0;
        }
        let took = now.saturating_sub(request.since).0;
        if request.flush {
            // What is flushed before the first call belongs to the making of the files.
            if digest.workload.calls.iter().any(|calls| *calls > 0) {
                digest.sync.flush.add(took);
            }
        } else {
            self.out.classes.entry(request.class).or_default().add(took);
            self.out.within.entry(request.class).or_default().took.add(took as f64);
            if let Some(last) = self.last_end.filter(|_| request.class.load != Load::Rested) {
                let cycle = now.saturating_sub(last).0 as f64;
                self.out.cycles.entry(request.class.octave).or_default().add(cycle);
            }
            if let Some(last) = self.last_done {
                self.out.spacing.entry(request.class.octave).or_default().add(now.saturating_sub(last).0);
            }
        }
        self.last_end = Some(now);
        if self.in_flight == 0 {
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
