//! What makes runs, and what comes of one: the same record wherever it was made.
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
    /// What `iowhy run --help` says about its keys.
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
    /// What a disk that is made for it is called.
    pub(super) name: String,
}

/// A place that can be run at.
pub(super) trait Place {
    /// What runs a job here, or everything that is wrong with it.
    fn backend(&self, asked: &Asked<'_>, problems: &mut Problems) -> Option<(Arc<dyn Backend>, Shape)>;
}

/// A job, and what was typed beside it.
#[derive(Copy, Clone)]
pub(super) struct Asked<'a> {
    pub(super) words: &'a [String],
    pub(super) builtin: Option<&'static Builtin>,
    pub(super) world: &'a World<'a>,
    pub(super) limit: &'a Limit,
    pub(super) replay: replay::Mode,
    /// Seed of the first run.
    pub(super) seed: u64,
    /// Where files are.
    pub(super) folder: &'a Path,
    /// What the page cache holds of them, unless the job says so.
    pub(super) cache: Option<Cache>,
    /// What may be written whatever it holds.
    pub(super) allow: &'a [PathBuf],
    /// For a boot with its run.
    pub(super) timeout: Option<Duration>,
    /// Options that shape the job wherever it is run, as they were typed.
    pub(super) shaping: &'a [String],
}

/// A job at a place. What only one backend has is there with [`Variant::backend`].
pub trait Backend: Any + fmt::Debug + Send + Sync {
    /// Makes a run; its row of the store, too, if there is one.
    ///
    /// # Errors
    /// Why it could not be made.
    fn make(&self, making: &Making<'_>, shared: &mut Shared) -> Result<RunRecord, Refusal>;

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

/// The data files of a run, if there is a store; that they could not be written is no reason to lose the run.
pub(super) type Files = Option<Result<Vec<DataFile>, StoreError>>;

/// What runs of a command share: one of each type, made by the first run that needs it.
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

/// Who hears of a note.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Readers of the store.
    Store,
    /// They, and the user after each run.
    Each,
    /// They, readers of the report, and the user once: it is the same in every run.
    Report,
}

/// What there is to be said of a run besides its numbers.
#[derive(Clone, Debug)]
pub struct Note {
    /// What.
    pub problem: Problem,
    /// To whom.
    pub audience: Audience,
}

/// What came of a run, wherever it was made.
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
    /// What the layers did, as JSON.
    pub layers: Option<Value>,
    /// What the device counted.
    pub device: Option<Value>,
    /// What the opening of the device led to.
    pub opening: Option<Value>,
    /// Further keys of the JSON.
    pub more: Map<String, Value>,
    /// When it began, since 1970, if that tells it from others.
    pub began: Option<Duration>,
    /// What there is to be said.
    pub notes: Vec<Note>,
    /// A signal ended it early.
    pub interrupted: bool,
    /// Calls of it failed.
    pub failed: bool,
    /// Its row without what the command says; nothing if there is no store.
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
    /// What was to make it failed, and nothing is known of the job.
    pub inconclusive: bool,
}

impl Refusal {
    pub(super) fn new(error: impl Error + Send + Sync + 'static) -> Refusal {
        Refusal { error: Box::new(error), interrupted: false, inconclusive: false }
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
