//! A private instance of tracefs: its switches, and what it counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::CaptureError;
use crate::machine;

#[derive(Debug)]
pub(super) struct Instance {
    path: PathBuf,
}

/// Events that a ring had no room for.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) events: u64,
}

impl Lost {
    pub(super) fn add(&mut self, other: Lost) {
        self.events += other.events;
    }
}

/// The events of the call that is made to find out what an event costs, how many calls are timed at once, how often.
const CALL: [&str; 2] = ["syscalls/sys_enter_pread64", "syscalls/sys_exit_pread64"];
const CALLS: u32 = 200;
const TRIES: u32 = 9;

/// Reads the losses in a CPU's `stats`: dropped, those that interrupts could not commit, and overwritten ones unless
/// that is intended.
pub(super) fn lost_in_stats(stats: &str, overwrites: bool) -> u64 {
    let of = |line: &str| {
        let (key, value) = line.split_once(':')?;
        let counts =
            matches!(key.trim(), "commit overrun" | "dropped events") || !overwrites && key.trim() == "overrun";
        if counts { value.trim().parse::<u64>().ok() } else { None }
    };
    stats.lines().filter_map(of).fold(0, u64::saturating_add)
}

/// Names of processes as the kernel keeps them: a number and a name in each line.
pub(super) fn parse_names(text: &str) -> BTreeMap<u32, String> {
    let of = |line: &str| {
        let (pid, name) = line.trim_end().split_once(' ')?;
        Some((pid.parse().ok()?, name.to_owned()))
    };
    text.lines().filter_map(of).filter(|(_, name)| name != "<...>").collect()
}

/// The same of a tracefs. Only the global instance has them, and reading changes nothing.
pub(super) fn saved_names(tracefs: &Path) -> BTreeMap<u32, String> {
    parse_names(&String::from_utf8_lossy(&fs::read(tracefs.join("saved_cmdlines")).unwrap_or_default()))
}

impl Instance {
    /// One that was just made: switched off, with a ring of this size for each CPU, and the clock of our own.
    pub(super) fn new(path: PathBuf, buffer_kib: u32) -> Result<Instance, CaptureError> {
        let instance = Instance { path };
        instance.write("tracing_on", "0")?;
        instance.write("trace_clock", "mono")?;
        instance.write("buffer_size_kb", &buffer_kib.to_string())?;
        Ok(instance)
    }

    fn write(&self, name: &str, value: &str) -> Result<(), CaptureError> {
        let path = self.path.join(name);
        let write = || OpenOptions::new().write(true).open(&path)?.write_all(value.as_bytes());
        write().map_err(|error| CaptureError::Io { attempt: "write to", path: path.clone(), error })
    }

    /// A file of an event called `group/name`.
    pub(super) fn event_file(&self, event: &str, name: &str) -> PathBuf {
        self.path.join("events").join(event).join(name)
    }

    /// Whether the kernel has the event.
    pub(super) fn offers(&self, event: &str) -> bool {
        self.event_file(event, "enable").exists()
    }

    /// The description of an event.
    pub(super) fn format(&self, event: &str) -> Result<String, CaptureError> {
        let path = self.event_file(event, "format");
        fs::read_to_string(&path).map_err(|error| CaptureError::Io { attempt: "read", path, error })
    }

    /// Filters an event.
    pub(super) fn filter(&self, event: &str, filter: &str) -> Result<(), CaptureError> {
        self.write(&format!("events/{event}/filter"), filter)
    }

    pub(super) fn enable(&self, event: &str) -> Result<(), CaptureError> {
        self.write(&format!("events/{event}/enable"), "1")
    }

    /// No other events than this one.
    pub(super) fn only(&self, event: &str) -> Result<(), CaptureError> {
        let path = self.path.join("set_event");
        // Opening it in this way switches all off.
        let write =
            || OpenOptions::new().write(true).truncate(true).open(&path)?.write_all(event.replace('/', ":").as_bytes());
        write().map_err(|error| CaptureError::Io { attempt: "write to", path: path.clone(), error })
    }

    /// Follows what the tasks start, too.
    pub(super) fn follow_forks(&self) -> Result<(), CaptureError> {
        self.write("options/event-fork", "1")
    }

    /// Only these tasks, and those of before.
    pub(super) fn follow(&self, tasks: &[u32]) -> Result<(), CaptureError> {
        self.write("set_event_pid", &list(tasks))
    }

    /// Not these tasks. Kernels before 5.7 cannot; their records are dropped later.
    pub(super) fn ignore(&self, tasks: &[u32]) -> Result<(), CaptureError> {
        if !self.path.join("set_event_notrace_pid").exists() {
            return Ok(());
        }
        self.write("set_event_notrace_pid", &list(tasks))
    }

    /// On or off.
    pub(super) fn switch(&self, on: bool) -> Result<(), CaptureError> {
        self.write("tracing_on", if on { "1" } else { "0" })
    }

    /// The rings, by the numbers of their CPUs.
    pub(super) fn rings(&self) -> Result<Vec<(u32, File)>, CaptureError> {
        let folder = self.path.join("per_cpu");
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| CaptureError::Io { attempt: "open", path, error }
        };
        let mut rings = Vec::new();
        for entry in fs::read_dir(&folder).map_err(failed(&folder))?.flatten() {
            let name = entry.file_name();
            let Some(cpu) = name.to_str().and_then(|name| name.strip_prefix("cpu")?.parse().ok()) else { continue };
            let path = entry.path().join("trace_pipe_raw");
            let ring =
                OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).map_err(failed(&path))?;
            rings.push((cpu, ring));
        }
        rings.sort_by_key(|(cpu, _)| *cpu);
        Ok(rings)
    }

    /// Bytes of a sub-buffer.
    pub(super) fn sub_buffer(&self) -> usize {
        let kib = fs::read_to_string(self.path.join("buffer_subbuf_size_kb")).ok();
        kib.and_then(|kib| kib.trim().parse::<usize>().ok()).filter(|kib| *kib > 0).map_or(4096, |kib| kib << 10)
    }

    /// Events lost on all CPUs; those overwritten do not count where that is intended.
    pub(super) fn lost(&self, overwrites: bool) -> Lost {
        let mut events = 0;
        for entry in fs::read_dir(self.path.join("per_cpu")).into_iter().flatten().flatten() {
            let stats = fs::read_to_string(entry.path().join("stats")).unwrap_or_default();
            events += lost_in_stats(&stats, overwrites);
        }
        Lost { events }
    }

    /// Events that are in the rings, or were until newer ones overwrote them.
    pub(super) fn written(&self) -> u64 {
        let of = |line: &str| {
            let (key, value) = line.split_once(':')?;
            matches!(key.trim(), "entries" | "overrun").then(|| value.trim().parse::<u64>().ok()).flatten()
        };
        let cpus = fs::read_dir(self.path.join("per_cpu")).into_iter().flatten().flatten();
        let stats = cpus.map(|cpu| fs::read_to_string(cpu.path().join("stats")).unwrap_or_default());
        stats.map(|stats| stats.lines().filter_map(of).sum::<u64>()).sum()
    }

    /// New events overwrite the oldest ones of a full ring.
    pub(super) fn overwrite(&self) -> Result<(), CaptureError> {
        self.write("options/overwrite", "1")
    }

    /// Empties the rings.
    pub(super) fn empty(&self) -> Result<(), CaptureError> {
        let path = self.path.join("trace");
        // Opening it in this way does.
        let emptied = OpenOptions::new().write(true).truncate(true).open(&path);
        emptied.map(drop).map_err(|error| CaptureError::Io { attempt: "empty", path, error })
    }

    /// Cost of an event for the task that causes it; 0 if the kernel does not trace calls.
    pub(super) fn cost_of_an_event(&self) -> Result<u64, CaptureError> {
        if !CALL.iter().all(|event| self.offers(event)) {
            return Ok(0);
        }
        let cost = cost(|on| {
            if on {
                CALL.iter().try_for_each(|event| self.enable(event))?;
            }
            self.switch(on)
        })?;
        CALL.iter().try_for_each(|event| self.write(&format!("events/{event}/enable"), "0"))?;
        self.empty()?;
        Ok(cost)
    }
}

/// Cost of an event for the task that causes it, picoseconds: half of the growth of a short call when `trace` lets its
/// begin and end be traced. 0 without such a call.
pub(super) fn cost(mut trace: impl FnMut(bool) -> Result<(), CaptureError>) -> Result<u64, CaptureError> {
    let Ok(file) = File::open("/dev/null") else { return Ok(0) };
    let off = shortest(&file);
    trace(true)?;
    let on = shortest(&file);
    trace(false)?;
    let more = on.saturating_sub(off).as_nanos() as u64;
    Ok(more.saturating_mul(1000) / u64::from(CALLS) / CALL.len() as u64)
}

/// The shortest time of several tries that [`CALLS`] calls take which read nothing.
fn shortest(file: &File) -> Duration {
    let once = || {
        let begun = Instant::now();
        for _ in 0..CALLS {
            // It is empty, which is not an error.
            let _ = file.read_at(&mut [0], 0);
        }
        begun.elapsed()
    };
    (0..TRIES).map(|_| once()).min().unwrap_or_default()
}

/// Follows all threads of these processes, but not `reader`, some at once; yields whether there are any.
pub(super) fn each_thread(
    pids: &[u32],
    reader: u32,
    mut follow: impl FnMut(&[u32]) -> Result<(), CaptureError>,
) -> Result<bool, CaptureError> {
    let mut known = BTreeSet::new();
    // Threads that are started between the look and the write are followed from the second time on.
    for _ in 0..2 {
        let threads = pids.iter().flat_map(|pid| machine::numbers_in(&format!("/proc/{pid}/task")));
        let now: BTreeSet<u32> = threads.filter(|it| *it != reader).collect();
        let new: Vec<u32> = now.difference(&known).copied().collect();
        new.chunks(256).try_for_each(&mut follow)?;
        known.extend(new);
    }
    Ok(!known.is_empty())
}

fn list(tasks: &[u32]) -> String {
    tasks.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}
