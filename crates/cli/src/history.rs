//! `iowhy history`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use iowhy_compare::history::{self, SEARCHES, Search, Series, Settings, Verdict, read, report};
use iowhy_compare::samples::{self, FORMATS, csv, numbers};
use iowhy_lab::store::{self, Filter, Store};
use iowhy_stats::metric::{Group, headline};
use iowhy_text::diagnose::{Problem, Problems};

use crate::output::{self, Exit};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Metric; may be repeated [default: headlines, or all of a file]
    #[arg(long = "metric", value_name = "NAME")]
    metrics: Vec<String>,
    /// Label of the runs
    #[arg(long, conflicts_with = "samples")]
    label: Option<String>,
    /// Directory of the store
    #[arg(long, value_name = "DIR", conflicts_with = "samples")]
    store: Option<PathBuf>,
    /// Samples instead of runs: numbers, CSV with names, and files and folders of other programs as `iowhy compare`
    /// takes them
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,
    /// Method [default: e-divisive up to 1,000 runs, fast above]
    #[arg(long, value_parser = PossibleValuesParser::new(words()).map(|word| search(&word)))]
    method: Option<Search>,
    /// Largest share of stable series with a change
    #[arg(long, default_value = "0.01", value_parser = alpha)]
    alpha: f64,
    /// Least change that matters
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = percent)]
    min_change: f64,
    /// Least runs between changes
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    min_segment: u32,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

fn words() -> impl Iterator<Item = &'static str> {
    SEARCHES.iter().map(|(word, ..)| *word)
}

fn search(word: &str) -> Search {
    SEARCHES.iter().find(|(known, ..)| *known == word).map_or(Search::EDivisive, |(_, search, _)| *search)
}

fn alpha(text: &str) -> Result<f64, String> {
    let alpha: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    // Smaller ones take more random orders than anybody waits for.
    if (0.000_01..=0.5).contains(&alpha) { Ok(alpha) } else { Err("it must lie between 0.00001 and 0.5".to_owned()) }
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let percent: f64 = number.parse().map_err(|_| "not a number of percent".to_owned())?;
    if (0.0..=1e6).contains(&percent) { Ok(percent) } else { Err("it must not be negative".to_owned()) }
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let mut problems = Problems::default();
    let series = match &arguments.samples {
        Some(path) => {
            let name = path.display().to_string();
            of_samples(path, &name, &arguments.metrics, &mut problems)
        }
        None => stored(arguments, &mut problems)?,
    };
    output::report_all(&problems);
    if problems.any_error() {
        return Ok(Exit::Usage);
    }
    let settings = Settings {
        search: arguments.method,
        alpha: arguments.alpha,
        min_change_pct: arguments.min_change,
        min_segment: arguments.min_segment as usize,
        ..Settings::default()
    };
    let history = history::trace(series, &settings);
    if arguments.json {
        output::print_json(&report::json(&history))?;
    } else {
        output::print(&report::text(&history, output::bold()))?;
    }
    Ok(match history.verdict {
        Verdict::Worse => Exit::Failed,
        Verdict::Fine => Exit::Fine,
        Verdict::TooShort => Exit::Inconclusive,
    })
}

/// The series of a file or a folder: tables and numbers in the order of time, other formats run by run.
fn of_samples(path: &Path, name: &str, metrics: &[String], problems: &mut Problems) -> Vec<Series> {
    let mut text = None;
    if !path.is_dir() {
        let read = iowhy_text::input::text(path, iowhy_text::input::TEXT);
        text = read.map_err(|error| problems.push(Problem::error(format!("{name}: {error}")))).ok();
        let Some(text) = text.as_deref() else { return Vec::new() };
        let of = FORMATS.iter().find(|format| (format.detect)(text)).map_or("", |format| format.name);
        if of == csv::FORMAT.name || of == numbers::FORMAT.name {
            return read::read(text, name, metrics, problems);
        }
    }
    let group = match text {
        Some(text) => samples::read(name, &text, None, problems),
        None => crate::compare::of_file(name, None, problems),
    };
    let groups: Vec<Group> = group.into_iter().collect();
    let known = || groups.iter().flat_map(|group| &group.columns).map(|column| column.metric.name.as_str());
    for metric in metrics.iter().filter(|metric| !groups.is_empty() && known().all(|name| name != *metric)) {
        problems.push(Problem::error(format!("{name} has no metric `{metric}`")).near(metric, known()));
    }
    let headlines = known().any(headline);
    let all: Vec<String> = known().filter(|name| !headlines || headline(name)).map(str::to_owned).collect();
    history::of_groups(&groups, if metrics.is_empty() { &all } else { metrics }, &|_| name.to_owned())
}

/// The series of the store.
fn stored(arguments: &Arguments, problems: &mut Problems) -> anyhow::Result<Vec<Series>> {
    let variable = |name: &str| std::env::var(name).ok();
    let Some(directory) = store::directory(arguments.store.as_deref(), &variable) else {
        problems.push(Problem::error("the store has no place").help("--store DIR"));
        return Ok(Vec::new());
    };
    let store = Store::open_existing(&directory)?;
    let filter = Filter { label: arguments.label.clone(), measured: true, ..Filter::default() };
    let groups = store.groups_for_history(&filter)?;
    let runs = store.runs(&filter)?;
    let places: HashMap<&str, String> = runs
        .iter()
        .map(|run| {
            let place = if run.simulated { run.place.clone().unwrap_or_default() } else { "live".to_owned() };
            (run.id.0.as_str(), place)
        })
        .collect();
    let place = |run: &str| places.get(run).cloned().unwrap_or_default();
    let series = history::of_groups(&groups, &arguments.metrics, &place);
    let mut known: Vec<&str> =
        groups.iter().flat_map(|group| &group.columns).map(|column| column.metric.name.as_str()).collect();
    known.sort_unstable();
    known.dedup();
    for metric in &arguments.metrics {
        if !known.contains(&metric.as_str()) && !runs.is_empty() {
            problems.push(Problem::error(format!("no run has a metric `{metric}`")).near(metric, &known));
        }
    }
    if runs.is_empty()
        && let Some(label) = &arguments.label
    {
        let labels = store.runs(&Filter::default())?.into_iter().map(|run| run.label).collect::<Vec<_>>();
        problems.push(Problem::error(format!("no run has the label `{label}`")).near(label, &labels));
    }
    Ok(series)
}
