//! Tables as `compare-mmtests` prints them, so that a simulated table can be held next to a published one.
//!
//! ```text
//!                                   4.4.0                 4.4.0
//!                                 vanilla        readahead-v1r1
//! Amean    Elapsd-1        5.42 (  0.00%)        5.40 (  0.50%)
//! ```
//! Rows come statistic by statistic, all operations of the first one before the next. The percent is how much better
//! a column is than the first one: positive is better whatever the metric's direction ([`gain_pct`]).
//! Source: the layout by running compare-mmtests.pl on constructed data, the older widths from reports of 2016 to 2018.
//! Known deviations: no star for subselection data, whose interval comes from random draws.

use iowhy_stats::Better;
use iowhy_stats::mmtests::{Statistic, amean, gain_pct, stddev};

/// Widths of a table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Least width of the statistic's name: the longest that the full report has, although a mail may quote two rows.
    pub label_width: usize,
    pub value_width: usize,
    /// Its digits after the point.
    pub decimals: usize,
    /// Width of the percent; none for tables without.
    pub percent_width: Option<usize>,
    /// The extra width of a header cell over value and percent with their brackets (` (`, `%)`): only old bonnie++
    /// tables.
    pub header_extra: usize,
    /// Stars instead of brackets where the means differ by more than both half-widths.
    pub stars: bool,
}

impl Layout {
    /// The layout of the 2018 incident: most benchmarks.
    pub const OLD: Layout = Layout {
        label_width: "CoeffVar".len(),
        value_width: 12,
        decimals: 2,
        percent_width: Some(6),
        header_extra: 0,
        stars: false,
    };
    /// The same time's bonnie++, whose header stands two columns to the right of its rows.
    pub const OLD_BONNIE: Layout = Layout { value_width: 16, header_extra: 2, ..Layout::OLD };
    /// Monitors and totals, then and now: no percent.
    pub const MONITOR: Layout = Layout { label_width: 0, percent_width: None, ..Layout::OLD };
    /// Today's generic benchmarks.
    pub const NEW: Layout = Layout { label_width: 0, percent_width: Some(7), stars: true, ..Layout::OLD };
    /// Today's benchmarks with an extractor of their own.
    pub const NEW_WIDE: Layout = Layout { value_width: 18, decimals: 8, ..Layout::NEW };

    fn cell_width(&self) -> usize {
        self.value_width + self.percent_width.map_or(0, |width| width + 4)
    }
}

/// Measurements of one operation: samples of every column.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Its label, `Elapsd-1` or `SeqIn  Block`.
    pub name: String,
    /// Samples by column; columns may differ in number of samples.
    pub samples: Vec<Vec<f64>>,
    /// Which direction is better.
    pub better: Better,
}

/// One line of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The statistic's name, or the name of a total.
    pub label: String,
    /// The operation, empty for totals.
    pub operation: String,
    /// The columns.
    pub cells: Vec<Cell>,
}

/// One cell.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Cell {
    /// The figure; NaN where there is none.
    pub value: f64,
    /// How much better than the first column, percent.
    pub percent: Option<f64>,
    /// Whether it differs by more than chance.
    pub significant: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Names of the columns: kernels.
    pub columns: Vec<String>,
    /// Rows in order.
    pub lines: Vec<Line>,
}

/// Statistics that a benchmark with several samples an operation is shown by.
pub fn default_statistics(better: Better) -> [Statistic; 6] {
    [
        Statistic::Min,
        better.mean(),
        if better == Better::Lower { Statistic::Stddev } else { Statistic::HStddev },
        Statistic::CoeffVar,
        Statistic::Max,
        if better == Better::Lower { Statistic::BAmean(95) } else { Statistic::BHmean(95) },
    ]
}

/// A table of operations, one block of rows for each statistic.
pub fn table(columns: &[&str], operations: &[Operation], statistics: &[Statistic]) -> Table {
    let mut lines = Vec::new();
    for statistic in statistics {
        for operation in operations {
            let cell = |nr: usize| cell(*statistic, operation, nr);
            lines.push(Line {
                label: statistic.name(),
                operation: operation.name.clone(),
                cells: (0..columns.len()).map(cell).collect(),
            });
        }
    }
    Table { columns: columns.iter().map(|name| (*name).to_owned()).collect(), lines }
}

fn cell(statistic: Statistic, operation: &Operation, nr: usize) -> Cell {
    let samples = |nr: usize| operation.samples.get(nr).map_or(&[][..], Vec::as_slice);
    let value = |nr: usize| statistic.of(samples(nr), operation.better);
    let percent = gain_pct(value(0), value(nr), statistic.better(operation.better));
    let is_main = matches!(statistic, Statistic::Amean | Statistic::Hmean | Statistic::Gmean | Statistic::Mean);
    // One sample has no deviation; the comparison with NaN is false, so it is never called significant.
    let halves = half_width(samples(0)) + half_width(samples(nr));
    let significant = is_main && nr > 0 && (value(nr) - value(0)).abs() > halves;
    Cell { value: value(nr), percent: Some(percent), significant }
}

/// Half of the interval that mmtests draws around a mean: the 97.5 percent point of the normal distribution times the
/// deviation.
pub fn half_width(samples: &[f64]) -> f64 {
    const Z_97_5: f64 = 1.959_963_984_540_054;
    Z_97_5 * stddev(samples)
}

/// A table of known figures, like published ones: one line for each, `percent` from the figures where a direction is
/// given.
pub fn figures(columns: &[&str], label: &str, rows: &[(&str, Vec<f64>)], better: Option<Better>) -> Table {
    let lines = rows
        .iter()
        .map(|(name, values)| Line {
            label: if label.is_empty() { (*name).to_owned() } else { label.to_owned() },
            operation: if label.is_empty() { String::new() } else { (*name).to_owned() },
            cells: values
                .iter()
                .map(|value| Cell {
                    value: *value,
                    percent: better.map(|better| gain_pct(values.first().copied().unwrap_or(f64::NAN), *value, better)),
                    significant: false,
                })
                .collect(),
        })
        .collect();
    Table { columns: columns.iter().map(|name| (*name).to_owned()).collect(), lines }
}

/// Rows of a monitor: mean of the samples for each device and name (`sda-avgrqsz`), without percent.
pub fn monitor(columns: &[&str], rows: &[(&str, Vec<Vec<f64>>)]) -> Table {
    let rows: Vec<(&str, Vec<f64>)> =
        rows.iter().map(|(name, samples)| (*name, samples.iter().map(|s| amean(s)).collect())).collect();
    figures(columns, "Mean", &rows, None)
}

impl Table {
    /// The table as text, ending in a newline.
    pub fn render(&self, layout: &Layout) -> String {
        let longest = |of: fn(&Line) -> &str| self.lines.iter().map(|line| of(line).chars().count()).max().unwrap_or(0);
        let label_width = longest(|line| &line.label).max(layout.label_width);
        let operation_width = longest(|line| &line.operation);
        let totals = operation_width == 0;
        let before = if totals { label_width + 1 } else { label_width + 1 + operation_width };
        let mut text = String::new();
        for half in 0..2 {
            let mut line = " ".repeat(before);
            for name in &self.columns {
                let (first, rest) = heading(name);
                let word = if half == 0 { first } else { rest };
                line.push_str(&format!("{word:>width$}", width = layout.cell_width() + layout.header_extra));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        for line in &self.lines {
            text.push_str(&format!("{:<label_width$} {:<operation_width$}", line.label, line.operation));
            for cell in &line.cells {
                text.push_str(&cell.render(layout));
            }
            text.push('\n');
        }
        text
    }
}

impl Cell {
    fn render(&self, layout: &Layout) -> String {
        let (width, decimals) = (layout.value_width, layout.decimals);
        let mut text = if self.value.is_nan() {
            format!("{:>width$}", "NaN")
        } else {
            format!("{:>width$.decimals$}", self.value)
        };
        if let Some(width) = layout.percent_width {
            let (open, close) = if layout.stars && self.significant { ('*', '*') } else { ('(', ')') };
            // A percent that rounds to nothing has no sign.
            let percent = self.percent.map(|percent| if percent.abs() < 0.005 { 0.0 } else { percent });
            match percent {
                Some(percent) if !percent.is_nan() => text.push_str(&format!(" {open}{percent:width$.2}%{close}")),
                _ => text.push_str(&format!(" {open}{:>width$}%{close}", "NaN")),
            }
        }
        text
    }
}

/// A name in two lines: up to the first `-`, where an `-rcN` still belongs to the first part, and the rest.
fn heading(name: &str) -> (&str, &str) {
    let Some((first, rest)) = name.split_once('-') else { return (name, "") };
    if !rest.starts_with("rc") {
        return (first, rest);
    }
    match rest.find('-') {
        Some(end) => (&name[..first.len() + 1 + end], &rest[end + 1..]),
        None => (name, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [&str; 2] = ["4.4.0-vanilla", "4.4.0-readahead-v1r1"];

    /// Published figures are the input here: the test is of their places. Percentages come from the rounded figures, so
    /// they may be off by a little from those of the report, which rounded later; the rows below are those that are
    /// not.
    fn published(rows: &[(&str, f64, f64)]) -> Vec<(String, Vec<f64>)> {
        rows.iter().map(|(name, base, new)| ((*name).to_owned(), vec![*base, *new])).collect()
    }

    fn render(label: &str, rows: &[(&str, f64, f64)], better: Option<Better>, layout: &Layout) -> String {
        let rows = published(rows);
        let rows: Vec<(&str, Vec<f64>)> = rows.iter().map(|(name, values)| (name.as_str(), values.clone())).collect();
        figures(&COLUMNS, label, &rows, better).render(layout)
    }

    #[test]
    fn paralleldd_as_it_was_published() {
        let rows = [("Elapsd-1", 6.91, 7.10), ("Elapsd-3", 6.77, 6.93), ("Elapsd-5", 6.82, 7.00)];
        let text = render("Min", &rows, Some(Better::Lower), &Layout::OLD);
        let expected = "                                  4.4.0                 4.4.0
                                vanilla        readahead-v1r1
Min      Elapsd-1        6.91 (  0.00%)        7.10 ( -2.75%)
Min      Elapsd-3        6.77 (  0.00%)        6.93 ( -2.36%)
Min      Elapsd-5        6.82 (  0.00%)        7.00 ( -2.64%)
";
        assert_eq!(text, expected);
    }

    #[test]
    fn pgbench_as_it_was_published() {
        let rows = [
            ("1", 3000.54, 2895.28),
            ("8", 20596.33, 19291.92),
            ("12", 30760.68, 30019.58),
            ("24", 74383.22, 73580.80),
            ("32", 88377.30, 88928.70),
            ("80", 55981.37, 76886.10),
            ("112", 74060.29, 87632.95),
        ];
        let text = render("Hmean", &rows, Some(Better::Higher), &Layout::OLD);
        let expected = "                             4.4.0                 4.4.0
                           vanilla        readahead-v1r1
Hmean    1       3000.54 (  0.00%)     2895.28 ( -3.51%)
Hmean    8      20596.33 (  0.00%)    19291.92 ( -6.33%)
Hmean    12     30760.68 (  0.00%)    30019.58 ( -2.41%)
Hmean    24     74383.22 (  0.00%)    73580.80 ( -1.08%)
Hmean    32     88377.30 (  0.00%)    88928.70 (  0.62%)
Hmean    80     55981.37 (  0.00%)    76886.10 ( 37.34%)
Hmean    112    74060.29 (  0.00%)    87632.95 ( 18.33%)
";
        assert_eq!(text, expected);
    }

    #[test]
    fn bonnie_as_it_was_published() {
        let rows = [
            ("SeqOut Char", 81079.98, 81172.05),
            ("SeqOut Block", 104416.12, 104116.24),
            ("SeqIn  Block", 134581.06, 137245.71),
            ("SeqCreate del", 911.29, 880.24),
            ("RandCreate read", 2.00, 2.25),
            ("RandCreate del", 911.89, 878.80),
        ];
        let text = render("Hmean", &rows, Some(Better::Higher), &Layout::OLD_BONNIE);
        let expected = "                                               4.4.0                       4.4.0
                                             vanilla              readahead-v1r1
Hmean    SeqOut Char            81079.98 (  0.00%)        81172.05 (  0.11%)
Hmean    SeqOut Block          104416.12 (  0.00%)       104116.24 ( -0.29%)
Hmean    SeqIn  Block          134581.06 (  0.00%)       137245.71 (  1.98%)
Hmean    SeqCreate del            911.29 (  0.00%)          880.24 ( -3.41%)
Hmean    RandCreate read            2.00 (  0.00%)            2.25 ( 12.50%)
Hmean    RandCreate del           911.89 (  0.00%)          878.80 ( -3.63%)
";
        assert_eq!(text, expected);
    }

    #[test]
    fn monitors_and_totals_as_they_were_published() {
        let rows = [
            ("sda-avgqusz", vec![vec![7.44], vec![8.59]]),
            ("sda-avgrqsz", vec![vec![279.77], vec![722.52]]),
            ("sda-r_await", vec![vec![3.0, 3.64], vec![11.58]]),
            ("sda-w_await", vec![vec![19106.20], vec![20255.41]]),
        ];
        let expected = "                       4.4.0       4.4.0
                     vanillareadahead-v1r1
Mean sda-avgqusz        7.44        8.59
Mean sda-avgrqsz      279.77      722.52
Mean sda-r_await        3.32       11.58
Mean sda-w_await    19106.20    20255.41
";
        assert_eq!(monitor(&COLUMNS, &rows).render(&Layout::MONITOR), expected);
        let rows = [("User", 1817.53, 1798.89), ("System", 499.40, 420.65), ("Elapsed", 10692.67, 10588.08)];
        let expected = "               4.4.0       4.4.0
             vanillareadahead-v1r1
User         1817.53     1798.89
System        499.40      420.65
Elapsed     10692.67    10588.08
";
        assert_eq!(render("", &rows, None, &Layout::MONITOR), expected);
    }

    #[test]
    fn rows_come_statistic_by_statistic_with_stars_where_intervals_do_not_touch() {
        let operation = |name: &str, new: [f64; 3]| Operation {
            name: name.to_owned(),
            samples: vec![vec![5.0, 5.1, 5.2], new.to_vec()],
            better: Better::Lower,
        };
        let operations = [operation("Elapsd-1", [5.1, 5.2, 5.3]), operation("Elapsd-3", [7.0, 7.1, 7.2])];
        let text = table(&["a-x", "b-y"], &operations, &[Statistic::Min, Statistic::Amean]).render(&Layout::NEW);
        let expected = "                                    a                      b
                                    x                      y
Min   Elapsd-1        5.00 (   0.00%)        5.10 (  -2.00%)
Min   Elapsd-3        5.00 (   0.00%)        7.00 ( -40.00%)
Amean Elapsd-1        5.10 (   0.00%)        5.20 (  -1.96%)
Amean Elapsd-3        5.10 (   0.00%)        7.10 * -39.22%*
";
        assert_eq!(text, expected);
    }

    #[test]
    fn spread_is_bad_even_where_more_is_better() {
        let operation = Operation {
            name: "1".to_owned(),
            samples: vec![vec![10.0, 12.0], vec![10.0, 14.0]],
            better: Better::Higher,
        };
        let table = table(&["a", "b"], std::slice::from_ref(&operation), &[Statistic::Stddev, Statistic::Max]);
        let percent = |line: usize| table.lines[line].cells[1].percent.map(f64::round);
        assert_eq!((percent(0), percent(1)), (Some(-100.0), Some(17.0)));
    }

    #[test]
    fn a_figure_that_does_not_exist_is_said_to_be_none() {
        let operation = Operation { name: "1".to_owned(), samples: vec![vec![1.0], vec![0.0]], better: Better::Higher };
        let text = table(&["a", "b"], &[operation], &[Statistic::Hmean]).render(&Layout::OLD);
        assert!(text.ends_with("Hmean    1        1.00 (  0.00%)         NaN (   NaN%)\n"), "{text}");
    }

    #[test]
    fn names_break_at_the_first_dash_but_not_before_a_candidate() {
        for (name, expected) in [
            ("4.4.0-vanilla", ("4.4.0", "vanilla")),
            ("4.4.0-readahead-v1r1", ("4.4.0", "readahead-v1r1")),
            ("4.5.0-rc3-vanilla", ("4.5.0-rc3", "vanilla")),
            ("4.5.0-rc3", ("4.5.0-rc3", "")),
            ("plain", ("plain", "")),
        ] {
            assert_eq!(heading(name), expected);
        }
    }
}
