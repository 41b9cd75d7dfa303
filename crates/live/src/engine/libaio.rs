//! libaio: Linux's own asynchronous I/O, by its system calls (io_setup, io_submit, io_getevents, io_destroy).
//!
//! ```text
//! submit    fills a control block; commit hands all of them in with one io_submit
//! reap      completions that are in the ring already are taken from it without a system call; only waiting needs one
//! syncs     few file systems take them in this way: as fio does, a sync waits until nothing is in flight and is then
//!           carried out at once
//! rejected  a call that io_submit does not take is done with that error, and the rest goes on
//! ```
//! Source: `fs/aio.c` and `include/uapi/linux/aio_abi.h`; fio's engine of the same name. Known deviations: buffered
//! calls are carried out inside io_submit; that is the kernel's way, not the engine's.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use iowhy_stack::event::Op;
use iowhy_stack::origin::{Entry, Origin};

use super::{Build, Completion, Engine, Files, Io, Open, Setup, Submit, is_apart};

pub(super) const ENTRY: Entry<Build> = Entry {
    name: "libaio",
    summary: "Linux asynchronous I/O: io_submit and io_getevents",
    origin: &[Origin { kernels: "2.6 ..", file: "fs/aio.c", function: "io_submit, io_getevents", notes: "" }],
    options: &[],
    conformance: "engine tests on a real file; the same jobs with fio's libaio",
    build: Build::of::<Libaio>(),
};

/// `struct iocb` on little-endian machines.
#[repr(C)]
#[derive(Copy, Clone, Default)]
struct ControlBlock {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    reqprio: i16,
    fildes: u32,
    buf: u64,
    nbytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

/// The block has a priority (`IOCB_FLAG_IOPRIO`).
const FLAG_PRIORITY: u32 = 2;

/// `struct io_event`.
#[repr(C)]
#[derive(Copy, Clone, Default)]
struct Event {
    data: u64,
    obj: u64,
    res: i64,
    res2: i64,
}

const CMD_PREAD: u16 = 0;
const CMD_PWRITE: u16 = 1;

/// The head of the ring that the kernel maps into the process at the address of the context.
#[repr(C)]
struct Ring {
    id: u32,
    nr: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: u32,
    compat_features: u32,
    incompat_features: u32,
    header_length: u32,
}

/// Says that the ring has this layout.
const RING_MAGIC: u32 = 0xa10a_10a1;

/// The kernel's side of calls in flight: the address of their ring.
pub(crate) struct Context(libc::c_ulong);

impl Context {
    /// Room for `depth` calls.
    pub(crate) fn new(depth: usize) -> io::Result<Context> {
        let mut context = Context(0);
        // SAFETY: the kernel writes one number to a variable of ours.
        match unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context.0) } {
            0 => Ok(context),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context was made by `new`; there is none of number 0.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

struct Libaio {
    /// The first to go: calls end with it.
    context: Context,
    files: Files,
    blocks: Vec<ControlBlock>,
    /// The calls that the engine has, by slot.
    held: Vec<Option<Io>>,
    queued: Vec<*mut ControlBlock>,
    in_flight: u32,
    /// Calls that the kernel would not take.
    rejected: VecDeque<Completion>,
    events: Vec<Event>,
}

impl Open for Libaio {
    fn open(setup: &Setup<'_>) -> io::Result<Libaio> {
        let depth = setup.depth.max(1) as usize;
        Ok(Libaio {
            context: Context::new(depth)?,
            files: Files::of(setup),
            held: (0..depth).map(|_| None).collect(),
            blocks: vec![ControlBlock::default(); depth],
            queued: Vec::with_capacity(depth),
            in_flight: 0,
            rejected: VecDeque::new(),
            events: vec![Event::default(); depth],
        })
    }
}

/// The result of a call.
fn done_with(held: &mut [Option<Io>], event: Event) -> Completion {
    held[event.data as usize].take().expect("calls in flight are held").done(event.res as i32)
}

impl Libaio {
    /// Takes what the ring has, without a system call. Says whether the ring could be read at all.
    fn peek(&mut self, max: u32, done: &mut Vec<Completion>) -> bool {
        let ring = self.context.0 as *const Ring;
        // SAFETY: the context is the address of the ring, mapped as long as the context lives; its two indices are
        // shared with the kernel and only touched as atomics.
        let ring = unsafe { &*ring };
        if ring.magic != RING_MAGIC || ring.incompat_features != 0 || ring.nr == 0 {
            return false;
        }
        let mut head = ring.head.load(Ordering::Relaxed);
        let tail = ring.tail.load(Ordering::Acquire);
        let mut left = max;
        while head != tail && left > 0 {
            let events = (self.context.0 as usize + ring.header_length as usize) as *const Event;
            // SAFETY: entries between head and tail were written by the kernel, which does not touch them again before
            // the head has moved on.
            let event = unsafe { events.add(head as usize).read() };
            done.push(done_with(&mut self.held, event));
            head = (head + 1) % ring.nr;
            left -= 1;
        }
        ring.head.store(head, Ordering::Release);
        self.in_flight -= max - left;
        true
    }
}

impl Engine for Libaio {
    fn submit(&mut self, mut io: Io) -> Submit {
        let busy = self.queued.len() + self.in_flight as usize + self.rejected.len();
        if is_apart(io.op) {
            return if busy > 0 { Submit::Full(io) } else { Submit::Done(self.files.sync(io)) };
        }
        if busy == self.blocks.len() {
            return Submit::Full(io);
        }
        let slot = io.slot as usize;
        assert!(self.held[slot].is_none(), "a slot is used by one call at a time");
        let block = &mut self.blocks[slot];
        *block = ControlBlock {
            data: u64::from(io.slot),
            opcode: if io.op == Op::Read { CMD_PREAD } else { CMD_PWRITE },
            fildes: self.files.of_call(&io).as_raw_fd() as u32,
            buf: io.data_mut().as_mut_ptr() as u64,
            reqprio: io.priority as i16,
            flags: if io.priority == 0 { 0 } else { FLAG_PRIORITY },
            nbytes: u64::from(io.len_bytes),
            offset: io.offset as i64,
            ..ControlBlock::default()
        };
        self.queued.push(block);
        self.held[slot] = Some(io);
        Submit::Queued
    }

    fn commit(&mut self) -> io::Result<u32> {
        let (nr_queued, mut sent) = (self.queued.len(), 0);
        while sent < nr_queued {
            let rest = &mut self.queued[sent..];
            // SAFETY: the pointers are to control blocks of this engine, one for each slot; it holds each call with its
            // buffer, and the files, until the completion was reaped.
            let taken = unsafe { libc::syscall(libc::SYS_io_submit, self.context.0, rest.len(), rest.as_mut_ptr()) };
            if taken > 0 {
                sent += taken as usize;
                self.in_flight += taken as u32;
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // The kernel has no room now: the rest goes with the next commit, after a reap has made some.
                Some(libc::EAGAIN) if self.in_flight > 0 => break,
                Some(libc::EAGAIN) => std::thread::yield_now(),
                number => {
                    let refused = self.blocks.iter().find(|block| std::ptr::eq(*block, self.queued[sent]));
                    let data = refused.expect("a block of this engine").data;
                    let res = i64::from(-number.unwrap_or(libc::EIO));
                    self.rejected.push_back(done_with(&mut self.held, Event { data, res, ..Event::default() }));
                    sent += 1;
                }
            }
        }
        self.queued.drain(..sent);
        Ok(sent as u32)
    }

    fn reap(&mut self, min: u32, max: u32, timeout: Option<Duration>, done: &mut Vec<Completion>) -> io::Result<()> {
        let mut left = max;
        let before = done.len();
        while left > 0
            && let Some(rejected) = self.rejected.pop_front()
        {
            done.push(rejected);
            left -= 1;
        }
        let ring_is_readable = self.peek(left, done);
        let got = (done.len() - before) as u32;
        let min = min.saturating_sub(got).min(self.in_flight);
        if got == max || (min == 0 && ring_is_readable) {
            return Ok(());
        }
        let mut limit = timeout
            .map(|timeout| libc::timespec { tv_sec: timeout.as_secs() as _, tv_nsec: timeout.subsec_nanos().into() });
        let limit = limit.as_mut().map_or(std::ptr::null_mut(), |limit| limit as *mut libc::timespec);
        let room = (max - got).min(self.events.len() as u32);
        // SAFETY: `events` has room for as many as are asked for, and the time lives through the call.
        let taken = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context.0,
                min as i64,
                room as i64,
                self.events.as_mut_ptr(),
                limit,
            )
        };
        if taken < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
        }
        self.in_flight -= taken as u32;
        let events = self.events[..taken as usize].iter();
        done.extend(events.map(|event| done_with(&mut self.held, *event)));
        Ok(())
    }
}
