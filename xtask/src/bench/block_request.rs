//! A block request through every layer below the page cache: bio, task plug, merge search, elevator, device and
//! completion, with the per-stage statistics and the event hash on, 32 outstanding 4 KiB random reads.
//!
//! The peer is SimPy's idea of the same: a resource of eight channels and a timeout. It models far less, so the ratio
//! says what a hand-made model would cost, not that ours is that much better written. Both must agree on the number of
//! completed requests; ours checks by its event hash that it completes the same ones each time. The same reads as calls
//! of a program on eight CPUs, with what code costs there, are a second figure.

use super::peer::Peer;
use super::{Aim, Figure, Measure, Sample, Setting, compare, cpu_ns};
use iowhy_stack::block::rules::{Kind, QueueRules};
use iowhy_stack::block::{BlockQueue, PlugList, QueueLimits, Wakeup};
use iowhy_stack::elevator::ELEVATORS;
use iowhy_stack::event::{CallId, Content, Dir, Op, UnplugCause};
use iowhy_stack::job::{Job, Workload};
use iowhy_stack::kernel::{Stack, find_kernel};
use iowhy_stack::outcome::Plan;
use iowhy_stack::queue::EventQueue;
use iowhy_stack::record::Recorder;
use iowhy_stack::request::{Bio, BioId, IoContext};
use iowhy_stack::rng::Rng;
use iowhy_stack::sim;
use iowhy_stack::units::{Nanos, Sector};
use iowhy_stack::workload::{Dialect, FileIo, Mode, PositionSource};
use serde_json::json;

const DEPTH: u32 = 32;
const REQUESTS: u64 = 400_000;
/// The peer does fewer: it is slow, and each of its requests costs the same.
const PEER_PART: u64 = 8;

pub(super) fn run(setting: &Setting) -> Result<Vec<Figure>, String> {
    let count = REQUESTS / setting.divisor as u64;
    let mut figures = Vec::new();
    for elevator in ["none", "mq-deadline"] {
        let mut hash = None;
        // A run lasts some 50 ms, in which a processor that has just changed hands is still getting up to speed; the
        // peer's takes seconds. So each of ours is made three times in a row, and the last is timed.
        let mut ours = || {
            requests(elevator, count, &mut hash)?;
            requests(elevator, count, &mut hash)?;
            requests(elevator, count, &mut hash).map(|ns| Sample { ns, answer: count })
        };
        let gaps: Vec<u64> = (0..1 << 12).map(|n| 60_000 + n * 7_919 % 40_000).collect();
        let peer = Peer::start(setting, "simpy==4.1.2", include_str!("peers/simpy_peer.py"))
            .and_then(|mut peer| peer.measure(&json!({ "kind": "gaps", "gaps": gaps })).map(|_| peer));
        let mut simpy = peer.map(|mut peer| {
            let part = (count / PEER_PART).max(1);
            let request = json!({ "kind": "requests", "depth": DEPTH, "count": part });
            move || {
                let sample = peer.measure(&request)?;
                let answer = if sample.answer == part { count } else { 0 };
                Ok(Sample { ns: sample.ns, answer })
            }
        });
        let simpy = simpy.as_mut().map(|measure| measure as Measure<'_>).map_err(|reason| reason.clone());
        let aim = Aim { unit: "ns/request", peer_name: "simpy", goal: Some(25.0), limit: Some(150.0) };
        figures.push(compare(setting, format!("block request, queue depth 32, {elevator}"), aim, &mut ours, simpy)?);
    }
    // Every other elevator, under the rules of a kernel of its kind: what one costs beside another.
    for entry in ELEVATORS.iter().filter(|entry| !["none", "mq-deadline"].contains(&entry.name)) {
        let mut hash = None;
        let mut ours = || {
            requests(entry.name, count, &mut hash)?;
            requests(entry.name, count, &mut hash).map(|ns| Sample { ns, answer: count })
        };
        let aim = Aim { unit: "ns/request", peer_name: "none", goal: None, limit: None };
        let none = Err("a table of our own elevators".to_owned());
        figures.push(compare(setting, format!("block request, {}", entry.name), aim, &mut ours, none)?);
    }
    let mut plan = plan(Mode::RandomRead, 4096, 1, count)?;
    if let Some(fileio) = plan.job.fileio_mut() {
        fileio.direct = true;
        fileio.in_flight = DEPTH;
    }
    let mut hash = None;
    let mut ours = || simulate(&plan, count, 1, &mut hash).map(|ns| Sample { ns, answer: count });
    let aim = Aim { unit: "ns/call", peer_name: "none", goal: None, limit: None };
    let none = Err("no peer models all of this: shown for comparison".to_owned());
    figures.push(compare(setting, "direct 4k read call on 8 CPUs, 32 in flight".to_owned(), aim, &mut ours, none)?);
    Ok(figures)
}

/// CPU time of each of `count` requests, `DEPTH` of them outstanding.
fn requests(elevator: &str, count: u64, hash: &mut Option<u64>) -> Result<f64, String> {
    // blk-mq with all layers, writeback throttle included; elevators of older kernels with their kind of queue.
    let multi = ["none", "mq-deadline", "mq-deadline-6.1", "kyber", "bfq"].contains(&elevator);
    let kernel = if multi { "linux-6.18" } else { "linux-4.4" };
    let mut stack = Stack::new(find_kernel(kernel).ok_or("the kernel is not listed")?);
    stack.set_device("nvme").map_err(|error| error.to_string())?;
    let rules = QueueRules::from_options(&stack.options);
    if (rules.kind == Kind::Multi) != multi {
        return Err(format!("WRONG ANSWER: {kernel} has another kind of queue"));
    }
    stack.set("elevator", elevator).map_err(|error| error.to_string())?;
    let hz = stack.hz();
    let limits = QueueLimits {
        hz,
        max_sectors: 2560,
        max_segments: 168,
        nr_requests: 0,
        batch_requests: 32,
        batch_time: Nanos::from_ms(20),
        max_queue_sectors: 0,
        command: Nanos::ZERO,
        interrupt: Nanos::ZERO,
        kblockd: Nanos::from_us(15),
    };
    let device = (stack.device.entry.build)(&stack.device.options, Rng::stream(1, "device"));
    let elevator = (stack.elevator.entry.build)(&stack.elevator.options, hz);
    let plugging = (stack.plug.entry.build)(&stack.plug.options);
    let mut queue = BlockQueue::new(limits, elevator, device, plugging).with_rules(rules);
    let mut recorder = Recorder::new(None);
    let mut due: EventQueue<Wakeup> = EventQueue::default();
    let mut positions = Rng::stream(1, "positions");
    let (mut sent, mut done, mut now) = (0, 0, Nanos::ZERO);
    let mut plug = PlugList::new();
    let start = cpu_ns();
    while done < count {
        while sent < count && sent - done < u64::from(DEPTH) {
            sent += 1;
            let bio = Bio {
                sector: Sector(positions.below(1 << 24) * 8),
                nr_sectors: 8,
                dir: Dir::Read,
                content: Content::Data,
                sync: true,
                no_idle: false,
                class: iowhy_stack::request::IoClass::BestEffort,
                prio: false,
                flush: false,
                context: IoContext { task: 0, thread_group: 0 },
                call: CallId(sent as u32),
                queued: now,
                token: sent,
                next: BioId::NONE,
            };
            queue.submit(now, bio, Some(&mut plug), &mut recorder);
            queue.flush_plug(now, &mut plug, UnplugCause::Finish, &mut recorder);
        }
        queue.wakeups(|at, wakeup| due.push(at, wakeup));
        let (at, wakeup) = due.pop().ok_or("WRONG ANSWER: requests are outstanding and nothing is due")?;
        now = at;
        queue.wake(now, wakeup, &mut recorder);
        while queue.take_finished().is_some() {
            done += 1;
        }
    }
    let spent = cpu_ns() - start;
    let (found, layers) = recorder.finish(now);
    if layers.reads.completed != count {
        return Err(format!("WRONG ANSWER: {} requests were done, {count} were asked for", layers.reads.completed));
    }
    if *hash.get_or_insert(found.value()) != found.value() {
        return Err("WRONG ANSWER: two runs had different events".to_owned());
    }
    Ok(spent as f64 / count as f64)
}

/// A run of `events` calls of `block_bytes` on a file of 1 GiB, on a machine and device of today.
pub(super) fn plan(mode: Mode, block_bytes: u32, threads: u32, events: u64) -> Result<Plan, String> {
    let kernel = find_kernel("linux-6.18").ok_or("the kernel is not listed")?;
    let fileio = FileIo {
        threads,
        nr_files: 1,
        total_bytes: 1 << 30,
        block_bytes,
        mode,
        rw_ratio_milli: 1_500,
        fsync_freq: 0,
        fsync_all: false,
        fsync_end: false,
        fsync_op: Op::Fsync,
        synchronous_writes: None,
        merged_requests: 0,
        max_events: events,
        max_time: Nanos::ZERO,
        rate: 0,
        dialect: Dialect::V1_0,
        positions: PositionSource::Seeded(1),
        own_descriptors: false,
        linux_threads: false,
        direct: false,
        in_flight: 1,
    };
    let job = Job { mapping_cached: true, ..Job::new(Workload::FileIo(fileio), 1) };
    Ok(Plan { stack: Stack::new(kernel), job })
}

/// Runs `plan` and returns the CPU time of each of its `count` calls, divided by the operations in one. Every run must
/// have the same event hash, which is kept in `hash`.
pub(super) fn simulate(plan: &Plan, count: u64, per_call: u64, hash: &mut Option<u64>) -> Result<f64, String> {
    let start = cpu_ns();
    let outcome = sim::run(plan).map_err(|error| error.to_string())?;
    let spent = cpu_ns() - start;
    let done = outcome.counts.reads;
    if done != count {
        return Err(format!("WRONG ANSWER: {done} reads were done, {count} were asked for"));
    }
    let expected = *hash.get_or_insert(outcome.event_hash);
    if expected != outcome.event_hash {
        return Err("WRONG ANSWER: two runs of one plan had different events".to_owned());
    }
    Ok(spent as f64 / (count * per_call) as f64)
}
