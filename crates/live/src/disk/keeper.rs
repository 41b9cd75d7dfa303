//! The process that makes a disk, keeps it, and takes it away.
//!
//! ```text
//! made         folder, front, depth and settings, partitions, file system
//!   loop       FUSE mount, server, loop device
//!   ublk       device, server, start of the block device
//! taken away   file system, front, folder
//!   loop       loop device, FUSE mount, server
//!   ublk       stop of the block device, server, device
//! ```
//! Everything is in the ledger of this process before it is made. It ends on request, on SIGTERM, when its server dies,
//! and when its maker does: at any time if it is tied to it, else before the maker knows that the disk exists.
//! Formatting is served at once; the model's times begin when the disk is ready.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::control::{Answer, Ask, Change, Counters, Mode, Order, PATIENCE, Wire, hear};
use super::{
    DEPTHS, DiskError, Front, Lead, PREFIX, SERVE, SERVED, SETTLING, Spec, State, folder, front_loop, front_ublk, fuse,
    is_ours, process, queue,
};
use crate::guard;
use crate::ledger::{Guard, Ledger, LoopOptions};
use crate::system::readable;
use crate::{machine, signal, ublk};

/// Makes the disk that standard input asks for, reports the result on standard output, and keeps it. Whether it could
/// be made.
pub fn keep() -> bool {
    // A terminal that closes, and a signal to the maker's group, are not for us. It fails if this process leads a
    // group, which does no harm.
    let _ = rustix::process::setsid();
    let said = hear::<Spec>(&mut io::stdin().lock());
    let _signals = signal::Guard::take();
    let made = match said {
        Ok(Some(spec)) => Keeper::make(spec).map_err(|error| error.to_string()),
        Ok(None) => Err("no disk to make was given".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let (answer, keeper) = match made {
        Ok(mut keeper) => match keeper.state() {
            Ok(state) => (Answer::Done(Box::new(state)), Some(keeper)),
            Err(error) => (Answer::Refused(error.to_string()), None),
        },
        Err(why) => (Answer::Refused(why), None),
    };
    let text = serde_json::to_string(&answer).unwrap_or_default() + "\n";
    // If nobody listens any more, the line is closed, too, and that is seen soon.
    let _ = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
    let Some(keeper) = keeper else { return false };
    // The maker of a disk that stays must know that it exists.
    if !keeper.spec.tied && !matches!(hear::<bool>(&mut io::stdin().lock()), Ok(Some(true))) {
        return false;
    }
    keeper.run();
    true
}

/// A disk, or as much of one as has been made. Dropped, it goes.
struct Keeper {
    spec: Spec,
    front: Front,
    /// The number of its device, with ublk.
    index: Option<u32>,
    folder: Option<Guard>,
    fuse: Option<Guard>,
    server: Option<(Child, Guard)>,
    wire: Option<Wire>,
    device: Option<Guard>,
    filesystem: Option<Guard>,
    listener: Option<UnixListener>,
    node: PathBuf,
    depth_found: u32,
    /// As many requests can be in flight as the kernel has made tags for.
    most: u32,
    lead: Lead,
    mode: Mode,
    ledger: Ledger,
}

impl Keeper {
    fn make(spec: Spec) -> Result<Keeper, DiskError> {
        let (ledger, _) = Ledger::open()?;
        let front = Front::choose(spec.front)?;
        let most = if front == Front::Ublk { spec.depth } else { *DEPTHS.end() };
        let mut keeper = Keeper {
            spec,
            front,
            index: None,
            folder: None,
            fuse: None,
            server: None,
            wire: None,
            device: None,
            filesystem: None,
            listener: None,
            node: PathBuf::new(),
            depth_found: 0,
            most,
            lead: Lead::default(),
            mode: Mode::Instant,
            ledger,
        };
        // What has been made of it goes when the value does.
        keeper.build()?;
        Ok(keeper)
    }

    fn build(&mut self) -> Result<(), DiskError> {
        let folder = folder(&self.spec.name);
        self.folder = Some(self.ledger.create_scratch_directory(&folder)?);
        let files = folder.join(SERVED);
        for path in [&files, &self.spec.mount_point()] {
            fs::create_dir(path).map_err(process(&format!("make {}", path.display())))?;
        }
        self.prepare_backing()?;
        match self.front {
            Front::Loop => self.make_loop(&folder, &files)?,
            Front::Ublk => self.make_ublk(&folder)?,
        }
        let link = self.spec.link();
        std::os::unix::fs::symlink(&self.node, &link).map_err(process(&format!("make {}", link.display())))?;
        queue::prepare(&self.node, &self.spec)?;
        self.set_depth()?;
        self.lead = match self.spec.lead_ns {
            Some(ns) => Lead { ns, ns_per_mib: 0 },
            None => {
                let (node, spec) = (&self.node, &self.spec);
                front_loop::lead(node, reach(&mut self.wire)?, spec)?
            }
        };
        self.order(&Order::Lead(self.lead))?;
        front_loop::add_partitions(&self.node, self.spec.bytes, self.spec.partitions)?;
        if let Some(filesystem) = self.spec.filesystem.clone() {
            format(&self.node, &filesystem)?;
            self.mount()?;
        }
        // What has been read or written so far must not be in the model's cache, nor in the counters of lateness.
        self.set_mode(Mode::Model)?;
        let path = folder.join("socket");
        let listener = UnixListener::bind(&path).map_err(process(&format!("listen on {}", path.display())))?;
        listener.set_nonblocking(true).map_err(process("listen without waiting"))?;
        spare_descriptors().map_err(process("keep descriptors for those who ask; raise `ulimit -n`"))?;
        self.listener = Some(listener);
        Ok(())
    }

    fn make_loop(&mut self, folder: &Path, files: &Path) -> Result<(), DiskError> {
        let fuse = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open("/dev/fuse")
            .map_err(|error| DiskError::Kernel(format!("/dev/fuse: {error}")))?;
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0,max_read={}", fuse.as_raw_fd(), fuse::MAX_BYTES);
        let source = format!("iowhy-{PREFIX}{}", self.spec.name);
        self.fuse = Some(self.ledger.mount(Path::new(&source), files, "fuse", &data)?);
        self.start_server(folder, fuse)?;
        let options = LoopOptions { direct_io: true, block_bytes: 512 };
        let attached = self.ledger.attach_loop(&files.join(fuse::FILE), options);
        let (node, device) = attached.map_err(|error| self.explained(error))?;
        (self.node, self.device) = (node, Some(device));
        Ok(())
    }

    fn make_ublk(&mut self, folder: &Path) -> Result<(), DiskError> {
        let (index, device) = self.ledger.add_ublk(&front_ublk::device(&self.spec)?)?;
        (self.index, self.device) = (Some(index), Some(device));
        let path = ublk::channel(index);
        let failed = |error| DiskError::Kernel(format!("{}: {error}", path.display()));
        let channel = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
        self.start_server(folder, channel)?;
        let server = self.server.as_ref().map_or(0, |(server, _)| server.id());
        let node = ublk::node(index);
        let started = ublk::Control::open().and_then(|mut control| control.start(index, server));
        started.map_err(|error| self.explained(DiskError::Device { node: node.clone(), error }))?;
        self.node = node;
        front_loop::remove_partitions(&self.node)
    }

    /// An error, with what the server has complained of.
    fn explained(&self, error: impl Into<DiskError>) -> DiskError {
        let error = error.into();
        match self.last_words() {
            Some(words) => DiskError::Refused(format!("{error}: {words}")),
            None => error,
        }
    }

    /// Makes the file for the data, or makes it long enough. A node of another user is refused: it may be formatted
    /// next.
    fn prepare_backing(&self) -> Result<(), DiskError> {
        let Some(path) = &self.spec.backing else { return Ok(()) };
        let failed = |error| DiskError::Process { attempt: format!("use {} for the data", path.display()), error };
        let file = guard::open_named(path).map_err(|error| DiskError::Refused(error.to_string()))?;
        if file.metadata().map_err(failed)?.len() < self.spec.bytes {
            file.set_len(self.spec.bytes).map_err(failed)?;
        }
        Ok(())
    }

    /// Starts the server, and hands it the only descriptor of its side of the front.
    fn start_server(&mut self, folder: &Path, channel: File) -> Result<(), DiskError> {
        let log = folder.join("log");
        let log = File::create_new(&log).map_err(process(&format!("make {}", log.display())))?;
        let (ours, theirs) = UnixStream::pair().map_err(process("make a pair of sockets"))?;
        ours.set_read_timeout(Some(PATIENCE)).map_err(process("set a time limit"))?;
        let program = std::env::current_exe().map_err(process("find this program"))?;
        let mut command = Command::new(program);
        command
            .args(SERVE)
            .stdin(Stdio::from(OwnedFd::from(channel)))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .stderr(log);
        let server = command.spawn().map_err(process("start the server of the disk"))?;
        let guard = self.ledger.note_process(server.id())?;
        self.server = Some((server, guard));
        // The descriptors that the command held are closed with it: the server has the only ones.
        drop(command);
        let mut wire = Wire::new(ours).map_err(DiskError::Server)?;
        let spec = Spec { front: Some(self.front), ..self.spec.clone() };
        wire.say(&spec).map_err(DiskError::Server)?;
        let first: Option<Counters> = wire.hear().map_err(DiskError::Server)?;
        self.wire = Some(wire);
        match (first, self.last_words()) {
            (Some(_), _) => Ok(()),
            (None, Some(words)) => Err(DiskError::Refused(words)),
            (None, None) => Err(DiskError::Server(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// The server's last complaint.
    fn last_words(&self) -> Option<String> {
        let text = fs::read_to_string(folder(&self.spec.name).join("log")).ok()?;
        let words = text.trim();
        (!words.is_empty()).then(|| words.to_owned())
    }

    fn order(&mut self, what: &Order) -> Result<Counters, DiskError> {
        front_loop::order(reach(&mut self.wire)?, what)
    }

    fn set_mode(&mut self, mode: Mode) -> Result<(), DiskError> {
        self.order(&Order::Mode(mode))?;
        self.mode = mode;
        Ok(())
    }

    fn set_depth(&mut self) -> Result<(), DiskError> {
        let (node, spec, mode) = (&self.node, &self.spec, self.mode);
        self.depth_found = front_loop::set_depth(node, reach(&mut self.wire)?, spec, mode)?;
        queue::prepare_scheduler(&self.node, &self.spec, self.front)
    }

    fn mount(&mut self) -> Result<(), DiskError> {
        let Some(filesystem) = &self.spec.filesystem else { return Ok(()) };
        let point = self.spec.mount_point();
        let mount = |options| self.ledger.mount(&self.node, &point, filesystem, options);
        // Old kernels do not have the option.
        self.filesystem = Some(match filesystem.as_str() {
            "ext4" => mount(QUIET_EXT4).or_else(|_| mount(""))?,
            _ => mount("")?,
        });
        // Formatting and mounting set the size of blocks, and the kernel derives the window of read-ahead from that
        // again.
        queue::set_window(&self.node, &self.spec)
    }

    fn state(&mut self) -> Result<State, DiskError> {
        let counters = self.order(&Order::Count)?;
        let nodes = front_loop::nodes(&self.node, self.spec.partitions);
        Ok(State {
            spec: self.spec.clone(),
            front: self.front,
            node: self.node.clone(),
            partitions: nodes[1..].to_vec(),
            mount: self.filesystem.is_some().then(|| self.spec.mount_point()),
            depth_found: self.depth_found,
            lead: self.lead,
            queue: queue::settings(&self.node),
            server: self.server.as_ref().map_or(0, |(server, _)| server.id()),
            keeper: std::process::id(),
            counters,
        })
    }

    /// Where the device is mounted by others.
    fn foreign_mounts(&self) -> Vec<PathBuf> {
        let nodes = front_loop::nodes(&self.node, self.spec.partitions);
        let mounts = machine::current_mounts().into_iter().filter(|mount| nodes.contains(&mount.source));
        mounts.map(|mount| mount.point).filter(|point| !is_ours(point, &self.spec.name)).collect()
    }

    /// Serves commands until the disk is to be removed.
    fn run(mut self) {
        loop {
            let Some(listener) = &self.listener else { return };
            let Ok(wire) = reach(&mut self.wire) else { return };
            let (maker, mut wanted) = (io::stdin(), vec![listener.as_fd(), wire.stream().as_fd()]);
            if self.spec.tied {
                wanted.push(maker.as_fd());
            }
            let ready = readable(&wanted, Duration::from_millis(500));
            if signal::raised() && self.foreign_mounts().is_empty() {
                return;
            }
            // The server says nothing by itself: it has ended. Our maker says nothing, either.
            if ready.get(1) == Some(&true) || ready.get(2) == Some(&true) {
                return;
            }
            if ready.first() != Some(&true) {
                continue;
            }
            let Ok((stream, _)) = listener.accept() else { continue };
            if self.converse(stream).unwrap_or(false) {
                return;
            }
        }
    }

    /// Hears one command and answers it; whether it was the last.
    fn converse(&mut self, stream: UnixStream) -> io::Result<bool> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut wire = Wire::new(stream)?;
        let Some(ask) = wire.hear()? else { return Ok(false) };
        if matches!(ask, Ask::Remove) {
            let removed = self.take_away();
            wire.say(&removed.as_ref().map_or_else(|error| Answer::Refused(error.to_string()), |()| Answer::Removed))?;
            // Half a disk is of no use; only one that nobody has touched yet stays.
            return Ok(removed.is_ok() || self.device.is_none());
        }
        let answer = self.obey(ask).and_then(|()| self.state());
        wire.say(
            &answer.map_or_else(|error| Answer::Refused(error.to_string()), |state| Answer::Done(Box::new(state))),
        )?;
        Ok(false)
    }

    fn obey(&mut self, ask: Ask) -> Result<(), DiskError> {
        match ask {
            Ask::Stat | Ask::Remove => Ok(()),
            Ask::Hurry(true) => self.set_mode(Mode::Instant),
            Ask::Hurry(false) => {
                self.set_mode(Mode::Model)?;
                queue::renew_scheduler(&self.node)
            }
            Ask::Crash { seed } => self.crash(seed),
            Ask::Set(changes) => changes.into_iter().try_for_each(|change| match change {
                Change::Fault(fault) => self.order(&Order::Fault(fault)).map(drop),
                Change::Queue(key, value) => {
                    queue::set(&self.node, &key, &value)?;
                    // Another scheduler has other tunables, and another depth gives them back.
                    self.spec.set_queue(&key, &value);
                    if key == "scheduler" && self.front == Front::Ublk {
                        queue::prepare_scheduler(&self.node, &self.spec, self.front)?;
                    }
                    Ok(())
                }
                Change::Depth(depth) if !(*DEPTHS.start()..=self.most).contains(&depth) => {
                    let (least, most) = (DEPTHS.start(), self.most);
                    Err(DiskError::Refused(format!(
                        "a disk of this front keeps its tags from its creation: {least} to {most} requests can be in \
                         flight, not {depth}; create it again with depth={depth}"
                    )))
                }
                Change::Depth(depth) => {
                    self.spec.depth = depth;
                    self.set_depth()
                }
                Change::Power(on) => self.power(on),
            }),
        }
    }

    fn power(&mut self, on: bool) -> Result<(), DiskError> {
        if on {
            self.forget();
        }
        self.order(&Order::Power(on)).map(drop)
    }

    /// The kernel's cache is not the disk's contents any more, and data that it could not write is lost.
    fn forget(&self) {
        for node in front_loop::nodes(&self.node, self.spec.partitions) {
            // It says that writing has failed, which was to be shown.
            let _ = front_loop::forget(&node);
        }
    }

    fn crash(&mut self, seed: u64) -> Result<(), DiskError> {
        self.order(&Order::Crash { seed })?;
        if let Some(mounted) = self.filesystem.take() {
            mounted.undo()?;
        }
        if !self.foreign_mounts().is_empty() {
            return Ok(());
        }
        self.power(true)?;
        self.mount()
    }

    /// Takes everything away, in order, and reports failures.
    fn take_away(&mut self) -> Result<(), DiskError> {
        let foreign = self.foreign_mounts();
        if self.device.is_some() && !foreign.is_empty() {
            let places: Vec<String> = foreign.iter().map(|path| path.display().to_string()).collect();
            return Err(DiskError::Refused(format!("it is mounted on {}; `umount` that first", places.join(", "))));
        }
        self.undo_all()
    }

    fn undo_all(&mut self) -> Result<(), DiskError> {
        // Pending writes must not wait for the model, nor for a fault.
        let _ = self.order(&Order::Fault(None));
        let _ = self.order(&Order::Mode(Mode::Instant));
        let mut result = Ok(());
        let mut undo = |guard: Option<Guard>| {
            if let Some(Err(error)) = guard.map(Guard::undo) {
                // The first failure explains the others.
                result = std::mem::replace(&mut result, Ok(())).and(Err(DiskError::from(error)));
            }
        };
        undo(self.filesystem.take());
        match self.index.take() {
            // Then the server ends, and nobody has the device open any more. What fails here fails again below.
            Some(index) => drop(ublk::Control::open().and_then(|mut control| control.stop(index))),
            None => undo(self.device.take()),
        }
        undo(self.fuse.take());
        self.wire = None;
        if let Some((mut server, guard)) = self.server.take() {
            let begun = Instant::now();
            while matches!(server.try_wait(), Ok(None)) && begun.elapsed() < SETTLING {
                std::thread::sleep(Duration::from_millis(2));
            }
            if matches!(server.try_wait(), Ok(None)) {
                let _ = server.kill();
            }
            let _ = server.wait();
            undo(Some(guard));
        }
        undo(self.device.take());
        self.listener = None;
        undo(self.folder.take());
        result
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // What fails stays in the ledger. Mounts of others must not keep us from trying.
        let _ = self.undo_all();
    }
}

fn reach(wire: &mut Option<Wire>) -> Result<&mut Wire, DiskError> {
    wire.as_mut().ok_or_else(|| DiskError::Server(io::ErrorKind::NotConnected.into()))
}

/// Fails if later clients could not be answered for want of descriptors.
fn spare_descriptors() -> io::Result<()> {
    crate::files::raise_limit();
    (0..SPARE).map(|_| File::open("/dev/null")).collect::<io::Result<Vec<File>>>().map(drop)
}

/// Descriptors that answering takes: a connection, a mount table, settings.
const SPARE: usize = 8;

/// Where programs for file systems are, for users whose PATH does not say.
const FOLDERS: &[&str] = &["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Else ext4 reads its bitmaps ahead at a random time of the first five seconds after a mount, in the middle of a run.
const QUIET_EXT4: &str = "no_prefetch_block_bitmaps";

/// Makes a file system with everything in its place: nothing is left to be written in the middle of a run.
fn format(node: &Path, filesystem: &str) -> Result<(), DiskError> {
    let (program, words): (&str, &[&str]) = match filesystem {
        "xfs" => ("mkfs.xfs", &["-q", "-f", "-K"]),
        "ext4" => ("mke2fs", &["-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]),
        "ext3" => ("mke2fs", &["-q", "-F", "-t", "ext3", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]),
        _ => ("mke2fs", &["-q", "-F", "-t", "ext2", "-E", "lazy_itable_init=0,nodiscard"]),
    };
    let found = FOLDERS.iter().map(|folder| Path::new(folder).join(program)).find(|path| path.is_file());
    let mut command = Command::new(found.unwrap_or_else(|| PathBuf::from(program)));
    let output = command.args(words).arg(node).stdin(Stdio::null()).output();
    let output = output.map_err(process(&format!("make a file system with {program}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(DiskError::Refused(format!("{program} cannot make a file system: {}", said.trim())))
}
