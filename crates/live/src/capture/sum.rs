//! Sums of calls and requests that the kernel makes itself: a BPF program on raw tracepoints (`bpf/sum.bpf.c`).
//!
//! ```text
//! level      light: requests; layers: calls on files and devices, and pages that the page cache did not have, too
//! key        process, file, device, layer, operation; a time has four buckets for each power of two
//! filters    processes with their children, files and devices, all in the kernel
//! names      the first call of a process on a file comes here by a ring buffer, and the descriptor is looked up
//! ```
//! Nothing is left behind when this process ends, in whatever way: the kernel frees programs with their descriptors.
//!
//! Known limits: calls of io_uring and libaio, and of 32-bit programs, are not seen; a call counts when it returns; a
//! request is of the process that inserts it, for written back pages one of the kernel. Needs Linux 5.12 with BTF.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use aya::maps::{Array, HashMap, MapData, RingBuf};
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf, EbpfLoader};
use aya_obj::btf::BtfKind;
use iowhy_stack::trace::{Dev, Inode};

use super::bpf::{map, refused, refused_in};
use super::{Ask, CaptureError, Level, allowed, opened};
use crate::system::readable;

/// The program, made by `clang -target bpf -mcpu=v3 -O2 -g -fdebug-compilation-dir=. -c` and `llvm-strip -g`.
static PROGRAM: &[u8] = include_bytes!("bpf/sum.bpf.o");

/// Stands in the program for a call of `bpf_rdonly_cast`, and the move that does without.
const CAST: [u8; 8] = [0x85, 0x20, 0, 0, 0x0d, 0xf0, 0xb0, 0x49];
const MOVE: [u8; 8] = [0xbf, 0x10, 0, 0, 0, 0, 0, 0];

const BUCKETS: usize = 128;

/// Functions of the program, their tracepoints, and the least level of each.
const HOOKS: [(&str, &str, Level); 8] = [
    ("forked", "sched_process_fork", Level::Light),
    ("freed", "sched_process_free", Level::Light),
    ("complete", "block_rq_complete", Level::Light),
    ("issue", "block_rq_issue", Level::Light),
    ("insert", "block_rq_insert", Level::Light),
    ("page_added", "mm_filemap_add_to_page_cache", Level::Layers),
    ("leave", "sys_exit", Level::Layers),
    ("enter", "sys_enter", Level::Layers),
];

/// System calls and what they do, by the numbers of this architecture.
const CALLS: [(libc::c_long, Op); 12] = [
    (libc::SYS_read, Op::Read),
    (libc::SYS_pread64, Op::Read),
    (libc::SYS_readv, Op::Read),
    (libc::SYS_preadv, Op::Read),
    (libc::SYS_preadv2, Op::Read),
    (libc::SYS_write, Op::Write),
    (libc::SYS_pwrite64, Op::Write),
    (libc::SYS_writev, Op::Write),
    (libc::SYS_pwritev, Op::Write),
    (libc::SYS_pwritev2, Op::Write),
    (libc::SYS_fsync, Op::Sync),
    (libc::SYS_fdatasync, Op::Sync),
];

/// The interval that was timed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// A call, from its begin to its end.
    Call,
    /// A request, from its allocation to the driver.
    Queue,
    /// A request, from the driver to its completion.
    Device,
    /// Pages that the page cache did not have; they have no time.
    Pages,
}

impl Layer {
    /// Its name.
    pub fn name(self) -> &'static str {
        ["call", "queue", "device", "pages"][self as usize]
    }
}

/// The operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// Read.
    Read = 1,
    /// Written.
    Write,
    /// Made permanent.
    Sync,
    /// Discarded.
    Discard,
    /// Something else.
    Other,
}

impl Op {
    /// Its name.
    pub fn name(self) -> &'static str {
        ["read", "write", "sync", "discard", "other"][self as usize - 1]
    }
}

/// The sum as the program has it.
#[repr(C)]
#[derive(Copy, Clone)]
struct Raw {
    what: u64,
    ino: u64,
    dev: u32,
    tgid: u32,
    count: u64,
    bytes: u64,
    ns: u64,
    longest: u64,
    failed: u64,
    comm: [u8; 16],
    buckets: [u64; BUCKETS],
}

// SAFETY: it has only numbers, of which all values are valid, and no padding.
unsafe impl aya::Pod for Raw {}

/// A file in a filter.
#[repr(C)]
#[derive(Copy, Clone)]
pub(super) struct FileId {
    ino: u64,
    dev: u32,
    unused: u32,
}

impl FileId {
    pub(super) fn new(Inode { dev, ino }: Inode) -> FileId {
        FileId { ino, dev: dev.0, unused: 0 }
    }
}

// SAFETY: as above.
unsafe impl aya::Pod for FileId {}

/// The subject of a sum.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub pid: u32,
    pub layer: Layer,
    pub op: Op,
    /// The default where it is not known.
    pub file: Inode,
    /// The default of calls and pages.
    pub disk: Dev,
}

/// A sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub count: u64,
    pub bytes: u64,
    pub ns: u64,
    pub longest_ns: u64,
    pub failed: u64,
    /// Buckets that are not empty: the shortest time, that from which on the next begins, and how often.
    pub buckets: BTreeMap<(u64, u64), u64>,
}

impl Sum {
    /// Takes another in.
    pub fn add(&mut self, other: &Sum) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.ns += other.ns;
        self.failed += other.failed;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        for (bucket, count) in &other.buckets {
            *self.buckets.entry(*bucket).or_default() += count;
        }
    }

    /// The time that a part of them does not exceed: the upper end of its bucket, or the longest of all, ns.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        let mut left = (self.count as f64 * quantile).ceil() as u64;
        for ((_, end), count) in &self.buckets {
            if *count >= left {
                return self.longest_ns.min(*end);
            }
            left -= count;
        }
        self.longest_ns
    }
}

/// Begin and end of a bucket, ns.
fn bucket(nr: usize) -> (u64, u64) {
    let begin = |nr: usize| if nr == 0 { 0 } else { (4 + (nr as u64 - 1) % 4) << (4 + (nr - 1) / 4) };
    (begin(nr), if nr + 1 == BUCKETS { u64::MAX } else { begin(nr + 1) })
}

/// All sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summed {
    pub level: Level,
    pub sums: BTreeMap<Key, Sum>,
    /// Names of processes and files, as far as they are known.
    pub comms: BTreeMap<u32, String>,
    pub paths: BTreeMap<Inode, String>,
    pub length: Duration,
    /// Events that were not added, because the table of sums, or that of what goes on, was full.
    pub lost: u64,
}

impl Summed {
    /// Events that the sums are made of, at least: the begin and the end of a call, the issue and the completion of a
    /// request.
    pub fn events(&self) -> u64 {
        self.sums.iter().map(|(key, sum)| if key.layer == Layer::Call { 2 * sum.count } else { sum.count }).sum()
    }
}

/// Sums that are being made.
pub struct Sums {
    bpf: Ebpf,
    names: RingBuf<MapData>,
    level: Level,
    begun: Instant,
    paths: BTreeMap<Inode, String>,
}

/// The program with the number of the kernel's `bpf_rdonly_cast` (6.2 and later) in it, and whether there is one.
fn linked(btf: &Btf) -> (Vec<u8>, bool) {
    let number = btf.id_by_type_name_kind("bpf_rdonly_cast", BtfKind::Func).ok();
    let mut call = number.map_or(MOVE, |_| CAST);
    number.into_iter().for_each(|number| call[4..].copy_from_slice(&number.to_ne_bytes()));
    let mut program = PROGRAM.to_vec();
    while let Some(place) = program.windows(CAST.len()).position(|bytes| bytes == CAST) {
        program[place..place + CAST.len()].copy_from_slice(&call);
    }
    (program, number.is_some())
}

impl Sums {
    /// Begins. `memory` bytes are for the table of sums. This process is left out unless it is among those asked for.
    ///
    /// # Errors
    /// If this user may not, or the kernel runs no such programs.
    pub fn start(ask: &Ask, memory: u64) -> Result<Sums, CaptureError> {
        allowed()?;
        let btf = Btf::from_sys_fs().map_err(refused)?;
        let (program, casts) = linked(&btf);
        let mut ops = [0_u8; 512];
        for (number, op) in CALLS {
            ops[number as usize] = op as u8;
        }
        let most = (memory / size_of::<Raw>() as u64).clamp(64, 1 << 24) as u32;
        let entries = 1_u32 << most.ilog2();
        let (this, mask, casts) = (std::process::id(), entries - 1, u8::from(casts));
        let left_out = if ask.pids.contains(&this) { 0 } else { this };
        let filters = [ask.of_tasks(), !ask.inodes.is_empty(), !ask.devices.is_empty()].map(u8::from);
        let mut bpf = EbpfLoader::new()
            .btf(Some(&btf))
            .override_global("own", &left_out, true)
            .override_global("mask", &mask, true)
            .override_global("casts", &casts, true)
            .override_global("ops", &ops[..], true)
            .override_global("by_task", &filters[0], true)
            .override_global("by_file", &filters[1], true)
            .override_global("by_device", &filters[2], true)
            .map_max_entries("sums", entries)
            .load(&program)
            .map_err(refused)?;
        let mut files: HashMap<_, FileId, u8> = map(&mut bpf, "files")?;
        ask.inodes.iter().try_for_each(|inode| files.insert(FileId::new(*inode), 1, 0)).map_err(refused)?;
        let mut devices: HashMap<_, u32, u8> = map(&mut bpf, "devices")?;
        for dev in &ask.devices {
            devices.insert(dev.0, 1, 0).map_err(refused)?;
        }
        let names = bpf.take_map("names").ok_or_else(|| CaptureError::Bpf("no ring".to_owned()))?;
        let names = RingBuf::try_from(names).map_err(refused)?;
        let mut sums = Sums { bpf, names, level: ask.level, begun: Instant::now(), paths: BTreeMap::new() };
        sums.follow(&ask.pids)?;
        if ask.children {
            sums.follow(&[this])?;
        }
        for (name, tracepoint, _) in HOOKS.iter().filter(|(_, _, level)| *level <= ask.level) {
            let program = sums.bpf.program_mut(name).ok_or_else(|| CaptureError::Bpf(format!("no {name}")))?;
            let program: &mut BtfTracePoint = program.try_into().map_err(refused)?;
            program.load(tracepoint, &btf).map_err(|error| refused_in(name, error))?;
            program.attach().map_err(refused)?;
        }
        sums.begun = Instant::now();
        Ok(sums)
    }

    /// Follows more processes, and what they start from now on.
    ///
    /// # Errors
    /// If the kernel has no room for them.
    pub fn follow(&mut self, pids: &[u32]) -> Result<(), CaptureError> {
        let mut tasks: HashMap<_, u32, u8> = map(&mut self.bpf, "tasks")?;
        pids.iter().try_for_each(|pid| tasks.insert(*pid, 1, 0)).map_err(refused)
    }

    /// Waits a while, and looks up the files that come into use meanwhile.
    pub fn wait(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while readable(&[self.names.as_fd()], until.saturating_duration_since(Instant::now())) == [true] {
            while let Some(item) = self.names.next() {
                let number = |at: usize| item.get(at..at + 4).and_then(|it| it.try_into().ok()).map(u32::from_ne_bytes);
                let ino = item.get(..8).and_then(|it| it.try_into().ok()).map(u64::from_ne_bytes);
                let (Some(ino), Some(dev), Some(pid), Some(fd)) = (ino, number(8), number(12), number(16)) else {
                    continue;
                };
                let file = Inode { dev: Dev(dev), ino };
                if !self.paths.contains_key(&file)
                    && let Some(path) = opened::path_of(pid, fd, ino)
                {
                    self.paths.insert(file, path);
                }
            }
            if Instant::now() >= until {
                break;
            }
        }
    }

    /// Ends it.
    ///
    /// # Errors
    /// If the sums cannot be read.
    pub fn stop(mut self) -> Result<Summed, CaptureError> {
        for (name, ..) in HOOKS {
            if let Some(program) = self.bpf.program_mut(name) {
                let program: &mut BtfTracePoint = program.try_into().map_err(refused)?;
                // Those of a higher level were never loaded.
                let _ = program.unload();
            }
        }
        let length = self.begun.elapsed();
        self.wait(Duration::ZERO);
        let mut summed = Summed { level: self.level, length, ..Summed::default() };
        let table: Array<_, Raw> = map(&mut self.bpf, "sums")?;
        for raw in table.iter() {
            summed.take(&raw.map_err(refused)?);
        }
        let lost: Array<_, [u64; 3]> = map(&mut self.bpf, ".bss")?;
        summed.lost = lost.get(&0, 0).map_err(refused)?[..2].iter().sum();
        for pid in summed.sums.keys().map(|key| key.pid) {
            let known = || fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned());
            if let std::collections::btree_map::Entry::Vacant(entry) = summed.comms.entry(pid)
                && let Some(name) = known()
            {
                entry.insert(name);
            }
        }
        summed.paths = self.paths;
        Ok(summed)
    }
}

impl Summed {
    /// Takes in the sum of one CPU.
    fn take(&mut self, raw: &Raw) {
        let layers = [Layer::Call, Layer::Queue, Layer::Device, Layer::Pages];
        let ops = [Op::Read, Op::Write, Op::Sync, Op::Discard, Op::Other];
        let layer = layers.get((raw.what >> 4 & 15) as usize);
        let op = ops.get((raw.what & 15).wrapping_sub(1) as usize);
        let (Some(layer), Some(op)) = (layer, op) else { return };
        if raw.count == 0 {
            return;
        }
        let name: Vec<u8> = raw.comm.iter().copied().take_while(|byte| *byte != 0).collect();
        if !name.is_empty() {
            self.comms.insert(raw.tgid, String::from_utf8_lossy(&name).into_owned());
        }
        let file = Inode { dev: Dev(raw.dev), ino: raw.ino };
        let key = Key { pid: raw.tgid, layer: *layer, op: *op, file, disk: Dev((raw.what >> 32) as u32) };
        let used = raw.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        let buckets = used.map(|(nr, count)| (bucket(nr), *count)).collect();
        let Raw { count, bytes, ns, longest, failed, .. } = *raw;
        self.sums.entry(key).or_default().add(&Sum { count, bytes, ns, longest_ns: longest, failed, buckets });
    }
}

#[cfg(test)]
mod tests {
    use super::super::bpf;
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_quantiles_are_their_ends() {
        assert_eq!([0, 1, 2, 5, 9].map(bucket), [(0, 64), (64, 80), (80, 96), (128, 160), (256, 320)]);
        assert!((1..BUCKETS).all(|nr| bucket(nr).0 == bucket(nr - 1).1));
        let buckets = BTreeMap::from([((64, 80), 98), ((128, 160), 1), ((256, 320), 1)]);
        let sum = Sum { count: 100, longest_ns: 300, buckets, ..Sum::default() };
        assert_eq!([0.5, 0.98, 0.99, 1.0].map(|part| sum.quantile_ns(part)), [80, 80, 160, 300]);
    }

    #[test]
    fn the_program_is_made_of_its_source() {
        bpf::is_made_of_its_source("sum", PROGRAM);
    }
}
