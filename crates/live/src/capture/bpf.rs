//! Programs for the kernel, their tables, and what the kernel says about them.

use std::os::fd::{AsFd, AsRawFd};

use aya::Ebpf;
use aya::maps::{Map, MapError};
use aya::programs::Program;
use aya_obj::generated::{bpf_cmd, bpf_prog_info};

use super::CaptureError;

/// The beginning of a refusal, and of the verifier's output in it.
const LOADING: &str = "the BPF_PROG_LOAD syscall returned ";
const OUTPUT: &str = ". Verifier output: ";
/// Begins of its lines of statistics, which come behind the verdict.
const STATISTICS: [&str; 4] = ["processed ", "verification time ", "stack depth ", "insns "];
/// The longest reason that is shown, characters.
const LONGEST: usize = 240;

/// An error with its causes, in one line.
pub(super) fn refused(error: impl std::error::Error) -> CaptureError {
    let mut text = brief(&error.to_string());
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = brief(&cause.to_string());
        if !text.contains(&cause_text) {
            text.push_str(&format!(": {cause_text}"));
        }
        source = cause.source();
    }
    CaptureError::Bpf(text)
}

/// The same of a program that the kernel did not take.
pub(super) fn refused_in(program: &str, error: impl std::error::Error) -> CaptureError {
    match refused(error) {
        CaptureError::Bpf(text) => CaptureError::Bpf(format!("`{program}`: {text}")),
        other => other,
    }
}

/// One line of an error. The verifier's output begins with remarks and ends with its verdict: of it the last
/// instruction is shown, and the lines behind that.
fn brief(text: &str) -> String {
    let Some((head, output)) = text.split_once(OUTPUT) else {
        return text.lines().next().unwrap_or_default().to_owned();
    };
    let is_verdict = |line: &&str| !line.is_empty() && !STATISTICS.iter().any(|begin| line.starts_with(begin));
    let lines: Vec<&str> = output.lines().map(str::trim).filter(is_verdict).collect();
    let is_instruction =
        |line: &&str| line.split_once(": (").is_some_and(|(nr, _)| nr.bytes().all(|byte| byte.is_ascii_digit()));
    let from = lines.iter().rposition(is_instruction).unwrap_or(lines.len().saturating_sub(1));
    // Behind an instruction stands the state of registers.
    let shown = lines[from..].iter().map(|line| line.split(';').next().unwrap_or(line).trim());
    let parts: Vec<&str> = std::iter::once(head.trim_start_matches(LOADING)).chain(shown).collect();
    parts.join(": ").chars().take(LONGEST).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_verifier_its_verdict_is_shown() {
        let head = "Permission denied (os error 13)";
        let output = "reg type unsupported for arg#0 function enter#129\n0: R1=ctx(off=0,imm=0) R10=fp0\n\
                      0: (79) r8 = *(u64 *)(r1 +0)   ; R1=ctx(off=0,imm=0)\n\
                      107: (7b) *(u64 *)(r6 +64) = r1   ; R1_w=scalar() R6=mem(off=0)\n\
                      invalid access to memory, mem_size=64 off=64 size=8\n\
                      R6 min value is outside of the allowed memory range\n\
                      processed 121 insns (limit 1000000) max_states_per_insn 0\n";
        let verdict = "107: (7b) *(u64 *)(r6 +64) = r1: invalid access to memory, mem_size=64 off=64 size=8: \
                       R6 min value is outside of the allowed memory range";
        assert_eq!(brief(&format!("{LOADING}{head}{OUTPUT}{output}")), format!("{head}: {verdict}"));
        let without = "kernel btf_id 7 is not a function\nprocessed 0 insns (limit 1000000)\n";
        assert_eq!(brief(&format!("{head}{OUTPUT}{without}")), format!("{head}: kernel btf_id 7 is not a function"));
        assert_eq!(brief(&format!("{head}{OUTPUT}")), head);
        assert_eq!(brief(&format!("{head}{OUTPUT}{}", "x".repeat(9999))).len(), LONGEST);
        assert_eq!(brief("first\nsecond"), "first");
        let error = std::io::Error::other("no room");
        assert_eq!(refused_in("enter", error).to_string(), CaptureError::Bpf("`enter`: no room".into()).to_string());
    }
}
