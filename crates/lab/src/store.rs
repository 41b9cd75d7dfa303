//! Runs that are kept: a directory with one SQLite file and Parquet files.
//!
//! ```text
//! DIR/store.sqlite         one row for each run, its metrics, tags, calibrations, and which files belong to it
//! DIR/data/HASH.parquet    samples and events of runs, named by the BLAKE3 hash of their bytes
//! DIR/data/*.tmp           files that are being written, or that a killed process left
//! DIR/in-flight/*.json     how far processes are that make runs
//! DIR/store.lock           locked by writers of data files (shared) and by cleaning up (exclusive)
//! ```
//! A run is recorded as soon as it has ended: its data files are written under a temporary name, synced and renamed,
//! and then one transaction makes the rows. So at any moment a run is in the store with all that belongs to it, or not
//! at all; a killed process leaves unreferenced files, which [`Store::gc`] removes. SQLite writes a log ahead (WAL) and
//! syncs it at each commit, waits for other processes that write, and keeps its numbered
//! migrations in `PRAGMA user_version`. Runs are never changed, and removed by
//! [`Store::remove`] only: triggers forbid anything else; remarks on them are in the tags.
//!
//! SQLite's file format and the transactions: <https://sqlite.org/wal.html>, <https://sqlite.org/pragma.html>. Known
//! limit: the directory must be on a file system with working locks, and not be shared over a network.

mod data;
mod error;
pub(crate) mod events;
mod export;
mod gc;
mod group;
mod in_flight;
mod latencies;
mod manifest;
mod merge;
mod remove;
mod report;
mod rows;
mod samples;
mod schema;
mod seal;
mod stored;

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

pub use data::{DataFile, Item, Kind, Type};
pub use error::StoreError;
pub use events::{COLUMNS as EVENT_COLUMNS, EventWriter, row_of as event_row};
pub use export::{Exported, Format};
pub use gc::Swept;
pub use group::Set;
pub use in_flight::{Announcement, InFlight};
pub use manifest::{CommandLine, Manifest};
pub use merge::Merged;
pub use remove::Removed;
pub use report::{
    checked_json, checked_text, exported_json, exported_text, list_text, merged_json, merged_text, moment,
    removed_json, removed_text, run_json, runs_json, show_text, swept_json, swept_text, tagged_json, tagged_text,
};
pub use rows::Filter;
pub use samples::{MOST, Sampler, live_samples};
pub use seal::Checked;
pub use stored::{Design, NewRun, RunId, StoredFile, StoredRun, TRACE};

/// The database in the directory of a store.
const DATABASE: &str = "store.sqlite";

/// The directory of Parquet files in it.
const DATA: &str = "data";

/// The file that writers and sweepers lock.
const LOCK: &str = "store.lock";

/// How long a process waits for another one that writes. Transactions take milliseconds, but a queue of them, or a
/// slow disk, takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The environment variable that names a store.
pub const VARIABLE: &str = "IOWHY_STORE";

#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    database: Connection,
    /// A copy that is read instead of a database that cannot be written and is not closed.
    _copy: Option<Scratch>,
}

/// A folder of a copy, which goes when it is dropped.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is in the folder for what may go.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The directory of the store: the one that is named, else that of `IOWHY_STORE`, else `iowhy` where the user keeps
/// data (`XDG_DATA_HOME`, `~/.local/share`). `None` without such a place.
pub fn directory(named: Option<&Path>, variable: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let of = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // The specification of these directories says that relative ones are to be ignored.
    let data =
        || of("XDG_DATA_HOME").filter(|path| path.is_absolute()).or(of("HOME").map(|home| home.join(".local/share")));
    named.map(Path::to_owned).or_else(|| of(VARIABLE)).or_else(|| data().map(|path| path.join("iowhy")))
}

impl Store {
    /// Opens the store in a directory, and makes it if there is none.
    ///
    /// # Errors
    /// If the directory cannot be made or written, holds something else, or a newer version's store.
    pub fn open(directory: &Path) -> Result<Store, StoreError> {
        let data = directory.join(DATA);
        fs::create_dir_all(&data).map_err(|source| StoreError::Folder { path: data.clone(), source })?;
        let store = Store::connect(directory, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
        store.check_structure(false)?;
        Ok(store)
    }

    /// Opens the store in a directory if there is one.
    ///
    /// # Errors
    /// As [`Store::open`], and if there is none.
    pub fn open_existing(directory: &Path) -> Result<Store, StoreError> {
        let store = Store::open_unchecked(directory)?;
        store.check_structure(false)?;
        Ok(store)
    }

    /// The same without a check of its structure, for callers that look at all of it.
    ///
    /// # Errors
    /// As [`Store::open_existing`].
    pub fn open_unchecked(directory: &Path) -> Result<Store, StoreError> {
        if !directory.join(DATABASE).exists() {
            return Err(StoreError::Missing { path: directory.to_owned() });
        }
        if is_writable(directory) {
            Store::connect(directory, OpenFlags::SQLITE_OPEN_READ_WRITE)
        } else {
            Store::connect_to_read(directory)
        }
    }

    /// Opens a store that this process cannot write: of another user, of a read-only mount. A database that was closed
    /// is read where it is, another one from a copy.
    fn connect_to_read(directory: &Path) -> Result<Store, StoreError> {
        let path = directory.join(DATABASE);
        let failed = |source| StoreError::sql("read", &path, source);
        let log = directory.join(format!("{DATABASE}-wal"));
        if fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
            return Store::connect_to_copy(directory);
        }
        let mut name = String::from("file:");
        for byte in path.as_os_str().as_encoded_bytes() {
            match byte {
                b'/' | b'-' | b'_' | b'.' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => name.push(char::from(*byte)),
                _ => name.push_str(&format!("%{byte:02X}")),
            }
        }
        name.push_str("?immutable=1");
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let database = Connection::open_with_flags(&name, flags).map_err(failed)?;
        let store = Store { directory: directory.to_owned(), database, _copy: None };
        // One of an older version is brought to this one in a copy.
        if schema::is_current(&store)? { Ok(store) } else { Store::connect_to_copy(directory) }
    }

    fn connect_to_copy(directory: &Path) -> Result<Store, StoreError> {
        let since = std::time::SystemTime::now();
        let copy = std::env::temp_dir().join(format!("iowhy-store-{}-{}", std::process::id(), nanoseconds(since)));
        let io = |source| StoreError::File { action: "copy", path: directory.join(DATABASE), source };
        DirBuilder::new().mode(0o700).create(&copy).map_err(io)?;
        let copy = Scratch(copy);
        for end in ["", "-wal"] {
            let from = directory.join(format!("{DATABASE}{end}"));
            if from.exists() {
                fs::copy(&from, copy.0.join(format!("{DATABASE}{end}"))).map_err(io)?;
            }
        }
        let store = Store::connect(&copy.0, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        Ok(Store { directory: directory.to_owned(), _copy: Some(copy), ..store })
    }

    fn connect(directory: &Path, flags: OpenFlags) -> Result<Store, StoreError> {
        let path = directory.join(DATABASE);
        let failed = |source| StoreError::sql("open", &path, source);
        let database = Connection::open_with_flags(&path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(failed)?;
        database.busy_timeout(PATIENCE).map_err(failed)?;
        database.pragma_update(None, "foreign_keys", true).map_err(failed)?;
        // Only with FULL is a commit on the disk when it returns.
        database.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
        let mut store = Store { directory: directory.to_owned(), database, _copy: None };
        schema::migrate(&mut store)?;
        Ok(store)
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn database_path(&self) -> PathBuf {
        self.directory.join(DATABASE)
    }

    fn data_directory(&self) -> PathBuf {
        self.directory.join(DATA)
    }

    /// An error of the database while something was attempted.
    fn failed(&self, action: &'static str) -> impl Fn(rusqlite::Error) -> StoreError + use<> {
        let path = self.database_path();
        move |source| StoreError::sql(action, &path, source)
    }

    /// A transaction that writes. It takes the lock at once: one that reads first and writes later can be refused, and
    /// then waiting does not help.
    fn transaction(&self, action: &'static str) -> Result<Transaction<'_>, StoreError> {
        Transaction::new_unchecked(&self.database, TransactionBehavior::Immediate).map_err(self.failed(action))
    }

    /// The lock file, open.
    fn lock_file(&self) -> Result<File, StoreError> {
        let path = self.directory.join(LOCK);
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        file.map_err(|source| StoreError::File { action: "open", path, source })
    }

    /// Keeps sweepers away until it is dropped, or the process ends however it ends.
    fn writing(&self) -> Result<Arc<File>, StoreError> {
        let file = self.lock_file()?;
        let path = self.directory.join(LOCK);
        file.lock_shared().map_err(|source| StoreError::File { action: "lock", path, source })?;
        Ok(Arc::new(file))
    }
}

/// Whether this process can write the database and its files.
fn is_writable(directory: &Path) -> bool {
    let write = |name: &str| File::options().write(true).open(directory.join(name));
    // The lock is there once something was recorded.
    write(DATABASE).is_ok()
        && File::options().write(true).create(true).truncate(false).open(directory.join(LOCK)).is_ok()
}

/// Nanoseconds since 1970.
pub fn nanoseconds(time: std::time::SystemTime) -> u64 {
    // A clock before 1970 is wrong anyway.
    time.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
