//! A device as it was measured: service times drawn from the distributions of a profile.
//!
//! A command waits for its turn under the caps on operations and bytes (token buckets), then for one of `servers`
//! servers, and keeps it for a time drawn from the distribution of its operation and size. A command that begins where
//! one of the last `streams` ended continues it: it has times of its own, and sectors that the device has read ahead
//! since then cost only their share of `hit_ns`. Other commands may be corrected by their distance from the one before.
//! All times are scaled by the number of commands in the device. Data cross a link at the end of a service: a time for
//! each command and a rate, one command after the other. A command slower than `stall_us` (who serves was busy
//! elsewhere) keeps all others waiting. With `passes` one server takes the waiting command whose time would be the
//! shortest (each has a time drawn for it at each choice, as a platter has another angle then), unless another has been
//! passed over that often. The first command after `idle_us` without any pays `idle_exit_ns`. Writes fill
//! a volatile cache that is emptied at `destage_rate_kb_s`: a write waits while it is full, a flush and a write with
//! FUA until it is empty, and a flush takes a time of its own after all writes given before it.
//!
//! Source: the parameters that extraction tools have measured (Worthington, Ganger, Patt and Wilkes, "On-Line
//! Extraction of SCSI Disk Drive Parameters", 1995), with distributions in place of a mechanism; docs/PROFILE.md.
//! Known deviations: draws do not depend on one another; a command does not know which flash unit or cylinder it needs.

use std::sync::Arc;

use crate::device::completions::{Electronic, Timing, transfer};
use crate::device::virtio::Cap;
use crate::device::{Build, Command, Completion, Device, DeviceStats};
use crate::event::Dir;
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::rng::Rng;
use crate::service::{NR_LEVELS, Row, Service, at, draw_share, on_line};
use crate::units::{Nanos, SECTOR_BYTES};

/// The table entry.
pub const ENTRY: Entry<Build> = Entry {
    name: "measured",
    summary: "a device from a profile: measured distributions of service times; `--disk NAME|FILE`",
    origin: &[Origin {
        kernels: "any",
        file: "Worthington, Ganger, Patt, Wilkes 1995; docs/PROFILE.md",
        function: "parameters measured from outside",
        notes: "Takes the profiles of `iowhy disk fit`. The device without a profile is made up.",
    }],
    options: OPTIONS,
    conformance: "tests with hand-computed times; `cargo xtask fit` predicts disks with hidden parameters",
    build: |options, rng| {
        let device = Electronic::with_queues(options, Measured::new(options, rng));
        let device = device.rotating(options.is_on("rotational"));
        match options.unsigned("passes") {
            0 => Box::new(device),
            passes => Box::new(Ordering { passes, device, waiting: Vec::new() }),
        }
    },
};

macro_rules! number {
    ($name:literal, $default:expr, $range:expr, $help:literal) => {
        OptionSpec::number($name, $default, $range, concat!($help, ". Source: the profile; made up without one."))
    };
}

const NS: (i64, i64) = (0, 600_000_000_000);
const RATE: (i64, i64) = (0, 1_000_000_000);

const OPTIONS: &[OptionSpec] = &[
    number!("queue_depth", 128, (1, 65_535), "Commands each queue accepts"),
    number!("nr_queues", 1, (1, 1024), "Queues for commands"),
    number!("nr_sectors", 1 << 28, (1 << 13, 1 << 40), "Capacity"),
    OptionSpec::switch("rotational", false, "Whether the kernel takes it for a rotating disk. Source: the profile."),
    number!("servers", 4, (1, 4096), "Commands served side by side"),
    OptionSpec::switch(
        "writes_seek",
        true,
        "Whether writes are corrected by their distance; a drive that caches them does not seek. Source: the profile.",
    ),
    number!("passes", 0, (0, 1_000_000), "How often a command may be passed over for a quicker one; 0: in order"),
    number!("streams", 8, (0, 256), "Sequential streams that it recognises"),
    number!("ahead_sectors", 0, (0, 1 << 24), "Sectors that it reads ahead of a stream"),
    number!("hit_ns", 0, NS, "A command whose sectors have been read ahead"),
    number!("link_gap_ns", 0, NS, "Least time between two commands on the link"),
    number!("link_rate_kb_s", 0, RATE, "Rate of the link, 1000 bytes/s; 0: no limit"),
    number!("stall_us", 0, (0, 600_000_000), "A command slower than this keeps all others waiting; 0: none does"),
    number!("idle_us", 0, (0, 600_000_000), "Time without commands after which the next one is late; 0: never"),
    number!("idle_exit_ns", 0, NS, "By how much"),
    number!("cache_kb", 0, (0, 1 << 24), "Volatile write cache; 0: without limit"),
    number!(
        "destage_rate_kb_s",
        0,
        RATE,
        "Rate at which it is emptied, 1000 bytes/s; 0: not at all, writes are stable"
    ),
    number!("iops_limit", 0, RATE, "Cap on operations a second; 0: none"),
    number!("burst_iops", 0, RATE, "Operations a second from a full bucket, if more"),
    number!("bw_limit_kb", 0, RATE, "Cap on bytes a second, thousands; 0: none"),
    number!("burst_bw_kb", 0, RATE, "Bytes a second from a full bucket, thousands, if more"),
    number!("burst_s", 0, (0, 86_400), "Time that a full bucket lasts at the burst rates"),
    number!(
        "slice_us",
        0,
        (0, 10_000_000),
        "Time whose share of the caps is granted at once, without a burst; 0: paced"
    ),
];

/// A cap that grants a slice of time at once: what fits into the slices begun so far passes, and what does not waits
/// until its excess is paid after the slice (`blk-throttle`).
#[derive(Clone, Debug, Default)]
struct Slices {
    /// Units a second; 0: no limit.
    rate: u64,
    slice: u64,
    /// When these slices began, when they end, units that have passed in them, and when the last one did.
    start: u64,
    end: u64,
    used: u64,
    last: u64,
}

impl Slices {
    fn take(&mut self, now: u64, units: u64) -> u64 {
        if self.rate == 0 {
            return now;
        }
        let now = now.max(self.last);
        if now >= self.end {
            (self.start, self.end, self.used) = (now, now + self.slice, 0);
        }
        self.used += units;
        let begun = ((now - self.start) / self.slice + 1) * self.slice;
        let paid = (u128::from(self.used) * 1_000_000_000 / u128::from(self.rate)) as u64;
        let at = if paid <= begun { now } else { self.start + paid };
        // The slice in which it passes ends later.
        self.end = self.start + ((at - self.start) / self.slice + 1) * self.slice;
        self.last = at;
        at
    }
}

/// A cap of a volume or of a control group.
#[derive(Clone, Debug)]
enum Limit {
    Bucket(Cap),
    Slices(Slices),
}

impl Limit {
    fn new(limit: u64, burst: u64, burst_s: u64, slice: u64) -> Limit {
        match slice {
            0 => Limit::Bucket(Cap::new(limit, burst, burst_s)),
            slice => Limit::Slices(Slices { rate: limit, slice, ..Slices::default() }),
        }
    }

    fn take(&mut self, now: u64, units: u64) -> u64 {
        match self {
            Limit::Bucket(cap) => cap.take(now, units),
            Limit::Slices(slices) => slices.take(now, units),
        }
    }
}

/// The tables without a profile.
fn made_up() -> Service {
    let row = |sectors, ns: u64| Row { sectors, ns: std::array::from_fn(|nr| ns * (80 + nr as u64 * 40 / 16) / 100) };
    let (small, large) = (row(8, 100_000), row(2048, 2_000_000));
    let next = [row(8, 60_000), row(2048, 1_900_000)].to_vec();
    let rows = [vec![small.clone(), large.clone()], next.clone(), vec![small, large], next];
    Service { rows, flush: Some([500_000; NR_LEVELS]), ..Service::default() }
}

/// A measured device.
#[derive(Clone, Debug)]
struct Measured {
    service: Arc<Service>,
    /// When each server is free.
    free: Vec<u64>,
    /// Ends of streams with the time when they were reached, the one used longest ago first.
    streams: Vec<(u64, u64)>,
    most_streams: usize,
    writes_seek: bool,
    ahead_sectors: u64,
    hit: u64,
    link_gap: u64,
    link_rate: u64,
    /// When it is taken, in order of time.
    link: Vec<(u64, u64)>,
    stall: u64,
    /// When the last of these commands is done.
    stalled: u64,
    idle: u64,
    idle_exit: u64,
    /// Time in which the full cache is emptied.
    cache: u64,
    destage_rate: u64,
    /// When the cache will be empty, and when the writes given so far are done.
    stable: u64,
    written: u64,
    operations: Limit,
    bytes: Limit,
    /// The sector after the last command, when the last one is done, and those in flight if their number counts.
    end: u64,
    last: u64,
    in_flight: Vec<u64>,
    rng: Rng,
    stats: DeviceStats,
}

impl Measured {
    fn new(options: &Options, rng: Rng) -> Measured {
        let number = |name: &str| options.unsigned(name);
        let (burst_s, slice) = (number("burst_s"), number("slice_us") * 1000);
        Measured {
            service: options.service().cloned().unwrap_or_else(|| Arc::new(made_up())),
            free: vec![0; number("servers") as usize],
            streams: Vec::new(),
            most_streams: number("streams") as usize,
            writes_seek: options.is_on("writes_seek"),
            ahead_sectors: number("ahead_sectors"),
            hit: number("hit_ns"),
            link_gap: number("link_gap_ns"),
            link_rate: number("link_rate_kb_s"),
            link: Vec::new(),
            stall: number("stall_us") * 1000,
            stalled: 0,
            idle: number("idle_us") * 1000,
            idle_exit: number("idle_exit_ns"),
            cache: (number("cache_kb") * 1_024_000_000).checked_div(number("destage_rate_kb_s")).unwrap_or(0),
            destage_rate: number("destage_rate_kb_s"),
            stable: 0,
            written: 0,
            operations: Limit::new(number("iops_limit"), number("burst_iops"), burst_s, slice),
            bytes: Limit::new(number("bw_limit_kb") * 1000, number("burst_bw_kb") * 1000, burst_s, slice),
            end: 0,
            last: 0,
            in_flight: Vec::new(),
            rng,
            stats: DeviceStats::default(),
        }
    }

    /// The stream that a command continues, if any.
    fn stream(&self, sector: u64) -> Option<usize> {
        self.streams.iter().rposition(|(end, _)| *end == sector)
    }

    /// The time that a server would need for a command which it begins at `start`, at a share of [`draw_share`];
    /// whether the medium is needed.
    fn service_time(&self, start: u64, command: &Command, share: u64) -> (u64, bool) {
        let write = command.dir == Dir::Write;
        let (sector, nr) = (command.sector.0, u64::from(command.nr_sectors));
        let stream = self.stream(sector).map(|nr| self.streams[nr].1);
        let mut time = self.service.time(write, stream.is_some(), command.nr_sectors, share);
        let mut media = true;
        if let Some(since) = stream.filter(|_| !write && self.ahead_sectors > 0) {
            let passed = u128::from(start.saturating_sub(since)) * u128::from(nr);
            let ahead = passed.checked_div(u128::from(time)).map_or(0, |nr| nr as u64).min(self.ahead_sectors).min(nr);
            media = ahead < nr;
            time = time.min(self.hit + (u128::from(time) * u128::from(nr - ahead) / u128::from(nr)) as u64);
        } else if stream.is_none() && (!write || self.writes_seek) {
            let points = || self.service.distance.iter().copied();
            let far = points().next_back().map_or(0, |(_, ns)| ns);
            let near = on_line(points(), sector.abs_diff(self.end)).unwrap_or(far);
            time = time.saturating_sub(far.saturating_sub(near)).max(self.hit);
        }
        (time, media)
    }

    /// The same scaled by the commands in the device at `now`.
    fn at_depth(&mut self, now: u64, time: u64) -> u64 {
        if self.service.depth.is_empty() {
            return time;
        }
        self.in_flight.retain(|done| *done > now);
        let points = self.service.depth.iter().map(|(depth, share)| (u64::from(*depth), u64::from(*share)));
        let share = on_line(points, self.in_flight.len() as u64 + 1).unwrap_or(1000);
        (u128::from(time) * u128::from(share) / 1000) as u64
    }

    /// When data that need the link for `sent` and could begin at `from` have crossed it: in the first gap that takes
    /// them. Nothing begins before `now` any more.
    fn cross(&mut self, now: u64, from: u64, sent: u64) -> u64 {
        if sent == 0 {
            return from;
        }
        self.link.retain(|(_, end)| *end > now);
        let mut begin = from;
        let mut place = self.link.partition_point(|(_, end)| *end <= from);
        while let Some((_, end)) = self.link.get(place).filter(|(taken, _)| *taken < begin + sent) {
            (begin, place) = (begin.max(*end), place + 1);
        }
        self.link.insert(place, (begin, begin + sent));
        begin + sent
    }

    fn flush_time(&mut self) -> u64 {
        let share = draw_share(&mut self.rng);
        self.service.flush.as_ref().map_or(0, |times| at(times, share))
    }

    /// When a command given at `now` is done, at a share of [`draw_share`]; whether the medium is needed.
    fn serve(&mut self, now: u64, command: &Command, share: u64) -> (u64, bool) {
        let mut start = now;
        if self.idle > 0 && start.saturating_sub(self.last) > self.idle {
            start += self.idle_exit;
        }
        let mut media = false;
        if command.flush {
            media = self.stable > start;
            start = start.max(self.stable).max(self.written) + self.flush_time();
        }
        let mut done = start;
        if command.nr_sectors > 0 {
            let sectors = u64::from(command.nr_sectors);
            let turn = self.operations.take(start, 1);
            start = turn.max(self.bytes.take(start, sectors * SECTOR_BYTES));
            let Some(server) = (0..self.free.len()).min_by_key(|nr| self.free[*nr]) else {
                unreachable!("there is at least one server")
            };
            start = start.max(self.free[server]).max(self.stalled);
            let (time, on_medium) = self.service_time(start, command, share);
            self.stream(command.sector.0).map(|nr| self.streams.remove(nr));
            let time = self.at_depth(now, time);
            let sent = self.link_gap + if self.link_rate > 0 { transfer(sectors, self.link_rate) } else { 0 };
            self.free[server] = start + time;
            if self.stall > 0 && time > self.stall {
                self.stalled = start + time;
            }
            done = self.cross(now, start + time.saturating_sub(sent), sent);
            media |= on_medium;
            if command.dir == Dir::Write {
                if self.destage_rate > 0 {
                    self.stable = self.stable.max(start) + transfer(sectors, self.destage_rate);
                    let room = if self.cache > 0 { self.stable.saturating_sub(self.cache) } else { 0 };
                    done = done.max(if command.fua { self.stable } else { room });
                }
                if command.fua {
                    done += self.flush_time();
                }
                self.written = self.written.max(done);
            }
            self.end = command.sector.0 + sectors;
            if self.most_streams > 0 {
                if self.streams.len() == self.most_streams {
                    self.streams.remove(0);
                }
                self.streams.push((self.end, done));
            }
            if !self.service.depth.is_empty() {
                self.in_flight.push(done);
            }
            self.stats.media_accesses += u64::from(on_medium);
            self.stats.cache_hits += u64::from(!on_medium);
            self.stats.busy += Nanos(time);
        }
        self.last = self.last.max(done);
        (done, media)
    }
}

impl Timing for Measured {
    fn time(&mut self, now: Nanos, command: &Command) -> (u64, bool) {
        let share = draw_share(&mut self.rng);
        self.serve(now.0, command, share)
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

/// A measured device that takes the quickest command next.
#[derive(Clone, Debug)]
struct Ordering {
    passes: u64,
    /// It has one command at a time.
    device: Electronic<Measured>,
    /// The others with the number of times that they have been passed over, oldest first.
    waiting: Vec<(Command, u64)>,
}

impl Ordering {
    /// Begins with the next command, if any waits.
    fn begin(&mut self, now: Nanos) {
        let measured = &mut self.device.timing;
        let shares: Vec<u64> = self.waiting.iter().map(|_| draw_share(&mut measured.rng)).collect();
        let time = |nr: usize| {
            let (command, passed) = &self.waiting[nr];
            // A flush has waited for what was given before it.
            let first = command.flush || *passed >= self.passes;
            let time = if first { 0 } else { measured.service_time(now.0, command, shares[nr]).0 };
            (!first, time)
        };
        let Some(next) = (0..shares.len()).min_by_key(|nr| time(*nr)) else { return };
        let (command, _) = self.waiting.remove(next);
        self.waiting.iter_mut().for_each(|(_, passed)| *passed += 1);
        let done = measured.serve(now.0, &command, shares[next]);
        self.device.complete(command.tag, done);
    }
}

impl Device for Ordering {
    fn queue_depth(&self) -> u32 {
        self.device.queue_depth()
    }

    fn nr_hw_queues(&self) -> u32 {
        self.device.nr_hw_queues()
    }

    fn nr_sectors(&self) -> u64 {
        self.device.nr_sectors()
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        self.device.check(self.waiting.len(), &command);
        self.waiting.push((command, 0));
        if self.next().is_none() {
            self.begin(now);
        }
    }

    fn next(&self) -> Option<Nanos> {
        self.device.next()
    }

    fn advance(&mut self, now: Nanos) -> Option<Completion> {
        let at = self.next()?;
        let completion = self.device.advance(now)?;
        self.begin(at);
        Some(completion)
    }

    fn stats(&self) -> DeviceStats {
        self.device.stats()
    }

    fn rotational(&self) -> bool {
        self.device.rotational()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::{closed_loop, flush, read, run, write};

    fn flat(sectors: u32, us: u64) -> Row {
        Row { sectors, ns: [us * 1000; NR_LEVELS] }
    }

    /// 100 us + 10 us a KiB at random, half of that in sequence; writes 50 us; a flush 1 ms.
    fn service() -> Service {
        let reads = vec![flat(8, 140), flat(256, 1380)];
        let rows = [reads, vec![flat(8, 70), flat(256, 690)], vec![flat(8, 50)], vec![]];
        Service { rows, flush: Some([1_000_000; NR_LEVELS]), ..Service::default() }
    }

    fn device(service: Service, options: &[(&str, i64)]) -> Box<dyn Device> {
        let mut values = ENTRY.defaults();
        assert_eq!(service.mistakes(), Vec::<String>::new());
        values.set_service(Arc::new(service));
        options.iter().for_each(|(name, value)| values.set(name, *value));
        (ENTRY.build)(&values, Rng::stream(1, "device"))
    }

    const US: u64 = 1000;

    #[test]
    fn times_follow_operation_size_and_sequence() {
        let mut device = device(service(), &[("servers", 1)]);
        let mut now = Nanos::ZERO;
        for (command, us) in [
            (read(1, 800, 8), 140),
            (read(1, 808, 8), 70),
            (read(1, 9000, 132), 760),
            (read(1, 816, 8), 70),
            (read(1, 1 << 20, 512), 2660),
            (write(1, 0, 8), 50),
            (flush(1), 1000),
            (Command { fua: true, ..write(1, 4096, 8) }, 1050),
        ] {
            let done = run(&mut *device, now, command).0;
            assert_eq!((done - now).0, us * US, "{command:?}");
            now = done;
        }
        let DeviceStats { busy, media_accesses, .. } = device.stats();
        assert_eq!((busy.0, media_accesses), (3800 * US, 7));
    }

    #[test]
    fn servers_link_and_depth_bound_the_throughput() {
        for (options, depth, depths, us) in [
            (&[("servers", 4)][..], 8, vec![], 1000 / 4 * 140),
            (&[("servers", 64), ("link_gap_ns", 25_000)], 64, vec![], 1000 * 25),
            (&[("servers", 64), ("link_rate_kb_s", 40_960)], 64, vec![], 1000 * 100),
            (&[("servers", 1)], 4, vec![(1, 1000), (3, 500)], 1000 * 70),
            (&[("servers", 4), ("iops_limit", 1000)], 4, vec![], 1_000_000),
            // The last hundred pass as soon as the last slice begins and the excess over the one before is paid.
            (&[("servers", 4), ("iops_limit", 1000), ("slice_us", 100_000)], 4, vec![], 904_000),
            (&[("servers", 4), ("stall_us", 100)], 4, vec![], 1000 * 140),
            (&[("servers", 4), ("bw_limit_kb", 2048), ("burst_bw_kb", 4096), ("burst_s", 1)], 4, vec![], 1_000_000),
        ] {
            let mut device = device(Service { depth: depths, ..service() }, options);
            let done = closed_loop(&mut *device, depth, 1000, |i| read(0, i * 4096 % (1 << 27), 8));
            let took = done[999].0 / US;
            assert!(took.abs_diff(us) <= us / 50, "{options:?}: {took} us, not {us}");
        }
    }

    #[test]
    fn data_cross_the_link_after_a_service_in_the_first_gap() {
        // 25 us of the 140 and 1380 us are those of the link.
        let mut device = device(service(), &[("servers", 8), ("link_gap_ns", 25_000)]);
        let given = [(0, 256), (1, 8), (2, 8), (1340, 8)];
        for (nr, (us, sectors)) in given.iter().enumerate() {
            device.submit(Nanos::from_us(*us), read(nr as u32, nr as u64 * 4096, *sectors));
        }
        let mut done = [0; 4];
        while let Some(now) = device.next() {
            if let Some(completion) = device.advance(now) {
                done[completion.tag as usize] = now.0 / US;
            }
        }
        assert_eq!(done, [1380, 141, 166, 1480]);
    }

    #[test]
    fn the_quickest_command_is_next_unless_another_was_passed_over() {
        for (passes, order) in [(0, [0, 1, 2, 3, 4]), (2, [0, 2, 3, 1, 4]), (100, [0, 2, 3, 4, 1])] {
            let mut device = device(service(), &[("servers", 1), ("passes", passes)]);
            for (tag, sectors) in [(0, 8), (1, 256), (2, 8), (3, 8), (4, 8)] {
                device.submit(Nanos(1), read(tag, u64::from(tag) * 4096, sectors));
            }
            let mut ends = Vec::new();
            while let Some(now) = device.next() {
                ends.extend(device.advance(now).map(|completion| completion.tag));
            }
            assert_eq!(ends, order, "{passes}");
        }
    }

    #[test]
    fn distance_reading_ahead_and_idleness_change_a_time() {
        let far = Service { distance: vec![(1000, 20_000), (2000, 60_000), (1 << 30, 120_000)], ..service() };
        let options = [("servers", 1), ("ahead_sectors", 64), ("hit_ns", 5_000), ("idle_us", 10_000)];
        let mut device = device(far, &[&options[..], &[("idle_exit_ns", 7_000_000)]].concat());
        let mut now = Nanos::from_us(1);
        for (pause_us, sector, us) in [
            (0, 1000, 40),
            (0, 1008 + 1500, 60),
            (100, 2516, 5),
            // Half of it is there.
            (35, 2524, 5 + 35),
            (0, 2532, 70),
            (10_001, 1 << 20, 7_000 + 80 + 1),
        ] {
            now += Nanos::from_us(pause_us);
            let done = run(&mut *device, now, read(1, sector, 8)).0;
            assert!((done - now).0.abs_diff(us * US) <= US, "{sector}: {}, not {us} us", done - now);
            now = done;
        }
    }

    #[test]
    fn a_full_cache_makes_writes_wait_and_a_flush_empties_it() {
        let options = [("servers", 1), ("cache_kb", 1000), ("destage_rate_kb_s", 1024)];
        let mut device = device(service(), &options);
        // 4 KiB in 4 ms: 250 fill the second that the cache holds.
        let done = closed_loop(&mut *device, 1, 400, |i| write(0, i * 4096, 8));
        assert!(done[200].0 < 11_000 * US, "{}", done[200]);
        assert!((done[399] - done[350]).0.abs_diff(49 * 4_000 * US) < 60 * US, "{}", done[399] - done[350]);
        let flushed = run(&mut *device, done[399], flush(1)).0;
        assert!((flushed - done[399]).0.abs_diff(1_001_000 * US) < 5_000 * US, "{}", flushed - done[399]);
    }
}
