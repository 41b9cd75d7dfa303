//! Samples out of files of many origins: each format is one file below and one line of [`FORMATS`].
//!
//! A file becomes a [`Group`]: columns of finite values, one for each metric. Values that are not finite (`NaN`, `inf`)
//! are counted and left out; a file without any sample is a group with an empty column, about which a comparison cannot
//! tell. The format is detected from the text; a caller that knows it passes its name.

pub mod asv;
pub mod benchstat;
pub mod csv;
pub mod fio;
pub mod fio_hist;
pub mod folder;
pub mod histostat;
pub mod iostat;
pub mod iowhy;
pub mod numbers;
pub mod sysbench;
pub mod terse;

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;

use iowhy_stats::metric::{Column, Group, Metric, RunFacts};
use iowhy_text::diagnose::{Problem, Problems, Span};

/// A format of files with samples.
pub struct Format {
    /// Its name for `--samples-format`.
    pub name: &'static str,
    pub summary: &'static str,
    /// Whether a text looks like it. The first format of the table that recognises it counts.
    pub detect: fn(&str) -> bool,
    /// Reads a text into a sheet.
    pub read: fn(&mut Reader<'_>, &str),
}

/// Every format, in the order in which they are tried: the last one takes what no other wants.
pub const FORMATS: &[&Format] = &[
    &iowhy::FORMAT,
    &asv::FORMAT,
    &iostat::FORMAT,
    &terse::FORMAT,
    &fio::FORMAT,
    &fio_hist::FORMAT,
    &histostat::FORMAT,
    &sysbench::FORMAT,
    &benchstat::FORMAT,
    &csv::FORMAT,
    &numbers::FORMAT,
];

/// Most problems reported per file; further ones add nothing.
const MOST_PROBLEMS: usize = 8;
/// The name of a column of a file without names.
pub const UNNAMED: &str = "value";
/// As many characters of a bad line are shown.
const SHOWN: usize = 60;

/// Reads the samples of a file. `name` is what it is called, `format` a name from [`FORMATS`]. Nothing comes back only
/// if there was an error, which is then in `problems`.
pub fn read(name: &str, text: &str, format: Option<&str>, problems: &mut Problems) -> Option<Group> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let format = match format {
        None => FORMATS.iter().find(|format| (format.detect)(text))?,
        Some(word) => match FORMATS.iter().find(|format| format.name == word) {
            Some(format) => format,
            None => {
                problems.push(unknown(word));
                return None;
            }
        },
    };
    let mut reader = Reader::new(name);
    (format.read)(&mut reader, text);
    reader.finish(problems)
}

/// Groups of one side, each of a file, as one group in the order in which their runs began, if that is known.
pub fn together(mut groups: Vec<Group>) -> Option<Group> {
    let begun = |group: &Group| group.runs.first().map_or(0, |run| run.started_ns);
    if groups.iter().all(|group| begun(group) > 0) {
        groups.sort_by_key(begun);
    }
    let more = groups.len().saturating_sub(1);
    let mut groups = groups.into_iter();
    let mut all = groups.next()?;
    if more > 0 {
        all.label = format!("{} and {more} more", all.label);
    }
    for group in groups {
        let before = all.runs.len();
        all.runs.extend(group.runs);
        for column in group.columns {
            let runs = column.runs.iter().map(|run| run + before);
            match all.columns.iter_mut().find(|known| known.metric.name == column.metric.name) {
                Some(known) => {
                    // Without the runs of some values those of the others say nothing.
                    let all_known = known.runs.len() == known.values.len() && column.runs.len() == column.values.len();
                    known.runs = if all_known { known.runs.drain(..).chain(runs).collect() } else { Vec::new() };
                    known.values.extend(column.values);
                    known.left_out += column.left_out;
                }
                None => all.columns.push(Column { runs: runs.collect(), ..column }),
            }
        }
    }
    Some(all)
}

/// The mistake for an unknown format.
pub fn unknown(word: &str) -> Problem {
    let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    Problem::error(format!("unknown format `{word}`"))
        .at(Span::whole(word))
        .near(word, &names)
        .help(format!("--samples-format {}", names.join("|")))
}

/// The samples read so far, for a format's reader.
pub struct Reader<'a> {
    name: &'a str,
    group: Group,
    /// Column of each metric.
    index: HashMap<String, usize>,
    problems: Vec<Problem>,
    /// Problems that were not kept.
    more: usize,
}

impl<'a> Reader<'a> {
    fn new(name: &'a str) -> Reader<'a> {
        let group = Group { label: name.to_owned(), ..Group::default() };
        Reader { name, group, index: HashMap::new(), problems: Vec::new(), more: 0 }
    }

    /// The column of a metric, which is made if it is not there.
    pub fn column(&mut self, name: &str, metric: impl FnOnce() -> Metric) -> &mut Column {
        let nr = match self.index.get(name) {
            Some(nr) => *nr,
            None => {
                let nr = self.group.columns.len();
                self.index.insert(name.to_owned(), nr);
                let column = Column { metric: metric(), values: Vec::new(), runs: Vec::new(), left_out: 0 };
                self.group.columns.push(column);
                nr
            }
        };
        &mut self.group.columns[nr]
    }

    /// Another run; yields what its values belong to.
    pub fn run(&mut self, facts: RunFacts) -> usize {
        self.group.runs.push(facts);
        self.group.runs.len() - 1
    }

    /// A value of a metric, of a run if anything is known of runs.
    pub fn put(&mut self, name: &str, value: f64, run: Option<usize>) {
        let column = self.column(name, || Metric::of(name));
        if value.is_finite() {
            column.values.push(value);
            column.runs.extend(run);
        } else {
            column.left_out += 1;
        }
    }

    /// Something is wrong with a part of a line: `at` are its bytes.
    pub fn wrong(&mut self, number: usize, line: &str, at: std::ops::Range<usize>, what: &str, help: &str) {
        if self.problems.len() == MOST_PROBLEMS {
            self.more += 1;
            return;
        }
        let column = line.get(..at.start).map_or(0, |before| before.chars().count()) + 1;
        // A line may have any length; the excerpt begins a little before the mistake.
        let from = line.char_indices().nth((column - 1).saturating_sub(SHOWN / 2)).map_or(0, |(byte, _)| byte);
        let to = line[from..].char_indices().nth(SHOWN).map_or(line.len(), |(byte, _)| from + byte);
        let span = Span::bytes(&line[from..to], at.start - from, at.end.clamp(at.start, to) - from);
        let message = format!("{}:{number}:{column}: {what}", self.name);
        let problem = Problem::error(message).at(span);
        self.problems.push(if help.is_empty() { problem } else { problem.help(help) });
    }

    /// Something is wrong with all of it.
    pub fn broken(&mut self, what: impl Into<String>) {
        self.problems.push(Problem::error(format!("{}: {}", self.name, what.into())));
    }

    fn finish(mut self, problems: &mut Problems) -> Option<Group> {
        if self.more > 0 {
            let what = format!("{}: {} more lines are not samples either", self.name, self.more);
            self.problems.push(Problem::error(what));
        }
        let failed = !self.problems.is_empty();
        problems.list.append(&mut self.problems);
        if self.group.columns.is_empty() {
            self.column(UNNAMED, || Metric::of(UNNAMED));
        }
        (!failed).then_some(self.group)
    }
}

/// Powers of ten that a double holds exactly.
const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// A number as text has it. Digits with a point, few enough that the division is exact (Clinger 1990), take the short
/// way; the library reads all others. `NaN` and `inf` are numbers here, which the caller counts.
pub fn number(text: &[u8]) -> Option<f64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let mut mantissa = 0_u64;
    let (mut seen, mut behind) = (0_usize, None);
    for byte in digits {
        match byte {
            b'0'..=b'9' => {
                mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
                seen += 1;
            }
            b'.' if behind.is_none() => behind = Some(seen),
            _ => return std::str::from_utf8(text).ok()?.parse().ok(),
        }
    }
    // Fifteen digits are below 2^53, so that both operands of the division are exact and its result is rounded once.
    if seen == 0 || seen > 15 {
        return std::str::from_utf8(text).ok()?.parse().ok();
    }
    let value = mantissa as f64 / EXACT_POWERS[behind.map_or(0, |before| seen - before)];
    Some(if negative { -value } else { value })
}

/// JSON as programs write it: Python's `NaN` and C's `-nan` and `inf` stand for no value.
///
/// # Errors
/// The first mistake, with its line and column.
fn json(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).or_else(|error| match without_nan(text) {
        Cow::Owned(clean) => serde_json::from_str(&clean),
        Cow::Borrowed(_) => Err(error),
    })
}

/// A text of JSON with `null` for each number that is none.
fn without_nan(text: &str) -> Cow<'_, str> {
    let (mut clean, mut kept) = (String::new(), 0);
    let (mut at, mut quoted) = (0, false);
    while let Some(byte) = text.as_bytes().get(at) {
        let letter = |byte: &&u8| byte.is_ascii_alphabetic() || **byte == b'-';
        let word = if quoted { 0 } else { text.as_bytes()[at..].iter().take_while(letter).count() };
        match byte {
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            _ if word > 0 => {
                let name = text[at..at + word].trim_start_matches('-').to_ascii_lowercase();
                if matches!(name.as_str(), "nan" | "inf" | "infinity") {
                    clean += &text[kept..at];
                    clean += "null";
                    kept = at + word;
                }
                at += word - 1;
            }
            _ => {}
        }
        at += 1;
    }
    if kept == 0 { Cow::Borrowed(text) } else { Cow::Owned(clean + &text[kept..]) }
}

/// The lines of a text with their numbers, without what ends them.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split('\n').enumerate().map(|(nr, line)| (nr + 1, line.strip_suffix('\r').unwrap_or(line)))
}

/// The lines that identify a text: the first that are not blank.
fn first_lines(text: &str) -> impl Iterator<Item = &str> {
    const ENOUGH: usize = 200;
    text.lines().map(str::trim).filter(|line| !line.is_empty()).take(ENOUGH)
}

#[cfg(test)]
mod tests;
