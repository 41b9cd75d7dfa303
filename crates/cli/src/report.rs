//! `iowhy report`: the explanation of two sets of runs with every picture, as one HTML file, or from a server.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use iowhy_lab::diagnose::{Problem, Problems, Span};
use iowhy_lab::explain::{Explanation, text};
use iowhy_lab::report::{self, Report};

use crate::explain::{self, Sources};
use crate::output::{self, Exit};
use crate::serve;

/// What it is told.
#[derive(clap::Args)]
#[command(about = "The same with every picture, as one HTML file")]
#[command(after_help = "The file needs no network and no other file. A and B are as in `iowhy explain`.\n\n  iowhy \
    report before after -o why.html\n  iowhy report 2012-plugged-readahead --prove -o why.html\n  iowhy report --serve \
    --store DIR\n\nWith --serve nothing is written: the first line is the address of the page, for\na browser on this \
    machine, in which runs of the store (kept with --trace) are\nchosen.\n\nExit codes: 0 written, 2 a mistake in what \
    was asked for, 3 cannot tell (it is\nwritten all the same).")]
pub(crate) struct Arguments {
    #[command(flatten)]
    sources: Sources,
    /// The file, - for standard output
    #[arg(short, long = "out", value_name = "FILE", required_unless_present_any = ["json", "serve"])]
    output: Option<PathBuf>,
    /// Serve the page over the store, on this machine only
    #[arg(long, conflicts_with_all = ["what", "job", "disk", "runs", "prove", "output", "force"])]
    serve: bool,
    /// The port to listen on [default: any that is free]
    #[arg(long, value_name = "N", requires = "serve", conflicts_with_all = ["what", "output"])]
    port: Option<u16>,
    /// Write over a file that is no report
    #[arg(long)]
    force: bool,
    /// The data as one JSON object; with --serve the address
    #[arg(long)]
    json: bool,
}

/// What a file begins with, at most, in which a report can be told.
const LOOKED_AT: u64 = 1 << 24;

/// Why a report may not be written to a file.
pub(crate) fn refused(path: &Path, force: bool) -> Option<Problem> {
    let name = path.display().to_string();
    let problem = |text: String| Problem::error(text).at(Span::whole(&name));
    if path == Path::new("-") {
        return None;
    }
    if path.is_dir() {
        return Some(problem(format!("`{name}` is a directory")).help("name a file in it"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Some(problem(format!("there is no directory `{}`", folder.display())));
    }
    if !path.exists() || force {
        return None;
    }
    let mut known = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(LOOKED_AT).read_to_end(&mut known));
    if let Err(error) = read {
        return Some(problem(format!("cannot read `{name}`: {error}")));
    }
    let ours = report::html::unpack(&String::from_utf8_lossy(&known)).is_some();
    let text = || problem(format!("`{name}` exists and is no report")).help("name another file, or say --force");
    (!ours).then(text)
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

/// Writes a report: first beside its place, so that no half of one is ever there.
pub(crate) fn write(path: &Path, report: &Report) -> Result<(), Problems> {
    let beside = path.with_extension(format!("html.{}.part", std::process::id()));
    let written = fs::write(&beside, &report.html).and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| {
        // It may not have been made at all.
        let _ = fs::remove_file(&beside);
        Problems { list: vec![Problem::error(format!("cannot write `{}`: {error}", path.display()))] }
    })
}

/// Does what the command line says.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    if arguments.serve {
        serve::run(&arguments.sources, arguments.port.unwrap_or(0), arguments.json)?;
        return Ok(Exit::Fine);
    }
    let file = arguments.output.as_deref();
    if arguments.json && file == Some(Path::new("-")) {
        output::complain(&Problem::error("the data and the page cannot both go to standard output").render());
        return Ok(Exit::Usage);
    }
    if let Some(problem) = file.and_then(|path| refused(path, arguments.force)) {
        output::complain(&problem.render());
        return Ok(Exit::Usage);
    }
    let made = of(&arguments.sources, arguments.json).and_then(|(report, explanation)| {
        if let Some(path) = file.filter(|path| *path != Path::new("-")) {
            write(path, &report)?;
        }
        Ok((report, explanation))
    });
    let (report, explanation) = match made {
        Ok(made) => made,
        Err(problems) => {
            output::complain(&problems.render());
            return Ok(Exit::Usage);
        }
    };
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
