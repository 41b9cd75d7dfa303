//! `iowhy explain --prove` of runs on modelled disks under the running kernel, as root.
//!
//! The model takes the time: a millisecond and more for an operation, and the sides differ by a quarter or more of it,
//! so that it does not matter how busy the machine is. Pages that others keep under direct writes cost a third of a
//! microsecond of the kernel's own work for a call; on a disk that answers through two processes nobody sees that, and
//! the test on a disk in memory ([`super::explain_live`]) stands for it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{PoisonError, RwLockWriteGuard};

use serde_json::Value;

use super::explain_live::ALONE;
use super::{Folder, can_make_disks, check_schema, text};

/// A folder for the runs and the ledgers of their disks.
struct Ground {
    folder: Folder,
    /// No two of these tests measure at a time.
    _alone: RwLockWriteGuard<'static, ()>,
}

impl Ground {
    fn new(name: &str) -> Ground {
        let alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
        let folder = Folder::new(&format!("why-disk-{name}"));
        fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o700)).expect("it is ours");
        Ground { folder, _alone: alone }
    }

    /// The command, before everybody else's turn, and with the I/O priority that it has without that: bfq works by it
    /// (600 random reads: 294 to 296 IOPS with level 4, 290 to 322 with level 0).
    fn iowhy(&self, line: &str) -> Output {
        let mut command = Command::new("nice");
        command.args(["-n", "-20", "ionice", "-c", "2", "-n", "4", env!("CARGO_BIN_EXE_iowhy")]);
        command.args(line.split_whitespace());
        command.current_dir(&self.folder.0).env("NO_COLOR", "1").env("XDG_STATE_HOME", &self.folder.0);
        command.output().expect("the command starts")
    }

    fn json(&self, line: &str) -> Value {
        let output = self.iowhy(&format!("{line} --json"));
        assert!(matches!(output.status.code(), Some(0 | 3)), "{line}\n{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Five runs of a job on each of two disks, and why the second is slower, with the experiment; more runs if that
    /// cannot be told.
    fn explain(&self, job: &str, [fast, slow]: [&str; 2]) -> Value {
        for round in 0..3 {
            let line = format!(
                "run {job} --on live --disk {fast} --label fast --on live --disk {slow} --label slow --trace=layers \
                 --store kept --repeat 5 --seed {}",
                1 + 5 * round
            );
            self.json(&line);
            if self.json("explain fast slow --store kept")["verdict"] != "inconclusive" {
                break;
            }
        }
        let value = self.json("explain fast slow --store kept --prove");
        check_schema("explain", &value);
        value
    }

    /// Nothing is left of the disks.
    fn is_clean(&self) {
        let output = self.iowhy("doctor");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
        let left = fs::read_dir(self.folder.0.join("iowhy")).into_iter().flatten().count();
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
        assert!(left == 0 && !mounts.contains(&self.folder.0.display().to_string()), "{left} left\n{mounts}");
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = self.iowhy("doctor --fix");
    }
}

/// The first finding is this one, and with `setting` switched most of the difference is gone.
fn named_and_proved(value: &Value, rule: &str, setting: &str) {
    let finding = &value["findings"][0];
    assert_eq!(finding["rule"], rule, "{value:#}");
    let of = &finding["counterfactual"];
    let pct = |name: &str| of[name].as_f64().unwrap_or_else(|| panic!("no {name}: {value:#}"));
    println!("{rule}, {setting}: {:.1} % instead of {:.1} %", pct("change_pct_after"), pct("change_pct_before"));
    assert_eq!(of["setting"], setting, "{finding:#}");
    assert!(pct("change_pct_after") < 0.5 * pct("change_pct_before"), "{finding:#}");
    let outcome = &finding["counterfactual"]["outcome"];
    assert!(outcome == "confirmed" || outcome == "partly", "{finding:#}");
    assert!(finding["advice"]["set"].as_str().is_some_and(|set| set.contains(setting)), "{finding:#}");
}

#[test]
fn waiting_for_a_writer_is_named_and_proved_on_a_modelled_disk() {
    if !can_make_disks() {
        return;
    }
    let ground = Ground::new("idling");
    // A cache takes each write in two milliseconds, one after the other; bfq waits for the writer that it has served.
    let disk = |idle_us: &str| {
        format!(
            "sata-2014,tfw_us=2000,size=256M,lead_us=60,scheduler=bfq,elevator.low_latency=off,\
             elevator.slice_idle_us={idle_us}"
        )
    };
    let job = "fio --name=j --filename=/dev/iowhy-disk --rw=write --bs=4k --direct=1 --numjobs=2 --size=64m \
               --offset_increment=128m --number_ios=100 --thinktime=400us";
    let value = ground.explain(job, [&disk("0"), &disk("8000")]);
    named_and_proved(&value, "slice-idling", "elevator.slice_idle_us=0");
    ground.is_clean();
}

#[test]
fn a_small_window_under_three_readers_is_named_and_proved_on_a_modelled_disk() {
    if !can_make_disks() {
        return;
    }
    let ground = Ground::new("window");
    let disk = |window: &str| {
        format!("sata-2014,lookahead_kb=0,history_kb=0,depth=4,size=256M,lead_us=60,read_ahead_kb={window}")
    };
    let job = "fio --name=j --rw=read --bs=16k --size=4m --numjobs=3";
    let value = ground.explain(job, [&disk("512"), &disk("128")]);
    named_and_proved(&value, "window-too-small", "read_ahead_kb=512");
    ground.is_clean();
}

#[test]
fn schedulers_differ_under_the_running_kernel_as_under_the_simulated_one() {
    if !can_make_disks() {
        return;
    }
    let ground = Ground::new("twins");
    let job = "fio --name=j --filename=/dev/iowhy-disk --rw=randread --bs=4k --size=3g --direct=1 --ioengine=libaio \
               --iodepth=32 --number_ios=600";
    let mut sorted = Vec::new();
    // Of some ten runs with bfq, one is a tenth or more away from the others.
    for (scheduler, repeat) in [("none", 1), ("mq-deadline", 1), ("bfq", 3)] {
        let disk = format!("sata-2010,depth=4,scheduler={scheduler}");
        let line = format!("run {job} --on live --on sim:linux-6.18 --disk {disk} --repeat {repeat}");
        let value = ground.json(&line);
        let runs = value["runs"].as_array().expect("runs");
        let median = |live: bool| {
            let of = runs.iter().filter(|run| (run["where"] == "live") == live);
            let mut iops: Vec<f64> = of.map(|run| run["metrics"]["iops"].as_f64().expect("a number")).collect();
            assert_eq!(iops.len(), repeat, "{line}");
            iops.sort_by(f64::total_cmp);
            println!("{scheduler}, {}: {iops:.1?} IOPS", if live { "live" } else { "simulated" });
            iops[repeat / 2]
        };
        let (live, simulated) = (median(true), median(false));
        assert!((live / simulated - 1.0).abs() < 0.1, "{scheduler}: {live} {simulated}");
        sorted.push(live);
    }
    assert!(sorted[1] > 1.05 * sorted[0], "a scheduler that sorts has something to choose from: {sorted:?}");
    ground.is_clean();
}

#[test]
fn a_run_says_what_disk_it_was_made_on() {
    if !can_make_disks() {
        return;
    }
    let ground = Ground::new("words");
    let disk = "fixed,size=16M,scheduler=kyber,elevator.read_lat_us=3000,nr_requests=64,read_ahead_kb=256,lead_us=60";
    ground.json(&format!("run dd of=data bs=64k count=4 --on live --disk {disk} --label x --store kept"));
    assert!(!Path::new(&ground.folder.0.join("data")).exists());
    let kept = text(&ground.iowhy("store show x --store kept --json").stdout);
    for word in
        ["elevator.read_lat_us=3000", "elevator.write_lat_us=", "nr_requests=64", "read_ahead_kb=256", "fs=ext4"]
    {
        assert!(kept.contains(word), "{word} is missing: {kept}");
    }
    ground.is_clean();
}
