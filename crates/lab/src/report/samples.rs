//! A report of files with samples: metrics with intervals, latencies of fio's JSON, options that differ. Without events
//! the page leaves out what is drawn from them.

use serde_json::{Value, json};

use super::{Difference, Fact, Overview, Report, Run, Side, Timeline, facts, first, run_modes};
use crate::explain::tally::Ecdf;
use iowhy_compare::samples::fio::{Distribution, Pictured};
use iowhy_compare::{Comparison, json as comparison_json, options, text};
use iowhy_stats::metric::{Group, HEADLINES};
use iowhy_text::{quantity, shown};

/// Points of a curve, about.
const POINTS: usize = 400;
/// Level of its band, by Dvoretzky, Kiefer and Wolfowitz.
const LEVEL: f64 = 0.95;
/// Longest label in a title.
const LABEL: usize = 60;

/// The report of one or two sides, each with the runs that can be drawn; of two with their comparison.
pub fn make(sides: &[(&Group, Vec<Pictured>)], comparison: Option<&Comparison>) -> Report {
    let described: Vec<Side> = sides.iter().map(|(group, runs)| describe(group, runs)).collect();
    let labels: Vec<String> = sides.iter().map(|(group, _)| shown(&group.label, LABEL)).collect();
    let differences: Vec<Difference> = match described.as_slice() {
        [a, b] => facts::differences(&a.facts, &b.facts),
        _ => Vec::new(),
    };
    let (title, headline) = match comparison {
        Some(of) => {
            let word = of.verdict.word();
            let why = options::sentence(&of.options).unwrap_or_else(|| "Files of samples have no events.".to_owned());
            let headline = json!({ "verdict": word, "sentence": text::sentence(of), "why": why });
            (format!("{}: {word}", labels.join(" against ")), headline)
        }
        None => {
            let sentence = sides.first().map_or(String::new(), |(group, _)| medians(group));
            let headline = json!({ "verdict": "none", "sentence": sentence, "why": "" });
            (labels.join(" "), headline)
        }
    };
    let mut headline: serde_json::Value = headline;
    headline["first"] = json!(first::of_samples(comparison, &differences));
    let data = json!({
        "schema": "iowhy.report/1",
        "version": env!("CARGO_PKG_VERSION"),
        "title": title,
        "headline": headline,
        "explanation": Value::Null,
        "comparison": comparison.map(comparison_json::compare),
        "matrix": Value::Null,
        "sides": described,
        "shift": [],
        "history": Value::Null,
        "differences": differences,
        "incident": Value::Null,
    });
    Report::of(data)
}

/// The medians of the headline metrics in a sentence.
fn medians(group: &Group) -> String {
    let names = HEADLINES.iter().filter_map(|name| group.column(name));
    let named: Vec<_> = names.chain(&group.columns).filter(|column| !column.values.is_empty()).take(5).collect();
    let one = |column: &&iowhy_stats::metric::Column| {
        let mut values = column.values.clone();
        values.sort_by(f64::total_cmp);
        let median = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        format!("{} {}", shown(&column.metric.name, LABEL), quantity(median, &column.metric.unit, 4))
    };
    let runs = group.runs.len().max(named.first().map_or(0, |column| column.values.len()));
    let list: Vec<String> = named.iter().map(one).collect();
    format!("Medians of {} in `{}`: {}.", iowhy_text::count(runs as u64, "run", "runs"), group.label, list.join(", "))
}

fn describe(group: &Group, runs: &[Pictured]) -> Side {
    let run = |run: &Pictured| Run {
        seed: 0,
        time_per_operation_ns: run.mean_ns,
        rate_bytes_per_s: run.bytes_per_s,
        operations: run.operations,
    };
    let ops = ["read", "write"].into_iter();
    let origin = group.runs.first().map(|run| run.origin.clone()).unwrap_or_default();
    Side {
        label: group.label.clone(),
        simulated: false,
        command: Some(origin.command.clone()).filter(|command| !command.is_empty()),
        facts: of_group(group),
        runs: runs.iter().map(run).collect(),
        modes: run_modes(&runs.iter().map(|run| run.mean_ns).collect::<Vec<f64>>()),
        latency: ops.filter_map(|op| pooled(op, runs.iter().flat_map(|run| &run.latency))).collect(),
        request_sizes: Vec::new(),
        stacks: Vec::new(),
        timeline: Timeline { overview: Overview { slice_ns: 1, ..Overview::default() }, ..Timeline::default() },
    }
}

/// The job, its options and the disk; values that differ between runs stand next to each other.
fn of_group(group: &Group) -> Vec<Fact> {
    let mut facts: Vec<Fact> = Vec::new();
    let mut put = |key: &str, value: &str| match facts.iter_mut().find(|fact| fact.key == key) {
        _ if value.is_empty() => {}
        Some(fact) if fact.value.split(" or ").any(|known| known == value) => {}
        Some(fact) => fact.value += &format!(" or {value}"),
        None => facts.push(Fact { key: key.to_owned(), value: value.to_owned() }),
    };
    for run in &group.runs {
        put("job", &run.job);
        put("disk", &run.origin.disk);
        put("kernel", &run.origin.kernel);
        for (name, value) in &run.options {
            put(&format!("option {name}"), if value.is_empty() { "set" } else { value });
        }
    }
    facts
}

/// Latencies of all runs together: at each time the share of all calls.
fn pooled<'a>(op: &'static str, all: impl Iterator<Item = &'a Distribution>) -> Option<Ecdf> {
    let all: Vec<&Distribution> = all.filter(|of| of.op == op && !of.points.is_empty()).collect();
    let n: u64 = all.iter().map(|of| of.n).sum();
    let mut times: Vec<u64> = all.iter().flat_map(|of| of.points.iter().map(|(ns, _)| *ns)).collect();
    times.sort_unstable();
    times.dedup();
    let last = *times.last()?;
    let step = times.len().div_ceil(POINTS).max(1);
    let mut ns: Vec<u64> = times.into_iter().step_by(step).collect();
    if ns.last() != Some(&last) {
        ns.push(last);
    }
    let share_of = |of: &Distribution, ns: u64| match of.points.partition_point(|(at, _)| *at <= ns) {
        0 => 0.0,
        upto => of.points[upto - 1].1,
    };
    let share = |ns: &u64| all.iter().map(|of| of.n as f64 * share_of(of, *ns)).sum::<f64>() / n as f64;
    let share: Vec<f64> = ns.iter().map(share).map(|share| (share * 1e6).round() / 1e6).collect();
    let reach = ((2.0 / (1.0 - LEVEL)).ln() / (2.0 * n as f64)).sqrt();
    let low = share.iter().map(|share| (share - reach).max(0.0)).collect();
    let high = share.iter().map(|share| (share + reach).min(1.0)).collect();
    Some(Ecdf { op, n, ns, share, low, high })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_count_by_their_calls() {
        let of = |n, points: &[(u64, f64)]| Distribution { op: "read", n, points: points.to_vec() };
        let all = [of(300, &[(10, 0.5), (20, 1.0)]), of(100, &[(20, 0.5), (40, 1.0)])];
        let curve = pooled("read", all.iter()).expect("a curve");
        assert_eq!((curve.n, curve.ns, curve.share), (400, vec![10, 20, 40], vec![0.375, 0.875, 1.0]));
        assert!(pooled("write", all.iter()).is_none());
    }
}
