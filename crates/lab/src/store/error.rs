//! Errors of a store: the attempt, its file, and advice.

use std::io;
use std::path::{Path, PathBuf};

/// Why something could not be done with a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Its directory cannot be made.
    #[error("cannot make the directory `{}` of the store: {source}; try another one with --store DIR", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is none.
    #[error(
        "no store in `{}`; `iowhy run .. --store DIR` makes one, and --store DIR or IOWHY_STORE names one",
        path.display()
    )]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A run has no recording of the kernel.
    #[error("`{name}` has no recording; `iowhy store list` lists runs, and `iowhy trace arm` keeps some with one")]
    NoTrace {
        /// How it was named.
        name: String,
    },
    /// A store was not named, and a usual place does not exist.
    #[error("the store has no place: neither IOWHY_STORE nor HOME is set; name one with --store DIR")]
    NoPlace,
    /// It was made by a later version.
    #[error(
        "the store `{}` has version {found}, and this iowhy knows up to {known}; use the iowhy that wrote it, or a \
         later one",
        path.display()
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The latest that is known.
        known: i64,
    },
    /// It is something else.
    #[error("`{}` is not a store of iowhy: {what}; name another directory with --store DIR", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The mistake.
        what: String,
    },
    /// The database refused.
    #[error("cannot {action} `{}`: {source}{}", path.display(), advice(source))]
    Sql {
        /// The attempt.
        action: &'static str,
        /// On which database.
        path: PathBuf,
        /// Why not.
        source: rusqlite::Error,
    },
    /// A file refused.
    #[error("cannot {action} `{}`: {source}{}", path.display(), io_advice(source))]
    File {
        /// The attempt.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A Parquet file refused.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Parquet {
        /// The attempt.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: parquet::errors::ParquetError,
    },
    /// The stored value makes no sense.
    #[error(
        "`{}` is damaged: {what}; restore it from a copy, or merge the readable part into a new store",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// In which way.
        what: String,
    },
    /// Other processes are writing.
    #[error("runs are being recorded in `{}`; try again when they have ended", path.display())]
    Busy {
        /// The store.
        path: PathBuf,
    },
    /// Nothing has this name.
    #[error(
        "no run in `{}` has the label, tag or id `{what}`{}",
        path.display(),
        if nearest.is_empty() { "; `iowhy store list` lists them".to_owned() }
        else { format!("; nearest: {}", nearest.join(", ")) }
    )]
    Unknown {
        /// The store.
        path: PathBuf,
        /// The request.
        what: String,
        /// Names that were perhaps meant.
        nearest: Vec<String>,
    },
    /// Several runs have ids that begin like this.
    #[error("several runs have an id that begins with `{what}`: {}; write more of it", found.join(", "))]
    Ambiguous {
        /// The request.
        what: String,
        /// Ids.
        found: Vec<String>,
    },
    /// A name that cannot be one.
    #[error("`{what}` cannot be a {of}: {why}")]
    Name {
        /// The given value.
        what: String,
        /// The expected kind.
        of: &'static str,
        /// Why not.
        why: &'static str,
    },
}

impl StoreError {
    /// An error of the database.
    pub(super) fn sql(action: &'static str, path: &Path, source: rusqlite::Error) -> StoreError {
        match source.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => {
                StoreError::Foreign { path: path.to_owned(), what: "it is not an SQLite database".to_owned() }
            }
            Some(rusqlite::ErrorCode::DatabaseCorrupt) => {
                StoreError::Damaged { path: path.to_owned(), what: source.to_string() }
            }
            _ => StoreError::Sql { action, path: path.to_owned(), source },
        }
    }
}

/// Advice after an error of SQLite.
fn advice(error: &rusqlite::Error) -> &'static str {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "; free some space, or take another disk with --store DIR",
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            "; make the directory and its files writable, or name another one with --store DIR"
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "; another process holds it: try again",
        Some(ErrorCode::SystemIoFailure) => "; look at the disk below it, and whether it is full",
        _ => "",
    }
}

/// Advice after an error of a file.
fn io_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "; free some space, or take another disk with --store DIR"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; make the directory and its files writable, or name another one with --store DIR"
        }
        _ => "",
    }
}
