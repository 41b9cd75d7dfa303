//! Recordings of an armed recorder in the store: runs without a job.

use std::path::Path;

use iowhy_live::machine::{Disk, Machine};
use iowhy_stack::trace::Trace;
use serde_json::json;

use crate::recording;
use crate::recording::armed::Caught;
use crate::run::record;
use crate::store::{self, Kind, NewRun, RunId, Store, StoreError};

/// Puts a recording into the store, as a run without a job.
///
/// # Errors
/// If it cannot be written.
pub fn keep(store: &Store, caught: &Caught, words: &[String]) -> Result<RunId, StoreError> {
    let captured = &caught.captured;
    let trace = &captured.trace;
    let settings = iowhy_trace::settings::Settings::of(trace);
    let node = settings.get("recording", "disk").map(|disk| Path::new("/dev").join(disk));
    let disk = node.map_or_else(Disk::default, |node| Disk::below(&node));
    let length_ns = u64::try_from(captured.length.as_nanos()).unwrap_or(u64::MAX);
    let mut described = recording::json(captured);
    described["trigger"] = json!(caught.trigger);
    store.record(&NewRun {
        label: "armed".to_owned(),
        job: words.join(" "),
        started_ns: trace.started_ns,
        finished_ns: trace.started_ns.saturating_add(length_ns),
        seed: trace.started_ns,
        layers: Some(json!({ store::TRACE: described })),
        metrics: vec![("length_s".to_owned(), captured.length.as_secs_f64())],
        files: vec![store.keep_trace(trace)?],
        ..record::of_machine(&Machine::read(), &disk)
    })
}

/// The recording that is kept as the events of a run of this name: an id, or a label or tag, of which the
/// last run counts.
///
/// # Errors
/// If the store cannot be read, has no such run, or no recording of it.
pub fn kept(store: &Store, name: &str) -> Result<Trace, StoreError> {
    let mut runs = store.find(name)?;
    let run = runs.pop();
    let file = run.iter().filter(|run| run.holds_trace()).flat_map(|run| &run.files);
    match file.into_iter().find(|file| file.kind == Kind::Events) {
        Some(file) => store.trace(&file.hash),
        None => Err(StoreError::NoTrace { name: name.to_owned() }),
    }
}
