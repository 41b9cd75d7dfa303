//! Published incidents, run in the simulator and held against the publication.
//!
//! ```text
//! incidents/ID.toml            the publication: workload, hardware, rows, tables, claims
//! incidents/scenarios/ID.toml  how a row becomes a run, and every circumstance that had to be assumed
//! incident/live/table.rs       what the running kernel is asked about it
//! incident/claims/ID.rs        checks of claims that are not a matter of two rows, and the cause in words
//! ```
//! A run is a command line, made several times: as the program really was, and with seeds. A row is a metric of one or
//! more runs; its value is the mean over the repetitions. A ratio is taken repetition by repetition and then averaged,
//! or of the means, by the scenario. Published values are behind [`file::Published`], which only the claim checker and
//! the printer open.

pub mod claims;
pub mod command;
pub mod file;
pub mod live;
pub mod metric;
pub mod report;
pub mod scenario;
pub mod tables;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use iowhy_stack::kernel::{self, Stack};
use iowhy_stack::layers::Layers;
use iowhy_stack::origin::Options;
use iowhy_stack::outcome::{Outcome, Plan, RunError};
use iowhy_stack::sim;

use claims::{Checks, ClaimResult, Why};
use file::{Figure, Incident, Row};
use iowhy_stats::mmtests::Statistic;
use iowhy_text::diagnose::Problem;
use metric::Metric;
use scenario::{Average, Planned, Scenario};

/// An incident: its parts in the program.
struct Entry {
    /// Its name.
    id: &'static str,
    file: &'static str,
    /// How it is run, if it can be.
    scenario: Option<&'static str>,
    /// Checks of its claims, beyond the comparison of two rows.
    checks: Checks,
    /// The explanation of the cause from the events.
    why: Option<Why>,
}

/// An incident whose files have its name, with the module of its claims.
macro_rules! modelled {
    ($id:literal, $claims:ident) => {
        Entry {
            id: $id,
            file: include_str!(concat!("../incidents/", $id, ".toml")),
            scenario: Some(include_str!(concat!("../incidents/scenarios/", $id, ".toml"))),
            checks: claims::$claims::CHECKS,
            why: Some(claims::$claims::why),
        }
    };
}

/// An incident whose cause the models do not show yet.
macro_rules! known {
    ($id:literal) => {
        Entry {
            id: $id,
            file: include_str!(concat!("../incidents/", $id, ".toml")),
            scenario: None,
            checks: &[],
            why: None,
        }
    };
}

/// Every incident.
const INCIDENTS: &[Entry] = &[
    modelled!("2004-random-read-split", random_read_split),
    modelled!("2010-cfq-direct-writers", cfq_direct_writers),
    modelled!("2012-direct-io-stale-cache", stale_cache),
    modelled!("2012-plugged-readahead", plugged_readahead),
    modelled!("2018-readahead-window", readahead_window),
    modelled!("2022-wbt-write-cache", wbt_write_cache),
    modelled!("2023-fsyncs-share-less", fsyncs_share_less),
    modelled!("2024-deadline-insertion-lists", insertion_lists),
    known!("2024-deadline-wake-batch"),
    modelled!("2024-flush-before-zeroing", flush_before_zeroing),
    known!("2024-journal-past-throttle"),
    modelled!("2024-plug-merge-end", plug_merge_end),
    modelled!("2024-plug-per-bio", plug_per_bio),
    modelled!("2025-fuse-ring-poll", fuse_ring_poll),
    modelled!("2025-uring-nowait", uring_nowait),
];

/// An incident that is known.
#[derive(Clone, Debug)]
pub struct CatalogueEntry {
    /// Its name.
    pub id: &'static str,
    pub incident: Incident,
    /// Whether this release can run it.
    pub modelled: bool,
}

/// Every incident.
///
/// # Errors
/// If an embedded file does not parse, which a test excludes.
pub fn list() -> Result<Vec<CatalogueEntry>, IncidentError> {
    INCIDENTS
        .iter()
        .map(|entry| {
            let incident = file::parse(entry.id, entry.file)?;
            Ok(CatalogueEntry { id: entry.id, incident, modelled: entry.scenario.is_some() })
        })
        .collect()
}

/// A row as it is run: which command line, how often.
#[derive(Clone, Debug)]
pub struct RunnableRow {
    /// Words after `iowhy`.
    pub command: String,
    /// Its plan, with the first repetition.
    pub plan: Plan,
    /// Repetitions that the scenario makes.
    pub repetitions: u32,
    /// Assumptions of its scenario.
    pub assumed: Vec<String>,
}

/// The row (or extra run) of an incident as it is run, or the names that there are.
///
/// # Errors
/// If the incident or the row is unknown.
pub fn row(id: &str, row: &str) -> Result<RunnableRow, IncidentError> {
    let entry = entry(id)?;
    let (_, scenario, planned) = planned(entry, modelled(entry)?)?;
    let names = planned.runs.iter().map(|run| run.id.as_str());
    let Some(run) = planned.runs.iter().find(|run| run.id == row) else {
        return Err(IncidentError::Unknown(
            Problem::error(format!("incident {id} has no run `{row}`")).near(row, names),
        ));
    };
    let repetitions = scenario.sequences.min(run.most_sequences).max(run.least_sequences).max(1);
    let assumed = scenario.assumptions.iter().map(|of| of.what.clone()).collect();
    Ok(RunnableRow { command: run.command.clone(), plan: run.plan.clone(), repetitions, assumed })
}

/// The rows that an explanation of the incident compares: the old one (or the one without the cause), and the broken
/// one.
///
/// # Errors
/// If the incident is unknown.
pub fn explained_rows(id: &str) -> Result<[String; 2], IncidentError> {
    let entry = entry(id)?;
    let scenario = scenario::parse(entry.id, modelled(entry)?)?;
    let part = |names: &[&str]| names.iter().find_map(|name| scenario.why.get(*name)).cloned();
    match (part(&["before", "clean", "fixed"]), part(&["broken"])) {
        (Some(before), Some(broken)) => Ok([before, broken]),
        _ => Err(IncidentError::NotModelled(id.to_owned())),
    }
}

fn entry(id: &str) -> Result<&'static Entry, IncidentError> {
    INCIDENTS.iter().find(|entry| entry.id == id).ok_or_else(|| {
        let names = INCIDENTS.iter().map(|entry| entry.id);
        IncidentError::Unknown(
            Problem::error(format!("unknown incident `{id}`")).near(id, names).help("`iowhy incident list` lists them"),
        )
    })
}

/// Why an incident could not be run.
#[derive(Debug, thiserror::Error)]
pub enum IncidentError {
    /// A file that comes with the program is damaged.
    #[error("the data of incident {id} do not parse: {message}")]
    Data {
        /// Which incident.
        id: String,
        /// The parser's message.
        message: String,
    },
    /// The incident is unknown.
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
        /// The simulator's error.
        error: RunError,
    },
}

/// How to run an incident.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct How {
    /// Repetitions of each run; none for the scenario's number.
    pub sequences: Option<u32>,
    /// Worker threads; they change nothing but the time it takes.
    pub threads: usize,
    /// A constant that has another value, and by how many percent.
    pub moved: Option<(Constant, i32)>,
}

/// A number of a model that no publication gives: of the disk, of the machine, or the cost of direct I/O.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Constant {
    /// `disk`, `machine` or `direct`.
    pub kind: &'static str,
    /// Its tunable.
    pub name: &'static str,
}

/// Where a stack has the tunables of a kind.
type OptionsOf = fn(&mut Stack) -> &mut Options;

impl Constant {
    const KINDS: [(&'static str, OptionsOf); 3] = [
        (kernel::DISK, |stack| &mut stack.device.options),
        ("machine", |stack| &mut stack.machine.options),
        ("direct", |stack| &mut stack.direct.options),
    ];

    /// Moves it, by one at least, within what is accepted, if the models of the stack have it.
    fn shift(self, stack: &mut Stack, percent: i32) {
        let Some((_, options)) = Constant::KINDS.iter().find(|(kind, _)| *kind == self.kind) else { return };
        let options = options(stack);
        let Some(spec) = options.specs().iter().find(|spec| spec.name == self.name) else { return };
        let value = options.get(self.name);
        let by = (value * i64::from(percent)) as f64 / 100.0;
        let by = if by.abs() < 1.0 { by.signum() as i64 } else { by.round() as i64 };
        options.set(self.name, (value + by).clamp(spec.min, spec.max));
    }
}

/// The constants that the runs of an incident stand on: numbers other than 0.
///
/// # Errors
/// If the incident is unknown or not modelled.
pub fn constants(id: &str) -> Result<Vec<Constant>, IncidentError> {
    let entry = entry(id)?;
    let (_, _, planned) = planned(entry, modelled(entry)?)?;
    let mut found = BTreeSet::new();
    for mut run in planned.runs {
        for (kind, options) in Constant::KINDS {
            let options = options(&mut run.plan.stack);
            let numbers = options.specs().iter().filter(|spec| spec.choices.is_empty() && options.get(spec.name) != 0);
            found.extend(numbers.map(|spec| Constant { kind, name: spec.name }));
        }
    }
    Ok(found.into_iter().collect())
}

impl Default for How {
    fn default() -> How {
        How { sequences: None, moved: None, threads: std::thread::available_parallelism().map_or(1, usize::from) }
    }
}

/// One repetition of a run.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Seconds it took.
    pub elapsed_s: f64,
    /// Everything that the simulator reports.
    pub outcome: Outcome,
}

impl Sample {
    /// Statistics of every layer.
    pub fn layers(&self) -> &Layers {
        &self.outcome.layers
    }
}

/// A run with its repetitions.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Its name.
    pub id: String,
    /// The kernel as the incident calls it.
    pub variant: String,
    /// The scheduler as the incident calls it; none where the kernel had no choice.
    pub scheduler: Option<String>,
    /// Which report of the incident it belongs to.
    pub report: String,
    /// Runs that belong together.
    pub group: String,
    /// Words after `iowhy` that repeat the first sequence.
    pub command: String,
    /// Why it is made.
    pub note: Option<String>,
    pub metric: &'static Metric,
    /// Repetitions it needs at least.
    pub least_sequences: u32,
    /// Repetitions that are enough for it.
    pub most_sequences: u32,
    pub plan: Plan,
    /// One for each repetition.
    pub samples: Vec<Sample>,
}

impl RunResult {
    /// A figure of each repetition.
    pub fn values(&self, metric: &Metric) -> Vec<f64> {
        self.samples.iter().map(|sample| (metric.of)(&sample.outcome)).collect()
    }

    /// Whether its command has this word.
    pub fn has_word(&self, word: &str) -> bool {
        self.command.split_whitespace().any(|own| own == word)
    }
}

/// Where the values of a row come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The mean over runs, by their numbers.
    Runs(Vec<usize>),
    /// The mean over runs, by their numbers, as a monitor sees them: each counts by its time and its weight.
    Sampled(Vec<(usize, u32)>),
    /// The change of one row against another.
    Change {
        /// The row that changed.
        of: String,
        /// The row it is compared with.
        to: String,
    },
}

/// A row: a figure that was published or that a claim needs.
#[derive(Clone, Debug)]
pub struct RowResult {
    /// Its name.
    pub id: String,
    /// The kernel as published.
    pub variant: String,
    /// The scheduler as published; none where the kernel had no choice.
    pub scheduler: Option<String>,
    /// Which report or table of the incident it belongs to.
    pub report: String,
    /// Rows that belong together.
    pub group: String,
    /// calibration, prediction, context; `extra` for unpublished rows.
    pub role: String,
    pub published: Option<Figure>,
    /// Why an extra row is made.
    pub note: Option<String>,
    pub metric: &'static Metric,
    /// Which statistic of the repetitions it is.
    pub statistic: Statistic,
    /// Where its values come from.
    pub source: Source,
    pub runs: Vec<Arc<RunResult>>,
    /// One value for each repetition.
    pub values: Vec<f64>,
}

impl RowResult {
    /// The simulated figure, 0 of nothing.
    pub fn simulated(&self) -> f64 {
        iowhy_stats::figure::finite(self.statistic.of(&self.values, self.metric.better))
    }

    /// Smallest and largest of the repetitions.
    pub fn spread(&self) -> (f64, f64) {
        extremes(self.values.iter().copied())
    }

    /// Ratios to another row, repetition by repetition.
    pub fn ratios(&self, to: &RowResult) -> Vec<f64> {
        self.values.iter().zip(&to.values).map(|(a, b)| if *b > 0.0 { a / b } else { 0.0 }).collect()
    }

    /// The run of the row, the first if there are several.
    pub fn run(&self) -> Option<&RunResult> {
        self.runs.first().map(Arc::as_ref)
    }

    /// All repetitions of all its runs.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.runs.iter().flat_map(|run| &run.samples)
    }

    /// A sum over all repetitions.
    pub fn sum(&self, of: impl Fn(&Layers) -> u64) -> u64 {
        self.samples().map(|sample| of(sample.layers())).sum()
    }
}

/// One row against another.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Ratio {
    /// The ratio, averaged by the scenario's rule.
    pub value: f64,
    /// Smallest and largest of the repetitions' ratios.
    pub spread: (f64, f64),
}

/// Mean of values with weights, 0 of nothing.
fn weighted_mean(values: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (sum, weights) =
        values.fold((0.0, 0.0), |(sum, weights), (value, weight)| (sum + value * weight, weights + weight));
    if weights > 0.0 { sum / weights } else { 0.0 }
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
    pub incident: Incident,
    /// The assumptions.
    pub scenario: Scenario,
    /// Repetitions of each run.
    pub sequences: u32,
    /// Every run in order.
    pub runs: Vec<Arc<RunResult>>,
    /// Published rows and cells, in their order.
    pub rows: Vec<RowResult>,
    /// Unpublished rows.
    pub extra: Vec<RowResult>,
    /// Published rows that are only shown.
    pub context: Vec<Row>,
    /// Claims, in their order.
    pub claims: Vec<ClaimResult>,
    /// The cause, from this run's own layers.
    pub why: String,
}

impl IncidentResult {
    /// Claims that can fail by themselves.
    pub fn counted(&self) -> impl Iterator<Item = &ClaimResult> {
        self.claims.iter().filter(|claim| claim.follows.is_none())
    }

    /// Those among them that hold.
    pub fn claims_held(&self) -> usize {
        self.counted().filter(|claim| claim.held).count()
    }

    /// Whether every claim that is required holds.
    pub fn all_required_held(&self) -> bool {
        self.claims.iter().all(|claim| claim.held || !claim.required)
    }

    /// The row called `id`, extra runs included.
    pub fn row(&self, id: &str) -> Option<&RowResult> {
        self.rows.iter().chain(&self.extra).find(|row| row.id == id)
    }

    /// The row that plays this part in the explanation.
    pub fn part(&self, part: &str) -> Option<&RowResult> {
        self.row(self.scenario.why.get(part)?)
    }

    /// The rows that play these parts; nothing if one is missing.
    pub fn parts<const N: usize>(&self, parts: [&str; N]) -> Option<[&RowResult; N]> {
        parts.into_iter().map(|part| self.part(part)).collect::<Option<Vec<_>>>()?.try_into().ok()
    }

    /// One row against another, averaged by the scenario's rule.
    pub fn ratio(&self, of: &RowResult, to: &RowResult) -> Ratio {
        let ratios = of.ratios(to);
        let spread = extremes(ratios.iter().copied());
        let paired = of.values.len() == to.values.len();
        let value = match self.scenario.average {
            Average::MeanOfRatios if paired => mean(ratios.into_iter()),
            _ if to.simulated() > 0.0 => of.simulated() / to.simulated(),
            _ => 0.0,
        };
        Ratio { value, spread }
    }

    /// Whether a cell of a published table shows this run.
    pub fn is_in_a_table(&self, row: &RowResult) -> bool {
        let Source::Runs(own) = &row.source else { return false };
        let cells = self.rows.iter().filter(|cell| self.incident.tables.iter().any(|table| table.id() == cell.report));
        cells
            .filter_map(|cell| if let Source::Runs(runs) = &cell.source { Some(runs) } else { None })
            .any(|runs| own.iter().all(|run| runs.contains(run)))
    }

    /// Hash over the event hashes of all runs in order.
    pub fn event_hash(&self) -> u64 {
        combine(self.runs.iter().flat_map(|run| run.samples.iter().map(|sample| sample.outcome.event_hash)))
    }
}

/// One hash of many: order counts.
pub fn combine(hashes: impl Iterator<Item = u64>) -> u64 {
    hashes.fold(0x9e37_79b9_7f4a_7c15, |state: u64, hash| {
        let mixed = (state ^ hash).wrapping_mul(0x2436_a885_a308_d313);
        mixed.rotate_left(29) ^ (mixed >> 31)
    })
}

/// Runs an incident. `progress` gets the number of runs done, and of all.
///
/// # Errors
/// If the incident is unknown or not modelled, or a run fails.
pub fn run(id: &str, how: How, progress: &(dyn Fn(usize, usize) + Sync)) -> Result<IncidentResult, IncidentError> {
    let entry = entry(id)?;
    run_entry(entry, modelled(entry)?, how, progress)
}

fn modelled(entry: &Entry) -> Result<&'static str, IncidentError> {
    entry.scenario.ok_or_else(|| IncidentError::NotModelled(entry.id.to_owned()))
}

fn planned(entry: &Entry, scenario: &str) -> Result<(Incident, Scenario, Planned), IncidentError> {
    let incident = file::parse(entry.id, entry.file)?;
    let scenario = scenario::parse(entry.id, scenario)?;
    let planned = scenario.plan(&incident)?;
    Ok((incident, scenario, planned))
}

fn run_entry(
    entry: &Entry,
    scenario: &str,
    how: How,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<IncidentResult, IncidentError> {
    let (incident, scenario, mut planned) = planned(entry, scenario)?;
    if let Some((constant, percent)) = how.moved {
        planned.runs.iter_mut().for_each(|run| constant.shift(&mut run.plan.stack, percent));
    }
    let sequences = how.sequences.unwrap_or(scenario.sequences).max(1);
    run_all(&mut planned.runs, sequences, how.threads, progress)?;
    let runs: Vec<Arc<RunResult>> = planned.runs.into_iter().map(Arc::new).collect();
    let mut result = IncidentResult {
        incident,
        scenario,
        sequences,
        runs,
        rows: planned.rows,
        extra: planned.extra,
        context: planned.context,
        claims: Vec::new(),
        why: String::new(),
    };
    result.take_values();
    result.claims = claims::check(&result, entry.checks);
    result.why = entry.why.map_or_else(String::new, |why| why(&result));
    Ok(result)
}

impl IncidentResult {
    /// Gives every row its runs and values: first those of runs, then those that are made of other rows.
    fn take_values(&mut self) {
        for row in self.rows.iter_mut().chain(&mut self.extra) {
            let numbers: Vec<(usize, Option<u32>)> = match &row.source {
                Source::Runs(numbers) => numbers.iter().map(|nr| (*nr, None)).collect(),
                Source::Sampled(numbers) => numbers.iter().map(|(nr, times)| (*nr, Some(*times))).collect(),
                Source::Change { .. } => continue,
            };
            row.runs = numbers.iter().filter_map(|(nr, _)| self.runs.get(*nr).cloned()).collect();
            let values: Vec<Vec<f64>> = row.runs.iter().map(|run| run.values(row.metric)).collect();
            // A run may have more repetitions than the others.
            let nr_values = values.iter().map(Vec::len).max().unwrap_or(0);
            let weight = |run: &RunResult, nr: usize, times: Option<u32>| match (times, run.samples.get(nr)) {
                (Some(times), Some(sample)) => f64::from(times) * sample.elapsed_s,
                _ => 1.0,
            };
            row.values = (0..nr_values)
                .map(|nr| {
                    let runs = values.iter().zip(&row.runs).zip(&numbers);
                    weighted_mean(runs.filter_map(|((values, run), (_, times))| {
                        values.get(nr).map(|value| (*value, weight(run, nr, *times)))
                    }))
                })
                .collect();
        }
        let change = |row: &RowResult| -> Option<Vec<f64>> {
            let Source::Change { of, to } = &row.source else { return None };
            let (of, to) = (self.row(of)?, self.row(to)?);
            let ratios = match self.scenario.average {
                Average::MeanOfRatios => of.ratios(to),
                Average::RatioOfMeans => vec![self.ratio(of, to).value],
            };
            Some(ratios.into_iter().map(|ratio| 100.0 * (ratio - 1.0)).collect())
        };
        let changes: Vec<Option<Vec<f64>>> = self.rows.iter().chain(&self.extra).map(change).collect();
        for (row, values) in self.rows.iter_mut().chain(&mut self.extra).zip(changes) {
            if let Some(values) = values {
                row.values = values;
            }
        }
    }
}

fn run_all(
    runs: &mut [RunResult],
    sequences: u32,
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<(), IncidentError> {
    let repetitions = |run: usize| sequences.min(runs[run].most_sequences).max(runs[run].least_sequences).max(1);
    let steps: Vec<(usize, u32)> =
        (0..runs.len()).flat_map(|run| (0..repetitions(run)).map(move |sequence| (run, sequence))).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let known: &[RunResult] = runs;
    let work = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((run, sequence)) = steps.get(index).copied() else { return results };
            results.push((index, sim::run(&command::repetition(&known[run].plan, sequence))));
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, steps.len());
        }
    };
    progress(0, steps.len());
    let mut results: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.clamp(1, steps.len().max(1))).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| match worker.join() {
                Ok(results) => results,
                // A broken invariant of a model: it goes on to the caller.
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    });
    // Whichever was faster, results are taken in the order of the runs.
    results.sort_by_key(|(index, _)| *index);
    for (index, outcome) in results {
        let (run, sequence) = steps[index];
        let outcome = outcome.map_err(|error| IncidentError::Run { row: runs[run].id.clone(), sequence, error })?;
        runs[run].samples.push(Sample { elapsed_s: outcome.elapsed.as_secs_f64(), outcome });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_comes_with_the_program_parses() -> Result<(), IncidentError> {
        for known in list()? {
            assert_eq!(known.id, known.incident.id);
            assert!(!known.incident.claims.is_empty(), "{}", known.id);
        }
        Ok(())
    }

    #[test]
    fn every_row_of_a_modelled_incident_becomes_a_plan() -> Result<(), IncidentError> {
        for entry in INCIDENTS {
            let Some(scenario) = entry.scenario else { continue };
            let incident = file::parse(entry.id, entry.file)?;
            let planned = scenario::parse(entry.id, scenario)?.plan(&incident)?;
            let cells = |row: &&RowResult| incident.rows.iter().all(|published| published.id != row.id);
            let nr_cells = planned.rows.iter().filter(cells).count();
            assert_eq!(planned.rows.len() + planned.context.len(), incident.rows.len() + nr_cells, "{}", entry.id);
            assert!(!planned.runs.is_empty(), "{}", entry.id);
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
    fn a_monitor_sees_runs_by_their_time() {
        let values = [(1.0, 30.0), (5.0, 10.0)];
        assert!((weighted_mean(values.into_iter()) - 2.0).abs() < 1e-12);
        assert!(weighted_mean([].into_iter()).abs() < 1e-12);
    }

    #[test]
    fn an_unknown_name_gets_the_nearest() {
        let how = How { sequences: Some(1), moved: None, threads: 1 };
        match run("2004-random-read", how, &|_, _| {}) {
            Err(IncidentError::Unknown(problem)) => assert_eq!(problem.nearest[0], "2004-random-read-split"),
            other => panic!("{other:?}"),
        }
    }
}
