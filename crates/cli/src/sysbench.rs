//! `iowhy sysbench`.

use std::ffi::OsString;
use std::path::Path;

use iowhy_lab::on_kernel::Live;
use iowhy_lab::sysbench::report::Measured;
use iowhy_lab::sysbench::{self, Request, Settings, live, options, report};
use iowhy_stack::sim;
use iowhy_text::diagnose::{Problem, Problems};

use crate::output::{self, Exit};

/// Runs the verb.
pub(crate) fn run(arguments: &[OsString]) -> anyhow::Result<Exit> {
    let mut problems = Problems::default();
    let words = output::words(arguments, &mut problems);
    let request = sysbench::resolve(&words, &mut problems).filter(|_| !problems.any_error());
    output::report_all(&problems);
    let here = Path::new("");
    match request {
        None => return Ok(Exit::Usage),
        Some(Request::Help) => output::print(&options::help())?,
        Some(Request::Version) => output::print(&format!("{}\n", report::version(false, "live")))?,
        Some(Request::Prepare(None)) => output::print(&report::nothing_to_do("prepare"))?,
        Some(Request::Cleanup(None)) => output::print(&report::nothing_to_do("cleanup"))?,
        Some(Request::Prepare(Some(files))) => {
            crate::doctor::tidy();
            match files.prepare(here) {
                Ok(text) => output::print(&text)?,
                Err(error) => return Ok(refused(&error)),
            }
        }
        Some(Request::Cleanup(Some(files))) => match files.cleanup(here) {
            Ok(text) => output::print(&text)?,
            Err(error) => return Ok(refused(&error)),
        },
        Some(Request::Run(run)) => {
            let (plan, settings) = *run;
            match sim::run(&plan) {
                Ok(outcome) => show(&Measured::simulated(&plan, &outcome), &settings, &problems)?,
                Err(error) => return Ok(refused(&error)),
            }
        }
        Some(Request::RunLive(run)) => {
            let Some(fileio) = run.job.fileio() else { unreachable!("a job of sysbench") };
            crate::doctor::tidy();
            if let Err(error) = run.files.ready(here, fileio.mode, run.settings.io_mode) {
                return Ok(refused(&error));
            }
            let plan = live::plan(&run.job, &run.settings, run.cache, here);
            match Live::make(plan, &|_| ()) {
                Ok(done) => {
                    show(&Measured::live(&done), &run.settings, &problems)?;
                    output::report_all(done.complaints());
                    if done.failed() {
                        return Ok(Exit::Failed);
                    }
                }
                Err(error) => return Ok(refused(&error)),
            }
        }
    }
    Ok(Exit::Fine)
}

fn refused(error: &dyn std::error::Error) -> Exit {
    output::report(Problem::error(error.to_string()));
    Exit::Usage
}

fn show(run: &Measured<'_>, settings: &Settings, problems: &Problems) -> anyhow::Result<()> {
    if settings.silent && !settings.json {
        Ok(())
    } else if settings.json {
        output::print_json(&report::json(run, settings, problems))
    } else {
        output::print(&report::text(run, settings))
    }
}
