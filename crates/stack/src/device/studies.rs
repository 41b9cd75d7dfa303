//! Tests only: writers in a closed loop against the disks of the 2010 reports, without a kernel in between.
//!
//! Each writer has one record outstanding and thinks between two; the host takes time to wake it, to dispatch and to
//! complete, varied by a tenth either way. Records are dispatched in order of arrival, up to a depth, or in slices of
//! one writer. Regions lie at a given distance, at an angle drawn from the seed. Source:
//! docs/studies/incident-2010-2018.md, a study of the reports of 2010, whose tables the tests quote; the elevators of
//! the reports are replaced by what they let through: everything (shared queue, before the update), one command at a
//! time (after it), one writer for 100 ms (sync queues).

use std::collections::VecDeque;

use super::testing::{build, write};
use super::{Build, Command, sas_2010, sata_2010};
use crate::origin::Entry;
use crate::rng::Rng;
use crate::units::Nanos;

/// The filter in front of the drive.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Gate {
    /// Up to this number of commands at once, in order of arrival.
    Depth(usize),
    /// One writer for 100 ms, then the next.
    Slices,
    /// Everything, but the writers go on only when all are done: one thread that waits for them all.
    Together,
}

#[derive(Copy, Clone, Debug)]
struct Study<'a> {
    entry: &'a Entry<Build>,
    options: &'a [(&'a str, i64)],
    nr_writers: usize,
    record_sectors: u32,
    /// Distance of the regions, in thousandths of the disk.
    distance: u64,
    gate: Gate,
}

#[derive(Copy, Clone, Debug)]
enum What {
    Submit(usize),
    Issue(usize),
    Completed(usize),
    SliceEnds,
}

struct Host {
    events: Vec<(u64, u64, What)>,
    nr_events: u64,
    rng: Rng,
}

impl Host {
    fn after(&mut self, now: u64, us: u64, what: What) {
        let spread = us * 100;
        let noise = if spread == 0 { 0 } else { self.rng.below(2 * spread) };
        self.nr_events += 1;
        self.events.push((now + us * 1_000 - spread + noise, self.nr_events, what));
    }
}

/// Bytes a second in thousands over `seconds`, with one seed.
fn rate(study: &Study<'_>, seconds: u64, seed: u64) -> u64 {
    let mut device = build(study.entry, study.options);
    let mut host = Host { events: Vec::new(), nr_events: 0, rng: Rng::stream(seed, "host") };
    let apart = device.nr_sectors() * study.distance / 1_000;
    let mut place: Vec<u64> = (0..study.nr_writers as u64)
        .map(|i| (device.nr_sectors() / 100 + i * apart + host.rng.below(4_096)) / 8 * 8)
        .collect();
    let mut waiting: VecDeque<usize> = VecDeque::new();
    let (mut in_flight, mut active, mut nr_done, mut nr_absent) = (0, 0, 0u64, 0);
    let mut switching = false;
    for writer in 0..study.nr_writers {
        host.after(0, 50, What::Submit(writer));
    }
    if study.gate == Gate::Slices {
        host.after(0, 100_000, What::SliceEnds);
    }
    loop {
        let first = host.events.iter().enumerate().min_by_key(|(_, (at, number, _))| (*at, *number));
        let first = first.map(|(index, (at, _, _))| (*at, index));
        let inside = device.next();
        if let Some(at) = inside.filter(|inside| first.is_none_or(|(at, _)| inside.0 <= at)) {
            if let Some(completion) = device.advance(at) {
                host.after(at.0, 10, What::Completed(completion.tag as usize));
            }
            continue;
        }
        let Some((now, index)) = first else { unreachable!("writers never rest") };
        if now > seconds * 1_000_000_000 {
            return nr_done * u64::from(study.record_sectors) * 512 / seconds / 1_000;
        }
        match host.events.swap_remove(index).2 {
            What::Submit(writer) => waiting.push_back(writer),
            What::Issue(writer) => {
                device.submit(
                    Nanos(now),
                    Command { tag: writer as u32, ..write(0, place[writer], study.record_sectors) },
                );
                place[writer] += u64::from(study.record_sectors);
            }
            What::Completed(writer) => {
                in_flight -= 1;
                nr_done += 1;
                // Woken after 8 us, it thinks for 20.
                if study.gate != Gate::Together {
                    host.after(now, 28, What::Submit(writer));
                } else {
                    nr_absent += 1;
                    if nr_absent == study.nr_writers {
                        nr_absent = 0;
                        for writer in 0..study.nr_writers {
                            host.after(now, 28, What::Submit(writer));
                        }
                    }
                }
            }
            What::SliceEnds => {
                switching = true;
                host.after(now, 100_000, What::SliceEnds);
            }
        }
        if switching && in_flight == 0 {
            switching = false;
            active = (active + 1) % study.nr_writers;
        }
        loop {
            let next = match study.gate {
                Gate::Depth(depth) if in_flight >= depth => None,
                Gate::Depth(_) | Gate::Together => waiting.pop_front(),
                Gate::Slices if switching => None,
                Gate::Slices => {
                    let position = waiting.iter().position(|&writer| writer == active);
                    position.and_then(|position| waiting.remove(position))
                }
            };
            let Some(writer) = next else { break };
            in_flight += 1;
            host.after(now, 6, What::Issue(writer));
        }
    }
}

/// The mean over angles.
fn mean(study: Study<'_>, seconds: u64, nr_seeds: u64) -> u64 {
    (0..nr_seeds).map(|seed| rate(&study, seconds, seed)).sum::<u64>() / nr_seeds
}

/// 4 KB writers on the SATA disk, regions a quarter of the disk apart.
fn dd(options: &[(&str, i64)], nr_writers: usize, gate: Gate) -> u64 {
    let study = Study { entry: &sata_2010::ENTRY, options, nr_writers, record_sectors: 8, distance: 225, gate };
    mean(study, 2, 8)
}

/// Two (or one) writers on the disk of aio-stress, 0.2 % of it apart by default, in KiB/s.
fn aio(options: &[(&str, i64)], nr_writers: usize, record_kb: u32, gate: Gate) -> u64 {
    let entry = &sas_2010::ENTRY;
    mean(Study { entry, options, nr_writers, record_sectors: record_kb * 2, distance: 2, gate }, 2, 24) * 1000 / 1024
}

const ALL: Gate = Gate::Depth(31);

fn assert_near(measured: u64, expected: u64, percent: u64, what: &str) {
    assert!(measured.abs_diff(expected) * 100 <= expected * percent, "{what}: {measured} for {expected}");
}

#[test]
fn streams_share_a_budget_of_slots() {
    // The study's rates for 1, 2 and 4 writers all at once, and 2 and 4 one command at a time.
    for (slots, one, old, new) in [
        (32, 17_600, [10_100, 4_800], [8_200, 4_200]),
        (40, 20_900, [11_300, 5_900], [10_100, 5_200]),
        (48, 23_800, [13_000, 7_000], [11_800, 6_300]),
    ] {
        let options = [("write_cache_slots", slots)];
        assert_near(dd(&options, 1, ALL), one, 2, "one writer");
        let [old_2, old_4, new_2, new_4] =
            [(2, ALL), (4, ALL), (2, Gate::Depth(1)), (4, Gate::Depth(1))].map(|(n, gate)| dd(&options, n, gate));
        for (measured, expected, percent) in
            [(old_2, old[0], 18), (old_4, old[1], 7), (new_2, new[0], 8), (new_4, new[1], 7)]
        {
            assert_near(measured, expected, percent, "several writers");
        }
        // A constant budget: half of it for each halves the rate of all.
        assert!((1_700..2_300).contains(&(old_2 * 1_000 / old_4)), "{old_2} and {old_4}");
        for (new, old, bounds) in [(new_2, old_2, 720..=1_020), (new_4, old_4, 800..=960)] {
            assert!(bounds.contains(&(new * 1_000 / old)), "{slots} slots: {new} after {old}");
        }
        // Each writer alone for a while is the better way to use such a disk.
        let sync = dd(&options, 2, Gate::Slices);
        assert!((1_250..1_750).contains(&(sync * 1_000 / old_2)), "{sync} for {old_2}");
    }
}

#[test]
fn two_commands_at_once_are_enough_and_a_shared_slot_ends_the_shortage() {
    for nr_writers in [2, 4] {
        let [one, two, many] = [1, 2, 31].map(|depth| dd(&[], nr_writers, Gate::Depth(depth)));
        assert_near(two, many, 1, "two at once");
        assert!(one * 100 < two * 90, "{one} and {two}");
    }
    // With one slot for a contiguous run only the firmware limits, 60 us and 16 of the cable; alone, the cycle does.
    let options = [("coalesce", 1)];
    assert_near(dd(&options, 1, ALL), 24_800, 2, "one writer");
    assert_near(dd(&options, 4, ALL), 4_096_000 / 76, 5, "four writers at once");
    // The other reading of the report: no shortage, and 110 us whenever the stream changes.
    let options = [("coalesce", 1), ("tsw_us", 110)];
    assert_near(dd(&options, 1, ALL), 24_800, 2, "one writer");
    for nr_writers in [2, 4] {
        assert_near(dd(&options, nr_writers, ALL), 22_000, 2, "several at once");
        assert_near(dd(&options, nr_writers, Gate::Depth(1)), 16_600, 5, "several, one at a time");
    }
}

#[test]
fn without_a_write_cache_records_are_counted_in_revolutions() {
    // 64 KB in a revolution, less 5 to 17 % for the record itself; two streams close together have up to two.
    for (rpm, seek_avg_us, revolution, alone, alternating) in [
        (7_200, 8_500, 7_680, 6_600..7_400, 8_200..10_900),
        (10_000, 4_700, 10_667, 9_100..9_900, 11_100..14_600),
        (15_000, 3_500, 16_000, 12_800..14_000, 14_000..18_400),
    ] {
        let options = [("rpm", rpm), ("seek_avg_us", seek_avg_us)];
        let one = aio(&options, 1, 64, ALL);
        let sync = aio(&options, 2, 64, Gate::Slices);
        assert!(alone.contains(&one) && one < revolution, "{rpm}: one writer {one}");
        assert_near(sync, one, 3, "slices of one writer each");
        for gate in [ALL, Gate::Depth(1), Gate::Together] {
            let two = aio(&options, 2, 64, gate);
            assert!(alternating.contains(&two) && two < 2 * revolution, "{rpm} {gate:?}: two writers {two}");
        }
    }
    // The published ratio of the sync patch is 0.767, the study's 0.71 to 0.83; the level fits 64 KB only.
    let ratio = aio(&[], 2, 64, Gate::Slices) * 1_000 / aio(&[], 2, 64, ALL);
    assert!((710..=830).contains(&ratio), "{ratio}");
    for (record_kb, together, apart) in [(4, 900, 650), (16, 3_500, 2_600), (64, 12_000, 9_400), (256, 33_000, 28_000)]
    {
        // Published in MiB, here in KiB.
        assert_near(aio(&[], 2, record_kb, Gate::Together), together * 1024 / 1000, 17, "both in turn");
        assert_near(aio(&[], 2, record_kb, Gate::Slices), apart * 1024 / 1000, 7, "one after the other");
    }
}

#[test]
fn far_files_turn_the_advantage_round() {
    // The rate in slices by the rate in turn, in thousandths, at 0.2, 5 and 10 % of the disk.
    let ratio = |distance| {
        let study =
            |gate| Study { entry: &sas_2010::ENTRY, options: &[], nr_writers: 2, record_sectors: 128, distance, gate };
        mean(study(Gate::Slices), 2, 24) * 1_000 / mean(study(ALL), 2, 24)
    };
    let [near, far, further] = [2, 50, 100].map(ratio);
    assert!(near < 830 && (930..1_010).contains(&far) && further > 1_020, "{near} {far} {further}");
}

#[test]
fn the_sata_disk_with_three_options_behaves_as_the_server_disk() {
    let options = [("rpm", 10_000), ("seek_avg_us", 4_700), ("write_cache", 0)];
    for (nr_writers, gate) in [(1, ALL), (2, ALL), (2, Gate::Slices)] {
        let study = |entry, options| Study { entry, options, nr_writers, record_sectors: 128, distance: 1, gate };
        let server = mean(study(&sas_2010::ENTRY, &[]), 2, 24);
        assert_near(mean(study(&sata_2010::ENTRY, &options), 2, 24), server, 16, "sata-2010");
    }
}
