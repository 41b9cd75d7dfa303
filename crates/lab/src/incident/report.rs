//! Incidents as text and as JSON. Nothing is computed here that the result does not hold.

use std::fmt::Write;

use serde_json::{Value, json};

use super::claims::ClaimResult;
use super::{IncidentResult, Known, RowResult, combine, mean};
use crate::{measure, text};

/// The row that others of its report are compared with: its first calibration row.
fn base<'a>(result: &'a IncidentResult, row: &RowResult) -> Option<&'a RowResult> {
    result.rows.iter().find(|base| base.report == row.report && base.role.starts_with("calibration"))
}

/// An incident as text, in 80 columns.
pub fn text(result: &IncidentResult, bold: fn(&str) -> String) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(&mut out, result, bold);
    out
}

fn write_text(out: &mut String, result: &IncidentResult, bold: fn(&str) -> String) -> std::fmt::Result {
    let incident = &result.incident;
    let unit = incident.metric.as_ref().map_or("", |metric| metric.unit.as_str());
    writeln!(out, "{} ({})", bold(&incident.id), incident.date)?;
    for line in text::wrap(&incident.title, 80) {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "\n{:29}{:>10}{:>14}{:>27}", "", "published", "simulated", "ratio within its report")?;
    writeln!(
        out,
        "{:<16}{:<13}{unit:>10}{:>14}{:>14}{:>6}{:>7}",
        "row", "elevator", "mean ± half", "published", "sim.", "error"
    )?;
    let mut variant = "";
    for (nr, row) in result.rows.iter().chain(&result.extra).enumerate() {
        if nr == result.rows.len() {
            writeln!(out, "{}", bold("runs that nobody published"))?;
            variant = "";
        }
        if row.variant != variant {
            variant = &row.variant;
            writeln!(out, "{}", bold(variant))?;
        }
        write_row(out, result, row)?;
    }
    for line in text::wrap(&footnote(result), 80) {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "\n{}", bold("claims"))?;
    for claim in &result.claims {
        write_claim(out, claim, bold)?;
    }
    let required = result.claims.iter().filter(|claim| claim.required).count();
    writeln!(out, "{} of {} claims held ({required} required)", result.claims_held(), result.claims.len())?;
    section(out, "why", &result.why, bold)?;
    writeln!(out, "\n{}", bold("assumed"))?;
    for assumption in &result.scenario.assumptions {
        let words = format!("{} ({})", assumption.what, assumption.source);
        for (nr, line) in text::wrap(&words, 76).iter().enumerate() {
            writeln!(out, "{} {line}", if nr == 0 { "  -" } else { "   " })?;
        }
    }
    section(out, "not explained", &result.scenario.unexplained, bold)?;
    if let Some(row) = result.row(&result.scenario.why.broken) {
        writeln!(out, "\n{}", bold(&format!("to repeat row {}", row.id)))?;
        let command = format!("iowhy sysbench {}", row.command);
        let lines = text::wrap(&command, 74);
        for (nr, line) in lines.iter().enumerate() {
            let end = if nr + 1 < lines.len() { " \\" } else { "" };
            writeln!(out, "  {}{line}{end}", if nr == 0 { "" } else { "  " })?;
        }
    }
    Ok(())
}

/// How the columns of the table are made.
fn footnote(result: &IncidentResult) -> String {
    let bases: Vec<&str> = result
        .rows
        .iter()
        .filter(|row| base(result, row).is_some_and(|base| base.id == row.id))
        .map(|row| row.id.as_str())
        .collect();
    format!(
        "mean of {}, ± half the distance between the extremes; a ratio is to the calibration row of the same report \
         ({})",
        text::count(u64::from(result.sequences), "sequence of positions", "sequences of positions"),
        bases.join(", ")
    )
}

fn section(out: &mut String, title: &str, words: &str, bold: fn(&str) -> String) -> std::fmt::Result {
    writeln!(out, "\n{}", bold(title))?;
    for line in text::wrap(words, 78) {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

fn write_row(out: &mut String, result: &IncidentResult, row: &RowResult) -> std::fmt::Result {
    let (low, high) = row.spread_s();
    let simulated = format!("{:.1} ± {:.1}", row.mean_s(), (high - low) / 2.0);
    let published = row.published.map(super::file::Published::value);
    let shown = published.map_or("-".to_owned(), |value| format!("{value:.2}"));
    let elevator = row.scheduler.as_deref().unwrap_or("-");
    // A long name gets a line of its own rather than pushing the numbers aside.
    if row.id.chars().count() > 13 {
        writeln!(out, "  {}", row.id)?;
        write!(out, "  {:<14}", "")?;
    } else {
        write!(out, "  {:<14}", row.id)?;
    }
    write!(out, "{elevator:<13}{shown:>10}{simulated:>14}")?;
    let Some(base) = base(result, row) else { return writeln!(out) };
    let ratio = mean(row.ratios(base).into_iter());
    match (published, base.published.map(super::file::Published::value)) {
        (Some(value), Some(base_value)) if base_value > 0.0 => {
            let published = value / base_value;
            let error = 100.0 * (ratio / published - 1.0);
            writeln!(out, "{published:>14.2}{ratio:>6.2}{error:>+6.0}%")
        }
        _ => writeln!(out, "{:>14}{ratio:>6.2}", "-"),
    }
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
        return writeln!(out);
    }
    writeln!(out)?;
    for line in text::wrap(&claim.text, 66) {
        writeln!(out, "            {line}")?;
    }
    for evidence in &claim.evidence {
        for (nr, line) in text::wrap(evidence, 64).iter().enumerate() {
            writeln!(out, "            {} {line}", if nr == 0 { "-" } else { " " })?;
        }
    }
    Ok(())
}

/// Everything that was run, as JSON (`iowhy.incident/1`). `others` are incidents that are known and were not run.
pub fn json(results: &[IncidentResult], others: &[Known], wall_s: f64) -> Value {
    let hashes = results.iter().map(IncidentResult::event_hash);
    json!({
        "schema": "iowhy.incident/1",
        "incidents": results.iter().map(incident_json).collect::<Vec<_>>(),
        "claims_total": results.iter().map(|result| result.claims.len()).sum::<usize>(),
        "claims_held": results.iter().map(IncidentResult::claims_held).sum::<usize>(),
        "not_modelled": others
            .iter()
            .map(|known| {
                let claims = known.incident.claims.len();
                json!({ "id": known.id, "title": known.incident.title, "claims": claims })
            })
            .collect::<Vec<_>>(),
        "event_hash": measure::hash(combine(hashes)),
        "wall_s": wall_s,
    })
}

fn incident_json(result: &IncidentResult) -> Value {
    let scenario = &result.scenario;
    json!({
        "id": result.incident.id,
        "title": result.incident.title,
        "rows": result.rows.iter().map(|row| row_json(result, row)).collect::<Vec<_>>(),
        "extra": result.extra.iter().map(|row| row_json(result, row)).collect::<Vec<_>>(),
        "claims": result.claims.iter().map(claim_json).collect::<Vec<_>>(),
        "cause": { "rule": scenario.rule, "summary": result.why },
        "assumptions": scenario
            .assumptions
            .iter()
            .map(|assumption| json!({ "what": assumption.what, "source": assumption.source }))
            .collect::<Vec<_>>(),
        "unexplained": text::wrap(&scenario.unexplained, usize::MAX).join(" "),
        "sequences": result.sequences,
        "event_hash": measure::hash(result.event_hash()),
    })
}

fn row_json(result: &IncidentResult, row: &RowResult) -> Value {
    let (low, high) = row.spread_s();
    let unit = result.incident.metric.as_ref().map_or("", |metric| metric.unit.as_str());
    let stack = &row.plan.stack;
    json!({
        "id": row.id,
        "variant": row.variant,
        "role": row.role,
        "published": row.published.map(super::file::Published::value),
        "simulated": row.mean_s(),
        "unit": unit,
        "settings": {
            "command": format!("iowhy sysbench {}", row.command),
            "where": format!("sim:{}", stack.describe()),
            "disk": stack.device.entry.name,
            "scheduler": row.scheduler,
            "report": row.report,
            "note": row.note,
        },
        "spread": { "min": low, "max": high },
        "samples": row.samples.iter().map(|sample| sample.elapsed_s).collect::<Vec<_>>(),
        "event_hashes": row.samples.iter().map(|sample| measure::hash(sample.event_hash)).collect::<Vec<_>>(),
        "layers": row.samples.first().map(|sample| measure::layers(&sample.layers)),
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
        "text": claim.text,
        "spread": claim.spread.map(|(min, max)| json!({ "min": min, "max": max })),
        "evidence": claim.evidence,
    })
}

/// All incidents, as text.
pub fn list_text(known: &[Known], bold: fn(&str) -> String) -> String {
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
        for line in text::wrap(&incident.title, 76) {
            let _ = writeln!(out, "    {line}");
        }
    }
    out.push_str("\n`iowhy incident ID` runs one, `iowhy incident all` all that can be run.\n");
    out
}

/// All incidents, as JSON.
pub fn list_json(known: &[Known]) -> Value {
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
