//! Facts of one recording, without any model: where the time of a call goes, by layer, process, file and device; how
//! it spreads and when it changed; who else uses the device.
//!
//! ```text
//! whole      of a command its time by the clock; of anything else the time of its calls, since nobody asked it to be
//!            busy; of requests alone theirs
//! layers     the whole by layer, so that the parts of a call add up to it
//! onset      mean latencies of stretches of equally many calls: the change point (E-divisive) after which they stay
//!            half as long again, or longer
//! modes      of at most 2000 latencies, evenly chosen
//! throttled  share of the time in which calls sleep before a bio that a limit has held back is queued
//! ```
//! Limits: a call that ends after the recording, or began before it, is not counted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use iowhy_stack::event::Op;
use iowhy_stack::trace::{Dev, Rwbs, Seen, Trace};
use iowhy_stack::units::Nanos;
use iowhy_stats::change_points::{self, Settings as Splits};
use iowhy_stats::figure::share;
use iowhy_stats::modes::{self, Mode};
use iowhy_trace::fields::{WAITS_FOR_DESCRIPTORS, field};
use iowhy_trace::join::beside::is_other;
use iowhy_trace::join::{CallRecord, Joined, Who};
use iowhy_trace::settings::Settings;
use iowhy_why::Side;
use iowhy_why::digest::{self, Digest, KIND_OTHER, KIND_SYNC, LAYERS, Layer};
use iowhy_why::rules::Need;
use iowhy_why::rules::cost;

use super::below;

/// Most processes and files that are listed.
const LISTED: usize = 10;
/// Latencies that modes are looked for in.
const SAMPLED: usize = 2000;
/// Share of the calls of a mode that is listed.
const LEAST_SHARE: f64 = 0.02;
/// Stretches of calls that an onset is looked for in, and the least calls of one.
const STRETCHES: usize = 40;
const STRETCH: usize = 5;
/// Growth from which on a change is an onset.
const ONSET: f64 = 1.5;

/// A layer's part of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub layer: &'static str,
    /// Of a call.
    pub ns: f64,
    pub pct: f64,
}

/// A process, or a file, of the target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Doer {
    pub name: String,
    /// Of a process its number.
    pub pid: Option<u32>,
    pub calls: u64,
    /// Time of its calls.
    pub ns: u64,
    /// Read and written.
    pub bytes: [u64; 2],
    /// Pages that it brought into the cache.
    pub pages: u64,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    pub name: String,
    /// Share of the time with something there.
    pub busy_pct: f64,
    /// Share of the time in which a limit held the target's bios back.
    pub throttled_pct: f64,
    /// Share of the time in which it was suspended, if it can be.
    pub asleep_pct: Option<f64>,
    /// Requests there at once, while there is one.
    pub depth: f64,
    /// Reads and writes completed, and their bytes.
    pub requests: [u64; 2],
    pub bytes: [u64; 2],
    /// Mean time from issue to completion.
    pub service_ns: f64,
    /// Other processes with bios, most first.
    pub others: Vec<(String, u64)>,
}

/// When calls became slower.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Onset {
    /// From the first call on.
    pub at_s: f64,
    /// Mean latencies.
    pub before_ns: f64,
    pub after_ns: f64,
}

/// Processes of one name outside the target that a task of it waits for most of the time: its server.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    pub name: String,
    /// Of the time of the recording.
    pub pct: f64,
}

/// Everything seen.
#[derive(Clone, Debug)]
pub struct Facts {
    pub digest: Digest,
    pub settings: Settings,
    pub lacks: Vec<Need>,
    /// The time that a saving is a part of.
    pub whole_ns: f64,
    /// Calls that read and write; syncs without either, or that take most of the time; requests without calls.
    pub calls: u64,
    /// Of these: "read", "write", "sync", "request".
    pub what: &'static str,
    pub layers: Vec<Part>,
    pub processes: Vec<Doer>,
    pub files: Vec<Doer>,
    pub devices: Vec<Device>,
    pub modes: Vec<Mode>,
    pub onset: Option<Onset>,
    pub sleeps: Vec<cost::Sleeps>,
    /// Share of the reads that go on where another one on their file ended.
    pub streams: f64,
    /// Share of the reads that come on an open file behind another task's, at another place.
    pub taken: f64,
    /// Of a command that runs several programs the one that takes the time, if others make more calls at once.
    pub diluted: Option<(String, Vec<u32>)>,
    pub server: Option<Server>,
    /// Length of the recording.
    pub length_ns: u64,
    /// Share of the time in which some tasks of the machine, or all that could run, waited for CPUs, I/O and memory
    /// (PSI): what, percent.
    pub pressure: Vec<(String, f64)>,
}

impl Facts {
    /// Of a recording, and of some of its tasks or all of the workload; it loses what these do not use.
    pub fn of(trace: &mut Trace, who: &Who) -> Facts {
        let length_ns = trace.records.last().map_or(0, |record| record.at.0);
        let tree = iowhy_trace::join::beside::tree(trace, who).unwrap_or_default();
        let others = others(trace, &tree);
        let below = below::of(trace, &tree, &others);
        let (side, joined) = crate::explain::source::alone(trace, who);
        let Side { mut runs, mut settings, lacks, .. } = side;
        let (mut digest, settings) = (runs.pop().unwrap_or_default(), settings.pop().unwrap_or_default());
        if settings.command.is_none() && digest.wall.is_none() {
            digest.share_time();
        }
        let slots = f64::from(digest.time.slots.max(1));
        let of_calls = digest.calls() > 0;
        let whole = |layer: Layer| settings.command.is_some() || !matches!(layer, Layer::Application | Layer::Pause);
        let mut layers: Vec<(&'static str, f64)> = LAYERS
            .iter()
            .filter(|(layer, _)| whole(*layer))
            .map(|(layer, name)| (*name, digest.time.of(*layer) / slots))
            .collect();
        let in_syncs: f64 = digest.time.ns[KIND_SYNC].iter().sum();
        let of_syncs = digest.latency[KIND_SYNC].count() > 0 && in_syncs > 0.5 * digest.time.total();
        let calls = match (of_calls, of_syncs) {
            (true, true) => digest.latency[KIND_SYNC].count(),
            (true, false) => digest.operations(),
            (false, _) => joined.requests.len() as u64,
        };
        if !of_calls {
            layers = of_requests(&joined);
        }
        let whole_ns: f64 = layers.iter().map(|(_, ns)| ns).sum();
        let part = |(layer, ns): (&'static str, f64)| Part {
            layer,
            ns: ns / calls.max(1) as f64,
            pct: 100.0 * ns / whole_ns.max(1.0),
        };
        let kind =
            digest.latency.iter().enumerate().take(2).max_by_key(|(_, of)| of.count()).map_or(0, |(kind, _)| kind);
        let kind = if digest.latency[kind].count() == 0 || of_syncs { KIND_SYNC } else { kind };
        let mut latencies: Vec<(Nanos, u64)> = joined
            .calls
            .iter()
            .filter(|call| kind_of(call.op) == kind)
            .filter_map(|call| Some((call.start, call.end?.saturating_sub(call.start).0)))
            .collect();
        latencies.sort_unstable();
        let processes = processes(trace, &joined);
        let pressure = settings.counters.iter().filter_map(|(key, ns)| {
            Some((key.strip_suffix("_pressure_ns")?.replace('_', ", "), 100.0 * share(*ns, length_ns).min(1.0)))
        });
        let mut facts = Facts {
            pressure: pressure.collect(),
            whole_ns,
            calls,
            what: if of_calls { ["read", "write", "sync"][kind] } else { "request" },
            layers: layers.into_iter().map(part).filter(|part| part.ns > 0.0).collect(),
            diluted: settings.command.and_then(|_| diluted(&processes, whole_ns)),
            server: server(trace, &tree, length_ns),
            processes: longest_first(processes),
            files: files(trace, &joined, &settings),
            devices: devices(trace, &joined, &settings, &digest, &others),
            modes: found_modes(&latencies),
            onset: onset(&latencies),
            sleeps: sleeps(trace, &joined),
            streams: streams(&joined),
            taken: taken(&joined),
            length_ns,
            digest,
            settings,
            lacks,
        };
        if let Some(below) = below {
            below.join(&mut facts.digest, facts.devices.first_mut().map(|device| &mut device.others));
        }
        facts
    }

    /// Settings that are not this kernel's defaults, of the machine and of the disks with requests.
    pub(super) fn unusual(&self) -> Vec<(String, String, &'static str)> {
        let names = self.settings.device_names();
        let other = |place: &str| {
            names.iter().any(|(_, name)| name == place) && self.devices.iter().all(|device| device.name != place)
        };
        let mut all = unusual(&self.settings);
        all.retain(|(what, ..)| !what.split_once(' ').is_some_and(|(place, _)| other(place)));
        all
    }

    /// Time of a call.
    pub fn per_call_ns(&self) -> f64 {
        self.whole_ns / self.calls.max(1) as f64
    }

    /// Calls that neither read nor write nor sync (lookups, lists of folders) wait for most of a command's time.
    pub fn is_of_lookups(&self) -> bool {
        const MOSTLY: f64 = 0.5;
        let facts = self.for_rules();
        let (all, of_lookups) = (facts.in_layers(&digest::WAITS), facts.of_kinds(&[KIND_OTHER], &digest::WAITS));
        self.settings.command.is_some() && all > MOSTLY * self.whole_ns && of_lookups > MOSTLY * all
    }

    /// The part of it that rules see.
    pub fn for_rules(&self) -> cost::Facts<'_> {
        self.with_disk(&[], None)
    }

    /// The same with what was measured of the disk and the machine.
    pub fn with_disk<'a>(&'a self, service: &'a [(u32, f64)], code: Option<cost::Code>) -> cost::Facts<'a> {
        cost::Facts {
            digest: &self.digest,
            settings: &self.settings,
            lacks: &self.lacks,
            whole_ns: self.whole_ns,
            sleeps: &self.sleeps,
            streams: self.streams,
            taken: self.taken,
            others: self.devices.first().map_or(&[], |device| &device.others),
            service,
            code,
            paced: None,
        }
    }
}

/// Of a command that runs several programs the one whose tasks are in calls for most of the run, where others spend
/// more time in theirs all together: what slows it is diluted by them. Its name and tasks.
fn diluted(processes: &[Doer], whole_ns: f64) -> Option<(String, Vec<u32>)> {
    const MOSTLY: f64 = 0.5;
    const HALF: f64 = 0.5;
    let mut programs: BTreeMap<&str, (f64, Vec<u32>)> = BTreeMap::new();
    for doer in processes {
        let (ns, pids) = programs.entry(&doer.name).or_default();
        *ns += doer.ns as f64;
        pids.extend(doer.pid);
    }
    let all: f64 = programs.values().map(|(ns, _)| ns).sum();
    let each = |(ns, pids): &(f64, Vec<u32>)| ns / pids.len().max(1) as f64;
    let long = programs.iter().filter(|(_, of)| of.0 < HALF * all && each(of) >= MOSTLY * whole_ns);
    let (name, (_, pids)) = long.max_by(|a, b| each(a.1).total_cmp(&each(b.1)))?;
    Some(((*name).to_owned(), pids.clone()))
}

/// The one that wakes the task which others wake from the longest sleeps, if these are most of the time.
fn server(trace: &Trace, tree: &BTreeSet<u32>, length_ns: u64) -> Option<Server> {
    const MOSTLY: f64 = 50.0;
    let mut asleep: BTreeMap<u32, Nanos> = BTreeMap::new();
    let mut woken: BTreeMap<(u32, &str), u64> = BTreeMap::new();
    for record in &trace.records {
        match record.seen {
            Seen::Switch { state, .. } if state & 0xff == 1 && tree.contains(&record.pid) => {
                asleep.insert(record.pid, record.at);
            }
            Seen::Wake { pid } => {
                let Some(from) = asleep.remove(&pid).filter(|_| is_other(trace, tree, record.pid)) else { continue };
                let Some(name) = trace.name(record.pid) else { continue };
                *woken.entry((pid, name)).or_default() += record.at.saturating_sub(from).0;
            }
            _ => {}
        }
    }
    let ((_, name), ns) = woken.into_iter().max_by_key(|(_, ns)| *ns)?;
    let pct = 100.0 * share(ns, length_ns);
    (pct >= MOSTLY).then(|| Server { name: name.to_owned(), pct })
}

fn kind_of(op: Op) -> usize {
    iowhy_why::digest::kind_of(op)
}

/// Time of requests until they are inserted, issued, done.
fn of_requests(joined: &Joined) -> Vec<(&'static str, f64)> {
    let mut ns = [0.0; 3];
    for request in &joined.requests {
        let Some(done) = request.completed else { continue };
        let issued = request.issued.unwrap_or(done);
        let inserted = request.inserted.unwrap_or(issued).min(issued);
        let queued = request.queued.unwrap_or(inserted).min(inserted);
        let steps = [inserted.saturating_sub(queued), issued.saturating_sub(inserted), done.saturating_sub(issued)];
        ns.iter_mut().zip(steps).for_each(|(sum, step)| *sum += step.0 as f64);
    }
    ["plug", "elevator", "device"].into_iter().zip(ns).collect()
}

/// Bios of processes outside the workload, by device and name.
fn others(trace: &Trace, tree: &BTreeSet<u32>) -> BTreeMap<(Dev, String), u64> {
    let mut found = BTreeMap::new();
    // Without tasks of the workload nobody is another.
    if tree.is_empty() {
        return found;
    }
    for record in &trace.records {
        let Seen::Queue(extent) = &record.seen else { continue };
        let name = trace.name(record.pid).unwrap_or("");
        if is_other(trace, tree, record.pid) {
            let name = if name.is_empty() { format!("process {}", record.pid) } else { name.to_owned() };
            *found.entry((extent.dev, name)).or_default() += 1;
        }
    }
    found
}

/// Sleeps that the workload's tasks asked for, by process: those before a call of the task, and those after which it
/// wakes another of them. Without either it looks after something now and then.
///
/// A wait for descriptors that its time ends is one if the task has made calls since the last, or others of the process
/// that it waits for shortly: rates are limited so, and servers without work wait so, too.
fn sleeps(trace: &Trace, joined: &Joined) -> Vec<cost::Sleeps> {
    const CLONE_THREAD: u64 = 0x1_0000;
    // With more time it is the turn of a service that looks after itself.
    const SHORTLY: u64 = 50_000_000;
    // A timer is no more exact (`timer_slack_ns`): what takes less has not waited, but looked.
    const LEAST: u64 = 50_000;
    let own = |pid: u32| joined.tree.as_ref().is_none_or(|tree| tree.contains(&pid));
    let process_of = |processes: &BTreeMap<u32, u32>, pid| processes.get(&pid).copied().unwrap_or(pid);
    // By thread; those from before the recording count as processes.
    let mut process: BTreeMap<u32, u32> = BTreeMap::new();
    let (mut open, mut at_work, mut others) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    // Sleeps since a task's last call.
    let mut since_call: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let mut asleep: BTreeMap<u32, cost::Sleeps> = BTreeMap::new();
    let counts = |asleep: &mut BTreeMap<u32, cost::Sleeps>, pid: u32, slept: &[u64]| {
        for ns in slept.iter().map(|ns| *ns as f64) {
            let sum = asleep.entry(pid).or_default();
            *sum = sum.and(cost::Sleeps { times: 1, ns, once_ns: ns, ..cost::Sleeps::default() });
        }
    };
    for record in trace.records.iter().filter(|record| own(record.pid)) {
        let of = process_of(&process, record.pid);
        let Seen::Other { name, fields } = &record.seen else {
            match record.seen {
                Seen::CallStart { .. } => {
                    at_work.insert(record.pid);
                    others.insert(of);
                    counts(&mut asleep, record.pid, &since_call.remove(&record.pid).unwrap_or_default());
                }
                Seen::Wake { pid } if own(pid) => {
                    let last = since_call.get_mut(&record.pid).and_then(Vec::pop);
                    counts(&mut asleep, record.pid, last.as_slice());
                }
                _ => {}
            }
            continue;
        };
        let number = |name: &str| field(fields, name)?.parse::<u64>().ok();
        if name == "task:task_newtask"
            && let Some(new) = number("pid").filter(|_| number("clone_flags").is_some_and(|of| of & CLONE_THREAD != 0))
        {
            process.insert(new as u32, of);
        }
        let Some((way, call)) = name.strip_prefix("syscalls:sys_").and_then(|name| name.split_once('_')) else {
            continue;
        };
        let waits = WAITS_FOR_DESCRIPTORS.contains(&call);
        if !waits && !call.ends_with("nanosleep") {
            continue;
        }
        if way == "enter" {
            open.insert(record.pid, record.at);
        } else if let Some(since) = open.remove(&record.pid) {
            let slept = record.at.saturating_sub(since).0;
            let mut limited = || at_work.remove(&record.pid) || slept < SHORTLY && others.remove(&of);
            if !waits {
                since_call.entry(record.pid).or_default().push(slept);
            } else if slept >= LEAST && field(fields, "ret") == Some("0") && limited() {
                counts(&mut asleep, record.pid, &[slept]);
            }
        }
    }
    for (pid, mut slept) in since_call {
        counts(&mut asleep, pid, slept.pop().as_slice());
    }
    let of = |pid| process_of(&process, pid);
    let mut found: BTreeMap<u32, cost::Sleeps> = BTreeMap::new();
    for (pid, task) in asleep {
        let sum = found.entry(of(pid)).or_default();
        *sum = sum.and(cost::Sleeps { longest_ns: task.ns, ..task });
    }
    for call in &joined.calls {
        if let Some(sum) = found.get_mut(&of(call.pid)) {
            sum.moved += call.moved();
        }
    }
    found.into_values().collect()
}

/// Share of the reads that begin where one of the last ones on their file ended, or are larger than a usual window and
/// so streams by themselves: the lengths of vectored calls are only known from their results.
fn streams(joined: &Joined) -> f64 {
    const LAST: usize = 16;
    const WINDOW: u64 = 128 << 10;
    let mut ends: BTreeMap<u32, VecDeque<u64>> = BTreeMap::new();
    let (mut reads, mut going_on) = (0, 0);
    for call in joined.calls.iter().filter(|call| call.op == Op::Read) {
        let (Some(file), Some(offset)) = (call.file, call.offset) else { continue };
        let last = ends.entry(file).or_default();
        reads += 1;
        let place = last.iter().position(|end| *end == offset);
        if let Some(place) = place {
            last.remove(place);
        }
        let done = call.moved();
        going_on += u64::from(place.is_some() || done > WINDOW);
        last.push_back(offset.saturating_add(done));
        if last.len() > LAST {
            last.pop_front();
        }
    }
    share(going_on, reads)
}

/// Share of the reads that come on an open file behind another task's, at another place.
fn taken(joined: &Joined) -> f64 {
    let mut last: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
    let (mut reads, mut taken) = (0, 0);
    for call in joined.calls.iter().filter(|call| call.op == Op::Read && call.fd >= 0 && call.file.is_some()) {
        let Some(offset) = call.offset else { continue };
        let done = call.moved();
        let before = last.insert(call.open, (call.pid, offset.saturating_add(done)));
        reads += 1;
        taken += u64::from(before.is_some_and(|(pid, end)| pid != call.pid && end != offset));
    }
    share(taken, reads)
}

fn longest_first(mut doers: Vec<Doer>) -> Vec<Doer> {
    doers.sort_by(|a, b| (b.ns, &a.name).cmp(&(a.ns, &b.name)));
    doers.truncate(LISTED);
    doers
}

fn add(doer: &mut Doer, call: &CallRecord) {
    let Some(end) = call.end else { return };
    doer.calls += 1;
    doer.ns += end.saturating_sub(call.start).0;
    doer.pages += call.pages_added;
    let done = call.moved();
    if let Some(bytes) = doer.bytes.get_mut(kind_of(call.op)) {
        *bytes += done;
    }
}

fn processes(trace: &Trace, joined: &Joined) -> Vec<Doer> {
    let mut by: BTreeMap<u32, Doer> = BTreeMap::new();
    joined.calls.iter().for_each(|call| add(by.entry(call.pid).or_default(), call));
    let named = |(pid, doer)| Doer { name: trace.name(pid).unwrap_or("?").to_owned(), pid: Some(pid), ..doer };
    by.into_iter().map(named).collect()
}

fn files(trace: &Trace, joined: &Joined, settings: &Settings) -> Vec<Doer> {
    let devices = settings.device_names();
    let mut by: BTreeMap<u32, Doer> = BTreeMap::new();
    for call in &joined.calls {
        if let Some(file) = call.file {
            add(by.entry(file).or_default(), call);
        }
    }
    let named = |(file, doer): (u32, Doer)| {
        let inode = joined.files.get(file as usize).copied().unwrap_or_default();
        let path = trace.paths.iter().find(|(known, _)| *known == inode).map(|(_, path)| path.clone());
        // Calls of rings name no file, and are the device's.
        let device = devices.iter().find(|(dev, _)| inode.dev == Dev(0) && inode.ino == u64::from(dev.0));
        let name = path.or_else(|| device.map(|(_, name)| format!("/dev/{name}")));
        Doer { name: name.unwrap_or_else(|| format!("inode {}", inode.ino)), ..doer }
    };
    longest_first(by.into_iter().map(named).collect())
}

fn devices(
    trace: &Trace,
    joined: &Joined,
    settings: &Settings,
    digest: &Digest,
    others: &BTreeMap<(Dev, String), u64>,
) -> Vec<Device> {
    let names = settings.device_names();
    let last = trace.records.last().map_or(Nanos(0), |record| record.at);
    let span = settings.command.map_or([Nanos(0), last], |command| command.span);
    let span_ns = span[1].saturating_sub(span[0]).0.max(1) as f64;
    let held = digest.wall.as_ref().is_some_and(|wall| wall.held_back > 0);
    let asleep = (digest.time.of(Layer::Lock) + digest.time.of(Layer::Journal)) / f64::from(digest.time.slots.max(1));
    let mut by: BTreeMap<Dev, (Device, Vec<(Nanos, i64)>)> = BTreeMap::new();
    for request in &joined.requests {
        let (Some(issued), Some(done)) = (request.issued, request.completed) else { continue };
        let (device, changes) = by.entry(request.extent.dev).or_default();
        let way = usize::from(!request.extent.rwbs.has(Rwbs::READ));
        device.requests[way] += 1;
        device.bytes[way] += u64::from(request.extent.bytes);
        device.service_ns += done.saturating_sub(issued).0 as f64;
        changes.extend([(issued, 1), (done, -1)]);
    }
    let mut found: Vec<Device> = by
        .into_iter()
        .map(|(dev, (mut device, mut changes))| {
            changes.sort_unstable();
            let (mut depth, mut busy, mut since) = (0_i64, 0.0, Nanos(0));
            for (at, change) in changes {
                let (from, to) = (since.clamp(span[0], span[1]), at.clamp(span[0], span[1]));
                busy += if depth > 0 { to.saturating_sub(from).0 as f64 } else { 0.0 };
                (depth, since) = (depth + change, at);
            }
            let all = device.requests[0] + device.requests[1];
            device.busy_pct = 100.0 * (busy / span_ns).min(1.0);
            device.depth = if busy > 0.0 { (device.service_ns / busy).max(1.0) } else { 0.0 };
            device.service_ns /= all.max(1) as f64;
            let name = names.iter().find(|(known, _)| *known == dev).map(|(_, name)| name.clone());
            device.name = name.unwrap_or_else(|| format!("{}:{}", dev.major(), dev.minor()));
            let suspended = settings.counters.get(&format!("{}_asleep_ns", device.name));
            device.asleep_pct = suspended.map(|ns| 100.0 * (*ns as f64 / last.0.max(1) as f64).min(1.0));
            device.throttled_pct = if held { 100.0 * (asleep / span_ns).min(1.0) } else { 0.0 };
            device.others = below::on(others, dev);
            device
        })
        .collect();
    found.sort_by_key(|device| std::cmp::Reverse(device.requests[0] + device.requests[1]));
    found
}

/// Modes, if there are more than one.
fn found_modes(latencies: &[(Nanos, u64)]) -> Vec<Mode> {
    let step = latencies.len().div_ceil(SAMPLED).max(1);
    let values: Vec<f64> = latencies.iter().step_by(step).map(|(_, ns)| *ns as f64).collect();
    modes::find(&values, 0.01).into_iter().filter(|mode| mode.share >= LEAST_SHARE).collect()
}

/// The largest lasting growth.
fn onset(latencies: &[(Nanos, u64)]) -> Option<Onset> {
    let each = latencies.len().div_ceil(STRETCHES).max(STRETCH);
    let stretches: Vec<&[(Nanos, u64)]> = latencies.chunks(each).filter(|stretch| stretch.len() == each).collect();
    let mean = |stretch: &&[(Nanos, u64)]| share(stretch.iter().map(|(_, ns)| ns).sum(), stretch.len() as u64);
    let series: Vec<f64> = stretches.iter().map(mean).collect();
    let found = change_points::e_divisive(&series, &Splits::default());
    let grown = found.points.iter().filter(|point| point.mean_after > ONSET * point.mean_before);
    let most = grown.max_by(|a, b| (a.mean_after / a.mean_before).total_cmp(&(b.mean_after / b.mean_before)))?;
    let at = stretches.get(most.index)?.first()?.0.saturating_sub(latencies.first()?.0);
    Some(Onset { at_s: at.0 as f64 / 1e9, before_ns: most.mean_before, after_ns: most.mean_after })
}

/// Settings that are not this kernel's defaults: what, the value, what is usual.
pub(super) fn unusual(settings: &Settings) -> Vec<(String, String, &'static str)> {
    const USUAL: [(&str, &str); 22] = [
        ("read_ahead_kb", "128"),
        ("inode_readahead_blks", "32"),
        ("nomerges", "0"),
        ("bdi/strict_limit", "0"),
        ("bdi/max_ratio", "100"),
        ("vm.dirty_bytes", "0"),
        ("vm.dirty_ratio", "20"),
        ("vm.dirty_background_bytes", "0"),
        ("vm.dirty_background_ratio", "10"),
        ("vm.dirty_expire_centisecs", "3000"),
        ("vm.dirty_writeback_centisecs", "500"),
        ("vm.swappiness", "60"),
        ("nice", "0"),
        ("iosched/writes_starved", "2"),
        ("iosched/fifo_batch", "16"),
        ("iosched/read_expire", "500"),
        ("iosched/write_expire", "5000"),
        ("iosched/prio_aging_expire", "10000"),
        ("iosched/read_lat_nsec", "2000000"),
        ("iosched/write_lat_nsec", "10000000"),
        ("iosched/slice_idle", "8"),
        ("iosched/low_latency", "1"),
    ];
    const SCHEDULERS: [&str; 2] = ["none", "mq-deadline"];
    // KiB of a request that no default is below, unless the device takes less.
    const LARGE: u64 = 512;
    // A queue of fewer requests, and a goal of writeback throttling below that of a disk without a rotor.
    const FEW: u64 = 32;
    const TIGHT_US: u64 = 2000;
    const OPTIONS: [&str; 6] = ["sync", "dirsync", "wsync", "data=journal", "barrier=0", "nobarrier"];
    let number = |text: &str| text.parse::<u64>().ok();
    let of = |((place, key), value): (&(String, String), &String)| {
        let usual = USUAL.iter().find(|(known, _)| known == key);
        let (value, usual) = match key.as_str() {
            "scheduler" if !SCHEDULERS.contains(&value.as_str()) => (value.clone(), "none or mq-deadline"),
            "mount_options" => {
                let odd: Vec<&str> = value.split(',').filter(|word| OPTIONS.contains(word)).collect();
                if odd.is_empty() {
                    return None;
                }
                (odd.join(","), "none of these")
            }
            "nr_requests" if number(value).is_some_and(|nr| nr < FEW) => (value.clone(), "64 or more"),
            "wbt_lat_usec" if number(value).is_some_and(|us| (1..TIGHT_US).contains(&us)) => {
                (value.clone(), "2000 or more")
            }
            // Where no head moves, a kernel may read two of the largest requests ahead.
            "read_ahead_kb"
                if number(value) == settings.get(place, "max_sectors_kb").and_then(number).map(|kb| 2 * kb) =>
            {
                return None;
            }
            // File systems with a backing device of their own choose larger ones.
            "read_ahead_kb" if place.starts_with('/') && number(value).is_some_and(|kb| kb >= 128) => return None,
            "max_sectors_kb" => {
                let most = settings.get(place, "max_hw_sectors_kb").and_then(number).unwrap_or(LARGE);
                if number(value).is_none_or(|kb| kb >= most.min(LARGE)) {
                    return None;
                }
                (value.clone(), "512 or more")
            }
            _ if place == "cgroup" => (value.clone(), "unset"),
            _ => match usual {
                Some((_, usual)) if value != usual => (value.clone(), *usual),
                _ => return None,
            },
        };
        let place = if place == "sysctl" { String::new() } else { format!("{place} ") };
        Some((format!("{place}{key}"), value, usual))
    };
    settings.values.iter().filter_map(of).collect()
}

/// The disk whose queue is the recording's, and a setting of it that the kernel lets be changed while it is used.
pub(crate) fn is_of_queue(setting: &str) -> Option<(&'static str, &str)> {
    const KEYS: [&str; 6] = ["read_ahead_kb", "scheduler", "nr_requests", "max_sectors_kb", "nomerges", "wbt_lat_usec"];
    let (key, value) = setting.split_once('=')?;
    Some((KEYS.into_iter().find(|known| *known == key)?, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_onset_is_a_growth_that_stays() {
        // Latencies of 200 calls, one every 10 ms: those of the first ones, those after, and where they change.
        for (before, after, at, expected) in [
            (100, 300, 100, Some(1.0)),
            (100, 140, 100, None),
            (300, 100, 100, None),
            (100, 100, 100, None),
            (100, 400, 150, Some(1.5)),
        ] {
            let of = |nr: u64| (Nanos(nr * 10_000_000), if nr < at { before } else { after } + nr % 7);
            let calls: Vec<(Nanos, u64)> = (0..200).map(of).collect();
            assert_eq!(onset(&calls).map(|onset| onset.at_s), expected, "{before} to {after} at {at}");
        }
    }

    #[test]
    fn sleeps_are_those_of_tasks_that_go_on_with_the_work() {
        // What follows a sleep of task 7; whether each of three such sleeps counts.
        for (call, ret, ns, after, each) in [
            ("clock_nanosleep", 0, 200_000, "job-7 [000] ..... 0.TIME: sys_read(fd: 3, buf: 0, count: 1000)", true),
            ("clock_nanosleep", 0, 200_000, "job-7 [000] ..... 0.TIME: sched_waking: pid=8", true),
            ("clock_nanosleep", 0, 200_000, "job-8 [000] ..... 0.TIME: sys_read(fd: 3, buf: 0, count: 1000)", false),
            ("clock_nanosleep", 0, 200_000, "job-7 [000] ..... 0.TIME: sched_waking: pid=9", false),
            ("epoll_wait", 0, 50_000, "job-7 [000] ..... 0.TIME: sys_read(fd: 3, buf: 0, count: 1000)", true),
            ("epoll_wait", 0, 49_000, "job-7 [000] ..... 0.TIME: sys_read(fd: 3, buf: 0, count: 1000)", false),
            ("epoll_wait", 1, 200_000, "job-7 [000] ..... 0.TIME: sys_read(fd: 3, buf: 0, count: 1000)", false),
        ] {
            let mut text = "# tracer: nop\n".to_owned();
            let mut line = |at: u64, of: &str| text.push_str(&format!("{}\n", of.replace("TIME", &format!("{at:09}"))));
            line(1, "job-7 [000] ..... 0.TIME: sys_read(fd: 3, buf: 0, count: 1000)");
            for nr in 0..3 {
                let from = 1_000_000 * (nr + 1);
                line(from, &format!("job-7 [000] ..... 0.TIME: syscalls:sys_enter_{call}: __syscall_nr=1"));
                line(
                    from + ns,
                    &format!("job-7 [000] ..... 0.TIME: syscalls:sys_exit_{call}: __syscall_nr=1 ret={ret}"),
                );
                line(from + ns + 10, after);
            }
            let mut problems = iowhy_text::diagnose::Problems::default();
            let trace = iowhy_trace::format::read("t.trace", text.as_bytes(), &mut problems).expect("a trace");
            let joined = Joined { tree: Some([7, 8].into()), ..Joined::default() };
            let times: u64 = sleeps(&trace, &joined).iter().map(|of| of.times).sum();
            // The last one has nothing behind it that would tell.
            let expected = if each { 3 } else { u64::from(call == "clock_nanosleep") };
            assert_eq!(times, expected, "{call} {ret} {ns} {after}");
        }
    }

    #[test]
    fn a_server_wakes_its_client_from_most_of_its_sleeps() {
        // Task and name of those that end two sleeps, of 600 and of 300 of 1000 ns; the server that is named.
        for (wakers, expected) in [
            ([(9, "server"), (9, "server")], Some(("server", 90.0))),
            ([(9, "server"), (0, "<idle>")], Some(("server", 60.0))),
            ([(0, "<idle>"), (9, "server")], None),
            ([(9, "kworker/0:1"), (9, "kworker/0:1")], None),
            ([(8, "client"), (8, "client")], None),
        ] {
            let mut text = "# tracer: nop\n".to_owned();
            for ((from, to), (pid, name)) in [(50, 650), (700, 1000)].into_iter().zip(wakers) {
                text.push_str(&format!(
                    "client-7 [000] ..... 0.{from:09}: sched_switch: prev_comm=client prev_state=S ==> next_pid=0\n\
                     {name}-{pid} [001] ..... 0.{to:09}: sched_waking: pid=7\n"
                ));
            }
            let mut problems = iowhy_text::diagnose::Problems::default();
            let trace = iowhy_trace::format::read("t.trace", text.as_bytes(), &mut problems).expect("a trace");
            let found = server(&trace, &[7, 8].into(), 1000);
            assert_eq!(found.as_ref().map(|of| (of.name.as_str(), of.pct)), expected, "{wakers:?}");
        }
    }
}
