//! A file of results of asv (airspeed velocity), versions 1 and 2 of its format: one commit on one machine.
//!
//! Each benchmark is a metric, and each combination of its parameters one of its own, named in parentheses. Its values
//! are the samples, where asv kept them (`--record-samples`), else its one result. `time_..` are seconds, `mem_..` and
//! `peakmem_..` bytes; less is better. Failed (`null`) and skipped ones (`NaN`) have no values. The time of a run is
//! that of its commit, as asv orders them.
//!
//! Source: asv's documentation of its files and `results.py`, results of its own tests, and those that others publish.

use serde_json::Value;

use super::{Format, Reader};
use iowhy_stats::Better;
use iowhy_stats::metric::{Metric, RunFacts};

pub const FORMAT: Format = Format {
    name: "asv",
    summary: "a file of results of asv: one commit, one machine",
    detect: |text| {
        text.trim_start().starts_with('{') && text.contains("\"commit_hash\"") && text.contains("\"results\"")
    },
    read,
};

fn read(reader: &mut Reader<'_>, text: &str) {
    let document = match super::json(text) {
        Ok(document) => document,
        Err(error) => return reader.broken(format!("not JSON of asv: {error}")),
    };
    let Some(results) = document["results"].as_object() else {
        return reader.broken("a file of asv's results has `results`, this one has none");
    };
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let run = reader.run(RunFacts {
        run_id: word(&document["commit_hash"]),
        started_ns: document["date"].as_u64().unwrap_or(0).saturating_mul(1_000_000),
        machine: word(&document["params"]["machine"]),
        ..RunFacts::default()
    });
    let columns: Vec<&str> =
        document["result_columns"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, result) in results {
        // Version 2 has a list whose places are named once, version 1 an object, or the number alone.
        let part = |key: &str| match result {
            Value::Array(list) => columns.iter().position(|column| *column == key).and_then(|nr| list.get(nr)),
            Value::Object(object) => object.get(key),
            other => (key == "result").then_some(other),
        };
        let params: Vec<Vec<&Value>> = part("params").map_or_else(Vec::new, |params| {
            params.as_array().into_iter().flatten().filter_map(Value::as_array).map(|of| of.iter().collect()).collect()
        });
        let all = |value: Option<&Value>| -> Vec<Value> {
            match value {
                Some(Value::Array(list)) => list.clone(),
                Some(other) => vec![other.clone()],
                None => Vec::new(),
            }
        };
        let samples = all(part("samples"));
        for (nr, result) in all(part("result")).iter().enumerate() {
            let name = format!("{name}{}", combination(&params, nr));
            let values = samples.get(nr).and_then(Value::as_array).filter(|list| !list.is_empty());
            for value in values.map_or(std::slice::from_ref(result), Vec::as_slice).iter().filter_map(Value::as_f64) {
                reader.column(&name, || metric(&name));
                reader.put(&name, value, Some(run));
            }
        }
    }
}

/// A benchmark's metric: asv has its unit in the first word of its last name.
fn metric(name: &str) -> Metric {
    let last = name.split('(').next().unwrap_or(name).rsplit('.').next().unwrap_or(name);
    let unit = match last.split('_').next() {
        Some("time" | "timeraw") => "s",
        Some("mem" | "peakmem") => "B",
        _ => return Metric::of(name),
    };
    Metric { name: name.to_owned(), unit: unit.to_owned(), better: Better::Lower }
}

/// The parameters of the result `nr`, the last one changing first.
fn combination(params: &[Vec<&Value>], mut nr: usize) -> String {
    let mut words: Vec<String> = Vec::new();
    for of in params.iter().rev().filter(|of| !of.is_empty()) {
        let value = of[nr % of.len()];
        words.push(value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        nr /= of.len();
    }
    words.reverse();
    if words.is_empty() { String::new() } else { format!("({})", words.join(", ")) }
}
