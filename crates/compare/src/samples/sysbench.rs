//! The output of `sysbench`, 0.4 to 1.1: one report or several in one file, each of them a run. Of `fileio`, rates of
//! calls and bytes; of tests with a database, rates of transactions and queries; of all, time and latencies.
//!
//! Source: reports of sysbench 0.4.12, 0.5, 1.0.20 and its source.

use super::{Format, Reader, first_lines, number};
use iowhy_stats::metric::RunFacts;

pub const FORMAT: Format = Format {
    name: "sysbench",
    summary: "the text of `sysbench .. run`, one report or several",
    detect: |text| {
        first_lines(text).any(|line| line.starts_with("sysbench ") && line.contains(|c: char| c.is_ascii_digit()))
    },
    read,
};

/// Beginnings of lines, the metric's name, and the factor of its value.
const LINES: &[(&str, &str, f64)] = &[
    ("total time:", "elapsed_s", 1.0),
    ("reads/s:", "read_iops", 1.0),
    ("writes/s:", "write_iops", 1.0),
    ("fsyncs/s:", "syncs_per_s", 1.0),
    ("read, MiB/s:", "read_mib_s", 1.0),
    ("written, MiB/s:", "write_mib_s", 1.0),
    ("read:  IOPS=", "read_iops", 1.0),
    ("write: IOPS=", "write_iops", 1.0),
    ("fsync: IOPS=", "syncs_per_s", 1.0),
    ("avg:", "mean_ns", 1e6),
    ("max:", "max_ns", 1e6),
    ("95th percentile:", "p95_ns", 1e6),
    ("99th percentile:", "p99_ns", 1e6),
    ("approx.  95 percentile:", "p95_ns", 1e6),
    ("approx.  99 percentile:", "p99_ns", 1e6),
];
/// Beginnings of lines with a rate in parentheses, and its metric.
const RATES: &[(&str, &str)] = &[("transactions:", "tps"), ("queries:", "queries_per_s")];

fn read(reader: &mut Reader<'_>, text: &str) {
    let mut run = None;
    for line in text.lines().map(str::trim) {
        if line.starts_with("sysbench ") {
            run = Some(reader.run(RunFacts::default()));
        }
        let rate = line.split_once('(').and_then(|(_, rest)| number(rest.split_whitespace().next()?.as_bytes()));
        if let (Some((_, name)), Some(rate)) = (RATES.iter().find(|(start, _)| line.starts_with(start)), rate) {
            reader.put(name, rate, run);
        }
        if let Some(rate) = line.strip_suffix(" Requests/sec executed").and_then(|word| number(word.trim().as_bytes()))
        {
            reader.put("iops", rate, run);
        }
        let Some((start, name, factor)) = LINES.iter().find(|(start, ..)| line.starts_with(start)) else { continue };
        let word = line[start.len()..].split_whitespace().next().unwrap_or_default();
        // 0.4 writes units behind its figures, 1.0 only the `s` of the time.
        let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let factor = if word.ends_with("ms") { 1e6 } else { *factor };
        if let Some(value) = number(digits.as_bytes()) {
            reader.put(name, value * factor, run);
        }
    }
}
