//! Lines of Go's benchmarks, as benchstat reads them.
//!
//! `Benchmark<Name> N value unit ..`, one line a run; `key: value` lines set what holds for those below; `Unit` lines
//! say of a unit that it has no noise (`assume=exact`). Units in `ns` and `MB` become those in `sec` and `B`. All other
//! lines are what a program printed meanwhile and mean nothing, as in benchstat. A metric is the name with the unit; in
//! a file where keys change, those that do are part of it.
//! Source: the Go benchmark format (golang.org/design/14313-benchmark-format), and benchstat's output.

use std::collections::HashMap;

use super::{Format, Reader, first_lines, lines, number};
use iowhy_stats::Better;
use iowhy_stats::metric::{Column, Group, Metric};

pub const FORMAT: Format = Format {
    name: "benchstat",
    summary: "lines of Go's benchmarks: BenchmarkNAME N VALUE UNIT ..",
    detect: |text| first_lines(text).any(|line| line.starts_with("Benchmark") && line.split_whitespace().count() >= 4),
    read,
};

/// The contents of a file of benchmarks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Benchmarks<'a> {
    /// Keys and values that held, each set once.
    pub configs: Vec<Vec<(&'a str, &'a str)>>,
    /// Values by configuration, name and unit, in the order in which they were first seen.
    pub series: Vec<Series<'a>>,
    /// Units, tidied, whose values have no noise.
    pub exact: Vec<String>,
    /// Invalid lines: number, text, and the mistake.
    pub wrong: Vec<(usize, &'a str, &'static str)>,
}

/// Values of one unit of one benchmark.
#[derive(Clone, Debug, PartialEq)]
pub struct Series<'a> {
    /// Which of [`Benchmarks::configs`].
    pub config: usize,
    /// The name, without `Benchmark`.
    pub name: &'a str,
    /// As it was written.
    pub raw_unit: &'a str,
    /// Tidied.
    pub unit: String,
    /// The factor that a value is multiplied by.
    pub factor: f64,
    /// In order.
    pub values: Vec<f64>,
    /// Values that were not finite.
    pub left_out: usize,
}

/// A unit in which `ns` is `sec` and `MB` is `B` wherever they are above the line, and the factor that goes with it.
pub fn tidy(unit: &str) -> (String, f64) {
    let (mut tidied, mut factor) = (String::new(), 1.0);
    let mut below = false;
    let mut rest = unit;
    while !rest.is_empty() {
        let is_mark = |c: char| matches!(c, '*' | '/' | '-') || c.is_whitespace();
        let end = rest.find(is_mark).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        tidied.push_str(match word {
            "ns" if !below => {
                factor /= 1e9;
                "sec"
            }
            "MB" if !below => {
                factor *= 1e6;
                "B"
            }
            word => word,
        });
        if let Some(mark) = behind.chars().next() {
            match mark {
                '/' => below = true,
                '*' => below = false,
                _ => {}
            }
            tidied.push(mark);
            rest = &behind[mark.len_utf8()..];
        } else {
            rest = behind;
        }
    }
    (tidied, factor)
}

/// The next word of a line, and the rest.
fn word(line: &str) -> (&str, &str) {
    let bytes = line.as_bytes();
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | b'\r');
    let start = bytes.iter().position(|byte| !is_blank(byte)).unwrap_or(bytes.len());
    let len = bytes[start..].iter().position(is_blank).unwrap_or(bytes.len() - start);
    (&line[start..start + len], &line[start + len..])
}

/// A line `key: value`; the value may be missing, the blank before it may not.
fn setting(line: &str) -> Option<(&str, &str)> {
    let colon = line.find(':')?;
    let (key, value) = (&line[..colon], &line[colon + 1..]);
    let fits = key.chars().next().is_some_and(char::is_lowercase)
        && !key.chars().any(|c| c.is_whitespace() || c.is_uppercase());
    let apart = value.is_empty() || value.starts_with([' ', '\t']);
    (fits && apart).then(|| (key, value.trim_start_matches([' ', '\t'])))
}

/// Reads lines.
#[derive(Default)]
struct Parser<'a> {
    found: Benchmarks<'a>,
    /// The current configuration, and its place in `found.configs` once a benchmark ran in it.
    now: Vec<(&'a str, &'a str)>,
    config: Option<usize>,
    index: HashMap<(usize, &'a str, &'a str), usize>,
    /// The benchmark of the last line and the series of its units: most lines have the same as the line before.
    last: (&'a str, Vec<usize>),
}

impl<'a> Benchmarks<'a> {
    /// Samples of another origin: each metric is a benchmark in its unit.
    pub fn of(group: &'a Group) -> Benchmarks<'a> {
        let series = |column: &'a Column| {
            let (unit, factor) = tidy(if column.metric.unit.is_empty() { "value" } else { &column.metric.unit });
            // Those that came from such lines have the unit behind the name.
            let name = column.metric.name.strip_suffix(column.metric.unit.as_str());
            Series {
                config: 0,
                name: name.and_then(|name| name.strip_suffix(' ')).unwrap_or(&column.metric.name),
                raw_unit: &column.metric.unit,
                unit,
                factor,
                values: column.values.iter().map(|value| value * factor).collect(),
                left_out: column.left_out,
            }
        };
        let series = group.columns.iter().filter(|column| !column.values.is_empty()).map(series).collect();
        Benchmarks { configs: vec![Vec::new()], series, ..Benchmarks::default() }
    }

    /// Reads all lines of a text.
    pub fn parse(text: &'a str) -> Benchmarks<'a> {
        let mut parser = Parser::default();
        for (nr, line) in lines(text) {
            if let Some(rest) = line.strip_prefix("Benchmark") {
                if let Err(why) = parser.benchmark(rest) {
                    parser.found.wrong.push((nr, line, why));
                }
            } else if let Some(rest) = line.strip_prefix("Unit").filter(|rest| rest.starts_with([' ', '\t'])) {
                let (unit, rest) = word(rest);
                if rest.split_whitespace().any(|pair| pair == "assume=exact") {
                    parser.found.exact.push(tidy(unit).0);
                }
            } else if let Some((key, value)) = setting(line) {
                parser.set(key, value);
            }
        }
        parser.found
    }
}

impl<'a> Parser<'a> {
    fn set(&mut self, key: &'a str, value: &'a str) {
        match self.now.iter().position(|(known, _)| *known == key) {
            Some(at) if value.is_empty() => {
                self.now.remove(at);
            }
            Some(at) => self.now[at].1 = value,
            None if value.is_empty() => {}
            None => self.now.push((key, value)),
        }
        self.config = None;
        self.last.1.clear();
    }

    fn benchmark(&mut self, rest: &'a str) -> Result<(), &'static str> {
        let (name, rest) = match rest.strip_prefix(self.last.0) {
            Some(behind) if behind.starts_with([' ', '\t']) => (self.last.0, behind),
            _ => word(rest),
        };
        // `go test -v` prints the name alone when a benchmark starts.
        if rest.is_empty() {
            return Ok(());
        }
        let (count, mut rest) = word(rest);
        if count.is_empty() || !count.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err("the number of iterations is missing behind the name");
        }
        if self.last.0 != name {
            self.last.0 = name;
            self.last.1.clear();
        }
        let mut place = 0;
        loop {
            let (value, behind) = word(rest);
            if value.is_empty() {
                return if place > 0 { Ok(()) } else { Err("no measurement behind the number of iterations") };
            }
            let Some(value) = number(value.as_bytes()) else { return Err("a measurement is not a number") };
            let (unit, behind) = word(behind);
            if unit.is_empty() {
                return Err("the unit of a measurement is missing");
            }
            rest = behind;
            let nr = match self.last.1.get(place) {
                Some(nr) if self.found.series[*nr].raw_unit == unit => *nr,
                _ => self.series(name, unit, place),
            };
            let series = &mut self.found.series[nr];
            if value.is_finite() {
                series.values.push(value * series.factor);
            } else {
                series.left_out += 1;
            }
            place += 1;
        }
    }

    fn series(&mut self, name: &'a str, unit: &'a str, place: usize) -> usize {
        let config = *self.config.get_or_insert_with(|| {
            self.found.configs.iter().position(|config| *config == self.now).unwrap_or_else(|| {
                self.found.configs.push(self.now.clone());
                self.found.configs.len() - 1
            })
        });
        let series = &mut self.found.series;
        let nr = *self.index.entry((config, name, unit)).or_insert_with(|| {
            let (tidied, factor) = tidy(unit);
            series.push(Series { config, name, raw_unit: unit, unit: tidied, factor, values: Vec::new(), left_out: 0 });
            series.len() - 1
        });
        self.last.1.truncate(place);
        if self.last.1.len() == place {
            self.last.1.push(nr);
        }
        nr
    }
}

fn read(reader: &mut Reader<'_>, text: &str) {
    let found = Benchmarks::parse(text);
    for (nr, line, why) in &found.wrong {
        reader.wrong(*nr, line, 0..line.len(), why, "BenchmarkNAME N VALUE UNIT ..");
    }
    // Keys that differ within the file tell benchmarks of one name apart.
    let value = |config: &[(&str, &str)], key: &str| {
        config.iter().find(|(known, _)| *known == key).map(|(_, value)| (*value).to_owned()).unwrap_or_default()
    };
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in found.configs.iter().flatten() {
        let differs = found.configs.iter().any(|config| value(config, key) != value(&found.configs[0], key));
        if differs && !keys.contains(key) {
            keys.push(key);
        }
    }
    for series in found.series {
        let mut name = series.name.to_owned();
        for key in &keys {
            name += &format!(" {key}={}", value(&found.configs[series.config], key));
        }
        let name = format!("{name} {}", series.unit);
        let better = if series.unit.ends_with("/s") { Better::Higher } else { Metric::of(&series.unit).better };
        let column = reader.column(&name, || Metric { name: name.clone(), unit: series.unit.clone(), better });
        column.values.extend(series.values);
        column.left_out += series.left_out;
    }
}
