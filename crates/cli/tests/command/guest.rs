//! `iowhy run --on kernel:..` from outside: a real guest once, and guests that fail by a script in QEMU's place.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Folder, check_schema, root, text};

/// A folder with a state, a store and a program that is taken for QEMU.
struct Booth(Folder);

impl Booth {
    fn new(name: &str) -> Booth {
        let folder = Folder::new(&format!("guest-{name}"));
        fs::create_dir_all(folder.0.join("bin")).expect("a folder");
        Booth(folder)
    }

    /// Puts a script in the place of QEMU, and a head of a kernel beside it.
    fn fake(&self, script: &str) {
        let path = self.0.0.join("bin/qemu-system-x86_64");
        fs::write(&path, format!("#!/bin/sh\n[ \"$1\" = --version ] && echo fake && exit\n{script}\n"))
            .expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a new file");
        let mut head = vec![0; 0x400];
        head[0x202..0x206].copy_from_slice(b"HdrS");
        fs::write(self.0.0.join("vmlinuz"), head).expect("a file");
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iowhy"));
        let path = std::env::var("PATH").unwrap_or_default();
        command.args(line.split_whitespace()).current_dir(&self.0.0).env("XDG_STATE_HOME", self.0.0.join("state"));
        command.env("PATH", format!("{}:{path}", self.0.0.join("bin").display())).stdin(Stdio::null());
        // Kernels that were got stay, so that the next test run need not get them again.
        command.env("XDG_CACHE_HOME", std::env::temp_dir().join("iowhy-test-cache"));
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().expect("the command starts")
    }

    /// Whatever was made is gone.
    fn assert_clean(&self) {
        let doctor = self.run("doctor . --fix --json");
        let found: Value = serde_json::from_slice(&doctor.stdout).expect("JSON");
        assert_eq!((&found["clean"], &found["running"]), (&Value::Bool(true), &Value::Array(Vec::new())), "{found}");
        let left: Vec<_> = fs::read_dir(self.0.0.join("state/iowhy")).into_iter().flatten().flatten().collect();
        assert!(left.iter().all(|entry| entry.file_name() == "kvm-does-not-boot"), "{left:?}");
    }
}

const JOB: &str = "run fio --name=a --rw=read --bs=64k --size=4m";

#[test]
fn a_guest_that_fails_is_no_evidence() {
    let booth = Booth::new("fails");
    booth.fake("echo 'Linux version 9'; echo '[ 1.0] Kernel panic - not syncing: nothing to do'");
    let line = format!("{JOB} --on kernel:vmlinuz,accel=tcg,size=64m");
    let run = booth.run(&line);
    let said = text(&run.stderr);
    assert_eq!(run.status.code(), Some(3), "{said}");
    assert!(said.contains("the kernel gave up: Kernel panic") && said.contains("  | Linux version 9"), "{said}");
    // A bisection leaves out what cannot be tested, in both of its forms.
    assert_eq!(booth.run(&format!("{line} --bisect-exit")).status.code(), Some(125));
    assert_eq!(booth.run(&format!("--bisect-exit {line}")).status.code(), Some(125));
    let line = format!("bisect --git --good-value 1 --bad-value 2 -- {} {line}", env!("CARGO_BIN_EXE_iowhy"));
    assert_eq!(booth.run(&line).status.code(), Some(125));
    // A mistake is none of the guest's.
    assert_eq!(booth.run(&format!("{JOB} --on kernel:nowhere --bisect-exit")).status.code(), Some(128));
    booth.assert_clean();
}

#[test]
fn a_registry_out_of_reach_or_tampered_with_is_a_failure_of_the_machine() {
    let booth = Booth::new("registry");
    booth.fake("exit 1");
    fs::create_dir_all(booth.0.0.join("dists/bookworm")).expect("a folder");
    fs::write(booth.0.0.join("dists/bookworm/InRelease"), "Suite: bookworm\n").expect("a file");
    let here = format!("file://{}", booth.0.0.display());
    for (kernel, variable, address, says) in [
        ("debian-6.1", "IOWHY_DEBIAN_URL", "http://127.0.0.1:9", "kernels of debian: cannot reach http://127.0.0.1:9/"),
        ("ubuntu-24.04", "IOWHY_UBUNTU_URL", "http://127.0.0.1:9", "kernels of ubuntu: cannot reach"),
        ("fedora-43", "IOWHY_FEDORA_URL", "http://127.0.0.1:9", "kernels of fedora: cannot reach"),
        ("mainline-6.8", "IOWHY_MAINLINE_URL", "http://127.0.0.1:9", "kernels of mainline: cannot reach"),
        ("debian-6.1", "IOWHY_DEBIAN_URL", &here, "dists/bookworm/InRelease"),
    ] {
        let mut command = booth.command(&format!("{JOB} --on kernel:{kernel},accel=tcg,size=64m"));
        let run = command.env(variable, address).env("XDG_CACHE_HOME", booth.0.0.join("cache")).output();
        let run = run.expect("the command starts");
        let said = text(&run.stderr);
        assert_eq!(run.status.code(), Some(5), "{kernel}: {said}");
        assert!(said.contains(says) && said.contains("kernel:DIR"), "{kernel}: {said}");
    }
    let unknown = booth.run(&format!("{JOB} --on kernel:suse-6.1"));
    let said = text(&unknown.stderr);
    assert_eq!(unknown.status.code(), Some(2), "{said}");
    assert!(said.contains("debian-6.1, ubuntu-24.04, ubuntu-6.8, fedora-43"), "{said}");
    booth.assert_clean();
}

#[test]
fn a_guest_that_hangs_is_given_up_in_time() {
    let booth = Booth::new("hangs");
    booth.fake("echo 'Linux version 9'; exec sleep 60");
    let begun = Instant::now();
    let run = booth.run(&format!("{JOB} --on kernel:vmlinuz,accel=tcg,size=64m --timeout 1"));
    let said = text(&run.stderr);
    assert_eq!(run.status.code(), Some(3), "{said}");
    assert!(said.contains("did not start our program within 1 s") && said.contains("Linux version 9"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    booth.assert_clean();
}

/// Number of the process of the script, once it runs.
fn started(booth: &Booth) -> u32 {
    let begun = Instant::now();
    loop {
        let text = fs::read_to_string(booth.0.0.join("pid")).unwrap_or_default();
        if let Ok(pid) = text.trim().parse() {
            return pid;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it was never started");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !matches!(rest.trim_start().chars().next(), Some('Z' | 'X')))
}

#[test]
fn a_run_that_is_killed_takes_its_guest_with_it() {
    let booth = Booth::new("killed");
    booth.fake("echo $$ >pid.new; mv pid.new pid; exec sleep 60");
    let line = format!("{JOB} --on kernel:vmlinuz,accel=tcg,size=64m");
    // By SIGTERM it ends itself, by SIGKILL it cannot.
    for signal in ["-TERM", "-KILL"] {
        let _ = fs::remove_file(booth.0.0.join("pid"));
        let mut child = booth.command(&line).stderr(Stdio::null()).spawn().expect("the command starts");
        let guest = started(&booth);
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill is there");
        assert!(sent.success());
        let begun = Instant::now();
        child.wait().expect("it ends");
        while lives(guest) {
            assert!(begun.elapsed() < Duration::from_secs(10), "{signal}: the guest lives on");
            std::thread::sleep(Duration::from_millis(5));
        }
        booth.assert_clean();
    }
}

/// Whether a guest can be made here. Without a program or the network the test is skipped; in CI it fails.
fn possible() -> bool {
    let missing = |why: &str| {
        assert!(!std::env::var("CI").is_ok_and(|ci| ci == "true"), "no guest can be made: {why}");
        eprintln!("SKIPPED: no guest can be made: {why}");
        false
    };
    if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        return missing("apt-get install qemu-system-x86");
    }
    let names = Command::new("apt-cache").args(["pkgnames", "linux-image-6.1."]).output();
    let offered = names.is_ok_and(|names| text(&names.stdout).contains("-cloud-amd64"));
    let cached = std::env::temp_dir().join("iowhy-test-cache/iowhy/kernels/debian-6.1").is_dir();
    offered || cached || missing("apt offers no linux-image-6.1.*-cloud-amd64; apt-get update")
}

#[test]
fn another_kernel_makes_a_run_with_a_trace() {
    if !possible() {
        return;
    }
    let booth = Booth::new("real");
    // TCG is everywhere, and the sizes are small: this is about what comes back.
    let job = root().join("jobs/seq-read.fio");
    let line = format!(
        "run {} --size-limit 2m --on kernel:debian-6.1,accel=tcg,size=256m,elevator=mq-deadline,read_ahead_kb=64 \
         --label old --store store --trace --json",
        job.display()
    );
    let begun = Instant::now();
    let ran = booth.run(&line);
    println!("a boot with its run took {:?}", begun.elapsed());
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(0), "{said}");
    assert!(said.contains("(TCG)"), "{said}");
    let printed: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    check_schema("run", &printed);
    let run = &printed["runs"][0];
    assert_eq!((&run["label"], &run["seed"], &run["stored"]), (&"old".into(), &1.into(), &true.into()));
    assert!(run["where"].as_str().is_some_and(|place| place.starts_with("kernel:debian-6.1")), "{run}");
    assert!(run["guest"]["release"].as_str().is_some_and(|release| release.starts_with("6.1.")), "{}", run["guest"]);
    assert_eq!(run["guest"]["accelerator"], "tcg");
    assert_eq!(run["metrics"]["failed_calls"], 0.0);
    assert_eq!(
        (&run["live"]["disk"]["scheduler"], &run["live"]["disk"]["read_ahead_kb"]),
        (&"mq-deadline".into(), &64.into())
    );
    // Sixteen calls of 128 KiB; their windows are inferred from the pages.
    assert_eq!(run["live"]["trace"]["inferred_windows"], true);
    assert_eq!(run["live"]["trace"]["lost"], 0);
    let shown = booth.run(&format!("store show {} --store store --json", run["run_id"].as_str().expect("an id")));
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let kinds: Vec<&str> =
        shown["runs"][0]["files"].as_array().into_iter().flatten().filter_map(|file| file["kind"].as_str()).collect();
    assert_eq!(kinds, ["events", "samples"], "{shown:#}");
    booth.assert_clean();
}
