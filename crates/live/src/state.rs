//! The folder of files that have to outlive a process, this user's alone, and unique names in any folder.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::rand::{GetRandomFlags, getrandom};

/// An error of a ledger, or of an entry in one.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A system call failed.
    #[error("cannot {attempt} {}: {error}{advice}", path.display())]
    Io {
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
        advice: &'static str,
    },
    /// Other users could write there, and so make us remove anything.
    #[error("{} is not a folder of this user alone; set XDG_STATE_HOME to one that is", .0.display())]
    Untrusted(PathBuf),
    /// Something is mounted there already.
    #[error("{} is a mount point already", .0.display())]
    Mounted(PathBuf),
    /// It could not be undone; the entry stays for the next start.
    #[error("cannot undo: {item}: {reason}; `iowhy doctor --fix` tries again")]
    Undo {
        item: String,
        /// Why.
        reason: String,
    },
}

/// For `map_err`: the attempt, its subject, advice.
pub(crate) fn io(attempt: &'static str, path: &Path, advice: &'static str) -> impl FnOnce(io::Error) -> LedgerError {
    let path = path.to_owned();
    move |error| LedgerError::Io { attempt, path, error, advice }
}

/// Where ledgers are kept: `$XDG_STATE_HOME/iowhy`, or `/var/tmp/iowhy-UID`, which outlives a restart.
pub fn state_directory() -> PathBuf {
    match std::env::var_os("XDG_STATE_HOME").map(PathBuf::from) {
        Some(home) if home.is_absolute() => home.join("iowhy"),
        _ => PathBuf::from(format!("/var/tmp/iowhy-{}", user())),
    }
}

/// Folders of other users' ledgers with their owners, for root, who sees them all: those of their own names, and that
/// of the packaged unit. Only what harms nobody may be undone from them: their owners can write anything.
pub(crate) fn of_others() -> Vec<(PathBuf, u32)> {
    const HOME: &str = "/var/tmp";
    const UNIT: &str = "/var/lib/private/iowhy/iowhy";
    if user() != 0 {
        return Vec::new();
    }
    let owner = |path: &Path| {
        let metadata = fs::symlink_metadata(path).ok().filter(|of| of.is_dir() && of.uid() != 0)?;
        Some((path.to_owned(), metadata.uid()))
    };
    // Of all that is there, only what has such a name is looked at: every start comes by.
    let named = fs::read_dir(HOME).into_iter().flatten().flatten().filter_map(|entry| {
        let user: u32 = entry.file_name().to_str()?.strip_prefix("iowhy-")?.parse().ok()?;
        owner(&entry.path()).filter(|(_, owner)| *owner == user)
    });
    named.chain(owner(Path::new(UNIT))).collect()
}

pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether a folder is this user's alone.
pub(crate) fn is_trusted(directory: &Path) -> bool {
    trusted(directory).is_ok()
}

/// Fails if anybody but this user can write to the folder.
pub(crate) fn trusted(directory: &Path) -> Result<(), LedgerError> {
    let metadata = fs::symlink_metadata(directory).map_err(io("look at", directory, ""))?;
    let ours = metadata.is_dir() && metadata.uid() == user() && metadata.permissions().mode() & 0o022 == 0;
    ours.then_some(()).ok_or_else(|| LedgerError::Untrusted(directory.to_owned()))
}

/// Makes the folder for ledgers, for this user alone.
pub(crate) fn make_state_directory(directory: &Path) -> Result<&Path, LedgerError> {
    let advice = "; set XDG_STATE_HOME to a folder that can be written";
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent).map_err(io("make the folder", parent, advice))?;
    }
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(io("make the folder", directory, advice)(error));
        }
        _ => {}
    }
    trusted(directory)?;
    Ok(directory)
}

pub(crate) fn random() -> u64 {
    let mut bytes = [0_u8; 8];
    let got = getrandom(&mut bytes, GetRandomFlags::empty());
    assert_eq!(got, Ok(8), "the kernel always has eight random bytes");
    u64::from_ne_bytes(bytes)
}

/// A unique name in a folder. Nothing is made.
pub(crate) fn scratch_name(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}-{:016x}", random()))
}

pub(crate) fn rename_with(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    Ok(renameat_with(CWD, from, CWD, to, flags)?)
}
