//! A SCSI drive from a file: measured seeks, zones and skews, firmware that caches in segments, overheads on the bus.
//!
//! Three things run in parallel. The arm seeks (a table of times by distance, or the head switch if that takes longer,
//! and more for writes), waits for a sector and passes one sector after the other; at the end of a track it goes on to
//! the next, whose skew decides the cost. The buffer has segments, each with one run of sectors; a read takes the best
//! hit (whole, part) or the segment used longest ago, a full segment forgets its oldest sectors. The bus carries a
//! sector in a fixed time, but only sectors in a segment, and lets go of a read that has to wait unless it is held. A
//! command costs an overhead that depends on hit or miss and on the command before it; the arm starts after it. After a
//! read the drive reads on into the segment, up to a limit, until another command stops it. With fast writes a write is
//! done when its data are in a segment; the next command waits until they are on the medium, except one write that
//! continues them. Zero-latency accesses begin with any sector that the head meets. Commands wait in the drive and are
//! served one at a time: in order, by distance, or by positioning time.
//!
//! Source: Worthington, Ganger and Patt, "Scheduling Algorithms for Modern Disk Drives" (1994) and "On-Line Extraction
//! of SCSI Disk Drive Parameters" (1995); DiskSim 4.0 reference manual (Bucy, Schindler, Schlosser, Ganger, 2008),
//! chapter on disks, for the meaning of each parameter.
//! Known deviations: a command is chosen when the one before it is done, so that neither bus nor overhead of one
//! overlaps the positioning of another; remapped sectors are where they were before; skews are whole sectors; overheads
//! of disconnecting and reselecting are none. The drive without a file is made up.

use std::collections::VecDeque;

pub use crate::device::drive_options::layout;
use crate::device::drive_options::{CYLINDER, NONE, OPTIONS, Rules, TRACK, TRACK_TWICE, made_up};
use crate::device::{Build, Command, Completion, Device, DeviceStats};
use crate::event::Dir;
use crate::origin::{Entry, Options, Origin};
use crate::surfaces::{Column, Geometry, Place, SEEK_COLUMNS, Track, ZONE_COLUMNS};
use crate::units::Nanos;

/// The table entry.
pub const ENTRY: Entry<Build> = Entry {
    name: "drive",
    summary: "a drive from a file: seek table, zones, skews, firmware's segments; `--disk FILE`",
    origin: &[Origin {
        kernels: "SCSI drives of 1991 .. 2001",
        file: "DiskSim 4.0 reference manual; Worthington, Ganger, Patt 1994 and 1995",
        function: "disk module, layout and mechanics g1",
        notes: "Reads DiskSim's parameter files. The drive without a file is made up.",
    }],
    options: OPTIONS,
    conformance: "tests with hand-computed times; `cargo xtask disksim` replays DiskSim's validation traces",
    build: |options, _| Box::new(Drive::new(options)),
};

/// The tables of a file, and their columns.
pub const TABLES: &[(&str, &[Column])] = &[("seek", SEEK_COLUMNS), ("zones", ZONE_COLUMNS)];

/// Times that differ by less are the same: what is left of divisions must not cost a revolution.
const SAME: u64 = 64;

/// The contents of a segment are ..
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    Empty,
    /// .. good,
    Clean,
    /// .. growing from the medium,
    Reading,
    /// .. on its way to the medium.
    Writing,
}

/// Sectors `start .. end` of the disk in the buffer.
#[derive(Copy, Clone, Debug)]
struct Segment {
    start: u64,
    end: u64,
    state: State,
    /// Reading ahead goes on to this sector, and may not be interrupted before that one.
    most_ahead: u64,
    least_ahead: u64,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Hit {
    No,
    Part,
    Whole,
}

/// Work of the arm.
#[derive(Clone, Debug)]
struct Job {
    segment: usize,
    write: bool,
    /// The request; of a write, `done` is the first sector that is not on the medium.
    end: u64,
    done: u64,
    /// Reading ahead.
    background: bool,
    /// Sectors of the request met before those ahead of them.
    early: Option<(u64, u64)>,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    /// The arm is at the track of `sector` from `until` on.
    Seek { until: u64, sector: u64 },
    /// Slot number `nr` since `begin` is passing; `begun` is not set while the first is waited for.
    Pass { track: Track, begin: u64, first_slot: u64, nr: u64, begun: bool, wanted: bool },
}

/// Sectors crossing the bus from `begin` on, the first of them `start`.
#[derive(Copy, Clone, Debug)]
struct Crossing {
    begin: u64,
    start: u64,
    nr: u64,
}

/// A write whose data are in the buffer, behind the one on its way to the medium.
#[derive(Copy, Clone, Debug)]
struct Behind {
    start: u64,
    end: u64,
    decoded: u64,
}

/// A drive.
#[derive(Debug)]
pub(super) struct Drive {
    rules: Rules,
    geometry: Geometry,
    segments: Vec<Segment>,
    /// Numbers of segments, the one used longest ago first.
    oldest: Vec<usize>,
    arm: Place,
    job: Option<Job>,
    behind: Option<Behind>,
    /// The request on the bus: its first sector that has not crossed, and what is crossing.
    host: Option<u64>,
    crossing: Option<Crossing>,
    after_write: bool,
    waiting: VecDeque<(Nanos, Command)>,
    current: Option<(u64, Completion)>,
    stats: DeviceStats,
}

impl Drive {
    fn new(options: &Options) -> Drive {
        let own = made_up();
        let surfaces = options.surfaces().map_or(&own, |surfaces| &**surfaces);
        let geometry = Geometry::new(surfaces, layout(options));
        let rules = Rules::new(options, geometry.nr_sectors());
        let segments = options.unsigned("segments") as usize;
        let empty = Segment { start: 0, end: 0, state: State::Empty, most_ahead: 0, least_ahead: 0 };
        Drive {
            rules,
            geometry,
            segments: vec![empty; segments],
            oldest: (0..segments).collect(),
            arm: Place::default(),
            job: None,
            behind: None,
            host: None,
            crossing: None,
            after_write: false,
            waiting: VecDeque::new(),
            current: None,
            stats: DeviceStats::default(),
        }
    }

    // The arm.

    /// When the arm is at the next change of what it does.
    fn arm_next(&self) -> Option<u64> {
        Some(match &self.job.as_ref()?.phase {
            Phase::Seek { until, .. } => *until,
            Phase::Pass { begin, begun: false, .. } => *begin,
            Phase::Pass { begin, nr, track, .. } => begin + (nr + 1) * self.rules.revolution / track.nr_slots,
        })
    }

    /// Everything that the arm does until `at`.
    fn arm_until(&mut self, at: u64) {
        while self.arm_next().is_some_and(|next| next <= at) {
            self.arm_step();
        }
    }

    /// Whatever the arm is doing, until it is done; when that is, not before `at`.
    fn arm_done(&mut self, mut at: u64) -> u64 {
        while let Some(next) = self.arm_next() {
            at = at.max(next);
            self.arm_step();
        }
        at
    }

    fn seek(&mut self, job: &mut Job, at: u64, sector: u64) {
        let time = self.geometry.seek(self.arm, self.geometry.place(sector), job.write);
        self.stats.seek += Nanos(time);
        self.stats.busy += Nanos(time);
        job.phase = Phase::Seek { until: at + time, sector };
    }

    /// A seek at `at` or, for a write, so late that it takes long enough.
    fn begin(&mut self, mut job: Job, at: u64, sector: u64, least: u64) {
        let time = self.geometry.seek(self.arm, self.geometry.place(sector), job.write);
        self.seek(&mut job, at + least.saturating_sub(time), sector);
        self.stats.media_accesses += u64::from(!job.background);
        self.job = Some(job);
    }

    /// When the sectors of the track after a seek begin to pass, and the slot that is then the first.
    fn rotate(&self, track: &Track, sector: u64, write: bool, now: u64) -> (u64, u64) {
        let (revolution, nr_slots) = (self.rules.revolution, track.nr_slots);
        let wait = |slot: u64| {
            let angle = (track.turned + slot) % nr_slots * revolution / nr_slots;
            let wait = (angle + revolution - now % revolution) % revolution;
            if revolution - wait <= SAME { 0 } else { wait }
        };
        let slot = track.slot(sector);
        let free = !write && self.rules.free_reads && sector != track.first;
        if self.rules.zero_latency[usize::from(write)] || free {
            let last = (slot + track.last - track.first).min(track.last_slot());
            if (1..wait(slot)).contains(&wait(last)) {
                // The head is among these sectors: the next to come.
                let next = (now % revolution * nr_slots).div_ceil(revolution);
                let slot = (next + nr_slots - track.turned) % nr_slots;
                return (now + wait(slot), slot);
            }
        }
        (now + wait(slot), slot)
    }

    fn arm_step(&mut self) {
        let Some(now) = self.arm_next() else { return };
        let Some(mut job) = self.job.take() else { return };
        match job.phase {
            Phase::Seek { sector, .. } => {
                let track = self.geometry.track(sector);
                self.arm = track.place;
                let (begin, first_slot) = self.rotate(&track, sector, job.write, now);
                self.stats.rotation += Nanos(begin - now);
                self.stats.busy += Nanos(begin - now);
                job.phase = Phase::Pass { track, begin, first_slot, nr: 0, begun: false, wanted: false };
            }
            Phase::Pass { ref track, ref mut begun, ref mut nr, ref mut wanted, first_slot, .. } => {
                if *begun {
                    // A command that has arrived since then may still need what this sector would displace.
                    let is_kept = |sector: &u64| job.write || self.has_room(job.segment, *sector, now);
                    let sector = track.sector((first_slot + *nr) % track.nr_slots).filter(|_| *wanted).filter(is_kept);
                    *nr += 1;
                    self.stats.busy += Nanos(self.rules.revolution / track.nr_slots);
                    if let Some(sector) = sector {
                        let last = track.last;
                        self.passed(&mut job, sector, last);
                        if self.is_done(&mut job) {
                            return self.end(job, now);
                        }
                        let front = if job.write { job.done } else { self.segments[job.segment].end };
                        if front > last {
                            return self.next_track(job, front, now);
                        }
                    }
                }
                let Phase::Pass { ref track, ref mut begun, nr, ref mut wanted, first_slot, .. } = job.phase else {
                    unreachable!("passing does not change the phase")
                };
                *begun = true;
                let sector = track.sector((first_slot + nr) % track.nr_slots);
                *wanted = sector.is_some_and(|sector| {
                    if job.write {
                        (job.done..self.received(job.segment, now)).contains(&sector)
                    } else {
                        self.has_room(job.segment, sector, now)
                    }
                });
            }
        }
        self.job = Some(job);
    }

    /// Whether a sector that begins to pass can be put into the segment.
    fn has_room(&self, segment: usize, sector: u64, now: u64) -> bool {
        let segment = &self.segments[segment];
        if sector < segment.end {
            return sector < segment.start && self.rules.free_reads && segment.start == segment.end;
        }
        // The sectors that the host has not fetched yet must stay.
        let Some(fetched) = self.host else { return true };
        let fetched = self.crossing.map_or(fetched, |crossing| crossing.start + self.crossed(crossing, now, 0));
        sector < fetched.max(segment.start) + self.rules.segment_sectors
    }

    /// The first sector of a write's segment whose data the host has not sent.
    fn received(&self, segment: usize, now: u64) -> u64 {
        let end = self.segments[segment].end;
        self.crossing.map_or(end, |crossing| crossing.start + self.crossed(crossing, now, 1))
    }

    fn crossed(&self, crossing: Crossing, now: u64, write: usize) -> u64 {
        let time = now.saturating_sub(crossing.begin);
        time.checked_div(self.rules.bus[write]).map_or(crossing.nr, |nr| nr.min(crossing.nr))
    }

    /// A sector that was wanted has passed.
    fn passed(&mut self, job: &mut Job, sector: u64, last: u64) {
        let segment = &mut self.segments[job.segment];
        let (front, limit) = match job.write {
            true => (&mut job.done, job.end),
            false => (&mut segment.end, if job.background { segment.most_ahead } else { job.end }),
        };
        let limit = limit.min(last + 1);
        if sector == *front {
            *front += 1;
            if let Some((_, end)) = job.early.take_if(|(start, _)| *start == *front) {
                *front = end;
            }
        } else if !job.write && sector < segment.start {
            (segment.start, segment.end) = (sector, sector + 1);
        } else if self.rules.zero_latency[usize::from(job.write)] && sector > *front && sector < limit {
            match &mut job.early {
                Some((_, end)) if *end == sector => *end += 1,
                Some((_, end)) if *end > sector => {}
                early => *early = Some((sector, sector + 1)),
            }
        }
        segment.start = segment.start.max(segment.end.saturating_sub(self.rules.segment_sectors));
    }

    /// Whether the arm has nothing more to do for it. A read that is complete becomes reading ahead.
    fn is_done(&self, job: &mut Job) -> bool {
        let segment = &self.segments[job.segment];
        if job.write {
            return job.done >= job.end;
        }
        if !job.background && segment.end >= job.end && self.rules.read_ahead != NONE {
            job.background = true;
        }
        if job.background { segment.end >= segment.most_ahead } else { segment.end >= job.end }
    }

    /// The arm is free; what was written behind it is next.
    fn end(&mut self, job: Job, now: u64) {
        let keeps = self.rules.cache && (!job.write || self.rules.hits_on_writes);
        self.segments[job.segment].state = if keeps { State::Clean } else { State::Empty };
        if let Some(Behind { start, end, decoded }) = self.behind.take() {
            self.segments[job.segment].state = State::Writing;
            let next = Job { end, done: start, early: None, ..job };
            self.begin(next, now.max(decoded), start, 0);
        }
    }

    fn next_track(&mut self, mut job: Job, sector: u64, now: u64) {
        if sector >= self.rules.nr_sectors || job.background && !self.may_go_to(sector) {
            return self.end(job, now);
        }
        self.seek(&mut job, now, sector);
        self.job = Some(job);
    }

    /// Whether reading ahead may move to this sector.
    fn may_go_to(&self, sector: u64) -> bool {
        let place = self.geometry.place(sector);
        match self.rules.read_ahead {
            NONE => false,
            TRACK => place == self.arm,
            CYLINDER => place.cylinder == self.arm.cylinder,
            _ => true,
        }
    }

    /// Stops reading ahead. The arm is free at the time returned, if that is not at once.
    fn stop(&mut self) -> u64 {
        let Some(next) = self.arm_next() else { return 0 };
        let Some(job) = self.job.take() else { return 0 };
        self.segments[job.segment].state = if self.rules.cache { State::Clean } else { State::Empty };
        match job.phase {
            Phase::Seek { until, sector } => {
                self.arm = self.geometry.place(sector);
                until
            }
            Phase::Pass { .. } if self.rules.stop_in_sector => 0,
            Phase::Pass { .. } => next,
        }
    }

    /// Frees the arm for a command that does not go on with what it does: when it is, and how much later it can move.
    fn free_arm(&mut self, at: u64) -> (u64, u64) {
        let Some(job) = &self.job else { return (at, 0) };
        let segment = &mut self.segments[job.segment];
        if job.write || segment.end < segment.least_ahead {
            segment.most_ahead = segment.least_ahead;
            return (self.arm_done(at), 0);
        }
        (at, self.stop().saturating_sub(at))
    }

    // The buffer.

    fn find_read(&self, start: u64, end: u64) -> (usize, Hit) {
        let mut best = (0, self.oldest[self.oldest.len() - 1], Hit::No);
        for &nr in self.oldest.iter().filter(|nr| !self.rules.write_segment || **nr != 0) {
            let segment = &self.segments[nr];
            let held = (segment.start..segment.end).contains(&start) && self.rules.cache;
            let hit = if segment.end >= end { Hit::Whole } else { Hit::Part };
            let worth = match segment.state {
                State::Empty => (3, Hit::No),
                State::Reading if held => (9, hit),
                State::Clean if held => (8, hit),
                State::Reading if segment.end == start && self.rules.almost_hits => (9, Hit::Part),
                State::Clean => (2, Hit::No),
                State::Reading => (1, Hit::No),
                State::Writing => (0, Hit::No),
            };
            let value = if worth.1 == Hit::Part { worth.0 - 4 } else { worth.0 };
            if value > best.0 {
                best = (value, nr, worth.1);
            }
        }
        (best.1, best.2)
    }

    fn find_write(&self, start: u64, end: u64) -> usize {
        let mut best = (0, self.oldest[self.oldest.len() - 1]);
        for &nr in self.oldest.iter().filter(|nr| !self.rules.write_segment || **nr == 0) {
            let segment = &self.segments[nr];
            let value = match segment.state {
                State::Clean if segment.start < end && start < segment.end => 4,
                State::Empty => 3,
                State::Clean => 2,
                State::Reading | State::Writing => 1,
            };
            if value > best.0 {
                best = (value, nr);
            }
        }
        best.1
    }

    /// This segment has been used last.
    fn touch(&mut self, segment: usize) {
        self.oldest.retain(|nr| *nr != segment);
        self.oldest.push(segment);
    }

    /// Where reading ahead ends after a read of `start .. end` into a segment that begins at `first`.
    fn most_ahead(&self, first: u64, end: u64) -> u64 {
        let last = self.rules.nr_sectors;
        if self.rules.read_ahead == TRACK_TWICE && end < last {
            let track = self.geometry.track(end);
            let more = if first < track.first { self.geometry.per_track(end) } else { 0 };
            return (track.last + 1 + more).min(last);
        }
        let more = match self.rules.read_ahead_sectors {
            _ if self.rules.read_ahead == NONE => 0,
            0 => self.rules.segment_sectors,
            more => more,
        };
        (end + more).min(last)
    }

    // Commands.

    /// Carries out a read that arrives at `arrival`: when it is done, and whether the medium was needed.
    fn read(&mut self, arrival: u64, start: u64, end: u64) -> (u64, bool) {
        let [miss, hit_time] = [0, 1].map(|hit| self.rules.overhead[0][hit][usize::from(self.after_write)]);
        let water = self.rules.water(false, end - start);
        self.arm_until(arrival);
        let writing = self.job.as_ref().is_some_and(|job| job.write);
        let (mut segment, mut hit) = self.find_read(start, end);
        let enough = self.segments[segment].end.saturating_sub(start) >= water.min(end - start);
        let ready = match hit {
            Hit::No => false,
            Hit::Part => self.rules.partial_hit_at_once || enough,
            Hit::Whole => true,
        };
        let direct = self.rules.never_disconnect || ready && !writing;
        let goes_on = !writing && hit != Hit::No && self.job.as_ref().is_some_and(|job| job.segment == segment);
        let (mut free, mut late) = (arrival, 0);
        if !goes_on {
            (free, late) = self.free_arm(arrival);
            (segment, hit) = self.find_read(start, end);
        }
        self.touch(segment);
        let held = &mut self.segments[segment];
        if hit == Hit::No {
            *held = Segment { start, end: start, state: State::Clean, most_ahead: 0, least_ahead: 0 };
        }
        let first = held.start;
        held.least_ahead = held.least_ahead.max((end + self.rules.read_ahead_least).min(self.rules.nr_sectors));
        let most = self.most_ahead(first, end);
        let held = &mut self.segments[segment];
        held.most_ahead = held.most_ahead.max(most);
        self.host = Some(start);
        let job = |background| Job {
            segment,
            write: false,
            end,
            done: end,
            background,
            early: None,
            phase: Phase::Seek { until: 0, sector: start },
        };
        let (front, most) = (held.end, held.most_ahead);
        let moves = free.max(arrival + miss) + late;
        match self.job.as_mut() {
            Some(job) => (job.end, job.background) = (end, front >= end),
            None if front < end => {
                self.segments[segment].state = State::Reading;
                self.begin(job(false), moves, front, 0);
            }
            None => {
                if front < most && self.rules.read_ahead_on_hit && self.may_go_to(front) {
                    self.segments[segment].state = State::Reading;
                    self.begin(job(true), moves, front, 0);
                }
            }
        }
        let overhead = if direct && hit != Hit::No { hit_time } else { miss };
        let mut at = (arrival + overhead).max(if direct { arrival } else { free }) + self.rules.data_preparation;
        let (mut out, mut connected) = (start, direct);
        while out < end {
            self.arm_until(at);
            let held = self.segments[segment];
            let there = if held.start <= out { held.end.min(end).saturating_sub(out) } else { 0 };
            if there > 0 && (connected || held.end >= end || held.end - out >= water) {
                self.crossing = Some(Crossing { begin: at, start: out, nr: there });
                at += there * self.rules.bus[0];
                self.arm_until(at);
                self.crossing = None;
                out += there;
                self.host = Some(out);
                connected = true;
            } else {
                connected &= self.rules.hold_bus_read || self.rules.never_disconnect;
                at = at.max(self.arm_next().expect("the arm reads what is missing"));
            }
        }
        self.host = None;
        self.after_write = false;
        let media = hit != Hit::Whole || free > arrival;
        self.stats.cache_hits += u64::from(!media);
        (at + self.rules.completion[0], media)
    }

    /// Carries out a write; `forced`: it is on the medium when it is done.
    fn write(&mut self, arrival: u64, start: u64, end: u64, forced: bool) -> (u64, bool) {
        let fast = self.rules.fast_writes && !forced;
        let decoded = arrival + self.rules.overhead[1][usize::from(fast)][usize::from(self.after_write)];
        let (size, water) = (self.rules.segment_sectors, self.rules.water(true, end - start));
        self.arm_until(arrival);
        let continued = self.job.as_ref().filter(|job| {
            job.write
                && self.rules.combine_writes
                && self.behind.is_none()
                && job.end == start
                && start - job.done < size
        });
        let (mut segment, mut free) = (continued.map_or(0, |job| job.segment), arrival);
        if continued.is_some() {
            self.behind = Some(Behind { start, end, decoded });
            self.stats.destages += 1;
        } else {
            let late;
            (free, late) = self.free_arm(arrival);
            segment = self.find_write(start, end);
            self.touch(segment);
            self.segments[segment] =
                Segment { start, end: start, state: State::Writing, most_ahead: 0, least_ahead: 0 };
            let phase = Phase::Seek { until: 0, sector: start };
            let job = Job { segment, write: true, end, done: start, background: false, early: None, phase };
            self.begin(job, free.max(decoded) + late, start, self.rules.write_seek_least);
            self.stats.destages += u64::from(fast);
            self.stats.media_accesses -= u64::from(fast);
        }
        for (nr, other) in self.segments.iter_mut().enumerate() {
            if nr != segment && other.state == State::Clean && other.start < end && start < other.end {
                other.state = State::Empty;
            }
        }
        let mut at = free.max(decoded) + self.rules.data_preparation;
        let (mut out, mut stalled) = (start, false);
        while out < end {
            self.arm_until(at);
            let left = out - self.job.as_ref().map_or(out, |job| job.done.min(out));
            let room = size.saturating_sub(left).min(end - out);
            if room > 0 && (!stalled || left <= water || self.rules.never_disconnect) {
                self.crossing = Some(Crossing { begin: at, start: out, nr: room });
                at += room * self.rules.bus[1];
                self.arm_until(at);
                self.crossing = None;
                out += room;
                let held = &mut self.segments[segment];
                held.end = out;
                held.start = held.start.max(out.saturating_sub(size));
            } else {
                stalled = true;
                at = at.max(self.arm_next().expect("the arm writes what fills the segment"));
            }
        }
        if !fast {
            at = self.arm_done(at);
        }
        self.after_write = true;
        (at + self.rules.completion[1], !fast || free > arrival)
    }

    /// Begins a command.
    fn serve(&mut self, mut at: u64, command: Command) {
        let before = (self.stats.seek, self.stats.rotation);
        at += self.rules.request_overhead;
        if command.flush {
            self.arm_until(at);
            if self.job.as_ref().is_some_and(|job| job.write) {
                at = self.arm_done(at);
            }
        }
        let (start, end) = (command.sector.0, command.sector.0 + u64::from(command.nr_sectors));
        let (done, media) = match command.dir {
            _ if start == end => (at + self.rules.overhead[1][1][usize::from(self.after_write)], false),
            Dir::Read => self.read(at, start, end),
            Dir::Write => self.write(at, start, end, command.fua),
        };
        let (seek, rotation) = (self.stats.seek - before.0, self.stats.rotation - before.1);
        self.current = Some((done, Completion { tag: command.tag, media, seek, rotation }));
    }

    /// The waiting command that is next at `now`.
    fn choose(&mut self, now: u64) -> Option<(u64, Command)> {
        let cost = |command: &Command| match (self.rules.scheduling, command.nr_sectors) {
            (0, _) | (_, 0) => 0,
            (1, _) => u64::from(self.geometry.place(command.sector.0).cylinder.abs_diff(self.arm.cylinder)),
            _ => {
                let write = command.dir == Dir::Write;
                let track = self.geometry.track(command.sector.0);
                let seek = self.geometry.seek(self.arm, track.place, write);
                self.rotate(&track, command.sector.0, write, now + seek).0
            }
        };
        let arrived = self.waiting.iter().enumerate().filter(|(_, (at, _))| at.0 <= now);
        let nr = arrived.min_by_key(|(nr, (_, command))| (cost(command), *nr)).map_or(0, |(nr, _)| nr);
        self.waiting.remove(nr).map(|(at, command)| (at.0.max(now), command))
    }
}

impl Device for Drive {
    fn queue_depth(&self) -> u32 {
        self.rules.queue_depth
    }

    fn nr_sectors(&self) -> u64 {
        self.rules.nr_sectors
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        let given = self.waiting.len() + usize::from(self.current.is_some());
        assert!(given < self.rules.queue_depth as usize, "the drive takes {} commands", self.rules.queue_depth);
        assert!(command.sector.0 + u64::from(command.nr_sectors) <= self.rules.nr_sectors);
        if self.current.is_none() {
            self.serve(now.0, command);
        } else {
            self.waiting.push_back((now, command));
        }
    }

    fn next(&self) -> Option<Nanos> {
        self.current.map(|(done, _)| Nanos(done))
    }

    fn advance(&mut self, now: Nanos) -> Option<Completion> {
        let (done, completion) = self.current.take_if(|(done, _)| *done <= now.0)?;
        if let Some((at, command)) = self.choose(done) {
            self.serve(at, command);
        }
        Some(completion)
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }

    fn rotational(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::testing::{flush, read, run, write};
    use crate::surfaces::{Surfaces, Zone};

    /// Two heads, ten cylinders of ten sectors a track: a revolution takes 10 ms, a sector 1 ms, on the bus 0.1 ms.
    /// Head switch 0.5 ms, a cylinder 1 ms, nine 3 ms. Overheads: read hit 0.1 ms, miss 0.3; write fast 0.2, else 0.4.
    fn drive(options: &[(&str, i64)]) -> Drive {
        let zone = Zone {
            last_cylinder: 9,
            sectors_per_track: 10,
            track_skew_sectors: 2,
            cylinder_skew_sectors: 3,
            ..Zone::default()
        };
        let mut values = ENTRY.defaults();
        let small = [("rpm", 6_000), ("heads", 2), ("nr_sectors", 200), ("bus_read_ns", 100_000), ("segments", 3)];
        let writes = [("bus_write_ns", 100_000), ("write_miss_after_read_ns", 400_000), ("segment_sectors", 8)];
        for (name, value) in small.iter().chain(&writes).chain(options) {
            values.set(name, *value);
        }
        values.set_surfaces(Arc::new(Surfaces { seek: vec![(1, 1_000_000), (9, 3_000_000)], zones: vec![zone] }));
        Drive::new(&values)
    }

    /// When each command is done, in microseconds; given as (time, command).
    fn times(options: &[(&str, i64)], commands: &[(u64, Command)]) -> Vec<u64> {
        let mut drive = drive(options);
        commands.iter().map(|&(at, command)| run(&mut drive, Nanos::from_us(at), command).0.0 / 1_000).collect()
    }

    #[test]
    fn commands_take_as_long_as_computed_by_hand() {
        let forced = |sector, nr| Command { fua: true, ..write(1, sector, nr) };
        for (name, options, commands, expected) in [
            // Sector 5 passes from 5 to 6 ms.
            ("read", &[][..], &[(0, read(1, 5, 1))][..], &[6_100][..]),
            // The bus follows the medium ..
            ("three sectors", &[], &[(0, read(1, 5, 3))], &[8_100]),
            // .. unless it waits until all are there, or is slower.
            ("water", &[("read_water_permille", 1_000)], &[(0, read(1, 5, 3))], &[8_300]),
            ("slow bus", &[("bus_read_ns", 2_000_000)], &[(0, read(1, 5, 3))], &[12_000]),
            (
                "completion",
                &[("read_completion_ns", 70_000), ("data_preparation_ns", 5_000)],
                &[(0, read(1, 5, 1))],
                &[6_170],
            ),
            // One revolution missed: the overhead ends when sector 0 has begun.
            ("missed", &[], &[(0, read(1, 0, 1))], &[11_100]),
            // Head switch and skew: sector 10 is turned by two, and passes from 12 to 13 ms.
            ("next track", &[], &[(0, read(1, 9, 2))], &[13_100]),
            // One cylinder: 0.3 + 1 ms; slot 0 is turned by 2 + 3 sectors, so that it passes from 5 to 6 ms.
            ("next cylinder", &[], &[(0, read(1, 20, 1))], &[6_100]),
            // Nine cylinders: 3.3 ms; turned by 9 * 5, so that slot 0 passes from 5 to 6 ms.
            ("far", &[], &[(0, read(1, 180, 1))], &[6_100]),
            // Sector 6 has been read ahead by 7 ms; sector 7 passes until 8.
            ("hit", &[], &[(0, read(1, 5, 1)), (7_500, read(1, 6, 1))], &[6_100, 7_700]),
            ("part of a hit", &[], &[(0, read(1, 5, 1)), (7_500, read(1, 6, 2))], &[6_100, 8_100]),
            // Without reading ahead the next sector has begun.
            ("none ahead", &[("read_ahead", 0)], &[(0, read(1, 5, 1)), (7_500, read(1, 6, 1))], &[6_100, 17_100]),
            // A segment of 8 sectors ends with sector 12, and forgets the first ones then.
            ("forgotten", &[], &[(0, read(1, 5, 1)), (40_000, read(1, 5, 1))], &[6_100, 46_100]),
            ("kept", &[], &[(0, read(1, 5, 1)), (40_000, read(1, 7, 1))], &[6_100, 40_200]),
            // Until the end of the track.
            ("track", &[("read_ahead", 1)], &[(0, read(1, 5, 1)), (40_000, read(1, 9, 1))], &[6_100, 40_200]),
            ("track ends", &[("read_ahead", 1)], &[(0, read(1, 5, 1)), (40_000, read(1, 10, 1))], &[6_100, 43_100]),
            // A fast write takes overhead and bus; a read waits until its sectors are on the medium, 6 ms.
            ("fast write", &[], &[(0, write(1, 5, 1)), (1_000, read(1, 3, 1))], &[300, 14_100]),
            ("its data", &[], &[(0, write(1, 5, 1)), (1_000, read(1, 5, 1))], &[300, 6_100]),
            ("its data again", &[], &[(0, write(1, 5, 1)), (20_000, read(1, 5, 1))], &[300, 20_200]),
            ("not kept", &[("hits_on_writes", 0)], &[(0, write(1, 5, 1)), (20_000, read(1, 5, 1))], &[300, 26_100]),
            ("forced", &[], &[(0, forced(5, 1))], &[6_000]),
            ("slow writes", &[("fast_writes", 0), ("write_completion_ns", 20_000)], &[(0, write(1, 5, 2))], &[7_020]),
            ("flush", &[], &[(0, write(1, 5, 1)), (1_000, flush(1))], &[300, 6_200]),
            // A write settles after a seek: 0.2 + 1 + 0.4 ms; slot 0 of the cylinder passes from 5 to 6 ms.
            ("settled", &[], &[(0, forced(20, 1))], &[6_000]),
            ("least seek", &[("write_seek_least_ns", 6_000_000)], &[(0, forced(20, 1))], &[16_000]),
            // A write that continues the one on its way is done at once, and in the same pass on the medium.
            ("joined", &[], &[(0, write(1, 5, 1)), (1_000, write(1, 6, 1)), (1_500, flush(1))], &[300, 1_300, 7_200]),
            ("not joined", &[("combine_writes", 0)], &[(0, write(1, 5, 1)), (1_000, write(1, 6, 1))], &[300, 6_100]),
            // A segment takes 8 sectors; the others follow when one is left, in time for the same pass.
            ("larger than a segment", &[], &[(0, forced(0, 10))], &[20_000]),
            // The head meets sector 1 first, at 1 ms, and all ten pass until 11 ms; sector 0 is the last, and the bus
            // begins with it. In order they would pass until 20 ms, each on the bus in the meantime.
            ("zero latency", &[("zero_latency_reads", 1), ("segment_sectors", 20)], &[(0, read(1, 0, 10))], &[12_000]),
            ("in order", &[("segment_sectors", 20)], &[(0, read(1, 0, 10))], &[20_100]),
            (
                "zero-latency write",
                &[("zero_latency_writes", 1), ("segment_sectors", 20)],
                &[(0, forced(0, 10))],
                &[11_000],
            ),
            // The sector that is passing when the second read arrives would displace its first one: it waits a turn.
            (
                "full",
                &[],
                &[(0, read(1, 0, 1)), (18_950, read(1, 0, 8)), (40_000, read(1, 8, 1))],
                &[11_100, 19_850, 40_200],
            ),
            // Sectors 0 to 4 pass before sector 5 when the head arrives at 7 ms, and are kept.
            (
                "free reads",
                &[("free_reads", 1), ("read_ahead", 0)],
                &[(7_000, read(1, 5, 1)), (40_000, read(1, 2, 1))],
                &[16_100, 40_200],
            ),
        ] {
            let found = times(options, commands);
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn waiting_commands_are_served_by_the_rule() {
        // Near by time, near by cylinder, first; all while a read of sector 5 is served until 6.1 ms.
        let waiting = [(1, 100), (2, 40), (3, 8)];
        for (scheduling, expected) in [(0, [1, 2, 3]), (1, [3, 2, 1]), (2, [3, 1, 2])] {
            let mut drive = drive(&[("queue_depth", 4), ("scheduling", scheduling)]);
            drive.submit(Nanos::ZERO, read(0, 5, 1));
            waiting.iter().for_each(|&(tag, sector)| drive.submit(Nanos::ZERO, read(tag, sector, 1)));
            let order: Vec<u32> =
                std::iter::from_fn(|| drive.next().and_then(|at| drive.advance(at))).map(|done| done.tag).collect();
            assert_eq!(order[1..], expected, "{scheduling}");
        }
    }
}
