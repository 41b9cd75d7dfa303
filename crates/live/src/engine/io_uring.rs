//! io_uring: calls through a ring that process and kernel share.
//!
//! ```text
//! ring      SINGLE_ISSUER and DEFER_TASKRUN with TASKRUN_FLAG (Linux 6.1): completions are prepared when the thread
//!           asks for them, not by interrupting it; COOP_TASKRUN (5.19) or nothing on older kernels
//! buffers   registered as one area if asked for: then the kernel need not look pages up for each call
//! files     registered if asked for: then it need not take a reference for each call
//! polling   IORING_SETUP_IOPOLL if asked for, all files are open with O_DIRECT, and a read of each shows that they
//!           can be polled; such a ring takes no syncs, which wait until nothing is in flight and are carried out at
//!           once
//! syncs     otherwise go like any call, beside the writes in flight, as fio has them
//! ```
//! What could not be had is left out, and the thread's notes say so. Source: `io_uring/io_uring.c` and the manual pages
//! of liburing; fio's engine of the same name. Known deviations: none.

use std::io;
use std::time::Duration;

use io_uring::types::{Fd, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use iowhy_stack::event::Op;
use iowhy_stack::origin::{Entry, Origin};

use super::{Build, Completion, Engine, Io, Open, Setup, Submit, sync_now};

pub(super) const ENTRY: Entry<Build> = Entry {
    name: "io_uring",
    summary: "calls through a ring shared with the kernel",
    origin: &[Origin { kernels: "5.1 ..", file: "io_uring/io_uring.c", function: "io_uring_enter", notes: "" }],
    options: &[],
    conformance: "engine tests on a real file; the same jobs with fio's io_uring",
    build: Build::of::<Uring>(),
};

/// Bytes that one registered area may have at most.
const LARGEST_AREA: usize = 1 << 30;

struct Uring {
    ring: IoUring,
    depth: u32,
    queued: u32,
    in_flight: u32,
    fixed_buffers: bool,
    registered_files: bool,
    polled: bool,
    notes: Vec<String>,
}

impl Open for Uring {
    fn open(setup: &Setup<'_>) -> io::Result<Uring> {
        let mut notes = Vec::new();
        let depth = setup.depth.max(1);
        let mut polled = setup.poll;
        if polled && !setup.files.iter().all(|file| file.fd < 0 || file.direct) {
            polled = false;
            notes.push("completions of buffered calls cannot be polled: the ring waits for them".to_owned());
        }
        if polled && !can_be_polled(setup) {
            polled = false;
            notes.push("the files cannot be polled (IORING_SETUP_IOPOLL): the ring waits for completions".to_owned());
        }
        let ring = new_ring(depth, polled)?;
        let mut fixed_buffers = false;
        if setup.fixed_buffers {
            let (start, len) = setup.memory;
            let area = libc::iovec { iov_base: start.cast(), iov_len: len };
            let result = if len > LARGEST_AREA {
                Err(io::Error::from_raw_os_error(libc::EFAULT))
            } else {
                // SAFETY: the memory belongs to the thread's buffers, which outlive the engine.
                unsafe { ring.submitter().register_buffers(&[area]) }
            };
            match result {
                Ok(()) => fixed_buffers = true,
                Err(error) => notes.push(format!("buffers were not registered with the ring: {error}")),
            }
        }
        let mut registered_files = false;
        if setup.registered_files {
            let fds: Vec<_> = setup.files.iter().map(|file| file.fd).collect();
            match ring.submitter().register_files(&fds) {
                Ok(()) => registered_files = true,
                Err(error) => notes.push(format!("files were not registered with the ring: {error}")),
            }
        }
        Ok(Uring { ring, depth, queued: 0, in_flight: 0, fixed_buffers, registered_files, polled, notes })
    }
}

/// The best ring that this kernel makes.
fn new_ring(depth: u32, polled: bool) -> io::Result<IoUring> {
    let mut first_error = None;
    for modern in [2, 1, 0] {
        let mut builder = IoUring::builder();
        match modern {
            2 => {
                builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
            }
            1 => {
                builder.setup_coop_taskrun();
            }
            _ => {}
        }
        if polled {
            builder.setup_iopoll();
        }
        builder.setup_clamp();
        match builder.build(depth) {
            Ok(ring) => return Ok(ring),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS)))
}

/// Reads the start of each file through a polled ring of its own.
fn can_be_polled(setup: &Setup<'_>) -> bool {
    let Ok(mut ring) = new_ring(1, true) else { return false };
    let (start, len) = setup.memory;
    let len = len.min(4096) as u32;
    setup.files.iter().filter(|file| file.fd >= 0).all(|file| {
        let entry = opcode::Read::new(Fd(file.fd), start, len).build();
        // SAFETY: the memory outlives the ring, and the call is waited for before anything else uses it.
        unsafe {
            if ring.submission().push(&entry).is_err() {
                return false;
            }
        }
        ring.submit_and_wait(1).is_ok() && ring.completion().next().is_some_and(|done| done.result() >= 0)
    })
}

impl Uring {
    #[inline]
    fn entry(&self, io: &Io) -> squeue::Entry {
        macro_rules! built {
            ($fd:expr) => {
                match io.op {
                    Op::Read if self.fixed_buffers => {
                        opcode::ReadFixed::new($fd, io.buffer, io.len_bytes, 0).offset(io.offset).build()
                    }
                    Op::Write if self.fixed_buffers => {
                        opcode::WriteFixed::new($fd, io.buffer, io.len_bytes, 0).offset(io.offset).build()
                    }
                    Op::Read => opcode::Read::new($fd, io.buffer, io.len_bytes).offset(io.offset).build(),
                    Op::Write => opcode::Write::new($fd, io.buffer, io.len_bytes).offset(io.offset).build(),
                    Op::Fsync => opcode::Fsync::new($fd).build(),
                    Op::Fdatasync => opcode::Fsync::new($fd).flags(FsyncFlags::DATASYNC).build(),
                }
            };
        }
        let entry = if self.registered_files { built!(Fixed(io.file)) } else { built!(Fd(io.fd)) };
        entry.user_data(u64::from(io.slot))
    }

    /// Takes what the completion queue has.
    #[inline]
    fn take(&mut self, max: u32, done: &mut Vec<Completion>) -> u32 {
        let before = done.len();
        let ready = self.ring.completion().take(max as usize);
        done.extend(ready.map(|entry| Completion { slot: entry.user_data() as u32, result: entry.result() }));
        let taken = (done.len() - before) as u32;
        self.in_flight -= taken;
        taken
    }
}

impl Engine for Uring {
    #[inline]
    fn submit(&mut self, io: &Io) -> Submit {
        if self.polled && matches!(io.op, Op::Fsync | Op::Fdatasync) {
            let busy = self.queued + self.in_flight > 0;
            return if busy { Submit::Full } else { Submit::Done(sync_now(io)) };
        }
        if self.queued + self.in_flight == self.depth {
            return Submit::Full;
        }
        let entry = self.entry(io);
        // SAFETY: the runner keeps the call's buffer valid until its completion was reaped, and the files open.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            return Submit::Full;
        }
        self.queued += 1;
        Submit::Queued
    }

    fn commit(&mut self) -> io::Result<u32> {
        if self.queued == 0 {
            return Ok(0);
        }
        match self.ring.submit() {
            Ok(taken) => {
                let taken = taken as u32;
                self.queued -= taken;
                self.in_flight += taken;
                Ok(taken)
            }
            // Nothing was taken: completions have to be reaped first, or a signal came; the next commit tries again.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::EINTR)) => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn reap(&mut self, min: u32, max: u32, timeout: Option<Duration>, done: &mut Vec<Completion>) -> io::Result<()> {
        let mut got = self.take(max, done);
        let min = min.min(max).min(got + self.in_flight);
        if got >= min && (min > 0 || !self.ring.submission().taskrun()) {
            return Ok(());
        }
        let wanted = min.saturating_sub(got) as usize;
        let result = match timeout {
            Some(timeout) => {
                let time = Timespec::from(timeout);
                self.ring.submitter().submit_with_args(wanted, &SubmitArgs::new().timespec(&time))
            }
            None => self.ring.submit_and_wait(wanted),
        };
        match result {
            Ok(taken) => {
                self.queued -= taken as u32;
                self.in_flight += taken as u32;
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EBUSY)) => {}
            Err(error) => return Err(error),
        }
        got += self.take(max - got, done);
        debug_assert!(got <= max);
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // The kernel may still write to buffers of calls in flight, also after the ring was closed.
        let mut done = Vec::new();
        let _ = self.commit();
        while self.in_flight > 0 {
            if self.reap(self.in_flight, u32::MAX, None, &mut done).is_err() {
                break;
            }
        }
    }
}
