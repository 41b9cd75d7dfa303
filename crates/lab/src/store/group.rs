//! Recorded runs as what comparisons, explanations and histories take.

use rusqlite::Row;

use super::{Filter, Kind, Store, StoreError, StoredRun};
use iowhy_stats::metric::{Column, Group, Metric, Origin, RunFacts};

impl StoredRun {
    /// Its facts for a comparison.
    pub fn facts(&self) -> RunFacts {
        RunFacts {
            run_id: self.id.0.clone(),
            started_ns: self.started_ns,
            // Blocks of different commands have the same numbers; only one block was made in one stretch of time.
            block: Some(block_of(&self.design.session, self.design.block)),
            seed: self.seed,
            simulated: self.simulated,
            machine: self.machine_hash.clone(),
            job: self.job.clone(),
            warnings: self.warnings.clone(),
            options: Vec::new(),
            origin: self.origin(),
        }
    }

    /// How it is made again.
    fn origin(&self) -> Origin {
        let (asked, policies) = self.asked();
        let again = asked.again.map(|again| format!("run {}", again.words.join(" ")));
        let command = asked.command.or(again).map(|command| format!("iowhy {command}"));
        let kernel = policies.and_then(|policies| policies.get("kernel")?.as_str().map(str::to_owned));
        let disk = asked.modelled.or(asked.modelled_disk).or(asked.disk);
        let of_machine = || self.machine.as_ref()?.get("device")?.as_str().map(str::to_owned);
        Origin {
            command: command.unwrap_or_default(),
            kernel: kernel.or_else(|| self.place.clone()).unwrap_or_default(),
            disk: disk.or_else(of_machine).unwrap_or_default(),
        }
    }
}

/// A number for a block of a session: different for different ones, and in the order of the blocks within one.
fn block_of(session: &str, block: u64) -> u64 {
    // The high half tells sessions apart, the low half is the block.
    let hash = blake3::hash(session.as_bytes());
    let high = hash.as_bytes().iter().take(4).fold(0u64, |high, byte| high << 8 | u64::from(*byte));
    high << 32 | (block & 0xffff_ffff)
}

/// Runs of one label of which the events were kept, so that they can be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Their label, which is also their name (see [`Store::find`]).
    pub label: String,
    /// How many they are.
    pub runs: u64,
    /// The job of the last.
    pub job: String,
    /// When that began, ns since 1970.
    pub started_ns: u64,
}

/// Runs, which are in order, as a group.
pub(super) fn group_of(label: &str, runs: &[StoredRun]) -> Group {
    let mut group =
        Group { label: label.to_owned(), runs: runs.iter().map(StoredRun::facts).collect(), columns: Vec::new() };
    // Many runs have the same metrics in the same order, so the place of the last one is where to look first.
    let mut places: std::collections::HashMap<&str, usize> = std::collections::HashMap::new();
    for (nr, run) in runs.iter().enumerate() {
        for (name, value) in &run.metrics {
            let at = *places.entry(name).or_insert_with(|| {
                let metric = Metric::of(name);
                group.columns.push(Column { metric, values: Vec::new(), runs: Vec::new(), left_out: 0 });
                group.columns.len() - 1
            });
            let column = &mut group.columns[at];
            match value.is_finite() {
                true => {
                    column.values.push(*value);
                    column.runs.push(nr);
                }
                false => column.left_out += 1,
            }
        }
    }
    group
}

impl Store {
    /// The runs of a name (see [`Store::find`]) with their metrics, in the order in which they were made.
    ///
    /// # Errors
    /// As [`Store::find`].
    pub fn group(&self, what: &str) -> Result<Group, StoreError> {
        Ok(group_of(what, &self.find(what)?))
    }

    /// The sets of runs that can be explained, the latest first. Runs that only warmed up are left out.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn sets(&self) -> Result<Vec<Set>, StoreError> {
        // Where there is one max() or min(), SQLite takes the other columns from the row that has it.
        let query = "SELECT label, count(*), job, max(started_ns) FROM run WHERE warm_up = 0 AND EXISTS \
                     (SELECT 1 FROM data WHERE data.run = run.number AND kind = ?) GROUP BY label \
                     ORDER BY max(started_ns) DESC, label";
        let read_all = || {
            let mut statement = self.database.prepare_cached(query)?;
            let number = |row: &Row<'_>, n: usize| row.get::<_, i64>(n).map(|number| number as u64);
            let rows = statement.query_map([Kind::Events.word()], |row| {
                Ok(Set { label: row.get(0)?, runs: number(row, 1)?, job: row.get(2)?, started_ns: number(row, 3)? })
            })?;
            rows.collect::<Result<Vec<_>, _>>()
        };
        read_all().map_err(self.failed("read the labels of"))
    }

    /// The runs that fit as series in the order in which they were made: those of one job on one machine are one. If
    /// neither a label nor a tag is asked for, simulated runs of different places are different series, because a
    /// change from one to the other is none of time. Runs that only warmed up are left out.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn groups_for_history(&self, filter: &Filter) -> Result<Vec<Group>, StoreError> {
        let named = filter.label.is_some() || filter.tag.is_some();
        let runs = self.runs(&Filter { measured: true, ..filter.clone() })?;
        let mut series: Vec<([String; 3], Vec<StoredRun>)> = Vec::new();
        let mut places: std::collections::HashMap<[String; 3], usize> = std::collections::HashMap::new();
        for run in runs {
            let place = if named || !run.simulated { String::new() } else { run.place.clone().unwrap_or_default() };
            let key = [run.job.clone(), run.machine_hash.clone(), place];
            let at = *places.entry(key).or_insert_with_key(|key| {
                series.push((key.clone(), Vec::new()));
                series.len() - 1
            });
            series[at].1.push(run);
        }
        let label = |[job, machine, place]: &[String; 3], runs: &[StoredRun]| {
            let place = match (place.as_str(), runs.first()) {
                ("", Some(run)) if !run.simulated => "live",
                ("", _) => "simulated",
                (place, _) => place,
            };
            format!("{job} on {place}, machine {}", machine.get(..8).unwrap_or(machine))
        };
        Ok(series.iter().map(|(key, runs)| group_of(&label(key, runs), runs)).collect())
    }
}
