//! Mistakes as exceptions: the words of the command line, and each problem with its place.

use iowhy_text::diagnose::{Problem, Problems, Severity, Span};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyType;

pyo3::create_exception!(
    iowhy,
    Error,
    PyException,
    "Why something could not be done: str() has the words of the command line, `problems` each mistake."
);

/// One mistake or warning.
#[pyclass(name = "Problem", module = "iowhy", frozen)]
pub(crate) struct Mistake(Problem);

/// The parts of a mistake: severity, message, span, nearest names, help.
type Parts = (String, String, Option<(String, usize, usize)>, Vec<String>, Option<String>);

#[pymethods]
impl Mistake {
    #[new]
    fn new(
        severity: &str,
        message: String,
        span: Option<(String, usize, usize)>,
        nearest: Vec<String>,
        help: Option<String>,
    ) -> Mistake {
        let severity = match severity {
            "warning" => Severity::Warning,
            "note" => Severity::Note,
            _ => Severity::Error,
        };
        let span = span.map(|(text, start, end)| Span { text, start, end });
        Mistake(Problem { severity, message, span, nearest, help })
    }

    /// Mistakes of a worker come from another process.
    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, Parts) {
        let of = self.0.clone();
        let span = of.span.map(|span| (span.text, span.start, span.end));
        (py.get_type::<Mistake>(), (self.severity().to_owned(), of.message, span, of.nearest, of.help))
    }

    /// `error`, `warning` or `note`.
    #[getter]
    fn severity(&self) -> &'static str {
        match self.0.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }

    #[getter]
    fn message(&self) -> &str {
        &self.0.message
    }

    /// The argument with the mistake, and first and last column of it.
    #[getter]
    fn span(&self) -> Option<(&str, usize, usize)> {
        self.0.span.as_ref().map(|span| (span.text.as_str(), span.start, span.end))
    }

    #[getter]
    fn nearest(&self) -> Vec<String> {
        self.0.nearest.clone()
    }

    #[getter]
    fn help(&self) -> Option<&str> {
        self.0.help.as_deref()
    }

    fn __str__(&self) -> String {
        self.0.render()
    }

    fn __repr__(&self) -> String {
        format!("Problem({:?})", self.0.message)
    }
}

/// The problems as a list of Python.
pub(crate) fn list(py: Python<'_>, problems: Problems) -> PyResult<Vec<Py<Mistake>>> {
    problems.list.into_iter().map(|problem| Py::new(py, Mistake(problem))).collect()
}

/// The exception for these.
pub(crate) fn of(py: Python<'_>, problems: Problems) -> PyErr {
    let error = Error::new_err(problems.render().trim_end().to_owned());
    match list(py, problems).and_then(|list| error.value(py).setattr("problems", list)) {
        Ok(()) => error,
        Err(error) => error,
    }
}

/// A single one.
pub(crate) fn one(problem: Problem) -> Problems {
    Problems { list: vec![problem] }
}

/// Something that failed, and says why.
pub(crate) fn because(error: impl std::fmt::Display) -> Problems {
    one(Problem::error(error.to_string()))
}
