//! Joining stores: runs of another one, with all that belongs to them, come into this one. Existing runs stay as they
//! are, so that merging twice changes nothing.

use std::fs::{self, File};
use std::path::Path;

use rusqlite::types::Value as Cell;
use rusqlite::{Row, params_from_iter};

use super::data::TEMPORARY;
use super::{DataFile, Filter, Store, StoreError, StoredFile, StoredRun, rows, seal};

/// Merged runs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Runs that are new here.
    pub runs: usize,
    /// Runs that both had.
    pub known: usize,
    /// Data files that are new here.
    pub files: usize,
    /// Tags that are new here.
    pub tags: usize,
    /// Calibrations that are new here.
    pub calibrations: usize,
}

impl Merged {
    /// Adds what came from another store.
    pub fn add(&mut self, more: &Merged) {
        self.runs += more.runs;
        self.known += more.known;
        self.files += more.files;
        self.tags += more.tags;
        self.calibrations += more.calibrations;
    }
}

/// Columns of a calibration but its number.
const CALIBRATION: &str = "job, metric, machine_hash, design, runs, per_side, comparisons, false_alarms, \
     false_alarm_low, false_alarm_high, detectable_pct, created_ns, details";

impl Store {
    /// Takes in what the store in another directory has. It is brought to the newest version first, if it is older.
    ///
    /// # Errors
    /// If the store does not exist, a data file is damaged, or this one cannot be written; runs whose files are all
    /// here may have come in by then, others have not.
    pub fn merge(&self, other: &Path) -> Result<Merged, StoreError> {
        let from = Store::open_existing(other)?;
        let _writing = self.writing()?;
        // Of a store that cannot be written nothing is swept away, either.
        let _reading = from.writing().ok();
        let mut merged = Merged { files: self.take_files(&from)?, ..Merged::default() };
        // Damaged runs there do not come in.
        from.check_calibrations()?;
        let runs = from.runs(&Filter::default())?;
        self.take_rows(&runs, &mut merged)?;
        self.take_calibrations(&from, &mut merged)?;
        Ok(merged)
    }

    /// Takes in runs with their tags: of known ones the tags that were added meanwhile.
    pub(super) fn take_rows(&self, runs: &[StoredRun], merged: &mut Merged) -> Result<(), StoreError> {
        let failed = self.failed("merge into");
        let mut runs: Vec<&StoredRun> = runs.iter().collect();
        // As they were recorded.
        runs.sort_by_key(|run| run.number);
        let transaction = self.transaction("merge into")?;
        let tags = || transaction.query_row("SELECT count(*) FROM tag", [], |row| row.get::<_, i64>(0));
        let before = tags().map_err(&failed)?;
        for run in runs {
            let (_, new) = rows::insert(&transaction, run).map_err(&failed)?;
            *(if new { &mut merged.runs } else { &mut merged.known }) += 1;
        }
        merged.tags += (tags().map_err(&failed)? - before) as usize;
        transaction.commit().map_err(&failed)
    }

    /// Takes in the calibrations of another store.
    pub(super) fn take_calibrations(&self, from: &Store, merged: &mut Merged) -> Result<(), StoreError> {
        let failed = self.failed("merge into");
        let read = || {
            let mut query = from.database.prepare(&format!("SELECT {CALIBRATION} FROM calibration ORDER BY number"))?;
            let width = query.column_count();
            let row = |row: &Row<'_>| (0..width).map(|column| row.get(column)).collect::<Result<Vec<Cell>, _>>();
            query.query_map([], row)?.collect::<Result<Vec<_>, _>>()
        };
        let rows = read().map_err(from.failed("read calibrations of"))?;
        let transaction = self.transaction("merge into")?;
        let places = vec!["?"; CALIBRATION.split(',').count()].join(",");
        let insert = format!("INSERT INTO calibration ({CALIBRATION}) VALUES ({places}) ON CONFLICT DO NOTHING");
        for row in rows {
            if transaction.execute(&insert, params_from_iter(row)).map_err(&failed)? == 1 {
                merged.calibrations += 1;
                seal::seal(&transaction, &[], transaction.last_insert_rowid()).map_err(&failed)?;
            }
        }
        transaction.commit().map_err(&failed)
    }

    /// Copies the data files that runs of another store have and this one has not.
    fn take_files(&self, from: &Store) -> Result<usize, StoreError> {
        let read = || {
            let mut statement = from.database.prepare("SELECT DISTINCT hash FROM data ORDER BY hash")?;
            statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()
        };
        let hashes = read().map_err(from.failed("read the files of"))?;
        let mut taken = 0;
        for hash in hashes {
            taken += usize::from(self.take_file(from, &hash)?);
        }
        self.sync_data()?;
        Ok(taken)
    }

    /// Copies a data file of another store, if this one has it not; whether it was copied.
    fn take_file(&self, from: &Store, hash: &str) -> Result<bool, StoreError> {
        let to = self.data_path(hash);
        if to.exists() {
            return Ok(false);
        }
        from.open_data(hash)?;
        let temporary = self.data_directory().join(format!("merge-{}-{hash}{TEMPORARY}", std::process::id()));
        let failed = |action| {
            let path = temporary.clone();
            move |source| StoreError::File { action, path, source }
        };
        fs::copy(from.data_path(hash), &temporary).map_err(failed("write"))?;
        File::open(&temporary).and_then(|file| file.sync_all()).map_err(failed("write"))?;
        fs::rename(&temporary, &to).map_err(failed("rename"))?;
        Ok(true)
    }

    /// New names of data files are on the disk when their folder is.
    fn sync_data(&self) -> Result<(), StoreError> {
        let folder = self.data_directory();
        File::open(&folder).and_then(|file| file.sync_all()).map_err(|source| StoreError::File {
            action: "sync",
            path: folder,
            source,
        })
    }

    /// Takes in data files of another store for a run that is about to be recorded here.
    ///
    /// # Errors
    /// If one is damaged, or this store cannot be written.
    pub(crate) fn adopt(&self, from: &Store, files: &[StoredFile]) -> Result<Vec<DataFile>, StoreError> {
        let writing = self.writing()?;
        for file in files {
            self.take_file(from, &file.hash)?;
        }
        self.sync_data()?;
        Ok(files.iter().map(|file| DataFile::adopted(file, &writing)).collect())
    }
}
