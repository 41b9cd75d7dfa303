//! The records that a join makes: calls with their windows, pages, bios and requests, and what was left over.

use super::*;

/// The owner of the calls, and the known facts about its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// Threads of the workload; empty for all that make calls.
    pub pids: Vec<u32>,
    /// Files of the workload; they get the numbers 0, 1, .. in this order, others follow as they are met.
    pub files: Vec<Inode>,
    /// Which file a descriptor of a thread is.
    pub descriptors: Vec<(u32, i32, Inode)>,
}

/// A window of read-ahead.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// When.
    pub at: Nanos,
    /// Of which file.
    pub file: u32,
    /// Because a page was missing, or ahead of need.
    pub kind: RaKind,
    /// First page.
    pub start: u64,
    pub nr_pages: u64,
    /// Pages of it ahead of the next marker; nothing where it was inferred.
    pub async_size: Option<u64>,
    /// Order of folios to begin with.
    pub order: u32,
    /// It was inferred from pages added.
    pub inferred: bool,
}

/// Pages of a file, one behind the other, that one process put into the cache.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    /// Of which file.
    pub file: u32,
    /// First page.
    pub start: u64,
    /// How many.
    pub nr_pages: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BioRecord {
    /// When it reached the queue.
    pub at: Nanos,
    /// By whom.
    pub pid: u32,
    /// For which call; 0 for none.
    pub call: u32,
    pub extent: Extent,
    /// Pages of the cache that it reads into.
    pub pages: Vec<Pages>,
    /// Its request, by place in [`Joined::requests`].
    pub request: Option<u32>,
    /// When it was done, if it has no request.
    pub completed: Option<Nanos>,
}

/// A request, from its first bio to its completion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRecord {
    /// As issued.
    pub extent: Extent,
    /// Its bios, by place in [`Joined::bios`].
    pub bios: Vec<u32>,
    /// Calls that they are for.
    pub calls: Vec<u32>,
    /// Submitting processes.
    pub pids: Vec<u32>,
    /// When its first bio was queued.
    pub queued: Option<Nanos>,
    /// When that bio had a request: a tag.
    pub allocated: Option<Nanos>,
    /// When it was given to the elevator.
    pub inserted: Option<Nanos>,
    /// When it was given to the driver (the last time).
    pub issued: Option<Nanos>,
    /// When it was done.
    pub completed: Option<Nanos>,
    /// With which error.
    pub error: i32,
    /// It was merged into another.
    pub merged: bool,
}

/// A call and all that was done for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// Its number, from 1.
    pub call: u32,
    /// By which thread.
    pub pid: u32,
    pub op: Op,
    /// On which descriptor.
    pub fd: i32,
    /// On which open file: descriptors that were made of one another have the same.
    pub open: u32,
    /// Which file, by number in [`Joined::files`].
    pub file: Option<u32>,
    /// It was opened with O_DSYNC or O_SYNC, as far as that was seen.
    pub synchronous: bool,
    /// From which byte, as far as anybody knows.
    pub offset: Option<u64>,
    /// Bytes asked for.
    pub len: u64,
    /// Begin.
    pub start: Nanos,
    /// End; nothing if the trace ends before.
    pub end: Option<Nanos>,
    /// Bytes done, or a negative error.
    pub result: Option<i64>,
    /// Windows that it decided on.
    pub windows: Vec<Window>,
    /// Pages that it added to the cache.
    pub pages_added: u64,
    /// Its bios, by place in [`Joined::bios`].
    pub bios: Vec<u32>,
    /// Their requests, by place in [`Joined::requests`].
    pub requests: Vec<u32>,
    /// Requests that it waited for, its own and those of others, in the order of their completions; the last one let it
    /// go on.
    pub waited_for: Vec<u32>,
    /// Time within the call during which at least one of those was at the device.
    pub device: Nanos,
    /// Requests of those that were caused by others: by other processes, or by earlier calls.
    pub by_others: u32,
    /// Set if it is not a system call of its own.
    pub beside: Option<Way>,
    /// Bios of it that a worker of the kernel issued, because something held them back.
    pub held_back: u32,
}

/// A call for more than this asks for all of the file (copy_file_range, sendfile).
pub(super) const ALL: u64 = 16 << 20;

impl CallRecord {
    /// A call of which nothing else is known yet.
    pub fn begun(call: u32, pid: u32, op: Op, start: Nanos) -> CallRecord {
        CallRecord {
            call,
            pid,
            op,
            fd: -1,
            open: 0,
            file: None,
            synchronous: false,
            offset: None,
            len: 0,
            start,
            end: None,
            result: None,
            windows: Vec::new(),
            pages_added: 0,
            bios: Vec::new(),
            requests: Vec::new(),
            waited_for: Vec::new(),
            device: Nanos::ZERO,
            by_others: 0,
            beside: None,
            held_back: 0,
        }
    }

    /// Whether it is in flight while its task goes on: libaio, io_uring.
    pub fn is_asynchronous(&self) -> bool {
        matches!(self.beside, Some(Way::Aio | Way::Ring))
    }

    /// Whether it reads whatever there is of a file and writes it into another (copy_file_range, sendfile).
    pub fn copies(&self) -> bool {
        self.op == Op::Read && self.len > ALL
    }

    /// Bytes done, of one that failed none; those asked for if its end is not in the trace.
    pub fn moved(&self) -> u64 {
        self.result.map_or(self.len, |result| u64::try_from(result).unwrap_or(0))
    }

    /// Bytes asked for, or those that there were if it asked for whatever there is, or with a vector: its length is in
    /// memory that no trace shows.
    pub(super) fn done_len(&self) -> u64 {
        if (1..=ALL).contains(&self.len) { self.len } else { self.moved() }
    }
}

/// A process that put pages into a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Putter {
    /// Which file.
    pub file: u32,
    /// By whom.
    pub pid: u32,
    /// The process's name, if the trace knows it.
    pub name: String,
    /// How many pages.
    pub nr_pages: u64,
    /// It belongs to the workload.
    pub own: bool,
}

/// Events that could not be linked.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Ends of calls that began before the trace.
    pub call_ends: u64,
    /// Calls that the trace does not see end.
    pub open_calls: u64,
    /// Calls that read or write an unknown file.
    pub calls_without_file: u64,
    /// Pages that were added for a read and that no bio carried.
    pub pages_without_bio: u64,
    /// Bios without a request or a completion.
    pub bios: u64,
    /// Merges into unseen requests.
    pub merges: u64,
    /// Requests that were issued and have no bio.
    pub requests_without_bio: u64,
    /// Requests that the trace does not see end.
    pub open_requests: u64,
    /// Completions of nothing that was seen.
    pub completions: u64,
}

impl Leftovers {
    /// All together.
    pub fn total(&self) -> u64 {
        self.call_ends
            + self.open_calls
            + self.calls_without_file
            + self.pages_without_bio
            + self.bios
            + self.merges
            + self.requests_without_bio
            + self.open_requests
            + self.completions
    }
}

/// A joined trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Joined {
    /// Everything in the simulator's words.
    pub events: Vec<Event>,
    /// Calls in the order of their begins; call N is at N - 1.
    pub calls: Vec<CallRecord>,
    /// Files by number.
    pub files: Vec<Inode>,
    /// Bios in the order in which they were queued.
    pub bios: Vec<BioRecord>,
    /// Requests in the order in which they were made.
    pub requests: Vec<RequestRecord>,
    /// Processes that put pages into mappings, most pages first.
    pub putters: Vec<Putter>,
    /// Tasks of the workload, if the trace has them.
    pub tree: Option<BTreeSet<u32>>,
    /// Calls whose file is unknown, by number, and why.
    pub no_file: BTreeMap<u32, NoFile>,
    /// Windows were inferred.
    pub inferred_windows: bool,
    /// Bytes that processes outside the workload submitted to be written themselves (direct calls, syncs).
    pub others_wrote: u64,
    /// Pages that other processes have taken out of the page cache.
    pub others_dropped: u64,
    /// Windows that belong to no call of the workload.
    pub windows_of_others: u64,
    /// Events that could not be linked.
    pub leftovers: Leftovers,
}
