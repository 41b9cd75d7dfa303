//! The job's files: laying them out before the clock starts, and opening them.
//!
//! ```text
//! lay out   a file that is too short is made longer if the plan allows it: filled with random data if a thread reads
//!           it, else only allocated, as fio does; existing contents are never touched
//! open      once for each set of descriptors that uses it, with the flags of the threads of that set
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use iowhy_stack::rng::Rng;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::guard::{Seen, size_of};
use crate::mark;
use crate::plan::{self, OpenSync};

/// Bytes written at once.
const CHUNK: usize = 1 << 20;

/// A run's uses of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Need {
    /// Bytes that must be there.
    pub bytes: u64,
    /// There must be data in it.
    pub data: bool,
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
    seen: &Seen,
    number: u32,
    need: &Need,
    progress: &mut dyn FnMut(u64),
) -> Result<(), LayOutError> {
    let existing = fs::metadata(&file.path);
    if let Ok(metadata) = &existing
        && metadata.file_type().is_block_device()
    {
        let bytes = size_of(&seen.open(false, 0)?)?;
        return if bytes < need.bytes { Err(LayOutError::Small(bytes)) } else { Ok(()) };
    }
    if !file.may_create {
        // Threads report missing files that they work on.
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
    let open = seen.open(true, 0)?;
    // The server of the disk hears of it before the first byte.
    progress(0);
    if need.data {
        if file.reserve {
            // Its size stays what has been written, so that a file that was left half filled is known as one.
            reserve(&open, need.bytes, FallocateFlags::KEEP_SIZE)?;
        }
        write_data(&open, number, from, need, progress)?;
        renew_mark(&open);
        // As fio (`create_fsync`): pages that are still dirty could not be dropped when threads start.
        open.sync_data()?;
    } else {
        allocate(&open, need.bytes)?;
        renew_mark(&open);
    }
    Ok(())
}

/// Gives a file of ours a mark with its new size; before it is synced, or the journal would write in the middle of a
/// run.
fn renew_mark(file: &File) {
    if mark::is_marked(file) {
        mark::mark(file);
    }
}

/// Gives a file its size and, where the file system can, its blocks.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    if reserve(file, bytes, FallocateFlags::empty())? { Ok(()) } else { file.set_len(bytes) }
}

/// Gives a file blocks, and its size unless the mode forbids it; returns whether the file system can.
fn reserve(file: &File, bytes: u64, mode: FallocateFlags) -> io::Result<bool> {
    match fallocate(file, mode, 0, bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR) => Ok(false),
        done => Ok(done.map(|()| true)?),
    }
}

/// Writes random bytes from `from` to the end.
fn write_data(file: &File, number: u32, from: u64, need: &Need, progress: &mut dyn FnMut(u64)) -> io::Result<()> {
    let mut buffer = vec![0u8; CHUNK];
    let mut rng = Rng::stream(u64::from(number), "layout");
    let mut offset = from;
    fill_random(&mut buffer, &mut rng);
    while offset < need.bytes && !crate::signal::raised() {
        let len = (need.bytes - offset).min(CHUNK as u64) as usize;
        // No two chunks are equal, or a device that removes duplicates would have an easy time.
        for sector in buffer[..len].chunks_exact_mut(512) {
            sector[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
        }
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
pub(crate) fn open(seen: &Seen, flags: Flags) -> io::Result<File> {
    let direct = if flags.direct { libc::O_DIRECT } else { 0 };
    seen.open(flags.write, direct | flags.sync)
}

/// Least space that stays free in a file system: a twentieth of it, or this.
const KEPT_FREE: u64 = 1 << 30;

/// Looks whether the files that are to be made or made longer fit where they are to be, with some room left. Yields
/// the first that does not, the bytes that are missing there and those that can be had.
pub(crate) fn room(files: &[(&Path, u64)]) -> Option<(PathBuf, u64, u64)> {
    let mut wanted: BTreeMap<u64, (&Path, u64)> = BTreeMap::new();
    for (path, bytes) in files {
        let metadata = fs::metadata(path).ok();
        let have = metadata.as_ref().map_or(0, |it| it.blocks() * 512);
        let place = path.ancestors().skip(1).map(|it| if it == Path::new("") { Path::new(".") } else { it });
        let device = metadata.or_else(|| place.filter_map(|it| fs::metadata(it).ok()).next()).map(|it| it.dev());
        let sum = wanted.entry(device?).or_insert((path, 0));
        sum.1 += bytes.saturating_sub(have);
    }
    wanted.into_values().filter(|(_, bytes)| *bytes > 0).find_map(|(path, bytes)| {
        let mut place = path.ancestors().map(|it| if it == Path::new("") { Path::new(".") } else { it });
        let found = statvfs(place.find(|it| it.exists())?).ok()?;
        let kept = (found.f_blocks * found.f_frsize / 20).min(KEPT_FREE);
        let free = (found.f_bavail * found.f_frsize).saturating_sub(kept);
        (bytes > free).then(|| (path.to_owned(), bytes, free))
    })
}

/// Allows the process as many open files as it may have at most. Says whether that is more than before.
pub(crate) fn raise_limit() -> bool {
    let limit = getrlimit(Resource::Nofile);
    limit.current != limit.maximum && setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).is_ok()
}
