//! `iowhy run`.

use std::ffi::OsString;
use std::io::Read;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use iowhy_lab::diagnose::{Problem, Problems};
use iowhy_lab::fio::World;
use iowhy_lab::run::{self, Made, Request, Task, report};

use crate::output::{self, Exit};

/// A job file, or standard input.
pub(crate) fn load(name: &str) -> Result<String, String> {
    if name == "-" {
        let mut text = String::new();
        return match std::io::stdin().lock().read_to_string(&mut text) {
            Ok(_) => Ok(text),
            Err(error) => Err(error.to_string()),
        };
    }
    std::fs::read_to_string(name).map_err(|error| error.to_string())
}

/// Does what the command line says.
pub(crate) fn run(arguments: &[OsString]) -> anyhow::Result<Exit> {
    let mut problems = Problems::default();
    let words = output::words(arguments, &mut problems);
    // Standard input can be read once, and a job is read for each place it runs on.
    let input = std::cell::OnceCell::new();
    let load = |name: &str| match name {
        "-" => input.get_or_init(|| load("-")).clone(),
        name => load(name),
    };
    let world = World { load: &load, variable: &|name| std::env::var(name).ok(), ..World::empty() };
    let request = run::resolve(&words, &world, &mut problems).filter(|_| !problems.any_error());
    output::complain(&problems.render());
    let request = match request {
        None => return Ok(Exit::Usage),
        Some(Request::Help(text)) => {
            output::print(&text)?;
            return Ok(Exit::Fine);
        }
        Some(Request::Run(request)) => request,
    };
    if request.variants.iter().any(|variant| !matches!(variant.task, Task::Simulated(_))) {
        crate::doctor::tidy();
    }
    // The bar shows itself on a terminal only; JSON is for programs, which need none.
    let target = if request.json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {bar:40} {pos} of {len} runs, {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    let executed = run::execute(&request, &|done, of| {
        bar.set_length(of as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    for (label, refusal) in &executed.refused {
        output::complain(&Problem::error(format!("{label}: {refusal}")).render());
    }
    let runs = &executed.runs;
    if runs.is_empty() {
        return Ok(Exit::Usage);
    }
    let mut failed = executed.interrupted || !executed.refused.is_empty();
    for finished in runs {
        if let Made::Live(live) = &finished.made {
            failed |= live.failed();
            output::complain(&live.complaints().render());
        }
    }
    if request.json {
        output::print_json(&report::json(&request, runs, &problems))?;
    } else {
        output::print(&report::text(&request, runs, output::bold()))?;
    }
    Ok(if failed { Exit::Failed } else { Exit::Fine })
}
