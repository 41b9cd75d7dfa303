//! Settings that last: text for a file of the system, or a line of code.
//!
//! ```text
//! queue    a rule of udev that finds the disk by its serial number, a loop device by the file behind it, any other by
//!          the kernel's name; a disk without a serial gets a unit of systemd, too, that finds it by its mount point
//! vm.*     a line for sysctl.d
//! code     advice, open flags, sizes and depths, for changes of the program
//! ```
//! Known limit: a file system over several disks has them all behind one mount point, and the unit sets the first.

use std::fs;
use std::path::Path;

use super::{Change, Saving, shown};
use crate::twin::Twin;

/// Something to write into a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// For example `udev rule`.
    pub what: &'static str,
    /// Where it belongs.
    pub file: String,
    pub text: String,
    /// Its limit.
    pub note: Option<String>,
}

/// How a rule finds a disk, whether that is stable, and what else there is to say.
fn found_by(disk: &str) -> (String, bool, Option<String>) {
    let folder = Path::new("/sys/block").join(disk);
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned());
    if let Some(file) = read("loop/backing_file") {
        let note = format!("{disk} is a number that another file may get next time; the rule goes by the file");
        return (format!("ATTR{{loop/backing_file}}==\"{file}\""), false, Some(note));
    }
    let data = read("dev").and_then(|number| fs::read_to_string(format!("/run/udev/data/b{number}")).ok());
    let serial = data.iter().flat_map(|text| text.lines()).find_map(|line| line.strip_prefix("E:ID_SERIAL="));
    match serial {
        Some(serial) => (format!("ENV{{DEVTYPE}}==\"disk\", ENV{{ID_SERIAL}}==\"{serial}\""), true, None),
        None => {
            let note = format!("udev knows no serial number of {disk}, and another disk may get its name");
            (format!("KERNEL==\"{disk}\""), false, Some(note))
        }
    }
}

/// Makes settings last.
pub(super) fn lasting(disk: &str, mount: Option<&str>, settings: &[(&'static str, String)]) -> Vec<Keep> {
    let (machine, mut queue): (Vec<_>, Vec<_>) = settings.iter().partition(|(key, _)| key.starts_with("vm."));
    // The kernel sets others anew with it.
    queue.sort_by_key(|(key, _)| *key != "scheduler");
    let mut out = Vec::new();
    if !queue.is_empty() {
        let (by, stable, note) = found_by(disk);
        let set: Vec<String> = queue.iter().map(|(key, value)| format!("ATTR{{queue/{key}}}=\"{value}\"")).collect();
        let text = format!("ACTION==\"add|change\", SUBSYSTEM==\"block\", {by}, {}", set.join(", "));
        out.push(Keep { what: "udev rule", file: "/etc/udev/rules.d/60-iowhy.rules".to_owned(), text, note });
        out.extend(mount.filter(|_| !stable).map(|mount| unit(mount, &queue)));
    }
    if !machine.is_empty() {
        let lines: Vec<String> = machine.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        let file = "/etc/sysctl.d/60-iowhy.conf".to_owned();
        out.push(Keep { what: "sysctl line", file, text: lines.join("\n"), note: None });
    }
    out
}

fn unit(mount: &str, queue: &[&(&'static str, String)]) -> Keep {
    let set: Vec<String> = queue.iter().map(|(key, value)| format!("echo {value} > {key}")).collect();
    let text = format!(
        "[Unit]\nDescription=Queue of the disk below {mount}\nRequiresMountsFor={mount}\n\n[Service]\nType=oneshot\n\
         ExecStart=/bin/sh -ec 'cd -P /sys/dev/block/$$(mountpoint -d {mount}); [ -d queue ] || cd ..; cd queue; \
         {}'\n\n[Install]\nWantedBy=multi-user.target",
        set.join("; ")
    );
    let file = "/etc/systemd/system/iowhy-queue.service".to_owned();
    Keep { what: "systemd unit", file, text, note: None }
}

/// Changes of the program with which a twin is faster.
pub(super) fn changes(twin: &Twin) -> Vec<Change> {
    let of = |prediction: crate::twin::Prediction| {
        Some(Change {
            code: code(&prediction.setting)?,
            setting: prediction.setting,
            predicted: Saving { pct: prediction.saves_pct, ci_pct: prediction.saves_ci_pct },
        })
    };
    twin.what_if().into_iter().filter_map(of).collect()
}

/// A change of the program as a line of C; nothing if it is none.
fn code(setting: &str) -> Option<String> {
    let words: Vec<&str> = setting.split(' ').collect();
    Some(match words.as_slice() {
        ["leave", "out", "the", "advice"] => "/* without posix_fadvise() and madvise() */".to_owned(),
        [call, .., "after", "each", "open"] if call.starts_with("posix_fadvise") => {
            format!("{};", setting.trim_end_matches(" after each open"))
        }
        ["let", "each", "thread", ..] => "int fd = open(path, flags); /* in each thread */".to_owned(),
        ["open", "with", "O_DIRECT"] => "open(path, flags | O_DIRECT); /* aligned buffers */".to_owned(),
        ["open", "without", "O_DIRECT"] => "open(path, flags & ~O_DIRECT);".to_owned(),
        [kib, "KiB", "a", "call"] => format!("read(fd, buffer, {kib} << 10);"),
        [depth, "calls", "in", "flight"] => format!("io_uring_queue_init({depth}, &ring, 0);"),
        _ => return None,
    })
}

/// All of it as one command line would set it, until the next start of the system.
pub(super) fn for_now(disk: &str, settings: &[(&'static str, String)]) -> String {
    let echo = |(key, value): &(&'static str, String)| match key.strip_prefix("vm.") {
        Some(_) => format!("sysctl -w {}", shown(&[(*key, value.clone())])),
        None => format!("echo {value} > /sys/block/{disk}/queue/{key}"),
    };
    settings.iter().map(echo).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_programs_are_lines_of_code_and_settings_are_not() {
        for (setting, line) in [
            (
                "posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) after each open",
                "posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);",
            ),
            ("256 KiB a call", "read(fd, buffer, 256 << 10);"),
            ("16 calls in flight", "io_uring_queue_init(16, &ring, 0);"),
            ("open with O_DIRECT", "open(path, flags | O_DIRECT); /* aligned buffers */"),
        ] {
            assert_eq!(code(setting).as_deref(), Some(line));
        }
        for setting in ["read_ahead_kb=128", "keep dd off the disk", "+no-plug"] {
            assert_eq!(code(setting), None);
        }
    }

    #[test]
    fn queue_and_machine_have_files_of_their_own_and_the_scheduler_comes_first() {
        let settings = [("read_ahead_kb", "1024"), ("scheduler", "none"), ("vm.dirty_ratio", "10")];
        let settings = settings.map(|(key, value)| (key, value.to_owned()));
        // No machine has a disk of this name.
        let kept = lasting("nowhere", Some("/srv"), &settings);
        let what: Vec<&str> = kept.iter().map(|of| of.what).collect();
        assert_eq!(what, ["udev rule", "systemd unit", "sysctl line"]);
        let set = "KERNEL==\"nowhere\", ATTR{queue/scheduler}=\"none\", ATTR{queue/read_ahead_kb}=\"1024\"";
        assert!(kept[0].text.ends_with(set), "{}", kept[0].text);
        assert!(kept[0].note.is_some() && kept[1].text.contains("mountpoint -d /srv"));
        assert_eq!(kept[2].text, "vm.dirty_ratio = 10");
        assert_eq!(for_now("sdb", &settings[..1]), "echo 1024 > /sys/block/sdb/queue/read_ahead_kb");
    }
}
