//! Modelled disks under the running kernel: their options, and their display.
//!
//! `NAME[,key=value..]` and the words behind `iowhy disk create` mean the same. A key is one of [`KEYS`], of the disk
//! and its queue, or a tunable of the model (`iowhy models device`).

use std::fmt::Write;
use std::path::{Path, PathBuf};

use iowhy_live::disk::{
    self, Change, Counters, DiskError, ELEVATOR, FILESYSTEMS, Fault, Front, Only, Spec, State, TUNABLES, find_tunable,
};
use iowhy_stack::device::DEVICES;
use iowhy_stack::elevator::ELEVATORS;
use iowhy_stack::filesystem::{
    self, FILESYSTEMS as FILESYSTEMS_SIMULATED, FLEXIBLE, JOURNAL_AT, MAPPING_CACHED, has_copy,
};
use iowhy_stack::kernel::{Stack, find_kernel};
use iowhy_stack::origin::find;
use iowhy_stack::units::PAGE_BYTES;
use serde_json::{Map, Value, json};

use iowhy_text as text;
use iowhy_text::diagnose::{Problem, Problems, Span};

/// Keys of a disk that are none of its model, each with what it does.
pub const KEYS: &[(&str, &str)] = &[
    ("size", "size, for example 4G, or `whole` for that of the model [the model's, at most 4G]"),
    ("front", "how the kernel gets it: ublk, loop [ublk if the kernel has it]"),
    (
        "depth",
        "most requests that the kernel has in flight, 4 to 128, from 1 with front=ublk [the model's, within \
        that]",
    ),
    ("scheduler", "none, mq-deadline, bfq, kyber [mq-deadline; none for a model with several queues]"),
    ("read_ahead_kb", "window of read-ahead [128]"),
    ("max_sectors_kb", "largest request [1024]"),
    ("nomerges", "which merges are not tried [the kernel's]"),
    ("nr_requests", "requests the scheduler holds [the kernel's: 256, whatever the depth]"),
    ("wbt_lat_usec", "throttling of writeback [the kernel's]"),
    ("partitions", "number of equal partitions [0]"),
    ("backing", "a file that holds the data [memory]"),
    ("fs", "a file system that is made and mounted: ext2, ext3, ext4, xfs, none [none]"),
    ("lead_us", "time in the layers above, hidden from programs [measured, and that of a command's bytes]"),
    ("awake", "on, off: whether processors poll instead of sleeping while it is in use [on]"),
    ("seed", "seed of the model [1]"),
    ("elevator.NAME", "a tunable of the scheduler, as in the simulator: elevator.slice_idle_us [the kernel's]"),
];

/// Requests that a scheduler on a loop device holds: twice the tags that the device was born with. Fewer tags change
/// nothing of that.
const NR_REQUESTS: &str = "256";
/// Largest request of a modelled disk.
const MAX_SECTORS_KB: &str = "1024";
/// Lateness of the simulated twin's tasks, and when its threads start. Of the 30 to 60 us from a completion to the
/// program and from its next call to the disk, the disk hides the median (`disk::Lead`). Left are, of reads of 1000 us
/// by fio on a virtual machine with two processors: 996 (median), 1004 (90 %), 1139 (99 %), 1500 (99.5 %), 2507
/// (99.9 %). From thread to thread it takes 20 to 90 us, and the first starts at any time of the ticks and of the
/// rotation: BFQ decides by ticks which queues it raises and unites.
const TASKS: &[(&str, &str)] = &[
    ("machine.wake_max_us", "10"),
    ("machine.wake_tail_us", "1600"),
    ("machine.start_max_ms", "100"),
    ("machine.start_gap_us", "20"),
    ("machine.start_gap_max_us", "90"),
];

/// The file system that a live run makes where the user speaks of none.
pub const FILESYSTEM: &str = "ext4";

/// Whether a key is of the disk and its queue, and not of its model.
fn is_own(key: &str) -> bool {
    key.starts_with(ELEVATOR) || KEYS.iter().any(|(known, _)| *known == key)
}

/// A disk as it is asked for, and whether a file system was spoken of.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The disk.
    pub spec: Spec,
    /// `fs` was given.
    pub says_filesystem: bool,
}

/// The disk that a model and `settings` describe. All mistakes are reported.
pub fn parse(name: &str, model: &str, settings: &[&str], problems: &mut Problems) -> Option<Wanted> {
    let before = problems.list.len();
    let spec = Spec::new(name, model);
    if spec.is_none() && crate::drive_file::is_file(model) {
        let text = format!("`{model}` is the file of a drive, which only simulated places can have");
        problems.push(Problem::error(text).at(Span::whole(model)).help("--on sim:KERNEL"));
    } else if spec.is_none() {
        problems.push(
            Problem::error(format!("unknown disk `{model}`"))
                .at(Span::whole(model))
                .near(model, DEVICES.iter().map(|entry| entry.name))
                .help("`iowhy models device` lists them"),
        );
    }
    let mut wanted = Wanted { spec: spec.clone().or_else(|| Spec::new(name, "fixed"))?, says_filesystem: false };
    let mut own: Vec<(&str, &str, Span)> = Vec::new();
    for setting in settings {
        let Some((key, value)) = setting.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty())
        else {
            problems.push(
                Problem::error(format!("`{setting}` is not a setting")).at(Span::whole(setting)).help("key=value"),
            );
            continue;
        };
        if is_own(key) {
            own.push((key, value, Span::whole(setting)));
        } else if spec.is_some()
            && let Err(problem) = tune(&mut wanted.spec, key, value)
        {
            problems.push(problem.at(Span::whole(setting)));
        }
    }
    // Size and depth follow the model's tunables unless they are given.
    wanted.spec.set_usual();
    // The front comes before the depth, and the scheduler before its tunables.
    own.sort_by_key(|(key, ..)| ["front", "scheduler"].iter().position(|first| first == key).unwrap_or(2));
    for (key, value, span) in own {
        if let Err(problem) = set(&mut wanted, key, value) {
            problems.push(problem.at(span));
        }
    }
    if !problems.any_error_since(before) {
        wanted.spec.mistakes().into_iter().for_each(|mistake| problems.push(Problem::error(mistake)));
    }
    (spec.is_some() && !problems.any_error_since(before)).then_some(wanted)
}

/// Sets a tunable of the model.
fn tune(spec: &mut Spec, key: &str, value: &str) -> Result<(), Problem> {
    let Some(entry) = find(DEVICES, &spec.model) else { return Ok(()) };
    let Some(option) = entry.options.iter().find(|option| option.name == key) else {
        let known = KEYS.iter().map(|(key, _)| *key).chain(entry.options.iter().map(|option| option.name));
        let problem = Problem::error(format!("`{key}` is a key neither of a disk nor of {}", entry.name));
        return Err(problem
            .near(key, known)
            .help("`iowhy models device` and `iowhy disk create --help` list the keys"));
    };
    let value = option.parse(value).map_err(Problem::error)?;
    spec.options.retain(|(known, _)| known != key);
    spec.options.push((key.to_owned(), value));
    Ok(())
}

/// Sets one of [`KEYS`].
fn set(wanted: &mut Wanted, key: &str, value: &str) -> Result<(), Problem> {
    let spec = &mut wanted.spec;
    let wrong = |message: String| Err(Problem::error(message));
    let number = |most: u64| match value.parse() {
        Ok(number) if number <= most => Ok(number),
        _ => Err(Problem::error(format!("`{key}` takes a whole number up to {most}, not `{value}`"))),
    };
    match key {
        "size" if value == "whole" => match spec.model_bytes() {
            Ok(bytes) => spec.bytes = bytes / 4096 * 4096,
            Err(error) => return wrong(error.to_string()),
        },
        "size" => match disk::parse_bytes(value) {
            Some(bytes) => spec.bytes = bytes,
            None => return wrong(format!("`size` takes bytes, for example 4G, not `{value}`")),
        },
        "front" => {
            let Some(front) = Front::find(value) else {
                let names: Vec<&str> = Front::names().collect();
                return wrong(format!("`front` is one of {}, not `{value}`", names.join(", ")));
            };
            spec.front = Some(front);
            // It may let the kernel have fewer requests in flight.
            spec.set_usual();
        }
        "depth" => spec.depth = number(1 << 20)? as u32,
        "partitions" => spec.partitions = number(1 << 20)? as u32,
        "seed" => spec.seed = number(u64::MAX / 2)?,
        "lead_us" => spec.lead_ns = Some(number(1_000_000)? * 1000),
        "awake" => match value {
            "on" => spec.awake = true,
            "off" => spec.awake = false,
            _ => return wrong(format!("`awake` is on or off, not `{value}`")),
        },
        "backing" => match std::path::absolute(value) {
            Ok(path) => spec.backing = Some(path),
            Err(error) => return wrong(format!("`{value}`: {error}")),
        },
        "fs" => {
            wanted.says_filesystem = true;
            spec.filesystem = match value {
                "none" => None,
                name if FILESYSTEMS.contains(&name) => Some(name.to_owned()),
                _ => {
                    return wrong(format!("`fs` is one of {}, none, not `{value}`", FILESYSTEMS.join(", ")));
                }
            };
        }
        _ if key.starts_with(ELEVATOR) => {
            let value = of_scheduler(key, value)?;
            spec.set_queue(key, &value);
        }
        _ => spec.set_queue(key, value),
    }
    Ok(())
}

/// The value of a scheduler's tunable as a number, in the simulator's unit.
fn of_scheduler(key: &str, value: &str) -> Result<String, Problem> {
    let Some(tunable) = find_tunable(key) else {
        let known = TUNABLES.iter().map(|tunable| format!("{ELEVATOR}{}", tunable.name));
        return Err(Problem::error(format!("no scheduler of the running kernel has `{key}`"))
            .near(key, known)
            .help("`iowhy models elevator` lists the tunables of bfq, kyber and mq-deadline"));
    };
    let entry = find(ELEVATORS, tunable.scheduler);
    let option = entry.and_then(|entry| entry.options.iter().find(|option| option.name == tunable.name));
    let Some(option) = option else { unreachable!("the simulator has every tunable of the table") };
    option.parse(value).map(|number| number.to_string()).map_err(Problem::error)
}

/// A disk that was there in the words of `--disk`, with everything that was found on it: the same words make the same
/// disk. Seed and lead are each run's own, unless the lead was asked for.
pub fn in_full(state: &State) -> String {
    let spec = &state.spec;
    let mut words = spec.model.clone();
    let mut put = |key: &str, value: &str| {
        let _ = write!(words, ",{key}={value}");
    };
    spec.options.iter().for_each(|(key, value)| put(key, &value.to_string()));
    if let Some(front) = spec.front {
        put("front", front.name());
    }
    put("size", &spec.bytes.to_string());
    put("depth", &spec.depth.to_string());
    put("fs", spec.filesystem.as_deref().unwrap_or("none"));
    if spec.partitions > 0 {
        put("partitions", &spec.partitions.to_string());
    }
    if let Some(backing) = &spec.backing {
        put("backing", &backing.display().to_string());
    }
    if let Some(lead) = spec.lead_ns {
        put("lead_us", &(lead / 1000).to_string());
    }
    if !spec.awake {
        put("awake", "off");
    }
    let found = |wanted: &str| state.queue.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.as_str());
    let has_scheduler = found("scheduler").is_some_and(|scheduler| scheduler != "none");
    for (key, value) in &state.queue {
        let told = match key.as_str() {
            "scheduler" | "read_ahead_kb" | "max_sectors_kb" | "nomerges" => true,
            "nr_requests" => has_scheduler,
            // Throttling is derived from disk and scheduler unless the user has chosen.
            "wbt_lat_usec" => spec.queue.iter().any(|(asked, _)| asked == key),
            key => key.starts_with(ELEVATOR),
        };
        if told {
            put(key, value);
        }
    }
    words
}

/// A setting of a disk in full.
pub fn setting<'a>(words: &'a str, key: &str) -> Option<&'a str> {
    words.split(',').skip(1).find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// `--disk NAME[,key=value..]` of a live run.
pub fn parse_disk(name: &str, disk: &str, problems: &mut Problems) -> Option<Wanted> {
    let mut pieces = disk.split(',');
    let model = pieces.next().unwrap_or_default();
    let settings: Vec<&str> = pieces.collect();
    parse(name, model, &settings, problems)
}

/// The twin in the simulator: `--on` and `--disk` for it, and the mistakes in the disk.
///
/// A disk with a key of its own, and one next to a live place, is a modelled one, and its twin has the loop device's
/// block layer as well (on kernels with blk-mq): the driver's tags are the depth, with one queue of them, and commands
/// without a place in the drive wait in order of arrival; the scheduler holds as many requests as there, and largest
/// request, window and file system are the same, and the blocks that map its files are in memory. Its runs differ, as
/// tasks wake a little late. Keys of the place itself stay. Otherwise it is a drive of the simulator.
pub fn twin(on: &str, disk: &str, beside: bool) -> (String, String, Problems) {
    let of_model: Vec<&str> =
        disk.split(',').filter(|piece| piece.split_once('=').is_none_or(|(key, _)| !is_own(key))).collect();
    let of_model = of_model.join(",");
    let mut problems = Problems::default();
    if !beside && of_model == disk {
        return (on.to_owned(), of_model, problems);
    }
    let mut unknown = Problems::default();
    let Some(wanted) = parse_disk("twin", disk, &mut unknown) else {
        problems.list = unknown.list;
        return (on.to_owned(), of_model, problems);
    };
    let spec = &wanted.spec;
    let asked = |wanted: &str| spec.queue.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.as_str());
    let kernel = on.strip_prefix("sim:").and_then(|rest| rest.split(['+', ',']).next()).and_then(find_kernel);
    let has_tags = kernel.is_some_and(|kernel| Stack::new(kernel).options.get("queue") == 1);
    let depth = spec.depth.to_string();
    let mut keys: Vec<(&str, String)> = TASKS.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
    let scheduler = asked("scheduler").or_else(|| spec.usual_scheduler().ok().filter(|_| has_tags));
    keys.extend(scheduler.map(|name| ("elevator", name.to_owned())));
    if has_tags {
        keys.extend([("driver_tags", depth), ("nr_hw_queues", "1".to_owned()), ("budget", "tags".to_owned())]);
        if scheduler.is_some_and(|name| name != "none") {
            keys.push(("nr_requests", asked("nr_requests").unwrap_or(NR_REQUESTS).to_owned()));
        }
        keys.push(("max_sectors_kb", asked("max_sectors_kb").unwrap_or(MAX_SECTORS_KB).to_owned()));
        match asked("wbt_lat_usec") {
            Some("0") => keys.push(("wbt", "off".to_owned())),
            Some(latency) => keys.push(("wbt_lat_us", latency.to_owned())),
            None => {}
        }
    }
    for (key, value) in &spec.queue {
        if key.starts_with(ELEVATOR) || matches!(key.as_str(), "read_ahead_kb" | "nomerges") {
            keys.push((key, value.clone()));
        }
    }
    let filesystem = spec.filesystem.as_deref().and_then(|name| simulated_filesystem(on, name));
    let maps_by_blocks = filesystem.as_deref().is_some_and(|name| {
        find(FILESYSTEMS_SIMULATED, name)
            .is_some_and(|entry| entry.options.iter().any(|it| it.name == MAPPING_CACHED.name))
    });
    keys.extend(filesystem.map(|name| ("filesystem", name)));
    // A kernel whose usual file system is another one keeps its own.
    let made = match wanted.says_filesystem {
        true => spec.filesystem.as_deref(),
        false => Some(FILESYSTEM).filter(|name| simulated_filesystem(on, name).is_none()),
    };
    let journal = made.and_then(|name| journal_at(name, spec.bytes));
    keys.extend(journal.map(|bytes| (JOURNAL_AT.name, (bytes >> 20).to_string())));
    if made == Some("ext4") {
        // Without a table of partitions before it.
        keys.push(("start_mb", "0".to_owned()));
    }
    if maps_by_blocks {
        // There the files were written just before, and only their pages are dropped.
        keys.push((MAPPING_CACHED.name, "on".to_owned()));
    }
    let mut place = on.to_owned();
    for (key, value) in keys {
        if !on.contains(&format!(",{key}=")) {
            let _ = write!(place, ",{key}={value}");
        }
    }
    (place, of_model, problems)
}

/// Where the tools of a file system put its journal: mke2fs 1.47 into the freest group next to the middle (one without
/// a copy of the superblock), in large file systems behind the tables of the middle's flexible group; mkfs.xfs 6.1 into
/// the third of four allocation groups. That of ext3 lies at the start.
fn journal_at(filesystem: &str, bytes: u64) -> Option<u64> {
    const GROUP: u64 = filesystem::GROUP * PAGE_BYTES;
    let middle = bytes / 2 / GROUP;
    match filesystem {
        "ext4" if middle > FLEXIBLE => Some((middle / FLEXIBLE * FLEXIBLE + 1) * GROUP),
        "ext4" if middle > 0 && !has_copy(middle - 1) => Some((middle - 1) * GROUP),
        "ext4" => Some(middle * GROUP),
        "xfs" => Some(bytes / 2),
        _ => None,
    }
}

/// Begins the warning that the simulator cannot stand for a run.
pub const NO_TWIN: &str = "no twin";

/// Share of the time of a command by which half of the answers may be late.
const LATENESS: f64 = 0.1;

/// A warning if the processors, rather than the model, decided how fast the disk was: the simulator does not charge
/// those of this machine.
pub fn answers_late(counters: &Counters) -> Option<Problem> {
    let commands = counters.reads + counters.writes + counters.flushes;
    let (late, each) = (counters.late_p50_ns? as f64, counters.busy_ns as f64 / commands.max(1) as f64);
    (late > LATENESS * each).then(|| {
        let text = format!(
            "{NO_TWIN}: half of the answers of the disk are late by {:.1} us or more, of {:.1} us a command; \
             processors are the limit, and the simulator does not charge those of this machine",
            late / 1e3,
            each / 1e3
        );
        Problem::warning(text).help("a slower disk, fewer tasks, larger calls")
    })
}

/// The simulator's file system for the name of a real one: the latest, if the kernel has not one of that name by
/// itself.
fn simulated_filesystem(on: &str, name: &str) -> Option<String> {
    let is_one = |known: &str| known == name || known.starts_with(&format!("{name}-"));
    let kernel = on.strip_prefix("sim:")?.split(['+', ',']).next()?;
    if find_kernel(kernel).is_some_and(|kernel| is_one(kernel.filesystem)) {
        return None;
    }
    FILESYSTEMS_SIMULATED.iter().rev().map(|entry| entry.name).find(|known| is_one(known)).map(str::to_owned)
}

/// Changes that are typed as `key=value`.
pub fn changes(settings: &[String], problems: &mut Problems) -> Vec<Change> {
    let mut changes = Vec::new();
    for setting in settings {
        let change = match setting.split_once('=') {
            Some((key, value)) if key.starts_with(ELEVATOR) => {
                of_scheduler(key, value).map(|value| Change::Queue(key.to_owned(), value))
            }
            Some((key, value)) => Change::parse(key, value).map_err(Problem::error),
            None => Err(Problem::error(format!("`{setting}` is not a setting: key=value"))),
        };
        match change {
            Ok(change) => changes.push(change),
            Err(problem) => problems.push(problem.at(Span::whole(setting))),
        }
    }
    changes
}

/// A list of disks: live ones, and the remains of dead ones.
#[derive(Debug, Default)]
pub struct Shown {
    /// Those that answer.
    pub disks: Vec<State>,
    /// Dead ones, with the error.
    pub dead: Vec<(String, DiskError)>,
    /// Names of those that were removed.
    pub removed: Vec<String>,
}

impl Shown {
    /// Every disk.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn all() -> Result<Shown, DiskError> {
        let mut shown = Shown::default();
        for (name, state) in disk::list()? {
            match state {
                Ok(state) => shown.disks.push(state),
                Err(error) => shown.dead.push((name, error)),
            }
        }
        Ok(shown)
    }

    pub fn json(&self) -> Value {
        let dead: Vec<Value> =
            self.dead.iter().map(|(name, error)| json!({ "name": name, "error": error.to_string() })).collect();
        json!({
            "schema": "iowhy.disk/1",
            "disks": self.disks.iter().map(json).collect::<Vec<_>>(),
            "dead": dead,
            "removed": self.removed,
        })
    }

    /// For people.
    pub fn text(&self, bold: fn(&str) -> String) -> String {
        let mut out = String::new();
        for state in &self.disks {
            out.push_str(&of_one(state, bold));
        }
        for (name, error) in &self.dead {
            let _ = writeln!(out, "{}\n  {error}", bold(name));
        }
        for name in &self.removed {
            let _ = writeln!(out, "{name} is removed");
        }
        if out.is_empty() {
            out.push_str("no modelled disks; `iowhy disk create --model ide-2004` makes one\n");
        }
        out
    }
}

/// Where the second column of the text begins.
const COLUMN: usize = 14;

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

fn of_one(state: &State, bold: fn(&str) -> String) -> String {
    let mut out = String::new();
    let spec = &state.spec;
    let _ = writeln!(out, "{}", bold(&spec.name));
    let mut item = |name: &str, words: String| out.push_str(&text::item(name, &words, COLUMN));
    item("node", format!("{} (front {})", state.node.display(), state.front.name()));
    if !state.partitions.is_empty() {
        let nodes: Vec<String> = state.partitions.iter().map(|node| node.display().to_string()).collect();
        item("partitions", nodes.join(" "));
    }
    let options: Vec<String> = spec.options.iter().map(|(name, value)| format!(", {name}={value}")).collect();
    item("model", format!("{}{}, seed {}", spec.model, options.concat(), spec.seed));
    item("size", format!("{} ({} bytes)", text::size(spec.bytes), spec.bytes));
    if let (Some(filesystem), Some(mount)) = (&spec.filesystem, &state.mount) {
        item("mounted", format!("{filesystem} on {}", mount.display()));
    }
    if let Some(backing) = &spec.backing {
        item("data in", backing.display().to_string());
    }
    item("depth", format!("{} asked for, {} found by experiment", spec.depth, state.depth_found));
    let queue: Vec<String> =
        state.queue.iter().map(|(key, value)| format!("{key}={}", value.replace(' ', "-"))).collect();
    item("queue", queue.join(" "));
    item(
        "lead",
        format!(
            "{:.1} us of the kernel's own time are hidden, and {:.1} us for each MiB of a command",
            us(state.lead.ns),
            us(state.lead.ns_per_mib)
        ),
    );
    let counters = &state.counters;
    let late = match (counters.late_p50_ns, counters.late_p99_ns, counters.late_max_ns) {
        (Some(p50), Some(p99), Some(max)) => {
            format!("; answers late by {:.1} us (median), {:.1} (p99), {:.1} (most)", us(p50), us(p99), us(max))
        }
        _ => String::new(),
    };
    let served = format!(
        "{} ({}), {} ({}), {}, {}{late}",
        text::count(counters.reads, "read", "reads"),
        text::size(counters.read_bytes),
        text::count(counters.writes, "write", "writes"),
        text::size(counters.write_bytes),
        text::count(counters.flushes, "flush", "flushes"),
        text::count(counters.errors, "error", "errors"),
    );
    item("served", served);
    let unsafe_bytes = text::size(counters.unsafe_blocks * 4096);
    item("power", format!("{}; {unsafe_bytes} would be at risk", if counters.power { "on" } else { "off" }));
    if let Some(losses) = &counters.losses {
        let words = format!("{} blocks kept, {} lost, {} torn", losses.kept, losses.lost, losses.torn);
        item("power cut", words);
    }
    for fault in &counters.faults {
        item("fault", show(fault));
    }
    item("processes", format!("keeper {}, server {}", state.keeper, state.server));
    out
}

/// A fault as it is typed.
fn show(fault: &Fault) -> String {
    let time = |ns: u64| format!("{}us", ns / 1000);
    match fault {
        Fault::Slow { factor_milli, after_ns, for_ns } => {
            let length = for_ns.map_or_else(String::new, |ns| format!(":for={}", time(ns)));
            format!("slow:factor={}:after={}{length}", *factor_milli as f64 / 1000.0, time(*after_ns))
        }
        Fault::Stuck { for_ns, count } => format!("stuck:for={}:count={count}", time(*for_ns)),
        Fault::Eio { from, to, on } => {
            let on = match on {
                Only::Read => "read",
                Only::Write => "write",
                Only::Both => "both",
            };
            format!("eio:from={from}:to={to}:on={on}")
        }
    }
}

/// One disk as JSON.
pub fn json(state: &State) -> Value {
    let spec = &state.spec;
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let paths = |list: &[PathBuf]| list.iter().map(|node| path(node)).collect::<Vec<String>>();
    let options: Map<String, Value> = spec.options.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let queue: Map<String, Value> = state.queue.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let counters = &state.counters;
    let late = |ns: Option<u64>| ns.map(us);
    json!({
        "name": spec.name,
        "model": spec.model,
        "options": options,
        "seed": spec.seed,
        "bytes": spec.bytes,
        "front": state.front.name(),
        "node": path(&state.node),
        "partitions": paths(&state.partitions),
        "filesystem": spec.filesystem,
        "mount": state.mount.as_deref().map(path),
        "backing": spec.backing.as_deref().map(path),
        "depth": spec.depth,
        "depth_found": state.depth_found,
        "queue": queue,
        "lead_us": us(state.lead.ns),
        "lead_us_per_mib": us(state.lead.ns_per_mib),
        "awake": spec.awake,
        "server": state.server,
        "keeper": state.keeper,
        "power": counters.power,
        "faults": counters.faults.iter().map(show).collect::<Vec<_>>(),
        "losses": counters.losses.map(|it| json!({ "kept": it.kept, "lost": it.lost, "torn": it.torn })),
        "counters": {
            "reads": counters.reads,
            "read_bytes": counters.read_bytes,
            "writes": counters.writes,
            "write_bytes": counters.write_bytes,
            "flushes": counters.flushes,
            "errors": counters.errors,
            "outstanding": counters.outstanding,
            "most_outstanding": counters.most,
            "forward": counters.forward,
            "unsafe_blocks": counters.unsafe_blocks,
            "media_accesses": counters.media_accesses,
            "destages": counters.destages,
            "cache_hits": counters.cache_hits,
            "busy_ms": counters.busy_ns as f64 / 1e6,
        },
        "late_us": {
            "p50": late(counters.late_p50_ns),
            "p99": late(counters.late_p99_ns),
            "max": late(counters.late_max_ns),
        },
        "first": counters.first,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(words: &str) -> Result<Spec, Vec<String>> {
        let mut problems = Problems::default();
        match parse_disk("x", words, &mut problems) {
            Some(wanted) => Ok(wanted.spec),
            None => Err(problems.list.into_iter().map(|problem| problem.message).collect()),
        }
    }

    #[test]
    fn a_disk_is_read_with_the_keys_of_disk_queue_and_model() {
        let spec = told("ide-2004,size=64m,depth=8,scheduler=bfq,fs=xfs,seek_avg_us=9000,seed=7").expect("a disk");
        assert_eq!((spec.bytes, spec.depth, spec.seed), (64 << 20, 8, 7));
        assert_eq!(spec.queue, [("scheduler".to_owned(), "bfq".to_owned())]);
        assert_eq!(spec.options, [("seek_avg_us".to_owned(), 9000)]);
        assert_eq!(spec.filesystem.as_deref(), Some("xfs"));
        let usual = told("ide-2004").expect("a disk");
        assert_eq!((usual.bytes, usual.depth), (4 << 30, 4), "one command at a time is fewer than the kernel can do");
        assert_eq!(told("nvme").expect("a disk").depth, 128);
        // The front decides what the kernel can do, wherever it stands.
        assert_eq!(told("ide-2004,front=ublk").expect("a disk").depth, 1);
        let spec = told("ide-2004,depth=3,front=ublk").expect("a disk");
        assert_eq!((spec.depth, spec.front), (3, Some(Front::Ublk)));
        assert_eq!(told("ide-2004,size=whole").expect("a disk").bytes, 80_418_240 * 512);
        // The size follows the model, in whichever order they are given.
        assert_eq!(told("fixed,size=whole,nr_sectors=8192").expect("a disk").bytes, 4 << 20);
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let mistakes =
            told("ide-2005,size=x,depth=1000000000,fs=fat,oops,seek_avg_us=9000").expect_err("five mistakes");
        assert_eq!(mistakes.len(), 5, "{mistakes:#?}");
        for (words, expected) in [
            ("ide-2004,size=1T", "a smaller size"),
            ("ide-2004,depth=2", "4 to 128"),
            ("ide-2004,depth=0,front=ublk", "1 to 128"),
            ("ide-2004,front=loop,depth=3", "front=ublk can have fewer"),
            ("ide-2004,front=nbd", "one of ublk, loop"),
            ("ide-2004,size=5000", "whole blocks"),
            ("ide-2004,rpm=1", "must lie between"),
            ("ide-2004,colour=red", "a key neither of a disk"),
            ("ide-2004,partitions=16", "no room"),
            ("ide-2004,partitions=2,fs=ext4", "whole disk"),
            ("ide-2004,scheduler=../x", "cannot be"),
        ] {
            let mistakes = told(words).expect_err(words);
            assert!(mistakes.len() == 1 && mistakes[0].contains(expected), "{words}: {mistakes:?}");
        }
    }

    #[test]
    fn a_disk_that_processors_slow_down_has_no_twin() {
        for (late_ns, expected) in [(None, false), (Some(1_000), false), (Some(10_000), false), (Some(10_001), true)] {
            let commands = Counters { reads: 6, writes: 3, flushes: 1, busy_ns: 1_000_000, ..Counters::default() };
            let warning = answers_late(&Counters { late_p50_ns: late_ns, ..commands });
            assert_eq!(warning.is_some_and(|problem| problem.message.starts_with("no twin")), expected, "{late_ns:?}");
        }
    }

    #[test]
    fn journals_lie_where_the_tools_put_them() {
        const MB: u64 = 1 << 20;
        // The first blocks of journals by debugfs and xfs_db, in file systems of these sizes.
        for (name, mb, expected) in [
            ("ext4", 512, Some(256)),
            ("ext4", 1024, Some(512)),
            ("ext4", 2048, Some(1024)),
            ("ext4", 3072, Some(1408)),
            ("ext4", 4096, Some(1920)),
            ("ext4", 8192, Some(4224)),
            ("ext4", 16384, Some(8320)),
            ("ext3", 4096, None),
            ("xfs", 4096, Some(2048)),
            ("ext2", 4096, None),
        ] {
            assert_eq!(journal_at(name, mb * MB), expected.map(|mb| mb * MB), "{name} {mb}");
        }
    }

    #[test]
    fn the_twin_in_the_simulator_has_the_block_layer_of_the_modelled_disk() {
        let loop_device = ",nr_hw_queues=1,budget=tags";
        let tasks = "machine.wake_max_us=10,machine.wake_tail_us=1600,machine.start_max_ms=100,machine.start_gap_us=20,\
             machine.start_gap_max_us=90";
        for (on, disk, beside, expected) in [
            // A drive of the simulator.
            ("sim:linux-6.18", "nvme,read_us=9", false, ("sim:linux-6.18", "", "nvme,read_us=9")),
            (
                "sim:linux-6.18",
                "ide-2004,size=4G,rpm=5400,fs=ext4",
                false,
                (
                    "sim:linux-6.18,TASKS,elevator=mq-deadline,driver_tags=4",
                    ",nr_requests=256,max_sectors_kb=1024,journal_at_mb=1920,start_mb=0",
                    "ide-2004,rpm=5400",
                ),
            ),
            (
                "sim:linux-6.18",
                "nvme",
                true,
                (
                    "sim:linux-6.18,TASKS,elevator=none,driver_tags=128",
                    ",max_sectors_kb=1024,journal_at_mb=1920,start_mb=0",
                    "nvme",
                ),
            ),
            // With fewer tags than a loop device can have.
            (
                "sim:linux-6.18",
                "ide-2004,front=ublk,scheduler=none",
                false,
                (
                    "sim:linux-6.18,TASKS,elevator=none,driver_tags=1",
                    ",max_sectors_kb=1024,journal_at_mb=1920,start_mb=0",
                    "ide-2004",
                ),
            ),
            (
                "sim:linux-6.18,read_ahead_kb=64",
                "sata-2010,depth=8,scheduler=bfq,elevator.low_latency=off,nr_requests=99,read_ahead_kb=512,fs=xfs",
                false,
                (
                    "sim:linux-6.18,read_ahead_kb=64,TASKS,elevator=bfq,driver_tags=8",
                    ",nr_requests=99,max_sectors_kb=1024,elevator.low_latency=0,filesystem=xfs-5.18,journal_at_mb=2048",
                    "sata-2010",
                ),
            ),
        ] {
            let (place, model, problems) = twin(on, disk, beside);
            let (begin, end, of_model) = expected;
            let begin = begin.replace("TASKS", tasks);
            let whole = if end.is_empty() { begin } else { format!("{begin}{loop_device}{end}") };
            assert_eq!((place.as_str(), model.as_str(), problems.list.len()), (whole.as_str(), of_model, 0), "{disk}");
            let mut problems = Problems::default();
            assert!(crate::place::parse(&place, Some(&model), &mut problems).is_some(), "{}", problems.render());
        }
        // Files of ext3 are mapped by blocks, which stay in memory when the pages of files are dropped.
        let (place, ..) = twin("sim:linux-6.18", "ide-2004,fs=ext3", true);
        assert!(place.ends_with(",filesystem=ext3-4.3,mapping_cached=on"), "{place}");
        // Old kernels have no tags.
        assert_eq!(twin("sim:linux-2.6.6", "ide-2004,size=4G", true).0, format!("sim:linux-2.6.6,{tasks}"));
        assert_eq!(twin("sim:linux-6.18", "ide-2004,depth=1", false).2.list.len(), 1);
    }

    #[test]
    fn tunables_of_the_scheduler_are_those_of_the_simulator() {
        for tunable in TUNABLES {
            let entry = find(ELEVATORS, tunable.scheduler).expect("a scheduler");
            let option = entry.options.iter().find(|option| option.name == tunable.name).expect(tunable.name);
            let key = format!("{ELEVATOR}{}", tunable.name);
            let words = format!("ide-2004,{key}={},scheduler={}", option.show(option.default), tunable.scheduler);
            let spec = told(&words).expect(&words);
            assert_eq!(spec.queue[1], (key, option.default.to_string()), "{words}");
        }
        for (words, expected) in [
            ("ide-2004,elevator.slice_idle_us=0", "a tunable of bfq, and the scheduler is mq-deadline"),
            ("ide-2004,scheduler=bfq,elevator.low_latency=2", "takes one of"),
            ("ide-2004,scheduler=bfq,elevator.wr_coeff=2", "no scheduler of the running kernel"),
            ("ide-2004,scheduler=none,nr_requests=64", "there is none"),
        ] {
            let mistakes = told(words).expect_err(words);
            assert!(mistakes.len() == 1 && mistakes[0].contains(expected), "{words}: {mistakes:?}");
        }
    }

    #[test]
    fn faults_are_shown_as_they_can_be_typed() {
        for typed in ["slow:factor=1.5:after=0us:for=2000us", "stuck:for=5us:count=3", "eio:from=1:to=9:on=read"] {
            let fault = Fault::parse(typed).expect("a fault").expect("one");
            assert_eq!(show(&fault), typed);
        }
    }
}
