//! What may be written. Before a run makes or writes anything, every file of its plan is looked at; what somebody may
//! miss is refused unless the user names it (`--allow-write=/dev/loop7`).
//!
//! ```text
//! refused                                                     allowed by
//! a block device that is mounted, partitioned, used as swap,  --allow-write=DEVICE
//!   held by another device, open exclusively, or that holds
//!   a file system or another known format
//! an existing file that is not empty and not ours, if the     --allow-write=FILE
//!   user gave its name (names made from the job's are ours);
//!   a file used as swap or by a loop device
//! a file outside the job's folder, or reached by a symlink    --allow-write=FILE
//! a folder, a socket, a pipe, a character device (but null    nothing
//!   and zero)
//! ```
//!
//! The rules ([`decide`]) are a function of [`Facts`]; [`Facts::gather`] finds them out. Reading is always allowed, but
//! of what could never be read; a file that the run would have to make longer first counts as written.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use iowhy_stack::job::{Job, Workload};
use iowhy_stack::workload::Mix;

use crate::ledger;
use crate::machine::{self, Mount};
use crate::plan::{Allow, Plan};

/// Kinds of files.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// There is none.
    #[default]
    Missing,
    /// A file.
    Regular,
    /// A folder.
    Directory,
    /// A block device.
    Block,
    /// A character device that takes everything and keeps nothing.
    Sink,
    /// Something else.
    Other,
}

/// What is known about a file or device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// What it is, behind all symlinks.
    pub kind: Kind,
    /// Its name without symlinks.
    pub real: PathBuf,
    /// Its last part is a symlink.
    pub link: bool,
    /// It is outside the job's folder.
    pub outside: bool,
    /// Its size.
    pub bytes: u64,
    /// An earlier run of ours made it.
    pub ours: bool,
    /// It is used as swap.
    pub swap: bool,
    /// Mounts of the device, or of a partition of it.
    pub mounted: Vec<PathBuf>,
    /// Partitions of the device.
    pub partitions: Vec<String>,
    /// Devices that are made of it; for a file: the loop devices.
    pub holders: Vec<String>,
    /// Somebody has it open exclusively.
    pub busy: bool,
    /// What its first bytes look like.
    pub holds: Option<&'static str>,
}

/// What a run wants to do with a file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// It writes to it.
    pub writes: bool,
    /// The user gave its name.
    pub named: bool,
    /// The user allowed it to be written.
    pub allowed: bool,
}

/// Why a file is not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// A file system on it is in use.
    #[error("it is mounted on {}", list(.0.iter().map(|path| path.display().to_string())))]
    Mounted(Vec<PathBuf>),
    /// It has partitions.
    #[error("it has partitions: {}", list(.0.iter().cloned()))]
    Partitioned(Vec<String>),
    /// Others are made of it.
    #[error("it is in use by {}", list(.0.iter().cloned()))]
    Held(Vec<String>),
    /// The kernel swaps to it.
    #[error("it is used as swap")]
    Swap,
    /// Somebody has opened it exclusively.
    #[error("somebody has it open exclusively")]
    Busy,
    /// It is not empty.
    #[error("it holds {0}")]
    Holds(&'static str),
    /// It holds somebody's data.
    #[error("it exists already, holds {0} bytes, and no run of iowhy made it")]
    Foreign(u64),
    /// It is outside the job's folder.
    #[error("it is {}, outside the folder of the job", .0.display())]
    Outside(PathBuf),
    /// It is a symlink.
    #[error("it is a symbolic link to {}", .0.display())]
    Link(PathBuf),
    /// A folder.
    #[error("it is a folder")]
    Directory,
    /// A socket, a pipe, a terminal...
    #[error("it is neither a file nor a block device")]
    Strange,
}

fn list(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<String>>().join(", ")
}

impl Reason {
    /// Whether the user can allow it.
    pub fn can_be_allowed(&self) -> bool {
        !matches!(self, Reason::Directory | Reason::Strange)
    }
}

/// A file that is not written, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its name as the user gave it.
    pub path: PathBuf,
    /// Why.
    pub reason: Reason,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display();
        write!(f, "will not use {path}: {}", self.reason)?;
        if self.reason.can_be_allowed() {
            write!(f, "; if its contents may be lost: --allow-write={path}")?;
        }
        Ok(())
    }
}

/// Everything that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(Refusal::to_string).collect::<Vec<String>>().join("\n"))]
pub struct Refused(pub Vec<Refusal>);

/// The rules. The gravest reason comes first.
pub fn decide(intent: Intent, facts: &Facts) -> Option<Reason> {
    match facts.kind {
        Kind::Directory => return Some(Reason::Directory),
        Kind::Other => return Some(Reason::Strange),
        Kind::Sink => return None,
        _ if !intent.writes || intent.allowed => return None,
        _ => {}
    }
    if !facts.mounted.is_empty() {
        return Some(Reason::Mounted(facts.mounted.clone()));
    }
    if facts.swap {
        return Some(Reason::Swap);
    }
    if !facts.partitions.is_empty() {
        return Some(Reason::Partitioned(facts.partitions.clone()));
    }
    if !facts.holders.is_empty() {
        return Some(Reason::Held(facts.holders.clone()));
    }
    if facts.kind == Kind::Block {
        return if facts.busy { Some(Reason::Busy) } else { facts.holds.map(Reason::Holds) };
    }
    if facts.outside {
        return Some(Reason::Outside(facts.real.clone()));
    }
    if facts.link {
        return Some(Reason::Link(facts.real.clone()));
    }
    let foreign = facts.kind == Kind::Regular && facts.bytes > 0 && !facts.ours && intent.named;
    foreign.then_some(Reason::Foreign(facts.bytes))
}

/// Looks at every file of a plan.
///
/// # Errors
/// What is refused, all of it.
pub fn check(plan: &Plan) -> Result<(), Refused> {
    let files = plan.job.workload.files();
    let wanted = plan.files.iter().zip(&files).zip(0..).map(|((file, spec), nr)| {
        let grows =
            || file.may_create && fs::metadata(&file.path).is_ok_and(|it| it.is_file() && it.len() < spec.bytes);
        Wanted { path: &file.path, writes: writes(&plan.job, nr) || grows(), named: file.named }
    });
    check_files(wanted, &plan.allow)
}

/// A file that is to be used.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Its name.
    pub path: &'a Path,
    /// It is written.
    pub writes: bool,
    /// The user gave its name.
    pub named: bool,
}

/// Looks at files of a run that has no plan (sysbench's preparation, programs that are only started).
///
/// # Errors
/// What is refused, all of it.
pub fn check_files<'a>(files: impl IntoIterator<Item = Wanted<'a>>, allow: &Allow) -> Result<(), Refused> {
    let mut refused = Vec::new();
    let surroundings = Surroundings::read();
    for Wanted { path, writes, named } in files {
        let facts = Facts::gather(path, allow.directory.as_deref(), &surroundings);
        let intent = Intent { writes, named, allowed: is_allowed(path, &facts.real, allow) };
        refused.extend(decide(intent, &facts).map(|reason| Refusal { path: path.to_owned(), reason }));
    }
    if refused.is_empty() { Ok(()) } else { Err(Refused(refused)) }
}

/// Whether the user named a file, by this name or by another.
fn is_allowed(path: &Path, real: &Path, allow: &Allow) -> bool {
    allow.write.iter().any(|named| named == path || real_path(named).is_some_and(|named| named == real))
}

/// Whether a job writes to a file.
fn writes(job: &Job, file: u32) -> bool {
    match &job.workload {
        Workload::FileIo(fileio) => fileio.mode.writes(),
        Workload::Threads { threads, .. } => threads.iter().map(|thread| &thread.stream).any(|stream| {
            if let Some(script) = &stream.script {
                return script
                    .iter()
                    .any(|step| step.call.file == file && step.call.op == iowhy_stack::event::Op::Write);
            }
            let mix = match stream.mix {
                Mix::Read => false,
                Mix::Write => true,
                Mix::Mixed(read_pct) => read_pct < 100,
                Mix::ReadAndWriteBack(write_pct) => write_pct > 0,
            };
            stream.log.is_some_and(|log| log.target.file == file)
                || (mix && stream.targets.iter().any(|target| target.file == file))
        }),
    }
}

/// The path without symlinks. The file itself need not exist.
fn real_path(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = fs::canonicalize(path) {
        return Some(real);
    }
    // A link that leads nowhere: what would be made is what it names.
    if let Ok(target) = fs::read_link(path) {
        let target = path.parent().unwrap_or(Path::new("")).join(target);
        return Some(fs::canonicalize(target.parent()?).ok()?.join(target.file_name()?));
    }
    let absolute = std::path::absolute(path).ok()?;
    // Folders that are missing, too, are made by the run. `..` behind a missing folder leads nowhere good.
    let known = absolute.ancestors().skip(1).find_map(|folder| Some((folder, fs::canonicalize(folder).ok()?)));
    let (folder, real) = known?;
    let rest = absolute.strip_prefix(folder).ok()?;
    rest.components().all(|part| matches!(part, std::path::Component::Normal(_))).then(|| real.join(rest))
}

/// What is the same for all files.
struct Surroundings {
    mounts: Vec<Mount>,
    swaps: Vec<PathBuf>,
    loops: Vec<(String, PathBuf)>,
}

impl Surroundings {
    fn read() -> Surroundings {
        let swaps = fs::read("/proc/swaps").unwrap_or_default();
        let disks = fs::read_dir("/sys/block").into_iter().flatten().filter_map(Result::ok);
        Surroundings {
            mounts: machine::current_mounts(),
            swaps: swaps_in(&String::from_utf8_lossy(&swaps)),
            loops: disks
                .filter_map(|disk| {
                    let backing = fs::read_to_string(disk.path().join("loop/backing_file")).ok()?;
                    let name = disk.file_name().to_string_lossy().into_owned();
                    Some((name, PathBuf::from(backing.trim_end_matches('\n'))))
                })
                .collect(),
        }
    }
}

/// Names in `/proc/swaps`.
fn swaps_in(text: &str) -> Vec<PathBuf> {
    text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(machine::unescaped).collect()
}

impl Facts {
    fn gather(path: &Path, directory: Option<&Path>, around: &Surroundings) -> Facts {
        let real = real_path(path);
        let is_link = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
        let outside = directory.is_some_and(|directory| {
            // What cannot be followed is not inside.
            !real.as_ref().zip(real_path(directory)).is_some_and(|(real, directory)| real.starts_with(directory))
        });
        let facts = Facts { real: real.unwrap_or_else(|| path.to_owned()), link: is_link, outside, ..Facts::default() };
        let Ok(metadata) = fs::metadata(&facts.real) else { return facts };
        let kind = metadata.file_type();
        if kind.is_block_device() {
            return facts.of_device(machine::split_device(metadata.rdev()), around);
        }
        let kind = match machine::split_device(metadata.rdev()) {
            _ if kind.is_file() => Kind::Regular,
            _ if kind.is_dir() => Kind::Directory,
            // null, zero and full.
            (1, 3 | 5 | 7) if kind.is_char_device() => Kind::Sink,
            _ => Kind::Other,
        };
        Facts {
            kind,
            bytes: metadata.len(),
            ours: kind == Kind::Regular && ledger::is_marked(&facts.real),
            swap: around.swaps.contains(&facts.real),
            holders: around
                .loops
                .iter()
                .filter(|(_, file)| *file == facts.real)
                .map(|(name, _)| name.clone())
                .collect(),
            ..facts
        }
    }

    fn of_device(self, number: (u32, u32), around: &Surroundings) -> Facts {
        let folder = machine::sysfs_folder(number).unwrap_or_default();
        let partitions = children(&folder, |child| child.join("partition").exists());
        let holders = children(&folder.join("holders"), |_| true);
        // Writing to a whole disk writes to its partitions, and writing to a partition to a part of the disk.
        let read =
            |folder: &Path| fs::read_to_string(folder.join("dev")).ok().and_then(|text| machine::device_number(&text));
        let mut numbers = vec![number];
        numbers.extend(partitions.iter().filter_map(|name| read(&folder.join(name))));
        numbers.extend(read(&machine::whole_disk(&folder)));
        let is_one = |path: &Path| device_of(path).is_some_and(|number| numbers.contains(&number));
        let mounted = around.mounts.iter().filter(|mount| numbers.contains(&mount.number) || is_one(&mount.source));
        let mut mounted: Vec<PathBuf> = mounted.map(|mount| mount.point.clone()).collect();
        mounted.dedup();
        let exclusive = OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK).open(&self.real);
        Facts {
            kind: Kind::Block,
            swap: around.swaps.iter().any(|swap| is_one(swap)),
            mounted,
            partitions,
            holders,
            busy: exclusive.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)),
            holds: exclusive.ok().and_then(|device| first_bytes(&device)).and_then(|bytes| signature(&bytes)),
            ..self
        }
    }
}

/// Names in a folder of sysfs that pass.
fn children(folder: &Path, passes: impl Fn(&Path) -> bool) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let names = entries.filter(|path| passes(path));
    let mut names: Vec<String> =
        names.filter_map(|path| path.file_name().map(OsStr::to_string_lossy).map(|name| name.into_owned())).collect();
    names.sort();
    names
}

fn device_of(path: &Path) -> Option<(u32, u32)> {
    let metadata = fs::metadata(path).ok()?;
    metadata.file_type().is_block_device().then(|| machine::split_device(metadata.rdev()))
}

/// How much of a device is looked at: the farthest signature is that of btrfs.
const LOOKED_AT: usize = 68 << 10;

/// The first bytes of a device, as many as there are.
fn first_bytes(device: &File) -> Option<Vec<u8>> {
    let mut bytes = vec![0; LOOKED_AT];
    let mut have = 0;
    while have < bytes.len() {
        match device.read_at(&mut bytes[have..], have as u64) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    bytes.truncate(have);
    Some(bytes)
}

/// What the first bytes of a device say that is on it.
fn signature(bytes: &[u8]) -> Option<&'static str> {
    const KNOWN: &[(usize, &[u8], &str)] = &[
        (0, b"XFSB", "an xfs file system"),
        (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
        (0, b"hsqs", "a squashfs file system"),
        (3, b"NTFS    ", "an ntfs file system"),
        (3, b"EXFAT   ", "an exfat file system"),
        (0x36, b"FAT", "a fat file system"),
        (0x52, b"FAT32", "a fat file system"),
        (0x200, b"EFI PART", "a partition table"),
        (0x1000, b"EFI PART", "a partition table"),
        (0x200, b"LABELONE", "a physical volume (LVM)"),
        (0x400, b"\x10\x20\xf5\xf2", "an f2fs file system"),
        (0x400, b"\xe2\xe1\xf5\xe0", "an erofs file system"),
        (0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
        (0xff6, b"SWAPSPACE2", "swap space"),
        (0x1000, b"\xfc\x4e\x2b\xa9", "a member of a RAID (md)"),
        (0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", "a bcache device"),
        (0x8001, b"CD001", "an image of a CD"),
        (0x10034, b"ReIsEr", "a reiserfs file system"),
        (0x10040, b"_BHRfS_M", "a btrfs file system"),
        // The last: many others leave room for a boot sector.
        (0x1fe, b"\x55\xaa", "a partition table or a boot sector"),
    ];
    let is = |at: usize, magic: &[u8]| bytes.get(at..at + magic.len()) == Some(magic);
    KNOWN.iter().find(|(at, magic, _)| is(*at, magic)).map(|(_, _, what)| *what)
}

#[cfg(test)]
mod tests;
