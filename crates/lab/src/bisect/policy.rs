//! Which of the differences between two simulated kernels moves a metric by most of the change.
//!
//! ```text
//! worse        the bad side's metric has to be the worse one, by more than its spread
//! differences  policies, tunables, device ([`Stack::differences`]); those of one kind go together at first
//! test         the good kernel with some of the differences; several seeds, the same for all tests
//! verdict      bad if the metric has moved by more than half of the whole change, good if by less
//! search       ddmin: halves, then smaller parts and their complements, until no part of the rest can be left out
//! second side the bad kernel without the parts found must be good; if not, the rest has another cause, and is searched
//! refine       the same again with the single differences of the kinds that were found
//! ```
//! Sequential test: with 4, 8, 16 ... seeds the distance of the metric from the middle of both references, seed by seed
//! (the seeds are paired), has an interval of Student's law, at a level that spends the allowed error evenly on the
//! looks. A verdict needs an interval on one side of 0. Stated bound: error per test times tests, if distances are
//! about normal. Tests begin with as many seeds as it took to see the change at all. Reference: Zeller and
//! Hildebrandt, Simplifying and Isolating Failure-Inducing Input, IEEE TSE 28(2), 2002. Known limits: differences
//! that cancel out are found only as far as the order of the tests meets them; differences between the jobs' plans
//! beyond the stack (none exist today) are not searched.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use iowhy_stack::kernel::{Change, Stack};
use iowhy_stack::outcome::{Plan, RunError};
use iowhy_stack::sim;
use serde_json::{Value, json};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::Verdict;
use crate::incident::command::repetition;
use crate::incident::metric::Metric;
use iowhy_text::quantity;

/// How it is done.
#[derive(Copy, Clone, Debug)]
pub struct Settings {
    /// Largest chance that one test is wrong.
    pub error: f64,
    /// Seeds of a test, at most.
    pub most_runs: usize,
    /// A change of the metric up to this is none, percent.
    pub margin_pct: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { error: 0.001, most_runs: 64, margin_pct: 1.0 }
    }
}

/// Runs that a test begins with.
const FIRST_RUNS: usize = 4;
/// Sets of changes that are looked for, each enough by itself.
const SETS: usize = 4;
/// Level of the intervals that are shown.
const SHOWN_LEVEL: f64 = 0.95;

/// A mean with its interval at 95 %.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Measured {
    /// Mean over the runs.
    pub value: f64,
    /// Ends of the interval.
    pub ci: (f64, f64),
    pub runs: usize,
}

/// One test.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub purpose: &'static str,
    /// Indices of the differences that are on.
    pub on: Vec<usize>,
    /// The metric.
    pub measured: Measured,
    /// Which side it is like.
    pub verdict: Verdict,
}

/// Result of a search.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A change or several; the tests say so from both sides.
    Found,
    /// The stacks do not differ.
    EqualStacks,
    /// They do, and the metric does not.
    EqualMetric,
    /// The metric differs, and the bad side has the better one: a first bad does not exist.
    NotWorse,
    /// The tests could not tell, or the sides contradict each other.
    Unsure,
}

#[derive(Clone, Debug)]
pub struct Bisection {
    /// Labels of both sides.
    pub labels: [String; 2],
    /// Of what.
    pub metric: &'static Metric,
    /// Everything that differs.
    pub differences: Vec<Change>,
    pub references: [Measured; 2],
    /// Tests in their order.
    pub steps: Vec<Step>,
    /// Indices of the parts found, the most effective first.
    pub found: Vec<usize>,
    /// The effect of each of these alone.
    pub alone: Vec<Measured>,
    /// Sets of them, each enough for the change by itself.
    pub sets: usize,
    /// The result.
    pub answer: Answer,
    /// Why, in a sentence.
    pub because: String,
    /// Runs made.
    pub simulations: usize,
    /// Chance that anything above is wrong, at most.
    pub error_bound: f64,
}

/// Values of the metric by the parts that are on; `None` is the bad side itself.
struct Bench<'a> {
    plans: [&'a Plan; 2],
    metric: &'static Metric,
    differences: &'a [Change],
    settings: Settings,
    values: BTreeMap<Vec<usize>, Vec<f64>>,
    bad: Vec<f64>,
    steps: Vec<Step>,
    simulations: usize,
    /// Runs that a test begins with: the number that showed the change at all.
    first_runs: usize,
    done: &'a (dyn Fn() + Sync),
}

/// Distances from a border, for each of a number of runs.
type Distances<'a, B> = &'a mut dyn FnMut(&mut B, usize) -> Result<Vec<f64>, RunError>;

/// The interval of a mean by Student's law; no width if all values are equal.
fn interval(values: &[f64], level: f64) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    if variance == 0.0 {
        return (mean, mean);
    }
    let law = StudentsT::new(0.0, 1.0, (n - 1.0).max(1.0));
    let quantile = law.map_or(f64::INFINITY, |law| law.inverse_cdf(0.5 + level / 2.0));
    let width = quantile * (variance / n).sqrt();
    (mean - width, mean + width)
}

fn measured(values: &[f64]) -> Measured {
    let value = values.iter().sum::<f64>() / values.len().max(1) as f64;
    Measured { value, ci: interval(values, SHOWN_LEVEL), runs: values.len() }
}

impl Bench<'_> {
    /// How many times a test looks at its runs.
    fn looks(&self) -> usize {
        let mut looks = 1;
        let mut runs = FIRST_RUNS;
        while runs < self.settings.most_runs {
            runs *= 2;
            looks += 1;
        }
        looks
    }

    /// Level of the interval at each look.
    fn level(&self) -> f64 {
        1.0 - self.settings.error / self.looks() as f64
    }

    /// Makes the runs `from .. to` of a plan.
    fn simulate(&mut self, plan: &Plan, from: usize, to: usize) -> Result<Vec<f64>, RunError> {
        let next = AtomicUsize::new(from);
        let results = Mutex::new(Vec::new());
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(to.saturating_sub(from).max(1));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let nr = next.fetch_add(1, Ordering::Relaxed);
                        if nr >= to {
                            return;
                        }
                        // The first positions of sysbench are the same in all runs of the program; seeds are wanted.
                        let result =
                            sim::run(&repetition(plan, nr as u32 + 1)).map(|outcome| (self.metric.of)(&outcome));
                        results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((nr, result));
                        (self.done)();
                    }
                });
            }
        });
        let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        results.sort_by_key(|(nr, _)| *nr);
        self.simulations += results.len();
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// The first `runs` values with these differences on; no less than these are there afterwards.
    fn with(&mut self, on: &[usize], runs: usize) -> Result<Vec<f64>, RunError> {
        let mut values = self.values.remove(on).unwrap_or_default();
        if values.len() < runs {
            let keys: Vec<&str> = on.iter().map(|nr| self.differences[*nr].key.as_str()).collect();
            let mut plan = self.plans[0].clone();
            plan.stack = plan.stack.with_changes(&self.plans[1].stack, &|key| keys.contains(&key));
            values.extend(self.simulate(&plan, values.len(), runs)?);
        }
        self.values.insert(on.to_vec(), values.clone());
        values.truncate(runs);
        Ok(values)
    }

    /// The first values of the bad side.
    fn bad(&mut self, runs: usize) -> Result<Vec<f64>, RunError> {
        if self.bad.len() < runs {
            let plan = self.plans[1].clone();
            let more = self.simulate(&plan, self.bad.len(), runs)?;
            self.bad.extend(more);
        }
        Ok(self.bad[..runs].to_vec())
    }

    /// Looks at distances, which `distances` makes for a number of runs, until they are surely on one side of 0.
    fn side(&mut self, distances: Distances<'_, Self>) -> Result<(Verdict, usize), RunError> {
        let mut runs = self.first_runs.min(self.settings.most_runs);
        loop {
            let (low, high) = interval(&distances(self, runs)?, self.level());
            if low > 0.0 {
                return Ok((Verdict::Bad, runs));
            }
            if high < 0.0 {
                return Ok((Verdict::Good, runs));
            }
            if runs >= self.settings.most_runs || low == high {
                return Ok((Verdict::Unsure, runs));
            }
            runs = (2 * runs).min(self.settings.most_runs);
        }
    }

    /// Which side the good kernel is like with these differences on.
    fn test(&mut self, purpose: &'static str, on: &[usize]) -> Result<Verdict, RunError> {
        let mut on = on.to_vec();
        on.sort_unstable();
        on.dedup();
        if let Some(step) = self.steps.iter().find(|step| step.on == on) {
            return Ok(step.verdict);
        }
        let wanted = on.clone();
        let (verdict, runs) = self.side(&mut |bench, runs| {
            let (good, bad, values) = (bench.with(&[], runs)?, bench.bad(runs)?, bench.with(&wanted, runs)?);
            let rises = bad.iter().sum::<f64>() > good.iter().sum::<f64>();
            let sign = if rises { 1.0 } else { -1.0 };
            let middle = good.iter().zip(&bad).map(|(good, bad)| (good + bad) / 2.0);
            Ok(values.iter().zip(middle).map(|(value, middle)| sign * (value - middle)).collect())
        })?;
        let measured = measured(&self.with(&on, runs)?);
        self.steps.push(Step { purpose, on, measured, verdict });
        Ok(verdict)
    }

    /// The smallest set of `parts` that makes the good kernel bad, by ddmin; all of them together do.
    fn smallest(&mut self, purpose: &'static str, parts: Vec<Vec<usize>>) -> Result<Vec<Vec<usize>>, RunError> {
        let union = |parts: &[Vec<usize>]| parts.iter().flatten().copied().collect::<Vec<usize>>();
        let mut left = parts;
        let mut pieces = 2;
        'again: while left.len() > 1 {
            pieces = pieces.min(left.len());
            let bounds: Vec<(usize, usize)> =
                (0..pieces).map(|nr| (nr * left.len() / pieces, (nr + 1) * left.len() / pieces)).collect();
            for &(from, to) in &bounds {
                if self.test(purpose, &union(&left[from..to]))? == Verdict::Bad {
                    left = left[from..to].to_vec();
                    pieces = 2;
                    continue 'again;
                }
            }
            for &(from, to) in bounds.iter().filter(|_| pieces > 2) {
                let rest: Vec<Vec<usize>> = left[..from].iter().chain(&left[to..]).cloned().collect();
                if self.test(purpose, &union(&rest))? == Verdict::Bad {
                    left = rest;
                    pieces -= 1;
                    continue 'again;
                }
            }
            if pieces == left.len() {
                break;
            }
            pieces = (2 * pieces).min(left.len());
        }
        Ok(left)
    }
}

/// Differences by kind: of one policy, of the queue, of the disk.
fn kinds(differences: &[Change]) -> Vec<Vec<usize>> {
    let mut kinds: Vec<(&str, Vec<usize>)> = Vec::new();
    for (nr, change) in differences.iter().enumerate() {
        match kinds.iter_mut().find(|(kind, _)| *kind == change.kind()) {
            Some((_, members)) => members.push(nr),
            None => kinds.push((change.kind(), vec![nr])),
        }
    }
    kinds.into_iter().map(|(_, members)| members).collect()
}

/// Finds what makes `bad` differ from `good` in `metric`. `done` is called after each simulation.
///
/// # Errors
/// The simulator's error for a plan.
pub fn bisect(
    (good, bad): (&Plan, &Plan),
    labels: [String; 2],
    metric: &'static Metric,
    settings: Settings,
    done: &(dyn Fn() + Sync),
) -> Result<Bisection, RunError> {
    // Fewer have no spread, and would always be sure.
    let settings = Settings { most_runs: settings.most_runs.max(FIRST_RUNS), ..settings };
    let differences = Stack::differences(&good.stack, &bad.stack);
    let mut bench = Bench {
        plans: [good, bad],
        metric,
        differences: &differences,
        settings,
        values: BTreeMap::new(),
        bad: Vec::new(),
        steps: Vec::new(),
        simulations: 0,
        first_runs: FIRST_RUNS,
        done,
    };
    let (answer, because, found, sets) = search(&mut bench)?;
    let mut alone = Vec::new();
    for nr in &found {
        if found.len() > 1 {
            bench.test("alone", &[*nr])?;
        }
        let runs = bench.values.get(&vec![*nr]).map_or(bench.first_runs, Vec::len);
        alone.push(measured(&bench.with(&[*nr], runs)?));
    }
    let mut found: Vec<(usize, Measured)> = found.into_iter().zip(alone).collect();
    let runs = bench.values.get(&Vec::new()).map_or(bench.first_runs, Vec::len);
    let references = [measured(&bench.with(&[], runs)?), measured(&bench.bad(runs)?)];
    let effect =
        |measured: &Measured| (measured.value - references[0].value) / (references[1].value - references[0].value);
    found.sort_by(|(_, x), (_, y)| effect(y).total_cmp(&effect(x)));
    let tests = bench.steps.len() + 1;
    let (steps, simulations) = (bench.steps, bench.simulations);
    Ok(Bisection {
        labels,
        metric,
        references,
        steps,
        found: found.iter().map(|(nr, _)| *nr).collect(),
        alone: found.into_iter().map(|(_, alone)| alone).collect(),
        sets,
        answer,
        because,
        simulations,
        error_bound: (settings.error * tests as f64).min(1.0),
        differences,
    })
}

type Searched = (Answer, String, Vec<usize>, usize);

fn search(bench: &mut Bench<'_>) -> Result<Searched, RunError> {
    let differences = bench.differences;
    if differences.is_empty() {
        let because = "the two kernels do not differ in anything that is modelled".to_owned();
        return Ok((Answer::EqualStacks, because, Vec::new(), 0));
    }
    // The metric must differ, by more than the margin.
    let margin = bench.settings.margin_pct / 100.0;
    let (apart, runs) = bench.side(&mut |bench, runs| {
        let (good, bad) = (bench.with(&[], runs)?, bench.bad(runs)?);
        let least = margin * good.iter().sum::<f64>().abs() / runs as f64;
        let change: Vec<f64> = good.iter().zip(&bad).map(|(good, bad)| bad - good).collect();
        let sign = if change.iter().sum::<f64>() < 0.0 { -1.0 } else { 1.0 };
        Ok(change.into_iter().map(|change| sign * change - least).collect())
    })?;
    bench.first_runs = runs;
    let name = bench.metric.name;
    let (good, bad) = (bench.with(&[], runs)?, bench.bad(runs)?);
    let [of_good, of_bad] = [&good, &bad].map(|values| measured(values).value);
    let figures = {
        let [good, bad] = [of_good, of_bad].map(|value| quantity(value, bench.metric.unit, 4));
        format!("{good} on the good side, {bad} on the bad one")
    };
    match apart {
        Verdict::Bad if bench.metric.is_worse(of_good, of_bad) => {}
        Verdict::Bad => {
            let because = format!("the bad side is better, not worse: {name} is {figures}; swap --good and --bad");
            return Ok((Answer::NotWorse, because, Vec::new(), 0));
        }
        // All equal: without an interval on either side of 0.
        _ if good == bad => {
            return Ok((Answer::EqualMetric, format!("{name} does not differ at all: {figures}"), Vec::new(), 0));
        }
        Verdict::Good => {
            let margin_pct = bench.settings.margin_pct;
            let because = format!("{name} does not differ by more than {margin_pct} %: {figures}");
            return Ok((Answer::EqualMetric, because, Vec::new(), 0));
        }
        Verdict::Unsure => {
            let because = format!("{runs} runs of each side cannot tell whether {name} differs: {figures}");
            return Ok((Answer::Unsure, because, Vec::new(), 0));
        }
    }
    let all: Vec<usize> = (0..differences.len()).collect();
    if bench.test("all", &all)? != Verdict::Bad {
        let because = "with all differences of the stack the good side is not as the bad one is".to_owned();
        return Ok((Answer::Unsure, because, Vec::new(), 0));
    }
    let mut found: Vec<usize> = Vec::new();
    let mut rest = all;
    for nr in 1..=SETS {
        // What the rest is made of, by kinds; then the single differences of the kinds that count.
        let parts = kinds(differences)
            .into_iter()
            .map(|kind| kind.into_iter().filter(|nr| rest.contains(nr)).collect::<Vec<usize>>())
            .filter(|kind| !kind.is_empty())
            .collect();
        let kinds = bench.smallest("kinds", parts)?;
        let singles = kinds.into_iter().flatten().map(|nr| vec![nr]).collect::<Vec<Vec<usize>>>();
        found.extend(bench.smallest("single", singles)?.into_iter().flatten());
        rest.retain(|nr| !found.contains(nr));
        match bench.test("without", &rest)? {
            Verdict::Good => {
                let because = match (nr, found.len()) {
                    (1, 1) => "the good side with it is bad, and the bad side without it is good".to_owned(),
                    (1, n) => {
                        format!("it takes {n} together: the good side with them is bad, the bad one without is good")
                    }
                    (n, _) => format!("there are {n} causes, each enough by itself: without all of them it is good"),
                };
                return Ok((Answer::Found, because, found, nr));
            }
            Verdict::Bad => {}
            Verdict::Unsure => {
                let because = "the good side with it is bad, but the bad side without it remains undecided";
                return Ok((Answer::Unsure, because.to_owned(), found, nr));
            }
        }
    }
    let because = format!("more than {SETS} sets of changes are each enough by themselves");
    Ok((Answer::Unsure, because, found, SETS))
}

impl Bisection {
    /// The change that does most by itself.
    pub fn first_bad(&self) -> Option<&Change> {
        self.found.first().map(|nr| &self.differences[*nr])
    }

    /// One JSON object.
    pub fn json(&self) -> Value {
        let measured = |m: &Measured| json!({ "value": m.value, "low": m.ci.0, "high": m.ci.1, "runs": m.runs });
        let change = |nr: &usize| {
            let change = &self.differences[*nr];
            json!({ "policy": change.key, "from": change.from, "to": change.to })
        };
        let keys = |on: &[usize]| on.iter().map(|nr| self.differences[*nr].key.clone()).collect::<Vec<String>>();
        let several = self.found.iter().zip(&self.alone).filter(|_| self.found.len() > 1);
        json!({
            "schema": "iowhy.bisect/1",
            "metric": { "name": self.metric.name, "unit": self.metric.unit },
            "good": { "label": self.labels[0], "measured": measured(&self.references[0]) },
            "bad": { "label": self.labels[1], "measured": measured(&self.references[1]) },
            "answer": match self.answer {
                Answer::Found => "found",
                Answer::EqualStacks => "equal-stacks",
                Answer::EqualMetric => "equal-metric",
                Answer::NotWorse => "not-worse",
                Answer::Unsure => "unsure",
            },
            "because": self.because,
            "first_bad": self.found.first().map(change),
            "interaction": several
                .map(|(nr, alone)| {
                    let mut entry = change(nr);
                    entry["alone"] = measured(alone);
                    entry
                })
                .collect::<Vec<Value>>(),
            "sufficient_sets": self.sets,
            "differences": (0..self.differences.len()).map(|nr| change(&nr)).collect::<Vec<Value>>(),
            "steps": self.steps.iter().map(|step| json!({
                "purpose": step.purpose,
                "changes": keys(&step.on),
                "measured": measured(&step.measured),
                "verdict": step.verdict.word(),
            })).collect::<Vec<Value>>(),
            "simulations": self.simulations,
            "error_bound": self.error_bound,
        })
    }

    /// For people: the differences, and each test as a row of marks with the value as a bar.
    pub fn text(&self) -> String {
        const BAR: usize = 24;
        let shown = |value: f64| quantity(value, self.metric.unit, 4);
        let mut text = format!("{}: good {}, bad {}\n", self.metric.name, self.labels[0], self.labels[1]);
        let columns = self.columns();
        let width = |of: fn(&Change) -> &String| self.differences.iter().map(|c| of(c).len()).max().unwrap_or(0);
        let (keys, from) = (width(|change| &change.key), width(|change| &change.from));
        text.push('\n');
        for (letter, members) in &columns {
            for nr in members {
                let Change { key, from: good, to } = &self.differences[*nr];
                text.push_str(&format!("  {letter}  {key:keys$}  {good:from$} -> {to}\n"));
            }
        }
        if !columns.is_empty() {
            text.push('\n');
            let most = self.references.iter().chain(self.steps.iter().map(|step| &step.measured)).map(|m| m.value);
            let most = most.fold(0.0, f64::max);
            let bar = |value: f64| {
                let length = if most > 0.0 { (value / most * BAR as f64).round().clamp(0.0, BAR as f64) } else { 0.0 };
                "=".repeat(length as usize)
            };
            let width = columns.len().max(4);
            let letters: String = columns.iter().map(|(letter, _)| *letter).collect();
            text.push_str(&format!("      {letters:width$}  {:>12}  {:BAR$}  runs\n", "value", ""));
            let mut row = |head: &str, on: &dyn Fn(&usize) -> bool, m: &Measured, verdict: &str| {
                let marks: String = columns
                    .iter()
                    .map(|(_, members)| match (members.iter().all(on), members.iter().any(on)) {
                        (true, _) => '#',
                        (false, true) => '+',
                        _ => '.',
                    })
                    .collect();
                let value = shown(m.value);
                text.push_str(&format!(
                    "{head:4}  {marks:width$}  {value:>12}  {:BAR$}  {:4}  {verdict}\n",
                    bar(m.value),
                    m.runs
                ));
            };
            row("good", &|_| false, &self.references[0], "");
            row("bad", &|_| true, &self.references[1], "");
            for (nr, step) in self.steps.iter().enumerate() {
                row(&format!("{:4}", nr + 1), &|nr| step.on.contains(nr), &step.measured, step.verdict.word());
            }
        }
        text.push('\n');
        if let Some(change) = self.first_bad() {
            let Change { key, from, to } = change;
            text.push_str(&format!("First bad: {key}, from {from} to {to}\n"));
        }
        for (nr, alone) in self.found.iter().zip(&self.alone).filter(|_| self.found.len() > 1) {
            let Change { key, from, to } = &self.differences[*nr];
            text.push_str(&format!("  {key}, {from} -> {to}: {} alone\n", shown(alone.value)));
        }
        text.push_str(&format!("{}.\n", capital(&self.because)));
        text.push_str(&format!(
            "{} tests, {} simulations; the chance that any of them is wrong is at most {:.1} %.\n",
            self.steps.len(),
            self.simulations,
            100.0 * self.error_bound
        ));
        text
    }

    /// A letter for each difference, or for each kind of them if there are more than letters.
    fn columns(&self) -> Vec<(char, Vec<usize>)> {
        let members: Vec<Vec<usize>> = if self.differences.len() > 26 {
            kinds(&self.differences)
        } else {
            (0..self.differences.len()).map(|nr| vec![nr]).collect()
        };
        ('a'..='z').zip(members).collect()
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::command::plan_of_command;
    use crate::incident::metric::find;

    fn plan(job: &str, on: &str) -> Plan {
        let words: Vec<String> = format!("{job} --on sim:{on}").split_whitespace().map(str::to_owned).collect();
        plan_of_command(&words).unwrap_or_else(|problems| panic!("{job} on {on}: {}", problems.render()))
    }

    fn between(job: &str, good: &str, bad: &str, metric: &str, settings: Settings) -> Bisection {
        let labels = [good.to_owned(), bad.to_owned()];
        let metric = find(metric).expect("a metric");
        bisect((&plan(job, good), &plan(job, bad)), labels, metric, settings, &|| {}).expect("it runs")
    }

    /// Asserts that a bisection ends at one key, and yields how many simulations it took.
    fn ends_at(key: &str, job: &str, good: &str, bad: &str, metric: &str) -> usize {
        let found = between(job, good, bad, metric, Settings::default());
        assert_eq!(found.answer, Answer::Found, "{}", found.text());
        assert_eq!(found.found.len(), 1, "{}", found.text());
        assert_eq!(found.first_bad().map(|change| change.key.as_str()), Some(key), "{}", found.text());
        assert!(found.error_bound < 0.1);
        found.simulations
    }

    const SYSBENCH: &str = "sysbench --test=fileio --num-threads=16 --max-requests=1500 --file-num=128 \
                            --file-total-size=3G --file-block-size=16384 --file-test-mode=rndrw --file-rw-ratio=1.5 \
                            --file-fsync-freq=100 --linux-threads --cache=cold run --disk ide-2004";
    const RC3: &str = "linux-2.6.6-rc3,machine=athlon-2004";

    #[test]
    fn the_split_reads_of_2004_end_at_readahead() {
        ends_at("readahead", SYSBENCH, "linux-2.4.25,machine=athlon-2004", RC3, "elapsed_s");
        ends_at("readahead", SYSBENCH, "linux-2.6.6-rc3+private-copy,machine=athlon-2004", RC3, "elapsed_s");
    }

    #[test]
    fn the_direct_writers_of_2010_end_at_the_elevator() {
        let job = "run dd if=/dev/zero of=/dev/sdb bs=4096 count=600 oflag=direct writers=2 distance=125g jitter=16m \
                   --disk sata-2010,write_cache_slots=37";
        ends_at("elevator", job, "linux-2.6.18-164.el5", "linux-2.6.18-186.el5", "write_mb_s");
    }

    #[test]
    fn the_stale_pages_of_2012_end_at_direct_io() {
        let job = "run fio --rw=randwrite --name=j --filename=/dev/mapper/zzz --size=25g --norandommap --direct=1 \
                   --iodepth=64 --iodepth_batch_complete=16 --iodepth_batch_submit=16 --ioengine=libaio --bs=4k \
                   --offset_increment=50g --ramp_time=60ms --iowhy_actor=blkid --iowhy_probe_delay=5ms-15ms \
                   --numjobs=2 --thread --number_ios=12000 --iowhy_open_stagger=0 --disk zero,nr_sectors=4000000000000";
        let on =
            |kernel| format!("{kernel},machine=xeon-2012,machine.tool_ns=500,machine.bio_ns=1200,machine.noise_pct=20");
        ends_at("direct", job, &on("linux-6.1"), &on("linux-3.2.0"), "sum_of_write_mb_s");
    }

    #[test]
    fn the_plugged_readahead_of_2012_ends_at_the_plug() {
        let job = "run dd if=/dev/sda bs=1M count=96 pause_us=1000 pause_calls=16 \
                   --disk ssd-sata-2011,idle_threshold_us=200,idle_exit_us=6000";
        let on = |kernel| format!("{kernel},machine=laptop-2011,machine.noise_pct=5");
        ends_at("plug", job, &on("linux-2.6.38"), &on("linux-2.6.39"), "read_mb_s");
    }

    #[test]
    fn the_window_of_2018_ends_at_its_tunable() {
        let job = "run paralleldd readers=3 size=64m startup_seeks=4 tool_ns=112 --disk sata-2014";
        let on = |kernel| {
            format!(
                "{kernel},filesystem=ext3-4.3,elevator=cfq,page_wait=one-by-one,machine.wake_min_us=10,\
                 machine.wake_max_us=190,machine.noise_pct=90"
            )
        };
        ends_at("read_ahead_kb", job, &on("linux-4.4+readahead-512k"), &on("linux-4.4"), "process_mean_s");
    }

    const STREAM: &str = "run fio --name=j --rw=read --bs=64k --size=8m --disk nvme";

    #[test]
    fn what_does_not_differ_is_said() {
        for (good, bad, metric, expected) in [
            ("linux-6.18", "linux-6.18", "elapsed_s", Answer::EqualStacks),
            ("linux-6.18", "linux-6.18,writeback.dirty_ratio=40", "elapsed_s", Answer::EqualMetric),
            ("linux-6.18", "linux-6.18,read_ahead_kb=16", "write_mb_s", Answer::EqualMetric),
        ] {
            let found = between(STREAM, good, bad, metric, Settings::default());
            assert_eq!((found.answer, found.found.len()), (expected, 0), "{}", found.text());
            assert!(found.first_bad().is_none() && found.json()["first_bad"].is_null());
        }
    }

    #[test]
    fn a_bad_side_that_is_not_worse_has_no_first_bad() {
        let (slow, fast) = ("linux-6.18,read_ahead_kb=16", "linux-6.18");
        for metric in ["elapsed_s", "read_mb_s"] {
            let found = between(STREAM, slow, fast, metric, Settings::default());
            assert_eq!((found.answer, found.found.len(), found.steps.len()), (Answer::NotWorse, 0, 0), "{metric}");
            let figures = found.references.map(|of| quantity(of.value, found.metric.unit, 4));
            assert!(figures.iter().all(|figure| found.because.contains(figure)), "{}", found.because);
            ends_at("read_ahead_kb", STREAM, fast, slow, metric);
        }
    }

    #[test]
    fn what_takes_two_is_told_from_what_one_of_two_is_enough_for() {
        let job = "run fio --name=j --rw=read --bs=1m --size=32m --disk ssd-sata-2011";
        let small = "linux-3.3,read_ahead_kb=16,max_sectors_kb=16";
        let large = "linux-3.3,read_ahead_kb=512,max_sectors_kb=512";
        // Large requests need a large window and a large limit; either of them makes small ones.
        for (good, bad, sets) in [(small, large, 1), (large, small, 2)] {
            let found = between(job, good, bad, "read_request_sectors", Settings::default());
            assert_eq!((found.answer, found.sets), (Answer::Found, sets), "{}", found.text());
            let mut keys: Vec<&str> = found.found.iter().map(|nr| found.differences[*nr].key.as_str()).collect();
            keys.sort_unstable();
            assert_eq!(keys, ["max_sectors_kb", "read_ahead_kb"], "{}", found.text());
            assert_eq!(found.json()["interaction"].as_array().map(Vec::len), Some(2));
        }
    }

    #[test]
    fn the_picture_of_the_path() {
        let job = "run fio --name=j --rw=read --bs=64k --size=8m --disk nvme";
        let bad = "linux-6.18,read_ahead_kb=16,hz=1000,writeback.dirty_ratio=40,machine.syscall_ns=200";
        let found = between(job, "linux-6.18", bad, "elapsed_s", Settings::default());
        let text = found.text();
        let rows: Vec<&str> =
            text.lines().skip_while(|line| !line.contains("abcd")).take_while(|l| !l.is_empty()).collect();
        let marks: Vec<&str> = rows.iter().filter_map(|row| row.split_whitespace().nth(1)).collect();
        assert_eq!(&marks[1..4], ["....", "####", "####"], "{text}");
        assert!(marks.contains(&".#.."), "{text}");
        assert!(text.contains("First bad: read_ahead_kb, from 128 to 16"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
    }
}
