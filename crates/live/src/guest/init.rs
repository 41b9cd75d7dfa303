//! The first process of a guest: makes everything ready, runs the job as a child, sends what came of it, switches off.
//!
//! ```text
//! mounts      proc, sysfs, devtmpfs, tracefs
//! plan        /iowhy-guest.plan: the work, as pieces
//! modules     in the order of the plan
//! disks       NVMe drives known by their serial numbers, waited for ten seconds
//! settings    of the data disk's queue; one that the kernel does not take ends it all
//! job         this program once more, with the words of the plan; its output goes to the console
//! result      all files below /out, to the other drive
//! ```
//! Marks on the console show the host how far it is ([`console`](super::console)); one each second shows that the
//! kernel is alive. All failures are reported with a mark, and the machine switched off.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, unmount};
use rustix::system::{RebootCommand, finit_module, reboot};

use super::console::MARK;
use super::{DATA_SERIAL, IN_GUEST, OUT_SERIAL, key, stream};
use crate::clock::monotonic;

/// Where the plan is.
pub(super) const PLAN: &str = "/iowhy-guest.plan";
/// Name of our program.
pub(super) const PROGRAM: &str = "/init";
/// The folder whose files are sent.
pub(super) const OUT: &str = "/out";
/// Output of the job.
pub(super) const PRINTED: &str = "report.json";

/// How long drives are waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether this process is the first one of a guest of ours.
pub(super) fn is_init() -> bool {
    let named = std::env::args_os().next().is_some_and(|name| name == PROGRAM);
    std::process::id() == 1 && named && Path::new(PLAN).exists()
}

/// Says something to the host, in one piece.
pub(super) fn say(text: &str) {
    let _ = io::stderr().lock().write_all(format!("{MARK} {text}\n").as_bytes());
}

/// Does everything, and switches off.
pub(super) fn init() -> ! {
    std::panic::set_hook(Box::new(|panic| say(&format!("error {panic}").replace('\n', " "))));
    let done = std::panic::catch_unwind(all);
    match done {
        Ok(Ok(())) => {}
        Ok(Err(error)) => say(&format!("error {error}")),
        // The hook has told.
        Err(_) => {}
    }
    off()
}

/// Switches the machine off.
fn off() -> ! {
    rustix::fs::sync();
    let _ = reboot(RebootCommand::PowerOff);
    // Some kernels cannot switch off: the host has been told not to start again.
    let _ = reboot(RebootCommand::Restart);
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// For `map_err`: the attempt.
fn cannot(what: String) -> impl FnOnce(io::Error) -> String {
    move |error| format!("cannot {what}: {error}")
}

fn mount(source: &Path, target: &str, filesystem: &str) -> io::Result<()> {
    fs::create_dir_all(target)?;
    Ok(rustix::mount::mount(source, target, filesystem, MountFlags::empty(), None)?)
}

fn load(module: &str) -> io::Result<()> {
    match finit_module(File::open(module)?, c"", 0) {
        // It may be there already.
        Err(Errno::EXIST) => Ok(()),
        done => Ok(done?),
    }
}

/// The disk of a serial number: its folder in sysfs.
fn disk(serial: &str) -> Option<PathBuf> {
    let entries = fs::read_dir("/sys/block").ok()?;
    let mut folders = entries.filter_map(|entry| Some(entry.ok()?.path()));
    folders.find(|folder| {
        let says = |file: &str| fs::read_to_string(folder.join(file)).is_ok_and(|text| text.trim() == serial);
        says("device/serial") || says("serial")
    })
}

/// Names of all disks.
fn disks() -> String {
    let entries = fs::read_dir("/sys/block").into_iter().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
    names.sort();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Waits for the disk of a serial number, and its node.
fn wait_for(serial: &str, what: &str) -> Result<(PathBuf, PathBuf), String> {
    let begun = Instant::now();
    loop {
        if let Some(folder) = disk(serial) {
            let node = Path::new("/dev").join(folder.file_name().unwrap_or_default());
            if node.exists() {
                return Ok((folder, node));
            }
        }
        if begun.elapsed() > PATIENCE {
            let wait = PATIENCE.as_secs();
            return Err(format!(
                "no {what} after {wait} s: this kernel has no driver for NVMe drives built in (CONFIG_BLK_DEV_NVME); \
                 its disks: {}",
                disks()
            ));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sets a file of a disk's queue, and looks whether the kernel took it.
fn set(folder: &Path, name: &str, value: &str) -> Result<(), String> {
    let path = folder.join("queue").join(name);
    let attempt = || -> io::Result<String> {
        OpenOptions::new().write(true).open(&path)?.write_all(value.as_bytes())?;
        crate::ledger::setting_of(&path)
    };
    match attempt() {
        Ok(now) if now == value => Ok(()),
        Ok(now) => Err(format!("the kernel makes {now} of {name}={value}")),
        Err(error) => Err(format!("cannot set {name}={value}: {error}")),
    }
}

fn all() -> Result<(), String> {
    for (source, target, filesystem) in
        [("proc", "/proc", "proc"), ("sysfs", "/sys", "sysfs"), ("devtmpfs", "/dev", "devtmpfs")]
    {
        mount(Path::new(source), target, filesystem).map_err(cannot(format!("mount {filesystem}")))?;
    }
    // A kernel without it can nonetheless run a job; a requested trace then reports the lack.
    let _ = mount(Path::new("tracefs"), "/sys/kernel/tracing", "tracefs");
    say("up");
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            say("alive");
        }
    });
    let plan = fs::read(PLAN).map_err(cannot(format!("read {PLAN}")))?;
    let plan = stream::pieces(&plan).ok_or("the plan is damaged")?;
    let texts = |wanted: &'static str| {
        let of_key = plan.iter().filter(move |(key, _)| key == wanted);
        of_key.map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned())
    };
    for module in texts(key::MODULE) {
        load(&module).map_err(cannot(format!("load the module {module}")))?;
    }
    let (folder, node) = wait_for(DATA_SERIAL, "disk for data")?;
    let (_, out) = wait_for(OUT_SERIAL, "disk for the results")?;
    for setting in texts(key::SETTING) {
        let (name, value) = setting.split_once('=').unwrap_or((&setting, ""));
        set(&folder, name, value)?;
    }
    let target = texts(key::TARGET).next().unwrap_or_default();
    if let Some(filesystem) = texts(key::FILESYSTEM).next() {
        mount(&node, &target, &filesystem).map_err(|error| {
            let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
            let known: Vec<&str> = known.lines().filter_map(|line| line.strip_prefix('\t')).collect();
            format!("cannot mount {filesystem}: {error}; this kernel knows {}", known.join(", "))
        })?;
    }
    fs::create_dir_all(OUT).map_err(cannot(format!("make {OUT}")))?;
    let printed = Path::new(OUT).join(PRINTED);
    let printed = File::create(&printed).map_err(cannot(format!("make {}", printed.display())))?;
    let mut job = Command::new(PROGRAM);
    job.args(texts(key::WORD)).stdout(printed).env(IN_GUEST, "1");
    for pair in texts(key::VARIABLE) {
        if let Some((name, value)) = pair.split_once('=') {
            job.env(name, value);
        }
    }
    if let Some(folder) = texts(key::FOLDER).next() {
        fs::create_dir_all(&folder).map_err(cannot(format!("make {folder}")))?;
        job.current_dir(folder);
    }
    job.stdin(match texts(key::INPUT).next() {
        Some(path) => Stdio::from(File::open(&path).map_err(cannot(format!("open {path}")))?),
        None => Stdio::null(),
    });
    say(&format!("begin {}", monotonic()));
    let status = job.status().map_err(cannot("start the job".to_owned()))?;
    let end = monotonic();
    let code = status.code().unwrap_or(-1);
    say(&format!("end {code} {end}"));
    if !target.is_empty() {
        // All writes are on the disk before the machine goes off; nothing needs it, so its failure does not matter.
        let _ = unmount(target, UnmountFlags::DETACH);
    }
    let mut drive =
        OpenOptions::new().write(true).open(&out).map_err(cannot("open the disk for results".to_owned()))?;
    let sent = stream::send(Path::new(OUT), &mut drive).map_err(cannot("send the results".to_owned()))?;
    say(&format!("sent {sent}"));
    Ok(())
}
