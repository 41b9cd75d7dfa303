//! What runs say at their end: metrics, text, JSON (`iowhy.run/1`).
//!
//! Metrics are flat numbers with their unit in the name. Those of a line of the report have its name and a point in
//! front. Rates are over the time in which their threads worked, without the warm-up. Several runs are shown as mean
//! and range: a mean alone would not say whether two of them differ. Several places are set side by side at the end.
//! What only a real run has (pages cached before and after, CPU time and context switches of each call, the harness's
//! own cost) are metrics of it; what only a simulated one has (layers, the events' hash) is null there.

use std::fmt::Write;

use iowhy_stack::histogram::Histogram;
use iowhy_stack::layers::Layers;
use iowhy_stack::outcome::{JobTotals, Outcome};
use iowhy_stack::units::Nanos;
use serde_json::{Map, Value, json};

use super::metrics::{MIB, Metrics, mean, measured, metrics, of_machine, per_second};
use super::{Finished, Made, RunRequest, Until, Variant, design};
use crate::on_kernel;
use crate::on_kernel::Live;
use crate::simulated_json;
use iowhy_stats::figure;
use iowhy_stats::modes::{self, Mode};
use iowhy_text as text;
use iowhy_text::diagnose::Problems;

/// A metric over several runs.
#[derive(Clone, Debug, PartialEq)]
struct Spread {
    n: usize,
    mean: f64,
    min: f64,
    max: f64,
    /// If the runs fall into two groups, of which the mean describes neither.
    modes: Option<[Mode; 2]>,
}

/// The metrics of all runs of a variant.
fn spreads(request: &RunRequest, runs: &[Finished], variant: usize) -> Vec<(String, Spread)> {
    let mut found: Vec<(String, Vec<f64>)> = Vec::new();
    for run in runs.iter().filter(|run| run.slot.variant == variant && !run.slot.warm_up) {
        for (name, value) in metrics(&request.variants[variant], run) {
            match found.iter_mut().find(|(known, _)| *known == name) {
                Some((_, values)) => values.push(value),
                None => found.push((name, vec![value])),
            }
        }
    }
    let spread = |values: &[f64]| Spread {
        n: values.len(),
        mean: values.iter().sum::<f64>() / values.len() as f64,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        modes: modes::two(values),
    };
    found.into_iter().map(|(name, values)| (name, spread(&values))).collect()
}

/// Runs of a variant that count.
fn counted(runs: &[Finished], variant: usize) -> usize {
    runs.iter().filter(|run| run.slot.variant == variant && !run.slot.warm_up).count()
}

/// The id of a run: that of the store, or a name that another run has only if it is the same one.
fn run_id(request: &RunRequest, nr: usize, run: &Finished) -> String {
    if let Some(id) = &run.id {
        return id.0.clone();
    }
    let variant = &request.variants[run.slot.variant];
    // Real runs have no hash of events: when they were made, and the how manieth they were, tells them apart.
    let started = match &run.made {
        Made::Live(live) => live.outcome.started.duration_since(std::time::UNIX_EPOCH).ok(),
        Made::Program(ran) => ran.started.duration_since(std::time::UNIX_EPOCH).ok(),
        Made::Guest(_) => Some(std::time::Duration::from_nanos(run.started_ns)),
        Made::Simulated(_) => None,
    };
    let nr = format!("{nr}/{:?}", started.map(|since| since.as_nanos()));
    let parts = [
        request.job.join("\u{0}"),
        variant.label.clone(),
        variant.on.clone(),
        variant.disk.clone().unwrap_or_default(),
        run.slot.seed.to_string(),
        run.made.simulated().map_or_else(|| nr.to_string(), |outcome| figure::hash(outcome.event_hash)),
    ];
    // FNV-1a, with the parts apart from one another.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in parts.join("\u{1}").bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    figure::hash(hash)
}

/// The JSON report.
pub fn json(request: &RunRequest, runs: &[Finished], warnings: &Problems) -> Value {
    let warnings: Vec<&str> = warnings.list.iter().map(|problem| problem.message.as_str()).collect();
    let shown: Vec<Value> = runs
        .iter()
        .enumerate()
        .map(|(nr, run)| {
            let variant = &request.variants[run.slot.variant];
            let metrics: Map<String, Value> =
                metrics(variant, run).into_iter().map(|(name, value)| (name, json!(value))).collect();
            let simulated = run.made.simulated();
            let stack = match &run.made {
                Made::Simulated(made) => Some(&made.0.stack),
                Made::Live(_) | Made::Program(_) | Made::Guest(_) => None,
            };
            let guest = match &run.made {
                Made::Guest(guest) => Some(guest),
                Made::Simulated(_) | Made::Live(_) | Made::Program(_) => None,
            };
            let own = guest.iter().flat_map(|guest| &guest.warnings).map(String::as_str);
            let warnings: Vec<&str> = warnings.iter().copied().chain(own).collect();
            let place = match (stack, guest) {
                (Some(stack), _) => format!("sim:{}", stack.describe()),
                (None, Some(_)) => variant.on.clone(),
                (None, None) => "live".to_owned(),
            };
            let disk = stack.map(|stack| stack.device.entry.name);
            let disk = disk.or(variant.disk.as_deref().filter(|_| guest.is_some()));
            let opening = simulated.map(|outcome| {
                let opening = &outcome.opening;
                json!({ "raced": opening.raced, "probes": opening.probes, "stale_pages": opening.stale_pages })
            });
            let mut shown = json!({
                "run_id": run_id(request, nr, run),
                "label": variant.label,
                "where": place,
                "disk": disk,
                "seed": run.slot.seed,
                "block": run.slot.block,
                "position": run.slot.position,
                "warm_up": run.slot.warm_up,
                "stored": run.id.is_some(),
                "event_hash": simulated.map(|outcome| figure::hash(outcome.event_hash)),
                "events": simulated.map(|outcome| outcome.nr_events),
                "metrics": metrics,
                "layers": simulated.map(|outcome| simulated_json::layers(&outcome.layers)),
                "device": simulated.map(|outcome| simulated_json::device(&outcome.device)),
                "opening": opening,
                "warnings": warnings,
            });
            match &run.made {
                Made::Simulated(_) => {}
                Made::Live(live) => shown["live"] = live.json(),
                Made::Program(ran) => {
                    shown["live"] = json!({ "interrupted": ran.interrupted, "command": ran.command });
                }
                Made::Guest(guest) => {
                    shown["live"] = guest.live.clone();
                    shown["guest"] = guest.json();
                }
            }
            shown
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
                    let modes = simulated_json::modes(spread.modes.as_ref());
                    (name, json!({ "mean": spread.mean, "min": spread.min, "max": spread.max, "modes": modes }))
                })
                .collect();
            let made = counted(runs, number);
            json!({ "label": variant.label, "on": variant.on, "runs": made, "metrics": metrics })
        })
        .collect();
    json!({
        "schema": "iowhy.run/1",
        "job": request.job,
        "runs": shown,
        "summary": summary,
        "design": design_json(request, runs),
    })
}

/// In which order the runs were made, and whether there are enough of them.
fn design_json(request: &RunRequest, runs: &[Finished]) -> Value {
    let precision = request.until.and_then(|until| {
        let precision = design::precision(request, runs, until.pct)?;
        let places: Vec<Value> = precision
            .places
            .iter()
            .map(|known| {
                let half = known.half_width_pct;
                json!({
                    "label": known.label,
                    "runs": known.runs,
                    // JSON has no infinite numbers: null is an interval that has no end.
                    "half_width_pct": half.is_finite().then_some(half),
                    "runs_needed": known.more,
                })
            })
            .collect();
        Some(json!({
            "metric": precision.metric,
            "level": design::LEVEL,
            "wanted_pct": precision.pct,
            "reached": precision.reached(),
            "runs_needed": precision.more(),
            "places": places,
        }))
    });
    json!({
        "order_seed": request.seed,
        "blocks": runs.iter().map(|run| run.slot.block + 1).max().unwrap_or(0),
        "warm_up_blocks": request.warm_up,
        "budget": request.until.map(|until| until.budget),
        "precision": precision,
    })
}

/// The text report: a run in detail, or several as mean and range.
pub fn text(request: &RunRequest, runs: &[Finished], bold: fn(&str) -> String) -> String {
    let mut out = String::new();
    for (number, variant) in request.variants.iter().enumerate() {
        // If a signal came before one that counts, what there is is shown.
        let mut own: Vec<&Finished> = runs.iter().filter(|run| run.slot.variant == number).collect();
        if counted(runs, number) > 0 {
            own.retain(|run| !run.slot.warm_up);
        }
        if !own.is_empty() && !out.is_empty() {
            out.push('\n');
        }
        // Writing to a string cannot fail.
        let _ = match (own.first(), request.blocks() - u64::from(request.warm_up)) {
            (Some(run), _) if run.slot.warm_up => detail(&mut out, request, variant, run, bold),
            (Some(run), 1) => detail(&mut out, request, variant, run, bold),
            (Some(run), _) => summary(&mut out, request, variant, run, &spreads(request, runs, number), bold),
            (None, _) => Ok(()),
        };
    }
    if request.variants.len() > 1 {
        let _ = side_by_side(&mut out, request, runs, bold);
    }
    if let Some(until) = request.until {
        let _ = enough(&mut out, request, runs, until);
    }
    if let Some(keep) = request.keep.as_ref().filter(|_| runs.iter().any(|run| run.id.is_some())) {
        let stored = runs.iter().filter(|run| run.id.is_some()).count();
        let kept = text::count(stored as u64, "run", "runs");
        let _ = writeln!(out, "\n{kept} kept in {}", keep.directory.display());
    }
    out
}

/// What the stopping rule says of the runs that were made.
fn enough(out: &mut String, request: &RunRequest, runs: &[Finished], until: Until) -> std::fmt::Result {
    let made = (0..request.variants.len()).map(|number| counted(runs, number)).max().unwrap_or(0);
    let mut sentence = format!("\n{} made", text::count(made as u64, "run", "runs"));
    if request.variants.len() > 1 {
        sentence.push_str(" on each");
    }
    let Some(precision) = design::precision(request, runs, until.pct) else {
        return writeln!(out, "{sentence}; they have no metric that tells whether they are enough");
    };
    match precision.more() {
        Some(0) => sentence.push_str(&format!("; enough to see {} %", until.pct)),
        Some(more) => sentence.push_str(&format!("; {more} more needed to see {} %", until.pct)),
        None => sentence.push_str(&format!("; too few to tell how many it takes to see {} %", until.pct)),
    }
    writeln!(out, "{sentence} of {}", precision.metric)?;
    for known in &precision.places {
        let of = if request.variants.len() > 1 { "shift from the first place" } else { "median" };
        let label = &known.label;
        match known.half_width_pct.is_finite() {
            true => writeln!(out, "  {label}: {of} known to +-{:.2} % (level 99 %)", known.half_width_pct)?,
            false => writeln!(out, "  {label}: {of} not bounded by so few runs (level 99 %)")?,
        }
    }
    Ok(())
}

/// Columns that fit beside the names.
const WIDTH: usize = 80;

/// The places beside one another: means of what most of them have.
fn side_by_side(
    out: &mut String,
    request: &RunRequest,
    runs: &[Finished],
    bold: fn(&str) -> String,
) -> std::fmt::Result {
    let tables: Vec<Vec<(String, Spread)>> =
        (0..request.variants.len()).map(|number| spreads(request, runs, number)).collect();
    let mut names: Vec<&String> = Vec::new();
    for (name, spread) in tables.iter().flatten() {
        let line = name.split_once('.').map_or(name.as_str(), |(_, metric)| metric);
        let wanted = matches!(
            line,
            "elapsed_s"
                | "mean_process_elapsed_s"
                | "read_mib_s"
                | "write_mib_s"
                | "read_iops"
                | "write_iops"
                | "syncs_per_s"
                | "mean_ns"
                | "p50_ns"
                | "p99_ns"
                | "cpu_s"
                | "tps"
                | "seeks_per_s"
        ) || line.ends_with("_k_s")
            || line.ends_with("_p99_ns");
        if wanted && spread.mean != 0.0 && !names.contains(&name) {
            names.push(name);
        }
    }
    writeln!(out, "\n{}", bold("side by side (means)"))?;
    let letter = |nr: usize| format!("[{}]", nr + 1);
    for (nr, variant) in request.variants.iter().enumerate() {
        writeln!(out, "{} {}", letter(nr), variant.label)?;
    }
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let width = longest.clamp(20, WIDTH - 16);
    let columns = ((WIDTH - width) / 15).max(1);
    for first in (0..tables.len()).step_by(columns) {
        let shown = first..tables.len().min(first + columns);
        let heads: String = shown.clone().map(|nr| format!("{:>15}", letter(nr))).collect();
        writeln!(out, "{:<width$}{heads}", "")?;
        for name in &names {
            let cells: String = shown
                .clone()
                .map(|nr| {
                    let found = tables[nr].iter().find(|(known, _)| known == *name);
                    found.map_or_else(|| format!("{:>15}", "-"), |(_, spread)| format!("{:>15.3}", spread.mean))
                })
                .collect();
            writeln!(out, "{name:<width$}{cells}")?;
        }
    }
    Ok(())
}

fn heading(
    out: &mut String,
    request: &RunRequest,
    variant: &Variant,
    run: &Finished,
    bold: fn(&str) -> String,
) -> std::fmt::Result {
    for line in text::wrap(&request.job.join(" "), WIDTH) {
        writeln!(out, "{}", bold(&line))?;
    }
    match &run.made {
        Made::Simulated(made) => {
            let stack = &made.0.stack;
            writeln!(out, "on sim:{}, disk {}", stack.describe(), stack.device.entry.name)?;
        }
        Made::Live(live) => writeln!(out, "on live, {}", place(live))?,
        Made::Program(ran) => writeln!(out, "on live, {}: {}", on_kernel::machine::kernel(), ran.command.join(" "))?,
        Made::Guest(guest) => {
            let disk = variant.disk.as_ref().map_or_else(|| "an image".to_owned(), |disk| format!("disk {disk}"));
            let accelerator = guest.brought.accelerator.name();
            writeln!(out, "on {}, Linux {} under QEMU ({accelerator}), {disk}", variant.on, guest.release())?;
        }
    }
    if variant.label != variant.on {
        writeln!(out, "label {}", variant.label)?;
    }
    Ok(())
}

/// The kernel and the disk of a real run.
fn place(live: &Live) -> String {
    let mut words = vec![on_kernel::machine::kernel()];
    words.extend(live.modelled.iter().map(|state| format!("modelled {}", state.spec.model)));
    words.extend(live.disk.name.clone());
    words.extend(live.disk.filesystem.clone());
    words.extend(live.disk.queue.scheduler.clone());
    words.join(", ")
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
    match &run.made {
        Made::Simulated(made) => {
            writeln!(out, "seed {}, event hash {}\n", run.slot.seed, figure::hash(made.1.event_hash))?
        }
        Made::Live(live) if live.outcome.interrupted => {
            writeln!(out, "seed {}, ended early by a signal\n", run.slot.seed)?
        }
        Made::Live(_) => writeln!(out, "seed {}\n", run.slot.seed)?,
        Made::Program(ran) => {
            let early = if ran.interrupted { ", ended early by a signal" } else { "" };
            writeln!(out, "{:.3} s{early}\n", ran.elapsed.as_secs_f64())?;
            for (name, value) in &ran.figures {
                writeln!(out, "{name:<24}{value:.1}")?;
            }
        }
        Made::Guest(guest) => {
            let (boot, took) = (guest.brought.boot.as_secs_f64(), guest.brought.took.as_secs_f64());
            writeln!(out, "seed {}; booted in {boot:.1} s, {took:.1} s in all\n", run.slot.seed)?;
            let width = guest.metrics.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(20);
            for (name, value) in guest.metrics.iter().filter(|(_, value)| *value != 0.0) {
                writeln!(out, "{name:<width$} {value:>16.3}")?;
            }
        }
    }
    let Some(totals) = run.made.totals() else { return Ok(()) };
    let specs = totals.job.workload.threads();
    for (nr, (name, of_line)) in variant.shape.lines.iter().zip(totals.lines).enumerate() {
        let threads = specs.iter().filter(|thread| thread.job as usize == nr).count();
        let elapsed = of_line.end.saturating_sub(of_line.start).as_secs_f64();
        writeln!(out, "{name}: {}, {elapsed:.3} s", text::count(threads as u64, "thread", "threads"))?;
        line(out, of_line, totals.job.warmup)?;
    }
    for figure in &variant.shape.figures {
        if let Some(of_line) = totals.lines.get(figure.line) {
            writeln!(out, "{:<24}{:.1}", figure.name, (figure.of)(of_line))?;
        }
    }
    if totals.threads.len() > 1 {
        let elapsed = mean(totals.threads.iter().map(|thread| thread.elapsed().as_secs_f64()));
        writeln!(out, "all: {:.3} s, mean of the threads {elapsed:.3} s", totals.elapsed.as_secs_f64())?;
    }
    match &run.made {
        Made::Simulated(made) => {
            device(out, &made.1.layers)?;
            layers(out, &made.1)
        }
        Made::Live(live) => machine(out, live),
        Made::Program(_) | Made::Guest(_) => Ok(()),
    }
}

/// What the machine says of a real run.
fn machine(out: &mut String, live: &Live) -> std::fmt::Result {
    let mut metrics = Metrics::new();
    of_machine(&mut metrics, live);
    let of = |name: &str| metrics.iter().find(|(known, _)| known == name).map_or(0.0, |(_, value)| *value);
    writeln!(out, "\nmachine")?;
    writeln!(
        out,
        "  page cache   {}: {} pages of the files before, {} after",
        on_kernel::cache_name(live.plan.cache),
        text::grouped(of("resident_pages_before") as u64),
        text::grouped(of("resident_pages_after") as u64)
    )?;
    write!(out, "  CPU          {:.3} s, {} for each call", live.cpu_s(), time(of("cpu_ns_per_io")))?;
    match live.outcome.harness_ns {
        Some(harness) => writeln!(out, "; the harness itself takes {}", time(harness))?,
        None => writeln!(out)?,
    }
    writeln!(
        out,
        "  switches     {} because it waited, {} because others had to run",
        text::grouped(of("voluntary_switches") as u64),
        text::grouped(of("involuntary_switches") as u64)
    )?;
    let odd = [("short_calls", "calls moved less than asked for"), ("failed_calls", "calls failed")];
    for (name, words) in odd.iter().filter(|(name, _)| of(name) > 0.0) {
        writeln!(out, "  {:<12} {} {words}", "", text::grouped(of(name) as u64))?;
    }
    for disk in &live.disks {
        writeln!(
            out,
            "  {:<12} {} reads, {} writes, {:.0} % busy (set-up included)",
            disk.name,
            text::grouped(disk.ios[0]),
            text::grouped(disk.ios[1]),
            disk.util_pct
        )?;
    }
    Ok(())
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
        time(figure::mean(histogram)),
        time(figure::quantile(histogram, 50) as f64),
        time(figure::quantile(histogram, 99) as f64),
        time(figure::largest(histogram) as f64)
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
        figure::finite(figure::mean(&layers.depth))
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
    // A signal, or a place that refuses, may have left some out; a stopping rule may have made more or fewer.
    let made = spreads.iter().map(|(_, spread)| spread.n).max().unwrap_or(0) as u64;
    let meant = request.blocks() - u64::from(request.warm_up);
    let of = if made == meant { String::new() } else { format!("{made} of ") };
    let most = if request.until.is_some() { "at most " } else { "" };
    let last = request.seed + if request.until.is_some() { made } else { meant }.saturating_sub(1);
    let warm = match request.warm_up {
        0 => String::new(),
        n => format!(", after {} to warm up", text::count(u64::from(n), "run", "runs")),
    };
    writeln!(out, "{of}{most}{meant} runs, seeds {} to {last}{warm}\n", request.seed)?;
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
