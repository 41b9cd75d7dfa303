//! BPF programs as a source of events (`bpf/record.bpf.c`), for kernels and places that deny instances of tracefs.
//!
//! ```text
//! raw        programs on raw tracepoints write what records are made of, with the names of tracefs ([`HOOKS`])
//! calls      two programs for all system calls; the numbers of those that are wanted are a table of theirs ([`CALLS`])
//! others     tracepoints without a program of their own are copied, with the description that tracefs has of them
//! tasks      a table of threads, which the programs keep up to date as tasks are started and end
//! switch     a variable that every program looks at: all of them begin and end at once
//! lost       what the ring had no room for, and runs of programs that interrupted themselves on one CPU
//! ```
//! Source: `Documentation/bpf/libbpf/program_types.rst`, `ringbuf.rst`. The kernel frees programs with their
//! descriptors: nothing is left behind. Known limits: needs Linux 5.16 with BTF, for states of tasks 6.0; without any
//! tracefs the copied tracepoints (journals, writeback, reclaim, io_uring, file systems) are missing; a task that ends
//! and was neither started nor renamed meanwhile may have no name; to free a copied tracepoint takes the kernel up to
//! 0.1 s.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use aya::maps::{Array, HashMap, RingBuf};
use aya::programs::{BtfTracePoint, TracePoint};
use aya::{Btf, Ebpf, EbpfLoader};
use aya_obj::btf::BtfKind;

use super::bpf::{map, misses, refused, refused_in};
use super::decode::Decoded;
use super::events::{EVENTS, Event, Place, STACK};
use super::format::{self, Field, Format};
use super::instance;
use super::reader::{Page, Ring, Rings, Taken};
use super::shape::Shape;
use super::stacks::STACKED;
use super::sum::FileId;
use super::tracefs::{USUAL, at_its_place, is_at_its_place};
use super::{Ask, CaptureError, Level, On, Prepared, Source, thread_id};
use crate::machine;

/// The programs; see [`bpf`](super::bpf) for how they are made.
static PROGRAM: &[u8] = include_bytes!("bpf/record.bpf.o");

/// Numbers of records without a hook: copied tracepoints, then begins and ends of calls, which add that of the call.
const COPIED: u16 = 0x100;
const BEGIN: u16 = 0x1000;
const END: u16 = 0x2000;

/// In the program: calls that there may be, tracepoints that can be copied, a head with time and CPU.
const CALL_NUMBERS: usize = 512;
const COPIES: usize = 32;
const HEAD: usize = 24;

/// Bytes for text behind the fields of a copied tracepoint.
const TEXT: usize = 64;

/// The largest ring.
const LARGEST: u64 = 1 << 28;

/// The value of a followed task, and of one of the capture's own, in the table of tasks.
const FOLLOWED: u8 = 1;
const OWN: u8 = 2;

const BLOCK: &str = "dev_t dev, u32 nr_sector, u64 sector, u32 bytes, s32 error, char rwbs[8], char comm[16]";
const SPLIT: &str =
    "dev_t dev, u32 nr_sector, u64 sector, u32 bytes, s32 error, char rwbs[8], char comm[16], u64 new_sector";
const REMAP: &str = "dev_t dev, u32 nr_sector, u64 sector, u32 bytes, s32 error, char rwbs[8], char comm[16], \
                     u64 old_sector, dev_t old_dev";
const PLUG: &str = "s32 nr_rq, char comm[16]";
const PAGES: &str = "u64 i_ino, u64 index, u64 last_index, dev_t s_dev, u32 order";
const WINDOW: &str = "u64 i_ino, u64 index, u64 req_count, u64 nr_to_read, u64 lookahead_size, s64 prev_pos, \
                      dev_t s_dev, u32 order, u32 size, u32 async_size, u32 ra_pages, u32 mmap_miss";
const STARTED: &str = "s32 pid, char comm[16], u64 clone_flags, s16 oom_score_adj";
const RENAMED: &str = "s32 pid, char oldcomm[16], char newcomm[16], s16 oom_score_adj";

/// Events with a program of their own, its name, and the fields of its records; their numbers count from 1.
const HOOKS: [(&str, &str, &str); 26] = [
    ("block/block_rq_issue", "rq_issue", BLOCK),
    ("block/block_rq_complete", "rq_complete", BLOCK),
    ("block/block_bio_complete", "bio_complete", BLOCK),
    ("block/block_bio_queue", "bio_queue", BLOCK),
    ("block/block_getrq", "getrq", BLOCK),
    ("block/block_bio_backmerge", "backmerge", BLOCK),
    ("block/block_bio_frontmerge", "frontmerge", BLOCK),
    ("block/block_rq_merge", "rq_merge", BLOCK),
    ("block/block_rq_insert", "rq_insert", BLOCK),
    ("block/block_rq_requeue", "rq_requeue", BLOCK),
    ("block/block_split", "split", SPLIT),
    ("block/block_bio_remap", "remap", REMAP),
    ("block/block_plug", "plug", PLUG),
    ("block/block_unplug", "unplug", PLUG),
    ("readahead/page_cache_sync_ra", "ra_sync", WINDOW),
    ("readahead/page_cache_async_ra", "ra_async", WINDOW),
    ("readahead/page_cache_ra_order", "ra_order", WINDOW),
    ("readahead/page_cache_ra_unbounded", "ra_unbounded", WINDOW),
    ("filemap/mm_filemap_add_to_page_cache", "page_add", PAGES),
    ("filemap/mm_filemap_delete_from_page_cache", "page_remove", PAGES),
    ("filemap/mm_filemap_get_pages", "get_pages", PAGES),
    ("filemap/mm_filemap_fault", "fault", PAGES),
    ("sched/sched_switch", "switched", "u32 next_pid, u32 prev_state, char comm[16]"),
    ("sched/sched_waking", "waking", "s32 pid, char comm[16]"),
    ("task/task_newtask", "newtask", STARTED),
    ("task/task_rename", "task_renamed", RENAMED),
];

/// Fields of stacks, whose program is that of the switches; their number follows those of the hooks.
const STACKS: &str = "u32 tgid, u32 count, u64 calls[24], u64 top[8]";
const _: () = assert!(STACKED as usize == HOOKS.len() + 1);

/// Programs that are always there, and their tracepoints.
const OWN_HOOKS: [(&str, &str); 2] = [("forked", "sched_process_fork"), ("freed", "sched_process_free")];

/// Programs of all system calls, and their tracepoints.
const ENDS: [(&str, &str); 2] = [("enter", "sys_enter"), ("leave", "sys_exit")];

/// The C library has no name for it.
const IO_PGETEVENTS: libc::c_long = if cfg!(target_arch = "x86_64") { 333 } else { 292 };

/// System calls: their numbers here, names and arguments; those with a star are addresses.
const CALLS: &[(libc::c_long, &str)] = &[
    (libc::SYS_read, "read fd *buf count"),
    (libc::SYS_pread64, "pread64 fd *buf count pos"),
    (libc::SYS_readv, "readv fd *vec vlen"),
    (libc::SYS_preadv, "preadv fd *vec vlen pos_l pos_h"),
    (libc::SYS_preadv2, "preadv2 fd *vec vlen pos_l pos_h flags"),
    (libc::SYS_write, "write fd *buf count"),
    (libc::SYS_pwrite64, "pwrite64 fd *buf count pos"),
    (libc::SYS_writev, "writev fd *vec vlen"),
    (libc::SYS_pwritev, "pwritev fd *vec vlen pos_l pos_h"),
    (libc::SYS_pwritev2, "pwritev2 fd *vec vlen pos_l pos_h flags"),
    (libc::SYS_fsync, "fsync fd"),
    (libc::SYS_fdatasync, "fdatasync fd"),
    (libc::SYS_syncfs, "syncfs fd"),
    (libc::SYS_sync_file_range, "sync_file_range fd offset nbytes flags"),
    (libc::SYS_openat, "openat dfd *filename flags mode"),
    (libc::SYS_openat2, "openat2 dfd *filename *how usize"),
    (libc::SYS_close, "close fd"),
    (libc::SYS_close_range, "close_range fd max_fd flags"),
    (libc::SYS_dup, "dup fildes"),
    (libc::SYS_dup3, "dup3 oldfd newfd flags"),
    (libc::SYS_fcntl, "fcntl fd cmd arg"),
    (libc::SYS_lseek, "lseek fd offset whence"),
    (libc::SYS_execve, "execve *filename *argv *envp"),
    (libc::SYS_execveat, "execveat fd *filename *argv *envp flags"),
    (libc::SYS_sendfile, "sendfile64 out_fd in_fd *offset count"),
    (libc::SYS_splice, "splice fd_in *off_in fd_out *off_out len flags"),
    (libc::SYS_copy_file_range, "copy_file_range fd_in *off_in fd_out *off_out len flags"),
    (libc::SYS_io_submit, "io_submit ctx_id nr *iocbpp"),
    (libc::SYS_io_getevents, "io_getevents ctx_id min_nr nr *events *timeout"),
    (IO_PGETEVENTS, "io_pgetevents ctx_id min_nr nr *events *timeout *usig"),
    (libc::SYS_io_uring_enter, "io_uring_enter fd to_submit min_complete flags *argp argsz"),
    (libc::SYS_fadvise64, "fadvise64 fd offset len advice"),
    (libc::SYS_readahead, "readahead fd offset count"),
    (libc::SYS_madvise, "madvise start len_in behavior"),
    (libc::SYS_sync, "sync"),
    (libc::SYS_msync, "msync start len flags"),
    (libc::SYS_fallocate, "fallocate fd mode offset len"),
    (libc::SYS_ftruncate, "ftruncate fd length"),
    (libc::SYS_unlinkat, "unlinkat dfd *pathname flag"),
    (libc::SYS_renameat2, "renameat2 olddfd *oldname newdfd *newname flags"),
    (libc::SYS_getdents64, "getdents64 fd *dirent count"),
    (libc::SYS_newfstatat, "newfstatat dfd *filename *statbuf flag"),
    (libc::SYS_statx, "statx dfd *filename flags mask *buffer"),
    (libc::SYS_nanosleep, "nanosleep *rqtp *rmtp"),
    (libc::SYS_clock_nanosleep, "clock_nanosleep which_clock flags *rqtp *rmtp"),
    (libc::SYS_flock, "flock fd cmd"),
    (libc::SYS_pselect6, "pselect6 n *inp *outp *exp *tsp *sig"),
    (libc::SYS_ppoll, "ppoll *ufds nfds *tsp *sigmask sigsetsize"),
    (libc::SYS_epoll_pwait, "epoll_pwait epfd *events maxevents timeout *sigmask sigsetsize"),
    (libc::SYS_mmap, "mmap addr len prot flags fd off"),
];

/// Those that only older processors have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[(libc::c_long, &str)] = &[
    (libc::SYS_open, "open *filename flags mode"),
    (libc::SYS_creat, "creat *pathname mode"),
    (libc::SYS_dup2, "dup2 oldfd newfd"),
    (libc::SYS_unlink, "unlink *pathname"),
    (libc::SYS_rename, "rename *oldname *newname"),
    (libc::SYS_mkdir, "mkdir *pathname mode"),
    (libc::SYS_select, "select n *inp *outp *exp *tvp"),
    (libc::SYS_poll, "poll *ufds nfds timeout_msecs"),
    (libc::SYS_epoll_wait, "epoll_wait epfd *events maxevents timeout"),
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[(libc::c_long, &str)] = &[];

/// A description of records that this program makes: fields as in C, laid out as a compiler does.
fn layout(id: u16, fields: &str) -> Format {
    let common = |name: &str, offset, size, signed| {
        let (name, kind) = (name.to_owned(), "int".to_owned());
        Field { name, kind, offset, size, signed, located: false, text: false }
    };
    let mut format = Format { id, pid: Some(common("common_pid", 4, 4, true)), ..Format::default() };
    let mut at = 8;
    for (kind, name) in fields.split(", ").filter_map(|field| field.rsplit_once(' ')) {
        let (name, len) = match name.strip_suffix(']').and_then(|name| name.split_once('[')) {
            Some((name, len)) => (name, len.parse().unwrap_or(0)),
            None => (name, 0),
        };
        let width = match kind {
            "char" => 1,
            "s16" => 2,
            "u32" | "s32" | "dev_t" => 4,
            _ => 8,
        };
        // The letters of a request are written as one number.
        let align = if name == "rwbs" { 8 } else { width };
        let (offset, size): (usize, usize) = (usize::next_multiple_of(at, align), width * 1.max(len));
        at = offset + size;
        let (signed, text) = (kind.starts_with('s'), kind == "char");
        let (name, kind) = (name.to_owned(), kind.to_owned());
        format.fields.push(Field { name, kind, offset, size, signed, located: false, text });
    }
    format
}

/// The description of the begin of a call.
fn begin(number: u16, arguments: &str) -> Format {
    let mut fields = "s32 __syscall_nr".to_owned();
    for argument in arguments.split(' ').filter(|argument| !argument.is_empty()) {
        match argument.strip_prefix('*') {
            Some(address) => fields.push_str(&format!(", void * {address}")),
            None => fields.push_str(&format!(", u64 {argument}")),
        }
    }
    layout(BEGIN | number, &fields)
}

/// Programs in the kernel.
pub(super) struct Programs {
    bpf: Ebpf,
    ring: Option<Ring>,
}

impl fmt::Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Programs").field("bpf", &self.bpf).finish_non_exhaustive()
    }
}

/// A tracepoint that is copied.
struct Copied {
    name: String,
    size: u16,
    of_device: bool,
    device_at: u16,
}

/// The programs that are needed, found before they are loaded.
#[derive(Default)]
struct Plan {
    shapes: BTreeMap<u16, Shape>,
    missing: Vec<String>,
    /// Numbers of their records, programs, tracepoints.
    hooks: Vec<(u16, &'static str, &'static str)>,
    calls: Vec<u8>,
    copied: Vec<Copied>,
}

/// Whether an event is recorded by a program of its own; the others are copied.
fn has_program(name: &str) -> bool {
    name.starts_with("syscalls/") || HOOKS.iter().any(|hook| hook.0 == name)
}

/// The description of a tracepoint by tracefs, if that is mounted.
fn described(name: &str) -> Option<Format> {
    let read = |folder: &str| fs::read_to_string(Path::new(folder).join("events").join(name).join("format")).ok();
    format::parse(&USUAL.into_iter().find_map(read)?).ok()
}

impl Plan {
    fn new(ask: &Ask, btf: &Btf) -> Plan {
        let mut plan = Plan { calls: vec![0; CALL_NUMBERS], ..Plan::default() };
        let described = is_at_its_place();
        let mut groups = BTreeSet::new();
        for event in EVENTS.iter().filter(|event| ask.wants(event)) {
            if !described && !has_program(event.names[0]) {
                groups.insert(event.names[0].split('/').next().unwrap_or_default());
                continue;
            }
            let mut names = event.names.iter().filter(|name| !ask.leaves_out(name));
            if !names.any(|name| plan.add(event, name, ask, btf)) && !event.gone {
                plan.missing.push(event.names[0].replacen('/', ":", 1));
            }
        }
        if ask.stacks && plan.hooks.iter().any(|(_, program, _)| *program == "switched") {
            let shape = Shape::of(&STACK, STACK.names[0], layout(STACKED, STACKS));
            plan.shapes.extend(shape.map(|shape| (shape.id, shape)));
        }
        if !groups.is_empty() {
            let mounted = machine::current_mounts().iter().any(|mount| mount.filesystem == "tracefs");
            let why = if mounted { "tracefs is closed to this user" } else { "no tracefs is mounted" };
            plan.missing.push(format!("{} ({why})", Vec::from_iter(groups).join(", ")));
        }
        plan
    }

    /// Adds an event under a name of it, if the kernel offers that.
    fn add(&mut self, event: &Event, name: &'static str, ask: &Ask, btf: &Btf) -> bool {
        let format = if let Some(call) = name.strip_prefix("syscalls/sys_") {
            self.call(call)
        } else if let Some(nr) = HOOKS.iter().position(|hook| hook.0 == name) {
            let (_, program, fields) = HOOKS[nr];
            let tracepoint = name.split('/').next_back().unwrap_or(name);
            let offered = btf.id_by_type_name_kind(&format!("btf_trace_{tracepoint}"), BtfKind::Typedef).is_ok();
            offered.then(|| {
                let id = nr as u16 + 1;
                self.hooks.push((id, program, tracepoint));
                layout(id, fields)
            })
        } else {
            self.copy(event, name, ask)
        };
        let shape = format.and_then(|format| Shape::of(event, name, format).ok());
        shape.map(|shape| self.shapes.insert(shape.id, shape)).is_some()
    }

    /// `enter_NAME` or `exit_NAME` of a system call.
    fn call(&mut self, name: &str) -> Option<Format> {
        let (side, name) = name.split_once('_')?;
        let of = |(number, call): &(libc::c_long, &'static str)| {
            let (known, arguments) = call.split_once(' ').unwrap_or((call, ""));
            (known == name).then_some((*number as u16, arguments))
        };
        let (number, arguments) = CALLS.iter().chain(OLD_CALLS).find_map(of)?;
        let begins = side == "enter";
        let few = if arguments.split(' ').count() > 4 { 0 } else { 4 };
        *self.calls.get_mut(usize::from(number))? |= few | if begins { 1 } else { 2 };
        Some(if begins { begin(number, arguments) } else { layout(END | number, "s32 __syscall_nr, s64 ret") })
    }

    fn copy(&mut self, event: &Event, name: &str, ask: &Ask) -> Option<Format> {
        let nr = self.copied.len();
        // Limit: programs have no filter by name, and follow forks alone, which a worker of io_uring is not.
        let mut format = described(name).filter(|_| nr < COPIES && event.place != Place::Worker)?;
        format.id = COPIED | nr as u16;
        let text = if format.fields.iter().any(|field| field.located) { TEXT } else { 0 };
        let end = format.fields.iter().map(|field| field.offset + field.size).max().unwrap_or(8);
        let of_device = event.place == Place::Block;
        let device = format.fields.iter().find(|field| field.name == "dev" && field.size == 4);
        if of_device && !ask.devices.is_empty() && device.is_none() {
            self.missing.push(format!("the filter of {}", name.replacen('/', ":", 1)));
        }
        let device_at = device.filter(|_| of_device).map_or(0, |field| field.offset as u16);
        // With the time and the CPU in front.
        let size = (end + text + HEAD - 8) as u16;
        self.copied.push(Copied { name: name.to_owned(), size, of_device, device_at });
        Some(format)
    }
}

/// Bytes of the ring: as much as tracefs has for all CPUs, up to [`LARGEST`], and an eighth of what a control group
/// allows, because a ring of BPF counts there.
fn room(buffer_kib: u32, limit: u64) -> u32 {
    let cpus = machine::Machine::read().cpus.map_or(1, u64::from);
    let asked = (u64::from(buffer_kib) * cpus).saturating_mul(2 << 10).min(LARGEST).min(limit / 8);
    1 << asked.max(4096).ilog2()
}

impl Programs {
    /// Loaded and attached, but off.
    pub(super) fn make(ask: &Ask) -> Result<Prepared<Programs>, CaptureError> {
        // Descriptions and numbers of tracepoints are there.
        at_its_place(|| {
            let btf = Btf::from_sys_fs().map_err(refused)?;
            let mut plan = Plan::new(ask, &btf);
            let of_calls = plan.calls.iter().any(|wanted| *wanted != 0);
            // The call that is timed.
            plan.calls[libc::SYS_pread64 as usize] |= 3;
            let room = room(ask.buffer_kib, machine::memory_limit().unwrap_or(u64::MAX));
            let mut programs = Programs::linked(ask, &plan, room, &btf)?;
            programs.fill(ask, room)?;
            let event_ps = programs.attach(&mut plan, of_calls, &btf)?;
            // The calls that were timed.
            programs.ring.iter_mut().for_each(|ring| Taken::default().all(ring, 0));
            let Plan { shapes, missing, .. } = plan;
            Ok(Prepared { source: programs, guard: None, shapes, missing, event_ps })
        })
    }

    /// Fails if the kernel refuses one of the programs; none is attached. One that copies stands for all of them.
    pub(super) fn accepted() -> Result<(), CaptureError> {
        let btf = Btf::from_sys_fs().map_err(refused)?;
        let ask = Ask { level: Level::Full, stacks: true, ..Ask::default() };
        let plan = at_its_place(|| Plan::new(&ask, &btf));
        let mut programs = Programs::linked(&ask, &plan, room(0, u64::MAX), &btf)?;
        let hooks = plan.hooks.iter().map(|(_, program, tracepoint)| (*program, *tracepoint));
        for (program, tracepoint) in OWN_HOOKS.into_iter().chain(ENDS).chain(hooks) {
            programs.load(program, tracepoint, &btf)?;
        }
        if plan.copied.is_empty() { Ok(()) } else { programs.load_copy("copy0").map(drop) }
    }

    /// Fitted to this kernel and to what is asked for, with tables of its own; no program is loaded yet.
    fn linked(ask: &Ask, plan: &Plan, room: u32, btf: &Btf) -> Result<Programs, CaptureError> {
        let (mut sizes, mut places, mut devices_at) = ([0_u16; COPIES], [0_u8; COPIES], [0_u16; COPIES]);
        for (nr, copied) in plan.copied.iter().enumerate() {
            (sizes[nr], places[nr], devices_at[nr]) = (copied.size, u8::from(copied.of_device), copied.device_at);
        }
        let filters = [ask.of_tasks(), !ask.inodes.is_empty(), !ask.devices.is_empty(), ask.sees_reclaim(), ask.stacks];
        let filters = filters.map(u8::from);
        let bpf = EbpfLoader::new()
            .btf(Some(btf))
            .override_global("by_task", &filters[0], true)
            .override_global("by_file", &filters[1], true)
            .override_global("by_device", &filters[2], true)
            .override_global("all_leaving", &filters[3], true)
            .override_global("stacks", &filters[4], true)
            .override_global("calls", &plan.calls[..], true)
            .override_global("sizes", &sizes, true)
            .override_global("places", &places, true)
            .override_global("devices_at", &devices_at, true)
            .map_max_entries("ring", room)
            .map_max_entries("files", ask.inodes.len().max(1) as u32)
            .map_max_entries("devices", ask.devices.len().max(1) as u32)
            .load(PROGRAM)
            .map_err(refused)?;
        Ok(Programs { bpf, ring: None })
    }

    /// The tables of files and devices, and the ring.
    fn fill(&mut self, ask: &Ask, room: u32) -> Result<(), CaptureError> {
        let mut files: HashMap<_, FileId, u8> = map(&mut self.bpf, "files")?;
        ask.inodes.iter().try_for_each(|inode| files.insert(FileId::new(*inode), 1, 0)).map_err(refused)?;
        let mut devices: HashMap<_, u32, u8> = map(&mut self.bpf, "devices")?;
        ask.devices.iter().try_for_each(|dev| devices.insert(dev.0, 1, 0)).map_err(refused)?;
        let ring = self.bpf.take_map("ring").ok_or_else(|| CaptureError::Bpf("no ring".to_owned()))?;
        self.ring = Some(Ring::new(RingBuf::try_from(ring).map_err(refused)?, room.into(), ask.stacks));
        Ok(())
    }

    /// Attaches the programs; what the kernel refuses is missing. Yields the cost of an event.
    fn attach(&mut self, plan: &mut Plan, of_calls: bool, btf: &Btf) -> Result<u64, CaptureError> {
        OWN_HOOKS.iter().try_for_each(|(program, tracepoint)| self.hook(program, tracepoint, btf))?;
        let mut refusal = None;
        let me = thread_id();
        let event_ps = instance::cost(|on| {
            if on {
                ENDS.iter().try_for_each(|(program, tracepoint)| self.hook(program, tracepoint, btf))?;
                self.task(me, Some(FOLLOWED))?;
                self.switch(On::All)
            } else {
                self.switch(On::Nothing)?;
                self.task(me, None)
            }
        })?;
        if !of_calls {
            for (program, _) in ENDS {
                let program = self.bpf.program_mut(program).and_then(|program| program.try_into().ok());
                program.map_or(Ok(()), |program: &mut BtfTracePoint| program.unload()).map_err(refused)?;
            }
        }
        let mut refused = |plan: &mut Plan, id, error| {
            plan.missing.extend(plan.shapes.remove(&id).map(|shape| shape.name));
            refusal.get_or_insert(error);
        };
        for (id, program, tracepoint) in std::mem::take(&mut plan.hooks) {
            self.hook(program, tracepoint, btf).unwrap_or_else(|error| refused(plan, id, error));
        }
        for (nr, copied) in std::mem::take(&mut plan.copied).iter().enumerate() {
            let done = self.copied(nr, &copied.name);
            done.unwrap_or_else(|error| refused(plan, COPIED | nr as u16, error));
        }
        // Where nothing is left, the reason is of interest.
        refusal.filter(|_| plan.shapes.is_empty()).map_or(Ok(event_ps), Err)
    }

    fn hook(&mut self, program: &str, tracepoint: &str, btf: &Btf) -> Result<(), CaptureError> {
        self.load(program, tracepoint, btf)?.attach().map(drop).map_err(|error| refused_in(program, error))
    }

    fn load(&mut self, name: &str, tracepoint: &str, btf: &Btf) -> Result<&mut BtfTracePoint, CaptureError> {
        let program = self.bpf.program_mut(name).ok_or_else(|| CaptureError::Bpf(format!("no {name}")))?;
        let program: &mut BtfTracePoint = program.try_into().map_err(refused)?;
        program.load(tracepoint, btf).map_err(|error| refused_in(name, error))?;
        Ok(program)
    }

    fn copied(&mut self, nr: usize, name: &str) -> Result<(), CaptureError> {
        let program = self.load_copy(&format!("copy{nr}"))?;
        let (group, name) = name.split_once('/').unwrap_or((name, ""));
        program.attach(group, name).map(drop).map_err(refused)
    }

    fn load_copy(&mut self, name: &str) -> Result<&mut TracePoint, CaptureError> {
        let program = self.bpf.program_mut(name).ok_or_else(|| CaptureError::Bpf(format!("no {name}")))?;
        let program: &mut TracePoint = program.try_into().map_err(refused)?;
        program.load().map_err(|error| refused_in(name, error))?;
        Ok(program)
    }

    /// Says which kind of task this is, or forgets it.
    fn task(&mut self, task: u32, kind: Option<u8>) -> Result<(), CaptureError> {
        let mut tasks: HashMap<_, u32, u8> = map(&mut self.bpf, "tasks")?;
        match kind {
            Some(kind) => tasks.insert(task, kind, 0).map_err(refused),
            None => tasks.remove(&task).map_err(refused),
        }
    }
}

impl Source for Programs {
    fn rings(&mut self) -> Result<Box<dyn Rings>, CaptureError> {
        let ring = self.ring.take().ok_or_else(|| CaptureError::Bpf("no ring".to_owned()))?;
        Ok(Box::new(ring))
    }

    fn aim(&mut self, ask: &Ask, own: &[u32]) -> Result<(), CaptureError> {
        if !ask.of_tasks() {
            return own.iter().try_for_each(|task| self.task(*task, Some(OWN)));
        }
        if ask.children {
            self.task(own[0], Some(FOLLOWED))?;
        }
        if !self.follow(&ask.pids, own.last().copied().unwrap_or(0))? && !ask.named {
            ask.pids.first().map_or(Ok(()), |pid| Err(CaptureError::NoProcess(*pid)))?;
        }
        Ok(())
    }

    fn follow(&mut self, pids: &[u32], reader: u32) -> Result<bool, CaptureError> {
        instance::each_thread(pids, reader, |some| some.iter().try_for_each(|task| self.task(*task, Some(FOLLOWED))))
    }

    fn switch(&mut self, on: On) -> Result<(), CaptureError> {
        let state = match on {
            On::Nothing => 0,
            On::All => 1,
            On::Leaving => 2,
        };
        let mut data: Array<_, u32> = map(&mut self.bpf, ".data")?;
        data.set(0, state, 0).map_err(refused)
    }

    fn decode(&self, decoded: &mut Decoded, page: &Page<'_>, shapes: &BTreeMap<u16, Shape>, start_ns: u64) {
        decoded.single(page, shapes, start_ns);
    }

    fn names(&self) -> BTreeMap<u32, String> {
        BTreeMap::new()
    }

    fn lost(&self) -> u64 {
        let lost = self.bpf.map(".bss").and_then(|map| Array::<_, u64>::try_from(map).ok());
        let lost = lost.and_then(|lost| lost.get(&0, 0).ok()).unwrap_or(0);
        lost + self.bpf.programs().map(|(_, program)| misses(program)).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::bpf;
    use super::*;

    #[test]
    fn the_programs_are_made_of_their_source() {
        bpf::is_made_of_its_source("record", PROGRAM);
    }

    #[test]
    fn fields_lie_where_a_compiler_puts_them() {
        let offsets = |fields: &str| -> Vec<(usize, usize)> {
            layout(1, fields).fields.iter().map(|field| (field.offset, field.size)).collect()
        };
        assert_eq!(offsets(STARTED), [(8, 4), (12, 16), (32, 8), (40, 2)]);
        assert_eq!(offsets(SPLIT)[4..], [(28, 4), (32, 8), (40, 16), (56, 8)]);
        let begin = begin(17, "fd *buf count");
        assert_eq!((begin.id, begin.fields.len()), (BEGIN | 17, 4));
        assert_eq!((begin.fields[2].offset, begin.fields[2].kind.as_str()), (24, "void *"));
    }

    #[test]
    fn the_ring_is_as_large_as_those_of_tracefs_within_limits() {
        let cpus = machine::Machine::read().cpus.map_or(1, u64::from);
        assert_eq!(u64::from(room(8192, u64::MAX)), 1 << (cpus << 24).min(LARGEST).ilog2());
        assert_eq!([room(1 << 20, 64 << 20), room(1 << 20, u64::MAX), room(1, 9)], [8 << 20, 1 << 28, 4096]);
    }

    #[test]
    fn every_event_with_a_meaning_has_a_program() {
        for event in EVENTS.iter().filter(|event| event.show.is_some() && !event.gone) {
            let call = |name: &str| {
                let name = name.strip_prefix("syscalls/sys_").and_then(|name| Some(name.split_once('_')?.1));
                CALLS.iter().chain(OLD_CALLS).any(|(_, call)| call.split(' ').next() == name)
            };
            let known = |name: &&str| HOOKS.iter().any(|hook| hook.0 == *name) || call(name);
            assert!(event.names.iter().any(known), "{:?}", event.names);
        }
        let copied = EVENTS.iter().filter(|event| !has_program(event.names[0]));
        assert!(copied.count() <= COPIES);
    }
}
