//! The present state of an incident on the running kernel, next to the published and the simulated figures.
//!
//! ```text
//! table      sides (a job on a disk) and questions (one side against another, or against a limit): data
//! run        blocks of all sides in random order, each run as `iowhy run JOB --on live --disk DISK` makes it, until
//!            there are enough or the time is up
//! answer     the change of the mean from the good side to the bad one with its interval (Welch, 95 %):
//!            happens              the whole interval is on the bad side, and the change is large enough to matter
//!            no longer happens    the whole interval is below what matters
//!            cannot tell          anything else, and everything that could not be run
//! ```
//! A question about one side holds the smallest and the largest of its runs against the limit. A side that cannot be
//! run here is not a failure: its questions stay open, with the reason.
//!
//! Known limits: fewer than three runs of a side make wide intervals; the disk in memory of [`ground`] is gone after
//! an error or a signal that can be caught, but stays after SIGKILL.

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
    /// The good side; without one, the bad side is held against the limit itself.
    pub to: Option<&'static str>,
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

/// Level of the intervals.
const LEVEL: f64 = 0.95;
/// Without resampling: resamples of three values are too often equal.
const DRAWS: u32 = 0;

/// A side with its runs.
#[derive(Clone, Debug)]
pub struct SideResult {
    pub side: &'static Side,
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

/// The results of an incident on the running kernel.
#[derive(Clone, Debug)]
pub struct LiveResult {
    /// Its name.
    pub incident: String,
    /// The running kernel.
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
            let side = if of == row { Some(answer.question.of) } else { answer.question.to.filter(|_| to == row) }?;
            let side = self.sides.iter().find(|known| known.side.id == side)?;
            let values = side.values(answer.question.metric);
            (!values.is_empty()).then(|| super::mean(values.into_iter()))
        })
    }
}

/// A run request of a side, with one run. Memory disks have to be there already.
fn request(side: &Side, grounds: &Grounds) -> Result<RunRequest, String> {
    let words = words(side, grounds)?;
    let request = run::asked(&words, &World::empty()).map_err(|problems| {
        let messages: Vec<&str> = problems.list.iter().map(|problem| problem.message.as_str()).collect();
        messages.join("; ")
    })?;
    let keep = side.trace.then(|| Keep {
        directory: std::path::PathBuf::new(),
        asked: false,
        trace: Some(Level::default()),
        blind: false,
    });
    Ok(RunRequest { keep, ..*request })
}

/// The words behind `iowhy run`.
fn words(side: &Side, grounds: &Grounds) -> Result<Vec<String>, String> {
    let (target, allow) = match side.ground {
        Site::Memory { filesystem } => {
            let disk = grounds.memory(filesystem)?;
            (disk.name(), Some((disk.folder(), disk.target())))
        }
        Site::Model(_) | Site::Tuned(..) => (String::new(), None),
    };
    let mut words: Vec<String> = side.job.split_whitespace().map(|word| word.replace("{}", &target)).collect();
    words.extend(["--on".to_owned(), "live".to_owned()]);
    if let Some(disk) = side.ground.disk() {
        words.push(format!("--disk={disk}"));
    }
    if let Some((folder, target)) = allow {
        words.push(format!("--allow-write={}", target.display()));
        words.extend(folder.map(|folder| format!("--dir={}", folder.display())));
    }
    Ok(words)
}

/// Runs what the running kernel can show of an incident. `progress` gets the number of runs done, and of all.
/// Nothing if the incident has no such part.
pub fn run(simulated: &IncidentResult, how: How, progress: &dyn Fn(usize, usize)) -> Option<LiveResult> {
    let live = of(&simulated.incident.id)?;
    let chosen: Vec<&'static Side> = live.sides.iter().filter(|side| side.quick || !how.quick).collect();
    let mut grounds = Grounds::default();
    let mut interrupted = false;
    let mut sides: Vec<SideResult> = Vec::new();
    for side in chosen {
        let mut result = SideResult { side, command: String::new(), runs: Vec::new(), refused: None };
        if let Site::Memory { filesystem } = side.ground {
            result.refused = grounds.make(filesystem).err();
        }
        match words(side, &grounds) {
            Ok(words) => result.command = format!("run {}", words.join(" ")),
            Err(message) => result.refused = Some(message),
        }
        sides.push(result);
    }
    let begun = Instant::now();
    let (arms, runs) = (sides.len(), how.runs);
    let experiment = Experiment { name: "order of live runs", seed: 1, arms, warm_up: 0, blocks: u64::from(runs) };
    let most = arms * runs as usize;
    let mut done = 0;
    let late = |_: &Vec<SideResult>, block: u64| {
        block >= 2 && begun.elapsed() / block as u32 * (block as u32 + 1) > how.budget
    };
    let _ = experiment.run(&mut sides, late, |sides, slot| {
        progress(done, most);
        done += 1;
        let result = &mut sides[slot.variant];
        if result.refused.is_some() {
            return ControlFlow::Continue(());
        }
        match one(result.side, &grounds, slot.seed) {
            Ok((metrics, ended)) => {
                interrupted |= ended;
                result.runs.extend(metrics);
            }
            Err(message) => result.refused = Some(message),
        }
        if interrupted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    progress(most, most);
    let asked = live.questions.iter().filter(|question| sides.iter().any(|side| side.side.id == question.of));
    let answers = asked.filter(|question| !how.quick || has(&sides, question.to)).map(|question| {
        let of = sides.iter().find(|side| side.side.id == question.of);
        let to = question.to.and_then(|to| sides.iter().find(|side| side.side.id == to));
        let (published, simulated) = beside(simulated, question);
        Answer { published, simulated, ..answer(question, of, to) }
    });
    Some(LiveResult {
        incident: simulated.incident.id.clone(),
        kernel: on_kernel::machine::kernel(),
        answers: answers.collect(),
        sides,
        not_shown: live.not_shown,
        interrupted,
    })
}

fn has(sides: &[SideResult], id: Option<&str>) -> bool {
    id.is_none_or(|id| sides.iter().any(|side| side.side.id == id))
}

/// The metrics of a run, none if it was cut short, and whether a signal ended it.
type One = (Option<BTreeMap<String, f64>>, bool);

/// Makes one run of a side.
fn one(side: &Side, grounds: &Grounds, seed: u64) -> Result<One, String> {
    let request = RunRequest { seed, ..request(side, grounds)? };
    let _held = match (side.held, side.ground) {
        (ForeignPages::Pages, Site::Memory { filesystem }) => {
            Some(grounds.memory(filesystem)?.hold().map_err(|error| format!("cannot hold pages: {error}"))?)
        }
        _ => None,
    };
    let executed = run::execute(&request, &|_, _| {});
    if let Some((_, refusal)) = executed.refused.first() {
        return if executed.interrupted { Ok((None, true)) } else { Err(refusal.to_string()) };
    }
    if executed.interrupted {
        return Ok((None, true));
    }
    let Some(run) = executed.runs.into_iter().next() else { return Err("no run was made".to_owned()) };
    let record = run.record;
    if record.failed {
        return Err(record.notes.first().map_or("calls failed".to_owned(), |note| note.problem.message.clone()));
    }
    let mut metrics: BTreeMap<String, f64> = record.metrics.into_iter().collect();
    let Some(live) = record.live else { return Err("no run was made on the running kernel".to_owned()) };
    if let Some(requests) = live.traced.as_ref().map(|traced| traced.requests) {
        let of_trace = [
            ("data_reads_of_4k_pct", requests.small_pct()),
            ("device_idle_pct", requests.idle_pct()),
            ("mean_read_kib", requests.mean_kib()),
            ("metadata_reads", Some(requests.metadata_reads as f64)),
            ("data_reads", Some(requests.data_reads as f64)),
        ];
        metrics.extend(of_trace.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    }
    Ok((Some(metrics), false))
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
    let Some(good) = question.to else {
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
    };
    let goods = to.map(|to| to.values(question.metric)).unwrap_or_default();
    if values.is_empty() || goods.is_empty() {
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
