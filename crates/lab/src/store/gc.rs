//! Tidying up: data files that no run refers to, and those that a killed process left half written. Runs stay.
//!
//! Writers of data files hold a shared lock until the run is recorded, so with the exclusive lock in hand every file
//! that is not referred to yet is garbage.

use std::fs::{self, File, TryLockError};
use std::time::{Duration, Instant};

use super::data::TEMPORARY;
use super::{LOCK, Store, StoreError};

/// Files removed, or to be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Names of files in the data directory.
    pub files: Vec<String>,
    /// Their bytes together.
    pub bytes: u64,
    /// They are gone; otherwise it was only looked.
    pub removed: bool,
}

/// A child of a process that held the lock has it, too, from its fork until it runs another program.
const PASSING: Duration = Duration::from_millis(500);

impl Store {
    /// Keeps writers of data files away until it is dropped.
    pub(super) fn alone(&self) -> Result<File, StoreError> {
        let lock = self.lock_file()?;
        let begun = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::WouldBlock) if begun.elapsed() < PASSING => std::thread::sleep(PASSING / 50),
                Err(TryLockError::WouldBlock) => return Err(StoreError::Busy { path: self.directory().to_owned() }),
                Err(TryLockError::Error(source)) => {
                    return Err(StoreError::File { action: "lock", path: self.directory().join(LOCK), source });
                }
            }
        }
    }

    /// Removes data files that belong to no run, or lists those that it would.
    ///
    /// # Errors
    /// If runs are being recorded at the moment, or a file cannot be removed.
    pub fn gc(&self, dry_run: bool) -> Result<Swept, StoreError> {
        let _alone = self.alone()?;
        let folder = self.data_directory();
        let failed = |source| StoreError::File { action: "read", path: folder.clone(), source };
        let mut swept = Swept { removed: !dry_run, ..Swept::default() };
        let mut used = self
            .database
            .prepare("SELECT count(*) FROM data WHERE hash = ?")
            .map_err(self.failed("read the files of"))?;
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // Names that are none of ours are not ours to remove.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let orphan = match (name.strip_suffix(".parquet"), name.strip_suffix(TEMPORARY)) {
                (Some(hash), _) if hash.len() == 64 => {
                    let n: i64 = used.query_row([hash], |row| row.get(0)).map_err(self.failed("read the files of"))?;
                    n == 0
                }
                (_, Some(stem)) => ["events-", "samples-", "merge-"].iter().any(|begin| stem.starts_with(begin)),
                _ => false,
            };
            if !orphan {
                continue;
            }
            swept.bytes += entry.metadata().map_or(0, |metadata| metadata.len());
            if !dry_run {
                let path = entry.path();
                fs::remove_file(&path).map_err(|source| StoreError::File { action: "remove", path, source })?;
            }
            swept.files.push(name);
        }
        swept.files.sort();
        Ok(swept)
    }
}
