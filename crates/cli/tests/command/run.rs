//! `iowhy run` from outside.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{check_schema, iowhy, json, names, refused, root, text};

fn job(name: &str) -> String {
    root().join("jobs").join(name).display().to_string()
}

#[test]
fn json_has_the_shape_of_its_schema() {
    for line in [
        "dd of=/dev/sda bs=4k oflag=direct count=64 writers=2 distance=64m --on sim:linux-3.2.0 --json",
        "pgbench clients=2 size=8m transactions=10 --on sim:linux-6.18 --on sim:linux-4.4 --repeat 3 --json",
    ] {
        let run = json(&format!("run {line}"));
        check_schema("run", &run);
        assert!(run["runs"].as_array().is_some_and(|runs| !runs.is_empty()), "{line}");
    }
    let run = json(&format!("run {} --on sim:linux-4.4 --json", job("direct-writers-2.fio")));
    check_schema("run", &run);
    assert_eq!(run["runs"][0]["warnings"], Value::Array(Vec::new()));
}

#[test]
fn repetitions_have_seeds_of_their_own_and_a_spread() {
    let run = json("run dd of=/dev/sda bs=4k oflag=direct count=64 --on sim:linux-4.4 --repeat 4 --seed 5 --json");
    let seeds: Vec<u64> = run["runs"].as_array().expect("runs").iter().filter_map(|run| run["seed"].as_u64()).collect();
    assert_eq!(seeds, [5, 6, 7, 8]);
    let elapsed = &run["summary"][0]["metrics"]["elapsed_s"];
    let [min, mean, max] = ["min", "mean", "max"].map(|name| elapsed[name].as_f64().expect("a number"));
    assert!(0.0 < min && min <= mean && mean <= max);
    let alone = json("run dd of=/dev/sda bs=4k oflag=direct count=64 --on sim:linux-4.4 --seed 6 --json");
    assert_eq!(alone["runs"][0]["event_hash"], run["runs"][1]["event_hash"]);
}

#[test]
fn every_job_file_runs_on_an_old_and_a_new_kernel() {
    for entry in std::fs::read_dir(root().join("jobs")).expect("jobs") {
        let path = entry.expect("an entry").path();
        for kernel in ["linux-2.6.7", "linux-6.18"] {
            let run = json(&format!("run {} --on sim:{kernel} --json", path.display()));
            let metrics = &run["runs"][0]["metrics"];
            assert!(metrics["iops"].as_f64() > Some(0.0), "{} on {kernel}: {metrics}", path.display());
        }
    }
}

#[test]
fn a_small_job_runs_on_every_kernel() {
    for kernel in names("kernel") {
        for line in ["dd of=/dev/sda bs=4k oflag=direct count=64 writers=2", "dd if=file size=1m"] {
            let run = json(&format!("run {line} --on sim:{kernel} --json"));
            assert!(run["runs"][0]["metrics"]["iops"].as_f64() > Some(0.0), "{line} on {kernel}");
        }
    }
}

#[test]
fn a_job_comes_from_standard_input_and_its_mistakes_have_a_place() {
    let run = |job: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_iowhy"))
            .args(["run", "-", "--on", "sim:linux-4.4", "--on", "sim:linux-6.18"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        child.stdin.take().expect("a pipe").write_all(job.as_bytes()).expect("the job is read");
        child.wait_with_output().expect("the command ends")
    };
    let good = run("[reader]\nrw=randread\nsize=1m\n");
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
    let report = text(&good.stdout);
    assert!(report.contains("reader: 1 thread") && report.contains("sim:linux-6.18"), "{report}");
    assert!(report.lines().all(|line| line.chars().count() <= 80), "{report}");
    let bad = run("[reader]\nrw=ranread\nsze=1m\n");
    let message = text(&bad.stderr);
    assert_eq!((bad.status.code(), bad.stdout.len()), (Some(2), 0));
    for expected in ["randread", "unknown option `sze`", "size"] {
        assert_eq!(message.matches(expected).count().min(1), 1, "no {expected} in\n{message}");
    }
    assert_eq!(message.matches("unknown option `sze`").count(), 1, "told once for all places:\n{message}");
}

#[test]
fn what_cannot_be_run_is_refused() {
    for (line, expected) in [
        ("run", "no job to run"),
        ("run dd of=/dev/sda size=500t bs=1m --on sim:linux-4.4", "the device has room for"),
        ("run dd of=x count=1 --on sim:linux-4.4 --until 2", "`--until` needs `--budget`"),
        ("run jobs/nothing.fio --on sim:linux-4.4", "nor a readable file"),
        ("run dd cuont=1 of=x --on sim:linux-4.4", "nearest: count"),
    ] {
        let message = refused(line);
        assert!(message.contains(expected), "{line}: {message}");
    }
    for line in ["run --help", "run bonnie --help"] {
        let output = iowhy(line);
        assert_eq!(output.status.code(), Some(0), "{line}");
        assert!(text(&output.stdout).contains("--on WHERE"), "{line}");
    }
}
