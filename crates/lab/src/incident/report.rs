//! Incidents as text and as JSON. Nothing is computed here that the result does not hold.

use std::fmt::Write;

use serde_json::{Value, json};

use super::claims::ClaimResult;
use super::file::Figure;
use super::live::{self, LiveResult};
use super::{CatalogueEntry, IncidentResult, RowResult, combine, tables};
use crate::simulated_json;
use iowhy_stats::figure;
use iowhy_stats::modes;
use iowhy_text as text;

/// The row that others of its report are compared with: its first calibration row.
fn base<'a>(result: &'a IncidentResult, row: &RowResult) -> Option<&'a RowResult> {
    result.rows.iter().find(|base| {
        base.report == row.report && base.role.starts_with("calibration") && base.metric.name == row.metric.name
    })
}

/// An incident as text, in 80 columns where its tables are not wider.
pub fn text(result: &IncidentResult, bold: fn(&str) -> String) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(&mut out, result, bold);
    out
}

/// Whether the row is a cell of a published table.
fn is_cell(result: &IncidentResult, row: &RowResult) -> bool {
    result.incident.tables.iter().any(|table| table.id() == row.report)
}

fn write_text(out: &mut String, result: &IncidentResult, bold: fn(&str) -> String) -> std::fmt::Result {
    let incident = &result.incident;
    writeln!(out, "{} ({})", bold(&incident.id), incident.date)?;
    for line in text::wrap(&incident.title, text::width()) {
        writeln!(out, "{line}")?;
    }
    write_tables(out, result, bold)?;
    write_rows(out, result, bold)?;
    write_context(out, result, bold)?;
    writeln!(out, "\n{}", bold("claims"))?;
    for claim in &result.claims {
        write_claim(out, claim, bold)?;
    }
    let (counted, required) = (result.counted().count(), result.counted().filter(|claim| claim.required).count());
    write!(out, "{} of {counted} claims held ({required} required)", result.claims_held())?;
    match result.claims.len() - counted {
        0 => writeln!(out)?,
        follow => writeln!(out, "; {follow} more follow and do not count")?,
    }
    if !result.why.is_empty() {
        section(out, "why", &result.why, bold)?;
    }
    writeln!(out, "\n{}", bold("assumed"))?;
    for assumption in &result.scenario.assumptions {
        let words = format!("{} ({})", assumption.what, assumption.source);
        for (nr, line) in text::wrap(&words, text::width() - 4).iter().enumerate() {
            writeln!(out, "{} {line}", if nr == 0 { "  -" } else { "   " })?;
        }
    }
    section(out, "not explained", &result.scenario.unexplained, bold)?;
    if let Some((row, run)) = result.part("broken").and_then(|row| Some((row, row.run()?))) {
        writeln!(out, "\n{}", bold(&format!("to repeat row {}", row.id)))?;
        let command = format!("iowhy {}", run.command);
        let lines = text::wrap(&command, text::width() - 6);
        for (nr, line) in lines.iter().enumerate() {
            let end = if nr + 1 < lines.len() { " \\" } else { "" };
            writeln!(out, "  {}{line}{end}", if nr == 0 { "" } else { "  " })?;
        }
    }
    Ok(())
}

/// Published tables that were simulated, each next to its publication; the others as published.
fn write_tables(out: &mut String, result: &IncidentResult, bold: fn(&str) -> String) -> std::fmt::Result {
    let incident = &result.incident;
    for table in &incident.tables {
        writeln!(out, "\n{} ({})", bold(&table.name), table.role)?;
        if let Some(simulated) = tables::simulated_text(result, table) {
            writeln!(out, "simulated, mean of {}", repetitions(result))?;
            out.push_str(&simulated);
            writeln!(out, "published")?;
        } else {
            writeln!(out, "published, not simulated")?;
        }
        out.push_str(&tables::published_text(incident, table));
    }
    match &incident.sign_convention {
        Some(convention) if !incident.tables.is_empty() => {
            text::wrap(convention, text::width()).iter().try_for_each(|line| writeln!(out, "{line}"))
        }
        _ => Ok(()),
    }
}

fn write_rows(out: &mut String, result: &IncidentResult, bold: fn(&str) -> String) -> std::fmt::Result {
    let rows: Vec<&RowResult> = result.rows.iter().filter(|row| !is_cell(result, row)).collect();
    let extra: Vec<&RowResult> = result.extra.iter().filter(|row| !result.is_in_a_table(row)).collect();
    let Some(first) = rows.first().or(extra.first()) else { return Ok(()) };
    let unit = result.incident.metric.as_ref().map_or(first.metric.unit, |metric| metric.unit.as_str());
    let has_elevator = rows.iter().chain(&extra).any(|row| row.scheduler.is_some());
    writeln!(out, "\n{:29}{:>10}{:>14}{:>27}", "", "published", "simulated", "ratio within its report")?;
    writeln!(
        out,
        "{:<16}{:<13}{unit:>10}{:>14}{:>14}{:>6}{:>7}",
        "row",
        if has_elevator { "elevator" } else { "" },
        "mean ± half",
        "published",
        "sim.",
        "error"
    )?;
    let mut variant = "";
    for (nr, row) in rows.iter().chain(&extra).enumerate() {
        if nr == rows.len() {
            writeln!(out, "{}", bold("unpublished runs"))?;
            variant = "";
        }
        if row.variant != variant {
            variant = &row.variant;
            writeln!(out, "{}", bold(variant))?;
        }
        write_row(out, result, row, has_elevator)?;
    }
    for line in text::wrap(&footnote(result), text::width()) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Published figures that are only shown.
fn write_context(out: &mut String, result: &IncidentResult, bold: fn(&str) -> String) -> std::fmt::Result {
    let incident = &result.incident;
    let rows = result.context.iter().map(|row| {
        let figure = row.figure().map_or_else(String::new, |figure| format!(": {}", figure.text()));
        format!("{}{figure} ({})", row.variant, row.role)
    });
    let statements = incident.statements.iter().map(|said| format!("{} ({})", said.text, said.role));
    let remarks = [&incident.context.thread, &incident.context.note].into_iter().flatten().cloned();
    let all: Vec<String> = rows.chain(statements).chain(remarks).collect();
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", bold("published besides"))?;
    for words in all {
        for (nr, line) in text::wrap(&words, text::width() - 4).iter().enumerate() {
            writeln!(out, "{} {line}", if nr == 0 { "  -" } else { "   " })?;
        }
    }
    Ok(())
}

/// `4 seeds`.
fn repetitions(result: &IncidentResult) -> String {
    let [one, several] = &result.scenario.repetition;
    text::count(u64::from(result.sequences), one, several)
}

/// How the columns of the table are made.
fn footnote(result: &IncidentResult) -> String {
    let bases: Vec<&str> = result
        .rows
        .iter()
        .filter(|row| !is_cell(result, row) && base(result, row).is_some_and(|base| base.id == row.id))
        .map(|row| row.id.as_str())
        .collect();
    // Rows of a kind have as many: those whose names begin alike.
    let mut more: Vec<String> = Vec::new();
    let rows = result.rows.iter().chain(&result.extra).filter(|row| !is_cell(result, row));
    for row in rows.filter(|row| !row.values.is_empty() && row.values.len() != result.sequences as usize) {
        let kind = row.id.split_once('/').map_or_else(|| row.id.clone(), |(kind, _)| format!("{kind}/.."));
        let words = format!("{kind}: {}", row.values.len());
        if !more.contains(&words) {
            more.push(words);
        }
    }
    let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join(", ")) };
    let how = format!("mean of {}{more}, ± half the distance between the extremes", repetitions(result));
    if bases.is_empty() {
        return how;
    }
    format!("{how}; a ratio is to the calibration row of the same report ({})", bases.join(", "))
}

fn section(out: &mut String, title: &str, words: &str, bold: fn(&str) -> String) -> std::fmt::Result {
    writeln!(out, "\n{}", bold(title))?;
    for line in text::wrap(words, text::width() - 2) {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

fn write_row(out: &mut String, result: &IncidentResult, row: &RowResult, has_elevator: bool) -> std::fmt::Result {
    let modes = modes::two(&row.values);
    let simulated = match &modes {
        Some(_) => "two modes".to_owned(),
        None => mean_and_half(row.simulated(), row.spread()),
    };
    let shown = row.published.map_or("-".to_owned(), Figure::text);
    let elevator = if has_elevator { row.scheduler.as_deref().unwrap_or("-") } else { "" };
    let width = if has_elevator { 13 } else { 26 };
    // A long name gets a line of its own rather than pushing the numbers aside.
    if row.id.chars().count() > width {
        writeln!(out, "  {}", row.id)?;
        write!(out, "  {:<14}{elevator:<13}", "")?;
    } else if has_elevator {
        write!(out, "  {:<14}{elevator:<13}", row.id)?;
    } else {
        write!(out, "  {:<27}", row.id)?;
    }
    write!(out, "{shown:>10}{simulated:>14}")?;
    write_ratio(out, result, row)?;
    for mode in modes.iter().flatten() {
        // Not to be taken for a ratio of the row's mean.
        let part = format!("{} of {} runs", mode.members.len(), row.values.len());
        let simulated = mean_and_half(mode.mean, (mode.min, mode.max));
        writeln!(out, "    {part:<25}{:>10}{simulated:>14}", "")?;
    }
    Ok(())
}

/// The last columns: the row against the calibration row of its report.
fn write_ratio(out: &mut String, result: &IncidentResult, row: &RowResult) -> std::fmt::Result {
    let Some(base) = base(result, row) else { return writeln!(out) };
    let ratio = result.ratio(row, base).value;
    match (row.published.and_then(Figure::value), base.published.and_then(Figure::value)) {
        (Some(value), Some(base_value)) if base_value > 0.0 => {
            let published = value / base_value;
            let error = 100.0 * (ratio / published - 1.0);
            writeln!(out, "{published:>14.2}{ratio:>6.2}{error:>+6.0}%")
        }
        _ if modes::two(&row.values).is_some() => writeln!(out),
        _ => writeln!(out, "{:>14}{ratio:>6.2}", "-"),
    }
}

/// `3804.8 ± 1.1`: three digits at least; one after the point is enough for large figures, and none for very large
/// ones.
fn mean_and_half(mean: f64, (low, high): (f64, f64)) -> String {
    let digits = match mean.abs() {
        small if small < 50.0 => 2,
        large if large < 10_000.0 => 1,
        _ => 0,
    };
    format!("{mean:.digits$} ± {:.digits$}", (high - low) / 2.0)
}

fn write_claim(out: &mut String, claim: &ClaimResult, bold: fn(&str) -> String) -> std::fmt::Result {
    let verdict = if claim.held { "held    ".to_owned() } else { bold("NOT HELD") };
    let optional = if claim.required { "" } else { " (not required)" };
    write!(out, "  {verdict}  {}{optional}", claim.id)?;
    if let Some(simulated) = claim.simulated {
        let width = 24usize.saturating_sub(claim.id.chars().count() + optional.len());
        write!(out, "{}  simulated {simulated:.3}", " ".repeat(width))?;
        if let Some(published) = claim.published {
            write!(out, "  published {published:.3}")?;
        }
        match (claim.lower, claim.upper) {
            (Some(lower), Some(upper)) => write!(out, "\n{:44}  must lie in {lower:.3} .. {upper:.3}", "")?,
            (Some(lower), None) => write!(out, "\n{:44}  must be at least {lower:.3}", "")?,
            (None, Some(upper)) => write!(out, "\n{:44}  must be at most {upper:.3}", "")?,
            (None, None) => {}
        }
        let leaves = |(low, high): &(f64, f64)| !claim.is_within(*low) || !claim.is_within(*high);
        if let Some((low, high)) = claim.spread.filter(leaves) {
            write!(out, "\n{:44}  single runs {low:.3} .. {high:.3}", "")?;
        }
        if let Some(follows) = &claim.follows {
            write!(out, "\n            not counted: {follows}")?;
        }
        writeln!(out)?;
    } else {
        writeln!(out)?;
        for line in text::wrap(&claim.text, text::width() - 14) {
            writeln!(out, "            {line}")?;
        }
    }
    for evidence in &claim.evidence {
        for (nr, line) in text::wrap(evidence, text::width() - 16).iter().enumerate() {
            writeln!(out, "            {} {line}", if nr == 0 { "-" } else { " " })?;
        }
    }
    Ok(())
}

/// Everything that was run, as JSON (`iowhy.incident/1`). `others` are incidents that are known and were not run.
/// `lives` are answers of kernels, for none or for all of them.
pub fn json(results: &[IncidentResult], lives: &[Vec<LiveResult>], others: &[CatalogueEntry], wall_s: f64) -> Value {
    let hashes = results.iter().map(IncidentResult::event_hash);
    let mut incidents: Vec<Value> = results.iter().map(incident_json).collect();
    for (value, kernels) in incidents.iter_mut().zip(lives) {
        let (here, booted): (Vec<&LiveResult>, _) = kernels.iter().partition(|result| result.place == live::LIVE);
        let live = here.first();
        for row in value["rows"].as_array_mut().into_iter().flatten() {
            let of_row = |live: &LiveResult| live.of_row(row["id"].as_str()?);
            row["live"] = json!(live.copied().and_then(of_row).map(figure::finite));
        }
        value["live"] = live.map_or(Value::Null, |live| live::report::json(live));
        if !booted.is_empty() {
            value["kernels"] = booted.into_iter().map(live::report::json).collect();
        }
    }
    json!({
        "schema": "iowhy.incident/1",
        "incidents": incidents,
        "claims_total": results.iter().map(|result| result.counted().count()).sum::<usize>(),
        "claims_held": results.iter().map(IncidentResult::claims_held).sum::<usize>(),
        "not_modelled": others
            .iter()
            .map(|known| {
                let claims = known.incident.claims.len();
                json!({ "id": known.id, "title": known.incident.title, "claims": claims })
            })
            .collect::<Vec<_>>(),
        "event_hash": figure::hash(combine(hashes)),
        "wall_s": wall_s,
    })
}

fn incident_json(result: &IncidentResult) -> Value {
    let scenario = &result.scenario;
    json!({
        "id": result.incident.id,
        "title": result.incident.title,
        "rows": result.rows.iter().map(row_json).collect::<Vec<_>>(),
        "extra": result.extra.iter().map(row_json).collect::<Vec<_>>(),
        "tables": tables::json(result),
        "context": context_json(result),
        "claims": result.claims.iter().map(claim_json).collect::<Vec<_>>(),
        "cause": { "rule": scenario.rule, "summary": result.why },
        "assumptions": scenario
            .assumptions
            .iter()
            .map(|assumption| json!({ "what": assumption.what, "source": assumption.source }))
            .collect::<Vec<_>>(),
        "unexplained": text::wrap(&scenario.unexplained, usize::MAX).join(" "),
        "sequences": result.sequences,
        "event_hash": figure::hash(result.event_hash()),
    })
}

/// An incident on the page of a report: published and simulated figures, claims that count, assumptions, and what they
/// do not explain.
pub fn brief(result: &IncidentResult) -> Value {
    let row = |row: &RowResult| {
        json!({
            "id": row.id,
            "role": row.role,
            "published": row.published.and_then(Figure::value),
            "simulated": row.simulated(),
            "unit": row.metric.unit,
        })
    };
    let claim = |claim: &ClaimResult| json!({ "text": claim.text, "held": claim.held, "required": claim.required });
    let assumptions = result.scenario.assumptions.iter();
    json!({
        "id": result.incident.id,
        "title": result.incident.title,
        "rows": result.rows.iter().map(row).collect::<Vec<_>>(),
        "claims": result.counted().map(claim).collect::<Vec<_>>(),
        "assumptions": assumptions.map(|of| json!({ "what": of.what, "source": of.source })).collect::<Vec<_>>(),
        "unexplained": text::wrap(&result.scenario.unexplained, usize::MAX).join(" "),
    })
}

fn row_json(row: &RowResult) -> Value {
    let (low, high) = row.spread();
    let run = row.run();
    // The cell of a table is the mean over several runs, which have no layers in common.
    let one = run.filter(|_| row.runs.len() == 1);
    json!({
        "id": row.id,
        "variant": row.variant,
        "role": row.role,
        "group": row.group,
        "published": row.published.and_then(Figure::value),
        "published_range": row.published.and_then(Figure::range).map(|(min, max)| json!({ "min": min, "max": max })),
        "simulated": row.simulated(),
        "metric": row.metric.name,
        "unit": row.metric.unit,
        "settings": {
            "command": run.map_or_else(String::new, |run| format!("iowhy {}", run.command)),
            "where": run.map_or_else(String::new, |run| format!("sim:{}", run.plan.stack.describe())),
            "disk": run.map_or("", |run| run.plan.stack.device.entry.name),
            "scheduler": row.scheduler,
            "report": row.report,
            "note": row.note,
        },
        "spread": { "min": figure::finite(low), "max": figure::finite(high) },
        "samples": row.values.iter().map(|value| figure::finite(*value)).collect::<Vec<_>>(),
        "modes": simulated_json::modes(modes::two(&row.values).as_ref()),
        "event_hashes": row.samples().map(|sample| figure::hash(sample.outcome.event_hash)).collect::<Vec<_>>(),
        "layers": one.and_then(|run| run.samples.first()).map(|sample| simulated_json::layers(sample.layers())),
    })
}

/// Published figures that are only shown.
fn context_json(result: &IncidentResult) -> Value {
    let incident = &result.incident;
    let row = |row: &super::file::Row| {
        json!({
            "id": row.id,
            "variant": row.variant,
            "role": row.role,
            "published": row.figure().and_then(Figure::value),
        })
    };
    let notes: Vec<&String> = incident.context.thread.iter().chain(&incident.context.note).collect();
    json!({
        "rows": result.context.iter().map(row).collect::<Vec<_>>(),
        "statements": incident
            .statements
            .iter()
            .map(|said| json!({ "text": said.text, "role": said.role }))
            .collect::<Vec<_>>(),
        "notes": notes,
    })
}

fn claim_json(claim: &ClaimResult) -> Value {
    json!({
        "id": claim.id,
        "kind": claim.kind,
        "published": claim.published,
        "simulated": claim.simulated,
        "lower": claim.lower,
        "upper": claim.upper,
        "held": claim.held,
        "required": claim.required,
        "follows": claim.follows,
        "text": claim.text,
        "spread": claim.spread.map(|(min, max)| json!({ "min": min, "max": max })),
        "evidence": claim.evidence,
    })
}

/// All incidents, as text.
pub fn list_text(known: &[CatalogueEntry], bold: fn(&str) -> String) -> String {
    let mut out = String::new();
    for known in known {
        let incident = &known.incident;
        let state = if known.modelled { "runs in the simulator" } else { "not modelled in this release" };
        let _ = writeln!(
            out,
            "{} ({}, {}): {state}",
            bold(known.id),
            incident.date,
            text::count(incident.claims.len() as u64, "claim", "claims")
        );
        for line in text::wrap(&incident.title, text::width() - 4) {
            let _ = writeln!(out, "    {line}");
        }
    }
    out.push_str("\n`iowhy incident ID` runs one, `iowhy incident all` all that can be run.\n");
    out
}

/// All incidents, as JSON.
pub fn list_json(known: &[CatalogueEntry]) -> Value {
    let list: Vec<Value> = known
        .iter()
        .map(|known| {
            json!({
                "id": known.id,
                "title": known.incident.title,
                "date": known.incident.date,
                "rows": known.incident.rows.len(),
                "claims": known.incident.claims.len(),
                "modelled": known.modelled,
            })
        })
        .collect();
    json!({ "schema": "iowhy.incident/1", "known": list })
}
