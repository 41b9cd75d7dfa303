//! The job's files: laying them out before the clock starts, and opening them.
//!
//! ```text
//! lay out   a file that is too short is made longer if the plan allows it: filled with data if a thread reads it or
//!           asks for checked data, else only allocated, as fio does; what a file has already is never touched
//! open      once for each set of descriptors that uses it, with the flags of the threads of that set
//! ```

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use iowhy_stack::rng::Rng;

use crate::plan::{OpenSync, Verify};
use crate::{plan, verify};

/// Bytes written at once.
const CHUNK: usize = 1 << 20;

/// What the files are needed for.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Need {
    /// Bytes that must be there.
    pub bytes: u64,
    /// There must be data in it.
    pub data: bool,
    /// These are checked, in blocks of that length.
    pub checked: Option<(Verify, u32)>,
}

/// Size of a file or block device.
pub(crate) fn size_of(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if !metadata.file_type().is_block_device() {
        return Ok(metadata.len());
    }
    // SAFETY: the call takes numbers only; the descriptor's position is used by nobody else yet.
    let end = unsafe { libc::lseek64(file.as_raw_fd(), 0, libc::SEEK_END) };
    if end < 0 { Err(io::Error::last_os_error()) } else { Ok(end as u64) }
}

/// Why a file could not be laid out.
#[derive(Debug)]
pub(crate) enum LayOutError {
    /// A system call failed.
    Io(io::Error),
    /// A device is smaller than the job needs.
    Small(u64),
}

impl From<io::Error> for LayOutError {
    fn from(error: io::Error) -> LayOutError {
        LayOutError::Io(error)
    }
}

/// Makes `file` as long as is needed, if it may be. Its number is mixed into the data. Says how many bytes are there
/// through `progress`, 0 before the first, and ends early if a signal asks for it.
pub(crate) fn lay_out(
    file: &plan::File,
    number: u32,
    need: &Need,
    progress: &mut dyn FnMut(u64),
) -> Result<(), LayOutError> {
    let existing = fs::metadata(&file.path);
    if let Ok(metadata) = &existing
        && metadata.file_type().is_block_device()
    {
        let bytes = size_of(&File::open(&file.path)?)?;
        return if bytes < need.bytes { Err(LayOutError::Small(bytes)) } else { Ok(()) };
    }
    if !file.may_create {
        // What is missing is reported by the threads that work on it.
        return Ok(());
    }
    let from = match existing {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error.into()),
    };
    if from >= need.bytes && file.path.exists() {
        return Ok(());
    }
    let open = OpenOptions::new().write(true).create(true).truncate(false).open(&file.path)?;
    // Whoever serves the disk hears of it before the first byte.
    progress(0);
    if need.data {
        if file.reserve {
            // Its size stays what has been written, so that a file that was left half filled is known as one.
            reserve(&open, need.bytes, libc::FALLOC_FL_KEEP_SIZE)?;
        }
        write_data(&open, number, from, need, progress)?;
        // As fio (`create_fsync`): pages that are still dirty could not be dropped when threads start.
        open.sync_data()?;
    } else {
        allocate(&open, need.bytes)?;
    }
    Ok(())
}

/// Gives a file its size and, where the file system can, its blocks.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    if reserve(file, bytes, 0)? { Ok(()) } else { file.set_len(bytes) }
}

/// Gives a file blocks, and its size unless the mode says otherwise; whether the file system can.
fn reserve(file: &File, bytes: u64, mode: libc::c_int) -> io::Result<bool> {
    // SAFETY: the call takes numbers only.
    if unsafe { libc::fallocate64(file.as_raw_fd(), mode, 0, bytes as libc::off64_t) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINTR) => Ok(false),
        _ => Err(error),
    }
}

/// Writes data from `from` to the end: random bytes, or what can be checked.
fn write_data(file: &File, number: u32, from: u64, need: &Need, progress: &mut dyn FnMut(u64)) -> io::Result<()> {
    let mut buffer = vec![0u8; CHUNK];
    let mut rng = Rng::stream(u64::from(number), "layout");
    let mut offset = from;
    fill_random(&mut buffer, &mut rng);
    while offset < need.bytes && !crate::signal::raised() {
        let len = (need.bytes - offset).min(CHUNK as u64) as usize;
        let len = match &need.checked {
            // Headers must be where the reads expect them, which begin at multiples of their length.
            Some((verify, block)) => {
                let block = u64::from((*block).max(1));
                offset -= offset % block;
                let len = (need.bytes - offset).min((CHUNK as u64 / block).max(1) * block) as usize;
                if buffer.len() < len {
                    buffer.resize(len, 0);
                }
                for (index, part) in buffer[..len].chunks_mut(block as usize).enumerate() {
                    verify::fill(part, verify, number, offset + index as u64 * block, 0);
                }
                len
            }
            None => {
                // No two chunks are equal, or a device that removes duplicates would have an easy time.
                for sector in buffer[..len].chunks_exact_mut(512) {
                    sector[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
                }
                len
            }
        };
        file.write_all_at(&buffer[..len], offset)?;
        offset += len as u64;
        progress(offset);
    }
    Ok(())
}

/// Fills `buffer` with random bytes.
pub(crate) fn fill_random(buffer: &mut [u8], rng: &mut Rng) {
    let mut chunks = buffer.chunks_exact_mut(8);
    for chunk in &mut chunks {
        chunk.copy_from_slice(&rng.next_u64().to_le_bytes());
    }
    let rest = chunks.into_remainder();
    let last = rng.next_u64().to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}

/// How a file is opened.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flags {
    pub write: bool,
    pub direct: bool,
    pub sync: i32,
}

impl Flags {
    pub(crate) fn new(write: bool, direct: bool, sync: Option<OpenSync>) -> Flags {
        let sync = match sync {
            None => 0,
            Some(OpenSync::Sync) => libc::O_SYNC,
            Some(OpenSync::Dsync) => libc::O_DSYNC,
        };
        Flags { write, direct, sync }
    }
}

/// Opens a file that is there.
pub(crate) fn open(path: &Path, flags: Flags) -> io::Result<File> {
    let direct = if flags.direct { libc::O_DIRECT } else { 0 };
    OpenOptions::new().read(true).write(flags.write).custom_flags(direct | flags.sync).open(path)
}

/// Allows the process as many open files as it may have at most. Says whether that is more than before.
pub(crate) fn raise_limit() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives through the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 || limit.rlim_cur == limit.rlim_max {
        return false;
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as above.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0 }
}
