//! Causes by layers: which cause adds how much to which layer. Each column adds up to its layer's part of the
//! difference, and all of them to the difference.
//!
//! ```text
//! measured  the experiment's runs have events: the slow side's layers, less those of its runs with the cause switched
//! shared    else the finding's share of the difference, over the layers whose time its rule may claim, in proportion
//!           to their growth that no earlier row has; rules that may claim the fewest layers come first
//! rest      what a column has beyond its rows, however little; below 0 where two experiments remove the same time
//! whiskers  runs of both sides in up to [`GROUPS`] groups, the split of each, and Student's interval of their mean
//! ```
//! Source: batch means (Law, Simulation Modeling and Analysis, 9.5.3).
//! Limits: shared cells are proportions, and their whiskers those of their columns; the whiskers of the rest take its
//! parts as independent.

use iowhy_compare::Verdict;
use iowhy_stats::welch;

use super::delta::{Basis, Delta};
use super::{Explanation, Finding, LEVEL, Outcome, Side, layers};
use crate::rules::Owns;

/// Most groups of runs.
const GROUPS: usize = 8;
/// Smaller parts are rounding: ns, and of the difference.
const LEAST_NS: f64 = 0.5;
const LEAST_SHARE: f64 = 0.0005;
/// Left of a sum of floats, of the difference.
const ROUNDING: f64 = 1e-9;

/// A part of the difference, ns.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// B minus A.
    pub ns: f64,
    /// Half the width of its interval at [`LEVEL`]; nothing from single runs.
    pub half_ns: Option<f64>,
}

/// The origin of a row.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An experiment.
    Measured,
    /// A finding's share.
    Shared,
    /// The columns less all other rows.
    Rest,
}

impl Origin {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Origin::Measured => "measured",
            Origin::Shared => "shared",
            Origin::Rest => "rest",
        }
    }
}

/// The time that one cause adds.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the rule, or of the rest.
    pub name: &'static str,
    pub origin: Origin,
    /// Place of its finding.
    pub finding: Option<usize>,
    /// To each layer.
    pub cells: Vec<Part>,
    /// To all of them.
    pub sum: Part,
}

/// All of it; a column for each layer with a part.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    pub layers: Vec<&'static str>,
    pub rows: Vec<Row>,
    /// Sums of the columns.
    pub columns: Vec<Part>,
    pub total: Part,
    /// Causes that add most to another layer than they are in: a sentence, or nothing.
    pub note: String,
}

/// A difference by layers, in the order of [`layers::split`], with the part of none at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    pub cells: Vec<Part>,
    /// All of it.
    pub sum: Part,
}

/// Runs of a side in groups, each a side of its own.
fn groups(side: &Side, nr: usize) -> Vec<Side> {
    let mut groups =
        vec![Side { label: side.label.clone(), live: side.live, lacks: side.lacks.clone(), ..Side::default() }; nr];
    side.runs.iter().enumerate().for_each(|(place, run)| groups[place % nr].runs.push(run.clone()));
    groups
}

/// The difference between two sides by layers.
fn split(fast: &Side, slow: &Side, a_is_slow: bool) -> Split {
    let of = |fast: &Side, slow: &Side| -> Vec<f64> {
        let delta = Delta::of_roles(fast, slow, a_is_slow);
        let [a, b] = delta.time_ns();
        let mut all: Vec<f64> = layers::split(&delta).iter().map(|layer| layer.delta() * delta.scale()).collect();
        all.push(b - a - all.iter().sum::<f64>());
        all.push(b - a);
        all
    };
    let nr = GROUPS.min(fast.runs.len()).min(slow.runs.len());
    let of_groups: Vec<Vec<f64>> = match nr {
        0 | 1 => Vec::new(),
        _ => groups(fast, nr).iter().zip(&groups(slow, nr)).map(|(fast, slow)| of(fast, slow)).collect(),
    };
    let one = |(layer, ns): (usize, f64)| {
        let values: Vec<f64> = of_groups.iter().map(|of| of[layer]).collect();
        let (low, high) = welch::interval(&vec![0.0; values.len()], &values, LEVEL);
        let half = (high - low) / 2.0;
        Part { ns, half_ns: half.is_finite().then_some(half) }
    };
    let mut cells: Vec<Part> = of(fast, slow).into_iter().enumerate().map(one).collect();
    let sum = cells.pop().unwrap_or_default();
    Split { cells, sum }
}

/// The part of each layer that an experiment removes: of the slow side, and of its runs with one thing switched.
/// Nothing if they cannot be compared as the sides are.
pub fn measured(switched: &Side, slow: &Side, fast: &Side, a_is_slow: bool) -> Option<Split> {
    let basis = |fast: &Side| Delta::of_roles(fast, slow, a_is_slow).basis;
    (basis(switched) == basis(fast)).then(|| split(switched, slow, a_is_slow))
}

/// Whether a rule may claim time of a layer.
fn owned(owns: Owns, layer: &str) -> bool {
    let io = ["lock/wait", "journal/writeback", "plug", "elevator", "device", "page cache", "read-ahead", "merging"];
    match owns {
        Owns::Everything => true,
        Owns::Program => layer == "application",
        Owns::Pauses => ["application", "pauses"].contains(&layer),
        Owns::Ready => layer == "CPU wait",
        Owns::Code => ["CPU", "lock/wait"].contains(&layer),
        Owns::Io => io.contains(&layer),
        Owns::Calls | Owns::Reads | Owns::Writes => io.contains(&layer) || ["CPU", "CPU wait"].contains(&layer),
    }
}

fn sum(cells: &[Part]) -> Part {
    let halves: Option<Vec<f64>> = cells.iter().map(|cell| cell.half_ns).collect();
    Part {
        ns: cells.iter().map(|cell| cell.ns).sum(),
        half_ns: halves.map(|all| all.iter().map(|half| half * half).sum::<f64>().sqrt()),
    }
}

fn shared(finding: &Finding, names: &[&'static str], columns: &[Part], left: &[f64], difference: f64) -> Vec<Part> {
    let grown = |layer: usize, owns: bool| if owns { (left[layer] * difference.signum()).max(0.0) } else { 0.0 };
    let rule = finding.rule;
    let mut weights: Vec<f64> = (0..names.len()).map(|nr| grown(nr, owned(rule.owns, names[nr]))).collect();
    let mut all: f64 = weights.iter().sum();
    if all <= 0.0 {
        // Nothing that it may claim has grown by itself.
        weights = names.iter().map(|name| f64::from(u8::from(*name == rule.layer))).collect();
        all = weights.iter().sum();
    }
    let whole = finding.share_pct / 100.0 * difference;
    let cell = |(nr, weight): (usize, &f64)| {
        let ns = if all > 0.0 { whole * weight / all } else { 0.0 };
        let relative = if columns[nr].ns == 0.0 { 0.0 } else { (ns / columns[nr].ns).abs().min(1.0) };
        Part { ns, half_ns: columns[nr].half_ns.map(|half| half * relative) }
    };
    weights.iter().enumerate().map(cell).collect()
}

/// Of an explanation and its sides; nothing without a difference.
pub fn of(explanation: &Explanation, [a, b]: [&Side; 2]) -> Option<Matrix> {
    let settled = matches!(explanation.verdict, Verdict::Regression | Verdict::Improvement);
    if !settled || explanation.basis == Basis::Nothing {
        return None;
    }
    let delta = Delta::new(a, b);
    let difference = explanation.time_ns[1] - explanation.time_ns[0];
    let Split { cells: columns, sum: total } = split(delta.fast, delta.slow, delta.a_is_slow);
    let mut names: Vec<&'static str> = layers::split(&delta).iter().map(|layer| layer.layer).collect();
    names.push("not in a layer");
    let mut left: Vec<f64> = columns.iter().map(|column| column.ns).collect();
    let mut rows: Vec<Row> = Vec::new();
    let stand = explanation.findings.iter().enumerate().filter(|(_, finding)| !finding.is_refuted());
    let mut others: Vec<(usize, &Finding)> = Vec::new();
    for (nr, finding) in stand {
        let made = finding.counterfactual.as_ref();
        let made = made.filter(|of| matches!(of.outcome, Outcome::Confirmed | Outcome::Partly));
        let Some(Split { cells, sum }) = made.and_then(|of| of.layers.clone()) else {
            others.push((nr, finding));
            continue;
        };
        left.iter_mut().zip(&cells).for_each(|(left, cell)| *left -= cell.ns);
        rows.push(Row { name: finding.rule.name, origin: Origin::Measured, finding: Some(nr), cells, sum });
    }
    others.sort_by_key(|(_, finding)| names.iter().filter(|name| owned(finding.rule.owns, name)).count());
    for (nr, finding) in others {
        let cells = shared(finding, &names, &columns, &left, difference);
        left.iter_mut().zip(&cells).for_each(|(left, cell)| *left -= cell.ns);
        let sum = sum(&cells);
        rows.push(Row { name: finding.rule.name, origin: Origin::Shared, finding: Some(nr), cells, sum });
    }
    rows.sort_by_key(|row| row.finding);
    let least = (difference.abs() * LEAST_SHARE).max(LEAST_NS);
    if left.iter().any(|ns| ns.abs() > difference.abs() * ROUNDING) {
        let rest = |nr: usize| {
            let own: Vec<Part> =
                rows.iter().filter(|row| row.origin == Origin::Measured).map(|row| row.cells[nr]).collect();
            let half_ns = sum(&[&own[..], &[columns[nr]]].concat()).half_ns;
            Part { ns: left[nr], half_ns }
        };
        let cells: Vec<Part> = (0..names.len()).map(rest).collect();
        let sum = sum(&cells);
        rows.push(Row {
            name: if rows.is_empty() { "unexplained" } else { "the rest" },
            origin: Origin::Rest,
            finding: None,
            cells,
            sum,
        });
    }
    // Layers that nobody adds to are left out.
    let seen = |nr: &usize| columns[*nr].ns.abs() >= least || rows.iter().any(|row| row.cells[*nr].ns.abs() >= least);
    let kept: Vec<usize> = (0..names.len()).filter(seen).collect();
    let pick = |cells: &[Part]| kept.iter().map(|nr| cells[*nr]).collect::<Vec<Part>>();
    let rows = rows.iter().map(|row| Row { cells: pick(&row.cells), ..row.clone() }).collect();
    let mut found = Matrix {
        layers: kept.iter().map(|nr| names[*nr]).collect(),
        columns: pick(&columns),
        rows,
        total,
        note: String::new(),
    };
    found.note = note(explanation, &found);
    Some(found)
}

fn note(explanation: &Explanation, of: &Matrix) -> String {
    let elsewhere = |row: &Row| {
        let rule = explanation.findings.get(row.finding?)?.rule;
        let most = (0..of.layers.len()).max_by(|x, y| row.cells[*x].ns.abs().total_cmp(&row.cells[*y].ns.abs()))?;
        let layer = of.layers[most];
        (layer != rule.layer)
            .then(|| format!("{} is in the layer {} and adds most to the layer {layer}", rule.name, rule.layer))
    };
    let all: Vec<String> = of.rows.iter().filter_map(elsewhere).collect();
    if all.is_empty() { String::new() } else { format!("{}.", all.join("; ")) }
}

#[cfg(test)]
mod tests {
    use iowhy_stack::units::Nanos;

    use super::*;
    use crate::digest::{Digest, Layer};
    use crate::explain;
    use crate::outcome::{Counterfactual, Times};
    use crate::rules::{self, Rule};

    /// Runs of one read each that wait for the device and compute, ns, each run a little longer than the one before.
    fn side(label: &str, runs: u64, [cpu, device]: [u64; 2]) -> Side {
        let run = |nr: u64| {
            let mut run = Digest { elapsed: Nanos(cpu + device + nr), ..Digest::default() };
            run.workload.calls[0] = 1;
            run.latency[0].add(cpu + device + nr);
            run.time.slots = 1;
            run.time.ns[0][Layer::Cpu as usize] += cpu as f64;
            run.time.ns[0][Layer::Device as usize] += (device + nr) as f64;
            run.time.waits = 1;
            run
        };
        Side { label: label.to_owned(), runs: (0..runs).map(run).collect(), ..Side::default() }
    }

    fn finding(rule: &'static Rule, share_pct: f64, counterfactual: Option<Counterfactual>) -> Finding {
        Finding {
            rule,
            claim: String::new(),
            confidence: 0.9,
            evidence: Vec::new(),
            share_pct,
            counterfactual,
            advice: None,
        }
    }

    #[test]
    fn rows_add_up_to_layers_and_layers_to_the_difference() {
        let [a, b] = [side("a", 4, [100, 900]), side("b", 4, [300, 4_000])];
        let mut explanation = explain(&a, &b, None);
        let device = rules::find("device-latency").expect("a rule");
        let cpu = rules::find("cpu-bound-submission").expect("a rule");
        let switched = side("b", 4, [300, 1_000]);
        let times = Times { fast: &[1000.0, 1001.0], slow: &[4300.0, 4301.0], switched: &[1300.0, 1301.0] };
        let made = Counterfactual {
            layers: measured(&switched, &b, &a, false),
            ..Counterfactual::of((String::new(), "b"), times, false, None)
        };
        explanation.findings = vec![finding(device, 90.0, Some(made)), finding(cpu, 5.0, None)];
        let found = of(&explanation, [&a, &b]).expect("a difference");
        assert_eq!(found.layers, ["CPU", "device"]);
        let cells: Vec<(Origin, Vec<f64>)> =
            found.rows.iter().map(|row| (row.origin, row.cells.iter().map(|cell| cell.ns.round()).collect())).collect();
        // The experiment removes 3,000 of the device; 5 % of 3,300 are the CPU's; the rest is what neither has.
        assert_eq!(
            cells,
            [
                (Origin::Measured, vec![0.0, 3000.0]),
                (Origin::Shared, vec![165.0, 0.0]),
                (Origin::Rest, vec![35.0, 100.0]),
            ]
        );
        for (nr, column) in found.columns.iter().enumerate() {
            let all: f64 = found.rows.iter().map(|row| row.cells[nr].ns).sum();
            assert!((all - column.ns).abs() < 1e-6);
        }
        let all: f64 = found.rows.iter().map(|row| row.sum.ns).sum();
        assert!((all - 3300.0).abs() < 1e-6 && (found.total.ns - 3300.0).abs() < 1e-6);
        assert!(found.rows.iter().all(|row| row.cells.iter().all(|cell| cell.half_ns.is_some())));
        assert_eq!(found.note, "");
        explanation.findings = vec![finding(rules::find("plug-around-read").expect("a rule"), 100.0, None)];
        let note = of(&explanation, [&a, &b]).expect("a difference").note;
        assert_eq!(note, "plug-around-read is in the layer plug and adds most to the layer device.");
    }

    #[test]
    fn whiskers_are_of_repeated_runs_and_nothing_is_said_of_equal_sides() {
        let [a, b] = [side("a", 1, [100, 900]), side("b", 1, [100, 4_000])];
        let found = of(&explain(&a, &b, None), [&a, &b]).expect("a difference");
        assert_eq!((found.total.half_ns, found.columns[0].half_ns), (None, None));
        // Groups that differ by 0, 10 and 20: Student's 4.303 at two degrees of freedom, and a standard error of 5.77.
        let mut slow = side("b", 3, [100, 4_000]);
        for (nr, run) in slow.runs.iter_mut().enumerate() {
            run.elapsed = Nanos(4_100 + 11 * nr as u64);
            run.time.ns[0][Layer::Device as usize] += 10.0 * nr as f64;
        }
        let split = split(&side("a", 3, [100, 900]), &slow, false);
        let device = split.cells[split.cells.len() - 2];
        assert!((device.half_ns.expect("three runs") - 24.84).abs() < 0.01, "{device:?}");
        assert_eq!(of(&explain(&a, &a, None), [&a, &a]), None);
    }
}
