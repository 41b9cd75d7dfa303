//! Sweeps: `iowhy.sweep` sends a plan and the number of a task to any worker, and these functions do the work.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use iowhy_lab::sweep::pool::{self, SweepError};
use iowhy_lab::sweep::{Plan, Row, shard};
use iowhy_stats::figure;
use iowhy_text::diagnose::{Problem, Problems};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};
use serde_json::{Value, json};

use crate::error::{self, because, one};
use crate::shown::{page, value};
use crate::table::{Draft, Of, Table};
use crate::work;

/// Results of a sweep: a row for each point.
#[pyclass(module = "iowhy", frozen)]
pub(crate) struct Swept {
    plan: Arc<Plan>,
    rows: Vec<Row>,
    /// Tasks that were made by this call; the others were there.
    #[pyo3(get)]
    made: usize,
}

/// The plan that a text is; a worker gets the same one many times.
fn plan_of(text: &str) -> Result<Arc<Plan>, Problems> {
    static LAST: Mutex<Option<(String, Arc<Plan>)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some((known, plan)) = &*last
        && known == text
    {
        return Ok(Arc::clone(plan));
    }
    let plan = Arc::new(Plan::again(text).map_err(one)?);
    *last = Some((text.to_owned(), Arc::clone(&plan)));
    Ok(plan)
}

fn planned(py: Python<'_>, make: impl FnOnce(&mut Problems) -> Option<Plan> + Send) -> PyResult<String> {
    let made = py.detach(|| {
        let mut problems = Problems::default();
        make(&mut problems).map(|plan| plan.json()).ok_or(problems)
    });
    made.map_err(|problems| error::of(py, problems))
}

/// The plan of a grid, or of points, both in JSON.
#[pyfunction]
#[pyo3(signature = (grid, points=None))]
pub(crate) fn sweep_plan(py: Python<'_>, grid: &str, points: Option<&str>) -> PyResult<String> {
    planned(py, |problems| Plan::of_json(grid, points, problems))
}

/// The plan of a file of `iowhy sweep`.
#[pyfunction]
pub(crate) fn sweep_plan_of_file(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    planned(py, |problems| {
        let name = path.display().to_string();
        match iowhy_lab::run::load(&name) {
            Ok(text) => Plan::parse(&name, &text, problems),
            Err(error) => {
                problems.push(Problem::error(format!("cannot read `{name}`: {error}")));
                None
            }
        }
    })
}

/// Makes a task; the bytes of its Parquet file.
#[pyfunction]
pub(crate) fn sweep_task<'py>(py: Python<'py>, plan: &str, task: usize) -> PyResult<Bound<'py, PyBytes>> {
    let made = py.detach(|| {
        let plan = plan_of(plan)?;
        shard::bytes(&plan, task, &plan.make(task, &|| {})).map_err(because)
    });
    Ok(PyBytes::new(py, &made.map_err(|problems| error::of(py, problems))?))
}

/// A task whose workers were lost: the bytes of its Parquet file, in which each point has that error.
#[pyfunction]
pub(crate) fn sweep_lost<'py>(py: Python<'py>, plan: &str, task: usize, why: &str) -> PyResult<Bound<'py, PyBytes>> {
    let made = plan_of(plan).and_then(|plan| shard::bytes(&plan, task, &plan.lost(task, why)).map_err(because));
    Ok(PyBytes::new(py, &made.map_err(|problems| error::of(py, problems))?))
}

/// Tasks that have to be made: all, or those that a folder does not have.
#[pyfunction]
pub(crate) fn sweep_wanted(py: Python<'_>, plan: &str, folder: Option<PathBuf>) -> PyResult<Vec<usize>> {
    let wanted = py.detach(|| {
        let plan = plan_of(plan)?;
        let Some(folder) = folder else { return Ok((0..plan.tasks()).collect()) };
        pool::open(&plan, &folder).map_err(because)?;
        let hash = plan.hash();
        Ok((0..plan.tasks()).filter(|task| pool::wanting(&hash, &folder, *task)).collect())
    });
    wanted.map_err(|problems| error::of(py, problems))
}

/// Keeps the bytes of a task in a folder.
#[pyfunction]
pub(crate) fn sweep_keep(py: Python<'_>, plan: &str, folder: PathBuf, task: usize, bytes: &[u8]) -> PyResult<()> {
    let kept = plan_of(plan).and_then(|plan| pool::keep(&plan.hash(), &folder, task, bytes).map_err(because));
    kept.map_err(|problems| error::of(py, problems))
}

/// The results of tasks: of a folder, or of the bytes that workers have sent.
#[pyfunction]
pub(crate) fn sweep_gather(
    py: Python<'_>,
    plan: &str,
    folder: Option<PathBuf>,
    sent: Vec<Vec<u8>>,
    made: usize,
) -> PyResult<Swept> {
    let gathered = py.detach(|| {
        let plan = plan_of(plan)?;
        let rows = match folder {
            Some(folder) => pool::rows(&plan, &folder).map_err(because)?,
            None => {
                let mut rows = Vec::new();
                for bytes in sent {
                    rows.extend(shard::read(&plan, bytes).map_err(because)?);
                }
                rows.sort_by_key(|row| row.nr);
                rows
            }
        };
        Ok(Swept { plan, rows, made })
    });
    gathered.map_err(|problems| error::of(py, problems))
}

/// A sweep on threads of this process.
#[pyfunction]
pub(crate) fn sweep_local(
    py: Python<'_>,
    plan: &str,
    folder: Option<PathBuf>,
    threads: usize,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Swept> {
    let plan = plan_of(plan).map_err(|problems| error::of(py, problems))?;
    work::aside(py, progress.as_ref(), false, move |steps| {
        let step = |done, of| steps.advance(done, of);
        let swept = |plan: &Plan| -> Result<(Vec<Row>, usize), SweepError> {
            match folder {
                Some(folder) => {
                    let made = pool::run(plan, &folder, (1, 1), threads, &step)?.made;
                    Ok((pool::rows(plan, &folder)?, made))
                }
                None => Ok((pool::made(plan, threads, &step)?, plan.tasks())),
            }
        };
        let (rows, made) = swept(&plan).map_err(because)?;
        Ok(Swept { plan, rows, made })
    })
}

#[pymethods]
impl Swept {
    /// The plan as text; equal plans have equal results.
    #[getter]
    fn plan(&self) -> String {
        self.plan.json()
    }

    /// The hash of the plan, as in the files.
    #[getter]
    fn hash(&self) -> String {
        self.plan.hash()
    }

    /// Points without a result, and why.
    #[getter]
    fn failed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let failed = self.rows.iter().filter(|row| row.error.is_some());
        let shown = failed.map(|row| json!({ "nr": row.nr, "point": row.point, "error": row.error }));
        value(py, &Value::Array(shown.collect()))
    }

    /// A row for each point: place, disk, seed, options, hash of its events, metrics.
    #[getter]
    fn rows(&self, py: Python<'_>) -> PyResult<Table> {
        let options = self.plan.option_names();
        let first = [
            ("point", Of::Large),
            ("on", Of::Word),
            ("disk", Of::Word),
            ("seed", Of::Large),
            ("event_hash", Of::Word),
            ("events", Of::Large),
            ("error", Of::Word),
        ];
        let named = first.map(|(name, of)| (name.to_owned(), of)).into_iter();
        let named = named.chain(options.iter().map(|name| (format!("opt_{name}"), Of::Word)));
        let mut draft = Draft::new(named.chain(self.plan.metrics.iter().map(|name| (name.clone(), Of::Float))));
        for row in &self.rows {
            let hash = row.events.map(|(hash, _)| figure::hash(hash));
            let (front, rest) = draft.columns.split_at_mut(first.len());
            front[0].number(Some(row.nr as i64));
            front[1].word(Some(&row.point.on));
            front[2].word(row.point.disk.as_deref());
            front[3].number(Some(row.point.seed as i64));
            front[4].word(hash.as_deref());
            front[5].number(row.events.map(|(_, nr)| nr as i64));
            front[6].word(row.error.as_deref());
            let (words, values) = rest.split_at_mut(options.len());
            for (name, column) in options.iter().zip(words) {
                column.word(row.point.options.get(name).map(String::as_str));
            }
            row.values.iter().zip(values).for_each(|(value, column)| column.float(*value));
            draft.next();
        }
        draft.finish().map_err(|text| error::of(py, because(text)))
    }

    fn __len__(&self) -> usize {
        self.rows.len()
    }

    fn __repr__(&self) -> String {
        let failed = self.rows.iter().filter(|row| row.error.is_some()).count();
        format!("<iowhy.Swept: {} points, {failed} without a result, plan {}>", self.rows.len(), self.hash())
    }

    fn _repr_html_(&self) -> String {
        let failed: Vec<&str> = self.rows.iter().filter_map(|row| row.error.as_deref()).take(5).collect();
        page(&self.__repr__(), "", &failed.join("\n"))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        self.rows(py)?.__arrow_c_stream__(py, requested_schema)
    }
}
