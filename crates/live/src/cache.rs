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
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use iowhy_stack::units::PAGE_BYTES;

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

/// Pages of the open file `fd`, `bytes` long, in the page cache; none if the system cannot tell.
pub fn resident_pages(fd: RawFd, bytes: u64) -> Option<u64> {
    cachestat(fd).or_else(|| mincore(fd, bytes))
}

fn cachestat(fd: RawFd) -> Option<u64> {
    let (range, mut answer) = (Range { offset: 0, len: 0 }, Cachestat::default());
    // SAFETY: both structures have the kernel's layout and live through the call.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, fd, &raw const range, &raw mut answer, 0) };
    (result == 0).then_some(answer.nr_cache)
}

/// Bytes mapped at a time, so that a large file needs no large vector.
const MAPPED: u64 = 1 << 30;

fn mincore(fd: RawFd, bytes: u64) -> Option<u64> {
    let mut pages = 0;
    for from in (0..bytes).step_by(MAPPED as usize) {
        let len = MAPPED.min(bytes - from) as usize;
        let mut map = vec![0u8; len.div_ceil(PAGE_BYTES as usize)];
        // SAFETY: a new mapping is asked for that nobody reads; it only serves to ask about its pages.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, fd, from as libc::off_t)
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the mapping is `len` long and `map` has a byte for each of its pages.
        let result = unsafe { libc::mincore(start, len, map.as_mut_ptr()) };
        // SAFETY: the mapping was made above and nothing refers to it.
        unsafe { libc::munmap(start, len) };
        if result != 0 {
            return None;
        }
        pages += map.iter().filter(|page| **page & 1 != 0).count() as u64;
    }
    Some(pages)
}

/// Drops the clean cached pages of a file.
///
/// # Errors
/// The system's error; a file system without a cache of its own takes the advice and does nothing.
pub fn drop_clean(fd: RawFd) -> io::Result<()> {
    advise(fd, 0, 0, libc::POSIX_FADV_DONTNEED)
}

/// Writes a file back and drops its pages.
///
/// # Errors
/// The system's error.
pub fn make_cold(file: &File) -> io::Result<()> {
    file.sync_all()?;
    drop_clean(file.as_raw_fd())
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
    advise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM)?;
    file.read_at(&mut [0], offset).map(|_| ())
}

/// posix_fadvise(2).
///
/// # Errors
/// The system's error.
pub fn advise(fd: RawFd, offset: u64, len: u64, advice: libc::c_int) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    match unsafe { libc::posix_fadvise(fd, offset as libc::off_t, len as libc::off_t, advice) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
