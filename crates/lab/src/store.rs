//! Runs that are kept: a directory with one SQLite file and Parquet files beside it.
//!
//! ```text
//! DIR/store.sqlite         one row for each run, its metrics, tags, calibrations, and which files belong to it
//! DIR/data/HASH.parquet    samples and events of runs, named by the BLAKE3 hash of their bytes
//! DIR/data/*.tmp           files that are being written, or that a killed process left
//! DIR/in-flight/*.json     how far processes are that make runs
//! DIR/store.lock           locked by whoever writes data files (shared) or tidies up (exclusive)
//! ```
//! A run is recorded as soon as it has ended: its data files are written under a temporary name, synced and renamed,
//! and then one transaction makes the rows. So at any moment a run is in the store with all that belongs to it, or not
//! at all; what a killed process leaves are files that nobody refers to, which [`Store::gc`] removes. SQLite writes a
//! log ahead (WAL) and syncs it at each commit, waits for other processes that write, and keeps its numbered
//! migrations in `PRAGMA user_version`. Runs are never changed nor removed: triggers forbid it; what one thinks of them
//! is in the tags.
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
mod merge;
mod report;
mod rows;
mod samples;
mod schema;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

pub use data::{DataFile, Kind};
pub use error::StoreError;
pub use events::EventWriter;
pub use export::{Exported, Format};
pub use gc::Swept;
pub use group::Set;
pub use in_flight::{Announcement, InFlight};
pub use merge::Merged;
pub use report::{
    exported_json, exported_text, list_text, merged_json, merged_text, moment, run_json, runs_json, show_text,
    swept_json, swept_text, tagged_json, tagged_text,
};
pub use rows::{Design, Filter, NewRun, RunId, StoredFile, StoredRun};
pub use samples::{MOST, Sampler, live_samples};

/// The database in the directory of a store.
const DATABASE: &str = "store.sqlite";

/// The directory of Parquet files in it.
const DATA: &str = "data";

/// What writers and sweepers lock.
const LOCK: &str = "store.lock";

/// How long a process waits for another one that writes. Transactions take milliseconds, but a queue of them, or a
/// slow disk, takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The environment variable that names a store.
pub const VARIABLE: &str = "IOWHY_STORE";

/// A store.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    database: Connection,
}

/// The directory of the store: the one that is named, else that of `IOWHY_STORE`, else `iowhy` where the user keeps
/// data (`XDG_DATA_HOME`, `~/.local/share`). `None` if there is no such place.
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
        Store::connect(directory, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)
    }

    /// Opens the store in a directory if there is one.
    ///
    /// # Errors
    /// As [`Store::open`], and if there is none.
    pub fn open_existing(directory: &Path) -> Result<Store, StoreError> {
        if !directory.join(DATABASE).exists() {
            return Err(StoreError::Missing { path: directory.to_owned() });
        }
        Store::connect(directory, OpenFlags::SQLITE_OPEN_READ_WRITE)
    }

    fn connect(directory: &Path, flags: OpenFlags) -> Result<Store, StoreError> {
        let path = directory.join(DATABASE);
        let failed = |source| StoreError::sql("open", &path, source);
        let database = Connection::open_with_flags(&path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(failed)?;
        database.busy_timeout(PATIENCE).map_err(failed)?;
        database.pragma_update(None, "foreign_keys", true).map_err(failed)?;
        // Only with FULL is a commit on the disk when it is said to be.
        database.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
        let mut store = Store { directory: directory.to_owned(), database };
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

/// Nanoseconds since 1970.
pub fn nanoseconds(time: std::time::SystemTime) -> u64 {
    // A clock before 1970 is wrong anyway.
    time.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
