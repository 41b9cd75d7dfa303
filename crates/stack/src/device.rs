//! Devices: how long a command takes.
//!
//! A device is a state machine with a clock of its own: it is given commands, returns the time of its next change, and
//! is woken then. It orders the commands it has accepted as it likes; between flushes no order is promised, as with
//! real drives.

mod completions;
mod disk;
pub mod drive;
mod drive_options;
pub mod fixed;
pub mod ide_2004;
pub mod ide_2004_tcq;
pub mod measured;
pub mod nvme;
pub mod sas_2010;
pub mod sata_2010;
pub mod sata_2014;
pub mod ssd_sata_2011;
#[cfg(test)]
mod studies;
pub mod virtio;
mod write_slots;
pub mod zero;

use crate::event::Dir;
use crate::origin::{Entry, Options};
use crate::rng::Rng;
use crate::units::{Nanos, Sector};

/// A command for a device.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Returned in the completion; unique among the commands outstanding.
    pub tag: u32,
    /// First sector.
    pub sector: Sector,
    /// Length in sectors; 0 for a pure flush.
    pub nr_sectors: u32,
    /// Direction.
    pub dir: Dir,
    /// Empty the volatile cache before this command is carried out.
    pub flush: bool,
    /// The data must be on stable media at completion (force unit access).
    pub fua: bool,
}

/// A command done, and what it cost inside.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The command's tag.
    pub tag: u32,
    /// Whether the mechanism (or flash) was needed or waited for; false if the drive's cache answered at once.
    pub media: bool,
    /// Time the arm moved for it, settling included.
    pub seek: Nanos,
    /// Time spent waiting for its sector to come round.
    pub rotation: Nanos,
}

/// Counters of a device since the start of the run.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Accesses to the medium on behalf of commands.
    pub media_accesses: u64,
    /// Accesses to the medium to empty the write cache.
    pub destages: u64,
    /// Read commands answered from data read ahead or cached.
    pub cache_hits: u64,
    /// Total time the arm moved.
    pub seek: Nanos,
    /// Total time waiting for sectors.
    pub rotation: Nanos,
    /// Total time the mechanism (or the busiest flash channel) worked.
    pub busy: Nanos,
}

/// The rules of one device.
pub trait Device: Send {
    /// Commands each of its queues takes at once; the driver never exceeds this.
    fn queue_depth(&self) -> u32;

    /// Queues through which a driver may give it commands. A driver uses no more than there are processors.
    fn nr_hw_queues(&self) -> u32 {
        1
    }

    /// Whether it takes bios as they come: no request queue, no elevator, no tags, no statistics of requests. Then
    /// the depth is only what the device has room for.
    fn bio_based(&self) -> bool {
        false
    }

    /// Capacity in sectors. Commands beyond it are never sent.
    fn nr_sectors(&self) -> u64;

    /// Takes a command at `now`.
    fn submit(&mut self, now: Nanos, command: Command);

    /// When something next happens inside, if anything will. Asked after every `submit` and `advance`. Not every such
    /// time brings a completion.
    fn next(&self) -> Option<Nanos>;

    /// Time is now `now`: the next command that is done, if any. Called again until it returns `None`.
    fn advance(&mut self, now: Nanos) -> Option<Completion>;

    /// `submit`, then `next`, in one call: this is what a queue does for every command.
    fn submit_and_look(&mut self, now: Nanos, command: Command) -> Option<Nanos> {
        self.submit(now, command);
        self.next()
    }

    /// `advance` until there is nothing more, then `next`, in one call. Appends completed commands to `done`.
    fn advance_all(&mut self, now: Nanos, done: &mut Vec<Completion>) -> Option<Nanos> {
        while let Some(completion) = self.advance(now) {
            done.push(completion);
        }
        self.next()
    }

    /// Counters so far.
    fn stats(&self) -> DeviceStats;

    /// Whether seeks cost time (`rotational` in sysfs).
    fn rotational(&self) -> bool;
}

/// Makes a device; `rng` is the device's own stream.
pub type Build = fn(&Options, Rng) -> Box<dyn Device>;

/// Every device.
pub const DEVICES: &[&Entry<Build>] = &[
    &ide_2004::ENTRY,
    &ide_2004_tcq::ENTRY,
    &sata_2010::ENTRY,
    &sas_2010::ENTRY,
    &sata_2014::ENTRY,
    &ssd_sata_2011::ENTRY,
    &nvme::ENTRY,
    &virtio::ENTRY,
    &zero::ENTRY,
    &fixed::ENTRY,
    &drive::ENTRY,
    &measured::ENTRY,
];

/// Shared code of the tests of all devices.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::units::Sector;

    pub(crate) fn read(tag: u32, sector: u64, nr_sectors: u32) -> Command {
        Command { tag, sector: Sector(sector), nr_sectors, dir: Dir::Read, flush: false, fua: false }
    }

    pub(crate) fn write(tag: u32, sector: u64, nr_sectors: u32) -> Command {
        Command { dir: Dir::Write, ..read(tag, sector, nr_sectors) }
    }

    /// A pure flush.
    pub(crate) fn flush(tag: u32) -> Command {
        Command { flush: true, ..write(tag, 0, 0) }
    }

    /// A device with some tunables set.
    pub(crate) fn build(entry: &Entry<Build>, options: &[(&str, i64)]) -> Box<dyn Device> {
        let mut values = entry.defaults();
        for (name, value) in options {
            values.set(name, *value);
        }
        (entry.build)(&values, Rng::stream(1, "device"))
    }

    /// The next completion and its time.
    pub(crate) fn wait(device: &mut dyn Device) -> Option<(Nanos, Completion)> {
        while let Some(at) = device.next() {
            if let Some(completion) = device.advance(at) {
                return Some((at, completion));
            }
        }
        None
    }

    /// The same where there must be one.
    pub(crate) fn done(device: &mut dyn Device) -> (Nanos, Completion) {
        let Some(done) = wait(device) else { panic!("no command is in flight") };
        done
    }

    /// One command by itself: when it is done, and how.
    pub(crate) fn run(device: &mut dyn Device, now: Nanos, command: Command) -> (Nanos, Completion) {
        device.submit(now, command);
        let (at, completion) = done(device);
        assert_eq!(completion.tag, command.tag);
        (at, completion)
    }

    /// Runs `nr_commands`, always `depth` at once; their times of completion.
    pub(crate) fn closed_loop(
        device: &mut dyn Device,
        depth: u64,
        nr_commands: u64,
        command: impl Fn(u64) -> Command,
    ) -> Vec<Nanos> {
        let mut done = Vec::new();
        for i in 0..depth.min(nr_commands) {
            device.submit(Nanos::ZERO, Command { tag: i as u32, ..command(i) });
        }
        let mut given = depth.min(nr_commands);
        while let Some((at, completion)) = wait(device) {
            done.push(at);
            if given < nr_commands {
                device.submit(at, Command { tag: completion.tag, ..command(given) });
                given += 1;
            }
        }
        assert_eq!(done.len() as u64, nr_commands);
        done
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::testing::*;
    use super::*;
    use crate::rng::Rng;
    use crate::units::Sector;

    /// One step of a random load: wait, then give this command (as soon as there is room).
    #[derive(Clone, Debug)]
    struct Step {
        gap_us: u64,
        near: bool,
        place: u64,
        nr_sectors: u32,
        kind: u8,
    }

    fn step() -> impl Strategy<Value = Step> {
        let gap = prop_oneof![3 => Just(0u64), 2 => 1u64..300, 1 => 300u64..20_000];
        let size = prop_oneof![4 => Just(8u32), 2 => 1u32..256, 1 => 256u32..4096];
        (gap, any::<bool>(), any::<u64>(), size, 0u8..16).prop_map(|(gap_us, near, place, nr_sectors, kind)| Step {
            gap_us,
            near,
            place,
            nr_sectors,
            kind,
        })
    }

    /// Plays `steps`; with `poll`, also asks between the events. Checks order of time, tags and depth on the way.
    fn play(device: &mut dyn Device, steps: &[Step], poll: bool) -> Vec<(Nanos, Completion)> {
        let mut now = Nanos::ZERO;
        let mut outstanding = BTreeSet::new();
        let mut log: Vec<(Nanos, Completion)> = Vec::new();
        let mut until =
            |device: &mut dyn Device, outstanding: &mut BTreeSet<u32>, from: Nanos, to: Option<Nanos>, one| {
                let mut now = from;
                while let Some(at) = device.next().filter(|at| to.is_none_or(|to| *at <= to)) {
                    assert!(at >= now, "time went back from {now} to {at}");
                    if poll && at > now {
                        assert_eq!(device.advance(Nanos((at.0 - 1).max(now.0))), None, "nothing happens before next()");
                    }
                    now = at;
                    while let Some(completion) = device.advance(now) {
                        assert!(outstanding.remove(&completion.tag), "tag {} was not outstanding", completion.tag);
                        log.push((now, completion));
                        if one {
                            return now;
                        }
                    }
                }
                to.unwrap_or(now)
            };
        for (tag, step) in steps.iter().enumerate() {
            let target = now + Nanos::from_us(step.gap_us);
            now = until(device, &mut outstanding, now, Some(target), false);
            while outstanding.len() >= device.queue_depth().min(40) as usize {
                now = until(device, &mut outstanding, now, None, true);
            }
            // Events of this very moment come first, with or without polling.
            now = until(device, &mut outstanding, now, Some(now), false);
            let range = if step.near { 4_096 } else { device.nr_sectors() - 4_096 };
            let (sector, nr_sectors) = (step.place % range, step.nr_sectors);
            let command = match step.kind {
                0 => flush(0),
                1 => Command { fua: true, ..write(0, sector, nr_sectors) },
                2 => Command { flush: true, ..write(0, sector, nr_sectors) },
                3 => Command { flush: true, ..read(0, sector, nr_sectors) },
                4..=8 => write(0, sector, nr_sectors),
                _ => read(0, sector, nr_sectors),
            };
            outstanding.insert(tag as u32);
            device.submit(now, Command { tag: tag as u32, ..command });
        }
        until(device, &mut outstanding, now, None, false);
        assert!(outstanding.is_empty(), "never completed: {outstanding:?}");
        log
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn every_command_completes_once_in_order_of_time_and_repeatably(
            steps in prop::collection::vec(step(), 1..160), variant in 0usize..6,
        ) {
            for entry in DEVICES {
                let mut options = entry.defaults();
                // Small caches and other choices where the device has them, so that every wait inside is met.
                let changes: &[(&str, i64)] = &[
                    ("write_cache_extents", 3), ("write_cache_kb", 300), ("write_cache", 0), ("destage_order", 1),
                    ("lookahead_kb", 0), ("lookahead_interrupted", 1), ("lookahead_during_decode", 1),
                    ("age_cap_passes", 0), ("destage_idle_ms", 3_600_000), ("inner_rate_kb_s", 20_000),
                    ("write_buffer_kb", 64), ("iops_limit", 500), ("idle_threshold_us", 100), ("random_phase", 1),
                    ("write_cache_slots", 4), ("coalesce", 1), ("tlat_us", 30), ("tfw_us", 70), ("tsw_us", 110),
                    ("segment_sectors", 24), ("segments", 2), ("write_segment", 1), ("read_water_permille", 900),
                    ("write_water_permille", 300), ("read_ahead", 4), ("free_reads", 1), ("fast_writes", 0),
                    ("zero_latency_reads", 1), ("zero_latency_writes", 1), ("queue_depth", 9), ("scheduling", 2),
                    ("read_ahead_least_sectors", 16), ("hold_bus_read", 1), ("bus_read_ns", 0),
                ];
                for (i, (name, value)) in changes.iter().enumerate() {
                    if variant > 0 && (i + variant) % 3 != 0 && entry.options.iter().any(|spec| spec.name == *name) {
                        options.set(name, *value);
                    }
                }
                let make = || (entry.build)(&options, Rng::stream(variant as u64, "device"));
                let log = play(&mut *make(), &steps, false);
                prop_assert_eq!(log.len(), steps.len());
                prop_assert_eq!(&log, &play(&mut *make(), &steps, false), "{} is not repeatable", entry.name);
                prop_assert_eq!(&log, &play(&mut *make(), &steps, true), "{} changes when polled", entry.name);
            }
        }
    }

    #[test]
    fn a_late_caller_gets_the_same_completions() {
        for entry in DEVICES {
            let mut device = build(entry, &[]);
            let mut late = build(entry, &[]);
            for device in [&mut device, &mut late] {
                device.submit(Nanos::ZERO, write(1, 1_000_000, 64));
            }
            let on_time = wait(&mut *device).map(|(_, completion)| completion);
            assert_eq!(late.advance(Nanos::from_secs(10)), on_time, "{}", entry.name);
            assert_eq!(late.advance(Nanos::from_secs(10)), None);
            while device.next().is_some() {
                assert_eq!(wait(&mut *device), None);
            }
            assert_eq!(late.stats(), device.stats(), "{}", entry.name);
        }
    }

    #[test]
    fn every_file_is_listed_and_names_its_sources() -> std::io::Result<()> {
        const SHARED: &[&str] = &["completions", "disk", "drive_options", "studies", "write_slots"];
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/device");
        let mut listed = 0;
        for file in std::fs::read_dir(directory)? {
            let path = file?.path();
            let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            let text = std::fs::read_to_string(&path)?;
            let head: String = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
            assert!(head.contains("Source: "), "{stem}: the head names no source");
            if SHARED.contains(&stem.as_str()) {
                continue;
            }
            let name = stem.replace('_', "-");
            assert!(DEVICES.iter().any(|entry| entry.name == name), "{stem}.rs is not in the table");
            assert!(head.contains("Known deviations: "), "{stem}: the head names no deviations");
            listed += 1;
        }
        assert_eq!(listed, DEVICES.len());
        for entry in DEVICES {
            assert!(!entry.origin.is_empty() && !entry.conformance.is_empty() && !entry.summary.is_empty());
            let mut names = BTreeSet::new();
            for spec in entry.options {
                assert!(names.insert(spec.name), "{}: {} is there twice", entry.name, spec.name);
                assert!(spec.help.contains("Source: "), "{}: {} names no source", entry.name, spec.name);
                assert!((spec.min..=spec.max).contains(&spec.default), "{}: {}", entry.name, spec.name);
            }
            let device = build(entry, &[]);
            assert_eq!(i64::from(device.queue_depth()), entry.defaults().get("queue_depth"));
            assert_eq!(device.nr_sectors(), entry.defaults().unsigned("nr_sectors"));
            assert_eq!(device.bio_based(), entry.name == "zero");
            let nr_queues = entry.options.iter().find(|spec| spec.name == "nr_queues").map_or(1, |spec| spec.default);
            assert_eq!(i64::from(device.nr_hw_queues()), nr_queues);
            assert_eq!(device.rotational(), entry.options.iter().any(|spec| spec.name == "rpm"), "{}", entry.name);
        }
        Ok(())
    }

    #[test]
    fn the_last_sector_can_be_read_and_written() {
        for entry in DEVICES {
            let mut device = build(entry, &[]);
            let last = device.nr_sectors() - 8;
            let (read_at, _) = run(&mut *device, Nanos::ZERO, read(1, last, 8));
            let fua = Command { fua: true, sector: Sector(last), ..write(2, 0, 8) };
            assert!(run(&mut *device, read_at, fua).0 >= read_at, "{}", entry.name);
        }
    }
}
