//! Samples as mmtests compares them: its statistics, its signs of percent, one column for each label.
//!
//! Units of different directions come in tables of their own, since mmtests chooses the mean by the direction.

use std::fmt::Write;

use crate::tables::{Layout, Operation, default_statistics, table};
use iowhy_stats::Better;
use iowhy_stats::metric::Group;
use iowhy_stats::mmtests::is_total_loss;
use iowhy_text::shown;

/// The tables of some groups, the first of which is the base. `metrics` are those to show; empty for all.
pub fn text(groups: &[Group], metrics: &[String]) -> String {
    let labels: Vec<String> = groups.iter().map(|group| shown(&group.label, 60)).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let mut text = String::new();
    for better in [Better::Lower, Better::Higher] {
        let operations = operations(groups, metrics, better);
        if operations.is_empty() {
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text += &table(&labels, &operations, &default_statistics(better)).render(&Layout::NEW);
        let _ = writeln!(text, "{} is better; positive percent is better than {}", better.word(), labels[0]);
        for (name, label) in lost(&operations, &labels) {
            let _ = writeln!(text, "{name}: {label} lost everything; mmtests prints that as no change");
        }
    }
    text
}

fn operations(groups: &[Group], metrics: &[String], better: Better) -> Vec<Operation> {
    let mut found: Vec<Operation> = Vec::new();
    for column in groups.iter().flat_map(|group| &group.columns) {
        let name = shown(&column.metric.name, 60);
        let wanted = metrics.is_empty() || metrics.contains(&column.metric.name);
        if !wanted || column.metric.better != better || found.iter().any(|known| known.name == name) {
            continue;
        }
        let samples = |group: &Group| group.column(&column.metric.name).map(|of| of.values.clone()).unwrap_or_default();
        found.push(Operation { name, samples: groups.iter().map(samples).collect(), better });
    }
    found
}

/// Operations whose candidate has nothing left, which mmtests prints as 0 %.
fn lost<'a>(operations: &'a [Operation], labels: &'a [&str]) -> Vec<(&'a str, &'a str)> {
    let mean = |samples: &[f64]| samples.iter().sum::<f64>() / samples.len() as f64;
    let mut found = Vec::new();
    for operation in operations {
        for (samples, label) in operation.samples.iter().zip(labels).skip(1) {
            if is_total_loss(mean(&operation.samples[0]), mean(samples), operation.better) {
                found.push((operation.name.as_str(), *label));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use iowhy_stats::metric::{Column, Metric};

    fn group(label: &str, columns: &[(&str, &[f64])]) -> Group {
        let column = |(name, values): &(&str, &[f64])| Column {
            metric: Metric::of(name),
            values: values.to_vec(),
            runs: Vec::new(),
            left_out: 0,
        };
        Group { label: label.to_owned(), runs: Vec::new(), columns: columns.iter().map(column).collect() }
    }

    #[test]
    fn each_direction_has_a_table_and_each_label_a_column() {
        let groups = [
            group("6.1-old", &[("elapsed_s", &[5.0, 5.5]), ("iops", &[100.0, 100.0])]),
            group("6.1-new", &[("elapsed_s", &[4.0, 4.4]), ("iops", &[0.0, 0.0])]),
        ];
        let text = text(&groups, &[]);
        for expected in [
            "                             6.1                    6.1\n",
            "Amean     elapsed_s        5.25 (   0.00%)        4.20 (  20.00%)\n",
            "Max  iops      100.00",
            "lower is better; positive percent is better than 6.1-old\n",
            "iops: 6.1-new lost everything",
        ] {
            assert!(text.replace("Max       ", "Max  ").contains(expected), "no {expected:?} in\n{text}");
        }
        assert_eq!(super::text(&groups, &["iops".to_owned()]).matches("elapsed_s").count(), 0);
    }
}
