//! The task that a thread is to the kernel.

use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::outcome::Usage;
use crate::plan::Thread;

pub(super) fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_pid().unsigned_abs()
}

/// Binds the thread to its CPUs and gives it its priorities; notes on those that it could not have.
pub(super) fn place(thread: &Thread) -> Vec<String> {
    let cpus = &thread.cpus;
    let bound = pin(cpus).map_err(|error| format!("the thread could not be bound to CPUs {cpus:?}: {error}"));
    let given = prioritise(thread.nice, thread.io_priority);
    let given = given.map_err(|error| format!("the thread could not be given its priority: {error}"));
    [bound, given].into_iter().filter_map(Result::err).collect()
}

/// Binds the thread to CPUs.
fn pin(cpus: &[usize]) -> std::io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// Gives the thread its priorities.
fn prioritise(nice: Option<i32>, io: Option<u16>) -> std::io::Result<()> {
    /// The number behind is a thread's (`IOPRIO_WHO_PROCESS`); 0 is the caller.
    const THREAD: libc::c_long = 1;
    if let Some(nice) = nice {
        // SAFETY: numbers alone.
        rc(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }.into())?;
    }
    if let Some(io) = io {
        // SAFETY: numbers alone.
        rc(unsafe { libc::syscall(libc::SYS_ioprio_set, THREAD, 0 as libc::c_long, libc::c_long::from(io)) })?;
    }
    Ok(())
}

fn rc(code: libc::c_long) -> std::io::Result<()> {
    if code < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// The thread's resource usage so far.
pub(super) fn usage() -> Usage {
    // SAFETY: a structure of zeroes is valid, and it lives through the call.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut used);
        used
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    Usage {
        user: time(used.ru_utime),
        system: time(used.ru_stime),
        voluntary: used.ru_nvcsw as u64,
        involuntary: used.ru_nivcsw as u64,
        minor_faults: used.ru_minflt as u64,
        major_faults: used.ru_majflt as u64,
    }
}

pub(super) fn difference(after: &Usage, before: &Usage) -> Usage {
    Usage {
        user: after.user.saturating_sub(before.user),
        system: after.system.saturating_sub(before.system),
        voluntary: after.voluntary - before.voluntary,
        involuntary: after.involuntary - before.involuntary,
        minor_faults: after.minor_faults - before.minor_faults,
        major_faults: after.major_faults - before.major_faults,
    }
}
