//! Joining stores: runs of another one, with all that belongs to them, come into this one. What is there already stays
//! as it is, so that merging twice changes nothing.

use std::fs::{self, File};
use std::path::Path;

use rusqlite::params;

use super::data::TEMPORARY;
use super::{DataFile, Store, StoreError, StoredFile};

/// What came in.
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

/// Columns of a run but its number, which is another one in each store.
const RUN: &str = "run_id, label, job, job_resolved, place, simulated, machine, machine_hash, policies, seed, \
     event_hash, started_ns, finished_ns, session, block, position, order_seed, session_size, warm_up, layers, \
     warnings, iowhy_version, blind";

/// Columns of a calibration but its number.
const CALIBRATION: &str = "job, metric, machine_hash, design, runs, per_side, comparisons, false_alarms, \
     false_alarm_low, false_alarm_high, detectable_pct, created_ns, details";

impl Store {
    /// Takes in what the store in another directory has. It is brought to the newest version first, if it is older.
    ///
    /// # Errors
    /// If there is no store, a data file is damaged, or this one cannot be written; runs whose files are all here may
    /// have come in by then, others have not.
    pub fn merge(&self, other: &Path) -> Result<Merged, StoreError> {
        let from = Store::open_existing(other)?;
        let _writing = self.writing()?;
        let _reading = from.writing()?;
        let mut merged = Merged { files: self.take_files(&from)?, ..Merged::default() };
        let failed = self.failed("merge into");
        let path = from.database_path();
        // The name of a database to attach is a value like any other.
        let path = path.to_string_lossy();
        self.database.execute("ATTACH DATABASE ? AS other", [path.as_ref()]).map_err(&failed)?;
        let done = self.take_rows(&mut merged);
        self.database.execute("DETACH DATABASE other", []).map_err(&failed)?;
        done.map(|()| merged)
    }

    fn take_rows(&self, merged: &mut Merged) -> Result<(), StoreError> {
        let failed = self.failed("merge into");
        let transaction = self.transaction("merge into")?;
        let count = |query: &str| transaction.query_row(query, [], |row| row.get::<_, i64>(0));
        let last = count("SELECT coalesce(max(number), 0) FROM main.run").map_err(&failed)?;
        merged.runs = transaction
            .execute(
                &format!(
                    "INSERT INTO main.run ({RUN}) SELECT {RUN} FROM other.run WHERE run_id NOT IN (SELECT run_id FROM \
                     main.run) ORDER BY number"
                ),
                [],
            )
            .map_err(&failed)?;
        merged.known = (count("SELECT count(*) FROM other.run").map_err(&failed)? as usize) - merged.runs;
        for copy in [
            "INSERT INTO main.metric (run, name, value) SELECT new.number, item.name, item.value FROM other.metric AS \
             item JOIN other.run AS old ON old.number = item.run JOIN main.run AS new USING (run_id) \
             WHERE new.number > ?",
            "INSERT INTO main.data (run, kind, hash, rows, bytes) SELECT new.number, item.kind, item.hash, item.rows, \
             item.bytes FROM other.data AS item JOIN other.run AS old ON old.number = item.run JOIN main.run AS new \
             USING (run_id) WHERE new.number > ?",
        ] {
            transaction.execute(copy, params![last]).map_err(&failed)?;
        }
        // Tags come along for runs that are known already, too: somebody thought of them meanwhile.
        merged.tags = transaction
            .execute(
                "INSERT INTO main.tag (run, name) SELECT new.number, tag.name FROM other.tag AS tag JOIN other.run AS \
                 old ON old.number = tag.run JOIN main.run AS new USING (run_id) WHERE 1 ON CONFLICT DO NOTHING",
                [],
            )
            .map_err(&failed)?;
        merged.calibrations = transaction
            .execute(
                &format!(
                    "INSERT INTO main.calibration ({CALIBRATION}) SELECT {CALIBRATION} FROM other.calibration WHERE 1 \
                     ORDER BY number ON CONFLICT DO NOTHING"
                ),
                [],
            )
            .map_err(&failed)?;
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
        from.verify(hash)?;
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
