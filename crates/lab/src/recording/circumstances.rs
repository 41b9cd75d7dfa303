//! Finds the circumstances of a recording while it is made, and writes them into it ([`iowhy_trace::settings`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use iowhy_live::cache;
use iowhy_live::capture::Captured;
use iowhy_live::command::Usage;
use iowhy_live::machine;
use iowhy_stack::kernel::release::Release;
use iowhy_stack::trace::{Dev, Record, Seen, Trace};
use iowhy_stack::units::Nanos;
use iowhy_trace::fields::{device, field};
use iowhy_trace::join::beside::is_other;
use iowhy_trace::{join, settings};

use super::files::backing_of_btrfs;

/// Settings of a queue that change how it works.
const QUEUE: [&str; 15] = [
    "scheduler",
    "read_ahead_kb",
    "nr_requests",
    "max_sectors_kb",
    "max_hw_sectors_kb",
    "max_segments",
    "physical_block_size",
    "virt_boundary_mask",
    "nomerges",
    "wbt_lat_usec",
    "write_cache",
    "rotational",
    "logical_block_size",
    "discard_max_bytes",
    "optimal_io_size",
];

/// Limits of control groups of both versions; unlimited ones have one of these forms.
const LIMITS: [&str; 15] = [
    "blkio.throttle.read_bps_device",
    "blkio.throttle.write_bps_device",
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_iops_device",
    "io.max",
    "io.latency",
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "cpu.shares",
    "cpu.max",
    "cpu.weight",
    "memory.limit_in_bytes",
    "memory.max",
    "memory.high",
    "cpuset.cpus",
];
const UNLIMITED: [&str; 5] = ["", "-1", "max", "9223372036854771712", "max 100000"];

/// Default values of groups.
const USUAL: [(&str, &str); 3] = [("cpu.shares", "1024"), ("cpu.weight", "100"), ("cpu.cfs_period_us", "100000")];

/// File systems that show the kernel's own state and hold no data.
const KERNELS_OWN: [&str; 9] =
    ["proc", "sysfs", "devtmpfs", "devpts", "tracefs", "debugfs", "cgroup", "cgroup2", "securityfs"];

const SYSCTLS: [&str; 8] = [
    "vm/dirty_bytes",
    "vm/dirty_ratio",
    "vm/dirty_background_bytes",
    "vm/dirty_background_ratio",
    "vm/dirty_expire_centisecs",
    "vm/dirty_writeback_centisecs",
    "vm/swappiness",
    "vm/vfs_cache_pressure",
];

fn text(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().replace('\n', "; "))
}

/// Observations while the workload runs.
#[derive(Debug)]
pub(super) struct Watch {
    roots: Vec<u32>,
    groups: BTreeSet<(String, String)>,
    process: BTreeMap<&'static str, String>,
    /// Counters of groups when the workload was first seen in them: throttled ns, times at the memory limit.
    before: BTreeMap<PathBuf, [u64; 2]>,
    cpu: Option<u64>,
    /// CPU time of each process when it was first and last seen, ns.
    own: BTreeMap<u32, [u64; 2]>,
    pressure: BTreeMap<String, u64>,
    asleep: BTreeMap<String, u64>,
    /// Mounts that others serve, whose opens nobody tells, and descriptors of threads there.
    mounts: Vec<machine::Mount>,
    served: BTreeMap<(u32, i32), Dev>,
}

/// Descriptors of a process that are looked at, threads, and files of a mount.
const MOST: usize = 256;
/// Part of all calls from which on a file system that others serve is what the workload works on.
const MOSTLY: f64 = 0.5;

/// The file systems of `served` descriptors that most calls are on.
fn mostly_on(trace: &Trace, served: &BTreeMap<(u32, i32), Dev>) -> BTreeSet<Dev> {
    if served.is_empty() {
        return BTreeSet::new();
    }
    let (mut all, mut on) = (0, BTreeMap::<Dev, u64>::new());
    for record in &trace.records {
        let Seen::CallStart { fd, .. } = record.seen else { continue };
        all += 1;
        if let Some(dev) = served.get(&(record.pid, fd)) {
            *on.entry(*dev).or_default() += 1;
        }
    }
    on.into_iter().filter(|(_, nr)| *nr as f64 > MOSTLY * f64::from(all)).map(|(dev, _)| dev).collect()
}

/// A hundredth of a second, in which the kernel shows CPU times, ns.
const TICK: u64 = 10_000_000;

/// Time so far that tasks of the machine waited for something (PSI), ns: some of them, and all that could run.
fn pressure() -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for of in ["cpu", "io", "memory"] {
        let text = fs::read_to_string(Path::new("/proc/pressure").join(of)).unwrap_or_default();
        for line in text.lines() {
            let us = line.rsplit_once("total=").and_then(|(_, us)| us.trim().parse::<u64>().ok());
            if let (Some(who), Some(us)) = (line.split(' ').next(), us) {
                found.insert(format!("{of}_{who}_pressure_ns"), us * 1000);
            }
        }
    }
    found
}

/// Time so far that disks were suspended, ns, of those that can be.
fn asleep() -> BTreeMap<String, u64> {
    let of = |entry: fs::DirEntry| {
        let ms = text(entry.path().join("device/power/runtime_suspended_time"))?.parse::<u64>().ok()?;
        Some((format!("{}_asleep_ns", entry.file_name().to_string_lossy()), ms * 1_000_000))
    };
    fs::read_dir("/sys/block").into_iter().flatten().flatten().filter_map(of).collect()
}

/// Counters of a control group so far: throttled ns, times at the memory limit.
fn counted(folder: &Path) -> [u64; 2] {
    let stat = fs::read_to_string(folder.join("cpu.stat")).unwrap_or_default();
    let number =
        |name: &str| -> Option<u64> { stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()) };
    let throttled = number("throttled_time ").or_else(|| number("throttled_usec ").map(|us| us * 1000));
    let hits = text(folder.join("memory.failcnt")).and_then(|n| n.parse().ok());
    [throttled.unwrap_or(0), hits.unwrap_or(0)]
}

/// Time that all CPUs were busy, ns.
fn busy_ns() -> Option<u64> {
    let of = machine::cpu_time(&fs::read_to_string("/proc/stat").ok()?)?;
    Some(of.total.saturating_sub(of.idle) * TICK)
}

impl Watch {
    /// Of these processes and what they start.
    pub(super) fn new(roots: Vec<u32>) -> Watch {
        Watch {
            roots,
            groups: BTreeSet::new(),
            process: BTreeMap::new(),
            before: BTreeMap::new(),
            cpu: busy_ns(),
            own: BTreeMap::new(),
            pressure: pressure(),
            asleep: asleep(),
            mounts: machine::current_mounts().into_iter().filter(machine::Mount::is_served).collect(),
            served: BTreeMap::new(),
        }
    }

    /// Notes the descriptors of a process that are on file systems which others serve, without asking these.
    fn look_at_descriptors(&mut self, pid: u32) {
        if self.mounts.is_empty() {
            return;
        }
        let numbers = |of: &str| machine::numbers_in(&format!("/proc/{pid}/{of}")).into_iter().take(MOST);
        let mut threads: Option<Vec<u32>> = None;
        for fd in numbers("fd") {
            let Ok(path) = fs::read_link(format!("/proc/{pid}/fd/{fd}")) else { continue };
            let Some(mount) = machine::mount_of(&self.mounts, &path) else { continue };
            let dev = Dev::new(mount.number.0, mount.number.1);
            let threads = threads.get_or_insert_with(|| numbers("task").collect());
            self.served.extend(threads.iter().map(|thread| ((*thread, fd as i32), dev)));
        }
    }

    /// Watches these, too.
    pub(super) fn add(&mut self, roots: &[u32]) {
        self.roots.extend(roots);
    }

    /// Looks at the processes that run now: a shell may enter a control group before it starts the measured program.
    pub(super) fn look(&mut self) {
        let known = self.groups.len();
        let mut waiting = self.roots.clone();
        let mut visited = BTreeSet::new();
        while let Some(pid) = waiting.pop() {
            if !visited.insert(pid) {
                continue;
            }
            self.groups.extend(machine::control_groups(pid));
            self.look_at_descriptors(pid);
            if let Some(status) = fs::read_to_string(format!("/proc/{pid}/stat")).ok()
                && let Some((_, rest)) = status.rsplit_once(')')
            {
                // The priority's adjustment is the 19th field, counted from 1 with the name as the second.
                let field = |nr: usize| rest.split_whitespace().nth(nr - 3).unwrap_or("0");
                self.process.insert("nice", field(19).to_owned());
                // In the program, and in the kernel.
                let ns =
                    [field(14), field(15)].iter().filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() * TICK;
                self.own.entry(pid).or_insert([ns; 2])[1] = ns;
            }
            let of = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            if let Some(cpus) = of.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")) {
                self.process.insert("cpus_allowed", cpus.trim().to_owned());
            }
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            waiting.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()).take(64));
        }
        if self.groups.len() > known {
            for folder in machine::control_group_folders(&self.groups) {
                let now = counted(&folder);
                self.before.entry(folder).or_insert(now);
            }
        }
    }

    /// Writes the observations into a trace; `usage` of a command that ended.
    pub(super) fn write(&mut self, captured: &mut Captured, command: &[String], usage: Option<(&Usage, Option<i32>)>) {
        if command.is_empty() {
            self.look();
        }
        let first = self.roots.first().copied().unwrap_or(0);
        let note = |at, name: &str, fields| {
            let seen = Seen::Other { name: name.to_owned(), fields };
            Record { at, cpu: 0, pid: first, seen }
        };
        let roots = self.roots.iter().map(|root| note(Nanos(0), "iowhy:workload", format!("pid={root}")));
        captured.trace.records.splice(0..0, roots);
        let mut lines: Vec<(&str, String)> = Vec::new();
        let mut set = |of: &str, key: &str, value: &str| {
            lines.push(("iowhy:setting", format!("of={of} key={key} value={value}")));
        };
        if !command.is_empty() {
            set("command", "words", &command.join(" ").replace('\n', " "));
        }
        for (key, value) in &self.process {
            set("process", key, value);
        }
        let folders = machine::control_group_folders(&self.groups);
        for folder in &folders {
            for name in LIMITS {
                let value = text(folder.join(name)).filter(|value| !UNLIMITED.contains(&value.as_str()));
                if let Some(value) = value.filter(|value| !USUAL.contains(&(name, value))) {
                    set("cgroup", name, &value);
                }
            }
        }
        for name in SYSCTLS {
            if let Some(value) = text(Path::new("/proc/sys").join(name)) {
                set("sysctl", &name.replace('/', "."), &value);
            }
        }
        let machine = machine::Machine::read();
        let release = machine.kernel_release.unwrap_or_default();
        set("machine", "kernel", &release);
        // A distribution's name hides the level of its stable series, by which decisions differ.
        if let Some(hidden) = Release::parse(&release).filter(|release| release.level.is_none()) {
            let told = hidden.with_build(&machine.kernel_version.unwrap_or_default());
            set("machine", "stable", &told.level.map(|_| told.to_string()).unwrap_or_default());
        }
        // Its price, for later.
        for (key, value) in [
            (settings::EVENTS, captured.cost.events),
            (settings::EVENT_PS, captured.cost.event_ps),
            (settings::LENGTH_NS, u64::try_from(captured.length.as_nanos()).unwrap_or(u64::MAX)),
        ] {
            set(settings::RECORDING, key, &value.to_string());
        }
        set("machine", "cpus", &machine.cpus.map(|cpus| cpus.to_string()).unwrap_or_default());
        set("machine", "options", &text("/proc/cmdline").unwrap_or_default());
        disks(&captured.trace, &mostly_on(&captured.trace, &self.served), &mut set);
        let mut count = |key: &str, value: u64| {
            lines.push(("iowhy:counter", format!("key={key} value={value}")));
        };
        for folder in &folders {
            let before = self.before.get(folder).copied().unwrap_or_default();
            let now = counted(folder);
            for (nr, key) in ["cpu_throttled_ns", "memory_limit_hits"].into_iter().enumerate() {
                if now[nr] > before[nr] {
                    count(key, now[nr] - before[nr]);
                }
            }
        }
        for (before, now) in [(&self.pressure, pressure()), (&self.asleep, asleep())] {
            for (key, now) in now {
                if let Some(before) = before.get(&key) {
                    count(&key, now.saturating_sub(*before));
                }
            }
        }
        let end = captured.trace.records.last().map_or(Nanos(0), |record| record.at);
        // Of processes that go on, the time between their first and last sight; of a command, what the kernel counted.
        let own = match usage {
            Some((usage, _)) => Some(usage.user_ns + usage.system_ns),
            None => command.is_empty().then(|| self.own.values().map(|[first, last]| last - first).sum()),
        };
        if let (Some(before), Some(after), Some(own)) = (self.cpu, busy_ns(), own.filter(|_| first != 0)) {
            count("others_cpu_ns", after.saturating_sub(before).saturating_sub(own));
        }
        lines.extend(usage.map(|(usage, exit)| ("iowhy:command", ended(captured, usage, exit))));
        captured.trace.records.extend(lines.into_iter().map(|(name, fields)| note(end, name, fields)));
    }
}

/// A command that ended, as a line of a trace.
fn ended(captured: &Captured, usage: &Usage, exit: Option<i32>) -> String {
    let [begin, finish] = usage.monotonic_ns.map(|at| captured.at(at).0);
    format!(
        "begin_ns={begin} end_ns={finish} exit={} user_ns={} system_ns={} minor_faults={} major_faults={} \
         read_bytes={} written_bytes={} sleeps={} preemptions={}",
        exit.unwrap_or(-1),
        usage.user_ns,
        usage.system_ns,
        usage.minor_faults,
        usage.major_faults,
        usage.read_bytes,
        usage.written_bytes,
        usage.switches[0],
        usage.switches[1],
    )
}

/// The folder of a file system's own backing device, if there is one: elsewhere windows are those of the disk's queue.
fn backing(mount: &machine::Mount) -> Option<PathBuf> {
    if mount.filesystem == "btrfs" {
        return backing_of_btrfs(Path::new(mount.source.file_name()?));
    }
    let (major, minor) = mount.number;
    (major == 0).then(|| Path::new("/sys/class/bdi").join(format!("0:{minor}")))
}

/// Queues of the disks that had requests, most first, and the file systems on them; `on` has others.
fn disks(trace: &Trace, on: &BTreeSet<Dev>, set: &mut dyn FnMut(&str, &str, &str)) {
    let tree = join::beside::tree(trace, &join::Who::default());
    let mut requests: BTreeMap<Dev, u64> = BTreeMap::new();
    // Those of the workload, of others, and of kernel threads, which work for either.
    let mut systems: [BTreeSet<Dev>; 3] = Default::default();
    for record in &trace.records {
        let extent = record.seen.extent();
        let opened = match &record.seen {
            Seen::Other { name, fields }
                if matches!(name.as_str(), "iowhy:opened" | "iowhy:descriptor")
                    && field(fields, "kind") == Some("file") =>
            {
                device(fields)
            }
            Seen::Queue(extent) => Some(extent.dev),
            seen => seen.file().map(|file| file.dev),
        };
        if extent.is_none() && opened.is_none() {
            continue;
        }
        let own = tree.as_ref().is_none_or(|tree| tree.contains(&record.pid));
        // Those that the workload itself has bios on come first.
        if let Some(extent) = extent {
            *requests.entry(extent.dev).or_default() += if own && tree.is_some() { 1 << 20 } else { 1 };
        }
        let other = || tree.as_ref().is_some_and(|tree| is_other(trace, tree, record.pid));
        if let Some(dev) = opened {
            systems[if own { 0 } else { 2 - usize::from(other()) }].insert(dev);
        }
    }
    let mut disks: Vec<(Dev, u64)> = requests.iter().map(|(dev, n)| (*dev, *n)).collect();
    disks.sort_by_key(|(dev, n)| (std::cmp::Reverse(*n), *dev));
    for (place, (dev, _)) in disks.iter().take(4).enumerate() {
        let Some(folder) = machine::sysfs_folder((dev.major(), dev.minor())) else { continue };
        let whole = machine::whole_disk(&folder);
        let name = whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if place == 0 {
            set(settings::RECORDING, "disk", &name);
        }
        if whole == folder {
            set(&name, settings::NUMBER, &format!("{}:{}", dev.major(), dev.minor()));
        }
        for key in QUEUE {
            if let Some(value) = text(whole.join("queue").join(key)) {
                set(&name, key, machine::chosen(&value));
            }
        }
        for key in ["bdi/strict_limit", "bdi/max_ratio"] {
            if let Some(value) = text(whole.join(key)) {
                set(&name, key, &value);
            }
        }
        for file in fs::read_dir(whole.join("queue/iosched")).into_iter().flatten().flatten() {
            if let Some(value) = text(file.path()) {
                set(&name, &format!("iosched/{}", file.file_name().to_string_lossy()), &value);
            }
        }
        for key in ["dio", "backing_file"] {
            if let Some(value) = text(whole.join("loop").join(key)) {
                set(&name, &format!("loop.{key}"), &value);
                if key == "backing_file" {
                    let below = machine::Disk::below(Path::new(&value));
                    for (key, value) in [("loop.disk", below.name), ("loop.filesystem", below.filesystem)] {
                        value.iter().for_each(|value| set(&name, key, value));
                    }
                }
            }
        }
    }
    for mount in machine::current_mounts() {
        let dev = Dev::new(mount.number.0, mount.number.1);
        // Whoever only moves and removes names opens nothing: the journal's thread writes for it.
        let [own, others, kernels] = systems.each_ref().map(|of| of.contains(&dev));
        if (own || on.contains(&dev) || kernels && !others) && !KERNELS_OWN.contains(&mount.filesystem.as_str()) {
            let point = mount.point.display().to_string().replace(' ', "_");
            set(&point, "filesystem", &mount.filesystem);
            set(&point, "mount_options", &mount.all_options());
            let node = mount.source.file_name().unwrap_or_default();
            if let Some(blocks) = text(Path::new("/sys/fs/ext4").join(node).join("inode_readahead_blks")) {
                set(&point, "inode_readahead_blks", &blocks);
            }
            // Others have no such attribute, and to open their files may ask a server.
            let has_it = matches!(mount.filesystem.as_str(), "ext3" | "ext4");
            let named = trace.paths.iter().filter(|(file, _)| has_it && file.dev == dev).take(MOST);
            let journalled = named.filter(|(_, path)| cache::is_journalled(Path::new(path))).count();
            if journalled > 0 {
                set(&point, settings::JOURNALLED_FILES, &journalled.to_string());
            }
            if let Some(window) = backing(&mount).and_then(|folder| text(folder.join("read_ahead_kb"))) {
                set(&point, "read_ahead_kb", &window);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_most_calls_are_on_is_where_the_workload_works() {
        let [served, other] = [60, 61].map(|minor| Dev::new(0, minor));
        let descriptors = [((7, 3), served), ((8, 3), served), ((7, 4), other)].into();
        let call = |(pid, fd)| {
            let seen = Seen::CallStart { op: iowhy_stack::event::Op::Read, fd, offset: None, len_bytes: 1 };
            Record { at: Nanos(0), cpu: 0, pid, seen }
        };
        for (calls, expected) in [
            (vec![(7, 3), (8, 3), (7, 5)], vec![served]),
            (vec![(7, 3), (7, 5)], vec![]),
            (vec![(9, 3), (9, 3), (7, 4)], vec![]),
            (vec![(7, 4), (7, 4), (7, 3)], vec![other]),
            (vec![], vec![]),
        ] {
            let records = calls.iter().copied().map(call).collect();
            let found = mostly_on(&Trace { records, ..Trace::default() }, &descriptors);
            assert_eq!(found.into_iter().collect::<Vec<_>>(), expected, "{calls:?}");
        }
    }
}
