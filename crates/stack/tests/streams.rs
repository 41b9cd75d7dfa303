//! Jobs of threads with streams: random mixes of kernel, policies, device, files and threads come to an end, do what
//! was asked and nothing else, and do it again in the same way.

use std::collections::{BTreeMap, BTreeSet};

use iowhy_stack::device::DEVICES;
use iowhy_stack::elevator::ELEVATORS;
use iowhy_stack::event::{Event, Op, What};
use iowhy_stack::filesystem::FILESYSTEMS;
use iowhy_stack::job::{Engine, FileSpec, Job, OpenFix, Opening, Place, Probe, ThreadJob, ThreadSpec, Workload};
use iowhy_stack::kernel::{KERNELS, Stack, find_kernel};
use iowhy_stack::outcome::{Outcome, Plan};
use iowhy_stack::rng::Rng;
use iowhy_stack::sim;
use iowhy_stack::units::{Nanos, Sector};
use iowhy_stack::workload::{
    BlockSizes, Distribution, Log, Mix, Order, Rate, Service, Stream, SyncEvery, Target, Think,
};

fn run(plan: &Plan) -> (Outcome, Vec<Event>) {
    let mut events = Vec::new();
    let outcome = sim::run_with(plan, &mut events).unwrap_or_else(|error| panic!("{}: {error}", plan.stack.describe()));
    (outcome, events)
}

/// A plan drawn from a seed.
fn random_plan(seed: u64) -> Plan {
    let mut rng = Rng::stream(seed, "plans");
    let mut pick = |n: usize| rng.below(n as u64) as usize;
    let kernel = &KERNELS[pick(KERNELS.len())];
    let mut stack = Stack::new(kernel);
    let queue_plugs = stack.plug.entry.name.starts_with("queue");
    if pick(2) == 0 {
        stack.set("elevator", ELEVATORS[pick(ELEVATORS.len())].name).expect("an elevator");
    }
    if pick(3) == 0 {
        stack.set("filesystem", FILESYSTEMS[pick(FILESYSTEMS.len())].name).expect("a file system");
    }
    if pick(3) == 0 && !queue_plugs {
        stack.set("plug", ["task-2.6.39", "task-3.1", "task-3.3", "task-5.16"][pick(4)]).expect("a plug");
    }
    if pick(2) == 0 {
        stack.set("ring_nowait", "marked").expect("a choice");
        // Not every file system can be told.
        let _ = stack.set("filesystem.nowait", "off");
    }
    stack.set_device(DEVICES[pick(DEVICES.len())].name).expect("a device");
    if pick(3) == 0 {
        stack.set("machine.memory_mb", "24").expect("in range");
        stack.set("machine.reserved_mb", "8").expect("in range");
    }
    if pick(4) == 0 {
        stack.set("machine.noise_pct", "50").expect("in range");
        stack.set("machine.wake_max_us", "100").expect("in range");
    }
    let nr_files = 1 + pick(3);
    let mut start = 1 << 12;
    let files: Vec<FileSpec> = (0..nr_files)
        .map(|_| {
            let bytes = [4096, 100_000, 1 << 20, 24 << 20][pick(4)];
            let place = if pick(3) == 0 { Place::Device { start: Sector(start) } } else { Place::FileSystem };
            start += 1 << 16;
            FileSpec { bytes, place }
        })
        .collect();
    let nr_threads = 1 + pick(5);
    let threads = (0..nr_threads).map(|thread| random_thread(thread as u32, &files, &mut pick)).collect();
    let mut job = Job::new(Workload::Threads { files, threads }, seed);
    job.mapping_cached = pick(2) == 0;
    Plan { stack, job }
}

fn random_thread(thread: u32, files: &[FileSpec], pick: &mut impl FnMut(usize) -> usize) -> ThreadJob {
    let targets: Vec<Target> = (0..1 + pick(2))
        .map(|_| {
            let file = pick(files.len());
            let bytes = files[file].bytes;
            let start = [0, bytes / 2 / 4096 * 4096][pick(2)];
            Target { file: file as u32, start, len_bytes: bytes - start }
        })
        .collect();
    let block = [512, 4096, 8192, 65_536, 1 << 20][pick(5)];
    let random = Order::Random {
        distribution: [Distribution::Uniform, Distribution::Zipf(1100), Distribution::Normal(200)][pick(3)],
        once: pick(2) == 0,
        run: 1 + pick(3) as u32,
        random_pct: [100, 60][pick(2)],
    };
    let stream = Stream {
        service: [Service::Sequential, Service::RoundRobin(2), Service::Random][pick(3)],
        mix: [Mix::Read, Mix::Write, Mix::Mixed(60), Mix::ReadAndWriteBack(40)][pick(4)],
        order: if pick(2) == 0 { random } else { Order::Sequential { hole_bytes: [0, 4096][pick(2)] } },
        blocks: [
            BlockSizes::Fixed(block),
            if pick(2) == 0 { BlockSizes::Fixed(block) } else { BlockSizes::Split(vec![(4096, 60), (16_384, 40)]) },
        ],
        limit_calls: 1 + pick(120) as u64,
        passes: 0,
        sync: (pick(4) == 0).then_some(SyncEvery { writes: 5, op: Op::Fdatasync }),
        synchronous_writes: (pick(6) == 0).then_some(Op::Fsync),
        end_sync: (pick(3) == 0).then_some(Op::Fsync),
        think: (pick(6) == 0).then_some(Think {
            calls: 7,
            time: Nanos::from_us(300),
            spin: Nanos::from_us(100),
            io_time: Nanos::ZERO,
        }),
        rate: (pick(6) == 0).then_some(Rate {
            poisson: pick(2) == 0,
            ignores_pauses: pick(2) == 0,
            ..Rate::of_calls(500, 4096)
        }),
        log: (pick(6) == 0).then(|| Log {
            target: Target { file: 0, start: 0, len_bytes: files[0].bytes },
            calls: 10,
            len_bytes: 4096.min(files[0].bytes as u32),
        }),
        drop_between_passes: pick(3) == 0,
        seed: u64::from(thread),
        ..Stream::sequential(Mix::Read, targets, block)
    };
    let direct = pick(3) == 0;
    let (depth, batch_submit, batch_complete) = ([1, 4, 64][pick(3)], [1, 8][pick(2)], [1, 4][pick(2)]);
    let engine = match pick(5) {
        0 => Engine::Aio { depth, batch_submit, batch_complete },
        2 => Engine::Ring { depth, batch_submit, batch_complete },
        1 if !direct => Engine::Mmap,
        _ => Engine::Sync,
    };
    let spec = ThreadSpec {
        job: thread % 2,
        group: [0, 0, 0, 1][pick(4)],
        start_delay: [Nanos::ZERO, Nanos::from_ms(2)][pick(2)],
        engine,
        direct,
        descriptors: if pick(2) == 0 { thread } else { 0 },
        startup_seeks: [0, 4][pick(2)],
        ..ThreadSpec::new(thread % 3)
    };
    ThreadJob { spec, stream }
}

/// What holds of every run.
fn check(plan: &Plan, outcome: &Outcome, events: &[Event]) {
    let name = plan.stack.describe();
    let mut open: BTreeSet<u32> = BTreeSet::new();
    let mut ended = 0u64;
    let mut in_flight: BTreeMap<u32, u32> = BTreeMap::new();
    let mut at = Nanos::ZERO;
    for event in events {
        assert!(event.at >= at, "{name}: time goes backwards");
        at = event.at;
        match event.what {
            What::CallStart { .. } => assert!(open.insert(event.call.0), "{name}: call {} twice", event.call.0),
            What::CallEnd { .. } => {
                assert!(open.remove(&event.call.0), "{name}: call {} ends and has not begun", event.call.0);
                ended += 1;
            }
            What::Issue { rq, nr_sectors, .. } => {
                assert_eq!(in_flight.insert(rq.0, nr_sectors), None, "{name}: request {} is at the device", rq.0);
            }
            What::Complete { rq, nr_sectors, .. } => {
                assert_eq!(in_flight.remove(&rq.0), Some(nr_sectors), "{name}: request {}", rq.0);
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "{name}: {} calls never end", open.len());
    assert_eq!(outcome.counts.total(), ended, "{name}");
    assert_eq!(outcome.threads.iter().map(|thread| thread.counts.total()).sum::<u64>(), ended, "{name}");
    assert_eq!(outcome.jobs.iter().map(|job| job.counts.total()).sum::<u64>(), ended, "{name}");
    let Workload::Threads { threads, .. } = &plan.job.workload else { return };
    for (thread, totals) in threads.iter().zip(&outcome.threads) {
        let data = totals.counts.reads + totals.counts.writes;
        assert!(data >= thread.stream.limit_calls, "{name}: {data} of {} calls", thread.stream.limit_calls);
        assert!(totals.end >= totals.start && totals.end <= outcome.elapsed, "{name}");
        if thread.spec.group == 1 {
            let before = threads.iter().zip(&outcome.threads).filter(|(other, _)| other.spec.group == 0);
            let end = before.map(|(_, totals)| totals.end).max().unwrap_or(Nanos::ZERO);
            assert!(totals.start >= end, "{name}: a later group begins after the earlier ones");
        }
    }
}

#[test]
fn random_jobs_end_and_do_what_was_asked() {
    for seed in 0..600 {
        let plan = random_plan(seed);
        let (outcome, events) = run(&plan);
        check(&plan, &outcome, &events);
        if seed % 10 == 0 {
            let again = sim::run(&plan).expect("it ran before");
            assert_eq!(again.event_hash, outcome.event_hash, "{}: the same again", plan.stack.describe());
        }
    }
}

fn stack(kernel: &str, device: &str) -> Stack {
    let mut stack = Stack::new(find_kernel(kernel).expect("a kernel"));
    stack.set_device(device).expect("a device");
    stack
}

fn on_device(bytes: u64, threads: Vec<ThreadJob>) -> Job {
    let files = vec![FileSpec { bytes, place: Place::Device { start: Sector(0) } }];
    Job::new(Workload::Threads { files, threads }, 1)
}

fn whole(bytes: u64) -> Vec<Target> {
    vec![Target { file: 0, start: 0, len_bytes: bytes }]
}

#[test]
fn asynchronous_writes_keep_the_depth_and_hand_in_batches() {
    let bytes = 64 << 20;
    let stream = Stream::random(Mix::Write, whole(bytes)[0], 4096, 2000);
    let engine = Engine::Aio { depth: 32, batch_submit: 8, batch_complete: 8 };
    let spec = ThreadSpec { engine, direct: true, ..ThreadSpec::new(0) };
    let job = on_device(bytes, vec![ThreadJob { spec, stream }]);
    let (outcome, events) = run(&Plan { stack: stack("linux-6.18", "nvme"), job });
    let most = events.iter().filter_map(|event| match event.what {
        What::Issue { in_flight, .. } => Some(in_flight),
        _ => None,
    });
    assert!((25..=32).contains(&most.max().unwrap_or(0)));
    assert_eq!((outcome.counts.writes, outcome.layers.pages_added), (2000, 0), "past the page cache");
}

/// Direct reads in line, on a queue of 128 segments: (kernel, bytes of a call, calls of a batch, pages of each
/// request). The running 6.18 has made 512 KiB requests of the batches of eight and of the calls of 1 MiB.
#[test]
fn batches_are_plugged_and_calls_are_cut_at_the_segments_of_a_request() {
    let table = [
        ("linux-6.18", 128 << 10, 8, 128),
        ("linux-6.18", 128 << 10, 4, 128),
        ("linux-6.18", 128 << 10, 2, 32),
        ("linux-4.4", 128 << 10, 2, 64),
        ("linux-2.6.38", 128 << 10, 1, 32),
        ("linux-6.18", 1 << 20, 1, 128),
        ("linux-6.18", 64 << 10, 1, 16),
    ];
    for (kernel, block, batch, nr_pages) in table {
        let bytes = 16 << 20;
        let mut stack = stack(kernel, "sata-2014");
        stack.set("max_segments", "128").expect("in range");
        stack.set("max_sectors_kb", "1280").expect("in range");
        let engine = Engine::Aio { depth: batch, batch_submit: batch, batch_complete: batch };
        let stream = Stream::sequential(Mix::Read, whole(bytes), block);
        let spec = ThreadSpec { engine, direct: true, ..ThreadSpec::new(0) };
        let (_, events) = run(&Plan { stack, job: on_device(bytes, vec![ThreadJob { spec, stream }]) });
        let requests: BTreeSet<u32> = events
            .iter()
            .filter_map(|event| match event.what {
                What::Issue { nr_sectors, .. } => Some(nr_sectors / 8),
                _ => None,
            })
            .collect();
        assert_eq!(requests, BTreeSet::from([nr_pages]), "{kernel}: calls of {block} in batches of {batch}");
    }
}

#[test]
fn a_held_plug_stalls_a_reader_who_consumes_between_large_reads() {
    let bytes = 32 << 20;
    let rate = |kernel: &str, block_bytes: u32| {
        let mut stack = stack(kernel, "ssd-sata-2011");
        stack.set("machine", "laptop-2011").expect("a machine");
        stack.set("elevator", "noop").expect("an elevator");
        let stream = Stream::sequential(Mix::Read, whole(bytes), block_bytes);
        let tool = Some(Nanos(550_000 * u64::from(block_bytes) / 1_048_576));
        let job = on_device(bytes, vec![ThreadJob { spec: ThreadSpec { tool, ..ThreadSpec::new(0) }, stream }]);
        bytes as f64 / run(&Plan { stack, job }).0.elapsed.as_secs_f64()
    };
    let (before, held, fixed) =
        (rate("linux-2.6.38", 1 << 20), rate("linux-2.6.39", 1 << 20), rate("linux-3.3", 1 << 20));
    assert!((0.6..0.85).contains(&(held / before)), "{held} of {before}");
    assert!((0.97..1.03).contains(&(fixed / before)), "{fixed} of {before}");
    let small = rate("linux-2.6.39", 128 << 10) / rate("linux-2.6.38", 128 << 10);
    assert!((0.97..1.03).contains(&small), "{small}");
}

/// Two threads write at random to a huge device that somebody has probed, or not.
fn probed(kernel: &str, fix: OpenFix, stagger: Nanos, last_pages: u32, found_delay: Nanos) -> Outcome {
    let bytes = 4_000_000_000_000u64 * 512;
    let mut stack = stack(kernel, "zero");
    stack.set_device_option("nr_sectors", "4000000000000").expect("in range");
    let threads = (0..2u64)
        .map(|thread| {
            let target = Target { file: 0, start: thread * (50 << 30), len_bytes: 25 << 30 };
            let mut stream = Stream::random(Mix::Write, target, 4096, 150_000);
            stream.seed = thread;
            let engine = Engine::Aio { depth: 1024, batch_submit: 16, batch_complete: 16 };
            ThreadJob { spec: ThreadSpec { engine, direct: true, ..ThreadSpec::new(0) }, stream }
        })
        .collect();
    let mut job = on_device(bytes, threads);
    job.opening = Some(Opening {
        size_probe: true,
        settle: Nanos::from_ms(150),
        stagger,
        open: Nanos::from_us(50),
        fix,
        found_delay,
        invalidate: true,
        probe: Some(Probe { delay: (Nanos::from_ms(5), Nanos::from_ms(50)), first_pages: 13, last_pages }),
    });
    run(&Plan { stack, job }).0
}

#[test]
fn pages_that_a_probe_leaves_slow_direct_writes_down_unless_something_prevents_it() {
    let (race, never) = (Nanos::ZERO, Nanos::from_ms(400));
    let clean = probed("linux-3.2.0", OpenFix::None, never, 12, Nanos::ZERO);
    let stale = probed("linux-3.2.0", OpenFix::None, race, 12, Nanos::ZERO);
    assert_eq!((clean.opening.raced, clean.opening.stale_pages), (false, 0));
    assert_eq!((stale.opening.raced, stale.opening.stale_pages), (true, 25));
    let busy = |outcome: &Outcome| outcome.cpu_busy.as_secs_f64();
    assert!(busy(&stale) > 1.2 * busy(&clean), "{} against {}", busy(&stale), busy(&clean));
    for (fix, delay) in [(OpenFix::Serialise, 0), (OpenFix::InvalidateWhenFound, 100)] {
        let outcome = probed("linux-3.2.0", fix, race, 12, Nanos::from_ms(delay));
        assert_eq!(outcome.opening.stale_pages, 0, "{fix:?}");
    }
    let start_only = probed("linux-3.2.0", OpenFix::None, race, 0, Nanos::ZERO);
    assert!(busy(&start_only) < 1.12 * busy(&clean), "{} against {}", busy(&start_only), busy(&clean));
}

#[test]
fn pages_dropped_between_passes_are_read_again() {
    const BYTES: u64 = 1 << 20;
    let (depth, batch_submit, batch_complete) = (4, 1, 1);
    for engine in [
        Engine::Sync,
        Engine::Mmap,
        Engine::Aio { depth, batch_submit, batch_complete },
        Engine::Ring { depth, batch_submit, batch_complete },
    ] {
        for (drops, times) in [(false, 1), (true, 3)] {
            let target = Target { file: 0, start: 0, len_bytes: BYTES };
            let once = Stream::sequential(Mix::Read, vec![target], 4096);
            let stream = Stream { passes: 3, drop_between_passes: drops, ..once };
            let threads = vec![ThreadJob { spec: ThreadSpec { engine, ..ThreadSpec::new(0) }, stream }];
            let files = vec![FileSpec { bytes: BYTES, place: Place::Device { start: Sector(0) } }];
            let stack = Stack::new(find_kernel("linux-6.18").expect("a kernel"));
            let (_, events) = run(&Plan { stack, job: Job::new(Workload::Threads { files, threads }, 1) });
            let issued = |event: &Event| if let What::Issue { nr_sectors, .. } = event.what { nr_sectors } else { 0 };
            let read: u32 = events.iter().map(issued).sum();
            assert_eq!(u64::from(read) * 512, BYTES * times, "{engine:?}, pages are dropped: {drops}");
        }
    }
}
