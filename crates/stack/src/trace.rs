//! A kernel's trace, record by record, in whichever format it was written.
//!
//! tracefs, blktrace's binary files and blkparse's text all become these records, in the order of their times. A record
//! names things as the kernel does: devices and inodes by number, processes by pid, sectors. Joining them to calls,
//! files and requests, in the vocabulary of [`crate::event`], is a step of its own; statistics of the block layer need
//! no join.
//!
//! Source: the kernel's tracepoints (`include/trace/events/{block,filemap,readahead,syscalls}.h`, 2.6.32 and later; the
//! readahead ones are of 6.18) and blktrace's actions, which were cut from the same places.

use crate::event::Op;
use crate::units::{Nanos, Sector};

/// A device as kernels number them.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dev(pub u32);

impl Dev {
    /// Of a major and a minor number.
    pub const fn new(major: u32, minor: u32) -> Dev {
        Dev(major << 20 | (minor & 0xf_ffff))
    }

    /// The major number.
    pub fn major(self) -> u32 {
        self.0 >> 20
    }

    /// The minor number.
    pub fn minor(self) -> u32 {
        self.0 & 0xf_ffff
    }
}

/// A file: its file system's device and its inode number there.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode {
    /// The device of the file system.
    pub dev: Dev,
    /// The inode.
    pub ino: u64,
}

/// Purpose of a bio or request: blkparse's RWBS letters as bits.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rwbs(pub u16);

impl Rwbs {
    pub const READ: Rwbs = Rwbs(1);
    /// It writes.
    pub const WRITE: Rwbs = Rwbs(2);
    pub const DISCARD: Rwbs = Rwbs(4);
    /// Synchronous: a task waits for it, or the submitter set the flag.
    pub const SYNC: Rwbs = Rwbs(8);
    /// It is metadata.
    pub const META: Rwbs = Rwbs(16);
    /// Read-ahead.
    pub const AHEAD: Rwbs = Rwbs(32);
    /// The device's cache is flushed before.
    pub const PREFLUSH: Rwbs = Rwbs(64);
    /// The data must be on the medium when it is done.
    pub const FUA: Rwbs = Rwbs(128);
    /// A command that is not of a file system (SCSI passthrough).
    pub const PASSTHROUGH: Rwbs = Rwbs(256);

    /// Whether it has all of these.
    pub fn has(self, other: Rwbs) -> bool {
        self.0 & other.0 == other.0
    }

    /// With these, too.
    pub fn with(self, other: Rwbs) -> Rwbs {
        Rwbs(self.0 | other.0)
    }
}

/// Sectors of a device that a bio or request is for.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// On which device.
    pub dev: Dev,
    /// First sector.
    pub sector: Sector,
    /// How many bytes.
    pub bytes: u32,
    pub rwbs: Rwbs,
}

/// The state of an open file's read-ahead when a decision was asked for (`struct file_ra_state`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct RaInput {
    /// Page asked for.
    pub index: u64,
    /// Pages asked for from it on.
    pub req_count: u64,
    /// Largest folio order so far.
    pub order: u32,
    /// Pages of the current window.
    pub size: u32,
    /// Pages of it ahead of the marker.
    pub async_size: u32,
    /// Largest window.
    pub ra_pages: u32,
    /// Misses of mappings.
    pub mmap_miss: u32,
    /// Last byte read before, -1 if nothing was.
    pub prev_pos: i64,
}

/// The bound of [`Seen::bound`]: half of the maximum of the kernel's own `loff_t`.
const BYTES: u64 = 1 << 62;
const PAGES: u64 = BYTES >> 12;
const SECTORS: Sector = Sector(BYTES >> 9);
/// No kernel has larger folios: 2^20 pages are 4 GiB.
const LARGEST_ORDER: u8 = 20;

/// Whether the value was larger; it is not any more.
fn at_most<T: Copy + PartialOrd>(value: &mut T, most: T) -> bool {
    let beyond = *value > most;
    if beyond {
        *value = most;
    }
    beyond
}

/// Something the kernel's trace shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// A system call began that reads, writes or syncs.
    CallStart {
        op: Op,
        /// The descriptor.
        fd: i32,
        /// From which byte; `None` where the descriptor's own position counts.
        offset: Option<u64>,
        len_bytes: u64,
    },
    CallEnd {
        op: Op,
        /// Bytes, or a negative error.
        result: i64,
    },
    /// Read-ahead was asked for because a page is missing.
    RaSync {
        /// Of which file.
        file: Inode,
        /// With which state.
        input: RaInput,
    },
    /// Read-ahead was asked for because a marked page was reached.
    RaAsync {
        /// Of which file.
        file: Inode,
        /// With which state.
        input: RaInput,
    },
    /// A window was decided on, to be read in folios of an order.
    RaOrder {
        /// Of which file.
        file: Inode,
        /// First page.
        index: u64,
        /// Order to begin with.
        order: u32,
        /// Pages.
        size: u32,
        /// Pages of it ahead of the next marker.
        async_size: u32,
        /// Largest window.
        ra_pages: u32,
    },
    /// A window was decided on, to be read in single pages.
    RaUnbounded {
        /// Of which file.
        file: Inode,
        /// First page.
        index: u64,
        /// Pages.
        nr_to_read: u64,
        /// Pages of it ahead of the next marker.
        lookahead_size: u64,
    },
    /// Pages looked up by a read.
    GetPages {
        /// Of which file.
        file: Inode,
        /// First page.
        index: u64,
        /// Page after the last.
        last_index: u64,
    },
    /// A folio was added to the cache.
    PageAdd {
        /// Of which file.
        file: Inode,
        /// First page.
        index: u64,
        /// 2^order pages.
        order: u8,
    },
    /// A folio left the cache.
    PageRemove {
        /// Of which file.
        file: Inode,
        /// First page.
        index: u64,
        /// 2^order pages.
        order: u8,
    },
    /// A mapping's page was touched that was not mapped.
    Fault {
        /// Of which file.
        file: Inode,
        /// The page.
        index: u64,
    },
    /// A bio reached the queue [Q].
    Queue(Extent),
    /// A request was allocated for a bio [G].
    GetRequest(Extent),
    /// A task had to wait for a free request [S].
    Sleep(Extent),
    /// A bio joined a request at its end [M].
    BackMerge(Extent),
    /// A bio joined a request at its start [F].
    FrontMerge(Extent),
    /// A request was merged into the one before it.
    MergeRequests(Extent),
    /// A request was given to the elevator [I].
    Insert(Extent),
    /// A request was given to the driver [D].
    Issue(Extent),
    /// A request came back undone [R].
    Requeue(Extent),
    /// A request or a bio is done [C].
    Complete {
        extent: Extent,
        /// 0 or an errno.
        error: i32,
    },
    /// A bio was split, the second part beginning here [X].
    Split {
        /// The rest of it.
        extent: Extent,
        /// First sector of the rest.
        rest: Sector,
    },
    /// A bio was passed on from another device, a partition or a volume [A].
    Remap {
        /// Where it goes.
        extent: Extent,
        /// The device it came from.
        from: Dev,
        /// The sector there.
        from_sector: Sector,
    },
    /// A bio was copied to memory the device can reach [B].
    Bounce(Extent),
    /// Requests are held back [P].
    Plug {
        /// On which device, where the trace knows.
        dev: Option<Dev>,
    },
    /// They are let go [U], or [UT] by a timer.
    Unplug {
        /// On which device, where the trace knows.
        dev: Option<Dev>,
        /// How many.
        nr_requests: u32,
        timer: bool,
    },
    /// A task leaves the CPU to another.
    Switch {
        /// To which one; 0 is the idle task.
        next: u32,
        /// Why (`prev_state`): 0 and 256 if it could run on, 1 if it sleeps, 2 if it sleeps and no signal wakes it.
        state: u16,
    },
    /// A sleeping task is to be woken by the task on the CPU.
    Wake {
        /// Which one.
        pid: u32,
    },
    /// A message from the kernel [m].
    Message {
        /// On which device.
        dev: Dev,
        text: String,
    },
    /// Anything else that was traced: its name and its fields as text.
    Other {
        /// `group:name`.
        name: String,
        /// As the kernel prints it.
        fields: String,
    },
}

/// The extent of an event, by reference of either kind.
macro_rules! extent_of {
    ($seen:expr) => {
        match $seen {
            Seen::Queue(extent)
            | Seen::GetRequest(extent)
            | Seen::Sleep(extent)
            | Seen::BackMerge(extent)
            | Seen::FrontMerge(extent)
            | Seen::MergeRequests(extent)
            | Seen::Insert(extent)
            | Seen::Issue(extent)
            | Seen::Requeue(extent)
            | Seen::Bounce(extent)
            | Seen::Complete { extent, .. }
            | Seen::Split { extent, .. }
            | Seen::Remap { extent, .. } => Some(extent),
            _ => None,
        }
    };
}

impl Seen {
    /// The file it is about, if it is about the pages of one.
    pub fn file(&self) -> Option<Inode> {
        match self {
            Seen::RaSync { file, .. }
            | Seen::RaAsync { file, .. }
            | Seen::RaOrder { file, .. }
            | Seen::RaUnbounded { file, .. }
            | Seen::GetPages { file, .. }
            | Seen::PageAdd { file, .. }
            | Seen::PageRemove { file, .. }
            | Seen::Fault { file, .. } => Some(*file),
            _ => None,
        }
    }

    /// Brings places and lengths within what a file or device can have, so that sums of them fit; whether one was
    /// beyond it. Programs do ask for these (`pread` at -1), and damaged traces have them.
    pub fn bound(&mut self) -> bool {
        let own = match self {
            Seen::CallStart { offset, len_bytes, .. } => {
                at_most(len_bytes, BYTES) | offset.as_mut().is_some_and(|offset| at_most(offset, BYTES))
            }
            Seen::CallEnd { result, .. } => at_most(result, BYTES as i64),
            Seen::RaSync { input, .. } | Seen::RaAsync { input, .. } => {
                at_most(&mut input.index, PAGES)
                    | at_most(&mut input.req_count, PAGES)
                    | at_most(&mut input.order, LARGEST_ORDER.into())
                    | at_most(&mut input.prev_pos, BYTES as i64)
            }
            Seen::RaOrder { index, order, .. } => at_most(index, PAGES) | at_most(order, LARGEST_ORDER.into()),
            Seen::RaUnbounded { index, nr_to_read, lookahead_size, .. } => {
                at_most(index, PAGES) | at_most(nr_to_read, PAGES) | at_most(lookahead_size, PAGES)
            }
            Seen::GetPages { index, last_index, .. } => at_most(index, PAGES) | at_most(last_index, PAGES),
            Seen::PageAdd { index, order, .. } | Seen::PageRemove { index, order, .. } => {
                at_most(index, PAGES) | at_most(order, LARGEST_ORDER)
            }
            Seen::Fault { index, .. } => at_most(index, PAGES),
            Seen::Split { rest, .. } => at_most(rest, SECTORS),
            Seen::Remap { from_sector, .. } => at_most(from_sector, SECTORS),
            _ => false,
        };
        own | self.extent_mut().is_some_and(|extent| at_most(&mut extent.sector, SECTORS))
    }

    /// The sectors it is about, if it is about a bio or a request.
    pub fn extent(&self) -> Option<&Extent> {
        extent_of!(self)
    }

    fn extent_mut(&mut self) -> Option<&mut Extent> {
        extent_of!(self)
    }
}

/// A record of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Since the start of the trace.
    pub at: Nanos,
    /// On which CPU.
    pub cpu: u32,
    /// By whom; 0 is the idle task, so interrupts.
    pub pid: u32,
    pub seen: Seen,
}

/// A trace that was read or recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// In the order of their times; of equal times, in the order in which they were read.
    pub records: Vec<Record>,
    /// When it began, ns since 1970; 0 if unknown.
    pub started_ns: u64,
    /// Names of processes by pid, sorted by pid.
    pub names: Vec<(u32, String)>,
    /// Known paths of files.
    pub paths: Vec<(Inode, String)>,
    /// The kernel it was recorded on (`uname -r`); empty if unknown.
    pub kernel: String,
    /// Events that the kernel had no room for.
    pub lost: u64,
    /// Windows were inferred from pages and bios, because the kernel has no tracepoints for them.
    pub inferred_windows: bool,
}

impl Trace {
    /// The name of a process.
    pub fn name(&self, pid: u32) -> Option<&str> {
        let found = self.names.binary_search_by_key(&pid, |(known, _)| *known).ok()?;
        Some(&self.names[found].1)
    }
}
