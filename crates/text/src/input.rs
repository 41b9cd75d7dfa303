//! Files that words of a user name, read with a limit: `/dev/zero` has no end.

use std::io::{Error, Read, Result};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The longest job file that is read, in bytes.
pub const JOB: u64 = 16 << 20;
/// The longest text of samples or vectors that is read, in bytes.
pub const TEXT: u64 = 1 << 30;

/// The bytes of a file.
///
/// # Errors
/// It cannot be read, is longer than `most` bytes, or is a pipe that this process writes itself, which never ends.
pub fn bytes(path: &Path, most: u64) -> Result<Vec<u8>> {
    let found = std::fs::metadata(path)?;
    let ours = |fd: u32| {
        let same = |of: std::fs::Metadata| (of.dev(), of.ino()) == (found.dev(), found.ino());
        std::fs::metadata(format!("/proc/self/fd/{fd}")).is_ok_and(same)
    };
    if found.file_type().is_fifo() && (ours(1) || ours(2)) && !ours(0) {
        return Err(Error::other("it is the pipe that the output goes to"));
    }
    if found.len() > most {
        return Err(longer(most));
    }
    whole(std::fs::File::open(path)?, found.len(), most)
}

/// The error for an input of more than `most` bytes.
pub fn longer(most: u64) -> Error {
    Error::other(format!("it is longer than {}", crate::size(most)))
}

fn whole(from: impl Read, expected: u64, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.reserve_exact(expected as usize);
    from.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(longer(most)) } else { Ok(bytes) }
}

/// Bytes as text.
///
/// # Errors
/// They are not UTF-8.
pub fn utf8(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| Error::other("it is not UTF-8"))
}

/// The text of a file; as [`bytes`].
///
/// # Errors
/// As those of [`bytes`], and text that is not UTF-8.
pub fn text(path: &Path, most: u64) -> Result<String> {
    utf8(bytes(path, most)?)
}

/// Standard input; as [`text`].
///
/// # Errors
/// As those of [`text`].
pub fn standard(most: u64) -> Result<String> {
    utf8(whole(std::io::stdin().lock(), 0, most)?)
}

/// The files below a folder, as paths from there. Links to folders are not followed.
///
/// # Errors
/// A folder cannot be listed, or there are more than `most` files.
pub fn below(folder: &Path, most: usize) -> Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(at) = folders.pop() {
        for entry in std::fs::read_dir(folder.join(&at))? {
            let entry = entry?;
            let path = at.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if folder.join(&path).is_file() {
                files.push(path);
            }
        }
        if files.len() + folders.len() > most {
            return Err(Error::other(format!("it holds more than {most} files")));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn what_has_no_end_is_refused() {
        let error = super::bytes(Path::new("/dev/zero"), 1 << 20).expect_err("endless");
        assert_eq!(error.to_string(), "it is longer than 1MiB");
        assert!(super::text(Path::new("/proc/self/status"), 1 << 20).expect("a text").contains("Name:"));
    }
}
