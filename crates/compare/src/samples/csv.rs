//! Tables with a head: values between commas, semicolons or tabs.
//!
//! The first line names columns. Those called `run` say which run a line belongs to, those called `label`, `name` or
//! `benchmark` come before the names of metrics; columns whose values are numbers are metrics, but for commits and
//! times since 1970; all others are left alone. Quotes as in RFC 4180. A missing value is skipped; one that is not a
//! number in a column of numbers is a mistake with its line and column.

use super::{Format, Reader, first_lines, lines, number};
use crate::history::read::TIMES;
use iowhy_stats::metric::RunFacts;

pub const FORMAT: Format = Format {
    name: "csv",
    summary: "a line with names of columns, then values between commas, semicolons or tabs",
    detect: |text| {
        first_lines(text).find(|line| !line.starts_with('#')).is_some_and(|line| {
            mark(line).is_some_and(|mark| fields(line, mark).iter().any(|(_, word)| number(word.as_bytes()).is_none()))
        })
    },
    read,
};

/// Columns that name what a line is of.
const NAMES: &[&str] = &["label", "name", "benchmark"];
/// The column with the run of each line.
const RUN: &str = "run";

/// Seconds since 1970 from which on a column called `time` says when: no run takes that long.
const LATER: f64 = 1e8;

/// The separator of a line's values.
fn mark(line: &str) -> Option<char> {
    [',', ';', '\t'].into_iter().find(|mark| line.contains(*mark))
}

/// The values of a line, each with its place. Quotes around one may hold the mark, and quotes in pairs.
fn fields(line: &str, mark: char) -> Vec<(usize, String)> {
    let mut found = vec![(0, String::new())];
    let mut quoted = false;
    let mut characters = line.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        let Some((_, word)) = found.last_mut() else { break };
        match c {
            '"' if quoted && characters.peek().is_some_and(|(_, next)| *next == '"') => {
                characters.next();
                word.push('"');
            }
            '"' if quoted || word.trim().is_empty() => quoted = !quoted,
            c if c == mark && !quoted => found.push((at + c.len_utf8(), String::new())),
            c => word.push(c),
        }
    }
    found.iter_mut().for_each(|(_, word)| *word = word.trim().to_owned());
    found
}

fn read(reader: &mut Reader<'_>, text: &str) {
    let mut content = lines(text).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let Some((_, head)) = content.next() else { return };
    let mark = mark(head).unwrap_or(',');
    let head: Vec<String> = fields(head, mark).into_iter().map(|(_, word)| word).collect();
    let is_name = |word: &str| NAMES.iter().any(|name| word.eq_ignore_ascii_case(name));
    let is_run = |word: &str| word.eq_ignore_ascii_case(RUN);
    // A column holds numbers if its first value is one.
    let mut numeric: Vec<Option<bool>> = vec![None; head.len()];
    let mut runs: Vec<String> = Vec::new();
    for (nr, line) in content {
        let found = fields(line, mark);
        if found.len() > head.len() {
            let (at, _) = found[head.len()];
            let what = format!("a value too many: the first line names {} columns", head.len());
            reader.wrong(nr, line, at..line.len(), &what, "quotes around values with a comma");
            continue;
        }
        let (mut prefix, mut run) = (String::new(), None);
        for (name, (_, word)) in head.iter().zip(&found) {
            if is_name(name) && number(word.as_bytes()).is_none() && !word.is_empty() {
                prefix += &format!("{word}.");
            }
            if is_run(name) {
                run = Some(runs.iter().position(|known| known == word).unwrap_or_else(|| {
                    runs.push(word.clone());
                    reader.run(RunFacts { run_id: word.clone(), ..RunFacts::default() })
                }));
            }
        }
        for (column, (name, (at, word))) in head.iter().zip(&found).enumerate() {
            let value = number(word.as_bytes());
            let named = |words: &[&str]| words.iter().any(|word| name.eq_ignore_ascii_case(word));
            let time = value.is_some_and(|value| value >= LATER) && named(TIMES);
            if is_run(name) || word.is_empty() || time || named(&["commit", "sha"]) {
                continue;
            }
            match (value, *numeric[column].get_or_insert(value.is_some())) {
                (Some(value), true) => reader.put(&format!("{prefix}{name}"), value, run),
                (None, true) => {
                    let what = format!("not a number, unlike others of column `{name}`");
                    reader.wrong(nr, line, *at..at + word.len(), &what, "leave a missing value empty");
                }
                // Words stay words even if one of them looks like a number.
                (_, false) => {}
            }
        }
    }
}
