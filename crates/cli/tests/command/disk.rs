//! `iowhy disk` on the running kernel. It needs root, FUSE and loop devices; without them these tests say so and pass,
//! but fail in CI. Every test has a folder of its own for its disks and their ledgers, and takes only its own away.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLockReadGuard};
use std::time::{Duration, Instant};

use iowhy_stack::rng::Rng;
use serde_json::Value;

use crate::explain_live::ALONE;
use crate::{Folder, can_make_disks, check_schema, text};

/// Nothing may hang longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A place for disks. Whatever is left of them goes with it. While it is there, nobody measures beside it: processors
/// are kept awake for a disk.
struct Place {
    folder: Folder,
    _beside: RwLockReadGuard<'static, ()>,
}

impl Place {
    fn new(name: &str) -> Place {
        let beside = ALONE.read().unwrap_or_else(PoisonError::into_inner);
        let place = Place { folder: Folder::new(&format!("disk-{name}")), _beside: beside };
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(&place.folder.0, private).expect("it is ours");
        place
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iowhy"));
        command.args(line.split_whitespace()).env("NO_COLOR", "1").env("XDG_STATE_HOME", &self.folder.0);
        command.current_dir(&self.folder.0);
        command
    }

    fn iowhy(&self, line: &str) -> Output {
        self.command(line).output().expect("the command starts")
    }

    fn json(&self, line: &str) -> Value {
        let output = self.iowhy(&format!("{line} --json"));
        assert_eq!(output.status.code(), Some(0), "{line}\n{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// The one disk that a command shows.
    fn disk(&self, line: &str) -> Value {
        let value = self.json(line);
        check_schema("disk", &value);
        value["disks"][0].clone()
    }

    fn refused(&self, line: &str) -> String {
        let output = self.iowhy(line);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{line}");
        text(&output.stderr)
    }

    /// Nothing is left: no device, no mount, no process, no ledger.
    fn is_clean(&self) {
        let output = self.iowhy("doctor");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
        let state = self.folder.0.join("iowhy");
        let mut left: Vec<PathBuf> = fs::read_dir(&state).into_iter().flatten().flatten().map(|it| it.path()).collect();
        // Which contents of devices are ours is remembered.
        left.retain(|path| !path.ends_with("devices"));
        assert_eq!(left, [] as [PathBuf; 0]);
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
        assert!(!mounts.contains(&self.folder.0.display().to_string()), "{mounts}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // After a failed test the disks are still there.
        let value: Value = serde_json::from_slice(&self.iowhy("disk list --json").stdout).unwrap_or_default();
        for disk in value["disks"].as_array().into_iter().flatten() {
            let _ = self.iowhy(&format!("disk remove {}", disk["name"].as_str().unwrap_or_default()));
        }
        let _ = self.iowhy("doctor --fix");
    }
}

fn node(disk: &Value) -> PathBuf {
    PathBuf::from(disk["node"].as_str().expect("a node"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Runs a program of the system that must succeed.
fn run(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {words:?}: {}\n{said}", output.status);
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Where the device of this number is, if it is there.
fn device_of(node: &Path) -> PathBuf {
    Path::new("/sys/block").join(node.file_name().expect("a name"))
}

#[test]
fn a_disk_is_made_shown_changed_and_removed_without_a_trace() {
    if !can_make_disks() {
        return;
    }
    let place = Place::new("life");
    let words =
        "--model ide-2004 --name old --size 64M --depth 5 --partitions 2 scheduler=bfq read_ahead_kb=512 lead_us=0";
    let made = place.disk(&format!("disk create --front loop {words}"));
    assert_eq!(made["front"], "loop");
    let node = node(&made);
    assert_eq!((number(&made["bytes"]), number(&made["depth_found"])), (64 << 20, 5));
    let queue = |disk: &Value, key: &str| disk["queue"][key].as_str().unwrap_or_default().to_owned();
    assert_eq!((queue(&made, "scheduler"), queue(&made, "read_ahead_kb")), ("bfq".into(), "512".into()));
    assert_eq!((queue(&made, "rotational"), queue(&made, "max_sectors_kb")), ("1".into(), "1024".into()));
    let partitions: Vec<PathBuf> = (1..=2).map(|nr| PathBuf::from(format!("{}p{nr}", node.display()))).collect();
    assert_eq!(made["partitions"], serde_json::json!(partitions));
    // A byte of the second partition is where it should be on the whole disk.
    let partition = OpenOptions::new().read(true).write(true).open(&partitions[1]).expect("a partition");
    partition.write_all_at(b"here", 4096).expect("written");
    partition.sync_all().expect("synced");
    let mut bytes = [0; 4];
    let start = (1 << 20) + (31 << 20);
    File::open(&node).expect("the disk").read_exact_at(&mut bytes, start + 4096).expect("read");
    assert_eq!(&bytes, b"here");
    drop(partition);

    assert!(place.refused("disk create --model ide-2004 --name old").contains("there is a disk `old` already"));
    // As many as a loop device is born with, which the kernel says without being asked.
    assert_eq!(number(&place.disk("disk set old depth=128")["depth_found"]), 128);
    let changed = place.disk("disk set old depth=9 scheduler=none read_ahead_kb=64 fault=eio:from=8m:to=9m:on=read");
    assert_eq!((number(&changed["depth_found"]), queue(&changed, "scheduler")), (9, "none".into()));
    assert_eq!(changed["faults"], serde_json::json!(["eio:from=8388608:to=9437184:on=read"]));
    let device = File::open(&node).expect("the disk");
    assert!(device.read_exact_at(&mut bytes, (8 << 20) + 4096).is_err());
    assert!(device.read_exact_at(&mut bytes, 12 << 20).is_ok());
    assert_eq!(place.disk("disk set old fault=none")["faults"], serde_json::json!([]));
    assert!(device.read_exact_at(&mut bytes, (8 << 20) + 4096).is_ok());
    drop(device);

    let list = place.json("disk list");
    check_schema("disk", &list);
    let names: Vec<&str> =
        list["disks"].as_array().expect("disks").iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(names, ["old"]);
    assert!(text(&place.iowhy("disk stat").stdout).contains("9 asked for, 9 found by experiment"));
    let removed = place.json("disk remove old");
    check_schema("disk", &removed);
    assert!(!device_of(&node).exists());
    place.is_clean();
}

#[test]
fn mistakes_are_told_at_once_and_make_nothing() {
    let place = Place::new("mistakes");
    let message = place.refused("disk create --model ide-2005 --size x depth=1000000000 fs=fat oops");
    for expected in
        ["unknown disk `ide-2005`", "ide-2004", "`size` takes bytes", "`fs` is one of", "`oops` is not a setting"]
    {
        assert!(message.contains(expected), "no `{expected}` in\n{message}");
    }
    for line in ["disk stat x", "disk remove x", "disk crash x", "disk set x power=on", "disk stat ../x"] {
        assert!(place.refused(line).contains("unknown disk"), "{line}");
    }
    assert!(place.refused("disk set x fault=flood colour=red").contains("a fault is none, slow:"));
    assert!(place.refused("disk create --model fixed --front nbd").contains("`front` is one of ublk, loop, not `nbd`"));
    if !Path::new("/dev/ublk-control").exists() {
        let message = place.refused("disk create --model fixed --front ublk");
        for expected in ["no front `ublk`", "/dev/ublk-control", "modprobe ublk_drv", "front=loop"] {
            assert!(message.contains(expected), "no `{expected}` in\n{message}");
        }
    }
    place.is_clean();
}

#[test]
fn times_are_those_of_the_model_and_faults_make_them_longer() {
    if !can_make_disks() {
        return;
    }
    let place = Place::new("times");
    let node = node(&place.disk("disk create --model fixed service_us=5000 --name t --size 64M read_ahead_kb=0"));
    let device = File::open(&node).expect("the disk");
    let read = |nr: u64| {
        let mut page = [0; 4096];
        let begun = Instant::now();
        device.read_exact_at(&mut page, nr << 20).expect("read");
        begun.elapsed()
    };
    let mut times: Vec<Duration> = (0..20).map(read).collect();
    times.sort_unstable();
    // A program sees the time of the model; 0.3 ms is the most that is hidden. Some are not held up by others.
    assert!(times[0] >= Duration::from_micros(4_600), "{times:?}");
    assert!(times[0] < Duration::from_micros(7_500), "{times:?}");
    let late = place.disk("disk stat t")["late_us"]["p50"].as_f64().expect("a number");
    assert!(late < 2_000.0, "{late}");
    place.disk("disk set t fault=slow:factor=10");
    assert!(read(30) >= Duration::from_millis(49));
    place.disk("disk set t fault=none fault=stuck:for=200ms");
    assert!(read(31) >= Duration::from_millis(200));
    assert!(read(32) < Duration::from_millis(200), "one request was stuck, and it is past");
    // What would be stuck for an hour does not keep the disk from being removed.
    place.disk("disk set t fault=stuck:for=60m");
    let mut stuck = Command::new("dd")
        .args([&format!("if={}", node.display()), "of=/dev/null", "bs=4k", "count=1", "skip=9000", "iflag=direct"])
        .stderr(Stdio::null())
        .spawn()
        .expect("dd starts");
    std::thread::sleep(Duration::from_millis(100));
    assert!(matches!(stuck.try_wait(), Ok(None)), "it is stuck");
    place.disk("disk set t fault=none");
    assert!(stuck.wait().expect("it ends").success());
    drop(device);
    place.json("disk remove t");
    place.is_clean();
}

#[test]
fn processors_are_kept_awake_while_a_disk_is_in_use_and_no_longer() {
    const WISH: &str = "/dev/cpu_dma_latency";
    if !can_make_disks() || !Path::new(WISH).exists() {
        return;
    }
    let place = Place::new("awake");
    for wanted in ["on", "off"] {
        let disk = place.disk(&format!("disk create --model fixed service_us=500 --name a --size 16M awake={wanted}"));
        assert_eq!(disk["awake"], wanted == "on");
        let files = format!("/proc/{}/fd", number(&disk["server"]));
        let is_kept = || {
            let links = fs::read_dir(&files).expect("the server's files").flatten();
            links.into_iter().any(|link| fs::read_link(link.path()).is_ok_and(|path| path == Path::new(WISH)))
        };
        let from = format!("if={}", node(&disk).display());
        let mut reader = Command::new("dd")
            .args([&from, "of=/dev/null", "bs=4k", "count=600", "iflag=direct", "status=none"])
            .spawn()
            .expect("dd starts");
        let mut was_kept = false;
        while reader.try_wait().expect("it is ours").is_none() {
            was_kept |= is_kept();
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(was_kept, wanted == "on");
        let begun = Instant::now();
        while is_kept() {
            assert!(begun.elapsed() < PATIENCE, "nothing is under way");
            std::thread::sleep(Duration::from_millis(10));
        }
        place.json("disk remove a");
    }
    place.is_clean();
}

#[test]
fn schedulers_have_something_to_choose_from() {
    if !can_make_disks() {
        return;
    }
    let place = Place::new("sorted");
    let disk = place.disk("disk create --model fixed service_us=500 --name s --size 1G --depth 4");
    let job = format!(
        "fio --name=j --filename={} --rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=32 --number_ios=1500",
        node(&disk).display()
    );
    let known = fs::read_to_string(device_of(&node(&disk)).join("queue/scheduler")).expect("schedulers");
    let share = |scheduler: &str| {
        if !known.contains(scheduler) {
            return None;
        }
        let before = place.disk(&format!("disk set s scheduler={scheduler}"));
        let output = place.iowhy(&job);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let after = place.disk("disk stat s");
        let more = |key: &str| (number(&after["counters"][key]) - number(&before["counters"][key])) as f64;
        Some(more("forward") / more("reads"))
    };
    // Of random places half lie behind the one before; of sorted ones nearly all.
    let none = share("none").expect("there is always none");
    assert!((0.4..0.6).contains(&none), "none: {none}");
    for scheduler in ["mq-deadline", "bfq"] {
        let sorted = share(scheduler).unwrap_or(1.0);
        println!("none {none:.3}, {scheduler} {sorted:.3}");
        assert!(sorted > 0.75, "{scheduler}: {sorted}");
    }
    place.json("disk remove s");
    place.is_clean();
}

#[test]
fn what_is_written_is_read_until_the_power_fails_and_flushed_data_even_then() {
    if !can_make_disks() {
        return;
    }
    let place = Place::new("data");
    let disk = place.disk("disk create --model fixed service_us=100 --name d --size 256M lead_us=0");
    let node = node(&disk);
    let image = place.folder.0.join("image");
    let mut rng = Rng::stream(7, "data");
    let old: Vec<u8> = (0..(16 << 20) / 8).flat_map(|_| rng.next_u64().to_ne_bytes()).collect();
    let new: Vec<u8> = old.iter().map(|byte| !byte).collect();
    let dd = |flags: &str| {
        let words = [format!("if={}", image.display()), format!("of={}", node.display())];
        let more = ["bs=1M", "oflag=direct", flags, "status=none"];
        run("dd", &[&words[0], &words[1], more[0], more[1], more[2], more[3]]);
    };
    let read_all = || {
        let mut all = vec![0; old.len()];
        File::open(&node).expect("the disk").read_exact_at(&mut all, 0).expect("read");
        all
    };
    fs::write(&image, &old).expect("a file");
    dd("conv=notrunc,fsync");
    assert_eq!(number(&place.disk("disk stat d")["counters"]["unsafe_blocks"]), 0);
    assert!(read_all() == old);
    fs::write(&image, &new).expect("a file");
    dd("conv=notrunc");
    run("blockdev", &["--flushbufs", shown(&node)]);
    assert!(read_all() == new);
    let at_risk = number(&place.disk("disk stat d")["counters"]["unsafe_blocks"]);
    let after = place.disk("disk crash d --seed 3");
    assert_eq!(after["power"], true);
    let losses = &after["losses"];
    let [kept, lost, torn] = ["kept", "lost", "torn"].map(|fate| number(&losses[fate]));
    assert_eq!(kept + lost + torn, at_risk);
    let all = read_all();
    let sectors = || all.chunks(512).zip(old.chunks(512)).zip(new.chunks(512));
    assert!(sectors().all(|((now, old), new)| now == old || now == new), "a sector is neither old nor new");
    // `blockdev` may have flushed: then nothing was at risk.
    let nr_old = sectors().filter(|((now, old), _)| now == old).count();
    assert_eq!(nr_old > 0, at_risk > 0, "{losses}");
    place.json("disk remove d");
    place.is_clean();
}

#[test]
fn file_systems_come_up_again_after_a_power_cut_with_everything_that_was_synced() {
    if !can_make_disks() {
        return;
    }
    let place = Place::new("fsck");
    let point = place.folder.0.join("mnt");
    fs::create_dir(&point).expect("a folder");
    for (filesystem, check) in [("ext4", "e2fsck"), ("xfs", "xfs_repair")] {
        let disk = place.disk("disk create --model fixed service_us=50 --name f --size 512M lead_us=0");
        let node = node(&disk);
        let make: &[&str] = if filesystem == "xfs" { &["-q", "-K"] } else { &["-q", "-E", "nodiscard"] };
        run(&format!("mkfs.{filesystem}"), &[make, &[shown(&node)]].concat());
        run("mount", &[shown(&node), shown(&point)]);
        for nr in 0..40u8 {
            let file = File::create(point.join(format!("file{nr}"))).expect("a file");
            file.write_all_at(&vec![nr; 50_000], 0).expect("written");
            // Every other one is safe; the rest is on its way.
            if nr % 2 == 0 {
                file.sync_all().expect("synced");
            }
        }
        let mut busy = Command::new("dd")
            .args(["if=/dev/zero", &format!("of={}/more", point.display()), "bs=64k", "oflag=direct"])
            .stderr(Stdio::null())
            .spawn()
            .expect("dd starts");
        std::thread::sleep(Duration::from_millis(150));
        let begun = Instant::now();
        let cut = place.disk("disk crash f --seed 5");
        assert_eq!(cut["power"], false, "a mounted file system of others does not get its disk back");
        busy.wait().expect("it ends");
        run("umount", &[shown(&point)]);
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        println!("{filesystem}: {}", cut["losses"]);
        place.disk("disk set f power=on");
        run("mount", &[shown(&node), shown(&point)]);
        for nr in (0..40u8).step_by(2) {
            let data = fs::read(point.join(format!("file{nr}"))).expect("a synced file is there");
            assert!(data == vec![nr; 50_000], "{filesystem}: file{nr} was synced");
        }
        run("umount", &[shown(&point)]);
        run(check, &[if filesystem == "xfs" { "-n" } else { "-fn" }, shown(&node)]);
        place.json("disk remove f");
    }
    place.is_clean();
}

/// Sends a signal to a process of ours.
fn signal(name: &str, pid: u64) {
    run("kill", &[&format!("-{name}"), &pid.to_string()]);
}

#[test]
fn whoever_is_killed_nothing_hangs_and_the_doctor_takes_away_the_rest() {
    if !can_make_disks() {
        return;
    }
    let place = Place::new("killed");
    let mut rng = Rng::stream(u64::from(std::process::id()), "moments of killing");
    for (round, victims) in
        [&["server"][..], &["keeper"], &["keeper", "server"], &["stopped"], &["maker"], &["server"]].iter().enumerate()
    {
        let fs = ["ext4", "xfs", "none"][round % 3];
        if *victims == ["maker"] {
            // In the middle of making it.
            let mut maker = place.command("disk create --model ide-2004 --name k --size 512M fs=ext4");
            let mut maker = maker.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
            std::thread::sleep(Duration::from_millis(rng.below(300)));
            maker.kill().expect("it can be killed");
            maker.wait().expect("it ends");
            // The keeper lives on, or sees that nobody asks any more.
            let begun = Instant::now();
            while !place.iowhy("disk stat k").status.success() && begun.elapsed() < Duration::from_secs(2) {
                std::thread::sleep(Duration::from_millis(50));
            }
            place.iowhy("disk remove k");
        } else {
            let disk = place.disk(&format!("disk create --model ide-2004 --name k --size 512M fs={fs}"));
            let target = match disk["mount"].as_str() {
                Some(mount) => format!("{mount}/file"),
                None => node(&disk).display().to_string(),
            };
            let mut busy = Command::new("dd")
                .args(["if=/dev/zero", &format!("of={target}"), "bs=64k", "count=2000", "oflag=direct", "conv=notrunc"])
                .stderr(Stdio::null())
                .spawn()
                .expect("dd starts");
            std::thread::sleep(Duration::from_millis(rng.below(400)));
            let begun = Instant::now();
            if *victims == ["stopped"] {
                // A server that hangs is as bad as can be: nobody fails its requests.
                signal("STOP", number(&disk["server"]));
                signal("KILL", number(&disk["keeper"]));
                assert_eq!(place.iowhy("doctor --fix").status.code(), Some(0), "round {round}");
            } else {
                victims.iter().for_each(|victim| signal("KILL", number(&disk[*victim])));
            }
            busy.wait().expect("it ends");
            assert!(begun.elapsed() < PATIENCE, "round {round}: {:?}", begun.elapsed());
            println!("round {round}, {victims:?}, {fs}: the program ended after {:?}", begun.elapsed());
            // The one that is left sees that the other is gone, and goes, too.
            let alive = |who: &str| Path::new(&format!("/proc/{}", disk[who])).exists();
            while (alive("server") || alive("keeper")) && begun.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let begun = Instant::now();
        let fixed = place.iowhy("doctor --fix --json");
        assert_eq!(fixed.status.code(), Some(0), "round {round}, {victims:?}: {}", text(&fixed.stdout));
        assert!(begun.elapsed() < PATIENCE);
        place.is_clean();
    }
}

#[test]
fn a_job_runs_on_a_modelled_disk_and_on_its_twin() {
    if !can_make_disks() {
        return;
    }
    let place = Place::new("run");
    let twins = |job: &str, disk: &str| {
        let value = place.json(&format!("run {job} --on live --on sim:linux-6.18 --disk {disk} --seed 5"));
        check_schema("run", &value);
        let runs = value["runs"].as_array().expect("runs").clone();
        let mut runs = runs.into_iter();
        let (one, other) = (runs.next().expect("a run"), runs.next().expect("another"));
        if one["where"] == "live" { (one, other) } else { (other, one) }
    };
    // A file on ext4, which is what a disk has if nothing else is said.
    let (live, simulated) = twins("dd if=data bs=4k count=1024", "fixed,service_us=2000,size=128M");
    let modelled = &live["live"]["modelled"];
    assert_eq!((modelled["model"].as_str(), modelled["filesystem"].as_str()), (Some("fixed"), Some("ext4")));
    assert_eq!((&modelled["seed"], &simulated["disk"]), (&Value::from(5), &Value::from("fixed")));
    // 4 MiB in windows of 128 KiB are 32 requests of 2 ms, some of them side by side with the reader: on both sides the
    // disk is what takes the time, and a real run is never faster than its disk.
    let elapsed = |run: &Value| run["metrics"]["elapsed_s"].as_f64().expect("a time");
    println!("live {:.4} s, simulated {:.4} s", elapsed(&live), elapsed(&simulated));
    assert!(elapsed(&live) > 0.8 * elapsed(&simulated), "{} {}", elapsed(&live), elapsed(&simulated));
    let bytes = number(&modelled["counters"]["read_bytes"]);
    assert!(bytes >= 4 << 20, "the disk has served what the job read: {bytes}");
    // A file of 48 MiB is laid out in as many writes at least, and the model sees none of them: 4 MiB of it are read in
    // some 35 requests.
    let (live, _) = twins(
        "fio --name=j --rw=read --bs=4k --size=48m --number_ios=1024 --fadvise_hint=0",
        "fixed,service_us=2000,size=128M",
    );
    let seen = number(&live["live"]["modelled"]["counters"]["media_accesses"]);
    assert!((32..45).contains(&seen), "{seen}");
    // The disk itself, if the job names nothing else; there is no file system then.
    let (live, _) =
        twins("dd of=/dev/iowhy-disk bs=64k oflag=direct count=32", "fixed,service_us=300,size=128M,scheduler=bfq");
    let modelled = &live["live"]["modelled"];
    assert!(modelled["filesystem"].is_null(), "{modelled}");
    assert_eq!((&modelled["queue"]["scheduler"], number(&modelled["counters"]["writes"])), (&Value::from("bfq"), 32));
    assert!(!Path::new(modelled["node"].as_str().expect("a node")).exists());
    let (live, simulated) = twins("dd of=data bs=64k count=16 conv=fsync", "fixed,service_us=300,size=512M,fs=xfs");
    assert_eq!(live["live"]["disk"]["filesystem"], "xfs");
    assert!(simulated["where"].as_str().expect("a place").contains("filesystem=xfs"), "{}", simulated["where"]);
    assert!(live["live"]["modelled"]["counters"]["flushes"].as_u64() > Some(0));
    place.is_clean();
}

#[test]
fn a_run_that_is_killed_takes_its_disk_along() {
    if !can_make_disks() {
        return;
    }
    let place = Place::new("run-killed");
    let mut rng = Rng::stream(u64::from(std::process::id()), "moments of killing runs");
    for life_ms in [200, 700, 1200] {
        let line =
            "run fio --name=j --size=16m --rw=randwrite --time_based --runtime=9 --on live --disk ide-2004,size=256M";
        let mut command = place.command(line);
        let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(life_ms + rng.below(200)));
        run.kill().expect("it can be killed");
        run.wait().expect("it ends");
        let begun = Instant::now();
        let state = place.folder.0.join("iowhy");
        let disks = || {
            let entries = fs::read_dir(&state).into_iter().flatten().flatten();
            entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("disk-")).count()
        };
        while disks() > 0 && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(place.iowhy("doctor --fix").status.code(), Some(0));
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        place.is_clean();
    }
}
