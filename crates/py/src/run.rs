//! Jobs: `iowhy.run`.

use std::path::Path;
use std::sync::Arc;

use iowhy_fio::World;
use iowhy_lab::run::simulator::Simulator;
use iowhy_lab::run::{self as lab, Executed, Finished, Request, RunRequest, own_report, report};
use iowhy_lab::store::{EVENT_COLUMNS, Item, Store, Type, event_row};
use iowhy_stack::event::{Event, EventSink};
use iowhy_stack::sim;
use iowhy_stats::figure;
use iowhy_stats::metric::Group;
use iowhy_text::diagnose::{Problem, Problems};
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;

use crate::error;
use crate::policy::Makers;
use crate::shown::{page, plain, value};
use crate::table::{Draft, Of, Table};
use crate::work;

/// The name of a job that is given as the text of its file.
const TEXT: &str = "job.fio";

/// A job as it was given: words, and the text of the file that they name.
pub(crate) struct Job {
    pub(crate) words: Vec<String>,
    text: Option<String>,
}

impl Job {
    /// Words for verbs that read job files themselves.
    pub(crate) fn named(self) -> Result<Vec<String>, Problem> {
        match self.text {
            None => Ok(self.words),
            Some(_) => Err(Problem::error("this takes the path of a job file or a line of words, and not its text")
                .help("write the text to a file; iowhy.run and iowhy.sweep take it")),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Job {
    type Error = PyErr;

    /// A path, the text of a job file, a line of words, or a list of words.
    fn extract(job: Borrowed<'_, 'py, PyAny>) -> PyResult<Job> {
        if let Ok(words) = job.extract::<Vec<String>>() {
            return Ok(Job { words, text: None });
        }
        let py = job.py();
        let path = py.import("os")?.call_method1("fspath", (&job,)).and_then(|path| path.extract::<String>());
        let word = path.map_err(|_| PyTypeError::new_err("a job is a path, the text of a job file, or words"))?;
        if word.contains('\n') {
            return Ok(Job { words: vec![TEXT.to_owned()], text: Some(word) });
        }
        if Path::new(&word).exists() || !word.contains(char::is_whitespace) {
            return Ok(Job { words: vec![word], text: None });
        }
        let words = py.import("shlex")?.call_method1("split", (word,))?.extract()?;
        Ok(Job { words, text: None })
    }
}

/// One word or several.
#[derive(FromPyObject)]
pub(crate) enum Words {
    One(String),
    Several(Vec<String>),
}

impl Words {
    pub(crate) fn list(self) -> Vec<String> {
        match self {
            Words::One(word) => vec![word],
            Words::Several(words) => words,
        }
    }
}

/// The request of a job and options of `iowhy run`.
pub(crate) fn resolve(job: &Job, options: Vec<String>) -> Result<(RunRequest, Problems), Problems> {
    let mut problems = Problems::default();
    let load = |name: &str| match &job.text {
        Some(text) if name == TEXT => Ok(text.clone()),
        _ => lab::load(name),
    };
    let world = World { load: &load, variable: &|name| std::env::var(name).ok(), ..World::empty() };
    let words: Vec<String> = job.words.iter().cloned().chain(options).collect();
    match lab::resolve(&words, &world, &mut problems) {
        Some(Request::Run(request)) if !problems.any_error() => Ok((*request, problems)),
        Some(Request::Help(text)) => Err(error::because(text)),
        _ => Err(problems),
    }
}

/// Runs of a job.
#[pyclass(module = "iowhy", frozen)]
pub(crate) struct Runs {
    request: Arc<RunRequest>,
    executed: Executed,
    problems: Problems,
    makers: Makers,
}

/// Runs a job at places; see `iowhy run --help`.
#[pyfunction]
#[pyo3(signature = (job, on, disk=None, *, repeat=None, seed=None, label=None, store=None, trace=false,
    options=Vec::new(), readahead=None, elevator=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "they have names in Python")]
pub(crate) fn run(
    py: Python<'_>,
    job: Job,
    on: Words,
    disk: Option<Words>,
    repeat: Option<u32>,
    seed: Option<u64>,
    label: Option<Words>,
    store: Option<std::path::PathBuf>,
    trace: bool,
    options: Vec<String>,
    readahead: Option<Py<PyAny>>,
    elevator: Option<Py<PyAny>>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Runs> {
    let mut words = options;
    let mut add = |name: &str, values: Vec<String>| words.extend(values.into_iter().map(|of| format!("--{name}={of}")));
    add("on", on.list());
    add("disk", disk.map_or_else(Vec::new, Words::list));
    add("label", label.map_or_else(Vec::new, Words::list));
    add("runs", repeat.iter().map(ToString::to_string).collect());
    add("seed", seed.iter().map(ToString::to_string).collect());
    add("store", store.iter().map(|path| path.display().to_string()).collect());
    if trace {
        words.push("--trace".to_owned());
    }
    let (mut request, problems) = resolve(&job, words).map_err(|problems| error::of(py, problems))?;
    let makers = Makers { readahead, elevator };
    makers.mixed_in(&mut request).map_err(|problem| error::of(py, error::one(problem)))?;
    let request = Arc::new(request);
    let copied = makers.copied(py);
    let real = request.variants.iter().any(|variant| variant.backend.is_real());
    let asked = Arc::clone(&request);
    let executed = work::aside(py, progress.as_ref(), real, move |steps| {
        let store = match &asked.keep {
            Some(keep) => match Store::open(&keep.directory) {
                Err(error) if keep.asked => return Err(error::because(error)),
                opened => opened.ok(),
            },
            None => None,
        };
        let advance = |done, of| steps.advance(done as u64, of as u64);
        Ok(copied.with(|| lab::execute_into(&asked, store.as_ref(), &advance)))
    })??;
    if executed.interrupted {
        return Err(work::interrupted());
    }
    let refused = executed.refused.iter().map(|(label, refusal)| Problem::error(format!("{label}: {refusal}")));
    let lost = executed.unrecorded.iter().map(|error| Problem::error(format!("a run could not be kept: {error}")));
    let failures: Vec<Problem> = refused.chain(lost).collect();
    if !failures.is_empty() {
        return Err(error::of(py, Problems { list: failures }));
    }
    Ok(Runs { request, executed, problems, makers })
}

impl Runs {
    /// The samples of a place, of its number.
    pub(crate) fn group(&self, place: usize) -> Group {
        own_report::group(&self.request, &self.executed.runs, place)
    }

    pub(crate) fn places(&self) -> usize {
        self.request.variants.len()
    }

    fn made(&self, nr: usize) -> PyResult<&Finished> {
        self.executed.runs.get(nr).ok_or_else(|| PyIndexError::new_err(format!("run {nr} does not exist")))
    }
}

#[pymethods]
impl Runs {
    /// The object of `iowhy run --json`.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        value(py, &report::json(&self.request, &self.executed.runs, &self.problems))
    }

    /// The text that `iowhy run` prints.
    #[getter]
    fn text(&self) -> String {
        report::text(&self.request, &self.executed.runs, plain)
    }

    #[getter]
    fn labels(&self) -> Vec<String> {
        self.request.variants.iter().map(|variant| variant.label.clone()).collect()
    }

    #[getter]
    fn warnings(&self, py: Python<'_>) -> PyResult<Vec<Py<error::Mistake>>> {
        error::list(py, self.problems.clone())
    }

    /// The hash of each run's events: equal runs have equal ones, on every machine. `None` of real runs.
    #[getter]
    fn event_hashes(&self) -> Vec<Option<String>> {
        let hash = |run: &Finished| run.record.events.map(|(hash, _)| figure::hash(hash));
        self.executed.runs.iter().map(hash).collect()
    }

    /// Metrics of a run.
    #[pyo3(signature = (run=0))]
    fn metrics(&self, run: usize) -> PyResult<std::collections::HashMap<String, f64>> {
        Ok(self.made(run)?.record.metrics.iter().cloned().collect())
    }

    /// A row for each run: its place, seed and hash, and a column for each metric.
    #[getter]
    fn rows(&self) -> PyResult<Table> {
        let runs = &self.executed.runs;
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in runs.iter().flat_map(|run| &run.record.metrics) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let fixed = [("label", Of::Word), ("on", Of::Word), ("disk", Of::Word), ("seed", Of::Large)];
        let after = [("warm_up", Of::Small), ("event_hash", Of::Word), ("events", Of::Large)];
        let mut draft = Draft::new(fixed.into_iter().chain(after).chain(names.iter().map(|name| (*name, Of::Float))));
        for run in runs {
            let variant = &self.request.variants[run.slot.variant];
            let (metrics, events) = (&run.record.metrics, run.record.events);
            let (front, values) = draft.columns.split_at_mut(fixed.len() + after.len());
            let hash = events.map(|(hash, _)| figure::hash(hash));
            let words = [Some(variant.label.as_str()), Some(&run.record.place), run.record.disk.as_deref()];
            words.into_iter().zip(&mut *front).for_each(|(word, column)| column.word(word));
            front[3].number(Some(run.slot.seed as i64));
            front[4].number(Some(i64::from(run.slot.warm_up)));
            front[5].word(hash.as_deref());
            front[6].number(events.map(|(_, nr)| nr as i64));
            for (name, column) in names.iter().zip(values) {
                column.float(metrics.iter().find(|(known, _)| known == name).map(|(_, value)| *value));
            }
            draft.next();
        }
        draft.finish().map_err(pyo3::exceptions::PyValueError::new_err)
    }

    /// Everything that happened in a simulated run, made once more: a row for each event.
    #[pyo3(signature = (run=0))]
    fn events(&self, py: Python<'_>, run: usize) -> PyResult<Table> {
        let slot = self.made(run)?.slot;
        let variant = &self.request.variants[slot.variant];
        let Some(simulator) = variant.backend::<Simulator>() else {
            let text = format!("{}: events are those of simulated runs", variant.label);
            return Err(error::of(py, error::one(Problem::error(text).help("iowhy.Trace of a recording"))));
        };
        let plan = variant.shape.seeded(&simulator.plan, slot.seed);
        let makers = self.makers.copied(py);
        work::aside(py, None, false, move |_| {
            let mut rows = Rows::default();
            let made = makers.with(|| sim::run_with(&plan, &mut rows).map_err(error::because));
            Ok(made.map(|made| made.and_then(|_| rows.0.finish().map_err(error::because))))
        })?
        .and_then(|table| table.map_err(|problems| error::of(py, problems)))
    }

    fn __len__(&self) -> usize {
        self.executed.runs.len()
    }

    fn __str__(&self) -> String {
        self.text()
    }

    fn __repr__(&self) -> String {
        format!("<iowhy.Runs: {} of {} at {}>", self.__len__(), self.request.job.join(" "), self.labels().join(", "))
    }

    fn _repr_html_(&self) -> String {
        page(&format!("{} runs of {}", self.__len__(), self.request.job.join(" ")), "", &self.text())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, pyo3::types::PyCapsule>> {
        self.rows()?.__arrow_c_stream__(py, requested_schema)
    }
}

/// Events as rows.
struct Rows(Draft);

/// Columns of events with more than 32 bits.
const LARGE: [&str; 4] = ["t_ns", "page", "sector", "offset"];

impl Default for Rows {
    fn default() -> Rows {
        let of = |(name, of): &(&'static str, Type)| {
            let large = LARGE.contains(name);
            let of = if *of == Type::MaybeWord {
                Of::Word
            } else if large {
                Of::Large
            } else {
                Of::Small
            };
            (*name, of)
        };
        Rows(Draft::new(EVENT_COLUMNS.iter().map(of)))
    }
}

impl EventSink for Rows {
    fn event(&mut self, event: &Event) {
        for (item, column) in event_row(event).into_iter().zip(&mut self.0.columns) {
            match item {
                Item::None => column.number(None),
                Item::Number(number) => column.number(Some(number)),
                Item::Word(word) => column.word(Some(word)),
            }
        }
        self.0.next();
    }
}
