use std::os::unix::fs::symlink;

use iowhy_stack::workload::{Stream, Target};

use super::*;

const WRITE: Intent = Intent { writes: true, named: true, allowed: false };
const READ: Intent = Intent { writes: false, ..WRITE };
const ALLOWED: Intent = Intent { allowed: true, ..WRITE };
const MADE_UP: Intent = Intent { named: false, ..WRITE };

fn block() -> Facts {
    Facts { kind: Kind::Block, real: "/dev/sdx".into(), outside: true, ..Facts::default() }
}

fn file(bytes: u64) -> Facts {
    Facts { kind: Kind::Regular, real: "/data/f".into(), bytes, ..Facts::default() }
}

#[test]
fn rules() {
    let names = || vec!["sdx1".to_owned()];
    let of = |kind| Facts { kind, ..Facts::default() };
    let mounted = Facts { mounted: vec!["/".into(), "/home".into()], ..block() };
    // What is known; what is said to a writer, to a reader, to a writer with the flag, to a writer to a made-up name.
    let cases: Vec<(Facts, [&str; 4])> = vec![
        (block(), [""; 4]),
        (mounted.clone(), ["it is mounted on /, /home", "", "", "it is mounted on /, /home"]),
        (Facts { swap: true, ..block() }, ["it is used as swap", "", "", "it is used as swap"]),
        (
            Facts { partitions: names(), holds: Some("a partition table"), ..block() },
            ["it has partitions: sdx1", "", "", "it has partitions: sdx1"],
        ),
        (Facts { holders: vec!["dm-0".into()], ..block() }, ["it is in use by dm-0", "", "", "it is in use by dm-0"]),
        (
            Facts { busy: true, ..block() },
            ["somebody has it open exclusively", "", "", "somebody has it open exclusively"],
        ),
        (Facts { holds: Some("swap space"), ..block() }, ["it holds swap space", "", "", "it holds swap space"]),
        // Links to devices are the rule (/dev/disk/by-id), and devices are never inside a folder.
        (Facts { link: true, ..block() }, [""; 4]),
        (of(Kind::Missing), [""; 4]),
        (file(0), [""; 4]),
        (file(7), ["it exists already, holds 7 bytes, and no run of iowhy made it", "", "", ""]),
        (Facts { ours: true, ..file(7) }, [""; 4]),
        (
            Facts { ours: true, holders: vec!["loop7".into()], ..file(7) },
            ["it is in use by loop7", "", "", "it is in use by loop7"],
        ),
        (Facts { swap: true, ..file(7) }, ["it is used as swap", "", "", "it is used as swap"]),
        (
            Facts { link: true, ..file(0) },
            ["it is a symbolic link to /data/f", "", "", "it is a symbolic link to /data/f"],
        ),
        (
            Facts { outside: true, ..file(0) },
            ["it is /data/f, outside the folder of the job", "", "", "it is /data/f, outside the folder of the job"],
        ),
        (
            Facts { outside: true, real: "/b/f".into(), ..of(Kind::Missing) },
            ["it is /b/f, outside the folder of the job", "", "", "it is /b/f, outside the folder of the job"],
        ),
        (of(Kind::Sink), [""; 4]),
        (of(Kind::Directory), ["it is a folder"; 4]),
        (of(Kind::Other), ["it is neither a file nor a block device"; 4]),
    ];
    for (facts, expected) in cases {
        let said = [WRITE, READ, ALLOWED, MADE_UP]
            .map(|intent| decide(intent, &facts).map(|reason| reason.to_string()).unwrap_or_default());
        assert_eq!(said, expected, "{facts:?}");
    }
}

#[test]
fn a_refusal_says_what_why_and_how_to_allow() {
    let refused = Refused(vec![
        Refusal { path: "/dev/sdx".into(), reason: Reason::Mounted(vec!["/".into()]) },
        Refusal { path: "/tmp".into(), reason: Reason::Directory },
    ]);
    assert_eq!(
        refused.to_string(),
        "will not use /dev/sdx: it is mounted on /; if its contents may be lost: --allow-write=/dev/sdx\n\
         will not use /tmp: it is a folder"
    );
}

#[test]
fn signatures_are_found_where_they_are() {
    let mut empty = vec![0; LOOKED_AT];
    assert_eq!(signature(&empty), None);
    assert_eq!(signature(b"XFS"), None);
    assert_eq!(signature(b"XFSB"), Some("an xfs file system"));
    empty[0x438..0x43a].copy_from_slice(b"\x53\xef");
    assert_eq!(signature(&empty), Some("an ext2, ext3 or ext4 file system"));
    let mut swap = vec![0; 4096];
    swap[4086..].copy_from_slice(b"SWAPSPACE2");
    assert_eq!(signature(&swap), Some("swap space"));
    assert_eq!(signature(&swap[..4095]), None);
}

#[test]
fn swaps_are_read_with_their_escapes() {
    let text = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/vdb                    partition\t1\t0\t-2\n\
                /my\\040swap file\t1\t0\t-3\n";
    assert_eq!(swaps_in(text), [PathBuf::from("/dev/vdb"), PathBuf::from("/my swap")]);
    assert_eq!(swaps_in(""), [] as [PathBuf; 0]);
}

#[test]
fn whoever_writes_is_found_in_the_job() {
    let target = |file| Target { file, start: 0, len_bytes: 4096 };
    let stream = |mix, file| Stream::sequential(mix, vec![target(file)], 4096);
    let cases = [
        (Mix::Read, false),
        (Mix::Write, true),
        (Mix::Mixed(70), true),
        (Mix::Mixed(100), false),
        (Mix::ReadAndWriteBack(0), false),
        (Mix::ReadAndWriteBack(1), true),
    ];
    let job = |stream| {
        let spec = iowhy_stack::job::ThreadSpec::new(0);
        let file = iowhy_stack::job::FileSpec { bytes: 4096, place: iowhy_stack::job::Place::FileSystem };
        let threads = vec![iowhy_stack::job::ThreadJob { spec, stream }];
        Job::new(Workload::Threads { files: vec![file; 2], threads }, 1)
    };
    for (mix, expected) in cases {
        let job = job(stream(mix, 1));
        assert_eq!((writes(&job, 0), writes(&job, 1)), (false, expected), "{mix:?}");
    }
    let log = iowhy_stack::workload::Log { target: target(0), calls: 1, len_bytes: 512 };
    let job = job(Stream { log: Some(log), ..stream(Mix::Read, 1) });
    assert_eq!((writes(&job, 0), writes(&job, 1)), (true, false));
}

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn scratch(name: &str) -> Scratch {
    let path = std::env::temp_dir().join(format!("iowhy-guard-{name}-{}", std::process::id()));
    fs::create_dir(&path).expect("a folder can be made");
    Scratch(fs::canonicalize(path).expect("it is there"))
}

#[test]
fn real_files_are_looked_at() {
    let scratch = scratch("files");
    let at = |name: &str| scratch.0.join(name);
    fs::create_dir_all(at("job/sub")).expect("folders");
    fs::create_dir(at("other")).expect("a folder");
    fs::write(at("other/precious"), "data").expect("a file");
    fs::write(at("job/precious"), "data").expect("a file");
    fs::write(at("job/empty"), "").expect("a file");
    symlink(at("other/precious"), at("job/link")).expect("a link");
    symlink("precious", at("job/inner")).expect("a link");
    symlink(at("other"), at("job/folder")).expect("a link");
    symlink(at("other/nothing"), at("job/dangling")).expect("a link");
    let allow = Allow { write: Vec::new(), directory: Some(at("job")) };
    let cases = [
        ("job/new", ""),
        ("job/sub/new", ""),
        ("job/missing/new", ""),
        ("job/empty", ""),
        ("job/precious", "it exists already, holds 4 bytes"),
        ("job/inner", "it is a symbolic link to "),
        ("job/link", "outside the folder of the job"),
        ("job/folder/new", "outside the folder of the job"),
        ("job/dangling", "outside the folder of the job"),
        ("job/../other/new", "outside the folder of the job"),
        ("job/missing/../../other/new", "outside the folder of the job"),
        ("job", "it is a folder"),
    ];
    for (name, expected) in cases {
        let path = at(name);
        let wanted = Wanted { path: &path, writes: true, named: true };
        match (check_files([wanted], &allow), expected) {
            (Ok(()), "") => {}
            (Err(refused), expected) if !expected.is_empty() => {
                let message = refused.to_string();
                assert!(message.contains(expected), "{name}: {message}");
            }
            (result, _) => panic!("{name}: {result:?}"),
        }
        let named = Allow { write: vec![path.clone()], ..allow.clone() };
        assert_eq!(check_files([wanted], &named).is_ok(), name != "job", "{name}");
        let read = Wanted { writes: false, ..wanted };
        assert_eq!(check_files([read], &allow).is_ok(), name != "job", "{name}");
    }
    let (link, sink) = (at("job/link"), PathBuf::from("/dev/null"));
    let by_its_target = Allow { write: vec![at("other/precious")], ..allow.clone() };
    assert!(check_files([Wanted { path: &link, writes: true, named: true }], &by_its_target).is_ok());
    assert!(check_files([Wanted { path: &sink, writes: true, named: true }], &allow).is_ok());
}

#[test]
fn the_disk_below_the_root_is_refused() {
    let Some(number) = fs::metadata("/").ok().map(|root| machine::split_device(root.dev())) else { return };
    let Some(folder) = machine::sysfs_folder(number) else {
        // A container: its root is not on a block device of its own.
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true") || number.0 == 0, "{number:?}");
        return;
    };
    let node = Path::new("/dev").join(folder.file_name().expect("a name"));
    if device_of(&node) == Some(number) {
        let wanted = Wanted { path: &node, writes: true, named: true };
        let message = check_files([wanted], &Allow::default()).expect_err("it is mounted").to_string();
        assert!(message.contains("it is mounted on /"), "{message}");
        assert!(message.ends_with(&format!("--allow-write={}", node.display())), "{message}");
    }
}
