//! Programs for the kernel, their tables, and what the kernel says about them.

use std::os::fd::{AsFd, AsRawFd};

use aya::Ebpf;
use aya::maps::{Map, MapError};
use aya::programs::Program;
use aya_obj::generated::{bpf_cmd, bpf_prog_info};

use super::CaptureError;

/// An error with its causes, in one line.
pub(super) fn refused(error: impl std::error::Error) -> CaptureError {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    CaptureError::Bpf(text.lines().next().unwrap_or_default().to_owned())
}

/// A table of a program.
pub(super) fn map<'a, T: TryFrom<&'a mut Map, Error = MapError>>(
    bpf: &'a mut Ebpf,
    name: &str,
) -> Result<T, CaptureError> {
    let map = bpf.map_mut(name).ok_or_else(|| CaptureError::Bpf(format!("no {name}")))?;
    map.try_into().map_err(refused)
}

/// How often a program did not run, because it interrupted itself on that CPU; 0 where the kernel does not count.
pub(super) fn misses(program: &Program) -> u64 {
    #[repr(C)]
    struct Asked {
        fd: i32,
        length: u32,
        address: u64,
    }
    let Ok(fd) = program.fd() else { return 0 };
    // SAFETY: it has only numbers, for which 0 is a value.
    let mut info: bpf_prog_info = unsafe { std::mem::zeroed() };
    let (fd, length) = (fd.as_fd().as_raw_fd(), size_of_val(&info) as u32);
    let mut asked = Asked { fd, length, address: (&raw mut info) as u64 };
    let (command, size) = (bpf_cmd::BPF_OBJ_GET_INFO_BY_FD as libc::c_long, size_of_val(&asked));
    // SAFETY: the descriptor is open, and both structures have the sizes that are given and outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut asked, size) };
    if result == 0 { info.recursion_misses } else { 0 }
}

/// That an object in `bpf` is what clang makes of its source; `IOWHY_REWRITE=1` renews it.
#[cfg(test)]
pub(super) fn is_made_of_its_source(name: &str, object: &[u8]) {
    use std::path::Path;
    use std::process::Command;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/capture/bpf");
    let version = Command::new("clang").arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    if !version.contains("version 14.") || !Path::new("/usr/include/bpf/bpf_helpers.h").exists() {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no clang 14 (clang, llvm, libbpf-dev)");
        eprintln!("SKIPPED: clang 14 with libbpf-dev is needed to make {name}.bpf.o again");
        return;
    }
    let path = std::env::temp_dir().join(format!("iowhy-{name}-{}.o", std::process::id()));
    let include = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let words = "-target bpf -mcpu=v3 -O2 -g -Wall -Werror -D__TARGET_ARCH_x86 -fdebug-compilation-dir=.";
    let mut clang = Command::new("clang");
    clang.args(words.split(' ')).args([&include, "-c", &format!("{name}.bpf.c"), "-o"]).arg(&path).current_dir(&folder);
    assert!(clang.status().expect("clang starts").success());
    assert!(Command::new("llvm-strip").arg("-g").arg(&path).status().expect("llvm-strip starts").success());
    let made = std::fs::read(&path).expect("the object");
    std::fs::remove_file(&path).expect("it is ours");
    if made != object && std::env::var_os("IOWHY_REWRITE").is_some() {
        return std::fs::write(folder.join(format!("{name}.bpf.o")), made).expect("the object is written");
    }
    assert!(made == object, "{name}.bpf.o is not what {name}.bpf.c makes: IOWHY_REWRITE=1 renews it");
}
