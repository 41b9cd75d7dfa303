//! A report: everything that is known of two sets of runs as one object (`iowhy.report/1`), and as one HTML file.
//!
//! ```text
//! tally      of every run: latencies, sizes of requests                              (while the sides are gathered)
//! explain    verdict, findings, layers, as `iowhy explain` has them
//! survey     of one run of each side: slices, calls, map; where they begin to differ (first pass)
//! course     latencies by call number, the call at which a side becomes slow, the call that stands for a side
//! detail     lanes of what happened around the start, the first difference, the longest call, these (second pass)
//! pyramid    every lane of the whole run in bins; residency: pages in the cache at three moments (the same pass)
//! first      the first screen: what got slower, by how much, why, how sure
//! html       the page with the object in it
//! glance     what a terminal shows of the same
//! ```
//! The run that is shown is one that both sides have, by its seed, and that is nearest to the median time of both;
//! where they have no seed in common, the one with the median time of each. A report is made with less detail until the
//! file has at most [`MOST_BYTES`]. The object is the same whether it is printed or packed.
//!
//! Known limit: lanes of calls are those of calls in progress at once, since events do not name threads.

pub mod course;
pub mod detail;
pub mod facts;
pub mod first;
pub mod glance;
pub mod html;
pub mod pyramid;
pub mod residency;
pub mod samples;
pub mod survey;
pub mod text;
mod words;

use iowhy_stack::event::EventSink;
use iowhy_stack::units::PAGE_BYTES;
use serde::Serialize;
use serde_json::{Value, json};

use crate::explain::gathered::Gathered;
use crate::explain::tally::{self, Ecdf, Shift, Sizes, Tally};
use crate::store::{Filter, Store, StoreError, moment};
use course::{Course, Landmarks};
use detail::Span;
use first::First;
use iowhy_compare::Verdict;
use iowhy_compare::history::{self, Traced};
use iowhy_stats::figure::finite;
use iowhy_stats::metric::{Group, HEADLINES};
use iowhy_stats::modes;
use iowhy_text::diagnose::{Problem, Problems};
use iowhy_text::shown;
use iowhy_trace::join::UNKNOWN_FILE;
use iowhy_why::delta::time_per_operation;
use iowhy_why::digest::Digest;
use iowhy_why::digest::stacks::{Stack, Stacks};
use iowhy_why::{Explanation, json as explanation_json, matrix};
use pyramid::{Base, Both, Pyramid};
use residency::Residency;
use survey::Survey;

/// Largest file, if that can be had.
pub const MOST_BYTES: usize = 4 << 20;
/// Events of a part that is asked for.
const SLICE_EVENTS: u64 = 48_000;
/// Events of a part to begin with.
const EVENTS: u64 = 24_000;
/// Fewest events that a part is cut down to.
const LEAST_EVENTS: u64 = 500;
/// Longest label in a title.
const LABEL: usize = 60;
/// Chance of reporting modes where there is one.
const ALPHA: f64 = 0.01;
/// Longest and shortest history that is drawn, runs.
const HISTORY: u64 = 1_000;
const LEAST_HISTORY: usize = 3;
/// Strips of all files together, and of one.
const STRIPS: u64 = 20_000;
const MOST_STRIPS: u64 = 2_000;
const LEAST_STRIPS: u64 = 20;

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// Name of the fact.
    pub key: String,
    /// As text.
    pub value: String,
}

/// A key in which two sides differ; empty where a side does not have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Name of the fact.
    pub key: String,
    /// Of A.
    pub a: String,
    pub b: String,
}

/// A file of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct File {
    /// Its name, or a number.
    pub name: String,
    /// Its size; if unknown, the end of the touched part.
    pub bytes: u64,
}

/// A run in four numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Run {
    seed: u64,
    time_per_operation_ns: f64,
    rate_bytes_per_s: f64,
    operations: u64,
}

/// A stack that tasks have waited with.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Waits {
    /// The outermost one first.
    frames: Vec<String>,
    ns: u64,
    count: u64,
}

impl From<Stack> for Waits {
    fn from(Stack { frames, ns, count }: Stack) -> Waits {
        Waits { frames, ns, count }
    }
}

/// Runs whose times belong together.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct RunMode {
    /// Median of their times per operation.
    centre_ns: f64,
    runs: usize,
}

/// The modes of times per operation, fastest first; nothing of runs with one mode.
fn run_modes(times: &[f64]) -> Vec<RunMode> {
    let found = modes::two(times).map_or_else(|| modes::find(times, ALPHA), Vec::from);
    let several = found.len() > 1;
    found.into_iter().filter(|_| several).map(|mode| RunMode { centre_ns: mode.centre, runs: mode.count }).collect()
}

/// Columns of rows, all equally long.
macro_rules! columns {
    ($(#[$of:meta])* $name:ident { $($(#[$doc:meta])* $column:ident: $type:ty,)* }) => {
        $(#[$of])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize)]
        pub struct $name {
            $($(#[$doc])* pub $column: Vec<$type>,)*
        }
    };
}

/// The whole run in equal slices.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Overview {
    /// Length of a slice.
    pub slice_ns: u64,
    /// Fewest requests at the device.
    pub depth_min: Vec<u32>,
    /// Most of them.
    pub depth_max: Vec<u32>,
    /// Bytes that the device has read when requests completed.
    pub read_bytes: Vec<u64>,
    /// Bytes that it has written.
    pub write_bytes: Vec<u64>,
    /// Calls begun.
    pub calls: Vec<u32>,
    /// Share of the slice with nothing at the device and something in a plug or with the elevator.
    pub starved: Vec<f64>,
    /// Bytes of all calls that have ended by the end of the slice; without calls, those of the device.
    pub done_bytes: Vec<u64>,
    /// Calls that have ended by then.
    pub done_calls: Vec<u64>,
}

/// Times of a run with nothing at the device and something in a plug or with the elevator.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stalls {
    /// How many.
    pub count: u64,
    /// How long they are together.
    pub ns: u64,
}

/// A part of the run that is shown with all its rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// From when on.
    pub from_ns: i64,
    /// Until when.
    pub to_ns: i64,
    pub why: &'static str,
}

columns! {
    Calls {
        /// Which of the run's calls, from 1 on, in the order in which they began.
        nr: u64,
        /// When they began.
        start: i64,
        /// When they ended.
        end: i64,
        /// read 0, write 1, fsync 2, fdatasync 3.
        op: u8,
        /// On which file.
        file: u32,
        /// From which byte.
        offset: u64,
        /// How many bytes.
        bytes: u32,
        /// Lane.
        thread: u16,
    }
}

columns! {
    /// Pages added, hit, missed, removed.
    Pages {
        /// When.
        at: i64,
        /// Row of the call.
        call: i64,
        /// 0 added, 1 hit, 2 missed, 3 removed.
        kind: u8,
        /// Of which file.
        file: u32,
        /// First page.
        first: u64,
        /// How many.
        nr: u64,
    }
}

columns! {
    /// Windows of read-ahead.
    Windows {
        /// When.
        at: i64,
        /// Row of the call.
        call: i64,
        /// Index into the kinds.
        kind: i64,
        /// Of which file.
        file: u32,
        /// First page.
        first: u64,
        /// Pages.
        nr: u64,
        /// The page with the marker, or -1.
        marker: i64,
        /// Pages used.
        used: u64,
        /// Never used.
        unused: u64,
        /// Taken out before.
        thrashed: u64,
    }
}

columns! {
    Plugs {
        /// Plugged.
        start: i64,
        /// Unplugged.
        end: i64,
        /// Row of the call.
        call: i64,
        /// Index into the causes, -1 of a plug that was not pulled.
        cause: i64,
        /// Requests let go.
        nr: u32,
    }
}

columns! {
    Requests {
        /// First bio queued.
        q: i64,
        /// Allocated.
        g: i64,
        /// Given to the elevator.
        i: i64,
        /// Given to the device, for the last time.
        d: i64,
        /// Done.
        c: i64,
        /// Row of the call.
        call: i64,
        /// read 0, write 1.
        dir: u8,
        /// Index into the contents.
        content: i64,
        /// First sector.
        sector: u64,
        sectors: u32,
        bios: u32,
        /// Requests at the device when it was given to it, itself included.
        depth: u32,
        /// File of its pages, or -1.
        file: i64,
        /// First page, or -1.
        first: i64,
        /// Pages, or -1.
        nr: i64,
    }
}

/// A file in strips.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Strips {
    /// Which file.
    pub file: u32,
    pub strip_pages: u64,
    /// The fate of most touched pages of each: 0 untouched, 1 hit, 2 missed, 3 read ahead and never used, 4 brought by
    /// others.
    pub state: Vec<u8>,
    /// The other processes, where there were any.
    pub by: Vec<Option<String>>,
    /// Pages of each in the page cache, thousandths: at the begin of the run, in its middle, at its end.
    pub resident: [Vec<u32>; 3],
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Timeline {
    pub seed: u64,
    /// From its first call to the end of the last.
    pub elapsed_ns: u64,
    pub nr_events: u64,
    /// Its files, by number.
    pub files: Vec<File>,
    /// All of it.
    pub overview: Overview,
    /// The same by lanes, in finer bins.
    pub pyramid: Pyramid,
    /// Stalls of all of it.
    pub stalls: Stalls,
    /// Its calls.
    pub course: Course,
    pub detail: Vec<Part>,
    /// Row of the first call that the other side served differently.
    pub first_difference: Option<usize>,
    pub calls: Calls,
    pub pages: Pages,
    pub windows: Windows,
    /// Names of their kinds.
    pub window_kinds: Vec<&'static str>,
    pub plugs: Plugs,
    /// Names of what pulls them.
    pub unplug_causes: Vec<&'static str>,
    pub requests: Requests,
    /// Names of what they carry.
    pub contents: Vec<&'static str>,
    /// Files as strips.
    pub map: Vec<Strips>,
}

#[derive(Clone, Debug, Serialize)]
struct Side {
    label: String,
    simulated: bool,
    command: Option<String>,
    facts: Vec<Fact>,
    runs: Vec<Run>,
    modes: Vec<RunMode>,
    latency: Vec<Ecdf>,
    request_sizes: Vec<Sizes>,
    /// Where its tasks wait, of all runs, as far as stacks were recorded.
    stacks: Vec<Waits>,
    timeline: Timeline,
}

/// A report, as data and as a file.
#[derive(Clone, Debug)]
pub struct Report {
    /// The object.
    pub data: Value,
    /// The page with it.
    pub html: String,
}

impl Report {
    fn of(data: Value) -> Report {
        Report { html: html::pack(data["title"].as_str().unwrap_or_default(), &data), data }
    }
}

/// The first screen of two sides and their explanation.
pub fn first_screen(sides: &[Gathered; 2], explanation: &Explanation) -> First {
    let [a, b] = [0, 1].map(|side: usize| facts::facts(&sides[side]));
    first::of(sides, explanation, &facts::differences(&a, &b), is_alone(explanation))
}

/// One set of runs with one mode stands on both sides.
fn is_alone(explanation: &Explanation) -> bool {
    explanation.verdict == Verdict::Same && explanation.a == explanation.b
}

/// Makes the report of two sides that were gathered for one, and of their explanation.
///
/// # Errors
/// If a run cannot be replayed.
pub fn make(sides: &[Gathered; 2], explanation: &Explanation, around: &Around) -> Result<Report, Problems> {
    make_within(sides, explanation, around, MOST_BYTES)
}

/// Parts of a report besides its sides.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// [`history`] of the side that is stored.
    pub history: Option<Value>,
    /// The incident that the sides are of, [`brief`](crate::incident::report::brief): published and simulated figures,
    /// claims, what is not explained.
    pub incident: Option<Value>,
}

/// The runs that a report shows, at a glance: what its lanes are cut out of.
#[derive(Debug)]
pub struct Shown {
    runs: [usize; 2],
    surveys: [Survey; 2],
    differs: [Option<usize>; 2],
    landmarks: [Landmarks; 2],
}

impl Shown {
    /// Of two sides.
    ///
    /// # Errors
    /// If a run cannot be replayed.
    pub fn of(sides: &[Gathered; 2]) -> Result<Shown, Problems> {
        let runs = chosen(sides);
        let (surveys, differs) = surveyed(sides, runs)?;
        let landmarks = course::landmarks(&surveys);
        Ok(Shown { runs, surveys, differs, landmarks })
    }

    /// The lanes of a side, with one more part: from a time of the run to another, ns, cut where it has more events
    /// than a part. The `pyramid`, which does not depend on parts, is left out.
    ///
    /// # Errors
    /// If the run cannot be replayed.
    pub fn slice(&self, sides: &[Gathered; 2], side: usize, from_ns: u64, to_ns: u64) -> Result<Value, Problem> {
        let survey = &self.surveys[side];
        let from = survey.begins().saturating_add(from_ns);
        let to = survey.begins().saturating_add(to_ns).min(survey.time_of(survey.event_at(from) + SLICE_EVENTS));
        let asked = Some((from, to.max(from + 1)));
        let mut timeline = self.timeline(&sides[side], side, Detail { events: EVENTS, bins: 1, asked })?;
        timeline.pyramid = Pyramid::default();
        Ok(json!(timeline))
    }
}

/// How much of a run a timeline has.
#[derive(Copy, Clone, Debug)]
struct Detail {
    /// Events of a part.
    events: u64,
    /// Most bins of the pyramid.
    bins: u64,
    /// One more part, on the clock of the events.
    asked: Option<(u64, u64)>,
}

/// The same with another limit of bytes.
fn make_within(
    sides: &[Gathered; 2],
    explanation: &Explanation,
    around: &Around,
    most_bytes: usize,
) -> Result<Report, Problems> {
    let shown = Shown::of(sides)?;
    let tallies = [0, 1].map(|side: usize| {
        let mut all = Tally::default();
        sides[side].seen.iter().for_each(|seen| all.merge(&seen.tally));
        all
    });
    let shift = tally::shifts(&tallies[0], &tallies[1]);
    let mut detail = Detail { events: EVENTS, bins: pyramid::MOST_BINS, asked: None };
    loop {
        let timelines = of_both(&|side: usize| shown.timeline(&sides[side], side, detail))?;
        let mut described = Vec::new();
        for (nr, timeline) in timelines.into_iter().enumerate() {
            described.push(describe(&sides[nr], &tallies[nr], timeline));
        }
        if is_alone(explanation) {
            described.truncate(1);
        }
        let report = assemble(explanation, sides, &described, &shift, around);
        if report.html.len() <= most_bytes || detail.events <= LEAST_EVENTS {
            return Ok(report);
        }
        detail.events /= 2;
        detail.bins = (detail.bins / 2).max(pyramid::LEAST_BINS);
    }
}

/// One run of each side at a glance, and the first calls that they served differently.
fn surveyed(sides: &[Gathered; 2], runs: [usize; 2]) -> Result<([Survey; 2], [Option<usize>; 2]), Problems> {
    let surveys = of_both(&|side| {
        let mut survey = Survey::default();
        replay(&sides[side], runs[side], &mut survey).map(|()| survey)
    })?;
    // A set against itself is served alike.
    let same = sides[0].side.label == sides[1].side.label;
    let differs = survey::first_difference(&surveys[0], &surveys[1]).filter(|_| !same);
    Ok((surveys, [differs.map(|(a, _)| a), differs.map(|(_, b)| b)]))
}

/// Does the same for both sides, at once.
fn of_both<T: Send>(one: &(dyn Fn(usize) -> Result<T, Problem> + Sync)) -> Result<[T; 2], Problems> {
    match rayon::join(|| one(0), || one(1)) {
        (Ok(a), Ok(b)) => Ok([a, b]),
        (a, b) => Err(Problems { list: [a.err(), b.err()].into_iter().flatten().collect() }),
    }
}

fn replay(side: &Gathered, run: usize, sink: &mut dyn EventSink) -> Result<(), Problem> {
    let nothing = || Problem::error(format!("`{}`: no run to show", shown(&side.side.label, LABEL)));
    side.seen.get(run).ok_or_else(nothing)?.again.replay(sink)
}

/// Which run of each side is shown.
fn chosen(sides: &[Gathered; 2]) -> [usize; 2] {
    // How far each run is from the median, by rank, 0 to 1.
    let far = |side: &Gathered| {
        let times: Vec<f64> = side.side.runs.iter().map(time_per_operation).collect();
        let mut order: Vec<usize> = (0..times.len()).collect();
        order.sort_by(|x, y| times[*x].total_cmp(&times[*y]));
        let mut far = vec![0.0; times.len()];
        for (rank, run) in order.into_iter().enumerate() {
            far[run] = ((2 * rank + 1) as f64 / times.len() as f64 - 1.0).abs();
        }
        far
    };
    let [a, b] = [far(&sides[0]), far(&sides[1])];
    let mut common: Vec<(f64, [usize; 2])> = Vec::new();
    for (mine, seen) in sides[0].seen.iter().enumerate() {
        if let Some(theirs) = sides[1].seen.iter().position(|other| other.seed == seen.seed) {
            let of = |far: &[f64], run: usize| far.get(run).copied().unwrap_or(1.0);
            common.push((of(&a, mine) + of(&b, theirs), [mine, theirs]));
        }
    }
    let nearest = |far: &[f64]| (0..far.len()).min_by(|x, y| far[*x].total_cmp(&far[*y])).unwrap_or(0);
    let best = common.into_iter().min_by(|x, y| x.0.total_cmp(&y.0));
    best.map_or_else(|| [nearest(&a), nearest(&b)], |(_, runs)| runs)
}

impl Shown {
    /// The lanes of one run, with its files and their map.
    fn timeline(&self, side: &Gathered, nr: usize, detail: Detail) -> Result<Timeline, Problem> {
        let (run, survey) = (self.runs[nr], &self.surveys[nr]);
        let (differs, landmarks) = (self.differs[nr], self.landmarks[nr]);
        let mut parts = detail::parts(survey, differs, &landmarks.marks(), detail.events);
        parts.extend(detail.asked.map(|(from, to)| Span { from, to, why: "asked" }));
        let mut builder = detail::Builder::new(survey, detail::apart(parts));
        let mut resident = Residency::new(survey);
        let mut base = Base::new(survey, detail.bins);
        replay(side, run, &mut Both(&mut builder, &mut Both(&mut base, &mut resident)))?;
        let mut timeline = Timeline { pyramid: base.finish(), ..builder.finish(differs) };
        timeline.course = course::of(survey, landmarks, &timeline.calls.nr);
        timeline.seed = side.seen.get(run).map_or(0, |seen| seen.seed);
        timeline.files = facts::files(side, run);
        let ids = number_files(&mut timeline, survey);
        let others = side.side.runs.get(run).and_then(|run| run.foreign.names.first());
        let by = others.map_or("others", |(name, _)| name);
        let touched: Vec<(u32, u32)> = (0..).zip(ids).filter(|(_, id)| survey.pages_of(*id) > 0).collect();
        let strips = (STRIPS / touched.len().max(1) as u64).clamp(LEAST_STRIPS, MOST_STRIPS);
        for (nr, id) in touched {
            let pages = timeline.files[nr as usize].bytes.div_ceil(PAGE_BYTES).max(survey.pages_of(id));
            let of = survey.strips(id, pages, strips, by);
            let resident = resident.strips(id, of.strip_pages, of.state.len());
            timeline.map.push(Strips { file: nr, resident, ..of });
        }
        Ok(timeline)
    }
}

/// Gives unnamed files a number behind the others, and those of unknown size that of the touched part. Yields the
/// number that each has in the events.
fn number_files(timeline: &mut Timeline, survey: &Survey) -> Vec<u32> {
    let known = timeline.files.len() as u32;
    let mut others = survey.files();
    others.extend(timeline.pages.file.iter().chain(&timeline.windows.file));
    others.extend(timeline.requests.file.iter().filter_map(|file| u32::try_from(*file).ok()));
    let others: Vec<u32> = others.into_iter().filter(|id| *id >= known).collect();
    let number = |id: u32| others.binary_search(&id).map_or(id, |place| known + place as u32);
    timeline.calls.file.iter_mut().for_each(|file| *file = number(*file));
    timeline.pages.file.iter_mut().for_each(|file| *file = number(*file));
    timeline.windows.file.iter_mut().for_each(|file| *file = number(*file));
    for file in timeline.requests.file.iter_mut().filter(|file| **file >= 0) {
        *file = i64::from(number(*file as u32));
    }
    for id in &others {
        let name = if *id == UNKNOWN_FILE.0 { "unknown file".to_owned() } else { format!("file {id}") };
        timeline.files.push(File { name, bytes: 0 });
    }
    let ids: Vec<u32> = (0..known).chain(others).collect();
    let mut ends = vec![0; ids.len()];
    for call in &survey.calls {
        let end = &mut ends[number_of(&ids, known, call.file)];
        *end = call.offset.saturating_add(u64::from(call.bytes)).max(*end);
    }
    for (nr, file) in timeline.files.iter_mut().enumerate().filter(|(_, file)| file.bytes == 0) {
        file.bytes = ends[nr].max(survey.pages_of(ids[nr]).saturating_mul(PAGE_BYTES));
    }
    ids
}

/// The place of a file among numbers of which the first ones are their own places, and the others in order.
fn number_of(ids: &[u32], known: u32, id: u32) -> usize {
    if id < known { id as usize } else { known as usize + ids[known as usize..].partition_point(|other| *other < id) }
}

fn describe(side: &Gathered, tally: &Tally, timeline: Timeline) -> Side {
    let run = |(nr, digest): (usize, &Digest)| {
        let bytes: u64 = digest.workload.bytes[..2].iter().sum();
        let seconds = digest.elapsed.as_secs_f64();
        Run {
            seed: side.seen.get(nr).map_or(0, |seen| seen.seed),
            time_per_operation_ns: time_per_operation(digest),
            rate_bytes_per_s: if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 },
            operations: digest.operations(),
        }
    };
    Side {
        label: side.side.label.clone(),
        simulated: !side.side.live,
        command: facts::command(side),
        facts: facts::facts(side),
        runs: side.side.runs.iter().enumerate().map(run).collect(),
        modes: run_modes(&side.side.runs.iter().map(time_per_operation).collect::<Vec<f64>>()),
        latency: tally.ecdfs(),
        request_sizes: tally.sizes(),
        stacks: Stacks::merged(side.side.runs.iter().map(|run| &run.stacks))
            .list
            .into_iter()
            .map(Waits::from)
            .collect(),
        timeline,
    }
}

fn assemble(
    explanation: &Explanation,
    gathered: &[Gathered; 2],
    sides: &[Side],
    shift: &[Shift],
    around: &Around,
) -> Report {
    let alone = sides.len() < 2;
    let (a, b) = (shown(&explanation.a, LABEL), shown(&explanation.b, LABEL));
    let verdict = if alone { "none" } else { explanation.verdict.word() };
    let title = if alone { a } else { format!("{a} against {b}: {verdict} ({:+.1} %)", explanation.change_pct) };
    let mut explained = explanation_json::explain(explanation);
    // It is part of the explanation, once.
    let comparison = explained["comparison"].take();
    let differences = match sides {
        [a, b] => facts::differences(&a.facts, &b.facts),
        _ => Vec::new(),
    };
    let first = first::of(gathered, explanation, &differences, alone);
    let data = json!({
        "schema": "iowhy.report/1",
        "version": env!("CARGO_PKG_VERSION"),
        "title": title,
        "headline": {
            "verdict": verdict,
            "sentence": text::difference(explanation),
            "why": text::summary(explanation),
            "first": first,
        },
        "explanation": if alone { Value::Null } else { explained },
        "comparison": if alone { Value::Null } else { comparison },
        "matrix": matrix::of(explanation, [&gathered[0].side, &gathered[1].side])
            .filter(|_| !alone)
            .map(|of| explanation_json::matrix(&of, explanation.basis)),
        "sides": sides,
        "shift": if alone { &shift[..0] } else { shift },
        "history": around.history,
        "differences": differences,
        "incident": around.incident,
    });
    Report::of(data)
}

/// The history of the headline metric of the side's job on its machine, if it comes from a store.
///
/// # Errors
/// If the store cannot be read.
pub fn history(side: &Gathered, store: &Store) -> Result<Option<Value>, StoreError> {
    let Some(row) = side.row.as_ref().filter(|row| !row.blind) else { return Ok(None) };
    let filter = Filter {
        job: Some(row.job.clone()),
        machine: Some(row.machine_hash.clone()),
        measured: true,
        last: Some(HISTORY),
        ..Filter::default()
    };
    let groups = store.groups_for_history(&filter)?;
    let place = row.place.clone().unwrap_or_default();
    let mine = |group: &Group| group.runs.iter().any(|run| run.run_id == row.id.0);
    let groups: Vec<Group> = groups.into_iter().filter(mine).collect();
    let metric = HEADLINES.iter().find(|name| groups.iter().any(|group| group.column(name).is_some()));
    let Some(metric) = metric else { return Ok(None) };
    let series = history::of_groups(&groups, &[(*metric).to_owned()], &|_| place.clone());
    let traced = history::trace(series, &history::Settings::default());
    let one = |traced: &Traced| {
        let points = &traced.series.points;
        let change =
            |of: &history::Change| json!({ "index": of.index, "change_pct": finite(of.change_pct), "p": finite(of.p) });
        json!({
            "name": traced.series.metric.name,
            "unit": traced.series.metric.unit,
            "at": points.iter().map(|point| moment(point.started_ns)).collect::<Vec<_>>(),
            "value": points.iter().map(|point| point.value).collect::<Vec<_>>(),
            "change_points": traced.changes.iter().map(change).collect::<Vec<_>>(),
        })
    };
    let long = traced.series.iter().filter(|traced| traced.series.points.len() >= LEAST_HISTORY);
    let series: Vec<Value> = long.map(one).collect();
    Ok((!series.is_empty()).then(|| json!({ "series": series })))
}

#[cfg(test)]
mod tests;
