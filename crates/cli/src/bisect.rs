//! `iowhy bisect`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context;
use clap::ValueEnum;
use iowhy_lab::bisect::Verdict;
use iowhy_lab::bisect::commit::{self, Border, References, Sequential};
use iowhy_lab::bisect::policy::{self, Answer, Settings};
use iowhy_lab::incident::command::plan_of_command;
use iowhy_lab::incident::metric;
use iowhy_stack::outcome::Plan;
use iowhy_stats::Better;
use iowhy_stats::metric::Metric;
use iowhy_text::diagnose::{Problem, Problems};

use crate::output::{self, Bar, Exit};

#[derive(clap::Args)]
#[command(about = "Find the change that made it slow: between two simulated kernels, or among commits")]
#[command(after_help = "Between two kernels: halves their differences (policies, tunables, disk), runs\nthe job with \
    each half, and ends at the one, or the combination, without\nwhich it is not slow.\n\n  iowhy bisect --good \
    sim:linux-6.18 --bad sim:linux-6.18,read_ahead_kb=16 \\\n    paralleldd size=16m readers=3 files=multi bs=64k\n\n\
    Among commits: measures a \
    command until it is sure, and exits as git wants it:\n0 good, 1 bad, 125 skip (it failed, or cannot tell), 128 a \
    mistake.\n\n  git checkout v1; iowhy bisect --git --learn good -- ./measure\n  git checkout v2; iowhy bisect --git \
    --learn bad -- ./measure\n  git bisect start v2 v1; git bisect run iowhy bisect --git -- ./measure\n\nWith \
    --bisect-exit, compare, check and explain exit in the same way.\n\nExit codes: 0 found, 2 a usage or input \
    error, 3 no difference, or cannot tell.")]
pub(crate) struct Arguments {
    /// Fast place: sim:KERNEL, with patches and keys
    #[arg(long, value_name = "WHERE", required_unless_present = "git", conflicts_with = "git")]
    good: Option<String>,
    /// Slow place
    #[arg(long, value_name = "WHERE", required_unless_present = "git", conflicts_with = "git")]
    bad: Option<String>,
    /// Metric [default: elapsed_s]; of a commit a name in its JSON
    #[arg(long, value_name = "M")]
    metric: Option<String>,
    /// One JSON object instead of text
    #[arg(long, conflicts_with = "git")]
    json: bool,
    /// Most seeds of a test, or runs of a commit [default: 64 and 60]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: Option<u32>,
    /// Largest chance of error of one test
    #[arg(long, value_name = "P", default_value = "0.001", value_parser = error)]
    error: f64,
    /// Measure a command at the commit that is checked out
    #[arg(long)]
    git: bool,
    /// Measure a commit that is certainly good or bad; keep the values
    #[arg(long, value_enum, requires = "git")]
    learn: Option<Quality>,
    /// Value of a good commit, instead of --learn
    #[arg(long, value_name = "X", requires = "git", requires = "bad_value", conflicts_with = "learn")]
    #[arg(allow_negative_numbers = true)]
    good_value: Option<f64>,
    /// Value of a bad commit
    #[arg(long, value_name = "X", requires = "git", requires = "good_value", allow_negative_numbers = true)]
    bad_value: Option<f64>,
    /// Take the command's duration, not its output
    #[arg(long, requires = "git", conflicts_with = "metric")]
    wall: bool,
    /// Runs of the command before values count
    #[arg(long, value_name = "N", default_value_t = 1, requires = "git")]
    warm_up: u32,
    /// File of kept values [default: iowhy-bisect.json in git's directory]
    #[arg(long, value_name = "FILE", requires = "git")]
    state: Option<PathBuf>,
    /// Job, as behind `iowhy run`, or sysbench's; with --git a command
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "JOB")]
    words: Vec<String>,
}

/// A commit of which it is known.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
enum Quality {
    /// It is fast
    Good,
    /// It is slow
    Bad,
}

fn error(word: &str) -> Result<f64, String> {
    match word.parse::<f64>() {
        Ok(error) if (1e-9..=0.1).contains(&error) => Ok(error),
        _ => Err("it takes a number up to 0.1, for example 0.001".to_owned()),
    }
}

/// Values of a measured reference, unless another number is asked for.
const LEARNED: u32 = 20;
/// Measurements of a commit, unless another number is asked for.
const BUDGET: u32 = 60;

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    if arguments.git { of_commit(arguments) } else { between_kernels(arguments) }
}

/// The plan of the job at a place.
fn plan(words: &[String], place: &str, problems: &mut Problems) -> Option<Plan> {
    let mut command: Vec<String> = Vec::new();
    if !matches!(words.first().map(String::as_str), Some("run" | "sysbench")) {
        command.push("run".to_owned());
    }
    command.extend(words.iter().cloned());
    command.extend(["--on".to_owned(), place.to_owned()]);
    match plan_of_command(&command) {
        Ok(plan) => Some(plan),
        Err(mut found) => {
            problems.list.append(&mut found.list);
            None
        }
    }
}

fn between_kernels(arguments: &Arguments) -> anyhow::Result<Exit> {
    let mut problems = Problems::default();
    // What belongs to this verb may stand behind the job, too.
    let mut words = Vec::new();
    let (mut json, mut name) = (arguments.json, arguments.metric.clone());
    let mut rest = arguments.words.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--json" => json = true,
            "--metric" => name = rest.next().cloned(),
            _ => words.push(word.clone()),
        }
    }
    if words.iter().any(|word| word == "--on" || word.starts_with("--on=")) {
        problems.push(Problem::error("--good and --bad name the places, not the job").near("--on", ["--good"]));
    }
    let metric = metric::find(name.as_deref().unwrap_or("elapsed_s")).map_err(|problem| problems.push(problem)).ok();
    let places = [&arguments.good, &arguments.bad].map(|place| place.clone().unwrap_or_default());
    let good = plan(&words, &places[0], &mut problems);
    // Mistakes in the job are reported once.
    let bad = if good.is_some() { plan(&words, &places[1], &mut problems) } else { None };
    output::report_all(&problems);
    let (Some(good), Some(bad), Some(metric), false) = (good, bad, metric, problems.any_error()) else {
        return Ok(Exit::Usage);
    };
    let bar = Bar::new("bisecting", "simulations", json);
    let settings = Settings {
        error: arguments.error,
        most_runs: arguments.runs.map_or(Settings::default().most_runs, |runs| runs as usize),
        ..Settings::default()
    };
    let bisection = policy::bisect((&good, &bad), places, metric, settings, &|| bar.count())?;
    drop(bar);
    if json {
        output::print_json(&bisection.json())?;
    } else {
        output::print(&bisection.text())?;
    }
    Ok(match bisection.answer {
        Answer::Found => Exit::Fine,
        Answer::EqualStacks | Answer::EqualMetric | Answer::NotWorse | Answer::Unsure => Exit::Inconclusive,
    })
}

/// Why a command has no value.
enum Failure {
    /// It failed: this commit cannot be tested.
    Skip(String),
    /// A signal ended it, or its output is not as requested.
    Abort(String),
}

/// Runs the command once.
fn measure(arguments: &Arguments) -> Result<f64, Failure> {
    let (program, rest) = arguments.words.split_first().ok_or_else(|| Failure::Abort("no command".to_owned()))?;
    let start = Instant::now();
    let output = Command::new(program).args(rest).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let elapsed = start.elapsed().as_secs_f64();
    let output = output.map_err(|error| Failure::Skip(format!("{program} cannot be started: {error}")))?;
    match output.status.code() {
        Some(0) => {}
        Some(code) => return Err(Failure::Skip(format!("{program} exited with {code}"))),
        None => return Err(Failure::Abort(format!("{program} was ended by a signal"))),
    }
    if arguments.wall {
        return Ok(elapsed);
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    commit::number(&printed, arguments.metric.as_deref()).map_err(Failure::Abort)
}

/// Where the values of known commits are kept.
fn state_file(arguments: &Arguments) -> anyhow::Result<PathBuf> {
    if let Some(path) = &arguments.state {
        return Ok(path.clone());
    }
    let output = Command::new("git").args(["rev-parse", "--git-dir"]).output().context("git cannot be started")?;
    anyhow::ensure!(output.status.success(), "not in a git repository: --state FILE");
    let directory = String::from_utf8(output.stdout).context("git's directory is not UTF-8")?;
    Ok(Path::new(directory.trim_end_matches('\n')).join("iowhy-bisect.json"))
}

fn load(path: &Path) -> anyhow::Result<References> {
    match std::fs::read_to_string(path) {
        Ok(text) => References::parse(&text).map_err(|error| anyhow::anyhow!("{}: {error}", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(References::default()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

fn failed(failure: Failure) -> Exit {
    match failure {
        Failure::Skip(text) => {
            output::complain(&format!("skip: {text}\n"));
            Exit::Skip
        }
        Failure::Abort(text) => {
            output::report(Problem::error(text));
            Exit::Abort
        }
    }
}

/// Units whose better direction is certain. A name that ends with `_s` may be a rate.
const DIRECTED: &[&str] = &["1/s", "B/s", "KiB/s", "MB/s", "MiB/s", "ms", "ns", "us"];

/// The name of the metric, and its better direction, if that is certain.
fn direction(arguments: &Arguments) -> (&str, Option<Better>) {
    match arguments.metric.as_deref() {
        _ if arguments.wall => ("duration", Some(Better::Lower)),
        None => ("value", None),
        Some(name) => {
            let metric = Metric::of(name);
            (name, DIRECTED.contains(&metric.unit.as_str()).then_some(metric.better))
        }
    }
}

fn of_commit(arguments: &Arguments) -> anyhow::Result<Exit> {
    if let Some(known) = arguments.learn {
        return learn(arguments, known);
    }
    let border = match (arguments.good_value, arguments.bad_value) {
        (Some(good), Some(bad)) => Border::of_values(good, bad),
        _ => Border::between(&load(&state_file(arguments)?)?),
    };
    let (name, better) = direction(arguments);
    let border = border.and_then(|border| border.directed(name, better)).map_err(anyhow::Error::msg)?;
    let budget = arguments.runs.unwrap_or(BUDGET) as usize;
    let least = Sequential::least_values(border, arguments.error);
    anyhow::ensure!(
        budget >= least,
        "{least} measurements are needed to err in {} of all cases at most, {budget} are allowed: --runs, --error",
        arguments.error
    );
    for _ in 0..arguments.warm_up {
        if let Err(failure) = measure(arguments) {
            return Ok(failed(failure));
        }
    }
    let mut test = Sequential::new(border, arguments.error);
    let mut verdict = None;
    while verdict.is_none() && test.taken[0] < budget {
        match measure(arguments) {
            Ok(value) => verdict = test.take(value),
            Err(failure) => return Ok(failed(failure)),
        }
    }
    let [taken, bad] = test.taken;
    let side = if border.bad_is_larger { "above" } else { "below" };
    let seen = format!("{bad} of {taken} values are {side} {:.6}, the bad side", border.at);
    let bound = format!("the chance that this is wrong is at most {} for each commit", arguments.error);
    Ok(match verdict {
        Some(Verdict::Good) => {
            output::print(&format!("good: {seen}; {bound}\n"))?;
            Exit::Fine
        }
        Some(Verdict::Bad) => {
            output::print(&format!("bad: {seen}; {bound}\n"))?;
            Exit::Failed
        }
        Some(Verdict::Unsure) | None => {
            output::print(&format!("skip: {seen}; more would be needed to be sure\n"))?;
            Exit::Skip
        }
    })
}

/// Measures a commit of which it is known, and keeps the values.
fn learn(arguments: &Arguments, known: Quality) -> anyhow::Result<Exit> {
    let path = state_file(arguments)?;
    let mut references = load(&path)?;
    let mut values = Vec::new();
    for nr in 0..arguments.warm_up + arguments.runs.unwrap_or(LEARNED) {
        match measure(arguments) {
            Ok(value) if nr >= arguments.warm_up => values.push(value),
            Ok(_) => {}
            Err(failure) => return Ok(failed(failure)),
        }
    }
    let (low, high) = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)));
    let (n, name) = (values.len(), if known == Quality::Good { "good" } else { "bad" });
    match known {
        Quality::Good => references.good = values,
        Quality::Bad => references.bad = values,
    }
    std::fs::write(&path, format!("{:#}\n", references.json())).with_context(|| path.display().to_string())?;
    output::print(&format!("{name}: {n} values from {low} to {high}, kept in {}\n", path.display()))?;
    Ok(Exit::Fine)
}
