//! `iowhy doctor` from outside: a ledger that a dead process left behind is found, shown and worked off.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::{check_schema, text};

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("iowhy-doctor-{name}-{}", std::process::id()));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path.join("iowhy")).expect("folders");
        Scratch(path)
    }

    /// Lets a process that cannot exist any more have made the file `made`, and set `value` from 1 to 2.
    fn leave(&self, value: &str) {
        let at = |name: &str| self.0.join(name).display().to_string();
        fs::write(self.0.join("made"), "x").expect("a file");
        fs::write(self.0.join("value"), value).expect("a file");
        let made = fs::metadata(self.0.join("made")).expect("it is there");
        let born = made.created().ok().and_then(|born| born.duration_since(std::time::UNIX_EPOCH).ok());
        let born = born.map_or("-1".to_owned(), |born| born.as_nanos().to_string());
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = if boot.is_empty() { "%" } else { boot.trim() };
        let ledger = format!(
            "iowhy-ledger 1 {boot} 0 1\n+ 1 file {} {}\n= 1 {} {} {born}\n+ 2 setting {} 1 2\n",
            at("made"),
            at(".iowhy-0"),
            made.dev(),
            made.ino(),
            at("value"),
        );
        fs::write(self.0.join("iowhy/0-1-0.ledger"), ledger).expect("a file");
    }

    fn doctor(&self, line: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_iowhy"))
            .arg("doctor")
            .args(line.split_whitespace())
            .arg(&self.0)
            .env("NO_COLOR", "1")
            .env("XDG_STATE_HOME", &self.0)
            .output()
            .expect("the command starts")
    }

    fn json(&self, line: &str, code: i32) -> Value {
        let output = self.doctor(line);
        assert_eq!(output.status.code(), Some(code), "{line}\n{}", text(&output.stderr));
        let value = serde_json::from_slice(&output.stdout).expect("JSON");
        check_schema("doctor", &value);
        value
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn states(report: &Value) -> Vec<&str> {
    let left = report["left"].as_array().expect("a list");
    left.iter().map(|left| left["state"].as_str().expect("a word")).collect()
}

#[test]
fn what_is_left_behind_is_shown_then_undone_then_gone() {
    let scratch = Scratch::new("fix");
    let clean = scratch.json("--json", 0);
    assert_eq!((clean["clean"].as_bool(), states(&clean)), (Some(true), vec![]));
    scratch.leave("2\n");
    let seen = scratch.json("--json", 1);
    assert_eq!((seen["clean"].as_bool(), states(&seen)), (Some(false), vec!["there", "there"]));
    assert!(scratch.0.join("made").exists(), "looking does not undo");
    let shown = scratch.doctor("");
    assert_eq!(shown.status.code(), Some(1));
    let shown = text(&shown.stdout);
    let file = format!("the file {}", scratch.0.join("made").display());
    assert!(shown.replace("\n    ", " ").contains(&file) && shown.contains("doctor --fix"), "{shown}");
    let fixed = scratch.json("--json --fix", 0);
    assert_eq!(states(&fixed), ["undone", "undone"]);
    assert!(!scratch.0.join("made").exists());
    assert_eq!(fs::read(scratch.0.join("value")).expect("a file"), b"1\n");
    assert_eq!(states(&scratch.json("--json", 0)), [""; 0]);
    let shown = text(&scratch.doctor("").stdout);
    assert!(shown.contains("leftovers of earlier runs\n  nothing\n"), "{shown}");
}

#[test]
fn what_somebody_else_has_changed_since_is_left_alone() {
    let scratch = Scratch::new("foreign");
    scratch.leave("7\n");
    fs::rename(scratch.0.join("made"), scratch.0.join("moved")).expect("a rename");
    fs::write(scratch.0.join("made"), "of somebody else").expect("a file");
    let fixed = scratch.json("--json --fix", 1);
    assert_eq!(states(&fixed), ["not-ours", "not-ours"]);
    assert_eq!(fs::read(scratch.0.join("made")).expect("a file"), b"of somebody else");
    assert_eq!(fs::read(scratch.0.join("value")).expect("a file"), b"7\n");
    // It has been said once: there is nothing that could still be done.
    assert_eq!(states(&scratch.json("--json", 0)), [""; 0]);
}

#[test]
fn a_folder_of_ledgers_that_others_can_write_to_is_refused() {
    let scratch = Scratch::new("trust");
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(scratch.0.join("iowhy"), permissions).expect("permissions");
    let output = scratch.doctor("--fix");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("not a folder of this user alone"), "{}", text(&output.stderr));
    let missing = Scratch(Path::new("/no/such/folder").to_owned());
    assert_eq!(missing.doctor("").status.code(), Some(2));
}
