//! Runs in flight: the progress of a process that makes runs for a store, for watchers.
//!
//! Such a process keeps one small file, `DIR/in-flight/PID-START.json`. START is when the process started, in ticks
//! since the machine did, so that another process with the same number is not taken for it. The file is written under
//! another name and renamed: readers never see half of one. It is written between runs only, never during one, and once
//! a second on the average (virtual scheduling as in ITU-T I.371, annex A: [`BURST`] at once, then one each
//! [`PERIOD`]), so that neither many short runs nor a short one before a long one are shown wrongly for long. It goes
//! with its process; leftovers of a killed one are ignored, and removed by the next reader.
//!
//! A run does not lose worth without watchers: a file that cannot be written is left out silently. Known limit: a
//! process in another namespace of processes (another container) looks dead. Its file comes back with its next run.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use iowhy_live::ledger::started;
use serde::{Deserialize, Serialize};

use super::{Store, nanoseconds};

/// The directory of these files in that of a store.
const FOLDER: &str = "in-flight";
/// The suffix of a name, and the one while the file is being written.
const ENDS: [&str; 2] = [".json", ".json.part"];
/// Time between two writes, on the average.
const PERIOD: Duration = Duration::from_secs(1);
/// Writes that may follow each other at once.
const BURST: u32 = 4;
/// A longer file is none of ours.
const MOST_BYTES: u64 = 1 << 20;

/// How far a process has come with its runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// Label of the run in progress.
    pub label: String,
    /// Runs that are made.
    pub done: u64,
    /// Runs there will be.
    pub total: u64,
    /// The counted unit, in words.
    pub text: String,
    /// When the first began, ns since 1970.
    pub started_ns: u64,
}

/// This process's announcement of its runs, as long as it is making them.
#[derive(Debug)]
pub struct Announcement {
    path: PathBuf,
    said: InFlight,
    /// When the next write would be due, were they a period apart.
    due: Instant,
}

impl Announcement {
    /// Says that a run begins.
    pub fn begins(&mut self, label: &str, done: u64) {
        label.clone_into(&mut self.said.label);
        self.said.done = done;
        let now = Instant::now();
        if self.due > now + PERIOD * (BURST - 1) {
            return;
        }
        self.due = self.due.max(now) + PERIOD;
        let beside = self.path.with_extension("json.part");
        let Ok(text) = serde_json::to_string(&self.said) else { unreachable!("words and numbers are JSON") };
        // Watchers that cannot read learn it from their own reader; see above.
        let _ = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &self.path));
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // It may never have been written. One that stays is removed when this process is dead.
        let _ = fs::remove_file(&self.path);
    }
}

impl Store {
    /// Says of what runs are going to be made, and of how many. Files of dead processes go.
    pub fn announce(&self, text: &str, total: u64) -> Announcement {
        let folder = self.directory().join(FOLDER);
        // If it is not to be had, nothing can be written either.
        let _ = fs::create_dir_all(&folder);
        living(&folder);
        let pid = std::process::id();
        let name = format!("{pid}-{}{}", started(pid).unwrap_or(0), ENDS[0]);
        let started_ns = nanoseconds(SystemTime::now());
        let said = InFlight { label: String::new(), done: 0, total, text: text.to_owned(), started_ns };
        Announcement { path: folder.join(name), said, due: Instant::now() }
    }

    /// The announcement of the process that began last of those that are making runs; nothing without one.
    pub fn in_flight(&self) -> Option<InFlight> {
        let files = living(&self.directory().join(FOLDER));
        files.iter().filter_map(|path| read(path)).max_by_key(|said| said.started_ns)
    }
}

fn read(path: &Path) -> Option<InFlight> {
    let mut text = String::new();
    File::open(path).ok()?.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// The files of living processes, without those that are being written. Those of dead ones are removed.
fn living(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        // What has another name is not ours to remove.
        let Some((pid, start, end)) = name.to_str().and_then(owner) else { continue };
        if started(pid) != Some(start) {
            // Another process may have done it just now.
            let _ = fs::remove_file(entry.path());
        } else if end == ENDS[0] {
            files.push(entry.path());
        }
    }
    files
}

/// Number and start of the process that a file is of, and the end of its name.
fn owner(name: &str) -> Option<(u32, u64, &'static str)> {
    let (stem, end) = ENDS.iter().find_map(|end| Some((name.strip_suffix(end)?, *end)))?;
    let (pid, start) = stem.split_once('-')?;
    let (pid, start) = (pid.parse().ok()?, start.parse().ok()?);
    // A number can be written in several ways, of which we use one.
    (format!("{pid}-{start}") == stem).then_some((pid, start, end))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A store in a folder that goes with its value.
    struct Scratch(Store);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let folder = std::env::temp_dir().join(format!("iowhy-in-flight-{name}-{}", std::process::id()));
            Scratch(Store::open(&folder).expect("a store"))
        }

        fn folder(&self) -> PathBuf {
            self.0.directory().join(FOLDER)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.folder()).expect("a folder");
            let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("UTF-8");
            let mut names: Vec<String> = entries.map(|entry| name(entry.expect("an entry"))).collect();
            names.sort();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            // What cannot be removed is the temporary folder's business.
            let _ = fs::remove_dir_all(self.0.directory());
        }
    }

    /// The name of this process's file.
    fn mine() -> String {
        let pid = std::process::id();
        format!("{pid}-{}.json", started(pid).expect("it runs"))
    }

    #[test]
    fn a_run_is_seen_as_long_as_it_is_in_flight() {
        let scratch = Scratch::new("seen");
        assert_eq!(scratch.0.in_flight(), None);
        let mut flight = scratch.0.announce("runs of dd", 3);
        assert_eq!(scratch.0.in_flight(), None, "none has begun");
        let label = "</script>\"'\u{202e}\n".repeat(1000);
        flight.begins(&label, 2);
        let seen = scratch.0.in_flight().expect("it is in flight");
        assert_eq!((seen.label, seen.done, seen.total, seen.text), (label, 2, 3, "runs of dd".to_owned()));
        assert_eq!(scratch.names(), [mine()]);
        drop(flight);
        assert_eq!((scratch.0.in_flight(), scratch.names().len()), (None, 0));
    }

    #[test]
    fn it_is_written_once_a_second_on_the_average() {
        let scratch = Scratch::new("often");
        let mut flight = scratch.0.announce("runs", 1000);
        let done = || scratch.0.in_flight().map(|seen| seen.done);
        let first = Instant::now();
        (1..=100).for_each(|nr| flight.begins("a", nr));
        let last = u64::from(BURST) + first.elapsed().as_secs();
        assert!((u64::from(BURST)..=last).contains(&done().expect("it is in flight")), "{:?}", done());
        // A period later there is room for one more.
        flight.due -= PERIOD;
        flight.begins("a", 200);
        assert_eq!(done(), Some(200));
        // After a long time there is room for no more than at first.
        flight.due -= PERIOD * 100;
        let first = Instant::now();
        (301..=400).for_each(|nr| flight.begins("a", nr));
        let last = 300 + u64::from(BURST) + first.elapsed().as_secs();
        assert!((300 + u64::from(BURST)..=last).contains(&done().expect("it is in flight")), "{:?}", done());
    }

    #[test]
    fn files_of_dead_processes_go_and_others_stay() {
        let scratch = Scratch::new("dead");
        fs::create_dir(scratch.folder()).expect("a folder");
        let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
        let start = started(child.id()).expect("it runs");
        let of_child = format!("{}-{start}.json", child.id());
        let said = |label: &str, started_ns: u64| {
            let said = InFlight { label: label.to_owned(), done: 0, total: 1, text: String::new(), started_ns };
            serde_json::to_string(&said).expect("JSON")
        };
        // Of this process, but of another start: of one that had its number before.
        let (pid, me) = (std::process::id(), mine());
        let before = [format!("{pid}-1.json"), format!("{pid}-1.json.part")];
        let foreign = [format!("0{me}"), "notes.txt".to_owned(), "x-y.json".to_owned()];
        for name in before.iter().chain(&foreign) {
            fs::write(scratch.folder().join(name), said("nobody", 9)).expect("a file");
        }
        fs::write(scratch.folder().join(&me), said("first", 1)).expect("a file");
        fs::write(scratch.folder().join(&of_child), said("last", 2)).expect("a file");
        let label = || scratch.0.in_flight().map(|seen| seen.label);
        assert_eq!(label().as_deref(), Some("last"));
        let mut left: Vec<String> = foreign.into_iter().chain([me.clone(), of_child]).collect();
        left.sort();
        assert_eq!(scratch.names(), left);
        // Dead, but not collected yet.
        child.kill().expect("it can be killed");
        while started(child.id()) == Some(start) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(label().as_deref(), Some("first"));
        child.wait().expect("it has ended");
        // A senseless file is not a run.
        for text in ["", "{", "{\"label\": 3}", "[]"] {
            fs::write(scratch.folder().join(&me), text).expect("a file");
            assert_eq!(label(), None, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_left_out() {
        let scratch = Scratch::new("refused");
        fs::write(scratch.folder(), "a file where the folder should be").expect("a file");
        let mut flight = scratch.0.announce("runs", 3);
        flight.begins("a", 0);
        assert_eq!(scratch.0.in_flight(), None);
        drop(flight);
        assert!(scratch.folder().is_file());
    }
}
