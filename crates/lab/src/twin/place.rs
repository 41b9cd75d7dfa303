//! The stack of a recording: the model of its kernel with the settings that it had.
//!
//! Queue, mount, control group and sysctls come from the recording ([`Settings`]); processors, costs and the device
//! from the profile. Known limits: hardware queues and tags are only known of loop devices; the memory of a machine
//! without a limit is that of the model; weights (`io.weight`, `cpu.shares`) and `io.latency` are not modelled.

use iowhy_live::disk::{ELEVATOR, TUNABLES};
use iowhy_stack::filesystem::FILESYSTEMS;
use iowhy_stack::job::Throttle;
use iowhy_stack::kernel::release::Nearest;
use iowhy_stack::kernel::{Kernel, Stack};
use iowhy_stack::trace::Dev;
use iowhy_trace::settings::Settings;

use crate::conform::kernel::model_of;

/// The major number of loop devices, and the commands that one takes.
const LOOP: u32 = 7;
const LOOP_TAGS: &str = "128";

/// Settings of a queue with their keys of a stack.
const QUEUE: &[(&str, &str)] = &[
    ("scheduler", "elevator"),
    ("read_ahead_kb", "read_ahead_kb"),
    ("max_sectors_kb", "max_sectors_kb"),
    ("max_segments", "max_segments"),
    ("nomerges", "nomerges"),
];

/// The same of the whole machine.
const SYSCTLS: &[(&str, &str)] =
    &[("vm.dirty_ratio", "writeback.dirty_ratio"), ("vm.dirty_background_ratio", "writeback.dirty_background_ratio")];

/// The kernel that is nearest to a release.
pub(super) fn kernel_of(release: &str) -> &'static Kernel {
    model_of(release, "").1.kernel
}

/// The nearest kernel and the known differences, if none is the release's own.
pub(super) fn nearest(release: &str) -> Option<String> {
    let Nearest { kernel, exact, differs } = model_of(release, "").1;
    (!exact).then(|| format!("{}, the nearest to {release}: {differs}", kernel.name))
}

/// The name that settings have for a disk.
pub(super) fn disk_of(settings: &Settings, device: Dev) -> Option<String> {
    let named = settings.device_names().into_iter().find(|(dev, _)| *dev == device).map(|(_, name)| name);
    named.or_else(|| settings.get("recording", "disk").map(str::to_owned))
}

/// The setting of a disk, or of one in these.
pub(super) fn number(settings: &Settings, place: &str, key: &str) -> Option<u64> {
    settings.get(place, key)?.parse().ok()
}

/// Where the first file system is mounted, and its name.
fn filesystem_of(settings: &Settings) -> Option<(&str, &str)> {
    let mut mounts = settings.values.iter().filter(|((of, key), _)| of.starts_with('/') && key == "filesystem");
    mounts.next().map(|((of, _), name)| (of.as_str(), name.as_str()))
}

/// Its name and its options.
fn filesystem(settings: &Settings) -> Option<(&str, &str)> {
    let (of, name) = filesystem_of(settings)?;
    Some((name, settings.get(of, "mount_options").unwrap_or_default()))
}

/// The stack, `large_folios` if the recording has some; the device is left to the profile.
pub(super) fn stack(release: &str, settings: &Settings, device: Dev, large_folios: bool) -> Stack {
    let mut stack = Stack::new(kernel_of(release));
    // What a kernel does not have is not set.
    let mut set = |key: &str, value: &str| drop(stack.set(key, value));
    if let Some(disk) = disk_of(settings, device) {
        for (key, of_stack) in QUEUE {
            if let Some(value) = settings.get(&disk, key) {
                set(of_stack, value);
            }
        }
        if let Some((of, _)) = filesystem_of(settings)
            && let Some(window) = settings.get(of, "read_ahead_kb")
        {
            set("read_ahead_kb", window);
        }
        let elevator = settings.get(&disk, "scheduler").unwrap_or("none");
        if let (true, Some(nr)) = (elevator != "none", settings.get(&disk, "nr_requests")) {
            set("nr_requests", nr);
        }
        if elevator == "bfq" {
            set("elevator.used", "on");
        }
        for tunable in TUNABLES.iter().filter(|tunable| tunable.scheduler == elevator) {
            if let Some(value) = number(settings, &disk, &format!("iosched/{}", tunable.file)) {
                let key = format!("{ELEVATOR}{}", tunable.name);
                set(&key, &(value / tunable.factor).to_string());
                // A switch is 0 or 1 on a machine; of a number this is refused.
                set(&key, if value == 0 { "off" } else { "on" });
            }
        }
        if let Some(cache) = settings.get(&disk, "write_cache") {
            set("write_cache", if cache == "write back" { "on" } else { "off" });
        }
        match settings.get(&disk, "wbt_lat_usec") {
            Some("0") => set("wbt", "off"),
            Some(latency) => set("wbt_lat_us", latency),
            // The kernel was built without.
            None if settings.get(&disk, "scheduler").is_some() => set("wbt", "off"),
            None => {}
        }
    }
    if device.major() == LOOP {
        for (key, value) in [("nr_hw_queues", "1"), ("driver_tags", LOOP_TAGS), ("budget", "tags")] {
            set(key, value);
        }
    }
    for (key, of_stack) in SYSCTLS {
        if let Some(value) = settings.get("sysctl", key).filter(|value| *value != "0") {
            set(of_stack, value);
        }
    }
    for (key, of_stack) in [
        ("vm.dirty_expire_centisecs", "writeback.expire_ms"),
        ("vm.dirty_writeback_centisecs", "writeback.writeback_interval_ms"),
    ] {
        if let Some(cs) = number(settings, "sysctl", key).filter(|cs| *cs > 0) {
            set(of_stack, &(cs * 10).to_string());
        }
    }
    if let Some(mb) = memory_mb(settings) {
        set("machine.memory_mb", &mb.max(16).to_string());
        set("machine.reserved_mb", "0");
    }
    if let Some(cpus) = settings.get("machine", "cpus").filter(|cpus| !cpus.is_empty()) {
        set("machine.cpus", cpus);
    }
    // Runs differ, as on a machine: tasks wake up a little late.
    set("machine.wake_max_us", "20");
    if let Some((name, options)) = filesystem(settings) {
        let is_one = |known: &str| known == name || known.starts_with(&format!("{name}-"));
        if !is_one(stack.filesystem.entry.name) {
            match FILESYSTEMS.iter().rev().find(|entry| is_one(entry.name)) {
                Some(entry) => drop(stack.set("filesystem", entry.name)),
                // One without a model: its folios are as large as those seen.
                None if !large_folios => drop(stack.set("filesystem.max_folio_order", "0")),
                None => {}
            }
        }
        if options.split(',').any(|option| matches!(option, "barrier=0" | "nobarrier")) {
            let _ = stack.set("filesystem.barriers", "off");
        }
    }
    stack
}

/// The least limit on memory of the workload's control groups, MB.
pub(super) fn memory_mb(settings: &Settings) -> Option<u64> {
    let limits = ["memory.limit_in_bytes", "memory.max", "memory.high"];
    let of =
        |key: &&str| settings.get("cgroup", key).map(|value| value.split("; ").filter_map(|it| it.parse::<u64>().ok()));
    limits.iter().filter_map(of).flatten().min().map(|bytes| bytes >> 20)
}

/// A limit of a throttle.
type Place = fn(&mut Throttle) -> &mut u64;

/// The limits on a disk of the workload's control groups.
pub(super) fn throttle(settings: &Settings, device: Dev) -> Option<Throttle> {
    let here = format!("{}:{}", device.major(), device.minor());
    let mut limits = Throttle::default();
    let mut hold = |place: Place, value: u64| {
        let limit = place(&mut limits);
        *limit = if *limit == 0 { value } else { (*limit).min(value) };
    };
    let lines =
        |key: &str| settings.get("cgroup", key).unwrap_or_default().split("; ").map(str::to_owned).collect::<Vec<_>>();
    let kinds: [(&str, &str, Place); 4] = [
        ("read_bps_device", "rbps", |limits| &mut limits.bytes[0]),
        ("write_bps_device", "wbps", |limits| &mut limits.bytes[1]),
        ("read_iops_device", "riops", |limits| &mut limits.bios[0]),
        ("write_iops_device", "wiops", |limits| &mut limits.bios[1]),
    ];
    for (old, new, place) in kinds {
        for line in lines(&format!("blkio.throttle.{old}")) {
            if let Some(value) = line.strip_prefix(&here).and_then(|value| value.trim().parse().ok()) {
                hold(place, value);
            }
        }
        for line in lines("io.max") {
            let mut words = line.split(' ');
            if words.next() != Some(&here) {
                continue;
            }
            let value = words.find_map(|word| word.strip_prefix(new)?.strip_prefix('=')?.parse().ok());
            value.into_iter().for_each(|value| hold(place, value));
        }
    }
    (limits != Throttle::default()).then_some(limits)
}
