//! `iowhy run`.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use iowhy_fio::World;
use iowhy_lab::run::{self, Executed, Keep, Request, RunRequest, own_report, report};
use iowhy_lab::store::Store;
use iowhy_live::guard::Output;
use iowhy_text::diagnose::{Problem, Problems};
use iowhy_text::input;

use crate::output::{self, Bar, Exit};

/// A text file, or standard input. Logs may be long; inputs other than files and standard input may have no end.
pub(crate) fn load(name: &str) -> Result<String, String> {
    let path = Path::new(name);
    let text = match name {
        "-" => input::standard(input::TEXT),
        _ => input::text(path, if path.is_file() { input::TEXT } else { input::JOB }),
    };
    text.map_err(|error| error.to_string())
}

/// The store that runs are kept in. Without an explicit request, runs are worth making without it.
fn open(keep: &Keep) -> anyhow::Result<Option<Store>> {
    match Store::open(&keep.directory) {
        Ok(store) => Ok(Some(store)),
        Err(error) if keep.asked => Err(error.into()),
        Err(error) => {
            output::report(Problem::warning(format!("these runs are not kept: {error}")));
            Ok(None)
        }
    }
}

/// Runs of a command line.
struct Made {
    request: Box<RunRequest>,
    executed: Executed,
    /// The messages about them.
    problems: Problems,
    /// Files for their results.
    outputs: Vec<Output>,
}

/// The runs, or the exit of a command without any.
type Done = Result<Made, Exit>;

/// Makes the runs that the command line asks for.
fn make(arguments: &[OsString]) -> anyhow::Result<Done> {
    let mut problems = Problems::default();
    let mut words = output::words(arguments, &mut problems);
    // Who calls this verb has heard of it.
    words.retain(|word| word != "--bisect-exit");
    // Standard input can be read once, and a job is read for each place it runs on.
    let input = std::cell::OnceCell::new();
    let load = |name: &str| match name {
        "-" => input.get_or_init(|| load("-")).clone(),
        name => load(name),
    };
    let world = World { load: &load, variable: &|name| std::env::var(name).ok(), ..World::empty() };
    let request = run::resolve(&words, &world, &mut problems).filter(|_| !problems.any_error());
    output::report_all(&problems);
    let request = match request {
        None => return Ok(Err(Exit::Usage)),
        Some(Request::Help(text)) => {
            output::print(&text)?;
            return Ok(Err(Exit::Fine));
        }
        Some(Request::Run(request)) => request,
    };
    // A file that may not be written is refused before the runs.
    let mut outputs = Vec::new();
    for (path, _) in request.own.iter().flat_map(|own| &own.exports) {
        match output::begin(path, false)? {
            Ok(out) => outputs.push(out),
            Err(exit) => return Ok(Err(exit)),
        }
    }
    let store = match &request.keep {
        Some(keep) => open(keep)?,
        None => None,
    };
    if request.variants.iter().any(|variant| variant.backend.is_real()) {
        crate::doctor::tidy();
    }
    let bar = Bar::new(&request.job.join(" "), "runs", request.json);
    let advance = |done, of| bar.advance(done as u64, of as u64);
    let executed = run::execute_into(&request, store.as_ref(), &advance);
    drop(bar);
    for (label, refusal) in &executed.refused {
        output::report(Problem::error(format!("{label}: {refusal}")));
    }
    if let Some(code) = executed.refused.iter().find_map(|(_, refusal)| refusal.exit_code) {
        return Ok(Err(Exit::Command(code)));
    }
    if executed.runs.is_empty() {
        let refused = &executed.refused;
        let undecided = refused.iter().all(|(_, refusal)| refusal.inconclusive) && !refused.is_empty();
        let machine = refused.iter().any(|(_, refusal)| refusal.machine);
        return Ok(Err(match (undecided, machine) {
            (true, _) => Exit::Inconclusive,
            (false, true) => Exit::Machine,
            (false, false) => Exit::Usage,
        }));
    }
    if let Some(error) = &executed.unrecorded {
        let text = format!("a run could not be kept, and no more were made: {error}");
        output::report(Problem::error(text));
    }
    output::report_all(report::told(&executed.runs));
    Ok(Ok(Made { request, executed, problems, outputs }))
}

/// Whether something went wrong with the runs.
fn failed(executed: &Executed) -> bool {
    executed.interrupted
        || !executed.refused.is_empty()
        || executed.unrecorded.is_some()
        || executed.runs.iter().any(|run| run.record.failed)
}

/// Runs that are in the store now.
pub(crate) struct Recorded {
    /// Their ids, in the order in which they were made.
    pub(crate) ids: Vec<String>,
    /// At how many places.
    pub(crate) places: usize,
    /// Something went wrong with them.
    pub(crate) failed: bool,
}

/// Makes runs for another verb, and prints nothing of them; or how the command ends without any.
pub(crate) fn record(arguments: &[OsString]) -> anyhow::Result<Result<Recorded, Exit>> {
    Ok(make(arguments)?.map(|Made { request, executed, .. }| Recorded {
        ids: executed.runs.iter().filter_map(|run| run.id.as_ref().map(ToString::to_string)).collect(),
        places: request.variants.len(),
        failed: failed(&executed),
    }))
}

/// The words behind the verb: clap takes a first `--` for its own, and here it begins a command.
fn with_first_dashes(arguments: &[OsString]) -> Vec<OsString> {
    let dashes = std::env::args_os().skip_while(|word| word != "run").nth(1).filter(|word| word == "--");
    let swallowed = arguments.first().is_none_or(|first| first != "--");
    dashes.filter(|_| swallowed).into_iter().chain(arguments.iter().cloned()).collect()
}

/// Runs the verb.
pub(crate) fn run(arguments: &[OsString]) -> anyhow::Result<Exit> {
    let Made { request, executed, problems, outputs } = match make(&with_first_dashes(arguments))? {
        Ok(done) => done,
        Err(exit) => return Ok(exit),
    };
    let runs = &executed.runs;
    for ((path, form), mut out) in request.own.iter().flat_map(|own| &own.exports).zip(outputs) {
        let failed = || format!("cannot write `{}`", path.display());
        out.write_all(own_report::export(*form, &request, runs).as_bytes()).with_context(failed)?;
        out.finish().with_context(failed)?;
    }
    if request.json {
        output::print_json(&report::json(&request, runs, &problems))?;
    } else {
        let mut text = report::text(&request, runs, output::bold());
        for comparison in own_report::comparisons(&request, runs) {
            text.push('\n');
            text.push_str(&iowhy_compare::text::text(&comparison, None, crate::compare::style()));
        }
        output::print(&text)?;
    }
    let undecided = executed.refused.iter().any(|(_, refusal)| refusal.inconclusive);
    Ok(match failed(&executed) {
        true if undecided => Exit::Inconclusive,
        true => Exit::Failed,
        false => Exit::Fine,
    })
}
