//! The machine of a run, and the disk below a path: the facts needed to compare two runs.
//!
//! Everything is read from `/proc` and `/sys`. The parsers are functions over text; a file that is missing or unknown
//! yields `None` and never an error, because a run is worth more than its fingerprint.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// `uname -r`.
    pub kernel_release: Option<String>,
    /// `/proc/version_signature` (Ubuntu) and `uname -v`: when, how and from which release it was built.
    pub kernel_version: Option<String>,
    /// The processor's name.
    pub cpu_model: Option<String>,
    /// CPUs online.
    pub cpus: Option<u32>,
    /// It runs under a hypervisor.
    pub is_virtual: Option<bool>,
    /// Memory of the whole machine.
    pub memory_bytes: Option<u64>,
    /// cpufreq governor of the first CPU.
    pub governor: Option<String>,
    /// The clock source.
    pub clocksource: Option<String>,
    /// Other activity.
    pub neighbours: Neighbours,
}

/// Other activity on the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Neighbours {
    /// Load over 1, 5 and 15 minutes.
    pub load: Option<[f64; 3]>,
    /// Tasks that run or want to.
    pub running: Option<u32>,
    /// Pressure stall information: time in which tasks waited for a CPU.
    pub cpu_pressure: Option<Pressure>,
    /// The same for I/O.
    pub io_pressure: Option<Pressure>,
    /// The same for memory.
    pub memory_pressure: Option<Pressure>,
}

/// Share of the last ten seconds, per cent.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Pressure {
    /// In which some task waited.
    pub some_avg10_pct: f64,
    /// In which all did (0 where the kernel does not say).
    pub full_avg10_pct: f64,
}

/// The disk below a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Name of the whole disk, as in `/sys/block`; none for file systems without one.
    pub name: Option<String>,
    /// Its major and minor number.
    pub number: Option<(u32, u32)>,
    /// Driver of its queue.
    pub queue: Queue,
    /// Its file system's type; none for the bare device.
    pub filesystem: Option<String>,
    /// Source of the mount there.
    pub source: Option<String>,
    /// Where it is mounted.
    pub mount_point: Option<PathBuf>,
    /// Options of the mount and of the file system.
    pub mount_options: Option<String>,
}

/// `/sys/block/NAME/queue`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// The elevator.
    pub scheduler: Option<String>,
    /// Elevators that can be chosen.
    pub schedulers: Vec<String>,
    /// Read-ahead window.
    pub read_ahead_kb: Option<u64>,
    /// Largest request.
    pub max_sectors_kb: Option<u64>,
    /// Requests the elevator holds. For loop devices the kernel may say more than it grants.
    pub nr_requests: Option<u64>,
    /// Which merges are not tried: 0 none, 1 all but the simplest, 2 all.
    pub nomerges: Option<u64>,
    /// It turns.
    pub rotational: Option<bool>,
    /// Unit of addressing.
    pub logical_block_bytes: Option<u64>,
    /// Unit of writing.
    pub physical_block_bytes: Option<u64>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
}

fn text(path: impl AsRef<Path>) -> Option<String> {
    fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
}

fn known(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

impl Machine {
    /// Of this machine, now.
    pub fn read() -> Machine {
        let cpuinfo = text("/proc/cpuinfo").unwrap_or_default();
        Machine {
            kernel_release: known(text("/proc/sys/kernel/osrelease")),
            kernel_version: {
                let built = ["/proc/version_signature", "/proc/sys/kernel/version"].into_iter().filter_map(text);
                known(Some(built.collect::<Vec<_>>().join("; ")))
            },
            cpu_model: cpu_model(&cpuinfo),
            cpus: text("/sys/devices/system/cpu/online").and_then(|list| cpus_in(&list)),
            is_virtual: is_virtual(&cpuinfo),
            memory_bytes: text("/proc/meminfo").and_then(|text| meminfo(&text, "MemTotal")),
            governor: known(text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
            clocksource: known(text("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
            neighbours: Neighbours::read(),
        }
    }
}

impl Neighbours {
    /// Now.
    pub fn read() -> Neighbours {
        let load = text("/proc/loadavg").and_then(|text| loadavg(&text));
        let pressure = |of: &str| text(format!("/proc/pressure/{of}")).and_then(|text| pressure(&text));
        Neighbours {
            load: load.map(|(load, _)| load),
            running: load.map(|(_, running)| running),
            cpu_pressure: pressure("cpu"),
            io_pressure: pressure("io"),
            memory_pressure: pressure("memory"),
        }
    }
}

/// The processor's name in `/proc/cpuinfo`; the key differs between architectures.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    ["model name", "Model", "cpu model", "cpu", "machine"].iter().find_map(|key| {
        cpuinfo.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == *key).then(|| value.trim().to_owned())
        })
    })
}

/// Whether the flags of `/proc/cpuinfo` name a hypervisor; only x86 has such a flag.
fn is_virtual(cpuinfo: &str) -> Option<bool> {
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags"))?;
    Some(flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

/// Number of CPUs in a list like `0-3,8`.
fn cpus_in(list: &str) -> Option<u32> {
    let mut n = 0;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        n += last.checked_sub(first)? + 1;
    }
    Some(n)
}

/// A line of `/proc/meminfo`, in bytes.
pub(crate) fn meminfo(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let kb = value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
        (name == key).then_some(kb * 1024)
    })
}

/// The three loads of `/proc/loadavg`, and how many tasks are runnable.
fn loadavg(text: &str) -> Option<([f64; 3], u32)> {
    let mut words = text.split_whitespace();
    let mut next = || words.next();
    let load = [next()?.parse().ok()?, next()?.parse().ok()?, next()?.parse().ok()?];
    Some((load, next()?.split_once('/')?.0.parse().ok()?))
}

/// A file of `/proc/pressure`.
fn pressure(text: &str) -> Option<Pressure> {
    let avg10 = |who: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(who))?;
        line.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
    };
    Some(Pressure { some_avg10_pct: avg10("some")?, full_avg10_pct: avg10("full").unwrap_or(0.0) })
}

/// The word in brackets of a list like `none [mq-deadline] bfq`, or the whole text without one.
pub fn chosen(text: &str) -> &str {
    match (text.find('['), text.find(']')) {
        (Some(from), Some(to)) if from < to => &text[from + 1..to],
        _ => text.trim(),
    }
}

impl Queue {
    /// Of the disk whose folder below `/sys/block` is given.
    fn read(folder: &Path) -> Queue {
        let of = |name: &str| known(text(folder.join("queue").join(name)));
        let number = |name: &str| of(name).and_then(|text| text.parse::<u64>().ok());
        let schedulers = of("scheduler").unwrap_or_default();
        Queue {
            scheduler: Some(chosen(&schedulers).to_owned()).filter(|name| !name.is_empty()),
            schedulers: schedulers.split_whitespace().map(|name| name.trim_matches(['[', ']']).to_owned()).collect(),
            read_ahead_kb: number("read_ahead_kb"),
            max_sectors_kb: number("max_sectors_kb"),
            nr_requests: number("nr_requests"),
            nomerges: number("nomerges"),
            rotational: number("rotational").map(|n| n != 0),
            logical_block_bytes: number("logical_block_size"),
            physical_block_bytes: number("physical_block_size"),
            write_cache: of("write_cache"),
        }
    }
}

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Major and minor number of the file system's device.
    pub number: (u32, u32),
    /// Where it is mounted.
    pub point: PathBuf,
    /// Options of the mount.
    pub options: String,
    /// Type of the file system.
    pub filesystem: String,
    pub source: PathBuf,
    /// Options of the file system.
    pub super_options: String,
}

/// File systems that wait for another machine or process.
const REMOTE: [&str; 7] = ["nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "autofs"];

impl Mount {
    /// Another machine or process serves it: to look at a file may take long, or for ever.
    pub fn is_served(&self) -> bool {
        REMOTE.contains(&self.filesystem.as_str()) || self.filesystem.starts_with("fuse")
    }
}

/// All mounts in `/proc/self/mountinfo`, in its order: of two at one place the later hides the earlier.
pub fn mounts(mountinfo: &str) -> Vec<Mount> {
    mountinfo.lines().filter_map(mount).collect()
}

/// Names in a folder of `/proc` that are numbers: processes, threads, descriptors. None if what it is of has ended.
pub fn numbers_in(folder: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The control groups of a process: controllers with commas between them (none in cgroup v2) and path.
pub fn control_groups(pid: u32) -> BTreeSet<(String, String)> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let group = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
    };
    text.lines().filter_map(group).collect()
}

/// Folders of control groups and of those above them, but for the uppermost.
pub fn control_group_folders(groups: &BTreeSet<(String, String)>) -> Vec<PathBuf> {
    let mounts = current_mounts();
    let mut folders = BTreeSet::new();
    for (controllers, path) in groups.iter().filter(|(_, path)| path != "/") {
        let of = |mount: &&Mount| match controllers.as_str() {
            "" => mount.filesystem == "cgroup2",
            known => {
                let options = mount.super_options.split(',');
                mount.filesystem == "cgroup" && known.split(',').all(|one| options.clone().any(|own| own == one))
            }
        };
        let Some(mount) = mounts.iter().find(of) else { continue };
        let mut folder = Path::new(path.trim_start_matches('/'));
        while !folder.as_os_str().is_empty() {
            folders.insert(mount.point.join(folder));
            folder = folder.parent().unwrap_or(Path::new(""));
        }
    }
    folders.into_iter().collect()
}

/// The memory that the control groups of this process allow it, bytes; none if they do not limit it.
pub fn memory_limit() -> Option<u64> {
    let folders = control_group_folders(&control_groups(std::process::id()));
    let limit = |folder: &PathBuf| {
        let read = |name| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
        ["memory.limit_in_bytes", "memory.high", "memory.max"].into_iter().filter_map(read).min()
    };
    folders.iter().filter_map(limit).min()
}

fn mount(line: &str) -> Option<Mount> {
    // The optional fields in between end with a lone dash.
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let mut right = right.split(' ');
    Some(Mount {
        number: device_number(left.get(2)?)?,
        point: unescaped(left.get(4)?),
        options: (*left.get(5)?).to_owned(),
        filesystem: right.next()?.to_owned(),
        source: unescaped(right.next()?),
        super_options: right.next().unwrap_or_default().to_owned(),
    })
}

/// Mounts of this process now.
pub fn current_mounts() -> Vec<Mount> {
    fs::read("/proc/self/mountinfo").map(|bytes| mounts(&String::from_utf8_lossy(&bytes))).unwrap_or_default()
}

/// `254:0`.
pub(crate) fn device_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// A path in which the kernel wrote blanks, tabs, line ends and backslashes as `\040` and the like.
pub(crate) fn unescaped(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        let value =
            octal.and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|s| u8::from_str_radix(s, 8).ok());
        out.push(value.unwrap_or(bytes[at]));
        at += if value.is_some() { 4 } else { 1 };
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

/// The mount that `path` (absolute, without symlinks) is on: of those with the longest matching place the last.
pub fn mount_of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.as_os_str().as_bytes().len())
}

/// Major and minor number of a `dev_t`.
pub(crate) fn split_device(device: u64) -> (u32, u32) {
    (libc::major(device), libc::minor(device))
}

/// The folder in `/sys` of a block device.
pub fn sysfs_folder((major, minor): (u32, u32)) -> Option<PathBuf> {
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}

/// The folder of the whole disk that a block device's folder belongs to.
pub fn whole_disk(folder: &Path) -> PathBuf {
    match folder.parent() {
        Some(parent) if folder.join("partition").exists() => parent.to_owned(),
        _ => folder.to_owned(),
    }
}

/// The path itself, or the nearest folder above it that exists; without symlinks.
fn existing(path: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(path).ok()?;
    absolute.ancestors().find_map(|path| fs::canonicalize(path).ok())
}

impl Disk {
    /// The disk below a file, a folder or a device node; for a file that does not exist, below where it would be.
    pub fn below(path: &Path) -> Disk {
        let Some(path) = existing(path) else { return Disk::default() };
        let Ok(metadata) = fs::metadata(&path) else { return Disk::default() };
        if metadata.file_type().is_block_device() {
            return Disk::default().with_device(split_device(metadata.rdev()));
        }
        let mounts = current_mounts();
        let Some(mount) = mount_of(&mounts, &path) else { return Disk::default() };
        // Some file systems (btrfs) have device numbers of their own; their source still names a disk.
        let number = match split_device(metadata.dev()) {
            number if sysfs_folder(number).is_some() => Some(number),
            _ => fs::metadata(&mount.source)
                .ok()
                .filter(|source| source.file_type().is_block_device())
                .map(|source| split_device(source.rdev())),
        };
        let disk = Disk {
            filesystem: Some(mount.filesystem.clone()),
            source: Some(mount.source.to_string_lossy().into_owned()),
            mount_point: Some(mount.point.clone()),
            mount_options: Some(mount.all_options()),
            ..Disk::default()
        };
        match number {
            Some(number) => disk.with_device(number),
            None => disk,
        }
    }

    fn with_device(self, number: (u32, u32)) -> Disk {
        let Some(folder) = sysfs_folder(number).map(|folder| whole_disk(&folder)) else { return self };
        Disk {
            name: folder.file_name().map(|name| name.to_string_lossy().into_owned()),
            number: text(folder.join("dev")).and_then(|text| device_number(&text)),
            queue: Queue::read(&folder),
            ..self
        }
    }
}

/// Every whole disk of the machine that has a size, by name.
pub fn disks() -> Vec<Disk> {
    let mut names: Vec<PathBuf> =
        fs::read_dir("/sys/block").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    names.sort();
    names
        .iter()
        .filter(|folder| text(folder.join("size")).is_some_and(|size| size != "0"))
        .filter_map(|folder| text(folder.join("dev")).and_then(|text| device_number(&text)))
        .map(|number| Disk::default().with_device(number))
        .collect()
}

/// Options of ext4 that are the superblock's own (`tune2fs -o`) are not among those of a mount.
const BY_DEFAULT: [&str; 4] = ["data=journal", "data=writeback", "nobarrier", "discard"];

impl Mount {
    /// Options of the mount and of its file system, with those of ext4 that its superblock sets, each once.
    pub fn all_options(&self) -> String {
        let (major, minor) = self.number;
        let name = fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok();
        let name = name.as_deref().and_then(Path::file_name).filter(|_| self.filesystem == "ext4");
        let set = name.and_then(|name| text(Path::new("/proc/fs/ext4").join(name).join("options")));
        all_options(&self.options, &self.super_options, &set.unwrap_or_default())
    }
}

fn all_options(mount: &str, filesystem: &str, set: &str) -> String {
    let mut all: Vec<&str> = Vec::new();
    let by_default = set.lines().filter(|option| BY_DEFAULT.contains(option));
    for option in mount.split(',').chain(filesystem.split(',')).chain(by_default) {
        if !option.is_empty() && !all.contains(&option) {
            all.push(option);
        }
    }
    all.join(",")
}

/// A line of `/proc/diskstats`. Reads are at index 0, writes at 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskStat {
    /// Name of the device.
    pub name: String,
    pub number: (u32, u32),
    /// Requests completed.
    pub ios: [u64; 2],
    /// Bios merged.
    pub merges: [u64; 2],
    /// Sectors of 512 bytes.
    pub sectors: [u64; 2],
    /// Time from allocation to completion, summed, ms.
    pub ticks_ms: [u64; 2],
    /// Requests in flight.
    pub in_flight: u64,
    /// Time in which at least one was in flight, ms.
    pub busy_ms: u64,
    /// Requests in flight integrated over time, ms.
    pub in_queue_ms: u64,
}

/// All lines of `/proc/diskstats`.
pub fn diskstats(text: &str) -> Vec<DiskStat> {
    text.lines().filter_map(diskstat).collect()
}

fn diskstat(line: &str) -> Option<DiskStat> {
    let words: Vec<&str> = line.split_whitespace().collect();
    // Kernels since 4.18 append discards and flushes; the first eleven figures have been there since 2.6.
    let n = |nr: usize| words.get(nr)?.parse::<u64>().ok();
    Some(DiskStat {
        name: (*words.get(2)?).to_owned(),
        number: (words[0].parse().ok()?, words[1].parse().ok()?),
        ios: [n(3)?, n(7)?],
        merges: [n(4)?, n(8)?],
        sectors: [n(5)?, n(9)?],
        ticks_ms: [n(6)?, n(10)?],
        in_flight: n(11)?,
        busy_ms: n(12)?,
        in_queue_ms: n(13)?,
    })
}

/// The counters of all disks now.
pub fn current_diskstats() -> Vec<DiskStat> {
    text("/proc/diskstats").map(|text| diskstats(&text)).unwrap_or_default()
}

/// Activity of one disk between two readings. Reads are at index 0, writes at 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskDelta {
    /// Name of the device.
    pub name: String,
    /// Requests completed.
    pub ios: [u64; 2],
    /// Bios merged.
    pub merges: [u64; 2],
    /// Sectors of 512 bytes.
    pub sectors: [u64; 2],
    /// Time from allocation to completion, summed, ms.
    pub ticks_ms: [u64; 2],
    /// Requests in flight integrated over time, ms.
    pub in_queue_ms: u64,
    /// Share of the time in which at least one request was in flight, per cent.
    pub util_pct: f64,
}

impl DiskDelta {
    /// From `before` to `after`, `elapsed` later. A counter that ran backwards (the device was replaced) counts as 0.
    pub fn between(before: &DiskStat, after: &DiskStat, elapsed: Duration) -> DiskDelta {
        let less = |after: [u64; 2], before: [u64; 2]| [0, 1].map(|nr| u64::saturating_sub(after[nr], before[nr]));
        let busy_ms = after.busy_ms.saturating_sub(before.busy_ms) as f64;
        let elapsed_ms = elapsed.as_secs_f64() * 1e3;
        DiskDelta {
            name: after.name.clone(),
            ios: less(after.ios, before.ios),
            merges: less(after.merges, before.merges),
            sectors: less(after.sectors, before.sectors),
            ticks_ms: less(after.ticks_ms, before.ticks_ms),
            in_queue_ms: after.in_queue_ms.saturating_sub(before.in_queue_ms),
            util_pct: if elapsed_ms > 0.0 { (100.0 * busy_ms / elapsed_ms).min(100.0) } else { 0.0 },
        }
    }

    /// Of every disk that is in both readings and did something, in the order of the later.
    pub fn all(before: &[DiskStat], after: &[DiskStat], elapsed: Duration) -> Vec<DiskDelta> {
        after
            .iter()
            .filter_map(|after| {
                let before = before.iter().find(|before| before.number == after.number && before.name == after.name)?;
                Some(DiskDelta::between(before, after, elapsed))
            })
            .filter(|delta| delta.ios != [0, 0])
            .collect()
    }
}

/// CPU time since the start of the machine, in ticks, from `/proc/stat`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Everything.
    pub total: u64,
    /// Doing nothing, or waiting for I/O.
    pub idle: u64,
    /// Taken by the hypervisor for others.
    pub steal: u64,
}

/// The first line of `/proc/stat`.
pub fn cpu_time(stat: &str) -> Option<CpuTime> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let n: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest time is part of user time already.
    let all = n.get(..8)?;
    Some(CpuTime { total: all.iter().sum(), idle: all[3] + all[4], steal: all[7] })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPUINFO: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\
                           flags\t\t: fpu vme hypervisor lahf_lm\n";

    #[test]
    fn the_processor_is_found_under_its_architectures_key() {
        assert_eq!(cpu_model(CPUINFO).as_deref(), Some("AMD EPYC"));
        assert_eq!(cpu_model("processor : 0\nModel : Raspberry Pi 4\n").as_deref(), Some("Raspberry Pi 4"));
        assert_eq!(cpu_model("processor : 0\n"), None);
        assert_eq!(is_virtual(CPUINFO), Some(true));
        assert_eq!(is_virtual("flags : fpu vme\n"), Some(false));
        assert_eq!(is_virtual("Features : fp asimd\n"), None);
    }

    #[test]
    fn lists_of_cpus_are_counted() {
        let cases = [("0", Some(1)), ("0-1", Some(2)), ("0-3,8,10-11\n", Some(7)), ("", None), ("3-1", None)];
        for (list, n) in cases {
            assert_eq!(cpus_in(list), n, "{list:?}");
        }
    }

    #[test]
    fn memory_load_and_pressure_are_read_as_the_kernel_writes_them() {
        let text = "MemTotal:       24684096 kB\nMemFree:        18194460 kB\nHugePages_Total:       0\n";
        assert_eq!(meminfo(text, "MemTotal"), Some(24_684_096 * 1024));
        assert_eq!(meminfo(text, "HugePages_Total"), None);
        assert_eq!(loadavg("1.44 1.45 2.07 4/99 21970\n"), Some(([1.44, 1.45, 2.07], 4)));
        assert_eq!(loadavg("1.44 1.45"), None);
        let both = "some avg10=6.22 avg60=3.69 avg300=4.90 total=6435273728\nfull avg10=0.50 avg60=0.00 total=0\n";
        assert_eq!(pressure(both), Some(Pressure { some_avg10_pct: 6.22, full_avg10_pct: 0.5 }));
        // Before 5.13 the second line was missing for CPUs.
        let old = "some avg10=1.00 avg60=3.69 avg300=4.90 total=1\n";
        assert_eq!(pressure(old), Some(Pressure { some_avg10_pct: 1.0, full_avg10_pct: 0.0 }));
        assert_eq!(pressure(""), None);
    }

    #[test]
    fn the_chosen_word_is_the_one_in_brackets() {
        for (text, word) in [("none [mq-deadline] kyber bfq\n", "mq-deadline"), ("[none]", "none"), ("128\n", "128")] {
            assert_eq!(chosen(text), word);
        }
    }

    const MOUNTINFO: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
28 27 0:25 / /disk/a\\040b ro,nosuid shared:7 master:1 - tmpfs none ro,size=4k
29 27 0:31 / /disk rw - btrfs /dev/vdb rw
30 27 0:33 / /disk rw,noatime - xfs /dev/vdc rw
a line that is none
";

    #[test]
    fn mounts_are_read_with_their_optional_fields_and_escapes() {
        let mounts = mounts(MOUNTINFO);
        assert_eq!(mounts.len(), 4);
        assert_eq!(mounts[1].point, Path::new("/disk/a b"));
        assert_eq!((mounts[1].filesystem.as_str(), mounts[1].number), ("tmpfs", (0, 25)));
        assert_eq!(mounts[0].source, Path::new("/dev/vda"));
        let on = |path: &str| mount_of(&mounts, Path::new(path)).map(|mount| mount.filesystem.as_str());
        let cases = [("/etc/x", "ext4"), ("/disk/x", "xfs"), ("/disk/a b/x", "tmpfs"), ("/disk2", "ext4")];
        for (path, filesystem) in cases {
            assert_eq!(on(path), Some(filesystem), "{path}");
        }
        let set = "rw\ndiscard\ndata=journal\ncommit=5";
        assert_eq!(all_options("rw,noatime", "rw,discard", set), "rw,noatime,discard,data=journal");
        assert_eq!(unescaped("a\\134b\\04"), Path::new("a\\b\\04"));
    }

    const BEFORE: &str = "\
   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 254       0 vda 100 10 8000 50 20 2 160 40 3 500 90 0 0 0 0 0 0
   8       0 sda 5 0 40 1 0 0 0 0 0 1 1
";
    const AFTER: &str = "\
   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 254       0 vda 160 11 8480 80 30 5 240 45 0 750 190 0 0 0 0 0 0
   8       0 sda 3 0 24 1 7 0 56 3 0 2 2
";

    #[test]
    fn a_delta_is_what_happened_in_between() {
        let deltas = DiskDelta::all(&diskstats(BEFORE), &diskstats(AFTER), Duration::from_millis(500));
        let expected = DiskDelta {
            name: "vda".into(),
            ios: [60, 10],
            merges: [1, 3],
            sectors: [480, 80],
            ticks_ms: [30, 5],
            in_queue_ms: 100,
            util_pct: 50.0,
        };
        assert_eq!(deltas[0], expected);
        // Its counters ran backwards: replaced in between. The idle loop device is left out.
        assert_eq!((deltas[1].name.as_str(), deltas[1].ios), ("sda", [0, 7]));
        assert_eq!(deltas.len(), 2);
    }

    #[test]
    fn no_time_is_no_utilisation_and_it_never_exceeds_all() {
        let (before, after) = (&diskstats(BEFORE)[1], &diskstats(AFTER)[1]);
        assert_eq!(DiskDelta::between(before, after, Duration::ZERO).util_pct, 0.0);
        assert_eq!(DiskDelta::between(before, after, Duration::from_millis(1)).util_pct, 100.0);
    }

    #[test]
    fn stolen_time_is_the_eighth_figure() {
        let stat = "cpu  2236085 0 165269 3045952 10665 0 883 989 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        let time = cpu_time(stat).expect("a line");
        assert_eq!((time.steal, time.idle), (989, 3_045_952 + 10_665));
        assert_eq!(time.total, 2_236_085 + 165_269 + 3_045_952 + 10_665 + 883 + 989);
        assert_eq!(cpu_time("cpu  1 2 3"), None);
    }

    #[test]
    fn this_machine_can_be_read() {
        let machine = Machine::read();
        assert!(machine.kernel_release.is_some() && machine.cpus > Some(0) && machine.memory_bytes > Some(0));
        let disk = Disk::below(Path::new("/proc/no/such/file"));
        assert_eq!((disk.filesystem.as_deref(), disk.name), (Some("proc"), None));
        let here = Disk::below(&std::env::temp_dir());
        assert!(here.mount_point.is_some() && here.mount_options.is_some());
    }
}
