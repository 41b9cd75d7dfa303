//! `iowhy report`: the explanation of two sets of runs with every picture, as one HTML file, or from a server.

mod serve;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use iowhy_lab::report::{self, Report, text};
use iowhy_live::guard::Output;
use iowhy_text::diagnose::{Problem, Problems};
use iowhy_why::Explanation;

use crate::explain::{self, Sources};
use crate::output::{self, Exit};

#[derive(clap::Args)]
#[command(about = "Write the explanation as one HTML page")]
#[command(after_help = "The file needs no network and no other file. A and B are as in `iowhy explain`.\n\n  iowhy \
    report before after -o why.html\n  iowhy report 2012-plugged-readahead --prove -o why.html\n  iowhy report --serve \
    --store DIR\n\n--serve writes no file: the first line is the address of the page, for a browser\non this \
    machine, which chooses among runs of the store (kept with --trace).\n\nExit codes: 0 written, 2 a usage or \
    input error, 3 cannot tell (written\nnevertheless).")]
pub(crate) struct Arguments {
    #[command(flatten)]
    sources: Sources,
    /// File, - for standard output
    #[arg(short, long = "out", value_name = "FILE")]
    output: Option<PathBuf>,
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
pub(crate) fn of(sources: &Sources, quiet: bool) -> Result<(Report, Explanation), Problems> {
    let sides = sources.gather(true, quiet)?;
    let explanation = sources.explain(&sides);
    let stored = sides.iter().rev().find(|side| side.row.is_some());
    let history = stored.map(|side| sources.open().and_then(|store| report::history(side, &store))).transpose();
    let history = history.map_err(|error| Problems { list: vec![Problem::error(error.to_string())] })?.flatten();
    Ok((report::make(&sides, &explanation, history)?, explanation))
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
    if arguments.sources.what.is_empty() || file.is_none() && !arguments.json {
        let problem = match arguments.sources.what.is_empty() {
            true => Problem::error("nothing to report on: two sides, an incident, or --serve are missing"),
            false => Problem::error("the file of the report is missing"),
        };
        output::report(problem.help("iowhy report A B -o why.html, or iowhy report --serve"));
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
    let made = of(&arguments.sources, arguments.json);
    let (report, explanation) = match made {
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
            output::print(&format!("{}\n{}, {kib} KiB\n", text::difference(&explanation), path.display()))?;
        }
        _ => output::print(&report.html)?,
    }
    Ok(explain::exit(&explanation))
}
