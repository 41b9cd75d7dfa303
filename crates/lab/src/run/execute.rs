//! Makes the runs of a request, and records each.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use iowhy_live::ledger::{Guard, Ledger};

use super::backend::{Making, Refusal, RunRecord, Shared};
use super::{Executed, Finished, Folder, LIVE, RunRequest, Slot, Variant, design, record};
use crate::store::{self, Store};

/// The directory of live runs while it is needed. A temporary one is in the ledger, so that it goes whatever happens.
#[derive(Default)]
pub(crate) struct WorkDirectory {
    temporary: Option<(PathBuf, Guard)>,
    /// Folders that were missing, outermost first. They go again unless something has been left there.
    made: Vec<Guard>,
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        while let Some(innermost) = self.made.pop() {
            drop(innermost);
        }
        let Some((path, guard)) = self.temporary.take() else { return };
        // The ledger removes empty directories only; what programs left in ours is not worth more than the run.
        for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
            let path = entry.path();
            let folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let _ = if folder { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        }
        // If it cannot be removed now, the next start tries again and `iowhy doctor` tells.
        drop(guard);
    }
}

/// Makes the directory of live runs, if there are any.
pub(crate) fn hold(request: &RunRequest) -> Result<WorkDirectory, Refusal> {
    let uses_folder = |variant: &Variant| variant.backend.uses_folder();
    let Folder { path, temporary } = &request.folder;
    if !request.variants.iter().any(uses_folder) {
        return Ok(WorkDirectory::default());
    }
    let (ledger, _) = Ledger::open()?;
    let mut held = WorkDirectory::default();
    if *temporary {
        held.temporary = Some((path.clone(), ledger.create_scratch_directory(path)?));
        return Ok(held);
    }
    let missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let missing: Vec<&Path> = path.ancestors().take_while(missing).collect();
    for folder in missing.into_iter().rev() {
        held.made.push(ledger.create_directory(folder)?);
    }
    Ok(held)
}

/// Makes the runs, and keeps none. See [`execute_into`].
pub fn execute(request: &RunRequest, progress: &dyn Fn(usize, usize)) -> Executed {
    execute_into(request, None, progress)
}

/// Makes the runs. A place that refuses is left out from then on; the others go on. Each is recorded in the store, if
/// there is one, before the next is made; if one cannot be recorded, no more are made. `progress` gets the number of
/// runs done, and of all (at most); watchers of the store get it, too.
pub fn execute_into(request: &RunRequest, store: Option<&Store>, progress: &dyn Fn(usize, usize)) -> Executed {
    let mut executed = Executed::default();
    let _held = match hold(request) {
        Ok(held) => held,
        Err(refusal) => {
            executed.refused.push((LIVE.to_owned(), refusal));
            return executed;
        }
    };
    // A signal between two live runs, or in a simulated one among them, ends the rest as well.
    let real = |variant: &Variant| variant.backend.is_real();
    let signals = request.variants.iter().any(real).then(iowhy_live::signal::Guard::take);
    let session = session(request);
    let mut shared = Shared::default();
    let experiment = request.experiment();
    let most = (experiment.blocks as usize) * experiment.arms;
    let mut flight = store.map(|store| store.announce(&announced(request), most as u64));
    let mut out: Vec<usize> = Vec::new();
    let mut begun: Vec<&Variant> = Vec::new();
    let mut done = 0;
    for variant in &request.variants {
        if let Err(refusal) = variant.backend.begin() {
            executed.refuse(variant, refusal);
            break;
        }
        begun.push(variant);
    }
    let _ = experiment.run(
        &mut executed,
        |executed, block| enough(request, &executed.runs, block),
        |executed, slot| {
            if executed.interrupted || executed.refused.iter().any(|(_, refusal)| refusal.exit_code.is_some()) {
                return ControlFlow::Break(());
            }
            progress(done, most);
            done += 1;
            if out.contains(&slot.variant) {
                return ControlFlow::Continue(());
            }
            let variant = &request.variants[slot.variant];
            if let Some(flight) = &mut flight {
                flight.begins(&variant.label, done as u64 - 1);
            }
            let started_ns = store::nanoseconds(SystemTime::now());
            let making = Making { request, variant, seed: slot.seed, started_ns, store };
            match variant.backend.make(&making, &mut shared) {
                Ok(record) => executed.take(request, slot, started_ns, record, store.map(|store| (store, &*session))),
                Err(refusal) => {
                    executed.refuse(variant, refusal);
                    out.push(slot.variant);
                }
            }
            executed.interrupted |= signals.is_some() && iowhy_live::signal::raised();
            match executed.interrupted || executed.unrecorded.is_some() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        },
    );
    for variant in begun {
        if let Err(refusal) = variant.backend.end() {
            executed.refuse(variant, refusal);
        }
    }
    progress(most, most);
    executed
}

impl Executed {
    fn refuse(&mut self, variant: &Variant, refusal: Refusal) {
        self.interrupted |= refusal.interrupted;
        self.refused.push((variant.label.clone(), refusal));
    }

    /// Takes in a run that was made, and records it in a store.
    fn take(
        &mut self,
        request: &RunRequest,
        slot: Slot,
        started_ns: u64,
        mut record: RunRecord,
        store: Option<(&Store, &str)>,
    ) {
        record.metrics.retain(|(_, value)| value.is_finite());
        self.interrupted |= record.interrupted;
        let finished_ns = store::nanoseconds(SystemTime::now());
        let row = record.row.take();
        let mut run = Finished { slot, started_ns, finished_ns, record, id: None };
        if let Some(((store, session), row)) = store.zip(row) {
            match row.and_then(|row| store.record(&record::row(request, &run, session, *row))) {
                Ok(id) => run.id = Some(id),
                Err(error) => self.unrecorded = Some(error),
            }
        }
        self.runs.push(run);
    }
}

/// The announcement of the runs for other processes.
fn announced(request: &RunRequest) -> String {
    let runs = if request.until.is_some() { "runs at most" } else { "runs" };
    // A blind run keeps no word of its job.
    let blind = request.keep.as_ref().is_some_and(|keep| keep.blind);
    if blind { runs.to_owned() } else { format!("{runs} of {}", request.job.join(" ")) }
}

/// Whether the stopping rule accepts the blocks before this one. It is asked between blocks only, so that all places
/// have as many runs.
fn enough(request: &RunRequest, runs: &[Finished], block: u64) -> bool {
    let Some(until) = request.until else { return false };
    block >= u64::from(request.warm_up) + u64::from(request.repeat)
        && design::precision(request, runs, until.pct).is_some_and(|precision| precision.reached())
}

/// An id for all runs of one command: of no other command, on this machine or another.
fn session(request: &RunRequest) -> String {
    let now = store::nanoseconds(SystemTime::now());
    let text = format!("{:?} {} {now} {}", request.job, request.seed, std::process::id());
    blake3::hash(text.as_bytes()).to_hex().as_str()[..16].to_owned()
}
