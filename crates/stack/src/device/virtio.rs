//! A cloud volume behind virtio-blk: an exit to the host, a network away, perhaps with caps.
//!
//! A command costs the exit, waits for its turn under the caps on operations and on bytes, and then takes the
//! backend's latency with some spread. A cap is a token bucket, kept as the time at which it will be full again. With
//! a burst rate the full bucket holds what `burst_s` seconds at that rate need beyond the limit, and a second bucket
//! without store keeps the burst itself to its rate; without, commands come at the limit, one by one. The backend
//! serves any number at once. A flush has a latency of its own and waits for all writes given before it.
//!
//! Source: usual depth of the virtio-blk ring (128) and cost of an exit (5-20 us); backend latencies are guesses, and
//! caps with bursts are what volumes of this kind are sold by. Known deviations: providers' rules for counting large
//! operations as several are not modelled; the link is inside the latency; the queues are served as one.

use crate::device::completions::{Electronic, Spread, Timing};
use crate::device::{Build, Command, DeviceStats};
use crate::event::Dir;
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::rng::Rng;
use crate::units::{Nanos, SECTOR_BYTES};

/// The table entry.
pub const ENTRY: Entry<Build> = Entry {
    name: "virtio",
    summary: "cloud volume behind virtio-blk, with optional caps on operations and bytes",
    origin: &[Origin {
        kernels: "3.17 .. 6.x",
        file: "drivers/block/virtio_blk.c",
        function: "virtio_queue_rq",
        notes: "No particular provider; latencies are guesses.",
    }],
    options: OPTIONS,
    conformance: "its own tests: latency, and both caps obeyed over any interval",
    build: |options, rng| Box::new(Electronic::with_queues(options, Virtio::new(options, rng))),
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::number("queue_depth", 128, (1, 32_768), "Commands each queue accepts. Source: usual size of the ring."),
    OptionSpec::number("nr_queues", 1, (1, 256), "Queues. Source: one before 3.17, and where the host offers no more."),
    OptionSpec::number(
        "nr_sectors",
        209_715_200,
        (1 << 20, 1 << 40),
        "Capacity. Source: choice of the model, 100 GiB.",
    ),
    OptionSpec::number("host_exit_us", 15, (0, 10_000), "Kick, exit and way back. Source: assumed, 5 to 20 us."),
    OptionSpec::number(
        "read_us",
        500,
        (0, 10_000_000),
        "Latency of a read in the backend. Source: assumed, below 1 ms.",
    ),
    OptionSpec::number("write_us", 700, (0, 10_000_000), "Latency of a write. Source: assumed, below 1 ms."),
    OptionSpec::number("flush_us", 700, (0, 10_000_000), "Latency of a flush. Source: assumed, as a write."),
    OptionSpec::number("spread_percent", 10, (0, 90), "Spread of read_us and write_us either way. Source: assumed."),
    OptionSpec::number(
        "iops_limit",
        0,
        (0, 10_000_000),
        "Operations a second; 0: no cap. Source: choice of the model, off.",
    ),
    OptionSpec::number(
        "burst_iops",
        0,
        (0, 10_000_000),
        "Operations a second from a full bucket, if more than iops_limit. Source: choice of the model, off.",
    ),
    OptionSpec::number(
        "bw_limit_mb",
        0,
        (0, 100_000),
        "Bytes a second, in millions; 0: no cap. Source: choice of the model, off.",
    ),
    OptionSpec::number(
        "burst_bw_mb",
        0,
        (0, 100_000),
        "Bytes a second, in millions, from a full bucket, if more than bw_limit_mb. Source: choice of the model, off.",
    ),
    OptionSpec::number(
        "burst_s",
        30,
        (0, 86_400),
        "How long a full bucket lasts at the burst rates. Source: assumed; volumes with 30 min of 3000 are sold.",
    ),
];

/// A token bucket as a time: when the bucket will be full again.
#[derive(Copy, Clone, Debug)]
struct Bucket {
    /// Units a second; 0: no limit.
    rate: u64,
    /// How long the full bucket takes to fill.
    depth: u64,
    full_at: u64,
}

impl Bucket {
    fn new(rate: u64, burst: u64) -> Bucket {
        // A store of many gigabytes for a day needs more than 64 bits on the way.
        let depth = (u128::from(burst) * 1_000_000_000).checked_div(u128::from(rate)).unwrap_or(0) as u64;
        Bucket { rate, depth, full_at: 0 }
    }

    /// The earliest time from `now` on at which `units` may pass: the bucket must not have been overdrawn before.
    fn take(&mut self, now: u64, units: u64) -> u64 {
        if self.rate == 0 {
            return now;
        }
        // Rounded up, so that the cap is never exceeded.
        let cost = (units * 1_000_000_000).div_ceil(self.rate);
        let full_at = self.full_at.max(now) + cost;
        self.full_at = full_at;
        now.max(full_at.saturating_sub(self.depth.max(cost)))
    }
}

/// A cap: a limit, and perhaps a higher rate for as long as the store lasts.
#[derive(Copy, Clone, Debug)]
pub(super) struct Cap {
    limit: Bucket,
    burst: Bucket,
}

impl Cap {
    /// Units a second, and at most `burst` of them for `seconds` from a full store; 0: no limit, no burst.
    pub(super) fn new(limit: u64, burst: u64, seconds: u64) -> Cap {
        if limit == 0 || burst <= limit {
            return Cap { limit: Bucket::new(limit, 0), burst: Bucket::new(0, 0) };
        }
        Cap { limit: Bucket::new(limit, (burst - limit) * seconds), burst: Bucket::new(burst, 0) }
    }

    /// When from `now` on that many may pass.
    pub(super) fn take(&mut self, now: u64, units: u64) -> u64 {
        let paced = self.burst.take(now, units);
        self.limit.take(paced, units)
    }
}

/// A cloud volume.
#[derive(Clone, Debug)]
struct Virtio {
    host_exit: u64,
    read: Spread,
    write: Spread,
    flush: u64,
    operations: Cap,
    bytes: Cap,
    /// The last write given so far is done.
    written: u64,
    rng: Rng,
    stats: DeviceStats,
}

impl Virtio {
    fn new(options: &Options, rng: Rng) -> Virtio {
        let us = |name: &str| Nanos::from_us(options.unsigned(name));
        let mega = |name: &str| options.unsigned(name) * 1_000_000;
        let burst_s = options.unsigned("burst_s");
        let percent = options.unsigned("spread_percent");
        Virtio {
            host_exit: us("host_exit_us").0,
            read: Spread::new(us("read_us"), percent),
            write: Spread::new(us("write_us"), percent),
            flush: us("flush_us").0,
            operations: Cap::new(options.unsigned("iops_limit"), options.unsigned("burst_iops"), burst_s),
            bytes: Cap::new(mega("bw_limit_mb"), mega("burst_bw_mb"), burst_s),
            written: 0,
            rng,
            stats: DeviceStats::default(),
        }
    }
}

impl Timing for Virtio {
    fn time(&mut self, now: Nanos, command: &Command) -> (u64, bool) {
        let mut done = now.0 + self.host_exit;
        if command.flush {
            done = done.max(self.written) + self.flush;
        }
        if command.nr_sectors > 0 {
            let turn = self.operations.take(done, 1);
            let turn = turn.max(self.bytes.take(done, u64::from(command.nr_sectors) * SECTOR_BYTES));
            let latency = match command.dir {
                Dir::Read => self.read.draw(&mut self.rng),
                Dir::Write => self.write.draw(&mut self.rng),
            };
            done = turn + latency;
            if command.dir == Dir::Write {
                if command.fua {
                    done += self.flush;
                }
                self.written = self.written.max(done);
            }
            self.stats.media_accesses += 1;
            self.stats.busy += Nanos(latency);
        }
        (done, command.nr_sectors > 0)
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::{build, closed_loop, done, flush, read, run, write};

    #[test]
    fn without_caps_a_read_takes_the_exit_and_the_latency() {
        let mut device = build(&ENTRY, &[("spread_percent", 0)]);
        assert_eq!(run(&mut *device, Nanos::ZERO, read(1, 0, 8)).0, Nanos::from_us(515));
    }

    #[test]
    fn caps_are_reached_and_never_exceeded() {
        const BYTES: u64 = 131_072;
        // The tunables, and the cap that rules: units a second, units a command.
        for (options, per_second, units) in [
            ([("iops_limit", 3_000), ("bw_limit_mb", 0)], 3_000, 1),
            ([("iops_limit", 0), ("bw_limit_mb", 125)], 125_000_000, BYTES),
            ([("iops_limit", 3_000), ("bw_limit_mb", 125)], 125_000_000, BYTES),
            ([("iops_limit", 500), ("bw_limit_mb", 125)], 500, 1),
        ] {
            let mut device = build(&ENTRY, &options);
            let done = closed_loop(&mut *device, 64, 6_000, |i| read(0, (i * 7919 % 1000) * 256, 256));
            for (i, at) in done.iter().enumerate() {
                let allowed = at.0 * per_second / 1_000_000_000;
                assert!(i as u64 * units <= allowed, "{options:?}: {i} commands in {at}");
            }
            let offered = done[5_999].0 * per_second / 1_000_000_000;
            assert!(6_000 * units * 100 >= offered * 99, "{options:?}: only 6000 in {}", done[5_999]);
        }
    }

    #[test]
    fn a_full_bucket_lasts_so_long_at_the_burst_rate_and_fills_again() {
        let options = [("iops_limit", 100), ("burst_iops", 1_000), ("burst_s", 2), ("spread_percent", 0)];
        for (mega, options) in [
            (false, &options[..]),
            (true, &[("bw_limit_mb", 1), ("burst_bw_mb", 10), ("burst_s", 2), ("spread_percent", 0)]),
        ] {
            // 10 000 bytes a command have the two caps agree.
            let mut device = build(&ENTRY, options);
            let nr_sectors = if mega { 20 } else { 8 };
            let rate = if mega { 10_000_000 / 10_240 } else { 1_000 };
            let done = closed_loop(&mut *device, 16, 3_000, |i| read(0, i * 64, nr_sectors));
            let within =
                |from: u64, to: u64| done.iter().filter(|at| (from..to).contains(&(at.0 / 1_000_000))).count() as u64;
            assert!(within(0, 1_000).abs_diff(rate) <= 3, "{}", within(0, 1_000));
            assert!(within(1_000, 2_000).abs_diff(rate) <= 3, "{}", within(1_000, 2_000));
            assert!(within(3_000, 8_000).abs_diff(rate / 2) <= 3, "{}", within(3_000, 8_000));
            // Ten quiet seconds buy a second of burst, and a bit.
            let late = done[2_999] + Nanos::from_secs(10);
            let mut now = late;
            for i in 0..500 {
                now = run(&mut *device, now, read(1, i * 64, nr_sectors)).0;
            }
            assert!((now - late).0 < 800_000_000, "{}", now - late);
        }
    }

    #[test]
    fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
        let mut bucket = Bucket::new(1_000, 10);
        let times: Vec<u64> = (0..13).map(|_| bucket.take(0, 1) / 1_000_000).collect();
        assert_eq!(times, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
        assert_eq!(bucket.take(1_000_000_000, 1), 1_000_000_000);
    }

    #[test]
    fn a_flush_waits_for_the_writes_before_it() {
        let mut device = build(&ENTRY, &[("spread_percent", 0)]);
        device.submit(Nanos::ZERO, write(1, 0, 8));
        device.submit(Nanos::ZERO, flush(2));
        let (first, completion) = done(&mut *device);
        assert_eq!((first, completion.tag), (Nanos::from_us(715), 1));
        assert_eq!(device.next(), Some(Nanos::from_us(1_415)));
    }
}
