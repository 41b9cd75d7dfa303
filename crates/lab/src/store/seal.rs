//! Protection of a store's answers against flipped bits, and the repair once there are some.
//!
//! ```text
//! data files    their name is the BLAKE3 hash of their bytes, looked at whenever one is opened
//! rows          a run, with its metrics and its list of files, and a calibration are sealed with such a hash when they
//!               are recorded, looked at whenever they are read; tags are in two places (table and index)
//! structure     SQLite's integrity_check and the text of the schema whenever a store of up to 64 MiB is opened
//! repair        the database is rebuilt from the rows that are whole; the old one, and data files that are not what
//!               their name, go to `damaged/`
//! ```
//! Known limit: a flip in a write-ahead log that a killed process left ends the log there, as SQLite has it.

use std::fs;

use rusqlite::{Connection, params};
use serde_json::{Value, json};

use super::stored::StoredRun;
use super::{DATABASE, Store, StoreError};

/// The folder for damaged files.
const DAMAGED: &str = "damaged";

/// Larger databases are looked at by `iowhy store check` only.
const CHECKED_BYTES: u64 = 64 << 20;

/// The sum of a run as it was read back, without its number and its tags.
pub(super) fn of_run(run: &StoredRun) -> String {
    let design = &run.design;
    let metrics: Vec<Value> =
        run.metrics.iter().map(|(name, value)| json!([name, format!("{:016x}", value.to_bits())])).collect();
    let files: Vec<Value> =
        run.files.iter().map(|file| json!([file.kind.word(), file.hash, file.rows, file.bytes])).collect();
    let mut text = json!([
        [run.id.0, run.label, run.job, run.resolved, run.place, run.simulated, run.machine, run.machine_hash],
        [run.policies, run.seed, run.event_hash, run.started_ns, run.finished_ns, run.layers, run.warnings],
        [run.version, run.blind, design.session, design.block, design.position, design.order_seed, design.size],
        [design.warm_up, metrics, files],
    ]);
    // The sums of earlier versions have none.
    if let (Some(manifest), Some(parts)) = (&run.manifest, text.as_array_mut()) {
        parts.push(json!(manifest));
    }
    blake3::hash(text.to_string().as_bytes()).to_hex().to_string()
}

/// The columns of a calibration as one text.
const CALIBRATION: &str = "json_array(job, metric, machine_hash, design, runs, per_side, comparisons, false_alarms, \
     false_alarm_low, false_alarm_high, detectable_pct, created_ns, details)";

fn sums_of_calibrations(database: &Connection, from: i64) -> rusqlite::Result<Vec<(i64, String)>> {
    let mut query =
        database.prepare_cached(&format!("SELECT number, {CALIBRATION} FROM calibration WHERE number >= ?"))?;
    let rows = query.query_map([from], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
    rows.map(|row| row.map(|(number, text)| (number, blake3::hash(text.as_bytes()).to_hex().to_string()))).collect()
}

/// The sum that a row was sealed with.
fn sealed(database: &Connection, kind: &str, number: i64) -> rusqlite::Result<Option<String>> {
    let mut query = database.prepare_cached("SELECT sum FROM seal WHERE kind = ? AND number = ?")?;
    let mut rows = query.query(params![kind, number])?;
    rows.next()?.map(|row| row.get(0)).transpose()
}

fn insert(database: &Connection, kind: &str, number: i64, sum: &str) -> rusqlite::Result<()> {
    let mut insert = database.prepare_cached("INSERT INTO seal (kind, number, sum) VALUES (?, ?, ?)")?;
    insert.execute(params![kind, number, sum]).map(|_| ())
}

/// Seals runs and calibrations from these numbers on, in the transaction that wrote them.
pub(super) fn seal(database: &Connection, runs: &[StoredRun], calibrations_from: i64) -> rusqlite::Result<()> {
    for run in runs {
        insert(database, "run", run.number, &of_run(run))?;
    }
    for (number, sum) in sums_of_calibrations(database, calibrations_from)? {
        insert(database, "calibration", number, &sum)?;
    }
    Ok(())
}

/// Whether a run is as it was recorded.
pub(super) fn is_whole(database: &Connection, run: &StoredRun) -> rusqlite::Result<bool> {
    Ok(sealed(database, "run", run.number)?.is_some_and(|sum| sum == of_run(run)))
}

/// Damage of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Runs that were looked at.
    pub runs: usize,
    /// Data files that were looked at.
    pub files: usize,
    /// Each with its subject.
    pub damage: Vec<String>,
    /// Something was done about it.
    pub repaired: bool,
}

/// Findings of a full check.
struct Look {
    checked: Checked,
    /// Runs whose rows are whole.
    runs: Vec<StoredRun>,
    /// Hashes of data files that do not match their name.
    broken: Vec<String>,
    calibrations_are_whole: bool,
}

impl Store {
    fn damaged(&self, what: String) -> StoreError {
        StoreError::Damaged { path: self.database_path(), what }
    }

    /// Fails if the structure of the database is damaged, as far as SQLite can tell.
    pub(super) fn check_structure(&self, always: bool) -> Result<(), StoreError> {
        let bytes = fs::metadata(self.database_path()).map_or(0, |metadata| metadata.len());
        if bytes > CHECKED_BYTES && !always {
            return Ok(());
        }
        let said: String = self
            .database
            .query_row("SELECT * FROM pragma_integrity_check LIMIT 1", [], |row| row.get(0))
            .map_err(self.failed("check"))?;
        if said == "ok" { Ok(()) } else { Err(self.damaged(said)) }
    }

    /// Fails if a calibration is not as it was recorded.
    pub(super) fn check_calibrations(&self) -> Result<(), StoreError> {
        let failed = self.failed("read calibrations of");
        for (number, sum) in sums_of_calibrations(&self.database, 0).map_err(&failed)? {
            if sealed(&self.database, "calibration", number).map_err(&failed)?.is_none_or(|known| known != sum) {
                return Err(self.damaged(format!("calibration {number} is not as it was recorded")));
            }
        }
        Ok(())
    }

    /// Looks at everything.
    ///
    /// # Errors
    /// If the store cannot be read at all.
    pub fn check(&self) -> Result<Checked, StoreError> {
        self.look().map(|look| look.checked)
    }

    fn look(&self) -> Result<Look, StoreError> {
        let mut checked = Checked::default();
        let calibrations = self.check_calibrations();
        let calibrations_are_whole = calibrations.is_ok();
        let damage = [self.check_structure(true), calibrations];
        checked.damage.extend(damage.into_iter().filter_map(Result::err).map(|error| error.to_string()));
        let (runs, broken) = self.sound_runs()?;
        checked.runs = runs.len() + broken.len();
        checked.damage.extend(broken.into_iter().map(|id| format!("run {id} is not as it was recorded")));
        let mut hashes: Vec<(&str, String)> = Vec::new();
        for run in &runs {
            hashes.extend(run.files.iter().map(|file| (file.hash.as_str(), run.id.0.clone())));
        }
        hashes.sort_unstable();
        hashes.dedup_by(|one, other| one.0 == other.0);
        checked.files = hashes.len();
        let mut broken = Vec::new();
        for (hash, run) in hashes {
            if let Err(error) = self.verify(hash) {
                checked.damage.push(format!("run {run}: {error}"));
                broken.push(hash.to_owned());
            }
        }
        Ok(Look { checked, runs, broken, calibrations_are_whole })
    }

    /// Puts damaged files aside, and keeps the whole ones.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub fn repair(self) -> Result<Checked, StoreError> {
        let Look { mut checked, runs, broken, calibrations_are_whole } = self.look()?;
        if checked.damage.is_empty() {
            return Ok(checked);
        }
        let io = |action: &'static str, path: &std::path::Path| {
            let path = path.to_owned();
            move |source| StoreError::File { action, path, source }
        };
        let aside = self.directory().join(DAMAGED);
        fs::create_dir_all(&aside).map_err(io("make the directory", &aside))?;
        for hash in broken {
            let path = self.data_path(&hash);
            if path.exists() {
                let to = aside.join(format!("{hash}.parquet"));
                fs::rename(&path, &to).map_err(io("put aside", &path))?;
            }
        }
        let rebuilt = self.directory().join("rebuilt");
        let _ = fs::remove_dir_all(&rebuilt);
        let new = Store::open(&rebuilt)?;
        new.take_rows(&runs, &mut super::Merged::default())?;
        if calibrations_are_whole {
            new.take_calibrations(&self, &mut super::Merged::default())?;
        }
        let (directory, old) = (self.directory().to_owned(), self.database_path());
        drop((self, new));
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        let to = aside.join(format!("{since}-{DATABASE}"));
        fs::rename(&old, &to).map_err(io("put aside", &old))?;
        for end in ["-wal", "-shm"] {
            let _ = fs::remove_file(directory.join(format!("{DATABASE}{end}")));
        }
        fs::rename(rebuilt.join(DATABASE), &old).map_err(io("put in place", &old))?;
        fs::remove_dir_all(&rebuilt).map_err(io("remove", &rebuilt))?;
        checked.repaired = true;
        Ok(checked)
    }
}
