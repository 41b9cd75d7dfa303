//! The table of benchstat: medians with the distance to the further end of their interval, and the change from the
//! first column with the p-value of a Mann-Whitney test.
//!
//! ```text
//!            │   old.txt   │               new.txt               │
//!            │   sec/op    │   sec/op     vs base                │
//! Read/bs=4k   1.718µ ± 1%   1.423µ ± 1%  -17.20% (p=0.000 n=10)
//! ```
//! Positive percent is larger here, not better. P-values are not adjusted for the number of rows. Levels are
//! benchstat's: 0.05 for the test, 0.95 for intervals. One table for each configuration and unit; units, rows and
//! columns are in the order in which they were first seen, configurations in that of their values. Figures in a row
//! have one prefix, which suits the smallest.
//! Source: benchstat's output for constructed files, which `tests/vectors/benchstat.json` holds. Known deviation: lines
//! that are wrong stop the command, where benchstat goes on without them.

use std::collections::HashMap;
use std::fmt::Write;

use crate::samples::benchstat::Benchmarks;
use iowhy_stats::metric::Group;
use iowhy_stats::rank::{self, Ranks};
use iowhy_stats::{bootstrap, mann_whitney, median_sorted};
use iowhy_text::shown;

/// Level of the tests.
const ALPHA: f64 = 0.05;
/// Level of the intervals.
const CONFIDENCE: f64 = 0.95;

/// A column: one file or label.
#[derive(Clone, Debug, PartialEq)]
pub struct Side<'a> {
    /// Its head.
    pub label: String,
    /// Its samples.
    pub benchmarks: Benchmarks<'a>,
}

impl<'a> Side<'a> {
    /// Of samples of any origin: rows are metrics.
    pub fn of(group: &'a Group) -> Side<'a> {
        Side { label: group.label.clone(), benchmarks: Benchmarks::of(group) }
    }
}

/// A cell's samples, sorted, with the figures computed from them.
struct Cell {
    sorted: Vec<f64>,
    center: f64,
    interval: (f64, f64),
    warning: Option<String>,
}

/// One table: everything of one configuration and unit.
struct Table<'a> {
    unit: &'a str,
    exact: bool,
    /// Names, and the cell of each column.
    rows: Vec<(&'a str, Vec<Option<Cell>>)>,
    labels: Vec<&'a str>,
}

/// The tables of some columns, the first of which is the base.
pub fn text(sides: &[Side<'_>]) -> String {
    // Names, units and keys are in the order in which they were first seen, values of keys in that of the alphabet.
    let mut names = Order::default();
    let mut units = Order::default();
    let mut keys = Order::default();
    for series in sides.iter().flat_map(|side| &side.benchmarks.series) {
        names.rank(series.name);
        units.rank(&series.unit);
    }
    for (key, _) in sides.iter().flat_map(|side| &side.benchmarks.configs).flatten() {
        keys.rank(key);
    }
    // A table's place: the values of its keys, then its unit.
    type Slot<'a> = (Vec<&'a str>, usize);
    let mut slots: Vec<(Slot<'_>, usize, usize)> = Vec::new();
    for (column, side) in sides.iter().enumerate() {
        let configs = side.benchmarks.configs.iter();
        let values: Vec<Vec<&str>> =
            configs.map(|config| keys.words.iter().map(|key| value(config, key)).collect()).collect();
        for (nr, series) in side.benchmarks.series.iter().enumerate() {
            let config = values.get(series.config).cloned().unwrap_or_default();
            slots.push(((config, units.rank(&series.unit)), column, nr));
        }
    }
    slots.sort();
    let mut text = String::new();
    let mut last: Option<&[&str]> = None;
    for slot in slots.chunk_by(|a, b| a.0 == b.0) {
        let (values, unit) = &slot[0].0;
        if last.is_some() {
            text.push('\n');
        }
        for (nr, (key, value)) in keys.words.iter().zip(values).enumerate() {
            if last.is_none_or(|last| last[nr] != *value) {
                let _ = writeln!(text, "{}: {}", shown(key, LONGEST), shown(value, LONGEST));
            }
        }
        last = Some(values);
        table(sides, slot.iter().map(|(_, column, nr)| (*column, *nr)), units.words[*unit], &mut names)
            .render(&mut text);
    }
    text
}

/// Words longer than this are cut.
const LONGEST: usize = 200;

fn value<'a>(config: &[(&'a str, &'a str)], key: &str) -> &'a str {
    config.iter().find(|(known, _)| *known == key).map_or("", |(_, value)| *value)
}

/// Words in the order in which they were first seen.
#[derive(Default)]
struct Order<'a> {
    words: Vec<&'a str>,
    ranks: HashMap<&'a str, usize>,
}

impl<'a> Order<'a> {
    fn rank(&mut self, word: &'a str) -> usize {
        *self.ranks.entry(word).or_insert_with(|| {
            self.words.push(word);
            self.words.len() - 1
        })
    }
}

fn table<'a>(
    sides: &'a [Side<'_>],
    cells: impl Iterator<Item = (usize, usize)>,
    unit: &'a str,
    names: &mut Order<'a>,
) -> Table<'a> {
    let exact = sides.iter().any(|side| side.benchmarks.exact.iter().any(|known| known == unit));
    // Series of one table may have one name: units that only differ before they are tidied.
    let mut found: Vec<(usize, usize, Vec<f64>)> = Vec::new();
    for (column, nr) in cells {
        let series = &sides[column].benchmarks.series[nr];
        found.push((names.rank(series.name), column, series.values.clone()));
    }
    found.sort_by_key(|(name, column, _)| (*name, *column));
    let mut columns: Vec<usize> = found.iter().map(|(_, column, _)| *column).collect();
    columns.sort_unstable();
    columns.dedup();
    let mut intervals = HashMap::new();
    let mut rows: Vec<(&str, Vec<Option<Cell>>)> = Vec::new();
    for row in found.chunk_by_mut(|a, b| a.0 == b.0) {
        let mut values: Vec<Vec<f64>> = vec![Vec::new(); columns.len()];
        for (_, column, of) in row.iter_mut() {
            let at = columns.partition_point(|known| known < column);
            values[at].append(of);
        }
        let cells = values.into_iter().map(|values| {
            (!values.is_empty()).then(|| if exact { Cell::exact(values) } else { Cell::of(values, &mut intervals) })
        });
        rows.push((names.words[row[0].0], cells.collect()));
    }
    Table { unit, exact, rows, labels: columns.iter().map(|nr| sides[*nr].label.as_str()).collect() }
}

/// Places of the ends of the median's interval among `n` sorted values; `None` if they bound nothing. They do not
/// depend on the values, so those of one size are asked for once, of values that are their own places.
fn median_places(n: usize, level: f64) -> Option<(usize, usize)> {
    let places: Vec<f64> = (0..n).map(|place| place as f64).collect();
    let interval = bootstrap::median_interval(&places, level);
    (interval.low.is_finite() && interval.high.is_finite()).then_some((interval.low as usize, interval.high as usize))
}

impl Cell {
    fn of(mut values: Vec<f64>, intervals: &mut HashMap<usize, Option<(usize, usize)>>) -> Cell {
        values.sort_unstable_by(f64::total_cmp);
        let n = values.len();
        let orders = *intervals.entry(n).or_insert_with(|| median_places(n, CONFIDENCE));
        let interval = orders.map_or((f64::NEG_INFINITY, f64::INFINITY), |(low, high)| (values[low], values[high]));
        let warning = orders.is_none().then(|| {
            let least = (2..).find(|n| median_places(*n, CONFIDENCE).is_some()).unwrap_or_default();
            format!("need >= {least} samples for confidence interval at level {CONFIDENCE}")
        });
        Cell { center: median_sorted(&values), sorted: values, interval, warning }
    }

    /// Of a unit without noise: the value that is there most often, and a warning if there are others.
    fn exact(mut values: Vec<f64>) -> Cell {
        values.sort_unstable_by(f64::total_cmp);
        let mut center = (0, f64::NAN);
        for same in values.chunk_by(|a, b| a == b) {
            if same.len() > center.0 {
                center = (same.len(), same[0]);
            }
        }
        let interval = (values[0], values[values.len() - 1]);
        let warning = (interval.0 != interval.1)
            .then(|| format!("exact distribution expected, but values range from {} to {}", interval.0, interval.1));
        Cell { center: center.1, sorted: values, interval, warning }
    }

    /// The further end of the interval, in percent of the center.
    fn distance(&self) -> String {
        let (low, high) = self.interval;
        let sign = |x: f64| if x == 0.0 { 0 } else { x.signum() as i32 };
        if !low.is_finite() || !high.is_finite() {
            "∞".to_owned()
        } else if sign(low) != sign(self.center) || sign(high) != sign(self.center) {
            "?".to_owned()
        } else if self.center == 0.0 {
            "0%".to_owned()
        } else {
            format!("{:.0}%", 100.0 * (high / self.center - 1.0).max(1.0 - low / self.center))
        }
    }
}

/// Laws of U for samples without ties. They depend on the sizes alone, which are the same in most rows of a table.
#[derive(Default)]
struct Laws {
    of: HashMap<(usize, usize), Vec<f64>>,
}

impl Laws {
    /// p of the test of ascending samples: that of [`mann_whitney::test`], whose law is made once for each size.
    fn p(&mut self, a: &[f64], b: &[f64]) -> f64 {
        let Some(ranks) = Ranks::of(a, b) else { return 1.0 };
        if ranks.ties || !rank::counts_fit(a.len(), b.len()) {
            return mann_whitney::test(a, b).map_or(1.0, |test| test.p);
        }
        let sizes = (a.len(), b.len());
        let law = self.of.entry(sizes).or_insert_with(|| rank::cumulative(sizes.0, sizes.1, sizes.0 * sizes.1 / 2));
        (2.0 * law[(ranks.twice_smaller() / 2) as usize]).min(1.0)
    }
}

/// The change in a row: percent, p and n, and a warning.
struct Delta {
    percent: String,
    test: String,
    warning: Option<String>,
}

fn delta(base: &Cell, cell: &Cell, exact: bool, laws: &mut Laws) -> Delta {
    let (old, new) = (base.center, cell.center);
    let mut warning = None;
    let p = if exact {
        0.0
    } else if base.sorted[0] == base.sorted[base.sorted.len() - 1]
        && cell.sorted[0] == cell.sorted[cell.sorted.len() - 1]
        && base.sorted[0] == cell.sorted[0]
    {
        warning = Some("all samples are equal".to_owned());
        1.0
    } else {
        laws.p(&base.sorted, &cell.sorted)
    };
    let counts = [base.sorted.len(), cell.sorted.len()];
    // The least p of n against n values is 2 / (2n over n), which is below 0.05 from 4 on.
    const LEAST: usize = 4;
    if p > ALPHA && warning.is_none() && counts.iter().all(|n| *n < LEAST) {
        warning = Some(format!("need >= {LEAST} samples to detect a difference at alpha level {ALPHA}"));
    }
    let percent = if p > ALPHA {
        "~".to_owned()
    } else if old == new {
        "0.00%".to_owned()
    } else if old == 0.0 {
        "?".to_owned()
    } else {
        format!("{:+.2}%", (new / old - 1.0) * 100.0)
    };
    let n = if counts[0] == counts[1] { format!("n={}", counts[0]) } else { format!("n={}+{}", counts[0], counts[1]) };
    let test = if p == 0.0 { format!("({n})") } else { format!("(p={p:.3} {n})") };
    Delta { percent, test, warning }
}

/// A prefix and digits that suit a smallest value.
struct Scale {
    digits: usize,
    factor: f64,
    prefix: &'static str,
}

impl Scale {
    /// Four digits of the smallest value that is not zero, with the prefix that leaves one to three before the point. A
    /// value that would round up to the next prefix already has it.
    fn of(values: impl Iterator<Item = f64>, binary: bool) -> Scale {
        const DECIMAL: [(f64, &str); 8] =
            [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")];
        const BINARY: [(f64, &str); 5] =
            [(1_099_511_627_776.0, "Ti"), (1_073_741_824.0, "Gi"), (1_048_576.0, "Mi"), (1024.0, "Ki"), (1.0, "")];
        let smallest = values.map(f64::abs).filter(|value| *value != 0.0).fold(f64::INFINITY, f64::min);
        if smallest == f64::INFINITY {
            return Scale { digits: 3, factor: 1.0, prefix: "" };
        }
        let table: &[(f64, &str)] = if binary { &BINARY } else { &DECIMAL };
        for (factor, prefix) in table {
            let value = smallest / factor;
            for (bound, digits) in [(99.995, 1), (9.9995, 2), (0.99995, 3)] {
                if value >= bound {
                    return Scale { digits, factor: *factor, prefix };
                }
            }
        }
        // Below the last prefix there are only more digits.
        let (factor, prefix) = table[table.len() - 1];
        let mut digits = 3;
        let mut bound = 0.99995;
        while smallest / factor < bound && digits < 10 {
            digits += 1;
            bound /= 10.0;
        }
        Scale { digits, factor, prefix }
    }

    fn text(&self, value: f64) -> String {
        format!("{:.*}{}", self.digits, value / self.factor, self.prefix)
    }
}

/// Bytes above the line have binary prefixes.
fn is_binary(unit: &str) -> bool {
    let above = unit.split('/').next().unwrap_or_default();
    above.split(['*', '-', ' ']).any(|word| matches!(word, "B" | "MB" | "bytes"))
}

/// Mean of logarithms; `None` unless all are positive.
fn geomean(values: &[f64]) -> Option<f64> {
    let mut mean = 0.0;
    for (nr, value) in values.iter().enumerate() {
        if *value <= 0.0 {
            return None;
        }
        mean += (value.ln() - mean) / (nr + 1) as f64;
    }
    (!values.is_empty()).then(|| mean.exp())
}

/// A cell of text: which of a column's fields, and how it is put there.
#[derive(Copy, Clone)]
enum Align {
    Left,
    Right,
}

/// Text in the fields of a table: the label, then for each column center, distance, notes, and but for the first
/// percent, test, notes.
struct Grid {
    rows: Vec<Vec<(String, Align)>>,
    widths: Vec<usize>,
}

/// Field of a column's center.
fn first_field(column: usize) -> usize {
    if column == 0 { 1 } else { 4 + 6 * (column - 1) }
}

/// Width of what stands before a field: a rule before centers, ` ± ` before distances, two blanks before percents.
fn margin(field: usize) -> usize {
    match field {
        0 => 0,
        1 | 2 => 3,
        3 => 1,
        field => match (field - 4) % 6 {
            0 | 1 => 3,
            3 => 2,
            _ => 1,
        },
    }
}

impl Grid {
    fn new(fields: usize) -> Grid {
        // A margin belongs to its field, which is there even where all of its cells are empty; only notes need none.
        let is_note = |field: usize| field == 3 || field > 3 && matches!((field - 4) % 6, 2 | 5);
        let is_test = |field: usize| field > 3 && (field - 4) % 6 == 4;
        let width = |field: usize| if is_note(field) || is_test(field) { 0 } else { margin(field) };
        Grid { rows: Vec::new(), widths: (0..fields).map(width).collect() }
    }

    fn row(&mut self) {
        self.rows.push(vec![(String::new(), Align::Left); self.widths.len()]);
    }

    fn put(&mut self, field: usize, text: String, align: Align) {
        if !text.is_empty() {
            self.widths[field] = self.widths[field].max(text.chars().count() + margin(field));
        }
        if let Some(row) = self.rows.last_mut() {
            row[field] = (text, align);
        }
    }

    /// Makes room for a text over several fields: the first one grows.
    fn span(&mut self, from: usize, to: usize, text: &str) {
        let needed = text.chars().count() + margin(from);
        let there: usize = self.widths[from..to].iter().sum();
        self.widths[from] += needed.saturating_sub(there);
    }

    fn width(&self, from: usize, to: usize) -> usize {
        self.widths[from..to].iter().sum()
    }
}

/// Appends `text` in the middle of `width` characters, without blanks behind it.
fn centered(line: &mut Line, text: &str, width: usize) {
    let before = width.saturating_sub(text.chars().count()) / 2;
    line.blanks(before);
    line.text(text);
}

/// A line that knows its width.
#[derive(Default)]
struct Line {
    text: String,
    width: usize,
}

impl Line {
    fn text(&mut self, text: &str) {
        self.text.push_str(text);
        self.width += if text.is_ascii() { text.len() } else { text.chars().count() };
    }

    fn blanks(&mut self, n: usize) {
        self.text.extend(std::iter::repeat_n(' ', n));
        self.width += n;
    }

    fn to(&mut self, column: usize) {
        self.blanks(column.saturating_sub(self.width));
    }
}

/// Footnotes, each once.
#[derive(Default)]
struct Notes {
    list: Vec<String>,
}

impl Notes {
    fn mark(&mut self, warnings: &[Option<&String>]) -> String {
        let mut marks = Vec::new();
        for warning in warnings.iter().flatten() {
            let nr = self.list.iter().position(|known| known == *warning).unwrap_or_else(|| {
                self.list.push((*warning).clone());
                self.list.len() - 1
            });
            marks.push(superscript(nr + 1));
        }
        marks.join(" ")
    }
}

fn superscript(n: usize) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    n.to_string().bytes().map(|digit| DIGITS[usize::from(digit - b'0')]).collect()
}

impl Table<'_> {
    fn render(&self, text: &mut String) {
        let nr_fields = first_field(self.labels.len());
        let mut grid = Grid::new(nr_fields);
        let mut notes = Notes::default();
        let mut laws = Laws::default();
        let binary = is_binary(self.unit);
        // Of each column: the centers, and the ratios to the base where there is one.
        let mut centers: Vec<Vec<f64>> = vec![Vec::new(); self.labels.len()];
        let mut ratios: Vec<Vec<Option<f64>>> = vec![Vec::new(); self.labels.len()];
        for (name, cells) in &self.rows {
            grid.row();
            grid.put(0, shown(name, LONGEST), Align::Left);
            let scale = Scale::of(cells.iter().flatten().map(|cell| cell.center), binary);
            for (column, cell) in cells.iter().enumerate() {
                let Some(cell) = cell else { continue };
                let field = first_field(column);
                grid.put(field, scale.text(cell.center), Align::Right);
                grid.put(field + 1, cell.distance(), Align::Right);
                grid.put(field + 2, notes.mark(&[cell.warning.as_ref()]), Align::Left);
                centers[column].push(cell.center);
                if let (true, Some(base)) = (column > 0, &cells[0]) {
                    let delta = delta(base, cell, self.exact, &mut laws);
                    grid.put(field + 3, delta.percent, Align::Right);
                    grid.put(field + 4, delta.test, Align::Left);
                    grid.put(field + 5, notes.mark(&[delta.warning.as_ref()]), Align::Left);
                    ratios[column].push(match (cell.center, base.center) {
                        (a, b) if a == b => Some(1.0),
                        (_, 0.0) => None,
                        (a, b) => Some(a / b),
                    });
                }
            }
        }
        if self.rows.len() > 1 {
            self.summarise(&mut grid, &mut notes, &centers, &ratios);
        }
        self.print(&mut grid, text);
        for (nr, note) in notes.list.iter().enumerate() {
            let _ = writeln!(text, "{} {note}", superscript(nr + 1));
        }
    }

    fn summarise(&self, grid: &mut Grid, notes: &mut Notes, centers: &[Vec<f64>], ratios: &[Vec<Option<f64>>]) {
        let differs = "benchmark set differs from baseline; geomeans may not be comparable".to_owned();
        let none =
            ["summaries must be >0 to compute geomean", "ratios must be >0 to compute geomean"].map(str::to_owned);
        grid.row();
        grid.put(0, "geomean".to_owned(), Align::Left);
        for (column, (centers_here, ratios)) in centers.iter().zip(ratios).enumerate() {
            let field = first_field(column);
            let is_base = column == 0;
            let mut warnings = Vec::new();
            if !is_base && ratios.len() != centers[0].len() {
                warnings.push(Some(&differs));
            }
            match geomean(centers_here) {
                Some(mean) => {
                    let scale = Scale::of(std::iter::once(mean), is_binary(self.unit));
                    grid.put(field, scale.text(mean), Align::Right);
                }
                None => warnings.push(Some(&none[0])),
            }
            if !is_base {
                let known: Option<Vec<f64>> = ratios.iter().copied().collect();
                let mean = known.as_deref().and_then(geomean);
                if known.is_some() && mean.is_none() {
                    warnings.push(Some(&none[1]));
                }
                match mean {
                    Some(ratio) => grid.put(field + 3, format!("{:+.2}%", (ratio - 1.0) * 100.0), Align::Right),
                    None => grid.put(field + 3, "?".to_owned(), Align::Left),
                }
            }
            let last = if is_base { field + 2 } else { field + 5 };
            grid.put(last, notes.mark(&warnings), Align::Left);
        }
    }

    fn print(&self, grid: &mut Grid, text: &mut String) {
        let labels: Vec<String> = self.labels.iter().map(|label| shown(label, LONGEST)).collect();
        let unit = shown(self.unit, LONGEST);
        for (column, label) in labels.iter().enumerate() {
            let (from, to) = (first_field(column), first_field(column + 1));
            grid.span(from, from + 3, &unit);
            grid.span(from, to, label);
        }
        let edge = grid.width(0, grid.widths.len());
        let mut head = [Line::default(), Line::default()];
        for (column, label) in labels.iter().enumerate() {
            let (from, to) = (first_field(column), first_field(column + 1));
            let start = grid.width(0, from);
            for line in &mut head {
                line.to(start);
                line.text(" │ ");
            }
            centered(&mut head[0], label, grid.width(from, to) - 3);
            centered(&mut head[1], &unit, grid.width(from, from + 3) - 3);
            if column > 0 {
                head[1].to(grid.width(0, from + 3) + margin(from + 3));
                head[1].text("vs base");
            }
        }
        for mut line in head {
            line.to(edge);
            line.text(" │");
            text.push_str(&line.text);
            text.push('\n');
        }
        for row in &grid.rows {
            let mut line = Line::default();
            let mut start = 0;
            for (field, (cell, align)) in row.iter().enumerate() {
                let width = grid.widths[field];
                if !cell.is_empty() {
                    line.to(start);
                    let is_distance = field == 2 || field > 3 && (field - 4) % 6 == 1;
                    if is_distance {
                        line.text(" ± ");
                    }
                    let length = if cell.is_ascii() { cell.len() } else { cell.chars().count() };
                    match align {
                        Align::Left => line.to(start + margin(field)),
                        Align::Right => line.to(start + width - length),
                    }
                    line.text(cell);
                }
                start += width;
            }
            text.push_str(&line.text);
            text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iowhy_stats::metric::{Column, Metric};
    use serde_json::Value;

    #[test]
    fn every_table_is_what_benchstat_printed() {
        let vectors = include_str!("../tests/vectors/benchstat.json");
        let vectors: Value = serde_json::from_str(vectors).expect("the vectors are JSON");
        let cases = vectors["cases"].as_array().expect("cases");
        assert!(cases.len() > 20);
        for case in cases {
            let word = |value: &'_ Value| value.as_str().expect("a text").to_owned();
            let files: Vec<(String, String)> = case["files"]
                .as_array()
                .expect("files")
                .iter()
                .map(|file| (word(&file["label"]), word(&file["text"])))
                .collect();
            let side = |(label, text): &'_ (String, String)| (label.clone(), text.clone());
            let owned: Vec<(String, String)> = files.iter().map(side).collect();
            let sides: Vec<Side<'_>> = owned
                .iter()
                .map(|(label, text)| Side { label: label.clone(), benchmarks: Benchmarks::parse(text) })
                .collect();
            let table = text(&sides);
            let expected = word(&case["table"]);
            assert_eq!(table, expected, "{}:\n{table}\n{expected}", case["name"]);
        }
    }

    #[test]
    fn laws_that_are_kept_give_the_p_of_the_test() {
        let mut laws = Laws::default();
        for shift in 0..40 {
            let a: Vec<f64> = (0..12).map(|n| f64::from(n * 2)).collect();
            let b: Vec<f64> = (0..9 + shift % 2).map(|n| f64::from(n * 3 + shift) - 6.5).collect();
            let expected = mann_whitney::test(&a, &b).map(|test| test.p);
            assert_eq!(Some(laws.p(&a, &b)), expected, "{shift}");
        }
        assert_eq!(laws.of.len(), 2);
    }

    #[test]
    fn samples_of_any_origin_have_a_table() {
        let group = |label: &str, values: &[f64]| Group {
            label: label.to_owned(),
            columns: vec![Column {
                metric: Metric::of("p99_ns"),
                values: values.to_vec(),
                runs: Vec::new(),
                left_out: 0,
            }],
            ..Group::default()
        };
        let groups = [group("a", &[1e6; 6]), group("b", &[2e6; 6])];
        let sides: Vec<Side<'_>> = groups.iter().map(Side::of).collect();
        let table = text(&sides);
        assert!(table.ends_with("p99_ns   1.000m ± 0%   2.000m ± 0%  +100.00% (p=0.002 n=6)\n"), "{table}");
    }

    #[test]
    fn hostile_heads_stay_in_their_place() {
        let text_of = "BenchmarkA\u{1b}[31m 1 5 x\n";
        let side = Side { label: "\u{202e}\n".repeat(5_000), benchmarks: Benchmarks::parse(text_of) };
        let table = text(&[side]);
        assert!(!table.chars().any(|c| c == '\u{1b}' || c == '\u{202e}'), "{table}");
        assert_eq!(table.lines().count(), 4);
    }
}
