//! `iowhy bisect`: between two kernels, and as what `git bisect run` calls.

use std::fs;
use std::process::{Command, Output};

use super::{Folder, check_schema, iowhy, json, refused, text};

const JOB: &str = "dd if=/dev/sda bs=1M count=48 pause_us=1000 pause_calls=16 \
                   --disk ssd-sata-2011,idle_threshold_us=200,idle_exit_us=6000";
const PLACES: &str = "--good sim:linux-2.6.38,machine=laptop-2011 --bad sim:linux-2.6.39,machine=laptop-2011";

#[test]
fn two_kernels_end_at_their_first_bad_policy() {
    let line = format!("bisect {PLACES} --metric read_mb_s --json {JOB}");
    let found = json(&line);
    check_schema("bisect", &found);
    assert_eq!(found["first_bad"]["policy"], "plug");
    assert_eq!(found["first_bad"]["from"], "queue-2.6.13");
    assert_eq!(found["first_bad"]["to"], "task-2.6.39");
    assert_eq!(found["answer"], "found");
    assert!(found["steps"].as_array().is_some_and(|steps| steps.len() >= 2));
    // The same words in another order, and the same bytes.
    assert_eq!(json(&format!("bisect {PLACES} {JOB} --metric read_mb_s --json")), found);
    let picture = text(&iowhy(&format!("bisect {PLACES} --metric read_mb_s {JOB}")).stdout);
    assert!(picture.contains("First bad: plug, from queue-2.6.13 to task-2.6.39"), "{picture}");
    assert!(picture.lines().any(|line| line.contains("#...") && line.contains("bad")), "{picture}");
}

#[test]
fn kernels_of_this_decade_end_at_their_first_bad_policy() {
    let found = json("bisect --good sim:linux-6.6 --bad sim:linux-6.8 --json dd if=/dev/sda bs=1M count=100");
    assert_eq!(found["first_bad"]["policy"], "readahead");
    assert_eq!(found["first_bad"]["from"], "linux-6.6");
    assert_eq!(found["first_bad"]["to"], "linux-6.6.57");
}

#[test]
fn a_bad_side_that_is_not_worse_is_said_to_be_better() {
    let places = "--good sim:linux-6.1,read_ahead_kb=16 --bad sim:linux-6.18";
    let output = iowhy(&format!("bisect {places} --json dd if=/dev/sda bs=64k count=1024"));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    check_schema("bisect", &value);
    assert_eq!((output.status.code(), value["answer"].as_str()), (Some(3), Some("not-worse")), "{value:#}");
    assert!(value["first_bad"].is_null() && value["steps"].as_array().is_some_and(Vec::is_empty), "{value:#}");
    let shown = text(&iowhy(&format!("bisect {places} dd if=/dev/sda bs=64k count=1024")).stdout);
    assert!(shown.contains("The bad side is better, not worse: elapsed_s is "), "{shown}");
    assert!(!shown.contains("First bad"), "{shown}");
}

#[test]
fn equal_sides_are_said_to_be_equal_and_mistakes_are_refused() {
    let equal = iowhy(&format!("bisect --good sim:linux-6.18 --bad sim:linux-6.18 --json {JOB}"));
    assert_eq!(equal.status.code(), Some(3), "{}", text(&equal.stderr));
    let value = serde_json::from_slice(&equal.stdout).expect("JSON");
    check_schema("bisect", &value);
    assert_eq!(value["answer"], "equal-stacks");
    for (line, expected) in [
        (format!("bisect --good sim:linux-6.18 {JOB}"), "--bad"),
        (format!("bisect --good sim:linux-6.81 --bad sim:linux-6.18 {JOB}"), "linux-6.81"),
        (format!("bisect --good sim:linux-6.1 --bad sim:linux-6.18 --metric elapsd_s {JOB}"), "elapsed_s"),
        (format!("bisect --good sim:linux-6.1 --bad sim:linux-6.18 {JOB} --on sim:linux-4.4"), "--good"),
        ("bisect --good sim:linux-6.1 --bad sim:linux-6.18 nosuchjob".to_owned(), "nosuchjob"),
    ] {
        let message = refused(&line);
        assert!(message.contains(expected), "{line}\n{message}");
    }
}

impl Folder {
    fn run(&self, program: impl AsRef<std::ffi::OsStr>, words: &[&str]) -> Output {
        Command::new(program)
            .args(words)
            .current_dir(&self.0)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .output()
            .expect("it starts")
    }

    fn git(&self, words: &[&str]) -> String {
        let output = self.run("git", words);
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{words:?}: {all}");
        all
    }

    fn iowhy(&self, words: &[&str]) -> (Option<i32>, String) {
        let output = self.run(env!("CARGO_BIN_EXE_iowhy"), words);
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }
}

/// Prints the commit's cost with noise as large as the change, from a generator whose state lies in git's folder; fails
/// where the commit does not build.
const MEASURE: &str = r#"#!/bin/sh
test "$(cat cost)" = broken && exit 1
state=$(cat .git/noise 2>/dev/null || echo 1)
state=$(( (state * 1103515245 + 12345) % 2147483648 ))
echo $state > .git/noise
echo "measuring"
echo $(( $(cat cost) + (state / 65536) % 41 ))
"#;

fn repository(name: &str, costs: &[&str]) -> Folder {
    let folder = Folder::new(&format!("bisect-{name}"));
    folder.git(&["init", "-q"]);
    folder.git(&["config", "user.email", "someone@example.com"]);
    folder.git(&["config", "user.name", "Someone"]);
    for (nr, cost) in costs.iter().enumerate() {
        fs::write(folder.0.join("cost"), cost).expect("a file");
        fs::write(folder.0.join("nr"), nr.to_string()).expect("a file");
        folder.git(&["add", "cost", "nr"]);
        folder.git(&["commit", "-q", "-m", &format!("commit {nr}")]);
        folder.git(&["tag", &format!("c{nr}")]);
    }
    fs::write(folder.0.join("measure"), MEASURE).expect("a script");
    folder
}

#[test]
fn commits_that_differ_in_the_other_direction_are_refused() {
    let folder = Folder::new("bisect-direction");
    folder.git(&["init", "-q"]);
    for (more, refused) in [
        (&["--good-value=2", "--bad-value=1", "--wall"][..], true),
        (&["--good-value=0", "--bad-value=1000", "--wall"], false),
        (&["--good-value=1", "--bad-value=2", "--metric=iops"], true),
        (&["--good-value=200", "--bad-value=100", "--metric=read_mib_s"], false),
        (&["--good-value=2", "--bad-value=1"], false),
    ] {
        let words = [&["bisect", "--git"], more, &["--", "echo", "{\"iops\": 5, \"read_mib_s\": 500}"]].concat();
        let (code, said) = folder.iowhy(&words);
        assert_eq!(said.contains("the bad commit is better, not worse"), refused, "{words:?}: {code:?} {said}");
        assert!(!refused || code == Some(128), "{words:?}: {code:?} {said}");
    }
}

#[test]
fn git_bisect_run_ends_at_the_planted_commit_through_noise() {
    // Noise of 40 on 100; 25 more from commit 8 on; two commits do not build.
    let costs = ["100", "100", "broken", "100", "100", "100", "100", "100", "125", "125", "broken", "125", "125"];
    let folder = repository("run", &costs);
    let measure = ["sh", "measure"];
    for (commit, known) in [("c0", "good"), ("c12", "bad")] {
        folder.git(&["checkout", "-q", commit]);
        let words = ["bisect", "--git", "--learn", known, "--runs", "40", "--", measure[0], measure[1]];
        let (code, said) = folder.iowhy(&words);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("40 values"), "{said}");
    }
    folder.git(&["bisect", "start", "c12", "c0"]);
    let driver = [
        "bisect",
        "run",
        env!("CARGO_BIN_EXE_iowhy"),
        "bisect",
        "--git",
        "--runs",
        "300",
        "--",
        measure[0],
        measure[1],
    ];
    let said = folder.git(&driver);
    let first = said.lines().position(|line| line.contains("is the first bad commit")).expect(&said);
    assert!(said.lines().skip(first).any(|line| line.trim() == "commit 8"), "{said}");
    assert!(said.contains("the chance that this is wrong is at most 0.001"), "{said}");
}

#[test]
fn each_answer_for_git_has_its_code() {
    let folder = repository("codes", &["100", "broken", "150", "120"]);
    let at = |commit: &str, words: &[&str]| {
        folder.git(&["checkout", "-q", commit]);
        let words: Vec<&str> =
            ["bisect", "--git"].iter().chain(words).chain(&["--", "sh", "measure"]).copied().collect();
        folder.iowhy(&words)
    };
    let values = ["--good-value", "120", "--bad-value", "170"];
    assert_eq!(at("c0", &values).0, Some(0));
    assert_eq!(at("c2", &values).0, Some(1));
    // It does not build.
    let (code, said) = at("c1", &values);
    assert_eq!(code, Some(125), "{said}");
    // Half of its values lie on each side of 140: nothing can be said, and nothing is.
    let (code, said) = at("c3", &["--good-value", "120", "--bad-value", "160"]);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("more would be needed"), "{said}");
    // Mistakes must not look like bad commits.
    for words in [
        &["--good-value", "120", "--bad-value", "120"][..],
        &["--good-value", "120"],
        &["--no-such-option"],
        &["--good-value", "1", "--bad-value", "2", "--runs", "5"],
        &["--good-value", "1", "--bad-value", "2", "--metric", "elapsed_s"],
        &[],
    ] {
        let (code, said) = at("c0", words);
        assert_eq!(code, Some(128), "{words:?}: {said}");
    }
    // A command that cannot be started says nothing of the commit; its time can be taken, too.
    let words = ["bisect", "--git", "--good-value", "1", "--bad-value", "2", "--", "./no-such-program"];
    assert_eq!(folder.iowhy(&words).0, Some(125));
    let wall = ["bisect", "--git", "--wall", "--good-value", "0", "--bad-value", "120", "--", "sh", "measure"];
    assert_eq!(folder.iowhy(&wall).0, Some(0));
}

#[test]
fn verdicts_of_other_verbs_have_codes_for_git() {
    let folder = Folder::new("bisect-exit");
    let file = |name: &str, values: &[u32]| {
        let text: String = values.iter().map(|value| format!("{value}\n")).collect();
        fs::write(folder.0.join(name), text).expect("a file");
    };
    file("a", &[100, 101, 99, 100, 102, 98, 100, 101, 99, 100]);
    file("b", &[150, 151, 149, 150, 152, 148, 150, 151, 149, 150]);
    file("c", &[100, 150]);
    for (words, plain, code) in [
        (&["compare", "--samples", "b", "a"][..], 0, 0),
        (&["compare", "--samples", "a", "b"], 1, 1),
        (&["compare", "--samples", "a", "c"], 3, 125),
        (&["compare", "--samples", "a", "none"], 2, 128),
        (&["compare", "--nonsense"], 2, 128),
    ] {
        assert_eq!(folder.iowhy(words).0, Some(plain), "{words:?}");
        let words: Vec<&str> = words.iter().copied().chain(["--bisect-exit"]).collect();
        assert_eq!(folder.iowhy(&words).0, Some(code), "{words:?}");
    }
}
