//! `iowhy trace record` of running processes, by number, name, control group and unit. It needs root, as in `trace`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::trace::{Scratch, permitted};
use super::{not_decided, text};

/// A process that ends with its value, and takes its children with it.
struct Running(Child);

impl Running {
    /// A shell that runs these words in a folder.
    fn shell(words: &str, folder: &Path) -> Running {
        let mut command = Command::new("sh");
        command.args(["-c", words]).current_dir(folder).stdin(Stdio::null());
        Running(command.spawn().expect("sh starts"))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// The children that it has by now: waits for the first.
    fn children(&self) -> Vec<u32> {
        let path = format!("/proc/{0}/task/{0}/children", self.pid());
        for _ in 0..1000 {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let pids: Vec<u32> = text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
            if !pids.is_empty() {
                return pids;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{} has started nothing", self.pid());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid())).unwrap_or_default();
        let _ = self.0.kill();
        for child in children.split_whitespace() {
            let _ = Command::new("kill").args(["-KILL", child]).status();
        }
        let _ = self.0.wait();
    }
}

/// Reads the file again and again: a process of its own, called dd by the kernel as long as it runs.
const READER: &str = "while :; do dd if=data of=/dev/null bs=64k status=none; sleep 0.05; done";

/// Lines of calls in a trace.
fn calls(scratch: &Scratch, trace: &str) -> Vec<String> {
    let (csv, _) = scratch.ends(&format!("trace export {trace} --to csv"), 0);
    csv.lines().filter(|line| line.contains(",call_start,")).map(str::to_owned).collect()
}

/// The process of a line.
fn pid_of(line: &str) -> u32 {
    line.split(',').nth(2).and_then(|pid| pid.parse().ok()).expect("a process")
}

/// The length that a line's call asks for: a process may have a number that looks like one.
fn len_of(line: &str) -> Option<u32> {
    line.split(',').nth(12)?.parse().ok()
}

#[test]
fn children_that_exist_are_followed_and_a_silent_target_is_named() {
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("children");
    scratch.write("data", &vec![1; 1 << 20]);
    // A parent that only waits, whose child has been there before; and one that does nothing.
    let parent = Running::shell(&format!("({READER}) & wait"), &scratch.0);
    let idle = Running::shell("sleep 1000 & wait", &scratch.0);
    let (child, _) = (parent.children()[0], idle.children());
    let line = format!("trace record --for 2500ms --pid {},{} -o both.parquet", parent.pid(), idle.pid());
    let (_, message) = scratch.ends(&line, 0);
    let reads = calls(&scratch, "both.parquet");
    assert!(reads.iter().filter(|line| line.contains(",65536,")).count() >= 16, "{} calls\n{message}", reads.len());
    assert!(!message.contains(&format!("pid {} (sh) made no traced call", parent.pid())), "{message}");
    for expected in [
        format!("pid {} (sh) has made no read or write in 2 s; its children have", parent.pid()),
        format!("({child} (sh)").trim_start_matches('(').to_owned(),
        format!("pid {} (sh) has made no read or write in 2 s, and no child of it has", idle.pid()),
        format!("pid {} (sh) made no traced call: nothing in this recording is of it", idle.pid()),
    ] {
        assert!(message.contains(&expected), "{expected}: {message}");
    }
    let (stat, _) = scratch.ends("trace stat both.parquet", 0);
    assert!(stat.contains(&format!("warning: pid {} (sh) made no traced call", idle.pid())), "{stat}");
    assert_eq!(stat.matches("made no traced call").count(), 1, "{stat}");
    assert!(scratch.is_tidy());
}

#[test]
fn targets_that_do_not_exist_are_refused_with_the_nearest_names() {
    let scratch = Scratch::new("nobody");
    let idle = Running::shell("exec sleep 1000", &scratch.0);
    let mut started = false;
    for _ in 0..1000 {
        started = fs::read_to_string(format!("/proc/{}/comm", idle.pid())).is_ok_and(|comm| comm == "sleep\n");
        if started {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(started, "sleep has not started");
    for (words, says) in [
        ("--pid 4194999", &["no process 4194999", "--comm NAME"][..]),
        ("--pid sleep", &["a process is a number; `--comm sleep`"]),
        ("--comm slep", &["no process is called `slep`", "sleep"]),
        ("--comm slep --pid 4194999", &["called `slep`", "no process 4194999"]),
        ("--cgroup no/such/group", &["`no/such/group` is not a control group", "--unit"]),
        ("--unit no-such-unit", &["no control group of a unit `no-such-unit.service`"]),
        ("--device nosuchdisk", &["nosuchdisk"]),
    ] {
        let (out, message) = scratch.ends(&format!("trace record --for 1s {words} -o out.parquet"), 2);
        assert!(out.is_empty() && says.iter().all(|part| message.contains(part)), "{words}: {message}");
    }
    assert!(!scratch.exists("out.parquet") && scratch.is_tidy());
}

#[test]
fn a_file_restricts_the_calls_of_named_processes() {
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("restrict");
    scratch.write("data", &vec![1; 1 << 20]);
    scratch.write("other", &vec![1; 1 << 20]);
    let both = "while :; do dd if=data of=/dev/null bs=64k status=none; dd if=other of=/dev/null bs=16k status=none; \
                sleep 0.05; done";
    let reader = Running::shell(both, &scratch.0);
    let of = |trace: &str, len: u32| calls(&scratch, trace).iter().filter(|line| len_of(line) == Some(len)).count();
    scratch.ends(&format!("trace record --for 1s --pid {} -o all.parquet", reader.pid()), 0);
    assert!(of("all.parquet", 65536) >= 16 && of("all.parquet", 16384) >= 64);
    scratch.ends(&format!("trace record --for 1s --pid {} --file data -o one.parquet", reader.pid()), 0);
    assert!(of("one.parquet", 65536) >= 16, "{}", of("one.parquet", 65536));
    assert_eq!(of("one.parquet", 16384), 0);
    assert!(scratch.is_tidy());
}

/// A control group that goes with its value.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Option<Group> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mut roots = mounts.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (point, kind) = (words.next()?, words.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(point))
        });
        let group = Group(roots.next()?.join(name));
        fs::create_dir(&group.0).ok().map(|()| group)
    }

    fn add(&self, pid: u32) -> bool {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).is_ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What was in it has been killed, and may be a moment in going.
        for _ in 0..1000 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[test]
fn tasks_that_enter_a_control_group_are_followed() {
    if !permitted() {
        return;
    }
    let name = format!("iowhy-test-{}.service", std::process::id());
    let Some(group) = Group::new(&name) else {
        not_decided("recording of a control group: none of version 2 can be made");
        return;
    };
    let scratch = Scratch::new("group");
    scratch.write("data", &vec![1; 1 << 20]);
    let early = Running::shell(READER, &scratch.0);
    let late = Running::shell(READER, &scratch.0);
    let outside = Running::shell(READER, &scratch.0);
    if !group.add(early.pid()) {
        not_decided("recording of a control group: processes cannot be moved");
        return;
    }
    for (words, trace) in [
        (format!("--unit {}", name.trim_end_matches(".service")), "unit.parquet"),
        (format!("--cgroup /{name}"), "group.parquet"),
    ] {
        let mut record = scratch.command(&format!("trace record --for 3s {words} -o {trace}"));
        let recording = record.stderr(Stdio::piped()).spawn().expect("the command starts");
        std::thread::sleep(std::time::Duration::from_millis(700));
        assert!(group.add(late.pid()));
        let output = recording.wait_with_output().expect("it ends");
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{message}");
        let (csv, _) = scratch.ends(&format!("trace export {trace} --to csv"), 0);
        // dd is started by the shells: each start is a record of its parent.
        let started = |parent: u32| {
            csv.lines().filter(|line| line.contains("task:task_newtask") && pid_of(line) == parent).count()
        };
        assert!(started(early.pid()) > 0 && started(late.pid()) > 0, "{words}: {message}");
        assert_eq!(started(outside.pid()), 0, "{words}");
        assert!(calls(&scratch, trace).len() > 16, "{words}: {message}");
        fs::write(group.0.parent().expect("it has one above").join("cgroup.procs"), late.pid().to_string())
            .expect("it leaves");
    }
    assert!(scratch.is_tidy());
}

#[test]
fn a_recording_alone_asks_for_another() {
    if !permitted() {
        return;
    }
    let scratch = Scratch::new("alone");
    scratch.write("data", &vec![1; 1 << 20]);
    scratch.ends("trace record -o one.parquet -- dd if=data of=/dev/null bs=64k", 0);
    let (out, message) = scratch.ends("explain one.parquet", 3);
    assert!(out.is_empty(), "{out}");
    for expected in [
        "is a single recording",
        "iowhy trace record -o other.parquet -- dd if=data of=/dev/null bs=64k",
        "iowhy explain other.parquet one.parquet",
    ] {
        assert!(message.contains(expected), "{expected}: {message}");
    }
}
