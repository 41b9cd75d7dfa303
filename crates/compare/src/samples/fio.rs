//! fio's JSON and json+: one document or many, one after the other, with or without text around them. Each is a run.
//!
//! For each job and direction that did I/O: IOPS, bandwidth, and the completion latencies. Clones of a job that were
//! not reported as a group give several values of one run, which a comparison does not take for independent ones. The
//! totals of all jobs have the names that every run of ours has (`iops`, `read_mib_s` ..). JSON of fio 2, whose times
//! are us, and rates of `nan` are read as well.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::{Format, Reader};
use iowhy_stats::metric::{Origin, RunFacts};

pub const FORMAT: Format = Format {
    name: "fio",
    summary: "fio --output-format=json or json+, one document or several",
    detect: |text| {
        text.contains("\"fio version\"") || text.trim_start().starts_with('{') || text.contains("(groupid=0, jobs=")
    },
    read,
};

const MIB: f64 = 1_048_576.0;

fn read(reader: &mut Reader<'_>, text: &str) {
    let mut found = Vec::new();
    let broken = documents(text, &mut |value| found.push(value));
    found.iter().for_each(|value| run(reader, value, ""));
    match broken {
        Err(what) => reader.broken(what),
        Ok(()) if found.is_empty() && !text.trim().is_empty() => {
            reader.broken("no JSON of fio: --output-format=json or terse writes what can be compared");
        }
        Ok(()) => {}
    }
}

/// Every document of a text, or why one cannot be read.
fn documents(text: &str, take: &mut dyn FnMut(Value)) -> Result<(), String> {
    let mut rest = text;
    // Other output formats may stand before and behind a document, which begins with a brace alone on its line.
    while let Some(start) = document(rest) {
        let mut stream = serde_json::Deserializer::from_str(&rest[start..]).into_iter::<Value>();
        match stream.next() {
            Some(Ok(value)) => take(value),
            Some(Err(error)) => {
                // Of nothing, fio prints rates as C does.
                if let Cow::Owned(clean) = super::without_nan(&rest[start..]) {
                    return documents(&clean, take);
                }
                let before = text[..text.len() - rest.len() + start].matches('\n').count();
                let line = before + error.line();
                let what = format!("not JSON of fio: line {line}, column {}: {error}", error.column());
                return Err(what);
            }
            None => break,
        }
        rest = &rest[start + stream.byte_offset()..];
    }
    Ok(())
}

/// Latencies of one job in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// read or write.
    pub op: &'static str,
    /// Calls.
    pub n: u64,
    /// Share of them that took at most a time, ns; in order. Bins of json+, else percentiles.
    pub points: Vec<(u64, f64)>,
}

/// A run for pictures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pictured {
    /// ns since 1970; 0 if unknown.
    pub started_ns: u64,
    pub operations: u64,
    /// Mean completion latency, ns.
    pub mean_ns: f64,
    pub bytes_per_s: f64,
    pub latency: Vec<Distribution>,
}

/// The runs in a text, for pictures. [`read`] reports mistakes.
pub fn pictured(text: &str) -> Vec<Pictured> {
    let mut all = Vec::new();
    let _ = documents(text, &mut |document| all.push(picture(&document)));
    all
}

fn picture(document: &Value) -> Pictured {
    let mut of = Pictured { started_ns: started_ms(document).saturating_mul(1_000_000), ..Pictured::default() };
    let mut sum_ns = 0.0;
    for job in document["jobs"].as_array().into_iter().flatten() {
        for op in ["read", "write"] {
            let part = &job[op];
            let n = part["total_ios"].as_u64().unwrap_or(0);
            if n == 0 {
                continue;
            }
            of.operations += n;
            of.bytes_per_s += part["bw_bytes"].as_f64().unwrap_or(0.0);
            sum_ns += n as f64 * part["clat_ns"]["mean"].as_f64().unwrap_or(0.0);
            of.latency.push(Distribution { op, n, points: points(&part["clat_ns"]) });
        }
    }
    of.mean_ns = sum_ns / (of.operations as f64).max(1.0);
    of
}

fn points(clat: &Value) -> Vec<(u64, f64)> {
    let object = |key: &str| clat[key].as_object().into_iter().flatten();
    let bins = object("bins").filter_map(|(ns, count)| Some((ns.parse::<u64>().ok()?, count.as_u64()?)));
    let mut bins: Vec<(u64, u64)> = bins.collect();
    bins.sort_unstable();
    let all: u64 = bins.iter().map(|(_, count)| count).sum();
    let mut upto = 0;
    let of_bins = bins.iter().map(|(ns, count)| {
        upto += count;
        (*ns, upto as f64 / all.max(1) as f64)
    });
    let mut points: Vec<(u64, f64)> = of_bins.collect();
    if points.is_empty() {
        let percentile = |(share, ns): (&String, &Value)| Some((ns.as_u64()?, share.parse::<f64>().ok()? / 100.0));
        points.extend(object("percentile").filter_map(percentile));
        points.extend(clat["max"].as_u64().map(|ns| (ns, 1.0)));
        points.sort_by(|one, other| one.1.total_cmp(&other.1));
    }
    points
}

/// When a run began, ms since 1970; 0 if unknown.
fn started_ms(document: &Value) -> u64 {
    let seconds = || document["timestamp"].as_u64().map(|seconds| seconds.saturating_mul(1000));
    document["timestamp_ms"].as_u64().or_else(seconds).unwrap_or_default()
}

/// Where a document begins.
fn document(text: &str) -> Option<usize> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        if trimmed.starts_with('{') {
            return Some(at + line.len() - trimmed.len());
        }
        at += line.len();
    }
    None
}

/// Enters a run, with `before` in front of the names of its metrics.
pub(super) fn run(reader: &mut Reader<'_>, document: &Value, before: &str) {
    let Some(jobs) = document["jobs"].as_array() else {
        return reader.broken("a document of fio has `jobs`, this one has none");
    };
    let name = |job: &Value| job["jobname"].as_str().unwrap_or("job").to_owned();
    let nr = reader.run(RunFacts {
        started_ns: started_ms(document).saturating_mul(1_000_000),
        job: jobs.iter().map(name).collect::<Vec<_>>().join(" "),
        options: options(document, jobs),
        origin: origin(document, jobs),
        ..RunFacts::default()
    });
    let mut totals: Vec<(String, f64)> = Vec::new();
    for share in jobs.iter().filter_map(|job| Some(job["usr_cpu"].as_f64()? + job["sys_cpu"].as_f64()?)) {
        add(&mut totals, "cpu_pct", share);
    }
    let mut latencies: Vec<Value> = Vec::new();
    for job in jobs {
        for direction in ["read", "write", "trim", "mixed"] {
            let part = &job[direction];
            if part["total_ios"].as_f64().is_none_or(|ios| ios == 0.0) {
                continue;
            }
            let prefix = format!("{before}{}.{direction}_", name(job));
            let mut put = |end: &str, value: Option<f64>| {
                if let Some(value) = value {
                    reader.put(&format!("{prefix}{end}"), value, Some(nr));
                }
            };
            let mut rate = |total: &str, value: Option<f64>| value.inspect(|value| add(&mut totals, total, *value));
            put("iops", rate("iops", part["iops"].as_f64()));
            let bytes = part["bw_bytes"].as_f64().or_else(|| part["bw"].as_f64().map(|kib| kib * 1024.0));
            put("mib_s", rate(&format!("{direction}_mib_s"), bytes.map(|bytes| bytes / MIB)));
            let clat = latency(part, "clat");
            for (end, value) in of_latency(&clat) {
                put(&format!("{end}_ns"), value);
            }
            put("lat_mean_ns", latency(part, "lat")["mean"].as_f64());
            latencies.push(clat);
        }
    }
    for (name, value) in totals {
        reader.put(&format!("{before}{name}"), value, Some(nr));
    }
    // Percentiles of several jobs cannot be put together.
    if let [only] = latencies.as_slice() {
        for (end, value) in of_latency(only) {
            if let Some(value) = value {
                reader.put(&format!("{before}{end}_ns"), value, Some(nr));
            }
        }
    }
}

fn add(totals: &mut Vec<(String, f64)>, name: &str, value: f64) {
    match totals.iter_mut().find(|(known, _)| known == name) {
        Some((_, sum)) => *sum += value,
        None => totals.push((name.to_owned(), value)),
    }
}

/// Names and values in an object of options; a flag has no value.
fn words(options: &Value) -> impl Iterator<Item = (&str, String)> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let all = options.as_object().into_iter().flatten();
    all.map(move |(name, value)| (name.as_str(), if value.is_null() { String::new() } else { text(value) }))
}

/// Options of each job, those of all jobs included. Of several jobs the name has that of the job in front.
fn options(document: &Value, jobs: &[Value]) -> Vec<(String, String)> {
    let mut list: Vec<(String, String)> = Vec::new();
    for job in jobs {
        let prefix = match jobs {
            [_] => String::new(),
            _ => format!("{}.", job["jobname"].as_str().unwrap_or("job")),
        };
        let own = &job["job options"];
        let shared = words(&document["global options"]).filter(|(name, _)| own.get(name).is_none());
        let named = words(own).filter(|(name, _)| *name != "name").chain(shared);
        list.extend(named.map(|(name, value)| (format!("{prefix}{name}"), value)));
    }
    list.sort();
    list.dedup();
    list
}

/// The command line of the jobs, and the disks below their files.
fn origin(document: &Value, jobs: &[Value]) -> Origin {
    let option = |(name, value): (&str, String)| match value.as_str() {
        "" => format!(" --{name}"),
        value => format!(" --{name}={value}"),
    };
    let not_name = |(name, _): &(&str, String)| *name != "name";
    let mut command = "fio".to_owned();
    words(&document["global options"]).map(option).for_each(|word| command += &word);
    for job in jobs {
        command += &format!(" --name={}", job["jobname"].as_str().unwrap_or("job"));
        words(&job["job options"]).filter(not_name).map(option).for_each(|word| command += &word);
    }
    let known = jobs.iter().any(|job| job["job options"].is_object());
    let disks = document["disk_util"].as_array().into_iter().flatten();
    let disks: Vec<&str> = disks.filter_map(|disk| disk["name"].as_str()).collect();
    Origin { command: if known { command } else { String::new() }, disk: disks.join(" "), kernel: String::new() }
}

/// The latencies of a direction in ns. fio 2 has them in us.
fn latency(part: &Value, kind: &str) -> Value {
    let ns = &part[format!("{kind}_ns")];
    if ns.is_object() {
        return ns.clone();
    }
    let of_us = |us: &Value| us.as_f64().map_or(Value::Null, |us| json!(1000.0 * us));
    let us = &part[kind];
    let percentiles = us["percentile"].as_object().into_iter().flatten();
    let percentiles: Map<String, Value> = percentiles.map(|(share, us)| (share.clone(), of_us(us))).collect();
    json!({ "mean": of_us(&us["mean"]), "max": of_us(&us["max"]), "percentile": percentiles })
}

fn of_latency(clat: &Value) -> [(&'static str, Option<f64>); 4] {
    [
        ("mean", clat["mean"].as_f64()),
        ("p50", clat["percentile"]["50.000000"].as_f64()),
        ("p99", clat["percentile"]["99.000000"].as_f64()),
        ("max", clat["max"].as_f64()),
    ]
}
