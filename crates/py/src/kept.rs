//! Stores, traces, and the tables of models.

use std::path::PathBuf;
use std::sync::Arc;

use iowhy_lab::models as lab;
use iowhy_lab::store::{self, Filter, StoreError, StoredRun, run_json};
use iowhy_stack::trace as stack;
use iowhy_text::diagnose::Problems;
use iowhy_trace::row::{KINDS, NUMBERS, Row, TEXTS};
use iowhy_trace::stat;
use pyo3::prelude::*;
use serde_json::Value;

use crate::error::{self, because, one};
use crate::shown::{page, store_at, value};
use crate::table::{Draft, Of, Table};
use crate::work;

/// Runs that are kept.
#[pyclass(module = "iowhy", frozen)]
pub(crate) struct Store {
    folder: PathBuf,
}

impl Store {
    /// A connection belongs to a call: threads of Python share this object.
    fn ask<T>(&self, py: Python<'_>, ask: impl FnOnce(&store::Store) -> Result<T, StoreError> + Send) -> PyResult<T>
    where
        T: Send,
    {
        let asked = py.detach(|| store_at(Some(&self.folder)).and_then(|store| ask(&store)).map_err(because));
        asked.map_err(|problems| error::of(py, problems))
    }

    fn find(&self, py: Python<'_>, what: Option<&str>) -> PyResult<Vec<StoredRun>> {
        self.ask(py, |store| match what {
            Some(what) => store.find(what),
            None => store.runs(&Filter::default()),
        })
    }
}

#[pymethods]
impl Store {
    /// The store in a folder; without one that of `IOWHY_STORE`, or of the user. A new folder becomes a store.
    #[new]
    #[pyo3(signature = (path=None))]
    fn new(py: Python<'_>, path: Option<PathBuf>) -> PyResult<Store> {
        let variable = |name: &str| std::env::var(name).ok();
        let opened = store::directory(path.as_deref(), &variable)
            .ok_or(StoreError::NoPlace)
            .and_then(|folder| store::Store::open(&folder).map(|_| folder));
        let folder = opened.map_err(|error| error::of(py, because(error)))?;
        Ok(Store { folder })
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.folder.clone()
    }

    /// Runs with a label, tag or id; all without one: objects of `iowhy store show --json`.
    #[pyo3(signature = (what=None))]
    fn runs<'py>(&self, py: Python<'py>, what: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
        let runs = self.find(py, what)?;
        value(py, &Value::Array(runs.iter().map(run_json).collect()))
    }

    /// Adds a tag to the runs of that name, or removes it; the number of runs that it changed.
    #[pyo3(signature = (what, tag, *, remove=false))]
    fn tag(&self, py: Python<'_>, what: &str, tag: &str, remove: bool) -> PyResult<usize> {
        self.ask(py, |store| store.tag(what, tag, remove))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.find(py, None)?.len())
    }

    fn __repr__(&self) -> String {
        format!("<iowhy.Store: {}>", self.folder.display())
    }

    /// A row for each metric of each run.
    #[pyo3(signature = (what=None))]
    fn rows(&self, py: Python<'_>, what: Option<&str>) -> PyResult<Table> {
        let names = ["run_id", "label", "job", "on", "event_hash", "metric"];
        let columns = names.map(|name| (name, Of::Word)).into_iter().chain([("seed", Of::Large), ("value", Of::Float)]);
        let mut draft = Draft::new(columns);
        for run in self.find(py, what)? {
            let shown = run_json(&run);
            let word = |key: &str| shown.get(key).and_then(Value::as_str);
            for (name, metric) in shown.get("metrics").and_then(Value::as_object).into_iter().flatten() {
                let words = [word("run_id"), word("label"), word("job"), word("where"), word("event_hash"), Some(name)];
                words.into_iter().zip(&mut draft.columns).for_each(|(word, column)| column.word(word));
                draft.columns[6].number(shown.get("seed").and_then(Value::as_i64));
                draft.columns[7].float(metric.as_f64());
                draft.next();
            }
        }
        draft.finish().map_err(|text| error::of(py, because(text)))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, pyo3::types::PyCapsule>> {
        self.rows(py, None)?.__arrow_c_stream__(py, requested_schema)
    }
}

/// A recorded trace, in any known format.
#[pyclass(module = "iowhy", frozen)]
pub(crate) struct Trace {
    #[pyo3(get)]
    pub(crate) name: String,
    pub(crate) trace: Arc<stack::Trace>,
    problems: Problems,
}

#[pymethods]
impl Trace {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Trace> {
        work::aside(py, None, false, move |_| {
            let mut problems = Problems::default();
            let found = iowhy_trace::load(&path, &mut problems).filter(|_| !problems.any_error());
            let Some(trace) = found else { return Err(problems) };
            Ok(Trace { name: path.display().to_string(), trace: Arc::new(trace), problems })
        })
    }

    /// The kernel that it was recorded on; empty if unknown.
    #[getter]
    fn kernel(&self) -> &str {
        &self.trace.kernel
    }

    /// Events that the kernel had no room for.
    #[getter]
    fn lost(&self) -> u64 {
        self.trace.lost
    }

    #[getter]
    fn warnings(&self, py: Python<'_>) -> PyResult<Vec<Py<error::Mistake>>> {
        error::list(py, self.problems.clone())
    }

    /// The object of `iowhy trace stat --json`.
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let trace = Arc::clone(&self.trace);
        let stat = work::aside(py, None, false, move |_| Ok(stat::stat(&trace, &stat::Ask::default()).json()))?;
        value(py, &stat)
    }

    /// A row for each record, with the columns of `iowhy trace convert FILE.parquet`.
    fn rows(&self, py: Python<'_>) -> PyResult<Table> {
        let trace = Arc::clone(&self.trace);
        work::aside(py, None, false, move |_| {
            let first = [("t_ns", Of::Large), ("cpu", Of::Small), ("pid", Of::Small), ("kind", Of::Word)];
            let numbers = NUMBERS.map(|name| (name, Of::Signed));
            let mut draft = Draft::new(first.into_iter().chain(numbers).chain(TEXTS.map(|name| (name, Of::Word))));
            for record in &trace.records {
                let row = Row::of(record);
                let (front, back) = draft.columns.split_at_mut(first.len());
                let times = [row.at as i64, i64::from(row.cpu), i64::from(row.pid)];
                times.into_iter().zip(&mut *front).for_each(|(value, column)| column.number(Some(value)));
                front[3].word(KINDS.get(usize::from(row.kind)).copied());
                let (numbers, texts) = back.split_at_mut(NUMBERS.len());
                row.numbers.iter().zip(numbers).for_each(|(value, column)| column.number(*value));
                row.texts.iter().zip(texts).for_each(|(value, column)| column.word(value.as_deref()));
                draft.next();
            }
            draft.finish().map_err(because)
        })
    }

    fn __len__(&self) -> usize {
        self.trace.records.len()
    }

    fn __repr__(&self) -> String {
        format!("<iowhy.Trace: {}, {} records>", self.name, self.__len__())
    }

    fn _repr_html_(&self) -> String {
        page(&self.name, "", &stat::stat(&self.trace, &stat::Ask::default()).text())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, pyo3::types::PyCapsule>> {
        self.rows(py)?.__arrow_c_stream__(py, requested_schema)
    }
}

/// Models of a kind, or all: objects of `iowhy models --json`.
#[pyfunction]
#[pyo3(signature = (kind=None, name=None))]
pub(crate) fn models<'py>(py: Python<'py>, kind: Option<&str>, name: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
    let found = lab::catalogue(kind).and_then(|models| match name {
        Some(name) => lab::named(models, name),
        None => Ok(models),
    });
    let models = found.map_err(|problem| error::of(py, one(problem)))?;
    value(py, &lab::json(&models))?.get_item("models")
}
