//! `iostat -x` of sysstat 10 to 12, text or JSON: each report after the first is a sample of each disk.
//!
//! The first report covers the time since the machine started, and counts only if it is the only one. Columns are found
//! by their names, since versions put them in other places; `-h` has several tables to a report, the disk last in a
//! line or above it, and units behind figures. Rates, waiting times, queue and use become metrics; merged requests and
//! sizes of requests are neither better nor worse when larger, and are left out. Disks without a request in any report
//! are left out, too.
//!
//! Source: outputs of sysstat 10 to 12, and its manual. Limits: numbers with a decimal comma (`LC_NUMERIC`) are read;
//! thousands separators are not. With `-y` the first report is a sample as well, and is left out.

use serde_json::Value;

use super::{Format, Reader, first_lines};

pub const FORMAT: Format = Format {
    name: "iostat",
    summary: "iostat -x of sysstat 10 to 12: text, or JSON (-o JSON)",
    detect: |text| {
        text.trim_start().starts_with('{') && text.contains("\"sysstat\"")
            || first_lines(text).any(|line| head(line).is_some() && line.contains("%util"))
    },
    read,
};

/// Columns, their metric, and the factor of their value.
const COLUMNS: &[(&str, &str, f64)] = &[
    ("r/s", "read_iops", 1.0),
    ("w/s", "write_iops", 1.0),
    ("d/s", "discards_per_s", 1.0),
    ("f/s", "flushes_per_s", 1.0),
    ("rkB/s", "read_kib_s", 1.0),
    ("wkB/s", "write_kib_s", 1.0),
    ("dkB/s", "discard_kib_s", 1.0),
    ("tps", "transfers_per_s", 1.0),
    ("kB/s", "all_kib_s", 1.0),
    ("MB/s", "all_mib_s", 1.0),
    ("rMB/s", "read_mib_s", 1.0),
    ("wMB/s", "write_mib_s", 1.0),
    ("rsec/s", "read_kib_s", 0.5),
    ("wsec/s", "write_kib_s", 0.5),
    ("await", "await_ms", 1.0),
    ("r_await", "read_await_ms", 1.0),
    ("w_await", "write_await_ms", 1.0),
    ("d_await", "discard_await_ms", 1.0),
    ("f_await", "flush_await_ms", 1.0),
    ("avgqu-sz", "queue", 1.0),
    ("aqu-sz", "queue", 1.0),
    ("%util", "util_pct", 1.0),
    ("util", "util_pct", 1.0),
];

/// A disk in a report: its name and its figures by the names of columns.
type Disk = (String, Vec<(String, f64)>);

/// Where a line of names has the disk's: at its beginning, or at its end.
fn head(line: &str) -> Option<bool> {
    let disk = |word: &str| matches!(word, "Device" | "Device:");
    let mut words = line.split_whitespace();
    let (first, last) = (words.next()?, words.next_back()?);
    // In other languages, only the word for the disk differs.
    let named = disk(first) || first.ends_with(':') && last == "%util";
    (named || disk(last)).then_some(!named)
}

/// A figure in the unit of its column; with `-h` amounts say theirs.
fn figure(word: &str) -> Option<f64> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%');
    let factor = match &word[digits.len()..] {
        "" | "%" | "k" => 1.0,
        "B" => 1.0 / 1024.0,
        "M" => 1024.0,
        "G" => 1_048_576.0,
        "T" => 1_073_741_824.0,
        _ => return None,
    };
    Some(factor * digits.replace(',', ".").parse::<f64>().ok()?)
}

fn read(reader: &mut Reader<'_>, text: &str) {
    let reports = match text.trim_start().starts_with('{') {
        true => match super::json(text) {
            Ok(document) => of_json(&document),
            Err(error) => return reader.broken(format!("not JSON of iostat: {error}")),
        },
        false => of_text(text),
    };
    if reports.is_empty() {
        return reader.broken("no report with extended statistics (iostat -x)");
    }
    let reports = &reports[usize::from(reports.len() > 1)..];
    let busy = |name: &str| {
        let same = reports.iter().flatten().filter(|(other, _)| other == name);
        same.flat_map(|(_, figures)| figures).any(|(column, value)| column.ends_with("/s") && *value > 0.0)
    };
    for (disk, figures) in reports.iter().flatten().filter(|(disk, _)| busy(disk)) {
        for (column, value) in figures {
            if let Some((_, metric, factor)) = COLUMNS.iter().find(|(known, ..)| known == column) {
                reader.put(&format!("{disk}.{metric}"), value * factor, None);
            }
        }
    }
}

/// The disks of each report that has extended statistics.
fn of_text(text: &str) -> Vec<Vec<Disk>> {
    let (mut reports, mut columns, mut behind): (Vec<Vec<Disk>>, Vec<&str>, bool) = Default::default();
    // With `-h`, sysstat 11 has a disk's name above its figures.
    let mut above = "";
    // The columns of a report, in one table or several.
    let mut seen: Vec<&str> = Vec::new();
    for line in text.lines() {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() {
            columns.clear();
            continue;
        }
        let at_end = head(line);
        let disk = if at_end.unwrap_or(behind) {
            words.pop()
        } else if above.is_empty() || at_end.is_some() {
            Some(words.remove(0))
        } else {
            Some(std::mem::take(&mut above))
        };
        if let Some(at_end) = at_end {
            (columns, behind) = (words, at_end);
            if reports.is_empty() || columns.iter().any(|column| seen.contains(column)) {
                seen.clear();
                reports.push(Vec::new());
            }
            seen.extend(&columns);
        } else if words.is_empty() && !columns.is_empty() {
            above = disk.unwrap_or_default();
        } else if let (Some(report), Some(disk)) = (reports.last_mut().filter(|_| !columns.is_empty()), disk) {
            let figure = |(name, word): (&&str, &str)| Some(((*name).to_owned(), figure(word)?));
            report.push((disk.to_owned(), columns.iter().zip(words).filter_map(figure).collect()));
        }
    }
    reports.retain(|report| report.iter().any(|(_, figures)| figures.iter().any(|(name, _)| name == "%util")));
    reports
}

fn of_json(document: &Value) -> Vec<Vec<Disk>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let disk = |disk: Value| {
        let figures = disk.as_object().into_iter().flatten();
        let figures = figures.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)));
        (disk["disk_device"].as_str().unwrap_or("disk").to_owned(), figures.collect())
    };
    let reports = list(&document["sysstat"]["hosts"]).into_iter().flat_map(|host| list(&host["statistics"]));
    let disks = reports.map(|report| list(&report["disk"]).into_iter().map(disk).collect::<Vec<Disk>>());
    disks.filter(|disks| disks.iter().any(|(_, figures)| figures.iter().any(|(name, _)| name == "util"))).collect()
}
