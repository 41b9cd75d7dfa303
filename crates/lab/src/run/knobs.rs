//! Settings of this machine for the runs of a place: `--on live,read_ahead_kb=4,vm.dirty_ratio=5`.
//!
//! They are set before each run and restored after it, through the ledger: after an error and a signal, too, and by the
//! next start if the process is killed. The disk is the one below the directory of the files. A value that the kernel
//! takes as another one is refused: the run would be one of something else.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iowhy_live::ledger::{Guard, Ledger, LedgerError};
use iowhy_live::machine::Disk;
use iowhy_text as text;
use iowhy_text::diagnose::{Problem, Problems, Span};

use super::LIVE;
use super::backend::{Backend, Making, Refusal, RunRecord, Shared};
use crate::place;

/// A setting that a place can have.
struct Knob {
    key: &'static str,
    help: &'static str,
    /// It belongs to the queue of the disk; otherwise to the whole machine.
    of_disk: bool,
}

const fn of_disk(key: &'static str, help: &'static str) -> Knob {
    Knob { key, help, of_disk: true }
}

const fn of_machine(key: &'static str, help: &'static str) -> Knob {
    Knob { key, help, of_disk: false }
}

/// Every setting, in the order in which they are set: the kernel derives later ones from the first.
const KNOBS: &[Knob] = &[
    of_disk("scheduler", "none, mq-deadline, kyber or bfq, as far as the kernel has them"),
    of_disk("max_sectors_kb", "largest request"),
    of_disk("read_ahead_kb", "largest read-ahead window"),
    of_disk("nr_requests", "requests in the queue"),
    of_disk("nomerges", "0 all merges, 1 simple ones, 2 none"),
    of_disk("wbt_lat_usec", "target of writeback throttling; 0 for none"),
    of_machine("vm.dirty_ratio", "percent of memory: writers wait"),
    of_machine("vm.dirty_background_ratio", "percent of memory: writeback starts"),
    of_machine("vm.dirty_bytes", "the same in bytes"),
    of_machine("vm.dirty_background_bytes", "the same in bytes"),
    of_machine("vm.dirty_expire_centisecs", "age at which a page must be written"),
    of_machine("vm.dirty_writeback_centisecs", "time between two looks of the flusher"),
];

/// Settings of a place, as typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Knobs(Vec<(&'static str, String)>);

/// Why settings cannot be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum KnobError {
    #[error("`{key}` is a setting of a disk, and there is none below {}: name a directory on one with --dir", path.display())]
    NoDisk { key: &'static str, path: PathBuf },
    #[error("{disk} has no setting `{key}`: {} cannot be read", path.display())]
    Missing { key: &'static str, disk: String, path: PathBuf },
    #[error("`{key}={value}` is not possible on {disk}: {advice}")]
    Refused { key: &'static str, value: String, disk: String, advice: String },
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl From<KnobError> for Refusal {
    fn from(error: KnobError) -> Refusal {
        Refusal::new(error)
    }
}

/// Whether a word behind `--on` is the running kernel, with or without settings.
pub(super) fn is_live(on: &str) -> bool {
    on == LIVE || on.strip_prefix(LIVE).is_some_and(|rest| rest.starts_with(','))
}

/// The section of the help.
pub(super) fn help() -> String {
    let mut out = String::from("\nKeys of live, set before each run and restored after it (as root):\n\n");
    KNOBS.iter().for_each(|knob| out.push_str(&text::item(knob.key, knob.help, 30)));
    out
}

impl Knobs {
    /// Reads the settings behind `live`.
    pub(super) fn read(on: &str, problems: &mut Problems) -> Knobs {
        let mut found = Vec::new();
        for (key, value) in place::keys(on, problems) {
            let known = KNOBS.iter().find(|knob| knob.key == key || knob.key.strip_prefix("vm.") == Some(key));
            let Some(knob) = known else {
                problems.push(
                    Problem::error(format!("`{key}` is not a setting of a live place"))
                        .at(Span::whole(on))
                        .near(key, KNOBS.iter().map(|knob| knob.key))
                        .help("`iowhy run --help` lists them"),
                );
                continue;
            };
            let number = value.strip_prefix('-').unwrap_or(value).parse::<u64>().is_ok();
            if knob.key != "scheduler" && !number {
                let problem = Problem::error(format!("`{key}` takes a whole number, not `{value}`"));
                problems.push(problem.at(Span::whole(on)));
                continue;
            }
            found.push((knob.key, value.to_owned()));
        }
        found.sort_by_key(|(key, _)| KNOBS.iter().position(|knob| knob.key == *key));
        Knobs(found)
    }

    /// The settings of the queue as keys of a disk that is made for the run, and the others.
    pub(super) fn for_a_disk_of_its_own(self) -> (String, Knobs) {
        let of_disk = |key: &str| KNOBS.iter().any(|knob| knob.key == key && knob.of_disk);
        let (queue, others): (Vec<_>, Vec<_>) = self.0.into_iter().partition(|(key, _)| of_disk(key));
        (queue.iter().map(|(key, value)| format!(",{key}={value}")).collect(), Knobs(others))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes the settings for the disk below a path; they are restored when the guards go, the last one first.
    pub(super) fn set(&self, path: &Path) -> Result<Option<Guard>, KnobError> {
        if self.is_empty() {
            return Ok(None);
        }
        let (ledger, _) = Ledger::open()?;
        let mut all: Option<Guard> = None;
        for (key, value) in &self.0 {
            let (file, disk) = file_of(key, path)?;
            let Ok(before) = fs::read_to_string(&file) else {
                return Err(KnobError::Missing { key, disk, path: file });
            };
            let refused = |advice: String| KnobError::Refused { key, value: value.clone(), disk: disk.clone(), advice };
            if *key == "scheduler" {
                let offered: Vec<&str> = before.split_whitespace().map(|word| word.trim_matches(['[', ']'])).collect();
                if !offered.contains(&value.as_str()) {
                    return Err(refused(format!("it offers {}", offered.join(", "))));
                }
            }
            let Some(guard) = ledger.set(&file, value).map_err(|error| match error {
                LedgerError::Io { error, .. } if error.raw_os_error() == Some(INVALID) => {
                    refused(format!("the kernel refuses it; it is {} now", before.trim()))
                }
                error => KnobError::Ledger(error),
            })?
            else {
                continue;
            };
            let now = current(&file);
            all = Some(match all {
                Some(before) => before.and(guard),
                None => guard,
            });
            // -1 stands for the kernel's own choice.
            if now != *value && value != "-1" {
                return Err(refused(format!("the kernel makes {now} of it; ask for that, or for another value")));
            }
        }
        Ok(all)
    }
}

/// EINVAL.
const INVALID: i32 = 22;

/// The value of a setting: of a list the chosen word.
fn current(file: &Path) -> String {
    let now = fs::read_to_string(file).unwrap_or_default();
    let chosen = now.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word.to_owned());
    chosen.unwrap_or_else(|| now.trim().to_owned())
}

/// The file of a setting, and the disk that it belongs to, in words.
fn file_of(key: &'static str, path: &Path) -> Result<(PathBuf, String), KnobError> {
    if !KNOBS.iter().any(|knob| knob.key == key && knob.of_disk) {
        let name = key.trim_start_matches("vm.");
        return Ok((Path::new("/proc/sys/vm").join(name), "this machine".to_owned()));
    }
    match Disk::below(path).name {
        Some(disk) => Ok((Path::new("/sys/block").join(&disk).join("queue").join(key), disk)),
        None => Err(KnobError::NoDisk { key, path: path.to_owned() }),
    }
}

/// Runs with settings of their own.
#[derive(Debug)]
pub(super) struct WithKnobs {
    pub(super) knobs: Knobs,
    pub(super) runs: Arc<dyn Backend>,
}

impl Backend for WithKnobs {
    fn make(&self, making: &Making<'_>, shared: &mut Shared) -> Result<RunRecord, Refusal> {
        let guard = self.knobs.set(&making.request.folder.path)?;
        let made = self.runs.make(making, shared);
        // A setting that does not come back must not pass for one of the next run.
        guard.map_or(Ok(()), Guard::undo)?;
        made
    }

    fn uses_folder(&self) -> bool {
        self.runs.uses_folder()
    }

    fn begin(&self) -> Result<(), Refusal> {
        self.runs.begin()
    }

    fn end(&self) -> Result<(), Refusal> {
        self.runs.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_every_mistake_is_reported() {
        let read = |on: &str| {
            let mut problems = Problems::default();
            let Knobs(found) = Knobs::read(on, &mut problems);
            (found, problems.render())
        };
        let (found, said) = read("live,read_ahead_kb=4,dirty_bytes=65536,scheduler=bfq");
        let expected = [("scheduler", "bfq"), ("read_ahead_kb", "4"), ("vm.dirty_bytes", "65536")];
        assert_eq!(found, expected.map(|(key, value)| (key, value.to_owned())), "the scheduler comes first");
        assert!(said.is_empty(), "{said}");
        let (found, said) = read("live,read_ahead=4,nr_requests=many,nomerges");
        assert!(found.is_empty(), "{found:?}");
        for part in ["`read_ahead` is not a setting", "read_ahead_kb", "`nr_requests` takes", "`nomerges` has no value"]
        {
            assert!(said.contains(part), "no {part} in\n{said}");
        }
        assert!(is_live("live") && is_live("live,a=1") && !is_live("lively") && !is_live("sim:live"));
    }
}
