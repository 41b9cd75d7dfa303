//! The output of `iowhy store`: recorded runs as text of 80 columns and as JSON (`iowhy.store/1`).

use std::fmt::Write;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Checked, Merged, Store, StoredRun, Swept};
use iowhy_text as text;

/// A moment of universal time, as ISO 8601 has it, to the second.
pub fn moment(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Civil date from days since 1970 (Hinnant's algorithm): years begin in March, so that the leap day is the last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

pub fn run_json(run: &StoredRun) -> Value {
    // JSON has no other numbers than finite ones.
    let metrics: Map<String, Value> = run
        .metrics
        .iter()
        .map(|(name, value)| (name.clone(), if value.is_finite() { json!(value) } else { Value::Null }))
        .collect();
    let files: Vec<Value> = run
        .files
        .iter()
        .map(|file| {
            json!({
                "kind": file.kind.word(),
                "path": format!("data/{}.parquet", file.hash),
                "rows": file.rows,
                "bytes": file.bytes,
            })
        })
        .collect();
    let (design, mut policies) = (&run.design, run.policies.clone());
    if let (Some(manifest), Some(policies)) = (&run.manifest, &mut policies) {
        manifest.put(policies);
    }
    json!({
        "run_id": run.id.0,
        "label": run.label,
        "job": run.job,
        "job_resolved": run.resolved,
        "where": run.place,
        "simulated": run.simulated,
        "machine": run.machine,
        "machine_hash": run.machine_hash,
        "policies": policies,
        "seed": run.seed,
        "event_hash": run.event_hash,
        "started_ns": run.started_ns,
        "finished_ns": run.finished_ns,
        "design": {
            "session": design.session,
            "block": design.block,
            "position": design.position,
            "order_seed": design.order_seed,
            "session_size": design.size,
            "warm_up": design.warm_up,
        },
        "metrics": metrics,
        "layers": run.layers,
        "warnings": run.warnings,
        "tags": run.tags,
        "files": files,
        "blind": run.blind,
        "version": run.version,
    })
}

fn head(store: &Store, verb: &str) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("schema".to_owned(), json!("iowhy.store/1"));
    object.insert("verb".to_owned(), json!(verb));
    object.insert("store".to_owned(), json!(store.directory().to_string_lossy()));
    object
}

/// An answer as JSON: the keys of `more` behind what all answers have.
fn answer(store: &Store, verb: &str, more: Value) -> Value {
    let mut object = head(store, verb);
    if let Value::Object(more) = more {
        object.extend(more);
    }
    Value::Object(object)
}

/// Runs as `iowhy store list --json` and `show --json` have them.
pub fn runs_json(store: &Store, verb: &str, runs: &[StoredRun]) -> Value {
    answer(store, verb, json!({ "runs": runs.iter().map(run_json).collect::<Vec<_>>() }))
}

/// The result of cleaning up, as JSON.
pub fn swept_json(store: &Store, swept: &Swept) -> Value {
    answer(store, "gc", json!({ "files": swept.files, "bytes": swept.bytes, "removed": swept.removed }))
}

/// The result of a full check, as JSON.
pub fn checked_json(store: &Path, checked: &Checked) -> Value {
    let Checked { runs, files, damage, repaired } = checked;
    json!({ "schema": "iowhy.store/1", "verb": "check", "store": store.to_string_lossy(), "runs_checked": runs,
            "files_checked": files, "damage": damage, "repaired": repaired })
}

/// The result of a full check.
pub fn checked_text(checked: &Checked) -> String {
    let (runs, files) = (checked.runs as u64, checked.files as u64);
    let looked = format!("{}, {}", text::count(runs, "run", "runs"), text::count(files, "data file", "data files"));
    if checked.damage.is_empty() {
        return format!("{looked}: whole\n");
    }
    let list: String = checked.damage.iter().map(|what| format!("  {what}\n")).collect();
    let next = match checked.repaired {
        true => "Damaged parts are in `damaged/` now; the rest was kept.",
        false => "`iowhy store check --repair` puts it aside and keeps the rest.",
    };
    format!("{looked}; damaged:\n{list}{next}\n")
}

/// The result of a merge, as JSON.
pub fn merged_json(store: &Store, merged: &Merged) -> Value {
    let Merged { runs, known, files, tags, calibrations } = *merged;
    answer(
        store,
        "merge",
        json!({ "runs_new": runs, "runs_known": known, "files_new": files, "tags_new": tags,
                "calibrations_new": calibrations }),
    )
}

/// How many runs were tagged, as JSON.
pub fn tagged_json(store: &Store, tag: &str, removed: bool, changed: usize) -> Value {
    answer(store, "tag", json!({ "tag": tag, "removed": removed, "runs_changed": changed }))
}

/// How many runs were tagged.
pub fn tagged_text(tag: &str, removed: bool, changed: usize) -> String {
    let runs = text::count(changed as u64, "run", "runs");
    let done = match (removed, changed) {
        (true, 1) => "has lost",
        (true, _) => "have lost",
        (false, 1) => "has got",
        (false, _) => "have got",
    };
    format!("{runs} {done} the tag `{tag}`\n")
}

/// The result of a merge.
pub fn merged_text(store: &Store, merged: &Merged) -> String {
    let n = |n: usize, one: &str, many: &str| text::count(n as u64, one, many);
    format!(
        "{} new in {}, {} known already; {}, {} and {} came along\n",
        n(merged.runs, "run", "runs"),
        store.directory().display(),
        merged.known,
        n(merged.files, "data file", "data files"),
        n(merged.tags, "tag", "tags"),
        n(merged.calibrations, "calibration", "calibrations")
    )
}

/// The result of cleaning up.
pub fn swept_text(swept: &Swept) -> String {
    let mut out: String = swept.files.iter().map(|file| format!("data/{file}\n")).collect();
    let files = text::count(swept.files.len() as u64, "file", "files");
    let done = if swept.removed { "removed" } else { "would be removed" };
    let _ = writeln!(out, "{files} of {} bytes {done}", text::grouped(swept.bytes));
    out
}

/// The result of an export.
pub fn exported_text(exported: &super::Exported, to: &std::path::Path) -> String {
    let runs = text::count(exported.runs as u64, "run", "runs");
    format!("{runs} in {} in {}\n", text::count(exported.files.len() as u64, "file", "files"), to.display())
}

/// The result of an export, as JSON.
pub fn exported_json(store: &Store, exported: &super::Exported) -> Value {
    let files: Vec<_> = exported.files.iter().map(|path| path.to_string_lossy()).collect();
    answer(store, "export", json!({ "runs_written": exported.runs, "files": files }))
}

/// The beginning of a text, as far as it fits.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(2)).collect();
    short.push_str("..");
    short
}

/// The list of runs: those of one label and one command in one line.
pub fn list_text(store: &Store, runs: &[StoredRun], bold: fn(&str) -> String) -> String {
    if runs.is_empty() {
        return format!("no runs in {}\n", store.directory().display());
    }
    struct Line<'a> {
        first: &'a StoredRun,
        runs: usize,
        warm_up: usize,
        tags: Vec<&'a str>,
    }
    let mut lines: Vec<Line<'_>> = Vec::new();
    for run in runs {
        let same = |line: &&mut Line<'_>| {
            line.first.label == run.label
                && line.first.design.session == run.design.session
                && line.first.job == run.job
        };
        // Runs of one command are near each other.
        let at = match lines.iter_mut().rev().take(64).find(same) {
            Some(line) => line,
            None => {
                lines.push(Line { first: run, runs: 0, warm_up: 0, tags: Vec::new() });
                lines.last_mut().expect("a line was just added")
            }
        };
        match run.design.warm_up {
            true => at.warm_up += 1,
            // The run that is named is one that counts, if there is one.
            false => {
                if at.first.design.warm_up {
                    at.first = run;
                }
                at.runs += 1;
            }
        }
        for tag in &run.tags {
            if !at.tags.contains(&tag.as_str()) {
                at.tags.push(tag);
            }
        }
    }
    let mut out = String::new();
    let _ = writeln!(out, "{}", bold(&format!("{:<21}{:<17}{:>5} label", "begun", "first run", "runs")));
    for line in &lines {
        let tags = if line.tags.is_empty() { String::new() } else { format!(" [{}]", line.tags.join(", ")) };
        let label = cut(&format!("{}{tags}", line.first.label), iowhy_text::width().saturating_sub(44).max(12));
        let _ = writeln!(out, "{:<21}{:<17}{:>5} {label}", moment(line.first.started_ns), line.first.id.0, line.runs);
        let warm = if line.warm_up == 0 { String::new() } else { format!("+{} to warm up; ", line.warm_up) };
        let _ = writeln!(out, "{:21}{}", "", cut(&format!("{warm}{}", line.first.job), iowhy_text::width() - 21));
    }
    let _ = writeln!(out, "{} in {}", text::count(runs.len() as u64, "run", "runs"), store.directory().display());
    out
}

/// A line of a run's description, which may go on below.
fn put(out: &mut String, name: &str, value: &str) {
    for (nr, line) in text::wrap(value, iowhy_text::width() - 12).iter().enumerate() {
        let _ = writeln!(out, "{:<12}{line}", if nr == 0 { name } else { "" });
    }
}

/// A run in detail.
fn one_text(out: &mut String, run: &StoredRun, bold: fn(&str) -> String) {
    put(out, "run", &bold(&run.id.0));
    put(out, "label", &run.label);
    put(out, "job", &run.job);
    if let Some(place) = &run.place {
        put(out, "on", place);
    }
    if run.blind {
        put(out, "blind", "nothing but events and measurements was kept");
    }
    let took = run.finished_ns.saturating_sub(run.started_ns) as f64 / 1e9;
    put(out, "begun", &format!("{}, took {took:.3} s", moment(run.started_ns)));
    let design = &run.design;
    let warm = if design.warm_up { ", to warm up" } else { "" };
    put(
        out,
        "design",
        &format!(
            "seed {}, block {}, number {} in it, of {} of command {}{warm}",
            run.seed,
            design.block + 1,
            design.position + 1,
            text::count(u64::from(design.size), "run", "runs"),
            design.session
        ),
    );
    if let Some(hash) = &run.event_hash {
        put(out, "event hash", hash);
    }
    if !run.tags.is_empty() {
        put(out, "tags", &run.tags.join(", "));
    }
    for warning in &run.warnings {
        put(out, "warning", warning);
    }
    for file in &run.files {
        let rows = text::count(file.rows, "row", "rows");
        put(out, file.kind.word(), &format!("{rows}, {} bytes:", text::grouped(file.bytes)));
        // A name of a file is not broken, so that it can be copied.
        let _ = writeln!(out, "  data/{}.parquet", file.hash);
    }
    let width = run.metrics.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, value) in &run.metrics {
        let _ = writeln!(out, "  {name:<width$} {value:>18.3}");
    }
}

/// Runs in detail.
pub fn show_text(runs: &[StoredRun], bold: fn(&str) -> String) -> String {
    let mut out = String::new();
    for (nr, run) in runs.iter().enumerate() {
        if nr > 0 {
            out.push('\n');
        }
        one_text(&mut out, run, bold);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        // As `date -u -d @N` prints them.
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_600, "2025-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(moment(seconds * 1_000_000_000), expected);
        }
    }
}
