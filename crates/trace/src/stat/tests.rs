//! Tables with drawn expectations, and simulated runs whose layers were counted by the simulator itself.

use super::*;
use crate::iostat::DiskStats;
use iowhy_stack::event::{Op, What};
use iowhy_stack::job::{Job, Workload};
use iowhy_stack::kernel::{Stack, find_kernel};
use iowhy_stack::lifecycle::submitter;
use iowhy_stack::outcome::{Outcome, Plan};
use iowhy_stack::sim;
use iowhy_stack::trace::{Extent, Record, Rwbs};
use iowhy_stack::units::Sector;
use iowhy_stack::workload::{Dialect, FileIo, Mode, PositionSource};
use std::collections::HashMap;

const DISK: Dev = Dev(8 << 20);
const FILE: Inode = Inode { dev: DISK, ino: 7 };

/// Records from lines `ms pid letter ...`: of the block layer `sector sectors R|W|F`, of pages `first count`.
fn trace(text: &str) -> Trace {
    let record = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |nr: usize| words[nr].parse::<u64>().expect("a number");
        let extent = || Extent {
            dev: DISK,
            sector: Sector(number(3)),
            bytes: number(4) as u32 * 512,
            rwbs: match words[5] {
                "R" => Rwbs::READ,
                "W" => Rwbs::WRITE,
                _ => Rwbs::PREFLUSH,
            },
        };
        let seen = match words[2] {
            "Q" => Seen::Queue(extent()),
            "G" => Seen::GetRequest(extent()),
            "M" => Seen::BackMerge(extent()),
            "F" => Seen::FrontMerge(extent()),
            "I" => Seen::Insert(extent()),
            "D" => Seen::Issue(extent()),
            "R" => Seen::Requeue(extent()),
            "C" => Seen::Complete { extent: extent(), error: 0 },
            "U" => Seen::Unplug { dev: None, nr_requests: number(3) as u32, timer: words[4] == "timer" },
            "call" => Seen::CallStart {
                op: Op::Read,
                fd: number(3) as i32,
                offset: (words[4] != "-").then(|| number(4) * 4096),
                len_bytes: number(5) * 4096,
            },
            "end" => Seen::CallEnd { op: Op::Read, result: number(3) as i64 * 4096 },
            "get" => Seen::GetPages { file: FILE, index: number(3), last_index: number(3) + number(4) },
            "window" => Seen::RaUnbounded { file: FILE, index: number(3), nr_to_read: number(4), lookahead_size: 0 },
            "add" => Seen::PageAdd { file: FILE, index: number(3), order: number(4).ilog2() as u8 },
            "remove" => Seen::PageRemove { file: FILE, index: number(3), order: number(4).ilog2() as u8 },
            other => panic!("what is {other}"),
        };
        Record { at: Nanos::from_ms(number(0)), cpu: 0, pid: number(1) as u32, seen }
    };
    let names = vec![(1, "fio".to_owned()), (2, "blkid".to_owned()), (3, "fio".to_owned())];
    Trace { records: text.split(';').map(record).collect(), names, ..Trace::default() }
}

/// Drawn: fields 1 to 11 of the kernel's counters, with those of flushes.
#[test]
fn counters_are_those_of_the_kernel() {
    let table: [(&str, [u64; 13]); 7] = [
        // From G to C, a merged bio in it.
        (
            "0 1 Q 0 8 R;1 1 G 0 8 R;2 1 Q 8 8 R;3 1 M 8 8 R;4 1 I 0 16 R;5 1 D 0 16 R;9 0 C 0 16 R",
            [1, 1, 16, 8, 0, 0, 0, 0, 0, 8, 8, 0, 0],
        ),
        // A front merge, and then two requests unite; the earlier start counts.
        (
            "1 1 G 8 8 W;2 1 F 0 8 W;3 1 G 16 8 W;4 1 M 16 8 W;5 1 D 0 24 W;9 0 C 0 24 W",
            [0, 0, 0, 0, 1, 2, 24, 8, 0, 8, 9, 0, 0],
        ),
        // Done in two parts: one request, the time of the last.
        ("0 1 G 0 16 R;1 1 D 0 16 R;3 0 C 0 8 R;5 0 C 8 8 R", [1, 0, 16, 5, 0, 0, 0, 0, 0, 5, 5, 0, 0]),
        // Came back, went again: still one request, from its allocation on.
        ("0 1 G 0 8 R;1 1 D 0 8 R;2 0 R 0 8 R;4 1 D 0 8 R;6 0 C 0 8 R", [1, 0, 8, 6, 0, 0, 0, 0, 0, 6, 6, 0, 0]),
        // No allocations traced.
        ("1 1 D 0 8 R;3 0 C 0 8 R", [1, 0, 8, 2, 0, 0, 0, 0, 0, 2, 2, 0, 0]),
        // Two at a time.
        (
            "0 1 G 0 8 R;0 1 D 0 8 R;1 1 G 80 8 W;1 1 D 80 8 W;4 0 C 0 8 R;6 0 C 80 8 W",
            [1, 0, 8, 4, 1, 0, 8, 5, 0, 6, 9, 0, 0],
        ),
        // A flush, and one that never ends.
        ("0 1 D 0 0 F;2 0 C 0 0 F;5 1 G 8 8 R;6 1 Q 0 8 R", [0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 3, 1, 2]),
    ];
    for (text, expected) in table {
        let stat = stat(&trace(text), &Ask::default());
        let seen = stat.disks[0].1.readings[0];
        let [r, rm, rs, rt, w, wm, ws, wt, in_flight, io, weighted, f, ft] = expected;
        let fields = [r, rm, rs, rt, w, wm, ws, wt, in_flight, io, weighted, 0, 0, 0, 0, f, ft];
        assert_eq!(Some(seen), DiskStats::from_fields(&fields), "{text}");
    }
}

#[test]
fn intervals_add_up_to_the_whole() {
    let text = "0 1 G 0 8 R;400 1 D 0 8 R;900 0 C 0 8 R;1500 1 G 8 8 R;1500 1 D 8 8 R;2500 0 C 8 8 R";
    let ask = Ask { interval: Some(Nanos::from_secs(1)), ..Ask::default() };
    let stat = stat(&trace(text), &ask);
    let seen: Vec<_> = stat
        .intervals()
        .iter()
        .map(|row| (row[0].1.elapsed_ms, row[0].1.counted.read.ios, row[0].1.counted.io_ticks_ms))
        .collect();
    assert_eq!(seen, [(1000, 1, 900), (1000, 0, 500), (500, 1, 500)]);
    assert_eq!(stat.iostat()[0].1.counted.io_ticks_ms, 1900);
    let disk = &stat.disks[0].1;
    assert_eq!((disk.busy_ns, disk.idle_waiting_ns), (1_500_000_000, 400_000_000));
    assert_eq!(stat.json()["iostat"].as_array().map(Vec::len), Some(4));
}

/// Sizes before and after merging, batches, depth, seeks.
#[test]
fn requests_are_counted_before_and_after_merging() {
    let text = "0 1 Q 0 8 R;0 1 G 0 8 R;0 1 Q 8 8 R;0 1 M 8 8 R;0 1 Q 80 8 R;0 1 G 80 8 R;1 1 U 2 now;\
                1 1 D 0 16 R;1 1 D 80 8 R;2 0 C 0 16 R;2 0 C 80 8 R;3 1 U 1 timer";
    let stat = stat(&trace(text), &Ask::default());
    let disk = &stat.disks[0].1;
    assert_eq!(disk.read.bios.by_bytes, BTreeMap::from([(4096, 3)]));
    assert_eq!(disk.read.requests.by_bytes, BTreeMap::from([(4096, 1), (8192, 1)]));
    assert_eq!((disk.read.back_merges, disk.depth.max(), disk.seeks, disk.seek_sectors), (1, Some(2), 1, 64));
    let plugs = &stat.plugs;
    assert_eq!((plugs.unplugs, plugs.timer_unplugs, plugs.batches.max()), (2, 1, Some(2)));
    assert_eq!(disk.read.requests.percentile(50), Some(4096));
}

/// `looked up, missed, direct calls, other calls; windows, added, used, wasted, thrashed`.
#[test]
fn hits_are_hits_and_windows_have_a_fate() {
    let table = [
        // A window of 8 for a read of 2; 4 more are read from the cache; one is removed unread, one stays unread.
        (
            "0 1 call 3 0 2;0 1 get 0 2;0 1 window 0 8;0 1 add 0 8;0 1 get 0 2;1 1 end 2;\
             2 1 call 3 2 4;2 1 get 2 4;2 1 end 4;3 0 remove 6 1",
            [6, 2, 0, 0, 1, 8, 6, 1, 1],
        ),
        // The same without lookups traced.
        (
            "0 1 call 3 0 2;0 1 window 0 8;0 1 add 0 8;1 1 end 2;2 1 call 3 2 4;2 1 end 4;3 0 remove 6 1",
            [6, 2, 0, 0, 1, 8, 6, 1, 1],
        ),
        // At the descriptor's own position.
        ("0 1 call 3 - 2;0 1 add 0 2;1 1 end 2;2 1 call 3 - 2;2 1 add 2 2;2 1 end 2", [4, 4, 0, 0, 0, 0, 0, 0, 0]),
        // Around the cache, and a pipe.
        ("0 1 call 3 0 2;0 1 Q 0 8 R;1 1 end 2;2 1 call 4 - 1;3 1 end 1", [0, 0, 1, 1, 0, 0, 0, 0, 0]),
        // The end of the file: asked for 8, got 1.
        ("0 1 call 3 0 8;0 1 get 0 8;0 1 add 0 1;1 1 end 1", [1, 1, 0, 0, 0, 0, 0, 0, 0]),
        // A page that another process reads meanwhile is not missed by this call.
        ("0 1 call 3 0 2;0 1 get 0 2;0 2 add 0 2;1 1 end 2", [2, 0, 0, 0, 0, 0, 0, 0, 0]),
        // Lookups without calls.
        ("0 1 get 0 2;0 1 window 0 4;0 1 add 0 4", [2, 0, 0, 0, 1, 4, 0, 4, 0]),
    ];
    for (text, expected) in table {
        let cache = stat(&trace(text), &Ask::default()).cache;
        let (lookups, windows) = (cache.lookups, cache.windows);
        let seen = [
            lookups.looked_up,
            lookups.missed,
            lookups.direct_calls,
            lookups.other_calls,
            windows.n,
            windows.added,
            windows.used,
            windows.wasted,
            windows.thrashed,
        ];
        assert_eq!(seen, expected, "{text}");
    }
}

#[test]
fn windows_are_inferred_where_the_kernel_shows_none() {
    let text = "0 1 call 3 0 4;0 1 add 0 2;0 1 add 2 2;1 1 end 4;2 1 call 3 8 2;2 1 add 8 2;2 1 end 2;\
                3 1 call 3 10 2;3 1 add 10 2;3 1 end 2";
    let mut trace = trace(text);
    trace.inferred_windows = true;
    let stat = stat(&trace, &Ask::default());
    let windows = stat.cache.windows;
    assert_eq!((windows.n, windows.pages, windows.added, windows.used), (3, 8, 8, 8));
    assert!(stat.warnings.contains(&Warning::InferredWindows));
}

#[test]
fn foreign_pages_are_named() {
    // blkid reads pages under someone else's benchmark, which reads around the cache.
    let text = "0 2 call 5 0 4;0 2 add 0 4;0 2 end 4;1 0 remove 3 1;2 1 call 3 0 1;2 1 Q 0 8 R;2 1 end 1;\
                2 3 call 3 0 1;2 3 Q 8 8 R;2 3 end 1";
    for workload in [vec![1, 3], Vec::new()] {
        let guessed = workload.is_empty();
        let stat = stat(&trace(text), &Ask { workload, ..Ask::default() });
        assert_eq!(
            (stat.workload.as_slice(), stat.warnings.contains(&Warning::GuessedWorkload)),
            (&[1, 3][..], guessed)
        );
        let json = stat.json();
        let row = &json["processes"][0];
        assert_eq!((row["name"].as_str(), row["foreign"].as_bool()), (Some("blkid"), Some(true)));
        assert_eq!((row["pages_added"].as_u64(), row["pages_left"].as_u64()), (Some(4), Some(3)));
        let text = stat.text();
        assert!(text.contains("blkid") && text.contains("FOREIGN: put there by"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}

fn simulate(kernel: &str, disk: &str, mode: Mode, direct: bool) -> (Outcome, Vec<Event>) {
    let mut stack = Stack::new(find_kernel(kernel).expect("a known kernel"));
    stack.set_device(disk).expect("a known device");
    let fileio = FileIo {
        threads: 4,
        nr_files: 8,
        total_bytes: 32 << 20,
        block_bytes: 16384,
        mode,
        rw_ratio_milli: 1500,
        fsync_freq: 100,
        fsync_all: false,
        fsync_end: true,
        fsync_op: Op::Fsync,
        synchronous_writes: None,
        merged_requests: 0,
        max_events: 400,
        max_time: Nanos::ZERO,
        rate: 0,
        dialect: Dialect::V1_0,
        positions: PositionSource::Seeded(1),
        own_descriptors: false,
        linux_threads: false,
        direct,
        in_flight: 1,
    };
    let mut events = Vec::new();
    let outcome = sim::run_with(&Plan { stack, job: Job::new(Workload::FileIo(fileio), 1) }, &mut events);
    (outcome.expect("the job ends"), events)
}

/// The simulator counts its own layers; the records that the bridge makes of the same run must lead to the same
/// numbers.
/// The longest times of data: at the device, and since the first bio of the request was queued, ns.
fn longest_of_data(events: &[Event]) -> [Option<u64>; 2] {
    let (mut bios, mut requests) = (HashMap::new(), HashMap::new());
    let mut longest = [None; 2];
    for event in events {
        let at = event.at;
        match event.what {
            What::BioQueue { .. } => drop(bios.insert(submitter(event.call), at)),
            What::GetRequest { rq } => {
                let queued = bios.remove(&submitter(event.call)).expect("a request is for a bio");
                requests.insert(rq.0, [at, queued]);
            }
            What::Merge { rq, .. } => {
                let queued = bios.remove(&submitter(event.call)).expect("a merge is of a bio");
                requests.entry(rq.0).and_modify(|of| of[1] = of[1].min(queued));
            }
            What::MergeRequests { rq, gone } => {
                let gone = requests.remove(&gone.0).expect("it exists");
                requests.entry(rq.0).and_modify(|of| of[1] = of[1].min(gone[1]));
            }
            What::Issue { rq, .. } => drop(requests.entry(rq.0).and_modify(|of| of[0] = at)),
            What::Complete { rq, nr_sectors, .. } => {
                let since = requests.remove(&rq.0).filter(|_| nr_sectors > 0);
                for (longest, since) in longest.iter_mut().zip(since.into_iter().flatten()) {
                    *longest = (*longest).max(Some(at.saturating_sub(since).0));
                }
            }
            _ => {}
        }
    }
    longest
}

#[test]
fn layers_of_a_simulated_run_agree() {
    for (kernel, disk) in [("linux-2.6.6-rc3", "sata-2014"), ("linux-4.4", "sata-2014"), ("linux-6.18", "sata-2014")] {
        for (mode, direct) in [(Mode::RandomRead, false), (Mode::RandomReadWrite, false), (Mode::SeqRead, false)] {
            let (outcome, events) = simulate(kernel, disk, mode, direct);
            let layers = &outcome.layers;
            let name = format!("{kernel} {mode:?}");
            let stat = of_events(&events, &Ask::default());
            let disk = &stat.disks[0].1;
            // Requests in flight at the end of the run are in flight at the end of the trace.
            let seen = *disk.readings.last().expect("a reading");
            let expected = DiskStats::of_layers(layers);
            assert_eq!((seen.read.ios, seen.read.sectors), (expected.read.ios, expected.read.sectors), "{name}");
            assert_eq!(seen.read.ticks_ms, expected.read.ticks_ms, "{name}");
            // The simulator counts flushes among the writes.
            let writes = seen.write.ios + seen.flush_ios;
            assert_eq!((writes, seen.write.sectors), (expected.write.ios, expected.write.sectors), "{name}");
            let ticks = seen.write.ticks_ms + seen.flush_ticks_ms;
            assert!(ticks.abs_diff(expected.write.ticks_ms) <= 1, "{name}: {ticks}");
            if seen.flush_ios == 0 {
                assert_eq!((disk.seeks, disk.seek_sectors), (layers.seeks, layers.seek_sectors), "{name}");
            }
            assert_eq!(disk.busy_ns, layers.device_busy.0, "{name}");
            let phases = &stat.phases.all;
            // Flushes that are queued side by side are one bio to btt: they have the same sector.
            let longest = [Phase::D2c, Phase::Q2c].map(|phase| phases.of(phase).max());
            assert_eq!(longest, longest_of_data(&events), "{name}");
            if seen.flush_ios == 0 {
                assert_eq!(phases.of(Phase::D2c).max(), layers.phases.d2c.max(), "{name}");
                assert_eq!(phases.of(Phase::Q2c).max(), layers.phases.q2c.max(), "{name}");
            }
            let merges =
                events.iter().any(|event| matches!(event.what, What::Merge { .. } | What::MergeRequests { .. }));
            if !merges {
                // A bio is a request: everything is counted once. btt's shortest time is 1 ns.
                let pairs = [
                    (Phase::Q2g, &layers.phases.q2g),
                    (Phase::G2i, &layers.phases.g2i),
                    (Phase::I2d, &layers.phases.i2d),
                    (Phase::D2c, &layers.phases.d2c),
                    (Phase::Q2c, &layers.phases.q2c),
                ];
                for (phase, theirs) in pairs {
                    let ours = phases.of(phase);
                    let figures = |times: &Histogram| {
                        [times.min(), times.max(), times.quantile(1, 2)].map(|ns| ns.map(|ns| ns.max(1)))
                    };
                    assert_eq!(ours.count(), theirs.count(), "{name} {}", phase.name());
                    assert_eq!(figures(ours), figures(theirs), "{name} {}", phase.name());
                }
            }
            assert_eq!(stat.cache.shares.values().map(|share| share.added).sum::<u64>(), layers.pages_added, "{name}");
            assert_eq!(stat.cache.removed, layers.pages_removed, "{name}");
            assert!(stat.cache.lookups.missed <= stat.cache.lookups.looked_up, "{name}");
        }
    }
}

#[test]
fn the_recorder_names_workload_and_devices() {
    let mut trace =
        trace("0 2 call 5 0 4;0 2 add 0 4;0 2 end 4;1 1 call 3 0 1;1 1 Q 0 8 R;1 1 end 1;1 1 D 0 8 R;2 1 C 0 8 R");
    let said = |name: &str, fields: String| {
        let seen = Seen::Other { name: name.to_owned(), fields };
        Record { at: Nanos(0), cpu: 0, pid: 2, seen }
    };
    let number = format!("of=sdq key=number value={}:{}", DISK.major(), DISK.minor());
    trace.records.splice(0..0, [said("iowhy:workload", "pid=2".to_owned()), said("iowhy:setting", number)]);
    let stat = stat(&trace, &Ask::default());
    assert!(stat.workload.contains(&2) && !stat.warnings.contains(&Warning::GuessedWorkload), "{:?}", stat.workload);
    assert!(stat.text().contains("\nDevice sdq\n"), "{}", stat.text());
}
