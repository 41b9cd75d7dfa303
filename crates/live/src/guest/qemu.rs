//! QEMU: its command line, and the watch over a guest from its start to its end.
//!
//! The process gets SIGKILL when the thread that started it ends (`PR_SET_PDEATHSIG`), and is in the ledger besides, so
//! that it does not outlive a run however that ends. It has a process group of its own: Ctrl-C ends the run, and the
//! run ends QEMU.
//!
//! A guest is given up if it does not start our program in time, if it gives no sign of life for half a minute, if the
//! time for all of it is over, or if a signal asks for the end.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use super::console::{Console, Stage};
use super::{Accelerator, DATA_SERIAL, GuestError, OUT_SERIAL, Spec};
use crate::ledger::Ledger;
use crate::signal;

/// The program to start.
pub(super) const PROGRAM: &str = "qemu-system-x86_64";

/// How long a guest is waited for.
#[derive(Copy, Clone, Debug)]
pub(super) struct Limits {
    /// Until it starts our program.
    pub(super) boot: Duration,
    /// For a sign of life after that: it gives one every second.
    pub(super) silence: Duration,
    /// For all of it.
    pub(super) whole: Duration,
}

/// How long the pipe of a process that has ended is read.
const REST: Duration = Duration::from_millis(500);

/// The parts of a guest.
pub(super) struct Parts<'a> {
    pub(super) spec: &'a Spec,
    pub(super) accelerator: Accelerator,
    pub(super) initrd: &'a Path,
    pub(super) out: &'a Path,
    /// Folders with libraries that the loader would not look into.
    pub(super) loader_path: &'a str,
}

/// A path in the list of options of QEMU, in which a comma is written twice.
fn in_list(path: &Path) -> OsString {
    let bytes = path.as_os_str().as_encoded_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    for byte in bytes {
        out.push(*byte);
        if *byte == b',' {
            out.push(b',');
        }
    }
    std::os::unix::ffi::OsStringExt::from_vec(out)
}

fn drive(id: &str, path: &Path, serial: &str, (cache, device): (&str, &str)) -> [OsString; 4] {
    let mut file = OsString::from(format!("if=none,id={id},format=raw,cache={cache},aio=threads,file="));
    file.push(in_list(path));
    ["-drive".into(), file, "-device".into(), format!("nvme,drive={id},serial={serial}{device}").into()]
}

/// The words behind the program's name.
pub(super) fn arguments(parts: &Parts<'_>) -> Vec<OsString> {
    let spec = parts.spec;
    let words = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<OsString>>();
    let mut all = words(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "pc"]);
    all.extend(match parts.accelerator {
        Accelerator::Tcg => words(&["-accel", "tcg,thread=multi"]),
        Accelerator::Kvm => words(&["-accel", "kvm", "-cpu", "host"]),
    });
    let mut append = String::from("console=ttyS0 panic=-1 rdinit=/init");
    // Messages of the kernel cost time, a line at a time; errors come anyway.
    append.push_str(" loglevel=4");
    if let Some(depth) = spec.backing.depth {
        append.push_str(&format!(" nvme.io_queue_depth={}", depth + 1));
    }
    if !parts.loader_path.is_empty() {
        append.push_str(&format!(" LD_LIBRARY_PATH={}", parts.loader_path));
    }
    all.extend(words(&["-serial", "stdio", "-m", &spec.memory_mib.to_string(), "-smp", &spec.cpus.to_string()]));
    all.extend(["-kernel".into(), spec.kernel.image.clone().into_os_string()]);
    all.extend(["-initrd".into(), parts.initrd.to_owned().into_os_string(), "-append".into(), append.into()]);
    let cache = if spec.backing.timed { "none" } else { "unsafe" };
    // A depth is that of the disk, and not of each processor's queue.
    let queues = if spec.backing.depth.is_some() { ",max_ioqpairs=1" } else { "" };
    all.extend(drive("data", &spec.backing.path, DATA_SERIAL, (cache, queues)));
    all.extend(drive("out", parts.out, OUT_SERIAL, ("unsafe", "")));
    all
}

/// The version of QEMU.
pub(super) fn version() -> Result<String, GuestError> {
    let missing = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => GuestError::NoQemu,
        _ => GuestError::Program { program: PROGRAM.to_owned(), reason: error.to_string() },
    };
    let ended = Command::new(PROGRAM).arg("--version").stdin(Stdio::null()).output().map_err(missing)?;
    let said = String::from_utf8_lossy(&ended.stdout);
    let line = said.lines().next().unwrap_or_default();
    Ok(line.strip_prefix("QEMU emulator version ").unwrap_or(line).to_owned())
}

/// Why a guest was not waited for to its end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum GiveUp {
    /// It did not start our program in this time.
    NotUp(Duration),
    /// It gave no sign of life for this time.
    Silent(Duration),
    /// The time was over.
    TooLong(Duration),
}

/// How a guest ended.
pub(super) struct Ended {
    pub(super) console: Console,
    pub(super) status: Option<ExitStatus>,
    /// QEMU's own complaint.
    pub(super) complaint: String,
    pub(super) given_up: Option<GiveUp>,
    pub(super) took: Duration,
}

/// A process that is ended when this goes.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &OsStr, arguments: &[OsString]) -> Result<ChildGuard, GuestError> {
    let parent = Some(getpid());
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let tie = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // Who died before that call sends no signal any more.
        if getppid() == parent { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: both calls may be made between fork and exec, and touch no memory.
    unsafe { command.pre_exec(tie) };
    match command.spawn() {
        Ok(child) => Ok(ChildGuard(child)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(GuestError::NoQemu),
        Err(error) => Err(GuestError::Program { program: PROGRAM.to_owned(), reason: error.to_string() }),
    }
}

/// Boots a guest and waits until it is off, or given up. `laying_out` is called when its job begins to lay out files,
/// and when it has done so.
pub(super) fn boot(
    program: &OsStr,
    arguments: &[OsString],
    ledger: &Ledger,
    limits: Limits,
    laying_out: &dyn Fn(bool),
) -> Result<Ended, GuestError> {
    let begun = Instant::now();
    let mut qemu = start(program, arguments)?;
    let noted = ledger.note_process(qemu.0.id())?;
    let (lines, heard) = mpsc::channel::<(Instant, Vec<u8>)>();
    if let Some(pipe) = qemu.0.stdout.take() {
        std::thread::spawn(move || listen(pipe, &lines));
    }
    let (complaints, complaint) = mpsc::channel::<(Instant, Vec<u8>)>();
    if let Some(pipe) = qemu.0.stderr.take() {
        std::thread::spawn(move || listen(pipe, &complaints));
    }
    let mut console = Console::new(begun);
    let hear = |console: &mut Console, at, line: &[u8]| {
        let before = console.laying_out;
        console.line(line, at);
        if console.laying_out != before {
            laying_out(console.laying_out);
        }
    };
    let mut given_up = None;
    let mut interrupted = false;
    let status = loop {
        match heard.recv_timeout(Duration::from_millis(20)) {
            Ok((at, line)) => hear(&mut console, at, &line),
            // Its output is at its end; the process will be, too.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(5)),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Ok(Some(status)) = qemu.0.try_wait() {
            break Some(status);
        }
        let now = begun.elapsed();
        given_up = if console.stage == Stage::Booting && now > limits.boot.min(limits.whole) {
            Some(GiveUp::NotUp(now))
        } else if console.stage != Stage::Booting && console.heard.elapsed() > limits.silence {
            Some(GiveUp::Silent(console.heard.elapsed()))
        } else if now > limits.whole {
            Some(GiveUp::TooLong(now))
        } else {
            None
        };
        interrupted = signal::raised();
        if given_up.is_some() || interrupted {
            break None;
        }
    };
    let took = begun.elapsed();
    drop(qemu);
    let rest = Instant::now();
    while let Ok((at, line)) = heard.recv_timeout(REST.saturating_sub(rest.elapsed())) {
        hear(&mut console, at, &line);
    }
    let mut said: Vec<String> = Vec::new();
    while let Ok((_, line)) = complaint.recv_timeout(REST.saturating_sub(rest.elapsed())) {
        said.push(String::from_utf8_lossy(&line).trim().to_owned());
    }
    said.retain(|line| !line.is_empty());
    noted.undo()?;
    if interrupted {
        return Err(GuestError::Interrupted);
    }
    Ok(Ended { console, status, complaint: said.join("; "), given_up, took })
}

/// Hands on lines with the moments at which they came; the last one without an end, too.
fn listen(mut pipe: impl Read, lines: &mpsc::Sender<(Instant, Vec<u8>)>) {
    let mut line = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let n = match pipe.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(n) => n,
            Err(_) => 0,
        };
        let at = Instant::now();
        for byte in &buffer[..n] {
            // Output without line ends comes in pieces.
            if *byte == b'\n' || line.len() > 1 << 16 {
                if lines.send((at, std::mem::take(&mut line))).is_err() {
                    return;
                }
            } else {
                line.push(*byte);
            }
        }
        if n == 0 {
            if !line.is_empty() {
                let _ = lines.send((at, line));
            }
            return;
        }
    }
}
