//! Facts about a block device before it is written.
//!
//! ```text
//! in use    mounts, swap, holders and partitions of it, of the disk it is a part of, of the devices it is made of
//!           (slaves; the backing of a loop device) and of other loop devices on the same
//! open      O_EXCL, which the kernel refuses for a mount in any name space; other processes that can write to it
//! contents  first 4 and last MiB and 62 pieces of 16 KiB between, read past the page cache, all zero or as the last
//!           run of ours left them; and what `blkid` (libblkid) makes of a copy of these
//! ```
//! Known deviation: contents that lie between the samples and have no signature are not seen.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::hash::Hasher;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};

use crate::ledger;
use crate::machine::{self, Mount};
use crate::mark;
use crate::memory::Aligned;

/// The parts that all files share.
pub(super) struct Surroundings {
    mounts: Vec<Mount>,
    swaps: Vec<PathBuf>,
    loops: Vec<Loop>,
}

/// A loop device and what it is attached to.
struct Loop {
    name: String,
    number: (u32, u32),
    /// Device and inode of the file.
    backing: (u64, u64),
    /// If that is a block device: its number.
    below: Option<(u32, u32)>,
}

impl Surroundings {
    pub(super) fn read() -> Surroundings {
        let swaps = fs::read("/proc/swaps").unwrap_or_default();
        let disks = fs::read_dir("/sys/block").into_iter().flatten().filter_map(Result::ok);
        Surroundings {
            mounts: machine::current_mounts(),
            swaps: swaps_in(&String::from_utf8_lossy(&swaps)),
            loops: disks.filter_map(|disk| Loop::read(&disk.path())).collect(),
        }
    }

    /// Loop devices on a file.
    pub(super) fn loops_on(&self, backing: (u64, u64)) -> Vec<String> {
        self.loops.iter().filter(|it| it.backing == backing).map(|it| it.name.clone()).collect()
    }

    pub(super) fn is_swap(&self, real: &Path) -> bool {
        self.swaps.iter().any(|swap| swap == real)
    }
}

impl Loop {
    fn read(folder: &Path) -> Option<Loop> {
        let name = folder.file_name()?.to_string_lossy().into_owned();
        let told = fs::read_to_string(folder.join("loop/backing_file")).ok()?;
        let number = machine::device_number(&fs::read_to_string(folder.join("dev")).ok()?)?;
        // The kernel's word; who may not open the device believes the name.
        let asked = File::open(Path::new("/dev").join(&name)).and_then(|node| ledger::loop_backing(&node));
        let (backing, below) = match asked {
            Ok(Some((backing, below))) => (backing, below),
            _ => {
                let metadata = fs::metadata(told.trim_end_matches('\n')).ok()?;
                let is_block = metadata.file_type().is_block_device();
                ((metadata.dev(), metadata.ino()), if is_block { metadata.rdev() } else { 0 })
            }
        };
        Some(Loop { name, number, backing, below: (below != 0).then(|| machine::split_device(below)) })
    }
}

/// Names in `/proc/swaps`.
pub(super) fn swaps_in(text: &str) -> Vec<PathBuf> {
    text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(machine::unescaped).collect()
}

/// Uses of a device.
#[derive(Debug, Default)]
pub(super) struct Use {
    pub mounted: Vec<PathBuf>,
    pub swap: bool,
    pub partitions: Vec<String>,
    pub holders: Vec<String>,
}

impl Use {
    /// Of a device, and of all that shares its sectors.
    pub(super) fn of(number: (u32, u32), around: &Surroundings) -> Use {
        let mut found = Use::default();
        let folder = machine::sysfs_folder(number).unwrap_or_default();
        found.partitions = children(&folder, |child| child.join("partition").exists());
        let mut open = vec![number];
        let mut seen: Vec<(u32, u32)> = Vec::new();
        // Writing to a whole disk writes to its partitions, to a partition to a part of the disk, to a loop device to
        // what it is attached to, and so on down.
        while let Some(number) = open.pop() {
            if seen.contains(&number) {
                continue;
            }
            seen.push(number);
            let folder = machine::sysfs_folder(number).unwrap_or_default();
            let of = |folder: PathBuf| machine::device_number(&fs::read_to_string(folder.join("dev")).ok()?);
            let partitions = children(&folder, |child| child.join("partition").exists());
            open.extend(partitions.into_iter().filter_map(|name| of(folder.join(name))));
            let slaves = children(&folder.join("slaves"), |_| true);
            open.extend(slaves.into_iter().filter_map(|name| of(folder.join("slaves").join(name))));
            // The other partitions are not written.
            seen.extend(of(machine::whole_disk(&folder)).filter(|whole| *whole != number));
            if let Some(this) = around.loops.iter().find(|it| it.number == number) {
                open.extend(this.below);
                open.extend(around.loops.iter().filter(|it| it.backing == this.backing).map(|it| it.number));
            }
        }
        let is_one = |path: &Path| device_of(path).is_some_and(|number| seen.contains(&number));
        let mounts = around.mounts.iter().filter(|mount| seen.contains(&mount.number) || is_one(&mount.source));
        found.mounted = mounts.map(|mount| mount.point.clone()).collect();
        found.mounted.dedup();
        found.swap = around.swaps.iter().any(|swap| is_one(swap));
        for number in &seen {
            let folder = machine::sysfs_folder(*number).unwrap_or_default();
            // The chain that was followed down holds its own devices.
            let ours = |name: &String| !seen.iter().any(|number| name_of(*number).as_ref() == Some(name));
            found.holders.extend(children(&folder.join("holders"), |_| true).into_iter().filter(ours));
            let on_it = around.loops.iter().filter(|it| it.below == Some(*number) && !seen.contains(&it.number));
            found.holders.extend(on_it.map(|it| it.name.clone()));
        }
        found.holders.sort_unstable();
        found.holders.dedup();
        found
    }
}

fn name_of(number: (u32, u32)) -> Option<String> {
    Some(machine::sysfs_folder(number)?.file_name()?.to_string_lossy().into_owned())
}

/// Names in a folder of sysfs that pass.
fn children(folder: &Path, passes: impl Fn(&Path) -> bool) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let names = entries.filter(|path| passes(path));
    let mut names: Vec<String> =
        names.filter_map(|path| path.file_name().map(OsStr::to_string_lossy).map(|name| name.into_owned())).collect();
    names.sort();
    names
}

pub(super) fn device_of(path: &Path) -> Option<(u32, u32)> {
    let metadata = fs::metadata(path).ok()?;
    metadata.file_type().is_block_device().then(|| machine::split_device(metadata.rdev()))
}

/// Opens a device for this run alone; `None` if another process has it.
pub(super) fn exclusively(device: &Path) -> Option<File> {
    let open = |flags| OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK | flags).open(device);
    // Past the page cache, which a look should not fill.
    match open(libc::O_DIRECT) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(0).ok(),
        opened => opened.ok(),
    }
}

/// A process that can write to a device, other than this one.
pub(super) fn writer(number: (u32, u32)) -> Option<String> {
    let me = std::process::id();
    machine::numbers_in("/proc").into_iter().filter(|pid| *pid != me).find_map(|pid| {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let files = fs::read_dir(folder.join("fd")).ok()?.filter_map(Result::ok);
        let writes = |fd: &OsStr| {
            let told = fs::read_to_string(folder.join("fdinfo").join(fd)).unwrap_or_default();
            let flags = told.lines().find_map(|line| line.strip_prefix("flags:"));
            let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok()).unwrap_or(0);
            flags & libc::O_ACCMODE != libc::O_RDONLY && flags & libc::O_PATH == 0
        };
        let mut files = files.filter(|fd| device_of(&fd.path()) == Some(number));
        files.any(|fd| writes(&fd.file_name())).then(|| {
            let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
            format!("process {pid} ({}) has it open for writing", name.trim())
        })
    })
}

/// Bytes at the end that are read whole, and at once; four times as many at the start.
const ENDS: u64 = 1 << 20;
/// Pieces between them, and their length.
const PIECES: u64 = 62;
const PIECE: u64 = 16 << 10;

/// Findings in the samples of a device.
pub(super) struct Samples {
    pub bytes: u64,
    pub zero: bool,
    pub sum: u128,
    /// The same bytes in the same places.
    copy: File,
}

/// Size of a file or block device.
pub(crate) fn size_of(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if !metadata.file_type().is_block_device() {
        return Ok(metadata.len());
    }
    // The descriptor's position is used by nobody else yet.
    Ok(seek(file, SeekFrom::End(0))?)
}

impl Samples {
    /// Reads them, or only the ends.
    pub(super) fn read(device: &File, pieces: bool) -> io::Result<Samples> {
        let bytes = size_of(device)?;
        let copy = File::from(memfd_create("iowhy-samples", MemfdFlags::CLOEXEC)?);
        copy.set_len(bytes)?;
        let mut samples = Samples { bytes, zero: true, sum: 0, copy };
        // All signatures that libblkid knows near the start.
        let head = if pieces { 4 * ENDS } else { ENDS };
        let mut places = vec![(0, head.min(bytes))];
        if bytes > head {
            let last = bytes.saturating_sub(ENDS).max(head);
            let step = (last - head) / (PIECES + 1);
            match pieces {
                true if step > PIECE => {
                    places.extend((1..=PIECES).map(|nr| ((head + nr * step) & !(PIECE - 1), PIECE)));
                }
                true => places.push((head, last - head)),
                false => {}
            }
            places.push((last, bytes - last));
        }
        let mut buffer = Aligned::new(ENDS as usize);
        let mut hashes = [0, 1].map(twox_hash::XxHash64::with_seed);
        for (mut at, mut left) in places {
            while left > 0 {
                let part = &mut buffer.bytes()[..left.min(ENDS) as usize];
                let n = match device.read_at(part, at) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    n => n?,
                };
                if part[..n].iter().any(|byte| *byte != 0) {
                    samples.zero = false;
                    samples.copy.write_all_at(&part[..n], at)?;
                }
                hashes.iter_mut().for_each(|hash| hash.write(&part[..n]));
                (at, left) = (at + n as u64, left - n as u64);
            }
        }
        samples.sum = hashes.iter().fold(0, |sum, hash| sum << 64 | u128::from(hash.finish()));
        Ok(samples)
    }
}

/// Why the contents of a device may be missed, in words; `None` if they cannot. On a modelled disk, which iowhy has
/// made, only a signature counts: reading all samples would move its head for nothing.
pub(super) fn contents(device: &File, number: (u32, u32)) -> io::Result<Option<String>> {
    let made = ledger::has_made(&name_of(number).unwrap_or_default());
    let samples = Samples::read(device, !made)?;
    if samples.zero || mark::is_noted(number, samples.bytes, samples.sum) {
        return Ok(None);
    }
    let unknown = || (!made).then(|| "data that no run of iowhy left there".to_owned());
    Ok(signature(&samples.copy).or_else(unknown))
}

/// Notes what a device holds now as ours.
pub(super) fn note(path: &Path, number: (u32, u32)) -> io::Result<()> {
    let device = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT | libc::O_NONBLOCK).open(path)?;
    if machine::split_device(device.metadata()?.rdev()) != number
        || ledger::has_made(&name_of(number).unwrap_or_default())
    {
        return Ok(());
    }
    let samples = Samples::read(&device, true)?;
    if !samples.zero {
        mark::note_device(number, samples.bytes, samples.sum);
    }
    Ok(())
}

/// libblkid's finding in a copy of a device, if this machine has its program.
fn signature(copy: &File) -> Option<String> {
    let device = &PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), copy.as_raw_fd()));
    let words = ["-p", "-c", "/dev/null", "-o", "value", "-s", "TYPE", "-s", "PTTYPE"];
    let ask = |program: &str| {
        let mut command = Command::new(program);
        command.args(words).arg(device).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()
    };
    let told = ["blkid", "/sbin/blkid", "/usr/sbin/blkid"].into_iter().find_map(ask)?;
    let text = String::from_utf8_lossy(&told.stdout);
    let what = text.split_whitespace().collect::<Vec<_>>().join(", ");
    match (told.status.code(), what.as_str()) {
        // More than one, which contradict each other.
        (Some(8), _) => Some("several signatures (blkid)".to_owned()),
        (Some(0), what) if !what.is_empty() => Some(format!("{what} (blkid)")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swaps_are_read_with_their_escapes() {
        let text = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/vdb                    partition\t1\t0\t-2\n\
                    /my\\040swap file\t1\t0\t-3\n";
        assert_eq!(swaps_in(text), [PathBuf::from("/dev/vdb"), PathBuf::from("/my swap")]);
        assert_eq!(swaps_in(""), [] as [PathBuf; 0]);
    }
}
