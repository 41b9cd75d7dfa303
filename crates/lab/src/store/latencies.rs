//! Latencies of single calls, run by run, out of the files with samples.

use parquet::file::reader::FileReader;
use parquet::record::{Field, Row};

use super::{Kind, Store, StoreError, StoredRun};

impl Store {
    /// The latencies of the calls that were kept of each run, ns, in the order in which the calls began; at most `most`
    /// of a run, evenly spaced. Runs without such samples are left out.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn latencies(&self, runs: &[StoredRun], most: usize) -> Result<Vec<Vec<f64>>, StoreError> {
        let mut found = Vec::new();
        for run in runs {
            let Some(file) = run.files.iter().find(|file| file.kind == Kind::Samples) else { continue };
            let path = self.data_path(&file.hash);
            let parquet = |source| StoreError::Parquet { action: "read", path: path.clone(), source };
            let reader = self.open_rows(&file.hash)?;
            let mut calls: Vec<(i64, f64)> = Vec::new();
            for row in reader.get_row_iter(None).map_err(parquet)? {
                calls.extend(call(&row.map_err(parquet)?));
            }
            calls.sort_by_key(|(begun, _)| *begun);
            let n = calls.len();
            let kept = n.min(most);
            if kept > 0 {
                found.push((0..kept).map(|k| calls[(2 * k + 1) * n / (2 * kept)].1).collect());
            }
        }
        Ok(found)
    }
}

/// When a call began and how long it took, if the row is one.
fn call(row: &Row) -> Option<(i64, f64)> {
    let field = |name: &str| row.get_column_iter().find(|(known, _)| *known == name).map(|(_, field)| field);
    let whole = |name: &str| match field(name)? {
        Field::Long(value) => Some(*value),
        Field::ULong(value) => i64::try_from(*value).ok(),
        _ => None,
    };
    matches!(field("source")?, Field::Str(word) if word == "call").then_some(())?;
    Some((whole("t_ns")?, whole("latency_ns")? as f64))
}
