//! What runs say at their end: metrics, text, JSON (`iowhy.run/1`).
//!
//! Metrics are flat numbers with their unit in the name. Those of a line of the report have its name and a point in
//! front. Rates are over the time in which their threads worked, without the warm-up. Several runs are shown as mean
//! and range: a mean alone would not say whether two of them differ.

use std::fmt::Write;

use iowhy_stack::histogram::Histogram;
use iowhy_stack::layers::Layers;
use iowhy_stack::outcome::{Counts, JobTotals, Outcome, ThreadTotals};
use iowhy_stack::units::Nanos;
use serde_json::{Map, Value, json};

use super::{Finished, RunRequest, Variant};
use crate::diagnose::Problems;
use crate::modes::{self, Mode};
use crate::{measure, text};

const MIB: f64 = 1_048_576.0;

/// Names and values of the metrics of a run.
pub type Metrics = Vec<(String, f64)>;

fn per_second(n: f64, time: Nanos) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { n / seconds } else { 0.0 }
}

/// Rates of some calls made in some time.
fn rates(metrics: &mut Metrics, prefix: &str, counts: &Counts, time: Nanos) {
    let mut put = |name: &str, n: f64| metrics.push((format!("{prefix}{name}"), per_second(n, time)));
    put("read_mb_s", counts.read_bytes as f64 / 1e6);
    put("read_mib_s", counts.read_bytes as f64 / MIB);
    put("write_mb_s", counts.written_bytes as f64 / 1e6);
    put("write_mib_s", counts.written_bytes as f64 / MIB);
    put("read_iops", counts.reads as f64);
    put("write_iops", counts.writes as f64);
    put("syncs_per_s", counts.syncs as f64);
    put("iops", (counts.reads + counts.writes) as f64);
}

fn latencies(metrics: &mut Metrics, prefix: &str, histogram: &Histogram) {
    if histogram.count() == 0 {
        return;
    }
    let mut put = |name: &str, n: f64| metrics.push((format!("{prefix}{name}_ns"), n));
    put("mean", measure::mean(histogram));
    put("p50", measure::quantile(histogram, 50) as f64);
    put("p99", measure::quantile(histogram, 99) as f64);
    put("max", measure::largest(histogram) as f64);
}

/// The time in which a line was measured.
fn measured(totals: &JobTotals, warmup: Nanos) -> Nanos {
    totals.end.saturating_sub(totals.start.max(warmup))
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len();
    if n == 0 { 0.0 } else { values.sum::<f64>() / n as f64 }
}

/// Everything that was measured of a run.
pub fn metrics(variant: &Variant, run: &Finished) -> Metrics {
    let outcome = &run.outcome;
    let warmup = run.plan.job.warmup;
    let mut metrics = vec![("elapsed_s".to_owned(), outcome.elapsed.as_secs_f64())];
    let elapsed = |thread: &ThreadTotals| thread.elapsed().as_secs_f64();
    metrics.push(("mean_process_elapsed_s".to_owned(), mean(outcome.threads.iter().map(elapsed))));
    let first = outcome.threads.iter().map(|thread| thread.start).min().unwrap_or_default();
    rates(&mut metrics, "", &outcome.counts, outcome.elapsed.saturating_sub(first.max(warmup)));
    let sum = |bytes: fn(&ThreadTotals) -> u64| {
        let of = |thread: &ThreadTotals| {
            per_second(bytes(thread) as f64 / 1e6, thread.end.saturating_sub(thread.start.max(warmup)))
        };
        outcome.threads.iter().map(of).sum::<f64>()
    };
    metrics.push(("sum_of_read_mb_s".to_owned(), sum(|thread| thread.counts.read_bytes)));
    metrics.push(("sum_of_write_mb_s".to_owned(), sum(|thread| thread.counts.written_bytes)));
    latencies(&mut metrics, "", &outcome.latency);
    metrics.push(("cpu_s".to_owned(), outcome.cpu_busy.as_secs_f64()));
    metrics.push(("system_cpu_pct".to_owned(), 100.0 * per_second(outcome.cpu_busy.as_secs_f64(), outcome.elapsed)));
    if run.plan.job.opening.is_some() {
        let opening = &outcome.opening;
        metrics.push(("open_races".to_owned(), f64::from(u8::from(opening.raced))));
        metrics.push(("stale_pages".to_owned(), opening.stale_pages as f64));
    }
    for figure in &variant.shape.figures {
        if let Some(totals) = outcome.jobs.get(figure.line) {
            metrics.push((figure.name.clone(), (figure.of)(totals)));
        }
    }
    for (name, totals) in variant.shape.lines.iter().zip(&outcome.jobs) {
        let time = measured(totals, warmup);
        metrics.push((format!("{name}.elapsed_s"), totals.end.saturating_sub(totals.start).as_secs_f64()));
        rates(&mut metrics, &format!("{name}."), &totals.counts, time);
        for (direction, histogram) in ["read", "write", "sync"].iter().zip(&totals.latency) {
            latencies(&mut metrics, &format!("{name}.{direction}_"), histogram);
        }
    }
    metrics.retain(|(_, value)| value.is_finite());
    metrics
}

/// A metric over several runs.
#[derive(Clone, Debug, PartialEq)]
struct Spread {
    mean: f64,
    min: f64,
    max: f64,
    /// If the runs fall into two groups, of which the mean describes neither.
    modes: Option<[Mode; 2]>,
}

/// The metrics of all runs of a variant.
fn spreads(request: &RunRequest, runs: &[Finished], variant: usize) -> Vec<(String, Spread)> {
    let mut found: Vec<(String, Vec<f64>)> = Vec::new();
    for run in runs.iter().filter(|run| run.variant == variant) {
        for (name, value) in metrics(&request.variants[variant], run) {
            match found.iter_mut().find(|(known, _)| *known == name) {
                Some((_, values)) => values.push(value),
                None => found.push((name, vec![value])),
            }
        }
    }
    let spread = |values: &[f64]| Spread {
        mean: values.iter().sum::<f64>() / values.len() as f64,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        modes: modes::two(values),
    };
    found.into_iter().map(|(name, values)| (name, spread(&values))).collect()
}

/// A name for a run that another run has only if it is the same one.
fn run_id(request: &RunRequest, variant: &Variant, run: &Finished) -> String {
    let parts = [
        request.job.join("\u{0}"),
        variant.label.clone(),
        variant.on.clone(),
        variant.disk.clone().unwrap_or_default(),
        run.seed.to_string(),
        measure::hash(run.outcome.event_hash),
    ];
    // FNV-1a, with the parts apart from one another.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in parts.join("\u{1}").bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    measure::hash(hash)
}

/// The JSON report.
pub fn json(request: &RunRequest, runs: &[Finished], warnings: &Problems) -> Value {
    let warnings: Vec<&str> = warnings.list.iter().map(|problem| problem.message.as_str()).collect();
    let shown: Vec<Value> = runs
        .iter()
        .map(|run| {
            let variant = &request.variants[run.variant];
            let metrics: Map<String, Value> =
                metrics(variant, run).into_iter().map(|(name, value)| (name, json!(value))).collect();
            let opening = &run.outcome.opening;
            json!({
                "run_id": run_id(request, variant, run),
                "label": variant.label,
                "where": format!("sim:{}", run.plan.stack.describe()),
                "disk": run.plan.stack.device.entry.name,
                "seed": run.seed,
                "event_hash": measure::hash(run.outcome.event_hash),
                "events": run.outcome.nr_events,
                "metrics": metrics,
                "layers": measure::layers(&run.outcome.layers),
                "device": measure::device(&run.outcome.device),
                "opening": {
                    "raced": opening.raced,
                    "probes": opening.probes,
                    "stale_pages": opening.stale_pages,
                },
                "warnings": warnings,
            })
        })
        .collect();
    let summary: Vec<Value> = request
        .variants
        .iter()
        .enumerate()
        .map(|(number, variant)| {
            let metrics: Map<String, Value> = spreads(request, runs, number)
                .into_iter()
                .map(|(name, spread)| {
                    let modes = modes::json(spread.modes.as_ref());
                    (name, json!({ "mean": spread.mean, "min": spread.min, "max": spread.max, "modes": modes }))
                })
                .collect();
            json!({ "label": variant.label, "on": variant.on, "runs": request.repeat, "metrics": metrics })
        })
        .collect();
    json!({ "schema": "iowhy.run/1", "job": request.job, "runs": shown, "summary": summary })
}

/// The text report: a run in detail, or several as mean and range.
pub fn text(request: &RunRequest, runs: &[Finished], bold: fn(&str) -> String) -> String {
    let mut out = String::new();
    let mut first = true;
    for (number, variant) in request.variants.iter().enumerate() {
        if !std::mem::take(&mut first) {
            out.push('\n');
        }
        let mut own = runs.iter().filter(|run| run.variant == number);
        // Writing to a string cannot fail.
        let _ = match (own.next(), request.repeat) {
            (Some(run), 1) => detail(&mut out, request, variant, run, bold),
            (Some(run), _) => summary(&mut out, request, variant, run, &spreads(request, runs, number), bold),
            (None, _) => Ok(()),
        };
    }
    out
}

fn heading(
    out: &mut String,
    request: &RunRequest,
    variant: &Variant,
    run: &Finished,
    bold: fn(&str) -> String,
) -> std::fmt::Result {
    let stack = &run.plan.stack;
    writeln!(out, "{}", bold(&request.job.join(" ")))?;
    writeln!(out, "on sim:{}, disk {}", stack.describe(), stack.device.entry.name)?;
    if variant.label != variant.on {
        writeln!(out, "label {}", variant.label)?;
    }
    Ok(())
}

/// Nanoseconds with a unit that suits them.
fn time(ns: f64) -> String {
    match ns {
        ns if ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} us", ns / 1e3),
    }
}

fn detail(
    out: &mut String,
    request: &RunRequest,
    variant: &Variant,
    run: &Finished,
    bold: fn(&str) -> String,
) -> std::fmt::Result {
    heading(out, request, variant, run, bold)?;
    let outcome = &run.outcome;
    writeln!(out, "seed {}, event hash {}\n", run.seed, measure::hash(outcome.event_hash))?;
    for (nr, (name, totals)) in variant.shape.lines.iter().zip(&outcome.jobs).enumerate() {
        let threads = run.plan.job.workload.threads().iter().filter(|thread| thread.job as usize == nr).count();
        let elapsed = totals.end.saturating_sub(totals.start).as_secs_f64();
        writeln!(out, "{name}: {}, {elapsed:.3} s", text::count(threads as u64, "thread", "threads"))?;
        line(out, totals, run.plan.job.warmup)?;
    }
    for figure in &variant.shape.figures {
        if let Some(totals) = outcome.jobs.get(figure.line) {
            writeln!(out, "{:<24}{:.1}", figure.name, (figure.of)(totals))?;
        }
    }
    if outcome.threads.len() > 1 {
        let elapsed = mean(outcome.threads.iter().map(|thread| thread.elapsed().as_secs_f64()));
        writeln!(out, "all: {:.3} s, mean of the threads {elapsed:.3} s", outcome.elapsed.as_secs_f64())?;
    }
    device(out, &outcome.layers)?;
    layers(out, outcome)
}

fn line(out: &mut String, totals: &JobTotals, warmup: Nanos) -> std::fmt::Result {
    let time_of = measured(totals, warmup);
    let counts = &totals.counts;
    let parts = [("read", counts.reads, counts.read_bytes), ("write", counts.writes, counts.written_bytes)];
    for ((name, calls, bytes), histogram) in parts.iter().zip(&totals.latency) {
        if *calls == 0 {
            continue;
        }
        let rate = per_second(*bytes as f64, time_of);
        let calls = per_second(*calls as f64, time_of);
        writeln!(out, "  {name:<6}{:.2} MB/s ({:.2} MiB/s), {calls:.1} IOPS", rate / 1e6, rate / MIB)?;
        latency(out, histogram)?;
    }
    if counts.syncs > 0 {
        writeln!(out, "  sync  {:.1} a second", per_second(counts.syncs as f64, time_of))?;
        latency(out, &totals.latency[2])?;
    }
    Ok(())
}

fn latency(out: &mut String, histogram: &Histogram) -> std::fmt::Result {
    writeln!(
        out,
        "        latency mean {}, p50 {}, p99 {}, max {}",
        time(measure::mean(histogram)),
        time(measure::quantile(histogram, 50) as f64),
        time(measure::quantile(histogram, 99) as f64),
        time(measure::largest(histogram) as f64)
    )
}

fn device(out: &mut String, layers: &Layers) -> std::fmt::Result {
    let row = layers.iostat();
    writeln!(out, "\ndevice (iostat -x)")?;
    for (letter, dir) in [("r", &row.read), ("w", &row.write)] {
        let names = ["/s", "kB/s", "rqm/s"].map(|name| format!("{letter}{name}"));
        let names =
            names.into_iter().chain([format!("%{letter}rqm"), format!("{letter}_await"), format!("{letter}areq-sz")]);
        writeln!(out, "  {}", names.map(|name| format!("{name:>12}")).collect::<String>())?;
        let values = [dir.per_s, dir.kb_per_s, dir.rqm_per_s, dir.rqm_pct, dir.await_ms, dir.areq_sz_kb];
        writeln!(out, "  {}", values.map(|value| format!("{value:>12.2}")).concat())?;
    }
    writeln!(out, "  {:>12}{:>12}{:>12}", "aqu-sz", "%util", "svctm")?;
    writeln!(out, "  {:>12.2}{:>12.2}{:>12.2}", row.aqu_sz, row.util_pct, row.svctm_ms)
}

fn layers(out: &mut String, outcome: &Outcome) -> std::fmt::Result {
    let layers = &outcome.layers;
    let grouped = text::grouped;
    let [sync, asynchronous, force, single, around, exec, huge] = layers.windows;
    let [hit, broken, timeout] = layers.idles;
    writeln!(out, "\nlayers")?;
    writeln!(
        out,
        "  page cache   {} hits, {} misses, {} pages added, {} written back",
        grouped(layers.hits),
        grouped(layers.misses),
        grouped(layers.pages_added),
        grouped(layers.writeback_pages)
    )?;
    writeln!(
        out,
        "  read-ahead   windows: {} sync, {} async, {} forced; {} single pages",
        grouped(sync),
        grouped(asynchronous),
        grouped(force),
        grouped(single)
    )?;
    let [minor, major] = layers.faults;
    if minor + major > 0 {
        writeln!(
            out,
            "  mappings     {} minor faults, {} major; windows: {} around a fault, {} huge or executable",
            grouped(minor),
            grouped(major),
            grouped(around),
            grouped(exec + huge)
        )?;
    }
    writeln!(
        out,
        "  requests     {} read, {} written; {} bios merged",
        grouped(layers.reads.completed),
        grouped(layers.writes.completed),
        grouped(layers.reads.merges + layers.writes.merges)
    )?;
    writeln!(
        out,
        "  elevator     waited {} times, {} in all ({} hit, {} broken, {} timed out)",
        grouped(hit + broken + timeout),
        time(layers.idle_time.0 as f64),
        grouped(hit),
        grouped(broken),
        grouped(timeout)
    )?;
    writeln!(
        out,
        "  device       {} seeks, mean depth {:.2}",
        grouped(layers.seeks),
        measure::finite(measure::mean(&layers.depth))
    )?;
    let opening = &outcome.opening;
    if opening.probes > 0 || opening.raced {
        let raced = if opening.raced { "two threads raced" } else { "no race" };
        writeln!(
            out,
            "  opening      {raced}, {}, {} left in the cache",
            text::count(u64::from(opening.probes), "probe", "probes"),
            text::count(opening.stale_pages, "page", "pages")
        )?;
    }
    if layers.commits > 0 {
        writeln!(
            out,
            "  journal      {}, {}",
            text::count(layers.commits, "commit", "commits"),
            text::count(layers.journal_blocks, "block", "blocks")
        )?;
    }
    writeln!(out, "  CPU          {:.3} s", outcome.cpu_busy.as_secs_f64())
}

fn summary(
    out: &mut String,
    request: &RunRequest,
    variant: &Variant,
    run: &Finished,
    spreads: &[(String, Spread)],
    bold: fn(&str) -> String,
) -> std::fmt::Result {
    heading(out, request, variant, run, bold)?;
    let last = request.seed + u64::from(request.repeat) - 1;
    writeln!(out, "{} runs, seeds {} to {last}\n", request.repeat, request.seed)?;
    let width = spreads.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(20);
    writeln!(out, "{:<width$} {:>14} {:>14} {:>14}", "", "mean", "min", "max")?;
    for (name, spread) in spreads.iter().filter(|(_, spread)| spread.max != 0.0) {
        writeln!(out, "{name:<width$} {:>14.3} {:>14.3} {:>14.3}", spread.mean, spread.min, spread.max)?;
    }
    let mut modal = spreads.iter().filter_map(|(name, spread)| Some((name, spread.modes.as_ref()?))).peekable();
    if modal.peek().is_some() {
        writeln!(out, "\n{}", bold("two modes: the mean describes neither"))?;
    }
    for (name, [low, high]) in modal {
        writeln!(
            out,
            "{name:<width$} {} runs at {:.3}, {} at {:.3}",
            low.members.len(),
            low.mean,
            high.members.len(),
            high.mean
        )?;
    }
    Ok(())
}
