//! A command and what it took: its time by the clock, and what the kernel counted of it and of what it started.
//!
//! A thread waits for it, so that its end is exact to the microsecond and not only at the next look.
//! Reference: wait4(2), getrusage(2); `ru_inblock` and `ru_oublock` are 512 bytes each.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::clock;

/// Resource usage of a command.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// When it was started and when it ended, CLOCK_MONOTONIC, ns.
    pub monotonic_ns: [u64; 2],
    /// Processor time in the program, ns.
    pub user_ns: u64,
    /// Processor time in the kernel on its behalf, ns.
    pub system_ns: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
    /// Bytes that were read from devices on its behalf.
    pub read_bytes: u64,
    /// Bytes that it made dirty or wrote directly.
    pub written_bytes: u64,
    /// How often it went to sleep, and how often it was preempted.
    pub switches: [u64; 2],
}

/// A command that runs.
#[derive(Debug)]
pub struct Running {
    /// Its process.
    pub pid: u32,
    ended: Receiver<Option<(ExitStatus, Usage)>>,
}

impl Running {
    /// Starts a program with its arguments.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(program: &str, arguments: &[String]) -> io::Result<Running> {
        let mut command = Command::new(program);
        command.args(arguments);
        Running::spawn(command)
    }

    /// Starts a command whose files are set.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(mut command: Command) -> io::Result<Running> {
        let begun = clock::monotonic();
        let child = command.spawn()?;
        let pid = child.id();
        // The thread below takes its status, and nobody else asks for it.
        drop(child);
        let (tell, ended) = channel();
        std::thread::spawn(move || {
            let _ = tell.send(wait(pid, begun));
        });
        Ok(Running { pid, ended })
    }

    /// Waits for its end up to a limit; `Err` if it still runs, nothing inside if its status is lost.
    ///
    /// # Errors
    /// If it still runs.
    pub fn ended_within(&self, time: Duration) -> Result<Option<(ExitStatus, Usage)>, RecvTimeoutError> {
        self.ended.recv_timeout(time)
    }

    /// Asks it to end, as ^C does.
    pub fn interrupt(&self) {
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::INT);
        }
    }

    /// Waits for its end.
    pub fn end(self) -> Option<(ExitStatus, Usage)> {
        self.ended.recv().ok().flatten()
    }
}

fn wait(pid: u32, begun: u64) -> Option<(ExitStatus, Usage)> {
    let mut status = 0;
    loop {
        // SAFETY: a structure of integers, for which zeroes are values; both are ours and live. The process is our
        // child, and nobody else waits for it: its number stays its own until this call is over.
        let (found, used) = unsafe {
            let mut used: libc::rusage = std::mem::zeroed();
            (libc::wait4(pid as i32, &raw mut status, 0, &raw mut used), used)
        };
        let end = clock::monotonic();
        if found == pid as i32 {
            let ns =
                |time: libc::timeval| time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_usec.unsigned_abs() * 1000;
            let usage = Usage {
                monotonic_ns: [begun, end],
                user_ns: ns(used.ru_utime),
                system_ns: ns(used.ru_stime),
                minor_faults: used.ru_minflt.unsigned_abs(),
                major_faults: used.ru_majflt.unsigned_abs(),
                read_bytes: used.ru_inblock.unsigned_abs() * 512,
                written_bytes: used.ru_oublock.unsigned_abs() * 512,
                switches: [used.ru_nvcsw.unsigned_abs(), used.ru_nivcsw.unsigned_abs()],
            };
            return Some((ExitStatus::from_raw(status), usage));
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_timed_by_the_clock_and_by_the_kernel() {
        let words = ["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.05; exit 3"];
        let running = Running::start("sh", &words.map(str::to_owned)).expect("there is a shell");
        assert!(running.ended_within(Duration::from_millis(1)).is_err());
        let (status, usage) = running.end().expect("it ends");
        assert_eq!(status.code(), Some(3));
        let wall = usage.monotonic_ns[1] - usage.monotonic_ns[0];
        assert!(wall > 50_000_000 + usage.user_ns / 2 && usage.user_ns > 1_000_000, "{usage:?}");
        assert!(Running::start("/nowhere/at-all", &[]).is_err());
    }
}
