//! The one vocabulary of what happens on an I/O path, spoken by the simulator and (later) by kernel traces.
//!
//! An event has its time, its call, and its kind. A call is one read, write or fsync of the workload; daemons and the
//! kernel's own work have [`CallId::NONE`]. Letters in brackets are those of blktrace. Events that a kernel trace could
//! not show have a name ending in `Model`; no explanation may rest on those alone.

use serde::Serialize;

use crate::units::{Nanos, PageIndex, Sector};

/// One call of the workload (read, write, fsync), numbered from 1 in the order they begin.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u32);

impl CallId {
    /// No call: work of a daemon, or of the kernel itself.
    pub const NONE: CallId = CallId(0);
    /// No call that is counted, but the workload's own doing: reads of the kernel for opening or listing files.
    pub const OWN: CallId = CallId(u32::MAX);
}

/// One file of the workload.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// One request of a request queue; numbers are reused once a request has completed.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RqId(pub u32);

/// Operation of a call.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Op {
    /// `read`/`pread`.
    Read,
    /// `write`/`pwrite`.
    Write,
    Fsync,
    Fdatasync,
    /// A discard of blocks, or a hole punched into a file.
    Trim,
}

/// Direction of a request.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dir {
    /// From the device.
    #[default]
    Read,
    /// To the device.
    Write,
}

/// Kind of a bio's data.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    /// File data.
    #[default]
    Data,
    /// Blocks that say where data lies (indirect blocks).
    Mapping,
    /// The journal's own blocks.
    Journal,
    /// Inode tables, bitmaps and other metadata in place.
    Metadata,
}

/// Why a window was read (the golden vectors' `kind`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RaKind {
    /// The window that holds the page asked for.
    #[default]
    Sync,
    /// A window ahead of it.
    Async,
    /// Exactly the requested pages, regardless of history.
    Force,
    /// One page, read alone because read-ahead did not bring it.
    Single,
    /// The pages around one that a page fault missed.
    Around,
    /// The pages behind one that a page fault missed in an executable mapping.
    Exec,
    /// Huge folios for a page fault in a mapping that asks for them.
    Huge,
}

/// Why read-ahead turned itself off for an open file.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RaClose {
    /// Accesses outside the window, made by another call that was in progress on the same open file.
    InterleavedMisses,
    /// Accesses outside the window within one caller's own pattern.
    Misses,
    /// Everything asked for was cached already.
    Hits,
    /// The read queue was congested.
    Congestion,
}

/// Why pages left the page cache.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Eviction {
    /// Memory was needed.
    Reclaim,
    /// Advice, truncation or invalidation.
    Dropped,
}

/// How a bio joined a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MergeKind {
    /// At its end.
    Back,
    /// At its start.
    Front,
}

/// Why a plug was pulled.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnplugCause {
    /// Someone waits for the data.
    Waiter,
    /// As many requests as the threshold.
    Threshold,
    /// The timer ran out.
    Timer,
    /// A bio marked synchronous.
    SyncBio,
    /// The submission that held the plug ended.
    Finish,
    /// The submitter went to sleep.
    Schedule,
    /// A request was needed and none was free.
    NoRequest,
}

/// How an elevator's deliberate wait ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IdleEnd {
    /// The request waited for came.
    Hit,
    /// Another request was worth more.
    Broken,
    /// Time ran out.
    Timeout,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JournalStep {
    /// A commit was started: the transaction is locked.
    Lock,
    /// Open handles have ended; ordered data is being written.
    Data,
    /// Metadata is being written to the log.
    Log,
    /// The commit block is being written.
    CommitBlock,
    /// The transaction is on disk.
    Done,
}

/// Something that happened.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A call began.
    CallStart {
        op: Op,
        /// On which file.
        file: FileId,
        /// From which byte.
        offset: u64,
        /// How many bytes (0 for a sync).
        len_bytes: u32,
    },
    CallEnd {
        op: Op,
        /// On which file.
        file: FileId,
        /// Bytes read or written.
        len_bytes: u32,
    },
    /// The call was given to a worker thread, as its file cannot be asked without waiting (io_uring).
    HandOver,
    /// Pages looked up and found in the cache.
    Hit {
        /// File looked into.
        file: FileId,
        /// First page.
        page: PageIndex,
        /// How many.
        nr_pages: u32,
    },
    /// A page looked up and not found.
    Miss {
        /// File looked into.
        file: FileId,
        page: PageIndex,
    },
    /// A page fault on a mapped file ended.
    Fault {
        /// File mapped.
        file: FileId,
        /// The page touched.
        page: PageIndex,
        /// It had to be read.
        major: bool,
    },
    /// A read-ahead decision: pages `start .. start + nr_pages` are wanted.
    RaWindow {
        /// File read.
        file: FileId,
        /// Why.
        kind: RaKind,
        /// Largest folio order (0 where folios do not exist).
        order: u8,
        /// First page of the window.
        start: PageIndex,
        /// Pages in the window, cached ones included.
        nr_pages: u32,
        /// Pages of it that are read ahead of the next trigger (`async_size`).
        async_size: u32,
    },
    /// Read-ahead turned itself off.
    RaClosed {
        /// Of which file.
        file: FileId,
        /// Why.
        cause: RaClose,
    },
    /// Read-ahead turned itself on again.
    RaReopened {
        /// Of which file.
        file: FileId,
    },
    /// Pages were added to the cache.
    PageAdd {
        /// To which file.
        file: FileId,
        /// First page.
        page: PageIndex,
        /// How many.
        nr_pages: u32,
    },
    /// Pages left the cache.
    PageRemove {
        /// Of which file.
        file: FileId,
        /// First page.
        page: PageIndex,
        /// How many.
        nr_pages: u32,
        /// Why.
        cause: Eviction,
    },
    /// A bio reached the queue [Q]; of no call: when it has its request, lest two be mixed up. Between it and its
    /// [`What::GetRequest`] or [`What::Merge`] lies no other of its call.
    BioQueue {
        /// Direction.
        dir: Dir,
        content: Content,
        /// First sector.
        sector: Sector,
        /// Length.
        nr_sectors: u32,
    },
    /// A request was allocated for the bio that came last [G].
    GetRequest {
        /// The request.
        rq: RqId,
    },
    /// The bio that came last joined a request [M/F].
    Merge {
        /// The request.
        rq: RqId,
        /// At which end.
        kind: MergeKind,
        /// Length of the bio.
        nr_sectors: u32,
    },
    /// Two requests became one.
    MergeRequests {
        /// The one that remains.
        rq: RqId,
        /// The one that is gone.
        gone: RqId,
    },
    /// The queue (or the task) was plugged [P].
    Plug,
    /// The plug was pulled [U].
    Unplug {
        /// Why.
        cause: UnplugCause,
        /// Requests waiting.
        nr_requests: u32,
    },
    /// A request was given to the elevator [I].
    Insert {
        /// The request.
        rq: RqId,
    },
    /// A request was given to the device [D].
    Issue {
        /// The request.
        rq: RqId,
        /// Direction.
        dir: Dir,
        /// Content of its first bio.
        content: Content,
        /// First sector.
        sector: Sector,
        /// Length.
        nr_sectors: u32,
        /// Requests at the device, this one included.
        in_flight: u16,
    },
    /// The device has done a request [C].
    Complete {
        /// The request.
        rq: RqId,
        /// Direction.
        dir: Dir,
        /// Length.
        nr_sectors: u32,
    },
    /// How a disk spent the time on a command; no kernel can see this.
    ServiceModel {
        /// The request.
        rq: RqId,
        /// Time the arm moved, us.
        seek_us: u32,
        /// Time spent waiting for the sector, us.
        rotation_us: u32,
        /// Whether the mechanism was needed at all.
        media: bool,
    },
    /// The elevator keeps the device idle on purpose.
    IdleStart,
    /// It stops doing so.
    IdleEnd {
        /// Why.
        cause: IdleEnd,
    },
    /// Pages were handed to the block layer to be written back.
    Writeback {
        /// Of which file.
        file: FileId,
        /// First page.
        page: PageIndex,
        /// How many.
        nr_pages: u32,
    },
    /// A step of a journal commit.
    Journal {
        /// The transaction.
        tid: u32,
        step: JournalStep,
        /// Blocks the step writes.
        nr_blocks: u32,
    },
    /// A writer was made to wait because too much is dirty.
    Throttle {
        /// Dirty pages when it was stopped.
        nr_dirty: u32,
    },
}

/// When, for whom, what.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Simulated time since the start of the run.
    pub at: Nanos,
    /// The call it happened for.
    pub call: CallId,
    /// The event.
    pub what: What,
}

/// A listener to the events of a run.
pub trait EventSink {
    /// Takes one event; events come in order of time.
    fn event(&mut self, event: &Event);
}

impl EventSink for Vec<Event> {
    fn event(&mut self, event: &Event) {
        self.push(*event);
    }
}

/// A running hash of an event stream. Equal streams have equal hashes on every machine and in every build.
///
/// Each event is packed into three words, which are multiplied by odd constants (digits of the golden ratio, pi and
/// e) and
/// summed off the critical path, then mixed into the state by one multiply and rotate: about a nanosecond an event,
/// and no defence against an adversary.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct EventHash {
    state: u64,
    nr_events: u64,
}

impl Default for EventHash {
    fn default() -> EventHash {
        EventHash { state: 0x9e37_79b9_7f4a_7c15, nr_events: 0 }
    }
}

impl EventHash {
    /// Mixes in one event.
    #[inline(always)]
    pub fn add(&mut self, event: &Event) {
        let [kind, a, b] = event.what.words();
        let when = (event.at.0 ^ (kind << 56)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let whose = ((u64::from(event.call.0) << 32) ^ a).wrapping_mul(0x2b7e_1516_28ae_d2a7);
        let word = when.rotate_left(32) ^ whose.rotate_left(16) ^ b.wrapping_mul(0x452e_6c27_93f8_3a6d);
        self.state = (self.state ^ word).wrapping_mul(0x2436_a885_a308_d313).rotate_left(29);
        self.nr_events += 1;
    }

    /// Events so far.
    pub fn nr_events(&self) -> u64 {
        self.nr_events
    }

    /// The hash of everything so far.
    pub fn value(&self) -> u64 {
        let mut h = self.state ^ self.nr_events;
        h = (h ^ (h >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        h ^ (h >> 29)
    }
}

impl What {
    /// Kind, and the payload packed into two words: injective enough for hashing, not meant to be read back.
    #[inline(always)]
    fn words(&self) -> [u64; 3] {
        fn pair(high: u32, low: u32) -> u64 {
            (u64::from(high) << 32) | u64::from(low)
        }
        match *self {
            What::CallStart { op, file, offset, len_bytes } => [1 | (op as u64) << 5, offset, pair(file.0, len_bytes)],
            What::CallEnd { op, file, len_bytes } => [2 | (op as u64) << 5, 0, pair(file.0, len_bytes)],
            What::Hit { file, page, nr_pages } => [3, page.0, pair(file.0, nr_pages)],
            What::Miss { file, page } => [4, page.0, pair(file.0, 0)],
            What::RaWindow { file, kind, order, start, nr_pages, async_size } => [
                5 | (kind as u64) << 5,
                start.0 ^ (u64::from(order) << 56) ^ pair(file.0, 0),
                pair(nr_pages, async_size),
            ],
            What::RaClosed { file, cause } => [6, cause as u64, pair(file.0, 0)],
            What::RaReopened { file } => [7, 0, pair(file.0, 0)],
            What::PageAdd { file, page, nr_pages } => [8, page.0, pair(file.0, nr_pages)],
            What::PageRemove { file, page, nr_pages, cause } => {
                [9 | (cause as u64) << 5, page.0, pair(file.0, nr_pages)]
            }
            What::BioQueue { dir, content, sector, nr_sectors } => {
                [10 | (dir as u64) << 5, sector.0, pair(content as u32, nr_sectors)]
            }
            What::GetRequest { rq } => [11, 0, pair(rq.0, 0)],
            What::Merge { rq, kind, nr_sectors } => [12 | (kind as u64) << 5, 0, pair(rq.0, nr_sectors)],
            What::MergeRequests { rq, gone } => [13, 0, pair(rq.0, gone.0)],
            What::Plug => [14, 0, 0],
            What::Unplug { cause, nr_requests } => [15, cause as u64, u64::from(nr_requests)],
            What::Insert { rq } => [16, 0, pair(rq.0, 0)],
            What::Issue { rq, dir, content, sector, nr_sectors, in_flight } => [
                17 | (dir as u64) << 5,
                sector.0 ^ (u64::from(in_flight) << 48) ^ ((content as u64) << 40),
                pair(rq.0, nr_sectors),
            ],
            What::Complete { rq, dir, nr_sectors } => [18 | (dir as u64) << 5, 0, pair(rq.0, nr_sectors)],
            What::ServiceModel { rq, seek_us, rotation_us, media } => {
                [19 | u64::from(media) << 5, u64::from(rq.0), pair(seek_us, rotation_us)]
            }
            What::IdleStart => [20, 0, 0],
            What::IdleEnd { cause } => [21, cause as u64, 0],
            What::Writeback { file, page, nr_pages } => [22, page.0, pair(file.0, nr_pages)],
            What::Journal { tid, step, nr_blocks } => [23 | (step as u64) << 5, u64::from(tid), u64::from(nr_blocks)],
            What::Throttle { nr_dirty } => [24, 0, u64::from(nr_dirty)],
            What::Fault { file, page, major } => [25 | u64::from(major) << 5, page.0, pair(file.0, 0)],
            What::HandOver => [26, 0, 0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_stays_small_because_millions_are_streamed() {
        assert!(size_of::<Event>() <= 48, "{} bytes", size_of::<Event>());
    }

    #[test]
    fn the_hash_sees_order_time_call_and_payload() {
        let event = |at, call, page| Event {
            at: Nanos(at),
            call: CallId(call),
            what: What::Miss { file: FileId(1), page: PageIndex(page) },
        };
        let hash = |events: &[Event]| {
            let mut hash = EventHash::default();
            events.iter().for_each(|event| hash.add(event));
            hash.value()
        };
        let base = hash(&[event(1, 1, 1), event(2, 1, 2)]);
        for other in [
            vec![event(2, 1, 2), event(1, 1, 1)],
            vec![event(1, 1, 1), event(3, 1, 2)],
            vec![event(1, 1, 1), event(2, 2, 2)],
            vec![event(1, 1, 1), event(2, 1, 3)],
            vec![event(1, 1, 1)],
        ] {
            assert_ne!(base, hash(&other));
        }
        assert_eq!(base, hash(&[event(1, 1, 1), event(2, 1, 2)]));
    }
}
