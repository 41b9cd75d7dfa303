//! Whole runs on small files: counts, the order of groups, and the fate of errors.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use iowhy_stack::event::Op;
use iowhy_stack::job::{FileSpec, Job, Place, ThreadJob, ThreadSpec, Workload};
use iowhy_stack::workload::{
    Call, Checks, Dialect, FileIo, Log, Mix, Mode, PositionSource, Rate, Scripted, Stream, SyncEvery, Target, Think,
    Trims, WriteState,
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::mount::{MountFlags, UnmountFlags, unmount};

use super::*;
use crate::plan::{Allow, Ends, File as PlanFile, OpenSync, Priority, Sum, Verify};
use crate::testing::Scratch;

const BLOCK: u32 = 4096;

fn target(file: u32, blocks: u64) -> Target {
    Target { file, start: 0, len_bytes: blocks * u64::from(BLOCK) }
}

/// A plan of threads with a stream each, all of them on files of `blocks` blocks.
fn plan(scratch: &Scratch, nr_files: u32, blocks: u64, streams: Vec<(Stream, Thread)>) -> Plan {
    let files = vec![FileSpec { bytes: blocks * u64::from(BLOCK), place: Place::FileSystem }; nr_files as usize];
    let (streams, threads): (Vec<_>, Vec<_>) = streams.into_iter().unzip();
    let jobs = streams
        .into_iter()
        .enumerate()
        .map(|(number, stream)| {
            let number = number as u32;
            ThreadJob { spec: ThreadSpec { job: number, descriptors: number, ..ThreadSpec::new(0) }, stream }
        })
        .collect();
    Plan {
        job: Job::new(Workload::Threads { files, threads: jobs }, 1),
        files: (0..nr_files)
            .map(|file| PlanFile {
                path: scratch.path(&format!("file{file}")),
                may_create: true,
                remove: false,
                reserve: true,
                as_found: false,
            })
            .collect(),
        threads,
        sample: Duration::ZERO,
        cache: Cache::AsFound,
        allow: Allow::default(),
    }
}

fn specs(plan: &mut Plan) -> &mut Vec<ThreadJob> {
    match &mut plan.job.workload {
        Workload::Threads { threads, .. } => threads,
        Workload::FileIo(_) => panic!("a plan of threads"),
    }
}

fn made(plan: &Plan) -> Outcome {
    run(plan, &|_| ()).expect("the run is made")
}

/// Reads or writes at random places.
fn random(mix: Mix, blocks: u64, calls: u64) -> Stream {
    Stream::random(mix, target(0, blocks), BLOCK, calls)
}

fn engine(name: &'static str, depth: u32) -> Thread {
    Thread { engine: name, depth, batch_submit: depth.div_ceil(4), keep_calls: true, ..Thread::default() }
}

#[test]
fn every_engine_makes_the_same_calls_of_a_stream() {
    let mut expected = None;
    for entry in ENGINES {
        for depth in [1, 8] {
            let scratch = Scratch::new();
            let mut stream = random(Mix::Mixed(70), 64, 500);
            stream.sync = Some(SyncEvery { writes: 50, op: Op::Fdatasync });
            stream.end_sync = Some(Op::Fsync);
            let plan = plan(&scratch, 1, 64, vec![(stream, engine(entry.name, depth))]);
            let outcome = made(&plan);
            let who = format!("{} at depth {depth}", entry.name);
            let thread = &outcome.threads[0];
            assert_eq!((thread.nr_errors, thread.short, outcome.interrupted), (0, 0, false), "{who}");
            let counts = outcome.counts;
            assert_eq!((counts.reads + counts.writes, counts.total()), (500, thread.totals.events), "{who}");
            assert_eq!(counts.read_bytes, counts.reads * u64::from(BLOCK), "{who}");
            assert_eq!(*expected.get_or_insert(counts), counts, "{who}");
            assert_eq!(outcome.latency.count(), counts.total(), "{who}");
            assert_eq!(outcome.jobs[0].counts, counts, "{who}");
            let [reads, writes, syncs] = [0, 1, 2].map(|kind| thread.latency[kind].total.count());
            assert_eq!((reads, writes, syncs), (counts.reads, counts.writes, counts.syncs), "{who}");
            let completions: u64 = thread.latency.iter().map(|latency| latency.completion.count()).sum();
            assert_eq!(completions, counts.total(), "{who}");
            assert_eq!(thread.depths.iter().sum::<u64>(), counts.total(), "{who}");
            // The calls themselves, in any order that being in flight together allows.
            let mut calls: Vec<_> = thread.calls.iter().map(|call| (call.offset, call.len_bytes)).collect();
            calls.sort_unstable();
            assert_eq!(calls.len() as u64, counts.total(), "{who}");
            assert!(calls.iter().all(|(offset, len)| offset + u64::from(*len) <= 64 * u64::from(BLOCK)), "{who}");
            assert!(outcome.harness_ns.is_some_and(|ns| ns > 0.0), "{who}");
        }
    }
}

#[test]
fn deep_engines_reach_their_depth_and_synchronous_ones_have_one_call_at_a_time() {
    for (name, depth, class) in [("psync", 1, 0), ("io_uring", 16, 4), ("libaio", 16, 4), ("skeleton", 16, 4)] {
        let scratch = Scratch::new();
        let plan = plan(&scratch, 1, 64, vec![(random(Mix::Read, 64, 640), engine(name, depth))]);
        let thread = &made(&plan).threads[0];
        let deepest = thread.depths.iter().rposition(|calls| *calls > 0);
        // Buffered calls of libaio are carried out while they are handed in: the depth is that of the batch then.
        assert!(deepest <= Some(class) && (depth == 1 || deepest >= Some(2)), "{name}: {:?}", thread.depths);
        let handed_in: u64 = thread.submitted.iter().sum();
        assert!(handed_in >= 640 / u64::from(depth) && handed_in <= 640, "{name}: {:?}", thread.submitted);
    }
}

#[test]
fn files_are_laid_out_as_they_are_needed_and_what_is_there_is_kept() {
    let scratch = Scratch::new();
    fs::write(scratch.path("file0"), [7; 100]).expect("a short file");
    let write = Stream::sequential(Mix::Write, vec![target(1, 4)], BLOCK);
    let read = Stream::sequential(Mix::Read, vec![target(0, 16)], BLOCK);
    let mut plan = plan(&scratch, 2, 16, vec![(read, engine("psync", 1)), (write, engine("psync", 1))]);
    plan.files[1].remove = true;
    let refused = run(&plan, &|_| ()).expect_err("somebody else's is not made longer").to_string();
    assert!(refused.contains("no run of iowhy made it") && !scratch.path("file1").exists(), "{refused}");
    plan.allow.write = vec![scratch.path("file0")];
    let outcome = made(&plan);
    let data = fs::read(scratch.path("file0")).expect("the file");
    assert_eq!((data.len(), &data[..100]), (16 * BLOCK as usize, &[7; 100][..]));
    assert!(data[100..].chunks(4096).all(|chunk| chunk.iter().any(|byte| *byte != 0)), "there are data behind it");
    assert!(!scratch.path("file1").exists(), "it is removed after the run");
    assert_eq!((outcome.counts.reads, outcome.counts.writes), (16, 4));
}

#[test]
fn groups_run_one_after_the_other_and_a_delay_is_kept() {
    let scratch = Scratch::new();
    let stream = random(Mix::Read, 16, 50);
    let mut plan = plan(&scratch, 1, 16, vec![(stream, engine("psync", 1)); 4]);
    for (thread, group) in specs(&mut plan).iter_mut().zip([0, 0, 1, 3]) {
        thread.spec.group = group;
    }
    specs(&mut plan)[1].spec.start_delay = Nanos::from_ms(20);
    let outcome = made(&plan);
    let times: Vec<_> = outcome.threads.iter().map(|thread| (thread.totals.start, thread.totals.end)).collect();
    assert!(times[1].0 >= Nanos::from_ms(20), "{times:?}");
    let first = times[0].1.max(times[1].1);
    assert!(times[2].0 >= first && times[3].0 >= times[2].1, "{times:?}");
    assert_eq!((outcome.jobs.len(), outcome.counts.reads), (4, 200));
    assert_eq!((outcome.jobs[3].start, outcome.jobs[3].end), times[3]);
}

#[test]
fn a_rate_counts_latency_from_when_calls_were_due() {
    for (name, depth) in [("null", 1), ("psync", 1), ("io_uring", 4)] {
        let scratch = Scratch::new();
        let mut stream = random(Mix::Read, 16, 40);
        // The third call keeps the program busy for five periods: those behind it are late, and that shows.
        stream.rate = Some(Rate::of_calls(1000, 4096));
        stream.think =
            Some(Think { calls: 20, time: Nanos::from_ms(5), spin: Nanos::from_ms(5), io_time: Nanos::ZERO });
        let plan = plan(&scratch, 1, 16, vec![(stream, engine(name, depth))]);
        let thread = &made(&plan).threads[0];
        assert_eq!((thread.totals.counts.reads, &thread.errors[..]), (40, &[][..]), "{name}");
        assert!(thread.totals.elapsed() >= Nanos::from_ms(39), "{name}: {}", thread.totals.elapsed());
        let late = thread.calls.iter().filter(|call| call.took >= Nanos::from_ms(1)).count();
        assert!(late >= 3, "{name}: {late} calls were late");
        let [whole, begun] = [&thread.latency[0].total, &thread.latency[0].begun];
        assert_eq!(begun.count(), 40, "{name}");
        assert!(begun.sum() + 3_000_000 <= whole.sum(), "{name}: {} from their begin", begun.sum());
        let early = thread.calls.iter().filter(|call| call.at < thread.totals.start).count();
        assert_eq!(early, 0, "{name}");
    }
}

#[test]
fn a_script_is_replayed_in_order_and_not_early() {
    let scratch = Scratch::new();
    let step = |at_ms: u64, op: Op, block: u64| Scripted {
        at: Nanos::from_ms(at_ms),
        ..Scripted::new(iowhy_stack::workload::Call {
            op,
            file: 0,
            offset: block * u64::from(BLOCK),
            len_bytes: if op == Op::Fsync { 0 } else { BLOCK },
            then: None,
            counted: true,
            how: None,
        })
    };
    let script = vec![step(0, Op::Write, 3), step(5, Op::Read, 1), step(12, Op::Fsync, 0)];
    let mut stream = random(Mix::Read, 16, 1);
    stream.script = Some(script.into());
    let plan = plan(&scratch, 1, 16, vec![(stream, engine("psync", 1))]);
    let thread = &made(&plan).threads[0];
    let calls: Vec<_> = thread.calls.iter().map(|call| (call.op, call.offset / u64::from(BLOCK))).collect();
    assert_eq!(calls, [(Op::Write, 3), (Op::Read, 1), (Op::Fsync, 0)]);
    let since = |call: usize| thread.calls[call].at.saturating_sub(thread.totals.start);
    assert!(since(1) >= Nanos::from_ms(5) && since(2) >= Nanos::from_ms(12), "{:?}", thread.calls);
}

#[test]
fn what_happens_in_the_warm_up_does_not_count() {
    let scratch = Scratch::new();
    let mut stream = random(Mix::Read, 16, 0);
    stream.max_time = Nanos::from_ms(60);
    let mut plan = plan(&scratch, 1, 16, vec![(stream, engine("psync", 1))]);
    plan.job.warmup = Nanos::from_ms(30);
    plan.sample = Duration::from_millis(10);
    let outcome = made(&plan);
    let thread = &outcome.threads[0];
    let warm = thread.calls.iter().filter(|call| call.at + call.took >= Nanos::from_ms(30)).count() as u64;
    assert!(outcome.counts.reads > 0 && warm.abs_diff(outcome.counts.reads) <= 1, "{warm} {:?}", outcome.counts);
    let sampled: u64 = thread.samples.iter().map(|sample| sample.counts.reads).sum();
    assert_eq!(sampled, outcome.counts.reads);
    assert!(thread.samples.len() >= 3 && thread.samples[0].end >= Nanos::from_ms(40), "{:?}", thread.samples);
}

#[test]
fn a_thread_ends_those_that_it_names_and_no_other() {
    for (ends, groups, ended) in [
        (Ends::None, [0, 0], false),
        (Ends::Group, [0, 0], true),
        (Ends::Group, [0, 1], false),
        (Ends::Running, [0, 1], true),
        (Ends::All, [0, 1], true),
    ] {
        let scratch = Scratch::new();
        let mut other = random(Mix::Read, 16, 400);
        other.think = Some(Think { calls: 1, time: Nanos::from_ms(1), spin: Nanos::ZERO, io_time: Nanos::ZERO });
        let mut threads = vec![(random(Mix::Read, 16, 20), engine("psync", 1)), (other, engine("io_uring", 4))];
        for ((_, thread), group) in threads.iter_mut().zip(groups) {
            thread.terms.group = group;
        }
        threads[0].0.think = threads[1].0.think;
        threads[0].1.terms.ends = ends;
        let outcome = made(&plan(&scratch, 1, 16, threads));
        let [first, second] = [0, 1].map(|thread: usize| outcome.threads[thread].totals.counts.reads);
        assert_eq!((first, second < 400), (20, ended), "{ends:?}, groups {groups:?}: {second} reads");
    }
}

#[test]
fn results_so_far_are_given_while_threads_run() {
    let scratch = Scratch::new();
    let mut stream = random(Mix::Read, 16, 400);
    stream.think = Some(Think { calls: 1, time: Nanos::from_ms(1), spin: Nanos::ZERO, io_time: Nanos::ZERO });
    let plan = plan(&scratch, 1, 16, vec![(stream, engine("psync", 1))]);
    let seen = std::cell::RefCell::new(Vec::new());
    let report = |outcome: &Outcome| seen.borrow_mut().push(outcome.counts.reads);
    let end = run_with_reports(&plan, &|_| (), Some((Duration::from_millis(1), &report))).expect("the run is made");
    let seen = seen.take();
    assert!(!seen.is_empty() && seen.is_sorted() && seen.iter().all(|reads| *reads <= 400), "{seen:?}");
    assert_eq!(end.counts.reads, 400);
}

#[test]
fn an_error_ends_its_thread_and_no_other() {
    for (name, depth) in [("psync", 1), ("io_uring", 4), ("libaio", 4)] {
        let scratch = Scratch::new();
        let lost = Stream::sequential(Mix::Read, vec![target(1, 16)], BLOCK);
        let mut plan =
            plan(&scratch, 2, 16, vec![(lost, engine(name, depth)), (random(Mix::Read, 16, 100), engine(name, depth))]);
        plan.files[1].may_create = false;
        let outcome = made(&plan);
        let error = &outcome.threads[0].errors[0];
        assert_eq!((error.errno, error.file, outcome.threads[0].nr_errors), (libc::ENOENT, 1, 1), "{name}");
        assert!(error.message.contains("file1") && error.message.contains("vanished"), "{}", error.message);
        assert_eq!((outcome.threads[0].totals.events, outcome.threads[1].totals.events), (0, 100), "{name}");
    }
}

/// A file that may be opened for writing, but not written to: it is sealed.
fn sealed() -> fs::File {
    let file = fs::File::from(memfd_create("sealed", MemfdFlags::ALLOW_SEALING).expect("memory"));
    file.set_len(16 * u64::from(BLOCK)).expect("a size");
    fcntl_add_seals(&file, SealFlags::WRITE).expect("a seal");
    file
}

#[test]
fn calls_that_fail_are_counted_as_errors_and_end_the_thread_unless_told_otherwise() {
    for (name, depth) in [("psync", 1), ("sync", 1), ("pvsync2", 1), ("libaio", 4), ("io_uring", 4)] {
        for go_on in [false, true] {
            let (scratch, file) = (Scratch::new(), sealed());
            // Of reads it is not meant.
            let forgives = [vec![libc::EPERM], vec![if go_on { libc::EPERM } else { libc::EIO }]];
            let thread = Thread { forgives, ..engine(name, depth) };
            let mut plan = plan(&scratch, 1, 16, vec![(random(Mix::Mixed(50), 16, 100), thread)]);
            plan.files[0].path = crate::mark::through(&file);
            plan.allow.write = vec![plan.files[0].path.clone()];
            let outcome = made(&plan);
            let thread = &outcome.threads[0];
            let who = format!("{name}, go on: {go_on}");
            assert!(thread.errors.iter().all(|error| error.errno == libc::EPERM && error.op == Op::Write), "{who}");
            assert_eq!((outcome.counts.writes, thread.failed), (0, !go_on), "{who}");
            if go_on {
                assert_eq!(outcome.counts.reads + thread.nr_errors, 100, "{who}");
                assert_eq!(thread.errors.len(), crate::outcome::MAX_ERRORS, "{who}: only the first are kept");
            } else {
                assert!((1..=u64::from(depth)).contains(&thread.nr_errors), "{who}: {}", thread.nr_errors);
                assert!(outcome.counts.reads < 100, "{who}");
            }
        }
    }
}

#[test]
fn a_full_file_system_is_reported_with_the_call_and_what_to_try() {
    let scratch = Scratch::new();
    let mount = scratch.path("small");
    fs::create_dir(&mount).expect("a directory");
    if let Err(why) = rustix::mount::mount("tmpfs", &mount, "tmpfs", MountFlags::empty(), c"size=64k") {
        assert!(std::env::var_os("CI").is_none(), "CI runs as root: {why}");
        eprintln!("SKIPPED: a small tmpfs could not be mounted: {why}");
        return;
    }
    struct Mounted(PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = unmount(&self.0, UnmountFlags::DETACH);
        }
    }
    let _mounted = Mounted(mount.clone());
    for (name, depth) in [("psync", 1), ("io_uring", 4)] {
        let file = mount.join("file");
        fs::File::create(&file).expect("an empty file");
        let write = Stream::sequential(Mix::Write, vec![target(0, 64)], BLOCK);
        let mut plan = plan(&scratch, 1, 64, vec![(write, engine(name, depth))]);
        plan.files[0] = PlanFile { path: file, may_create: false, remove: false, reserve: false, as_found: false };
        let outcome = made(&plan);
        let thread = &outcome.threads[0];
        let error = &thread.errors[0];
        assert_eq!((error.errno, error.op), (libc::ENOSPC, Op::Write), "{name}");
        assert!(error.message.contains("free some space"), "{}", error.message);
        assert_eq!(thread.totals.counts.writes, 16, "{name}: what fitted is counted");
    }
    // A file that does not fit is refused; laying it out is an error of the whole run.
    let read = random(Mix::Read, 64, 1);
    let mut plan = plan(&scratch, 1, 64, vec![(read, engine("psync", 1))]);
    plan.files[0] =
        PlanFile { path: mount.join("full"), may_create: true, remove: true, reserve: false, as_found: false };
    let error = run(&plan, &|_| ()).expect_err("it does not fit").to_string();
    assert!(error.contains("stays free"), "{error}");
    plan.allow.write = vec![mount.join("full")];
    let error = run(&plan, &|_| ()).expect_err("it does not fit").to_string();
    assert!(error.contains("laying out") && error.contains("free some space"), "{error}");
    assert!(!mount.join("full").exists(), "what was laid out is removed");
}

#[test]
fn short_calls_are_continued_and_the_end_of_the_file_is_short() {
    for (name, depth) in [("psync", 1), ("sync", 1), ("io_uring", 2), ("libaio", 2), ("mmap", 1)] {
        let scratch = Scratch::new();
        fs::write(scratch.path("file0"), vec![1; 2 * BLOCK as usize + 100]).expect("a file");
        let read = Stream::sequential(Mix::Read, vec![target(0, 4)], BLOCK);
        let mut plan = plan(&scratch, 1, 4, vec![(read, engine(name, depth))]);
        plan.files[0].may_create = false;
        let outcome = made(&plan);
        let bytes = 2 * u64::from(BLOCK) + 100;
        assert_eq!((outcome.counts.reads, outcome.counts.read_bytes), (4, bytes), "{name}");
        assert_eq!((outcome.threads[0].short, outcome.threads[0].nr_errors), (2, 0), "{name}");
    }
}

/// Everything is read after each pass.
const AFTER: Checks = Checks {
    after_writes: true,
    reads: false,
    backlog: (0, 0),
    trims: None,
    dry: false,
    as_written: false,
    drops: true,
    state: None,
};

#[test]
fn what_was_written_is_checked_afterwards_and_a_flipped_byte_is_found() {
    for (name, depth) in [("psync", 1), ("io_uring", 8), ("mmap", 1)] {
        for sum in [Sum::Crc32c, Sum::Crc32, Sum::Xxhash, Sum::Header] {
            let scratch = Scratch::new();
            let thread = Thread { verify: Some(Verify { sum, ..Verify::default() }), ..engine(name, depth) };
            let mut write = random(Mix::Write, 64, 100);
            write.checks = Some(AFTER.into());
            write.synchronous_writes = (depth == 1).then_some(Op::Fdatasync);
            let plan = plan(&scratch, 1, 64, vec![(write, thread)]);
            let outcome = made(&plan);
            let thread = &outcome.threads[0];
            assert_eq!(outcome.counts.writes, 100, "{name}");
            assert_eq!((thread.nr_errors, thread.verified), (0, outcome.counts.reads), "{name} {:?}", thread.errors);
            assert!((40..=64).contains(&outcome.counts.reads), "{name}: {}", outcome.counts.reads);
        }
        let scratch = Scratch::new();
        let verify = Verify { interval_bytes: 512, ..Verify::default() };
        let of = |mix: Mix| {
            let thread = Thread { verify: Some(verify.clone()), ..engine(name, depth) };
            let checks = Some(Checks { reads: true, ..Checks::default() }.into());
            let stream = Stream { checks, ..Stream::sequential(mix, vec![target(0, 64)], BLOCK) };
            plan(&scratch, 1, 64, vec![(stream, thread)])
        };
        let plan = of(Mix::Read);
        assert_eq!(made(&plan).threads[0].nr_errors, 64, "{name}: a file that was laid out has no headers");
        made(&of(Mix::Write));
        let outcome = made(&plan);
        assert_eq!((outcome.threads[0].nr_errors, outcome.threads[0].verified), (0, 64 * 8), "{name}");
        flip(&plan.files[0].path, 5 * 4096 + 1000);
        let outcome = made(&plan);
        let error = &outcome.threads[0].errors[0];
        assert_eq!((outcome.threads[0].nr_errors, error.errno, error.offset), (1, 0, 5 * 4096), "{name}");
        assert!(error.message.contains("21480") && error.message.contains("file0"), "{}", error.message);
    }
}

#[test]
fn what_was_written_is_checked_in_each_pass_in_between_or_not_written_at_all() {
    for (name, depth, offload) in
        [("psync", 1, false), ("libaio", 4, false), ("io_uring", 4, false), ("psync", 4, true), ("io_uring", 4, true)]
    {
        let scratch = Scratch::new();
        let verify = Verify { sum: Sum::Md5, ..Verify::default() };
        let of = |checks: Checks, passes: u64| {
            let thread = Thread { verify: Some(verify.clone()), offload, ..engine(name, depth) };
            let write = Stream {
                passes,
                checks: Some(checks.into()),
                ..Stream::sequential(Mix::Write, vec![target(0, 16)], BLOCK)
            };
            let outcome = made(&plan(&scratch, 1, 16, vec![(write, thread)]));
            let thread = &outcome.threads[0];
            assert!(thread.errors.is_empty(), "{name}: {:?}", thread.errors);
            (outcome.counts.reads, outcome.counts.writes, thread.verified)
        };
        assert_eq!(of(AFTER, 3), (48, 48, 48), "{name}");
        assert_eq!(of(Checks { backlog: (4, 0), ..AFTER }, 1), (16, 16, 16), "{name}");
        assert_eq!(of(Checks { backlog: (4, 2), after_writes: false, ..AFTER }, 1).1, 16, "{name}");
        assert_eq!(of(Checks { dry: true, ..AFTER }, 1), (16, 16, 16), "{name}: counted, though not made");
    }
}

#[test]
fn reads_end_where_an_earlier_run_has_ended() {
    for (name, depth) in [("psync", 1), ("libaio", 4)] {
        let scratch = Scratch::new();
        let of = |mix: Mix, calls: u64, checks: Checks| {
            let sequential = Stream::sequential(mix, vec![target(0, 64)], BLOCK);
            let stream = Stream { limit_calls: calls, checks: Some(checks.into()), ..sequential };
            let thread = Thread { verify: Some(Verify::default()), ..engine(name, depth) };
            made(&plan(&scratch, 1, 64, vec![(stream, thread)]))
        };
        let written = of(Mix::Write, 9, Checks::default());
        let state = written.threads[0].state.clone();
        let WriteState { depth: kept, writes, last } = &state;
        assert_eq!((*kept, *writes, last[&0].len()), (depth, 9, depth as usize), "{name}");
        let checks = Checks { reads: true, state: Some(Arc::new(state)), ..Checks::default() };
        let outcome = of(Mix::Read, 64, checks);
        assert_eq!((outcome.counts.reads, outcome.threads[0].nr_errors), (9, 0), "{name}");
    }
}

#[test]
fn written_blocks_are_trimmed_before_they_are_checked() {
    for (percent, zero, expected) in [(100, true, (16, 16, 16)), (100, false, (0, 16, 16)), (0, true, (16, 16, 0))] {
        let scratch = Scratch::new();
        let trims = Some(Trims { percent, backlog: (4, 0), zero });
        let checks = Some(Checks { trims, ..AFTER }.into());
        let write = Stream { checks, ..Stream::sequential(Mix::Write, vec![target(0, 16)], BLOCK) };
        let thread = Thread { verify: Some(Verify::default()), ..engine("psync", 1) };
        let outcome = made(&plan(&scratch, 1, 16, vec![(write, thread)]));
        let counts = &outcome.counts;
        assert_eq!((counts.reads, counts.writes, counts.trims), expected, "{percent} {zero}");
        assert_eq!(outcome.threads[0].nr_errors, 0, "{:?}", outcome.threads[0].errors);
        let found = fs::read(scratch.path("file0")).expect("the file");
        assert_eq!(found.iter().all(|byte| *byte == 0), percent > 0);
    }
}

#[test]
fn calls_at_one_place_are_in_flight_one_after_the_other_if_asked_for() {
    for (name, one_by_place) in [("skeleton", false), ("skeleton", true), ("io_uring", true), ("libaio", true)] {
        let scratch = Scratch::new();
        let write = Stream { passes: 40, ..Stream::sequential(Mix::Write, vec![target(0, 4)], BLOCK) };
        let thread = Thread { one_by_place, batch_submit: 8, ..engine(name, 8) };
        let outcome = made(&plan(&scratch, 1, 4, vec![(write, thread)]));
        let calls = &outcome.threads[0].calls;
        let meet = |(number, call): (usize, &crate::outcome::CallRecord)| {
            let mut others = calls[..number].iter().filter(|other| other.offset == call.offset);
            others.any(|other| other.at < call.at + call.took && call.at < other.at + other.took)
        };
        assert_eq!(calls.len(), 160);
        assert_eq!(calls.iter().enumerate().any(meet), !one_by_place, "{name}");
    }
}

#[test]
fn a_thread_waits_for_those_that_it_names_and_no_other() {
    let scratch = Scratch::new();
    let mut threads = vec![(random(Mix::Read, 16, 50), engine("psync", 1)); 3];
    threads[1].1.terms.after = vec![2];
    threads[2].1.terms.after = vec![0];
    let outcome = made(&plan(&scratch, 1, 16, threads));
    let times: Vec<_> = outcome.threads.iter().map(|thread| (thread.totals.start, thread.totals.end)).collect();
    assert!(times[2].0 >= times[0].1 && times[1].0 >= times[2].1, "{times:?}");
    assert_eq!(outcome.counts.reads, 150);
}

#[test]
fn trims_leave_holes() {
    for (name, depth) in [("psync", 1), ("mmap", 1), ("libaio", 2), ("io_uring", 2), ("skeleton", 2)] {
        let scratch = Scratch::new();
        let call = Call { op: Op::Trim, file: 0, offset: 8192, len_bytes: 4096, then: None, counted: true, how: None };
        let mut stream = Stream::sequential(Mix::Write, vec![target(0, 4)], BLOCK);
        stream.script = Some(Arc::from([Scripted::new(call)]));
        let write = Stream::sequential(Mix::Write, vec![target(0, 4)], BLOCK);
        let mut plan = plan(&scratch, 1, 4, vec![(write, engine("psync", 1)), (stream, engine(name, depth))]);
        if let Workload::Threads { threads, .. } = &mut plan.job.workload {
            threads[1].spec.group = 1;
        }
        let outcome = made(&plan);
        let thread = &outcome.threads[1];
        assert_eq!((outcome.counts.trims, outcome.counts.trimmed_bytes), (1, 4096), "{name} {:?}", thread.errors);
        assert_eq!((thread.latency[3].total.count(), thread.nr_errors), (1, 0), "{name}");
        let bytes = fs::read(&plan.files[0].path).expect("the file");
        assert!(bytes[8192..12288].iter().all(|byte| *byte == 0) && bytes[4096..8192].iter().any(|b| *b > 0), "{name}");
    }
}

#[test]
fn calls_have_the_priorities_that_are_drawn_for_them() {
    for name in ["libaio", "io_uring"] {
        let scratch = Scratch::new();
        let share = Priority { len_bytes: 0, percent: 40, value: 2 << 13 | 6 };
        let thread = Thread { priorities: [vec![share], Vec::new()], ..engine(name, 4) };
        let outcome = made(&plan(&scratch, 1, 64, vec![(random(Mix::Read, 64, 500), thread)]));
        let [usual, high] = [0, share.value]
            .map(|value| outcome.threads[0].by_priority.get(&(0, value)).map_or(0, |latency| latency.total.count()));
        assert_eq!((usual + high, outcome.threads[0].nr_errors), (500, 0), "{name}");
        assert!((150..250).contains(&high), "{name}: {high}");
    }
}

#[test]
fn a_thread_of_the_kernel_hands_calls_in() {
    let scratch = Scratch::new();
    let thread = Thread { kernel_thread: Some(None), ..engine("io_uring", 8) };
    let outcome = made(&plan(&scratch, 1, 64, vec![(random(Mix::Read, 64, 300), thread)]));
    assert_eq!((outcome.counts.reads, outcome.threads[0].nr_errors), (300, 0), "{:?}", outcome.threads[0].errors);
}

fn flip(path: &Path, offset: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).expect("the file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("a byte");
    file.write_all_at(&[byte[0] ^ 1], offset).expect("a byte");
}

#[test]
fn the_page_cache_is_as_asked_for_and_recorded() {
    let scratch = Scratch::new();
    let mut plan = plan(&scratch, 1, 64, vec![(random(Mix::Read, 64, 1), engine("psync", 1))]);
    made(&plan);
    plan.cache = Cache::Warm;
    let warm = made(&plan).resident[0];
    assert_eq!((warm.before, warm.after), (64, 64));
    plan.cache = Cache::Cold;
    let cold = made(&plan).resident[0];
    if cold.before == 64 {
        // Files in memory have nowhere else to be.
        eprintln!("SKIPPED: {} is a file system without a disk", scratch.path("").display());
        return;
    }
    assert_eq!(cold.before, 0);
    assert!(cold.after >= 1, "the read has brought a page");
}

#[test]
fn sysbench_threads_share_their_counters_and_make_exactly_so_many_events() {
    let scratch = Scratch::new();
    let fileio = FileIo {
        threads: 3,
        nr_files: 4,
        total_bytes: 64 * u64::from(BLOCK),
        block_bytes: BLOCK,
        mode: Mode::RandomReadWrite,
        rw_ratio_milli: 1500,
        fsync_freq: 0,
        fsync_all: false,
        fsync_end: true,
        fsync_op: Op::Fsync,
        synchronous_writes: None,
        merged_requests: 0,
        max_events: 500,
        max_time: Nanos::ZERO,
        rate: 0,
        dialect: Dialect::V1_0,
        positions: PositionSource::Seeded(1),
        own_descriptors: false,
        linux_threads: false,
        direct: false,
        in_flight: 1,
    };
    let plan = Plan {
        job: Job::new(Workload::FileIo(fileio), 1),
        files: (0..4)
            .map(|file| PlanFile {
                path: scratch.path(&format!("f{file}")),
                may_create: true,
                remove: true,
                reserve: false,
                as_found: false,
            })
            .collect(),
        threads: vec![Thread::default(); 3],
        sample: Duration::ZERO,
        cache: Cache::AsFound,
        allow: Allow::default(),
    };
    let outcome = made(&plan);
    assert_eq!((outcome.counts.reads + outcome.counts.writes, outcome.counts.syncs), (500, 0));
    // 1.5 reads to a write, counted by each thread.
    assert!((295..=305).contains(&outcome.counts.reads), "{:?}", outcome.counts);
    assert_eq!(outcome.threads.iter().map(|thread| thread.totals.events).sum::<u64>(), 500);
}

#[test]
fn syncs_within_a_write_are_part_of_it() {
    for (name, depth, open_sync) in
        [("psync", 1, None), ("psync", 1, Some(OpenSync::Dsync)), ("io_uring", 4, None), ("libaio", 4, None)]
    {
        let scratch = Scratch::new();
        let mut write = random(Mix::Write, 16, 40);
        write.synchronous_writes = Some(Op::Fdatasync);
        write.log = Some(Log { target: target(1, 4), calls: 10, len_bytes: BLOCK });
        let thread = Thread { open_sync, ..engine(name, depth) };
        let outcome = made(&plan(&scratch, 2, 16, vec![(write, thread)]));
        assert_eq!((outcome.counts.writes, outcome.counts.syncs), (44, 4), "{name}");
        assert_eq!(outcome.threads[0].nr_errors, 0, "{name}: {:?}", outcome.threads[0].errors);
    }
}

#[test]
fn a_plan_that_does_not_fit_together_is_refused_with_the_reason() {
    let scratch = Scratch::new();
    let good = || plan(&scratch, 1, 16, vec![(random(Mix::Read, 16, 1), Thread::default())]);
    type Change = fn(&mut Plan);
    let refused = |change: Change| {
        let mut plan = good();
        change(&mut plan);
        run(&plan, &|_| ()).expect_err("it is refused").to_string()
    };
    let cases: [(Change, &str); 4] = [
        (|plan| plan.threads[0].engine = "posixaio", "unknown engine `posixaio`; there are null, psync"),
        (|plan| plan.threads.clear(), "it has 1 threads, and 0 of them are described"),
        (|plan| plan.files.clear(), "it has 1 files, and 0 of them have paths"),
        (|plan| specs(plan)[0].stream.limit_calls = 0, "thread 0 has no end"),
    ];
    for (change, message) in cases {
        let error = refused(change);
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn direct_calls_are_aligned_and_an_odd_end_of_the_file_is_just_short() {
    let scratch = Scratch::new();
    for (name, depth) in [("psync", 1), ("libaio", 8), ("io_uring", 8)] {
        fs::write(scratch.path("file0"), vec![1; 15 * BLOCK as usize + 100]).expect("a file");
        let read = Stream::sequential(Mix::Read, vec![target(0, 16)], BLOCK);
        let mut plan = plan(&scratch, 1, 16, vec![(read, engine(name, depth))]);
        plan.files[0].may_create = false;
        specs(&mut plan)[0].spec.direct = true;
        let outcome = made(&plan);
        let thread = &outcome.threads[0];
        if thread.errors.first().is_some_and(|error| error.errno == libc::EINVAL && error.len_bytes == 0) {
            eprintln!("SKIPPED: the temporary directory takes no O_DIRECT");
            return;
        }
        assert_eq!((thread.nr_errors, thread.short), (0, 1), "{name}: {:?}", thread.errors);
        assert_eq!(outcome.counts.read_bytes, 15 * u64::from(BLOCK) + 100, "{name}");
    }
}

#[test]
fn swaps_between_the_look_and_the_open_harm_nobody() {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};
    let rounds: u32 = std::env::var("IOWHY_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(100);
    let scratch = Scratch::new();
    let (victim, file, beside) = (scratch.path("victim"), scratch.path("file0"), scratch.path("beside"));
    fs::write(&victim, b"precious").expect("a file");
    fs::write(&file, b"").expect("a file");
    let ended = AtomicBool::new(false);
    let (mut wrote, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for nr in 0_u32.. {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                // In turn a link to the victim, an empty file, the victim itself under another name.
                let made = match nr % 3 {
                    0 => symlink(&victim, &beside),
                    1 => fs::write(&beside, b""),
                    _ => fs::hard_link(&victim, &beside),
                };
                made.and_then(|()| fs::rename(&beside, &file)).expect("swapped");
                // Two names of one file: a rename between them does nothing.
                let _ = fs::remove_file(&beside);
                std::thread::sleep(Duration::from_micros(u64::from(nr % 7) * 300));
            }
        });
        for _ in 0..rounds {
            let write = Stream::sequential(Mix::Write, vec![target(0, 4)], BLOCK);
            let plan = plan(&scratch, 1, 4, vec![(write, engine("psync", 1))]);
            match run(&plan, &|_| ()) {
                Ok(outcome) if outcome.threads[0].errors.is_empty() => wrote += 1,
                _ => refused += 1,
            }
            assert_eq!(fs::read(&victim).expect("it is there"), b"precious");
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert!(wrote > 0 && refused > 0, "{wrote} written, {refused} refused");
}
