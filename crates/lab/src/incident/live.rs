//! The present state of an incident on the running kernel or on others, next to its published and simulated figures.
//!
//! ```text
//! table      sides (a job on a disk) and questions (one side against another, against itself on the kernel before, or
//!            against a limit): data
//! run        blocks of all sides on all kernels in random order, each run as `iowhy run JOB --on KERNEL --disk DISK`
//!            makes it, until there are enough or the time is up
//! answer     the change of the mean from the good side to the bad one with its interval (Welch, 95 %):
//!            happens              the whole interval is on the bad side, and the change is large enough to matter
//!            no longer happens    the whole interval is below what matters
//!            cannot tell          anything else, and everything that could not be run
//! ```
//! A question about one side holds the smallest and the largest of its runs against the limit. A side that cannot be
//! run here is not a failure: its questions stay open, with the reason.
//!
//! Known limits: fewer than three runs of a side make wide intervals; the disk in memory of [`ground`] is gone after
//! an error or a signal that can be caught, but stays after SIGKILL. Figures of traces are of the running kernel only.

mod ground;
pub mod report;
pub mod table;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use iowhy_live::capture::Level;
use iowhy_stack::rng::Rng;

use super::file::Figure;
use super::{IncidentResult, RowResult};
use crate::on_kernel;
use crate::run::{self, Experiment, Keep, RunRequest};
use ground::Grounds;
use iowhy_fio::World;
use iowhy_stats::bootstrap;

/// Where a side runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Site {
    /// A modelled disk, as `--disk` takes it.
    Model(&'static str),
    /// The same, with more settings behind.
    Tuned(&'static str, &'static str),
    /// A disk in memory, bare or with a file system: it shows costs of the processor only. `{}` in the job is its node,
    /// or a file on it.
    Memory {
        /// The file system.
        filesystem: Option<&'static str>,
    },
}

impl Site {
    /// The words behind `--disk`, if it is a modelled disk.
    pub fn disk(&self) -> Option<String> {
        match self {
            Site::Model(disk) => Some((*disk).to_owned()),
            Site::Tuned(disk, more) => Some(format!("{disk},{more}")),
            Site::Memory { .. } => None,
        }
    }

    /// Its name.
    pub fn describe(&self) -> String {
        match self {
            Site::Memory { filesystem: None } => "zram".to_owned(),
            Site::Memory { filesystem: Some(name) } => format!("{name} on zram"),
            modelled => modelled.disk().unwrap_or_default(),
        }
    }
}

/// Foreign pages in the page cache during a run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ForeignPages {
    Nothing,
    /// The first 25 pages of the file written behind them.
    Pages,
}

/// A job on a disk.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// Its name.
    pub id: &'static str,
    /// The words of the job.
    pub job: &'static str,
    /// Where it runs.
    pub ground: Site,
    /// It is traced.
    pub trace: bool,
    /// Contents of the cache.
    pub held: ForeignPages,
    /// It belongs to the short form.
    pub quick: bool,
}

/// Which direction of a metric is the bad one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Worse {
    More,
    Less,
}

/// The good side of a question.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Against {
    /// The bad side is held against the limit itself.
    Limit,
    Side(&'static str),
    /// The same side on the first of two kernels; not asked of one kernel.
    FirstKernel,
}

impl Against {
    pub fn side(self) -> Option<&'static str> {
        match self {
            Against::Side(id) => Some(id),
            Against::Limit | Against::FirstKernel => None,
        }
    }
}

/// The published and simulated figures next to an answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// Unpublished.
    Nothing,
    /// The ratio of two rows.
    Rows(&'static str, &'static str),
    /// The figures of a claim about two rows.
    Claim(&'static str, &'static str, &'static str),
    /// Percent of the read commands of a row that are of a page at most; unpublished.
    SmallReads(&'static str),
}

#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Question {
    /// Its name.
    pub id: &'static str,
    /// The expectation if it still happened.
    pub text: &'static str,
    /// The bad side.
    pub of: &'static str,
    pub to: Against,
    pub metric: &'static str,
    /// Which direction is bad.
    pub worse: Worse,
    /// From which change, or figure, on it matters, percent.
    pub least_pct: f64,
    /// The figures next to the answer.
    pub beside: Reference,
    /// Why it happens no longer, and since when.
    pub since: &'static str,
}

/// An incident's part.
#[derive(Copy, Clone, Debug)]
pub struct Live {
    /// Which incident.
    pub incident: &'static str,
    /// Runs of the incident.
    pub sides: &'static [Side],
    pub questions: &'static [Question],
    /// Effects that cannot be shown any more, and why.
    pub not_shown: &'static [&'static str],
}

/// The part of an incident.
pub fn of(incident: &str) -> Option<&'static Live> {
    table::LIVE.iter().find(|live| live.incident == incident)
}

/// How much is run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct How {
    /// Runs of each side at most.
    pub runs: u32,
    /// No block is begun that would end later; two are made in any case.
    pub budget: Duration,
    /// The short form only.
    pub quick: bool,
}

impl Default for How {
    fn default() -> How {
        // With three runs of a side, as fit into a minute, intervals of 2018 reach from a hundredth to thousands.
        How { runs: 10, budget: Duration::from_secs(240), quick: false }
    }
}

impl How {
    /// The short form.
    pub fn quick() -> How {
        How { runs: 3, budget: Duration::from_secs(8), quick: true }
    }
}

/// The words behind `--on` of the running kernel.
pub const LIVE: &str = "live";

/// Level of the intervals.
const LEVEL: f64 = 0.95;
/// Without resampling: resamples of three values are too often equal.
const DRAWS: u32 = 0;

/// A side with its runs.
#[derive(Clone, Debug)]
pub struct SideResult {
    pub side: &'static Side,
    /// Words behind `--on`.
    pub place: String,
    /// Words after `iowhy` that repeat a run.
    pub command: String,
    /// The metrics of each run.
    pub runs: Vec<BTreeMap<String, f64>>,
    /// Why it could not be run, or not as often as it should have been.
    pub refused: Option<String>,
}

impl SideResult {
    /// A metric of its runs.
    pub fn values(&self, metric: &str) -> Vec<f64> {
        self.runs.iter().filter_map(|run| run.get(metric).copied()).collect()
    }
}

/// The running kernel's answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It still happens.
    Happens,
    /// It does not.
    NoLonger,
    CannotTell,
}

impl Verdict {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Happens => "happens",
            Verdict::NoLonger => "no longer happens",
            Verdict::CannotTell => "cannot tell",
        }
    }
}

/// A figure with its bounds.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Bounded {
    /// The figure.
    pub value: f64,
    /// Its bounds; none where too few runs bound nothing.
    pub bounds: Option<(f64, f64)>,
}

/// The answer to a question.
#[derive(Clone, Debug)]
pub struct Answer {
    pub question: &'static Question,
    /// The ratio of the bad side to the good one, or the bad side's figure.
    pub live: Option<Bounded>,
    /// The same as it was published.
    pub published: Option<f64>,
    /// The same as it is simulated.
    pub simulated: Option<f64>,
    pub verdict: Verdict,
    /// Why it cannot tell, or since when it is so.
    pub why: String,
}

/// The results of an incident on a kernel.
#[derive(Clone, Debug)]
pub struct LiveResult {
    /// Its name.
    pub incident: String,
    /// Words behind `--on`.
    pub place: String,
    /// Its release.
    pub kernel: String,
    /// Everything that was run.
    pub sides: Vec<SideResult>,
    /// Everything that was asked.
    pub answers: Vec<Answer>,
    /// Effects that cannot be shown any more.
    pub not_shown: &'static [&'static str],
    /// A signal ended it early.
    pub interrupted: bool,
}

impl LiveResult {
    /// The mean of the side that stands for a published row, in the unit of the row.
    pub fn of_row(&self, row: &str) -> Option<f64> {
        self.answers.iter().find_map(|answer| {
            let (of, to) = match answer.question.beside {
                Reference::Rows(of, to) | Reference::Claim(_, of, to) => (of, to),
                Reference::Nothing | Reference::SmallReads(_) => return None,
            };
            let good = answer.question.to.side();
            let side = if of == row { Some(answer.question.of) } else { good.filter(|_| to == row) }?;
            let side = self.sides.iter().find(|known| known.side.id == side)?;
            let values = side.values(answer.question.metric);
            (!values.is_empty()).then(|| super::mean(values.into_iter()))
        })
    }
}

/// A run request of a side, with one run. Memory disks have to be there already.
fn request(side: &SideResult, grounds: &Grounds) -> Result<RunRequest, String> {
    let words = words(side, grounds)?;
    let request = run::asked(&words, &World::empty()).map_err(|problems| {
        let messages: Vec<&str> = problems.list.iter().map(|problem| problem.message.as_str()).collect();
        messages.join("; ")
    })?;
    let keep = (side.side.trace && side.place == LIVE).then(|| Keep {
        directory: std::path::PathBuf::new(),
        asked: false,
        trace: Some(Level::default()),
        blind: false,
    });
    Ok(RunRequest { keep, ..*request })
}

/// The words behind `iowhy run`.
fn words(SideResult { side, place, .. }: &SideResult, grounds: &Grounds) -> Result<Vec<String>, String> {
    let (target, allow) = match side.ground {
        Site::Memory { filesystem } => {
            let disk = grounds.memory(filesystem)?;
            (disk.name(), Some((disk.folder(), disk.target())))
        }
        Site::Model(_) | Site::Tuned(..) => (String::new(), None),
    };
    let mut words: Vec<String> = side.job.split_whitespace().map(|word| word.replace("{}", &target)).collect();
    words.extend(["--on".to_owned(), place.clone()]);
    if let Some(disk) = side.ground.disk() {
        words.push(format!("--disk={disk}"));
    }
    if let Some((folder, target)) = allow {
        words.push(format!("--allow-write={}", target.display()));
        words.extend(folder.map(|folder| format!("--dir={}", folder.display())));
    }
    Ok(words)
}

/// A side on a kernel before its first run, with its disk if that is in memory.
fn prepared(side: &'static Side, place: &str, grounds: &mut Grounds) -> SideResult {
    let mut result =
        SideResult { side, place: place.to_owned(), command: String::new(), runs: Vec::new(), refused: None };
    if let Site::Memory { filesystem } = side.ground {
        result.refused = match place {
            LIVE => grounds.make(filesystem).err(),
            _ => Some("a disk in memory is the running kernel's".to_owned()),
        };
    }
    match words(&result, grounds) {
        Ok(words) => result.command = format!("run {}", words.join(" ")),
        Err(message) => drop(result.refused.get_or_insert(message)),
    }
    result
}

/// Runs what the running kernel, or others, can show of an incident: a result for each of `places`, the words behind
/// `--on`. `progress` gets the number of runs done, and of all. Nothing if the incident has no such part.
pub fn run(
    simulated: &IncidentResult,
    how: How,
    places: &[String],
    progress: &dyn Fn(usize, usize),
) -> Option<Vec<LiveResult>> {
    let live = of(&simulated.incident.id)?;
    let asked: Vec<&Question> =
        live.questions.iter().filter(|question| question.to != Against::FirstKernel || places.len() == 2).collect();
    let used = |side: &Side| asked.iter().any(|question| question.of == side.id || question.to.side() == Some(side.id));
    let chosen: Vec<&'static Side> =
        live.sides.iter().filter(|side| (side.quick || !how.quick) && used(side)).collect();
    let mut grounds = Grounds::default();
    let mut sides: Vec<SideResult> = Vec::new();
    for place in places {
        sides.extend(chosen.iter().map(|side| prepared(side, place, &mut grounds)));
    }
    let mut kernels: Vec<Option<String>> = vec![None; places.len()];
    let interrupted = run_blocks(&mut sides, how, &grounds, &mut kernels, progress);
    let mut results = Vec::new();
    for ((nr, place), kernel) in places.iter().enumerate().zip(kernels) {
        let here: Vec<SideResult> = sides.iter().filter(|side| side.place == *place).cloned().collect();
        let find = |place: &str, id: &str| sides.iter().find(|side| side.place == place && side.side.id == id);
        let mut answers = Vec::new();
        for question in &asked {
            let to = match question.to {
                Against::Limit => None,
                Against::Side(id) => find(place, id),
                // The first kernel is what the second is held against.
                Against::FirstKernel if nr == 0 => continue,
                Against::FirstKernel => find(&places[0], question.of),
            };
            let of = find(place, question.of);
            if of.is_some() && (!how.quick || to.is_some() || question.to == Against::Limit) {
                let (published, simulated) = beside(simulated, question);
                answers.push(Answer { published, simulated, ..answer(question, of, to) });
            }
        }
        results.push(LiveResult {
            incident: simulated.incident.id.clone(),
            place: place.clone(),
            kernel: kernel.unwrap_or_else(|| "not booted".to_owned()),
            answers,
            sides: here,
            not_shown: live.not_shown,
            interrupted,
        });
    }
    Some(results)
}

/// Runs all sides in blocks, and notes the release of each place; whether a signal ended it.
fn run_blocks(
    sides: &mut Vec<SideResult>,
    how: How,
    grounds: &Grounds,
    kernels: &mut [Option<String>],
    progress: &dyn Fn(usize, usize),
) -> bool {
    let mut interrupted = false;
    let begun = Instant::now();
    let (arms, runs) = (sides.len(), how.runs);
    let experiment = Experiment { name: "order of live runs", seed: 1, arms, warm_up: 0, blocks: u64::from(runs) };
    let most = arms * runs as usize;
    let in_place = (arms / kernels.len().max(1)).max(1);
    let mut done = 0;
    // Boots use up the time; four runs of a side bound something.
    let least = if sides.iter().all(|side| side.place == LIVE) || how.quick { 2 } else { 4 };
    let late = |_: &Vec<SideResult>, block: u64| {
        block >= least && begun.elapsed() / block as u32 * (block as u32 + 1) > how.budget
    };
    let _ = experiment.run(sides, late, |sides, slot| {
        progress(done, most);
        done += 1;
        let result = &mut sides[slot.variant];
        if result.refused.is_some() {
            return ControlFlow::Continue(());
        }
        match one(result, grounds, slot.seed) {
            Ok(one) => {
                interrupted |= one.interrupted;
                result.runs.extend(one.metrics);
                let kernel = &mut kernels[slot.variant / in_place];
                *kernel = kernel.take().or(one.kernel);
            }
            Err(message) => result.refused = Some(message),
        }
        if interrupted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    progress(most, most);
    interrupted
}

/// A run of a side.
#[derive(Default)]
struct One {
    /// None if it was cut short.
    metrics: Option<BTreeMap<String, f64>>,
    kernel: Option<String>,
    /// A signal ended it.
    interrupted: bool,
}

/// Makes one run of a side.
fn one(result: &SideResult, grounds: &Grounds, seed: u64) -> Result<One, String> {
    let request = RunRequest { seed, ..request(result, grounds)? };
    let _held = match (result.side.held, result.side.ground) {
        (ForeignPages::Pages, Site::Memory { filesystem }) => {
            Some(grounds.memory(filesystem)?.hold().map_err(|error| format!("cannot hold pages: {error}"))?)
        }
        _ => None,
    };
    let executed = run::execute(&request, &|_, _| {});
    if executed.interrupted {
        return Ok(One { interrupted: true, ..One::default() });
    }
    if let Some((_, refusal)) = executed.refused.first() {
        return Err(refusal.to_string());
    }
    let Some(run) = executed.runs.into_iter().next() else { return Err("no run was made".to_owned()) };
    let record = run.record;
    if record.failed {
        return Err(record.notes.first().map_or("calls failed".to_owned(), |note| note.problem.message.clone()));
    }
    let release = record.more.get("guest").and_then(|guest| guest["release"].as_str());
    let kernel = release.map_or_else(on_kernel::machine::kernel, str::to_owned);
    let mut metrics: BTreeMap<String, f64> = record.metrics.into_iter().collect();
    if let Some(requests) = record.live.as_ref().and_then(|live| live.traced.as_ref()).map(|traced| traced.requests) {
        let of_trace = [
            ("data_reads_of_4k_pct", requests.small_pct()),
            ("device_idle_pct", requests.idle_pct()),
            ("mean_read_kib", requests.mean_kib()),
            ("metadata_reads", Some(requests.metadata_reads as f64)),
            ("data_reads", Some(requests.data_reads as f64)),
        ];
        metrics.extend(of_trace.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    }
    Ok(One { metrics: Some(metrics), kernel: Some(kernel), interrupted: false })
}

/// The published and the simulated figure.
fn beside(result: &IncidentResult, question: &Question) -> (Option<f64>, Option<f64>) {
    match question.beside {
        Reference::Nothing => (None, None),
        Reference::Rows(of, to) => {
            let (Some(of), Some(to)) = (result.row(of), result.row(to)) else { return (None, None) };
            let published = |row: &RowResult| row.published.and_then(Figure::value);
            let ratio = published(of).zip(published(to)).filter(|(_, to)| *to > 0.0).map(|(of, to)| of / to);
            (ratio, Some(result.ratio(of, to).value))
        }
        Reference::Claim(id, ..) => {
            let claim = result.claims.iter().find(|claim| claim.id == id);
            (claim.and_then(|claim| claim.published), claim.and_then(|claim| claim.simulated))
        }
        Reference::SmallReads(id) => {
            let share = result.row(id).and_then(|row| {
                let all = row.sum(|layers| layers.reads.data);
                (all > 0).then(|| 100.0 * row.sum(|layers| layers.reads.small_data) as f64 / all as f64)
            });
            (None, share)
        }
    }
}

/// The answer, without the published and simulated figures.
fn answer(question: &'static Question, of: Option<&SideResult>, to: Option<&SideResult>) -> Answer {
    let told = |live, verdict, why| Answer { question, live, published: None, simulated: None, verdict, why };
    let cannot = |live, why: &str| told(live, Verdict::CannotTell, why.to_owned());
    let Some(of) = of else { return cannot(None, "it was not run") };
    let refused = of.refused.as_ref().or_else(|| to.and_then(|to| to.refused.as_ref()));
    let values = of.values(question.metric);
    if values.is_empty() && !of.runs.is_empty() {
        return cannot(None, &format!("the runs on this kernel do not measure {}", question.metric));
    }
    if question.to == Against::Limit {
        if values.is_empty() {
            return cannot(None, refused.map_or("it was not run", String::as_str));
        }
        let (low, high) = super::extremes(values.iter().copied());
        let live = Some(Bounded { value: super::mean(values.iter().copied()), bounds: Some((low, high)) });
        let least = question.least_pct;
        let (happens, gone) = match question.worse {
            Worse::More => (low >= least, high < least),
            Worse::Less => (high <= least, low > least),
        };
        return conclude(question, live, happens, gone);
    }
    let goods = to.map(|to| to.values(question.metric)).unwrap_or_default();
    if values.is_empty() || goods.is_empty() {
        let good = question.to.side().unwrap_or("the first kernel");
        return cannot(None, refused.map_or(&format!("`{good}` was not run"), String::as_str));
    }
    let mut rng = Rng::stream(1, question.id);
    let change = bootstrap::mean_ratio(&goods, &values, DRAWS, LEVEL, &mut rng);
    let ratio = |pct: f64| 1.0 + pct / 100.0;
    if !change.estimate.is_finite() {
        return cannot(None, "the good side measured nothing");
    }
    let bounded = change.low.is_finite() && change.high.is_finite();
    let bounds = bounded.then(|| (ratio(change.low), ratio(change.high)));
    let live = Some(Bounded { value: ratio(change.estimate), bounds });
    if !bounded {
        return cannot(live, "one run of a side bounds nothing");
    }
    let (low, estimate, high) = match question.worse {
        Worse::More => (change.low, change.estimate, change.high),
        Worse::Less => (-change.high, -change.estimate, -change.low),
    };
    conclude(question, live, low > 0.0 && estimate >= question.least_pct, high < question.least_pct)
}

fn conclude(question: &'static Question, live: Option<Bounded>, happens: bool, gone: bool) -> Answer {
    let (verdict, why) = match (happens, gone) {
        (true, _) => (Verdict::Happens, String::new()),
        (false, true) => (Verdict::NoLonger, question.since.to_owned()),
        (false, false) => (Verdict::CannotTell, "the runs differ too much among themselves".to_owned()),
    };
    Answer { question, live, published: None, simulated: None, verdict, why }
}

#[cfg(test)]
mod tests;
