//! Small traces drawn by hand.

use iowhy_stack::event::Op;
use iowhy_stack::trace::{Dev, Extent, Inode, RaInput, Record, Rwbs, Seen, Trace};
use iowhy_stack::units::{Nanos, Sector};

/// The file of the samples.
pub(crate) const FILE: Inode = Inode { dev: Dev(8 << 20), ino: 12 };

/// Sectors of the disk of the samples.
pub(crate) fn extent(sector: u64, pages: u32, rwbs: Rwbs) -> Extent {
    Extent { dev: Dev::new(8, 0), sector: Sector(sector), bytes: pages * 4096, rwbs }
}

/// Records by one task, at these times.
pub(crate) fn by(pid: u32, list: impl IntoIterator<Item = (u64, Seen)>) -> Vec<Record> {
    list.into_iter().map(|(at, seen)| Record { at: Nanos(at), cpu: 0, pid, seen }).collect()
}

/// A trace of records in whatever order.
pub(crate) fn trace(mut records: Vec<Record>) -> Trace {
    records.sort_by_key(|record| record.at);
    let names = [(5, "fio"), (6, "blkid"), (9, "kworker/u4:1")];
    Trace { records, names: names.map(|(pid, name)| (pid, name.to_owned())).to_vec(), ..Trace::default() }
}

pub(crate) fn read_call(offset: u64, len_bytes: u64) -> Seen {
    Seen::CallStart { op: Op::Read, fd: 3, offset: Some(offset), len_bytes }
}

pub(crate) fn end(result: i64) -> Seen {
    Seen::CallEnd { op: Op::Read, result }
}

pub(crate) fn add(index: u64) -> Seen {
    Seen::PageAdd { file: FILE, index, order: 0 }
}

/// A read of two pages with a window of four: two bios, one request.
pub(crate) fn buffered_read() -> Trace {
    let ahead = Rwbs::READ.with(Rwbs::AHEAD);
    let input = RaInput { req_count: 2, ra_pages: 32, prev_pos: -1, ..RaInput::default() };
    let mut records = by(
        5,
        [
            (10, read_call(0, 8192)),
            (11, Seen::GetPages { file: FILE, index: 0, last_index: 2 }),
            (12, Seen::RaSync { file: FILE, input }),
            (13, Seen::RaOrder { file: FILE, index: 0, order: 0, size: 4, async_size: 2, ra_pages: 32 }),
            (14, Seen::RaUnbounded { file: FILE, index: 0, nr_to_read: 4, lookahead_size: 2 }),
            (15, add(0)),
            (16, add(1)),
            (17, add(2)),
            (18, add(3)),
            (19, Seen::Plug { dev: None }),
            (20, Seen::Queue(extent(800, 3, ahead))),
            (21, Seen::GetRequest(extent(800, 3, ahead))),
            (22, Seen::Queue(extent(824, 1, ahead))),
            (23, Seen::BackMerge(extent(824, 1, ahead))),
            (24, Seen::Unplug { dev: None, nr_requests: 1, timer: false }),
            (25, Seen::Insert(extent(800, 4, ahead))),
            (26, Seen::Issue(extent(800, 4, ahead))),
            (90, end(8192)),
        ],
    );
    records.extend(by(0, [(80, Seen::Complete { extent: extent(800, 4, ahead), error: 0 })]));
    trace(records)
}
