//! Threads that use mappings: what their faults read, what stays mapped, and what reclaim takes away.

use std::collections::BTreeSet;

use iowhy_stack::event::{Dir, Event, FileId, Op, RaKind, What};
use iowhy_stack::fault::FAULTS;
use iowhy_stack::job::{Advice, Engine, FileSpec, Job, Place, ThreadJob, ThreadSpec, Workload};
use iowhy_stack::kernel::{KERNELS, Kernel, Stack, find_kernel};
use iowhy_stack::outcome::{Outcome, Plan};
use iowhy_stack::readahead::READAHEADS;
use iowhy_stack::sim;
use iowhy_stack::units::{PAGE_BYTES, Sector};
use iowhy_stack::workload::{Mix, Rate, Stream, SyncEvery, Target};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn whole(file_bytes: u64) -> Target {
    Target { file: 0, start: 0, len_bytes: file_bytes }
}

fn sequential(file_bytes: u64) -> Stream {
    Stream::sequential(Mix::Read, vec![whole(file_bytes)], 65_536)
}

fn random(mix: Mix, file_bytes: u64, calls: u64) -> Stream {
    Stream::random(mix, whole(file_bytes), 4096, calls)
}

/// One file, mapped by each of the threads.
fn job(file_bytes: u64, threads: Vec<(Option<Advice>, Stream)>) -> Job {
    let files = vec![FileSpec { bytes: file_bytes, place: Place::FileSystem }];
    let thread = |(advice, stream)| ThreadJob {
        spec: ThreadSpec { engine: Engine::Mmap, advice, ..ThreadSpec::new(0) },
        stream,
    };
    Job::new(Workload::Threads { files, threads: threads.into_iter().map(thread).collect() }, 1)
}

fn stack(kernel: &str, keys: &[(&str, &str)]) -> Stack {
    let mut stack = Stack::new(find_kernel(kernel).expect("a known kernel"));
    keys.iter().for_each(|(key, value)| stack.set(key, value).expect("a key of the stack"));
    stack
}

/// Runs a job and checks that nothing is lost: what is added and not removed is cached, each page is added only when
/// it is absent, and the device reads what was added.
fn run(stack: Stack, job: Job) -> (Outcome, Vec<Event>) {
    // A read(2) holds on to the pages of its batch while it makes room for others, so it may use what has left.
    let all_mapped = job.workload.threads().iter().all(|thread| thread.engine == Engine::Mmap);
    let plan = Plan { stack, job };
    let mut events = Vec::new();
    let outcome = sim::run_with(&plan, &mut events).expect("the job ends");
    let mut cached: BTreeSet<(FileId, u64)> = BTreeSet::new();
    for event in &events {
        match event.what {
            What::PageAdd { file, page, nr_pages } => {
                for page in page.0..page.0 + u64::from(nr_pages) {
                    assert!(cached.insert((file, page)), "page {page} was added twice");
                }
            }
            What::PageRemove { file, page, nr_pages, .. } => {
                for page in page.0..page.0 + u64::from(nr_pages) {
                    assert!(cached.remove(&(file, page)), "page {page} left and was not there");
                }
            }
            What::Hit { file, page, nr_pages } if all_mapped => {
                for page in page.0..page.0 + u64::from(nr_pages) {
                    assert!(cached.contains(&(file, page)), "page {page} was used and not there");
                }
            }
            What::Fault { file, page, .. } => {
                assert!(cached.contains(&(file, page.0)), "page {page:?} was mapped and not there");
            }
            _ => {}
        }
    }
    let layers = &outcome.layers;
    assert_eq!(layers.pages_added, layers.pages_removed + cached.len() as u64);
    (outcome, events)
}

fn windows(outcome: &Outcome, kind: RaKind) -> u64 {
    outcome.layers.windows[kind as usize]
}

fn faults(outcome: &Outcome) -> (u64, u64) {
    let [minor, major] = outcome.layers.faults;
    (minor, major)
}

#[test]
fn a_scan_of_a_mapping_reads_around_once_and_then_ahead() {
    let (outcome, events) = run(stack("linux-6.18", &[]), job(64 * MIB, vec![(None, sequential(64 * MIB))]));
    let read: u64 = events
        .iter()
        .filter_map(|event| match event.what {
            What::Complete { dir: Dir::Read, nr_sectors, .. } => Some(u64::from(nr_sectors)),
            _ => None,
        })
        .sum();
    assert_eq!(outcome.layers.pages_added, 64 * MIB / PAGE_BYTES, "every page is read once");
    assert_eq!(outcome.counts.reads, 64 * MIB / 65_536);
    assert!(read * 512 <= 65 * MIB, "{read} sectors");
    assert_eq!(windows(&outcome, RaKind::Around), 1);
    assert_eq!(windows(&outcome, RaKind::Single), 0);
    assert!(windows(&outcome, RaKind::Async) > 64, "{:?}", outcome.layers.windows);
    let (minor, major) = faults(&outcome);
    assert!(major <= 2 && minor > 100, "{minor} minor, {major} major faults");
}

#[test]
fn a_scan_on_a_disk_is_as_fast_as_its_media() {
    // The same bytes by read(2): the way to the page does not matter where the disk is the bottleneck.
    let plan = |engine| {
        let mut stack = stack("linux-6.18", &[]);
        stack.set_device("sata-2014").expect("a device");
        let mut job = job(128 * MIB, vec![(None, sequential(128 * MIB))]);
        let Workload::Threads { threads, .. } = &mut job.workload else { unreachable!() };
        threads[0].spec.engine = engine;
        run(stack, job).0.elapsed.as_secs_f64()
    };
    let (mapped, read) = (plan(Engine::Mmap), plan(Engine::Sync));
    assert!(mapped < 1.05 * read && read < 1.05 * mapped, "{mapped} s through a mapping, {read} s by read(2)");
}

#[test]
fn random_advice_makes_faults_read_single_pages() {
    for kernel in ["linux-2.6.6", "linux-2.6.38", "linux-4.4", "linux-6.1", "linux-6.12", "linux-6.18"] {
        let run = |advice| run(stack(kernel, &[]), job(256 * MIB, vec![(advice, random(Mix::Read, 256 * MIB, 90))])).0;
        let (advised, not) = (run(Some(Advice::Random)), run(None));
        let (minor, major) = faults(&advised);
        assert_eq!(windows(&advised, RaKind::Single), major, "{kernel}");
        assert_eq!((advised.layers.pages_added, minor + major), (major, 90), "{kernel}");
        assert_eq!(windows(&not, RaKind::Single), 0, "{kernel}");
        assert!(not.layers.pages_added > 20 * windows(&not, RaKind::Around), "{kernel}: {:?}", not.layers.windows);
    }
}

#[test]
fn a_hundred_misses_more_than_hits_stop_reading_around() {
    // Fault-around takes the pages it maps off the misses; without it, every random touch of a large file is a miss.
    let keys: &[(&str, &str)] = &[("fault.fault_around_kb", "4"), ("memory_mb", "16384")];
    let (outcome, _) =
        run(stack("linux-6.18", keys), job(8192 * MIB, vec![(None, random(Mix::Read, 8192 * MIB, 300))]));
    let around = windows(&outcome, RaKind::Around);
    assert!((100..=105).contains(&around), "{around} windows around pages");
    assert!(windows(&outcome, RaKind::Single) > 190);
}

#[test]
fn a_second_pass_takes_no_faults() {
    let passes = |passes| {
        let stream = Stream { passes, ..sequential(32 * MIB) };
        run(stack("linux-6.18", &[]), job(32 * MIB, vec![(None, stream)])).0
    };
    let (once, twice) = (passes(1), passes(2));
    assert_eq!(faults(&once), faults(&twice));
    assert_eq!(once.layers.pages_added, twice.layers.pages_added);
    assert_eq!(twice.layers.hits - once.layers.hits, 32 * MIB / PAGE_BYTES);
}

#[test]
fn pages_that_reclaim_takes_fault_again() {
    let keys: &[(&str, &str)] = &[("memory_mb", "32"), ("reserved_mb", "16")];
    for kernel in ["linux-2.6.38", "linux-6.18"] {
        let stream = Stream { passes: 2, ..sequential(64 * MIB) };
        let (outcome, events) = run(stack(kernel, keys), job(64 * MIB, vec![(None, stream)]));
        let nr_pages = 64 * MIB / PAGE_BYTES;
        // Neither pass finds what the other has left: a loop over four times the memory.
        assert!(outcome.layers.pages_added > 2 * nr_pages - nr_pages / 4, "{kernel}: {}", outcome.layers.pages_added);
        assert!(outcome.layers.pages_removed > nr_pages);
        let mut cached = 0;
        for event in &events {
            match event.what {
                What::PageAdd { nr_pages, .. } => cached += u64::from(nr_pages),
                What::PageRemove { nr_pages, .. } => cached -= u64::from(nr_pages),
                _ => {}
            }
            assert!(cached <= 16 * MIB / PAGE_BYTES + 1024, "{kernel}: {cached} pages cached");
        }
    }
}

/// A hot set within a large file: pages of the hot set that had to be read again.
fn hot_refaults(kernel: &str, advice: Option<Advice>) -> u64 {
    let hot = Target { file: 0, start: 0, len_bytes: 6 * MIB };
    let cold = Target { file: 0, start: 32 * MIB, len_bytes: 224 * MIB };
    let keys: &[(&str, &str)] = &[("memory_mb", "32"), ("reserved_mb", "16"), ("read_ahead_kb", "0")];
    let stream = |target, calls, a_second| {
        let rate = Some(Rate::of_calls(a_second, 4096));
        Stream { rate, ..Stream::random(Mix::Read, target, 4096, calls) }
    };
    // Between two uses of a hot page, 160 ms on average, some 800 cold pages are read.
    let threads = vec![(advice, stream(hot, 30_000, 10_000)), (advice, stream(cold, 15_000, 5_000))];
    let (_, events) = run(stack(kernel, keys), job(256 * MIB, threads));
    let hot_pages = 6 * MIB / PAGE_BYTES;
    let mut seen = BTreeSet::new();
    let again = events.iter().filter(|event| match event.what {
        What::Fault { page, major: true, .. } if page.0 < hot_pages => !seen.insert(page),
        _ => false,
    });
    again.count() as u64
}

#[test]
fn use_through_a_mapping_keeps_pages_unless_advice_says_it_does_not_count() {
    let normal = hot_refaults("linux-6.18", None);
    let advised = hot_refaults("linux-6.18", Some(Advice::Random));
    let advised_before = hot_refaults("linux-6.1", Some(Advice::Random));
    assert!(advised > 5 * normal.max(20), "{advised} refaults with random advice, {normal} without");
    assert!(advised > 5 * advised_before.max(20), "{advised} refaults in 6.18, {advised_before} in 6.1");
}

#[test]
fn stores_make_pages_dirty_and_the_flusher_writes_them() {
    for kernel in KERNELS {
        let stream = Stream {
            sync: Some(SyncEvery { writes: 50, op: Op::Fsync }),
            end_sync: Some(Op::Fsync),
            ..random(Mix::Write, 32 * MIB, 500)
        };
        let (outcome, _) = run(Stack::new(kernel), job(32 * MIB, vec![(None, stream)]));
        let name = kernel.name;
        assert_eq!(outcome.counts.writes, 500, "{name}");
        // Within 50 stores to 8192 pages hardly any two hit the same page.
        assert!((490..=500).contains(&outcome.layers.writeback_pages), "{name}: {}", outcome.layers.writeback_pages);
        let (minor, major) = faults(&outcome);
        assert!(minor + major >= outcome.layers.writeback_pages, "{name}: {minor} minor, {major} major");
    }
}

#[test]
fn costs_are_charged_to_the_thread_that_faults() {
    let cpu = |keys: &[(&str, &str)]| {
        let (outcome, _) = run(stack("linux-6.18", keys), job(32 * MIB, vec![(None, sequential(32 * MIB))]));
        (outcome.cpu_busy.0, outcome.layers.faults.iter().sum::<u64>())
    };
    let (free, nr_faults) = cpu(&[("fault_ns", "0"), ("map_page_ns", "0")]);
    assert_eq!(cpu(&[("fault_ns", "1000"), ("map_page_ns", "0")]).0 - free, 1000 * nr_faults);
    assert_eq!(cpu(&[("fault_ns", "0"), ("map_page_ns", "10")]).0 - free, 10 * 32 * MIB / PAGE_BYTES);
}

fn mixed_job(device: bool, file_bytes: u64) -> Job {
    let scan = Stream { passes: 2, ..sequential(file_bytes) };
    let threads = vec![
        (None, scan.clone()),
        (Some(Advice::Sequential), Stream { passes: 1, ..scan }),
        (Some(Advice::Random), random(Mix::Read, file_bytes, 200)),
        (None, random(Mix::Mixed(50), file_bytes, 200)),
        (Some(Advice::WillNeed { offset: 0, len_bytes: 0 }), random(Mix::Read, file_bytes, 50)),
    ];
    let mut job = job(file_bytes, threads);
    let Workload::Threads { files, threads } = &mut job.workload else { unreachable!() };
    if device {
        files[0].place = Place::Device { start: Sector(2048) };
    }
    // Two share a mapping, one reads the file by read(2), the others have mappings of their own.
    for (index, thread) in threads.iter_mut().enumerate() {
        thread.spec.descriptors = [0, 1, 2, 0, 3][index];
    }
    let reader = ThreadSpec { descriptors: 0, ..ThreadSpec::new(1) };
    threads.push(ThreadJob { spec: reader, stream: sequential(file_bytes) });
    job
}

#[test]
fn nothing_is_lost_on_any_kernel_and_equal_runs_are_equal() {
    for kernel in KERNELS {
        for memory in ["64", "24"] {
            for device in [false, true] {
                let run = || {
                    let keys: &[(&str, &str)] = &[("memory_mb", memory), ("reserved_mb", "16")];
                    run(stack(kernel.name, keys), mixed_job(device, 16 * MIB - 1000)).0
                };
                let (one, other) = (run(), run());
                assert_eq!((one.event_hash, one.elapsed), (other.event_hash, other.elapsed), "{}", kernel.name);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_fault_goes_with_any_read_ahead(
        kernel in 0..KERNELS.len(),
        fault in 0..FAULTS.len(),
        readahead in 0..READAHEADS.len(),
        limit in prop::sample::select(vec!["0", "4", "16", "128", "1024"]),
        memory in prop::sample::select(vec!["20", "32", "640"]),
        reader in any::<bool>(),
    ) {
        let keys: &[(&str, &str)] = &[
            ("fault", FAULTS[fault].name),
            ("readahead", READAHEADS[readahead].name),
            ("read_ahead_kb", limit),
            ("memory_mb", memory),
            ("reserved_mb", "16"),
        ];
        let mut job = mixed_job(false, 4 * MIB + 5);
        if !reader && let Workload::Threads { threads, .. } = &mut job.workload {
            threads.pop();
        }
        run(stack(KERNELS[kernel].name, keys), job);
    }
}

#[test]
fn every_kernel_has_a_fault() {
    let fault_of = |kernel: &Kernel| FAULTS.iter().find(|fault| fault.name == kernel.fault);
    assert!(KERNELS.iter().all(|kernel| fault_of(kernel).is_some()));
    let mut stack = stack("linux-6.1", &[("fault", "linux-4.19"), ("fault_around_kb", "16")]);
    assert_eq!(stack.describe(), "linux-6.1,fault=linux-4.4,fault.fault_around_kb=16");
    assert!(stack.set("fault", "linux-7.0").is_err());
}
