//! The model of the running kernel against the running kernel: every read-ahead decision, every page added.
//!
//! Jobs run on the kernel while a trace is recorded; the work of each on each of its files becomes a [`Recorded`].
//! [`check`] replays it through a model in two ways:
//!
//! ```text
//! decisions   question by question: the state that the kernel shows when it asks, into the model; its answer against
//!             the window, the folios and the bios that follow. Nothing is carried over: any number of tasks may read
//! history     from the calls alone: the questions too, and all state and the cache are the model's own. For files
//!             that one task reads
//! ```
//! A decision matches if every window that the kernel decided on in answer to a question is the model's: index, size,
//! asynchronous tail, order, limit, in their order. A page add matches if index and order of the folio do.
//!
//! Records are kept as text ([`recorded`]), so that the same comparison runs where nothing may be traced.
//!
//! Bios are compared with the submissions of one moment ([`model`]), those of reads past the page cache with the
//! request ([`direct`]), requests with the plug's result for the bios ([`requests`]), misses of mappings with the
//! window that a fault reads ([`faults`]).
//!
//! Known limits: reads of io_uring and touches of mappings are not calls, so they have no history; touches that find
//! their page mapped or mappable leave no event, so only an upper bound of a mapping's misses is known. A file system
//! whose folios have another limit than ext4's and XFS's is recognised only by having none.

mod decisions;
mod direct;
mod faults;
pub mod foreign;
mod history;
pub mod jobs;
pub mod live;
mod model;
mod queue;
mod requests;
mod traced;

use std::fmt::Write;

use iowhy_stack::kernel::KERNELS;
use iowhy_stack::kernel::release::{Nearest, Release};
use iowhy_stack::origin::{self, Entry};
use iowhy_stack::readahead::{Build, READAHEADS};
use serde_json::{Value, json};

use iowhy_text as text;
use iowhy_trace::recorded::{Line, Recorded, What};
pub use queue::{DiskChecked, Queue};
pub use traced::{Device, File, records};

/// Characters of a name in a table.
const LONGEST_NAME: usize = 33;

/// Most mismatches that a report lists of each job.
const TOLD: usize = 5;

/// How much of a comparison matched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Questions that read-ahead was asked.
    pub decisions: u64,
    /// Those of which everything decided is the model's.
    pub matched: u64,
    /// Folios added, by the kernel or by the model, whichever were more.
    pub page_adds: u64,
    /// Those that both added.
    pub page_adds_matched: u64,
    /// Bios sent for them.
    pub bios: u64,
    /// Those of the size that the model's submissions make.
    pub bios_matched: u64,
    /// Matches that need something which another task with the same descriptor wrote meanwhile.
    pub raced: u64,
    /// The first few that did not match.
    pub mismatches: Vec<String>,
}

impl Tally {
    /// Whether decisions and page adds all did.
    pub fn all_matched(&self) -> bool {
        self.matched == self.decisions && self.page_adds_matched == self.page_adds
    }

    /// Whether 99 % of both did: tasks that share the state of an open file change it under each other's hands.
    fn nearly_all(&self) -> bool {
        self.matched * 100 >= self.decisions * 99 && self.page_adds_matched * 100 >= self.page_adds * 99
    }

    fn merge(&mut self, other: Tally) {
        self.decisions += other.decisions;
        self.matched += other.matched;
        self.page_adds += other.page_adds;
        self.page_adds_matched += other.page_adds_matched;
        self.bios += other.bios;
        self.bios_matched += other.bios_matched;
        self.raced += other.raced;
        let room = TOLD.saturating_sub(self.mismatches.len());
        self.mismatches.extend(other.mismatches.into_iter().take(room));
    }

    /// Counts one question and its answers.
    fn decision(&mut self, question: &Line, told: &[What], seen: &[Line]) {
        let seen: Vec<What> = seen.iter().map(|line| line.what).collect();
        let decided = |what: &What| is_window(what) || matches!(what, What::Sync(_));
        let windows = |list: &[What]| -> Vec<What> { list.iter().copied().filter(decided).collect() };
        self.decisions += 1;
        let same = windows(told) == windows(&seen);
        self.matched += u64::from(same);
        let same_adds = self.adds(told, &seen);
        if !(same && same_adds) {
            self.mismatches.push(difference(question, told, &seen));
        }
    }

    /// Counts one call: the questions of the kernel and of the model in their order, with their answers.
    fn call(&mut self, call: &Line, told: &[What], seen: &[Line]) {
        let plain = |what: &What| match *what {
            // Faults of mappings count it, reads do not look at it.
            What::Sync(input) => What::Sync(iowhy_stack::trace::RaInput { mmap_miss: 0, ..input }),
            What::Async(input) => What::Async(iowhy_stack::trace::RaInput { mmap_miss: 0, ..input }),
            what => what,
        };
        let seen: Vec<What> = seen.iter().map(|line| plain(&line.what)).collect();
        let told: Vec<What> = told.iter().map(plain).collect();
        let questions = |list: &[What]| -> Vec<Vec<What>> {
            let list: Vec<What> = list.iter().copied().filter(|what| !matches!(what, What::Add { .. })).collect();
            list.chunk_by(|_, next| is_window(next)).map(<[What]>::to_vec).collect()
        };
        let (ours, theirs) = (questions(&told), questions(&seen));
        let n = ours.len().max(theirs.len());
        let same = ours.iter().zip(&theirs).filter(|(ours, theirs)| ours == theirs).count();
        self.decisions += n as u64;
        self.matched += same as u64;
        let same_adds = self.adds(&told, &seen);
        if same < n || !same_adds {
            self.mismatches.push(difference(call, &told, &seen));
        }
    }

    fn adds(&mut self, told: &[What], seen: &[What]) -> bool {
        let adds = |list: &[What]| -> Vec<What> {
            list.iter().copied().filter(|what| matches!(what, What::Add { .. })).collect()
        };
        let (ours, theirs) = (adds(told), adds(seen));
        let n = ours.len().max(theirs.len());
        self.page_adds += n as u64;
        if ours == theirs {
            self.page_adds_matched += n as u64;
            return true;
        }
        // One that is missing must not make all behind it wrong; in another order they are at most all but one.
        let both = theirs.iter().filter(|add| ours.contains(add)).count();
        self.page_adds_matched += both.min(n - 1) as u64;
        false
    }
}

fn is_window(what: &What) -> bool {
    matches!(what, What::Order { .. } | What::Unbounded { .. })
}

/// Bios or requests, and how many of them are the model's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// All of them, the kernel's or the model's, whichever are more.
    pub of: u64,
    /// Those that both have.
    pub matched: u64,
    /// The others by name.
    pub mismatches: Vec<String>,
}

impl Count {
    fn cut(mut self) -> Count {
        self.mismatches.truncate(TOLD);
        self
    }

    fn json(&self) -> Value {
        json!({"of": self.of, "matched": self.matched, "mismatches": self.mismatches})
    }
}

/// Where the kernel and the model part after a question or a call.
fn difference(question: &Line, told: &[What], seen: &[What]) -> String {
    let relevant = |list: &[What]| -> Vec<What> {
        list.iter().copied().filter(|what| !matches!(what, What::Bio { .. })).collect()
    };
    let (told, seen) = (relevant(told), relevant(seen));
    let at = told.iter().zip(&seen).take_while(|(ours, theirs)| ours == theirs).count();
    let show = |list: &[What]| list.get(at).map_or("nothing more".to_owned(), |what| format!("{what:?}"));
    format!("after {:?}: kernel {}, model {}", question.what, show(&seen), show(&told))
}

/// The comparison of one file of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// Name of the job.
    pub job: String,
    /// The file system it ran on.
    pub filesystem: String,
    /// Read-ahead limit of the device, KiB.
    pub read_ahead_kb: u64,
    /// Whether one task read.
    pub single_threaded: bool,
    /// Records of the trace.
    pub events: u64,
    /// Events that the kernel had no room for.
    pub lost: u64,
    /// Requests issued, and those of the place and size that the plug makes of the bios.
    pub requests: Count,
    /// Bios of reads past the page cache.
    pub direct: Count,
    /// Question by question.
    pub decisions: Tally,
    /// From the calls alone, if one task read.
    pub history: Option<Tally>,
}

impl Checked {
    /// Whether it reached the expected share: everything where one task read, 99 % where several did.
    pub fn as_expected(&self) -> bool {
        let whole = self.history.as_ref().is_none_or(Tally::all_matched);
        let fine = if self.single_threaded { self.decisions.all_matched() } else { self.decisions.nearly_all() };
        let (bios, bios_matched) = self.bios();
        self.lost == 0 && whole && fine && bios == bios_matched && self.requests.matched == self.requests.of
    }

    /// Whether there was anything to compare.
    fn has_evidence(&self) -> bool {
        let tally = self.counted();
        tally.decisions + tally.page_adds + tally.bios + self.direct.of + self.requests.of > 0
    }

    /// Bios of both kinds, and how many of them match.
    fn bios(&self) -> (u64, u64) {
        let tally = self.counted();
        (tally.bios + self.direct.of, tally.bios_matched + self.direct.matched)
    }

    /// The part that counts for the sum: the whole history where it is known, the decisions elsewhere.
    fn counted(&self) -> &Tally {
        self.history.as_ref().unwrap_or(&self.decisions)
    }

    fn first_mismatch(&self) -> Option<&String> {
        let history = self.history.iter().flat_map(|history| &history.mismatches);
        self.decisions.mismatches.iter().chain(history).chain(&self.direct.mismatches).next()
    }

    /// Mismatches, by name: decisions first.
    fn mismatches(&self) -> impl Iterator<Item = &String> {
        let history = self.history.iter().flat_map(|history| &history.mismatches);
        let decisions = self.decisions.mismatches.iter().chain(history).take(TOLD);
        decisions.chain(&self.direct.mismatches).chain(&self.requests.mismatches)
    }
}

/// File systems that make bios as the models do.
const KNOWN_BIOS: &[&str] = &["ext4", "xfs", "erofs"];

/// Whether the models predict the bios of this file. A file that erofs has compressed takes fewer blocks than bytes.
fn makes_known_bios(recorded: &Recorded) -> bool {
    let filesystem = recorded.filesystem.as_str();
    KNOWN_BIOS.contains(&filesystem) && !(filesystem == "erofs" && recorded.holes)
}

/// Something that was not compared, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotJudged {
    pub what: String,
    pub why: String,
}

/// Compares what a kernel did with one file with what a model does.
pub fn check(entry: &'static Entry<Build>, recorded: &Recorded) -> Checked {
    let mut checked = check_all(entry, recorded);
    if !makes_known_bios(recorded) {
        (checked.direct, checked.requests) = (Count::default(), Count::default());
        for tally in checked.history.iter_mut().chain([&mut checked.decisions]) {
            (tally.bios, tally.bios_matched) = (0, 0);
        }
    }
    checked
}

fn check_all(entry: &'static Entry<Build>, recorded: &Recorded) -> Checked {
    let single_threaded = recorded.single_threaded();
    Checked {
        job: recorded.job.clone(),
        filesystem: recorded.filesystem.clone(),
        read_ahead_kb: recorded.ra_pages * 4,
        single_threaded,
        events: recorded.lines.len() as u64,
        lost: recorded.lost,
        requests: requests::compare(recorded).cut(),
        direct: direct::compare(recorded).cut(),
        decisions: decisions::compare(entry, recorded),
        history: (single_threaded && recorded.calls_known()).then(|| history::compare(entry, recorded)),
    }
}

/// The model of a release (`uname -r`) and its build (see [`Release::with_build`]), and the kernel that it is of.
pub fn model_of(release: &str, build: &str) -> (&'static Entry<Build>, Nearest) {
    let newest = &KERNELS[KERNELS.len() - 1];
    let nearest = match Release::parse(release) {
        Some(release) => release.with_build(build).nearest(),
        None => Nearest { kernel: newest, exact: false, differs: "its release is not known".to_owned() },
    };
    let entry = origin::find(READAHEADS, nearest.kernel.readahead).expect("kernels name entries");
    (entry, nearest)
}

/// Outcome of a conformance run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Release of the kernel.
    pub kernel: String,
    /// The kernel that it is compared with, or the nearest.
    pub model: Nearest,
    /// Every file of every job.
    pub jobs: Vec<Checked>,
    /// The requests of every disk below them.
    pub disks: Vec<DiskChecked>,
    /// Jobs that could not be run, and why.
    pub skipped: Vec<String>,
    /// Everything that was seen and not compared.
    pub not_judged: Vec<NotJudged>,
    /// Events that the kernel had no room for.
    pub lost: u64,
}

impl Report {
    /// Whether everything is as expected: each file that one task read, and those that several read together. Nothing
    /// is expected of nothing.
    pub fn as_expected(&self) -> bool {
        let (single, several): (Vec<&Checked>, Vec<&Checked>) = self.jobs.iter().partition(|job| job.single_threaded);
        let mut together = Tally::default();
        several.iter().for_each(|job| together.merge(job.decisions.clone()));
        let below = several.iter().all(|job| job.bios().0 == job.bios().1 && job.requests.matched == job.requests.of);
        let fine = single.iter().all(|job| job.as_expected()) && together.nearly_all() && below;
        let disks = self.disks.iter().all(|disk| disk.requests.matched == disk.requests.of);
        self.lost == 0 && fine && disks && self.has_evidence()
    }

    /// Requests, and how many match: of the disks where they are known, else of each file by itself.
    fn requests(&self) -> (u64, u64) {
        match self.disks.is_empty() {
            true => (self.sum(|job| job.requests.of), self.sum(|job| job.requests.matched)),
            false => {
                let sum = |of: fn(&DiskChecked) -> u64| self.disks.iter().map(of).sum();
                (sum(|disk| disk.requests.of), sum(|disk| disk.requests.matched))
            }
        }
    }

    /// Whether there was anything to compare.
    pub fn has_evidence(&self) -> bool {
        self.jobs.iter().any(Checked::has_evidence) || self.requests().0 > 0
    }

    fn sum(&self, of: impl Fn(&Checked) -> u64) -> u64 {
        self.jobs.iter().map(of).sum()
    }

    /// As JSON (`iowhy.conform/1`).
    pub fn json(&self) -> Value {
        json!({
            "schema": "iowhy.conform/1",
            "kernel": self.kernel,
            "model": self.model.kernel.name,
            "exact_model": self.model.exact,
            "known_differences": self.model.differs,
            "events": self.sum(|job| job.events),
            "decisions": self.sum(|job| job.counted().decisions),
            "matched": self.sum(|job| job.counted().matched),
            "page_adds": self.sum(|job| job.counted().page_adds),
            "page_adds_matched": self.sum(|job| job.counted().page_adds_matched),
            "bios": self.sum(|job| job.bios().0),
            "bios_matched": self.sum(|job| job.bios().1),
            "requests": self.requests().0,
            "requests_matched": self.requests().1,
            "raced": self.sum(|job| job.counted().raced),
            "lost_events": self.lost,
            "first_mismatch": self.jobs.iter().find_map(Checked::first_mismatch),
            "as_expected": self.as_expected(),
            "skipped": self.skipped,
            "not_judged": self.not_judged.iter().map(|it| json!({"what": it.what, "why": it.why})).collect::<Vec<_>>(),
            "disks": self.disks.iter().map(disk_json).collect::<Vec<_>>(),
            "jobs": self.jobs.iter().map(job_json).collect::<Vec<_>>(),
        })
    }

    /// As a table.
    pub fn text(&self, bold: fn(&str) -> String) -> String {
        let Nearest { kernel, exact, differs } = &self.model;
        let mut out = format!("kernel {}, model {}", self.kernel, kernel.name);
        if !exact {
            out = text::wrap(&format!("{out}, the nearest that there is: {differs}"), text::width()).join("\n");
        }
        out.push('\n');
        let _ = writeln!(
            out,
            "{:<34}{:<6}{:>6}  {:>17}  {:>19}  {:>15}  {:>15}",
            "job", "fs", "ra KB", "decisions", "page adds", "bios", "requests"
        );
        let cell = |matched: u64, of: u64| format!("{}/{}", text::grouped(matched), text::grouped(of));
        for job in &self.jobs {
            let tally = job.counted();
            // Of a path the end says more than the start.
            let cut = job.job.char_indices().rev().nth(LONGEST_NAME - 1).map_or(0, |(at, _)| at);
            let line = format!(
                "{:<34}{:<6}{:>6}  {:>17}  {:>19}  {:>15}  {:>15}",
                &job.job[cut..],
                job.filesystem,
                job.read_ahead_kb,
                cell(tally.matched, tally.decisions),
                cell(tally.page_adds_matched, tally.page_adds),
                cell(job.bios().1, job.bios().0),
                cell(job.requests.matched, job.requests.of),
            );
            let fine = job.as_expected();
            let _ = writeln!(out, "{}", if fine { line } else { bold(&line) });
            if job.lost > 0 {
                let _ = writeln!(out, "    the kernel lost {}", text::count(job.lost, "event", "events"));
            }
            for mismatch in job.mismatches() {
                let _ = writeln!(out, "    {mismatch}");
            }
        }
        for DiskChecked { name, scheduler, requests } in &self.disks {
            let line = format!("disk {name}, {scheduler}: {} requests", cell(requests.matched, requests.of));
            let _ = writeln!(out, "{}", if requests.matched == requests.of { line } else { bold(&line) });
            for mismatch in requests.mismatches.iter().take(TOLD) {
                let _ = writeln!(out, "    {mismatch}");
            }
        }
        for skipped in &self.skipped {
            let _ = writeln!(out, "not run: {skipped}");
        }
        let wrong = self.jobs.iter().filter(|job| !job.as_expected()).count() as u64;
        for NotJudged { what, why } in &self.not_judged {
            let _ = writeln!(out, "not judged: {what}: {why}");
        }
        let sum = match self.has_evidence() {
            false => "nothing was judged",
            true if self.as_expected() => "everything is as expected",
            true if self.lost > 0 => "events were lost",
            true => "this is a mismatch",
        };
        let (of, adds) = (self.sum(|job| job.counted().decisions), self.sum(|job| job.counted().page_adds));
        let _ = writeln!(
            out,
            "{} decisions, {} page adds, {} bios and {} requests matched; {sum}{}",
            cell(self.sum(|job| job.counted().matched), of),
            cell(self.sum(|job| job.counted().page_adds_matched), adds),
            cell(self.sum(|job| job.bios().1), self.sum(|job| job.bios().0)),
            cell(self.requests().1, self.requests().0),
            match wrong {
                0 => String::new(),
                wrong => format!(" ({} by itself less than it should)", text::count(wrong, "file", "files")),
            }
        );
        out
    }
}

fn tally_json(tally: &Tally) -> Value {
    json!({
        "decisions": tally.decisions,
        "matched": tally.matched,
        "page_adds": tally.page_adds,
        "page_adds_matched": tally.page_adds_matched,
        "bios": tally.bios,
        "bios_matched": tally.bios_matched,
        "raced": tally.raced,
        "mismatches": tally.mismatches,
    })
}

fn disk_json(disk: &DiskChecked) -> Value {
    json!({
        "name": disk.name,
        "scheduler": disk.scheduler,
        "requests": disk.requests.of,
        "requests_matched": disk.requests.matched,
        "mismatches": disk.requests.mismatches.iter().take(TOLD).collect::<Vec<_>>(),
    })
}

fn job_json(job: &Checked) -> Value {
    let tally = job.counted();
    json!({
        "job": job.job,
        "filesystem": job.filesystem,
        "read_ahead_kb": job.read_ahead_kb,
        "single_threaded": job.single_threaded,
        "events": job.events,
        "decisions": tally.decisions,
        "matched": tally.matched,
        "page_adds": tally.page_adds,
        "page_adds_matched": tally.page_adds_matched,
        "bios": job.bios().0,
        "bios_matched": job.bios().1,
        "requests": job.requests.of,
        "requests_matched": job.requests.matched,
        "raced": tally.raced,
        "lost_events": job.lost,
        "first_mismatch": job.first_mismatch(),
        "as_expected": job.as_expected(),
        "each_request": job.requests.json(),
        "past_the_cache": job.direct.json(),
        "each_decision": tally_json(&job.decisions),
        "whole_history": job.history.as_ref().map(tally_json),
    })
}

#[cfg(test)]
mod tests;
