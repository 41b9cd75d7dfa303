//! Modelled disks under the running kernel: the simulator's devices as block devices, in real time.
//!
//! ```text
//!  programs, file systems, page cache, schedulers: the kernel's own
//!  /dev/loopN              front_loop   queue settings, depth, partitions (for both fronts)
//!  FUSE file `disk`        fuse         requests and answers
//!    or /dev/ublkbN        front_ublk   requests and answers                       front   which of the two
//!  server (a process)      server       threads and clock     pace   the model's times     store   the data
//!  keeper (a process)      keeper       made and removed in order, all of it in the ledger
//! ```
//! Two processes, because who serves a disk must never wait for it: killed while it unmounts its own disk, a process
//! would wait for an answer that only itself could give. The keeper makes everything, writes it into its ledger, and
//! hears commands on a socket; the server only serves. If either dies, the kernel fails every request at once, and the
//! other takes away what it can; `iowhy doctor --fix` takes away the rest.

mod control;
mod fault;
mod front;
mod front_loop;
mod front_ublk;
mod fuse;
mod keeper;
mod pace;
mod queue;
mod server;
mod store;
mod vigil;

use std::fs;
use std::io::{self, BufReader, Write};
use std::ops::RangeInclusive;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use iowhy_stack::device::{Build, DEVICES, Device};
use iowhy_stack::origin::{Entry, Options, find};
use iowhy_stack::rng::Rng;
use iowhy_stack::units::{Nanos, SECTOR_BYTES};
use serde::{Deserialize, Serialize};

use crate::guard;
use crate::ledger::{self, LedgerError};
use control::{Answer, Ask, PATIENCE, Wire};
pub use control::{Change, Counters};
pub use fault::{Fault, Only, bytes as parse_bytes};
pub use front::Front;
pub use keeper::keep;
pub use queue::{ELEVATOR, TUNABLES, Tunable, find_tunable, renew_scheduler};
pub use store::Losses;

/// Depths that the kernel can be given, with any front.
pub const DEPTHS: RangeInclusive<u32> = 4..=128;

/// Sizes of disks.
pub const SIZES: RangeInclusive<u64> = 1 << 20..=1 << 44;

/// Volatile cache of a drive whose model does not state it.
const USUAL_CACHE: u64 = 64 << 20;

/// File systems that can be made.
pub const FILESYSTEMS: &[&str] = &["ext2", "ext3", "ext4", "xfs"];

/// A disk that is to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    pub name: String,
    /// The model's name.
    pub model: String,
    /// Tunables of the model that are not at their defaults.
    pub options: Vec<(String, i64)>,
    /// How the kernel gets it; none for the best that this kernel has.
    pub front: Option<Front>,
    /// Its size; the model may be larger, and then this is its beginning.
    pub bytes: u64,
    /// Most requests that the kernel has in flight.
    pub depth: u32,
    /// Settings of the queue.
    pub queue: Vec<(String, String)>,
    /// Number of equal partitions.
    pub partitions: u32,
    /// A file that holds the data; otherwise they are in memory.
    pub backing: Option<PathBuf>,
    /// A file system that is made and mounted.
    pub filesystem: Option<String>,
    /// Seed of the model.
    pub seed: u64,
    /// Time in the layers above of any command, ns; measured, and that of its bytes, if not given.
    pub lead_ns: Option<u64>,
    /// Processors are kept from sleeping while it is in use.
    pub awake: bool,
    /// It goes when its maker does.
    pub tied: bool,
}

/// Time that the layers between a program and the server take by themselves, for any command and for its bytes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lead {
    /// ns
    pub ns: u64,
    /// ns
    pub ns_per_mib: u64,
}

impl Lead {
    /// Of a command.
    fn of(self, bytes: u32) -> Nanos {
        Nanos(self.ns + ((u64::from(bytes) * self.ns_per_mib) >> 20))
    }
}

/// A disk that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// As it was asked for.
    pub spec: Spec,
    /// How the kernel got it.
    pub front: Front,
    pub node: PathBuf,
    /// Nodes of its partitions.
    pub partitions: Vec<PathBuf>,
    /// Where its file system is mounted.
    pub mount: Option<PathBuf>,
    /// Most requests that the kernel had in flight in an experiment.
    pub depth_found: u32,
    /// Time in the layers above.
    pub lead: Lead,
    /// Settings of the queue in the kernel.
    pub queue: Vec<(String, String)>,
    /// The process that serves it.
    pub server: u32,
    /// The process that keeps it.
    pub keeper: u32,
    /// Counters of the server.
    pub counters: Counters,
}

#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// There is none of this name.
    #[error("unknown disk `{0}`; `iowhy disk list` lists them")]
    Unknown(String),
    /// There is one of this name.
    #[error("there is a disk `{0}` already; choose another name, or `iowhy disk remove {0}`")]
    Exists(String),
    /// Its processes have died.
    #[error("the disk `{0}` is dead; `iowhy doctor --fix` removes its remains")]
    Dead(String),
    /// It is not ready yet.
    #[error("the disk `{0}` is being made; try again")]
    Making(String),
    /// It cannot be made as it is asked for.
    #[error("{0}")]
    Spec(String),
    /// Its keeper has refused.
    #[error("{0}")]
    Refused(String),
    /// The kernel lacks something.
    #[error("this kernel cannot have modelled disks: {0}")]
    Kernel(String),
    /// The kernel lacks the front that was asked for.
    #[error("no front `{name}` here: {reason}; {advice}")]
    Front {
        name: &'static str,
        /// The lack.
        reason: String,
        advice: &'static str,
    },
    /// A setting of the queue was not taken.
    #[error("cannot write {value:?} to {}: {error}", path.display())]
    Setting {
        /// Its file.
        path: PathBuf,
        value: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// The device does not do what it should.
    #[error("cannot use {}: {error}", node.display())]
    Device {
        node: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// The server does not answer.
    #[error("the server of the disk has ended or does not answer: {0}")]
    Server(io::Error),
    /// Another process does not do what it should.
    #[error("cannot {attempt}: {error}")]
    Process {
        attempt: String,
        /// The system's error.
        error: io::Error,
    },
    /// A change could not be written down, or not be undone.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl Spec {
    /// A disk of a model with its defaults; `None` for an unknown model.
    pub fn new(name: &str, model: &str) -> Option<Spec> {
        let entry = find(DEVICES, model)?;
        let mut spec = Spec {
            name: name.to_owned(),
            model: entry.name.to_owned(),
            options: Vec::new(),
            front: None,
            bytes: 0,
            depth: *DEPTHS.start(),
            queue: Vec::new(),
            partitions: 0,
            backing: None,
            filesystem: None,
            seed: 1,
            lead_ns: None,
            awake: true,
            tied: false,
        };
        spec.set_usual();
        Some(spec)
    }

    /// Depth and size as the model has them, as far as the kernel can have them; at most 4 GiB.
    pub fn set_usual(&mut self) {
        let Ok(device) = self.device(0) else { return };
        let depth = device.queue_depth().saturating_mul(device.nr_hw_queues());
        let depths = Front::depths(self.front);
        self.depth = depth.clamp(*depths.start(), *depths.end());
        self.bytes = (device.nr_sectors() * SECTOR_BYTES).min(4 << 30) / 4096 * 4096;
    }

    /// Sets a setting of the queue in the place of any that it had. Settings of the old scheduler go with it.
    pub fn set_queue(&mut self, key: &str, value: &str) {
        let changed = key == "scheduler" && self.scheduler() != Some(value);
        self.queue.retain(|(known, _)| known != key && !(changed && queue::of_scheduler(known)));
        self.queue.push((key.to_owned(), value.to_owned()));
    }

    /// The scheduler that was asked for.
    fn scheduler(&self) -> Option<&str> {
        self.queue.iter().find(|(key, _)| key == "scheduler").map(|(_, value)| value.as_str())
    }

    fn entry(&self) -> Result<&'static Entry<Build>, String> {
        find(DEVICES, &self.model).ok_or_else(|| format!("unknown model `{}`", self.model))
    }

    fn values(&self) -> Result<Options, String> {
        let entry = self.entry()?;
        let mut values = entry.defaults();
        for (name, value) in &self.options {
            let spec = entry.options.iter().find(|spec| spec.name == name);
            let spec = spec.ok_or_else(|| format!("{} has no tunable `{name}`", self.model))?;
            if !(spec.min..=spec.max).contains(value) {
                return Err(format!("`{name}` must lie between {} and {}, not {value}", spec.min, spec.max));
            }
            values.set(name, *value);
        }
        Ok(values)
    }

    /// The model; each time the power comes back it draws again.
    fn device(&self, starts: u64) -> Result<Box<dyn Device>, String> {
        let entry = self.entry()?;
        Ok((entry.build)(&self.values()?, Rng::stream(self.seed.wrapping_add(starts), "device")))
    }

    /// Bytes of the whole model.
    ///
    /// # Errors
    /// If the model is unknown, or does not have these tunables.
    pub fn model_bytes(&self) -> Result<u64, DiskError> {
        Ok(self.device(0).map_err(DiskError::Spec)?.nr_sectors().saturating_mul(SECTOR_BYTES))
    }

    fn rotational(&self) -> Result<bool, DiskError> {
        Ok(self.device(0).map_err(DiskError::Spec)?.rotational())
    }

    /// Bytes of the drive's volatile cache; `None` if it has none.
    fn cache_bytes(&self) -> Option<u64> {
        let values = self.values().ok()?;
        let get = |wanted: &str| values.iter().find(|(spec, _)| spec.name == wanted).map(|(_, value)| value);
        if get("write_cache") == Some(0) {
            return None;
        }
        let kb = get("write_cache_kb").or_else(|| get("write_buffer_kb"));
        Some(kb.and_then(|kb| u64::try_from(kb).ok()).map_or(USUAL_CACHE, |kb| kb * 1024))
    }

    /// The scheduler that the kernel would choose: one that sorts for a device with one queue, none for several.
    ///
    /// # Errors
    /// If the model is unknown, or does not have these tunables.
    pub fn usual_scheduler(&self) -> Result<&'static str, DiskError> {
        let device = self.device(0).map_err(DiskError::Spec)?;
        Ok(if device.nr_hw_queues() == 1 && !device.bio_based() { "mq-deadline" } else { "none" })
    }

    /// Settings of the queue for a kernel that has the disk as a drive of its own: as usual, then as asked for. The
    /// largest request is the driver's business.
    ///
    /// # Errors
    /// If the model is unknown, or does not have these tunables.
    pub fn guest_queue(&self) -> Result<Vec<(String, String)>, DiskError> {
        let rotational = u8::from(self.rotational()?).to_string();
        let usual = [("scheduler", self.usual_scheduler()?), ("rotational", &rotational), ("read_ahead_kb", "128")];
        let mut queue: Vec<(String, String)> =
            usual.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        for (name, value) in &self.queue {
            queue.retain(|(known, _)| known != name);
            queue.push((name.clone(), value.clone()));
        }
        Ok(queue)
    }

    /// The file that is served, for who does not need a block device; only with [`Front::Loop`].
    pub fn served(&self) -> PathBuf {
        folder(&self.name).join(SERVED).join(fuse::FILE)
    }

    /// Everything that is wrong with it.
    pub fn mistakes(&self) -> Vec<String> {
        let mut found = Vec::new();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        if self.name.is_empty() || self.name.len() > 40 || !self.name.chars().all(is_plain) {
            found.push(format!("a disk's name has letters, digits, - and _ (40 at most); `{}` has not", self.name));
        }
        match self.model_bytes() {
            Err(error) => found.push(error.to_string()),
            Ok(model) if self.bytes > model => found.push(format!(
                "the model has {model} bytes, and the disk is to have {}: a smaller size, or another nr_sectors",
                self.bytes
            )),
            Ok(_) => {}
        }
        if !SIZES.contains(&self.bytes) || !self.bytes.is_multiple_of(4096) {
            found.push(format!("a disk has whole blocks of 4096 bytes, 1 MiB to 16 TiB, not {} bytes", self.bytes));
        }
        let depths = Front::depths(self.front);
        if !depths.contains(&self.depth) {
            let (least, most) = (depths.start(), depths.end());
            let less = if (1..*least).contains(&self.depth) { "; front=ublk can have fewer" } else { "" };
            found.push(format!("the kernel can have {least} to {most} requests in flight, not {}{less}", self.depth));
        }
        found.extend(self.queue.iter().filter_map(|(key, value)| queue::check(key, value).err()));
        let scheduler = self.scheduler().or_else(|| self.usual_scheduler().ok()).unwrap_or_default();
        for (key, _) in &self.queue {
            if let Some(tunable) = find_tunable(key).filter(|tunable| tunable.scheduler != scheduler) {
                let of = tunable.scheduler;
                found.push(format!("`{key}` is a tunable of {of}, and the scheduler is {scheduler}: scheduler={of}"));
            }
        }
        if scheduler == "none" && self.queue.iter().any(|(key, _)| key == "nr_requests") {
            found.push("`nr_requests` is the scheduler's, and there is none: depth=N".to_owned());
        }
        let needed = u64::from(self.partitions.min(16) + 1) << 20;
        if self.partitions > 15 || (self.partitions > 0 && needed > self.bytes) {
            found.push(format!("no room for {} partitions of 1 MiB and more (15 at most)", self.partitions));
        }
        match self.filesystem.as_deref() {
            Some(name) if !FILESYSTEMS.contains(&name) => {
                found.push(format!("a file system is one of {}, not `{name}`", FILESYSTEMS.join(", ")));
            }
            Some(_) if self.partitions > 0 => {
                found.push("a file system is made on a whole disk, or there are partitions".to_owned());
            }
            _ => {}
        }
        found
    }

    /// Where its file system is mounted, if it has one.
    pub fn mount_point(&self) -> PathBuf {
        folder(&self.name).join("fs")
    }

    /// A name for its node that is known before it is made: a symbolic link.
    pub fn link(&self) -> PathBuf {
        folder(&self.name).join("device")
    }
}

/// The folder of a disk; its name begins like this.
const PREFIX: &str = "disk-";

/// Where the file that is served is mounted, in the folder of its disk.
const SERVED: &str = "file";

fn folder(name: &str) -> PathBuf {
    ledger::state_directory().join(format!("{PREFIX}{name}"))
}

fn socket(name: &str) -> PathBuf {
    folder(name).join("socket")
}

/// A disk that its maker keeps: it is removed when this is dropped, or when this process dies.
#[derive(Debug)]
pub struct DiskHandle {
    state: State,
    keeper: Child,
    /// As long as this is open the keeper knows that we live.
    line: ChildStdin,
}

impl DiskHandle {
    /// As it was made.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// How it is now.
    ///
    /// # Errors
    /// If its keeper does not answer.
    pub fn stat(&self) -> Result<State, DiskError> {
        stat(&self.state.spec.name)
    }

    /// Serves at once, without the model's times, or with them again: for files that are only laid out. The scheduler
    /// forgets that time at its end: a rate that it has seen meanwhile would count for seconds.
    ///
    /// # Errors
    /// If its keeper does not answer.
    pub fn hurry(&self, on: bool) -> Result<State, DiskError> {
        ask(&self.state.spec.name, &Ask::Hurry(on)).and_then(|answer| expect_state(&self.state.spec.name, answer))
    }

    /// Removes it, and reports a failure.
    ///
    /// # Errors
    /// If something could not be undone.
    pub fn remove(mut self) -> Result<(), DiskError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), DiskError> {
        let removed = remove(&self.state.spec.name);
        if removed.is_ok() {
            let _ = self.keeper.wait();
        }
        removed
    }
}

impl Drop for DiskHandle {
    fn drop(&mut self) {
        if matches!(self.keeper.try_wait(), Ok(None)) {
            // The keeper sees that the line is closed, and removes everything, if it was not reached by name.
            let _ = self.end();
        }
    }
}

/// Makes a disk that stays until it is removed.
///
/// # Errors
/// Mistakes in it, or the reason why it could not be created.
pub fn create(mut spec: Spec) -> Result<State, DiskError> {
    spec.tied = false;
    let mut held = start(spec)?;
    // Until it hears this, it goes when its maker does: nobody would know of it.
    held.line.write_all(b"true\n").map_err(process("tell the keeper of the disk to stay"))?;
    let state = held.state.clone();
    // It is to outlive us.
    std::mem::forget(held);
    Ok(state)
}

/// Makes a disk that goes when the value or this process does.
///
/// # Errors
/// Mistakes in it, or the reason why it could not be created.
pub fn hold(mut spec: Spec) -> Result<DiskHandle, DiskError> {
    spec.tied = true;
    start(spec)
}

/// The words with which this program is a keeper, and a server.
pub const KEEP: [&str; 2] = ["disk", "keep"];
const SERVE: [&str; 2] = ["disk", "serve"];

fn process(attempt: &str) -> impl FnOnce(io::Error) -> DiskError {
    let attempt = attempt.to_owned();
    move |error| DiskError::Process { attempt, error }
}

fn start(spec: Spec) -> Result<DiskHandle, DiskError> {
    if let Some(mistake) = spec.mistakes().into_iter().next() {
        return Err(DiskError::Spec(mistake));
    }
    // Before anything is created: a lack is reported as it is.
    Front::choose(spec.front)?;
    if folder(&spec.name).exists() {
        return Err(if ask(&spec.name, &Ask::Stat).is_ok() {
            DiskError::Exists(spec.name)
        } else {
            DiskError::Dead(spec.name)
        });
    }
    let program = std::env::current_exe().map_err(process("find this program"))?;
    let mut command = Command::new(program);
    command.args(KEEP).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).current_dir("/");
    command.env(guard::VARIABLE, guard::for_children());
    let mut keeper = command.spawn().map_err(process("start the keeper of the disk"))?;
    let (Some(mut line), Some(said)) = (keeper.stdin.take(), keeper.stdout.take()) else {
        return Err(DiskError::Refused("the keeper has no pipes".to_owned()));
    };
    let mut text = serde_json::to_string(&spec).map_err(io::Error::from).map_err(process("write the request"))?;
    text.push('\n');
    // If it has ended, its answer says more.
    let _ = line.write_all(text.as_bytes());
    match control::hear(&mut BufReader::new(said)).map_err(process("hear the keeper of the disk"))? {
        Some(Answer::Done(state)) => Ok(DiskHandle { state: *state, keeper, line }),
        Some(Answer::Refused(why)) => {
            let _ = keeper.wait();
            Err(DiskError::Refused(why))
        }
        Some(Answer::Removed) | None => {
            let _ = keeper.wait();
            Err(DiskError::Refused("the keeper of the disk died; `iowhy doctor --fix` removes its remains".to_owned()))
        }
    }
}

/// The process that serves a disk; its standard input is `/dev/fuse` or the character device of ublk, its standard
/// output the way to the keeper.
///
/// # Errors
/// If it cannot serve.
pub fn serve() -> Result<(), DiskError> {
    use std::os::fd::AsFd;
    let keeper = io::stdout().as_fd().try_clone_to_owned().map_err(DiskError::Server)?;
    let mut wire = Wire::new(UnixStream::from(keeper)).map_err(DiskError::Server)?;
    let Some(spec) = wire.hear::<Spec>().map_err(DiskError::Server)? else { return Ok(()) };
    server::serve(&spec, io::stdin().as_fd(), wire).map_err(DiskError::Server)
}

/// The living process that keeps a disk, or makes it: its number and start.
fn keeper(name: &str) -> Option<(u32, u64)> {
    ledger::owner_of(&ledger::state_directory(), &folder(name))
}

/// Ends keepers that do not answer although their disk was made; their changes can be undone then.
pub(crate) fn end_silent() {
    for (name, state) in list().unwrap_or_default() {
        if state.is_err()
            && socket(&name).exists()
            && let Some((pid, start)) = keeper(&name)
        {
            // A process that does not die is still there for the next look.
            let _ = ledger::end_process(pid, start);
        }
    }
}

/// Asks a keeper something.
fn ask(name: &str, what: &Ask) -> Result<Answer, DiskError> {
    let path = socket(name);
    let stream = UnixStream::connect(&path).map_err(|_| match folder(name).exists() {
        true if !path.exists() && keeper(name).is_some() => DiskError::Making(name.to_owned()),
        true => DiskError::Dead(name.to_owned()),
        false => DiskError::Unknown(name.to_owned()),
    })?;
    let failed = |error| DiskError::Process { attempt: format!("reach the keeper of `{name}`"), error };
    // Removing and mounting again may wait for the disk a little.
    stream.set_read_timeout(Some(4 * PATIENCE)).map_err(failed)?;
    let mut wire = Wire::new(stream).map_err(failed)?;
    wire.say(what).map_err(failed)?;
    match wire.hear().map_err(failed)? {
        Some(Answer::Refused(why)) => Err(DiskError::Refused(why)),
        Some(answer) => Ok(answer),
        None => Err(DiskError::Dead(name.to_owned())),
    }
}

fn expect_state(name: &str, answer: Answer) -> Result<State, DiskError> {
    match answer {
        Answer::Done(state) => Ok(*state),
        Answer::Removed | Answer::Refused(_) => Err(DiskError::Unknown(name.to_owned())),
    }
}

/// How a disk is.
///
/// # Errors
/// If there is none, or it is dead.
pub fn stat(name: &str) -> Result<State, DiskError> {
    ask(name, &Ask::Stat).and_then(|answer| expect_state(name, answer))
}

/// Changes a disk; yields how it is then.
///
/// # Errors
/// If there is none, or the kernel does not take a setting.
pub fn set(name: &str, changes: Vec<Change>) -> Result<State, DiskError> {
    ask(name, &Ask::Set(changes)).and_then(|answer| expect_state(name, answer))
}

/// Cuts the power of a disk: unflushed data is lost, torn or kept, by the seed. A file system of ours is mounted again;
/// while one of others is mounted, the power stays off.
///
/// # Errors
/// If there is none, or it does not come up again.
pub fn crash(name: &str, seed: u64) -> Result<State, DiskError> {
    ask(name, &Ask::Crash { seed }).and_then(|answer| expect_state(name, answer))
}

/// Removes a disk.
///
/// # Errors
/// If the disk is unknown or in use, or something could not be undone.
pub fn remove(name: &str) -> Result<(), DiskError> {
    ask(name, &Ask::Remove).map(drop)
}

/// A disk's name, and how it is.
pub type Named = (String, Result<State, DiskError>);

/// Every disk by name; the remains of dead ones yield an error.
///
/// # Errors
/// If the folder of the disks cannot be read.
pub fn list() -> Result<Vec<Named>, DiskError> {
    let directory = ledger::state_directory();
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(process(&format!("read {}", directory.display())))?,
    };
    let names =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.strip_prefix(PREFIX).map(str::to_owned));
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names.into_iter().map(|name| (name.clone(), stat(&name))).collect())
}

/// The first name that no disk has.
pub fn free_name() -> String {
    (0u32..).map(|nr| format!("disk{nr}")).find(|name| !folder(name).exists()).unwrap_or_default()
}

/// How long the kernel may need to see that something is gone.
const SETTLING: Duration = Duration::from_secs(5);

fn is_ours(mount: &Path, name: &str) -> bool {
    mount.starts_with(folder(name))
}
