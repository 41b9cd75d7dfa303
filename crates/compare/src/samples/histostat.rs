//! Summaries of HDR histograms, as nosqlbench and Cassandra's tools log them (`histostats`): a line for each tag and
//! interval.
//!
//! Lines are `Tag=NAME,START,LENGTH,COUNT,MIN,..,MAX`; a comment names their columns, another the unit of times. Each
//! line is a sample of each of its columns. An interval without events has no times.
//!
//! Source: a log in the tests of Apache Otava, which reads the same.

use super::{Format, Reader, first_lines, lines, number};
use iowhy_stats::Better;
use iowhy_stats::metric::Metric;

pub const FORMAT: Format = Format {
    name: "histostat",
    summary: "summaries of HDR histograms (nosqlbench --log-histostats): a sample from each interval",
    detect: |text| first_lines(text).any(|line| line.starts_with(HEAD)) && text.contains("\nTag="),
    read,
};

/// The comment with the names of the columns.
const HEAD: &str = "#Tag,Interval_Start,Interval_Length,count,";

fn read(reader: &mut Reader<'_>, text: &str) {
    let (mut columns, mut unit): (Vec<&str>, &str) = (Vec::new(), "ns");
    for (nr, line) in lines(text) {
        if line.starts_with(HEAD) {
            columns = line.split(',').skip(4).collect();
        }
        if let Some(word) = line.strip_prefix("#[TimeUnit: ") {
            unit = match word.trim_end_matches(']') {
                "MICROSECONDS" => "us",
                "MILLISECONDS" => "ms",
                "SECONDS" => "s",
                _ => "ns",
            };
        }
        let Some((tag, rest)) = line.strip_prefix("Tag=").and_then(|line| line.split_once(',')) else { continue };
        let values: Vec<Option<f64>> = rest.split(',').skip(2).map(|word| number(word.trim().as_bytes())).collect();
        let Some(count) = values.first().copied().flatten().filter(|_| values.iter().all(Option::is_some)) else {
            reader.wrong(
                nr,
                line,
                0..line.len(),
                "not a line of an interval",
                "Tag=NAME,START,LENGTH,COUNT,MIN,..,MAX",
            );
            continue;
        };
        let name = format!("{tag}.count");
        reader.column(&name, || Metric { better: Better::Higher, ..Metric::of(&name) });
        reader.put(&name, count, None);
        for (column, value) in columns.iter().zip(values[1..].iter().flatten()).filter(|_| count > 0.0) {
            reader.put(&format!("{tag}.{column}_{unit}"), *value, None);
        }
    }
}
