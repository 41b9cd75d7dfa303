//! Guests without a guest: a script in the place of QEMU writes the output of a kernel.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use super::*;
use crate::testing::Scratch;

fn limits(boot_ms: u64, silence_ms: u64, whole_ms: u64) -> Limits {
    let ms = Duration::from_millis;
    Limits { boot: ms(boot_ms), silence: ms(silence_ms), whole: ms(whole_ms) }
}

/// Runs a script in the place of QEMU.
fn boot(script: &str, limits: Limits) -> qemu::Ended {
    let told = std::cell::RefCell::new(Vec::new());
    let scratch = Scratch::new();
    let (ledger, _) = Ledger::open_in(&scratch.path("state")).expect("a ledger");
    let program = scratch.path("qemu");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a file");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a new file");
    // Another test may be between fork and exec just now, and have the script open for writing.
    for _ in 0..50 {
        match qemu::boot(program.as_os_str(), &[], &ledger, limits, &|begins| told.borrow_mut().push(begins)) {
            Err(GuestError::Program { reason, .. }) if reason.contains("busy") => {
                std::thread::sleep(Duration::from_millis(20));
            }
            ended => {
                assert!(ledger::left_behind(&scratch.path("state")).expect("a folder").is_empty());
                let told = told.into_inner();
                assert!(told.is_empty() || told == [true, false], "{told:?}");
                assert_eq!(told.is_empty(), !script.contains("files"));
                return ended.expect("it can be started");
            }
        }
    }
    panic!("the script stays busy");
}

const LONG: u64 = 60_000;

#[test]
fn a_guest_that_fails_is_told_by_what_it_said() {
    let cases = [
        (
            "echo '[ 1.2] Kernel panic - not syncing: VFS: no root'; exit 0",
            "the kernel gave up: Kernel panic - not sync",
        ),
        ("echo 'iowhy-guest: up'; echo 'iowhy-guest: error no disk after 10 s'", "no disk after 10 s"),
        ("echo 'qemu: bad image' >&2; exit 1", "before the kernel had started our program (exit status: 1): qemu: bad"),
        (
            "echo 'iowhy-guest: up'; echo 'iowhy-guest: begin 1'; kill -9 $$",
            "results were there (signal: 9 (SIGKILL)), w",
        ),
    ];
    for (script, expected) in cases {
        let ended = boot(script, limits(LONG, LONG, LONG));
        let verdict = verdict(&ended, &Received::Nothing);
        assert!(verdict.contains(expected), "{script}: {verdict}");
        assert_eq!(ended.given_up, None, "{script}");
    }
}

#[test]
fn a_guest_that_hangs_is_given_up() {
    let cases = [
        ("sleep 60", limits(300, LONG, LONG), "did not start our program within"),
        ("echo 'iowhy-guest: up'; sleep 60", limits(LONG, 300, LONG), "it hangs: no sign of life for"),
        (
            "echo 'iowhy-guest: up'; while true; do echo 'iowhy-guest: alive'; sleep 0.05; done",
            limits(LONG, LONG, 500),
            "--timeout=SECONDS allows more",
        ),
        // What it started holds the pipe open.
        ("sleep 60 & echo half; sleep 60", limits(300, LONG, LONG), "did not start our program within"),
    ];
    for (script, limits, expected) in cases {
        let begun = Instant::now();
        let ended = boot(script, limits);
        let verdict = verdict(&ended, &Received::Nothing);
        assert!(verdict.contains(expected), "{script}: {verdict}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{script}: {:?}", begun.elapsed());
    }
}

#[test]
fn a_guest_that_ends_well_has_told_when_and_how() {
    let script = "echo 'iowhy-guest: up'; echo 'iowhy-guest: begin 5'; echo odd; \
                  echo 'iowhy-guest: files begin'; echo 'iowhy-guest: files end'; echo 'iowhy-guest: end 3 7'; \
                  printf 'iowhy-guest: sent 9'";
    let ended = boot(script, limits(LONG, LONG, LONG));
    let console = &ended.console;
    assert_eq!((console.stage, console.status, ended.given_up), (Stage::Sent, Some(3), None));
    assert_eq!((console.clock, &console.messages[..]), ([Some(5), Some(7)], &["odd".to_owned()][..]));
    assert!(verdict(&ended, &Received::Damaged).contains("damaged"));
}

fn spec(folder: &Path) -> Spec {
    let image = folder.join("vmlinuz,odd");
    Spec {
        kernel: Kernel { image, version: None, package: None, modules: None },
        backing: Backing { path: folder.join("data,0"), timed: true, depth: Some(4) },
        filesystem: Some("ext4".to_owned()),
        settings: vec![("scheduler".to_owned(), "none".to_owned())],
        modules: Vec::new(),
        memory_mib: 512,
        cpus: 3,
        accelerator: None,
        words: vec!["run".to_owned(), "a job".to_owned()],
        variables: vec![("A".to_owned(), "b=c".to_owned())],
        files: vec![(PathBuf::from("/job/a job"), b"[x]".to_vec())],
        folder: PathBuf::from("/job"),
        input: None,
        limit: Duration::from_secs(9),
    }
}

#[test]
fn the_command_line_names_disks_kernel_and_accelerator() {
    let spec = spec(Path::new("/f"));
    for (accelerator, expected) in [(Accelerator::Tcg, "tcg,thread=multi"), (Accelerator::Kvm, "kvm")] {
        let (initrd, out) = (Path::new("/f/initrd"), Path::new("/f/out"));
        let parts = Parts { spec: &spec, accelerator, initrd, out, loader_path: "/lib" };
        let words = qemu::arguments(&parts);
        let behind = |word: &str| -> Vec<&OsString> {
            words.windows(2).filter(|two| two[0] == *OsStr::new(word)).map(|two| &two[1]).collect()
        };
        assert_eq!(behind("-accel"), [expected]);
        assert_eq!((behind("-m"), behind("-smp")), (vec![&OsString::from("512")], vec![&OsString::from("3")]));
        // A comma in a path does not end it; a kernel is not a list.
        assert_eq!(behind("-kernel"), ["/f/vmlinuz,odd"]);
        let drives = behind("-drive");
        assert_eq!(drives[0], "if=none,id=data,format=raw,cache=none,aio=threads,file=/f/data,,0");
        assert_eq!(drives[1], "if=none,id=out,format=raw,cache=unsafe,aio=threads,file=/f/out");
        let append = behind("-append")[0].to_string_lossy().into_owned();
        for word in ["console=ttyS0", "panic=-1", "nvme.io_queue_depth=5", "LD_LIBRARY_PATH=/lib"] {
            assert!(append.split(' ').any(|known| known == word), "{word} in {append}");
        }
    }
}

#[test]
fn the_plan_says_everything_in_order() {
    let plan = plan(&spec(Path::new("/f")), ["a", "b"].into_iter());
    let plan = stream::pieces(&plan).expect("a list");
    let plan: Vec<String> =
        plan.into_iter().map(|(key, value)| format!("{key}: {}", String::from_utf8_lossy(&value))).collect();
    let expected = [
        "module: /modules/a.ko",
        "module: /modules/b.ko",
        "setting: scheduler=none",
        "filesystem: ext4",
        "target: /disk",
        "word: run",
        "word: a job",
        "variable: A=b=c",
        "folder: /job",
    ];
    assert_eq!(plan, expected);
}

#[test]
fn this_program_is_packed_with_its_libraries() {
    let scratch = Scratch::new();
    let path = scratch.path("initrd");
    let folders = pack(&spec(Path::new("/f")), &path).expect("it fits");
    let bytes = fs::read(&path).expect("it was made");
    let has = |name: &str| bytes.windows(name.len() + 1).any(|window| window == format!("{name}\0").as_bytes());
    for name in ["init", "iowhy-guest.plan", "job/a job", "dev/console", "TRAILER!!!"] {
        assert!(has(name), "{name}");
    }
    let whole = fs::metadata("/proc/self/exe").expect("this program").len();
    assert!((bytes.len() as u64) < whole, "debuggers' tables stay here: {} of {whole} bytes", bytes.len());
    assert!(folders.split(':').filter(|folder| !folder.is_empty()).all(|folder| Path::new(folder).is_dir()));
}

#[test]
fn file_systems_are_made_in_sparse_files() {
    use std::os::unix::fs::MetadataExt;
    let scratch = Scratch::new();
    let path = scratch.path("data");
    image(&path, 64 << 20).expect("a sparse file");
    match make_filesystem(&path, "ext4") {
        // The program may be missing; then that is the error.
        Err(GuestError::Program { program, .. }) => assert_eq!(program, "mke2fs"),
        made => {
            made.expect("it can be made");
            let bytes = fs::read(&path).expect("a file");
            assert_eq!(bytes[0x438..0x43a], [0x53, 0xef], "the magic number of ext2 and its successors");
            assert!(fs::metadata(&path).expect("a file").blocks() * 512 < 32 << 20, "it stays sparse");
        }
    }
    assert!(make_filesystem(&path, "fat").is_err());
}
