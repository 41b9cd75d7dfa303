//! The file system that a guest begins with: a cpio archive with this program as `/init`.
//!
//! The archive has the "newc" form, uncompressed: for each entry a head of fourteen fields in ASCII hex, its name and
//! its bytes, both padded to four; then an entry called `TRAILER!!!`. The form is in the kernel's
//! Documentation/driver-api/early-userspace/buffer-format.rst.
//!
//! The program is the file that this process runs, without the parts that only debuggers read: everything behind the
//! last byte that a program header names is left out, and the table of sections, which loaders do not look at, is
//! marked empty. If it is linked dynamically, the libraries come along that this process has loaded, under the names by
//! which the loader found them. Known limit: a library that is only loaded later on is not there.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Folder, regular file, character device; as in `st_mode`.
const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DEVICE: u32 = 0o020_600;

/// An archive that is being written.
pub(super) struct Archive<W> {
    out: W,
    entries: u32,
    folders: Vec<PathBuf>,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Archive<W> {
        Archive { out, entries: 0, folders: Vec::new() }
    }

    fn entry(&mut self, name: &[u8], mode: u32, device: (u32, u32), bytes: &[u8]) -> io::Result<()> {
        let size = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.entries += 1;
        let links = if mode & 0o170_000 == 0o040_000 { 2 } else { 1 };
        // Number, mode, owner, group, links, time, size, device of the archive (2), device (2), length of the name,
        // sum.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            links,
            0,
            size,
            0,
            0,
            device.0,
            device.1,
            u32::try_from(name.len() + 1).map_err(io::Error::other)?,
            0,
        ];
        write!(self.out, "070701")?;
        for field in fields {
            write!(self.out, "{field:08X}")?;
        }
        self.out.write_all(name)?;
        // The name ends with a zero; head and name together are padded.
        let head = 6 + 13 * 8 + name.len() + 1;
        self.out.write_all(&[0; 5][..1 + padding(head)])?;
        self.out.write_all(bytes)?;
        self.out.write_all(&[0; 4][..padding(bytes.len())])
    }

    /// A folder, with those above it; nothing if it is there.
    pub(super) fn folder(&mut self, path: &Path) -> io::Result<()> {
        let path = plain(path);
        let mut above = PathBuf::new();
        for part in path.components() {
            above.push(part);
            if !self.folders.contains(&above) {
                self.entry(above.as_os_str().as_bytes(), FOLDER, (0, 0), &[])?;
                self.folders.push(above.clone());
            }
        }
        Ok(())
    }

    /// A file, with the folders above it. Everybody may run it.
    pub(super) fn file(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        // Who opens a/../b must find a, too.
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.reverse();
        above.into_iter().try_for_each(|folder| self.folder(folder))?;
        let path = plain(path);
        self.entry(path.as_os_str().as_bytes(), PROGRAM, (0, 0), bytes)
    }

    /// A character device.
    pub(super) fn device(&mut self, path: &Path, number: (u32, u32)) -> io::Result<()> {
        let path = plain(path);
        self.folder(path.parent().unwrap_or(Path::new("")))?;
        self.entry(path.as_os_str().as_bytes(), DEVICE, number, &[])
    }

    /// Ends it.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.entry(b"TRAILER!!!", 0, (0, 0), &[])?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Bytes up to the next multiple of four.
fn padding(length: usize) -> usize {
    length.wrapping_neg() % 4
}

/// A path as archives have it: without a slash at its beginning, and without parts that lead upwards.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => drop(out.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    out
}

/// The number of this size at a place.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// The table of program headers is within this number of bytes.
const HEAD: u64 = 1 << 16;

/// A file: if it is an ELF file of 64 bits, without what no program header names.
pub(super) fn cut(file: &mut (impl Read + Seek)) -> io::Result<Vec<u8>> {
    let length = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(HEAD).read_to_end(&mut bytes)?;
    let end = loaded_end(&bytes).filter(|end| *end <= length);
    let left = end.unwrap_or(length).saturating_sub(bytes.len() as u64);
    file.take(left).read_to_end(&mut bytes)?;
    if let Some(end) = end {
        bytes.truncate(usize::try_from(end).map_err(io::Error::other)?);
        // e_shoff, then e_shnum and e_shstrndx.
        bytes[40..48].fill(0);
        bytes[60..64].fill(0);
    }
    Ok(bytes)
}

/// Where the last byte ends that a program header names.
fn loaded_end(bytes: &[u8]) -> Option<u64> {
    // Sixty-four bits, the smallest byte first.
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let short = |at| number(bytes, at).map(|two| u64::from(u16::from_le_bytes(two)));
    let long = |at| number(bytes, at).map(u64::from_le_bytes);
    let (table, size, entries) = (long(32)?, short(54)?, short(56)?);
    let mut end = table.checked_add(size.checked_mul(entries)?)?.max(64);
    for nr in 0..entries {
        let at = usize::try_from(table.checked_add(nr * size)?).ok()?;
        end = end.max(long(at.checked_add(8)?)?.checked_add(long(at.checked_add(32)?)?)?);
    }
    (entries > 0).then_some(end)
}

/// A library: where it is, and its bytes.
type Library = (PathBuf, Vec<u8>);

/// The program that this process runs, cut, and the libraries that it has loaded.
pub(super) fn this_program() -> io::Result<(Vec<u8>, Vec<Library>)> {
    let program = cut(&mut File::open("/proc/self/exe")?)?;
    let mut libraries = Vec::new();
    for path in loaded() {
        libraries.push((path.clone(), cut(&mut File::open(&path)?)?));
    }
    Ok((program, libraries))
}

/// Names of the libraries of this process, the loader's included, as the loader knows them.
fn loaded() -> Vec<PathBuf> {
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _size: libc::size_t,
        names: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: `names` is what `loaded` has handed over, which nobody else uses meanwhile; the loader's description
        // of an object lives through this call, and its name is null or ends with a zero.
        let (names, name) = unsafe {
            let name = (*info).dlpi_name;
            (&mut *names.cast::<Vec<PathBuf>>(), if name.is_null() { c"" } else { CStr::from_ptr(name) })
        };
        let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
        if path.is_absolute() {
            names.push(path.to_owned());
        }
        0
    }
    let mut names: Vec<PathBuf> = Vec::new();
    // SAFETY: the callback has the signature asked for, and `names` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut names).cast()) };
    names
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Cursor;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    fn cut_of(bytes: &[u8]) -> Vec<u8> {
        cut(&mut Cursor::new(bytes)).expect("in memory")
    }

    #[test]
    fn an_archive_has_the_bytes_of_the_form() {
        let mut archive = Archive::new(Vec::new());
        archive.file(Path::new("/a/../b/./hi"), b"hello").expect("in memory");
        archive.device(Path::new("/null"), (1, 3)).expect("in memory");
        let bytes = archive.finish().expect("in memory");
        let folder = |nr: &str, name: &str| {
            let zeroes = "00000000";
            let none = zeroes.repeat(6);
            format!("070701{nr}000041ED{zeroes}{zeroes}00000002{none}00000002{zeroes}{name}\0")
        };
        let zeroes = "00000000";
        // As `cpio -o -H newc` writes it, but for times and inode numbers.
        let expected = [
            &folder("00000001", "a"),
            &folder("00000002", "b"),
            "07070100000003000081ED",
            zeroes,
            zeroes,
            "00000001",
            zeroes,
            "00000005",
            zeroes,
            zeroes,
            zeroes,
            zeroes,
            "00000005",
            zeroes,
            "b/hi\0\0",
            "hello\0\0\0", //
            "0707010000000400002180",
            zeroes,
            zeroes,
            "00000001",
            zeroes,
            zeroes,
            zeroes,
            zeroes,
            "00000001",
            "00000003",
            "00000005",
            zeroes,
            "null\0\0", //
            "0707010000000500000000",
            zeroes,
            zeroes,
            "00000001",
            zeroes,
            zeroes,
            zeroes,
            zeroes,
            zeroes,
            zeroes,
            "0000000B",
            zeroes,
            "TRAILER!!!\0\0\0\0",
        ]
        .concat();
        assert_eq!(String::from_utf8_lossy(&bytes), expected);
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn paths_cannot_lead_out_of_the_archive() {
        for (path, expected) in [("/a/b", "a/b"), ("../../x", "x"), ("./a/./b/", "a/b"), ("a/../../b", "b"), ("/", "")]
        {
            assert_eq!(plain(Path::new(path)), Path::new(expected), "{path}");
        }
    }

    #[test]
    fn a_program_runs_without_what_debuggers_read() {
        let whole = fs::read("/proc/self/exe").expect("this program");
        let cut = cut_of(&whole);
        assert!(cut.len() < whole.len(), "a test program has sections");
        assert_eq!(cut[64..], whole[64..cut.len()]);
        let path = std::env::temp_dir().join(format!("iowhy-cut-{}", std::process::id()));
        fs::write(&path, &cut).expect("it fits");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a new file");
        let listed = Command::new(&path).args(["--list", "a_program_runs_without"]).output();
        fs::remove_file(&path).expect("it is there");
        let listed = listed.expect("it can be started");
        assert!(listed.status.success(), "{listed:?}");
        assert!(String::from_utf8_lossy(&listed.stdout).contains("a_program_runs_without"), "{listed:?}");
    }

    #[test]
    fn what_is_no_program_stays_as_it_is() {
        let whole = fs::read("/proc/self/exe").expect("this program");
        for length in [0, 5, 16, 40, 63] {
            assert_eq!(cut_of(&whole[..length]), &whole[..length], "{length}");
        }
        // Headers that lie about where things are.
        for at in [32, 54, 56, 64 + 8, 64 + 32] {
            let mut broken = whole.clone();
            broken[at..at + 2].fill(0xff);
            broken[at + 6..at + 8].fill(0xff);
            assert!(cut_of(&broken) == broken, "{at}");
        }
        assert_eq!(cut_of(b"#!/bin/sh\n"), b"#!/bin/sh\n");
    }

    #[test]
    fn the_libraries_of_this_process_are_found() {
        let maps = fs::read_to_string("/proc/self/maps").expect("a process has maps");
        let loaded = loaded();
        // A static program has none.
        assert_eq!(loaded.is_empty(), !maps.contains("libc"), "{loaded:?}");
        assert!(loaded.iter().all(|path| path.exists()), "{loaded:?}");
    }
}
