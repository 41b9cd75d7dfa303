//! Models held against kernels: recorded vectors ([`vectors`]), whose comparison is shown here, and the running kernel
//! or its recordings ([`kernel`]).

pub mod kernel;
pub mod vectors;

use std::fmt::Write;

use serde_json::{Value, json};

use iowhy_text as text;
use vectors::{FileReport, GoldenReport};

/// The comparison as JSON (`iowhy.conform/1`).
pub fn json(report: &GoldenReport) -> Value {
    json!({ "schema": "iowhy.conform/1", "kernels": report.kernels.iter().map(kernel_json).collect::<Vec<_>>() })
}

fn kernel_json(report: &FileReport) -> Value {
    json!({
        "name": report.name,
        "model": if report.model.is_empty() { report.name.as_str() } else { report.model },
        "cases": report.cases,
        "matched": report.matched,
        "submissions": report.submissions,
        "submissions_matched": report.submissions_matched,
        "first_mismatch": report.first_mismatch,
    })
}

/// The comparison as a table.
pub fn text(report: &GoldenReport, bold: fn(&str) -> String) -> String {
    let mut out = String::from("model                               cases matched  submissions      matched\n");
    for file in &report.kernels {
        let line = format!(
            "{:<36}{:>5}{:>8}{:>13}{:>13}",
            match file.model {
                "" => file.name.clone(),
                model if model == file.name => file.name.clone(),
                model => format!("{} ({model})", file.name),
            },
            text::grouped(file.cases as u64),
            text::grouped(file.matched as u64),
            text::grouped(file.submissions as u64),
            text::grouped(file.submissions_matched as u64)
        );
        let _ = writeln!(out, "{}", if file.all_matched() { line } else { bold(&line) });
        if let Some(mismatch) = &file.first_mismatch {
            for line in mismatch.lines() {
                let _ = writeln!(out, "    {line}");
            }
        }
    }
    let wrong = report.kernels.iter().filter(|file| !file.all_matched()).count();
    let _ = match wrong {
        0 => writeln!(out, "every case matched"),
        wrong => writeln!(out, "{} did not match", text::count(wrong as u64, "model", "models")),
    };
    out
}
