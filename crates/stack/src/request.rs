//! Bios and requests, and the slabs they live in.
//!
//! A bio is one contiguous run of sectors handed to the block layer by one task. A request is what the device gets:
//! one bio or several merged ones. Both are numbered by small integers that are reused after completion, so that
//! elevators can keep what they know of a request in a vector indexed by [`RqId`].

use crate::event::{CallId, Content, Dir, RqId};
use crate::units::{Nanos, Sector};

/// Number of a bio in its slab.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BioId(pub u32);

impl BioId {
    /// End of a list of bios.
    pub const NONE: BioId = BioId(u32::MAX);
}

/// The I/O context of a task (`struct io_context`), for the statistics of elevators.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoContext {
    /// The task (`pid`), counted from 0.
    pub task: u32,
    /// Its thread group (`tgid`): equal for the threads of a process under NPTL, one each under LinuxThreads.
    pub thread_group: u32,
}

/// Class of I/O priority (`ioprio_set`), the most urgent first.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum IoClass {
    RealTime,
    /// That of tasks that have not said anything, too.
    #[default]
    BestEffort,
    Idle,
}

/// Number of classes.
pub const NR_CLASSES: usize = 3;

/// A contiguous run of sectors on its way to a device.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Bio {
    /// First sector.
    pub sector: Sector,
    /// Length in sectors, at least 1 (0 only for a flush).
    pub nr_sectors: u32,
    /// Direction.
    pub dir: Dir,
    pub content: Content,
    /// Synchronous in the elevator's sense: a read, or a write with a waiting task.
    pub sync: bool,
    /// No request follows it, so that waiting for the next one of its task is pointless (`REQ_NOIDLE`: journal and
    /// fsync writes).
    pub no_idle: bool,
    /// Metadata that others wait for (`REQ_PRIO`).
    pub prio: bool,
    /// Only mq-deadline looks, but no request has bios of several.
    pub class: IoClass,
    /// Must not leave before everything queued earlier has (empties the drive's cache first).
    pub flush: bool,
    /// The submitter.
    pub context: IoContext,
    /// For which call.
    pub call: CallId,
    /// When it reached the queue [Q].
    pub queued: Nanos,
    /// The submitter's own number, returned at completion.
    pub token: u64,
    /// Next bio of the same request.
    pub next: BioId,
}

/// A command for the device: one bio or several merged ones.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// First sector.
    pub sector: Sector,
    /// Length in sectors.
    pub nr_sectors: u32,
    /// Direction.
    pub dir: Dir,
    /// Content of its first bio.
    pub content: Content,
    /// Synchronous in the elevator's sense.
    pub sync: bool,
    /// Waiting for the next one of its task is pointless (`REQ_NOIDLE`).
    pub no_idle: bool,
    /// Metadata that others wait for (`REQ_PRIO`).
    pub prio: bool,
    pub class: IoClass,
    /// A flush: not sorted, not merged.
    pub flush: bool,
    /// Given to the driver: no longer merged into.
    pub started: bool,
    /// Refused a merge for its size once: not merged into any more.
    pub no_merge: bool,
    /// Its allocator.
    pub context: IoContext,
    /// For which call.
    pub call: CallId,
    pub nr_bios: u32,
    /// First bio (lowest sector).
    pub first: BioId,
    pub last: BioId,
    /// When its earliest bio was queued [Q].
    pub queued: Nanos,
    /// When it was allocated [G].
    pub allocated: Nanos,
    /// When it was given to the elevator [I].
    pub inserted: Nanos,
    /// When it was given to the device [D].
    pub issued: Nanos,
}

impl Request {
    /// The sector after its last.
    pub fn end(&self) -> Sector {
        self.sector.plus(u64::from(self.nr_sectors))
    }
}

/// Numbered slots that are reused, lowest number first freed last: a plain free list.
#[derive(Clone, Debug)]
pub struct Slab<T> {
    slots: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Puts `value` into a slot and returns its number.
    pub fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = value;
                slot
            }
            None => {
                self.slots.push(value);
                (self.slots.len() - 1) as u32
            }
        }
    }

    /// Gives slot `slot` back. Its value stays readable until the slot is used again.
    pub fn release(&mut self, slot: u32) {
        debug_assert!(!self.free.contains(&slot), "slot {slot} released twice");
        self.free.push(slot);
    }

    /// Slots in use.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether no slot is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The requests of a queue.
#[derive(Clone, Debug, Default)]
pub struct Requests(Slab<Request>);

impl Requests {
    /// Adds a request.
    pub fn insert(&mut self, rq: Request) -> RqId {
        RqId(self.0.insert(rq))
    }

    /// Takes a request out.
    pub fn release(&mut self, id: RqId) {
        self.0.release(id.0);
    }

    /// Requests there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::ops::Index<RqId> for Requests {
    type Output = Request;
    #[inline]
    fn index(&self, id: RqId) -> &Request {
        &self.0.slots[id.0 as usize]
    }
}

impl std::ops::IndexMut<RqId> for Requests {
    #[inline]
    fn index_mut(&mut self, id: RqId) -> &mut Request {
        &mut self.0.slots[id.0 as usize]
    }
}

/// The bios of a queue.
#[derive(Clone, Debug, Default)]
pub struct Bios(Slab<Bio>);

impl Bios {
    /// Adds a bio.
    pub fn insert(&mut self, bio: Bio) -> BioId {
        BioId(self.0.insert(bio))
    }

    /// Takes a bio out.
    pub fn release(&mut self, id: BioId) {
        self.0.release(id.0);
    }
}

impl std::ops::Index<BioId> for Bios {
    type Output = Bio;
    #[inline]
    fn index(&self, id: BioId) -> &Bio {
        &self.0.slots[id.0 as usize]
    }
}

impl std::ops::IndexMut<BioId> for Bios {
    #[inline]
    fn index_mut(&mut self, id: BioId) -> &mut Bio {
        &mut self.0.slots[id.0 as usize]
    }
}
