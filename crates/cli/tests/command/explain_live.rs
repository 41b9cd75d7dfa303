//! `iowhy explain` of runs on the running kernel, as root: causes that are really there, on disks of the tests' own.
//!
//! The disk is a loop device over a file that stays in the page cache, so that a request costs what it costs to
//! copy its pages, whatever the disk below is like that day. Sides are made by turns. Where luck has a part in the
//! runs, the difference is made so large that a busy machine cannot hide it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use iowhy_live::ledger::{Guard, Ledger, LoopOptions};
use serde_json::Value;

use super::own::wait_for;
use super::{check_schema, not_decided, text};

/// Runs of each side.
const RUNS: usize = 8;

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
    /// The control group that the commands are in.
    group: Option<Group>,
    /// Undone from the end.
    guards: Vec<Guard>,
    /// No two of these tests measure at a time.
    _alone: RwLockWriteGuard<'static, ()>,
}

/// Written by each test that measures on the running kernel, read by those that would disturb it.
pub(super) static ALONE: RwLock<()> = RwLock::new(());

/// A control group of our own, in which a disk does so many reads in a second and no more: how long a job takes is then
/// counted in requests, on every machine.
struct Group(PathBuf);

impl Group {
    /// Of the first version of control groups or of the second; nothing if neither limits I/O here.
    fn limited(disk: &Path, reads_per_s: u32) -> Option<Group> {
        let number = fs::read_to_string(Path::new("/sys/block").join(disk.file_name()?).join("dev")).ok()?;
        let number = number.trim();
        let limits = [
            ("/sys/fs/cgroup/blkio", "blkio.throttle.read_iops_device", format!("{number} {reads_per_s}")),
            ("/sys/fs/cgroup", "io.max", format!("{number} riops={reads_per_s}")),
        ];
        limits.into_iter().find_map(|(root, file, limit)| {
            let group = Group(Path::new(root).join(format!("iowhy-test-{}", number.replace(':', "-"))));
            fs::create_dir(&group.0).ok()?;
            // A group that takes no limit goes again here.
            fs::write(group.0.join(file), limit).ok().map(|()| group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Those who were in it may still be on their way out.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Ground {
    fn new(name: &str) -> Ground {
        // A test that failed has left nothing behind that another one could stumble over.
        let alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
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
        let ground = Ground { scratch, ledger, queue, group: None, guards, _alone: alone };
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

    /// Lets the disk do so many reads in a second for the commands; false, loudly, if this system cannot.
    fn limit(&mut self, reads_per_s: u32) -> bool {
        let name = self.queue.parent().expect("it has one").to_path_buf();
        self.group = Group::limited(&name, reads_per_s);
        if self.group.is_none() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "CI needs control groups that limit I/O");
            println!("skipped: no control groups that limit I/O");
        }
        self.group.is_some()
    }

    /// The command, before everybody else's turn: other tests that run beside it are not to decide what it measures.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("nice");
        command.args(["-n", "-20", "sh", "-c"]);
        match &self.group {
            Some(group) => {
                let procs = group.0.join("cgroup.procs");
                command.arg("echo $$ > \"$0\" && exec \"$@\"").arg(procs);
            }
            None => _ = command.args(["exec \"$@\"", "sh"]),
        }
        command.arg(env!("CARGO_BIN_EXE_iowhy")).args(line.split_whitespace());
        command.current_dir(&self.scratch).env("NO_COLOR", "1").env("XDG_STATE_HOME", self.scratch.join("state"));
        command
    }

    fn iowhy(&self, line: &str) -> Output {
        self.command(line).output().expect("the command starts")
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

/// Makes the runs of both sides.
fn by_turns(mut both: impl FnMut(usize)) {
    (1..=RUNS).for_each(&mut both);
}

/// The first finding is this one, and with its cause switched most of the difference is gone. A machine with much else
/// to do shows no difference, none any more when the proof is made, or runs that spread too much for one: iowhy says
/// so, and nothing is decided. Nor is it if the first finding has neither a certainty nor an experiment.
fn named_and_proved(value: &Value, rules: &[&str]) -> bool {
    let finding = &value["findings"][0];
    let outcome = &finding["counterfactual"]["outcome"];
    let open = outcome == "not-reproduced" || outcome == "undecided";
    let unclaimed = finding.is_object() && outcome.is_null() && finding["certainty"].is_null();
    if value["verdict"] == "inconclusive" || open || unclaimed {
        not_decided(&format!("{}: {}, {outcome}", rules.join(" or "), value["verdict"]));
        return false;
    }
    assert!(rules.iter().any(|rule| finding["rule"] == *rule), "{value:#}");
    let pct = |name: &str| finding["counterfactual"][name].as_f64().unwrap_or_else(|| panic!("no {name}: {value:#}"));
    // Whichever of the sides is the slow one.
    assert!(pct("change_pct_after").abs() < 0.5 * pct("change_pct_before").abs(), "{finding:#}");
    assert!(outcome == "confirmed" || outcome == "partly", "{finding:#}");
    assert!(finding["advice"]["measured_change_pct"].as_f64().is_some_and(|pct| pct < 0.0), "{finding:#}");
    true
}

#[test]
fn a_large_window_around_faults_is_named_proved_and_put_back() {
    if !permitted() {
        return;
    }
    let ground = Ground::new("mmap");
    let job = "fio --name=j --filename=big --rw=randread --bs=4k --size=128m --number_ios=16 --ioengine=mmap \
               --fadvise_hint=0";
    by_turns(|seed| {
        for (label, value) in [("fast", "128"), ("slow", "4096")] {
            ground.set("read_ahead_kb", value);
            ground.run(label, seed, job);
        }
    });
    let value = ground.explain("--prove");
    if !named_and_proved(&value, &["mmap-read-around", "window-too-large"]) {
        return;
    }
    let set = value["findings"][0]["advice"]["set"].as_str().expect("what to set").to_owned();
    assert_eq!(set, format!("`echo 128 > {}`", ground.queue.join("read_ahead_kb").display()));
    assert_eq!(ground.get("read_ahead_kb"), "4096", "as it was before the experiments");
    for (signal, restored_by) in [("INT", None), ("TERM", None), ("KILL", Some("doctor --fix"))] {
        let mut command = ground.command("explain fast slow --store kept --prove");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let started = Instant::now();
        while ground.get("read_ahead_kb") == "4096" {
            assert!(started.elapsed() < Duration::from_secs(60), "no experiment was made");
            std::thread::sleep(Duration::from_millis(1));
        }
        let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().expect("kill starts");
        assert!(sent.success());
        child.wait().expect("it ends");
        if let Some(line) = restored_by {
            assert_eq!(ground.get("read_ahead_kb"), "128", "the experiment's value");
            ground.iowhy(line);
        }
        assert_eq!(ground.get("read_ahead_kb"), "4096", "as it was before SIG{signal}");
    }
}

#[test]
fn streams_on_one_descriptor_are_named_and_proved() {
    if !permitted() {
        return;
    }
    let mut ground = Ground::new("shared");
    if !ground.limit(1000) {
        return;
    }
    // The pause lets the threads come by turns, as those of a program that works on what it reads do.
    let job = |descriptors: &str| {
        format!(
            "fio --name=j --filename=big --rw=read --bs=16k --size=4m --numjobs=16 --thread --offset_increment=8m \
             --thinktime=500us --iowhy_descriptors={descriptors}"
        )
    };
    by_turns(|seed| {
        ground.run("fast", seed, &job("own"));
        ground.run("slow", seed, &job("shared"));
    });
    named_and_proved(&ground.explain("--prove"), &["shared-readahead-state"]);
}

#[test]
fn requests_cut_by_a_lower_limit_are_named_proved_and_put_back() {
    if !permitted() {
        return;
    }
    let mut ground = Ground::new("cut");
    if !ground.limit(500) {
        return;
    }
    let job = "fio --name=j --filename=big --rw=read --bs=1m --size=16m --direct=1";
    by_turns(|seed| {
        for (label, value) in [("fast", "512"), ("slow", "64")] {
            ground.set("max_sectors_kb", value);
            ground.run(label, seed, job);
        }
    });
    let value = ground.explain("--prove");
    if !named_and_proved(&value, &["requests-cut"]) {
        return;
    }
    let set = value["findings"][0]["advice"]["set"].as_str().expect("what to set").to_owned();
    assert_eq!(set, format!("`echo 512 > {}`", ground.queue.join("max_sectors_kb").display()));
    assert_eq!(ground.get("max_sectors_kb"), "64", "as it was before the experiments");
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
    by_turns(|seed| {
        ground.run("fast", seed, &job("4k"));
        ground.run("slow", seed, &job("1m"));
        ground.run("again", seed, &job("4k"));
    });
    named_and_proved(&ground.explain("--prove"), &["changed-job"]);
    let output = ground.iowhy("explain fast again --store kept --json");
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["findings"].as_array().map(Vec::len), Some(0), "{value:#}");
}

/// A compressed disk in memory of our own.
struct Zram(String);

impl Drop for Zram {
    fn drop(&mut self) {
        // A reader may not have closed it yet.
        for _ in 0..100 {
            if fs::write("/sys/class/zram-control/hot_remove", &self.0).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Somebody else, who reads a disk from end to end again and again.
struct Reader(std::process::Child);

impl Reader {
    /// Returns as soon as it has read from `node`: on a busy machine the processes of a shell take longer to start than
    /// the job that is to meet them takes to end.
    fn start(node: &str) -> Reader {
        let stat = format!("/sys/block/{}/stat", node.trim_start_matches("/dev/"));
        let read =
            || fs::read_to_string(&stat).expect("a disk has counters").split_whitespace().nth(2).map(str::to_owned);
        let before = read();
        let script = "while dd if=\"$0\" of=/dev/null bs=1M 2>/dev/null; do :; done";
        let child = Command::new("nice").args(["-n", "-20", "sh", "-c", script, node]).spawn().expect("nice starts");
        let reader = Reader(child);
        wait_for(|| read() != before);
        reader
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // What it has begun to read it still reads, and that is soon done.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_reader_that_keeps_pages_under_direct_writes_is_named() {
    if !permitted() {
        return;
    }
    let Ok(number) = fs::read_to_string("/sys/class/zram-control/hot_add") else {
        println!("skipped: this kernel has no zram");
        return;
    };
    let zram = Zram(number.trim().to_owned());
    let node = format!("/dev/zram{}", zram.0);
    fs::write(format!("/sys/block/zram{}/disksize", zram.0), "32M").expect("it gets a size");
    let ground = Ground::new("stale");
    let job = format!(
        "fio --name=j --filename={node} --rw=write --bs=64k --size=32m --loops=48 --zero_buffers --direct=1 \
         --allow-write={node}"
    );
    (1..=2).for_each(|seed| {
        ground.run("fast", seed, &job);
        let reader = Reader::start(&node);
        ground.run("slow", seed, &job);
        drop(reader);
    });
    // Such pages cost next to nothing since 4.20, so that chance decides whether there is a finding, and in which
    // place; but it is seen who put them there, and on which side.
    let value = ground.explain("");
    let mut claims = value["findings"].as_array().into_iter().flatten().filter_map(|of| of["claim"].as_str());
    let of = |label: &str| {
        let warnings = value["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
        warnings.filter(|words| words.starts_with(label)).any(|words| words.contains("stale-pages-under-direct-io"))
            && value["warnings"].to_string().contains("dd (")
    };
    assert!(of("slow: ") || claims.any(|claim| claim.starts_with("dd has put pages")), "{value:#}");
    assert!(!of("fast: "), "{value:#}");
}
