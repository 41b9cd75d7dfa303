//! Engines: how calls are handed to the kernel. Three verbs, in fio's manner: submit, commit, reap.
//!
//! An engine is one file and one line of [`ENGINES`]; `engine/skeleton.rs` shows how one is written. A synchronous
//! engine answers `Done` to each submission and leaves the other two verbs alone.

mod io_uring;
mod libaio;
mod mmap;
mod null;
mod psync;
mod pvsync2;
mod skeleton;

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use iowhy_stack::event::Op;
use iowhy_stack::origin::Entry;
use iowhy_stack::readahead::Advice;

use crate::run::Worker;

/// A call as an engine gets it.
#[derive(Copy, Clone, Debug)]
pub struct Io {
    /// Its slot: which of the thread's buffers it uses. No two calls in flight have the same.
    pub slot: u32,
    /// What to do.
    pub op: Op,
    /// Number of the file, as registered with the engine.
    pub file: u32,
    /// Its descriptor.
    pub fd: RawFd,
    /// From which byte.
    pub offset: u64,
    /// Start of the buffer; it stays valid and untouched until the call is done.
    pub buffer: *mut u8,
    /// How many bytes.
    pub len_bytes: u32,
}

/// A call that is done.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Its slot.
    pub slot: u32,
    /// Bytes moved, or the negative error number.
    pub result: i32,
}

/// The answer to a submission.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Submit {
    /// It is done already.
    Done(Completion),
    /// It goes to the kernel with the next commit.
    Queued,
    /// There is no room: commit and reap first, then submit it again.
    Full,
}

/// A way to hand calls to the kernel. Not shared between threads.
pub trait Engine {
    /// Takes a call.
    fn submit(&mut self, io: &Io) -> Submit;

    /// Hands in everything that is queued; how many calls that was.
    ///
    /// # Errors
    /// What the system call says.
    fn commit(&mut self) -> io::Result<u32> {
        Ok(0)
    }

    /// Waits until at least `min` calls are done, or all that are in flight, or so long, and takes `max` at most.
    ///
    /// # Errors
    /// What the system call says; an interrupted wait is no error and may yield fewer.
    fn reap(
        &mut self,
        _min: u32,
        _max: u32,
        _timeout: Option<Duration>,
        _done: &mut Vec<Completion>,
    ) -> io::Result<()> {
        Ok(())
    }

    /// Whether every submission is answered with `Done`: then the loop over one call at a time may be used.
    fn synchronous(&self) -> bool {
        false
    }

    /// What was asked for and could not be had, in words.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// An open file as an engine may want to know it.
#[derive(Copy, Clone, Debug)]
pub struct OpenFile {
    /// Its descriptor; -1 for a file of the job that the thread does not work on.
    pub fd: RawFd,
    /// Its size when it was opened.
    pub bytes: u64,
    /// It is open for writing.
    pub writable: bool,
    /// It is open with `O_DIRECT`.
    pub direct: bool,
}

/// What an engine is made with.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// Calls in flight at most.
    pub depth: u32,
    /// The job's files by number.
    pub files: &'a [OpenFile],
    /// The memory that has all of the thread's buffers: start and length.
    pub memory: (*mut u8, usize),
    /// Buffers may be registered with the kernel once.
    pub fixed_buffers: bool,
    /// Files may be registered with the kernel once.
    pub registered_files: bool,
    /// Completions are polled for.
    pub poll: bool,
    /// What the program says about how it reads.
    pub advice: Option<Advice>,
}

/// An engine that can be made.
pub trait Open: Engine + Sized {
    /// Makes one for the thread that calls.
    ///
    /// # Errors
    /// What the system says.
    fn open(setup: &Setup<'_>) -> io::Result<Self>;
}

/// How an engine of the table is made and driven.
#[derive(Copy, Clone)]
pub struct Build {
    /// Makes one.
    pub open: fn(&Setup<'_>) -> io::Result<Box<dyn Engine>>,
    /// Makes one and runs a thread's loop with it. The loop is compiled for each engine, so that a call of an engine
    /// costs nothing besides.
    pub(crate) drive: fn(&mut Worker<'_>),
}

impl Build {
    const fn of<E: Open + 'static>() -> Build {
        Build { open: boxed::<E>, drive: crate::run::drive::<E> }
    }
}

fn boxed<E: Open + 'static>(setup: &Setup<'_>) -> io::Result<Box<dyn Engine>> {
    Ok(Box::new(E::open(setup)?))
}

/// Every engine.
pub const ENGINES: &[&Entry<Build>] = &[
    &null::ENTRY,
    &psync::ENTRY,
    &psync::SYNC_ENTRY,
    &pvsync2::ENTRY,
    &libaio::ENTRY,
    &io_uring::ENTRY,
    &mmap::ENTRY,
    &skeleton::ENTRY,
];

/// The error number of the last system call of this thread, negative, as completions have it.
#[cold]
fn negative_errno() -> i32 {
    -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// The result of a call that yields bytes or -1.
#[inline(always)]
fn result_of(moved: isize) -> i32 {
    if moved >= 0 { moved as i32 } else { negative_errno() }
}

/// fsync or fdatasync, for engines that have no way of their own.
fn sync_now(io: &Io) -> Completion {
    // SAFETY: the calls take a descriptor only.
    let result = unsafe { if io.op == Op::Fdatasync { libc::fdatasync(io.fd) } else { libc::fsync(io.fd) } };
    Completion { slot: io.slot, result: result_of(result as isize) }
}

#[cfg(test)]
mod tests;
