//! The final report of runs: metrics, text, JSON (`iowhy.run/1`).
//!
//! Metrics are flat numbers with their unit in the name. Those of a line of the report have its name and a point in
//! front. Rates are over the time in which their threads worked, without the warm-up. Several runs are shown as mean
//! and range: a mean alone would not say whether two of them differ. Several places are set side by side at the end.
//! Figures that only a real run has (pages cached before and after, CPU time and context switches of each call, the
//! harness's own cost) are metrics of it; those that only a simulated one has (layers, the events' hash) are null
//! there.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::backend::Audience;
use super::{Finished, RunRequest, Until, Variant, design, own_report};
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
fn spreads(runs: &[Finished], variant: usize) -> Vec<(String, Spread)> {
    let mut found: Vec<(String, Vec<f64>)> = Vec::new();
    for run in runs.iter().filter(|run| run.slot.variant == variant && !run.slot.warm_up) {
        for (name, value) in &run.record.metrics {
            match found.iter_mut().find(|(known, _)| known == name) {
                Some((_, values)) => values.push(*value),
                None => found.push((name.clone(), vec![*value])),
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
    let record = &run.record;
    let nr = format!("{nr}/{:?}", record.began.map(|since| since.as_nanos()));
    let parts = [
        request.job.join("\u{0}"),
        variant.label.clone(),
        variant.on.clone(),
        variant.disk.clone().unwrap_or_default(),
        run.slot.seed.to_string(),
        record.events.map_or(nr, |(hash, _)| figure::hash(hash)),
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
            let record = &run.record;
            let metrics: Map<String, Value> =
                record.metrics.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
            let own = record.notes.iter().filter(|note| note.audience == Audience::Report);
            let own = own.map(|note| note.problem.message.as_str());
            let warnings: Vec<&str> = warnings.iter().copied().chain(own).collect();
            let mut shown = json!({
                "run_id": run_id(request, nr, run),
                "label": variant.label,
                "where": record.place,
                "disk": record.disk,
                "seed": run.slot.seed,
                "block": run.slot.block,
                "position": run.slot.position,
                "warm_up": run.slot.warm_up,
                "stored": run.id.is_some(),
                "event_hash": record.events.map(|(hash, _)| figure::hash(hash)),
                "events": record.events.map(|(_, nr_events)| nr_events),
                "metrics": metrics,
                "layers": record.layers,
                "device": record.device,
                "opening": record.opening,
                "warnings": warnings,
            });
            if let Some(shown) = shown.as_object_mut() {
                shown.extend(record.more.clone());
            }
            shown
        })
        .collect();
    let summary: Vec<Value> = request
        .variants
        .iter()
        .enumerate()
        .map(|(number, variant)| {
            let metrics: Map<String, Value> = spreads(runs, number)
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
    let mut report = json!({
        "schema": "iowhy.run/1",
        "job": request.job,
        "runs": shown,
        "summary": summary,
        "design": design_json(request, runs),
    });
    if request.own.is_some() {
        let compared = own_report::comparisons(request, runs);
        report["comparisons"] = compared.iter().map(iowhy_compare::json::compare).collect();
    }
    report
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
    if request.own.is_some() {
        out.push_str(&own_report::text(request, runs, bold));
    }
    for (number, variant) in request.variants.iter().enumerate().filter(|_| request.own.is_none()) {
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
            (Some(run), _) => summary(&mut out, request, variant, run, &spreads(runs, number), bold),
            (None, _) => Ok(()),
        };
    }
    if request.variants.len() > 1 && request.own.is_none() {
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

/// The stopping rule's words on the runs.
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
            true => writeln!(out, "  {label}: {of} within +-{:.2} % (level 99 %)", known.half_width_pct)?,
            false => writeln!(out, "  {label}: {of} not bounded by this few runs (level 99 %)")?,
        }
    }
    Ok(())
}

/// The places side by side: means of the metrics that most of them have.
fn side_by_side(
    out: &mut String,
    request: &RunRequest,
    runs: &[Finished],
    bold: fn(&str) -> String,
) -> std::fmt::Result {
    let tables: Vec<Vec<(String, Spread)>> = (0..request.variants.len()).map(|number| spreads(runs, number)).collect();
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
    let width = longest.clamp(20, iowhy_text::width() - 16);
    let columns = ((iowhy_text::width() - width) / 15).max(1);
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
    for line in text::wrap(&request.job.join(" "), iowhy_text::width()) {
        writeln!(out, "{}", bold(&line))?;
    }
    writeln!(out, "on {}", run.record.made_on)?;
    if variant.label != variant.on {
        writeln!(out, "label {}", variant.label)?;
    }
    Ok(())
}

fn detail(
    out: &mut String,
    request: &RunRequest,
    variant: &Variant,
    run: &Finished,
    bold: fn(&str) -> String,
) -> std::fmt::Result {
    heading(out, request, variant, run, bold)?;
    out.push_str(&run.record.detail);
    Ok(())
}

/// Messages about runs for the user.
pub fn told(runs: &[Finished]) -> Problems {
    let mut told = Problems::default();
    for note in runs.iter().flat_map(|run| &run.record.notes) {
        match note.audience {
            Audience::Store => {}
            Audience::Report if told.list.contains(&note.problem) => {}
            Audience::Each | Audience::Report => told.push(note.problem.clone()),
        }
    }
    told
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
