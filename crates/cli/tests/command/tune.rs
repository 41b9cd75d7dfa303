//! `iowhy tune`: a job and a command on this machine's disk, mistakes, a signal. What records needs root.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::check_schema;
use super::trace::{Scratch, permitted};

const JOB: &str = "[reader]\nrw=read\nbs=64k\nfilename=data\n";

/// The settings of every queue, and the limits of dirty pages.
fn settings() -> Vec<(String, String)> {
    let read = |path: std::path::PathBuf| Some((path.display().to_string(), fs::read_to_string(path).ok()?));
    let keys = ["scheduler", "read_ahead_kb", "nr_requests", "max_sectors_kb", "nomerges", "wbt_lat_usec"];
    let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    // Other tests make and remove loop devices.
    let disks = disks.filter(|disk| !disk.file_name().to_string_lossy().starts_with("loop"));
    let mut all: Vec<_> = disks.flat_map(|disk| keys.map(|key| disk.path().join("queue").join(key))).collect();
    all.extend(["dirty_ratio", "dirty_background_ratio"].map(|name| std::path::Path::new("/proc/sys/vm").join(name)));
    all.into_iter().filter_map(read).collect()
}

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
    let before = settings();
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
        assert_eq!(settings(), before, "{line}");
    }
    assert!(scratch.is_tidy());
}

#[test]
fn a_signal_restores_everything() {
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("tune-signal");
    let before = settings();
    scratch.write("data", &vec![1; 32 << 20]);
    let mut line = scratch.command("tune --runs 500 -- dd if=data of=/dev/null bs=4k");
    let running = line.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    std::thread::sleep(Duration::from_secs(4));
    let sent = Command::new("kill").args(["-INT", &running.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()));
    let output = running.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", super::text(&output.stderr));
    assert_eq!(settings(), before);
    assert!(scratch.is_tidy());
}
