//! Makers of runs, and the result of one: the same record for every place.
//!
//! ```text
//! Kind         words that `--on` takes, and how one is read; every kind is a line of `KINDS`
//! Place        such a word, read: it makes a backend of a job
//! Backend      a job at a place; it makes runs
//! RunRecord    what came of one: reports show it, and the store keeps its row
//! ```

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use iowhy_fio::World;
use iowhy_live::capture::Level;
use iowhy_live::plan::Cache;
use iowhy_text::diagnose::{Problem, Problems};
use serde_json::{Map, Value};

use super::limit::Limit;
use super::metrics::Metrics;
use super::{Builtin, RunRequest, Shape, Variant, replay};
use crate::on_kernel::Live;
use crate::store::{DataFile, NewRun, Store, StoreError};

/// A kind of places.
pub(super) struct Kind {
    /// Whether a word behind `--on` names one.
    pub(super) names: fn(&str) -> bool,
    /// Reads such a word with its disk.
    pub(super) read: fn(&Typed<'_>, &mut Problems) -> Option<Box<dyn Place>>,
    /// The section of `iowhy run --help` about its keys.
    pub(super) help: fn() -> String,
}

/// A place as it was typed.
pub(super) struct Typed<'a> {
    /// The word behind `--on`.
    pub(super) on: &'a str,
    /// That behind `--disk`.
    pub(super) disk: Option<&'a str>,
    /// A live place has the same disk.
    pub(super) beside: bool,
    /// Name of a disk that is created for it.
    pub(super) name: String,
}

/// A place that can be run at.
pub(super) trait Place {
    /// The backend of a job here, or all mistakes in it.
    fn backend(&self, asked: &JobWords<'_>, problems: &mut Problems) -> Option<(Arc<dyn Backend>, Shape)>;
}

/// A job, and the words typed with it.
#[derive(Copy, Clone)]
pub(super) struct JobWords<'a> {
    pub(super) words: &'a [String],
    pub(super) builtin: Option<&'static Builtin>,
    pub(super) world: &'a World<'a>,
    pub(super) limit: &'a Limit,
    pub(super) replay: replay::Replay,
    /// Seed of the first run.
    pub(super) seed: u64,
    /// Where files are.
    pub(super) folder: &'a Path,
    /// Cached state of the files, unless the job sets it.
    pub(super) cache: Option<Cache>,
    /// Paths that may be written whatever they hold.
    pub(super) allow: &'a [PathBuf],
    /// For a boot with its run.
    pub(super) timeout: Option<Duration>,
    /// Options that shape the job wherever it is run, as they were typed.
    pub(super) shaping: &'a [String],
}

/// A job at a place. Facts of one backend alone are there with [`Variant::backend`].
pub trait Backend: Any + fmt::Debug + Send + Sync {
    /// Makes a run; its row of the store, too, if there is one.
    ///
    /// # Errors
    /// Why it could not be made.
    fn make(&self, making: &Making<'_>, shared: &mut Shared) -> Result<RunRecord, Refusal>;

    /// Before the first run.
    ///
    /// # Errors
    /// Why no run can be made.
    fn begin(&self) -> Result<(), Refusal> {
        Ok(())
    }

    /// After the last run, if [`begin`](Backend::begin) was called.
    ///
    /// # Errors
    /// What is left undone.
    fn end(&self) -> Result<(), Refusal> {
        Ok(())
    }

    /// It needs the folder of the command.
    fn uses_folder(&self) -> bool {
        false
    }

    /// It changes this machine: a signal ends it early, and leavings of earlier runs go first.
    fn is_real(&self) -> bool {
        true
    }
}

/// A run that is to be made.
pub struct Making<'a> {
    /// The command.
    pub request: &'a RunRequest,
    /// Where.
    pub variant: &'a Variant,
    /// With which seed.
    pub seed: u64,
    /// When it begins, ns since 1970.
    pub started_ns: u64,
    /// Where it is kept.
    pub store: Option<&'a Store>,
}

impl Making<'_> {
    /// With how many of its events it is kept.
    pub(super) fn trace(&self) -> Option<Level> {
        self.request.keep.as_ref().and_then(|keep| keep.trace)
    }
}

/// The data files of a run, if there is a store; a failure to write them must not lose the run.
pub(super) type Files = Option<Result<Vec<DataFile>, StoreError>>;

/// Values that runs of a command share: one of each type, made by the first run that needs it.
#[derive(Default)]
pub struct Shared(Vec<Box<dyn Any>>);

impl Shared {
    pub(super) fn get<T: Any, E>(&mut self, make: impl FnOnce() -> Result<T, E>) -> Result<&mut T, E> {
        let known = self.0.iter().position(|one| one.is::<T>());
        let nr = match known {
            Some(nr) => nr,
            None => {
                self.0.push(Box::new(make()?));
                self.0.len() - 1
            }
        };
        let Some(found) = self.0[nr].downcast_mut() else { unreachable!("it was looked up by its type") };
        Ok(found)
    }
}

/// The reader of a note.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Readers of the store.
    Store,
    /// They, and the user after each run.
    Each,
    /// They, readers of the report, and the user once: it is the same in every run.
    Report,
}

/// A message about a run besides its numbers.
#[derive(Clone, Debug)]
pub struct Note {
    pub problem: Problem,
    /// To whom.
    pub audience: Audience,
}

/// Result of a run at any place.
#[derive(Debug, Default)]
pub struct RunRecord {
    /// Everything that was measured.
    pub metrics: Metrics,
    /// `where` in JSON.
    pub place: String,
    /// Its disk, as reports call it.
    pub disk: Option<String>,
    /// Place, kernel and disk in a line.
    pub made_on: String,
    /// The run in detail, as text.
    pub detail: String,
    /// Hash and number of its events, if the same run has the same ones.
    pub events: Option<(u64, u64)>,
    /// Statistics of the layers, as JSON.
    pub layers: Option<Value>,
    /// The device's counters.
    pub device: Option<Value>,
    /// Consequences of opening the device.
    pub opening: Option<Value>,
    /// Further keys of the JSON.
    pub more: Map<String, Value>,
    /// When it began, since 1970, if that distinguishes it from others.
    pub began: Option<Duration>,
    pub notes: Vec<Note>,
    /// A signal ended it early.
    pub interrupted: bool,
    /// Calls of it failed.
    pub failed: bool,
    /// Its row without the command's part; nothing without a store.
    pub row: Option<Result<Box<NewRun>, StoreError>>,
    /// The run itself, if it was made on the running kernel.
    pub live: Option<Box<Live>>,
}

/// Why a run could not be made.
#[derive(Debug)]
pub struct Refusal {
    pub(super) error: Box<dyn Error + Send + Sync>,
    /// A signal came first.
    pub interrupted: bool,
    /// Its maker failed, and the job's result is unknown.
    pub inconclusive: bool,
    /// It ends everything, with this exit code.
    pub exit_code: Option<u8>,
    /// It is a failure of the machine, not a mistake in the request.
    pub machine: bool,
}

impl Refusal {
    pub(crate) fn new(error: impl Error + Send + Sync + 'static) -> Refusal {
        Refusal { error: Box::new(error), interrupted: false, inconclusive: false, exit_code: None, machine: false }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for Refusal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// Errors that say nothing but why.
macro_rules! refusals {
    ($($error:ty),*) => {
        $(impl From<$error> for Refusal {
            fn from(error: $error) -> Refusal {
                Refusal::new(error)
            }
        })*
    };
}
refusals!(iowhy_live::ledger::LedgerError, iowhy_live::disk::DiskError, crate::recording::RecordError);
