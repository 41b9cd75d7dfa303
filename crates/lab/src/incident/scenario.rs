//! How the rows of an incident become runs, and what had to be assumed for that.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::file::{Incident, Row};
use super::{IncidentError, RowResult};
use crate::diagnose::Problems;
use crate::sysbench::{self, Request};

/// A scenario file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Which incident.
    pub incident: String,
    /// Name of the cause.
    pub rule: String,
    /// sysbench's options for all rows.
    pub command: String,
    /// What the models do not explain.
    pub unexplained: String,
    /// Rows that the explanation compares.
    pub why: Why,
    /// Kernel (with patches) for each published variant.
    pub variants: BTreeMap<String, String>,
    /// Keys for each published scheduler.
    pub schedulers: BTreeMap<String, String>,
    /// Circumstances of each report.
    pub reports: BTreeMap<String, Circumstances>,
    /// Runs nobody published.
    #[serde(default)]
    pub extra: Vec<Extra>,
    /// Everything that is not in the document.
    #[serde(rename = "assumption")]
    pub assumptions: Vec<Assumption>,
}

/// Rows that the explanation compares.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Why {
    /// A row that shows the regression.
    pub broken: String,
    /// The same with the fix.
    pub fixed: String,
    /// The same with one descriptor per thread.
    pub own_descriptors: String,
    /// The row before the regression.
    pub before: String,
}

/// Circumstances of a report: the machine, the disk, the state of the cache.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Circumstances {
    /// Disk profile.
    pub disk: String,
    /// Keys after the kernel's name.
    pub keys: String,
    /// Options of the command.
    pub options: String,
}

/// A run nobody published.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extra {
    /// Its name.
    pub id: String,
    /// One of [`Scenario::variants`].
    pub variant: String,
    /// One of [`Scenario::schedulers`].
    pub scheduler: Option<String>,
    /// One of [`Scenario::reports`].
    pub report: String,
    /// Further options of the command.
    #[serde(default)]
    pub options: String,
    /// What it is for.
    pub note: String,
}

/// Something that is not in the document.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assumption {
    /// What is assumed.
    pub what: String,
    /// On what grounds.
    pub source: String,
}

/// Reads a scenario.
///
/// # Errors
/// If the text is not one, or belongs to another incident.
pub fn parse(id: &str, text: &str) -> Result<Scenario, IncidentError> {
    let damaged = |message: String| IncidentError::Data { id: id.to_owned(), message };
    let scenario: Scenario = toml::from_str(text).map_err(|error| damaged(error.to_string()))?;
    if scenario.incident != id {
        return Err(damaged(format!("the scenario is of incident {}", scenario.incident)));
    }
    Ok(scenario)
}

impl Scenario {
    /// All rows as plans, the published ones first, and how many these are. Nothing has run yet.
    ///
    /// # Errors
    /// If a row has a variant, scheduler or report that the scenario does not map.
    pub fn rows(&self, incident: &Incident) -> Result<(Vec<RowResult>, usize), IncidentError> {
        let mut rows = Vec::new();
        for row in &incident.rows {
            rows.push(self.row(row, "", None)?);
        }
        let nr_published = rows.len();
        for extra in &self.extra {
            let row = Row {
                id: extra.id.clone(),
                variant: extra.variant.clone(),
                scheduler: extra.scheduler.clone(),
                report: extra.report.clone(),
                role: "extra".to_owned(),
                value: None,
            };
            rows.push(self.row(&row, &extra.options, Some(extra.note.clone()))?);
        }
        Ok((rows, nr_published))
    }

    fn row(&self, row: &Row, options: &str, note: Option<String>) -> Result<RowResult, IncidentError> {
        let damaged = |message: String| IncidentError::Data { id: self.incident.clone(), message };
        let unmapped = |kind: &str, name: &str| damaged(format!("row {}: no {kind} `{name}` in the scenario", row.id));
        let kernel = self.variants.get(&row.variant).ok_or_else(|| unmapped("variant", &row.variant))?;
        let report = self.reports.get(&row.report).ok_or_else(|| unmapped("report", &row.report))?;
        let mut on = format!("sim:{kernel}");
        if let Some(scheduler) = &row.scheduler {
            let keys = self.schedulers.get(scheduler).ok_or_else(|| unmapped("scheduler", scheduler))?;
            on.push(',');
            on.push_str(keys);
        }
        on.push(',');
        on.push_str(&report.keys);
        let disk = &report.disk;
        let words = [&self.command, &report.options, options, "run --on", &on, "--disk", disk];
        let command = words.iter().filter(|word| !word.is_empty()).copied().collect::<Vec<_>>().join(" ");
        let arguments: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        let mut problems = Problems::default();
        match sysbench::resolve(&arguments, &mut problems) {
            Some(Request::Run(run)) => Ok(RowResult {
                id: row.id.clone(),
                variant: row.variant.clone(),
                scheduler: row.scheduler.clone(),
                report: row.report.clone(),
                role: row.role.clone(),
                published: row.value,
                command,
                note,
                plan: run.0,
                samples: Vec::new(),
            }),
            _ => Err(damaged(format!("row {}: `{command}` is refused:\n{}", row.id, problems.render()))),
        }
    }
}
