//! The publication of an incident, as data.
//!
//! A figure is published as a row (`[[row]]`), or as a cell of a table (`[[table]]`). A cell is addressed as
//! `TABLE/COLUMN/KEY`: the table's name and the key in small letters with everything else than letters and digits as
//! one dash (`paralleldd-single-ext3-uma/vanilla/3`, `bonnie-ext3-uma/readahead/seqout-block`).

use std::collections::BTreeMap;

use serde::Deserialize;

use super::IncidentError;

/// A published figure. Nothing that runs or explains may see it: it is opened by the claim checker and the printer
/// only.
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Published(f64);

impl Published {
    /// The figure, to be shown next to a result or to be held against one.
    pub(super) fn value(self) -> f64 {
        self.0
    }
}

/// How exactly something was published.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Figure {
    /// A number.
    Value(Published),
    /// Between two numbers.
    Range(Published, Published),
    /// Less than a number.
    Below(Published),
}

impl Figure {
    /// The number, if it is one.
    pub(super) fn value(self) -> Option<f64> {
        match self {
            Figure::Value(value) => Some(value.value()),
            Figure::Range(..) | Figure::Below(_) => None,
        }
    }

    /// Its bounds, where it is not a number.
    pub(super) fn range(self) -> Option<(Option<f64>, f64)> {
        match self {
            Figure::Value(_) => None,
            Figure::Range(low, high) => Some((Some(low.value()), high.value())),
            Figure::Below(high) => Some((None, high.value())),
        }
    }

    /// As people read it.
    pub(super) fn text(self) -> String {
        match self {
            Figure::Value(value) => format!("{:.2}", value.value()),
            Figure::Range(low, high) => format!("{}..{}", low.value(), high.value()),
            Figure::Below(high) => format!("< {}", high.value()),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
pub struct Incident {
    /// Its name.
    pub id: String,
    /// One line.
    pub title: String,
    /// When it was published.
    pub date: String,
    /// Absent where there are several.
    pub metric: Option<Metric>,
    /// The kernel, where the columns of tables are variants of one.
    pub kernel: Option<String>,
    /// The columns of tables, in their order: a name, and a remark in brackets.
    #[serde(default)]
    pub variants: Vec<String>,
    /// How the percents of tables are to be read.
    pub sign_convention: Option<String>,
    /// Published rows.
    #[serde(default, rename = "row")]
    pub rows: Vec<Row>,
    /// Published tables.
    #[serde(default, rename = "table")]
    pub tables: Vec<Table>,
    /// Statements without figures.
    #[serde(default, rename = "statement")]
    pub statements: Vec<Statement>,
    /// Remarks of the recorder of the incident.
    #[serde(default)]
    pub context: Context,
    /// Facts that must be shown.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
}

/// A published measurement.
#[derive(Clone, Debug, Deserialize)]
pub struct Metric {
    /// In words.
    pub name: String,
    /// Unit of the rows.
    pub unit: String,
    /// `lower` or `higher`.
    pub better: String,
}

/// One published row.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Row {
    /// Its name.
    pub id: String,
    /// The kernel, as published.
    pub variant: String,
    /// The scheduler, as published.
    pub scheduler: Option<String>,
    /// Which report.
    #[serde(default)]
    pub report: String,
    /// The permitted use of the row.
    pub role: String,
    /// The figure.
    value: Option<Published>,
    /// The figure, if it was published as a range.
    value_range: Option<[Published; 2]>,
    /// The figure, if only an upper limit was published.
    value_below: Option<Published>,
    /// All other fields.
    #[serde(flatten)]
    rest: BTreeMap<String, toml::Value>,
}

impl Row {
    /// The published figure.
    pub fn figure(&self) -> Option<Figure> {
        let range = self.value_range.map(|[low, high]| Figure::Range(low, high));
        self.value.map(Figure::Value).or(range).or(self.value_below.map(Figure::Below))
    }

    /// Fields of the row for commands: its other fields that are words or whole numbers (`writers`, `threads`).
    /// Measured figures have a point and are none of these.
    pub fn parameters(&self) -> BTreeMap<String, String> {
        self.rest.iter().filter_map(|(name, value)| Some((name.clone(), word(value)?))).collect()
    }

    /// Whether the row is shown only.
    pub fn is_context(&self) -> bool {
        self.role.starts_with("context")
    }
}

/// A word or a whole number as it stands in a command line.
pub(super) fn word(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(word) => Some(word.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A published table: a row for each key, a column before and one after the change.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub name: String,
    /// Which statistic of the samples its figures are.
    pub statistic: String,
    pub metric: Option<String>,
    /// `lower` or `higher`; none for tables without percents.
    pub better: Option<String>,
    /// Names of its rows.
    pub keys: Vec<String>,
    /// Figures before the change.
    vanilla: Vec<Published>,
    /// Figures after it.
    readahead: Vec<Published>,
    /// How much better the latter are, as published.
    percent: Option<Vec<Published>>,
    /// The permitted use of the table.
    pub role: String,
    /// A remark.
    pub note: Option<String>,
}

impl Table {
    /// Names of the columns.
    pub const COLUMNS: [&'static str; 2] = ["vanilla", "readahead"];

    /// The table's part of the ids of its cells.
    pub fn id(&self) -> String {
        slug(&self.name)
    }

    pub fn cell_id(&self, column: &str, key: &str) -> String {
        format!("{}/{column}/{}", self.id(), slug(key))
    }

    /// The figure of a cell by the numbers of its column and row.
    pub fn figure(&self, column: usize, key: usize) -> Option<Figure> {
        let column = if column == 0 { &self.vanilla } else { &self.readahead };
        column.get(key).copied().map(Figure::Value)
    }

    /// The published percent of a row.
    pub(super) fn percent(&self, key: usize) -> Option<f64> {
        Some(self.percent.as_ref()?.get(key)?.value())
    }
}

/// A name in small letters, everything else than letters and digits as one dash.
pub fn slug(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        // What names columns of iostat stays whole.
        if c.is_alphanumeric() || c == '_' {
            text.extend(c.to_lowercase());
        } else if !text.is_empty() && !text.ends_with('-') {
            text.push('-');
        }
    }
    text.truncate(text.trim_end_matches('-').len());
    text
}

/// A statement without figures.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// In words.
    pub text: String,
    /// Its permitted use.
    pub role: String,
}

/// Remarks of the recorder of the incident.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Other publications on it.
    pub thread: Option<String>,
    /// Anything else.
    pub note: Option<String>,
}

/// A fact that the simulator must show.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its name.
    pub id: String,
    /// `order`, `ratio`, `bound` or `mechanism`.
    pub kind: String,
    /// Rows of an order, worst first.
    #[serde(default)]
    pub rows: Vec<String>,
    /// Numerator of a ratio.
    pub of: Option<String>,
    /// Denominator of a ratio.
    pub to: Option<String>,
    /// The published ratio.
    pub published: Option<Published>,
    /// How far the simulated ratio may be off, percent of the published one.
    pub tolerance_pct: Option<f64>,
    /// Least ratio of a bound.
    pub min: Option<f64>,
    /// Largest ratio of a bound.
    pub max: Option<f64>,
    /// By how much the one must at least be better than the other.
    pub min_gain_pct: Option<f64>,
    /// By how much the two may differ, either way.
    pub max_change_pct: Option<f64>,
    /// Whether the incident fails without it.
    #[serde(default = "yes")]
    pub required: bool,
    /// In words.
    pub text: Option<String>,
    /// Why its bounds are these.
    pub reason: Option<String>,
}

fn yes() -> bool {
    true
}

/// Reads an incident.
///
/// # Errors
/// If the text is not one.
pub fn parse(id: &str, text: &str) -> Result<Incident, IncidentError> {
    let damaged = |message: String| IncidentError::Data { id: id.to_owned(), message };
    let incident: Incident = toml::from_str(text).map_err(|error| damaged(error.to_string()))?;
    for table in &incident.tables {
        let n = table.keys.len();
        let percents = table.percent.as_ref().map_or(n, Vec::len);
        if table.vanilla.len() != n || table.readahead.len() != n || percents != n {
            return Err(damaged(format!("table {}: its columns are not of one length", table.name)));
        }
    }
    Ok(incident)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_parts_of_ids() {
        for (name, expected) in [
            ("paralleldd-single, ext3, UMA", "paralleldd-single-ext3-uma"),
            ("bonnie++, ext3, UMA, iostat of sda", "bonnie-ext3-uma-iostat-of-sda"),
            ("SeqIn  Block", "seqin-block"),
            ("r_await", "r_await"),
            ("++", ""),
        ] {
            assert_eq!(slug(name), expected);
        }
    }

    #[test]
    fn figures_are_values_ranges_or_limits() {
        let row = |figure: &str| -> Row {
            toml::from_str(&format!("id='a'\nvariant='v'\nrole='context, shown'\nwriters=2\nstd=0.5\n{figure}"))
                .expect("a row")
        };
        let seen = |figure: &str| row(figure).figure().map(|f| (f.text(), f.value(), f.range()));
        assert_eq!(seen("value=3.5"), Some(("3.50".to_owned(), Some(3.5), None)));
        assert_eq!(seen("value_range=[25.0, 50.0]"), Some(("25..50".to_owned(), None, Some((Some(25.0), 50.0)))));
        assert_eq!(seen("value_below=2400.0"), Some(("< 2400".to_owned(), None, Some((None, 2400.0)))));
        assert_eq!(seen(""), None);
        let row = row("");
        assert!(row.is_context());
        assert_eq!(row.parameters().into_iter().collect::<Vec<_>>(), [("writers".to_owned(), "2".to_owned())]);
    }
}
