//! fio's JSON and json+.
//!
//! Keys are those of fio 3.33, with what later releases add (`job_start`, sectors of disks, targets in other units), so
//! that readers of either find what they look for. Different from fio: `job options` always has `rw`, `iodepth`,
//! `numjobs` and `bs`, which fio-plot needs; the document has nothing else, even after errors; times are in UTC;
//! percentiles come with numbers only.

use serde_json::{Map, Value, json};

use iowhy_live::outcome::Steadiness;
use iowhy_live::plan::{Measure, Steady};

use super::live;
use super::result::{CLASSES, Direction, Entry, Results, Samples, Times, date, percent};
use super::{FioJob, Setting};

/// Stands for fio's version: the release whose output this resembles, and the real origin.
pub const VERSION: &str = concat!("fio-3.33-iowhy-", env!("CARGO_PKG_VERSION"));

/// The document; `plus` is json+.
pub fn document(results: &Results<'_>, plus: bool) -> Value {
    let since = results.started.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mut document = Map::new();
    document.insert("fio version".to_owned(), json!(VERSION));
    document.insert("timestamp".to_owned(), json!(since.as_secs()));
    document.insert("timestamp_ms".to_owned(), json!(since.as_millis() as u64));
    document.insert("time".to_owned(), json!(date(results.started)));
    if !results.globals.is_empty() {
        document.insert("global options".to_owned(), options(results.globals.iter()));
    }
    let jobs: Vec<Value> = results.entries.iter().map(|entry| job(results, entry, plus)).collect();
    document.insert("jobs".to_owned(), Value::Array(jobs));
    if !results.disks.is_empty() {
        let disks = results.disks.iter().map(|disk| {
            json!({
                "name": disk.name,
                "read_ios": disk.ios[0],
                "write_ios": disk.ios[1],
                "read_sectors": disk.sectors[0],
                "write_sectors": disk.sectors[1],
                "read_merges": disk.merges[0],
                "write_merges": disk.merges[1],
                "read_ticks": disk.ticks_ms[0],
                "write_ticks": disk.ticks_ms[1],
                "in_queue": disk.in_queue_ms,
                "util": decimal(disk.util_pct),
            })
        });
        document.insert("disk_util".to_owned(), disks.collect());
    }
    if !results.notes.is_empty() {
        document.insert("iowhy".to_owned(), json!({ "notes": results.notes }));
    }
    Value::Object(document)
}

/// Options as they were written, the last of each name.
fn options<'a>(written: impl Iterator<Item = &'a Setting>) -> Value {
    let mut map = Map::new();
    for option in written {
        map.insert(option.option.name.to_owned(), json!(option.value));
    }
    Value::Object(map)
}

fn job_options(job: &FioJob) -> Value {
    let mut value = json!({ "name": job.name });
    let Some(map) = value.as_object_mut() else { return value };
    if let Value::Object(own) = options(job.options.iter().filter(|option| !option.global)) {
        map.extend(own);
    }
    // Where a job says nothing itself, what holds for it.
    let said = |name: &str| job.options.iter().rfind(|option| option.option.name == name).map(|o| o.value.clone());
    let mut complete = |name: &str, value: String| {
        if !map.contains_key(name) {
            map.insert(name.to_owned(), json!(said(name).unwrap_or(value)));
        }
    };
    complete("rw", job.mode.name().to_owned());
    complete("iodepth", job.iodepth.to_string());
    complete("numjobs", job.numjobs.to_string());
    let (read, write) = (job.blocks.read.min, job.blocks.write.min);
    complete("bs", if read == write { read.to_string() } else { format!("{read},{write}") });
    value
}

/// Six digits behind the point, as fio prints them.
fn decimal(value: f64) -> f64 {
    if value.is_finite() { (value * 1e6).round() / 1e6 } else { 0.0 }
}

fn times(times: &Times, entry: &Entry<'_>, percentiles: bool, plus: bool) -> Value {
    let mut value = json!({
        "min": times.min(),
        "max": times.max(),
        "mean": decimal(times.mean()),
        "stddev": decimal(times.deviation()),
        "N": times.count(),
    });
    if times.count() == 0 || !percentiles {
        return value;
    }
    let list = &entry.job.reporting.percentiles;
    let named = |(wanted, at): (u64, u64)| (format!("{}.{:06}", wanted / 1_000_000, wanted % 1_000_000), json!(at));
    value["percentile"] = Value::Object(times.percentiles(list).into_iter().map(named).collect());
    if plus {
        let bins = times.bins().into_iter().map(|(middle, count)| (middle.to_string(), json!(count)));
        value["bins"] = Value::Object(bins.collect());
    }
    value
}

fn direction(results: &Results<'_>, entry: &Entry<'_>, direction: &Direction, number: usize, plus: bool) -> Value {
    let reporting = &entry.job.reporting;
    let bytes = direction.bandwidth_bytes();
    let Samples { min, max, mean, deviation, count } = direction.bandwidth;
    let iops = &direction.iops;
    let share = results.share_pct(entry, number);
    let mut value = json!({
        "io_bytes": direction.bytes,
        "io_kbytes": direction.bytes / 1024,
        "bw_bytes": bytes,
        "bw": bytes / 1024,
        "iops": decimal(direction.calls_a_second()),
        "runtime": direction.runtime_ms,
        "total_ios": direction.ios,
        "short_ios": direction.short,
        "drop_ios": 0,
        "slat_ns": times(&direction.slat, entry, reporting.slat, plus),
        "clat_ns": times(&direction.clat, entry, reporting.clat, plus),
        "lat_ns": times(&direction.lat, entry, reporting.lat, plus),
        "bw_min": min,
        "bw_max": max,
        "bw_agg": decimal(share),
        "bw_mean": decimal(mean),
        "bw_dev": decimal(deviation),
        "bw_samples": count,
        "iops_min": iops.min,
        "iops_max": iops.max,
        "iops_mean": decimal(iops.mean),
        "iops_stddev": decimal(iops.deviation),
        "iops_samples": iops.count,
    });
    // As fio: only if there are two of them.
    if direction.by_priority.len() > 1 {
        let (name, part) = if reporting.lat { ("lat_ns", 1) } else { ("clat_ns", 0) };
        let shown = direction.by_priority.iter().map(|(priority, both)| {
            let times = times(&both[part], entry, reporting.clat || reporting.lat, plus);
            json!({ "prioclass": priority >> 13, "prio": priority & 7, name: times })
        });
        value["prios"] = shown.collect();
    }
    value
}

/// Names of the classes of depths, and of calls handed in or taken at once.
const DEPTHS: [&str; 7] = ["1", "2", "4", "8", "16", "32", ">=64"];
const BATCHES: [&str; 7] = ["0", "4", "8", "16", "32", "64", ">=64"];

fn shares(names: &[&str], counts: &[u64], of: u64) -> Value {
    let share = |count: u64| decimal(percent(count, of));
    Value::Object(names.iter().zip(counts).map(|(name, count)| ((*name).to_owned(), json!(share(*count)))).collect())
}

fn job(results: &Results<'_>, entry: &Entry<'_>, plus: bool) -> Value {
    let reporting = &entry.job.reporting;
    let began = results.started + std::time::Duration::from_nanos(entry.start.0.min(results.elapsed.0));
    let mut value = json!({
        "jobname": entry.job.name,
        "groupid": entry.group,
        "job_start": began.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_millis() as u64,
        "error": entry.error,
        "eta": 0,
        "elapsed": entry.end.0.div_ceil(1_000_000_000),
    });
    if let Some(text) = &entry.job.description {
        value["desc"] = json!(text);
    }
    value["job options"] = job_options(entry.job);
    for (number, (name, found)) in entry.named_directions().into_iter().enumerate() {
        value[name] = direction(results, entry, found, number, plus);
    }
    if !entry.mixed() {
        value["sync"] = json!({
            "total_ios": entry.syncs,
            "lat_ns": times(&entry.sync, entry, reporting.clat || reporting.lat, plus),
        });
    }
    if let Some(all) = entry.together() {
        value["mixed"] = direction(results, entry, &all, 3, plus);
    }
    let share = |time: std::time::Duration| match entry.job_runtime_ms {
        0 => 0.0,
        ms => decimal(time.as_secs_f64() * 1e5 / ms as f64),
    };
    let usage = &entry.usage;
    let ios = entry.ios();
    let classes: Vec<String> = CLASSES.iter().map(u64::to_string).collect();
    let classes: Vec<&str> = classes.iter().map(String::as_str).collect();
    let slow: Vec<&str> = classes.iter().copied().chain(["2000", ">=2000"]).collect();
    let target = live::target(entry.job);
    let rest = json!({
        "job_runtime": entry.job_runtime_ms,
        "usr_cpu": share(usage.user),
        "sys_cpu": share(usage.system),
        "ctx": usage.voluntary + usage.involuntary,
        "majf": usage.major_faults,
        "minf": usage.minor_faults,
        "iodepth_level": shares(&DEPTHS, &entry.depths, entry.with_depths()),
        "iodepth_submit": shares(&BATCHES, &entry.submitted, entry.submitted.iter().sum()),
        "iodepth_complete": shares(&BATCHES, &entry.completed, entry.completed.iter().sum()),
        "latency_ns": shares(&classes, &entry.classes[..10], ios),
        "latency_us": shares(&classes, &entry.classes[10..20], ios),
        "latency_ms": shares(&slow, &entry.classes[20..], ios),
        "latency_depth": entry.depth,
        "latency_target": target.target.0,
        "latency_target_ns": target.target.0,
        "latency_percentile": target.percent,
        "latency_window": target.window.0 / 1000,
        "latency_window_us": target.window.0 / 1000,
    });
    if let (Value::Object(value), Value::Object(rest)) = (&mut value, rest) {
        value.extend(rest);
    }
    if !matches!(entry.job.word("continue_on_error"), "0" | "none") {
        value["total_err"] = json!(entry.nr_errors);
        value["first_error"] = json!(entry.error);
    }
    if let (Some(terms), Some(found)) = (live::steady(entry.job), entry.steady) {
        value["steadystate"] = steady(&terms, found);
    }
    value
}

/// How steady a job was; values that were not looked at are 0.
fn steady(terms: &Steady, found: &Steadiness) -> Value {
    let name = if terms.measure == Measure::Calls { "iops" } else { "bw" };
    let (slope, percent) = (if terms.slope { "_slope" } else { "" }, if terms.percent { "%" } else { "" });
    let whole = |values: &[u64]| {
        let looks = terms.looks as usize;
        let mut values = values.to_vec();
        let mean = values.iter().sum::<u64>() / u64::from(terms.looks.max(1));
        values.resize(looks, 0);
        (mean, values)
    };
    let ((bw_mean, bw), (iops_mean, iops)) = (whole(&found.bytes), whole(&found.calls));
    json!({
        "ss": format!("{name}{slope}:{:.6}{percent}", terms.limit),
        "duration": terms.looks,
        "attained": u32::from(found.attained),
        "criterion": format!("{:.6}{percent}", found.criterion),
        "max_deviation": decimal(found.deviation),
        "slope": decimal(found.slope),
        "data": { "bw_mean": bw_mean, "iops_mean": iops_mean, "iops": iops, "bw": bw },
    })
}

#[cfg(test)]
pub(crate) mod tests;
