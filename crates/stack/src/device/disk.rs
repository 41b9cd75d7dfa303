//! A disk drive: one arm over turning platters, a track buffer, a write cache and a queue.
//!
//! Every position has a *platter time*, the time the head needs to stream there from the first sector; its remainder
//! by the revolution is the sector's angle, and the platters' angle is the clock's remainder, so rotation is exact and
//! all arithmetic is in integers. A command costs a latency that overlaps with others and firmware time that does not
//! (more of it if the stream changes). An access is: overhead, seek (a curve in the square root of the distance), wait
//! for the sector, transfer. After a read from the medium the head goes on reading ahead into a segment until that is
//! full or something else needs the arm; sectors it is about to pass are answered as it passes them. Writes go to a
//! cache and reach the medium when the drive has been idle for a while, when a write does not fit, or on a flush. Its
//! budget is in bytes, and in extents or commands (`write_slots.rs`); commands are accepted while the arm moves, and
//! one that does not fit waits inside the drive. With slots the firmware stays with a write until its data has crossed
//! the cable: those behind one that does not fit are not looked at. Without the cache, and for writes that are forced,
//! a write is done at the end of its transfer, so that a lone stream has a record a revolution. With a queue, the
//! access whose transfer can begin first is next, with the angle as it is when the command is decoded, unless another
//! has been passed over too often.
//!
//! Shared by the drive profiles in its folder, which give the values and their sources; itself in no table. Source: the
//! mechanics are textbook (Ruemmler and Wilkes, "An Introduction to Disk Drive Modeling", 1994, cited from memory);
//! look-ahead in progress, its interruption and the destage rules are assumptions, tried and (discarding) chosen by
//! replaying the published random-read tests of 2004; slots and firmware time are inferred from two reports of 2010.
//!
//! Known deviations: the media rate is the sustained one, so that head and track switches and skew are inside it; a
//! track buffer whose look-ahead has ended does not resume it on a hit; a read that is only partly cached is read in
//! full; data in segments is assumed to be kept up to date by writes; the cable is given out in the order in which
//! commands were accepted.

use std::collections::VecDeque;

use crate::device::completions::{Completions, transfer};
use crate::device::write_slots::{Order, Slots};
use crate::device::{Command, Completion, Device, DeviceStats};
use crate::event::Dir;
use crate::origin::Options;
use crate::rng::Rng;
use crate::units::{Nanos, Sector};

/// Zones of a drive whose rate falls towards the inside.
const NR_ZONES: u64 = 16;

/// The tunables of a drive profile: for each key its default and the source of that.
macro_rules! disk_options {
    (@ queue_depth, $value:expr, $source:literal) => {
        disk_options!(@number "queue_depth", $value, (1, 1024), "Commands accepted at once", $source)
    };
    (@ age_cap_passes, $value:expr, $source:literal) => {
        disk_options!(@number "age_cap_passes", $value, (0, 1_000_000),
            "How often a queued command may be passed over for a nearer one; 0 serves in order of arrival", $source)
    };
    (@ nr_sectors, $value:expr, $source:literal) => {
        disk_options!(@number "nr_sectors", $value, (1_000_000, u32::MAX as i64), "Capacity", $source)
    };
    (@ rpm, $value:expr, $source:literal) => {
        disk_options!(@number "rpm", $value, (1_000, 30_000), "Revolutions a minute", $source)
    };
    (@ random_phase, $value:expr, $source:literal) => {
        OptionSpec::switch("random_phase", $value,
            concat!("Draw the platters' angle at time 0 from the seed; off: it is 0. Source: ", $source, "."))
    };
    (@ seek_track_us, $value:expr, $source:literal) => {
        disk_options!(@number "seek_track_us", $value, (0, 100_000), "Seek over less than seek_track_sectors", $source)
    };
    (@ seek_track_sectors, $value:expr, $source:literal) => {
        disk_options!(@number "seek_track_sectors", $value, (0, 1_000_000),
            "Distance from which the seek curve holds", $source)
    };
    (@ seek_min_us, $value:expr, $source:literal) => {
        disk_options!(@number "seek_min_us", $value, (0, 100_000), "Where the seek curve begins", $source)
    };
    (@ seek_avg_us, $value:expr, $source:literal) => {
        disk_options!(@number "seek_avg_us", $value, (0, 100_000),
            "Mean seek between random places; the curve is seek_min_us + 15/8 (seek_avg_us - seek_min_us) sqrt(d)",
            $source)
    };
    (@ write_settle_us, $value:expr, $source:literal) => {
        disk_options!(@number "write_settle_us", $value, (0, 100_000), "More for a write to the medium", $source)
    };
    (@ media_rate_kb_s, $value:expr, $source:literal) => {
        disk_options!(@number "media_rate_kb_s", $value, (1_000, 1_000_000),
            "Sustained rate at the outside, 1000 bytes/s", $source)
    };
    (@ inner_rate_kb_s, $value:expr, $source:literal) => {
        disk_options!(@number "inner_rate_kb_s", $value, (1_000, 1_000_000),
            "Rate at the inside, 16 zones in between; as media_rate_kb_s: no zones", $source)
    };
    (@ bus_rate_kb_s, $value:expr, $source:literal) => {
        disk_options!(@number "bus_rate_kb_s", $value, (1_000, 10_000_000), "Rate of the cable, 1000 bytes/s", $source)
    };
    (@ read_overhead_us, $value:expr, $source:literal) => {
        disk_options!(@number "read_overhead_us", $value, (0, 100_000), "Before a read from the medium", $source)
    };
    (@ cached_overhead_us, $value:expr, $source:literal) => {
        disk_options!(@number "cached_overhead_us", $value, (0, 100_000),
            "Before a read from the buffer; for a flush", $source)
    };
    (@ write_overhead_us, $value:expr, $source:literal) => {
        disk_options!(@number "write_overhead_us", $value, (0, 100_000), "Before a write, cached or not", $source)
    };
    (@ tlat_us, $value:expr, $source:literal) => {
        disk_options!(@number "tlat_us", $value, (0, 100_000),
            "Before every command; overlaps with other commands", $source)
    };
    (@ tfw_us, $value:expr, $source:literal) => {
        disk_options!(@number "tfw_us", $value, (0, 100_000),
            "Firmware time of every command, one after the other", $source)
    };
    (@ tsw_us, $value:expr, $source:literal) => {
        disk_options!(@number "tsw_us", $value, (0, 100_000),
            "More firmware time for a command that does not continue the one before it", $source)
    };
    (@ lookahead_kb, $value:expr, $source:literal) => {
        disk_options!(@number "lookahead_kb", $value, (0, 65_536),
            "Read beyond the last sector asked for; 0: none", $source)
    };
    (@ history_kb, $value:expr, $source:literal) => {
        disk_options!(@number "history_kb", $value, (0, 65_536),
            "Kept in a segment before the last sector asked for", $source)
    };
    (@ read_segments, $value:expr, $source:literal) => {
        disk_options!(@number "read_segments", $value, (1, 256), "Segments of the track buffer", $source)
    };
    (@ lookahead_interrupted, $value:expr, $source:literal) => {
        OptionSpec::choice("lookahead_interrupted", &["discard", "keep"], $value,
            concat!("The fate of data read ahead when another command takes the arm. Source: ", $source, "."))
    };
    (@ lookahead_during_decode, $value:expr, $source:literal) => {
        OptionSpec::switch("lookahead_during_decode", $value,
            concat!("Look-ahead goes on during the overhead of the command that ends it. Source: ", $source, "."))
    };
    (@ write_cache, $value:expr, $source:literal) => {
        OptionSpec::switch("write_cache", $value, concat!("Write-back cache. Source: ", $source, "."))
    };
    (@ write_cache_kb, $value:expr, $source:literal) => {
        disk_options!(@number "write_cache_kb", $value, (1, 1_048_576), "Dirty data the cache holds", $source)
    };
    (@ write_cache_extents, $value:expr, $source:literal) => {
        disk_options!(@number "write_cache_extents", $value, (1, 65_536),
            "Separate dirty extents the cache holds", $source)
    };
    (@ write_cache_slots, $value:expr, $source:literal) => {
        disk_options!(@number "write_cache_slots", $value, (0, 4_096),
            "Commands the cache holds, each until it is on the medium; 0: write_cache_extents counts instead", $source)
    };
    (@ coalesce, $value:expr, $source:literal) => {
        OptionSpec::switch("coalesce", $value,
            concat!("With write_cache_slots: commands that continue one another share a slot. Source: ", $source, "."))
    };
    (@ destage_order, $value:expr, $source:literal) => {
        OptionSpec::choice("destage_order", &["nearest", "arrival", "round-robin"], $value,
            concat!("Which dirty extent or run of slots is written first. Source: ", $source, "."))
    };
    (@ destage_idle_ms, $value:expr, $source:literal) => {
        disk_options!(@number "destage_idle_ms", $value, (0, 3_600_000),
            "Quiet time before dirty data is written; very large: only when full", $source)
    };
    (@number $name:literal, $default:expr, $range:expr, $help:literal, $source:literal) => {
        OptionSpec::number($name, $default, $range, concat!($help, ". Source: ", $source, "."))
    };
    ($($key:ident: $value:expr, $source:literal;)*) => {
        &[$(disk_options!(@ $key, $value, $source)),*]
    };
}
pub(super) use disk_options;

/// A run of tracks with the same number of sectors.
#[derive(Copy, Clone, Debug)]
struct Zone {
    start: u64,
    sectors_per_track: u64,
    /// Platter time of its first sector: a whole number of revolutions.
    turned: u64,
}

/// Where the sectors are on the platters.
#[derive(Clone, Debug)]
struct Geometry {
    revolution: u64,
    phase: u64,
    nr_sectors: u64,
    zones: Vec<Zone>,
}

impl Geometry {
    fn new(options: &Options, rng: &mut Rng) -> Geometry {
        let revolution = 60_000_000_000 / options.unsigned("rpm");
        let (outer, inner) = (options.get("media_rate_kb_s"), options.get("inner_rate_kb_s"));
        let nr_sectors = options.unsigned("nr_sectors");
        let nr_zones = if outer == inner { 1 } else { NR_ZONES };
        let (mut start, mut turned) = (0, 0);
        let mut zones = Vec::with_capacity(nr_zones as usize);
        for i in 0..nr_zones {
            let rate = outer - (outer - inner) * (2 * i + 1) as i64 / (2 * nr_zones) as i64;
            let rate = if nr_zones == 1 { outer as u64 } else { rate as u64 };
            // Rounded to whole sectors; bytes = rate * 1000 * revolution / 10^9.
            let sectors_per_track = ((rate * revolution / 512 + 500_000) / 1_000_000).max(1);
            zones.push(Zone { start, sectors_per_track, turned });
            // A zone ends with a whole track, so that platter time has no gaps.
            let nr_tracks = nr_sectors / nr_zones / sectors_per_track;
            start += nr_tracks * sectors_per_track;
            turned += nr_tracks * revolution;
        }
        let phase = if options.is_on("random_phase") { rng.below(revolution) } else { 0 };
        Geometry { revolution, phase, nr_sectors, zones }
    }

    /// Platter time of `sector`.
    fn turned(&self, sector: u64) -> u64 {
        let zone = match self.zones.len() {
            1 => &self.zones[0],
            _ => &self.zones[self.zones.partition_point(|zone| zone.start <= sector) - 1],
        };
        zone.turned + (sector - zone.start) * self.revolution / zone.sectors_per_track
    }

    /// The last sector whose platter time is not beyond `turned`.
    fn reached(&self, turned: u64) -> u64 {
        let zone = match self.zones.len() {
            1 => &self.zones[0],
            _ => &self.zones[self.zones.partition_point(|zone| zone.turned <= turned) - 1],
        };
        zone.start + ((turned - zone.turned + 1) * zone.sectors_per_track - 1) / self.revolution
    }

    /// How long from `now` until `sector` comes round.
    fn rotation(&self, now: u64, sector: u64) -> u64 {
        let angle = (self.turned(sector) + self.phase) % self.revolution;
        let at = now % self.revolution;
        if angle >= at { angle - at } else { angle + self.revolution - at }
    }
}

/// A command that cannot be answered yet.
#[derive(Copy, Clone, Debug)]
struct Waiting {
    command: Command,
    arrival: u64,
    /// When the drive has looked at it, save for the overhead of its kind; of one that is held, when it may.
    decoded: u64,
    /// The firmware has not come to it yet.
    held: bool,
    number: u64,
    passes: u64,
}

impl Waiting {
    fn start(&self) -> u64 {
        self.command.sector.0
    }

    fn end(&self) -> u64 {
        self.command.sector.0 + u64::from(self.command.nr_sectors)
    }
}

/// Dirty data, `start .. end`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Extent {
    start: u64,
    end: u64,
    /// Number of the oldest command in it.
    number: u64,
}

/// The write cache: extents in order of sectors, never touching one another.
#[derive(Clone, Debug)]
struct Dirty {
    extents: Vec<Extent>,
    nr_sectors: u64,
    /// The extent on its way to the medium: it still takes its room and answers reads, but nothing joins it.
    destaging: Option<Extent>,
    max_sectors: u64,
    max_extents: usize,
    order: Order,
}

impl Dirty {
    /// The extents that `start .. end` overlaps or touches.
    fn touching(&self, start: u64, end: u64) -> std::ops::Range<usize> {
        let first = self.extents.partition_point(|extent| extent.end < start);
        let behind = self.extents.partition_point(|extent| extent.start <= end);
        first..behind.max(first)
    }

    /// Takes `start .. end` in if there is room.
    fn absorb(&mut self, start: u64, end: u64, number: u64) -> bool {
        let joined = self.touching(start, end);
        let mut union = Extent { start, end, number };
        let mut replaced = 0;
        for extent in &self.extents[joined.clone()] {
            union.start = union.start.min(extent.start);
            union.end = union.end.max(extent.end);
            union.number = union.number.min(extent.number);
            replaced += extent.end - extent.start;
        }
        let (writing, nr_writing) = self.destaging.map_or((0, 0), |extent| (extent.end - extent.start, 1));
        let nr_sectors = self.nr_sectors - replaced + (union.end - union.start);
        if nr_sectors + writing > self.max_sectors
            || self.extents.len() - joined.len() + 1 + nr_writing
                > self.max_extents.max(self.extents.len() + nr_writing)
        {
            return false;
        }
        self.nr_sectors = nr_sectors;
        if joined.is_empty() {
            self.extents.insert(joined.start, union);
        } else {
            self.extents[joined.start] = union;
            self.extents.drain(joined.start + 1..joined.end);
        }
        true
    }

    /// Forgets `start .. end`, which newer data on the medium replaces.
    fn subtract(&mut self, start: u64, end: u64) {
        let mut i = self.extents.partition_point(|extent| extent.end <= start);
        while i < self.extents.len() && self.extents[i].start < end {
            let extent = self.extents[i];
            self.nr_sectors -= extent.end.min(end) - extent.start.max(start);
            let left = (extent.start < start).then_some(Extent { end: start, ..extent });
            let right = (extent.end > end).then_some(Extent { start: end, ..extent });
            self.extents.splice(i..=i, left.into_iter().chain(right));
            i += usize::from(left.is_some()) + usize::from(right.is_some());
        }
    }

    /// Whether all of `start .. end` is in one extent.
    fn holds(&self, start: u64, end: u64) -> bool {
        let inside = |extent: &Extent| extent.start <= start && end <= extent.end;
        let i = self.extents.partition_point(|extent| extent.start <= start);
        (i > 0 && inside(&self.extents[i - 1])) || self.destaging.as_ref().is_some_and(inside)
    }

    /// Whether data of command `number` or older is not on the medium yet.
    fn has_older(&self, number: u64) -> bool {
        self.extents.iter().chain(&self.destaging).any(|extent| extent.number <= number)
    }

    /// The extent to write next from `head`; with `number`, among those that hold data as old as that.
    fn choose(&self, head: u64, number: Option<u64>) -> usize {
        let distance = |i: usize| self.extents[i].start.abs_diff(head);
        if self.order == Order::Arrival {
            let oldest = (0..self.extents.len()).min_by_key(|&i| self.extents[i].number);
            let Some(oldest) = oldest else { unreachable!("only a cache with dirty data is asked") };
            return oldest;
        }
        if let Some(number) = number {
            let wanted = (0..self.extents.len()).filter(|&i| self.extents[i].number <= number);
            let round = |i: usize| (self.extents[i].start < head, self.extents[i].start);
            let nearest = match self.order {
                Order::RoundRobin => wanted.min_by_key(|&i| round(i)),
                _ => wanted.min_by_key(|&i| distance(i)),
            };
            let Some(nearest) = nearest else { unreachable!("a flush waits only while older data is dirty") };
            return nearest;
        }
        if self.order == Order::RoundRobin {
            let next = self.extents.partition_point(|extent| extent.start < head);
            return next % self.extents.len();
        }
        // Sorted by sector: the nearest start is one of the two around the head.
        let behind = self.extents.partition_point(|extent| extent.start < head);
        match (behind.checked_sub(1), behind < self.extents.len()) {
            (Some(before), true) if distance(before) <= distance(behind) => before,
            (Some(before), false) => before,
            (_, true) => behind,
            (None, false) => unreachable!("only a cache with dirty data is asked"),
        }
    }
}

/// The write cache: its budget counts extents or commands.
#[derive(Clone, Debug)]
enum Cache {
    Extents(Dirty),
    Slots(Slots),
}

impl Cache {
    fn new(options: &Options) -> Cache {
        let max_sectors = options.unsigned("write_cache_kb") * 2;
        let order = match options.get("destage_order") {
            0 => Order::Nearest,
            1 => Order::Arrival,
            _ => Order::RoundRobin,
        };
        let max_slots = options.unsigned("write_cache_slots") as usize;
        if max_slots > 0 {
            return Cache::Slots(Slots::new(max_slots, max_sectors, options.is_on("coalesce"), order));
        }
        let max_extents = options.unsigned("write_cache_extents") as usize;
        let extents = Vec::with_capacity(max_extents.min(1024) + 2);
        Cache::Extents(Dirty { extents, nr_sectors: 0, destaging: None, max_sectors, max_extents, order })
    }

    fn max_sectors(&self) -> u64 {
        match self {
            Cache::Extents(dirty) => dirty.max_sectors,
            Cache::Slots(slots) => slots.max_sectors,
        }
    }

    fn holds(&self, start: u64, end: u64) -> bool {
        match self {
            Cache::Extents(dirty) => dirty.holds(start, end),
            Cache::Slots(slots) => slots.holds(start, end),
        }
    }

    fn has_older(&self, number: u64) -> bool {
        match self {
            Cache::Extents(dirty) => dirty.has_older(number),
            Cache::Slots(slots) => slots.has_older(number),
        }
    }

    fn subtract(&mut self, start: u64, end: u64) {
        match self {
            Cache::Extents(dirty) => dirty.subtract(start, end),
            Cache::Slots(slots) => {
                slots.subtract(start, end);
            }
        }
    }

    /// The next write from `head` if anything can be written at `now`.
    fn choose(&self, now: u64, head: u64, flush: Option<u64>) -> Option<usize> {
        match self {
            Cache::Extents(dirty) => (!dirty.extents.is_empty()).then(|| dirty.choose(head, flush)),
            Cache::Slots(slots) => slots.choose(now, head, flush),
        }
    }

    /// First sector of what `choose` chose.
    fn start(&self, index: usize) -> u64 {
        match self {
            Cache::Extents(dirty) => dirty.extents[index].start,
            Cache::Slots(slots) => slots.start(index),
        }
    }

    /// Takes what `choose` chose to the medium: its sectors.
    fn begin(&mut self, index: usize) -> (u64, u64) {
        match self {
            Cache::Extents(dirty) => {
                let extent = dirty.extents.remove(index);
                dirty.nr_sectors -= extent.end - extent.start;
                dirty.destaging = Some(extent);
                (extent.start, extent.end)
            }
            Cache::Slots(slots) => {
                let slot = slots.begin(index);
                (slot.start, slot.end)
            }
        }
    }

    /// It is on the medium.
    fn written(&mut self) {
        match self {
            Cache::Extents(dirty) => dirty.destaging = None,
            Cache::Slots(slots) => slots.written(),
        }
    }

    /// When, idle time apart, the arm may begin to write: 0 if it may at any time.
    fn ready_at(&self) -> Option<u64> {
        match self {
            Cache::Extents(dirty) => (!dirty.extents.is_empty()).then_some(0),
            Cache::Slots(slots) => slots.first_ready(),
        }
    }
}

/// Part of the track buffer: sectors `start .. filled` are in it.
#[derive(Copy, Clone, Debug, Default)]
struct Segment {
    start: u64,
    filled: u64,
    /// Behind the last sector a command asked for: sectors beyond were read ahead.
    asked: u64,
    /// When it was last used, as a count.
    used: u64,
}

/// State of the arm.
#[derive(Copy, Clone, Debug)]
enum Work {
    /// It rests.
    Still,
    /// It carries out an access.
    Access(Access),
    /// It reads on after a read.
    Ahead(Ahead),
}

#[derive(Copy, Clone, Debug)]
struct Access {
    /// The command; `None` writes the extent that is in progress in the cache.
    command: Option<Waiting>,
    seek: u64,
    rotation: u64,
    /// The transfer begins.
    begin: u64,
    /// It ends.
    until: u64,
    /// The sector after it.
    end: u64,
}

#[derive(Copy, Clone, Debug)]
struct Ahead {
    /// The read ended at this time, and the head has followed the track since.
    since: u64,
    /// The platter time of the sector it was over then.
    turned: u64,
    /// Where look-ahead ends.
    target: u64,
    /// Commands have been promised what the head passes until then.
    committed: u64,
    segment: usize,
}

/// How an access would go.
#[derive(Copy, Clone, Debug)]
struct Position {
    start: u64,
    seek: u64,
    rotation: u64,
    begin: u64,
}

/// A disk drive.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    geometry: Geometry,
    queue_depth: u32,
    age_cap: u64,
    seek_track: u64,
    seek_track_sectors: u64,
    seek_min: u64,
    /// Seek over the whole disk, less `seek_min`.
    seek_span: u64,
    write_settle: u64,
    bus_rate: u64,
    read_overhead: u64,
    cached_overhead: u64,
    write_overhead: u64,
    lookahead: u64,
    history: u64,
    keep_interrupted: bool,
    during_decode: bool,
    write_cache: bool,
    destage_idle: u64,
    latency: u64,
    firmware: u64,
    switch: u64,

    work: Work,
    /// Where the arm rests.
    head: u64,
    /// The last access was a write: another write right behind it needs no settling.
    wrote: bool,
    segments: Vec<Segment>,
    cache: Cache,
    /// When the last destage ended, behind the sector where the head is: its run may go on then.
    run_ended: u64,
    /// The firmware is busy until then.
    firmware_free: u64,
    /// Behind the last sector of the command given last.
    stream: u64,
    /// Commands that need the arm, oldest first.
    queue: Vec<Waiting>,
    /// Writes that do not fit into the cache, oldest first.
    blocked: VecDeque<Waiting>,
    /// Commands that wait for older dirty data to be written, oldest first.
    flushes: VecDeque<Waiting>,
    /// How often the arm went elsewhere while a write or flush waited for it.
    destage_passes: u64,
    bus_free: u64,
    last_activity: u64,
    number: u64,
    uses: u64,
    completions: Completions,
    stats: DeviceStats,
}

impl Disk {
    /// A drive with the tunables of [`disk_options`].
    pub(super) fn new(options: &Options, mut rng: Rng) -> Disk {
        let us = |name: &str| Nanos::from_us(options.unsigned(name)).0;
        let sectors = |name: &str| options.unsigned(name) * 2;
        let queue_depth = options.unsigned("queue_depth") as u32;
        Disk {
            geometry: Geometry::new(options, &mut rng),
            queue_depth,
            age_cap: options.unsigned("age_cap_passes"),
            seek_track: us("seek_track_us"),
            seek_track_sectors: options.unsigned("seek_track_sectors"),
            seek_min: us("seek_min_us"),
            // The mean of sqrt(distance / capacity) over random pairs is 8/15.
            seek_span: us("seek_avg_us").saturating_sub(us("seek_min_us")) * 15 / 8,
            write_settle: us("write_settle_us"),
            bus_rate: options.unsigned("bus_rate_kb_s"),
            read_overhead: us("read_overhead_us"),
            cached_overhead: us("cached_overhead_us"),
            write_overhead: us("write_overhead_us"),
            lookahead: sectors("lookahead_kb"),
            history: sectors("history_kb"),
            keep_interrupted: options.is_on("lookahead_interrupted"),
            during_decode: options.is_on("lookahead_during_decode"),
            write_cache: options.is_on("write_cache"),
            destage_idle: Nanos::from_ms(options.unsigned("destage_idle_ms")).0,
            latency: us("tlat_us"),
            firmware: us("tfw_us"),
            switch: us("tsw_us"),
            work: Work::Still,
            head: 0,
            wrote: false,
            segments: vec![Segment::default(); options.unsigned("read_segments") as usize],
            cache: Cache::new(options),
            run_ended: u64::MAX,
            firmware_free: 0,
            stream: 0,
            queue: Vec::with_capacity(queue_depth as usize),
            blocked: VecDeque::with_capacity(queue_depth as usize),
            flushes: VecDeque::with_capacity(queue_depth as usize),
            destage_passes: 0,
            bus_free: 0,
            last_activity: 0,
            number: 0,
            uses: 0,
            completions: Completions::new(queue_depth),
            stats: DeviceStats::default(),
        }
    }

    fn seek(&self, distance: u64) -> u64 {
        if distance == 0 {
            0
        } else if distance < self.seek_track_sectors {
            self.seek_track
        } else {
            // The root to 16 binary places; capacity is below 2^32 sectors, so nothing overflows.
            let root = ((distance << 32) / self.geometry.nr_sectors).isqrt();
            self.seek_min + ((self.seek_span * root) >> 16)
        }
    }

    /// When look-ahead ends by itself.
    fn ahead_ends(&self, ahead: &Ahead) -> u64 {
        ahead.since + (self.geometry.turned(ahead.target) - ahead.turned)
    }

    /// The sector the reading head is over at `now`.
    fn ahead_at(&self, ahead: &Ahead, now: u64) -> u64 {
        self.geometry.reached(ahead.turned + (now - ahead.since)).min(ahead.target)
    }

    /// Ends a look-ahead whose segment has filled before `now`.
    fn settle(&mut self, now: u64) {
        if let Work::Ahead(ahead) = self.work
            && self.ahead_ends(&ahead) < now
        {
            self.segments[ahead.segment].filled = ahead.target;
            self.head = ahead.target;
            self.work = Work::Still;
        }
    }

    /// The arm is taken away from look-ahead at `now`.
    fn interrupt(&mut self, now: u64) {
        if let Work::Ahead(ahead) = self.work {
            debug_assert!(ahead.committed <= now, "promised data is read before the arm leaves");
            let at = self.ahead_at(&ahead, now);
            let segment = &mut self.segments[ahead.segment];
            let kept = self.keep_interrupted || at == ahead.target;
            segment.filled = if kept { at.max(segment.asked) } else { segment.asked };
            self.head = at;
            self.work = Work::Still;
        }
    }

    /// A read of `.. end` has left the head at `end` at `now`: it reads on.
    fn begin_ahead(&mut self, now: u64, start: u64, end: u64) {
        self.uses += 1;
        let continued = self.segments.iter().position(|s| s.used > 0 && s.start <= start && start <= s.filled);
        let index = continued.unwrap_or_else(|| {
            let oldest = (0..self.segments.len()).min_by_key(|&i| self.segments[i].used);
            let Some(oldest) = oldest else { unreachable!("there is at least one segment") };
            oldest
        });
        let segment = &mut self.segments[index];
        let first = if continued.is_some() { segment.start } else { start };
        let first = first.max(end.saturating_sub(self.history)).min(start);
        *segment = Segment { start: first, filled: end, asked: end, used: self.uses };
        let target = (end + self.lookahead).min(self.geometry.nr_sectors);
        let turned = self.geometry.turned(end);
        self.work = Work::Ahead(Ahead { since: now, turned, target, committed: now, segment: index });
    }

    /// Whether the look-ahead in progress at `now` passes all that the read `waiting` wants, and if so which.
    fn passed_by_ahead(&self, now: u64, waiting: &Waiting) -> Option<Ahead> {
        let Work::Ahead(ahead) = self.work else { return None };
        let decoded = waiting.decoded + self.cached_overhead;
        let ends = self.ahead_ends(&ahead);
        let reached = self.segments[ahead.segment].start <= waiting.start() && waiting.start() <= ahead.target;
        // What lies beyond the planned end is read only if the drive knows of the command by then.
        let in_time = now <= ends && (waiting.end() <= ahead.target || decoded <= ends);
        (reached && in_time).then_some(ahead)
    }

    /// Promises `waiting` what the head passes.
    fn attach(&mut self, now: u64, waiting: &Waiting, mut ahead: Ahead) {
        self.uses += 1;
        let (start, end) = (waiting.start(), waiting.end());
        let passed = (ahead.since + self.geometry.turned(end).saturating_sub(ahead.turned)).max(now);
        let segment = &mut self.segments[ahead.segment];
        segment.asked = segment.asked.max(end);
        segment.start = segment.start.max(segment.asked.saturating_sub(self.history)).min(start);
        segment.used = self.uses;
        self.stats.busy += Nanos(passed - ahead.committed.clamp(now, passed));
        ahead.target = ahead.target.max((end + self.lookahead).min(self.geometry.nr_sectors));
        ahead.committed = ahead.committed.max(passed);
        self.work = Work::Ahead(ahead);
        self.hit(waiting, passed);
    }

    /// Answers the read `waiting` from the buffer, which has its last sector at `ready`.
    fn hit(&mut self, waiting: &Waiting, ready: u64) {
        self.stats.cache_hits += 1;
        let sent = self.over_bus(waiting.decoded + self.cached_overhead, waiting.command.nr_sectors);
        self.complete(sent.max(ready), waiting, false, 0, 0);
    }

    /// When `nr_sectors` that may go from `ready` on have crossed the bus.
    fn over_bus(&mut self, ready: u64, nr_sectors: u32) -> u64 {
        self.bus_free = self.bus_free.max(ready) + transfer(u64::from(nr_sectors), self.bus_rate);
        self.bus_free
    }

    fn complete(&mut self, at: u64, waiting: &Waiting, media: bool, seek: u64, rotation: u64) {
        self.last_activity = self.last_activity.max(at);
        let completion = Completion { tag: waiting.command.tag, media, seek: Nanos(seek), rotation: Nanos(rotation) };
        self.completions.push(Nanos(at), completion);
    }

    /// Takes `waiting` in at `now`, all flushing it asked for being done.
    fn accept(&mut self, now: u64, waiting: Waiting) {
        let nr_sectors = u64::from(waiting.command.nr_sectors);
        if nr_sectors == 0 {
            self.complete(now.max(waiting.decoded + self.cached_overhead), &waiting, now > waiting.arrival, 0, 0);
        } else if waiting.command.dir == Dir::Read {
            self.accept_read(now, waiting);
        } else if !self.write_cache || waiting.command.fua || nr_sectors > self.cache.max_sectors() {
            self.queue.push(waiting);
        } else if !self.blocked.is_empty() || !self.absorb(now, &waiting) {
            self.blocked.push_back(waiting);
        }
    }

    fn accept_read(&mut self, now: u64, waiting: Waiting) {
        let (start, end) = (waiting.start(), waiting.end());
        if self.cache.holds(start, end) {
            return self.hit(&waiting, now);
        }
        if let Some(ahead) = self.passed_by_ahead(now, &waiting) {
            // While others wait for the arm, nobody may prolong its stay here; the queue decides.
            let promised = self.segments[ahead.segment].asked.max(self.ahead_at(&ahead, now));
            let alone = self.queue.is_empty() && self.blocked.is_empty() && self.flushes.is_empty();
            if alone || end <= promised {
                return self.attach(now, &waiting, ahead);
            }
        }
        let busy = if let Work::Ahead(ahead) = self.work { Some(ahead.segment) } else { None };
        let mut indices = 0..self.segments.len();
        let found =
            indices.find(|&i| Some(i) != busy && self.segments[i].start <= start && end <= self.segments[i].filled);
        match found {
            Some(i) => {
                self.uses += 1;
                self.segments[i].used = self.uses;
                self.hit(&waiting, now);
            }
            None => self.queue.push(waiting),
        }
    }

    /// Puts a write into the cache if it fits.
    fn absorb(&mut self, now: u64, waiting: &Waiting) -> bool {
        let room = match &mut self.cache {
            Cache::Extents(dirty) => dirty.absorb(waiting.start(), waiting.end(), waiting.number),
            Cache::Slots(slots) => slots.admits(waiting.start(), waiting.end()),
        };
        if !room {
            return false;
        }
        let decoded = if waiting.held { self.work_on(waiting.decoded, &waiting.command) } else { waiting.decoded };
        let ready = now.max(decoded + self.write_overhead);
        let sent = self.over_bus(ready, waiting.command.nr_sectors);
        if let Cache::Slots(slots) = &mut self.cache {
            slots.take(waiting.start(), waiting.end(), waiting.number, sent);
            self.firmware_free = self.firmware_free.max(sent);
        }
        self.complete(sent, waiting, now > waiting.arrival, 0, 0);
        true
    }

    /// Lets those go on who waited for room or for old data to be written.
    fn release(&mut self, now: u64) {
        while let Some(&waiting) = self.blocked.front()
            && self.absorb(now, &waiting)
        {
            self.blocked.pop_front();
        }
        while let Some(&waiting) = self.flushes.front()
            && !self.cache.has_older(waiting.number)
        {
            self.flushes.pop_front();
            self.accept(now, waiting);
        }
    }

    /// Whether anything waits for dirty data to be written.
    fn destage_wanted(&self) -> bool {
        !self.blocked.is_empty() || !self.flushes.is_empty()
    }

    /// When the drive will have been quiet for long enough to write dirty data.
    fn idle_at(&self) -> u64 {
        match &self.cache {
            // With few slots a drive may write them without waiting for quiet.
            Cache::Slots(_) if self.destage_idle == 0 => 0,
            _ => self.last_activity + self.destage_idle,
        }
    }

    /// How an access to `sector` would go if the arm were free at `now` and the command decoded at `ready`.
    fn position(&self, now: u64, ready: u64, sector: u64, write: bool) -> Position {
        let start = now.max(ready);
        let head = match &self.work {
            Work::Ahead(ahead) => self.ahead_at(ahead, if self.during_decode { start } else { now }),
            _ => self.head,
        };
        let distance = head.abs_diff(sector);
        let settle = if write && !(distance == 0 && self.wrote) { self.write_settle } else { 0 };
        let seek = self.seek(distance) + settle;
        let rotation = self.geometry.rotation(start + seek, sector);
        Position { start, seek, rotation, begin: start + seek + rotation }
    }

    fn position_for(&self, now: u64, waiting: &Waiting) -> Position {
        let write = waiting.command.dir == Dir::Write;
        let overhead = if write { self.write_overhead } else { self.read_overhead };
        self.position(now, waiting.decoded + overhead, waiting.start(), write)
    }

    /// The next extent to write from the cache if the arm is free at `now`.
    fn choose_destage(&self, now: u64) -> Option<usize> {
        let head = match &self.work {
            Work::Ahead(ahead) => self.ahead_at(ahead, now),
            _ => self.head,
        };
        self.cache.choose(now, head, self.flushes.front().map(|waiting| waiting.number))
    }

    /// The slot that continues, at `now`, the run of slots that the head has just written.
    fn run_goes_on(&self, now: u64) -> Option<usize> {
        let Cache::Slots(slots) = &self.cache else { return None };
        if self.run_ended != now {
            return None;
        }
        // Commands that need the arm come first unless a command waits for a slot, and then before too long.
        let urgent = |waiting: &Waiting| !self.destage_wanted() || waiting.passes >= self.age_cap;
        if self.queue.iter().any(urgent) {
            return None;
        }
        slots.continues(now, self.head, self.flushes.front().map(|waiting| waiting.number))
    }

    /// Gives the arm, free at `now`, something to do if there is anything.
    fn pick(&mut self, now: u64) {
        self.settle(now);
        if let Some(index) = self.run_goes_on(now) {
            self.pass_over(usize::MAX);
            let here = Position { start: now, seek: 0, rotation: 0, begin: now };
            return self.begin_destage(now, index, here);
        }
        let wanted = self.destage_wanted();
        let chosen = match self.queue.len() {
            0 if wanted || now >= self.idle_at() => None,
            0 => return,
            1 if !wanted => Some(0),
            _ => self.choose(now, wanted),
        };
        let Some(index) = chosen else {
            let Some(index) = self.choose_destage(now) else { return };
            self.pass_over(usize::MAX);
            self.stats.destages += 1;
            let position = self.position(now, now, self.cache.start(index), true);
            return self.begin_destage(now, index, position);
        };
        self.pass_over(index);
        self.destage_passes += u64::from(wanted);
        let waiting = self.queue.remove(index);
        if waiting.command.dir == Dir::Read
            && let Some(ahead) = self.passed_by_ahead(now, &waiting)
        {
            return self.attach(now, &waiting, ahead);
        }
        let position = self.position_for(now, &waiting);
        self.stats.media_accesses += 1;
        self.begin_access(now, position, Some(waiting), waiting.start(), waiting.end());
    }

    fn pass_over(&mut self, chosen: usize) {
        for (i, waiting) in self.queue.iter_mut().enumerate() {
            waiting.passes += u64::from(i != chosen);
        }
    }

    /// The queued command to serve next; `None` for a destage.
    fn choose(&self, now: u64, wanted: bool) -> Option<usize> {
        let oldest_wanted = self.blocked.front().into_iter().chain(self.flushes.front()).map(|waiting| waiting.number);
        let target = if wanted { self.choose_destage(now) } else { None };
        let destage = target.and(oldest_wanted.min());
        // A command that has waited too long goes first, the oldest of them before the others.
        let aged = self.queue.iter().enumerate().filter(|(_, waiting)| waiting.passes >= self.age_cap);
        let aged = aged.map(|(i, waiting)| (waiting.number, Some(i)));
        let aged_destage = destage.filter(|_| self.destage_passes >= self.age_cap).map(|number| (number, None));
        if let Some((_, chosen)) = aged.chain(aged_destage).min() {
            return chosen;
        }
        let cost = |waiting: &Waiting| {
            if waiting.command.dir == Dir::Read
                && let Some(ahead) = self.passed_by_ahead(now, waiting)
            {
                return (ahead.since + self.geometry.turned(waiting.start()).saturating_sub(ahead.turned)).max(now);
            }
            self.position_for(now, waiting).begin
        };
        let commands = self.queue.iter().enumerate().map(|(i, waiting)| (cost(waiting), waiting.number, Some(i)));
        let destage = destage
            .zip(target)
            .map(|(number, index)| (self.position(now, now, self.cache.start(index), true).begin, number, None));
        commands.chain(destage).min().and_then(|(_, _, chosen)| chosen)
    }

    fn begin_destage(&mut self, now: u64, index: usize, position: Position) {
        let (start, end) = self.cache.begin(index);
        self.destage_passes = 0;
        self.begin_access(now, position, None, start, end);
    }

    fn begin_access(&mut self, now: u64, position: Position, command: Option<Waiting>, start: u64, end: u64) {
        let Position { seek, rotation, begin, .. } = position;
        self.interrupt(if self.during_decode { position.start } else { now });
        let until = begin + (self.geometry.turned(end) - self.geometry.turned(start));
        self.stats.seek += Nanos(seek);
        self.stats.rotation += Nanos(rotation);
        self.stats.busy += Nanos(until - position.start);
        self.work = Work::Access(Access { command, seek, rotation, begin, until, end });
    }

    /// The access in progress ends at `now`.
    fn finish(&mut self, now: u64, access: &Access) {
        self.work = Work::Still;
        self.head = access.end;
        let Some(waiting) = &access.command else {
            self.wrote = true;
            self.run_ended = now;
            self.cache.written();
            return self.release(now);
        };
        self.wrote = waiting.command.dir == Dir::Write;
        let mut done = now;
        if self.wrote {
            self.cache.subtract(waiting.start(), waiting.end());
            self.release(now);
        } else {
            // The bus works while the head reads; it can only be the slower of the two.
            done = done.max(access.begin + transfer(u64::from(waiting.command.nr_sectors), self.bus_rate));
            self.begin_ahead(now, waiting.start(), waiting.end());
        }
        self.complete(done, waiting, true, access.seek, access.rotation);
    }

    /// When the arm next has something to do.
    fn arm_event(&self) -> Option<u64> {
        let free = match &self.work {
            Work::Access(access) => return Some(access.until),
            Work::Ahead(ahead) => ahead.committed,
            Work::Still => 0,
        };
        if !self.queue.is_empty() {
            return Some(free);
        }
        let quiet = if self.destage_wanted() { 0 } else { self.idle_at() };
        self.cache.ready_at().map(|ready| free.max(ready).max(quiet))
    }

    /// Does what the arm does at `now`, a time given by `arm_event`.
    fn step(&mut self, now: u64) {
        if let Work::Access(access) = self.work {
            self.finish(now, &access);
        }
        self.pick(now);
    }

    /// Whether `command` is a write without a slot yet, or is behind one.
    fn is_held(&self, command: &Command) -> bool {
        let (start, nr_sectors) = (command.sector.0, u64::from(command.nr_sectors));
        let cached = self.write_cache && command.dir == Dir::Write && !command.fua && nr_sectors > 0;
        let Cache::Slots(slots) = &self.cache else { return false };
        cached
            && nr_sectors <= slots.max_sectors
            && (!self.blocked.is_empty() || !slots.admits(start, start + nr_sectors))
    }

    /// When the firmware is through with `command`, which has arrived at `arrived`.
    fn work_on(&mut self, arrived: u64, command: &Command) -> u64 {
        let elsewhere = command.nr_sectors > 0 && command.sector.0 != self.stream;
        if command.nr_sectors > 0 {
            self.stream = command.sector.0 + u64::from(command.nr_sectors);
        }
        let work = self.firmware + if elsewhere { self.switch } else { 0 };
        if work == 0 {
            return arrived;
        }
        self.firmware_free = self.firmware_free.max(arrived) + work;
        self.firmware_free
    }

    fn nr_outstanding(&self) -> usize {
        let in_access = matches!(self.work, Work::Access(Access { command: Some(_), .. }));
        self.queue.len() + self.blocked.len() + self.flushes.len() + self.completions.len() + usize::from(in_access)
    }
}

impl Device for Disk {
    fn queue_depth(&self) -> u32 {
        self.queue_depth
    }

    fn nr_sectors(&self) -> u64 {
        self.geometry.nr_sectors
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        let Nanos(now) = now;
        assert!(self.nr_outstanding() < self.queue_depth as usize, "the drive takes {} commands", self.queue_depth);
        assert!(command.sector.plus(u64::from(command.nr_sectors)) <= Sector(self.geometry.nr_sectors));
        while let Some(at) = self.arm_event()
            && at < now
        {
            self.step(at);
        }
        self.settle(now);
        self.number += 1;
        self.last_activity = self.last_activity.max(now);
        let (arrived, held) = (now + self.latency, self.is_held(&command));
        let decoded = if held { arrived } else { self.work_on(arrived, &command) };
        let waiting = Waiting { command, arrival: now, decoded, held, number: self.number, passes: 0 };
        if command.flush && self.cache.has_older(self.number) {
            self.flushes.push_back(waiting);
        } else {
            self.accept(now, waiting);
        }
        let free = match &self.work {
            Work::Access(_) => false,
            Work::Ahead(ahead) => ahead.committed <= now,
            Work::Still => true,
        };
        if free && (!self.queue.is_empty() || self.destage_wanted()) {
            self.pick(now);
        }
    }

    fn next(&self) -> Option<Nanos> {
        match (self.arm_event().map(Nanos), self.completions.next()) {
            (Some(arm), Some(completion)) => Some(arm.min(completion)),
            (arm, completion) => arm.or(completion),
        }
    }

    fn advance(&mut self, now: Nanos) -> Option<Completion> {
        while let Some(at) = self.arm_event()
            && Nanos(at) <= now
            && self.completions.next().is_none_or(|completion| Nanos(at) <= completion)
        {
            self.step(at);
        }
        self.completions.pop(now)
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
    use proptest::prelude::*;

    use super::*;
    use crate::device::testing::{build, closed_loop, done, flush, read, run, write};
    use crate::device::{Device, ide_2004, ide_2004_tcq, sata_2010, sata_2014};
    use crate::rng::Rng;

    const REVOLUTION: u64 = 8_333_333;
    const GAP: Nanos = Nanos::from_us(100);

    fn ide(options: &[(&str, i64)]) -> Box<dyn Device> {
        build(&ide_2004::ENTRY, options)
    }

    /// A disk itself, to look inside.
    fn disk(options: &[(&'static str, i64)]) -> Disk {
        let mut values = ide_2004::ENTRY.defaults();
        for (name, value) in options {
            values.set(name, *value);
        }
        Disk::new(&values, Rng::stream(1, "device"))
    }

    #[test]
    fn sequential_reads_back_to_back_reach_the_media_rate() {
        let zoned = [("inner_rate_kb_s", 20_000)];
        let inner = 80_000_000 / 128 * 128;
        for (entry, options, from, rate) in [
            (&ide_2004::ENTRY, &[][..], 1_000_000, 38_000),
            (&ide_2004::ENTRY, &zoned, 0, 37_437),
            (&ide_2004::ENTRY, &zoned, inner - 256_000, 20_562),
            (&sata_2010::ENTRY, &[], 0, 80_000),
            (&sata_2014::ENTRY, &[], 0, 149_981),
        ] {
            let mut device = build(entry, options);
            let done = closed_loop(&mut *device, 1, 2_000, |i| read(0, from + i * 128, 128));
            let measured = 1_999 * 65_536 * 1_000_000 / (done[1_999] - done[0]).0;
            assert!(measured.abs_diff(rate) * 100 <= rate * 3, "{}: {measured} for {rate} kB/s", entry.name);
            assert_eq!(device.stats().media_accesses, 1, "{}", entry.name);
        }
    }

    #[test]
    fn a_queue_of_sequential_reads_also_streams() {
        let mut device = build(&sata_2014::ENTRY, &[]);
        let done = closed_loop(&mut *device, 8, 2_000, |i| read(0, i * 128, 128));
        let measured = 1_900 * 65_536 * 1_000_000 / (done[1_999] - done[99]).0;
        assert!(measured.abs_diff(149_981) < 149_981 * 3 / 100, "{measured} kB/s");
    }

    #[test]
    fn random_reads_cost_overhead_mean_seek_and_half_a_revolution() {
        for lookahead_kb in [0, 128] {
            let mut device = ide(&[("lookahead_kb", lookahead_kb)]);
            let mut rng = Rng::stream(3, "places");
            let (mut now, mut total) = (Nanos::ZERO, 0);
            for _ in 0..20_000 {
                let start = now + Nanos(rng.below(10_000_000));
                now = run(&mut *device, start, read(1, rng.below(80_000_000), 8)).0;
                total += (now - start).0;
            }
            let mean = total / 20_000;
            // 4 KB at 38 MB/s take 108 us.
            let expected = 300_000 + 8_500_000 + REVOLUTION / 2 + 108_000;
            assert!(mean.abs_diff(expected) * 100 < expected * 3, "{mean} for {expected}");
        }
    }

    #[test]
    fn the_seek_curve_is_the_one_of_the_replay() {
        let disk = disk(&[("nr_sectors", 80_000_000), ("seek_min_us", 1_000)]);
        // 1.0 ms + 14.06 ms sqrt(d / 80e6), 0.8 ms nearby, nothing where the head is.
        let expected = [(0, 0), (1, 800), (1_199, 800), (20_000_000, 8_031), (80_000_000, 15_062)];
        for (distance, us) in expected {
            assert!(disk.seek(distance).abs_diff(us * 1_000) < 1_000, "{distance}: {}", disk.seek(distance));
        }
        assert!((1_000_000..1_060_000).contains(&disk.seek(1_200)));
    }

    #[test]
    fn rotation_is_exact() {
        // 618 sectors on a track: places half a track apart are half a turn apart, and a whole track a whole turn.
        for (distance, turns_by_two) in [(309, 1), (618, 2), (6_180, 2), (309 + 6_180, 1)] {
            let mut device = ide(&[("lookahead_kb", 0)]);
            let (first, _) = run(&mut *device, Nanos::ZERO, read(1, 618_000, 8));
            let (second, completion) = run(&mut *device, first, read(2, 618_000 + distance, 8));
            let elapsed = (second - first).0 % REVOLUTION;
            let expected = turns_by_two * REVOLUTION / 2 % REVOLUTION;
            assert!(elapsed.abs_diff(expected) <= 2, "{distance}: {elapsed}, not {expected}");
            let (Nanos(seek), Nanos(rotation)) = (completion.seek, completion.rotation);
            // Overhead, seek, wait and the 8 sectors are all there is.
            assert!((300_000 + seek + rotation + 8 * REVOLUTION / 618).abs_diff((second - first).0) <= 2);
            assert!(rotation < REVOLUTION);
        }
    }

    #[test]
    fn four_small_reads_cost_one_access_with_look_ahead_and_many_revolutions_without() {
        let total = |lookahead_kb| {
            let mut device = ide(&[("lookahead_kb", lookahead_kb)]);
            let mut now = run(&mut *device, Nanos::ZERO, read(0, 40_000_000, 8)).0;
            let start = now;
            for i in 1..4 {
                now = run(&mut *device, now + GAP, read(i, 40_000_000 + u64::from(i) * 8, 8)).0;
            }
            (now - start, device.stats().media_accesses, device.stats().cache_hits)
        };
        let (with, accesses, hits) = total(128);
        assert_eq!((accesses, hits), (1, 3));
        // Three gaps, three cached overheads and 4 KB over the bus three times.
        assert_eq!(with, Nanos(3 * (100_000 + 100_000 + 62_060)));
        let (without, accesses, hits) = total(0);
        assert_eq!((accesses, hits), (4, 0));
        // Each misses its place, waits a turn for it, and reads 8 sectors.
        assert!(without.0.abs_diff(3 * (REVOLUTION + 8 * REVOLUTION / 618)) < 10, "{without}");
    }

    #[test]
    fn a_read_just_ahead_of_the_head_is_answered_as_it_passes() {
        let mut device = ide(&[]);
        let (first, _) = run(&mut *device, Nanos::ZERO, read(1, 618_000, 8));
        let (second, completion) = run(&mut *device, first + GAP, read(2, 618_200, 8));
        // The head needs 200 sectors' time from the end of the first read to the end of the second.
        assert!((second - first).0.abs_diff(200 * REVOLUTION / 618) <= 1, "{}", second - first);
        assert!(!completion.media);
    }

    #[test]
    fn interrupted_look_ahead_is_discarded_or_kept() {
        for (interrupted, hits) in [(0, 0), (1, 1)] {
            let mut device = ide(&[("lookahead_interrupted", interrupted)]);
            let (first, _) = run(&mut *device, Nanos::ZERO, read(1, 40_000_000, 8));
            // 0.5 ms of look-ahead are 37 sectors; then another place is read.
            let (other, _) = run(&mut *device, first + Nanos::from_us(500), read(2, 1_000_000, 8));
            let (_, completion) = run(&mut *device, other + GAP, read(3, 40_000_008, 24));
            assert_eq!((device.stats().cache_hits, completion.media), (hits, hits == 0));
        }
        // Once complete it is kept in either case: 128 KB take 3.5 ms.
        let mut device = ide(&[]);
        let (first, _) = run(&mut *device, Nanos::ZERO, read(1, 40_000_000, 8));
        let (other, _) = run(&mut *device, first + Nanos::from_ms(4), read(2, 1_000_000, 8));
        let (_, completion) = run(&mut *device, other + GAP, read(3, 40_000_008, 256));
        assert!(!completion.media);
    }

    #[test]
    fn look_ahead_stops_when_the_command_arrives_or_when_it_is_decoded() {
        // 0.2 ms are 14.8 sectors, 0.5 ms 37.
        for (during_decode, kept) in [(0, 8 + 14), (1, 8 + 37)] {
            let mut disk =
                disk(&[("lookahead_interrupted", 1), ("lookahead_during_decode", during_decode), ("read_segments", 2)]);
            let (first, _) = run(&mut disk, Nanos::ZERO, read(1, 40_000_000, 8));
            run(&mut disk, first + Nanos::from_us(200), read(2, 1_000_000, 8));
            assert!(disk.segments.iter().any(|s| s.start == 40_000_000 && s.filled == 40_000_000 + kept));
        }
    }

    #[test]
    fn segments_are_replaced_oldest_first() {
        for (read_segments, hits) in [(4, 1), (3, 0)] {
            let mut device = ide(&[("read_segments", read_segments)]);
            let mut now = Nanos::ZERO;
            for place in [1, 2, 3, 4, 1] {
                now = run(&mut *device, now + Nanos::from_ms(5), read(place, u64::from(place) * 1_000_000 + 8, 8)).0;
            }
            assert_eq!(device.stats().cache_hits, hits, "{read_segments} segments");
        }
    }

    #[test]
    fn the_write_cache_absorbs_until_full_and_then_a_write_waits_for_one_destage() {
        let mut device = ide(&[]);
        let mut now = Nanos::ZERO;
        for i in 0..64u32 {
            let (done, completion) = run(&mut *device, now, write(i, u64::from(i) * 1_000_000, 16));
            assert_eq!(((done - now).0, completion.media), (100_000 + 8_192_000 / 66, false));
            now = done;
        }
        assert_eq!(device.stats().destages, 0);
        let (done, completion) = run(&mut *device, now, write(99, 70_000_000, 16));
        assert!(completion.media && device.stats().destages == 1 && done - now > Nanos::from_ms(1));
        // One that joins dirty data needs no extent of its own, in a full cache too.
        let (joined, completion) = run(&mut *device, done, write(100, 70_000_016, 16));
        assert_eq!((completion.media, joined - done), (false, Nanos(100_000 + 8_192_000 / 66)));
        // Bytes are limited as well: 3 extents of 256 KB fit into 1 MB next to one of 512 KB, but not more.
        let mut device = ide(&[]);
        let mut now = run(&mut *device, Nanos::ZERO, write(1, 0, 1_024)).0;
        for i in 1..=3u32 {
            let (done, completion) = run(&mut *device, now, write(i, u64::from(i) * 1_000_000, 512));
            assert_eq!(completion.media, i == 3, "write {i}");
            now = done;
        }
    }

    #[test]
    fn dirty_data_is_written_after_a_quiet_time_and_reads_interrupt_only_between_extents() {
        let mut device = ide(&[]);
        let mut now = Nanos::ZERO;
        for i in 0..4u32 {
            now = run(&mut *device, now, write(i, u64::from(i) * 10_000_000, 32)).0;
        }
        assert_eq!(device.next(), Some(now + Nanos::from_ms(2)));
        // A read during the first destage waits for it, and the other three for the next quiet time.
        let start = now + Nanos::from_ms(2);
        assert_eq!(device.advance(start), None);
        assert_eq!(device.stats().destages, 1);
        let Some(until) = device.next() else { panic!("the destage is not in progress") };
        let (done, _) = run(&mut *device, start + Nanos(1), read(9, 40_000_000, 8));
        assert!(done > until);
        assert_eq!((device.stats().destages, device.next()), (1, Some(done + Nanos::from_ms(2))));
        while let Some(at) = device.next() {
            assert_eq!(device.advance(at), None);
        }
        assert_eq!(device.stats().destages, 4);
        // Only when full: nothing happens by itself for an hour.
        let mut device = ide(&[("destage_idle_ms", 3_600_000)]);
        let (done, _) = run(&mut *device, Nanos::ZERO, write(1, 0, 8));
        assert_eq!(device.next(), Some(done + Nanos::from_secs(3_600)));
    }

    #[test]
    fn dirty_data_is_destaged_nearest_first_or_in_order_of_arrival() {
        let orders = [(0, [10, 20, 30, 60, 70]), (1, [30, 70, 10, 60, 20]), (2, [10, 20, 30, 60, 70])];
        for (order, expected) in orders {
            let mut disk = disk(&[("destage_order", order), ("destage_idle_ms", 2)]);
            let mut now = Nanos::ZERO;
            for place in [30, 70, 10, 60, 20] {
                now = run(&mut disk, now, write(1, place * 1_000_000, 8)).0;
            }
            let mut order = Vec::new();
            while let Some(at) = disk.next() {
                disk.advance(at);
                let Cache::Extents(dirty) = &disk.cache else { panic!("extents are counted") };
                order.extend(dirty.destaging.map(|extent| extent.start / 1_000_000));
            }
            assert_eq!(order, expected);
        }
    }

    #[test]
    fn a_flush_drains_the_cache_and_reads_hit_dirty_data() {
        let mut device = ide(&[]);
        let mut now = Nanos::ZERO;
        for i in 0..5u32 {
            now = run(&mut *device, now, write(i, u64::from(i) * 10_000_000, 32)).0;
        }
        let (hit, completion) = run(&mut *device, now, read(7, 30_000_008, 16));
        assert!(!completion.media && hit - now < Nanos::from_us(300));
        let (flushed, completion) = run(&mut *device, hit, flush(8));
        assert!(completion.media && flushed - hit > Nanos::from_ms(20));
        assert_eq!((device.stats().destages, device.next()), (5, None));
        assert_eq!(run(&mut *device, flushed, flush(9)).0 - flushed, Nanos::from_us(100));
        // Now the medium is needed for the same read.
        assert!(run(&mut *device, flushed + GAP, read(10, 30_000_008, 16)).1.media);
    }

    #[test]
    fn without_a_write_cache_each_record_of_a_stream_costs_a_revolution() {
        for fua in [false, true] {
            let mut device = ide(&[("write_cache", i64::from(fua))]);
            let done = closed_loop(&mut *device, 1, 50, |i| Command { fua, ..write(0, i * 128, 128) });
            // The next record's place comes round one turn after the end of this one.
            let expected = REVOLUTION + 128 * REVOLUTION / 618;
            for pair in done[1..].windows(2) {
                assert!((pair[1] - pair[0]).0.abs_diff(expected) <= 2, "{} for {expected}", pair[1] - pair[0]);
            }
            assert_eq!((device.stats().media_accesses, device.stats().destages), (50, 0));
        }
    }

    #[test]
    fn shortest_positioning_beats_order_of_arrival_and_nobody_starves() {
        let elapsed = |entry, options: &[(&str, i64)]| {
            let mut rng = Rng::stream(5, "places");
            let places: Vec<u64> = (0..2_000).map(|_| rng.below(80_000_000)).collect();
            let mut device = build(entry, options);
            closed_loop(&mut *device, 32, 2_000, |i| read(0, places[i as usize], 8))[1_999].0
        };
        let shortest = elapsed(&ide_2004_tcq::ENTRY, &[("age_cap_passes", 1_000_000)]);
        let capped = elapsed(&ide_2004_tcq::ENTRY, &[("age_cap_passes", 64)]);
        let fifo = elapsed(&ide_2004_tcq::ENTRY, &[("age_cap_passes", 0)]);
        assert!(shortest * 2 < fifo && shortest < capped && capped < fifo, "{shortest} {capped} {fifo}");
        // A far read among a stream of near ones is served after 16 others.
        let mut device = build(&ide_2004_tcq::ENTRY, &[("lookahead_kb", 0)]);
        device.submit(Nanos::ZERO, read(1_000, 0, 8));
        device.submit(Nanos::ZERO, read(1_001, 79_000_000, 8));
        let mut order = Vec::new();
        for i in 0..40 {
            let Some(now) = device.next() else { panic!("nothing to do before read {i}") };
            device.submit(now, read(i, u64::from(i + 1) * 618 * 3, 8));
            order.push(done(&mut *device).1.tag);
        }
        assert_eq!(order.iter().position(|&tag| tag == 1_001), Some(17));
    }

    #[test]
    fn overhead_of_a_queued_command_overlaps_the_access_before_it() {
        let options = [("lookahead_kb", 0), ("read_overhead_us", 3_000)];
        let mut device = build(&ide_2004_tcq::ENTRY, &options);
        device.submit(Nanos::ZERO, read(1, 40_000_000, 8));
        device.submit(Nanos::ZERO, read(2, 10_000_000, 8));
        let (first, _) = done(&mut *device);
        let (second, completion) = done(&mut *device);
        let mechanics = completion.seek + completion.rotation + Nanos(8 * REVOLUTION / 618);
        assert!((second - first).0.abs_diff(mechanics.0) <= 2);
    }

    #[test]
    fn a_full_cache_does_not_starve_behind_reads() {
        let mut device = build(&ide_2004_tcq::ENTRY, &[("write_cache_extents", 1)]);
        let mut now = run(&mut *device, Nanos::ZERO, write(1, 79_000_000, 8)).0;
        device.submit(now, write(2, 1_000, 8));
        let mut others = 0;
        for i in 10..200u32 {
            device.submit(now, read(i, u64::from(i % 7) * 5_000, 8));
            let (at, completion) = done(&mut *device);
            now = at;
            if completion.tag == 2 {
                break;
            }
            others += 1;
        }
        assert!(others <= 20, "the write waited for {others} reads");
    }

    #[test]
    fn positions_and_platter_time_are_each_others_inverse() {
        for options in [&[][..], &[("inner_rate_kb_s", 20_000)]] {
            let geometry = disk(options).geometry;
            let mut rng = Rng::stream(9, "places");
            let zones: Vec<u64> = geometry.zones.iter().flat_map(|zone| [zone.start.max(1) - 1, zone.start]).collect();
            let drawn = (0..10_000).map(|_| rng.below(geometry.nr_sectors));
            for sector in drawn.chain(zones) {
                let turned = geometry.turned(sector);
                assert!(geometry.turned(sector + 1) > turned);
                assert_eq!(geometry.reached(turned), sector);
                assert_eq!(geometry.reached(geometry.turned(sector + 1) - 1), sector);
            }
        }
    }

    /// Looks inside a drive whose cache counts commands, after everything that happens.
    struct Watch {
        disk: Disk,
        revolution: u64,
        now: Nanos,
        /// Commands in progress, their numbers, and the numbers in progress when they were given.
        outstanding: Vec<(Command, u64, Vec<u64>)>,
        nr_given: u64,
        access: Option<u64>,
        last_end: u64,
        /// The sectors of the last access.
        range: Option<(u64, u64)>,
        /// For each sector: data was in the cache and not on the medium.
        dirty: Vec<bool>,
        log: Vec<(Nanos, u32)>,
    }

    impl Watch {
        fn new(options: &[(&'static str, i64)]) -> Watch {
            let mut values = sata_2010::ENTRY.defaults();
            for (name, value) in options {
                values.set(name, *value);
            }
            Watch {
                disk: Disk::new(&values, Rng::stream(1, "device")),
                revolution: 60_000_000_000 / values.unsigned("rpm"),
                now: Nanos::ZERO,
                outstanding: Vec::new(),
                nr_given: 0,
                access: None,
                last_end: 0,
                range: None,
                dirty: vec![false; 1 << 12],
                log: Vec::new(),
            }
        }

        fn look(&mut self) {
            let Cache::Slots(slots) = &self.disk.cache else { panic!("slots are counted") };
            let (occupied, room) = slots.occupied();
            assert!(occupied <= room, "{occupied} of {room} slots");
            for sector in 0..self.dirty.len() as u64 {
                let cached = slots.holds(sector, sector + 1);
                let written = self.range.is_some_and(|(start, end)| (start..end).contains(&sector));
                assert!(!self.dirty[sector as usize] || cached || written, "sector {sector} is lost");
                self.dirty[sector as usize] = cached;
            }
            let Work::Access(access) = &self.disk.work else { return };
            if self.access == Some(access.until) {
                return;
            }
            // A new access: after the one before it, and each sector under the head where it belongs.
            self.access = Some(access.until);
            assert!(access.begin >= self.last_end && access.until > access.begin);
            self.last_end = access.until;
            let turned = self.disk.geometry.turned(access.end) - (access.until - access.begin);
            self.range = Some((self.disk.geometry.reached(turned), access.end));
            let error = (access.begin + 2 * self.revolution - turned % self.revolution) % self.revolution;
            assert!(error <= 200 || self.revolution - error <= 200, "the head is {error} ns away");
        }

        /// Carries on until `to`, or until one command less is outstanding.
        fn carry_on(&mut self, to: Option<Nanos>) {
            while let Some(at) = self.disk.next().filter(|at| to.is_none_or(|to| *at <= to)) {
                assert!(at >= self.now, "time went back");
                self.now = at;
                let done = self.disk.advance(at);
                self.look();
                let Some(done) = done else { continue };
                let place = self.outstanding.iter().position(|(command, ..)| command.tag == done.tag);
                let Some(place) = place else { panic!("{} was not outstanding", done.tag) };
                let (command, number, beside) = self.outstanding.swap_remove(place);
                self.log.push((at, done.tag));
                if command.flush {
                    // Only commands done before it was given are promised.
                    let Cache::Slots(slots) = &self.disk.cache else { panic!("slots are counted") };
                    let mut left = slots.numbers().filter(|left| *left < number && !beside.contains(left));
                    assert_eq!(left.next(), None, "flush {number} is done before its data");
                }
                if command.fua && command.dir == Dir::Write {
                    assert!(done.media, "a forced write was not on the medium");
                }
                if to.is_none() {
                    return;
                }
            }
            self.now = to.unwrap_or(self.now);
        }

        fn give(&mut self, command: Command) {
            while self.outstanding.len() >= 31 {
                self.carry_on(None);
            }
            self.carry_on(Some(self.now));
            self.nr_given += 1;
            let command = Command { tag: self.nr_given as u32, ..command };
            let beside = self.outstanding.iter().map(|(_, number, _)| *number).collect();
            self.outstanding.push((command, self.nr_given, beside));
            self.disk.submit(self.now, command);
            self.look();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Reads, writes, flushes and forced writes near one another, so that slots run out and data is overwritten.
        #[test]
        fn a_cache_of_slots_loses_nothing_and_keeps_its_promises(
            steps in prop::collection::vec((0u64..500, 1u32..40, 0u8..16, 0u64..3_000), 1..80),
            slots in 1i64..6, order in 0i64..3, coalesce in 0i64..2, idle_ms in 0i64..2,
        ) {
            let options = [
                ("write_cache_slots", slots), ("destage_order", order), ("coalesce", coalesce),
                ("destage_idle_ms", idle_ms), ("write_cache_kb", 40),
            ];
            let mut watch = Watch::new(&options);
            for (place, nr_sectors, kind, gap_us) in &steps {
                // Half of the gaps are none.
                watch.carry_on(Some(watch.now + Nanos::from_us(gap_us.saturating_sub(1_500))));
                let sector = place * 8;
                watch.give(match kind {
                    0 => flush(0),
                    1 => Command { fua: true, ..write(0, sector, *nr_sectors) },
                    2 => Command { flush: true, ..write(0, sector, *nr_sectors) },
                    3..=6 => read(0, sector, *nr_sectors),
                    _ => write(0, sector, *nr_sectors),
                });
            }
            watch.give(flush(0));
            while !watch.outstanding.is_empty() {
                watch.carry_on(None);
            }
            prop_assert_eq!(watch.log.len(), steps.len() + 1);
            prop_assert!(watch.log.is_sorted_by_key(|(at, _)| *at));
            // The last command was a flush: nothing is left to write.
            prop_assert_eq!(watch.disk.cache.ready_at(), None);
        }
    }

    #[test]
    fn a_lone_stream_through_slots_misses_a_revolution_whenever_it_runs_dry() {
        // A naive account of the same: records of 4 KB, each 1 us after the one before it has been taken.
        const SECTORS: u64 = 80_000_000 / 120 / 512;
        let spin = |sectors: u64| sectors * REVOLUTION / SECTORS;
        for slots in [4usize, 32] {
            let mut device = build(&sata_2010::ENTRY, &[("write_cache_slots", slots as i64)]);
            let measured = closed_loop(&mut *device, 1, 3_000, |i| write(0, i * 8, 8));
            let (mut arrived, mut written): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
            let mut given = 0;
            for i in 0..3_000 {
                // It has a slot when the one `slots` before it is on the medium, and crosses the cable then.
                let decoded: u64 = given + 105_000;
                let slot = if i >= slots { written[i - slots] } else { 0 };
                arrived.push(decoded.max(slot) + 16_384);
                given = arrived[i];
                // On the medium: the head passes its place every revolution.
                let begin = spin(i as u64 * 8);
                let settled = if i == 0 { arrived[0] + 700_000 } else { arrived[i].max(written[i - 1] - 2) };
                let turns = settled.saturating_sub(begin).div_ceil(REVOLUTION);
                written.push(begin + turns * REVOLUTION + spin(8));
            }
            for (i, (measured, expected)) in measured.iter().zip(&arrived).enumerate() {
                assert!(
                    measured.0.abs_diff(*expected) < 1_000,
                    "{slots} slots, record {i}: {measured}, not {expected}"
                );
            }
        }
    }

    proptest! {
        /// The extents against a plain table of sectors.
        #[test]
        fn the_write_cache_agrees_with_a_table_of_sectors(
            steps in prop::collection::vec((0usize..90, 1usize..10, 0u8..8), 1..80)
        ) {
            let mut dirty = Dirty {
                extents: Vec::new(),
                nr_sectors: 0,
                destaging: None,
                max_sectors: 50,
                max_extents: 5,
                order: Order::Nearest,
            };
            let mut table = [false; 100];
            for (number, (start, len, kind)) in steps.into_iter().enumerate() {
                let end = start + len;
                let held = dirty.holds(start as u64, end as u64);
                prop_assert_eq!(held, table[start..end].iter().all(|&dirty| dirty));
                if kind == 0 {
                    dirty.subtract(start as u64, end as u64);
                    table[start..end].fill(false);
                } else {
                    let mut after = table;
                    after[start..end].fill(true);
                    let runs = |table: &[bool; 100]| {
                        (0..100).filter(|&i| table[i] && (i == 0 || !table[i - 1])).count()
                    };
                    let sectors = after.iter().filter(|&&dirty| dirty).count();
                    // What only joins may also join an overfull cache (a hole can split an extent).
                    let fits = sectors <= 50 && (runs(&after) <= 5 || runs(&after) <= runs(&table));
                    prop_assert_eq!(dirty.absorb(start as u64, end as u64, number as u64), fits);
                    if fits {
                        table = after;
                    }
                }
                let mut shown = [false; 100];
                for extent in &dirty.extents {
                    prop_assert!(extent.start < extent.end);
                    shown[extent.start as usize..extent.end as usize].fill(true);
                }
                prop_assert_eq!(shown, table);
                prop_assert_eq!(dirty.nr_sectors, table.iter().filter(|&&dirty| dirty).count() as u64);
            }
        }
    }
}
