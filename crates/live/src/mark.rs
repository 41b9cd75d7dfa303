//! Files and devices that iowhy created, and how they are recognised.
//!
//! ```text
//! file     the attribute `user.iowhy`: "INODE BORN BYTES CHANGED". A copy has another inode or time of birth; who has
//!          written over the file since has changed its time, or left it shorter. While a run writes to it (and after
//!          one that was killed) the mark is without the time
//! no such  (a file system without attributes) the same words, with the device's number before them, in the file
//!          `marks` next to the ledgers
//! device   its number, its size and the sum of its samples (first and last MiB, and pieces between) as the last run of
//!          ours left them, in the file `devices` next to the ledgers
//! ```
//! Known limit: a program that writes only between the samples of a device, or over a file that a killed run has left,
//! is not noticed.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rustix::fs::{XattrFlags, fsetxattr, getxattr};

use crate::state;

/// Attribute of the files that we made.
const MARK: &str = "user.iowhy";
/// Lines that a list keeps: the latest.
const KEPT: usize = 4096;

/// When a file was made, ns since 1970; -1 where the file system does not say.
pub(crate) fn born_ns(metadata: &Metadata) -> i128 {
    let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    born.map_or(-1, |born| i128::try_from(born.as_nanos()).unwrap_or(-1))
}

/// The recorded identity of a file, without its size.
fn identity(metadata: &Metadata) -> String {
    format!("{} {}", metadata.ino(), born_ns(metadata))
}

/// Marks an open file as made by us, with the size it has now. It may be written from now on.
pub(crate) fn mark(file: &File) {
    let Ok(metadata) = file.metadata() else { return };
    write_mark(file, &metadata, &format!("{} {}", identity(&metadata), metadata.len()));
}

/// A file of ours is not written any more: what it holds now is ours, and later changes are somebody else's.
pub(crate) fn settle(file: &File) {
    if let Ok(metadata) = file.metadata()
        && let Some(value) = value_of(file, &metadata)
        && is_of(&value, &metadata)
        && value.split_whitespace().count() == 3
    {
        let changed = changed_ns(&metadata);
        write_mark(file, &metadata, &format!("{} {} {changed}", identity(&metadata), metadata.len()));
    }
}

fn changed_ns(metadata: &Metadata) -> i128 {
    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
}

fn write_mark(file: &File, metadata: &Metadata, value: &str) {
    if fsetxattr(file, MARK, value.as_bytes(), XattrFlags::empty()).is_err() {
        // Best effort: a file that is not known is refused, and the refusal says what to do.
        add("marks", &format!("{} {value}", metadata.dev()));
    }
}

/// Whether an open file (`O_PATH` will do) is one that we made.
pub(crate) fn is_marked(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| value_of(file, &metadata).is_some_and(|value| is_of(&value, &metadata)))
}

/// The value of a file's mark.
fn value_of(file: &File, metadata: &Metadata) -> Option<String> {
    let mut value = [0_u8; 96];
    match getxattr(through(file), MARK, &mut value[..]) {
        Ok(n) => std::str::from_utf8(&value[..n]).ok().map(str::to_owned),
        Err(_) => {
            let (device, own) = (format!("{} ", metadata.dev()), identity(metadata));
            let lines = list("marks");
            let mut values = lines.lines().filter_map(|line| line.strip_prefix(&device));
            values.rfind(|value| value.starts_with(&own)).map(str::to_owned)
        }
    }
}

/// Whether a mark is this file's.
fn is_of(value: &str, metadata: &Metadata) -> bool {
    let Some(rest) = value.strip_prefix(&identity(metadata)) else { return false };
    let mut rest = rest.split_whitespace();
    let long = rest.next().and_then(|bytes| bytes.parse().ok()).is_some_and(|bytes: u64| metadata.len() >= bytes);
    long && rest.next().is_none_or(|changed| changed.parse() == Ok(changed_ns(metadata)))
}

/// An open file by a name that leads to it whatever becomes of its own.
pub(crate) fn through(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Writes down what a device holds after a run of ours.
pub(crate) fn note_device(number: (u32, u32), bytes: u64, sum: u128) {
    let line = device_line(number, bytes, sum);
    if !list("devices").lines().any(|known| known == line) {
        add("devices", &line);
    }
}

/// Whether a device holds what a run of ours left on it.
pub(crate) fn is_noted(number: (u32, u32), bytes: u64, sum: u128) -> bool {
    let line = device_line(number, bytes, sum);
    list("devices").lines().any(|known| known == line)
}

fn device_line((major, minor): (u32, u32), bytes: u64, sum: u128) -> String {
    format!("{major}:{minor} {bytes} {sum:032x}")
}

/// A list next to the ledgers; empty unless only this user can write it.
fn list(name: &str) -> String {
    let folder = state::state_directory();
    if !state::is_trusted(&folder) {
        return String::new();
    }
    fs::read_to_string(folder.join(name)).unwrap_or_default()
}

/// Adds a line to a list. One that has grown long loses its older half.
fn add(name: &str, line: &str) {
    let Ok(folder) = state::make_state_directory(&state::state_directory()).map(Path::to_owned) else { return };
    let path = folder.join(name);
    let options = || {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        options
    };
    let known = list(name);
    let _ = if known.lines().count() < KEPT {
        options().open(&path).and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
    } else {
        let beside = state::scratch_name(&folder, name);
        let mut text: String = known.lines().skip(KEPT / 2).flat_map(|line| [line, "\n"]).collect();
        text.push_str(line);
        text.push('\n');
        let written = options().open(&beside).and_then(|mut file| file.write_all(text.as_bytes()));
        written.and_then(|()| fs::rename(&beside, &path))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_one_files_and_goes_when_it_is_cut() {
        let folder = std::env::temp_dir().join(format!("iowhy-mark-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder");
        let (path, copy) = (folder.join("ours"), folder.join("copy"));
        fs::write(&path, "measured").expect("a file");
        let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path).expect("it is there");
        let file = open(&path);
        assert!(!is_marked(&file));
        mark(&file);
        assert!(is_marked(&file));
        let copied = std::process::Command::new("cp").arg("-a").arg(&path).arg(&copy).status().expect("cp");
        assert!(copied.success() && !is_marked(&open(&copy)));
        file.set_len(20).expect("longer");
        assert!(is_marked(&file));
        settle(&file);
        assert!(is_marked(&open(&path)), "nobody has written since");
        fs::write(&path, "as long as what was there").expect("somebody writes over it in place");
        assert!(!is_marked(&open(&path)));
        settle(&file);
        assert!(!is_marked(&open(&path)), "and it stays theirs");
        mark(&file);
        file.set_len(3).expect("shorter");
        assert!(!is_marked(&file), "somebody wrote a shorter text over it");
        fs::remove_dir_all(&folder).expect("ours");
    }
}
