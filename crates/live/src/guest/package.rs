//! Packages of kernels: unpacked by `dpkg-deb`, or by `rpm2cpio` and `cpio`, and never installed.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use super::GuestError;

/// How a package for rpm begins.
pub(super) const RPM: &[u8] = b"\xed\xab\xee\xdb";

/// Runs a program to its end, and yields what it prints.
pub(super) fn run(program: &str, arguments: &[&std::ffi::OsStr], folder: Option<&Path>) -> Result<String, GuestError> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).env("LC_ALL", "C");
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    let ended = command
        .output()
        .map_err(|error| GuestError::Program { program: program.to_owned(), reason: error.to_string() })?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr);
        let said: Vec<&str> = said.lines().filter(|line| !line.starts_with("W: ")).collect();
        return Err(GuestError::Program { program: program.to_owned(), reason: said.join("; ") });
    }
    Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
}

/// Unpacks a package, without installing it.
pub(super) fn unpack(package: &Path, folder: &Path) -> Result<(), GuestError> {
    let mut head = [0; 4];
    let is_rpm = File::open(package).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == *RPM;
    if !is_rpm {
        return run("dpkg-deb", &["-x".as_ref(), package.as_os_str(), folder.as_os_str()], None).map(drop);
    }
    let what = || format!("make {}", folder.display());
    fs::create_dir_all(folder).map_err(|error| GuestError::Io { what: what(), error })?;
    let package = std::path::absolute(package).unwrap_or_else(|_| package.to_owned());
    // One program for a pipe of two: its end is that of cpio, which fails without an archive.
    let pipe = "rpm2cpio \"$0\" | cpio -idmu --quiet";
    run("sh", &["-c".as_ref(), pipe.as_ref(), package.as_os_str()], Some(folder)).map(drop)
}

/// A key by which 10 comes after 9.
pub(super) fn natural(name: &str) -> Vec<(u64, String)> {
    let mut parts: Vec<(u64, String)> = vec![(0, String::new())];
    let mut in_number = false;
    for letter in name.chars() {
        match letter.to_digit(10) {
            Some(digit) => {
                if !in_number {
                    parts.push((0, String::new()));
                }
                if let Some((number, _)) = parts.last_mut() {
                    *number = number.saturating_mul(10).saturating_add(u64::from(digit));
                }
            }
            None => {
                if let Some((_, word)) = parts.last_mut() {
                    word.push(letter);
                }
            }
        }
        in_number = letter.is_ascii_digit();
    }
    parts
}

/// The bytes of a module or an index.
pub(super) fn unpacked(path: &Path) -> Result<Vec<u8>, GuestError> {
    let program = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => {
            let what = format!("read {}", path.display());
            return fs::read(path).map_err(|error| GuestError::Io { what, error });
        }
    };
    let failed = |reason: String| GuestError::Program { program: program.to_owned(), reason };
    let ended = Command::new(program).arg("-dc").arg(path).stdin(Stdio::null()).output();
    let ended = ended.map_err(|error| failed(error.to_string()))?;
    if ended.status.success() { Ok(ended.stdout) } else { Err(failed(String::from_utf8_lossy(&ended.stderr).into())) }
}
