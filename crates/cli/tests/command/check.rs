//! `iowhy check` from outside.

use std::fs;

use serde_json::Value;

use super::check_schema;
use super::compare::{Folder, command, values};
use super::text;

#[test]
fn the_gate_fails_passes_or_says_that_it_cannot_tell() {
    let folder = Folder::new("gate");
    let base = folder.file("base", &values(40, 100.0));
    let one = folder.file("one", &values(1, 120.0));
    let nothing = folder.file("nothing", "");
    let slower = folder.file("slower", &values(40, 110.0));
    let faster = folder.file("faster", &values(40, 80.0));
    for (candidate, allowed, code, outcome) in [
        (&slower, "5%", 1, "fail"),
        (&slower, "20%", 0, "pass"),
        // The change is about as large as what is allowed.
        (&slower, "10%", 3, "inconclusive"),
        (&faster, "5%", 0, "pass"),
        (&base, "5%", 0, "pass"),
        (&one, "5%", 3, "inconclusive"),
        (&nothing, "5%", 3, "inconclusive"),
    ] {
        let line = ["check", "--samples", &base, candidate, "--max-regression", allowed, "--json"];
        let output = command(&folder, &line);
        let value: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{line:?}: {error}\n{}", text(&output.stderr)));
        check_schema("check", &value);
        assert_eq!(
            (output.status.code(), value["outcome"].as_str()),
            (Some(code), Some(outcome)),
            "{line:?} {value:#}"
        );
        let shown = command(&folder, &line[..6]);
        assert_eq!(shown.status.code(), Some(code), "text and JSON say the same");
        let shown = text(&shown.stdout);
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        let rule = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(rule.contains("fails if a regression beyond the allowance is certain"), "{shown}");
    }
}

#[test]
fn other_programs_are_told_in_their_own_words() {
    let folder = Folder::new("reports");
    let base = folder.file("base", &values(40, 100.0));
    let slower = folder.file("slower", &values(40, 110.0));
    let xml = folder.path().join("report.xml").display().to_string();
    let output = command(&folder, &["check", "--samples", &base, &slower, "--junit", &xml, "--github"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).starts_with("::error title=regression%3A value::"), "{}", text(&output.stdout));
    let report = fs::read_to_string(&xml).expect("the report is there");
    assert!(report.contains("failures=\"1\"") && report.ends_with("</testsuites>\n"), "{report}");
    let nowhere = folder.path().join("no/folder/report.xml").display().to_string();
    let output = command(&folder, &["check", "--samples", &base, &slower, "--junit", &nowhere]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = Folder::new("refused");
    let base = folder.file("base", &values(40, 100.0));
    for (line, expected) in [
        (vec!["check"], "--baseline"),
        (vec!["check", "--samples", &base], "takes two files"),
        (vec!["check", "--samples", &base, &base, &base], "takes two files"),
        (vec!["check", "--baseline", "x", &base], "and no --samples"),
        (vec!["check", "--baseline", "x"], "no store in"),
        (vec!["check", "--samples", &base, &base, "--max-regression", "much"], "a percentage from 0"),
        (vec!["check", "--samples", &base, &base, "--json", "--github"], "cannot be used with"),
    ] {
        let output = command(&folder, &line);
        let message = text(&output.stderr);
        let silent = output.stdout.is_empty() || line.contains(&"--json");
        assert_eq!((output.status.code(), silent), (Some(2), true), "{line:?}\n{message}");
        assert!(message.contains(expected), "no {expected:?} in\n{message}");
    }
}
