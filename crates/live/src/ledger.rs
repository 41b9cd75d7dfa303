//! Changes of a run to the machine, so that they are undone whatever happens to the run.
//!
//! Before anything is made, a line about it is written and synced to a ledger: one file for each process in
//! [`state_directory`]. After it has been undone another line records that; a ledger without open entries is removed.
//! [`Guard`]s undo when they are dropped: at the end, after an error, and after a signal that ended the run. Opening a
//! ledger first undoes the entries that dead processes (their number is free, or belongs to a process that started
//! later) left open in theirs. Root also looks at those of other users, and undoes instances of tracefs from them.
//!
//! Only provably own changes are undone. A file is made under a name with a random part, its device, inode and time of
//! birth are written down, and only then it gets its own name: at every moment either the random name or the inode
//! marks it as ours. A setting is restored if it still has the value that was set, a mount is taken away if the same
//! thing is mounted there, a loop device if it is on the same file.

mod item;
mod text;

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::RenameFlags;
use rustix::mount::MountFlags;

use crate::state::{io, make_state_directory, of_others, random, rename_with, trusted, user};
use crate::{machine, mark, ublk};

pub use crate::state::{LedgerError, state_directory};

pub use item::{Identity, Item, State};
pub(crate) use item::{end_process, loop_backing};
use text::Line;

/// The writer of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    /// Identity of the system's start; empty if the kernel does not say.
    boot: String,
    /// Number of the process.
    pid: u32,
    /// When it started, in ticks since the system did.
    start: u64,
}

impl Owner {
    fn me() -> Owner {
        let pid = std::process::id();
        Owner { boot: boot(), pid, start: started(pid).unwrap_or(0) }
    }

    /// A name for a ledger; the random part separates those of one process.
    fn name(&self) -> String {
        format!("{}-{}-{:016x}.ledger", self.pid, self.start, random())
    }
}

/// Number and start of the process that wrote the ledger of this name.
fn writer(path: &Path) -> Option<(u32, u64)> {
    let mut parts = path.file_name()?.to_str()?.strip_suffix(".ledger")?.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Identity of this start of the system; empty if the kernel does not say.
pub(crate) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// When a process started, in ticks since the system did; none if there is none, or only what its parent has not
/// collected yet.
pub fn started(pid: u32) -> Option<u64> {
    start_in_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The 22nd field of `/proc/PID/stat`. The second, the name, may contain anything, so it is counted from its end.
fn start_in_stat(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    (!matches!(*fields.first()?, "Z" | "X")).then(|| fields.get(19)?.parse().ok())?
}

/// An entry of a process that is dead, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Number of the process that made it.
    pub pid: u32,
    /// The entry, in words.
    pub what: String,
    /// Its state, or the result.
    pub state: State,
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (of process {}): {}", self.what, self.pid, self.state)
    }
}

/// Leftovers of dead processes, without touching them. Entries of which nothing is left any more are not listed.
///
/// # Errors
/// If the folder cannot be read, or is not ours.
pub fn left_behind(directory: &Path) -> Result<Vec<Left>, LedgerError> {
    survey(directory, false)
}

/// Undoes what dead processes left behind; yields everything that was looked at, but for entries of which nothing was
/// left.
///
/// # Errors
/// If the folder cannot be read, or is not ours.
pub fn sweep(directory: &Path) -> Result<Vec<Left>, LedgerError> {
    survey(directory, true)
}

/// Undoes what this process has made and not undone yet: for its end after a panic that does not unwind, which drops
/// none of its guards. Anything that cannot be undone stays in the ledger, for the next start.
pub fn undo_own(directory: &Path) {
    let Owner { pid, start, .. } = Owner::me();
    for path in ledgers(directory).unwrap_or_default() {
        if writer(&path) != Some((pid, start)) {
            continue;
        }
        let file = OpenOptions::new().append(true).custom_flags(libc::O_NOFOLLOW).open(&path);
        let open = fs::read(&path).ok().and_then(|bytes| text::parse(&bytes).ok());
        if let (Some((_, open)), Ok(mut file)) = (open, file)
            && settle(&mut file, pid, open, true, true, &mut Vec::new())
        {
            // If it stays, the next start finds nothing open in it and removes it.
            let _ = fs::remove_file(&path);
        }
    }
}

/// The living process whose ledger speaks of a path: its number and start.
pub(crate) fn owner_of(directory: &Path, path: &Path) -> Option<(u32, u64)> {
    ledgers(directory).ok()?.into_iter().find_map(|ledger| {
        let (pid, start) = writer(&ledger).filter(|(pid, start)| started(*pid) == Some(*start))?;
        let (_, open) = text::parse(&fs::read(&ledger).ok()?).ok()?;
        let speaks = open.values().any(|(item, _)| matches!(item, Item::Directory { path: it, .. } if it == path));
        speaks.then_some((pid, start))
    })
}

/// Whether a living process has made the block device of this name (`loop640`).
pub(crate) fn has_made(name: &str) -> bool {
    let alive = |path: &PathBuf| writer(path).is_some_and(|(pid, start)| started(pid) == Some(start));
    ledgers(&state_directory()).unwrap_or_default().iter().filter(|path| alive(path)).any(|ledger| {
        let open = fs::read(ledger).ok().and_then(|bytes| text::parse(&bytes).ok()).map(|(_, open)| open);
        open.iter().flatten().any(|(_, (item, _))| match item {
            Item::Loop { index, .. } => name == format!("loop{index}"),
            Item::Ublk { index, .. } => name == format!("ublkb{index}"),
            Item::Zram { index, .. } => name == format!("zram{index}"),
            _ => false,
        })
    })
}

/// Numbers of the living processes that have a ledger, other than this one.
pub fn running(directory: &Path) -> Vec<u32> {
    let mut names = ledgers(directory).unwrap_or_default();
    names.extend(of_others().iter().flat_map(|(directory, _)| files(directory).unwrap_or_default()));
    let alive = names.iter().filter_map(|path| writer(path)).filter(|(pid, start)| started(*pid) == Some(*start));
    let mut pids: Vec<u32> = alive.map(|(pid, _)| pid).filter(|pid| *pid != std::process::id()).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// The ledgers in a folder of ours.
fn ledgers(directory: &Path) -> Result<Vec<PathBuf>, LedgerError> {
    let found = files(directory)?;
    if directory.exists() {
        trusted(directory)?;
    }
    Ok(found)
}

/// The ledgers in a folder, the one last written to first: its files may be in those of another. A folder that is not
/// there has none.
fn files(directory: &Path) -> Result<Vec<PathBuf>, LedgerError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(io("read the folder", directory, ""))?,
    };
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "ledger"));
    let written = |path: &PathBuf| fs::symlink_metadata(path).and_then(|metadata| metadata.modified()).ok();
    found.sort_by_cached_key(|path| (std::cmp::Reverse(written(path)), path.clone()));
    Ok(found)
}

fn survey(directory: &Path, undo: bool) -> Result<Vec<Left>, LedgerError> {
    let mut left = Vec::new();
    look_into(ledgers(directory)?, (user(), true), undo, &mut left);
    for (folder, owner) in of_others() {
        look_into(files(&folder).unwrap_or_default(), (owner, false), undo, &mut left);
    }
    Ok(left)
}

/// Looks into ledgers of an owner; of others' only instances of tracefs are of interest.
fn look_into(paths: Vec<PathBuf>, (owner, ours): (u32, bool), undo: bool, left: &mut Vec<Left>) {
    for path in paths {
        let Some((pid, start)) = writer(&path) else {
            let state = State::Stuck("its name is not that of a ledger; look at it, then remove it".to_owned());
            left.push(Left { pid: 0, what: format!("the file {}", path.display()), state });
            continue;
        };
        if started(pid) == Some(start) {
            continue;
        }
        // The holder of the lock is at work on it: its owner in another name space of processes, or another sweep.
        let Ok(mut file) = OpenOptions::new().read(true).append(true).custom_flags(libc::O_NOFOLLOW).open(&path) else {
            continue;
        };
        if !lock_soon(&file)
            || file.metadata().map_or(true, |metadata| metadata.nlink() == 0 || metadata.uid() != owner)
        {
            continue;
        }
        let mut bytes = Vec::new();
        if file.read_to_end(&mut bytes).is_err() {
            continue;
        }
        match text::parse(&bytes) {
            Ok((head, mut open)) => {
                let all = open.len();
                if !ours {
                    open.retain(|_, (item, _)| is_instance(item));
                }
                let only = open.len() == all;
                let same_boot = head.is_none_or(|head| head.boot == boot());
                let all_settled = settle(&mut file, pid, open, same_boot, undo, left);
                if undo && all_settled && only {
                    // If it stays, the next start finds nothing open in it and removes it.
                    let _ = fs::remove_file(&path);
                }
            }
            Err(line) => left.push(Left {
                pid,
                what: format!("the ledger {}", path.display()),
                state: State::Stuck(format!("line {line} is not one of a ledger; look at it, then remove it")),
            }),
        }
    }
}

/// An instance of tracefs with a name of ours: it is removed, no matter which user has written its entry.
fn is_instance(item: &Item) -> bool {
    const FOLDERS: [&str; 2] = ["/sys/kernel/tracing/instances", "/sys/kernel/debug/tracing/instances"];
    let Item::TraceInstance { path } = item else { return false };
    let named = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("iowhy-"));
    named && path.parent().is_some_and(|folder| FOLDERS.iter().any(|known| folder == Path::new(known)))
}

/// Looks at the open entries of a dead ledger, the latest first, and undoes them if asked to. Processes come before all
/// else: things that one of them holds could not be undone. Whether none is open any more.
fn settle(file: &mut File, pid: u32, open: text::Open, same_boot: bool, undo: bool, left: &mut Vec<Left>) -> bool {
    let mut all = true;
    let (processes, rest): (Vec<_>, Vec<_>) =
        open.into_iter().rev().partition(|(_, (item, _))| matches!(item, Item::Process { .. }));
    for (id, (item, identity)) in processes.into_iter().chain(rest) {
        let state =
            if undo { item.undo(identity.as_ref(), same_boot) } else { item.state(identity.as_ref(), same_boot) };
        match &state {
            State::Stuck(_) | State::There => all = false,
            // A line that cannot be written only means that the next sweep looks once more.
            State::Gone | State::Undone | State::NotOurs(_) if undo => {
                let _ = file.write_all(Line::Settled(id).to_text().as_bytes());
            }
            State::Gone | State::Undone | State::NotOurs(_) => {}
        }
        if state != State::Gone {
            left.push(Left { pid, what: item.to_string(), state });
        }
    }
    all
}

/// Takes the lock on a ledger; false if another process has it.
fn lock(file: &File) -> bool {
    file.try_lock().is_ok()
}

/// Takes the lock on the ledger of a dead process. One that it started last holds the lock, too, until it executes its
/// own program; under load that takes milliseconds, and a sweep that passed over the ledger would leave everything.
fn lock_soon(file: &File) -> bool {
    const STEP: Duration = Duration::from_millis(10);
    const STEPS: u32 = 25;
    (0..STEPS).any(|_| {
        let locked = lock(file);
        if !locked {
            std::thread::sleep(STEP);
        }
        locked
    })
}

/// The entries of this process.
#[derive(Debug)]
struct Book {
    directory: PathBuf,
    /// The ledger's file; made with the first entry.
    file: Option<(File, PathBuf)>,
    next: u64,
    open: BTreeMap<u64, (Item, Option<Identity>)>,
}

impl Book {
    /// Appends lines; on the disk when this returns, if `sync`.
    fn write(&mut self, lines: &[Line<'_>], sync: bool) -> Result<(), LedgerError> {
        let mut text = String::new();
        if self.file.is_none() {
            let owner = Owner::me();
            let path = make_state_directory(&self.directory)?.join(owner.name());
            let advice = "; set XDG_STATE_HOME to a folder that can be written";
            let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path).map_err(io(
                "make the ledger",
                &path,
                advice,
            ))?;
            lock(&file);
            text.push_str(&Line::Head(&owner).to_text());
            self.file = Some((file, path));
        }
        lines.iter().for_each(|line| text.push_str(&line.to_text()));
        let Some((file, path)) = &mut self.file else { return Ok(()) };
        let advice = "; is its disk full?";
        file.write_all(text.as_bytes()).map_err(io("write to the ledger", path, advice))?;
        if sync { file.sync_data().map_err(io("sync the ledger", path, advice)) } else { Ok(()) }
    }

    /// Writes down planned changes.
    fn intend(&mut self, items: Vec<Item>) -> Result<Vec<u64>, LedgerError> {
        let first = self.next;
        self.next += items.len() as u64;
        let lines: Vec<Line<'_>> = items.iter().zip(first..).map(|(item, id)| Line::Intent(id, item)).collect();
        self.write(&lines, true)?;
        self.open.extend(items.into_iter().zip(first..).map(|(item, id)| (id, (item, None))));
        Ok((first..self.next).collect())
    }

    /// Writes down how what has been made is to be recognised.
    fn identify(&mut self, identities: Vec<(u64, Identity)>) -> Result<(), LedgerError> {
        let lines: Vec<Line<'_>> =
            identities.iter().map(|(id, identity)| Line::Identified(*id, identity.clone())).collect();
        self.write(&lines, true)?;
        for (id, identity) in identities {
            if let Some(entry) = self.open.get_mut(&id) {
                entry.1 = Some(identity);
            }
        }
        Ok(())
    }

    /// Strikes out an entry. Losing this line is harmless if the thing is gone: then the next start finds nothing.
    fn settle(&mut self, ids: &[u64], sync: bool) -> Result<(), LedgerError> {
        ids.iter().for_each(|id| drop(self.open.remove(id)));
        if self.open.is_empty()
            && let Some((_, path)) = self.file.take()
        {
            return fs::remove_file(&path).map_err(io("remove the ledger", &path, ""));
        }
        let lines: Vec<Line<'_>> = ids.iter().map(|id| Line::Settled(*id)).collect();
        self.write(&lines, sync)
    }

    /// Undoes entries, the latest first.
    fn undo(&mut self, ids: &[u64]) -> Result<(), LedgerError> {
        let mut failed = None;
        let mut done = Vec::new();
        for id in ids.iter().rev() {
            let Some((item, identity)) = self.open.get(id) else { continue };
            match item.undo(identity.as_ref(), true) {
                State::Stuck(reason) => failed = Some(LedgerError::Undo { item: item.to_string(), reason }),
                _ => done.push(*id),
            }
        }
        let settled = self.settle(&done, false);
        failed.map_or(settled, Err)
    }
}

/// Changes that this process could not undo.
static STUCK: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps a failure to undo for the end of the process.
pub(crate) fn tell(error: &LedgerError) {
    STUCK.lock().unwrap_or_else(PoisonError::into_inner).push(error.to_string());
}

/// Changes that this process could not undo, in words; each is reported once.
pub fn stuck() -> Vec<String> {
    std::mem::take(&mut *STUCK.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The ledger of this process. Clones share it.
#[derive(Clone, Debug)]
pub struct Ledger {
    book: Arc<Mutex<Book>>,
}

/// A change stays as long as this lives, and is undone when it is dropped; it stays for good after
/// [`keep`](Guard::keep).
#[must_use = "the change is undone when this is dropped"]
#[derive(Debug)]
pub struct Guard {
    book: Arc<Mutex<Book>>,
    ids: Vec<u64>,
}

fn locked(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    // A thread that panicked while it held the book may have left an entry too many, which is harmless.
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Guard {
    /// Both as one: the later change is undone first.
    pub fn and(mut self, mut later: Guard) -> Guard {
        self.ids.append(&mut later.ids);
        self
    }

    /// Undoes now, and reports a failure.
    ///
    /// # Errors
    /// If something could not be undone; its entry stays, and the next start tries again.
    pub fn undo(mut self) -> Result<(), LedgerError> {
        let ids = std::mem::take(&mut self.ids);
        locked(&self.book).undo(&ids)
    }

    /// Undoes now. A failure must not cost the measurement: it is reported at the end, see [`stuck`].
    pub fn release(self) {
        if let Err(error) = self.undo() {
            tell(&error);
        }
    }

    /// Leaves everything as it is, for good.
    ///
    /// # Errors
    /// If that could not be written down: then the next start would undo it.
    pub fn keep(mut self) -> Result<(), LedgerError> {
        let ids = std::mem::take(&mut self.ids);
        locked(&self.book).settle(&ids, true)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.ids.is_empty() {
            // What fails stays in the ledger, and the next start tries again.
            if let Err(error) = locked(&self.book).undo(&self.ids) {
                tell(&error);
            }
        }
    }
}

/// How a loop device is attached.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopOptions {
    /// It goes round the page cache of the file below.
    pub direct_io: bool,
    /// Logical block size; 0 for the kernel's choice.
    pub block_bytes: u32,
}

impl Ledger {
    /// Undoes what dead processes left behind, and opens the ledger of this process. Its file is made with the first
    /// entry only, so a run that changes nothing leaves no trace.
    ///
    /// # Errors
    /// If the folder for ledgers is not ours, or cannot be read.
    pub fn open() -> Result<(Ledger, Vec<Left>), LedgerError> {
        Ledger::open_in(&state_directory())
    }

    /// The same with another folder for ledgers.
    ///
    /// # Errors
    /// As for [`open`](Ledger::open).
    pub fn open_in(directory: &Path) -> Result<(Ledger, Vec<Left>), LedgerError> {
        let left = sweep(directory)?;
        let book = Book { directory: directory.to_owned(), file: None, next: 1, open: BTreeMap::new() };
        Ok((Ledger { book: Arc::new(Mutex::new(book)) }, left))
    }

    fn guard(&self, ids: Vec<u64>) -> Guard {
        Guard { book: Arc::clone(&self.book), ids }
    }

    /// Makes empty files, open for reading and writing; with two syncs of the ledger, however many there are. They
    /// carry a mark by which [`guard`](crate::guard) knows them as ours in later runs.
    ///
    /// # Errors
    /// If one exists already or cannot be made; then none is.
    pub fn create_files(&self, paths: &[PathBuf]) -> Result<(Vec<File>, Guard), LedgerError> {
        let paths = paths.iter().map(|path| absolute(path)).collect::<Result<Vec<_>, _>>()?;
        let temporaries: Vec<PathBuf> = paths.iter().map(|path| temporary(path)).collect();
        let items = paths.iter().zip(&temporaries);
        let items = items.map(|(path, temporary)| Item::File { path: path.clone(), temporary: temporary.clone() });
        let mut book = locked(&self.book);
        let guard = self.guard(book.intend(items.collect())?);
        let made = (|| {
            let mut files = Vec::with_capacity(paths.len());
            let mut identities = Vec::with_capacity(paths.len());
            for ((path, temporary), id) in paths.iter().zip(&temporaries).zip(&guard.ids) {
                let file = OpenOptions::new().read(true).write(true).create_new(true).open(temporary).map_err(io(
                    "make the file",
                    path,
                    "",
                ))?;
                identities.push((*id, Identity::of_file(&file).map_err(io("look at", path, ""))?));
                mark::mark(&file);
                files.push(file);
            }
            book.identify(identities)?;
            for (path, temporary) in paths.iter().zip(&temporaries) {
                rename_new(temporary, path).map_err(io("make the file", path, ""))?;
            }
            Ok(files)
        })();
        // The guard takes the book when it is dropped.
        drop(book);
        made.map(|files| (files, guard))
    }

    /// Makes a folder. It is removed again if it is empty then.
    ///
    /// # Errors
    /// If it exists already or cannot be made.
    pub fn create_directory(&self, path: &Path) -> Result<Guard, LedgerError> {
        self.make_directory(path, false)
    }

    /// Makes a folder for one run. It is removed with all its contents, of any origin.
    ///
    /// # Errors
    /// If it exists already or cannot be made.
    pub fn create_scratch_directory(&self, path: &Path) -> Result<Guard, LedgerError> {
        self.make_directory(path, true)
    }

    fn make_directory(&self, path: &Path, scratch: bool) -> Result<Guard, LedgerError> {
        let path = absolute(path)?;
        let temporary = temporary(&path);
        let mut book = locked(&self.book);
        let item = Item::Directory { path: path.clone(), temporary: temporary.clone(), scratch };
        let guard = self.guard(book.intend(vec![item])?);
        let made = (|| {
            fs::create_dir(&temporary).map_err(io("make the folder", &path, ""))?;
            let folder = File::open(&temporary).map_err(io("open", &temporary, ""))?;
            let identity = Identity::of_file(&folder).map_err(io("look at", &temporary, ""))?;
            book.identify(guard.ids.iter().map(|id| (*id, identity.clone())).collect())?;
            rename_new(&temporary, &path).map_err(io("make the folder", &path, ""))
        })();
        drop(book);
        made.map(|()| guard)
    }

    /// Mounts `source` (a device, or any word for file systems without one) on an existing folder.
    ///
    /// # Errors
    /// If something is mounted there already, or the kernel refuses.
    pub fn mount(&self, source: &Path, target: &Path, filesystem: &str, data: &str) -> Result<Guard, LedgerError> {
        let target = fs::canonicalize(target).map_err(io("find the folder", target, ""))?;
        if machine::current_mounts().iter().any(|mount| mount.point == target) {
            return Err(LedgerError::Mounted(target));
        }
        let item = Item::Mount { source: source.to_owned(), target: target.clone(), filesystem: filesystem.to_owned() };
        let guard = self.guard(locked(&self.book).intend(vec![item])?);
        let call = || -> io::Result<()> {
            let data = CString::new(data)?;
            Ok(rustix::mount::mount(source, &target, filesystem, MountFlags::empty(), &*data)?)
        };
        call().map_err(io("mount something on", &target, "; only root may"))?;
        Ok(guard)
    }

    /// Attaches a loop device, with a number that none had before, to a file; yields its node.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn attach_loop(&self, backing: &Path, options: LoopOptions) -> Result<(PathBuf, Guard), LedgerError> {
        let file = OpenOptions::new().read(true).write(true).open(backing).map_err(io("open", backing, ""))?;
        let metadata = file.metadata().map_err(io("look at", backing, ""))?;
        for index in FIRST_LOOP..LAST_LOOP {
            if Path::new(&format!("/sys/block/loop{index}")).exists() {
                continue;
            }
            let node = PathBuf::from(format!("/dev/loop{index}"));
            let item = Item::Loop { index, device: metadata.dev(), inode: metadata.ino() };
            let guard = self.guard(locked(&self.book).intend(vec![item])?);
            match item::add_loop(index) {
                // Another process was quicker: the number is theirs.
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                    guard.keep()?;
                    continue;
                }
                added => added.map_err(io("make the loop device", &node, "; only root may"))?,
            }
            item::configure_loop(&node, &file, options).map_err(io("attach a file to", &node, ""))?;
            return Ok((node, guard));
        }
        let error = io::Error::from(io::ErrorKind::QuotaExceeded);
        Err(io("find a free loop device, for", backing, "")(error))
    }

    /// Makes a block device that a process will serve (ublk), with a number that none had before, and yields the
    /// number. The block device appears when it is started.
    ///
    /// # Errors
    /// If this kernel has none, or refuses.
    pub(crate) fn add_ublk(&self, device: &ublk::Device) -> Result<(u32, Guard), LedgerError> {
        let place = Path::new(ublk::CONTROL);
        let advice = "; it needs root and `modprobe ublk_drv`";
        let mut control = ublk::Control::open().map_err(io("open", place, advice))?;
        for index in FIRST_LOOP..LAST_LOOP {
            if control.info(index).map_err(io("ask", place, ""))?.is_some() {
                continue;
            }
            let token = random();
            let guard = self.guard(locked(&self.book).intend(vec![Item::Ublk { index, token }])?);
            match control.add(index, device, token) {
                // Another process was quicker: the number is theirs, and so is the token on it.
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                    guard.keep()?;
                    continue;
                }
                added => added.map_err(io("make the block device", &ublk::node(index), ""))?,
            }
            control.set_params(index, device).map_err(io("give its size to", &ublk::node(index), ""))?;
            return Ok((index, guard));
        }
        let error = io::Error::from(io::ErrorKind::QuotaExceeded);
        Err(io("find a free number with", place, "")(error))
    }

    /// Writes a value to a file of sysfs or procfs; none if it is that already.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn set(&self, path: &Path, value: &str) -> Result<Option<Guard>, LedgerError> {
        let advice = "; only root may change most settings";
        let path = &absolute(path)?;
        let old = item::setting(path).map_err(io("read the setting", path, ""))?;
        if old == value {
            return Ok(None);
        }
        let main = Item::Setting { path: path.to_owned(), old, new: value.to_owned() };
        // Settings that the kernel changes along with it: those derived from it come back after it, and those that it
        // switches off come back before it, because its own old value, 0, cannot be written.
        let follows = |followers: Vec<PathBuf>, new: Option<&str>| {
            let follower = |path: PathBuf| {
                let old = item::setting(&path).ok()?;
                Some(Item::Setting { path, new: new.unwrap_or(&old).to_owned(), old })
            };
            followers.into_iter().filter_map(follower).collect::<Vec<_>>()
        };
        let mut items = follows(item::derived_from(path), None);
        items.push(main);
        items.extend(follows(item::switched_off_by(path), Some("0")));
        let guard = self.guard(locked(&self.book).intend(items.clone())?);
        item::write_setting(path, value).map_err(io("write the setting", path, advice))?;
        // The kernel may have rounded it; what it made of it is what we have set.
        let mut identities = Vec::new();
        for (id, item) in guard.ids.iter().zip(&items) {
            let Item::Setting { path, new, .. } = item else { continue };
            let now = item::setting(path).map_err(io("read the setting", path, ""))?;
            if now != *new {
                identities.push((*id, Identity::Value(now)));
            }
        }
        if !identities.is_empty() {
            locked(&self.book).identify(identities)?;
        }
        Ok(Some(guard))
    }

    /// Creates a disk in memory (zram) of `bytes` bytes, and yields its node. Known limit: a process that is killed
    /// after the kernel has made it and before that is written down, some microseconds later, leaves it.
    ///
    /// # Errors
    /// If this kernel has none, or refuses.
    pub fn add_zram(&self, bytes: u64) -> Result<(PathBuf, Guard), LedgerError> {
        let control = Path::new("/sys/class/zram-control");
        let index = item::add_zram().map_err(io("make a disk in memory with", control, "; it needs zram and root"))?;
        let sequence = item::zram_sequence(index).unwrap_or(0);
        let guard = self.guard(locked(&self.book).intend(vec![Item::Zram { index, sequence }])?);
        let size = PathBuf::from(format!("/sys/block/zram{index}/disksize"));
        fs::write(&size, bytes.to_string()).map_err(io("give a size with", &size, ""))?;
        Ok((PathBuf::from(format!("/dev/zram{index}")), guard))
    }

    /// Writes down a process that was started; it is ended when the guard goes.
    ///
    /// # Errors
    /// If that cannot be written down.
    pub fn note_process(&self, pid: u32) -> Result<Guard, LedgerError> {
        let item = Item::Process { pid, start: started(pid).unwrap_or(0) };
        Ok(self.guard(locked(&self.book).intend(vec![item])?))
    }

    /// A unique name for a folder next to the ledgers. Nothing is made.
    pub(crate) fn scratch_path(&self, name: &str) -> PathBuf {
        locked(&self.book).directory.join(format!("{name}-{:016x}", random()))
    }

    /// Makes an instance of tracefs (mounted at `tracefs`), and yields its folder.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn create_trace_instance(&self, tracefs: &Path) -> Result<(PathBuf, Guard), LedgerError> {
        let path = absolute(tracefs)?.join("instances").join(format!("iowhy-{:016x}", random()));
        let guard = self.guard(locked(&self.book).intend(vec![Item::TraceInstance { path: path.clone() }])?);
        match fs::create_dir(&path).map_err(io("make the trace instance", &path, "; only root may")) {
            Ok(()) => Ok((path, guard)),
            Err(error) => {
                // Who may not make one may not look for it, either.
                guard.keep()?;
                Err(error)
            }
        }
    }
}

/// Loop devices and served ones of ours begin here: others count from 0.
const FIRST_LOOP: u32 = 640;
/// And end before this.
const LAST_LOOP: u32 = 896;

fn absolute(path: &Path) -> Result<PathBuf, LedgerError> {
    std::path::absolute(path).map_err(io("find", path, ""))
}

/// A unique name next to `path`.
fn temporary(path: &Path) -> PathBuf {
    let mut name = OsString::from(".iowhy-");
    name.push(format!("{:016x}", random()));
    path.with_file_name(name)
}

/// The value of a setting: of a list the chosen word.
pub(crate) fn setting_of(path: &Path) -> io::Result<String> {
    item::setting(path)
}

/// Renames, but never onto something that exists.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let Err(error) = rename_with(from, to, RenameFlags::NOREPLACE) else { return Ok(()) };
    if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) {
        return Err(error);
    }
    // Some file systems do not know that flag. A link does not replace either; folders have no links.
    if from.is_dir() {
        return if to.symlink_metadata().is_ok() {
            Err(io::ErrorKind::AlreadyExists.into())
        } else {
            fs::rename(from, to)
        };
    }
    fs::hard_link(from, to)?;
    fs::remove_file(from)
}

#[cfg(test)]
mod tests;
