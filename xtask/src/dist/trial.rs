//! The package in a fresh Debian: installed, asked, removed; and nothing is left.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::{at, done, folder};
use crate::Outcome;

/// The oldest Debian that is tried.
const RELEASE: &str = "bookworm";
/// What a visitor does, with two recordings made there: simulated reads with and without read-ahead.
const ASK: &str = "set -e; cd /tmp; export IOWHY_STORE=/tmp/store
J='fio --name=j --rw=read --bs=4k --size=16m'
iowhy run $J --on sim:linux-6.18 --on sim:linux-6.18,read_ahead_kb=0 --label a --label b --trace --repeat 3 >/dev/null
iowhy explain a b";
/// A word of the right answer.
const ANSWER: &str = "read-ahead";

/// Files of a system, without those that a package manager keeps for itself.
fn files(system: &Path) -> Result<BTreeSet<String>, String> {
    let mut find = Command::new("find");
    find.current_dir(system).args([".", "-xdev", "-not", "-path", "./var/lib/dpkg/*", "-not", "-path", "./var/log/*"]);
    let list = done(find.args(["-not", "-path", "./var/cache/*"]))?;
    Ok(String::from_utf8_lossy(&list).lines().map(str::to_owned).collect())
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
    let answer = inside(&["sh", "-c", ASK]);
    let man = inside(&["test", "-s", "/usr/share/man/man1/iowhy-explain.1.gz"]);
    inside(&["dpkg", "--purge", "iowhy"])?;
    inside(&["sh", "-c", "rm -rf /tmp/*"])?;
    let answer = String::from_utf8_lossy(&answer?).into_owned();
    man?;
    if !answer.contains(ANSWER) {
        return Err(format!("the installed command does not answer `{ANSWER}`:\n{answer}"));
    }
    let after = files(&system)?;
    let left: Vec<&String> = after.symmetric_difference(&before).collect();
    if left.is_empty() { Ok(()) } else { Err(format!("files differ after the removal: {left:?}")) }
}
