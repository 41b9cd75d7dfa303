//! Permission to write: empty files, files that iowhy created, and paths that the user names. Every place that opens a
//! foreign file for writing, replaces one or formats a device asks here.
//!
//! ```text
//! refused                                                     allowed by
//! a block device in use (see `device.rs`), or whose contents  --allow-write=DEVICE
//!   are neither zero nor what a run of iowhy left
//! a file with data that carries no mark of ours (`mark.rs`),  --allow-write=FILE, or a folder above it
//!   but the files of sysbench's names, as sysbench does;
//!   a file used as swap or by a loop device
//! a file outside the job's folder, or reached by a symlink    --allow-write=FILE, or a folder above it
//! a file of the kernel (/proc, /sys), a folder, a socket, a   nothing
//!   pipe, a character device (but null and zero)
//! ```
//!
//! `IOWHY_ALLOW_WRITE` allows the same, names with colons between them. The rules ([`decide`]) are a function of
//! [`Facts`] about an open descriptor; later writes open it through [`Seen`], which refuses another inode. Reading is
//! always allowed; a file that the run would have to make longer first counts as written. Files that a verb writes
//! (`--output`) go through [`Output`].

mod device;
mod output;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use iowhy_stack::job::{Job, Workload};
use iowhy_stack::workload::Mix;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::machine;
use crate::mark;
use crate::plan::{Allow, Plan};
pub(crate) use device::size_of;
use device::{Surroundings, Use};

pub use output::{Output, OutputError};

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
    /// A file of the kernel, in /proc, /sys and the like.
    Pseudo,
    /// Something else.
    Other,
}

/// Known facts about a file or device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its kind, behind all symlinks.
    pub kind: Kind,
    /// Its name without symlinks.
    pub real: PathBuf,
    /// Its last part is a symlink.
    pub link: bool,
    /// It is outside the job's folder.
    pub outside: bool,
    /// Its size; 0 if it is nothing but a hole.
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
    /// The process that has it open exclusively, or for writing.
    pub busy: Option<String>,
    /// Its contents, if they may be missed.
    pub holds: Option<String>,
}

/// A run's use of a file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    pub writes: bool,
    /// Its data may go, whatever it is, as sysbench has it with its own names.
    pub as_found: bool,
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
    /// It is in use.
    #[error("{0}")]
    Busy(String),
    /// It is not empty.
    #[error("it holds {0}")]
    Holds(String),
    /// It holds foreign data.
    #[error("it exists already, holds {0} bytes, and no run of iowhy made it")]
    Foreign(u64),
    /// It is the kernel's.
    #[error("it is a file of the kernel")]
    Kernel,
    /// Another one has come to its name.
    #[error("it was replaced while it was looked at")]
    Replaced,
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
        !matches!(self, Reason::Directory | Reason::Strange | Reason::Kernel | Reason::Replaced)
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
            write!(f, "; if its contents may be lost: --allow-write={path} or IOWHY_ALLOW_WRITE={path}")?;
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
        Kind::Pseudo if intent.writes => return Some(Reason::Kernel),
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
        let busy = facts.busy.clone().map(Reason::Busy);
        return busy.or_else(|| facts.holds.clone().map(Reason::Holds));
    }
    if facts.outside {
        return Some(Reason::Outside(facts.real.clone()));
    }
    if facts.link {
        return Some(Reason::Link(facts.real.clone()));
    }
    let foreign = facts.kind == Kind::Regular && facts.bytes > 0 && !facts.ours && !intent.as_found;
    foreign.then_some(Reason::Foreign(facts.bytes))
}

/// Looks at every file of a plan; yields the result for each, in the order of the plan.
///
/// # Errors
/// All refusals.
pub fn check(plan: &Plan) -> Result<Vec<Seen>, Refused> {
    note_devices();
    let around = Surroundings::read();
    // A file under several names is looked at once: a device can be held once only.
    let keys: Vec<PathBuf> =
        plan.files.iter().map(|file| real_path(&file.path).unwrap_or_else(|| file.path.clone())).collect();
    let mut users_of: BTreeMap<&PathBuf, Vec<usize>> = BTreeMap::new();
    keys.iter().enumerate().for_each(|(nr, key)| users_of.entry(key).or_default().push(nr));
    let (mut refused, mut seen) = (Vec::new(), BTreeMap::new());
    let specs = plan.job.workload.files();
    for (key, users) in users_of {
        let path = &plan.files[users[0]].path;
        let writes = users.iter().any(|nr| writes(&plan.job, *nr as u32));
        let as_found = users.iter().all(|nr| plan.files[*nr].as_found);
        let grows = |metadata: &fs::Metadata| {
            let short = |nr: &usize| plan.files[*nr].may_create && metadata.len() < specs[*nr].bytes;
            metadata.is_file() && users.iter().any(short)
        };
        match look(Wanted { path, writes, as_found }, &grows, &plan.allow, &around) {
            Ok(one) => drop(seen.insert(key, one)),
            Err(refusal) => refused.push(refusal),
        }
    }
    if !refused.is_empty() {
        return Err(Refused(refused));
    }
    let of = |(key, file): (&PathBuf, &crate::plan::File)| Seen { path: file.path.clone(), ..seen[key].clone() };
    Ok(keys.iter().zip(&plan.files).map(of).collect())
}

/// A file that is to be used.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Its name.
    pub path: &'a Path,
    /// It is written.
    pub writes: bool,
    /// Its data may go, whatever it is.
    pub as_found: bool,
}

/// The file of a name when it was looked at. Everything is opened through this, so that nothing else is written.
#[derive(Clone, Debug)]
pub struct Seen {
    path: PathBuf,
    /// Device, inode, time of birth; `None` if there was nothing.
    identity: Option<(u64, u64, i128)>,
    /// A symlink is followed: it is only read, or allowed.
    follow: bool,
    /// A device that is written, held exclusively.
    held: Option<Arc<File>>,
}

impl Seen {
    /// Whether there was something.
    pub fn is_there(&self) -> bool {
        self.identity.is_some()
    }

    /// A file created in an empty place.
    ///
    /// # Errors
    /// If it cannot be looked at.
    pub fn became(&mut self, file: &File) -> io::Result<()> {
        self.identity = Some(identity(&file.metadata()?));
        Ok(())
    }

    /// Opens the file that was looked at.
    ///
    /// # Errors
    /// If that fails, or there is something else now.
    pub fn open(&self, write: bool, flags: i32) -> io::Result<File> {
        let flags = if self.follow { flags } else { flags | libc::O_NOFOLLOW };
        let file = OpenOptions::new().read(true).write(write).custom_flags(flags).open(&self.path)?;
        match self.identity {
            Some(seen) if seen == identity(&file.metadata()?) => Ok(file),
            None if !write => Ok(file),
            _ => Err(io::Error::other(Reason::Replaced.to_string())),
        }
    }

    /// The file, if it is one of ours.
    fn own(&self) -> Option<File> {
        let is_file = fs::metadata(&self.path).is_ok_and(|metadata| metadata.is_file());
        is_file.then(|| self.open(false, 0).ok()).flatten().filter(mark::is_marked)
    }

    /// A file of ours is to be written.
    pub(crate) fn unsettle(&self) {
        self.own().iter().for_each(mark::mark);
    }

    /// A file of ours is complete.
    pub(crate) fn settle(&self) {
        self.own().iter().for_each(mark::settle);
    }

    /// The device's contents are now ours. It is looked at later, see [`note_devices`]: a capture may still be going
    /// on.
    pub fn note(&self) {
        let number = self.held.as_ref().and_then(|device| device.metadata().ok());
        if let Some(number) = number.map(|metadata| machine::split_device(metadata.rdev())) {
            WRITTEN.lock().unwrap_or_else(PoisonError::into_inner).push((self.path.clone(), number));
        }
    }
}

/// Devices that runs of this process have written.
static WRITTEN: Mutex<Vec<(PathBuf, (u32, u32))>> = Mutex::new(Vec::new());

/// Notes what devices hold that runs of this process have written. Before the next run, and at the end of the process.
pub fn note_devices() {
    let mut written = std::mem::take(&mut *WRITTEN.lock().unwrap_or_else(PoisonError::into_inner));
    written.sort_unstable();
    written.dedup();
    for (path, number) in written {
        // Without it the next run refuses to write, and says how to allow it.
        let _ = device::note(&path, number);
    }
}

fn identity(metadata: &fs::Metadata) -> (u64, u64, i128) {
    (metadata.dev(), metadata.ino(), mark::born_ns(metadata))
}

/// Opens a name without being able to read or write what it leads to; `None` if there is nothing.
fn hold(path: &Path, flags: i32) -> io::Result<Option<File>> {
    match OpenOptions::new().read(true).custom_flags(libc::O_PATH | flags).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Looks at one file and decides; `grows` tells whether an existing one would have to be made longer.
fn look(
    wanted: Wanted<'_>,
    grows: &dyn Fn(&fs::Metadata) -> bool,
    allow: &Allow,
    around: &Surroundings,
) -> Result<Seen, Refusal> {
    let Wanted { path, writes, as_found } = wanted;
    let refusal = |reason| Refusal { path: path.to_owned(), reason };
    let failed = |error: io::Error| refusal(Reason::Holds(format!("a file that cannot be looked at: {error}")));
    let mut handle = hold(path, libc::O_NOFOLLOW).map_err(failed)?;
    let link = handle.as_ref().and_then(|file| file.metadata().ok()).is_some_and(|metadata| metadata.is_symlink());
    if link {
        handle = hold(path, 0).map_err(failed)?;
    }
    let metadata = handle.as_ref().map(File::metadata).transpose().map_err(failed)?;
    let writes = writes || metadata.as_ref().is_some_and(grows);
    let real = match &handle {
        Some(file) => fs::read_link(mark::through(file)).ok(),
        None => real_path(path),
    };
    let is_block = metadata.as_ref().is_some_and(|metadata| metadata.file_type().is_block_device());
    let allowed = is_allowed(path, real.as_deref().unwrap_or(path), is_block, allow);
    let mut held = None;
    let facts = Facts::gather(handle.as_ref(), real, path, link, allow.directory.as_deref(), around);
    let intent = Intent { writes, as_found, allowed };
    let facts = match (&handle, is_block && writes) {
        (Some(handle), true) => facts.of_device(handle, allowed, around, &mut held),
        _ => facts,
    };
    match decide(intent, &facts) {
        Some(reason) => Err(refusal(reason)),
        None => Ok(Seen {
            path: path.to_owned(),
            identity: metadata.as_ref().map(identity),
            follow: !writes || allowed || is_block,
            held: held.map(Arc::new),
        }),
    }
}

/// Looks at a file of a run that has no plan.
///
/// # Errors
/// If it may not be used.
pub fn check_file(wanted: Wanted<'_>, allow: &Allow) -> Result<Seen, Refused> {
    look(wanted, &|_| false, allow, &Surroundings::read()).map_err(|refusal| Refused(vec![refusal]))
}

/// Opens a file, not a device, that the user names (the data of a modelled disk), and marks it. One that is not there
/// is made, for this user alone.
///
/// # Errors
/// If it may not be written, or cannot be.
pub(crate) fn open_named(path: &Path) -> Result<File, OutputError> {
    let failed = |error| OutputError::Io { path: path.to_owned(), error };
    let wanted = Wanted { path, writes: true, as_found: false };
    let seen = check_file(wanted, &Allow::default())?;
    let file = if seen.is_there() {
        seen.open(true, 0)
    } else {
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
    };
    let file = file.map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(failed(io::Error::other("it is not a file")));
    }
    mark::mark(&file);
    Ok(file)
}

/// Paths that every verb of this process allows besides: those of its command line (set once) and of
/// `IOWHY_ALLOW_WRITE`.
pub fn allow_everywhere(paths: Vec<PathBuf>) {
    let _ = EVERYWHERE.set(paths);
}

/// The paths allowed everywhere, in the form of `IOWHY_ALLOW_WRITE` for a child process.
pub fn for_children() -> std::ffi::OsString {
    let variable = std::env::var_os(VARIABLE).unwrap_or_default();
    let paths = std::env::split_paths(&variable).chain(EVERYWHERE.get().into_iter().flatten().cloned());
    std::env::join_paths(paths.filter(|path| *path != Path::new(""))).unwrap_or(variable.clone())
}

/// Paths that may be written, with colons between them.
pub const VARIABLE: &str = "IOWHY_ALLOW_WRITE";

static EVERYWHERE: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Whether the user has named this very file.
pub(crate) fn names(path: &Path, allow: &Allow) -> bool {
    is_allowed(path, &real_path(path).unwrap_or_else(|| path.to_owned()), true, allow)
}

/// Whether the user named a file, by this name or by another, or (not `alone`) a folder above it. Devices have to be
/// named themselves.
fn is_allowed(path: &Path, real: &Path, alone: bool, allow: &Allow) -> bool {
    let variable = std::env::var_os(VARIABLE).unwrap_or_default();
    let of_variable: Vec<PathBuf> = std::env::split_paths(&variable).filter(|path| *path != Path::new("")).collect();
    let named = allow.write.iter().chain(&of_variable).chain(EVERYWHERE.get().into_iter().flatten());
    let covers = |named: &Path| named == real || !alone && named.is_dir() && real.starts_with(named);
    named.into_iter().any(|named| named == path || real_path(named).is_some_and(|named| covers(&named)))
}

/// Whether a job writes to a file.
pub(crate) fn writes(job: &Job, file: u32) -> bool {
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

/// File systems whose files are the kernel's own (`linux/magic.h`).
const PSEUDO: &[i64] = &[
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6265_6570, // configfs
    0xcafe_4a11, // bpf
    0x6165_676c, // pstore
    0xde5e_81e4, // efivarfs
    0xf97c_ff8c, // selinux
    0x1cd1,      // devpts
];

fn is_pseudo(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| PSEUDO.contains(&found.f_type))
}

/// Whether a file is nothing but a hole: its zeroes were never written.
fn is_hole(file: &File) -> bool {
    let Ok(open) = File::open(mark::through(file)) else { return false };
    rustix::fs::seek(open, SeekFrom::Data(0)) == Err(Errno::NXIO)
}

impl Facts {
    fn gather(
        handle: Option<&File>,
        real: Option<PathBuf>,
        path: &Path,
        link: bool,
        directory: Option<&Path>,
        around: &Surroundings,
    ) -> Facts {
        let outside = directory.is_some_and(|directory| {
            // What cannot be followed is not inside.
            !real.as_ref().zip(real_path(directory)).is_some_and(|(real, directory)| real.starts_with(directory))
        });
        let facts = Facts { real: real.unwrap_or_else(|| path.to_owned()), link, outside, ..Facts::default() };
        let Some((handle, metadata)) = handle.and_then(|file| Some((file, file.metadata().ok()?))) else {
            return facts;
        };
        let kind = metadata.file_type();
        let kind = match machine::split_device(metadata.rdev()) {
            _ if kind.is_file() && is_pseudo(handle) => Kind::Pseudo,
            _ if kind.is_file() => Kind::Regular,
            _ if kind.is_dir() => Kind::Directory,
            _ if kind.is_block_device() => Kind::Block,
            // null, zero and full.
            (1, 3 | 5 | 7) if kind.is_char_device() => Kind::Sink,
            _ => Kind::Other,
        };
        if kind != Kind::Regular {
            return Facts { kind, ..facts };
        }
        Facts {
            kind,
            bytes: if metadata.len() > 0 && is_hole(handle) { 0 } else { metadata.len() },
            ours: mark::is_marked(handle),
            swap: around.is_swap(&facts.real),
            holders: around.loops_on((metadata.dev(), metadata.ino())),
            ..facts
        }
    }

    /// With the facts about a device that is to be written; it is held from now on.
    fn of_device(self, handle: &File, allowed: bool, around: &Surroundings, held: &mut Option<File>) -> Facts {
        let Ok(number) = handle.metadata().map(|metadata| machine::split_device(metadata.rdev())) else { return self };
        let Use { mounted, swap, partitions, holders } = Use::of(number, around);
        let facts = Facts { mounted, swap, partitions, holders, ..self };
        *held = device::exclusively(&mark::through(handle));
        if allowed {
            return facts;
        }
        let busy = match held {
            Some(_) => device::writer(number),
            None => Some("another process has it open exclusively".to_owned()),
        };
        let holds = held.as_ref().and_then(|device| {
            let found = device::contents(device, number);
            found.unwrap_or_else(|error| Some(format!("contents that cannot be read: {error}")))
        });
        Facts { busy, holds, ..facts }
    }
}

#[cfg(test)]
mod tests;
