//! Histories from files: one number a line, or a table as Otava takes it.
//!
//! A file whose first line has a comma, semicolon or tab, or is not a number, is a table: its first line names the
//! columns, with the first of these marks between them that it has, each further line is a run, oldest first. Columns
//! called `time`, `timestamp` or `date` say when; `run`, `run_id`, `commit` or `sha` name the run; `machine` or `host`
//! keep machines apart, `branch` branches. Of the others, those of numbers are metrics, and those of words are
//! attributes, which are left out. Empty fields, and words for no number (`nan`, `null`), are missing values. Fields
//! may stand in double quotes. Times order the runs: seconds since 1970, or dates as `2024.01.31 3:00:00 +0100`,
//! `2024-01-31T03:00:00Z` or `2024-01-31`.
//!
//! Known limit: of other times the runs are in the order of the file.

use super::{Point, Series};
use iowhy_stats::metric::Metric;
use iowhy_text::diagnose::{Problem, Problems, Span};

/// Names of columns that say when.
pub const TIMES: &[&str] = &["time", "timestamp", "date"];
const RUNS: &[&str] = &["run", "run_id", "commit", "sha"];
const MACHINES: &[&str] = &["machine", "host"];
const BRANCHES: &[&str] = &["branch"];
const MARKS: [char; 3] = [',', ';', '\t'];

/// Most problems reported per file.
const MOST_PROBLEMS: usize = 10;

/// The series of a file called `name`. Those of a table are the metrics asked for, or all.
pub fn read(text: &str, name: &str, metrics: &[String], problems: &mut Problems) -> Vec<Series> {
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let Some((number, first)) = lines.clone().next() else {
        problems.push(Problem::error(format!("{name} is empty")).help("one number a line, or a table with commas"));
        return Vec::new();
    };
    if first.contains(MARKS) || missing_or_number(first.trim()).is_none() {
        lines.next();
        return table(first, number, lines, name, metrics, problems);
    }
    let metric = match metrics {
        [] => Metric::of("value"),
        [one] => Metric::of(one),
        [..] => {
            problems.push(Problem::error(format!("{name} holds one metric, and several were asked for")));
            return Vec::new();
        }
    };
    let mut series = empty(metric, ["", ""], name);
    for (number, line) in lines {
        match missing_or_number(line.trim()) {
            Some(value) if value.is_finite() => {
                series.points.push(Point { run_id: format!("line {number}"), started_ns: 0, value });
            }
            Some(_) => series.left_out += 1,
            None => complain(problems, format!("{name}, line {number}: not a number"), Span::whole(line)),
        }
    }
    vec![series]
}

fn empty(metric: Metric, [machine, branch]: [&str; 2], name: &str) -> Series {
    let job = if branch.is_empty() { String::new() } else { format!("branch {branch}") };
    let place = name.to_owned();
    Series { metric, machine: machine.to_owned(), job, place, points: Vec::new(), left_out: 0, machines: 1 }
}

fn complain(problems: &mut Problems, message: String, span: Span) {
    if problems.list.len() < MOST_PROBLEMS {
        problems.push(Problem::error(message).at(span));
    }
}

/// A number; NaN for what stands for none; `None` for a word.
fn missing_or_number(field: &str) -> Option<f64> {
    match field.to_ascii_lowercase().as_str() {
        "" | "null" | "none" | "na" | "n/a" => Some(f64::NAN),
        _ => field.parse().ok(),
    }
}

/// The fields of a line with the column each starts at. `None` if a quote is never closed.
fn fields(line: &str, mark: char) -> Option<Vec<(usize, String)>> {
    let mut all = Vec::new();
    let (mut field, mut start, mut quoted, mut was_quoted) = (String::new(), 0, false, false);
    let mut letters = line.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' if quoted && letters.peek().is_some_and(|(_, next)| *next == '"') => {
                letters.next();
                field.push('"');
            }
            '"' if quoted || field.trim().is_empty() => {
                quoted = !quoted;
                was_quoted = true;
            }
            letter if letter == mark && !quoted => {
                all.push((start, std::mem::take(&mut field).trim().to_owned()));
                start = at + 1;
                was_quoted = false;
            }
            // What follows a closing quote is not part of the field.
            letter if quoted || !was_quoted => field.push(letter),
            _ => {}
        }
    }
    all.push((start, field.trim().to_owned()));
    (!quoted).then_some(all)
}

/// Seconds since 1970 of a number, or of a date with or without a time of day and its distance from UTC.
fn seconds(text: &str) -> Option<f64> {
    if let Ok(number) = text.parse::<f64>() {
        return Some(number);
    }
    let text = text.trim_end_matches('Z');
    let (date, rest) = text.split_once([' ', 'T']).unwrap_or((text, ""));
    let numbers =
        |text: &str, mark: &[char]| text.split(mark).map(|part| part.parse::<f64>().ok()).collect::<Option<Vec<_>>>();
    let [year, month, day] = numbers(date, &['.', '-', '/'])?[..] else { return None };
    let (clock, zone) = match rest.find(['+', '-']) {
        Some(at) => (&rest[..at], rest[at..].replace(':', "")),
        None => (rest, String::new()),
    };
    let clock = if clock.trim().is_empty() { Vec::new() } else { numbers(clock.trim(), &[':'])? };
    let of_day = clock.iter().zip([3600.0, 60.0, 1.0]).map(|(value, unit)| value * unit).sum::<f64>();
    let zone = if zone.is_empty() { 0.0 } else { zone.parse::<f64>().ok()? };
    let east = (zone / 100.0).trunc() * 3600.0 + zone % 100.0 * 60.0;
    // Days since 1970 of the civil calendar, whose years begin in March here.
    let (years, months) = if month > 2.0 { (year, month - 3.0) } else { (year - 1.0, month + 9.0) };
    let leaps = (years / 4.0).floor() - (years / 100.0).floor() + (years / 400.0).floor();
    let days = 365.0 * years + leaps + ((153.0 * months + 2.0) / 5.0).floor() + day - 719_469.0;
    Some(days * 86_400.0 + of_day - east)
}

/// A line of a table.
struct Row {
    seconds: f64,
    run: String,
    /// Its machine and its branch; empty where unknown.
    place: [String; 2],
    /// Of each metric's column the field.
    fields: Vec<(usize, String)>,
    number: usize,
    line: String,
}

fn table<'a>(
    head: &str,
    head_number: usize,
    lines: impl Iterator<Item = (usize, &'a str)>,
    name: &str,
    metrics: &[String],
    problems: &mut Problems,
) -> Vec<Series> {
    let mark = MARKS.into_iter().find(|mark| head.contains(*mark)).unwrap_or(',');
    let Some(columns) = fields(head, mark) else {
        complain(problems, format!("{name}, line {head_number}: a quote is not closed"), Span::whole(head));
        return Vec::new();
    };
    let is = |words: &[&str], column: &str| words.iter().any(|word| column.eq_ignore_ascii_case(word));
    for (nr, (start, column)) in columns.iter().enumerate() {
        let what = if column.is_empty() {
            "a column without a name"
        } else if columns[..nr].iter().any(|(_, other)| other == column) {
            "a second column of that name"
        } else {
            continue;
        };
        let end = start + head[*start..].find(mark).unwrap_or(head.len() - start);
        complain(problems, format!("{name}, line {head_number}: {what}"), Span::bytes(head, *start, end));
    }
    let mut rows: Vec<Row> = Vec::new();
    for (number, line) in lines {
        let Some(fields) = fields(line, mark) else {
            complain(problems, format!("{name}, line {number}: a quote is not closed"), Span::whole(line));
            continue;
        };
        if fields.len() != columns.len() {
            let (found, expected) = (fields.len(), columns.len());
            let message = format!("{name}, line {number}: {found} fields, but the first line names {expected} columns");
            complain(problems, message, Span::whole(line));
            continue;
        }
        let find = |words: &[&str]| {
            let place = columns.iter().position(|(_, column)| is(words, column));
            place.map(|place| fields[place].1.clone())
        };
        rows.push(Row {
            seconds: find(TIMES).and_then(|time| seconds(&time)).unwrap_or(f64::NAN),
            run: find(RUNS).unwrap_or_else(|| format!("line {number}")),
            place: [MACHINES, BRANCHES].map(|words| find(words).unwrap_or_default()),
            fields,
            number,
            line: line.to_owned(),
        });
    }
    if rows.iter().all(|row| row.seconds.is_finite()) {
        rows.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    }
    let mut places: Vec<[&str; 2]> = rows.iter().map(|row| row.place.each_ref().map(String::as_str)).collect();
    places.sort_unstable();
    places.dedup();
    let special = |column: &str| [TIMES, RUNS, MACHINES, BRANCHES].iter().any(|words| is(words, column));
    let mut all = Vec::new();
    let mut numeric: Vec<&str> = Vec::new();
    for (place, (_, column)) in columns.iter().enumerate() {
        let values = || rows.iter().map(|row| missing_or_number(&row.fields[place].1));
        // A column without a single number holds words: an attribute.
        let has_numbers = values().flatten().any(f64::is_finite);
        if special(column) || !has_numbers {
            continue;
        }
        numeric.push(column);
        if !metrics.is_empty() && !metrics.contains(column) {
            continue;
        }
        for row in rows.iter().filter(|row| missing_or_number(&row.fields[place].1).is_none()) {
            let (start, field) = &row.fields[place];
            let message = format!("{name}, line {}, column `{column}`: `{field}` is not a number", row.number);
            let end = row.fields.get(place + 1).map_or(row.line.len(), |(next, _)| next - 1);
            complain(problems, message, Span::bytes(&row.line, *start, end));
        }
        for place in &places {
            let mut series = empty(Metric::of(column), *place, name);
            for (row, value) in rows.iter().zip(values()).filter(|(row, _)| row.place == *place) {
                match value {
                    Some(value) if value.is_finite() => {
                        let started_ns = if row.seconds > 0.0 { (row.seconds * 1e9) as u64 } else { 0 };
                        series.points.push(Point { run_id: row.run.clone(), started_ns, value });
                    }
                    _ => series.left_out += 1,
                }
            }
            all.push(series);
        }
    }
    for metric in metrics.iter().filter(|metric| !numeric.contains(&metric.as_str())) {
        problems.push(Problem::error(format!("{name} has no metric `{metric}`")).near(metric, &numeric));
    }
    if all.is_empty() && !problems.any_error() {
        problems.push(Problem::error(format!("{name} has no column of numbers")));
    }
    all
}
