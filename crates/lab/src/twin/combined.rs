//! Several safe settings at once: the combinations with which the recorded calls take least time.
//!
//! ```text
//! descent   from the settings as they are, one setting after the other is given the value that saves most, the
//!           nearest of those that save as much; again until none saves more
//! pruned    what the rest saves without a setting, it is not changed for
//! distinct  further combinations, the best first, that are far from those before: another word, or a number four
//!           times as large, of a setting that matters; then those at half or twice a number that are nearly as good
//! ```
//! Source: coordinate descent. Known limits: two settings that help only together are not found; the search draws the
//! device's times once, and only what is chosen is simulated with all draws.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::change::{self, Knob};
use super::{Twin, agree, percentile};
use iowhy_stack::outcome::Plan;

/// Simulated events of a search, about; and runs at least.
const EVENTS: u64 = 30_000_000;
const LEAST_RUNS: u64 = 40;
/// Further savings from which on a value is another one, percent of the time.
const MORE: f64 = 0.5;
/// Differences that do not matter, percent of the time that is left.
pub(crate) const ALIKE: f64 = 1.0;
/// Those that the twin may have wrong, likewise.
const NEARLY: f64 = 20.0;
/// Rounds of the descent.
const ROUNDS: usize = 3;
/// A number is far from another one that is this many times as large, and near it if it is half of that.
const FAR: f64 = 4.0;

/// Whether a saving is as good as another one, to a percentage of the time that is left; percent.
pub(crate) fn as_good(saves: f64, other: f64, but_for: f64) -> bool {
    100.0 - saves <= (100.0 - other) * (1.0 + but_for / 100.0)
}

/// Settings together, and what they save.
#[derive(Clone, Debug, PartialEq)]
pub struct Combination {
    /// Names and values as a machine has them.
    pub settings: Vec<(&'static str, String)>,
    /// Share of the time, percent, and the 5th and the 95th percentile of it.
    pub saves_pct: f64,
    pub saves_ci_pct: [f64; 2],
}

/// Values by knob; those that are not there stay.
type Point = BTreeMap<usize, usize>;

struct Search<'a> {
    twin: &'a Twin,
    knobs: Vec<Knob>,
    known: BTreeMap<Point, f64>,
    left: u64,
}

impl Search<'_> {
    fn plan(&self, point: &Point) -> Option<Plan> {
        let mut plan = self.twin.plan.clone();
        for (knob, value) in point {
            let knob = &self.knobs[*knob];
            plan.stack.set(knob.key, knob.values[*value].1).ok()?;
        }
        Some(plan)
    }

    /// Simulates points that are not known yet, as many as may be.
    fn look(&mut self, mut points: Vec<Point>) {
        points.retain(|point| !self.known.contains_key(point));
        points.truncate(self.left as usize);
        self.left -= points.len() as u64;
        let one = |point: Point| {
            let run = self.plan(&point).and_then(|plan| agree::run(&plan, &self.twin.recorded, 1).ok());
            // What the simulator refuses is not chosen.
            let saved = run.map_or(f64::NEG_INFINITY, |run| self.twin.saved(0, &run));
            (point, saved)
        };
        let seen: Vec<(Point, f64)> = points.into_par_iter().map(one).collect();
        self.known.extend(seen);
    }

    fn saved(&self, point: &Point) -> f64 {
        if point.is_empty() { 0.0 } else { self.known.get(point).copied().unwrap_or(f64::NEG_INFINITY) }
    }

    /// The point with one knob at each of its values, and as it is.
    fn around(&self, point: &Point, knob: usize) -> Vec<Point> {
        let mut own: Vec<Point> = vec![point.clone()];
        own[0].remove(&knob);
        for value in 0..self.knobs[knob].values.len() {
            let mut other = point.clone();
            other.insert(knob, value);
            own.push(other);
        }
        own
    }

    /// How far the value of a knob is from another one, in doublings; words are far.
    fn distance(&self, knob: usize, a: Option<&usize>, b: Option<&usize>) -> f64 {
        let of = &self.knobs[knob];
        let value = |at: Option<&usize>| at.map_or(of.now.as_str(), |at| of.values[*at].0);
        let number = |at| value(at).parse::<f64>().ok();
        match (number(a), number(b)) {
            (Some(a), Some(b)) => ((a + 1.0) / (b + 1.0)).log2().abs(),
            _ if value(a) == value(b) => 0.0,
            _ => FAR.log2(),
        }
    }

    fn descend(&mut self) -> Point {
        let mut best = Point::new();
        for _ in 0..ROUNDS {
            let before = best.clone();
            for knob in 0..self.knobs.len() {
                let around = self.around(&best, knob);
                self.look(around.clone());
                let most = around.iter().map(|point| self.saved(point)).fold(f64::NEG_INFINITY, f64::max);
                if most < self.saved(&best) + MORE {
                    continue;
                }
                let near = |point: &&Point| self.distance(knob, point.get(&knob), None);
                let enough = around.iter().filter(|point| as_good(self.saved(point), most, ALIKE));
                if let Some(found) = enough.min_by(|a, b| near(a).total_cmp(&near(b))) {
                    best = found.clone();
                }
            }
            if best == before {
                break;
            }
        }
        self.pruned(best)
    }

    fn pruned(&mut self, mut point: Point) -> Point {
        for knob in point.clone().into_keys() {
            let mut without = point.clone();
            without.remove(&knob);
            self.look(vec![without.clone()]);
            if as_good(self.saved(&without), self.saved(&point), ALIKE) {
                point = without;
            }
        }
        point
    }

    /// Knobs with which the time of the calls changes.
    fn that_matter(&self) -> Vec<usize> {
        let spread = |knob: &usize| {
            let single = self.known.iter().filter(|(point, _)| point.len() == 1 && point.contains_key(knob));
            single.map(|(_, saved)| saved).filter(|saved| saved.is_finite()).any(|saved| saved.abs() > ALIKE)
        };
        (0..self.knobs.len()).filter(spread).collect()
    }

    /// Points far from one another, the best first.
    fn distinct(&self, best: Point, most: usize) -> Vec<Point> {
        let matter = self.that_matter();
        let apart = |a: &Point, b: &Point, times: f64| {
            matter.iter().any(|knob| self.distance(*knob, a.get(knob), b.get(knob)) >= times.log2() - 0.1)
        };
        let most_saved = if best.is_empty() { f64::INFINITY } else { self.saved(&best) };
        let mut chosen: Vec<Point> = Vec::new();
        let mut rest: Vec<(&Point, f64)> = self.known.iter().map(|(point, saved)| (point, *saved)).collect();
        // Of those that save as much the one with fewer changes.
        rest.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.len().cmp(&b.0.len())));
        chosen.extend((!best.is_empty()).then_some(best));
        for (times, least) in [(FAR, f64::NEG_INFINITY), (FAR / 2.0, most_saved)] {
            for (point, saved) in &rest {
                let new = chosen.iter().chain([&Point::new()]).all(|known| apart(known, point, times));
                if chosen.len() < most && saved.is_finite() && new && as_good(*saved, least, NEARLY) {
                    chosen.push((*point).clone());
                }
            }
        }
        chosen
    }
}

impl Twin {
    /// Up to `most` combinations of safe settings that differ from one another, the best first; `possible` says whether
    /// the machine has a value of a setting. A twin that does not agree yields some, too, whose savings are guesses.
    pub fn combinations(&self, possible: &dyn Fn(&str, &str) -> bool, most: usize) -> Vec<Combination> {
        let mut knobs = change::knobs(&self.plan, self.recorded.own);
        knobs.iter_mut().for_each(|knob| knob.values.retain(|(shown, _)| possible(knob.name, shown)));
        knobs.retain(|knob| !knob.values.is_empty());
        let left = (EVENTS / self.runs[0].digest.nr_events.max(1)).max(LEAST_RUNS);
        let mut search = Search { twin: self, knobs, known: BTreeMap::new(), left };
        let best = search.descend();
        let chosen = search.distinct(best, most);
        chosen.iter().filter_map(|point| search.combination(point)).collect()
    }
}

impl Search<'_> {
    /// A point with all draws.
    fn combination(&self, point: &Point) -> Option<Combination> {
        let plan = self.plan(point)?;
        let seeds = 1..=self.twin.runs.len() as u64;
        let runs: Vec<_> = seeds
            .into_par_iter()
            .map(|seed| agree::run(&plan, &self.twin.recorded, seed))
            .collect::<Result<_, _>>()
            .ok()?;
        let mut saved: Vec<f64> = runs.iter().enumerate().map(|(nr, run)| self.twin.saved(nr, run)).collect();
        let [low, saves_pct, high] = [0.05, 0.5, 0.95].map(|share| percentile(&mut saved, share));
        let settings =
            point.iter().map(|(knob, value)| (self.knobs[*knob].name, self.knobs[*knob].values[*value].0.to_owned()));
        Some(Combination { settings: settings.collect(), saves_pct, saves_ci_pct: [low, high] })
    }
}
