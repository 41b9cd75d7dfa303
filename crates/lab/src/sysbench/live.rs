//! `sysbench fileio` on real files: making and removing them, and the plan of a run.
//!
//! ```text
//! prepare   test_file.0 and up in a directory: missing ones are made, short ones made longer, others left alone;
//!           written in blocks, synced at the end
//! run       seqwr makes the files again (and holes of them for mappings, which cannot make a file longer);
//!           every other mode wants them as large as they should be
//! cleanup   removes the files that --file-num counts; missing ones are not a mistake
//! ```
//! Source: sysbench 1.0.20, tried. Known deviations: files are written through the page cache whatever the extra flags
//! say; names that are not those of plain files (links, directories) are refused; lines of intervals are printed at the
//! end.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use iowhy_live::ledger::{Guard, Ledger, LedgerError};
use iowhy_live::plan::{Cache, Fill, OpenSync, Thread};
use iowhy_stack::job::Job;
use iowhy_stack::rng::Rng;
use iowhy_stack::units::Nanos;
use iowhy_stack::workload::Mode;

use super::{IoMode, Settings, report};
use iowhy_text as text;

/// The files of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSet {
    /// How many.
    pub nr_files: u32,
    /// Bytes of each.
    pub file_bytes: u64,
    /// Bytes in all, as asked for.
    pub total_bytes: u64,
    /// Bytes of a write when they are made.
    pub block_bytes: u64,
    /// Flags that the report names.
    pub extra_flags: Vec<&'static str>,
    /// Each block has a sum.
    pub validate: bool,
}

/// Why files could not be made, used or removed.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A call failed.
    #[error("cannot {verb} `{}`: {source}", path.display())]
    Call {
        /// The attempt.
        verb: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The disk was full.
    #[error("no room to write `{}`: {source}; `cleanup` removes the files made so far", path.display())]
    Full {
        /// On which file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Something else has the name.
    #[error("`{}` is not a plain file, so it is left alone: another directory is needed", .0.display())]
    NotAFile(PathBuf),
    /// The file is missing.
    #[error("`{}` is not there: `prepare` with the same options makes it", .0.display())]
    Missing(PathBuf),
    /// A file is too short.
    #[error(
        "`{}` has {have}, and at least {want} are needed: `prepare` with the same options makes it longer",
        path.display()
    )]
    Short {
        /// Which.
        path: PathBuf,
        /// Its size.
        have: String,
        /// Its proper size.
        want: String,
    },
    /// A change could not be written down.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Makes the files that are missing, empty as yet and for their owner alone. If the process is killed the next start
/// removes them.
fn make(missing: &[PathBuf]) -> Result<Option<Guard>, FileError> {
    if missing.is_empty() {
        return Ok(None);
    }
    let (files, guard) = Ledger::open()?.0.create_files(missing)?;
    for (file, path) in files.iter().zip(missing) {
        file.set_permissions(Permissions::from_mode(0o600)).map_err(failed("set the mode of", path))?;
    }
    Ok(Some(guard))
}

fn failed(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            FileError::Full { path, source }
        }
        _ => FileError::Call { verb, path, source },
    }
}

/// The size of a plain file; nothing if it is not there.
fn size_of(path: &Path) -> Result<Option<u64>, FileError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => Ok(Some(found.len())),
        Ok(_) => Err(FileError::NotAFile(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("look at", path)(error)),
    }
}

impl FileSet {
    /// Where each of them is.
    pub fn paths(&self, dir: &Path) -> Vec<PathBuf> {
        (0..self.nr_files).map(|nr| dir.join(format!("test_file.{nr}"))).collect()
    }

    /// Makes the files; yields sysbench's messages.
    ///
    /// # Errors
    /// The error of the first file that could not be made; earlier ones stay.
    pub fn prepare(&self, dir: &Path) -> Result<String, FileError> {
        let missing = self.missing(dir)?;
        let made = make(&missing)?;
        let text = self.write(dir, &missing);
        made.map(Guard::keep).transpose()?;
        text
    }

    /// Those that are not there.
    fn missing(&self, dir: &Path) -> Result<Vec<PathBuf>, FileError> {
        let mut missing = Vec::new();
        for path in self.paths(dir) {
            if size_of(&path)?.is_none() {
                missing.push(path);
            }
        }
        Ok(missing)
    }

    /// Gives them their contents.
    fn write(&self, dir: &Path, missing: &[PathBuf]) -> Result<String, FileError> {
        let mut out = format!("{}\n\n", report::version(false, "live"));
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{} files, {}Kb each, {}Mb total\nCreating files for the test...\nExtra file open flags: {}",
            self.nr_files,
            self.file_bytes >> 10,
            (self.file_bytes * u64::from(self.nr_files)) >> 20,
            report::extra_flags(&self.extra_flags)
        );
        let block = usize::try_from(self.block_bytes).unwrap_or(usize::MAX).clamp(1, 1 << 30);
        let mut buffer = vec![0u8; block];
        let mut rng = Rng::stream(1, "contents");
        buffer.chunks_mut(8).for_each(|part| part.copy_from_slice(&rng.next_u64().to_le_bytes()[..part.len()]));
        let begin = Instant::now();
        let mut written = 0;
        for path in self.paths(dir) {
            let size = size_of(&path)?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let verb = match size {
                _ if missing.contains(&path) => "Creating",
                Some(bytes) if bytes >= self.file_bytes => "Reusing existing",
                _ => "Extending existing",
            };
            let _ = writeln!(out, "{verb} file {name}");
            if size.is_none_or(|bytes| bytes < self.file_bytes) {
                written += self.fill(&path, size.unwrap_or(0), &mut buffer, &mut rng)?;
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        let _ = match written {
            0 => writeln!(out, "No bytes written."),
            _ => {
                let rate = written as f64 / 1_048_576.0 / seconds.max(1e-9);
                writeln!(out, "{written} bytes written in {seconds:.2} seconds ({rate:.2} MiB/sec).")
            }
        };
        Ok(out)
    }

    /// Writes a file from the last whole block it has to its end, and yields how many bytes that were.
    fn fill(&self, path: &Path, have: u64, buffer: &mut [u8], rng: &mut Rng) -> Result<u64, FileError> {
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600);
        match have {
            0 => options.create(true).truncate(false),
            _ => &mut options,
        };
        let mut file: File = options.open(path).map_err(failed("open", path))?;
        let block = buffer.len() as u64;
        let mut at = have - have % block;
        file.seek(SeekFrom::Start(at)).map_err(failed("seek in", path))?;
        let begin = at;
        while at < self.file_bytes {
            let len = block.min(self.file_bytes - at) as usize;
            // No two blocks are the same, for devices that would notice.
            let stamp = rng.next_u64().to_le_bytes();
            let head = len.min(stamp.len());
            buffer[..head].copy_from_slice(&stamp[..head]);
            if self.validate {
                iowhy_live::validate::fill(&mut buffer[..len], at);
            }
            file.write_all(&buffer[..len]).map_err(failed("write", path))?;
            at += len as u64;
        }
        file.sync_all().map_err(failed("sync", path))?;
        Ok(at - begin)
    }

    /// Removes the files; yields sysbench's messages.
    ///
    /// # Errors
    /// The first file that could not be removed; those behind it stay.
    pub fn cleanup(&self, dir: &Path) -> Result<String, FileError> {
        self.remove(dir)?;
        Ok(format!("{}\n\nRemoving test files...\n", report::version(false, "live")))
    }

    fn remove(&self, dir: &Path) -> Result<(), FileError> {
        // First a look at all of them: if one is left alone, so are the others.
        let paths = self.paths(dir);
        paths.iter().try_for_each(|path| size_of(path).map(drop))?;
        for path in &paths {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove", path)(error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes the files ready for a run: `seqwr` begins with new ones, every other mode needs all of their bytes. New
    /// files stay whatever becomes of the run, and without a line in the ledger: its syncs would be among the run's.
    ///
    /// # Errors
    /// The first file that is not there or too short.
    pub fn ready(&self, dir: &Path, mode: Mode, io_mode: IoMode) -> Result<(), FileError> {
        if mode == Mode::SeqWrite {
            self.remove(dir)?;
            for path in self.paths(dir) {
                let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
                let file = file.map_err(failed("make", &path))?;
                if io_mode == IoMode::Mmap {
                    file.set_len(self.file_bytes).map_err(failed("make longer", &path))?;
                }
            }
            return Ok(());
        }
        for path in self.paths(dir) {
            match size_of(&path)? {
                None => return Err(FileError::Missing(path)),
                Some(have) if have < self.file_bytes => {
                    let (have, want) = (text::size(have), text::size(self.file_bytes));
                    return Err(FileError::Short { path, have, want });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// The plan of a run on files in a directory.
pub fn plan(job: &Job, settings: &Settings, cache: Cache, dir: &Path) -> iowhy_live::Plan {
    let mut job = job.clone();
    let Some(fileio) = job.fileio_mut() else { unreachable!("a job of sysbench") };
    // The files are opened with the flag, which does it.
    fileio.synchronous_writes = None;
    let nr_threads = fileio.threads as usize;
    let set = FileSet {
        nr_files: fileio.nr_files,
        file_bytes: fileio.file_bytes(),
        total_bytes: fileio.total_bytes,
        block_bytes: u64::from(fileio.block_bytes),
        extra_flags: settings.extra_flags.clone(),
        validate: settings.validate,
    };
    let thread = Thread {
        engine: match settings.io_mode {
            IoMode::Sync => "psync",
            IoMode::Async => "libaio",
            IoMode::Mmap => "mmap",
        },
        depth: fileio.in_flight.max(1),
        open_sync: match settings.extra_flags.iter().find(|flag| **flag != "direct") {
            Some(&"sync") => Some(OpenSync::Sync),
            Some(_) => Some(OpenSync::Dsync),
            None => None,
        },
        split_latency: false,
        sample_latency: job.interval > Nanos::ZERO,
        when_full: settings.io_mode == IoMode::Async,
        fill: if settings.validate { Fill::Summed } else { Fill::Scrambled },
        ..Thread::default()
    };
    crate::on_kernel::plan(job, crate::on_kernel::files(set.paths(dir)), vec![thread; nr_threads], cache)
}
