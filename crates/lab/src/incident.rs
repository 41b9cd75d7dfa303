//! Published incidents, run in the simulator and held against what was published.
//!
//! ```text
//! incidents/ID.toml            what was published: workload, hardware, rows, claims
//! incidents/scenarios/ID.toml  how a row becomes a run, and every circumstance that had to be assumed
//! ```
//! A row is run with several sequences of positions: the one that the program really saw, and seeded ones. A simulated
//! value is the mean over them; a ratio is taken sequence by sequence and then averaged. Published values are behind
//! [`file::Published`], which only the claim checker and the printer open.

pub mod claims;
pub mod file;
pub mod report;
pub mod scenario;

use std::sync::atomic::{AtomicUsize, Ordering};

use iowhy_stack::layers::Layers;
use iowhy_stack::outcome::{Plan, RunError};
use iowhy_stack::sim;
use iowhy_stack::workload::PositionSource;

use crate::diagnose::Problem;
use claims::ClaimResult;
use file::{Incident, Published};
use scenario::Scenario;

/// Every incident: its name, its file, and the scenario if it can be run.
const INCIDENTS: &[(&str, &str, Option<&str>)] = &[
    (
        "2004-random-read-split",
        include_str!("../incidents/2004-random-read-split.toml"),
        Some(include_str!("../incidents/scenarios/2004-random-read-split.toml")),
    ),
    ("2010-cfq-direct-writers", include_str!("../incidents/2010-cfq-direct-writers.toml"), None),
    ("2012-direct-io-stale-cache", include_str!("../incidents/2012-direct-io-stale-cache.toml"), None),
    ("2012-plugged-readahead", include_str!("../incidents/2012-plugged-readahead.toml"), None),
    ("2018-readahead-window", include_str!("../incidents/2018-readahead-window.toml"), None),
];

/// An incident that is known.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its name.
    pub id: &'static str,
    /// What was published.
    pub incident: Incident,
    /// Whether this release can run it.
    pub modelled: bool,
}

/// Every incident.
///
/// # Errors
/// If an embedded file does not parse, which a test excludes.
pub fn list() -> Result<Vec<Known>, IncidentError> {
    INCIDENTS
        .iter()
        .map(|(id, text, scenario)| Ok(Known { id, incident: file::parse(id, text)?, modelled: scenario.is_some() }))
        .collect()
}

/// Why an incident could not be run.
#[derive(Debug, thiserror::Error)]
pub enum IncidentError {
    /// A file that comes with the program is damaged.
    #[error("the data of incident {id} do not parse: {message}")]
    Data {
        /// Which incident.
        id: String,
        /// What the parser says.
        message: String,
    },
    /// There is no such incident.
    #[error("{}", .0.message)]
    Unknown(Problem),
    /// It is known, but its models are not there yet.
    #[error("incident {0} is known but not modelled in this release: `iowhy incident list` says which ones are")]
    NotModelled(String),
    /// A run failed.
    #[error("row {row}, sequence {sequence}: {error}")]
    Run {
        /// Which row.
        row: String,
        /// Which sequence of positions.
        sequence: u32,
        /// What the simulator says.
        error: RunError,
    },
}

/// How to run an incident.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct How {
    /// Sequences of positions per row.
    pub sequences: u32,
    /// Worker threads; they change nothing but the time it takes.
    pub threads: usize,
}

impl Default for How {
    fn default() -> How {
        How { sequences: 4, threads: std::thread::available_parallelism().map_or(1, usize::from) }
    }
}

/// One run of a row.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Seconds it took.
    pub elapsed_s: f64,
    /// What every layer did.
    pub layers: Layers,
    /// Hash of its events.
    pub event_hash: u64,
}

/// A row that was run.
#[derive(Clone, Debug)]
pub struct RowResult {
    /// Its name.
    pub id: String,
    /// The kernel as published.
    pub variant: String,
    /// The scheduler as published; none where the kernel had no choice.
    pub scheduler: Option<String>,
    /// Which report of the incident it belongs to.
    pub report: String,
    /// calibration, prediction, context; `extra` for runs nobody published.
    pub role: String,
    /// What was published, if anything.
    pub published: Option<Published>,
    /// Words after `iowhy sysbench` that repeat the first sequence.
    pub command: String,
    /// Why an extra run is made.
    pub note: Option<String>,
    /// What it ran on.
    pub plan: Plan,
    /// One run for each sequence.
    pub samples: Vec<Sample>,
}

impl RowResult {
    /// Mean of the simulated seconds.
    pub fn mean_s(&self) -> f64 {
        mean(self.samples.iter().map(|sample| sample.elapsed_s))
    }

    /// Smallest and largest of them.
    pub fn spread_s(&self) -> (f64, f64) {
        extremes(self.samples.iter().map(|sample| sample.elapsed_s))
    }

    /// Ratios to another row, sequence by sequence.
    pub fn ratios(&self, to: &RowResult) -> Vec<f64> {
        self.samples
            .iter()
            .zip(&to.samples)
            .map(|(a, b)| if b.elapsed_s > 0.0 { a.elapsed_s / b.elapsed_s } else { 0.0 })
            .collect()
    }

    /// A sum over all sequences.
    pub fn sum(&self, of: impl Fn(&Layers) -> u64) -> u64 {
        self.samples.iter().map(|sample| of(&sample.layers)).sum()
    }
}

/// Mean, 0 of nothing.
pub fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0u32), |(sum, n), value| (sum + value, n + 1));
    if n == 0 { 0.0 } else { sum / f64::from(n) }
}

/// Smallest and largest, 0 of nothing.
pub fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values
        .fold(None, |known: Option<(f64, f64)>, value| {
            Some(known.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
        })
        .unwrap_or((0.0, 0.0))
}

/// An incident that was run and checked.
#[derive(Clone, Debug)]
pub struct IncidentResult {
    /// What was published.
    pub incident: Incident,
    /// What was assumed.
    pub scenario: Scenario,
    /// Sequences per row.
    pub sequences: u32,
    /// Published rows, in their order.
    pub rows: Vec<RowResult>,
    /// Runs nobody published.
    pub extra: Vec<RowResult>,
    /// Claims, in their order.
    pub claims: Vec<ClaimResult>,
    /// The cause, told by this run's own layers.
    pub why: String,
}

impl IncidentResult {
    /// Claims that hold.
    pub fn claims_held(&self) -> usize {
        self.claims.iter().filter(|claim| claim.held).count()
    }

    /// Whether every claim that is required holds.
    pub fn all_required_held(&self) -> bool {
        self.claims.iter().all(|claim| claim.held || !claim.required)
    }

    /// The row called `id`, extra runs included.
    pub fn row(&self, id: &str) -> Option<&RowResult> {
        self.rows.iter().chain(&self.extra).find(|row| row.id == id)
    }

    /// Hash over the event hashes of all rows in order.
    pub fn event_hash(&self) -> u64 {
        let hashes = self.rows.iter().chain(&self.extra).flat_map(|row| row.samples.iter().map(|s| s.event_hash));
        combine(hashes)
    }
}

/// One hash of many: order counts.
pub fn combine(hashes: impl Iterator<Item = u64>) -> u64 {
    hashes.fold(0x9e37_79b9_7f4a_7c15, |state: u64, hash| {
        let mixed = (state ^ hash).wrapping_mul(0x2436_a885_a308_d313);
        mixed.rotate_left(29) ^ (mixed >> 31)
    })
}

/// Runs an incident. `progress` is told how many runs of how many are done.
///
/// # Errors
/// If the incident is unknown or not modelled, or a run fails.
pub fn run(id: &str, how: How, progress: &(dyn Fn(usize, usize) + Sync)) -> Result<IncidentResult, IncidentError> {
    let Some((id, text, scenario)) = INCIDENTS.iter().find(|(known, _, _)| *known == id) else {
        let names = INCIDENTS.iter().map(|(known, _, _)| *known);
        return Err(IncidentError::Unknown(
            Problem::error(format!("unknown incident `{id}`")).near(id, names).help("`iowhy incident list` lists them"),
        ));
    };
    let scenario = scenario.ok_or_else(|| IncidentError::NotModelled((*id).to_owned()))?;
    let incident = file::parse(id, text)?;
    let scenario = scenario::parse(id, scenario)?;
    let (mut rows, nr_published) = scenario.rows(&incident)?;
    run_rows(&mut rows, how, progress)?;
    let extra = rows.split_off(nr_published);
    let mut result = IncidentResult {
        incident,
        scenario,
        sequences: how.sequences,
        rows,
        extra,
        claims: Vec::new(),
        why: String::new(),
    };
    result.claims = claims::check(&result);
    result.why = claims::why(&result);
    Ok(result)
}

/// The plan of one sequence: the first one is what the program saw, the others are seeded.
fn plan_of(plan: &Plan, sequence: u32) -> Plan {
    let mut plan = plan.clone();
    let seed = u64::from(sequence) + 1;
    plan.job.seed = seed;
    if let Some(fileio) = plan.job.fileio_mut() {
        fileio.positions = if sequence == 0 { PositionSource::GlibcUnseeded } else { PositionSource::Seeded(seed) };
    }
    plan
}

fn run_rows(rows: &mut [RowResult], how: How, progress: &(dyn Fn(usize, usize) + Sync)) -> Result<(), IncidentError> {
    let sequences = how.sequences.max(1);
    let steps: Vec<(usize, u32)> =
        (0..rows.len()).flat_map(|row| (0..sequences).map(move |sequence| (row, sequence))).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let known: &[RowResult] = rows;
    let work = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((row, sequence)) = steps.get(index).copied() else { return results };
            results.push((index, sim::run(&plan_of(&known[row].plan, sequence))));
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, steps.len());
        }
    };
    progress(0, steps.len());
    let mut results: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..how.threads.clamp(1, steps.len())).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| match worker.join() {
                Ok(results) => results,
                // A broken invariant of a model: it goes on to whoever called.
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    });
    // Whoever was faster: results are taken in the order of the rows.
    results.sort_by_key(|(index, _)| *index);
    for (index, outcome) in results {
        let (row, sequence) = steps[index];
        let outcome = outcome.map_err(|error| IncidentError::Run { row: rows[row].id.clone(), sequence, error })?;
        rows[row].samples.push(Sample {
            elapsed_s: outcome.elapsed.as_secs_f64(),
            layers: outcome.layers,
            event_hash: outcome.event_hash,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_comes_with_the_program_parses() -> Result<(), IncidentError> {
        let known = list()?;
        assert_eq!(known.len(), 5);
        for known in known {
            assert_eq!(known.id, known.incident.id);
            assert!(!known.incident.claims.is_empty(), "{}", known.id);
        }
        Ok(())
    }

    #[test]
    fn every_row_of_a_modelled_incident_becomes_a_plan() -> Result<(), IncidentError> {
        for (id, text, scenario) in INCIDENTS {
            let Some(scenario) = scenario else { continue };
            let incident = file::parse(id, text)?;
            let scenario = scenario::parse(id, scenario)?;
            let (rows, nr_published) = scenario.rows(&incident)?;
            assert_eq!(nr_published, incident.rows.len());
            assert_eq!(rows.len(), incident.rows.len() + scenario.extra.len());
        }
        Ok(())
    }

    #[test]
    fn the_combined_hash_sees_order_and_number() {
        let hash = |values: &[u64]| combine(values.iter().copied());
        assert_ne!(hash(&[1, 2]), hash(&[2, 1]));
        assert_ne!(hash(&[1]), hash(&[1, 0]));
        assert_eq!(hash(&[1, 2]), hash(&[1, 2]));
    }

    #[test]
    fn an_unknown_name_gets_the_nearest() {
        let how = How { sequences: 1, threads: 1 };
        match run("2004-random-read", how, &|_, _| {}) {
            Err(IncidentError::Unknown(problem)) => assert_eq!(problem.nearest[0], "2004-random-read-split"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(run("2018-readahead-window", how, &|_, _| {}), Err(IncidentError::NotModelled(_))));
    }
}
