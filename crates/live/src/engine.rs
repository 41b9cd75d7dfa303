//! Engines: how calls are handed to the kernel. Three verbs, in fio's manner: submit, commit, reap.
//!
//! An engine is one file and one line of [`ENGINES`]; `engine/skeleton.rs` shows how one is written. A synchronous
//! engine answers `Done` to each submission and leaves the other two verbs alone.

mod io_uring;
pub(crate) mod libaio;
mod mmap;
mod null;
pub(crate) mod offload;
mod psync;
mod pvsync2;
mod skeleton;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use iowhy_stack::event::Op;
use iowhy_stack::origin::Entry;
use iowhy_stack::readahead::Advice;
use rustix::fs::{FallocateFlags, FileType};

use crate::memory::{Buffer, Pool};
use crate::run::Worker;

/// A call. The engine owns it, and with it the buffer, until it is done.
#[derive(Debug, PartialEq, Eq)]
pub struct Io {
    /// Its slot, below the depth. No two calls in flight have the same.
    pub slot: u32,
    pub op: Op,
    /// Number of the file, as registered with the engine.
    pub file: u32,
    /// From which byte.
    pub offset: u64,
    /// Where data come from or go to.
    pub buffer: Buffer,
    /// From which byte of the buffer.
    pub from: u32,
    /// How many bytes.
    pub len_bytes: u32,
    /// Its I/O priority as `ioprio_set` has it, if not the thread's; 0 for none.
    pub priority: u16,
}

impl Io {
    /// Data of a write.
    #[inline(always)]
    pub fn data(&self) -> &[u8] {
        &self.buffer.data()[self.from as usize..][..self.len_bytes as usize]
    }

    /// Where a read goes to. As an address it may be named to the kernel until the call is done.
    #[inline(always)]
    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.buffer.data_mut()[self.from as usize..][..self.len_bytes as usize]
    }

    #[inline(always)]
    fn done(self, result: i32) -> Completion {
        Completion { io: self, result }
    }
}

/// A call that is done.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion {
    /// The call, with its buffer.
    pub io: Io,
    /// Bytes moved, or the negative error number.
    pub result: i32,
}

/// The answer to a submission.
#[derive(Debug, PartialEq, Eq)]
pub enum Submit {
    /// It is done already.
    Done(Completion),
    /// It goes to the kernel with the next commit.
    Queued,
    /// The ring is full: commit and reap first, then submit it again.
    Full(Io),
}

/// A way to hand calls to the kernel. Not shared between threads.
pub trait Engine {
    /// Takes a call.
    fn submit(&mut self, io: Io) -> Submit;

    /// Hands in everything that is queued; how many calls that was.
    ///
    /// # Errors
    /// The system call's error.
    fn commit(&mut self) -> io::Result<u32> {
        Ok(0)
    }

    /// Waits until at least `min` calls are done, or all that are in flight, or for the given time, and takes `max` at
    /// most.
    ///
    /// # Errors
    /// The system call's error; an interrupted wait is not an error and may yield fewer.
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

    /// A file's pages are to be dropped: a mapping of it would hold them.
    fn unmap(&mut self, _file: u32) {}

    /// Requested features that are not available, in words.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// An open file as an engine may want to know it.
#[derive(Clone, Debug, Default)]
pub struct OpenFile {
    /// None for a file of the job that the thread does not work on.
    pub file: Option<Arc<File>>,
    /// Its size when it was opened.
    pub bytes: u64,
    /// It is open for writing.
    pub writable: bool,
    /// It is open with `O_DIRECT`.
    pub direct: bool,
}

impl OpenFile {
    /// Its descriptor; -1 if there is none.
    #[inline(always)]
    fn fd(&self) -> RawFd {
        self.file.as_ref().map_or(-1, |file| file.as_raw_fd())
    }
}

/// The open files of a thread by number. An engine keeps them open as long as it has calls in flight.
#[derive(Clone, Debug)]
struct Files(Vec<OpenFile>);

impl Files {
    fn of(setup: &Setup<'_>) -> Files {
        Files(setup.files.to_vec())
    }

    #[inline(always)]
    fn of_call(&self, io: &Io) -> &File {
        self.0[io.file as usize].file.as_ref().expect("a call is on a file that the thread has open")
    }

    /// fsync, fdatasync or trim, for engines that have no way of their own.
    fn sync(&self, io: Io) -> Completion {
        let file = self.of_call(&io);
        if io.op == Op::Trim {
            let result = trim(file, io.offset, u64::from(io.len_bytes)).map(|()| io.len_bytes as usize);
            return io.done(result_of(result));
        }
        let done = if io.op == Op::Fdatasync { rustix::fs::fdatasync(file) } else { rustix::fs::fsync(file) };
        let result = result_of(done.map(|()| 0));
        io.done(result)
    }
}

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// Its name in [`ENGINES`].
    pub engine: &'static str,
    /// Calls in flight at most.
    pub depth: u32,
    /// The job's files by number.
    pub files: &'a [OpenFile],
    /// All of the thread's buffers.
    pub buffers: &'a Pool,
    /// Buffers may be registered with the kernel once.
    pub fixed_buffers: bool,
    /// Files may be registered with the kernel once.
    pub registered_files: bool,
    /// Completions are polled for.
    pub poll: bool,
    /// A thread of the kernel hands calls in, on this CPU if one is named.
    pub kernel_thread: Option<Option<u32>>,
    /// The program's advice on how it reads.
    pub advice: Option<Advice>,
}

/// An engine that can be made.
pub trait Open: Engine + Sized {
    /// Makes one for the thread that calls.
    ///
    /// # Errors
    /// The system's error.
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

/// Whether a call is made at once, by whichever engine.
#[inline(always)]
fn is_apart(op: Op) -> bool {
    matches!(op, Op::Fsync | Op::Fdatasync | Op::Trim)
}

/// Discards blocks of a device, or punches a hole into a file.
fn trim(file: &File, offset: u64, len: u64) -> rustix::io::Result<()> {
    // _IO(0x12, 119)
    const BLKDISCARD: libc::Ioctl = 0x1277;
    if FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode) != FileType::BlockDevice {
        return rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len);
    }
    let range = [offset, len];
    // SAFETY: the request reads two numbers of 64 bits, which live through the call.
    match unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, range.as_ptr()) } {
        0 => Ok(()),
        _ => Err(rustix::io::Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(rustix::io::Errno::IO)),
    }
}

/// The result of a call as completions have it.
#[inline(always)]
fn result_of(moved: rustix::io::Result<usize>) -> i32 {
    match moved {
        Ok(bytes) => bytes as i32,
        Err(error) => -error.raw_os_error(),
    }
}

#[cfg(test)]
mod tests;
