//! Settings of the queue of a modelled disk and tunables of its scheduler: typed, checked, set, read.

use std::fs;
use std::path::{Path, PathBuf};

use super::{DiskError, Front, Spec};
use crate::machine;

/// Settings of the queue that are recorded; those that can be chosen come first.
pub(super) const SETTINGS: &[&str] = &[
    "scheduler",
    "read_ahead_kb",
    "max_sectors_kb",
    "nomerges",
    "wbt_lat_usec",
    "nr_requests",
    "rotational",
    "write_cache",
    "logical_block_size",
    "max_segments",
];
const NR_CHOSEN: usize = 6;

/// Prefix of the name of a scheduler's tunable.
pub const ELEVATOR: &str = "elevator.";

/// A tunable of a scheduler, as the simulator has it and as the kernel has it.
#[derive(Debug)]
pub struct Tunable {
    pub scheduler: &'static str,
    /// Its name in the simulator.
    pub name: &'static str,
    /// Its file below `queue/iosched`.
    pub file: &'static str,
    /// The kernel's unit in the simulator's units.
    pub factor: u64,
}

const fn tunable(scheduler: &'static str, name: &'static str, file: &'static str, factor: u64) -> Tunable {
    Tunable { scheduler, name, file, factor }
}

/// Every tunable that both have. No two schedulers have one of the same name.
pub const TUNABLES: &[Tunable] = &[
    tunable("bfq", "slice_idle_us", "slice_idle_us", 1),
    tunable("bfq", "timeout_sync_ms", "timeout_sync", 1),
    tunable("bfq", "max_budget", "max_budget", 1),
    tunable("bfq", "fifo_expire_sync_ms", "fifo_expire_sync", 1),
    tunable("bfq", "fifo_expire_async_ms", "fifo_expire_async", 1),
    tunable("bfq", "back_seek_max_kb", "back_seek_max", 1),
    tunable("bfq", "back_seek_penalty", "back_seek_penalty", 1),
    tunable("bfq", "low_latency", "low_latency", 1),
    tunable("mq-deadline", "read_expire_ms", "read_expire", 1),
    tunable("mq-deadline", "write_expire_ms", "write_expire", 1),
    tunable("mq-deadline", "writes_starved", "writes_starved", 1),
    tunable("mq-deadline", "fifo_batch", "fifo_batch", 1),
    tunable("mq-deadline", "front_merges", "front_merges", 1),
    tunable("mq-deadline", "async_depth", "async_depth", 1),
    tunable("kyber", "read_lat_us", "read_lat_nsec", 1000),
    tunable("kyber", "write_lat_us", "write_lat_nsec", 1000),
];

/// The tunable of a key, for example `elevator.slice_idle_us`.
pub fn find_tunable(key: &str) -> Option<&'static Tunable> {
    let name = key.strip_prefix(ELEVATOR)?;
    TUNABLES.iter().find(|tunable| tunable.name == name)
}

/// Checks a setting of the queue as it is typed.
pub(super) fn check(key: &str, value: &str) -> Result<(), String> {
    if key.starts_with(ELEVATOR) {
        let Some(tunable) = find_tunable(key) else { return Err(format!("no scheduler here has `{key}`")) };
        let fits = value.parse::<u64>().is_ok_and(|number| number < (1 << 32) / tunable.factor);
        return if fits { Ok(()) } else { Err(format!("`{key}` cannot be `{value}`")) };
    }
    if !SETTINGS[..NR_CHOSEN].contains(&key) {
        let known = SETTINGS[..NR_CHOSEN].join(", ");
        return Err(format!("`{key}` is not known; there are fault, power, depth, {known}"));
    }
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let fits = if key == "scheduler" {
        !value.is_empty() && value.chars().all(is_word)
    } else {
        value.parse::<u64>().is_ok_and(|number| number < 1 << 32)
    };
    if fits { Ok(()) } else { Err(format!("`{key}` cannot be `{value}`")) }
}

/// `/sys/block/NAME/queue` of a node.
pub(super) fn queue(node: &Path) -> PathBuf {
    Path::new("/sys/block").join(node.file_name().unwrap_or_default()).join("queue")
}

fn write(path: &Path, value: &str) -> Result<(), DiskError> {
    fs::write(path, value).map_err(|error| DiskError::Setting { path: path.to_owned(), value: value.to_owned(), error })
}

/// Sets one of the queue's settings, or a tunable of its scheduler. The kernel derives the window of read-ahead from
/// some of them again, without a request.
pub(super) fn set(node: &Path, key: &str, value: &str) -> Result<(), DiskError> {
    let folder = queue(node);
    if let Some(tunable) = find_tunable(key) {
        let number: u64 = value.parse().unwrap_or(0);
        return write(&folder.join("iosched").join(tunable.file), &(number * tunable.factor).to_string());
    }
    let window = fs::read_to_string(folder.join("read_ahead_kb")).unwrap_or_default();
    write(&folder.join(key), value)?;
    if key != "read_ahead_kb" && !window.is_empty() {
        write(&folder.join("read_ahead_kb"), window.trim())?;
    }
    Ok(())
}

/// Makes the queue what the disk wants.
pub(super) fn prepare(node: &Path, spec: &Spec) -> Result<(), DiskError> {
    let direct = Path::new("/sys/block").join(node.file_name().unwrap_or_default()).join("loop/dio");
    if fs::read_to_string(&direct).is_ok_and(|value| value.trim() != "1") {
        return Err(DiskError::Kernel("its loop devices do no direct I/O on FUSE".to_owned()));
    }
    set(node, "rotational", if spec.rotational()? { "1" } else { "0" })?;
    if spec.cache_bytes().is_none() {
        // Older kernels do not let it be changed; then flushes come that have nothing to do.
        let _ = set(node, "write_cache", "write through");
    }
    set(node, "scheduler", spec.usual_scheduler()?)?;
    set(node, "max_sectors_kb", "1024")?;
    set_window(node, spec)?;
    spec.queue.iter().filter(|(key, _)| !of_scheduler(key)).try_for_each(|(key, value)| set(node, key, value))
}

/// Sets the window of read-ahead.
pub(super) fn set_window(node: &Path, spec: &Spec) -> Result<(), DiskError> {
    let asked = spec.queue.iter().find(|(key, _)| key == "read_ahead_kb");
    set(node, "read_ahead_kb", asked.map_or("128", |(_, value)| value))
}

/// Whether a setting goes when the scheduler is changed, even to the same one.
pub(super) fn of_scheduler(key: &str) -> bool {
    key == "nr_requests" || key.starts_with(ELEVATOR)
}

/// Makes the scheduler what the disk wants, once there is a scheduler to stay.
pub(super) fn prepare_scheduler(node: &Path, spec: &Spec, front: Front) -> Result<(), DiskError> {
    let has_one = spec.scheduler().map_or_else(|| spec.usual_scheduler(), Ok)? != "none";
    if front == Front::Ublk && has_one {
        // The kernel makes it twice the tags, of which a loop device had 128 at its birth: the layers above are to find
        // the same, whichever front it is.
        set(node, "nr_requests", NR_REQUESTS)?;
    }
    spec.queue.iter().filter(|(key, _)| of_scheduler(key)).try_for_each(|(key, value)| set(node, key, value))
}

/// Chooses the scheduler again, which forgets what it has seen so far: tasks, rates, latencies. Its settings stay.
///
/// # Errors
/// If a setting is not taken.
pub fn renew_scheduler(node: &Path) -> Result<(), DiskError> {
    let all = settings(node);
    let of = |wanted: &str| all.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.as_str());
    let Some(scheduler) = of("scheduler").filter(|name| *name != "none") else { return Ok(()) };
    set(node, "scheduler", "none")?;
    set(node, "scheduler", scheduler)?;
    all.iter().filter(|(key, _)| of_scheduler(key)).try_for_each(|(key, value)| set(node, key, value))
}

/// Requests that the scheduler of a loop device holds.
const NR_REQUESTS: &str = "256";

/// The queue's settings in the kernel.
pub(super) fn settings(node: &Path) -> Vec<(String, String)> {
    let folder = queue(node);
    let read = |name: &&str| {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        Some(((*name).to_owned(), machine::chosen(&text).to_owned()))
    };
    let mut all: Vec<(String, String)> = SETTINGS.iter().filter_map(read).collect();
    // Those of the scheduler in use only: the others have no file.
    let scheduler = all.iter().find(|(key, _)| key == "scheduler").map(|(_, value)| value.clone()).unwrap_or_default();
    all.extend(TUNABLES.iter().filter(|tunable| tunable.scheduler == scheduler).filter_map(|tunable| {
        let text = fs::read_to_string(folder.join("iosched").join(tunable.file)).ok()?;
        let number = text.trim().parse::<u64>().ok()? / tunable.factor;
        Some((format!("{ELEVATOR}{}", tunable.name), number.to_string()))
    }));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_known_by_name() {
        for (key, value, fine) in [
            ("scheduler", "mq-deadline", true),
            ("scheduler", "../x", false),
            ("read_ahead_kb", "512", true),
            ("read_ahead_kb", "-1", false),
            ("rotational", "1", false),
            ("nr_requests", "64", true),
            ("elevator.slice_idle_us", "0", true),
            ("elevator.slice_idle_us", "off", false),
            ("elevator.read_lat_us", "4294968", false),
            ("elevator.wr_coeff", "30", false),
            ("elevator.", "30", false),
            ("max_segments", "4", false),
        ] {
            assert_eq!(check(key, value).is_ok(), fine, "{key}={value}");
        }
    }
}
