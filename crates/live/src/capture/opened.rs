//! Which files the descriptors of traced tasks are. A call names a descriptor only, and one that is served by the page
//! cache (or goes past it) may cause no event that names its file.
//!
//! ```text
//! before     files open when the capture begins are in /proc/PID/fd, with their position in fdinfo
//! during     fanotify names the thread and file of an open, without a time; the trace has the time and thread
//!            which descriptor, without a file. Both are in the order of the thread, so they are matched one by one
//! ```
//! Not every open has its notification: some file systems (proc, sysfs) send none, and a second open of a file by the
//! same thread is merged with the first one while that waits to be read. So each notification is moved to the earliest
//! open that it can be of, and to the latest; only where both are the same one it is taken. It can be of an open that
//! began before it was read, and ended after the read before that found nothing; of a folder, if a folder was asked
//! for; and of the file whose pages the calls on that descriptor touch, if they touch any. An open that is left over,
//! and whose calls have bios for data, has a notification for certain: where all that it can have name one file on that
//! disk, it is that file. Files are identified by handles that are resolved without opening anything
//! (`open_by_handle_at` with O_PATH).
//!
//! Reference: fanotify(7), open_by_handle_at(2). Known limits: opens by io_uring have notifications but no system call,
//! and are left to be guessed by their pages; remote file systems are not asked, because a server that is gone would
//! hold the capture up; kernels before 5.1 cannot say which file it was.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::CString;
use std::fmt::Write;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use iowhy_stack::trace::{Dev, Inode, Record, Rwbs, Seen};
use iowhy_stack::units::Nanos;

use crate::{machine, mark};

/// The most notifications that are kept.
const MOST: usize = 1 << 20;

/// The file of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// `file`, `block` (the inode is the device's number), `folder`, `other` for what holds no data, or `unknown`.
    pub(super) kind: &'static str,
    pub(super) inode: Inode,
    pub(super) path: Option<String>,
}

/// That a thread opened something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) thread: u32,
    /// Not before this, CLOCK_MONOTONIC.
    pub(super) after: u64,
    /// And not after this.
    pub(super) before: u64,
    pub(super) target: Target,
    /// By the kernel, to run it: no descriptor comes of that.
    pub(super) to_execute: bool,
}

/// A descriptor that was open already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenDescriptor {
    pub(super) pid: u32,
    pub(super) fd: i32,
    /// When it was looked at, CLOCK_MONOTONIC.
    pub(super) at: u64,
    pub(super) target: Target,
    /// Where it stands.
    pub(super) pos: u64,
    /// It is closed when another program is started.
    pub(super) cloexec: bool,
}

impl Target {
    /// The same with the device that the events of its pages have: btrfs shows another one to programs.
    fn on(mut self, dev: Dev) -> Target {
        if self.kind == "file" {
            self.inode.dev = dev;
        }
        self
    }
}

fn target(metadata: &Metadata, path: Option<&Path>) -> Target {
    let number = |number: u64| Dev::new(libc::major(number), libc::minor(number));
    let kind = metadata.file_type();
    let mut inode = Inode { dev: number(metadata.dev()), ino: metadata.ino() };
    let kind = if kind.is_file() {
        "file"
    } else if kind.is_block_device() {
        inode = Inode { dev: Dev::default(), ino: u64::from(number(metadata.rdev()).0) };
        "block"
    } else if kind.is_dir() {
        "folder"
    } else {
        "other"
    };
    let named = path.filter(|path| path.is_absolute() && path.parent().is_some());
    Target { kind, inode, path: named.map(|path| path.to_string_lossy().into_owned()) }
}

/// Position and flags in a text of `/proc/PID/fdinfo`.
pub(super) fn fdinfo(text: &str) -> (u64, bool) {
    let of = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let flags = of("flags:").and_then(|flags| u64::from_str_radix(flags, 8).ok()).unwrap_or(0);
    (of("pos:").and_then(|pos| pos.parse().ok()).unwrap_or(0), flags & libc::O_CLOEXEC as u64 != 0)
}

/// Open files of these processes.
pub(super) fn held(pids: &[u32]) -> Vec<OpenDescriptor> {
    let mounts = machine::current_mounts();
    let served = || mounts.iter().filter(|mount| mount.is_served());
    let mut all = Vec::new();
    for pid in pids {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let Ok(path) = fs::read_link(entry.path()) else { continue };
            if served().any(|mount| path.starts_with(&mount.point)) {
                continue;
            }
            let Ok(metadata) = fs::metadata(entry.path()) else { continue };
            let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
            let (pos, cloexec) = fdinfo(&info);
            let at = super::monotonic_ns();
            let mut target = target(&metadata, Some(&path));
            if target.inode.dev.major() == 0
                && let Some(mount) = machine::mount_of(&mounts, &path)
            {
                target = target.on(Dev::new(mount.number.0, mount.number.1));
            }
            all.push(OpenDescriptor { pid: *pid, fd, at, target, pos, cloexec });
        }
    }
    all
}

/// The path of an open descriptor, if it is of this inode, or of the block device of this number.
pub(super) fn path_of(pid: u32, fd: u32, ino: u64) -> Option<String> {
    let link = PathBuf::from(format!("/proc/{pid}/fd/{fd}"));
    let path = fs::read_link(&link).ok()?;
    let found = target(&fs::metadata(&link).ok()?, Some(&path));
    found.path.filter(|_| found.inode.ino == ino)
}

/// All processes but this one.
pub(super) fn everybody() -> Vec<u32> {
    let own = std::process::id();
    let mut all = machine::numbers_in("/proc");
    all.retain(|pid| *pid != own);
    all.sort_unstable();
    all
}

/// Listens to who opens what.
#[derive(Debug)]
pub(super) struct Opens {
    group: File,
    /// Where each file system is mounted, and the device that its pages have, by its number. Nothing of it is held
    /// open, so that it can be unmounted.
    folders: BTreeMap<[u8; 8], (PathBuf, Dev)>,
    /// When it was last seen that nothing waits.
    empty_at: u64,
    found: Vec<Opened>,
    buffer: Vec<u8>,
}

/// The file of a descriptor, or the error.
///
/// # Safety
/// It is the result of a system call that makes a descriptor, which nobody else has.
unsafe fn made(result: libc::c_long) -> io::Result<File> {
    match RawFd::try_from(result) {
        // SAFETY: as the caller says.
        Ok(fd) if fd >= 0 => Ok(unsafe { File::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The number that handles of a file system have with them.
fn number_of(folder: &File) -> Option<[u8; 8]> {
    // Two ints, the first one in the lower half.
    let number = rustix::fs::fstatvfs(folder).ok()?.f_fsid;
    let [low, high] = [number as u32, (number >> 32) as u32].map(u32::to_ne_bytes);
    [low, high].concat().try_into().ok()
}

impl Opens {
    /// Begins to listen to the file systems that can notify.
    pub(super) fn start() -> io::Result<Opens> {
        let flags = libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_UNLIMITED_QUEUE | libc::FAN_UNLIMITED_MARKS;
        let flags = flags | libc::FAN_REPORT_TID | libc::FAN_REPORT_FID;
        // SAFETY: it takes two numbers, and yields a new descriptor or an error.
        let group = unsafe { made(libc::fanotify_init(flags, (libc::O_RDONLY | libc::O_LARGEFILE) as u32).into()) }?;
        let mut folders = BTreeMap::new();
        for mount in machine::current_mounts() {
            if mount.is_served() {
                continue;
            }
            let Ok(folder) = File::open(&mount.point) else { continue };
            if !folder.metadata().is_ok_and(|metadata| metadata.is_dir()) {
                continue;
            }
            let Some(number) = number_of(&folder) else { continue };
            let Ok(path) = CString::new(mount.point.as_os_str().as_bytes()) else { continue };
            if folders.contains_key(&number) {
                continue;
            }
            // SAFETY: the group is open, and the path is a string that ends and outlives the call.
            let marked = unsafe {
                libc::fanotify_mark(
                    group.as_raw_fd(),
                    libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM,
                    libc::FAN_OPEN | libc::FAN_OPEN_EXEC | libc::FAN_ONDIR,
                    libc::AT_FDCWD,
                    path.as_ptr(),
                )
            };
            if marked == 0 {
                folders.insert(number, (mount.point, Dev::new(mount.number.0, mount.number.1)));
            }
        }
        if folders.is_empty() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Opens { group, folders, empty_at: 0, found: Vec::new(), buffer: vec![0; 1 << 16] })
    }

    /// Takes what has come.
    pub(super) fn take(&mut self) {
        loop {
            let begun = super::monotonic_ns();
            let read = match self.group.read(&mut self.buffer) {
                Ok(read) if read > 0 => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                _ => {
                    self.empty_at = begun;
                    return;
                }
            };
            let before = super::monotonic_ns();
            let notifications = parse(&self.buffer[..read]);
            let mut folders: BTreeMap<[u8; 8], Option<File>> = BTreeMap::new();
            for Notification { thread, fsid, handle, to_execute } in notifications {
                // Folders are not opened to find out which they are: that would notify the next listener, who
                // would do the same.
                let target = match handle {
                    None => Some(Target { kind: "folder", inode: Inode::default(), path: None }),
                    Some(handle) => {
                        let known = self.folders.get(&fsid);
                        let folder = folders.entry(fsid).or_insert_with(|| File::open(&known?.0).ok());
                        let target = folder.as_ref().and_then(|folder| resolve(folder, &handle));
                        known.zip(target).map(|((_, dev), target)| target.on(*dev))
                    }
                };
                // What cannot be resolved is kept, too: something was opened.
                let target = target.unwrap_or(Target { kind: "unknown", inode: Inode::default(), path: None });
                if self.found.len() < MOST {
                    self.found.push(Opened { thread, after: self.empty_at, before, target, to_execute });
                }
            }
        }
    }

    /// Forgets what came before a time.
    pub(super) fn forget(&mut self, before: u64) {
        self.found.retain(|one| one.before >= before);
    }

    /// The opened files up to now, which are kept.
    pub(super) fn so_far(&mut self) -> Vec<Opened> {
        self.take();
        self.found.clone()
    }

    /// The opened files.
    pub(super) fn finish(mut self) -> Vec<Opened> {
        self.take();
        self.found
    }
}

/// It becomes readable when there is something.
impl AsFd for Opens {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.group.as_fd()
    }
}

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notification {
    pub(super) thread: u32,
    pub(super) fsid: [u8; 8],
    /// Length of the handle proper, its type, and it; nothing if it is a folder.
    pub(super) handle: Option<Vec<u8>>,
    /// It is of a program being started.
    pub(super) to_execute: bool,
}

/// The notifications in these bytes. Senseless bytes end them.
pub(super) fn parse(mut bytes: &[u8]) -> Vec<Notification> {
    let mut all = Vec::new();
    let word = |bytes: &[u8], at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let half = |bytes: &[u8], at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    // struct fanotify_event_metadata, then struct fanotify_event_info_fid.
    let one = |event: &[u8]| -> Option<Notification> {
        let head = usize::from(half(event, 6)?);
        let mask = u64::from_ne_bytes(event.get(8..16)?.try_into().ok()?);
        let info = event.get(head..)?;
        if info.first() != Some(&1) {
            return None;
        }
        let len = usize::from(half(info, 2)?);
        let fsid = info.get(4..12)?.try_into().ok()?;
        let handle = info.get(12..len)?;
        let whole = word(handle, 0)? as usize + 8 <= handle.len();
        let handle = (mask & libc::FAN_ONDIR == 0).then(|| handle.to_vec());
        let to_execute = mask & libc::FAN_OPEN_EXEC != 0;
        whole.then_some(Notification { thread: word(event, 20)?, fsid, handle, to_execute })
    };
    while let Some(len) = word(bytes, 0).map(|len| len as usize)
        && len >= 24
        && let Some(event) = bytes.get(..len)
    {
        all.extend(one(event));
        bytes = &bytes[len..];
    }
    all
}

fn resolve(folder: &File, handle: &[u8]) -> Option<Target> {
    // A file_handle is two ints and bytes: words are aligned as it has to be.
    let mut aligned = vec![0_u32; handle.len().div_ceil(4)];
    for (word, bytes) in aligned.iter_mut().zip(handle.chunks(4)) {
        let mut four = [0; 4];
        four[..bytes.len()].copy_from_slice(bytes);
        *word = u32::from_ne_bytes(four);
    }
    // SAFETY: the folder is open; the pointer is to a handle whose length was checked to be within these words, which
    // outlive the call; the kernel does not write to it, and yields a new descriptor or an error.
    let file = unsafe {
        let flags = libc::O_PATH | libc::O_CLOEXEC;
        made(libc::syscall(libc::SYS_open_by_handle_at, folder.as_raw_fd(), aligned.as_ptr(), flags))
    };
    let file = file.ok()?;
    let path = fs::read_link(mark::through(&file)).ok();
    Some(target(&file.metadata().ok()?, path.as_deref()))
}

/// A field of an event that is kept as text.
fn field<'a>(fields: &'a str, name: &str) -> Option<&'a str> {
    fields.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
}

/// An open in the trace that succeeded.
#[derive(Clone, Debug, Default)]
struct Open {
    /// Place of its end.
    place: usize,
    begun: u64,
    ended: u64,
    folder: bool,
    /// Whose pages the calls on its descriptor touch.
    touched: Option<Inode>,
    /// The same of a device's own pages.
    of_device: Option<Inode>,
    /// The disk that they have bios for data on.
    disk: Option<Dev>,
}

/// The system calls that open a file.
const OPENS: [&str; 4] = ["open", "openat", "openat2", "creat"];

/// The descriptor that an event of this name and with these fields says was opened.
pub(super) fn opens_descriptor(name: &str, fields: &str) -> Option<i32> {
    let call = name.strip_prefix("syscalls:sys_exit_")?;
    OPENS.contains(&call).then(|| field(fields, "ret")?.parse().ok()).flatten().filter(|fd| *fd >= 0)
}

/// The opens of each thread, in their order.
fn opens(records: &[Record]) -> HashMap<u32, Vec<Open>> {
    #[derive(Default)]
    struct Thread {
        opens: Vec<Open>,
        /// The open in progress: its begin, whether it asks for a folder, whether it has no notification.
        begun: Option<(u64, bool, bool)>,
        /// Which open a descriptor is of.
        descriptors: HashMap<i32, usize>,
        call: Option<i32>,
    }
    impl Thread {
        /// The open that the call in progress is on.
        fn called(&mut self) -> Option<&mut Open> {
            let open = *self.descriptors.get(&self.call?)?;
            self.opens.get_mut(open)
        }
    }
    let mut threads: HashMap<u32, Thread> = HashMap::new();
    // The pages of a device itself: a call on a file reads some, too, to find out where the file is.
    let devices: HashSet<u64> = records
        .iter()
        .filter_map(|record| match record.seen {
            Seen::Queue(extent) => Some(u64::from(extent.dev.0)),
            _ => None,
        })
        .collect();
    let is_device = |file: &Inode| file.dev.major() == 0 && devices.contains(&file.ino);
    for (place, record) in records.iter().enumerate() {
        match &record.seen {
            Seen::Other { name, fields } => {
                let Some(name) = name.strip_prefix("syscalls:sys_") else { continue };
                let thread = threads.entry(record.pid).or_default();
                if let Some(call) = name.strip_prefix("enter_") {
                    if OPENS.contains(&call) {
                        let flags: libc::c_int = field(fields, "flags").and_then(|text| text.parse().ok()).unwrap_or(0);
                        let [folder, silent] = [libc::O_DIRECTORY, libc::O_PATH].map(|flag| flags & flag != 0);
                        thread.begun = Some((record.at.0, folder, silent));
                    } else if call == "close"
                        && let Some(fd) = field(fields, "fd").and_then(|fd| fd.parse().ok())
                    {
                        thread.descriptors.remove(&fd);
                    }
                } else if name.strip_prefix("exit_").is_some_and(|call| OPENS.contains(&call))
                    && let Some((begun, folder, silent)) = thread.begun.take()
                    && let Some(fd) = field(fields, "ret").and_then(|ret| ret.parse().ok()).filter(|fd| *fd >= 0)
                {
                    thread.descriptors.remove(&fd);
                    if !silent {
                        thread.descriptors.insert(fd, thread.opens.len());
                        thread.opens.push(Open { place, begun, ended: record.at.0, folder, ..Open::default() });
                    }
                }
            }
            Seen::CallStart { fd, .. } => threads.entry(record.pid).or_default().call = Some(*fd),
            Seen::CallEnd { .. } => threads.entry(record.pid).or_default().call = None,
            Seen::PageAdd { file, .. }
            | Seen::GetPages { file, .. }
            | Seen::RaSync { file, .. }
            | Seen::RaAsync { file, .. } => {
                if let Some(open) = threads.get_mut(&record.pid).and_then(Thread::called) {
                    let touched = if is_device(file) { &mut open.of_device } else { &mut open.touched };
                    touched.get_or_insert(*file);
                }
            }
            Seen::Queue(extent) if extent.bytes > 0 && !extent.rwbs.has(Rwbs::META) => {
                if let Some(open) = threads.get_mut(&record.pid).and_then(Thread::called) {
                    open.disk.get_or_insert(extent.dev);
                }
            }
            _ => {}
        }
    }
    threads.into_iter().map(|(pid, thread)| (pid, thread.opens)).collect()
}

/// Which open each notification of a thread is of, where there is but one possibility. Both in their order.
fn matched(count: usize, nr_opens: usize, fits: impl Fn(usize, usize) -> bool) -> Vec<Option<usize>> {
    let mut earliest = Vec::with_capacity(count);
    let mut next = 0;
    for nr in 0..count {
        let Some(open) = (next..nr_opens).find(|open| fits(nr, *open)) else { return vec![None; count] };
        earliest.push(open);
        next = open + 1;
    }
    let mut found = vec![None; count];
    let mut end = nr_opens;
    for nr in (0..count).rev() {
        // It has one, or there were no earliest ones.
        let Some(open) = (0..end).rev().find(|open| fits(nr, *open)) else { return vec![None; count] };
        found[nr] = Some(open).filter(|open| *open == earliest[nr]);
        end = open;
    }
    found
}

/// Writes a descriptor's file as the fields of a record.
fn fields(fd: i32, target: &Target, records: &[Record]) -> (String, Inode) {
    let mut inode = target.inode;
    if target.kind == "block" {
        // The pages of a device are those of an inode of a file system that `stat` does not show.
        let of_device = |record: &Record| match record.seen {
            Seen::PageAdd { file, .. } | Seen::RaSync { file, .. } | Seen::GetPages { file, .. } => {
                (file.dev.major() == 0 && file.ino == inode.ino).then_some(file)
            }
            _ => None,
        };
        inode = records.iter().find_map(of_device).unwrap_or(inode);
    }
    let mut text = String::new();
    let (kind, dev) = (target.kind, inode.dev);
    // Writing to a string does not fail.
    let _ = write!(text, "fd={fd} kind={kind} dev={},{} ino={}", dev.major(), dev.minor(), inode.ino);
    (text, inode)
}

/// Adds the files of descriptors to the records, which are in the order of their times; yields the paths.
pub(super) fn add(
    records: &mut Vec<Record>,
    held: &[OpenDescriptor],
    opened: Vec<Opened>,
    start_ns: u64,
) -> Vec<(Inode, String)> {
    let mut paths = Vec::new();
    let mut more: Vec<(usize, Record)> = Vec::new();
    // Whose descriptor it is does not matter to the name of a file.
    let touched: HashSet<Inode> = records.iter().filter_map(|record| record.seen.file()).collect();
    for Target { inode, path, .. } in opened.iter().map(|one| &one.target).filter(|target| target.kind == "file") {
        paths.extend(path.clone().filter(|_| touched.contains(inode)).map(|path| (*inode, path)));
    }
    let mut by_thread: HashMap<u32, Vec<Opened>> = HashMap::new();
    for one in opened.into_iter().filter(|one| one.before >= start_ns && !one.to_execute) {
        by_thread.entry(one.thread).or_default().push(one);
    }
    let mut note = |target: &Target, inode: Inode| {
        if let Some(path) = &target.path
            && matches!(target.kind, "file" | "block")
        {
            paths.push((inode, path.clone()));
        }
    };
    for (pid, opens) in opens(records) {
        let Some(found) = by_thread.get(&pid) else { continue };
        let fits = |nr: usize, open: usize| {
            let (one, open) = (&found[nr], &opens[open]);
            open.begun <= one.before.saturating_sub(start_ns)
                && open.ended >= one.after.saturating_sub(start_ns)
                && (!open.folder || one.target.kind == "folder")
                && match one.target.kind {
                    "unknown" => true,
                    "block" => {
                        let own = open.of_device.is_none_or(|file| file.ino == one.target.inode.ino);
                        open.touched.is_none() && own
                    }
                    _ => open.touched.is_none_or(|file| file == one.target.inode),
                }
        };
        let mut pairs: Vec<(&Target, usize)> = Vec::new();
        for (one, open) in found.iter().zip(matched(found.len(), opens.len(), fits)) {
            pairs.extend(open.map(|open| (&one.target, open)));
        }
        let left: Vec<usize> = (0..opens.len()).filter(|nr| pairs.iter().all(|(_, open)| open != nr)).collect();
        for nr in left {
            let mut all = (0..found.len()).filter(|one| fits(*one, nr)).map(|one| &found[one].target);
            let Some(disk) = opens[nr].disk else { continue };
            if let Some(first) = all.next().filter(|of| of.kind == "file" && of.inode.dev == disk)
                && all.all(|other| other == first)
            {
                pairs.push((first, nr));
            }
        }
        for (target, open) in pairs.into_iter().filter(|(target, _)| target.kind != "unknown") {
            let place = opens[open].place;
            let record = &records[place];
            let Seen::Other { fields: end, .. } = &record.seen else { continue };
            let Some(fd) = field(end, "ret").and_then(|fd| fd.parse().ok()) else { continue };
            let (fields, inode) = fields(fd, target, records);
            note(target, inode);
            let seen = Seen::Other { name: "iowhy:opened".to_owned(), fields };
            more.push((place + 1, Record { seen, ..record.clone() }));
        }
    }
    let present: HashSet<u32> = records.iter().map(|record| record.pid).collect();
    for one in held.iter().filter(|one| present.contains(&one.pid)) {
        let (mut fields, inode) = fields(one.fd, &one.target, records);
        // A descriptor that is not handed on does not matter, unless it is copied, and then the record is enough.
        if !one.cloexec {
            note(&one.target, inode);
        }
        let _ = write!(fields, " pos={} cloexec={}", one.pos, u8::from(one.cloexec));
        let at = Nanos(one.at.saturating_sub(start_ns));
        let place = records.partition_point(|record| record.at < at);
        let seen = Seen::Other { name: "iowhy:descriptor".to_owned(), fields };
        more.push((place, Record { at, cpu: 0, pid: one.pid, seen }));
    }
    // Stable: descriptors of one process stay in their order.
    more.sort_by_key(|(place, record)| (*place, record.at, record.pid));
    let mut merged = Vec::with_capacity(records.len() + more.len());
    let mut more = more.into_iter().peekable();
    for (place, record) in std::mem::take(records).into_iter().enumerate() {
        while let Some((_, new)) = more.next_if(|(before, _)| *before <= place) {
            merged.push(new);
        }
        merged.push(record);
    }
    merged.extend(more.map(|(_, new)| new));
    *records = merged;
    paths
}

#[cfg(test)]
mod tests;
