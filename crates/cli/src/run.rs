//! `iowhy run`.

use std::ffi::OsString;
use std::path::Path;

use iowhy_fio::World;
use iowhy_lab::run::{self, Executed, Keep, Request, RunRequest, report};
use iowhy_lab::store::Store;
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

/// The request, the runs and the messages about them; or the exit of a command without any runs.
type Done = Result<(Box<RunRequest>, Executed, Problems), Exit>;

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
    Ok(Ok((request, executed, problems)))
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
    Ok(make(arguments)?.map(|(request, executed, _)| Recorded {
        ids: executed.runs.iter().filter_map(|run| run.id.as_ref().map(ToString::to_string)).collect(),
        places: request.variants.len(),
        failed: failed(&executed),
    }))
}

/// Runs the verb.
pub(crate) fn run(arguments: &[OsString]) -> anyhow::Result<Exit> {
    let (request, executed, problems) = match make(arguments)? {
        Ok(done) => done,
        Err(exit) => return Ok(exit),
    };
    let runs = &executed.runs;
    if request.json {
        output::print_json(&report::json(&request, runs, &problems))?;
    } else {
        output::print(&report::text(&request, runs, output::bold()))?;
    }
    let undecided = executed.refused.iter().any(|(_, refusal)| refusal.inconclusive);
    Ok(match failed(&executed) {
        true if undecided => Exit::Inconclusive,
        true => Exit::Failed,
        false => Exit::Fine,
    })
}
