//! A device every command of which takes the same time.
//!
//! It has `servers` servers; a command goes to the one that is free first and keeps it for `service_us`, whatever its
//! length and place. Source: a textbook queue with constant service (D/D/c); nothing is imitated. For measuring how
//! well something that serves models in real time keeps their times, and for arithmetic that can be done by hand. Known
//! deviations: no real device is like this.

use crate::device::completions::{Electronic, Timing};
use crate::device::{Build, Command, DeviceStats};
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::units::Nanos;

/// The table entry.
pub const ENTRY: Entry<Build> = Entry {
    name: "fixed",
    summary: "every command takes the same time, 1 ms: to measure with, not a drive",
    origin: &[Origin {
        kernels: "any",
        file: "none",
        function: "a queue with constant service",
        notes: "For checks of whatever serves models in real time.",
    }],
    options: OPTIONS,
    conformance: "its own test: times by hand",
    build: |options, _rng| Box::new(Electronic::new(options, Fixed::new(options))),
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::number("queue_depth", 32, (1, 1024), "Commands accepted at once. Source: choice of the model."),
    OptionSpec::number("nr_sectors", 1 << 26, (1, 1 << 40), "Capacity. Source: choice of the model, 32 GiB."),
    OptionSpec::number("service_us", 1000, (0, 10_000_000), "Time of a command. Source: choice of the model."),
    OptionSpec::number("servers", 1, (1, 1024), "Commands served side by side. Source: choice of the model."),
];

/// A device with constant service.
#[derive(Clone, Debug)]
struct Fixed {
    service: u64,
    /// When each server is free.
    free: Vec<u64>,
    stats: DeviceStats,
}

impl Fixed {
    fn new(options: &Options) -> Fixed {
        Fixed {
            service: Nanos::from_us(options.unsigned("service_us")).0,
            free: vec![0; options.unsigned("servers") as usize],
            stats: DeviceStats::default(),
        }
    }
}

impl Timing for Fixed {
    fn time(&mut self, now: Nanos, _command: &Command) -> (u64, bool) {
        let Some(free) = self.free.iter_mut().min() else { unreachable!("there is at least one server") };
        *free = now.0.max(*free) + self.service;
        self.stats.media_accesses += 1;
        self.stats.busy += Nanos(self.service);
        (*free, true)
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
    fn commands_wait_for_a_server_and_then_take_their_time() {
        let mut device = build(&ENTRY, &[("service_us", 8000)]);
        assert_eq!(run(&mut *device, Nanos::ZERO, read(1, 0, 8)).0, Nanos::from_ms(8));
        assert_eq!(run(&mut *device, Nanos::from_ms(20), write(1, 1 << 20, 2048)).0, Nanos::from_ms(28));
        assert_eq!(run(&mut *device, Nanos::from_ms(28), flush(1)).0, Nanos::from_ms(36));
        for (servers, expected) in [(1, [1, 2, 3]), (2, [1, 1, 2]), (3, [1, 1, 1])] {
            let mut device = build(&ENTRY, &[("servers", servers)]);
            (0..3).for_each(|tag| device.submit(Nanos::ZERO, read(tag, 0, 8)));
            for ms in expected {
                assert_eq!(device.next(), Some(Nanos::from_ms(ms)));
                assert!(device.advance(Nanos::from_ms(ms)).is_some());
            }
        }
    }
}
