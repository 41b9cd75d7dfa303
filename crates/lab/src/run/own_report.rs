//! Reports of commands of the user: a line for each, then each compared with the first by wall time; and the files that
//! hyperfine writes.

use std::fmt::Write;

use iowhy_compare::{self as compare, Comparison, Settings};
use iowhy_stats::autocorrelation::Order;
use iowhy_stats::metric::{Column, Group, Metric, RunFacts};
use iowhy_text::{quantity, size, wrap};
use serde_json::{Map, Value, json};

use super::{Finished, RunRequest};

/// The metric that decides.
const WALL: &str = "elapsed_s";

/// Form of a file of results.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Export {
    /// hyperfine's JSON.
    Json,
    Csv,
    Markdown,
}

/// Runs of a variant that count.
fn counted(runs: &[Finished], variant: usize) -> impl Iterator<Item = &Finished> {
    runs.iter().filter(move |run| run.slot.variant == variant && !run.slot.warm_up)
}

fn values(runs: &[Finished], variant: usize, name: &str) -> Vec<f64> {
    let of = |run: &Finished| run.record.metrics.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
    counted(runs, variant).filter_map(of).collect()
}

/// Mean, deviation, median, least and largest.
struct Summary([f64; 5]);

fn summary(values: &[f64]) -> Summary {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0)).sqrt();
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = |at: usize| sorted.get(at).copied().unwrap_or(f64::NAN);
    let median = (middle(sorted.len().saturating_sub(1) / 2) + middle(sorted.len() / 2)) / 2.0;
    Summary([mean, deviation, median, middle(0), middle(sorted.len().saturating_sub(1))])
}

/// The metrics of the runs at one place, without those that only warmed up.
pub fn group(request: &RunRequest, runs: &[Finished], variant: usize) -> Group {
    let mut group = Group { label: request.variants[variant].label.clone(), ..Group::default() };
    for (nr, run) in counted(runs, variant).enumerate() {
        group.runs.push(RunFacts {
            run_id: run.id.as_ref().map(ToString::to_string).unwrap_or_default(),
            started_ns: run.started_ns,
            block: Some(run.slot.block),
            seed: run.slot.seed,
            ..RunFacts::default()
        });
        for (name, value) in &run.record.metrics {
            let at = group.columns.iter().position(|column| column.metric.name == *name).unwrap_or_else(|| {
                let metric = Metric::of(name);
                group.columns.push(Column { metric, values: Vec::new(), runs: Vec::new(), left_out: 0 });
                group.columns.len() - 1
            });
            group.columns[at].values.push(*value);
            group.columns[at].runs.push(nr);
        }
    }
    group
}

/// Each command compared with the first; nothing of those that have no runs.
pub fn comparisons(request: &RunRequest, runs: &[Finished]) -> Vec<Comparison> {
    if request.own.is_none() {
        return Vec::new();
    }
    let groups: Vec<Group> = (0..request.variants.len()).map(|nr| group(request, runs, nr)).collect();
    let Some((first, others)) = groups.split_first().filter(|(first, _)| !first.runs.is_empty()) else {
        return Vec::new();
    };
    let settings = Settings { metrics: vec![WALL.to_owned()], order: Order::Random, ..Settings::default() };
    others.iter().filter(|of| !of.runs.is_empty()).map(|of| compare::compare(first, of, &settings)).collect()
}

/// The table of all commands.
pub fn text(request: &RunRequest, runs: &[Finished], bold: fn(&str) -> String) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = table(&mut out, request, runs, bold);
    out
}

fn table(out: &mut String, request: &RunRequest, runs: &[Finished], bold: fn(&str) -> String) -> std::fmt::Result {
    if let Some(run) = runs.first() {
        writeln!(out, "{}", run.record.made_on)?;
    }
    for (nr, variant) in request.variants.iter().enumerate() {
        for line in wrap(&format!("[{}] {}", nr + 1, variant.label), 80) {
            writeln!(out, "{}", bold(&line))?;
        }
    }
    let heads = ["runs", "median", "mean", "min", "max", "user", "system"];
    writeln!(out, "\n{:<4}{}", "", heads.map(|head| format!("{head:>10}")).concat())?;
    let time = |seconds: f64| format!("{:>10}", quantity(seconds, "s", 3));
    for nr in 0..request.variants.len() {
        let wall = values(runs, nr, WALL);
        let Summary([mean, _, median, min, max]) = summary(&wall);
        let mean_of = |name: &str| summary(&values(runs, nr, name)).0[0];
        let times = [median, mean, min, max, mean_of("user_s"), mean_of("system_s")].map(time).concat();
        writeln!(out, "{:<4}{:>10}{times}", format!("[{}]", nr + 1), wall.len())?;
    }
    let heads = ["read", "written", "faults", "with I/O", "waits"];
    writeln!(out, "\n{:<4}{}", "mean", heads.map(|head| format!("{head:>10}")).concat())?;
    for nr in 0..request.variants.len() {
        let mean = |name: &str| summary(&values(runs, nr, name)).0[0].max(0.0);
        let bytes = |name: &str| format!("{:>10}", size(mean(name).round() as u64));
        let count = |name: &str| format!("{:>10}", mean(name).round() as u64);
        let cells = [
            bytes("read_bytes"),
            bytes("written_bytes"),
            count("minor_faults"),
            count("major_faults"),
            count("voluntary_switches"),
        ];
        writeln!(out, "{:<4}{}", format!("[{}]", nr + 1), cells.concat())?;
    }
    let shell = runs.iter().find_map(|run| run.record.more.get("live")?.get("shell_s")?.as_f64());
    if let Some(shell) = shell.filter(|shell| *shell > 0.0) {
        writeln!(out, "\nThe start of a shell, {}, is subtracted.", quantity(shell, "s", 3))?;
    }
    Ok(())
}

/// The results in a file's form.
pub fn export(form: Export, request: &RunRequest, runs: &[Finished]) -> String {
    match form {
        Export::Json => format!("{:#}\n", exported_json(request, runs)),
        Export::Csv => csv(request, runs),
        Export::Markdown => markdown(request, runs),
    }
}

fn parameters(request: &RunRequest, nr: usize) -> &[(String, String)] {
    request.own.as_ref().and_then(|own| own.commands.get(nr)).map_or(&[], |command| &command.parameters)
}

fn exported_json(request: &RunRequest, runs: &[Finished]) -> Value {
    let result = |nr: usize| {
        let wall = values(runs, nr, WALL);
        let Summary([mean, deviation, median, min, max]) = summary(&wall);
        let mean_of = |name: &str| summary(&values(runs, nr, name)).0[0];
        let exit = |run: &Finished| run.record.more.get("live").and_then(|live| live.get("exit_code").cloned());
        let named: Map<String, Value> =
            parameters(request, nr).iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        json!({
            "command": request.variants[nr].label,
            "mean": mean,
            "stddev": deviation,
            "median": median,
            "user": mean_of("user_s"),
            "system": mean_of("system_s"),
            "min": min,
            "max": max,
            "times": wall,
            "exit_codes": counted(runs, nr).filter_map(exit).collect::<Vec<_>>(),
            "parameters": named,
        })
    };
    json!({ "results": (0..request.variants.len()).map(result).collect::<Vec<_>>() })
}

fn csv(request: &RunRequest, runs: &[Finished]) -> String {
    let quoted = |text: &str| match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    let mut out = String::from("command,mean,stddev,median,user,system,min,max");
    parameters(request, 0)
        .iter()
        .for_each(|(name, _)| out.push_str(&format!(",{}", quoted(&format!("parameter_{name}")))));
    out.push('\n');
    for (nr, variant) in request.variants.iter().enumerate() {
        let Summary([mean, deviation, median, min, max]) = summary(&values(runs, nr, WALL));
        let [user, system] = ["user_s", "system_s"].map(|name| summary(&values(runs, nr, name)).0[0]);
        out.push_str(&quoted(&variant.label));
        [mean, deviation, median, user, system, min, max].iter().for_each(|value| out.push_str(&format!(",{value}")));
        parameters(request, nr).iter().for_each(|(_, value)| out.push_str(&format!(",{}", quoted(value))));
        out.push('\n');
    }
    out
}

fn markdown(request: &RunRequest, runs: &[Finished]) -> String {
    let mut out =
        String::from("| Command | Mean [ms] | Min [ms] | Max [ms] | Relative |\n|:---|---:|---:|---:|---:|\n");
    let Summary([base, ..]) = summary(&values(runs, 0, WALL));
    for (nr, variant) in request.variants.iter().enumerate() {
        let Summary([mean, deviation, _, min, max]) = summary(&values(runs, nr, WALL));
        let ms = |seconds: f64| format!("{:.1}", seconds * 1e3);
        let label = variant.label.replace('|', "\\|");
        let line = [format!("{} ± {}", ms(mean), ms(deviation)), ms(min), ms(max), format!("{:.2}", mean / base)];
        out.push_str(&format!("| `{label}` | {} |\n", line.join(" | ")));
    }
    out
}
