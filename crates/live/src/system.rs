//! System calls that several rooms make, as safe functions.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Requests of ioctl(2) that take a number, or nothing, and touch no memory of ours.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Request {
    /// Writes back and forgets what is cached of a block device (`linux/fs.h`).
    FlushBuffers = 0x1261,
    /// Detaches a loop device (`linux/loop.h`).
    LoopClear = 0x4c01,
    /// Makes the loop device of a number.
    LoopAdd = 0x4c80,
    /// Removes the loop device of a number.
    LoopRemove = 0x4c81,
    /// Version of the interface (`linux/kvm.h`).
    KvmVersion = 0xae00,
}

/// Makes a request; yields its answer.
pub(crate) fn control(file: &File, request: Request, number: u32) -> io::Result<i32> {
    // SAFETY: none of these requests takes an address.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), request as libc::Ioctl, libc::c_ulong::from(number)) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Waits until something can be read from one of these, or a while: for each whether it can, or has ended. A process
/// that a descriptor stands for can be read when it has ended.
pub(crate) fn readable(files: &[BorrowedFd<'_>], time: Duration) -> Vec<bool> {
    let mut all: Vec<PollFd<'_>> = files.iter().map(|file| PollFd::from_borrowed_fd(*file, PollFlags::IN)).collect();
    let time = Timespec::try_from(time).ok();
    // A signal ends the wait as the time does: nothing was seen.
    let _ = poll(&mut all, time.as_ref());
    all.iter().map(|file| !file.revents().is_empty()).collect()
}

/// Waits until something urgent has come to one of these, something can be read from `also`, or a while: the first of
/// these.
pub(crate) fn urgent(files: &[BorrowedFd<'_>], also: Option<BorrowedFd<'_>>, time: Duration) -> Option<usize> {
    let urgent = files.iter().map(|file| PollFd::from_borrowed_fd(*file, PollFlags::PRI));
    let mut all: Vec<PollFd<'_>> = urgent.collect();
    all.extend(also.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)));
    let time = Timespec::try_from(time).ok();
    // A signal ends the wait as the time does.
    let _ = poll(&mut all, time.as_ref());
    all[..files.len()].iter().position(|file| file.revents().contains(PollFlags::PRI))
}
