//! A table for mailing lists: plain text of at most 72 columns, five metrics, and how to make the runs again.

use std::fmt::Write;

use super::{Comparison, Row, Settings, Summary, Verdict, options};
use iowhy_stats::metric::Group;
use iowhy_text::{columns, quantity, shown, wrap};

/// Widest line: what a reply may quote a few times.
const WIDTH: usize = 72;
/// Widest label.
const LABEL: usize = 30;
/// Rows of the table.
const ROWS: usize = 5;
/// Metrics in the order in which they are wanted, with their names in the table.
const WANTED: &[(&str, &str)] = &[
    ("iops", "IOPS"),
    ("read_mib_s", "read"),
    ("write_mib_s", "write"),
    ("p50_ns", "p50"),
    ("p99_ns", "p99"),
    ("cpu_ns_per_io", "CPU per I/O"),
    ("cpu_pct", "CPU"),
    ("elapsed_s", "elapsed"),
    ("tps", "tps"),
];
/// Metrics of the processor's time: shown, although they decide nothing unless asked for.
const CPU: &[&str] = &["cpu_ns_per_io", "cpu_pct"];

/// The table of a comparison of two sides.
pub fn text(comparison: &Comparison, sides: [&Group; 2]) -> String {
    let mut text = String::new();
    let more = of_cpu(comparison, sides);
    let label = |label: &str| match label.rsplit_once('/') {
        // The name of a file is enough where its folder takes too many columns.
        Some((_, name)) if columns(label) > LABEL => ascii(name, LABEL),
        _ => ascii(label, LABEL),
    };
    let head = format!("{} -> {}: {}", label(&comparison.a), label(&comparison.b), comparison.verdict.word());
    paragraph(&mut text, &head);
    if let Some(sentence) = options::sentence(&comparison.options) {
        paragraph(&mut text, &ascii(&sentence, usize::MAX));
    }
    let _ = writeln!(text, "\n{:<11}{:>16} {:>16}{:>7}", "median", "before", "after", "change");
    for (row, name) in chosen(comparison, &more) {
        let [a, b] = [&row.a, &row.b].map(|side| value(side, &row.metric.unit));
        let verdict = match row.verdict {
            Verdict::Regression => "worse",
            Verdict::Improvement => "better",
            Verdict::Same => "same",
            Verdict::Inconclusive => "?",
        };
        let (low, high) = row.ci_pct;
        let ci = format!("[{},{}]", percent(low), percent(high));
        let _ = writeln!(text, "{name:<11}{a:>16} {b:>16}{:>7} {ci:<13} {verdict:>6}", percent(row.change_pct));
    }
    let n = |group: &Group| match group.runs.len() {
        0 => group.columns.iter().map(|column| column.values.len()).max().unwrap_or(0),
        runs => runs,
    };
    let _ = writeln!(text, "\n+- is the coefficient of variation, [] the {} % interval, in percent", level(comparison));
    let _ = writeln!(text, "runs:      {} before, {} after", n(sides[0]), n(sides[1]));
    let of = |field: fn(&iowhy_stats::metric::Origin) -> &String| {
        sides.map(|group| group.runs.first().map(|run| field(&run.origin).clone()).unwrap_or_default())
    };
    for (name, [a, b]) in
        [("command", of(|it| &it.command)), ("kernel", of(|it| &it.kernel)), ("disk", of(|it| &it.disk))]
    {
        let lines = match (a.is_empty(), b.is_empty()) {
            (true, true) => continue,
            _ if a == b => vec![(name.to_owned(), a)],
            _ => vec![(format!("{name} A"), a), (format!("{name} B"), b)],
        };
        for (name, value) in lines {
            let value = if value.is_empty() { "unknown".to_owned() } else { ascii(&value, 600) };
            folded(&mut text, &format!("{:<11}", format!("{name}:")), &value);
        }
    }
    text
}

/// The first metric of the processor's time that both sides have, if the choice of metrics was left to us.
fn of_cpu(comparison: &Comparison, [a, b]: [&Group; 2]) -> Vec<Row> {
    let known = CPU.iter().find(|name| a.column(name).is_some() && b.column(name).is_some());
    match known.filter(|_| comparison.settings.metrics.is_empty()) {
        Some(name) => {
            let settings = Settings { metrics: vec![(*name).to_owned()], ..comparison.settings.clone() };
            super::compare(a, b, &settings).rows
        }
        None => Vec::new(),
    }
}

/// Rows of the table with their names: those wanted first, of a comparison without them its own.
fn chosen<'a>(comparison: &'a Comparison, more: &'a [Row]) -> Vec<(&'a Row, String)> {
    let rows = || comparison.rows.iter().chain(more);
    let wanted = WANTED.iter().filter_map(|(metric, name)| {
        rows().find(|row| row.metric.name == *metric).map(|row| (row, (*name).to_owned()))
    });
    let others = rows().filter(|row| WANTED.iter().all(|(metric, _)| row.metric.name != *metric));
    wanted.chain(others.map(|row| (row, ascii(&row.metric.name, 11)))).take(ROWS).collect()
}

/// A text from outside: mails between systems are safe in ASCII.
fn ascii(text: &str, most: usize) -> String {
    shown(text, most).chars().map(|c| if c.is_ascii() { c } else { '~' }).collect()
}

/// A median with the coefficient of variation.
fn value(side: &Summary, unit: &str) -> String {
    let median = quantity(side.median, unit, 3).replace('µ', "u").replace(' ', "");
    match side.cv_pct {
        _ if side.n == 0 => "-".to_owned(),
        cv if cv.is_finite() && cv < 9.95 => format!("{median} +-{cv:.1}%"),
        cv if cv.is_finite() => format!("{median} +-{cv:.0}%"),
        _ => median,
    }
}

/// A change in percent, in at most six columns.
fn percent(value: f64) -> String {
    match value {
        value if value.is_nan() => "?".to_owned(),
        f64::INFINITY => "+inf".to_owned(),
        f64::NEG_INFINITY => "-inf".to_owned(),
        value if value.abs() < 99.95 => format!("{value:+.1}"),
        value if value.abs() < 9999.5 => format!("{value:+.0}"),
        value => format!("{value:+.0e}"),
    }
}

fn level(comparison: &Comparison) -> f64 {
    ((1.0 - comparison.settings.alpha) * 1e6).round() / 1e4
}

fn paragraph(text: &mut String, words: &str) {
    for line in wrap(words, WIDTH) {
        let _ = writeln!(text, "{line}");
    }
}

/// A value behind its name; a long one takes several lines, which a shell joins.
fn folded(text: &mut String, name: &str, value: &str) {
    let indent = columns(name);
    let lines = wrap(value, WIDTH - indent - 2);
    for (nr, line) in lines.iter().enumerate() {
        let before = if nr == 0 { name.to_owned() } else { " ".repeat(indent) };
        let after = if nr + 1 < lines.len() { " \\" } else { "" };
        let _ = writeln!(text, "{before}{line}{after}");
    }
}

#[cfg(test)]
mod tests {
    use iowhy_stats::Better;
    use iowhy_stats::metric::{Metric, Origin, RunFacts};

    use super::*;
    use crate::text::tests::{comparison, row};

    #[test]
    fn no_line_is_wider_than_a_mail() {
        let wide = |name: &str| {
            let mut row = row(Better::Lower, (-1_234.5, f64::INFINITY), Verdict::Regression);
            row.metric = Metric::of(name);
            (row.change_pct, row.a.median, row.b.cv_pct) = (1_234.5, 123_456_789.0, 123.4);
            row
        };
        let names = ["a.metric-with-a-very-long-name_ns", "p50_ns", "p99_ns", "iops", "read_mib_s", "sixth"];
        let table = comparison(names.map(wide).to_vec(), Verdict::Regression);
        let group = |command: &str| {
            let origin = Origin { command: command.repeat(20), ..Origin::default() };
            let runs = vec![RunFacts { origin, ..RunFacts::default() }];
            Group { label: "x".repeat(100), runs, columns: Vec::new() }
        };
        let text = text(&table, [&group("fio --bs=4k "), &group("fio --bs=8k ")]);
        assert!(text.lines().all(|line| columns(line) <= WIDTH), "{text}");
        assert_eq!(text.lines().filter(|line| line.ends_with("worse")).count(), ROWS, "{text}");
        assert!(text.is_ascii() && !text.contains("sixth") && text.contains("+1234 [-1234,+inf]"), "{text}");
    }
}
