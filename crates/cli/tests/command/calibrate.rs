//! `iowhy calibrate` through the binary.

use serde_json::Value;

use crate::check_schema;
use crate::compare::{Folder, command};

const JOB: &[&str] =
    &["dd", "if=/dev/sda", "bs=4k", "count=64", "iflag=direct", "--on", "sim:linux-4.4", "--disk", "sata-2014"];

fn calibrate(folder: &Folder, options: &[&str], job: &[&str]) -> (Option<i32>, Value, String) {
    let words = [&["calibrate", "--json"], options, job].concat();
    let output = command(folder, &words);
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code(), report, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn equal_runs_are_compared_with_themselves_and_comparisons_quote_it() {
    let folder = Folder::new("calibrate");
    let (code, report, said) = calibrate(&folder, &["--runs", "12", "--per-side", "5"], JOB);
    assert_eq!(code, Some(0), "{said}");
    check_schema("calibrate", &report);
    let found = report["calibrations"].as_array().expect("a list");
    assert!(found.iter().any(|one| one["design"] == "sequential"), "{report}");
    assert!(found.iter().all(|one| one["runs"] == 12 && one["per_side"] == 5), "{report}");
    // A simulator with another seed is the same machine: no alarm is what it must raise.
    assert!(found.iter().all(|one| one["false_alarms"] == 0), "{report}");

    let run = [&["run"], JOB, &["--repeat", "6", "--label"]].concat();
    for label in ["before", "after"] {
        assert_eq!(command(&folder, &[&run[..], &[label]].concat()).status.code(), Some(0));
    }
    let output = command(&folder, &["compare", "before", "after", "--json"]);
    let comparison: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let quoted = comparison["calibration"].as_array().expect("a list");
    assert!(!quoted.is_empty(), "{comparison:#}");
    // The store has the calls of these runs, too.
    let tails = comparison["latencies"].as_array().expect("a list");
    assert!(!tails.is_empty(), "{comparison:#}");
}

#[test]
fn runs_of_the_store_will_do_and_too_few_are_said_to_be() {
    let folder = Folder::new("calibrate-from");
    let run = [&["run"], JOB, &["--repeat", "8", "--label", "night"]].concat();
    assert_eq!(command(&folder, &run).status.code(), Some(0));
    let (code, report, said) = calibrate(&folder, &["--from", "night", "--per-side", "4"], &[]);
    assert_eq!((code, report["calibrations"][0]["runs"].as_u64()), (Some(0), Some(8)), "{said}");
    let (code, report, said) = calibrate(&folder, &["--from", "night", "--per-side", "5"], &[]);
    assert_eq!((code, report["calibrations"].as_array().map(Vec::len)), (Some(3), Some(0)), "{said}");
    assert!(said.contains("at least 10 runs"), "{said}");
}

#[test]
fn mistakes_end_with_2() {
    let folder = Folder::new("calibrate-mistakes");
    let cases: &[(&[&str], &str)] = &[
        (&[], "no job to calibrate"),
        (&["dd", "if=/dev/sda", "--on", "sim:linux-9"], "linux-9"),
        (&["dd", "if=/dev/sda", "count=8", "--on", "sim:linux-4.4", "--on", "sim:linux-6.1"], "one configuration"),
    ];
    for (job, expected) in cases {
        let (code, _, said) = calibrate(&folder, &["--runs", "2"], job);
        assert_eq!(code, Some(2), "{job:?}: {said}");
        assert!(said.contains(expected), "{job:?}: {said}");
    }
}
