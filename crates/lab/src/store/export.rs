//! Runs as CSV (RFC 4180) or JSON files, for programs that open neither SQLite nor Parquet.
//!
//! ```text
//! runs.csv       a row for each run           runs.json     an array of runs with their metrics, tags and files
//! metrics.csv    run_id, metric, value
//! RUN-KIND.csv   samples or events of a run   RUN-KIND.json an array of objects
//! ```

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use iowhy_live::guard::Output;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::{Map, Value, json};

use super::{Store, StoreError, StoredRun, run_json};

/// Of files that are written.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// Commas between values, a line for each row.
    Csv,
    /// An array of objects.
    Json,
}

impl Format {
    /// Formats and their names.
    pub const ALL: [Format; 2] = [Format::Csv, Format::Json];

    /// Its name, which is the end of file names, too.
    pub fn word(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::Json => "json",
        }
    }
}

/// Written files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// How many runs.
    pub runs: usize,
    pub files: Vec<PathBuf>,
}

/// A value in a line of CSV: in quotes if it has something that would end it.
fn cell(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn line(cells: impl IntoIterator<Item = String>) -> String {
    let mut line = cells.into_iter().map(|text| cell(&text)).collect::<Vec<_>>().join(",");
    line.push_str("\r\n");
    line
}

fn cell_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Columns of `runs.csv`, which are keys of a run in JSON.
const RUN: &[&str] = &[
    "run_id",
    "label",
    "job",
    "where",
    "simulated",
    "machine_hash",
    "seed",
    "event_hash",
    "started_ns",
    "finished_ns",
    "session",
    "block",
    "position",
    "order_seed",
    "session_size",
    "warm_up",
    "blind",
    "version",
    "tags",
    "warnings",
    "machine",
    "policies",
];

fn runs_csv(runs: &[StoredRun]) -> String {
    let mut text = line(RUN.iter().map(|name| (*name).to_owned()));
    for run in runs {
        let all = run_json(run);
        let cells = RUN.iter().map(|name| {
            let value = all.get(*name).or_else(|| all["design"].get(*name)).unwrap_or(&Value::Null);
            match value {
                Value::Array(list) => list.iter().map(cell_of).collect::<Vec<_>>().join("; "),
                value => cell_of(value),
            }
        });
        text.push_str(&line(cells));
    }
    text
}

fn metrics_csv(runs: &[StoredRun]) -> String {
    let mut text = line(["run_id", "metric", "value"].map(str::to_owned));
    for run in runs {
        for (name, value) in &run.metrics {
            let value = if value.is_finite() { value.to_string() } else { String::new() };
            text.push_str(&line([run.id.0.clone(), name.clone(), value]));
        }
    }
    text
}

fn value_of(field: &Field) -> Value {
    match field {
        Field::Long(number) => json!(number),
        Field::Str(text) => json!(text),
        _ => Value::Null,
    }
}

fn object(row: &Row) -> Value {
    Value::Object(row.get_column_iter().map(|(name, field)| (name.clone(), value_of(field))).collect::<Map<_, _>>())
}

/// Writes the rows of a Parquet file, `from`.
fn table(reader: &SerializedFileReader<File>, from: &Path, to: &Path, format: Format) -> Result<(), StoreError> {
    let io = |action: &'static str, path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| StoreError::File { action, path, source }
    };
    let parquet = |source: ParquetError| StoreError::Parquet { action: "read", path: from.to_owned(), source };
    let names: Vec<String> =
        reader.metadata().file_metadata().schema().get_fields().iter().map(|field| field.name().to_owned()).collect();
    let out = Output::create(to, false).map_err(|error| io("create", to)(error.into()))?;
    let mut out = BufWriter::new(out);
    let begin = match format {
        Format::Csv => line(names),
        Format::Json => "[".to_owned(),
    };
    out.write_all(begin.as_bytes()).map_err(io("write", to))?;
    for (nr, row) in reader.get_row_iter(None).map_err(parquet)?.enumerate() {
        let row = row.map_err(parquet)?;
        let text = match format {
            Format::Csv => line(row.get_column_iter().map(|(_, field)| cell_of(&value_of(field)))),
            Format::Json => format!("{}\n{}", if nr == 0 { "" } else { "," }, object(&row)),
        };
        out.write_all(text.as_bytes()).map_err(io("write", to))?;
    }
    let end = match format {
        Format::Csv => "",
        Format::Json => "\n]\n",
    };
    let done = out.write_all(end.as_bytes()).and_then(|()| out.into_inner().map_err(io::IntoInnerError::into_error));
    done.and_then(|out| Ok(out.finish()?)).map_err(io("write", to))
}

impl Store {
    /// Writes runs and their data files into a directory, which is made if need be.
    ///
    /// # Errors
    /// If something cannot be read or written.
    pub fn export(&self, runs: &[StoredRun], format: Format, to: &Path) -> Result<Exported, StoreError> {
        fs::create_dir_all(to).map_err(|source| StoreError::File {
            action: "make the directory",
            path: to.to_owned(),
            source,
        })?;
        let mut exported = Exported { runs: runs.len(), files: Vec::new() };
        let mut texts = Vec::new();
        match format {
            Format::Csv => {
                texts.push(("runs", runs_csv(runs)));
                texts.push(("metrics", metrics_csv(runs)));
            }
            Format::Json => {
                let all: Vec<Value> = runs.iter().map(run_json).collect();
                texts.push(("runs", format!("{:#}\n", Value::Array(all))));
            }
        }
        for (name, text) in texts {
            let path = to.join(format!("{name}.{}", format.word()));
            Output::write(&path, text.as_bytes(), false).map_err(|error| StoreError::File {
                action: "write",
                path: path.clone(),
                source: error.into(),
            })?;
            exported.files.push(path);
        }
        for run in runs {
            for file in &run.files {
                let path = to.join(format!("{}-{}.{}", run.id, file.kind.word(), format.word()));
                table(&self.open_rows(&file.hash)?, &self.data_path(&file.hash), &path, format)?;
                exported.files.push(path);
            }
        }
        Ok(exported)
    }

    /// The rows of a data file as objects, for readers without Parquet.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn rows(&self, hash: &str) -> Result<Vec<Value>, StoreError> {
        let path = self.data_path(hash);
        let parquet = |source| StoreError::Parquet { action: "read", path: path.clone(), source };
        let reader = self.open_rows(hash)?;
        let rows = reader.get_row_iter(None).map_err(parquet)?;
        rows.map(|row| row.map(|row| object(&row)).map_err(parquet)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        for (text, expected) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("two\nlines", "\"two\nlines\""),
        ] {
            assert_eq!(cell(text), expected);
        }
        assert_eq!(line(["a".to_owned(), String::new(), "b,c".to_owned()]), "a,,\"b,c\"\r\n");
    }
}
