//! `iowhy explain` of runs on the running kernel, as root: causes that are really there, on disks of the tests' own.
//!
//! The disk is a loop device over a file that stays in the page cache, so that a request costs what it costs to
//! copy its pages, whatever the disk below is like that day. Sides are made by turns. Where luck has a part in the
//! runs, the difference is made so large that a busy machine cannot hide it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iowhy_live::ledger::{Guard, Ledger, LoopOptions};
use serde_json::Value;

use super::{check_schema, text};

/// Runs of each side.
const RUNS: usize = 5;

fn permitted() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
    if !root {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must run these tests as root");
        println!("skipped: disks and traces need root");
    }
    root
}

/// A disk with a file system and a file `big` on it.
struct Ground {
    scratch: PathBuf,
    ledger: Ledger,
    queue: PathBuf,
    /// Undone from the end.
    guards: Vec<Guard>,
}

impl Ground {
    fn new(name: &str) -> Ground {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("why-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("mnt")).expect("a folder");
        let scratch = fs::canonicalize(path).expect("it is there");
        let (ledger, _) = Ledger::open_in(&scratch.join("ledger")).expect("a ledger");
        let image = scratch.join("image");
        fs::File::create(&image).expect("a file").set_len(192 << 20).expect("it grows");
        let options = LoopOptions::default();
        let (node, guard) = ledger.attach_loop(&image, options).expect("a loop device");
        let mut guards = vec![guard];
        let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&node).output().expect("mkfs.ext4 starts");
        assert!(made.status.success(), "{}", text(&made.stderr));
        guards.push(ledger.mount(&node, &scratch.join("mnt"), "ext4", "").expect("it is mounted"));
        let big = fs::File::create(scratch.join("mnt/big")).expect("a file");
        for _ in 0..128 {
            std::io::Write::write_all(&mut &big, &vec![7; 1 << 20]).expect("it is written");
        }
        big.sync_all().expect("it is on the disk");
        let queue = Path::new("/sys/block").join(node.file_name().expect("a name")).join("queue");
        let ground = Ground { scratch, ledger, queue, guards };
        ground.set("read_ahead_kb", "128");
        ground
    }

    /// Sets a value of the queue of our own disk, which goes with the disk.
    fn set(&self, file: &str, value: &str) {
        fs::write(self.queue.join(file), value).unwrap_or_else(|error| panic!("{file}: {error}"));
    }

    fn get(&self, file: &str) -> String {
        fs::read_to_string(self.queue.join(file)).expect("a setting").trim().to_owned()
    }

    fn iowhy(&self, line: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_iowhy"))
            .args(line.split_whitespace())
            .current_dir(&self.scratch)
            .env("NO_COLOR", "1")
            .env("XDG_STATE_HOME", self.scratch.join("state"))
            .output()
            .expect("the command starts")
    }

    /// Makes a run of a side.
    fn run(&self, label: &str, seed: usize, job: &str) {
        let words = format!("run {job} --on live --dir mnt --trace=layers --label {label} --seed {seed} --store kept");
        let output = self.iowhy(&words);
        assert_eq!(output.status.code(), Some(0), "{words}\n{}", text(&output.stderr));
    }

    /// Explains `slow` against `fast`.
    fn explain(&self, options: &str) -> Value {
        let output = self.iowhy(&format!("explain fast slow --store kept --json {options}"));
        assert!(matches!(output.status.code(), Some(0 | 3)), "{}", text(&output.stderr));
        let value = serde_json::from_slice(&output.stdout).expect("JSON");
        check_schema("explain", &value);
        value
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        while let Some(guard) = self.guards.pop() {
            drop(guard);
        }
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

/// The first finding is this one, and with its cause switched most of the difference is gone.
fn named_and_proved(value: &Value, rules: &[&str]) {
    let finding = &value["findings"][0];
    assert!(rules.iter().any(|rule| finding["rule"] == *rule), "{value:#}");
    let pct = |name: &str| finding["counterfactual"][name].as_f64().unwrap_or_else(|| panic!("no {name}: {value:#}"));
    assert!(pct("change_pct_after") < 0.5 * pct("change_pct_before"), "{finding:#}");
    assert!(finding["advice"]["measured_change_pct"].as_f64().is_some_and(|pct| pct < 0.0), "{finding:#}");
}

#[test]
fn a_large_window_around_faults_is_named_proved_and_put_back() {
    if !permitted() {
        return;
    }
    let ground = Ground::new("mmap");
    let job = "fio --name=j --filename=big --rw=randread --bs=4k --size=128m --number_ios=16 --ioengine=mmap \
               --fadvise_hint=0";
    for seed in 1..=RUNS {
        for (label, value) in [("fast", "128"), ("slow", "4096")] {
            ground.set("read_ahead_kb", value);
            ground.run(label, seed, job);
        }
    }
    let value = ground.explain("--prove");
    named_and_proved(&value, &["mmap-read-around", "window-too-large"]);
    let set = value["findings"][0]["advice"]["set"].as_str().expect("what to set").to_owned();
    assert_eq!(set, format!("`echo 128 > {}`", ground.queue.join("read_ahead_kb").display()));
    assert_eq!(ground.get("read_ahead_kb"), "4096", "as it was before the experiments");
}

#[test]
fn a_setting_leaves_those_alone_that_the_kernel_derives_from_it() {
    if !permitted() {
        return;
    }
    let ground = Ground::new("derived");
    let both = || [ground.get("max_sectors_kb"), ground.get("read_ahead_kb")];
    ground.set("max_sectors_kb", "64");
    ground.set("read_ahead_kb", "192");
    let set = ground.ledger.set(&ground.queue.join("max_sectors_kb"), "32").expect("it can be set").expect("a change");
    assert_eq!(both(), ["32", "192"]);
    set.undo().expect("it is put back");
    assert_eq!(both(), ["64", "192"]);
}

#[test]
fn another_job_is_named_and_the_same_is_not() {
    if !permitted() {
        return;
    }
    let ground = Ground::new("job");
    let job = |bs: &str| format!("fio --name=j --filename=big --rw=randread --size=128m --number_ios=60 --bs={bs}");
    for seed in 1..=RUNS {
        ground.run("fast", seed, &job("4k"));
        ground.run("slow", seed, &job("1m"));
        ground.run("again", seed, &job("4k"));
    }
    named_and_proved(&ground.explain("--prove"), &["changed-job"]);
    let output = ground.iowhy("explain fast again --store kept --json");
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["findings"].as_array().map(Vec::len), Some(0), "{value:#}");
}

/// A compressed disk in memory of our own.
struct Zram(String);

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = fs::write("/sys/class/zram-control/hot_remove", &self.0);
    }
}

#[test]
fn who_keeps_pages_under_direct_writes_is_named() {
    if !permitted() {
        return;
    }
    let Ok(number) = fs::read_to_string("/sys/class/zram-control/hot_add") else {
        println!("skipped: this kernel has no zram");
        return;
    };
    let zram = Zram(number.trim().to_owned());
    let node = format!("/dev/zram{}", zram.0);
    fs::write(format!("/sys/block/zram{}/disksize", zram.0), "16M").expect("it gets a size");
    let ground = Ground::new("stale");
    let job = format!(
        "fio --name=j --filename={node} --rw=randwrite --bs=4k --size=16m --number_ios=1500 --direct=1 \
         --allow-write={node}"
    );
    for seed in 1..=RUNS {
        ground.run("fast", seed, &job);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = std::thread::Builder::new().name("stale-reader".to_owned());
            let read = || {
                let file = fs::File::open(&node).expect("the disk opens");
                let mut page = [0; 4096];
                for nr in 0_u64.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let _ = std::os::unix::fs::FileExt::read_at(&file, &mut page, nr * 37 % 4096 * 4096);
                    std::thread::sleep(Duration::from_micros(200));
                }
            };
            reader.spawn_scoped(scope, read).expect("a thread");
            ground.run("slow", seed, &job);
            done.store(true, Ordering::Relaxed);
        });
    }
    let value = ground.explain("");
    let rule = "stale-pages-under-direct-io";
    // What it costs is a few per cent, which a busy machine hides; the pages and who brought them are told anyway.
    let claim = value["findings"].as_array().into_iter().flatten().find(|finding| finding["rule"] == rule);
    let claim = claim.and_then(|finding| finding["claim"].as_str());
    let notes = value["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let said: Vec<&str> = notes.filter(|note| note.contains(rule)).chain(claim).collect();
    assert!(said.iter().any(|text| text.contains("stale-reader")), "{value:#}");
    assert!(!said.iter().any(|text| text.starts_with("fast:")), "{value:#}");
}
