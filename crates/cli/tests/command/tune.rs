//! `iowhy tune`: a job and a command on this machine's disk, mistakes, a signal. What records needs root.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::check_schema;
use super::trace::{Scratch, permitted};

const JOB: &str = "[reader]\nrw=read\nbs=64k\nfilename=data\n";

#[test]
fn json_has_the_shape_of_its_schema() {
    let scratch = Scratch::new("tune");
    scratch.write("job.fio", JOB.as_bytes());
    for wrong in
        ["tune", "tune nosuch.fio", "tune job.fio --cache lukewarm", "tune job.fio -- true", "tune --runs 0 job.fio"]
    {
        scratch.ends(wrong, 2);
    }
    if !permitted() {
        return;
    }
    scratch.write("data", &vec![1; 8 << 20]);
    for line in ["tune --json --runs 2 --dir . job.fio", "tune --json --runs 2 -- dd if=data of=/dev/null bs=64k"] {
        let output = scratch.command(line).output().expect("the command starts");
        // Whether something is surely better depends on the machine.
        assert!(matches!(output.status.code(), Some(0 | 3)), "{line}: {}", super::text(&output.stderr));
        let answer: Value = serde_json::from_slice(&output.stdout).expect("one object");
        check_schema("tune", &answer);
        let tried = answer["tried"].as_array().expect("a list");
        assert!((1..=3).contains(&tried.len()), "{answer:#}");
        assert!(answer["runs"].as_u64() > Some(4), "{answer:#}");
        assert_eq!(answer["best"].is_null(), answer["keep"] == serde_json::json!([]), "{answer:#}");
        assert_eq!(output.status.code() == Some(3), !answer["undecided"].is_null(), "{answer:#}");
        // The ledger has lost its last entry: everything is restored.
        assert!(scratch.is_tidy(), "{line}");
    }
}

#[test]
fn a_signal_restores_everything() {
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("tune-signal");
    scratch.write("data", &vec![1; 32 << 20]);
    let mut line = scratch.command("tune --runs 500 -- dd if=data of=/dev/null bs=4k");
    let running = line.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    std::thread::sleep(Duration::from_secs(4));
    let sent = Command::new("kill").args(["-INT", &running.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()));
    let output = running.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", super::text(&output.stderr));
    assert!(scratch.is_tidy());
}
