use std::os::unix::fs::symlink;

use iowhy_stack::workload::{Stream, Target};

use super::*;

const WRITE: Intent = Intent { writes: true, as_found: false, allowed: false };
const READ: Intent = Intent { writes: false, ..WRITE };
const ALLOWED: Intent = Intent { allowed: true, ..WRITE };
const AS_FOUND: Intent = Intent { as_found: true, ..WRITE };

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
    // Facts; the decisions for a writer, a reader, a writer with the flag, sysbench's names.
    let cases: Vec<(Facts, [&str; 4])> = vec![
        (block(), [""; 4]),
        (mounted.clone(), ["it is mounted on /, /home", "", "", "it is mounted on /, /home"]),
        (Facts { swap: true, ..block() }, ["it is used as swap", "", "", "it is used as swap"]),
        (
            Facts { partitions: names(), holds: Some("dos (blkid)".into()), ..block() },
            ["it has partitions: sdx1", "", "", "it has partitions: sdx1"],
        ),
        (Facts { holders: vec!["dm-0".into()], ..block() }, ["it is in use by dm-0", "", "", "it is in use by dm-0"]),
        (
            Facts { busy: Some("process 7 has it open".into()), ..block() },
            ["process 7 has it open", "", "", "process 7 has it open"],
        ),
        (Facts { holds: Some("swap".into()), ..block() }, ["it holds swap", "", "", "it holds swap"]),
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
        (
            of(Kind::Pseudo),
            ["it is a file of the kernel", "", "it is a file of the kernel", "it is a file of the kernel"],
        ),
        (of(Kind::Sink), [""; 4]),
        (of(Kind::Directory), ["it is a folder"; 4]),
        (of(Kind::Other), ["it is neither a file nor a block device"; 4]),
    ];
    for (facts, expected) in cases {
        let said = [WRITE, READ, ALLOWED, AS_FOUND]
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
        "will not use /dev/sdx: it is mounted on /; if its contents may be lost: --allow-write=/dev/sdx or \
         IOWHY_ALLOW_WRITE=/dev/sdx\n\
         will not use /tmp: it is a folder"
    );
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
        let wanted = Wanted { path: &path, writes: true, as_found: false };
        match (check_file(wanted, &allow), expected) {
            (Ok(_), "") => {}
            (Err(refused), expected) if !expected.is_empty() => {
                let message = refused.to_string();
                assert!(message.contains(expected), "{name}: {message}");
            }
            (result, _) => panic!("{name}: {result:?}"),
        }
        let named = Allow { write: vec![path.clone()], ..allow.clone() };
        assert_eq!(check_file(wanted, &named).is_ok(), name != "job", "{name}");
        let read = Wanted { writes: false, ..wanted };
        assert_eq!(check_file(read, &allow).is_ok(), name != "job", "{name}");
    }
    let (link, sink) = (at("job/link"), PathBuf::from("/dev/null"));
    let by_its_target = Allow { write: vec![at("other/precious")], ..allow.clone() };
    assert!(check_file(Wanted { path: &link, writes: true, as_found: false }, &by_its_target).is_ok());
    assert!(check_file(Wanted { path: &sink, writes: true, as_found: false }, &allow).is_ok());
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
    if device::device_of(&node) == Some(number) {
        let wanted = Wanted { path: &node, writes: true, as_found: false };
        let message = check_file(wanted, &Allow::default()).expect_err("it is mounted").to_string();
        assert!(message.contains("it is mounted on /"), "{message}");
        assert!(message.contains(&format!("--allow-write={} ", node.display())), "{message}");
    }
}

#[test]
fn what_is_opened_is_what_was_looked_at() {
    let scratch = scratch("swap");
    let at = |name: &str| scratch.0.join(name);
    fs::write(at("victim"), "precious").expect("a file");
    for how in ["link", "file", "gone", "same"] {
        let path = at(how);
        fs::write(&path, "").expect("a file");
        let wanted = Wanted { path: &path, writes: true, as_found: false };
        let seen = check_file(wanted, &Allow::default()).expect("it is empty");
        match how {
            "link" => fs::remove_file(&path).and_then(|()| symlink(at("victim"), &path)).expect("swapped"),
            "file" => {
                fs::copy(at("victim"), at("other")).and_then(|_| fs::rename(at("other"), &path)).expect("swapped")
            }
            "gone" => fs::remove_file(&path).expect("removed"),
            _ => {}
        }
        assert_eq!(seen.open(true, 0).is_ok(), how == "same", "{how}");
    }
}

#[test]
fn a_folder_allows_what_is_in_it_and_holes_are_empty() {
    let scratch = scratch("allow");
    let path = scratch.0.join("diary");
    fs::write(&path, "dear diary").expect("a file");
    let wanted = Wanted { path: &path, writes: true, as_found: false };
    let allowed = |write: &[&Path]| Allow { write: write.iter().map(|it| it.to_path_buf()).collect(), directory: None };
    assert!(check_file(wanted, &allowed(&[])).is_err());
    assert!(check_file(wanted, &allowed(&[&scratch.0])).is_ok());
    assert!(check_file(wanted, &allowed(&[&scratch.0.join("dia")])).is_err());
    let comm = Path::new("/proc/self/comm");
    let kernel = Wanted { path: comm, writes: true, as_found: false };
    assert!(check_file(kernel, &allowed(&[Path::new("/proc"), comm])).is_err());
    let hole = scratch.0.join("hole");
    File::create(&hole).and_then(|file| file.set_len(1 << 20)).expect("a file");
    assert!(check_file(Wanted { path: &hole, ..wanted }, &allowed(&[])).is_ok());
}
