//! The ablation table of the 2004 incident: one detail of the stack is changed at a time, and the completion time of
//! each row must move as it did in the study that found out which details matter.
//!
//! The study (docs/studies/incident-2004.md) was a second, independent simulator, so that agreement is evidence and
//! disagreement is a finding. What is compared is the relative change, change over base, because the base itself is
//! held on its own. Where the two disagree, the cell is [`Cell::Differs`]: it holds our own relative change too, with
//! the reason as far as it is known. Nothing was tuned to bring such a cell closer.
//!
//! Not here, because no key of the simulator changes them: a sync pass made by one thread, a random instead of an
//! exact mix of reads and writes, the data writes of fsync not being synchronous, and a journal above the files.
//!
//! `IOWHY_REWRITE=1 cargo test -p iowhy-stack --test ablations -- --nocapture` prints every cell as measured.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use iowhy_stack::event::Op;
use iowhy_stack::job::{CacheStart, Job, Workload};
use iowhy_stack::kernel::{PATCHES, Stack, find_kernel};
use iowhy_stack::outcome::Plan;
use iowhy_stack::sim;
use iowhy_stack::units::Nanos;
use iowhy_stack::workload::{Dialect, FileIo, Mode, PositionSource};

/// A column of the table: kernel, elevator, patch.
struct Row {
    name: &'static str,
    kernel: &'static str,
    elevator: &'static str,
    patch: Option<&'static str>,
}

const NR_ROWS: usize = 7;

const fn row(name: &'static str, elevator: &'static str, patch: Option<&'static str>) -> Row {
    Row { name, kernel: "linux-2.6.6-rc3", elevator, patch }
}

const ROWS: [Row; NR_ROWS] = [
    Row { name: "2.4", kernel: "linux-2.4.25", elevator: "linus", patch: None },
    row("noop", "noop", None),
    row("CFQ", "cfq", None),
    row("deadline", "deadline", None),
    row("AS", "anticipatory", None),
    row("AS+copy", "anticipatory", Some("private-copy")),
    row("populate", "anticipatory", Some("read-populate")),
];

/// What is changed.
#[derive(Copy, Clone)]
enum Change {
    /// A key of the stack.
    Key(&'static str, &'static str),
    /// A parameter of the drive.
    Disk(&'static str, &'static str),
    /// The blocks that map the files are cached at the start.
    MappingCached,
    /// The last so many MB written by the preparation are cached at the start.
    TailMb(u64),
    /// All threads are one thread group.
    OneThreadGroup,
    /// Every cost of the CPU threefold.
    CpuTimes3,
    /// One descriptor for each thread and file.
    OwnDescriptors,
    /// So many threads.
    Threads(u32),
}
use Change::{CpuTimes3, Disk, Key, MappingCached, OneThreadGroup, OwnDescriptors, TailMb, Threads};

/// What is expected of one row under one change.
#[derive(Copy, Clone)]
enum Cell {
    /// The study gives no value: not run.
    None,
    /// The study's seconds: our relative change is within [`TOLERANCE_PCT`] of the study's.
    S(f64),
    /// The study's seconds where it calls the row noisy: within the tolerance given, in per cent.
    Wide(f64, f64),
    /// We differ from the study: the study's seconds, and our own relative change, held within
    /// [`OWN_TOLERANCE_PCT`].
    Differs(f64, f64),
}
use Cell::{Differs, S, Wide};

const O: Cell = Cell::None;

/// How far our relative change may be from the study's, per row. The study gives its noise as 1 s, for AS as 2 s; a
/// ratio has two such numbers on either side. Rows whose reads are whole hardly depend on who overlaps with whom.
const TOLERANCE_PCT: [f64; NR_ROWS] = [2.5, 4.5, 6.0, 5.0, 6.0, 2.5, 2.5];

/// How far our own relative change may move where it is not the study's: the spread between position sequences.
const OWN_TOLERANCE_PCT: f64 = 3.0;

struct Ablation {
    name: &'static str,
    changes: &'static [Change],
    /// The study's base, seconds.
    base: &'static [f64; NR_ROWS],
    cells: [Cell; NR_ROWS],
}

/// The study's first line.
const BASE: [f64; NR_ROWS] = [77.9, 155.3, 142.4, 132.6, 115.3, 78.4, 77.2];
/// What the study compares the moved journal with: 2.4 before its calibration, the others with one sequence only.
const BASE_MOVED_JOURNAL: [f64; NR_ROWS] = [79.9, 155.3, 142.4, 131.3, 115.5, 78.4, 77.2];

const fn ablation(name: &'static str, changes: &'static [Change], cells: [Cell; NR_ROWS]) -> Ablation {
    Ablation { name, changes, base: &BASE, cells }
}

#[rustfmt::skip]
const ABLATIONS: &[Ablation] = &[
    // Columns: 2.4, noop, CFQ, deadline, AS, AS with the private copy, AS with read-populate.
    ablation("AS: no seek-distance break", &[Key("elevator.seek_break", "off")],
        [O, O, O, O, S(84.9), S(80.2), S(79.8)]),
    ablation("AS: anticipation off", &[Key("elevator.antic_expire_ms", "0")],
        [O, O, O, O, S(131.4), S(78.2), S(77.6)]),
    ablation("AS: seek samples not clamped", &[Key("elevator.clamp_seek_samples", "off")],
        [O, O, O, O, S(119.2), S(78.3), S(77.3)]),
    ablation("AS: no close-request rule", &[Key("elevator.close_rule", "off")],
        [O, O, O, O, S(115.3), S(78.4), S(77.2)]),
    ablation("AS: read batch 125 ms", &[Key("elevator.read_batch_expire_ms", "125")],
        [O, O, O, O, S(120.0), S(78.0), S(77.3)]),
    // The study has a cliff here: data read ahead between two commands of a thread is worth something only if it is a
    // whole page. There the drive reads on while data crosses the bus too, 0.1 ms in all, so that the cliff lies
    // between 38 and 48 MB/s. Here the gap is about 55 us and the cliff lies between 65 and 80 MB/s. Hence we differ by
    // +6 and +10 % (38 MB/s: CFQ, deadline), +8, +12 and +17 % (48 MB/s: CFQ, deadline, AS) and +7 % (decoding:
    // deadline).
    ablation("look-ahead kept when interrupted", &[Disk("lookahead_interrupted", "keep")],
        [S(77.9), S(153.3), Differs(135.1, 1.008), Differs(118.9, 0.986), S(114.4), S(78.6), S(77.2)]),
    ablation("the same, 48 MB/s media",
        &[Disk("lookahead_interrupted", "keep"), Disk("media_rate_kb_s", "48000"), Disk("inner_rate_kb_s", "48000")],
        [S(76.4), S(151.7), Differs(131.2, 0.993), Differs(115.3, 0.972), Differs(96.8, 0.985), S(77.2), S(76.7)]),
    ablation("the same, and during decoding",
        &[Disk("lookahead_interrupted", "keep"), Disk("lookahead_during_decode", "on")],
        [S(77.9), S(152.2), S(130.4), Differs(113.8, 0.917), S(88.4), S(78.2), S(77.8)]),
    ablation("no look-ahead", &[Disk("lookahead_kb", "0")],
        [S(78.2), S(155.2), S(144.1), S(135.1), S(133.7), S(78.6), S(77.9)]),
    ablation("write cache off", &[Disk("write_cache", "off")],
        [S(92.9), S(171.9), S(153.1), S(145.9), S(129.4), S(90.1), S(88.8)]),
    ablation("write cache 2 MB", &[Disk("write_cache_kb", "2048")],
        [S(78.1), S(154.5), S(143.1), S(132.6), S(116.5), S(78.3), S(77.7)]),
    ablation("destage in arrival order", &[Disk("destage_order", "arrival")],
        [S(80.6), S(161.1), S(144.9), S(138.4), S(119.6), S(80.8), S(79.8)]),
    ablation("destage only when full", &[Disk("destage_idle_ms", "1000000")],
        [S(78.4), S(156.0), S(143.5), S(134.6), S(120.6), S(79.9), S(79.4)]),
    ablation("mapping blocks warm", &[MappingCached],
        [S(71.7), S(148.2), S(135.8), S(126.7), S(111.4), S(72.3), S(71.8)]),
    ablation("540 MB of data warm", &[TailMb(540)],
        [S(71.7), S(141.6), S(127.9), S(121.4), S(104.4), S(71.8), S(70.9)]),
    ablation("both warm", &[MappingCached, TailMb(540)],
        [S(65.2), S(135.4), S(124.0), S(117.6), S(101.5), S(65.5), S(64.9)]),
    ablation("one thread group", &[OneThreadGroup],
        [O, O, S(135.1), O, O, O, O]),
    ablation("no atime updates", &[Key("filesystem.atime", "off")],
        [S(77.7), S(153.2), S(143.5), S(134.9), S(116.7), S(78.3), S(76.9)]),
    ablation("no waiting in group commit", &[Key("filesystem.group_commit", "never")],
        [S(77.9), S(153.8), S(144.4), S(133.8), S(119.9), S(78.1), S(77.1)]),
    ablation("a commit for every file", &[Key("filesystem.fsync", "always-commit")],
        [S(77.9), S(159.9), S(144.6), S(134.3), S(123.0), S(78.0), S(77.6)]),
    ablation("HZ = 100", &[Key("hz", "100")],
        [O, S(154.4), S(140.2), S(131.4), S(118.7), S(78.1), S(77.4)]),
    ablation("no plug timer", &[Key("plug.unplug_delay_us", "0")],
        [O, S(157.5), S(143.9), S(133.5), S(117.7), S(78.6), S(77.6)]),
    ablation("CPU x3", &[CpuTimes3],
        [S(77.7), S(154.2), S(143.3), S(132.9), S(117.2), S(78.9), S(78.2)]),
    ablation("media-read overhead 0.8 ms", &[Disk("read_overhead_us", "800")],
        [S(81.2), S(163.0), S(148.4), S(141.7), S(123.2), S(81.4), S(81.2)]),
    ablation("write settle 0.8 ms, mean seek 9.5 ms", &[Disk("write_settle_us", "800"), Disk("seek_avg_us", "9500")],
        [S(80.1), S(158.8), S(147.6), S(138.6), S(120.4), S(81.2), S(80.5)]),
    ablation("shortest seek 0.8 ms", &[Disk("seek_min_us", "800")],
        [S(75.9), S(150.9), S(140.2), S(129.4), S(114.3), S(76.8), S(75.8)]),
    ablation("shortest seek 1.4 ms", &[Disk("seek_min_us", "1400")],
        [S(81.6), S(161.0), S(150.2), S(139.1), S(122.6), S(82.3), S(81.8)]),
    ablation("read-ahead 64 KiB", &[Key("read_ahead_kb", "64")],
        [O, S(144.9), S(133.4), S(125.7), S(114.7), S(78.8), S(77.4)]),
    ablation("1 read segment", &[Disk("read_segments", "1")],
        [S(77.9), S(155.3), S(142.4), S(132.6), S(115.3), S(78.4), S(77.2)]),
    ablation("16 read segments", &[Disk("read_segments", "16")],
        [S(77.9), S(155.3), S(142.4), S(132.6), S(115.3), S(78.4), S(77.2)]),
    Ablation {
        name: "journal 10 GB below the files",
        changes: &[Key("filesystem.gap_mb", "10000")],
        base: &BASE_MOVED_JOURNAL,
        cells: [S(80.2), O, O, S(133.0), S(117.0), O, O],
    },
    ablation("own descriptors", &[OwnDescriptors],
        [O, Wide(87.0, 8.0), O, O, Wide(81.0, 8.0), O, O]),
];

/// The program of a sysbench job.
fn program(job: &mut Job) -> &mut FileIo {
    job.fileio_mut().expect("a sysbench job")
}

const NR_SEQUENCES: u64 = 2;

fn plan(row: &Row, changes: &[Change], sequence: u64) -> Plan {
    let mut stack = Stack::new(find_kernel(row.kernel).expect("a known kernel"));
    if let Some(name) = row.patch {
        stack.patch(PATCHES.iter().find(|patch| patch.name == name).expect("a known patch")).expect("made for it");
    }
    stack.set("elevator", row.elevator).expect("a known elevator");
    // The study's drive: only its shortest seek was moved, for the 2.4 row.
    stack.set_device_option("seek_min_us", "1000").expect("a parameter of the drive");
    let fileio = FileIo {
        threads: 16,
        nr_files: 128,
        total_bytes: 3 << 30,
        block_bytes: 16384,
        mode: Mode::RandomReadWrite,
        rw_ratio_milli: 1500,
        fsync_freq: 100,
        fsync_all: false,
        fsync_end: true,
        fsync_op: Op::Fsync,
        synchronous_writes: None,
        merged_requests: 0,
        max_events: 10_000,
        max_time: Nanos::ZERO,
        rate: 0,
        dialect: Dialect::V0_4,
        positions: if sequence == 1 { PositionSource::GlibcUnseeded } else { PositionSource::Seeded(sequence) },
        own_descriptors: false,
        linux_threads: true,
        direct: false,
        in_flight: 1,
    };
    let mut job = Job::new(Workload::FileIo(fileio), sequence);
    for change in changes {
        match *change {
            Key(key, value) => stack.set(key, value).expect("a key of the stack"),
            Disk(key, value) => stack.set_device_option(key, value).expect("a parameter of the drive"),
            MappingCached => job.mapping_cached = true,
            TailMb(mb) => job.cache = CacheStart::Tail { bytes: mb << 20 },
            OneThreadGroup => program(&mut job).linux_threads = false,
            OwnDescriptors => program(&mut job).own_descriptors = true,
            Threads(threads) => program(&mut job).threads = threads,
            CpuTimes3 => {
                let costs = stack.machine.options.clone();
                for (spec, value) in costs.iter().filter(|(spec, _)| spec.name.ends_with("_ns")) {
                    let key = format!("machine.{}", spec.name);
                    stack.set(&key, &(value * 3).to_string()).expect("within its range");
                }
            }
        }
    }
    Plan { stack, job }
}

/// Seconds that each plan takes, found by as many threads as there are CPUs.
fn seconds(plans: &[Plan]) -> Vec<f64> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(vec![0.0; plans.len()]);
    let nr_workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..nr_workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(plan) = plans.get(index) else { return };
                    let outcome = sim::run(plan).expect("the job ends");
                    found.lock().expect("no worker fails")[index] = outcome.elapsed.as_secs_f64();
                }
            });
        }
    });
    found.into_inner().expect("no worker fails")
}

/// Mean seconds of each (row, changes) over the sequences.
fn means(cells: &[(usize, &[Change])]) -> Vec<f64> {
    let sequences = |cell: &(usize, &[Change])| {
        let (row, changes) = *cell;
        (1..=NR_SEQUENCES).map(move |sequence| plan(&ROWS[row], changes, sequence)).collect::<Vec<_>>()
    };
    let plans: Vec<Plan> = cells.iter().flat_map(sequences).collect();
    seconds(&plans).chunks(NR_SEQUENCES as usize).map(|pair| pair.iter().sum::<f64>() / pair.len() as f64).collect()
}

/// Base of every row.
fn bases() -> Vec<f64> {
    means(&(0..NR_ROWS).map(|row| (row, &[] as &[Change])).collect::<Vec<_>>())
}

fn off_pct(found: f64, wanted: f64) -> f64 {
    100.0 * (found / wanted - 1.0)
}

#[test]
fn each_detail_moves_each_row_as_in_the_study() {
    let bases = bases();
    let mut story = String::new();
    let mut wrong = 0;
    for (row, (&found, &study)) in bases.iter().zip(&BASE).enumerate() {
        let off = off_pct(found, study);
        let bad = off.abs() > 4.0;
        wrong += usize::from(bad);
        let mark = if bad { "WRONG" } else { "" };
        writeln!(story, "{:40} {:9} {found:6.1} s, study {study:6.1} s {off:+5.1} % {mark}", "base", ROWS[row].name)
            .expect("strings take everything");
    }
    let cells: Vec<(usize, usize)> = (0..ABLATIONS.len())
        .flat_map(|ablation| (0..NR_ROWS).map(move |row| (ablation, row)))
        .filter(|&(ablation, row)| !matches!(ABLATIONS[ablation].cells[row], Cell::None))
        .collect();
    let asked: Vec<(usize, &[Change])> = cells.iter().map(|&(a, row)| (row, ABLATIONS[a].changes)).collect();
    for (&(ablation, row), found) in cells.iter().zip(means(&asked)) {
        let ablation = &ABLATIONS[ablation];
        let ours = found / bases[row];
        let (study, wanted, tolerance) = match ablation.cells[row] {
            Cell::None => continue,
            S(study) => (study, study / ablation.base[row], TOLERANCE_PCT[row]),
            Wide(study, tolerance) => (study, study / ablation.base[row], tolerance),
            Differs(study, own) => (study, own, OWN_TOLERANCE_PCT),
        };
        let bad = off_pct(ours, wanted).abs() > tolerance;
        wrong += usize::from(bad);
        let mark = if bad { "WRONG" } else { "" };
        let study = study / ablation.base[row];
        let off = off_pct(ours, study);
        writeln!(
            story,
            "{:40} {:9} {ours:6.3} of its base, study {study:6.3}, expected {wanted:6.3} {off:+5.1} % {mark}",
            ablation.name, ROWS[row].name
        )
        .expect("strings take everything");
    }
    if std::env::var_os("IOWHY_REWRITE").is_some() {
        println!("{story}");
    }
    let lines: Vec<&str> = story.lines().filter(|line| line.ends_with("WRONG")).collect();
    assert_eq!(wrong, 0, "\n{}", lines.join("\n"));
}

/// What the study predicts for compositions that nobody has published, as seconds over the 2.4 row.
#[test]
fn compositions_that_nobody_published_are_as_the_study_predicts() {
    const COPY: [Change; 1] = [Key("readahead", "linux-2.6.6+private-copy")];
    const COPY_2_4: [Change; 1] = [Key("elevator", "deadline")];
    let cases: &[(&str, usize, &[Change], f64)] = &[
        ("noop with the private copy", 1, &COPY, 86.0),
        ("CFQ with the private copy", 2, &COPY, 86.5),
        ("deadline with the private copy", 3, &COPY, 82.5),
        ("2.4 with deadline", 0, &COPY_2_4, 78.9),
    ];
    let asked: Vec<(usize, &[Change])> = cases.iter().map(|&(_, row, changes, _)| (row, changes)).collect();
    for ((name, _, _, study), found) in cases.iter().zip(means(&asked)) {
        let off = off_pct(found, *study);
        if std::env::var_os("IOWHY_REWRITE").is_some() {
            println!("{name:40} {found:6.1} s, study {study:6.1} s {off:+5.1} %");
        }
        assert!(off.abs() <= 6.0, "{name}: {found:.1} s, the study has {study:.1} s");
    }
}

/// Fewer threads overlap less and split less; one never does.
#[test]
fn the_regression_grows_with_the_number_of_threads() {
    let cases: &[(u32, usize, f64, f64)] = &[(1, 1, 1.0, 2.0), (1, 4, 1.0, 2.0), (8, 1, 1.57, 8.0), (8, 4, 1.28, 8.0)];
    for &(threads, row, study, tolerance) in cases {
        let change = [Threads(threads)];
        let found = means(&[(row, &change), (0, &change)]);
        let ratio = found[0] / found[1];
        let off = off_pct(ratio, study);
        if std::env::var_os("IOWHY_REWRITE").is_some() {
            println!("{threads} threads, {:9} {ratio:.3} of 2.4, study {study:.2} {off:+5.1} %", ROWS[row].name);
        }
        assert!(off.abs() <= tolerance, "{threads} threads, {}: {ratio:.3} of 2.4, study {study}", ROWS[row].name);
    }
}
