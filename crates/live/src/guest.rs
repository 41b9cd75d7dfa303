//! Guests: another kernel under QEMU, booted for one command of this very program.
//!
//! ```text
//!  host                                         guest
//!  kernel    found, or got once                 init      this program as the first process
//!  initramfs this program, its libraries, plan  plan      modules, settings, mount, words of the command
//!  data      an image, or a modelled disk  ───▶ NVMe      what the command works on
//!  results   a sparse file                 ◀─── NVMe      what the command made, sent as one stream
//!  console   marks, signs of life          ◀─── ttyS0
//! ```
//! Nothing is installed anywhere. All files are in one folder that is in the ledger, and so is the process. KVM is
//! taken if a kernel starts our program under it in time; otherwise QEMU translates (TCG), which slows down everything
//! that the CPU does some ten times, and nothing that a modelled disk does.
//!
//! Known limits: guests are x86-64, of one kind of machine; the kernel must have NVMe and the serial console built in.

mod console;
mod init;
mod initramfs;
mod kernel;
mod package;
mod qemu;
mod registry;
mod stream;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use console::Stage;
use initramfs::Archive;
pub use kernel::{Kernel, cache_directory, find, is_known};
use qemu::{GiveUp, Limits, Parts};
pub use registry::{forms, registries};
use stream::Received;

use crate::ledger::{self, Guard, Ledger, LedgerError};

/// Serial numbers of the two drives, by which the guest knows them.
const DATA_SERIAL: &str = "iowhy-data";
const OUT_SERIAL: &str = "iowhy-out";

/// Keys of the plan.
mod key {
    pub(super) const MODULE: &str = "module";
    pub(super) const SETTING: &str = "setting";
    pub(super) const FILESYSTEM: &str = "filesystem";
    pub(super) const TARGET: &str = "target";
    pub(super) const WORD: &str = "word";
    pub(super) const VARIABLE: &str = "variable";
    pub(super) const FOLDER: &str = "folder";
    pub(super) const INPUT: &str = "input";
}

/// Where the file system of the data is in a guest.
pub const DATA: &str = "/disk";
/// The folder that is sent back.
pub const OUT: &str = init::OUT;
/// The file in it with what the command printed.
pub const PRINTED: &str = init::PRINTED;

/// How long a guest may take to start our program. It takes three seconds under TCG on a quiet machine.
pub const BOOT_LIMIT: Duration = Duration::from_secs(60);
/// The same for trying KVM, under which it takes less than one.
const KVM_LIMIT: Duration = Duration::from_secs(10);
/// How long a guest may give no sign of life: it gives one every second.
const SILENCE: Duration = Duration::from_secs(30);
/// Room for results; the file is sparse.
const OUT_BYTES: u64 = 4 << 30;

/// File systems that can be made, the program that does, and its options. Inode tables are written at once, so that
/// the kernel does not do so during the run.
const MAKERS: &[(&str, &str, &[&str])] = &[
    ("ext2", "mke2fs", &["-t", "ext2", "-q", "-F", "-E", "lazy_itable_init=0"]),
    ("ext3", "mke2fs", &["-t", "ext3", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
    ("ext4", "mke2fs", &["-t", "ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
    ("xfs", "mkfs.xfs", &["-q", "-f"]),
];

/// Names of the file systems.
pub fn filesystems() -> impl Iterator<Item = &'static str> {
    MAKERS.iter().map(|(name, ..)| *name)
}

/// Modules that a guest may need: of a file system, of an elevator, of a driver.
const MODULES: &[(&str, &str)] =
    &[("xfs", "xfs"), ("mq-deadline", "mq-deadline"), ("bfq", "bfq"), ("kyber", "kyber-iosched"), ("ublk", "ublk_drv")];

/// The executor of the guest's code.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor.
    Kvm,
    /// QEMU, which translates it.
    Tcg,
}

impl Accelerator {
    pub fn name(self) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
        }
    }
}

/// The file that a guest has as its data disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backing {
    pub path: PathBuf,
    /// Its requests take the time of a model: each one must reach it, so none is kept in the host's page cache.
    pub timed: bool,
    /// Most requests that the guest's kernel has in flight; none for the driver's own choice.
    pub depth: Option<u32>,
}

/// A guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub kernel: Kernel,
    /// The data disk, with its file system made.
    pub backing: Backing,
    /// The file system that is mounted on [`DATA`]; none for none.
    pub filesystem: Option<String>,
    /// Files of the queue of the data disk, and their new values, in this order.
    pub settings: Vec<(String, String)>,
    /// Drivers that it needs besides, for example `ublk`.
    pub modules: Vec<String>,
    pub memory_mib: u64,
    /// Processors.
    pub cpus: u32,
    /// KVM or TCG; none for what works.
    pub accelerator: Option<Accelerator>,
    /// Words of the command, without the program's name.
    pub words: Vec<String>,
    /// Variables of its environment.
    pub variables: Vec<(String, String)>,
    /// Files that are there for it.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// The folder it begins in.
    pub folder: PathBuf,
    /// One of the files, as its standard input.
    pub input: Option<PathBuf>,
    /// How long all of it may take.
    pub limit: Duration,
}

/// Results of a guest.
#[derive(Clone, Debug, PartialEq)]
pub struct Brought {
    /// How the command ended.
    pub status: i32,
    pub messages: Vec<String>,
    pub accelerator: Accelerator,
    /// The version of QEMU.
    pub qemu: String,
    /// From QEMU's start to that of our program.
    pub boot: Duration,
    /// From QEMU's start to its end.
    pub took: Duration,
    /// Speed of the guest's clock relative to the host's during the command; none if it was too short.
    pub clock_ratio: Option<f64>,
}

/// Why a guest brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// QEMU is missing.
    #[error("no qemu-system-x86_64 here: `apt-get install qemu-system-x86`")]
    NoQemu,
    /// The kernel is unknown.
    #[error("{0}")]
    Kernel(String),
    /// A registry of kernels cannot be reached, or is not what it should be.
    #[error("kernels of {name}: {error}")]
    Registry {
        /// Which.
        name: &'static str,
        /// The failure, with the address and advice.
        #[source]
        error: io::Error,
    },
    /// A program is missing, or failed.
    #[error("{program} failed: {reason}")]
    Program {
        /// Which.
        program: String,
        /// Why.
        reason: String,
    },
    /// A file could not be made or read.
    #[error("cannot {what}: {error}")]
    Io {
        /// The attempt.
        what: String,
        /// The system's error.
        error: io::Error,
    },
    /// A change cannot be written down.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A signal asked for the end.
    #[error("interrupted by a signal while the guest ran; nothing was brought back")]
    Interrupted,
    /// The guest did all it should, and the command in it made nothing.
    #[error("in the guest {0}")]
    Job(String),
    /// The guest failed: its kernel hung, gave up or lacks something, or the command could not be run.
    #[error("{what}{}", report(console))]
    Guest {
        /// The failure.
        what: String,
        /// The end of its console.
        console: Vec<String>,
    },
}

impl GuestError {
    /// Whether the guest failed, and not the request: another kernel might do.
    pub fn is_of_the_guest(&self) -> bool {
        matches!(self, GuestError::Guest { .. } | GuestError::Job(_))
    }
}

/// The end of a console, as lines below an error.
fn report(console: &[String]) -> String {
    if console.is_empty() {
        return "; its console is empty".to_owned();
    }
    let lines: String = console.iter().map(|line| format!("\n  | {line}")).collect();
    format!("; the end of its console:{lines}")
}

/// Whether this process is the first one of a guest; then [`init`] is all it does.
pub fn is_init() -> bool {
    init::is_init()
}

/// The first process of a guest.
pub fn init() -> ! {
    init::init()
}

/// The folder for the files of guests, which goes with all that is in it.
///
/// # Errors
/// If it cannot be made.
pub fn scratch(ledger: &Ledger) -> Result<(PathBuf, Guard), GuestError> {
    let path = ledger.scratch_path("guest");
    if let Some(above) = path.parent() {
        fs::create_dir_all(above)
            .map_err(|error| GuestError::Io { what: format!("make {}", above.display()), error })?;
    }
    let guard = ledger.create_scratch_directory(&path)?;
    Ok((path, guard))
}

/// A sparse file of this size, empty.
///
/// # Errors
/// If it cannot be made.
pub fn image(path: &Path, bytes: u64) -> Result<File, GuestError> {
    let open = File::options().read(true).write(true).create(true).truncate(true).open(path);
    let made = open.and_then(|file| file.set_len(bytes).map(|()| file));
    made.map_err(|error| GuestError::Io { what: format!("make {}", path.display()), error })
}

/// Makes a file system in a file.
///
/// # Errors
/// If the program for it is missing or fails.
pub fn make_filesystem(path: &Path, filesystem: &str) -> Result<(), GuestError> {
    let Some((_, program, options)) = MAKERS.iter().find(|(name, ..)| *name == filesystem) else {
        return Err(GuestError::Kernel(format!("no file system `{filesystem}` can be made")));
    };
    let failed = |reason: String| GuestError::Program { program: (*program).to_owned(), reason };
    // Programs for administrators are not on everybody's path.
    let path_variable = std::env::var("PATH").unwrap_or_default();
    let made = Command::new(program)
        .args(*options)
        .arg(path)
        .env("PATH", format!("{path_variable}:/usr/sbin:/sbin"))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if made.status.success() { Ok(()) } else { Err(failed(String::from_utf8_lossy(&made.stderr).trim().to_owned())) }
}

/// The variable that marks a process as the job of a guest.
const IN_GUEST: &str = "IOWHY_IN_GUEST";

/// How long the host may take to hear that files are laid out.
const HEARING: Duration = Duration::from_millis(100);

/// Whether this process is the job of a guest.
pub fn is_inside() -> bool {
    std::env::var_os(IN_GUEST).is_some()
}

/// In the job of a guest: notifies the host that files are being laid out from now on, or that they are. Elsewhere it
/// does nothing.
pub fn tell_laying_out(begins: bool) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !is_inside() || TOLD.swap(begins, Ordering::Relaxed) == begins {
        return;
    }
    init::say(if begins { "files begin" } else { "files end" });
    if !begins {
        std::thread::sleep(HEARING);
    }
}

/// Runs a command of this program in a guest. Its files in [`OUT`] are put below `results`; other files are made in
/// `scratch`. `laying_out` is called when a job begins to lay out its files, and when they are there.
///
/// # Errors
/// If the guest cannot be made, does not boot, does not come to its end, or sends nothing.
pub fn run(
    spec: &Spec,
    scratch: &Path,
    results: &Path,
    ledger: &Ledger,
    laying_out: &dyn Fn(bool),
) -> Result<Brought, GuestError> {
    let version = qemu::version()?;
    let (initrd, out) = (scratch.join("initrd"), scratch.join("results"));
    let loader_path = pack(spec, &initrd)?;
    let attempt = |accelerator, boot_limit: Duration| {
        let mut drive = image(&out, OUT_BYTES)?;
        let parts = Parts { spec, accelerator, initrd: &initrd, out: &out, loader_path: &loader_path };
        let limits = Limits { boot: boot_limit, silence: SILENCE, whole: spec.limit };
        let ended = qemu::boot(qemu::PROGRAM.as_ref(), &qemu::arguments(&parts), ledger, limits, laying_out)?;
        let received = stream::receive(&mut drive);
        let received = received.map_err(|error| GuestError::Io { what: format!("read {}", out.display()), error })?;
        Ok::<_, GuestError>((accelerator, ended, received))
    };
    let (accelerator, ended, received) = match spec.accelerator.or_else(remembered) {
        Some(accelerator) => attempt(accelerator, BOOT_LIMIT)?,
        None => {
            let tried = attempt(Accelerator::Kvm, KVM_LIMIT)?;
            if tried.1.console.stage == Stage::Booting {
                let tried = attempt(Accelerator::Tcg, BOOT_LIMIT)?;
                // A kernel that boots under neither says nothing about KVM.
                if tried.1.console.stage != Stage::Booting {
                    remember();
                }
                tried
            } else {
                tried
            }
        }
    };
    let _ = fs::remove_file(&out);
    let _ = fs::remove_file(&initrd);
    let failed = |what: String| GuestError::Guest {
        what: format!("{}: {what}", named(&spec.kernel, accelerator)),
        console: ended.console.tail(),
    };
    let console = &ended.console;
    let files = match received {
        Received::Files(files) if console.status.is_some() => files,
        _ => return Err(failed(verdict(&ended, &received))),
    };
    for (name, bytes) in &files {
        let path = results.join(name);
        let made = fs::create_dir_all(path.parent().unwrap_or(results)).and_then(|()| fs::write(&path, bytes));
        made.map_err(|error| GuestError::Io { what: format!("write {}", path.display()), error })?;
    }
    Ok(Brought {
        status: console.status.unwrap_or(-1),
        messages: console.messages.clone(),
        accelerator,
        qemu: version,
        boot: console.when(Stage::Up).unwrap_or_default(),
        took: ended.took,
        clock_ratio: console.clock_ratio(),
    })
}

/// The kernel as an error names it.
fn named(kernel: &Kernel, accelerator: Accelerator) -> String {
    let version = kernel.version.as_deref().and_then(|version| version.split(' ').next());
    let name = version.map_or_else(|| kernel.image.display().to_string(), |version| format!("Linux {version}"));
    format!("{name} under QEMU ({})", accelerator.name())
}

/// The failure of a guest without results.
fn verdict(ended: &qemu::Ended, received: &Received) -> String {
    let console = &ended.console;
    if let Some(panic) = &console.panic {
        return format!("the kernel gave up: {panic}");
    }
    if let Some(error) = &console.error {
        return error.clone();
    }
    let seconds = |time: Duration| time.as_secs_f64().round();
    let job = if console.stage == Stage::Running { ", while the job ran" } else { "" };
    match ended.given_up {
        Some(GiveUp::NotUp(time)) => {
            return format!("the kernel did not start our program within {} s", seconds(time));
        }
        Some(GiveUp::Silent(time)) => return format!("it hangs: no sign of life for {} s{job}", seconds(time)),
        Some(GiveUp::TooLong(time)) => {
            return format!("it was not done after {} s{job}; --timeout=SECONDS allows more", seconds(time));
        }
        None => {}
    }
    let status = ended.status.map_or_else(|| "?".to_owned(), |status| status.to_string());
    let said = if ended.complaint.is_empty() { String::new() } else { format!(": {}", ended.complaint) };
    match (console.stage, received) {
        (Stage::Booting, _) => format!("QEMU ended before the kernel had started our program ({status}){said}"),
        (Stage::Sent, Received::Damaged) => "its results are damaged".to_owned(),
        _ => format!("QEMU ended before the results were there ({status}){job}{said}"),
    }
}

/// Writes the initramfs; yields the folders in which its libraries are.
fn pack(spec: &Spec, path: &Path) -> Result<String, GuestError> {
    let mut library_folders: Vec<String> = Vec::new();
    let mut modules = Vec::new();
    let schedulers = spec.settings.iter().filter(|(key, _)| key == "scheduler").map(|(_, value)| value);
    let wanted = spec.filesystem.iter().chain(schedulers).chain(&spec.modules);
    for (_, module) in wanted.filter_map(|name| MODULES.iter().find(|(known, _)| known == name)) {
        modules.extend(kernel::modules(&spec.kernel, module)?);
    }
    let plan = plan(spec, modules.iter().map(|(name, _)| name.as_str()));
    let mut pack = || -> io::Result<()> {
        let (program, libraries) = initramfs::this_program()?;
        let mut archive = Archive::new(BufWriter::with_capacity(1 << 20, File::create(path)?));
        archive.device(Path::new("dev/console"), (5, 1))?;
        archive.device(Path::new("dev/null"), (1, 3))?;
        archive.folder(Path::new("tmp"))?;
        archive.file(Path::new(init::PROGRAM), &program)?;
        for (name, bytes) in &libraries {
            archive.file(name, bytes)?;
            if let Some(folder) = name.parent().and_then(Path::to_str)
                && !library_folders.iter().any(|known| known == folder)
            {
                library_folders.push(folder.to_owned());
            }
        }
        for (name, bytes) in &modules {
            archive.file(&module_path(name), bytes)?;
        }
        for (name, bytes) in &spec.files {
            archive.file(name, bytes)?;
        }
        archive.file(Path::new(init::PLAN), &plan)?;
        archive.finish().map(drop)
    };
    pack().map_err(|error| GuestError::Io { what: format!("make {}", path.display()), error })?;
    Ok(library_folders.join(":"))
}

fn module_path(name: &str) -> PathBuf {
    Path::new("/modules").join(format!("{name}.ko"))
}

/// The guest's work.
fn plan<'a>(spec: &Spec, modules: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |key: &str, value: &str| {
        stream::put(&mut out, key, value.as_bytes()).expect("a vector takes everything");
    };
    modules.for_each(|name| put(key::MODULE, &module_path(name).to_string_lossy()));
    spec.settings.iter().for_each(|(name, value)| put(key::SETTING, &format!("{name}={value}")));
    if let Some(filesystem) = &spec.filesystem {
        put(key::FILESYSTEM, filesystem);
        put(key::TARGET, DATA);
    }
    spec.words.iter().for_each(|word| put(key::WORD, word));
    spec.variables.iter().for_each(|(name, value)| put(key::VARIABLE, &format!("{name}={value}")));
    put(key::FOLDER, &spec.folder.to_string_lossy());
    if let Some(input) = &spec.input {
        put(key::INPUT, &input.to_string_lossy());
    }
    out
}

/// The file that notes that guests do not boot under KVM, since this start of the machine.
fn note() -> PathBuf {
    ledger::state_directory().join("kvm-does-not-boot")
}

/// The accelerator that works here: TCG without KVM, or if KVM did not boot.
fn remembered() -> Option<Accelerator> {
    let can_open = File::options().read(true).write(true).open("/dev/kvm").is_ok();
    let failed = fs::read_to_string(note()).is_ok_and(|text| text.trim() == ledger::boot());
    (!can_open || failed).then_some(Accelerator::Tcg)
}

fn remember() {
    // If it cannot be written down, the next run tries again.
    let _ = fs::write(note(), ledger::boot());
}
