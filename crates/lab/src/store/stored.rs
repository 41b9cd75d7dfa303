//! Runs as they are recorded and as they are read.

use serde_json::Value;

use super::manifest::Manifest;
use super::{DataFile, Kind};

/// The id of a run: 16 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub String);

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a run stands among those that were made together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Design {
    /// Id of the command that made them.
    pub session: String,
    pub block: u64,
    /// Its place in the block: 0 was made first.
    pub position: u32,
    pub order_seed: u64,
    /// Runs that were meant to be made; with a stopping rule, at most.
    pub size: u32,
    /// It only warms up, and does not count as a measurement.
    pub warm_up: bool,
}

/// A run that is to be recorded.
#[derive(Clone, Debug, Default)]
pub struct NewRun {
    pub label: String,
    /// The job, as typed.
    pub job: String,
    /// The job as it was understood, defaults included: JSON of the simulator's job, or the command of another program.
    pub resolved: Option<String>,
    /// Where it was made: `live`, or `sim:` and a description.
    pub place: Option<String>,
    pub simulated: bool,
    /// The identity of the machine: an object.
    pub machine: Option<Value>,
    /// Hash of that, without what a user changes; empty if unknown.
    pub machine_hash: String,
    /// Policies and their tunables: an object.
    pub policies: Option<Value>,
    /// How it was asked for.
    pub manifest: Option<Manifest>,
    pub seed: u64,
    /// Hash of the events of a simulated run.
    pub event_hash: Option<u64>,
    /// When it began, ns since 1970.
    pub started_ns: u64,
    /// When it ended.
    pub finished_ns: u64,
    /// Its place among others.
    pub design: Design,
    /// Statistics of the layers: an object.
    pub layers: Option<Value>,
    pub metrics: Vec<(String, f64)>,
    pub warnings: Vec<String>,
    /// Nothing but events and measurements is kept of it.
    pub blind: bool,
    /// Its samples and events.
    pub files: Vec<DataFile>,
}

/// A data file of a recorded run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    pub kind: Kind,
    /// Hash of its bytes, which is its name.
    pub hash: String,
    pub rows: u64,
    pub bytes: u64,
}

/// A recorded run.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRun {
    /// Its number in this store: the order of recording.
    pub number: i64,
    pub id: RunId,
    pub label: String,
    /// The job, as typed.
    pub job: String,
    /// The job as it was understood.
    pub resolved: Option<String>,
    /// Where it was made.
    pub place: Option<String>,
    pub simulated: bool,
    /// The identity of the machine.
    pub machine: Option<Value>,
    pub machine_hash: String,
    /// Policies and tunables as recorded; rows of early versions have their manifest among them ([`StoredRun::asked`]).
    pub policies: Option<Value>,
    /// How it was asked for, as recorded.
    pub manifest: Option<Manifest>,
    pub seed: u64,
    /// Hash of the events, 16 digits.
    pub event_hash: Option<String>,
    /// When it began, ns since 1970.
    pub started_ns: u64,
    /// When it ended.
    pub finished_ns: u64,
    /// Its place among others.
    pub design: Design,
    /// Statistics of the layers.
    pub layers: Option<Value>,
    pub warnings: Vec<String>,
    /// Version of iowhy that made it.
    pub version: String,
    /// Nothing but events and measurements was kept.
    pub blind: bool,
    /// Measurements, by name. NaN stands for values that were not finite.
    pub metrics: Vec<(String, f64)>,
    /// Its tags, by name.
    pub tags: Vec<String>,
    /// Its samples and events.
    pub files: Vec<StoredFile>,
}

impl StoredRun {
    /// How it was asked for, and the policies without that, whichever version recorded them.
    pub fn asked(&self) -> (Manifest, Option<Value>) {
        let mut policies = self.policies.clone();
        let manifest = match &self.manifest {
            Some(manifest) => manifest.clone(),
            None => policies.as_mut().map_or_else(Manifest::default, Manifest::take),
        };
        (manifest, policies)
    }

    /// Its events are those of the kernel, as [`Store::keep_trace`] keeps them.
    ///
    /// [`Store::keep_trace`]: super::Store::keep_trace
    pub fn holds_trace(&self) -> bool {
        self.layers.as_ref().is_some_and(|layers| layers.get(TRACE).is_some())
    }
}

/// The key of the layers of a run whose events are a trace.
pub const TRACE: &str = "trace_of_command";
