//! A history for people, 80 columns wide, and as JSON: `iowhy.history/1`.
//!
//! Values that are not finite are `null`. Names come from files and command lines; nothing of them reaches a terminal
//! that is not fit to be shown.

use std::fmt::Write;

use serde_json::{Value, json};

use iowhy_stats::change_points::{Neighbours, SHORT};

use super::{Change, History, METHODS, Search, Traced, Verdict};
use crate::drawn;
use iowhy_text::picture;
use iowhy_text::{count, wrap};
use iowhy_text::{quantity, shown};

/// The document.
pub fn json(history: &History) -> Value {
    let settings = &history.settings;
    let flat = |traced: &Traced| {
        let points = traced.changes.iter().map(|change| with_series(traced, point(change)));
        points.collect::<Vec<_>>()
    };
    json!({
        "schema": "iowhy.history/1",
        "verdict": history.verdict.word(),
        "alpha": settings.alpha,
        "min_change_pct": settings.min_change_pct,
        "min_segment": settings.min_segment,
        "permutations": history.permutations,
        "seed": settings.seed,
        "methods": METHODS.iter().map(|m| json!({ "name": m.name, "reference": m.reference })).collect::<Vec<_>>(),
        "series": history.series.iter().map(series).collect::<Vec<_>>(),
        "points": history.series.iter().flat_map(flat).collect::<Vec<_>>(),
    })
}

fn finite(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { Value::Null }
}

fn point(change: &Change) -> Value {
    json!({
        "index": change.index,
        "run_id": change.run_id,
        "started_ns": change.started_ns,
        "change_pct": finite(change.change_pct),
        "ci_low_pct": finite(change.ci_pct.0),
        "ci_high_pct": finite(change.ci_pct.1),
        "p": finite(change.p),
        "before": finite(change.before),
        "after": finite(change.after),
        "direction": direction(change.worse),
    })
}

/// The same, with the series it is of.
fn with_series(traced: &Traced, mut point: Value) -> Value {
    point["metric"] = json!(traced.series.metric.name);
    point["machine"] = json!(traced.series.machine);
    point["job"] = json!(traced.series.job);
    point["where"] = json!(traced.series.place);
    point
}

fn direction(worse: bool) -> &'static str {
    if worse { "worse" } else { "better" }
}

fn series(traced: &Traced) -> Value {
    let series = &traced.series;
    let drift = traced.drift.map(|drift| {
        json!({
            "from": drift.from,
            "p": finite(drift.p),
            "slope": finite(drift.slope),
            "change_pct": finite(drift.change_pct),
            "direction": direction(drift.worse),
        })
    });
    let warnings = traced.warnings.iter();
    let warnings = warnings.map(|w| json!({ "kind": w.word(), "text": w.text(), "next": w.next() }));
    json!({
        "metric": series.metric.name,
        "unit": series.metric.unit,
        "better": series.metric.better.word(),
        "machine": series.machine,
        "job": series.job,
        "where": series.place,
        "n": series.points.len(),
        "method": traced.search.word(),
        "neighbours": traced.neighbours.word(),
        "p": finite(traced.p),
        "p_adjusted": finite(traced.p_adjusted),
        "tested": traced.tested,
        "points": traced.changes.iter().map(point).collect::<Vec<_>>(),
        "drift": drift,
        "warnings": warnings.collect::<Vec<_>>(),
    })
}

pub fn text(history: &History, bold: fn(&str) -> String) -> String {
    let settings = &history.settings;
    let mut text = String::new();
    let _ = writeln!(text, "{}", bold(&summary(history)));
    for traced in &history.series {
        text.push('\n');
        one(&mut text, traced, history, bold);
    }
    text.push('\n');
    let mut how = format!(
        "A change has p <= {} and is at least {} % of {} runs or more; p over {} are adjusted (Benjamini-Hochberg).",
        settings.alpha,
        settings.min_change_pct,
        settings.min_segment,
        count(history.series.len() as u64, "series", "series"),
    );
    if history.permutations > 0 {
        let _ = write!(how, " {} random orders a test, seed {}.", history.permutations, settings.seed);
    }
    let orders = |neighbours| move |t: &&Traced| t.tested && t.search != Search::Windowed && t.neighbours == neighbours;
    if history.series.iter().find(orders(Neighbours::Independent)).is_some() {
        let _ = write!(how, " Runs count as independent; t-tests help up to {SHORT} runs.");
    }
    if history.series.iter().find(orders(Neighbours::Alike)).is_some() {
        how.push_str(" Where neighbours are alike, orders are of what each run adds to the one before.");
    }
    if history.series.iter().any(|traced| traced.search == Search::Windowed) {
        how.push_str(" The p of windows are t-tests after a search: more false alarms than they say.");
    }
    paragraph(&mut text, "", &how);
    for method in METHODS {
        paragraph(&mut text, "  ", &format!("{}: {}", method.name, method.reference));
    }
    text
}

fn summary(history: &History) -> String {
    let worse = history.series.iter().filter(|t| t.changes.last().is_some_and(|change| change.worse)).count();
    let series = count(history.series.len() as u64, "series", "series");
    match history.verdict {
        Verdict::Worse => format!("{worse} of {series}: the newest runs are worse than those before."),
        Verdict::Fine => format!("{series}: no newest runs are worse than those before."),
        Verdict::TooShort => format!("{series}: too few runs to say."),
    }
}

fn paragraph(text: &mut String, indent: &str, words: &str) {
    for (nr, line) in wrap(words, iowhy_text::width() - indent.len() - 2).into_iter().enumerate() {
        let _ = writeln!(text, "{indent}{}{line}", if nr == 0 { "" } else { "  " });
    }
}

fn one(text: &mut String, traced: &Traced, history: &History, bold: fn(&str) -> String) {
    let series = &traced.series;
    let runs = count(series.points.len() as u64, "run", "runs");
    let alike = traced.tested && traced.neighbours == Neighbours::Alike;
    let runs = format!("{runs}, {}{}", traced.search.word(), if alike { ", neighbours alike" } else { "" });
    let _ = writeln!(text, "{}  {runs}", bold(&shown(&series.metric.name, 40)));
    let mut whose = Vec::new();
    for (what, name, most) in [("", &series.job, 200), ("on ", &series.place, 120), ("machine ", &series.machine, 16)] {
        if !name.is_empty() {
            whose.push(format!("{what}{}", shown(name, most)));
        }
    }
    paragraph(text, "  ", &whose.join(", "));
    let values: Vec<f64> = series.points.iter().map(|point| point.value).collect();
    if !values.is_empty() {
        let _ = writeln!(text, "  {}", sparks(&values, iowhy_text::width() - 4));
    }
    let unit = series.metric.unit.as_str();
    for change in &traced.changes {
        let (low, high) = change.ci_pct;
        let verdict = bold(direction(change.worse));
        let run = if change.run_id.is_empty() { String::new() } else { format!(" ({})", shown(&change.run_id, 40)) };
        let nr = change.index + 1;
        let level = 100.0 * (1.0 - history.settings.alpha);
        paragraph(
            text,
            "  ",
            &format!(
                "{verdict} from run {nr}{run}: {} -> {}, {} [{} .. {}] at {level} %, p {}",
                quantity(change.before, unit, 4),
                quantity(change.after, unit, 4),
                percent(change.change_pct),
                bound(low),
                bound(high),
                probability(change.p),
            ),
        );
    }
    if traced.tested && traced.changes.is_empty() {
        let _ = writeln!(text, "  no change (p {})", probability(traced.p_adjusted));
    }
    if let Some(drift) = traced.drift {
        let words = format!(
            "drifts since run {}: {} in all, getting {}, p {}",
            drift.from + 1,
            percent(drift.change_pct),
            direction(drift.worse),
            probability(drift.p)
        );
        paragraph(text, "  ", &words);
    }
    for warning in &traced.warnings {
        paragraph(text, "  ", &format!("warning: {} (next: {})", warning.text(), warning.next()));
    }
}

fn percent(value: f64) -> String {
    if value.is_finite() { format!("{value:+.2} %") } else { "?".to_owned() }
}

/// An end of an interval, in the unit that stands before it.
fn bound(value: f64) -> String {
    if value.is_finite() { format!("{value:+.2}") } else { "?".to_owned() }
}

/// More digits than random orders can determine would be wrong.
fn probability(p: f64) -> String {
    if p < 0.0001 { "< 0.0001".to_owned() } else { format!("{p:.4}") }
}

/// Values as blocks, the median of neighbours where there are more than `most`.
fn sparks(values: &[f64], most: usize) -> String {
    let columns = drawn::binned(values, most);
    let (low, high) = drawn::range(&columns);
    picture::sparkline(&columns, low, high)
}
