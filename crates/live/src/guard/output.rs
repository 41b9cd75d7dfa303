//! Files that a verb writes for its user: reports, traces, logs, tables.
//!
//! ```text
//! nothing there        written without a name (O_TMPFILE; where a file system cannot, under a random one), synced, and
//!                      linked to its name if there is still nothing
//! ours, or allowed     the same, then exchanged with the old file; that must be the inspected one, or it is put back
//! empty                written in place: others may have it open already (mkstemp)
//! pipe, terminal, sink written as it comes; `/dev/stdout` and `/dev/fd/N` are descriptors of this process
//! anything else        refused, before the work begins
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, RenameFlags, linkat};

use super::{Intent, Kind, Reason, Refusal, Surroundings, decide, hold, identity, is_allowed};
use crate::mark;
use crate::plan::Allow;
use crate::state;

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// It may not be.
    #[error(transparent)]
    Refused(#[from] super::Refused),
    /// The system could not.
    #[error("cannot write `{}`: {error}", path.display())]
    Io {
        /// Its name.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
}

impl From<OutputError> for io::Error {
    fn from(error: OutputError) -> io::Error {
        match error {
            OutputError::Io { error, .. } => error,
            refused => io::Error::new(io::ErrorKind::InvalidInput, refused.to_string()),
        }
    }
}

/// A file that is being written. It has its name when [`finish`](Output::finish) is over, and nothing has happened if
/// it is dropped before.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    file: File,
    how: How,
}

#[derive(Debug)]
enum How {
    /// As it comes.
    Stream,
    /// In place, if it was empty.
    Empty,
    /// Under another name first; the file at its own name is replaced if it is this.
    Beside { real: PathBuf, temporary: Option<PathBuf>, replaces: Option<(u64, u64, i128)> },
}

impl Output {
    /// Begins a file. With `force` the user permits the loss of the old file; devices are not written even so.
    ///
    /// # Errors
    /// If it may not be written, or cannot be.
    pub fn create(path: &Path, force: bool) -> Result<Output, OutputError> {
        let failed = |error| OutputError::Io { path: path.to_owned(), error };
        let output = |file, how| Output { path: path.to_owned(), file, how };
        if let Some(number) = descriptor(path) {
            // SAFETY: the number is only duplicated, which fails if nothing is open there.
            let copy = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned().map_err(failed)?;
            return Ok(output(copy.into(), How::Stream));
        }
        let refused = |reason| OutputError::Refused(super::Refused(vec![Refusal { path: path.to_owned(), reason }]));
        let Some(handle) = hold(path, 0).map_err(failed)? else {
            // A link that leads nowhere is left alone.
            if let Ok(target) = fs::read_link(path) {
                return Err(refused(Reason::Link(target)));
            }
            let (file, temporary) = nameless(path).map_err(failed)?;
            return Ok(output(file, How::Beside { real: path.to_owned(), temporary, replaces: None }));
        };
        let metadata = handle.metadata().map_err(failed)?;
        let kind = metadata.file_type();
        if kind.is_fifo() || kind.is_char_device() {
            let file = OpenOptions::new().write(true).open(mark::through(&handle)).map_err(failed)?;
            return Ok(output(file, How::Stream));
        }
        if kind.is_block_device() {
            return Err(refused(Reason::Strange));
        }
        let real = fs::read_link(mark::through(&handle)).map_err(failed)?;
        let around = Surroundings::read();
        let facts = super::Facts::gather(Some(&handle), Some(real.clone()), path, false, None, &around);
        let allowed = force || is_allowed(path, &real, false, &Allow::default());
        if let Some(reason) = decide(Intent { writes: true, as_found: false, allowed }, &facts) {
            return Err(refused(reason));
        }
        assert_eq!(facts.kind, Kind::Regular, "everything else has been refused");
        if metadata.len() == 0 {
            let file = OpenOptions::new().write(true).open(mark::through(&handle)).map_err(failed)?;
            return Ok(output(file, How::Empty));
        }
        let (file, temporary) = nameless(&real).map_err(failed)?;
        file.set_permissions(metadata.permissions()).map_err(failed)?;
        Ok(output(file, How::Beside { real, temporary, replaces: Some(identity(&metadata)) }))
    }

    /// Writes a whole file.
    ///
    /// # Errors
    /// If it may not be written, or cannot be.
    pub fn write(path: &Path, bytes: &[u8], force: bool) -> Result<(), OutputError> {
        let mut output = Output::create(path, force)?;
        output.write_all(bytes).map_err(|error| OutputError::Io { path: path.to_owned(), error })?;
        output.finish()
    }

    /// Gives it its name, with everything on the disk.
    ///
    /// # Errors
    /// If the system cannot, or something else has come to its name.
    pub fn finish(mut self) -> Result<(), OutputError> {
        let path = self.path.clone();
        self.end().map_err(|error| OutputError::Io { path, error })
    }

    fn end(&mut self) -> io::Result<()> {
        let How::Beside { real, temporary, replaces } = &mut self.how else {
            if matches!(self.how, How::Empty) {
                mark::mark(&self.file);
                self.file.sync_all()?;
            }
            return Ok(());
        };
        mark::mark(&self.file);
        self.file.sync_all()?;
        let named = match temporary.take() {
            Some(named) => named,
            None => link(&self.file, real)?,
        };
        let placed = match replaces {
            None => rename(&named, real, RenameFlags::NOREPLACE),
            Some(seen) => rename(&named, real, RenameFlags::EXCHANGE).and_then(|()| {
                let now = fs::symlink_metadata(&named)?;
                if identity(&now) == *seen {
                    return Ok(());
                }
                rename(&named, real, RenameFlags::EXCHANGE)?;
                Err(io::Error::other(Reason::Replaced.to_string()))
            }),
        };
        if placed.is_err() || replaces.is_some() {
            // The old one, or what could not be put in its place.
            let _ = fs::remove_file(&named);
        }
        placed?;
        let folder = real.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let How::Beside { temporary: Some(named), .. } = &self.how {
            let _ = fs::remove_file(named);
        }
    }
}

/// The descriptor of this process that a name stands for.
fn descriptor(path: &Path) -> Option<i32> {
    let text = path.to_str()?;
    let number = match text {
        "/dev/stdout" => return Some(1),
        "/dev/stderr" => return Some(2),
        _ => text.strip_prefix("/dev/fd/").or_else(|| text.strip_prefix("/proc/self/fd/"))?,
    };
    number.parse().ok().filter(|number| *number >= 0)
}

/// An invisible file in the folder of `path`, or one with a name that cannot be guessed.
fn nameless(path: &Path) -> io::Result<(File, Option<PathBuf>)> {
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    match OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(folder) {
        Ok(file) => Ok((file, None)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) => {
            let named = state::scratch_name(folder, ".iowhy");
            let file = OpenOptions::new().write(true).create_new(true).open(&named)?;
            Ok((file, Some(named)))
        }
        Err(error) => Err(error),
    }
}

/// Gives a nameless file a random name next to `path`.
fn link(file: &File, path: &Path) -> io::Result<PathBuf> {
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let named = state::scratch_name(folder, ".iowhy");
    linkat(CWD, mark::through(file), CWD, &named, AtFlags::SYMLINK_FOLLOW)?;
    Ok(named)
}

/// renameat2(2). File systems that do not know its flags get what comes nearest: a link, which replaces nothing, or a
/// rename.
fn rename(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    match state::rename_with(from, to, flags) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {}
        done => return done,
    }
    if flags == RenameFlags::NOREPLACE {
        fs::hard_link(from, to)?;
        return fs::remove_file(from);
    }
    let beside = state::scratch_name(from.parent().unwrap_or(Path::new(".")), ".iowhy");
    fs::rename(to, &beside)?;
    fs::rename(from, to)?;
    fs::rename(&beside, from)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn only_what_is_empty_ours_or_allowed_is_replaced() {
        let folder = std::env::temp_dir().join(format!("iowhy-output-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder");
        let at = |name: &str| folder.join(name);
        let read = |name: &str| fs::read_to_string(at(name)).expect("it is there");
        fs::write(at("diary"), "dear diary").expect("a file");
        fs::write(at("empty"), "").expect("a file");
        symlink(at("diary"), at("link")).expect("a link");
        symlink(at("nothing"), at("dangling")).expect("a link");
        let write = |name: &str, text: &str, force| Output::write(&at(name), text.as_bytes(), force);
        for name in ["diary", "link"] {
            let message = write(name, "x", false).expect_err("somebody's").to_string();
            assert!(message.contains("no run of iowhy made it") && message.contains("--allow-write="), "{message}");
            assert_eq!(read("diary"), "dear diary");
        }
        assert!(write("dangling", "x", false).is_err() && !at("nothing").exists());
        for name in ["empty", "new"] {
            write(name, "first", false).expect("nobody's");
            write(name, "second", false).expect("ours");
            assert_eq!(read(name), "second");
        }
        fs::set_permissions(at("new"), fs::Permissions::from_mode(0o600)).expect("ours");
        write("new", "third", false).expect("ours");
        assert_eq!(fs::metadata(at("new")).expect("it").permissions().mode() & 0o777, 0o600);
        // Begun, and given up.
        let mut half = Output::create(&at("half"), false).expect("nothing is there");
        half.write_all(b"half").expect("room");
        drop(half);
        // Begun, and another process was quicker.
        let late = Output::create(&at("late"), false).expect("nothing is there");
        fs::write(at("late"), "theirs").expect("a file");
        assert!(late.finish().is_err());
        let swapped = Output::create(&at("new"), false).expect("ours");
        fs::rename(at("diary"), at("new")).expect("swapped");
        assert!(swapped.finish().expect_err("it is another file").to_string().contains("replaced"));
        assert_eq!((read("late").as_str(), read("new").as_str()), ("theirs", "dear diary"));
        write("late", "ours now", true).expect("forced");
        assert_eq!(read("late"), "ours now");
        let mut names: Vec<_> =
            fs::read_dir(&folder).expect("it").map(|entry| entry.expect("one").file_name()).collect();
        names.sort();
        assert_eq!(names, ["dangling", "empty", "late", "link", "new"], "nothing else is left");
        Output::write(Path::new("/dev/null"), b"x", false).expect("a sink");
        fs::remove_dir_all(&folder).expect("ours");
    }
}
