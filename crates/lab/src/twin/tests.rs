//! Simulated runs, recorded as a kernel's trace shows them, and their twins.

use iowhy_stack::event::{Event, Op};
use iowhy_stack::job::{Engine, FileSpec, Job, Place, ThreadJob, ThreadSpec, Workload};
use iowhy_stack::sim;
use iowhy_stack::trace::{Dev, Inode, Rwbs};
use iowhy_stack::units::Nanos;
use iowhy_stack::workload::{Mix, Stream, SyncEvery, Target, Think};
use iowhy_trace::bridge::trace_of_events;

use super::*;

const MIB: u64 = 1 << 20;

fn device(stack: &mut Stack) {
    stack.set_device("nvme").expect("it is in the table");
}

/// A stack with settings as they are typed.
fn stack(keys: &str) -> Stack {
    let mut stack = Stack::new(place::kernel_of("6.18.3"));
    device(&mut stack);
    for (key, value) in keys.split(',').filter_map(|word| word.split_once('=')) {
        stack.set(key, value).expect("a key");
    }
    stack
}

fn whole(file: u32, bytes: u64) -> Target {
    Target { file, start: 0, len_bytes: bytes }
}

/// The jobs by name: threads with a file each.
fn job(name: &str) -> Job {
    let bytes = if name == "long" { 96 * MIB } else { 24 * MIB };
    let one = whole(0, bytes);
    let (streams, engine, direct): (Vec<Stream>, Engine, bool) = match name {
        "sequential" | "long" => (vec![Stream::sequential(Mix::Read, vec![one], 65536)], Engine::Sync, false),
        "thinking" => {
            let think = Think { calls: 1, time: Nanos::from_us(20), spin: Nanos::from_us(20), io_time: Nanos::ZERO };
            (
                vec![Stream { think: Some(think), ..Stream::sequential(Mix::Read, vec![one], 65536) }],
                Engine::Sync,
                false,
            )
        }
        "random" => (vec![Stream::random(Mix::Read, one, 4096, 400)], Engine::Sync, false),
        "two" => {
            let streams = (0..2).map(|file| Stream::sequential(Mix::Read, vec![whole(file, bytes)], 32768));
            (streams.collect(), Engine::Sync, false)
        }
        "direct" => (vec![Stream::random(Mix::Read, one, 4096, 600)], Engine::Sync, true),
        "synced" => {
            let sync = Some(SyncEvery { writes: 4, op: Op::Fsync });
            let stream = Stream { sync, limit_calls: 200, ..Stream::sequential(Mix::Write, vec![one], 16384) };
            (vec![stream], Engine::Sync, false)
        }
        "growing" => {
            let sync = Some(SyncEvery { writes: 4, op: Op::Fsync });
            let stream = Stream { sync, limit_calls: 200, ..Stream::sequential(Mix::Write, vec![one], 10_240) };
            (vec![stream], Engine::Sync, false)
        }
        other => panic!("no job is called {other}"),
    };
    let files = vec![FileSpec { bytes, place: Place::FileSystem }; streams.len()];
    let threads = (0..).zip(streams).map(|(nr, stream)| {
        let spec = ThreadSpec { engine, direct, tool: Some(Nanos::ZERO), ..ThreadSpec::new(nr) };
        ThreadJob { spec, stream }
    });
    Job::new(Workload::Threads { files, threads: threads.collect() }, 1)
}

fn recorded(plan: &Plan) -> (Trace, f64) {
    let mut events: Vec<Event> = Vec::new();
    let outcome = sim::run_with(plan, &mut events).expect("it can be run");
    (Trace { kernel: "6.18.3".to_owned(), ..trace_of_events(&events) }, outcome.elapsed.0 as f64)
}

fn twin(plan: &Plan) -> Twin {
    let mine = plan.stack.clone();
    let (trace, _) = recorded(plan);
    // Direct calls do not show their file.
    let descriptors = (0..8).map(|nr| (1000 + nr, 3, Inode { dev: Dev(8 << 20), ino: 1 })).collect();
    let who = Who { descriptors, ..Who::default() };
    // The whole stack is known here, not only its device.
    let apply = |stack: &mut Stack, _: &Trace, _: Dev| {
        *stack = mine.clone();
        u64::MAX
    };
    Twin::build_on(&trace, &Settings::default(), &who, &apply).expect("it has calls")
}

#[test]
fn the_twin_of_a_simulated_run_is_that_run() {
    for name in ["sequential", "thinking", "random", "two", "direct", "synced"] {
        for keys in ["", "read_ahead_kb=16", "read_ahead_kb=0", "elevator=bfq"] {
            let twin = twin(&Plan { stack: stack(keys), job: job(name) });
            let agreement = twin.agreement();
            let shares = [agreement.windows_pct, agreement.pages_pct, agreement.requests_pct];
            // Blocks of the journal look like data in such a trace.
            let least = if name == "synced" { 85.0 } else { 99.0 };
            assert!(shares.iter().flatten().all(|share| *share >= least), "{name}, {keys}: {agreement:?}");
            assert!(agreement.time_pct.is_some_and(|share| share >= 97.0), "{name}, {keys}: {agreement:?}");
        }
    }
}

#[test]
fn parts_of_pages_without_blocks_are_written_without_a_read() {
    let mut plan = Plan { stack: stack(""), job: job("growing") };
    plan.job.holes = vec![whole(0, 24 * MIB)];
    let twin = twin(&plan);
    let agreement = twin.agreement();
    assert!(!twin.recorded.job.holes.is_empty());
    assert!(agreement.requests_pct.is_some_and(|share| share >= 85.0), "{agreement:?}");
    // It would be read, page by page, if it were there.
    let reads = |plan: &Plan| {
        let (trace, _) = recorded(plan);
        trace.records.iter().any(|it| matches!(&it.seen, Seen::Queue(bio) if bio.rwbs.has(Rwbs::READ)))
    };
    plan.job.holes.clear();
    assert!(reads(&plan) && !reads(&twin.plan));
}

#[test]
fn the_gain_of_a_larger_window_is_that_of_the_job_itself() {
    for (name, from) in [("sequential", 8), ("thinking", 8), ("two", 8)] {
        let plan = Plan { stack: stack(&format!("read_ahead_kb={from}")), job: job(name) };
        let twin = twin(&plan);
        assert!(twin.agreement().usable, "{name}: {:?}", twin.agreement());
        let found = twin.what_if();
        let best = found.iter().find(|it| it.setting.starts_with("read_ahead_kb="));
        let best = best.unwrap_or_else(|| panic!("{name}: {found:#?}"));
        let value = best.setting.split_once('=').expect("a value").1;
        let (_, slow) = recorded(&plan);
        let (_, fast) = recorded(&Plan { stack: stack(&format!("read_ahead_kb={value}")), ..plan });
        let gain = 100.0 * (1.0 - fast / slow);
        assert!((best.saves_pct - gain).abs() < 15.0, "{name}: {} instead of {gain}", best.saves_pct);
        assert_eq!((best.rule, best.safe), ("window-too-small", true), "{name}: {best:?}");
    }
}

#[test]
fn a_run_at_the_limit_of_its_device_has_nothing_to_change() {
    for name in ["long", "random"] {
        let mut stack = stack("read_ahead_kb=1024");
        stack.set_device("sata-2014").expect("it is in the table");
        let twin = twin(&Plan { stack, job: job(name) });
        let found = twin.what_if();
        assert!(twin.agreement().usable && found.is_empty(), "{name}: {:?} {found:#?}", twin.agreement());
    }
}

#[test]
fn combinations_take_back_settings_that_only_hurt_together() {
    let keys = "read_ahead_kb=16,max_sectors_kb=64,nomerges=2";
    let plan = Plan { stack: stack(keys), job: job("sequential") };
    let twin = twin(&plan);
    let found = twin.combinations(&|_, _| true, 3);
    let best = &found[0];
    assert!(best.settings.iter().any(|(key, value)| *key == "read_ahead_kb" && value.len() > 2), "{found:#?}");
    let set = best.settings.iter().map(|(key, value)| format!(",{key}={value}")).collect::<String>();
    let (_, slow) = recorded(&plan);
    let (_, fast) = recorded(&Plan { stack: stack(&format!("{keys}{set}")), ..plan });
    let gain = 100.0 * (1.0 - fast / slow);
    assert!((best.saves_pct - gain).abs() < 15.0 && gain > 30.0, "{} instead of {gain}", best.saves_pct);
    for (nr, of) in found.iter().enumerate() {
        assert!(of.saves_pct <= best.saves_pct + 1.0, "{found:#?}");
        assert!(found[..nr].iter().all(|other| other.settings != of.settings), "{found:#?}");
    }
    // Values that the machine does not have are not searched.
    assert!(twin.combinations(&|key, _| key == "nomerges", 3).iter().all(|of| of.settings[0].0 == "nomerges"));
    assert!(twin.combinations(&|_, _| false, 3).is_empty());
}

#[test]
fn the_disk_has_room_for_whole_files_behind_the_last_known_place() {
    let mut stack = stack("");
    stack.device.options.set("nr_sectors", 1 << 21);
    let twin = twin(&Plan { stack, job: job("two") });
    let files: u64 = twin.recorded.job.workload.files().iter().map(|file| file.bytes / 512).sum();
    let room = twin.plan.stack.device.options.unsigned("nr_sectors");
    assert!(files > 0 && twin.recorded.nr_sectors > 0);
    assert!(room >= (8 << 20) + twin.recorded.nr_sectors + files, "{room}");
}
