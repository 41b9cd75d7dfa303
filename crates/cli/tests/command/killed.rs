//! Live runs that are killed with SIGKILL: the next start undoes what they left.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use iowhy_live::ledger::{self, State};
use iowhy_stack::rng::Rng;

/// How many are killed.
const ROUNDS: usize = 50;

/// The longest that one lives at first.
const LIFE: Duration = Duration::from_millis(120);

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The jobs, by turns: files that go after the run, files that stay, files in folders that are missing as yet, and a
/// folder for one run; files of sysbench that are not complete.
const JOBS: &[&str] = &[
    "fio --name=a --directory=data --size=1m --nrfiles=3 --rw=randrw --time_based --runtime=9 --unlink=1",
    "fio --name=b --directory=data --size=64m --rw=write --fsync=8 --time_based --runtime=9",
    "fio --name=c --filename=data/new/folder/f --size=1m --rw=randread --time_based --runtime=9 --unlink=1",
    // Many calls, few bytes: a disk that is nearly full is no reason to refuse it.
    "run dd of=file bs=512 count=1000000 --on live",
    "sysbench fileio --file-num=64 --file-total-size=8G prepare",
];

#[test]
fn whatever_a_killed_run_left_the_next_start_removes() {
    let path = std::env::temp_dir().join(format!("iowhy-killed-{}", std::process::id()));
    fs::create_dir_all(path.join("data")).expect("a folder");
    let scratch = Scratch(fs::canonicalize(path).expect("it is there"));
    fs::write(scratch.0.join("data/precious"), "of somebody else").expect("a file");
    let iowhy = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iowhy"));
        command.args(line.split_whitespace()).current_dir(&scratch.0).env("XDG_STATE_HOME", &scratch.0);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let state = scratch.0.join("iowhy");
    let names = |folder: &str| {
        let entries = fs::read_dir(scratch.0.join(folder)).expect("the folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| name != "iowhy").collect();
        names.sort();
        names
    };
    let mut rng = Rng::stream(u64::from(std::process::id()), "moments of killing");
    let (mut found, mut life, started) = (0, LIFE, Instant::now());
    for round in 0..ROUNDS {
        let job = JOBS[round % JOBS.len()];
        let mut child = iowhy(job).stderr(Stdio::piped()).spawn().expect("the command starts");
        std::thread::sleep(Duration::from_nanos(rng.below(life.as_nanos() as u64)));
        child.kill().expect("it can be killed");
        let ended = child.wait_with_output().expect("it has ended");
        // Had it been refused, or come to its end, nothing would have been tested.
        let (status, said) = (ended.status, String::from_utf8_lossy(&ended.stderr));
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{job}: {status}: {said}");
        // Every other time it is the next run that does it, which may be killed at that in its turn.
        if round % 2 == 1 {
            let left = ledger::sweep(&state).expect("a sweep");
            assert!(left.iter().all(|left| left.state == State::Undone), "round {round}, {job}: {left:#?}");
            found += left.len();
            if found == 0 {
                // Too slow a machine to come anywhere in that time.
                life *= 2;
            }
            assert_eq!((names("."), names("data")), (vec!["data".to_owned()], vec!["precious".to_owned()]), "{job}");
        }
    }
    println!("{found} things were undone, in {:?}", started.elapsed());
    assert!(found > 0, "nothing was ever left: the test has tested nothing");
    let doctor = iowhy("doctor").status().expect("the command starts");
    assert_eq!(doctor.code(), Some(0));
    assert_eq!(fs::read(scratch.0.join("data/precious")).expect("a file"), b"of somebody else");
}

#[test]
fn a_foreign_file_is_not_written_unless_it_is_named() {
    let path = std::env::temp_dir().join(format!("iowhy-foreign-{}", std::process::id()));
    fs::create_dir_all(&path).expect("a folder");
    let scratch = Scratch(fs::canonicalize(path).expect("it is there"));
    let precious = scratch.0.join("precious");
    let contents = vec![7; 1 << 20];
    fs::write(&precious, &contents).expect("a file");
    let fio = |options: &str| {
        let job = format!("fio --name=j --filename={} --size=1m --bs=64k {options}", precious.display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_iowhy"));
        command.args(job.split_whitespace()).current_dir(&scratch.0).env("XDG_STATE_HOME", &scratch.0);
        command.output().expect("the command starts")
    };
    let refused = fio("--rw=write");
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_ne!(refused.status.code(), Some(0));
    let flag = format!("--allow-write={}", precious.display());
    assert!(message.contains("no run of iowhy made it") && message.contains(&flag), "{message}");
    assert_eq!(fs::read(&precious).expect("the file"), contents);
    assert_eq!(fio("--rw=read").status.code(), Some(0), "reading is harmless");
    assert_eq!(fs::read(&precious).expect("the file"), contents);
    assert_eq!(fio(&format!("--rw=write {flag}")).status.code(), Some(0));
    assert_ne!(fs::read(&precious).expect("the file"), contents);

    fs::create_dir(scratch.0.join("inside")).expect("a folder");
    let job = "fio --name=j --directory=inside --filename=../outside --size=64k --rw=write";
    let mut command = Command::new(env!("CARGO_BIN_EXE_iowhy"));
    command.args(job.split_whitespace()).current_dir(&scratch.0).env("XDG_STATE_HOME", &scratch.0);
    let refused = command.output().expect("the command starts");
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() != Some(0) && message.contains("outside the folder of the job"), "{message}");
    assert!(!scratch.0.join("outside").exists());
}
