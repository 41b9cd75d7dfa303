//! Planted causes: how often explanations are right, found out by hiding causes from them.
//!
//! ```text
//! draw      none (20 %), one (60 %) or two (20 %) causes, each as often, then a job and a kernel with a disk that fit
//! make      both sides are run with different seeds, the causes on one of them, on which is drawn, too
//! material a cause that moves the time of an operation by less than 10 %, by itself or next to the other, is not a
//!           cause, and
//!           a pair of sides with an undecided verdict has nothing to explain: another case is drawn;
//!           two causes pull in one direction, for of two that do not, one is hidden by the other
//! hide      the explanation gets the events and nothing else: no word of kernels, policies, tunables or devices
//! score     one cause: is the first finding right? None: is there any? Two: are both among the findings?
//! ```
//! A finding is right if it is one of those the plant names: several where events cannot separate them (commands of one
//! size do not separate a slower start from a slower transfer). Everything follows from the seed.

pub mod page;
pub(crate) mod table;

use std::sync::atomic::{AtomicUsize, Ordering};

use iowhy_stack::event::{CallId, Event, EventSink, FileId, What};
use iowhy_stack::rng::Rng;
use iowhy_stack::sim;
use rayon::prelude::*;

use crate::incident::command::{plan_of_command, repetition};
use iowhy_compare::Verdict;
use iowhy_why::certainty;
use iowhy_why::delta::{Delta, time_per_operation};
use iowhy_why::digest::{Digest, Observer};
use iowhy_why::{Explanation, Side, Unit, explain};
pub use table::{BASES, Base, Change, PLANTS, Plant};

/// Change of the time for an operation that a cause has to make by itself, percent.
const MATERIAL_PCT: f64 = 10.0;
/// Draws until a case is found.
const TRIES: u32 = 160;
/// Draws with the same first cause.
const TRIES_EACH: u32 = 16;

/// Subject of a case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its number.
    pub nr: u32,
    /// The job's name.
    pub base: &'static str,
    /// The planted causes.
    pub plants: Vec<&'static Plant>,
    /// Both command lines, base first.
    pub lines: [String; 2],
    /// The causes found.
    pub found: Vec<&'static str>,
    pub explanation: Explanation,
}

impl Case {
    /// Whether the finding is one of those that a plant may be called.
    fn right(plant: &Plant, finding: &str) -> bool {
        plant.expected.contains(&finding)
    }

    /// The first finding is the only cause there is.
    pub fn first_right(&self) -> bool {
        self.plants.len() == 1 && self.found.first().is_some_and(|first| Case::right(self.plants[0], first))
    }

    /// Every cause is found.
    pub fn all_found(&self) -> bool {
        self.plants.iter().all(|plant| self.found.iter().any(|finding| Case::right(plant, finding)))
    }
}

/// Summary of the cases.
#[derive(Clone, Debug, Default)]
pub struct Score {
    /// In their order.
    pub cases: Vec<Case>,
    /// Drawn, but without a material effect, or not possible on that kernel.
    pub redrawn: u32,
}

impl Score {
    /// Cases with this number of causes.
    pub fn with(&self, causes: usize) -> impl Iterator<Item = &Case> {
        self.cases.iter().filter(move |case| case.plants.len() == causes)
    }

    /// Percent of the cases with this number of causes for which something holds; 100 without cases.
    pub fn pct(&self, causes: usize, holds: fn(&Case) -> bool) -> f64 {
        let all = self.with(causes).count();
        if all == 0 { 100.0 } else { 100.0 * self.with(causes).filter(|case| holds(case)).count() as f64 / all as f64 }
    }

    /// How often the first finding had each word, and how often it was a planted cause.
    pub fn reliability(&self) -> Vec<(&'static str, u32, u32)> {
        let first = |case: &Case| {
            let finding = case.explanation.findings.first()?;
            let right = case.plants.iter().any(|plant| plant.expected.contains(&finding.rule.name));
            Some((certainty::of(finding.confidence).word, right))
        };
        let firsts: Vec<(&str, bool)> = self.cases.iter().filter_map(first).collect();
        let of = |word: &certainty::Word| {
            let said = firsts.iter().filter(|(known, _)| *known == word.word);
            (word.word, said.clone().count() as u32, said.filter(|(_, right)| *right).count() as u32)
        };
        certainty::WORDS.iter().map(of).collect()
    }

    /// How often a plant was called something: plant, first finding, times; single causes, and none.
    pub fn confusions(&self) -> Vec<(String, String, u32)> {
        let mut counted = std::collections::BTreeMap::new();
        for case in self.cases.iter().filter(|case| case.plants.len() < 2) {
            let plant = case.plants.first().map_or("none", |plant| plant.name);
            let first = case.found.first().copied().unwrap_or("nothing");
            *counted.entry((plant.to_owned(), first.to_owned())).or_insert(0) += 1;
        }
        counted.into_iter().map(|((plant, found), n)| (plant, found, n)).collect()
    }
}

/// Events of a tracer that follows the workload only: calls on files by other processes are missing, and the work for
/// them has no owner.
struct Traced<'a> {
    inner: &'a mut Observer,
    outside: &'a [u32],
    calls: std::collections::BTreeSet<u32>,
}

impl EventSink for Traced<'_> {
    fn event(&mut self, event: &Event) {
        let outside = |file: FileId| self.outside.contains(&file.0);
        match event.what {
            What::CallStart { file, .. } if outside(file) => {
                self.calls.insert(event.call.0);
            }
            What::CallEnd { file, .. } if outside(file) => {
                self.calls.remove(&event.call.0);
            }
            What::Hit { file, .. } | What::Miss { file, .. } if outside(file) => {}
            _ if self.calls.contains(&event.call.0) => {
                self.inner.event(&Event { call: CallId::NONE, ..*event });
            }
            _ => self.inner.event(event),
        }
    }
}

/// A side as command line, with the files of it that do not belong to the workload.
#[derive(Clone, Debug)]
struct Line {
    text: String,
    /// Name of the job of another process.
    neighbour: bool,
}

fn digests(line: &Line, first: u32, runs: u32) -> Option<Vec<Digest>> {
    let words: Vec<String> = line.text.split_whitespace().map(str::to_owned).collect();
    let plan = plan_of_command(&words).ok()?;
    // The neighbour's job is the last one, and its file comes last.
    let nr_files = plan.job.workload.files().len() as u32;
    let outside: Vec<u32> = if line.neighbour { vec![nr_files.checked_sub(1)?] } else { Vec::new() };
    let mut digests = Vec::new();
    for nr in first..first + runs {
        let mut observer = Observer::default();
        let mut traced = Traced { inner: &mut observer, outside: &outside, calls: Default::default() };
        sim::run_with(&repetition(&plan, nr), &mut traced).ok()?;
        digests.push(observer.finish());
    }
    Some(digests)
}

/// By how much `b` takes longer for an operation (or, if negative, `a`), in percent of the shorter time.
fn change_pct(a: &[Digest], b: &[Digest]) -> f64 {
    let mean = |of: &[Digest]| of.iter().map(time_per_operation).sum::<f64>() / of.len().max(1) as f64;
    let (a, b) = (mean(a), mean(b));
    match () {
        () if a.min(b) <= 0.0 => 0.0,
        () if b > a => 100.0 * (b / a - 1.0),
        () => -100.0 * (a / b - 1.0),
    }
}

/// Makes the case of a number; it depends on the seed and the number alone.
fn case(seed: u64, nr: u32, redrawn: &AtomicUsize) -> Option<Case> {
    let mut rng = Rng::stream(seed ^ (u64::from(nr) << 32), "planted causes");
    let wanted = match rng.below(10) {
        0 | 1 => 0,
        2 | 3 => 2,
        _ => 1,
    };
    let mut first = &PLANTS[0];
    for nr_try in 0..TRIES {
        // A cause that is hard to place is tried for a while, so that it comes as often as others.
        if nr_try % TRIES_EACH == 0 {
            first = pick(&mut rng, PLANTS);
        }
        if let Some(case) = drawn(&mut rng, nr, first, wanted) {
            return Some(case);
        }
        redrawn.fetch_add(1, Ordering::Relaxed);
    }
    None
}

fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.below(from.len() as u64) as usize]
}

fn drawn(rng: &mut Rng, nr: u32, first: &'static Plant, wanted: usize) -> Option<Case> {
    let places: Vec<(&'static Base, &str, &str)> = BASES
        .iter()
        .flat_map(|base| base.places.iter().map(move |(on, disk)| (base, *on, *disk)))
        .filter(|(base, on, disk)| wanted == 0 || first.fits(base, on, disk))
        .collect();
    if places.is_empty() {
        return None;
    }
    let (base, on, disk) = *pick(rng, &places);
    let mut plants: Vec<(&'static Plant, &'static Change)> = Vec::new();
    while plants.len() < wanted {
        let plant = if plants.is_empty() {
            first
        } else {
            let goes = |plant: &&'static Plant| {
                plant.fits(base, on, disk) && plants.iter().all(|(other, _)| other.goes_with(plant))
            };
            let free: Vec<&'static Plant> = PLANTS.iter().filter(goes).collect();
            if free.is_empty() {
                return None;
            }
            *pick(rng, &free)
        };
        plants.push((plant, pick(rng, plant.changes)));
    }
    let line = |with: &[bool]| {
        let mut line = table::Draft::new(base, on, disk);
        for ((_, change), on) in plants.iter().zip(with) {
            line.apply(change, *on);
        }
        Line { text: line.text(), neighbour: line.neighbour }
    };
    // Every case has draws of its own.
    let first = rng.below(1 << 24) as u32;
    let runs = base.runs;
    let none = line(&vec![false; plants.len()]);
    let all = line(&vec![true; plants.len()]);
    let clean = digests(&none, first, runs)?;
    let planted = digests(&all, first + runs, runs)?;
    let (alone_runs, marginal) = (3, plants.len() > 1);
    for one in (0..plants.len()).filter(|_| marginal) {
        let only: Vec<bool> = (0..plants.len()).map(|nr| nr == one).collect();
        let without: Vec<bool> = only.iter().map(|with| !with).collect();
        let alone = digests(&line(&only), first + runs, alone_runs)?;
        let others = digests(&line(&without), first + runs, alone_runs)?;
        let (by_itself, beside) = (change_pct(&clean, &alone), change_pct(&others, &planted));
        let together = change_pct(&clean, &planted).signum();
        if together * by_itself < MATERIAL_PCT || together * beside < MATERIAL_PCT {
            return None;
        }
    }
    if !plants.is_empty() && change_pct(&clean, &planted).abs() < MATERIAL_PCT {
        return None;
    }
    let base_is_planted = rng.below(2) == 1;
    let side = |label: &str, runs: Vec<Digest>| Side { label: label.to_owned(), runs, ..Side::default() };
    let (a, b, lines) = if base_is_planted {
        (side("A", planted), side("B", clean), [all.text, none.text])
    } else {
        (side("A", clean), side("B", planted), [none.text, all.text])
    };
    let explanation = explain(&a, &b, None);
    if !plants.is_empty() && matches!(explanation.verdict, Verdict::Same | Verdict::Inconclusive) {
        return None;
    }
    Some(Case {
        nr,
        base: base.name,
        plants: plants.into_iter().map(|(plant, _)| plant).collect(),
        lines,
        found: explanation.findings.iter().map(|finding| finding.rule.name).collect(),
        explanation,
    })
}

/// Makes one case.
pub fn one(seed: u64, nr: u32) -> Option<Case> {
    case(seed, nr, &AtomicUsize::new(0))
}

/// A run of any job at any of its places, with up to two causes in it.
fn any(rng: &mut Rng, runs: u32) -> Option<Vec<Digest>> {
    let base = pick(rng, BASES);
    let (on, disk) = *pick(rng, base.places);
    let mut draft = table::Draft::new(base, on, disk);
    for _ in 0..rng.below(3) {
        let fits: Vec<&Plant> = PLANTS.iter().filter(|plant| plant.fits(base, on, disk)).collect();
        if !fits.is_empty() {
            let plant = *pick(rng, &fits);
            draft.apply(pick(rng, plant.changes), true);
        }
    }
    let line = Line { text: draft.text(), neighbour: draft.neighbour };
    digests(&line, rng.below(1 << 24) as u32, runs)
}

/// Claims that are wrong in every explanation. `scale`: the headline's times over those of an operation.
fn broken(explanation: &Explanation, scale: f64) -> Vec<String> {
    let mut broken = Vec::new();
    let mut hold = |holds: bool, what: &str, value: f64| {
        if !holds {
            broken.push(format!("{what}: {value}"));
        }
    };
    let sum: f64 = explanation.findings.iter().map(|finding| finding.share_pct).sum();
    hold(sum <= 100.001, "the shares sum to more than the whole", sum);
    let unexplained = explanation.unexplained_pct;
    hold((0.0..=100.0).contains(&unexplained), "the unexplained part is not a share", unexplained);
    explanation.time_ns.iter().for_each(|ns| hold(ns.is_finite() && *ns >= 0.0, "the time is none", *ns));
    for layer in &explanation.layers {
        hold(layer.a.is_finite() && layer.b.is_finite(), layer.layer, layer.delta());
    }
    for finding in &explanation.findings {
        let name = finding.rule.name;
        hold((0.0..=100.0).contains(&finding.share_pct), &format!("{name}: share"), finding.share_pct);
        hold((0.0..=1.0).contains(&finding.confidence), &format!("{name}: confidence"), finding.confidence);
        hold(!finding.claim.contains("NaN"), &format!("{name}: {}", finding.claim), f64::NAN);
        hold(!finding.claim.contains("inf "), &format!("{name}: {}", finding.claim), f64::INFINITY);
        for evidence in &finding.evidence {
            let what = format!("{name}: {}", evidence.what);
            let of_operation = evidence.unit == Unit::Ns && evidence.what.ends_with("an operation");
            for (value, time) in [evidence.a, evidence.b].into_iter().zip(explanation.time_ns.map(|ns| ns / scale)) {
                hold(value.is_finite() && value >= 0.0, &what, value);
                hold(!of_operation || value <= 1.001 * time, &format!("{what} (of {time})"), value);
                hold(evidence.unit != Unit::Share || value <= 1.001, &what, value);
            }
        }
    }
    broken
}

/// Explains `count` pairs of sides, most of which have nothing to do with each other, and returns the mistakes in the
/// explanations. Runs are made once and paired many times. `done` is called after each run.
pub fn invariants(seed: u64, count: u32, done: &(dyn Fn() + Sync)) -> Vec<String> {
    let sides = (count / 8).isqrt().clamp(6, 96);
    let made = |nr: u32| {
        let side = any(&mut Rng::stream(seed ^ (u64::from(nr) << 32), "any run"), 3);
        done();
        side
    };
    let runs: Vec<Vec<Digest>> = (0..sides).into_par_iter().filter_map(made).collect();
    let pair = |nr: u32| {
        let mut rng = Rng::stream(seed ^ (u64::from(nr) << 32), "pair of runs");
        let mut side = |label: &str| {
            let of = pick(&mut rng, &runs);
            let nr = 1 + rng.below(of.len() as u64) as usize;
            Side { label: label.to_owned(), runs: of[..nr].to_vec(), ..Side::default() }
        };
        let (a, b) = (side("A"), side("B"));
        let said = broken(&explain(&a, &b, None), Delta::new(&a, &b).scale());
        said.into_iter().map(|what| format!("pair {nr}: {what}")).collect::<Vec<String>>()
    };
    (0..count).into_par_iter().flat_map_iter(pair).collect()
}

/// Makes `count` cases. `done` is called after each.
pub fn run(seed: u64, count: u32, done: &(dyn Fn() + Sync)) -> Score {
    let redrawn = AtomicUsize::new(0);
    let made = |nr: u32| {
        let case = case(seed, nr, &redrawn);
        done();
        case
    };
    let cases = (0..count).into_par_iter().filter_map(made).collect();
    Score { cases, redrawn: redrawn.into_inner() as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITES_BACK: &str = "linux-4.4,elevator=deadline,writeback.dirty_background_ratio=0,\
                               writeback.background_stop_ratio=0";

    /// Explains the difference of two command lines; with `neighbour`, the last job of a side belongs to another
    /// process, and its calls are not seen.
    fn explain_traced(runs: u32, sides: [(&str, bool); 2]) -> Explanation {
        let side = |nr: u32| {
            let (text, neighbour) = sides[nr as usize];
            let line = Line { text: text.to_owned(), neighbour };
            Side { runs: digests(&line, nr * runs, runs).expect("it runs"), ..Side::default() }
        };
        explain(&side(0), &side(1), None)
    }

    #[test]
    fn somebody_elses_job_beside_the_workload_is_found() {
        for (own, beside, on) in [
            (
                "--rw=randread --bs=4k --size=1g --number_ios=60",
                "--rw=randread --bs=64k",
                "linux-4.4,elevator=deadline",
            ),
            ("--rw=randread --bs=16k --size=1g --number_ios=60", "--rw=randread --bs=4k", "linux-6.18"),
            ("--rw=randread --bs=16k --size=1g --number_ios=60", "--rw=randwrite --bs=64k", "linux-6.18"),
            ("--rw=randread --bs=16k --size=1g --number_ios=60", "--rw=randwrite --bs=64k --direct=0", WRITES_BACK),
        ] {
            let place = format!("--on sim:{on} --disk sata-2014");
            let alone = format!("run fio --name=j {own}");
            let other =
                format!("--name=beside --filename=beside --direct=1 {beside} --size=2g --time_based --runtime=5");
            let together = format!("{alone} {other} {place}");
            let alone = format!("{alone} {place}");
            let found = explain_traced(3, [(&alone, false), (&together, true)]);
            assert_eq!(
                found.findings.first().map(|finding| finding.rule.name),
                Some("noisy-neighbour"),
                "{own}: {found:#?}"
            );
            // What takes the device as much on both sides makes no difference.
            let same = explain_traced(3, [(&together, true), (&together, true)]);
            assert!(same.findings.iter().all(|finding| finding.rule.name != "noisy-neighbour"), "{own}: {same:#?}");
        }
    }

    #[test]
    fn explanations_of_any_two_sides_keep_to_what_can_be() {
        let broken = super::invariants(1, 400, &|| {});
        assert!(broken.is_empty(), "{} of them: {:#?}", broken.len(), &broken[..broken.len().min(20)]);
    }
}
