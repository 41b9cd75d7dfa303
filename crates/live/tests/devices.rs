//! What is found out about real block devices, on loop devices of our own. Only root can make them.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use iowhy_live::guard::{Wanted, check_file};
use iowhy_live::ledger::{self, Ledger, LoopOptions};
use iowhy_live::machine::Disk;
use iowhy_live::plan::Allow;

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What is said to somebody who wants to write; empty if he may.
fn said(path: &Path) -> String {
    let wanted = Wanted { path, writes: true, as_found: false };
    let read = Wanted { writes: false, ..wanted };
    assert!(check_file(read, &Allow::default()).is_ok(), "reading is always allowed");
    let allow = Allow { write: vec![path.to_owned()], directory: None };
    assert!(check_file(wanted, &allow).is_ok(), "the flag allows it");
    check_file(wanted, &Allow::default()).map_or_else(|refused| refused.to_string(), |_| String::new())
}

/// Runs a program. Where it is missing the rest of the test cannot be made, which CI must not take for a success.
fn has_run(program: &str, arguments: &[&str]) -> bool {
    match Command::new(program).args(arguments).output() {
        Ok(output) => {
            assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
            true
        }
        Err(error) => {
            println!("SKIPPED: {program}: {error}");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must have {program}");
            false
        }
    }
}

#[test]
fn a_device_is_refused_for_whatever_is_on_it() {
    let root = fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
    if !root || !Path::new("/dev/loop-control").exists() {
        println!("SKIPPED: only root can make loop devices, where there are any");
        return;
    }
    let path = std::env::temp_dir().join(format!("iowhy-devices-{}", std::process::id()));
    fs::create_dir(&path).expect("a folder");
    let scratch = Scratch(fs::canonicalize(path).expect("it is there"));
    let at = |name: &str| scratch.0.join(name);
    let (ledger, _) = Ledger::open_in(&at("state")).expect("a ledger");
    let (mut files, _file) = ledger.create_files(&[at("backing")]).expect("a file");
    let file = files.remove(0);
    file.set_len(16 << 20).expect("space");
    let (node, device) = match ledger.attach_loop(&at("backing"), LoopOptions::default()) {
        Ok(made) => made,
        Err(error) => {
            println!("SKIPPED: {error}");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must have loop devices");
            return;
        }
    };
    let name = node.display().to_string();
    assert_eq!(said(&node), "");
    let link = at("by-id");
    std::os::unix::fs::symlink(&node, &link).expect("a link");
    assert_eq!(said(&link), "", "links to devices are the rule");
    let backing = said(&at("backing"));
    let short = node.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(backing.contains(&format!("it is in use by {short};")), "{backing}");
    assert_eq!(Disk::below(&node).name.as_deref(), Some(short.as_str()));

    let exclusive = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&node).expect("it is free");
    assert!(said(&node).contains("another process has it open exclusively"), "{}", said(&node));
    drop(exclusive);

    let raw = OpenOptions::new().write(true).open(&node).expect("it can be written");
    raw.write_all_at(b"LUKS\xba\xbe", 0).expect("a signature");
    assert!(said(&node).starts_with(&format!("will not use {name}: it holds ")), "{}", said(&node));
    raw.write_all_at(&[0; 8], 0).expect("zeroes");
    drop(raw);
    assert_eq!(said(&node), "");

    if has_run("addpart", &[&name, "1", "2048", "2048"]) {
        assert!(said(&node).contains(&format!("it has partitions: {short}p1;")), "{}", said(&node));
        assert!(has_run("delpart", &[&name, "1"]));
        assert_eq!(said(&node), "");
    }
    if has_run("mkfs.ext4", &["-q", &name]) {
        assert!(said(&node).contains("it holds ext4 (blkid);"), "{}", said(&node));
        fs::create_dir(at("mount")).expect("a folder");
        let mounted = ledger.mount(&node, &at("mount"), "ext4", "").expect("it can be mounted");
        let expected = format!("it is mounted on {};", at("mount").display());
        assert!(said(&node).contains(&expected), "{}", said(&node));
        let disk = Disk::below(&at("mount/new"));
        assert_eq!((disk.name.as_deref(), disk.filesystem.as_deref()), (Some(short.as_str()), Some("ext4")));
        let twice = ledger.mount(&node, &at("mount"), "ext4", "").expect_err("something is mounted there");
        assert!(twice.to_string().ends_with("is a mount point already"), "{twice}");
        mounted.undo().expect("nobody uses it");
    }
    let queue = Path::new("/sys/block").join(&short).join("queue");
    let value = |of: &str| fs::read_to_string(queue.join(of)).expect("a setting").trim().to_owned();
    let before = value("read_ahead_kb");
    // The kernel rounds to whole pages.
    let setting = ledger.set(&queue.join("read_ahead_kb"), "33").expect("it can be set").expect("it was another");
    assert_eq!(value("read_ahead_kb"), "32");
    setting.undo().expect("it can be restored");
    assert_eq!(value("read_ahead_kb"), before);
    device.undo().expect("nobody uses it");
    assert!(!Path::new("/sys/block").join(&short).exists(), "{short}");
    drop(_file);
    assert_eq!(ledger::left_behind(&at("state")).expect("a list"), []);
    assert!(!at("backing").exists());
}
