//! Where a metric changed over a history of runs.
//!
//! A series is one metric of one job in one place on one machine, a value for each run. Its change points come from
//! [`iowhy_stats::change_points`]; changes smaller than the least that matters are taken out again, the smallest
//! first. Runs count as independent unless their order contradicts it
//! ([`adaptive`](iowhy_stats::change_points::adaptive)). Over all series together p-values are adjusted (Benjamini &
//! Hochberg): of the series reported as changed, no more than alpha are expected not to. The newest segment may drift:
//! Mann and Kendall's test of its innovations, so that values that merely resemble their neighbours do not count as
//! drift (pre-whitening, von Storch 1995).
//!
//! A change has the interval of the ratio of both means (Welch's t on the difference, divided by the mean before). It
//! takes the place for granted, which was looked for in the same data, so it is a little too narrow.
//!
//! Limits: a series must be long enough for its most extreme split to be rare among random orders: ten runs at 1 %. At
//! smaller alphas, t-tests judge short series, and take their values to be normal; so do windows, of any length.

use rayon::prelude::*;
use statrs::distribution::{ContinuousCDF, StudentsT};

use iowhy_stats::change_points::{self, ChangePoint, Neighbours, Windows, innovations};
use iowhy_stats::metric::{Group, HEADLINES, Metric};
use iowhy_stats::{Better, Method, drift, multiple};

pub mod read;
pub mod report;

/// A value of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The run; empty if it has no name.
    pub run_id: String,
    /// When it began, ns since 1970; 0 if unknown.
    pub started_ns: u64,
    /// Its value, finite.
    pub value: f64,
}

/// One metric of one job in one place on one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Which metric.
    pub metric: Metric,
    /// Which machine: a hash, or a name from a file; empty if unknown.
    pub machine: String,
    /// The job; empty if unknown.
    pub job: String,
    /// Where the job ran: `live`, a simulated stack, a file.
    pub place: String,
    /// Values in the order of time.
    pub points: Vec<Point>,
    /// Values that were not finite, and were left out.
    pub left_out: usize,
    /// Machines of its runs, if they are several.
    pub machines: usize,
}

/// How changes are looked for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Search {
    /// Windows and t-tests, as Hunter.
    Windowed,
    /// The full energy statistic.
    EDivisive,
    /// The energy statistic with the end fixed.
    Fast,
}

/// Words of the searches and what they are.
pub const SEARCHES: &[(&str, Search, &str)] = &[
    ("windowed", Search::Windowed, "windows of 50 runs and t-tests (Hunter; raises more false alarms than alpha)"),
    ("e-divisive", Search::EDivisive, "energy statistic over all places and ends, permutation test"),
    ("fast", Search::Fast, "energy statistic with the end fixed, permutation test, n log n"),
];

/// The longest series for which the full statistic is the default.
const FULL_UP_TO: usize = 1_000;

impl Search {
    pub fn word(self) -> &'static str {
        SEARCHES.iter().find(|(_, search, _)| *search == self).map_or("", |(word, ..)| word)
    }
}

/// Settings of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The search; by default by the length of the series.
    pub search: Option<Search>,
    /// Largest share of stable series in which a change is found.
    pub alpha: f64,
    /// Least change that matters, percent.
    pub min_change_pct: f64,
    /// Least runs between changes.
    pub min_segment: usize,
    /// Seed of random orders.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { search: None, alpha: 0.01, min_change_pct: 1.0, min_segment: 3, seed: 1 }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The first value after it.
    pub index: usize,
    /// The run of that value.
    pub run_id: String,
    /// When that run began.
    pub started_ns: u64,
    /// From the mean before to the mean after, percent; NaN from zero.
    pub change_pct: f64,
    /// Its interval at the level 1 - alpha; infinite where the segments bound nothing.
    pub ci_pct: (f64, f64),
    /// Its p, not adjusted.
    pub p: f64,
    /// Mean of the segment before.
    pub before: f64,
    /// Mean of the segment after.
    pub after: f64,
    /// Whether it is a worsening.
    pub worse: bool,
}

/// A slow change of the newest segment.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Slope {
    /// The first value of the segment.
    pub from: usize,
    /// Its p, not adjusted.
    pub p: f64,
    /// Change from one run to the next.
    pub slope: f64,
    /// Change over the segment in percent of its mean.
    pub change_pct: f64,
    /// Whether it is a worsening.
    pub worse: bool,
}

/// A remark about a series that its reader should know.
#[derive(Clone, Debug, PartialEq)]
pub enum Warning {
    /// It has too few values for any test.
    TooShort {
        /// Values it takes.
        least: usize,
    },
    /// Its runs come from several machines.
    MixedMachines {
        /// How many.
        machines: usize,
    },
    /// Values were not finite and were left out.
    LeftOut {
        /// How many.
        values: usize,
    },
    /// It would change if it were the only series, but among this number of series such a p comes about by chance.
    OneOfMany {
        /// Series tested.
        series: usize,
    },
}

impl Warning {
    /// A word for programs.
    pub fn word(&self) -> &'static str {
        match self {
            Warning::TooShort { .. } => "too-short",
            Warning::MixedMachines { .. } => "mixed-machines",
            Warning::LeftOut { .. } => "left-out",
            Warning::OneOfMany { .. } => "one-of-many",
        }
    }

    /// The message.
    pub fn text(&self) -> String {
        match self {
            Warning::TooShort { least } => {
                format!("too short to say: a change cannot be seen in fewer than {least} runs")
            }
            Warning::MixedMachines { machines } => format!("runs of {machines} machines are mixed"),
            Warning::LeftOut { values: 1 } => "one value is not finite and was left out".to_owned(),
            Warning::LeftOut { values } => format!("{values} values are not finite and were left out"),
            Warning::OneOfMany { series } => {
                format!("a change that would count alone does not among {series} series: one such is chance")
            }
        }
    }

    /// The advice.
    pub fn next(&self) -> &'static str {
        match self {
            Warning::TooShort { .. } => "make more runs",
            Warning::MixedMachines { .. } => "look at each machine by itself",
            Warning::LeftOut { .. } => "see why those runs failed",
            Warning::OneOfMany { .. } => {
                "ask for this metric alone (--metric) before you looked at it, or make more runs"
            }
        }
    }
}

/// A series with its findings.
#[derive(Clone, Debug, PartialEq)]
pub struct Traced {
    pub series: Series,
    /// How changes were looked for.
    pub search: Search,
    /// How its values were taken to depend on those before them.
    pub neighbours: Neighbours,
    /// p of there being any change; 1 if it could not be tested.
    pub p: f64,
    /// The same over all series.
    pub p_adjusted: f64,
    /// Whether it was long enough.
    pub tested: bool,
    /// Its changes in order.
    pub changes: Vec<Change>,
    /// Drift of what follows the last of them.
    pub drift: Option<Slope>,
    pub warnings: Vec<Warning>,
}

/// The verdict on a history.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// In some series the newest segment is worse than the one before.
    Worse,
    /// In none.
    Fine,
    /// No series is long enough to say.
    TooShort,
}

impl Verdict {
    /// As JSON has it.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Worse => "worse",
            Verdict::Fine => "fine",
            Verdict::TooShort => "too-short",
        }
    }
}

/// All series.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// As asked.
    pub settings: Settings,
    /// Random orders of each test; 0 if there were none.
    pub permutations: u32,
    /// Findings, in the order of the series.
    pub series: Vec<Traced>,
    pub verdict: Verdict,
}

/// The methods used.
pub const METHODS: &[&Method] = &[&change_points::METHOD, &drift::METHOD, &multiple::METHOD];

/// The series of groups: those of the metrics asked for, or of the headlines. `place` is the place of a run.
pub fn of_groups(groups: &[Group], metrics: &[String], place: &dyn Fn(&str) -> String) -> Vec<Series> {
    let mut all = Vec::new();
    for group in groups {
        for column in &group.columns {
            let name = column.metric.name.as_str();
            let asked = if metrics.is_empty() { HEADLINES.contains(&name) } else { metrics.iter().any(|m| m == name) };
            if !asked {
                continue;
            }
            let point = |(nr, value): (usize, &f64)| {
                let run = column.runs.get(nr).and_then(|run| group.runs.get(*run));
                let run_id = run.map_or(String::new(), |run| run.run_id.clone());
                Point { run_id, started_ns: run.map_or(0, |run| run.started_ns), value: *value }
            };
            let mut machines: Vec<&str> = group.runs.iter().map(|run| run.machine.as_str()).collect();
            machines.sort_unstable();
            machines.dedup();
            let newest = group.runs.last();
            all.push(Series {
                metric: column.metric.clone(),
                machine: newest.map_or(String::new(), |run| run.machine.clone()),
                job: newest.map_or(String::new(), |run| run.job.clone()),
                place: newest.map_or(group.label.clone(), |run| place(&run.run_id)),
                points: column.values.iter().enumerate().map(point).collect(),
                left_out: column.left_out,
                machines: machines.len(),
            });
        }
    }
    all
}

/// Looks for changes in each series.
pub fn trace(series: Vec<Series>, settings: &Settings) -> History {
    let least = least_values(settings);
    let tested = series.iter().filter(|series| series.points.len() >= least).count();
    // A p must be able to get below alpha over all series.
    let most = (2.0 / settings.alpha).max(9_999.0);
    let permutations = (2.0 * tested as f64 / settings.alpha).clamp(999.0, most) as u32;
    let mut traced: Vec<Traced> =
        series.into_par_iter().map(|series| one(series, settings, least, permutations)).collect();
    // Only tested series count.
    let p: Vec<f64> = traced.iter().filter(|traced| traced.tested).map(|traced| traced.p).collect();
    let adjusted = multiple::benjamini_hochberg(&p);
    for (traced, p) in traced.iter_mut().filter(|traced| traced.tested).zip(adjusted) {
        traced.p_adjusted = p;
        if p > settings.alpha && !traced.changes.is_empty() {
            traced.changes.clear();
            traced.warnings.push(Warning::OneOfMany { series: tested });
        }
        traced.drift = slope(&traced.series, traced.changes.last().map_or(0, |change| change.index), settings);
    }
    let worse = |traced: &Traced| traced.changes.last().is_some_and(|change| change.worse);
    let verdict = match traced.iter().any(worse) {
        true => Verdict::Worse,
        false if tested == 0 => Verdict::TooShort,
        false => Verdict::Fine,
    };
    let drawn = traced.iter().any(|traced| traced.tested && traced.search != Search::Windowed);
    History { settings: settings.clone(), permutations: if drawn { permutations } else { 0 }, series: traced, verdict }
}

/// The fewest values among whose orders the most extreme split in the middle, and its mirror image, are rarer than
/// alpha, or than 1 %: at smaller alphas t-tests take over. Windows have as few as Otava's.
fn least_values(settings: &Settings) -> usize {
    if settings.search == Some(Search::Windowed) {
        return 4.max(2 * settings.min_segment);
    }
    let mut n = 4;
    loop {
        let half = n / 2;
        let orders = (1..=half).fold(1.0, |orders, k| orders * (n - half + k) as f64 / k as f64);
        if n >= 2 * settings.min_segment && 2.0 / orders <= settings.alpha.max(0.01) {
            return n;
        }
        n += 1;
    }
}

/// Tests one series.
fn one(series: Series, settings: &Settings, least: usize, permutations: u32) -> Traced {
    let values: Vec<f64> = series.points.iter().map(|point| point.value).collect();
    let by_length = if values.len() <= FULL_UP_TO { Search::EDivisive } else { Search::Fast };
    let search = settings.search.unwrap_or(by_length);
    let tested = values.len() >= least;
    let none = (1.0, Vec::new(), Neighbours::Independent);
    let (p, points, neighbours) = if tested { find(&values, search, settings, permutations) } else { none };
    let mut warnings = Vec::new();
    if !tested {
        warnings.push(Warning::TooShort { least });
    }
    if series.machines > 1 {
        warnings.push(Warning::MixedMachines { machines: series.machines });
    }
    if series.left_out > 0 {
        warnings.push(Warning::LeftOut { values: series.left_out });
    }
    let changes = changes(&series, &values, &points, settings);
    Traced { series, search, neighbours, p, p_adjusted: p, tested, changes, drift: None, warnings }
}

fn find(values: &[f64], search: Search, settings: &Settings, permutations: u32) -> (f64, Vec<ChangePoint>, Neighbours) {
    let random = change_points::Settings {
        max_p: settings.alpha,
        permutations,
        min_segment: settings.min_segment,
        seed: settings.seed,
        ..change_points::Settings::default()
    };
    let method = match search {
        Search::EDivisive => change_points::e_divisive,
        Search::Fast => change_points::end_anchored,
        Search::Windowed => {
            let windows = Windows { max_p: settings.alpha, min_segment: settings.min_segment, ..Windows::default() };
            let points = change_points::windowed(values, &windows);
            return (points.iter().fold(1.0, |p: f64, point| p.min(point.p)), points, Neighbours::Independent);
        }
    };
    let (found, neighbours) = change_points::adaptive(values, &random, method);
    (found.p, found.points, neighbours)
}

/// The points as changes, without those that do not matter: the smallest is taken out until none is too small.
fn changes(series: &Series, values: &[f64], points: &[ChangePoint], settings: &Settings) -> Vec<Change> {
    let mut points = points.to_vec();
    loop {
        let bound = |nr: usize| points.get(nr).map_or(values.len(), |point| point.index);
        let all: Vec<Change> = (0..points.len())
            .map(|nr| {
                let start = if nr == 0 { 0 } else { points[nr - 1].index };
                let (before, after) = (&values[start..bound(nr)], &values[bound(nr)..bound(nr + 1)]);
                change(series, points[nr], before, after, settings.alpha)
            })
            .collect();
        // A change from zero has no percentage, and matters.
        let size = |change: &Change| if change.change_pct.is_nan() { f64::INFINITY } else { change.change_pct.abs() };
        let smallest = (0..all.len()).min_by(|a, b| size(&all[*a]).total_cmp(&size(&all[*b])));
        match smallest {
            Some(nr) if size(&all[nr]) < settings.min_change_pct => points.remove(nr),
            _ => return all,
        };
    }
}

/// A change with its interval.
fn change(series: &Series, point: ChangePoint, before: &[f64], after: &[f64], alpha: f64) -> Change {
    let moments = |values: &[f64]| {
        let n = values.len() as f64;
        let mean = values.iter().map(|value| value / n).sum::<f64>();
        let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
        (mean, squares / (n - 1.0) / n, n)
    };
    let ((a, error_a, n), (b, error_b, m)) = (moments(before), moments(after));
    let percent = |ratio: f64| 100.0 * ratio;
    let (change_pct, ci_pct) = if a == 0.0 {
        (f64::NAN, (f64::NEG_INFINITY, f64::INFINITY))
    } else {
        let ratio = b / a;
        // The mean before is uncertain, too, and the ratio carries it on.
        let (part_a, part_b) = (error_a * ratio * ratio, error_b);
        let free = (part_a + part_b).powi(2) / (part_a * part_a / (n - 1.0) + part_b * part_b / (m - 1.0));
        let error = (part_a + part_b).sqrt() / a.abs();
        let far = match StudentsT::new(0.0, 1.0, free) {
            Ok(student) if error > 0.0 => error * student.inverse_cdf(1.0 - alpha / 2.0),
            // Segments without any spread.
            _ if error == 0.0 => 0.0,
            _ => f64::INFINITY,
        };
        // Below zero, larger numbers are nearer to it: a percentage is of the size of the mean before.
        let change = (b - a) / a.abs();
        (percent(change), (percent(change - far), percent(change + far)))
    };
    let at = &series.points[point.index];
    Change {
        index: point.index,
        run_id: at.run_id.clone(),
        started_ns: at.started_ns,
        change_pct,
        ci_pct,
        p: point.p,
        before: a,
        after: b,
        worse: series.metric.better.prefers(a, b),
    }
}

/// The drift of the values from `from` on, if there is one that matters.
fn slope(series: &Series, from: usize, settings: &Settings) -> Option<Slope> {
    let values: Vec<f64> = series.points[from..].iter().map(|point| point.value).collect();
    if values.len() < least_values(settings) {
        return None;
    }
    let p = drift::test(&innovations(&values))?.p;
    let drift = drift::test(&values)?;
    let mean = values.iter().map(|value| value / values.len() as f64).sum::<f64>();
    let change_pct = 100.0 * drift.change / mean.abs();
    let rises = if drift.slope > 0.0 { Better::Lower } else { Better::Higher };
    let worse = series.metric.better == rises;
    let counts = p <= settings.alpha && change_pct.abs() >= settings.min_change_pct;
    counts.then_some(Slope { from, p, slope: drift.slope, change_pct, worse })
}

#[cfg(test)]
mod tests;
