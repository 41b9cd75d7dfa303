//! What every verb has in common: help, examples, options, errors.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::{Folder, can_make_disks, check_schema, iowhy, json, refused, root, text};

/// The verbs of the first screen.
fn verbs() -> Vec<String> {
    let screen = iowhy("");
    assert_eq!(screen.status.code(), Some(0));
    let screen = text(&screen.stdout);
    let groups =
        screen.split_once("Diagnose").expect("groups").1.split("Options of every verb").next().unwrap_or_default();
    let verb = |line: &str| line.strip_prefix("  ").and_then(|line| line.split(' ').next().map(str::to_owned));
    groups.lines().filter_map(verb).filter(|verb| !verb.is_empty()).collect()
}

#[test]
fn the_first_screen_has_groups_and_what_this_machine_can_do() {
    let screen = text(&iowhy("").stdout);
    for title in ["On this machine", "Diagnose", "Compare", "Simulate", "Drop-ins", "Housekeeping"] {
        assert!(screen.contains(&format!("\n{title}\n")), "{title}\n{screen}");
    }
    assert!(screen.contains("iowhy doctor"), "{screen}");
    assert_eq!(screen.lines().find(|line| line.chars().count() > 80), None);
    let purposes = json_of_doctor();
    let names: Vec<&str> = purposes.iter().filter_map(|purpose| purpose["name"].as_str()).collect();
    assert_eq!(names, ["record", "explain", "modelled disks", "boot kernels", "simulate"]);
    for purpose in &purposes {
        let advice = purpose["advice"].as_str().expect("text");
        assert!(purpose["has"] == "yes" || !advice.is_empty(), "{purpose}");
    }
}

fn json_of_doctor() -> Vec<Value> {
    let output = iowhy("doctor --json");
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    value["purposes"].as_array().expect("a list").clone()
}

#[test]
fn help_is_the_same_before_and_after_a_verb() {
    let verbs = verbs();
    assert!(verbs.len() > 15, "{verbs:?}");
    for verb in verbs {
        let (before, after) = (iowhy(&format!("help {verb}")), iowhy(&format!("{verb} --help")));
        assert_eq!(text(&before.stdout), text(&after.stdout), "{verb}");
        assert_eq!(before.status.code(), Some(0), "{verb}");
        assert!(!before.stdout.is_empty(), "{verb}");
    }
}

/// A folder with everything that examples name.
fn prepared(live: bool) -> Folder {
    let folder = Folder::new("examples");
    let at = |name: &str| folder.0.join(name);
    fs::write(at("big"), vec![7; 4 << 20]).expect("a file");
    symlink(root().join("jobs"), at("jobs")).expect("a link");
    fs::create_dir(at("golden")).expect("a folder");
    let vectors = root().join("crates/lab/tests/golden/linux-6.18.json");
    fs::copy(vectors, at("golden/linux-6.18.json")).expect("vectors");
    let grid = "job = \"dd if=big bs=64k count=8\"\non = \"sim:linux-6.18\"\nseeds = 2\n";
    fs::write(at("grid.toml"), grid).expect("a file");
    for (name, step) in [("old.txt", 1.0), ("new.txt", 1.01)] {
        let numbers = (0..12).map(|nr| format!("{}\n", step * (100.0 + f64::from(nr % 5)))).collect::<String>();
        fs::write(at(name), numbers).expect("a file");
    }
    for name in ["old", "new"] {
        fs::write(at(name), "#!/bin/sh\nsleep 0.01\n").expect("a file");
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).expect("it can be run");
    }
    for label in ["base", "new"] {
        let job = format!("iowhy run dd if=/dev/sda bs=4k count=64 --on sim:linux-6.18 --runs 6 --label {label}");
        let made = run_example(&folder.0, &job);
        assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    }
    if live {
        for name in ["before", "after"] {
            let line = format!("iowhy trace record -o {name}.parquet -- dd if=big of=/dev/null bs=64k");
            let made = run_example(&folder.0, &line);
            assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
        }
    }
    folder
}

/// Types a line of an example. The examples are short here: a second instead of five, fewer and smaller runs.
fn run_example(folder: &Path, line: &str) -> Output {
    let mut line = line.to_owned();
    for (long, short) in [
        ("=1G", "=8M"),
        ("--time=5", "--time=1"),
        ("--runtime=5", "--runtime=1"),
        ("size=64m", "size=4m"),
        ("--runs 40", "--runs 4"),
    ] {
        line = line.replace(long, short);
    }
    let words = line.replacen("iowhy", env!("CARGO_BIN_EXE_iowhy"), 1);
    Command::new("sh")
        .args(["-c", &words])
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .env("IOWHY_STORE", folder.join("store"))
        .stdin(std::process::Stdio::null())
        .output()
        .expect("a shell")
}

/// The examples of a help text: lines that begin with the command, with those that a backslash continues.
fn examples(help: &str) -> Vec<String> {
    let joined = help.replace("\\\n", "");
    let mut found: Vec<String> = Vec::new();
    for line in joined.lines().filter_map(|line| line.strip_prefix("  iowhy ")) {
        found.push(format!("iowhy {}", line.split_whitespace().collect::<Vec<_>>().join(" ")));
    }
    found
}

#[test]
fn every_verb_has_two_examples_that_run() {
    let live = can_make_disks();
    let folder = prepared(live);
    let needs_root = |line: &str| {
        [
            "trace record",
            "before.parquet",
            "why -- ",
            "why --flame",
            "iowhy tune",
            "iowhy disk ",
            "conform --live",
            "--on live,",
        ]
        .iter()
        .any(|part| line.contains(part))
    };
    let mut ran = 0;
    for verb in verbs() {
        let examples = examples(&text(&iowhy(&format!("{verb} --help")).stdout));
        assert!(examples.len() >= 2 || verb == "bisect", "{verb}: {examples:?}");
        for line in examples {
            // A server does not end by itself.
            if needs_root(&line) && !live || line.contains("--serve") || line.starts_with("iowhy mcp") {
                continue;
            }
            let output = run_example(&folder.0, &line);
            // 1 and 3 are answers: a regression, or too little evidence.
            let code = output.status.code();
            assert!(
                matches!(code, Some(0 | 1 | 3)),
                "{line}: {code:?}\n{}{}",
                text(&output.stdout),
                text(&output.stderr)
            );
            ran += 1;
        }
    }
    assert!(ran > 20, "{ran} examples");
}

#[test]
fn options_of_all_verbs_stand_anywhere() {
    let plain = text(&iowhy("models device").stdout);
    assert_eq!(text(&iowhy("--quiet models --color never device").stdout), plain);
    assert!(text(&iowhy("--color=always models device").stdout).contains("\x1b[1m"));
    assert!(refused("models --color sometimes").contains("auto, always or never"));
    let (long, short) = (text(&iowhy("doctor").stdout), text(&iowhy("doctor --brief").stdout));
    assert!(long.starts_with(&short) && long.len() > 3 * short.len(), "{short}");
}

#[test]
fn errors_are_json_where_answers_are() {
    for (line, part) in [
        ("explain nosuch.parquet other --json", "no such file: `nosuch.parquet`"),
        ("models nosuch --json", "unknown kind `nosuch`"),
        ("run --json --jzon", "unknown option `--jzon`"),
        ("compare --json", "required arguments"),
    ] {
        let output = iowhy(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{line}: {error}"));
        check_schema("error", &value);
        assert_eq!(value["exit"], 2, "{line}");
        let problems = value["problems"].as_array().expect("a list");
        assert!(
            problems.iter().any(|it| it["message"].as_str().is_some_and(|it| it.contains(part))),
            "{line}\n{value:#}"
        );
    }
}

#[test]
fn what_is_missing_or_misplaced_is_named() {
    let message = refused("explain sim:linux-4.4 sim:linux-6.1 dd if=/dev/sda bs=64k count=200");
    assert!(message.contains("iowhy explain sim:linux-4.4 sim:linux-6.1 -- dd if=/dev/sda"), "{message}");
    assert!(refused("explain a.parquet nosuch.parquet").contains("no such file"));
    let message = refused("report");
    assert!(message.contains("--serve") && !message.contains("required"), "{message}");
    assert!(refused("check --baseline a --max-regression 0.05").contains("0.05%, or 5%"));
}

#[test]
fn one_word_means_the_same_everywhere_and_old_ones_still_work() {
    let job = "run dd if=/dev/sda bs=4k count=64 --on sim:linux-6.18 --json";
    let runs = |value: &Value| value["runs"].as_array().map_or(0, Vec::len);
    assert_eq!(runs(&json(&format!("{job} --runs 3"))), 3);
    assert_eq!(runs(&json(&format!("{job} --repeat 3"))), 3);
    let job = format!("run {} --on sim:linux-6.18 --size-limit 1m --json", root().join("jobs/seq-read.fio").display());
    json(&format!("{job} --for 1"));
    json(&format!("{job} --time-limit 1"));
}

#[test]
fn lists_are_short_and_figures_have_units() {
    let devices = text(&iowhy("models device").stdout);
    assert!(devices.lines().count() < 30, "{devices}");
    assert!(text(&iowhy("models device ide-2004").stdout).contains("rpm"));
    let runs = text(&iowhy("run dd if=/dev/sda bs=4k count=64 --on sim:linux-6.18 --on sim:linux-4.4 --runs 2").stdout);
    assert!(runs.contains(" ms") && !runs.contains(".000"), "{runs}");
}

#[test]
fn a_folder_that_a_run_has_made_goes_with_it() {
    let folder = Folder::new("surface-dir");
    let new = folder.0.join("a/b");
    let output = iowhy(&format!("run dd of=data bs=4k count=8 --on live --dir {}", new.display()));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!folder.0.join("a").exists());
}

#[test]
fn schemas_have_their_addresses() {
    for entry in fs::read_dir(root().join("schema")).expect("schemas") {
        let path = entry.expect("a file").path();
        let schema: Value = serde_json::from_slice(&fs::read(&path).expect("a file")).expect("JSON");
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert_eq!(schema["$id"], format!("https://iowhy.github.io/schema/{name}"));
    }
}
