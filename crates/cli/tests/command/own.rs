//! `iowhy run -- COMMAND` and `--on live,KEY=VALUE`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::explain_live::ALONE;
use crate::{Folder, can_make_disks, check_schema, text};

struct Place(Folder);

impl Place {
    fn new(name: &str) -> Place {
        let folder = Folder::new(&format!("own-{name}"));
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(&folder.0, private).expect("it is ours");
        Place(folder)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iowhy"));
        command.args(words).current_dir(&self.0.0).env("NO_COLOR", "1").env("XDG_STATE_HOME", &self.0.0);
        command.env("XDG_DATA_HOME", &self.0.0).env_remove("IOWHY_STORE").stdin(Stdio::null());
        command
    }

    fn iowhy(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("it starts")
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.iowhy(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}\n{}", text(&output.stderr));
        let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        check_schema("run", &report);
        report
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

#[test]
fn commands_are_run_in_blocks_and_compared_by_wall_time() {
    let place = Place::new("compared");
    let words = ["run", "--runs", "6", "--json", "--label", "old", "--label", "new", "--", "sleep 0.01", "--"];
    let report = place.json(&[&words[..], &["sleep", "0.2"]].concat());
    let runs = report["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 12);
    for block in runs.chunks(2) {
        assert_ne!(block[0]["label"], block[1]["label"], "a block has both commands");
    }
    let firsts: Vec<&Value> = runs.chunks(2).map(|block| &block[0]["label"]).collect();
    assert!(firsts.iter().any(|label| *label != firsts[0]), "the order is random: {firsts:?}");
    let by_shell = |run: &&Value| run["live"]["shell_s"].as_f64() > Some(0.0);
    assert!(runs.iter().filter(by_shell).all(|run| run["label"] == "old"), "only a word alone is for the shell");
    let comparisons = report["comparisons"].as_array().expect("comparisons");
    assert_eq!(comparisons.len(), 1);
    assert_eq!((&comparisons[0]["a"], &comparisons[0]["b"]), (&"old".into(), &"new".into()));
    assert_eq!(comparisons[0]["verdict"], "regression", "{}", comparisons[0]);
    // They are in the store, for `compare`.
    let compared = place.iowhy(&["compare", "old", "new", "--metric", "elapsed_s"]);
    assert_eq!(compared.status.code(), Some(1), "{}", text(&compared.stderr));
}

#[test]
fn a_command_alone_is_timed_and_what_it_took_is_counted() {
    let place = Place::new("alone");
    let words = ["run", "--runs=3", "--json", "--", "dd if=/dev/zero of=out bs=64k count=16 conv=fsync"];
    let report = place.json(&words);
    assert_eq!(report["comparisons"].as_array().map(Vec::len), Some(0));
    for run in report["runs"].as_array().expect("runs") {
        let metric = |name: &str| run["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {run}"));
        assert!(metric("elapsed_s") >= 0.0 && metric("user_s") >= 0.0 && metric("minor_faults") > 0.0, "{run}");
        assert!(metric("written_bytes") >= f64::from(1 << 20), "{run}");
    }
    let shown = place.iowhy(&["run", "--runs=2", "--", "true"]);
    assert!(text(&shown.stdout).contains("The start of a shell"), "{}", text(&shown.stdout));
}

#[test]
fn hooks_parameters_and_exports_are_those_of_hyperfine() {
    let place = Place::new("hooks");
    let exports = ["--export-json", "x.json", "--export-csv", "x.csv", "--export-markdown", "x.md"];
    let hooks = ["--setup", "echo setup {n} >> log", "--prepare", "echo prepare {n} >> log"];
    let words = ["--cleanup", "echo cleanup {n} >> log", "-L", "n", "1,2", "--", "echo run {n} >> log"];
    let output = place.iowhy(&[&["run", "--runs", "3"], &exports[..], &hooks[..], &words[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let log = place.read("log");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[..2], ["setup 1", "setup 2"]);
    assert_eq!(lines[14..], ["cleanup 1", "cleanup 2"]);
    for pair in lines[2..14].chunks(2) {
        assert_eq!(pair[0].strip_prefix("prepare "), pair[1].strip_prefix("run "), "{log}");
    }
    let exported: Value = serde_json::from_str(&place.read("x.json")).expect("JSON");
    let second = &exported["results"][1];
    assert_eq!((second["times"].as_array().map(Vec::len), &second["parameters"]["n"]), (Some(3), &"2".into()));
    let csv = place.read("x.csv");
    assert!(csv.starts_with("command,mean,stddev,median,user,system,min,max,parameter_n\necho run 1 >> log,"), "{csv}");
    assert!(csv.lines().nth(2).is_some_and(|line| line.ends_with(",2")), "{csv}");
    assert_eq!(place.read("x.md").lines().count(), 4);
    // One for each command.
    let words = ["run", "--runs=1", "--prepare=echo a > p", "--prepare=echo b > p", "--", "grep a p", "--", "grep b p"];
    assert_eq!(place.iowhy(&words).status.code(), Some(0));
}

#[test]
fn a_command_that_fails_ends_all_with_its_exit_code_and_its_output() {
    let place = Place::new("fails");
    let words = ["run", "--runs=5", "--cleanup=touch clean", "--", "echo x >> log; echo the reason; exit 7"];
    let output = place.iowhy(&words);
    let message = text(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(7), 0), "{message}");
    assert!(message.contains("the reason") && message.contains("--ignore-failure"), "{message}");
    assert_eq!(place.read("log"), "x\n", "it was run once");
    assert!(place.0.0.join("clean").exists());
    let ignored = place.json(&["run", "-i", "--runs=2", "--json", "--", "exit 7"]);
    assert_eq!(ignored["runs"][1]["live"]["exit_code"], 7);
    assert!(ignored["runs"][1]["warnings"][0].as_str().is_some_and(|text| text.contains("ignored")), "{ignored}");
    let missing = place.iowhy(&["run", "--runs=1", "--", "/no/such/program", "x"]);
    assert_eq!(missing.status.code(), Some(2), "{}", text(&missing.stderr));
    let failed = place.iowhy(&["run", "--prepare=exit 9", "--", "true"]);
    assert_eq!(failed.status.code(), Some(9), "{}", text(&failed.stderr));
    assert!(text(&failed.stderr).contains("the preparation"), "{}", text(&failed.stderr));
}

#[test]
fn every_mistake_is_told_at_once() {
    let place = Place::new("mistakes");
    for (words, expected) in [
        (
            "run job --cache cold --on sim:linux-6.18 --prepare a --prepare b -L n 1,2 -- x -- y -- ",
            &[
                "`job` is a job",
                "`--cache` is for jobs",
                "`--prepare` is given 2 times",
                "parameter {n}",
                "another place",
            ][..],
        ),
        ("run dd of=x --on live --setup x --export-csv y", &["`--setup` is for commands", "`--export-csv` is for"]),
        ("run --on live,read_ahead=4,nomerges=x -- true", &["nearest: read_ahead_kb", "`nomerges` takes"]),
        ("run dd of=x --on live --on sim:linux-6.18 --disk here", &["has not been fitted", "iowhy disk fit ."]),
    ] {
        let output = place.iowhy(&words.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}\n{message}");
        for part in expected {
            assert!(message.contains(part), "no {part} in\n{message}");
        }
    }
}

#[test]
fn a_signal_ends_the_command_and_clears_up() {
    let place = Place::new("signal");
    let words = ["run", "--cleanup=touch clean", "--", "touch begun; sleep 60; touch after"];
    let mut child = place.command(&words).stderr(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts");
    wait_for(|| place.0.0.join("begun").exists());
    signal(&child, "TERM");
    assert_eq!(child.wait().expect("it ends").code(), Some(143));
    assert!(place.0.0.join("clean").exists() && !place.0.0.join("after").exists());
}

/// Waits for what a process of its own makes true.
pub(super) fn wait_for(mut there: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !there() {
        assert!(begun.elapsed() < Duration::from_secs(120), "it does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal(child: &std::process::Child, name: &str) {
    let done = Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status();
    assert!(done.is_ok_and(|status| status.success()), "kill");
}

/// A modelled disk, and its queue.
struct Disk<'a> {
    place: &'a Place,
    name: String,
    queue: PathBuf,
    mount: String,
}

impl<'a> Disk<'a> {
    fn new(place: &'a Place) -> Disk<'a> {
        let name = format!("own-{}", std::process::id());
        let words = "disk create --model fixed service_us=100 --size 64M fs=ext4 --front loop --json --name";
        let output = place.iowhy(&words.split(' ').chain([name.as_str()]).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let state: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let disk = &state["disks"][0];
        let word = |key: &str| disk[key].as_str().unwrap_or_else(|| panic!("no {key} in {state}")).to_owned();
        let node = word("node");
        let queue = Path::new("/sys/block").join(node.trim_start_matches("/dev/")).join("queue");
        Disk { place, name, queue, mount: word("mount") }
    }

    fn read(&self, key: &str) -> String {
        let value = fs::read_to_string(self.queue.join(key)).expect("a setting");
        let chosen = value.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        chosen.map_or(value.trim(), |(word, _)| word).to_owned()
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        // `doctor --fix` of the test's own state does what is left.
        let _ = self.place.iowhy(&["disk", "remove", &self.name]);
    }
}

fn vm(name: &str) -> String {
    fs::read_to_string(Path::new("/proc/sys/vm").join(name)).expect("a setting")
}

/// The settings of a disk that a test changes.
const KEYS: [&str; 5] = ["scheduler", "read_ahead_kb", "nr_requests", "nomerges", "max_sectors_kb"];

#[test]
fn settings_of_the_disk_are_there_in_each_run_and_restored_after_it() {
    if !can_make_disks() {
        return;
    }
    let _beside = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new("knobs");
    let disk = Disk::new(&place);
    let before = KEYS.map(|key| disk.read(key));
    let show = format!(
        "cd {}; echo $(cat read_ahead_kb nomerges scheduler) >> {}",
        disk.queue.display(),
        place.0.0.join("log").display()
    );
    let dir = format!("--dir={}", disk.mount);
    let words =
        ["run", "--runs=2", "--json", &dir, "--on", "live,read_ahead_kb=4,scheduler=bfq", "--on", "live,nomerges=2"];
    let report = place.json(&[&words[..], &["--", &show]].concat());
    assert_eq!(report["runs"].as_array().map(Vec::len), Some(4));
    let log = place.read("log");
    assert_eq!(log.lines().filter(|line| line.starts_with("4 0 ") && line.contains("[bfq]")).count(), 2, "{log}");
    assert_eq!(log.lines().filter(|line| line.starts_with(&format!("{} 2 ", before[1]))).count(), 2, "{log}");
    assert_eq!(KEYS.map(|key| disk.read(key)), before);
    // Jobs have them, too, and the store knows.
    let words = ["run", "dd", "of=x", "count=8", &dir, "--on", "live,read_ahead_kb=8", "--label=k", "--json"];
    let report = place.json(&words);
    assert_eq!(report["runs"][0]["live"]["disk"]["read_ahead_kb"], 8, "{report}");
    assert_eq!(KEYS.map(|key| disk.read(key)), before);
    // A value of which the kernel makes another is refused, and so is one that it does not have.
    for (knob, said) in [("read_ahead_kb=5", "the kernel makes 4 of it"), ("scheduler=cfq", "it offers none, ")] {
        let output = place.iowhy(&["run", &dir, "--on", &format!("live,nomerges=1,{knob}"), "--", "true"]);
        let message = text(&output.stderr);
        assert!(output.status.code() == Some(2) && message.contains(said), "{message}");
        assert_eq!(KEYS.map(|key| disk.read(key)), before);
    }
    // One of two settings switches the other off, and both come back.
    let both = || ["dirty_background_ratio", "dirty_background_bytes"].map(vm);
    let (machine, on) = (both(), "live,vm.dirty_background_bytes=1073741824");
    let words = ["run", "--runs=1", "--on", on, "--", "cat /proc/sys/vm/dirty_background_* > vm"];
    assert_eq!(place.iowhy(&words).status.code(), Some(0));
    assert_eq!((place.read("vm"), both()), ("1073741824\n0\n".to_owned(), machine));
    // A command that fails.
    let words = ["run", &dir, "--on", "live,nomerges=1,max_sectors_kb=64", "--", "exit 3"];
    assert_eq!(place.iowhy(&words).status.code(), Some(3));
    assert_eq!(KEYS.map(|key| disk.read(key)), before);
}

#[test]
fn settings_are_restored_after_signals_and_by_the_next_start() {
    if !can_make_disks() {
        return;
    }
    let _beside = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new("killed");
    let disk = Disk::new(&place);
    let before = KEYS.map(|key| disk.read(key));
    let dir = format!("--dir={}", disk.mount);
    let on = "live,scheduler=bfq,nr_requests=64,read_ahead_kb=4";
    let signals = [("INT", Some(130)), ("TERM", Some(143)), ("KILL", None), ("KILL", None)];
    for (round, (name, code)) in signals.into_iter().enumerate() {
        // The command ends with its file, also if nobody ends it.
        let marker = place.0.0.join("goes-on");
        let waits = "touch goes-on begun; while test -e goes-on; do sleep 0.05; done";
        let words = ["run", &dir, "--on", on, "--", waits];
        let mut child = place.command(&words).stderr(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts");
        wait_for(|| place.0.0.join("begun").exists());
        assert_eq!(["scheduler", "nr_requests", "read_ahead_kb"].map(|key| disk.read(key)), ["bfq", "64", "4"]);
        signal(&child, name);
        assert_eq!(child.wait().expect("it ends").code(), code, "{name}");
        let _ = (fs::remove_file(&marker), fs::remove_file(place.0.0.join("begun")));
        if code.is_none() {
            assert_eq!(disk.read("read_ahead_kb"), "4", "a killed process restores nothing");
            // The next live run does it, or `doctor --fix`.
            let next = [["doctor", "--fix"].as_slice(), &["run", "--runs=1", "--", "true"]][round % 2];
            assert_eq!(place.iowhy(next).status.code(), Some(0), "{next:?}");
        }
        assert_eq!(KEYS.map(|key| disk.read(key)), before, "{name}");
    }
}

#[test]
fn a_traced_run_of_each_command_can_be_explained() {
    let root = fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0);
    if !root {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must record as root");
        println!("skipped: recording needs root");
        return;
    }
    let place = Place::new("traced");
    fs::write(place.0.0.join("big"), vec![1; 4 << 20]).expect("a file");
    let words = ["run", "--runs=2", "--trace", "--store=s", "--json", "--label=small", "--label=large"];
    let commands = ["--", "dd if=big of=/dev/null bs=4k", "--", "dd if=big of=/dev/null bs=512"];
    let report = place.json(&[&words[..], &commands[..]].concat());
    assert!(
        report["runs"].as_array().is_some_and(|runs| runs.len() == 4 && runs.iter().all(|run| run["stored"] == true))
    );
    let explained = place.iowhy(&["explain", "small", "large", "--store=s", "--json"]);
    assert!(matches!(explained.status.code(), Some(0 | 3)), "{}", text(&explained.stderr));
    let explained: Value = serde_json::from_slice(&explained.stdout).expect("JSON");
    check_schema("explain", &explained);
    assert_eq!(place.iowhy(&["store", "check", "--store=s"]).status.code(), Some(0));
}
