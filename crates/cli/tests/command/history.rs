//! `iowhy history` from outside: exit codes, JSON, text, files with mistakes.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::{check_schema, iowhy, refused, text};

/// A file that is removed at the end.
struct File(PathBuf);

impl File {
    fn new(name: &str, content: &str) -> File {
        let path = std::env::temp_dir().join(format!("iowhy-history-{name}-{}", std::process::id()));
        fs::write(&path, content).expect("a file");
        File(path)
    }

    fn history(&self, options: &str) -> std::process::Output {
        iowhy(&format!("history --samples {} {options}", self.0.display()))
    }

    fn json(&self, options: &str, code: i32) -> Value {
        let output = self.history(&format!("{options} --json"));
        assert_eq!(output.status.code(), Some(code), "{options}\n{}", text(&output.stderr));
        let value = serde_json::from_slice(&output.stdout).expect("JSON");
        check_schema("history", &value);
        value
    }

    fn refused(&self, options: &str) -> String {
        refused(&format!("history --samples {} {options}", self.0.display()))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Values around levels, each with a count: a sawtooth is noise enough.
fn values(levels: &[(f64, usize)]) -> Vec<f64> {
    let all = levels.iter().flat_map(|(level, count)| std::iter::repeat_n(*level, *count));
    all.enumerate().map(|(nr, level)| level + (nr * 7 % 11) as f64 / 10.0).collect()
}

fn lines(levels: &[(f64, usize)]) -> String {
    values(levels).iter().fold(String::new(), |mut text, value| {
        let _ = writeln!(text, "{value}");
        text
    })
}

#[test]
fn the_exit_code_says_whether_the_newest_runs_are_worse() {
    for (name, levels, code, indexes) in [
        ("worse", &[(100.0, 30), (110.0, 30)][..], 1, &[30][..]),
        ("better", &[(100.0, 30), (90.0, 30)], 0, &[30]),
        ("worse-then-better", &[(100.0, 30), (120.0, 30), (100.0, 30)], 0, &[30, 60]),
        ("stable", &[(100.0, 60)], 0, &[]),
        ("too-short", &[(100.0, 1), (110.0, 2)], 3, &[]),
    ] {
        let file = File::new(name, &lines(levels));
        for method in ["", "--method fast", "--method e-divisive", "--method windowed"] {
            let value = file.json(method, code);
            let points = value["points"].as_array().expect("a list");
            let found: Vec<u64> = points.iter().map(|point| point["index"].as_u64().expect("a number")).collect();
            assert_eq!(found, indexes, "{name} {method}");
            assert_eq!(value["series"][0]["points"].as_array().map(Vec::len), Some(indexes.len()));
        }
    }
}

#[test]
fn for_a_rate_less_is_worse() {
    let file = File::new("rate", &lines(&[(100.0, 30), (90.0, 30)]));
    assert_eq!(file.json("--metric read_iops", 1)["points"][0]["direction"], "worse");
    assert_eq!(file.json("--metric read_iops --min-change 20%", 0)["points"], Value::Array(Vec::new()));
}

#[test]
fn a_table_has_a_series_for_each_metric_and_machine() {
    let mut table = "time,commit,machine,branch,p99_ns,read_iops\n".to_owned();
    for (nr, value) in values(&[(100.0, 30), (110.0, 30)]).into_iter().enumerate() {
        let _ = writeln!(table, "{},c{nr},a,\"main, old\",{value},{}", 1_700_000_000 + nr, 1000 + nr * 7 % 11);
        let _ = writeln!(table, "{},c{nr},b,main,nan,{}", 1_700_000_000 + nr, 1000 + nr * 7 % 11);
    }
    let file = File::new("table", &table);
    let value = file.json("", 1);
    let series: Vec<(&str, &str, u64)> = value["series"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|s| {
            (s["metric"].as_str().unwrap_or(""), s["machine"].as_str().unwrap_or(""), s["n"].as_u64().unwrap_or(0))
        })
        .collect();
    assert_eq!(series, [("p99_ns", "a", 60), ("p99_ns", "b", 0), ("read_iops", "a", 60), ("read_iops", "b", 60)]);
    let point = &value["points"][0];
    assert_eq!((&point["run_id"], &point["machine"], &point["metric"]), (&"c30".into(), &"a".into(), &"p99_ns".into()));
    assert_eq!(point["started_ns"], 1_700_000_030_000_000_000u64);
    let kinds: Vec<&Value> =
        value["series"][1]["warnings"].as_array().expect("a list").iter().map(|warning| &warning["kind"]).collect();
    assert_eq!(kinds, ["too-short", "left-out"]);
    assert!(file.refused("--metric p99").contains("nearest: p99_ns"));
}

#[test]
fn the_text_fits_eighty_columns_and_shows_nothing_unfit() {
    let mut table = "run,p99_ns\n".to_owned();
    for (nr, value) in values(&[(100.0, 50), (110.0, 50)]).into_iter().enumerate() {
        let _ = writeln!(table, "\x1b[31m{nr},{value}");
    }
    let output = File::new("text", &table).history("");
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(shown.contains("worse from run 51") && shown.contains('▁') && !shown.contains('\x1b'), "{shown}");
    assert_eq!(shown, text(&File::new("text", &table).history("").stdout));
}

#[test]
fn mistakes_are_told_all_at_once_with_line_and_column() {
    let message = File::new("numbers", "1\n2\nx\n4\ny\n").refused("");
    assert!(message.contains("line 3: not a number") && message.contains("line 5"), "{message}");
    let message = File::new("fields", "a,b\n1,2\n3\n4,x\n").refused("");
    assert!(message.contains("line 3: 1 fields") && message.contains("line 4, column `b`"), "{message}");
    let message = File::new("head", "a,a,\n1,2,3\n").refused("");
    assert!(message.contains("second column") && message.contains("without a name"), "{message}");
    assert!(File::new("quote", "a,b\n\"1,2\n").refused("").contains("quote is not closed"));
    assert!(File::new("empty", "\n").refused("").contains("is empty"));
    assert!(File::new("words", "a,b\nx,y\n").refused("").contains("no column of numbers"));
    refused("history --samples there-is-no-such-file");
    for option in ["--alpha 0", "--alpha 2", "--alpha x", "--min-change -1", "--min-segment 0", "--method x"] {
        refused(&format!("history {option}"));
    }
    refused("history --samples a --label b");
    refused("history --store there-is-no-such-store");
}
