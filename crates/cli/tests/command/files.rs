//! fio's job files wherever a job can stand, and files of samples of which a side has several.

use std::fs;

use serde_json::Value;

use super::compare::{Folder, command, values};
use super::{check_schema, text};

const READS: &str = "[reads]\nrw=read\nbs=4k\nsize=4m\n";

#[test]
fn every_verb_with_a_job_takes_a_file() {
    let folder = Folder::new("job-files");
    let job = folder.file("reads.fio", READS);
    let page = folder.path().join("why.html").display().to_string();
    let places = ["sim:linux-4.4", "sim:linux-4.4,read_ahead_kb=0"];
    for words in [
        &["explain", places[0], places[1], "--", &job][..],
        &["explain", places[0], places[1], "--prove", "--", &job],
        &["report", places[0], places[1], "-o", &page, "--", &job],
        &["bisect", "--good", places[0], "--bad", places[1], &job],
        &["calibrate", "--runs", "4", "--per-side", "2", &job, "--on", places[0]],
    ] {
        let output = command(&folder, words);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words:?}\n{message}");
        assert_eq!(message, "", "{words:?}");
    }
    assert!(fs::read_to_string(page).expect("the page").starts_with("<!"));
    let data = text(&command(&folder, &["report", places[0], places[1], "--json", "--", &job]).stdout);
    assert!(data.contains("reads.fio"), "the command is in the report");
}

#[test]
fn mistakes_in_a_file_are_reported_once_with_their_place() {
    let folder = Folder::new("job-mistakes");
    let job = folder.file("reads.fio", &format!("{READS}bss=1\n"));
    for words in [
        &["explain", "sim:linux-4.4", "sim:linux-6.1", "--", &job][..],
        &["bisect", "--good", "sim:linux-4.4", "--bad", "sim:linux-6.1", &job],
        &["calibrate", &job, "--on", "sim:linux-4.4"],
    ] {
        let output = command(&folder, words);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}\n{message}");
        assert_eq!(message.matches("reads.fio:5").count(), 1, "{words:?}\n{message}");
    }
    let output = command(&folder, &["explain", "sim:linux-4.4", "sim:linux-6.1", "--", "nowhere.fio"]);
    let message = text(&output.stderr);
    assert_eq!((output.status.code(), message.matches("error:").count()), (Some(2), 1), "{message}");
}

#[test]
fn a_kept_run_is_proved_with_its_own_job_only() {
    let folder = Folder::new("job-changed");
    let job = folder.file("reads.fio", READS);
    for (label, place) in [("fast", "sim:linux-4.4"), ("slow", "sim:linux-4.4,read_ahead_kb=0")] {
        let words = ["run", &job, "--on", place, "--trace", "--repeat", "3", "--label", label];
        assert_eq!(command(&folder, &words).status.code(), Some(0));
    }
    let experiments = || {
        let output = command(&folder, &["explain", "fast", "slow", "--prove", "--json"]);
        let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        found["findings"].as_array().expect("findings").iter().any(|finding| !finding["counterfactual"].is_null())
    };
    assert!(experiments());
    folder.file("reads.fio", &READS.replace("4k", "8k"));
    assert!(!experiments());
}

/// What fio prints of a run, as far as it counts here.
fn printed(bs: &str, iops: f64, second: u64) -> String {
    let direction = format!(
        r#"{{"total_ios": 1000, "iops": {iops}, "bw_bytes": {}, "clat_ns": {{"mean": 5000.0, "max": 9000000,
        "percentile": {{"50.000000": 4800, "99.000000": {}}}}}}}"#,
        iops * 4096.0,
        5e9 / iops
    );
    format!(
        r#"{{"fio version": "fio-3.33", "timestamp": {second}, "global options": {{"ioengine": "psync", "bs": "1k"}},
        "jobs": [{{"jobname": "r", "job options": {{"name": "r", "rw": "randread", "bs": "{bs}", "direct": "1"}},
        "read": {direction}, "usr_cpu": 2.5, "sys_cpu": 7.5}}], "disk_util": [{{"name": "sda"}}]}}"#
    )
}

/// Files of runs around these operations a second; their names.
fn runs(folder: &Folder, name: &str, bs: &str, iops: f64) -> Vec<String> {
    let all = values(8, iops);
    let file = |(nr, line): (usize, &str)| {
        let iops = line.parse().expect("a number");
        folder.file(&format!("{name}{nr}.json"), &printed(bs, iops, 1_700_000_000 + nr as u64))
    };
    all.lines().enumerate().map(file).collect()
}

#[test]
fn sides_of_several_files_are_compared_and_options_that_differ_come_first() {
    let folder = Folder::new("sides");
    let (base, slow) = (runs(&folder, "a", "4k", 1000.0), runs(&folder, "b", "8k", 700.0));
    let equal = runs(&folder, "c", "4k", 1000.0);
    let line = |verb: &str, other: &[String], more: &[&str]| {
        let mut words = vec![verb.to_owned(), "--samples".to_owned()];
        words.extend(base.iter().cloned());
        words.push("--".to_owned());
        words.extend(other.iter().cloned());
        words.extend(more.iter().map(|word| (*word).to_owned()));
        let output = command(&folder, &words.iter().map(String::as_str).collect::<Vec<_>>());
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, shown, message) = line("compare", &slow, &[]);
    assert_eq!((code, message.as_str()), (Some(1), ""), "{shown}");
    assert!(shown.starts_with("Different job options: bs: A 4k, B 8k.\nRegression: "), "{shown}");
    assert!(shown.lines().last().is_some_and(|line| line.starts_with("Method: ")), "{shown}");
    assert!(line("compare", &slow, &["--verbose"]).1.contains("19"), "years of the literature");
    for (verb, schema) in [("compare", "compare"), ("check", "check")] {
        let (code, printed, message) = line(verb, &slow, &["--json"]);
        let value: Value = serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {message}"));
        check_schema(schema, &value);
        assert_eq!(code, Some(1), "{value:#}");
        assert_eq!(value["job_options"], serde_json::json!([{ "name": "bs", "a": ["4k"], "b": ["8k"] }]));
        assert_eq!(value["metrics"][0]["a"]["n"], 8);
    }
    let (code, shown, _) = line("check", &equal, &["--max-regression", "5%"]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.starts_with("PASS") && !shown.contains("job options"), "{shown}");
    let (code, shown, message) = line("compare", &slow, &["--format", "mail"]);
    assert_eq!((code, message.as_str()), (Some(1), ""));
    assert!(shown.lines().all(|line| line.chars().count() <= 72) && shown.is_ascii(), "{shown}");
    for expected in
        ["IOPS", "read", "p50", "p99", "CPU", "worse", "same", "fio --ioengine=psync", "runs:      8 before, 8 after"]
    {
        assert!(shown.contains(expected), "no {expected:?} in\n{shown}");
    }
    let (code, shown, _) = line("compare", &slow, &["--format", "mermaid"]);
    assert!(code == Some(1) && shown.starts_with("```mermaid\nxychart-beta\n"), "{shown}");
}

#[test]
fn a_folder_is_a_side_and_standard_error_lists_what_it_holds() {
    let (base, slow) = (Folder::new("folder-a"), Folder::new("folder-b"));
    let files = [runs(&base, "r", "4k", 1000.0), runs(&slow, "r", "4k", 700.0)];
    base.file("job.fio", "[r]\nrw=randread\n");
    let (a, b) = (base.path().display().to_string(), slow.path().display().to_string());
    let compared = |words: &[&str]| {
        let output = command(&base, &[&["compare", "--json", "--samples"][..], words].concat());
        let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (output.status.code(), value["metrics"].clone(), text(&output.stderr))
    };
    let names = |side: usize| files[side].iter().map(String::as_str);
    let listed = compared(&names(0).chain(["--"]).chain(names(1)).collect::<Vec<_>>());
    let (code, metrics, said) = compared(&[&a, &b]);
    assert_eq!((code, &metrics), (Some(1), &listed.1));
    assert!(said.contains("read 8 fio\n") && said.contains("skipped: not recognised (job.fio)"), "{said}");
    assert_eq!(text(&command(&base, &["--quiet", "compare", "--samples", &a, &b]).stderr), "");
    let output = command(&base, &["history", "--json", "--metric", "iops", "--samples", &a]);
    let history: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    check_schema("history", &history);
    assert_eq!(history["series"][0]["n"], 8, "{history:#}");
    fs::create_dir_all(base.path().join("none")).expect("a folder");
    let output = command(&base, &["compare", "--samples", &format!("{a}/none"), &b]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no file with samples"), "{}", text(&output.stderr));
}

#[test]
fn files_of_samples_make_a_page_without_events() {
    let folder = Folder::new("sides-page");
    let (base, slow) = (runs(&folder, "a", "4k", 1000.0), runs(&folder, "b", "8k", 700.0));
    let page = folder.path().join("why.html").display().to_string();
    let report = |sides: &[&[String]]| {
        let mut words: Vec<&str> = vec!["report", "--samples"];
        words.extend(sides[0].iter().map(String::as_str));
        words.extend(["--json", "-o", &page]);
        if let Some(other) = sides.get(1) {
            words.push("--");
            words.extend(other.iter().map(String::as_str));
        }
        let output = command(&folder, &words);
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), message.as_str()), (Some(0), ""), "{words:?}");
        let data: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        check_schema("report", &data);
        assert!(fs::read_to_string(&page).expect("the page").starts_with("<!"));
        data
    };
    let both = report(&[&base, &slow]);
    assert_eq!(both["comparison"]["job_options"][0]["name"], "bs");
    assert!(both["headline"]["why"].as_str().is_some_and(|why| why.contains("A 4k, B 8k")), "{}", both["headline"]);
    assert_eq!(both["differences"], serde_json::json!([{ "key": "option bs", "a": "4k", "b": "8k" }]));
    for side in both["sides"].as_array().expect("sides") {
        let curve = &side["latency"][0];
        assert_eq!((curve["op"].as_str(), curve["n"].as_u64()), (Some("read"), Some(8_000)));
        assert_eq!(curve["share"].as_array().and_then(|share| share.last()), Some(&1.0.into()));
        assert_eq!(side["runs"].as_array().map(Vec::len), Some(8));
    }
    let one = report(&[&base]);
    assert!(one["comparison"].is_null() && one["headline"]["verdict"] == "none", "{}", one["headline"]);
    assert_eq!(one["sides"].as_array().map(Vec::len), Some(1));
}

#[test]
fn sides_of_numbers_may_have_several_files_and_labels_too() {
    let folder = Folder::new("sides-numbers");
    let files = ["a", "b"].map(|name| folder.file(name, &values(20, 100.0)));
    let slow = ["c", "d"].map(|name| folder.file(name, &values(20, 120.0)));
    let words = ["compare", "--json", "--samples", &files[0], &files[1], "--", &slow[0], &slow[1]];
    let output = command(&folder, &words);
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), &value["metrics"][0]["b"]["n"]), (Some(1), &40.into()), "{value:#}");
    for words in [&["compare", "--samples", &files[0], "--"][..], &["check", "--samples", "--", &files[0]]] {
        assert_eq!(command(&folder, words).status.code(), Some(2), "{words:?}");
    }
}
