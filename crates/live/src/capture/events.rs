//! The captured events: the level of each, its filter, its conversion to records.
//!
//! Each is enabled for itself: the pair of issue and completion costs an operation about 0.4 us, all block events more
//! than 2 us.

use std::fmt::Write;

use iowhy_stack::event::Op;
use iowhy_stack::trace::{Dev, Extent, Inode, RaInput, Seen};
use iowhy_stack::units::{SECTOR_BYTES, Sector};

use super::format::Values;
use super::letters::rwbs;
use super::{Ask, Level, stacks};

/// The event of a page that leaves the page cache.
pub(super) const LEAVING: &str = "filemap/mm_filemap_delete_from_page_cache";

/// Stacks, which programs of our own record with a switch, and no kernel describes.
pub(super) const STACK: Event = Event {
    names: &["iowhy/stack"],
    level: Level::Layers,
    place: Place::State,
    gone: true,
    fields: &["tgid", "count", "calls", "top"],
    show: Some(stacks::raw),
};

/// Whose doing an event is, so by what it is filtered.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The task's own, by process.
    Task,
    /// A page's of a file: by inode or device if some are named, else by process.
    Page,
    /// A page's that leaves: at the full level of processes, by any task of the machine.
    Leaving,
    /// A bio's or request's: by device. Interrupts and helpers do much of it.
    Block,
    /// A bio's with two devices.
    Remap,
    /// A task's state: only if some tasks are named, or at the full level.
    State,
    /// That of a worker of io_uring, which its task has not forked: by name.
    Worker,
}

/// An event of the table.
#[derive(Debug)]
pub(super) struct Event {
    /// `group/name`, and what it was called in other kernels.
    pub(super) names: &'static [&'static str],
    pub(super) level: Level,
    pub(super) place: Place,
    /// Newer kernels do not have it any more: that is nothing to complain of.
    pub(super) gone: bool,
    /// Fields that `show` asks for, by their numbers here.
    pub(super) fields: &'static [&'static str],
    /// Its conversion; the name and all fields as text without one.
    pub(super) show: Option<fn(&Values<'_>) -> Option<Seen>>,
}

type Show = fn(&Values<'_>) -> Option<Seen>;

/// One that a record has a name for.
const fn event(
    names: &'static [&'static str],
    level: Level,
    place: Place,
    fields: &'static [&'static str],
    show: Show,
) -> Event {
    Event { names, level, place, gone: false, fields, show: Some(show) }
}

/// One that newer kernels do not have.
const fn gone(names: &'static [&'static str], fields: &'static [&'static str], show: Show) -> Event {
    Event { names, level: Level::Layers, place: Place::Block, gone: true, fields, show: Some(show) }
}

/// One that is kept as text.
const fn other(names: &'static [&'static str]) -> Event {
    Event { names, level: Level::Full, place: Place::Task, gone: false, fields: &[], show: None }
}

/// One that names the files of descriptors, kept as text; not every kernel and processor has all of them.
const fn files(names: &'static [&'static str]) -> Event {
    Event { names, level: Level::Layers, place: Place::Task, gone: true, fields: &[], show: None }
}

/// The workload's other calls besides reading, writing and syncing data, kept as text: they show where its other time
/// goes.
const fn besides(names: &'static [&'static str]) -> Event {
    files(names)
}

/// Rare events of the kernel's own threads, kept as text at the usual level.
const fn rare(names: &'static [&'static str]) -> Event {
    Event { place: Place::Block, ..files(names) }
}

/// A state of a task; only where tasks are named, for those of a whole machine are too many.
const fn scheduled(names: &'static [&'static str], fields: &'static [&'static str], show: Show) -> Event {
    Event { place: Place::State, ..event(names, Level::Layers, Place::Task, fields, show) }
}

/// The beginning of a call.
const fn begins(names: &'static [&'static str], fields: &'static [&'static str], show: Show) -> Event {
    event(names, Level::Layers, Place::Task, fields, show)
}

/// The end of a call.
const fn ends(names: &'static [&'static str], show: Show) -> Event {
    event(names, Level::Layers, Place::Task, &["ret"], show)
}

fn start(values: &Values<'_>, op: Op, offset: Option<i64>, len_bytes: u64) -> Option<Seen> {
    // Descriptors are ints in registers: bits above 32 do not count.
    let fd = values.get(0)? as i32;
    let offset = offset.and_then(|offset| u64::try_from(offset).ok());
    Some(Seen::CallStart { op, fd, offset, len_bytes })
}

fn end(values: &Values<'_>, op: Op) -> Option<Seen> {
    Some(Seen::CallEnd { op, result: values.get(0)? })
}

const FD_COUNT: &[&str] = &["fd", "count"];
const FD_COUNT_POS: &[&str] = &["fd", "count", "pos"];
const FD: &[&str] = &["fd"];
const FD_POS: &[&str] = &["fd", "pos_l"];

/// Fields of a bio.
const BIO: &[&str] = &["dev", "sector", "nr_sector", "rwbs"];
/// Fields of a request; its bytes are more than its sectors for requests that are not of a file system.
const REQUEST: &[&str] = &["dev", "sector", "nr_sector", "rwbs", "bytes"];

fn dev(value: i64) -> Dev {
    Dev(value as u32)
}

fn bytes(sectors: u64) -> u32 {
    u32::try_from(sectors.saturating_mul(SECTOR_BYTES)).unwrap_or(u32::MAX)
}

fn extent(values: &Values<'_>) -> Option<Extent> {
    let of_request = values.get(4).filter(|bytes| *bytes > 0).and_then(|bytes| u32::try_from(bytes).ok());
    Some(Extent {
        dev: dev(values.get(0)?),
        sector: Sector(values.get(1)? as u64),
        bytes: of_request.unwrap_or_else(|| bytes(values.or_zero(2))),
        rwbs: rwbs(values.text(3)?),
    })
}

fn complete(values: &Values<'_>) -> Option<Seen> {
    Some(Seen::Complete { extent: extent(values)?, error: values.get(5).unwrap_or(0) as i32 })
}

fn split(values: &Values<'_>) -> Option<Seen> {
    let mut extent = extent(values)?;
    let rest = Sector(values.get(5)? as u64);
    extent.bytes = bytes(rest.0.saturating_sub(extent.sector.0));
    Some(Seen::Split { extent, rest })
}

fn remap(values: &Values<'_>) -> Option<Seen> {
    let (from, from_sector) = (dev(values.get(5)?), Sector(values.get(6)? as u64));
    Some(Seen::Remap { extent: extent(values)?, from, from_sector })
}

/// Fields that say which file.
const FILE: &[&str] = &["s_dev", "i_ino"];
const RA: &[&str] = &[
    "s_dev",
    "i_ino",
    "index",
    "req_count",
    "order",
    "size",
    "async_size",
    "ra_pages",
    "mmap_miss",
    "prev_pos",
    "nr_to_read",
    "lookahead_size",
];
const PAGE: &[&str] = &["s_dev", "i_ino", "index", "order"];
const PAGES: &[&str] = &["s_dev", "i_ino", "index", "last_index"];

fn file(values: &Values<'_>) -> Option<Inode> {
    debug_assert_eq!(FILE, ["s_dev", "i_ino"]);
    Some(Inode { dev: dev(values.get(0)?), ino: values.get(1)? as u64 })
}

fn input(values: &Values<'_>) -> Option<RaInput> {
    Some(RaInput {
        index: values.get(2)? as u64,
        req_count: values.get(3)? as u64,
        order: values.or_zero(4) as u32,
        size: values.get(5)? as u32,
        async_size: values.get(6)? as u32,
        ra_pages: values.get(7)? as u32,
        mmap_miss: values.or_zero(8) as u32,
        prev_pos: values.get(9)?,
    })
}

fn page(values: &Values<'_>) -> Option<(Inode, u64, u8)> {
    Some((file(values)?, values.get(2)? as u64, values.or_zero(3) as u8))
}

use Level::{Full, Layers, Light};

/// Every event that is captured.
pub(super) const EVENTS: &[Event] = &[
    event(&["block/block_rq_issue"], Light, Place::Block, REQUEST, |v| Some(Seen::Issue(extent(v)?))),
    event(
        &["block/block_rq_complete"],
        Light,
        Place::Block,
        &["dev", "sector", "nr_sector", "rwbs", "bytes", "error"],
        complete,
    ),
    event(
        &["block/block_bio_complete"],
        Layers,
        Place::Block,
        &["dev", "sector", "nr_sector", "rwbs", "bytes", "error"],
        complete,
    ),
    event(&["block/block_bio_queue"], Layers, Place::Block, BIO, |v| Some(Seen::Queue(extent(v)?))),
    event(&["block/block_getrq"], Layers, Place::Block, BIO, |v| Some(Seen::GetRequest(extent(v)?))),
    gone(&["block/block_sleeprq"], BIO, |v| Some(Seen::Sleep(extent(v)?))),
    gone(&["block/block_bio_bounce"], BIO, |v| Some(Seen::Bounce(extent(v)?))),
    event(&["block/block_bio_backmerge"], Layers, Place::Block, BIO, |v| Some(Seen::BackMerge(extent(v)?))),
    event(&["block/block_bio_frontmerge"], Layers, Place::Block, BIO, |v| Some(Seen::FrontMerge(extent(v)?))),
    event(&["block/block_rq_merge"], Layers, Place::Block, REQUEST, |v| Some(Seen::MergeRequests(extent(v)?))),
    event(&["block/block_rq_insert"], Layers, Place::Block, REQUEST, |v| Some(Seen::Insert(extent(v)?))),
    event(&["block/block_rq_requeue"], Layers, Place::Block, REQUEST, |v| Some(Seen::Requeue(extent(v)?))),
    event(
        &["block/block_split"],
        Layers,
        Place::Block,
        &["dev", "sector", "nr_sector", "rwbs", "bytes", "new_sector"],
        split,
    ),
    event(
        &["block/block_bio_remap"],
        Layers,
        Place::Remap,
        &["dev", "sector", "nr_sector", "rwbs", "bytes", "old_dev", "old_sector"],
        remap,
    ),
    event(&["block/block_plug"], Layers, Place::Task, &[], |_| Some(Seen::Plug { dev: None })),
    event(&["block/block_unplug"], Layers, Place::Task, &["nr_rq"], |v| {
        Some(Seen::Unplug { dev: None, nr_requests: v.get(0)? as u32, timer: false })
    }),
    event(&["readahead/page_cache_sync_ra"], Layers, Place::Page, RA, |v| {
        Some(Seen::RaSync { file: file(v)?, input: input(v)? })
    }),
    event(&["readahead/page_cache_async_ra"], Layers, Place::Page, RA, |v| {
        Some(Seen::RaAsync { file: file(v)?, input: input(v)? })
    }),
    event(&["readahead/page_cache_ra_order"], Layers, Place::Page, RA, |v| {
        Some(Seen::RaOrder {
            file: file(v)?,
            index: v.get(2)? as u64,
            order: v.get(4)? as u32,
            size: v.get(5)? as u32,
            async_size: v.get(6)? as u32,
            ra_pages: v.get(7)? as u32,
        })
    }),
    event(&["readahead/page_cache_ra_unbounded"], Layers, Place::Page, RA, |v| {
        Some(Seen::RaUnbounded {
            file: file(v)?,
            index: v.get(2)? as u64,
            nr_to_read: v.get(10)? as u64,
            lookahead_size: v.get(11)? as u64,
        })
    }),
    event(&["filemap/mm_filemap_add_to_page_cache"], Layers, Place::Page, PAGE, |v| {
        page(v).map(|(file, index, order)| Seen::PageAdd { file, index, order })
    }),
    event(&[LEAVING], Layers, Place::Leaving, PAGE, |v| {
        page(v).map(|(file, index, order)| Seen::PageRemove { file, index, order })
    }),
    event(&["filemap/mm_filemap_get_pages"], Full, Place::Page, PAGES, |v| {
        Some(Seen::GetPages { file: file(v)?, index: v.get(2)? as u64, last_index: v.get(3)? as u64 })
    }),
    event(&["filemap/mm_filemap_fault"], Layers, Place::Page, PAGE, |v| {
        Some(Seen::Fault { file: file(v)?, index: v.get(2)? as u64 })
    }),
    begins(&["syscalls/sys_enter_read"], FD_COUNT, |v| start(v, Op::Read, None, v.or_zero(1))),
    ends(&["syscalls/sys_exit_read"], |v| end(v, Op::Read)),
    begins(&["syscalls/sys_enter_pread64"], FD_COUNT_POS, |v| start(v, Op::Read, v.get(2), v.or_zero(1))),
    ends(&["syscalls/sys_exit_pread64"], |v| end(v, Op::Read)),
    begins(&["syscalls/sys_enter_readv"], FD, |v| start(v, Op::Read, None, 0)),
    ends(&["syscalls/sys_exit_readv"], |v| end(v, Op::Read)),
    begins(&["syscalls/sys_enter_preadv"], FD_POS, |v| start(v, Op::Read, v.get(1), 0)),
    ends(&["syscalls/sys_exit_preadv"], |v| end(v, Op::Read)),
    begins(&["syscalls/sys_enter_preadv2"], FD_POS, |v| start(v, Op::Read, v.get(1), 0)),
    ends(&["syscalls/sys_exit_preadv2"], |v| end(v, Op::Read)),
    begins(&["syscalls/sys_enter_write"], FD_COUNT, |v| start(v, Op::Write, None, v.or_zero(1))),
    ends(&["syscalls/sys_exit_write"], |v| end(v, Op::Write)),
    begins(&["syscalls/sys_enter_pwrite64"], FD_COUNT_POS, |v| start(v, Op::Write, v.get(2), v.or_zero(1))),
    ends(&["syscalls/sys_exit_pwrite64"], |v| end(v, Op::Write)),
    begins(&["syscalls/sys_enter_writev"], FD, |v| start(v, Op::Write, None, 0)),
    ends(&["syscalls/sys_exit_writev"], |v| end(v, Op::Write)),
    begins(&["syscalls/sys_enter_pwritev"], FD_POS, |v| start(v, Op::Write, v.get(1), 0)),
    ends(&["syscalls/sys_exit_pwritev"], |v| end(v, Op::Write)),
    begins(&["syscalls/sys_enter_pwritev2"], FD_POS, |v| start(v, Op::Write, v.get(1), 0)),
    ends(&["syscalls/sys_exit_pwritev2"], |v| end(v, Op::Write)),
    begins(&["syscalls/sys_enter_fsync"], FD, |v| start(v, Op::Fsync, None, 0)),
    ends(&["syscalls/sys_exit_fsync"], |v| end(v, Op::Fsync)),
    begins(&["syscalls/sys_enter_fdatasync"], FD, |v| start(v, Op::Fdatasync, None, 0)),
    ends(&["syscalls/sys_exit_fdatasync"], |v| end(v, Op::Fdatasync)),
    begins(&["syscalls/sys_enter_syncfs"], FD, |v| start(v, Op::Fsync, None, 0)),
    ends(&["syscalls/sys_exit_syncfs"], |v| end(v, Op::Fsync)),
    begins(&["syscalls/sys_enter_sync_file_range"], FD, |v| start(v, Op::Fdatasync, None, 0)),
    ends(&["syscalls/sys_exit_sync_file_range"], |v| end(v, Op::Fdatasync)),
    // It names no file: its place in memory is in no record.
    begins(&["syscalls/sys_enter_msync"], &[], |_| {
        Some(Seen::CallStart { op: Op::Fsync, fd: -1, offset: None, len_bytes: 0 })
    }),
    ends(&["syscalls/sys_exit_msync"], |v| end(v, Op::Fsync)),
    files(&["syscalls/sys_enter_open"]),
    files(&["syscalls/sys_exit_open"]),
    files(&["syscalls/sys_enter_openat"]),
    files(&["syscalls/sys_exit_openat"]),
    files(&["syscalls/sys_enter_openat2"]),
    files(&["syscalls/sys_exit_openat2"]),
    files(&["syscalls/sys_enter_creat"]),
    files(&["syscalls/sys_exit_creat"]),
    files(&["syscalls/sys_enter_close"]),
    files(&["syscalls/sys_enter_close_range"]),
    files(&["syscalls/sys_enter_dup"]),
    files(&["syscalls/sys_exit_dup"]),
    files(&["syscalls/sys_enter_dup2"]),
    files(&["syscalls/sys_exit_dup2"]),
    files(&["syscalls/sys_enter_dup3"]),
    files(&["syscalls/sys_exit_dup3"]),
    files(&["syscalls/sys_enter_fcntl"]),
    files(&["syscalls/sys_exit_fcntl"]),
    files(&["syscalls/sys_enter_lseek"]),
    files(&["syscalls/sys_exit_lseek"]),
    files(&["syscalls/sys_exit_execve"]),
    files(&["syscalls/sys_exit_execveat"]),
    files(&["task/task_newtask"]),
    // After its exec a task may leave every block event to the kernel's workers, so none of those has its new name.
    files(&["task/task_rename"]),
    begins(&["syscalls/sys_enter_sendfile64"], &["in_fd", "count"], |v| start(v, Op::Read, None, v.or_zero(1))),
    ends(&["syscalls/sys_exit_sendfile64"], |v| end(v, Op::Read)),
    begins(&["syscalls/sys_enter_splice"], &["fd_in", "len"], |v| start(v, Op::Read, None, v.or_zero(1))),
    ends(&["syscalls/sys_exit_splice"], |v| end(v, Op::Read)),
    begins(&["syscalls/sys_enter_copy_file_range"], &["fd_in", "len"], |v| start(v, Op::Read, None, v.or_zero(1))),
    ends(&["syscalls/sys_exit_copy_file_range"], |v| end(v, Op::Read)),
    besides(&["syscalls/sys_enter_io_submit"]),
    besides(&["syscalls/sys_exit_io_submit"]),
    besides(&["syscalls/sys_enter_io_getevents"]),
    besides(&["syscalls/sys_exit_io_getevents"]),
    besides(&["syscalls/sys_enter_io_pgetevents"]),
    besides(&["syscalls/sys_exit_io_pgetevents"]),
    besides(&["syscalls/sys_enter_io_uring_enter"]),
    besides(&["syscalls/sys_exit_io_uring_enter"]),
    besides(&["io_uring/io_uring_submit_req", "io_uring/io_uring_submit_sqe"]),
    besides(&["io_uring/io_uring_complete"]),
    Event { place: Place::Worker, ..besides(&["io_uring/io_uring_complete"]) },
    besides(&["io_uring/io_uring_queue_async_work"]),
    besides(&["syscalls/sys_enter_fadvise64"]),
    besides(&["syscalls/sys_exit_fadvise64"]),
    besides(&["syscalls/sys_enter_readahead"]),
    besides(&["syscalls/sys_exit_readahead"]),
    besides(&["syscalls/sys_enter_madvise"]),
    besides(&["syscalls/sys_exit_madvise"]),
    besides(&["syscalls/sys_enter_sync"]),
    besides(&["syscalls/sys_exit_sync"]),
    besides(&["syscalls/sys_enter_fallocate"]),
    besides(&["syscalls/sys_exit_fallocate"]),
    besides(&["syscalls/sys_enter_ftruncate"]),
    besides(&["syscalls/sys_exit_ftruncate"]),
    besides(&["syscalls/sys_enter_unlink"]),
    besides(&["syscalls/sys_exit_unlink"]),
    besides(&["syscalls/sys_enter_unlinkat"]),
    besides(&["syscalls/sys_exit_unlinkat"]),
    besides(&["syscalls/sys_enter_rename"]),
    besides(&["syscalls/sys_exit_rename"]),
    besides(&["syscalls/sys_enter_renameat2"]),
    besides(&["syscalls/sys_exit_renameat2"]),
    besides(&["syscalls/sys_enter_mkdir"]),
    besides(&["syscalls/sys_exit_mkdir"]),
    besides(&["syscalls/sys_enter_getdents64"]),
    besides(&["syscalls/sys_exit_getdents64"]),
    besides(&["syscalls/sys_enter_newfstatat"]),
    besides(&["syscalls/sys_exit_newfstatat"]),
    besides(&["syscalls/sys_enter_statx"]),
    besides(&["syscalls/sys_exit_statx"]),
    besides(&["syscalls/sys_enter_nanosleep"]),
    besides(&["syscalls/sys_exit_nanosleep"]),
    besides(&["syscalls/sys_enter_clock_nanosleep"]),
    besides(&["syscalls/sys_exit_clock_nanosleep"]),
    besides(&["syscalls/sys_enter_flock"]),
    besides(&["syscalls/sys_exit_flock"]),
    besides(&["syscalls/sys_enter_select"]),
    besides(&["syscalls/sys_exit_select"]),
    besides(&["syscalls/sys_enter_pselect6"]),
    besides(&["syscalls/sys_exit_pselect6"]),
    besides(&["syscalls/sys_enter_poll"]),
    besides(&["syscalls/sys_exit_poll"]),
    besides(&["syscalls/sys_enter_ppoll"]),
    besides(&["syscalls/sys_exit_ppoll"]),
    besides(&["syscalls/sys_enter_epoll_wait"]),
    besides(&["syscalls/sys_exit_epoll_wait"]),
    besides(&["syscalls/sys_enter_epoll_pwait"]),
    besides(&["syscalls/sys_exit_epoll_pwait"]),
    besides(&["vmscan/mm_vmscan_direct_reclaim_begin"]),
    besides(&["vmscan/mm_vmscan_direct_reclaim_end"]),
    besides(&["vmscan/mm_vmscan_memcg_reclaim_begin"]),
    besides(&["vmscan/mm_vmscan_memcg_reclaim_end"]),
    besides(&["writeback/balance_dirty_pages"]),
    scheduled(&["sched/sched_switch"], &["next_pid", "prev_state"], |v| {
        Some(Seen::Switch { next: v.get(0)? as u32, state: (v.get(1)? & 0xffff) as u16 })
    }),
    scheduled(&["sched/sched_waking"], &["pid"], |v| Some(Seen::Wake { pid: v.get(0)? as u32 })),
    rare(&["jbd2/jbd2_start_commit"]),
    rare(&["jbd2/jbd2_end_commit"]),
    rare(&["jbd2/jbd2_run_stats"]),
    // What a program says about its mappings; not every processor calls it mmap.
    other(&["syscalls/sys_enter_mmap"]),
    other(&["syscalls/sys_exit_mmap"]),
    helper(&["writeback/writeback_start"]),
    helper(&["writeback/writeback_written"]),
    helper(&["writeback/writeback_single_inode"]),
    helper(&["writeback/global_dirty_state"]),
    helper(&["jbd2/jbd2_commit_flushing"]),
    helper(&["jbd2/jbd2_checkpoint"]),
    helper(&["ext4/ext4_sync_file_enter"]),
    helper(&["ext4/ext4_sync_file_exit"]),
    helper(&["ext4/ext4_writepages"]),
    helper(&["ext4/ext4_writepages_result"]),
    helper(&["ext4/ext4_da_write_pages_extent"]),
    helper(&["xfs/xfs_file_fsync"]),
    helper(&["xfs/xfs_file_buffered_read"]),
    helper(&["xfs/xfs_file_direct_read"]),
    helper(&["xfs/xfs_file_buffered_write"]),
    helper(&["xfs/xfs_file_direct_write"]),
    helper(&["xfs/xfs_log_force"]),
];

/// One that is kept as text, and is the doing of the kernel's own threads as much as of anybody.
const fn helper(names: &'static [&'static str]) -> Event {
    Event { place: Place::Block, ..other(names) }
}

/// The longest filter that a kernel takes is a page.
const LONGEST: usize = 4000;

/// Devices of file systems without one have the major number 0, and so has that of the devices' own pages.
const FIRST_MAJOR: u32 = 1 << 20;

/// The filter of an event at this place; `None` lets everything pass.
pub(super) fn filter(place: Place, ask: &Ask) -> Option<String> {
    let devices = |fields: &[&str]| {
        let all: Vec<String> = (ask.devices.iter())
            .flat_map(|dev| fields.iter().map(move |field| format!("{field} == {}", dev.0)))
            .collect();
        (!all.is_empty()).then(|| all.join(" || "))
    };
    let text = match place {
        Place::Task | Place::State => None,
        Place::Worker => Some("comm ~ \"iou-wrk-*\"".to_owned()),
        Place::Block => devices(&["dev"]),
        Place::Remap => devices(&["dev", "old_dev"]),
        Place::Page | Place::Leaving => pages(ask),
    };
    text.filter(|text| text.len() <= LONGEST)
}

/// Files, each file system's in brackets; the pages of the devices themselves; or whatever is on the devices.
fn pages(ask: &Ask) -> Option<String> {
    let mut parts = Vec::new();
    let mut inodes = ask.inodes.clone();
    inodes.sort_unstable();
    inodes.dedup();
    for of_one in inodes.chunk_by(|one, other| one.dev == other.dev) {
        let dev = of_one[0].dev.0;
        let mut text = format!("(s_dev == {dev} && (");
        for (nr, inode) in of_one.iter().enumerate() {
            let or = if nr > 0 { " || " } else { "" };
            let _ = write!(text, "{or}i_ino == {}", inode.ino);
        }
        text.push_str("))");
        // Too many to be named: more than was asked for is better than less.
        parts.push(if text.len() > LONGEST / 2 { format!("s_dev == {dev}") } else { text });
    }
    for dev in &ask.devices {
        if ask.inodes.is_empty() {
            parts.push(format!("s_dev == {}", dev.0));
        }
        parts.push(format!("(i_ino == {} && s_dev < {FIRST_MAJOR})", dev.0));
    }
    (!parts.is_empty()).then(|| parts.join(" || "))
}
