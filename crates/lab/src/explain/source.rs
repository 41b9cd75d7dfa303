//! Where the two sides of an explanation come from.
//!
//! ```text
//! INCIDENT/ROW    a row of a published incident: it is simulated, with its scenario's repetitions, and watched
//! INCIDENT        its two rows: as it was before, and broken
//! sim:KERNEL..    the job behind `--` at this place: simulated and watched
//! FILE            a trace, in any form that `iowhy trace` reads; several with commas between them
//! anything else   a label, a tag or ids in the store: runs that were kept with `--trace`
//! ```
//! One set of runs alone stands for its fast and its slow mode. A request for runs of the store alone gets them, even
//! if other things have their name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use iowhy_stack::event::{Event, EventSink, What};
use iowhy_stack::outcome::{Plan, RunError};
use iowhy_stack::readahead::Advice;
use iowhy_stack::sim;
use iowhy_stack::trace::{Dev, Inode, Record, Seen as TraceSeen, Trace};
use iowhy_stack::units::{PAGE_BYTES, SECTOR_BYTES};
use rayon::prelude::*;

use super::gathered::{EventSource, Gathered, PicturedRun};
use super::modes;
use super::recipe::Recipe;
use super::tally::Tally;
use crate::incident::command::{plan_of_command, repetition};
use crate::incident::{self, IncidentError};
use crate::store::{Kind, Store, StoreError, StoredRun};
use iowhy_text::diagnose::{Problem, Problems, Span};
use iowhy_trace as trace;
use iowhy_trace::advice::advised;
use iowhy_trace::join::{CallRecord, Joined, Who, beside, join};
use iowhy_trace::settings::Settings;
use iowhy_why::Side;
use iowhy_why::digest::{Digest, Observer};
use iowhy_why::digest::{discards, in_place, mutex, partial, piped, scattered, stacks, synced, tags, wall};
use iowhy_why::rules::Need;

/// Settings of an explanation.
#[derive(Clone, Debug, Default)]
pub struct ExplainRequest {
    /// Base and candidate, or an incident alone, or a set of runs that may have modes.
    pub names: Vec<String>,
    /// The job for places.
    pub job: Vec<String>,
    /// The disk for places.
    pub disk: Option<String>,
    /// Runs of each side that is simulated; nothing for the scenario's number, or 5.
    pub runs: Option<u32>,
    /// A report will be made of them ([`Gathered::seen`]).
    pub report: bool,
    /// All names are of the store.
    pub stored: bool,
}

/// Simulated runs of a side unless another number is asked for.
const RUNS: u32 = 5;

/// Events of all openings of a side together, and of one.
const OPENINGS: usize = 256_000;
const OPENING: usize = 8_000;

/// Makes `runs` repetitions of a plan, from the repetition `first` on, and watches them; on as many threads as there
/// are CPUs, which changes nothing.
///
/// # Errors
/// The simulator's error.
pub fn simulate(
    label: &str,
    plan: &Plan,
    (first, runs): (u32, u32),
    done: &(dyn Fn() + Sync),
) -> Result<Side, RunError> {
    let (runs, _) = watched(plan, (first, runs), Extra::Nothing, done)?;
    Ok(Side { label: label.to_owned(), runs, ..Side::default() })
}

/// The data needed of a run besides its digest.
#[derive(Copy, Clone, Debug)]
enum Extra {
    /// It is one of many that prove something.
    Nothing,
    /// This number of its first events.
    Opening(usize),
    /// A tally, and where its events can be had.
    Report,
}

impl Extra {
    /// For a side of `runs` runs.
    fn of(report: bool, runs: usize) -> Extra {
        if report { Extra::Report } else { Extra::Opening((OPENINGS / runs.max(1)).min(OPENING)) }
    }
}

/// Listens to a run.
struct Listener {
    beside: Extra,
    observer: Observer,
    tally: Tally,
    opening: Vec<Event>,
    /// A call has begun.
    begun: bool,
    /// Some events exceeded the room.
    cut: bool,
}

impl EventSink for Listener {
    fn event(&mut self, event: &Event) {
        self.observer.event(event);
        match self.beside {
            Extra::Nothing => {}
            Extra::Report => self.tally.event(event),
            Extra::Opening(_) if self.cut => {}
            Extra::Opening(most) => {
                self.begun |= matches!(event.what, What::CallStart { .. });
                if self.opening.len() >= most {
                    self.cut = self.begun;
                    // What goes on long before the first call is of no use.
                    if !self.cut {
                        self.opening.clear();
                    }
                }
                if !self.cut {
                    self.opening.push(*event);
                }
            }
        }
    }
}

/// Hands the events of a run to its listeners, and yields their results.
fn listen<E>(
    beside: Extra,
    seed: u64,
    replay: impl FnOnce(&mut Listener) -> Result<EventSource, E>,
) -> Result<(Digest, Option<PicturedRun>), E> {
    let mut listener = Listener {
        beside,
        observer: Observer::default(),
        tally: Tally::default(),
        opening: Vec::new(),
        begun: false,
        cut: false,
    };
    let again = replay(&mut listener)?;
    let Listener { observer, tally, opening, cut, .. } = listener;
    let again = match beside {
        Extra::Nothing => None,
        Extra::Opening(_) => Some(EventSource::Opening { events: Arc::new(opening), whole: !cut }),
        Extra::Report => Some(again),
    };
    Ok((observer.finish(), again.map(|again| PicturedRun { seed, again, tally, files: Vec::new() })))
}

/// Simulates repetitions of a plan.
fn watched(
    plan: &Plan,
    (first, runs): (u32, u32),
    beside: Extra,
    done: &(dyn Fn() + Sync),
) -> Result<(Vec<Digest>, Vec<PicturedRun>), RunError> {
    let one = |nr: u32| {
        let plan = repetition(plan, first + nr);
        let heard = listen(beside, plan.job.seed, |listener| {
            sim::run_with(&plan, listener).map(|_| EventSource::Plan(Box::new(plan.clone())))
        });
        done();
        heard
    };
    let runs = (0..runs).into_par_iter().map(one).collect::<Result<Vec<_>, RunError>>()?;
    let (digests, seen): (Vec<Digest>, Vec<Option<PicturedRun>>) = runs.into_iter().unzip();
    Ok((digests, seen.into_iter().flatten().collect()))
}

/// A side that is simulated, before it is.
#[derive(Clone, Debug)]
pub struct Simulated {
    pub label: String,
    /// Words after `iowhy` that make such a run.
    pub command: String,
    pub plan: Plan,
    /// How often.
    pub runs: u32,
    /// Assumptions of its scenario, if it is of an incident.
    pub assumed: Vec<String>,
}

impl Simulated {
    /// Makes the runs; `report` if a report will be made of them.
    ///
    /// # Errors
    /// The simulator's error.
    pub fn make(self, report: bool, done: &(dyn Fn() + Sync)) -> Result<Gathered, RunError> {
        let beside = Extra::of(report, self.runs as usize);
        let (runs, seen) = watched(&self.plan, (0, self.runs), beside, done)?;
        let side = Side { label: self.label, runs, ..Side::default() };
        Ok(Gathered { side, command: Some(self.command), seen, assumed: self.assumed, ..Gathered::default() })
    }
}

enum Origin {
    Simulated(Box<Simulated>),
    Read(Box<Gathered>),
}

fn of_incident(error: IncidentError) -> Problem {
    match error {
        IncidentError::Unknown(problem) => problem,
        other => Problem::error(other.to_string()),
    }
}

fn row(id: &str, row: &str, runs: Option<u32>) -> Result<Origin, Problem> {
    let found = incident::row(id, row).map_err(of_incident)?;
    Ok(Origin::Simulated(Box::new(Simulated {
        label: row.to_owned(),
        command: found.command,
        plan: found.plan,
        runs: runs.unwrap_or(found.repetitions).max(1),
        assumed: found.assumed,
    })))
}

fn place(name: &str, asked: &ExplainRequest) -> Result<Origin, Problems> {
    let mut words = asked.job.clone();
    if words.is_empty() {
        let problem = Problem::error(format!("`{name}` is a place, and needs a job to run there"));
        return Err(Problems { list: vec![problem.help("iowhy explain sim:A sim:B -- dd bs=1M count=512")] });
    }
    if words[0] != "sysbench" && words[0] != "run" {
        words.insert(0, "run".to_owned());
    }
    words.extend(["--on".to_owned(), name.to_owned()]);
    words.extend(asked.disk.iter().flat_map(|disk| ["--disk".to_owned(), disk.clone()]));
    let plan = plan_of_command(&words)?;
    Ok(Origin::Simulated(Box::new(Simulated {
        label: name.to_owned(),
        command: words.join(" "),
        plan,
        runs: asked.runs.unwrap_or(RUNS).max(1),
        assumed: Vec::new(),
    })))
}

/// Part of the bytes of the device that the workload uses most, from which on another one is used, too: programs and
/// their libraries lie somewhere as well.
const USED: u64 = 5;
/// The major number of loop devices, and bytes on them from which on they are what the workload uses.
const LOOP: u32 = 7;
const LEAST_ON_LOOP: u64 = 1 << 20;

/// Leaves bios and requests of the devices that the workload uses: work elsewhere, and work of a loop device below,
/// does not matter. Known if the trace has the tasks of the workload; all is kept if they use none.
pub(crate) fn of_the_workload(trace: &mut Trace, who: &Who) {
    let Some(tree) = beside::tree(trace, who) else { return };
    let mut bytes: BTreeMap<Dev, u64> = BTreeMap::new();
    let mut below: BTreeMap<Dev, Dev> = BTreeMap::new();
    for record in &trace.records {
        match &record.seen {
            TraceSeen::Remap { extent, from, .. } => _ = below.insert(*from, extent.dev),
            _ if !tree.contains(&record.pid) => {}
            TraceSeen::Queue(extent) => *bytes.entry(extent.dev).or_default() += u64::from(extent.bytes),
            TraceSeen::PageAdd { file, order, .. } if file.dev.major() > 0 => {
                *bytes.entry(file.dev).or_default() += PAGE_BYTES << (*order).min(31);
            }
            _ => {}
        }
    }
    // A loop device's own worker reads and writes the device below: that is the workload's again, seen twice.
    let on_loop: u64 = bytes.iter().filter(|(dev, _)| dev.major() == LOOP).map(|(_, n)| *n).sum();
    if on_loop >= LEAST_ON_LOOP {
        bytes.retain(|dev, _| dev.major() == LOOP);
    }
    let most = bytes.values().copied().max().unwrap_or(0);
    let mut used: BTreeSet<Dev> = bytes.iter().filter(|(_, n)| **n * USED >= most).map(|(dev, _)| *dev).collect();
    // A partition's requests are the disk's.
    used.extend(used.clone().iter().filter_map(|dev| below.get(dev).copied()));
    if most > 0 {
        // So are libraries that lie elsewhere; pages of devices themselves are in a file system without a device.
        let there = |file: Inode| file.dev.major() == 0 || used.contains(&file.dev) || below.contains_key(&file.dev);
        trace.records.retain(|record| {
            record.seen.extent().is_none_or(|extent| used.contains(&extent.dev)) && record.seen.file().is_none_or(there)
        });
    }
}

/// Kinds of records that a trace does not have. A recording of our own has all events of its level, whether any
/// happened or not; of a trace of another program only the events present are known.
fn lacking(trace: &Trace, settings: &Settings) -> Vec<Need> {
    let any = |is: &dyn Fn(&Record) -> bool| trace.records.iter().any(is);
    let states = any(&|record| matches!(record.seen, TraceSeen::Switch { .. }));
    let calls = any(&|record| matches!(record.seen, TraceSeen::CallStart { .. }));
    let pages = any(&|record| matches!(record.seen, TraceSeen::PageAdd { .. } | TraceSeen::GetPages { .. }));
    let bios = any(&|record| matches!(record.seen, TraceSeen::Queue(_)));
    let requests = any(&|record| matches!(record.seen, TraceSeen::Issue(_)));
    let ours = !settings.roots.is_empty() && states;
    let has = |need: &Need| match need {
        Need::Calls => calls,
        Need::States => states,
        Need::Pages | Need::Windows => pages || ours,
        Need::Bios => bios || ours,
        Need::Requests => requests || ours,
    };
    Need::ALL.into_iter().filter(|need| !has(need)).collect()
}

/// A recorded trace as a run of a side.
fn recorded(mut read: Trace, seed: u64, beside: Extra, side: &mut Side) -> Option<PicturedRun> {
    followed(&mut read, &Who::default(), seed, beside, side).1
}

/// A recording as the only run of a side, with its calls and requests; the trace loses what the workload does not use.
pub(crate) fn alone(read: &mut Trace, who: &Who) -> (Side, Joined) {
    let mut side = Side::default();
    let (joined, _) = followed(read, who, 0, Extra::Nothing, &mut side);
    (side, joined)
}

fn followed(read: &mut Trace, who: &Who, seed: u64, beside: Extra, side: &mut Side) -> (Joined, Option<PicturedRun>) {
    of_the_workload(read, who);
    let mut joined = join(read, who);
    let events = Arc::new(std::mem::take(&mut joined.events));
    let Ok((mut digest, seen)) = listen(beside, seed, |listener| {
        events.iter().for_each(|event| listener.event(event));
        Ok::<_, std::convert::Infallible>(EventSource::Events(events.clone()))
    });
    let files = || joined.files.iter().map(|file| format!("inode {}", file.ino)).collect();
    let settings = Settings::of(read);
    digest.by_the_clock(wall::of(read, &joined, &settings), settings.command);
    for need in lacking(read, &settings) {
        if !side.lacks.contains(&need) {
            side.lacks.push(need);
        }
    }
    side.settings.push(settings);
    digest.foreign.processes_wrote = joined.others_wrote;
    digest.foreign.dropped = joined.others_dropped;
    (digest.foreign.discards, digest.foreign.discarding) = discards::of(&joined);
    digest.workload.read_first = partial::of(&joined);
    [digest.sync.in_place, digest.sync.grown] = in_place::of(&joined);
    let copied = joined.calls.iter().filter(|call| call.copies()).map(CallRecord::moved).sum::<u64>();
    digest.workload.bytes[1] += copied.min(digest.commands.sectors[1] * SECTOR_BYTES);
    digest.workload.piped = piped::of(&joined);
    digest.workload.scattered = scattered::of(&joined);
    digest.turns.handed = mutex::of(read, &joined);
    digest.stacks = stacks::of(read, &joined);
    digest.workload.synchronous = synced::of(&joined);
    digest.commands.late_tags = tags::of(&joined);
    let asks = |record: &&Record| matches!(advised(&record.seen), Some((_, Advice::WillNeed { .. })));
    digest.windows.asked = read.records.iter().filter(asks).count() as u64;
    let others = joined.putters.iter().filter(|putter| !putter.own);
    digest.foreign.names = others.map(|putter| (putter.name.clone(), putter.nr_pages)).collect();
    side.lost += read.lost;
    side.inferred_windows |= joined.inferred_windows;
    side.live = true;
    side.runs.push(digest);
    let seen = seen.map(|seen| PicturedRun { files: files(), ..seen });
    (joined, seen)
}

/// Traces in files: each is a run.
fn traces(name: &str, report: bool, problems: &mut Problems) -> Option<Gathered> {
    let mut side = Side { label: name.to_owned(), ..Side::default() };
    let mut all_seen = Vec::new();
    for (nr, file) in name.split(',').enumerate() {
        let read = trace::load(Path::new(file), problems)?;
        let beside = Extra::of(report, name.split(',').count());
        all_seen.extend(recorded(read, nr as u64, beside, &mut side));
    }
    Some(Gathered { side, seen: all_seen, ..Gathered::default() })
}

/// Runs in the store.
fn stored(name: &str, report: bool, store: &Store) -> Result<Gathered, Problem> {
    let wrong = |error: StoreError| Problem::error(error.to_string()).at(Span::whole(name));
    let runs = store.find(name).map_err(wrong)?;
    let mut side = Side { label: name.to_owned(), ..Side::default() };
    let mut without = 0;
    let (mut resident, mut all_seen) = (Vec::new(), Vec::new());
    for run in &runs {
        let Some(file) = run.files.iter().find(|file| file.kind == Kind::Events) else {
            without += 1;
            continue;
        };
        if run.holds_trace() {
            let read = store.trace(&file.hash).map_err(wrong)?;
            all_seen.extend(recorded(read, run.seed, Extra::of(report, runs.len()), &mut side));
            continue;
        }
        let again = EventSource::Stored { directory: store.directory().to_owned(), hash: file.hash.clone() };
        let replay = |listener: &mut Listener| store.replay(&file.hash, listener).map(|_| again);
        let (mut digest, seen) = listen(Extra::of(report, runs.len()), run.seed, replay).map_err(wrong)?;
        all_seen.extend(seen);
        let layers = run.layers.as_ref().filter(|_| !run.simulated);
        let foreign = layers.and_then(|layers| serde_json::from_value(layers.get("foreign")?.clone()).ok());
        digest.foreign.names = foreign.unwrap_or_default();
        let trace = layers.and_then(|layers| layers.get("trace"));
        side.lost += trace.and_then(|trace| trace.get("lost")?.as_u64()).unwrap_or(0);
        side.inferred_windows |= trace.and_then(|trace| trace.get("inferred_windows")?.as_bool()).unwrap_or(false);
        if let Some(files) = layers.and_then(|layers| layers.get("files")?.as_array()) {
            let pages = |file: &serde_json::Value| file.get("resident_pages_before")?.as_u64();
            resident.push(files.iter().filter_map(pages).sum());
        }
        side.runs.push(digest);
        side.live |= !run.simulated;
    }
    if side.runs.is_empty() {
        let text = format!("`{name}`: {without} runs were kept without events, so their reasons are unknown");
        return Err(Problem::error(text).at(Span::whole(name)).help("keep them with `--trace` (as root on live runs)"));
    }
    let group = store.group(name).map_err(wrong)?;
    let asked = runs.iter().map(StoredRun::asked);
    let made = asked.map(|(asked, policies)| (asked.command.clone(), Recipe::of(asked, &policies.unwrap_or_default())));
    // Runs of different commands have none in common.
    let (mut commands, mut recipes): (Vec<_>, Vec<_>) = made.unzip();
    commands.dedup();
    recipes.dedup();
    let command = if commands.len() == 1 { commands.pop().flatten() } else { None };
    let command = command.filter(|command| runs.first().is_none_or(|run| still_makes(command, run)));
    let recipe = if recipes.len() == 1 { recipes.pop().flatten() } else { None };
    let policies = runs.first().and_then(|run| run.asked().1).unwrap_or_default();
    let elevator = &policies["elevator"];
    side.scheduler = elevator.as_str().or_else(|| elevator["name"].as_str()).map(str::to_owned);
    let row = runs.into_iter().next().map(Box::new);
    let assumed = Vec::new();
    Ok(Gathered { side, command, recipe, group: Some(group), resident, seen: all_seen, row, assumed })
}

/// The mistake in a name that is a path by its look, and of which no file is there.
fn missing_file(name: &str) -> Option<Problem> {
    let is_path = |part: &str| {
        let of_trace = |format: &trace::Format| format.extensions.iter().any(|end| part.ends_with(&format!(".{end}")));
        part.starts_with(['/', '.']) || trace::FORMATS.iter().any(|format| of_trace(format))
    };
    let missing = name.split(',').find(|part| is_path(part) && !Path::new(part).exists())?;
    Some(Problem::error(format!("no such file: `{missing}`")).at(Span::whole(name)))
}

/// Whether a command stands for the job of a kept run: a job file may have changed since.
fn still_makes(command: &str, run: &StoredRun) -> bool {
    fn without_seeds(job: &mut serde_json::Value) {
        match job {
            serde_json::Value::Object(map) => {
                map.retain(|key, _| !key.contains("seed"));
                map.values_mut().for_each(without_seeds);
            }
            serde_json::Value::Array(list) => list.iter_mut().for_each(without_seeds),
            _ => {}
        }
    }
    let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    if !words.iter().skip(1).any(|word| Path::new(word).is_file()) || !run.simulated {
        return true;
    }
    let kept = run.resolved.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let now = plan_of_command(&words).ok().map(|plan| serde_json::json!(plan.job));
    let [kept, now] = [kept, now].map(|job| {
        job.map(|mut job| {
            without_seeds(&mut job);
            job
        })
    });
    kept.is_some() && kept == now
}

/// Both sides, base first. `open` opens the store, if anything is in it; `done` gets the number of runs simulated so
/// far, and of all.
///
/// # Errors
/// All mistakes in the request.
pub fn gather(
    asked: &ExplainRequest,
    open: &dyn Fn() -> Result<Store, StoreError>,
    done: &(dyn Fn(u32, u32) + Sync),
) -> Result<[Gathered; 2], Problems> {
    let mut problems = Problems::default();
    let mut names = asked.names.clone();
    // A name alone is an incident, or a set of runs that may have modes.
    let mut unknown = None;
    if let ([only], false) = (names.as_slice(), asked.stored) {
        match incident::explained_rows(only) {
            Ok(rows) => names = rows.iter().map(|row| format!("{only}/{row}")).collect(),
            Err(IncidentError::Unknown(problem)) => unknown = Some(problem),
            Err(error) => {
                let problem = of_incident(error).help("iowhy explain A B, or iowhy explain INCIDENT");
                return Err(Problems { list: vec![problem] });
            }
        }
    }
    let known = incident::list().unwrap_or_default();
    let mut origins = Vec::new();
    for name in &names {
        let of_row = known.iter().find_map(|known| Some((known.id, name.strip_prefix(known.id)?.strip_prefix('/')?)));
        let of_row = of_row.filter(|_| !asked.stored);
        let is_file = !asked.stored && name.split(',').all(|file| Path::new(file).is_file());
        let origin = if let Some((id, of)) = of_row {
            row(id, of, asked.runs).map_err(|problem| Problems { list: vec![problem] })
        } else if name.starts_with("sim:") && !asked.stored {
            place(name, asked)
        } else if is_file {
            let mut found = Problems::default();
            let read = traces(name, asked.report, &mut found);
            problems.list.append(&mut found.list);
            match read {
                Some(read) => Ok(Origin::Read(Box::new(read))),
                None => continue,
            }
        } else {
            if let Some(missing) = missing_file(name).filter(|_| !asked.stored) {
                problems.push(missing);
                continue;
            }
            let store = open().map_err(|error| Problem::error(error.to_string()).at(Span::whole(name)));
            let read = store.and_then(|store| stored(name, asked.report, &store));
            read.map(|read| Origin::Read(Box::new(read))).map_err(|problem| {
                let incident = unknown.take();
                Problems { list: incident.into_iter().chain([problem]).collect() }
            })
        };
        match origin {
            Ok(origin) => origins.push(origin),
            // Every place says the same about the job.
            Err(wrong) => {
                for problem in wrong.list {
                    if !problems.list.contains(&problem) {
                        problems.push(problem);
                    }
                }
            }
        }
    }
    if problems.any_error() {
        return Err(problems);
    }
    let runs_of = |origin: &Origin| match origin {
        Origin::Simulated(side) => side.runs,
        Origin::Read(_) => 0,
    };
    let all = origins.iter().map(runs_of).sum();
    let made = AtomicU32::new(0);
    let step = || done(made.fetch_add(1, Ordering::Relaxed) + 1, all);
    let mut make = |origin: Origin| match origin {
        Origin::Read(read) => Some(*read),
        Origin::Simulated(of) => {
            let label = of.label.clone();
            of.make(asked.report, &step)
                .map_err(|error| problems.push(Problem::error(format!("{label}: {error}"))))
                .ok()
        }
    };
    let sides: Vec<Gathered> = origins.into_iter().filter_map(&mut make).collect();
    if problems.any_error() {
        return Err(problems);
    }
    match <[Gathered; 2]>::try_from(sides) {
        Ok(sides) => Ok(sides),
        Err(mut sides) => match (sides.pop(), sides.is_empty()) {
            (Some(only), true) => modes::split(only).map_err(|problem| Problems { list: vec![problem] }),
            _ => {
                let problem = Problem::error("an explanation has a base and a candidate").help("iowhy explain A B");
                Err(Problems { list: vec![problem] })
            }
        },
    }
}
