//! A sweep into a folder, on all processors; of several machines each may make a part.
//!
//! ```text
//! DIR/plan.json             the plan; a folder of another one is refused
//! DIR/task-NUMBER.parquet   a task that was made
//! ```
//! Files come into being whole. One that exists is not made again, unless it has points without a result.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use iowhy_live::guard::{Output, OutputError};
use rayon::prelude::*;

use super::{Plan, Row, shard};

/// Why a sweep ended early.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error("`{}` holds another sweep: take another folder, or remove it", .0.display())]
    Other(PathBuf),
    #[error("`{}` is not empty, and not a folder of a sweep", .0.display())]
    Foreign(PathBuf),
    #[error("cannot use `{}`: {source}", path.display())]
    Folder { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error("`{}`: {source}", path.display())]
    Parquet { path: PathBuf, source: parquet::errors::ParquetError },
    #[error("no threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

/// The work of a call.
#[derive(Debug, Default)]
pub struct Swept {
    /// Tasks of this part.
    pub tasks: usize,
    /// Those that were made now.
    pub made: usize,
    /// Points of the tasks made now.
    pub points: usize,
    /// Points without a result, and why; of the tasks made now.
    pub failed: Vec<Row>,
}

/// The file of a task.
pub fn path(folder: &Path, task: usize) -> PathBuf {
    folder.join(format!("task-{task:06}.parquet"))
}

/// Takes a folder for a plan.
///
/// # Errors
/// If it holds anything else.
pub fn open(plan: &Plan, folder: &Path) -> Result<(), SweepError> {
    let folder_failed = |source| SweepError::Folder { path: folder.to_owned(), source };
    fs::create_dir_all(folder).map_err(folder_failed)?;
    let name = folder.join("plan.json");
    match fs::read_to_string(&name) {
        Ok(text) if text == plan.json() => return Ok(()),
        Ok(_) => return Err(SweepError::Other(folder.to_owned())),
        Err(_) if fs::read_dir(folder).map_err(folder_failed)?.next().is_some() => {
            return Err(SweepError::Foreign(folder.to_owned()));
        }
        Err(_) => {}
    }
    Ok(Output::write(&name, plan.json().as_bytes(), false)?)
}

/// Whether the task has to be made: it is missing, or has points without a result.
pub fn wanting(hash: &str, folder: &Path, task: usize) -> bool {
    let state = fs::File::open(path(folder, task)).ok().and_then(shard::state);
    state.is_none_or(|(plan, failed)| plan != hash || failed > 0)
}

/// Keeps the file of a task.
///
/// # Errors
/// If it cannot be written, or something else has its name.
pub fn keep(hash: &str, folder: &Path, task: usize, bytes: &[u8]) -> Result<(), SweepError> {
    let name = path(folder, task);
    let ours = fs::File::open(&name).ok().and_then(shard::state).is_some_and(|(plan, _)| plan == hash);
    Ok(Output::write(&name, bytes, ours)?)
}

/// Makes the tasks of the part `nr` of `of` that are not in the folder. `progress` gets points done, and of all.
///
/// # Errors
/// If the folder is another's, or cannot be written.
pub fn run(
    plan: &Plan,
    folder: &Path,
    (nr, of): (usize, usize),
    threads: usize,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Swept, SweepError> {
    open(plan, folder)?;
    let hash = plan.hash();
    let mine: Vec<usize> = (0..plan.tasks()).filter(|task| task % of.max(1) + 1 == nr).collect();
    let missing: Vec<usize> = mine.iter().copied().filter(|task| wanting(&hash, folder, *task)).collect();
    let total = (missing.len() * plan.per_task).min(plan.points()) as u64;
    let (done, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let step = || progress(done.fetch_add(1, Ordering::Relaxed) as u64 + 1, total);
    let one = |task: &usize| -> Result<(), SweepError> {
        let rows = plan.make(*task, &step);
        let parquet = |source| SweepError::Parquet { path: path(folder, *task), source };
        keep(&hash, folder, *task, &shard::bytes(plan, *task, &rows).map_err(parquet)?)?;
        let bad = rows.into_iter().filter(|row| row.error.is_some());
        failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).extend(bad);
        Ok(())
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    pool.install(|| missing.par_iter().with_max_len(1).try_for_each(one))?;
    let mut failed: Vec<Row> = failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    failed.sort_by_key(|row| row.nr);
    Ok(Swept { tasks: mine.len(), made: missing.len(), points: done.into_inner(), failed })
}

/// All points, in their order, without a folder.
///
/// # Errors
/// If threads cannot be started.
pub fn made(plan: &Plan, threads: usize, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Vec<Row>, SweepError> {
    let done = AtomicUsize::new(0);
    let step = || progress(done.fetch_add(1, Ordering::Relaxed) as u64 + 1, plan.points() as u64);
    let tasks = (0..plan.tasks()).into_par_iter().with_max_len(1);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let rows: Vec<Vec<Row>> = pool.install(|| tasks.map(|task| plan.make(task, &step)).collect());
    Ok(rows.into_iter().flatten().collect())
}

/// All rows that the folder has, in their order.
///
/// # Errors
/// If a file is damaged.
pub fn rows(plan: &Plan, folder: &Path) -> Result<Vec<Row>, SweepError> {
    let mut rows = Vec::new();
    for task in 0..plan.tasks() {
        let path = path(folder, task);
        let Ok(bytes) = fs::read(&path) else { continue };
        rows.extend(shard::read(plan, bytes).map_err(|source| SweepError::Parquet { path, source })?);
    }
    Ok(rows)
}
