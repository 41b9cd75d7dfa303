//! The output of `iowhy run --json`: one run for each entry of `runs`, with its metrics.

use serde_json::Value;

use super::{Format, Reader};
use iowhy_stats::metric::RunFacts;

pub const FORMAT: Format = Format {
    name: "iowhy",
    summary: "the output of `iowhy run --json`",
    detect: |text| text.trim_start().starts_with('{') && text.contains("\"iowhy.run/1\""),
    read,
};

fn read(reader: &mut Reader<'_>, text: &str) {
    for document in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let document = match document {
            Ok(document) => document,
            Err(error) => return reader.broken(format!("not JSON: {error}")),
        };
        if document["schema"] != "iowhy.run/1" {
            reader.broken("`schema` is not iowhy.run/1");
            return;
        }
        let words = document["job"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let job = words.collect::<Vec<_>>().join(" ");
        for run in document["runs"].as_array().into_iter().flatten() {
            let text = |key: &str| run[key].as_str().unwrap_or_default().to_owned();
            let place = text("where");
            let simulated = place.starts_with("sim:");
            let warnings = run["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let nr = reader.run(RunFacts {
                run_id: text("run_id"),
                seed: run["seed"].as_u64().unwrap_or_default(),
                simulated,
                job: job.clone(),
                warnings: warnings.map(str::to_owned).collect(),
                ..RunFacts::default()
            });
            for (name, value) in run["metrics"].as_object().into_iter().flatten() {
                reader.put(name, value.as_f64().unwrap_or(f64::NAN), Some(nr));
            }
        }
    }
}
