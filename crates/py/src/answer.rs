//! Answers: comparisons, explanations of two sides and of one, searches for a change, incidents.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use iowhy_compare::text::Style;
use iowhy_compare::{self as compare_crate, Settings, Verdict, samples};
use iowhy_lab::bisect::policy::{self, Answer as Found};
use iowhy_lab::explain::of_sides;
use iowhy_lab::explain::source::{self, ExplainRequest};
use iowhy_lab::incident::command::plan_of_command;
use iowhy_lab::incident::{self as published, How, IncidentError, metric, report as incident_report};
use iowhy_lab::report::{first_screen, text as explained};
use iowhy_lab::why::{self as alone, Probe};
use iowhy_stats::metric::{Column, Group, Metric};
use iowhy_text::diagnose::{Problem, Problems};
use pyo3::prelude::*;
use serde_json::Value;

use crate::error::{self, because, one};
use crate::kept::Trace;
use crate::run::{Job, Runs};
use crate::shown::{page, plain, store_at, value};
use crate::work;

/// The answer of a verb: the words it prints, its JSON, and the verdict in a word.
#[pyclass(module = "iowhy", frozen)]
pub(crate) struct Answer {
    title: String,
    #[pyo3(get)]
    verdict: String,
    #[pyo3(get)]
    text: String,
    data: Value,
    warnings: Mutex<Problems>,
}

impl Answer {
    fn new(title: impl Into<String>, verdict: impl Into<String>, text: String, data: Value) -> Answer {
        let warnings = Mutex::default();
        Answer { title: title.into(), verdict: verdict.into(), text, data, warnings }
    }

    fn warned(self, problems: Problems) -> Answer {
        Answer { warnings: Mutex::new(problems), ..self }
    }
}

#[pymethods]
impl Answer {
    /// The object of the verb's `--json`.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        value(py, &self.data)
    }

    #[getter]
    fn warnings(&self, py: Python<'_>) -> PyResult<Vec<Py<error::Mistake>>> {
        let warnings = self.warnings.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        error::list(py, warnings.clone())
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyAny>> {
        self.data(py)?.get_item(key)
    }

    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("<iowhy.Answer: {}: {}>", self.title, self.verdict)
    }

    fn _repr_html_(&self) -> String {
        page(&self.title, &self.verdict, &self.text)
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Same => "same",
        Verdict::Improvement => "improvement",
        Verdict::Regression => "regression",
        Verdict::Inconclusive => "inconclusive",
    }
}

/// A side of a comparison.
#[derive(FromPyObject)]
pub(crate) enum Side<'py> {
    Runs(PyRef<'py, Runs>),
    Name(String),
    Path(PathBuf),
    Numbers(Vec<f64>),
}

impl Side<'_> {
    fn group(&self, nr: usize, metric: &str, folder: Option<&Path>, problems: &mut Problems) -> Option<Group> {
        let file = |name: String, problems: &mut Problems| match iowhy_lab::run::load(&name) {
            Ok(text) => samples::read(&name, &text, None, problems),
            Err(error) => {
                problems.push(Problem::error(format!("`{name}` cannot be read: {error}")));
                None
            }
        };
        match self {
            Side::Runs(runs) if runs.places() == 1 => Some(runs.group(0)),
            Side::Runs(runs) => {
                let text = format!("these runs are of {} places, and a side is of one", runs.places());
                problems.push(Problem::error(text).help("iowhy.compare(RUNS) compares two places of one call"));
                None
            }
            Side::Path(path) => file(path.display().to_string(), problems),
            Side::Name(name) if Path::new(name).is_file() => file(name.clone(), problems),
            Side::Name(name) => match store_at(folder).and_then(|store| store.group(name)) {
                Ok(group) => Some(group),
                Err(error) => {
                    problems.push(Problem::error(error.to_string()));
                    None
                }
            },
            Side::Numbers(values) => {
                let kept: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
                let left_out = values.len() - kept.len();
                let column = Column { metric: Metric::of(metric), values: kept, runs: Vec::new(), left_out };
                let label = ["base", "candidate"][nr.min(1)].to_owned();
                Some(Group { label, runs: Vec::new(), columns: vec![column] })
            }
        }
    }
}

/// Compares two sides: runs, names in the store, files of samples, or numbers.
#[pyfunction]
#[pyo3(signature = (a, b=None, *, metrics=Vec::new(), alpha=0.01, margin_pct=1.0, store=None, draws=9_999, seed=1))]
#[expect(clippy::too_many_arguments, reason = "they have names in Python")]
pub(crate) fn compare(
    py: Python<'_>,
    a: Side<'_>,
    b: Option<Side<'_>>,
    metrics: Vec<String>,
    alpha: f64,
    margin_pct: f64,
    store: Option<PathBuf>,
    draws: u32,
    seed: u64,
) -> PyResult<Answer> {
    let mut problems = Problems::default();
    let metric = metrics.first().map_or("value", String::as_str).to_owned();
    let groups: Vec<Group> = match (&a, &b) {
        (Side::Runs(runs), None) if runs.places() == 2 => vec![runs.group(0), runs.group(1)],
        (_, None) => {
            problems.push(Problem::error("a comparison has a base and a candidate").help("iowhy.compare(A, B)"));
            Vec::new()
        }
        (_, Some(b)) => [&a, b]
            .iter()
            .enumerate()
            .filter_map(|(nr, side)| side.group(nr, &metric, store.as_deref(), &mut problems))
            .collect(),
    };
    if !(1e-6..=0.5).contains(&alpha) {
        problems.push(Problem::error("alpha is a number from 0.000001 to 0.5, for example 0.01"));
    }
    for metric in &metrics {
        let known = || groups.iter().flat_map(|group| group.columns.iter().map(|column| &column.metric.name));
        if groups.len() == 2 && known().all(|name| name != metric) {
            problems.push(Problem::error(format!("neither side has a metric `{metric}`")).near(metric, known()));
        }
    }
    if problems.any_error() {
        return Err(error::of(py, problems));
    }
    let settings = Settings { alpha, margin_pct, metrics, draws, seed, ..Settings::default() };
    work::aside(py, None, false, move |_| {
        let [a, b] = groups.as_slice() else { return Err(problems) };
        let comparison = compare_crate::compare(a, b, &settings);
        let text = compare_crate::text::text(&comparison, None, Style { colour: false, verbose: false });
        let title = format!("{} against {}", b.label, a.label);
        let data = compare_crate::json::compare(&comparison);
        Ok(Answer::new(title, word(comparison.verdict), text, data).warned(problems))
    })
}

/// Explains why `b` is slower than `a`: names in the store, files with traces, rows of incidents, or places with a job.
#[pyfunction]
#[pyo3(signature = (a, b=None, *, job=None, disk=None, runs=None, prove=false, store=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "they have names in Python")]
pub(crate) fn explain(
    py: Python<'_>,
    a: PathBuf,
    b: Option<PathBuf>,
    job: Option<Job>,
    disk: Option<String>,
    runs: Option<u32>,
    prove: bool,
    store: Option<PathBuf>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Answer> {
    let names: Vec<String> = [Some(a), b].into_iter().flatten().map(|name| name.display().to_string()).collect();
    let job = job.map_or(Ok(Vec::new()), Job::named).map_err(|problem| error::of(py, one(problem)))?;
    // Experiments with recordings use the running kernel.
    work::aside(py, progress.as_ref(), prove, move |steps| {
        let title = names.join(" and ");
        let asked = ExplainRequest { names, job, disk, runs, report: false, stored: false };
        let open = || store_at(store.as_deref());
        let sides = source::gather(&asked, &open, &|done, of| steps.advance(u64::from(done), u64::from(of)))?;
        let explanation = of_sides(&sides, prove);
        let style = Style { colour: false, verbose: false };
        let text = explained::text(&explanation, &first_screen(&sides, &explanation), None, style);
        let data = iowhy_why::json::explain(&explanation);
        Ok(Answer::new(title, word(explanation.verdict), text, data))
    })
}

/// A recording: a trace that was read, or its file.
#[derive(FromPyObject)]
pub(crate) enum Recording<'py> {
    Trace(PyRef<'py, Trace>),
    File(PathBuf),
}

/// Explains one recording alone: where its time goes, and what would help.
#[pyfunction]
#[pyo3(signature = (recording, *, progress=None))]
pub(crate) fn why(py: Python<'_>, recording: Recording<'_>, progress: Option<Bound<'_, PyAny>>) -> PyResult<Answer> {
    let (name, read) = match recording {
        Recording::Trace(trace) => (trace.name.clone(), Some((*trace.trace).clone())),
        Recording::File(path) => (path.display().to_string(), None),
    };
    work::aside(py, progress.as_ref(), false, move |_| {
        let mut problems = Problems::default();
        let found = read.or_else(|| iowhy_trace::load(Path::new(&name), &mut problems));
        let Some(trace) = found.filter(|_| !problems.any_error()) else { return Err(problems) };
        let answer = alone::of_trace(name.clone(), trace, Probe::Elsewhere);
        let verdict = if answer.is_told() { "explained" } else { "cannot tell" };
        let style = Style { colour: false, verbose: false };
        let text = alone::text::text(&answer, false, style);
        Ok(Answer::new(name, verdict, text, alone::json::why(&answer)).warned(problems))
    })
}

/// Finds the change between two simulated kernels that makes the job slow.
#[pyfunction]
#[pyo3(signature = (good, bad, job, *, disk=None, metric="elapsed_s", error=0.001, runs=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "they have names in Python")]
pub(crate) fn bisect(
    py: Python<'_>,
    good: String,
    bad: String,
    job: Job,
    disk: Option<String>,
    metric: &str,
    error: f64,
    runs: Option<usize>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Answer> {
    let found = metric::find(metric).map_err(|problem| error::of(py, one(problem)))?;
    let job = job.named().map_err(|problem| error::of(py, one(problem)))?;
    let usual = policy::Settings::default();
    let settings = policy::Settings { error, most_runs: runs.unwrap_or(usual.most_runs), ..usual };
    work::aside(py, progress.as_ref(), false, move |steps| {
        let plan = |place: &str| {
            let verb = (!matches!(job.first().map(String::as_str), Some("run" | "sysbench"))).then_some("run");
            let disk = disk.iter().flat_map(|disk| ["--disk".to_owned(), disk.clone()]);
            let mut words: Vec<String> = verb.map(str::to_owned).into_iter().chain(job.iter().cloned()).collect();
            words.extend(["--on".to_owned(), place.to_owned()].into_iter().chain(disk));
            plan_of_command(&words)
        };
        let (slow, fast) = (plan(&bad), plan(&good)?);
        let slow = slow?;
        let done = AtomicU64::new(0);
        let step = || steps.advance(done.fetch_add(1, Ordering::Relaxed) + 1, 0);
        let title = format!("{bad} against {good}");
        let bisection = policy::bisect((&fast, &slow), [good, bad], found, settings, &step).map_err(because)?;
        let verdict = if bisection.answer == Found::Found { "found" } else { "not found" };
        Ok(Answer::new(title, verdict, bisection.text(), bisection.json()))
    })
}

/// Runs a published incident in the simulator and checks its claims.
#[pyfunction]
#[pyo3(signature = (id, *, runs=None, threads=None, progress=None))]
pub(crate) fn incident(
    py: Python<'_>,
    id: String,
    runs: Option<u32>,
    threads: Option<usize>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Answer> {
    work::aside(py, progress.as_ref(), false, move |steps| {
        let usual = How::default();
        let how = How { sequences: runs, threads: threads.unwrap_or(usual.threads), ..usual };
        let made = published::run(&id, how, &|done, of| steps.advance(done as u64, of as u64));
        let result = made.map_err(|error| match error {
            IncidentError::Unknown(problem) => one(problem),
            other => because(other),
        })?;
        let verdict = if result.all_required_held() { "held" } else { "not held" };
        let text = incident_report::text(&result, plain);
        let data = incident_report::json(std::slice::from_ref(&result), &[], &[], 0.0);
        Ok(Answer::new(id, verdict, text, data))
    })
}

/// Names of the incidents that can be run.
#[pyfunction]
pub(crate) fn incidents(py: Python<'_>) -> PyResult<Vec<&'static str>> {
    let known = published::list().map_err(|error| error::of(py, because(error)))?;
    Ok(known.into_iter().filter(|known| known.modelled).map(|known| known.id).collect())
}
