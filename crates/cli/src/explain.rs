//! `iowhy explain`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use iowhy_compare::Verdict;
use iowhy_compare::text::Style;
use iowhy_lab::explain::gathered::Gathered;
use iowhy_lab::explain::modes;
use iowhy_lab::explain::source::{self, ExplainRequest};
use iowhy_lab::report::{first_screen, glance, text};
use iowhy_lab::store::{self, Store, StoreError};
use iowhy_text::diagnose::Problems;
use iowhy_why::{Explanation, json, openmetrics};

use crate::output::{self, Bar, Exit};

#[derive(clap::Args)]
#[command(about = "Explain why one set of runs is slower than another: mechanism, evidence, remedy")]
#[command(after_help = "A and B are labels, tags or ids in the store (runs kept with --trace), files\nwith traces, \
    rows of incidents (2004-random-read-split/rc3-as), or places\n(sim:linux-2.6.38) with the job behind `--`. An \
    incident alone stands for its\ntwo rows, any other set of runs alone for its fast and its slow mode.\n\n  \
    iowhy explain 2012-plugged-readahead\n  iowhy explain sim:linux-4.4 sim:linux-4.4,read_ahead_kb=16 -- \\\n    dd \
    if=big bs=64k count=2000\n\nExit codes: 0 explained or the same, 2 a usage or input error, 3 cannot tell.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    sources: Sources,
    /// Also write the findings as OpenMetrics text here, for Prometheus
    #[arg(long, value_name = "FILE")]
    openmetrics: Option<PathBuf>,
    /// Also print figures, latencies, calls, unasked rules
    #[arg(long, conflicts_with = "json")]
    verbose: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Where the two sides come from.
#[derive(clap::Args)]
pub(crate) struct Sources {
    /// Base and candidate, or an incident or one set of runs
    #[arg(required = true, num_args = 1..=2, value_name = "A B")]
    what: Vec<String>,
    /// Job for places: words of `iowhy run`, or of `iowhy sysbench`
    #[arg(last = true, value_name = "JOB")]
    job: Vec<String>,
    /// Disk for places
    #[arg(long, value_name = "NAME")]
    disk: Option<String>,
    /// Simulated runs of each side [default: the scenario's, or 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Switch the cause off and make the slow side's runs again
    #[arg(long)]
    prove: bool,
    /// Store [default: IOWHY_STORE, or the data directory]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// A and B are in the store, even if other things have their names.
    #[arg(skip)]
    stored: bool,
}

impl Sources {
    /// The rows of an incident, with the proof.
    pub(crate) fn incident(id: &str, runs: Option<u32>) -> Sources {
        let what = vec![id.to_owned()];
        Sources { what, job: Vec::new(), disk: None, runs, prove: true, store: None, stored: false }
    }

    /// Runs in a store.
    pub(crate) fn stored(what: Vec<String>, store: &Path) -> Sources {
        let store = Some(store.to_owned());
        Sources { what, job: Vec::new(), disk: None, runs: None, prove: false, store, stored: true }
    }

    /// The store, which has to be there.
    pub(crate) fn open(&self) -> Result<Store, StoreError> {
        let variable = |name: &str| std::env::var(name).ok();
        let directory = store::directory(self.store.as_deref(), &variable).ok_or(StoreError::NoPlace)?;
        Store::open_existing(&directory)
    }

    /// Both sides; `report` if a report will be made of them, `quiet` without a bar.
    pub(crate) fn gather(&self, report: bool, quiet: bool) -> Result<[Gathered; 2], Problems> {
        let (names, job, disk) = (self.what.clone(), self.job.clone(), self.disk.clone());
        let asked = ExplainRequest { names, job, disk, runs: self.runs, report, stored: self.stored };
        let bar = Bar::new("simulating", "runs", quiet);
        source::gather(&asked, &|| self.open(), &|done, of| bar.advance(u64::from(done), u64::from(of)))
    }

    /// Why they differ, proved if that was asked for.
    pub(crate) fn explain(&self, sides: &[Gathered; 2]) -> Explanation {
        iowhy_lab::explain::of_sides(sides, self.prove)
    }
}

/// How a command ends that has explained something.
pub(crate) fn exit(explanation: &Explanation) -> Exit {
    let unknown = match explanation.verdict {
        Verdict::Inconclusive => true,
        Verdict::Same => false,
        Verdict::Regression | Verdict::Improvement => explanation.findings.is_empty(),
    };
    if unknown { Exit::Inconclusive } else { Exit::Fine }
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let metrics = match arguments.openmetrics.as_deref().map(|path| output::begin(path, false)).transpose()? {
        Some(Err(exit)) => return Ok(exit),
        begun => begun.and_then(Result::ok),
    };
    let sides = match arguments.sources.gather(false, arguments.json) {
        Ok(sides) => sides,
        Err(problems) => {
            output::report_all(&problems);
            return Ok(if modes::is_alone(&problems) { Exit::Inconclusive } else { Exit::Usage });
        }
    };
    let explanation = arguments.sources.explain(&sides);
    if let Some(mut out) = metrics {
        out.write_all(openmetrics::text(&explanation).as_bytes()).context("cannot write the file of the findings")?;
        out.finish()?;
    }
    if arguments.json {
        output::print_json(&json::explain(&explanation))?;
    } else {
        let style = Style { verbose: arguments.verbose, ..output::style() };
        // Pictures are of what lies behind the first screen.
        let pictures = arguments.verbose.then(|| glance::of(&sides));
        output::print(&text::text(&explanation, &first_screen(&sides, &explanation), pictures.as_ref(), style))?;
    }
    Ok(exit(&explanation))
}
