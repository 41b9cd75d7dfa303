//! Common parts of results: JSON as values of Python, pages of notebooks, the store that is meant.

use std::path::Path;

use iowhy_lab::store::{self, Store, StoreError};
use pyo3::prelude::*;
use serde_json::Value;

/// Words that stand out: not here.
pub(crate) fn plain(text: &str) -> String {
    text.to_owned()
}

/// A value of JSON as one of Python.
pub(crate) fn value<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (value.to_string(),))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A result as notebooks show it: the verdict in the colour of its kind, and the text.
pub(crate) fn page(title: &str, verdict: &str, text: &str) -> String {
    let colour = match verdict {
        "regression" => "#b3261e",
        "improvement" | "same" | "found" | "held" => "#1b6e3c",
        _ => "#5f5f5f",
    };
    let badge = match verdict {
        "" => String::new(),
        word => {
            let style = format!("background:{colour};color:#fff;border-radius:4px;padding:2px 8px");
            format!("<span style=\"{style}\">{}</span> ", escaped(word))
        }
    };
    format!(
        "<div class=\"iowhy\"><p>{badge}<strong>{}</strong></p><pre style=\"line-height:1.3\">{}</pre></div>",
        escaped(title),
        escaped(text)
    )
}

/// The store of a folder, or of the environment.
pub(crate) fn store_at(folder: Option<&Path>) -> Result<Store, StoreError> {
    let variable = |name: &str| std::env::var(name).ok();
    Store::open_existing(&store::directory(folder, &variable).ok_or(StoreError::NoPlace)?)
}
