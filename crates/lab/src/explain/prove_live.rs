//! The experiment on the running kernel: one thing is switched under the slow side's job, and the difference is
//! measured again.
//!
//! ```text
//! three kinds    the fast side's job as it was, the slow side's as it was, and the slow side's with one thing switched
//! blocks         each block makes one run of each, in random order and with one seed, so that drift of the machine
//!                and the order of runs fall on all three alike
//! settings       of the disk's queue, as the store has them of each side, are set before each run and restored after
//!                it, through the ledger: an error, a signal, or the next start after a kill restores them, too
//! disks          a modelled disk is created for each run, as for `iowhy run`; the one thing is switched on the disk
//!                that is asked for, and nothing is left to be restored
//! time           for an operation, by the run's own clock; nothing is traced, so nothing of it is the trace's
//! interval       Student's, of the difference of the means of the switched runs and the fast ones (Welch)
//! ```
//! Everything that an explanation compares is measured again: runs of another hour are not set against those of now. A
//! write cache is not switched, since data could be lost by that. A thread stands in for foreign processes with pages:
//! it reads the files as often as the traces of the slow side show, from before a run until its end; the original
//! process may be gone by now.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use iowhy_live::disk::{DiskError, ELEVATOR, Spec};
use iowhy_live::ledger::{Guard, Ledger};
use iowhy_live::plan::Cache;
use iowhy_live::{cache, signal};
use iowhy_stack::job::Workload;
use iowhy_stack::units::PAGE_BYTES;

use super::gathered::Gathered;
use super::recipe::Recipe;
use crate::modelled_disk;
use crate::on_kernel::Live;
use crate::run::live::OnKernel;
use crate::run::own_disk::on_disk;
use crate::run::{self, Experiment, Shape};
use iowhy_fio::World;
use iowhy_text::diagnose::Problems;
use iowhy_why::delta::Delta;
use iowhy_why::digest::Digest;
use iowhy_why::outcome::{Counterfactual, Times, recalibrate};
use iowhy_why::rules::Switch;
use iowhy_why::{Basis, Explanation};

impl Recipe {
    /// The job. Files of a run that had a folder of its own are in `scratch`.
    fn parse(&self, scratch: &Path) -> Result<Kind, String> {
        let mut words = self.words.clone();
        words.extend(["--on".to_owned(), "live".to_owned()]);
        words.extend(self.modelled.iter().map(|disk| format!("--disk={disk}")));
        if !words.iter().any(|word| word.starts_with("--dir=")) {
            words.push(format!("--dir={}", scratch.display()));
        }
        let load = |name: &str| std::fs::read_to_string(self.folder.join(name)).map_err(|error| error.to_string());
        let world = World { load: &load, variable: &|name| std::env::var(name).ok(), ..World::empty() };
        let request = run::asked(&words, &world).map_err(|problems| problems.render().trim().to_owned())?;
        let variant = request.variants.first();
        let Some((variant, of)) = variant.and_then(|variant| Some((variant, variant.backend::<OnKernel>()?))) else {
            return Err("another program makes these runs".to_owned());
        };
        let OnKernel { plan, modelled } = of.clone();
        Ok(Kind { plan, shape: variant.shape.clone(), settings: Vec::new(), modelled, others: None })
    }
}

/// A switched setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A setting of the disk's queue.
    Queue {
        path: PathBuf,
        file: &'static str,
        value: String,
    },
    /// Words for another modelled disk, and in what it is another.
    Disk {
        words: String,
        what: String,
    },
    /// Pages of the files are dropped before each run.
    DropPages,
    /// Each thread has descriptors of its own.
    OwnDescriptors,
    NoAdvice,
    /// The fast side's job.
    OtherJob,
}

impl Change {
    pub(super) fn words(&self) -> String {
        match self {
            Change::Queue { file, value, .. } => format!("{file}={value}"),
            Change::Disk { what, .. } => what.clone(),
            Change::DropPages => "the files' pages dropped before each run".to_owned(),
            Change::OwnDescriptors => "a descriptor for each thread".to_owned(),
            Change::NoAdvice => "no advice on the files".to_owned(),
            Change::OtherJob => "the other side's job".to_owned(),
        }
    }
}

/// The modelled disk of the slow side with some of its keys as the fast side has them; nothing if that changes nothing.
fn as_fast(slow: &str, fast: &str, picks: impl Fn(&str) -> bool) -> Option<Change> {
    let picked = |disk: &str| -> Vec<String> {
        let settings = disk.split(',').skip(1);
        settings.filter(|word| word.split_once('=').is_some_and(|(key, _)| picks(key))).map(str::to_owned).collect()
    };
    let (own, other) = (picked(slow), picked(fast));
    let mut differs: Vec<&str> = other.iter().filter(|word| !own.contains(word)).map(String::as_str).collect();
    // Another scheduler comes with its own tunables.
    if differs.iter().any(|word| word.starts_with("scheduler=")) {
        differs.retain(|word| !word.starts_with(ELEVATOR));
    }
    let what = differs.join(",");
    (!what.is_empty()).then(|| {
        let kept = slow.split(',').filter(|word| !own.iter().any(|known| known == word));
        Change::Disk { words: kept.chain(other.iter().map(String::as_str)).collect::<Vec<_>>().join(","), what }
    })
}

/// The form of a rule's switch for a modelled disk.
fn change_of_disk(switch: Switch, slow: &str, fast: &str) -> Option<Change> {
    let of_scheduler = |key: &str| key == "nr_requests" || key.starts_with(ELEVATOR);
    match switch {
        // Another scheduler has other tunables.
        Switch::Queue("scheduler") | Switch::Other("elevator") => (modelled_disk::setting(slow, "scheduler")
            != modelled_disk::setting(fast, "scheduler"))
        .then(|| as_fast(slow, fast, |key| key == "scheduler" || of_scheduler(key)))
        .flatten(),
        Switch::Queue(wanted) | Switch::Other(wanted) => {
            let other = modelled_disk::setting(fast, wanted)?;
            // The scheduler of the slow side may have no such tunable.
            modelled_disk::setting(slow, wanted).filter(|own| *own != other)?;
            as_fast(slow, fast, |key| key == wanted)
        }
        Switch::QueueTo(wanted, value) => {
            modelled_disk::setting(slow, wanted).filter(|own| *own != value)?;
            as_fast(slow, &format!("_,{wanted}={value}"), |key| key == wanted)
        }
        Switch::OtherKind(ELEVATOR) => {
            let same = modelled_disk::setting(slow, "scheduler") == modelled_disk::setting(fast, "scheduler");
            same.then(|| as_fast(slow, fast, |key| key.starts_with(ELEVATOR))).flatten()
        }
        _ => None,
    }
}

/// The form of a rule's switches for the slow side; the first that applies.
pub(super) fn change(switches: &[Switch], slow: &Recipe, fast: &Recipe) -> Option<Change> {
    let queue = |file: &'static str, value: &str| {
        // The value that it has now proves nothing, and one that is not kept cannot be put back.
        let (path, own) = (slow.path(file)?, slow.setting(file)?);
        (own != value).then(|| Change::Queue { path, file, value: value.to_owned() })
    };
    let disks = slow.modelled.as_deref().zip(fast.modelled.as_deref());
    switches.iter().find_map(|switch| match *switch {
        Switch::DropPages => Some(Change::DropPages),
        Switch::OwnDescriptors => Some(Change::OwnDescriptors),
        Switch::NoAdvice => Some(Change::NoAdvice),
        Switch::OtherJob => (slow.words != fast.words).then_some(Change::OtherJob),
        _ if disks.is_some() => disks.and_then(|(slow, fast)| change_of_disk(*switch, slow, fast)),
        Switch::Queue(file) => queue(file, fast.setting(file)?),
        Switch::QueueTo(file, value) => queue(file, value),
        // What only a simulated stack has.
        Switch::Patch(_)
        | Switch::Key(..)
        | Switch::Other(_)
        | Switch::OtherKind(_)
        | Switch::OtherDevice
        | Switch::Word(_) => None,
    })
}

/// One kind of run.
#[derive(Clone)]
struct Kind {
    plan: iowhy_live::Plan,
    shape: Shape,
    settings: Vec<(PathBuf, String)>,
    /// The disk that is made for each run.
    modelled: Option<Spec>,
    /// Another process keeps pages of the files in the cache.
    others: Option<Others>,
}

/// Why the experiment came to no end.
#[derive(Debug)]
enum Failed {
    Signal,
    Because(String),
}

impl From<DiskError> for Failed {
    fn from(error: DiskError) -> Failed {
        Failed::Because(error.to_string())
    }
}

impl Kind {
    fn of(recipe: &Recipe, scratch: &Path) -> Result<Kind, String> {
        let settings = recipe.queue.iter().filter_map(|(file, value)| Some((recipe.path(file)?, value.clone())));
        Ok(Kind { settings: settings.collect(), ..recipe.parse(scratch)? })
    }

    /// Switches one thing; false if that changes nothing.
    fn switch(&mut self, change: &Change, fast: &Kind) -> bool {
        match change {
            Change::Queue { path, value, .. } => {
                let found = self.settings.iter_mut().find(|(known, _)| known == path);
                found.is_some_and(|(_, own)| std::mem::replace(own, value.clone()) != *value)
            }
            Change::Disk { words, .. } => {
                let mut problems = Problems::default();
                let (Some(own), Some(wanted)) =
                    (&self.modelled, modelled_disk::parse_disk("switched", words, &mut problems))
                else {
                    return false;
                };
                let spec = Spec { name: own.name.clone(), filesystem: own.filesystem.clone(), ..wanted.spec };
                self.modelled.replace(spec.clone()).is_none_or(|own| own != spec)
            }
            Change::DropPages => {
                let others = self.others.take();
                std::mem::replace(&mut self.plan.cache, Cache::Cold) != Cache::Cold || others.is_some()
            }
            Change::OwnDescriptors => {
                let Workload::Threads { threads, .. } = &mut self.plan.job.workload else { return false };
                let mut sets: Vec<u32> = threads.iter().map(|thread| thread.spec.descriptors).collect();
                sets.sort_unstable();
                sets.dedup();
                let shared = sets.len() < threads.len();
                for (nr, thread) in (0..).zip(threads.iter_mut()) {
                    thread.spec.descriptors = nr;
                }
                shared
            }
            Change::NoAdvice => {
                let Workload::Threads { threads, .. } = &mut self.plan.job.workload else { return false };
                let mut any = false;
                for thread in threads.iter_mut() {
                    any |= thread.spec.advice.take().is_some();
                }
                any
            }
            Change::OtherJob => {
                let differs = format!("{:?}", self.plan.job) != format!("{:?}", fast.plan.job);
                (self.plan, self.shape) = (fast.plan.clone(), fast.shape.clone());
                // The files of one may lie in a file system, and the other may be of the whole disk.
                if let (Some(own), Some(other)) = (&mut self.modelled, &fast.modelled) {
                    own.filesystem.clone_from(&other.filesystem);
                }
                differs
            }
        }
    }

    /// Makes a run; the time for an operation, ns.
    fn make(&self, ledger: &Ledger, seed: u64) -> Result<f64, Failed> {
        let because = |error: &dyn std::fmt::Display| Failed::Because(error.to_string());
        let mut guards: Vec<Guard> = Vec::new();
        let made = (|| {
            for (path, value) in &self.settings {
                guards.extend(ledger.set(path, value).map_err(|error| because(&error))?);
            }
            let mut plan = self.plan.clone();
            self.shape.seed(&mut plan.job, seed);
            let paths: Vec<PathBuf> = plan.files.iter().map(|file| file.path.clone()).collect();
            let live = on_disk(self.modelled.as_ref(), seed, &paths, |progress| {
                let made = match self.others {
                    Some(others) => others.beside(&self.plan, || Live::make(plan, progress)),
                    None => Live::make(plan, progress),
                };
                made.map_err(|error| because(&error))
            })?;
            if live.outcome.interrupted || signal::raised() {
                return Err(Failed::Signal);
            }
            if live.failed() {
                return Err(Failed::Because("a call of a run failed".to_owned()));
            }
            let counts = &live.outcome.counts;
            let data = counts.reads + counts.writes;
            let operations = if data > 0 { data } else { counts.syncs };
            Ok(live.outcome.elapsed.0 as f64 / operations.max(1) as f64)
        })();
        // The latest first, and that it could not be restored is worse than whatever the run says.
        while let Some(guard) = guards.pop() {
            guard.undo().map_err(|error| because(&error))?;
        }
        made
    }
}

/// Another process that reads the files.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Others {
    /// Pages put into the cache in the course of a run.
    pages: u64,
    /// Time between two of them.
    pace: Duration,
}

/// Least pages to read: processes before the trace began have left some.
const FEW: u64 = 64;
/// Pages of one read of a process that reads everything.
const SWEPT: u64 = 256;

/// Says at its end that there is nothing more to do, even when a panic ends it.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Others {
    /// As the runs of this side had them; nothing without others.
    fn of(side: &Gathered) -> Option<Others> {
        let runs = &side.side.runs;
        if !runs.iter().any(|run| run.foreign.pages > 0 || run.cache.direct_over_cached > 0) {
            return None;
        }
        let pages = runs.iter().map(|run| run.foreign.pages).sum::<u64>() / runs.len() as u64;
        let elapsed = runs.iter().map(|run| run.elapsed.0).sum::<u64>() / runs.len() as u64;
        Some(Others { pages: pages.max(FEW), pace: Duration::from_nanos(elapsed / pages.max(FEW)) })
    }

    /// Does something while a thread reads the files of the plan. It has been round once before that begins.
    fn beside<T>(self, plan: &iowhy_live::Plan, work: impl FnOnce() -> T) -> T {
        let files: Vec<(File, u64)> = plan
            .files
            .iter()
            .zip(plan.job.workload.files())
            // A file that is made by the run only cannot have been read by others.
            .filter_map(|(file, spec)| Some((File::open(&file.path).ok()?, spec.bytes)))
            .collect();
        if files.is_empty() {
            return work();
        }
        let all: u64 = files.iter().map(|(_, bytes)| bytes.div_ceil(PAGE_BYTES)).sum();
        let sweeps = self.pages >= all;
        let each = self.pages.div_ceil(files.len() as u64);
        let done = AtomicBool::new(false);
        let round = |paced: bool| {
            let mut due = Instant::now();
            let go_on = |nr_pages: u64, due: &mut Instant| {
                *due += self.pace * u32::try_from(nr_pages).unwrap_or(u32::MAX);
                if let Some(left) = due.checked_duration_since(Instant::now()).filter(|_| paced) {
                    std::thread::sleep(left);
                }
                !done.load(Ordering::Relaxed) && !signal::raised()
            };
            let mut buffer = vec![0; (SWEPT * PAGE_BYTES) as usize];
            for (file, bytes) in &files {
                if !sweeps {
                    let place = |nr: u64| nr * (bytes / each / PAGE_BYTES).max(1) * PAGE_BYTES;
                    for from in (0..each).map(place).take_while(|from| from < bytes) {
                        let _ = cache::touch(file, from);
                        if !go_on(1, &mut due) {
                            return;
                        }
                    }
                    continue;
                }
                for from in (0..*bytes).step_by(buffer.len()) {
                    let _ = file.read_at(&mut buffer, from);
                    if !go_on(SWEPT, &mut due) {
                        return;
                    }
                }
            }
        };
        round(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) && !signal::raised() {
                    round(true);
                }
            });
            let _ended = Ended(&done);
            work()
        })
    }
}

/// Blocks: as many as the slow side has runs, within these.
const BLOCKS: (usize, usize) = (8, 20);
/// Findings that stand after their experiments, or have none, until no others are tried.
const TRIED: usize = 3;

/// Times for an operation of the kinds of runs, by kind.
fn blocks(kinds: &[Kind; 3], ledger: &Ledger, nr_blocks: usize) -> Result<[Vec<f64>; 3], Failed> {
    let mut times = [const { Vec::new() }; 3];
    let blocks = nr_blocks as u64;
    let experiment = Experiment { name: "order of live experiments", seed: 1, arms: kinds.len(), warm_up: 0, blocks };
    let ended = experiment.run(
        &mut times,
        |_, _| false,
        |times, slot| match kinds[slot.variant].make(ledger, slot.seed) {
            Ok(time) => {
                times[slot.variant].push(time);
                ControlFlow::Continue(())
            }
            Err(failed) => ControlFlow::Break(failed),
        },
    );
    match ended {
        ControlFlow::Break(failed) => Err(failed),
        ControlFlow::Continue(()) => Ok(times),
    }
}

/// Makes the experiments of the best findings of two live sides, and reports those that cannot be made.
pub fn prove(explanation: &mut Explanation, sides: &[Gathered; 2]) {
    let [a, b] = sides;
    if !a.side.live && !b.side.live || explanation.findings.is_empty() {
        return;
    }
    let delta = Delta::new(&a.side, &b.side);
    let a_is_slow = delta.a_is_slow;
    let (slow, fast) = if a_is_slow { (a, b) } else { (b, a) };
    let (Some(slow_recipe), Some(fast_recipe)) = (&slow.recipe, &fast.recipe) else {
        let which = if slow.recipe.is_none() { slow } else { fast };
        explanation.warnings.push(format!(
            "not tested: nothing tells how `{}` is made again on the running kernel (a blind run, a trace in a file, a \
             simulated run, or runs of different settings)",
            which.side.label
        ));
        return;
    };
    // The slow side's time over the fast one's, as it was.
    let explained = delta.of(|digest| delta.time_of(digest)).ratio();
    // Runs are timed by the operation, and compared as the explanation compares them.
    let weight = |side: &iowhy_why::Side| {
        let mean = |of: &dyn Fn(&Digest) -> f64| side.runs.iter().map(of).sum::<f64>() / side.runs.len().max(1) as f64;
        let operations = mean(&|run| run.operations() as f64).max(1.0);
        match delta.basis {
            Basis::Bytes => operations / mean(&|run| (run.workload.bytes[0] + run.workload.bytes[1]) as f64).max(1.0),
            Basis::Run => operations,
            Basis::Call | Basis::Request | Basis::Nothing => 1.0,
        }
    };
    let [of_fast, of_slow] = [weight(&fast.side), weight(&slow.side)];
    let others = Others::of(slow);
    let _signals = signal::Guard::take();
    let mut warnings = Vec::new();
    let mut experiments = || -> Result<(), String> {
        let (ledger, _) = Ledger::open().map_err(|error| error.to_string())?;
        let scratch = slow_recipe.folder.join(format!("iowhy-prove-{}", std::process::id()));
        let _scratch = ledger.create_scratch_directory(&scratch).map_err(|error| error.to_string())?;
        let slow_kind = Kind { others, ..Kind::of(slow_recipe, &scratch)? };
        let fast_kind = Kind::of(fast_recipe, &scratch)?;
        let mut stand = 0;
        for finding in &mut explanation.findings {
            let name = finding.rule.name;
            let mut kinds = [fast_kind.clone(), slow_kind.clone(), slow_kind.clone()];
            let mut changes = finding.rule.switches.iter().filter_map(|switch| {
                let change = change(&[*switch], slow_recipe, fast_recipe)?;
                kinds[2] = slow_kind.clone();
                kinds[2].switch(&change, &fast_kind).then(|| (change, kinds.clone()))
            });
            let nr_blocks = slow.side.runs.len().clamp(BLOCKS.0, BLOCKS.1);
            let mut failed = None;
            finding.try_each(std::iter::from_fn(|| {
                let (change, kinds) = changes.next()?;
                let mut made = blocks(&kinds, &ledger, nr_blocks).map_err(|error| failed = Some(error)).ok()?;
                let of_switched = if change == Change::OtherJob { of_fast } else { of_slow };
                for (times, weight) in made.iter_mut().zip([of_fast, of_slow, of_switched]) {
                    times.iter_mut().for_each(|time| *time *= weight);
                }
                let [fast, slow_now, switched] = &made;
                let times = Times { fast, slow: slow_now, switched };
                Some(Counterfactual::of((change.words(), &slow.side.label), times, a_is_slow, Some(explained)))
            }));
            match failed {
                Some(Failed::Signal) => {
                    return Err("a signal ended the experiments; settings are restored".to_owned());
                }
                Some(Failed::Because(reason)) => warnings.push(format!("{name} is not tested: {reason}")),
                None if finding.counterfactual.is_none() => warnings.push(format!(
                    "{name} is not tested: nothing that it depends on can be switched on the running kernel between \
                     these runs"
                )),
                None => {}
            }
            stand += usize::from(!finding.is_refuted());
            if stand == TRIED {
                break;
            }
        }
        Ok(())
    };
    if let Err(reason) = experiments() {
        warnings.push(format!("not tested: {reason}"));
    }
    explanation.warnings.append(&mut warnings);
    recalibrate(explanation);
}
