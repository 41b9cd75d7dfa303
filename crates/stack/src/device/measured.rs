//! A device as it was measured: service times drawn from the distributions of a profile.
//!
//! A command waits for its turn under the caps on operations and bytes (token buckets), then for one of `servers`
//! servers, and keeps it for a time drawn from the distribution of its operation and size. A command that begins where
//! one of the last `streams` ended continues it: it has times of its own, and sectors that the device has read ahead
//! since then cost only their share of `hit_ns`. Other commands may be corrected by their distance from the one before.
//! All times are scaled by the number of commands in the device. Data share a link: a time for each command and
//! a rate, one command after the other. A command slower than `stall_us` (who serves was busy elsewhere) keeps all
//! others waiting. The first command after `idle_us` without any pays `idle_exit_ns`. Writes fill
//! a volatile cache that is emptied at `destage_rate_kb_s`: a write waits while it is full, a flush and a write with
//! FUA until it is empty, and a flush takes a time of its own after all writes given before it.
//!
//! Source: the parameters that extraction tools have measured (Worthington, Ganger, Patt and Wilkes, "On-Line
//! Extraction of SCSI Disk Drive Parameters", 1995), with distributions in place of a mechanism; docs/PROFILE.md.
//! Known deviations: draws do not depend on one another; a device that orders its commands is only a scale by depth, so
//! that none overtakes another on the same server; a command does not know which flash unit or cylinder it needs.

use std::sync::Arc;

use crate::device::completions::{Electronic, Timing, transfer};
use crate::device::virtio::Cap;
use crate::device::{Build, Command, DeviceStats};
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
        Box::new(device.rotating(options.is_on("rotational")))
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
    link_free: u64,
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
            link_free: 0,
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

    /// Whether a command begins where a stream ended, and when that was.
    fn stream(&mut self, sector: u64) -> Option<u64> {
        let nr = self.streams.iter().rposition(|(end, _)| *end == sector)?;
        Some(self.streams.remove(nr).1)
    }

    /// The time that a server needs for a command given at `now` which it begins at `start`; whether the medium is
    /// needed.
    fn service_time(&mut self, now: u64, start: u64, command: &Command) -> (u64, bool) {
        let write = command.dir == Dir::Write;
        let (sector, nr) = (command.sector.0, u64::from(command.nr_sectors));
        let stream = self.stream(sector);
        let share = draw_share(&mut self.rng);
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
        if !self.service.depth.is_empty() {
            self.in_flight.retain(|done| *done > now);
            let points = self.service.depth.iter().map(|(depth, share)| (u64::from(*depth), u64::from(*share)));
            let share = on_line(points, self.in_flight.len() as u64 + 1).unwrap_or(1000);
            time = (u128::from(time) * u128::from(share) / 1000) as u64;
        }
        (time, media)
    }

    fn flush_time(&mut self) -> u64 {
        let share = draw_share(&mut self.rng);
        self.service.flush.as_ref().map_or(0, |times| at(times, share))
    }
}

impl Timing for Measured {
    fn time(&mut self, now: Nanos, command: &Command) -> (u64, bool) {
        let mut start = now.0;
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
            let (time, on_medium) = self.service_time(now.0, start, command);
            let sent = self.link_gap + if self.link_rate > 0 { transfer(sectors, self.link_rate) } else { 0 };
            self.link_free = self.link_free.max(start) + sent;
            done = start + time;
            self.free[server] = done;
            if self.stall > 0 && time > self.stall {
                self.stalled = done;
            }
            done = done.max(self.link_free);
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

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::{closed_loop, flush, read, run, write};
    use crate::device::{Device, DeviceStats};

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
