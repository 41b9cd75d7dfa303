//! What was published about an incident, as data.

use serde::Deserialize;

use super::IncidentError;

/// A published figure. Nothing that runs or explains may see it: it is opened by the claim checker and the printer
/// only.
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Published(f64);

impl Published {
    /// The figure, to be shown beside a result or to be held against one.
    pub(super) fn value(self) -> f64 {
        self.0
    }
}

/// An incident.
#[derive(Clone, Debug, Deserialize)]
pub struct Incident {
    /// Its name.
    pub id: String,
    /// One line.
    pub title: String,
    /// When it was published.
    pub date: String,
    /// What was measured; absent where there are several.
    pub metric: Option<Metric>,
    /// Published rows.
    #[serde(default, rename = "row")]
    pub rows: Vec<Row>,
    /// What must be shown.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
}

/// What was measured.
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
#[derive(Clone, Debug, Deserialize)]
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
    /// What the row may be used for.
    pub role: String,
    /// The figure.
    pub value: Option<Published>,
}

/// What the simulator must show.
#[derive(Clone, Debug, Deserialize)]
pub struct Claim {
    /// Its name.
    pub id: String,
    /// `order`, `ratio`, `bound` or `mechanism`.
    pub kind: String,
    /// Rows of an order, slowest first.
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
    /// Whether the incident fails without it.
    #[serde(default = "yes")]
    pub required: bool,
    /// In words.
    pub text: Option<String>,
}

fn yes() -> bool {
    true
}

/// Reads an incident.
///
/// # Errors
/// If the text is not one.
pub fn parse(id: &str, text: &str) -> Result<Incident, IncidentError> {
    toml::from_str(text).map_err(|error| IncidentError::Data { id: id.to_owned(), message: error.to_string() })
}
