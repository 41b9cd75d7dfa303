//! `iowhy report`: the explanation of two sets of runs with every picture, as one HTML file, or from a server.

mod serve;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use iowhy_compare::{Settings, Verdict, samples};
use iowhy_lab::explain::gathered::Gathered;
use iowhy_lab::report::{self, Around, Report, text};
use iowhy_live::guard::Output;
use iowhy_text::diagnose::{Problem, Problems};
use iowhy_why::Explanation;
use serde_json::Value;

use crate::explain::{self, Sources};
use crate::output::{self, Exit};

#[derive(clap::Args)]
#[command(about = "Write the explanation as one HTML page")]
#[command(after_help = "The file needs no network and no other file. A and B are as in `iowhy explain`.\n\n  iowhy \
    report before.parquet after.parquet -o why.html\n  iowhy report 2012-plugged-readahead --prove -o proof.html\n  \
    iowhy report --samples old.txt -o files.html -- new.txt\n  iowhy report --serve --store DIR\n\n--serve writes no \
    file: the first line is the address of the page, for a browser\non this \
    machine, which chooses among runs of the store (kept with --trace).\n\nExit codes: 0 written, 2 a usage or \
    input error, 3 cannot tell (written\nnevertheless).")]
pub(crate) struct Arguments {
    #[command(flatten)]
    sources: Sources,
    /// File, - for standard output
    #[arg(short, long = "out", value_name = "FILE")]
    output: Option<PathBuf>,
    /// Files with samples, fio's JSON or others; those of the candidate behind `--`
    #[arg(long, num_args = 1.., value_name = "FILE")]
    #[arg(conflicts_with_all = ["what", "serve", "disk", "runs", "prove", "job"])]
    samples: Vec<String>,
    /// With --samples: files of the candidate; `--` for short
    #[arg(long, num_args = 1.., value_name = "FILE", requires = "samples")]
    against: Vec<String>,
    /// Serve the page over the store, on this machine only
    #[arg(long, conflicts_with_all = ["what", "job", "disk", "runs", "prove", "output", "force"])]
    serve: bool,
    /// Port to listen on [default: any free one]
    #[arg(long, value_name = "N", requires = "serve", conflicts_with_all = ["what", "output"])]
    port: Option<u16>,
    /// Overwrite a file that iowhy did not create
    #[arg(long)]
    force: bool,
    /// Print the data as one JSON object; with --serve the address
    #[arg(long)]
    json: bool,
}

/// The report of two sides, with their explanation.
pub(crate) fn of(
    sources: &Sources,
    quiet: bool,
    incident: Option<Value>,
) -> Result<(Report, Explanation, [Gathered; 2]), Problems> {
    let sides = sources.gather(true, quiet)?;
    let explanation = sources.explain(&sides);
    let stored = sides.iter().rev().find(|side| side.row.is_some());
    let history = stored.map(|side| sources.open().and_then(|store| report::history(side, &store))).transpose();
    let history = history.map_err(|error| Problems { list: vec![Problem::error(error.to_string())] })?.flatten();
    let report = report::make(&sides, &explanation, &Around { history, incident })?;
    Ok((report, explanation, sides))
}

/// The report of files with samples, its sentence, and the exit. Two files without `against` are base and candidate,
/// any other number is one set.
fn of_samples(files: &[String], against: &[String]) -> Result<(Report, String, Exit), Problems> {
    let sides = match (files, against) {
        ([_, _], []) => files.iter().map(|file| vec![file.clone()]).collect(),
        (_, []) => vec![files.to_vec()],
        _ => vec![files.to_vec(), against.to_vec()],
    };
    let mut problems = Problems::default();
    let (mut groups, mut drawn) = (Vec::new(), Vec::new());
    for side in &sides {
        let (mut of_files, mut runs) = (Vec::new(), Vec::new());
        for name in side {
            let Some(text) = crate::compare::load(name, &mut problems) else { continue };
            of_files.extend(samples::read(name, &text, None, &mut problems));
            if (samples::fio::FORMAT.detect)(&text) {
                runs.extend(samples::fio::pictured(&text));
            }
        }
        if runs.iter().all(|run| run.started_ns > 0) {
            runs.sort_by_key(|run| run.started_ns);
        }
        groups.extend(samples::together(of_files));
        drawn.push(runs);
    }
    if problems.any_error() {
        return Err(problems);
    }
    output::report_all(&problems);
    let comparison = match groups.as_slice() {
        [a, b] => Some(iowhy_compare::compare(a, b, &Settings::default())),
        _ => None,
    };
    let sides: Vec<_> = groups.iter().zip(drawn).collect();
    let report = report::samples::make(&sides, comparison.as_ref());
    let sentence = report.data["headline"]["sentence"].as_str().unwrap_or_default().to_owned();
    let unknown = comparison.is_some_and(|of| of.verdict == Verdict::Inconclusive);
    Ok((report, sentence, if unknown { Exit::Inconclusive } else { Exit::Fine }))
}

/// Begins the file of a report, before the work begins; nothing for standard output.
pub(crate) fn begin(path: Option<&Path>, force: bool) -> anyhow::Result<Result<Option<Output>, Exit>> {
    let path = path.filter(|path| *path != Path::new("-"));
    Ok(path.map(|path| output::begin(path, force)).transpose()?.transpose())
}

/// Writes it.
pub(crate) fn write(mut out: Output, report: &Report) -> anyhow::Result<()> {
    out.write_all(report.html.as_bytes()).context("cannot write the report")?;
    Ok(out.finish()?)
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    if arguments.serve {
        serve::run(&arguments.sources, arguments.port.unwrap_or(0), arguments.json)?;
        return Ok(Exit::Fine);
    }
    let file = arguments.output.as_deref();
    if file.is_none() && !arguments.json {
        output::report(Problem::error("the file of the report is missing").help("-o why.html"));
        return Ok(Exit::Usage);
    }
    if arguments.json && file == Some(Path::new("-")) {
        output::report(Problem::error("the data and the page cannot both go to standard output"));
        return Ok(Exit::Usage);
    }
    let out = match begin(file, arguments.force)? {
        Ok(out) => out,
        Err(exit) => return Ok(exit),
    };
    let made = match arguments.samples.is_empty() {
        false => of_samples(&arguments.samples, &arguments.against),
        true => of(&arguments.sources, arguments.json, None)
            .map(|(report, explanation, _)| (report, text::difference(&explanation), explain::exit(&explanation))),
    };
    let (report, sentence, exit) = match made {
        Ok(made) => made,
        Err(problems) => {
            output::report_all(&problems);
            return Ok(Exit::Usage);
        }
    };
    if let Some(out) = out {
        write(out, &report)?;
    }
    match file {
        _ if arguments.json => output::print_json(&report.data)?,
        Some(path) if path != Path::new("-") => {
            let kib = report.html.len().div_ceil(1024);
            output::print(&format!("{sentence}\n{}, {kib} KiB\n", path.display()))?;
        }
        _ => output::print(&report.html)?,
    }
    Ok(exit)
}
