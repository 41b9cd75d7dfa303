//! The package in a fresh Debian: installed, asked, removed; and nothing is left.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::{at, done, folder};
use crate::Outcome;

/// The oldest Debian that is tried.
const RELEASE: &str = "bookworm";
/// Two commands that are recorded here and explained there.
const RECORDED: &[(&str, &str)] = &[("a.parquet", "bs=1M"), ("b.parquet", "bs=4k")];
/// The cause that it must name.
const ANSWER: &str = "changed-job";

/// Files of a system, without those that a package manager keeps for itself.
fn files(system: &Path) -> Result<BTreeSet<String>, String> {
    let mut find = Command::new("find");
    find.current_dir(system).args([".", "-xdev", "-not", "-path", "./var/lib/dpkg/*", "-not", "-path", "./var/log/*"]);
    let list = done(find.args(["-not", "-path", "./var/cache/*"]))?;
    Ok(String::from_utf8_lossy(&list).lines().map(str::to_owned).collect())
}

/// Makes the recordings, with the command that is in the package.
fn record(folder: &Path) -> Outcome {
    let data = folder.join("data");
    at(&data, fs::write(&data, vec![0; 16 << 20]))?;
    for (name, size) in RECORDED {
        let mut record = Command::new(super::folder().join("tree/usr/bin/iowhy"));
        record.args(["trace", "record", "--output"]).arg(folder.join(name)).args(["--", "dd", "of=/dev/null", size]);
        done(record.arg(format!("if={}", data.display())))?;
    }
    Ok(())
}

/// The trial of a package.
pub(super) fn run(package: &Path) -> Outcome {
    let system = folder().join("trial");
    // A system of an earlier trial saves a minute; what it lacks to be whole is seen from its end.
    let whole = folder().join("trial.made");
    if !whole.exists() {
        let _ = fs::remove_dir_all(&system);
        done(Command::new("debootstrap").args(["--variant=minbase", RELEASE]).arg(&system))?;
        at(&whole, fs::write(&whole, ""))?;
    }
    let inside = |words: &[&str]| done(Command::new("chroot").arg(&system).args(words));
    let before = files(&system)?;
    let name = package.file_name().unwrap_or_default();
    at(package, fs::copy(package, system.join("tmp").join(name)))?;
    inside(&["dpkg", "--install", &format!("/tmp/{}", name.to_string_lossy())])?;
    record(&system.join("tmp"))?;
    let answer = inside(&["iowhy", "explain", "/tmp/a.parquet", "/tmp/b.parquet"]);
    let man = inside(&["test", "-s", "/usr/share/man/man1/iowhy-explain.1.gz"]);
    inside(&["dpkg", "--purge", "iowhy"])?;
    inside(&["sh", "-c", "rm -rf /tmp/*"])?;
    let answer = String::from_utf8_lossy(&answer?).into_owned();
    man?;
    if !answer.contains(ANSWER) {
        return Err(format!("the installed command does not name {ANSWER}:\n{answer}"));
    }
    let after = files(&system)?;
    let left: Vec<&String> = after.symmetric_difference(&before).collect();
    if left.is_empty() { Ok(()) } else { Err(format!("files differ after the removal: {left:?}")) }
}
