//! How a run was asked for, as far as it is needed to make the run again.
//!
//! ```text
//! version 1    keys among the policies: `command`, `again`, `folder`, `disk`, `modelled`, `modelled_disk`
//! version 2    a column of its own with the fields below, as JSON; unknown ones are left out
//! ```
//! Rows are never changed: those of version 1 keep their keys, and are split when they are read.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The version that this program writes.
const VERSION: u32 = 2;

/// How a run was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this description.
    pub version: u32,
    /// Words after `iowhy` that make a simulated run again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// How a run on the running kernel is made again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<CommandLine>,
    /// The machine's own disk below the job's folder, as in `/sys/block`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// The modelled disk made for a run on the running kernel, in the words of `--disk`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modelled: Option<String>,
    /// The modelled disk of a guest, in the words of `--disk`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modelled_disk: Option<String>,
}

impl Default for Manifest {
    fn default() -> Manifest {
        Manifest { version: VERSION, command: None, again: None, disk: None, modelled: None, modelled_disk: None }
    }
}

/// A command as typed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandLine {
    /// The words after `iowhy run`.
    pub words: Vec<String>,
    /// The folder in which it was typed.
    pub folder: PathBuf,
}

impl Manifest {
    /// Of policies of version 1, which lose its keys.
    pub(super) fn take(policies: &mut Value) -> Manifest {
        let Some(keys) = policies.as_object_mut() else { return Manifest { version: 1, ..Manifest::default() } };
        let mut text = |key: &str| match keys.shift_remove(key) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let (command, folder) = (text("command"), text("folder"));
        let (disk, modelled, modelled_disk) = (text("disk"), text("modelled"), text("modelled_disk"));
        let words = keys.shift_remove("again").and_then(|words| serde_json::from_value(words).ok());
        let again = words.zip(folder).map(|(words, folder)| CommandLine { words, folder: folder.into() });
        Manifest { version: 1, command, again, disk, modelled, modelled_disk }
    }

    /// Its keys as they were among the policies, where `iowhy store --json` still has them.
    pub(super) fn put(&self, policies: &mut Value) {
        let Some(keys) = policies.as_object_mut() else { return };
        let Manifest { version: _, command, again, disk, modelled, modelled_disk } = self;
        if let Some(again) = again {
            keys.insert("again".to_owned(), json!(again.words));
            keys.insert("folder".to_owned(), json!(again.folder));
        }
        let texts = [("command", command), ("disk", disk), ("modelled", modelled), ("modelled_disk", modelled_disk)];
        keys.extend(texts.iter().filter_map(|(key, text)| Some(((*key).to_owned(), json!(text.as_ref()?)))));
    }
}
