//! OpenMetrics text of gates and findings, read by Prometheus' own strict parser.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::compare::{Folder, command, values};
use super::text;

/// Prints every sample, or fails where the text is not OpenMetrics.
const READ: &str = "
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read
families = list(read(sys.stdin.read()))
assert all(of.type == 'gauge' and of.documentation and of.name.endswith(of.unit) for of in families)
samples = [(of.name, of.labels, of.value) for family in families for of in family.samples]
assert len(samples) == len({json.dumps(of[:2], sort_keys=True) for of in samples}), 'labels twice'
print(json.dumps(samples))
";

/// The samples of a page, or the parser's complaint; nothing without a parser.
fn read(page: &str) -> Option<Result<Vec<Value>, String>> {
    let parser = "/usr/lib/python3/dist-packages/prometheus_client/openmetrics/parser.py";
    if !Path::new(parser).exists() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "CI needs python3-prometheus-client");
        println!("skipped: the parser is not installed (python3-prometheus-client)");
        return None;
    }
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", READ]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut python = python.spawn().expect("python3 starts");
    python.stdin.take().expect("a pipe").write_all(page.as_bytes()).expect("it reads");
    let output = python.wait_with_output().expect("it ends");
    Some(match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).expect("JSON")),
        false => Err(text(&output.stderr)),
    })
}

/// Samples of a family whose labels hold these.
fn value(samples: &[Value], name: &str, labels: &Value) -> Vec<f64> {
    let has = |of: &Value| labels.as_object().expect("an object").iter().all(|(name, value)| of[name] == *value);
    let of = samples.iter().filter(|of| of[0] == name && has(&of[1]));
    of.map(|of| of[2].as_f64().unwrap_or(f64::NAN)).collect()
}

#[test]
fn a_gate_is_read_by_prometheus() {
    let folder = Folder::new("metrics");
    let odd = "odd\\\"name,µ";
    let two = |of: f64| {
        let lines = values(40, of).lines().map(|line| format!("{line},{line}\n")).collect::<String>();
        format!("\"odd\\\"\"name,µ\",other_s\n{lines}")
    };
    let (base, slower) = (folder.file("base.csv", &two(100.0)), folder.file("slow\\er.csv", &two(110.0)));
    let page = folder.path().join("gate.prom").display().to_string();
    for (allowance, outcome, code) in [("5%", "fail", 1), ("20%", "pass", 0)] {
        let line = ["check", "--samples", &base, &slower, "--better", "lower", "--max-regression", allowance];
        let output = command(&folder, &[&line[..], &["--openmetrics", &page]].concat());
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        let page = fs::read_to_string(&page).expect("the page is there");
        let Some(samples) = read(&page) else { return };
        let samples = samples.unwrap_or_else(|error| panic!("{error}\n{page}"));
        for of in ["pass", "fail", "inconclusive"] {
            let expected = [f64::from(u8::from(of == outcome))];
            assert_eq!(value(&samples, "iowhy_gate", &json!({"outcome": of, "candidate": slower})), expected, "{page}");
            let metric = json!({"outcome": of, "metric": odd});
            assert_eq!(value(&samples, "iowhy_gate_metric", &metric), expected, "{page}");
        }
        let change = value(&samples, "iowhy_gate_change_percent", &json!({"metric": odd}));
        assert!(change.len() == 1 && (change[0] - 10.0).abs() < 1.0, "{page}");
        let allowance: f64 = allowance.trim_end_matches('%').parse().expect("a number");
        assert_eq!(value(&samples, "iowhy_gate_allowance_percent", &json!({})), [allowance]);
        for (from, to) in [("# EOF\n", ""), ("\\\"", "\""), ("} 1\n", "} one\n"), (" gauge\n", "\n")] {
            assert!(page.contains(from), "no {from:?} in {page}");
            assert!(read(&page.replace(from, to)).is_some_and(|read| read.is_err()), "{from:?} as {to:?} is read");
        }
    }
}

#[test]
fn findings_are_read_by_prometheus() {
    let folder = Folder::new("findings");
    let page = folder.path().join("why.prom").display().to_string();
    let line = ["explain", "2012-plugged-readahead", "--prove", "--runs", "3", "--json", "--openmetrics", &page];
    let output = command(&folder, &line);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let explained: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let page = fs::read_to_string(&page).expect("the page is there");
    let Some(samples) = read(&page) else { return };
    let samples = samples.unwrap_or_else(|error| panic!("{error}\n{page}"));
    assert_eq!(value(&samples, "iowhy_explain_verdict", &json!({"verdict": explained["verdict"]})), [1.0]);
    assert_eq!(value(&samples, "iowhy_explain_verdict", &json!({})).iter().sum::<f64>(), 1.0);
    let findings = explained["findings"].as_array().expect("findings");
    assert!(!findings.is_empty());
    for finding in findings {
        let labels = json!({"rule": finding["rule"], "layer": finding["layer"], "candidate": explained["b"]});
        for (name, figure) in [
            ("iowhy_finding_share_percent", &finding["share_of_change_pct"]),
            ("iowhy_finding_confidence_ratio", &finding["confidence"]),
            ("iowhy_finding_certainty_ratio", &finding["certainty"]),
            ("iowhy_finding_gone_percent", &finding["counterfactual"]["gone_pct"]),
        ] {
            let expected: Vec<f64> = figure.as_f64().into_iter().collect();
            assert_eq!(value(&samples, name, &labels), expected, "{name}\n{page}");
        }
        if let Some(outcome) = finding["counterfactual"]["outcome"].as_str() {
            let labels = json!({"rule": finding["rule"], "outcome": outcome});
            assert_eq!(value(&samples, "iowhy_finding_experiment", &labels), [1.0], "{page}");
        }
    }
}
