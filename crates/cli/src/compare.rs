//! `iowhy compare`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser};
use iowhy_compare::samples;
use iowhy_compare::samples::benchstat::Benchmarks;
use iowhy_compare::text::Style;
use iowhy_compare::{self as compare, Adjust, Calibration, Comparison, Settings, TailShift, Verdict, benchstat, gate};
use iowhy_lab::store::{self, Store, StoreError};
use iowhy_stats::Better;
use iowhy_stats::autocorrelation::Order;
use iowhy_stats::metric::Group;
use iowhy_text::diagnose::{Problem, Problems, Severity};
use iowhy_text::input;

use crate::output::{self, Exit};

#[derive(clap::Args)]
#[command(about = "Compare two sets of runs: regression, improvement, same, or cannot tell")]
#[command(after_help = "Exit codes: 0 the same or better, 1 a regression, 2 a usage or input error, 3\n\
    cannot tell.\n\nFormats of sample files: numbers (one a line), csv, fio (JSON), fio-terse,\n\
    fio-hist (write_hist_log), iostat (-x), asv, benchstat, sysbench, \
    histostat,\niowhy (run --json); detected unless --samples-format \
    names one. A folder is a\nside, too: results of mmtests, bench-fio, asv, or runs of one job.")]
pub(crate) struct Arguments {
    /// Base, then candidate: labels, tags or run ids in the store; files with
    /// --samples. Tables of mmtests and benchstat take more than two
    #[arg(required = true, num_args = 1.., value_name = "A B")]
    what: Vec<String>,
    /// The candidate's words, so that each side may have several; `--` for short
    #[arg(long, num_args = 1.., value_name = "B")]
    against: Vec<String>,
    #[command(flatten)]
    input: Input,
    /// The methods with their literature
    #[arg(long)]
    verbose: bool,
    /// Form of the output; --json is short for json
    #[arg(long, alias = "as", default_value = "text", value_name = "FORM", value_parser = forms())]
    format: String,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Files of a folder of samples, at most.
const MOST_FILES: usize = 100_000;
/// Bytes of each of them, at most.
const LONGEST: u64 = 64 << 20;
/// Calls of a run whose latencies are looked at, at most.
const CALLS: usize = 2_000;

#[derive(Clone, clap::Args)]
pub(crate) struct Input {
    /// Take the words as files with samples, not names in the store
    #[arg(long)]
    pub(crate) samples: bool,
    /// Format of the files [default: detected]
    #[arg(long, value_name = "NAME")]
    pub(crate) samples_format: Option<String>,
    /// Metric to compare; may be repeated [default: those of every job]
    #[arg(long, value_name = "M")]
    pub(crate) metric: Vec<String>,
    /// Compare every metric that both sides have
    #[arg(long, conflicts_with = "metric")]
    pub(crate) all_metrics: bool,
    /// Share of false alarms over all metrics; intervals have the level 1 - alpha
    #[arg(long, default_value = "0.01", value_parser = alpha)]
    pub(crate) alpha: f64,
    /// Change, percent, up to which sides are the same
    #[arg(long, default_value = "1%", value_parser = percent, value_name = "PERCENT")]
    pub(crate) margin: f64,
    /// Better direction of all metrics [default: by their names]
    #[arg(long, value_enum)]
    pub(crate) better: Option<Direction>,
    /// Adjustment of the p-values of several metrics
    #[arg(long, value_enum, default_value_t = Adjustment::Bh)]
    pub(crate) adjust: Adjustment,
    /// Order of the samples, if the store does not know
    #[arg(long, value_enum, default_value_t = Taken::Unknown)]
    pub(crate) order: Taken,
    /// Draws of every resampling
    #[arg(long, default_value_t = 9_999, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(99..=1_000_000))]
    pub(crate) draws: u32,
    /// Seed of the draws
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// Store [default: IOWHY_STORE, or the data directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
}

/// How a comparison is printed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people
    Text,
    /// mmtests' table
    Mmtests,
    /// benchstat's table
    Benchstat,
    /// JUnit's XML
    Junit,
    /// Annotations of GitHub's workflows
    Github,
    /// A table of 72 columns for mailing lists
    Mail,
    /// A bar chart for comments in Markdown
    Mermaid,
    /// One JSON object
    Json,
}

/// Which direction is better.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Direction {
    /// Less: times
    Lower,
    /// More: rates
    Higher,
}

/// In which order samples were taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Taken {
    /// Unknown: dependence of neighbours counts where it shows
    Unknown,
    /// Both sides in random order, or from runs that cannot influence one another
    Random,
    /// One side after the other, on a machine that remembers
    Serial,
}

/// Adjustment of the p-values of several metrics.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Adjustment {
    /// Benjamini and Hochberg
    Bh,
    /// Holm
    Holm,
}

/// Forms of the output. Formats of files had this option before.
fn forms() -> PossibleValuesParser {
    let formats = samples::FORMATS.iter().map(|format| format.name);
    let formats = formats.filter(|name| Form::from_str(name, false).is_err());
    let forms = Form::value_variants().iter().filter_map(Form::to_possible_value);
    PossibleValuesParser::new(forms.chain(formats.map(|name| PossibleValue::new(name).hide(true))))
}

pub(crate) fn alpha(word: &str) -> Result<f64, String> {
    match word.parse::<f64>() {
        Ok(alpha) if (1e-6..=0.5).contains(&alpha) => Ok(alpha),
        _ => Err("it takes a number from 0.000001 to 0.5, for example 0.01".to_owned()),
    }
}

/// A percentage. Without its sign a number below 1 could be a share.
pub(crate) fn percent(word: &str) -> Result<f64, String> {
    let number = word.trim().trim_end_matches('%').trim_end();
    match number.parse::<f64>() {
        Ok(value) if value > 0.0 && value < 1.0 && !word.contains('%') => {
            Err(format!("`{number}` needs its unit: {number}%, or {}%", value * 100.0))
        }
        Ok(percent) if (0.0..=1000.0).contains(&percent) => Ok(percent),
        _ => Err("it takes a percentage from 0 to 1000, for example 5%".to_owned()),
    }
}

impl Input {
    /// Settings of a comparison of some groups.
    fn settings(&self, groups: [&Group; 2]) -> Settings {
        let mut metrics = self.metric.clone();
        if self.all_metrics {
            for column in groups.into_iter().flat_map(|group| &group.columns) {
                if !metrics.contains(&column.metric.name) {
                    metrics.push(column.metric.name.clone());
                }
            }
        }
        Settings {
            alpha: self.alpha,
            margin_pct: self.margin,
            adjust: match self.adjust {
                Adjustment::Bh => Adjust::Discoveries,
                Adjustment::Holm => Adjust::Family,
            },
            order: match self.order {
                Taken::Unknown => Order::Unknown,
                Taken::Random => Order::Random,
                Taken::Serial => Order::Serial,
            },
            metrics,
            draws: self.draws,
            seed: self.seed,
            ..Settings::default()
        }
    }

    /// The store that is meant.
    pub(crate) fn open(&self) -> Result<Store, StoreError> {
        let variable = |name: &str| std::env::var(name).ok();
        let directory = store::directory(self.store.as_deref(), &variable).ok_or(StoreError::NoPlace)?;
        Store::open_existing(&directory)
    }

    /// The groups of sides, each of files or of names in the store.
    pub(crate) fn groups(&self, sides: &[Vec<String>], problems: &mut Problems) -> Vec<Group> {
        let mut groups: Vec<Group> = if self.samples {
            let read = |name: &String, problems: &mut Problems| of_file(name, self.samples_format.as_deref(), problems);
            let mut side =
                |names: &Vec<String>| samples::together(names.iter().filter_map(|name| read(name, problems)).collect());
            sides.iter().filter_map(&mut side).collect()
        } else {
            let names: Vec<String> = sides.iter().map(|names| names.join(",")).collect();
            let store = match self.open() {
                Ok(store) => store,
                Err(error) => {
                    problems.push(about_files(Problem::error(error.to_string()), &names));
                    return Vec::new();
                }
            };
            let find = |name: &String, problems: &mut Problems| match store.group(name) {
                Ok(group) => Some(group),
                Err(error) => {
                    problems.push(about_files(Problem::error(error.to_string()), std::slice::from_ref(name)));
                    None
                }
            };
            names.iter().filter_map(|name| find(name, problems)).collect()
        };
        if let Some(direction) = self.better {
            let better = match direction {
                Direction::Lower => Better::Lower,
                Direction::Higher => Better::Higher,
            };
            groups.iter_mut().flat_map(|group| &mut group.columns).for_each(|column| column.metric.better = better);
        }
        for metric in &self.metric {
            let known = || groups.iter().flat_map(|group| group.columns.iter().map(|column| &column.metric.name));
            if !problems.any_error() && known().all(|name| name != metric) {
                problems.push(
                    Problem::error(format!("neither side has a metric `{metric}`"))
                        .near(metric, known())
                        .help("--all-metrics lists them"),
                );
            }
        }
        groups
    }

    /// Compares base and candidate. Without `--samples` the calibrations that the store has of the machine and the job
    /// are quoted.
    pub(crate) fn compare(&self, a: &Group, b: &Group) -> Comparison {
        let settings = self.settings([a, b]);
        let mut comparison = compare::compare(a, b, &settings);
        if !self.samples {
            comparison.calibration.extend(self.calibrations(b, &comparison));
            comparison.latencies = self.latencies([a, b], &comparison.settings);
        }
        comparison
    }

    /// How latencies of single calls shift, if the store has them. A comparison does without the missing ones.
    fn latencies(&self, sides: [&Group; 2], settings: &Settings) -> Vec<TailShift> {
        let runs = |store: &Store, group: &Group| store.latencies(&store.find(&group.label)?, CALLS);
        let found = self.open().and_then(|store| Ok((runs(&store, sides[0])?, runs(&store, sides[1])?)));
        found.map_or_else(|_| Vec::new(), |(a, b)| compare::latencies(&a, &b, settings))
    }

    fn calibrations(&self, group: &Group, comparison: &Comparison) -> Vec<Calibration> {
        let Some(run) = group.runs.first().filter(|run| !run.machine.is_empty()) else { return Vec::new() };
        // A comparison does without the store's knowledge about noise.
        let known = self.open().and_then(|store| store.calibrations(&run.machine, &run.job)).unwrap_or_default();
        let shown = |known: &Calibration| comparison.rows.iter().any(|row| row.metric.name == known.metric);
        known.into_iter().filter(shown).collect()
    }
}

/// The words of a command line, in which `--` divides the sides of a comparison: it becomes `--against`, behind which
/// options may stand.
pub(crate) fn sides(words: &[OsString]) -> Vec<OsString> {
    let mut words = words.to_vec();
    let verb = words.iter().find(|word| !word.as_encoded_bytes().starts_with(b"-"));
    // The job of a report stands behind `--`, too.
    let samples = words.iter().take_while(|word| *word != "--").any(|word| word == "--samples");
    let divides = verb.is_some_and(|verb| verb == "compare" || verb == "check" || verb == "report" && samples);
    if let Some(divider) = words.iter().position(|word| word == "--").filter(|_| divides) {
        words[divider] = OsString::from("--against");
    }
    words
}

/// A text file; any other is a problem.
pub(crate) fn load(name: &str, problems: &mut Problems) -> Option<String> {
    iowhy_lab::run::load(name)
        .map_err(|error| {
            let help = "with --samples the words are names of files; without it, of runs in the store";
            problems.push(Problem::error(format!("`{name}` cannot be read: {error}")).help(help));
        })
        .ok()
}

/// The samples of a file, or of a folder, of which standard error says what was read.
pub(crate) fn of_file(name: &str, format: Option<&str>, problems: &mut Problems) -> Option<Group> {
    if !Path::new(name).is_dir() {
        let text = load(name, problems)?;
        return samples::read(name, &text, format, problems);
    }
    let paths = input::below(Path::new(name), MOST_FILES);
    let paths =
        paths.map_err(|error| problems.push(Problem::error(format!("`{name}` cannot be read: {error}")))).ok()?;
    let file = |path: PathBuf| {
        let words = path.file_name().unwrap_or_default().to_string_lossy();
        let text = samples::folder::worth(&words)
            .map_err(str::to_owned)
            .and_then(|()| input::text(&Path::new(name).join(&path), LONGEST).map_err(|error| error.to_string()));
        samples::folder::File { path: path.display().to_string(), text }
    };
    let mut found = Problems::default();
    let group = samples::folder::read(name, paths.into_iter().map(file).collect(), format, &mut found);
    for problem in found.list {
        match problem.severity {
            Severity::Note if output::look().quiet => {}
            Severity::Note => output::complain(&problem.render()),
            Severity::Warning | Severity::Error => problems.push(problem),
        }
    }
    group
}

/// Advice where names that are not in the store are files.
fn about_files(problem: Problem, names: &[String]) -> Problem {
    match names.iter().find(|name| Path::new(name).is_file()) {
        Some(name) => problem.help(format!("`{name}` is a file: iowhy compare --samples A B")),
        None => problem,
    }
}

/// For a process.
pub(crate) fn exit(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Same | Verdict::Improvement => Exit::Fine,
        Verdict::Regression => Exit::Failed,
        Verdict::Inconclusive => Exit::Inconclusive,
    }
}

/// The sides: with a divider base and candidate, without one each word is a side.
pub(crate) fn divided(base: &[String], candidate: &[String]) -> Vec<Vec<String>> {
    match candidate {
        [] => base.iter().map(|name| vec![name.clone()]).collect(),
        _ => vec![base.to_vec(), candidate.to_vec()],
    }
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let named = Form::from_str(&arguments.format, false).ok();
    let form = if arguments.json { Form::Json } else { named.unwrap_or(Form::Text) };
    let tables = matches!(form, Form::Mmtests | Form::Benchstat);
    let sides = divided(&arguments.what, &arguments.against);
    let mut input = arguments.input.clone();
    if named.is_none() {
        input.samples_format = Some(arguments.format.clone());
    }
    let input = &input;
    if sides.len() != 2 && !tables {
        let problem = Problem::error(format!("a comparison has a base and a candidate, not {}", sides.len()));
        let help = "iowhy compare A B; several files a side: --samples A1 A2 -- B1 B2; any number: \
                    --format mmtests|benchstat";
        output::report(problem.help(help));
        return Ok(Exit::Usage);
    }
    let mut problems = Problems::default();
    if form == Form::Benchstat
        && input.samples
        && arguments.against.is_empty()
        && let Some(table) = table_of_files(input, &arguments.what, &mut problems)
    {
        output::print(&table)?;
        return Ok(Exit::Fine);
    }
    if problems.any_error() {
        output::report_all(&problems);
        return Ok(Exit::Usage);
    }
    let mut groups = input.groups(&sides, &mut problems);
    output::report_all(&problems);
    if problems.any_error() {
        return Ok(Exit::Usage);
    }
    if tables && !input.metric.is_empty() {
        groups.iter_mut().for_each(|group| group.columns.retain(|of| input.metric.contains(&of.metric.name)));
    }
    if form == Form::Benchstat {
        let sides: Vec<benchstat::Side<'_>> = groups.iter().map(benchstat::Side::of).collect();
        output::print(&benchstat::text(&sides))?;
        return Ok(Exit::Fine);
    }
    if form == Form::Mmtests {
        output::print(&compare::mmtests::text(&groups, &input.metric))?;
        return Ok(Exit::Fine);
    }
    let [a, b] = groups.as_slice() else { return Ok(Exit::Usage) };
    let comparison = input.compare(a, b);
    let gate = gate::by_verdict(&comparison);
    match form {
        Form::Json => output::print_json(&compare::json::compare(&comparison))?,
        Form::Junit => output::print(&compare::junit::text(&comparison, &gate))?,
        Form::Github => output::print(&compare::github::text(&comparison, &gate))?,
        Form::Mail => output::print(&compare::mail::text(&comparison, [a, b]))?,
        Form::Mermaid => output::print(&compare::mermaid::text(&comparison))?,
        Form::Text | Form::Mmtests | Form::Benchstat => {
            let style = Style { verbose: arguments.verbose, ..output::style() };
            output::print(&compare::text::text(&comparison, None, style))?;
        }
    }
    Ok(exit(comparison.verdict))
}

/// benchstat's table of files that are in benchstat's format; nothing is computed that it does not show. `None` if a
/// file is in another one, or cannot be read.
fn table_of_files(input: &Input, names: &[String], problems: &mut Problems) -> Option<String> {
    let ours = |text: &str| match &input.samples_format {
        Some(name) => name == samples::benchstat::FORMAT.name,
        None => (samples::benchstat::FORMAT.detect)(text),
    };
    if !input.metric.is_empty() || input.better.is_some() {
        return None;
    }
    let mut texts = Vec::new();
    if names.iter().any(|name| Path::new(name).is_dir()) {
        return None;
    }
    for name in names {
        let text = load(name, problems)?;
        if !ours(&text) {
            return None;
        }
        texts.push(text);
    }
    let mut sides = Vec::new();
    for (name, text) in names.iter().zip(&texts) {
        let benchmarks = Benchmarks::parse(text);
        if !benchmarks.wrong.is_empty() {
            // The reader of samples reports the mistake.
            return None;
        }
        sides.push(benchstat::Side { label: name.clone(), benchmarks });
    }
    Some(benchstat::text(&sides))
}
