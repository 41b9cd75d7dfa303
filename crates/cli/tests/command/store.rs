//! `iowhy store`, and what `iowhy run` keeps.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use iowhy_lab::store::{Filter, Store};
use iowhy_stack::rng::Rng;
use serde_json::Value;

use super::{check_schema, text};

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("iowhy-cli-store-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Scratch(path)
    }

    /// A command in the folder, without a store of whoever runs the tests.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iowhy"));
        command.args(line.split_whitespace()).current_dir(&self.0).env("NO_COLOR", "1").env("HOME", &self.0);
        command.env_remove("IOWHY_STORE").env_remove("XDG_DATA_HOME");
        command
    }

    fn output(&self, line: &str) -> Output {
        self.command(line).output().expect("the command starts")
    }

    fn json(&self, line: &str) -> Value {
        let output = self.output(&format!("{line} --json"));
        assert_eq!(output.status.code(), Some(0), "{line}\n{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    fn text(&self, line: &str) -> String {
        let output = self.output(line);
        assert_eq!(output.status.code(), Some(0), "{line}\n{}", text(&output.stderr));
        let shown = text(&output.stdout);
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        shown
    }

    fn refused(&self, line: &str) -> String {
        let output = self.output(line);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{line}");
        text(&output.stderr)
    }
}

const JOB: &str = "run dd of=/dev/sda bs=4k oflag=direct count=16 --on sim:linux-4.4";

fn ids(runs: &Value) -> Vec<String> {
    let list = runs["runs"].as_array().expect("runs");
    list.iter().map(|run| run["run_id"].as_str().expect("an id").to_owned()).collect()
}

fn sorted(mut list: Vec<String>) -> Vec<String> {
    list.sort();
    list
}

#[test]
fn runs_are_kept_listed_shown_tagged_merged_and_exported() {
    let folder = Scratch::new("verbs");
    let run = folder.json(&format!("{JOB} --on sim:linux-6.18 --repeat 3 --warm-up 1 --trace --label a --store one"));
    check_schema("run", &run);
    let made = sorted(ids(&run));
    assert_eq!(made.len(), 8);
    assert!(run["runs"].as_array().expect("runs").iter().all(|run| run["stored"] == true));
    let list = folder.json("store list --store one");
    check_schema("store", &list);
    assert_eq!(sorted(ids(&list)), made, "the ids of the output are those of the store");
    assert_eq!(list["runs"][7]["design"]["block"], 3);
    let shown = folder.json("store show a/sim:linux-4.4 --store one");
    check_schema("store", &shown);
    assert_eq!(ids(&shown).len(), 3, "without the one that warms up");
    let first = &shown["runs"][0];
    for file in first["files"].as_array().expect("files") {
        let path = folder.0.join("one").join(file["path"].as_str().expect("a path"));
        assert_eq!(Some(fs::metadata(path).expect("the file").len()), file["bytes"].as_u64());
    }
    let text = folder.text("store list --store one");
    assert!(text.contains("a/sim:linux-6.18") && text.contains("+1 to warm up") && text.contains("8 runs in one"));
    let text = folder.text(&format!("store show {} --store one", ids(&shown)[0]));
    assert!(text.contains("sim:linux-4.4") && text.contains("elapsed_s"), "{text}");
    let tagged = folder.json("store tag a/sim:linux-4.4 good --store one");
    check_schema("store", &tagged);
    assert_eq!(tagged["runs_changed"], 3);
    assert!(folder.text("store list good --store one").contains("[good]"));
    for expected in [8, 0] {
        let merged = folder.json("store merge one --store two");
        check_schema("store", &merged);
        assert_eq!(merged["runs_new"], expected);
    }
    fs::write(folder.0.join("two/data/samples-1-1.tmp"), b"half").expect("a file");
    let looked = folder.json("store gc --dry-run --store two");
    check_schema("store", &looked);
    assert_eq!((&looked["files"][0], &looked["removed"]), (&"samples-1-1.tmp".into(), &false.into()));
    assert!(folder.text("store gc --store two").contains("1 file of 4 bytes removed"));
    let exported = folder.json("store export good --to out --store two");
    check_schema("store", &exported);
    assert_eq!((&exported["runs_written"], exported["files"].as_array().map(Vec::len)), (&3.into(), Some(8)));
    assert!(fs::read_to_string(folder.0.join("out/metrics.csv")).expect("a file").contains("elapsed_s"));
    assert!(folder.text("store export --to out2 --format json --store two").contains("8 runs in 17 files"));
}

#[test]
fn runs_go_with_their_files_and_the_store_stays_valid() {
    let folder = Scratch::new("remove");
    for (label, job) in [("a", JOB), ("b", "run dd of=/dev/sda bs=8k oflag=direct count=16 --on sim:linux-4.4")] {
        folder.json(&format!("{job} --repeat 4 --warm-up 1 --trace --label {label} --store one"));
    }
    let count = |what: &str| ids(&folder.json(&format!("store list {what} --store one"))).len();
    let files = || fs::read_dir(folder.0.join("one/data")).expect("the files").count();
    let before = files();
    assert_eq!(count(""), 10);
    let listed = folder.json("store rm a --dry-run --store one");
    check_schema("store", &listed);
    assert_eq!((ids(&listed).len(), &listed["removed"], count(""), files()), (5, &false.into(), 10, before));
    let removed = folder.json("store rm a --store one");
    check_schema("store", &removed);
    let gone = removed["files"].as_array().expect("files").len();
    assert_eq!((ids(&removed), &removed["files"]), (ids(&listed), &listed["files"]));
    assert!(gone > 0 && files() == before - gone, "{removed:#}");
    assert!(folder.refused("store rm a --store one").contains("`a`"));
    assert_eq!(count("b"), 4);
    // The oldest of them is needed: it has a tag.
    let first = ids(&folder.json("store list b --store one"))[0].clone();
    folder.json(&format!("store tag {first} baseline --store one"));
    assert!(folder.text("store prune --keep 2 --dry-run --store one").contains("would be removed"));
    let pruned = folder.json("store prune --keep 2 --store one");
    check_schema("store", &pruned);
    assert_eq!((ids(&pruned).len(), count("b")), (2, 3), "the one that warmed up, and the second");
    assert_eq!(ids(&folder.json("store prune --older-than 1d --store one")).len(), 0);
    assert_eq!(ids(&folder.json("store prune --older-than 0m --store one")).len(), 2);
    assert_eq!(ids(&folder.json("store list --store one")), [first]);
    assert!(folder.refused("store prune --store one").contains("--older-than"));
    assert!(folder.refused("store prune --older-than 3 --store one").contains("for example 30d"));
    assert_eq!(folder.json("store check --store one")["damage"].as_array().map(Vec::len), Some(0));
    assert_eq!(folder.json("store gc --dry-run --store one")["files"].as_array().map(Vec::len), Some(0));
    // Runs come in as before: opening the store checks that the triggers are there.
    folder.json(&format!("{JOB} --label c --store one"));
}

#[test]
fn runs_are_kept_where_the_environment_says_and_not_without_reason() {
    let folder = Scratch::new("where");
    let stored = |line: &str, variable: Option<&str>| {
        let mut command = folder.command(&format!("{line} --json"));
        if let Some(path) = variable {
            command.env("IOWHY_STORE", path);
        }
        let output = command.output().expect("the command starts");
        assert_eq!(output.status.code(), Some(0), "{line}\n{}", text(&output.stderr));
        let run: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        run["runs"][0]["stored"].as_bool().expect("a word")
    };
    assert!(!stored(JOB, None));
    assert!(fs::read_dir(&folder.0).expect("the folder").next().is_none(), "nothing is made without reason");
    assert!(stored(JOB, Some("named")));
    assert!(folder.0.join("named/store.sqlite").exists());
    // A label is to be found again: it is kept where the user keeps data.
    assert!(stored(&format!("{JOB} --label x"), None));
    assert_eq!(ids(&folder.json("store list x")).len(), 1);
    // Where that cannot be, a label is still one; a store that is asked for is not left out.
    fs::write(folder.0.join("file"), b"").expect("a file");
    let mut command = folder.command(&format!("{JOB} --label x --json"));
    let output = command.env("HOME", folder.0.join("file")).output().expect("the command starts");
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("these runs are not kept"), "{}", text(&output.stderr));
    let message = folder.refused(&format!("{JOB} --store file"));
    assert!(message.contains("cannot make the directory"), "{message}");
}

#[test]
fn what_cannot_be_found_is_refused_with_the_nearest_names() {
    let folder = Scratch::new("refused");
    let message = folder.refused("store list --store nowhere");
    assert!(message.contains("no store in `nowhere`") && message.contains("--store DIR"), "{message}");
    assert!(!folder.0.join("nowhere").exists());
    folder.json(&format!("{JOB} --label baseline --store s"));
    for line in
        ["store show baselin --store s", "store tag baselin x --store s", "store export baselin --to o --store s"]
    {
        let message = folder.refused(line);
        assert!(message.contains("nearest: baseline"), "{line}: {message}");
    }
    assert!(folder.refused("store tag baseline a,b --store s").contains("commas"));
    assert!(folder.refused("store merge elsewhere --store s").contains("no store in `elsewhere`"));
}

#[test]
fn a_stopping_rule_ends_with_enough_runs_or_with_the_budget() {
    let folder = Scratch::new("until");
    fs::write(
        folder.0.join("j.fio"),
        "[j]\nrw=randread\nsize=64m\nio_size=128k\ndirect=1\nrandrepeat=0\nfilename=/dev/iowhy-disk\n",
    )
    .expect("a job");
    let line = "run j.fio --on sim:linux-4.4 --disk sata-2010";
    let enough = folder.json(&format!("{line} --until 20 --budget 60"));
    check_schema("run", &enough);
    let runs = enough["runs"].as_array().expect("runs").len();
    let precision = &enough["design"]["precision"];
    // Eight are the fewest that bound a median at 99 %.
    assert!((8..60).contains(&runs) && precision["reached"] == true && precision["runs_needed"] == 0, "{precision}");
    let short = folder.json(&format!("{line} --until 0.1 --budget 9"));
    check_schema("run", &short);
    let precision = &short["design"]["precision"];
    assert_eq!((short["runs"].as_array().map(Vec::len), &precision["reached"]), (Some(9), &false.into()));
    let text = folder.text(&format!("{line} --until 0.1 --budget 9"));
    let needed = precision["runs_needed"].as_u64().expect("a number");
    assert!(text.contains(&format!("9 runs made; {needed} more needed to see 0.1 % of iops")), "{text}");
}

#[test]
fn a_run_that_is_killed_leaves_a_store_with_every_run_that_had_ended() {
    let folder = Scratch::new("killed");
    let mut rng = Rng::stream(u64::from(std::process::id()), "moments of killing");
    let store = folder.0.join("s");
    let mut before = 0;
    for round in 0..5 {
        let mut command = folder.command(&format!("{JOB} --repeat 10000 --seed {round} --trace --store s"));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command starts");
        let count =
            || Store::open_existing(&store).and_then(|store| store.runs(&Filter::default())).map(|runs| runs.len());
        // It is killed while it records, and not before.
        for _ in 0..3000 {
            if count().is_ok_and(|runs| runs > before) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_micros(rng.below(50_000)));
        child.kill().expect("it can be killed");
        let status = child.wait().expect("it has ended");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
        let found = whole(&store);
        assert!(found > before, "{found} runs after {before}");
        before = found;
    }
    assert_eq!(folder.output("store gc --store s").status.code(), Some(0));
}

/// How many runs a store has whose files are all as they were written.
fn whole(directory: &Path) -> usize {
    let store = Store::open_existing(directory).expect("the store opens");
    let runs = store.runs(&Filter::default()).expect("runs");
    for run in &runs {
        assert_eq!(run.files.len(), 2);
        run.files.iter().for_each(|file| store.verify(&file.hash).expect("the file is whole"));
        // Runs are recorded in the order in which they are made, and none is missing between.
        assert_eq!(
            run.design.block,
            run.seed
                - runs.iter().find(|first| first.design.session == run.design.session).map_or(0, |first| first.seed)
        );
    }
    runs.len()
}

#[test]
fn a_disk_that_is_full_ends_the_runs_with_a_reason() {
    let folder = Scratch::new("full");
    folder.json(&format!("{JOB} --label a --store s"));
    // Files may not grow beyond 160 KiB: what a full disk does, without one.
    let binary = env!("CARGO_BIN_EXE_iowhy");
    let script = format!("trap '' XFSZ; ulimit -f 320; exec {binary} {JOB} --repeat 2000 --label b --store s --json");
    let mut command = Command::new("bash");
    let output = command.args(["-c", &script]).current_dir(&folder.0).output().expect("a shell");
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("a run could not be kept, and no more were made: cannot"), "{message}");
    let run: Value = serde_json::from_slice(&output.stdout).expect("what was made is shown");
    let runs = run["runs"].as_array().expect("runs");
    let kept = runs.iter().filter(|run| run["stored"] == true).count();
    assert_eq!(kept + 1, runs.len(), "the last one was made, and not kept");
    let list = folder.json("store list b --store s");
    assert_eq!(ids(&list), ids(&run)[..kept]);
}
