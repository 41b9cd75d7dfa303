//! `iowhy incident`.

use std::path::PathBuf;
use std::time::Instant;

use iowhy_lab::incident::live::{self, LiveResult};
use iowhy_lab::incident::{self, CatalogueEntry, How, IncidentError, IncidentResult, report};
use iowhy_text::diagnose::Problem;

use crate::explain::Sources;
use crate::output::{self, Bar, Exit};
use crate::report as report_file;

/// Options of `iowhy incident`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of an incident, list, or all
    #[arg(value_name = "list|ID|all", default_value = "list")]
    which: String,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// Runs per row [default: the scenario's]
    #[arg(long, alias = "seeds", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Worker threads; results do not change [default: CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Test the running kernel as well (as root; minutes)
    #[arg(long)]
    live: bool,
    /// Test this kernel as well, booted under QEMU (kernel:debian-6.12); two of them: the second against the first
    #[arg(long, value_name = "kernel:NAME")]
    on: Vec<String>,
    /// Shorten --live and --on to some seconds each
    #[arg(long)]
    quick: bool,
    /// File of a report: the broken row against the good one
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Overwrite a file that iowhy did not create
    #[arg(long, requires = "report")]
    force: bool,
}

/// Lists incidents, or runs them.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let known = incident::list()?;
    if arguments.report.is_some() && matches!(arguments.which.as_str(), "list" | "all") {
        let problem = Problem::error(format!("a report is of one incident, and not of `{}`", arguments.which));
        output::report(problem.help("iowhy incident ID --report FILE.html"));
        return Ok(Exit::Usage);
    }
    if let Some(other) = arguments.on.iter().find(|on| !on.starts_with("kernel:")) {
        let problem = Problem::error(format!("--on takes kernels that boot under QEMU, not `{other}`"));
        output::report(problem.help("kernel:debian-6.12; --live for the running kernel"));
        return Ok(Exit::Usage);
    }
    if arguments.quick && places(arguments).is_empty() {
        output::report(Problem::error("--quick shortens --live and --on, and neither is there"));
        return Ok(Exit::Usage);
    }
    let report_out = match report_file::begin(arguments.report.as_deref(), arguments.force)? {
        Ok(out) => out,
        Err(exit) => return Ok(exit),
    };
    if arguments.which == "list" {
        if arguments.json {
            output::print_json(&report::list_json(&known))?;
        } else {
            output::print(&report::list_text(&known, output::bold()))?;
        }
        return Ok(Exit::Fine);
    }
    let (wanted, others): (Vec<CatalogueEntry>, Vec<CatalogueEntry>) = match arguments.which.as_str() {
        "all" => known.into_iter().partition(|known| known.modelled),
        _ => (known.into_iter().filter(|known| known.id == arguments.which).collect(), Vec::new()),
    };
    let ids: Vec<&str> = match wanted.as_slice() {
        // The requested one is unknown; running it lists likely names.
        [] => vec![arguments.which.as_str()],
        wanted => wanted.iter().map(|known| known.id).collect(),
    };
    let start = Instant::now();
    let mut results = Vec::new();
    for id in ids {
        match run_one(id, arguments) {
            Ok(result) => results.push(result),
            Err(IncidentError::Unknown(problem)) => {
                output::report(problem);
                return Ok(Exit::Usage);
            }
            Err(error) => return Err(error.into()),
        }
    }
    let lives = run_live(&results, arguments);
    let wall_s = start.elapsed().as_secs_f64();
    if arguments.json {
        output::print_json(&report::json(&results, &lives, &others, wall_s))?;
    } else {
        let bold = output::bold();
        let shown = |(nr, result)| {
            let lives = lives.get(nr).into_iter().flatten();
            let lives: String = lives.map(|live| format!("\n{}", live::report::text(live, bold))).collect();
            report::text(result, bold) + &lives
        };
        let mut text: Vec<String> = results.iter().enumerate().map(shown).collect();
        if !others.is_empty() {
            let names: Vec<&str> = others.iter().map(|known| known.id).collect();
            text.push(format!("not modelled in this release: {}\n", names.join(", ")));
        }
        output::print(&text.join("\n"))?;
    }
    if let Some(out) = report_out {
        let sources = Sources::incident(&arguments.which, arguments.runs);
        match report_file::of(&sources, arguments.json, results.first().map(report::brief)) {
            Ok((made, ..)) => report_file::write(out, &made)?,
            Err(problems) => {
                output::report_all(&problems);
                return Ok(Exit::Usage);
            }
        }
    }
    let cut_short = lives.iter().flatten().any(|live| live.interrupted);
    Ok(if results.iter().all(IncidentResult::all_required_held) && !cut_short { Exit::Fine } else { Exit::Failed })
}

/// The kernels to be asked, as `--on` of a run takes them.
fn places(arguments: &Arguments) -> Vec<String> {
    arguments.live.then(|| live::LIVE.to_owned()).into_iter().chain(arguments.on.iter().cloned()).collect()
}

/// Asks kernels about each of them; a signal ends it.
fn run_live(results: &[IncidentResult], arguments: &Arguments) -> Vec<Vec<LiveResult>> {
    let places = places(arguments);
    if places.is_empty() {
        return Vec::new();
    }
    crate::doctor::tidy();
    let how = if arguments.quick { live::How::quick() } else { live::How::default() };
    let mut lives: Vec<Vec<LiveResult>> = Vec::new();
    for result in results {
        let made = if lives.iter().flatten().any(|live| live.interrupted) {
            None
        } else {
            let bar = Bar::new(&format!("{} on {}", result.incident.id, places.join(", ")), "runs", arguments.json);
            let made = live::run(result, how, &places, &|done, of| bar.advance(done as u64, of as u64));
            drop(bar);
            made
        };
        lives.push(made.unwrap_or_default());
    }
    lives
}

fn run_one(id: &str, arguments: &Arguments) -> Result<IncidentResult, IncidentError> {
    let mut how = How { sequences: arguments.runs, ..How::default() };
    if let Some(threads) = arguments.threads {
        how.threads = threads as usize;
    }
    let bar = Bar::new(id, "runs", arguments.json);
    let result = incident::run(id, how, &|done, of| bar.advance(done as u64, of as u64));
    drop(bar);
    result
}
