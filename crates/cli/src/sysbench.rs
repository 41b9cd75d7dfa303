//! `iowhy sysbench`.

use std::ffi::OsString;

use iowhy_lab::diagnose::{Problem, Problems};
use iowhy_lab::sysbench::{self, Request, options, report};
use iowhy_stack::sim;

use crate::output::{self, Exit};

/// Does what the command line says.
pub(crate) fn run(arguments: &[OsString]) -> anyhow::Result<Exit> {
    let mut problems = Problems::default();
    let mut words = Vec::new();
    for argument in arguments {
        match argument.to_str() {
            Some(word) => words.push(word.to_owned()),
            None => problems.push(Problem::error(format!("`{}` is not UTF-8", argument.to_string_lossy()))),
        }
    }
    let request = sysbench::resolve(&words, &mut problems).filter(|_| !problems.any_error());
    output::complain(&problems.render());
    match request {
        None => return Ok(Exit::Usage),
        Some(Request::Help) => output::print(&options::help())?,
        Some(Request::Prepare) => output::print(&report::nothing_to_do("prepare"))?,
        Some(Request::Cleanup) => output::print(&report::nothing_to_do("cleanup"))?,
        Some(Request::Run(run)) => {
            let (plan, settings) = *run;
            let outcome = match sim::run(&plan) {
                Ok(outcome) => outcome,
                Err(error) => {
                    output::complain(&Problem::error(error.to_string()).render());
                    return Ok(Exit::Usage);
                }
            };
            if settings.json {
                output::print_json(&report::json(&plan, &settings, &outcome, &problems))?;
            } else {
                output::print(&report::text(&plan, &settings, &outcome))?;
            }
        }
    }
    Ok(Exit::Fine)
}
