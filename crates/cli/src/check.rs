//! `iowhy check`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use iowhy_compare::{self as compare, gate};
use iowhy_lab::store::Filter;
use iowhy_text::diagnose::{Problem, Problems};

use crate::compare::{Input, percent};
use crate::output::{self, Exit};

#[derive(clap::Args)]
#[command(about = "Fail if runs are worse than a baseline: the gate for CI")]
#[command(after_help = "The gate fails if a regression beyond the allowance is certain: the whole\ninterval of the \
    change lies beyond it. It passes if one is certainly not there:\nthe whole interval lies within the allowance. \
    Otherwise it is inconclusive.\n\nExit codes: 0 passed, 1 failed, 2 a usage or input error, \
    3 inconclusive.")]
pub(crate) struct Arguments {
    /// Base: a label, a tag or a run id in the store
    #[arg(long, value_name = "L", required_unless_present = "samples", conflicts_with = "samples")]
    baseline: Option<String>,
    /// Candidate [default: the newest label with runs of the same job]
    #[arg(long, value_name = "L", conflicts_with = "samples")]
    candidate: Option<String>,
    /// With --samples: files of the base and of the candidate
    #[arg(value_name = "FILE")]
    files: Vec<String>,
    /// Allowed change for the worse, percent
    #[arg(long, default_value = "5%", value_parser = percent, value_name = "PERCENT")]
    max_regression: f64,
    #[command(flatten)]
    input: Input,
    /// Also write JUnit's XML here
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Also write the gate as OpenMetrics text here, for Prometheus
    #[arg(long, value_name = "FILE")]
    openmetrics: Option<PathBuf>,
    /// Annotations of GitHub's workflows instead of text
    #[arg(long, conflicts_with = "json")]
    github: bool,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let input = &arguments.input;
    let mut problems = Problems::default();
    let names = names(arguments, &mut problems);
    let groups = names.map(|names| input.groups(&names, &mut problems)).unwrap_or_default();
    output::report_all(&problems);
    let [a, b] = groups.as_slice() else { return Ok(Exit::Usage) };
    if problems.any_error() {
        return Ok(Exit::Usage);
    }
    let mut others = Vec::new();
    for path in [&arguments.junit, &arguments.openmetrics] {
        others.push(match path.as_deref().map(|path| output::begin(path, false)).transpose()? {
            Some(Err(exit)) => return Ok(exit),
            begun => begun.and_then(Result::ok),
        });
    }
    let comparison = input.compare(a, b);
    let gate = gate::by_allowance(&comparison, arguments.max_regression);
    let texts = [compare::junit::text, compare::openmetrics::text].map(|text| text(&comparison, &gate));
    for (out, text) in others.into_iter().zip(texts) {
        let Some(mut out) = out else { continue };
        out.write_all(text.as_bytes()).context("cannot write the file of the gate")?;
        out.finish()?;
    }
    if arguments.json {
        output::print_json(&compare::json::check(&comparison, &gate))?;
    } else if arguments.github {
        output::print(&compare::github::text(&comparison, &gate))?;
    } else {
        output::print(&compare::text::text(&comparison, Some(&gate), output::style()))?;
    }
    Ok(match gate.outcome {
        gate::Outcome::Pass => Exit::Fine,
        gate::Outcome::Fail => Exit::Failed,
        gate::Outcome::Open => Exit::Inconclusive,
    })
}

/// Base and candidate by name.
fn names(arguments: &Arguments, problems: &mut Problems) -> Option<Vec<String>> {
    let input = &arguments.input;
    if input.samples {
        if arguments.files.len() != 2 {
            let what = format!("--samples takes two files, base and candidate, not {}", arguments.files.len());
            problems.push(Problem::error(what).help("iowhy check --samples base.txt new.txt"));
            return None;
        }
        return Some(arguments.files.clone());
    }
    if let Some(file) = arguments.files.first() {
        let problem = Problem::error(format!("`{file}` is given, and no --samples"));
        problems.push(problem.help("iowhy check --samples base.txt new.txt"));
        return None;
    }
    let baseline = arguments.baseline.clone()?;
    let candidate = match &arguments.candidate {
        Some(candidate) => candidate.clone(),
        None => newest(input, &baseline, problems)?,
    };
    Some(vec![baseline, candidate])
}

/// The label of the newest run of the baseline's job that is not of the baseline.
fn newest(input: &Input, baseline: &str, problems: &mut Problems) -> Option<String> {
    let found = input.open().and_then(|store| {
        let base = store.find(baseline)?;
        let job = base.first().map(|run| run.job.clone());
        let runs = store.runs(&Filter { job: job.clone(), measured: true, ..Filter::default() })?;
        let others = runs.iter().filter(|run| base.iter().all(|of| of.number != run.number && of.label != run.label));
        Ok((job, others.max_by_key(|run| (run.started_ns, run.number)).map(|run| run.label.clone())))
    });
    match found {
        Ok((_, Some(label))) => Some(label),
        Ok((job, None)) => {
            let job = iowhy_text::shown(&job.unwrap_or_default(), 60);
            let problem = Problem::error(format!("no label but `{baseline}` has runs of its job `{job}`"));
            problems.push(problem.help("--candidate L names runs of another job"));
            None
        }
        Err(error) => {
            problems.push(Problem::error(error.to_string()));
            None
        }
    }
}
