//! A device that costs nothing: every command is done at the moment it is given. Writes are discarded and reads give
//! zeroes.
//!
//! For dm-zero, and for measuring what the layers above cost by themselves. It takes bios and so has `bio_based` set:
//! neither request queue nor elevator, no tags, and no statistics of requests; the cost of a bio is processor time and
//! belongs to the machine. Source: drivers/md/dm-zero.c, which ends a bio as it maps it. Known deviations: dm-zero has
//! no depth; here it is merely large, for callers that bring requests anyway.

use std::collections::VecDeque;

use crate::device::{Build, Command, Completion, Device, DeviceStats};
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::units::Nanos;

/// The table entry.
pub const ENTRY: Entry<Build> = Entry {
    name: "zero",
    summary: "answers at once: dm-zero, or the cost of everything but the device",
    origin: &[Origin {
        kernels: "2.6 .. 6.x",
        file: "drivers/md/dm-zero.c",
        function: "zero_map",
        notes: "The time of the submitting processor is not the device's.",
    }],
    options: OPTIONS,
    conformance: "its own test: every completion carries the time of its submission",
    build: |options, _rng| Box::new(Zero::new(options)),
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::number(
        "queue_depth",
        4096,
        (1, 65_536),
        "Commands accepted at once. Source: choice of the model, large enough never to be reached.",
    ),
    OptionSpec::number(
        "nr_sectors",
        1 << 32,
        (1, 1 << 50),
        "Capacity. Source: choice of the model, 2 TiB; a table of dm-zero may have any.",
    ),
];

/// A device that costs nothing.
#[derive(Clone, Debug)]
struct Zero {
    queue_depth: u32,
    nr_sectors: u64,
    done: VecDeque<(Nanos, u32)>,
}

impl Zero {
    fn new(options: &Options) -> Zero {
        let queue_depth = options.unsigned("queue_depth") as u32;
        Zero {
            queue_depth,
            nr_sectors: options.unsigned("nr_sectors"),
            done: VecDeque::with_capacity(queue_depth.min(1024) as usize),
        }
    }
}

impl Device for Zero {
    fn queue_depth(&self) -> u32 {
        self.queue_depth
    }

    fn bio_based(&self) -> bool {
        true
    }

    fn nr_sectors(&self) -> u64 {
        self.nr_sectors
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        assert!(self.done.len() < self.queue_depth as usize, "the device takes {} commands", self.queue_depth);
        assert!(command.sector.0 + u64::from(command.nr_sectors) <= self.nr_sectors);
        self.done.push_back((now, command.tag));
    }

    fn next(&self) -> Option<Nanos> {
        self.done.front().map(|&(at, _)| at)
    }

    fn advance(&mut self, now: Nanos) -> Option<Completion> {
        let (_, tag) = self.done.pop_front_if(|(at, _)| *at <= now)?;
        Some(Completion { tag, media: false, seek: Nanos::ZERO, rotation: Nanos::ZERO })
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }

    fn rotational(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::{read, write};
    use crate::rng::Rng;

    #[test]
    fn every_command_is_done_the_moment_it_is_given() {
        let mut device = (ENTRY.build)(&ENTRY.defaults(), Rng::stream(1, "device"));
        let now = Nanos::from_us(7);
        device.submit(now, read(1, 8, 4096));
        device.submit(now, write(2, 1 << 30, 8));
        assert_eq!(device.next(), Some(now));
        assert_eq!(device.advance(Nanos::from_us(6)), None);
        let tags = [device.advance(now).map(|done| done.tag), device.advance(now).map(|done| done.tag)];
        assert_eq!((tags, device.next()), ([Some(1), Some(2)], None));
    }
}
