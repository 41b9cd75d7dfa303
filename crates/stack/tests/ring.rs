//! Reads through a ring: which of them go to worker threads, and how many workers there are.

use iowhy_stack::event::{Event, What};
use iowhy_stack::job::{Engine, FileSpec, Job, Place, ThreadJob, ThreadSpec, Workload};
use iowhy_stack::kernel::{Stack, find_kernel};
use iowhy_stack::outcome::{Outcome, Plan};
use iowhy_stack::sim;
use iowhy_stack::workload::{Mix, Stream, Target};

const BYTES: u64 = 4 << 20;
const CALLS: u64 = 500;
const DEPTH: u32 = 64;

/// Random reads of a file, after these keys and with this engine.
fn read(keys: &[(&str, &str)], engine: Engine, direct: bool, warm: bool) -> (Outcome, Vec<Event>) {
    let mut stack = Stack::new(find_kernel("linux-6.1").expect("a kernel"));
    for (key, value) in keys {
        stack.set(key, value).unwrap_or_else(|problem| panic!("{key}={value}: {problem:?}"));
    }
    let target = Target { file: 0, start: 0, len_bytes: BYTES };
    let stream = Stream::random(Mix::Read, target, 4096, CALLS);
    let threads = vec![ThreadJob { spec: ThreadSpec { engine, direct, ..ThreadSpec::new(0) }, stream }];
    let files = vec![FileSpec { bytes: BYTES, place: Place::FileSystem }];
    let mut job = Job::new(Workload::Threads { files, threads }, 1);
    job.cached = if warm { vec![target] } else { vec![] };
    let mut events = Vec::new();
    let outcome = sim::run_with(&Plan { stack, job }, &mut events).expect("it runs");
    assert_eq!(outcome.counts.reads, CALLS);
    (outcome, events)
}

const RING: Engine = Engine::Ring { depth: DEPTH, batch_submit: 1, batch_complete: 1 };
const OFF: (&str, &str) = ("filesystem.nowait", "off");
const MARKED: (&str, &str) = ("ring_nowait", "marked");
const POLLED: (&str, &str) = ("ring_nowait", "polled");
const FUSE: (&str, &str) = ("filesystem", "fuse");

#[test]
fn reads_go_to_workers_where_they_cannot_be_tried_or_miss() {
    let aio = Engine::Aio { depth: DEPTH, batch_submit: 1, batch_complete: 1 };
    let table: [(&[_], _, _, _, _); 12] = [
        (&[], RING, false, true, 0..=0),
        (&[MARKED], RING, false, true, 0..=0),
        (&[OFF], RING, false, true, 0..=0),
        (&[OFF, MARKED], RING, false, true, CALLS..=CALLS),
        (&[OFF, MARKED], RING, true, true, CALLS..=CALLS),
        // Some of the pages have been read by earlier calls.
        (&[OFF], RING, false, false, CALLS / 2..=CALLS - 1),
        (&[OFF], RING, true, false, 0..=0),
        (&[OFF, MARKED], aio, false, true, 0..=0),
        // Poll says "ready" of files that have one.
        (&[OFF, POLLED], RING, true, true, CALLS..=CALLS),
        (&[FUSE, POLLED], RING, true, true, 0..=0),
        (&[FUSE, MARKED], RING, true, true, CALLS..=CALLS),
        (&[FUSE], RING, true, true, 0..=0),
    ];
    for (keys, engine, direct, warm, expected) in table {
        let (outcome, _) = read(keys, engine, direct, warm);
        let handed = outcome.layers.handed_over;
        assert!(expected.contains(&handed), "{keys:?} {engine:?}, direct {direct}, warm {warm}: {handed}");
    }
}

#[test]
fn four_workers_for_each_processor_sleep_for_the_device() {
    for (cpus, most) in [("1", 4), ("2", 8), ("8", 32)] {
        let (_, events) = read(&[OFF, MARKED, ("machine.cpus", cpus)], RING, true, false);
        let depth = events.iter().filter_map(|event| match event.what {
            What::Issue { in_flight, .. } => Some(in_flight),
            _ => None,
        });
        assert_eq!(depth.max(), Some(most), "{cpus} processors");
    }
}

#[test]
fn workers_cost_the_processors_more() {
    let cost = |keys: &[_]| read(keys, RING, false, true).0.cpu_busy;
    let (tried, given) = (cost(&[OFF]), cost(&[OFF, MARKED]));
    assert!(given > tried, "{given:?} instead of {tried:?}");
    assert_eq!(cost(&[MARKED]), cost(&[]), "what can be asked is tried on both sides");
}

#[test]
fn what_is_done_at_once_is_fetched_when_the_depth_is_reached() {
    // Of a round of 64 the first waits for all others, the last for none.
    let mean = |engine| {
        let totals = &read(&[], engine, false, true).0.threads[0];
        totals.busy.0 / totals.events
    };
    let alone = mean(Engine::Sync);
    let round = mean(RING) as f64 / alone as f64;
    assert!((0.4..0.6).contains(&(round / f64::from(DEPTH))), "{round} calls");
}

#[test]
fn direct_reads_of_fuse_wait_one_by_one_unless_workers_do_or_the_server_asks() {
    let aio = Engine::Aio { depth: DEPTH, batch_submit: 1, batch_complete: 1 };
    let asked = ("filesystem.async_dio", "on");
    let table: [(&[_], _, bool); 6] = [
        (&[FUSE, MARKED], RING, true),
        (&[FUSE, POLLED], RING, false),
        (&[FUSE], RING, false),
        (&[FUSE], aio, false),
        (&[FUSE, asked, POLLED], RING, true),
        (&[FUSE, asked], aio, true),
    ];
    for (keys, engine, together) in table {
        let (outcome, _) = read(keys, engine, true, false);
        let most = outcome.layers.depth.max();
        assert_eq!(most > Some(1), together, "{keys:?} {engine:?}: {most:?} at the server");
    }
}
