//! Processes that make files, folders, mounts, loop devices and trace instances and change settings are killed with
//! SIGKILL at random moments; the next start must find and undo everything they left, and nothing else.
//!
//! This program starts itself once more for that: with [`ROLE`] set, its only test is the process to be killed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use iowhy_live::ledger::{self, Ledger, LoopOptions, State};
use iowhy_stack::rng::Rng;

/// Set for the process to be killed: the folder that it works in.
const ROLE: &str = "IOWHY_TEST_KILLED_IN";

/// How many are killed.
const ROUNDS: u64 = 50;

/// The longest that one lives after its start.
const LIFE: Duration = Duration::from_millis(100);

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata) == 0)
}

fn state(folder: &Path) -> PathBuf {
    folder.join("state")
}

/// Makes and undoes things until it is killed. Whatever the machine does not allow is left out.
fn work(folder: &Path) -> ! {
    println!("\nstarted");
    std::io::stdout().flush().expect("the parent listens");
    let (ledger, _) = Ledger::open_in(&state(folder)).expect("a ledger");
    let work = folder.join("work");
    for round in 0_u64.. {
        let inner = work.join(format!("folder {round}"));
        let guard = ledger.create_directory(&inner).expect("a folder");
        let names = ["a", "b", "c"].map(|name| inner.join(name));
        let (files, files_guard) = ledger.create_files(&names).expect("files");
        files[0].set_len(4 << 20).expect("space");
        let setting = ledger.set(&work.join("setting"), &format!("{}", 129 + round % 800)).expect("a setting");
        let mut more = Vec::new();
        if is_root() && (round + u64::from(std::process::id())).is_multiple_of(2) {
            let mount = work.join("mount");
            more.extend(ledger.mount(Path::new("iowhy-test"), &mount, "tmpfs", "size=64k"));
            if let Ok((_, guard)) = ledger.create_files(&[mount.join("below")]) {
                more.push(guard);
            }
        } else if is_root() {
            let tracefs = work.join("tracefs");
            more.extend(ledger.mount(Path::new("iowhy-trace"), &tracefs, "tracefs", ""));
            more.extend(ledger.create_trace_instance(&tracefs).map(|(_, guard)| guard));
        }
        if is_root()
            && let Ok((node, guard)) = ledger.attach_loop(&names[0], LoopOptions::default())
        {
            more.push(guard);
            let name = node.file_name().expect("a name").to_string_lossy().into_owned();
            let queue = Path::new("/sys/block").join(name).join("queue/read_ahead_kb");
            more.extend(ledger.set(&queue, "512").ok().flatten());
        }
        while let Some(guard) = more.pop() {
            guard.undo().expect("it can be undone");
        }
        drop((setting, files_guard));
        guard.undo().expect("the folder is empty");
    }
    unreachable!("there are more rounds than anybody lives through")
}

/// What there is in the folder below `work`, and on the machine.
fn surroundings(folder: &Path) -> String {
    let mut found: Vec<String> = Vec::new();
    for entry in fs::read_dir(folder.join("work")).expect("the folder") {
        let path = entry.expect("an entry").path();
        let kept = if path.is_file() { fs::read_to_string(&path).expect("text") } else { String::new() };
        found.push(format!("{} {}", path.file_name().expect("a name").to_string_lossy(), kept.trim_end()));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let here = folder.to_string_lossy().into_owned();
    found.extend(mounts.lines().filter(|line| line.contains(&here)).map(str::to_owned));
    for disk in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let backing = fs::read_to_string(disk.path().join("loop/backing_file")).unwrap_or_default();
        if backing.contains(&here) {
            found.push(format!("{:?} on {backing}", disk.file_name()));
        }
    }
    found.sort();
    found.join("\n")
}

/// Our own loop devices: without a file, or on files of this folder. The others are somebody else's.
fn loops(of: &Path) -> Vec<String> {
    let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut names: Vec<String> = disks.map(|disk| disk.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.strip_prefix("loop").and_then(|nr| nr.parse::<u32>().ok()).is_some_and(|nr| nr >= 640));
    let file = |name: &String| fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).unwrap_or_default();
    names.retain(|name| file(name).is_empty() || Path::new(file(name).trim_end()).starts_with(of));
    names.sort();
    names
}

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn whatever_was_killed_the_next_start_undoes_what_it_left() {
    if let Some(folder) = std::env::var_os(ROLE) {
        work(Path::new(&folder));
    }
    let path = std::env::temp_dir().join(format!("iowhy-kill-{}", std::process::id()));
    fs::create_dir_all(&path).expect("a folder");
    let scratch = Scratch(fs::canonicalize(path).expect("it is there"));
    for name in ["work/mount", "work/tracefs"] {
        fs::create_dir_all(scratch.0.join(name)).expect("a folder");
    }
    fs::write(scratch.0.join("work/setting"), "128\n").expect("a file");
    fs::write(scratch.0.join("work/precious"), "data of somebody else\n").expect("a file");
    let (before, loops_before) = (surroundings(&scratch.0), loops(&scratch.0));
    if !is_root() {
        println!("without root only files, folders and settings are tried");
    }
    let mut rng = Rng::stream(u64::from(std::process::id()), "moments of killing");
    let (mut found, mut begun) = (BTreeMap::<String, u32>::new(), 0);
    let started = Instant::now();
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "whatever_was_killed_the_next_start_undoes_what_it_left", "--nocapture"])
            .env(ROLE, &scratch.0)
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts once more");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| line == "started")), "round {round}: it did not start");
        std::thread::sleep(Duration::from_nanos(rng.below(LIFE.as_nanos() as u64)));
        child.kill().expect("it can be killed");
        let status = child.wait().expect("it has ended");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "round {round}: {status}");
        begun += usize::from(fs::read_dir(state(&scratch.0)).is_ok_and(|mut entries| entries.next().is_some()));
        // Every other time the next process does it, which may be killed at that in its turn.
        if round % 2 == 1 {
            let left = ledger::sweep(&state(&scratch.0)).expect("a sweep");
            let undone = left.iter().filter(|left| left.state == State::Undone).count();
            assert_eq!(undone, left.len(), "round {round}: {left:#?}");
            for left in &left {
                // "the loop device /dev/loop640": its kind is what stands before the name.
                let kind = left.what.split(" /").next().unwrap_or_default().split(" of ").next().unwrap_or_default();
                *found.entry(kind.to_owned()).or_default() += 1;
            }
            assert_eq!(ledger::left_behind(&state(&scratch.0)).expect("a list"), [], "round {round}");
            assert_eq!(surroundings(&scratch.0).replace("setting 128\n", ""), before.replace("setting 128\n", ""));
            assert_eq!(fs::read_to_string(scratch.0.join("work/setting")).expect("a file").trim(), "128");
        }
    }
    assert_eq!(loops(&scratch.0), loops_before, "loop devices that nothing is attached to count, too");
    let ledgers = fs::read_dir(state(&scratch.0)).expect("the folder").count();
    assert_eq!(ledgers, 0);
    println!("{begun} of {ROUNDS} left something; undone: {found:?}; in {:?}", started.elapsed());
    assert!(begun > 0 && !found.is_empty(), "nothing was ever left: the test has tested nothing");
}
