//! Runs as rows: recording them, and reading them back.
//!
//! The id of a run is the beginning of the BLAKE3 hash of all that is recorded of it, its time and its data files
//! included: the same run has the same id in every store, and two runs never have the same.

use rusqlite::types::Value as Cell;
use rusqlite::{Connection, Row, params};
use serde_json::{Value, json};

use super::data::Kind;
use super::stored::{Design, NewRun, RunId, StoredFile, StoredRun};
use super::{Store, StoreError, seal};
use iowhy_compare::Calibration;
use iowhy_stats::figure;
use iowhy_text::diagnose;

/// Which runs are wanted. A missing condition fits all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub label: Option<String>,
    pub tag: Option<String>,
    /// Of this job, as typed.
    pub job: Option<String>,
    /// On this machine, by hash.
    pub machine: Option<String>,
    /// Begun at this time or later, ns since 1970.
    pub since_ns: Option<u64>,
    /// Without those that only warmed up.
    pub measured: bool,
    /// The latest ones, up to this number.
    pub last: Option<u64>,
}

/// Columns of a run in the order in which [`read`] takes them.
const COLUMNS: &str = "number, run_id, label, job, job_resolved, place, simulated, machine, machine_hash, policies, \
     seed, event_hash, started_ns, finished_ns, session, block, position, order_seed, session_size, warm_up, layers, \
     warnings, iowhy_version, blind, manifest";

fn read(row: &Row<'_>) -> rusqlite::Result<StoredRun> {
    // The database checks that it is JSON.
    let object = |column: usize| -> rusqlite::Result<Option<Value>> {
        Ok(row.get::<_, Option<String>>(column)?.and_then(|text| serde_json::from_str(&text).ok()))
    };
    let number = |column: usize| row.get::<_, i64>(column).map(|n| n as u64);
    let warnings: String = row.get(21)?;
    Ok(StoredRun {
        number: row.get(0)?,
        id: RunId(row.get(1)?),
        label: row.get(2)?,
        job: row.get(3)?,
        resolved: row.get(4)?,
        place: row.get(5)?,
        simulated: row.get(6)?,
        machine: object(7)?,
        machine_hash: row.get(8)?,
        policies: object(9)?,
        seed: number(10)?,
        event_hash: row.get(11)?,
        started_ns: number(12)?,
        finished_ns: number(13)?,
        design: Design {
            session: row.get(14)?,
            block: number(15)?,
            position: number(16)? as u32,
            order_seed: number(17)?,
            size: number(18)? as u32,
            warm_up: row.get(19)?,
        },
        layers: object(20)?,
        warnings: serde_json::from_str(&warnings).unwrap_or_default(),
        version: row.get(22)?,
        blind: row.get(23)?,
        manifest: row.get::<_, Option<String>>(24)?.and_then(|text| serde_json::from_str(&text).ok()),
        metrics: Vec::new(),
        tags: Vec::new(),
        files: Vec::new(),
    })
}

/// Reads what belongs to a run from the other tables.
fn complete(database: &Connection, run: &mut StoredRun) -> rusqlite::Result<()> {
    let mut metrics = database.prepare_cached("SELECT name, value FROM metric WHERE run = ? ORDER BY name")?;
    let rows = metrics.query_map([run.number], |row| Ok((row.get(0)?, row.get::<_, Option<f64>>(1)?)))?;
    for row in rows {
        let (name, value) = row?;
        run.metrics.push((name, value.unwrap_or(f64::NAN)));
    }
    let mut tags = database.prepare_cached("SELECT name FROM tag WHERE run = ? ORDER BY name")?;
    run.tags = tags.query_map([run.number], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut files = database.prepare_cached("SELECT kind, hash, rows, bytes FROM data WHERE run = ? ORDER BY kind")?;
    let rows = files.query_map([run.number], |row| {
        Ok((row.get::<_, String>(0)?, row.get(1)?, row.get::<_, i64>(2)? as u64, row.get::<_, i64>(3)? as u64))
    })?;
    for row in rows {
        let (kind, hash, rows, bytes) = row?;
        // The database allows no other kinds.
        if let Some(kind) = Kind::parse(&kind) {
            run.files.push(StoredFile { kind, hash, rows, bytes });
        }
    }
    Ok(())
}

impl NewRun {
    /// The id it gets.
    pub fn id(&self) -> RunId {
        let design = &self.design;
        let metrics: Vec<Value> =
            self.metrics.iter().map(|(name, value)| json!([name, format!("{:016x}", value.to_bits())])).collect();
        let files: Vec<Value> = self.files.iter().map(|file| json!([file.kind().word(), file.hash()])).collect();
        let text = json!([
            [self.label, self.job, self.resolved, self.place, self.simulated, self.machine, self.policies, self.seed],
            [self.event_hash, self.started_ns, self.finished_ns, self.warnings, self.blind, self.layers, self.manifest],
            [design.session, design.block, design.position, design.order_seed, design.size, design.warm_up],
            metrics,
            files,
        ]);
        let hash = blake3::hash(text.to_string().as_bytes());
        RunId(hash.to_hex().as_str()[..16].to_owned())
    }
}

impl NewRun {
    /// As it will be read back.
    fn stored(&self) -> StoredRun {
        let mut metrics = self.metrics.clone();
        // Of a name that comes twice the first counts.
        metrics.sort_by(|one, other| one.0.cmp(&other.0));
        metrics.dedup_by(|one, other| one.0 == other.0);
        let files = self.files.iter().map(|file| StoredFile {
            kind: file.kind(),
            hash: file.hash().to_owned(),
            rows: file.rows(),
            bytes: file.bytes(),
        });
        StoredRun {
            number: 0,
            id: self.id(),
            label: self.label.clone(),
            job: self.job.clone(),
            resolved: self.resolved.clone(),
            place: self.place.clone(),
            simulated: self.simulated,
            machine: self.machine.clone(),
            machine_hash: self.machine_hash.clone(),
            policies: self.policies.clone(),
            manifest: self.manifest.clone(),
            seed: self.seed,
            event_hash: self.event_hash.map(figure::hash),
            started_ns: self.started_ns,
            finished_ns: self.finished_ns,
            design: self.design.clone(),
            layers: self.layers.clone(),
            warnings: self.warnings.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            blind: self.blind,
            metrics,
            tags: Vec::new(),
            files: files.collect(),
        }
    }
}

/// Inserts a run with its tags, and seals it, unless there is one of its id; its number, and whether it is new.
pub(super) fn insert(database: &Connection, run: &StoredRun) -> rusqlite::Result<(i64, bool)> {
    let text = |value: &Option<Value>| value.as_ref().map(Value::to_string);
    let design = &run.design;
    let inserted = database
        .prepare_cached(&format!(
            "INSERT INTO run ({}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING",
            COLUMNS.strip_prefix("number, ").unwrap_or(COLUMNS)
        ))?
        .execute(params![
            run.id.0,
            run.label,
            run.job,
            run.resolved,
            run.place,
            run.simulated,
            text(&run.machine),
            run.machine_hash,
            text(&run.policies),
            run.seed as i64,
            run.event_hash,
            run.started_ns as i64,
            run.finished_ns as i64,
            design.session,
            design.block as i64,
            design.position,
            design.order_seed as i64,
            design.size,
            design.warm_up,
            text(&run.layers),
            json!(run.warnings).to_string(),
            run.version,
            run.blind,
            run.manifest.as_ref().map(|manifest| json!(manifest).to_string()),
        ])?;
    let number = match inserted {
        1 => database.last_insert_rowid(),
        _ => database.query_row("SELECT number FROM run WHERE run_id = ?", [&run.id.0], |row| row.get(0))?,
    };
    if inserted == 1 {
        let mut insert = database.prepare_cached("INSERT INTO metric (run, name, value) VALUES (?, ?, ?)")?;
        for (name, value) in &run.metrics {
            insert.execute(params![number, name, value.is_finite().then_some(*value)])?;
        }
        let mut insert =
            database.prepare_cached("INSERT INTO data (run, kind, hash, rows, bytes) VALUES (?, ?, ?, ?, ?)")?;
        for file in &run.files {
            insert.execute(params![number, file.kind.word(), file.hash, file.rows as i64, file.bytes as i64])?;
        }
        // The path that will be read, not the one meant.
        seal::seal(database, &[by_number(database, number)?], i64::MAX)?;
    }
    let mut insert = database.prepare_cached("INSERT INTO tag (run, name) VALUES (?, ?) ON CONFLICT DO NOTHING")?;
    for tag in &run.tags {
        insert.execute(params![number, tag])?;
    }
    Ok((number, inserted == 1))
}

/// A run with all that belongs to it.
pub(super) fn by_number(database: &Connection, number: i64) -> rusqlite::Result<StoredRun> {
    let mut query = database.prepare_cached(&format!("SELECT {COLUMNS} FROM run WHERE number = ?"))?;
    let mut run = query.query_row([number], read)?;
    complete(database, &mut run)?;
    Ok(run)
}

impl Store {
    /// Records a run. When this returns it is on the disk. A run that is there already is left as it is.
    ///
    /// # Errors
    /// If the disk is full or cannot be written; then nothing of the run is in the store.
    pub fn record(&self, run: &NewRun) -> Result<RunId, StoreError> {
        let failed = self.failed("record a run in");
        let stored = run.stored();
        let transaction = self.transaction("record a run in")?;
        insert(&transaction, &stored).map_err(&failed)?;
        transaction.commit().map_err(&failed)?;
        Ok(stored.id)
    }

    /// The runs that are as they were recorded, and the ids of those that are not, as far as they can be read.
    ///
    /// # Errors
    /// If none can be read.
    pub(super) fn sound_runs(&self) -> Result<(Vec<StoredRun>, Vec<String>), StoreError> {
        let failed = self.failed("read runs of");
        let mut statement = self.database.prepare("SELECT number, run_id FROM run NOT INDEXED").map_err(&failed)?;
        let rows = statement.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)));
        let (mut sound, mut broken) = (Vec::new(), Vec::new());
        for (number, id) in rows.map_err(&failed)?.map_while(Result::ok) {
            let run = by_number(&self.database, number);
            let whole = |run: &StoredRun| seal::is_whole(&self.database, run).unwrap_or(false);
            match run {
                Ok(run) if whole(&run) => sound.push(run),
                _ => broken.push(id),
            }
        }
        Ok((sound, broken))
    }

    /// The runs that fit, in the order in which they began.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn runs(&self, filter: &Filter) -> Result<Vec<StoredRun>, StoreError> {
        let mut conditions = vec!["1"];
        let mut values: Vec<Cell> = Vec::new();
        let mut with = |condition: &'static str, value: Option<Cell>| {
            if let Some(value) = value {
                conditions.push(condition);
                values.push(value);
            }
        };
        let text = |value: &Option<String>| value.clone().map(Cell::Text);
        with("label = ?", text(&filter.label));
        with("number IN (SELECT run FROM tag WHERE name = ?)", text(&filter.tag));
        with("job = ?", text(&filter.job));
        with("machine_hash = ?", text(&filter.machine));
        with("started_ns >= ?", filter.since_ns.map(|ns| Cell::Integer(ns as i64)));
        if filter.measured {
            conditions.push("warm_up = 0");
        }
        let conditions = conditions.join(" AND ");
        let last = filter.last.map_or(-1, |n| n as i64);
        // Runs of one moment are in the order of recording.
        let query = format!(
            "SELECT * FROM (SELECT {COLUMNS} FROM run WHERE {conditions} ORDER BY started_ns DESC, number DESC LIMIT \
             {last}) ORDER BY started_ns, number"
        );
        self.select(&query, values)
    }

    fn select(&self, query: &str, values: Vec<Cell>) -> Result<Vec<StoredRun>, StoreError> {
        let read_all = || {
            // What belongs to the runs must be of the same moment as the runs.
            let transaction = self.database.unchecked_transaction()?;
            let mut statement = transaction.prepare(query)?;
            let rows = statement.query_map(rusqlite::params_from_iter(values), read)?;
            let mut runs = rows.collect::<Result<Vec<StoredRun>, _>>()?;
            runs.iter_mut().try_for_each(|run| complete(&transaction, run))?;
            Ok(runs)
        };
        let runs: Vec<StoredRun> = read_all().map_err(self.failed("read runs of"))?;
        for run in &runs {
            if !seal::is_whole(&self.database, run).map_err(self.failed("read runs of"))? {
                let what = format!("run {} is not as it was recorded", run.id);
                return Err(StoreError::Damaged { path: self.database_path(), what });
            }
        }
        Ok(runs)
    }

    /// The runs of a name: a label, a tag, an id or the beginning of one, or several of these with commas between
    /// them; in the order in which they began, without those that only warmed up. A label comes before a tag of the
    /// same name.
    ///
    /// # Errors
    /// If nothing has the name, several ids begin so, or the store cannot be read.
    pub fn find(&self, what: &str) -> Result<Vec<StoredRun>, StoreError> {
        // A label may have commas of its own.
        let whole = self.named(what)?;
        let mut runs = match whole {
            Some(runs) => runs,
            None => {
                let mut runs = Vec::new();
                for part in what.split(',').map(str::trim) {
                    match self.named(part)? {
                        Some(found) => runs.extend(found),
                        None => return Err(self.unknown(part)?),
                    }
                }
                runs
            }
        };
        runs.sort_by_key(|run| (run.started_ns, run.number));
        runs.dedup_by_key(|run| run.number);
        Ok(runs)
    }

    /// The runs of one name.
    fn named(&self, name: &str) -> Result<Option<Vec<StoredRun>>, StoreError> {
        for filter in [
            Filter { label: Some(name.to_owned()), measured: true, ..Filter::default() },
            Filter { tag: Some(name.to_owned()), measured: true, ..Filter::default() },
        ] {
            let runs = self.runs(&filter)?;
            if !runs.is_empty() {
                return Ok(Some(runs));
            }
        }
        let hexadecimal = name.len() <= 16 && name.chars().all(|c| c.is_ascii_hexdigit());
        if name.len() < SHORTEST || !hexadecimal {
            return Ok(None);
        }
        let name = name.to_ascii_lowercase();
        // Digits are not wildcards.
        let query = format!("SELECT {COLUMNS} FROM run WHERE run_id LIKE ? || '%' ORDER BY run_id LIMIT 5");
        let runs = self.select(&query, vec![Cell::Text(name.clone())])?;
        match runs.len() {
            0 => Ok(None),
            1 => Ok(Some(runs)),
            _ => Err(StoreError::Ambiguous { what: name, found: runs.into_iter().map(|run| run.id.0).collect() }),
        }
    }

    /// The error about a name that nothing has.
    fn unknown(&self, what: &str) -> Result<StoreError, StoreError> {
        let names = || {
            let query = "SELECT label FROM run GROUP BY label UNION SELECT name FROM tag";
            let mut statement = self.database.prepare(query)?;
            statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()
        };
        let names = names().map_err(self.failed("read the labels of"))?;
        let nearest = diagnose::nearest(what, names);
        Ok(StoreError::Unknown { path: self.directory().to_owned(), what: what.to_owned(), nearest })
    }

    /// Gives runs a tag, or takes it from them; yields how many it changed.
    ///
    /// # Errors
    /// As [`Store::find`], and if the tag is empty or has a comma.
    pub fn tag(&self, what: &str, tag: &str, remove: bool) -> Result<usize, StoreError> {
        let why = match tag {
            "" => Some("it is empty"),
            tag if tag.contains(',') => Some("commas separate names"),
            tag if tag.chars().any(char::is_control) => Some("it has control characters"),
            _ => None,
        };
        if let Some(why) = why {
            return Err(StoreError::Name { what: tag.to_owned(), of: "tag", why });
        }
        let runs = self.find(what)?;
        let failed = self.failed("tag runs of");
        let transaction = self.transaction("tag runs of")?;
        let statement = match remove {
            true => "DELETE FROM tag WHERE run = ? AND name = ?",
            false => "INSERT INTO tag (run, name) VALUES (?, ?) ON CONFLICT DO NOTHING",
        };
        let mut changed = 0;
        for run in &runs {
            changed += transaction.execute(statement, params![run.number, tag]).map_err(&failed)?;
        }
        transaction.commit().map_err(&failed)?;
        Ok(changed)
    }

    /// Records the results of comparisons of equal runs on a machine, at a time in ns since 1970.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn record_calibration(
        &self,
        machine_hash: &str,
        calibration: &Calibration,
        created_ns: u64,
        details: &Value,
    ) -> Result<(), StoreError> {
        let failed = self.failed("record a calibration in");
        let transaction = self.transaction("record a calibration in")?;
        let inserted = transaction
            .execute(
                "INSERT INTO calibration (job, metric, machine_hash, design, runs, per_side, comparisons, \
                 false_alarms, false_alarm_low, false_alarm_high, detectable_pct, created_ns, details) \
                 VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING",
                params![
                    calibration.job,
                    calibration.metric,
                    machine_hash,
                    calibration.design.word(),
                    calibration.runs as i64,
                    calibration.per_side as i64,
                    calibration.comparisons as i64,
                    calibration.false_alarms as i64,
                    calibration.false_alarm_ci.0,
                    calibration.false_alarm_ci.1,
                    calibration.detectable_pct,
                    created_ns as i64,
                    details.to_string(),
                ],
            )
            .map_err(&failed)?;
        // One of this moment may be there already.
        let from = if inserted == 1 { transaction.last_insert_rowid() } else { i64::MAX };
        seal::seal(&transaction, &[], from).map_err(&failed)?;
        transaction.commit().map_err(&failed)
    }

    /// The latest calibration of each metric and design on a machine for a job.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn calibrations(&self, machine_hash: &str, job: &str) -> Result<Vec<Calibration>, StoreError> {
        self.check_calibrations()?;
        let read_all = || {
            let mut statement = self.database.prepare_cached(
                "SELECT job, metric, design, runs, per_side, comparisons, false_alarms, false_alarm_low, \
                 false_alarm_high, detectable_pct, max(created_ns) FROM calibration WHERE machine_hash = ? AND job = ? \
                 GROUP BY metric, design ORDER BY metric, design",
            )?;
            // NULL is what SQLite makes of NaN.
            let float = |row: &Row<'_>, n: usize| row.get::<_, Option<f64>>(n).map(|value| value.unwrap_or(f64::NAN));
            let count = |row: &Row<'_>, n: usize| row.get::<_, i64>(n).map(|n| n as usize);
            let rows = statement.query_map([machine_hash, job], |row| {
                let word: String = row.get(2)?;
                let designs = [iowhy_compare::Design::Interleaved, iowhy_compare::Design::Sequential];
                let design = designs.into_iter().find(|design| design.word() == word);
                Ok(Calibration {
                    job: row.get(0)?,
                    metric: row.get(1)?,
                    // What a later version might have is closest to the more careful one.
                    design: design.unwrap_or(iowhy_compare::Design::Sequential),
                    runs: count(row, 3)?,
                    per_side: count(row, 4)?,
                    comparisons: count(row, 5)?,
                    false_alarms: count(row, 6)?,
                    false_alarm_ci: (float(row, 7)?, float(row, 8)?),
                    detectable_pct: float(row, 9)?,
                })
            })?;
            rows.collect::<Result<Vec<_>, _>>()
        };
        read_all().map_err(self.failed("read calibrations of"))
    }
}

/// Least digits of the beginning of an id.
const SHORTEST: usize = 4;
