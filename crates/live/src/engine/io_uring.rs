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
//! thread    IORING_SETUP_SQPOLL if asked for: a thread of the kernel takes calls, which are then handed in without a
//!           call
//! syncs     otherwise go like any call, among the writes in flight, as fio has them
//! ```
//! Unavailable features are left out, and the thread's notes list them. Source: `io_uring/io_uring.c` and the manual
//! pages of liburing; fio's engine of the same name. Known deviations: none.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::types::{Fd, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use iowhy_stack::event::Op;
use iowhy_stack::origin::{Entry, Origin};

use super::{Build, Completion, Engine, Files, Io, Open, OpenFile, Setup, Submit, is_apart};
use crate::memory::Pool;

pub(super) const ENTRY: Entry<Build> = Entry {
    name: "io_uring",
    summary: "calls through a ring shared with the kernel",
    origin: &[Origin { kernels: "5.1 ..", file: "io_uring/io_uring.c", function: "io_uring_enter", notes: "" }],
    options: &[],
    conformance: "engine tests on a real file; the same jobs with fio's io_uring",
    build: Build::of::<Uring>(),
};

/// The kernel's thread sleeps when it has had nothing to do for this long.
const IDLE_MS: u32 = 1000;

/// Bytes that one registered area may have at most.
const LARGEST_AREA: usize = 1 << 30;

struct Uring {
    ring: IoUring,
    files: Files,
    /// The calls that the engine has, by slot.
    held: Vec<Option<Io>>,
    depth: u32,
    queued: u32,
    in_flight: u32,
    fixed_buffers: bool,
    registered_files: bool,
    polled: bool,
    kernel_thread: bool,
    notes: Vec<String>,
}

impl Open for Uring {
    fn open(setup: &Setup<'_>) -> io::Result<Uring> {
        let mut notes = Vec::new();
        let depth = setup.depth.max(1);
        let mut polled = setup.poll;
        if polled && !setup.files.iter().all(|file| file.file.is_none() || file.direct) {
            polled = false;
            notes.push("completions of buffered calls cannot be polled: the ring waits for them".to_owned());
        }
        if polled && !can_be_polled(setup) {
            polled = false;
            notes.push("the files cannot be polled (IORING_SETUP_IOPOLL): the ring waits for completions".to_owned());
        }
        let ring = new_ring(depth, polled, setup.kernel_thread)?;
        let mut fixed_buffers = false;
        if setup.fixed_buffers {
            let (start, len) = setup.buffers.area();
            let area = libc::iovec { iov_base: start.cast(), iov_len: len };
            let result = if len > LARGEST_AREA {
                Err(io::Error::from_raw_os_error(libc::EFAULT))
            } else {
                // SAFETY: the kernel takes a reference to each page; it touches them only for calls, which have
                // buffers.
                unsafe { ring.submitter().register_buffers(&[area]) }
            };
            match result {
                Ok(()) => fixed_buffers = true,
                Err(error) => notes.push(format!("buffers were not registered with the ring: {error}")),
            }
        }
        let mut registered_files = false;
        if setup.registered_files {
            let fds: Vec<_> = setup.files.iter().map(OpenFile::fd).collect();
            match ring.submitter().register_files(&fds) {
                Ok(()) => registered_files = true,
                Err(error) => notes.push(format!("files were not registered with the ring: {error}")),
            }
        }
        let (files, held) = (Files::of(setup), (0..depth).map(|_| None).collect());
        let kernel_thread = setup.kernel_thread.is_some();
        let (queued, in_flight) = (0, 0);
        Ok(Uring {
            ring,
            files,
            held,
            depth,
            queued,
            in_flight,
            fixed_buffers,
            registered_files,
            polled,
            kernel_thread,
            notes,
        })
    }
}

/// The best ring that this kernel makes.
fn new_ring(depth: u32, polled: bool, kernel_thread: Option<Option<u32>>) -> io::Result<IoUring> {
    let mut first_error = None;
    for modern in [2, 1, 0] {
        let mut builder = IoUring::builder();
        match modern {
            2 if kernel_thread.is_none() => {
                builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
            }
            1 if kernel_thread.is_none() => {
                builder.setup_coop_taskrun();
            }
            _ => {}
        }
        if polled {
            builder.setup_iopoll();
        }
        if let Some(cpu) = kernel_thread {
            builder.setup_sqpoll(IDLE_MS);
            if let Some(cpu) = cpu {
                builder.setup_sqpoll_cpu(cpu);
            }
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
    let Ok(mut ring) = new_ring(1, true, None) else { return false };
    let Ok(mut pool) = Pool::new(1, 4096, 4096, |_| ()) else { return false };
    let mut buffer = pool.take(0);
    for file in setup.files.iter().filter_map(|file| file.file.as_ref()) {
        let (start, len) = (buffer.data_mut().as_mut_ptr(), buffer.data().len() as u32);
        let entry = opcode::Read::new(Fd(file.as_raw_fd()), start, len).build();
        // SAFETY: nobody looks at the buffer, which goes back only when the call is over; the file stays open.
        let pushed = unsafe { ring.submission().push(&entry) };
        if pushed.is_err() || ring.submit_and_wait(1).is_err() {
            return false;
        }
        let Some(done) = ring.completion().next() else { return false };
        if done.result() < 0 {
            pool.put(buffer);
            return false;
        }
    }
    pool.put(buffer);
    true
}

impl Uring {
    #[inline]
    fn entry(&self, io: &mut Io) -> squeue::Entry {
        let (op, offset, file, prio) = (io.op, io.offset, io.file, io.priority);
        let fd = self.files.of_call(io).as_raw_fd();
        let (start, len) = (io.data_mut().as_mut_ptr(), io.len_bytes);
        macro_rules! built {
            ($fd:expr) => {
                match op {
                    Op::Read if self.fixed_buffers => {
                        opcode::ReadFixed::new($fd, start, len, 0).offset(offset).ioprio(prio).build()
                    }
                    Op::Write if self.fixed_buffers => {
                        opcode::WriteFixed::new($fd, start, len, 0).offset(offset).ioprio(prio).build()
                    }
                    Op::Read => opcode::Read::new($fd, start, len).offset(offset).ioprio(prio).build(),
                    Op::Write => opcode::Write::new($fd, start, len).offset(offset).ioprio(prio).build(),
                    Op::Fsync | Op::Trim => opcode::Fsync::new($fd).build(),
                    Op::Fdatasync => opcode::Fsync::new($fd).flags(FsyncFlags::DATASYNC).build(),
                }
            };
        }
        let entry = if self.registered_files { built!(Fixed(file)) } else { built!(Fd(fd)) };
        entry.user_data(u64::from(io.slot))
    }

    /// Takes what the completion queue has.
    #[inline]
    fn take(&mut self, max: u32, done: &mut Vec<Completion>) -> u32 {
        let before = done.len();
        for entry in self.ring.completion().take(max as usize) {
            let io = self.held[entry.user_data() as usize].take().expect("calls in flight are held");
            done.push(io.done(entry.result()));
        }
        let taken = (done.len() - before) as u32;
        self.in_flight -= taken;
        taken
    }
}

impl Engine for Uring {
    #[inline]
    fn submit(&mut self, mut io: Io) -> Submit {
        if io.op == Op::Trim || self.polled && is_apart(io.op) {
            let busy = self.queued + self.in_flight > 0;
            return if busy { Submit::Full(io) } else { Submit::Done(self.files.sync(io)) };
        }
        if self.queued + self.in_flight == self.depth {
            return Submit::Full(io);
        }
        let entry = self.entry(&mut io);
        let place = &mut self.held[io.slot as usize];
        assert!(place.is_none(), "a slot is used by one call at a time");
        // SAFETY: the engine holds the call with its buffer, and the files, until the completion was reaped.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            return Submit::Full(io);
        }
        *place = Some(io);
        self.queued += 1;
        Submit::Queued
    }

    fn commit(&mut self) -> io::Result<u32> {
        if self.queued == 0 {
            return Ok(0);
        }
        match self.ring.submit() {
            Ok(taken) => {
                // The kernel's thread takes what is there, when it comes to it.
                let taken = if self.kernel_thread { self.queued } else { taken as u32 };
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
                let taken = if self.kernel_thread { self.queued } else { taken as u32 };
                self.queued -= taken;
                self.in_flight += taken;
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EBUSY)) => {}
            Err(error) => return Err(error),
        }
        got += self.take(max - got, done);
        assert!(got <= max);
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // The kernel may still write to buffers of calls in flight, also after the ring was closed. None of them goes
        // back to its pool from here, so that the memory stays even if they cannot be waited for.
        let mut done = Vec::new();
        let _ = self.commit();
        while self.in_flight > 0 {
            if self.reap(self.in_flight, u32::MAX, None, &mut done).is_err() {
                break;
            }
        }
    }
}
