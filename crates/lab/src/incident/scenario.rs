//! How the figures of an incident become runs, and what had to be assumed for that.
//!
//! A run is a command line: a template, the kernel of its variant, the keys of its scheduler, the circumstances of its
//! report. `{name}` in a template is a parameter of the row or of the run's `each`; `{options}` is where options of the
//! report and of the run go, at the end if it does not say.
//!
//! ```text
//! published row  a `[[run]]` with its id, or else `command` of its report or of the scenario
//! table cell     a `[[table]]` entry: runs by a pattern of ids, and a metric
//! change         a `[[derived]]` row: one row against another
//! anything else a `[[run]]` with an unpublished id: an extra row
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;

use super::command::plan_of_command;
use super::file::{Figure, Incident, Row, Table, word};
use super::metric::{self, CHANGE_PCT, Metric};
use super::{IncidentError, RowResult, RunResult, Source};
use iowhy_stats::Better;
use iowhy_stats::mmtests::Statistic;

/// A scenario file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Which incident.
    pub incident: String,
    /// Name of the cause.
    pub rule: String,
    /// The command of all rows that have no other.
    pub command: Option<String>,
    /// The metric of all rows that have no other.
    #[serde(default = "elapsed")]
    pub metric: String,
    /// How ratios are averaged.
    #[serde(default)]
    pub average: Average,
    /// Default repetitions of a run.
    #[serde(default = "four")]
    pub sequences: u32,
    /// The name of a repetition: one, several.
    #[serde(default = "seeds")]
    pub repetition: [String; 2],
    /// Effects that the models do not explain.
    pub unexplained: String,
    /// Rows that the explanation compares, by the part they play in it; `broken` is the one to repeat.
    #[serde(default)]
    pub why: BTreeMap<String, String>,
    /// Kernel (with patches) for each variant.
    pub variants: BTreeMap<String, String>,
    /// Keys for each scheduler.
    #[serde(default)]
    pub schedulers: BTreeMap<String, String>,
    /// Circumstances of each report; `default` for rows that name none.
    #[serde(default)]
    pub reports: BTreeMap<String, Circumstances>,
    #[serde(default, rename = "run")]
    pub runs: Vec<Run>,
    /// Rows that are made of two others.
    #[serde(default, rename = "derived")]
    pub derived: Vec<Derived>,
    /// Where the cells of published tables come from.
    #[serde(default, rename = "table")]
    pub tables: Vec<Cells>,
    /// Rows that claims are about which do not name them.
    #[serde(default, rename = "compare")]
    pub compares: Vec<Compare>,
    /// Everything that is not in the document.
    #[serde(rename = "assumption")]
    pub assumptions: Vec<Assumption>,
}

fn elapsed() -> String {
    "elapsed_s".to_owned()
}

fn once() -> u32 {
    1
}

fn four() -> u32 {
    4
}

fn seeds() -> [String; 2] {
    ["seed".to_owned(), "seeds".to_owned()]
}

/// How the ratio of two rows is averaged.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Average {
    /// Repetition by repetition, then the mean: both rows saw the same positions.
    #[default]
    MeanOfRatios,
    /// The means first: for rows near a threshold, whose repetitions have nothing to do with one another.
    RatioOfMeans,
}

/// Circumstances of a report: the machine, the disk, the state of the cache.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Circumstances {
    /// Disk profile with keys.
    #[serde(default)]
    pub disk: String,
    /// Keys after the kernel's name.
    #[serde(default)]
    pub keys: String,
    /// Options of the command.
    #[serde(default)]
    pub options: String,
    /// The command, if the report's differs.
    pub command: Option<String>,
    /// The metric, if the report's differs.
    pub metric: Option<String>,
}

/// A run, or several of a kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Its name; that of a published row if it is its run.
    pub id: String,
    /// One of [`Scenario::variants`].
    pub variant: String,
    /// One of [`Scenario::schedulers`].
    pub scheduler: Option<String>,
    /// One of [`Scenario::reports`].
    #[serde(default)]
    pub report: String,
    /// The words after `iowhy`, without `--on` and `--disk`.
    pub command: Option<String>,
    /// Further options of the command.
    #[serde(default)]
    pub options: String,
    pub metric: Option<String>,
    /// Runs that belong together.
    #[serde(default)]
    pub group: String,
    /// Its purpose.
    pub note: Option<String>,
    /// Least repetitions, in any case: for effects of chance.
    #[serde(default)]
    pub least_sequences: u32,
    /// Most repetitions, in any case: for results that hardly vary.
    pub most_sequences: Option<u32>,
    /// Its frequency in the publication, for cells of monitors, which see each run in proportion.
    #[serde(default = "once")]
    pub times: u32,
    /// Parameters with several values: one run for each combination. They are taken in the order of
    /// their names, the last one changing fastest.
    #[serde(default)]
    pub each: BTreeMap<String, Vec<toml::Value>>,
}

/// A row that is made of two others: the change of the one against the other, in percent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Derived {
    /// Its name; that of a published row if it stands for one.
    pub id: String,
    /// The row that changed.
    pub of: String,
    /// The row it is compared with.
    pub to: String,
}

/// Where the cells of a published table come from.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cells {
    /// The table's name.
    pub name: String,
    /// The run of a cell: its id, with `{column}` and `{key}`. With a `*` at the end, all runs that begin so; the cell
    /// is the mean over them.
    pub run: String,
    /// The metric, with `{column}` and `{key}`.
    pub metric: String,
    /// The figures are those of a monitor that takes samples at regular intervals: in the mean over the runs each
    /// counts by the time it takes, and by how often it was made.
    #[serde(default)]
    pub sampled: bool,
    /// Rows that are simulated, if not all are.
    pub keys: Option<Vec<String>>,
}

/// Rows that a claim is about which does not name them: each of `of` against the one of `to` at the same place.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    pub claim: String,
    /// The changed rows.
    pub of: Vec<String>,
    /// The rows they are compared with.
    pub to: Vec<String>,
}

/// Something that is not in the document.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assumption {
    /// The assumption.
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
    for compare in &scenario.compares {
        if compare.of.len() != compare.to.len() || compare.of.is_empty() {
            return Err(damaged(format!("compare of claim {}: no pairs of rows", compare.claim)));
        }
    }
    Ok(scenario)
}

/// Values of the `{name}`s in templates.
type Parameters = BTreeMap<String, String>;

/// The runs to make, and the rows made of them. Nothing has run yet.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Runs in order.
    pub runs: Vec<RunResult>,
    /// Published rows and cells in their order.
    pub rows: Vec<RowResult>,
    /// Unpublished rows.
    pub extra: Vec<RowResult>,
    /// Published rows that are only shown.
    pub context: Vec<Row>,
}

impl Scenario {
    /// All rows as plans.
    ///
    /// # Errors
    /// If something is named that does not exist, or a command is refused.
    pub fn plan(&self, incident: &Incident) -> Result<Planned, IncidentError> {
        let mut planned = Planned { runs: Vec::new(), rows: Vec::new(), extra: Vec::new(), context: Vec::new() };
        let expanded = self.expanded()?;
        for row in &incident.rows {
            self.published_row(incident, row, &expanded, &mut planned)?;
        }
        let mut used: Vec<String> = incident.rows.iter().map(|row| row.id.clone()).collect();
        for (run, parameters) in &expanded {
            if incident.rows.iter().any(|row| row.id == run.id) {
                continue;
            }
            if used.contains(&run.id) {
                return Err(self.damaged(format!("run {}: there are two of this name", run.id)));
            }
            used.push(run.id.clone());
            planned.runs.push(self.run(run, parameters)?);
            planned.extra.push(self.row_of_run(&planned.runs, "extra", None)?);
        }
        let times: BTreeMap<String, u32> = expanded.iter().map(|(run, _)| (run.id.clone(), run.times)).collect();
        for cells in &self.tables {
            self.cells(incident, cells, &times, &mut planned)?;
        }
        for derived in &self.derived {
            if incident.rows.iter().all(|row| row.id != derived.id) {
                let row = self.derived_row(derived, None);
                planned.extra.push(row);
            }
        }
        self.names_exist(incident, &planned)?;
        Ok(planned)
    }

    fn damaged(&self, message: String) -> IncidentError {
        IncidentError::Data { id: self.incident.clone(), message }
    }

    fn published_row(
        &self,
        incident: &Incident,
        row: &Row,
        expanded: &[(Run, Parameters)],
        planned: &mut Planned,
    ) -> Result<(), IncidentError> {
        if let Some(derived) = self.derived.iter().find(|derived| derived.id == row.id) {
            planned.rows.push(self.derived_row(derived, Some(row)));
            return Ok(());
        }
        let own = expanded.iter().find(|(run, _)| run.id == row.id);
        let (run, parameters) = match own {
            Some((run, parameters)) => (run.clone(), parameters.clone()),
            None if row.is_context() => {
                planned.context.push(row.clone());
                return Ok(());
            }
            None => (self.run_of_row(row), row.parameters()),
        };
        planned.runs.push(self.run(&run, &parameters)?);
        let mut result = self.row_of_run(&planned.runs, &row.role, row.figure())?;
        result.variant.clone_from(&row.variant);
        result.scheduler.clone_from(&row.scheduler);
        result.report.clone_from(&row.report);
        let better = incident.metric.as_ref().and_then(|metric| Better::parse(&metric.better));
        if better.is_some_and(|better| better != result.metric.better) {
            return Err(self.damaged(format!("row {}: {} has another direction", row.id, result.metric.name)));
        }
        planned.rows.push(result);
        Ok(())
    }

    fn run_of_row(&self, row: &Row) -> Run {
        Run {
            id: row.id.clone(),
            variant: row.variant.clone(),
            scheduler: row.scheduler.clone(),
            report: row.report.clone(),
            command: None,
            options: String::new(),
            metric: None,
            group: String::new(),
            note: None,
            least_sequences: 0,
            most_sequences: None,
            times: 1,
            each: BTreeMap::new(),
        }
    }

    /// The row that shows the last of the runs.
    fn row_of_run(
        &self,
        runs: &[RunResult],
        role: &str,
        published: Option<Figure>,
    ) -> Result<RowResult, IncidentError> {
        let Some(run) = runs.last() else { return Err(self.damaged("no run".to_owned())) };
        Ok(RowResult {
            id: run.id.clone(),
            variant: run.variant.clone(),
            scheduler: run.scheduler.clone(),
            report: run.report.clone(),
            group: run.group.clone(),
            role: role.to_owned(),
            published,
            note: run.note.clone(),
            metric: run.metric,
            statistic: Statistic::Amean,
            source: Source::Runs(vec![runs.len() - 1]),
            runs: Vec::new(),
            values: Vec::new(),
        })
    }

    fn derived_row(&self, derived: &Derived, row: Option<&Row>) -> RowResult {
        RowResult {
            id: derived.id.clone(),
            variant: row.map_or_else(String::new, |row| row.variant.clone()),
            scheduler: None,
            report: row.map_or_else(String::new, |row| row.report.clone()),
            group: String::new(),
            role: row.map_or("extra", |row| row.role.as_str()).to_owned(),
            published: row.and_then(Row::figure),
            note: Some(format!("change of {} against {}", derived.of, derived.to)),
            metric: CHANGE_PCT,
            statistic: Statistic::Amean,
            source: Source::Change { of: derived.of.clone(), to: derived.to.clone() },
            runs: Vec::new(),
            values: Vec::new(),
        }
    }

    fn cells(
        &self,
        incident: &Incident,
        cells: &Cells,
        times_of: &BTreeMap<String, u32>,
        planned: &mut Planned,
    ) -> Result<(), IncidentError> {
        let Some(table) = incident.tables.iter().find(|table| table.name == cells.name) else {
            return Err(self.damaged(format!("no table `{}` was published", cells.name)));
        };
        if let Some(key) = cells.keys.iter().flatten().find(|key| !table.keys.contains(key)) {
            return Err(self.damaged(format!("table {}: no row `{key}`", table.name)));
        }
        let statistic = Statistic::parse(&table.statistic)
            .ok_or_else(|| self.damaged(format!("table {}: unknown statistic {}", table.name, table.statistic)))?;
        for (nr, column) in Table::COLUMNS.iter().enumerate() {
            for (key_nr, key) in table.keys.iter().enumerate() {
                if cells.keys.as_ref().is_some_and(|keys| !keys.contains(key)) {
                    continue;
                }
                let id = table.cell_id(column, key);
                let parameters =
                    BTreeMap::from([("column".to_owned(), (*column).to_owned()), ("key".to_owned(), key.clone())]);
                let fill = |template: &str| fill(template, &parameters).map_err(|error| self.damaged(error));
                let (pattern, metric) = (fill(&cells.run)?, fill(&cells.metric)?);
                let is_meant = |run: &RunResult| match pattern.strip_suffix('*') {
                    Some(start) => run.id.starts_with(start),
                    None => run.id == pattern,
                };
                let runs: Vec<usize> =
                    planned.runs.iter().enumerate().filter(|(_, run)| is_meant(run)).map(|(nr, _)| nr).collect();
                if runs.is_empty() {
                    return Err(self.damaged(format!("cell {id}: unknown run `{pattern}`")));
                }
                let source = if cells.sampled {
                    let times = |nr: usize| (nr, times_of.get(&planned.runs[nr].id).copied().unwrap_or(1));
                    Source::Sampled(runs.into_iter().map(times).collect())
                } else {
                    Source::Runs(runs)
                };
                planned.rows.push(RowResult {
                    id,
                    variant: (*column).to_owned(),
                    scheduler: None,
                    report: table.id(),
                    group: table.id(),
                    role: table.role.clone(),
                    published: table.figure(nr, key_nr),
                    note: None,
                    metric: self.metric(&metric)?,
                    statistic,
                    source,
                    runs: Vec::new(),
                    values: Vec::new(),
                });
            }
        }
        Ok(())
    }

    /// Rows named by the scenario are there.
    fn names_exist(&self, incident: &Incident, planned: &Planned) -> Result<(), IncidentError> {
        let exists = |id: &str| planned.rows.iter().chain(&planned.extra).any(|row| row.id == id);
        let derived = self.derived.iter().flat_map(|derived| [&derived.of, &derived.to]);
        let compared = self.compares.iter().flat_map(|compare| compare.of.iter().chain(&compare.to));
        if let Some(id) = derived.chain(compared).chain(self.why.values()).find(|id| !exists(id)) {
            return Err(self.damaged(format!("unknown row `{id}`")));
        }
        let claims = |id: &str| incident.claims.iter().any(|claim| claim.id == id);
        match self.compares.iter().find(|compare| !claims(&compare.claim)) {
            Some(compare) => Err(self.damaged(format!("unknown claim `{}`", compare.claim))),
            None => Ok(()),
        }
    }

    /// Every run with its parameters filled in.
    fn expanded(&self) -> Result<Vec<(Run, Parameters)>, IncidentError> {
        let mut expanded = Vec::new();
        for run in &self.runs {
            let mut combinations = vec![BTreeMap::new()];
            for (name, values) in &run.each {
                let mut longer = Vec::new();
                for combination in &combinations {
                    for value in values {
                        let value = word(value).ok_or_else(|| {
                            self.damaged(format!("run {}: {name} is neither word nor number", run.id))
                        })?;
                        let mut combination: Parameters = combination.clone();
                        combination.insert(name.clone(), value);
                        longer.push(combination);
                    }
                }
                combinations = longer;
            }
            for parameters in combinations {
                let fill = |template: &str| {
                    fill(template, &parameters).map_err(|error| self.damaged(format!("run {}: {error}", run.id)))
                };
                let mut one = run.clone();
                one.id = fill(&run.id)?;
                one.variant = fill(&run.variant)?;
                one.report = fill(&run.report)?;
                one.group = fill(&run.group)?;
                one.scheduler = run.scheduler.as_deref().map(fill).transpose()?;
                expanded.push((one, parameters));
            }
        }
        Ok(expanded)
    }

    fn run(&self, run: &Run, parameters: &Parameters) -> Result<RunResult, IncidentError> {
        let damaged = |message: String| self.damaged(format!("row {}: {message}", run.id));
        let unmapped = |kind: &str, name: &str| damaged(format!("no {kind} `{name}` in the scenario"));
        let kernel = self.variants.get(&run.variant).ok_or_else(|| unmapped("variant", &run.variant))?;
        let none = Circumstances::default();
        let report = match run.report.as_str() {
            "" => self.reports.get("default").unwrap_or(&none),
            name => self.reports.get(name).ok_or_else(|| unmapped("report", name))?,
        };
        let template = [&run.command, &report.command, &self.command].into_iter().flatten().next();
        let template = template.ok_or_else(|| damaged("it has no command".to_owned()))?;
        let mut on = format!("sim:{kernel}");
        let scheduler = match &run.scheduler {
            Some(scheduler) => self.schedulers.get(scheduler).ok_or_else(|| unmapped("scheduler", scheduler))?,
            None => "",
        };
        for keys in [scheduler, report.keys.as_str()].into_iter().filter(|keys| !keys.is_empty()) {
            on.push(',');
            on.push_str(keys);
        }
        let options = join(&[&report.options, &run.options]);
        let template = if template.contains("{options}") {
            template.replace("{options}", &options)
        } else {
            join(&[template, &options])
        };
        let mut words = join(&[&template, "--on", &on]);
        if !report.disk.is_empty() {
            words = join(&[&words, "--disk", &report.disk]);
        }
        let words: Vec<String> =
            fill(&words, parameters).map_err(damaged)?.split_whitespace().map(str::to_owned).collect();
        let command = words.join(" ");
        let plan = plan_of_command(&words)
            .map_err(|problems| damaged(format!("`{command}` is refused:\n{}", problems.render())))?;
        let metric = [&run.metric, &report.metric].into_iter().flatten().next().unwrap_or(&self.metric);
        Ok(RunResult {
            id: run.id.clone(),
            variant: run.variant.clone(),
            scheduler: run.scheduler.clone(),
            report: run.report.clone(),
            group: run.group.clone(),
            command,
            note: run.note.clone(),
            metric: self.metric(metric)?,
            least_sequences: run.least_sequences,
            most_sequences: run.most_sequences.unwrap_or(u32::MAX),
            plan,
            samples: Vec::new(),
        })
    }

    fn metric(&self, name: &str) -> Result<&'static Metric, IncidentError> {
        metric::find(name).map_err(|problem| self.damaged(problem.render()))
    }
}

/// Words with one blank between them.
fn join(words: &[&str]) -> String {
    words.iter().filter(|word| !word.is_empty()).copied().collect::<Vec<_>>().join(" ")
}

/// The template with every `{name}` replaced.
fn fill(template: &str, parameters: &Parameters) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else { return Err(format!("a bracket is open: {template}")) };
        let value = parameters.get(name).ok_or_else(|| format!("no parameter `{name}` for `{template}`"))?;
        text.push_str(before);
        text.push_str(value);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::{Entry, How, file, run_entry};

    const INCIDENT: &str = r#"
id = "a"
title = "t"
date = "d"
kernel = "4.4.0"
variants = ["vanilla (128 KB)", "large (512 KB)"]
metric = { name = "time", unit = "s", better = "lower" }
[[row]]
id = "old-2"
variant = "old"
threads = 2
value = 4.0
role = "calibration"
[[row]]
id = "new-2"
variant = "new"
threads = 2
value_range = [1.0, 2.0]
role = "prediction"
[[row]]
id = "change"
variant = "new against old"
value = -5.0
role = "prediction"
[[row]]
id = "said"
variant = "what was only said"
role = "context"
[[table]]
name = "reads, ext3"
statistic = "Amean"
better = "lower"
keys = ["1", "2", "9"]
vanilla = [1.0, 2.0, 3.0]
readahead = [1.0, 2.0, 3.0]
role = "prediction"
[[table]]
name = "reads, ext3, iostat of sda"
statistic = "Mean"
keys = ["avgrqsz"]
vanilla = [10.0]
readahead = [20.0]
role = "context"
[[statement]]
text = "nobody measured more"
role = "context"
[context]
note = "a remark"
[[claim]]
id = "c"
kind = "bound"
min_gain_pct = -90
reason = "ours"
[[claim]]
id = "far"
kind = "bound"
of = "own-descriptors"
to = "old-2"
min = 0.01
[[claim]]
id = "open"
kind = "mechanism"
"#;

    const SCENARIO: &str = r#"
incident = "a"
rule = "r"
command = """
sysbench fileio --file-test-mode=rndrd --file-num=1 --file-total-size=8M --events=20 --time=0 --threads={threads} \
{options} run"""
average = "ratio-of-means"
sequences = 3
unexplained = ""
[why]
broken = "new-2"
[variants]
old = "linux-4.4"
new = "linux-6.18"
vanilla = "linux-4.4"
readahead = "linux-4.4,read_ahead_kb=512"
[reports.default]
disk = "ide-2004"
[[run]]
id = "ext3/{variant}/{threads}"
variant = "{variant}"
group = "ext3"
metric = "process_mean_s"
each = { variant = ["vanilla", "readahead"], threads = [1, 2] }
[[run]]
id = "own-descriptors"
variant = "old"
options = "--own-descriptors"
each = { threads = [2] }
note = "what if"
[[derived]]
id = "change"
of = "new-2"
to = "old-2"
[[table]]
name = "reads, ext3"
run = "ext3/{column}/{key}"
metric = "process_mean_s"
keys = ["1", "2"]
[[table]]
name = "reads, ext3, iostat of sda"
run = "ext3/{column}/*"
metric = "iostat_{key}"
[[compare]]
claim = "c"
of = ["reads-ext3/readahead/1", "reads-ext3/readahead/2"]
to = ["reads-ext3/vanilla/1", "reads-ext3/vanilla/2"]
[[assumption]]
what = "w"
source = "s"
"#;

    fn plan(scenario: &str) -> Result<Planned, IncidentError> {
        parse("a", scenario)?.plan(&file::parse("a", INCIDENT)?)
    }

    #[test]
    fn rows_cells_and_changes_come_from_runs() -> Result<(), IncidentError> {
        let planned = plan(SCENARIO)?;
        let ids = |rows: &[RowResult]| rows.iter().map(|row| row.id.clone()).collect::<Vec<_>>().join(" ");
        let runs: Vec<&str> = planned.runs.iter().map(|run| run.id.as_str()).collect();
        let extra = "ext3/vanilla/1 ext3/readahead/1 ext3/vanilla/2 ext3/readahead/2 own-descriptors";
        assert_eq!(runs.join(" "), format!("old-2 new-2 {extra}"));
        assert_eq!(ids(&planned.extra), extra);
        assert_eq!(
            ids(&planned.rows),
            "old-2 new-2 change reads-ext3/vanilla/1 reads-ext3/vanilla/2 reads-ext3/readahead/1 \
             reads-ext3/readahead/2 reads-ext3-iostat-of-sda/vanilla/avgrqsz reads-ext3-iostat-of-sda/readahead/avgrqsz"
        );
        assert_eq!(planned.rows[8].source, Source::Runs(vec![3, 5]));
        assert_eq!(planned.context.len(), 1);
        assert!(
            planned.runs[6].command.ends_with("--threads=2 --own-descriptors run --on sim:linux-4.4 --disk ide-2004")
        );
        Ok(())
    }

    #[test]
    fn an_incident_of_every_kind_of_row_runs_and_is_told() -> Result<(), IncidentError> {
        let entry = Entry { id: "a", file: INCIDENT, scenario: Some(SCENARIO), checks: &[], why: None };
        let how = How { threads: 1, ..How::default() };
        let result = run_entry(&entry, SCENARIO, how, &|_, _| {})?;
        let of = |id: &str| result.row(id).expect(id).clone();
        assert_eq!((result.sequences, of("old-2").values.len()), (3, 3));
        let change = 100.0 * (of("new-2").simulated() / of("old-2").simulated() - 1.0);
        assert!((of("change").simulated() - change).abs() < 1e-9);
        // The cell is the mean over both runs that the pattern names.
        let size = metric::find("iostat_avgrqsz").expect("a metric");
        let sizes = |nr: usize| super::super::mean(result.runs[nr].values(size).into_iter());
        let cell = of("reads-ext3-iostat-of-sda/vanilla/avgrqsz");
        assert!((cell.simulated() - (sizes(2) + sizes(4)) / 2.0).abs() < 1e-9 && cell.simulated() > 0.0);
        let held: Vec<bool> = result.claims.iter().map(|claim| claim.held).collect();
        assert_eq!(held, [true, true, false], "{:?}", result.claims);
        assert!(!result.all_required_held());
        let follows: Vec<Option<&str>> = result.claims.iter().map(|claim| claim.follows.as_deref()).collect();
        let same = [Some("both sides have the same figure in every run"), Some("both sides make the same events")];
        assert_eq!(follows, [same[0], same[1], None]);

        let text = super::super::report::text(&result, str::to_owned);
        for part in [
            "1..2",
            "simulated, mean of 3 seeds",
            "4.4.0                 4.4.0\n",
            "vanilla                 large\n",
            "Mean sda-avgrqsz",
            "what was only said (context)",
            "nobody measured more (context)",
            "a remark",
            "own-descriptors",
            "to repeat row new-2",
            "- bounds: ours",
            "NOT HELD  open",
            "nothing checks this yet",
        ] {
            assert!(text.contains(part), "no `{part}` in\n{text}");
        }
        assert!(!text.contains("\n  ext3/vanilla/1") && !text.contains("elevator"), "{text}");

        let json = super::super::report::json(std::slice::from_ref(&result), &[], &[], 0.0);
        let incident = &json["incidents"][0];
        assert_eq!(incident["rows"][1]["published"], serde_json::Value::Null);
        assert_eq!(incident["rows"][1]["published_range"]["max"], 2.0);
        assert_eq!(incident["rows"][8]["layers"], serde_json::Value::Null);
        assert_eq!(incident["tables"][0]["columns"][0]["published"][2], 3.0);
        assert!(incident["tables"][0]["columns"][0]["simulated"][2].is_null());
        assert!(incident["tables"][0]["columns"][1]["simulated"][1].as_f64() > Some(0.0));
        assert_eq!(incident["context"]["notes"][0], "a remark");
        assert_eq!((&json["claims_total"], &json["claims_held"]), (&1.into(), &0.into()));
        Ok(())
    }

    #[test]
    fn a_scenario_that_names_what_is_not_there_is_damaged() {
        for (from, to, expected) in [
            ("{threads}", "{treads}", "no parameter `treads`"),
            ("process_mean_s", "process_mean", "unknown metric"),
            ("[reports.default]", "[reports.other]\n[reports.default]\ndsk='x'", "unknown field"),
            ("ext3/{column}/{key}", "ext3/{column}/x{key}", "unknown run `ext3/vanilla/x1`"),
            ("keys = [\"1\", \"2\"]", "keys = [\"1\", \"4\"]", "no row `4`"),
            ("of = \"new-2\"", "of = \"new-3\"", "unknown row `new-3`"),
            ("claim = \"c\"", "claim = \"d\"", "unknown claim `d`"),
            ("variant = \"old\"", "variant = \"older\"", "no variant `older`"),
            ("ext3/{variant}/{threads}", "ext3/{variant}", "there are two of this name"),
            ("name = \"reads, ext3\"", "name = \"writes\"", "no table `writes`"),
            ("sysbench fileio", "sysbnch fileio", "is refused"),
            ("id = \"change\"", "id = \"changed\"", "no variant `new against old`"),
            ("vanilla/2\"]", "vanilla/2\", \"x\"]", "no pairs"),
            ("incident = \"a\"", "incident = \"b\"", "of incident b"),
        ] {
            let scenario = SCENARIO.replacen(from, to, 1);
            assert_ne!(scenario, SCENARIO, "{from}");
            match plan(&scenario) {
                Err(error) => assert!(error.to_string().contains(expected), "{to}: {error}"),
                Ok(_) => panic!("{to} is accepted"),
            }
        }
    }

    #[test]
    fn a_metric_of_the_other_direction_is_no_match_for_a_published_row() {
        let scenario = SCENARIO.replacen("average", "metric = \"read_mb_s\"\naverage", 1);
        assert!(plan(&scenario).is_err_and(|error| error.to_string().contains("another direction")));
    }
}
