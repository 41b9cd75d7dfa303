//! One thing at a time that could be different: settings that a person may change, and the switches of the rules.
//!
//! Each is a plan that differs from the twin's in one thing, and the rule that it speaks for if the events of both do
//! not name one. Those of a family (`read_ahead_kb`) are steps of one setting, of which one is chosen. Changes that
//! cannot matter are left out: without writes limits of dirty pages, without reads through the page cache read-ahead.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use iowhy_stack::event::Op;
use iowhy_stack::job::{Engine, ThreadJob, Workload};
use iowhy_stack::kernel::{PATCHES, Stack};
use iowhy_stack::outcome::Plan;
use iowhy_stack::readahead::Advice;
use iowhy_stack::units::SECTOR_BYTES;
use iowhy_stack::workload::{How, Path, Scripted};
use iowhy_why::rules::{RULES, Rule, Switch};

/// Something that is different.
pub(super) struct Change {
    /// `KEY=VALUE`, or in words.
    pub(super) setting: String,
    pub(super) family: &'static str,
    /// The rule that it speaks for by itself.
    pub(super) rule: &'static str,
    /// Rules that may be named for it.
    pub(super) rules: Vec<&'static str>,
    /// The program itself would have to be changed.
    pub(super) of_program: bool,
    /// The ledger can set it on the running machine.
    pub(super) safe: bool,
    /// How far it is from the setting as it is.
    pub(super) step: f64,
    pub(super) plan: Plan,
}

/// The calls that a setting matters to.
#[derive(Copy, Clone, PartialEq, Eq)]
enum For {
    Cached,
    Writes,
    All,
}

impl For {
    /// Whether it matters to the first `own` threads of a plan.
    fn matters(self, plan: &Plan, own: usize) -> bool {
        let mut steps = threads(plan)[..own].iter().flat_map(script);
        match self {
            For::Cached => steps.any(|step| step.call.op == Op::Read && how_of(step).path != Path::Direct),
            For::Writes => steps.any(|step| step.call.op != Op::Read),
            For::All => true,
        }
    }
}

/// A safe setting that matters to a plan: its name on a machine, its key of a stack, and its values: that on a machine
/// with that of a stack.
pub(super) struct Knob {
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    pub(super) now: String,
    pub(super) values: Vec<(&'static str, &'static str)>,
}

/// Every safe setting that matters to the first `own` threads of a plan, with the values other than its own.
pub(super) fn knobs(plan: &Plan, own: usize) -> Vec<Knob> {
    let known = SETTINGS.iter().filter(|it| it.safe && it.of.matters(plan, own));
    known
        .filter_map(|it| {
            let now = value_of(&plan.stack, it.key)?;
            let values = it.values.iter().filter(|value| **value != now).map(|value| (shown(value), *value)).collect();
            Some(Knob { name: it.name, key: it.key, now: shown(&now).to_owned(), values })
        })
        .collect()
}

/// A value of a stack as a machine has it.
fn shown(value: &str) -> &str {
    if value == "off" { "0" } else { value }
}

/// A setting with the values that are tried.
struct Setting {
    /// Its name on a machine, and its key of a stack.
    name: &'static str,
    key: &'static str,
    values: &'static [&'static str],
    of: For,
    safe: bool,
    /// The rule if the value is below the one it has, and above.
    rules: [&'static str; 2],
}

const fn setting(
    name: &'static str,
    key: &'static str,
    values: &'static [&'static str],
    of: For,
    rules: [&'static str; 2],
) -> Setting {
    Setting { name, key, values, of, safe: true, rules }
}

/// One of the scheduler: what it does without, or its default.
const fn tunable(
    name: &'static str,
    key: &'static str,
    values: &'static [&'static str],
    rule: &'static str,
) -> Setting {
    Setting { safe: false, ..setting(name, key, values, For::All, [rule; 2]) }
}

const SETTINGS: &[Setting] = &[
    setting(
        "read_ahead_kb",
        "read_ahead_kb",
        &["0", "16", "32", "64", "128", "256", "512", "1024", "2048", "4096"],
        For::Cached,
        ["window-too-large", "window-too-small"],
    ),
    setting("scheduler", "elevator", &["none", "mq-deadline", "kyber", "bfq"], For::All, ["lost-locality"; 2]),
    setting(
        "nr_requests",
        "nr_requests",
        &["32", "64", "128", "256", "1024"],
        For::All,
        ["lost-locality", "queue-depth-one"],
    ),
    setting(
        "max_sectors_kb",
        "max_sectors_kb",
        &["64", "128", "512", "1280"],
        For::All,
        ["merge-delays-first-page", "requests-cut"],
    ),
    setting("nomerges", "nomerges", &["0"], For::All, ["merging-off"; 2]),
    setting("wbt_lat_usec", "wbt", &["off"], For::Writes, ["writeback-throttling"; 2]),
    setting("vm.dirty_ratio", "writeback.dirty_ratio", &["10", "20", "40", "80"], For::Writes, ["early-writeback"; 2]),
    setting(
        "vm.dirty_background_ratio",
        "writeback.dirty_background_ratio",
        &["5", "10", "20", "40"],
        For::Writes,
        ["early-writeback"; 2],
    ),
    tunable("iosched/slice_idle", "elevator.slice_idle_us", &["0"], "slice-idling"),
    tunable("iosched/low_latency", "elevator.low_latency", &["off"], "slice-idling"),
    tunable("iosched/writes_starved", "elevator.writes_starved", &["2"], "writes-starved"),
    tunable("iosched/fifo_batch", "elevator.fifo_batch", &["16"], "lost-locality"),
    tunable("iosched/read_expire", "elevator.read_expire_ms", &["500"], "reads-starved"),
    tunable("iosched/write_expire", "elevator.write_expire_ms", &["5000"], "writes-starved"),
    tunable("iosched/write_lat_nsec", "elevator.write_lat_us", &["10000"], "writes-starved"),
    tunable("iosched/read_lat_nsec", "elevator.read_lat_us", &["2000"], "reads-starved"),
];

/// Sizes of calls, and calls in flight.
const SIZES: &[u32] = &[64 << 10, 256 << 10, 1 << 20];
const DEPTHS: &[u32] = &[4, 16, 64];

/// A rule by its name.
pub(super) fn rule(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == name).copied()
}

/// Whether a rule's switches name a setting, by its key of a stack or its name on a machine.
fn is_switch_of(rule: &Rule, key: &str, name: &str) -> bool {
    rule.switches.iter().any(|switch| match *switch {
        Switch::Key(of, _) | Switch::Other(of) => of == key,
        Switch::OtherKind(kind) => key.starts_with(kind),
        Switch::Queue(of) | Switch::QueueTo(of, _) => of == name,
        _ => false,
    })
}

fn value_of(stack: &Stack, key: &str) -> Option<String> {
    let shown = |options: &iowhy_stack::origin::Options, name: &str| {
        options.iter().find(|(spec, _)| spec.name == name).map(|(spec, value)| spec.show(value))
    };
    match key.split_once('.') {
        Some((kind, name)) => {
            let kind = iowhy_stack::kernel::KINDS.iter().find(|known| known.key == kind)?;
            shown((kind.options)(stack), name)
        }
        None if key == "elevator" => Some(stack.elevator.entry.name.to_owned()),
        None => shown(&stack.options, key),
    }
}

/// The threads of a plan's workload.
fn threads(plan: &Plan) -> &[ThreadJob] {
    match &plan.job.workload {
        Workload::Threads { threads, .. } => threads,
        Workload::FileIo(_) => &[],
    }
}

fn threads_mut(plan: &mut Plan) -> &mut Vec<ThreadJob> {
    match &mut plan.job.workload {
        Workload::Threads { threads, .. } => threads,
        Workload::FileIo(_) => unreachable!("a twin's job has threads"),
    }
}

fn script(thread: &ThreadJob) -> &[Scripted] {
    thread.stream.script.as_deref().unwrap_or_default()
}

/// A plan whose own calls are changed; nothing if none is.
fn with_calls(plan: &Plan, own: usize, change: &mut dyn FnMut(usize, &Scripted) -> Scripted) -> Option<Plan> {
    let mut plan = plan.clone();
    let mut any = false;
    for (nr, thread) in threads_mut(&mut plan)[..own].iter_mut().enumerate() {
        let steps: Vec<Scripted> = script(thread).iter().map(|step| change(nr, step)).collect();
        any |= steps != script(thread);
        thread.stream.script = Some(Arc::from(steps));
    }
    any.then_some(plan)
}

fn how_of(step: &Scripted) -> How {
    step.call.how.unwrap_or(How { path: Path::Cache, descriptors: 0, advice: None })
}

/// The same with advice on each open file before its first call, or without any.
fn advised(plan: &Plan, own: usize, advice: Option<Advice>) -> Option<Plan> {
    let mut met: HashSet<(u32, u32)> = HashSet::new();
    with_calls(plan, own, &mut |_, step| {
        let mut again = *step;
        let how = how_of(step);
        let first = met.insert((step.call.file, how.descriptors));
        if how.path != Path::Direct && step.call.op == Op::Read {
            again.call.how = Some(How { advice: advice.filter(|_| first), ..how });
        }
        again
    })
}

/// Calls past the page cache, or all through it.
fn direct(plan: &Plan, own: usize, on: bool) -> Option<Plan> {
    let aligned = |step: &Scripted| (step.call.offset | u64::from(step.call.len_bytes)).is_multiple_of(SECTOR_BYTES);
    with_calls(plan, own, &mut |_, step| {
        let mut again = *step;
        let how = how_of(step);
        let path = match (how.path, on) {
            (Path::Cache, true) if aligned(step) => Path::Direct,
            (Path::Direct, false) => Path::Cache,
            (path, _) => path,
        };
        if matches!(step.call.op, Op::Read | Op::Write) {
            again.call.how = Some(How { path, ..how });
        }
        again
    })
}

/// Each thread with open files of its own.
fn own_descriptors(plan: &Plan, own: usize) -> Option<Plan> {
    let mut sets: HashMap<(u32, u32), usize> = HashMap::new();
    let mut shared = false;
    for (nr, thread) in threads(plan)[..own].iter().enumerate() {
        for step in script(thread) {
            shared |= *sets.entry((step.call.file, how_of(step).descriptors)).or_insert(nr) != nr;
        }
    }
    let most = sets.keys().map(|(_, set)| set + 1).max().unwrap_or(1);
    shared.then_some(())?;
    with_calls(plan, own, &mut |nr, step| {
        let mut again = *step;
        let how = how_of(step);
        again.call.how = Some(How { descriptors: nr as u32 * most + how.descriptors, ..how });
        again
    })
}

/// Calls that go on where the one before ended, together as one of at most `size` bytes.
fn larger(plan: &Plan, own: usize, size: u32) -> Option<Plan> {
    let mut plan = plan.clone();
    let mut places: Vec<Vec<u32>> = Vec::new();
    let (mut before, mut after) = (0, 0);
    for thread in &mut threads_mut(&mut plan)[..own] {
        let mut steps: Vec<Scripted> = Vec::new();
        let mut of: Vec<u32> = Vec::new();
        for step in script(thread) {
            let call = &step.call;
            let joins = steps.last().is_some_and(|last| {
                let end = last.call.offset + u64::from(last.call.len_bytes);
                let plain = step.after.is_none() && how_of(step).advice.is_none() && how_of(step).path != Path::Mapping;
                let alike = (last.call.op, last.call.file, last.call.then) == (call.op, call.file, call.then)
                    && how_of(last).descriptors == how_of(step).descriptors
                    && how_of(last).path == how_of(step).path;
                plain
                    && alike
                    && matches!(call.op, Op::Read | Op::Write)
                    && call.offset == end
                    && last.call.len_bytes.saturating_add(call.len_bytes) <= size
            });
            match steps.last_mut().filter(|_| joins) {
                Some(last) => {
                    last.call.len_bytes += call.len_bytes;
                    last.spin += step.spin;
                    last.pause += step.pause;
                }
                None => steps.push(*step),
            }
            of.push(steps.len() as u32);
        }
        (before, after) = (before + of.len(), after + steps.len());
        thread.stream.script = Some(Arc::from(steps));
        places.push(of);
    }
    // Other threads wait for the call that theirs is part of.
    for thread in &mut threads_mut(&mut plan)[..own] {
        let mut steps = script(thread).to_vec();
        for after in steps.iter_mut().filter_map(|step| step.after.as_mut()) {
            let of = &places[after.thread as usize];
            after.calls = (after.calls as usize).checked_sub(1).and_then(|nr| of.get(nr)).copied().unwrap_or(0);
        }
        thread.stream.script = Some(Arc::from(steps));
    }
    (after * 4 <= before * 3).then_some(plan)
}

/// More of its direct calls in flight.
fn deeper(plan: &Plan, own: usize, depth: u32) -> Option<Plan> {
    let mut plan = plan.clone();
    let mut any = false;
    for thread in &mut threads_mut(&mut plan)[..own] {
        let is = match thread.spec.engine {
            Engine::Aio { depth, .. } | Engine::Ring { depth, .. } => depth,
            _ => 1,
        };
        let direct = script(thread).iter().filter(|step| how_of(step).path == Path::Direct).count();
        if is < depth && direct * 2 > script(thread).len() && script(thread).iter().all(|step| step.after.is_none()) {
            thread.spec.engine = Engine::Aio { depth, batch_submit: 1, batch_complete: 1 };
            any = true;
        }
    }
    any.then_some(plan)
}

/// Everything that is tried for a plan, whose first `own` threads are the workload's; `memory` is the limit of its
/// control group, MiB, and `neighbours` are the others on the disk.
pub(super) fn all(plan: &Plan, own: usize, memory: Option<u64>, neighbours: &str) -> Vec<Change> {
    let mut out = of_settings(plan, own);
    out.extend(memory.into_iter().flat_map(|mb| of_memory(plan, mb)));
    out.extend(of_job(plan, own, For::Cached.matters(plan, own)));
    out.extend(of_surroundings(plan, own, neighbours));
    of_switches(plan, &mut out);
    out
}

fn plain(setting: String, family: &'static str, rule: &'static str, plan: Plan) -> Change {
    Change { setting, family, rule, rules: vec![rule], of_program: false, safe: false, step: 1.0, plan }
}

fn of_settings(plan: &Plan, own: usize) -> Vec<Change> {
    let mut out = Vec::new();
    for it in SETTINGS.iter().filter(|it| it.of.matters(plan, own)) {
        let Some(now) = value_of(&plan.stack, it.key) else { continue };
        for value in it.values {
            let mut changed = plan.clone();
            if changed.stack.set(it.key, value).is_err() || changed.stack.describe() == plan.stack.describe() {
                continue;
            }
            let number = |text: &str| text.parse::<f64>().ok();
            let (from, to) = (number(&now).unwrap_or(0.0), number(value).unwrap_or(0.0));
            let off = from == 0.0 && it.name == "read_ahead_kb";
            let shown = shown(value);
            let named = RULES.iter().filter(|rule| is_switch_of(rule, it.key, it.name)).map(|rule| rule.name);
            let rule = if off { "readahead-off" } else { it.rules[usize::from(to > from)] };
            out.push(Change {
                safe: it.safe,
                rules: named.collect(),
                step: ((to + 1.0) / (from + 1.0)).ln().abs(),
                ..plain(format!("{}={shown}", it.name), it.name, rule, changed)
            });
        }
    }
    out
}

fn of_memory(plan: &Plan, mb: u64) -> impl Iterator<Item = Change> {
    [2_u64, 4, 16].into_iter().filter_map(move |times| {
        let mut changed = plan.clone();
        changed.stack.set("machine.memory_mb", &(mb * times).max(16).to_string()).ok()?;
        Some(Change {
            step: times as f64,
            rules: vec!["cache-too-small", "memory-reclaim", "hinted-pages-evicted"],
            ..plain(format!("memory.max={}M", mb * times), "memory.max", "cache-too-small", changed)
        })
    })
}

/// Changes of the program.
fn of_job(plan: &Plan, own: usize, cached: bool) -> Vec<Change> {
    let mut out = Vec::new();
    let mut add = |setting: String, family, rule, step: f64, changed: Option<Plan>| {
        out.extend(changed.map(|plan| Change { of_program: true, step, ..plain(setting, family, rule, plan) }));
    };
    if cached {
        add("leave out the advice".to_owned(), "no advice", "random-advice", 1.0, advised(plan, own, None));
        for (advice, word) in [(Advice::Sequential, "SEQUENTIAL"), (Advice::Random, "RANDOM")] {
            let rule = if word == "RANDOM" { "window-too-large" } else { "window-too-small" };
            let setting = format!("posix_fadvise(fd, 0, 0, POSIX_FADV_{word}) after each open");
            add(setting, word, rule, 1.0, advised(plan, own, Some(advice)));
        }
        let setting = "let each thread open the file for itself".to_owned();
        add(setting, "own descriptors", "shared-readahead-state", 1.0, own_descriptors(plan, own));
    }
    add("open with O_DIRECT".to_owned(), "O_DIRECT", "cpu-bound-submission", 1.0, direct(plan, own, true));
    add("open without O_DIRECT".to_owned(), "no O_DIRECT", "changed-job", 1.0, direct(plan, own, false));
    for size in SIZES {
        let setting = format!("{} KiB a call", size >> 10);
        add(setting, "call size", "changed-job", f64::from(*size), larger(plan, own, *size));
    }
    for depth in DEPTHS {
        let setting = format!("{depth} calls in flight");
        add(setting, "depth", "queue-depth-one", f64::from(*depth), deeper(plan, own, *depth));
    }
    out
}

/// Limits and others.
fn of_surroundings(plan: &Plan, own: usize, neighbours: &str) -> Vec<Change> {
    let mut out = Vec::new();
    if plan.job.throttle.is_some() {
        let mut changed = plan.clone();
        changed.job.throttle = None;
        let setting = "take away the limit of the control group (io.max, blkio.throttle)".to_owned();
        out.push(plain(setting, "io.max", "cgroup-io-throttle", changed));
    }
    if threads(plan).len() > own {
        let mut changed = plan.clone();
        threads_mut(&mut changed).truncate(own);
        out.push(plain(format!("keep {neighbours} off the disk"), "neighbour", "noisy-neighbour", changed));
    }
    let device = &plan.stack.device.options;
    let dozes = device.specs().iter().any(|spec| spec.name == "idle_exit_ns") && device.unsigned("idle_exit_ns") > 0;
    if dozes {
        let mut changed = plan.clone();
        changed.stack.device.options.set("idle_exit_ns", 0);
        let awake = "keep the drive awake (link_power_management_policy=max_performance, \
                     nvme_core.default_ps_max_latency_us=0)";
        out.push(plain(awake.to_owned(), "idle exit", "device-idle-exit", changed));
    }
    out
}

/// The rules' own switches, but for those that are in the list already.
fn of_switches(plan: &Plan, out: &mut Vec<Change>) {
    for of in RULES {
        for switch in of.switches {
            let mut changed = plan.clone();
            let done = match *switch {
                Switch::Key(key, value) => changed.stack.set(key, value).is_ok().then(|| format!("{key}={value}")),
                Switch::Patch(name) => PATCHES
                    .iter()
                    .find(|patch| patch.name == name)
                    .filter(|patch| changed.stack.patch(patch).is_ok())
                    .map(|_| format!("+{name}")),
                _ => None,
            };
            if let Some(setting) = done
                && changed.stack.describe() != plan.stack.describe()
                && !out.iter().any(|known| known.plan.stack.describe() == changed.stack.describe())
            {
                out.push(plain(setting, of.name, of.name, changed));
            }
        }
    }
}
