//! How a stored run is made again.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::store::{CommandLine, Manifest};

/// How a stored run is made again on the running kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipe {
    /// The words after `iowhy run`.
    pub words: Vec<String>,
    /// Where they were typed.
    pub folder: PathBuf,
    /// The disk, as in `/sys/block`.
    pub disk: Option<String>,
    /// Settings of its queue: file and value.
    pub queue: Vec<(String, String)>,
    /// The modelled disk that was created for it, in the words of `--disk`; then it is the only one.
    pub modelled: Option<String>,
}

/// Settings of a queue that are kept with a run, in the order in which they are set: some change others. The first word
/// is the key in the store.
const QUEUE: &[(&str, &str)] = &[
    ("elevator", "scheduler"),
    ("nr_requests", "nr_requests"),
    ("max_sectors_kb", "max_sectors_kb"),
    ("nomerges", "nomerges"),
    ("read_ahead_kb", "read_ahead_kb"),
];

impl Recipe {
    /// Of a run's manifest and policies; nothing if they do not have it.
    pub(super) fn of(manifest: Manifest, policies: &Value) -> Option<Recipe> {
        let CommandLine { words, folder } = manifest.again?;
        let value = |key: &str| match policies.get(key)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let queue = QUEUE.iter().filter_map(|(key, file)| Some(((*file).to_owned(), value(key)?))).collect();
        Some(Recipe { words, folder, disk: manifest.disk, queue, modelled: manifest.modelled })
    }

    /// A setting of its queue.
    pub(super) fn setting(&self, file: &str) -> Option<&str> {
        self.queue.iter().find(|(known, _)| known == file).map(|(_, value)| value.as_str())
    }

    /// Where a setting of its queue is.
    pub(super) fn path(&self, file: &str) -> Option<PathBuf> {
        Some(Path::new("/sys/block").join(self.disk.as_deref()?).join("queue").join(file))
    }
}
