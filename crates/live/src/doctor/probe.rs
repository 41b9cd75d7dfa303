//! Abilities, tried out.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::process::{Resource, getrlimit};

use super::{Ability, Has, text};
use crate::engine::libaio::Context;
use crate::memory::Aligned;
use crate::system::{Request, control};
use crate::{cache, capture, machine, state};

/// Tries everything out; files are made (without a name) in `directory`.
pub(super) fn abilities(directory: &Path) -> Vec<Ability> {
    vec![
        root(),
        tracing(),
        trace_events(tracefs().as_deref()),
        bpf(),
        cachestat(),
        io_uring(),
        libaio(),
        direct_io(directory),
        locked_memory(),
        loop_devices(),
        fuse(),
        ublk(),
        kvm(),
        qemu(),
    ]
}

fn ability(name: &'static str, purpose: &'static str, has: Has, detail: impl Into<String>, advice: &str) -> Ability {
    Ability { name, purpose, has, detail: detail.into(), advice: advice.to_owned() }
}

pub(super) fn loop_devices() -> Ability {
    device_node("loop", "disks made of files", "/dev/loop-control", "needs root and the module: modprobe loop")
}

pub(super) fn fuse() -> Ability {
    let purpose = "modelled disks under the running kernel";
    device_node("fuse", purpose, "/dev/fuse", "needs root and the module: modprobe fuse")
}

/// Where tracefs is mounted.
fn tracefs() -> Option<PathBuf> {
    let mounts = machine::current_mounts().into_iter();
    mounts.filter(|mount| mount.filesystem == "tracefs").map(|mount| mount.point).next()
}

pub(super) fn root() -> Ability {
    let purpose = "tracing, loop devices, mounts, settings of queues";
    match state::user() {
        0 => ability("root", purpose, Has::Yes, "this is root", ""),
        user => ability("root", purpose, Has::No, format!("user {user}"), "start it with `sudo`"),
    }
}

pub(super) fn tracing() -> Ability {
    let purpose = "seeing the work of every layer of the kernel";
    let list = text("/proc/filesystems");
    let known = list.as_ref().is_some_and(|list| list.lines().any(|line| line.ends_with("\ttracefs")));
    let Some(tracefs) = tracefs() else {
        return if known && state::user() == 0 {
            ability("tracefs", purpose, Has::Yes, "not mounted: a recording mounts it for itself", "")
        } else if known {
            ability("tracefs", purpose, Has::No, "not mounted, and mounting it needs root", "start it with `sudo`")
        } else if list.is_none() {
            ability("tracefs", purpose, Has::No, "/proc cannot be read", "mount -t proc proc /proc")
        } else {
            ability("tracefs", purpose, Has::No, "the kernel was built without it", "another kernel (CONFIG_FTRACE)")
        };
    };
    match fs::read_dir(tracefs.join("instances")) {
        Ok(_) => ability("tracefs", purpose, Has::Yes, format!("mounted on {}", tracefs.display()), ""),
        Err(error) => {
            let detail = format!("mounted on {}: {error}", tracefs.display());
            ability("tracefs", purpose, Has::No, detail, "start it with `sudo`")
        }
    }
}

/// Groups of events that layers are seen by. Those of read-ahead are the newest.
const GROUPS: &[&str] = &["block", "filemap", "readahead", "writeback", "syscalls", "sched", "io_uring"];

fn trace_events(tracefs: Option<&Path>) -> Ability {
    let (name, purpose) = ("trace-events", "which layers can be seen");
    let Some(events) = tracefs.map(|tracefs| tracefs.join("events")).filter(|events| fs::read_dir(events).is_ok())
    else {
        return ability(name, purpose, Has::Unknown, "tracefs cannot be read", "");
    };
    let is_there = |group: &&&str| {
        fs::read_dir(events.join(group)).is_ok_and(|entries| entries.flatten().any(|entry| entry.path().is_dir()))
    };
    let (have, missing): (Vec<&str>, Vec<&str>) = GROUPS.iter().partition(|group| is_there(group));
    if missing.is_empty() {
        return ability(name, purpose, Has::Yes, have.join(", "), "");
    }
    let has = if have.is_empty() { Has::No } else { Has::Partly };
    let detail = format!("{}; missing: {}", have.join(", "), missing.join(", "));
    ability(
        name,
        purpose,
        has,
        detail,
        "a newer kernel; without `readahead` its decisions are inferred from the others",
    )
}

fn bpf() -> Ability {
    /// `union bpf_attr` of `linux/bpf.h`, as far as loading a program needs it.
    #[repr(C)]
    struct Load {
        kind: u32,
        instructions: u32,
        code: u64,
        license: u64,
        log: [u64; 2],
        kernel_version: u32,
        flags: u32,
    }
    const BPF_PROG_LOAD: libc::c_long = 5;
    const RAW_TRACEPOINT: u32 = 17;
    // "r0 = 0; exit": the shortest program that the kernel accepts.
    let code: [[u8; 8]; 2] = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let license = c"Dual MIT/GPL";
    let load = Load {
        kind: RAW_TRACEPOINT,
        instructions: 2,
        code: code.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log: [0; 2],
        kernel_version: 0,
        flags: 0,
    };
    // SAFETY: the kernel reads the structure, the program and the licence, which live until the call is over; the
    // descriptor that it makes belongs to nobody else.
    let loaded = unsafe {
        match libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const load, size_of::<Load>()) {
            fd if fd < 0 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd as libc::c_int)),
        }
    };
    let purpose = "sums and stacks, and recording where tracefs is denied";
    match loaded {
        // Only the recorder's own programs show whether this kernel's verifier takes them.
        Ok(_) => match capture::programs_are_accepted() {
            Ok(()) => ability("bpf", purpose, Has::Yes, "the programs that record can be loaded", ""),
            Err(error) => {
                let detail = format!("a program can be loaded, but not those that record: {}", error.reason());
                ability("bpf", purpose, Has::Partly, detail, "tracefs records without them")
            }
        },
        Err(error) => ability("bpf", purpose, Has::No, error.to_string(), "needs root, or CAP_BPF and CAP_PERFMON"),
    }
}

fn cachestat() -> Ability {
    let purpose = "counting cached, dirty and evicted pages of a file";
    // A kernel that has it says that no descriptor is -1.
    match cache::cachestat(-1) {
        Err(error) if error.raw_os_error() != Some(libc::EBADF) => {
            let advice = "Linux 6.5 has it; mincore is used instead, which cannot see dirty pages";
            ability("cachestat", purpose, Has::No, error.to_string(), advice)
        }
        _ => ability("cachestat", purpose, Has::Yes, "the kernel answers", ""),
    }
}

fn io_uring() -> Ability {
    let purpose = "the engine io_uring";
    match io_uring::IoUring::new(2) {
        Ok(ring) => {
            let mut probe = io_uring::Probe::new();
            let known = ring.submitter().register_probe(&mut probe).is_ok();
            let operations = (0..=u8::MAX).filter(|code| probe.is_supported(*code)).count();
            let detail = if known { format!("{operations} operations") } else { "rings can be made".to_owned() };
            ability("io_uring", purpose, Has::Yes, detail, "")
        }
        Err(error) => {
            let disabled = text("/proc/sys/kernel/io_uring_disabled").is_some_and(|value| value.trim() != "0");
            let advice = if disabled {
                "as root: sysctl kernel.io_uring_disabled=0"
            } else {
                "a container may forbid it (seccomp); the engine libaio serves instead"
            };
            ability("io_uring", purpose, Has::No, error.to_string(), advice)
        }
    }
}

fn libaio() -> Ability {
    let purpose = "the engine libaio";
    match Context::new(1) {
        Ok(_) => {
            let limit = text("/proc/sys/fs/aio-max-nr").unwrap_or_default();
            ability("libaio", purpose, Has::Yes, format!("at most {} calls on the machine", limit.trim()), "")
        }
        Err(error) => {
            let advice = "raise /proc/sys/fs/aio-max-nr, or use the engine io_uring";
            ability("libaio", purpose, Has::No, error.to_string(), advice)
        }
    }
}

fn direct_io(directory: &Path) -> Ability {
    let (name, purpose) = ("direct-io", "O_DIRECT, and the alignment of its calls");
    let place = directory.display();
    // A file without a name leaves nothing behind, whatever happens.
    let open = |flags| OpenOptions::new().read(true).write(true).custom_flags(flags).open(directory);
    if let Err(error) = open(libc::O_TMPFILE) {
        return ability(name, purpose, Has::Unknown, format!("no file can be made in {place}: {error}"), "");
    }
    let file = match open(libc::O_TMPFILE | libc::O_DIRECT) {
        Ok(file) => file,
        Err(error) => {
            let detail = format!("the file system of {place} does not have it: {error}");
            return ability(name, purpose, Has::No, detail, "another file system, or buffered I/O");
        }
    };
    if let Some((memory, offset)) = said_alignment(&file) {
        if offset == 0 {
            let detail = format!("the file system of {place} says that it does not have it");
            return ability(name, purpose, Has::No, detail, "another file system, or buffered I/O");
        }
        let detail = format!("in {place}: buffers at multiples of {memory} bytes, offsets and sizes of {offset}");
        return ability(name, purpose, Has::Yes, detail, "");
    }
    let mut buffer = Aligned::new(4096);
    match [512, 4096].into_iter().find(|size| file.write_at(&buffer.bytes()[..*size], 0).is_ok()) {
        Some(size) => ability(name, purpose, Has::Yes, format!("in {place}: {size} bytes work"), ""),
        None => {
            let detail = format!("in {place} not even aligned pages can be written");
            ability(name, purpose, Has::No, detail, "another file system, or buffered I/O")
        }
    }
}

/// Alignment of memory and of offsets, if the kernel has it (since Linux 6.1; 0 for a file system without O_DIRECT).
fn said_alignment(file: &File) -> Option<(u32, u32)> {
    let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let said = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::DIOALIGN);
    said.then_some((found.stx_dio_mem_align, found.stx_dio_offset_align))
}

fn locked_memory() -> Ability {
    let (name, purpose) = ("locked-memory", "buffers registered with io_uring");
    let Some(limit) = getrlimit(Resource::Memlock).current else {
        return ability(name, purpose, Has::Yes, "no limit", "");
    };
    let detail = format!("at most {} KiB", limit >> 10);
    // 128 calls of 64 KiB in flight need that much.
    let has = if limit >= 8 << 20 { Has::Yes } else { Has::Partly };
    ability(name, purpose, has, detail, if has == Has::Yes { "" } else { "ulimit -l unlimited" })
}

fn device_node(name: &'static str, purpose: &'static str, node: &str, advice: &str) -> Ability {
    match OpenOptions::new().read(true).write(true).open(node) {
        Ok(_) => ability(name, purpose, Has::Yes, format!("{node} can be opened"), ""),
        Err(error) => ability(name, purpose, Has::No, format!("{node}: {error}"), advice),
    }
}

pub(super) fn ublk() -> Ability {
    let (name, purpose) = ("ublk", "modelled disks of any depth, without FUSE");
    match crate::ublk::lacks() {
        None => ability(name, purpose, Has::Yes, "its driver answers", ""),
        Some(why) => ability(name, purpose, Has::No, why, "as root: modprobe ublk_drv; FUSE and loop serve instead"),
    }
}

pub(super) fn kvm() -> Ability {
    let (name, purpose) = ("kvm", "other kernels at full speed");
    let advice = "other kernels run emulated, which is slower";
    match OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        Ok(kvm) => match control(&kvm, Request::KvmVersion, 0).unwrap_or(-1) {
            12 => ability(
                name,
                purpose,
                Has::Yes,
                "/dev/kvm answers (some nested machines still cannot start guests)",
                "",
            ),
            version => ability(name, purpose, Has::No, format!("/dev/kvm answers {version}"), advice),
        },
        Err(error) => ability(name, purpose, Has::No, format!("/dev/kvm: {error}"), advice),
    }
}

pub(super) fn qemu() -> Ability {
    let program = format!("qemu-system-{}", std::env::consts::ARCH);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found: Option<PathBuf> =
        std::env::split_paths(&path).map(|folder| folder.join(&program)).find(|path| path.is_file());
    let purpose = "running the same job on another kernel";
    match found {
        Some(path) => ability("qemu", purpose, Has::Yes, path.display().to_string(), ""),
        None => {
            let detail = format!("{program} is not in PATH");
            ability("qemu", purpose, Has::No, detail, "Debian: apt-get install qemu-system")
        }
    }
}
