//! The page cache of the job's own files: how much of them is in it, dropping it, and filling it.
//!
//! ```text
//! count     cachestat(2) where there is one (Linux 6.5), else mincore(2) over a mapping
//! cold      fsync, then POSIX_FADV_DONTNEED: only clean pages go
//! warm      the file is read from end to end
//! ```
//! Nothing here drops anybody else's pages, as `drop_caches` would.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use iowhy_stack::units::PAGE_BYTES;
pub use rustix::fs::Advice;
use rustix::mm::{MapFlags, ProtFlags};

use crate::memory::Mapping;

/// Bytes read at once to warm a file.
const CHUNK: usize = 1 << 20;

/// cachestat(2), the same number on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

/// Range of a cachestat call; a length of 0 means to the end.
#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

/// Its answer.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    nr_cache: u64,
    nr_dirty: u64,
    nr_writeback: u64,
    nr_evicted: u64,
    nr_recently_evicted: u64,
}

/// Opens a file so that reads go past the page cache.
///
/// # Errors
/// The system's error; not every file system can.
pub fn open_past(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)
}

/// Pages of an open file, `bytes` long, in the page cache; none if the system cannot tell.
pub fn resident_pages(file: &File, bytes: u64) -> Option<u64> {
    cachestat(file.as_raw_fd()).ok().or_else(|| mincore(file, bytes))
}

/// cachestat(2) of a whole file: pages in the cache.
pub(crate) fn cachestat(fd: RawFd) -> io::Result<u64> {
    let (range, mut answer) = (Range { offset: 0, len: 0 }, Cachestat::default());
    // SAFETY: both structures have the kernel's layout and live through the call.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, fd, &raw const range, &raw mut answer, 0) };
    if result == 0 { Ok(answer.nr_cache) } else { Err(io::Error::last_os_error()) }
}

/// Bytes mapped at a time, so that a large file needs no large vector.
const MAPPED: u64 = 1 << 30;

fn mincore(file: &File, bytes: u64) -> Option<u64> {
    let part = |from| {
        let len = MAPPED.min(bytes - from) as usize;
        Mapping::shared(file, (from, len), ProtFlags::READ, MapFlags::empty()).ok()?.resident_pages()
    };
    (0..bytes).step_by(MAPPED as usize).map(part).sum()
}

/// The request of `FS_IOC_FIEMAP` for one extent, and its answer.
#[repr(C)]
#[derive(Default)]
struct Fiemap {
    start: u64,
    len: u64,
    flags: u32,
    mapped: u32,
    wanted: u32,
    reserved: u32,
    logical: u64,
    physical: u64,
    extent_len: u64,
    reserved_64: [u64; 2],
    extent_flags: u32,
    reserved_32: [u32; 3],
}

const FS_IOC_FIEMAP: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;
const FIEMAP_EXTENT_DATA_INLINE: u32 = 0x200;

/// Bytes at the end of a file that are kept with its metadata, not in blocks of their own.
pub fn inline_tail(file: &File, bytes: u64) -> u64 {
    // An answer begins where it is asked for at the earliest; blocks of such files are not larger than pages.
    let last = bytes.saturating_sub(1) / PAGE_BYTES * PAGE_BYTES;
    let mut ask = Fiemap { start: last, len: 1, wanted: 1, ..Fiemap::default() };
    // SAFETY: the structure has the kernel's layout with room for the one extent asked for, and lives through the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut ask) };
    let found = result == 0 && ask.mapped == 1 && ask.extent_flags & FIEMAP_EXTENT_DATA_INLINE != 0;
    if found { bytes.saturating_sub(ask.logical) } else { 0 }
}

/// Whether the data of a file go through the journal by its attribute (`chattr +j`); false where it cannot be asked.
pub fn is_journalled(path: &Path) -> bool {
    // To open others, as a pipe, may block.
    let file = path.metadata().is_ok_and(|of| of.is_file()).then(|| File::open(path).ok()).flatten();
    let flags = file.and_then(|file| rustix::fs::ioctl_getflags(file).ok());
    flags.is_some_and(|flags| flags.contains(rustix::fs::IFlags::JOURNALING))
}

/// Bytes of a block of the file system that a path is on.
///
/// # Errors
/// The system's error.
pub fn block_bytes(path: &Path) -> io::Result<u64> {
    Ok(rustix::fs::statvfs(path)?.f_bsize)
}

/// Runs of pages of an open file, `bytes` long, that are in the page cache; none if the system cannot tell.
pub fn resident_runs(file: &File, bytes: u64) -> Option<Vec<std::ops::Range<u64>>> {
    let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
    for from in (0..bytes).step_by(MAPPED as usize) {
        let part = MAPPED.min(bytes - from) as usize;
        let map = Mapping::shared(file, (from, part), ProtFlags::READ, MapFlags::empty()).ok()?.residency()?;
        for page in (from / PAGE_BYTES..).zip(map).filter(|(_, is_there)| *is_there).map(|(page, _)| page) {
            match runs.last_mut() {
                Some(last) if last.end == page => last.end += 1,
                _ => runs.push(page..page + 1),
            }
        }
    }
    Some(runs)
}

/// Drops the clean cached pages of a file.
///
/// # Errors
/// The system's error; a file system without a cache of its own takes the advice and does nothing.
pub fn drop_clean(file: impl AsFd) -> io::Result<()> {
    advise(file, 0, 0, Advice::DontNeed)
}

/// Writes a file back and drops its pages.
///
/// # Errors
/// The system's error.
pub fn make_cold(file: &File) -> io::Result<()> {
    file.sync_all()?;
    drop_clean(file)
}

/// Reads a file from end to end. Ends early if a signal asks for it.
///
/// # Errors
/// The system's error.
pub fn make_warm(file: &File, bytes: u64) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    let mut offset = 0;
    while offset < bytes && !crate::signal::raised() {
        let wanted = (bytes - offset).min(CHUNK as u64) as usize;
        match file.read_at(&mut buffer[..wanted], offset) {
            Ok(0) => break,
            Ok(read) => offset += read as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads the page of a file at an offset and nothing ahead of it, like a program that looks into it here and there.
///
/// # Errors
/// The system's error.
pub fn touch(file: &File, offset: u64) -> io::Result<()> {
    // It is advice for this descriptor only.
    advise(file, 0, 0, Advice::Random)?;
    file.read_at(&mut [0], offset).map(|_| ())
}

/// posix_fadvise(2); a length of 0 means to the end.
///
/// # Errors
/// The system's error.
pub fn advise(file: impl AsFd, offset: u64, len: u64, advice: Advice) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, offset, NonZeroU64::new(len), advice)?)
}
