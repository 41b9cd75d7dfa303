//! Removing runs, with their tags and the data files that no other run has.
//!
//! Triggers forbid that runs are removed by anything else. They are taken down and put up again within the transaction,
//! so that at no moment another process sees the store without them.

use std::collections::BTreeMap;
use std::fs;

use rusqlite::{Connection, params};

use super::{Filter, Store, StoreError, StoredRun};

/// Runs removed, or to be removed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Removed {
    pub runs: Vec<StoredRun>,
    /// Names of files in the data directory.
    pub files: Vec<String>,
    /// Their bytes together.
    pub bytes: u64,
    /// They are gone; otherwise they were only listed.
    pub removed: bool,
}

/// Tables that belong to runs, each with its condition on a run's number.
const TABLES: &[&str] = &[
    "DELETE FROM metric WHERE run = ?",
    "DELETE FROM data WHERE run = ?",
    "DELETE FROM tag WHERE run = ?",
    "DELETE FROM seal WHERE kind = 'run' AND number = ?",
    "DELETE FROM run WHERE number = ?",
];

impl Store {
    /// The runs of names for [`Store::remove`]: of a label with those that only warmed up.
    ///
    /// # Errors
    /// As [`Store::find`].
    pub fn find_all(&self, names: &[String]) -> Result<Vec<StoredRun>, StoreError> {
        let mut runs = Vec::new();
        for name in names {
            let labelled = self.runs(&Filter { label: Some(name.clone()), ..Filter::default() })?;
            runs.extend(if labelled.is_empty() { self.find(name)? } else { labelled });
        }
        runs.sort_by_key(|run| (run.started_ns, run.number));
        runs.dedup_by_key(|run| run.number);
        Ok(runs)
    }

    /// Runs that began before a moment, ns since 1970, and all but the latest `keep` of each label; those with a tag
    /// stay.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn outdated(&self, before_ns: Option<u64>, keep: Option<usize>) -> Result<Vec<StoredRun>, StoreError> {
        let mut later: BTreeMap<String, usize> = BTreeMap::new();
        let mut runs = self.runs(&Filter::default())?;
        runs.reverse();
        runs.retain(|run| {
            // Runs that only warmed up go with the next ones, and do not count.
            let nr = later.entry(run.label.clone()).or_default();
            let counts = usize::from(!run.design.warm_up);
            let surplus = keep.is_some_and(|keep| *nr + counts > keep);
            *nr += counts;
            run.tags.is_empty() && (surplus || before_ns.is_some_and(|before| run.started_ns < before))
        });
        runs.reverse();
        Ok(runs)
    }

    /// Removes runs, or lists what that would remove.
    ///
    /// # Errors
    /// If runs are being recorded at the moment, or the store cannot be written; then all runs are there still.
    pub fn remove(&self, runs: Vec<StoredRun>, dry_run: bool) -> Result<Removed, StoreError> {
        if self._copy.is_some() {
            let source = std::io::ErrorKind::ReadOnlyFilesystem.into();
            return Err(StoreError::File { action: "write", path: self.database_path(), source });
        }
        let _alone = self.alone()?;
        let failed = self.failed("remove runs of");
        let transaction = self.transaction("remove runs of")?;
        delete(&transaction, &runs).map_err(&failed)?;
        let mut removed = Removed { removed: !dry_run, ..Removed::default() };
        for file in runs.iter().flat_map(|run| &run.files) {
            let name = format!("{}.parquet", file.hash);
            let of = "SELECT count(*) FROM data WHERE hash = ?";
            let used: i64 = transaction.query_row(of, [&file.hash], |row| row.get(0)).map_err(&failed)?;
            if used == 0 && !removed.files.contains(&name) {
                removed.files.push(name);
                removed.bytes += file.bytes;
            }
        }
        if dry_run {
            transaction.rollback().map_err(&failed)?;
        } else {
            transaction.commit().map_err(&failed)?;
            for name in &removed.files {
                let path = self.data_directory().join(name);
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(StoreError::File { action: "remove", path, source: error });
                    }
                    _ => {}
                }
            }
        }
        removed.runs = runs;
        Ok(removed)
    }
}

/// Deletes the rows of runs in a transaction, past the triggers.
fn delete(database: &Connection, runs: &[StoredRun]) -> rusqlite::Result<()> {
    let triggers: Vec<(String, String)> = {
        let mut query = database.prepare(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name IN ('run', 'metric', 'data')",
        )?;
        query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?
    };
    for (name, _) in &triggers {
        database.execute_batch(&format!("DROP TRIGGER \"{}\"", name.replace('"', "\"\"")))?;
    }
    for run in runs {
        for table in TABLES {
            database.prepare_cached(table)?.execute(params![run.number])?;
        }
    }
    triggers.iter().try_for_each(|(_, text)| database.execute_batch(text))
}
