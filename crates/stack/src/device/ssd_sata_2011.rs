//! A SATA solid-state drive of 2011 (Samsung 830 class) on a 3 Gb/s link.
//!
//! Data is striped by flash page over channels and the dies on them. A read costs an overhead, senses its pages on
//! their dies and moves them over their channels; all data shares the link: the slower of link and slowest channel
//! counts. Sectors read in sequence are sensed in advance. A write is done once the buffer has it; whole pages are
//! programmed on the dies in turn, and a write waits while the buffer is full. A read waits for the program in
//! progress on its die, not for those behind it. After a time without commands the drive or its link may doze off;
//! waking costs the next command.
//!
//! The resulting rate of a sequential reader: two requests of 128 KiB in flight keep the link busy, 250 MB/s. One of
//! 256 KiB at a time, 0.27 ms of copying between two, costs 1.05 ms of link, 0.1 ms of overhead and sensing and the
//! gap: 1.4 ms, 0.7 of that. If each gap also costs an exit from idle of 4 to 9 ms (`idle_threshold_us=200
//! idle_exit_us=4000` to `9000`) it is 5.4 to 10.4 ms, 0.2 to 0.1: the 49 and 25 to 50 MB/s that were published.
//!
//! Source: the thread "Bad SSD performance with recent kernels" (2012) for the link (248-251 MB/s with dd); flash
//! organisation and times are guesses for the period, and no data sheet was consulted. Known deviations: no garbage
//! collection; buffered data is not read from the buffer; one sequential stream is followed; the doze is off by
//! default because no source gives its times.

use crate::device::completions::{Electronic, Timing, transfer};
use crate::device::{Build, Command, DeviceStats};
use crate::event::Dir;
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::units::Nanos;

/// The table entry.
pub const ENTRY: Entry<Build> = Entry {
    name: "ssd-sata-2011",
    summary: "SATA solid-state drive of 2011 (Samsung 830 class) on a 3 Gb/s link",
    origin: &[Origin {
        kernels: "2011 .. 2012",
        file: "LKML 2012-01-27",
        function: "dd of the thread \"Bad SSD performance with recent kernels\"",
        notes: "Flash organisation and times are guesses for the period; no data sheet was consulted.",
    }],
    options: OPTIONS,
    conformance: "its own tests: one small read, rate of the link, sustained programming, waking",
    build: |options, _rng| Box::new(Electronic::new(options, Ssd::new(options))),
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::number("queue_depth", 32, (1, 256), "Commands accepted at once. Source: NCQ."),
    OptionSpec::number("nr_sectors", 500_118_192, (1 << 20, 1 << 40), "Capacity. Source: IDEMA formula for 256 GB."),
    OptionSpec::number("channels", 8, (1, 64), "Flash channels. Source: assumed."),
    OptionSpec::number("dies", 4, (1, 64), "Dies on each channel. Source: assumed."),
    OptionSpec::number("page_kb", 8, (1, 64), "Flash page, also the stripe. Source: assumed."),
    OptionSpec::number("read_us", 60, (0, 10_000), "Sensing a page. Source: assumed."),
    OptionSpec::number("page_transfer_us", 40, (0, 10_000), "A page over its channel. Source: assumed."),
    OptionSpec::number("program_us", 1_300, (1, 100_000), "Programming a page. Source: assumed."),
    OptionSpec::number(
        "link_rate_kb_s",
        252_000,
        (1_000, 10_000_000),
        "Rate of the link, 1000 bytes/s. Source: 248 to 251 MB/s with dd on a SATA 3 Gb/s link (270 to 280 at best).",
    ),
    OptionSpec::number("overhead_us", 30, (0, 10_000), "Before a command. Source: assumed, 20 to 40 us."),
    OptionSpec::number(
        "prefetch_kb",
        256,
        (0, 65_536),
        "Sensed ahead of a sequential reader; 0: none. Source: assumed.",
    ),
    OptionSpec::number("write_buffer_kb", 4_096, (64, 1_048_576), "Buffer for writes. Source: assumed."),
    OptionSpec::number(
        "idle_threshold_us",
        0,
        (0, 60_000_000),
        "Quiet time after which the drive dozes; 0: never. Source: none known, an open question of the 2012 thread.",
    ),
    OptionSpec::number(
        "idle_exit_us",
        0,
        (0, 1_000_000),
        "Waking up. Source: none known; SATA slumber is below 10 ms.",
    ),
];

/// A SATA solid-state drive.
#[derive(Clone, Debug)]
struct Ssd {
    nr_sectors: u64,
    page_sectors: u64,
    read: u64,
    page_transfer: u64,
    program: u64,
    link_rate: u64,
    overhead: u64,
    idle_threshold: u64,
    idle_exit: u64,
    /// When each die has done its reads.
    sensed: Vec<u64>,
    /// When each die has done its programs.
    programmed: Vec<u64>,
    channels: Vec<u64>,
    link_free: u64,
    /// Behind the last sector read: a read from here is sequential.
    sequential: u64,
    /// Pages sensed in advance, and when each is ready (by page number modulo the length).
    prefetched: std::ops::Range<u64>,
    prefetch_ready: Vec<u64>,
    /// When each page of the write buffer becomes free, oldest first, as a ring.
    buffer: Vec<u64>,
    /// Pages written so far.
    nr_written: u64,
    /// Sectors in the page that is being filled.
    open_sectors: u64,
    last_done: u64,
    stats: DeviceStats,
}

impl Ssd {
    fn new(options: &Options) -> Ssd {
        let us = |name: &str| Nanos::from_us(options.unsigned(name)).0;
        let pages = |name: &str| (options.unsigned(name) / options.unsigned("page_kb")) as usize;
        let channels = options.unsigned("channels") as usize;
        let dies = channels * options.unsigned("dies") as usize;
        Ssd {
            nr_sectors: options.unsigned("nr_sectors"),
            page_sectors: options.unsigned("page_kb") * 2,
            read: us("read_us"),
            page_transfer: us("page_transfer_us"),
            program: us("program_us"),
            link_rate: options.unsigned("link_rate_kb_s"),
            overhead: us("overhead_us"),
            idle_threshold: us("idle_threshold_us"),
            idle_exit: us("idle_exit_us"),
            sensed: vec![0; dies],
            programmed: vec![0; dies],
            channels: vec![0; channels],
            link_free: 0,
            sequential: u64::MAX,
            prefetched: 0..0,
            prefetch_ready: vec![0; pages("prefetch_kb")],
            buffer: vec![0; pages("write_buffer_kb").max(1)],
            nr_written: 0,
            open_sectors: 0,
            last_done: 0,
            stats: DeviceStats::default(),
        }
    }

    /// When `nr_sectors` of flash page `page`, asked for at `start`, have left the flash.
    fn read_page(&mut self, start: u64, page: u64, nr_sectors: u64) -> u64 {
        let die = (page % self.sensed.len() as u64) as usize;
        let channel = (page % self.channels.len() as u64) as usize;
        let mut from = start.max(self.sensed[die]);
        if self.programmed[die] > from {
            // Programs are queued back to back: only the one in progress must end first, the others move back.
            from += (self.programmed[die] - from - 1) % self.program + 1;
            if self.programmed[die] > from {
                self.programmed[die] += self.read;
            }
        }
        self.sensed[die] = from + self.read;
        let move_time = self.page_transfer * nr_sectors / self.page_sectors;
        self.channels[channel] = self.channels[channel].max(from + self.read) + move_time;
        self.stats.busy += Nanos(move_time);
        self.channels[channel]
    }

    /// When the flash has delivered the read `command`; whether it was needed at all.
    fn read_flash(&mut self, start: u64, command: &Command) -> (u64, bool) {
        let (from, to) = (command.sector.0, command.sector.0 + u64::from(command.nr_sectors));
        let (first, behind) = (from / self.page_sectors, to.div_ceil(self.page_sectors));
        let (mut ready, mut needed) = (start, false);
        for page in first..behind {
            let at = if self.prefetched.contains(&page) {
                self.prefetch_ready[(page % self.prefetch_ready.len() as u64) as usize]
            } else {
                needed = true;
                let begin = from.max(page * self.page_sectors);
                let end = to.min((page + 1) * self.page_sectors);
                self.read_page(start, page, end - begin)
            };
            ready = ready.max(at);
        }
        let reach = self.prefetch_ready.len() as u64;
        if from == self.sequential && reach > 0 {
            // The page that the read ends in may be wanted again.
            let keep = to / self.page_sectors;
            let last = self.nr_sectors / self.page_sectors;
            let next = if self.prefetched.contains(&keep) { self.prefetched.end } else { keep };
            for page in next..(keep + reach).min(last) {
                let at = self.read_page(start, page, self.page_sectors);
                self.prefetch_ready[(page % reach) as usize] = at;
            }
            self.prefetched = keep..(keep + reach).min(last).max(next);
        }
        self.sequential = to;
        (ready, needed)
    }

    /// Puts a page into the buffer at `at` or when there is room, and programs it; when it was stored, and programmed.
    fn write_page(&mut self, at: u64) -> (u64, u64) {
        let slot = (self.nr_written % self.buffer.len() as u64) as usize;
        let die = (self.nr_written % self.programmed.len() as u64) as usize;
        let stored = at.max(self.buffer[slot]);
        let from = stored.max(self.programmed[die]).max(self.sensed[die]);
        self.programmed[die] = from + self.program;
        self.buffer[slot] = self.programmed[die];
        self.nr_written += 1;
        self.stats.destages += 1;
        (stored, self.programmed[die])
    }

    /// Stores `nr_sectors` that have arrived by `at`; all of them are on flash at the second time if `force` is set.
    fn write(&mut self, at: u64, nr_sectors: u64, force: bool) -> (u64, u64) {
        let (mut stored, mut programmed) = (at, at);
        self.open_sectors += nr_sectors;
        while self.open_sectors >= self.page_sectors || (force && self.open_sectors > 0) {
            self.open_sectors = self.open_sectors.saturating_sub(self.page_sectors);
            let (in_buffer, on_flash) = self.write_page(at);
            stored = stored.max(in_buffer);
            programmed = programmed.max(on_flash);
        }
        (stored, programmed)
    }
}

impl Timing for Ssd {
    fn time(&mut self, now: Nanos, command: &Command) -> (u64, bool) {
        let mut start = now.0 + self.overhead;
        if self.idle_threshold > 0 && now.0 >= self.last_done + self.idle_threshold {
            start += self.idle_exit;
        }
        let mut media = false;
        if command.flush {
            let (_, forced) = self.write(start, 0, true);
            let done = self.programmed.iter().fold(forced, |done, &at| done.max(at));
            media = done > start;
            start = done;
        }
        let mut done = start;
        if command.nr_sectors > 0 {
            self.link_free = self.link_free.max(start) + transfer(u64::from(command.nr_sectors), self.link_rate);
            done = self.link_free;
            if command.dir == Dir::Read {
                let (ready, needed) = self.read_flash(start, command);
                media = needed;
                done = done.max(ready);
                self.stats.media_accesses += u64::from(needed);
                self.stats.cache_hits += u64::from(!needed);
            } else {
                let (stored, programmed) = self.write(done, u64::from(command.nr_sectors), command.fua);
                media |= command.fua;
                done = if command.fua { stored.max(programmed) } else { stored };
            }
        }
        self.last_done = self.last_done.max(done);
        (done, media)
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::{build, closed_loop, flush, read, run, write};

    #[test]
    fn one_small_read_takes_overhead_sensing_and_channel() {
        let mut device = build(&ENTRY, &[]);
        // 30 + 60 us, and half a page over the channel.
        assert_eq!(run(&mut *device, Nanos::ZERO, read(1, 1600, 8)).0, Nanos::from_us(110));
    }

    #[test]
    fn two_windows_in_flight_reach_the_link_and_small_sequential_reads_hit_the_prefetch() {
        let mut device = build(&ENTRY, &[]);
        let done = closed_loop(&mut *device, 2, 1_000, |i| read(0, i * 256, 256));
        let rate = 1_000 * 131_072 * 1_000_000 / done[999].0;
        assert!((245_000..=252_000).contains(&rate), "{rate} kB/s");
        let mut device = build(&ENTRY, &[]);
        closed_loop(&mut *device, 1, 1_000, |i| read(0, i * 8, 8));
        assert!(device.stats().cache_hits > 900, "{:?}", device.stats());
        let mut device = build(&ENTRY, &[("prefetch_kb", 0)]);
        closed_loop(&mut *device, 1, 1_000, |i| read(0, i * 8, 8));
        assert_eq!(device.stats().cache_hits, 0);
    }

    #[test]
    fn writes_run_at_the_link_until_the_buffer_is_full_and_then_as_fast_as_the_dies() {
        let mut device = build(&ENTRY, &[]);
        let done = closed_loop(&mut *device, 4, 2_000, |i| write(0, i * 256, 256));
        // 8 x 4 dies program 8 KB in 1.3 ms each.
        let programming = 32 * 8_192 * 1_000 / 1_300;
        let sustained = 1_000 * 131_072 * 1_000_000 / (done[1_999] - done[999]).0;
        assert!(sustained.abs_diff(programming) < programming / 50, "{sustained} against {programming} kB/s");
        let start = 16 * 131_072 * 1_000_000 / done[15].0;
        assert!(start > 235_000, "{start} kB/s");
        let (flushed, completion) = run(&mut *device, done[1_999], flush(1));
        assert!(completion.media && flushed > done[1_999] + Nanos::from_ms(10));
    }

    #[test]
    fn one_window_at_a_time_costs_a_third_and_dozing_in_between_nearly_all() {
        // One request of 256 KiB at a time with 0.27 ms between two: its rate in per mille of two of 128 KiB.
        let relative = |options: &[(&str, i64)]| {
            let mut device = build(&ENTRY, options);
            let whole = closed_loop(&mut *device, 2, 1_000, |i| read(0, i * 256, 256))[999].0 * 2;
            let mut device = build(&ENTRY, options);
            let mut now = Nanos::ZERO;
            for i in 0..1_000 {
                now = run(&mut *device, now + Nanos::from_us(270), read(1, i * 512, 512)).0;
            }
            whole * 1_000 / now.0
        };
        for (exit_us, expected) in [(0, 700..800), (4_000, 170..210), (9_000, 90..110)] {
            let measured = relative(&[("idle_threshold_us", 200), ("idle_exit_us", exit_us)]);
            assert!(expected.contains(&measured), "exit of {exit_us} us: {measured}");
        }
        // Two in flight never doze, and gaps below the threshold cost nothing more.
        assert_eq!(relative(&[("idle_threshold_us", 300), ("idle_exit_us", 9_000)]), relative(&[]));
    }

    #[test]
    fn dozing_costs_the_first_command_after_a_quiet_time() {
        let mut device = build(&ENTRY, &[("idle_threshold_us", 200), ("idle_exit_us", 4_000)]);
        let (first, _) = run(&mut *device, Nanos::from_us(10), read(1, 1600, 8));
        let soon = first + Nanos::from_us(100);
        let (second, _) = run(&mut *device, soon, read(1, 16_000, 8));
        let late = second + Nanos::from_us(200);
        let (third, _) = run(&mut *device, late, read(1, 160_000, 8));
        assert_eq!([second - soon, third - late], [Nanos::from_us(110), Nanos::from_us(4_110)]);
    }
}
