//! Facts of files in a recording, so that a model can predict their pages ([`crate::conform::kernel::foreign`]).
//!
//! ```text
//! iowhy:file    dev= ino= bytes= block= holes= tail= fs= disk= ra_kb= io_kb=
//!               numbers as the events of pages have them: `stat` shows others on btrfs and overlayfs
//! iowhy:cached  dev= ino= runs=0+8,32+4   pages in the page cache at the end: those that no event put there were there
//!               before
//! ```
//! Known limits: a file that is gone, or that was never opened by a name, has none of these.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use iowhy_live::cache;
use iowhy_live::capture::Captured;
use iowhy_live::machine::{self, Disk, Mount};
use iowhy_stack::trace::{Dev, Inode, Record, Seen};
use iowhy_stack::units::Nanos;

/// Runs that one record names.
const RUNS: usize = 64;

/// The file that the page cache has for a path: on overlayfs that of a layer.
fn real(mounts: &[Mount], path: &Path) -> Option<(PathBuf, Inode)> {
    let mount = machine::mount_of(mounts, path)?;
    if mount.filesystem == "overlay" {
        let below = path.strip_prefix(&mount.point).ok()?;
        let layers = |key: &str| {
            let value = mount.super_options.split(',').find_map(|option| option.strip_prefix(key)).unwrap_or_default();
            value
                .split(':')
                .filter(|layer| !layer.is_empty())
                .map(|layer| Path::new(layer).join(below))
                .collect::<Vec<_>>()
        };
        let all: Vec<PathBuf> = [layers("upperdir="), layers("lowerdir=")].concat();
        let layer = all.iter().find(|path| path.is_file()).and_then(|path| fs::canonicalize(path).ok())?;
        return real(mounts, &layer).filter(|_| layer != path);
    }
    let ino = fs::metadata(path).ok()?.ino();
    Some((path.to_owned(), Inode { dev: Dev::new(mount.number.0, mount.number.1), ino }))
}

/// The folder of the backing device that a btrfs on this device has of its own.
pub(super) fn backing_of_btrfs(device: &Path) -> Option<PathBuf> {
    let device = Path::new("devices").join(device);
    let mut systems = fs::read_dir("/sys/fs/btrfs").ok()?.flatten().map(|system| system.path());
    systems.find(|system| system.join(&device).exists()).map(|system| system.join("bdi"))
}

/// The read-ahead limit of a file system that has one of its own.
fn own_limit_kb(disk: &Disk) -> Option<u64> {
    let name = disk.name.as_ref().filter(|_| disk.filesystem.as_deref() == Some("btrfs"))?;
    fs::read_to_string(backing_of_btrfs(Path::new(name))?.join("read_ahead_kb")).ok()?.trim().parse().ok()
}

/// The largest request of btrfs' own `bdi`, which has the usual values (`VM_READAHEAD_PAGES`).
const USUAL_IO_KB: u64 = 128;

/// Facts of a file that a model needs.
pub(crate) struct Facts {
    /// The file as the events of pages have it.
    pub(crate) inode: Inode,
    pub(crate) bytes: u64,
    /// Bytes of a block of its file system.
    pub(crate) block: u64,
    /// Parts of it are not on the disk.
    pub(crate) holes: bool,
    /// Bytes at its end that are kept with its metadata.
    pub(crate) tail: u64,
    pub(crate) disk: Disk,
    pub(crate) ra_kb: u64,
    pub(crate) io_kb: u64,
    /// Its pages in the page cache.
    pub(crate) cached: Vec<Range<u64>>,
}

impl Facts {
    /// Of the file of this name; nothing if it is none.
    pub(crate) fn of(mounts: &[Mount], path: &Path) -> Option<Facts> {
        let path = fs::canonicalize(path).ok()?;
        let (place, inode) = real(mounts, &path)?;
        let metadata = fs::metadata(&place).ok()?;
        let disk = Disk::below(&place);
        let own = own_limit_kb(&disk);
        let file = File::open(&place).ok().filter(|_| metadata.is_file())?;
        Some(Facts {
            inode,
            bytes: metadata.len(),
            block: cache::block_bytes(&place).unwrap_or(metadata.blksize()),
            // The system counts in 512 bytes.
            holes: metadata.blocks() * 512 < metadata.len(),
            tail: cache::inline_tail(&file, metadata.len()),
            ra_kb: own.or(disk.queue.read_ahead_kb).unwrap_or(0),
            io_kb: disk.queue.max_sectors_kb.filter(|_| own.is_none()).unwrap_or(USUAL_IO_KB),
            disk,
            cached: cache::resident_runs(&file, metadata.len()).unwrap_or_default(),
        })
    }
}

/// Writes it for all files that the trace has names of.
pub(super) fn write(captured: &mut Captured) {
    let mounts = machine::current_mounts();
    let end = captured.trace.records.last().map_or(Nanos(0), |record| record.at);
    let mut lines = Vec::new();
    for (named, path) in &captured.trace.paths {
        // Another file may have the name by now.
        let found = Facts::of(&mounts, Path::new(path)).filter(|file| file.inode == *named);
        let Some(file) = found else { continue };
        let numbers = format!("dev={},{} ino={}", named.dev.major(), named.dev.minor(), named.ino);
        lines.push((
            "iowhy:file",
            format!(
                "{numbers} bytes={} block={} holes={} tail={} fs={} disk={} ra_kb={} io_kb={}",
                file.bytes,
                file.block,
                u8::from(file.holes),
                file.tail,
                file.disk.filesystem.as_deref().unwrap_or("none"),
                file.disk.name.as_deref().unwrap_or("none"),
                file.ra_kb,
                file.io_kb,
            ),
        ));
        for runs in file.cached.chunks(RUNS) {
            let runs: Vec<String> = runs.iter().map(|run| format!("{}+{}", run.start, run.end - run.start)).collect();
            lines.push(("iowhy:cached", format!("{numbers} runs={}", runs.join(","))));
        }
    }
    let note = |(name, fields): (&str, String)| {
        let seen = Seen::Other { name: name.to_owned(), fields };
        Record { at: end, cpu: 0, pid: 0, seen }
    };
    captured.trace.records.extend(lines.into_iter().map(note));
}
