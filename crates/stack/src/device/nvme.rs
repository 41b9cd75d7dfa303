//! An NVMe solid-state drive: many flash units side by side behind one fast link.
//!
//! A command costs an overhead; each stripe of a read then occupies its flash unit for the read time (with a little
//! spread), while the data of all commands share the link. A write is done once it is in the drive's buffer; the
//! buffer is emptied at a sustained rate and a write waits while it is full. A flush, and a write with FUA, wait until
//! their data has been written at that rate. Everything is known when a command is given, so the model is a few
//! additions.
//!
//! Source: guesses for the class of TLC drives of 2018-22 (overhead 10-20 us, read 70-90 us, 3 GB/s and more; no data
//! sheet was consulted); depth of a queue as the Linux driver has it. Known deviations: no garbage collection, no read
//! of buffered data, no conflict of reads with programming; the link is shared in order of arrival; the queues (one
//! for each processor, as far as the drive has them) are served as one, without arbitration.

use crate::device::completions::{Divisor, Electronic, Rate, Spread, Timing, transfer};
use crate::device::{Build, Command, DeviceStats};
use crate::event::Dir;
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::rng::Rng;
use crate::units::Nanos;

/// The table entry.
pub const ENTRY: Entry<Build> = Entry {
    name: "nvme",
    summary: "NVMe drive: 80 us reads, 3.2 GB/s, depth 1023",
    origin: &[Origin {
        kernels: "NVMe 1.x, drives of 2018 .. 2022",
        file: "drivers/nvme/host/pci.c for the depth; guesses for the rest",
        function: "queue depth",
        notes: "A class of drives, not one; no data sheet was consulted.",
    }],
    options: OPTIONS,
    conformance: "its own tests: latency at depth 1, rate of the link, throughput of the units",
    build: |options, rng| Box::new(Electronic::with_queues(options, Nvme::new(options, rng))),
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::number("queue_depth", 1023, (1, 65_535), "Commands each queue accepts. Source: Linux driver."),
    OptionSpec::number(
        "nr_queues",
        8,
        (1, 1024),
        "Queues for commands, of which a driver uses one for each processor. Source: assumed, 8 to 128 are usual.",
    ),
    OptionSpec::number("nr_sectors", 1_953_525_168, (1 << 20, 1 << 40), "Capacity. Source: IDEMA formula for 1 TB."),
    OptionSpec::number(
        "overhead_us",
        15,
        (0, 10_000),
        "Doorbell to flash and flash to interrupt. Source: guess for the class, 10 to 20 us.",
    ),
    OptionSpec::number("read_us", 80, (0, 100_000), "Read of a flash unit. Source: guess for TLC, 70 to 90 us."),
    OptionSpec::number(
        "write_us",
        10,
        (0, 100_000),
        "A write into the buffer, besides the overhead. Source: assumed, 20 to 30 us in all.",
    ),
    OptionSpec::number("spread_percent", 10, (0, 90), "Spread of read_us either way. Source: assumed."),
    OptionSpec::number(
        "units",
        64,
        (1, 4096),
        "Flash units working side by side. Source: 8 channels of 8 dies, assumed.",
    ),
    OptionSpec::number("stripe_kb", 16, (4, 1024), "Neighbouring data on one unit. Source: assumed."),
    OptionSpec::number(
        "link_rate_kb_s",
        3_200_000,
        (1_000, 100_000_000),
        "Rate of the link, 1000 bytes/s. Source: guess for PCIe 3.0 x4, 3 GB/s and more.",
    ),
    OptionSpec::number(
        "write_rate_kb_s",
        1_500_000,
        (1_000, 100_000_000),
        "Sustained programming, 1000 bytes/s. Source: assumed.",
    ),
    OptionSpec::number("write_buffer_kb", 65_536, (64, 16_777_216), "Buffer for writes. Source: assumed."),
];

/// An NVMe drive.
#[derive(Clone, Debug)]
struct Nvme {
    overhead: u64,
    read: Spread,
    write: u64,
    stripe_sectors: u64,
    /// By the sectors of a stripe, and by the number of units.
    stripes: Divisor,
    modulo_units: Divisor,
    link_rate: Rate,
    write_rate: Rate,
    /// How long the full buffer takes to be programmed.
    buffer_time: u64,
    units: Vec<u64>,
    link_free: u64,
    programmed: u64,
    rng: Rng,
    stats: DeviceStats,
}

impl Nvme {
    fn new(options: &Options, rng: Rng) -> Nvme {
        let us = |name: &str| Nanos::from_us(options.unsigned(name));
        let write_rate = options.unsigned("write_rate_kb_s");
        let stripe_sectors = options.unsigned("stripe_kb") * 2;
        let nr_units = options.unsigned("units");
        Nvme {
            overhead: us("overhead_us").0,
            read: Spread::new(us("read_us"), options.unsigned("spread_percent")),
            write: us("write_us").0,
            stripe_sectors,
            stripes: Divisor::new(stripe_sectors),
            modulo_units: Divisor::new(nr_units),
            link_rate: Rate::new(options.unsigned("link_rate_kb_s")),
            write_rate: Rate::new(write_rate),
            buffer_time: transfer(options.unsigned("write_buffer_kb") * 2, write_rate),
            units: vec![0; nr_units as usize],
            link_free: 0,
            programmed: 0,
            rng,
            stats: DeviceStats::default(),
        }
    }

    /// When the flash has delivered all of a read that starts at `start`.
    #[inline]
    fn read_flash(&mut self, start: u64, command: &Command) -> u64 {
        let (first, _) = self.stripes.divide(command.sector.0);
        // The next stripe's first sector; most commands end before it.
        let mut boundary = (first + 1) * self.stripe_sectors;
        let end = command.sector.0 + u64::from(command.nr_sectors);
        let mut unit = self.modulo_units.divide(first).1 as usize;
        let mut ready = start;
        loop {
            let free = &mut self.units[unit];
            *free = start.max(*free) + self.read.draw(&mut self.rng);
            ready = ready.max(*free);
            if end <= boundary {
                return ready;
            }
            boundary += self.stripe_sectors;
            unit = if unit + 1 == self.units.len() { 0 } else { unit + 1 };
        }
    }
}

impl Timing for Nvme {
    #[inline]
    fn time(&mut self, now: Nanos, command: &Command) -> (u64, bool) {
        let mut start = now.0 + self.overhead;
        let mut media = false;
        if command.flush {
            media = self.programmed > start;
            start = start.max(self.programmed);
        }
        let mut done = start;
        if command.nr_sectors > 0 {
            let sent = self.link_rate.time(command.nr_sectors);
            self.link_free = self.link_free.max(start) + sent;
            done = match command.dir {
                Dir::Read => {
                    media = true;
                    self.read_flash(start, command) + sent
                }
                Dir::Write => {
                    let program = self.write_rate.time(command.nr_sectors);
                    self.programmed = self.programmed.max(start) + program;
                    media |= command.fua;
                    let room = self.programmed.saturating_sub(self.buffer_time);
                    let stored = (start + self.write).max(room);
                    if command.fua { stored.max(self.programmed) } else { stored }
                }
            };
            done = done.max(self.link_free);
            self.stats.busy += Nanos(sent);
        }
        self.stats.media_accesses += u64::from(media);
        (done, media)
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::{build, flush, read, run, write};

    #[test]
    fn one_small_read_takes_overhead_flash_and_link() {
        let mut device = build(&ENTRY, &[("spread_percent", 0)]);
        let (done, completion) = run(&mut *device, Nanos::ZERO, read(1, 800, 8));
        // 15 + 80 us, and 4 KB at 3.2 GB/s.
        assert_eq!((done, completion.media), (Nanos(95_000 + 1_280), true));
    }

    #[test]
    fn every_queue_has_its_own_depth() {
        let mut device = build(&ENTRY, &[("queue_depth", 4), ("nr_queues", 3)]);
        assert_eq!((device.queue_depth(), device.nr_hw_queues()), (4, 3));
        for i in 0..12u32 {
            device.submit(Nanos::ZERO, read(i, u64::from(i) * 8, 8));
        }
        let over =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| device.submit(Nanos::ZERO, read(12, 0, 8))));
        assert!(over.is_err(), "a thirteenth command has no place");
    }

    #[test]
    fn a_large_read_uses_all_units_and_then_the_link_limits() {
        let mut device = build(&ENTRY, &[]);
        let mut last = Nanos::ZERO;
        for i in 0..64u32 {
            device.submit(Nanos::ZERO, read(i, u64::from(i) * 2048, 2048));
        }
        while let Some(at) = device.next() {
            device.advance(at);
            last = at;
        }
        let limit = (64u64 << 20) * 1_000_000 / 3_200_000;
        assert!((limit..limit + limit / 50).contains(&last.0), "{last}");
    }

    #[test]
    fn writes_are_buffered_until_the_buffer_is_full_and_a_flush_waits_for_them() {
        let options = [("write_buffer_kb", 1024), ("write_rate_kb_s", 1_048_576)];
        let mut device = build(&ENTRY, &options);
        let (first, _) = run(&mut *device, Nanos::ZERO, write(1, 0, 8));
        assert_eq!(first, Nanos::from_us(25));
        let mut now = first;
        for i in 0..64 {
            now = run(&mut *device, now, write(2, i * 1024, 1024)).0;
        }
        // 32 MiB take 32 ms, and the last of them is still in the buffer.
        assert!((31_000_000..31_100_000).contains(&now.0), "{now}");
        let (flushed, completion) = run(&mut *device, now, flush(3));
        assert!(completion.media && (900_000..1_100_000).contains(&(flushed - now).0), "{}", flushed - now);
        let (again, completion) = run(&mut *device, flushed, flush(4));
        assert_eq!((again - flushed, completion.media), (Nanos::from_us(15), false));
    }
}
