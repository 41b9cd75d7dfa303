//! Entries of a ledger: how each is recognised as ours, and how it is undone.

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::LoopOptions;
use crate::mark;
use crate::system::{Request, control, readable};
use crate::{machine, ublk};

/// A thing that a run made, or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    File {
        /// Its name.
        path: PathBuf,
        /// The name under which it is made, which is unique.
        temporary: PathBuf,
    },
    /// A folder.
    Directory {
        /// Its name.
        path: PathBuf,
        /// The name under which it is made.
        temporary: PathBuf,
        /// It was made for one run: all that is in it goes, too. Otherwise it is removed only if it is empty.
        scratch: bool,
    },
    Mount {
        source: PathBuf,
        /// On which folder; nothing was mounted there before.
        target: PathBuf,
        /// Type of the file system.
        filesystem: String,
    },
    /// A loop device. None of this number existed before.
    Loop {
        /// Its number.
        index: u32,
        /// Device of the file that it is attached to.
        device: u64,
        /// Inode of that file.
        inode: u64,
    },
    /// A disk in memory (zram).
    Zram {
        /// Its number.
        index: u32,
        /// Which of all disks that this kernel has had it is; 0 before 5.15, where that is not counted.
        sequence: u64,
    },
    /// A block device that a process serves (ublk).
    Ublk {
        /// Its number.
        index: u32,
        /// Its own token, which no other has.
        token: u64,
    },
    /// A value in sysfs or procfs.
    Setting {
        /// Its file.
        path: PathBuf,
        /// The old value.
        old: String,
        /// The new value.
        new: String,
    },
    /// An instance of tracefs; its name has a random part.
    TraceInstance {
        /// Its folder.
        path: PathBuf,
    },
    /// A process that does something for us.
    Process {
        /// Its number.
        pid: u32,
        /// When it started, in ticks since the system did.
        start: u64,
    },
}

/// How a thing is recognised once it has been made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A file or a folder.
    File {
        device: u64,
        inode: u64,
        /// When it was made, ns since 1970; -1 where the file system does not say. It separates a file from a later one
        /// that got the same inode.
        born_ns: i128,
    },
    /// A setting: the kernel's form of the value.
    Value(String),
}

/// State of an entry, or the result of undoing it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is there, and ours.
    There,
    /// There is nothing to undo.
    Gone,
    /// It has been undone.
    Undone,
    /// The thing found is not, or no longer, ours; it is left alone.
    NotOurs(String),
    /// It could not be undone, or not even looked at.
    Stuck(String),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::There => f.write_str("still there"),
            State::Gone => f.write_str("gone"),
            State::Undone => f.write_str("undone"),
            State::NotOurs(why) => write!(f, "left alone: {why}"),
            State::Stuck(why) => write!(f, "cannot be undone: {why}"),
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::File { path, .. } => write!(f, "the file {}", path.display()),
            Item::Directory { path, .. } => write!(f, "the folder {}", path.display()),
            Item::Mount { source, target, .. } => {
                write!(f, "the mount of {} on {}", source.display(), target.display())
            }
            Item::Loop { index, .. } => write!(f, "the loop device /dev/loop{index}"),
            Item::Zram { index, .. } => write!(f, "the disk in memory /dev/zram{index}"),
            Item::Ublk { index, .. } => write!(f, "the served block device {}", ublk::node(*index).display()),
            Item::Setting { path, old, .. } => write!(f, "the setting {}, which was {old:?}", path.display()),
            Item::TraceInstance { path } => write!(f, "the trace instance {}", path.display()),
            Item::Process { pid, .. } => write!(f, "the process {pid}"),
        }
    }
}

impl Identity {
    /// Of an open file or folder.
    pub(super) fn of_file(file: &File) -> io::Result<Identity> {
        file.metadata().map(|metadata| Identity::of(&metadata))
    }

    fn of(metadata: &Metadata) -> Identity {
        Identity::File { device: metadata.dev(), inode: metadata.ino(), born_ns: mark::born_ns(metadata) }
    }
}

/// The file at a path, without following symlinks; `None` without one.
fn look(path: &Path) -> Result<Option<Metadata>, State> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(State::Stuck(error.to_string())),
    }
}

impl Item {
    /// Its state now. `identity` is known if it had been made; after a restart of the system (not `same_boot`) only
    /// files and folders can be left.
    pub(super) fn state(&self, identity: Option<&Identity>, same_boot: bool) -> State {
        match self {
            Item::File { path, temporary } | Item::Directory { path, temporary, .. } => {
                either(named_state(path, temporary, identity))
            }
            _ if !same_boot => State::Gone,
            Item::Mount { source, target, filesystem } => {
                // The last one mounted hides those before it.
                match machine::current_mounts().iter().rfind(|mount| mount.point == *target) {
                    None => State::Gone,
                    Some(mount) if mount.source == *source && mount.filesystem == *filesystem => State::There,
                    Some(mount) => State::NotOurs(format!("{} is mounted there", mount.source.display())),
                }
            }
            Item::Loop { index, device, inode } => loop_state(*index, *device, *inode),
            Item::Zram { index, sequence } => match zram_sequence(*index) {
                None => State::Gone,
                Some(now) if now == *sequence => State::There,
                Some(_) => State::NotOurs("there is another disk of that number".to_owned()),
            },
            Item::Ublk { index, token } => ublk_state(*index, *token),
            Item::Setting { path, old, new } => match setting(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => State::Gone,
                Err(error) => State::Stuck(error.to_string()),
                Ok(now) if now == *old => State::Gone,
                Ok(now) if now == *new || identity == Some(&Identity::Value(now.clone())) => State::There,
                Ok(now) => State::NotOurs(format!("it is {now:?} now")),
            },
            Item::TraceInstance { path } => match look(path) {
                Ok(None) => State::Gone,
                Ok(Some(_)) => State::There,
                Err(stuck) => stuck,
            },
            // The number may belong to another by now.
            Item::Process { pid, start } => match super::started(*pid) {
                Some(now) if now == *start => State::There,
                _ => State::Gone,
            },
        }
    }

    /// Undoes it if it is there and ours. Doing so again does no harm.
    pub(super) fn undo(&self, identity: Option<&Identity>, same_boot: bool) -> State {
        match self.state(identity, same_boot) {
            State::There => match self.remove(identity) {
                Ok(()) => State::Undone,
                Err(error) => State::Stuck(error.to_string()),
            },
            state => state,
        }
    }

    fn remove(&self, identity: Option<&Identity>) -> io::Result<()> {
        match self {
            Item::File { path, temporary } => {
                places(path, temporary, identity).into_iter().try_for_each(fs::remove_file)
            }
            Item::Directory { path, temporary, scratch: false } => {
                places(path, temporary, identity).into_iter().try_for_each(fs::remove_dir)
            }
            Item::Directory { path, temporary, scratch: true } => {
                // Mounts below are not in the folder.
                if let Some(mount) = machine::current_mounts().iter().find(|mount| mount.point.starts_with(path)) {
                    return Err(io::Error::other(format!("something is mounted on {}", mount.point.display())));
                }
                places(path, temporary, identity).into_iter().try_for_each(fs::remove_dir_all)
            }
            Item::Mount { target, filesystem, .. } => {
                // Tasks that wait for a server that does not answer learn that it is gone.
                let force = if filesystem == "fuse" { UnmountFlags::FORCE } else { UnmountFlags::empty() };
                while_busy(|| Ok(unmount(target, UnmountFlags::NOFOLLOW | force)?))
            }
            Item::Loop { index, .. } => remove_loop(*index),
            Item::Zram { index, .. } => while_busy(|| fs::write(ZRAM_REMOVE, index.to_string())),
            Item::Ublk { index, .. } => {
                let mut control = ublk::Control::open()?;
                control.stop(*index)?;
                control.delete(*index)
            }
            Item::Setting { path, old, .. } => {
                write_setting(path, old)?;
                let now = setting(path)?;
                if now == *old { Ok(()) } else { Err(io::Error::other(format!("the kernel made {now:?} of it"))) }
            }
            Item::TraceInstance { path } => while_busy(|| fs::remove_dir(path)),
            Item::Process { pid, start } => end_process(*pid, *start),
        }
    }
}

/// Reading it makes a disk in memory and returns its number.
const ZRAM_ADD: &str = "/sys/class/zram-control/hot_add";
/// A number written to it takes that disk away.
const ZRAM_REMOVE: &str = "/sys/class/zram-control/hot_remove";

/// Makes a disk in memory without a size; its number.
pub(super) fn add_zram() -> io::Result<u32> {
    fs::read_to_string(ZRAM_ADD)?.trim().parse().map_err(io::Error::other)
}

/// Which disk a number stands for; `None` if there is none.
pub(super) fn zram_sequence(index: u32) -> Option<u64> {
    let folder = PathBuf::from(format!("/sys/block/zram{index}"));
    let text = fs::read_to_string(folder.join("diskseq")).unwrap_or_default();
    folder.exists().then(|| text.trim().parse().unwrap_or(0))
}

fn ublk_state(index: u32, token: u64) -> State {
    match ublk::Control::open().and_then(|mut control| control.info(index)) {
        Ok(None) => State::Gone,
        Ok(Some(info)) if info.token == token => State::There,
        Ok(Some(_)) => State::NotOurs("there is another device of that number".to_owned()),
        // Without its driver these devices do not exist.
        Err(error) if error.kind() == io::ErrorKind::NotFound => State::Gone,
        Err(error) => State::Stuck(error.to_string()),
    }
}

/// How long a passing process may keep a thing busy: listeners to opens of files, and listers of all processes' files,
/// hold each of them for a moment.
const PASSING: Duration = Duration::from_secs(2);

/// Tries until the thing is free.
fn while_busy(act: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match act() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && begun.elapsed() < PASSING => {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}

/// Ends a process and waits until the kernel has taken from it what it had open.
pub(crate) fn end_process(pid: u32, start: u64) -> io::Result<()> {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    // Its number may go to another process at any time, its descriptor cannot: it is opened before the look.
    let process = pidfd_open(number, PidfdFlags::empty());
    if super::started(pid) != Some(start) {
        return Ok(());
    }
    match &process {
        Ok(process) => pidfd_send_signal(process, Signal::KILL)?,
        // Linux before 5.3 has numbers only.
        Err(_) => kill_process(number, Signal::KILL)?,
    }
    let begun = Instant::now();
    let lives = || match &process {
        Ok(process) => readable(&[process.as_fd()], Duration::from_millis(2)) == [false],
        Err(_) => {
            std::thread::sleep(Duration::from_millis(2));
            super::started(pid) == Some(start)
        }
    };
    while lives() {
        if begun.elapsed() > PASSING {
            return Err(io::Error::other("it does not die"));
        }
    }
    Ok(())
}

fn either(state: Result<State, State>) -> State {
    state.unwrap_or_else(|state| state)
}

fn named_state(path: &Path, temporary: &Path, identity: Option<&Identity>) -> Result<State, State> {
    if look(temporary)?.is_some() {
        return Ok(State::There);
    }
    // Before its identity was written down it had its temporary name only: the file at `path` then is not ours.
    Ok(match (look(path)?, identity) {
        (None, _) | (_, None) => State::Gone,
        (Some(metadata), Some(identity)) if Identity::of(&metadata) == *identity => State::There,
        _ => State::NotOurs("it has been replaced since".to_owned()),
    })
}

/// The names that are to be removed.
fn places<'a>(path: &'a Path, temporary: &'a Path, identity: Option<&Identity>) -> Vec<&'a Path> {
    let mut places = Vec::new();
    if temporary.symlink_metadata().is_ok() {
        places.push(temporary);
    }
    if path.symlink_metadata().is_ok_and(|metadata| Some(&Identity::of(&metadata)) == identity) {
        places.push(path);
    }
    places
}

/// The value of a setting: of a list the chosen word.
pub(super) fn setting(path: &Path) -> io::Result<String> {
    Ok(machine::chosen(&fs::read_to_string(path)?).to_owned())
}

/// Settings of a disk's queue that the kernel sets again when another one of that queue is written.
const DERIVED: &[(&str, &[&str])] = &[
    ("max_sectors_kb", &["read_ahead_kb"]),
    ("rotational", &["read_ahead_kb"]),
    ("scheduler", &["nr_requests", "wbt_lat_usec"]),
];

/// Settings of which one switches the other off.
const EITHER: &[[&str; 2]] = &[["dirty_bytes", "dirty_ratio"], ["dirty_background_bytes", "dirty_background_ratio"]];

/// The settings that the kernel derives from this one.
pub(super) fn derived_from(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let in_queue = path.parent().is_some_and(|folder| folder.ends_with("queue"));
    let derived = DERIVED.iter().find(|(known, _)| in_queue && *known == name).map_or(&[][..], |(_, derived)| *derived);
    derived.iter().map(|name| path.with_file_name(name)).collect()
}

/// The settings that are 0 once this one is set.
pub(super) fn switched_off_by(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let in_vm = path.parent().is_some_and(|folder| folder.ends_with("sys/vm"));
    let others = EITHER.iter().filter(|_| in_vm).flat_map(|[one, other]| [(one, other), (other, one)]);
    others.filter(|(known, _)| **known == name).map(|(_, other)| path.with_file_name(other)).collect()
}

/// Writes a setting with a single call, as sysfs wants it: it is the old or the new one at every moment. Settings that
/// the kernel derives from it again get their old value back, as far as the kernel takes that: their change was not
/// requested. Known limit: a process that is killed between the two calls leaves the derived value.
pub(super) fn write_setting(path: &Path, value: &str) -> io::Result<()> {
    use std::io::Write;
    let write = |path: &Path, value: &str| OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes());
    let derived = derived_from(path).into_iter();
    let before: Vec<(PathBuf, String)> =
        derived.filter_map(|path| Some((path.clone(), setting(&path).ok()?))).collect();
    write(path, value)?;
    for (path, old) in before {
        if setting(&path).is_ok_and(|now| now != old) {
            // The new scheduler may not take as many requests, or know no throttling.
            let _ = write(&path, &old);
        }
    }
    Ok(())
}

/// `linux/loop.h`: state of a loop device.
#[repr(C)]
#[derive(Copy, Clone)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `linux/loop.h`: a device attached and configured in one call (since Linux 5.8).
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304);

const LOOP_GET_STATUS64: Opcode = 0x4c05;
const LOOP_CONFIGURE: Opcode = 0x4c0a;
const LO_FLAGS_DIRECT_IO: u32 = 16;

impl LoopInfo {
    const ZERO: LoopInfo = LoopInfo {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        sizelimit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: 0,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
}

fn loop_control(request: Request, index: u32) -> io::Result<()> {
    let driver = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    control(&driver, request, index).map(drop)
}

/// Makes the loop device of a number that there is none of yet.
pub(super) fn add_loop(index: u32) -> io::Result<()> {
    loop_control(Request::LoopAdd, index)
}

/// Attaches it.
pub(super) fn configure_loop(node: &Path, backing: &File, options: LoopOptions) -> io::Result<()> {
    let device = OpenOptions::new().read(true).write(true).open(node)?;
    let flags = if options.direct_io { LO_FLAGS_DIRECT_IO } else { 0 };
    let config = LoopConfig {
        fd: u32::try_from(backing.as_raw_fd()).map_err(io::Error::other)?,
        block_size: options.block_bytes,
        info: LoopInfo { flags, ..LoopInfo::ZERO },
        reserved: [0; 8],
    };
    // SAFETY: the request reads one such structure.
    Ok(unsafe { ioctl(device, Setter::<LOOP_CONFIGURE, LoopConfig>::new(config)) }?)
}

/// Device and inode of the file that a loop device is attached to, if it is, and the number of that file if it is a
/// device itself (else 0).
pub(crate) fn loop_backing(device: &File) -> io::Result<Option<((u64, u64), u64)>> {
    // SAFETY: the request writes one such structure, which may hold any bytes.
    match unsafe { ioctl(device, Getter::<LOOP_GET_STATUS64, LoopInfo>::new()) } {
        Ok(info) => Ok(Some(((info.device, info.inode), info.rdevice))),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn loop_state(index: u32, device: u64, inode: u64) -> State {
    // Opening the node of a device that does not exist could make it.
    if !Path::new(&format!("/sys/block/loop{index}")).exists() {
        return State::Gone;
    }
    let look = || loop_backing(&File::open(format!("/dev/loop{index}"))?);
    match look() {
        Ok(Some((found, _))) if found == (device, inode) => State::There,
        // We died between making and attaching it. It holds nothing, and the kernel refuses to remove it if it is used.
        Ok(None) => State::There,
        Ok(Some(_)) => State::NotOurs("it is attached to another file".to_owned()),
        Err(error) => State::Stuck(error.to_string()),
    }
}

/// How long a loop device may take to come loose: the kernel waits for requests in flight.
const LOOP_PATIENCE: Duration = Duration::from_secs(2);

fn remove_loop(index: u32) -> io::Result<()> {
    {
        let device = File::open(format!("/dev/loop{index}"))?;
        if loop_backing(&device)?.is_some() {
            control(&device, Request::LoopClear, 0)?;
        }
    }
    let mut waited = Duration::ZERO;
    let step = Duration::from_millis(5);
    loop {
        match loop_control(Request::LoopRemove, index) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && waited < LOOP_PATIENCE => {
                std::thread::sleep(step);
                waited += step;
            }
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
            result => return result,
        }
    }
}
