//! The numbers in blktrace's actions: the event, and its categories.
//!
//! Source: `include/uapi/linux/blktrace_api.h` of the kernel.

use iowhy_stack::trace::Rwbs;

/// The bits that say what happened.
pub const WHAT: u32 = 0xffff;

/// A bio reached the queue.
pub const QUEUE: u32 = 1;
/// It joined a request at its end.
pub const BACK_MERGE: u32 = 2;
/// It joined one at its start.
pub const FRONT_MERGE: u32 = 3;
/// It has a request of its own.
pub const GET_REQUEST: u32 = 4;
/// Its task waits for one.
pub const SLEEP: u32 = 5;
/// A request came back undone.
pub const REQUEUE: u32 = 6;
/// It went to the driver.
pub const ISSUE: u32 = 7;
/// It is done.
pub const COMPLETE: u32 = 8;
/// Requests are held back.
pub const PLUG: u32 = 9;
/// They are let go.
pub const UNPLUG: u32 = 10;
/// They are let go by a timer.
pub const UNPLUG_TIMER: u32 = 11;
/// A request went to the elevator.
pub const INSERT: u32 = 12;
/// A bio was split.
pub const SPLIT: u32 = 13;
/// It was copied.
pub const BOUNCE: u32 = 14;
/// It was passed on.
pub const REMAP: u32 = 15;
/// A request was given up.
pub const ABORT: u32 = 16;
/// A driver's own data.
pub const DRIVER_DATA: u32 = 17;

/// Notify: the name of a process.
pub const PROCESS: u32 = 0;
/// Notify: the clock on the wall.
pub const TIMESTAMP: u32 = 1;
/// Notify: a message.
pub const MESSAGE: u32 = 2;

/// The payload begins with the number of a cgroup.
pub const CGROUP: u32 = 1 << 8;

pub const TC_READ: u32 = 1 << 16;
/// Writes.
pub const TC_WRITE: u32 = 1 << 17;
pub const TC_FLUSH: u32 = 1 << 18;
/// A task waits for it.
pub const TC_SYNC: u32 = 1 << 19;
/// Queueing and merging.
pub const TC_QUEUE: u32 = 1 << 20;
pub const TC_REQUEUE: u32 = 1 << 21;
/// Issuing.
pub const TC_ISSUE: u32 = 1 << 22;
pub const TC_COMPLETE: u32 = 1 << 23;
/// Requests of file systems.
pub const TC_FS: u32 = 1 << 24;
/// Other commands (passthrough).
pub const TC_PC: u32 = 1 << 25;
/// Not an event, but something to know.
pub const NOTIFY: u32 = 1 << 26;
/// Read-ahead.
pub const TC_AHEAD: u32 = 1 << 27;
/// Metadata.
pub const TC_META: u32 = 1 << 28;
pub const TC_DISCARD: u32 = 1 << 29;
/// Forced unit access.
pub const TC_FUA: u32 = 1 << 31;

/// Flags of a bio or request and the categories they are.
const FLAGS: [(Rwbs, u32); 7] = [
    (Rwbs::DISCARD, TC_DISCARD),
    (Rwbs::SYNC, TC_SYNC),
    (Rwbs::META, TC_META),
    (Rwbs::AHEAD, TC_AHEAD),
    (Rwbs::PREFLUSH, TC_FLUSH),
    (Rwbs::FUA, TC_FUA),
    (Rwbs::PASSTHROUGH, TC_PC),
];

/// Purpose. A discard is not a write; an action without bytes that does not write does not read either, as blkparse has
/// it.
#[inline]
pub fn rwbs(action: u32, bytes: u32) -> Rwbs {
    let mut rwbs = if action & (TC_DISCARD | TC_WRITE) == TC_WRITE {
        Rwbs::WRITE
    } else if action & TC_DISCARD == 0 && bytes > 0 {
        Rwbs::READ
    } else {
        Rwbs::default()
    };
    if action & (TC_DISCARD | TC_SYNC | TC_META | TC_AHEAD | TC_FLUSH | TC_FUA | TC_PC) != 0 {
        for (flag, category) in FLAGS {
            if action & category != 0 {
                rwbs = rwbs.with(flag);
            }
        }
    }
    rwbs
}

/// The categories of a bio or request for this. The kernel counts a discard among the writes, and what does not write
/// among the reads.
pub fn categories(rwbs: Rwbs) -> u32 {
    let writes = rwbs.has(Rwbs::WRITE) || rwbs.has(Rwbs::DISCARD);
    let direction = if writes { TC_WRITE } else { TC_READ };
    FLAGS.iter().filter(|(flag, _)| rwbs.has(*flag)).fold(direction, |sum, (_, category)| sum | category)
}

/// Bytes that the payload of an action must have.
#[inline]
pub fn payload_bytes(action: u32) -> usize {
    if action & NOTIFY != 0 {
        return 0;
    }
    match action & WHAT {
        UNPLUG | UNPLUG_TIMER | SPLIT => 8,
        REMAP => 16,
        _ => 0,
    }
}
